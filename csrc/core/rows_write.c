/* rows_write.c: the lines of an instruction over rows (rows.h) as sections of calls, chains and moves. */
#include "rows_plan.h"
#include <string.h>

/* ---- sections ---- */
static void begin_section(gdi_rows_writer *w, int stats)
{
    gdi_rows *p = w->p;
    w->section = p->section + p->n_section++;
    *w->section = (gdi_section){.stats = stats, .micro = (int32_t)(w->micro - p->micro), .move = (int32_t)(w->move - p->move),
                                .sink = (int32_t)(w->sink - p->sink), .link = p->n_link};
    w->chain = NULL;
    memset(w->fill, 0, sizeof w->fill);
    memset(w->seen, 0, sizeof w->seen);
    w->n_fill = 0;
}

static void add_move(gdi_rows_writer *w, int what, int from, int to)
{
    *w->move++ = (gdi_row_move_of){(uint8_t)what, (uint8_t)from, (uint8_t)to, (uint8_t)gd_dtype_nbytes(w->dtype[from])};
    w->section->n_move++;
}

/* What a line reads as value `v`: itself, or (one value a row) the block that is filled with it. -1: too many. */
static int source(gdi_rows_writer *w, int v)
{
    const gdi_rows_draft *a = w->a;
    const gdi_row_operand *o = w->p->operand + v;
    if (w->section->stats)
        return v;
    if (v >= a->n ? v >= a->n + GDI_AT_STATS : o->cls == GDI_SMALL_VALUE || o->feed == GDI_ROW_VALUE) {
        if (!w->fill[v]) {
            if (w->n_fill == GDI_FILLS)
                return -1;
            w->fill[v] = (uint8_t)++w->n_fill;
            w->most_fills = w->n_fill > w->most_fills ? w->n_fill : w->most_fills;
            w->section->fills = 1;
            add_move(w, GDI_MOVE_FILL, v, a->n + GDI_AT_FILLS + w->fill[v] - 1);
        }
        return a->n + GDI_AT_FILLS + w->fill[v] - 1;
    }
    if (v < a->n && o->feed == GDI_ROW_TURNED && !w->turned[v]) {
        w->turned[v] = 1;                                /* later sections find it in its buffer */
        add_move(w, GDI_MOVE_TURN, v, v);
    }
    if (v < a->n && !w->seen[v] && (o->feed == GDI_ROW_DIRECT || o->feed == GDI_ROW_GATHER)) {
        w->seen[v] = 1;
        add_move(w, o->feed == GDI_ROW_DIRECT ? GDI_MOVE_POINT : GDI_MOVE_GATHER, v, v);
    }
    return v;
}

static void target(gdi_rows_writer *w, int v)
{
    const gdi_rows_draft *a = w->a;
    if (v >= a->n) {
        const int r = v - a->n;
        if (r < GDI_AT_KEPT)
            w->most_registers = r + 1 > w->most_registers ? r + 1 : w->most_registers;
        else if (r < GDI_AT_STATS)
            w->most_held = r - GDI_AT_KEPT + 1 > w->most_held ? r - GDI_AT_KEPT + 1 : w->most_held;
    } else if (a->cls[v] == GDI_WHOLE) {
        w->seen[v] = 1;
        add_move(w, w->p->operand[v].feed == GDI_ROW_DIRECT ? GDI_MOVE_POINT : GDI_MOVE_SCATTER, v, v);
    }
}

/* ---- chains ---- */
static const int64_t *line_of(const gdi_rows_writer *w, int i) { return w->a->line + (int64_t)i * GDI_FUSED_LINE; }

/* The link that does an elementwise op, -1: none; turned: with the operands exchanged. */
static int link_of(int64_t op, int turned)
{
    switch (op) {
    case GD_OP_ADD: return GDI_LINK_ADD;
    case GD_OP_SUBTRACT: return turned ? GDI_LINK_SUBTRACT_FROM : GDI_LINK_SUBTRACT;
    case GD_OP_MULTIPLY: return GDI_LINK_MULTIPLY;
    case GD_OP_ZMUL: return turned ? GDI_LINK_ZMUL_BY : GDI_LINK_ZMUL;
    case GD_OP_ZMUL_EITHER: return GDI_LINK_ZMUL_EITHER;
    case GD_OP_DIVIDE: return turned ? GDI_LINK_DIVIDE_BY : GDI_LINK_DIVIDE;
    case GD_OP_NEGATIVE: return GDI_LINK_NEGATIVE;
    case GD_OP_SQUARE: return GDI_LINK_SQUARE;
    case GD_OP_SUM: return GDI_LINK_SUM;
    default: return -1;
    }
}

static int is_link(const gdi_rows_writer *w, int i)
{
    return i < w->a->lines && line_of(w, i)[0] >= 0 && link_of(line_of(w, i)[0], 0) >= 0 && line_of(w, i)[1] == w->chain_dtype;
}

/* Is there one value a row, or only one? Then a link spreads it. */
static int is_single(const gdi_rows_writer *w, int v)
{
    const gdi_row_operand *o = w->p->operand + v;
    if (v >= w->a->n)
        return v >= w->a->n + GDI_AT_STATS;
    return o->cls == GDI_SMALL_VALUE || o->feed == GDI_ROW_VALUE || o->feed == GDI_ROW_CONSTANT;
}

