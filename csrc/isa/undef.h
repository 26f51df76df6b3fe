#undef T
#undef U
#undef I
#undef TN
#undef GD_T_DTYPE
#undef GD_T_FLOAT
#undef GD_T_BITS
