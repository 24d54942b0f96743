/* test_checkpoint.c -- whole checkpoints: exact, kept, never lost to a fault, a kill or damage. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "cm.h"
#include "fails.h"
#include "run.h"

enum { ELEMS = 80 };

static const RtParam params[] = {
    { .path = "b", .rank = 1, .shape = { 5 }, .at = 0, .where = "a.model:1" },
    { .path = "h.*.w",
      .rank = 2,
      .shape = { 3, 4 },
      .at = 5,
      .n_stacks = 1,
      .stack = { { 3, 20 } },
      .where = "a.model:2" },
    { .path = "h.*.s",
      .rank = 0,
      .at = 17,
      .n_stacks = 1,
      .stack = { { 3, 20 } },
      .where = "a.model:3" },
};
static const RtModel model = { .name = "a",
                               .source = "a.model",
                               .source_crc = 0x1234,
                               .real = RT_F32,
                               .params = params,
                               .n_params = 3,
                               .n_elems = ELEMS };

typedef struct {
    float p[ELEMS], m[ELEMS], v[ELEMS];
} Buffers;

static void fill(Buffers *b, int64_t step)
{
    for (int i = 0; i < ELEMS; i++) {
        b->p[i] = (float)(step * 1000 + i);
        b->m[i] = b->p[i] / 3;
        b->v[i] = i == 0 ? (float)NAN : -b->p[i] / 7;
    }
}

static int save_at(const char *dir, int64_t step, int64_t keep)
{
    Buffers b;
    fill(&b, step);
    const RtStateTensor state[2] = { { "m", b.m, NULL, NULL }, { "v", b.v, NULL, NULL } };
    const RtCheckpoint c = { .step = step,
                             .applied = step - 1,
                             .skipped = 1,
                             .samples = step * 12,
                             .seed = UINT64_MAX - 1,
                             .data_hash = 0xfedcba9876543210u,
                             .best_val = 1.0 / 3,
                             .scale = 512,
                             .tracker = 7,
                             .stuck = 2,
                             .vocab = "[\"\\u0000\",\"\\\"\",\"é\"]",
                             .config = "{\"lr\":0.001}" };
    return rt_checkpoint_save(dir, &model, b.p, state, 2, &c, keep);
}

/* The step that is loaded, after checking that every tensor and number is of that step; -1: none.
 */
static int64_t load_from(const char *path)
{
    Buffers b = { .p = { 0 } }, want;
    RtStateTensor state[2] = { { "m", b.m, NULL, NULL }, { "v", b.v, NULL, NULL } };
    RtCheckpoint c;
    const char *dir = rt_checkpoint_load(path, &model, b.p, state, 2, &c);
    if (!dir)
        return -1;
    fill(&want, c.step);
    for (int i = 0; i < ELEMS; i++) {
        const bool gap = i == 18 + 0 || (i >= 18 && (i - 5) % 20 >= 13) || i >= 58;
        if (!gap
            && (memcmp(&b.p[i], &want.p[i], 4) || memcmp(&b.m[i], &want.m[i], 4)
                || memcmp(&b.v[i], &want.v[i], 4)))
            fail_msg("%s: element %d", dir, i);
    }
    assert_true(c.applied == c.step - 1 && c.skipped == 1 && c.samples == c.step * 12);
    assert_true(c.seed == UINT64_MAX - 1 && c.data_hash == 0xfedcba9876543210u
                && c.best_val == 1.0 / 3 && c.scale == 512 && c.tracker == 7 && c.stuck == 2);
    assert_string_equal(c.vocab, "[\"\\u0000\",\"\\\"\",\"é\"]");
    assert_non_null(strstr(c.config, "\"lr\""));
    rt_free((void *)(uintptr_t)c.vocab);
    rt_free((void *)(uintptr_t)c.config);
    rt_free((void *)(uintptr_t)dir);
    return c.step;
}

static void empty(const char *dir)
{
    char command[200];
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    if (system(command) != 0)
        abort();
}

