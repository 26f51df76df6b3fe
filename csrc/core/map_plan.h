/* map_plan.h: what the plans of elementwise instructions and of fused groups are made with. */
#ifndef GDI_MAP_PLAN_H
#define GDI_MAP_PLAN_H
#include "program.h"

/* Rows shorter than this are gathered into blocks that span rows: a call of a kernel must be worth it. */
enum { GDI_LONG_ROW = 128 };
/* What a call of a loop costs beside its elements; a piece of work for a thread, in quarter ns. */
enum { GDI_CALL_NS = 8, GDI_GRAIN_QUARTER_NS = 200000 };

typedef struct gdi_layout {
    int ndim, n;                                     /* axes, operands (outputs first) */
    int half;                                        /* float16 as it is, not by way of float32 */
    int64_t shape[GDI_MAX_NDIM];
    int64_t stride[GDI_FUSED_OPERANDS][GDI_MAX_NDIM];  /* bytes */
    int64_t offset[GDI_FUSED_OPERANDS];
    int64_t size[GDI_FUSED_OPERANDS];
    int64_t rows[GDI_FUSED_OPERANDS], down[GDI_FUSED_OPERANDS];     /* of turned operands (gdi_layout_flow); else 0 */
} gdi_layout;

/* layout.c: views, offsets and sizes of the operands; axes are still to come */
void gdi_layout_begin(gdi_layout *l, const gd_program_spec *s, const gd_instr *in, const gd_view **view);
/* The axes in the order they are, which is the order a sum goes by. View `whole` has them all; a sum lacks the last ones. */
void gdi_layout_take(gdi_layout *l, const gd_program_spec *s, const gd_view *const *view, int whole);
/* Before axes are merged, of a group that sums up everything: an input that has two axes, of which the first has neighbours side by
 * side, is taken as if it was contiguous: it is brought into that order as the sum goes on (GDI_FLOW). */
void gdi_layout_flow(gdi_layout *l, int n_out);
/* The axes turned and sorted by the first operand's strides. */
void gdi_layout_sort(gdi_layout *l, const gd_program_spec *s, const gd_view *const *view);
void gdi_layout_merge(gdi_layout *l);
/* Is operand k contiguous in the order of the axes? */
int gdi_layout_is_flat(const gdi_layout *l, int k);
/* Of the axes from `first` on: elements after which operand k repeats. */
int64_t gdi_layout_period(const gdi_layout *l, int k, int first);
/* Bytes of the operands that are not broadcast, of n elements each. */
int64_t gdi_layout_nbytes(const gdi_layout *l, int64_t n);

/* map_plan.c: a plan and the tables it points to, in one block; NULL: no memory */
gdi_plan *gdi_plan_new(gd_program *program, gdi_layout *l, int64_t n, int n_out, int n_micro, int n_sink);
void gdi_plan_place(gdi_plan *p, const gdi_layout *l, const gd_view *const *view, const gdi_table *t);
/* map_blocks.c: its blocks, buffers and grain. cost: quarter ns an element; functions: how many of its operations are (gdi_map_is_function);
 * direct_row: the shortest row that is worth a call as it lies; outer: the loops of an outer product, with the first or second operand the
 * column, or NULL. */
void gdi_plan_finish(gd_program *program, gdi_plan *p, const gdi_layout *l, int64_t element_nbytes, int64_t cost, int64_t functions,
                     int64_t direct_row, const gdi_outer_fn *outer, gdi_step *out);
/* past.c: which outputs go past the caches; does any? Bytes of the pieces of a plan that is one operation, without buffers but for its
 * result, which goes past the caches, and costs so many quarter ns an element; 0: it is none. */
void gdi_plan_past(gdi_plan *p, const gdi_layout *l, int64_t functions);
int32_t gdi_plan_piece(const gdi_plan *p, int64_t cost);
/* Does an input lie where output k does? */
int gdi_plan_is_updated(const gdi_plan *p, int k);
int gdi_plan_streams(const gdi_plan *p);
/* The loops of an operation of two operands for the case that the first or the second is one value. */
void gdi_take_lone(gdi_micro *m, const gdi_map_fn *single);
/* Quarter ns of an element of this size. */
int64_t gdi_map_cost_of(int op, int64_t size);
/* ahead.c: of so many functions */
void gdi_plan_ahead(gdi_plan *p, const gdi_layout *l, int64_t functions);
#endif
