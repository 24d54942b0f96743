/* sem_loss.c -- means over the samples, and what is built from them: losses, metrics; outputs.
 *
 * In: mean(x), mean(x, where: m), the statements loss, metric and output. Out: mean slots with
 * their sums and counts, the weights of the slots in the loss, formulas of metrics. A loss is a
 * linear combination of means; the one division by the global count happens outside of the model.
 */
#include "front/sem_parts.h"

#include <ctype.h>
#include <string.h>

/* ---- slots --------------------------------------------------------------------------------- */

/* The same mean has the same slot in both phases: it is known by its place and the calls to it. */
typedef struct {
    VEC(int) slots;
    int seen;
    const CheckedPhase *phase;
} MeanPlace;

static const char *place_key(Sem *s, Span at)
{
    Text t = text_new(s->arena);
    text_add(&t, "%d:%u", at.file, at.lo);
    for (const Frame *f = s->frame; f && f->up; f = f->up)
        text_add(&t, "|%d:%u", f->call.file, f->call.lo);
    return intern(s->cx, t.at);
}

static const char *source_text(Sem *s, Span at)
{
    const Source *src = source_of(s->cx, at.file);
    Text t = text_new(s->arena);
    bool blank = false;
    for (uint32_t i = at.lo; src && i < at.hi; i++) {
        char c = src->text[i];
        if (isspace((unsigned char)c)) {
            blank = true;
            continue;
        }
        text_add(&t, "%s%c", blank ? " " : "", c);
        blank = false;
    }
    return t.at;
}

static bool slot_exists(const Sem *s, const char *name)
{
    for (int i = 0; i < s->out->means.len; i++)
        if (s->out->means.at[i].name == name)
            return true;
    return false;
}

/* The first mean of a statement has its name, the others a letter or number behind it. */
static int new_slot(Sem *s, Span at)
{
    const char *name = s->slot_name ? s->slot_name : intern(s->cx, "mean");
    CheckedMean m = { .name = name, .text = source_text(s, at), .span = at };
    for (int n = 1; slot_exists(s, m.name); n++)
        m.name = n < 26 ? intern_printf(s->cx, "%s_%c", name, 'a' + n)
                        : intern_printf(s->cx, "%s_%d", name, n);
    vec_push(s->arena, &s->out->means, m);
    return s->out->means.len - 1;
}

static int slot_of(Sem *s, Span at)
{
    const char *key = place_key(s, at);
    MeanPlace *p = map_get(s->mean_slots, key);
    if (!p) {
        p = NEW(s->arena, MeanPlace);
        map_set(s->mean_slots, key, p);
    }
    if (p->phase != s->phase) {
        p->phase = s->phase;
        p->seen = 0;
    }
    if (p->seen == p->slots.len)
        vec_push(s->arena, &p->slots, new_slot(s, sem_here(s, at)));
    int slot = p->slots.at[p->seen++];
    while (s->phase->sums.len <= slot) {
        vec_push(s->arena, &s->phase->sums, NULL);
        vec_push(s->arena, &s->phase->counts, NULL);
    }
    return slot;
}

/* ---- mean ---------------------------------------------------------------------------------- */

static Expr *sum_all(Sem *s, Expr *e, Span at)
{
    int axes[RANK_MAX];
    for (int i = 0; i < e->type->rank; i++)
        axes[i] = i;
    return e->type->rank ? expr_reduce(s, "sum", e, e->type->rank, axes, false, at) : e;
}

/* labels >= 0 holds everywhere when the labels are declared in 0..V. */
static bool known_true(Sem *s, const Expr *m)
{
    if (m->kind == EX_CONST)
        return m->value != 0;
    if (m->kind != EX_POINT || m->n_in != 2 || m->op[0] != 'l')
        return false;
    const Dim *below = m->in[0]->to, *above = m->in[1]->from, *one = dim_const(s->dims, 1);
    if (!below || !above)
        return false;
    return sem_known_le(s, strcmp(m->op, "le") == 0 ? dim_sub(s->dims, below, one) : below, above);
}

