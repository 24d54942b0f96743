/* test_text.c -- bytes and characters, the vocabulary, UTF-8, windows of texts. */
#include "cm.h"
#include "fails.h"
#include "models.h"

typedef struct {
    const char *text, *vocab_kind, *vocab;
    int64_t V;
    ptrdiff_t T;
    const char *val;
} Try;

static void open_try(void *arg)
{
    const Try *try = arg;
    TestModel t;
    put_text("t.txt", try->text);
    sequence_model(&t, "text", "t.txt", try->V ? try->V : 100);
    if (try->vocab_kind)
        t.m.train.vocab = try->vocab_kind;
    t.m.train.val_path = try->val;
    rt_data_close(test_open(&t, try->T ? try->T : 2, try->vocab));
}

static void vocabulary_of_characters(void **unused)
{
    RT_UNUSED(unused);
    TestModel t;
    int32_t ids[20];
    put_text("t.txt", "héllo wörld\nhello \xf0\x9f\x98\x80 \"\\");
    sequence_model(&t, "text", "t.txt", 100);
    RtData *d = test_open(&t, 3, NULL);
    assert_string_equal(rt_data_vocab(d),
                        "[\"\\n\",\" \",\"\\\"\",\"\\\\\",\"d\",\"e\",\"h\",\"l\",\"o\",\"r\","
                        "\"w\",\"é\",\"ö\",\"\xf0\x9f\x98\x80\"]");
    assert_int_equal(rt_data_encode(d, "höl", ids, 20), 3);
    assert_true(ids[0] == 6 && ids[1] == 12 && ids[2] == 7);
    assert_int_equal(rt_data_encode(d, "hz", ids, 20), -1);
    assert_int_equal(rt_data_encode(d, "\xff", ids, 20), -1);
    assert_string_equal(rt_data_decode(d, 13), "\xf0\x9f\x98\x80");
    assert_null(rt_data_decode(d, 14));
    RtData *only = rt_data_open_vocab(&t.m, &t.m.train, rt_data_vocab(d));
    assert_string_equal(rt_data_vocab(only), rt_data_vocab(d));
    assert_int_equal(rt_data_encode(only, "é", ids, 20), 1);
    assert_int_equal(ids[0], 11);
    rt_data_close(only);
    rt_data_close(d);
}

static void bytes(void **unused)
{
    RT_UNUSED(unused);
    TestModel t;
    int32_t ids[8];
    put_file("t.txt",
             "a\xff"
             "bcdefghi",
             10);
    sequence_model(&t, "text", "t.txt", 256);
    t.m.train.vocab = "bytes";
    RtData *d = test_open(&t, 3, NULL);
    assert_null(rt_data_vocab(d));
    assert_int_equal(rt_data_encode(d, "a\xff", ids, 8), 2);
    assert_true(ids[0] == 'a' && ids[1] == 255);
    assert_string_equal(rt_data_decode(d, 'b'), "b");
    rt_data_close(d);
    assert_null(rt_data_open_vocab(&(RtModel){ .name = "x" }, &(RtTrain){ .reader = "csv" }, NULL));
}

static void training_windows_start_anywhere(void **unused)
{
    RT_UNUSED(unused);
    TestModel t;
    put_text("t.txt", "abcdefghijklmnopqrst"); /* 20: 16 train, 4 validate */
    sequence_model(&t, "text", "t.txt", 100);
    RtData *d = test_open(&t, 3, NULL);
    assert_int_equal(rt_data_samples(d, RT_SPLIT_TRAIN), 13);
    bool seen[13] = { 0 };
    int32_t tokens[13 * 3], targets[13 * 3];
    void *inputs[2] = { tokens, targets };
    rt_data_fill(d, RT_SPLIT_TRAIN, 5, 0, 13, inputs);
    for (int i = 0; i < 13; i++) {
        for (int k = 0; k < 3; k++)
            assert_true(tokens[3 * i + k] == tokens[3 * i] + k
                        && targets[3 * i + k] == tokens[3 * i + k] + 1);
        assert_true(!seen[tokens[3 * i]]);
        seen[tokens[3 * i]] = true;
    }
    int32_t next[13 * 3]; /* the next epoch has another order */
    void *again[2] = { next, targets };
    rt_data_fill(d, RT_SPLIT_TRAIN, 5, 13, 13, again);
    assert_memory_not_equal(tokens, next, sizeof next);
    rt_data_fill(d, RT_SPLIT_TRAIN, 5, 4, 9, again); /* a resumed run finds its place */
    assert_memory_equal(tokens + 12, next, 27 * sizeof *next);
    rt_data_close(d);
}

