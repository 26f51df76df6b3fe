/* map_plan.c: how an elementwise instruction walks its operands, decided once.
 *
 * The order of the elements does not matter to an elementwise op, so axes are turned (the output's strides become
 * positive), sorted by the output's stride and merged where all operands allow it. If one contiguous run is left the
 * step is flat; else it gets a plan of blocks. */
#include "program.h"

/* Rows shorter than this are gathered into blocks that span rows: a call of a kernel must be worth it. */
enum { LONG_ROW = 128 };
/* Blocks without buffers may be longer: 32 KiB of float32. */
enum { DIRECT_BLOCK = 8192 };
/* GDI_SMALL's limit: 20 us of the dearest op at its estimated cost. */
enum { SMALL_N = 2048, CALL_NS = 8, GRAIN_QUARTER_NS = 200000 };

typedef struct layout {
    int ndim, n;                                     /* axes, operands (output first) */
    int64_t shape[GDI_MAX_NDIM];
    int64_t stride[GDI_MAP_OPERANDS][GDI_MAX_NDIM];  /* bytes */
    int64_t offset[GDI_MAP_OPERANDS];
    int64_t size[GDI_MAP_OPERANDS];
} layout;

static void insert_axis(layout *l, int64_t n, const int64_t *stride)
{
    int at = l->ndim++;
    for (; at > 0 && l->stride[0][at - 1] < stride[0]; at--) {
        l->shape[at] = l->shape[at - 1];
        for (int k = 0; k < l->n; k++)
            l->stride[k][at] = l->stride[k][at - 1];
    }
    l->shape[at] = n;
    for (int k = 0; k < l->n; k++)
        l->stride[k][at] = stride[k];
}

static void sort_axes(layout *l, const gd_program_spec *s, const gd_view *const *view)
{
    const int64_t *shape = s->dim + view[0]->dims;
    for (int d = 0; d < view[0]->ndim; d++) {
        if (shape[d] == 1)
            continue;
        int64_t stride[GDI_MAP_OPERANDS];
        for (int k = 0; k < l->n; k++)
            stride[k] = s->dim[view[k]->dims + view[k]->ndim + d] * l->size[k];
        if (stride[0] < 0)
            for (int k = 0; k < l->n; k++) {
                l->offset[k] += stride[k] * (shape[d] - 1);
                stride[k] = -stride[k];
            }
        insert_axis(l, shape[d], stride);
    }
}

static int mergeable(const layout *l, int outer, int d)
{
    for (int k = 0; k < l->n; k++)
        if (l->stride[k][outer] != l->stride[k][d] * l->shape[d])
            return 0;
    return 1;
}

static void merge_axes(layout *l)
{
    int last = 0;
    for (int d = 1; d < l->ndim; d++) {
        int merged = mergeable(l, last, d);
        if (!merged)
            last++;
        l->shape[last] = merged ? l->shape[last] * l->shape[d] : l->shape[d];
        for (int k = 0; k < l->n; k++)
            l->stride[k][last] = l->stride[k][d];
    }
    if (l->ndim > 0)
        l->ndim = last + 1;
}

/* Is operand k contiguous in the order of the axes? */
static int is_flat(const layout *l, int k)
{
    int64_t step = l->size[k];
    for (int d = l->ndim - 1; d >= 0; d--) {
        if (l->stride[k][d] != step)
            return 0;
        step *= l->shape[d];
    }
    return 1;
}

/* Elements after which operand k repeats. */
static int64_t period(const layout *l, int k)
{
    int64_t n = 1;
    int d = 0;
    while (d < l->ndim && l->stride[k][d] == 0)
        d++;
    for (; d < l->ndim; d++)
        n *= l->shape[d];
    return n;
}

