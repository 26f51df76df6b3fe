/* test_kernels.c: copy, cast, matmul, scans and sorting, each compared with a loop over element numbers; calls that are
 * refused. Prints "N passed, N failed". */
#include "arrays.h"

static const int all_dtypes[] = {GD_BOOL, GD_UINT8, GD_INT32, GD_INT64, GD_FLOAT16, GD_FLOAT32, GD_FLOAT64};
static const int numeric[] = {GD_UINT8, GD_INT32, GD_INT64, GD_FLOAT32, GD_FLOAT64};

/* ---- copy, cast ---- */
static const dims copy_shapes[] = {
    {0, {0}}, {1, {0}}, {1, {1}}, {1, {17}}, {2, {3, 0}}, {2, {37, 41}}, {3, {1, 5, 1}}, {4, {2, 3, 5, 7}}, {2, {300, 130}}};

static number converted(int from, int to, number x)
{
    if (to == GD_BOOL)
        return whole(is_float(from) ? x.f != 0 : x.i != 0);
    return !is_float(from) ? whole(x.i) : is_float(to) ? x : whole((int64_t)x.f);
}

static void one_cast(int from, int to, const dims *s)
{
    int la = any_layout(), lo = out_layout(), op = from == to ? GD_OP_COPY : GD_OP_CAST;
    array x = new_array(from, s->ndim, s->n, la), o = new_array(to, s->ndim, s->n, lo);
    fill(&x, to == GD_UINT8 || to == GD_BOOL ? 0 : -100, 100);
    for (int64_t i = 0; from == GD_FLOAT64 && is_float(to) && i < count(&x); i += 3)
        put(&x, i, real(((double)below(2000001) - 1e6) / (i % 2 ? 13 : 13e9)));
    name_case(op, &x, la, lo);
    CASE(call(op, &o, 1, (array *[]){&x}, 0, NULL, NULL) == GD_OK);
    array one = new_array(to, 0, NULL, PLAIN);
    int ok = 1;
    for (int64_t i = 0; i < count(&o); i++) {
        put(&one, 0, converted(from, to, get(&x, i)));
        ok &= memcmp(element(&o, o.block, i), one.block + GUARD, (size_t)gd_dtype_nbytes(to)) == 0;
    }
    CASE(ok);
    free_array(&x), free_array(&o), free_array(&one);
}

static void test_copies(void)
{
    for (int a = 0; a < 7; a++)
        for (int b = 0; b < 7; b++)
            for (int s = 0; s < LENGTH(copy_shapes); s++)
                one_cast(all_dtypes[a], all_dtypes[b], &copy_shapes[s]);
}

/* ---- matmul ---- */
static void one_matmul(int dtype, int64_t batch, int64_t m, int64_t k, int64_t n)
{
    int la = any_layout(), lb = any_layout(), lo = out_layout();
    array a = new_array(dtype, 3, (int64_t[]){batch, m, k}, la), b = new_array(dtype, 3, (int64_t[]){batch, k, n}, lb);
    array o = new_array(dtype, 3, (int64_t[]){batch, m, n}, lo);
    int ok = 1;
    fill(&a, -3, 3), fill(&b, -3, 3);
    name_case(GD_OP_MATMUL, &a, la, lo);
    CASE(call(GD_OP_MATMUL, &o, 2, (array *[]){&a, &b}, 0, NULL, NULL) == GD_OK);
    for (int64_t i = 0; i < count(&o); i++) {
        int64_t row = i / n, col = i % n, sum = 0;
        for (int64_t j = 0; j < k; j++) {
            number x = get(&a, row * k + j), y = get(&b, (row / m * k + j) * n + col);
            sum += (int64_t)x.f * (int64_t)y.f;
        }
        ok &= near(dtype, get(&o, i), whole(dtype == GD_BOOL ? sum != 0 : dtype == GD_UINT8 ? sum & 255 : sum), 0);
    }
    CASE(ok);
    free_array(&a), free_array(&b), free_array(&o);
}

