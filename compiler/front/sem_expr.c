/* sem_expr.c -- expressions.
 *
 * In: an expression of the tree. Out: the Thing it stands for. What is known while compiling is
 * computed; the rest becomes an Expr. Literals take the type of the tensor beside them; an int
 * beside a real becomes real; / of values is real; a mistake gives poison, which stays silent.
 */
#include "front/sem_parts.h"

#include <string.h>

/* ---- from things to values ----------------------------------------------------------------- */

static Expr *dim_value_of(Sem *s, const Thing *t, DType like, const Ast *a)
{
    if (t->value)
        return t->value;
    if (dim_has_kind(t->dim, SYM_BATCH)) {
        Diag *d = sem_error(s, a->span, "%s as a number depends on how the batch is split",
                            dim_text(s->cx, t->dim));
        sem_note_dim(s, d, t->dim);
        sem_hint(d, "mean(x) divides by the number of samples of the whole batch");
        return NULL;
    }
    if (t->claims && t->claims->next == NULL) {
        Expr *in[2] = { expr_dim(s, DT_F32, t->claims->whole, a->span),
                        expr_dim(s, DT_F32, t->claims->part, a->span) };
        return expr_point(s, "div", in[0]->type, 2, in, a->span);
    }
    return expr_dim(s, like == DT_F32 ? DT_F32 : DT_I32, t->dim, a->span);
}

Expr *sem_to_value(Sem *s, Thing *t, DType like, const Ast *a)
{
    Diag *d;
    switch (t->kind) {
    case THING_POISON: return NULL;
    case THING_VALUE: return t->value;
    case THING_DIM: return dim_value_of(s, t, like, a);
    case THING_REAL: return expr_const(s, DT_F32, t->real, a->span);
    case THING_BOOL: return expr_const(s, DT_BOOL, t->yes, a->span);
    case THING_ITER: return expr_iter(s, t, a->span);
    case THING_PARAM: return expr_param(s, t->index, s->frame->select, a->span);
    case THING_RANGE:
        if (!sem_no_mixing(s, a->span, t->to, "the numbers of samples"))
            return NULL;
        if (dim_same(t->dim, t->to)) {
            sem_error(s, a->span, "the range %s has no numbers: it is no value",
                      ast_expr_text(s->cx, a));
            return NULL;
        }
        return expr_iota(s, t->dim, t->to, a->span);
    case THING_INSTANCE:
    case THING_STACK:
        d = sem_error(s, a->span, "%s is %s, not a value", ast_expr_text(s->cx, a),
                      thing_text(s, t));
        if (t->kind == THING_STACK)
            sem_hint(d, "apply its layers in a loop: for i in 0..%s { x = %s[i](x) }",
                     dim_text(s->cx, t->inst->count), ast_expr_text(s->cx, a));
        else
            sem_hint(d, "apply it: %s(x)", ast_expr_text(s->cx, a));
        return NULL;
    case THING_DECL:
        d = sem_error(s, a->span, "%s is %s, not a value", ast_expr_text(s->cx, a),
                      thing_text(s, t));
        return NULL;
    default: sem_error(s, a->span, "a value wanted, not %s", thing_text(s, t)); return NULL;
    }
}

Expr *sem_eval_value(Sem *s, const Ast *a) { return sem_to_value(s, sem_eval(s, a), DT_COUNT, a); }

/* ---- pointwise operations ------------------------------------------------------------------ */

bool sem_no_mixing(Sem *s, Span at, const Dim *d, const char *what)
{
    if (!dim_has_kind(d, SYM_BATCH))
        return true;
    Diag *diag = sem_error(s, at, "%s along the sample axis %s depends on how the batch is split",
                           what, dim_text(s->cx, d));
    sem_note_dim(s, diag, d);
    sem_hint(diag, "samples meet in mean(x) only, in a loss or metric");
    return false;
}

