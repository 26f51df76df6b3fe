#include "avx512.h"
#include "moves.inc"
#include "end.h"
