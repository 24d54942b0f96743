/* check.c -- a look at every value that a step writes: which is the first that is not finite?
 *
 * In: RT_CHECK of the emitted file, behind each of its kernels, while a step is replayed or traced.
 * Out: a report of the first value with an element that is nan or infinite: where it was computed,
 * which elements they are, and the ranges of what that kernel read. The one idea: the range of each
 * value is kept as it is written, so that those of the operands are known when one goes bad.
 *
 * Where no step is looked at, RT_CHECK costs nothing that can be measured: chargpt at 32 tokens a
 * step, where kernels are shortest, 600 steps on one thread, least of 8 interleaved runs: 1.81 s of
 * processor time with it, 1.86 s without.
 */
#include <stdarg.h>

#include "comm/comm.h"

typedef struct {
    double min, max, sum;      /* of the n finite elements */
    ptrdiff_t n, n_nan, n_inf; /* elements of each kind */
    ptrdiff_t first, total;    /* the first that is not finite, -1 = none; of how many */
    double bad;                /* it */
} Range;

typedef struct { /* a value of the micro-step in work */
    const RtStepRow *step;
    const char *name; /* with its shape */
    ptrdiff_t at[RT_MAX_STACKS];
    Range range;
} Seen;

struct RtCheck {
    const RtRun *run;
    bool trace;                 /* a line for each value */
    bool rehearsing, rehearsed; /* another step, to see what is infinite there; it was finite */
    Seen *usual;                /* of that step: values with infinite elements and no nan */
    ptrdiff_t n_usual;
    int micro;
    ptrdiff_t at[RT_MAX_STACKS]; /* repetition of the loops in work */
    Seen *seen;
    ptrdiff_t n_seen, cap;
    char *before; /* of parameters and inputs that are not finite to begin with, or NULL */
    char *report; /* NULL: all values were finite so far */
    size_t report_len;
};

/* ---- ranges ---------------------------------------------------------------------------------- */

static double element(RtType type, const void *at, ptrdiff_t i)
{
    switch (type) {
    case RT_F32: return (double)((const float *)at)[i];
    case RT_F64: return ((const double *)at)[i];
    case RT_BF16: return (double)rt_of_bf16(((const rt_bf16 *)at)[i]);
    case RT_F16: return (double)rt_of_f16(((const rt_f16 *)at)[i]);
    case RT_I32: break;
    }
    return ((const int32_t *)at)[i];
}

static void add(Range *r, double v)
{
    if (isfinite(v)) {
        r->min = r->n == 0 || v < r->min ? v : r->min;
        r->max = r->n == 0 || v > r->max ? v : r->max;
        r->sum += v;
        r->n++;
    } else {
        *(isnan(v) ? &r->n_nan : &r->n_inf) += 1;
        if (r->first < 0) {
            r->first = r->total;
            r->bad = v;
        }
    }
    r->total++;
}

static void add_axis(Range *r, RtType type, const void *at, const RtGrid *g, int axis,
                     ptrdiff_t from)
{
    if (axis == RT_MAX_RANK || g->axis[axis].step == 0) {
        add(r, element(type, at, from));
        return;
    }
    for (ptrdiff_t i = 0; i < g->axis[axis].n; i++)
        add_axis(r, type, at, g, axis + 1, from + i * g->axis[axis].step);
}

static size_t element_bytes(RtType type)
{
    return type == RT_F64 ? sizeof(double) : type == RT_BF16 || type == RT_F16 ? 2 : sizeof(float);
}

/* at: where a step has it, which the host may see by a copy alone. */
static Range range_of(RtType type, const void *at, const RtGrid *g)
{
    Range r = { .first = -1 };
    ptrdiff_t last = 0;
    bool empty = false;
    for (int axis = 0; axis < RT_MAX_RANK && g->axis[axis].step != 0; axis++) {
        last += (g->axis[axis].n - 1) * g->axis[axis].step;
        empty = empty || g->axis[axis].n < 1;
    }
    if (empty)
        return r;
    if (rt_place_is_host()) {
        add_axis(&r, type, at, g, 0, 0);
        return r;
    }
    const size_t bytes = (size_t)(last + 1) * element_bytes(type);
    void *copy = rt_alloc(bytes, "a value to be looked at");
    rt_place_get(copy, at, bytes);
    add_axis(&r, type, copy, g, 0, 0);
    rt_free(copy);
    return r;
}

static Range range_flat(RtType type, const void *at, ptrdiff_t n)
{
    return range_of(type, at, &(RtGrid){ { { n, 1 } } });
}

/* ---- the report ------------------------------------------------------------------------------ */

