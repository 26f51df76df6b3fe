/* check.c: the verifier, the only door to gd_run. It assumes nothing about the tables but that they are as long as
 * they say; after it, no instruction can reach outside its bases except through an index that a kernel checks. */
#include "rows.h"

static int refuse(gd_fault *f, int what, int64_t value)
{
    f->what = what;
    f->value = value;
    return GD_BAD_PROGRAM;
}

static const int64_t *view_shape(const gd_program_spec *s, const gd_view *v) { return s->dim + v->dims; }
static const int64_t *view_stride(const gd_program_spec *s, const gd_view *v) { return s->dim + v->dims + v->ndim; }

int64_t gdi_view_count(const gd_program_spec *s, const gd_view *v)
{
    int64_t n = 1;
    for (int d = 0; d < v->ndim; d++)
        n *= view_shape(s, v)[d];
    return n;
}

/* ---- tables ---- */
static int table_ok(const void *table, int64_t n) { return n == 0 || (n > 0 && table); }

static int check_tables(const gd_program_spec *s, gd_fault *f)
{
    if (!table_ok(s->instr, s->n_instr) || !table_ok(s->view, s->n_view) || !table_ok(s->arg, s->n_arg)
        || !table_ok(s->dim, s->n_dim) || !table_ok(s->attr, s->n_attr)
        || !table_ok(s->constants, s->constants_nbytes))
        return refuse(f, GDI_REASON_TABLES, -1);
    if (s->n_base < GD_BASE_FIRST || !s->base_nbytes || !s->base_access)
        return refuse(f, GDI_REASON_BASES, -1);
    for (int b = 0; b < s->n_base; b++)
        if (s->base_nbytes[b] < 0 || (s->base_access[b] != GD_READ && s->base_access[b] != GD_WRITE))
            return refuse(f, GDI_REASON_BASES, b);
    if (s->base_nbytes[GD_BASE_CONST] != s->constants_nbytes)
        return refuse(f, GDI_REASON_CONSTANTS, s->base_nbytes[GD_BASE_CONST]);
    if (s->commit < 0 || s->commit > s->n_instr)
        return refuse(f, GDI_REASON_COMMIT, s->commit);
    return GD_OK;
}

/* ---- views ---- */
/* Bytes [*lo, *hi) that a view reaches in its base; equal when it has no elements. Returns nonzero on overflow.
 * Sizes are counted without zeros and strides of short axes too: kernels multiply any of them. */
static int view_extent(const gd_program_spec *s, const gd_view *v, int64_t *lo, int64_t *hi, int *what)
{
    const int64_t *shape = view_shape(s, v), *stride = view_stride(s, v), size = gd_dtype_nbytes(v->dtype);
    int64_t count = 8, first = v->offset, last = v->offset, empty = 0;
    for (int d = 0; d < v->ndim; d++) {
        int64_t n = shape[d], step, span, sum;
        *what = GDI_REASON_VIEW_SIZE;
        if (n < 0 || (n > 0 && gdi_mul(count, n, &count)))
            return 1;
        empty |= n == 0;
        *what = GDI_REASON_VIEW_STRIDE;
        if (stride[d] == INT64_MIN || gdi_mul(stride[d], size, &step) || gdi_mul(step, n > 0 ? n : 1, &sum)
            || gdi_mul(step, n > 0 ? n - 1 : 0, &span))
            return 1;
        *what = GDI_REASON_VIEW_BOUNDS;
        if (gdi_add(span < 0 ? first : last, span, span < 0 ? &first : &last))
            return 1;
    }
    *what = GDI_REASON_VIEW_BOUNDS;
    *lo = empty ? v->offset : first;
    *hi = v->offset;
    return empty ? 0 : gdi_add(last, size, hi);
}

