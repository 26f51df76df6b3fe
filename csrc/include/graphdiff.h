/* graphdiff.h: the whole ABI of the C core. cffi parses this very file (lines that start with # are dropped), so
 * it holds declarations only: no macros with values, no inline functions. Sizes are int64_t, strides are counted
 * in elements, offsets in bytes. Nothing here aborts, prints or keeps a pointer longer than it says. */
#ifndef GRAPHDIFF_H
#define GRAPHDIFF_H
#include <stdint.h>

/* Status codes. GD_MORE is not a failure: the time slice ran out and gd_run wants to be called again. */
enum gd_status {
    GD_OK = 0,
    GD_MORE = 1,
    GD_NO_MEMORY = 2,
    GD_BAD_PROGRAM = 3,      /* the verifier refused it; gd_fault says where */
    GD_OUT_OF_BOUNDS = 4,    /* an index operand points outside its axis */
    GD_BAD_VALUE = 5,        /* a value the kernel refuses (integer to a negative power) */
    GD_STATUS_COUNT = 6
};

/* Element types. float16 lives in memory only: every kernel computes it in float32. */
enum gd_dtype {
    GD_BOOL = 0,
    GD_UINT8 = 1,
    GD_INT32 = 2,
    GD_INT64 = 3,
    GD_FLOAT16 = 4,
    GD_FLOAT32 = 5,
    GD_FLOAT64 = 6,
    GD_DTYPE_COUNT = 7
};

/* Where an operand lives: the base pointers of a call are an array indexed by base number. */
enum gd_base {
    GD_BASE_ARENA = 0,
    GD_BASE_CONST = 1,
    GD_BASE_FIRST = 2        /* then inputs, outputs and variables, in the order the program names them */
};

/* What may be done with a base. */
enum gd_access {
    GD_READ = 0,
    GD_WRITE = 1
};

/* One operand: a strided view of a base. `dims` indexes the dims table: ndim sizes, then ndim strides in elements. */
typedef struct gd_view {
    int32_t base;
    int32_t dtype;
    int32_t ndim;
    int32_t dims;
    int64_t offset;          /* bytes from the base pointer to element [0, 0, ...] */
} gd_view;

/* One instruction. args index the args table: n_out views, then n_in views. */
typedef struct gd_instr {
    int32_t op;
    int32_t n_out;
    int32_t n_in;
    int32_t args;
    int32_t attr;            /* first of n_attr integers in the attrs table */
    int32_t n_attr;
} gd_instr;

/* A program as Python hands it over. Every table is copied by gd_program_new; the caller may free them at once. */
typedef struct gd_program_spec {
    const gd_instr *instr;
    int64_t n_instr;
    const gd_view *view;
    int64_t n_view;
    const int32_t *arg;
    int64_t n_arg;
    const int64_t *dim;
    int64_t n_dim;
    const int64_t *attr;
    int64_t n_attr;
    const char *constants;
    int64_t constants_nbytes;
    const int64_t *base_nbytes;   /* per base; [GD_BASE_ARENA] is the arena's size */
    const int32_t *base_access;   /* per base: GD_READ or GD_WRITE */
    int32_t n_base;
    int64_t commit;               /* first instruction of the part that is never interrupted */
} gd_program_spec;

/* Details of the last failure, filled by gd_program_new and gd_run. Unused fields are -1. */
typedef struct gd_fault {
    int64_t instr;
    int32_t what;            /* index into the verifier's list of reasons, see gd_reason */
    int64_t value;           /* the offending index or value */
    int64_t axis;
    int64_t size;
} gd_fault;

typedef struct gd_program gd_program;
typedef struct gd_workspace gd_workspace;

/* Verify and prepare a program. On failure *out is NULL and *fault says which instruction and why. */
int gd_program_new(const gd_program_spec *spec, gd_program **out, gd_fault *fault);
void gd_program_free(gd_program *p);
int64_t gd_program_nbytes(const gd_program *p);
int64_t gd_program_tails(const gd_program *p);      /* for tests: instructions that are done part by part with the one before */
int64_t gd_program_heads(const gd_program *p);      /* for tests: with the one after them */
int64_t gd_program_norms(const gd_program *p);      /* for tests: instructions that run as normalisations of whole rows */

