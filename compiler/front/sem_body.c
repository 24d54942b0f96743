/* sem_body.c -- statements.
 *
 * In: the block of a model, layer or function. Out: names bound in the scope of the frame, and the
 * frame's result. Compile-time conditions choose a branch; both share the scope of the body. What
 * declares was handled when the layer was built (sem_layer.c).
 */
#include "front/sem_parts.h"

#include <string.h>

/* ---- binding ------------------------------------------------------------------------------- */

const char *sem_value_name(Sem *s, const char *name)
{
    const Frame *f = s->frame;
    const char *under = f->inst ? f->inst->under : f->statement;
    return under && *under ? intern_printf(s->cx, "%s_%s", under, name) : name;
}

static bool may_bind(Sem *s, const Ast *name)
{
    const Thing *old = scope_find_here(s->global, name->name);
    if (!old || old->kind == THING_DECL || old->kind == THING_POISON
        || scope_find(s->frame->scope, name->name) != old)
        return true;
    Diag *d = sem_error(s, name->span, "%s is a constant of the model and cannot be assigned",
                        name->name);
    sem_note(s, d, old->span, "%s is declared here", name->name);
    return false;
}

static void bind_one(Sem *s, const Ast *name, Thing *t)
{
    if (strcmp(name->name, "_") == 0 || !may_bind(s, name))
        return;
    Thing *copy = thing_new(s, t->kind, name->span);
    *copy = *t;
    copy->span = name->span;
    if (t->kind == THING_VALUE)
        (s->frame->decl->prelude ? expr_hinted : expr_named)(t->value,
                                                             sem_value_name(s, name->name));
    if (t->kind == THING_INSTANCE || t->kind == THING_STACK || t->kind == THING_DECL) {
        sem_error(s, name->span, "%s is assigned %s, not a value", name->name, thing_text(s, t));
        copy = thing_poison(s);
    }
    scope_set(s, s->frame->scope, name->name, copy);
}

void sem_bind(Sem *s, const AstList *names, Thing *t, const Ast *value)
{
    if (t->kind == THING_POISON)
        s->frame->failed = true;
    if (names->len == 1) {
        bind_one(s, names->at[0], t);
        return;
    }
    bool fits = t->kind == THING_TUPLE && t->items.len == names->len;
    if (!fits && t->kind != THING_POISON)
        sem_error(s, value->span, "%d names on the left, but %s on the right", names->len,
                  t->kind == THING_TUPLE ? thing_text(s, t) : "one value");
    for (int i = 0; i < names->len; i++)
        bind_one(s, names->at[i], fits ? t->items.at[i] : thing_poison(s));
}

static void assign(Sem *s, const Ast *a)
{
    Frame *f = s->frame;
    const char *before = f->statement;
    const char *target = a->items.at[0]->name;
    if (f->inst)
        f->statement = sem_value_name(s, target);
    else if (f->statement == NULL)
        f->statement = target;
    if (f->decl == s->model)
        s->slot_name = target;
    Thing *t = sem_eval(s, a->value);
    f->statement = before;
    sem_bind(s, &a->items, t, a->value);
}

/* ---- other statements ---------------------------------------------------------------------- */

static void give_back(Sem *s, const Ast *a)
{
    Thing *t = a->items.len == 1 ? sem_eval(s, a->items.at[0]) : thing_new(s, THING_TUPLE, a->span);
    for (int i = 0; a->items.len > 1 && i < a->items.len; i++) {
        Thing *item = sem_eval(s, a->items.at[i]);
        if (item->kind == THING_POISON)
            t = item;
        if (t->kind != THING_POISON)
            vec_push(s->arena, &t->items, item);
    }
    if (s->frame->decl == s->model) {
        Diag *d = sem_error(s, a->span, "a model returns nothing");
        sem_hint(d, "output name = value makes a result of the program");
        return;
    }
    if (s->loop != s->frame->loop) {
        Diag *d = sem_error(s, a->span, "return in a loop");
        sem_hint(d, "yield gives a value per iteration; return stands after the loop");
        return;
    }
    Thing *result = thing_new(s, t->kind, a->span);
    *result = *t;
    result->span = a->items.at[0]->span;
    s->frame->result = result;
}

static void yield_values(Sem *s, const Ast *a)
{
    ThingList *to = s->frame->yields;
    if (!to) {
        sem_error(s, a->span, "yield belongs in a loop over an axis: for x in xs along T { ... }");
        return;
    }
    if (to->len) {
        sem_error(s, a->span, "a loop yields once per iteration");
        return;
    }
    for (int i = 0; i < a->items.len; i++)
        vec_push(s->arena, to, sem_eval(s, a->items.at[i]));
}

