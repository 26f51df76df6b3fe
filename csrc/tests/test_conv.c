/* test_conv.c: convolution, its two adjoints, and pooling, each compared with the sum or maximum that defines it, over
 * random small geometries. Prints "N passed, N failed". */
#include "arrays.h"

typedef struct geometry {
    int64_t x[5], w[5], y[5];        /* sizes: [N, C, D, H, W], [O, C / groups, kD, kH, kW], [N, O, oD, oH, oW] */
    int64_t attr[13];
} geometry;

static int64_t offset5(const int64_t *size, int64_t a, int64_t b, const int64_t *p)
{
    return (((a * size[1] + b) * size[2] + p[0]) * size[3] + p[1]) * size[4] + p[2];
}

static void unravel3(int64_t i, const int64_t *size, int64_t *p)
{
    p[2] = i % size[2], p[1] = i / size[2] % size[1], p[0] = i / size[2] / size[1];
}

/* The element of x under tap k of the window at p: 0 when it is outside. */
static int under(const int64_t *x, const int64_t *attr_stride, const int64_t *pad, const int64_t *dilation, const int64_t *p,
                 const int64_t *k, int64_t *q)
{
    int inside = 1;
    for (int d = 0; d < 3; d++) {
        q[d] = p[d] * attr_stride[d] - pad[d] + k[d] * dilation[d];
        inside &= q[d] >= 0 && q[d] < x[2 + d];
    }
    return inside;
}

/* ---- convolution: every product of the definition, added to whichever of the three is the result ---- */
static void convolve(const geometry *g, int op, const array *a, const array *b, double *want)
{
    int64_t groups = g->attr[9], cg = g->x[1] / groups, og = g->y[1] / groups, p[3], k[3], q[3];
    for (int64_t i = 0; i < product(g->y, 0, 5); i++) {
        int64_t spatial = product(g->y, 2, 5), o = i / spatial % g->y[1], n = i / spatial / g->y[1];
        unravel3(i % spatial, g->y + 2, p);
        for (int64_t j = 0; j < cg * product(g->w, 2, 5); j++) {
            int64_t taps = product(g->w, 2, 5), c = j / taps, xi, wi;
            unravel3(j % taps, g->w + 2, k);
            if (!under(g->x, g->attr, g->attr + 3, g->attr + 6, p, k, q))
                continue;
            xi = offset5(g->x, n, o / og * cg + c, q), wi = offset5(g->w, o, c, k);
            if (op == GD_OP_CONV)
                want[i] += get(a, xi).f * get(b, wi).f;
            else if (op == GD_OP_CONV_INPUT)
                want[xi] += get(a, i).f * get(b, wi).f;
            else
                want[wi] += get(a, xi).f * get(b, i).f;
        }
    }
}

static geometry random_geometry(int wide)
{
    geometry g = {.x = {below(3) + (below(9) != 0)}, .attr = {0}};
    int64_t groups = below(4) ? 1 : 1 + below(3);
    g.attr[9] = groups;
    g.x[1] = groups * (below(4) + (below(9) != 0)), g.w[0] = g.y[1] = groups * (below(wide ? 20 : 5) + (below(9) != 0));
    g.w[1] = g.x[1] / groups, g.y[0] = g.x[0];
    for (int d = 0; d < 3; d++) {
        g.x[2 + d] = wide && d == 2 ? below(60) : d == 0 && below(2) ? 1 : below(8) + (below(9) != 0);
        g.w[2 + d] = d == 0 && below(2) ? 1 : 1 + below(4);
        g.attr[d] = 1 + (below(3) == 0) * below(4);
        g.attr[3 + d] = below(4) - (below(9) == 0) * 2;
        g.attr[6 + d] = 1 + (below(4) == 0) * below(3);
        int64_t room = g.x[2 + d] + 2 * g.attr[3 + d] - (g.w[2 + d] - 1) * g.attr[6 + d] - 1;
        g.y[2 + d] = room < 0 ? below(2) : room / g.attr[d] + 1;
        if (below(12) == 0)
            g.y[2 + d] = below(9);                             /* any size is legal */
    }
    return g;
}

