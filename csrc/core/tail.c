/* tail.c: what is done to a result while it is in the caches. An elementwise step that reads what the step before it gives, element by
 * element, is done to parts of it as they are finished, by the thread that made them: the bias and the activation behind a product or a
 * convolution. The bits are those of one step after the other, since an element's depend on nothing but itself. */
#include "program.h"

/* Is a view one run of elements in the order of its axes? */
static int is_run(const gd_program_spec *s, const gd_view *v)
{
    const int64_t *shape = s->dim + v->dims, *stride = shape + v->ndim;
    int64_t n = 1;
    for (int d = v->ndim - 1; d >= 0; n *= shape[d--])
        if (shape[d] != 1 && stride[d] != n)
            return 0;
    return n > 0;
}

static int meet(const gd_program_spec *s, const gd_view *a, const gd_view *b)
{
    int64_t alo, ahi, blo, bhi;
    int what;
    if (a->base != b->base || gdi_view_extent(s, a, &alo, &ahi, &what) || gdi_view_extent(s, b, &blo, &bhi, &what))
        return a->base == b->base;
    return alo < bhi && blo < ahi;
}

static const gd_view *operand(const gd_program_spec *s, const gd_instr *in, int k) { return s->view + s->arg[in->args + k]; }

/* Does `next` read the result of `in` where it lies, and nothing of it elsewhere, and is what it writes neither read by `in` nor, but for
 * the same elements, the result? */
static int follows(const gd_program_spec *s, const gd_instr *in, const gd_instr *next)
{
    const gd_view *result = operand(s, in, 0);
    const int64_t n = gdi_view_count(s, result);
    int reads = 0;
    if (in->n_out != 1 || !is_run(s, result))
        return 0;
    for (int k = 0; k < next->n_out + next->n_in; k++) {
        const gd_view *v = operand(s, next, k);
        const int met = meet(s, v, result), out = k < next->n_out;
        if ((met || out) && (!is_run(s, v) || gdi_view_count(s, v) != n))
            return 0;
        if (met && (v->offset != result->offset || gd_dtype_nbytes(v->dtype) != gd_dtype_nbytes(result->dtype)))
            return 0;
        for (int j = in->n_out; j < in->n_out + in->n_in && out; j++)
            if (meet(s, v, operand(s, in, j)))
                return 0;
        reads |= met && !out;
    }
    return reads;
}

static int has_parts(const gdi_step *s)
{
    return s->kind == GDI_SMALL || s->kind == GDI_FLAT || (s->kind == GDI_BLOCKS && gdi_map_has_parts(s->u.plan));
}

void gdi_tails_find(gd_program *p, const gd_program_spec *s)
{
    for (int64_t i = 0; i + 1 < s->n_instr; i++) {
        gdi_launch *l = p->step[i].kind == GDI_STRUCTURAL ? p->step[i].u.launch : NULL;
        const gdi_step *next = p->step + i + 1;
        gdi_call call;
        if (!l || !l->kernel->reports || i + 1 == s->commit || !has_parts(next) || !follows(s, s->instr + i, s->instr + i + 1))
            continue;
        gdi_launch_call(l, &call);
        if (!l->kernel->reports(&call))
            continue;
        l->tail = next;
        const int64_t nbytes = GDI_LOCAL_NBYTES + (next->kind == GDI_BLOCKS ? next->u.plan->local_nbytes : 0);
        if (p->local_nbytes < nbytes)
            p->local_nbytes = nbytes;
    }
}

static void run_flat(const gdi_step *s, char *const *base, int64_t first, int64_t count, int64_t rows, int64_t step)
{
    const void *in[GDI_MAP_OPERANDS - 1];
    for (int64_t row = 0; row < rows; row++, first += step) {
        for (int k = 1; k < GDI_MAP_OPERANDS; k++)
            in[k - 1] = gdi_resolve(base, s->u.flat.ref[k]) + (first << (s->log2_sizes >> 2 * k & 3));
        s->u.flat.fn(count, in, gdi_resolve(base, s->u.flat.ref[0]) + (first << (s->log2_sizes & 3)));
    }
}

void gdi_tail_done(const gdi_call *c, int64_t first, int64_t count, int64_t rows, int64_t step, char *local)
{
    const gdi_tail *t = c->tail;
    if (rows > 1 && step == count) {
        count *= rows;
        rows = 1;
    }
    if (t->step->kind == GDI_BLOCKS)
        gdi_map_run_parts(t->step->u.plan, t->base, first, count, rows, step, local + GDI_LOCAL_NBYTES);
    else
        run_flat(t->step, t->base, first, count, rows, step);
}
