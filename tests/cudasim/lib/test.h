/* test.h -- what the test programs of the libraries share: a call that must succeed, a launch. */
#ifndef CUDASIM_LIB_TEST_H
#define CUDASIM_LIB_TEST_H

#include <stdio.h>
#include <stdlib.h>

#include <cuda_runtime.h>

#define MUST(call)                                                                                 \
    do {                                                                                           \
        const int must_result = (int)(call);                                                       \
        if (must_result) {                                                                         \
            printf("not ok %s:%d: %s gives %d\n", __FILE__, __LINE__, #call, must_result);         \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#if defined(RT_SIMULATOR)
#define LAUNCH(kernel, grid, block, ...)                                                           \
    cudasim_launch((cudaStream_t)0, #kernel, grid, block, 0, kernel, __VA_ARGS__)
#else
#define LAUNCH(kernel, grid, block, ...) kernel<<<grid, block>>>(__VA_ARGS__)
#endif

#endif
