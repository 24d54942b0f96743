/* replay.c -- the step that was not finite: kept in a capsule, and run again value by value.
 *
 * In: a run at such a step, or RUN/crash of an earlier process. Out: RUN/crash with the state
 * before the step and capsule.json, which says what the step was; or a report of the first value
 * that is not finite. The one idea: a step is a function of the state, the settings and the
 * samples, so running it again on the same number of threads gives the same bits, and then there is
 * time to look at every value.
 *
 *     {"format": "gradcc capsule", "version": 1, "model": "gpt", "source_crc": "00c0ffee",
 *      "step": 11, "checkpoint": "step-00000010", "micro_steps": 1, "dims": {"B": 12, "T": 16},
 *      "first_sample": 120, "samples": [7, 30, ...], "seed": "1", "data_hash": "0123456789abcdef",
 *      "loss": null, "loss_nonfinite": "nan", "loss_scale": 65536.0, "threads": 2,
 *      "products": "native", "bad_parameters": "...", "gradient_hash": "0123456789abcdef"}
 */
#include <errno.h>
#include <jansson.h>
#include <sys/stat.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "comm/comm.h"

enum { CAPSULE_VERSION = 1, CAPSULE_MAX = 64 << 20, SAMPLES_LISTED = 65536 };

/* ---- parameters ------------------------------------------------------------------------------ */

static bool gradient_is_finite(const RtRun *run, const RtParam *q, ptrdiff_t repeat)
{
    const size_t bytes = rt_real_bytes(run->model);
    const char *from = (const char *)run->d_p + (size_t)rt_param_at(q, repeat) * bytes;
    const ptrdiff_t n = rt_param_elems(q), most = (ptrdiff_t)(RT_PLACE_WINDOW / bytes);
    double bad = 0;
    for (ptrdiff_t first = 0; first < n; first += most) {
        const ptrdiff_t part = n - first < most ? n - first : most;
        const void *at = rt_place_look(from + (size_t)first * bytes, (size_t)part * bytes);
        for (ptrdiff_t i = 0; i < part; i++)
            bad += (bytes == sizeof(double) ? ((const double *)at)[i]
                                            : (double)((const float *)at)[i])
                   * 0;
    }
    return bad == 0;
}

char *rt_bad_parameters(const RtRun *run)
{
    const RtModel *m = run->model;
    char name[RT_NAME_TEXT], text[4 * RT_NAME_TEXT];
    size_t at = 0;
    int found = 0;
    for (int i = 0; i < m->n_params; i++)
        for (ptrdiff_t k = 0; k < rt_param_repeats(&m->params[i]); k++) {
            if (gradient_is_finite(run, &m->params[i], k))
                continue;
            if (found++ < 3 && at + RT_NAME_TEXT < sizeof text)
                at += (size_t)snprintf(text + at, sizeof text - at, "%s%s (%s)",
                                       found > 1 ? ", " : "", rt_param_name(&m->params[i], k, name),
                                       m->params[i].where);
            at = at < sizeof text ? at : sizeof text - 1; /* cut */
        }
    if (found > 3)
        snprintf(text + at, sizeof text - at, " and %d more", found - 3);
    return rt_printf("%s", found == 0 ? "none" : text);
}

uint64_t rt_place_hash(const void *at, size_t bytes)
{
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    for (size_t done = 0; done < bytes; done += RT_PLACE_WINDOW) {
        const size_t part = bytes - done < RT_PLACE_WINDOW ? bytes - done : RT_PLACE_WINDOW;
        XXH3_64bits_update(&state, rt_place_look((const char *)at + done, part), part);
    }
    return XXH3_64bits_digest(&state);
}

static uint64_t gradient_hash(const RtRun *run)
{
    return rt_place_hash(run->d_p, (size_t)run->model->n_elems * rt_real_bytes(run->model));
}

/* ---- the capsule ----------------------------------------------------------------------------- */

static json_t *hex(uint64_t value) { return json_sprintf("%016llx", (unsigned long long)value); }

