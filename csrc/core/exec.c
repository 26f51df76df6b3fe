/* exec.c: runs a program. Small steps are called one after the other; a big step is a task of independent items that
 * is cut into ranges, for the clock and for the threads. What an item computes never depends on the cut. */
#include "rows.h"
#include <stdatomic.h>
#include <string.h>

/* A slice of a flat step: 16 KiB of float32, long enough that a call costs nothing. */
enum { SLICE = 4096, SLICE_GRAIN_QUARTER_NS = 200000 };
/* Single operations done between looks at the clock's credit, and their estimated time. */
enum { SCALARS = 2048, SCALAR_NS = 8 };
/* The clock is read when about this much work was done; a grain of items is this long. */
enum { TICK_NS = 50000 };
/* Several threads pay from a grain of work on, where one has to be woken for it; of a grain while the others still spin. The shortest chunk
 * is an eighth: a chunk costs some 0.3 us, and a thread waits half of the last one on average (of 110 us of work, halves of a grain left
 * 6 us idle). */
enum { AWAKE_PARTS = 4, CHUNK_PARTS = 8 };

typedef struct run {
    const gd_program *program;
    gd_workspace *w;
    char *const *base;
    gd_fault *fault;
    int64_t budget;          /* ns; 0: none, or not in the interruptible part */
    int64_t deadline;        /* 0: the clock was not read yet */
    int64_t credit;          /* estimated ns until the clock is read */
    int apart;               /* every step by itself, to be timed */
} run;

/* ---- tasks ---- */
typedef struct task {
    int (*run)(const struct task *t, int64_t lo, int64_t hi, char *local, gd_fault *fault);
    int64_t items, grain;
    char *const *base;
    const gdi_step *step;
    const gdi_call *call;
    char *scratch;
    int phase, head;         /* head: what the items of phase 0 take is made first */
} task;

static int run_slices(const task *t, int64_t lo, int64_t hi, char *local, gd_fault *fault)
{
    const gdi_step *s = t->step;
    const int64_t first = lo * SLICE, end = hi * SLICE < s->n ? hi * SLICE : s->n;
    const void *in[GDI_MAP_OPERANDS - 1];
    (void)local, (void)fault;
    for (int k = 1; k < GDI_MAP_OPERANDS; k++)
        in[k - 1] = gdi_resolve(t->base, s->u.flat.ref[k]) + (first << (s->log2_sizes >> 2 * k & 3));
    s->u.flat.fn(end - first, in, gdi_resolve(t->base, s->u.flat.ref[0]) + (first << (s->log2_sizes & 3)));
    return GD_OK;
}

static int run_blocks(const task *t, int64_t lo, int64_t hi, char *local, gd_fault *fault)
{
    (void)fault;
    gdi_map_run(t->step->u.plan, t->base, lo, hi, local, t->scratch);
    return GD_OK;
}

static int run_row_items(const task *t, int64_t lo, int64_t hi, char *local, gd_fault *fault)
{
    (void)fault;
    gdi_rows_run(t->step->u.rows, t->base, lo, hi, local, t->scratch);
    return GD_OK;
}

static int run_kernel(const task *t, int64_t lo, int64_t hi, char *local, gd_fault *fault)
{
    gdi_call call = *t->call;
    call.fault = fault;
    if (t->head && t->phase == 0)
        return gdi_head_run(t->step->u.launch, &call, t->base, lo, hi, local);
    return t->step->u.launch->kernel->run(&call, t->phase, lo, hi, local);
}

/* ---- a range of items on several threads ---- */
/* Each chunk is a part of what is left, half a thread's share: the first ones are long, for kernels share work between the items of a
 * chunk, and the last ones short, for a thread waits half of one on average. Eight equal chunks for two threads left a sixteenth
 * of the time idle, and more where the other thread began late. */
enum { MOST_CHUNKS = 8 * GDI_MAX_THREADS + 8 };

