/* test_scalars.c: random programs of operations on single elements, run whole, in slices and step by step, against the
 * elementwise loops called with one element, bit by bit. Prints "N passed, N failed". */
#include "build.h"
#include <math.h>

enum { SLOTS = 24, STEPS = 300 };

typedef union slot {
    double f64;
    float f32;
    uint8_t bits[8];
} slot;

static double any_value(void)
{
    static const double odd[] = {0, -0.0, 1, -1, 0.5, 2, INFINITY, -INFINITY, NAN, 5e-324, 1e-310, 1e308, 1e30, -1e-30, 3e9, 8191.5, 1048577.25};
    return below(2) ? odd[below(17)] : (double)(below(2000001) - 1000000) / (below(2) ? 1e5 : 7);
}

/* Slots of one program: the first half float64, then float32, the last four bool. */
static int dtype_of(int i) { return i >= SLOTS - 4 ? GD_BOOL : i < SLOTS / 2 ? GD_FLOAT64 : GD_FLOAT32; }
static int any_slot(int dtype)
{
    return dtype == GD_BOOL ? SLOTS - 4 + (int)below(4) : dtype == GD_FLOAT64 ? (int)below(SLOTS / 2) : SLOTS / 2 + (int)below(SLOTS / 2 - 4);
}

static int same(const slot *a, const slot *b, int dtype)
{
    if (dtype == GD_FLOAT64)
        return memcmp(a, b, 8) == 0 || (a->f64 != a->f64 && b->f64 != b->f64);
    if (dtype == GD_FLOAT32)
        return memcmp(a, b, 4) == 0 || (a->f32 != a->f32 && b->f32 != b->f32);
    return a->bits[0] == b->bits[0];
}

/* Half of the operands are the result before, as in a chain. */
static void one_program(int rounds)
{
    builder *b = new_builder(SLOTS * 8);
    slot x[SLOTS], first[SLOTS];
    int views[SLOTS], last = 0, ops[STEPS], args[STEPS][4];
    for (int i = 0; i < SLOTS; i++) {
        x[i].f64 = 0;
        if (dtype_of(i) == GD_FLOAT64)
            x[i].f64 = any_value();
        else if (dtype_of(i) == GD_FLOAT32)
            x[i].f32 = (float)any_value();
        else
            x[i].bits[0] = (uint8_t)below(2);
        views[i] = scalar(b, 0, dtype_of(i), i * 8);
    }
    memcpy(first, x, sizeof x);
    for (int i = 0; i < rounds; i++) {
        int op, dtype = below(3) ? GD_FLOAT64 : GD_FLOAT32, in[4];
        do op = (int)below(GD_MAP_COUNT);
        while (!gd_op_accepts(op, dtype) || op == GD_OP_COPYSIGN || op == GD_OP_SIGNBIT);    /* nobody promises the sign of a NaN */
        if (below(2))
            op = (int[]){GD_OP_ADD, GD_OP_MULTIPLY, GD_OP_SUBTRACT, GD_OP_SIN, GD_OP_ZMUL, GD_OP_WHERE}[below(6)];
        const int n_in = gdi_map_arity(op), out = any_slot(gdi_map_is_test(op) ? GD_BOOL : dtype);
        const void *values[3] = {NULL};
        in[0] = views[out];
        args[i][0] = out;
        for (int k = 1; k <= n_in; k++) {
            int kind = op == GD_OP_WHERE && k == 1 ? GD_BOOL : dtype;
            args[i][k] = below(2) && dtype_of(last) == kind ? last : any_slot(kind);
            in[k] = views[args[i][k]];
            values[k - 1] = &x[args[i][k]];
        }
        slot r = x[out];
        gdi_active()->map[op][dtype](1, values, &r);
        x[out] = r;
        last = out;
        ops[i] = op;
        emit(b, op, n_in, in);
    }
    gd_program *p;
    gd_workspace *w;
    gd_fault f;
    CHECK(gd_program_new(&b->s, &p, &f) == GD_OK && gd_workspace_new(p, 1, &w) == GD_OK);
    for (int way = 0; way < 3; way++) {
        int64_t ns[STEPS];
        memcpy(gd_workspace_arena(w), first, sizeof first);
        if (way == 2) {
            CHECK(gd_run_profiled(p, w, NULL, ns, &f) == GD_OK);
        } else {
            int status;
            while ((status = gd_run(p, w, NULL, way, &f)) == GD_MORE)
                ;
            CHECK(status == GD_OK);
        }
        int ok = 1;
        for (int i = 0; i < SLOTS; i++)
            ok = ok && same((const slot *)(const void *)gd_workspace_arena(w) + i, &x[i], dtype_of(i));
        if (!ok)
            printf("way %d, %d steps, the last one %s\n", way, rounds, gd_op_name(ops[rounds - 1]));
        CHECK(ok);
    }
    gd_workspace_free(w);
    gd_program_free(p);
    free(b);
}

/* Long runs are interrupted and continue. */
static void test_budget(void)
{
    builder *b = new_builder(16);
    gd_fault f;
    double x = 0, y = 0;
    int more = 0, a = scalar(b, 0, GD_FLOAT64, 0), one = scalar(b, 1, GD_FLOAT64, 0), out = scalar(b, 4, GD_FLOAT64, 0);
    b->nbytes[4] = 8;
    EMIT(b, GD_OP_SUBTRACT, a, one, one);
    for (int i = 0; i < 1000; i++)
        EMIT(b, GD_OP_ADD, a, i % 2 ? a : one, i % 2 ? one : a);
    EMIT(b, GD_OP_ADD, out, a, a);
    CHECK(run(b, 1, 1, (void *[BASES]){NULL, NULL, &x, &x, &y}, &f, &more) == GD_OK && y == 2000);
    free(b);
}

/* One element under another shape, far away, or of a type the loop does not know: the other steps do those. */
static void test_shapes(void)
{
    builder *b = new_builder(4096);
    gd_fault f;
    double x[2] = {3, 4}, y = 0;
    const int64_t ones[] = {1, 1}, strides[] = {7, 5};
    int in = view(b, 2, GD_FLOAT64, 8, 2, ones, strides), t = view(b, 0, GD_FLOAT64, 4088, 2, ones, ones), out = view(b, 4, GD_FLOAT64, 0, 2, ones, strides);
    b->nbytes[2] = 16, b->nbytes[4] = 8;
    EMIT(b, GD_OP_MULTIPLY, t, in, in);
    EMIT(b, GD_OP_SQRT, out, t);
    CHECK(run(b, 1, 0, (void *[BASES]){NULL, NULL, x, x, &y}, &f, NULL) == GD_OK && y == 4);
    free(b);
}

int main(int argc, char **argv)
{
    const int rounds = getenv("GRAPHDIFF_LONG") ? 20000 : 1500;
    if (choose_isa(argc, argv))
        return 2;
    for (int i = 0; i < rounds; i++)
        one_program(1 + (int)below(i < 1000 ? 8 : STEPS - 1));
    test_budget();
    test_shapes();
    CHECK(gd_alloc_live() == 0);
    return report();
}
