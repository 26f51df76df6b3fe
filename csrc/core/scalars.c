/* scalars.c: which instructions are single operations on float32 or float64, and the runs they make. */
#include "program.h"

/* Elements 1, a float type, and places that fit the short form. */
static int fits(const gd_program_spec *s, const gd_instr *in)
{
    if (in->op >= GD_MAP_COUNT)
        return 0;
    const int dtype = s->view[s->arg[in->args + in->n_in]].dtype;
    if (dtype != GD_FLOAT32 && dtype != GD_FLOAT64)
        return 0;
    for (int k = 0; k <= in->n_in; k++) {
        const gd_view *v = s->view + s->arg[in->args + k];
        if ((v->ndim > 0 && gdi_view_count(s, v) != 1) || v->base > UINT8_MAX || v->offset > UINT32_MAX)
            return 0;
    }
    return 1;
}

int64_t gdi_scalar_count(const gd_program_spec *s)
{
    int64_t n = 0;
    for (int64_t i = 0; i < s->n_instr; i++)
        n += fits(s, s->instr + i);
    return n;
}

int gdi_scalar_prepare(gd_program *p, const gd_program_spec *s, const gdi_table *t, const gd_instr *in, gdi_step *out)
{
    if (!fits(s, in))
        return 0;
    /* The condition of a where is no float: it comes after the branches. */
    static const int8_t order[2][4] = {{0, 1, 2, 3}, {0, 2, 3, 1}};
    const int8_t *from = order[in->op == GD_OP_WHERE];
    gdi_scalar *c = p->scalar + p->n_scalar++;
    c->op = (uint16_t)in->op;
    for (int k = 0; k < 4; k++) {
        const gd_view *v = s->view + s->arg[in->args + (k <= in->n_in ? from[k] : 1)];
        c->base[k] = (uint8_t)v->base;
        c->offset[k] = (uint32_t)v->offset;
    }
    out->kind = GDI_SCALARS;
    out->n = 1;
    out->u.scalars.run = t->scalar[s->view[s->arg[in->args + in->n_in]].dtype == GD_FLOAT64];
    out->u.scalars.first = c;
    return 1;
}

static int is_place(const gdi_scalar *a, int i, const gdi_scalar *b, int k)
{
    return a->base[i] == b->base[k] && a->offset[i] == b->offset[k];
}

/* Backwards, so that every step knows how many follow it: a run may be entered anywhere. */
void gdi_scalars_finish(gd_program *p)
{
    for (int64_t i = p->n_step - 2; i >= 0; i--) {
        gdi_step *s = p->step + i, *next = s + 1;
        if (s->kind != GDI_SCALARS || next->kind != GDI_SCALARS || s->u.scalars.run != next->u.scalars.run)
            continue;
        s->n = next->n < UINT32_MAX ? next->n + 1 : 1;
        const gdi_scalar *c = s->u.scalars.first;
        gdi_scalar *d = p->scalar + (next->u.scalars.first - p->scalar);
        if (!gdi_map_is_test(c->op))
            d->last = (uint8_t)((is_place(c, 0, d, 1) ? GDI_LAST_X : 0) | (is_place(c, 0, d, 2) ? GDI_LAST_Y : 0));
    }
}