static int check_view(const gd_program_spec *s, const gd_view *v, gd_fault *f, int64_t number)
{
    int64_t lo, hi;
    int what;
    if (v->base < 0 || v->base >= s->n_base)
        return refuse(f, GDI_REASON_VIEW_BASE, number);
    if (v->dtype < 0 || v->dtype >= GD_DTYPE_COUNT)
        return refuse(f, GDI_REASON_VIEW_DTYPE, number);
    if (v->ndim < 0 || v->ndim > GDI_MAX_NDIM)
        return refuse(f, GDI_REASON_VIEW_NDIM, number);
    if (v->dims < 0 || v->dims > s->n_dim - 2 * (int64_t)v->ndim)
        return refuse(f, GDI_REASON_VIEW_DIMS, number);
    if (v->offset % gd_dtype_nbytes(v->dtype) != 0)
        return refuse(f, GDI_REASON_VIEW_OFFSET, number);
    if (view_extent(s, v, &lo, &hi, &what))
        return refuse(f, what, number);
    if (lo < 0 || hi > s->base_nbytes[v->base])
        return refuse(f, GDI_REASON_VIEW_BOUNDS, number);
    return GD_OK;
}

/* ---- outputs ---- */
static int64_t magnitude(int64_t x) { return x < 0 ? -x : x; }

/* Do two indices share an element? No, when every stride steps over everything the smaller ones reach. Slices,
 * transposes and diagonals of an array pass; an odd layout that happens to be free of overlaps is refused too. */
static int overlaps_itself(const gd_program_spec *s, const gd_view *v)
{
    const int64_t *shape = view_shape(s, v), *stride = view_stride(s, v);
    int order[GDI_MAX_NDIM], n = 0;
    for (int d = 0; d < v->ndim; d++) {
        if (shape[d] == 0)
            return 0;
        if (shape[d] == 1)
            continue;
        int at = n++;
        for (; at > 0 && magnitude(stride[order[at - 1]]) > magnitude(stride[d]); at--)
            order[at] = order[at - 1];
        order[at] = d;
    }
    int64_t reach = 0;
    for (int i = 0; i < n; i++) {
        int64_t step = magnitude(stride[order[i]]);
        if (step <= reach)
            return 1;
        reach += step * (shape[order[i]] - 1);
    }
    return 0;
}

static int same_shape(const gd_program_spec *s, const gd_view *a, const gd_view *b)
{
    if (a->ndim != b->ndim)
        return 0;
    for (int d = 0; d < a->ndim; d++)
        if (view_shape(s, a)[d] != view_shape(s, b)[d])
            return 0;
    return 1;
}

/* Do equal indices mean the same bytes? */
static int same_layout(const gd_program_spec *s, const gd_view *a, const gd_view *b)
{
    if (a->offset != b->offset || gd_dtype_nbytes(a->dtype) != gd_dtype_nbytes(b->dtype) || !same_shape(s, a, b))
        return 0;
    for (int d = 0; d < a->ndim; d++)
        if (view_shape(s, a)[d] > 1 && view_stride(s, a)[d] != view_stride(s, b)[d])
            return 0;
    return 1;
}

int gdi_disjoint(const gd_program_spec *s, const gd_view *a, const gd_view *b)
{
    int64_t alo, ahi, blo, bhi;
    int what;
    if (a->base != b->base)
        return 1;
    view_extent(s, a, &alo, &ahi, &what);
    view_extent(s, b, &blo, &bhi, &what);
    return alo == ahi || blo == bhi || ahi <= blo || bhi <= alo;
}

/* The input that an instruction may write over as it reads it: -1, none. */
static int updated_input(int op)
{
    return op == GD_OP_SCATTER_ADD || op == GD_OP_SCATTER_SET || op == GD_OP_SCATTER_ALONG ? 0
         : op == GD_OP_GRU_GRAD || op == GD_OP_LSTM_GRAD ? 2 : -1;
}

static const gd_view *operand(const gd_program_spec *s, const gd_instr *in, int k)
{
    return s->view + s->arg[in->args + k];
}

/* May an instruction write output `o` where its input k lies? A fused group checks its order of operations itself. */
static int may_share(const gd_instr *in, int o, int k)
{
    return in->op < GD_MAP_COUNT || in->op == GD_OP_FUSED || in->op == GD_OP_ROWS || (o == 0 && k - in->n_out == updated_input(in->op));
}

