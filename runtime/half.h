/* half.h -- the two 16-bit types of compute copies and activations: bfloat16 and IEEE half.
 *
 * In: 16 bits or a float. Out: the other one. Every 16-bit value is a float exactly; a float goes
 * to the nearest 16-bit value, ties to even, beyond the largest to infinity, NaN to a quiet NaN.
 * The one idea: whole numbers without branches, so that compilers vectorise the loops they stand
 * in, with the same bits on every machine.
 */
#ifndef GRADCC_HALF_H
#define GRADCC_HALF_H

#include <stdint.h>
#include <string.h>

#if defined(__CUDACC__) /* on the device too, which has instructions for them from sm_80 on */
#define RT_INLINE static __host__ __device__ __forceinline__
#else
#define RT_INLINE static inline
#endif
#define RT_DEVICE static __device__ __forceinline__ /* on the device alone */

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define RT_HALF_BY_DEVICE /* the same numbers; every NaN is one */
#endif

typedef uint16_t rt_bf16; /* sign, 8 bits of exponent, 7 of fraction: the upper half of a float */
typedef uint16_t rt_f16;  /* sign, 5 bits of exponent, 10 of fraction; subnormals from 2^-24 on */

RT_INLINE uint32_t rt_half_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

RT_INLINE float rt_half_float(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

RT_INLINE float rt_of_bf16(rt_bf16 h) { return rt_half_float((uint32_t)h << 16); }

RT_INLINE rt_bf16 rt_to_bf16(float x)
{
#if defined(RT_HALF_BY_DEVICE)
    rt_bf16 h;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(x));
    return h;
#else
    const uint32_t u = rt_half_bits(x), near = (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
    return (rt_bf16)((u & 0x7fffffffu) > 0x7f800000u ? u >> 16 | 0x40u : near);
#endif
}

/* One of the two neighbours, at random: the 16 low bits of r are added below the digits that stay
   and what is left there is cut off; so the mean over all r is x. What bf16 has stays as it is, and
   no finite number becomes infinite. */
RT_INLINE rt_bf16 rt_to_bf16_random(float x, uint32_t r)
{
    const uint32_t u = rt_half_bits(x), size = u & 0x7fffffffu, up = size + (r & 0xffffu);
    const uint32_t most = up < 0x7f800000u ? up >> 16 : 0x7f7fu;
    const uint32_t rest = size == 0x7f800000u ? 0x7f80u : size >> 16 | 0x40u;
    return (rt_bf16)((u >> 16 & 0x8000u) | (size < 0x7f800000u ? most : rest));
}

RT_INLINE float rt_of_f16(rt_f16 h)
{
#if defined(RT_HALF_BY_DEVICE)
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
    return x;
#else
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, u = (uint32_t)(h & 0x7fffu) << 13;
    const uint32_t bias = (127u - 15u) << 23; /* of exponents */
    const uint32_t over = u > 0x0f800000u    ? 2 * bias + 0x400000u - (u & 0x400000u)
                          : u == 0x0f800000u ? 2 * bias
                                             : bias;
    const uint32_t tiny = rt_half_bits((float)(int32_t)(h & 0x3ffu) * 0x1p-24f);
    return rt_half_float(sign | (u < 0x00800000u ? tiny : u + over));
#endif
}

RT_INLINE rt_f16 rt_to_f16(float x)
{
#if defined(RT_HALF_BY_DEVICE)
    rt_f16 h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
    return h;
#else
    const uint32_t bits = rt_half_bits(x), sign = bits >> 16 & 0x8000u, u = bits & 0x7fffffffu;
    const uint32_t near = (u - ((127u - 15u) << 23) + 0xfffu + (u >> 13 & 1u)) >> 13;
    /* below 2^-14 steps are 2^-24, those of floats from 0.5 on: the addition rounds */
    const uint32_t tiny = rt_half_bits(rt_half_float(u) + 0.5f) - 0x3f000000u;
    const uint32_t large = u > 0x7f800000u ? 0x7e00u | (u >> 13 & 0x3ffu) : 0x7c00u;
    return (rt_f16)(sign | (u < 0x38800000u ? tiny : u >= 0x477ff000u ? large : near));
#endif
}

/* The nearest value that the 16-bit type has. */
RT_INLINE float rt_round_bf16(float x) { return rt_of_bf16(rt_to_bf16(x)); }
RT_INLINE float rt_round_f16(float x) { return rt_of_f16(rt_to_f16(x)); }

#endif
