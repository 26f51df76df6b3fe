/* layout.c: the axes of an instruction's operands, walked together.
 *
 * The order of the elements does not matter to an elementwise op, so its axes are turned (the output's strides become
 * positive), sorted by the output's stride and merged where all operands allow it. Sums keep the order they have. */
#include "map_plan.h"

void gdi_layout_begin(gdi_layout *l, const gd_program_spec *s, const gd_instr *in, const gd_view **view)
{
    l->n = in->n_out + in->n_in;
    for (int k = 0; k < l->n; k++) {
        view[k] = s->view + s->arg[in->args + k];
        l->offset[k] = view[k]->offset;
        l->size[k] = gd_dtype_nbytes(view[k]->dtype);
    }
}

static void insert_axis(gdi_layout *l, int64_t n, const int64_t *stride)
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

void gdi_layout_take(gdi_layout *l, const gd_program_spec *s, const gd_view *const *view, int whole)
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

void gdi_layout_sort(gdi_layout *l, const gd_program_spec *s, const gd_view *const *view)
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

/* The axes of operand k alone, merged: how many are left (more than two: 3), outermost first. */
static int own_axes(const gdi_layout *l, int k, int64_t *n, int64_t *stride)
{
    int axes = 0;
    for (int d = 0; d < l->ndim; d++) {
        if (axes > 0 && stride[axes - 1] == l->stride[k][d] * l->shape[d])
            n[axes - 1] *= l->shape[d];
        else if (axes == 2)
            return 3;
        else
            n[axes++] = l->shape[d];
        stride[axes - 1] = l->stride[k][d];
    }
    return axes;
}

void gdi_layout_flow(gdi_layout *l, int n_out)
{
    int64_t n[2], stride[2];
    for (int k = n_out; k < l->n; k++) {
        if (own_axes(l, k, n, stride) != 2 || stride[0] != l->size[k] || stride[1] == 0 || n[1] < GDI_FLOW_SHORTEST || n[1] > GDI_FLOW_LONGEST)
            continue;
        l->rows[k] = n[1];
        l->down[k] = stride[1];
        int64_t step = l->size[k];
        for (int d = l->ndim - 1; d >= 0; d--) {
            l->stride[k][d] = step;
            step *= l->shape[d];
        }
    }
}

static int mergeable(const gdi_layout *l, int outer, int d)
{
    for (int k = 0; k < l->n; k++)
        if (l->stride[k][outer] != l->stride[k][d] * l->shape[d])
            return 0;
    return 1;
}

void gdi_layout_merge(gdi_layout *l)
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

int gdi_layout_is_flat(const gdi_layout *l, int k)
{
    int64_t step = l->size[k];
    for (int d = l->ndim - 1; d >= 0; d--) {
        if (l->stride[k][d] != step)
            return 0;
        step *= l->shape[d];
    }
    return 1;
}

int64_t gdi_layout_period(const gdi_layout *l, int k, int first)
{
    int64_t n = 1;
    int d = first;
    while (d < l->ndim && l->stride[k][d] == 0)
        d++;
    for (; d < l->ndim; d++)
        n *= l->shape[d];
    return n;
}

int64_t gdi_layout_nbytes(const gdi_layout *l, int64_t n)
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