typedef struct crowd {
    const task *task;
    char *const *local;
    int64_t start[MOST_CHUNKS + 1];          /* items: chunk k is start[k]..start[k + 1]-1 */
    _Atomic int64_t failed;                  /* lowest chunk that failed */
    int64_t chunk[GDI_MAX_THREADS];          /* per thread: the lowest chunk that failed there, how and why */
    int status[GDI_MAX_THREADS];
    gd_fault fault[GDI_MAX_THREADS];
} crowd;

static void run_chunk(void *arg, int64_t chunk, int thread)
{
    crowd *c = arg;
    gd_fault fault;
    const int64_t lo = c->start[chunk], hi = c->start[chunk + 1];
    if (chunk > atomic_load(&c->failed))
        return;
    gdi_fault_clear(&fault);
    const int status = c->task->run(c->task, lo, hi, c->local[thread], &fault);
    if (status == GD_OK)
        return;
    int64_t failed = atomic_load(&c->failed);
    while (chunk < failed && !atomic_compare_exchange_weak(&c->failed, &failed, chunk))
        ;
    if (c->status[thread] == GD_OK || chunk < c->chunk[thread]) {
        c->chunk[thread] = chunk;
        c->status[thread] = status;
        c->fault[thread] = fault;
    }
}

/* The failure a single thread would have met first: chunks are handed out in order, so every lower one has run. */
static int crowd_status(const crowd *c, gd_fault *fault)
{
    const int64_t failed = atomic_load(&c->failed);
    for (int i = 0; i < GDI_MAX_THREADS; i++)
        if (c->status[i] != GD_OK && c->chunk[i] == failed) {
            *fault = c->fault[i];
            return c->status[i];
        }
    return GD_OK;
}

/* Cut items [lo, hi); returns the number of chunks. The smallest is `least`, or 1/32 of a thread's share where that is more: then there
 * are at most some 2 ln 16 + 2 chunks a thread. */
static int64_t cut(crowd *c, int64_t lo, int64_t hi, int threads, int64_t least)
{
    const int64_t share = (hi - lo) / (32 * (int64_t)threads);
    int64_t n = 0;
    least = least > share ? least : share;
    for (c->start[0] = lo; lo < hi; c->start[++n] = lo) {
        const int64_t part = (hi - lo - 1) / (2 * (int64_t)threads) + 1, size = part > least ? part : least;
        lo = size < hi - lo && n + 1 < MOST_CHUNKS ? lo + size : hi;
    }
    return n;
}

/* Items [lo, hi): on the pool when they are worth it and it is free, else here. */
static int run_range(const run *r, const task *t, int64_t lo, int64_t hi)
{
    const int threads = r->w->threads;
    if (threads > 1 && (hi - lo > t->grain || (hi - lo > t->grain / AWAKE_PARTS + 1 && gdi_pool_is_awake(threads)))) {
        crowd c = {.task = t, .local = r->w->local, .failed = INT64_MAX};
        const int64_t chunks = cut(&c, lo, hi, threads, (t->grain + CHUNK_PARTS - 1) / CHUNK_PARTS);
        if (gdi_pool_run(threads, chunks, run_chunk, &c) == 0)
            return crowd_status(&c, r->fault);
    }
    return t->run(t, lo, hi, r->w->local[0], r->fault);
}

/* ---- time ---- */
/* The clock starts at the first reading, which the first TICK_NS of work bring about: a short run reads no clock. */
static int out_of_time(run *r, int64_t now)
{
    r->credit = TICK_NS;
    if (r->deadline == 0)
        r->deadline = now + r->budget;
    return now >= r->deadline;
}

/* A task from where it stopped. With a budget the range grows while it stays short of the budget: kernels share work between items of a
 * range, which so begins with as many grains for each thread as a small part of the budget has room for. (Sums of 20000 x 200 turned
 * float64 in ranges of 5, 10 and 1 segments: 3300 us, all at once 2200.) */