__attribute__((format(printf, 2, 3))) static void tell(RtCheck *c, const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    const size_t more = (size_t)vsnprintf(NULL, 0, fmt, args);
    char *text = rt_alloc(c->report_len + more + 1, "a report");
    if (c->report_len)
        memcpy(text, c->report, c->report_len);
    vsnprintf(text + c->report_len, more + 1, fmt, again);
    va_end(again);
    va_end(args);
    rt_free(c->report);
    c->report = text;
    c->report_len += more;
}

static void tell_range(RtCheck *c, const Range *r)
{
    if (r->n > 0)
        tell(c, "from %.4g to %.4g", r->min, r->max);
    if (r->n_nan > 0)
        tell(c, "%s%td nan", r->n > 0 ? "; " : "", r->n_nan);
    if (r->n_inf > 0)
        tell(c, "%s%td inf", r->n + r->n_nan > 0 ? "; " : "", r->n_inf);
    if (r->total == 0)
        tell(c, "no elements");
}

static const char *kind(double v) { return isnan(v) ? "nan" : v > 0 ? "inf" : "-inf"; }

static ptrdiff_t batch_rows(const RtRun *run)
{
    for (int i = 0; i < run->model->n_dims; i++)
        if (run->model->dims[i].batch)
            return run->dims[i];
    return 1;
}

/* "nan in 3 of 96 elements, the first at 17, in sample 5 of the run ..."; rows: samples along which
   they lie, from sample `from` of the run on; 0 = none. */
static void tell_bad(RtCheck *c, const Range *r, int64_t from, ptrdiff_t rows)
{
    const RtState *state = c->run->state;
    tell(c, "%s", kind(r->bad));
    if (r->total > 1)
        tell(c, " in %td of %td elements, the first at %td", r->n_nan + r->n_inf, r->total,
             r->first);
    if (r->n_nan > 0 && r->n_inf > 0)
        tell(c, " (%td nan, %td inf)", r->n_nan, r->n_inf);
    if (rows > 0 && r->total % rows == 0) {
        const int64_t of_run = from + r->first / (r->total / rows);
        tell(c, ", in sample %lld of the run, number %lld of the training data", (long long)of_run,
             (long long)rt_data_index(state->data, state->opt->train.seed, of_run));
    }
    if (r->n > 0)
        tell(c, "; others from %.4g to %.4g", r->min, r->max);
}

/* "z" of "z[B,C]": does the shape begin with the batch? */
static bool along_batch(const RtModel *m, const char *name)
{
    const char *shape = strchr(name, '[');
    for (int i = 0; shape && i < m->n_dims; i++) {
        const size_t n = strlen(m->dims[i].name);
        if (m->dims[i].batch && strncmp(shape + 1, m->dims[i].name, n) == 0
            && (shape[1 + n] == ',' || shape[1 + n] == ']'))
            return true;
    }
    return false;
}

static int depth_of(const RtStepRow *step)
{
    int n = 0;
    while (n < RT_MAX_STACKS && step->loops[n])
        n++;
    return n;
}

static void tell_loops(RtCheck *c, const RtStepRow *step)
{
    for (int d = 0; d < depth_of(step); d++)
        tell(c, "%s%s.%td", d ? ", " : " of ", step->loops[d], c->at[d]);
}

/* ---- what a step read ------------------------------------------------------------------------ */

static Range range_param(const RtCheck *c, const RtParam *q, ptrdiff_t repeat)
{
    RtType type;
    const void *at = rt_param_place(c->run->model, c->run->p, rt_param_at(q, repeat), &type);
    return range_flat(type, at, rt_param_elems(q));
}

static void tell_param(RtCheck *c, const RtStepRow *step, const char *path)
{
    const RtModel *m = c->run->model;
    char name[RT_NAME_TEXT];
    for (int i = 0; i < m->n_params; i++) {
        const RtParam *q = &m->params[i];
        if (strcmp(q->path, path) != 0)
            continue;
        const bool one = q->n_stacks <= depth_of(step);
        ptrdiff_t repeat = 0;
        for (int k = 0; one && k < q->n_stacks; k++)
            repeat = repeat * q->stack[k].count + c->at[k];
        if (repeat >= rt_param_repeats(q))
            return;
        const Range r = range_param(c, q, repeat);
        tell(c, "\n  reads %s: ", rt_param_name(q, repeat, name));
        tell_range(c, &r);
    }
}

static void tell_input(RtCheck *c, const char *name)
{
    const RtModel *m = c->run->model;
    for (int i = 0; i < m->n_inputs; i++)
        if (strcmp(m->inputs[i].name, name) == 0) {
            const Range r = range_flat(m->inputs[i].type, c->run->inputs[i],
                                       batch_rows(c->run) * c->run->state->row_elems[i]);
            tell(c, "\n  reads input %s: ", name);
            tell_range(c, &r);
        }
}

