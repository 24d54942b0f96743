/* test_num.c -- inline mathematics against libm in double, special values, the generator. */
#include "cm.h"
#include "run.h"

enum { BLOCK = 256 };

static double ulps(float got, double want)
{
    const float nearest = (float)want;
    if ((isnan(got) && isnan(want)) || (isinf(nearest) && got == nearest))
        return 0;
    if (!isfinite(got) || !isfinite(nearest))
        return INFINITY;
    const int e = nearest == 0 || ilogbf(nearest) < -126 ? -149 : ilogbf(nearest) - 23;
    return fabs((double)got - want) / ldexp(1, e);
}

/* The largest error over floats of all signs and exponents, in loops that vectorise. */
#define SWEEP(name, reference, bound)                                                              \
    static void sweep_##name(void **unused)                                                        \
    {                                                                                              \
        RT_UNUSED(unused);                                                                         \
        double worst = 0;                                                                          \
        float at = 0, x[BLOCK], y[BLOCK];                                                          \
        for (uint64_t first = 0; first < UINT64_C(1) << 32; first += 6007 * BLOCK) {               \
            for (uint32_t i = 0; i < BLOCK; i++)                                                   \
                x[i] = rt_from_f32((uint32_t)first + i * 41);                                      \
            _Pragma("omp simd") for (int i = 0; i < BLOCK; i++) y[i] = rt_##name(x[i]);            \
            for (int i = 0; i < BLOCK; i++) {                                                      \
                const double error = ulps(y[i], reference((double)x[i]));                          \
                at = error > worst ? x[i] : at;                                                    \
                worst = error > worst ? error : worst;                                             \
            }                                                                                      \
        }                                                                                          \
        if (!(worst <= bound))                                                                     \
            fail_msg("%s: %.3f ulp at %a", #name, worst, (double)at);                              \
    }

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double rsqrt(double x) { return 1 / sqrt(x); }

SWEEP(exp, exp, 1.1)
SWEEP(log, log, 1.0)
SWEEP(tanh, tanh, 1.4)
SWEEP(erf, erf, 1.1)
SWEEP(sigmoid, sigmoid, 1.5)
SWEEP(sin, sin, 1.6)
SWEEP(cos, cos, 1.6)
SWEEP(sqrt, sqrt, 0.5)
SWEEP(rsqrt, rsqrt, 1.5)
SWEEP(floor, floor, 0)
SWEEP(abs, fabs, 0)

static void range_of_everyday(void **unused) /* dense where networks live */
{
    RT_UNUSED(unused);
    for (int i = -400000; i <= 400000; i++) {
        const float x = (float)i * 2.5e-5f;
        const double d = (double)x;
        assert_true(ulps(rt_exp(x), exp(d)) <= 1.1);
        assert_true(ulps(rt_tanh(x), tanh(d)) <= 1.4);
        assert_true(ulps(rt_erf(x), erf(d)) <= 1.1);
        assert_true(ulps(rt_sigmoid(x), sigmoid(d)) <= 1.5);
        if (i > 0)
            assert_true(ulps(rt_log(x), log(d)) <= 1.0);
    }
}

static void power(void **unused)
{
    RT_UNUSED(unused);
    static const float special[] = {
        0,    -0.0f,    1,        -1,        2,          -2,     3,        -3,
        0.5f, -0.5f,    1e-45f,   -1e-45f,   3e38f,      -3e38f, INFINITY, -INFINITY,
        NAN,  16777216, 16777215, -16777215, 8388607.5f, 1e10f,
    };
    const int n = (int)(sizeof special / sizeof *special);
    for (int i = 0; i < n * n; i++) {
        const float x = special[i / n], y = special[i % n], got = rt_pow(x, y);
        const double want = pow((double)x, (double)y);
        if (ulps(got, want) > 0.6 || (!isnan(got) && signbit(got) != signbit((float)want)))
            fail_msg("pow(%g, %g) = %g, wanted %g", (double)x, (double)y, (double)got, want);
    }
    for (uint64_t i = 0; i < 400000; i++) {
        const RtKey key = { 7, 0 };
        const float x = expf(40 * rt_uniform_f32(key, 1, 0, i) - 20);
        const float y = 16 * rt_uniform_f32(key, 2, 0, i) - 8;
        assert_true(ulps(rt_pow(x, y), pow((double)x, (double)y)) <= 0.6);
    }
}

static void smaller_and_larger(void **unused)
{
    RT_UNUSED(unused);
    assert_true(isnan(rt_min(NAN, 1.0f)) && isnan(rt_min(1.0f, (float)NAN)));
    assert_true(isnan(rt_max((double)NAN, 1.0)) && isnan(rt_max(1.0, (double)NAN)));
    assert_true(rt_min(2.0f, -3.0f) == -3.0f && rt_max(2, -3) == 2);
    assert_true(rt_max((ptrdiff_t)5, 7) == 7 && rt_min(2.5, 3) == 2.5);
    assert_true(rt_sign(-3.0f) == -1 && rt_sign(0.0) == 0 && rt_sign(-7) == -1);
    assert_true(isnan(rt_sign((float)NAN)) && rt_abs(-3) == 3 && rt_abs(INT32_MIN) == INT32_MIN);
    assert_true(signbit(rt_floor(-0.0f)) && rt_floor(-0.5f) == -1);
    assert_true(rt_floor(8388609.0f) == 8388609.0f && rt_floor(-8388607.5f) == -8388608.0f);
}

static void floor_division(void **unused)
{
    RT_UNUSED(unused);
    for (int a = -7; a <= 7; a++)
        for (int b = -3; b <= 3; b++) {
            if (b == 0)
                continue;
            const int q = (int)floor((double)a / b);
            assert_int_equal(rt_floor_div(a, b), q);
            assert_int_equal(rt_mod(a, b), a - b * q);
            assert_true(rt_floor_div((float)a, (float)b) == (float)q);
            assert_true(rt_mod((double)a, (double)b) == a - b * q);
        }
    assert_int_equal(rt_floor_div(5, 0), 0);
    assert_int_equal(rt_floor_div(INT32_MIN, -1), INT32_MIN);
    assert_int_equal(rt_mod(INT32_MIN, -1), 0);
}

static void philox_known_answers(void **unused)
{
    RT_UNUSED(unused); /* Random123's: counter and key 0, and all ones */
    const uint32_t zero[4] = { 0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u };
    for (uint64_t i = 0; i < 4; i++)
        assert_int_equal(rt_philox((RtKey){ 0, 0 }, 0, 0, i), zero[i]);
}

static void draws(void **unused)
{
    RT_UNUSED(unused);
    const RtKey key = { 42, 3 };
    enum { N = 200000 };
    double sum = 0, squares = 0, normal = 0, normal2 = 0, apart = 0;
    for (uint64_t i = 0; i < N; i++) {
        const float u = rt_uniform_f32(key, 99, 5, i);
        const float z = rt_normal_f32(key, 99, 5, i);
        assert_true(u >= 0 && u < 1 && (double)u == rt_uniform_f64(key, 99, 5, i));
        const double wide = rt_normal_f64(key, 99, 5, i), off = fabs((double)z - wide);
        assert_true(off < 1e-6 * (1 + fabs(wide)));
        sum += (double)u;
        squares += (double)u * (double)u;
        normal += (double)z;
        normal2 += (double)z * (double)z;
        apart += (double)u * (double)rt_uniform_f32(key, 99, 6, i);
    }
    assert_true(fabs(sum / N - 0.5) < 3e-3 && fabs(squares / N - 1.0 / 3) < 3e-3);
    assert_true(fabs(normal / N) < 1e-2 && fabs(normal2 / N - 1) < 2e-2);
    assert_true(fabs(apart / N - 0.25) < 3e-3);
    assert_true(rt_stream(1, 0) != rt_stream(1, 1) && rt_stream(1, 0) != rt_stream(2, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sweep_exp),      cmocka_unit_test(sweep_log),
        cmocka_unit_test(sweep_tanh),     cmocka_unit_test(sweep_erf),
        cmocka_unit_test(sweep_sigmoid),  cmocka_unit_test(sweep_sin),
        cmocka_unit_test(sweep_cos),      cmocka_unit_test(sweep_sqrt),
        cmocka_unit_test(sweep_rsqrt),    cmocka_unit_test(sweep_floor),
        cmocka_unit_test(sweep_abs),      cmocka_unit_test(range_of_everyday),
        cmocka_unit_test(power),          cmocka_unit_test(smaller_and_larger),
        cmocka_unit_test(floor_division), cmocka_unit_test(philox_known_answers),
        cmocka_unit_test(draws),
    };
    return cmocka_run_group_tests_name("num", tests, NULL, NULL);
}
