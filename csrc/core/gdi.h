/* gdi.h: what the parts of the core share and nobody else sees.
 *
 * Kernels never allocate, never read globals, never call libm on a value's path, and report through a status.
 * Work is cut the same way for every thread count: a kernel says how many independent items a phase has, the
 * executor hands out ranges of items, and what an item computes depends on nothing but its number. */
#ifndef GDI_H
#define GDI_H
#include "../include/graphdiff.h"
#include <stddef.h>

enum { GDI_MAX_NDIM = 32, GDI_ALIGN = 64, GDI_BLOCK = 512 };
/* Private memory of one thread inside run(): packing buffers, converted blocks. */
enum { GDI_LOCAL_NBYTES = 4 << 20 };

/* An operand with its pointer resolved. Strides are in elements and may be 0 (broadcast) or negative (inputs only:
 * an output never has stride 0 on an axis longer than 1). */
typedef struct gdi_operand {
    char *data;
    int32_t dtype, ndim;
    const int64_t *shape, *stride;
} gdi_operand;

/* One call of a structural kernel. In check(), items() and scratch() the data pointers are NULL. */
typedef struct gdi_call {
    const gdi_operand *out, *in;
    int32_t n_out, n_in;
    const int64_t *attr;
    int32_t n_attr;
    char *scratch;           /* shared by the items of this call, scratch() bytes, GDI_ALIGN-aligned, not cleared */
    gd_fault *fault;         /* for GD_OUT_OF_BOUNDS and GD_BAD_VALUE: value, axis, size */
    /* NULL, or what run() calls for the parts of out that are done (see reports): `rows` times `count` elements that lie one after the other,
     * the first of each `step` after that of the one before. local: what run() was given. */
    void (*done)(const struct gdi_call *c, int64_t first, int64_t count, int64_t rows, int64_t step, char *local);
    const struct gdi_tail *tail;
} gdi_call;

/* Of an operand that is one run of elements, item i takes `part` from (i / parts) line + (i % parts) part on, or what is left of the line. */
typedef struct gdi_takes {
    int64_t line, part, parts;
} gdi_takes;

/* A structural kernel. Phases run one after the other; the items of a phase are independent of each other. */
typedef struct gdi_kernel {
    int (*check)(const gdi_call *c);                     /* GD_OK, or GD_BAD_PROGRAM: ranks, shapes, dtypes, attrs */
    int64_t (*scratch)(const gdi_call *c);               /* NULL: none */
    int phases;                                          /* at least 1 */
    int64_t (*items)(const gdi_call *c, int phase);
    int64_t (*grain)(const gdi_call *c, int phase);      /* items that take about 50 us together; NULL: 1 */
    int (*run)(const gdi_call *c, int phase, int64_t lo, int64_t hi, char *local);
    int (*reports)(const gdi_call *c);                   /* does run() call done once for every element? NULL: never */
    int (*takes)(const gdi_call *c, gdi_takes *t);       /* 1: items of phase 0 take the only operand by and by (*t), and no other phase does */
} gdi_kernel;

/* From so many bytes of operands on, they come from beyond the second cache. */
enum { GDI_FAR_NBYTES = 3 << 19 };

/* An elementwise loop over contiguous operands: out may be the same pointer as any operand, else no overlap. */
typedef void (*gdi_map_fn)(int64_t n, const void *const *in, void *out);

/* Two functions of one operand as one loop, each with the bits that it has alone: first and second may be x. */
typedef void (*gdi_two_fn)(int64_t n, const void *const *in, void *first, void *second);

/* A loop of two operands whose neighbours are step[0], step[1] elements apart. */
typedef void (*gdi_stepped_fn)(int64_t n, const void *const *in, const int64_t *step, void *out);

/* out[i, j] = column[i] * row[j] for i < rows, j < n: steps of the column and from row to row of out in bytes. */
typedef void (*gdi_outer_fn)(int64_t rows, int64_t n, const void *column, int64_t column_step, const void *row, void *out, int64_t out_step);

/* A block of two axes to move: out[i*os0 + j*os1] = in[i*is0 + j*is1], 0 <= i < n0, 0 <= j < n1, strides in elements. */
typedef struct gdi_block {
    int64_t n0, n1, os0, os1, is0, is1;
} gdi_block;
typedef void (*gdi_move_fn)(void *out, const void *in, const gdi_block *b);

/* One operation on single elements: where its result and operands lie (where: the condition comes last), and which of
 * them is the result of the operation before. A loop runs n of them. */
enum { GDI_LAST_X = 1, GDI_LAST_Y = 2 };
typedef struct gdi_scalar {
    uint32_t offset[4];      /* bytes from the base; operands that the op does not have: those of the first */
    uint8_t base[4];
    uint16_t op;
    uint8_t last;
} gdi_scalar;
typedef void (*gdi_scalar_fn)(const gdi_scalar *s, int64_t n, char *const *base);

