/* sem_value.c -- making values of the checked tree.
 *
 * In: operands. Out: an Expr with its type, what it depends on, and its home: the innermost loop
 * whose carries, elements or iteration it needs. What a loop body computes from outer values only
 * has an outer home, so it is computed once.
 */
#include "front/sem_parts.h"

#include <string.h>

/* ---- the general case ---------------------------------------------------------------------- */

int loop_depth(const CheckedLoop *l)
{
    int depth = 0;
    for (; l; l = l->parent)
        depth++;
    return depth;
}

/* What a loop computes is kept for its backward pass, with an axis more for each loop around it. */
void sem_check_axes_in_loops(Sem *s, const Expr *e, Span at)
{
    int depth = loop_depth(e->home);
    if (e->type->rank + depth <= RANK_MAX || s->deep_told)
        return;
    s->deep_told = true;
    sem_error(s, at, "a value of %d axes in %d loop%s: axes and loops are at most %d together",
              e->type->rank, depth, depth == 1 ? "" : "s", RANK_MAX);
}

Expr *expr_new(Sem *s, ExprKind kind, const Type *type, int n_in, Expr *const *in, Span at)
{
    Expr *e = NEW(s->arena, Expr);
    e->kind = kind;
    e->type = type;
    e->n_in = n_in;
    e->in = NEW_ARRAY(s->arena, Expr *, n_in + 1);
    for (int i = 0; i < n_in; i++) {
        e->in[i] = in[i];
        e->deps |= in[i]->deps;
        if (loop_depth(in[i]->home) > loop_depth(e->home))
            e->home = in[i]->home;
    }
    e->span = sem_here(s, at);
    sem_check_axes_in_loops(s, e, at);
    return e;
}

Expr *expr_named(Expr *e, const char *name)
{
    if (e->kind == EX_REGION)
        expr_named(e->in[0], name);
    if (!e->name || e->hinted)
        e->name = name;
    e->hinted = false;
    return e;
}

Expr *expr_hinted(Expr *e, const char *name)
{
    if (!e->name) {
        e->name = name;
        e->hinted = true;
    }
    if (e->kind == EX_REGION)
        expr_hinted(e->in[0], name);
    return e;
}

/* ---- leaves -------------------------------------------------------------------------------- */

Expr *expr_const(Sem *s, DType t, double v, Span at)
{
    Expr *e = expr_new(s, EX_CONST, sem_type(s, t, 0, NULL), 0, NULL, at);
    e->value = v;
    if (t == DT_I32) {
        e->from = dim_const(s->dims, (int64_t)v);
        e->to = dim_const(s->dims, (int64_t)v + 1);
    }
    return e;
}

Expr *expr_dim(Sem *s, DType t, const Dim *d, Span at)
{
    int64_t v;
    if (dim_literal(d, &v))
        return expr_const(s, t, (double)v, at);
    Expr *e = expr_new(s, EX_DIM, sem_type(s, t, 0, NULL), 0, NULL, at);
    e->dim = d;
    e->from = d;
    e->to = dim_add(s->dims, d, dim_const(s->dims, 1));
    return e;
}

/* from, from + 1 ... to - 1. */
Expr *expr_iota(Sem *s, const Dim *from, const Dim *to, Span at)
{
    const Dim *size = dim_sub(s->dims, to, from);
    Expr *e = expr_new(s, EX_IOTA, sem_type(s, DT_I32, 1, &size), 0, NULL, at);
    int64_t zero;
    e->n_axes = 1;
    if (!dim_value(from, &zero) || zero != 0) {
        Expr *in[2] = { e, expr_dim(s, DT_I32, from, at) };
        e = expr_point(s, "add", e->type, 2, in, at);
    }
    e->from = from;
    e->to = to;
    e->counts = true;
    return e;
}

/* ---- operations ---------------------------------------------------------------------------- */

