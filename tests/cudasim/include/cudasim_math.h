/* cudasim_math.h -- the device's own names of arithmetic, as plain C.
 *
 * The fast ones (__expf ...) give here what the exact function gives: the device's may differ in
 * the last digits.
 */
#ifndef CUDASIM_MATH_H
#define CUDASIM_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

template <typename T, typename F> __forceinline__ T cudasim_bits(F from)
{
    static_assert(sizeof(T) == sizeof(F), "the same size");
    T to;
    memcpy(&to, &from, sizeof to);
    return to;
}

__forceinline__ unsigned __float_as_uint(float x) { return cudasim_bits<unsigned>(x); }
__forceinline__ int __float_as_int(float x) { return cudasim_bits<int>(x); }
__forceinline__ float __uint_as_float(unsigned x) { return cudasim_bits<float>(x); }
__forceinline__ float __int_as_float(int x) { return cudasim_bits<float>(x); }
__forceinline__ long long __double_as_longlong(double x) { return cudasim_bits<long long>(x); }
__forceinline__ double __longlong_as_double(long long x) { return cudasim_bits<double>(x); }

__forceinline__ float rsqrtf(float x) { return 1.0f / sqrtf(x); }
__forceinline__ double rsqrt(double x) { return 1.0 / sqrt(x); }
__forceinline__ float __expf(float x) { return expf(x); }
__forceinline__ float __exp10f(float x) { return powf(10.0f, x); }
__forceinline__ float __logf(float x) { return logf(x); }
__forceinline__ float __log2f(float x) { return log2f(x); }
__forceinline__ float __powf(float x, float y) { return powf(x, y); }
__forceinline__ float __sinf(float x) { return sinf(x); }
__forceinline__ float __cosf(float x) { return cosf(x); }
__forceinline__ float __fdividef(float x, float y) { return x / y; }
__forceinline__ float __saturatef(float x) { return x > 0.0f ? x < 1.0f ? x : 1.0f : 0.0f; }

__forceinline__ float __fadd_rn(float x, float y) { return x + y; }
__forceinline__ float __fsub_rn(float x, float y) { return x - y; }
__forceinline__ float __fmul_rn(float x, float y) { return x * y; }
__forceinline__ float __fdiv_rn(float x, float y) { return x / y; }
__forceinline__ float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
__forceinline__ float __fsqrt_rn(float x) { return sqrtf(x); }
__forceinline__ float __frcp_rn(float x) { return 1.0f / x; }
__forceinline__ float __frsqrt_rn(float x) { return 1.0f / sqrtf(x); }
__forceinline__ double __dadd_rn(double x, double y) { return x + y; }
__forceinline__ double __dsub_rn(double x, double y) { return x - y; }
__forceinline__ double __dmul_rn(double x, double y) { return x * y; }
__forceinline__ double __ddiv_rn(double x, double y) { return x / y; }
__forceinline__ double __dsqrt_rn(double x) { return sqrt(x); }
__forceinline__ double __fma_rn(double x, double y, double z) { return fma(x, y, z); }

__forceinline__ int __float2int_rn(float x) { return (int)lrintf(x); }
__forceinline__ int __float2int_rz(float x) { return (int)x; }
__forceinline__ int __float2int_rd(float x) { return (int)floorf(x); }
__forceinline__ unsigned __float2uint_rn(float x) { return (unsigned)llrintf(x); }
__forceinline__ float __int2float_rn(int x) { return (float)x; }
__forceinline__ float __uint2float_rn(unsigned x) { return (float)x; }
__forceinline__ float __double2float_rn(double x) { return (float)x; }

__forceinline__ int __popc(unsigned x) { return __builtin_popcount(x); }
__forceinline__ int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
__forceinline__ int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
__forceinline__ int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
__forceinline__ int __ffs(int x) { return __builtin_ffs(x); }
__forceinline__ int __ffsll(long long x) { return __builtin_ffsll(x); }
__forceinline__ unsigned __umulhi(unsigned x, unsigned y)
{
    return (unsigned)((uint64_t)x * y >> 32);
}
__forceinline__ int __mulhi(int x, int y) { return (int)((int64_t)x * y >> 32); }
__forceinline__ unsigned long long __umul64hi(unsigned long long x, unsigned long long y)
{
    return (unsigned long long)((unsigned __int128)x * y >> 64);
}
__forceinline__ int __mul24(int x, int y)
{
    return (int)((unsigned)(x << 8 >> 8) * (unsigned)(y << 8 >> 8));
}
__forceinline__ unsigned __umul24(unsigned x, unsigned y)
{
    return (x & 0xffffff) * (y & 0xffffff);
}
__forceinline__ unsigned __brev(unsigned x)
{
    unsigned r = 0;
    for (int i = 0; i < 32; i++)
        r |= (x >> i & 1u) << (31 - i);
    return r;
}
/* Four bytes of x (0..3) and y (4..7), chosen by the four nibbles of s. */
__forceinline__ unsigned __byte_perm(unsigned x, unsigned y, unsigned s)
{
    const uint64_t both = (uint64_t)y << 32 | x;
    unsigned r = 0;
    for (int i = 0; i < 4; i++)
        r |= (unsigned)(both >> 8 * (s >> 4 * i & 7u) & 0xffu) << 8 * i;
    return r;
}
__forceinline__ unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned by)
{
    return (unsigned)((((uint64_t)hi << 32 | lo) << (by & 31u)) >> 32);
}
__forceinline__ unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned by)
{
    return (unsigned)(((uint64_t)hi << 32 | lo) >> (by & 31u));
}
__forceinline__ void __nanosleep(unsigned) {}

/* CUDA has min and max without a namespace, by type. */
#define CUDASIM_MIN_MAX(type)                                                                      \
    __forceinline__ type min(type x, type y) { return y < x ? y : x; }                             \
    __forceinline__ type max(type x, type y) { return x < y ? y : x; }
CUDASIM_MIN_MAX(int)
CUDASIM_MIN_MAX(unsigned)
CUDASIM_MIN_MAX(long)
CUDASIM_MIN_MAX(unsigned long)
CUDASIM_MIN_MAX(long long)
CUDASIM_MIN_MAX(unsigned long long)
__forceinline__ float min(float x, float y) { return fminf(x, y); }
__forceinline__ float max(float x, float y) { return fmaxf(x, y); }
__forceinline__ double min(double x, double y) { return fmin(x, y); }
__forceinline__ double max(double x, double y) { return fmax(x, y); }

#endif