static int add_link(gdi_rows_writer *w, int op, int v)
{
    const int64_t size = gd_dtype_nbytes((int)w->chain_dtype);
    const int reads = op <= GDI_LINK_DIVIDE_BY, single = reads && is_single(w, v);
    const int once = reads && !single && v < w->a->n && w->p->operand[v].feed == GDI_ROW_ONCE;
    if (!w->chain) {
        w->chain = w->micro++;
        *w->chain = (gdi_micro){.fn = NULL};
        w->section->n_micro++;
        w->chain_sums = 0;
    }
    const int kind = single || (op == GDI_LINK_SUM && w->chain_sums++) ? GDI_LINK_SINGLE : once ? GDI_LINK_ONCE : 0;
    if (w->chain->to == GDI_CHAIN)
        return -1;
    if (reads && !single)
        (void)source(w, v);                              /* no fill: it cannot fail */
    w->chain->to++;
    w->p->value[w->p->n_link] = (uint8_t)v;
    w->p->link[w->p->n_link++] = (gdi_link){.op = op + kind, .moves = single || op == GDI_LINK_SUM ? 0 : -1,
        .row_step = op == GDI_LINK_SUM ? GDI_FOLD_NBYTES : single ? size : once ? 0 : w->p->n * size};
    return 0;
}

/* Must the result of line i go to memory? Not when only the next one reads it, which finds it in registers. */
static int is_stored(const gdi_rows_writer *w, int i)
{
    const int64_t *line = line_of(w, i), value = line[2];
    if (value < w->a->n)
        return 1;
    if (!is_link(w, i + 1))
        return gdi_is_read(w->a->line, i + 1, w->a->lines, value);
    const int64_t *next = line_of(w, i + 1);
    const int twice = next[0] != GD_OP_SUM && next[3] == value && next[4] == value && next[0] != GD_OP_MULTIPLY;
    if (twice || (next[3] != value && (next[0] == GD_OP_SUM || next[4] != value)))
        return gdi_is_read(w->a->line, i + 1, w->a->lines, value);
    return next[2] != value && gdi_is_read(w->a->line, i + 2, w->a->lines, value);
}

/* Line i as links; w->held is the value in registers. */
static int chain_line(gdi_rows_writer *w, int i)
{
    const int64_t *line = line_of(w, i);
    const int x = (int)line[3], to = (int)line[2], sum = line[0] == GD_OP_SUM;
    int y = sum ? -1 : (int)line[4], status = 0;
    w->cost++;
    if (!w->chain)
        w->in_hand = -1;
    const int turned = y >= 0 && y == w->in_hand && x != w->in_hand;
    if (x != w->in_hand && !turned) {
        w->chain = NULL;                                 /* what it loads, a chain of its own loads as well */
        status |= add_link(w, GDI_LINK_LOAD, x);
    }
    if (sum && line[4] == 1) {
        w->in_hand = x;
        return status | add_link(w, GDI_LINK_COLUMN, to);
    }
    if (sum) {
        *w->sink++ = (gdi_row_sink){&w->t->fold[line[1] == GD_FLOAT64], (uint8_t)to, (uint8_t)gd_dtype_nbytes((int)line[1])};
        w->dtype[to] = (int)line[1];
        w->in_hand = x;
        return status | add_link(w, GDI_LINK_SUM, w->section->n_sink++);
    }
    const int square = line[0] == GD_OP_MULTIPLY && x == y;
    if (turned)
        y = x;
    status |= add_link(w, square ? GDI_LINK_SQUARE : link_of(line[0], turned), square || y < 0 ? 0 : y);
    w->in_hand = to;
    w->dtype[to] = (int)line[1];
    if (is_stored(w, i)) {
        target(w, to);
        status |= add_link(w, GDI_LINK_STORE, to);
    }
    return status;
}

/* ---- other lines ---- */
static int map_line(gdi_rows_writer *w, int i)
{
    const int64_t *line = line_of(w, i);
    gdi_micro *m = w->micro;
    int last = -1;
    w->chain = NULL;
    if (line[0] == GD_OP_SUM)
        return -1;                                       /* of another dtype than those before */
    for (int k = 0; k < GDI_MAP_OPERANDS - 1; k++) {
        last = line[3 + k] >= 0 ? (int)line[3 + k] : last;
        const int from = source(w, last);
        if (from < 0)
            return -1;
        m->from[k] = (uint8_t)from;
    }
    const int op = (int)line[0], dtype = w->dtype[last], result = (int)line[1];
    m->to = (uint8_t)line[2];
    m->fn = op == GD_OP_CAST ? w->t->cast[dtype][result] : gdi_map_lookup(w->t, op, dtype);
    w->cost += op == GD_OP_CAST ? 1 : gdi_map_cost(op) * (gd_dtype_nbytes(dtype) == 8 ? 2 : 1);
    w->dtype[line[2]] = result;
    w->micro++;
    w->section->n_micro++;
    target(w, m->to);
    return 0;
}

int gdi_rows_write(gdi_rows_writer *w)
{
    for (int i = 0; i < w->a->lines; i++) {
        const int64_t *line = line_of(w, i);
        if (line[0] == -1)
            begin_section(w, (int)(line[1] & 1));
        else if ((!w->section->stats && is_link(w, i) ? chain_line(w, i) : map_line(w, i)) != 0)
            return GD_BAD_PROGRAM;
    }
    return GD_OK;
}
