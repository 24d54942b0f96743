/* num.h -- inline mathematics of emitted code, for host and device; the counter-based generator.
 *
 * Functions named rt_x are chosen by type (float or double). The float forms are written without
 * branches, so that compilers vectorise the loops they stand in; their error bounds stand beside
 * them and are tested against libm. Contraction is off: where a fused multiply-add is wanted the
 * text says fma. gcc vectorises all of them with -fno-math-errno -fno-trapping-math, which change
 * no value.
 */
#ifndef GRADCC_NUM_H
#define GRADCC_NUM_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "half.h"

/* ---- Philox4x32-10 ---------------------------------------------------------------------------
 * A draw is a function of (seed, step, stream, global sample index, element in the sample).
 *   key     = (low, high word of seed)
 *   counter = (element >> 2, sample, stream low ^ step,
 *              stream high ^ (sample >> 32) ^ (element >> 34))
 * and word (element & 3) of the block is used. The stream is rt_stream(hash of the path, iteration
 * of each enclosing loop). Uniform: (word >> 8) * 2^-24, in [0, 1); double: the same 24 bits.
 * Normal: Box-Muller of elements 2e, 2e+1 of the same stream: sqrt(-2 ln(1 - u1)) cos(2 pi u2). */

typedef struct {
    uint64_t seed;
    uint32_t step;
} RtKey;

