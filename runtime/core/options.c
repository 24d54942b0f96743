/* options.c -- the command line of a training program.
 *
 * In: argv and the train block of the model table. Out: RtOptions, checked. The one idea: one table
 * of rows serves the parser, --help, config.json and --resume, so they cannot disagree.
 */
#include <ctype.h>
#include <errno.h>

#include "comm/comm.h"

#define AT(field) offsetof(RtOptions, field)
enum { TRAIN = RT_DO_TRAIN, EVAL = RT_DO_EVAL, GEN = RT_DO_GENERATE, ALL = TRAIN | EVAL | GEN };

#define NO_LIMIT 9e18
#define TINY     0x1p-100 /* the least number above 0 */

/* clang-format off */
static const RtOption fixed_rows[] = {
/*   name            type         at                      for         from      to        value */
{ "data",         RT_OPT_TEXT, AT(train.path),         TRAIN|EVAL, 0,        0,        "FILE",
  "training data", true },
{ "val-data",     RT_OPT_TEXT, AT(train.val_path),     TRAIN|EVAL, 0,        0,        "FILE",
  "validation data of their own; none = a share of --data", true },
{ "split",        RT_OPT_REAL, AT(train.split),        TRAIN|EVAL, 0x1p-20,  1,        "X",
  "share of the data to train on; the rest validates", true },
{ "dims",         RT_OPT_DIMS, AT(dims),               ALL,        0,        0,        "T=N,...",
  "sizes of dims", true },
{ "steps",        RT_OPT_INT,  AT(train.steps),        TRAIN,      0,        NO_LIMIT, "N",
  "updates in all", true },
{ "batch",        RT_OPT_INT,  AT(train.batch),        TRAIN|EVAL, 1,        NO_LIMIT, "N",
  "samples per update, over everything", true },
{ "accumulate",   RT_OPT_INT,  AT(train.accumulate),   TRAIN|EVAL, 1,        1e9,      "N",
  "micro-steps per update; each takes batch / N samples", true },
{ "lr",           RT_OPT_REAL, AT(train.lr),           TRAIN,      0,        1e30,     "X",
  "learning rate", true },
{ "lr-end",       RT_OPT_REAL, AT(train.lr_end),       TRAIN,      0,        1e30,     "X",
  "learning rate at the end of the schedule", true },
{ "warmup",       RT_OPT_INT,  AT(train.warmup),       TRAIN,      0,        NO_LIMIT, "N",
  "updates until the learning rate is reached", true },
{ "decay-steps",  RT_OPT_INT,  AT(train.decay_steps),  TRAIN,      0,        NO_LIMIT, "N",
  "updates until the end of the schedule; 0 = steps", true },
{ "decay-length", RT_OPT_INT,  AT(train.decay),        TRAIN,      1,        NO_LIMIT, "N",
  "updates at the end of the schedule over which the rate falls", true },
{ "drop-every",   RT_OPT_INT,  AT(train.drop_every),   TRAIN,      0,        NO_LIMIT, "N",
  "updates after which the rate falls, again and again", true },
{ "drop-at",      RT_OPT_TEXT, AT(train.drop_at),      TRAIN,      0,        0,        "N,N,...",
  "updates at which the rate falls; none = every drop-every", true },
{ "drop-factor",  RT_OPT_REAL, AT(train.drop_factor),  TRAIN,      0,        1e30,     "X",
  "what the rate is multiplied with there", true },
{ "pct-start",    RT_OPT_REAL, AT(train.pct_start),    TRAIN,      0,        1,        "X",
  "share of the updates until the rate is highest", true },
{ "div-factor",   RT_OPT_REAL, AT(train.div_factor),   TRAIN,      TINY,     1e30,     "X",
  "highest rate / first rate", true },
{ "final-div-factor", RT_OPT_REAL, AT(train.final_div_factor), TRAIN, TINY,     1e30,  "X",
  "first rate / last rate", true },
{ "weight-decay", RT_OPT_REAL, AT(train.weight_decay), TRAIN,      0,        1e30,     "X",
  "decay of the parameters marked so", true },
{ "clip",         RT_OPT_REAL, AT(train.clip),         TRAIN,      TINY,     1e30,     "X",
  "largest global norm of the gradient", true },
{ "clip-value",   RT_OPT_REAL, AT(train.clip_value),   TRAIN,      TINY,     1e30,     "X",
  "largest size of its elements, which are limited first", true },
{ "ema",          RT_OPT_REAL, AT(train.ema),          TRAIN,      0,        0x1.fffffep-1, "X",
  "average of the weights, e = X e + (1 - X) p; 0 = none is kept", true },
{ "ema",          RT_OPT_FLAG, AT(average),            EVAL|GEN,   0,        0,        NULL,
  "with the average of the weights instead of them", false },
{ "loss-scale",   RT_OPT_REAL, AT(loss_scale),         TRAIN,      0,        0x1p120,  "X",
  "factor of the loss at the start, so that gradients fit fp16; 0 = none", true },
{ "scale-interval", RT_OPT_INT, AT(scale_interval),    TRAIN,      1,        NO_LIMIT, "N",
  "finite updates until the loss scale grows", true },
{ "scale-growth", RT_OPT_REAL, AT(scale_growth),       TRAIN,      1,        0x1p20,   "X",
  "factor of the loss scale then; 1 = it does not grow", true },
{ "scale-backoff", RT_OPT_REAL, AT(scale_backoff),     TRAIN,      0x1p-20,  0x1.fffffep-1, "X",
  "factor of the loss scale after an update that is not finite", true },
{ "nonfinite",    RT_OPT_TEXT, AT(nonfinite),          TRAIN,      0,        0,        "HOW",
  "an update that is not finite: stop the run, or skip it", true },
{ "max-skips",    RT_OPT_INT,  AT(max_skips),          TRAIN,      1,        NO_LIMIT, "N",
  "stop at the Nth such update in a row (fp16: at loss scale 1)", true },
{ "eval",         RT_OPT_INT,  AT(train.eval_every),   TRAIN,      0,        NO_LIMIT, "N",
  "validate every N updates and at the end; 0 = never", true },
{ "save",         RT_OPT_INT,  AT(train.save_every),   TRAIN,      0,        NO_LIMIT, "N",
  "checkpoint every N updates; 0 = only at the end", true },
{ "keep",         RT_OPT_INT,  AT(train.keep),         TRAIN,      2,        1e9,      "N",
  "checkpoints to keep", true },
{ "log",          RT_OPT_INT,  AT(train.log_every),    TRAIN,      0,        NO_LIMIT, "N",
  "a line every N updates; 0 = about twenty in all", true },
{ "seed",         RT_OPT_UINT, AT(train.seed),         ALL,        0,        1.8e19,   "N",
  "seed of every random number", true },
{ "out",          RT_OPT_TEXT, AT(train.out),          ALL,        0,        0,        "DIR",
  "run directory; none = write nothing", false },
{ "resume",       RT_OPT_TEXT, AT(resume),             TRAIN,      0,        0,        "HOW",
  "auto: go on if the run has a checkpoint; PATH: from this one; none", false },
{ "replay",       RT_OPT_TEXT, AT(replay),             TRAIN,      0,        0,        "HOW",
  "run a step that was not finite again, and name the value: auto, DIR", false },
{ "trace",        RT_OPT_FLAG, AT(trace),              TRAIN,      0,        0,        NULL,
  "print the range of each value that a step writes", false },
{ "checkpoint",   RT_OPT_TEXT, AT(checkpoint),         EVAL|GEN,   0,        0,        "PATH",
  "a checkpoint, or a run directory for its newest", false },
{ "prompt",       RT_OPT_TEXT, AT(prompt),             GEN,        0,        0,        "TEXT",
  "text (or token ids: \"15496 995\") to go on from", false },
{ "tokens",       RT_OPT_INT,  AT(tokens),             GEN,        1,        1e12,     "N",
  "tokens to write", false },
{ "temperature",  RT_OPT_REAL, AT(temperature),        GEN,        0,        1e6,      "X",
  "below 1 bolder, above 1 wilder; 0 = always the likeliest", false },
{ "top-k",        RT_OPT_INT,  AT(top_k),              GEN,        0,        1e9,      "N",
  "draw from the N likeliest tokens; 0 = from all", false },
{ "threads",      RT_OPT_INT,  AT(threads),            ALL,        1,        4096,     "N",
  "threads", true },
{ "device",       RT_OPT_INT,  AT(device),             ALL,        0,        1023,     "N",
  "number of the GPU, as nvidia-smi has it; else that of this rank on its host", false },
{ "tf32",         RT_OPT_FLAG, AT(tf32),               ALL,        0,        0,        NULL,
  "products of fp32 in TF32: faster, to about three digits", true },
{ "rank",         RT_OPT_INT,  AT(rank),               TRAIN|EVAL, 0,        4095,     "N",
  "number of this process in a job of several, from 0", false },
{ "world-size",   RT_OPT_INT,  AT(world_size),         TRAIN|EVAL, 1,        4096,     "N",
  "processes of the job", false },
{ "local-rank",   RT_OPT_INT,  AT(local_rank),         TRAIN|EVAL, 0,        4095,     "N",
  "number of this process on its host", false },
{ "rendezvous",   RT_OPT_TEXT, AT(rendezvous),         TRAIN|EVAL, 0,        0,
  "HOST:PORT|DIR",
  "where rank 0 waits for the others, or a directory where it writes that", false },
{ "comm",         RT_OPT_TEXT, AT(comm),               TRAIN|EVAL, 0,        0,        "NAME",
  "what processes exchange sums with: auto, mpi, gloo, nccl", false },
{ "comm-dtype",   RT_OPT_TEXT, AT(comm_dtype),         TRAIN,      0,        0,        "NAME",
  "of gradients between processes: fp32, or bf16 for half the bytes", false },
{ "interface",    RT_OPT_TEXT, AT(interface),          TRAIN|EVAL, 0,        0,        "NAME",
  "of the network where they meet, and which Gloo uses, as eth0", false },
{ "comm-timeout", RT_OPT_REAL, AT(comm_timeout),       TRAIN|EVAL, 1,        1e6,      "SECONDS",
  "that a process may keep the others waiting", false },
{ "rendezvous-timeout", RT_OPT_REAL, AT(rendezvous_timeout), TRAIN|EVAL, 1,  1e6,      "SECONDS",
  "until all processes must be there", false },
{ "tree",         RT_OPT_INT,  AT(tree),               TRAIN,      0,        4096,     "N",
  "sums in a tree over N parts of the batch: the same bits for 1 to N ranks", true },
{ "bucket",       RT_OPT_REAL, AT(bucket),             TRAIN,      0x1p-10,  1e6,      "MIB",
  "of gradients that processes sum at a time", true },
{ "comm-check",   RT_OPT_FLAG, AT(comm_check),         TRAIN,      0,        0,        NULL,
  "check what processes exchange, and how fast; then stop", false },
{ "dry-run",      RT_OPT_FLAG, AT(dry_run),            TRAIN,      0,        0,        NULL,
  "print settings, parameters and memory, and stop", false },
{ "plan",         RT_OPT_FLAG, AT(dry_run),            TRAIN,      0,        0,        NULL,
  "the same as --dry-run", false },
{ "force",        RT_OPT_FLAG, AT(force),              ALL,        0,        0,        NULL,
  "start although the memory seems too small", false },
{ "help",         RT_OPT_FLAG, AT(help),               ALL,        0,        0,        NULL,
  "this text", false },
{ "version",      RT_OPT_FLAG, AT(version),            ALL,        0,        0,        NULL,
  "name and version", false },
};
/* clang-format on */

