#include "avx512.h"
#include "maps.inc"
#include "end.h"