static json_t *samples_json(const RtRun *run)
{
    const RtState *state = run->state;
    const uint64_t seed = state->opt->train.seed;
    json_t *list = json_array();
    for (int64_t i = 0; i < state->opt->train.batch && i < SAMPLES_LISTED; i++)
        json_array_append_new(list,
                              json_integer(rt_data_index(state->data, seed, state->samples + i)));
    return list;
}

static json_t *dims_json(const RtRun *run)
{
    json_t *dims = json_object();
    for (int i = 0; i < run->model->n_dims; i++)
        json_object_set_new(dims, run->model->dims[i].name, json_integer(run->state->opt->dims[i]));
    return dims;
}

/* What the step was that begins in the state of the run. */
static char *capsule_text(const RtRun *run, const RtStep *s, const RtMeans *means)
{
    const RtModel *m = run->model;
    const RtState *state = run->state;
    const RtProducts products = m->compute == RT_BF16 ? rt_products_now() : RT_PRODUCTS_UNSET;
    json_t *root = json_object();
    json_object_set_new(root, "format", json_string("gradcc capsule"));
    json_object_set_new(root, "version", json_integer(CAPSULE_VERSION));
    json_object_set_new(root, "model", json_string(m->name));
    json_object_set_new(root, "source_crc", json_sprintf("%08x", (unsigned)m->source_crc));
    json_object_set_new(root, "step", json_integer(state->step + 1));
    json_object_set_new(root, "checkpoint", json_sprintf("step-%08lld", (long long)state->step));
    json_object_set_new(root, "micro_steps", json_integer(run->micro_steps));
    json_object_set_new(root, "dims", dims_json(run));
    json_object_set_new(root, "first_sample", json_integer(state->samples));
    json_object_set_new(root, "samples", samples_json(run));
    json_object_set_new(root, "seed",
                        json_sprintf("%llu", (unsigned long long)state->opt->train.seed));
    json_object_set_new(root, "data_hash", hex(rt_data_hash(state->data)));
    json_object_set_new(root, "loss", isfinite(means->loss) ? json_real(means->loss) : json_null());
    if (!isfinite(means->loss))
        json_object_set_new(root, "loss_nonfinite", json_sprintf("%g", means->loss));
    json_object_set_new(root, "loss_scale", json_real(s->scale));
    json_object_set_new(root, "threads", json_integer(state->opt->threads));
    json_object_set_new(root, "products", json_string(rt_products_name(products)));
    char *bad = rt_bad_parameters(run);
    json_object_set_new(root, "bad_parameters", json_string(bad));
    rt_free(bad);
    json_object_set_new(root, "gradient_hash", hex(gradient_hash(run)));
    char *text = json_dumps(root, JSON_INDENT(1));
    json_decref(root);
    return text;
}

int rt_capsule_save(RtRun *run, const RtState *before, const RtStep *s, const RtMeans *means,
                    const char *dir)
{
    const RtState now = *run->state;
    *run->state = *before; /* the parameters are those of that time: the step changed none */
    int failed = rt_run_save(run, dir);
    if (!failed) {
        char *path = rt_printf("%s/capsule.json", dir), *text = capsule_text(run, s, means);
        if (!text || rt_write_atomic(path, text, strlen(text))) {
            rt_warn("%s: cannot be written: %s; the step cannot be replayed", path,
                    strerror(errno));
            failed = -1;
        }
        free(text);
        rt_free(path);
    }
    *run->state = now;
    return failed;
}

/* ---- again ----------------------------------------------------------------------------------- */

/* One run of the step to come, each value looked at. The counters stay. */
static const char *look(RtRun *run, RtStep *s, bool *found)
{
    RtState *state = run->state;
    const RtState before = *state;
    const int64_t batch = state->opt->train.batch;
    RtCheck *check = rt_check_create(run, state->opt->trace);
    state->check = check;
    rt_check_rehearse(check, true); /* with the samples before, or those behind */
    state->samples += state->samples >= batch ? -batch : batch;
    rt_step_run(run, s, false);
    rt_check_rehearse(check, false);
    *state = before;
    state->check = check;
    rt_step_run(run, s, false);
    *state = before;
    const char *report = rt_check_report(check);
    *found = rt_check_found(check);
    rt_check_free(check);
    return report;
}

