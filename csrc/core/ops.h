/* ops.h: the opcodes. Elementwise ops come first (their number indexes the map table), then structural ones, then the
 * fused group and the group of rows, which have no kernels of their own: they run elementwise ones. */
#ifndef GDI_OPS_H
#define GDI_OPS_H
enum gdi_op {
#define GD_MAP(NAME, name, arity, test) GD_OP_##NAME,
#include "map_list.h"
#undef GD_MAP
    GD_MAP_COUNT,
    GD_OP_AFTER_MAP_ = GD_MAP_COUNT - 1,
#define GD_KERNEL(NAME, name) GD_OP_##NAME,
#include "../ops/structural.def"
#undef GD_KERNEL
    GD_OP_FUSED,
    GD_OP_ROWS,
    GD_OP_COUNT,
    GD_KERNEL_COUNT = GD_OP_FUSED - GD_MAP_COUNT
};
#endif
