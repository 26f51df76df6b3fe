/* program.c: from tables to steps. Whatever depends on shapes alone is decided here, once. */
#include "rows.h"
#include <string.h>

void *gdi_program_alloc(gd_program *p, int64_t nbytes)
{
    void *memory = gdi_alloc(nbytes);
    if (memory)
        p->nbytes += nbytes;
    return memory;
}

/* A copy of a table; at least one byte, so that NULL means no memory. */
static void *copy_table(gd_program *p, const void *table, int64_t count, int64_t item_nbytes)
{
    int64_t nbytes;
    if (count < 0 || gdi_mul(count, item_nbytes, &nbytes) || (count > 0 && !table))
        return NULL;
    void *copy = gdi_program_alloc(p, nbytes > 0 ? nbytes : 1);
    if (copy && nbytes > 0)
        memcpy(copy, table, (size_t)nbytes);
    return copy;
}

/* ---- structural steps ---- */
void gdi_launch_call(const gdi_launch *l, gdi_call *call)
{
    *call = (gdi_call){.out = l->operand, .in = l->operand + l->n_out, .n_out = l->n_out, .n_in = l->n_in,
                       .attr = l->attr, .n_attr = l->n_attr};
}

/* A launch and the arrays it points to, in one block. */
static gdi_launch *new_launch(gd_program *p, const gdi_kernel *kernel, const gd_instr *in)
{
    const int64_t n = in->n_out + in->n_in, align = GDI_ALIGN - 1;
    const int64_t operands = ((int64_t)sizeof(gdi_launch) + align) & ~align;
    const int64_t places = operands + n * (int64_t)sizeof(gdi_operand);
    const int64_t phases = places + n * (int64_t)sizeof(gdi_place);
    char *at = gdi_program_alloc(p, phases + kernel->phases * (int64_t)sizeof(gdi_phase));
    if (!at)
        return NULL;
    gdi_launch *l = (gdi_launch *)(void *)at;
    l->operand = (gdi_operand *)(void *)(at + operands);
    l->place = (gdi_place *)(void *)(at + places);
    l->phase = (gdi_phase *)(void *)(at + phases);
    l->kernel = kernel;
    l->n_out = in->n_out;
    l->n_in = in->n_in;
    l->n_attr = in->n_attr;
    l->attr = in->n_attr > 0 ? p->attr + in->attr : NULL;
    return l;
}

static int prepare_structural(gd_program *p, const gd_program_spec *s, const gdi_table *t, const gd_instr *in,
                              gdi_step *out, gd_fault *fault)
{
    const gdi_kernel *kernel = t->kernel[in->op - GD_MAP_COUNT];
    gdi_launch *l = new_launch(p, kernel, in);
    gdi_call call;
    if (!l)
        return GD_NO_MEMORY;
    out->kind = GDI_STRUCTURAL;
    out->u.launch = l;
    for (int k = 0; k < in->n_out + in->n_in; k++) {
        const gd_view *v = s->view + s->arg[in->args + k];
        l->operand[k] = (gdi_operand){NULL, v->dtype, v->ndim, p->dim + v->dims, p->dim + v->dims + v->ndim};
        l->place[k] = (gdi_place){v->offset, v->base};
    }
    gdi_launch_call(l, &call);
    call.fault = fault;
    const int64_t scratch = kernel->scratch ? kernel->scratch(&call) : 0;
    if (scratch < 0)
        return GD_BAD_PROGRAM;
    if (scratch > p->scratch_nbytes)
        p->scratch_nbytes = scratch;
    for (int i = 0; i < kernel->phases; i++) {
        const int64_t items = kernel->items(&call, i);
        const int64_t grain = kernel->grain && items > 0 ? kernel->grain(&call, i) : 1;
        l->phase[i] = (gdi_phase){items, grain > 1 ? grain : 1};
        p->parallel |= items > l->phase[i].grain;
    }
    if (p->local_nbytes < GDI_LOCAL_NBYTES)
        p->local_nbytes = GDI_LOCAL_NBYTES;
    return GD_OK;
}

/* ---- the program ---- */
static int prepare(gd_program *p, const gd_program_spec *s, const gdi_table *t, gd_fault *fault)
{
    const int64_t scalars = gdi_scalar_count(s);
    if (scalars > 0 && !(p->scalar = gdi_program_alloc(p, scalars * (int64_t)sizeof *p->scalar)))
        return GD_NO_MEMORY;
    for (int64_t i = 0; i < s->n_instr; i++) {
        const gd_instr *in = s->instr + i;
        if (gdi_scalar_prepare(p, s, t, in, p->step + i))
            continue;
        int status = in->op < GD_MAP_COUNT ? gdi_map_prepare(p, s, t, in, p->step + i)
                   : in->op == GD_OP_FUSED ? gdi_fused_prepare(p, s, t, in, p->step + i)
                   : in->op == GD_OP_ROWS ? gdi_rows_prepare(p, s, t, in, p->step + i)
                                           : prepare_structural(p, s, t, in, p->step + i, fault);
        if (status != GD_OK) {
            fault->instr = i;
            fault->what = status == GD_BAD_PROGRAM ? GDI_REASON_CALL : -1;
            return status;
        }
    }
    gdi_scalars_finish(p);
    gdi_join_steps(p, s);
    return GD_OK;
}

