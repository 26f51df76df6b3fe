/* arrays.h: strided arrays between guard bytes, and one structural kernel called on them in every way there is. The
 * tests see elements by their number in C order, so that their own loops know nothing of strides. */
#ifndef GDI_TEST_ARRAYS_H
#define GDI_TEST_ARRAYS_H
#include "build.h"
#include <math.h>

/* AddressSanitizer has guards of its own, which notice reads too. 72: elements are aligned, vectors are not. */
#if defined(__SANITIZE_ADDRESS__)
enum { GUARD = 0 };
#else
enum { GUARD = 72 };
#endif
enum { AXES = 6, OPERANDS = 7, GUARD_BYTE = 0xA5 };

typedef struct array {
    int dtype, ndim;
    int64_t shape[AXES], stride[AXES], offset, extent;           /* elements */
    int64_t nbytes;                                              /* of block, guards included */
    char *block, *before;                                        /* before: block as it was when the call began */
} array;

enum layout { PLAIN, TURNED, STEPPED, BACKWARDS, MIXED, SPREAD, LAYOUTS };   /* SPREAD has stride 0: inputs only */

/* A number of any dtype: f counts for floats, i for the others. */
typedef struct number {
    double f;
    int64_t i;
} number;

static char label[256];              /* what is tested, for messages */
#define CASE(ok) do { \
        if (ok) passed++; \
        else { failed++; printf("%s:%d: %s: %s\n", __FILE__, __LINE__, label, #ok); } } while (0)

static inline int is_float(int dtype) { return dtype >= GD_FLOAT16; }
static inline number whole(int64_t i) { return (number){(double)i, i}; }
static inline number real(double f) { return (number){f, 0}; }
static inline double rounded(int dtype, double x) { return dtype == GD_FLOAT32 ? (float)x : x; }

static inline int64_t product(const int64_t *shape, int first, int last)
{
    int64_t n = 1;
    for (int d = first; d < last; d++)
        n *= shape[d];
    return n;
}
static inline int64_t count(const array *a) { return product(a->shape, 0, a->ndim); }

/* Memory for an array whose layout is known. */
static inline void allocate(array *a)
{
    a->nbytes = a->extent * gd_dtype_nbytes(a->dtype) + 2 * GUARD;
    a->block = malloc((size_t)a->nbytes);
    a->before = malloc((size_t)a->nbytes);
    if (!a->block || !a->before)
        exit(1);
    memset(a->block, GUARD_BYTE, (size_t)a->nbytes);
}

static inline array new_array(int dtype, int ndim, const int64_t *shape, int layout)
{
    array a = {.dtype = dtype, .ndim = ndim, .extent = layout == STEPPED ? 2 : 1};
    for (int k = 0; k < ndim; k++) {
        int d = layout == TURNED ? k : layout == MIXED ? (k + ndim / 2) % ndim : ndim - 1 - k;
        int64_t n = shape[d] > 0 ? shape[d] : 1;
        a.shape[d] = shape[d];
        if (layout == SPREAD && (ndim - d) % 2 == 0)
            continue;
        a.stride[d] = a.extent;
        a.extent = a.extent * n + (layout == STEPPED);
        if (layout == BACKWARDS || (layout == MIXED && k == 1)) {
            a.offset += a.stride[d] * (n - 1);
            a.stride[d] = -a.stride[d];
        }
    }
    allocate(&a);
    return a;
}

static inline void free_array(array *a)
{
    free(a->block);
    free(a->before);
}

/* ---- elements by number ---- */
static inline char *element(const array *a, char *block, int64_t i)
{
    int64_t at = a->offset;
    for (int d = a->ndim - 1; d >= 0; d--) {
        at += i % a->shape[d] * a->stride[d];
        i /= a->shape[d];
    }
    return block + GUARD + at * gd_dtype_nbytes(a->dtype);
}

static inline double from_half(uint16_t h)
{
    int e = h >> 10 & 31, m = h & 1023;
    double x = e == 31 ? (m ? NAN : INFINITY) : e ? ldexp(m + 1024, e - 25) : ldexp(m, -24);
    return h >> 15 ? -x : x;
}

/* Nearest, ties to even: a unit of the last place is 2**(exponent - 10). */
static inline uint16_t to_half(double x)
{
    unsigned sign = signbit(x) ? 0x8000u : 0;
    if (isnan(x))
        return (uint16_t)(sign | 0x7e00);
    int e = x == 0 || isinf(x) || ilogb(x) < -14 ? -14 : ilogb(x);
    double units = isinf(x) ? INFINITY : nearbyint(ldexp(fabs(x), 10 - e));
    if (units * ldexp(1, e - 10) >= 65520 || isinf(x))
        return (uint16_t)(sign | 0x7c00);
    return (uint16_t)(sign | ((unsigned)(e + 14) * 1024u + (unsigned)units));
}

static inline number get(const array *a, int64_t i)
{
    const void *p = element(a, a->block, i);
    switch (a->dtype) {
    case GD_FLOAT64: { double x; memcpy(&x, p, 8); return real(x); }
    case GD_FLOAT32: { float x; memcpy(&x, p, 4); return real((double)x); }
    case GD_FLOAT16: { uint16_t x; memcpy(&x, p, 2); return real(from_half(x)); }
    case GD_INT64: { int64_t x; memcpy(&x, p, 8); return whole(x); }
    case GD_INT32: { int32_t x; memcpy(&x, p, 4); return whole(x); }
    default: return whole(*(const uint8_t *)p);
    }
}

static inline void put(array *a, int64_t i, number v)
{
    void *p = element(a, a->block, i);
    switch (a->dtype) {
    case GD_FLOAT64: memcpy(p, &v.f, 8); break;
    case GD_FLOAT32: { float x = (float)v.f; memcpy(p, &x, 4); break; }
    case GD_FLOAT16: { uint16_t x = to_half(v.f); memcpy(p, &x, 2); break; }
    case GD_INT64: memcpy(p, &v.i, 8); break;
    case GD_INT32: { uint32_t x = (uint32_t)(uint64_t)v.i; memcpy(p, &x, 4); break; }
    case GD_BOOL: *(uint8_t *)p = v.i != 0; break;
    default: *(uint8_t *)p = (uint8_t)(uint64_t)v.i;
    }
}

/* Whole numbers low .. high, which every dtype holds exactly; unsigned ones start at 0. */
static inline void fill(array *a, int64_t low, int64_t high)
{
    if (low < 0 && a->dtype <= GD_UINT8)
        low = 0;
    for (int64_t i = 0; i < count(a); i++)
        put(a, i, whole(low + below(high - low + 1)));
}

/* Fractions that make sums round. */
static inline void fill_reals(array *a, double size)
{
    for (int64_t i = 0; i < count(a); i++)
        put(a, i, real(size * ((double)below(2000001) / 1000000 - 1)));
}

static inline array plain_copy(const array *a)
{
    array p = new_array(a->dtype, a->ndim, a->shape, PLAIN);
    for (int64_t i = 0; i < count(a); i++)
        memcpy(element(&p, p.block, i), element(a, a->block, i), (size_t)gd_dtype_nbytes(a->dtype));
    return p;
}

/* Equal but for the signs of NaN, or nearly so. */
static inline int near(int dtype, number x, number y, double tolerance)
{
    if (!is_float(dtype))
        return x.i == y.i;
    if (isnan(x.f) || isnan(y.f))
        return isnan(x.f) && isnan(y.f);
    return x.f == y.f || fabs(x.f - y.f) <= tolerance * (1 + fabs(y.f));
}

static inline int same_values(const array *a, const array *b)
{
    int ok = 1;
    for (int64_t i = 0; ok && i < count(a); i++)
        ok = near(a->dtype, get(a, i), get(b, i), 0);
    return ok;
}

/* ---- calls ---- */
/* Did the call write elements of out and nothing else? */
static inline int kept_gaps(const array *out)
{
    char *want = malloc((size_t)out->nbytes);
    memcpy(want, out->before, (size_t)out->nbytes);
    for (int64_t i = 0; i < count(out); i++)
        memcpy(element(out, want, i), element(out, out->block, i), (size_t)gd_dtype_nbytes(out->dtype));
    int ok = memcmp(want, out->block, (size_t)out->nbytes) == 0;
    free(want);
    return ok;
}

static inline builder *call_builder(int op, array *out, int n_in, array *const *in, int n_attr, const int64_t *attr,
                                    int64_t *nbytes, void **bases)
{
    static int32_t access[OPERANDS + 2] = {[GD_BASE_FIRST] = GD_WRITE};
    builder *b = new_builder(0);
    int args[OPERANDS];
    for (int k = 0; k < OPERANDS + 2; k++) {
        nbytes[k] = k == GD_BASE_CONST ? (int64_t)sizeof b->constants : 0;
        bases[k] = NULL;
    }
    b->s.base_nbytes = nbytes, b->s.base_access = access, b->s.n_base = OPERANDS + 2;
    for (int k = 0; k <= n_in; k++) {
        const array *a = k == 0 ? out : in[k - 1];
        int base = a == out ? GD_BASE_FIRST : GD_BASE_FIRST + k, size = gd_dtype_nbytes(a->dtype);
        nbytes[base] = a->extent * size;
        bases[base] = a->block + GUARD;
        args[k] = view(b, base, a->dtype, a->offset * size, a->ndim, a->shape, a->stride);
    }
    emit(b, op, n_in, args);
    if (n_attr > 0)
        attrs(b, n_attr, attr);
    return b;
}

static inline int run_once(const gd_program *p, int threads, int64_t budget, void *const *bases, gd_fault *f)
{
    gd_workspace *w;
    int status = gd_workspace_new(p, threads, &w);
    if (status != GD_OK)
        return status;
    while ((status = gd_run(p, w, bases, budget, f)) == GD_MORE)
        ;
    gd_workspace_free(w);
    return status;
}

/* out = op(in..): at once, in the smallest slices, and on three threads in slices. Equal bits each time, the operands as
 * they were, no byte written beside the output's elements. in[0] == out: in place. */
static inline int call(int op, array *out, int n_in, array *const *in, int n_attr, const int64_t *attr, gd_fault *fault)
{
    static const struct { int threads, budget; } ways[] = {{1, 0}, {1, 1}, {3, 1}};
    int64_t nbytes[OPERANDS + 2];
    void *bases[OPERANDS + 2];
    gd_fault unused, *f = fault ? fault : &unused;
    gd_program *p;
    builder *b = call_builder(op, out, n_in, in, n_attr, attr, nbytes, bases);
    int first = gd_program_new(&b->s, &p, f);
    free(b);
    if (first != GD_OK)
        return first;
    char *result = malloc((size_t)out->nbytes);
    memcpy(out->before, out->block, (size_t)out->nbytes);
    for (int k = 0; k < n_in; k++)
        memcpy(in[k]->before, in[k]->block, (size_t)in[k]->nbytes);
    for (int i = 0; i < 3; i++) {
        memcpy(out->block, out->before, (size_t)out->nbytes);
        int status = run_once(p, ways[i].threads, ways[i].budget, bases, f);
        if (i == 0) {
            first = status;
            memcpy(result, out->block, (size_t)out->nbytes);
        }
        CASE(status == first);
        CASE(status != GD_OK || memcmp(result, out->block, (size_t)out->nbytes) == 0);
        CASE(kept_gaps(out));
        for (int k = 0; k < n_in; k++)
            CASE(in[k] == out || memcmp(in[k]->before, in[k]->block, (size_t)in[k]->nbytes) == 0);
    }
    free(result);
    gd_program_free(p);
    return first;
}

static inline void name_case(int op, const array *a, int la, int lo)
{
    int n = snprintf(label, sizeof label, "%s dtype %d layouts %d %d shape", gd_op_name(op), a->dtype, la, lo);
    for (int d = 0; d < a->ndim; d++)
        n += snprintf(label + n, sizeof label - (size_t)n, " %lld", (long long)a->shape[d]);
}

/* Layouts of operands: random, or favour >= 0 for inputs and for every other output, so that loops for one layout are
 * sure to run. */
static int favour = -1;
static inline int any_layout(void) { return favour >= 0 ? favour : (int)below(LAYOUTS); }
static inline int out_layout(void) { return favour >= 0 && favour < SPREAD && below(2) ? favour : (int)below(SPREAD); }

/* Shapes for test tables. */
typedef struct dims {
    int ndim;
    int64_t n[AXES];
} dims;
#define LENGTH(table) ((int)(sizeof(table) / sizeof((table)[0])))
#endif
