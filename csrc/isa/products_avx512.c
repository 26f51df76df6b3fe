#include "avx512.h"
#include "products.inc"
#include "end.h"
