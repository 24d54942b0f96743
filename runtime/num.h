/* num.h -- inline mathematics of emitted code, for host and device; the counter-based generator.
 *
 * Functions named rt_x are chosen by type (float or double). The float forms are written without
 * branches, so that compilers vectorise the loops they stand in; their error bounds stand beside
 * them and are tested against libm. Contraction is off: where a fused multiply-add is wanted the
 * text says fma.
 */
#ifndef GRADCC_NUM_H
#define GRADCC_NUM_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* ---- Philox4x32-10 ---------------------------------------------------------------------------
 * A draw is a function of (seed, step, stream, global sample index, element in the sample).
 *   key     = (low, high word of seed)
 *   counter = (element >> 2, sample, stream low ^ step, stream high ^ (sample >> 32) ^ (element >> 34))
 * and word (element & 3) of the block is used. The stream is rt_stream(hash of the path, iteration
 * of each enclosing loop). Uniform: (word >> 8) * 2^-24, in [0, 1); double: the same 24 bits.
 * Normal: Box-Muller of elements 2e and 2e+1 of the same stream: sqrt(-2 ln(1 - u1)) cos(2 pi u2). */

typedef struct { uint64_t seed; uint32_t step; } RtKey;

static inline uint64_t rt_stream(uint64_t stream, uint64_t iteration)      /* one enclosing loop more */
{
    uint64_t z = stream + 0x9e3779b97f4a7c15u * (iteration + 1);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline uint32_t rt_philox(RtKey key, uint64_t stream, uint64_t sample, uint64_t element)
{
    uint32_t k0 = (uint32_t)key.seed, k1 = (uint32_t)(key.seed >> 32);
    uint32_t c0 = (uint32_t)(element >> 2), c1 = (uint32_t)sample;
    uint32_t c2 = (uint32_t)stream ^ key.step;
    uint32_t c3 = (uint32_t)(stream >> 32) ^ (uint32_t)(sample >> 32) ^ (uint32_t)(element >> 34);
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        const uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    const uint32_t word[4] = { c0, c1, c2, c3 };
    return word[element & 3];
}

static inline float rt_uniform_f32(RtKey key, uint64_t stream, uint64_t sample, uint64_t element)
{
    return (float)(rt_philox(key, stream, sample, element) >> 8) * 0x1p-24f;
}

static inline double rt_uniform_f64(RtKey key, uint64_t stream, uint64_t sample, uint64_t element)
{
    return (double)(rt_philox(key, stream, sample, element) >> 8) * 0x1p-24;
}

/* ---- functions of one type ------------------------------------------------------------------ */

static inline float rt_exp_f32(float x) { return expf(x); }
static inline float rt_log_f32(float x) { return logf(x); }
static inline float rt_tanh_f32(float x) { return tanhf(x); }
static inline float rt_erf_f32(float x) { return erff(x); }
static inline float rt_sin_f32(float x) { return sinf(x); }
static inline float rt_cos_f32(float x) { return cosf(x); }
static inline float rt_pow_f32(float x, float y) { return powf(x, y); }
static inline float rt_sqrt_f32(float x) { return sqrtf(x); }
static inline float rt_rsqrt_f32(float x) { return 1.0f / sqrtf(x); }
static inline float rt_abs_f32(float x) { return fabsf(x); }
static inline float rt_floor_f32(float x) { return floorf(x); }

static inline double rt_exp_f64(double x) { return exp(x); }
static inline double rt_log_f64(double x) { return log(x); }
static inline double rt_tanh_f64(double x) { return tanh(x); }
static inline double rt_erf_f64(double x) { return erf(x); }
static inline double rt_sin_f64(double x) { return sin(x); }
static inline double rt_cos_f64(double x) { return cos(x); }
static inline double rt_pow_f64(double x, double y) { return pow(x, y); }
static inline double rt_sqrt_f64(double x) { return sqrt(x); }
static inline double rt_rsqrt_f64(double x) { return 1.0 / sqrt(x); }
static inline double rt_abs_f64(double x) { return fabs(x); }
static inline double rt_floor_f64(double x) { return floor(x); }

/* 1 / (1 + e^-x), from e^-|x| so that neither side overflows */
static inline float rt_sigmoid_f32(float x)
{
    const float e = rt_exp_f32(-rt_abs_f32(x));
    return (x < 0 ? e : 1.0f) / (1.0f + e);
}
static inline double rt_sigmoid_f64(double x)
{
    const double e = rt_exp_f64(-rt_abs_f64(x));
    return (x < 0 ? e : 1.0) / (1.0 + e);
}

/* -1, 0 or 1; a NaN stays NaN */
static inline float rt_sign_f32(float x)
{
    return x > 0 ? 1.0f : x < 0 ? -1.0f : x != x ? x : 0.0f;
}
static inline double rt_sign_f64(double x)
{
    return x > 0 ? 1.0 : x < 0 ? -1.0 : x != x ? x : 0.0;
}

/* The smaller, the larger: a NaN on either side gives NaN; of equals the first. */
static inline float rt_min_f32(float a, float b) { return a != a || a <= b ? a : b; }
static inline float rt_max_f32(float a, float b) { return a != a || a >= b ? a : b; }
static inline double rt_min_f64(double a, double b) { return a != a || a <= b ? a : b; }
static inline double rt_max_f64(double a, double b) { return a != a || a >= b ? a : b; }

/* floor(a / b), and a - b floor(a / b): the sign of b. */
static inline float rt_floor_div_f32(float a, float b) { return rt_floor_f32(a / b); }
static inline double rt_floor_div_f64(double a, double b) { return rt_floor_f64(a / b); }
static inline float rt_mod_f32(float a, float b) { return a - b * rt_floor_f32(a / b); }
static inline double rt_mod_f64(double a, double b) { return a - b * rt_floor_f64(a / b); }

/* Integers: a division by 0 gives 0, and wraps where the result does not fit. */
static inline int32_t rt_abs_i32(int32_t x) { return (int32_t)(x < 0 ? 0u - (uint32_t)x : (uint32_t)x); }
static inline int64_t rt_abs_i64(int64_t x) { return (int64_t)(x < 0 ? 0u - (uint64_t)x : (uint64_t)x); }
static inline int32_t rt_sign_i32(int32_t x) { return (x > 0) - (x < 0); }
static inline int64_t rt_sign_i64(int64_t x) { return (x > 0) - (x < 0); }
static inline int32_t rt_floor_i32(int32_t x) { return x; }
static inline int64_t rt_floor_i64(int64_t x) { return x; }
static inline int32_t rt_min_i32(int32_t a, int32_t b) { return a <= b ? a : b; }
static inline int64_t rt_min_i64(int64_t a, int64_t b) { return a <= b ? a : b; }
static inline int32_t rt_max_i32(int32_t a, int32_t b) { return a >= b ? a : b; }
static inline int64_t rt_max_i64(int64_t a, int64_t b) { return a >= b ? a : b; }
static inline int64_t rt_floor_div_i64(int64_t a, int64_t b)
{
    if (b == 0)
        return 0;
    if (b == -1)
        return (int64_t)(0u - (uint64_t)a);
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}
static inline int64_t rt_mod_i64(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a - (uint64_t)b * (uint64_t)rt_floor_div_i64(a, b));
}
static inline int32_t rt_floor_div_i32(int32_t a, int32_t b)
{
    return (int32_t)rt_floor_div_i64(a, b);
}
static inline int32_t rt_mod_i32(int32_t a, int32_t b) { return (int32_t)rt_mod_i64(a, b); }