/* Was it written in this repetition of the loops, or `off` later? */
static bool is_repetition(const RtCheck *c, const Seen *seen, ptrdiff_t off)
{
    const int depth = depth_of(seen->step);
    for (int d = 0; d < depth; d++)
        if (seen->at[d] != c->at[d] + (d == depth - 1 ? off : 0))
            return false;
    return true;
}

/* name: "z", the last one written; "z[i]", "z[i-1]" and "z[i+1]" by repetition, outside of the
   loop where there is no such one; "z[?]": not known. The step's own values come behind them. */
static void tell_value(RtCheck *c, const RtStepRow *step, const char *name, size_t len)
{
    const char *mark = memchr(name, '[', len);
    const size_t n = mark ? (size_t)(mark - name) : len;
    const ptrdiff_t off = mark && mark[2] == '-' ? -1 : mark && mark[2] == '+';
    const Seen *found = NULL;
    for (ptrdiff_t i = c->n_seen - 1; i >= 0 && !found; i--) {
        const Seen *seen = &c->seen[i];
        if (strncmp(seen->name, name, n) != 0 || (seen->name[n] && !strchr("[,", seen->name[n]))
            || (seen->step == step && is_repetition(c, seen, 0)))
            continue;
        if (!mark || (mark[1] == 'i' && is_repetition(c, seen, off)))
            found = seen;
    }
    tell(c, "\n  reads %.*s", (int)n, name);
    if (found) {
        tell(c, "%s: ", found->name + n);
        tell_range(c, &found->range);
    }
}

static void tell_reads(RtCheck *c, const RtStepRow *step)
{
    for (const char *at = step->reads; at && *at;) {
        const char *end = strstr(at, ", ");
        const size_t len = end ? (size_t)(end - at) : strlen(at);
        char *word = rt_printf("%.*s", (int)len, at);
        if (strncmp(word, "param ", 6) == 0)
            tell_param(c, step, word + 6);
        else if (strncmp(word, "input ", 6) == 0)
            tell_input(c, word + 6);
        else
            tell_value(c, step, at, len);
        rt_free(word);
        at += len + (end ? 2 : 0);
    }
}

/* ---- as the emitted code calls it ------------------------------------------------------------ */

static const RtStepRow *row_of(const RtModel *m, int step)
{
    static const RtStepRow none = { 0 };
    for (int i = 0; i < m->n_steps; i++)
        if (m->steps[i].number == step)
            return &m->steps[i];
    return &none;
}

static void keep(RtCheck *c, const Seen *seen)
{
    if (c->n_seen == c->cap) {
        const ptrdiff_t cap = c->cap * 2 + 64;
        Seen *more = rt_alloc((size_t)cap * sizeof *more, "the ranges of a step");
        if (c->n_seen)
            memcpy(more, c->seen, (size_t)c->n_seen * sizeof *more);
        rt_free(c->seen);
        c->seen = more;
        c->cap = cap;
    }
    c->seen[c->n_seen++] = *seen;
}

static void print(const RtCheck *c, const Seen *seen)
{
    const Range *r = &seen->range;
    fprintf(stderr, "trace %4d  %-32s min %11.4g  max %11.4g  mean %11.4g  nan %td  inf %td",
            seen->step->number, seen->name, r->min, r->max, r->n > 0 ? r->sum / (double)r->n : 0,
            r->n_nan, r->n_inf);
    for (int d = 0; d < depth_of(seen->step); d++)
        fprintf(stderr, "%s%s.%td", d ? ", " : "  ", seen->step->loops[d], c->at[d]);
    fprintf(stderr, "\n");
}

/* -inf of a mask before a softmax, say: finite steps have it too. */
static bool is_usual(const RtCheck *c, const Seen *seen)
{
    for (ptrdiff_t i = 0; c->rehearsed && seen->range.n_nan == 0 && i < c->n_usual; i++)
        if (c->usual[i].step == seen->step && strcmp(c->usual[i].name, seen->name) == 0)
            return true;
    return false;
}

/* Of the run, in this rank's share of the batch. */
static int64_t first_sample(const RtCheck *c)
{
    const RtState *state = c->run->state;
    return state->samples + (int64_t)rt_rank() * rt_rank_batch(&state->opt->train);
}

/* The first value that is not finite, and all that is known of it. */
static void tell_first(RtCheck *c, const Seen *seen)
{
    const RtStepRow *step = seen->step;
    const ptrdiff_t rows = batch_rows(c->run);
    tell(c, "the first value that is not finite: %s", seen->name);
    tell_loops(c, step);
    tell(c, ", %s: %s, step %d of the emitted file", step->backward ? "backward" : "forward",
         step->where ? step->where : "", step->number);
    if (c->run->micro_steps > 1)
        tell(c, ", micro-step %d of %d", c->micro + 1, c->run->micro_steps);
    tell(c, "\n  %s\n  ", step->how ? step->how : seen->name);
    tell_bad(c, &seen->range, first_sample(c) + c->micro * rows,
             along_batch(c->run->model, seen->name) ? rows : 0);
    tell_reads(c, step);
}

