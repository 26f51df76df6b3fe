/* test_core.c: the verifier, the executor, budgets, threads, fork, faults and failing allocations.
 * Prints "N passed, N failed". */
#define _GNU_SOURCE
#include "build.h"
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- scalars ---- */
static void test_scalar_chain(void)
{
    builder *b = new_builder(64);
    double x = 1.5, y = 0;
    void *bases[BASES] = {NULL, NULL, &x, NULL, &y};
    gd_fault f;
    b->nbytes[2] = b->nbytes[4] = 8;
    int in = scalar(b, 2, GD_FLOAT64, 0), t = scalar(b, 0, GD_FLOAT64, 8), one = scalar(b, 1, GD_FLOAT64, 0);
    int out = scalar(b, 4, GD_FLOAT64, 0);
    EMIT(b, GD_OP_ADD, t, in, one);
    for (int i = 0; i < 1000; i++)
        EMIT(b, GD_OP_ADD, t, t, one);
    EMIT(b, GD_OP_MULTIPLY, out, t, in);
    CHECK(run(b, 1, 0, bases, &f, NULL) == GD_OK && y == 1002.5 * 1.5);
    gd_program *p;
    gd_workspace *w;
    CHECK(gd_program_new(&b->s, &p, &f) == GD_OK && gd_workspace_new(p, 4, &w) == GD_OK);
    int64_t ns[1002], sum = 0;
    y = 0;
    CHECK(gd_run_profiled(p, w, bases, ns, &f) == GD_OK && y == 1002.5 * 1.5);
    for (int i = 0; i < 1002; i++)
        sum += ns[i];
    CHECK(sum > 0 && gd_program_nbytes(p) > 1002 * 48 && ((uintptr_t)gd_workspace_arena(w) & 63) == 0);
    bases[4] = NULL;
    CHECK(gd_run(p, w, bases, 0, &f) == GD_BAD_VALUE && f.what == GDI_REASON_NULL_BASE && f.value == 4);
    gd_workspace_free(w);
    gd_program_free(p);
    free(b);
}

static void test_empty(void)
{
    builder *b = new_builder(0);
    gd_fault f;
    b->s.n_base = 2;
    CHECK(run(b, 1, 0, NULL, &f, NULL) == GD_OK);
    EMIT(b, GD_OP_ADD, vector(b, 0, GD_INT32, 0, 0), vector(b, 0, GD_INT32, 0, 0), vector(b, 0, GD_INT32, 0, 0));
    CHECK(run(b, 1, 1, NULL, &f, NULL) == GD_OK);
    free(b);
}

/* ---- the verifier ---- */
static int refused(builder *b, int what)
{
    gd_program *p;
    gd_fault f;
    int status = gd_program_new(&b->s, &p, &f), ok = status == GD_BAD_PROGRAM && f.what == what && !p;
    if (!ok)
        printf("refused: status %d what %d (%s), wanted %d (%s)\n", status, f.what, gd_reason(f.what), what, gd_reason(what));
    if (status == GD_OK)
        gd_program_free(p);
    return ok;
}

static builder *good(void)
{
    builder *b = new_builder(1024);
    b->nbytes[2] = 1024;
    EMIT(b, GD_OP_ADD, vector(b, 0, GD_FLOAT64, 0, 8), vector(b, 2, GD_FLOAT64, 0, 8), vector(b, 0, GD_FLOAT64, 64, 8));
    return b;
}
#define REFUSED(what, change) do { builder *b = good(); change; CHECK(refused(b, GDI_REASON_##what)); free(b); } while (0)