enum { FIXED_ROWS = sizeof fixed_rows / sizeof *fixed_rows };

/* Settings that shape the code: fixed when the program was compiled. how: gradcc's option for it,
   NULL = the train block alone. */
static const struct {
    const char *name, *how;
} compile_time[] = {
    { "precision", "--precision=bf16" },
    { "masters", "--masters=none" },
    { "head-rows", "--head-rows=N" },
    { "recompute", "--recompute=blocks" },
    { "define", "-D NAME=VALUE" },
    { "optimizer", NULL },
    { "schedule", NULL },
    { "nesterov", NULL },
    { "groups", NULL },
    { "reader", NULL },
    { "vocab", NULL },
    { "header", NULL },
};

/* ---- suggestions ---------------------------------------------------------------------------- */

/* Damerau-Levenshtein distance of short words (adjacent swaps count one). */
static int word_distance(const char *a, const char *b)
{
    enum { MOST = 40 };
    const int n = (int)strlen(a), m = (int)strlen(b);
    if (n > MOST || m > MOST)
        return MOST;
    int d[MOST + 1][MOST + 1];
    for (int i = 0; i <= n; i++)
        for (int j = 0; j <= m; j++) {
            int best = i == 0 ? j : i;
            if (i > 0 && j > 0) {
                best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
                best = d[i - 1][j] + 1 < best ? d[i - 1][j] + 1 : best;
                best = d[i][j - 1] + 1 < best ? d[i][j - 1] + 1 : best;
                if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                    best = d[i - 2][j - 2] + 1 < best ? d[i - 2][j - 2] + 1 : best;
            }
            d[i][j] = best;
        }
    return d[n][m];
}

