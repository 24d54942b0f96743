/* harness.cu -- harness.c for the CUDA target. */
#include "rt_cuda.h"

#include "harness.c"