/* Channels that fill registers, along rows that do not: tiles whose lanes are channels. */
static geometry many_channels(void)
{
    geometry g = {.x = {1 + below(2)}, .attr = {0}};
    const int64_t groups = 1 + (below(4) == 0);
    g.attr[9] = groups;
    g.x[1] = groups * (9 + below(60)), g.w[0] = g.y[1] = groups * (9 + below(60));
    g.w[1] = g.x[1] / groups, g.y[0] = g.x[0];
    for (int d = 0; d < 3; d++) {
        g.w[2 + d] = d == 0 ? 1 : 1 + below(4), g.y[2 + d] = d == 0 ? 1 + (below(4) == 0) : d == 1 ? 1 + below(5) : 1 + below(31);
        g.attr[d] = 1 + (below(2) == 0) * below(3);
        g.attr[3 + d] = d == 0 ? 0 : below(3);
        g.attr[6 + d] = 1 + (below(4) == 0);
        g.x[2 + d] = (g.y[2 + d] - 1) * g.attr[d] + (g.w[2 + d] - 1) * g.attr[6 + d] + 1 - g.attr[3 + d] - (d > 0) * below(3);
        g.x[2 + d] = g.x[2 + d] < 1 ? 1 : g.x[2 + d];
    }
    return g;
}

static void one_conv(int op, int dtype, const geometry *g)
{
    const int64_t *of[] = {g->y, g->x, g->w};
    const int64_t *a_size = op == GD_OP_CONV_INPUT ? g->y : g->x, *b_size = op == GD_OP_CONV_WEIGHT ? g->y : g->w;
    int la = any_layout(), lo = out_layout(), ok = 1;
    array a = new_array(dtype, 5, a_size, la), b = new_array(dtype, 5, b_size, any_layout());
    array o = new_array(dtype, 5, of[op - GD_OP_CONV], lo);
    double *want = calloc((size_t)count(&o) + 1, sizeof *want);
    fill(&a, -3, 3), fill(&b, -3, 3);
    name_case(op, &a, la, lo);
    CASE(call(op, &o, 2, (array *[]){&a, &b}, 10, g->attr, NULL) == GD_OK);
    convolve(g, op, &a, &b, want);
    for (int64_t i = 0; i < count(&o); i++)
        ok &= get(&o, i).f == want[i];
    CASE(ok);
    free(want);
    free_array(&a), free_array(&b), free_array(&o);
}

/* ---- pooling ---- */
static geometry random_pool(int averages)
{
    geometry g = random_geometry(below(3) == 0);
    g.y[1] = g.x[1];
    for (int d = 0; d < 3; d++) {
        int64_t window = g.w[2 + d], stride = g.attr[d], pad = g.attr[3 + d], dilation = g.attr[6 + d];
        g.attr[d] = window, g.attr[3 + d] = stride, g.attr[6 + d] = pad;
        g.attr[9 + d] = averages ? below(4) - (below(9) == 0) * 2 : dilation;
    }
    g.attr[12] = below(2);
    return g;
}

static int better(int dtype, number v, number best)
{
    return is_float(dtype) ? !isnan(best.f) && (isnan(v.f) || v.f > best.f) : v.i > best.i;
}

static void one_max_pool(int dtype, const geometry *g)
{
    int la = any_layout(), lo = out_layout(), ok = 1;
    array x = new_array(dtype, 5, g->x, la), o = new_array(dtype, 5, g->y, lo), at = new_array(GD_INT64, 5, g->y, lo);
    const number least = {-INFINITY, dtype == GD_INT64 ? INT64_MIN : dtype == GD_INT32 ? INT32_MIN : 0};
    fill(&x, -4, dtype == GD_BOOL ? 1 : 4);
    if (is_float(dtype) && count(&x) > 9)
        put(&x, below(count(&x)), real(NAN)), put(&x, below(count(&x)), real(NAN));
    name_case(GD_OP_MAX_POOL, &x, la, lo);
    CASE(call(GD_OP_MAX_POOL, &o, 1, (array *[]){&x}, 12, g->attr, NULL) == GD_OK);
    CASE(call(GD_OP_MAX_POOL_INDEX, &at, 1, (array *[]){&x}, 12, g->attr, NULL) == GD_OK);
    for (int64_t i = 0; i < count(&o); i++) {
        int64_t spatial = product(g->y, 2, 5), plane = product(g->x, 2, 5), where = -1, p[3], k[3], q[3];
        number best = least;
        unravel3(i % spatial, g->y + 2, p);
        for (int64_t j = 0; j < product(g->attr, 0, 3); j++) {
            unravel3(j, g->attr, k);
            if (!under(g->x, g->attr + 3, g->attr + 6, g->attr + 9, p, k, q))
                continue;
            int64_t flat = (q[0] * g->x[3] + q[1]) * g->x[4] + q[2];
            number v = get(&x, i / spatial * plane + flat);
            if (where < 0 || better(dtype, v, best))
                best = v, where = flat;
        }
        ok &= near(dtype, get(&o, i), best, 0) && get(&at, i).i == where;
    }
    CASE(ok);
    free_array(&x), free_array(&o), free_array(&at);
}

