/* lint.c -- arithmetic that can make NaN or infinity, told before anything runs.
 *
 * In: the forward graphs as they will be computed, roundings included. Out: warnings at lines of
 * the model, one of a kind per line; the graphs stay as they are.
 *
 * Told is: a constant that its type does not hold; a small number that is lost beside a large one;
 * a divisor that can be 0; log, rsqrt and powers of what can be 0 or less; a square root whose
 * derivative is infinite at 0; a large negative number as a mask of softmax; what is stored in 16
 * bits and may be larger than they hold. Not told is what lint_range.c proves harmless, nor what a
 * where leaves out after looking at it: there the derivative leaves it out too.
 */
#include "pass/lint.h"

#include <float.h>
#include <math.h>

enum { DEEP = 6 };                   /* ops between a value and the where that guards it */
static const double MASK_MAX = -1e4; /* a constant below it is meant as a mask */

typedef enum { ON_CONSTANT, ON_LOSS, ON_DIVISOR, ON_DOMAIN, ON_SLOPE, ON_MASK, N_KINDS } Kind;

typedef struct {
    Lint base;
    Program *p;
    bool training; /* derivatives are taken of this graph */
    VEC(Span) told[N_KINDS];
} Check;

static const char *real_word(const Check *c) { return c->p->real == DT_F64 ? "fp64" : "fp32"; }

static bool same_line(const Context *cx, Span a, Span b)
{
    int column;
    return a.file == b.file && source_line(cx, a, &column) == source_line(cx, b, &column);
}

/* The first of this kind on the line. */
static bool is_new(Check *c, Kind kind, Span at)
{
    for (int i = 0; i < c->told[kind].len; i++)
        if (same_line(c->base.cx, c->told[kind].at[i], at))
            return false;
    vec_push(c->base.cx->scratch, &c->told[kind], at);
    return true;
}

static Diag *lint_warn(Check *c, Span at, const char *what)
{
    return diag_warning(c->base.cx, at, "numerics", "%s", what);
}

/* ---- what a where leaves out --------------------------------------------------------------- */

/* Is n made of `of`, by few element-wise ops? */
static bool is_made_of(const Node *n, const Node *of, int deep)
{
    n = lint_root(n);
    if (n == of)
        return true;
    for (int k = 0; deep > 0 && op_is(n, CLASS_POINT) && k < n->n_in; k++)
        if (is_made_of(n->in[k], of, deep - 1))
            return true;
    return false;
}

/* Does the condition look at x, or at something that x is made of? */
static bool looks_at(const Node *condition, const Node *x, int deep)
{
    condition = lint_root(condition);
    if (condition->op != OP_CONST && is_made_of(x, condition, DEEP))
        return true;
    for (int k = 0; deep > 0 && op_is(condition, CLASS_POINT) && k < condition->n_in; k++)
        if (looks_at(condition->in[k], x, deep - 1))
            return true;
    return false;
}

/* Does n reach nothing but by a where that has looked at x? */
static bool is_left_out(const Node *n, const Node *x, int deep)
{
    const Graph *g = n->graph;
    bool any = false;
    for (int i = 0; i < g->sinks.len; i++)
        if (g->sinks.at[i].node == n)
            return false;
    for (int i = n->id + 1; i < g->nodes.len; i++) {
        const Node *user = g->nodes.at[i];
        for (int k = 0; k < user->n_in; k++) {
            if (user->in[k] != n)
                continue;
            any = true;
            if (user->op == OP_WHERE && k > 0 && looks_at(user->in[0], x, DEEP))
                continue;
            const bool goes_on = op_is(user, CLASS_POINT) || lint_is_view(user);
            if (deep == 0 || !goes_on || !is_left_out(user, x, deep - 1))
                return false;
        }
    }
    return any;
}

static bool is_safe(const Node *n, const Node *x) { return is_left_out(n, x, DEEP); }

/* ---- constants ----------------------------------------------------------------------------- */

