/* sem_builtin.c -- the functions of the language itself: pointwise, reductions, losses, attention.
 *
 * In: a call whose argument names and count fit the table's row. Out: its Thing. Everything that
 * can be said with these stands in models/prelude.model instead. Functions that move elements are
 * in sem_move.c, mean in sem_loss.c.
 */
#include "front/sem_parts.h"

#include <string.h>

/* ---- arguments ----------------------------------------------------------------------------- */

const Ast *call_arg(const Ast *call, int i)
{
    for (int k = 0; k < call->args.len; k++)
        if (!call->args.at[k]->name && i-- == 0)
            return call->args.at[k]->value;
    return NULL;
}

const Ast *call_named(Sem *s, const Ast *call, const char *name)
{
    const Ast *arg = ast_find_arg(&call->args, intern(s->cx, name));
    return arg ? arg->value : NULL;
}

static Thing *result(Sem *s, Expr *e) { return e ? thing_value(s, e) : thing_poison(s); }

static bool flag_arg(Sem *s, const Ast *call, const char *name, bool *yes)
{
    const Ast *a = call_named(s, call, name);
    *yes = false;
    return !a || sem_eval_bool(s, a, name, yes);
}

static bool scalar_arg(Sem *s, const Ast *call, const char *name, double *v)
{
    const Ast *a = call_named(s, call, name);
    if (!a)
        return true;
    const Thing *t = sem_eval(s, a);
    if (thing_number(t, v) && *v != 0)
        return true;
    if (t->kind != THING_POISON)
        sem_error(s, a->span, "%s must be a number known while compiling, not 0", name);
    return false;
}

/* ---- pointwise ----------------------------------------------------------------------------- */

static Thing *unary(Sem *s, const Ast *call, char kind)
{
    const Ast *a = call_arg(call, 0);
    const char *name = call->left->kind == AST_INDEX ? call->left->left->name : call->left->name;
    Thing *t = sem_eval(s, a);
    if (t->kind == THING_POISON)
        return t;
    Thing *known = const_math(s, name, t, call->span);
    if (known)
        return known;
    Expr *e = sem_to_value(s, t, kind == 'r' ? DT_F32 : DT_COUNT, a);
    return result(s, e ? sem_point(s, call, name, kind, e, NULL) : NULL);
}

static Thing *real_unary(Sem *s, const Ast *call) { return unary(s, call, 'r'); }
static Thing *number_unary(Sem *s, const Ast *call) { return unary(s, call, 'n'); }

static Thing *apply_stop(Sem *s, const Ast *call)
{
    Expr *e = sem_eval_value(s, call_arg(call, 0));
    return result(s, e ? expr_point(s, "stop_gradient", e->type, 1, &e, call->span) : NULL);
}

static Thing *apply_where(Sem *s, const Ast *call)
{
    Thing *c = sem_eval(s, call_arg(call, 0));
    Thing *l = sem_eval(s, call_arg(call, 1)), *r = sem_eval(s, call_arg(call, 2));
    if (c->kind == THING_BOOL)
        return c->yes ? l : r;
    Expr *cond = sem_to_value(s, c, DT_BOOL, call_arg(call, 0));
    DType beside_l = r->kind == THING_VALUE ? r->value->type->dtype : DT_F32;
    DType beside_r = l->kind == THING_VALUE ? l->value->type->dtype : DT_F32;
    Expr *x = sem_to_value(s, l, beside_l, call_arg(call, 1));
    Expr *y = sem_to_value(s, r, beside_r, call_arg(call, 2));
    if (!cond || !x || !y)
        return thing_poison(s);
    if (cond->type->dtype != DT_BOOL) {
        Diag *d = sem_error(s, call_arg(call, 0)->span, "where chooses by true and false, not %s",
                            sem_type_text(s, cond->type));
        sem_hint(d, "compare: where(%s != 0, ...)", ast_expr_text(s->cx, call_arg(call, 0)));
        return thing_poison(s);
    }
    DType t = x->type->dtype > y->type->dtype ? x->type->dtype : y->type->dtype;
    Expr *in[3] = { cond, expr_cast(s, x, t, call->span), expr_cast(s, y, t, call->span) };
    if (!sem_check_means(s, call, cond->deps | x->deps | y->deps))
        return thing_poison(s);
    const Type *both = sem_broadcast(s, call, in[1], in[2]);
    if (!both)
        return thing_poison(s);
    Expr pair = *in[1];
    pair.type = both;
    pair.name = NULL;
    const Type *type = sem_broadcast(s, call, in[0], &pair);
    if (!type)
        return thing_poison(s);
    type = sem_type(s, t, type->rank, type->dim);
    return thing_value(s, expr_point(s, "where", type, 3, in, call->span));
}

