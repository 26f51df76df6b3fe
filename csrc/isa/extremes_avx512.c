#include "avx512.h"
#include "extremes.inc"
#include "end.h"
