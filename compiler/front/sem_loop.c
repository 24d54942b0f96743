/* sem_loop.c -- loops over stacks and scans along an axis.
 *
 * In: `for i in 0..L { x = h[i](x) }`, `ys = for xt in x along T { ...; yield h }`. Out: one
 * CheckedLoop with a body that is evaluated once. Outer names that the body assigns are carried
 * and keep their type; what the body only reads is free in it. `for const` is run as often as it
 * says.
 */
#include "front/sem_parts.h"

#include <string.h>

/* ---- which names a body assigns ------------------------------------------------------------ */

typedef VEC(const char *) NameList;

static void add_name(Sem *s, NameList *names, const char *name)
{
    for (int i = 0; i < names->len; i++)
        if (names->at[i] == name)
            return;
    vec_push(s->arena, names, name);
}

static void assigned_in(Sem *s, const Ast *a, NameList *names)
{
    switch (a->kind) {
    case AST_BLOCK:
        for (int i = 0; i < a->items.len; i++)
            assigned_in(s, a->items.at[i], names);
        break;
    case AST_ASSIGN:
        for (int i = 0; i < a->items.len; i++)
            add_name(s, names, a->items.at[i]->name);
        if (a->value->kind == AST_SCAN)
            assigned_in(s, a->value, names);
        break;
    case AST_IF:
        assigned_in(s, a->body, names);
        if (a->other)
            assigned_in(s, a->other, names);
        break;
    case AST_FOR:
    case AST_SCAN: assigned_in(s, a->body, names); break;
    default: break;
    }
}

/* A name of this application, not of the file around it. */
static Thing *find_local(const Sem *s, const char *name)
{
    for (const Scope *sc = s->frame->scope; sc && sc != s->frame->decl->scope; sc = sc->parent) {
        Thing *t = scope_find_here(sc, name);
        if (t)
            return t;
    }
    return NULL;
}

/* ---- entering and leaving a body ----------------------------------------------------------- */

typedef struct {
    CheckedLoop *loop;
    Scope *outer;
    ThingList *outer_yields, yields;
    NameList names; /* of the carries, in order */
} Body;

static CheckedLoop *loop_new(Sem *s, const char *name, const char *var, const Dim *trip, Span at)
{
    CheckedLoop *l = NEW(s->arena, CheckedLoop);
    l->name = name;
    l->var = var;
    l->trip = trip;
    l->parent = s->loop;
    l->span = sem_here(s, at);
    l->iter = expr_new(s, EX_ARG, sem_type(s, DT_I32, 0, NULL), 0, NULL, at);
    l->iter->loop = l->iter->home = l;
    l->iter->deps = DEP_ITER;
    l->iter->from = dim_const(s->dims, 0);
    l->iter->to = trip;
    l->iter->name = var;
    return l;
}

static void carry_name(Sem *s, Body *b, const char *name, const Ast *at)
{
    Thing *t = find_local(s, name);
    if (!t
        || (t->kind != THING_VALUE && t->kind != THING_DIM && t->kind != THING_REAL
            && t->kind != THING_BOOL))
        return;
    Expr *init = sem_to_value(s, t, DT_F32, at);
    if (!init)
        return;
    if (init->deps & DEP_MEAN) {
        sem_error(s, at->span, "%s is a mean over the samples and cannot change in a loop", name);
        return;
    }
    Expr *arg = expr_new(s, EX_ARG, init->type, 0, NULL, init->span);
    arg->span = init->span;
    arg->loop = arg->home = b->loop;
    sem_check_axes_in_loops(s, arg, at->span);
    arg->deps = init->deps;
    arg->name = sem_value_name(s, name);
    CheckedCarry c = { .name = name, .arg = arg, .init = init };
    vec_push(s->arena, &b->loop->carries, c);
    vec_push(s->arena, &b->names, name);
    Thing *inside = thing_value(s, arg);
    inside->span = t->span;
    scope_set(s, s->frame->scope, name, inside);
}

static void enter(Sem *s, Body *b, CheckedLoop *loop, const Ast *a)
{
    NameList assigned = { 0 };
    *b = (Body){ .loop = loop, .outer = s->frame->scope, .outer_yields = s->frame->yields };
    assigned_in(s, a->body, &assigned);
    s->frame->scope = scope_new(s, b->outer);
    s->frame->yields = a->kind == AST_SCAN ? &b->yields : NULL;
    for (int i = 0; i < assigned.len; i++)
        carry_name(s, b, assigned.at[i], a);
    s->loop = loop;
}

