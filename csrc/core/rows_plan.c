/* rows_plan.c: how an instruction over rows (rows.h) is walked, decided once. */
#include "rows_plan.h"
#include "blocks.h"

/* Of blocks of several rows, in bytes of the largest element, three and more should stay in L1 together, but two rows at once are
 * worth more than that; where three arrays are all there is, four rows fit (512 x 1024 float32 normalised four rows
 * at a time: 157 us, two: 166; with the gradient, of eight arrays, 430 and 410). */
enum { ROWS_NBYTES = 8192, BATCH_NBYTES = 49152 };
/* Rows that are turned should be as many as a cache line has elements, or it is fetched again for the next. They may take a good part
 * of L2. */
enum { TURNED_NBYTES = 131072 };
/* Runs of at least so many elements, a multiple of a sum's lanes, are blocks of their own; others are gathered. */
enum { LONG_RUN = 128 };
enum { CALL_NS = 8, GRAIN_QUARTER_NS = 200000 };
/* Rows of fewer bytes are better done with others that follow them than with those 16 rows on: they make a call worth while. */
enum { DEEP_NBYTES = 1024 };
/* With sums of columns a block of a sum is an item, but for fewer rows two of them, for two threads. */
enum { TWO_ROWS = 2 * GDI_FOLD_BLOCK };

/* ---- axes ---- */
/* Axes first .. last-1 of the whole operands, put behind those that are there and merged with each other. */
static int take_axes(gdi_rows_draft *a, const gd_program_spec *s, int first, int last, int at)
{
    const gd_view *whole = a->view[a->n - 1];
    const int from = at;
    for (int d = first; d < last; d++) {
        const int64_t length = s->dim[whole->dims + d];
        if (length == 1)
            continue;
        int64_t stride[GDI_FUSED_OPERANDS];
        int merge = at > from;
        for (int k = 0; k < a->n; k++) {
            const gd_view *v = a->view[k];
            const int axis = a->cls[k] == GDI_COLUMN ? d - a->kept : d;
            stride[k] = axis >= 0 && axis < v->ndim ? s->dim[v->dims + v->ndim + axis] * a->size[k] : 0;
            merge = merge && a->stride[k][at - 1] == stride[k] * length;
        }
        if (merge)
            at--;
        a->shape[at] = merge ? a->shape[at] * length : length;
        for (int k = 0; k < a->n; k++)
            a->stride[k][at] = stride[k];
        at++;
    }
    return at;
}

/* Are axes first .. last-1 of operand k one run of elements that ends the array? */
int gdi_rows_is_flat(const gdi_rows_draft *a, int k, int first, int last)
{
    int64_t step = a->size[k];
    for (int d = last - 1; d >= first; d--) {
        if (a->stride[k][d] != step)
            return 0;
        step *= a->shape[d];
    }
    return 1;
}

int gdi_rows_is_still(const gdi_rows_draft *a, int k, int first, int last)
{
    for (int d = first; d < last; d++)
        if (a->stride[k][d] != 0)
            return 0;
    return 1;
}

static int64_t product(const int64_t *shape, int n)
{
    int64_t r = 1;
    for (int d = 0; d < n; d++)
        r *= shape[d];
    return r;
}

/* ---- operands ---- */
static int feed_of(const gdi_rows *p, const gdi_rows_draft *a, int k)
{
    const int kept = a->n_kept, all = kept + a->n_axes;
    if (a->cls[k] == GDI_COLUMN)
        return GDI_ROW_DIRECT;
    if (a->cls[k] == GDI_SMALL_VALUE)
        return k >= a->n_out && gdi_rows_is_still(a, k, 0, kept) ? GDI_ROW_CONSTANT : GDI_ROW_DIRECT;
    if (k >= a->n_out && gdi_rows_is_still(a, k, kept, all))
        return gdi_rows_is_still(a, k, 0, kept) ? GDI_ROW_CONSTANT : GDI_ROW_VALUE;
    if (p->block < p->n)
        return gdi_rows_is_flat(a, k, kept, all) || (p->run < p->n && a->stride[k][all - 1] == a->size[k])
            ? GDI_ROW_DIRECT : GDI_ROW_GATHER;
    if (gdi_rows_is_flat(a, k, 0, all))
        return GDI_ROW_DIRECT;
    if (k >= a->n_out && gdi_rows_is_still(a, k, 0, kept))
        return GDI_ROW_ONCE;
    return k >= a->n_out && a->n_axes == 1 && kept > 0 ? GDI_ROW_TURNED : GDI_ROW_GATHER;
}

