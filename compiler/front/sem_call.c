/* sem_call.c -- applying functions and layers.
 *
 * In: f(x), f[n](x), ln(x), h[i](x). Out: the Thing returned. The body is evaluated anew for each
 * application, in a frame that knows its sizes, its instance and where it was called, so what
 * comes out is monomorphic.
 */
#include "front/sem_parts.h"

#include <string.h>

/* ---- frames -------------------------------------------------------------------------------- */

void frame_push(Sem *s, Frame *f, Decl *d, Scope *scope, Span call)
{
    *f = (Frame){ .up = s->frame, .decl = d, .scope = scope, .call = call, .loop = s->loop };
    f->user = sem_here(s, call);
    if (s->frame) {
        f->statement = s->frame->statement;
        f->region = s->frame->region;
    }
    s->frame = f;
}

void frame_pop(Sem *s) { s->frame = s->frame->up; }

/* ---- layers by name ------------------------------------------------------------------------ */

static Thing *selected(Sem *s, const Thing *t, const Select *select, Span at)
{
    Thing *copy = thing_new(s, t->kind, at);
    *copy = *t;
    copy->span = at;
    copy->select = select;
    return copy;
}

/* Is the place (of a loop: all its places) inside the stack? False after an error. */
static bool inside_stack(Sem *s, const Ast *a, const Thing *stack, const Select *sel,
                         const Dim *end)
{
    const Dim *count = stack->inst->count;
    int64_t lo, hi, n;
    if (!dim_value(sel->at, &lo) || !dim_value(end, &hi) || !dim_value(count, &n))
        return sem_require_le(s, a->span, dim_const(s->dims, 0), sel->at, "the index of a stack")
               && sem_require_le(s, a->span, end, count, "the index of a stack");
    if (lo >= 0 && hi <= n)
        return true;
    const char *name = ast_expr_text(s->cx, a->left), *plural = n == 1 ? "" : "s";
    const char *index = ast_expr_text(s->cx, a->args.at[0]->value);
    Diag *d = sel->loop
                  ? sem_error(s, a->span, "%s has %lld layer%s (0..%lld), %s reaches %lld", name,
                              (long long)n, plural, (long long)n, index,
                              (long long)(lo < 0 ? lo : hi - 1))
                  : sem_error(s, a->span, "%s has %lld layer%s (0..%lld): there is no %s", name,
                              (long long)n, plural, (long long)n, ast_expr_text(s->cx, a));
    sem_note(s, d, stack->inst->span, "%s is declared here", name);
    return false;
}

/* One layer of a stack: by the number of a loop, or fixed. */
static Thing *element_of(Sem *s, const Ast *a, const Thing *stack)
{
    const Dim *count = stack->inst->count, *one = dim_const(s->dims, 1);
    Thing *i = a->args.len == 1 ? sem_eval(s, a->args.at[0]->value) : NULL;
    if (i && i->kind == THING_POISON)
        return i;
    if (!i || (i->kind != THING_ITER && i->kind != THING_DIM)) {
        sem_error(s, a->span, "a stack is indexed by the number of a loop or a constant");
        return thing_poison(s);
    }
    Select *sel = NEW(s->arena, Select);
    sel->outer = stack->select;
    sel->loop = i->loop;
    sel->at = i->dim;
    int64_t v;
    if (!sel->loop && dim_value(sel->at, &v) && v < 0)
        sel->at = dim_add(s->dims, count, sel->at);
    const Dim *end = dim_add(s->dims, sel->at, sel->loop ? sel->loop->trip : one);
    if (!inside_stack(s, a, stack, sel, end))
        return thing_poison(s);
    if (sel->loop && !sel->loop->stack) {
        sel->loop->stack = stack->inst->under;
        sel->loop->name = stack->inst->decl->name;
    }
    Thing *t = selected(s, stack, sel, a->span);
    t->kind = THING_INSTANCE;
    return t;
}

