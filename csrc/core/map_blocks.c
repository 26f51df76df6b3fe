/* map_blocks.c: how the operands of a plan get their blocks, and how long these are. */
#include "map_plan.h"
#include "blocks.h"

/* Rows shorter than GDI_LONG_ROW are done where they lie if all that is done to one is a single call, and they are long enough for one.
 * Rows cut out of longer ones take half the time of gathering them. One value for a row is soon written, so that rows of less than
 * 128 bytes are done faster together. */
enum { DIRECT_STILL_NBYTES = 128 };
/* Rows of an outer product: shorter ones are as fast together, longer ones are worth a call each. */
enum { OUTER_LEAST_NBYTES = 32, OUTER_MOST_NBYTES = 2048 };
/* Blocks without buffers may be longer: 32 KiB of float32. */
enum { DIRECT_BLOCK = 8192, SINGLE_BLOCK = 32768 };

/* Blocks of the flat order: every operand is contiguous or repeats within a block, else it is gathered. */
static void feed_flat(gdi_plan *p, const gdi_layout *l)
{
    for (int k = 0; k < l->n; k++) {
        const int64_t length = gdi_layout_period(l, k, 0);
        p->operand[k].feed = gdi_layout_is_flat(l, k) ? GDI_DIRECT : length <= p->unit ? GDI_ONCE : GDI_GATHER;
        p->operand[k].period = length <= p->unit ? (int32_t)length : 0;
    }
}

/* Rows as long as this are worth a call of a kernel each. */
enum { SPAN_ROW_NBYTES = 256 };

/* Blocks of the last axes, of which an input is the same again and again, but another one beyond them (x[:, None] - y, of which the last
 * axis is a short one): brought together once for all blocks of a span, and not for each, or row by row. (Of 25 x 1000 x 10 float32: 93 -> 29 us.) */
static int feed_spans(gdi_plan *p, const gdi_layout *l)
{
    int64_t span = p->inner;
    int first = l->ndim - 1, again = 0;
    while (!again && --first > 0) {
        span *= l->shape[first];
        for (int k = p->n_out; k < l->n; k++)
            again |= l->stride[k][first] == 0 && l->shape[first] > 1 && p->operand[k].feed == GDI_GATHER && gdi_layout_period(l, k, first) <= p->unit;
    }
    if (!again || p->inner * l->size[0] >= SPAN_ROW_NBYTES || 2 * span < p->unit)
        return 0;
    for (int k = p->n_out; k < l->n; k++) {
        gdi_plan_operand *o = p->operand + k;
        const int64_t length = gdi_layout_period(l, k, first);
        if (o->feed == GDI_DIRECT)
            continue;
        o->feed = length == 1 ? GDI_FILL : length <= p->unit && length < span ? GDI_AGAIN : GDI_GATHER;
        o->period = o->feed == GDI_AGAIN ? (int32_t)length : 0;
    }
    p->span = span;
    return 1;
}

/* Do neighbours along the last axis lie further apart than those along the one before? */
static int is_turned(const gdi_layout *l, int k)
{
    const int d = l->ndim - 1;
    const int64_t inner = l->stride[k][d], outer = d > 0 ? l->stride[k][d - 1] : 0;
    return outer != 0 && (outer < 0 ? -outer : outer) < (inner < 0 ? -inner : inner);
}

static void feed_rows(gdi_plan *p, const gdi_layout *l)
{
    for (int k = 0; k < l->n; k++) {
        const int64_t inner = l->stride[k][l->ndim - 1];
        p->operand[k].feed = inner == l->size[k] ? GDI_DIRECT : inner == 0 ? GDI_FILL : k >= p->n_out && is_turned(l, k) ? GDI_TURN : GDI_GATHER;
    }
}

