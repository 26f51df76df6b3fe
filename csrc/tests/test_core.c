/* test_core.c: the verifier, the executor, elementwise layouts, budgets, threads, fork and failing allocations.
 * Prints "N passed, N failed". Every layout is compared with one loop that knows nothing of plans. */
#define _GNU_SOURCE
#include "../core/program.h"
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int passed, failed;
#define CHECK(ok) do { \
        if (ok) passed++; \
        else { failed++; printf("%s:%d: %s\n", __FILE__, __LINE__, #ok); } } while (0)

/* ---- building programs ---- */
enum { MANY = 4096, BASES = 5 };
typedef struct builder {
    gd_instr instr[MANY];
    gd_view view[MANY];
    int32_t arg[MANY];
    int64_t dim[MANY], attr[64], nbytes[BASES];
    int32_t access[BASES];
    double constants[4];
    gd_program_spec s;
} builder;

static builder *new_builder(int64_t arena)
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

static int view(builder *b, int base, int dtype, int64_t offset, int ndim, const int64_t *shape, const int64_t *stride)
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

static int vector(builder *b, int base, int dtype, int64_t offset, int64_t n)
{
    return view(b, base, dtype, offset, 1, (int64_t[]){n}, (int64_t[]){1});
}

static int scalar(builder *b, int base, int dtype, int64_t offset) { return view(b, base, dtype, offset, 0, NULL, NULL); }

static void emit(builder *b, int op, int n_in, const int *args)
{
    b->instr[b->s.n_instr++] = (gd_instr){op, 1, n_in, (int32_t)b->s.n_arg, 0, 0};
    for (int k = 0; k <= n_in; k++)
        b->arg[b->s.n_arg++] = args[k];
    b->s.commit = b->s.n_instr;
}
#define EMIT(b, op, ...) emit(b, op, (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)) - 1, (int[]){__VA_ARGS__})

/* Build, run to the end in slices of budget, free. Returns the status; *more counts the interruptions. */
static int run(builder *b, int threads, int64_t budget, void *const *bases, gd_fault *fault, int *more)
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

/* ---- layouts ---- */
static uint64_t seed = 1;
static int64_t below(int64_t n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((seed >> 33) % (uint64_t)n);
}

typedef struct layout {
    int64_t stride[8], offset, extent;       /* elements */
} layout;

/* A random layout of shape: a permuted, sliced, reversed, broadcast (inputs only) array. */
static layout random_layout(int ndim, const int64_t *shape, int is_output, int plain)
{
    layout l = {.extent = 1};
    int order[8];
    for (int d = 0; d < ndim; d++)
        order[d] = d;
    for (int d = ndim - 1; d > 0 && !plain; d--) {
        int e = (int)below(d + 1), t = order[d];
        order[d] = order[e], order[e] = t;
    }
    for (int i = ndim - 1; i >= 0; i--) {
        int d = order[i];
        if (!is_output && !plain && below(4) == 0)
            continue;                        /* stride 0 */
        int64_t step = !plain && below(4) == 0 ? 2 : 1;
        l.stride[d] = l.extent * step;
        l.extent *= (shape[d] > 0 ? shape[d] : 1) * step;
        if (!plain && shape[d] > 0 && below(5) == 0) {
            l.offset += l.stride[d] * (shape[d] - 1);
            l.stride[d] = -l.stride[d];
        }
    }
    return l;
}

static double get(const char *p, int dtype, int64_t i)
{
    switch (dtype) {
    case GD_FLOAT64: return ((const double *)(const void *)p)[i];
    case GD_FLOAT32: return ((const float *)(const void *)p)[i];
    case GD_INT64: return (double)((const int64_t *)(const void *)p)[i];
    case GD_INT32: return ((const int32_t *)(const void *)p)[i];
    case GD_FLOAT16: { float f; const void *in = p + 2 * i; gdi_active()->cast[GD_FLOAT16][GD_FLOAT32](1, &in, &f); return f; }
    default: return ((const uint8_t *)p)[i];
    }
}

static void put(char *p, int dtype, int64_t i, double v)
{
    switch (dtype) {
    case GD_FLOAT64: ((double *)(void *)p)[i] = v; break;
    case GD_FLOAT32: ((float *)(void *)p)[i] = (float)v; break;
    case GD_INT64: ((int64_t *)(void *)p)[i] = (int64_t)v; break;
    case GD_INT32: ((int32_t *)(void *)p)[i] = (int32_t)v; break;
    case GD_FLOAT16: { float f = (float)v; const void *in = &f; gdi_active()->cast[GD_FLOAT32][GD_FLOAT16](1, &in, p + 2 * i); break; }
    default: ((uint8_t *)p)[i] = (uint8_t)v;
    }
}

static double apply(int op, double x, double y, double z)
{
    switch (op) {
    case GD_OP_ADD: return x + y;
    case GD_OP_LESS: return x < y;
    case GD_OP_SQUARE: return x * x;
    default: return x != 0 ? y : z;          /* where */
    }
}

static int64_t position(const layout *l, int ndim, const int64_t *shape, int64_t i)
{
    int64_t at = l->offset;
    for (int d = ndim - 1; d >= 0; d--) {
        at += i % shape[d] * l->stride[d];
        i /= shape[d];
    }
    return at;
}

/* Base 2, 3 and constants-like arena copies hold the inputs; base 4 the output. Small whole numbers are exact everywhere. */
static int one_layout(int op, int dtype, int ndim, const int64_t *shape, int threads, int in_place)
{
    int n_in = op == GD_OP_WHERE ? 3 : op == GD_OP_SQUARE ? 1 : 2, ok = 1, args[4];
    int out_dtype = op == GD_OP_LESS ? GD_BOOL : dtype;
    builder *b = new_builder(0);
    char *data[4], *before;
    layout l[4];
    int dtypes[4] = {out_dtype, op == GD_OP_WHERE ? GD_BOOL : dtype, dtype, dtype};
    int64_t n = 1, where[4];
    for (int d = 0; d < ndim; d++)
        n *= shape[d];
    int plain = below(3) == 0;
    for (int k = 0; k <= n_in; k++) {
        l[k] = random_layout(ndim, shape, k == 0, plain && below(2));
        if (in_place && k == n_in)
            l[k] = l[0];
        data[k] = malloc((size_t)(l[k].extent * 8 + 8));
        for (int64_t i = 0; i < l[k].extent; i++)
            put(data[k], dtypes[k], i, (double)below(dtypes[k] == GD_BOOL ? 2 : 9));
    }
    /* Inputs 1, 2 at bases 2, 3; input 3, or the in-place one, together with the output in base 4. */
    where[0] = 0;
    int64_t size0 = gd_dtype_nbytes(out_dtype), room = l[0].extent * size0;
    for (int k = 1; k <= n_in; k++) {
        int base = in_place && k == n_in ? 4 : k == 3 ? 4 : k + 1;
        int64_t size = gd_dtype_nbytes(dtypes[k]);
        where[k] = base == 4 && !in_place ? (room + 7) / 8 * 8 : 0;
        b->nbytes[base] = where[k] + l[k].extent * size;
    }
    int64_t total = b->nbytes[4] > room ? b->nbytes[4] : room;
    b->nbytes[4] = total;
    before = malloc((size_t)total + 8);
    memcpy(before, data[0], (size_t)room);
    if (in_place)
        memcpy(before, data[n_in], (size_t)room);
    else if (n_in == 3)
        memcpy(before + where[3], data[3], (size_t)(l[3].extent * gd_dtype_nbytes(dtype)));
    char *after = malloc((size_t)total + 8);
    memcpy(after, before, (size_t)total);
    for (int k = 0; k <= n_in; k++) {
        int base = k == 0 || (in_place && k == n_in) || k == 3 ? 4 : k + 1;
        args[k] = view(b, base, dtypes[k], where[k] + l[k].offset * gd_dtype_nbytes(dtypes[k]), ndim, shape, l[k].stride);
    }
    emit(b, op, n_in, args);
    void *bases[BASES] = {NULL, NULL, data[1], n_in > 1 ? data[2] : NULL, after};
    gd_fault f;
    if (b->nbytes[3] && !bases[3])
        bases[3] = data[1];
    int status = run(b, threads, below(2) ? 1 : 0, bases, &f, NULL);
    ok = status == GD_OK;
    for (int64_t i = 0; ok && i < n; i++) {
        double v[4] = {0};
        for (int k = 1; k <= n_in; k++)
            v[k] = get(data[k], dtypes[k], position(&l[k], ndim, shape, i));
        put(before, out_dtype, position(&l[0], ndim, shape, i), apply(op, v[1], v[2], v[3]));
    }
    ok = ok && memcmp(before, after, (size_t)total) == 0;
    if (!ok)
        printf("layout: op %s dtype %d ndim %d n %lld status %d what %d (%s)\n", gd_op_name(op), dtype, ndim, (long long)n, status, f.what, gd_reason(f.what));
    for (int k = 0; k <= n_in; k++)
        free(data[k]);
    free(before), free(after), free(b);
    return ok;
}

static void test_layouts(void)
{
    static const int ops[] = {GD_OP_ADD, GD_OP_LESS, GD_OP_SQUARE, GD_OP_WHERE};
    static const int dtypes[] = {GD_FLOAT64, GD_FLOAT32, GD_INT32, GD_UINT8, GD_INT64, GD_FLOAT16};
    for (int i = 0; i < 6000; i++) {
        int op = ops[below(4)], dtype = dtypes[below(gd_op_accepts(GD_OP_ADD, GD_FLOAT16) ? 6 : 5)], ndim = (int)below(6);
        int64_t shape[8], n = 1;
        for (int d = 0; d < ndim; d++) {
            shape[d] = below(12) == 0 ? below(700) : below(7) + (below(20) != 0);
            if (n * (shape[d] > 0 ? shape[d] : 1) > 200000)
                shape[d] = 2;
            n *= shape[d] > 0 ? shape[d] : 1;
        }
        CHECK(one_layout(op, dtype, ndim, shape, below(4) == 0 ? 3 : 1, op != GD_OP_LESS && below(4) == 0));
    }
    CHECK(one_layout(GD_OP_ADD, GD_FLOAT32, 2, (int64_t[]){1300, 700}, 2, 0));
    CHECK(one_layout(GD_OP_ADD, GD_FLOAT64, 2, (int64_t[]){100000, 10}, 3, 0));
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
enum { BIG = 3000000 };
static builder *big_program(void)
{
    builder *b = new_builder(BIG * 8 * 2);
    b->nbytes[2] = b->nbytes[4] = BIG * 8;
    int x = vector(b, 2, GD_FLOAT64, 0, BIG), t = vector(b, 0, GD_FLOAT64, 0, BIG);
    int even = view(b, 0, GD_FLOAT64, BIG * 8, 1, (int64_t[]){BIG}, (int64_t[]){1}), y = vector(b, 4, GD_FLOAT64, 0, BIG);
    int c = view(b, 1, GD_FLOAT64, 16, 1, (int64_t[]){BIG}, (int64_t[]){0});
    int turned = view(b, 0, GD_FLOAT64, BIG * 8, 2, (int64_t[]){1000, 3000}, (int64_t[]){1, 1000});
    int square = view(b, 0, GD_FLOAT64, 0, 2, (int64_t[]){1000, 3000}, (int64_t[]){3000, 1});
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
        CHECK(run(b, threads, threads == 3 ? 0 : 200000, bases, &f, &more) == GD_OK && (threads == 3) == (more == 0));
        CHECK(memcmp(y, z, BIG * 8) == 0);
    }
    memset(z, 0, BIG * 8);
    b->s.commit = 0;                         /* nothing may be interrupted */
    more = 0;
    CHECK(run(b, 2, 1, bases, &f, &more) == GD_OK && more == 0 && memcmp(y, z, BIG * 8) == 0);
    pid_t child = fork();
    if (child == 0) {                        /* a child has no workers but starts its own */
        memset(z, 0, BIG * 8);
        int ok = run(b, 2, 0, bases, &f, NULL) == GD_OK && memcmp(y, z, BIG * 8) == 0;
        _exit(ok ? 0 : 1);
    }
    int code = 1;
    CHECK(waitpid(child, &code, 0) == child && code == 0);
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
    if (argc > 1 && gd_force_isa(argv[1]) != GD_OK)
        return 2;
    test_facts();
    test_scalar_chain();
    test_empty();
    test_layouts();
    test_verifier();
    test_damage();
    test_budget_and_threads();
    test_callers();
    test_fault();
    test_allocation();
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
