/* test_shards.c -- token files of llm.c: several files, a share for validation, damaged headers. */
#include "cm.h"
#include "fails.h"
#include "models.h"

static void put_shard(const char *path, int32_t magic, int32_t version, int32_t count, int width,
                      int n, uint32_t first)
{
    unsigned char file[1024 + 4 * 200] = { 0 };
    const int32_t header[3] = { magic, version, count };
    memcpy(file, header, sizeof header);
    for (int i = 0; i < n; i++) {
        const uint32_t id = first + (uint32_t)i;
        memcpy(file + 1024 + i * width, &id, (size_t)width);
    }
    put_file(path, file, 1024 + (size_t)(n * width));
}

static void put_good(const char *path, int n, uint32_t first)
{
    put_shard(path, 20240520, 1, n, 2, n, first);
}

static void windows_stay_in_their_file(void **unused)
{
    RT_UNUSED(unused);
    TestModel t;
    put_good("train_0.bin", 10, 0);
    put_good("train_1.bin", 3, 100); /* too short for a window */
    put_good("train_2.bin", 12, 200);
    put_good("val.bin", 9, 50);
    sequence_model(&t, "tokens", "train_*.bin", 1000);
    t.m.train.val_path = "val.bin";
    RtData *d = test_open(&t, 4, NULL);
    assert_int_equal(rt_data_samples(d, RT_SPLIT_TRAIN), 6 + 8);
    assert_int_equal(rt_data_samples(d, RT_SPLIT_VAL), 2);
    assert_int_equal(rt_data_tail(d, RT_SPLIT_VAL, 0), 0);
    int32_t tokens[14 * 4], targets[14 * 4], count[2] = { 0 };
    void *inputs[2] = { tokens, targets };
    rt_data_fill(d, RT_SPLIT_TRAIN, 5, 0, 14, inputs);
    for (int i = 0; i < 14; i++) {
        assert_true(tokens[4 * i] < 100 || tokens[4 * i] >= 200);
        count[tokens[4 * i] >= 200]++;
        for (int k = 0; k < 4; k++)
            assert_true(tokens[4 * i + k] == tokens[4 * i] + k
                        && targets[4 * i + k] == tokens[4 * i] + k + 1);
    }
    assert_true(count[0] == 6 && count[1] == 8);
    assert_null(rt_data_vocab(d));
    assert_null(rt_data_decode(d, 3));
    rt_data_close(d);
}

static void a_share_validates(void **unused)
{
    RT_UNUSED(unused);
    TestModel t;
    put_good("one_0.bin", 40, 0);
    put_good("one_1.bin", 60, 40); /* 100 tokens: the last 20 validate */
    sequence_model(&t, "tokens", "one_*.bin", 100);
    RtData *d = test_open(&t, 4, NULL);
    int32_t tokens[8], targets[8];
    void *inputs[2] = { tokens, targets };
    assert_int_equal(rt_data_samples(d, RT_SPLIT_TRAIN), 36 + 36);
    assert_int_equal(rt_data_samples(d, RT_SPLIT_VAL), 4);
    rt_data_fill(d, RT_SPLIT_VAL, 5, 0, 2, inputs);
    assert_true(tokens[0] == 80 && targets[3] == 84 && tokens[4] == 84);
    assert_int_equal(rt_data_tail(d, RT_SPLIT_VAL, 0), 3);
    rt_data_fill_tail(d, RT_SPLIT_VAL, 0, inputs);
    assert_true(tokens[0] == 96 && targets[2] == 99);
    rt_data_close(d);
}

/* Each token that follows another one of its file is a target once; files of all lengths. */
static void every_target_of_every_file_validates_once(void **unused)
{
    RT_UNUSED(unused);
    static const int lengths[] = { 0, 1, 2, 3, 4, 5, 6, 9, 12, 13 };
    enum { FILES = sizeof lengths / sizeof *lengths };
    TestModel t;
    put_good("all_train.bin", 30, 0);
    for (int i = 0; i < FILES; i++) {
        char path[32];
        snprintf(path, sizeof path, "all_val_%02d.bin", i);
        put_good(path, lengths[i], (uint32_t)(100 * i));
    }
    sequence_model(&t, "tokens", "all_train.bin", 1000);
    t.m.train.val_path = "all_val_*.bin";
    RtData *d = test_open(&t, 4, NULL);
    int32_t tokens[4], targets[4], seen[100 * FILES] = { 0 };
    void *inputs[2] = { tokens, targets };
    const int whole = (int)rt_data_samples(d, RT_SPLIT_VAL);
    assert_int_equal(whole, 1 + 1 + 2 + 2 + 3);
    assert_int_equal(rt_data_tails(d, RT_SPLIT_VAL), FILES);
    for (int i = 0; i < whole + FILES; i++) {
        ptrdiff_t n = i < whole ? 4 : rt_data_tail(d, RT_SPLIT_VAL, i - whole);
        if (n > 0 && i < whole)
            rt_data_fill(d, RT_SPLIT_VAL, 5, i, 1, inputs);
        else if (n > 0)
            rt_data_fill_tail(d, RT_SPLIT_VAL, i - whole, inputs);
        while (n-- > 0) {
            assert_int_equal(tokens[n] + 1, targets[n]);
            seen[targets[n]]++;
        }
    }
    for (int id = 0; id < 100 * FILES; id++)
        assert_int_equal(seen[id], id % 100 > 0 && id % 100 < lengths[id / 100]);
    rt_data_close(d);
}

