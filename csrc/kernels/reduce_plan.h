/* reduce_plan.h: how a reduction in[A.., R..] -> out[A..] is walked. Included once, before the typed templates.
 *
 * A line is the sequence of the elements of one result. Lines are cut into segments, so that one long line is many items.
 *   rows      a line at a time: the reduced axis has the smallest stride (or there is nothing else)
 *   columns   `width` neighbouring lines at a time: the innermost kept axis has the smallest stride, or lines are so short
 *             that it pays to turn them; where columns are not side by side, they are brought together
 * Phase 0 works on (lines or a tile of columns) x segment; with more than one segment it leaves a partial result of each in
 * c->scratch [line][segment] and phase 1 joins them. */
#ifndef GDI_REDUCE_PLAN_H
#define GDI_REDUCE_PLAN_H

enum {
    RED_BLOCK = 4096,                /* elements that lanes add up before they are joined */
    RED_LANES = 16,
    RED_DEPTH = 8,                   /* rows that columns() adds to a lane between a load and a store of it */
    RED_BATCH = RED_LANES * RED_DEPTH,
    RED_THIN = 4 * RED_LANES,        /* rows that are read side by side, so that no lane goes through memory */
    RED_FEW = 4,                     /* lines from which on it pays to turn those of several short axes (fold_turn_short) */
    RED_WIDTH = 2048,                /* columns of a tile: the wider, the longer a row is a stream (512 took 1.4 times as long) */
    RED_WIDEST = 2 * RED_WIDTH,      /* columns of the tiles that one range of items reads together (reduce_widen) */
    RED_SPLIT = 160,                 /* lines along the innermost kept axis, below which it is looked at together with the next */
    RED_UNIT = 64,                   /* columns that tiles are a multiple of */
    RED_SEGMENT = 64 * RED_BLOCK,    /* of a row: about 100 us. A power of two blocks, so the tree does not see it */
    RED_GATHER = 8 * RED_BLOCK,      /* elements brought together at once where a line is not a row in memory: they stay in L2 */
    RED_PIECE = 2048,                /* bytes of elements that lie apart, brought together at once: a core looks past them, so that memory brings
                                      * the next ones while these are added (any of 2500 x 4000 int64, every other one: 16 KB 8.4 ms, 2 KB 6.2) */
    RED_NEAR_NBYTES = 20 << 10,      /* of a turned line: they and the lines of memory that they came from stay in L1 */
    RED_NEAR_ARRAY = 2 << 20,        /* bytes of an array that L2 holds most of */
    RED_FAR_ARRAY = 48 << 20,        /* bytes of an array whose lines are asked for early */
    RED_ASKED_NBYTES = 384 << 10,    /* at most, of what is asked for at once */
    RED_TALL = RED_BLOCK * 7 / 4,    /* elements of a column of memory, from which on turned lines are added where they lie (reduce_is_tall) */
    RED_TALL_BLOCKS = 200000,        /* of all columns that are read at once: their partial results lie behind gathered elements */
    RED_TURNED = 512                 /* elements that lie side by side and turned, from which on it pays to look for cache lines */
};

typedef struct reduce_plan {
    gdi_lines kept, reduced;         /* kept: operand 0 is in, 1 is out */
    int64_t total;                   /* elements of a line */
    int64_t ks, os, rs;              /* innermost strides: kept in, kept out, reduced */
    int64_t inner;                   /* lines along the innermost kept axis, or the two innermost (reduce_join_kept) */
    int64_t split, os1;              /* lines along the innermost axis; stride of the next one out, if it is more than split */
    int columns;
    int64_t width, across;           /* columns of a tile; tiles along the innermost kept axis */
    int64_t segment, segments;
} reduce_plan;

static int64_t reduce_size(int64_t stride) { return stride < 0 ? -stride : stride; }

/* Lines may be done in any order: the axis with the smallest stride in the input goes last, then what can be is merged. */
static void reduce_sort(gdi_lines *l)
{
    for (int d = 1; d < l->ndim; d++)
        for (int e = d; e > 0 && reduce_size(l->stride[0][e - 1]) < reduce_size(l->stride[0][e]); e--) {
            int64_t t = l->shape[e];
            l->shape[e] = l->shape[e - 1];
            l->shape[e - 1] = t;
            for (int k = 0; k < l->n; k++) {
                t = l->stride[k][e];
                l->stride[k][e] = l->stride[k][e - 1];
                l->stride[k][e - 1] = t;
            }
        }
    int last = 0;
    for (int d = 1; d < l->ndim; d++) {
        int merge = 1;
        for (int k = 0; k < l->n; k++) merge = merge && l->stride[k][last] == l->stride[k][d] * l->shape[d];
        if (merge) l->shape[last] *= l->shape[d];
        else l->shape[++last] = l->shape[d];
        for (int k = 0; k < l->n; k++) l->stride[k][last] = l->stride[k][d];
    }
    l->ndim = l->ndim ? last + 1 : 0;
}

