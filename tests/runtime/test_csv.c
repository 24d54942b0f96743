/* test_csv.c -- tables: quoting, numbers, columns by name and number, places of mistakes, the
 * split. */
#include <zlib.h>

#include "cm.h"
#include "fails.h"
#include "models.h"

typedef struct {
    const char *text;
    bool header;
    const char *part;
} Try;

static void open_try(void *arg)
{
    const Try *try = arg;
    TestModel t;
    put_text("t.csv", try->text);
    table_model(&t, "t.csv", try->header);
    rt_data_close(test_open(&t, 0, NULL));
}

/* All rows of the file in its order, through both splits of nothing: split 1 trains on all. */
static int read_all(const char *path, bool header, float x[][3], int32_t *y)
{
    TestModel t;
    table_model(&t, path, header);
    t.m.train.split = 0;
    RtData *d = test_open(&t, 0, NULL);
    const int64_t n = rt_data_samples(d, RT_SPLIT_TRAIN);
    assert_int_equal(rt_data_samples(d, RT_SPLIT_VAL), 0);
    for (int64_t i = 0; i < n; i++) {
        float row[3];
        int32_t label;
        void *inputs[2] = { row, &label };
        rt_data_fill(d, RT_SPLIT_TRAIN, 1, i, 1, inputs);
        const uint64_t at = rt_permute((uint64_t)i, (uint64_t)n, rt_stream(1, 0));
        memcpy(x[at], row, sizeof row);
        y[at] = label;
    }
    rt_data_close(d);
    return (int)n;
}

static void forms_of_numbers(void **unused)
{
    RT_UNUSED(unused);
    float x[8][3];
    int32_t y[8];
    put_text("n.csv", "1, +2 ,-3,0\r\n1.5,.5,2.,1\n1e2,1E-2,-1.25e+1,2\n\"4\",\" 5\",6,-1\n"
                      "0.1,123456789012345678901234567890,1e-50,3.0\n3.4028234e38,-0,"
                      "0000000000000000000000001,1\n\n\r\n");
    assert_int_equal(read_all("n.csv", false, x, y), 6);
    const float want[6][3] = { { 1, 2, -3 },
                               { 1.5f, 0.5f, 2 },
                               { 100, 0.01f, -12.5f },
                               { 4, 5, 6 },
                               { 0.1f, 123456789012345678901234567890.0f, 0 },
                               { 3.4028234e38f, -0.0f, 1 } };
    const int32_t label[6] = { 0, 1, 2, -1, 3, 1 };
    for (int i = 0; i < 6; i++) {
        for (int k = 0; k < 3; k++)
            assert_true(x[i][k] == want[i][k]);
        assert_int_equal(y[i], label[i]);
    }
}

static void numbers_round_as_strtod_does(void **unused)
{
    RT_UNUSED(unused);
    enum { N = 3000 };
    static char text[N][3][40];
    static float x[N][3];
    static int32_t y[N];
    uint64_t state = 7;
    FILE *f = fopen("r.csv", "w");
    assert_non_null(f);
    for (int i = 0; i < N; i++)
        for (int k = 0; k < 3; k++) {
            state = rt_stream(state, (uint64_t)k);
            const double v = ((double)(state >> 11) * 0x1p-53 - 0.5)
                             * pow(10, (int)(state % 60) - 30);
            snprintf(text[i][k], sizeof text[i][k], i % 2 ? "%.9g" : "%.17g", v);
            fprintf(f, "%s%s", text[i][k], k == 2 ? ",1\n" : ",");
        }
    fclose(f);
    assert_int_equal(read_all("r.csv", false, x, y), N);
    for (int i = 0; i < N; i++)
        for (int k = 0; k < 3; k++)
            assert_true(x[i][k] == (float)strtod(text[i][k], NULL));
}

static void columns_by_name(void **unused)
{
    RT_UNUSED(unused);
    float x[3][3];
    int32_t y[3];
    put_text("h.csv",
             "\xef\xbb\xbf"
             "a,\"b, with \"\"quotes\"\"\nand a line\",c,why,label\r\n1,2,3,\"free, text\",0\r\n"
             "4,5,6,,3");
    assert_int_equal(read_all("h.csv", true, x, y), 2);
    assert_true(x[1][2] == 6 && y[0] == 0 && y[1] == 3);
    gzFile f = gzopen("h.csv.gz", "wb");
    gzputs(f, "a,b,c,label\n7,8,9,2\n");
    gzclose(f);
    assert_int_equal(read_all("h.csv.gz", true, x, y), 1);
    assert_true(x[0][0] == 7 && y[0] == 2);
}