static void check_constant(Check *c, const Node *n)
{
    const double v = n->attr.value;
    if (!isfinite(v))
        return;
    const double held = (double)(float)v;
    const bool one = fabs(held) == 1 && held != v;
    if (held == v || (isfinite(held) && held != 0 && !one) || !is_new(c, ON_CONSTANT, n->span))
        return;
    Diag *d = diag_warning(c->base.cx, n->span, "numerics", "%.12g is %s in fp32", v,
                           isinf(held) ? "infinite"
                           : held == 0 ? "0"
                           : held > 0  ? "1"
                                       : "-1");
    diag_hint(d, isinf(held) ? "the largest number of fp32 is 3.4e+38"
                 : held == 0 ? "the smallest number above 0 in fp32 is 1.4e-45"
                             : "the next number below 1 in fp32 is 1 - 6e-8");
}

/* x + eps where x is so large that it stays x. */
static void check_lost(Check *c, const Node *n)
{
    for (int k = 0; k < 2; k++) {
        const Node *small = lint_root(n->in[k]);
        const Bounds b = lint_bounds(&c->base, n->in[1 - k]);
        const double least = b.lo > 0 ? b.lo : b.hi < 0 ? -b.hi : 0;
        const double digits = n->type->dtype == DT_F64 ? 0x1p-54 : 0x1p-25;
        if (small->op != OP_CONST || small->attr.value == 0
            || !(fabs(small->attr.value) < least * digits) || !is_new(c, ON_LOSS, n->span))
            continue;
        Diag *d = diag_warning(c->base.cx, n->span, "numerics",
                               "%g is lost beside a number of %g or more in %s", small->attr.value,
                               least, real_word(c));
        diag_hint(d, "add it before, to what can be near 0, or leave it out");
    }
}

/* ---- domains ------------------------------------------------------------------------------- */

/* What is above 0 and becomes 0 as it is stored in 16 bits. */
static bool is_rounded_away(const Check *c, const Node *x)
{
    const Bounds b = lint_bounds(&c->base, lint_root(x));
    return b.lo > 0 && lint_bounds(&c->base, x).zero != ZERO_NEVER;
}

static void hint_rounded(Check *c, Diag *d)
{
    diag_hint(d, "it is stored in %s: a larger number beside it, or the layer `in fp32`",
              c->p->narrow == DT_F16 ? "fp16" : "bf16");
}

static void check_divisor(Check *c, const Node *n)
{
    const Node *x = n->in[1];
    const Bounds b = lint_bounds(&c->base, x);
    if (b.zero != ZERO_YES || is_safe(n, lint_root(x)) || !is_new(c, ON_DIVISOR, n->span))
        return;
    if (is_rounded_away(c, x))
        hint_rounded(c, lint_warn(c, n->span, "the divisor may become 0"));
    else if (b.lo >= 0 && n->type->dtype == DT_I32)
        diag_hint(lint_warn(c, n->span, "the divisor may be 0"), "max(d, 1) is never 0");
    else if (b.lo >= 0)
        diag_hint(lint_warn(c, n->span, "the divisor may be 0"),
                  "it is never negative: divide by d + 1e-6 or by max(d, 1e-6)");
    else
        diag_hint(lint_warn(c, n->span, "the divisor may be 0"),
                  "where(d != 0, x / d, 0) leaves 0 out, in the gradient too");
}

/* Better ways to write the log of a number that underflows. */
static void hint_log(Diag *d, const Node *x)
{
    x = lint_root(x);
    if (x->op == OP_DIV && lint_root(x->in[0])->op == OP_EXP)
        diag_hint(d, "log_softmax(x) is the same without the detour");
    else if (x->op == OP_SIGMOID)
        diag_hint(d, "-softplus(-x) is log(sigmoid(x)) without the detour");
    else if (x->op == OP_SUB && lint_root(x->in[1])->op == OP_SIGMOID)
        diag_hint(d, "-softplus(x) is log(1 - sigmoid(x)) without the detour");
    else if (x->op == OP_EXP)
        diag_hint(d, "log(exp(x)) is x");
    else
        diag_hint(d, "log(max(x, 1e-6)) is finite; where(x > 0, log(x), 0) leaves 0 out");
}

static void check_log(Check *c, const Node *n)
{
    const Node *x = n->in[0];
    const Bounds b = lint_bounds(&c->base, x);
    if ((b.lo >= 0 && b.zero == ZERO_NEVER) || is_safe(n, lint_root(x))
        || !is_new(c, ON_DOMAIN, n->span))
        return;
    if (is_rounded_away(c, x))
        hint_rounded(c, lint_warn(c, n->span, "log of what may become 0"));
    else if (b.lo < 0)
        hint_log(lint_warn(c, n->span, "log of what may be 0 or negative"), x);
    else if (b.zero == ZERO_TINY)
        hint_log(lint_warn(c, n->span, "log of what becomes 0 when it is too small for its type"),
                 x);
    else
        hint_log(lint_warn(c, n->span, "log of what may be 0"), x);
}

