/* end.h: the last line of every text of kernels. */
#ifdef GD_ISA
#if defined(__clang__) && defined(__x86_64__) && GD_VBYTES > 16
#pragma clang attribute pop
#endif
#else
typedef int gdi_other_architecture;      /* a text may not be empty */
#endif
