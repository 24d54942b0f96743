/* test_base.c -- memory, files and faults on demand. Messages of rt_fail are tested by scripts. */
#include <errno.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include "cm.h"
#include "run.h"

static void set_fault(const char *text)
{
    if (text)
        setenv("RT_FAULT", text, 1);
    else
        unsetenv("RT_FAULT");
    rt_base_init();
}

static void write_gzip(const char *path, const char *text, const char *mode)
{
    gzFile f = gzopen(path, mode);
    assert_non_null(f);
    assert_int_equal(gzwrite(f, text, (unsigned)strlen(text)), (int)strlen(text));
    assert_int_equal(gzclose(f), Z_OK);
}

static void memory_is_aligned_and_zero(void **unused)
{
    RT_UNUSED(unused);
    for (size_t n = 0; n < 300; n += 7) {
        unsigned char *at = rt_alloc(n, "a test");
        assert_int_equal((uintptr_t)at % RT_ALIGN, 0);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(at[i], 0);
        memset(at, 1, n);
        rt_free(at);
    }
    assert_null(rt_mem.alloc(SIZE_MAX - 8));
    rt_free(NULL);
}

static void files_come_back(void **unused)
{
    RT_UNUSED(unused);
    char text[10000];
    size_t len;
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)(i * 7);
    assert_int_equal(rt_write_atomic("a.bin", text, sizeof text), 0);
    char *back = rt_read_file("a.bin", 1 << 20, &len);
    assert_int_equal(len, sizeof text);
    assert_memory_equal(back, text, len);
    assert_int_equal(back[len], 0);
    rt_free(back);
    assert_int_equal(rt_write_atomic("empty", "", 0), 0);
    back = rt_read_file("empty", 100, &len);
    assert_int_equal(len, 0);
    rt_free(back);
}

static void gzip_is_expanded(void **unused)
{
    RT_UNUSED(unused);
    size_t len;
    write_gzip("b.gz", "one,two\n", "wb");
    write_gzip("b.gz", "three\n", "ab"); /* a second member */
    char *back = rt_read_file("b.gz", 1 << 20, &len);
    assert_string_equal(back, "one,two\nthree\n");
    rt_free(back);
    back = rt_read_file("/dev/null", 10, &len);
    assert_int_equal(len, 0);
    rt_free(back);
}

/* Runs f in a child; its exit code, and what it wrote to stderr. */
static int child(void (*f)(void), char *said, size_t cap)
{
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        dup2(pipes[1], STDERR_FILENO);
        f();
        _exit(0);
    }
    close(pipes[1]);
    size_t n = 0;
    ssize_t got;
    while (n + 1 < cap && (got = read(pipes[0], said + n, cap - 1 - n)) > 0)
        n += (size_t)got;
    said[n] = 0;
    close(pipes[0]);
    int status;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void read_missing(void)
{
    size_t n;
    rt_read_file("missing", 10, &n);
}
static void read_folder(void)
{
    size_t n;
    rt_read_file(".", 10, &n);
}
static void read_large(void)
{
    size_t n;
    rt_read_file("a.bin", 10, &n);
}
static void read_cut(void)
{
    size_t n;
    rt_read_file("cut.gz", 100000, &n);
}
static void read_no_gzip(void)
{
    size_t n;
    rt_read_file("no.gz", 100000, &n);
}
static void read_bomb(void)
{
    size_t n;
    rt_read_file("bomb.gz", 1000, &n);
}
static void read_broken(void)
{
    size_t n;
    rt_read_file("broken.gz", 100000, &n);
}
static void read_failing(void)
{
    size_t n;
    set_fault("io:read:2:EIO");
    rt_read_file("bomb.gz", 100000, &n);
}
static void too_much(void) { rt_alloc((size_t)1 << 60, "the arena"); }
static void bad_fault(void) { set_fault("io:frobnicate:1:EIO"); }
static void bad_fault_number(void) { set_fault("io:read:0:EIO"); }
static void bad_fault_error(void) { set_fault("io:read:1:EWHAT"); }
static void bad_fault_form(void) { set_fault("disk:1"); }
static void long_fault(void)
{
    char text[400];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    set_fault(text);
}
static void killed(void)
{
    set_fault("io:kill:3");
    rt_write_atomic("k.bin", "abc", 3);
}

