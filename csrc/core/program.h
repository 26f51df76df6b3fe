/* program.h: a verified program ready to run, and what its parts (check, program, map, exec, pool) share.
 *
 * An instruction becomes one step of 48 bytes. A million scalar steps are a common program and are read once a run
 * from memory, so a step holds no more than the hot loop needs; everything else hangs off it in a record of its own. */
#ifndef GDI_PROGRAM_H
#define GDI_PROGRAM_H
#include "gdi.h"

/* Why a program is refused (or a run cannot start); gd_fault.what is the number. */
#define GDI_REASONS(X) \
    X(OK, "nothing is wrong") \
    X(TABLES, "a table is missing or has a negative length") \
    X(BASES, "the table of bases is wrong: at least arena and constants, sizes not negative, access 0 or 1") \
    X(CONSTANTS, "the size of the constants' base is not the size of the constants") \
    X(COMMIT, "the first uninterrupted instruction is not in the program") \
    X(VIEW_BASE, "a view names a base that does not exist") \
    X(VIEW_DTYPE, "a view's dtype does not exist") \
    X(VIEW_NDIM, "a view has a negative number of axes or more than 32") \
    X(VIEW_DIMS, "a view's sizes and strides are not in the table of dims") \
    X(VIEW_SIZE, "a view has a negative size or too many elements") \
    X(VIEW_STRIDE, "a view's stride is too large") \
    X(VIEW_OFFSET, "a view's offset is not a multiple of its element size") \
    X(VIEW_BOUNDS, "a view reaches outside its base") \
    X(OP, "the opcode does not exist") \
    X(ARITY, "the op does not take this number of operands") \
    X(ARGS, "the operands are not in the table of args or views") \
    X(ATTRS, "the attributes are not in the table of attrs") \
    X(READ_ONLY, "the output lies in a base that is read only") \
    X(OVERLAP, "elements of the output share memory") \
    X(ALIAS, "the output overlaps an input in a way the op does not allow") \
    X(SHAPE, "an elementwise operand's shape is not the output's") \
    X(DTYPE, "the dtypes of the operands do not fit the op") \
    X(KERNEL, "there is no kernel for these dtypes") \
    X(MICRO, "an operation of a fused group reads or writes what it may not") \
    X(CALL, "the kernel refuses these shapes, dtypes or attributes") \
    X(NULL_BASE, "a base that the program uses has no memory") \
    X(WORKSPACE, "the workspace was made for another program")
enum gdi_reason {
#define GDI_REASON(NAME, text) GDI_REASON_##NAME,
    GDI_REASONS(GDI_REASON)
#undef GDI_REASON
    GDI_REASON_COUNT
};

enum { GDI_MAX_OPERANDS = 64, GDI_MAX_THREADS = 64, GDI_MAP_OPERANDS = 4 };
/* A line may also be GD_OP_SUM: its result is an output without the group's last axes, as many as the second operand
 * says, and the only thing done with it. These axes must be one run of elements in every operand,
 * or, where the sum lacks all axes, two axes that lie turned (gdi_layout_flow).
 * A fused group: its attributes are one line of six integers an operation: opcode, dtype of the result, number of the
 * result, numbers of up to three operands (-1: none). Numbers below n_out + n_in are the instruction's operands, the
 * next GDI_FUSED_REGISTERS are blocks of the group's own. */
enum { GDI_FUSED_OPERANDS = 32, GDI_FUSED_REGISTERS = 32, GDI_FUSED_LINE = 6, GDI_FUSED_LINES = 256 };
/* A turned operand is gathered in tiles: 32 rows use up most of the cache lines they touch, 512 columns make what is done for a row
 * worth it: with 128, x.T + x took up to twice as long. Rows of a power of 2 would push each other out of L1. */
enum { GDI_TILE_ROWS = 32, GDI_TILE_COLUMNS = 512, GDI_TILE_STRIDE = GDI_TILE_COLUMNS + 16 };

/* ---- steps ---- */
enum gdi_step_kind {
    GDI_NOTHING,             /* no elements */
    GDI_SCALARS,             /* this and the n - 1 steps after it: floats of one element each */
    GDI_SMALL,               /* elementwise, all operands flat, few elements: one call */
    GDI_FLAT,                /* the same, many elements: cut into slices */
    GDI_BLOCKS,              /* elementwise with a gdi_plan */
    GDI_ROWS,                /* a plan of rows (rows.h) */
    GDI_STRUCTURAL,          /* a kernel with a gdi_launch */
    GDI_HEAD                 /* done with the next step, which is structural */
};