/* x where the mask holds, else 0; the mask is spread to x's shape. NULL after an error. */
static Expr *masked(Sem *s, const Ast *call, Expr *x, Expr **mask)
{
    const Ast *a = call_named(s, call, "where");
    *mask = NULL;
    if (!a)
        return x;
    Expr *m = sem_eval_value(s, a);
    if (!m || known_true(s, m))
        return m ? x : NULL;
    if (m->type->dtype != DT_BOOL) {
        Diag *d = sem_error(s, a->span, "where: wants true or false per element, not %s",
                            sem_type_text(s, m->type));
        sem_note_value(s, d, a, m);
        return NULL;
    }
    const Type *both = sem_broadcast(s, call, x, m);
    if (!both)
        return NULL;
    if (!type_same_shape(both, x->type)) {
        Diag *d = sem_error(s, a->span, "the condition has more elements than the value");
        sem_note_value(s, d, a, m);
        sem_note_value(s, d, call_arg(call, 0), x);
        return NULL;
    }
    if (!type_same_shape(m->type, x->type) && m->type->rank)
        m = expr_new(s, EX_BROADCAST, sem_type(s, DT_BOOL, x->type->rank, x->type->dim), 1, &m,
                     call->span);
    *mask = m;
    Expr *in[3] = { m, x, expr_const(s, DT_F32, 0, call->span) };
    return expr_point(s, "where", x->type, 3, in, call->span);
}

/* A mean over axes that are no samples: a sum over a count, here and now. */
static Thing *local_mean(Sem *s, const Ast *call, Expr *x, int n, const int *axes)
{
    Expr *mask, *kept = masked(s, call, x, &mask);
    bool keep = false;
    const Ast *ka = call_named(s, call, "keep");
    if (!kept || (ka && !sem_eval_bool(s, ka, "keep", &keep)))
        return thing_poison(s);
    if (n == 0)
        return thing_value(s, x);
    Expr *in[2] = { expr_reduce(s, "sum", kept, n, axes, keep, call->span), NULL };
    if (mask) {
        Expr *one = expr_const(s, DT_F32, 1, call->span);
        Expr *count[2] = { NULL, one };
        if (mask->type->rank == 0)
            mask = expr_new(s, EX_BROADCAST, sem_type(s, DT_BOOL, x->type->rank, x->type->dim), 1,
                            &mask, call->span);
        count[0] = expr_reduce(s, "sum", expr_cast(s, mask, DT_F32, call->span), n, axes, keep,
                               call->span);
        in[1] = expr_point(s, "max", count[0]->type, 2, count, call->span);
    } else {
        const Dim *d = dim_const(s->dims, 1);
        for (int i = 0; i < n; i++)
            d = dim_mul(s->dims, d, x->type->dim[axes[i]]);
        in[1] = expr_dim(s, DT_F32, d, call->span);
    }
    return thing_value(s, expr_point(s, "div", in[0]->type, 2, in, call->span));
}

static Thing *sample_mean(Sem *s, const Ast *call, Expr *x)
{
    if (s->loop) {
        Diag *d = sem_error(s, call->span, "a mean over the samples inside a loop");
        sem_hint(d, "carry the value of each sample out of the loop and take the mean there");
        return thing_poison(s);
    }
    Expr *mask, *kept = masked(s, call, x, &mask);
    if (!kept)
        return thing_poison(s);
    if (mask && (mask->deps & DEP_PARAM)) {
        Diag *d = sem_error(s, call_named(s, call, "where")->span,
                            "which elements count must not depend on parameters");
        sem_hint(d, "compute the condition from inputs");
        return thing_poison(s);
    }
    int slot = slot_of(s, call->span);
    CheckedMean *m = &s->out->means.at[slot];
    if (mask && mask->type->rank == 0)
        mask = expr_new(s, EX_BROADCAST, sem_type(s, DT_BOOL, x->type->rank, x->type->dim), 1,
                        &mask, call->span);
    s->phase->sums.at[slot] = expr_named(sum_all(s, kept, call->span), m->name);
    if (mask)
        mask = sum_all(s, expr_cast(s, mask, DT_F32, call->span), call->span);
    s->phase->counts.at[slot] = mask;
    m->count = mask ? NULL : type_elems(s->dims, x->type);
    Expr *e = expr_new(s, EX_MEAN, sem_type(s, DT_F32, 0, NULL), 0, NULL, call->span);
    e->index = slot;
    e->deps = DEP_MEAN;
    return thing_value(s, e);
}