static int has_buffer(const gdi_row_operand *o)
{
    return o->feed != GDI_ROW_DIRECT;
}

/* Small operands are read and written as vectors. */
static int small_fit(const gdi_rows_draft *a)
{
    for (int k = 0; k < a->n; k++)
        if (a->cls[k] == GDI_SMALL_VALUE && !gdi_rows_is_flat(a, k, 0, a->n_kept)
            && (k < a->n_out || !gdi_rows_is_still(a, k, 0, a->n_kept)))
            return 0;
        else if (a->cls[k] == GDI_COLUMN && !gdi_rows_is_flat(a, k, a->n_kept, a->n_kept + a->n_axes))
            return 0;
    return 1;
}

/* ---- chains ---- */
/* One chain that only reads and adds to columns does some rows of a lane at once, if they are many, evenly spaced, and not so short that
 * rows of all lanes are better done together: what is added to is read and written once for all of them. (Sums of products of
 * 1000 x 1000 float64 down the columns: 270 us instead of 370; float32 115 instead of 160.) */
static void choose_deep(gdi_rows *p, const gdi_rows_draft *a)
{
    const gdi_section *c = p->section;
    if (p->norm || p->n_columns == 0 || p->n_section != 1 || c->stats || c->n_micro != 1 || p->micro->fn || c->n_sink > 0
        || p->n_kept != 1 || p->rows < GDI_ROWS_DEEP * GDI_ROW_LANES)
        return;
    int flat = p->batch > 1 && p->block == p->batch * p->n;
    for (int k = a->n_out; k < a->n; k++)
        if (p->operand[k].feed == GDI_ROW_DIRECT && a->stride[k][0] != p->n * a->size[k])
            flat = 0;
    if (!flat && p->n * a->size[a->n - 1] < DEEP_NBYTES)
        return;
    for (int i = 0; i < c->n_move; i++)
        if (p->move[i].what != GDI_MOVE_POINT)
            return;
    for (int i = 0; i < p->n_link; i++) {
        const int op = p->link[i].op & (GDI_LINK_SINGLE - 1), reads = op <= GDI_LINK_DIVIDE_BY;
        if (op == GDI_LINK_STORE || (reads && (p->value[i] >= a->n || p->operand[p->value[i]].feed == GDI_ROW_VALUE)))
            return;
    }
    for (int i = 0; i < p->n_link; i++) {
        gdi_link *l = p->link + i;
        const int feed = p->operand[p->value[i]].feed;
        if (l->op == GDI_LINK_COLUMN)
            l->op += GDI_LINK_ONCE;
        l->row_step = l->op & GDI_LINK_ONCE || feed != GDI_ROW_DIRECT ? 0 : GDI_ROW_LANES * a->stride[p->value[i]][0];
    }
    p->deep = 1;
    p->flat = flat;
}

static void find_chains(gdi_rows *p, gdi_chain_find find)
{
    for (int i = 0; i < p->n_section; i++) {
        const gdi_section *c = p->section + i;
        const gdi_link *link = p->link + c->link;
        for (int k = c->micro; k < c->micro + c->n_micro; k++)
            if (!p->micro[k].fn) {
                p->chain[k] = find(link, p->micro[k].to);
                link += p->micro[k].to;
            }
    }
}