/* ---- flat steps ---- */
static int fits_flat(const layout *l, const gd_view *const *view, int64_t n)
{
    if (n > UINT32_MAX)
        return 0;
    for (int k = 0; k < l->n; k++)
        if (!is_flat(l, k) || view[k]->dtype == GD_FLOAT16 || view[k]->base > UINT16_MAX
            || l->offset[k] >> GDI_REF_SHIFT != 0)
            return 0;
    return 1;
}

static void make_flat(const layout *l, const gd_view *const *view, int64_t n, int64_t cost, gdi_map_fn fn, gdi_step *out)
{
    static const uint8_t log2_of[9] = {[1] = 0, [2] = 1, [4] = 2, [8] = 3};
    out->kind = n <= SMALL_N ? GDI_SMALL : GDI_FLAT;
    out->n = (uint32_t)n;
    out->cost = (uint16_t)(n <= SMALL_N ? CALL_NS + n * cost / 4 : cost);
    out->u.flat.fn = fn;
    for (int k = 0; k < l->n; k++) {
        out->u.flat.ref[k] = (uint64_t)view[k]->base << GDI_REF_SHIFT | (uint64_t)l->offset[k];
        out->log2_sizes |= (uint8_t)(log2_of[l->size[k]] << (2 * k));
    }
}

/* ---- plans ---- */
/* Blocks of the flat order: every operand is contiguous or repeats within a block, else it is gathered. */
static void feed_flat(gdi_plan *p, const layout *l)
{
    for (int k = 0; k < l->n; k++) {
        const int64_t length = period(l, k);
        p->operand[k].feed = is_flat(l, k) ? GDI_DIRECT : length <= GDI_BLOCK ? GDI_ONCE : GDI_GATHER;
        p->operand[k].period = length <= GDI_BLOCK ? (int32_t)length : 0;
    }
}

static void feed_rows(gdi_plan *p, const layout *l)
{
    for (int k = 0; k < l->n; k++) {
        const int64_t inner = l->stride[k][l->ndim - 1];
        p->operand[k].feed = inner == l->size[k] ? GDI_DIRECT : inner == 0 ? GDI_FILL : GDI_GATHER;
    }
}

static int any_fed(const gdi_plan *p, int first, int feed)
{
    for (int k = first; k <= p->n_in; k++)
        if (p->operand[k].feed == feed)
            return 1;
    return 0;
}

static int any_buffer(const gdi_plan *p)
{
    for (int k = 0; k <= p->n_in; k++)
        if (p->operand[k].feed != GDI_DIRECT || p->operand[k].cast)
            return 1;
    return 0;
}

/* A whole number of the longest period: then operands that repeat are the same in all blocks. Periods are products of
 * trailing sizes, so the longest is a multiple of the others. */
static int64_t flat_block(const gdi_plan *p)
{
    int64_t longest = 1;
    for (int k = 0; k <= p->n_in; k++)
        if (p->operand[k].feed == GDI_ONCE && p->operand[k].period > longest)
            longest = p->operand[k].period;
    return GDI_BLOCK / longest * longest;
}

static int64_t parts(int64_t n, int64_t of) { return n / of + (n % of != 0); }

static void choose_blocks(gdi_plan *p, const layout *l)
{
    p->height = 1;
    feed_flat(p, l);
    if (p->inner < LONG_ROW || !any_fed(p, 0, GDI_GATHER)) {
        p->block = flat_block(p);
        p->items = parts(p->n, p->block);
        return;
    }
    p->by_row = 1;
    feed_rows(p, l);
    const int64_t rows = l->ndim > 1 ? l->shape[l->ndim - 2] : 1;
    const int tiled = rows > 1 && any_fed(p, 1, GDI_GATHER);
    p->height = tiled ? GDI_TILE_ROWS : 1;
    p->block = tiled ? GDI_TILE_COLUMNS : any_buffer(p) ? GDI_BLOCK : DIRECT_BLOCK;
    p->pieces = parts(p->inner, p->block);
    p->items = p->n / p->inner / rows * parts(rows, p->height) * p->pieces;
}