Thing *builtin_mean(Sem *s, const Ast *call)
{
    Expr *x = sem_eval_value(s, call_arg(call, 0));
    const Ast *over = call_named(s, call, "over");
    int n, axes[RANK_MAX];
    if (!x || !sem_has_tensors(s, call->span))
        return thing_poison(s);
    x = expr_cast(s, x, DT_F32, call->span);
    n = x->type->rank;
    for (int i = 0; i < n; i++)
        axes[i] = i;
    if (over && !sem_find_axes(s, over, x->type, &n, axes))
        return thing_poison(s);
    int batch = sem_batch_axis(x->type);
    bool samples = false;
    for (int i = 0; i < n; i++)
        samples = samples || axes[i] == batch;
    if (!samples || batch < 0)
        return local_mean(s, call, x, n, axes);
    if (n < x->type->rank) {
        Diag *d = sem_error(s, call->span, "a mean over samples must be over all axes of %s",
                            sem_type_text(s, x->type));
        sem_note_value(s, d, call_arg(call, 0), x);
        sem_hint(d, "a statistic of the batch depends on how the batch is split");
        return thing_poison(s);
    }
    for (int i = batch + 1; i < x->type->rank; i++)
        if (dim_has_kind(x->type->dim[i], SYM_BATCH)) {
            sem_no_mixing(s, call->span, x->type->dim[i], "pairs of samples");
            return thing_poison(s);
        }
    return sample_mean(s, call, x);
}

/* ---- the loss ------------------------------------------------------------------------------ */

static bool constant_of(const Expr *e, double *v)
{
    double x;
    int64_t n;
    if (e->kind == EX_CAST)
        return constant_of(e->in[0], v);
    if (e->kind == EX_DIM && dim_value(e->dim, &n)) {
        *v = (double)n;
        return true;
    }
    if (e->kind == EX_CONST) {
        *v = e->value;
        return true;
    }
    if (e->kind != EX_POINT || e->n_in != 2 || !constant_of(e->in[0], v)
        || !constant_of(e->in[1], &x))
        return false;
    if (strcmp(e->op, "mul") == 0)
        *v *= x;
    else if (strcmp(e->op, "div") == 0)
        *v /= x;
    else
        return false;
    return true;
}

/* Adds w times e to the weights of the slots; false when e is no linear combination of means. */
static bool add_weights(Sem *s, const Expr *e, double w, const Expr **bad)
{
    double c;
    *bad = e;
    if (e->kind == EX_MEAN) {
        s->out->means.at[e->index].weight += w;
        return true;
    }
    if (e->kind == EX_CAST || (e->kind == EX_RESHAPE && e->type->rank == 0))
        return add_weights(s, e->in[0], w, bad);
    if (e->kind != EX_POINT)
        return false;
    if (strcmp(e->op, "neg") == 0)
        return add_weights(s, e->in[0], -w, bad);
    if (strcmp(e->op, "add") == 0 || strcmp(e->op, "sub") == 0)
        return add_weights(s, e->in[0], w, bad)
               && add_weights(s, e->in[1], e->op[0] == 's' ? -w : w, bad);
    if (strcmp(e->op, "mul") == 0 && constant_of(e->in[0], &c))
        return add_weights(s, e->in[1], w * c, bad);
    if (strcmp(e->op, "mul") == 0 && constant_of(e->in[1], &c))
        return add_weights(s, e->in[0], w * c, bad);
    if (strcmp(e->op, "div") == 0 && constant_of(e->in[1], &c))
        return add_weights(s, e->in[0], w / c, bad);
    return false;
}

