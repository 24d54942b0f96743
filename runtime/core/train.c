/* train.c -- rt_main and the training loop, to be read from top to bottom at the end of the file.
 *
 * In: the model table and the command line. Out: a run directory with settings, metrics and
 * checkpoints, and an exit code. The one idea: everything is checked and printed before step 0, and
 * the loop does four things at a step boundary: log, validate, save, look for a signal.
 */
#include <errno.h>
#include <signal.h>
#include <sys/stat.h>

#include "comm/comm.h"

enum { SAVE_FAILURES = 3 }; /* in a row, then the run stops */

typedef struct {
    const RtModel *m;
    RtOptions *o;
    const char *dir;     /* run directory, NULL = nothing is written */
    const char *from;    /* what --resume resolved to, NULL = a fresh run */
    const char *vocab;   /* of the checkpoint */
    RtProducts products; /* of the checkpoint */
    RtData *data;
    RtRun *run;
    RtLog log;
    int64_t start;            /* step at which this process began */
    int64_t best_step;        /* -1 = before this process */
    int64_t validated, saved; /* last step that was, -1 = none */
    double val_loss;
    int failures;           /* of saving, in a row */
    const char *crash;      /* where a step that is not finite is kept, NULL = nowhere */
    bool skipping;          /* the step before was skipped */
    double capsule_seconds; /* spent on saving states before skipped steps */
    bool locked;            /* the run directory is ours */
} Train;

/* ---- where to begin ------------------------------------------------------------------------- */

static const char *shell_word(const char *text)
{
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./=:,+-";
    if (*text && text[strspn(text, plain)] == 0)
        return text;
    char *quoted = rt_alloc(4 * strlen(text) + 3, "a text"), *to = quoted;
    *to++ = '\'';
    for (; *text; text++)
        to += *text == '\'' ? sprintf(to, "'\\''") : sprintf(to, "%c", *text);
    *to = '\'';
    return rt_keep(quoted);
}

/* The run directory of a path given to --resume: itself, or the parent of step-... */
static char *run_directory_of(const char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    size_t base = n;
    while (base > 0 && path[base - 1] != '/')
        base--;
    if (strncmp(path + base, "step-", 5) != 0)
        return rt_printf("%.*s", (int)n, path);
    return base == 0 ? rt_printf(".") : rt_printf("%.*s", base > 1 ? (int)base - 1 : 1, path);
}

/* Where the run writes, and what it goes on from, but for --resume auto. */
static void set_directory(Train *t)
{
    RtOptions *o = t->o;
    const bool out_given = rt_option_given(t->m, o, "out");
    const bool write = strcmp(o->train.out, "none") != 0;
    if (strcmp(o->resume, "none") != 0 && strcmp(o->resume, "auto") != 0) {
        t->from = o->resume;
        if (!out_given)
            o->train.out = rt_keep(run_directory_of(o->resume));
    }
    t->dir = write ? o->train.out : NULL;
    t->crash = t->dir ? rt_keep(rt_printf("%s/crash", t->dir)) : NULL;
}

static void resolve_auto(Train *t)
{
    if (strcmp(t->o->resume, "auto") == 0 && t->dir && rt_checkpoint_exists(t->dir))
        t->from = t->dir;
}

/* Rank 0 alone writes; the others read what they go on from. */
static void leave_writing(Train *t)
{
    if (rt_rank() > 0)
        t->dir = t->crash = NULL;
}

/* A directory with checkpoints goes on from one of them, or it stays as it is. */
static void check_directory(const Train *t)
{
    if (!t->dir || t->o->dry_run)
        return;
    char *from = t->from ? run_directory_of(t->from) : NULL, *to = run_directory_of(t->dir);
    const bool same = from && strcmp(from, to) == 0;
    rt_free(from);
    rt_free(to);
    if (!same && rt_checkpoint_exists(t->dir))
        rt_fail(RT_EXIT_USAGE,
                "%s holds the checkpoints of a run; they are not overwritten\nhint: "
                "go on with --resume auto, or choose another --out DIR",
                t->dir);
}