static int run_task(run *r, const task *t)
{
    gd_workspace *w = r->w;
    const int64_t some = r->budget / (64 * TICK_NS);
    int64_t window = t->grain * (some > 1 ? some : 1) * r->w->threads, before;
    if (!r->budget || t->items - w->item <= t->grain) {
        const double left = (double)(t->items - w->item) / (double)t->grain;
        r->credit -= r->budget ? (int64_t)(left * TICK_NS) : 0;
        const int status = run_range(r, t, w->item, t->items);
        w->item = 0;
        return status;
    }
    before = gdi_now_ns();
    out_of_time(r, before);
    while (w->item < t->items) {
        const int64_t hi = t->items - w->item < window ? t->items : w->item + window;
        const int status = run_range(r, t, w->item, hi);
        if (status != GD_OK)
            return status;
        w->item = hi;
        const int64_t now = gdi_now_ns();
        if (hi < t->items && out_of_time(r, now))
            return GD_MORE;
        if (now - before < r->budget / 16 && window < t->items)
            window *= 2;
        before = now;
    }
    w->item = 0;
    r->credit = 0;                           /* time has passed: look at the clock after this step */
    return GD_OK;
}

/* ---- steps ---- */
static int run_structural(run *r, const gdi_step *s)
{
    const gdi_launch *l = s->u.launch;
    gdi_operand operand[GDI_MAX_OPERANDS];
    gdi_call call;
    const int n = l->n_out + l->n_in;
    memcpy(operand, l->operand, (size_t)n * sizeof *operand);
    for (int k = 0; k < n; k++)
        operand[k].data = r->base[l->place[k].base] + l->place[k].offset;
    gdi_launch_call(l, &call);
    call.out = operand;
    call.in = operand + l->n_out;
    call.scratch = r->w->scratch;
    const gdi_tail tail = {l->tail, r->base};
    if (l->tail && !r->apart) {
        call.done = gdi_tail_done;
        call.tail = &tail;
    }
    task t = {.run = run_kernel, .base = r->base, .step = s, .call = &call, .head = l->head.kind != GDI_NOTHING && !r->apart};
    for (; r->w->phase < l->kernel->phases; r->w->phase++) {
        t.phase = r->w->phase;
        t.items = l->phase[t.phase].items;
        t.grain = l->phase[t.phase].grain;
        if (t.items <= 0)
            continue;
        const int status = run_task(r, &t);
        if (status != GD_OK)
            return status;
        if (r->credit <= 0 && r->budget && r->w->phase + 1 < l->kernel->phases && out_of_time(r, gdi_now_ns())) {
            r->w->phase++;                   /* few long items leave a phase without a look at the clock */
            return GD_MORE;
        }
    }
    r->w->phase = 0;
    return GD_OK;
}

static int run_flat(run *r, const gdi_step *s)
{
    const int64_t grain = SLICE_GRAIN_QUARTER_NS / (SLICE * s->cost);
    const task t = {.run = run_slices, .base = r->base, .step = s,
                    .items = ((int64_t)s->n + SLICE - 1) / SLICE, .grain = grain > 1 ? grain : 1};
    return run_task(r, &t);
}

static int run_plan(run *r, const gdi_step *s)
{
    const gdi_plan *p = s->u.plan;
    const task t = {.run = run_blocks, .base = r->base, .step = s, .scratch = r->w->scratch,
                    .items = p->items, .grain = p->grain};
    const int status = run_task(r, &t);
    if (status == GD_OK && p->n_sink > 0 && p->pieces > 1)
        gdi_map_join(p, r->base, r->w->scratch);
    return status;
}

static int run_rows(run *r, const gdi_step *s)
{
    const gdi_rows *p = s->u.rows;
    const task t = {.run = run_row_items, .base = r->base, .step = s, .scratch = r->w->scratch, .items = p->items, .grain = p->grain};
    const int status = run_task(r, &t);
    if (status == GD_OK && p->n_columns > 0)
        gdi_rows_join(p, r->base, r->w->scratch);
    return status;
}

static int run_big(run *r, const gdi_step *s)
{
    if (s->kind == GDI_HEAD) {
        if (!r->apart)
            return GD_OK;
        s = s->u.head;
    }
    switch (s->kind) {
    case GDI_FLAT: return run_flat(r, s);
    case GDI_BLOCKS: return run_plan(r, s);
    case GDI_ROWS: return run_rows(r, s);
    case GDI_STRUCTURAL: return run_structural(r, s);
    default: return GD_OK;
    }
}