static void not_a_loss(Sem *s, const Ast *a, const Expr *e)
{
    if (!(e->deps & DEP_MEAN)) {
        Diag *d = sem_error(s, a->value->span, "the loss must be a mean over the samples, not %s",
                            sem_type_text(s, e->type));
        sem_note_value(s, d, a->value, e);
        if (sem_batch_axis(e->type) >= 0)
            sem_hint(d, "loss = mean(%s)", ast_expr_text(s->cx, a->value));
        return;
    }
    const Expr *bad = NULL;
    if (!add_weights(s, e, 1, &bad)) {
        Diag *d = sem_error(s, a->value->span, "a loss is a sum of means with constant weights");
        sem_note(
            s, d, bad->span,
            bad->deps & DEP_MEAN
                ? "this is not linear in a mean: its gradient depends on how the batch is split"
                : "this is no mean over the samples");
    }
}

static Thing *statement_value(Sem *s, const Ast *a)
{
    s->slot_name = a->name;
    s->frame->statement = a->name;
    Thing *t = sem_eval(s, a->value);
    s->frame->statement = NULL;
    return t;
}

void sem_loss_statement(Sem *s, const Ast *a)
{
    if (!sem_at_model(s, a, "a loss"))
        return;
    if (s->loss) {
        Diag *d = sem_error(s, a->span, "this version has one loss per model");
        sem_note(s, d, s->loss->span, "the first loss");
        sem_hint(d, "add them: loss = mean(a) + 0.1*mean(b)");
        return;
    }
    s->loss = a;
    s->out->has_loss = true;
    if (strcmp(a->name, "loss") != 0 || a->items.len) {
        sem_error(s, a->span, "this version has one loss per model, written loss = ...");
        return;
    }
    Thing *t = statement_value(s, a);
    scope_set(s, s->frame->scope, a->name, t);
    Expr *e = sem_to_value(s, t, DT_F32, a->value);
    if (e && s->training)
        not_a_loss(s, a, e);
}

/* ---- metrics and outputs ------------------------------------------------------------------- */

static bool is_new(Sem *s, const Ast *a, const char *what, const CheckedName *at, int n)
{
    for (int i = 0; i < n; i++)
        if (at[i].name == a->name) {
            Diag *d = sem_error(s, a->at, "%s %s is declared twice", what, a->name);
            sem_note(s, d, at[i].span, "the first %s", a->name);
            return false;
        }
    return true;
}

void sem_metric_statement(Sem *s, const Ast *a)
{
    if (!sem_at_model(s, a, "a metric"))
        return;
    CheckedName name = { a->name, a->span };
    Thing *t = statement_value(s, a);
    Expr *e = sem_to_value(s, t, DT_F32, a->value);
    if (s->phase->metrics.len == 0)
        s->out->metrics.len = 0; /* the names of the last phase count */
    if (!is_new(s, a, "metric", s->out->metrics.at, s->out->metrics.len) || !e)
        return;
    if (!(e->deps & DEP_MEAN)) {
        Diag *d = sem_error(s, a->value->span,
                            "a metric is built from means over the samples, not %s",
                            sem_type_text(s, e->type));
        if (sem_batch_axis(e->type) >= 0)
            sem_hint(d, "metric %s = mean(%s)", a->name, ast_expr_text(s->cx, a->value));
        return;
    }
    vec_push(s->arena, &s->out->metrics, name);
    vec_push(s->arena, &s->phase->metrics, e);
    scope_set(s, s->frame->scope, a->name, t);
}

