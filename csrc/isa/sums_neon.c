#include "neon.h"
#include "sums.inc"
#include "end.h"
