/* map_plan.c: how an elementwise instruction walks its operands, decided once.
 *
 * The order of the elements does not matter to an elementwise op, so axes are turned (the output's strides become
 * positive), sorted by the output's stride and merged where all operands allow it. If one contiguous run is left the
 * step is flat; else it gets a plan of blocks. */
#include "blocks.h"
#include "stream.h"

/* Rows shorter than this are gathered into blocks that span rows: a call of a kernel must be worth it. */
enum { LONG_ROW = 128 };
/* Not where all that is done to a row is one call: from so many bytes, or elements for functions, whose own beginnings and ends
 * take longer. Rows cut out of longer ones take half the time of gathering them. One value for a row is soon written, so that rows
 * of less than 128 bytes are done faster together. */
enum { DIRECT_ROW_NBYTES = 32, DIRECT_STILL_NBYTES = 128, DIRECT_FUNCTION_ROW = 64 };
/* Blocks without buffers may be longer: 32 KiB of float32. */
enum { DIRECT_BLOCK = 8192, SINGLE_BLOCK = 32768 };
/* Groups of so many bytes of arrays wait for memory at the start of every block. Where functions take longer than memory does, of
 * which there must be one for so many bytes of an element, or where several results go past the caches, lines of blocks to come
 * arrive meanwhile: a chain of tanh, sigmoid and exp with its gradients takes 2.7 ns an element instead of 3.4, x y + z with its
 * own 1.4 instead of 1.9. One or two cheap operations only lose by it, and so do arrays that the last cache holds. */
enum { AHEAD_NBYTES = 24 << 20, AHEAD_FUNCTION_NBYTES = 8, AHEAD_MICRO = 3 };
/* GDI_SMALL's limit: 20 us of the dearest op at its estimated cost. */
enum { SMALL_N = 2048, CALL_NS = 8, GRAIN_QUARTER_NS = 200000 };

