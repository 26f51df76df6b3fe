/* zips.h: square matrices of n registers of n lanes, transposed in registers, for lanes of any type.
 *
 * A zip interleaves the lower or the upper lanes of two registers. Zipping row i with row i + n/2, log2(n) times over, is a transpose: each
 * round moves one bit of the row number into the lane number. On AVX2 the halves of a register are apart: a zip within both of them is one
 * instruction, across them it is two, of which gcc makes up to five. There the halves of the rows are zipped as two matrices of half the
 * size, and what crosses the middle comes last, once. */
#ifndef GDI_ZIPS_H
#define GDI_ZIPS_H

#define GD_ZIP_LO_2(a, b) __builtin_shufflevector(a, b, 0, 2)
#define GD_ZIP_HI_2(a, b) __builtin_shufflevector(a, b, 1, 3)
#define GD_ZIP_LO_4(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define GD_ZIP_HI_4(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#define GD_ZIP_LO_8(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define GD_ZIP_HI_8(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#define GD_ZIP_LO_16(a, b) __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define GD_ZIP_HI_16(a, b) __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)

/* within halves */
#define GD_ZIPS_LO_4(a, b) __builtin_shufflevector(a, b, 0, 4, 2, 6)
#define GD_ZIPS_HI_4(a, b) __builtin_shufflevector(a, b, 1, 5, 3, 7)
#define GD_ZIPS_LO_8(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13)
#define GD_ZIPS_HI_8(a, b) __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15)
#define GD_ZIPS_LO_16(a, b) __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 8, 24, 9, 25, 10, 26, 11, 27)
#define GD_ZIPS_HI_16(a, b) __builtin_shufflevector(a, b, 4, 20, 5, 21, 6, 22, 7, 23, 12, 28, 13, 29, 14, 30, 15, 31)
/* the lower halves of both, the upper ones */
#define GD_HALVES_LO_4(a, b) __builtin_shufflevector(a, b, 0, 1, 4, 5)
#define GD_HALVES_HI_4(a, b) __builtin_shufflevector(a, b, 2, 3, 6, 7)
#define GD_HALVES_LO_8(a, b) __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11)
#define GD_HALVES_HI_8(a, b) __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15)
#define GD_HALVES_LO_16(a, b) __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23)
#define GD_HALVES_HI_16(a, b) __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31)

/* v[n] <- its transpose; rounds: log2(n); w: as many registers more. All in registers, hence constant indices only. */
#define GD_TRANSPOSE_ZIPS(n, rounds, v, w)                                                     \
    GD_UNROLL(4)                                                                               \
    for (int r_ = 0; r_ < rounds; r_++) {                                                      \
        GD_UNROLL(8)                                                                           \
        for (int j_ = 0; j_ < n / 2; j_++) {                                                   \
            w[2 * j_] = GD_ZIP_LO_##n(v[j_], v[j_ + n / 2]);                                   \
            w[2 * j_ + 1] = GD_ZIP_HI_##n(v[j_], v[j_ + n / 2]);                               \
        }                                                                                      \
        GD_UNROLL(16)                                                                          \
        for (int j_ = 0; j_ < n; j_++) v[j_] = w[j_];                                          \
    }

#define GD_TRANSPOSE_HALVES(n, rounds, v, w)                                                   \
    GD_UNROLL(4)                                                                               \
    for (int r_ = 1; r_ < rounds; r_++) {                                                      \
        GD_UNROLL(8)                                                                           \
        for (int j_ = 0; j_ < n / 2; j_++) {                                                   \
            const int from_ = j_ / (n / 4) * (n / 2) + j_ % (n / 4);                           \
            w[2 * j_] = GD_ZIPS_LO_##n(v[from_], v[from_ + n / 4]);                            \
            w[2 * j_ + 1] = GD_ZIPS_HI_##n(v[from_], v[from_ + n / 4]);                        \
        }                                                                                      \
        GD_UNROLL(16)                                                                          \
        for (int j_ = 0; j_ < n; j_++) v[j_] = w[j_];                                          \
    }                                                                                          \
    GD_UNROLL(8)                                                                               \
    for (int j_ = 0; j_ < n / 2; j_++) {                                                       \
        w[j_] = GD_HALVES_LO_##n(v[j_], v[j_ + n / 2]);                                        \
        w[j_ + n / 2] = GD_HALVES_HI_##n(v[j_], v[j_ + n / 2]);                                \
    }                                                                                          \
    GD_UNROLL(16)                                                                              \
    for (int j_ = 0; j_ < n; j_++) v[j_] = w[j_];

#endif
