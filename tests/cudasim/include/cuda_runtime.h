/* cuda_runtime.h -- CUDA C for g++: the host side and the kernel language. */
#ifndef CUDASIM_CUDA_RUNTIME_H
#define CUDASIM_CUDA_RUNTIME_H

#include "cuda_runtime_api.h"
#include "cudasim.h"
#include "cudasim_kernel.h"
#include "cudasim_launch.h"

#endif