/* Of a square result, the columns up to the end of a row's panel; what the others hold depends on how the work was cut. */
static void one_half(int dtype, int64_t n, int64_t k, int64_t panel)
{
    static const struct { int threads, budget; } ways[] = {{1, 0}, {1, 1}, {3, 1}};
    int la = any_layout(), lb = any_layout(), lo = out_layout();
    int64_t nbytes[OPERANDS + 2];
    void *bases[OPERANDS + 2];
    gd_fault fault;
    gd_program *p;
    array a = new_array(dtype, 2, (int64_t[]){n, k}, la), b = new_array(dtype, 2, (int64_t[]){k, n}, lb), o = new_array(dtype, 2, (int64_t[]){n, n}, lo);
    fill(&a, -3, 3), fill(&b, -3, 3);
    name_case(GD_OP_MATMUL, &a, la, lo);
    builder *program = call_builder(GD_OP_MATMUL, &o, 2, (array *[]){&a, &b}, 1, &panel, nbytes, bases);
    CASE(gd_program_new(&program->s, &p, &fault) == GD_OK);
    free(program);
    for (int way = 0; way < LENGTH(ways); way++) {
        int ok = 1;
        fill(&o, 1000, 2000);
        CASE(run_once(p, ways[way].threads, ways[way].budget, bases, &fault) == GD_OK);
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < n && j / panel <= i / panel; j++) {
                int64_t sum = 0;
                for (int64_t q = 0; q < k; q++)
                    sum += (int64_t)get(&a, i * k + q).f * (int64_t)get(&b, q * n + j).f;
                ok &= near(dtype, get(&o, i * n + j), whole(sum), 0);
            }
        CASE(ok);
    }
    gd_program_free(p);
    CASE(call(GD_OP_MATMUL, &o, 2, (array *[]){&a, &b}, 1, (int64_t[]){0}, NULL) == GD_BAD_PROGRAM);
    CASE(call(GD_OP_MATMUL, &o, 2, (array *[]){&a, &b}, 2, (int64_t[]){8, 8}, NULL) == GD_BAD_PROGRAM);
    free_array(&a), free_array(&b), free_array(&o);
}

static void test_halves(void)
{
    static const int64_t sizes[][3] = {{130, 40, 8}, {100, 300, 24}, {220, 140, 16}, {97, 17, 1}, {5, 7, 2}, {3, 2, 50}, {96, 600, 8}};
    for (int s = 0; s < LENGTH(sizes); s++)
        for (int again = 0; again < 4; again++)
            one_half(again % 2 ? GD_FLOAT32 : GD_FLOAT64, sizes[s][0], sizes[s][1], sizes[s][2]);
}

static void test_matmul(void)
{
    static const int64_t sizes[][4] = {{1, 0, 3, 2}, {1, 3, 0, 2}, {0, 2, 2, 2}, {2, 3, 4, 0}, {1, 1, 1, 1}, {2, 5, 7, 3},
        {3, 1, 9, 17}, {1, 17, 33, 1}, {1, 40, 20, 50}, {2, 33, 65, 19},
        {40, 4, 4, 4}, {33, 3, 2, 5}, {70, 1, 8, 6}, {64, 5, 3, 1}, {35, 2, 1, 8}, {50, 7, 8, 2}, {3, 20, 70, 5}, {2, 50, 2, 70}};
    for (int s = 0; s < LENGTH(sizes); s++)
        for (int d = 0; d < 7; d++)
            for (int again = 0; again < 3 && all_dtypes[d] != GD_FLOAT16; again++)
                one_matmul(all_dtypes[d], sizes[s][0], sizes[s][1], sizes[s][2], sizes[s][3]);
}