Expr *expr_point(Sem *s, const char *op, const Type *type, int n_in, Expr *const *in, Span at)
{
    Expr *e = expr_new(s, EX_POINT, type, n_in, in, at);
    e->op = op;
    sem_find_range(s, e);
    return e;
}

Expr *expr_cast(Sem *s, Expr *e, DType t, Span at)
{
    if (e->type->dtype == t)
        return e;
    if (e->kind == EX_CONST && t != DT_BOOL && t != DT_I32)
        return expr_const(s, t, e->value, at);
    if (e->kind == EX_DIM && t == DT_F32)
        return expr_dim(s, t, e->dim, at);
    Expr *c = expr_new(s, EX_CAST, sem_type(s, t, e->type->rank, e->type->dim), 1, &e, at);
    if (e->type->dtype == DT_BOOL && t == DT_I32) {
        c->from = dim_const(s->dims, 0);
        c->to = dim_const(s->dims, 2);
    }
    return dtype_is_real(t) ? expr_here(s, c) : c;
}

Expr *expr_region(Sem *s, Expr *e, SemRegion region, Span at)
{
    if (e->type->rank == 0 || !dtype_is_real(e->type->dtype))
        return e;
    Expr *r = expr_new(s, EX_REGION, e->type, 1, &e, at);
    r->index = (int)region;
    r->name = e->name;
    r->hinted = true;
    return r;
}

Expr *expr_here(Sem *s, Expr *e)
{
    const SemRegion region = s->frame ? s->frame->region : REGION_PROGRAM;
    return region == REGION_PROGRAM ? e : expr_region(s, e, region, e->span);
}

Expr *expr_reduce(Sem *s, const char *op, Expr *e, int n, const int *axes, bool keep, Span at)
{
    const Type *t = e->type;
    const Dim *left[RANK_MAX], *kept[RANK_MAX];
    int rank = 0, k = 0;
    bool index = strncmp(op, "arg", 3) == 0;
    for (int i = 0; i < t->rank; i++) {
        bool gone = k < n && axes[k] == i;
        kept[i] = gone ? dim_const(s->dims, 1) : t->dim[i];
        if (gone)
            k++;
        else
            left[rank++] = t->dim[i];
    }
    Expr *r = expr_new(s, EX_REDUCE, sem_type(s, index ? DT_I32 : t->dtype, rank, left), 1, &e, at);
    r->op = op;
    r->n_axes = n;
    for (int i = 0; i < n; i++)
        r->axes[i] = axes[i];
    if (index) {
        r->from = dim_const(s->dims, 0);
        r->to = t->dim[axes[0]];
    } else if (op[0] == 'a') {
        r->from = e->from;
        r->to = e->to;
    }
    return keep ? expr_reshape(s, r, t->rank, kept, at) : r;
}

Expr *expr_reshape(Sem *s, Expr *e, int rank, const Dim *const *dim, Span at)
{
    const Type *t = sem_type(s, e->type->dtype, rank, dim);
    if (type_same(t, e->type) && rank == e->type->rank)
        return e;
    Expr *r = expr_new(s, EX_RESHAPE, t, 1, &e, at);
    r->from = e->from;
    r->to = e->to;
    return r;
}

Expr *expr_transpose(Sem *s, Expr *e, const int *axes, Span at)
{
    const Dim *dim[RANK_MAX];
    bool same = true;
    for (int i = 0; i < e->type->rank; i++) {
        dim[i] = e->type->dim[axes[i]];
        same = same && axes[i] == i;
    }
    if (same)
        return e;
    Expr *r = expr_new(s, EX_TRANSPOSE, sem_type(s, e->type->dtype, e->type->rank, dim), 1, &e, at);
    r->n_axes = e->type->rank;
    for (int i = 0; i < r->n_axes; i++)
        r->axes[i] = axes[i];
    r->from = e->from;
    r->to = e->to;
    return r;
}