static void tell_crash(const Train *t)
{
    if (t->crash && !t->from && rt_checkpoint_exists(t->crash))
        printf("note     %s holds the state before a step that was not finite; --resume %s goes on "
               "from it\n",
               t->crash, shell_word(t->crash));
}

/* Going back in a run would mix its old later checkpoints with the new ones. */
static void check_newest(const Train *t, int64_t step)
{
    RtCheckpoint newest = { .step = -1 };
    if (t->dir && rt_checkpoint_exists(t->dir) && rt_run_find(t->m, t->dir, 0, &newest)
        && newest.step > step)
        rt_fail(RT_EXIT_USAGE,
                "%s goes on to step %lld; it is not taken back to step %lld\nhint: "
                "--resume %s --out DIR begins another run there",
                t->dir, (long long)newest.step, (long long)step, t->from);
}

static void print_resume(const char *dir, const RtCheckpoint *c)
{
    printf("resume   %s: step %lld (%lld updates applied), %lld samples drawn", dir,
           (long long)c->step, (long long)c->applied, (long long)c->samples);
    if (c->scale > 0)
        printf(", loss scale %g", c->scale);
    printf("\n");
}

/* The settings are those of the newest checkpoint that is whole; it alone is loaded then. */
static void adopt_checkpoint(Train *t)
{
    if (!t->from)
        return;
    RtCheckpoint c = { .best_val = NAN, .scale = NAN };
    const char *dir = rt_run_find(t->m, t->from, 2, &c);
    if (!dir)
        rt_fail(RT_EXIT_FAIL, "--resume %s: there is no checkpoint", t->from);
    if (strcmp(dir, t->from) == 0) /* one of several was named */
        check_newest(t, c.step);
    print_resume(dir, &c);
    rt_config_adopt(t->m, t->o, c.config, stdout);
    t->from = dir;
    t->vocab = c.vocab;
    t->products = c.products;
}

/* ---- what a person reads before step 0 ------------------------------------------------------ */

static void print_settings(const Train *t)
{
    const RtTrain *s = &t->o->train;
    const int micro = rt_micro_steps(s);
    printf("batch    %lld samples per update = ", (long long)s->batch);
    if (rt_ranks() > 1)
        printf("%d ranks with ", rt_ranks());
    printf("%d micro-step%s of %td", micro, micro == 1 ? "" : "s", rt_micro_batch(s));
    for (int i = 0; i < t->m->n_dims; i++)
        if (!t->m->dims[i].batch)
            printf(", %s = %td", t->m->dims[i].name, t->o->dims[i]);
    printf("\nupdate   %s", rt_optimizer_name(s));
    for (int i = 0; i < s->n_hypers; i++)
        printf(", %s %g", s->hyper[i].name, s->hyper[i].value);
    if (s->decays)
        printf(", decay %g", s->weight_decay);
    if (s->clip > 0)
        printf(", clip %g", s->clip);
    if (s->clip_value > 0)
        printf(", elements at most %g", s->clip_value);
    if (s->ema > 0)
        printf(", average of the weights %g", s->ema);
    printf("\n");
    rt_schedule_print(s, stdout);
    printf("run      %lld steps, seed %llu, %lld thread%s, %s", (long long)s->steps,
           (unsigned long long)s->seed, (long long)t->o->threads, t->o->threads == 1 ? "" : "s",
           t->dir ? t->dir : "nothing is written");
    if (s->eval_every > 0)
        printf(", validate every %lld", (long long)s->eval_every);
    if (t->dir && s->save_every > 0)
        printf(", save every %lld", (long long)s->save_every);
    printf("\n");
}

