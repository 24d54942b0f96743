/* test_data.c -- maps between data and inputs, constants fitted on the training rows, hashes. */
#include "cm.h"
#include "fails.h"
#include "models.h"

static const char rows[] =
    "1,10,5,0\n2,20,5,1\n3,30,5,2\n4,40,5,3\n5,50,5,0\n6,60,5,1\n7,70,5,2\n8,80,5,3\n";

static void constants_of_the_training_rows(void **unused)
{
    RT_UNUSED(unused);
    TestModel t;
    put_text("f.csv", rows);
    table_model(&t, "f.csv", false);
    const RtParam params[] = {
        { .path = "mu",
          .rank = 1,
          .shape = { 3 },
          .at = 2,
          .fit = "mean",
          .fit_input = 0,
          .where = "b.model:5" },
        { .path = "s",
          .rank = 1,
          .shape = { 3 },
          .at = 5,
          .fit = "std",
          .fit_input = 0,
          .where = "b.model:6" },
        { .path = "all", .at = 8, .fit = "mean", .fit_input = 0, .where = "b.model:7" },
        { .path = "w", .at = 0, .where = "b.model:8" },
    };
    t.m.params = params;
    t.m.n_params = 4;
    RtData *d = test_open(&t, 0, NULL);
    assert_int_equal(rt_data_samples(d, RT_SPLIT_TRAIN), 6);
    float x[6][3], p[10] = { 0 };
    int32_t y[6];
    void *inputs[2] = { x, y };
    rt_data_fill(d, RT_SPLIT_TRAIN, 1, 0, 6, inputs);
    rt_data_fit(d, &t.m, p);
    double mean = 0, square = 0, all = 0;
    for (int i = 0; i < 6; i++) {
        mean += (double)x[i][0] / 6;
        all += (double)(x[i][0] + x[i][1] + x[i][2]) / 18;
    }
    for (int i = 0; i < 6; i++)
        square += pow((double)x[i][0] - mean, 2) / 6;
    assert_true(fabs((double)p[2] - mean) < 1e-6 && fabs((double)p[3] - 10 * mean) < 1e-5
                && p[4] == 5);
    assert_true(fabs((double)p[5] - sqrt(square)) < 1e-6
                && fabs((double)p[6] - 10 * sqrt(square)) < 1e-5);
    assert_true(p[7] == 1); /* a constant column: not 0 */
    assert_true(fabs((double)p[8] - all) < 1e-5 && p[0] == 0 && p[1] == 0 && p[9] == 0);
    rt_data_close(d);
}

static void doubles(void **unused)
{
    RT_UNUSED(unused);
    TestModel t;
    put_text("d.csv", "0.1,2,3,0\n");
    table_model(&t, "d.csv", false);
    t.m.real = t.inputs[0].type = RT_F64;
    t.m.train.split = 0;
    const RtParam mu = { .path = "mu",
                         .rank = 1,
                         .shape = { 3 },
                         .fit = "mean",
                         .where = "b.model:5" };
    t.m.params = &mu;
    t.m.n_params = 1;
    RtData *d = test_open(&t, 0, NULL);
    double x[3], p[3];
    int32_t y[1];
    void *inputs[2] = { x, y };
    rt_data_fill(d, RT_SPLIT_TRAIN, 1, 0, 1, inputs);
    rt_data_fit(d, &t.m, p);
    assert_true(x[0] == 0.1 && p[0] == 0.1 && y[0] == 0);
    rt_data_close(d);
}

/* Columns whose mean does not come out exactly: whatever the number of rows, equal values have the
   standard deviation 1, and values that differ a little their own. */
