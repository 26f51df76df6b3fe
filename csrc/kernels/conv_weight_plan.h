/* conv_weight_plan.h: how the weight gradient of convolution is cut. Its bits depend on the cut, so the cut depends on shapes alone. */
#ifndef GDI_CONV_WEIGHT_PLAN_H
#define GDI_CONV_WEIGHT_PLAN_H
#include "conv_plan.h"

/* As CONV_PLANES and its like in conv_plan.h. CONV_W_POSITIONS: bytes of one filter's cotangents in a block. */
enum { CONV_W_PLANES = 448 << 10, CONV_W_DEPTH = 2560, CONV_W_FILTERS = 128, CONV_W_POSITIONS = 2048 };
enum { CONV_W_JOIN = 64 };                      /* rows of partial sums that are joined by one item */
/* It is cut into at most CONV_W_SPLITS partial sums, of 4e6 terms or more, that take 64 MB or less. Into more of them, and
 * four times the memory, where one would keep a thread for longer than 2e9 terms, some 50 ms. */
enum { CONV_W_SPLITS = 32, CONV_W_TERMS = 4000000, CONV_W_NBYTES = 64 << 20, CONV_W_LONG = 2000000000 };

/* The weight gradient: items are split x group x block of x's channels x block of filters; an item goes through the
 * chunks (image x box, or several small images) of its split and leaves a partial sum [tap][filter] of
 * tp * fp elements in scratch. The cut depends on shapes alone, not on strides or threads, and so do the bits. */
typedef struct conv_wplan {
    conv_plan s;                                 /* the forward sweep, for its planes */
    int64_t yn_s, yc_s, y_s[3], wy_s, wx_s, w_s[3];
    const char *y;
    int64_t c_blocks, fb, f_blocks, images, chunks, splits, tp, fp, positions;
    double item_terms;                           /* of the longest item; 0: the plain version */
    int64_t mr;                                  /* taps of a tile */
    int dot;                                     /* few filters: lanes are positions, not filters */
    int direct;                                  /* and the taps 3 x 3, without stride: see conv_depth_t.inc */
} conv_wplan;

static void conv_wplan_of(const conv_geom *q, int64_t esize, int64_t mr, int64_t vl, conv_wplan *p)
{
    conv_axis axis[3];
    conv_plan *s = &p->s;
    memcpy(axis, q->axis, sizeof axis);
    conv_axes_order(axis);
    *p = (conv_wplan){.yn_s = q->yn_s, .yc_s = q->yc_s, .wy_s = q->wy_s, .wx_s = q->wx_s, .y = q->y};
    *s = (conv_plan){.n = q->n, .groups = q->groups, .c = q->xc, .m = q->yc, .sn_s = q->xn_s, .sc_s = q->xc_s,
                     .source = q->x, .out = q->w, .taps = 1, .phase_taps = 1};
    for (int d = 0; d < 3; d++) {
        s->line[d] = conv_line_of(&axis[d], 0);
        s->taps *= axis[d].w;
        s->phase_taps *= axis[d].w;
        p->y_s[d] = axis[d].ys;
        p->w_s[d] = axis[d].ws;
    }
    if (s->taps == 0 || s->c == 0 || s->m == 0 || s->groups == 0)
        return;                                  /* no result at all: chunks and blocks stay 0 */
    p->dot = s->m * 4 <= vl;
    p->direct = p->dot && conv_taps_are_3x3(s) && p->y_s[2] == 1;
    conv_plan_box(s, esize, CONV_W_DEPTH, CONV_W_PLANES, (p->dot ? 4 : 1) * CONV_W_POSITIONS / esize);
    if (s->plain)
        return;
    conv_plan_size(s, esize);
    p->positions = s->box[0] * s->box[1] * s->box[2];
    p->c_blocks = (s->c + s->cb - 1) / s->cb;
    p->f_blocks = (s->m + CONV_W_FILTERS - 1) / CONV_W_FILTERS;
    p->fb = (s->m + p->f_blocks - 1) / p->f_blocks;
    /* 27 taps are three tiles of 9, but four of 8 */
    p->mr = mr == 8 && s->cb * s->taps % 9 == 0 && s->cb * s->taps % 8 != 0 ? 9 : mr;
    p->tp = (s->cb * s->taps + p->mr - 1) / p->mr * p->mr;
    p->fp = p->dot ? p->fb : (p->fb + vl - 1) / vl * vl;
    int64_t boxes = s->boxes[0] * s->boxes[1] * s->boxes[2], most = (p->dot ? 4 : 1) * CONV_W_POSITIONS / esize;
    p->images = 1;                               /* images so small that several make a chunk */
    if (boxes == 1 && p->positions > 0)
        p->images = GD_MIN(most / p->positions, (int64_t)(CONV_W_PLANES / conv_plan_nbytes(s, esize)));
    p->images = GD_MAX(GD_MIN(p->images, s->n), 1);
    p->chunks = (s->n + p->images - 1) / p->images * boxes;
    double terms = (double)p->chunks * (double)(p->images * p->positions) * (double)p->tp * (double)p->fp;
    double nbytes = (double)(s->groups * p->c_blocks * p->f_blocks) * (double)(p->tp * p->fp * esize);
    double splits = GD_MIN(GD_MIN(terms / CONV_W_TERMS, CONV_W_NBYTES / nbytes), CONV_W_SPLITS);
    /* in terms: a position of a short row takes as long as 1024 of them, to be moved, and a byte of the planes as 16 */
    const double chunk = (double)p->positions * GD_MAX((double)p->tp * (double)p->fp, 1024) + 16 * conv_plan_nbytes(s, esize);
    const double duration = (double)p->chunks * (double)p->images * chunk;
    splits = GD_MAX(splits, GD_MIN(duration / CONV_W_LONG, 4.0 * CONV_W_NBYTES / nbytes));
    p->splits = GD_MAX((int64_t)GD_MIN(splits, (double)p->chunks), 1);
    p->item_terms = duration / (double)p->splits;
}

#endif
