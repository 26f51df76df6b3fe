/* test_chain.c: chains of operations on rows, those with loops of their own and any others, against plain C to the bit.
 * Prints "N passed, N failed". */
#include "build.h"
#include "../core/rows.h"
#include "../kernels/chain_list.h"
#include <math.h>

enum { LINKS = 12, ROWS = 5, COLUMNS = 1003, PAD = 3, WIDTH = COLUMNS + PAD };

#define NAMED(name, ...) {#name, {__VA_ARGS__}},
static const struct { const char *name; int op[8]; } known[] = {GDI_CHAINS(NAMED) GDI_DEEP_CHAINS(NAMED)};
enum { KNOWN = sizeof known / sizeof *known };

static const int sizes[] = {1, 2, 15, 16, 17, 47, 48, 64, 127, 128, 129, 160, 255, 256, 784, 1000, COLUMNS};

static uint32_t state = 1;
static uint32_t number(uint32_t n) { state = state * 1664525 + 1013904223; return (state >> 8) % n; }

/* Mostly whole numbers and halves; zeros of both signs, infinities and NaN where products have to look at them. */
static double value(int odd)
{
    static const double few[] = {0.0, -0.0, INFINITY, -INFINITY, NAN};
    return odd && number(11) == 0 ? few[number(5)] : ((int)number(4001) - 2000) / (double)(1 + number(7));
}

static int is_single(int op) { return (op & GDI_LINK_SINGLE) && (op & 15) != GDI_LINK_SUM; }

#define PLAIN(T, TN) \
    typedef struct { T at[LINKS][ROWS][WIDTH]; } memory_##TN; \
    static void fill_##TN(memory_##TN *m, int odd) \
    { \
        for (int k = 0; k < LINKS; k++) \
            for (int q = 0; q < ROWS; q++) \
                for (int i = 0; i < WIDTH; i++) \
                    m->at[k][q][i] = (T)value(odd); \
    } \
    static T zmul_##TN(T x, T y) { return x == 0 && isnan(x * y) ? 0 : x * y; } \
    static void plain_##TN(memory_##TN *m, const int *op, int links, int n, int rows) \
    { \
        for (int q = 0; q < rows; q++) \
            for (int e = 0; e < n; e++) { \
                T v = 0; \
                for (int k = 0; k < links; k++) { \
                    T *const row = m->at[k][op[k] & GDI_LINK_ONCE ? 0 : q], a = row[is_single(op[k]) ? 0 : e]; \
                    switch (op[k] & 15) { \
                    case GDI_LINK_LOAD: v = a; break; \
                    case GDI_LINK_ADD: v = v + a; break; \
                    case GDI_LINK_SUBTRACT: v = v - a; break; \
                    case GDI_LINK_SUBTRACT_FROM: v = a - v; break; \
                    case GDI_LINK_MULTIPLY: v = v * a; break; \
                    case GDI_LINK_ZMUL: v = zmul_##TN(v, a); break; \
                    case GDI_LINK_ZMUL_BY: v = zmul_##TN(a, v); break; \
                    case GDI_LINK_ZMUL_EITHER: v = a == 0 ? zmul_##TN(a, v) : zmul_##TN(v, a); break; \
                    case GDI_LINK_DIVIDE: v = v / a; break; \
                    case GDI_LINK_DIVIDE_BY: v = a / v; break; \
                    case GDI_LINK_NEGATIVE: v = -v; break; \
                    case GDI_LINK_SQUARE: v = v * v; break; \
                    case GDI_LINK_STORE: row[e] = v; break; \
                    case GDI_LINK_SUM: row[e % GDI_ROW_LANES] += v; break; \
                    default: row[e] += v; \
                    } \
                } \
            } \
    } \
    static int same_##TN(const memory_##TN *x, const memory_##TN *y) \
    { \
        int wrong = 0; \
        for (int k = 0; k < LINKS; k++) \
            for (int q = 0; q < ROWS; q++) \
                for (int i = 0; i < WIDTH; i++) { \
                    const T a = x->at[k][q][i], b = y->at[k][q][i]; \
                    wrong += isnan(a) || isnan(b) ? !isnan(a) || !isnan(b) : memcmp(&a, &b, sizeof a) != 0; \
                } \
        return wrong; \
    } \
    static int try_##TN(gdi_chain_find find, const int *op, int links, int n, int rows, int odd) \
    { \
        static memory_##TN want, got; \
        gdi_link l[LINKS]; \
        fill_##TN(&want, odd); \
        for (int k = 0; k < links; k++) { \
            l[k] = (gdi_link){.at = (char *)got.at[k], .op = op[k], .row_step = op[k] & GDI_LINK_ONCE ? 0 : (int64_t)sizeof *got.at[k], \
                              .moves = is_single(op[k]) || (op[k] & 15) == GDI_LINK_SUM ? 0 : -1}; \
            if ((op[k] & 15) == GDI_LINK_SUM) \
                for (int q = 0; q < ROWS; q++) \
                    for (int i = 0; i < WIDTH; i++) \
                        want.at[k][q][i] = 0; \
        } \
        got = want; \
        plain_##TN(&want, op, links, n, rows); \
        find(l, links)(l, links, n, rows); \
        return same_##TN(&want, &got); \
    }