void rt_check_values(RtCheck *c, int step, const char *name, RtType type, const void *at,
                     const RtGrid *g)
{
    const RtModel *m = c->run->model;
    if (c->report && !c->trace)
        return;
    Seen seen = { .step = row_of(m, step), .name = name };
    seen.range = range_of(type == RT_BF16 ? m->compute : type, at, g);
    memcpy(seen.at, c->at, sizeof seen.at);
    if (c->trace && !c->rehearsing)
        print(c, &seen);
    if (!c->rehearsing || (seen.range.n_inf > 0 && seen.range.n_nan == 0))
        keep(c, &seen);
    if (!c->rehearsing && !c->report && seen.range.first >= 0 && !is_usual(c, &seen))
        tell_first(c, &seen);
}

void rt_check_repetition(RtCheck *c, int depth, ptrdiff_t i)
{
    if (depth < RT_MAX_STACKS)
        c->at[depth] = i;
}

/* ---- as the runtime calls it ----------------------------------------------------------------- */

RtCheck *rt_check_create(const RtRun *run, bool trace)
{
    RtCheck *c = rt_alloc(sizeof *c, "a check");
    c->run = run;
    c->trace = trace;
    return c;
}

void rt_check_rehearse(RtCheck *c, bool begin)
{
    c->rehearsing = begin;
    if (begin)
        return;
    c->usual = c->seen;
    c->n_usual = c->n_seen;
    c->seen = NULL;
    c->n_seen = c->cap = 0;
}

bool rt_check_rehearses(const RtCheck *c) { return c && c->rehearsing; }

bool rt_check_finite(RtCheck *c, bool finite)
{
    c->rehearsed = c->rehearsing ? finite : c->rehearsed;
    return finite && !c->rehearsing;
}

void rt_check_free(RtCheck *c)
{
    if (!c)
        return;
    rt_free(c->usual);
    rt_free(c->seen);
    rt_free(c->before);
    rt_free(c->report);
    rt_free(c);
}

static void look_at_params(RtCheck *c)
{
    const RtModel *m = c->run->model;
    char name[RT_NAME_TEXT];
    for (int i = 0; i < m->n_params; i++)
        for (ptrdiff_t k = 0; k < rt_param_repeats(&m->params[i]); k++) {
            const RtParam *q = &m->params[i];
            const Range r = range_param(c, q, k);
            if (r.first < 0)
                continue;
            tell(c, "parameter %s (%s) is not finite before the step: ", rt_param_name(q, k, name),
                 q->where);
            tell_bad(c, &r, 0, 0);
            tell(c, "\n");
        }
}

static void look_at_inputs(RtCheck *c)
{
    const RtModel *m = c->run->model;
    const RtState *state = c->run->state;
    const ptrdiff_t rows = rt_rank_batch(&state->opt->train);
    for (int i = 0; i < m->n_inputs; i++) {
        Range r = { .first = -1 };
        add_axis(&r, m->inputs[i].type, state->rows[i],
                 &(RtGrid){ { { rows * state->row_elems[i], 1 } } }, 0, 0);
        if (r.first < 0)
            continue;
        tell(c, "input %s (%s) is not finite: ", m->inputs[i].name, m->inputs[i].where);
        tell_bad(c, &r, first_sample(c), rows);
        tell(c, "\n");
    }
}

void rt_check_begin(RtCheck *c)
{
    rt_free(c->before);
    rt_free(c->report);
    c->report = c->before = NULL;
    c->report_len = 0;
    look_at_params(c);
    look_at_inputs(c);
    c->before = c->report;
    c->report = NULL;
    c->report_len = 0;
}

/* All that lies in the arena is of no use any more: made nan, so that a value that was not written
   is found where it is read. */
void rt_check_micro(RtCheck *c, int micro)
{
    const RtModel *m = c->run->model;
    if (m->arena_bytes)
        rt_place_fill(c->run->arena, 0xff, m->arena_bytes(c->run->dims, RT_ENTRY_TRAIN));
    c->micro = micro;
    c->n_seen = c->rehearsing ? c->n_seen : 0;
    memset(c->at, 0, sizeof c->at);
}

bool rt_check_found(const RtCheck *c) { return c->before || c->report; }

const char *rt_check_report(const RtCheck *c)
{
    return rt_keep(rt_printf("%s%s", c->before ? c->before : "",
                             c->report ? c->report : "all values that the step wrote were finite"));
}
