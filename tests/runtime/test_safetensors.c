/* test_safetensors.c -- the container: every broken rule has its message, abuse ends soon. */
#include <fcntl.h>

#include "cm.h"
#include "fails.h"

#include "checkpoint/checkpoint.h"

/* A file with this header and n bytes of data; length: what the first 8 bytes say, 0 = the truth.
 */
static void put_tensors(const char *path, const char *header, size_t header_len, size_t n,
                        uint64_t length)
{
    const size_t head = header_len ? header_len : strlen(header);
    const uint64_t said = length ? length : head;
    char *file = calloc(1, 8 + head + n);
    memcpy(file, &said, 8);
    memcpy(file + 8, header, head);
    for (size_t i = 0; i < n; i++)
        file[8 + head + i] = (char)i;
    put_file(path, file, 8 + head + n);
    free(file);
}

static void write_and_read(void **unused)
{
    RT_UNUSED(unused);
    float a[6] = { 1, 2, 3, 4, 5, NAN }, b[1] = { 7 };
    CkTensor tensors[3] = {
        { .name = (char[]){ "a.\"x\"" },
          .rank = 2,
          .shape = { 2, 3 },
          .dtype = "F32",
          .at = a,
          .bytes = 24 },
        { .name = (char[]){ "b" }, .rank = 0, .dtype = "F32", .at = b, .bytes = 4 },
        { .name = (char[]){ "empty" },
          .rank = 1,
          .shape = { 0 },
          .dtype = "F32",
          .at = b,
          .bytes = 0 }
    };
    const CkList list = { .tensor = tensors, .n = 3 };
    const int fd = open("a.safetensors", O_WRONLY | O_CREAT | O_TRUNC, 0666);
    uint64_t bytes;
    char hash[CK_HASH_TEXT], again[CK_HASH_TEXT];
    assert_int_equal(st_write(fd, &list, "{\"k\":\"v\"}", &bytes, hash), 0);
    close(fd);
    StFile f;
    CkProblem problem;
    if (!st_open(&f, "a.safetensors", &problem))
        fail_msg("%s", problem.text);
    float to[6] = { 0 };
    assert_true(f.n == 3 && f.bytes == bytes && bytes % 4 == 0);
    assert_string_equal(f.tensor[0].name, "a.\"x\"");
    assert_true(f.tensor[0].rank == 2 && f.tensor[0].shape[1] == 3);
    f.tensor[0].to = to;
    assert_true(st_read(&f, again, &problem));
    assert_memory_equal(to, a, sizeof a);
    assert_string_equal(hash, again);
    st_close(&f);
}

static bool open_it(const char *path, CkProblem *problem)
{
    StFile f;
    char hash[CK_HASH_TEXT];
    const bool good = st_open(&f, path, problem) && st_read(&f, hash, problem);
    st_close(&f);
    return good;
}

static void what_others_write(void **unused)
{
    RT_UNUSED(unused);
    CkProblem problem;
    const char *const good[] = {
        "{}",
        "  {} \n",
        "{\"__metadata__\":{\"a\":\"b\"}}",
        "{\"x\":{\"dtype\":\"BF16\",\"shape\":[0,5],\"data_offsets\":[0,0]}}",
        "{\"x\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1],\"more\":1}}",
        "{\"y\":{\"dtype\":\"F4\",\"shape\":[2],\"data_offsets\":[1,2]},\"x\":{\"dtype\":\"U8\","
        "\"shape\":[1,1,1,1,1,1,1,1,1],"
        "\"data_offsets\":[0,1]}}",
    };
    const size_t bytes[] = { 0, 0, 0, 0, 1, 2 };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        put_tensors("g.safetensors", good[i], 0, bytes[i], 0);
        if (!open_it("g.safetensors", &problem))
            fail_msg("%s: %s", good[i], problem.text);
    }
}

#define ONE(dtype, shape, offsets)                                                                 \
    "{\"x\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"
#define TWO(from, to)                                                                              \
    "{\"x\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"                              \
    "\"y\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[" from "," to "]}}"

