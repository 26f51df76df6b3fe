/* NEON, 128-bit, part of every aarch64. Empty on other architectures. */
#if defined(__aarch64__)
#include <arm_neon.h>
#define GD_ISA neon
#define GD_VBYTES 16
#define GD_HAS_FMA 1
static inline int isa_supported(void) { return 1; }
#include "isa.h"
#endif
