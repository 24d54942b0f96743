/* log.c -- what a person sees (one line on a terminal, plain lines elsewhere) and what a program
 * reads (metrics.jsonl in the run directory).
 *
 * In: steps and validations with their means and seconds. Out: text. The one idea: stdout is for
 * people, stderr for messages, and a log that cannot be written is a warning, never the end of a
 * training.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "comm/comm.h"

enum { LINE = 4096 };

#define SPAN 5.0 /* seconds the shown speed looks back */

/* ---- the live line -------------------------------------------------------------------------- */

static bool *live_line; /* of the log that has one, for messages */

static void end_live_line(void)
{
    if (live_line && *live_line) {
        fputc('\n', stdout);
        fflush(stdout);
        *live_line = false;
    }
}

static void clear_line(RtLog *log)
{
    if (log->open_line)
        fputs("\r\033[K", stdout);
    log->open_line = false;
}

void rt_log_say(RtLog *log, const char *fmt, ...)
{
    va_list args;
    clear_line(log);
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
    fputc('\n', stdout);
    fflush(stdout);
}

static bool is_set(const char *variable)
{
    const char *value = getenv(variable);
    return value && *value;
}

static bool terminal_is_live(void)
{
    const char *term = getenv("TERM");
    return rt_ranks() == 1 && isatty(STDOUT_FILENO) && !is_set("CI") && !is_set("NO_COLOR") && term
           && *term && strcmp(term, "dumb") != 0;
}

/* ---- text ----------------------------------------------------------------------------------- */

static const char *duration(double seconds, char text[32])
{
    const long long s = seconds < 0 || seconds > 1e15 ? 0 : (long long)(seconds + 0.5);
    if (s < 3600)
        snprintf(text, 32, "%lld:%02lld", s / 60, s % 60);
    else if (s < 86400)
        snprintf(text, 32, "%lldh%02lldm", s / 3600, s / 60 % 60);
    else
        snprintf(text, 32, "%lldd%02lldh", s / 86400, s / 3600 % 24);
    return text;
}

static const char *amount(double x, char text[32])
{
    if (x >= 1e6)
        snprintf(text, 32, "%.3gM", x / 1e6);
    else if (x >= 1e4)
        snprintf(text, 32, "%.3gk", x / 1e3);
    else
        snprintf(text, 32, "%.*f", x < 10 ? 2 : 0, x);
    return text;
}

/* A JSON member; JSON has no NaN, so null and the kind beside it. */
static size_t json_number(char *line, size_t at, const char *name, double value)
{
    if (at + 160 > LINE)
        return at;
    const char *kind = isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
    if (isfinite(value))
        return at + (size_t)snprintf(line + at, LINE - at, ", \"%.100s\": %.9g", name, value);
    const char *last = strrchr(name, '/');
    return at
           + (size_t)snprintf(line + at, LINE - at,
                              ", \"%.60s\": null, \"%.60s_nonfinite\": "
                              "\"%s\"",
                              name, last ? last + 1 : name, kind);
}

static void write_record(RtLog *log, char *line, size_t at)
{
    at += (size_t)snprintf(line + at, LINE - at, "}\n");
    if (log->fd >= 0 && rt_write_all(log->fd, line, at)) {
        rt_warn("metrics.jsonl: cannot be written: %s; no more metrics are recorded",
                strerror(errno));
        (void)rt_io.close(log->fd);
        log->fd = -1;
    }
}

/* ---- open ----------------------------------------------------------------------------------- */

/* A killed process may have left half a line; the next record begins one of its own. */
static void end_half_line(int fd, const char *path)
{
    char last = '\n';
    const int again = rt_open(path, O_RDONLY, 0);
    if (again < 0)
        return;
    const bool any = lseek(again, -1, SEEK_END) >= 0 && rt_read_some(again, &last, 1) == 1;
    (void)rt_io.close(again);
    if (any && last != '\n')
        (void)rt_write_all(fd, "\n", 1);
}

