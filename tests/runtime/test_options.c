/* test_options.c -- settings: suggestions, flags into numbers, config.json and back. Messages and
 * exit codes are tested by check_program.sh. */
#include "cm.h"
#include "run.h"

static const RtDim dims[] = { { .name = "B", .batch = true, .where = "m.model:1" },
                              { .name = "T", .value = 64, .where = "m.model:2" },
                              { .name = "W", .value = 8, .where = "m.model:3" } };
static const RtModel model = {
    .name = "m",
    .source = "m.model",
    .source_crc = 7,
    .dims = dims,
    .n_dims = 3,
    .train = { .present = true,
               .path = "a \"b\".txt",
               .batch = 12,
               .accumulate = 1,
               .keep = 2,
               .rule = "adamw",
               .states = { "m", "v" },
               .n_states = 2,
               .hyper = { { "beta1", 0.9, 0, 1 }, { "beta2", 0.95, 0, 1 }, { "eps", 1e-8, 0, 1 } },
               .n_hypers = 3,
               .lr = 0.1,
               .lr_end = 1e-5,
               .schedule = RT_COSINE,
               .steps = 100,
               .split = 0.9,
               .seed = 3 },
};

static RtOptions parse(const char *const *words, int n)
{
    char *argv[16] = { "m" };
    for (int i = 0; i < n; i++)
        argv[i + 1] = (char *)(uintptr_t)words[i];
    return rt_options_parse(&model, n + 1, argv);
}
#define PARSE(...)                                                                                 \
    parse((const char *const[]){ __VA_ARGS__ },                                                    \
          (int)(sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *)))

static void nearest_words(void **unused)
{
    RT_UNUSED(unused);
    static const char *const words[] = { "steps", "batch", "lr", "weight-decay" };
    assert_string_equal(rt_suggest("step", words, 4), "steps");
    assert_string_equal(rt_suggest("btach", words, 4), "batch");
    assert_string_equal(rt_suggest("weightdecay", words, 4), "weight-decay");
    assert_null(rt_suggest("xylophone", words, 4));
    assert_null(rt_suggest("zz", words, 4));
}

static void defaults_and_flags(void **unused)
{
    RT_UNUSED(unused);
    RtOptions o = PARSE("--steps", "7", "--lr=2e-3", "--dims", "T=32,W=4", "--seed",
                        "18446744073709551615", "--batch=24", "--accumulate", "4");
    rt_options_settle(&model, &o);
    assert_int_equal(o.command, RT_DO_TRAIN);
    assert_int_equal(o.train.steps, 7);
    assert_true(o.train.lr == 2e-3 && o.train.lr_end == 1e-5 && o.train.hyper[1].value == 0.95);
    assert_true(o.train.seed == UINT64_MAX);
    assert_int_equal(o.dims[0], 6);
    assert_int_equal(o.dims[1], 32);
    assert_int_equal(o.dims[2], 4);
    assert_string_equal(o.train.out, "m.run");
    assert_string_equal(o.resume, "none");
    o = PARSE("generate", "--tokens=5", "--top-k", "3");
    rt_options_settle(&model, &o);
    assert_int_equal(o.command, RT_DO_GENERATE);
    assert_int_equal(o.dims[0], 1);
    assert_true(o.tokens == 5 && o.top_k == 3 && o.temperature == 1);
}

static void rows_are_well_formed(void **unused)
{
    RT_UNUSED(unused);
    assert_true(rt_option_count(&model) + RT_MAX_HYPERS <= RT_MAX_OPTIONS);
    for (int i = 0; i < rt_option_count(&model); i++) {
        const RtOption row = rt_option_at(&model, i);
        const int same = rt_option_index(&model, row.name); /* a name, one row per command */
        assert_true(same == i || (rt_option_at(&model, same).commands & row.commands) == 0);
        assert_true(row.commands != 0 && row.text != NULL);
        assert_true((row.value == NULL) == (row.type == RT_OPT_FLAG));
    }
    assert_int_equal(rt_option_index(&model, "nothing"), -1);
}

static void config_comes_back(void **unused)
{
    RT_UNUSED(unused);
    RtOptions saved = PARSE("--lr", "0.3", "--steps", "50", "--seed", "18446744073709551615",
                            "--dims", "T=16", "--beta2", "0.98700000000000001");
    char *config = rt_config_text(&model, &saved), told[2000] = "";
    assert_non_null(strstr(config, "\"data\": \"a \\\"b\\\".txt\""));
    assert_non_null(strstr(config, "\"dims\": {\"T\": 16, \"W\": 8}"));
    assert_non_null(strstr(config, "\"beta2\": 0.987,"));

    RtOptions o = PARSE("--steps", "60", "--dims", "W=2");
    FILE *to = fmemopen(told, sizeof told, "w");
    rt_config_adopt(&model, &o, config, to);
    fclose(to);
    assert_true(o.train.lr == 0.3 && rt_hyper(&o.train, "beta2") == 0.987
                && o.train.seed == UINT64_MAX);
    assert_int_equal(o.train.steps, 60); /* given: stays */
    assert_true(o.dims[1] == 16 && o.dims[2] == 2);
    assert_string_equal(o.train.path, "a \"b\".txt");
    assert_non_null(strstr(told, "changed  steps 50 -> 60 (given on the command line)"));
    assert_non_null(strstr(told, "kept     lr 0.3 (the program's own 0.1 is ignored"));
    assert_non_null(strstr(told, "decays over 60 steps instead of 50"));
    assert_null(strstr(told, "batch"));
    rt_free(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nearest_words),
        cmocka_unit_test(defaults_and_flags),
        cmocka_unit_test(rows_are_well_formed),
        cmocka_unit_test(config_comes_back),
    };
    return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
