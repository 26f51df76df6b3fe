/* test_reduce.c: reductions and softmax, each compared with a loop over element numbers; sums, products and maxima to the
 * bit. Prints "N passed, N failed". */
#include "arrays.h"

static const int all_dtypes[] = {GD_BOOL, GD_UINT8, GD_INT32, GD_INT64, GD_FLOAT16, GD_FLOAT32, GD_FLOAT64};
static const int float_dtypes[] = {GD_FLOAT32, GD_FLOAT64};

/* ---- reductions ---- */
/* The documented tree: blocks of 4096, in a block 16 lanes that are joined by halving, blocks joined in pairs. Lanes of
 * float32 sums are float32, everything else is double. */
static double tree(int prod, const array *x, int64_t first, int64_t n)
{
    double part[64], lane[16];
    int64_t blocks = (n + 4095) / 4096;
    for (int64_t b = 0; b < blocks; b++) {
        for (int l = 0; l < 16; l++)
            lane[l] = prod;
        for (int64_t i = b * 4096; i < n && i < (b + 1) * 4096; i++) {
            double v = get(x, first + i).f, a = lane[i % 16];
            lane[i % 16] = prod ? a * v : rounded(x->dtype, a + v);
        }
        for (int h = 8; h; h /= 2)
            for (int l = 0; l < h; l++)
                lane[l] = prod ? lane[l] * lane[l + h] : lane[l] + lane[l + h];
        part[b] = lane[0];
    }
    for (int64_t m = blocks; m > 1; m = (m + 1) / 2)
        for (int64_t b = 0; b < (m + 1) / 2; b++)
            part[b] = 2 * b + 1 == m ? part[2 * b] : prod ? part[2 * b] * part[2 * b + 1] : part[2 * b] + part[2 * b + 1];
    return blocks ? rounded(x->dtype, part[0]) : prod;
}

static number whole_total(int prod, const array *x, int64_t first, int64_t n)
{
    uint64_t s = (uint64_t)prod;
    for (int64_t i = 0; i < n; i++) {
        uint64_t v = (uint64_t)get(x, first + i).i;
        s = prod ? s * v : s + v;
    }
    array one = new_array(x->dtype, 0, NULL, PLAIN);           /* wraps as the dtype does */
    put(&one, 0, (number){0, (int64_t)s});
    number v = get(&one, 0);
    free_array(&one);
    return v;
}

/* Is v the better one? NaN is the best of all. */
static int beats(int dtype, number v, number best, int min)
{
    if (is_float(dtype))
        return !isnan(best.f) && (isnan(v.f) || (min ? v.f < best.f : v.f > best.f));
    return min ? v.i < best.i : v.i > best.i;
}

static number reduced(int op, const array *x, int64_t first, int64_t n)
{
    int prod = op == GD_OP_PROD, min = op == GD_OP_MIN || op == GD_OP_ARGMIN, any = 0, all = 1;
    int64_t best = 0, total = 0;
    if (op == GD_OP_SUM || op == GD_OP_PROD)
        return is_float(x->dtype) ? real(tree(prod, x, first, n)) : whole_total(prod, x, first, n);
    for (int64_t i = 0; i < n; i++) {
        number v = get(x, first + i);
        int truth = is_float(x->dtype) ? v.f != 0 : v.i != 0;
        any |= truth, all &= truth;
        total += op == GD_OP_COUNT_NONZERO ? truth : is_float(x->dtype) ? 0 : v.i;
        if (beats(x->dtype, v, get(x, first + best), min))
            best = i;
    }
    if (op == GD_OP_ANY || op == GD_OP_ALL)
        return whole(op == GD_OP_ANY ? any : all);
    if (op == GD_OP_EXACT_SUM)
        return real((double)total);
    if (op == GD_OP_COUNT_NONZERO || op == GD_OP_WIDE_SUM)
        return whole(total);
    return op == GD_OP_MAX || op == GD_OP_MIN ? get(x, first + best) : whole(best);
}

static number log_sum_exp(const array *x, int64_t first, int64_t n)
{
    double m = -INFINITY, s = 0;
    for (int64_t i = 0; i < n; i++) {
        double v = get(x, first + i).f;
        m = v > m || isnan(v) ? v : m;
    }
    if (isnan(m) || isinf(m))
        return real(m);
    for (int64_t i = 0; i < n; i++)
        s += exp(get(x, first + i).f - m);
    return real(m + log(s));
}

