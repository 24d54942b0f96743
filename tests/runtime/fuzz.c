/* fuzz.c -- readers on damaged input: never a crash, always an end, always a message.
 *
 * In: rounds and a seed. Every round takes one of a few good files, damages it (flips, cuts,
 * inserts, repeats, numbers at the edge) and opens it. rt_fail is replaced (ld --wrap) by a jump
 * back here. check_fuzz.sh builds this with the address and undefined-behaviour sanitizers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>

#include "fails.h"
#include "models.h"

#include "checkpoint/checkpoint.h"

static jmp_buf back;
static char message[8192];

void __wrap_rt_fail(int exit_code, const char *fmt, ...)
    __attribute__((noreturn, format(printf, 2, 3)));
void __wrap_rt_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

void __wrap_rt_fail(int exit_code, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    longjmp(back, exit_code ? exit_code : 1);
}

void __wrap_rt_warn(const char *fmt, ...) { RT_UNUSED(fmt); }

static uint64_t state;
static uint64_t draw(uint64_t n)
{
    state = rt_stream(state, 1);
    return n ? (state >> 16) % n : 0;
}

typedef enum { CSV, TEXT, TOKENS, TENSORS, MANIFEST, KINDS } Kind;

static const char *const paths[KINDS] = { "f.csv", "f.txt", "f.bin", "f.safetensors", "f.json" };

typedef struct {
    char at[4096];
    size_t n;
} File;

static void file_add(File *f, const void *data, size_t n)
{
    memcpy(f->at + f->n, data, n);
    f->n += n;
}

static File good_file(Kind kind)
{
    static const char *const texts[KINDS] = {
        [CSV] = "a,b,c,label\n1,-2.5e3,\"3\",0\r\n4,5,6,-1\n0.1,1e-3,7,3\n8,9,10,1\n",
        [TEXT] = "h\xc3\xa9llo \xf0\x9f\x98\x80 world, hello again\nand again\n",
        [TENSORS] = "{\"__metadata__\":{\"a\":\"b\"},\"x\":{\"dtype\":\"F32\",\"shape\":[2,3],"
                    "\"data_offsets\":[0,24]},"
                    "\"y\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[24,25]}}   ",
        [MANIFEST] = "{\"format\": \"gradcc checkpoint\", \"version\": 1, \"source\": \"a.model\", "
                     "\"source_crc\": \"00001234\","
                     "\"step\": 5, \"applied\": 5, \"skipped\": 0, \"samples\": 60, \"seed\": "
                     "\"1\", \"data_hash\": \"12\","
                     "\"best_val\": 1.5, \"vocab\": [\"a\"], \"config\": {}, \"files\": "
                     "{\"model.safetensors\": "
                     "{\"bytes\": 10, \"xxh3_128\": \"0123456789abcdef0123456789abcdef\"}}}",
    };
    File f = { .n = 0 };
    if (kind == TOKENS) {
        int32_t header[256] = { 20240520, 1, 60 };
        uint16_t ids[60];
        for (int i = 0; i < 60; i++)
            ids[i] = (uint16_t)(i % 50);
        file_add(&f, header, sizeof header);
        file_add(&f, ids, sizeof ids);
        return f;
    }
    const uint64_t n = strlen(texts[kind]);
    if (kind == TENSORS)
        file_add(&f, &n, 8);
    file_add(&f, texts[kind], n);
    if (kind == TENSORS)
        file_add(&f, "0123456789012345678901234", 25);
    return f;
}

static void damage(File *f)
{
    static const char *const edge[] = { "0",
                                        "-1",
                                        "4294967296",
                                        "9223372036854775807",
                                        "18446744073709551616",
                                        "1e400",
                                        "\"",
                                        "\n",
                                        "\r",
                                        ",",
                                        "{",
                                        "[",
                                        "]",
                                        "}",
                                        "\\u0000",
                                        "nan",
                                        "\xff",
                                        "" };
    const size_t at = draw(f->n), left = f->n - at;
    switch (draw(6)) {
    case 0: f->at[at] ^= (char)(1 << draw(8)); break;
    case 1: f->at[at] = (char)draw(256); break;
    case 2: f->n = at; break;
    case 3: {
        const char *text = edge[draw(sizeof edge / sizeof *edge)];
        const size_t n = strlen(text) < left ? strlen(text) : left;
        memcpy(f->at + at, text, n);
        break;
    }
    case 4: { /* a part once more */
        const size_t n = draw(left < 300 ? left : 300);
        if (f->n + n > sizeof f->at)
            break;
        memmove(f->at + at + n, f->at + at, left);
        f->n += n;
        break;
    }
    default: { /* a part less */
        const size_t n = draw(left < 40 ? left : 40);
        memmove(f->at + at, f->at + at + n, left - n);
        f->n -= n;
    }
    }
}

/* true: accepted */
static bool open_one(Kind kind)
{
    TestModel t;
    CkProblem problem;
    StFile f;
    CkManifest manifest;
    char hash[CK_HASH_TEXT];
    if (kind == TENSORS) {
        const bool good = st_open(&f, paths[kind], &problem) && st_read(&f, hash, &problem);
        st_close(&f);
        return good;
    }
    if (kind == MANIFEST) {
        const bool good = manifest_read(paths[kind], &manifest, &problem);
        rt_free((void *)(uintptr_t)manifest.c.vocab);
        rt_free((void *)(uintptr_t)manifest.c.config);
        return good;
    }
    if (kind == CSV)
        table_model(&t, paths[kind], true);
    else
        sequence_model(&t, kind == TEXT ? "text" : "tokens", paths[kind], 64);
    RtData *d = test_open(&t, 4, NULL);
    float x[16];
    int32_t y[16];
    void *inputs[2] = { kind == CSV ? (void *)x : (void *)y, y };
    for (int split = 0; split < 2; split++) {
        for (int64_t i = 0; i < rt_data_samples(d, split) && i < 20; i++)
            rt_data_fill(d, split, 1, i, 1, inputs);
        for (int i = 0; i < rt_data_tails(d, split); i++)
            if (rt_data_tail(d, split, i) > 0)
                rt_data_fill_tail(d, split, i, inputs);
    }
    rt_data_close(d);
    return true;
}

int main(int argc, char **argv)
{
    const long rounds = argc > 1 ? atol(argv[1]) : 1000;
    volatile long accepted = 0, refused = 0;
    state = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    rt_base_init();
    for (volatile long i = 0; i < rounds; i++) {
        const Kind kind = (Kind)draw(KINDS);
        File f = good_file(kind);
        for (uint64_t n = draw(4); n > 0 && f.n > 0; n--)
            damage(&f);
        put_file(paths[kind], f.at, f.n);
        message[0] = 0;
        if (setjmp(back) != 0)
            refused = refused + (message[0] != 0);
        else if (open_one(kind))
            accepted = accepted + 1;
        else
            refused = refused + 1;
    }
    printf("%ld accepted, %ld refused\n", accepted, refused);
    return accepted + refused == rounds && accepted > rounds / 10 && refused > rounds / 10 ? 0 : 1;
}
