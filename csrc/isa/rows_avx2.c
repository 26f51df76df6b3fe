#include "avx2.h"
#include "rows.inc"
#include "end.h"