static Thing *cast_to(Sem *s, const Ast *call, DType t)
{
    const Ast *a = call_arg(call, 0);
    Thing *th = sem_eval(s, a);
    double v;
    if (th->kind == THING_DIM && t == DT_F32 && thing_number(th, &v))
        return thing_real(s, v, call->span);
    Expr *e = sem_to_value(s, th, t, a);
    return result(s, e ? expr_cast(s, e, t, call->span) : NULL);
}

static Thing *apply_int(Sem *s, const Ast *call) { return cast_to(s, call, DT_I32); }
static Thing *apply_real(Sem *s, const Ast *call) { return cast_to(s, call, DT_F32); }
static Thing *apply_bool(Sem *s, const Ast *call) { return cast_to(s, call, DT_BOOL); }

/* ---- reductions ---------------------------------------------------------------------------- */

/* The axes given by over:, or all; none of them the sample axis. */
static bool reduce_axes(Sem *s, const Ast *call, const Expr *e, const char *what, int *n, int *axes)
{
    const Ast *over = call_named(s, call, "over");
    *n = e->type->rank;
    for (int i = 0; i < *n; i++)
        axes[i] = i;
    if (over && !sem_find_axes(s, over, e->type, n, axes))
        return false;
    for (int i = 0; i < *n; i++)
        if (!sem_no_mixing(s, call->span, e->type->dim[axes[i]], what))
            return false;
    return true;
}

static Thing *reduce(Sem *s, const Ast *call, const char *op, const char *what)
{
    Expr *e = sem_eval_value(s, call_arg(call, 0));
    int n, axes[RANK_MAX];
    bool keep;
    if (!sem_has_tensors(s, call->span))
        return thing_poison(s);
    if (!e || !flag_arg(s, call, "keep", &keep) || !reduce_axes(s, call, e, what, &n, axes))
        return thing_poison(s);
    if (e->type->dtype == DT_BOOL)
        e = expr_cast(s, e, DT_I32, call->span);
    if (strncmp(op, "arg", 3) == 0 && n != 1) {
        sem_error(s, call->span, "%s goes along one axis, but %s has %d", op,
                  sem_type_text(s, e->type), e->type->rank);
        return thing_poison(s);
    }
    if (n == 0)
        return thing_value(s, e);
    return thing_value(s, expr_reduce(s, op, e, n, axes, keep, call->span));
}

static Thing *apply_sum(Sem *s, const Ast *call) { return reduce(s, call, "sum", "a sum"); }
static Thing *apply_argmax(Sem *s, const Ast *call) { return reduce(s, call, "argmax", "argmax"); }
static Thing *apply_argmin(Sem *s, const Ast *call) { return reduce(s, call, "argmin", "argmin"); }

/* max(x, over: T) reduces, max(a, b) is pointwise. */
static Thing *extreme(Sem *s, const Ast *call, const char *reduce_op, const char *point_op)
{
    if (!call_arg(call, 1))
        return reduce(s, call, reduce_op, point_op);
    Thing *l = sem_eval(s, call_arg(call, 0)), *r = sem_eval(s, call_arg(call, 1));
    double x, y;
    int64_t n;
    if (call_named(s, call, "over") || call_named(s, call, "keep")) {
        sem_error(s, call->span, "%s of two values is element by element, without over or keep",
                  point_op);
        return thing_poison(s);
    }
    if (thing_number(l, &x) && thing_number(r, &y)) {
        Thing *t = (point_op[1] == 'a') == (x >= y) ? l : r;
        return thing_whole(t, &n) ? thing_dim(s, dim_const(s->dims, n), call->span) : t;
    }
    DType lt = l->kind == THING_VALUE ? l->value->type->dtype : DT_COUNT;
    DType rt = r->kind == THING_VALUE ? r->value->type->dtype : DT_COUNT;
    Expr *a = sem_to_value(s, l, rt, call_arg(call, 0));
    Expr *b = sem_to_value(s, r, lt, call_arg(call, 1));
    return result(s, a && b ? sem_point(s, call, point_op, 'n', a, b) : NULL);
}

static Thing *apply_max(Sem *s, const Ast *call) { return extreme(s, call, "amax", "max"); }
static Thing *apply_min(Sem *s, const Ast *call) { return extreme(s, call, "amin", "min"); }

/* ---- losses and attention ------------------------------------------------------------------ */