static int64_t round_interval(int64_t steps) /* about twenty lines: 1, 2, 5, 10, 20, ... */
{
    int64_t every = 1;
    for (int k = 0; every * 20 < steps; k++)
        every = k % 3 == 1 ? every / 2 * 5 : every * 2;
    return every;
}

RtLog rt_log_open(const RtModel *m, const RtOptions *o, const char *dir, int64_t from)
{
    RtLog log = { .fd = -1,
                  .live = terminal_is_live(),
                  .steps = o->train.steps,
                  .unit = 1,
                  .unit_name = "samples",
                  .started = rt_now(),
                  .program = o->started };
    log.every = o->train.log_every > 0 ? o->train.log_every : round_interval(o->train.steps);
    if (m->train.reader && strcmp(m->train.reader, "csv") != 0 && m->train.n_maps > 0) {
        ptrdiff_t lo, hi;
        m->map_range(o->dims, 0, &lo, &hi);
        log.unit = hi - lo;
        log.unit_name = "tokens";
    }
    if (dir) {
        char *path = rt_printf("%s/metrics.jsonl", dir);
        log.fd = rt_open(path, O_WRONLY | O_CREAT | (from > 0 ? O_APPEND : O_TRUNC), 0666);
        if (log.fd < 0)
            rt_warn("%s: cannot be opened: %s; no metrics are recorded", path, strerror(errno));
        else if (from > 0)
            end_half_line(log.fd, path);
        rt_free(path);
    }
    return log;
}

void rt_log_begin(RtLog *log) /* log has its final place in memory */
{
    live_line = &log->open_line;
    rt_before_message = end_live_line;
}

void rt_log_record_start(RtLog *log, int64_t step, const char *checkpoint)
{
    char line[LINE];
    size_t at = (size_t)snprintf(line, LINE,
                                 "{\"restart\": %s, \"run_id\": \"%lx-%lx\", "
                                 "\"step\": %lld",
                                 checkpoint ? "true" : "false", (unsigned long)time(NULL),
                                 (unsigned long)getpid(), (long long)step);
    if (!checkpoint) {
        write_record(log, line, at);
        return;
    }
    at += (size_t)snprintf(line + at, LINE - at, ", \"checkpoint\": \"");
    for (const char *c = checkpoint; *c && at + 64 < LINE; c++) {
        if (*c == '"' || *c == '\\')
            line[at++] = '\\';
        if ((unsigned char)*c >= 0x20)
            line[at++] = *c;
    }
    at += (size_t)snprintf(line + at, LINE - at, "\"");
    write_record(log, line, at);
}

/* ---- steps ---------------------------------------------------------------------------------- */

static void record_step(RtLog *log, const RtModel *m, const RtState *state, const RtStep *s,
                        const RtMeans *means, double seconds)
{
    char line[LINE], name[RT_NAME_TEXT];
    size_t at = (size_t)snprintf(line, LINE, "{\"step\": %lld", (long long)state->step);
    at = json_number(line, at, "train/loss", means->loss);
    for (int i = 0; i < m->n_metrics; i++)
        if (isfinite(means->metric[i])) {
            snprintf(name, sizeof name, "train/%s", m->metrics[i].name);
            at = json_number(line, at, name, means->metric[i]);
        }
    at = json_number(line, at, "lr", s->lr);
    at = json_number(line, at, "grad_norm", s->norm);
    at = json_number(line, at, "seconds", seconds);
    at += (size_t)snprintf(line + at, LINE - at, ", \"samples\": %lld, \"skipped\": %lld",
                           (long long)state->samples, (long long)state->skipped);
    if (m->compute == RT_F16)
        at = json_number(line, at, "loss_scale", s->scale);
    write_record(log, line, at);
}

static const char *loss_text(double loss, char text[32])
{
    snprintf(text, 32, loss != 0 && fabs(loss) < 1e-3 ? "%.3e" : "%.4f", loss);
    return text;
}

/* Seconds per step of late: older steps count less, by a factor of e per SPAN seconds. */
static double recent_step(RtLog *log, double seconds)
{
    const double keep = exp(-seconds / SPAN);
    log->recent_seconds = log->recent_seconds * keep + seconds;
    log->recent_steps = log->recent_steps * keep + 1;
    return log->recent_seconds / log->recent_steps;
}

