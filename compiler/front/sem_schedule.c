/* sem_schedule.c -- the rate of an update: a number, a schedule over the updates, or a formula.
 *
 * In: the value of `lr` in the train block. Out: kind and numbers of the schedule in CheckedTrain,
 * or the formula as an Expr over EX_COUNTER leaves. The one idea: how a schedule runs is said in
 * runtime/optim/schedule.c; here its numbers are read, and what they say together is checked once
 * all settings of the block are known.
 */
#include "front/sem_parts.h"

#include <math.h>
#include <string.h>

typedef struct { /* a schedule as it is written */
    const char *name, *form;
    const char *arguments; /* the first `places` by position too */
    int places;
} Form;

static const Form forms[] = {
    [SEM_CONSTANT] = { "constant", "constant(1e-3)", "lr warmup", 1 },
    [SEM_LINEAR] = { "linear", "linear(1e-3)", "lr end warmup steps", 2 },
    [SEM_COSINE] = { "cosine", "cosine(1e-3)", "lr end warmup steps", 2 },
    [SEM_WSD] = { "wsd", "wsd(1e-3, decay: 200)", "lr end warmup decay steps shape", 1 },
    [SEM_STEP] = { "step", "step(1e-3, every: 1000)", "lr every factor at warmup", 1 },
    [SEM_INVERSE_SQRT] = { "inverse_sqrt", "inverse_sqrt(1e-3)", "lr warmup", 1 },
    [SEM_ONE_CYCLE] = { "one_cycle", "one_cycle(1e-3)",
                        "lr steps pct_start div_factor final_div_factor three_phase", 1 },
};
enum { N_FORMS = sizeof forms / sizeof forms[0] };

static const char form_names[] = "constant linear cosine wsd step inverse_sqrt one_cycle";

typedef struct { /* a call of one */
    const Form *form;
    TrainCall call;
} Given;

static const Ast *given(const Given *g, const char *argument)
{
    const int k = train_word(g->form->arguments, argument);
    return k < 0 ? NULL : g->call.value[k];
}

/* ---- the numbers of a schedule ------------------------------------------------------------- */

static void whole(Sem *s, const Given *g, const char *argument, int64_t least, int64_t *v)
{
    if (given(g, argument))
        train_whole(s, given(g, argument), argument, least, v);
}

/* A number above 0. */
static void positive(Sem *s, const Given *g, const char *argument, double *v)
{
    const Ast *a = given(g, argument);
    if (a && train_number(s, a, argument, 0, HUGE_VAL, v) && *v == 0)
        sem_error(s, a->span, "%s must be above 0", argument);
}

static void wsd(Sem *s, const Given *g)
{
    CheckedTrain *t = &s->out->train;
    const Ast *shape = given(g, "shape"), *decay = given(g, "decay");
    whole(s, g, "decay", 1, &t->decay);
    if (!decay)
        sem_error(s, t->rate_span, "wsd needs the length of its decay: %s", g->form->form);
    t->decay_span = decay ? decay->span : t->rate_span;
    if (!shape)
        return;
    const int k = shape->kind == AST_NAME ? train_word("linear sqrt", shape->name) : -1;
    t->decay_sqrt = k == 1;
    if (k < 0) {
        Diag *d = sem_error(s, shape->span, "shape is linear or sqrt");
        if (shape->kind == AST_NAME)
            train_suggest(s, d, shape->name, "linear sqrt");
    }
}

/* at: (3000, 6000), or one number. */
static void drops(Sem *s, const Ast *a)
{
    const Thing *t = sem_eval(s, a);
    Text text = text_new(s->arena);
    int64_t last = 0, v = 0;
    const bool list = t->kind == THING_TUPLE;
    const int n = list ? t->items.len : 1;
    bool fits = n > 0;
    for (int i = 0; fits && i < n; i++) {
        const Thing *item = list ? t->items.at[i] : t;
        if (item->kind == THING_POISON)
            return;
        fits = thing_whole(item, &v) && v > last;
        text_add(&text, "%s%lld", i ? "," : "", (long long)v);
        last = v;
    }
    if (!fits)
        sem_error(s, a->span, "at lists updates, whole numbers that grow: (3000, 6000)");
    s->out->train.drop_at = text.at;
}

static void step(Sem *s, const Given *g)
{
    CheckedTrain *t = &s->out->train;
    const Ast *every = given(g, "every"), *at = given(g, "at");
    whole(s, g, "every", 1, &t->drop_every);
    if (at)
        drops(s, at);
    if (given(g, "factor"))
        train_number(s, given(g, "factor"), "factor", 0, HUGE_VAL, &t->drop_factor);
    if (every && at)
        sem_error(s, at->span, "a step schedule has every or at, not both");
    else if (!every && !at)
        sem_error(s, t->rate_span, "a step schedule needs every: 1000 or at: (3000, 6000)");
}

static void one_cycle(Sem *s, const Given *g)
{
    CheckedTrain *t = &s->out->train;
    if (given(g, "pct_start"))
        train_number(s, given(g, "pct_start"), "pct_start", 0, 1, &t->pct_start);
    positive(s, g, "div_factor", &t->div_factor);
    positive(s, g, "final_div_factor", &t->final_div_factor);
    if (given(g, "three_phase"))
        sem_eval_bool(s, given(g, "three_phase"), "three_phase", &t->three_phase);
    if (t->three_phase && t->pct_start > 0.5)
        sem_error(s, given(g, "three_phase")->span,
                  "three phases need pct_start at most 0.5: the first two take as long");
}