static int check_output(const gd_program_spec *s, const gd_instr *in, int o, gd_fault *f)
{
    const gd_view *out = operand(s, in, o);
    if (s->base_access[out->base] != GD_WRITE || out->base == GD_BASE_CONST)
        return refuse(f, GDI_REASON_READ_ONLY, out->base);
    if (overlaps_itself(s, out))
        return refuse(f, GDI_REASON_OVERLAP, o);
    for (int k = 0; k < o; k++)
        if (!gdi_disjoint(s, out, operand(s, in, k)))
            return refuse(f, GDI_REASON_OVERLAP, k);
    for (int k = in->n_out; k < in->n_out + in->n_in; k++) {
        const gd_view *v = operand(s, in, k);
        if (!gdi_disjoint(s, out, v) && !(may_share(in, o, k) && same_layout(s, out, v)))
            return refuse(f, GDI_REASON_ALIAS, k);
    }
    return GD_OK;
}

/* ---- elementwise ---- */
static int check_map(const gd_program_spec *s, const gd_instr *in, const gdi_table *t, gd_fault *f)
{
    const gd_view *out = operand(s, in, 0);
    int dtype = operand(s, in, in->n_in)->dtype;            /* of the last operand: where's first one is the condition */
    for (int k = 1; k <= in->n_in; k++) {
        const gd_view *v = operand(s, in, k);
        if (!same_shape(s, out, v))
            return refuse(f, GDI_REASON_SHAPE, k);
        if (v->dtype != (in->op == GD_OP_WHERE && k == 1 ? GD_BOOL : dtype))
            return refuse(f, GDI_REASON_DTYPE, k);
    }
    if (out->dtype != (gdi_map_is_test(in->op) ? GD_BOOL : dtype))
        return refuse(f, GDI_REASON_DTYPE, 0);
    if (!gdi_map_lookup(t, in->op, dtype))
        return refuse(f, GDI_REASON_KERNEL, dtype);
    return GD_OK;
}

/* ---- fused groups ---- */
enum { VALUES = GDI_FUSED_OPERANDS + GDI_AT_FILLS };

/* What is known of a group's values after some of its lines. */
typedef struct knowledge {
    int n, n_out;                           /* operands; the first n_out are outputs */
    int values;                             /* operands, registers and, of rows, held ones and stats */
    int axes;                               /* of all but the sums */
    int8_t dtype[VALUES];
    int8_t defined[VALUES];
    int8_t is_sum[GDI_FUSED_OPERANDS];      /* the output of a sum: never read */
    int16_t written[GDI_FUSED_OPERANDS], read[GDI_FUSED_OPERANDS];   /* last line that does it, -1: none */
} knowledge;

/* The line's operands are there; returns the dtype its kernel goes by, that of the last one, or -1. */
static int check_sources(knowledge *w, const int64_t *line, int number, int arity, gd_fault *f)
{
    int dtype = -1;
    for (int k = 0; k < GDI_MAP_OPERANDS - 1; k++) {
        const int64_t from = line[3 + k];
        if (k >= arity ? from != -1 : from < 0 || from >= w->values || !w->defined[from]
            || (from < w->n_out && w->is_sum[from])) {
            refuse(f, GDI_REASON_MICRO, number);
            return -1;
        }
        if (k >= arity)
            continue;
        if (from < w->n)
            w->read[from] = (int16_t)number;
        dtype = w->dtype[from];
    }
    for (int k = 0; k < arity; k++)
        if (w->dtype[line[3 + k]] != (line[0] == GD_OP_WHERE && k == 0 ? GD_BOOL : dtype)) {
            refuse(f, GDI_REASON_DTYPE, number);
            return -1;
        }
    return dtype;
}