Thing *sem_lookup_layer(Sem *s, const Ast *a)
{
    Thing *base;
    int64_t k;
    if (!s->frame)
        return NULL;
    if (a->kind == AST_NAME) {
        base = scope_find_layer(s->frame->scope, a->name);
        return base && base->kind != THING_POISON ? selected(s, base, s->frame->select, a->span)
                                                  : base;
    }
    if (a->kind != AST_FIELD && a->kind != AST_INDEX)
        return NULL;
    base = sem_lookup_layer(s, a->left);
    if (!base || base->kind == THING_POISON)
        return base;
    if (a->kind == AST_FIELD) {
        if (base->kind != THING_INSTANCE)
            return NULL;
        const Scope *sc = base->inst->scope;
        for (int i = 0; i < sc->layers.len; i++)
            if (sc->layers.at[i].name == a->name)
                return selected(s, sc->layers.at[i].thing, base->select, a->span);
        return NULL;
    }
    if (base->kind == THING_STACK)
        return element_of(s, a, base);
    if (base->kind != THING_TUPLE)
        return NULL;
    const Thing *i = a->args.len == 1 ? sem_eval(s, a->args.at[0]->value) : NULL;
    if (i && i->kind == THING_POISON)
        return thing_poison(s);
    if (!i || !thing_whole(i, &k) || k < 0 || k >= base->items.len) {
        Diag *d = sem_error(s, a->span, "a list of layers is indexed by a constant from 0 to %d",
                            base->items.len - 1);
        if (i && i->kind == THING_ITER)
            sem_hint(d, "for const i in ... unrolls the loop");
        return thing_poison(s);
    }
    return selected(s, base->items.at[k], base->select, a->span);
}

/* ---- arguments ----------------------------------------------------------------------------- */

static void wrong_count(Sem *s, const Decl *d, Span at, const AstList *formals, const char *what)
{
    Text list = text_new(s->arena);
    for (int i = 0; i < formals->len; i++)
        text_add(&list, "%s%s", i ? ", " : "", formals->at[i]->name);
    bool square = formals == &d->ast->params;
    Diag *diag = sem_error(s, at, "%s: %s%c%s%c wanted", what, d->name, square ? '[' : '(', list.at,
                           square ? ']' : ')');
    if (!d->prelude)
        sem_note(s, diag, d->ast->at, "%s is declared here", d->name);
}

/* An argument called axis may be given as over:, as in the functions of the language itself. */
static bool is_called(const Ast *formal, const Ast *arg)
{
    return formal->name == arg->name
           || (strcmp(arg->name, "over") == 0 && strcmp(formal->name, "axis") == 0);
}

/* Which argument each formal gets: given[i], or NULL for its default. */
static bool match_args(Sem *s, const Decl *d, Span at, const AstList *formals, const AstList *args,
                       const Ast **given)
{
    int next = 0;
    for (int i = 0; i < args->len; i++) {
        const Ast *arg = args->at[i];
        int k = next;
        if (arg->name)
            for (k = 0; k < formals->len && !is_called(formals->at[k], arg); k++) {}
        if (k >= formals->len && arg->name) {
            Diag *diag = sem_error(s, arg->at, "%s has no argument %s", d->name, arg->name);
            const char **names = NEW_ARRAY(s->arena, const char *, formals->len + 1);
            for (int j = 0; j < formals->len; j++)
                names[j] = formals->at[j]->name;
            sem_did_you_mean(diag, arg->name, names, formals->len);
            return false;
        }
        if (k >= formals->len) {
            wrong_count(s, d, arg->span, formals, "too many arguments");
            return false;
        }
        if (given[k]) {
            sem_error(s, arg->span, "%s is given twice", formals->at[k]->name);
            return false;
        }
        given[k] = arg->value;
        next = arg->name ? next : next + 1;
    }
    for (int k = 0; k < formals->len; k++)
        if (!given[k] && !formals->at[k]->value) {
            wrong_count(s, d, at, formals,
                        arena_printf(s->arena, "%s is not given", formals->at[k]->name));
            return false;
        }
    return true;
}

