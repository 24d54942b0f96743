/* test_products.c -- products of 16-bit operands against double, both ways of computing them. */
#include "cm.h"
#include "run.h"

static uint32_t state = 1;
static uint32_t draw(uint32_t n)
{
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % n;
}

typedef struct {
    const char *name;
    double unit; /* half a step, relative */
    float (*of)(uint16_t);
    uint16_t (*to)(float);
    void (*half)(uint16_t *, const uint16_t *, const uint16_t *, RtMatmul);
    void (*wide)(float *, const uint16_t *, const uint16_t *, RtMatmul);
} Type;

static float of_bf16(uint16_t h) { return rt_of_bf16(h); }
static uint16_t to_bf16(float x) { return rt_to_bf16(x); }
static float of_f16(uint16_t h) { return rt_of_f16(h); }
static uint16_t to_f16(float x) { return rt_to_f16(x); }

static const Type types[] = {
    { "bf16", 0x1p-8, of_bf16, to_bf16, rt_matmul_bf16_bf16, rt_matmul_bf16_f32 },
    { "f16", 0x1p-11, of_f16, to_f16, rt_matmul_f16_f16, rt_matmul_f16_f32 },
};

static uint16_t *halves(const Type *type, size_t n)
{
    uint16_t *x = rt_alloc(n * sizeof *x + 2, "x");
    for (size_t i = 0; i < n; i++)
        x[i] = type->to(((float)draw(4001) - 2000) / 1024);
    return x;
}

typedef struct {
    double sum, size; /* of the magnitudes of what is added: what errors are relative to */
} Wanted;

static Wanted reference(const Type *type, const RtMatmul *p, const uint16_t *a, const uint16_t *b,
                        ptrdiff_t i, ptrdiff_t j)
{
    Wanted w = { 0, 0 };
    for (ptrdiff_t k = 0; k < p->k; k++) {
        const double term = (double)type->of(a[p->ta ? k * p->lda + i : i * p->lda + k])
                            * (double)type->of(b[p->tb ? j * p->ldb + k : k * p->ldb + j]);
        w.sum += term;
        w.size += fabs(term);
    }
    return w;
}

/* add, bias: of the fp32 result; the 16-bit one is computed without add */
static void check(const Type *type, RtMatmul p, bool with_bias)
{
    const ptrdiff_t n0 = p.batch[0] ? p.batch[0] : 1, n1 = p.batch[1] ? p.batch[1] : 1;
    const size_t size_a = (size_t)((n0 - 1) * p.step_a[0] + (n1 - 1) * p.step_a[1]
                                   + p.lda * (p.ta ? p.k : p.m));
    const size_t size_b = (size_t)((n0 - 1) * p.step_b[0] + (n1 - 1) * p.step_b[1]
                                   + p.ldb * (p.tb ? p.n : p.k));
    const size_t size_c = (size_t)((n0 - 1) * p.step_c[0] + (n1 - 1) * p.step_c[1] + p.ldc * p.m);
    uint16_t *a = halves(type, size_a), *b = halves(type, size_b);
    uint16_t *half = rt_alloc(size_c * sizeof *half + 2, "half");
    float *wide = rt_alloc(size_c * sizeof *wide + 4, "wide");
    float *bias = rt_alloc((size_t)p.n * sizeof *bias + 4, "bias");
    for (size_t i = 0; i < size_c; i++) {
        wide[i] = p.add ? 3 : NAN;
        half[i] = 0x7fff; /* NaN */
    }
    for (ptrdiff_t i = 0; i < p.n; i++)
        bias[i] = (float)draw(1001) / 500 - 1;
    p.bias = with_bias ? bias : NULL;
    type->wide(wide, a, b, p);
    RtMatmul q = p;
    q.add = false;
    type->half(half, a, b, q);
    for (ptrdiff_t problem = 0; problem < n0 * n1; problem++)
        for (ptrdiff_t i = 0; i < p.m; i++)
            for (ptrdiff_t j = 0; j < p.n; j++) {
                const ptrdiff_t i0 = problem / n1, i1 = problem % n1;
                const ptrdiff_t at = i0 * p.step_c[0] + i1 * p.step_c[1] + i * p.ldc + j;
                Wanted w = reference(type, &p, a + i0 * p.step_a[0] + i1 * p.step_a[1],
                                     b + i0 * p.step_b[0] + i1 * p.step_b[1], i, j);
                w.sum += with_bias ? (double)bias[j] : 0;
                const double slack = (w.size + 4) * (double)(p.k + 4) * 0x1p-24;
                const double is = (double)wide[at], is_half = (double)type->of(half[at]);
                if (!(fabs(is - w.sum - (p.add ? 3 : 0)) <= slack)
                    || !(fabs(is_half - w.sum) <= slack + fabs(w.sum) * type->unit))
                    fail_msg("%s m %td n %td k %td ta %d tb %d add %d bias %d at %td,%td: %g %g, "
                             "wanted %g",
                             type->name, p.m, p.n, p.k, p.ta, p.tb, p.add, with_bias, i, j, is,
                             is_half, w.sum);
            }
    for (ptrdiff_t i = 0; i < p.m && n0 * n1 == 1; i++) /* what lies between rows is not touched */
        for (ptrdiff_t j = p.n; j < p.ldc; j++)
            assert_true((p.add ? wide[i * p.ldc + j] == 3 : isnan(wide[i * p.ldc + j]))
                        && half[i * p.ldc + j] == 0x7fff);
    void *all[] = { a, b, half, wide, bias };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        rt_free(all[i]);
}

