/* sem_shape.c -- written types, the sizes of a signature, broadcasting, axes by name.
 *
 * In: types as written and values that meet them. Out: types; fresh names of a signature bound to
 * the sizes of its arguments; or one message with both types and where each size comes from.
 */
#include "front/sem_parts.h"

#include <string.h>

const Type *sem_type(Sem *s, DType t, int rank, const Dim *const *dim)
{
    return type_of(s->dims, t, rank, dim);
}

bool sem_is_one(const Dim *d)
{
    int64_t v;
    return dim_literal(d, &v) && v == 1;
}

int sem_batch_axis(const Type *t)
{
    for (int i = 0; i < t->rank; i++)
        if (dim_has_kind(t->dim[i], SYM_BATCH))
            return i;
    return -1;
}

/* ---- written types ------------------------------------------------------------------------- */

bool sem_type_dtype(Sem *s, const Ast *type, DType *dtype)
{
    static const char *const words[] = { "real", "int", "bool" };
    static const DType types[] = { DT_F32, DT_I32, DT_BOOL };
    *dtype = DT_F32;
    if (!type->name)
        return true;
    for (int i = 0; i < 3; i++)
        if (strcmp(type->name, words[i]) == 0) {
            *dtype = types[i];
            return true;
        }
    Diag *d = sem_error(s, type->at, "unknown type %s: int, real or bool wanted", type->name);
    sem_did_you_mean(d, type->name, words, 3);
    return false;
}

/* The constants of a size that is wrong: it is told once, not at each place that uses them. */
void sem_poison_constants(Sem *s, const Ast *a)
{
    if (!a)
        return;
    sem_poison_constants(s, a->left);
    sem_poison_constants(s, a->right);
    Scope *sc = a->kind == AST_NAME && s->frame ? s->frame->scope : NULL;
    for (; sc; sc = sc->parent) {
        const Thing *t = scope_find_here(sc, a->name);
        int64_t v;
        if (t && (t->kind == THING_REAL || thing_whole(t, &v))) {
            scope_set(s, sc, a->name, thing_poison(s));
            return;
        }
    }
}

static const Dim *eval_size(Sem *s, const Ast *a, const char *what)
{
    const Dim *d = sem_eval_dim(s, a, "a size");
    int64_t v;
    if (d && dim_value(d, &v) && v < 1) {
        Diag *diag = sem_error(s, a->span, "size %s of %s must be at least 1", sem_dim_text(s, d),
                               what);
        sem_note_dim(s, diag, d);
        sem_poison_constants(s, a);
        return NULL;
    }
    return d;
}

static bool too_many_axes(Sem *s, Span at, int rank)
{
    if (rank <= RANK_MAX)
        return false;
    sem_error(s, at, "%d axes: a value has at most %d", rank, RANK_MAX);
    return true;
}

const Type *sem_eval_type(Sem *s, const Ast *type, const char *what)
{
    DType dtype;
    const Dim *dim[RANK_MAX];
    bool fine = sem_type_dtype(s, type, &dtype);
    if (too_many_axes(s, type->span, type->items.len))
        return NULL;
    for (int i = 0; i < type->items.len; i++) {
        if (type->items.at[i]->kind == AST_ELLIPSIS) {
            sem_error(s, type->items.at[i]->span, "%s needs all its sizes: ... is for signatures",
                      what);
            return NULL;
        }
        dim[i] = eval_size(s, type->items.at[i], what);
        fine = fine && dim[i];
    }
    if (!fine)
        return NULL;
    const Type *t = sem_type(s, dtype, type->items.len, dim);
    if (dim_overflows(type_elems(s->dims, t))) {
        sem_error(s, type->span, "%s has more elements than 64 bits can count", what);
        return NULL;
    }
    return t;
}

/* Sizes given to reshape, zeros and others: list items, or arguments in brackets. */
bool sem_eval_shape(Sem *s, const AstList *items, bool args, int *rank, const Dim **dim)
{
    *rank = 0;
    bool fine = true;
    for (int i = 0; i < items->len; i++) {
        const Ast *a = args ? items->at[i]->value : items->at[i];
        if (a->kind == AST_ELLIPSIS) {
            if (!s->frame->rest) {
                sem_error(s, a->span, "... is not bound: no argument of this %s has it in its type",
                          s->frame->inst ? "layer" : "function");
                return false;
            }
            if (too_many_axes(s, a->span, *rank + s->frame->n_rest))
                return false;
            for (int k = 0; k < s->frame->n_rest; k++)
                dim[(*rank)++] = s->frame->rest[k];
            continue;
        }
        if (too_many_axes(s, a->span, *rank + 1))
            return false;
        const Dim *d = eval_size(s, a, "a shape");
        fine = fine && d;
        dim[(*rank)++] = d;
    }
    return fine;
}

