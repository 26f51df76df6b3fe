#include "avx2.h"
#include "maps.inc"
#include "end.h"
