/* build.h: what the tests of the core share: counting checks, building small programs, running them. */
#ifndef GDI_TEST_BUILD_H
#define GDI_TEST_BUILD_H
#include "../core/program.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int passed, failed;
#define CHECK(ok) do { \
        if (ok) passed++; \
        else { failed++; printf("%s:%d: %s\n", __FILE__, __LINE__, #ok); } } while (0)

/* ---- building programs ---- */
enum { MANY = 4096, BASES = 5, ATTRS = 256 };
typedef struct builder {
    gd_instr instr[MANY];
    gd_view view[MANY];
    int32_t arg[MANY];
    int64_t dim[MANY], attr[ATTRS], nbytes[BASES];
    int32_t access[BASES];
    double constants[4];
    gd_program_spec s;
} builder;

static inline builder *new_builder(int64_t arena)
{
    builder *b = calloc(1, sizeof *b);
    if (!b)
        exit(1);
    b->constants[0] = 1, b->constants[1] = 2, b->constants[2] = 0.5, b->constants[3] = -3;
    b->nbytes[GD_BASE_ARENA] = arena;
    b->nbytes[GD_BASE_CONST] = sizeof b->constants;
    b->access[GD_BASE_ARENA] = b->access[4] = GD_WRITE;
    b->s = (gd_program_spec){.instr = b->instr, .view = b->view, .arg = b->arg, .dim = b->dim, .attr = b->attr,
        .constants = (const char *)b->constants, .constants_nbytes = sizeof b->constants, .base_nbytes = b->nbytes,
        .base_access = b->access, .n_base = BASES};
    return b;
}

static inline int view(builder *b, int base, int dtype, int64_t offset, int ndim, const int64_t *shape, const int64_t *stride)
{
    gd_view v = {base, dtype, ndim, (int32_t)b->s.n_dim, offset};
    for (int d = 0; d < ndim; d++) {
        b->dim[b->s.n_dim + d] = shape[d];
        b->dim[b->s.n_dim + ndim + d] = stride[d];
    }
    b->s.n_dim += 2 * ndim;
    b->view[b->s.n_view] = v;
    return (int)b->s.n_view++;
}

static inline int vector(builder *b, int base, int dtype, int64_t offset, int64_t n)
{
    return view(b, base, dtype, offset, 1, (int64_t[]){n}, (int64_t[]){1});
}

static inline int scalar(builder *b, int base, int dtype, int64_t offset) { return view(b, base, dtype, offset, 0, NULL, NULL); }

static inline void emit(builder *b, int op, int n_in, const int *args)
{
    b->instr[b->s.n_instr++] = (gd_instr){op, 1, n_in, (int32_t)b->s.n_arg, 0, 0};
    for (int k = 0; k <= n_in; k++)
        b->arg[b->s.n_arg++] = args[k];
    b->s.commit = b->s.n_instr;
}
static inline void attrs(builder *b, int n, const int64_t *values)
{
    gd_instr *in = &b->instr[b->s.n_instr - 1];
    in->attr = (int32_t)b->s.n_attr;
    in->n_attr = n;
    for (int i = 0; i < n; i++)
        b->attr[b->s.n_attr++] = values[i];
}
#define EMIT(b, op, ...) emit(b, op, (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)) - 1, (int[]){__VA_ARGS__})

/* Build, run to the end in slices of budget, free. Returns the status; *more counts the interruptions. */
static inline int run(builder *b, int threads, int64_t budget, void *const *bases, gd_fault *fault, int *more)
{
    gd_program *p;
    gd_workspace *w;
    int status = gd_program_new(&b->s, &p, fault);
    if (status != GD_OK)
        return status;
    status = gd_workspace_new(p, threads, &w);
    if (status == GD_OK) {
        while ((status = gd_run(p, w, bases, budget, fault)) == GD_MORE)
            if (more)
                ++*more;
        gd_workspace_free(w);
    }
    gd_program_free(p);
    return status;
}

/* Numbers that look random and are the same in every run. */
static uint64_t seed = 1;
static inline int64_t below(int64_t n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((seed >> 33) % (uint64_t)n);
}

/* The ISA to test is the program's argument. Nonzero: this CPU cannot. */
static inline int choose_isa(int argc, char **argv) { return argc > 1 && gd_force_isa(argv[1]) != GD_OK; }

static inline int report(void)
{
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
#endif
