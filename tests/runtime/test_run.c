/* test_run.c -- a run and the calls of its step: sizes, keys, rows, seeds, counters; the log. */
#include <fcntl.h>
#include <unistd.h>

#include "cm.h"
#include "run.h"

enum { N = 10, D = 3 };

static void input_shape(const ptrdiff_t *dims, int input, ptrdiff_t *shape)
{
    shape[0] = dims[0];
    if (input == 0)
        shape[1] = D;
}

static size_t arena_bytes(const ptrdiff_t *dims, RtEntry entry)
{
    return (size_t)dims[0] * (entry == RT_ENTRY_TRAIN ? 1000 : entry == RT_ENTRY_EVAL ? 200 : 50);
}

static void map_range(const ptrdiff_t *dims, int map, ptrdiff_t *lo, ptrdiff_t *hi)
{
    RT_UNUSED(dims);
    *lo = map == 0 ? 0 : D;
    *hi = map == 0 ? D : D + 1;
}

static void metric_values(const double *mean, double *value) { value[0] = 2 * mean[1]; }

static const RtDim dims[] = { { .name = "B", .batch = true } };
static const RtParam params[] = { { .path = "w", .rank = 1, .shape = { N }, .where = "m:1" } };
static const RtInput inputs[] = { { .name = "x", .type = RT_F32, .rank = 2 },
                                  { .name = "y", .type = RT_F32, .rank = 1 } };
static const RtSlot slots[] = { { .name = "loss", .weight = 2 },
                                { .name = "error", .weight = 0 },
                                { .name = "loss_b", .weight = 0.5 } };
static const RtMetric metrics[] = { { .name = "twice" } };
static const RtMap maps[] = { { .input = 0, .kind = RT_MAP_COLS },
                              { .input = 1, .kind = RT_MAP_COL } };
static const RtModel model = {
    .name = "m",
    .source = "m.model",
    .dims = dims,
    .n_dims = 1,
    .params = params,
    .n_params = 1,
    .n_elems = N,
    .inputs = inputs,
    .n_inputs = 2,
    .slots = slots,
    .n_slots = 3,
    .metrics = metrics,
    .n_metrics = 1,
    .train = { .reader = "csv",
               .path = "m.csv",
               .split = 0.8,
               .maps = maps,
               .n_maps = 2,
               .batch = 6,
               .rule = "adamw",
               .states = { "m", "v" },
               .n_states = 2,
               .hyper = { { "beta1", 0, 0, 1 }, { "beta2", 0, 0, 1 }, { "eps", 0, 0, 1 } },
               .n_hypers = 3,
               .steps = 10,
               .lr = 0.5,
               .seed = 9 },
    .input_shape = input_shape,
    .arena_bytes = arena_bytes,
    .map_range = map_range,
    .metric_values = metric_values,
};

static RtOptions opt;
static RtData *data;
static RtRun *run;

static int set_up(void **unused)
{
    RT_UNUSED(unused);
    FILE *f = fopen("m.csv", "w");
    for (int i = 0; i < 30; i++)
        fprintf(f, "%d,%d,%d,%d\n", i, 10 * i, 100 * i, -i);
    fclose(f);
    char *argv[] = { "m", "--accumulate", "3" };
    opt = rt_options_parse(&model, 3, argv);
    rt_options_settle(&model, &opt);
    data = rt_data_open(&model, &opt.train, opt.dims, NULL);
    run = rt_run_create(&model, &opt, data, RT_USE_TRAIN | RT_USE_EVAL);
    return 0;
}

static int tear_down(void **unused)
{
    RT_UNUSED(unused);
    rt_run_free(run);
    rt_data_close(data);
    rt_base_end();
    return 0;
}

static void memory_is_what_is_allocated(void **unused)
{
    RT_UNUSED(unused);
    const RtMemory m = rt_run_memory(&model, &opt, data, RT_USE_TRAIN | RT_USE_EVAL);
    assert_true(m.params == 40 && m.gradients == 40 && m.state == 80 && m.arena == 2000);
    assert_true(m.inputs == 6 * 3 * 4 + 6 * 4 && m.rooms == 0 && m.saving > 0);
    assert_true(m.needed == 40 + 40 + 80 + 2000 + 96 + m.tables + m.updates + m.saving);
    const double before = rt_memory_held();
    RtRun *other = rt_run_create(&model, &opt, data, RT_USE_TRAIN | RT_USE_EVAL);
    assert_true(m.held == before && rt_memory_held() - before == m.needed - m.saving);
    rt_run_free(other);
    assert_true(rt_memory_held() == before);
}

