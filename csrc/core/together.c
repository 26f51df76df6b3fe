/* together.c: an elementwise step and its structural neighbour, part by part, on one thread, while the part is in the caches. The bits are those
 * of one step after the other, since an element's depend on nothing but itself.
 *     Tails: what is done to the result of a product or a convolution, such as bias and activation, is done to parts as they are finished.
 *     Heads: what a reduction or a softmax alone reads is made for some items at a time and never goes to memory. */
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
        const int met = !gdi_disjoint(s, v, result), out = k < next->n_out;
        if ((met || out) && (!is_run(s, v) || gdi_view_count(s, v) != n))
            return 0;
        if (met && (v->offset != result->offset || gd_dtype_nbytes(v->dtype) != gd_dtype_nbytes(result->dtype)))
            return 0;
        for (int j = in->n_out; j < in->n_out + in->n_in && out; j++)
            if (!gdi_disjoint(s, v, operand(s, in, j)))
                return 0;
        reads |= met && !out;
    }
    return reads;
}

static int has_parts(const gdi_step *s)
{
    return s->kind == GDI_SMALL || s->kind == GDI_FLAT || (s->kind == GDI_BLOCKS && gdi_map_has_parts(s->u.plan));
}

static void need_local(gd_program *p, const gdi_step *s, int64_t more)
{
    const int64_t nbytes = GDI_LOCAL_NBYTES + more + (s->kind == GDI_BLOCKS ? s->u.plan->local_nbytes : 0);
    if (p->local_nbytes < nbytes)
        p->local_nbytes = nbytes;
}

/* A smaller result is in the first cache anyway. */
enum { TAIL_LEAST = 8 << 10 };

static void find_tail(gd_program *p, const gd_program_spec *s, int64_t i)
{
    gdi_launch *l = p->step[i].u.launch;
    gdi_call call;
    if (!l->kernel->reports || i + 1 == s->n_instr || i + 1 == s->commit || !has_parts(p->step + i + 1) || !follows(s, s->instr + i, s->instr + i + 1))
        return;
    const gd_view *result = operand(s, s->instr + i, 0);
    gdi_launch_call(l, &call);
    if (gdi_view_count(s, result) * gd_dtype_nbytes(result->dtype) < TAIL_LEAST || !l->kernel->reports(&call))
        return;
    l->tail = p->step + i + 1;
    need_local(p, l->tail, 0);
}

