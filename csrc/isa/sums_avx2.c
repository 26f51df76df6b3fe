#include "avx2.h"
#include "sums.inc"
#include "end.h"
