/* rt_device.h -- what kernels use besides num.h: vectors of 16 bytes, reductions over warps and
 * blocks in a fixed order. Device code only; emitted kernels and those of the runtime share it.
 */
#ifndef GRADCC_RT_DEVICE_H
#define GRADCC_RT_DEVICE_H

#include "rt.h"

#endif
