/* rows.c: runs the items of a plan of rows (rows.h). */
#include "rows.h"
#include "blocks.h"

typedef struct state {
    const gdi_rows *p;
    char *local;
    gdi_link *link;                  /* chains' links, with addresses */
    void *slot[GDI_ROW_VALUES];      /* where each value is, by number */
    char *data[GDI_FUSED_OPERANDS];  /* operands: element [0, .., 0] */
    char *at[GDI_FUSED_OPERANDS];    /* whole ones: the first row of the batch */
    int64_t row, rows;               /* of the batch */
    int64_t first, count;            /* elements of a row that are the block; all rows of the batch have as many */
    int64_t place[GDI_MAX_NDIM];     /* the coordinates of `first` */
} state;

/* ---- finding elements ---- */
static int64_t row_offset(const gdi_rows *p, const gdi_row_operand *o, int64_t row)
{
    int64_t at = 0;
    for (int d = p->n_kept - 1; d >= 0; d--) {
        at += row % p->shape[d] * o->stride[d];
        row /= p->shape[d];
    }
    return at;
}

static void move(int size, char *to, int64_t to_stride, const char *from, int64_t from_stride, int64_t n)
{
    if (to_stride == size && from_stride == size)
        memcpy(to, from, (size_t)(n * size));
    else
        BY_SIZE(size, move_run(S, to, to_stride, from, from_stride, n))
}

/* `count` elements of a row from number `first` on, to the buffer or (out) back. */
static void walk(const gdi_rows *p, const gdi_row_operand *o, char *row, int64_t first, int64_t count, char *buffer, int out)
{
    const int64_t *shape = p->shape + p->n_kept, *stride = o->stride + p->n_kept;
    const int last = p->n_axes - 1;
    const int64_t step = stride[last];
    int64_t at[GDI_MAX_NDIM], rest = first;
    for (int d = last; d >= 0; d--) {
        at[d] = rest % shape[d];
        rest /= shape[d];
    }
    while (count > 0) {
        const int64_t n = least(count, shape[last] - at[last]);
        char *place = row;
        for (int d = 0; d <= last; d++)
            place += at[d] * stride[d];
        if (out)
            move(o->size, place, step, buffer, o->size, n);
        else
            move(o->size, buffer, o->size, place, step, n);
        buffer += n * o->size;
        count -= n;
        at[last] = 0;
        for (int d = last - 1; d >= 0 && ++at[d] == shape[d]; d--)
            at[d] = 0;
    }
}

/* The block of operand k, of all rows, to its buffer or back. */
static void walk_block(state *s, int k, int out)
{
    const gdi_rows *p = s->p;
    const gdi_row_operand *o = p->operand + k;
    for (int64_t q = 0; q < s->rows; q++)
        walk(p, o, s->data[k] + row_offset(p, o, s->row + q), s->first, s->count,
             s->local + o->buffer + q * p->n * o->size * (s->rows > 1), out);
}

/* An input's rows of the batch to its buffer: they are blocks of rows that follow each other along the last kept axis. */
static void turn_block(const state *s, int k)
{
    const gdi_rows *p = s->p;
    const gdi_row_operand *o = p->operand + k;
    const int64_t length = p->shape[p->n_kept - 1], down = o->stride[p->n_kept - 1] / o->size, across = o->stride[p->n_kept] / o->size;
    for (int64_t q = 0, m; q < s->rows; q += m) {
        m = least(s->rows - q, length - (s->row + q) % length);
        o->move(s->local + o->buffer + q * p->n * o->size, s->data[k] + row_offset(p, o, s->row + q),
                &(gdi_block){.n0 = m, .n1 = p->n, .os0 = p->n, .os1 = 1, .is0 = down, .is1 = across});
    }
}

static void *block_address(const state *s, int k)
{
    const gdi_rows *p = s->p;
    const gdi_row_operand *o = p->operand + k;
    char *at = s->at[k];
    for (int d = 0; d < p->n_axes; d++)
        at += s->place[d] * o->stride[p->n_kept + d];
    return at;
}