/* ---- scans ---- */
static void one_scan(int op, int dtype, const dims *s, int reverse)
{
    int la = any_layout(), lb = any_layout(), lo = out_layout(), ok = 1;
    int64_t n = s->n[s->ndim - 1], lines = product(s->n, 0, s->ndim - 1), attr[] = {reverse};
    array x = new_array(dtype, s->ndim, s->n, la), y = new_array(dtype, s->ndim, s->n, lb);
    array o = new_array(dtype, s->ndim, s->n, lo);
    fill(&x, -3, 3), fill(&y, -3, 3);
    if (is_float(dtype))
        fill_reals(&x, 1.5), fill_reals(&y, 9);
    name_case(op, &x, la, lo);
    CASE(call(op, &o, op == GD_OP_RECURRENCE ? 2 : 1, (array *[]){&x, &y}, 1, attr, NULL) == GD_OK);
    array one = new_array(dtype, 0, NULL, PLAIN);
    for (int64_t l = 0; l < lines; l++) {
        put(&one, 0, whole(op == GD_OP_CUMPROD));
        for (int64_t k = 0; k < n; k++) {
            int64_t i = l * n + (reverse ? n - 1 - k : k);
            number t = get(&one, 0), v = get(&x, i), w = get(&y, i);
            uint64_t a = (uint64_t)t.i, b = (uint64_t)v.i;
            number sum = {t.f + v.f, (int64_t)(a + b)}, mul = {t.f * v.f, (int64_t)(a * b)};
            number both = {rounded(dtype, mul.f) + w.f, (int64_t)(a * b + (uint64_t)w.i)};
            put(&one, 0, op == GD_OP_CUMSUM ? sum : op == GD_OP_CUMPROD ? mul : both);
            ok &= near(dtype, get(&o, i), get(&one, 0), 0);
        }
    }
    CASE(ok);
    free_array(&x), free_array(&y), free_array(&o), free_array(&one);
}

static void test_scans(void)
{
    static const dims shapes[] = {{1, {1}}, {1, {0}}, {1, {50}}, {2, {0, 3}}, {2, {3, 0}}, {2, {6, 7}}, {2, {70, 9}}, {2, {65, 50}},
        {3, {3, 70, 2}}, {3, {2, 1, 30}}, {4, {2, 5, 4, 6}}};
    for (int op = GD_OP_CUMSUM; op <= GD_OP_RECURRENCE; op++)
        for (int d = 0; d < LENGTH(numeric); d++)
            for (int s = 0; s < LENGTH(shapes); s++)
                for (int k = 0; k < 2 * LAYOUTS; k++) {
                    favour = k < LAYOUTS ? k : -1;
                    one_scan(op, numeric[d], &shapes[s], (k ^ s) % 2);
                }
    favour = -1;
}

/* ---- sorting ---- */
static number extreme_number(int dtype)
{
    static const double floats[] = {0.0, -0.0, 1, -1, INFINITY, -INFINITY, NAN, 5e-324, -5e-324, 1e-45, 3.4e38, -3.4e38};
    static const int64_t ints[] = {0, 1, -1, INT64_MAX, INT64_MIN, INT32_MAX, INT32_MIN, 255, 256, -256};
    if (is_float(dtype))
        return real(floats[below(LENGTH(floats))]);
    return (number){0, ints[below(LENGTH(ints))]};
}

static number any_number(void)
{
    return (number){ldexp((double)below(1 << 30) - (1 << 29), (int)below(60) - 40), below(1 << 30) * below(1 << 30) - (1 << 29)};
}

static int ordered(int dtype, number x, number y, int down)    /* x < y; with down, x > y; NaN is the greatest */
{
    number a = down ? y : x, b = down ? x : y;
    if (is_float(dtype))
        return isnan(b.f) ? !isnan(a.f) : a.f < b.f;
    return a.i < b.i;
}

/* A stable order has one permutation only: neighbours are in order, and equal ones in the order of their positions. */
static int stable(const array *x, const array *at, int64_t first, int64_t n, int down)
{
    char *seen = calloc((size_t)n + 1, 1);
    int ok = 1;
    for (int64_t i = 0; ok && i < n; i++) {
        int64_t p = get(at, first + i).i, q = i ? get(at, first + i - 1).i : 0;
        ok = p >= 0 && p < n && !seen[p];
        if (!ok)
            break;
        seen[p] = 1;
        number v = get(x, first + p), u = get(x, first + q);
        ok = i == 0 || ordered(x->dtype, u, v, down) || (!ordered(x->dtype, v, u, down) && q < p);
    }
    free(seen);
    return ok;
}