static RtMatmul shape(ptrdiff_t m, ptrdiff_t n, ptrdiff_t k, bool loose)
{
    RtMatmul p = { .m = m, .n = n, .k = k, .ta = draw(2), .tb = draw(2), .add = draw(2) };
    p.lda = (p.ta ? m : k) + (loose ? (ptrdiff_t)draw(5) : 0);
    p.ldb = (p.tb ? k : n) + (loose ? (ptrdiff_t)draw(5) : 0);
    p.ldc = n + (loose ? (ptrdiff_t)draw(5) : 0);
    p.lda += p.lda == 0;
    p.ldb += p.ldb == 0;
    return p;
}

static void small_ones(void **unused)
{
    RT_UNUSED(unused);
    for (int i = 0; i < 1000; i++) {
        const RtMatmul p = shape(1 + draw(40), 1 + draw(70), draw(40), draw(2));
        check(&types[i % 2], p, !p.add && draw(2));
    }
}

static void large_ones(void **unused)
{
    RT_UNUSED(unused);
    for (int i = 0; i < 12; i++) {
        const RtMatmul p = shape(1 + draw(330), 1 + draw(330), 1 + draw(900), draw(2));
        check(&types[i % 2], p, !p.add && draw(2));
    }
}

static void long_and_thin_ones(void **unused)
{
    RT_UNUSED(unused);
    static const ptrdiff_t sizes[][3] = { { 2000, 3, 50 },  { 3, 2000, 50 },  { 5, 5, 10000 },
                                          { 1, 500, 700 },  { 500, 1, 700 },  { 1, 1, 4000 },
                                          { 700, 50, 385 }, { 50, 700, 769 }, { 280, 610, 550 } };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int turn = 0; turn < 4; turn++) {
            RtMatmul p = shape(sizes[i][0], sizes[i][1], sizes[i][2], true);
            p.ta = turn & 1;
            p.tb = turn & 2;
            p.lda = (p.ta ? p.m : p.k) + 1;
            p.ldb = (p.tb ? p.k : p.n) + 1;
            check(&types[(i + (size_t)turn) % 2], p, !p.add);
        }
}

static void batches(void **unused)
{
    RT_UNUSED(unused);
    for (int i = 0; i < 100; i++) {
        RtMatmul p = shape(1 + draw(20), 1 + draw(20), 1 + draw(20), false);
        if (i % 25 == 0)
            p = shape(90, 80, 70, false);
        p.batch[0] = 1 + draw(4);
        p.batch[1] = 1 + draw(4);
        p.step_a[1] = p.m * p.k;
        p.step_a[0] = draw(2) ? p.batch[1] * p.m * p.k : 0; /* 0: shared by the outer index */
        p.step_b[1] = draw(2) ? p.k * p.n : 0;
        p.step_b[0] = p.batch[1] * p.k * p.n;
        p.step_c[1] = p.m * p.n;
        p.step_c[0] = p.batch[1] * p.m * p.n;
        check(&types[i % 2], p, false);
    }
}