/* Elements of x that a window covers, with 1 / divisor as their weight, added up (grad = 0) or handed back. */
static void average(const geometry *g, int grad, const array *in, double *want)
{
    const int64_t *size = g->x, *pad = g->attr + 6, *hi = g->attr + 9, ones[] = {1, 1, 1};
    int64_t spatial = product(g->y, 2, 5), plane = product(size, 2, 5), p[3], k[3], q[3];
    for (int64_t i = 0; i < product(g->y, 0, 5); i++)
        for (int pass = 0, inside = 0, padded = 0; pass < 2; pass++) {
            unravel3(i % spatial, g->y + 2, p);
            for (int64_t j = 0; j < product(g->attr, 0, 3); j++) {
                int cropped = 0, counts = 1;
                unravel3(j, g->attr, k);
                int in_x = under(size, g->attr + 3, pad, ones, p, k, q);
                for (int d = 0; d < 3; d++) {
                    cropped |= q[d] >= size[2 + d] + hi[d];
                    counts &= q[d] >= -pad[d] && q[d] < size[2 + d] + hi[d];
                }
                int hit = in_x && !cropped;
                int64_t at = i / spatial * plane + (hit ? (q[0] * size[3] + q[1]) * size[4] + q[2] : 0);
                int divisor = g->attr[12] ? padded : inside;
                if (pass == 0)
                    inside += hit, padded += counts;
                else if (hit && divisor > 0)
                    want[grad ? at : i] += get(in, grad ? i : at).f / divisor;
            }
        }
}

static void one_avg_pool(int dtype, int grad, const geometry *g)
{
    int la = any_layout(), lo = out_layout(), ok = 1, op = grad ? GD_OP_AVG_POOL_GRAD : GD_OP_AVG_POOL;
    array x = new_array(dtype, 5, grad ? g->y : g->x, la), o = new_array(dtype, 5, grad ? g->x : g->y, lo);
    double *want = calloc((size_t)count(&o) + 1, sizeof *want);
    fill(&x, -9, 9);
    name_case(op, &x, la, lo);
    CASE(call(op, &o, 1, (array *[]){&x}, 13, g->attr, NULL) == GD_OK);
    average(g, grad, &x, want);
    for (int64_t i = 0; i < count(&o); i++)
        ok &= near(dtype, get(&o, i), real(want[i]), dtype == GD_FLOAT32 ? 2e-5 : 1e-13);
    CASE(ok);
    free(want);
    free_array(&x), free_array(&o);
}

int main(int argc, char **argv)
{
    static const int dtypes[] = {GD_FLOAT32, GD_FLOAT64}, ordered[] = {GD_BOOL, GD_UINT8, GD_INT32, GD_INT64, GD_FLOAT32, GD_FLOAT64};
    if (choose_isa(argc, argv))
        return 2;
    for (int i = 0; i < 300; i++) {
        geometry g = random_geometry(below(4) == 0), m = random_pool(0), a = random_pool(1);
        for (int op = GD_OP_CONV; op <= GD_OP_CONV_WEIGHT; op++)
            one_conv(op, dtypes[i % 2], &g);
        one_max_pool(ordered[i % 6], &m);
        one_avg_pool(dtypes[i % 2], 0, &a);
        one_avg_pool(dtypes[i % 2], 1, &a);
    }
    for (int i = 0; i < 60; i++) {
        geometry g = many_channels();
        for (int op = GD_OP_CONV; op <= GD_OP_CONV_WEIGHT; op++)
            one_conv(op, dtypes[i % 2], &g);
    }
    /* positions enough for two partial sums of the weight gradient, which a second phase joins */
    const geometry split = {.x = {2, 8, 1, 58, 66}, .w = {16, 8, 1, 3, 3}, .y = {2, 16, 1, 56, 64},
                            .attr = {1, 1, 1, 0, 0, 0, 1, 1, 1, 1}};
    one_conv(GD_OP_CONV_WEIGHT, GD_FLOAT32, &split);
    CHECK(gd_alloc_live() == 0);
    return report();
}
