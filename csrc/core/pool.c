/* pool.c: a few worker threads that share the chunks of one region.
 *
 * A region is a counter of chunks behind one 64-bit word: generation in the high half, next chunk in the low one. A
 * chunk is taken by compare-and-swap, so the caller, who takes chunks too, waits only for chunks that were taken and
 * never for a worker that has not woken up. Between regions the word is closed: no chunk number is below it, and a
 * worker that is late can take nothing. Workers spin a little before they sleep, are detached, and block signals. */
#define _GNU_SOURCE
#define _DARWIN_C_SOURCE
#include "program.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>

#if defined(__x86_64__)
#define RELAX() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define RELAX() __asm__ volatile("yield")
#else
#define RELAX() ((void)0)
#endif

/* A sleeping worker costs its waker 2 to 18 us, a spinning one 0.1 us; spinning longer starves other programs. */
enum { SPIN_NS = 40000, SPINS_PER_LOOK = 64, STACK_NBYTES = 2 << 20 };
static const uint64_t closed = UINT32_MAX;

typedef void (*chunk_fn)(void *arg, int64_t chunk, int thread);

static struct {
    _Atomic uint64_t state;
    _Alignas(64) _Atomic int64_t done;       /* chunks finished */
    _Alignas(64) atomic_int asleep;
    atomic_int busy;                         /* a caller owns the region */
    _Atomic uint32_t chunks;
    atomic_int threads;                      /* the caller is thread 0, workers above take no part */
    _Atomic(chunk_fn) run;
    _Atomic(void *) arg;
    atomic_int workers;                      /* written by the owner only */
    int registered;                          /* the fork handler is */
    pthread_mutex_t mutex;
    pthread_cond_t wake;
} pool = {.state = UINT32_MAX, .mutex = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

static uint32_t generation(uint64_t state) { return (uint32_t)(state >> 32); }

/* Take and run one chunk; 0 when there is none for this thread. */
static int take(int thread)
{
    uint64_t s = atomic_load(&pool.state);
    while (thread < atomic_load(&pool.threads) && (uint32_t)s < atomic_load(&pool.chunks)) {
        if (!atomic_compare_exchange_weak(&pool.state, &s, s + 1))
            continue;
        /* This chunk is not done, so the region stays open and its fields stay as they are. */
        atomic_load(&pool.run)(atomic_load(&pool.arg), (uint32_t)s, thread);
        atomic_fetch_add(&pool.done, 1);
        return 1;
    }
    return 0;
}

/* Wait for another generation than `seen`: spinning, then asleep. */
static void await_region(uint32_t seen)
{
    const int64_t until = gdi_now_ns() + SPIN_NS;
    for (int i = 1; generation(atomic_load(&pool.state)) == seen; i++) {
        RELAX();
        if (i % SPINS_PER_LOOK == 0 && gdi_now_ns() > until)
            break;
    }
    if (generation(atomic_load(&pool.state)) != seen)
        return;
    pthread_mutex_lock(&pool.mutex);
    atomic_fetch_add(&pool.asleep, 1);       /* before the look: the caller publishes, then asks who sleeps */
    while (generation(atomic_load(&pool.state)) == seen)
        pthread_cond_wait(&pool.wake, &pool.mutex);
    atomic_fetch_sub(&pool.asleep, 1);
    pthread_mutex_unlock(&pool.mutex);
}

static void *worker(void *number)
{
    const int thread = (int)(intptr_t)number;
    for (;;) {
        const uint32_t seen = generation(atomic_load(&pool.state));
        while (take(thread))
            ;
        await_region(seen);
    }
    return NULL;
}

/* A child has no workers, whatever its parent was doing. */
static void after_fork(void)
{
    pool.workers = 0;
    atomic_store(&pool.state, closed);
    atomic_store(&pool.asleep, 0);
    atomic_store(&pool.busy, 0);
    pthread_mutex_init(&pool.mutex, NULL);
    pthread_cond_init(&pool.wake, NULL);
}

static void start_worker(const pthread_attr_t *attr)
{
    pthread_t id;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&id, attr, worker, (void *)(intptr_t)(pool.workers + 1)) == 0)
        pool.workers++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Bring the pool to `threads` threads, the caller included; fewer when the system gives no more. */
static void start_workers(int threads)
{
    pthread_attr_t attr;
    int before = -1;
    if (pool.workers >= threads - 1)
        return;
    if (!pool.registered && pthread_atfork(NULL, NULL, after_fork) != 0)
        return;
    pool.registered = 1;
    if (pthread_attr_init(&attr) != 0)
        return;
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attr, STACK_NBYTES);
    while (pool.workers < threads - 1 && pool.workers != before) {
        before = pool.workers;
        start_worker(&attr);
    }
    pthread_attr_destroy(&attr);
}

static void open_region(int threads, uint32_t chunks, chunk_fn run, void *arg)
{
    const uint64_t next = (uint64_t)(generation(atomic_load(&pool.state)) + 1) << 32;
    atomic_store(&pool.threads, threads);
    atomic_store(&pool.chunks, chunks);
    atomic_store(&pool.run, run);
    atomic_store(&pool.arg, arg);
    atomic_store(&pool.done, 0);
    atomic_store(&pool.state, next);
    if (atomic_load(&pool.asleep) == 0)
        return;
    pthread_mutex_lock(&pool.mutex);
    pthread_cond_broadcast(&pool.wake);
    pthread_mutex_unlock(&pool.mutex);
}

/* Wait for the chunks that workers took, then close: the generation stays, so nobody wakes for it. */
static void close_region(uint32_t chunks)
{
    for (int i = 1; atomic_load(&pool.done) < chunks; i++) {
        RELAX();
        if (i % 4096 == 0)
            sched_yield();                   /* the worker may have lost its core */
    }
    atomic_store(&pool.state, (uint64_t)generation(atomic_load(&pool.state)) << 32 | closed);
}

int gdi_pool_is_awake(int threads) { return atomic_load(&pool.workers) - atomic_load(&pool.asleep) >= threads - 1; }

int gdi_pool_run(int threads, int64_t chunks, chunk_fn run, void *arg)
{
    int idle = 0;
    if (chunks < 2 || chunks >= UINT32_MAX || !atomic_compare_exchange_strong(&pool.busy, &idle, 1))
        return 1;
    start_workers(threads);
    if (pool.workers == 0) {
        atomic_store(&pool.busy, 0);
        return 1;
    }
    open_region(threads, (uint32_t)chunks, run, arg);
    while (take(0))
        ;
    close_region((uint32_t)chunks);
    atomic_store(&pool.busy, 0);
    return 0;
}