static void defaults(void **unused)
{
    RT_UNUSED(unused);
    rt_bf16 a[6], b[6], c[4];
    float wide[4] = { 9, 9, 9, 9 };
    static const float from_a[6] = { 1, 2, 3, 4, 5, 6 }, from_b[6] = { 1, 0, 0, 1, 1, 1 };
    static const float want[4] = { 4, 5, 10, 11 };
    for (int i = 0; i < 6; i++) {
        a[i] = rt_to_bf16(from_a[i]);
        b[i] = rt_to_bf16(from_b[i]);
    }
    rt_matmul_bf16_f32(wide, a, b, (RtMatmul){ .m = 2, .n = 2, .k = 3 });
    rt_matmul_bf16_bf16(c, a, b, (RtMatmul){ .m = 2, .n = 2, .k = 3 });
    for (int i = 0; i < 4; i++)
        assert_true(wide[i] == want[i] && rt_of_bf16(c[i]) == want[i]);
    rt_matmul_bf16_f32(wide, a, b, (RtMatmul){ .m = 2, .n = 2, .k = 0, .add = true });
    assert_memory_equal(wide, want, sizeof want);
}

/* What is not finite stays so, what is too large becomes infinite. */
static void not_finite(void **unused)
{
    RT_UNUSED(unused);
    enum { N = 96 };
    static uint16_t a[N * N], b[N * N], c[N * N];
    for (int i = 0; i < 2; i++) {
        for (int j = 0; j < N * N; j++)
            a[j] = b[j] = types[i].to(j < N ? 300.0f : 1.0f);
        a[N] = types[i].to(INFINITY);
        a[2 * N] = types[i].to(NAN);
        types[i].half(c, a, b, (RtMatmul){ .m = N, .n = N, .k = N });
        assert_true(i == 0 || isinf(types[i].of(c[0]))); /* 300 300 + 300 95 is no fp16 */
        assert_true(isinf(types[i].of(c[N])) && isnan(types[i].of(c[2 * N])));
    }
}

/* The same bits again, and in every team: a resumed run must not differ. */
static void repeats_exactly(void **unused)
{
    RT_UNUSED(unused);
    enum { M = 130, N = 210, K = 700 };
    static uint16_t c[M * N], again[M * N];
    uint16_t *a = halves(types, M * K), *b = halves(types, K * N);
    const RtMatmul p = { .m = M, .n = N, .k = K };
    rt_matmul_bf16_bf16(c, a, b, p);
    for (int i = 0; i < 5; i++) {
        rt_matmul_bf16_bf16(again, a, b, p);
        assert_memory_equal(c, again, sizeof c);
    }
    rt_free(a);
    rt_free(b);
}

static void names(void **unused)
{
    RT_UNUSED(unused);
    assert_int_equal(rt_products_by_name("native"), RT_PRODUCTS_NATIVE);
    assert_int_equal(rt_products_by_name("unpack"), RT_PRODUCTS_UNPACK);
    assert_int_equal(rt_products_by_name("fast"), RT_PRODUCTS_UNSET);
    assert_int_equal(rt_products_by_name(NULL), RT_PRODUCTS_UNSET);
    assert_string_equal(rt_products_name(RT_PRODUCTS_UNPACK), "unpack");
}

/* Last: it changes how the process computes products. */
static void choice(void **unused)
{
    RT_UNUSED(unused);
    assert_int_equal(unsetenv("RT_MATMUL_BF16"), 0);
    const RtProducts measured = rt_products_choose(RT_PRODUCTS_UNSET);
    assert_true(measured != RT_PRODUCTS_UNSET);
    assert_int_equal(rt_products_are_native(), measured == RT_PRODUCTS_NATIVE);
    assert_int_equal(rt_products_choose(RT_PRODUCTS_UNPACK), RT_PRODUCTS_UNPACK);
    assert_false(rt_products_are_native());
    const RtProducts stored = rt_products_choose(RT_PRODUCTS_NATIVE);
#ifdef HAVE_ONEDNN
    assert_true(stored == RT_PRODUCTS_NATIVE || measured == RT_PRODUCTS_UNPACK);
#else
    assert_true(stored == RT_PRODUCTS_UNPACK && measured == RT_PRODUCTS_UNPACK);
#endif
    assert_int_equal(setenv("RT_MATMUL_BF16", "unpack", 1), 0);
    assert_int_equal(rt_products_choose(RT_PRODUCTS_NATIVE), RT_PRODUCTS_UNPACK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_ones),
        cmocka_unit_test(large_ones),
        cmocka_unit_test(long_and_thin_ones),
        cmocka_unit_test(batches),
        cmocka_unit_test(defaults),
        cmocka_unit_test(not_finite),
        cmocka_unit_test(repeats_exactly),
        cmocka_unit_test(names),
        cmocka_unit_test(choice),
    };
    return cmocka_run_group_tests_name("products", tests, NULL, NULL);
}
