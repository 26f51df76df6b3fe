/* reduce_low_undef.h: takes back the names that reduce_low_t.inc and reduce_place_t.inc define for an element type. */
#undef RED_TURN
#undef RED_TOP
#undef RED_FINISH
#undef RED_UNEQUAL
#undef RED_SETTLED
#undef RED_AT
#undef RED_WIDE
#undef RED_TAKES
#undef RED_TAKEN
#undef RED_TAKE
#undef RED_BOTH
#undef RED_FIRST
#undef RED_EQUAL
#undef RED_LOAD
#undef RED_REG
#undef RED_AS_IT_LIES
#undef RED_512
