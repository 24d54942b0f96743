/* sem_const.c -- numbers and sizes that are known while compiling.
 *
 * In: const, batch and dim declarations, -D overrides, and operators over such values. Out: symbols
 * of the dim table, folded Things, and what the declared limits (dim T <= Tmax) prove.
 */
#include "front/sem_parts.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading things ------------------------------------------------------------------------ */

bool thing_whole(const Thing *t, int64_t *v)
{
    return t->kind == THING_DIM && dim_value(t->dim, v);
}

bool thing_number(const Thing *t, double *v)
{
    int64_t whole;
    if (t->kind == THING_REAL) {
        *v = t->real;
        return true;
    }
    if (!thing_whole(t, &whole))
        return false;
    *v = (double)whole;
    return true;
}

static void add_constraint(Sem *s, CheckedConstraint c)
{
    for (int i = 0; i < s->out->constraints.len; i++) {
        const CheckedConstraint *o = &s->out->constraints.at[i];
        if (o->left == c.left && o->right == c.right && o->rel == c.rel)
            return;
    }
    vec_push(s->arena, &s->out->constraints, c);
}

static void claim_divides(Sem *s, const Claim *claim, Span at)
{
    int64_t a, b;
    if (dim_value(claim->whole, &a) && dim_value(claim->part, &b))
        return;
    CheckedConstraint c = { .left = claim->whole,
                            .rel = SEM_DIVIDES,
                            .right = claim->part,
                            .span = sem_here(s, at) };
    c.text = intern_printf(s->cx, "%s %% %s == 0", dim_text(s->cx, c.left),
                           dim_text(s->cx, c.right));
    add_constraint(s, c);
}

static void not_whole(Sem *s, const Thing *t, const Ast *a, const char *what)
{
    const char *number = sem_number_text(s, t->real);
    if (a->kind == AST_NUMBER) {
        sem_error(s, a->span, "%s must be a whole number, not %s", what, number);
    } else if (a->kind == AST_NAME) {
        Diag *d = sem_error(s, a->span, "%s must be a whole number, but %s is real (%s)", what,
                            a->name, number);
        if (t->span.file != a->span.file || t->span.lo != a->span.lo)
            sem_note(s, d, t->span, "%s is declared here", a->name);
    } else {
        sem_error(s, a->span, "%s must be a whole number, not %s = %s", what,
                  ast_expr_text(s->cx, a), number);
    }
    sem_poison_constants(s, a);
}

const Dim *thing_to_dim(Sem *s, const Thing *t, const Ast *a, const char *what)
{
    switch (t->kind) {
    case THING_POISON: return NULL;
    case THING_DIM:
        for (const Claim *c = t->claims; c; c = c->next)
            claim_divides(s, c, a->span);
        return t->dim;
    case THING_REAL: not_whole(s, t, a, what); return NULL;
    case THING_VALUE: {
        Diag *d = sem_error(s, a->span, "%s must be known from sizes, not computed from data",
                            what);
        sem_note_value(s, d, a, t->value);
        return NULL;
    }
    case THING_ITER:
        sem_error(s, a->span, "%s cannot be the number of a loop: it must not change in it", what);
        return NULL;
    default:
        sem_error(s, a->span, "%s must be a whole number, not %s", what, thing_text(s, t));
        return NULL;
    }
}

const Dim *sem_eval_dim(Sem *s, const Ast *a, const char *what)
{
    return thing_to_dim(s, sem_eval(s, a), a, what);
}

bool sem_eval_bool(Sem *s, const Ast *a, const char *what, bool *yes)
{
    const Thing *t = sem_eval(s, a);
    if (t->kind == THING_BOOL) {
        *yes = t->yes;
        return true;
    }
    if (t->kind == THING_POISON)
        return false;
    Diag *d = sem_error(s, a->span, "%s must be known while compiling: true or false", what);
    if (s->elements)
        sem_hint(d, "where(c, a, b), or if c { ... } else { ... } by the optimizer's arguments");
    else if (t->kind == THING_VALUE && t->value->deps)
        sem_hint(d, "choose between values of a tensor with where(condition, a, b)");
    else if (t->kind == THING_VALUE)
        sem_hint(d, "a size that is declared with dim is known when the program starts");
    return false;
}

/* ---- operators ----------------------------------------------------------------------------- */

static const Claim *claims_join(Sem *s, const Claim *a, const Claim *b)
{
    for (; a; a = a->next) {
        Claim *c = NEW(s->arena, Claim);
        *c = *a;
        c->next = b;
        b = c;
    }
    return b;
}