static void mistakes_have_a_place(void **unused)
{
    RT_UNUSED(unused);
    const Try all[] = {
        { "", false, "t.csv: is empty" },
        { "\n\n", false, "t.csv: is empty" },
        { "a,b,c,label\n", true, "t.csv: has no row of data" },
        { "1,2,3,0\n1,x,3,0\n", false, "t.csv:2:3: 'x' is no number (column 1)" },
        { "a,b,c,label\n1,2,3,0\n1,2,,0\n", true, "t.csv:3:5: the field is empty (column c)" },
        { "a,b,c,d\n1,2,3,0\n", false,
          "t.csv:1:1: 'a' is no number (column 0); if the first row names the "
          "columns, say header: true" },
        { "1,2,3,0\n1,2,0\n", false, "t.csv:2:1: the row has 3 fields, the first row has 4" },
        { "1,2,3,0\n1,2,3,0,5\n", false, "t.csv:2:9: more fields than the 4 of the first row" },
        { "1,2,3,0\n\n1,2,3,0\n", false, "t.csv:2:1: an empty line" },
        { "1,2,3,0\n1,nan,3,0\n", false, "t.csv:2:3: 'nan' (column 1) is not finite" },
        { "1,2,3,0\n1,2,-Inf,0\n", false, "t.csv:2:5: '-Inf' (column 2) is not finite" },
        { "1,2,3,0\n1,2,1e39,0\n", false, "t.csv:2:5: 1e39 is too large" },
        { "1,2,3,0\n1,2,1e999999999999,0\n", false, "too large" },
        { "1,2,3,4\n", false,
          "t.csv:1:7: 4 (column 3) is outside of y: int in 0..4 or -1 (b.model:4); compile "
          "with gradcc -D K=5" },
        { "1,2,3,-2\n", false,
          "t.csv:1:7: -2 (column 3) is outside of y: int in 0..4 or -1 (b.model:4)\n" },
        { "1,2,3,1.5\n", false, "t.csv:1:7: 1.5 (column 3) is no whole number" },
        { "1,2,3,1e12\n", false, "no whole number of 32 bits" },
        { "1,\"2,3,0\n1,2,3,0\n", false, "t.csv:1:3: this quoted field never ends" },
        { "1,\"2\"x,3,0\n", false, "t.csv:1:6: text after the end of a quoted field" },
        { "1,2\"2,3,0\n", false, "t.csv:1:4: a quote inside a field" },
        { "1,2,3,0\r1,2,3,0\n", false, "t.csv:1:8: a carriage return inside a row" },
        { "1,2,3\n", false, "columns 3..4 of t.csv are asked for; it has 3" },
        { "a,b,c,lable\n1,2,3,0\n", true,
          "b.model:20: t.csv has no column 'label'; its columns are a, b, c, lable" },
        { "a,b,a,label\n1,2,3,0\n", true, "t.csv:1:5: column 2 has the same name as column 0: a" },
        { "1,2,3-,0\n", false, "t.csv:1:5: '3-' is no number" },
        { "1,2,0x10,0\n", false, "'0x10' is no number" },
        { "1,2,1e,0\n", false, "'1e' is no number" },
        { "1,2,.,0\n", false, "'.' is no number" },
        { "1,2,1.2.3,0\n", false, "'1.2.3' is no number" },
        { "1,2,- 1,0\n", false, "'- 1' is no number" },
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        expect_end(open_try, (void *)(uintptr_t)&all[i], RT_EXIT_FAIL, all[i].part);
}

static void the_split_follows_the_seed_only(void **unused)
{
    RT_UNUSED(unused);
    char text[4000] = "";
    for (int i = 0; i < 100; i++)
        snprintf(text + strlen(text), 40, "%d,0,0,0\n", i);
    put_text("s.csv", text);
    bool trains[2][100] = { { 0 } };
    for (int seed = 0; seed < 2; seed++) {
        TestModel t;
        table_model(&t, "s.csv", false);
        t.m.train.seed = (uint64_t)seed;
        RtData *d = test_open(&t, 0, NULL);
        float x[100][3];
        int32_t y[100];
        void *inputs[2] = { x, y };
        assert_int_equal(rt_data_samples(d, RT_SPLIT_TRAIN), 75);
        assert_int_equal(rt_data_samples(d, RT_SPLIT_VAL), 25);
        rt_data_fill(d, RT_SPLIT_TRAIN, 3, 0, 75, inputs);
        for (int i = 0; i < 75; i++)
            trains[seed][(int)x[i][0]] = true;
        rt_data_fill(d, RT_SPLIT_VAL, 3, 0, 25, inputs);
        for (int i = 0; i < 25; i++) {
            assert_false(trains[seed][(int)x[i][0]]);
            assert_true(i == 0 || x[i][0] > x[i - 1][0]);
        }
        rt_data_close(d);
    }
    assert_memory_not_equal(trains[0], trains[1], sizeof trains[0]);
}

static void a_file_for_validation(void **unused)
{
    RT_UNUSED(unused);
    TestModel t;
    put_text("a.csv", "1,2,3,0\n4,5,6,1\n");
    put_text("b.csv", "7,8,9,2\n");
    table_model(&t, "a.csv", false);
    t.m.train.val_path = "b.csv";
    RtData *d = test_open(&t, 0, NULL);
    float x[3];
    int32_t y[1];
    void *inputs[2] = { x, y };
    assert_int_equal(rt_data_samples(d, RT_SPLIT_TRAIN), 2);
    assert_int_equal(rt_data_samples(d, RT_SPLIT_VAL), 1);
    rt_data_fill(d, RT_SPLIT_VAL, 3, 0, 1, inputs);
    assert_true(x[2] == 9 && y[0] == 2);
    rt_data_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forms_of_numbers),
        cmocka_unit_test(numbers_round_as_strtod_does),
        cmocka_unit_test(columns_by_name),
        cmocka_unit_test(mistakes_have_a_place),
        cmocka_unit_test(the_split_follows_the_seed_only),
        cmocka_unit_test(a_file_for_validation),
    };
    return cmocka_run_group_tests_name("csv", tests, NULL, NULL);
}