static Thing *default_value(Sem *s, Decl *d, const Ast *value, Scope *scope, Span at)
{
    Frame f;
    frame_push(s, &f, d, scope, at);
    Thing *t = sem_eval(s, value);
    frame_pop(s);
    return t;
}

/* The bracket arguments become names of `into`. */
bool sem_bind_brackets(Sem *s, Decl *d, Span at, const AstList *args, Scope *into)
{
    const AstList *formals = &d->ast->params;
    const Ast **given = NEW_ARRAY(s->arena, const Ast *, formals->len + 1);
    if (!match_args(s, d, at, formals, args, given))
        return false;
    Thing **value = NEW_ARRAY(s->arena, Thing *, formals->len + 1);
    bool fine = true;
    for (int i = 0; i < formals->len; i++) {
        value[i] = given[i] ? sem_eval(s, given[i]) : NULL;
        fine = fine && !(value[i] && value[i]->kind == THING_POISON)
               && (!value[i] || sem_check_size_argument(s, d, formals->at[i], value[i], given[i]));
    }
    for (int i = 0; fine && i < formals->len; i++) {
        const Ast *f = formals->at[i];
        Thing *t = value[i] ? value[i] : default_value(s, d, f->value, into, at);
        fine = fine && t->kind != THING_POISON;
        if (t->kind == THING_VALUE) {
            sem_error(s, given[i] ? given[i]->span : f->span,
                      "%s of %s must be known while compiling", f->name, d->name);
            fine = false;
        }
        Thing *copy = thing_new(s, t->kind, t->span);
        *copy = *t;
        copy->literal = t->literal && d->ast->kind == AST_FUNC;
        scope_set(s, into, f->name, copy);
    }
    return fine;
}

/* ---- application --------------------------------------------------------------------------- */

/* The argument as the formal wants it; NULL after an error. */
static Thing *convert_arg(Sem *s, const Decl *d, const Ast *formal, Thing *t, const Ast *arg)
{
    DType dtype;
    if (t->kind == THING_POISON)
        return NULL;
    if (!formal->type)
        return t;
    if (!sem_type_dtype(s, formal->type, &dtype))
        return NULL;
    bool number = t->kind == THING_DIM || t->kind == THING_REAL;
    if (!formal->type->flag
        && (dtype == DT_F32   ? number
            : dtype == DT_I32 ? t->kind == THING_DIM
                              : t->kind == THING_BOOL))
        return t;
    if (t->kind == THING_TUPLE || t->kind == THING_TEXT || t->kind == THING_DTYPE) {
        sem_error(s, arg->span, "%s of %s must be a value, not %s", formal->name, d->name,
                  thing_text(s, t));
        return NULL;
    }
    Expr *e = sem_to_value(s, t, dtype, arg);
    return e ? thing_value(s, e) : NULL;
}

/* The precision that the declaration of a layer, or of one around it, asks for. */
static SemRegion region_of(const Instance *inst)
{
    while (inst && inst->region == REGION_PROGRAM)
        inst = inst->outer;
    return inst ? inst->region : REGION_PROGRAM;
}

/* t, with its values where precision changes to region. */
static Thing *in_region(Sem *s, Thing *t, SemRegion region)
{
    if (t->kind == THING_VALUE)
        return thing_value(s, expr_region(s, t->value, region, t->value->span));
    if (t->kind != THING_TUPLE)
        return t;
    Thing *all = thing_new(s, THING_TUPLE, t->span);
    for (int i = 0; i < t->items.len; i++)
        vec_push(s->arena, &all->items, in_region(s, t->items.at[i], region));
    return all;
}

