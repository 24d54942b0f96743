/* test_half.c -- all 16-bit values there and back, and floats against rounding by definition. */
#include <float.h>

#include "cm.h"
#include "run.h"

typedef struct {
    const char *name;
    int fraction, least;   /* bits of the fraction; exponent of the smallest normal number */
    double most;           /* the largest finite value */
    uint32_t infinity;     /* its bits */
    float (*of)(uint16_t); /* the functions under test */
    uint16_t (*to)(float);
    float (*round)(float);
} Format;

static float of_bf16(uint16_t h) { return rt_of_bf16(h); }
static uint16_t to_bf16(float x) { return rt_to_bf16(x); }
static float round_bf16(float x) { return rt_round_bf16(x); }
static float of_f16(uint16_t h) { return rt_of_f16(h); }
static uint16_t to_f16(float x) { return rt_to_f16(x); }
static float round_f16(float x) { return rt_round_f16(x); }

static const Format formats[] = {
    { "bf16", 7, -126, 0x1.fep127, 0x7f80, of_bf16, to_bf16, round_bf16 },
    { "f16", 10, -14, 65504, 0x7c00, of_f16, to_f16, round_f16 },
};

/* The value of 16 bits by the definition: (1 + fraction) 2^exponent. */
static double value(const Format *f, uint32_t h)
{
    const int bias = 1 - f->least;
    const uint32_t fraction = h & ((1u << f->fraction) - 1), all = (h & 0x7fff) >> f->fraction;
    const double sign = h & 0x8000 ? -1 : 1;
    if (all == f->infinity >> f->fraction)
        return fraction ? (double)NAN : sign * (double)INFINITY;
    return all == 0 ? sign * ldexp(fraction, f->least - f->fraction)
                    : sign * ldexp((1u << f->fraction) + fraction, (int)all - bias - f->fraction);
}

/* The nearest value of the format, ties to even, by exact arithmetic in double. */
static double nearest(const Format *f, double x)
{
    int exponent;
    if (x == 0 || !isfinite(x))
        return x;
    (void)frexp(x, &exponent); /* x = m 2^exponent, 0.5 <= m < 1 */
    exponent = exponent - 1 < f->least ? f->least : exponent - 1;
    const double step = ldexp(1, exponent - f->fraction), near = nearbyint(x / step) * step;
    return fabs(near) > f->most ? copysign((double)INFINITY, x) : near;
}

static void there_and_back(void **unused)
{
    RT_UNUSED(unused);
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        for (uint32_t h = 0; h < 65536; h++) {
            const Format *f = &formats[i];
            const double want = value(f, h);
            const float is = f->of((uint16_t)h);
            const uint16_t back = f->to(is);
            if (isnan(want) ? !isnan(is)
                            : (double)is != want || (signbit(is) != 0) != (h >> 15 != 0))
                fail_msg("%s %04x is %g, wanted %g", f->name, h, (double)is, want);
            const uint16_t quiet = (uint16_t)(h | (isnan(want) ? 1u << (f->fraction - 1) : 0));
            if (back != quiet)
                fail_msg("%s %04x came back as %04x", f->name, h, back);
        }
}

static void check(const Format *f, float x)
{
    const uint16_t h = f->to(x);
    const double is = value(f, h), want = nearest(f, (double)x);
    const bool quiet = (h >> (f->fraction - 1) & 1u) != 0;
    if (isnan(want) ? !isnan(is) || !quiet : is != want)
        fail_msg("%s of %a is %a, wanted %a", f->name, (double)x, is, want);
    if (!isnan(x) && (signbit(x) != 0) != (h >> 15 != 0))
        fail_msg("%s of %a lost its sign", f->name, (double)x);
    const float rounded = f->round(x);
    assert_true(isnan(want) ? isnan(rounded) : (double)rounded == want);
}

/* Every 16-bit value, the middle to the next one, and the floats beside both. */
static void floats_near_16_bit_values(void **unused)
{
    RT_UNUSED(unused);
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        for (uint32_t h = 0; h < 65536; h++) {
            const Format *f = &formats[i];
            const float at = f->of((uint16_t)h);
            const float next = f->of((uint16_t)(h + 1));
            const float middle = (float)(((double)at + (double)next) / 2);
            const float around[] = { at, middle };
            for (int k = 0; k < 2; k++) {
                check(f, around[k]);
                check(f, nextafterf(around[k], INFINITY));
                check(f, nextafterf(around[k], -INFINITY));
            }
        }
}

static void any_floats(void **unused)
{
    RT_UNUSED(unused);
    static const float special[] = { 0,         -0.0f,          INFINITY, -INFINITY, NAN,
                                     FLT_MAX,   FLT_MIN,        65504,    65519,     65520,
                                     65536,     0x1p-24f,       0x1p-25f, 0x1p-26f,  0x1.8p-25f,
                                     0x1p-149f, 0x1.fffffep-15f };
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        for (size_t k = 0; k < sizeof special / sizeof *special; k++) {
            check(&formats[i], special[k]);
            check(&formats[i], -special[k]);
        }
        for (uint32_t k = 0, bits = 1; k < 2000000; k++) {
            bits = bits * 1664525u + 1013904223u;
            check(&formats[i], rt_from_f32(bits ^ bits >> 15));
        }
        for (uint32_t nan = 0x7f800001; nan < 0x7fffff00; nan += 4099)
            check(&formats[i], rt_from_f32(nan));
    }
}

