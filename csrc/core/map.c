/* map.c: runs the blocks of an elementwise plan.
 * No operation reads an operand's block after one has written it, so an output that is exactly an input's memory is fine. */
#include "bring.h"
#include "stream.h"

/* ---- which block ---- */
static void measure(const gdi_plan *p, block *b)
{
    const int last = p->ndim - 1;
    b->count = least(p->block, p->inner - b->at[last]);
    b->rows = p->height > 1 ? least(p->height, p->shape[last - 1] - b->at[last - 1]) : 1;
}

/* The coordinates of an item. */
static void locate(const gdi_plan *p, int64_t item, block *b)
{
    int d = p->ndim - 1;
    int64_t rest;
    if (p->by_row) {
        rest = item / p->pieces;
        b->at[d] = item % p->pieces * p->stretch;
        if (d > 0 && p->height > 1) {
            const int64_t groups = (p->shape[d - 1] + p->height - 1) / p->height;
            b->at[--d] = rest % groups * p->height;
            rest /= groups;
        }
    } else if (d == 0) {
        b->at[0] = item * p->block;
        rest = 0;
    } else {
        const int64_t first = p->span ? item / p->pieces * p->span + item % p->pieces * p->block : item * p->block;
        b->at[d] = first % p->inner;
        rest = first / p->inner;
    }
    while (--d >= 0) {
        b->at[d] = rest % p->shape[d];
        rest /= p->shape[d];
    }
    if (p->by_row) {
        measure(p, b);
    } else {
        b->count = least(p->block, p->span ? p->span - item % p->pieces * p->block : p->n - item * p->block);
        b->rows = 1;
    }
}

/* The item after `item`. Stepping saves the divisions, which count where rows are short. */
static void advance(const gdi_plan *p, int64_t item, block *b)
{
    int d = p->ndim - 1;
    int64_t step = p->stretch;
    if (!p->by_row) {
        locate(p, item + 1, b);
        return;
    }
    for (; d >= 0; d--) {
        b->at[d] += step;
        if (b->at[d] < p->shape[d])
            break;
        b->at[d] = 0;
        step = d == p->ndim - 1 ? p->height : 1;
    }
    measure(p, b);
}

static char *address(const gdi_plan *p, const gdi_plan_operand *o, const feed *f, const block *b)
{
    char *at = f->data;
    for (int d = 0; d < p->ndim; d++)
        at += b->at[d] * o->stride[d];
    return at;
}

/* ---- one block ---- */
/* Row `row` of an input's block as the kernel wants it. */
static const void *load(const gdi_plan *p, const gdi_plan_operand *o, feed *f, const block *b, int64_t row)
{
    char *at = address(p, o, f, b);
    const void *values = f->raw;
    int64_t n = b->count;
    int fresh = 1;
    switch (o->feed) {
    case GDI_DIRECT:
        values = at;
        break;
    case GDI_SINGLE:
    case GDI_STEPPED:
        return at;
    case GDI_FLOW:
        return gdi_bring_flow(p, o, f, b->at[p->ndim - 1], n);
    case GDI_FILL:
        fresh = f->held != at;
        n = least(p->block, p->span ? p->span : p->inner);       /* whole, for the blocks that find it */
        if (fresh)
            gdi_bring_fill(o, at, f->raw, n);
        break;
    case GDI_ONCE:
        fresh = !f->held;
        if (fresh)
            gdi_bring_repeat(p, o, at, f->raw, b);
        break;
    case GDI_AGAIN:
        fresh = f->held != at || f->end < n;
        if (fresh) {
            gdi_bring_repeat(p, o, at, f->raw, b);
            f->end = n;
        }
        break;
    default:
        if (o->stride[p->ndim - 1] == o->size && in_run(p, o, b) + n <= o->run) {
            values = at;                     /* this block of it is one run */
            break;
        }
        if (o->feed == GDI_GATHER || p->height == 1) {
            gdi_bring_gather(p, o, at, f->raw, b, n);
            break;
        }
        if (row == 0)
            gdi_bring_gather_tile(p, o, at, f->raw, b);
        values = f->raw + row * GDI_TILE_STRIDE * o->size;
    }
    f->held = at;
    if (!o->cast)
        return values;
    if (fresh)
        o->cast(n, &values, f->wide);
    return f->wide;
}

/* The lines of the block after the next, asked for a few at a time while the operations of this one run: the hardware, which
 * sees many streams of half a page, follows none of them far enough. Into the second cache: lines asked for into the first
 * wait for one of the few places where loads wait too. */
typedef struct ahead {
    const char *at[GDI_FUSED_OPERANDS];
    int64_t n, k, offset, nbytes;        /* operands; the one whose turn it is, and how far; bytes of each */
} ahead;