static void constant_columns(void **unused)
{
    RT_UNUSED(unused);
    static const RtType types[2] = { RT_F32, RT_F64 };
    for (int rows_made = 1; rows_made < 60; rows_made++)
        for (int k = 0; k < 2; k++) {
            char text[4096] = "";
            size_t n = 0;
            for (int i = 0; i < rows_made; i++)
                n += (size_t)snprintf(text + n, sizeof text - n, "0.1,-7e9,%s,0\n",
                                      i % 2 ? "16777216" : "16777214");
            put_text("c.csv", text);
            TestModel t;
            table_model(&t, "c.csv", false);
            const RtParam params[2] = {
                { .path = "mu", .rank = 1, .shape = { 3 }, .fit = "mean", .where = "b.model:5" },
                { .path = "s",
                  .rank = 1,
                  .shape = { 3 },
                  .at = 3,
                  .fit = "std",
                  .where = "b.model:6" },
            };
            t.m.params = params;
            t.m.n_params = 2;
            t.m.real = t.inputs[0].type = types[k];
            t.m.train.split = 0;
            RtData *d = test_open(&t, 0, NULL);
            double p[6];
            float small[6];
            rt_data_fit(d, &t.m, k ? (void *)p : (void *)small);
            for (int i = 0; i < 6 && !k; i++)
                p[i] = (double)small[i];
            assert_true(p[0] == (k ? 0.1 : (double)0.1f) && p[1] == (k ? -7e9 : (double)-7e9f));
            assert_true(p[3] == 1 && p[4] == 1);
            const double share = (double)(rows_made / 2) / rows_made;
            const double std = rows_made > 1 ? 2 * sqrt(share * (1 - share)) : 1;
            assert_true(fabs(p[5] - std) < 1e-6);
            rt_data_close(d);
        }
}

/* Squares that a double cannot hold. */
static void wide_columns(void **unused)
{
    RT_UNUSED(unused);
    TestModel t;
    put_text("w.csv", "1e200,1e-200,-1e300,0\n3e200,3e-200,1e300,0\n");
    table_model(&t, "w.csv", false);
    t.m.real = t.inputs[0].type = RT_F64;
    t.m.train.split = 0;
    const RtParam s = { .path = "s",
                        .rank = 1,
                        .shape = { 3 },
                        .fit = "std",
                        .where = "b.model:5" };
    t.m.params = &s;
    t.m.n_params = 1;
    RtData *d = test_open(&t, 0, NULL);
    double p[3];
    rt_data_fit(d, &t.m, p);
    assert_true(fabs(p[0] / 1e200 - 1) < 1e-12 && fabs(p[1] / 1e-200 - 1) < 1e-12
                && fabs(p[2] / 1e300 - 1) < 1e-12);
    rt_data_close(d);
}

/* Ids as real inputs: bytes into a model of reals. */
static void tokens_as_reals(void **unused)
{
    RT_UNUSED(unused);
    TestModel t;
    put_text("t.txt", "abcdefghij");
    sequence_model(&t, "text", "t.txt", 256);
    t.m.train.vocab = "bytes";
    t.inputs[0] = (RtInput){ .name = "x", .type = RT_F32, .rank = 2, .where = "a.model:2" };
    t.inputs[1] = (RtInput){ .name = "z", .type = RT_F64, .rank = 2, .where = "a.model:3" };
    RtData *d = test_open(&t, 2, NULL);
    float x[2];
    double z[2];
    void *inputs[2] = { x, z };
    rt_data_fill_tail(d, RT_SPLIT_VAL, 0, inputs);
    assert_true(x[0] == 'i' && z[0] == 'j');
    rt_data_close(d);
}

static void hashes_follow_the_bytes(void **unused)
{
    RT_UNUSED(unused);
    TestModel t;
    uint64_t hash[3];
    const char *const texts[3] = { "abcdefghij", "abcdefghij", "abcdefghik" };
    for (int i = 0; i < 3; i++) {
        put_text("t.txt", texts[i]);
        sequence_model(&t, "text", "t.txt", 256);
        RtData *d = test_open(&t, 2, NULL);
        hash[i] = rt_data_hash(d);
        rt_data_close(d);
    }
    assert_true(hash[0] == hash[1] && hash[0] != hash[2] && hash[0] != 0);
}

static void empty_range(const ptrdiff_t *dims, int map, ptrdiff_t *lo, ptrdiff_t *hi)
{
    *lo = *hi = dims[1] + map;
}

