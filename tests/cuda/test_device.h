/* test_device.h -- the device of tests of single kernels: a stream, and a work space of just the
 * bytes that were planned, so that what goes beyond is found by the simulator.
 */
#ifndef TEST_DEVICE_H
#define TEST_DEVICE_H

#include "cuda/device.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static RtStream stream;
static void *work;
static size_t work_bytes;

void *rt_device_work(RtStream *, size_t bytes)
{
    if (bytes > work_bytes) {
        printf("%zu bytes of work space, %zu are planned\n", bytes, work_bytes);
        exit(1);
    }
    return work;
}

void rt_cuda_check(const RtStream *, const char *call, cudaError_t error)
{
    if (error) {
        printf("%s: %s\n", call, cudaGetErrorString(error));
        exit(1);
    }
}

bool rt_launch_begin(RtStream *, const char *, const char *, dim3 grid)
{
    return grid.x > 0 && grid.y > 0 && grid.z > 0;
}

void rt_launch_end(RtStream *, const char *kernel)
{
    rt_cuda_check(NULL, kernel, cudaGetLastError());
}

void rt_profile_begin(RtStream *) {}
RtDevice *rt_device(void) { return NULL; }

extern "C" {
void rt_fail(int exit_code, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
    printf("\n");
    exit(exit_code);
}

void rt_warn(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
    printf("\n");
}

char *rt_printf(const char *fmt, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, fmt);
    if (vasprintf(&text, fmt, args) < 0)
        exit(1);
    va_end(args);
    return text;
}

void rt_free(void *at) { free(at); }

const char *rt_environment(const char *name) { return getenv(name); }

bool rt_environment_is(const char *name, const char *word)
{
    const char *value = getenv(name);
    return value && strcmp(value, word) == 0;
}
}

int rt_blocks(ptrdiff_t n, ptrdiff_t each) { return (int)((n + each - 1) / each); }

static void stream_open(void)
{
    rt_cuda_check(NULL, "cudaStreamCreate", cudaStreamCreate(&stream.at));
    stream.where = "test.model:1";
}

static void work_open(size_t bytes)
{
    work_bytes = bytes;
    rt_cuda_check(NULL, "cudaMalloc", cudaMalloc(&work, bytes + 1));
}

/* From pageable memory the copy may be on its way when cudaMemcpy returns. */
static void to_device(void *to, const void *from, size_t bytes)
{
    rt_cuda_check(NULL, "cudaMemcpy", cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice));
    rt_cuda_check(NULL, "cudaDeviceSynchronize", cudaDeviceSynchronize());
}

static void work_close(void) { rt_cuda_check(NULL, "cudaFree", cudaFree(work)); }

#endif
