/* rows.h: an instruction that does everything to a row before the next one: elementwise operations, sums of the row,
 * operations on those sums, elementwise operations that use them, and so on.
 *
 * Operands: whole ones have the kept axes and then the axes of a row; small ones the kept axes; columns those of a row. The
 * attributes are lines as of a fused group (program.h), with two more kinds of values after the registers: GDI_KEPT registers
 * that hold a whole row until the next, and GDI_STATS of one value a row. A line of opcode -1 begins a section, a sweep over
 * the elements of a row or operations on stats: 2 kept axes + (1: stats) is its second number. Registers last for a section;
 * a sum of a row is there from the end of its section on. A sum with fifth number 1 goes down the columns, to an output. */
#ifndef GDI_ROWS_H
#define GDI_ROWS_H
#include "program.h"
#include "norm.h"

enum { GDI_KEPT = 32, GDI_STATS = 32, GDI_FILLS = 64 };
/* Numbers of values from the last operand on; fills are the plan's own: a stat as a block. */
enum { GDI_AT_KEPT = GDI_FUSED_REGISTERS, GDI_AT_STATS = GDI_AT_KEPT + GDI_KEPT, GDI_AT_FILLS = GDI_AT_STATS + GDI_STATS };
enum { GDI_ROW_VALUES = GDI_FUSED_OPERANDS + GDI_AT_FILLS + GDI_FILLS };
/* A row is never cut: an item has at least one. */
enum { GDI_LONGEST_ROW = 1 << 20, GDI_ROW_LANES = 16 };
/* Links of a chain. */
enum { GDI_CHAIN = 128 };

enum gdi_row_class { GDI_WHOLE, GDI_SMALL_VALUE, GDI_COLUMN };

/* How a whole operand is found, or a small input. */
enum gdi_row_feed {
    GDI_ROW_DIRECT,          /* blocks are contiguous in memory */
    GDI_ROW_GATHER,          /* element by element, or run by run */
    GDI_ROW_TURNED,          /* as a block of two axes, all rows of a batch at once */
    GDI_ROW_ONCE,            /* all rows have the same elements: gathered once */
    GDI_ROW_VALUE,           /* one value a row, brought together for a batch */
    GDI_ROW_CONSTANT         /* one value */
};

typedef struct gdi_row_operand {
    gdi_place place;
    const int64_t *stride;   /* bytes: kept axes, then those of a row; small: kept axes */
    int64_t buffer;          /* its place in private memory, -1: none */
    int64_t lanes;           /* columns: where its lanes begin in scratch */
    const gdi_fold *fold;    /* columns */
    gdi_move_fn move;        /* of elements of this size */
    int8_t feed, cls, size;
} gdi_row_operand;

/* Before a block of a section (fills: before its first): operand `from` is pointed to or gathered, or value `from` fills a
 * block. After it, gathered outputs are scattered. */
enum gdi_row_move { GDI_MOVE_POINT, GDI_MOVE_GATHER, GDI_MOVE_TURN, GDI_MOVE_FILL, GDI_MOVE_SCATTER };
typedef struct gdi_row_move_of {
    uint8_t what, from, to, size;
} gdi_row_move_of;

typedef struct gdi_row_sink {
    const gdi_fold *fold;
    uint8_t to, size;
} gdi_row_sink;

typedef struct gdi_section {
    int32_t stats;           /* operations on one value a row */
    int32_t fills;           /* some move is a fill */
    int32_t micro, n_micro, link, move, n_move, sink, n_sink;
} gdi_section;

typedef struct gdi_rows {
    int32_t n_out, n_in, n_kept, n_axes;
    int32_t n_section, n_columns;
    gdi_section *section;
    gdi_micro *micro;        /* without a function: a chain, the next `to` links */
    gdi_link *link;          /* without addresses */
    uint8_t *value;          /* of every link: the number of the value or sum that is its operand */
    gdi_row_move_of *move;
    gdi_row_sink *sink;
    gdi_row_operand *operand;
    const int64_t *shape;    /* kept axes, then those of a row */
    int64_t rows, n, run;    /* run: of a row, elements that are contiguous in all direct operands */
    int64_t batch;           /* rows of an item: they are done together when rows are short */
    int64_t block;           /* elements of a block: all of a batch, or a part of a row */
    int32_t deep;            /* GDI_ROWS_DEEP rows of one lane are done together, 16 rows apart: a chain that only adds to columns */
    int32_t flat;            /* deep, and all lanes of a batch as one row: rows follow each other in all operands */
    int64_t items, grain;
    gdi_chain_fn *chain;     /* by number of a micro: its loop, if it is a chain; all are of one dtype */
    gdi_norm_fn norm;        /* all of a row at once (norm.h), instead of the sections; else NULL */
    gdi_norm_row_fn norm_row;                /* the same, one row at a time, where they are long or in pieces; else NULL */
    int32_t packed;                          /* norm_row: pieces are brought together in private memory first */
    gdi_norm_found found;
    int64_t spare, spare_nbytes;             /* private memory: a row of it; packed: three, one after the other */
    int32_t n_link;
    int32_t n_held, element_nbytes;          /* registers that hold a row; bytes of the largest element */
    int64_t registers, register_nbytes, kept, kept_nbytes, stats, fills, parts, lanes, links;    /* private memory */
} gdi_rows;

int gdi_rows_prepare(gd_program *p, const gd_program_spec *s, const gdi_table *t, const gd_instr *in, gdi_step *out);
void gdi_rows_run(const gdi_rows *p, char *const *base, int64_t lo, int64_t hi, char *local, char *scratch);
/* after all items: the sums of columns, whose lanes are in scratch */
void gdi_rows_join(const gdi_rows *p, char *const *base, char *scratch);
#endif
