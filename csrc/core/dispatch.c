/* dispatch.c: which instruction set's table is in use, and facts about ops and dtypes. */
#include "program.h"
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

/* ---- tables, best first; GD_SCALAR_ONLY: for tools/planted.sh ---- */
extern const gdi_table gdi_table_scalar;
#if defined(__x86_64__) && !defined(GD_SCALAR_ONLY)
extern const gdi_table gdi_table_avx512, gdi_table_avx2;
static const gdi_table *const tables[] = {&gdi_table_avx512, &gdi_table_avx2, &gdi_table_scalar};
#elif defined(__aarch64__) && !defined(GD_SCALAR_ONLY)
extern const gdi_table gdi_table_neon;
static const gdi_table *const tables[] = {&gdi_table_neon, &gdi_table_scalar};
#else
static const gdi_table *const tables[] = {&gdi_table_scalar};
#endif
enum { TABLE_COUNT = sizeof tables / sizeof tables[0] };

static _Atomic(const gdi_table *) active;

static const gdi_table *best_table(void)
{
    int i = 0;
    while (i < TABLE_COUNT - 1 && !tables[i]->supported())
        i++;
    return tables[i];
}

const gdi_table *gdi_active(void)
{
    const gdi_table *t = atomic_load(&active);
    if (!t) {
        t = best_table();
        atomic_store(&active, t);
    }
    return t;
}

const char *gd_isa(void) { return gdi_active()->name; }
int gd_isa_count(void) { return TABLE_COUNT; }
const char *gd_isa_name(int i) { return i >= 0 && i < TABLE_COUNT ? tables[i]->name : ""; }
int gd_isa_supported(int i) { return i >= 0 && i < TABLE_COUNT && tables[i]->supported() != 0; }

int gd_force_isa(const char *name)
{
    for (int i = 0; name && i < TABLE_COUNT; i++)
        if (strcmp(tables[i]->name, name) == 0 && tables[i]->supported()) {
            atomic_store(&active, tables[i]);
            return GD_OK;
        }
    return GD_BAD_VALUE;
}

static _Atomic int64_t l1_nbytes = -1;

int64_t gdi_l1_nbytes(void)
{
    int64_t n = atomic_load_explicit(&l1_nbytes, memory_order_relaxed);
    if (n < 0) {
        long found = 0;
#ifdef _SC_LEVEL1_DCACHE_SIZE
        found = sysconf(_SC_LEVEL1_DCACHE_SIZE);
#endif
        n = found > 0 ? found : 0;
        atomic_store_explicit(&l1_nbytes, n, memory_order_relaxed);
    }
    return n;
}

void gd_force_l1(int64_t nbytes) { atomic_store(&l1_nbytes, nbytes < 0 ? -1 : nbytes); }

double gd_peak(int dtype, int64_t rounds)
{
    if ((dtype != GD_FLOAT32 && dtype != GD_FLOAT64) || rounds < 1)
        return 0;
    const gdi_table *t = gdi_active();
    (void)t->peak[dtype == GD_FLOAT64](rounds);
    return (double)rounds * t->peak_flops[dtype == GD_FLOAT64];
}

/* ---- dtypes ---- */
int gd_dtype_nbytes(int dtype)
{
    static const int8_t nbytes[GD_DTYPE_COUNT] = {
        [GD_BOOL] = 1, [GD_UINT8] = 1, [GD_INT32] = 4, [GD_INT64] = 8,
        [GD_FLOAT16] = 2, [GD_FLOAT32] = 4, [GD_FLOAT64] = 8,
    };
    return dtype >= 0 && dtype < GD_DTYPE_COUNT ? nbytes[dtype] : 0;
}

/* ---- ops ---- */
static const char *const op_names[GD_OP_COUNT] = {
#define GD_MAP(NAME, name, arity, test) #name,
#include "map_list.h"
#undef GD_MAP
#define GD_KERNEL(NAME, name) #name,
#include "../ops/structural.def"
#undef GD_KERNEL
    "fused",
    "rows",
};

static const struct { int8_t arity, test; } map_facts[GD_MAP_COUNT] = {
#define GD_MAP(NAME, name, arity, test) {arity, test},
#include "map_list.h"
#undef GD_MAP
};

/* Float-only functions are mostly transcendental: about 1 ns per float32 on AVX2, the others a quarter of it. What rounds once
 * at most is exact: its loops give the same bits in every table. */
