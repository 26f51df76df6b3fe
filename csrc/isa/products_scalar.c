#include "scalar.h"
#include "products.inc"
#include "end.h"