/* A mean over samples is known after the step: it meets other means and numbers only. */
bool sem_check_means(Sem *s, const Ast *a, unsigned deps)
{
    if (!(deps & DEP_MEAN) || !(deps & ~(unsigned)DEP_MEAN))
        return true;
    Diag *d = sem_error(s, a->at, "a mean over samples is known only after the step");
    sem_hint(d, "it may be combined with other means and with numbers");
    return false;
}

static const char *word_of(DType t) { return t == DT_BOOL ? "bool" : t == DT_I32 ? "int" : "real"; }

Expr *sem_point(Sem *s, const Ast *a, const char *op, char kind, Expr *l, Expr *r)
{
    DType t = l->type->dtype;
    if (r && (t == DT_BOOL || (t == DT_I32 && r->type->dtype == DT_F32)))
        t = r->type->dtype;
    if (kind == 'r')
        t = DT_F32;
    else if (kind == 'n' && t == DT_BOOL)
        t = DT_I32;
    if (kind == 'l' && (l->type->dtype != DT_BOOL || (r && r->type->dtype != DT_BOOL))) {
        Expr *bad = l->type->dtype != DT_BOOL ? l : r;
        sem_error(s, a->at, "%s wants true or false on both sides, not %s", op,
                  word_of(bad->type->dtype));
        return NULL;
    }
    l = expr_cast(s, l, t, a->span);
    r = r ? expr_cast(s, r, t, a->span) : NULL;
    if (!sem_check_means(s, a, l->deps | (r ? r->deps : 0)))
        return NULL;
    const Type *type = r ? sem_broadcast(s, a, l, r) : l->type;
    if (!type)
        return NULL;
    if (kind == 'c' || kind == 'l')
        type = sem_type(s, DT_BOOL, type->rank, type->dim);
    Expr *in[2] = { l, r };
    return expr_point(s, op, type, r ? 2 : 1, in, a->span);
}

static Expr *power(Sem *s, const Ast *a, Expr *l, Expr *r, const Thing *exponent)
{
    int64_t n;
    double v;
    const bool whole = l->type->dtype == DT_I32;
    if (thing_whole(exponent, &n) && n >= 1 && n <= (whole ? 4 : 2)) {
        Expr *e = l;
        for (int64_t i = 1; e && i < n; i++)
            e = sem_point(s, a, "mul", 'n', e, l);
        return e;
    }
    if (thing_number(exponent, &v) && v == 0.5)
        return sem_point(s, a, "sqrt", 'r', l, NULL);
    return sem_point(s, a, "pow", 'r', l, r);
}

static Expr *value_binary(Sem *s, const Ast *a, Expr *l, Expr *r, const Thing *exponent)
{
    static const struct {
        AstOp op;
        const char *name;
        char kind;
    } table[] = {
        { AST_ADD, "add", 'n' }, { AST_SUB, "sub", 'n' },        { AST_MUL, "mul", 'n' },
        { AST_DIV, "div", 'r' }, { AST_FLOOR_DIV, "fdiv", 'n' }, { AST_MOD, "mod", 'n' },
        { AST_EQ, "eq", 'c' },   { AST_NE, "ne", 'c' },          { AST_LT, "lt", 'c' },
        { AST_LE, "le", 'c' },   { AST_AND, "and", 'l' },        { AST_OR, "or", 'l' },
    };
    if (a->op == AST_MATMUL)
        return sem_matmul(s, a, l, r);
    if (a->op == AST_POW)
        return power(s, a, l, r, exponent);
    if (a->op == AST_GT || a->op == AST_GE) {
        const Type *whole = sem_broadcast(s, a, l, r); /* messages in the written order */
        return whole ? sem_point(s, a, a->op == AST_GT ? "lt" : "le", 'c', r, l) : NULL;
    }
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (table[i].op == a->op)
            return sem_point(s, a, table[i].name, table[i].kind, l, r);
    bug("operator %d has no meaning", (int)a->op);
}