/* What has 16 bits and how products of it are computed, which is measured here in a fresh run. */
static void print_compute(const Train *t)
{
    if (t->m->compute != RT_BF16 && t->m->compute != RT_F16)
        return;
    if (t->m->n_halves > 0)
        printf("masters  none: %td parameters in bf16 alone, rounded at random; %td in fp32\n",
               t->m->n_halves, rt_params_wide(t->m));
    printf("compute  %s beside fp32 %sgradients and optimizer; products ", rt_precision(t->m),
           t->m->n_halves > 0 ? "" : "parameters, ");
    if (t->m->compute != RT_BF16) {
        printf("%s\n", rt_place_is_host() ? "in fp32, unpacked block by block"
                                          : rt_products_how(RT_PRODUCTS_UNSET, RT_PRODUCTS_UNSET));
        if (t->o->loss_scale > 0)
            printf("scale    of the loss: from %.0f, times %g after %lld finite updates; one that "
                   "is not %s\n",
                   t->o->loss_scale, t->o->scale_growth, (long long)t->o->scale_interval,
                   strcmp(t->o->nonfinite, "skip") == 0 ? rt_keep(
                       rt_printf("multiplies it by %g and is skipped", t->o->scale_backoff))
                                                        : "stops the run");
        else
            printf("scale    none: small gradients may be 0 in fp16\n");
        return;
    }
    const RtProducts now = rt_products_choose(t->products);
    printf("%s\n", rt_products_how(now, t->products));
    if (t->products != RT_PRODUCTS_UNSET && now != t->products)
        printf("changed  products %s -> %s: results agree to rounding, not bit for bit\n",
               rt_products_name(t->products), rt_products_name(now));
}

/* true: there are data to validate with */
static bool print_header(const Train *t)
{
    const RtModel *m = t->m;
    ptrdiff_t decayed = 0;
    for (int i = 0; i < m->n_params; i++)
        for (ptrdiff_t k = 0; k < rt_param_repeats(&m->params[i]); k++) {
            const RtPiece piece = rt_param_piece(m, &m->params[i], k);
            if (piece.rate != 0 && (isnan(piece.own) ? piece.decay : piece.own > 0))
                decayed += piece.to - piece.from;
        }
    printf("%s: %td parameters (%td decayed), %s, compiled by gradcc from %s\n", m->name,
           rt_params_count(m, false), decayed, rt_precision(m), m->source);
    print_compute(t);
    if (m->recompute)
        printf("again    %s\n", m->recompute);
    rt_params_print(m, stdout);
    int64_t left;
    const int64_t validates = rt_run_validates(m, t->o, t->data, &left);
    printf("data     %s: %lld samples to train on, %lld to validate\n",
           t->o->train.path ? t->o->train.path : "none",
           (long long)rt_data_samples(t->data, RT_SPLIT_TRAIN), (long long)validates);
    if (left > 0)
        printf("note     %lld tokens at the end of validation files are left out: they are fewer "
               "than the model's window takes\n",
               (long long)left);
    print_settings(t);
    return validates > 0;
}

/* Settings that have no effect, or another than they seem to. */
static void tell_useless(const Train *t)
{
    const RtTrain *s = &t->o->train;
    if (s->val_path && *s->val_path && strcmp(s->val_path, "none") != 0 && s->eval_every == 0)
        printf("note     no validation: eval is 0, and %s is not used (--eval N validates every N "
               "updates and at the end)\n",
               s->val_path);
    rt_schedule_check(s);
}

/* ---- the run directory ---------------------------------------------------------------------- */

static void make_directories(const char *path)
{
    char *part = rt_printf("%s", path);
    for (char *at = part + 1;; at++) {
        const char was = *at;
        if (was != '/' && was != 0)
            continue;
        *at = 0;
        struct stat st;
        if (stat(part, &st) != 0 && rt_io.mkdir(part, 0777) && errno != EEXIST)
            rt_fail(RT_EXIT_FAIL, "%s: cannot be made: %s", part, strerror(errno));
        if (stat(part, &st) == 0 && !S_ISDIR(st.st_mode))
            rt_fail(RT_EXIT_FAIL, "%s: is no directory\nhint: choose another --out DIR", part);
        *at = was;
        if (was == 0)
            break;
    }
    rt_free(part);
}

/* Another process may have run there between the first look and the lock. */
static void lock_directory(Train *t)
{
    if (t->locked)
        return;
    t->locked = rt_lock_take(t->dir, true);
    check_directory(t);
}

