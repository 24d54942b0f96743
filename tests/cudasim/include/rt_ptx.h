/* rt_ptx.h -- the machine instructions of runtime/cuda/ptx/rt_ptx.h, as the simulator does them.
 *
 * The same functions with the same layout of fragments (PTX ISA, "Matrix Fragments for
 * mma.m16n8k16" and "ldmatrix"); the work is in ptx.cc. Products and loads are operations of a
 * whole warp; a copy arrives when its thread waits for it, and not before.
 */
#ifndef GRADCC_RT_PTX_H
#define GRADCC_RT_PTX_H

#include <math.h>
#include <stdint.h>

#include <cuda_runtime.h>

#include "half.h"

/* Where a function was called, for messages. */
#define CUDASIM_PLACE const char *file = __builtin_FILE(), int line = __builtin_LINE()

typedef struct { /* 16 bytes on their way */
    void *shared;
    const void *global;
    bool live;
} CudasimCopy;

void cudasim_mma(bool bf16, float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1,
                 const char *file, int line);
void cudasim_ldmatrix_x4(bool trans, uint32_t to[4], const void *row, const char *file, int line);
void cudasim_need_shared(const char *what, const void *at, const char *file, int line);
void cudasim_copy_begin(const CudasimCopy *copy);
void cudasim_copy_commit(void);
bool cudasim_copy_next(int left, CudasimCopy *copy); /* one to arrive; false: there is none */
void cudasim_copy_arrive(const CudasimCopy *copy);
uint64_t cudasim_nanoseconds(void);

/* Checks stand in this header, so that a report names the line of the kernel. */
RT_DEVICE void cudasim_check_row(const void *row, const char *file, int line)
{
    cudasim_need_shared("ldmatrix", row, file, line);
    cudasim_check_read(row, 16, true);
}

RT_DEVICE void rt_mma_bf16(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1, CUDASIM_PLACE)
{
    cudasim_mma(true, c, a, b0, b1, file, line);
}

RT_DEVICE void rt_mma_f16(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1, CUDASIM_PLACE)
{
    cudasim_mma(false, c, a, b0, b1, file, line);
}

RT_DEVICE void rt_ldmatrix_x4(uint32_t to[4], const void *row, CUDASIM_PLACE)
{
    cudasim_check_row(row, file, line);
    cudasim_ldmatrix_x4(false, to, row, file, line);
}

RT_DEVICE void rt_ldmatrix_x4_trans(uint32_t to[4], const void *row, CUDASIM_PLACE)
{
    cudasim_check_row(row, file, line);
    cudasim_ldmatrix_x4(true, to, row, file, line);
}

RT_DEVICE void rt_cp_async_16(void *shared, const void *global, bool live, CUDASIM_PLACE)
{
    const CudasimCopy copy = { shared, global, live };
    cudasim_need_shared("cp.async", shared, file, line);
    cudasim_check_write(shared, 16, true);
    if (live)
        cudasim_check_read(global, 16, true);
    cudasim_copy_begin(&copy);
}

RT_DEVICE void rt_cp_async_commit(void) { cudasim_copy_commit(); }

template <int left> RT_DEVICE void rt_cp_async_wait(void)
{
    static_assert(left >= 0);
    CudasimCopy copy;
    while (cudasim_copy_next(left, &copy)) {
        cudasim_check_late(copy.shared, copy.live ? copy.global : NULL, 16);
        cudasim_copy_arrive(&copy);
    }
}

RT_DEVICE uint32_t rt_pack_bf16(float first, float second)
{
    const uint32_t low = isnan(first) ? 0x7fffu : rt_to_bf16(first);
    const uint32_t high = isnan(second) ? 0x7fffu : rt_to_bf16(second);
    return low | high << 16;
}

RT_DEVICE uint32_t rt_pack_f16(float first, float second)
{
    const uint32_t low = isnan(first) ? 0x7fffu : rt_to_f16(first);
    const uint32_t high = isnan(second) ? 0x7fffu : rt_to_f16(second);
    return low | high << 16;
}

/* Denormal numbers are 0, as operand and as result. */
RT_DEVICE float rt_exp2_fast(float x)
{
    const float y = exp2f(fabsf(x) < 0x1p-126f ? 0.0f : x);
    return y < 0x1p-126f ? 0.0f : y;
}

RT_DEVICE uint64_t rt_nanoseconds(void) { return cudasim_nanoseconds(); }

#endif