/* Special values: every fifth line is untouched, then one -inf, only -inf, one NaN, one +inf. */
static void spoil(array *x, int64_t lines, int64_t n)
{
    for (int64_t l = 0; l < lines && n > 0; l++)
        for (int64_t i = 0; i < n; i++)
            if (l % 5 == 2 || (l % 5 && i == (l + 3) % n))
                put(x, l * n + i, real(l % 5 <= 2 ? -INFINITY : l % 5 == 3 ? NAN : INFINITY));
}

static int reduced_dtype(int op, int dtype)
{
    if (op == GD_OP_EXACT_SUM)
        return GD_FLOAT64;
    return op == GD_OP_ANY || op == GD_OP_ALL ? GD_BOOL : (op >= GD_OP_ARGMAX && op <= GD_OP_WIDE_SUM) ? GD_INT64 : dtype;
}

static void fill_reduced(int op, array *x, int64_t lines, int64_t n)
{
    if (op == GD_OP_ANY || op == GD_OP_ALL) {
        fill(x, op == GD_OP_ALL, 1);
        if (count(x) > 5 && below(2))
            put(x, below(count(x)), whole(op == GD_OP_ANY));
        for (int64_t i = 0; op == GD_OP_ANY && below(2) && i < count(x); i++)
            put(x, i, whole(0));
    } else if (is_float(x->dtype)) {
        fill_reals(x, op == GD_OP_PROD ? 2 : 9);
        if (op != GD_OP_SUM && op != GD_OP_PROD)
            spoil(x, lines, n);
    } else {
        fill(x, -9, x->dtype == GD_BOOL ? 1 : 9);
    }
}

static void one_reduction(int op, int dtype, const dims *s, int r)
{
    int la = any_layout(), lo = out_layout(), keep = s->ndim - r, ok = 1;
    int64_t lines = product(s->n, 0, keep), n = product(s->n, keep, s->ndim), attr[] = {r};
    array x = new_array(dtype, s->ndim, s->n, la), o = new_array(reduced_dtype(op, dtype), keep, s->n, lo);
    fill_reduced(op, &x, lines, n);
    name_case(op, &x, la, lo);
    int must = n == 0 && lines > 0 && op != GD_OP_SUM && op != GD_OP_PROD && op != GD_OP_ANY && op != GD_OP_ALL
            && op < GD_OP_COUNT_NONZERO ? GD_BAD_PROGRAM : GD_OK;
    CASE(call(op, &o, 1, (array *[]){&x}, 1, attr, NULL) == must);
    for (int64_t l = 0; must == GD_OK && l < lines; l++) {
        number want = op == GD_OP_LOGSUMEXP ? log_sum_exp(&x, l * n, n) : reduced(op, &x, l * n, n);
        ok &= near(o.dtype, get(&o, l), want, op != GD_OP_LOGSUMEXP ? 0 : dtype == GD_FLOAT32 ? 1e-6 : 1e-14);
    }
    CASE(ok);
    if (op == GD_OP_LOGSUMEXP && must == GD_OK) {              /* no exact answer to compare with: the layout changes no bit */
        array px = plain_copy(&x), po = new_array(o.dtype, keep, s->n, PLAIN);
        CASE(call(op, &po, 1, (array *[]){&px}, 1, attr, NULL) == GD_OK && same_values(&o, &po));
        free_array(&px), free_array(&po);
    }
    free_array(&x), free_array(&o);
}