typedef struct gdi_step {
    union {
        struct {
            gdi_map_fn fn;
            uint64_t ref[GDI_MAP_OPERANDS];  /* out, in..: base number in the top 16 bits, offset in bytes below */
        } flat;
        struct {
            gdi_scalar_fn run;
            const gdi_scalar *first;
        } scalars;
        struct gdi_plan *plan;
        struct gdi_rows *rows;
        struct gdi_launch *launch;
        const struct gdi_step *head;
    } u;
    uint32_t n;              /* GDI_SMALL, GDI_FLAT: elements; GDI_SCALARS: steps */
    uint8_t kind;
    uint8_t log2_sizes;      /* two bits an operand: log2 of its element size */
    uint16_t cost;           /* GDI_SMALL: estimated ns of the call; GDI_FLAT: quarter ns per element */
} gdi_step;

enum { GDI_REF_SHIFT = 48 };
static inline char *gdi_resolve(char *const *base, uint64_t ref)
{
    return base[ref >> GDI_REF_SHIFT] + (ref & (((uint64_t)1 << GDI_REF_SHIFT) - 1));
}

/* Where an operand of a plan or launch lives. */
typedef struct gdi_place {
    int64_t offset;
    int32_t base;
} gdi_place;

/* How a plan's operand gets its block. */
enum gdi_feed {
    GDI_DIRECT,              /* the block is contiguous in memory */
    GDI_FILL,                /* one value for a whole row */
    GDI_ONCE,                /* every block holds the same values */
    GDI_AGAIN,               /* every block of a span does */
    GDI_GATHER,              /* brought together */
    GDI_TURN,                /* the same, many rows at once: they lie side by side */
    GDI_SINGLE,              /* one value for a row or for all, which the kernel takes as one */
    GDI_STEPPED,             /* the kernel takes its steps */
    GDI_FLOW,                /* turned, of a sum of everything: columns of memory, one after the other */
    GDI_SUM                  /* an output that is a sum along the rows */
};

typedef struct gdi_plan_operand {
    gdi_place place;
    const int64_t *stride;   /* bytes, per axis of the plan */
    gdi_move_fn move;        /* of elements of this size */
    gdi_map_fn cast;         /* float16: to float32 (inputs) or from it (output) */
    int16_t size;            /* of an element, bytes */
    int8_t feed;
    int8_t stream;           /* an output that goes past the caches */
    int8_t buffer;           /* number of its buffer in private memory, -1: none needed */
    int32_t period;          /* GDI_ONCE, GDI_AGAIN: elements after which it repeats */
    int64_t rows, down;      /* GDI_FLOW: elements of a column, bytes from one to the next */
    int32_t axis;            /* its last axes from this one on are one run of elements, `run` of them */
    int64_t run;
} gdi_plan_operand;

/* One operation on a block; values are numbered as in the lines of a fused group. Without fn it is
 * two results, to `to` and `also`, or, without those, a sum: `to` is its number among the sums. */
typedef struct gdi_micro {
    gdi_map_fn fn;
    gdi_two_fn two;
    uint8_t to, also, from[GDI_LOOP_VALUES], reads;      /* the first `reads` of from */
    uint8_t singles;         /* those of from (bits) that the loop takes one value of in any case */
    uint8_t lone_from[2];
    gdi_map_fn lone[2];      /* fn where these of from (bits) are one value each; NULL: there is none */
} gdi_micro;

/* A sum along the last axis of the plan, to operand `to`. */
typedef struct gdi_sink {
    const gdi_fold *fold;
    int32_t to;
} gdi_sink;

/* A fused group, or one elementwise op whose operands are not all flat. Axes are sorted by the first output's stride
 * and merged. An item is a block of at most `block` elements, of a row when rows are long (then of `height` rows), else
 * of the flat order, in which a block stays in a span, if there are any: the last axes, along which an operand repeats that is not the same
 * everywhere. All operations are done on a block before the next one. */