static void test_verifier(void)
{
    const int64_t big = INT64_MAX / 4;
    builder *ok = good();
    CHECK(run(ok, 1, 0, (void *[BASES]){NULL, NULL, ok, NULL, NULL}, NULL, NULL) == GD_OK);
    free(ok);
    REFUSED(TABLES, b->s.n_instr = -1);
    REFUSED(TABLES, b->s.view = NULL);
    REFUSED(TABLES, b->s.dim = NULL);
    REFUSED(BASES, b->s.n_base = 1);
    REFUSED(BASES, b->access[2] = 2);
    REFUSED(BASES, b->nbytes[0] = -1);
    REFUSED(CONSTANTS, b->nbytes[1] = 64);
    REFUSED(COMMIT, b->s.commit = 2);
    REFUSED(VIEW_BASE, b->view[0].base = BASES);
    REFUSED(VIEW_BASE, b->view[0].base = -1);
    REFUSED(VIEW_DTYPE, b->view[1].dtype = GD_DTYPE_COUNT);
    REFUSED(VIEW_NDIM, b->view[1].ndim = 33);
    REFUSED(VIEW_NDIM, b->view[1].ndim = -1);
    REFUSED(VIEW_DIMS, b->view[1].dims = 5);
    REFUSED(VIEW_DIMS, b->view[1].dims = INT32_MAX);
    REFUSED(VIEW_DIMS, b->view[1].dims = -1);
    REFUSED(VIEW_SIZE, b->dim[0] = -1);
    REFUSED(VIEW_SIZE, b->dim[0] = big);
    REFUSED(VIEW_STRIDE, b->dim[1] = big);
    REFUSED(VIEW_STRIDE, b->dim[1] = INT64_MIN);
    REFUSED(VIEW_OFFSET, b->view[0].offset = 4);
    REFUSED(VIEW_BOUNDS, b->view[0].offset = 1024 - 56);
    REFUSED(VIEW_BOUNDS, b->view[0].offset = -8);
    REFUSED(VIEW_BOUNDS, b->view[0].offset = INT64_MAX - 7);
    REFUSED(VIEW_BOUNDS, b->dim[1] = -1);
    REFUSED(OP, b->instr[0].op = GD_OP_COUNT);
    REFUSED(OP, b->instr[0].op = -1);
    REFUSED(ARITY, b->instr[0].n_in = 1);
    REFUSED(ARITY, b->instr[0].n_out = 2);
    REFUSED(ARITY, b->instr[0].n_out = 0);
    REFUSED(ARGS, b->instr[0].args = 1);
    REFUSED(ARGS, b->arg[2] = 3);
    REFUSED(ATTRS, b->instr[0].n_attr = 1);
    REFUSED(READ_ONLY, b->access[0] = GD_READ);
    REFUSED(READ_ONLY, (b->view[0].base = 1, b->dim[0] = b->dim[2] = b->dim[4] = 2, b->access[1] = GD_WRITE));
    REFUSED(OVERLAP, b->dim[1] = 0);
    REFUSED(ALIAS, b->view[2].offset = 8);
    REFUSED(ALIAS, b->view[2].offset = 56);              /* one element in common, at either end */
    REFUSED(ALIAS, (b->view[0].offset = 56, b->view[2].offset = 0));
    REFUSED(ALIAS, (b->view[2].offset = 56, b->dim[5] = -1));
    REFUSED(SHAPE, b->dim[4] = 7);
    REFUSED(DTYPE, b->view[2].dtype = GD_INT64);
    REFUSED(DTYPE, b->view[0].dtype = GD_INT64);
    REFUSED(DTYPE, b->instr[0].op = GD_OP_LESS);
    REFUSED(KERNEL, (b->instr[0].op = GD_OP_DIVIDE, b->view[0].dtype = b->view[1].dtype = b->view[2].dtype = GD_INT64));
    REFUSED(CALL, (b->instr[0].op = GD_OP_INT_POWER));
    CHECK(gd_reason(-1)[0] == 0 && gd_reason(GDI_REASON_COUNT)[0] == 0);
}

/* Random damage to a good program: refused or run, never a crash (run this under the sanitizers). */
static void test_damage(void)
{
    static const int64_t odd[] = {0, 1, -1, 2, 7, 8, 9, 63, 1024, INT32_MAX, INT64_MAX, INT64_MIN, 1 << 20, -8};
    double memory[128] = {0};
    void *bases[BASES] = {NULL, NULL, memory, memory, memory};
    int runs = 0;
    for (int i = 0; i < 20000; i++) {
        builder *b = good();
        gd_fault f;
        int64_t v = odd[below(14)];
        int32_t u = (int32_t)odd[below(10)];
        b->s.n_attr = 3;
        b->attr[0] = odd[below(14)];
        for (int j = 0; j < 2; j++)
            switch (below(6)) {
            case 0: b->dim[below(6)] = v; break;
            case 1: (&b->view[below(3)].base)[below(4)] = u; break;
            case 2: b->view[below(3)].offset = v; break;
            case 3: (&b->instr[0].op)[below(6)] = u; break;
            case 4: b->instr[0].op = (int32_t)below(GD_OP_COUNT); b->instr[0].n_in = (int32_t)below(4); break;
            default: b->view[0].dtype = b->view[1].dtype = b->view[2].dtype = (int32_t)below(7);
            }
        runs += run(b, 1, 0, bases, &f, NULL) == GD_OK;
        free(b);
    }
    CHECK(runs > 100);
}