static void one_sort(int dtype, const dims *s, int down, int kind)
{
    int la = any_layout(), lo = out_layout(), ok = 1;
    int64_t n = s->n[s->ndim - 1], lines = product(s->n, 0, s->ndim - 1), attr[] = {down}, size = gd_dtype_nbytes(dtype);
    array x = new_array(dtype, s->ndim, s->n, la), at = new_array(GD_INT64, s->ndim, s->n, lo);
    array o = new_array(dtype, s->ndim, s->n, lo);
    fill(&x, -5, dtype == GD_BOOL ? 1 : 5);
    for (int64_t i = 0; i < count(&x) && dtype != GD_BOOL && kind; i++)
        put(&x, i, kind == 1 ? extreme_number(dtype) : any_number());
    name_case(GD_OP_ARGSORT, &x, la, lo);
    CASE(call(GD_OP_ARGSORT, &at, 1, (array *[]){&x}, 1, attr, NULL) == GD_OK);
    CASE(call(GD_OP_SORT, &o, 1, (array *[]){&x}, 1, attr, NULL) == GD_OK);
    for (int64_t l = 0; ok && l < lines; l++) {
        ok = stable(&x, &at, l * n, n, down);
        for (int64_t i = l * n; ok && i < (l + 1) * n; i++)
            ok = memcmp(element(&o, o.block, i), element(&x, x.block, l * n + get(&at, i).i), (size_t)size) == 0;
    }
    CASE(ok);
    free_array(&x), free_array(&at), free_array(&o);
}

/* The first `wanted` places of a sort that needs no more; another number of them is refused. */
static void one_top(int dtype, int64_t n, int64_t wanted, int down)
{
    int ok = 1;
    const int la = any_layout(), lo = out_layout();
    array x = new_array(dtype, 2, (int64_t[]){3, n}, la), all = new_array(dtype, 2, (int64_t[]){3, n}, 0);
    array o = new_array(dtype, 2, (int64_t[]){3, n}, lo);
    fill(&x, -5, 5);
    name_case(GD_OP_SORT, &x, la, lo);
    CASE(call(GD_OP_SORT, &all, 1, (array *[]){&x}, 1, (int64_t[]){down}, NULL) == GD_OK);
    CASE(call(GD_OP_SORT, &o, 1, (array *[]){&x}, 2, (int64_t[]){down, wanted}, NULL) == GD_OK);
    for (int64_t l = 0; l < 3; l++)
        for (int64_t i = l * n; ok && i < l * n + wanted; i++)
            ok = memcmp(element(&o, o.block, i), element(&all, all.block, i), (size_t)gd_dtype_nbytes(dtype)) == 0;
    CASE(ok);
    CASE(call(GD_OP_SORT, &o, 1, (array *[]){&x}, 2, (int64_t[]){down, n + 1}, NULL) == GD_BAD_PROGRAM);
    CASE(call(GD_OP_SORT, &o, 1, (array *[]){&x}, 2, (int64_t[]){down, -1}, NULL) == GD_BAD_PROGRAM);
    CASE(call(GD_OP_SORT, &o, 1, (array *[]){&x}, 3, (int64_t[]){down, 1, 1}, NULL) == GD_BAD_PROGRAM);
    array at = new_array(GD_INT64, 2, (int64_t[]){3, n}, 0);
    CASE(call(GD_OP_ARGSORT, &at, 1, (array *[]){&x}, 2, (int64_t[]){down, 1}, NULL) == GD_BAD_PROGRAM);
    free_array(&x), free_array(&all), free_array(&o), free_array(&at);
}

static void test_sorts(void)
{
    static const dims shapes[] = {{1, {0}}, {1, {1}}, {2, {0, 3}}, {2, {3, 0}}, {2, {5, 2}}, {1, {23}}, {1, {24}}, {1, {25}}, {2, {3, 100}},
        {1, {2047}}, {1, {2048}}, {3, {2, 2, 300}}, {1, {5000}},
        {2, {130, 3}}, {2, {70, 8}}, {2, {17, 16}}, {3, {3, 7, 33}}, {2, {33, 50}}, {2, {19, 130}}, {2, {9, 250}}, {2, {5, 512}}, {2, {5, 513}}, {2, {3, 1025}}, {1, {4097}}, {2, {2, 8192}}, {1, {16384}}};
    for (int d = 0; d < 7; d++)
        for (int s = 0; s < LENGTH(shapes); s++)
            for (int k = 0; k < 6 && all_dtypes[d] != GD_FLOAT16; k++)
                one_sort(all_dtypes[d], &shapes[s], k % 2, k / 2);
    /* On either side of what fits in a thread's own memory. */
    const int64_t limit = (GDI_LOCAL_NBYTES - (1 << 16)) / 32;
    one_sort(GD_FLOAT32, &(dims){1, {limit}}, 0, 1);
    one_sort(GD_FLOAT64, &(dims){2, {2, limit + 1}}, 1, 2);
    for (int d = 0; d < 7; d++)
        for (int k = 0; k < 8 && all_dtypes[d] != GD_FLOAT16 && all_dtypes[d] != GD_BOOL; k++)
            one_top(all_dtypes[d], (const int64_t[]){7, 300, 3000, 9000}[k / 2], k % 3, k % 2);
}

