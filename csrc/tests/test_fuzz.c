/* test_fuzz.c: structural kernels (fused groups: test_fused.c) called with random operands and attributes, mostly sensible ones. A call is refused or
 * it runs; then it stays inside its operands and gives equal bits however it is cut. Every op must run sometimes.
 * With GRAPHDIFF_LONG set there are 20 times as many programs. Prints "N passed, N failed". */
#include "arrays.h"

typedef struct draw {
    int op, n_in, n_attr;
    int dtype[OPERANDS], ndim[OPERANDS];             /* 0: the output */
    int64_t shape[OPERANDS][AXES], attr[16];
} draw;

static int between(int op, int first, int last) { return op >= first && op <= last; }
static int is_conv(int op) { return between(op, GD_OP_CONV, GD_OP_CONV_WEIGHT); }
static int is_spatial(int op) { return between(op, GD_OP_CONV, GD_OP_AVG_POOL_GRAD); }
static int is_reduction(int op) { return between(op, GD_OP_SUM, GD_OP_LOGSUMEXP); }
static int is_recurrent(int op) { return between(op, GD_OP_RNN, GD_OP_LSTM_GRAD); }
static int is_attention(int op) { return between(op, GD_OP_ATTENTION, GD_OP_ATTENTION_GRAD); }
static int is_random(int op) { return between(op, GD_OP_RANDOM_BITS, GD_OP_RANDOM_NORMAL); }

static int operands_of(int op)
{
    switch (op) {
    case GD_OP_MATMUL: case GD_OP_INT_POWER: case GD_OP_GATHER: case GD_OP_GATHER_ALONG: case GD_OP_SEGMENT_MAX:
    case GD_OP_RECURRENCE: case GD_OP_CONV: case GD_OP_CONV_INPUT: case GD_OP_CONV_WEIGHT:
        return 2;
    case GD_OP_SCATTER_ADD: case GD_OP_SCATTER_SET: case GD_OP_SCATTER_ALONG:
        return 3;
    case GD_OP_RAVEL_INDEX:
        return 1 + (int)below(3);
    case GD_OP_RNN: case GD_OP_RNN_GRAD:
        return 3;
    case GD_OP_GRU: case GD_OP_LSTM:
        return 4;
    case GD_OP_ATTENTION:
        return 3 + (int)below(2);
    case GD_OP_ATTENTION_GRAD:
        return 5 + (int)below(2);
    case GD_OP_GRU_GRAD:
        return 5;
    case GD_OP_LSTM_GRAD:
        return 6;
    default:
        return 1;
    }
}

static int64_t any_size(int spatial)
{
    return below(30) == 0 ? below(300) : below(spatial ? 7 : 6) + (below(8) != 0);
}

/* Every operand alike: what most ops want. */
static draw alike(int op)
{
    draw d = {.op = op, .n_in = operands_of(op)};
    int dtype = (int)below(GD_DTYPE_COUNT), ndim = is_spatial(op) ? 5 : (int)below(5) + (int)below(2);
    if (is_spatial(op) || is_recurrent(op) || is_attention(op))
        dtype = GD_FLOAT32 + (int)below(2);
    if (op == GD_OP_MATMUL && ndim < 2)
        ndim = 2;
    int64_t size[AXES], total = 1;
    for (int i = 0; i < AXES; i++) {
        size[i] = any_size(is_spatial(op));
        if (total * (size[i] + 1) > 40000)
            size[i] = 2;
        total *= size[i] + 1;
    }
    for (int k = 0; k <= d.n_in; k++) {
        d.dtype[k] = dtype;
        d.ndim[k] = ndim;
        memcpy(d.shape[k], size, sizeof size);
    }
    return d;
}

static void set_index(draw *d, int k, int ndim)
{
    d->dtype[k] = GD_INT64;
    d->ndim[k] = ndim;
}