static void broken_rules(void **unused)
{
    RT_UNUSED(unused);
    const struct {
        const char *header;
        size_t len, data;
        uint64_t says;
        const char *part;
    } all[] = {
        { "{}", 0, 0, 3, "the header of 3 bytes is longer than the file of 10" },
        { "{}", 0, 0, UINT64_MAX, "a header of 18446744073709551615 bytes; at most 100000000" },
        { "{}", 0, 5, 0, "longer than its header says" },
        { "{\"x\":1}", 0, 0, 0, "tensor x is no object" },
        { "[1]", 0, 0, 0, "no JSON object" },
        { "{\"x\":", 0, 0, 0, "no JSON object" },
        { "{\"a\":\"\xff\"}", 0, 0, 0, "no valid UTF-8 at byte 14" },
        { "{\"a\":\"\\ud800\"}", 0, 0, 0, "no JSON object" },
        { "{\"a\":\"b\0c\"}", 11, 0, 0, "a NUL byte in the header, at byte 15" },
        { "{\"__metadata__\":{\"a\":1}}", 0, 0, 0, "__metadata__: the value of a is no string" },
        { "{\"__metadata__\":3}", 0, 0, 0, "__metadata__ is no object" },
        { "{\"__metadata__\":{},\"__metadata__\":{}}", 0, 0, 0, "duplicate object key" },
        { "{\"x\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"x\":{\"dtype\":\"U8\","
          "\"shape\":[1],"
          "\"data_offsets\":[0,1]}}",
          0, 1, 0, "duplicate object key" },
        { ONE("F99", "[1]", "[0,4]"), 0, 4, 0, "unknown dtype F99" },
        { ONE("F32", "[1]", "[0]"), 0, 4, 0, "two data_offsets are wanted" },
        { "{\"x\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 0, 4, 0,
          "dtype, shape and two data_offsets" },
        { ONE("F32", "[-1]", "[0,4]"), 0, 4, 0, "dim 0 of the shape is no size" },
        { ONE("F32", "[1.5]", "[0,4]"), 0, 4, 0, "dim 0 of the shape is no size" },
        { ONE("F32", "[1]", "[4,0]"), 0, 4, 0, "its data end before they begin" },
        { ONE("F32", "[1]", "[-4,0]"), 0, 4, 0, "its data end before they begin" },
        { ONE("F32", "[4294967296,4294967296,2]", "[0,4]"), 0, 4, 0,
          "the product of the shape overflows" },
        { ONE("F32", "[4611686018427387904]", "[0,4]"), 0, 4, 0, "its size in bits overflows" },
        { ONE("F32", "[99999999999999999999]", "[0,4]"), 0, 4, 0, "no JSON object" },
        { ONE("F4", "[3]", "[0,2]"), 0, 2, 0, "12 bits are no whole number of bytes" },
        { ONE("F32", "[2]", "[0,4]"), 0, 4, 0, "dtype and shape take 8 bytes, its data have 4" },
        { ONE("F32", "[1]", "[0,4]"), 0, 3, 0,
          "the tensors take 4 bytes, the file has 3: it is truncated" },
        { ONE("F32", "[1]", "[0,4]"), 0, 5, 0, "longer than its header says" },
        { ONE("F32", "[1]", "[4,8]"), 0, 8, 0, "its data begin at 4, wanted 0: a hole" },
        { TWO("2", "6"), 0, 6, 0, "tensor y: its data begin at 2, wanted 4: an overlap" },
        { TWO("0", "4"), 0, 4, 0, "tensor y: its data begin at 0, wanted 4: an overlap" },
        { TWO("6", "10"), 0, 10, 0, "tensor y: its data begin at 6, wanted 4: a hole" },
        { "{\"a\":[[[[[[[[[1]]]]]]]]]}", 0, 0, 0, "nests deeper than 8" },
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        CkProblem problem = { { 0 } };
        put_tensors("b.safetensors", all[i].header, all[i].len, all[i].data, all[i].says);
        if (open_it("b.safetensors", &problem) || !strstr(problem.text, all[i].part))
            fail_msg("%s\ngives   %s\nwanted  %s", all[i].header, problem.text, all[i].part);
    }
    CkProblem problem;
    put_file("short.safetensors", "abc", 3);
    assert_false(open_it("short.safetensors", &problem));
    assert_non_null(strstr(problem.text, "3 bytes; a safetensors file has at least 8"));
    assert_false(open_it(".", &problem));
    assert_false(open_it("none.safetensors", &problem));
}

static void open_more(void *unused)
{
    RT_UNUSED(unused);
    CkProblem problem;
    put_tensors("m.safetensors",
                "{\"x\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1],\"more\":1}}", 0, 1,
                0);
    _exit(open_it("m.safetensors", &problem) ? 0 : 1);
}

static void other_keys_are_ignored(void **unused)
{
    RT_UNUSED(unused);
    expect_end(open_more, NULL, 0, "tensor x has keys besides dtype, shape and data_offsets");
}

/* The data of a file whose header was fine cannot be read, or are gone. */
static void data_that_cannot_be_read(void **unused)
{
    RT_UNUSED(unused);
    CkProblem problem;
    StFile f;
    char hash[CK_HASH_TEXT];
    put_tensors("r.safetensors", ONE("U8", "[4]", "[0,4]"), 0, 4, 0);
    assert_true(st_open(&f, "r.safetensors", &problem));
    setenv("RT_FAULT", "io:read:1:EIO", 1);
    rt_base_init();
    assert_false(st_read(&f, hash, &problem));
    unsetenv("RT_FAULT");
    rt_base_init();
    st_close(&f);
    assert_non_null(strstr(problem.text, "r.safetensors: cannot be read at byte"));
    assert_true(st_open(&f, "r.safetensors", &problem));
    assert_int_equal(truncate("r.safetensors", 40), 0);
    assert_false(st_read(&f, hash, &problem));
    st_close(&f);
    assert_non_null(strstr(problem.text, ", while it is read"));
}

/* A header of millions of entries ends in an error before it is parsed. */
static void a_giant_header(void **unused)
{
    RT_UNUSED(unused);
    const size_t n = 60 << 20;
    char *header = malloc(n);
    header[0] = '{';
    size_t at = 1;
    for (int i = 0; at + 20 < n; i++)
        at += (size_t)sprintf(header + at, "%s\"%d\":0", i ? "," : "", i);
    header[at++] = '}';
    put_tensors("giant.safetensors", header, at, 0, 0);
    CkProblem problem;
    const double start = rt_now();
    assert_false(open_it("giant.safetensors", &problem));
    assert_non_null(strstr(problem.text, "more than 4000000 values"));
    assert_true(rt_now() - start < 10);
    free(header);
    unlink("giant.safetensors");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(write_and_read),
        cmocka_unit_test(what_others_write),
        cmocka_unit_test(broken_rules),
        cmocka_unit_test(other_keys_are_ignored),
        cmocka_unit_test(data_that_cannot_be_read),
        cmocka_unit_test(a_giant_header),
    };
    return cmocka_run_group_tests_name("safetensors", tests, NULL, NULL);
}
