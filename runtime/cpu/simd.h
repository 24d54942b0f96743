/* simd.h -- one vector type per real type, as wide as the machine has, for the files of cpu/.
 *
 * Vf holds LANES_F floats, Vd LANES_D doubles; they are gcc vector types, so + - * work on them.
 * Contraction is off in the runtime, so a fused multiply-add is always written v_fma. The compiler
 * flags (-march) decide the width: 64, 32 or 16 bytes.
 */
#ifndef GRADCC_SIMD_H
#define GRADCC_SIMD_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "half.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#elif defined(__AVX2__) && defined(__FMA__)
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES 16
#endif

/* rows and vectors of a register tile: what registers hold besides a row of b and a broadcast */
#if defined(__AVX512F__) || defined(__aarch64__)
#define VECTOR_REGISTERS 32
enum { TILE_ROWS = 8, TILE_VECS = 3 };
#else
#define VECTOR_REGISTERS 16
enum { TILE_ROWS = 4, TILE_VECS = 3 };
#endif

/* elements of a vector */
enum { LANES_F = VECTOR_BYTES / (int)sizeof(float), LANES_D = VECTOR_BYTES / (int)sizeof(double) };

/* vectors of reals; the same at any address of a real; of whole numbers as wide, for shuffles */
typedef float Vf __attribute__((vector_size(VECTOR_BYTES)));
typedef double Vd __attribute__((vector_size(VECTOR_BYTES)));
typedef float VfU __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));
typedef double VdU __attribute__((vector_size(VECTOR_BYTES), aligned(8), may_alias));
typedef int32_t Vi __attribute__((vector_size(VECTOR_BYTES)));
typedef int64_t Vl __attribute__((vector_size(VECTOR_BYTES)));

#define CPU_INLINE static inline __attribute__((always_inline))

/* sizes: the smaller, the larger, a / b rounded up, the multiple of b from a on */
CPU_INLINE ptrdiff_t min_size(ptrdiff_t a, ptrdiff_t b) { return a < b ? a : b; }
CPU_INLINE ptrdiff_t max_size(ptrdiff_t a, ptrdiff_t b) { return a > b ? a : b; }
CPU_INLINE ptrdiff_t ceil_div(ptrdiff_t a, ptrdiff_t b) { return (a + b - 1) / b; }
CPU_INLINE ptrdiff_t round_up(ptrdiff_t a, ptrdiff_t b) { return (a + b - 1) / b * b; }

/* x in every lane; vectors from and to memory, at any address of a real */
CPU_INLINE Vf v_splat_f32(float x) { return x - (Vf){ 0 }; }
CPU_INLINE Vd v_splat_f64(double x) { return x - (Vd){ 0 }; }
CPU_INLINE Vf v_load_f32(const float *at) { return *(const VfU *)at; }
CPU_INLINE Vd v_load_f64(const double *at) { return *(const VdU *)at; }
/* of 16 bits: LANES_F of them, and one */
#if defined(__AVX512F__)
CPU_INLINE Vf v_load_bf16(const rt_bf16 *at)
{
    const __m256i half = _mm256_loadu_si256((const void *)at);
    return (Vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16);
}
CPU_INLINE Vf v_load_f16(const rt_f16 *at)
{
    return (Vf)_mm512_cvtph_ps(_mm256_loadu_si256((const void *)at));
}
#else
CPU_INLINE Vf v_load_bf16(const rt_bf16 *at)
{
    float whole[LANES_F];
    for (int i = 0; i < LANES_F; i++)
        whole[i] = rt_of_bf16(at[i]);
    return *(const VfU *)whole;
}
CPU_INLINE Vf v_load_f16(const rt_f16 *at)
{
    float whole[LANES_F];
    for (int i = 0; i < LANES_F; i++)
        whole[i] = rt_of_f16(at[i]);
    return *(const VfU *)whole;
}
#endif
CPU_INLINE float v_one_f32(float x) { return x; }
CPU_INLINE double v_one_f64(double x) { return x; }
CPU_INLINE float v_one_bf16(rt_bf16 x) { return rt_of_bf16(x); }
CPU_INLINE float v_one_f16(rt_f16 x) { return rt_of_f16(x); }
CPU_INLINE void v_store_f32(float *at, Vf v) { *(VfU *)at = v; }
CPU_INLINE void v_store_f64(double *at, Vd v) { *(VdU *)at = v; }