static bool bind_args(Sem *s, Frame *caller, const Ast *call)
{
    Frame *f = s->frame;
    Decl *d = f->decl;
    const AstList *formals = &d->ast->args;
    const Ast **given = NEW_ARRAY(s->arena, const Ast *, formals->len + 1);
    Thing **value = NEW_ARRAY(s->arena, Thing *, formals->len + 1);
    bool fine = true;
    s->frame = caller; /* arguments belong to the caller */
    if (!match_args(s, d, call->span, formals, &call->args, given)) {
        s->frame = f;
        return false;
    }
    for (int i = 0; i < formals->len; i++)
        value[i] = given[i] ? convert_arg(s, d, formals->at[i], sem_eval(s, given[i]), given[i])
                            : NULL;
    s->frame = f;
    for (int i = 0; i < formals->len; i++) {
        const Ast *formal = formals->at[i];
        if (!given[i])
            value[i] = convert_arg(s, d, formal, sem_eval(s, formal->value), formal->value);
        if (!value[i])
            fine = false;
        else if (!formal->type || !formal->type->flag)
            scope_set(s, f->scope, formal->name, value[i]);
    }
    s->frame = caller;
    for (int round = 0; fine && round < 2; round++)
        for (int i = 0; fine && i < formals->len; i++) {
            const Ast *formal = formals->at[i];
            const char *who = arena_printf(s->arena, "%s of %s", formal->name, d->name);
            if (!formal->type || value[i]->kind != THING_VALUE)
                continue;
            s->matching = f;
            fine = sem_match_type(s, formal->type, value[i]->value,
                                  given[i] ? given[i] : formal->value, who, round);
        }
    s->frame = f;
    for (int i = 0; fine && i < formals->len; i++)
        scope_set(s, f->scope, formals->at[i]->name,
                  f->region == caller->region ? value[i] : in_region(s, value[i], f->region));
    return fine;
}

static Thing *check_results(Sem *s, const Ast *call)
{
    Frame *f = s->frame;
    Decl *d = f->decl;
    int n = d->ast->results.len;
    Thing *t = f->result;
    if (!t) {
        if (f->failed)
            return thing_poison(s);
        Diag *diag = sem_error(s, call->span, "%s returns nothing", d->name);
        sem_note(s, diag, d->ast->at, "%s is declared here", d->name);
        return thing_poison(s);
    }
    int have = t->kind == THING_TUPLE ? t->items.len : 1;
    if (n == 0 || t->kind == THING_POISON)
        return t;
    if (have != n) {
        sem_error(s, f->result->span, "%s returns %d value%s, but its signature has %d", d->name,
                  have, have == 1 ? "" : "s", n);
        return thing_poison(s);
    }
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < n; i++) {
            Thing *one = t->kind == THING_TUPLE ? t->items.at[i] : t;
            if (one->kind != THING_VALUE)
                continue;
            const char *who = arena_printf(s->arena, "the result of %s", d->name);
            s->matching = f;
            if (!sem_match_type(s, d->ast->results.at[i], one->value, NULL, who, round))
                return thing_poison(s);
        }
    return t;
}

static Thing *too_deep(Sem *s, const Decl *d, const Ast *call)
{
    Diag *diag = sem_error(s, call->span, "%s applies itself", d->name);
    sem_note(s, diag, d->ast->at, "%s is declared here", d->name);
    sem_hint(diag, "a model has no recursion: its size must be known while compiling");
    return thing_poison(s);
}