static Thing *dim_result(Sem *s, const Ast *a, const Dim *d)
{
    if (!d)
        return NULL;
    if (dim_overflows(d)) {
        sem_error(s, a->span, "%s does not fit 64 bits", ast_expr_text(s->cx, a));
        return thing_poison(s);
    }
    return thing_dim(s, d, a->span);
}

static Thing *division_by_zero(Sem *s, const Ast *a)
{
    Diag *d = sem_error(s, a->at, "division by zero in %s", ast_expr_text(s->cx, a));
    sem_mark(d, a->right->span);
    return thing_poison(s);
}

static Thing *dim_divide(Sem *s, const Ast *a, const Thing *l, const Thing *r)
{
    int64_t x, y;
    bool known = dim_value(l->dim, &x) && dim_value(r->dim, &y);
    if (dim_value(r->dim, &y) && y == 0)
        return division_by_zero(s, a);
    if (known && x % y != 0)
        return thing_real(s, (double)x / (double)y, a->span);
    Thing *t = dim_result(s, a, dim_exact_div(s->dims, l->dim, r->dim));
    if (t && t->kind == THING_DIM && !known) {
        Claim *c = NEW(s->arena, Claim);
        *c = (Claim){ l->dim, r->dim, NULL };
        t->claims = c;
    }
    return t;
}

static const Dim *dim_power(Sem *s, const Dim *base, int64_t n)
{
    const Dim *d = dim_const(s->dims, 1);
    int64_t v;
    if (dim_value(base, &v) && v >= -1 && v <= 1) /* no power of these grows */
        n = n > 2 ? 2 - n % 2 : n;
    for (int64_t i = 0; i < n && !dim_overflows(d); i++)
        d = dim_mul(s->dims, d, base);
    return d;
}

static Thing *dim_compare(Sem *s, const Ast *a, const Dim *l, const Dim *r)
{
    int64_t x = 0, y = 0;
    bool known = dim_value(l, &x) && dim_value(r, &y);
    if (!known) {
        if (dim_same(l, r))
            return thing_bool(s, a->op == AST_EQ || a->op == AST_LE || a->op == AST_GE, a->span);
        if (a->op == AST_LE && sem_known_le(s, l, r))
            return thing_bool(s, true, a->span);
        if (a->op == AST_GE && sem_known_le(s, r, l))
            return thing_bool(s, true, a->span);
        return NULL;
    }
    bool yes = a->op == AST_EQ   ? x == y
               : a->op == AST_NE ? x != y
               : a->op == AST_LT ? x < y
               : a->op == AST_LE ? x <= y
               : a->op == AST_GT ? x > y
                                 : x >= y;
    return thing_bool(s, yes, a->span);
}

static Thing *dim_binary(Sem *s, const Ast *a, const Thing *l, const Thing *r)
{
    int64_t n;
    Thing *t = NULL;
    switch (a->op) {
    case AST_ADD: t = dim_result(s, a, dim_add(s->dims, l->dim, r->dim)); break;
    case AST_SUB: t = dim_result(s, a, dim_sub(s->dims, l->dim, r->dim)); break;
    case AST_MUL: t = dim_result(s, a, dim_mul(s->dims, l->dim, r->dim)); break;
    case AST_DIV: t = dim_divide(s, a, l, r); break;
    case AST_FLOOR_DIV:
    case AST_MOD:
        if (dim_value(r->dim, &n) && n == 0)
            return division_by_zero(s, a);
        t = dim_result(s, a, (a->op == AST_MOD ? dim_mod : dim_floor_div)(s->dims, l->dim, r->dim));
        break;
    case AST_POW:
        if (!dim_value(r->dim, &n) || n < 0)
            return NULL;
        t = dim_result(s, a, dim_power(s, l->dim, n));
        break;
    case AST_EQ:
    case AST_NE:
    case AST_LT:
    case AST_LE:
    case AST_GT:
    case AST_GE: return dim_compare(s, a, l->dim, r->dim);
    default: return NULL;
    }
    if (t && t->kind == THING_DIM) {
        t->claims = claims_join(s, l->claims, claims_join(s, r->claims, t->claims));
        t->literal = l->literal && r->literal;
    }
    return t;
}

static Thing *finite_real(Sem *s, const Ast *a, double v)
{
    if (isfinite(v))
        return thing_real(s, v, a->span);
    sem_error(s, a->span, "%s is not a finite number", ast_expr_text(s->cx, a));
    return thing_poison(s);
}

