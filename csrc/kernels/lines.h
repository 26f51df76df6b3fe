/* lines.h: leading axes of several operands walked together. A kernel that works along its last axes sees the others as
 * lines: numbered in C order, each with an offset (in elements) into every operand. Axes that are contiguous in all
 * operands are merged, so that the innermost axis is as long as it can be. */
#ifndef GDI_LINES_H
#define GDI_LINES_H

/* Is an operand one run of elements, in C order? */
static int lies_in_a_run(const gdi_operand *o)
{
    int64_t n = 1;
    for (int d = o->ndim - 1; d >= 0; n *= o->shape[d--])
        if (o->shape[d] != 1 && o->stride[d] != n) return 0;
    return 1;
}

enum { LINES_MAX = 4 };              /* operands */
typedef struct gdi_lines {
    int ndim, n;
    int64_t count;                   /* lines in all */
    int64_t shape[GDI_MAX_NDIM];
    int64_t stride[LINES_MAX][GDI_MAX_NDIM];
} gdi_lines;

/* Axes first .. last-1 of n operands, which have one shape there. What is not used stays unwritten: to clear and copy whole
 * structures takes longer than a small reduction. */
static void lines_set(gdi_lines *l, const gdi_operand *const *o, int n, int first, int last)
{
    l->ndim = 0;
    l->n = n;
    l->count = 1;
    for (int d = first; d < last; d++) {
        int64_t size = o[0]->shape[d];
        l->count *= size;
        if (size == 1) continue;
        int merge = l->ndim > 0;
        for (int k = 0; k < n && merge; k++)
            merge = l->stride[k][l->ndim - 1] == o[k]->stride[d] * size;
        int at = merge ? l->ndim - 1 : l->ndim++;
        l->shape[at] = merge ? l->shape[at] * size : size;
        for (int k = 0; k < n; k++) l->stride[k][at] = o[k]->stride[d];
    }
}

static gdi_lines lines_of(const gdi_operand *const *o, int n, int first, int last)
{
    gdi_lines l;
    lines_set(&l, o, n, first, last);
    return l;
}

static int64_t lines_inner(const gdi_lines *l) { return l->ndim ? l->shape[l->ndim - 1] : 1; }

static int64_t lines_step(const gdi_lines *l, int k) { return l->ndim ? l->stride[k][l->ndim - 1] : 0; }

/* Offsets of a line into every operand. */
static void lines_at(const gdi_lines *l, int64_t line, int64_t *offset)
{
    for (int k = 0; k < l->n; k++) offset[k] = 0;
    for (int d = l->ndim - 1; d >= 0; d--) {
        int64_t i = line % l->shape[d];
        line /= l->shape[d];
        for (int k = 0; k < l->n; k++) offset[k] += i * l->stride[k][d];
    }
}

static int lines_same(const gdi_operand *a, const gdi_operand *b, int n)
{
    for (int d = 0; d < n; d++)
        if (a->shape[d] != b->shape[d]) return 0;
    return 1;
}

static int lines_numeric(int d) { return d == GD_INT32 || d == GD_INT64 || d == GD_UINT8 || d == GD_FLOAT32 || d == GD_FLOAT64; }

/* Is the product of the sizes, none counted below 1, at most 2^52? Then no later product of few of them overflows. */
static int lines_size_fits(const gdi_operand *o)
{
    int64_t product = 1;
    for (int d = 0; d < o->ndim; d++)
        if (o->shape[d] < 0 || gdi_mul(product, GD_MAX(o->shape[d], 1), &product))
            return 0;
    return product <= (int64_t)1 << 52;
}
#endif