/* ---- the plan ---- */
static gdi_rows *new_plan(gd_program *program, const gdi_rows_draft *a)
{
    const int axes = a->n_kept + a->n_axes;
    const int64_t operands = aligned((int64_t)sizeof(gdi_rows));
    const int64_t sections = operands + aligned(a->n * (int64_t)sizeof(gdi_row_operand));
    const int64_t micros = sections + aligned(a->lines * (int64_t)sizeof(gdi_section));
    const int64_t moves = micros + aligned(a->lines * (int64_t)sizeof(gdi_micro));
    const int64_t sinks = moves + aligned(a->lines * 4 * (int64_t)sizeof(gdi_row_move_of));
    const int64_t links = sinks + aligned(a->lines * (int64_t)sizeof(gdi_row_sink));
    const int64_t chains = links + aligned(a->lines * 3 * (int64_t)sizeof(gdi_link));
    const int64_t values = chains + aligned(a->lines * (int64_t)sizeof(gdi_chain_fn));
    const int64_t layouts = values + aligned(a->lines * 3);
    char *at = gdi_program_alloc(program, layouts + (a->n + 1) * axes * (int64_t)sizeof(int64_t) + GDI_ALIGN);
    if (!at)
        return NULL;
    gdi_rows *p = (gdi_rows *)(void *)at;
    p->operand = (gdi_row_operand *)(void *)(at + operands);
    p->section = (gdi_section *)(void *)(at + sections);
    p->micro = (gdi_micro *)(void *)(at + micros);
    p->move = (gdi_row_move_of *)(void *)(at + moves);
    p->sink = (gdi_row_sink *)(void *)(at + sinks);
    p->link = (gdi_link *)(void *)(at + links);
    p->chain = (gdi_chain_fn *)(void *)(at + chains);
    p->value = (uint8_t *)(at + values);
    int64_t *to = (int64_t *)(void *)(at + layouts);
    memcpy(to, a->shape, (size_t)axes * sizeof *to);
    p->shape = to;
    for (int k = 0; k < a->n; k++) {
        to += axes;
        memcpy(to, a->stride[k], (size_t)axes * sizeof *to);
        p->operand[k].stride = to;
    }
    p->n_out = a->n_out;
    p->n_in = a->n - a->n_out;
    p->n_kept = a->n_kept;
    p->n_axes = a->n_axes;
    p->rows = a->rows;
    p->n = a->count;
    return p;
}

/* Operands and registers that have elements of their own for every row. */
static int64_t arrays_of(const gdi_rows *p, const gdi_rows_draft *a)
{
    int64_t arrays = p->n_columns, held = 0;
    for (int k = 0; k < a->n; k++)
        arrays += a->cls[k] == GDI_WHOLE && !gdi_rows_is_still(a, k, 0, a->n_kept);
    for (int i = 0; i < a->lines; i++) {
        const int64_t *line = a->line + (int64_t)i * GDI_FUSED_LINE;
        const int64_t r = line[2] - a->n - GDI_AT_KEPT;
        if (line[0] != -1 && r >= held && r < GDI_KEPT)
            held = r + 1;
    }
    return arrays + held;
}

/* Rows that a cache line has elements of, if some input lies turned: its columns are rows in memory. 1: none does. */
static int64_t turned_lines(const gdi_rows_draft *a)
{
    int64_t most = 1;
    for (int k = a->n_out; k < a->n; k++)
        if (a->cls[k] == GDI_WHOLE && a->n_axes == 1 && a->n_kept > 0 && a->stride[k][a->n_kept - 1] == a->size[k]
            && a->stride[k][a->n_kept] != a->size[k])
            most = GDI_ALIGN / a->size[k] > most ? GDI_ALIGN / a->size[k] : most;
    return most;
}

