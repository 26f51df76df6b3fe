/* AVX-512 F+DQ+VL+BW, 512-bit. Empty on other architectures. */
#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,bmi2,f16c"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,bmi2,f16c,prefer-vector-width=512")
#endif
#include <immintrin.h>
#define GD_ISA avx512
#define GD_VBYTES 64
#define GD_HAS_FMA 1
static inline int isa_supported(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")
        && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
}
#include "isa.h"
#endif