/* a b + c, rounded once where the machine can */
#if defined(__AVX512F__)
CPU_INLINE Vf v_fma_f32(Vf a, Vf b, Vf c)
{
    return (Vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}
CPU_INLINE Vd v_fma_f64(Vd a, Vd b, Vd c)
{
    return (Vd)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
}
#elif defined(__AVX2__) && defined(__FMA__)
CPU_INLINE Vf v_fma_f32(Vf a, Vf b, Vf c)
{
    return (Vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}
CPU_INLINE Vd v_fma_f64(Vd a, Vd b, Vd c)
{
    return (Vd)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
}
#elif defined(__aarch64__)
CPU_INLINE Vf v_fma_f32(Vf a, Vf b, Vf c)
{
    return (Vf)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
}
CPU_INLINE Vd v_fma_f64(Vd a, Vd b, Vd c)
{
    return (Vd)vfmaq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b);
}
#else
CPU_INLINE Vf v_fma_f32(Vf a, Vf b, Vf c) { return a * b + c; }
CPU_INLINE Vd v_fma_f64(Vd a, Vd b, Vd c) { return a * b + c; }
#endif

/* lanes of a and b in turn: of their lower halves, of their upper halves */
#if defined(__clang__)
#define V_SHUFFLE(a, b, I, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define V_SHUFFLE(a, b, I, ...) __builtin_shuffle(a, b, (I){ __VA_ARGS__ })
#endif
#if VECTOR_BYTES == 64
#define LOW_F  0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HIGH_F 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#define LOW_D  0, 8, 1, 9, 2, 10, 3, 11
#define HIGH_D 4, 12, 5, 13, 6, 14, 7, 15
#elif VECTOR_BYTES == 32
#define LOW_F  0, 8, 1, 9, 2, 10, 3, 11
#define HIGH_F 4, 12, 5, 13, 6, 14, 7, 15
#define LOW_D  0, 4, 1, 5
#define HIGH_D 2, 6, 3, 7
#else
#define LOW_F  0, 4, 1, 5
#define HIGH_F 2, 6, 3, 7
#define LOW_D  0, 2
#define HIGH_D 1, 3
#endif
CPU_INLINE Vf v_mix_low_f32(Vf a, Vf b) { return V_SHUFFLE(a, b, Vi, LOW_F); }
CPU_INLINE Vf v_mix_high_f32(Vf a, Vf b) { return V_SHUFFLE(a, b, Vi, HIGH_F); }
CPU_INLINE Vd v_mix_low_f64(Vd a, Vd b) { return V_SHUFFLE(a, b, Vl, LOW_D); }
CPU_INLINE Vd v_mix_high_f64(Vd a, Vd b) { return V_SHUFFLE(a, b, Vl, HIGH_D); }

/* the first n lanes only (0 < n <= lanes); the others load as 0 and are not stored */
#if defined(__AVX512F__)
CPU_INLINE Vf v_load_part_f32(const float *at, int n)
{
    return (Vf)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), at);
}
CPU_INLINE Vd v_load_part_f64(const double *at, int n)
{
    return (Vd)_mm512_maskz_loadu_pd((__mmask8)((1u << n) - 1), at);
}
CPU_INLINE void v_store_part_f32(float *at, Vf v, int n)
{
    _mm512_mask_storeu_ps(at, (__mmask16)((1u << n) - 1), (__m512)v);
}
CPU_INLINE void v_store_part_f64(double *at, Vd v, int n)
{
    _mm512_mask_storeu_pd(at, (__mmask8)((1u << n) - 1), (__m512d)v);
}
#else
CPU_INLINE Vf v_load_part_f32(const float *at, int n)
{
    float whole[LANES_F] = { 0 };
    memcpy(whole, at, (size_t)n * sizeof *at);
    return v_load_f32(whole);
}
CPU_INLINE Vd v_load_part_f64(const double *at, int n)
{
    double whole[LANES_D] = { 0 };
    memcpy(whole, at, (size_t)n * sizeof *at);
    return v_load_f64(whole);
}
CPU_INLINE void v_store_part_f32(float *at, Vf v, int n)
{
    float whole[LANES_F];
    v_store_f32(whole, v);
    memcpy(at, whole, (size_t)n * sizeof *at);
}
CPU_INLINE void v_store_part_f64(double *at, Vd v, int n)
{
    double whole[LANES_D];
    v_store_f64(whole, v);
    memcpy(at, whole, (size_t)n * sizeof *at);
}
#endif

#endif