/* Is the derivative of n with respect to x taken? */
static bool has_slope(const Check *c, const Node *x)
{
    return c->training && map_get(c->base.trained, x);
}

static void check_root(Check *c, const Node *n)
{
    const Node *x = n->in[0];
    const Bounds b = lint_bounds(&c->base, x);
    const bool inverse = n->op == OP_RSQRT;
    if (is_safe(n, lint_root(x)))
        return;
    if (b.lo < 0) {
        if (is_new(c, ON_DOMAIN, n->span))
            diag_hint(lint_warn(c, n->span, "square root of what may be negative"),
                      "max(x, 1e-6) keeps it above 0");
    } else if (inverse && b.zero == ZERO_YES && is_new(c, ON_DIVISOR, n->span)) {
        Diag *d = lint_warn(c, n->span, "1 / square root of what may be 0");
        if (is_rounded_away(c, x))
            hint_rounded(c, d);
        else
            diag_hint(d, "add a small number: rsqrt(x + 1e-6)");
    } else if (!inverse && b.zero == ZERO_YES && has_slope(c, x) && is_new(c, ON_SLOPE, n->span)) {
        diag_hint(lint_warn(c, n->span, "the derivative of the square root is infinite at 0"),
                  "add a small number: sqrt(x + 1e-6)");
    }
}

static void check_power(Check *c, const Node *n)
{
    const Node *x = n->in[0], *e = lint_root(n->in[1]);
    const Bounds b = lint_bounds(&c->base, x), power = lint_bounds(&c->base, n->in[1]);
    const bool whole = e->op == OP_CONST && floor(e->attr.value) == e->attr.value;
    if (is_safe(n, lint_root(x)))
        return;
    if (b.lo < 0 && !whole) {
        if (is_new(c, ON_DOMAIN, n->span))
            diag_hint(lint_warn(c, n->span, "a power of what may be negative"),
                      "powers that are no whole numbers need max(x, 0), or abs(x)");
    } else if (b.zero == ZERO_YES && power.lo < 0) {
        if (is_new(c, ON_DIVISOR, n->span))
            diag_hint(lint_warn(c, n->span, "a negative power of what may be 0"),
                      "keep it away from 0: max(x, 1e-6)");
    } else if (b.zero == ZERO_YES && power.lo < 1 && power.hi > 0 && !whole && has_slope(c, x)
               && is_new(c, ON_SLOPE, n->span)) {
        diag_hint(lint_warn(c, n->span, "the derivative of a power below 1 is infinite at 0"),
                  "add a small number: (x + 1e-6)^p");
    }
}

/* ---- masks --------------------------------------------------------------------------------- */

/* softmax of where(mask, x, -1e9), of x + where(mask, 0, -1e9) or of x - 1e9 * mask. */
static void check_softmax(Check *c, const Node *n)
{
    const Node *shifted = lint_root(n->in[0]), *top = shifted->op == OP_SUB ? shifted->in[1] : n;
    top = lint_root(top);
    if (top->op != OP_AMAX || lint_root(top->in[0]) != lint_root(shifted->in[0]))
        return;
    const Node *scores = lint_root(shifted->in[0]), *mask = lint_mask_of(scores, MASK_MAX);
    const Node *condition = mask ? scores->in[0] : NULL;
    for (int k = 0; !mask && (scores->op == OP_ADD || scores->op == OP_SUB) && k < 2; k++) {
        const Node *term = lint_root(scores->in[k]);
        mask = lint_mask_of(term, MASK_MAX);
        condition = mask ? term->in[0] : NULL;
        for (int i = 0; !mask && term->op == OP_MUL && i < 2; i++) {
            const Node *factor = lint_root(term->in[i]);
            if (factor->op == OP_CONST && fabs(factor->attr.value) >= -MASK_MAX) {
                mask = factor;
                condition = term->in[1 - i];
            }
        }
    }
    if (!mask || lint_is_fixed(condition) || !is_new(c, ON_MASK, scores->span))
        return;
    Diag *d = lint_warn(
        c, scores->span,
        isinf(lint_bounds(&c->base, mask).lo)
            ? "softmax of a row that is masked as a whole is NaN"
            : "softmax of a row that is masked as a whole has equal weights, not 0");
    diag_hint(d, "masked_softmax(x, mask) gives zeros there; attention(...) has causal: true");
}

