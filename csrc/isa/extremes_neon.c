#include "neon.h"
#include "extremes.inc"
#include "end.h"