static int copy_tables(gd_program *p, gd_program_spec *s)
{
    int64_t nbytes;
    s->dim = p->dim = copy_table(p, s->dim, s->n_dim, (int64_t)sizeof *s->dim);
    s->attr = p->attr = copy_table(p, s->attr, s->n_attr, (int64_t)sizeof *s->attr);
    s->constants = p->constants = copy_table(p, s->constants, s->constants_nbytes, 1);
    s->base_nbytes = p->base_nbytes = copy_table(p, s->base_nbytes, s->n_base, (int64_t)sizeof *s->base_nbytes);
    if (gdi_mul(s->n_instr, (int64_t)sizeof *p->step, &nbytes))
        return GD_NO_MEMORY;
    p->step = gdi_program_alloc(p, nbytes > 0 ? nbytes : 1);
    p->n_step = s->n_instr;
    p->commit = s->commit;
    p->n_base = s->n_base;
    return p->dim && p->attr && p->constants && p->base_nbytes && p->step ? GD_OK : GD_NO_MEMORY;
}

/* Can the tables be copied at all? gdi_check says the rest. */
static int copyable(const gd_program_spec *s)
{
    return s->n_instr >= 0 && s->n_dim >= 0 && s->n_attr >= 0 && s->constants_nbytes >= 0 && s->n_base >= 0
        && (s->dim || !s->n_dim) && (s->attr || !s->n_attr) && (s->constants || !s->constants_nbytes)
        && (s->base_nbytes || !s->n_base);
}

static int build(gd_program *p, const gd_program_spec *spec, gd_fault *fault)
{
    gd_program_spec s = *spec;
    const gdi_table *t = gdi_active();
    if (!copyable(&s)) {
        fault->what = GDI_REASON_TABLES;
        return GD_BAD_PROGRAM;
    }
    int status = copy_tables(p, &s);
    if (status == GD_OK)
        status = gdi_check(&s, t, fault);
    return status == GD_OK ? prepare(p, &s, t, fault) : status;
}

int gd_program_new(const gd_program_spec *spec, gd_program **out, gd_fault *fault)
{
    gd_fault unused;
    if (!fault)
        fault = &unused;
    gdi_fault_clear(fault);
    *out = NULL;
    gd_program *p = gdi_alloc((int64_t)sizeof *p);
    if (!p)
        return GD_NO_MEMORY;
    p->nbytes = (int64_t)sizeof *p;
    int status = build(p, spec, fault);
    if (status == GD_OK)
        *out = p;
    else
        gd_program_free(p);
    return status;
}

void gd_program_free(gd_program *p)
{
    if (!p)
        return;
    for (int64_t i = 0; p->step && i < p->n_step; i++) {
        const gdi_step *step = p->step[i].kind == GDI_HEAD ? p->step[i].u.head : p->step + i;
        if (step->kind == GDI_BLOCKS)
            gdi_free(step->u.plan);
        else if (p->step[i].kind == GDI_ROWS)
            gdi_free(p->step[i].u.rows);
        else if (p->step[i].kind == GDI_STRUCTURAL)
            gdi_free(p->step[i].u.launch);
    }
    gdi_free(p->step);
    gdi_free(p->scalar);
    gdi_free(p->dim);
    gdi_free(p->attr);
    gdi_free(p->constants);
    gdi_free(p->base_nbytes);
    gdi_free(p);
}

int64_t gd_program_nbytes(const gd_program *p) { return p->nbytes; }

int64_t gd_program_tails(const gd_program *p)
{
    int64_t n = 0;
    for (int64_t i = 0; i < p->n_step; i++)
        n += p->step[i].kind == GDI_STRUCTURAL && p->step[i].u.launch->tail;
    return n;
}

int64_t gd_program_heads(const gd_program *p)
{
    int64_t n = 0;
    for (int64_t i = 0; i < p->n_step; i++)
        n += p->step[i].kind == GDI_HEAD;
    return n;
}

int64_t gd_program_norms(const gd_program *p)
{
    int64_t n = 0;
    for (int64_t i = 0; i < p->n_step; i++)
        n += p->step[i].kind == GDI_ROWS && (p->step[i].u.rows->norm || p->step[i].u.rows->norm_row);
    return n;
}