/* The operands of a micro that are in `lone` (bits by number) and that it would read a block of, as bits of its `from`. */
static unsigned lone_operands(const gdi_micro *m, uint64_t lone)
{
    unsigned bits = 0;
    for (int k = 0; k < GDI_LOOP_VALUES; k++)
        if (k < m->reads || m->reads == 0)
            bits |= (unsigned)(lone >> m->from[k] & 1) << k;
    return bits & ~(unsigned)m->singles;
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
 * element of both, or one of the two backwards, or both. A result that is not is written where it lies: what is added to every other element
 * is neither gathered nor scattered. Roots one by one take three times as long as those of a register, and what is done to one float32 apart as
 * long as to gather four at once: these are read so only where shuffles do it. */
enum { STEPPED_4_FROM = 4, STEPPED_8_FROM = 2 };
static void feed_stepped(gdi_plan *p)
{
    const gdi_plan_operand *to = p->operand;
    const int apart_to = to->feed == GDI_GATHER;
    int spread = apart_to, halves = 1, back = 0, near = 1;
    int fit = p->stepped && (to->feed == GDI_DIRECT || (apart_to && !p->shuffled)) && !to->stream && !to->cast;
    for (int k = 1; k < p->n_out + p->n_in; k++) {
        const gdi_plan_operand *o = p->operand + k;
        const int64_t stride = o->stride[p->ndim - 1] / o->size, apart = stride < 0 ? -stride : stride;
        fit &= o->feed != GDI_TURN && !o->cast;
        spread |= !p->shuffled && o->feed == GDI_GATHER && apart >= (o->size == 8 ? STEPPED_8_FROM : STEPPED_4_FROM);
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
    p->step[2] = to->stride[p->ndim - 1] / to->size;
    for (int k = 0; k < p->n_out + p->n_in; k++)
        p->operand[k].feed = k == 0 && !apart_to ? GDI_DIRECT : GDI_STEPPED;
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

/* A whole number of the longest period: then operands that repeat are the same in all blocks. Periods are products of
 * trailing sizes, so the longest is a multiple of the others. */
static int64_t flat_block(const gdi_plan *p)
{
    int64_t longest = 1;
    for (int k = 0; k < p->n_out + p->n_in; k++)
        if ((p->operand[k].feed == GDI_ONCE || p->operand[k].feed == GDI_AGAIN) && p->operand[k].period > longest)
            longest = p->operand[k].period;
    return p->unit / longest * longest;
}

/* Elements of a block: a cheap operation costs less than the steps around a short one, but all that is read and written should
 * stay in L1, so the more registers, the shorter (two results of one operation each: as long as one). Beyond a core's own caches, too: an operation that waits for the lines of its block
 * leaves nothing to do meanwhile but what of the next operation there is room for (10^6 float32, value and gradient: gelu 1080 -> 880 us,
 * softplus 770 -> 590, exp(-x x) 1210 -> 870; of 3 x 10^5 it costs up to a tenth). What goes past the caches is best in short ones. */
enum { FAR_NBYTES = 8 << 20 };

/* Are elements of 8 bytes that lie apart, every other one or fewer, gathered from far away for an operation that reads another operand as well?
 * Blocks are so short then that a core looks past one: memory brings the next while the operation is done. (x == y[:, ::2] of 2500 x 4000
 * int64: 11.7 -> 7.9 ms. Of 4 bytes, of neighbours in the other order and of a single operand it takes up to twice as long, of 250 x 400 a fifth
 * longer.) */
static int gathers_far(const gdi_plan *p, const gdi_layout *l)
{
    const int d = l->ndim - 1;
    int apart = 0, fit = p->n_micro == 1 && p->n_in >= 2 && p->inner >= GDI_LONG_ROW && gdi_layout_nbytes(l, p->n) >= FAR_NBYTES;
    for (int k = p->n_out; k < l->n; k++) {
        const int64_t stride = l->stride[k][d] < 0 ? -l->stride[k][d] : l->stride[k][d];
        fit &= l->size[k] == 8 && !is_turned(l, k);
        apart |= stride >= 2 * l->size[k];
    }
    return fit && apart;
}

static void choose_unit(gdi_plan *p, const gdi_layout *l, int64_t element_nbytes)
{
    const int stream = gdi_plan_streams(p), far = gdi_layout_nbytes(l, p->n) >= FAR_NBYTES;
    const int lean = stream || (p->n_sink == 0 && gathers_far(p, l));
    const int64_t nbytes = lean ? 2048 : p->n_micro == 1 || (p->n_micro == 2 && p->n_register == 0 && !far) ? 8192 : p->n_register <= 2 && !far ? 4096 : 2048;
    int64_t widest = element_nbytes;
    for (int k = 0; k < l->n; k++) {
        const int64_t size = p->operand[k].cast ? 4 : l->size[k];
        widest = size > widest ? size : widest;
    }
    p->unit = lean ? nbytes / widest : p->n_sink > 0 || nbytes / widest < GDI_BLOCK ? GDI_BLOCK : nbytes / widest;
}

/* Is an operation of at most two operands done to a row as it lies? They stand still along it only where a loop takes one value. */
static int is_direct_by_rows(const gdi_plan *p, const gdi_layout *l)
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

/* Is an operation that takes steps done to a row as it lies, since its result lies apart? Short rows take longer by themselves. */
enum { STEPPED_ROW = 16 };
static int is_stepped_by_rows(const gdi_plan *p, const gdi_layout *l)
{
    const int d = l->ndim - 1;
    if (!p->stepped || p->shuffled || p->inner < STEPPED_ROW || l->stride[0][d] == l->size[0])
        return 0;
    for (int k = 0; k < l->n; k++)
        if (p->operand[k].cast || p->operand[k].stream || (k > 0 && l->stride[k][d] != 0 && is_turned(l, k)))
            return 0;
    return 1;
}

/* Products of one value a row with a row that is the same for all rows: every row is short, or nearly all its time its own. */
static int is_outer(gdi_plan *p, const gdi_layout *l, const gdi_outer_fn *outer)
{
    const int d = l->ndim - 1;
    if (!outer || d < 1 || p->n_out != 1 || p->n_in != 2 || p->operand[0].stream || l->stride[0][d] != l->size[0]
        || p->inner * l->size[0] < OUTER_LEAST_NBYTES || p->inner * l->size[0] > OUTER_MOST_NBYTES)
        return 0;
    for (int k = 1; k <= 2; k++)
        if (l->stride[k][d] == 0 && l->stride[3 - k][d] == l->size[0] && l->stride[3 - k][d - 1] == 0) {
            p->outer = outer[k - 1];
            p->column = k;
            return 1;
        }
    return 0;
}

/* An input of one cheap operation that is gathered: into the output's place, where the operation then is done. Gathered elsewhere, memory
 * would be waited for twice. (abs of x[:, ::2] of 1024 x 1024 float64: 400 us elsewhere, 270 so.) */
static int gathered_in_place(const gdi_plan *p)
{
    const gdi_plan_operand *to = p->operand;
    int found = 0;
    if (p->n_out != 1 || p->n_micro != 1 || !p->micro->fn || p->micro->to != 0 || p->stepped || to->feed != GDI_DIRECT || to->cast
        || to->stream || gdi_plan_is_updated(p, 0))
        return 0;
    for (int k = 1; k <= p->n_in; k++) {
        const gdi_plan_operand *o = p->operand + k;
        if (o->feed == GDI_GATHER && (found || o->cast || o->size != to->size))
            return 0;
        found = o->feed == GDI_GATHER ? k : found;
    }
    return found;
}

/* direct_row: the shortest row that is worth a call where that is all. */
static void choose_blocks(gdi_plan *p, const gdi_layout *l, int64_t direct_row, const gdi_outer_fn *outer)
{
    p->height = 1;
    feed_flat(p, l);
    const int by_outer = is_outer(p, l, outer);
    const int short_row = !by_outer && (p->inner < direct_row || (p->inner < GDI_LONG_ROW && !is_direct_by_rows(p, l) && !is_stepped_by_rows(p, l)));
    if (!by_outer && (feed_spans(p, l) || short_row || !any_fed(p, 0, GDI_GATHER))) {
        feed_singles(p);
        p->block = any_fed(p, p->n_out, GDI_SINGLE) && !any_buffer(p) && p->n_micro == 1 ? SINGLE_BLOCK : flat_block(p);
        p->pieces = p->span ? parts(p->span, p->block) : 0;
        p->items = p->span ? p->n / p->span * p->pieces : parts(p->n, p->block);
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
    p->outer = lies ? p->outer : NULL;
    p->through = tiled ? 0 : gathered_in_place(p);
    p->direct = lies && p->n_out == 1 && p->n_in < GDI_MAP_OPERANDS && p->n_micro == 1 && p->micro->fn && p->micro->to == 0;
}

/* Every row is cut into items of GDI_FOLD_BLOCK elements, and those into blocks. */
static void choose_sums(gdi_plan *p, const gdi_layout *l)
{
    p->by_row = p->height = 1;
    feed_rows(p, l);
    for (int k = 0; k < p->n_sink; k++)
        p->operand[p->sink[k].to].feed = GDI_SUM;
    for (int k = p->n_out; k < l->n; k++)
        if (p->operand[k].rows > 0)
            p->operand[k].feed = GDI_FLOW;
    p->block = GDI_BLOCK;
    p->stretch = GDI_FOLD_BLOCK;
    p->pieces = parts(p->inner, p->stretch);
    p->items = p->n / p->inner * p->pieces;
}

/* Of an operand that is turned, an item has parts of columns, for which whole cache lines are read: `COLUMNS` of them at once, where
 * that is not too long for threads to share. */
static void choose_grain(gdi_plan *p, int64_t cost)
{
    enum { COLUMNS = 64, MOST = 512 };
    int64_t lines = 1;
    for (int k = 0; k < p->n_out + p->n_in; k++) {
        const gdi_plan_operand *o = p->operand + k;
        cost += o->feed == GDI_GATHER || o->feed == GDI_TURN || o->feed == GDI_FLOW ? 4 : o->cast ? 1 : 0;
        if (o->feed == GDI_FLOW && lines < COLUMNS * o->rows / p->stretch)
            lines = least(COLUMNS * o->rows / p->stretch, MOST);
    }
    int64_t length = p->by_row && p->inner < p->stretch ? p->inner : p->stretch;
    p->grain = GDI_GRAIN_QUARTER_NS / (p->height * ((cost + p->n_sink) * length + 4 * GDI_CALL_NS * (p->n_micro + 1)));
    if (p->grain < lines)
        p->grain = lines;
}

/* Private memory: buffers for the operands that need one, then the registers. A cache line more than a register's
 * elements keeps registers out of each other's cache sets. */
static void place_buffers(gd_program *program, gdi_plan *p, int64_t element_nbytes)
{
    int buffers = 0;
    p->raw_nbytes = GDI_MAP_RAW_NBYTES;
    for (int k = 0; k < p->n_out + p->n_in; k++) {
        gdi_plan_operand *o = p->operand + k;
        o->buffer = (int8_t)(has_buffer(o) ? buffers++ : -1);
        const int64_t flow = o->rows * (o->rows <= GDI_FLOW_PAIRS ? 2 : 1) * GDI_ALIGN + GDI_FOLD_BLOCK * o->size;
        p->raw_nbytes = o->feed == GDI_FLOW && p->raw_nbytes < flow ? flow : p->raw_nbytes;
    }
    p->buffers_nbytes = buffers * (p->raw_nbytes + GDI_MAP_WIDE_NBYTES);
    p->register_nbytes = p->unit * element_nbytes + GDI_ALIGN;
    p->local_nbytes = p->buffers_nbytes + p->n_register * p->register_nbytes;
    if (program->local_nbytes < p->local_nbytes)
        program->local_nbytes = p->local_nbytes;
}

void gdi_plan_finish(gd_program *program, gdi_plan *p, const gdi_layout *l, int64_t element_nbytes, int64_t cost,
                     int64_t functions, int64_t direct_row, const gdi_outer_fn *outer, gdi_step *out)
{
    out->kind = GDI_BLOCKS;
    out->u.plan = p;
    gdi_plan_past(p, l, functions);
    choose_unit(p, l, element_nbytes);
    if (p->n_sink > 0) {
        choose_sums(p, l);
    } else {
        choose_blocks(p, l, direct_row, outer);
        p->stretch = p->block;
    }
    gdi_plan_ahead(p, l, functions);
    p->past = gdi_plan_piece(p, cost);
    choose_grain(p, cost);
    place_buffers(program, p, element_nbytes);
    program->parallel |= p->items > p->grain;
}