/* What sets the operands of indexing ops apart; m: the number of indices. */
static void draw_indexing(draw *d, int64_t m)
{
    const int last = d->ndim[0] > 0 ? d->ndim[0] - 1 : 0, op = d->op;
    for (int k = 0; k <= d->n_in && op != GD_OP_GATHER_ALONG && op != GD_OP_SCATTER_ALONG; k++)
        d->ndim[k] = op == GD_OP_SEGMENT_MAX ? 2 : 3;
    switch (op) {
    case GD_OP_GATHER:
        d->shape[0][1] = d->shape[2][0] = m;
        set_index(d, 2, 1);
        break;
    case GD_OP_SCATTER_ADD: case GD_OP_SCATTER_SET:
        d->shape[3][1] = d->shape[2][0] = m;
        set_index(d, 2, 1);
        break;
    case GD_OP_GATHER_ALONG:
        d->shape[0][last] = d->shape[2][last] = m;
        set_index(d, 2, d->ndim[2]);
        break;
    case GD_OP_SCATTER_ALONG:
        d->shape[2][last] = d->shape[3][last] = m;
        set_index(d, 2, d->ndim[2]);
        break;
    default:                                         /* segment_max */
        d->shape[0][0] = m;
        set_index(d, 2, 1);
    }
}

/* x[N, C, ...], w[O, C, ...], y[N, O, ...]; which operand is which depends on the op. */
static void draw_conv(draw *d, int64_t channels)
{
    static const int8_t roles[3][3] = {{'y', 'x', 'w'}, {'x', 'y', 'w'}, {'w', 'x', 'y'}};
    for (int k = 0; k < 3; k++) {
        int role = roles[d->op - GD_OP_CONV][k];
        const int64_t n = d->shape[0][0], c = d->shape[0][1];
        if (k == 0)
            continue;
        d->shape[k][0] = role == 'w' ? channels : n;
        d->shape[k][1] = role == 'y' ? channels : c;
    }
    int role = roles[d->op - GD_OP_CONV][0];
    d->shape[0][0] = role == 'w' ? channels : d->shape[0][0];
    d->shape[0][1] = role == 'y' ? channels : d->shape[0][1];
}

static void size_operand(draw *d, int k, int ndim, int64_t a, int64_t b, int64_t c)
{
    const int64_t size[3] = {a, b, c};
    d->ndim[k] = ndim;
    memcpy(d->shape[k], size + 3 - ndim, (size_t)ndim * sizeof *size);
}

/* z [N, T, G] or gh [N, T, H], flat parts of a result, states [N, H], u [H, G]: which operand is which depends on the op. */
static void draw_recurrent(draw *d)
{
    const int back = d->op >= GD_OP_RNN_GRAD, kind = (d->op - GD_OP_RNN) % 3;
    const int64_t gates = kind == 0 ? 1 : kind == 1 ? 3 : 4, own = kind == 2 ? 2 : 1;
    const int64_t N = below(20), steps = below(5), H = below(4) ? below(9) : below(40), G = gates * H;
    const int64_t states = N * steps * H, kept = kind ? 4 * states + own * N * H : 0;
    size_operand(d, 1, 3, N, steps, back ? H : G);
    size_operand(d, 2, 2, 0, N, H);
    size_operand(d, 3, 2, 0, H, G);
    size_operand(d, 4, 2, 0, N, H);
    size_operand(d, 0, 1, 0, 0, own * states + kept);
    if (back) {
        size_operand(d, 2, 1, 0, 0, states);
        size_operand(d, 0, 1, 0, 0, kind ? kept : states + N * H);
    } else if (kind == 1) {
        size_operand(d, 4, 1, 0, 0, G);
    }
    if (back && kind) {
        size_operand(d, 3, 1, 0, 0, kept);
        size_operand(d, 4, 2, 0, H, G);
        size_operand(d, 5, 2, 0, N, H);
        size_operand(d, 6, 3, N, steps, H);
    }
}

/* q, k, v, then backward g and a flat result, then perhaps a mask; all but flat ones behind the same leading axes. */
static void draw_attention(draw *d)
{
    const int back = d->op == GD_OP_ATTENTION_GRAD, least = back ? 5 : 3, axes = (int)below(3);
    const int64_t m = below(6) ? below(20) : below(150), n = below(6) ? below(20) : below(600), dd = below(20), e = below(20);
    const int64_t rows[] = {0, m, n, n, m, 0, m}, columns[] = {0, dd, dd, e, back ? e : n, 0, n};
    int64_t batch = 1, lead[2];
    for (int i = 0; i < axes; i++)
        batch *= lead[i] = below(4);
    for (int k = 1; k <= d->n_in; k++) {
        if (back && k == 5)
            continue;
        d->ndim[k] = axes + 2;
        memcpy(d->shape[k], lead, (size_t)axes * sizeof *lead);
        d->shape[k][axes] = rows[k], d->shape[k][axes + 1] = columns[k];
    }
    if (d->n_in > least)
        d->dtype[d->n_in] = GD_BOOL;
    size_operand(d, 0, 1, 0, 0, back ? batch * (m * dd + n * dd + n * e) : batch * m * (e + 2));
    if (back)
        size_operand(d, 5, 1, 0, 0, batch * m * (e + 2));
}