/* Tiles are of about the same width, and none begins within a run of `split` lines. */
static void reduce_set_tiles(reduce_plan *p)
{
    const int64_t tiles = (p->inner + RED_WIDTH - 1) / RED_WIDTH, run = p->split < p->inner ? p->split : 1;
    const int64_t unit = run > 1 ? run : RED_UNIT;
    p->width = p->columns ? p->inner : 1;
    if (p->columns && tiles > 1) p->width = GD_MIN((p->inner / tiles + unit) / unit * unit, RED_WIDTH / unit * unit);
    if (p->columns && p->width == p->inner && p->kept.count == p->inner && p->segments == 1 && p->width * p->total > 1 << 20)
        p->width = (p->width / run + 1) / 2 * run;         /* one item would be all there is: two for two threads */
    p->across = p->width ? (p->inner + p->width - 1) / p->width : 0;
}

/* free: the reduced elements may be taken in any order, too (extremes, any, all). */
static reduce_plan reduce_plan_of(const gdi_call *c, int free)
{
    const gdi_operand *pair[2] = {&c->in[0], &c->out[0]}, *one[1] = {&c->in[0]};
    int k = c->out[0].ndim;
    reduce_plan p;
    lines_set(&p.kept, pair, 2, 0, k);
    lines_set(&p.reduced, one, 1, k, c->in[0].ndim);
    reduce_sort(&p.kept);
    if (free) reduce_sort(&p.reduced);
    p.total = p.reduced.count;
    p.ks = lines_step(&p.kept, 0);
    p.os = lines_step(&p.kept, 1);
    p.rs = lines_step(&p.reduced, 0);
    p.inner = lines_inner(&p.kept);
    int across = p.reduced.ndim == 0 || reduce_size(p.ks) < reduce_size(p.rs);
    /* Lines of 9 to 16 elements of 8 bytes: two registers with masks take half as long as turning them. */
    const int exact = c->in[0].dtype == GD_INT64 && c->out[0].dtype == GD_FLOAT64;          /* has no masks */
    const int masked = GD_VBYTES == 64 && !exact && (c->in[0].dtype == GD_FLOAT64 || c->in[0].dtype == GD_INT64);
    int narrow = p.reduced.ndim == 1 && p.total <= (masked ? RED_LANES / 2 : RED_LANES) && p.inner >= RED_LANES;
    p.columns = p.inner > 1 && (across || narrow);
    p.segment = p.columns ? RED_BLOCK : RED_SEGMENT;
    p.segments = GD_MAX((p.total + p.segment - 1) / p.segment, (int64_t)1);
    p.split = p.inner;
    p.os1 = 0;
    reduce_set_tiles(&p);
    return p;
}

/* Few lines along the innermost kept axis that the next one goes on with in memory, if not in the result: both are one, whose results
 * go where they belong afterwards. For those who ask reduce_give() where. (Axis 0 of 13 x 624 x 2 float32 with the other two exchanged: 61 us
 * as 624 units of 2 columns.) */
static void reduce_join_kept(reduce_plan *p)
{
    const gdi_lines *k = &p->kept;
    const int d = k->ndim - 1;
    if (!p->columns || d < 1 || p->inner >= RED_SPLIT || k->stride[0][d - 1] != p->ks * p->inner) return;
    p->inner *= k->shape[d - 1];
    p->os1 = k->stride[1][d - 1];
    reduce_set_tiles(p);
}

static reduce_plan reduce_joined_of(const gdi_call *c, int free)
{
    reduce_plan p = reduce_plan_of(c, free);
    reduce_join_kept(&p);
    return p;
}

/* Short lines along several axes, for sums and products, and with AVX2 for extremes: turned as well, as one by one they are brought together a
 * few elements at a time. (Axes 1 and 3 of 20 x 2 x 20 x 2 float64: 20 us, turned 2; extremes of int64 29.) */
