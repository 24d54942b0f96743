/* test_params.c -- names of repetitions, offsets, initial values keyed by name. */
#include "cm.h"
#include "fails.h"
#include "run.h"

static const RtParam params[] = {
    { .path = "wte.weight",
      .role = RT_EMBEDDING,
      .decay = true,
      .rank = 2,
      .shape = { 6, 5 },
      .at = 0,
      .init = { RT_NORMAL, 0.5 },
      .where = "a.model:1" },
    { .path = "h.*.attn.*.w",
      .role = RT_WEIGHT,
      .decay = true,
      .rank = 2,
      .shape = { 3, 4 },
      .at = 30,
      .n_stacks = 2,
      .stack = { { 2, 40 }, { 3, 13 } },
      .init = { RT_UNIFORM, 0.25 },
      .where = "a.model:2" },
    { .path = "h.*.attn.*.b",
      .role = RT_BIAS,
      .rank = 1,
      .shape = { 1 },
      .at = 42,
      .n_stacks = 2,
      .stack = { { 2, 40 }, { 3, 13 } },
      .init = { RT_ONES, 0 },
      .where = "a.model:3" },
    { .path = "h.*.g",
      .role = RT_GAIN,
      .rank = 1,
      .shape = { 1 },
      .at = 69,
      .n_stacks = 1,
      .stack = { { 2, 40 } },
      .init = { RT_CONST, 7 },
      .where = "a.model:4" },
    { .path = "mu",
      .role = RT_STATE,
      .rank = 0,
      .at = 110,
      .init = { RT_ZEROS, 0 },
      .where = "a.model:5" },
};
static const RtModel model = { .name = "a",
                               .source = "a.model",
                               .params = params,
                               .n_params = 5,
                               .n_elems = 111 };

static void names_and_offsets(void **unused)
{
    RT_UNUSED(unused);
    char name[RT_NAME_TEXT];
    assert_string_equal(rt_param_name(&params[0], 0, name), "wte.weight");
    assert_string_equal(rt_param_name(&params[1], 4, name), "h.1.attn.1.w");
    assert_int_equal(rt_param_at(&params[1], 4), 30 + 40 + 13);
    assert_string_equal(rt_param_name(&params[3], 1, name), "h.1.g");
    assert_int_equal(rt_param_repeats(&params[1]), 6);
    assert_int_equal(rt_param_elems(&params[4]), 1);
    assert_int_equal(rt_params_count(&model, false), 30 + 6 * 12 + 6 + 2 + 1);
    assert_int_equal(rt_params_count(&model, true), 30 + 6 * 12 + 6 + 2);
}

static void initial_values(void **unused)
{
    RT_UNUSED(unused);
    float p[111], again[111];
    double wide[111];
    RtModel m = model;
    rt_params_init(&m, 5, p);
    rt_params_init(&m, 5, again);
    assert_memory_equal(p, again, sizeof p);
    m.real = RT_F64;
    rt_params_init(&m, 5, wide);
    double least = 1, most = -1;
    for (int i = 0; i < 111; i++)
        assert_true(fabs((double)p[i] - wide[i]) < 1e-6);
    for (int k = 0; k < 12; k++) {
        least = p[30 + k] < least ? (double)p[30 + k] : least;
        most = p[30 + k] > most ? (double)p[30 + k] : most;
    }
    assert_true(least >= -0.25 && most < 0.25 && most - least > 0.1);
    assert_true(p[30] != p[43] && p[30] != p[70]); /* repetitions differ */
    assert_true(p[42] == 1 && p[69] == 7 && p[109] == 7 && p[110] == 0);
}

static void values_follow_the_name_not_the_place(void **unused)
{
    RT_UNUSED(unused);
    RtParam moved[2] = { params[0], params[4] };
    moved[0].at = 9;
    moved[1].at = 3;
    const RtModel m = { .name = "b", .params = moved, .n_params = 2, .n_elems = 50 };
    float p[111], q[50];
    rt_params_init(&model, 5, p);
    rt_params_init(&m, 5, q);
    assert_memory_equal(p, q + 9, 30 * sizeof *p);
    rt_params_init(&m, 6, q);
    assert_memory_not_equal(p, q + 9, 30 * sizeof *p);
}

static void print_long(void *unused)
{
    RT_UNUSED(unused);
    char path[RT_NAME_TEXT + 1];
    memset(path, 'x', RT_NAME_TEXT);
    path[RT_NAME_TEXT] = 0;
    const RtParam q = { .path = path };
    rt_param_name(&q, 0, path);
}

static void a_name_too_long(void **unused)
{
    RT_UNUSED(unused);
    expect_end(print_long, NULL, RT_EXIT_FAIL, "x is too long");
}

static void the_table_names_roles(void **unused)
{
    RT_UNUSED(unused);
    char text[4000] = "";
    FILE *f = fmemopen(text, sizeof text, "w");
    rt_params_print(&model, f);
    fclose(f);
    assert_non_null(strstr(text, "h.*.attn.*.w  weight    [3,4]"));
    assert_non_null(strstr(text, "uniform(0.25)"));
    assert_non_null(strstr(text, "a.model:5"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_offsets),
        cmocka_unit_test(initial_values),
        cmocka_unit_test(values_follow_the_name_not_the_place),
        cmocka_unit_test(a_name_too_long),
        cmocka_unit_test(the_table_names_roles),
    };
    return cmocka_run_group_tests_name("params", tests, NULL, NULL);
}