const char *rt_suggest(const char *word, const char *const *words, int n)
{
    const char *best = NULL;
    int least = (int)strlen(word) / 3 + 1;
    for (int i = 0; i < n; i++) {
        const int distance = word_distance(word, words[i]);
        if (distance < least || (distance == least && !best)) {
            least = distance;
            best = words[i];
        }
    }
    return best;
}

/* ---- rows ----------------------------------------------------------------------------------- */

int rt_option_count(const RtModel *m) { return FIXED_ROWS + m->train.n_hypers; }

RtOption rt_option_at(const RtModel *m, int i)
{
    if (i < FIXED_ROWS)
        return fixed_rows[i];
    const int k = i - FIXED_ROWS;
    const RtHyper *h = &m->train.hyper[k];
    return (RtOption){ .name = h->name,
                       .type = RT_OPT_REAL,
                       .at = AT(train.hyper) + (size_t)k * sizeof *h + offsetof(RtHyper, value),
                       .commands = TRAIN,
                       .lo = h->lo,
                       .hi = h->hi,
                       .value = "X",
                       .text = "of the optimizer",
                       .saved = true };
}

int rt_option_index(const RtModel *m, const char *name)
{
    for (int i = 0; i < rt_option_count(m); i++)
        if (strcmp(rt_option_at(m, i).name, name) == 0)
            return i;
    return -1;
}