static Thing *apply_cross_entropy(Sem *s, const Ast *call)
{
    const Ast *xa = call_arg(call, 0), *ta = call_arg(call, 1);
    Expr *x = sem_eval_value(s, xa), *t = sem_eval_value(s, ta);
    if (!x || !t)
        return thing_poison(s);
    bool fits = x->type->rank == t->type->rank + 1 && t->type->dtype == DT_I32
                && x->type->dtype == DT_F32;
    for (int i = 0; fits && i < t->type->rank; i++)
        fits = dim_same(x->type->dim[i], t->type->dim[i]);
    if (!fits) {
        Diag *d = sem_error(s, call->span,
                            "cross_entropy wants logits [..., V] and labels int[...]");
        sem_note_value(s, d, xa, x);
        sem_note_value(s, d, ta, t);
        if (x->type->dtype == DT_I32 && t->type->dtype == DT_F32)
            sem_hint(d, "the logits come first: cross_entropy(logits, labels)");
        else if (t->kind == EX_INPUT && t->type->dtype == DT_F32
                 && x->type->rank == t->type->rank + 1)
            sem_hint(d, "declare %s: int%s in 0..%s", t->name, sem_type_text(s, t->type),
                     dim_text(s->cx, x->type->dim[t->type->rank]));
        return thing_poison(s);
    }
    const Dim *classes = x->type->dim[x->type->rank - 1];
    if (!t->to || !sem_known_le(s, t->to, classes)) {
        const char *most = t->to ? sem_dim_text(s, dim_sub(s->dims, t->to, dim_const(s->dims, 1)))
                                 : "anything";
        Diag *d = sem_error(s, ta->span, "a label may be %s, but there are %s classes", most,
                            sem_dim_text(s, classes));
        sem_note_value(s, d, ta, t);
        sem_note_value(s, d, xa, x);
        return thing_poison(s);
    }
    if (!sem_no_mixing(s, call->span, classes, "a sum over classes"))
        return thing_poison(s);
    Expr *in[2] = { x, t };
    const Type *type = sem_type(s, DT_F32, t->type->rank, t->type->dim);
    return thing_value(s, expr_new(s, EX_CROSS_ENTROPY, type, 2, in, call->span));
}

static Diag *attention_error(Sem *s, const Ast *call, Expr *const *in)
{
    Diag *d = sem_error(s, call->span,
                        "attention wants q [..., T, D], k [..., S, D] and v [..., S, E]");
    for (int i = 0; i < 3; i++)
        sem_note_value(s, d, call_arg(call, i), in[i]);
    return d;
}

/* The axis before T and S is heads: q may have several for each of k and v. */
static void heads_error(Sem *s, const Ast *call, Expr *const *in)
{
    const Type *q = in[0]->type, *k = in[1]->type;
    const char *of_q = sem_dim_text(s, q->dim[q->rank - 3]);
    Diag *d = sem_error(s, call->span, "q has %s heads, no known multiple of the %s of k and v",
                        of_q, sem_dim_text(s, k->dim[k->rank - 3]));
    for (int i = 0; i < 3; i++)
        sem_note_value(s, d, call_arg(call, i), in[i]);
    sem_hint(d,
             "each head of k and v is shared by the same constant number of heads of q, in order");
}

static Thing *apply_attention(Sem *s, const Ast *call)
{
    Expr *in[3];
    double scale = 0;
    bool causal, fits = true;
    for (int i = 0; i < 3; i++)
        in[i] = sem_eval_value(s, call_arg(call, i));
    if (!in[0] || !in[1] || !in[2] || !flag_arg(s, call, "causal", &causal)
        || !scalar_arg(s, call, "scale", &scale))
        return thing_poison(s);
    const Type *q = in[0]->type, *k = in[1]->type, *v = in[2]->type;
    int n = q->rank;
    for (int i = 0; i < 3; i++)
        fits = fits && in[i]->type->rank == n && n >= 2 && in[i]->type->dtype == DT_F32;
    for (int i = 0; fits && i < n - 2; i++)
        fits = dim_same(k->dim[i], v->dim[i]) && (i == n - 3 || dim_same(q->dim[i], k->dim[i]));
    fits = fits && dim_same(q->dim[n - 1], k->dim[n - 1]) && dim_same(k->dim[n - 2], v->dim[n - 2]);
    if (!fits) {
        attention_error(s, call, in);
        return thing_poison(s);
    }
    if (n > 2 && !dim_ratio(s->dims, q->dim[n - 3], k->dim[n - 3])) {
        heads_error(s, call, in);
        return thing_poison(s);
    }
    if (!sem_no_mixing(s, call->span, k->dim[n - 2], "attention")
        || !sem_no_mixing(s, call->span, q->dim[n - 1], "attention"))
        return thing_poison(s);
    const Dim *dim[RANK_MAX];
    for (int i = 0; i < n; i++)
        dim[i] = i == n - 1 ? v->dim[i] : q->dim[i];
    Expr *e = expr_new(s, EX_ATTENTION, sem_type(s, DT_F32, n, dim), 3, in, call->span);
    e->causal = causal;
    e->value = scale;
    return thing_value(s, e);
}

