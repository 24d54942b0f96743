/* lint_range.c -- bounds of values, and whether they can be 0.
 *
 * In: a forward graph. Out: for each value an interval that holds it, whatever parameters and
 * inputs are, and whether it can be 0. What is known: squares, sums of squares, exponentials,
 * saturating functions, sizes, declared ranges, clamps, a choice between values that compares one
 * of them (`where(x > 0, x, 1)`), and what rounding to the program's types makes of the bounds.
 * The carried values of a loop keep bounds that the body keeps, or their sign, if it keeps that.
 */
#include "pass/lint.h"

#include <float.h>
#include <math.h>

static const double EXP_ZERO = -104; /* its exponential is 0 in fp32 */
static const Bounds anything = { -INFINITY, INFINITY, ZERO_YES };

static Bounds between(double lo, double hi)
{
    if (isnan(lo) || isnan(hi))
        return anything;
    return (Bounds){ lo, hi, lo > 0 || hi < 0 ? ZERO_NEVER : ZERO_YES };
}

static Bounds with_zero(Bounds b, Zero zero)
{
    if (zero < b.zero)
        b.zero = zero;
    return b;
}

static double smaller(double a, double b) { return a < b ? a : b; }

static double larger(double a, double b) { return a > b ? a : b; }

static Zero more_likely(Zero a, Zero b) { return a > b ? a : b; }

static Bounds either(Bounds a, Bounds b)
{
    return (Bounds){ smaller(a.lo, b.lo), larger(a.hi, b.hi), more_likely(a.zero, b.zero) };
}

Bounds lint_bounds(const Lint *l, const Node *n)
{
    const Bounds *b = map_get(l->bounds, n);
    return b ? *b : anything;
}

static void set_bounds(Lint *l, const Node *n, Bounds b)
{
    Bounds *to = map_get(l->bounds, n);
    if (!to)
        map_set(l->bounds, n, to = NEW(l->cx->scratch, Bounds));
    *to = b;
}

/* ---- leaves -------------------------------------------------------------------------------- */

/* A number as the type holds it. */
static double held(double v, DType t) { return t == DT_F32 ? (double)(float)v : v; }

static Bounds bounds_of_input(const Node *n)
{
    const Program *p = n->graph->program;
    int64_t lo, hi;
    if (n->attr.index >= p->inputs.len)
        return anything;
    const Input *in = &p->inputs.at[n->attr.index];
    if (!in->ranged || !dim_value(in->lo, &lo))
        return anything;
    Bounds b = between((double)lo, dim_value(in->hi, &hi) ? (double)hi - 1 : INFINITY);
    if (in->has_ignore)
        b = either(b, between((double)in->ignore, (double)in->ignore));
    return b;
}

/* The deviation of data is above 0, or the runtime puts 1 in its place. */
static Bounds bounds_of_param(const Node *n)
{
    const Program *p = n->graph->program;
    if (n->attr.index >= p->params.len)
        return anything;
    const char *kind = p->params.at[n->attr.index].fit_kind;
    if (kind && kind[0] == 's')
        return (Bounds){ 0, INFINITY, ZERO_NEVER };
    return anything;
}

/* ---- arithmetic ---------------------------------------------------------------------------- */

static Bounds add_bounds(Bounds a, Bounds b)
{
    Bounds r = between(a.lo + b.lo, a.hi + b.hi);
    if (a.lo >= 0 && b.lo >= 0) /* 0 only if both are */
        r = with_zero(r, a.zero < b.zero ? a.zero : b.zero);
    return r;
}

static Bounds negate_bounds(Bounds a) { return (Bounds){ -a.hi, -a.lo, a.zero }; }

/* 0 times infinity is 0 here: the bound of a factor, not a value. */
static double times(double a, double b) { return a == 0 || b == 0 ? 0 : a * b; }

static Bounds multiply_bounds(Bounds a, Bounds b)
{
    const double v[4] = { times(a.lo, b.lo), times(a.lo, b.hi), times(a.hi, b.lo),
                          times(a.hi, b.hi) };
    Bounds r = between(smaller(smaller(v[0], v[1]), smaller(v[2], v[3])),
                       larger(larger(v[0], v[1]), larger(v[2], v[3])));
    return with_zero(r, more_likely(a.zero, b.zero));
}