static void long_range(const ptrdiff_t *dims, int map, ptrdiff_t *lo, ptrdiff_t *hi)
{
    RT_UNUSED(map);
    *lo = 0;
    *hi = dims[1] + 1;
}

static const RtParam fitted = { .path = "mu",
                                .rank = 1,
                                .shape = { 2 },
                                .fit = "mean",
                                .where = "c.model:9" };

static void open_broken(void *arg)
{
    TestModel t;
    put_text("t.txt", "abcdefghij");
    put_text("f.csv", rows);
    sequence_model(&t, "text", "t.txt", 256);
    switch (*(int *)arg) {
    case 0: t.m.train.n_maps = 1; break;
    case 1: t.maps[1].input = 0; break;
    case 2: t.m.train.reader = "parquet"; break;
    case 3: t.m.train.reader = NULL; break;
    case 4: t.m.train.path = NULL; break;
    case 5: t.maps[0].kind = RT_MAP_COL; break;
    case 6:
        table_model(&t, "f.csv", false);
        t.maps[0].kind = RT_MAP_WINDOW;
        break;
    case 7:
        table_model(&t, "f.csv", false);
        t.maps[0].kind = RT_MAP_COL; /* one column for three elements */
        break;
    case 8:
        table_model(&t, "f.csv", false);
        t.maps[1].column = "label";
        break;
    case 9: t.m.map_range = empty_range; break;
    case 10: t.m.map_range = long_range; break;
    case 11:
        table_model(&t, "f.csv", false);
        t.m.train.split = 0.01;
        break;
    case 12: t.m.params = &fitted, t.m.n_params = 1; break;
    case 13:
        table_model(&t, "f.csv", false);
        t.m.params = &fitted, t.m.n_params = 1;
        break;
    default: break;
    }
    RtData *d = test_open(&t, 2, NULL);
    float p[2];
    rt_data_fit(d, &t.m, p);
    rt_data_close(d);
}

static void wrong_maps(void **unused)
{
    RT_UNUSED(unused);
    const struct {
        int code;
        const char *part;
    } all[] = {
        { RT_EXIT_FAIL, "a.model:7: nothing in the data of the train block (a.model:29) is given "
                        "to input targets" },
        { RT_EXIT_FAIL, "a.model:30: input tokens is taken from the data twice" },
        { RT_EXIT_FAIL, "there is no reader 'parquet': text, csv, tokens" },
        { RT_EXIT_USAGE, "a.model: the model has no data in its train block" },
        { RT_EXIT_USAGE, "a.model:29: no data file is named; give --data FILE" },
        { RT_EXIT_FAIL, "a.model:30: input tokens wants a column, but the data are a sequence" },
        { RT_EXIT_FAIL, "b.model:20: input x wants a window, but a csv file has columns" },
        { RT_EXIT_FAIL,
          "1 columns are given to input x, a sample of which has 3 elements (b.model:3)" },
        { RT_EXIT_FAIL,
          "column 'label' is asked for by name, but the columns of f.csv have no names" },
        { RT_EXIT_FAIL, "a.model:30: window(2..2) of input tokens is empty or starts before 0" },
        { RT_EXIT_FAIL, "a.model:30: window(0..3) has 3 tokens, input tokens takes 2" },
        { RT_EXIT_FAIL, "f.csv: split 0.01 of 8 rows leaves none to train on" },
        { RT_EXIT_FAIL, "c.model:9: mean of input tokens can be fitted on columns only" },
        { RT_EXIT_FAIL, "c.model:9: mu has 2 elements, input x has 3 per sample" },
    };
    for (int i = 0; i < (int)(sizeof all / sizeof *all); i++)
        expect_end(open_broken, &i, all[i].code, all[i].part);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(constants_of_the_training_rows),
        cmocka_unit_test(constant_columns),
        cmocka_unit_test(wide_columns),
        cmocka_unit_test(doubles),
        cmocka_unit_test(tokens_as_reals),
        cmocka_unit_test(hashes_follow_the_bytes),
        cmocka_unit_test(wrong_maps),
    };
    return cmocka_run_group_tests_name("data", tests, NULL, NULL);
}
