/* gemm_half.h: what is wanted of a square result that is symmetric: of panels of rows the columns up to their last row's. The others may
 * hold anything. */
#ifndef GDI_GEMM_HALF_H
#define GDI_GEMM_HALF_H

typedef struct gemm_half {
    int64_t panel, row;             /* rows of a panel; where the block that is to be computed begins */
} gemm_half;

/* The columns of the rows before `row`. */
static inline int64_t gemm_half_end(const gemm_half *half, int64_t row) { return (row + half->panel - 1) / half->panel * half->panel; }

#endif