static Bounds square_bounds(Bounds a)
{
    const double lo = a.lo > 0 ? a.lo : a.hi < 0 ? -a.hi : 0, hi = larger(-a.lo, a.hi);
    return with_zero(between(lo * lo, hi * hi), a.zero);
}

static Bounds divide_bounds(Bounds a, Bounds b)
{
    if (b.lo < 0 || b.zero == ZERO_YES)
        return with_zero(anything, a.zero);
    const Bounds inverse = { isinf(b.hi) ? 0 : 1 / b.hi, b.lo > 0 ? 1 / b.lo : INFINITY,
                             ZERO_NEVER };
    return multiply_bounds(a, inverse);
}

static bool is_whole(double v) { return floor(v) == v; }

static Bounds power_bounds(const Lint *l, const Node *n)
{
    const Bounds a = lint_bounds(l, n->in[0]), b = lint_bounds(l, n->in[1]);
    const Node *exponent = lint_root(n->in[1]);
    if (exponent->op == OP_CONST && is_whole(exponent->attr.value / 2))
        return with_zero(between(0, INFINITY), exponent->attr.value > 0 ? a.zero : ZERO_NEVER);
    if (a.lo < 0)
        return anything;
    return with_zero(between(0, INFINITY), b.lo > 0 ? a.zero : ZERO_TINY);
}

/* x - max of x, by rows. */
static bool is_shifted(const Node *n)
{
    if (n->op != OP_SUB)
        return false;
    const Node *top = n->in[1];
    while (top->op == OP_BROADCAST || top->op == OP_RESHAPE)
        top = top->in[0];
    return top->op == OP_AMAX && lint_root(top->in[0]) == lint_root(n->in[0]);
}

/* Has x numbers below the reach of exp put in where a mask of the data says so? */
static bool is_masked(const Node *x)
{
    x = lint_root(x);
    for (int k = 0; (x->op == OP_ADD || x->op == OP_SUB) && k < 2; k++)
        if (is_masked(x->in[k]))
            return true;
    return lint_mask_of(x, EXP_ZERO) && !lint_is_fixed(x->in[0]);
}

static Bounds exp_bounds(const Node *x, Bounds a)
{
    Bounds r = between(exp(a.lo), exp(a.hi));
    if (is_masked(x))
        return r;
    return with_zero(r, a.lo > -87 ? ZERO_NEVER : ZERO_TINY);
}

static Bounds root_bounds(Bounds a)
{
    return with_zero(between(sqrt(larger(a.lo, 0)), sqrt(larger(a.hi, 0))), a.zero);
}

/* What is left of the bounds in 16 bits. */
static Bounds round_bounds(Bounds a, DType narrow)
{
    Bounds r = between(op_round(a.lo, narrow), op_round(a.hi, narrow));
    if (a.zero == ZERO_NEVER && r.zero == ZERO_YES && a.lo == 0)
        r.zero = ZERO_TINY;
    return a.zero == ZERO_TINY ? with_zero(r, ZERO_TINY) : r;
}

/* ---- choices ------------------------------------------------------------------------------- */