/* On rank 0, of the first rank that has found a value: each sees those of its own samples. */
static const char *report_of_all(const char *own, bool found)
{
    char key[32];
    if (rt_ranks() == 1)
        return own;
    snprintf(key, sizeof key, "report/%d", rt_rank());
    if (rt_rank() > 0)
        rt_store_set(key, found ? own : "", found ? strlen(own) : 0);
    for (int r = 1; rt_rank() == 0 && !found && r < rt_ranks(); r++) {
        snprintf(key, sizeof key, "report/%d", r);
        char *text = rt_store_get(key, NULL);
        found = *text != 0;
        own = found ? rt_keep(rt_printf("of rank %d: %s", r, text)) : own;
        free(text);
    }
    return own;
}

/* fp16: does the loss scale make it overflow, or the model? */
static const char *at_scale_one(RtRun *run)
{
    RtStep s;
    const double scale = run->state->scale;
    if (run->model->compute != RT_F16 || scale <= 1)
        return "";
    run->state->scale = 1;
    rt_step_run(run, &s, false);
    return s.finite ? rt_keep(rt_printf("\nat loss scale 1 the step is finite: scale %g was too "
                                        "large for it, and the model is not at fault",
                                        scale))
                    : "\nat loss scale 1 the step is not finite either: it is not for the scale";
}

const char *rt_replay_report(RtRun *run)
{
    RtStep s;
    if (run->state->check)
        return rt_check_report(run->state->check);
    bool found;
    const char *own = look(run, &s, &found), *report = report_of_all(own, found);
    if (s.finite)
        return "run again, the step was finite: the same program gave two results, which points "
               "to the memory or the processor of this machine";
    return rt_keep(rt_printf("%s%s", report, at_scale_one(run)));
}

/* ---- --replay -------------------------------------------------------------------------------- */

typedef struct {
    const char *dir, *checkpoint;
    int64_t step, threads;
    uint64_t hash; /* of the gradient */
    double scale;
    const char *crc;
} Capsule;

static bool is_file(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* DIR of --replay DIR: it holds a capsule, or its crash/ does; auto: that of the run directory. */
static const char *capsule_directory(const RtOptions *o)
{
    const bool find = strcmp(o->replay, "auto") == 0;
    const char *dir = find ? o->train.out : o->replay;
    char *own = rt_printf("%s/capsule.json", dir), *below = rt_printf("%s/crash/capsule.json", dir);
    const bool here = is_file(own), there = is_file(below);
    rt_free(own);
    rt_free(below);
    if (!here && !there)
        rt_fail(RT_EXIT_USAGE,
                "--replay %s: %s holds no capsule.json\nhint: a run writes one to its crash/ when "
                "a step is not finite; --replay auto looks there, --replay DIR elsewhere",
                o->replay, dir);
    return here ? dir : rt_keep(rt_printf("%s/crash", dir));
}

static Capsule capsule_read(const RtOptions *o)
{
    Capsule c = { .dir = capsule_directory(o) };
    char *path = rt_printf("%s/capsule.json", c.dir);
    size_t len;
    char *text = rt_read_file(path, CAPSULE_MAX, &len);
    json_error_t error;
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &error);
    const char *format = json_string_value(json_object_get(root, "format"));
    const char *name = json_string_value(json_object_get(root, "checkpoint"));
    const char *hash = json_string_value(json_object_get(root, "gradient_hash"));
    const char *crc = json_string_value(json_object_get(root, "source_crc"));
    c.step = json_integer_value(json_object_get(root, "step"));
    c.threads = json_integer_value(json_object_get(root, "threads"));
    c.scale = json_number_value(json_object_get(root, "loss_scale"));
    if (!format || strcmp(format, "gradcc capsule") != 0 || !name || strchr(name, '/') || !hash
        || !crc || c.step < 1 || c.threads < 1 || !(c.scale >= 1)
        || json_integer_value(json_object_get(root, "version")) != CAPSULE_VERSION)
        rt_fail(RT_EXIT_FAIL, "%s: is no capsule of this version: %s", path,
                root ? "a key is missing or wrong" : error.text);
    c.checkpoint = rt_keep(rt_printf("%s/%s", c.dir, name));
    c.hash = strtoull(hash, NULL, 16);
    c.crc = rt_keep(rt_printf("%s", crc));
    json_decref(root);
    rt_free(text);
    rt_free(path);
    return c;
}