static void draw_shapes(draw *d, int reduced)
{
    const int op = d->op;
    const int64_t extra = below(50) == 0 ? 5000 : any_size(0);
    if (is_reduction(op)) {
        d->ndim[0] -= reduced;
        d->dtype[0] = op == GD_OP_ANY || op == GD_OP_ALL ? GD_BOOL : between(op, GD_OP_ARGMAX, GD_OP_WIDE_SUM) ? GD_INT64
                    : op == GD_OP_EXACT_SUM ? GD_FLOAT64 : d->dtype[0];
    } else if (op == GD_OP_CAST) {
        d->dtype[0] = (int)below(GD_DTYPE_COUNT);
    } else if (op == GD_OP_ARGSORT || op == GD_OP_MAX_POOL_INDEX) {
        d->dtype[0] = GD_INT64;
    } else if (op == GD_OP_RANKED) {
        d->shape[0][d->ndim[0] > 0 ? d->ndim[0] - 1 : 0] = 2;
    } else if (op == GD_OP_MATMUL) {
        d->shape[1][d->ndim[1] - 1] = d->shape[2][d->ndim[2] - 2] = extra;
    } else if (op == GD_OP_RAVEL_INDEX) {
        for (int k = 0; k <= d->n_in; k++)
            d->dtype[k] = GD_INT64;
    } else if (op == GD_OP_ONE_HOT) {
        d->ndim[0] = 2;
        set_index(d, 1, 1);
    } else if (is_random(op)) {
        set_index(d, 1, 1);
        d->shape[1][0] = 2;
        d->dtype[0] = op == GD_OP_RANDOM_BITS ? GD_INT64 : GD_FLOAT32 + (int)below(2);
    } else if (between(op, GD_OP_GATHER, GD_OP_SEGMENT_MAX)) {
        draw_indexing(d, extra % 300);
    } else if (is_conv(op)) {
        draw_conv(d, extra % 40);
    } else if (is_recurrent(op)) {
        draw_recurrent(d);
    } else if (is_attention(op)) {
        draw_attention(d);
    }
    for (int k = 0; is_spatial(op) && d->shape[0][0] * d->shape[0][1] < 60 && below(2) && k <= d->n_in; k++)
        for (int i = 2; i < 5; i++)
            d->shape[k][i] = below(9) + 1;
}

static void some(draw *d, int n, int64_t low, int64_t high)
{
    for (int i = 0; i < n; i++)
        d->attr[d->n_attr++] = low + below(high - low + 1);
}

static void draw_attrs(draw *d, int reduced)
{
    const int op = d->op;
    if (is_reduction(op)) {
        d->attr[d->n_attr++] = reduced;
    } else if (between(op, GD_OP_CUMSUM, GD_OP_ARGSORT)) {
        some(d, 1, 0, 1);
    } else if (op == GD_OP_RANKED) {
        some(d, 1, 0, 5), some(d, 1, d->attr[0], d->attr[0] + 1);
    } else if (op == GD_OP_RAVEL_INDEX) {
        some(d, d->n_in + 1, 0, 7);
    } else if (between(op, GD_OP_GATHER, GD_OP_RANDOM_NORMAL)) {
        some(d, 1, 0, 99);
    } else if (is_conv(op)) {
        some(d, 3, 1, 3), some(d, 3, -1, 4), some(d, 3, 1, 3), some(d, 1, 1, below(4) ? 1 : 3);
    } else if (between(op, GD_OP_MAX_POOL, GD_OP_MAX_POOL_INDEX)) {
        some(d, 6, 1, 3), some(d, 3, 0, 2), some(d, 3, 1, 3);
    } else if (is_spatial(op)) {
        some(d, 6, 1, 3), some(d, 6, -1, 2), some(d, 1, 0, 1);
    } else if (is_recurrent(op) || is_attention(op)) {
        some(d, op == GD_OP_RNN || op == GD_OP_RNN_GRAD || is_attention(op) ? 2 : 1, 0, 1);
    }
}