static void choose(Sem *s, const Ast *a)
{
    bool yes;
    if (!sem_eval_bool(s, a->cond, "the condition of if", &yes)) {
        s->frame->failed = true;
        return;
    }
    if (yes)
        sem_run(s, a->body);
    else if (a->other)
        sem_run(s, a->other);
}

bool sem_at_model(Sem *s, const Ast *a, const char *what)
{
    if (s->frame->decl == s->model && !s->loop)
        return true;
    sem_error(s, a->span, "%s belongs in the model itself, outside of loops", what);
    return false;
}

static void run_statement(Sem *s, const Ast *a)
{
    switch (a->kind) {
    case AST_PARAM:
    case AST_SUBLAYER:
    case AST_INIT:
    case AST_STATE:
        if (s->frame->inst)
            break;
        sem_error(s, a->span, "a function declares no %s: make it a layer",
                  a->kind == AST_PARAM ? "parameters" : "layers");
        if (a->kind == AST_SUBLAYER)
            scope_set_layer(s, s->frame->scope, a->name, thing_poison(s));
        else if (a->kind != AST_INIT)
            scope_set(s, s->frame->scope, a->name, thing_poison(s));
        break;
    case AST_CONST:
        if (!scope_find_here(s->frame->scope, a->name)
            && !(s->frame->inst && scope_find_here(s->frame->inst->scope, a->name)))
            sem_declare_const(s, s->frame->scope, a, false);
        break;
    case AST_ASSIGN: assign(s, a); break;
    case AST_RETURN: give_back(s, a); break;
    case AST_YIELD: yield_values(s, a); break;
    case AST_IF: choose(s, a); break;
    case AST_FOR:
        if (a->flag)
            sem_unroll(s, a);
        else
            sem_loop(s, a);
        break;
    case AST_SCAN: sem_scan(s, a); break;
    case AST_OUTPUT: sem_output_statement(s, a); break;
    case AST_METRIC: sem_metric_statement(s, a); break;
    case AST_LOSS: sem_loss_statement(s, a); break;
    case AST_ENTRY: sem_error(s, a->span, "this version has one entry per model"); break;
    case AST_UPDATE:
        sem_error(s, a->span, "this version has no states that change while training");
        break;
    case AST_BLOCK: sem_run(s, a); break;
    default: break;
    }
}

void sem_run(Sem *s, const Ast *block)
{
    if (block->kind != AST_BLOCK) { /* else if */
        run_statement(s, block);
        return;
    }
    for (int i = 0; i < block->items.len && !s->frame->result; i++)
        run_statement(s, block->items.at[i]);
    if (s->frame->result && block->items.len && block == s->frame->decl->ast->body) {
        const Ast *last = block->items.at[block->items.len - 1];
        if (last->kind == AST_ASSIGN || last->kind == AST_FOR)
            diag_warning(s->cx, sem_here(s, last->span), "unreachable",
                         "this stands after the return of %s", s->frame->decl->name);
    }
}

/* ---- the model ----------------------------------------------------------------------------- */

/* Evaluates the model's body once: the sums, metrics and outputs of one phase. */
void sem_run_model(Sem *s, bool training)
{
    Frame f;
    s->training = training;
    s->phase = &s->out->phase[training];
    s->phase->training = training;
    s->loss = NULL;
    s->draws = map_new(s->arena);
    s->input_values.len = s->param_values.len = 0;
    frame_push(s, &f, s->model, scope_new(s, s->main->scope), s->model->ast->at);
    f.inst = s->main;
    for (int i = 0; i < s->out->inputs.len; i++) {
        const CheckedInput *in = &s->out->inputs.at[i];
        Expr *e = expr_new(s, EX_INPUT, in->type, 0, NULL, in->span);
        e->index = i;
        e->deps = DEP_INPUT;
        e->name = in->name;
        if (in->lo) {
            e->from = in->lo;
            e->to = in->hi;
            int64_t lo;
            if (in->has_ignore && dim_value(in->lo, &lo) && in->ignore < lo)
                e->from = dim_const(s->dims, in->ignore);
        }
        vec_push(s->arena, &s->input_values, e);
        scope_set(s, f.scope, in->name, thing_value(s, e));
    }
    sem_run(s, s->model->ast->body);
    frame_pop(s);
}