void sem_output_statement(Sem *s, const Ast *a)
{
    if (!sem_at_model(s, a, "an output"))
        return;
    CheckedName name = { a->name, a->at };
    Thing *t = a->value ? NULL : scope_find(s->frame->scope, a->name);
    if (a->value) {
        s->slot_name = s->frame->statement = a->name;
        t = sem_eval(s, a->value);
        s->frame->statement = NULL;
    } else if (!t) {
        sem_unknown(s, a->at, "name", a->name, false);
        return;
    }
    if (s->phase->outputs.len == 0)
        s->out->outputs.len = 0;
    bool fresh = is_new(s, a, "output", s->out->outputs.at, s->out->outputs.len);
    Expr *e = sem_to_value(s, t, DT_F32, a->value ? a->value : a);
    if (!fresh || !e) {
        if (a->value)
            scope_set(s, s->frame->scope, a->name, thing_poison(s));
        return;
    }
    if (e->deps & DEP_MEAN) {
        Diag *d = sem_error(s, a->span, "a mean over the samples is no output");
        sem_hint(d, "metric %s = ... reports it", a->name);
        return;
    }
    vec_push(s->arena, &s->out->outputs, name);
    vec_push(s->arena, &s->phase->outputs, e);
    if (a->value)
        scope_set(s, s->frame->scope, a->name, thing_value(s, expr_named(e, a->name)));
}

/* ---- what the loss reaches ----------------------------------------------------------------- */

typedef VEC(Expr *) ExprList;

static void push(Sem *s, ExprList *list, Map *seen, Expr *e)
{
    if (!e || map_get(seen, e))
        return;
    map_set(seen, e, e);
    vec_push(s->arena, list, e);
}

/* 0 * x does not depend on x. */
static bool is_nothing(const Expr *e)
{
    for (int i = 0; e->kind == EX_POINT && i < e->n_in; i++)
        if (strcmp(e->op, "mul") == 0 && e->in[i]->kind == EX_CONST && e->in[i]->value == 0)
            return true;
    return false;
}

static void mark(Sem *s, Map *seen, Expr *root, bool loss)
{
    ExprList todo = { 0 };
    push(s, &todo, seen, root);
    while (todo.len) {
        Expr *e = todo.at[--todo.len];
        if (e->kind == EX_PARAM && loss)
            s->out->params.at[e->index].used = true;
        if (e->kind == EX_INPUT)
            s->out->inputs.at[e->index].used = true;
        for (int i = 0; i < e->n_in && !(loss && is_nothing(e)); i++)
            push(s, &todo, seen, e->in[i]);
        if (e->kind != EX_LOOP)
            continue;
        const CheckedLoop *l = e->loop;
        for (int i = 0; i < l->carries.len; i++) {
            push(s, &todo, seen, l->carries.at[i].init);
            push(s, &todo, seen, l->carries.at[i].next);
        }
        for (int i = 0; i < l->elems.len; i++)
            push(s, &todo, seen, l->elems.at[i].source);
        for (int i = 0; i < l->yields.len; i++)
            push(s, &todo, seen, l->yields.at[i]);
    }
}

void sem_mark_used(Sem *s)
{
    Map *loss = map_new(s->arena), *rest = map_new(s->arena);
    for (int training = 0; training < 2; training++) {
        CheckedPhase *p = &s->out->phase[training];
        for (int i = 0; i < p->sums.len; i++) {
            if (training && s->out->means.at[i].weight != 0)
                mark(s, loss, p->sums.at[i], true);
            mark(s, rest, p->sums.at[i], false);
            mark(s, rest, p->counts.at[i], false);
        }
        for (int i = 0; i < p->outputs.len; i++)
            mark(s, rest, p->outputs.at[i], false);
    }
    for (int i = 0; i < s->out->inputs.len; i++)
        if (!s->out->inputs.at[i].used)
            diag_warning(s->cx, s->out->inputs.at[i].span, "unused", "input %s is not used",
                         s->out->inputs.at[i].name);
}
