#include "avx2.h"
#include "products.inc"
#include "end.h"