/* ---- signatures ---------------------------------------------------------------------------- */

/* What a name of the signature stands for already: a bracket argument, a size bound so far, or a
   constant of the file. Names of run-time sizes are fresh at each application. */
static Thing *find_own(const Sem *s, const char *name)
{
    const Frame *f = s->matching;
    for (const Scope *sc = f->scope; sc && sc != f->decl->scope; sc = sc->parent) {
        Thing *t = scope_find_here(sc, name);
        if (t)
            return t;
    }
    Thing *outside = scope_find(f->decl->scope, name);
    int64_t v;
    return outside && thing_whole(outside, &v) ? outside : NULL;
}

static const char *signature_text(Sem *s, const Ast *type)
{
    Text out = text_new(s->arena);
    text_add(&out, "%s[", type->name ? type->name : "");
    for (int i = 0; i < type->items.len; i++)
        text_add(&out, "%s%s", i ? ", " : "",
                 type->items.at[i]->kind == AST_ELLIPSIS ? "..."
                                                         : ast_expr_text(s->cx, type->items.at[i]));
    text_put(&out, "]");
    return out.at;
}

static void mismatch(Sem *s, const Ast *type, const Expr *e, const Ast *arg, const char *who,
                     const Ast *item, const Dim *want, const Dim *got)
{
    Span at = arg ? arg->span : e->span;
    const char *wanted = signature_text(s, type), *is = sem_type_text(s, e->type);
    Diag *d;
    if (want && item->kind != AST_NUMBER)
        d = sem_error(s, at, "%s must be %s with %s = %s, but is %s: %s here", who, wanted,
                      ast_expr_text(s->cx, item), sem_dim_text(s, want), is, sem_dim_text(s, got));
    else
        d = sem_error(s, at, "%s must be %s, but is %s", who, wanted, is);
    if (!s->matching->decl->prelude)
        sem_note(s, d, type->span, "wanted here");
    sem_note_value(s, d, arg, e);
    sem_note_dim(s, d, got);
}

static bool match_size(Sem *s, const Ast *type, const Expr *e, const Ast *arg, const char *who,
                       int round, const Ast *item, const Dim *got)
{
    if (item->kind == AST_NAME) {
        Thing *own = find_own(s, item->name);
        if (!own && round == 0) {
            scope_set(s, s->matching->scope, item->name, thing_dim(s, got, e->span));
            return true;
        }
        if (!own)
            return true;
    }
    if (round == 0)
        return true;
    Frame *caller = s->frame;
    s->frame = s->matching;
    const Dim *want = sem_eval_dim(s, item, "a size");
    s->frame = caller;
    if (!want)
        return false;
    if (dim_same(want, got))
        return true;
    mismatch(s, type, e, arg, who, item, want, got);
    return false;
}

static bool match_rest(Sem *s, const Expr *e, const Ast *arg, const char *who, int at, int n)
{
    Frame *f = s->matching;
    if (!f->rest) {
        f->rest = NEW_ARRAY(s->arena, const Dim *, n + 1);
        f->n_rest = n;
        for (int i = 0; i < n; i++)
            f->rest[i] = e->type->dim[at + i];
        return true;
    }
    bool same = n == f->n_rest;
    for (int i = 0; same && i < n; i++)
        same = dim_same(f->rest[i], e->type->dim[at + i]);
    if (!same) {
        Diag *d = sem_error(s, arg ? arg->span : e->span,
                            "%s is %s: its ... stands for other "
                            "sizes than that of the arguments before",
                            who, sem_type_text(s, e->type));
        sem_note_value(s, d, arg, e);
    }
    return same;
}