bool rt_option_given(const RtModel *m, const RtOptions *o, const char *name)
{
    const int i = rt_option_index(m, name);
    return i >= 0 && o->given[i];
}

bool rt_option_applies(const RtModel *m, const RtOption *row)
{
    const char *name = row->name;
    if (!rt_schedule_takes(m->train.schedule, name))
        return false;
    if (strcmp(name, "device") == 0 || strcmp(name, "tf32") == 0)
        return !rt_place_is_host();
    if (strcmp(name, "clip") == 0)
        return m->train.clip > 0;
    if (strcmp(name, "clip-value") == 0)
        return m->train.clip_value > 0;
    if (strcmp(name, "weight-decay") == 0)
        return m->train.decays;
    if (strcmp(name, "loss-scale") == 0 || strncmp(name, "scale-", 6) == 0)
        return m->compute == RT_F16;
    return true;
}

__attribute__((noreturn)) static void fail_inapplicable(const RtModel *m, const char *name)
{
    const bool clips = strcmp(name, "clip") == 0;
    if (strcmp(name, "device") == 0 || strcmp(name, "tf32") == 0)
        rt_fail(RT_EXIT_USAGE,
                "--%s: %s was compiled for processors\nhint: for GPUs compile again: gradcc "
                "--target=cuda %s",
                name, m->name, m->source);
    if (clips || strcmp(name, "clip-value") == 0)
        rt_fail(
            RT_EXIT_USAGE,
            "--%s: %s was compiled without clipping by %s\nhint: set %s in the train block of %s "
            "and compile again",
            name, m->name, clips ? "norm" : "value", clips ? "clip" : "clip_value", m->source);
    if (strcmp(name, "weight-decay") == 0)
        rt_fail(RT_EXIT_USAGE,
                "--weight-decay: the optimizer of %s is %s, which has none\nhint: it is set in the "
                "train block of %s; compile again",
                m->name, rt_optimizer_name(&m->train), m->source);
    if (rt_schedule_owns(name))
        rt_fail(RT_EXIT_USAGE,
                "--%s: the learning rate of %s is %s, which has none\nhint: the kind of "
                "schedule is set in the train block of %s; compile again",
                name, m->name, rt_schedule_name(&m->train), m->source);
    rt_fail(RT_EXIT_USAGE,
            "--%s: %s computes in %s, and only fp16 needs a loss scale\nhint: for fp16 compile "
            "again: gradcc --precision=fp16 %s",
            name, m->name, rt_precision(m), m->source);
}

/* A number that other optimizers have. */
static void fail_other_optimizer(const RtModel *m, const char *name)
{
    static const char *const usual[] = { "momentum", "beta1", "beta2", "eps" };
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (strcmp(name, usual[i]) == 0)
            rt_fail(RT_EXIT_USAGE,
                    "--%s: the optimizer of %s is %s, which has none\nhint: the kind of "
                    "optimizer is set in the train block of %s; compile again",
                    name, m->name, rt_optimizer_name(&m->train), m->source);
}

