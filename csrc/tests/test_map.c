/* test_map.c: elementwise instructions over random layouts, dtypes, thread counts and budgets, in place or not, each
 * compared with one loop that knows nothing of plans. Prints "N passed, N failed". */
#include "layouts.h"

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

/* One instruction with random layouts of one shape: inputs 1 and 2 in bases 2 and 3; the output, input 3 and an input
 * that is updated in place in base 4. Small whole numbers are exact in every dtype. All of base 4 must come out as the
 * plain loop leaves it. */
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
    before = calloc(1, (size_t)total + 8);      /* bytes between the arrays are compared too */
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

int main(int argc, char **argv)
{
    if (choose_isa(argc, argv))
        return 2;
    test_layouts();
    return report();
}
