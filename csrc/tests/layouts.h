/* layouts.h: random strided layouts, for tests of elementwise instructions. */
#ifndef GDI_TEST_LAYOUTS_H
#define GDI_TEST_LAYOUTS_H
#include "build.h"

typedef struct layout {
    int64_t stride[8], offset, extent;       /* elements */
} layout;

/* A random layout of shape: a permuted, sliced, reversed, broadcast (inputs only) array. */
static inline layout random_layout(int ndim, const int64_t *shape, int is_output, int plain)
{
    layout l = {.extent = 1};
    int order[8];
    for (int d = 0; d < ndim; d++)
        order[d] = d;
    for (int d = ndim - 1; d > 0 && !plain; d--) {
        int e = (int)below(d + 1), t = order[d];
        order[d] = order[e], order[e] = t;
    }
    for (int i = ndim - 1; i >= 0; i--) {
        int d = order[i];
        if (!is_output && !plain && below(4) == 0)
            continue;                        /* stride 0 */
        int64_t step = !plain && below(4) == 0 ? 2 : 1;
        l.stride[d] = l.extent * step;
        l.extent *= (shape[d] > 0 ? shape[d] : 1) * step;
        if (!plain && shape[d] > 0 && below(5) == 0) {
            l.offset += l.stride[d] * (shape[d] - 1);
            l.stride[d] = -l.stride[d];
        }
    }
    return l;
}

static inline int64_t position(const layout *l, int ndim, const int64_t *shape, int64_t i)
{
    int64_t at = l->offset;
    for (int d = ndim - 1; d >= 0; d--) {
        at += i % shape[d] * l->stride[d];
        i /= shape[d];
    }
    return at;
}
#endif