__attribute__((noreturn)) static void fail_unknown(const RtModel *m, const RtOptions *o,
                                                   const char *name)
{
    for (size_t i = 0; i < sizeof compile_time / sizeof *compile_time; i++) {
        if (strcmp(name, compile_time[i].name) != 0)
            continue;
        if (!compile_time[i].how)
            rt_fail(RT_EXIT_USAGE,
                    "--%s: fixed when the model was compiled\nhint: set it in the "
                    "train block of %s and compile again",
                    name, m->source);
        rt_fail(RT_EXIT_USAGE,
                "--%s: fixed when the model was compiled\nhint: compile again: "
                "gradcc %s %s",
                name, compile_time[i].how, m->source);
    }
    fail_other_optimizer(m, name);
    const char *names[RT_MAX_OPTIONS];
    int n = 0;
    for (int i = 0; i < rt_option_count(m); i++) {
        const RtOption row = rt_option_at(m, i);
        if ((row.commands & (int)o->command) && rt_option_applies(m, &row))
            names[n++] = row.name;
    }
    const char *near = rt_suggest(name, names, n);
    for (int i = 0; !near && i < m->n_dims; i++)
        if (strcmp(m->dims[i].name, name) == 0)
            rt_fail(RT_EXIT_USAGE,
                    "unknown option --%s\nhint: sizes of dims are set with --dims "
                    "%s=N",
                    name, name);
    if (!near && isupper((unsigned char)*name))
        rt_fail(RT_EXIT_USAGE,
                "unknown option --%s\nhint: a const is set when compiling: gradcc "
                "-D %s=N %s",
                name, name, m->source);
    rt_fail(RT_EXIT_USAGE, "unknown option --%s\nhint: %s%s%s", name,
            near ? "did you mean --" : o->program, near ? near : " --help lists all options",
            near ? "?" : "");
}

/* ---- values --------------------------------------------------------------------------------- */

static bool parse_int(const char *text, int64_t *value)
{
    const char *digits = text + (*text == '-');
    char *end;
    errno = 0;
    *value = strtoll(text, &end, 10);
    return isdigit((unsigned char)*digits) && !*end && errno == 0;
}

static bool parse_uint(const char *text, uint64_t *value)
{
    char *end;
    errno = 0;
    *value = strtoull(text, &end, 10);
    return isdigit((unsigned char)*text) && !*end && errno == 0;
}

static bool parse_real(const char *text, double *value)
{
    char *end;
    const char *digits = text + (*text == '-');
    errno = 0;
    *value = strtod(text, &end);
    const bool plain = isdigit((unsigned char)*digits)
                       || (*digits == '.' && isdigit((unsigned char)digits[1]));
    return plain && !*end && isfinite(*value) && !strpbrk(text, "xX");
}

static void number_text(double x, char text[40]) /* 1000000000, not 1e+09 */
{
    snprintf(text, 40, x == floor(x) && fabs(x) < 1e15 ? "%.0f" : "%.8g", x);
}

/* How to do without what may be 0 in the train block only. */
static const char *without(const char *name)
{
    return strcmp(name, "clip") == 0         ? "\nhint: to compile without: gradcc -D clip=0"
           : strcmp(name, "clip-value") == 0 ? "\nhint: to compile without: gradcc -D clip_value=0"
                                             : "";
}

__attribute__((noreturn)) static void fail_number(const RtOption *row, const char *text)
{
    const char *kind = row->type == RT_OPT_REAL ? "number" : "whole number";
    char lo[40], hi[40];
    number_text(row->lo, lo);
    number_text(row->hi, hi);
    if (!(row->hi > row->lo))
        rt_fail(RT_EXIT_USAGE,
                "--%s %s: the update was compiled for %s\nhint: set %s in the train block and "
                "compile again",
                row->name, text, lo, row->name);
    if (row->hi >= 1e18 && row->lo <= -1e18)
        rt_fail(RT_EXIT_USAGE, "--%s %s: wants a %s", row->name, text, kind);
    double value;
    if (row->hi >= 1e18 && row->type == RT_OPT_REAL && parse_real(text, &value) && value > row->hi)
        rt_fail(RT_EXIT_USAGE, "--%s %s: wants a %s, at most %.3g", row->name, text, kind, row->hi);
    if (row->hi >= 1e18 && row->lo > 0 && row->lo <= TINY)
        rt_fail(RT_EXIT_USAGE, "--%s %s: wants a %s above 0%s", row->name, text, kind,
                without(row->name));
    if (row->hi >= 1e18)
        rt_fail(RT_EXIT_USAGE, "--%s %s: wants a %s, %s or more", row->name, text, kind, lo);
    rt_fail(RT_EXIT_USAGE, "--%s %s: wants a %s from %s to %s", row->name, text, kind, lo, hi);
}

