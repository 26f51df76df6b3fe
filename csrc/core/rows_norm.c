/* rows_norm.c: is an instruction over rows (rows.h) a normalisation that a loop of its own (norm.h) does? */
#include "rows_plan.h"
#include "blocks.h"

/* Rows of fewer bytes that lie in pieces are not worth a call each. */
enum { PIECES_NBYTES = 2048 };

/* Are x, g and results contiguous rows, gamma and beta of one row, and the others one value? Rows have one block of a sum. */
static int norm_fits(const gdi_rows *p, const gdi_rows_draft *a, const gdi_norm_found *f)
{
    const int kept = a->n_kept, all = kept + a->n_axes;
    if (p->n * p->element_nbytes > GDI_ROWS_BLOCK_NBYTES)
        return 0;
    for (int i = 0; i < GDI_NORM_OPERANDS; i++) {
        const int k = f->operand[i];
        if (k < 0)
            continue;
        const int whole = a->cls[k] == GDI_WHOLE, one_row = i == GDI_NORM_GAMMA || i == GDI_NORM_BETA;
        if (a->view[k]->dtype != a->view[f->operand[GDI_NORM_X]]->dtype)
            return 0;
        if (i == GDI_NORM_COUNT || i == GDI_NORM_EPS ? !gdi_rows_is_still(a, k, 0, whole ? all : kept)
            : i == GDI_NORM_SUM_G || i == GDI_NORM_SUM_GX ? a->cls[k] != GDI_COLUMN
            : one_row ? !whole || !gdi_rows_is_still(a, k, 0, kept) || gdi_rows_is_still(a, k, kept, all)
            : !whole || !gdi_rows_is_flat(a, k, 0, all))
            return 0;
    }
    return 1;
}

/* The lines may write y over an operand that they read no more. The gradient's loop makes its products again, from x, g and gamma,
 * after it has written y; forward, and with what it writes last, it reads an element before it writes one there. */
static int norm_overwrites(const gdi_rows_draft *a, const gdi_norm_found *f)
{
    static const int again[] = {GDI_NORM_X, GDI_NORM_G, GDI_NORM_GAMMA};
    const int y = f->operand[GDI_NORM_Y];
    for (int i = 0; f->back && y >= 0 && i < 3; i++) {
        const gd_view *v = a->view[f->operand[again[i]]];
        if (v->base == a->view[y]->base && v->offset == a->view[y]->offset)
            return 1;
    }
    return 0;
}

/* Are the rows long or in pieces, of elements that are contiguous in x, g and results, and the others one value a row? *packed: the pieces
 * are not what lanes of sums can begin with. */
static int norm_row_fits(const gdi_rows *p, const gdi_rows_draft *a, const gdi_norm_found *f, int32_t *packed)
{
    const int kept = a->n_kept, all = kept + a->n_axes;
    const int64_t nbytes = p->n * p->element_nbytes;
    *packed = a->n_axes > 2 || (a->n_axes == 2 && a->shape[all - 1] % GDI_ROW_LANES != 0);
    if (a->n_axes == 1 ? nbytes <= GDI_ROWS_BLOCK_NBYTES : nbytes < PIECES_NBYTES)
        return 0;
    if (*packed && 3 * aligned(nbytes) > GDI_ROWS_HELD_NBYTES)
        return 0;
    for (int i = 0; i < GDI_NORM_OPERANDS; i++) {
        const int k = f->operand[i];
        if (k < 0)
            continue;
        const int whole = a->cls[k] == GDI_WHOLE, array = i == GDI_NORM_X || i == GDI_NORM_G || i == GDI_NORM_Y || i == GDI_NORM_DX;
        if (a->view[k]->dtype != a->view[f->operand[GDI_NORM_X]]->dtype || a->cls[k] == GDI_COLUMN)
            return 0;
        if (array ? !whole || a->stride[k][all - 1] != a->size[k] : whole && !gdi_rows_is_still(a, k, kept, all))
            return 0;
    }
    return 1;
}

void gdi_rows_find_norm(gdi_rows *p, const gdi_rows_draft *a, const gdi_table *t)
{
    gdi_norm_found *f = &p->found;
    if (!gdi_norm_find(a->line, a->lines, a->n_out, a->n, f) || norm_overwrites(a, f))
        return;
    const int dtype = a->view[f->operand[GDI_NORM_X]]->dtype, wide = dtype == GD_FLOAT64;
    if (dtype != GD_FLOAT32 && dtype != GD_FLOAT64)
        return;
    if (norm_fits(p, a, f))
        p->norm = (f->back ? t->norm_back : t->norm)[wide];
    else if (norm_row_fits(p, a, f, &p->packed))
        p->norm_row = t->norm_row[wide];
}