static void test_reductions(void)
{
    static const dims shapes[] = {{0, {0}}, {1, {7}}, {1, {0}}, {2, {3, 0}}, {2, {0, 3}}, {2, {1, 1}}, {2, {5, 17}},
        {3, {2, 3, 4}}, {3, {4, 1, 70}}, {2, {33, 300}}, {2, {300, 20}}, {5, {2, 3, 2, 5, 3}}};
    static const dims large[] = {{2, {2, 9000}}, {2, {9, 9000}}, {2, {600, 70}}, {2, {200, 300}}, {4, {2, 3, 41, 101}}, {1, {4096}},
        {1, {12289}}, {2, {20, 4097}}, {2, {300, 2}}, {2, {300, 3}}, {2, {300, 6}}, {2, {300, 7}}, {2, {300, 9}}, {2, {300, 11}},
        {2, {300, 14}}, {2, {300, 16}}};
    for (int op = GD_OP_SUM; op <= GD_OP_LOGSUMEXP; op++)
        for (int d = 0; d < 7; d++) {
            int numeric_only = op == GD_OP_SUM || op == GD_OP_PROD || (op >= GD_OP_COUNT_NONZERO && op <= GD_OP_EXACT_SUM);
            int any_whole = op == GD_OP_COUNT_NONZERO || op == GD_OP_EXACT_SUM;
            int dtype = all_dtypes[d];
            if (op == GD_OP_WIDE_SUM && dtype != GD_UINT8 && dtype != GD_INT32)
                continue;
            if (dtype == GD_FLOAT16 || (dtype == GD_BOOL && numeric_only && !any_whole) || (op == GD_OP_EXACT_SUM && is_float(dtype)) || (op == GD_OP_LOGSUMEXP && !is_float(dtype)))
                continue;
            for (int s = 0; s < LENGTH(shapes); s++)
                for (int r = 0; r <= shapes[s].ndim; r++)
                    one_reduction(op, dtype, &shapes[s], r), one_reduction(op, dtype, &shapes[s], r);
            for (int s = 0; s < LENGTH(large); s++)
                for (int r = 1; r <= 2 && r <= large[s].ndim; r++)
                    for (int k = 0; k < (numeric_only ? LAYOUTS : 1); k++) {
                        favour = numeric_only ? k : -1;
                        one_reduction(op, dtype, &large[s], r);
                    }
            favour = -1;
        }
}

/* ---- softmax ---- */
static void soft_reference(int log_too, const array *x, int64_t first, int64_t n, double *want)
{
    double m = -INFINITY, s = 0;
    for (int64_t i = 0; i < n; i++) {
        double v = get(x, first + i).f;
        m = v > m || isnan(v) ? v : m;
    }
    m = m == -INFINITY ? 0 : m;
    for (int64_t i = 0; i < n; i++)
        s += exp(get(x, first + i).f - m);
    for (int64_t i = 0; i < n; i++) {
        double v = get(x, first + i).f - m;
        want[i] = log_too ? v - (s == 0 ? 0 : log(s)) : exp(v) / (s == 0 ? 1 : s);
    }
}

static void one_softmax(int op, int dtype, const dims *s)
{
    int la = any_layout(), lo = out_layout(), ok = 1;
    int64_t n = s->n[s->ndim - 1], lines = product(s->n, 0, s->ndim - 1);
    array x = new_array(dtype, s->ndim, s->n, la), o = new_array(dtype, s->ndim, s->n, lo);
    double *want = malloc((size_t)n * sizeof *want + 1);
    fill_reals(&x, 9);
    if (below(2))
        spoil(&x, lines, n);
    name_case(op, &x, la, lo);
    CASE(call(op, &o, 1, (array *[]){&x}, 0, NULL, NULL) == GD_OK);
    for (int64_t l = 0; l < lines; l++) {
        soft_reference(op == GD_OP_LOG_SOFTMAX, &x, l * n, n, want);
        for (int64_t i = 0; i < n; i++)
            ok &= near(dtype, get(&o, l * n + i), real(want[i]), dtype == GD_FLOAT32 ? 1e-6 : 1e-14);
    }
    CASE(ok);
    array px = plain_copy(&x), po = new_array(dtype, s->ndim, s->n, PLAIN);
    CASE(call(op, &po, 1, (array *[]){&px}, 0, NULL, NULL) == GD_OK && same_values(&o, &po));
    free(want);
    free_array(&x), free_array(&o), free_array(&px), free_array(&po);
}

static void test_softmax(void)
{
    static const dims shapes[] = {{1, {1}}, {1, {0}}, {1, {5}}, {2, {0, 3}}, {2, {3, 0}}, {2, {6, 7}}, {2, {70, 9}}, {2, {5, 64}},
        {2, {5, 65}}, {2, {2, 5000}}, {2, {6, 4100}}, {2, {130, 70}}, {3, {2, 3, 130}}, {3, {3, 70, 2}}, {4, {2, 5, 1, 6}}};
    for (int op = GD_OP_SOFTMAX; op <= GD_OP_LOG_SOFTMAX; op++)
        for (int d = 0; d < 2; d++)
            for (int s = 0; s < LENGTH(shapes); s++)
                for (int again = 0; again < 2 * LAYOUTS; again++) {
                    favour = again < LAYOUTS ? again : -1;
                    one_softmax(op, float_dtypes[d], &shapes[s]);
                }
    favour = -1;
}

int main(int argc, char **argv)
{
    if (choose_isa(argc, argv))
        return 2;
    test_reductions();
    test_softmax();
    CHECK(gd_alloc_live() == 0);
    return report();
}