__attribute__((noreturn)) static void fail_dim(const RtModel *m, const char *name)
{
    const char *names[RT_MAX_DIMS];
    char list[RT_NAME_TEXT] = "";
    int n = 0;
    size_t at = 0;
    for (int i = 0; i < m->n_dims; i++) {
        if (m->dims[i].batch && strcmp(m->dims[i].name, name) == 0)
            rt_fail(RT_EXIT_USAGE,
                    "--dims %s: %s is the sample axis; its size is batch / "
                    "accumulate\nhint: set --batch or --accumulate",
                    name, name);
        if (m->dims[i].batch)
            continue;
        names[n++] = m->dims[i].name;
        at += (size_t)snprintf(list + at, at < sizeof list ? sizeof list - at : 0, "%s%s",
                               n > 1 ? ", " : "", m->dims[i].name);
        at = at < sizeof list ? at : sizeof list - 1;
    }
    if (n == 0)
        rt_fail(RT_EXIT_USAGE,
                "--dims %s: %s has no dims that are set when it starts\nhint: a "
                "const is set when compiling: gradcc -D %s=N %s",
                name, m->name, name, m->source);
    const char *near = rt_suggest(name, names, n);
    rt_fail(RT_EXIT_USAGE,
            "--dims %s: the dims of %s that are set when it starts: %s\nhint: "
            "%s%s%s",
            name, m->name, list,
            near ? "did you mean "
                 : "a const is set when "
                   "compiling: gradcc -D ",
            near ? near : name, near ? "?" : "=N");
}

static void parse_dims(const RtModel *m, RtOptions *o, const char *text)
{
    char copy[RT_NAME_TEXT], *save = NULL;
    if (snprintf(copy, sizeof copy, "%s", text) >= (int)sizeof copy || !*text)
        rt_fail(RT_EXIT_USAGE, "--dims wants NAME=N or NAME=N,NAME=N");
    for (char *one = strtok_r(copy, ", ", &save); one; one = strtok_r(NULL, ", ", &save)) {
        char *value = strchr(one, '=');
        int64_t n;
        if (!value)
            rt_fail(RT_EXIT_USAGE, "--dims %s: wants NAME=N, as in --dims T=128", one);
        *value++ = 0;
        int i = 0;
        while (i < m->n_dims && (m->dims[i].batch || strcmp(m->dims[i].name, one) != 0))
            i++;
        if (i == m->n_dims)
            fail_dim(m, one);
        if (!parse_int(value, &n) || n < 1 || n > PTRDIFF_MAX / 4)
            rt_fail(RT_EXIT_USAGE, "--dims %s=%s: wants a whole number, 1 or more", one, value);
        o->dims[i] = (ptrdiff_t)n;
        o->dims_given |= UINT64_C(1) << i;
    }
}

static void option_set(const RtModel *m, RtOptions *o, int index, const char *text)
{
    const RtOption option = rt_option_at(m, index), *const row = &option;
    char *const at = (char *)o + row->at;
    switch (row->type) {
    case RT_OPT_INT: {
        int64_t value;
        if (!parse_int(text, &value) || (double)value < row->lo || (double)value > row->hi)
            fail_number(row, text);
        memcpy(at, &value, sizeof value);
        break;
    }
    case RT_OPT_UINT: {
        uint64_t value;
        if (!parse_uint(text, &value))
            fail_number(row, text);
        memcpy(at, &value, sizeof value);
        break;
    }
    case RT_OPT_REAL: {
        double value;
        if (!parse_real(text, &value) || value < row->lo || value > row->hi)
            fail_number(row, text);
        memcpy(at, &value, sizeof value);
        break;
    }
    case RT_OPT_TEXT: memcpy(at, &text, sizeof text); break;
    case RT_OPT_DIMS: parse_dims(m, o, text); break;
    case RT_OPT_FLAG: *(bool *)at = true; break;
    }
    o->given[index] = true;
}

/* ---- the command line ----------------------------------------------------------------------- */

/* The constants of PyTorch's GradScaler, and the train block's. */
static void default_nonfinite(const RtModel *m, RtOptions *o)
{
    const RtTrain *t = &m->train;
    const bool half = m->compute == RT_F16;
    o->nonfinite = t->nonfinite ? t->nonfinite : half ? "skip" : "stop";
    o->max_skips = t->max_skips > 0 ? t->max_skips : 20;
    o->loss_scale = !half || t->loss_scale < 0 ? 0 : t->loss_scale > 0 ? t->loss_scale : 0x1p16;
    o->scale_interval = t->scale_interval > 0 ? t->scale_interval : 2000;
    o->scale_growth = t->scale_growth > 0 ? t->scale_growth : 2;
    o->scale_backoff = t->scale_backoff > 0 ? t->scale_backoff : 0.5;
}