typedef struct layout {
    int ndim, n;                                     /* axes, operands (outputs first) */
    int half;                                        /* float16 as it is, not by way of float32 */
    int64_t shape[GDI_MAX_NDIM];
    int64_t stride[GDI_FUSED_OPERANDS][GDI_MAX_NDIM];  /* bytes */
    int64_t offset[GDI_FUSED_OPERANDS];
    int64_t size[GDI_FUSED_OPERANDS];
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

/* The axes in the order they are, which is the order a sum goes by. View `whole` has them all; a sum lacks the last ones. */
static void take_axes(layout *l, const gd_program_spec *s, const gd_view *const *view, int whole)
{
    const int64_t *shape = s->dim + view[whole]->dims;
    for (int d = 0; d < view[whole]->ndim; d++) {
        if (shape[d] == 1)
            continue;
        l->shape[l->ndim] = shape[d];
        for (int k = 0; k < l->n; k++)
            l->stride[k][l->ndim] = d < view[k]->ndim ? s->dim[view[k]->dims + view[k]->ndim + d] * l->size[k] : 0;
        l->ndim++;
    }
}

static void sort_axes(layout *l, const gd_program_spec *s, const gd_view *const *view)
{
    const int64_t *shape = s->dim + view[0]->dims;
    for (int d = 0; d < view[0]->ndim; d++) {
        if (shape[d] == 1)
            continue;
        int64_t stride[GDI_FUSED_OPERANDS];
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

/* Bytes of the operands that are not broadcast. */
static int64_t total_nbytes(const layout *l, int64_t n)
{
    int64_t total = 0;
    for (int k = 0; k < l->n; k++) {
        int whole = 1;
        for (int d = 0; d < l->ndim; d++)
            whole &= l->stride[k][d] != 0;
        total += whole ? n * l->size[k] : 0;
    }
    return total;
}

/* ---- flat steps ---- */
static int fits_flat(const layout *l, const gd_view *const *view, int64_t n)
{
    if (n > UINT32_MAX || total_nbytes(l, n) >= GDI_STREAM_NBYTES)
        return 0;
    for (int k = 0; k < l->n; k++)
        if (!is_flat(l, k) || (view[k]->dtype == GD_FLOAT16 && !l->half) || view[k]->base > UINT16_MAX
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
        p->operand[k].feed = is_flat(l, k) ? GDI_DIRECT : length <= p->unit ? GDI_ONCE : GDI_GATHER;
        p->operand[k].period = length <= p->unit ? (int32_t)length : 0;
    }
}

/* Do neighbours along the last axis lie further apart than those along the one before? */
static int is_turned(const layout *l, int k)
{
    const int d = l->ndim - 1;
    const int64_t inner = l->stride[k][d], outer = d > 0 ? l->stride[k][d - 1] : 0;
    return outer != 0 && (outer < 0 ? -outer : outer) < (inner < 0 ? -inner : inner);
}

static void feed_rows(gdi_plan *p, const layout *l)
{
    for (int k = 0; k < l->n; k++) {
        const int64_t inner = l->stride[k][l->ndim - 1];
        p->operand[k].feed = inner == l->size[k] ? GDI_DIRECT : inner == 0 ? GDI_FILL : k >= p->n_out && is_turned(l, k) ? GDI_TURN : GDI_GATHER;
    }
}

/* The operands of a micro that are in `lone` (bits by number), as bits of its `from`. */
static unsigned lone_operands(const gdi_micro *m, uint64_t lone)
{
    unsigned bits = 0;
    for (int k = 0; k < GDI_LOOP_VALUES; k++)
        if (k < m->reads || m->reads == 0)
            bits |= (unsigned)(lone >> m->from[k] & 1) << k;
    return bits;
}

/* The loop of a micro that takes one value for as many of these as any does; -1: there is none. */
static int lone_loop(const gdi_micro *m, unsigned bits)
{
    for (int j = 0; j < 2; j++)
        if (m->lone[j] && (m->lone_from[j] & ~bits) == 0)
            return j;
    return -1;
}

/* Inputs of one value, which no block need be filled with if every loop that reads one takes it so. */
static void feed_singles(gdi_plan *p)
{
    uint64_t lone = 0;
    for (int k = p->n_out; k < p->n_out + p->n_in; k++) {
        const gdi_plan_operand *o = p->operand + k;
        if (!o->cast && (o->feed == GDI_FILL || (o->feed == GDI_ONCE && o->period == 1)))
            lone |= (uint64_t)1 << k;
    }
    for (uint64_t before = 0; lone != before;) {
        before = lone;
        for (const gdi_micro *m = p->micro; m < p->micro + p->n_micro; m++) {
            const unsigned bits = lone_operands(m, lone);
            const int j = lone_loop(m, bits);
            for (int k = 0; k < GDI_LOOP_VALUES; k++)
                if ((bits & ~(j < 0 ? 0u : m->lone_from[j])) >> k & 1)
                    lone &= ~((uint64_t)1 << m->from[k]);
        }
    }
    for (gdi_micro *m = p->micro; lone && m < p->micro + p->n_micro; m++) {
        const int j = lone_loop(m, lone_operands(m, lone));
        if (j >= 0)
            m->fn = m->lone[j];
    }
    for (int k = 0; k < p->n_out + p->n_in; k++)
        if (lone >> k & 1)
            p->operand[k].feed = GDI_SINGLE;
}

/* Operands that are not contiguous are read where they lie: to gather them first is to wait for memory, and then again for
 * that of the result. Where shuffles gather several elements at once, that is as fast, unless the loop shuffles: every other
 * element of both, or one of the two backwards, or both. */
enum { STEPPED_4_FROM = 4, STEPPED_8_FROM = 2 };
static void feed_stepped(gdi_plan *p)
{
    int spread = 0, halves = 1, back = 0, near = 1, fit = p->stepped && p->operand[0].feed == GDI_DIRECT && !p->operand[0].stream;
    for (int k = 1; k < p->n_out + p->n_in; k++) {
        const gdi_plan_operand *o = p->operand + k;
        const int64_t stride = o->stride[p->ndim - 1] / o->size, apart = stride < 0 ? -stride : stride;
        fit &= o->feed != GDI_TURN && !o->cast;
        spread |= o->feed == GDI_GATHER && apart >= (o->size == 8 ? STEPPED_8_FROM : STEPPED_4_FROM);
        halves &= stride == 2;
        back |= stride == -1;
        near &= apart == 1;
        if (fit)
            p->step[k - 1] = stride;
    }
    if (!fit || !(spread || halves || (near && back))) {
        p->stepped = NULL;
        return;
    }
    for (int k = 1; k < p->n_out + p->n_in; k++)
        p->operand[k].feed = GDI_STEPPED;
}

static int any_fed(const gdi_plan *p, int first, int feed)
{
    for (int k = first; k < p->n_out + p->n_in; k++)
        if (p->operand[k].feed == feed)
            return 1;
    return 0;
}

static int has_buffer(const gdi_plan_operand *o)
{
    return (o->feed != GDI_DIRECT && o->feed != GDI_SUM && o->feed != GDI_SINGLE && o->feed != GDI_STEPPED) || o->cast || o->stream;
}

static int any_buffer(const gdi_plan *p)
{
    for (int k = 0; k < p->n_out + p->n_in; k++)
        if (has_buffer(p->operand + k))
            return 1;
    return 0;
}

/* Does an input lie where output k does? */
static int is_updated(const gdi_plan *p, int k)
{
    for (int i = p->n_out; i < p->n_out + p->n_in; i++)
        if (p->operand[i].place.base == p->operand[k].place.base && p->operand[i].place.offset == p->operand[k].place.offset)
            return 1;
    return 0;
}

/* Outputs that are one run of large arrays. Of several, one that is written over an input is in the cache already. */
static void choose_streams(gdi_plan *p, const layout *l)
{
    for (int k = 0; k < p->n_out; k++)
        p->operand[k].stream = (int8_t)(p->n_sink == 0 && is_flat(l, k) && !p->operand[k].cast && total_nbytes(l, p->n) >= GDI_STREAM_NBYTES
                                        && (p->n_out == 1 || !is_updated(p, k)));
}

static int any_stream(const gdi_plan *p)
{
    for (int k = 0; k < p->n_out; k++)
        if (p->operand[k].stream)
            return 1;
    return 0;
}

/* A whole number of the longest period: then operands that repeat are the same in all blocks. Periods are products of
 * trailing sizes, so the longest is a multiple of the others. */
static int64_t flat_block(const gdi_plan *p)
{
    int64_t longest = 1;
    for (int k = 0; k < p->n_out + p->n_in; k++)
        if (p->operand[k].feed == GDI_ONCE && p->operand[k].period > longest)
            longest = p->operand[k].period;
    return p->unit / longest * longest;
}

static int64_t parts(int64_t n, int64_t of) { return n / of + (n % of != 0); }

/* Elements of a block: a cheap operation costs less than the steps around a short one, but all that is read and written should
 * stay in L1, so the more registers, the shorter. */
static void choose_unit(gdi_plan *p, const layout *l, int64_t element_nbytes)
{
    const int stream = any_stream(p);
    const int64_t nbytes = stream ? 2048 : p->n_micro == 1 ? 8192 : p->n_register <= 2 ? 4096 : 2048;
    int64_t widest = element_nbytes;
    for (int k = 0; k < l->n; k++) {
        const int64_t size = p->operand[k].cast ? 4 : l->size[k];
        widest = size > widest ? size : widest;
    }
    p->unit = stream ? nbytes / widest : p->n_sink > 0 || nbytes / widest < GDI_BLOCK ? GDI_BLOCK : nbytes / widest;
}

/* Is an operation of at most two operands done to a row as it lies? They stand still along it only where a loop takes one value. */
static int is_direct_by_rows(const gdi_plan *p, const layout *l)
{
    const gdi_micro *m = p->micro;
    uint64_t still = 0;
    for (int k = 0; k < l->n; k++) {
        const int64_t inner = l->stride[k][l->ndim - 1];
        if (p->operand[k].cast || p->operand[k].stream || (inner != l->size[k] && (inner != 0 || k < p->n_out)))
            return 0;
        still |= (uint64_t)(inner == 0) << k;
    }
    if (p->n_out != 1 || p->n_in > 2 || p->n_micro != 1 || !m->fn)
        return 0;
    const unsigned bits = lone_operands(m, still);
    const int j = lone_loop(m, bits);
    return bits == 0 || (j >= 0 && m->lone_from[j] == bits && p->inner * l->size[0] >= DIRECT_STILL_NBYTES);
}

/* direct_row: the shortest row that is worth a call where that is all. */
static void choose_blocks(gdi_plan *p, const layout *l, int64_t direct_row)
{
    p->height = 1;
    feed_flat(p, l);
    const int short_row = p->inner < direct_row || (p->inner < LONG_ROW && !is_direct_by_rows(p, l));
    if (short_row || !any_fed(p, 0, GDI_GATHER)) {
        feed_singles(p);
        p->block = any_fed(p, p->n_out, GDI_SINGLE) && !any_buffer(p) && p->n_micro == 1 ? SINGLE_BLOCK : flat_block(p);
        p->items = parts(p->n, p->block);
        p->stepped = NULL;
        return;
    }
    p->by_row = 1;
    feed_rows(p, l);
    feed_stepped(p);
    feed_singles(p);
    const int64_t rows = l->ndim > 1 ? l->shape[l->ndim - 2] : 1;
    const int tiled = rows > 1 && any_fed(p, p->n_out, GDI_TURN);
    p->height = tiled ? GDI_TILE_ROWS : 1;
    p->block = tiled ? least(p->unit, GDI_TILE_COLUMNS) : any_buffer(p) || p->n_micro > 1 ? p->unit : DIRECT_BLOCK;
    p->pieces = parts(p->inner, p->block);
    p->items = p->n / p->inner / rows * parts(rows, p->height) * p->pieces;
    int lies = tiled || p->pieces == 1;
    for (int k = 0; k < p->n_out + p->n_in; k++)
        lies &= !has_buffer(p->operand + k) || (tiled && p->operand[k].feed == GDI_TURN && !p->operand[k].cast);
    p->direct = lies && p->n_out == 1 && p->n_in < GDI_MAP_OPERANDS && p->n_micro == 1 && p->micro->fn && p->micro->to == 0;
}

/* Every row is cut into items of GDI_FOLD_BLOCK elements, and those into blocks. */
static void choose_sums(gdi_plan *p, const layout *l)
{
    p->by_row = p->height = 1;
    feed_rows(p, l);
    for (int k = 0; k < p->n_sink; k++)
        p->operand[p->sink[k].to].feed = GDI_SUM;
    p->block = GDI_BLOCK;
    p->stretch = GDI_FOLD_BLOCK;
    p->pieces = parts(p->inner, p->stretch);
    p->items = p->n / p->inner * p->pieces;
}

static void choose_grain(gdi_plan *p, int64_t cost)
{
    for (int k = 0; k < p->n_out + p->n_in; k++)
        cost += p->operand[k].feed == GDI_GATHER || p->operand[k].feed == GDI_TURN ? 4 : p->operand[k].cast ? 1 : 0;
    int64_t length = p->by_row && p->inner < p->stretch ? p->inner : p->stretch;
    p->grain = GRAIN_QUARTER_NS / (p->height * ((cost + p->n_sink) * length + 4 * CALL_NS * (p->n_micro + 1)));
    if (p->grain < 1)
        p->grain = 1;
}

static void keep_layout(gdi_plan *p, const layout *l, int64_t *to)
{
    p->shape = to;
    for (int d = 0; d < l->ndim; d++)
        *to++ = l->shape[d];
    for (int k = 0; k < l->n; k++) {
        gdi_plan_operand *o = p->operand + k;
        o->stride = to;
        for (int d = 0; d < l->ndim; d++)
            *to++ = l->stride[k][d];
        o->axis = l->ndim - 1;
        o->run = p->inner;
        for (; o->axis > 0 && o->stride[o->axis - 1] == o->run * o->stride[l->ndim - 1]; o->axis--)
            o->run *= p->shape[o->axis - 1];
    }
}


/* A plan and the tables it points to, in one block. */
static gdi_plan *new_plan(gd_program *program, layout *l, int64_t n, int n_out, int n_micro, int n_sink)
{
    if (l->ndim == 0) {                                  /* one element: an axis of length 1 saves special cases */
        l->ndim = 1;
        l->shape[0] = 1;
        for (int k = 0; k < l->n; k++)
            l->stride[k][0] = l->size[k];
    }
    const int64_t operands = aligned((int64_t)sizeof(gdi_plan));
    const int64_t micros = operands + aligned(l->n * (int64_t)sizeof(gdi_plan_operand));
    const int64_t sinks = micros + aligned(n_micro * (int64_t)sizeof(gdi_micro));
    const int64_t layouts = sinks + aligned(n_sink * (int64_t)sizeof(gdi_sink));
    char *at = gdi_program_alloc(program, layouts + (l->n + 1) * l->ndim * (int64_t)sizeof(int64_t));
    if (!at)
        return NULL;
    gdi_plan *p = (gdi_plan *)(void *)at;
    p->operand = (gdi_plan_operand *)(void *)(at + operands);
    p->micro = (gdi_micro *)(void *)(at + micros);
    p->sink = (gdi_sink *)(void *)(at + sinks);
    p->n_micro = n_micro;
    p->n_sink = n_sink;
    p->n = n;
    p->n_out = n_out;
    p->n_in = l->n - n_out;
    p->ndim = l->ndim;
    p->inner = l->shape[l->ndim - 1];
    keep_layout(p, l, (int64_t *)(void *)(at + layouts));
    return p;
}

/* Private memory: buffers for the operands that need one, then the registers. A cache line more than a register's
 * elements keeps registers out of each other's cache sets. */
static void place_buffers(gd_program *program, gdi_plan *p, int64_t element_nbytes)
{
    int buffers = 0;
    for (int k = 0; k < p->n_out + p->n_in; k++)
        p->operand[k].buffer = (int8_t)(has_buffer(p->operand + k) ? buffers++ : -1);
    p->buffers_nbytes = buffers * (int64_t)GDI_MAP_BUFFER_NBYTES;
    p->register_nbytes = p->unit * element_nbytes + GDI_ALIGN;
    const int64_t nbytes = p->buffers_nbytes + p->n_register * p->register_nbytes;
    if (program->local_nbytes < nbytes)
        program->local_nbytes = nbytes;
}

static void place_operands(gdi_plan *p, const layout *l, const gd_view *const *view, const gdi_table *t)
{
    for (int k = 0; k < l->n; k++) {
        p->operand[k].place = (gdi_place){l->offset[k], view[k]->base};
        p->operand[k].size = (int16_t)l->size[k];
        p->operand[k].move = t->move[l->size[k]];
        if (view[k]->dtype == GD_FLOAT16 && !l->half)
            p->operand[k].cast = k < p->n_out ? t->cast[GD_FLOAT32][GD_FLOAT16] : t->cast[GD_FLOAT16][GD_FLOAT32];
    }
}

static void finish_plan(gd_program *program, gdi_plan *p, const layout *l, int64_t element_nbytes, int64_t cost,
                        int64_t direct_row, gdi_step *out)
{
    out->kind = GDI_BLOCKS;
    out->u.plan = p;
    choose_streams(p, l);
    choose_unit(p, l, element_nbytes);
    if (p->n_sink > 0) {
        choose_sums(p, l);
    } else {
        choose_blocks(p, l, direct_row);
        p->stretch = p->block;
    }
    choose_grain(p, cost);
    place_buffers(program, p, element_nbytes);
    program->parallel |= p->items > p->grain;
}

/* The loops of an operation of two operands for the case that the first or the second is one value. */
static void take_lone(gdi_micro *m, const gdi_map_fn *single)
{
    for (int k = 0; k < 2; k++) {
        m->lone[k] = single[k];
        m->lone_from[k] = (uint8_t)(1u << k);
    }
}

/* The loops for an operation: of contiguous operands; where operand 0, 1 is one element; where operands are spread; and the
 * shortest row that is worth a call of them. */
typedef struct loops {
    gdi_map_fn fn;
    const gdi_map_fn *single;
    gdi_stepped_fn stepped;
    int64_t direct_row;
} loops;

static int make_plan(gd_program *program, layout *l, const gd_view *const *view, int64_t n, int64_t cost, const loops *of,
                     const gdi_table *t, gdi_step *out)
{
    gdi_plan *p = new_plan(program, l, n, 1, 1, 0);
    if (!p)
        return GD_NO_MEMORY;
    p->micro[0] = (gdi_micro){.fn = of->fn, .from = {1, p->n_in > 1 ? 2 : 1, p->n_in > 2 ? 3 : 1}, .reads = (uint8_t)p->n_in};
    if (p->n_in == 2)
        take_lone(p->micro, of->single);
    place_operands(p, l, view, t);
    p->stepped = of->stepped;
    finish_plan(program, p, l, 0, cost, of->direct_row, out);
    return GD_OK;
}

static int64_t cost_of(int op, int64_t size) { return gdi_map_cost(op) * (size == 8 ? 2 : 1); }

static void begin_layout(layout *l, const gd_program_spec *s, const gd_instr *in, const gd_view **view)
{
    l->n = in->n_out + in->n_in;
    for (int k = 0; k < l->n; k++) {
        view[k] = s->view + s->arg[in->args + k];
        l->offset[k] = view[k]->offset;
        l->size[k] = gd_dtype_nbytes(view[k]->dtype);
    }
}

int gdi_map_prepare(gd_program *p, const gd_program_spec *s, const gdi_table *t, const gd_instr *in, gdi_step *out)
{
    const gd_view *view[GDI_MAP_OPERANDS];
    layout l = {.ndim = 0};
    begin_layout(&l, s, in, view);
    const int64_t n = gdi_view_count(s, view[0]);
    if (n == 0)
        return GD_OK;                                    /* the step stays GDI_NOTHING */
    sort_axes(&l, s, view);
    merge_axes(&l);
    const int dtype = view[in->n_in]->dtype;
    const int64_t cost = cost_of(in->op, l.size[in->n_in]);
    const int far = total_nbytes(&l, n) >= GDI_FAR_NBYTES, bytes = l.size[in->n_in] == 1;
    gdi_map_fn fn = gdi_map_lookup(far ? gdi_map_far(t, in->op, in->n_in > 1 || bytes) : t, in->op, dtype);
    if (dtype == GD_FLOAT16 && t->half[in->op]) {
        l.half = 1;
        fn = t->half[in->op];
    }
    const int64_t narrow = l.size[0] < l.size[in->n_in] ? l.size[0] : l.size[in->n_in];
    const int64_t row = gdi_map_is_function(in->op) ? DIRECT_FUNCTION_ROW : DIRECT_ROW_NBYTES / narrow;
    if (!fits_flat(&l, view, n))
        return make_plan(p, &l, view, n, cost, &(loops){fn, (far ? gdi_map_far(t, in->op, bytes) : t)->single[in->op][dtype],
                                                        t->stepped[in->op][dtype], row}, t, out);
    make_flat(&l, view, n, cost, fn, out);
    p->parallel |= n * cost > GRAIN_QUARTER_NS;
    return GD_OK;
}

/* ---- fused groups ---- */
/* Register `number` (below 0: an operand) holds elements of this size. */
static void note_register(gdi_plan *p, int number, int64_t nbytes, int64_t *element_nbytes)
{
    if (number < 0)
        return;
    *element_nbytes = nbytes > *element_nbytes ? nbytes : *element_nbytes;
    p->n_register = number + 1 > p->n_register ? number + 1 : p->n_register;
}

/* Is register `value` read from line i on, before it is written again? */
int gdi_is_read(const int64_t *line, int i, int lines, int64_t value)
{
    for (line += (int64_t)i * GDI_FUSED_LINE; i < lines; i++, line += GDI_FUSED_LINE) {
        for (int k = 3; k < (line[0] == GD_OP_SUM ? 4 : GDI_FUSED_LINE); k++)
            if (line[k] == value)
                return 1;
        if (line[2] == value)
            return 0;
    }
    return 0;
}

/* The lines that one loop does together: made[i] is the loop that runs in line i's place, if there is one. */
static void find_loops(gdi_group *g, const gdi_table *t, const gdi_plan *p, const layout *l, gdi_micro *made)
{
    for (int k = 0; k < g->n; k++) {
        g->place[k] = p->operand[k].place;
        g->single[k] = 1;
        for (int d = 0; d < l->ndim; d++)
            g->single[k] &= l->stride[k][d] == 0;
    }
    for (int i = 0; i < g->lines; i++) {
        made[i] = (gdi_micro){.fn = NULL};
        const int loop = gdi_find_loop(g, i, made + i);
        made[i].fn = loop >= 0 ? t->loop[g->dtype == GD_FLOAT64][loop] : NULL;
    }
    for (int i = 0; i < g->lines; i++)
        if (!g->gone[i])
            gdi_find_two(g, t, i, made + i);
    for (int i = 0; i < g->lines; i++)
        if (!g->gone[i])
            gdi_find_pair(g, t, i, made + i);
}

/* The operations of a verified group; returns their cost. *element_nbytes: the largest element of a register. */
static int64_t read_lines(gdi_plan *p, const gdi_table *t, const layout *l, const gd_view *const *view, const int64_t *line,
                          int lines, int64_t *element_nbytes)
{
    int dtype[GDI_FUSED_OPERANDS + GDI_FUSED_REGISTERS];
    gdi_micro made[GDI_FUSED_LINES];
    const int n = p->n_out + p->n_in;
    gdi_group g = {.line = line, .lines = lines, .n = n, .n_out = p->n_out};
    find_loops(&g, t, p, l, made);
    int64_t cost = 0;
    gdi_micro *m = p->micro;
    gdi_sink *s = p->sink;
    for (int k = 0; k < n; k++)
        dtype[k] = view[k]->dtype;
    for (int i = 0; i < lines; i++, line += GDI_FUSED_LINE) {
        const int op = (int)line[0], to = (int)line[2];
        int last = 0;                                    /* the last operand, whose dtype the kernel goes by */
        if (op == GD_OP_SUM) {
            *m++ = (gdi_micro){.to = (uint8_t)(s - p->sink), .from = {(uint8_t)line[3], (uint8_t)line[3], (uint8_t)line[3]}};
            *s++ = (gdi_sink){&t->fold[line[1] == GD_FLOAT64], to};
            continue;
        }
        *m = (gdi_micro){.fn = NULL};
        for (int k = 0; k < GDI_MAP_OPERANDS - 1; k++) {
            last = line[3 + k] >= 0 ? (int)line[3 + k] : last;
            m->from[k] = (uint8_t)last;
        }
        if (g.gone[i]) {
            cost += cost_of(op, gd_dtype_nbytes((int)line[1]));
            dtype[to] = (int)line[1];
            if (made[i].fn || made[i].two) {
                *m++ = made[i];
                note_register(p, made[i].to - n, gd_dtype_nbytes(dtype[to]), element_nbytes);
                if (made[i].two)
                    note_register(p, made[i].also - n, gd_dtype_nbytes(dtype[to]), element_nbytes);
            }
            continue;
        }
        m->to = (uint8_t)to;
        m->reads = (uint8_t)(op == GD_OP_CAST ? 1 : gdi_map_arity(op));
        if (m->reads == 2 && dtype[last] != GD_FLOAT16)
            take_lone(m, t->single[op][dtype[last]]);
        m++->fn = op == GD_OP_CAST ? t->cast[dtype[last]][line[1]] : gdi_map_lookup(t, op, dtype[last]);
        cost += op == GD_OP_CAST ? 1 : cost_of(op, gd_dtype_nbytes(dtype[last]));
        dtype[to] = (int)line[1];
        note_register(p, to - n, gd_dtype_nbytes(dtype[to]), element_nbytes);
    }
    p->n_micro = (int32_t)(m - p->micro);
    return cost;
}

/* With sums: one last axis that they lack, and no other. */
static int sums_fit(const layout *l, const int64_t *line, int lines)
{
    for (int i = 0; i < lines; i++, line += GDI_FUSED_LINE)
        for (int d = 0; line[0] == GD_OP_SUM && d < l->ndim; d++)
            if ((l->stride[line[2]][d] == 0) != (d == l->ndim - 1))
                return 0;
    return l->ndim > 0;
}

static void choose_ahead(gdi_plan *p, const layout *l, const int64_t *line, int lines)
{
    int64_t functions = 0, direct = 0;
    for (int i = 0; i < lines; i++, line += GDI_FUSED_LINE)
        functions += line[0] != GD_OP_SUM && line[0] != GD_OP_CAST && gdi_map_is_function((int)line[0]);
    for (int k = 0; k < p->n_out + p->n_in; k++) {
        const gdi_plan_operand *o = p->operand + k;
        if (o->size != p->operand[0].size)
            return;
        direct += o->feed == GDI_DIRECT && !o->stream;
    }
    const int64_t total = total_nbytes(l, p->n);
    const int dear = functions * AHEAD_FUNCTION_NBYTES * p->n >= total, many = any_stream(p) && p->n_out > 1 && p->n_micro >= AHEAD_MICRO;
    if (total >= AHEAD_NBYTES && (dear || many))
        p->ahead_lines = parts(direct * parts(p->block * p->operand[0].size, GDI_ALIGN), p->n_micro);
}

/* A group that is the sum of squares of floats, or of integers as float64, of contiguous rows. */
static void use_whole(gdi_plan *p, const gdi_table *t, int dtype, const int64_t *line)
{
    const int is_real = dtype == GD_FLOAT32 || dtype == GD_FLOAT64;
    const int64_t *sum = line + GDI_FUSED_LINE;
    if (p->n_sink != 1 || p->n_micro != 2 || p->n_in != 1 || sum[0] != GD_OP_SUM || sum[3] != line[2] || line[3] != 1
        || p->operand[1].feed != GDI_DIRECT || p->operand[1].cast)
        return;
    if ((is_real && line[0] == GD_OP_SQUARE) || (!is_real && line[0] == GD_OP_CAST && line[1] == GD_FLOAT64))
        p->whole = t->whole[dtype];
}

int gdi_fused_prepare(gd_program *program, const gd_program_spec *s, const gdi_table *t, const gd_instr *in, gdi_step *out)
{
    const gd_view *view[GDI_FUSED_OPERANDS];
    const int64_t *line = s->attr + in->attr;
    const int lines = in->n_attr / GDI_FUSED_LINE, whole = in->n_out + in->n_in - 1;
    layout l = {.ndim = 0};
    int64_t element_nbytes = 1;
    int sums = 0;
    for (int i = 0; i < lines; i++)
        sums += line[i * GDI_FUSED_LINE] == GD_OP_SUM;
    begin_layout(&l, s, in, view);
    const int64_t n = gdi_view_count(s, view[whole]);
    if (n == 0)
        return sums > 0 ? GD_BAD_PROGRAM : GD_OK;        /* nobody would write the sums */
    if (sums > 0)
        take_axes(&l, s, view, whole);
    else
        sort_axes(&l, s, view);
    merge_axes(&l);
    if (sums > 0 && !sums_fit(&l, line, lines))
        return GD_BAD_PROGRAM;
    gdi_plan *p = new_plan(program, &l, n, in->n_out, lines, sums);
    if (!p)
        return GD_NO_MEMORY;
    place_operands(p, &l, view, t);
    const int64_t cost = read_lines(p, t, &l, view, line, lines, &element_nbytes);
    finish_plan(program, p, &l, element_nbytes, cost, LONG_ROW, out);
    use_whole(p, t, view[1]->dtype, line);
    choose_ahead(p, &l, line, lines);
    const int64_t scratch = sums > 0 && p->pieces > 1 ? sums * p->items * (int64_t)sizeof(double) : 0;
    if (program->scratch_nbytes < scratch)
        program->scratch_nbytes = scratch;
    return GD_OK;
}