/* ranked against sort: the same elements, a NaN anywhere is the result, and a zero is +0. */
static void one_ranked(int dtype, const dims *s, int64_t low, int64_t high, int kind)
{
    int la = any_layout(), lo = out_layout(), ok = 1, nd = s->ndim;
    int64_t n = s->n[nd - 1], lines = product(s->n, 0, nd - 1), up[] = {0}, ranks[] = {low, high}, two[AXES];
    memcpy(two, s->n, sizeof two);
    two[nd - 1] = 2;
    array x = new_array(dtype, nd, s->n, la), o = new_array(dtype, nd, two, lo), all = new_array(dtype, nd, s->n, PLAIN);
    fill(&x, -5, dtype == GD_BOOL ? 1 : 5);
    for (int64_t i = 0; i < count(&x) && dtype != GD_BOOL && kind; i++)
        put(&x, i, kind == 1 && below(2 * n) == 0 ? extreme_number(dtype) : any_number());
    name_case(GD_OP_RANKED, &x, la, lo);
    CASE(call(GD_OP_SORT, &all, 1, (array *[]){&x}, 1, up, NULL) == GD_OK);
    CASE(call(GD_OP_RANKED, &o, 1, (array *[]){&x}, 2, ranks, NULL) == GD_OK);
    for (int64_t l = 0; ok && l < lines; l++) {
        number last = get(&all, l * n + n - 1);
        for (int k = 0; ok && k < 2; k++)
            ok = near(dtype, get(&o, 2 * l + k), is_float(dtype) && isnan(last.f) ? last : get(&all, l * n + ranks[k]), 0)
              && !(is_float(dtype) && get(&o, 2 * l + k).f == 0 && signbit(get(&o, 2 * l + k).f));
    }
    CASE(ok);
    free_array(&x), free_array(&o), free_array(&all);
}

static void test_ranked(void)
{
    static const dims shapes[] = {{1, {1}}, {1, {2}}, {2, {3, 48}}, {2, {3, 49}}, {3, {2, 2, 301}}, {2, {2, 5000}}, {1, {70001}}};
    for (int d = 0; d < 7; d++)
        for (int s = 0; s < LENGTH(shapes); s++)
            for (int k = 0; k < 9 && all_dtypes[d] != GD_FLOAT16; k++) {
                const int64_t n = shapes[s].n[shapes[s].ndim - 1], low = k % 3 == 0 ? (n - 1) / 2 : k % 3 == 1 ? n - 1 : below(n);
                one_ranked(all_dtypes[d], &shapes[s], low, low + (low + 1 < n), k / 3);
            }
    one_ranked(GD_FLOAT64, &(dims){2, {2, (3 << 17) + 1}}, 3 << 16, 3 << 16, 2);      /* more than fits a thread's own memory */
}

/* ---- what is refused ---- */
static int refuses(int op, array o, array x, int n_attr, int64_t attr)
{
    int status = call(op, &o, 1, (array *[]){&x}, n_attr, &attr, NULL);
    free_array(&o), free_array(&x);
    return status == GD_BAD_PROGRAM;
}