static Thing *real_binary(Sem *s, const Ast *a, double x, double y)
{
    bool divides = a->op == AST_DIV || a->op == AST_FLOOR_DIV || a->op == AST_MOD;
    if (divides && y == 0)
        return division_by_zero(s, a);
    switch (a->op) {
    case AST_ADD: return finite_real(s, a, x + y);
    case AST_SUB: return finite_real(s, a, x - y);
    case AST_MUL: return finite_real(s, a, x * y);
    case AST_DIV: return finite_real(s, a, x / y);
    case AST_FLOOR_DIV: return finite_real(s, a, floor(x / y));
    case AST_MOD: return finite_real(s, a, x - y * floor(x / y));
    case AST_POW: return finite_real(s, a, pow(x, y));
    case AST_EQ: return thing_bool(s, x == y, a->span);
    case AST_NE: return thing_bool(s, x != y, a->span);
    case AST_LT: return thing_bool(s, x < y, a->span);
    case AST_LE: return thing_bool(s, x <= y, a->span);
    case AST_GT: return thing_bool(s, x > y, a->span);
    case AST_GE: return thing_bool(s, x >= y, a->span);
    default: return NULL;
    }
}

Thing *const_binary(Sem *s, const Ast *a, Thing *l, Thing *r)
{
    double x, y;
    if (l->kind == THING_VALUE && thing_number(r, &y) && y == 0
        && (a->op == AST_DIV || a->op == AST_FLOOR_DIV || a->op == AST_MOD))
        return division_by_zero(s, a);
    if (l->kind == THING_BOOL && r->kind == THING_BOOL) {
        switch (a->op) {
        case AST_AND: return thing_bool(s, l->yes && r->yes, a->span);
        case AST_OR: return thing_bool(s, l->yes || r->yes, a->span);
        case AST_EQ: return thing_bool(s, l->yes == r->yes, a->span);
        case AST_NE: return thing_bool(s, l->yes != r->yes, a->span);
        default: return NULL;
        }
    }
    if (l->kind == THING_DIM && r->kind == THING_DIM) {
        Thing *t = dim_binary(s, a, l, r);
        if (t && t->kind == THING_DIM && (l->claims || r->claims))
            t->value = sem_binary(s, a, thing_value(s, sem_to_value(s, l, DT_COUNT, a->left)),
                                  thing_value(s, sem_to_value(s, r, DT_COUNT, a->right)))
                           ->value;
        if (t || !thing_number(l, &x) || !thing_number(r, &y))
            return t;
    }
    if (thing_number(l, &x) && thing_number(r, &y))
        return real_binary(s, a, x, y);
    if (l->kind == THING_ITER && r->kind == THING_DIM && (a->op == AST_ADD || a->op == AST_SUB)) {
        Thing *t = thing_new(s, THING_ITER, a->span);
        t->loop = l->loop;
        t->dim = (a->op == AST_ADD ? dim_add : dim_sub)(s->dims, l->dim, r->dim);
        return t;
    }
    if (r->kind == THING_ITER && l->kind == THING_DIM && a->op == AST_ADD)
        return const_binary(s, a, r, l);
    return NULL;
}

Thing *const_unary(Sem *s, const Ast *a, Thing *t)
{
    if (a->op == AST_NOT)
        return t->kind == THING_BOOL ? thing_bool(s, !t->yes, a->span) : NULL;
    if (t->kind == THING_DIM) {
        Thing *n = dim_result(s, a, dim_sub(s->dims, dim_const(s->dims, 0), t->dim));
        n->literal = t->literal;
        n->claims = t->claims;
        return n;
    }
    return t->kind == THING_REAL ? thing_real(s, -t->real, a->span) : NULL;
}

static double rsqrt_of(double x) { return 1 / sqrt(x); }
static double sigmoid_of(double x) { return 1 / (1 + exp(-x)); }
static double sign_of(double x) { return (x > 0) - (x < 0); }

Thing *const_math(Sem *s, const char *name, const Thing *t, Span at)
{
    static const struct {
        const char *name;
        double (*f)(double);
    } table[] = {
        { "exp", exp },   { "log", log },  { "sqrt", sqrt },          { "rsqrt", rsqrt_of },
        { "tanh", tanh }, { "erf", erf },  { "sigmoid", sigmoid_of }, { "sin", sin },
        { "cos", cos },   { "abs", fabs }, { "sign", sign_of },       { "floor", floor },
    };
    double x;
    int64_t whole;
    if (!thing_number(t, &x))
        return NULL;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (strcmp(table[i].name, name) != 0)
            continue;
        double y = table[i].f(x);
        if (!isfinite(y)) {
            sem_error(s, at, "%s(%g) is not a finite number", name, x);
            return thing_poison(s);
        }
        bool keeps = table[i].f == fabs || table[i].f == sign_of;
        bool stays_whole = strcmp(name, "floor") == 0 || (keeps && thing_whole(t, &whole));
        if (stays_whole && fabs(y) < 9e15)
            return thing_dim(s, dim_const(s->dims, (int64_t)y), at);
        return thing_real(s, y, at);
    }
    return NULL;
}