/* The bounds b of x where (not: unless) the condition holds. */
static Bounds refine(const Lint *l, Bounds b, const Node *x, const Node *condition, bool holds)
{
    condition = lint_is_view(condition) ? lint_root(condition) : condition;
    if (condition->op == OP_NOT)
        return refine(l, b, x, condition->in[0], !holds);
    if (condition->op == OP_AND && holds)
        return refine(l, refine(l, b, x, condition->in[0], true), x, condition->in[1], true);
    if (condition->op == OP_OR && !holds)
        return refine(l, refine(l, b, x, condition->in[0], false), x, condition->in[1], false);
    for (int k = 0; condition->n_in == 2 && k < 2; k++) {
        if (lint_root(condition->in[k]) != lint_root(x))
            continue;
        const Bounds other = lint_bounds(l, condition->in[1 - k]);
        const bool ordered = condition->op == OP_LT || condition->op == OP_LE;
        const bool strict = (condition->op == OP_LT) == holds;
        if (ordered && (k == 1) == holds) { /* x above the other */
            b.lo = larger(b.lo, other.lo);
            if (other.lo > 0 || (other.lo == 0 && strict))
                b.zero = ZERO_NEVER;
        } else if (ordered) {
            b.hi = smaller(b.hi, other.hi);
            if (other.hi < 0 || (other.hi == 0 && strict))
                b.zero = ZERO_NEVER;
        }
        const bool apart = condition->op == OP_EQ ? !holds : condition->op == OP_NE && holds;
        if (apart && other.lo == 0 && other.hi == 0)
            b.zero = ZERO_NEVER;
    }
    return b;
}

static Bounds choice_bounds(const Lint *l, const Node *n)
{
    const Bounds a = refine(l, lint_bounds(l, n->in[1]), n->in[1], n->in[0], true);
    const Bounds b = refine(l, lint_bounds(l, n->in[2]), n->in[2], n->in[0], false);
    return either(a, b);
}

const Node *lint_mask_of(const Node *choice, double most)
{
    for (int k = 1; choice->op == OP_WHERE && k < 3; k++) {
        const Node *branch = lint_root(choice->in[k]);
        if (branch->op == OP_CONST && branch->attr.value <= most)
            return branch;
    }
    return NULL;
}

bool lint_is_fixed(const Node *n)
{
    if (n->op == OP_INPUT || n->op == OP_PARAM || n->op == OP_ARG || op_is(n, CLASS_DRAW))
        return false;
    for (int k = 0; k < n->n_in; k++)
        if (!lint_is_fixed(n->in[k]))
            return false;
    return true;
}

/* ---- sums ---------------------------------------------------------------------------------- */

/* How many numbers a reduction takes: at least one, at most more than any. */
static Bounds terms_of(const Node *n)
{
    Bounds count = { 1, 1, ZERO_NEVER };
    for (int i = 0; i < n->attr.n_axes; i++) {
        int64_t size;
        const bool known = dim_value(n->in[0]->type->dim[n->attr.axes[i]], &size);
        count.lo *= known ? (double)size : 1;
        count.hi *= known ? (double)size : INFINITY;
    }
    return count;
}

static Bounds sum_bounds(const Lint *l, const Node *n)
{
    const Bounds a = lint_bounds(l, n->in[0]), count = terms_of(n);
    const Node *e = lint_root(n->in[0]);
    Bounds r = between(times(a.lo, a.lo < 0 ? count.hi : count.lo),
                       times(a.hi, a.hi > 0 ? count.hi : count.lo));
    if (a.lo >= 0 || a.hi <= 0)
        r = with_zero(r, a.zero);
    if (e->op == OP_EXP && is_shifted(lint_root(e->in[0]))) { /* the largest gives 1 */
        r.lo = larger(r.lo, 1);
        r.zero = ZERO_NEVER;
    }
    return r;
}

static Bounds matmul_bounds(Bounds a, Bounds b)
{
    if (a.lo < 0 || b.lo < 0)
        return anything;
    return with_zero(between(0, INFINITY), more_likely(a.zero, b.zero));
}

/* ---- all ops ------------------------------------------------------------------------------- */