typedef struct gdi_plan {
    int32_t n_out, n_in, ndim;
    int32_t n_micro, n_register, n_sink;
    int64_t raw_nbytes;      /* of a buffer's elements as they are */
    int64_t buffers_nbytes;  /* of private memory before the registers */
    int64_t register_nbytes; /* from one register to the next */
    int64_t unit;            /* elements that buffers and registers hold */
    int64_t local_nbytes;    /* private memory of a thread */
    int64_t part;            /* elements of a block where parts are made for the next step; 0: as of any other block */
    int64_t ahead_lines;     /* cache lines of the block after the next to ask for before each operation; 0: none */
    int32_t ahead_operands;  /* of the first so many operands */
    gdi_micro *micro;
    gdi_sink *sink;
    gdi_stepped_fn stepped;  /* does the only operation on operands that lie `step` elements apart; else NULL */
    int64_t step[3];         /* of two inputs, and of the output */
    int32_t shuffled;        /* it does well only where it shuffles: every other element, or backwards */
    gdi_outer_fn outer;      /* does all rows of the only operation, between operand `column` and the other one; else NULL */
    int32_t column;
    gdi_whole_fn whole;      /* does all there is to do, one or two operations and their sum; else NULL */
    gdi_turned_fn turned;    /* the same, of an input that is GDI_FLOW */
    int32_t less;            /* the operand that these take off every element of a row; 0: none */
    gdi_stream_fn stream;    /* of this ISA */
    gdi_plan_operand *operand;               /* out.., in.. */
    int32_t by_row;          /* blocks are pieces of rows */
    int32_t direct;          /* they are whole rows, which one loop reads and writes where they lie */
    int32_t through;         /* the input that is gathered to where the output is; 0: none */
    int32_t dear;            /* what is computed takes longer than memory does */
    int32_t past;            /* one operation whose result goes past the caches, in pieces of so many bytes; else 0 */
    int32_t height;          /* rows of an item: GDI_TILE_ROWS if an input is turned, else 1 */
    int64_t n, inner, pieces, block, items, grain;       /* pieces: items of a row or of a span */
    int64_t span;            /* elements; 0: there is none */
    int64_t stretch;         /* elements of a row that are one item: a block, or of a sum GDI_FOLD_BLOCK of them */
    const int64_t *shape;
} gdi_plan;

typedef struct gdi_phase {
    int64_t items, grain;
} gdi_phase;

/* A structural step. */
typedef struct gdi_launch {
    const gdi_kernel *kernel;
    gdi_step head;           /* the step before, which is done to parts as they are taken (together.c); of kind GDI_NOTHING: none is */
    gdi_takes takes;
    const gdi_step *tail;    /* the next step, which is done to parts of the result as they are there, or NULL */
    const int64_t *attr;
    int32_t n_attr, n_out, n_in;
    gdi_phase *phase;
    gdi_operand *operand;    /* out, in..; data is NULL until the call */
    gdi_place *place;
} gdi_launch;

/* ---- program and workspace ---- */
struct gd_program {
    gdi_step *step;
    gdi_scalar *scalar;
    int64_t n_step, n_scalar, commit;
    int64_t *dim, *attr;
    char *constants;
    int64_t *base_nbytes;
    int32_t n_base;
    int32_t parallel;        /* some step is worth more than one thread */
    int64_t local_nbytes;    /* private memory that a thread needs */
    int64_t scratch_nbytes;
    int64_t nbytes;          /* of everything above */
};

struct gd_workspace {
    const gd_program *program;
    int threads;
    char **base;             /* resolved pointers of the run */
    char *arena, *scratch;
    char *local[GDI_MAX_THREADS];
    int64_t pc, item;        /* where a half-done run goes on */
    int phase;
};

void gdi_workspace_touch(gd_workspace *w);