/* ---- declarations -------------------------------------------------------------------------- */

/* The Thing that -D gives, of the kind of the default; NULL after an error. */
static Thing *parse_define(Sem *s, const Ast *a, const Thing *given, const Define *def)
{
    const char *text = def->value;
    char *end = NULL;
    errno = 0;
    if (given->kind == THING_BOOL) {
        if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0)
            return thing_bool(s, *text == 't', a->span);
    } else if (given->kind == THING_DIM) {
        long long v = strtoll(text, &end, 10);
        if (*text && !*end && errno == 0)
            return thing_dim(s, dim_const(s->dims, v), a->span);
    } else if (given->kind == THING_REAL) {
        double v = strtod(text, &end);
        if (*text && !*end && errno == 0 && isfinite(v))
            return thing_real(s, v, a->span);
    }
    const char *wanted = given->kind == THING_BOOL   ? "true or false"
                         : given->kind == THING_DIM  ? "a whole number"
                         : given->kind == THING_REAL ? "a number"
                                                     : NULL;
    Diag *d = wanted ? diag_option(s->cx, def->typed, "%s wanted", wanted)
                     : diag_option(s->cx, def->typed, "%s is %s, which no option can set", a->name,
                                   thing_text(s, given));
    sem_note(s, d, a->span, "%s is declared here", a->name);
    return NULL;
}

static bool name_is_free(Sem *s, const Scope *sc, const Ast *a)
{
    const Thing *old = scope_find_here(sc, a->name);
    if (!old)
        return true;
    Diag *d = sem_error(s, a->at, "%s is declared twice", a->name);
    sem_note(s, d, old->span, "the first %s", a->name);
    return false;
}

void sem_declare_const(Sem *s, Scope *sc, const Ast *a, bool top)
{
    if (!name_is_free(s, sc, a))
        return;
    Thing *t = sem_eval(s, a->value);
    const Define *def = top && s->defines ? map_get(s->defines, a->name) : NULL;
    if (def && t->kind != THING_POISON) {
        Thing *given = parse_define(s, a, t, def);
        t = given ? given : thing_poison(s);
    }
    if (def)
        map_set(s->defines, a->name, NULL);
    if (t->kind == THING_VALUE || t->kind == THING_ITER) {
        sem_error(s, a->value->span, "a constant must be known while compiling");
        t = thing_poison(s);
    }
    int64_t v;
    if (top && t->kind == THING_DIM) {
        if (thing_whole(t, &v)) {
            t = thing_dim(s, dim_sym(s->dims, dims_symbol(s->dims, a->name, SYM_CONST, v, a->at)),
                          a->at);
        } else {
            sem_error(s, a->value->span, "a constant must be known while compiling, but %s is not",
                      dim_text(s->cx, t->dim));
            t = thing_poison(s);
        }
    }
    if (top && (t->kind == THING_REAL || t->kind == THING_BOOL)) {
        const char *value = t->kind == THING_BOOL ? (t->yes ? "true" : "false")
                                                  : arena_printf(s->arena, "%.7g", t->real);
        vec_push(s->arena, &s->out->consts, ((CheckedConst){ a->name, value, a->at }));
    }
    Thing *copy = thing_new(s, t->kind, a->at);
    *copy = *t;
    copy->span = a->at;
    copy->literal = false;
    scope_set(s, sc, a->name, copy);
}

void sem_declare_dim(Sem *s, const Ast *a)
{
    if (!name_is_free(s, s->global, a))
        return;
    SymKind kind = a->kind == AST_BATCH ? SYM_BATCH : SYM_DIM;
    if (kind == SYM_BATCH && s->batches.len) {
        Diag *d = sem_error(s, a->at, "this version has one sample axis");
        sem_note(s, d, s->batches.at[0]->span, "the first one");
        return;
    }
    Symbol *sym = dims_symbol(s->dims, a->name, kind, 0, a->at);
    if (kind == SYM_BATCH)
        vec_push(s->arena, &s->batches, sym);
    scope_set(s, s->global, a->name, thing_dim(s, dim_sym(s->dims, sym), a->at));
    if (a->cond)
        sem_add_condition(s, a->cond);
}

