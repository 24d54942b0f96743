/* test_schedule.c -- learning rates of nanoGPT's convention, counted in applied updates. */
#include "cm.h"
#include "run.h"

static void near(double a, double b) { assert_true(fabs(a - b) < 1e-12 * (1 + fabs(b))); }

static void warm_up(void **unused)
{
    RT_UNUSED(unused);
    const RtTrain t = { .schedule = RT_CONSTANT, .lr = 1, .warmup = 4, .steps = 100 };
    near(rt_schedule_lr(&t, 0), 0.2);
    near(rt_schedule_lr(&t, 3), 0.8);
    near(rt_schedule_lr(&t, 4), 1);
    near(rt_schedule_lr(&t, 1000), 1);
}

static void cosine(void **unused)
{
    RT_UNUSED(unused);
    const RtTrain t = { .schedule = RT_COSINE,
                        .lr = 1e-3,
                        .lr_end = 1e-4,
                        .warmup = 100,
                        .steps = 2000 };
    near(rt_schedule_lr(&t, 99), 1e-3 * 100 / 101);
    near(rt_schedule_lr(&t, 100), 1e-3);
    near(rt_schedule_lr(&t, 1050), 5.5e-4);
    near(rt_schedule_lr(&t, 2000), 1e-4);
    near(rt_schedule_lr(&t, 2001), 1e-4);
}

static void linear_over_its_own_length(void **unused)
{
    RT_UNUSED(unused);
    const RtTrain t = { .schedule = RT_LINEAR,
                        .lr = 2,
                        .lr_end = 1,
                        .steps = 1000,
                        .decay_steps = 10 };
    near(rt_schedule_lr(&t, 0), 2);
    near(rt_schedule_lr(&t, 5), 1.5);
    near(rt_schedule_lr(&t, 10), 1);
    near(rt_schedule_lr(&t, 500), 1);
}

static void warm_up_longer_than_the_run(void **unused)
{
    RT_UNUSED(unused);
    const RtTrain t = { .schedule = RT_COSINE, .lr = 1, .lr_end = 0.1, .steps = 5, .warmup = 9 };
    near(rt_schedule_lr(&t, 4), 0.5);
    near(rt_schedule_lr(&t, 9), 0.1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(warm_up),
        cmocka_unit_test(cosine),
        cmocka_unit_test(linear_over_its_own_length),
        cmocka_unit_test(warm_up_longer_than_the_run),
    };
    return cmocka_run_group_tests_name("schedule", tests, NULL, NULL);
}
