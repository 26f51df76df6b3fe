#include "avx512.h"
#include "sums.inc"
#include "end.h"