/* T <= Tmax, W % 16 == 0, several with and: what holds for all sizes at run time. */
void sem_add_condition(Sem *s, const Ast *c)
{
    if (c->kind == AST_BAD)
        return;
    if (c->kind == AST_BINARY && c->op == AST_AND) {
        sem_add_condition(s, c->left);
        sem_add_condition(s, c->right);
        return;
    }
    static const int rel[AST_OP_COUNT] = { [AST_EQ] = SEM_EQ + 1,
                                           [AST_LT] = SEM_LT + 1,
                                           [AST_LE] = SEM_LE + 1,
                                           [AST_GT] = SEM_GT + 1,
                                           [AST_GE] = SEM_GE + 1 };
    if (c->kind != AST_BINARY || !rel[c->op]) {
        Diag *d = sem_error(s, c->span, "a limit of a size must be a comparison");
        sem_hint(d, "for example T <= 256 or W %% 16 == 0");
        return;
    }
    CheckedConstraint k = { .rel = rel[c->op] - 1,
                            .text = ast_expr_text(s->cx, c),
                            .span = c->span };
    int64_t zero;
    const Ast *l = c->left;
    if (c->op == AST_EQ && l->kind == AST_BINARY && l->op == AST_MOD) {
        k.left = sem_eval_dim(s, l->left, "a limit");
        k.right = sem_eval_dim(s, l->right, "a limit");
        const Dim *rest = sem_eval_dim(s, c->right, "a limit");
        if (rest && (!dim_value(rest, &zero) || zero != 0)) {
            sem_error(s, c->right->span, "only a remainder of 0 can be asked for");
            return;
        }
        k.rel = SEM_DIVIDES;
    } else {
        k.left = sem_eval_dim(s, l, "a limit");
        k.right = sem_eval_dim(s, c->right, "a limit");
    }
    if (k.left && k.right)
        add_constraint(s, k);
}

/* ---- what is known about sizes ------------------------------------------------------------- */

static bool grows_with(Sem *s, const Dim *d, const Symbol *sym)
{
    const Dim *more = dim_add(s->dims, dim_sym(s->dims, sym), dim_const(s->dims, 1));
    return dim_le(s->dims, d, dim_replace(s->dims, d, sym, more));
}

static bool known_le(Sem *s, const Dim *a, const Dim *b, int depth)
{
    if (dim_same(a, b) || dim_le(s->dims, a, b))
        return true;
    for (int i = 0; depth > 0 && i < s->out->constraints.len; i++) {
        const CheckedConstraint *c = &s->out->constraints.at[i];
        for (int k = 0; k < dims_count(s->dims); k++) {
            const Symbol *sym = dims_at(s->dims, k);
            if (sym->kind == SYM_CONST)
                continue;
            const Dim *itself = dim_sym(s->dims, sym);
            bool below = (c->left == itself && (c->rel <= SEM_LT || c->rel == SEM_EQ))
                         || (c->right == itself && (c->rel >= SEM_GE && c->rel <= SEM_EQ));
            const Dim *limit = c->left == itself ? c->right : c->left;
            if (!below || limit == itself || dim_has_symbol(limit, sym))
                continue;
            if (dim_has_symbol(a, sym) && grows_with(s, a, sym)
                && known_le(s, dim_replace(s->dims, a, sym, limit), b, depth - 1))
                return true;
        }
    }
    return false;
}

bool sem_known_le(Sem *s, const Dim *a, const Dim *b) { return known_le(s, a, b, 3); }

/* Reports when a <= b is not known; what says which number of the model this is about. */
bool sem_require_le(Sem *s, Span at, const Dim *a, const Dim *b, const char *what)
{
    if (sem_known_le(s, a, b))
        return true;
    int64_t x, y;
    bool known = dim_value(a, &x) && dim_value(b, &y), sign = dim_value(a, &x) && x == 0;
    const char *left = sem_dim_text(s, a), *right = sem_dim_text(s, b);
    Diag *d = known && sign ? sem_error(s, at, "%s is below 0: %s", what, right)
              : known ? sem_error(s, at, "%s is out of range: %s is above %s", what, left, right)
                      : sem_error(s, at, "%s: nothing says that %s <= %s", what, left, right);
    sem_note_dim(s, d, a);
    sem_note_dim(s, d, b);
    if (!known && !dim_value(a, &x) && dim_value(b, &y))
        sem_hint(d, "say so where the size is declared: dim %s <= %s", dim_text(s->cx, a),
                 dim_text(s->cx, b));
    return false;
}