static const struct { int8_t quarter_ns, exact; } map_loops[GD_MAP_COUNT] = {
#define GD_UNARY_FLOAT(N, n, e) [GD_OP_##N] = {4, 0},
#define GD_UNARY_CHEAP(N, n, e) [GD_OP_##N] = {4, 1},
#define GD_UNARY_BLOCK(N, n, f) [GD_OP_##N] = {4, 0},
#define GD_UNARY_FAST(N, n, e, f) [GD_OP_##N] = {4, 0},
#define GD_UNARY_ANY(N, n, f, i) [GD_OP_##N] = {1, 1},
#define GD_UNARY_INT(N, n, i, b) [GD_OP_##N] = {1, 1},
#define GD_UNARY_TEST(N, n, e) [GD_OP_##N] = {1, 1},
#define GD_UNARY_FTEST(N, n, e) [GD_OP_##N] = {1, 1},
#include "../ops/unary.def"
#define GD_BINARY_FLOAT(N, n, e) [GD_OP_##N] = {4, 0},
#define GD_BINARY_FAST(N, n, e, f) [GD_OP_##N] = {4, 0},
#define GD_BINARY_CHEAP(N, n, e) [GD_OP_##N] = {4, 1},
#define GD_BINARY_CALM(N, n, e, c) [GD_OP_##N] = {4, 1},
#define GD_BINARY_ANY(N, n, f, i, b) [GD_OP_##N] = {1, 1},
#define GD_BINARY_INT(N, n, i, b) [GD_OP_##N] = {1, 1},
#define GD_BINARY_DIVIDE(N, n, f, i, b) [GD_OP_##N] = {4, 0},
#define GD_BINARY_TEST(N, n, e) [GD_OP_##N] = {1, 1},
#define GD_TERNARY_ANY(N, n, e) [GD_OP_##N] = {1, 1},
#include "../ops/binary.def"
};

static int is_map(int op) { return op >= 0 && op < GD_MAP_COUNT; }

int gdi_map_arity(int op) { return map_facts[op].arity; }
int gdi_map_is_test(int op) { return map_facts[op].test; }
int gdi_map_is_function(int op) { return map_loops[op].quarter_ns > 1 && !map_loops[op].exact; }
int gdi_map_cost(int op) { return map_loops[op].quarter_ns; }

/* From memory, AVX2's loads of half a cache line come in up to a quarter faster than AVX-512's of a whole one (Zen 4: add,
 * equal and square of 8 to 24 MB of float64 and int64). Tests wait for their packing instead, unless the loop is `plain`: of two
 * arrays, or of bytes. */
const gdi_table *gdi_map_far(const gdi_table *t, int op, int plain)
{
#if defined(__x86_64__) && !defined(GD_SCALAR_ONLY)
    if (t == &gdi_table_avx512 && map_loops[op].exact && (plain || !map_facts[op].test))
        return &gdi_table_avx2;
#endif
    (void)op, (void)plain;
    return t;
}

/* float16 is computed by the float32 kernel between two conversions. */
gdi_map_fn gdi_map_lookup(const gdi_table *t, int op, int dtype)
{
    if (dtype != GD_FLOAT16)
        return t->map[op][dtype];
    if (!t->cast[GD_FLOAT16][GD_FLOAT32] || !t->cast[GD_FLOAT32][GD_FLOAT16])
        return NULL;
    return t->map[op][GD_FLOAT32];
}

void gdi_pair_lookup(const gdi_table *t, int f, int g, int turned, int dtype, gdi_micro *m)
{
    *m = (gdi_micro){.reads = 3, .lone_from = {6, 5}};
    if (f == GD_OP_MAXIMUM && g == GD_OP_MINIMUM && !turned && dtype != GD_FLOAT16) {
        m->fn = t->clip[dtype][0];
        m->lone[0] = t->clip[dtype][1];
        return;
    }
    const int row = f == GD_OP_ADD ? 0 : f == GD_OP_SUBTRACT ? 1 : f == GD_OP_MULTIPLY ? 2 : f == GD_OP_ZMUL ? 3 : -1;
    const int column = g == GD_OP_ADD ? 0 : g == GD_OP_MULTIPLY ? 1 : g == GD_OP_SUBTRACT ? 2 + turned
                     : g == GD_OP_ZMUL ? 4 + turned : -1;
    if (row < 0 || column < 0 || (dtype != GD_FLOAT32 && dtype != GD_FLOAT64))
        return;
    const gdi_map_fn *loops = t->pair[dtype == GD_FLOAT64][row][column];
    m->fn = loops[0];
    m->lone[0] = loops[1];
    m->lone[1] = loops[2];
}

int gd_op_count(void) { return GD_OP_COUNT; }
const char *gd_op_name(int op) { return op >= 0 && op < GD_OP_COUNT ? op_names[op] : ""; }
int gd_op_arity(int op) { return is_map(op) ? map_facts[op].arity : -1; }

int gd_op_accepts(int op, int dtype)
{
    return is_map(op) && dtype >= 0 && dtype < GD_DTYPE_COUNT && gdi_map_lookup(gdi_active(), op, dtype) != NULL;
}
