#include "scalar.h"
#include "rows.inc"
#include "end.h"