/* int[...] in 0..V in a signature: what is known of the argument must lie inside. */
static bool match_range(Sem *s, const Ast *type, const Expr *e, const Ast *arg, const char *who)
{
    Frame *caller = s->frame;
    s->frame = s->matching;
    const Dim *lo = sem_eval_dim(s, type->value->left, "the start of a range");
    const Dim *hi = sem_eval_dim(s, type->value->right, "the end of a range");
    s->frame = caller;
    if (!lo || !hi)
        return false;
    if (e->from && e->to && sem_known_le(s, lo, e->from) && sem_known_le(s, e->to, hi))
        return true;
    Diag *d = sem_error(s, arg ? arg->span : e->span, "%s must be in %s..%s", who,
                        sem_dim_text(s, lo), sem_dim_text(s, hi));
    if (e->from && e->to)
        sem_note(s, d, e->span, "it is in %s..%s", sem_dim_text(s, e->from),
                 sem_dim_text(s, e->to));
    return false;
}

bool sem_match_type(Sem *s, const Ast *type, const Expr *e, const Ast *arg, const char *who,
                    int round)
{
    DType dtype;
    if (!sem_type_dtype(s, type, &dtype))
        return false;
    if (dtype != e->type->dtype) {
        static const char *const words[] = { "bool", "int", "real", "real" };
        Diag *d = sem_error(s, arg ? arg->span : e->span, "%s must be %s, but is %s", who,
                            words[dtype], words[e->type->dtype]);
        sem_note_value(s, d, arg, e);
        sem_hint(d, dtype == DT_BOOL  ? "bool(x) is true where x is not 0"
                    : dtype == DT_I32 ? "int(x) drops the fraction"
                                      : "real(x) converts");
        return false;
    }
    if (round == 1 && type->value && !match_range(s, type, e, arg, who))
        return false;
    if (!type->flag)
        return true;
    int rest = -1, n = type->items.len, rank = e->type->rank;
    for (int i = 0; i < n; i++)
        if (type->items.at[i]->kind == AST_ELLIPSIS)
            rest = i;
    if (rest < 0 ? n != rank : rank < n - 1) {
        mismatch(s, type, e, arg, who, NULL, NULL, NULL);
        return false;
    }
    int extra = rank - n; /* axes more than items */
    bool fine = true;
    for (int i = 0; i < n; i++) {
        if (i == rest)
            fine = match_rest(s, e, arg, who, i, extra + 1) && fine;
        else
            fine = match_size(s, type, e, arg, who, round, type->items.at[i],
                              e->type->dim[rest >= 0 && i > rest ? i + extra : i])
                   && fine;
        if (!fine)
            return false;
    }
    return fine;
}

/* ---- broadcasting -------------------------------------------------------------------------- */

static void broadcast_error(Sem *s, const Ast *at, const Expr *a, const Expr *b, const Dim *x,
                            const Dim *y)
{
    bool binary = at->kind == AST_BINARY;
    Diag *d = sem_error(s, at->at, "sizes differ in %s: %s against %s", ast_expr_text(s->cx, at),
                        sem_dim_text(s, x), sem_dim_text(s, y));
    if (binary) {
        sem_mark(d, at->left->span);
        sem_mark(d, at->right->span);
    }
    sem_note_value(s, d, binary ? at->left : NULL, a);
    sem_note_value(s, d, binary ? at->right : NULL, b);
    sem_note_dim(s, d, x);
    sem_note_dim(s, d, y);
}

/* Is one name on two axes although neither operand has it on both? */
static bool spread_twice(const Type *out, const Expr *a, const Expr *b, int *axis)
{
    int64_t v;
    for (int i = 0; i < out->rank; i++)
        for (int j = i + 1; j < out->rank; j++) {
            if (out->dim[i] != out->dim[j] || dim_literal(out->dim[i], &v))
                continue;
            bool both = false;
            const Expr *operand[2] = { a, b };
            for (int k = 0; k < 2; k++) {
                const Type *t = operand[k]->type;
                int skip = out->rank - t->rank;
                both = both
                       || (i >= skip && !sem_is_one(t->dim[i - skip])
                           && !sem_is_one(t->dim[j - skip]));
            }
            *axis = i;
            if (!both)
                return true;
        }
    return false;
}