/* A compute copy: in the sum of memory, made beside the parameters, filled when they are loaded. */
static void copy_in_16_bits(void **unused)
{
    RT_UNUSED(unused);
    RtModel half = model;
    for (int k = 0; k < 2; k++) {
        half.compute = k ? RT_F16 : RT_BF16;
        RtMemory m = rt_run_memory(&half, &opt, NULL, RT_USE_TRAIN | RT_USE_EVAL);
        assert_true(m.copy == 20
                    && m.needed == 40 + 20 + 40 + 80 + 2000 + 96 + m.tables + m.updates + m.saving);
        m = rt_run_memory(&half, &opt, NULL, RT_USE_EVAL);
        assert_true(m.copy == 20 && m.gradients == 0);
        RtRun *trained = rt_run_create(&half, &opt, data, RT_USE_TRAIN);
        rt_params_init(&half, 5, trained->p);
        for (int i = 0; i < N; i++)
            ((float *)trained->p)[i] = 1 / (float)(i + 3);
        assert_int_equal(rt_run_save(trained, k ? "half" : "bf16"), 0);
        RtRun *loaded = rt_run_create(&half, &opt, data, RT_USE_EVAL);
        RtCheckpoint c = { .best_val = NAN };
        assert_non_null(rt_run_load(loaded, k ? "half" : "bf16", false, &c));
        for (int i = 0; i < N; i++) {
            const float p = ((const float *)loaded->p)[i];
            assert_true(p == 1 / (float)(i + 3));
            assert_int_equal(((const uint16_t *)loaded->p16)[i], k ? rt_to_f16(p) : rt_to_bf16(p));
        }
        assert_int_equal(c.products, k ? RT_PRODUCTS_UNSET : rt_products_now());
        rt_run_free(trained);
        rt_run_free(loaded);
    }
    assert_null(run->p16);
}

static void a_step_has_its_rows_and_keys(void **unused)
{
    RT_UNUSED(unused);
    RtStep s;
    run->state->step = 5;
    run->state->samples = 30;
    rt_begin_step(run, &s);
    assert_true(s.key.seed == 9 && s.key.step == 5 && s.lr == 0.5 && !s.add && s.finite);
    assert_int_equal(run->micro_steps, 3);
    float seen[6];
    for (int micro = 0; micro < 3; micro++) {
        rt_begin_micro(run, &s, micro);
        assert_int_equal(run->dims[0], 2);
        assert_int_equal(s.sample, 2 * micro);
        const float *x = run->inputs[0], *y = run->inputs[1];
        for (int i = 0; i < 2; i++) {
            assert_true(x[i * D + 1] == 10 * x[i * D] && y[i] == -x[i * D]);
            seen[2 * micro + i] = x[i * D];
        }
    }
    for (int i = 0; i < 6; i++) /* six different samples of the epoch */
        for (int j = 0; j < i; j++)
            assert_true(seen[i] != seen[j]);
    run->state->step = run->state->samples = 0;
}

static void seeds_are_weight_over_count(void **unused)
{
    RT_UNUSED(unused);
    RtStep s = { .count = { 4, 0, 0 }, .sum = { 6, 5, 0 } };
    rt_seed_losses(run, &s);
    assert_true(s.seed[0] == 0.5 && s.seed[1] == 0 && s.seed[2] == 0);
    assert_int_equal(run->state->empty, 1);
    s.scale = 1024;
    rt_seed_losses(run, &s);
    assert_true(s.seed[0] == 512 && s.seed[1] == 0);
    const RtMeans means = rt_run_means(&model, &s);
    assert_true(means.loss == 3 && means.mean[0] == 1.5 && isnan(means.mean[1]));
    assert_true(isnan(means.metric[0]));
    run->state->empty = 0;
}