static void fill_block(int size, char *to, const char *value, int64_t n)
{
    if (size == 4) {
        uint32_t v, *t = (uint32_t *)(void *)to;
        memcpy(&v, value, sizeof v);
        for (int64_t i = 0; i < n; i++)
            t[i] = v;
    } else if (size == 8) {
        uint64_t v, *t = (uint64_t *)(void *)to;
        memcpy(&v, value, sizeof v);
        for (int64_t i = 0; i < n; i++)
            t[i] = v;
    } else if (size == 1) {
        memset(to, *(const unsigned char *)value, (size_t)n);
    } else {
        move_run(size, to, size, value, 0, n);
    }
}

/* One value of every row as blocks. */
static void fill(state *s, const gdi_row_move_of *m)
{
    const gdi_rows *p = s->p;
    const int64_t n = s->rows > 1 ? p->n : least(p->n, p->block);
    for (int64_t q = 0; q < s->rows; q++)
        fill_block(m->size, (char *)s->slot[m->to] + q * n * m->size, (const char *)s->slot[m->from] + q * m->size, n);
}

/* ---- sums of rows ---- */
enum { PARTS = GDI_LONGEST_ROW / GDI_FOLD_BLOCK };
_Static_assert((int)PARTS <= (int)GDI_NORM_PARTS, "a long row has more sums of blocks than its normalisation");

/* ---- sections ---- */
/* lanes: of the sums, row by row. */
static void run_micros(const state *s, const gdi_section *c, int64_t n, char (*lanes)[GDI_ROW_LANES][GDI_FOLD_NBYTES])
{
    const gdi_micro *m = s->p->micro + c->micro;
    const uint8_t *value = s->p->value + c->link;
    gdi_link *link = s->link + c->link;
    for (const gdi_micro *end = m + c->n_micro; m < end; m++) {
        if (!m->fn) {
            for (int i = 0; i < m->to; i++)
                link[i].at = (link[i].op & ~GDI_LINK_SINGLE) == GDI_LINK_SUM ? lanes[value[i]][0] : s->slot[value[i]];
            s->p->chain[m - s->p->micro](link, m->to, s->count, s->rows);
            link += m->to;
            value += m->to;
            continue;
        }
        const void *const in[] = {s->slot[m->from[0]], s->slot[m->from[1]], s->slot[m->from[2]]};
        m->fn(n, in, s->slot[m->to]);
    }
}

/* Registers that hold a whole row, and the lanes of columns, at the block. */
static void move_on(state *s, char *const *lanes)
{
    const gdi_rows *p = s->p;
    const int n = p->n_out + p->n_in;
    for (int k = 0; k < p->n_held; k++)
        s->slot[n + GDI_AT_KEPT + k] = s->local + p->kept + k * p->kept_nbytes + s->first * p->element_nbytes;
    for (int k = 0; k < p->n_out; k++)
        if (p->operand[k].cls == GDI_COLUMN)
            s->slot[k] = lanes[k] + s->first * p->operand[k].size;
}

static void run_block(state *s, const gdi_section *c, char (*lanes)[GDI_ROW_LANES][GDI_FOLD_NBYTES])
{
    const gdi_rows *p = s->p;
    const gdi_row_move_of *m = p->move + c->move;
    for (int i = 0; i < c->n_move; i++) {
        if (m[i].what == GDI_MOVE_POINT)
            s->slot[m[i].from] = block_address(s, m[i].from);
        else if (m[i].what == GDI_MOVE_GATHER)
            walk_block(s, m[i].from, 0);
        else if (m[i].what == GDI_MOVE_TURN)
            turn_block(s, m[i].from);
    }
    run_micros(s, c, s->rows * s->count, lanes);
    for (int i = 0; i < c->n_move; i++)
        if (m[i].what == GDI_MOVE_SCATTER)
            walk_block(s, m[i].from, 1);
}