/* The sum of a block of GDI_FOLD_BLOCK elements in pieces: lanes hold 16 elements and start from 0; join gives the sum.
 * columns: the sums of w columns, of which lanes[16][w] hold the first `live` lanes. */
enum { GDI_FOLD_BLOCK = 4096, GDI_FOLD_NBYTES = 128 };
typedef struct gdi_fold {
    void (*add)(void *lanes, const void *values, int64_t n);
    double (*join)(const void *lanes);
    void (*columns)(const void *lanes, int64_t live, int64_t w, double *out);
} gdi_fold;

/* Sums of n contiguous elements of memory, GDI_FOLD_BLOCK at a time; less: a number that is taken off each, or NULL. */
typedef void (*gdi_whole_fn)(const void *values, int64_t n, const void *less, double *part);
/* Sums of blocks lo .. hi-1 of n elements that lie turned: columns of memory of `rows` elements, each `down` elements after the one before, go
 * one after the other. local: GDI_LOCAL_NBYTES. */
typedef void (*gdi_turned_fn)(const void *values, int64_t rows, int64_t down, int64_t n, const void *less, int64_t lo, int64_t hi, void *local,
                              double *part);

/* A block to memory past the caches (stream.h). */
typedef void (*gdi_stream_fn)(void *out, const void *in, int64_t nbytes);

/* Cheap operations on rows of n floats, one after the other on a tile in registers: a chain of links. v is the value that
 * goes through it, a the link's operand: element e of row q is e elements (moves: -1) or none (0) after at + q row_step.
 * + GDI_LINK_SINGLE: one value a row; + GDI_LINK_ONCE: all rows have the same elements. A sum's operand are lanes (+
 * GDI_LINK_SINGLE: it is not the first sum of its chain); a column's is added to (+ GDI_LINK_ONCE: all rows to one, in their order). */
enum gdi_link_op {
    GDI_LINK_LOAD, GDI_LINK_ADD, GDI_LINK_SUBTRACT, GDI_LINK_SUBTRACT_FROM, GDI_LINK_MULTIPLY, GDI_LINK_ZMUL, GDI_LINK_ZMUL_BY,
    GDI_LINK_ZMUL_EITHER, GDI_LINK_DIVIDE, GDI_LINK_DIVIDE_BY, GDI_LINK_NEGATIVE, GDI_LINK_SQUARE, GDI_LINK_STORE, GDI_LINK_SUM,
    GDI_LINK_COLUMN,
    GDI_LINK_SINGLE = 16, GDI_LINK_ONCE = 32
};
enum { GDI_ROWS_DEEP = 4 };             /* rows that are added to one column at once */
typedef struct gdi_link {
    char *at;
    int64_t row_step, moves;
    int32_t op;
} gdi_link;
typedef void (*gdi_chain_fn)(const gdi_link *l, int64_t links, int64_t n, int64_t rows);
/* The loop that does these links, whose addresses need not be there yet: one made for them, or the one that does any. */
typedef gdi_chain_fn (*gdi_chain_find)(const gdi_link *l, int64_t links);

/* Rows of n floats normalised, one `step` bytes after the other: y = (x - mean) / sqrt(variance + eps), by gamma, plus beta,
 * which all rows have (NULL: without). With g, the gradient of y: that of x, and sums down the columns of g and of g by what gamma
 * is applied to, added to; y may then be NULL. */
typedef struct gdi_norm {
    const char *x, *g, *gamma, *beta;
    char *y, *dx, *sum_g, *sum_gx;
    const void *count, *eps;
    char *spare;                                         /* memory for a row (without g) */
    int64_t n, rows, step;
    int32_t moments;                                     /* 2: the mean is corrected once, 1: it is not, 0: there is none */
    int32_t divide;                                      /* by the root, not multiplied by its reciprocal */
} gdi_norm;
typedef void (*gdi_norm_fn)(const gdi_norm *a);

/* The same of one row of up to GDI_NORM_PARTS blocks of a sum, which lies in pieces of `run` elements, a multiple of 16 if there are several:
 * every pointer is that of the first piece, its hop the bytes to the next one. gamma and beta are one value each (NULL: without), and
 * so are the sums of g (NULL: unwanted) and of its products. */
enum { GDI_NORM_PARTS = 256 };
typedef struct gdi_norm_row {
    const char *x, *g;
    char *y, *dx;
    int64_t x_hop, g_hop, y_hop, dx_hop, n, run;
    const void *gamma, *beta, *count, *eps;
    void *sum_g, *sum_gx;
    double *parts;                                       /* memory for three times as many sums of blocks */
    int32_t moments, divide;
} gdi_norm_row;
typedef void (*gdi_norm_row_fn)(const gdi_norm_row *a);