/* A workspace holds the arena and the scratch of one running call. One call uses it at a time. */
int gd_workspace_new(const gd_program *p, int threads, gd_workspace **out);
void gd_workspace_free(gd_workspace *w);
char *gd_workspace_arena(gd_workspace *w);

/* Run. bases[GD_BASE_FIRST..] are the caller's pointers. budget_ns = 0: to the end; else return GD_MORE after
 * about that long, and continue when called again with the same arguments. gd_restart forgets a half-done run. */
int gd_run(const gd_program *p, gd_workspace *w, void *const *bases, int64_t budget_ns, gd_fault *fault);
void gd_restart(gd_workspace *w);
/* gd_run with its arguments in one place, which costs a caller by way of Python half as much as five arguments do. */
typedef struct gd_job {
    const gd_program *program;
    gd_workspace *workspace;
    void *const *bases;
    int64_t budget_ns;
    gd_fault *fault;
} gd_job;
int gd_run_job(const gd_job *job);           /* from the beginning, whatever run was left half-done: its caller may be gone */
int gd_continue_job(const gd_job *job);      /* after GD_MORE */
/* As gd_run without a budget; ns[i] gets the nanoseconds of instruction i. */
int gd_run_profiled(const gd_program *p, gd_workspace *w, void *const *bases, int64_t *ns, gd_fault *fault);

/* For gd_order: nodes are numbered such that operands come before what reads them. */
enum gd_order_flag {
    GD_ORDER_VIEW = 1,           /* its result is the memory of its operand */
    GD_ORDER_ELEMENTWISE = 2     /* it may write over an operand */
};
typedef struct gd_order_spec {
    int64_t n;
    const int32_t *first;        /* n + 1: the operands of node i are operand[first[i]] ... operand[first[i + 1] - 1] */
    const int32_t *operand;
    const int64_t *nbytes;       /* of the arena that its result takes */
    const uint8_t *flags;
    const int32_t *output;
    int64_t n_output;
    int64_t least_nbytes;        /* at once, from which on another order is looked for */
} gd_order_spec;

/* The bytes that are there at once if nodes run by number, *own_nbytes, and the order depth first (n numbers), its length and its bytes. Where
 * fewer than least_nbytes are needed, *count and *nbytes are -1. GD_BAD_PROGRAM: numbers that are none of these. */
int gd_order(const gd_order_spec *s, int32_t *order, int64_t *count, int64_t *own_nbytes, int64_t *nbytes);

/* Facts about the build. */
int gd_op_count(void);
const char *gd_op_name(int op);
int gd_op_arity(int op);                 /* elementwise ops: operands; structural ops: -1 */
int gd_op_accepts(int op, int dtype);    /* elementwise ops: is there a kernel for operands of this dtype? */
const char *gd_reason(int what);
int gd_dtype_nbytes(int dtype);
const char *gd_isa(void);
int gd_isa_count(void);
const char *gd_isa_name(int i);
int gd_isa_supported(int i);
/* Does `rounds` rounds of independent multiply-adds of GD_FLOAT32 or GD_FLOAT64 and returns their floating-point
 * operations (0: another dtype, or rounds < 1): timed by the caller, the peak of one core. */
double gd_peak(int dtype, int64_t rounds);
int gd_force_isa(const char *name);      /* GD_OK or GD_BAD_VALUE; programs made before keep their kernels */
void gd_force_l1(int64_t nbytes);        /* for tests: what the kernels take the first data cache for; -1: as it is */

/* Allocation hooks, for tests that fail the n-th allocation: -1 never, else fail from that one on. */
void gd_alloc_fail_after(int64_t n);
int64_t gd_alloc_live(void);
#endif