static Bounds unary_bounds(const Node *n, Bounds a)
{
    const double size = larger(-a.lo, a.hi);
    switch (n->op) {
    case OP_NEG: return negate_bounds(a);
    case OP_EXP: return exp_bounds(n->in[0], a);
    case OP_LOG: return between(log(larger(a.lo, 0)), log(larger(a.hi, 0)));
    case OP_SQRT: return root_bounds(a);
    case OP_RSQRT:
        return (Bounds){ a.hi > 0 ? 1 / sqrt(a.hi) : 0, a.lo > 0 ? 1 / sqrt(a.lo) : INFINITY,
                         ZERO_NEVER };
    case OP_TANH: return with_zero(between(tanh(a.lo), tanh(a.hi)), a.zero);
    case OP_ERF: return with_zero(between(erf(a.lo), erf(a.hi)), a.zero);
    case OP_SIGMOID:
        return with_zero(between(1 / (1 + exp(-a.lo)), 1 / (1 + exp(-a.hi))),
                         a.lo > -87 ? ZERO_NEVER : ZERO_TINY);
    case OP_SIN:
    case OP_COS: return between(-1, 1);
    case OP_ABS: return with_zero(between(a.lo > 0 ? a.lo : a.hi < 0 ? -a.hi : 0, size), a.zero);
    case OP_SIGN: return with_zero(between(a.lo >= 0 ? 0 : -1, a.hi <= 0 ? 0 : 1), a.zero);
    case OP_FLOOR: return between(floor(a.lo), floor(a.hi));
    case OP_CAST:
        if (n->in[0]->type->dtype == DT_BOOL)
            return between(0, 1);
        return n->type->dtype == DT_I32 ? between(trunc(a.lo), trunc(a.hi)) : a;
    case OP_BF16: return round_bounds(a, DT_BF16);
    case OP_F16: return round_bounds(a, DT_F16);
    default: return a; /* views, copies, marks */
    }
}

static Bounds binary_bounds(const Lint *l, const Node *n)
{
    const Bounds a = lint_bounds(l, n->in[0]), b = lint_bounds(l, n->in[1]);
    switch (n->op) {
    case OP_ADD: return add_bounds(a, b);
    case OP_SUB:
        if (is_shifted(n))
            return between(-INFINITY, 0);
        return add_bounds(a, negate_bounds(b));
    case OP_MUL: return n->in[0] == n->in[1] ? square_bounds(a) : multiply_bounds(a, b);
    case OP_DIV: return divide_bounds(a, b);
    case OP_MIN:
        return with_zero(between(smaller(a.lo, b.lo), smaller(a.hi, b.hi)),
                         more_likely(a.zero, b.zero));
    case OP_MAX:
        return with_zero(between(larger(a.lo, b.lo), larger(a.hi, b.hi)),
                         more_likely(a.zero, b.zero));
    case OP_POW: return power_bounds(l, n);
    case OP_FDIV:
    case OP_MOD: return n->op == OP_MOD && b.lo > 0 ? between(0, b.hi) : anything;
    default: return between(0, 1); /* comparisons, and, or */
    }
}

static Bounds result_bounds(const Lint *l, const Node *n)
{
    const Node *call = n->in[0];
    if (call->op == OP_ATTENTION && n->attr.index == 0) /* a mean of values, or 0 */
        return either(lint_bounds(l, call->in[2]), between(0, 0));
    if (call->op == OP_CROSS_ENTROPY && n->attr.index == 0)
        return between(0, INFINITY);
    const Bounds *b = call->op == OP_LOOP ? map_get(l->bounds, n) : NULL;
    return b ? *b : anything;
}

static Bounds bounds_of(const Lint *l, const Node *n)
{
    int64_t size;
    switch (n->op) {
    case OP_CONST: {
        const double v = held(n->attr.value, n->type->dtype);
        return between(v, v);
    }
    case OP_PARAM: return bounds_of_param(n);
    case OP_INPUT: return bounds_of_input(n);
    case OP_DIM:
        return dim_value(n->attr.dim, &size) ? between((double)size, (double)size)
                                             : between(1, INFINITY);
    case OP_IOTA: return between(0, INFINITY);
    case OP_UNIFORM: return between(0, 1);
    case OP_WHERE: return choice_bounds(l, n);
    case OP_SUM: return sum_bounds(l, n);
    case OP_MATMUL: return matmul_bounds(lint_bounds(l, n->in[0]), lint_bounds(l, n->in[1]));
    case OP_ARGMAX:
    case OP_ARGMIN: return between(0, INFINITY);
    case OP_PAD: return either(lint_bounds(l, n->in[0]), between(0, 0));
    case OP_CONCAT: {
        Bounds b = lint_bounds(l, n->in[0]);
        for (int k = 1; k < n->n_in; k++)
            b = either(b, lint_bounds(l, n->in[k]));
        return b;
    }
    case OP_RESULT: return result_bounds(l, n);
    case OP_AMAX:
    case OP_AMIN:
    case OP_GATHER: return lint_bounds(l, n->in[0]);
    default: break;
    }
    if (lint_is_view(n) || (op_is(n, CLASS_POINT) && n->n_in == 1))
        return unary_bounds(n, lint_bounds(l, n->in[0]));
    return op_is(n, CLASS_POINT) && n->n_in == 2 ? binary_bounds(l, n) : anything;
}