static void test_refusals(void)
{
    const int64_t n[] = {3, 4}, other[] = {4, 3};
    snprintf(label, sizeof label, "refused");
#define A(dtype, ndim) new_array(GD_##dtype, ndim, n, PLAIN)
    CASE(refuses(GD_OP_SUM, A(FLOAT32, 1), A(FLOAT32, 2), 0, 0));
    CASE(refuses(GD_OP_SUM, A(FLOAT32, 1), A(FLOAT32, 2), 1, 2));
    CASE(refuses(GD_OP_SUM, A(FLOAT32, 1), A(FLOAT32, 2), 1, -1));
    CASE(refuses(GD_OP_SUM, A(FLOAT32, 1), A(FLOAT32, 2), 1, INT64_MIN));
    CASE(refuses(GD_OP_SUM, A(FLOAT64, 1), A(FLOAT32, 2), 1, 1));
    CASE(refuses(GD_OP_SUM, A(FLOAT16, 1), A(FLOAT16, 2), 1, 1));
    CASE(refuses(GD_OP_SUM, new_array(GD_FLOAT32, 1, other, PLAIN), A(FLOAT32, 2), 1, 1));
    CASE(refuses(GD_OP_MAX, A(FLOAT16, 1), A(FLOAT16, 2), 1, 1));
    CASE(refuses(GD_OP_ARGMAX, A(INT32, 1), A(FLOAT32, 2), 1, 1));
    CASE(refuses(GD_OP_ANY, A(UINT8, 1), A(FLOAT32, 2), 1, 1));
    CASE(refuses(GD_OP_COUNT_NONZERO, A(UINT8, 1), A(UINT8, 2), 1, 1));
    CASE(refuses(GD_OP_WIDE_SUM, A(INT64, 1), A(FLOAT32, 2), 1, 1));
    CASE(refuses(GD_OP_WIDE_SUM, A(INT32, 1), A(INT32, 2), 1, 1));
    CASE(refuses(GD_OP_EXACT_SUM, A(INT64, 1), A(INT32, 2), 1, 1));
    CASE(refuses(GD_OP_EXACT_SUM, A(FLOAT64, 1), A(FLOAT64, 2), 1, 1));
    CASE(refuses(GD_OP_LOGSUMEXP, A(INT32, 1), A(INT32, 2), 1, 1));
    CASE(refuses(GD_OP_SOFTMAX, A(INT32, 2), A(INT32, 2), 0, 0));
    CASE(refuses(GD_OP_SOFTMAX, A(FLOAT32, 0), A(FLOAT32, 0), 0, 0));
    CASE(refuses(GD_OP_SOFTMAX, new_array(GD_FLOAT32, 2, other, PLAIN), A(FLOAT32, 2), 0, 0));
    CASE(refuses(GD_OP_CUMSUM, A(FLOAT32, 0), A(FLOAT32, 0), 1, 0));
    CASE(refuses(GD_OP_CUMSUM, A(BOOL, 2), A(BOOL, 2), 1, 0));
    CASE(refuses(GD_OP_CUMSUM, A(FLOAT32, 2), A(FLOAT32, 2), 0, 0));
    CASE(refuses(GD_OP_RECURRENCE, A(FLOAT32, 2), A(FLOAT32, 2), 1, 0));
    CASE(refuses(GD_OP_SORT, A(FLOAT16, 2), A(FLOAT16, 2), 1, 0));
    CASE(refuses(GD_OP_SORT, A(INT64, 2), A(FLOAT32, 2), 1, 0));
    CASE(refuses(GD_OP_ARGSORT, A(INT32, 2), A(FLOAT32, 2), 1, 0));
    CASE(refuses(GD_OP_ARGSORT, A(INT64, 0), A(FLOAT32, 0), 1, 0));
    CASE(refuses(GD_OP_RANKED, A(FLOAT32, 2), A(FLOAT32, 2), 1, 0));
    CASE(refuses(GD_OP_COPY, A(INT64, 2), A(FLOAT32, 2), 0, 0));
    CASE(refuses(GD_OP_MATMUL, A(FLOAT32, 2), A(FLOAT32, 2), 0, 0));
#undef A
}

int main(int argc, char **argv)
{
    if (choose_isa(argc, argv))
        return 2;
    test_copies();
    test_matmul();
    test_halves();
    test_scans();
    test_sorts();
    test_ranked();
    test_refusals();
    CHECK(gd_alloc_live() == 0);
    return report();
}