static Thing *apply_grad(Sem *s, const Ast *call)
{
    sem_error(s, call->span, "this version cannot use grad(y, x) inside a model");
    return thing_poison(s);
}

/* ---- the table ----------------------------------------------------------------------------- */

static const Builtin builtins[] = {
    { "exp", "exp(x)", 1, 1, "", real_unary },
    { "log", "log(x)", 1, 1, "", real_unary },
    { "sqrt", "sqrt(x)", 1, 1, "", real_unary },
    { "rsqrt", "rsqrt(x)", 1, 1, "", real_unary },
    { "tanh", "tanh(x)", 1, 1, "", real_unary },
    { "erf", "erf(x)", 1, 1, "", real_unary },
    { "sigmoid", "sigmoid(x)", 1, 1, "", real_unary },
    { "sin", "sin(x)", 1, 1, "", real_unary },
    { "cos", "cos(x)", 1, 1, "", real_unary },
    { "floor", "floor(x)", 1, 1, "", real_unary },
    { "abs", "abs(x)", 1, 1, "", number_unary },
    { "sign", "sign(x)", 1, 1, "", number_unary },
    { "stop_gradient", "stop_gradient(x)", 1, 1, "", apply_stop },
    { "where", "where(condition, a, b)", 3, 3, "", apply_where },
    { "int", "int(x)", 1, 1, "", apply_int },
    { "real", "real(x)", 1, 1, "", apply_real },
    { "bool", "bool(x)", 1, 1, "", apply_bool },
    { "sum", "sum(x, over: axis, keep: false)", 1, 1, "over keep", apply_sum },
    { "mean", "mean(x, over: axis, where: condition, keep: false)", 1, 1, "over where keep",
      builtin_mean },
    { "max", "max(x, over: axis, keep: false) or max(a, b)", 1, 2, "over keep", apply_max },
    { "min", "min(x, over: axis, keep: false) or min(a, b)", 1, 2, "over keep", apply_min },
    { "argmax", "argmax(x, over: axis)", 1, 1, "over keep", apply_argmax },
    { "argmin", "argmin(x, over: axis)", 1, 1, "over keep", apply_argmin },
    { "reshape", "reshape(x, [sizes]) or reshape[sizes](x)", 1, 2, "", builtin_reshape },
    { "transpose", "transpose(x, axes in their new order)", 2, 9, "", builtin_transpose },
    { "swap", "swap(x, axis, axis)", 3, 3, "", builtin_swap },
    { "broadcast", "broadcast(x, [sizes]) or broadcast[sizes](x)", 1, 2, "", builtin_broadcast },
    { "split", "split(x, parts or [sizes], over: axis)", 2, 2, "over", builtin_split },
    { "concat", "concat(a, b, ..., over: axis)", 1, 99, "over", builtin_concat },
    { "stack", "stack(a, b, ..., over: axis)", 1, 99, "over", builtin_concat },
    { "pad", "pad(x, over: axis, before: 0, after: 0)", 1, 1, "over before after", builtin_pad },
    { "zeros", "zeros([sizes]) or zeros[sizes]()", 0, 1, "", builtin_fill },
    { "ones", "ones([sizes]) or ones[sizes]()", 0, 1, "", builtin_fill },
    { "size", "size(x, axis)", 2, 2, "", builtin_size },
    { "iota", "iota(n)", 1, 1, "", builtin_iota },
    { "uniform", "uniform([sizes]) or uniform(like: x)", 0, 2, "like", builtin_draw },
    { "normal", "normal([sizes]) or normal(like: x)", 0, 2, "like", builtin_draw },
    { "cross_entropy", "cross_entropy(logits, labels)", 2, 2, "", apply_cross_entropy },
    { "attention", "attention(q, k, v, causal: false, scale: 1/sqrt(D))", 3, 3, "causal scale",
      apply_attention },
    { "require", "require(condition)", 1, 1, "", builtin_require },
    { "grad", "grad(y, x)", 2, 2, "", apply_grad },
};

int builtin_count(void) { return (int)(sizeof builtins / sizeof builtins[0]); }

const Builtin *builtin_at(int i) { return &builtins[i]; }

const Builtin *builtin_find(const char *name)
{
    for (int i = 0; i < builtin_count(); i++)
        if (strcmp(builtins[i].name, name) == 0)
            return &builtins[i];
    return NULL;
}