static void validation_covers_every_target(void **unused)
{
    RT_UNUSED(unused);
    TestModel t;
    put_text("t.txt", "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMN"); /* 40: 8 validate */
    sequence_model(&t, "text", "t.txt", 100);
    RtData *d = test_open(&t, 3, NULL);
    int32_t tokens[6], targets[6];
    void *inputs[2] = { tokens, targets };
    assert_int_equal(rt_data_samples(d, RT_SPLIT_VAL), 2);
    assert_int_equal(rt_data_tail(d, RT_SPLIT_VAL, 0), 1);
    rt_data_fill(d, RT_SPLIT_VAL, 5, 0, 2, inputs);
    const int32_t first = tokens[0];
    for (int k = 0; k < 6; k++)
        assert_true(tokens[k] == first + k && targets[k] == first + k + 1);
    rt_data_fill_tail(d, RT_SPLIT_VAL, 0, inputs);
    assert_true(tokens[0] == first + 6 && targets[0] == first + 7);
    rt_data_close(d);
    t.m.train.split = 0.95; /* 2 tokens: less than one window */
    d = test_open(&t, 3, NULL);
    assert_int_equal(rt_data_samples(d, RT_SPLIT_VAL), 0);
    assert_int_equal(rt_data_tail(d, RT_SPLIT_VAL, 0), 1);
    rt_data_close(d);
}

static void wrong_texts(void **unused)
{
    RT_UNUSED(unused);
    put_text("v.txt", "ab\nabq");
    const struct {
        Try try;
        const char *part;
    } all[] = {
        { { .text = "" }, "t.txt: is empty" },
        { { .text = "abc\nde\xff"
                    "f" },
          "t.txt:2:3: byte 0xff is no valid UTF-8" },
        { { .text = "abcdef\xc3" }, "byte 0xc3" },
        { { .text = "abcdef\xed\xa0\x80xx" }, "byte 0xed" },
        { { .text = "\xc0\x80zzzzzz" }, "t.txt:1:1: byte 0xc0" },
        { { .text = "abcdefghij", .V = 9 },
          "10 characters, more than tokens: int in 0..9 (a.model:7) has room "
          "for; compile with gradcc -D V=10" },
        { { .text = "abc", .T = 8 }, "2 tokens to train on, one window takes 9" },
        { { .text = "abababab\xc3\xa9"
                    "abab",
            .vocab = "[\"a\",\"b\"]" },
          "t.txt:1:9: character U+00E9 ('\xc3\xa9') "
          "is not in the vocabulary of 2 characters" },
        { { .text = "ababab", .vocab = "[\"b\",\"a\"]" },
          "entry 1 is no single character in ascending order" },
        { { .text = "ababab", .vocab = "[\"ab\"]" }, "entry 0" },
        { { .text = "ababab", .vocab = "{" }, "no list" },
        { { .text = "abab\nabab", .val = "v.txt" }, "v.txt:2:3: character U+0071 ('q')" },
        { { .text = "abababab", .val = "v.txt" }, "v.txt:1:3: character U+000A is not" },
        { { .text = "abababab", .val = "none.txt" },
          "none.txt: no such file; --val-data FILE names" },
        { { .text = "abcdefghijk", .vocab_kind = "bytes", .V = 100 },
          "token 3 is 100, outside of tokens: int in "
          "0..100 (a.model:7)" },
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        expect_end(open_try, (void *)(uintptr_t)&all[i].try, RT_EXIT_FAIL, all[i].part);
}

/* What is written of bytes, one at a time; early: before the end is told. */
static void check_written(const char *bytes, size_t n, const char *early, const char *whole)
{
    char *text = NULL;
    size_t len;
    RtHeld held = { .n = 0 };
    FILE *out = open_memstream(&text, &len);
    for (size_t i = 0; i < n; i++)
        rt_utf8_write(&held, (uint8_t)bytes[i], out);
    fflush(out);
    assert_string_equal(text, early);
    rt_utf8_end(&held, out);
    fclose(out);
    assert_string_equal(text, whole);
    free(text);
}

#define BAD                          "\xef\xbf\xbd"
#define WRITTEN(bytes, early, whole) check_written(bytes, sizeof bytes - 1, early, whole)

static void characters_are_written_whole(void **unused)
{
    RT_UNUSED(unused);
    WRITTEN("a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80",
            "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
    WRITTEN("a\xf0\x9f\x98", "a", "a" BAD); /* cut short: one character */
    WRITTEN("\xe2\x82z", BAD "z", BAD "z"); /* what follows is no part of it */
    WRITTEN("\xe2\xc3\xa9", BAD "\xc3\xa9", BAD "\xc3\xa9");
    WRITTEN("\xff\xfe\x80", BAD BAD BAD, BAD BAD BAD);
    WRITTEN("\xc0\xaf", BAD BAD, BAD BAD); /* an overlong / */
    WRITTEN("\xe0\x80\xaf", BAD BAD BAD, BAD BAD BAD);
    WRITTEN("\xed\xa0\x80", BAD BAD BAD, BAD BAD BAD); /* half a surrogate pair */
    WRITTEN("\xf4\x90\x80\x80", BAD BAD BAD BAD, BAD BAD BAD BAD);
    WRITTEN("\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf");
    WRITTEN("\xed\x9f\xbf\xee\x80", "\xed\x9f\xbf", "\xed\x9f\xbf" BAD);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vocabulary_of_characters),
        cmocka_unit_test(bytes),
        cmocka_unit_test(training_windows_start_anywhere),
        cmocka_unit_test(validation_covers_every_target),
        cmocka_unit_test(wrong_texts),
        cmocka_unit_test(characters_are_written_whole),
    };
    return cmocka_run_group_tests_name("text", tests, NULL, NULL);
}
