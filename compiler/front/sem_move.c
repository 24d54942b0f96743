/* sem_move.c -- the functions that move elements or make tensors: shapes, splits, draws.
 *
 * In: calls of reshape, transpose, split, concat, pad, zeros, uniform and the like. Out: values.
 * The sample axis is followed: what would move elements from one sample to another is an error.
 */
#include "front/sem_parts.h"

static const char *callee_name(const Ast *call)
{
    return call->left->kind == AST_INDEX ? call->left->left->name : call->left->name;
}

/* The sizes of f(x, [a, b]) or f[a, b](x): `at` is the position of the list among the arguments. */
static bool shape_arg(Sem *s, const Ast *call, int at, int *rank, const Dim **dim)
{
    const Ast *list = call_arg(call, at);
    if (call->left->kind == AST_INDEX) {
        if (!list)
            return sem_eval_shape(s, &call->left->args, true, rank, dim);
    } else if (list && list->kind == AST_LIST) {
        return sem_eval_shape(s, &list->items, false, rank, dim);
    }
    sem_error(s, call->span, "the sizes are missing: %s", builtin_find(callee_name(call))->form);
    return false;
}

static const Dim *product(Sem *s, const Dim *const *dim, int n)
{
    const Dim *d = dim_const(s->dims, 1);
    for (int i = 0; i < n; i++)
        d = dim_mul(s->dims, d, dim[i]);
    return d;
}

/* Row-major order keeps samples apart if as much stands before the sample axis as after. */
static bool keeps_samples(Sem *s, const Ast *call, const Expr *e, int rank, const Dim *const *dim)
{
    int from = sem_batch_axis(e->type), to = -1;
    for (int i = 0; i < rank && to < 0; i++)
        if (dim_has_kind(dim[i], SYM_BATCH))
            to = i;
    if (from < 0 && to < 0)
        return true;
    if (from >= 0 && to >= 0 && dim_same(product(s, e->type->dim, from), product(s, dim, to))
        && dim_per_sample(s->dims, dim[to]))
        return true;
    Diag *d = sem_error(s, call->span, "this reshape would mix samples: %s",
                        sem_type_text(s, e->type));
    sem_hint(d, "the sample axis must stay in front of what it is in front of now");
    return false;
}

Thing *builtin_reshape(Sem *s, const Ast *call)
{
    Expr *e = sem_eval_value(s, call_arg(call, 0));
    const Dim *dim[RANK_MAX];
    int rank;
    if (!e || !shape_arg(s, call, 1, &rank, dim))
        return thing_poison(s);
    const Dim *have = type_elems(s->dims, e->type), *want = product(s, dim, rank);
    if (!dim_same(have, want)) {
        Diag *d = sem_error(s, call->span, "reshape from %s to %s: %s elements against %s",
                            sem_type_text(s, e->type),
                            sem_type_text(s, sem_type(s, DT_F32, rank, dim)), sem_dim_text(s, have),
                            sem_dim_text(s, want));
        sem_note_value(s, d, call_arg(call, 0), e);
        return thing_poison(s);
    }
    if (!keeps_samples(s, call, e, rank, dim))
        return thing_poison(s);
    return thing_value(s, expr_reshape(s, e, rank, dim, call->span));
}

Thing *builtin_transpose(Sem *s, const Ast *call)
{
    Expr *e = sem_eval_value(s, call_arg(call, 0));
    int axes[RANK_MAX], n = 0;
    bool seen[RANK_MAX] = { false };
    if (!e)
        return thing_poison(s);
    for (const Ast *a; (a = call_arg(call, n + 1)); n++) {
        if (n >= e->type->rank || !sem_find_axis(s, a, e->type, &axes[n]) || seen[axes[n]])
            break;
        seen[axes[n]] = true;
    }
    if (n != e->type->rank || call_arg(call, n + 1)) {
        Diag *d = sem_error(s, call->span, "transpose wants each axis of %s once",
                            sem_type_text(s, e->type));
        sem_note_value(s, d, call_arg(call, 0), e);
        return thing_poison(s);
    }
    return thing_value(s, expr_transpose(s, e, axes, call->span));
}

