#include "neon.h"
#include "products.inc"
#include "end.h"