static void choose_grain(gdi_plan *p, int64_t cost)
{
    for (int k = 0; k <= p->n_in; k++)
        cost += p->operand[k].feed == GDI_GATHER ? 4 : p->operand[k].cast ? 1 : 0;
    int64_t length = p->by_row && p->inner < p->block ? p->inner : p->block;
    p->grain = GRAIN_QUARTER_NS / (p->height * (cost * length + 4 * CALL_NS));
    if (p->grain < 1)
        p->grain = 1;
}

static void keep_layout(gdi_plan *p, const layout *l)
{
    int64_t *to = p->layout;
    p->shape = to;
    for (int d = 0; d < l->ndim; d++)
        *to++ = l->shape[d];
    for (int k = 0; k < l->n; k++) {
        p->operand[k].stride = to;
        for (int d = 0; d < l->ndim; d++)
            *to++ = l->stride[k][d];
    }
}

static gdi_plan *new_plan(gd_program *program, layout *l, int64_t n)
{
    if (l->ndim == 0) {                                  /* one element: an axis of length 1 saves special cases */
        l->ndim = 1;
        l->shape[0] = 1;
        for (int k = 0; k < l->n; k++)
            l->stride[k][0] = l->size[k];
    }
    gdi_plan *p = gdi_program_alloc(program, (int64_t)sizeof *p + (l->n + 1) * l->ndim * (int64_t)sizeof(int64_t));
    if (!p)
        return NULL;
    p->n = n;
    p->n_in = l->n - 1;
    p->ndim = l->ndim;
    p->inner = l->shape[l->ndim - 1];
    return p;
}

static int make_plan(gd_program *program, layout *l, const gd_view *const *view, int64_t n, int64_t cost, gdi_map_fn fn,
                     const gdi_table *t, gdi_step *out)
{
    gdi_plan *p = new_plan(program, l, n);
    if (!p)
        return GD_NO_MEMORY;
    out->kind = GDI_BLOCKS;
    out->u.plan = p;
    p->fn = fn;
    for (int k = 0; k < l->n; k++) {
        p->operand[k].place = (gdi_place){l->offset[k], view[k]->base};
        p->operand[k].size = (int16_t)l->size[k];
        if (view[k]->dtype == GD_FLOAT16)
            p->operand[k].cast = k ? t->cast[GD_FLOAT16][GD_FLOAT32] : t->cast[GD_FLOAT32][GD_FLOAT16];
    }
    keep_layout(p, l);
    choose_blocks(p, l);
    choose_grain(p, cost);
    if (any_buffer(p) && program->local_nbytes < GDI_MAP_LOCAL_NBYTES)
        program->local_nbytes = GDI_MAP_LOCAL_NBYTES;
    program->parallel |= p->items > p->grain;
    return GD_OK;
}

int gdi_map_prepare(gd_program *p, const gd_program_spec *s, const gdi_table *t, const gd_instr *in, gdi_step *out)
{
    const gd_view *view[GDI_MAP_OPERANDS];
    layout l = {.n = in->n_in + 1};
    for (int k = 0; k < l.n; k++) {
        view[k] = s->view + s->arg[in->args + k];
        l.offset[k] = view[k]->offset;
        l.size[k] = gd_dtype_nbytes(view[k]->dtype);
    }
    const int64_t n = gdi_view_count(s, view[0]);
    if (n == 0)
        return GD_OK;                                    /* the step stays GDI_NOTHING */
    sort_axes(&l, s, view);
    merge_axes(&l);
    const int dtype = view[in->n_in]->dtype;
    const gdi_map_fn fn = gdi_map_lookup(t, in->op, dtype);
    const int64_t cost = gdi_map_cost(in->op) * (l.size[in->n_in] == 8 ? 2 : 1);
    if (!fits_flat(&l, view, n))
        return make_plan(p, &l, view, n, cost, fn, t, out);
    make_flat(&l, view, n, cost, fn, out);
    p->parallel |= n * cost > GRAIN_QUARTER_NS;
    return GD_OK;
}