/* ---- what the files offer each other ---- */
/* dispatch.c */
int gdi_map_arity(int op);
int gdi_map_is_test(int op);
int gdi_map_is_function(int op);                 /* float-only, and dear */
int gdi_map_cost(int op);                        /* rough quarter ns per 4-byte element */
gdi_map_fn gdi_map_lookup(const gdi_table *t, int op, int dtype);
/* The table whose loop, of the same bits, suits operands in memory; plain: two arrays or more, or bytes. */
const gdi_table *gdi_map_far(const gdi_table *t, int op, int plain);
/* (x f y) g z, or with turned z g (x f y), as one loop; m->fn is NULL if there is none */
void gdi_pair_lookup(const gdi_table *t, int f, int g, int turned, int dtype, gdi_micro *m);
/* check.c: spec's tables are the caller's, dim and attr the program's own copies */
int gdi_check(const gd_program_spec *s, const gdi_table *t, gd_fault *fault);
int64_t gdi_view_count(const gd_program_spec *s, const gd_view *v);
int gdi_disjoint(const gd_program_spec *s, const gd_view *a, const gd_view *b);      /* of verified views: no byte in common */
void gdi_fault_clear(gd_fault *fault);
/* program.c */
void *gdi_program_alloc(gd_program *p, int64_t nbytes);
void gdi_launch_call(const gdi_launch *l, gdi_call *call);
/* map_plan.c: the step of a verified elementwise instruction; fused_plan.c: of a verified fused group */
int gdi_map_prepare(gd_program *p, const gd_program_spec *s, const gdi_table *t, const gd_instr *in, gdi_step *out);
int gdi_fused_prepare(gd_program *p, const gd_program_spec *s, const gdi_table *t, const gd_instr *in, gdi_step *out);
/* fused_plan.c: is a register or held value read from line i on, before it is written again? */
int gdi_is_read(const int64_t *line, int i, int lines, int64_t value);
/* A fused group that is read: n operands, n_out of them outputs. */
typedef struct gdi_group {
    const int64_t *line;
    int lines, n, n_out;
    int64_t dtype;                           /* of what is looked for */
    gdi_place place[GDI_FUSED_OPERANDS];
    int dtype_of[GDI_FUSED_OPERANDS];
    uint8_t single[GDI_FUSED_OPERANDS];      /* one element for all */
    uint8_t gone[GDI_FUSED_LINES];           /* lines that a loop does */
} gdi_group;
/* loops.c: line `root` and lines before it as one loop: its number, with m's values; -1: they are not. */
int gdi_find_loop(gdi_group *g, int root, gdi_micro *m);
/* Line `root` and the one that makes an operand for it alone as one loop: 1, with *m; 0: there is none. */
int gdi_find_pair(gdi_group *g, const gdi_table *t, int root, gdi_micro *m);
/* Line i and the next, two functions of one value, as one loop: 1, with *m; 0: there is none. */
int gdi_find_two(gdi_group *g, const gdi_table *t, int i, gdi_micro *m);
/* Line `root` and the comparison that it alone chooses by as one loop: 1, with *m; 0: there is none. */
int gdi_find_choice(gdi_group *g, const gdi_table *t, int root, gdi_micro *m);
/* Line `root`, *m, is the loop of what relu lets through: one with relu itself, if that stands before it: 1, with *m changed. */
int gdi_find_relu(gdi_group *g, const gdi_table *t, int root, gdi_micro *m);
/* scalars.c: is it an operation on single floats? Then *out and the scalar it points to; gdi_scalars_finish makes runs */
int64_t gdi_scalar_count(const gd_program_spec *s);
int gdi_scalar_prepare(gd_program *p, const gd_program_spec *s, const gdi_table *t, const gd_instr *in, gdi_step *out);
void gdi_scalars_finish(gd_program *p);
/* map.c: items [lo, hi) of a plan; local: its buffers (the elements as they are, and float16 as float32), its registers */
/* A column of GDI_FLOW: such a number of elements. All columns of a cache line, or, up to GDI_FLOW_PAIRS, of two, and what a sum takes at
 * once fit in its buffer. */
enum { GDI_FLOW_SHORTEST = 16, GDI_FLOW_PAIRS = 8192, GDI_FLOW_LONGEST = 32768 };
enum { GDI_MAP_RAW_NBYTES = GDI_TILE_ROWS * GDI_TILE_STRIDE * 8, GDI_MAP_WIDE_NBYTES = GDI_BLOCK * 16 };
void gdi_map_run(const gdi_plan *p, char *const *base, int64_t lo, int64_t hi, char *local, char *scratch);
/* past.c: the same for a plan that is `past` */
void gdi_past_run(const gdi_plan *p, char *const *base, int64_t lo, int64_t hi, char *buffer);
/* after all items: sums of rows that took several; scratch has the sums of the items */
void gdi_map_join(const gdi_plan *p, char *const *base, char *scratch);
/* map.c: what lies at elements first, first + step, .. of the outputs, `rows` times `count` of them, for a plan that gdi_map_has_parts;
 * to: NULL, or where the first one of the first output goes instead */
void gdi_map_run_parts(const gdi_plan *p, char *const *base, int64_t first, int64_t count, int64_t rows, int64_t step, char *to, char *local);
int gdi_map_has_parts(const gdi_plan *p);
/* together.c: finds the heads and tails of a program's structural steps; a part of a tail; items of phase 0 with what they take made first. */
typedef struct gdi_tail {
    const gdi_step *step;
    char *const *base;
} gdi_tail;
void gdi_join_steps(gd_program *p, const gd_program_spec *s);
void gdi_tail_done(const gdi_call *c, int64_t first, int64_t count, int64_t rows, int64_t step, char *local);
int gdi_head_run(const gdi_launch *l, const gdi_call *c, char *const *base, int64_t lo, int64_t hi, char *local);
/* pool.c: f(arg, chunk, thread) for every chunk on up to `threads` threads. 0: done; else nothing ran */
int gdi_pool_is_awake(int threads);          /* do so many, the caller with them, wait for work without sleeping? */
int gdi_pool_run(int threads, int64_t chunks, void (*f)(void *arg, int64_t chunk, int thread), void *arg);
#endif