/* ---- budgets, threads ---- */
enum { BIG = 600000 };
static builder *big_program(void)
{
    builder *b = new_builder(BIG * 8 * 2);
    b->nbytes[2] = b->nbytes[4] = BIG * 8;
    int x = vector(b, 2, GD_FLOAT64, 0, BIG), t = vector(b, 0, GD_FLOAT64, 0, BIG);
    int even = view(b, 0, GD_FLOAT64, BIG * 8, 1, (int64_t[]){BIG}, (int64_t[]){1}), y = vector(b, 4, GD_FLOAT64, 0, BIG);
    int c = view(b, 1, GD_FLOAT64, 16, 1, (int64_t[]){BIG}, (int64_t[]){0});
    int turned = view(b, 0, GD_FLOAT64, BIG * 8, 2, (int64_t[]){600, 1000}, (int64_t[]){1, 600});
    int square = view(b, 0, GD_FLOAT64, 0, 2, (int64_t[]){600, 1000}, (int64_t[]){1000, 1});
    EMIT(b, GD_OP_SQUARE, t, x);
    EMIT(b, GD_OP_MULTIPLY, even, t, c);
    EMIT(b, GD_OP_ADD, square, square, turned);
    EMIT(b, GD_OP_ADD, y, t, x);
    return b;
}

static void test_budget_and_threads(void)
{
    builder *b = big_program();
    double *x = malloc(BIG * 8), *y = calloc(BIG, 8), *z = calloc(BIG, 8);
    void *bases[BASES] = {NULL, NULL, x, NULL, y};
    gd_fault f;
    int more = 0;
    for (int i = 0; i < BIG; i++)
        x[i] = (double)below(1 << 30);
    CHECK(run(b, 1, 0, bases, &f, &more) == GD_OK && more == 0);
    bases[4] = z;
    for (int threads = 1; threads <= 5; threads += 2) {
        memset(z, 0, BIG * 8);
        more = 0;
        CHECK(run(b, threads, threads == 3 ? 0 : 100000, bases, &f, &more) == GD_OK && (threads == 3) == (more == 0));
        CHECK(memcmp(y, z, BIG * 8) == 0);
    }
    memset(z, 0, BIG * 8);
    b->s.commit = 0;                         /* nothing may be interrupted */
    more = 0;
    CHECK(run(b, 2, 1, bases, &f, &more) == GD_OK && more == 0 && memcmp(y, z, BIG * 8) == 0);
#ifndef __SANITIZE_THREAD__                  /* which allows no threads in a child */
    /* qemu's user emulation aborts in a child of a process with threads: an assertion of its own. */
    pid_t child = getenv("GRAPHDIFF_EMULATED") ? -1 : fork();
    if (child == 0) {                        /* a child has no workers but starts its own */
        memset(z, 0, BIG * 8);
        int ok = run(b, 2, 0, bases, &f, NULL) == GD_OK && memcmp(y, z, BIG * 8) == 0;
        _exit(ok ? 0 : 1);
    }
    int code = 1;
    CHECK(getenv("GRAPHDIFF_EMULATED") || (waitpid(child, &code, 0) == child && code == 0));
#endif
    free(b), free(x), free(y), free(z);
}

static void *one_caller(void *arg)
{
    builder *b = big_program();
    double *y = calloc(BIG, 8);
    void *bases[BASES] = {NULL, NULL, arg, NULL, y};
    gd_fault f;
    int ok = run(b, 3, 1000000, bases, &f, NULL) == GD_OK && y[7] == ((double *)arg)[7] + y[7] - ((double *)arg)[7];
    free(b), free(y);
    return ok ? arg : NULL;
}

