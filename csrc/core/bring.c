/* bring.c: elements of a plan's operand brought to its buffer as the loops want them, and those of a result to where it lies. */
#include "bring.h"

/* Runs shorter than this are moved here: more are worth a call of the ISA's own, which shuffles small strides. One value again
 * and again is soon written. */
enum { SHORT_RUN = 24, SHORT_FILL = 128 };
INLINE void move_any(int size, const gdi_plan_operand *o, char *to, int64_t to_stride, const char *from, int64_t from_stride, int64_t n)
{
    if (n < SHORT_RUN || (from_stride == 0 && n <= SHORT_FILL))
        move_run(size, to, to_stride, from, from_stride, n);
    else
        o->move(to, from, &(gdi_block){1, n, 0, to_stride / size, 0, from_stride / size});
}

/* What is there, `have` bytes, again and again until there are `total`. */
static void copy_on(char *buffer, int64_t have, int64_t total)
{
    for (; have < total; have += least(have, total - have))
        memcpy(buffer + have, buffer, (size_t)least(have, total - have));
}

/* n elements from `place`, which has the coordinates b->at, to the buffer or back, run after run. */
INLINE void walk(int size, int out, const gdi_plan *p, const gdi_plan_operand *o, char *place, char *buffer,
                 const block *b, int64_t left)
{
    const int64_t stride = o->stride[p->ndim - 1];
    const int before = o->axis - 1;
    int64_t at[GDI_MAX_NDIM], n = o->run - in_run(p, o, b);
    for (int d = 0; d <= before; d++)
        at[d] = b->at[d];
    char *row = place - (o->run - n) * stride;
    for (;;) {
        n = least(n, left);
        if (!out && stride == 0 && n == o->run && left >= 2 * n && n <= SHORT_FILL) {       /* each value of an axis n times */
            const int64_t more = least(p->shape[before] - at[before], left / n) - 1;
            o->move(buffer, row, &(gdi_block){more + 1, n, n, 1, o->stride[before] / size, 0});
            buffer += more * n * size;
            left -= more * n;
            at[before] += more;
            row += more * o->stride[before];
        } else if (out)
            move_any(size, o, place, stride, buffer, size, n);
        else
            move_any(size, o, buffer, size, place, stride, n);
        left -= n;
        if (left == 0)
            return;
        int d = before;
        if (!out && o->stride[d] == 0 && n == o->run && left >= n) {     /* the same run for the rest of this axis */
            const int64_t more = least(p->shape[d] - 1 - at[d], left / n);
            copy_on(buffer, n * size, (1 + more) * n * size);
            buffer += more * n * size;
            left -= more * n;
            at[d] += more;
            if (left == 0)
                return;
        }
        buffer += n * size;
        for (; at[d] + 1 == p->shape[d]; d--) {
            row -= at[d] * o->stride[d];
            at[d] = 0;
        }
        at[d]++;
        row += o->stride[d];
        place = row;
        n = o->run;
    }
}

void gdi_bring_gather(const gdi_plan *p, const gdi_plan_operand *o, char *place, char *buffer, const block *b, int64_t n)
{
    BY_SIZE(o->size, walk(S, 0, p, o, place, buffer, b, n))
}

void gdi_bring_scatter(const gdi_plan *p, const gdi_plan_operand *o, char *place, char *buffer, const block *b)
{
    BY_SIZE(o->size, walk(S, 1, p, o, place, buffer, b, b->count))
}

/* The rows of a tile, some columns at a time: in memory each column is a cache line or two of its own, mostly in a page of
 * its own, which no hardware prefetches: without AHEAD this is 3 times slower. 8 and 16 columns are too near for memory; all
 * 128 push each other out of L1 where strides are powers of 2. */
enum { AHEAD = 32 };
void gdi_bring_gather_tile(const gdi_plan *p, const gdi_plan_operand *o, const char *place, char *buffer, const block *b)
{
    const int64_t across = o->stride[p->ndim - 1], down = o->stride[p->ndim - 2], size = o->size;
    for (int64_t j = 0; j < b->count; j += AHEAD) {
        const int64_t n = least(AHEAD, b->count - j);
        for (int64_t k = j + AHEAD; k < least(j + 2 * AHEAD, b->count); k++) {
            __builtin_prefetch(place + k * across);
            __builtin_prefetch(place + k * across + (b->rows - 1) * down);
        }
        o->move(buffer + j * size, place + j * across, &(gdi_block){b->rows, n, GDI_TILE_STRIDE, 1, down / size, across / size});
    }
}

void gdi_bring_fill(const gdi_plan_operand *o, const char *value, char *buffer, int64_t n)
{
    BY_SIZE(o->size, move_run(S, buffer, S, value, 0, n))
}

void gdi_bring_repeat(const gdi_plan *p, const gdi_plan_operand *o, char *place, char *buffer, const block *b)
{
    const int64_t have = least(o->period, b->count);
    gdi_bring_gather(p, o, place, buffer, b, have);
    copy_on(buffer, have * o->size, b->count * o->size);
}

/* More columns of memory are brought behind what is left when it does not reach:
 * to the end of a cache line, so that no line is read twice, or, from beyond L2, of a pair of lines, which come together; and not many
 * more than stay in L1 with the lines they come from. */
enum { FLOW_NBYTES = 20 << 10, FLOW_NEAR = 2 << 20, LINE_NBYTES = 64 };
const char *gdi_bring_flow(const gdi_plan *p, const gdi_plan_operand *o, feed *f, int64_t at, int64_t n)
{
    const int64_t size = o->size, rows = o->rows, line = LINE_NBYTES << (p->inner * size > FLOW_NEAR && rows <= GDI_FLOW_PAIRS);
    const int64_t lines = FLOW_NBYTES / (rows * line), width = (lines > 0 ? lines : 1) * line;
    while (at < f->first || at + n > f->end) {
        if (at < f->first || at > f->end) {
            f->first = f->end = at / rows * rows;            /* the first block, which may begin inside a column */
        } else {
            memmove(f->raw, f->raw + (at - f->first) * size, (size_t)((f->end - at) * size));
            f->first = at;
        }
        const int64_t column = f->end / rows;
        const char *from = f->data + column * size;
        const int64_t inside = width - (int64_t)((uintptr_t)from % (uintptr_t)line), some = least(p->inner / rows - column, parts(inside, size));
        o->move(f->raw + (f->end - f->first) * size, from, &(gdi_block){some, rows, rows, 1, 1, o->down / size});
        f->end += some * rows;
    }
    return f->raw + (at - f->first) * size;
}