/* Steps [w->pc, end). GD_MORE: w says where to go on. */
static int run_steps(run *r, int64_t end)
{
    const gdi_step *const step = r->program->step;
    char *const *const base = r->base;
    for (int64_t pc = r->w->pc; pc < end; pc++) {
        const gdi_step *s = step + pc;
        if (s->kind == GDI_SCALARS) {
            int64_t n = s->n < end - pc ? s->n : end - pc;
            n = n < SCALARS ? n : SCALARS;
            s->u.scalars.run(s->u.scalars.first, n, base);
            r->credit -= n * SCALAR_NS;
            pc += n - 1;
        } else if (s->kind == GDI_SMALL) {
            const void *const in[] = {gdi_resolve(base, s->u.flat.ref[1]), gdi_resolve(base, s->u.flat.ref[2]),
                                      gdi_resolve(base, s->u.flat.ref[3])};
            s->u.flat.fn(s->n, in, gdi_resolve(base, s->u.flat.ref[0]));
            r->credit -= s->cost;
        } else {
            r->w->pc = pc;
            const int status = run_big(r, s);
            if (status != GD_OK) {
                r->fault->instr = status == GD_MORE ? -1 : pc;
                return status;
            }
            pc += s->kind == GDI_STRUCTURAL && s->u.launch->tail && !r->apart;
        }
        if (r->credit <= 0 && r->budget && out_of_time(r, gdi_now_ns()) && pc + 1 < r->program->n_step) {
            r->w->pc = pc + 1;
            return GD_MORE;
        }
    }
    r->w->pc = end;
    return GD_OK;
}

/* ---- the entrance ---- */
static int refuse(gd_fault *fault, int what, int64_t value)
{
    fault->what = what;
    fault->value = value;
    return GD_BAD_VALUE;
}

static int begin(run *r, const gd_program *p, gd_workspace *w, void *const *bases, gd_fault *fault)
{
    gdi_fault_clear(fault);
    if (w->program != p)
        return refuse(fault, GDI_REASON_WORKSPACE, -1);
    for (int b = GD_BASE_FIRST; b < p->n_base; b++) {
        w->base[b] = bases ? bases[b] : NULL;
        if (!w->base[b]) {
            if (p->base_nbytes[b] > 0)
                return refuse(fault, GDI_REASON_NULL_BASE, b);
            w->base[b] = w->arena;           /* nothing there is ever touched, and pointers stay pointers */
        }
    }
    *r = (run){.program = p, .w = w, .base = w->base, .fault = fault, .credit = TICK_NS};
    return GD_OK;
}

static int finish(gd_workspace *w, int status)
{
    if (status != GD_MORE)
        gd_restart(w);
    return status;
}

int gd_run(const gd_program *p, gd_workspace *w, void *const *bases, int64_t budget_ns, gd_fault *fault)
{
    run r;
    gd_fault unused;
    int status = begin(&r, p, w, bases, fault ? fault : &unused);
    if (status != GD_OK)
        return finish(w, status);
    if (w->pc < p->commit) {
        r.budget = budget_ns > 0 ? budget_ns : 0;
        status = run_steps(&r, p->commit);
        r.budget = 0;
    }
    if (status == GD_OK)
        status = run_steps(&r, p->n_step);
    return finish(w, status);
}

int gd_continue_job(const gd_job *job) { return gd_run(job->program, job->workspace, job->bases, job->budget_ns, job->fault); }

int gd_run_job(const gd_job *job)
{
    gd_restart(job->workspace);
    return gd_continue_job(job);
}

int gd_run_profiled(const gd_program *p, gd_workspace *w, void *const *bases, int64_t *ns, gd_fault *fault)
{
    run r;
    gd_fault unused;
    gd_restart(w);
    gdi_workspace_touch(w);
    int status = begin(&r, p, w, bases, fault ? fault : &unused);
    int64_t before = gdi_now_ns();
    r.apart = 1;
    for (int64_t i = 0; status == GD_OK && i < p->n_step; i++) {
        status = run_steps(&r, i + 1);
        const int64_t now = gdi_now_ns();
        ns[i] = now - before;
        before = now;
    }
    return finish(w, status);
}