/* The step is what it was: settings that would make another one of it are refused. */
static void check_given(const RtModel *m, const RtOptions *o)
{
    static const char *const may[] = { "replay", "data",  "val-data", "out",
                                       "trace",  "force", "threads" };
    for (int i = 0; i < rt_option_count(m); i++) {
        const char *name = rt_option_at(m, i).name;
        bool allowed = !o->given[i];
        for (size_t k = 0; k < sizeof may / sizeof *may; k++)
            allowed = allowed || strcmp(name, may[k]) == 0;
        if (!allowed)
            rt_fail(RT_EXIT_USAGE,
                    "--%s: a step is replayed with the settings it had\nhint: beside --replay "
                    "there may be --data, --threads and --trace",
                    name);
    }
}

static void warn_changes(const RtModel *m, const RtOptions *o, const Capsule *capsule,
                         const RtCheckpoint *c, const RtData *data)
{
    char crc[16];
    snprintf(crc, sizeof crc, "%08x", (unsigned)m->source_crc);
    if (strcmp(crc, capsule->crc) != 0)
        rt_warn("%s has changed since that step: this is another program", m->source);
    if (o->threads != capsule->threads)
        rt_warn("the step ran on %lld threads, this is %lld: results agree to rounding, not bit "
                "for bit",
                (long long)capsule->threads, (long long)o->threads);
    if (m->compute == RT_BF16 && rt_products_choose(c->products) != c->products)
        rt_warn("products are computed as %s, in the run as %s: results agree to rounding, not bit "
                "for bit",
                rt_products_name(rt_products_now()), rt_products_name(c->products));
    if (c->data_hash != rt_data_hash(data))
        rt_warn("the data are not those of the step: it sees other samples");
}

static int report(RtRun *run, const Capsule *capsule)
{
    RtStep s;
    bool found;
    const char *first = look(run, &s, &found);
    const bool same = gradient_hash(run) == capsule->hash;
    const RtMeans means = rt_run_means(run->model, &s);
    printf("%s\nthe loss is %g, gradients that are not finite: %s\n", first, means.loss,
           rt_keep(rt_bad_parameters(run)));
    printf("%s\n", same ? "the gradient is that of the run, bit for bit"
                        : "the gradient is not that of the run, bit for bit");
    if (s.finite)
        rt_fail(RT_EXIT_FAIL,
                "step %lld is finite this time\nhint: the same program on the same "
                "machine and threads gives the same bits; else look at the "
                "warnings above, then at the memory of that machine",
                (long long)capsule->step);
    const char *scale = at_scale_one(run);
    printf("%s%s", *scale ? scale + 1 : "", *scale ? "\n" : "");
    return 0;
}

int rt_do_replay(const RtModel *m, RtOptions *o)
{
    RtCheckpoint c = { .best_val = NAN, .scale = NAN };
    check_given(m, o);
    const Capsule capsule = capsule_read(o);
    if (!rt_run_find(m, capsule.checkpoint, 2, &c))
        rt_fail(RT_EXIT_FAIL, "%s: the state before the step is not there", capsule.checkpoint);
    rt_config_adopt(m, o, c.config, NULL);
    if (!rt_option_given(m, o, "threads"))
        o->threads = capsule.threads;
    rt_threads_set(o);
    rt_options_settle(m, o);
    RtData *data = rt_data_open(m, &o->train, o->dims, c.vocab);
    printf("replay   %s: step %lld of %s, %lld samples, loss scale %g, %lld thread%s\n",
           capsule.dir, (long long)capsule.step, m->name, (long long)o->train.batch, capsule.scale,
           (long long)o->threads, o->threads == 1 ? "" : "s");
    warn_changes(m, o, &capsule, &c, data);
    rt_memory_check(m, o, data, RT_USE_TRAIN);
    RtRun *run = rt_run_create(m, o, data, RT_USE_TRAIN);
    (void)rt_run_load(run, capsule.checkpoint, true, &c);
    const int code = report(run, &capsule);
    rt_run_free(run);
    rt_data_close(data);
    return code;
}