/* Short rows: several are done at once, of which each has a lane of its own in the sums of columns. */
static void choose_blocks(gdi_rows *p, const gdi_rows_draft *a)
{
    p->block = GDI_ROWS_BLOCK_NBYTES / p->element_nbytes;
    p->batch = 1;
    p->run = p->n;
    if (p->n <= p->block) {
        int64_t most = p->n_columns > 0 && p->rows < TWO_ROWS ? GDI_ROW_LANES / 2 : GDI_ROW_LANES;
        if ((p->norm && p->found.back) || p->norm_row)
            most = 1;
        const int64_t lines = turned_lines(a);
        const int64_t arrays = arrays_of(p, a), few = arrays * GDI_ROWS_BLOCK_NBYTES <= BATCH_NBYTES;
        const int64_t block = p->block, less = few ? block : ROWS_NBYTES / p->element_nbytes;
        while (p->batch < most && p->batch * 2 * p->n <= (p->batch == 1 ? block : less))
            p->batch *= 2;
        while (p->batch < least(most, lines) && p->batch * 2 * p->n <= TURNED_NBYTES / p->element_nbytes)
            p->batch *= 2;
        p->block = p->batch * p->n;
    } else if (p->n_axes > 1) {
        const int64_t inner = a->shape[a->n_kept + a->n_axes - 1];
        if (inner >= LONG_RUN && inner % GDI_ROW_LANES == 0)
            p->run = inner;
    }
    const int64_t groups = (p->rows + GDI_FOLD_BLOCK - 1) / GDI_FOLD_BLOCK;
    p->items = p->n_columns > 0 ? groups * (GDI_ROW_LANES / p->batch) : (p->rows + p->batch - 1) / p->batch;
}

static void place_operands(gdi_rows *p, const gdi_rows_draft *a, const gdi_table *t, int64_t *nbytes, int64_t *scratch)
{
    const int64_t groups = (p->rows + GDI_FOLD_BLOCK - 1) / GDI_FOLD_BLOCK;
    for (int k = 0; k < a->n; k++) {
        gdi_row_operand *o = p->operand + k;
        o->place = (gdi_place){a->view[k]->offset, a->view[k]->base};
        o->size = (int8_t)a->size[k];
        o->cls = a->cls[k];
        o->move = t->move[a->size[k]];
        o->feed = (int8_t)feed_of(p, a, k);
        o->buffer = has_buffer(o) ? *nbytes : -1;
        *nbytes += has_buffer(o) ? p->register_nbytes : 0;
        if (o->cls == GDI_COLUMN) {
            o->fold = &t->fold[a->view[k]->dtype == GD_FLOAT64];
            o->lanes = *scratch;
            *scratch += aligned(groups * (GDI_ROW_LANES * p->n * o->size + p->n * 8) + groups * 8);
        }
    }
}

static int place_memory(gdi_rows *p, const gdi_rows_writer *w, int64_t nbytes, gd_program *program)
{
    int most = p->norm_row ? 3 : 1;
    for (int i = 0; i < p->n_section; i++)
        most = p->section[i].n_sink > most ? p->section[i].n_sink : most;
    p->registers = nbytes;
    p->fills = p->registers + w->most_registers * p->register_nbytes;
    p->stats = p->fills + w->most_fills * p->register_nbytes;
    p->parts = p->stats + GDI_STATS * GDI_ROW_LANES * 8;
    p->lanes = p->parts + (p->block < p->n || p->norm_row ? most * (int64_t)(GDI_LONGEST_ROW / GDI_FOLD_BLOCK) * 8 : 0);
    p->links = p->lanes + most * (int64_t)(GDI_ROW_LANES * GDI_FOLD_NBYTES);
    p->kept = aligned(p->links + p->n_link * (int64_t)sizeof(gdi_link));
    p->n_held = w->most_held;
    p->kept_nbytes = aligned(p->n * p->batch * p->element_nbytes) + GDI_ALIGN;
    if (p->n_held * p->kept_nbytes > GDI_ROWS_HELD_NBYTES)
        return GD_BAD_PROGRAM;
    p->spare = p->kept + p->n_held * p->kept_nbytes;
    p->spare_nbytes = aligned(p->n * p->element_nbytes);
    nbytes = p->spare + (p->norm ? p->spare_nbytes : p->norm_row && p->packed ? 3 * p->spare_nbytes : 0);
    if (program->local_nbytes < nbytes)
        program->local_nbytes = nbytes;
    return GD_OK;
}