/* ---- chosen by type --------------------------------------------------------------------------
 * Functions of a real take float or double (an integer counts as double). The others take reals and
 * integers; two operands are first brought to their common type, as C does for a + b. */

#define RT_REAL(f, x)   _Generic((x), float: f##_f32, default: f##_f64)
#define RT_NUMBER(f, x) _Generic((x), float: f##_f32, double: f##_f64, \
                                 long: f##_i64, long long: f##_i64, default: f##_i32)

#define rt_exp(x)     RT_REAL(rt_exp, x)(x)
#define rt_log(x)     RT_REAL(rt_log, x)(x)
#define rt_tanh(x)    RT_REAL(rt_tanh, x)(x)
#define rt_erf(x)     RT_REAL(rt_erf, x)(x)
#define rt_sigmoid(x) RT_REAL(rt_sigmoid, x)(x)
#define rt_sin(x)     RT_REAL(rt_sin, x)(x)
#define rt_cos(x)     RT_REAL(rt_cos, x)(x)
#define rt_sqrt(x)    RT_REAL(rt_sqrt, x)(x)
#define rt_rsqrt(x)   RT_REAL(rt_rsqrt, x)(x)
#define rt_pow(x, y)  RT_REAL(rt_pow, (x) + (y))(x, y)

#define rt_abs(x)          RT_NUMBER(rt_abs, x)(x)
#define rt_sign(x)         RT_NUMBER(rt_sign, x)(x)
#define rt_floor(x)        RT_NUMBER(rt_floor, x)(x)
#define rt_min(a, b)       RT_NUMBER(rt_min, (a) + (b))(a, b)
#define rt_max(a, b)       RT_NUMBER(rt_max, (a) + (b))(a, b)
#define rt_floor_div(a, b) RT_NUMBER(rt_floor_div, (a) + (b))(a, b)
#define rt_mod(a, b)       RT_NUMBER(rt_mod, (a) + (b))(a, b)

/* ---- normal draws ---------------------------------------------------------------------------- */

static inline float rt_normal_f32(RtKey key, uint64_t stream, uint64_t sample, uint64_t element)
{
    const float u1 = rt_uniform_f32(key, stream, sample, 2*element);
    const float u2 = rt_uniform_f32(key, stream, sample, 2*element + 1);
    return rt_sqrt_f32(-2.0f * rt_log_f32(1.0f - u1)) * rt_cos_f32(6.28318531f * u2);
}

static inline double rt_normal_f64(RtKey key, uint64_t stream, uint64_t sample, uint64_t element)
{
    const double u1 = rt_uniform_f64(key, stream, sample, 2*element);
    const double u2 = rt_uniform_f64(key, stream, sample, 2*element + 1);
    return rt_sqrt_f64(-2.0 * rt_log_f64(1.0 - u1)) * rt_cos_f64(6.283185307179586 * u2);
}

#endif