/* The stream inside one more loop, at this iteration. */
RT_INLINE uint64_t rt_stream(uint64_t stream, uint64_t iteration)
{
    uint64_t z = stream + 0x9e3779b97f4a7c15u * (iteration + 1);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

typedef struct {
    uint32_t w0, w1, w2, w3;
} RtBlock;

/* The four words of elements 4 block .. 4 block + 3. Words of 32 bits in 64: so the products of a
   vectorised loop need no repacking. */
RT_INLINE RtBlock rt_philox_block(RtKey key, uint64_t stream, uint64_t sample, uint64_t block)
{
    uint32_t k0 = (uint32_t)key.seed, k1 = (uint32_t)(key.seed >> 32);
    uint64_t c0 = (uint32_t)block, c1 = (uint32_t)sample, c2 = (uint32_t)stream ^ key.step;
    uint64_t c3 = (uint32_t)(stream >> 32) ^ (uint32_t)(sample >> 32) ^ (uint32_t)(block >> 32);
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = 0xD2511F53u * c0, p1 = 0xCD9E8D57u * c2;
        c0 = p1 >> 32 ^ c1 ^ k0;
        c2 = p0 >> 32 ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return (RtBlock){ (uint32_t)c0, (uint32_t)c1, (uint32_t)c2, (uint32_t)c3 };
}

RT_INLINE uint32_t rt_philox(RtKey key, uint64_t stream, uint64_t sample, uint64_t element)
{
    const RtBlock b = rt_philox_block(key, stream, sample, element >> 2);
    const uint32_t even = element & 2 ? b.w2 : b.w0, odd = element & 2 ? b.w3 : b.w1;
    return element & 1 ? odd : even;
}

RT_INLINE float rt_uniform_f32(RtKey key, uint64_t stream, uint64_t sample, uint64_t element)
{
    return (float)(int32_t)(rt_philox(key, stream, sample, element) >> 8) * 0x1p-24f;
}

RT_INLINE double rt_uniform_f64(RtKey key, uint64_t stream, uint64_t sample, uint64_t element)
{
    return (double)(rt_philox(key, stream, sample, element) >> 8) * 0x1p-24;
}

/* ---- bits ----------------------------------------------------------------------------------- */

RT_INLINE uint32_t rt_bits_f32(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}
RT_INLINE float rt_from_f32(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}
RT_INLINE uint64_t rt_bits_f64(double x)
{
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}
RT_INLINE double rt_from_f64(uint64_t u)
{
    double x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* ---- float: without branches, so that loops vectorise -------------------------------------------
 * Bounds are in units in the last place (ulp), measured over every float (one argument) or a dense
 * sweep (two). NaN gives NaN, infinities and denormal numbers are exact as in libm, overflow gives
 * an infinity. Polynomials: minimax fits over the reduced range, coefficients rounded to float.
 * On a GPU exp, log, tanh and erf are CUDA's, which use its unit for 2^x: 1, 1, 2 and 2 ulp by its
 * manual. */

RT_INLINE float rt_abs_f32(float x) { return rt_from_f32(rt_bits_f32(x) & 0x7fffffffu); }

/* the sign of s on x */
RT_INLINE float rt_copysign_f32(float x, float s)
{
    return rt_from_f32((rt_bits_f32(x) & 0x7fffffffu) | (rt_bits_f32(s) & 0x80000000u));
}

RT_INLINE float rt_sqrt_f32(float x) { return sqrtf(x); }         /* exact: 0.5 ulp */
RT_INLINE float rt_rsqrt_f32(float x) { return 1.0f / sqrtf(x); } /* 1.5 ulp */

RT_INLINE float rt_floor_f32(float x) /* exact */
{
    const float a = rt_abs_f32(x), whole = (a + 0x1p23f) - 0x1p23f;
    const float r = rt_copysign_f32(a < 0x1p23f ? whole : a, x);
    return r > x ? r - 1.0f : r;
}

/* e^x, 1.1 ulp: x = n ln 2 + r, e^r by a polynomial, 2^n in two halves so that denormal results
   and overflow come out right. */
RT_INLINE float rt_exp_f32(float x)
{
#if defined(__CUDA_ARCH__)
    return expf(x);
#else
    float c = x > 89.0f ? 89.0f : x;
    c = c < -105.0f ? -105.0f : c;
    const float t = fmaf(c, 1.44269502f, 12582912.0f), n = t - 12582912.0f;
    const int32_t k = (int32_t)(rt_bits_f32(t) - 0x4b400000u), half = k >> 1;
    const float r = fmaf(n, 2.12194442e-4f, fmaf(n, -0.693359375f, c));
    float p = fmaf(r, 0.00138217676f, 0.0083688572f);
    p = fmaf(p, r, 0.0416682586f);
    p = fmaf(p, r, 0.166665196f);
    p = fmaf(p, r, 0.49999994f);
    p = fmaf(p, r * r, r) + 1.0f;
    const float low = rt_from_f32((uint32_t)(half + 127) << 23);
    const float high = rt_from_f32((uint32_t)(k - half + 127) << 23);
    return p * low * high;
#endif
}

/* ln x, 0.9 ulp: x = 2^e m with m in [2/3, 4/3), ln m by a polynomial in m - 1. */
RT_INLINE float rt_log_f32(float x)
{
#if defined(__CUDA_ARCH__)
    return logf(x);
#else
    const bool tiny = x < 0x1p-126f;
    const float scaled = tiny ? x * 0x1p23f : x;
    const int32_t bits = (int32_t)rt_bits_f32(scaled);
    const int32_t e = (bits - 0x3f2aaaab) >> 23;
    const float f = rt_from_f32((uint32_t)bits - ((uint32_t)e << 23)) - 1.0f;
    const float n = (float)e - (tiny ? 23.0f : 0.0f);
    float p = fmaf(f, 0.119564384f, -0.128343165f);
    p = fmaf(p, f, 0.107701316f);
    p = fmaf(p, f, -0.12198475f);
    p = fmaf(p, f, 0.14302665f);
    p = fmaf(p, f, -0.16679363f);
    p = fmaf(p, f, 0.199996829f);
    p = fmaf(p, f, -0.249998257f);
    p = fmaf(p, f, 0.333333343f);
    p = fmaf(p, f, -0.5f);
    const float small = fmaf(p, f * f, fmaf(n, -2.12194442e-4f, f));
    const float y = fmaf(n, 0.693359375f, small);
    const float edge = x == 0 ? -INFINITY : x < 0 ? NAN : x; /* 0, negative, infinite or NaN */
    return x > 0 && x < INFINITY ? y : edge;
#endif
}

/* tanh x, 1.4 ulp: a polynomial near 0, 1 - 2 / (e^2|x| + 1) elsewhere. */
RT_INLINE float rt_tanh_f32(float x)
{
#if defined(__CUDA_ARCH__)
    return tanhf(x);
#else
    const float a = rt_abs_f32(x), s = x * x;
    float p = fmaf(s, -0.00566506386f, 0.0206042957f);
    p = fmaf(p, s, -0.0537293665f);
    p = fmaf(p, s, 0.133313224f);
    p = fmaf(p, s, -0.333332777f);
    const float near = fmaf(p * s, x, x);
    const float far = 1.0f - 2.0f / (rt_exp_f32(2.0f * a) + 1.0f);
    return a < 0.625f ? near : rt_copysign_f32(far, x);
#endif
}

/* erf x, 1.1 ulp: a polynomial below 1, 1 - e^(-t G(t)) above. */
RT_INLINE float rt_erf_f32(float x)
{
#if defined(__CUDA_ARCH__)
    return erff(x);
#else
    const float a = rt_abs_f32(x), s = x * x, t = a > 4.0f ? 4.0f : a;
    float p = fmaf(s, 7.80690316e-5f, -0.00079978531f);
    p = fmaf(p, s, 0.0051871622f);
    p = fmaf(p, s, -0.0268533472f);
    p = fmaf(p, s, 0.112835787f);
    p = fmaf(p, s, -0.37612626f);
    p = fmaf(p, s, 0.128379166f);
    float g = fmaf(t, 1.36572389e-5f, -0.000347432913f);
    g = fmaf(g, t, 0.00374416169f);
    g = fmaf(g, t, -0.0239808038f);
    g = fmaf(g, t, 0.10649547f);
    g = fmaf(g, t, 0.634991884f);
    g = fmaf(g, t, 1.12868857f);
    const float far = 1.0f - rt_exp_f32(-t * g);
    return a < 1.0f ? fmaf(p, x, x) : rt_copysign_f32(far, x);
#endif
}

/* 1 / (1 + e^-x), 1.5 ulp: from e^-|x|, so that neither side overflows; the division is corrected
   by what the sum 1 + e and the quotient lost. */
RT_INLINE float rt_sigmoid_f32(float x)
{
    const float e = rt_exp_f32(-rt_abs_f32(x)), d = 1.0f + e, lost = e - (d - 1.0f);
    const float n = x < 0 ? e : 1.0f, q = n / d;
    return fmaf(fmaf(-q, lost, fmaf(-q, d, n)), x < 0 ? 1.0f - q : q, q);
}

/* x = 2 pi (k + (quarter + r / (pi/2)) / 4): the fraction of a turn in 64 bits, from the bits of
   1 / (2 pi) that matter at the exponent of x. Exact to 2^-64 of a turn for every finite x. */
RT_INLINE float rt_turn_f32(float x, uint32_t *quarter)
{
    static const uint32_t inverse[10] = {
        /* 0., 1 / (2 pi) in binary */
        0x00000000u, 0x28be60dbu, 0x9391054au, 0x7f09d5f4u, 0x7d4d3770u,
        0x36d8a566u, 0x4f10e410u, 0x7f9458eau, 0xf7aef158u, 0x6dc91b8eu,
    };
    const uint32_t bits = rt_bits_f32(x) & 0x7fffffffu;
    const uint32_t large = 0u - (bits >= 0x3f000000u);        /* all ones where |x| >= 1/2 */
    const uint32_t e = bits >> 23 > 126u ? bits >> 23 : 126u; /* |x| = m 2^(e-150) */
    const uint32_t at = (e - 118) >> 5, skip = (e - 118) & 31;
    const uint64_t w0 = inverse[at], w1 = inverse[at + 1], w2 = inverse[at + 2];
    const uint64_t w3 = inverse[at + 3], mask = 0xffffffffu;
    const uint64_t high = ((w0 << 32 | w1) << skip & ~mask) | ((w1 << 32 | w2) << skip) >> 32;
    const uint64_t low = ((w2 << 32 | w3) << skip) >> 32;
    const uint64_t m = (bits & 0x7fffffu) | 0x800000u;
    const uint64_t turn = m * high + (m * low >> 32);
    const uint64_t q = (turn + 0x2000000000000000u) >> 62;
    const int64_t rest = (int64_t)(turn - (q << 62));
    const double upper = (double)(int32_t)(rest >> 32);
    const double lower = (double)(int32_t)((uint32_t)rest >> 1);
    const float far = (float)((upper * 0x1p31 + lower) * 6.812243160173109e-19); /* pi / 2^62 */
    *quarter = (uint32_t)q & large;
    return rt_from_f32((rt_bits_f32(far) & large) | (bits & ~large)) + (x - x);
}

/* sin and cos in [-pi/4, pi/4] */
RT_INLINE float rt_sin_near_f32(float r)
{
    const float s = r * r;
    float p = fmaf(s, 2.83268014e-6f, -0.000198530717f);
    p = fmaf(p, s, 0.0083333794f);
    p = fmaf(p, s, -0.166666672f);
    return fmaf(p * s, r, r);
}
RT_INLINE float rt_cos_near_f32(float r)
{
    const float s = r * r;
    float p = fmaf(s, 2.44323346e-5f, -0.00138873095f);
    p = fmaf(p, s, 0.0416666456f);
    return fmaf(p, s * s, fmaf(s, -0.5f, 1.0f));
}

/* sin x and cos x, 1.6 ulp, for every x */
RT_INLINE float rt_sin_f32(float x)
{
    uint32_t q;
    const float r = rt_turn_f32(x, &q);
    const float y = (q & 1) ? rt_cos_near_f32(r) : rt_sin_near_f32(r);
    return rt_from_f32(rt_bits_f32(y) ^ (q << 30 & 0x80000000u) ^ (rt_bits_f32(x) & 0x80000000u));
}
RT_INLINE float rt_cos_f32(float x)
{
    uint32_t q;
    const float r = rt_turn_f32(x, &q);
    const float y = (q & 1) ? rt_sin_near_f32(r) : rt_cos_near_f32(r);
    return rt_from_f32(rt_bits_f32(y) ^ ((q + 1) << 30 & 0x80000000u));
}

/* x^y, 0.6 ulp, with the special cases of C's pow: 2^(y log2 |x|) in double. */
RT_INLINE float rt_pow_f32(float x, float y)
{
    const double a = (double)rt_abs_f32(x);
    const int64_t bits = (int64_t)rt_bits_f64(a), e = (bits - 0x3fe5555555555555) >> 52;
    const double f = rt_from_f64((uint64_t)bits - ((uint64_t)e << 52)) - 1.0;
    double p = fma(f, -0.1505741848604964, 0.15779896301044352);
    p = fma(p, f, -0.11172825780630889);
    p = fma(p, f, 0.12347698344824869);
    p = fma(p, f, -0.14501396502359915);
    p = fma(p, f, 0.16090197140091997);
    p = fma(p, f, -0.18030249937780368);
    p = fma(p, f, 0.20607535342424929);
    p = fma(p, f, -0.24044998124813319);
    p = fma(p, f, 0.28853945791685642);
    p = fma(p, f, -0.3606737519084145);
    p = fma(p, f, 0.48089834380702351);
    p = fma(p, f, -0.72134752046908868);
    p = fma(p, f, 1.4426950408925703);
    double log2 = fma(p, f, (double)(int32_t)e);
    log2 = a == 0 ? -(double)INFINITY : a < (double)INFINITY ? log2 : a;
    double power = log2 * (double)y;
    power = power > 200 ? 200 : power;
    power = power < -200 ? -200 : power;
    const double t = power + 6755399441055744.0, g = power - (t - 6755399441055744.0);
    const uint64_t n = rt_bits_f64(t) - 0x4338000000000000u;
    double z = fma(g, 1.5201898705351978e-05, 0.00015469317299744538);
    z = fma(z, g, 0.0013333922865821086);
    z = fma(z, g, 0.0096180270728007593);
    z = fma(z, g, 0.055504103528198415);
    z = fma(z, g, 0.240226511987542);
    z = fma(z, g, 0.69314718072871995);
    z = fma(z, g, 0.99999999996162148);
    const float r = (float)(z * rt_from_f64((n + 1023) << 52));
    const float half = y * 0.5f;
    const bool whole = rt_floor_f32(y) == y, odd = whole && rt_floor_f32(half) != half;
    const float with_sign = rt_bits_f32(x) >> 31 && odd ? -r : r;
    const float real = x < 0 && x > -INFINITY && !whole ? NAN : with_sign;
    return y == 0 || x == 1 || (x == -1 && rt_abs_f32(y) == INFINITY) ? 1.0f : real;
}

/* ---- double: libm --------------------------------------------------------------------------- */

RT_INLINE double rt_exp_f64(double x) { return exp(x); }
RT_INLINE double rt_log_f64(double x) { return log(x); }
RT_INLINE double rt_tanh_f64(double x) { return tanh(x); }
RT_INLINE double rt_erf_f64(double x) { return erf(x); }
RT_INLINE double rt_sin_f64(double x) { return sin(x); }
RT_INLINE double rt_cos_f64(double x) { return cos(x); }
RT_INLINE double rt_pow_f64(double x, double y) { return pow(x, y); }
RT_INLINE double rt_sqrt_f64(double x) { return sqrt(x); }
RT_INLINE double rt_rsqrt_f64(double x) { return 1.0 / sqrt(x); }
RT_INLINE double rt_abs_f64(double x) { return fabs(x); }
RT_INLINE double rt_floor_f64(double x) { return floor(x); }
RT_INLINE double rt_sigmoid_f64(double x)
{
    const double e = rt_exp_f64(-rt_abs_f64(x));
    return (x < 0 ? e : 1.0) / (1.0 + e);
}

/* ---- both ----------------------------------------------------------------------------------- */

/* -1, 0 or 1; a NaN stays NaN */
RT_INLINE float rt_sign_f32(float x) { return x > 0 ? 1.0f : x < 0 ? -1.0f : x != x ? x : 0.0f; }
RT_INLINE double rt_sign_f64(double x) { return x > 0 ? 1.0 : x < 0 ? -1.0 : x != x ? x : 0.0; }

/* The smaller, the larger: a NaN on either side gives NaN; of equals the first. */
RT_INLINE float rt_min_f32(float a, float b) { return a != a || a <= b ? a : b; }
RT_INLINE float rt_max_f32(float a, float b) { return a != a || a >= b ? a : b; }
RT_INLINE double rt_min_f64(double a, double b) { return a != a || a <= b ? a : b; }
RT_INLINE double rt_max_f64(double a, double b) { return a != a || a >= b ? a : b; }

/* floor(a / b), and a - b floor(a / b): the sign of b. */
RT_INLINE float rt_floor_div_f32(float a, float b) { return rt_floor_f32(a / b); }
RT_INLINE double rt_floor_div_f64(double a, double b) { return rt_floor_f64(a / b); }
RT_INLINE float rt_mod_f32(float a, float b) { return a - b * rt_floor_f32(a / b); }
RT_INLINE double rt_mod_f64(double a, double b) { return a - b * rt_floor_f64(a / b); }

/* ---- integers: a division by 0 gives 0; what does not fit wraps ----------------------------- */

RT_INLINE int32_t rt_abs_i32(int32_t x)
{
    return (int32_t)(x < 0 ? 0u - (uint32_t)x : (uint32_t)x);
}
RT_INLINE int64_t rt_abs_i64(int64_t x)
{
    return (int64_t)(x < 0 ? 0u - (uint64_t)x : (uint64_t)x);
}
RT_INLINE int32_t rt_sign_i32(int32_t x) { return (x > 0) - (x < 0); }
RT_INLINE int64_t rt_sign_i64(int64_t x) { return (x > 0) - (x < 0); }
RT_INLINE int32_t rt_floor_i32(int32_t x) { return x; }
RT_INLINE int64_t rt_floor_i64(int64_t x) { return x; }
RT_INLINE int32_t rt_min_i32(int32_t a, int32_t b) { return a <= b ? a : b; }
RT_INLINE int64_t rt_min_i64(int64_t a, int64_t b) { return a <= b ? a : b; }
RT_INLINE int32_t rt_max_i32(int32_t a, int32_t b) { return a >= b ? a : b; }
RT_INLINE int64_t rt_max_i64(int64_t a, int64_t b) { return a >= b ? a : b; }
RT_INLINE int64_t rt_floor_div_i64(int64_t a, int64_t b)
{
    if (b == 0)
        return 0;
    if (b == -1)
        return (int64_t)(0u - (uint64_t)a);
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}
RT_INLINE int64_t rt_mod_i64(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a - (uint64_t)b * (uint64_t)rt_floor_div_i64(a, b));
}
RT_INLINE int32_t rt_floor_div_i32(int32_t a, int32_t b) { return (int32_t)rt_floor_div_i64(a, b); }
RT_INLINE int32_t rt_mod_i32(int32_t a, int32_t b) { return (int32_t)rt_mod_i64(a, b); }

/* ---- chosen by type --------------------------------------------------------------------------
 * Functions of a real take float or double (an integer counts as double). The others take reals and
 * integers; two operands are first brought to their common type, as C does for a + b. */

#if defined(__cplusplus)
#define RT_REALS(f)                                                                                \
    RT_INLINE float f(float x) { return f##_f32(x); }                                              \
    RT_INLINE double f(double x) { return f##_f64(x); }
#define RT_NUMBERS(f)                                                                              \
    RT_REALS(f)                                                                                    \
    RT_INLINE int32_t f(int32_t x) { return f##_i32(x); }                                          \
    RT_INLINE int64_t f(int64_t x) { return f##_i64(x); }
#define RT_PAIRS_OF(f, type, suffix)                                                               \
    RT_INLINE type f(type a, type b) { return f##_##suffix(a, b); }
/* The common type of operands that differ is that of their sum. */
#define RT_PAIRS(f)                                                                                \
    RT_PAIRS_OF(f, float, f32)                                                                     \
    RT_PAIRS_OF(f, double, f64)                                                                    \
    RT_PAIRS_OF(f, int32_t, i32)                                                                   \
    RT_PAIRS_OF(f, int64_t, i64)                                                                   \
    template <typename A, typename B> RT_INLINE auto f(A a, B b)->decltype(a + b)                  \
    {                                                                                              \
        return f((decltype(a + b))a, (decltype(a + b))b);                                          \
    }
RT_REALS(rt_exp)
RT_REALS(rt_log)
RT_REALS(rt_tanh)
RT_REALS(rt_erf)
RT_REALS(rt_sigmoid)
RT_REALS(rt_sin)
RT_REALS(rt_cos)
RT_REALS(rt_sqrt)
RT_REALS(rt_rsqrt)
RT_PAIRS_OF(rt_pow, float, f32)
RT_PAIRS_OF(rt_pow, double, f64)
RT_NUMBERS(rt_abs)
RT_NUMBERS(rt_sign)
RT_NUMBERS(rt_floor)
RT_PAIRS(rt_min)
RT_PAIRS(rt_max)
RT_PAIRS(rt_floor_div)
RT_PAIRS(rt_mod)
#else
#define RT_REAL(f, x) _Generic((x), float : f##_f32, default : f##_f64)
#define RT_NUMBER(f, x)                                                                            \
    _Generic((x), float                                                                            \
             : f##_f32, double                                                                     \
             : f##_f64, long                                                                       \
             : f##_i64, long long                                                                  \
             : f##_i64, default                                                                    \
             : f##_i32)

#define rt_exp(x)          RT_REAL(rt_exp, x)(x)
#define rt_log(x)          RT_REAL(rt_log, x)(x)
#define rt_tanh(x)         RT_REAL(rt_tanh, x)(x)
#define rt_erf(x)          RT_REAL(rt_erf, x)(x)
#define rt_sigmoid(x)      RT_REAL(rt_sigmoid, x)(x)
#define rt_sin(x)          RT_REAL(rt_sin, x)(x)
#define rt_cos(x)          RT_REAL(rt_cos, x)(x)
#define rt_sqrt(x)         RT_REAL(rt_sqrt, x)(x)
#define rt_rsqrt(x)        RT_REAL(rt_rsqrt, x)(x)
#define rt_pow(x, y)       RT_REAL(rt_pow, (x) + (y))(x, y)

#define rt_abs(x)          RT_NUMBER(rt_abs, x)(x)
#define rt_sign(x)         RT_NUMBER(rt_sign, x)(x)
#define rt_floor(x)        RT_NUMBER(rt_floor, x)(x)
#define rt_min(a, b)       RT_NUMBER(rt_min, (a) + (b))(a, b)
#define rt_max(a, b)       RT_NUMBER(rt_max, (a) + (b))(a, b)
#define rt_floor_div(a, b) RT_NUMBER(rt_floor_div, (a) + (b))(a, b)
#define rt_mod(a, b)       RT_NUMBER(rt_mod, (a) + (b))(a, b)
#endif

/* ---- normal draws --------------------------------------------------------------------------- */

RT_INLINE float rt_normal_f32(RtKey key, uint64_t stream, uint64_t sample, uint64_t element)
{
    const RtBlock b = rt_philox_block(key, stream, sample, element >> 1);
    const uint32_t word = element & 1 ? b.w2 : b.w0;
    const uint32_t turn = (element & 1 ? b.w3 : b.w1) >> 8; /* 24 bits */
    const uint32_t q = (turn + 0x200000u) >> 22;
    const float r = (float)((int32_t)turn - (int32_t)(q << 22)) * 3.74507028e-7f; /* 2 pi/2^24 */
    const float y = (q & 1) ? rt_sin_near_f32(r) : rt_cos_near_f32(r);
    const float cosine = rt_from_f32(rt_bits_f32(y) ^ ((q + 1) << 30 & 0x80000000u));
    const float rest = (float)(int32_t)(0x1000000u - (word >> 8)) * 0x1p-24f; /* 1 - u1 */
    return rt_sqrt_f32(-2.0f * rt_log_f32(rest)) * cosine;
}

RT_INLINE double rt_normal_f64(RtKey key, uint64_t stream, uint64_t sample, uint64_t element)
{
    const double u1 = rt_uniform_f64(key, stream, sample, 2 * element);
    const double u2 = rt_uniform_f64(key, stream, sample, 2 * element + 1);
    return rt_sqrt_f64(-2.0 * rt_log_f64(1.0 - u1)) * rt_cos_f64(6.283185307179586 * u2);
}

#endif
