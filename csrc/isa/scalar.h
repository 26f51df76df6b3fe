/* The fallback: the compiler's baseline for the target (SSE2 on x86-64), no fused multiply-add. */
#define GD_ISA scalar
#define GD_VBYTES 16
#define GD_HAS_FMA 0
static inline int isa_supported(void) { return 1; }
#include "isa.h"