/* The end of the block that starts at s->first: runs and the blocks of sums are not crossed. */
static int64_t block_count(const state *s)
{
    const gdi_rows *p = s->p;
    int64_t n = least(p->block, p->n - s->first);
    n = least(n, GDI_FOLD_BLOCK - s->first % GDI_FOLD_BLOCK);
    return p->run < p->n ? least(n, p->run - s->first % p->run) : n;
}

static void find_place(state *s)
{
    const gdi_rows *p = s->p;
    const int64_t *shape = p->shape + p->n_kept;
    int64_t rest = s->first;
    for (int d = p->n_axes - 1; d > 0; d--) {
        s->place[d] = rest % shape[d];
        rest /= shape[d];
    }
    s->place[0] = rest;
}

/* A long row, block by block. */
static void sweep_row(state *s, const gdi_section *c, char *const *columns, char (*lanes)[GDI_ROW_LANES][GDI_FOLD_NBYTES])
{
    const gdi_rows *p = s->p;
    double *const parts = (double *)(void *)(s->local + p->parts);
    int64_t blocks = 0;
    for (s->first = 0; s->first < p->n; s->first += s->count) {
        s->count = block_count(s);
        find_place(s);
        move_on(s, columns);
        run_block(s, c, lanes);
        const int64_t end = s->first + s->count;
        if (end % GDI_FOLD_BLOCK != 0 && end < p->n)
            continue;
        for (int i = 0; i < c->n_sink; i++) {
            parts[i * PARTS + blocks] = p->sink[c->sink + i].fold->join(lanes[i][0]);
            memset(lanes[i][0], 0, GDI_FOLD_NBYTES);
        }
        blocks++;
    }
    for (int i = 0; i < c->n_sink; i++) {
        const gdi_row_sink *k = p->sink + c->sink + i;
        put_sum(s->slot[k->to], k->size, join(parts + i * PARTS, blocks));
    }
    s->first = 0;
}

/* Short rows: all of the batch is one block. */
static void sweep_batch(state *s, const gdi_section *c, char (*lanes)[GDI_ROW_LANES][GDI_FOLD_NBYTES])
{
    run_block(s, c, lanes);
    for (int i = 0; i < c->n_sink; i++) {
        const gdi_row_sink *k = s->p->sink + c->sink + i;
        for (int64_t q = 0; q < s->rows; q++)
            put_sum((char *)s->slot[k->to] + q * k->size, k->size, k->fold->join(lanes[i][q]));
    }
}

static void run_sweep(state *s, const gdi_section *c, char *const *columns)
{
    const gdi_rows *p = s->p;
    char (*const lanes)[GDI_ROW_LANES][GDI_FOLD_NBYTES] = (void *)(s->local + p->lanes);
    for (int i = 0; c->fills && i < c->n_move; i++)
        if (p->move[c->move + i].what == GDI_MOVE_FILL)
            fill(s, p->move + c->move + i);
    for (int i = 0; i < c->n_sink; i++)
        memset(lanes[i], 0, (size_t)s->rows * GDI_FOLD_NBYTES);
    if (p->block < p->n)
        sweep_row(s, c, columns, lanes);
    else
        sweep_batch(s, c, lanes);
}

/* What the next batch reads, into L2: with sums of columns it is 16 rows away, where no hardware looks. */
static void prefetch(const state *s, int64_t row)
{
    const gdi_rows *p = s->p;
    if (p->block < p->n || row + p->batch > p->rows)
        return;
    for (int k = p->n_out; k < p->n_out + p->n_in; k++) {
        const gdi_row_operand *o = p->operand + k;
        if (o->cls != GDI_WHOLE || o->feed != GDI_ROW_DIRECT)
            continue;
        const char *at = s->data[k] + row_offset(p, o, row);
        for (int64_t i = 0, n = p->batch * p->n * o->size; i < n; i += GDI_ALIGN)
            __builtin_prefetch(at + i, 0, 2);
    }
}