static void fold_turn_short(reduce_plan *p)
{
    if (p->columns || p->reduced.ndim < 2 || p->total > RED_THIN || lines_inner(&p->reduced) > RED_LANES || p->inner < RED_FEW) return;
    p->columns = 1;
    reduce_set_tiles(p);
}

static reduce_plan fold_plan_of(const gdi_call *c, int free)
{
    reduce_plan p = reduce_plan_of(c, free);
    fold_turn_short(&p);
    reduce_join_kept(&p);
    return p;
}

/* Of max and min; those of bool are any and all. */
static reduce_plan reduce_extremes_of(const gdi_call *c)
{
    reduce_plan p = reduce_plan_of(c, 1);
    if (c->in[0].dtype == GD_BOOL) return p;
    if (GD_VBYTES == 32) fold_turn_short(&p);
    reduce_join_kept(&p);
    return p;
}

/* How w results side by side go to the result of the first. */
static gdi_block reduce_give(const reduce_plan *p, int64_t w)
{
    if (p->split == p->inner) return (gdi_block){.n0 = 1, .n1 = w, .os0 = 0, .os1 = p->os, .is0 = 0, .is1 = 1};
    if (reduce_size(p->os) < reduce_size(p->os1))
        return (gdi_block){.n0 = w / p->split, .n1 = p->split, .os0 = p->os1, .os1 = p->os, .is0 = p->split, .is1 = 1};
    return (gdi_block){.n0 = p->split, .n1 = w / p->split, .os0 = p->os, .os1 = p->os1, .is0 = 1, .is1 = p->split};
}

/* The reduced elements, in more than one axis, as rows of columns: the innermost axis, whose totals or extremes are to be joined. */
static reduce_plan reduce_runs_of(const reduce_plan *p)
{
    reduce_plan runs = *p;
    runs.reduced.count /= lines_inner(&p->reduced);
    runs.reduced.ndim--;
    runs.total = runs.reduced.count;
    runs.ks = p->rs;
    runs.rs = lines_step(&runs.reduced, 0);
    return runs;
}

/* Is the input too large for a core's caches? far: and rows long enough for the joins not to matter, or memory so far away that four
 * streams, which end with their rows, come much slower than one (60000 x 100 float64: 12.4 ms, one row after the other 2). */
static int reduce_is_large(const reduce_plan *p, size_t nbytes) { return p->kept.count * p->total >= (4 << 20) / (int64_t)nbytes; }
static int reduce_is_far(const reduce_plan *p, size_t nbytes)
{
    return reduce_is_large(p, nbytes) && (p->total >= RED_BLOCK / 16
        || (p->total >= 512 / (int64_t)nbytes && p->kept.count * p->total >= (20 << 20) / (int64_t)nbytes));
}

/* Are columns so short that all their rows are read side by side? Not where there is little to read at once. Of large arrays fewer: lanes of
 * eight rows each come as fast from L2. (128 x 16384 float32: 184 us, so 150.) */
static int reduce_is_thin(const reduce_plan *p, int64_t w, size_t nbytes)
{
    const int64_t most = RED_BATCH - (reduce_is_large(p, nbytes) ? RED_LANES : 0);
    return p->total <= RED_LANES || (p->total <= most && p->ks == 1 && w >= 128);
}

/* Are the elements of a line turned: do those along the axis before its innermost lie side by side? */
static int reduce_is_turned(const reduce_plan *p)
{
    const gdi_lines *r = &p->reduced;
    const int d = r->ndim - 1;
    return !p->columns && d > 0 && r->stride[0][d - 1] == 1 && p->rs != 0 && r->shape[d] >= RED_LANES
        && r->shape[d] <= (int64_t)RED_TALL_BLOCKS * RED_BLOCK / 2 && r->shape[d] * r->shape[d - 1] >= RED_TURNED;
}

/* Are there more elements than are brought together at once between two of a line that are neighbours in memory, and few cache lines? */
static int reduce_is_scattered(const gdi_lines *r)
{
    int64_t between = 1;
    for (int d = r->ndim - 1; d >= 0 && reduce_size(r->stride[0][d]) > 4; d--) between *= r->shape[d];
    return between < r->count && 4 * between > RED_GATHER && between <= RED_SEGMENT / 2;
}

/* Are columns of memory added where they lie? Their beginnings are read twice then, but where all begin with a block. (6200 x 400 float64: 1760 us,
 * turned 1410; 10000 x 200: 950 instead of 1460; 4096 x 256: 390 instead of 760.) */