static void write_config(const Train *t)
{
    char *path = rt_printf("%s/config.json", t->dir);
    char *text = rt_config_text(t->m, t->o);
    if (rt_write_atomic(path, text, strlen(text)))
        rt_fail(RT_EXIT_FAIL, "%s: cannot be written: %s", path, strerror(errno));
    rt_free(text);
    rt_free(path);
}

/* ---- at a step boundary --------------------------------------------------------------------- */

static void validate(Train *t)
{
    RtState *state = t->run->state;
    const double start = rt_now();
    const RtMeans means = rt_run_evaluate(t->run, RT_SPLIT_VAL);
    const bool best = isfinite(means.loss)
                      && (!isfinite(state->best_val) || means.loss < state->best_val);
    if (best) {
        state->best_val = means.loss;
        t->best_step = state->step;
    }
    t->validated = state->step;
    t->val_loss = means.loss;
    if (!state->ema) {
        rt_log_validation(&t->log, t->run, &means, NULL, rt_now() - start, best);
        return;
    }
    rt_ema_swap(t->run);
    const RtMeans average = rt_run_evaluate(t->run, RT_SPLIT_VAL);
    rt_ema_swap(t->run);
    rt_log_validation(&t->log, t->run, &means, &average, rt_now() - start, best);
}

static void save(Train *t)
{
    const bool writes = strcmp(t->o->train.out, "none") != 0; /* rank 0 does */
    double failed = 0;
    if (t->saved == t->run->state->step)
        return;
    rt_agree_still(t->run, t->saved);
    if (!writes)
        return;
    if (t->dir)
        failed = rt_run_save(t->run, t->dir) != 0;
    rt_comm_barrier(rt_comm_world(), "a checkpoint");
    rt_comm_all_reduce(rt_comm_world(), &failed, 1, RT_F64, RT_MAX, "was a checkpoint written?");
    if (failed == 0) {
        t->saved = t->run->state->step;
        t->failures = 0;
    } else if (++t->failures == SAVE_FAILURES) {
        rt_fail(RT_EXIT_FAIL,
                "no checkpoint could be written %d times in a row; the last one is "
                "of step %lld",
                SAVE_FAILURES, (long long)t->saved);
    }
}

static void print_go_on(const Train *t, bool more_steps)
{
    const RtOptions *o = t->o;
    char steps[64] = "", *own = rt_printf("%s.run", t->m->name);
    char *out = strcmp(own, t->dir) == 0 ? rt_printf("%s", "")
                                         : rt_printf(" --out %s", shell_word(t->dir));
    if (more_steps)
        snprintf(steps, sizeof steps, " --steps %lld", (long long)o->train.steps * 2);
    printf("go on    %s --resume auto%s%s\n", shell_word(o->program), out, steps);
    if (more_steps && rt_generate_possible(t->m) == NULL)
        printf("generate %s generate%s\n", shell_word(o->program), out);
    rt_free(out);
    rt_free(own);
}

/* Of updates that were skipped before this one; kept by rt_keep. */
static const char *skips_text(const RtState *state)
{
    if (state->stuck == 0)
        return "";
    return rt_keep(rt_printf("%lld updates in a row were skipped before it%s, and --max-skips is "
                             "%lld\n",
                             (long long)state->stuck, state->scale > 0 ? " at loss scale 1" : "",
                             (long long)state->opt->max_skips));
}

static void warn_skipped(const RtState *state, const RtStep *s, const RtMeans *means)
{
    const long long step = (long long)state->step;
    if (state->scale > 0 && state->scale < s->scale)
        rt_warn(
            "step %lld is skipped: the loss is %g and gradients at loss scale %g are not finite; "
            "the scale is %g now",
            step, means->loss, s->scale, state->scale);
    else
        rt_warn("step %lld is skipped: the loss is %g and gradients are not finite (%lld in a row; "
                "%lld stop the run)",
                step, means->loss, (long long)state->stuck, (long long)state->opt->max_skips);
}