/* Up to `batch` rows from number `row` on, of so many elements each. */
static void run_batch(state *s, int64_t row, int64_t rows, int64_t count, char *const *lanes)
{
    const gdi_rows *p = s->p;
    s->row = row;
    s->rows = rows;
    s->first = 0;
    s->count = count;
    memset(s->place, 0, (size_t)p->n_axes * sizeof *s->place);
    for (int k = 0; k < p->n_out + p->n_in; k++) {
        const gdi_row_operand *o = p->operand + k;
        if (o->cls == GDI_SMALL_VALUE && o->feed == GDI_ROW_DIRECT)
            s->slot[k] = s->data[k] + row * o->size;
        else if (o->cls == GDI_WHOLE && o->feed == GDI_ROW_DIRECT)
            s->at[k] = s->data[k] + row_offset(p, o, row);
        else if (o->feed == GDI_ROW_VALUE)
            for (int64_t q = 0; q < rows; q++)
                memcpy(s->local + o->buffer + q * o->size, s->data[k] + row_offset(p, o, row + q), (size_t)o->size);
    }
    move_on(s, lanes);
    for (const gdi_section *c = p->section, *end = c + p->n_section; c < end; c++) {
        if (c->stats)
            run_micros(s, c, rows, NULL);
        else
            run_sweep(s, c, lanes);
    }
}

/* ---- items ---- */
static void begin(state *s, const gdi_rows *p, char *const *base, char *local)
{
    const int n = p->n_out + p->n_in;
    s->p = p;
    s->local = local;
    s->link = (gdi_link *)(void *)(local + p->links);
    memcpy(s->link, p->link, (size_t)p->n_link * sizeof *s->link);
    s->rows = p->block < p->n ? 1 : p->batch;
    s->row = s->first = 0;
    s->count = p->n;
    for (int k = 0; k < n; k++) {
        const gdi_row_operand *o = p->operand + k;
        s->data[k] = base[o->place.base] + o->place.offset;
        s->slot[k] = o->buffer >= 0 ? local + o->buffer : s->data[k];
        if (o->feed == GDI_ROW_CONSTANT)
            fill_block(o->size, s->slot[k], s->data[k], o->cls == GDI_WHOLE ? p->block : p->batch);
        else if (o->feed == GDI_ROW_ONCE)
            for (int64_t q = 0; q < p->batch; q++)
                walk(p, o, s->data[k], 0, p->n, local + o->buffer + q * p->n * o->size, 0);
    }
    for (int k = 0; k < GDI_FUSED_REGISTERS; k++)
        s->slot[n + k] = local + p->registers + k * p->register_nbytes;
    for (int k = 0; k < GDI_STATS; k++)
        s->slot[n + GDI_AT_STATS + k] = local + p->stats + k * GDI_ROW_LANES * 8;
    for (int k = 0; k < GDI_FILLS; k++)
        s->slot[n + GDI_AT_FILLS + k] = local + p->fills + k * p->register_nbytes;
}

/* ---- normalisations ---- */
static char *norm_operand(const state *s, int i, int64_t row)
{
    const int k = s->p->found.operand[i];
    if (k < 0)
        return NULL;
    return s->p->operand[k].buffer >= 0 ? s->slot[k] : s->data[k] + row * s->p->n * s->p->operand[k].size;
}

/* Rows first, first + step, .. before `end`; columns: where their lanes are. */
static void run_norm(const state *s, int64_t first, int64_t step, int64_t end, char *const *lanes)
{
    const gdi_rows *p = s->p;
    const int32_t *k = p->found.operand;
    p->norm(&(gdi_norm){
        .x = norm_operand(s, GDI_NORM_X, first), .g = norm_operand(s, GDI_NORM_G, first), .y = norm_operand(s, GDI_NORM_Y, first),
        .dx = norm_operand(s, GDI_NORM_DX, first), .gamma = norm_operand(s, GDI_NORM_GAMMA, 0), .beta = norm_operand(s, GDI_NORM_BETA, 0),
        .count = norm_operand(s, GDI_NORM_COUNT, 0), .eps = norm_operand(s, GDI_NORM_EPS, 0), .spare = s->local + p->spare,
        .sum_g = lanes ? lanes[k[GDI_NORM_SUM_G]] : NULL, .sum_gx = lanes ? lanes[k[GDI_NORM_SUM_GX]] : NULL, .n = p->n,
        .rows = (end - first + step - 1) / step, .step = step * p->n * p->operand[k[GDI_NORM_X]].size,
        .moments = p->found.moments, .divide = p->found.divide});
}

