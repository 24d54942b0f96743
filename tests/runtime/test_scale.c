/* test_scale.c -- the loss scale against GradScaler's rules, and counters of skipped updates. */
#include "cm.h"
#include "run.h"

static RtOptions opt;
static RtState state;

static void start(double scale, int64_t interval, const char *nonfinite, int64_t max_skips)
{
    opt = (RtOptions){ .train.batch = 4,
                       .scale_interval = interval,
                       .scale_growth = 2,
                       .scale_backoff = 0.5,
                       .nonfinite = nonfinite,
                       .max_skips = max_skips };
    state = (RtState){ .opt = &opt, .scale = scale };
}

static void follows_grad_scaler(void **unused)
{
    RT_UNUSED(unused);
    double scale = 65536;
    int64_t tracker = 0;
    start(scale, 5, "skip", 20);
    for (uint32_t i = 0; i < 3000; i++) {
        const bool finite = i * 2654435761u >> 29 != 0;
        rt_scale_advance(&state, finite);
        if (!finite) {
            scale = scale / 2 < 1 ? 1 : scale / 2;
            tracker = 0;
        } else if (++tracker == 5) {
            scale *= 2;
            tracker = 0;
        }
        assert_true(state.scale == scale && state.tracker == tracker);
    }
    assert_true(scale != 65536);
}

static void grows_while_fp32_holds_it(void **unused)
{
    RT_UNUSED(unused);
    start(0x1p126, 2, "skip", 20);
    for (int i = 0; i < 12; i++)
        rt_scale_advance(&state, true);
    assert_true(state.scale == 0x1p127 && state.tracker == 0);
    start(0, 1, "skip", 20); /* none */
    for (int i = 0; i < 4; i++)
        rt_scale_advance(&state, i % 2 == 0);
    assert_true(state.scale == 0 && state.tracker == 0);
}

/* How many updates are skipped until the run stops. */
static int skips(void)
{
    int n = 0;
    for (; n < 100 && rt_scale_skips(&state); n++)
        rt_scale_advance(&state, false);
    return n;
}

static void stops_where_no_scale_helps(void **unused)
{
    RT_UNUSED(unused);
    start(65536, 2000, "skip", 20); /* 16 of them halve the scale; the 20th at scale 1 stops */
    assert_int_equal(skips(), 16 + 19);
    assert_true(state.scale == 1 && state.stuck == 19);
    rt_scale_advance(&state, true);
    assert_int_equal(skips(), 19);
    start(3, 2000, "skip", 20);
    assert_int_equal(skips(), 2 + 19);
    start(0, 2000, "skip", 5);
    assert_int_equal(skips(), 4);
    start(65536, 2000, "stop", 20);
    assert_int_equal(skips(), 0);
}

static void counters(void **unused)
{
    RT_UNUSED(unused);
    RtRun run = { .state = &state };
    RtStep s = { .finite = false };
    start(4, 2000, "skip", 3);
    for (int i = 0; i < 6; i++) {
        s.finite = i % 2 == 0;
        rt_end_step(&run, &s);
    }
    assert_true(state.step == 6 && state.applied == 3 && state.skipped == 3 && state.samples == 24);
    assert_true(state.scale == 1 && state.stuck == 1);
    s.finite = false;
    rt_end_step(&run, &s);
    assert_true(state.step == 7 && state.stuck == 2);
    rt_end_step(&run, &s); /* the third in a row at scale 1: all stays, the caller stops */
    assert_true(state.step == 7 && state.stuck == 2 && state.skipped == 4 && state.samples == 28);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(follows_grad_scaler),
        cmocka_unit_test(grows_while_fp32_holds_it),
        cmocka_unit_test(stops_where_no_scale_helps),
        cmocka_unit_test(counters),
    };
    return cmocka_run_group_tests_name("scale", tests, NULL, NULL);
}