/* What the carry has become at the end of an iteration; false when it does not fit. */
static bool check_carry(Sem *s, const Ast *a, CheckedCarry *c)
{
    Thing *t = scope_find_here(s->frame->scope, c->name);
    if (t->kind == THING_POISON)
        return false;
    c->next = sem_to_value(s, t, c->arg->type->dtype, a);
    if (!c->next)
        return false;
    if (c->next->type->rank == 0 && c->arg->type->rank == 0)
        c->next = c->arg->type->dtype == DT_F32 ? expr_cast(s, c->next, DT_F32, a->span) : c->next;
    if (type_same(c->next->type, c->arg->type))
        return true;
    Diag *d = sem_error(s, t->span, "%s changes its type in the loop: %s before, %s after a turn",
                        c->name, sem_type_text(s, c->arg->type), sem_type_text(s, c->next->type));
    sem_note(s, d, c->init->span, "%s is %s before the loop", c->name,
             sem_type_text(s, c->init->type));
    if (c->arg->type->rank == 0)
        sem_hint(d, "start with its whole shape: %s = zeros([sizes])", c->name);
    return false;
}

/* A name that is carried but never changed is just read. */
static bool unchanged(CheckedCarry *c)
{
    if (c->next != c->arg)
        return false;
    c->arg->kind = EX_RESHAPE;
    c->arg->n_in = 1;
    c->arg->in = &c->init;
    c->arg->home = c->init->home;
    c->arg->loop = NULL;
    return true;
}

static Expr *loop_result(Sem *s, Expr *node, int index, const Type *t, unsigned deps, Span at)
{
    Expr *r = expr_new(s, EX_RESULT, t, 1, &node, at);
    r->index = index;
    r->deps = deps;
    return r;
}

/* Closes the loop: binds the carried names outside and returns the stacked yields. */
static Thing *leave(Sem *s, Body *b, const Ast *a, int axis)
{
    CheckedLoop *l = b->loop;
    Scope *body = s->frame->scope;
    bool fine = true;
    int n = 0;
    unsigned deps = 0;
    for (int i = 0; i < l->carries.len; i++)
        fine = check_carry(s, a, &l->carries.at[i]) && fine;
    for (int i = 0; i < b->yields.len; i++) {
        Expr *e = sem_to_value(s, b->yields.at[i], DT_F32, a);
        fine = fine && e;
        vec_push(s->arena, &l->yields, e);
        deps |= e ? e->deps : 0;
    }
    s->loop = l->parent;
    s->frame->scope = b->outer;
    s->frame->yields = b->outer_yields;
    for (int i = 0; fine && i < l->carries.len; i++) {
        CheckedCarry c = l->carries.at[i];
        CheckedCarry *kept = NEW(s->arena, CheckedCarry);
        *kept = c;
        deps |= c.next->deps | c.init->deps;
        if (!unchanged(kept))
            l->carries.at[n++] = c;
    }
    for (int i = 0; !fine && i < b->names.len; i++)
        scope_set(s, b->outer, b->names.at[i], thing_poison(s));
    if (!fine) {
        s->frame->failed = true;
        return thing_poison(s);
    }
    l->carries.len = n;
    Expr *node = expr_new(s, EX_LOOP, l->iter->type, 0, NULL, a->span);
    node->loop = l;
    node->home = s->loop;
    node->deps = deps;
    for (int i = 0; i < n; i++) {
        const CheckedCarry *c = &l->carries.at[i];
        Expr *r = loop_result(s, node, i, c->arg->type, deps, a->span);
        Thing *t = thing_value(s, r);
        r->name = c->arg->name;
        t->span = scope_find_here(body, c->name)->span;
        scope_set(s, s->frame->scope, c->name, t);
    }
    Thing *all = thing_new(s, THING_TUPLE, a->span);
    for (int i = 0; i < l->yields.len; i++) {
        const Type *t = l->yields.at[i]->type;
        const Dim *dim[RANK_MAX];
        int order[RANK_MAX], at = axis < t->rank ? axis : t->rank;
        if (t->rank == RANK_MAX) {
            sem_error(s, a->span, "the stacked values have more than %d axes", RANK_MAX);
            return thing_poison(s);
        }
        dim[0] = l->trip;
        for (int k = 0; k < t->rank; k++)
            dim[k + 1] = t->dim[k];
        for (int k = 0; k <= t->rank; k++)
            order[k] = k < at ? k + 1 : k == at ? 0 : k;
        const Type *stacked = sem_type(s, t->dtype, t->rank + 1, dim);
        Expr *r = loop_result(s, node, n + i, stacked, deps, a->span);
        vec_push(s->arena, &all->items, thing_value(s, expr_transpose(s, r, order, a->span)));
    }
    return all->items.len == 1 ? all->items.at[0] : all;
}

static bool may_nest(Sem *s, const Ast *a)
{
    if (loop_depth(s->loop) < LOOP_DEPTH_MAX)
        return true;
    Diag *d = sem_error(s, a->span, "more than %d loops inside each other", LOOP_DEPTH_MAX);
    sem_hint(d, "for const i in ... writes a short loop out; loops around layers count too");
    s->frame->failed = true;
    return false;
}

/* ---- for i in 0..L ------------------------------------------------------------------------- */