/* What --replay needs, in crash/; NULL: it is not there. */
static const char *save_capsule(Train *t, const RtState *before, const RtStep *s,
                                const RtMeans *means)
{
    if (!t->dir)
        return NULL;
    make_directories(t->crash);
    return rt_capsule_save(t->run, before, s, means, t->crash) == 0 ? t->crash : NULL;
}

__attribute__((noreturn)) static void stop_nonfinite(Train *t, const RtStep *s,
                                                     const RtMeans *means)
{
    RtState *state = t->run->state;
    const char *bad = rt_keep(rt_bad_parameters(t->run)), *dir = save_capsule(t, state, s, means);
    rt_comm_barrier(rt_comm_world(), "the state before the step");
    const char *report = rt_replay_report(t->run); /* a step again, on all ranks */
    while (rt_rank() > 0)                          /* rank 0 tells, and ends all */
        rt_comm_barrier(rt_comm_world(), "the end");
    const char *again = dir ? rt_keep(rt_printf("\nhint: %s --replay %s runs that step again; "
                                                "--trace prints every value",
                                                shell_word(t->o->program), shell_word(dir)))
                            : "";
    const char *skips = skips_text(state);
    const long long step = (long long)state->step + 1;
    rt_fail(RT_EXIT_FAIL,
            "step %lld: the loss is %g and gradients that are not finite: %s\n%s"
            "the parameters are as before the step; %s%s\n%s\nhint: a lower --lr, a longer "
            "--warmup; log, sqrt or division at 0 in the model%s",
            step, means->loss, bad, skips, dir ? "saved in " : "nothing was saved", dir ? dir : "",
            report, again);
}

/* Of skipped updates the first of a row is kept, for at most a hundredth of the time. */
static void skip_nonfinite(Train *t, const RtState *before, const RtStep *s, const RtMeans *means)
{
    const double start = rt_now(), used = t->capsule_seconds;
    const char *dir = NULL;
    warn_skipped(t->run->state, s, means);
    if (t->skipping)
        return;
    if (used <= 0 || used <= 0.01 * (start - t->o->started)) {
        dir = save_capsule(t, before, s, means);
        t->capsule_seconds += rt_now() - start;
    }
    rt_comm_barrier(rt_comm_world(), "the state before a skipped step");
    if (dir)
        rt_log_say(&t->log, "note     %s --replay %s runs that step again and names the value",
                   shell_word(t->o->program), shell_word(dir));
}

static int stop_by_signal(Train *t, int number)
{
    const long long step = (long long)t->run->state->step;
    save(t);
    rt_log_close(&t->log);
    if (t->dir && t->saved != step)
        rt_fail(RT_EXIT_FAIL, "stopped at step %lld, and no checkpoint could be written", step);
    printf("stopped  at step %lld of %lld%s\n", step, (long long)t->o->train.steps,
           t->dir ? "; a checkpoint is written" : "");
    if (t->dir)
        print_go_on(t, false);
    return number == SIGINT ? RT_EXIT_INTERRUPT : RT_EXIT_REQUEUE;
}

/* Of a GPU's memory. */
static void tell_place(void)
{
    char size[RT_BYTES_TEXT];
    const double taken = rt_place_taken(), over = taken - rt_memory_planned_place();
    printf("device   %s, %.0f bytes in one allocation, ", rt_bytes(taken, size), taken);
    if (over > 0 || over < 0)
        printf("%.0f %s than planned\n", fabs(over), over > 0 ? "more" : "less");
    else
        printf("as planned\n");
}

/* "the newest is of step 500" */
static const char *newest_text(const Train *t)
{
    return t->saved < 0 ? "there is none"
                        : rt_keep(rt_printf("the newest is of step %lld", (long long)t->saved));
}

