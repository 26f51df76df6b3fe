/* norm.h: row programs (rows.h) that normalise rows, or are the gradients of that, found by what their lines say. */
#ifndef GDI_NORM_H
#define GDI_NORM_H
#include "program.h"

/* What a line reads or makes. Inputs, outputs, then values that a row has for itself. */
enum gdi_norm_value {
    GDI_NORM_X, GDI_NORM_G, GDI_NORM_GAMMA, GDI_NORM_BETA, GDI_NORM_COUNT, GDI_NORM_EPS, GDI_NORM_INPUTS,
    GDI_NORM_Y = GDI_NORM_INPUTS, GDI_NORM_DX, GDI_NORM_SUM_G, GDI_NORM_SUM_GX, GDI_NORM_OPERANDS,
    GDI_NORM_SUM = GDI_NORM_OPERANDS, GDI_NORM_MEAN, GDI_NORM_FIX, GDI_NORM_CENTRED, GDI_NORM_SQUARES, GDI_NORM_ROOT,
    GDI_NORM_G_MEAN, GDI_NORM_GX_MEAN, GDI_NORM_SCALED, GDI_NORM_ANY, GDI_NORM_VALUES
};

typedef struct gdi_norm_found {
    int32_t operand[GDI_NORM_OPERANDS];      /* its number; -1: there is none */
    int32_t back, moments, divide;
} gdi_norm_found;

/* Are these lines a normalisation of rows (then 1)? All of one dtype, outputs are operands 0 .. n_out-1 of n. */
int gdi_norm_find(const int64_t *line, int lines, int n_out, int n, gdi_norm_found *found);
#endif
