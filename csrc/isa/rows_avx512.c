#include "avx512.h"
#include "rows.inc"
#include "end.h"
