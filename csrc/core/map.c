/* map.c: runs the blocks of an elementwise plan.
 * Every block is read whole before it is written, so an output that is exactly an input's memory is fine. */
#include "program.h"

/* Where the block being run starts. */
typedef struct block {
    int64_t count;
    int64_t at[GDI_MAX_NDIM];
} block;

/* An operand during the run. */
typedef struct feed {
    char *data;              /* element [0, 0, ..] */
    char *raw, *wide;        /* buffers: gathered elements; float16 as float32 */
    const char *held;        /* what `raw` holds now: the address it was filled from */
} feed;

/* The coordinates of item i. */
static void locate(const gdi_plan *p, int64_t item, block *b)
{
    int64_t row, start;
    int d = p->ndim - 1;
    if (p->by_row) {
        row = p->rows_first ? item % p->rows : item / p->pieces;
        start = (p->rows_first ? item / p->rows : item % p->pieces) * p->block;
        b->count = p->inner - start < p->block ? p->inner - start : p->block;
    } else {
        const int64_t first = item * p->block;
        b->count = p->n - first < p->block ? p->n - first : p->block;
        row = first / p->inner;
        start = first % p->inner;
    }
    b->at[d] = start;
    while (--d > 0) {
        b->at[d] = row % p->shape[d];
        row /= p->shape[d];
    }
    if (d == 0)
        b->at[0] = row;
}

static char *address(const gdi_plan *p, const gdi_plan_operand *o, const feed *f, const block *b)
{
    char *at = f->data;
    for (int d = 0; d < p->ndim; d++)
        at += b->at[d] * o->stride[d];
    return at;
}

/* ---- gathering and scattering ---- */
typedef uint8_t __attribute__((may_alias)) unit1;
typedef uint16_t __attribute__((may_alias)) unit2;
typedef uint32_t __attribute__((may_alias)) unit4;
typedef uint64_t __attribute__((may_alias)) unit8;

#define MOVER(T) \
    static void gather_##T(void *to, const char *from, int64_t n, int64_t stride) \
    { \
        T *o = to; \
        for (int64_t i = 0; i < n; i++) \
            o[i] = *(const T *)(const void *)(from + i * stride); \
    } \
    static void scatter_##T(char *to, const void *from, int64_t n, int64_t stride) \
    { \
        const T *v = from; \
        for (int64_t i = 0; i < n; i++) \
            *(T *)(void *)(to + i * stride) = v[i]; \
    }
MOVER(unit1)
MOVER(unit2)
MOVER(unit4)
MOVER(unit8)

static void gather_run(int size, char *to, const char *from, int64_t n, int64_t stride)
{
    switch (size) {
    case 1: gather_unit1(to, from, n, stride); break;
    case 2: gather_unit2(to, from, n, stride); break;
    case 4: gather_unit4(to, from, n, stride); break;
    default: gather_unit8(to, from, n, stride);
    }
}

static void scatter_run(int size, char *to, const char *from, int64_t n, int64_t stride)
{
    switch (size) {
    case 1: scatter_unit1(to, from, n, stride); break;
    case 2: scatter_unit2(to, from, n, stride); break;
    case 4: scatter_unit4(to, from, n, stride); break;
    default: scatter_unit8(to, from, n, stride);
    }
}

/* Move the block between its strided place (element b->at) and the contiguous buffer, row by row. */
static void move_block(const gdi_plan *p, const gdi_plan_operand *o, char *place, char *buffer, const block *b, int out)
{
    const int last = p->ndim - 1;
    int64_t at[GDI_MAX_NDIM], left = b->count, n = p->inner - b->at[last];
    for (int d = 0; d < last; d++)
        at[d] = b->at[d];
    char *row = place - b->at[last] * o->stride[last];
    for (;;) {
        if (n > left)
            n = left;
        if (out)
            scatter_run(o->size, place, buffer, n, o->stride[last]);
        else
            gather_run(o->size, buffer, place, n, o->stride[last]);
        left -= n;
        if (left == 0)
            return;
        buffer += n * o->size;
        int d = last - 1;
        for (; at[d] + 1 == p->shape[d]; d--) {
            row -= at[d] * o->stride[d];
            at[d] = 0;
        }
        at[d]++;
        row += o->stride[d];
        place = row;
        n = p->inner;
    }
}

/* ---- one block ---- */
/* The block of an input as the kernel wants it. */
static const void *load(const gdi_plan *p, const gdi_plan_operand *o, feed *f, const block *b)
{
    char *at = address(p, o, f, b);
    const void *values = at;
    int fresh = 1;
    if (o->feed == GDI_FILL) {
        fresh = f->held != at;
        if (fresh)
            gather_run(o->size, f->raw, at, p->block, 0);
    } else if (o->feed == GDI_ONCE) {
        fresh = !f->held;
        if (fresh)
            move_block(p, o, at, f->raw, b, 0);
    } else if (o->feed == GDI_GATHER) {
        move_block(p, o, at, f->raw, b, 0);
    }
    f->held = at;
    if (o->feed != GDI_DIRECT)
        values = f->raw;
    if (!o->cast)
        return values;
    if (fresh)
        o->cast(o->feed == GDI_FILL ? p->block : b->count, &values, f->wide);
    return f->wide;
}

static void run_block(const gdi_plan *p, feed *f, const block *b)
{
    const void *in[GDI_MAP_OPERANDS - 1];
    const gdi_plan_operand *o = &p->operand[0];
    for (int k = 0; k < p->n_in; k++)
        in[k] = load(p, o + k + 1, f + k + 1, b);
    char *to = address(p, o, f, b);
    char *narrow = o->feed == GDI_DIRECT ? to : f->raw;
    p->fn(b->count, in, o->cast ? f->wide : narrow);
    if (o->cast) {
        const void *wide = f->wide;
        o->cast(b->count, &wide, narrow);
    }
    if (narrow != to)
        move_block(p, o, to, narrow, b, 1);
}

void gdi_map_run(const gdi_plan *p, char *const *base, int64_t lo, int64_t hi, char *local)
{
    feed f[GDI_MAP_OPERANDS];
    block b;
    for (int k = 0; k <= p->n_in; k++) {
        f[k].data = base[p->operand[k].place.base] + p->operand[k].place.offset;
        f[k].raw = local ? local + 2 * k * GDI_BLOCK * 8 : NULL;
        f[k].wide = local ? f[k].raw + GDI_BLOCK * 8 : NULL;
        f[k].held = NULL;
    }
    for (int64_t i = lo; i < hi; i++) {
        locate(p, i, &b);
        run_block(p, f, &b);
    }
}