static int entries(const char *dir)
{
    int n = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d))
        n += e->d_name[0] != '.';
    if (d)
        closedir(d);
    return n;
}

/* ---- */

static void what_is_saved_comes_back(void **unused)
{
    RT_UNUSED(unused);
    empty("run");
    assert_false(rt_checkpoint_exists("run"));
    assert_int_equal(load_from("run"), -1);
    assert_int_equal(save_at("run", 10, 2), 0);
    assert_true(rt_checkpoint_exists("run"));
    assert_int_equal(load_from("run"), 10);
    assert_int_equal(load_from("run/step-00000010"), 10);
    assert_int_equal(save_at("run", 10, 2), 0); /* the same step again */
    assert_int_equal(entries("run"), 1);
    assert_int_equal(load_from("run"), 10);
}

static void parameters_alone(void **unused)
{
    RT_UNUSED(unused);
    float p[ELEMS] = { 0 };
    RtCheckpoint c;
    empty("run");
    save_at("run", 7, 2);
    const char *dir = rt_checkpoint_load("run", &model, p, NULL, 0, &c);
    assert_string_equal(dir, "run/step-00000007");
    assert_true(p[3] == 7003 && p[18 - 1 + 20] == 7037);
}

static void old_ones_go(void **unused)
{
    RT_UNUSED(unused);
    empty("run");
    for (int64_t step = 1; step <= 5; step++)
        save_at("run", step, 3);
    assert_int_equal(entries("run"), 3);
    assert_int_equal(load_from("run"), 5);
    assert_int_equal(load_from("run/step-00000003"), 3);
    empty("run");
    for (int64_t step = 1; step <= 5; step++)
        save_at("run", step, 0); /* 0: all are kept */
    assert_int_equal(entries("run"), 5);
    save_at("run", 3, 1); /* later ones are not of this run: kept */
    assert_int_equal(entries("run"), 3);
}

/* ---- damage ---------------------------------------------------------------------------------- */

typedef struct {
    const char *path;
    int64_t got;
} LoadTry;

static void load_child(void *arg) { _exit((int)load_from(((LoadTry *)arg)->path) & 0x7f); }

static void damage(const char *path, int kind)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    const int fd = open(path, O_RDWR);
    char byte;
    assert_true(fd >= 0);
    if (kind < 0) {
        assert_int_equal(unlink(path), 0);
    } else if (kind == 101) {
        assert_int_equal(ftruncate(fd, st.st_size / 2), 0);
    } else if (kind == 102) {
        assert_int_equal(ftruncate(fd, st.st_size + 3), 0);
    } else {
        const off_t at = st.st_size * kind / 100;
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        byte ^= 4;
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    }
    close(fd);
}

static void damage_is_noticed(void **unused)
{
    RT_UNUSED(unused);
    const char *const files[] = { "run/step-00000020/model.safetensors",
                                  "run/step-00000020/optimizer.safetensors" };
    const int kinds[] = { -1, 0, 1, 5, 20, 40, 60, 70, 80, 90, 99, 101, 102 };
    for (size_t f = 0; f < 2; f++)
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            empty("run");
            save_at("run", 10, 5);
            save_at("run", 20, 5);
            damage(files[f], kinds[k]);
            LoadTry try = { .path = "run" };
            expect_end(load_child, &try, 10, "going back to the one before it");
            try.path = "run/step-00000020"; /* asked for by name: no other is taken */
            expect_end(load_child, &try, RT_EXIT_FAIL, "run/step-00000020");
        }
    damage("run/step-00000010/model.safetensors", 99);
    LoadTry try = { .path = "run" };
    expect_end(load_child, &try, RT_EXIT_FAIL, "none of its 2 checkpoints can be used");
    expect_end(load_child, &try, RT_EXIT_FAIL, "there is none before it");
    expect_end(load_child, &try, RT_EXIT_FAIL, "model.safetensors: damaged: its hash is");
}