Thing *builtin_swap(Sem *s, const Ast *call)
{
    Expr *e = sem_eval_value(s, call_arg(call, 0));
    int axes[RANK_MAX], a, b;
    if (!e || !sem_find_axis(s, call_arg(call, 1), e->type, &a)
        || !sem_find_axis(s, call_arg(call, 2), e->type, &b))
        return thing_poison(s);
    for (int i = 0; i < e->type->rank; i++)
        axes[i] = i == a ? b : i == b ? a : i;
    return thing_value(s, expr_transpose(s, e, axes, call->span));
}

Thing *builtin_broadcast(Sem *s, const Ast *call)
{
    Expr *e = sem_eval_value(s, call_arg(call, 0));
    const Dim *dim[RANK_MAX];
    int rank;
    if (!e || !shape_arg(s, call, 1, &rank, dim))
        return thing_poison(s);
    const Type *t = e->type, *to = sem_type(s, t->dtype, rank, dim);
    bool fits = t->rank <= rank;
    for (int i = 0; fits && i < t->rank; i++) {
        const Dim *want = dim[rank - t->rank + i];
        fits = sem_is_one(t->dim[i]) || dim_same(t->dim[i], want);
    }
    if (!fits) {
        Diag *d = sem_error(s, call->span, "%s cannot be broadcast to %s", sem_type_text(s, t),
                            sem_type_text(s, to));
        sem_note_value(s, d, call_arg(call, 0), e);
        return thing_poison(s);
    }
    int batch = sem_batch_axis(to);
    for (int i = batch + 1; batch >= 0 && i < rank; i++)
        if (!sem_no_mixing(s, call->span, dim[i], "pairs of samples"))
            return thing_poison(s);
    Expr *r = expr_new(s, EX_BROADCAST, to, 1, &e, call->span);
    r->from = e->from;
    r->to = e->to;
    return thing_value(s, r);
}

/* ---- split, concat, pad -------------------------------------------------------------------- */

static bool over_arg(Sem *s, const Ast *call, const Type *t, int *axis)
{
    const Ast *over = call_named(s, call, "over");
    *axis = t->rank - 1;
    if (t->rank == 0) {
        sem_error(s, call->span, "a single number has no axis");
        return false;
    }
    return !over || sem_find_axis(s, over, t, axis);
}

/* d, or NULL after an error: d is known and below 1. */
static const Dim *at_least_one(Sem *s, const Ast *a, const Dim *d, const char *what)
{
    int64_t v;
    if (!d || !dim_value(d, &v) || v >= 1)
        return d;
    sem_error(s, a->span, "%s must be at least 1, not %s", what, sem_dim_text(s, d));
    return NULL;
}

static const Dim *part_size(Sem *s, const Ast *call, const Thing *parts, const Dim *whole, int i)
{
    if (parts->kind == THING_TUPLE) {
        const Ast *list = call_arg(call, 1);
        const Ast *a = list->kind == AST_LIST ? list->items.at[i] : list;
        return at_least_one(s, a, thing_to_dim(s, parts->items.at[i], a, "the size of a part"),
                            "the size of a part");
    }
    const Dim *size = dim_exact_div(s->dims, whole, parts->dim);
    if (!size)
        sem_error(s, call->span, "%s cannot be split into %s equal parts", sem_dim_text(s, whole),
                  sem_dim_text(s, parts->dim));
    return size;
}