static void finish(Train *t, const RtMeans *last)
{
    const RtState *state = t->run->state;
    char peak[RT_BYTES_TEXT];
    rt_log_close(&t->log);
    printf("done     step %lld, training loss %.4f", (long long)state->step, last->loss);
    if (t->validated == state->step)
        printf(", validation loss %.4f", t->val_loss);
    if (isfinite(state->best_val) && t->best_step >= 0)
        printf(", best %.4f at step %lld", state->best_val, (long long)t->best_step);
    else if (isfinite(state->best_val))
        printf(", best %.4f", state->best_val);
    printf("\n");
    if (state->skipped)
        printf("skipped  %lld update%s, not finite\n", (long long)state->skipped,
               state->skipped == 1 ? "" : "s");
    if (state->empty)
        printf("empty    %lld updates had no element that counts in the loss\n",
               (long long)state->empty);
    const double most = rt_memory_most(), over = most - rt_memory_planned();
    printf("memory   peak %s resident; %.0f bytes allocated, ",
           rt_memory_peak() < 0 ? "unknown" : rt_bytes(rt_memory_peak(), peak), most);
    if (over < 0 && !rt_place_is_host()) /* texts about a GPU's products have a longest length */
        printf("within what was planned\n");
    else if (over > 0 || over < 0)
        printf("%.0f %s than planned\n", fabs(over), over > 0 ? "more" : "less");
    else
        printf("as planned\n");
    if (!rt_place_is_host())
        tell_place();
    rt_buckets_report(state->buckets, state->step - t->start);
    if (t->dir && t->saved != state->step)
        rt_fail(RT_EXIT_FAIL, "the last checkpoint could not be written; %s", newest_text(t));
    if (t->dir) {
        printf("saved    %s/step-%08lld\n", t->dir, (long long)state->step);
        print_go_on(t, true);
    }
}

/* ---- the program ---------------------------------------------------------------------------- */

static void prepare(Train *t)
{
    const RtModel *m = t->m;
    RtOptions *o = t->o;
    const bool no_steps = o->train.steps == 0 && rt_option_given(m, o, "steps");
    if (no_steps)
        rt_fail(RT_EXIT_USAGE,
                "--steps 0: there is nothing to do\nhint: --dry-run prints settings, "
                "parameters and memory; --steps N trains");
    rt_threads_set(o);
    set_directory(t);
    if (t->dir && !o->dry_run && rt_rank() == 0) /* before its checkpoints are looked at */
        t->locked = rt_lock_take(t->dir,
                                 strcmp(o->resume, "none") != 0 && rt_checkpoint_exists(t->dir));
    resolve_auto(t);
    check_directory(t);
    tell_crash(t);
    adopt_checkpoint(t);
    leave_writing(t);
    rt_options_settle(m, o);
    if (o->train.steps < 1)
        rt_fail(RT_EXIT_USAGE,
                "no number of steps is set\nhint: give --steps N, or set steps in "
                "the train block of %s",
                m->source);
    t->data = rt_data_open(m, &o->train, o->dims, t->vocab);
    const bool can_validate = print_header(t);
    tell_useless(t);
    if (o->train.eval_every > 0 && m->evaluate && !can_validate) {
        printf("note     no validation: there are no data for it (--val-data FILE, or --split)\n");
        o->train.eval_every = 0;
    }
    const int use = RT_USE_TRAIN | (o->train.eval_every > 0 ? RT_USE_EVAL : 0);
    rt_memory_check(m, o, t->data, use);
    if (o->dry_run) {
        rt_comm_close();
        exit(rt_end(0));
    }

    t->run = rt_run_create(m, o, t->data, use);
    t->run->state->check = o->trace ? rt_check_create(t->run, true) : NULL;
    const char *loaded = NULL;
    if (t->from) {
        RtCheckpoint c = { .best_val = NAN, .scale = NAN };
        loaded = rt_run_load(t->run, t->from, true, &c);
        if (!loaded)
            rt_fail(RT_EXIT_FAIL, "--resume %s: the checkpoint is gone", t->from);
        if (c.data_hash != rt_data_hash(t->data))
            rt_warn("the data are not those of the checkpoint; training goes on with the new ones");
    } else {
        rt_params_init(m, o->train.seed, t->run->p);
        rt_data_fit(t->data, m, t->run->p);
        rt_params_copy(t->run);
        rt_ema_start(t->run);
    }
    rt_agree(t->run, t->from);
    if (t->run->state->buckets)
        rt_buckets_print(t->run->state->buckets);
    if (t->dir) {
        make_directories(t->dir);
        lock_directory(t);
        rt_checkpoint_clean(t->dir, loaded);
        write_config(t);
    }
    t->start = t->run->state->step;
    t->saved = loaded ? t->start : -1;
    t->log = rt_log_open(m, o, t->dir, loaded ? 1 : 0);
    rt_log_record_start(&t->log, t->start, loaded);
}