static void schedule(Sem *s, const Ast *a, int kind)
{
    CheckedTrain *t = &s->out->train;
    Given g = { &forms[kind], { .names = forms[kind].arguments, .places = forms[kind].places } };
    t->schedule = kind;
    if (!train_call(s, a, &g.call))
        return;
    if (!g.call.value[0]) {
        sem_error(s, a->span, "%s needs the rate: %s", g.form->name, g.form->form);
        return;
    }
    if (!train_number(s, g.call.value[0], "lr", 0, HUGE_VAL, &t->lr))
        return;
    t->lr_end = kind == SEM_CONSTANT ? t->lr : kind == SEM_COSINE ? 0.1 * t->lr : 0;
    if (given(&g, "end"))
        train_number(s, given(&g, "end"), "end", 0, HUGE_VAL, &t->lr_end);
    whole(s, &g, "warmup", 0, &t->warmup);
    whole(s, &g, "steps", 1, &t->decay_steps);
    if (given(&g, "warmup"))
        t->warmup_span = given(&g, "warmup")->span;
    if (kind == SEM_WSD)
        wsd(s, &g);
    else if (kind == SEM_STEP)
        step(s, &g);
    else if (kind == SEM_ONE_CYCLE)
        one_cycle(s, &g);
}

/* ---- formulas ------------------------------------------------------------------------------ */

static Thing *counter(Sem *s, int index, const char *name, Span at)
{
    Expr *e = expr_new(s, EX_COUNTER, sem_type(s, DT_F32, 0, NULL), 0, NULL, at);
    e->index = index;
    return thing_value(s, expr_named(e, name));
}

/* Numbers, step, steps, and what is done with them element by element. */
static bool only_counts(Sem *s, const Expr *e, const Ast *a)
{
    int64_t v;
    bool fits = e->kind == EX_CONST || e->kind == EX_POINT || e->kind == EX_CAST
                || e->kind == EX_COUNTER || (e->kind == EX_DIM && dim_value(e->dim, &v));
    if (!fits || e->type->rank > 0) {
        sem_error(s, a->span, "a rate is computed from numbers, step and steps only");
        return false;
    }
    for (int i = 0; i < e->n_in; i++)
        if (!only_counts(s, e->in[i], a))
            return false;
    return true;
}

/* A number, or a formula of step (updates applied before this one) and steps (of the run). */
static void rate(Sem *s, const Ast *a)
{
    CheckedTrain *t = &s->out->train;
    Scope *scope = scope_new(s, s->global);
    Frame frame = { .scope = scope };
    scope_set(s, scope, intern(s->cx, "step"), counter(s, 0, "step", a->span));
    scope_set(s, scope, intern(s->cx, "steps"), counter(s, 1, "steps", a->span));
    s->frame = &frame;
    Thing *value = sem_eval(s, a);
    s->frame = NULL;
    if (value->kind == THING_POISON)
        return;
    if (value->kind != THING_VALUE) {
        if (!thing_number(value, &t->lr) || !(t->lr >= 0)) {
            Diag *d = sem_error(s, a->span, "lr must be a number, 0 or more");
            sem_hint(d, "or a schedule, cosine(1e-3), or a formula of step, 1e-3 * 0.9^step");
        }
        t->lr_end = t->lr;
        return;
    }
    if (!only_counts(s, value->value, a))
        return;
    t->schedule = SEM_FORMULA;
    t->rate = expr_cast(s, value->value, DT_F32, a->span);
    t->rate_text = ast_expr_text(s->cx, a);
    t->lr = t->lr_end = 0;
}

void sem_train_rate(Sem *s, const Ast *a)
{
    CheckedTrain *t = &s->out->train;
    const char *name = train_called(a);
    const int kind = name ? train_word(form_names, name) : -1;
    t->schedule = SEM_CONSTANT;
    t->rate_span = t->warmup_span = t->decay_span = a->span;
    if (kind >= 0) {
        schedule(s, a, kind);
    } else if (name && !builtin_find(name) && !scope_find(s->global, name)) {
        Diag *d = sem_error(s, a->span, "unknown schedule %s", name);
        train_suggest(s, d, name, form_names);
        sem_hint(d, "the schedules are %s", form_names);
    } else {
        rate(s, a);
    }
}

/* ---- what the numbers say together --------------------------------------------------------- */

void sem_check_schedule(Sem *s, const Ast *steps)
{
    CheckedTrain *t = &s->out->train;
    const bool ends = t->schedule == SEM_LINEAR || t->schedule == SEM_COSINE
                      || t->schedule == SEM_WSD;
    const int64_t last = ends && t->decay_steps > 0 ? t->decay_steps : t->steps;
    const bool own = ends && t->decay_steps > 0;
    if (!own && !steps)
        return; /* the number of updates is a default */
    if (ends && t->warmup > 0 && t->warmup >= last) {
        Diag *d = sem_error(s, t->warmup_span,
                            "the schedule ends after %lld updates, before its warm-up of %lld does",
                            (long long)last, (long long)t->warmup);
        if (!own)
            sem_note(s, d, steps->span, "the updates are set here");
    } else if (t->schedule == SEM_WSD && t->decay > last - t->warmup) {
        Diag *d = sem_error(s, t->decay_span,
                            "a decay of %lld updates does not fit into the %lld that are left%s",
                            (long long)t->decay, (long long)(last - t->warmup),
                            t->warmup > 0 ? " after the warm-up" : "");
        if (!own)
            sem_note(s, d, steps->span, "the updates are set here");
    } else if (!ends && t->warmup > 0 && t->warmup >= last) {
        Diag *d = diag_warning(s->cx, t->warmup_span, "warmup",
                               "the warm-up takes %lld updates and the run has %lld: the rate is "
                               "never reached",
                               (long long)t->warmup, (long long)last);
        diag_note(d, steps->span, "the updates are set here");
    }
}