PLAIN(float, f32)
PLAIN(double, f64)

static int try(int type, const int *op, int links, int n, int rows, int odd)
{
    const gdi_chain_find find = gdi_active()->chain[type];
    return type ? try_f64(find, op, links, n, rows, odd) : try_f32(find, op, links, n, rows, odd);
}

static int length(const int *op)
{
    int n = 0;
    while (n < 8 && op[n] >= 0)
        n++;
    return n;
}

/* A chain that no list has. */
static int any_chain(int *op)
{
    const int links = 2 + (int)number(LINKS - 2);
    int sums = 0;
    op[0] = GDI_LINK_LOAD + (number(4) == 0 ? GDI_LINK_SINGLE : 0);
    for (int k = 1; k < links; k++) {
        op[k] = (int)number(GDI_LINK_COLUMN + 1);
        if (op[k] <= GDI_LINK_DIVIDE_BY)
            op[k] += (int[]){0, 0, GDI_LINK_SINGLE, GDI_LINK_ONCE}[number(4)];
        else if (op[k] == GDI_LINK_SUM && sums++)
            op[k] += GDI_LINK_SINGLE;
        else if (op[k] == GDI_LINK_COLUMN && number(2))
            op[k] += GDI_LINK_ONCE;
    }
    return links;
}

static void test_known(int type)
{
    const gdi_chain_find find = gdi_active()->chain[type];
    const gdi_link other[] = {{.op = GDI_LINK_LOAD}, {.op = GDI_LINK_DIVIDE_BY}, {.op = GDI_LINK_NEGATIVE}};
    for (int k = 0; k < KNOWN; k++) {
        const int links = length(known[k].op);
        gdi_link l[8] = {{0}};
        for (int i = 0; i < links; i++)
            l[i].op = known[k].op[i];
        CHECK(find(l, links) != find(other, 3));                 /* it has its own loop, */
        CHECK(find(l, links - 1) != find(l, links));             /* which no shorter chain gets */
        int wrong = 0;
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (int rows = 1; rows <= ROWS; rows += 1 + (rows == 3))
                wrong += try(type, known[k].op, links, sizes[i], rows, i % 2);
        if (wrong)
            printf("%s (%s): ", known[k].name, type ? "float64" : "float32");
        CHECK(wrong == 0);
    }
}

static void test_any(int type)
{
    int op[LINKS], wrong = 0;
    for (int i = 0; i < 120; i++) {
        const int links = any_chain(op);
        wrong += try(type, op, links, 1 + (int)number(COLUMNS), 1 + (int)number(ROWS), i % 2);
    }
    CHECK(wrong == 0);
}

int main(int argc, char **argv)
{
    if (choose_isa(argc, argv))
        return 1;
    for (int type = 0; type < 2; type++) {
        test_known(type);
        test_any(type);
    }
    return report();
}