static DType dtype_of(const Thing *t)
{
    return t->kind == THING_VALUE  ? t->value->type->dtype
           : t->kind == THING_REAL ? DT_F32
           : t->kind == THING_BOOL ? DT_BOOL
                                   : DT_COUNT;
}

Thing *sem_binary(Sem *s, const Ast *a, Thing *l, Thing *r)
{
    if (l->kind == THING_POISON || r->kind == THING_POISON)
        return thing_poison(s);
    Thing *t = const_binary(s, a, l, r);
    if (t)
        return t;
    DType beside = a->op == AST_DIV ? DT_F32 : DT_COUNT;
    Expr *x = sem_to_value(s, l, beside == DT_F32 ? beside : dtype_of(r), a->left);
    Expr *y = sem_to_value(s, r, beside == DT_F32 ? beside : dtype_of(l), a->right);
    Expr *e = x && y ? value_binary(s, a, x, y, r) : NULL;
    return e ? thing_value(s, e) : thing_poison(s);
}

static Thing *eval_binary(Sem *s, const Ast *a)
{
    Thing *l = sem_eval(s, a->left);
    /* a condition known to be false hides what follows: bias and x.dim > 3 */
    if (l->kind == THING_BOOL && ((a->op == AST_AND && !l->yes) || (a->op == AST_OR && l->yes)))
        return l;
    return sem_binary(s, a, l, sem_eval(s, a->right));
}

static Thing *eval_unary(Sem *s, const Ast *a)
{
    Thing *t = sem_eval(s, a->right);
    if (t->kind == THING_POISON)
        return t;
    Thing *known = const_unary(s, a, t);
    if (known)
        return known;
    Expr *e = sem_to_value(s, t, DT_COUNT, a->right);
    if (!e)
        return thing_poison(s);
    e = a->op == AST_NOT ? sem_point(s, a, "not", 'l', e, NULL)
                         : sem_point(s, a, "neg", 'n', e, NULL);
    return e ? thing_value(s, e) : thing_poison(s);
}

/* ---- names --------------------------------------------------------------------------------- */

static Thing *eval_name(Sem *s, const Ast *a)
{
    const Scope *sc = s->frame ? s->frame->scope : s->global;
    Thing *t = scope_find(sc, a->name);
    DType dtype;
    if (t && t->kind == THING_PARAM && !s->declaring)
        return thing_value(s, expr_param(s, t->index, s->frame->select, a->span));
    if (t)
        return t;
    if (strcmp(a->name, "training") == 0) {
        if (s->declaring)
            sem_error(s, a->span, "training is not known where layers are built");
        return thing_bool(s, s->training, a->span);
    }
    t = sem_lookup_layer(s, a);
    if (t)
        return t;
    if (strcmp(a->name, "int") == 0 || strcmp(a->name, "real") == 0
        || strcmp(a->name, "bool") == 0) {
        sem_type_dtype(s, a, &dtype);
        t = thing_new(s, THING_DTYPE, a->span);
        t->dtype = dtype;
        return t;
    }
    if (strcmp(a->name, "zeros") == 0 || strcmp(a->name, "ones") == 0) {
        t = thing_new(s, THING_INIT, a->span);
        t->init = a->name[0] == 'z' ? SEM_INIT_ZEROS : SEM_INIT_ONES;
        return t;
    }
    if (builtin_find(a->name)) {
        sem_error(s, a->span, "%s is a function: %s", a->name, builtin_find(a->name)->form);
        return thing_poison(s);
    }
    sem_unknown(s, a->span, "name", a->name, false);
    return thing_poison(s);
}

