/* schedule.c -- the learning rate of an update.
 *
 * In: the settings and the number of updates applied so far. Out: the rate of the update to come.
 * The one idea: skipped updates do not advance it. With i updates applied, W of warm-up and D to
 * run over (--decay-steps, or all of the run), a = lr, b = lr_end:
 *
 *     i < W           a (i + 1) / (W + 1)                                (nanoGPT's convention)
 *     constant        a
 *     linear          b + (a - b) (1 - r),             r = (i - W) / (D - W); after D: b
 *     cosine          b + (a - b) (1 + cos(pi r)) / 2  the same
 *     wsd             a until D - decay; then b + (a - b) (1 - r), or (1 - sqrt(r)),
 *                     r = (i - s) / (D - s), s = max(D - decay, W); after D: b
 *     step            a factor^n, n = i div every, or the number of `at` that are no more than i
 *     inverse_sqrt    a sqrt((W + 1) / (i + 1))
 *     formula         what the model says, of i and steps
 *
 * one_cycle has no warm-up of its own. It runs through points, from one to the next along half a
 * cosine, y + (x - y) (1 + cos(pi r)) / 2, as PyTorch's OneCycleLR does:
 *
 *     (0, a / div)  (pct D - 1, a)  (D - 1, a / div / final_div); after D - 1: the last
 *     three phases: (0, a / div)  (pct D - 1, a)  (2 pct D - 2, a / div)  (D - 1, ...)
 */
#include "run.h"

#include <ctype.h>

#define PI 3.14159265358979323846

static const char *const names[] = {
    [RT_CONSTANT] = "constant",   [RT_LINEAR] = "linear",
    [RT_COSINE] = "cosine",       [RT_WSD] = "wsd",
    [RT_STEP] = "step",           [RT_INVERSE_SQRT] = "inverse_sqrt",
    [RT_ONE_CYCLE] = "one_cycle", [RT_FORMULA] = "formula",
};

const char *rt_schedule_name(const RtTrain *t)
{
    return t->schedule == RT_FORMULA ? t->rate_text : names[t->schedule];
}

static int64_t length(const RtTrain *t) { return t->decay_steps > 0 ? t->decay_steps : t->steps; }

static bool has_end(const RtTrain *t)
{
    return t->schedule == RT_LINEAR || t->schedule == RT_COSINE || t->schedule == RT_WSD;
}

static double half_cosine(double from, double to, double r)
{
    return to + (from - to) * 0.5 * (1 + cos(PI * r));
}

/* ---- each kind ------------------------------------------------------------------------------ */

/* How many numbers of "3000,6000" are no more than i; -1: they are no numbers that grow. */
static int64_t drops_until(const char *list, int64_t i)
{
    int64_t n = 0, last = 0;
    for (const char *at = list;; at++) {
        char *end;
        while (*at == ' ')
            at++;
        const long long drop = isdigit((unsigned char)*at) ? strtoll(at, &end, 10) : 0;
        if (drop <= last || drop == INT64_MAX)
            return -1;
        n += drop <= i;
        last = drop;
        at = end + strspn(end, " ");
        if (*at == 0)
            return n;
        if (*at != ',')
            return -1;
    }
}

static double step_lr(const RtTrain *t, int64_t i)
{
    const int64_t n = t->drop_at ? drops_until(t->drop_at, i) : i / t->drop_every;
    return t->lr * pow(t->drop_factor, (double)n);
}

static double falling_lr(const RtTrain *t, int64_t i)
{
    const int64_t D = length(t);
    int64_t start = t->warmup;
    if (t->schedule == RT_WSD && D - t->decay > start)
        start = D - t->decay;
    if (i > D || D <= start)
        return t->lr_end;
    if (i < start)
        return t->lr;
    const double r = (double)(i - start) / (double)(D - start);
    if (t->schedule == RT_COSINE)
        return half_cosine(t->lr, t->lr_end, r);
    return t->lr_end + (t->lr - t->lr_end) * (1 - (t->decay_sqrt ? sqrt(r) : r));
}

static double one_cycle_lr(const RtTrain *t, int64_t i)
{
    const double D = (double)length(t), low = t->lr / t->div_factor;
    const double least = low / t->final_div_factor, top = t->pct_start * D - 1;
    const struct {
        double at, lr;
    } point[] = { { 0, low }, { top, t->lr }, { 2 * top, low }, { D - 1, least } };
    int from = 0;
    for (int to = 1; to < 4; to++) {
        if (to == 2 && !t->three_phase)
            continue;
        if ((double)i <= point[to].at || to == 3) {
            const double span = point[to].at - point[from].at;
            const double r = span > 0 ? ((double)i - point[from].at) / span : 1;
            return half_cosine(point[from].lr, point[to].lr, r < 1 ? r : 1);
        }
        from = to;
    }
    return least;
}

double rt_schedule_lr(const RtTrain *t, int64_t applied)
{
    const int64_t W = t->warmup;
    if (t->schedule == RT_FORMULA)
        return t->rate((double)applied, (double)t->steps);
    if (t->schedule == RT_ONE_CYCLE)
        return one_cycle_lr(t, applied);
    if (applied < W)
        return t->lr * (double)(applied + 1) / (double)(W + 1);
    if (t->schedule == RT_STEP)
        return step_lr(t, applied);
    if (t->schedule == RT_INVERSE_SQRT)
        return t->lr * sqrt((double)(W + 1) / (double)(applied + 1));
    return has_end(t) ? falling_lr(t, applied) : t->lr;
}

