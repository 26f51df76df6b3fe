/* past.c: what goes past the caches: which results do, and the loop of a single operation whose result does. Measured; no bit depends
 * on it. */
#include "map_plan.h"
#include "blocks.h"
#include "stream.h"

int gdi_plan_is_updated(const gdi_plan *p, int k)
{
    for (int i = p->n_out; i < p->n_out + p->n_in; i++)
        if (p->operand[i].place.base == p->operand[k].place.base && p->operand[i].place.offset == p->operand[k].place.offset)
            return 1;
    return 0;
}

/* Does what is computed take longer than memory does? Functions of two arrays (pow and arctan2 of 10^7 elements: 1.15 to 1.25 times as
 * fast as with a result that goes past the caches), and on Zen 4 those of one that need not be gathered, with whatever else is done to it
 * (10^7 float32: log 3.6 -> 2.9 ms, exp 2.75 -> 2.4, tan 5.0 -> 4.25; of every other element it would take a fifth longer). */
static int is_dear(const gdi_plan *p, const gdi_layout *l, int64_t functions)
{
    int arrays = 0, apart = 0;
    for (int k = p->n_out; k < p->n_out + p->n_in; k++)
        if (gdi_layout_period(l, k, 0) == p->n) {
            arrays++;
            apart |= l->stride[k][l->ndim - 1] != l->size[k];
        }
    if (functions == 0 || p->n_out > 1 || p->n_sink > 0)
        return 0;
    return (p->n_micro == 1 && p->n_in == 2) || (arrays == 1 && !apart && gdi_l1_nbytes() < GDI_LARGE_L1);
}

/* Outputs that are one run of large arrays. Of several, one that is written over an input is in the cache already; and of one operation, a
 * small part of all that is read and written is not worth blocks as short as these are (10^7 float32 compared: 5.1 instead of 6.0 ms; tests
 * of one array, a fifth of which is the result, gain a tenth). Nor is what is dear: it would wait for a block to be gone, which it
 * otherwise computes beside. */
void gdi_plan_past(gdi_plan *p, const gdi_layout *l, int64_t functions)
{
    enum { PART = 4 };
    const int64_t all = gdi_layout_nbytes(l, p->n), least = p->n_micro == 1 ? all / PART : 0;
    p->dear = is_dear(p, l, functions);
    for (int k = 0; k < p->n_out; k++)
        p->operand[k].stream = (int8_t)(p->n_sink == 0 && gdi_layout_is_flat(l, k) && !p->operand[k].cast && all >= GDI_STREAM_NBYTES
                                        && !p->dear && p->operand[k].size * p->n >= least && (p->n_out == 1 || !gdi_plan_is_updated(p, k)));
}

int gdi_plan_streams(const gdi_plan *p)
{
    for (int k = 0; k < p->n_out; k++)
        if (p->operand[k].stream)
            return 1;
    return 0;
}

/* Pieces so short that one is on its way while the next is computed: the stores of one fill the processor's buffers for them, and it waits
 * for memory when more come. What takes longer than memory leaves it less to wait for by even shorter ones. (10^7 float32, in blocks of
 * 2 KB that are found by divisions and in pieces: sqrt 2.75 -> 2.05 ms, 1/x 2.15 -> 1.75, x y + z 4.55 -> 4.2, clip 2.0 -> 1.7; relu 1.62
 * either way, in pieces of 1, 4, 8 KB 1.75, 1.8, 1.86.) */
int32_t gdi_plan_piece(const gdi_plan *p, int64_t cost)
{
    enum { DEAR = 4, SHORT_NBYTES = 1024, LONG_NBYTES = 2048 };
    const gdi_micro *m = p->micro;
    int fit = p->n_out == 1 && p->n_in < GDI_MAP_OPERANDS && p->n_micro == 1 && m->fn && m->to == 0 && p->operand[0].stream && !p->by_row && !p->span
              && p->ahead_lines == 0;
    for (int k = 1; fit && k <= p->n_in; k++)
        fit = (p->operand[k].feed == GDI_DIRECT || p->operand[k].feed == GDI_SINGLE) && !p->operand[k].cast;
    return !fit ? 0 : cost >= DEAR ? SHORT_NBYTES : LONG_NBYTES;
}

/* All pieces but the first begin with a cache line of the result. */
void gdi_past_run(const gdi_plan *p, char *const *base, int64_t lo, int64_t hi, char *buffer)
{
    const gdi_micro *m = p->micro;
    const int64_t size = p->operand[0].size, piece = p->past / size, end = least(hi * p->block, p->n);
    const char *at[GDI_MAP_OPERANDS];
    int64_t step[GDI_MAP_OPERANDS];
    for (int k = 0; k <= p->n_in; k++) {
        const gdi_plan_operand *o = p->operand + k;
        step[k] = o->feed == GDI_SINGLE ? 0 : o->size;
        at[k] = base[o->place.base] + o->place.offset + lo * p->block * step[k];
    }
    char *to = base[p->operand[0].place.base] + p->operand[0].place.offset;
    int64_t n = (int64_t)(-(uintptr_t)at[0] % GDI_ALIGN) / size + piece;
    for (int64_t i = lo * p->block; i < end; i += n, n = piece) {
        n = least(n, end - i);
        const void *const in[GDI_LOOP_VALUES] = {at[m->from[0]], at[m->from[1]], at[m->from[2]], at[m->from[3]], at[m->from[4]]};
        m->fn(n, in, buffer);
        p->stream(to + i * size, buffer, n * size);
        for (int k = 1; k <= p->n_in; k++)
            at[k] += n * step[k];
    }
    gdi_stream_end();
}
