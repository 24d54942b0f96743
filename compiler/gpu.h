/* gpu.h -- the GPUs of this machine, as their driver tells. */
#ifndef GRADCC_GPU_H
#define GRADCC_GPU_H

#include "base/base.h"

enum { GPU_OLDEST = 80 }; /* compute capability that programs need, 8.0 */

/* Their compute capabilities as numbers (90 for 9.0), ascending, each once; how many, 0 where no
   driver answers. */
int gpu_capabilities(int *to, int cap);

#endif