static RtOptions options_default(const RtModel *m, const char *program)
{
    RtOptions o = { .program = program,
                    .command = RT_DO_TRAIN,
                    .train = m->train,
                    .resume = "none",
                    .replay = "none",
                    .tokens = 200,
                    .temperature = 1,
                    .rank = -1,
                    .world_size = -1,
                    .local_rank = -1,
                    .device = -1,
                    .comm = "auto",
                    .comm_dtype = "fp32",
                    .rendezvous_timeout = 300,
                    .comm_timeout = 120,
                    .bucket = 25,
                    .started = rt_now() };
    RtTrain *t = &o.train;
    default_nonfinite(m, &o);
    t->accumulate = t->accumulate > 0 ? t->accumulate : 1;
    t->keep = t->keep >= 2 ? t->keep : 2;
    for (int i = 0; i < m->n_dims; i++)
        o.dims[i] = m->dims[i].value;
    if (!t->out)
        t->out = rt_keep(rt_printf("%s.run", m->name));
    return o;
}

static void parse_word(RtOptions *o, const char *word)
{
    static const char *const words[] = { "train", "eval", "generate" };
    static const RtCommand commands[] = { RT_DO_TRAIN, RT_DO_EVAL, RT_DO_GENERATE };
    for (int i = 0; i < 3; i++)
        if (strcmp(word, words[i]) == 0) {
            o->command = commands[i];
            return;
        }
    const char *near = rt_suggest(word, words, 3);
    rt_fail(RT_EXIT_USAGE, "unknown command '%s'\nhint: %s%s", word,
            near ? "did you mean "
                 : "data are given with --data FILE; commands are train, eval, "
                   "generate",
            near ? near : "");
}

/* The row of this command's option, or of another's if it has none; -1: no command knows it. */
static int option_of(const RtModel *m, const RtOptions *o, const char *name)
{
    for (int i = 0; i < rt_option_count(m); i++) {
        const RtOption row = rt_option_at(m, i);
        if (strcmp(row.name, name) == 0 && (row.commands & (int)o->command))
            return i;
    }
    return rt_option_index(m, name);
}

/* One option at argv[i]; the number of arguments it took. */
static int parse_option(const RtModel *m, RtOptions *o, int i, int argc, char **argv)
{
    char name[64];
    const char *text = argv[i];
    if (text[1] == 'D')
        rt_fail(RT_EXIT_USAGE,
                "%s: constants are fixed when the model is compiled\nhint: compile "
                "again: gradcc -D NAME=VALUE %s",
                text, m->source);
    if (text[1] != '-')
        rt_fail(RT_EXIT_USAGE,
                "unknown option %s\nhint: options begin with two dashes; %s --help "
                "lists them",
                text, o->program);
    const char *equals = strchr(text, '=');
    const size_t n = equals ? (size_t)(equals - text - 2) : strlen(text + 2);
    snprintf(name, sizeof name, "%.*s", n < sizeof name ? (int)n : (int)sizeof name - 1, text + 2);
    const int row = option_of(m, o, name);
    if (row < 0)
        fail_unknown(m, o, name);
    const RtOption read = rt_option_at(m, row), *const option = &read;
    if (!(option->commands & (int)o->command))
        rt_fail(RT_EXIT_USAGE, "--%s does not belong to '%s'\nhint: %s %s --help lists what does",
                name,
                o->command == RT_DO_TRAIN  ? "train"
                : o->command == RT_DO_EVAL ? "eval"
                                           : "generate",
                o->program,
                o->command == RT_DO_TRAIN  ? ""
                : o->command == RT_DO_EVAL ? "eval"
                                           : "generate");
    if (!rt_option_applies(m, option))
        fail_inapplicable(m, name);
    if (option->type == RT_OPT_FLAG) {
        if (equals)
            rt_fail(RT_EXIT_USAGE, "--%s takes no value", name);
        option_set(m, o, row, "");
        return 1;
    }
    if (!equals && (i + 1 == argc || strncmp(argv[i + 1], "--", 2) == 0))
        rt_fail(RT_EXIT_USAGE, "--%s wants a value: --%s %s", name, name, option->value);
    option_set(m, o, row, equals ? equals + 1 : argv[i + 1]);
    return equals ? 1 : 2;
}

RtOptions rt_options_parse(const RtModel *m, int argc, char **argv)
{
    RtOptions o = options_default(m, argc > 0 ? argv[0] : m->name);
    int i = 1;
    if (argc > 1 && argv[1][0] != '-') {
        parse_word(&o, argv[1]);
        i = 2;
    }
    while (i < argc) {
        if (strcmp(argv[i], "-h") == 0) {
            o.help = true;
            i++;
        } else if (argv[i][0] != '-') {
            rt_fail(RT_EXIT_USAGE,
                    "'%s' belongs to no option\nhint: a command (train, eval, "
                    "generate) stands first; files are given with --data FILE",
                    argv[i]);
        } else {
            i += parse_option(m, &o, i, argc, argv);
        }
    }
    if (o.help) {
        rt_help_print(m, &o, stdout);
        exit(rt_end(0));
    }
    if (o.version) {
        printf("%s, compiled by gradcc from %s (crc32 %08x)\n", m->name, m->source,
               (unsigned)m->source_crc);
        exit(rt_end(0));
    }
    return o;
}

