/* conv_plan.h: the geometry of convolution, which all types share: the axes, how a sweep is cut, planes or patches, and which lanes.
 * No bit depends on these. */
#ifndef GDI_CONV_PLAN_H
#define GDI_CONV_PLAN_H

/* One spatial axis. Sizes and element strides of x, w and y, and x position = y position * stride - pad + tap * dil. */
typedef struct conv_axis {
    int64_t x, w, y, xs, ws, ys, stride, pad, dil;
} conv_axis;

/* y[n, o, p] = sum over c, k of x[n, c, p * stride - pad + k * dil] w[o, c, k], whichever of them is the result. */
typedef struct conv_geom {
    conv_axis axis[3];
    int64_t n, groups, xc, yc;                   /* images; groups; channels of x and of y in a group */
    int64_t xn_s, xc_s, yn_s, yc_s, wy_s, wx_s;  /* element strides: image and channel; w along y's and x's channels */
    char *x, *w, *y;
} conv_geom;

/* The largest q with q * b <= a, and the least with q * b >= a; b > 0. */
static int64_t conv_floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }
static int64_t conv_ceil_div(int64_t a, int64_t b) { return a / b + (a % b > 0); }

static int64_t conv_gcd(int64_t a, int64_t b)
{
    while (b) {
        int64_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

/* One axis of a sweep. At position t, tap k adds w[k] * source[(t + e(k)) * step + f - source_pad] to
 * destination[t * out_step + phi - out_pad]. Taps come in `cycle` classes by k dil mod stride. Forward, a class is a
 * set of planes (a slot, with its own f); turned, it is a sweep of its own (a phase, with its own phi). */
typedef struct conv_line {
    int64_t w, dil, stride, cycle, slots, phases;
    int64_t step, source_pad, source, source_s, out_step, out_pad, out, out_s, w_s;
    int64_t t0, t1, e_min, halo;                 /* all positions; least e(k), and largest minus least */
    int turned;
} conv_line;

static int64_t conv_line_tap(const conv_line *l, int64_t phase, int64_t i)
{
    return l->turned ? phase + i * l->cycle : i;
}
static int64_t conv_line_taps(const conv_line *l, int64_t phase)
{
    return l->turned ? (l->w - phase + l->cycle - 1) / l->cycle : l->w;
}
static int64_t conv_line_e(const conv_line *l, int64_t k)
{
    return l->turned ? -(k * l->dil / l->stride) : k * l->dil / l->stride;
}
static int64_t conv_line_slot(const conv_line *l, int64_t k) { return l->turned ? 0 : k % l->cycle; }
static int64_t conv_line_f(const conv_line *l, int64_t slot) { return l->turned ? 0 : slot * l->dil % l->stride; }
static int64_t conv_line_phi(const conv_line *l, int64_t phase) { return l->turned ? phase * l->dil % l->stride : 0; }

/* Positions t of a phase: those whose destination exists. */
static int64_t conv_line_t0(const conv_line *l, int64_t phi) { return conv_ceil_div(l->out_pad - phi, l->out_step); }
static int64_t conv_line_t1(const conv_line *l, int64_t phi)
{
    return conv_floor_div(l->out - 1 + l->out_pad - phi, l->out_step) + 1;
}

/* Of n places in a plane, of which the first is x0 in the source: lo..hi-1 are inside. */
static void conv_line_inside(const conv_line *l, int64_t x0, int64_t n, int64_t *lo, int64_t *hi)
{
    *lo = GD_MIN(GD_MAX(conv_ceil_div(-x0, l->step), 0), n);
    *hi = GD_MAX(GD_MIN(conv_ceil_div(l->source - x0, l->step), n), *lo);
}

/* From one of the positions lo..hi-1 to the next, in elements; 0 where a step of any size leads nowhere. */
static int64_t conv_apart(const conv_line *l, int64_t lo, int64_t hi)
{
    return l->out_step == 1 || hi - lo > 1 ? l->out_step * l->out_s : 0;
}

static conv_line conv_line_of(const conv_axis *a, int turned)
{
    conv_line l = {.w = a->w, .dil = a->dil, .stride = a->stride, .cycle = a->stride / conv_gcd(a->stride, a->dil),
                   .slots = 1, .phases = 1, .step = 1, .out_step = 1, .w_s = a->ws, .turned = turned};
    int64_t reach = a->w > 0 ? (a->w - 1) * a->dil / a->stride : 0;
    if (turned) {
        l.phases = GD_MIN(a->w, l.cycle);
        l.out_step = a->stride;
        l.out_pad = a->pad;
        l.source = a->y, l.source_s = a->ys;
        l.out = a->x, l.out_s = a->xs;
        l.e_min = -reach;
    } else {
        l.slots = GD_MIN(a->w, l.cycle);
        l.step = a->stride;
        l.source_pad = a->pad;
        l.source = a->x, l.source_s = a->xs;
        l.out = a->y, l.out_s = a->ys;
    }
    l.halo = reach;
    l.t0 = conv_line_t0(&l, l.out_step - 1);
    l.t1 = conv_line_t1(&l, 0);
    return l;
}

/* A whole sweep and how it is cut: items are image x group x box of positions x block of destination channels; an
 * item takes its source channels cb at a time. */
typedef struct conv_plan {
    conv_line line[3];
    int64_t n, groups, c, m;                     /* source and destination channels of a group */
    int64_t sn_s, sc_s, dn_s, dc_s, wm_s, wc_s;
    char *source, *out, *w;
    int64_t taps, phase_taps;                    /* all of them; most of one phase: what one pass reads of a channel */
    int64_t cb, box[3], boxes[3], mb, m_blocks, m_padded;
    int64_t size[3], plane;                      /* of the planes of a box: extents, and elements of one plane */
    int64_t off_nbytes;                          /* the table of offsets stands in front of the planes */
    int64_t q, qb, q_blocks, q_ld;               /* patches: positions of all images, in blocks of qb */
    int64_t mr;                                  /* rows of a panel of weights */
    int lanes;                                   /* a register holds destination channels, not positions: see conv_lanes_t.inc */
    int plain;                                   /* nothing fits: use the plain version */
    int patch;                                   /* small outputs: make patches, not planes */
    int zero;                                    /* some outputs have no tap at all */
} conv_plan;

/* Consecutive positions t of one row of one image; `at` is where they stand in a block of patches. */
typedef struct conv_stretch {
    int64_t n, t[3], count, at;
} conv_stretch;

#define CONV_NOWHERE INT64_MIN                   /* the target of a position that has none */

/* CONV_PLANES: the planes share L2 with the packed weights. CONV_DEPTH: bytes of one channel's packed weights in one
 * pass; CONV_ROWS: destination channels of an item, enough that making the planes again for the next ones is cheap. */
enum { CONV_PLANES = 256 << 10, CONV_DEPTH = 3072, CONV_ROWS = 128, CONV_SLACK = 4096 };
/* So many items let threads share the work evenly; one of so many terms may be cut further. */
enum { CONV_ITEMS = 16, CONV_SHARE_TERMS = 3000000 };
/* Patches: destination channels of an item, and bytes of a row of positions. */
enum { CONV_PATCH_ROWS = 256, CONV_PATCH_NBYTES = 448 };
enum { CONV_TURNED_TAPS = 256 };                /* packed by registers: so many have a table */
enum { CONV_PACK_AHEAD = 2 };                   /* channels: their weights are asked for while others are packed */
/* Terms of one item that no call may exceed. An array that is not a broadcast one would fill the memory first: these
 * are 2^34 with vectors, some 0.3 s, and 2^30 for an element alone. */
#define CONV_ITEM_TERMS 17179869184.0
#define CONV_ELEMENT_TERMS 1073741824.0

/* Elements of a plane: an odd number of cache lines, or planes a power of two apart would share a few sets of L1. */
static int64_t conv_plane_elements(int64_t n, int64_t esize)
{
    int64_t lines = (n * esize + 63) / 64;
    return (lines | 1) * 64 / esize;
}

static void conv_plan_size(conv_plan *p, int64_t esize)
{
    int64_t slots = 1;
    for (int d = 0; d < 3; d++) {
        p->size[d] = p->box[d] + p->line[d].halo;
        slots *= p->line[d].slots;
    }
    p->plane = conv_plane_elements(p->size[0] * p->size[1] * p->size[2], esize);
    p->off_nbytes = (p->cb * p->phase_taps * 4 + 63) / 64 * 64;
    (void)slots;
}

/* Memory of the planes, in doubles since nothing is known to be small yet. */
static double conv_plan_nbytes(const conv_plan *p, int64_t esize)
{
    double slots = (double)p->cb, n = (double)esize;
    for (int d = 0; d < 3; d++) {
        slots *= (double)p->line[d].slots;
        n *= (double)(p->box[d] + p->line[d].halo);
    }
    return slots * (n + 128);                    /* 128: see conv_plane_elements */
}

/* Halve the box, or the channels where the box is mostly halo already, until the planes fit. */
static void conv_plan_box(conv_plan *p, int64_t esize, int64_t depth, int64_t planes, int64_t positions)
{
    static const int64_t least[3] = {1, 1, 64};
    p->cb = GD_MAX(GD_MIN(p->c, depth / esize / p->phase_taps), 1);
    for (int d = 0; d < 3; d++) p->box[d] = GD_MAX(p->line[d].t1 - p->line[d].t0, 1);
    for (;;) {
        int d = 0, many = (double)p->box[0] * (double)p->box[1] * (double)p->box[2] > (double)positions;
        if (conv_plan_nbytes(p, esize) <= (double)planes && !many)
            break;
        while (d < 3 && (p->box[d] <= least[d] || (!many && p->box[d] <= p->line[d].halo))) d++;
        if (d == 3 && p->cb > 1) {
            p->cb = (p->cb + 1) / 2;
            continue;
        }
        if (d == 3)
            for (d = 0; d < 3 && p->box[d] <= least[d]; d++) {}
        if (d == 3)
            break;
        p->box[d] = GD_MAX((p->box[d] + 1) / 2, least[d]);
    }
    int64_t blocks = (p->c + p->cb - 1) / p->cb;
    p->cb = (p->c + blocks - 1) / blocks;
    p->plain = conv_plan_nbytes(p, esize) + (double)p->cb * (double)p->phase_taps * 4 > GDI_LOCAL_NBYTES / 2;
    for (int d = 0; d < 3; d++) {                /* boxes of about the same size, whole tiles of positions */
        int64_t n = GD_MAX(p->line[d].t1 - p->line[d].t0, 0), b = p->box[d];
        p->boxes[d] = (n + b - 1) / b;
        if (p->boxes[d] > 1) {
            b = (n + p->boxes[d] - 1) / p->boxes[d];
            p->box[d] = d == 2 ? (b + 31) / 32 * 32 : b;
            p->boxes[d] = (n + p->box[d] - 1) / p->box[d];
        }
    }
}

/* Two axes that are one: no window, no padding, no stride, and memory that runs on in x and y. */
static int conv_axes_merge(const conv_axis *a, const conv_axis *b)
{
    return a->w == 1 && b->w == 1 && a->stride == 1 && b->stride == 1 && a->pad == 0 && b->pad == 0 && a->x == a->y
        && b->x == b->y && a->xs == b->xs * b->x && a->ys == b->ys * b->y;
}

static int conv_axis_trivial(const conv_axis *a) { return a->x == 1 && a->w == 1 && a->y == 1; }

/* The last axis is the one positions run along: move the axes that have none away. Taps keep their order. */
static void conv_axes_order(conv_axis *a)
{
    for (int pass = 0; pass < 2; pass++)
        for (int d = 1; d < 3; d++)
            if (conv_axis_trivial(&a[d])) {
                conv_axis t = a[d];
                a[d] = a[d - 1];
                a[d - 1] = t;
            }
}

static void conv_axes_join(conv_axis *a)
{
    for (int d = 2; d > 0; d--)
        if (!conv_axis_trivial(&a[d - 1]) && conv_axes_merge(&a[d - 1], &a[d])) {
            a[d].x *= a[d - 1].x;
            a[d].y *= a[d - 1].y;
            if (d == 2)
                a[1] = a[0];
            a[0] = (conv_axis){.x = 1, .w = 1, .y = 1, .stride = 1, .dil = 1};
            d = 3;
        }
}

/* Blocks of at most `most` destination channels, about the same size, whole panels. */
static void conv_plan_rows(conv_plan *p, int64_t most, int64_t mr)
{
    int64_t blocks = GD_MAX((p->m + most - 1) / most, 1);
    p->mb = GD_MAX(((p->m + blocks - 1) / blocks + mr - 1) / mr * mr, mr);
    p->m_blocks = (p->m + p->mb - 1) / p->mb;
}

/* Few items, of more than some 50 us each, leave threads without work: fewer channels in each. One thread makes planes once. */
static void conv_plan_share(conv_plan *p)
{
    const double others = (double)p->n * (double)p->groups * (double)p->boxes[0] * (double)p->boxes[1] * (double)p->boxes[2];
    const double terms = (double)p->c * (double)p->taps * (double)p->box[0] * (double)p->box[1] * (double)p->box[2];
    int64_t most = p->mb;
    while (most >= 64 && others * (double)p->m_blocks < CONV_ITEMS && terms * (double)p->mb > CONV_SHARE_TERMS) {
        most /= 2;
        conv_plan_rows(p, most, p->mr);
    }
}

/* Multiplications per tap, in registers, that tiles of mr x nv take over a row of so many registers. A tile of fewer
 * than 8 waits for its own results. */
static int64_t conv_tile_cost(int64_t mr, int64_t nv, int64_t registers)
{
    int64_t full = registers / nv, rest = registers % nv;
    return full * GD_MAX(mr * nv, 8) + (rest ? GD_MAX(mr * (rest > 2 ? nv : rest), 8) : 0);
}

/* A tile whose lanes are channels takes so many positions at most, and of those no more sizes than these. With fewer than some of them it
 * waits for its own results. */
#if GD_VBYTES == 64
enum { CONV_LANE_MOST = 14, CONV_LANE_LEAST = 5, CONV_LANE_STORE = 200 };
static int64_t conv_lane_width(int64_t n) { return n <= 8 ? n : (n + 1) / 2 * 2; }
#else
enum { CONV_LANE_MOST = 6, CONV_LANE_LEAST = 4, CONV_LANE_STORE = 200 };
static int64_t conv_lane_width(int64_t n) { return n; }
#endif

/* Multiplications per tap, in registers, of a row of n positions and one register of channels. */
static int64_t conv_lane_cost(int64_t n)
{
    const int64_t steps = (n + CONV_LANE_MOST - 1) / CONV_LANE_MOST, less = n / GD_MAX(steps, 1), more = steps ? n % steps : 0;
    return (steps - more) * GD_MAX(conv_lane_width(less), CONV_LANE_LEAST) + more * GD_MAX(conv_lane_width(less + 1), CONV_LANE_LEAST);
}

/* Of a row that ends in half a register: what a tap takes less. A tile of nothing else waits for its loads. */
static int64_t conv_half_saves(int64_t in_row) { return in_row > 1 ? 4 : 2; }

/* Cycles of a whole sweep where lanes are positions, about: a register of a tile takes one, to store a register of 8 rows 64, or
 * 192 by way of memory. conv_sheet_run takes rows or the whole sheet, whichever is less. half: may a row end in half a register? */
static double conv_positions_cycles(const conv_plan *p, int64_t vl, int64_t mr, int64_t nv, int half)
{
    const conv_line *l = &p->line[2];
    const int64_t nx = GD_MIN(p->box[2], l->t1 - l->t0), in_row = (nx + vl - 1) / vl, odd = nx % vl;
    const int64_t in_run = ((p->box[1] - 1) * p->size[2] + nx + vl - 1) / vl, step = l->out_step * l->out_s;
    const double K = (double)(p->cb * p->phase_taps), sheets = (double)p->n * (double)(p->line[0].t1 - p->line[0].t0)
                   * (double)p->boxes[1] * (double)p->boxes[2] * (double)p->c * (double)p->taps / K;
    double row = (double)conv_tile_cost(mr, nv, in_row) * K + (double)in_row * (step == 1 ? 64 : 192);
    if (half && step == 1 && odd > 0 && odd <= vl / 2)
        row -= (double)conv_half_saves(in_row) * K;
    const double run = (double)conv_tile_cost(mr, nv, in_run) * K + (double)in_run * 192;
    return sheets * GD_MIN((double)p->box[1] * row, run) * (double)p->m_padded / (double)mr;
}

/* The same where they are channels: a tile of registers is stored in 200. */
static double conv_lanes_cycles(const conv_plan *p, int64_t vl)
{
    const conv_line *l = &p->line[2];
    const int64_t nx = GD_MIN(p->box[2], l->t1 - l->t0);
    const double K = (double)(p->cb * p->phase_taps), sheets = (double)p->n * (double)(p->line[0].t1 - p->line[0].t0)
                   * (double)p->boxes[1] * (double)p->boxes[2] * (double)p->c * (double)p->taps / K;
    const double row = (double)conv_lane_cost(nx) * K + (double)((nx + vl - 1) / vl) * CONV_LANE_STORE;
    return sheets * (double)p->box[1] * row * (double)((p->m + vl - 1) / vl);
}

/* Planes or patches? Cycles of each, measured roughly: a register of a tile 1, a short copy 10, a scattered element 2.
 * Patches have no empty lanes, since positions of all images stand side by side. */
static void conv_plan_patch(conv_plan *p, int64_t esize, int64_t vl, int64_t mr, double planes)
{
    double size[3], depth = (double)p->c * (double)p->taps, m = (double)p->m, phases = 1;
    for (int d = 0; d < 3; d++) {
        size[d] = (double)(p->line[d].t1 - p->line[d].t0);
        phases *= (double)p->line[d].phases;
    }
    double positions = (double)p->n * size[0] * size[1] * size[2], rows = (double)p->n * size[0] * size[1];
    if (p->boxes[0] * p->boxes[1] * p->boxes[2] != 1 || positions < 1)
        return;
    int64_t m_blocks = (p->m + CONV_PATCH_ROWS - 1) / CONV_PATCH_ROWS;
    double copies = depth * rows * (double)((p->box[2] + vl - 1) / vl * m_blocks);
    double patches = (double)((int64_t)positions / vl + 1) * depth * m + 10 * copies
                   + phases * m * positions * 2;
    if (patches > planes * 0.9 || p->cb * p->phase_taps > GDI_LOCAL_NBYTES / (2 * CONV_PATCH_NBYTES))
        return;
    p->patch = 1;
    p->q = (int64_t)positions;
    int64_t most = CONV_PATCH_NBYTES / esize, blocks = (p->q + most - 1) / most;
    p->qb = ((p->q + blocks - 1) / blocks + vl - 1) / vl * vl;
    p->q_blocks = (p->q + p->qb - 1) / p->qb;
    p->q_ld = conv_plane_elements(p->qb, esize);
    conv_plan_rows(p, CONV_PATCH_ROWS, mr);
}

/* half, lanes: are there tiles that end in half a register, and those whose lanes are channels? */
static void conv_plan_of(const conv_geom *q, int turned, int64_t esize, int64_t vl, int64_t mr, int64_t nv, int half,
                         int lanes, conv_plan *p)
{
    conv_axis axis[3];
    memcpy(axis, q->axis, sizeof axis);
    conv_axes_order(axis);
    conv_axes_join(axis);
    *p = (conv_plan){.n = q->n, .groups = q->groups, .w = q->w, .taps = 1, .phase_taps = 1};
    p->c = turned ? q->yc : q->xc;
    p->m = turned ? q->xc : q->yc;
    p->sn_s = turned ? q->yn_s : q->xn_s;
    p->sc_s = turned ? q->yc_s : q->xc_s;
    p->dn_s = turned ? q->xn_s : q->yn_s;
    p->dc_s = turned ? q->xc_s : q->yc_s;
    p->wm_s = turned ? q->wx_s : q->wy_s;
    p->wc_s = turned ? q->wy_s : q->wx_s;
    p->source = turned ? q->y : q->x;
    p->out = turned ? q->x : q->y;
    for (int d = 0; d < 3; d++) {
        p->line[d] = conv_line_of(&axis[d], turned);
        p->taps *= axis[d].w;
        p->phase_taps *= conv_line_taps(&p->line[d], 0);
        p->zero |= p->line[d].phases < p->line[d].out_step;
    }
    int64_t tail = p->m % mr, width = 1;
    while (width < tail) width *= 2;
    if (tail == 3) width = 3;                    /* images of three colours */
    p->m_padded = p->m - tail + (tail ? width : 0);
    p->mr = mr;
    conv_plan_rows(p, CONV_ROWS, mr);
    if (p->taps == 0 || p->c == 0) {
        p->zero = 1;                             /* empty sums; boxes stay 0: nothing to sweep */
        return;
    }
    conv_plan_box(p, esize, CONV_DEPTH, CONV_PLANES, INT64_MAX);
    if (p->plain) {
        p->zero = 0;                             /* it writes every element itself */
        return;
    }
    conv_plan_size(p, esize);
    const double positions = conv_positions_cycles(p, vl, mr, nv, half), channels = conv_lanes_cycles(p, vl);
    p->lanes = lanes && channels < positions * (vl == 4 ? 0.9 : 0.97);     /* of four lanes, weights take twice the bytes for a term */
    conv_plan_patch(p, esize, vl, mr, p->lanes ? channels : positions);
    if (p->patch)
        p->lanes = 0;
    if (p->lanes) {
        p->mr = 2 * vl;
        p->m_padded = (p->m + vl - 1) / vl * vl;
        conv_plan_rows(p, CONV_ROWS, p->mr);
    }
    if (!p->patch)
        conv_plan_share(p);
}

/* What the next item will read: nbytes of each channel. It is asked for while this one computes, some lines a tile,
 * because making planes is nothing but waiting for memory (5 % of 16 x 64 x 56 x 56 images with 3 x 3 taps). */
typedef struct conv_ahead {
    const char *at;                              /* of the channel that is under way */
    int64_t channel_nbytes, nbytes, done, channels;
} conv_ahead;

static int64_t conv_ahead_lines(const conv_ahead *a) { return a->channels * (a->nbytes / 64 + 1); }

static void conv_fetch(conv_ahead *a, int64_t lines)
{
    for (; lines > 0 && a->channels > 0; lines--) {
        __builtin_prefetch(a->at + a->done, 0, 2);
        a->done += 64;
        if (a->done >= a->nbytes) {
            a->done = 0;
            a->at += a->channel_nbytes;
            a->channels--;
        }
    }
}

/* Channels m0..m1-1 of group g of image n are done: a box of positions from t0 on, or, turned, all of them. */
static void conv_done(const gdi_call *call, const conv_plan *p, int64_t n, int64_t g, const int64_t *t0, int64_t m0, int64_t m1, char *local)
{
    const conv_line *l = p->line;
    const int64_t plane = l[0].out * l[1].out * l[2].out;
    int64_t lo[3], size[3], at = (n * p->groups + g) * p->m + m0;
    for (int d = 0; d < 3; d++) {
        lo[d] = l[d].turned ? 0 : t0[d];
        size[d] = l[d].turned ? l[d].out : GD_MIN(t0[d] + p->box[d], l[d].t1) - t0[d];
    }
    const int whole = size[0] * size[1] * size[2] == plane, rows_whole = size[2] == l[2].out;
    at = at * plane + (lo[0] * l[1].out + lo[1]) * l[2].out + lo[2];
    if (whole) {
        call->done(call, at, (m1 - m0) * plane, 1, 0, local);
        return;
    }
    for (int64_t m = m0; m < m1; m++, at += plane)
        for (int64_t z = 0; z < size[0]; z++) {
            const int64_t first = at + z * l[1].out * l[2].out;
            if (rows_whole) call->done(call, first, size[1] * size[2], 1, 0, local);
            else call->done(call, first, size[2], size[1], l[2].out, local);
        }
}

/* Where a block of packed weights starts: [group][channel block][phase][panel][channel][tap][row of the panel]. */
static int64_t conv_weights_at(const conv_plan *p, int64_t g, int64_t c0, int64_t cb, int64_t taps_before)
{
    return (g * p->c + c0) * p->m_padded * p->taps + p->m_padded * cb * taps_before;
}

/* Are the taps 3 x 3 of a plane, without stride or dilation? */
static int conv_taps_are_3x3(const conv_plan *p)
{
    const conv_line *l = p->line;
    return p->taps == 9 && l[1].w == 3 && l[2].w == 3 && l[1].stride == 1 && l[2].stride == 1 && l[1].dil == 1
        && l[2].dil == 1;
}

#endif