static void ahead_of(const gdi_plan *p, const feed *f, const block *b, ahead *a)
{
    a->n = a->k = a->offset = 0;
    for (int k = 0; k < p->ahead_operands; k++)
        if (p->operand[k].feed == GDI_DIRECT && !p->operand[k].stream)
            a->at[a->n++] = address(p, p->operand + k, f + k, b) + 2 * b->count * p->operand[k].size;
    a->nbytes = b->count * p->operand[0].size;
}

static void ask_for(ahead *a, int64_t lines)
{
    while (lines > 0 && a->k < a->n) {
        const char *at = a->at[a->k] + a->offset;
        const int64_t n = least(lines, parts(a->nbytes - a->offset, GDI_ALIGN));
        for (int64_t i = 0; i < n; i++)
            __builtin_prefetch(at + i * GDI_ALIGN, 0, 2);
        lines -= n;
        a->offset += n * GDI_ALIGN;
        if (a->offset >= a->nbytes)
            a->offset = 0, a->k++;
    }
}

/* What the operations of a row read and write, by number: operands, then registers. */
typedef struct values {
    void *at[GDI_FUSED_OPERANDS + GDI_FUSED_REGISTERS];
    char (*lanes)[GDI_FOLD_NBYTES];          /* of the sums */
} values;

static void run_row(const gdi_plan *p, feed *f, const block *b, int64_t row, values *v)
{
    const int n_out = p->n_out, n = n_out + p->n_in;
    char *to[GDI_FUSED_OPERANDS], *narrow[GDI_FUSED_OPERANDS];
    if (p->through)
        f[p->through].raw = address(p, p->operand, f, b);
    for (int k = n_out; k < n; k++)
        v->at[k] = (void *)(uintptr_t)load(p, p->operand + k, f + k, b, row);
    for (int k = 0; k < n_out; k++) {
        const gdi_plan_operand *o = p->operand + k;
        if (o->feed == GDI_SUM)
            continue;
        to[k] = address(p, o, f + k, b);
        narrow[k] = (o->feed == GDI_DIRECT && !o->stream) || o->feed == GDI_STEPPED ? to[k] : f[k].raw;
        v->at[k] = o->cast ? f[k].wide : narrow[k];
    }
    ahead next = {.k = 0};
    if (p->ahead_lines > 0)
        ahead_of(p, f, b, &next);
    if (p->stepped)
        p->stepped(b->count, (const void *const *)v->at + 1, p->step, v->at[0]);
    for (const gdi_micro *m = p->micro, *end = m + (p->stepped ? 0 : p->n_micro); m < end; m++) {
        if (p->ahead_lines > 0)
            ask_for(&next, p->ahead_lines);
        const void *const in[GDI_LOOP_VALUES] = {v->at[m->from[0]], v->at[m->from[1]], v->at[m->from[2]], v->at[m->from[3]], v->at[m->from[4]]};
        if (m->fn)
            m->fn(b->count, in, v->at[m->to]);
        else if (m->two)
            m->two(b->count, in, v->at[m->to], v->at[m->also]);
        else
            p->sink[m->to].fold->add(v->lanes[m->to], in[0], b->count);
    }
    for (int k = 0; k < n_out; k++) {
        const gdi_plan_operand *o = p->operand + k;
        if (o->feed == GDI_SUM)
            continue;
        if (o->cast) {
            const void *wide = f[k].wide;
            o->cast(b->count, &wide, narrow[k]);
        }
        if (o->stream)
            p->stream(to[k], narrow[k], b->count * o->size);
        else if (narrow[k] != to[k])
            gdi_bring_scatter(p, o, to[k], narrow[k], b);
    }
}

static void run_tile(const gdi_plan *p, feed *f, block *b, values *v)
{
    int64_t *at = &b->at[p->ndim - 2], first = *at;
    for (int64_t row = 0; row < b->rows; row++, ++*at)
        run_row(p, f, b, row, v);
    *at = first;
}

/* The tile of a plan that is direct: what is turned is gathered, then only addresses change from row to row. */
static void run_direct_tile(const gdi_plan *p, const feed *f, const block *b)
{
    const int n = p->n_out + p->n_in;
    const gdi_micro *m = p->micro;
    char *at[GDI_MAP_OPERANDS];
    int64_t down[GDI_MAP_OPERANDS];
    for (int k = 0; k < n; k++) {
        const gdi_plan_operand *o = p->operand + k;
        at[k] = address(p, o, f + k, b);
        down[k] = o->stride[p->ndim - 2];
        if (o->feed == GDI_TURN) {
            gdi_bring_gather_tile(p, o, at[k], f[k].raw, b);
            at[k] = f[k].raw;
            down[k] = GDI_TILE_STRIDE * o->size;
        }
    }
    for (int64_t row = 0; row < b->rows; row++) {
        const void *const in[GDI_LOOP_VALUES] = {at[m->from[0]], at[m->from[1]], at[m->from[2]], at[m->from[3]], at[m->from[4]]};
        m->fn(b->count, in, at[0]);
        for (int k = 0; k < n; k++)
            at[k] += down[k];
    }
}