static void print_line(RtLog *log, const char *text, bool open)
{
    struct winsize size;
    const bool sized = log->live && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0
                       && size.ws_col > 20;
    clear_line(log);
    if (open && sized)
        printf("%.*s", size.ws_col - 1, text); /* a line that wraps cannot be updated in place */
    else
        printf(open ? "%s" : "%s\n", text);
    log->open_line = open;
    fflush(stdout);
    log->last_shown = rt_now();
}

void rt_log_step(RtLog *log, const RtRun *run, const RtStep *s, const RtMeans *means,
                 double seconds)
{
    const int64_t step = run->state->step;
    record_step(log, run->model, run->state, s, means, seconds);
    const bool first = log->counted++ == 0; /* slower: pages, caches, libraries start */
    const bool last = step == log->steps, due = first || last || step % log->every == 0;
    const double mean = first ? seconds : recent_step(log, seconds);
    log->seconds += first ? 0 : seconds;
    if (log->live ? !first && !last && rt_now() - log->last_shown < 0.1 : !due)
        return;
    const double step_time = last && !first ? log->seconds / (double)(log->counted - 1) : mean;
    char text[LINE], loss[32], speed[32], time[32];
    size_t at = (size_t)snprintf(
        text, LINE, "step %*lld/%lld  loss %s  lr %.2e  norm %-7.3g  ", log->steps < 100000 ? 5 : 8,
        (long long)step, (long long)log->steps, loss_text(means->loss, loss), s->lr, s->norm);
    if (first)
        snprintf(text + at, LINE - at, "first step %.0f ms, start %.2f s", seconds * 1e3,
                 log->started - log->program);
    else
        snprintf(
            text + at, LINE - at, "%s %s/s  %s %s",
            amount((double)(run->state->opt->train.batch * log->unit) / step_time, speed),
            log->unit_name, last ? "in" : "eta",
            duration(last ? rt_now() - log->started : mean * (double)(log->steps - step), time));
    print_line(log, text, log->live && !first && !last);
}

void rt_log_validation(RtLog *log, const RtRun *run, const RtMeans *means, const RtMeans *average,
                       double seconds, bool best)
{
    const RtModel *m = run->model;
    char line[LINE], name[RT_NAME_TEXT];
    size_t at = (size_t)snprintf(line, LINE, "{\"step\": %lld", (long long)run->state->step);
    at = json_number(line, at, "val/loss", means->loss);
    for (int i = 0; i < m->n_metrics; i++) {
        snprintf(name, sizeof name, "val/%s", m->metrics[i].name);
        at = json_number(line, at, name, means->metric[i]);
    }
    if (average)
        at = json_number(line, at, "val/ema_loss", average->loss);
    for (int i = 0; average && i < m->n_metrics; i++) {
        snprintf(name, sizeof name, "val/ema_%s", m->metrics[i].name);
        at = json_number(line, at, name, average->metric[i]);
    }
    at = json_number(line, at, "val/seconds", seconds);
    write_record(log, line, at);

    char text[LINE], loss[32];
    at = (size_t)snprintf(text, LINE, "val  %*lld/%lld  loss %s", log->steps < 100000 ? 5 : 8,
                          (long long)run->state->step, (long long)log->steps,
                          loss_text(means->loss, loss));
    for (int i = 0; i < m->n_metrics && at + 200 < LINE; i++)
        at += (size_t)snprintf(text + at, LINE - at, "  %.100s %.4g", m->metrics[i].name,
                               means->metric[i]);
    if (average)
        at += (size_t)snprintf(text + at, LINE - at, "  ema %s", loss_text(average->loss, loss));
    rt_log_say(log, "%s%s", text, best ? "  (best)" : "");
}

void rt_log_close(RtLog *log)
{
    end_live_line();
    live_line = NULL;
    rt_before_message = NULL;
    if (log->fd >= 0)
        (void)rt_io.close(log->fd);
    log->fd = -1;
}