static int reduce_is_tall(int64_t rows) { return rows >= RED_TALL || rows == RED_BLOCK; }

/* Segments of a turned line that are read at once: fewer would be pieces of columns, for which whole cache lines come from memory. */
static int64_t reduce_tall_grain(const reduce_plan *p)
{
    enum { WIDTH = 64, MOST = 8 };
    const int64_t width = GD_MIN(p->reduced.shape[p->reduced.ndim - 2], (int64_t)WIDTH);
    return GD_MIN(width * lines_inner(&p->reduced) / RED_SEGMENT + 1, (int64_t)MOST);
}


/* All tiles of rows as one, where a range of items has all of them and rows come from memory, which reads ahead along a row best if nothing
 * is left out between rows. (4000 x 2500 float32: 1900 us, as one 1700.) */
static void reduce_widen(reduce_plan *p, int64_t *lo, int64_t *hi, size_t nbytes)
{
    const int64_t items = p->across * p->segments;
    if (!p->columns || p->across < 2 || p->ks != 1 || p->inner > RED_WIDEST || *lo % items || *hi % items || !reduce_is_large(p, nbytes)) return;
    *lo /= p->across;
    *hi /= p->across;
    p->width = p->inner;
    p->across = 1;
}

/* The plan of a range of items, which a kernel keeps as a constant: what calls cannot change need not be read again behind them.
 * fold: short lines along several axes are turned. */
static reduce_plan reduce_range_of(const gdi_call *c, int free, int fold, int phase, int64_t *lo, int64_t *hi, size_t nbytes)
{
    reduce_plan p = reduce_plan_of(c, free);
    if (fold) fold_turn_short(&p);
    reduce_join_kept(&p);
    if (phase == 0) reduce_widen(&p, lo, hi, nbytes);
    return p;
}

/* Items of phase 0: units (a line, or a tile of columns) times segments. */
static int64_t reduce_units(const reduce_plan *p)
{
    return p->kept.count ? p->kept.count / p->inner * (p->columns ? p->across : p->inner) : 0;
}

/* The first line of a unit and the lines in it. */
static int64_t reduce_unit(const reduce_plan *p, int64_t u, int64_t *width)
{
    if (!p->columns) { *width = 1; return u; }
    int64_t j = u % p->across * p->width;
    *width = GD_MIN(p->width, p->inner - j);
    return u / p->across * p->inner + j;
}

/* An odometer over lines of one operand: the offset of a line after another without divisions. */
typedef struct reduce_walk {
    const gdi_lines *l;
    int64_t at, i[GDI_MAX_NDIM];
} reduce_walk;

static void reduce_walk_to(reduce_walk *w, const gdi_lines *l, int64_t line)
{
    w->l = l;
    w->at = 0;
    for (int d = l->ndim - 1; d >= 0 && l->count; d--) {
        w->i[d] = line % l->shape[d];
        line /= l->shape[d];
        w->at += w->i[d] * l->stride[0][d];
    }
}

GD_INLINE int64_t reduce_walk_next(reduce_walk *w)
{
    int64_t at = w->at;
    for (int d = w->l->ndim - 1; d >= 0; d--) {
        w->at += w->l->stride[0][d];
        if (++w->i[d] < w->l->shape[d]) break;
        w->at -= w->i[d] * w->l->stride[0][d];
        w->i[d] = 0;
    }
    return at;
}

/* out[j*step] = totals of int64 elements x as float64, rounded once. low: the sums of x modulo 2^64; high: the sums of x >> 32. Of less
 * than 2^32 elements the sum of what is below 2^32 is less than 2^64, and low tells it. */
static void red_exact(const int64_t *low, const int64_t *high, int64_t w, double *out, int64_t step)
{
    uint64_t odd = 0;                /* is a total near 2^63, or beyond? */
    for (int64_t j = 0; j < w; j++)
        odd |= ((uint64_t)low[j] - ((uint64_t)high[j] << 32)) >> 62 | ((uint64_t)high[j] + ((uint64_t)1 << 30)) >> 31;
    for (int64_t j = 0; !odd && j < w; j++) out[j * step] = (double)low[j];
    for (int64_t j = 0; odd && j < w; j++) {
        const uint64_t rest = (uint64_t)low[j] - ((uint64_t)high[j] << 32);
        out[j * step] = (double)((__int128)high[j] * ((int64_t)1 << 32) + (__int128)rest);
    }
}
#endif
