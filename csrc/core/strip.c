/* strip.c: which elementwise steps may run together, a strip of elements at a time.
 *
 * A long chain of elementwise steps on big arrays is bound by memory: every step reads what the one before wrote after it
 * has left the cache. Element i of such a step depends on element i of its operands alone, so neighbouring steps may take
 * turns strip by strip, as long as no byte is written for one element and touched for another. Kernels, and with them all
 * bits, are the same. */
#include "program.h"

/* Steps of a run: the arrays they touch should fit in L2 a strip at a time. */
enum { STRIP_STEPS = 24 };

/* Bytes [lo, hi) of a base that a step touches; size > 0: element after element in order, so many bytes each. */
typedef struct touch {
    int64_t lo, hi;
    int32_t base;
    int16_t size, write;
} touch;

typedef struct strip {
    int64_t n;
    int steps, touches;
    touch touch[STRIP_STEPS * GDI_MAP_OPERANDS];
} strip;

static int64_t elements(const gdi_step *s)
{
    if (s->kind == GDI_FLAT)
        return s->n;
    if (s->kind == GDI_BLOCKS && !s->u.plan->by_row && GDI_STRIP % s->u.plan->block == 0 && s->u.plan->n > GDI_STRIP)
        return s->u.plan->n;
    return 0;
}

static int flat_touches(const gdi_step *s, int arity, touch *to)
{
    for (int k = 0; k <= arity; k++) {
        const uint64_t ref = s->u.flat.ref[k];
        const int64_t lo = (int64_t)(ref & (((uint64_t)1 << GDI_REF_SHIFT) - 1)), size = 1 << (s->log2_sizes >> 2 * k & 3);
        to[k] = (touch){lo, lo + s->n * size, (int32_t)(ref >> GDI_REF_SHIFT), (int16_t)size, k == 0};
    }
    return arity + 1;
}

static int plan_touches(const gdi_plan *p, touch *to)
{
    for (int k = 0; k <= p->n_in; k++) {
        const gdi_plan_operand *o = p->operand + k;
        int64_t lo = o->place.offset, hi = lo + o->size;
        for (int d = 0; d < p->ndim; d++)
            *(o->stride[d] < 0 ? &lo : &hi) += o->stride[d] * (p->shape[d] - 1);
        to[k] = (touch){lo, hi, o->place.base, o->feed == GDI_DIRECT ? o->size : 0, k == 0};
    }
    return p->n_in + 1;
}

static int conflict(const touch *a, const touch *b)
{
    if (a->base != b->base || a->hi <= b->lo || b->hi <= a->lo || !(a->write || b->write))
        return 0;
    return !(a->size && a->size == b->size && a->lo == b->lo);
}

/* Adds a step to the strip unless it must not join. */
static int joins(strip *s, const gdi_step *step, int arity)
{
    touch own[GDI_MAP_OPERANDS];
    if (s->steps == STRIP_STEPS || elements(step) != s->n)
        return 0;
    const int n = step->kind == GDI_FLAT ? flat_touches(step, arity, own) : plan_touches(step->u.plan, own);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < s->touches; j++)
            if (conflict(own + i, s->touch + j))
                return 0;
    for (int i = 0; i < n; i++)
        s->touch[s->touches++] = own[i];
    s->steps++;
    return 1;
}

/* p->more[i]: steps after i that run together with it. NULL if there are none. */
int gdi_strips(gd_program *p, const gd_instr *instr)
{
    for (int64_t i = 0, next; i < p->n_step; i = next) {
        strip s = {.n = elements(p->step + i)};
        const int64_t end = i < p->commit ? p->commit : p->n_step;
        for (next = i; s.n && next < end && joins(&s, p->step + next, instr[next].n_in); next++)
            ;
        if (next <= i + 1) {
            next = i + 1;
            continue;
        }
        if (!p->more && !(p->more = gdi_program_alloc(p, p->n_step)))
            return GD_NO_MEMORY;
        p->more[i] = (uint8_t)(next - i - 1);
    }
    return GD_OK;
}
