#include "scalar.h"
#include "extremes.inc"
#include "end.h"