static void clean_up(Train *t)
{
    rt_log_close(&t->log);
    rt_check_free(t->run->state->check);
    rt_run_free(t->run);
    rt_data_close(t->data);
}

/* Does something follow this update before the next one begins? The same on all ranks. */
static bool is_boundary(const Train *t, int64_t step)
{
    const RtTrain *s = &t->o->train;
    return step >= s->steps || t->run->state->signal || (rt_ranks() == 1 && rt_signal_pending())
           || (s->eval_every > 0 && step % s->eval_every == 0)
           || (s->save_every > 0 && step % s->save_every == 0);
}

static int train(const RtModel *m, RtOptions *o)
{
    if (!m->step)
        rt_fail(RT_EXIT_USAGE, "%s has no loss to train on", m->name);
    if (o->comm_check)
        return rt_comm_check();
    if (rt_ranks() > 1 && (o->trace || strcmp(o->replay, "none") != 0))
        rt_fail(RT_EXIT_USAGE, "--%s looks at the values of one process\nhint: run it on one rank",
                o->trace ? "trace" : "replay");
    if (strcmp(o->replay, "none") != 0)
        return rt_do_replay(m, o);
    Train t = { .m = m, .o = o, .best_step = -1, .validated = -1, .saved = -1 };
    RtMeans means = { 0 };
    prepare(&t);
    rt_log_begin(&t.log);
    rt_signal_catch();
    RtState *state = t.run->state;
    if (state->step >= o->train.steps) {
        printf("done     the run has its %lld steps already\nhint     --steps N goes further\n",
               (long long)o->train.steps);
        clean_up(&t);
        return 0;
    }
    fflush(stdout);

    while (state->step < o->train.steps) {
        RtStep s;
        const RtState before = *state;
        const double start = rt_now();
        means = rt_run_step(t.run, &s, !is_boundary(&t, before.step + 1));
        if (!s.finite && state->step == before.step)
            stop_nonfinite(&t, &s, &means);
        if (!s.finite)
            skip_nonfinite(&t, &before, &s, &means);
        t.skipping = !s.finite;
        rt_log_step(&t.log, t.run, &s, &means, rt_now() - start);
        rt_warnings_tell();
        if (state->step == t.start + 2) /* a GPU may be an update behind */
            rt_comm_settled();
        const bool last = state->step == o->train.steps;
        if (o->train.eval_every > 0 && (last || state->step % o->train.eval_every == 0))
            validate(&t);
        if (last || (o->train.save_every > 0 && state->step % o->train.save_every == 0))
            save(&t);
        if (state->signal && !last && !rt_step_is_ahead(t.run)) {
            const int code = stop_by_signal(&t, state->signal);
            clean_up(&t);
            return code;
        }
    }
    finish(&t, &means);
    clean_up(&t);
    return 0;
}

int rt_main(const RtModel *model, int argc, char **argv)
{
    rt_threads_tame(argv);
    rt_base_init();
    RtOptions options = rt_options_parse(model, argc, argv);
    int code = 0;
    rt_comm_open(&options);
    rt_environment_check();
    rt_place_start(model, &options, options.command == RT_DO_TRAIN);
    switch (options.command) {
    case RT_DO_TRAIN: code = train(model, &options); break;
    case RT_DO_EVAL: code = rt_do_evaluate(model, &options); break;
    case RT_DO_GENERATE: code = rt_do_generate(model, &options); break;
    }
    rt_comm_close();
    rt_base_end();
    return rt_end(code);
}