/* `rows` rows of a plan that is direct: from one to the next only addresses change. They and their steps are variables of their
 * own, not arrays that are looked up: rows are as short as a few vectors, where that is half of the time. */
static void run_direct_rows(const gdi_plan *p, char *const *at, const int64_t *step, int64_t rows)
{
    const gdi_micro *m = p->micro;
    const gdi_map_fn fn = m->fn;
    const gdi_stepped_fn stepped = p->stepped;
    const int64_t n = p->inner, to_step = step[0];
    const int64_t step0 = step[m->from[0]], step1 = step[m->from[1]], step2 = step[m->from[2]], step3 = step[m->from[3]];
    const int64_t step4 = step[m->from[4]];
    char *to = at[0];
    const char *from0 = at[m->from[0]], *from1 = at[m->from[1]], *from2 = at[m->from[2]], *from3 = at[m->from[3]],
               *from4 = at[m->from[4]];
    for (int64_t row = 0; row < rows; row++, to += to_step, from0 += step0, from1 += step1, from2 += step2, from3 += step3, from4 += step4) {
        const void *const in[GDI_LOOP_VALUES] = {from0, from1, from2, from3, from4};
        if (stepped)
            stepped(n, in, p->step, to);
        else
            fn(n, in, to);
    }
}

/* Rows [lo, hi), those along the axis before the last at once. */
static void run_direct(const gdi_plan *p, const feed *f, int64_t lo, int64_t hi)
{
    const int n = p->n_out + p->n_in, d = p->ndim - 2;
    char *at[GDI_MAP_OPERANDS];
    int64_t step[GDI_MAP_OPERANDS];
    block b;
    for (int k = 0; k < n; k++)
        step[k] = d >= 0 ? p->operand[k].stride[d] : 0;
    for (int64_t i = lo, rows; i < hi; i += rows) {
        locate(p, i, &b);
        rows = d >= 0 ? least(hi - i, p->shape[d] - b.at[d]) : 1;
        for (int k = 0; k < n; k++)
            at[k] = address(p, p->operand + k, f + k, &b);
        if (p->outer)
            p->outer(rows, p->inner, at[p->column], step[p->column], at[3 - p->column], at[0], step[0]);
        else
            run_direct_rows(p, at, step, rows);
    }
}

/* ---- sums ---- */
/* An item: up to GDI_FOLD_BLOCK elements of a row, block by block. Its sums are the row's, or parts in scratch. */
static void run_sums(const gdi_plan *p, feed *f, block *b, values *v, int64_t item, char *scratch)
{
    char lanes[GDI_FUSED_OPERANDS][GDI_FOLD_NBYTES] __attribute__((aligned(GDI_ALIGN)));
    int64_t *at = &b->at[p->ndim - 1];
    const int64_t first = *at, end = least(first + p->stretch, p->inner);
    memset(lanes, 0, (size_t)p->n_sink * GDI_FOLD_NBYTES);
    v->lanes = lanes;
    for (; *at < end; *at += p->block) {
        b->count = least(p->block, end - *at);
        run_row(p, f, b, 0, v);
    }
    *at = first;
    for (int k = 0; k < p->n_sink; k++) {
        const gdi_sink *s = p->sink + k;
        const double sum = s->fold->join(lanes[k]);
        if (p->pieces > 1)
            memcpy(scratch + (k * p->items + item) * (int64_t)sizeof sum, &sum, sizeof sum);
        else
            put_sum(address(p, p->operand + s->to, f + s->to, b), p->operand[s->to].size, sum);
    }
}

/* The same for a plan that one loop does: all items of a row at once. */
static void run_whole(const gdi_plan *p, const feed *f, int64_t lo, int64_t hi, char *local, char *scratch)
{
    const gdi_sink *s = p->sink;
    const gdi_plan_operand *o = p->operand + 1;
    block b;
    for (int64_t i = lo, m; i < hi; i += m) {
        m = least(hi - i, p->pieces - i % p->pieces);
        locate(p, i, &b);
        const void *less = p->less ? address(p, p->operand + p->less, f + p->less, &b) : NULL;
        double one, *part = p->pieces > 1 ? (double *)(void *)scratch + i : &one;
        if (p->turned)
            p->turned(f[1].data, o->rows, o->down / o->size, p->inner, less, i, i + m, local, part);
        else
            p->whole(address(p, o, f + 1, &b), least(m * p->stretch, p->inner - b.at[p->ndim - 1]), less, part);
        if (p->pieces == 1)
            put_sum(address(p, p->operand + s->to, f + s->to, &b), p->operand[s->to].size, one);
    }
}