/* The result goes to an output nobody wrote yet, or to a register; over an operand only element by element. */
static int check_target(knowledge *w, const int64_t *line, int number, int arity, gd_fault *f)
{
    const int64_t to = line[2];
    if (to < 0 || to >= w->values || (to < w->n_out && w->is_sum[to] != (line[0] == GD_OP_SUM)) || (to >= w->n_out && to < w->n) || (to < w->n_out && w->defined[to]))
        return refuse(f, GDI_REASON_MICRO, number);
    if (to < w->n && w->dtype[to] != line[1])
        return refuse(f, GDI_REASON_DTYPE, number);
    for (int k = 0; k < arity; k++)
        if (line[3 + k] == to && gd_dtype_nbytes(w->dtype[to]) != gd_dtype_nbytes((int)line[1]))
            return refuse(f, GDI_REASON_MICRO, number);
    if (to < w->n)
        w->written[to] = (int16_t)number;
    w->defined[to] = 1;
    w->dtype[to] = (int8_t)line[1];
    return GD_OK;
}

/* A sum of floats to an output that lacks the last axes, of which the line says how many. */
static int check_sum(const gd_program_spec *s, const gd_instr *in, knowledge *w, const int64_t *line, int number, gd_fault *f)
{
    const int64_t one[GDI_FUSED_LINE] = {line[0], line[1], line[2], line[3], -1, -1}, gone = line[4];
    if (line[5] != -1 || line[2] >= w->n_out || gone < 1 || gone > w->axes)
        return refuse(f, GDI_REASON_MICRO, number);
    const int dtype = check_sources(w, one, number, 1, f);
    if (dtype < 0)
        return GD_BAD_PROGRAM;
    if (line[1] != dtype || (dtype != GD_FLOAT32 && dtype != GD_FLOAT64))
        return refuse(f, GDI_REASON_DTYPE, number);
    if (operand(s, in, (int)line[2])->ndim != w->axes - gone)
        return refuse(f, GDI_REASON_SHAPE, number);
    return check_target(w, one, number, 0, f);
}

/* Which outputs are sums: they have the group's leading axes. All others, and the inputs, have its shape. */
static int check_shapes(const gd_program_spec *s, const gd_instr *in, knowledge *w, gd_fault *f)
{
    const gd_view *whole = operand(s, in, w->n - 1);
    w->axes = whole->ndim;
    for (int i = 0; i < in->n_attr / GDI_FUSED_LINE; i++) {
        const int64_t *line = s->attr + in->attr + (int64_t)i * GDI_FUSED_LINE;
        if (line[0] == GD_OP_SUM && line[2] >= 0 && line[2] < w->n_out)
            w->is_sum[line[2]] = 1;
    }
    for (int k = 0; k < w->n; k++) {
        const gd_view *v = operand(s, in, k);
        int ok = v->ndim == whole->ndim || (w->is_sum[k] && v->ndim < whole->ndim);
        for (int d = 0; ok && d < v->ndim; d++)
            ok = view_shape(s, v)[d] == view_shape(s, whole)[d];
        if (!ok)
            return refuse(f, GDI_REASON_SHAPE, k);
    }
    return GD_OK;
}

static int check_line(knowledge *w, const int64_t *line, int number, const gdi_table *t, gd_fault *f)
{
    const int64_t op = line[0], result = line[1];
    if (op != GD_OP_CAST && (op < 0 || op >= GD_MAP_COUNT))
        return refuse(f, GDI_REASON_OP, number);
    if (result < 0 || result >= GD_DTYPE_COUNT || result == GD_FLOAT16)
        return refuse(f, GDI_REASON_DTYPE, number);
    const int arity = op == GD_OP_CAST ? 1 : gdi_map_arity((int)op);
    const int dtype = check_sources(w, line, number, arity, f);
    if (dtype < 0)
        return GD_BAD_PROGRAM;
    if (op != GD_OP_CAST && result != (gdi_map_is_test((int)op) ? GD_BOOL : dtype))
        return refuse(f, GDI_REASON_DTYPE, number);
    if (!(op == GD_OP_CAST ? t->cast[dtype][result] : gdi_map_lookup(t, (int)op, dtype)))
        return refuse(f, GDI_REASON_KERNEL, number);
    return check_target(w, line, number, arity, f);
}