#include "ops.h"             /* enum gdi_op, generated from ops/<family>.def by the preprocessor */

/* Several operations as one loop (loops.c), longer expressions before those they contain, and how many inputs one may have. */
enum gdi_loop { GDI_LOOP_ROOT_STEP, GDI_LOOP_BLEND_SQUARE, GDI_LOOP_BLEND, GDI_LOOP_GATE, GDI_LOOP_DIFFERENCE, GDI_LOOP_OPPOSITE, GDI_LOOPS };
enum { GDI_LOOP_VALUES = 5 };
/* Two results of one loop: functions of one value, relu with what it lets through, and sigmoid(x) with sigmoid(-x). */
enum gdi_two { GDI_TWO_SIGMOID, GDI_TWO_TANH, GDI_TWO_SIN, GDI_TWO_GATE, GDI_TWO_SIGMOIDS, GDI_TWOS };

/* One table per ISA, in isa/maps_<isa>.c. */
typedef struct gdi_table {
    const char *name;
    int (*supported)(void);
    gdi_map_fn map[GD_MAP_COUNT][GD_DTYPE_COUNT];        /* by op and operand dtype (where: dtype of the branches) */
    gdi_map_fn single[GD_MAP_COUNT][GD_DTYPE_COUNT][2];  /* the same where operand 0, 1 is one element; NULL: there is none */
    gdi_stepped_fn stepped[GD_MAP_COUNT][GD_DTYPE_COUNT];    /* of one or two operands of 4 or 8 bytes an element; NULL: there is none */
    gdi_map_fn half[GD_MAP_COUNT];                       /* of float16 as it is; NULL: by way of float32 */
    gdi_map_fn clip[GD_DTYPE_COUNT][2];                  /* minimum(maximum(x, y), z); [1]: where y and z are one element */
    gdi_map_fn cast[GD_DTYPE_COUNT][GD_DTYPE_COUNT];     /* from, to */
    const gdi_kernel *kernel[GD_KERNEL_COUNT];           /* by op - GD_MAP_COUNT */
    gdi_move_fn move[9];                                 /* by bytes of an element: 1, 2, 4, 8 */
    gdi_scalar_fn scalar[2];                             /* float32, float64 */
    gdi_whole_fn whole[GD_DTYPE_COUNT];                  /* of integers as float64, of squares of floats */
    gdi_whole_fn whole_less[2][2];                       /* float32, float64: of elements less a number, of squares of that */
    gdi_turned_fn turned[2][2];                          /* the same */
    gdi_stream_fn stream;
    gdi_fold fold[2];                                    /* float32, float64 */
    gdi_chain_find chain[2];                             /* float32, float64 */
    gdi_map_fn loop[2][GDI_LOOPS];                       /* float32, float64 */
    gdi_two_fn two[2][GDI_TWOS];                         /* float32, float64 */
    gdi_map_fn pair[2][4][6][3];     /* float32, float64: see gdi_pair_lookup; of blocks, with y and z one element, with x and z */
    gdi_map_fn choice[2][3][3][3];   /* float32, float64; ==, <, <=; of the compared, of those chosen from: none is one element, the first, the second */
    double (*peak[2])(int64_t rounds);                   /* float32, float64: multiply-adds and nothing else */
    int peak_flops[2];                                   /* of one round */
    gdi_norm_fn norm[2], norm_back[2];                   /* float32, float64; NULL: there is none */
    gdi_norm_row_fn norm_row[2];                         /* the same */
    gdi_outer_fn outer[2][2];                            /* float32, float64: the column is the first factor, the second */
} gdi_table;

const gdi_table *gdi_active(void);

/* a + b and a * b for sizes: 0 and *out set, or nonzero on overflow. The only way sizes are combined. */
static inline int gdi_mul(int64_t a, int64_t b, int64_t *out) { return __builtin_mul_overflow(a, b, out); }
static inline int gdi_add(int64_t a, int64_t b, int64_t *out) { return __builtin_add_overflow(a, b, out); }

void *gdi_alloc(int64_t nbytes);     /* GDI_ALIGN-aligned, cleared; NULL when out of memory */
void *gdi_alloc_sparse(int64_t nbytes);      /* the same in small pages: of which little may be used */
void gdi_free(void *p);
int64_t gdi_now_ns(void);
int64_t gdi_l1_nbytes(void);         /* of a core's first data cache, 0 when unknown: for choices that no bit of a result depends on */
enum { GDI_LARGE_L1 = 48 << 10 };    /* from so many on, products and what goes past the caches are read ahead otherwise: see there */
#endif