Thing *builtin_split(Sem *s, const Ast *call)
{
    Expr *e = sem_eval_value(s, call_arg(call, 0));
    Thing *parts = sem_eval(s, call_arg(call, 1)), *t = thing_new(s, THING_TUPLE, call->span);
    int64_t n = 0;
    int axis;
    if (!e || parts->kind == THING_POISON || !over_arg(s, call, e->type, &axis))
        return thing_poison(s);
    const Dim *whole = e->type->dim[axis], *at = dim_const(s->dims, 0);
    if (!sem_no_mixing(s, call->span, whole, "a split"))
        return thing_poison(s);
    if (parts->kind == THING_TUPLE)
        n = parts->items.len;
    else if (!thing_whole(parts, &n) || n < 1 || n > 64) {
        sem_error(s, call_arg(call, 1)->span, "split wants a number of parts, 1 to 64, or [sizes]");
        return thing_poison(s);
    }
    for (int i = 0; i < n; i++) {
        const Dim *size = part_size(s, call, parts, whole, i);
        if (!size)
            return thing_poison(s);
        vec_push(s->arena, &t->items, thing_value(s, expr_slice(s, e, axis, at, size, call->span)));
        at = dim_add(s->dims, at, size);
    }
    if (!dim_same(at, whole)) {
        sem_error(s, call->span, "the parts add up to %s, but the axis is %s", sem_dim_text(s, at),
                  sem_dim_text(s, whole));
        return thing_poison(s);
    }
    return t;
}

/* concat joins along an axis there is; stack makes a new one. */
static Expr *with_new_axis(Sem *s, Expr *e, int axis, Span at)
{
    const Dim *dim[RANK_MAX];
    for (int i = 0; i <= e->type->rank; i++)
        dim[i] = i < axis    ? e->type->dim[i]
                 : i == axis ? dim_const(s->dims, 1)
                             : e->type->dim[i - 1];
    return expr_reshape(s, e, e->type->rank + 1, dim, at);
}

static bool joinable(Sem *s, const Ast *call, Expr *const *in, int n, int axis)
{
    for (int i = 1; i < n; i++) {
        bool fits = in[i]->type->rank == in[0]->type->rank
                    && in[i]->type->dtype == in[0]->type->dtype;
        for (int k = 0; fits && k < in[0]->type->rank; k++)
            fits = k == axis || dim_same(in[i]->type->dim[k], in[0]->type->dim[k]);
        if (fits)
            continue;
        Diag *d = sem_error(s, call->span, "%s: %s and %s differ in more than the joined axis",
                            callee_name(call), sem_type_text(s, in[0]->type),
                            sem_type_text(s, in[i]->type));
        sem_note_value(s, d, NULL, in[0]);
        sem_note_value(s, d, NULL, in[i]);
        return false;
    }
    return sem_no_mixing(s, call->span, in[0]->type->dim[axis], callee_name(call));
}

static bool join_axis(Sem *s, const Ast *call, const Type *t, bool stack, int *axis)
{
    const Ast *over = call_named(s, call, "over");
    if (!stack)
        return over_arg(s, call, t, axis);
    int64_t n = 0;
    *axis = 0;
    if (!over)
        return true;
    const Thing *th = sem_eval(s, over);
    if (th->kind == THING_POISON)
        return false;
    if (!thing_whole(th, &n) || n < -(t->rank + 1) || n > t->rank) {
        sem_error(s, over->span, "the place of the new axis is a number from 0 to %d", t->rank);
        return false;
    }
    *axis = (int)(n < 0 ? n + t->rank + 1 : n);
    return true;
}