Thing *sem_apply(Sem *s, Decl *d, Instance *inst, const Select *select, Scope *scope,
                 const Ast *call)
{
    if (!inst && d->calls)
        return too_deep(s, d, call);
    Frame f, *caller = s->frame;
    Thing *t = thing_poison(s);
    frame_push(s, &f, d, scope_new(s, scope), call->span);
    f.inst = inst;
    f.select = select;
    if (inst) {
        inst->used = true;
        f.region = region_of(inst);
        f.statement = inst->under[0] ? inst->under : NULL;
    }
    if (bind_args(s, caller, call)) {
        d->calls++;
        sem_run(s, d->ast->body);
        t = check_results(s, call);
        if (f.region != caller->region)
            t = in_region(s, t, caller->region);
        if (inst && t->kind == THING_VALUE && inst->under[0])
            expr_hinted(t->value, inst->under);
        d->calls--;
    }
    s->frame = caller;
    return t;
}

/* ---- calls --------------------------------------------------------------------------------- */

static Thing *call_decl(Sem *s, const Ast *a, Decl *d, const AstList *brackets)
{
    static const AstList none = { 0 };
    if (d->ast->kind != AST_FUNC) {
        Diag *diag = sem_error(s, a->span, "%s is a layer: it must be built before it is applied",
                               d->name);
        sem_hint(diag, "declare it once, name : %s[...], and apply name(x)", d->name);
        return thing_poison(s);
    }
    if (d->ast->other) {
        sem_error(s, d->ast->other->span, "this version cannot use a function's own gradient");
        return thing_poison(s);
    }
    Scope *scope = scope_new(s, d->scope);
    if (!sem_bind_brackets(s, d, a->span, brackets ? brackets : &none, scope))
        return thing_poison(s);
    return sem_apply(s, d, NULL, NULL, scope, a);
}

static Thing *call_builtin(Sem *s, const Ast *a, const Builtin *b)
{
    int positional = 0;
    for (int i = 0; i < a->args.len; i++) {
        const Ast *arg = a->args.at[i];
        if (!arg->name) {
            positional++;
            continue;
        }
        Text names = text_new(s->arena);
        text_add(&names, " %s ", b->named);
        if (!strstr(names.at, arena_printf(s->arena, " %s ", arg->name))) {
            Diag *d = sem_error(s, arg->at, "%s has no argument %s", b->name, arg->name);
            sem_hint(d, "its form is %s", b->form);
            return thing_poison(s);
        }
    }
    if (positional < b->least || positional > b->most) {
        sem_error(s, a->span, "%s has %d argument%s here: its form is %s", b->name, positional,
                  positional == 1 ? "" : "s", b->form);
        return thing_poison(s);
    }
    return b->apply(s, a);
}

Thing *sem_call(Sem *s, const Ast *a)
{
    const Ast *callee = a->left;
    const AstList *brackets = NULL;
    Thing *t = sem_lookup_layer(s, callee);
    if (t && t->kind == THING_INSTANCE)
        return sem_apply(s, t->inst->decl, t->inst, t->select, t->inst->scope, a);
    if (t && t->kind == THING_STACK) {
        sem_to_value(s, t, DT_COUNT, callee);
        return thing_poison(s);
    }
    if (t && t->kind == THING_POISON)
        return t;
    if (callee->kind == AST_INDEX && callee->left->kind == AST_NAME) {
        brackets = &callee->args;
        callee = callee->left;
    }
    if (callee->kind != AST_NAME) {
        Thing *v = sem_eval(s, callee);
        if (v->kind != THING_POISON)
            sem_error(s, callee->span, "%s cannot be applied: it is %s",
                      ast_expr_text(s->cx, callee), thing_text(s, v));
        return thing_poison(s);
    }
    t = scope_find(s->frame ? s->frame->scope : s->global, callee->name);
    if (t && t->kind == THING_DECL)
        return call_decl(s, a, t->decl, brackets);
    const Builtin *b = builtin_find(callee->name);
    if (b)
        return call_builtin(s, a, b);
    if (t && t->kind != THING_POISON)
        sem_error(s, callee->span, "%s cannot be applied: it is %s", callee->name,
                  thing_text(s, t));
    else if (!t)
        sem_unknown(s, callee->span, "function or layer", callee->name, true);
    return thing_poison(s);
}
