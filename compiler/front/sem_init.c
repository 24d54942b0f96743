/* sem_init.c -- initialisers and states.
 *
 * In: what stands behind ~, `wte.weight ~ normal(0, 0.02)`, `state mu: [8] from mean(x)`. Out: the
 * initialiser and the fitted input of rows of the parameter table.
 */
#include "front/sem_parts.h"

#include <string.h>

/* ---- initialisers -------------------------------------------------------------------------- */

void sem_set_init(Sem *s, int param, const Ast *value)
{
    Thing *t = sem_eval(s, value);
    CheckedParam *p = &s->out->params.at[param];
    double v;
    if (t->kind == THING_POISON)
        return;
    if (t->kind == THING_INIT) {
        p->init = t->init;
        p->init_value = t->real;
    } else if (thing_number(t, &v)) {
        p->init = v == 0 ? SEM_INIT_ZEROS : v == 1 ? SEM_INIT_ONES : SEM_INIT_CONST;
        p->init_value = v;
    } else {
        Diag *d = sem_error(s, value->span, "an initialiser wanted, not %s", thing_text(s, t));
        sem_hint(d, "zeros, ones, a number, normal(0, 0.02), uniform(0.1), or one of the prelude");
    }
}

static int override_in(Sem *s, const Thing *t, const char *name, const Ast *value)
{
    if (t->kind == THING_TUPLE) {
        int n = 0;
        for (int i = 0; i < t->items.len; i++)
            n += override_in(s, t->items.at[i], name, value);
        return n;
    }
    if (t->kind != THING_INSTANCE && t->kind != THING_STACK)
        return 0;
    const Scope *sc = t->inst->scope;
    for (int i = 0; i < sc->values.len; i++) {
        const Thing *p = sc->values.at[i].thing;
        if (p->kind == THING_PARAM && (sc->values.at[i].name == name || p->text == name)) {
            sem_set_init(s, p->index, value);
            return 1;
        }
    }
    return 0;
}

/* The layers that a path names; stacks and lists stand for all their layers. */
static void find_layers(Sem *s, const Ast *path, ThingList *found)
{
    if (path->kind == AST_NAME) {
        Thing *t = scope_find_layer(s->frame->scope, path->name);
        if (t)
            vec_push(s->arena, found, t);
        return;
    }
    ThingList outer = { 0 };
    find_layers(s, path->left, &outer);
    for (int i = 0; i < outer.len; i++) {
        Thing *t = outer.at[i];
        if (t->kind == THING_TUPLE)
            for (int k = 0; k < t->items.len; k++)
                vec_push(s->arena, &outer, t->items.at[k]);
        if (t->kind != THING_INSTANCE && t->kind != THING_STACK)
            continue;
        const Scope *sc = t->inst->scope;
        for (int k = 0; k < sc->layers.len; k++)
            if (sc->layers.at[k].name == path->name)
                vec_push(s->arena, found, sc->layers.at[k].thing);
    }
}

void sem_override_init(Sem *s, const Ast *a)
{
    ThingList layers = { 0 };
    int n = 0;
    find_layers(s, a->left->left, &layers);
    for (int i = 0; i < layers.len; i++) {
        if (layers.at[i]->kind == THING_POISON)
            return;
        n += override_in(s, layers.at[i], a->left->name, a->value);
    }
    if (n == 0) {
        Diag *d = sem_error(s, a->left->span, "there is no parameter %s",
                            ast_expr_text(s->cx, a->left));
        sem_hint(d, "a path names layers declared above, then the parameter: h.attn.c_proj.weight");
    }
}

/* ---- states -------------------------------------------------------------------------------- */

static int input_named(const Sem *s, const char *name)
{
    for (int i = 0; i < s->out->inputs.len; i++)
        if (s->out->inputs.at[i].name == name)
            return i;
    return -1;
}

/* mean(x) or std(x) over the training split: the input, or -1 after an error. */
static int fitted_input(Sem *s, const Ast *a, const char **kind)
{
    const Ast *call = a->value;
    if (call->kind == AST_CALL && call->left->kind == AST_NAME && call->args.len == 1
        && call->args.at[0]->value->kind == AST_NAME
        && (strcmp(call->left->name, "mean") == 0 || strcmp(call->left->name, "std") == 0)) {
        int input = input_named(s, call->args.at[0]->value->name);
        *kind = call->left->name;
        if (input >= 0)
            return input;
        sem_error(s, call->args.at[0]->span, "%s is no input of the model",
                  call->args.at[0]->value->name);
        return -1;
    }
    sem_error(s, call->span, "a state is fitted by mean(x) or std(x) of an input x");
    return -1;
}

void sem_declare_state(Sem *s, const Ast *a)
{
    const char *kind = NULL;
    if (!a->flag) {
        sem_error(s, a->span, "this version has no states that change while training");
        scope_set(s, s->frame->inst->scope, a->name, thing_poison(s));
        return;
    }
    scope_set(s, s->frame->inst->scope, a->name, thing_poison(s));
    const Type *t = sem_eval_type(s, a->type, a->name);
    if (s->frame->inst->path[0]) {
        sem_error(s, a->span, "a fitted state belongs to the model, not to a layer");
        return;
    }
    int input = t ? fitted_input(s, a, &kind) : -1;
    if (input < 0)
        return;
    const CheckedInput *in = &s->out->inputs.at[input];
    bool same = in->type->dtype == DT_F32 && t->dtype == DT_F32 && t->rank == in->type->rank - 1;
    for (int i = 0; same && i < t->rank; i++)
        same = dim_same(t->dim[i], in->type->dim[i + 1]);
    if (!same) {
        Diag *d = sem_error(s, a->type->span, "%s must be %s without its sample axis: it is %s",
                            a->name, in->name, sem_type_text(s, t));
        sem_note(s, d, in->span, "%s is %s", in->name, sem_type_text(s, in->type));
        return;
    }
    int64_t v;
    for (int i = 0; i < t->rank; i++)
        if (!dim_value(t->dim[i], &v)) {
            sem_error(s, a->type->span, "the size %s of a state is not known while compiling",
                      dim_text(s->cx, t->dim[i]));
            return;
        }
    int index = sem_add_param(s, a, t, SEM_STATE);
    if (index < 0)
        return;
    CheckedParam *p = &s->out->params.at[index];
    p->fit_input = input;
    p->fit_kind = kind;
    p->init = kind[0] == 's' ? SEM_INIT_ONES : SEM_INIT_ZEROS;
}