static void counters_advance_on_applied_updates(void **unused)
{
    RT_UNUSED(unused);
    RtStep s = { .finite = false };
    rt_end_step(run, &s);
    assert_int_equal(run->state->step, 0);
    s.finite = true;
    rt_end_step(run, &s);
    rt_end_step(run, &s);
    assert_true(run->state->step == 2 && run->state->applied == 2 && run->state->samples == 12);
}

/* The step sums the loss only; `error` is counted and not summed. */
static void step_of_the_loss(RtRun *of, RtStep *s)
{
    RT_UNUSED(of);
    *s = (RtStep){ .sum = { 6, 0, 4 }, .count = { 4, 4, 4 } };
}

static void four_metrics(const double *mean, double *value)
{
    value[0] = mean[1];
    value[1] = mean[0] * mean[2];
    value[2] = mean[1] > mean[0] ? mean[1] : mean[0];
    value[3] = 1 / mean[1];
}

static void metrics_without_a_sum_have_no_value(void **unused)
{
    RT_UNUSED(unused);
    const RtMetric names[] = { { .name = "a" }, { .name = "b" }, { .name = "c" }, { .name = "d" } };
    RtModel other = model;
    other.metrics = names;
    other.n_metrics = 4;
    other.step = step_of_the_loss;
    other.metric_values = four_metrics;
    RtRun of = *run;
    of.model = &other;
    RtStep s;
    RtMeans means = rt_run_step(&of, &s, false);
    assert_true(means.loss == 3.5 && means.metric[1] == 1.5 && isnan(means.mean[1]));
    assert_true(isnan(means.metric[0]) && isnan(means.metric[2]) && isnan(means.metric[3]));
    RtLog log = { .fd = open("parts.jsonl", O_RDWR | O_CREAT | O_TRUNC, 0666),
                  .steps = 9,
                  .every = 99,
                  .counted = 1 };
    rt_log_step(&log, &of, &s, &means, 0.5);
    rt_log_close(&log);
    size_t len;
    char *text = rt_read_file("parts.jsonl", 10000, &len);
    assert_non_null(strstr(text, "\"train/loss\": 3.5, \"train/b\": 1.5, \"lr\": "));
    rt_free(text);
}

static void records_are_json(void **unused)
{
    RT_UNUSED(unused);
    const int keep = dup(STDOUT_FILENO), null = open("/dev/null", O_WRONLY);
    RtLog log = rt_log_open(&model, &opt, ".", 0);
    RtStep s = { .lr = 0.25, .norm = INFINITY };
    RtMeans means = { .loss = NAN, .metric = { 0.5 } };
    rt_log_record_start(&log, 0, NULL);
    fflush(stdout);
    dup2(null, STDOUT_FILENO);
    rt_log_step(&log, run, &s, &means, 0.5);
    means.loss = -INFINITY;
    rt_log_validation(&log, run, &means, NULL, 0.125, true);
    fflush(stdout);
    dup2(keep, STDOUT_FILENO);
    rt_log_close(&log);
    size_t len;
    char *text = rt_read_file("metrics.jsonl", 10000, &len);
    assert_non_null(strstr(text, "{\"restart\": false, \"run_id\": \""));
    assert_non_null(strstr(text, "\"train/loss\": null, \"loss_nonfinite\": \"nan\""));
    assert_non_null(strstr(text, "\"train/twice\": 0.5, \"lr\": 0.25, \"grad_norm\": null, "
                                 "\"grad_norm_nonfinite\": \"inf\""));
    assert_non_null(strstr(text, "\"val/loss\": null, \"loss_nonfinite\": \"-inf\""));
    assert_null(strstr(text, ": nan"));
    rt_free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_what_is_allocated),
        cmocka_unit_test(copy_in_16_bits),
        cmocka_unit_test(a_step_has_its_rows_and_keys),
        cmocka_unit_test(seeds_are_weight_over_count),
        cmocka_unit_test(counters_advance_on_applied_updates),
        cmocka_unit_test(metrics_without_a_sum_have_no_value),
        cmocka_unit_test(records_are_json),
    };
    return cmocka_run_group_tests_name("run", tests, set_up, tear_down);
}
