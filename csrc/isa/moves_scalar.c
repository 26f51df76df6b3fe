#include "scalar.h"
#include "moves.inc"
#include "end.h"
