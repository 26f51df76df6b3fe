/* pool_plan.h: the geometry of pooling, which all types share. Rows and columns are those of the outputs; a block is some of
 * the rows of one plane times some of the columns. */
#ifndef GDI_POOL_PLAN_H
#define GDI_POOL_PLAN_H

/* One spatial axis; x position = y position * stride - pad + tap * dil. For averages xe <= x is where values end. */
typedef struct pool_axis {
    int64_t x, y, xs, ys, window, stride, pad, dil, xe, count_lo, count_hi;
} pool_axis;

/* Rows are counted over (oD, oH) together, columns along oW. pitch: elements of a combined row, a multiple of the
 * column stride. plain: a row of one column does not fit, every output goes alone. */
typedef struct pool_plan {
    pool_axis axis[3];
    int64_t n, c, xn_s, xc_s, yn_s, yc_s;
    char *x, *y;
    int64_t rows, row_step, row_blocks, cols, col_step, col_blocks, pitch;
    int plain;
} pool_plan;

/* Elements of the combined rows of a block: 64 KB of float32, so the second pass finds them in L2 at worst. */
enum { POOL_BLOCK = 16384, POOL_COLS = 4096 };

enum pool_op { POOL_MAX, POOL_SUM };

/* Taps lo..hi-1 of the window at output position p lie inside [0, size). */
static void pool_taps(const pool_axis *a, int64_t p, int64_t size, int64_t *lo, int64_t *hi)
{
    int64_t first = p * a->stride - a->pad;
    *lo = 0;
    *hi = a->window;
    if (first >= 0 && first + (a->window - 1) * a->dil < size)
        return;                                  /* nearly always, and it saves the divisions */
    *lo = first >= 0 ? 0 : (-first + a->dil - 1) / a->dil;
    *hi = first >= size ? 0 : GD_MIN(a->window, (size - 1 - first) / a->dil + 1);
}

/* How many positions of the window at p an average divides by. */
static int64_t pool_count(const pool_axis *a, int64_t p)
{
    int64_t first = p * a->stride - a->pad;
    int64_t n = GD_MIN(first + a->window, a->count_hi) - GD_MAX(first, a->count_lo);
    return GD_MAX(n, 0);
}

static int64_t pool_floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }

/* Output positions lo..hi-1 have x position i in their window (not dilated); none where i lies beyond xe. */
static void pool_covering(const pool_axis *a, int64_t i, int64_t *lo, int64_t *hi)
{
    *lo = GD_MAX(-pool_floor_div(-(i + a->pad - a->window + 1), a->stride), 0);
    *hi = i < a->xe ? GD_MIN(pool_floor_div(i + a->pad, a->stride) + 1, a->y) : 0;
}

/* One block: plane (n, c), rows r0..r1-1, columns c0..c1-1. */
typedef struct pool_block {
    int64_t n, c, r0, r1, c0, c1;
} pool_block;

static pool_block pool_block_at(const pool_plan *p, int64_t item)
{
    pool_block b;
    b.c0 = item % p->col_blocks * p->col_step;
    item /= p->col_blocks;
    b.r0 = item % p->row_blocks * p->row_step;
    item /= p->row_blocks;
    b.n = item / p->c;
    b.c = item % p->c;
    b.c1 = GD_MIN(b.c0 + p->col_step, p->cols);
    b.r1 = GD_MIN(b.r0 + p->row_step, p->rows);
    return b;
}

#endif