static char *norm_address(const state *s, int i, int64_t row)
{
    const int k = s->p->found.operand[i];
    return k < 0 ? NULL : s->data[k] + row_offset(s->p, s->p->operand + k, row);
}

/* Packed, operands are brought together, results made where operands are no longer read, and taken apart. */
static void run_norm_row(const state *s, int64_t row)
{
    static const int arrays[] = {GDI_NORM_X, GDI_NORM_G, GDI_NORM_Y, GDI_NORM_DX};
    const gdi_rows *p = s->p;
    const int pieces = p->n_axes > 1 && !p->packed;
    char *const spare = s->local + p->spare, *const second = spare + p->spare_nbytes, *const third = second + p->spare_nbytes;
    char *const packed[] = {spare, second, p->found.back ? third : spare, second};
    char *at[GDI_NORM_OPERANDS];
    int64_t hop[GDI_NORM_OPERANDS];
    for (int i = 0; i < 4; i++) {
        const int k = p->found.operand[arrays[i]];
        at[arrays[i]] = k >= 0 && p->packed ? packed[i] : norm_address(s, arrays[i], row);
        hop[arrays[i]] = k >= 0 && pieces ? p->operand[k].stride[p->n_kept] : 0;
        if (k >= p->n_out && p->packed)
            walk(p, p->operand + k, norm_address(s, arrays[i], row), 0, p->n, packed[i], 0);
    }
    p->norm_row(&(gdi_norm_row){
        .x = at[GDI_NORM_X], .g = at[GDI_NORM_G], .y = at[GDI_NORM_Y], .dx = at[GDI_NORM_DX], .x_hop = hop[GDI_NORM_X],
        .g_hop = hop[GDI_NORM_G], .y_hop = hop[GDI_NORM_Y], .dx_hop = hop[GDI_NORM_DX], .n = p->n,
        .run = pieces ? p->shape[p->n_kept + 1] : p->n, .gamma = norm_address(s, GDI_NORM_GAMMA, row),
        .beta = norm_address(s, GDI_NORM_BETA, row), .count = norm_address(s, GDI_NORM_COUNT, row), .eps = norm_address(s, GDI_NORM_EPS, row),
        .sum_g = norm_address(s, GDI_NORM_SUM_G, row), .sum_gx = norm_address(s, GDI_NORM_SUM_GX, row),
        .parts = (double *)(void *)(s->local + p->parts), .moments = p->found.moments, .divide = p->found.divide});
    for (int i = 2; i < 4; i++)
        if (p->packed && p->found.operand[arrays[i]] >= 0)
            walk(p, p->operand + p->found.operand[arrays[i]], norm_address(s, arrays[i], row), 0, p->n, packed[i], 1);
}

/* Rows 16 apart are done together, all lanes of the item before the next ones: rows of neighbouring lanes follow each other in memory. */
static void run_deep(state *s, int64_t first, int64_t end, char *const *lanes)
{
    const gdi_rows *p = s->p;
    char *at[GDI_FUSED_OPERANDS];
    for (; first < end; first += GDI_ROWS_DEEP * GDI_ROW_LANES) {
        for (int64_t i = 0; i < p->batch && first + i < end; i++) {
            for (int k = 0; k < p->n_out; k++)
                at[k] = lanes[k] + i * p->n * p->operand[k].size;
            run_batch(s, first + i, least(GDI_ROWS_DEEP, (end - first - i + GDI_ROW_LANES - 1) / GDI_ROW_LANES), p->n, at);
        }
    }
}

