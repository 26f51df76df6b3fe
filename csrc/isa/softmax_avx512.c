#include "avx512.h"
#include "softmax.inc"
#include "end.h"