/* Where an output is an input's memory, no line may read the input after the output is written. */
static int check_order(const gd_program_spec *s, const gd_instr *in, const knowledge *w, gd_fault *f)
{
    for (int o = 0; o < w->n_out; o++)
        for (int k = w->n_out; k < w->n; k++)
            if (w->read[k] > w->written[o] && !gdi_disjoint(s, operand(s, in, o), operand(s, in, k)))
                return refuse(f, GDI_REASON_ALIAS, k);
    return GD_OK;
}

static int check_fused(const gd_program_spec *s, const gd_instr *in, const gdi_table *t, gd_fault *f)
{
    knowledge w = {.n = in->n_out + in->n_in, .n_out = in->n_out, .values = in->n_out + in->n_in + GDI_FUSED_REGISTERS};
    if (in->n_attr == 0 || in->n_attr % GDI_FUSED_LINE != 0 || in->n_attr > GDI_FUSED_LINE * GDI_FUSED_LINES)
        return refuse(f, GDI_REASON_ATTRS, in->n_attr);
    int status = check_shapes(s, in, &w, f);
    if (status != GD_OK)
        return status;
    for (int k = 0; k < w.n; k++) {
        const gd_view *v = operand(s, in, k);
        if (v->dtype == GD_FLOAT16)
            return refuse(f, GDI_REASON_DTYPE, k);
        w.dtype[k] = (int8_t)v->dtype;
        w.defined[k] = k >= w.n_out;
        w.written[k] = w.read[k] = -1;
    }
    for (int i = 0; i < in->n_attr / GDI_FUSED_LINE; i++) {
        const int64_t *line = s->attr + in->attr + (int64_t)i * GDI_FUSED_LINE;
        status = line[0] == GD_OP_SUM ? check_sum(s, in, &w, line, i, f) : check_line(&w, line, i, t, f);
        if (status != GD_OK)
            return status;
    }
    for (int k = 0; k < w.n_out; k++)
        if (!w.defined[k])
            return refuse(f, GDI_REASON_MICRO, -1);
    return check_order(s, in, &w, f);
}

/* ---- groups of rows ---- */
/* What a value is: one element for every element of a row, one for a row, or a sum down the columns. */
static int row_class(const gd_program_spec *s, const gd_instr *in, const knowledge *w, int64_t value)
{
    if (value >= w->n)
        return value < w->n + GDI_AT_STATS ? GDI_WHOLE : GDI_SMALL_VALUE;
    return w->is_sum[value] ? GDI_COLUMN : operand(s, in, (int)value)->ndim == w->axes ? GDI_WHOLE : GDI_SMALL_VALUE;
}

/* Whole operands have all axes, small ones the first `kept`, sums of columns the others. */
static int check_row_shapes(const gd_program_spec *s, const gd_instr *in, const knowledge *w, int kept, gd_fault *f)
{
    const gd_view *whole = operand(s, in, w->n - 1);
    for (int k = 0; k < w->n; k++) {
        const gd_view *v = operand(s, in, k);
        const int first = w->is_sum[k] ? kept : 0, last = w->is_sum[k] || v->ndim == w->axes ? w->axes : kept;
        int ok = v->ndim == last - first;
        for (int d = first; ok && d < last; d++)
            ok = view_shape(s, v)[d - first] == view_shape(s, whole)[d];
        if (!ok)
            return refuse(f, GDI_REASON_SHAPE, k);
    }
    return GD_OK;
}