/* The one before a step that turned out to be damaged stays until there is a newer one. */
static void the_replaced_one_is_kept(void **unused)
{
    RT_UNUSED(unused);
    const char *old = "run/step-00000010.replaced";
    empty("run");
    empty("other");
    assert_int_equal(save_at("run", 10, 1) | save_at("other", 10, 1), 0);
    assert_int_equal(rename("other/step-00000010", old), 0);
    damage("run/step-00000010/model.safetensors", 101);
    rt_checkpoint_clean("run", old);
    assert_int_equal(entries("run"), 2);
    assert_int_equal(load_from("run"), 10);
    assert_int_equal(save_at("run", 20, 1), 0);
    assert_int_equal(entries("run"), 1);
    assert_int_equal(load_from("run"), 20);
}

static void unreadable(void *unused)
{
    RT_UNUSED(unused);
    const struct rlimit none = { 3, 3 }; /* no file descriptor is left */
    if (setrlimit(RLIMIT_NOFILE, &none) != 0)
        exit(7);
    exit(rt_checkpoint_exists("run") ? 6 : 5);
}

static void a_directory_that_cannot_be_read(void **unused)
{
    RT_UNUSED(unused);
    empty("run");
    assert_int_equal(save_at("run", 10, 1), 0);
    const Ended ended = run_child(unreadable, NULL);
    assert_int_equal(ended.exit_code, RT_EXIT_FAIL);
    assert_non_null(strstr(ended.text, "run: its checkpoints cannot be listed"));
}

static void a_damaged_manifest(void **unused)
{
    RT_UNUSED(unused);
    for (int kind = 1; kind <= 101; kind += 20) {
        empty("run");
        save_at("run", 10, 5);
        save_at("run", 20, 5);
        damage("run/step-00000020/manifest.json", kind);
        LoadTry try = { .path = "run" };
        const Ended ended = run_child(load_child, &try);
        assert_true(ended.exit_code == 10 || ended.exit_code == 20
                    || ended.exit_code == RT_EXIT_FAIL);
        assert_int_equal(ended.signal, 0);
    }
    empty("run");
    save_at("run", 10, 5);
    save_at("run", 20, 5);
    unlink("run/step-00000020/manifest.json"); /* not complete: not a checkpoint */
    assert_int_equal(load_from("run"), 10);
}

/* The newest manifest with `from` replaced by as many letters of `to`. */
static void change_manifest(const char *from, const char *to)
{
    size_t n;
    char *text = rt_read_file("run/step-00000010/manifest.json", 100000, &n);
    char *at = strstr(text, from);
    assert_true(at && strlen(from) == strlen(to));
    memcpy(at, to, strlen(to));
    put_file("run/step-00000010/manifest.json", text, n);
    rt_free(text);
}

static void load_faulty(void *fault)
{
    setenv("RT_FAULT", fault, 1);
    rt_base_init();
    _exit((int)load_from("run/step-00000010"));
}

static void a_wrong_manifest(void **unused)
{
    RT_UNUSED(unused);
    const char *const all[][3] = {
        { "\"gradcc checkpoint\"", "\"another program's\"", "no manifest of a gradcc checkpoint" },
        { "\"version\": 1", "\"version\": 9", "format version 9; this program reads version 1" },
        { "\"files\"", "\"flies\"", "manifest.json: it lists no files" },
        { "\"optimizer.saf", "\"optimiser.saf",
          "the manifest does not list optimizer.safetensors" },
        { "\"bytes\"", "\"bites\"", "the entry of file" },
        { "\"step\"", "\"stop\"", "step is missing or no count" },
        { "\"seed\"", "\"seat\"", "seed is missing or no number" },
        { "\"loss_scale\": 512", "\"loss_scale\": -12", "loss_scale is missing or below 0" },
        { "\"loss_scale\"", "\"loss_scene\"", "loss_scale is missing or below 0" },
        { "\"scale_tracker\"", "\"scale_tricker\"", "scale_tracker is missing or no count" },
        { "\"skips_in_row\": 2", "\"skips_in_row\": x", "manifest.json:" },
    };
    LoadTry try = { .path = "run/step-00000010" };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        empty("run");
        save_at("run", 10, 5);
        change_manifest(all[i][0], all[i][1]);
        expect_end(load_child, &try, RT_EXIT_FAIL, all[i][2]);
    }
    empty("run");
    save_at("run", 10, 5);
    char fault[] = "io:read:1:EIO";
    expect_end(load_faulty, fault, RT_EXIT_FAIL, "manifest.json: cannot be read: ");
}