static bool is_too_large(double v, DType narrow)
{
    return isfinite(v) && fabs(v) < FLT_MAX && isinf(op_round(v, narrow));
}

/* What a 16-bit type does not hold: a constant branch, or a bound, of what is stored in it. */
static void check_narrow(Check *c, const Node *n)
{
    const Node *x = lint_root(n->in[0]);
    const DType narrow = n->op == OP_F16 ? DT_F16 : DT_BF16;
    const Bounds b = lint_bounds(&c->base, x);
    double v[4] = { 0, 0, b.lo, b.hi };
    for (int k = 1; x->op == OP_WHERE && k < 3; k++) {
        const Node *branch = lint_root(x->in[k]);
        v[k - 1] = branch->op == OP_CONST ? branch->attr.value : 0;
    }
    int k = 0;
    while (k < 4 && !is_too_large(v[k], narrow))
        k++;
    if (k == 4 || !is_new(c, ON_CONSTANT, x->span))
        return;
    const char *word = narrow == DT_F16 ? "fp16" : "bf16";
    Diag *d = diag_warning(c->base.cx, x->span, "numerics",
                           "%g is infinite in %s, in which this is stored", v[k], word);
    if (v[k] < 0)
        diag_hint(d, "masked_softmax(x, mask) needs no such number");
    else
        diag_hint(d, "the largest number of %s is %s; a layer `in fp32` has larger ones", word,
                  narrow == DT_F16 ? "65504" : "3.39e+38");
}

/* ---- graphs -------------------------------------------------------------------------------- */

static void check_graph(Check *c, Graph *g)
{
    const bool *live = graph_live(g);
    for (int i = 0; i < g->nodes.len; i++) {
        const Node *n = g->nodes.at[i];
        if (!live[i] || (n->span.file == 0 && n->op != OP_LOOP))
            continue;
        switch (n->op) {
        case OP_LOOP: check_graph(c, n->attr.loop->body); break;
        case OP_CONST:
            if (n->type->dtype == DT_F32)
                check_constant(c, n);
            break;
        case OP_ADD:
        case OP_SUB: check_lost(c, n); break;
        case OP_DIV:
        case OP_FDIV:
        case OP_MOD: check_divisor(c, n); break;
        case OP_LOG: check_log(c, n); break;
        case OP_SQRT:
        case OP_RSQRT: check_root(c, n); break;
        case OP_POW: check_power(c, n); break;
        case OP_EXP: check_softmax(c, n); break;
        case OP_F16:
        case OP_BF16: check_narrow(c, n); break;
        default: break;
        }
    }
}

/* Of an optimizer's update the constants only: what its states can be is not known. Its graph is in
   double, as numbers are; what meets an element is rounded to the element's type. */
static void check_rule(Check *c, Graph *g)
{
    const bool *live = graph_live(g);
    bool *of_element = NEW_ARRAY(c->base.cx->scratch, bool, g->nodes.len + 1);
    for (int i = 0; i < g->nodes.len; i++) {
        const Node *n = g->nodes.at[i];
        of_element[i] = n->op == OP_ARG && rule_arg_is_element(c->p, n->attr.index);
        for (int k = 0; k < n->n_in; k++)
            of_element[i] = of_element[i] || of_element[n->in[k]->id];
        for (int k = 0; live[i] && of_element[i] && k < n->n_in; k++)
            if (n->in[k]->op == OP_CONST && n->in[k]->span.file != 0)
                check_constant(c, n->in[k]);
    }
}

void pass_lint(Program *p)
{
    Context *cx = p->cx;
    Graph *const graphs[] = { p->train_graph, p->eval_graph, p->output_graph };
    Check c = { .p = p };
    for (int i = 0; i < 3; i++) {
        if (!graphs[i])
            continue;
        c.base = (Lint){ cx, map_new(cx->scratch), map_new(cx->scratch) };
        c.training = i == 0;
        lint_find_bounds(&c.base, graphs[i]);
        check_graph(&c, graphs[i]);
    }
    if (p->train.rule.graph && p->real == DT_F32)
        check_rule(&c, p->train.rule.graph);
}
