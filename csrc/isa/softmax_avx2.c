#include "avx2.h"
#include "softmax.inc"
#include "end.h"