static int64_t element_nbytes(const gdi_rows_draft *a)
{
    int64_t most = 4;
    for (int k = 0; k < a->n; k++)
        most = a->size[k] > most ? a->size[k] : most;
    for (int i = 0; i < a->lines; i++) {
        const int64_t *line = a->line + (int64_t)i * GDI_FUSED_LINE;
        if (line[0] != -1 && gd_dtype_nbytes((int)line[1]) > most)
            most = gd_dtype_nbytes((int)line[1]);
    }
    return most;
}

static int finish(gd_program *program, gdi_rows *p, const gdi_rows_draft *a, const gdi_table *t)
{
    gdi_rows_writer w = {.p = p, .a = a, .t = t, .micro = p->micro, .move = p->move, .sink = p->sink};
    int64_t nbytes = 0, scratch = 0;
    p->element_nbytes = (int32_t)element_nbytes(a);
    for (int k = 0; k < a->n_out; k++)
        p->n_columns += a->cls[k] == GDI_COLUMN;
    gdi_rows_find_norm(p, a, t);
    choose_blocks(p, a);
    p->register_nbytes = aligned(p->block * p->element_nbytes) + GDI_ALIGN;
    place_operands(p, a, t, &nbytes, &scratch);
    for (int k = 0; k < a->n; k++)
        w.dtype[k] = a->view[k]->dtype;
    w.chain_dtype = GD_FLOAT32;
    for (int i = 0; i < a->lines; i++)
        if (a->line[(int64_t)i * GDI_FUSED_LINE] == GD_OP_SUM)
            w.chain_dtype = a->line[(int64_t)i * GDI_FUSED_LINE + 1];
    int status = gdi_rows_write(&w);
    if (status == GD_OK)
        choose_deep(p, a);
    find_chains(p, t->chain[w.chain_dtype == GD_FLOAT64]);
    if (status == GD_OK)
        status = place_memory(p, &w, nbytes, program);
    if (program->scratch_nbytes < scratch)
        program->scratch_nbytes = scratch;
    const int64_t rows = p->n_columns > 0 ? (least(p->rows, GDI_FOLD_BLOCK) + GDI_ROW_LANES - 1) / GDI_ROW_LANES : 1;
    p->grain = GRAIN_QUARTER_NS / (rows * (w.cost * p->n * p->batch + 4 * CALL_NS * (w.micro - p->micro + 1)));
    if (p->grain < 1)
        p->grain = 1;
    program->parallel |= p->items > p->grain;
    return status;
}

int gdi_rows_prepare(gd_program *program, const gd_program_spec *s, const gdi_table *t, const gd_instr *in, gdi_step *out)
{
    gdi_rows_draft a = {.n_out = in->n_out, .n = in->n_out + in->n_in, .lines = in->n_attr / GDI_FUSED_LINE, .line = s->attr + in->attr};
    a.kept = (int)(a.line[1] >> 1);
    for (int k = 0; k < a.n; k++) {
        a.view[k] = s->view + s->arg[in->args + k];
        a.size[k] = gd_dtype_nbytes(a.view[k]->dtype);
    }
    const int ndim = a.view[a.n - 1]->ndim;
    for (int k = 0; k < a.n; k++)
        a.cls[k] = a.view[k]->ndim == ndim ? GDI_WHOLE : GDI_SMALL_VALUE;
    for (int i = 0; i < a.lines; i++) {
        const int64_t *line = a.line + (int64_t)i * GDI_FUSED_LINE;
        if (line[0] == GD_OP_SUM && line[4] == 1)
            a.cls[line[2]] = GDI_COLUMN;
    }
    a.n_kept = take_axes(&a, s, 0, a.kept, 0);
    a.n_axes = take_axes(&a, s, a.kept, ndim, a.n_kept) - a.n_kept;
    a.rows = product(a.shape, a.n_kept);
    a.count = product(a.shape + a.n_kept, a.n_axes);
    if (a.rows == 0 || a.count < 2 || a.count > GDI_LONGEST_ROW || !small_fit(&a))
        return GD_BAD_PROGRAM;
    gdi_rows *p = new_plan(program, &a);
    if (!p)
        return GD_NO_MEMORY;
    out->kind = GDI_ROWS;
    out->u.rows = p;
    return finish(program, p, &a, t);
}