Expr *expr_slice(Sem *s, Expr *e, int axis, const Dim *lo, const Dim *size, Span at)
{
    const Dim *dim[RANK_MAX];
    int64_t zero;
    for (int i = 0; i < e->type->rank; i++)
        dim[i] = i == axis ? size : e->type->dim[i];
    if (dim_same(size, e->type->dim[axis]) && dim_value(lo, &zero) && zero == 0)
        return e;
    Expr *r = expr_new(s, EX_SLICE, sem_type(s, e->type->dtype, e->type->rank, dim), 1, &e, at);
    for (int i = 0; i < e->type->rank; i++)
        r->lo[i] = i == axis ? lo : dim_const(s->dims, 0);
    r->from = e->from;
    r->to = e->to;
    return r;
}

/* ---- loops and parameters ------------------------------------------------------------------ */

/* source[iteration of loop], as a value of loop's body. The same source is taken once. */
Expr *expr_elem(Sem *s, CheckedLoop *loop, Expr *source, Span at)
{
    for (int i = 0; i < loop->elems.len; i++)
        if (loop->elems.at[i].source == source)
            return loop->elems.at[i].arg;
    const Type *t = source->type;
    Expr *arg = expr_new(s, EX_ARG, sem_type(s, t->dtype, t->rank - 1, t->dim + 1), 0, NULL, at);
    arg->loop = arg->home = loop;
    sem_check_axes_in_loops(s, arg, at);
    arg->deps = source->deps;
    arg->from = source->from;
    arg->to = source->to;
    arg->name = source->name;
    CheckedElem elem = { arg, source };
    vec_push(s->arena, &loop->elems, elem);
    return arg;
}

/* The number of an iteration as a value. */
Expr *expr_iter(Sem *s, const Thing *t, Span at)
{
    Expr *e = t->loop->iter;
    int64_t zero;
    if (dim_value(t->dim, &zero) && zero == 0)
        return e;
    Expr *in[2] = { e, expr_dim(s, DT_I32, t->dim, at) };
    Expr *sum = expr_point(s, "add", e->type, 2, in, at);
    sum->from = t->dim;
    sum->to = dim_add(s->dims, t->dim, t->loop->trip);
    return sum;
}

/* The part of a stack that a loop runs over; cut once for all parameters' uses. */
static Expr *cut_stack(Sem *s, Expr *e, const Select *sel, Span at)
{
    for (int i = 0; i < sel->loop->elems.len; i++) {
        Expr *old = sel->loop->elems.at[i].source;
        if (old->kind == EX_SLICE && old->in[0] == e && dim_same(old->lo[0], sel->at))
            return old;
    }
    return expr_hinted(expr_slice(s, e, 0, sel->at, sel->loop->trip, at), e->name);
}

/* One element of a stacked value, by a loop's iteration or at a fixed place. */
static Expr *select_one(Sem *s, Expr *e, const Select *sel, Span at)
{
    if (sel->loop)
        return expr_elem(s, sel->loop, cut_stack(s, e, sel, at), at);
    Expr *one = expr_slice(s, e, 0, sel->at, dim_const(s->dims, 1), at);
    expr_hinted(one, e->name);
    return expr_hinted(expr_reshape(s, one, e->type->rank - 1, e->type->dim + 1, at), e->name);
}

static Expr *select_all(Sem *s, Expr *e, const Select *sel, Span at)
{
    return sel ? select_one(s, select_all(s, e, sel->outer, at), sel, at) : e;
}

/* A parameter as seen by the selected layer. */
Expr *expr_param(Sem *s, int index, const Select *select, Span at)
{
    const CheckedParam *p = &s->out->params.at[index];
    while (s->param_values.len <= index)
        vec_push(s->arena, &s->param_values, NULL);
    Expr *e = s->param_values.at[index];
    if (!e) {
        e = expr_new(s, EX_PARAM, p->stacked, 0, NULL, p->span);
        e->span = p->span;
        e->index = index;
        e->deps = p->role == SEM_STATE ? 0 : DEP_PARAM;
        e->name = p->name;
        s->param_values.at[index] = e;
    }
    return expr_here(s, select_all(s, e, select, at));
}
