/* harness.cu -- harness.c for the CUDA target. */
#include "harness.c"
