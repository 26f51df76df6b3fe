/* alloc.c: all memory of the core, and the clock.
 * A block carries a header of one cache line in front of it. Large blocks come from mmap: they are cleared lazily, so
 * memory that is never touched costs nothing. Huge pages are asked for where the block fills them and has several: a page
 * that is touched at all counts whole, and what fits in the TLB's second level is as fast without. */
#define _GNU_SOURCE
#define _DARWIN_C_SOURCE
#include "gdi.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

typedef struct gdi_header {
    void *raw;
    int64_t map_nbytes;      /* 0: from calloc */
} gdi_header;

enum { HEADER_NBYTES = GDI_ALIGN, HUGE_PAGE = 2 << 20, HUGE_FROM = 2 * HUGE_PAGE };

static _Atomic int64_t alloc_live;
static _Atomic int64_t alloc_left = -1;

void gd_alloc_fail_after(int64_t n) { atomic_store(&alloc_left, n); }
int64_t gd_alloc_live(void) { return atomic_load(&alloc_live); }

/* Is this allocation one that a test wants to fail? */
static int alloc_refused(void)
{
    int64_t left = atomic_load(&alloc_left);
    while (left > 0)
        if (atomic_compare_exchange_weak(&alloc_left, &left, left - 1))
            return 0;
    return left == 0;
}

/* `at` bytes into raw there is an aligned address with room for a header before it. */
static void *alloc_finish(void *raw, uintptr_t start, int64_t map_nbytes)
{
    gdi_header *h = (gdi_header *)(void *)((char *)raw + (start - (uintptr_t)raw));
    h->raw = raw;
    h->map_nbytes = map_nbytes;
    atomic_fetch_add(&alloc_live, 1);
    return (char *)h + HEADER_NBYTES;
}

static void *alloc_mapped(int64_t nbytes, int huge)
{
    int64_t total;
    if (gdi_add(nbytes, HEADER_NBYTES + HUGE_PAGE, &total))
        return NULL;
    void *raw = mmap(NULL, (size_t)total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED)
        return NULL;
    uintptr_t start = ((uintptr_t)raw + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1);
    (void)huge;
#ifdef MADV_HUGEPAGE
    if (huge && nbytes >= HUGE_FROM)                /* advice: a failure changes nothing */
        madvise((void *)start, (size_t)nbytes & ~(size_t)(HUGE_PAGE - 1), MADV_HUGEPAGE);
#endif
    return alloc_finish(raw, start, total);
}

static void *alloc_of(int64_t nbytes, int huge)
{
    if (nbytes < 0 || alloc_refused())
        return NULL;
    if (nbytes >= HUGE_PAGE)
        return alloc_mapped(nbytes, huge);
    void *raw = calloc(1, (size_t)nbytes + HEADER_NBYTES + GDI_ALIGN);
    if (!raw)
        return NULL;
    return alloc_finish(raw, ((uintptr_t)raw + GDI_ALIGN - 1) & ~(uintptr_t)(GDI_ALIGN - 1), 0);
}

void *gdi_alloc(int64_t nbytes) { return alloc_of(nbytes, 1); }

void *gdi_alloc_sparse(int64_t nbytes) { return alloc_of(nbytes, 0); }

void gdi_free(void *p)
{
    if (!p)
        return;
    gdi_header h = *(gdi_header *)(void *)((char *)p - HEADER_NBYTES);
    atomic_fetch_sub(&alloc_live, 1);
    if (h.map_nbytes)
        munmap(h.raw, (size_t)h.map_nbytes);
    else
        free(h.raw);
}

int64_t gdi_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
