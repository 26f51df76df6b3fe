/* isa.h: what every kernel's text starts from; <isa>.h includes it and has set before
 *   GD_ISA       the table's name, e.g. avx2
 *   GD_VBYTES    bytes of a vector register (16, 32, 64)
 *   GD_HAS_FMA   1 when fused multiply-add is an instruction
 *   isa_supported()
 * The kernels of an ISA are compiled as several texts, <part>_<isa>.c, so that a compiler needs neither long nor much memory for
 * one. All that a part defines is static but its kernel records and what GD_OPEN names, which table.inc puts into the table. */
#include "../core/gdi.h"
#include <string.h>
#include <math.h>                 /* INFINITY, NAN: no function of it is called */

#define GD_INLINE static inline __attribute__((always_inline))
#define GD_PASTE_(a, b) a##_##b
#define GD_PASTE(a, b) GD_PASTE_(a, b)
#define GD_PRAGMA(x) _Pragma(#x)
#define GD_UNROLL(n) GD_PRAGMA(GCC unroll n)
#ifdef __clang__
#define GD_IVDEP _Pragma("clang loop vectorize(enable)")
#else
#define GD_IVDEP _Pragma("GCC ivdep")
#endif
#define GD_MIN(a, b) ((a) < (b) ? (a) : (b))
#define GD_MAX(a, b) ((a) > (b) ? (a) : (b))
/* N_(foo) is foo_f32, foo_f64, ... for the type being instantiated. */
#define N_(name) GD_PASTE(name, TN)
/* Fused where the ISA has it, two roundings where not: kernels that use it promise ULPs, not equal bits across ISAs. */
#if GD_HAS_FMA
#define GD_FMA(a, b, c) (sizeof(a) == 4 && sizeof(b) == 4 && sizeof(c) == 4 ? (T)__builtin_fmaf((float)(a), (float)(b), (float)(c)) : (T)__builtin_fma((double)(a), (double)(b), (double)(c)))
#else
#define GD_FMA(a, b, c) ((a) * (b) + (c))
#endif
/* The records of the kernels, and functions that the table takes from other parts. */
#define GD_RECORD(name) const gdi_kernel GD_PASTE(gdi_k_##name, GD_ISA)
#define GD_OPEN(name) GD_PASTE(name, GD_ISA)
/* Parts share templates, and not each uses all that they define. */
#pragma GCC diagnostic ignored "-Wunused-function"
