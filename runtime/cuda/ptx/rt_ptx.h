/* rt_ptx.h -- machine instructions that kernels use by name: matrix products of a warp, loads of
 * their operands, copies into shared memory that nobody waits for, conversions.
 *
 * Device code only; all lanes of the warp take part in rt_mma_* and rt_ldmatrix_*. The simulator of
 * tests/cudasim has a header of the same name that comes first on its include path.
 */
#ifndef GRADCC_RT_PTX_H
#define GRADCC_RT_PTX_H

#include "half.h"

/* c[16][8] += a[16][16] @ b[16][8], 16 bits times 16 bits into fp32. Lane 4 g + i holds of
   a: rows g, g+8 of columns 2i, 2i+1 in a[0], a[1], and of columns 2i+8, 2i+9 in a[2], a[3];
   b: rows 2i, 2i+1 of column g in b[0], rows 2i+8, 2i+9 in b[1];
   c: columns 2i, 2i+1 of row g in c[0], c[1], of row g+8 in c[2], c[3].
   Of two 16-bit values in 32 bits the first lies in the low half. */
RT_DEVICE void rt_mma_bf16(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

RT_DEVICE void rt_mma_f16(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Four 8x8 matrices of 16-bit values in shared memory: lane 8 m + r names row r of matrix m, 16
   bytes at a multiple of 16. Lane 4 g + i gets columns 2i, 2i+1 of row g of matrix m in to[m];
   _trans: rows 2i, 2i+1 of column g. */
RT_DEVICE void rt_ldmatrix_x4(uint32_t to[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(row))
                 : "memory");
}

RT_DEVICE void rt_ldmatrix_x4_trans(uint32_t to[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(row))
                 : "memory");
}

/* 16 bytes from global to shared memory, both at multiples of 16; live false: zeros, and nothing is
   read. They are there once the thread has waited for their group; for the others, behind a
   barrier after that. */
RT_DEVICE void rt_cp_async_16(void *shared, const void *global, bool live)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"((uint32_t)__cvta_generic_to_shared(shared)), "l"(global), "r"(live ? 16 : 0)
                 : "memory");
}

/* Closes a group: the copies that this thread began since the last one. */
RT_DEVICE void rt_cp_async_commit(void) { asm volatile("cp.async.commit_group;" ::: "memory"); }

/* Waits until at most `left` of this thread's newest groups are under way. */
template <int left> RT_DEVICE void rt_cp_async_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory");
}

/* Two floats to the nearest 16-bit values, ties to even: first | second << 16. */
RT_DEVICE uint32_t rt_pack_bf16(float first, float second)
{
    uint32_t both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
    return both;
}

RT_DEVICE uint32_t rt_pack_f16(float first, float second)
{
    uint32_t both;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
    return both;
}

/* 2^x, with a relative error below 2^-22; results below 2^-126 are 0. */
RT_DEVICE float rt_exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Nanoseconds of a clock that all of the GPU has; it may go on in steps of a microsecond. */
RT_DEVICE uint64_t rt_nanoseconds(void)
{
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

#endif
