/* rows_plan.h: what the plan of an instruction over rows (rows.h) is made with. */
#ifndef GDI_ROWS_PLAN_H
#define GDI_ROWS_PLAN_H
#include "rows.h"

enum { GDI_ROWS_BLOCK_NBYTES = 16384 };       /* of a block, in bytes of the largest element */
/* Registers that hold rows, of all kinds: more would not stay in a core's caches. */
enum { GDI_ROWS_HELD_NBYTES = 8 << 20 };

typedef struct gdi_rows_draft {
    int n_out, n, kept, lines;               /* operands; kept axes; lines of attributes */
    const int64_t *line;
    const gd_view *view[GDI_FUSED_OPERANDS];
    int64_t size[GDI_FUSED_OPERANDS];
    int8_t cls[GDI_FUSED_OPERANDS];
    int n_kept, n_axes;
    int64_t shape[2 * GDI_MAX_NDIM], stride[GDI_FUSED_OPERANDS][2 * GDI_MAX_NDIM];     /* bytes; kept axes, then the others */
    int64_t rows, count;
} gdi_rows_draft;

/* What the sections of a plan are written by, a line of attributes after the other. */
typedef struct gdi_rows_writer {
    gdi_rows *p;
    const gdi_rows_draft *a;
    const gdi_table *t;
    int dtype[GDI_ROW_VALUES];
    uint8_t fill[GDI_ROW_VALUES];            /* in this section: the fill of a value, less the first one's number, plus 1 */
    uint8_t seen[GDI_FUSED_OPERANDS];        /* in this section: the operand has its move */
    uint8_t turned[GDI_FUSED_OPERANDS];      /* in this one or one before */
    int n_fill, most_fills, most_registers, most_held;
    gdi_section *section;
    gdi_micro *micro, *chain;                /* the chain that may go on, or NULL */
    int in_hand;                             /* the value that is in its registers, -1: none */
    int64_t chain_dtype;
    int chain_sums;
    gdi_row_move_of *move;
    gdi_row_sink *sink;
    int64_t cost;
} gdi_rows_writer;

/* rows_plan.c: are axes first .. last-1 of operand k one run of elements that ends the array? Has it the same element all along them? */
int gdi_rows_is_flat(const gdi_rows_draft *a, int k, int first, int last);
int gdi_rows_is_still(const gdi_rows_draft *a, int k, int first, int last);
/* rows_write.c: sections, chains, moves and sums of all lines */
int gdi_rows_write(gdi_rows_writer *w);
/* rows_norm.c: the loop that does all of a row at once, if the lines are what it does */
void gdi_rows_find_norm(gdi_rows *p, const gdi_rows_draft *a, const gdi_table *t);
#endif