/* A sum of a row, there after the section, or of all rows. */
static int check_row_sum(const gd_program_spec *s, const gd_instr *in, knowledge *w, const int64_t *line, int number, gd_fault *f)
{
    const int64_t one[GDI_FUSED_LINE] = {line[0], line[1], line[2], line[3], -1, -1};
    if (line[5] != -1 || (line[4] != -1 && line[4] != 1) || line[2] < 0 || line[2] >= w->values
        || row_class(s, in, w, line[2]) != (line[4] == 1 ? GDI_COLUMN : GDI_SMALL_VALUE))
        return refuse(f, GDI_REASON_MICRO, number);
    const int dtype = check_sources(w, one, number, 1, f);
    if (dtype < 0)
        return GD_BAD_PROGRAM;
    if (row_class(s, in, w, line[3]) != GDI_WHOLE)
        return refuse(f, GDI_REASON_MICRO, number);
    if (line[1] != dtype || (dtype != GD_FLOAT32 && dtype != GD_FLOAT64))
        return refuse(f, GDI_REASON_DTYPE, number);
    const int64_t column[GDI_FUSED_LINE] = {GD_OP_SUM, line[1], line[2], -1, -1, -1}, row[GDI_FUSED_LINE] = {0, line[1], line[2], -1, -1, -1};
    const int status = check_target(w, line[4] == 1 ? column : row, number, 0, f);
    w->defined[line[2]] = status == GD_OK ? -1 : w->defined[line[2]];      /* not before the next section */
    return status;
}

/* The first or the next section begins: registers are forgotten, sums are there. */
static int begin_section(knowledge *w, const int64_t *line, int kept, int number, gd_fault *f)
{
    if (line[1] >> 1 != kept || line[2] != -1 || line[3] != -1 || line[4] != -1 || line[5] != -1)
        return refuse(f, GDI_REASON_MICRO, number);
    for (int k = 0; k < w->values; k++)
        w->defined[k] = (int8_t)(k >= w->n && k < w->n + GDI_AT_KEPT ? 0 : w->defined[k] != 0);
    return GD_OK;
}

static int check_row_line(const gd_program_spec *s, const gd_instr *in, knowledge *w, const int64_t *line, int number, int stats,
                          const gdi_table *t, gd_fault *f)
{
    if (line[0] == GD_OP_SUM)
        return stats ? refuse(f, GDI_REASON_MICRO, number) : check_row_sum(s, in, w, line, number, f);
    if (line[2] < 0 || line[2] >= w->values || row_class(s, in, w, line[2]) != (stats ? GDI_SMALL_VALUE : GDI_WHOLE))
        return refuse(f, GDI_REASON_MICRO, number);
    for (int k = 3; k < GDI_FUSED_LINE; k++)
        if (line[k] >= 0 && line[k] < w->values
            && (w->defined[line[k]] != 1 || (stats && row_class(s, in, w, line[k]) != GDI_SMALL_VALUE)))
            return refuse(f, GDI_REASON_MICRO, number);
    return check_line(w, line, number, t, f);
}

static int check_rows(const gd_program_spec *s, const gd_instr *in, const gdi_table *t, gd_fault *f)
{
    knowledge w = {.n = in->n_out + in->n_in, .n_out = in->n_out, .values = in->n_out + in->n_in + GDI_AT_FILLS};
    const int64_t *line = s->attr + in->attr;
    if (in->n_attr == 0 || in->n_attr % GDI_FUSED_LINE != 0 || in->n_attr > GDI_FUSED_LINE * GDI_FUSED_LINES)
        return refuse(f, GDI_REASON_ATTRS, in->n_attr);
    w.axes = operand(s, in, w.n - 1)->ndim;
    if (line[0] != -1 || line[1] < 0 || line[1] >> 1 >= w.axes)
        return refuse(f, GDI_REASON_MICRO, 0);
    const int kept = (int)(line[1] >> 1), lines = in->n_attr / GDI_FUSED_LINE;
    int stats = 0;
    for (int i = 0; i < lines; i++) {
        const int64_t *sum = line + (int64_t)i * GDI_FUSED_LINE;
        if (sum[0] == GD_OP_SUM && sum[4] == 1 && sum[2] >= 0 && sum[2] < w.n_out)
            w.is_sum[sum[2]] = 1;
    }
    int status = check_row_shapes(s, in, &w, kept, f);
    for (int k = 0; k < w.n; k++) {
        if (operand(s, in, k)->dtype == GD_FLOAT16 && status == GD_OK)
            status = refuse(f, GDI_REASON_DTYPE, k);
        w.dtype[k] = (int8_t)operand(s, in, k)->dtype;
        w.defined[k] = k >= w.n_out;
        w.written[k] = w.read[k] = -1;
    }
    for (int i = 0; i < lines && status == GD_OK; i++, line += GDI_FUSED_LINE) {
        if (line[0] == -1) {
            stats = (int)(line[1] & 1);
            status = begin_section(&w, line, kept, i, f);
        } else {
            status = check_row_line(s, in, &w, line, i, stats, t, f);
        }
    }
    for (int k = 0; k < w.n_out && status == GD_OK; k++)
        if (!w.defined[k])
            status = refuse(f, GDI_REASON_MICRO, -1);
    return status == GD_OK ? check_order(s, in, &w, f) : status;
}

