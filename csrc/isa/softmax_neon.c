#include "neon.h"
#include "softmax.inc"
#include "end.h"
