/* fused_plan.c: the plan of a fused group: which loops its lines become. */
#include "map_plan.h"
#include "blocks.h"

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
static void find_loops(gdi_group *g, const gdi_table *t, const gdi_plan *p, const gdi_layout *l, const gd_view *const *view,
                       gdi_micro *made)
{
    for (int k = 0; k < g->n; k++) {
        g->place[k] = p->operand[k].place;
        g->dtype_of[k] = view[k]->dtype;
        g->single[k] = 1;
        for (int d = 0; d < l->ndim; d++)
            g->single[k] &= l->stride[k][d] == 0;
    }
    for (int i = 0; i < g->lines; i++) {
        made[i] = (gdi_micro){.fn = NULL};
        const int loop = gdi_find_loop(g, i, made + i);
        made[i].fn = loop >= 0 ? t->loop[g->dtype == GD_FLOAT64][loop] : NULL;
        if (loop == GDI_LOOP_GATE)
            gdi_find_relu(g, t, i, made + i);
    }
    for (int i = 0; i < g->lines; i++)
        if (!g->gone[i])
            gdi_find_two(g, t, i, made + i);
    for (int i = 0; i < g->lines; i++)
        if (!g->gone[i] && !gdi_find_choice(g, t, i, made + i))
            gdi_find_pair(g, t, i, made + i);
}

/* The operations of a verified group; returns their cost. *element_nbytes: the largest element of a register. */
static int64_t read_lines(gdi_plan *p, const gdi_table *t, const gdi_layout *l, const gd_view *const *view, const int64_t *line,
                          int lines, int64_t *element_nbytes)
{
    int dtype[GDI_FUSED_OPERANDS + GDI_FUSED_REGISTERS];
    gdi_micro made[GDI_FUSED_LINES];
    const int n = p->n_out + p->n_in;
    gdi_group g = {.line = line, .lines = lines, .n = n, .n_out = p->n_out};
    find_loops(&g, t, p, l, view, made);
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
            cost += op == GD_OP_CAST ? 1 : gdi_map_cost_of(op, gd_dtype_nbytes((int)line[1]));
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
            gdi_take_lone(m, t->single[op][dtype[last]]);
        m++->fn = op == GD_OP_CAST ? t->cast[dtype[last]][line[1]] : gdi_map_lookup(t, op, dtype[last]);
        cost += op == GD_OP_CAST ? 1 : gdi_map_cost_of(op, gd_dtype_nbytes(dtype[last]));
        dtype[to] = (int)line[1];
        note_register(p, to - n, gd_dtype_nbytes(dtype[to]), element_nbytes);
    }
    p->n_micro = (int32_t)(m - p->micro);
    return cost;
}

/* Do all sums lack all axes? */
static int sums_all(const gdi_layout *l, const int64_t *line, int lines)
{
    for (int i = 0; i < lines; i++, line += GDI_FUSED_LINE)
        for (int d = 0; line[0] == GD_OP_SUM && d < l->ndim; d++)
            if (l->stride[line[2]][d] != 0)
                return 0;
    return 1;
}

/* With sums: one last axis that they lack, and no other. */
static int sums_fit(const gdi_layout *l, const int64_t *line, int lines)
{
    for (int i = 0; i < lines; i++, line += GDI_FUSED_LINE)
        for (int d = 0; line[0] == GD_OP_SUM && d < l->ndim; d++)
            if ((l->stride[line[2]][d] == 0) != (d == l->ndim - 1))
                return 0;
    return l->ndim > 0;
}

static int64_t count_functions(const int64_t *line, int lines)
{
    int64_t functions = 0;
    for (int i = 0; i < lines; i++, line += GDI_FUSED_LINE)
        functions += line[0] != GD_OP_SUM && line[0] != GD_OP_CAST && gdi_map_is_function((int)line[0]);
    return functions;
}

/* A group that is one sum, of integers as float64 or of floats less a number (one for a row), squared or not, or of squares, of contiguous
 * rows; or the same of floats of a turned operand. */
static void use_whole(gdi_plan *p, const gdi_table *t, int dtype, const int64_t *line, int lines)
{
    const int real = dtype == GD_FLOAT32 || dtype == GD_FLOAT64, wide = dtype == GD_FLOAT64;
    if (lines < 2)
        return;
    const int64_t *sum = line + (int64_t)(lines - 1) * GDI_FUSED_LINE, *squared = sum - GDI_FUSED_LINE;
    const gdi_plan_operand *o = p->operand + 1;
    const int less = real && line[0] == GD_OP_SUBTRACT && p->n_in == 2 && line[4] == 2 && o[1].stride[p->ndim - 1] == 0 && !o[1].cast;
    const int square = real && squared[0] == GD_OP_SQUARE, cast = !real && line[0] == GD_OP_CAST && line[1] == GD_FLOAT64;
    if (p->n_sink != 1 || p->n_in != 1 + less || lines != 1 + (less + square + cast) || sum[0] != GD_OP_SUM || line[3] != 1 || o->cast)
        return;
    for (int i = 1; i < lines; i++)
        if (line[i * GDI_FUSED_LINE + 3] != line[(i - 1) * GDI_FUSED_LINE + 2])
            return;
    if (o->feed == GDI_FLOW && real)
        p->turned = t->turned[wide][square];
    if (o->feed == GDI_DIRECT)
        p->whole = less ? t->whole_less[wide][square] : t->whole[dtype];
    p->less = less ? 2 : 0;
}

int gdi_fused_prepare(gd_program *program, const gd_program_spec *s, const gdi_table *t, const gd_instr *in, gdi_step *out)
{
    const gd_view *view[GDI_FUSED_OPERANDS];
    const int64_t *line = s->attr + in->attr;
    const int lines = in->n_attr / GDI_FUSED_LINE, whole = in->n_out + in->n_in - 1;
    gdi_layout l = {.ndim = 0};
    int64_t element_nbytes = 1;
    int sums = 0;
    for (int i = 0; i < lines; i++)
        sums += line[i * GDI_FUSED_LINE] == GD_OP_SUM;
    gdi_layout_begin(&l, s, in, view);
    const int64_t n = gdi_view_count(s, view[whole]);
    if (n == 0)
        return sums > 0 ? GD_BAD_PROGRAM : GD_OK;        /* nobody would write the sums */
    if (sums > 0)
        gdi_layout_take(&l, s, view, whole);
    else
        gdi_layout_sort(&l, s, view);
    if (sums > 0 && sums_all(&l, line, lines))
        gdi_layout_flow(&l, in->n_out);
    gdi_layout_merge(&l);
    if (sums > 0 && !sums_fit(&l, line, lines))
        return GD_BAD_PROGRAM;
    gdi_plan *p = gdi_plan_new(program, &l, n, in->n_out, lines, sums);
    if (!p)
        return GD_NO_MEMORY;
    gdi_plan_place(p, &l, view, t);
    const int64_t cost = read_lines(p, t, &l, view, line, lines, &element_nbytes);
    gdi_plan_finish(program, p, &l, element_nbytes, cost, count_functions(line, lines), GDI_LONG_ROW, NULL, out);
    use_whole(p, t, view[1]->dtype, line, lines);
    if (p->turned && program->local_nbytes < GDI_LOCAL_NBYTES)
        program->local_nbytes = GDI_LOCAL_NBYTES;
    const int64_t scratch = sums > 0 && p->pieces > 1 ? sums * p->items * (int64_t)sizeof(double) : 0;
    if (program->scratch_nbytes < scratch)
        program->scratch_nbytes = scratch;
    return GD_OK;
}
