#include "scalar.h"
#include "maps.inc"
#include "end.h"