/* The shape of a and b together, aligned at the last axis, with a's dtype; NULL after an error. */
const Type *sem_broadcast(Sem *s, const Ast *at, const Expr *a, const Expr *b)
{
    const Type *ta = a->type, *tb = b->type;
    int rank = ta->rank > tb->rank ? ta->rank : tb->rank, axis;
    const Dim *dim[RANK_MAX];
    int64_t number;
    for (int i = 0; i < rank; i++) {
        int ia = i - (rank - ta->rank), ib = i - (rank - tb->rank);
        const Dim *x = ia < 0 ? NULL : ta->dim[ia], *y = ib < 0 ? NULL : tb->dim[ib];
        if (!x || !y)
            dim[i] = x ? x : y;
        else if (dim_same(x, y))
            dim[i] = dim_literal(x, &number) ? y : x; /* the one with a name */
        else if (sem_is_one(x) || sem_is_one(y))
            dim[i] = sem_is_one(x) ? y : x;
        else {
            broadcast_error(s, at, a, b, x, y);
            return NULL;
        }
    }
    const Type *out = sem_type(s, ta->dtype, rank, dim);
    if (ta->rank && tb->rank && spread_twice(out, a, b, &axis)) {
        Diag *d = sem_error(s, at->at, "%s would have %s on two axes: %s", ast_expr_text(s->cx, at),
                            dim_text(s->cx, out->dim[axis]), sem_type_text(s, out));
        sem_note_value(s, d, at->kind == AST_BINARY ? at->left : NULL, a);
        sem_note_value(s, d, at->kind == AST_BINARY ? at->right : NULL, b);
        sem_hint(d, "if that is meant, say it: broadcast(x, [.., %s, .., %s])",
                 dim_text(s->cx, out->dim[axis]), dim_text(s->cx, out->dim[axis]));
        return NULL;
    }
    return out;
}

/* ---- axes ---------------------------------------------------------------------------------- */

static bool axis_by_number(Sem *s, const Ast *a, const Type *t, int64_t n, int *axis)
{
    int64_t k = n < 0 ? n + t->rank : n;
    if (t->rank == 0) {
        sem_error(s, a->span, "a single number has no axes");
        return false;
    }
    if (k < 0 || k >= t->rank) {
        sem_error(s, a->span, "there is no axis %lld in %s", (long long)n, sem_type_text(s, t));
        return false;
    }
    *axis = (int)k;
    return true;
}

/* An axis by its size's name, or by number, from the end when negative. */
static bool axis_of_thing(Sem *s, const Thing *th, const Ast *a, const Type *t, int *axis)
{
    int64_t n;
    if (th->kind == THING_POISON)
        return false;
    if (th->kind != THING_DIM) {
        sem_error(s, a->span, "an axis is the name of a size or a number, not %s",
                  thing_text(s, th));
        return false;
    }
    if (th->literal && thing_whole(th, &n))
        return axis_by_number(s, a, t, n, axis);
    int found = 0;
    for (int exact = 1; exact >= 0 && !found; exact--)
        for (int i = 0; i < t->rank; i++)
            if (exact ? t->dim[i] == th->dim : dim_same(t->dim[i], th->dim)) {
                *axis = i;
                found++;
            }
    if (found == 1)
        return true;
    Diag *d = sem_error(s, a->span, found ? "%s is on several axes of %s" : "%s is no axis of %s",
                        dim_text(s->cx, th->dim), sem_type_text(s, t));
    if (found)
        sem_hint(d, "give the axis by number: 0 is the first, -1 the last");
    return false;
}

bool sem_find_axis(Sem *s, const Ast *a, const Type *t, int *axis)
{
    return axis_of_thing(s, sem_eval(s, a), a, t, axis);
}

/* One axis or several in parentheses; ascending. */
bool sem_find_axes(Sem *s, const Ast *a, const Type *t, int *n, int *axes)
{
    bool seen[RANK_MAX] = { false };
    Thing *th = sem_eval(s, a);
    int count = th->kind == THING_TUPLE ? th->items.len : 1;
    for (int i = 0; i < count; i++) {
        int axis;
        if (!axis_of_thing(s, th->kind == THING_TUPLE ? th->items.at[i] : th, a, t, &axis))
            return false;
        if (seen[axis]) {
            sem_error(s, a->span, "an axis is given twice in %s", ast_expr_text(s->cx, a));
            return false;
        }
        seen[axis] = true;
    }
    *n = 0;
    for (int i = 0; i < t->rank; i++)
        if (seen[i])
            axes[(*n)++] = i;
    return true;
}
