/* ahead.c: which plans ask memory for lines of blocks to come while they compute, and of which operands. Measured; no bit depends on it. */
#include "map_plan.h"
#include "blocks.h"

/* Groups of so many bytes of arrays wait for memory at the start of every block. Where functions take longer than memory does, of
 * which there must be one for so many elements read or written, or where several results go past the caches, lines of blocks to come
 * arrive meanwhile: a chain of tanh, sigmoid and exp with its gradients takes 2.7 ns an element instead of 3.4, x y + z with its
 * own 1.4 instead of 1.9; on a Xeon exp of 10^7 float64 by itself 8.5 ms instead of 12.1. One or two operations only lose by it on
 * Zen 4, which finds the lines of so few arrays by itself and waits for those that are asked for all at once (10^7 float32, tanh: 4.6 ms
 * instead of 3.7), while on the Xeon, which has the larger L1, everything that goes past the caches gains (10^7 int64 times 3: 8.0 ms
 * instead of 12.4).
 *     Of six arrays Zen 4 no longer finds all: there it helps as soon as the last cache has them, most of all where others use that too,
 * and as long as they are not many bytes what is to be written is enough. The chain of 10^5 float32 takes 165 us instead of 215 while
 * another core computes (158 instead of 152 while none does), that of 3 x 10^5 560 instead of 770; tanh(x) y, softplus(x) y + z and x / y with
 * their gradients, and the step of an optimiser, of 3 x 10^5 to 10^6, two thirds to nine tenths of their time. Of fewer arrays, what the
 * last cache has takes up to a fifth longer. */
enum { AHEAD_NBYTES = 24 << 20, AHEAD_FUNCTION = 2, AHEAD_MICRO = 3 };
enum { AHEAD_ARRAYS = 6, AHEAD_NEAR_NBYTES = 4 << 20, AHEAD_NEAR_FUNCTION_NBYTES = 3 << 20, AHEAD_ALL_NBYTES = 8 << 20 };

void gdi_plan_ahead(gdi_plan *p, const gdi_layout *l, int64_t functions)
{
    const int n = p->n_out + p->n_in;
    int64_t direct = 0, first = 0;
    for (int k = 0; k < n; k++) {
        const gdi_plan_operand *o = p->operand + k;
        if (o->size != p->operand[0].size)
            return;
        direct += o->feed == GDI_DIRECT && !o->stream;
        first += o->feed == GDI_DIRECT && !o->stream && k < p->n_out;
    }
    const int64_t total = gdi_layout_nbytes(l, p->n);
    const int large = gdi_l1_nbytes() >= GDI_LARGE_L1;
    const int more = large || functions >= AHEAD_MICRO || p->n_out > 1;
    const int functions_wait = more && functions * AHEAD_FUNCTION * p->operand[0].size * p->n >= total;
    const int many = gdi_plan_streams(p) && ((p->n_out > 1 && p->n_micro >= AHEAD_MICRO) || large);
    const int near = direct >= AHEAD_ARRAYS && total >= (functions > 0 ? AHEAD_NEAR_FUNCTION_NBYTES : AHEAD_NEAR_NBYTES);
    if (p->dear || !(near || (total >= AHEAD_NBYTES && (functions_wait || many))))
        return;
    p->ahead_operands = total < AHEAD_ALL_NBYTES ? p->n_out : n;
    p->ahead_lines = parts((total < AHEAD_ALL_NBYTES ? first : direct) * parts(p->block * p->operand[0].size, GDI_ALIGN), p->n_micro);
}