static void clean_faulty(void *unused)
{
    RT_UNUSED(unused);
    setenv("RT_FAULT", "io:unlink:1+:EIO", 1);
    rt_base_init();
    rt_checkpoint_clean("run", NULL);
}

static void a_rest_that_cannot_be_removed(void **unused)
{
    RT_UNUSED(unused);
    empty("run");
    save_at("run", 10, 5);
    assert_int_equal(rename("run/step-00000010", "run/step-00000010.tmp-1"), 0);
    expect_end(clean_faulty, NULL, 0, "left over from an interrupted run, cannot be removed: ");
}

/* ---- another model --------------------------------------------------------------------------- */

static void load_other(void *unused)
{
    RT_UNUSED(unused);
    static const RtParam other[] = {
        { .path = "b", .rank = 1, .shape = { 6 }, .at = 0 },
        { .path = "h.*.w",
          .rank = 2,
          .shape = { 3, 4 },
          .at = 6,
          .n_stacks = 1,
          .stack = { { 2, 12 } } },
        { .path = "new", .rank = 0, .at = 30 },
    };
    RtModel m = model;
    m.params = other;
    Buffers b;
    RtStateTensor state[2] = { { "m", b.m, NULL, NULL }, { "v", b.v, NULL, NULL } };
    RtCheckpoint c;
    rt_checkpoint_load("run", &m, b.p, state, 2, &c);
}

static void load_double(void *unused)
{
    RT_UNUSED(unused);
    RtModel m = model;
    m.real = RT_F64;
    double p[ELEMS];
    RtCheckpoint c;
    rt_checkpoint_load("run", &m, p, NULL, 0, &c);
}

static void all_differences_at_once(void **unused)
{
    RT_UNUSED(unused);
    empty("run");
    save_at("run", 10, 5);
    const Ended ended = run_child(load_other, NULL);
    const char *const parts[] = {
        "run/step-00000010: the checkpoint is of another model: of a (a.model) with other "
        "parameters",
        "the model has, the checkpoint has not (3):",
        "new F32[]",
        "m.new F32[]",
        "the checkpoint has, the model has not (12):",
        "h.2.w F32[3,4]",
        "m.h.0.s F32[]",
        "changed (3):",
        "b is F32[6], saved as F32[5]",
        "v.b is",
    };
    assert_int_equal(ended.exit_code, RT_EXIT_FAIL);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strstr(ended.text, parts[i]))
            fail_msg("%s\nhas no '%s'", ended.text, parts[i]);
    expect_end(load_double, NULL, RT_EXIT_FAIL, "b is F64[5], saved as F32[5]");
}

/* ---- faults ---------------------------------------------------------------------------------- */

static void save_child(void *fault)
{
    setenv("RT_FAULT", fault, 1);
    rt_base_init();
    const int failed = save_at("run", 20, 1);
    _exit(failed ? 3 : 0);
}

/* After whatever happened: step 10 or step 20 is there, whole, and the next save works. */
static void check_after(const char *fault, const Ended *ended)
{
    const int64_t got = load_from("run");
    if (!(got == 20 || (got == 10 && (ended->exit_code == 3 || ended->signal == SIGKILL))))
        fail_msg("%s: exit %d signal %d, then loaded %lld: %s", fault, ended->exit_code,
                 ended->signal, (long long)got, ended->text);
    if (ended->exit_code == 3
        && !strstr(ended->text,
                   got == 20 ? "the checkpoint was saved, but" : "no checkpoint was saved"))
        fail_msg("%s: no message: %s", fault, ended->text);
    rt_checkpoint_clean("run", NULL);
    assert_int_equal(load_from("run"), got);
    assert_int_equal(save_at("run", 30, 1), 0);
    assert_int_equal(load_from("run"), 30);
    assert_int_equal(entries("run"), 1);
}