/* ---- together ------------------------------------------------------------------------------- */

__attribute__((noreturn)) static void fail_divide(const RtTrain *t)
{
    char list[160] = "";
    size_t at = 0;
    int n = 0;
    for (int64_t a = 1; a <= t->batch && a < 1000000 && n < 12; a++)
        if (t->batch % a == 0) {
            at += (size_t)snprintf(list + at, sizeof list - at, "%s%lld", n++ ? ", " : "",
                                   (long long)a);
        }
    const int64_t down = t->batch / t->accumulate * t->accumulate;
    rt_fail(RT_EXIT_USAGE,
            "batch = %lld does not divide into accumulate = %lld micro-steps\nhint: "
            "accumulate may be %s%s; or batch %lld or %lld",
            (long long)t->batch, (long long)t->accumulate, list, n == 12 ? ", ..." : "",
            (long long)(down > 0 ? down : t->accumulate), (long long)(down + t->accumulate));
}

__attribute__((noreturn)) static void fail_divide_ranks(const RtTrain *t)
{
    const int64_t micro = rt_micro_steps(t), parts = micro * rt_ranks();
    const int64_t down = t->batch / parts * parts;
    const char *less = down > 0 ? rt_keep(rt_printf("%lld or ", (long long)down)) : "";
    rt_fail(RT_EXIT_USAGE,
            "batch = %lld does not divide into %lld micro-step%s on each of %d rank%s\nhint: batch "
            "%s%lld",
            (long long)t->batch, (long long)micro, micro == 1 ? "" : "s", rt_ranks(),
            rt_ranks() == 1 ? "" : "s", less, (long long)(down + parts));
}

static void check_nonfinite(const RtOptions *o)
{
    const char *how = o->nonfinite ? o->nonfinite : "null";
    if (strcmp(how, "stop") != 0 && strcmp(how, "skip") != 0)
        rt_fail(RT_EXIT_USAGE, "--nonfinite %s: wants stop or skip", how);
    if (o->loss_scale > 0 && o->loss_scale < 1)
        rt_fail(RT_EXIT_USAGE,
                "--loss-scale %g: wants 1 or more, or 0 for none\nhint: the loss scale "
                "falls to 1 by itself where gradients overflow",
                o->loss_scale);
}

void rt_options_settle(const RtModel *m, RtOptions *o)
{
    RtTrain *t = &o->train;
    check_nonfinite(o);
    rt_schedule_settle(t);
    if (o->command != RT_DO_GENERATE) {
        if (t->batch < 1)
            rt_fail(RT_EXIT_USAGE,
                    "no batch is set\nhint: give --batch N, or set batch in the "
                    "train block of %s",
                    m->source);
        if (t->batch % t->accumulate)
            fail_divide(t);
        if (strcmp(o->comm_dtype, "bf16") == 0 && m->real == RT_F64)
            rt_fail(RT_EXIT_USAGE,
                    "--comm-dtype bf16 is for gradients of fp32, and those of %s are fp64\nhint: "
                    "leave it out, or compile with --precision=fp32",
                    m->name);
        rt_tree_set(o->tree);
        if (t->batch % ((int64_t)rt_micro_steps(t) * rt_ranks()))
            fail_divide_ranks(t);
    }
    for (int i = 0; i < m->n_dims; i++) {
        if (m->dims[i].batch)
            o->dims[i] = o->command == RT_DO_GENERATE ? 1 : rt_micro_batch(t);
        if (o->dims[i] < 1)
            rt_fail(RT_EXIT_USAGE,
                    "dim %s (%s) has no value\nhint: give --dims %s=N, or set dims "
                    "= (%s: N) in the train block of %s",
                    m->dims[i].name, m->dims[i].where, m->dims[i].name, m->dims[i].name, m->source);
    }
    const char *broken = m->check_dims ? m->check_dims(o->dims) : NULL;
    if (broken) {
        char list[RT_NAME_TEXT] = "";
        size_t at = 0;
        for (int i = 0; i < m->n_dims && at < sizeof list - 64; i++)
            at += (size_t)snprintf(list + at, sizeof list - at, "%s%.30s = %td", i ? ", " : "",
                                   m->dims[i].name, o->dims[i]);
        rt_fail(RT_EXIT_USAGE, "the dims do not fit the model: %s, with %s", broken, list);
    }
}