/* ---- instructions ---- */
static int check_structural(const gd_program_spec *s, const gd_instr *in, const gdi_table *t, gd_fault *f)
{
    const gdi_kernel *kernel = t->kernel[in->op - GD_MAP_COUNT];
    gdi_operand operands[GDI_MAX_OPERANDS];
    if (!kernel)
        return refuse(f, GDI_REASON_KERNEL, -1);
    for (int k = 0; k < in->n_out + in->n_in; k++) {
        const gd_view *v = operand(s, in, k);
        operands[k] = (gdi_operand){NULL, v->dtype, v->ndim, view_shape(s, v), view_stride(s, v)};
    }
    const gdi_call call = {.out = operands, .in = operands + in->n_out, .n_out = in->n_out, .n_in = in->n_in,
                           .attr = in->n_attr > 0 ? s->attr + in->attr : NULL, .n_attr = in->n_attr, .fault = f};
    return kernel->check(&call) == GD_OK ? GD_OK : refuse(f, GDI_REASON_CALL, -1);
}

static int check_instr(const gd_program_spec *s, const gd_instr *in, const gdi_table *t, gd_fault *f)
{
    if (in->op < 0 || in->op >= GD_OP_COUNT)
        return refuse(f, GDI_REASON_OP, in->op);
    int is_map = in->op < GD_MAP_COUNT;
    const int is_fused = in->op == GD_OP_FUSED || in->op == GD_OP_ROWS;
    if (in->n_out < 1 || in->n_in < 0 || in->n_in >= GDI_MAX_OPERANDS || in->n_out > (is_fused ? GDI_FUSED_OPERANDS : 1)
        || (is_fused && (in->n_in < 1 || in->n_out + in->n_in > GDI_FUSED_OPERANDS)) || (is_map && in->n_in != gdi_map_arity(in->op)))
        return refuse(f, GDI_REASON_ARITY, in->n_in);
    if (in->args < 0 || in->args > s->n_arg - in->n_out - in->n_in)
        return refuse(f, GDI_REASON_ARGS, in->args);
    for (int k = 0; k < in->n_out + in->n_in; k++)
        if (s->arg[in->args + k] < 0 || s->arg[in->args + k] >= s->n_view)
            return refuse(f, GDI_REASON_ARGS, k);
    if (in->n_attr < 0 || (in->n_attr > 0 && (is_map || in->attr < 0 || in->attr > s->n_attr - in->n_attr)))
        return refuse(f, GDI_REASON_ATTRS, in->attr);
    int status = is_map ? check_map(s, in, t, f) : in->op == GD_OP_FUSED ? check_fused(s, in, t, f)
               : in->op == GD_OP_ROWS ? check_rows(s, in, t, f) : check_structural(s, in, t, f);
    for (int o = 0; o < in->n_out && status == GD_OK; o++)
        status = check_output(s, in, o, f);
    return status;
}

int gdi_check(const gd_program_spec *s, const gdi_table *t, gd_fault *f)
{
    int status = check_tables(s, f);
    for (int64_t i = 0; status == GD_OK && i < s->n_view; i++)
        status = check_view(s, s->view + i, f, i);
    for (int64_t i = 0; status == GD_OK && i < s->n_instr; i++) {
        f->instr = i;
        status = check_instr(s, s->instr + i, t, f);
    }
    if (status == GD_OK)
        f->instr = -1;
    return status;
}