static void test_callers(void)
{
    double *x = calloc(BIG, 8);
    pthread_t id[3];
    void *result;
    for (int i = 0; i < 3; i++)
        pthread_create(&id[i], NULL, one_caller, x);
    for (int i = 0; i < 3; i++) {
        pthread_join(id[i], &result);
        CHECK(result == x);
    }
    free(x);
}

/* The first failing element in order is reported, whatever thread met one first; the workspace runs again. */
static void test_fault(void)
{
    builder *b = new_builder(0);
    int64_t *x = malloc(BIG * 8), *y = malloc(BIG * 8);
    void *bases[BASES] = {NULL, NULL, x, y, malloc(BIG * 8)};
    gd_program *p;
    gd_workspace *w;
    gd_fault f;
    b->nbytes[2] = b->nbytes[3] = b->nbytes[4] = BIG * 8;
    EMIT(b, GD_OP_INT_POWER, vector(b, 4, GD_INT64, 0, BIG), vector(b, 2, GD_INT64, 0, BIG), vector(b, 3, GD_INT64, 0, BIG));
    for (int i = 0; i < BIG; i++)
        x[i] = i, y[i] = 2;
    for (int64_t i = BIG / 2; i < BIG; i += 1000)
        y[i] = -i;
    CHECK(gd_program_new(&b->s, &p, &f) == GD_OK && gd_workspace_new(p, 3, &w) == GD_OK);
    for (int64_t budget = 0; budget <= 100000; budget += 50000) {
        int status;
        while ((status = gd_run(p, w, bases, budget, &f)) == GD_MORE)
            ;
        CHECK(status == GD_BAD_VALUE && f.instr == 0 && f.value == -(BIG / 2));
    }
    for (int i = 0; i < BIG; i++)
        y[i] = 2;
    CHECK(gd_run(p, w, bases, 0, &f) == GD_OK && ((int64_t *)bases[4])[BIG - 1] == (int64_t)(BIG - 1) * (BIG - 1));
    gd_workspace_free(w), gd_program_free(p);
    free(x), free(y), free(bases[4]), free(b);
}

/* ---- structural kernels, as far as the executor sees them ---- */
static int turned_view(builder *b, int base, int64_t n, int64_t m)
{
    return view(b, base, GD_FLOAT64, 0, 2, (int64_t[]){m, n}, (int64_t[]){1, m});
}

static void test_copy(void)
{
    enum { N = 700, M = 500 };
    double *x = malloc(N * M * 8), *y = calloc(N * M, 8);
    void *bases[BASES] = {NULL, NULL, x, NULL, y};
    gd_fault f;
    for (int i = 0; i < N * M; i++)
        x[i] = i;
    for (int threads = 1; threads < 4; threads++) {
        builder *b = new_builder(0);
        int bad = 0, more = 0;
        b->nbytes[2] = b->nbytes[4] = N * M * 8;
        int out = view(b, 4, GD_FLOAT64, 0, 2, (int64_t[]){M, N}, (int64_t[]){N, 1});
        EMIT(b, GD_OP_COPY, out, turned_view(b, 2, N, M));
        memset(y, 0, N * M * 8);
        CHECK(run(b, threads, threads > 1 ? 1 : 0, bases, &f, &more) == GD_OK);
        for (int i = 0; i < M; i++)
            for (int j = 0; j < N; j++)
                bad += y[i * N + j] != x[j * M + i];
        CHECK(bad == 0);
        free(b);
    }
    free(x), free(y);
}

