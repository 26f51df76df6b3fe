/* map_plan.c: how an elementwise instruction walks its operands, decided once. If one contiguous run is left of its axes
 * (layout.c) the step is flat; else it gets a plan of blocks (map_blocks.c). */
#include "map_plan.h"
#include "blocks.h"
#include "stream.h"

/* Rows are done where they lie (map_blocks.c) if they have so many bytes, or elements for functions, whose own beginnings and ends take longer. */
enum { DIRECT_ROW_NBYTES = 32, DIRECT_FUNCTION_ROW = 64 };
/* GDI_SMALL's limit: 20 us of the dearest op at its estimated cost. */
enum { SMALL_N = 2048 };

/* ---- flat steps ---- */
static int fits_flat(const gdi_layout *l, const gd_view *const *view, int64_t n)
{
    if (n > UINT32_MAX || gdi_layout_nbytes(l, n) >= GDI_STREAM_NBYTES)
        return 0;
    for (int k = 0; k < l->n; k++)
        if (!gdi_layout_is_flat(l, k) || (view[k]->dtype == GD_FLOAT16 && !l->half) || view[k]->base > UINT16_MAX
            || l->offset[k] >> GDI_REF_SHIFT != 0)
            return 0;
    return 1;
}

static void make_flat(const gdi_layout *l, const gd_view *const *view, int64_t n, int64_t cost, gdi_map_fn fn, gdi_step *out)
{
    static const uint8_t log2_of[9] = {[1] = 0, [2] = 1, [4] = 2, [8] = 3};
    out->kind = n <= SMALL_N ? GDI_SMALL : GDI_FLAT;
    out->n = (uint32_t)n;
    out->cost = (uint16_t)(n <= SMALL_N ? GDI_CALL_NS + n * cost / 4 : cost);
    out->u.flat.fn = fn;
    for (int k = 0; k < l->n; k++) {
        out->u.flat.ref[k] = (uint64_t)view[k]->base << GDI_REF_SHIFT | (uint64_t)l->offset[k];
        out->log2_sizes |= (uint8_t)(log2_of[l->size[k]] << (2 * k));
    }
}

static void keep_layout(gdi_plan *p, const gdi_layout *l, int64_t *to)
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

gdi_plan *gdi_plan_new(gd_program *program, gdi_layout *l, int64_t n, int n_out, int n_micro, int n_sink)
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

void gdi_plan_place(gdi_plan *p, const gdi_layout *l, const gd_view *const *view, const gdi_table *t)
{
    p->stream = t->stream;
    for (int k = 0; k < l->n; k++) {
        p->operand[k].place = (gdi_place){l->offset[k], view[k]->base};
        p->operand[k].size = (int16_t)l->size[k];
        p->operand[k].rows = l->rows[k];
        p->operand[k].down = l->down[k];
        p->operand[k].move = t->move[l->size[k]];
        if (view[k]->dtype == GD_FLOAT16 && !l->half)
            p->operand[k].cast = k < p->n_out ? t->cast[GD_FLOAT32][GD_FLOAT16] : t->cast[GD_FLOAT16][GD_FLOAT32];
    }
}

void gdi_take_lone(gdi_micro *m, const gdi_map_fn *single)
{
    for (int k = 0; k < 2; k++) {
        m->lone[k] = single[k];
        m->lone_from[k] = (uint8_t)(1u << k);
    }
}

/* The loops for an operation: of contiguous operands; where operand 0, 1 is one element; where operands are spread; and the
 * shortest row that is worth a call of them; those of an outer product or NULL; is it gdi_map_is_function; is it a root or a reciprocal? */
typedef struct loops {
    gdi_map_fn fn;
    const gdi_map_fn *single;
    gdi_stepped_fn stepped;
    int64_t direct_row;
    const gdi_outer_fn *outer;
    int function, root;
} loops;

static int make_plan(gd_program *program, gdi_layout *l, const gd_view *const *view, int64_t n, int64_t cost, const loops *of,
                     const gdi_table *t, gdi_step *out)
{
    gdi_plan *p = gdi_plan_new(program, l, n, 1, 1, 0);
    if (!p)
        return GD_NO_MEMORY;
    p->micro[0] = (gdi_micro){.fn = of->fn, .from = {1, p->n_in > 1 ? 2 : 1, p->n_in > 2 ? 3 : 1}, .reads = (uint8_t)p->n_in};
    if (p->n_in == 2)
        gdi_take_lone(p->micro, of->single);
    gdi_plan_place(p, l, view, t);
    p->stepped = of->stepped;
    p->shuffled = p->n_in == 1 && (l->size[1] < 8 || of->root);
    gdi_plan_finish(program, p, l, 0, cost, of->function, of->direct_row, of->outer, out);
    return GD_OK;
}

int64_t gdi_map_cost_of(int op, int64_t size) { return gdi_map_cost(op) * (size == 8 ? 2 : 1); }

int gdi_map_prepare(gd_program *p, const gd_program_spec *s, const gdi_table *t, const gd_instr *in, gdi_step *out)
{
    const gd_view *view[GDI_MAP_OPERANDS];
    gdi_layout l = {.ndim = 0};
    gdi_layout_begin(&l, s, in, view);
    const int64_t n = gdi_view_count(s, view[0]);
    if (n == 0)
        return GD_OK;                                    /* the step stays GDI_NOTHING */
    gdi_layout_sort(&l, s, view);
    gdi_layout_merge(&l);
    const int dtype = view[in->n_in]->dtype;
    const int64_t cost = gdi_map_cost_of(in->op, l.size[in->n_in]);
    const int far = gdi_layout_nbytes(&l, n) >= GDI_FAR_NBYTES, bytes = l.size[in->n_in] == 1;
    gdi_map_fn fn = gdi_map_lookup(far ? gdi_map_far(t, in->op, in->n_in > 1 || bytes) : t, in->op, dtype);
    if (dtype == GD_FLOAT16 && t->half[in->op]) {
        l.half = 1;
        fn = t->half[in->op];
    }
    const int64_t narrow = l.size[0] < l.size[in->n_in] ? l.size[0] : l.size[in->n_in];
    const int function = gdi_map_is_function(in->op);
    const int64_t row = function ? DIRECT_FUNCTION_ROW : DIRECT_ROW_NBYTES / narrow;
    const gdi_outer_fn *outer = in->op != GD_OP_MULTIPLY ? NULL : dtype == GD_FLOAT32 ? t->outer[0] : dtype == GD_FLOAT64 ? t->outer[1] : NULL;
    if (!fits_flat(&l, view, n))
        return make_plan(p, &l, view, n, cost, &(loops){fn, (far ? gdi_map_far(t, in->op, bytes) : t)->single[in->op][dtype],
                                                        t->stepped[in->op][dtype], row, outer, function,
                                                        in->op == GD_OP_SQRT || in->op == GD_OP_RECIPROCAL}, t, out);
    make_flat(&l, view, n, cost, fn, out);
    p->parallel |= n * cost > GDI_GRAIN_QUARTER_NS;
    return GD_OK;
}
