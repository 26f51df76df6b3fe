#include "neon.h"
#include "rows.inc"
#include "end.h"