Thing *builtin_concat(Sem *s, const Ast *call)
{
    VEC(Expr *) in = { 0 };
    bool stack = callee_name(call)[0] == 's';
    const Ast *a;
    for (int i = 0; (a = call_arg(call, i)); i++) {
        Thing *t = sem_eval(s, a);
        int n = t->kind == THING_TUPLE ? t->items.len : 1;
        for (int k = 0; k < n; k++) {
            Expr *e = sem_to_value(s, t->kind == THING_TUPLE ? t->items.at[k] : t, DT_F32, a);
            if (!e)
                return thing_poison(s);
            vec_push(s->arena, &in, e);
        }
    }
    int axis, rank = in.len ? in.at[0]->type->rank : 0;
    if (in.len == 0 || !join_axis(s, call, in.at[0]->type, stack, &axis))
        return thing_poison(s);
    for (int i = 0; stack && i < in.len; i++) {
        if (in.at[i]->type->rank != rank)
            continue; /* said below */
        if (rank == RANK_MAX) {
            sem_error(s, call->span, "the stacked values have more than %d axes", RANK_MAX);
            return thing_poison(s);
        }
        in.at[i] = with_new_axis(s, in.at[i], axis, call->span);
    }
    if (!joinable(s, call, in.at, in.len, axis))
        return thing_poison(s);
    const Type *t = in.at[0]->type;
    const Dim *dim[RANK_MAX];
    for (int i = 0; i < t->rank; i++)
        dim[i] = t->dim[i];
    for (int i = 1; i < in.len; i++)
        dim[axis] = dim_add(s->dims, dim[axis], in.at[i]->type->dim[axis]);
    const Type *joined = sem_type(s, t->dtype, t->rank, dim);
    Expr *e = expr_new(s, EX_CONCAT, joined, in.len, in.at, call->span);
    e->n_axes = 1;
    e->axes[0] = axis;
    return thing_value(s, e);
}

Thing *builtin_pad(Sem *s, const Ast *call)
{
    Expr *e = sem_eval_value(s, call_arg(call, 0));
    int axis;
    const Ast *ba = call_named(s, call, "before"), *aa = call_named(s, call, "after");
    if (!e || !over_arg(s, call, e->type, &axis))
        return thing_poison(s);
    const Dim *zero = dim_const(s->dims, 0);
    const Dim *before = ba ? sem_eval_dim(s, ba, "before") : zero;
    const Dim *after = aa ? sem_eval_dim(s, aa, "after") : zero;
    if (!before || !after || !sem_no_mixing(s, call->span, e->type->dim[axis], "padding")
        || !sem_require_le(s, call->span, zero, before, "before")
        || !sem_require_le(s, call->span, zero, after, "after"))
        return thing_poison(s);
    const Dim *dim[RANK_MAX];
    for (int i = 0; i < e->type->rank; i++)
        dim[i] = e->type->dim[i];
    dim[axis] = dim_add(s->dims, dim_add(s->dims, dim[axis], before), after);
    const Type *wide = sem_type(s, e->type->dtype, e->type->rank, dim);
    Expr *r = expr_new(s, EX_PAD, wide, 1, &e, call->span);
    for (int i = 0; i < e->type->rank; i++)
        r->lo[i] = i == axis ? before : zero;
    return thing_value(s, r);
}

/* ---- making tensors ------------------------------------------------------------------------ */

Thing *builtin_fill(Sem *s, const Ast *call)
{
    const Dim *dim[RANK_MAX];
    int rank;
    if (!shape_arg(s, call, 0, &rank, dim))
        return thing_poison(s);
    Expr *one = expr_const(s, DT_F32, callee_name(call)[0] == 'o', call->span);
    return thing_value(
        s, expr_new(s, EX_BROADCAST, sem_type(s, DT_F32, rank, dim), 1, &one, call->span));
}

Thing *builtin_size(Sem *s, const Ast *call)
{
    Expr *e = sem_eval_value(s, call_arg(call, 0));
    int axis;
    if (!e || !sem_find_axis(s, call_arg(call, 1), e->type, &axis))
        return thing_poison(s);
    return thing_dim(s, e->type->dim[axis], call->span);
}

Thing *builtin_iota(Sem *s, const Ast *call)
{
    const Ast *a = call_arg(call, 0);
    const Dim *n = sem_eval_dim(s, a, "the size of iota");
    n = at_least_one(s, a, n, "the size of iota");
    if (!n || !sem_no_mixing(s, call->span, n, "the numbers of samples"))
        return thing_poison(s);
    return thing_value(s, expr_iota(s, dim_const(s->dims, 0), n, call->span));
}