/* to: NULL, or where the first element goes instead. */
static void run_flat(const gdi_step *s, char *const *base, int64_t first, int64_t count, int64_t rows, int64_t step, char *to)
{
    const void *in[GDI_MAP_OPERANDS - 1];
    for (int64_t row = 0; row < rows; row++, first += step) {
        for (int k = 1; k < GDI_MAP_OPERANDS; k++)
            in[k - 1] = gdi_resolve(base, s->u.flat.ref[k]) + (first << (s->log2_sizes >> 2 * k & 3));
        s->u.flat.fn(count, in, to ? to : gdi_resolve(base, s->u.flat.ref[0]) + (first << (s->log2_sizes & 3)));
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
        gdi_map_run_parts(t->step->u.plan, t->base, first, count, rows, step, NULL, local + GDI_LOCAL_NBYTES);
    else
        run_flat(t->step, t->base, first, count, rows, step, NULL);
}

/* ---- heads ---- */
/* Bytes that are made at once; from so many on it pays; an item may take so many. After so many instructions the search ends. What is made lies
 * APART bytes behind the beginning of a page, where operands often are, and registers ON bytes behind it: loads wait for stores of the same
 * place in a page (any of x > y + 9, 10^7 float32: 5.7 ms instead of 3.5). */
enum { HEAD_NBYTES = 112 << 10, HEAD_LEAST = 256 << 10, HEAD_MOST = 1 << 20, HEAD_SEARCH = 512, HEAD_APART = 1600, HEAD_ON = 832 };

/* Is what lies in the arena where a view is not read from instruction i on, before all of it is written again? */
static int is_dead(const gd_program_spec *s, const gd_view *v, int64_t i)
{
    const int64_t end = s->n_instr - i < HEAD_SEARCH ? s->n_instr : i + HEAD_SEARCH;
    for (; i < end; i++) {
        const gd_instr *in = s->instr + i;
        for (int k = in->n_out; k < in->n_out + in->n_in; k++)
            if (!gdi_disjoint(s, v, operand(s, in, k)))
                return 0;
        for (int k = 0; k < in->n_out; k++) {
            const gd_view *o = operand(s, in, k);
            const int64_t last = o->offset + gdi_view_count(s, o) * gd_dtype_nbytes(o->dtype);
            if (o->base == v->base && is_run(s, o) && o->offset <= v->offset
                && last >= v->offset + gdi_view_count(s, v) * gd_dtype_nbytes(v->dtype))
                return 1;
        }
    }
    return i == s->n_instr;
}

/* Does `next` alone read all that `in` gives, and does it write nothing that `in` reads? */
static int leads(const gd_program_spec *s, const gd_instr *in, const gd_instr *next, int64_t after)
{
    const gd_view *result = operand(s, in, 0), *taken = operand(s, next, next->n_out);
    const int64_t n = gdi_view_count(s, result);
    if (in->n_out != 1 || next->n_out != 1 || next->n_in != 1 || result->base != GD_BASE_ARENA || taken->base != GD_BASE_ARENA
        || taken->offset != result->offset || taken->dtype != result->dtype || gdi_view_count(s, taken) != n || !is_run(s, result)
        || !is_run(s, taken) || n * gd_dtype_nbytes(result->dtype) < HEAD_LEAST)
        return 0;
    for (int k = 1; k <= in->n_in; k++)
        if (!gdi_disjoint(s, operand(s, next, 0), operand(s, in, k)))
            return 0;
    return is_dead(s, result, after);
}

/* Does nothing go through a buffer, which holds a block of a plan's own length? */
static int is_direct(const gdi_plan *p)
{
    for (int k = 0; k < p->n_out + p->n_in; k++)
        if ((p->operand[k].feed != GDI_DIRECT && p->operand[k].feed != GDI_SINGLE) || p->operand[k].cast)
            return 0;
    return 1;
}

static void find_head(gd_program *p, const gd_program_spec *s, int64_t i)
{
    gdi_launch *l = p->step[i].u.launch;
    gdi_step *before = p->step + i - 1;
    gdi_call call;
    if (i == 0 || i == s->commit || !l->kernel->takes || !has_parts(before) || !leads(s, s->instr + i - 1, s->instr + i, i + 1))
        return;
    gdi_launch_call(l, &call);
    if ((i > 1 && p->step[i - 2].kind == GDI_STRUCTURAL && p->step[i - 2].u.launch->tail) || !l->kernel->takes(&call, &l->takes)
        || l->takes.part * gd_dtype_nbytes(l->operand[1].dtype) > HEAD_MOST)
        return;
    l->head = *before;
    if (before->kind == GDI_BLOCKS) {                    /* it stays in a cache */
        gdi_plan *plan = before->u.plan;
        plan->operand[0].stream = 0;
        if (plan->n_register == 0 && is_direct(plan))
            plan->part = HEAD_NBYTES / plan->operand[0].size;                   /* steps around short blocks took a fifth of the time of a product */
    }
    before->kind = GDI_HEAD;
    before->u.head = &l->head;
    need_local(p, &l->head, HEAD_APART + HEAD_ON + GDI_ALIGN + (HEAD_NBYTES > l->takes.part * 8 ? HEAD_NBYTES : l->takes.part * 8));
}

void gdi_join_steps(gd_program *p, const gd_program_spec *s)
{
    for (int64_t i = 0; i < s->n_instr; i++)
        if (p->step[i].kind == GDI_STRUCTURAL) {
            find_head(p, s, i);
            find_tail(p, s, i);
        }
}

static int64_t first_of(const gdi_takes *t, int64_t item) { return item / t->parts * t->line + item % t->parts * t->part; }

int gdi_head_run(const gdi_launch *l, const gdi_call *c, char *const *base, int64_t lo, int64_t hi, char *local)
{
    const gdi_takes *t = &l->takes;
    const gdi_step *s = &l->head;
    const int64_t size = gd_dtype_nbytes(c->in->dtype), some = HEAD_NBYTES / (t->part * size);
    const int64_t items = t->parts > 1 || some < 1 ? 1 : some, most = t->parts > 1 || some < 1 ? t->part : HEAD_NBYTES / size;
    char *block = local + GDI_LOCAL_NBYTES + HEAD_APART, *own = block + (most * size + GDI_ALIGN - 1) / GDI_ALIGN * GDI_ALIGN + HEAD_ON;
    gdi_operand in = *c->in;
    gdi_call call = *c;
    call.in = &in;
    for (int64_t i = lo, end; i < hi; i = end) {
        end = hi - i < items ? hi : i + items;
        const int64_t first = first_of(t, i), last = first_of(t, end - 1) + t->part, line = (end - 1) / t->parts * t->line + t->line;
        const int64_t count = (last < line ? last : line) - first;
        if (s->kind == GDI_BLOCKS)
            gdi_map_run_parts(s->u.plan, base, first, count, 1, 0, block, own);
        else
            run_flat(s, base, first, count, 1, 0, block);
        in.data = (char *)((uintptr_t)block - (uintptr_t)(first * size));
        const int status = l->kernel->run(&call, 0, i, end, local);
        if (status != GD_OK)
            return status;
    }
    return GD_OK;
}