static Thing *no_part(Sem *s, const Ast *a, const Instance *inst)
{
    Diag *d = sem_error(s, a->at, "%s has no part %s", ast_expr_text(s->cx, a->left), a->name);
    VEC(const char *) names = { 0 };
    for (int i = 0; i < inst->scope->layers.len; i++)
        vec_push(s->arena, &names, inst->scope->layers.at[i].name);
    for (int i = 0; i < inst->scope->values.len; i++)
        if (inst->scope->values.at[i].thing->kind == THING_PARAM)
            vec_push(s->arena, &names, inst->scope->values.at[i].thing->text);
    sem_did_you_mean(d, a->name, names.at, names.len);
    return thing_poison(s);
}

/* A parameter by its name or by the path it has in checkpoints. */
static const Thing *part_param(const Scope *sc, const char *name)
{
    for (int i = 0; i < sc->values.len; i++) {
        const Thing *t = sc->values.at[i].thing;
        if (t->kind == THING_PARAM && (t->text == name || sc->values.at[i].name == name))
            return t;
    }
    return NULL;
}

static Thing *eval_field(Sem *s, const Ast *a)
{
    Thing *part = sem_lookup_layer(s, a), *t = part ? part : sem_lookup_layer(s, a->left);
    if (part)
        return part;
    if (!t)
        t = sem_eval(s, a->left);
    if (t->kind == THING_POISON)
        return t;
    if (t->kind != THING_INSTANCE) {
        Diag *d = sem_error(s, a->at, "%s is %s: only a layer has parts",
                            ast_expr_text(s->cx, a->left), thing_text(s, t));
        if (t->kind == THING_STACK)
            sem_hint(d, "take one of its layers: %s[i].%s", ast_expr_text(s->cx, a->left), a->name);
        return thing_poison(s);
    }
    t->inst->used = true;
    const Thing *p = part_param(t->inst->scope, a->name);
    if (!p)
        return no_part(s, a, t->inst);
    return thing_value(s, expr_param(s, p->index, t->select, a->span));
}

/* ---- lists and choices --------------------------------------------------------------------- */

static Thing *eval_list(Sem *s, const Ast *a)
{
    Thing *t = thing_new(s, THING_TUPLE, a->span);
    int n = a->kind == AST_TUPLE ? a->args.len : a->items.len;
    for (int i = 0; i < n; i++) {
        const Ast *item = a->kind == AST_TUPLE ? a->args.at[i] : a->items.at[i];
        if (item->kind == AST_ARG && item->name)
            sem_error(s, item->span, "a name has no meaning in this list");
        vec_push(s->arena, &t->items, sem_eval(s, item->kind == AST_ARG ? item->value : item));
    }
    return t;
}

static Thing *eval_list_for(Sem *s, const Ast *a)
{
    Thing *range = sem_eval(s, a->right), *t = thing_new(s, THING_TUPLE, a->span);
    int64_t lo, hi;
    if (range->kind == THING_POISON)
        return range;
    if (range->kind != THING_RANGE || !dim_value(range->dim, &lo) || !dim_value(range->to, &hi)) {
        sem_error(s, a->right->span, "a list runs over a range that is known while compiling");
        return thing_poison(s);
    }
    if (!sem_few_turns(s, a->right, "a list", lo, hi))
        return thing_poison(s);
    Scope *outer = s->frame ? s->frame->scope : s->global, *inner = scope_new(s, outer);
    Frame top = { .scope = inner };
    Frame *f = s->frame ? s->frame : &top;
    s->frame = f;
    f->scope = inner;
    for (int64_t i = lo; i < hi && t->kind != THING_POISON; i++) {
        scope_set(s, inner, a->name, thing_dim(s, dim_const(s->dims, i), a->at));
        Thing *item = sem_eval(s, a->value);
        if (item->kind == THING_POISON)
            t = item;
        else
            vec_push(s->arena, &t->items, item);
    }
    f->scope = outer;
    s->frame = f == &top ? NULL : f;
    return t;
}

