/* test_matmul.c -- every orientation, edge, stride and batch against the obvious triple loop. */
#include "cm.h"
#include "run.h"

static uint32_t state = 1;
static uint32_t draw(uint32_t n)
{
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % n;
}
static double draw_real(void) { return ((double)draw(21) - 10) / 8; } /* sums are exact in float */

typedef struct {
    float *f;
    double *d;
    size_t n;
} Buffer;

static Buffer buffer(size_t n, bool nan)
{
    Buffer b = { rt_alloc(n * sizeof(float) + 4, "f"), rt_alloc(n * sizeof(double) + 8, "d"), n };
    for (size_t i = 0; i < n; i++) {
        b.d[i] = nan ? (double)NAN : draw_real();
        b.f[i] = (float)b.d[i];
    }
    return b;
}

static void buffer_free(Buffer b)
{
    rt_free(b.f);
    rt_free(b.d);
}

static double reference(const RtMatmul *p, const double *a, const double *b, ptrdiff_t i,
                        ptrdiff_t j)
{
    double sum = 0;
    for (ptrdiff_t k = 0; k < p->k; k++)
        sum += a[p->ta ? k * p->lda + i : i * p->lda + k]
               * b[p->tb ? j * p->ldb + k : k * p->ldb + j];
    return sum;
}

static void check(RtMatmul p, bool with_bias)
{
    const ptrdiff_t n0 = p.batch[0] ? p.batch[0] : 1, n1 = p.batch[1] ? p.batch[1] : 1;
    const size_t last = (size_t)((n0 - 1) * p.step_a[0] + (n1 - 1) * p.step_a[1]);
    Buffer a = buffer(last + (size_t)(p.lda * (p.ta ? p.k : p.m)), false);
    Buffer b = buffer((size_t)((n0 - 1) * p.step_b[0] + (n1 - 1) * p.step_b[1])
                          + (size_t)(p.ldb * (p.tb ? p.n : p.k)),
                      false);
    const size_t size_c = (size_t)((n0 - 1) * p.step_c[0] + (n1 - 1) * p.step_c[1] + p.ldc * p.m);
    Buffer c = buffer(size_c, !p.add), old = buffer(size_c, false),
           bias = buffer((size_t)p.n, false);
    memcpy(old.d, c.d, size_c * sizeof(double));
    p.bias = with_bias ? bias.f : NULL;
    rt_matmul_f32(c.f, a.f, b.f, p);
    p.bias = with_bias ? (void *)bias.d : NULL;
    rt_matmul_f64(c.d, a.d, b.d, p);
    for (ptrdiff_t q = 0; q < n0 * n1; q++)
        for (ptrdiff_t i = 0; i < p.m; i++)
            for (ptrdiff_t j = 0; j < p.n; j++) {
                const ptrdiff_t i0 = q / n1, i1 = q % n1;
                const ptrdiff_t at = i0 * p.step_c[0] + i1 * p.step_c[1] + i * p.ldc + j;
                const double want = (p.add       ? old.d[at]
                                     : with_bias ? bias.d[j]
                                                 : 0)
                                    + reference(&p, a.d + i0 * p.step_a[0] + i1 * p.step_a[1],
                                                b.d + i0 * p.step_b[0] + i1 * p.step_b[1], i, j);
                if (c.d[at] != want || (double)c.f[at] != want)
                    fail_msg(
                        "m %td n %td k %td ta %d tb %d add %d bias %d at %td,%td: %g %g, wanted %g",
                        p.m, p.n, p.k, p.ta, p.tb, p.add, with_bias, i, j, c.d[at], (double)c.f[at],
                        want);
            }
    for (ptrdiff_t i = 0; i < p.m && n0 * n1 == 1; i++) /* what lies between rows is not touched */
        for (ptrdiff_t j = p.n; j < p.ldc; j++)
            assert_true(p.add ? c.d[i * p.ldc + j] == old.d[i * p.ldc + j]
                              : isnan(c.d[i * p.ldc + j]));
    buffer_free(a);
    buffer_free(b);
    buffer_free(c);
    buffer_free(old);
    buffer_free(bias);
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
    for (int i = 0; i < 2000; i++) {
        const RtMatmul p = shape(1 + draw(40), 1 + draw(70), draw(40), draw(2));
        check(p, !p.add && draw(2));
    }
}

static void large_ones(void **unused)
{
    RT_UNUSED(unused);
    for (int i = 0; i < 30; i++) {
        const RtMatmul p = shape(1 + draw(300), 1 + draw(300), 1 + draw(900), draw(2));
        check(p, !p.add && draw(2));
    }
}

static void long_and_thin_ones(void **unused)
{
    RT_UNUSED(unused);
    static const ptrdiff_t sizes[][3] = { { 3000, 3, 50 },  { 3, 3000, 50 }, { 5, 5, 10000 },
                                          { 1, 500, 700 },  { 500, 1, 700 }, { 1, 1, 4000 },
                                          { 700, 50, 385 }, { 50, 700, 769 } };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int turn = 0; turn < 4; turn++) {
            RtMatmul p = shape(sizes[i][0], sizes[i][1], sizes[i][2], true);
            p.ta = turn & 1;
            p.tb = turn & 2;
            p.lda = (p.ta ? p.m : p.k) + 1;
            p.ldb = (p.tb ? p.k : p.n) + 1;
            check(p, !p.add);
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
        check(p, false);
    }
}

static void defaults(void **unused)
{
    RT_UNUSED(unused);
    const float a[6] = { 1, 2, 3, 4, 5, 6 }, b[6] = { 1, 0, 0, 1, 1, 1 };
    float c[4] = { 9, 9, 9, 9 };
    rt_matmul_f32(c, a, b, (RtMatmul){ .m = 2, .n = 2, .k = 3 });
    const float want[4] = { 4, 5, 10, 11 };
    assert_memory_equal(c, want, sizeof want);
    rt_matmul_f32(c, a, b, (RtMatmul){ .m = 0, .n = 2, .k = 3 });
    rt_matmul_f32(c, a, b, (RtMatmul){ .m = 2, .n = 2, .k = 0, .add = true });
    assert_memory_equal(c, want, sizeof want);
}

/* The same bits again, and in every team: a resumed run must not differ. */
static void repeats_exactly(void **unused)
{
    RT_UNUSED(unused);
    enum { M = 130, N = 210, K = 500 };
    static float a[M * K], b[K * N], c[M * N], again[M * N];
    for (int i = 0; i < M * K; i++)
        a[i] = (float)draw(1000003) * 1e-6f - 0.5f;
    for (int i = 0; i < K * N; i++)
        b[i] = (float)draw(1000003) * 1e-6f - 0.5f;
    const RtMatmul p = { .m = M, .n = N, .k = K };
    rt_matmul_f32(c, a, b, p);
    for (int i = 0; i < 5; i++) {
        rt_matmul_f32(again, a, b, p);
        assert_memory_equal(c, again, sizeof c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_ones),         cmocka_unit_test(large_ones),
        cmocka_unit_test(long_and_thin_ones), cmocka_unit_test(batches),
        cmocka_unit_test(defaults),           cmocka_unit_test(repeats_exactly),
    };
    return cmocka_run_group_tests_name("matmul", tests, NULL, NULL);
}
