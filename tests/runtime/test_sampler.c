/* test_sampler.c -- the order of training is a bijection, and depends on every bit of the key. */
#include "cm.h"
#include "run.h"

static void every_sample_once(void **unused)
{
    RT_UNUSED(unused);
    static bool seen[5000];
    for (uint64_t n = 1; n <= 5000; n = n < 70 ? n + 1 : n * 3 / 2) {
        memset(seen, 0, sizeof seen);
        for (uint64_t i = 0; i < n; i++) {
            const uint64_t j = rt_permute(i, n, 12345);
            assert_true(j < n && !seen[j]);
            seen[j] = true;
        }
    }
}

static void large_sets(void **unused)
{
    RT_UNUSED(unused);
    const uint64_t sizes[] = { (uint64_t)1 << 32, ((uint64_t)1 << 40) + 7, (uint64_t)1 << 62 };
    for (size_t s = 0; s < 3; s++)
        for (uint64_t i = 0; i < 1000; i++) {
            const uint64_t a = rt_permute(i, sizes[s], 3), b = rt_permute(i + 1, sizes[s], 3);
            assert_true(a < sizes[s] && b < sizes[s] && a != b);
        }
}

static int equal_places(uint64_t n, uint64_t key_a, uint64_t key_b)
{
    int equal = 0;
    for (uint64_t i = 0; i < n; i++)
        equal += rt_permute(i, n, key_a) == rt_permute(i, n, key_b);
    return equal;
}

static void keys_give_other_orders(void **unused)
{
    RT_UNUSED(unused);
    for (int bit = 0; bit < 64; bit++)
        assert_true(equal_places(1000, 77, 77 ^ (uint64_t)1 << bit) < 12);
    assert_true(equal_places(1000, 77, 77) == 1000);
}

/* Neighbours do not stay neighbours, and the place says nothing of the sample. */
static void looks_random(void **unused)
{
    RT_UNUSED(unused);
    enum { N = 20000 };
    double product = 0, steps = 0;
    for (uint64_t i = 0; i < N; i++) {
        const double x = (double)i / N - 0.5, y = (double)rt_permute(i, N, 9) / N - 0.5;
        product += 12 * x * y / N;
        steps += rt_permute(i, N, 9) + 1 == rt_permute((i + 1) % N, N, 9);
    }
    assert_true(fabs(product) < 0.03);
    assert_true(steps < 12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_sample_once),
        cmocka_unit_test(large_sets),
        cmocka_unit_test(keys_give_other_orders),
        cmocka_unit_test(looks_random),
    };
    return cmocka_run_group_tests_name("sampler", tests, NULL, NULL);
}
