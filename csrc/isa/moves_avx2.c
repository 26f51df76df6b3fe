#include "avx2.h"
#include "moves.inc"
#include "end.h"