void sem_loop(Sem *s, const Ast *a)
{
    Thing *range = sem_eval(s, a->value);
    int64_t n;
    if (range->kind != THING_RANGE) {
        if (range->kind != THING_POISON) {
            Diag *d = sem_error(s, a->value->span, "a loop runs over a range such as 0..L, not %s",
                                thing_text(s, range));
            if (range->kind == THING_VALUE)
                sem_hint(d, "for xt in x along T { ... } runs over an axis");
        }
        s->frame->failed = true;
        return;
    }
    const Dim *trip = dim_sub(s->dims, range->to, range->dim);
    if (!sem_no_mixing(s, a->value->span, trip, "a loop"))
        return;
    if ((dim_value(trip, &n) && n == 0) || !may_nest(s, a))
        return;
    Body b;
    enter(s, &b, loop_new(s, NULL, a->name, trip, a->span), a);
    Thing *i = thing_new(s, THING_ITER, a->at);
    i->loop = b.loop;
    i->dim = range->dim;
    scope_set(s, s->frame->scope, a->name, i);
    sem_run(s, a->body);
    leave(s, &b, a, 0);
    if (!b.loop->name)
        b.loop->name = "loop";
}

/* What is written out is repeated at most this often. */
bool sem_few_turns(Sem *s, const Ast *range, const char *what, int64_t lo, int64_t hi)
{
    enum { TURNS_MAX = 1000 };
    if (hi <= lo || (uint64_t)hi - (uint64_t)lo <= TURNS_MAX)
        return true;
    sem_error(s, range->span, "%s would repeat its body %llu times: %d is the limit", what,
              (unsigned long long)((uint64_t)hi - (uint64_t)lo), TURNS_MAX);
    return false;
}

void sem_unroll(Sem *s, const Ast *a)
{
    Thing *range = sem_eval(s, a->value);
    int64_t lo, hi;
    if (range->kind == THING_TUPLE) {
        for (int i = 0; i < range->items.len && !s->frame->result; i++) {
            scope_set(s, s->frame->scope, a->name, range->items.at[i]);
            sem_run(s, a->body);
        }
        return;
    }
    if (range->kind != THING_RANGE || !dim_value(range->dim, &lo) || !dim_value(range->to, &hi)) {
        if (range->kind != THING_POISON)
            sem_error(s, a->value->span, "for const runs over a range known while compiling");
        s->frame->failed = true;
        return;
    }
    if (!sem_few_turns(s, a->value, "for const", lo, hi))
        return;
    for (int64_t i = lo; i < hi && !s->frame->result; i++) {
        scope_set(s, s->frame->scope, a->name, thing_dim(s, dim_const(s->dims, i), a->at));
        sem_run(s, a->body);
    }
}

/* ---- for xt in x along T ------------------------------------------------------------------- */

/* x with the axis in front, and the axis; NULL after an error. */
static Expr *scan_source(Sem *s, const Ast *a, const Ast *source, int *axis)
{
    Expr *e = sem_eval_value(s, source);
    int order[RANK_MAX], n = 0;
    if (!e || !sem_find_axis(s, a->value, e->type, axis)
        || !sem_no_mixing(s, a->value->span, e->type->dim[*axis], "a loop"))
        return NULL;
    order[n++] = *axis;
    for (int i = 0; i < e->type->rank; i++)
        if (i != *axis)
            order[n++] = i;
    return expr_transpose(s, e, order, source->span);
}

Thing *sem_scan(Sem *s, const Ast *a)
{
    Expr *source[RANK_MAX] = { NULL };
    int n = a->args.len, axis = 0, first = 0;
    if (n < 1 || n != a->items.len || n > RANK_MAX) {
        sem_error(s, a->span, "%d names run over %d values", a->items.len, n);
        return thing_poison(s);
    }
    for (int i = 0; i < n; i++) {
        source[i] = scan_source(s, a, a->args.at[i], &axis);
        first = i == 0 ? axis : first;
        if (!source[i]) {
            s->frame->failed = true;
            return thing_poison(s);
        }
        if (!dim_same(source[i]->type->dim[0], source[0]->type->dim[0])) {
            Diag *d = sem_error(s, a->args.at[i]->span,
                                "the loop runs %s times over one and %s times over the other",
                                sem_dim_text(s, source[0]->type->dim[0]),
                                sem_dim_text(s, source[i]->type->dim[0]));
            sem_note_value(s, d, a->args.at[0], source[0]);
            sem_note_value(s, d, a->args.at[i], source[i]);
            return thing_poison(s);
        }
    }
    if (!may_nest(s, a))
        return thing_poison(s);
    Body b;
    enter(s, &b, loop_new(s, "scan", NULL, source[0]->type->dim[0], a->span), a);
    for (int i = 0; i < n; i++) {
        Expr *e = expr_elem(s, b.loop, source[i], a->items.at[i]->span);
        Thing *t = thing_value(s, e);
        e->name = sem_value_name(s, a->items.at[i]->name);
        t->span = a->items.at[i]->span;
        scope_set(s, s->frame->scope, a->items.at[i]->name, t);
    }
    sem_run(s, a->body);
    return leave(s, &b, a, first);
}
