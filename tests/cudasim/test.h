/* test.h -- of the simulator's own tests: a program of named cases, one of them run by its name. */
#ifndef CUDASIM_TEST_H
#define CUDASIM_TEST_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime.h>

typedef struct {
    const char *name;
    void (*run)(void);
    const char *report; /* a fault: what the report must say */
} Case;

#define LAUNCH(stream, kernel, grid, block, shared, ...)                                           \
    cudasim_launch(stream, #kernel, grid, block, shared, kernel, __VA_ARGS__)
#define CHECK(call)     check(call, #call, __LINE__)
#define WANT(condition) want(condition, #condition, __LINE__)

static inline void check(cudaError_t error, const char *call, int line)
{
    if (!error)
        return;
    printf("line %d: %s: %s\n", line, call, cudaGetErrorName(error));
    exit(1);
}

static inline void want(bool holds, const char *condition, int line)
{
    if (holds)
        return;
    printf("line %d: not so: %s\n", line, condition);
    exit(1);
}

static inline cudaStream_t new_stream(void)
{
    cudaStream_t s;
    CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    return s;
}

template <typename T> static inline T *on_device(size_t n)
{
    T *p;
    CHECK(cudaMalloc(&p, n * sizeof(T)));
    return p;
}

template <typename T> static inline T *pinned(size_t n)
{
    T *p;
    CHECK(cudaMallocHost(&p, n * sizeof(T)));
    return p;
}

/* Device memory with 0, 1, 2 ... */
static inline float *counting(int n)
{
    float *p = on_device<float>((size_t)n), *h = (float *)malloc((size_t)n * sizeof *h);
    for (int i = 0; i < n; i++)
        h[i] = (float)i;
    CHECK(cudaMemcpy(p, h, (size_t)n * sizeof *h, cudaMemcpyHostToDevice));
    free(h);
    return p;
}

/* Without an argument: a line for each case, its name and what its report says. */
static inline int run_cases(const Case *cases, int n, int argc, char **argv)
{
    for (int i = 0; i < n; i++) {
        if (argc < 2)
            printf("%s %s\n", cases[i].name, cases[i].report ? cases[i].report : "");
        else if (!strcmp(argv[1], cases[i].name))
            return cases[i].run(), 0;
    }
    return argc < 2 ? 0 : 2;
}

#endif
