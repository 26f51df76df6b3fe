/* blocks.h: what plans of blocks and plans of rows do alike: sizes, runs of elements, and the end of a sum. */
#ifndef GDI_BLOCKS_H
#define GDI_BLOCKS_H
#include "program.h"
#include <string.h>

/* By element size, whatever the type; the four sizes are made from one text by inlining. */
#define INLINE static inline __attribute__((always_inline))
#define BY_SIZE(size, call) switch (size) { \
    case 1: { enum { S = 1 }; call; break; } \
    case 2: { enum { S = 2 }; call; break; } \
    case 4: { enum { S = 4 }; call; break; } \
    default: { enum { S = 8 }; call; } }

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t parts(int64_t n, int64_t of) { return n / of + (n % of != 0); }
static inline int64_t aligned(int64_t nbytes) { return (nbytes + GDI_ALIGN - 1) / GDI_ALIGN * GDI_ALIGN; }

INLINE void move_one(int size, char *to, const char *from) { memcpy(to, from, (size_t)size); }

INLINE void move_run(int size, char *to, int64_t to_stride, const char *from, int64_t from_stride, int64_t n)
{
    if (from_stride == 0 && to_stride == size && n * size >= 16) {
        char value[16];                                  /* and stores of it, of which the last two overlap */
        for (int k = 0; k < 16; k += size)
            memcpy(value + k, from, (size_t)size);
        const int64_t last = n * size - 16;
        for (int64_t i = 0; i < last; i += 16)
            memcpy(to + i, value, sizeof value);
        memcpy(to + last, value, sizeof value);
    } else if (from_stride == 0) {
        uint64_t value = 0;
        memcpy(&value, from, (size_t)size);
        for (int64_t i = 0; i < n; i++)
            memcpy(to + i * to_stride, &value, (size_t)size);
    } else {
        for (int64_t i = 0; i < n; i++)
            move_one(size, to + i * to_stride, from + i * from_stride);
    }
}

/* Sums are made in double, whatever the output's type. */
static inline void put_sum(char *to, int size, double sum)
{
    if (size == 8) {
        memcpy(to, &sum, sizeof sum);
    } else {
        const float narrow = (float)sum;
        memcpy(to, &narrow, sizeof narrow);
    }
}

/* Neighbours are joined until one is left: the tree of a sum. */
static inline double join(double *part, int64_t n)
{
    for (; n > 1; n = (n + 1) / 2) {
        for (int64_t i = 0; i < n / 2; i++)
            part[i] = part[2 * i] + part[2 * i + 1];
        if (n & 1)
            part[n / 2] = part[n - 1];
    }
    return part[0];
}
#endif