/* In a loop that is vectorised: the same bits. */
static void loops(void **unused)
{
    RT_UNUSED(unused);
    enum { N = 1 << 16 };
    static float x[N], back[2][N];
    static uint16_t half[2][N];
    for (uint32_t i = 0, bits = 7; i < N; i++) {
        bits = bits * 1664525u + 1013904223u;
        x[i] = i % 2 ? rt_of_f16((rt_f16)(bits >> 8)) * 1.001f : rt_from_f32(bits);
    }
#pragma omp simd
    for (int i = 0; i < N; i++) {
        half[0][i] = rt_to_bf16(x[i]);
        half[1][i] = rt_to_f16(x[i]);
    }
#pragma omp simd
    for (int i = 0; i < N; i++) {
        back[0][i] = rt_of_bf16(half[0][i]);
        back[1][i] = rt_of_f16(half[1][i]);
    }
    for (int i = 0; i < N; i++)
        for (int k = 0; k < 2; k++) {
            volatile float one = x[i];
            assert_int_equal(half[k][i], formats[k].to(one));
            volatile uint16_t h = half[k][i];
            assert_int_equal(rt_bits_f32(back[k][i]), rt_bits_f32(formats[k].of(h)));
        }
}

/* Of all 65536 draws just so many go up that their mean is x, to the bit. */
static void random_mean(float x)
{
    const uint32_t u = rt_bits_f32(x), low = u & 0xffff;
    const uint16_t down = (uint16_t)(u >> 16);
    uint32_t ups = 0;
    double sum = 0;
    for (uint32_t r = 0; r < 65536; r++) {
        const uint16_t h = rt_to_bf16_random(x, r | r << 16);
        if (h != down && h != down + 1)
            fail_msg("%a with %04x is %04x: no neighbour", (double)x, r, h);
        ups += h != down;
        sum += (double)rt_of_bf16(h);
    }
    if (ups != low)
        fail_msg("%a goes up %u times in 65536, wanted %u", (double)x, ups, low);
    if (sum / 65536 != (double)x)
        fail_msg("the mean of %a is %a", (double)x, sum / 65536);
}

static void random_is_right_on_average(void **unused)
{
    RT_UNUSED(unused);
    static const float points[] = {
        1,
        1.001f,
        -1.001f,
        3.14159274f,
        0x1.01p0f,
        0x1.00fffep0f,
        0x1.fffffep0f,
        -1e-3f,
        0x1p-126f,
        0x1.8p-127f,
        0x1p-149f,
        -0x1p-140f,
        1e30f,
        0,
        0x1.fdfffep127f,
    };
    uint32_t state = 7;
    for (size_t i = 0; i < sizeof points / sizeof *points; i++)
        random_mean(points[i]);
    for (int i = 0; i < 100; i++) {
        state = state * 1664525u + 1013904223u;
        const float x = rt_from_f32(state);
        if (fabs((double)x) < 0x1.fep127)
            random_mean(x);
    }
}

/* What bf16 has, infinities and NaN stay; no finite number becomes infinite. */
static void random_at_the_edges(void **unused)
{
    RT_UNUSED(unused);
    static const uint32_t draws[] = { 0, 1, 0x7fff, 0x8000, 0xffff, 0xffffffff };
    for (size_t d = 0; d < sizeof draws / sizeof *draws; d++) {
        for (uint32_t h = 0; h < 65536; h++) {
            const uint16_t is = rt_to_bf16_random(rt_of_bf16((uint16_t)h), draws[d]);
            const bool nan = (h & 0x7fff) > 0x7f80;
            assert_int_equal(is, nan ? h | 0x40 : h);
        }
        for (uint32_t low = 1; low < 65536; low += 257) {
            assert_int_equal(rt_to_bf16_random(rt_from_f32(0x7f7f0000 | low), draws[d]), 0x7f7f);
            assert_int_equal(rt_to_bf16_random(rt_from_f32(0xff7f0000 | low), draws[d]), 0xff7f);
            assert_true(
                isnan(rt_of_bf16(rt_to_bf16_random(rt_from_f32(0x7f800000 | low), draws[d]))));
        }
        assert_int_equal(rt_to_bf16_random(-0.0f, draws[d]), 0x8000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_and_back),
        cmocka_unit_test(floats_near_16_bit_values),
        cmocka_unit_test(any_floats),
        cmocka_unit_test(loops),
        cmocka_unit_test(random_is_right_on_average),
        cmocka_unit_test(random_at_the_edges),
    };
    return cmocka_run_group_tests_name("half", tests, NULL, NULL);
}
