#include "avx2.h"
#include "extremes.inc"
#include "end.h"
