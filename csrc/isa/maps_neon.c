#include "neon.h"
#include "maps.inc"
#include "end.h"
