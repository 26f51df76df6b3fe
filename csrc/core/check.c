/* check.c: the verifier, the only door to gd_run. It assumes nothing about the tables but that they are as long as
 * they say; after it, no instruction can reach outside its bases except through an index that a kernel checks. */
#include "program.h"

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

static int disjoint(const gd_program_spec *s, const gd_view *a, const gd_view *b)
{
    int64_t alo, ahi, blo, bhi;
    int what;
    if (a->base != b->base)
        return 1;
    view_extent(s, a, &alo, &ahi, &what);
    view_extent(s, b, &blo, &bhi, &what);
    return alo == ahi || blo == bhi || ahi <= blo || bhi <= alo;
}

static int may_update(int op) { return op == GD_OP_SCATTER_ADD || op == GD_OP_SCATTER_SET || op == GD_OP_SCATTER_ALONG; }

static const gd_view *operand(const gd_program_spec *s, const gd_instr *in, int k)
{
    return s->view + s->arg[in->args + k];
}

static int check_output(const gd_program_spec *s, const gd_instr *in, gd_fault *f)
{
    const gd_view *out = operand(s, in, 0);
    if (s->base_access[out->base] != GD_WRITE || out->base == GD_BASE_CONST)
        return refuse(f, GDI_REASON_READ_ONLY, out->base);
    if (overlaps_itself(s, out))
        return refuse(f, GDI_REASON_OVERLAP, 0);
    for (int k = 1; k <= in->n_in; k++) {
        const gd_view *v = operand(s, in, k);
        int in_place = in->op < GD_MAP_COUNT || (k == 1 && may_update(in->op));
        if (!disjoint(s, out, v) && !(in_place && same_layout(s, out, v)))
            return refuse(f, GDI_REASON_ALIAS, k);
    }
    return GD_OK;
}

/* ---- instructions ---- */
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
    if (in->n_out != 1 || in->n_in < 0 || in->n_in >= GDI_MAX_OPERANDS
        || (is_map && in->n_in != gdi_map_arity(in->op)))
        return refuse(f, GDI_REASON_ARITY, in->n_in);
    if (in->args < 0 || in->args > s->n_arg - in->n_out - in->n_in)
        return refuse(f, GDI_REASON_ARGS, in->args);
    for (int k = 0; k <= in->n_in; k++)
        if (s->arg[in->args + k] < 0 || s->arg[in->args + k] >= s->n_view)
            return refuse(f, GDI_REASON_ARGS, k);
    if (in->n_attr < 0 || (in->n_attr > 0 && (is_map || in->attr < 0 || in->attr > s->n_attr - in->n_attr)))
        return refuse(f, GDI_REASON_ATTRS, in->attr);
    int status = is_map ? check_map(s, in, t, f) : check_structural(s, in, t, f);
    return status == GD_OK ? check_output(s, in, f) : status;
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