static void failures_say_why(void **unused)
{
    RT_UNUSED(unused);
    char said[2000];
    char zeros[5000] = { 0 };
    memset(zeros, 'a', sizeof zeros - 1);
    write_gzip("bomb.gz", zeros, "wb");
    write_gzip("cut.gz", "a text that is cut in the middle of its data 1234567890", "wb");
    assert_int_equal(truncate("cut.gz", 30), 0);
    assert_int_equal(rt_write_atomic("no.gz", "plain text", 10), 0);
    const char head[] = "\x1f\x8b\x08\0\0\0\0\0\0\x03\xff\xff\xff\xff"; /* no block follows */
    assert_int_equal(rt_write_atomic("broken.gz", head, sizeof head), 0);
    const struct {
        void (*f)(void);
        int code;
        const char *text;
    } cases[] = {
        { read_missing, 1, "missing: cannot be opened: No such file" },
        { read_folder, 1, "is a directory" },
        { read_large, 1, "larger than the limit of 10 bytes" },
        { read_cut, 1, "the file is truncated" },
        { read_no_gzip, 1, "no gzip file" },
        { read_bomb, 1, "larger than the limit" },
        { read_broken, 1, "broken.gz: damaged gzip data near byte" },
        { read_failing, 1, "bomb.gz: cannot be read at byte" },
        { too_much, 1, " for the arena; " },
        { bad_fault, 2, "unknown operation 'frobnicate'" },
        { bad_fault_number, 2, "RT_FAULT: '0' is no positive number" },
        { bad_fault_error, 2, "RT_FAULT: unknown error 'EWHAT'" },
        { bad_fault_form, 2, "RT_FAULT: 'disk' is none of alloc:N, io:CALL:N:ERRNO" },
        { long_fault, 2, "RT_FAULT is longer than 255 bytes" },
        { killed, -9, "" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(child(cases[i].f, said, sizeof said), cases[i].code);
        if (!strstr(said, cases[i].text))
            fail_msg("said '%s', wanted '%s'", said, cases[i].text);
    }
}

static void short_and_interrupted_calls_do_no_harm(void **unused)
{
    RT_UNUSED(unused);
    size_t len;
    set_fault("io:short,io:eintr");
    assert_int_equal(rt_write_atomic("c.bin", "0123456789", 10), 0);
    char *back = rt_read_file("c.bin", 100, &len);
    assert_int_equal(len, 10);
    assert_string_equal(back, "0123456789");
    rt_free(back);
    set_fault(NULL);
}

/* Every operation of an atomic write fails in turn: the old text or the new one is there, never
   a part, and no temporary file stays. */
static void a_write_is_whole_or_absent(void **unused)
{
    RT_UNUSED(unused);
    size_t len;
    assert_int_equal(rt_write_atomic("d.bin", "old", 3), 0);
    for (int n = 1;; n++) {
        char fault[64], part[64];
        snprintf(fault, sizeof fault, "io:any:%d:ENOSPC", n);
        set_fault(fault);
        const int failed = rt_write_atomic("d.bin", "newer", 5), error = errno;
        set_fault(NULL);
        snprintf(part, sizeof part, "d.bin.tmp-%ld", (long)getpid());
        assert_int_not_equal(access(part, F_OK), 0);
        char *back = rt_read_file("d.bin", 100, &len);
        if (failed) {
            assert_int_equal(error, ENOSPC);
            assert_true(strcmp(back, "old") == 0 || strcmp(back, "newer") == 0);
        } else {
            assert_string_equal(back, "newer");
        }
        rt_free(back);
        if (!failed && n > 8)
            break;
        if (!failed)
            continue;
        assert_int_equal(rt_write_atomic("d.bin", "old", 3), 0);
    }
}

static void texts(void **unused)
{
    RT_UNUSED(unused);
    char text[RT_BYTES_TEXT];
    assert_string_equal(rt_bytes(12, text), "12 bytes");
    assert_string_equal(rt_bytes(1536, text), "1.5 KiB");
    assert_string_equal(rt_bytes(498.0 * 1024 * 1024, text), "498 MiB");
    char *made = rt_printf("%s-%d", "step", 7);
    assert_string_equal(made, "step-7");
    rt_free(made);
    assert_true(rt_memory_free() > 0 && rt_memory_peak() > 0);
}

int main(void)
{
    set_fault(NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_aligned_and_zero),
        cmocka_unit_test(files_come_back),
        cmocka_unit_test(gzip_is_expanded),
        cmocka_unit_test(failures_say_why),
        cmocka_unit_test(short_and_interrupted_calls_do_no_harm),
        cmocka_unit_test(a_write_is_whole_or_absent),
        cmocka_unit_test(texts),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