static Thing *eval_range(Sem *s, const Ast *a)
{
    Thing *t = thing_new(s, THING_RANGE, a->span);
    t->dim = a->left ? sem_eval_dim(s, a->left, "the start of a range") : dim_const(s->dims, 0);
    t->to = a->right ? sem_eval_dim(s, a->right, "the end of a range") : NULL;
    if (!t->dim || !t->to)
        return thing_poison(s);
    int64_t lo, hi;
    if (dim_value(t->dim, &lo) && dim_value(t->to, &hi) && hi < lo) {
        sem_error(s, a->span, "the range %s is empty: it ends before it starts",
                  ast_expr_text(s->cx, a));
        return thing_poison(s);
    }
    return t;
}

static Thing *eval_transpose(Sem *s, const Ast *a)
{
    Expr *e = sem_eval_value(s, a->left);
    int axes[RANK_MAX];
    if (!e)
        return thing_poison(s);
    if (e->type->rank < 2) {
        Diag *d = sem_error(s, a->at, "' swaps the last two axes, but %s is %s",
                            ast_expr_text(s->cx, a->left), sem_type_text(s, e->type));
        sem_note_value(s, d, a->left, e);
        return thing_poison(s);
    }
    int n = e->type->rank;
    for (int i = 0; i < n; i++)
        axes[i] = i == n - 2 ? n - 1 : i == n - 1 ? n - 2 : i;
    return thing_value(s, expr_transpose(s, e, axes, a->span));
}

static Thing *eval_index(Sem *s, const Ast *a)
{
    Thing *layer = sem_lookup_layer(s, a);
    if (layer)
        return layer;
    Thing *t = sem_eval(s, a->left);
    int64_t k;
    if (t->kind == THING_POISON)
        return t;
    if (t->kind == THING_TUPLE) {
        const Thing *i = a->args.len == 1 ? sem_eval(s, a->args.at[0]->value) : NULL;
        if (i && i->kind == THING_POISON)
            return thing_poison(s);
        if (!i || !thing_whole(i, &k) || k < 0 || k >= t->items.len) {
            sem_error(s, a->span, "%s has %d elements: a number from 0 to %d wanted",
                      ast_expr_text(s->cx, a->left), t->items.len, t->items.len - 1);
            return thing_poison(s);
        }
        return t->items.at[k];
    }
    Expr *e = sem_to_value(s, t, DT_COUNT, a->left);
    return e ? sem_index(s, a, e) : thing_poison(s);
}

Thing *sem_eval(Sem *s, const Ast *a)
{
    bool yes;
    Thing *t;
    switch (a->kind) {
    case AST_NUMBER:
        if (!a->flag)
            return thing_real(s, a->number, a->span);
        t = thing_dim(s, dim_const(s->dims, a->whole), a->span);
        t->literal = true;
        return t;
    case AST_STRING:
        t = thing_new(s, THING_TEXT, a->span);
        t->text = a->name;
        return t;
    case AST_BOOL: return thing_bool(s, a->flag, a->span);
    case AST_NAME: return eval_name(s, a);
    case AST_FIELD: return eval_field(s, a);
    case AST_CALL: return sem_call(s, a);
    case AST_INDEX: return eval_index(s, a);
    case AST_TRANSPOSE: return eval_transpose(s, a);
    case AST_UNARY: return eval_unary(s, a);
    case AST_BINARY: return eval_binary(s, a);
    case AST_RANGE: return eval_range(s, a);
    case AST_TUPLE:
    case AST_LIST: return eval_list(s, a);
    case AST_LIST_FOR: return eval_list_for(s, a);
    case AST_CHOICE:
        if (!sem_eval_bool(s, a->cond, "the condition of if", &yes))
            return thing_poison(s);
        return sem_eval(s, yes ? a->left : a->right);
    case AST_SCAN: return sem_scan(s, a);
    case AST_BAD: return thing_poison(s);
    default:
        sem_error(s, a->span, "%s has no meaning here", ast_kind_text(a->kind));
        return thing_poison(s);
    }
}