static int try_fault(const char *fault, int64_t before)
{
    empty("run");
    assert_int_equal(save_at("run", before, 1), 0);
    const Ended ended = run_child(save_child, (void *)(uintptr_t)fault);
    if (before == 10)
        check_after(fault, &ended);
    return ended.signal == SIGKILL ? 4 : ended.exit_code;
}

static void every_operation_fails_once(void **unused)
{
    RT_UNUSED(unused);
    const char *const forms[] = { "io:any:%d:ENOSPC", "io:any:%d+:EIO", "alloc:%d", "alloc:%d+" };
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
        int n = 1, failures = 0;
        for (int calm = 0; calm < 4 && n < 400; n++) { /* until the run is through untouched */
            char fault[64];
            snprintf(fault, sizeof fault, forms[f], n);
            const int code = try_fault(fault, 10);
            calm = code == 0 ? calm + 1 : 0;
            failures += code != 0;
        }
        assert_true(failures > 3 && n < 400);
    }
}

static void killed_between_any_two_operations(void **unused)
{
    RT_UNUSED(unused);
    int n = 1, code = 4;
    for (; code == 4 && n < 400; n++) {
        char fault[64];
        snprintf(fault, sizeof fault, "io:kill:%d", n);
        code = try_fault(fault, 10);
    }
    assert_true(code == 0 && n > 10);
    for (n = 1, code = 4; code == 4 && n < 400; n++) { /* while step 20 itself is replaced */
        char fault[64];
        snprintf(fault, sizeof fault, "io:kill:%d", n);
        code = try_fault(fault, 20);
        assert_int_equal(load_from("run"), 20);
        rt_checkpoint_clean("run", NULL);
        assert_int_equal(load_from("run"), 20);
        assert_int_equal(entries("run"), 1);
    }
}

static void short_and_interrupted_transfers(void **unused)
{
    RT_UNUSED(unused);
    assert_int_equal(try_fault("io:short", 10), 0);
    assert_int_equal(try_fault("io:eintr", 10), 0);
    setenv("RT_FAULT", "io:short,io:eintr", 1);
    rt_base_init();
    assert_int_equal(load_from("run"), 30);
    unsetenv("RT_FAULT");
    rt_base_init();
}

static void no_directory_to_write_to(void **unused)
{
    RT_UNUSED(unused);
    put_text("file", "x");
    assert_int_equal(save_at("file/run", 1, 1), -1);
    assert_int_equal(save_at("file", 1, 1), -1);
    assert_int_equal(load_from("none"), -1);
}

/* Thousands of syncs: in memory where that is possible. */
static char work[] = "/dev/shm/gradcc-checkpoint-XXXXXX";

static int enter(void **unused)
{
    RT_UNUSED(unused);
    if (!mkdtemp(work) || chdir(work) != 0)
        work[0] = 0;
    return 0;
}

static int leave(void **unused)
{
    RT_UNUSED(unused);
    if (work[0] && chdir("/") == 0)
        empty(work);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_saved_comes_back),
        cmocka_unit_test(parameters_alone),
        cmocka_unit_test(old_ones_go),
        cmocka_unit_test(damage_is_noticed),
        cmocka_unit_test(the_replaced_one_is_kept),
        cmocka_unit_test(a_directory_that_cannot_be_read),
        cmocka_unit_test(a_damaged_manifest),
        cmocka_unit_test(a_wrong_manifest),
        cmocka_unit_test(a_rest_that_cannot_be_removed),
        cmocka_unit_test(all_differences_at_once),
        cmocka_unit_test(every_operation_fails_once),
        cmocka_unit_test(killed_between_any_two_operations),
        cmocka_unit_test(short_and_interrupted_transfers),
        cmocka_unit_test(no_directory_to_write_to),
    };
    return cmocka_run_group_tests_name("checkpoint", tests, enter, leave);
}