static void wide_tokens(void **unused)
{
    RT_UNUSED(unused);
    TestModel t;
    put_shard("wide.bin", 20240801, 7, 50, 4, 50, 100000);
    sequence_model(&t, "tokens", "wide.bin", 128256);
    RtData *d = test_open(&t, 4, NULL);
    int32_t tokens[4], targets[4];
    void *inputs[2] = { tokens, targets };
    rt_data_fill(d, RT_SPLIT_VAL, 5, 0, 1, inputs);
    assert_true(tokens[0] == 100040 && targets[3] == 100044);
    rt_data_close(d);
}

static void open_bad(void *path)
{
    TestModel t;
    sequence_model(&t, "tokens", path, 100);
    rt_data_close(test_open(&t, 4, NULL));
}

static void open_unranged(void *unused)
{
    RT_UNUSED(unused);
    TestModel t;
    sequence_model(&t, "tokens", "huge.bin", 100);
    t.inputs[0].ranged = t.inputs[1].ranged = false;
    rt_data_close(test_open(&t, 4, NULL));
}

static void wrong_files(void **unused)
{
    RT_UNUSED(unused);
    put_file("short.bin", "abc", 3);
    put_shard("magic.bin", 7, 1, 20, 2, 20, 0);
    put_shard("version.bin", 20240520, 2, 20, 2, 20, 0);
    put_shard("cut.bin", 20240520, 1, 21, 2, 20, 0);
    put_shard("long.bin", 20240520, 1, 19, 2, 20, 0);
    put_shard("negative.bin", 20240520, 1, -5, 2, 20, 0);
    put_shard("model.bin", 20240326, 3, 20, 2, 20, 0);
    put_shard("eval.bin", 20240522, 1, 20, 2, 20, 0);
    put_good("range.bin", 30, 80);
    put_good("tiny.bin", 4, 0);
    const struct {
        const char *path, *part;
    } all[] = {
        { "none_*.bin", "none_*.bin: no such file" },
        { "short.bin", "3 bytes; the header of a token file" },
        { "magic.bin", "it starts with 7, wanted 20240520" },
        { "version.bin", "version 2 of a GPT-2 token file; version 1 is wanted" },
        { "cut.bin",
          "promises 21 tokens of 2 bytes, the file has 40 bytes of tokens: it is truncated" },
        { "long.bin", "it is longer" },
        { "negative.bin", "truncated" },
        { "model.bin", "a model of llm.c" },
        { "eval.bin", "an evaluation file (HellaSwag)" },
        { "range.bin",
          "range.bin: token 20 is 100, outside of tokens: int in 0..100 (a.model:7); compile with "
          "gradcc -D V=101" },
        { "tiny.bin", "3 tokens to train on, one window takes 5" },
        { ".", "is no regular file" },
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        expect_end(open_bad, (void *)(uintptr_t)all[i].path, RT_EXIT_FAIL, all[i].part);
    put_shard("huge.bin", 20240801, 7, 20, 4, 20, UINT32_MAX - 40);
    expect_end(open_unranged, NULL, RT_EXIT_FAIL, "huge.bin: a token is larger than 2147483647");
}

/* The file is overwritten while it is mapped: ids are looked at again when they are used. */
static void fill_changed(void *unused)
{
    RT_UNUSED(unused);
    TestModel t;
    put_good("changing.bin", 50, 0);
    sequence_model(&t, "tokens", "changing.bin", 100);
    RtData *d = test_open(&t, 4, NULL);
    FILE *f = fopen("changing.bin", "r+b");
    const uint16_t bad = 5000;
    for (int i = 0; i < 50 && f; i++) {
        fseek(f, 1024 + 2 * i, SEEK_SET);
        fwrite(&bad, 2, 1, f);
    }
    fclose(f);
    int32_t tokens[4], targets[4];
    void *inputs[2] = { tokens, targets };
    rt_data_fill(d, RT_SPLIT_VAL, 5, 0, 1, inputs);
}

static void a_file_that_changes(void **unused)
{
    RT_UNUSED(unused);
    expect_end(fill_changed, NULL, RT_EXIT_FAIL, "is 5000, outside of tokens");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_stay_in_their_file),
        cmocka_unit_test(a_share_validates),
        cmocka_unit_test(every_target_of_every_file_validates_once),
        cmocka_unit_test(wide_tokens),
        cmocka_unit_test(wrong_files),
        cmocka_unit_test(a_file_that_changes),
    };
    return cmocka_run_group_tests_name("shards", tests, NULL, NULL);
}