/* normal(mean, std), normal(std), uniform(bound), uniform(-a, a): numbers make an initialiser. */
static Thing *draw_init(Sem *s, const Ast *call, bool uniform)
{
    double v[2] = { 0, 0 };
    int n = 0;
    for (const Ast *a; n < 2 && (a = call_arg(call, n)); n++) {
        Thing *t = sem_eval(s, a);
        if (t->kind == THING_POISON)
            return t;
        if (!thing_number(t, &v[n]))
            return NULL;
    }
    if (n == 0)
        return NULL;
    Thing *t = thing_new(s, THING_INIT, call->span);
    t->init = uniform ? SEM_INIT_UNIFORM : SEM_INIT_NORMAL;
    t->real = v[n - 1];
    if (n == 2 && (uniform ? v[0] != -v[1] : v[0] != 0)) {
        sem_error(s, call->span,
                  uniform ? "uniform(-a, a) is symmetric, or write uniform(a)"
                          : "normal(0, std): the mean of an initialiser is 0");
        return thing_poison(s);
    }
    if (t->real < 0) {
        sem_error(s, call->span, "the width of an initialiser is negative: %g", t->real);
        return thing_poison(s);
    }
    return t;
}

static const char *draw_stream(Sem *s)
{
    const Frame *f = s->frame;
    const char *function = f->inst ? NULL : f->decl->name;
    while (f && !f->inst)
        f = f->up;
    const char *path = f ? f->inst->path : "";
    const char *base = intern_printf(s->cx, "%s%s%s", path, *path && function ? "." : "",
                                     function ? function
                                     : *path  ? ""
                                              : "model");
    int *count = map_get(s->draws, base);
    if (!count) {
        count = NEW(s->arena, int);
        map_set(s->draws, base, count);
    }
    return intern_printf(s->cx, "%s.%d", base, (*count)++);
}

/* The numbers follow the samples: one axis of whole samples at most (compiler/op/random.c). */
static bool draws_by_sample(Sem *s, const Ast *call, int rank, const Dim *const *dim)
{
    bool follows = false;
    for (int i = 0; i < rank; i++) {
        if (!dim_has_kind(dim[i], SYM_BATCH))
            continue;
        if (follows || !dim_per_sample(s->dims, dim[i]))
            return sem_no_mixing(s, call->span, dim[i], follows ? "pairs of samples" : "a draw");
        follows = true;
    }
    return true;
}

Thing *builtin_draw(Sem *s, const Ast *call)
{
    bool uniform = callee_name(call)[0] == 'u';
    const Ast *like = call_named(s, call, "like");
    Thing *init = draw_init(s, call, uniform);
    const Dim *dim[RANK_MAX];
    int rank;
    if (init)
        return init;
    if (like) {
        Expr *e = sem_eval_value(s, like);
        if (!e)
            return thing_poison(s);
        rank = e->type->rank;
        for (int i = 0; i < rank; i++)
            dim[i] = e->type->dim[i];
    } else if (!shape_arg(s, call, 0, &rank, dim)) {
        return thing_poison(s);
    }
    if (!draws_by_sample(s, call, rank, dim))
        return thing_poison(s);
    VEC(Expr *) in = { 0 };
    for (CheckedLoop *l = s->loop; l; l = l->parent)
        vec_push(s->arena, &in, l->iter);
    for (int i = 0; i < in.len / 2; i++) { /* outermost first */
        Expr *swap = in.at[i];
        in.at[i] = in.at[in.len - 1 - i];
        in.at[in.len - 1 - i] = swap;
    }
    Expr *e = expr_new(s, EX_DRAW, sem_type(s, DT_F32, rank, dim), in.len, in.at, call->span);
    e->op = uniform ? "uniform" : "normal";
    e->stream = draw_stream(s);
    e->home = s->loop;
    e->deps |= DEP_DRAW;
    return thing_value(s, expr_here(s, e));
}