/* ---- settings ------------------------------------------------------------------------------- */

bool rt_schedule_takes(RtSchedKind kind, const char *option)
{
    static const struct {
        const char *option;
        unsigned kinds; /* bit k: of kind k */
    } rows[] = {
        { "lr", ~(1u << RT_FORMULA) },
        { "lr-end", 1u << RT_LINEAR | 1u << RT_COSINE | 1u << RT_WSD },
        { "warmup", ~(1u << RT_FORMULA | 1u << RT_ONE_CYCLE) },
        { "decay-steps", 1u << RT_LINEAR | 1u << RT_COSINE | 1u << RT_WSD | 1u << RT_ONE_CYCLE },
        { "decay-length", 1u << RT_WSD },
        { "drop-every", 1u << RT_STEP },
        { "drop-at", 1u << RT_STEP },
        { "drop-factor", 1u << RT_STEP },
        { "pct-start", 1u << RT_ONE_CYCLE },
        { "div-factor", 1u << RT_ONE_CYCLE },
        { "final-div-factor", 1u << RT_ONE_CYCLE },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].option, option) == 0)
            return (rows[i].kinds >> kind & 1u) != 0;
    return true;
}

bool rt_schedule_owns(const char *option) /* of the schedule, by some kind refused */
{
    for (int kind = RT_CONSTANT; kind <= RT_FORMULA; kind++)
        if (!rt_schedule_takes((RtSchedKind)kind, option))
            return true;
    return false;
}

void rt_schedule_settle(RtTrain *t)
{
    if (t->schedule == RT_STEP && t->drop_at && strcmp(t->drop_at, "none") == 0)
        t->drop_at = NULL;
    if (t->schedule == RT_STEP && t->drop_at && drops_until(t->drop_at, 0) < 0)
        rt_fail(RT_EXIT_USAGE,
                "--drop-at %s: wants numbers of updates that grow, as in --drop-at 3000,6000",
                t->drop_at);
    if (t->schedule == RT_STEP && !t->drop_at && t->drop_every < 1)
        rt_fail(RT_EXIT_USAGE, "--drop-at none: --drop-every N says when the rate falls instead");
    if (t->schedule == RT_ONE_CYCLE && t->three_phase && t->pct_start > 0.5)
        rt_fail(RT_EXIT_USAGE,
                "--pct-start %g: with three phases at most 0.5, since the first two "
                "take as long",
                t->pct_start);
}

/* A formula is tried at every update of the run, up to a number that takes no time. */
void rt_schedule_check(const RtTrain *t)
{
    enum { MOST = 1000000 };
    const int64_t every = t->steps / MOST + 1;
    for (int64_t i = 0; t->schedule == RT_FORMULA && i < t->steps; i += every) {
        const double lr = rt_schedule_lr(t, i);
        if (!(lr >= 0 && isfinite(lr)))
            rt_fail(RT_EXIT_USAGE,
                    "the learning rate %s is %g at step = %lld, steps = %lld\nhint: a rate must "
                    "be 0 or more in the whole run",
                    t->rate_text, lr, (long long)i, (long long)t->steps);
    }
    const int64_t W = rt_schedule_takes(t->schedule, "warmup") ? t->warmup : 0, D = length(t);
    if (W > 0 && W >= t->steps)
        rt_warn(
            "the warm-up takes %lld updates and the run has %lld: the learning rate %g is never "
            "reached\nhint: a smaller --warmup, or more --steps",
            (long long)W, (long long)t->steps, t->lr);
    else if (has_end(t) && W > 0 && W >= D)
        rt_warn(
            "the schedule ends after %lld updates, before the warm-up of %lld does: the learning "
            "rate falls to %g at once\nhint: a smaller --warmup, or larger --decay-steps",
            (long long)D, (long long)W, t->lr_end);
    else if (t->schedule == RT_WSD && t->decay > D - W)
        rt_warn("a decay of %lld updates does not fit into %lld: the learning rate falls to %g "
                "over those\nhint: a smaller --decay-length, or more --steps",
                (long long)t->decay, (long long)(D - W), t->lr_end);
}

void rt_schedule_print(const RtTrain *t, FILE *to)
{
    fprintf(to, "rate     %s", rt_schedule_name(t));
    if (t->schedule != RT_FORMULA)
        fprintf(to, " %g", t->lr);
    if (has_end(t))
        fprintf(to, " to %g over %lld", t->lr_end, (long long)length(t));
    if (t->schedule == RT_WSD)
        fprintf(to, ", the last %lld%s", (long long)t->decay, t->decay_sqrt ? " (sqrt)" : "");
    if (t->schedule == RT_STEP && t->drop_at)
        fprintf(to, ", times %g at %s", t->drop_factor, t->drop_at);
    else if (t->schedule == RT_STEP)
        fprintf(to, ", times %g every %lld", t->drop_factor, (long long)t->drop_every);
    if (t->schedule == RT_ONE_CYCLE)
        fprintf(to, " from %g, to %g over %lld, the top at %g%%", t->lr / t->div_factor,
                t->lr / t->div_factor / t->final_div_factor, (long long)length(t),
                100 * t->pct_start);
    if (t->warmup > 0 && rt_schedule_takes(t->schedule, "warmup"))
        fprintf(to, ", warm-up %lld", (long long)t->warmup);
    fputc('\n', to);
}
