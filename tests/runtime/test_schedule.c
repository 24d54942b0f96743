/* test_schedule.c -- learning rates against PyTorch's schedulers, and against the formulas of
 * schedule.c where PyTorch has none. */
#include "cm.h"
#include "run.h"
#include "schedules.h"

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

static void as_pytorch(void **unused)
{
    RT_UNUSED(unused);
    int points = 0;
    for (size_t i = 0; i < sizeof schedule_cases / sizeof *schedule_cases; i++) {
        const ScheduleCase *c = &schedule_cases[i];
        for (int k = 0; c->at[k].step >= 0; k++, points++) {
            const double lr = rt_schedule_lr(&c->train, c->at[k].step);
            if (!(fabs(lr - c->at[k].lr) <= 1e-12 * c->train.lr))
                fail_msg("%s, step %d: %.17g, wanted %.17g", c->name, c->at[k].step, lr,
                         c->at[k].lr);
        }
    }
    assert_true(points > 150);
}

static void stable_then_decay(void **unused)
{
    RT_UNUSED(unused);
    RtTrain t = { .schedule = RT_WSD,
                  .lr = 3,
                  .lr_end = 1,
                  .warmup = 9,
                  .steps = 100,
                  .decay = 16 };
    near(rt_schedule_lr(&t, 0), 0.3);
    near(rt_schedule_lr(&t, 8), 2.7);
    near(rt_schedule_lr(&t, 9), 3);
    near(rt_schedule_lr(&t, 84), 3);
    near(rt_schedule_lr(&t, 85), 3 - 2.0 / 16);
    near(rt_schedule_lr(&t, 99), 1 + 2.0 / 16);
    near(rt_schedule_lr(&t, 100), 1);
    near(rt_schedule_lr(&t, 500), 1);
    t.decay_sqrt = true;
    near(rt_schedule_lr(&t, 84), 3);
    near(rt_schedule_lr(&t, 88), 2);
    near(rt_schedule_lr(&t, 93), 1 + 2 * (1 - 0.75));
    t.steps = 20; /* no room for all of it: it begins behind the warm-up */
    near(rt_schedule_lr(&t, 8), 2.7);
    near(rt_schedule_lr(&t, 9), 3);
    near(rt_schedule_lr(&t, 20), 1);
}

static void inverse_square_root(void **unused)
{
    RT_UNUSED(unused);
    RtTrain t = { .schedule = RT_INVERSE_SQRT, .lr = 2, .warmup = 3, .steps = 100 };
    near(rt_schedule_lr(&t, 2), 1.5);
    near(rt_schedule_lr(&t, 3), 2);
    near(rt_schedule_lr(&t, 15), 1);
    near(rt_schedule_lr(&t, 63), 0.5);
    t.warmup = 0;
    near(rt_schedule_lr(&t, 0), 2);
    near(rt_schedule_lr(&t, 99), 0.2);
}

static double halves(double step, double steps) { return steps * pow(0.5, step); }

static void formula(void **unused)
{
    RT_UNUSED(unused);
    const RtTrain t = { .schedule = RT_FORMULA, .rate = halves, .steps = 8, .warmup = 5 };
    near(rt_schedule_lr(&t, 0), 8);
    near(rt_schedule_lr(&t, 4), 0.5);
}

/* A run of one update, and a top at either end of the cycle. */
static void ends_of_the_cycle(void **unused)
{
    RT_UNUSED(unused);
    RtTrain t = { .schedule = RT_ONE_CYCLE, .lr = 1, .div_factor = 2, .final_div_factor = 4 };
    t.steps = 10;
    near(rt_schedule_lr(&t, 9), 0.125);
    near(rt_schedule_lr(&t, 50), 0.125);
    t.pct_start = 1;
    near(rt_schedule_lr(&t, 0), 0.5);
    near(rt_schedule_lr(&t, 9), 1);
    t.steps = 1;
    assert_true(isfinite(rt_schedule_lr(&t, 0)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(warm_up),
        cmocka_unit_test(cosine),
        cmocka_unit_test(linear_over_its_own_length),
        cmocka_unit_test(warm_up_longer_than_the_run),
        cmocka_unit_test(as_pytorch),
        cmocka_unit_test(stable_then_decay),
        cmocka_unit_test(inverse_square_root),
        cmocka_unit_test(formula),
        cmocka_unit_test(ends_of_the_cycle),
    };
    return cmocka_run_group_tests_name("schedule", tests, NULL, NULL);
}