/* ---- loops --------------------------------------------------------------------------------- */

static Node *given_for(const Loop *loop, int k)
{
    for (int i = 0; i < loop->body->sinks.len; i++)
        if (loop->body->sinks.at[i].index == k)
            return loop->body->sinks.at[i].node;
    bug("a loop without its result %d", k);
}

static bool is_inside(Bounds a, Bounds b)
{
    return a.lo >= b.lo && a.hi <= b.hi && a.zero <= b.zero;
}

/* Bounds of a carried value that also hold its next value: of the sign, no more. */
static Bounds widened(Bounds b, Bounds next)
{
    if (is_inside(next, b))
        return b;
    const Bounds all = either(b, next);
    return (Bounds){ all.lo >= 0 ? 0 : -INFINITY, all.hi <= 0 ? 0 : INFINITY, all.zero };
}

static void bounds_of_loop(Lint *l, Graph *g, Node *n)
{
    const Loop *loop = n->attr.loop;
    for (int k = 0; k < loop->body->args.len; k++) {
        const Node *arg = loop->body->args.at[k];
        const bool iteration = arg->attr.arg == ARG_ITER;
        set_bounds(l, arg, iteration ? between(0, INFINITY) : lint_bounds(l, n->in[k]));
        if (!iteration && map_get(l->trained, n->in[k]))
            map_set(l->trained, arg, (void *)arg);
    }
    for (bool again = true; again;) { /* each turn widens a carried value, or is the last */
        again = false;
        lint_find_bounds(l, loop->body);
        for (int k = 0; k < loop->n_carry; k++) {
            Node *arg = loop->body->args.at[k], *next = given_for(loop, k);
            const bool trained = !map_get(l->trained, arg) && map_get(l->trained, next);
            const Bounds b = lint_bounds(l, arg), wide = widened(b, lint_bounds(l, next));
            const bool left = !is_inside(wide, b);
            if (left)
                set_bounds(l, arg, wide);
            if (trained)
                map_set(l->trained, arg, arg);
            again |= left || trained;
        }
    }
    for (int i = n->id; i < g->nodes.len; i++) {
        Node *r = g->nodes.at[i];
        if (r != n && !(r->op == OP_RESULT && r->in[0] == n))
            continue;
        if (r == n && n->n_out > 1)
            continue;
        const int k = r == n ? 0 : r->attr.index;
        const Node *from = k < loop->n_carry ? loop->body->args.at[k] : given_for(loop, k);
        set_bounds(l, r, lint_bounds(l, from));
        if (map_get(l->trained, given_for(loop, k)))
            map_set(l->trained, r, r);
    }
}

void lint_find_bounds(Lint *l, Graph *g)
{
    for (int i = 0; i < g->nodes.len; i++) {
        Node *n = g->nodes.at[i];
        if (n->op == OP_LOOP) {
            bounds_of_loop(l, g, n);
            continue;
        }
        if (n->op == OP_ARG)
            continue;
        set_bounds(l, n, bounds_of(l, n));
        bool trained = n->op == OP_PARAM;
        const bool loop_result = n->op == OP_RESULT && n->in[0]->op == OP_LOOP;
        for (int k = 0; k < n->n_in && n->op != OP_STOP && !loop_result; k++)
            trained |= map_get(l->trained, n->in[k]) != NULL;
        if (trained)
            map_set(l->trained, n, n);
    }
}
