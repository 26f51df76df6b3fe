/* bring.h: what a plan of blocks runs with, and how it gets the blocks of operands that do not lie as its loops read them. */
#ifndef GDI_BRING_H
#define GDI_BRING_H
#include "blocks.h"

/* The block, or with rows > 1 the tile, being run. */
typedef struct block {
    int64_t count, rows;
    int64_t at[GDI_MAX_NDIM];
} block;

/* An operand during the run. */
typedef struct feed {
    char *data;              /* element [0, 0, ..] */
    char *raw, *wide;        /* buffers: gathered elements; float16 as float32 */
    const char *held;        /* GDI_FILL, GDI_ONCE, GDI_AGAIN: the address `raw` was filled from */
    int64_t first, end;      /* GDI_FLOW: the elements that are in `raw`; GDI_AGAIN: `end` of them */
} feed;

/* bring.c. b: the block; place, to: its first element in memory; buffer: elements side by side. */
void gdi_bring_gather(const gdi_plan *p, const gdi_plan_operand *o, char *place, char *buffer, const block *b, int64_t n);
void gdi_bring_scatter(const gdi_plan *p, const gdi_plan_operand *o, char *place, char *buffer, const block *b);
void gdi_bring_gather_tile(const gdi_plan *p, const gdi_plan_operand *o, const char *place, char *buffer, const block *b);
void gdi_bring_fill(const gdi_plan_operand *o, const char *value, char *buffer, int64_t n);
/* One period, then copies of what is there. */
void gdi_bring_repeat(const gdi_plan *p, const gdi_plan_operand *o, char *place, char *buffer, const block *b);
/* Elements at .. at+n-1 of an operand that is turned. */
const char *gdi_bring_flow(const gdi_plan *p, const gdi_plan_operand *o, feed *f, int64_t at, int64_t n);
/* Elements from the beginning of operand o's run to the block. */
static inline int64_t in_run(const gdi_plan *p, const gdi_plan_operand *o, const block *b)
{
    int64_t at = 0;
    for (int d = o->axis; d < p->ndim; d++)
        at = at * p->shape[d] + b->at[d];
    return at;
}
#endif