/* Now and then something that does not fit. */
static void spoil(draw *d)
{
    static const int64_t odd[] = {-1, 0, 1000, INT64_MAX, INT64_MIN, (int64_t)1 << 40, INT32_MAX};
    for (int k = 0; k <= d->n_in; k++) {
        if (below(60) == 0)
            d->shape[k][below(5)] = below(9);
        if (below(80) == 0)
            d->dtype[k] = (int)below(GD_DTYPE_COUNT);
        if (below(200) == 0)
            d->ndim[k] = (int)below(AXES);
    }
    if (d->n_attr && below(20) == 0)
        d->attr[below(d->n_attr)] = odd[below(LENGTH(odd))];
    if (below(50) == 0)
        d->n_attr = (int)below(d->n_attr + 2);
    if (below(100) == 0)
        d->n_in = (int)below(d->n_in + 1);
}

/* Axes in any order, steps of 2, backwards, stride 0 (inputs). */
static array random_array(int dtype, int ndim, const int64_t *shape, int output)
{
    array a = {.dtype = dtype, .ndim = ndim, .extent = 1};
    int order[AXES], shuffle = below(2) == 0;
    for (int d = 0; d < ndim; d++) {
        int e = shuffle ? (int)below(d + 1) : d;
        order[d] = order[e], order[e] = d;
    }
    for (int k = ndim - 1; k >= 0; k--) {
        int d = order[k];
        int64_t n = shape[d] > 0 ? shape[d] : 1, step = below(6) == 0 ? 2 : 1;
        a.shape[d] = shape[d];
        if (!output && below(6) == 0)
            continue;
        a.stride[d] = a.extent * step;
        a.extent *= n * step;
        if (below(6) == 0) {
            a.offset += a.stride[d] * (n - 1);
            a.stride[d] = -a.stride[d];
        }
    }
    allocate(&a);
    return a;
}

static void fill_any(array *a)
{
    static const double odd[] = {INFINITY, -INFINITY, NAN, 1e300, -1e300, 1e-310, -0.0, 3e9};
    fill(a, -3, 4);
    for (int64_t i = 0; i < count(a); i++)
        if (is_float(a->dtype) && below(30) == 0)
            put(a, i, real(odd[below(LENGTH(odd))]));
        else if (a->dtype == GD_INT64 && below(2000) == 0)
            put(a, i, whole(below(2) ? INT64_MIN : INT64_MAX));
}

static int one_program(int op)
{
    draw d = alike(op);
    const int reduced = (int)below(d.ndim[0] + 1);
    array a[OPERANDS], *in[OPERANDS];
    draw_shapes(&d, reduced);
    draw_attrs(&d, reduced);
    spoil(&d);
    for (int k = 0; k <= d.n_in; k++) {
        a[k] = random_array(d.dtype[k], d.ndim[k], d.shape[k], k == 0);
        fill_any(&a[k]);
        if (k > 0)
            in[k - 1] = &a[k];
    }
    if (between(op, GD_OP_SCATTER_ADD, GD_OP_SCATTER_ALONG) && op != GD_OP_GATHER_ALONG && below(2))
        in[0] = &a[0];
    name_case(op, &a[0], d.n_in > 0 ? d.dtype[1] : -1, d.n_attr);
    int status = call(op, &a[0], d.n_in, in, d.n_attr, d.attr, NULL);
    CASE(status == GD_OK || status == GD_BAD_PROGRAM || status == GD_OUT_OF_BOUNDS || status == GD_BAD_VALUE);
    for (int k = 0; k <= d.n_in; k++)
        free_array(&a[k]);
    return status;
}

int main(int argc, char **argv)
{
    static int done[GD_OP_COUNT];
    const int rounds = getenv("GRAPHDIFF_LONG") ? 3000 : 150;
    if (choose_isa(argc, argv))
        return 2;
    for (int i = 0; i < rounds; i++)
        for (int op = GD_MAP_COUNT; op < GD_OP_FUSED; op++)
            done[op] += one_program(op) == GD_OK;
    for (int op = GD_MAP_COUNT; op < GD_OP_FUSED; op++) {
        snprintf(label, sizeof label, "%s ran %d times of %d", gd_op_name(op), done[op], rounds);
        CASE(done[op] > rounds / 20);
        if (getenv("GRAPHDIFF_LONG"))
            puts(label);
    }
    CHECK(gd_alloc_live() == 0);
    return report();
}