/* The same where rows follow each other in all operands: those of all lanes are one long row. */
static void run_flat(state *s, int64_t first, int64_t end, char *const *lanes)
{
    const gdi_rows *p = s->p;
    for (int64_t rows; first + p->batch <= end; first += rows * GDI_ROW_LANES) {
        rows = least(GDI_ROWS_DEEP, (end - first - p->batch) / GDI_ROW_LANES + 1);
        run_batch(s, first, rows, p->batch * p->n, lanes);
    }
    if (first < end)
        run_batch(s, first, 1, (end - first) * p->n, lanes);
}

/* With sums down the columns, an item has the rows of `batch` lanes of a block of GDI_FOLD_BLOCK rows: every 16th. */
static void run_lanes(state *s, int64_t item, char *scratch)
{
    const gdi_rows *p = s->p;
    const int64_t items = GDI_ROW_LANES / p->batch, group = item / items, lane = item % items * p->batch;
    const int64_t end = least((group + 1) * GDI_FOLD_BLOCK, p->rows);
    char *lanes[GDI_FUSED_OPERANDS];
    for (int k = 0; k < p->n_out; k++)
        if (p->operand[k].cls == GDI_COLUMN) {
            const int64_t nbytes = p->n * p->operand[k].size;
            lanes[k] = scratch + p->operand[k].lanes + (group * GDI_ROW_LANES + lane) * nbytes;
            memset(lanes[k], 0, (size_t)(p->batch * nbytes));
        }
    if (p->norm) {
        if (group * GDI_FOLD_BLOCK + lane < end)
            run_norm(s, group * GDI_FOLD_BLOCK + lane, GDI_ROW_LANES, end, lanes);
        return;
    }
    if (p->deep) {
        (p->flat ? run_flat : run_deep)(s, group * GDI_FOLD_BLOCK + lane, end, lanes);
        return;
    }
    for (int64_t row = group * GDI_FOLD_BLOCK + lane; row < end; row += GDI_ROW_LANES) {
        prefetch(s, row + GDI_ROW_LANES);
        run_batch(s, row, least(p->batch, end - row), p->n, lanes);
    }
}

void gdi_rows_run(const gdi_rows *p, char *const *base, int64_t lo, int64_t hi, char *local, char *scratch)
{
    state s;
    begin(&s, p, base, local);
    if (p->norm && !p->n_columns) {
        run_norm(&s, lo * p->batch, 1, least(hi * p->batch, p->rows), NULL);
        return;
    }
    for (int64_t i = lo; i < hi; i++) {
        if (p->norm_row)
            run_norm_row(&s, i);
        else if (p->n_columns > 0)
            run_lanes(&s, i, scratch);
        else
            run_batch(&s, i * p->batch, least(p->batch, p->rows - i * p->batch), p->n, NULL);
    }
}

void gdi_rows_join(const gdi_rows *p, char *const *base, char *scratch)
{
    const int64_t groups = (p->rows + GDI_FOLD_BLOCK - 1) / GDI_FOLD_BLOCK;
    for (int k = 0; k < p->n_out; k++) {
        const gdi_row_operand *o = p->operand + k;
        if (o->cls != GDI_COLUMN)
            continue;
        const int64_t lanes_nbytes = GDI_ROW_LANES * p->n * o->size;
        char *const to = base[o->place.base] + o->place.offset;
        double *const sums = (double *)(void *)(scratch + o->lanes + groups * lanes_nbytes);
        double *const column = sums + groups * p->n;
        for (int64_t g = 0; g < groups; g++)
            o->fold->columns(scratch + o->lanes + g * lanes_nbytes, least(GDI_ROW_LANES, p->rows - g * GDI_FOLD_BLOCK), p->n, sums + g * p->n);
        for (int64_t j = 0; j < p->n; j++) {
            for (int64_t g = 0; g < groups; g++)
                column[g] = sums[g * p->n + j];
            put_sum(to + j * o->size, o->size, join(column, groups));
        }
    }
}