/* x[idx] += v where out is x itself, then an index that is out of bounds. */
static void test_scatter(void)
{
    builder *b = new_builder(0);
    double x[6] = {0, 1, 2, 3, 4, 5}, v[4] = {10, 20, 30, 40};
    int64_t index[2] = {2, -1};
    void *bases[BASES] = {NULL, NULL, index, v, x};
    gd_fault f;
    b->nbytes[2] = sizeof index, b->nbytes[3] = sizeof v, b->nbytes[4] = sizeof x;
    int xv = view(b, 4, GD_FLOAT64, 0, 3, (int64_t[]){1, 3, 2}, (int64_t[]){6, 2, 1});
    int vv = view(b, 3, GD_FLOAT64, 0, 3, (int64_t[]){1, 2, 2}, (int64_t[]){4, 2, 1});
    EMIT(b, GD_OP_SCATTER_ADD, xv, xv, vector(b, 2, GD_INT64, 0, 2), vv);
    attrs(b, 1, (int64_t[]){1});
    CHECK(run(b, 1, 0, bases, &f, NULL) == GD_OK);
    CHECK(x[0] == 0 && x[4] == 14 + 30 && x[5] == 25 + 40);
    index[0] = 7;
    CHECK(run(b, 1, 0, bases, &f, NULL) == GD_OUT_OF_BOUNDS);
    CHECK(f.instr == 0 && f.value == 7 && f.axis == 1 && f.size == 3);
    b->arg[3] = xv;
    CHECK(refused(b, GDI_REASON_CALL) || refused(b, GDI_REASON_ALIAS));
    free(b);
}

/* Two phases: the bits do not depend on the cut. */
static void test_sum(void)
{
    float *x = malloc(BIG * 4 * 2), first = 0, sum;
    void *bases[BASES] = {NULL, NULL, x, NULL, &sum};
    gd_fault f;
    for (int i = 0; i < BIG * 2; i++)
        x[i] = (float)below(1 << 24) * 1e-3f;
    for (int i = 0; i < 6; i++) {
        builder *b = new_builder(0);
        b->nbytes[2] = BIG * 8, b->nbytes[4] = 4;
        EMIT(b, GD_OP_SUM, scalar(b, 4, GD_FLOAT32, 0), vector(b, 2, GD_FLOAT32, 0, BIG * 2));
        attrs(b, 1, (int64_t[]){1});
        sum = 0;
        CHECK(run(b, 1 + i % 3, i < 3 ? 0 : 1, bases, &f, NULL) == GD_OK);
        if (i == 0)
            first = sum;
        CHECK(sum > 0 && memcmp(&sum, &first, 4) == 0);
        free(b);
    }
    free(x);
}

static void test_allocation(void)
{
    const int64_t live = gd_alloc_live();
    builder *b = big_program();
    double *x = calloc(BIG, 8);
    void *bases[BASES] = {NULL, NULL, x, NULL, x};
    gd_fault f;
    int status = GD_NO_MEMORY, n = 0;
    EMIT(b, GD_OP_COPY, 3, 0);
    for (; status != GD_OK && n < 100; n++) {
        gd_alloc_fail_after(n);
        status = run(b, 2, 0, bases, &f, NULL);
        CHECK(status == GD_NO_MEMORY || status == GD_OK);
        CHECK(gd_alloc_live() == live);
    }
    gd_alloc_fail_after(-1);
    CHECK(n > 10 && status == GD_OK);
    free(b), free(x);
}

static void test_facts(void)
{
    int found = 0;
    CHECK(gd_op_count() == GD_OP_COUNT && gd_op_arity(GD_OP_WHERE) == 3 && gd_op_arity(GD_OP_COPY) == -1);
    CHECK(!strcmp(gd_op_name(GD_OP_SIN), "sin") && !strcmp(gd_op_name(GD_OP_INT_POWER), "int_power"));
    CHECK(gd_op_accepts(GD_OP_SIN, GD_FLOAT32) && !gd_op_accepts(GD_OP_SIN, GD_INT32) && !gd_op_accepts(-1, 0));
    CHECK(gd_dtype_nbytes(GD_FLOAT16) == 2 && gd_dtype_nbytes(99) == 0);
    for (int i = 0; i < gd_isa_count(); i++)
        found += !strcmp(gd_isa(), gd_isa_name(i)) && gd_isa_supported(i);
    CHECK(found == 1 && gd_force_isa("no such") == GD_BAD_VALUE && gd_force_isa(gd_isa()) == GD_OK);
}

int main(int argc, char **argv)
{
    if (choose_isa(argc, argv))
        return 2;
    test_facts();
    test_scalar_chain();
    test_empty();
    test_verifier();
    test_damage();
    test_budget_and_threads();
    test_callers();
    test_fault();
    test_copy();
    test_scatter();
    test_sum();
    test_allocation();
    return report();
}
