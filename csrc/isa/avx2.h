/* AVX2 + FMA, 256-bit. Empty on other architectures. */
#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,bmi2,f16c"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,bmi2,f16c")
#endif
#include <immintrin.h>
#define GD_ISA avx2
#define GD_VBYTES 32
#define GD_HAS_FMA 1
static inline int isa_supported(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
#include "isa.h"
#endif
