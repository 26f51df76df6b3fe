#include "neon.h"
#include "moves.inc"
#include "end.h"