void gdi_map_join(const gdi_plan *p, char *const *base, char *scratch)
{
    double *part = (double *)(void *)scratch;
    block b;
    for (int k = 0; k < p->n_sink; k++) {
        const gdi_sink *s = p->sink + k;
        const gdi_plan_operand *o = p->operand + s->to;
        const feed f = {.data = base[o->place.base] + o->place.offset};
        for (int64_t item = 0; item < p->items; item += p->pieces, part += p->pieces) {
            locate(p, item, &b);
            put_sum(address(p, o, &f, &b), o->size, join(part, p->pieces));
        }
    }
}

static void begin(const gdi_plan *p, char *const *base, char *local, feed *f, values *v)
{
    const int n = p->n_out + p->n_in;
    for (int k = 0; k < n; k++) {
        const gdi_plan_operand *o = p->operand + k;
        f[k].data = base[o->place.base] + o->place.offset;
        f[k].raw = o->buffer >= 0 ? local + o->buffer * (p->raw_nbytes + GDI_MAP_WIDE_NBYTES) : NULL;
        f[k].wide = o->buffer >= 0 ? f[k].raw + p->raw_nbytes : NULL;
        f[k].held = NULL;
        f[k].first = f[k].end = 0;
    }
    for (int k = 0; k < p->n_register; k++)
        v->at[n + k] = local + p->buffers_nbytes + k * p->register_nbytes;
}

void gdi_map_run(const gdi_plan *p, char *const *base, int64_t lo, int64_t hi, char *local, char *scratch)
{
    feed f[GDI_FUSED_OPERANDS];
    values v;
    block b;
    if (p->past) {
        gdi_past_run(p, base, lo, hi, local);
        return;
    }
    begin(p, base, local, f, &v);
    if (p->whole || p->turned) {
        run_whole(p, f, lo, hi, local, scratch);
        return;
    }
    if (p->direct && p->height == 1 && p->ahead_lines == 0) {
        run_direct(p, f, lo, hi);
        return;
    }
    for (int64_t i = lo; i < hi; i++) {
        if (i == lo)
            locate(p, i, &b);
        else
            advance(p, i - 1, &b);
        if (p->n_sink > 0)
            run_sums(p, f, &b, &v, i, scratch);
        else if (p->height > 1 && p->direct)
            run_direct_tile(p, f, &b);
        else if (p->height > 1)
            run_tile(p, f, &b, &v);
        else
            run_row(p, f, &b, 0, &v);
    }
    gdi_stream_end();
}

/* ---- parts ---- */
int gdi_map_has_parts(const gdi_plan *p)
{
    if (p->n_sink > 0 || p->height > 1 || p->stepped || p->outer || p->whole || p->turned)
        return 0;
    for (int k = 0; k < p->n_out; k++)
        if (p->operand[k].feed != GDI_DIRECT)
            return 0;
    return 1;
}

/* The block at an element, of at most `count` elements. */
static void locate_at(const gdi_plan *p, int64_t element, int64_t count, block *b)
{
    const int last = p->ndim - 1;
    int64_t rest = element;
    for (int d = last; d > 0; d--) {
        b->at[d] = rest % p->shape[d];
        rest /= p->shape[d];
    }
    b->at[0] = rest;
    b->rows = 1;
    b->count = least(p->part ? p->part : p->block, count);
    if (p->by_row)
        b->count = least(b->count, p->inner - b->at[last]);
    else if (p->span)
        b->count = least(b->count, p->span - element % p->span);
}

/* What repeats from block to block is there if it was loaded for a block that began where this one does, and as long a one. */
static void hold_period(const gdi_plan *p, feed *f, int64_t element, int64_t count)
{
    for (int k = p->n_out; k < p->n_out + p->n_in; k++) {
        if (p->operand[k].feed != GDI_ONCE)
            continue;
        const int64_t at = element % p->operand[k].period;
        if (f[k].held && (f[k].first != at || f[k].end < count))
            f[k].held = NULL;
        if (!f[k].held) {
            f[k].first = at;
            f[k].end = count;
        }
    }
}

void gdi_map_run_parts(const gdi_plan *p, char *const *base, int64_t first, int64_t count, int64_t rows, int64_t step, char *to, char *local)
{
    feed f[GDI_FUSED_OPERANDS];
    values v;
    block b;
    begin(p, base, local, f, &v);
    if (to)
        f[0].data = (char *)((uintptr_t)to - (uintptr_t)(first * p->operand[0].size));
    for (int64_t row = 0; row < rows; row++, first += step)
        for (int64_t at = first, end = first + count; at < end; at += b.count) {
            locate_at(p, at, end - at, &b);
            hold_period(p, f, at, b.count);
            run_row(p, f, &b, 0, &v);
        }
    gdi_stream_end();
}
