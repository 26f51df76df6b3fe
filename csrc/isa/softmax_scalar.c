#include "scalar.h"
#include "softmax.inc"
#include "end.h"
