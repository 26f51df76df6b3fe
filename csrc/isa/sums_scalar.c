#include "scalar.h"
#include "sums.inc"
#include "end.h"
