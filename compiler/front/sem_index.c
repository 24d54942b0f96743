/* sem_index.c -- brackets behind a value, rows by index, and products.
 *
 * In: x[...], table[ids], a @ b. Out: slices, gathers and products with checked bounds: a position
 * is proven to be inside, or it is an error. Whole numbers carry their range for that.
 */
#include "front/sem_parts.h"

/* ---- gather -------------------------------------------------------------------------------- */

static const char *name_of(const Expr *e, const char *other) { return e->name ? e->name : other; }

/* The same values in the same mistake are told once, wherever they index. */
static bool is_told(Sem *s, const Expr *ids, const Dim *rows)
{
    while (ids->kind == EX_RESHAPE || ids->kind == EX_TRANSPOSE || ids->kind == EX_SLICE)
        ids = ids->in[0];
    for (int i = 0; i < s->unsafe.len; i++)
        if (s->unsafe.at[i].ids == ids
            && (!s->unsafe.at[i].rows || (rows && dim_same(s->unsafe.at[i].rows, rows))))
            return true;
    vec_push(s->arena, &s->unsafe, ((Unsafe){ ids, rows }));
    return false;
}

/* Reports an index that is not proven to be one of the rows. */
static void unsafe_index(Sem *s, const Ast *a, const Expr *table, const Expr *ids)
{
    const Dim *rows = table->type->dim[0];
    const char *name = name_of(ids, "this index");
    const bool open = !ids->from || !ids->to;
    if (is_told(s, ids, open ? NULL : rows))
        return;
    Diag *d;
    if (open) {
        d = sem_error(s, a->span, "nothing says that %s is from 0 to below %s", name,
                      sem_dim_text(s, rows));
        sem_hint(d, "declare the range of an input: int[B] in 0..%s; or keep inside with i %% %s",
                 dim_text(s->cx, rows), dim_text(s->cx, rows));
    } else if (!sem_known_le(s, dim_const(s->dims, 0), ids->from)) {
        d = sem_error(s, a->span, "%s may be %s, below 0", name, sem_dim_text(s, ids->from));
        sem_hint(d, "max(i, 0) keeps it above");
    } else {
        d = sem_error(s, a->span, "%s may be %s, but there are %s rows", name,
                      sem_dim_text(s, dim_sub(s->dims, ids->to, dim_const(s->dims, 1))),
                      sem_dim_text(s, rows));
    }
    sem_note_value(s, d, NULL, ids);
    sem_note_value(s, d, NULL, table);
}

static bool is_safe(Sem *s, const Expr *table, const Expr *ids)
{
    return ids->from && ids->to && sem_known_le(s, dim_const(s->dims, 0), ids->from)
           && sem_known_le(s, ids->to, table->type->dim[0]);
}

Expr *sem_gather(Sem *s, const Ast *a, Expr *table, Expr *ids)
{
    const Dim *rows = table->type->dim[0], *dim[RANK_MAX];
    if (!sem_no_mixing(s, a->span, rows, "taking elements"))
        return NULL;
    if (ids->type->rank + table->type->rank - 1 > RANK_MAX) {
        sem_error(s, a->span, "the result has more than %d axes", RANK_MAX);
        return NULL;
    }
    if (!is_safe(s, table, ids)) {
        unsafe_index(s, a, table, ids);
        return NULL;
    }
    if (ids->counts) /* rows in order: wpe(0..T) */
        return expr_slice(s, table, 0, ids->from, ids->type->dim[0], a->span);
    int rank = 0;
    for (int i = 0; i < ids->type->rank; i++)
        dim[rank++] = ids->type->dim[i];
    for (int i = 1; i < table->type->rank; i++)
        dim[rank++] = table->type->dim[i];
    Expr *in[2] = { table, ids };
    Expr *e = expr_new(s, EX_GATHER, sem_type(s, table->type->dtype, rank, dim), 2, in, a->span);
    e->from = table->from;
    e->to = table->to;
    return e;
}

bool sem_in_loop(const Expr *e, const CheckedLoop *loop)
{
    for (const CheckedLoop *l = e->home; l; l = l->parent)
        if (l == loop)
            return true;
    return false;
}

/* ---- one index ----------------------------------------------------------------------------- */

static Expr *move_axis(Sem *s, Expr *e, int from, int to, Span at)
{
    int axes[RANK_MAX], n = 0;
    for (int i = 0; i < e->type->rank; i++)
        if (i != from)
            axes[n++] = i;
    for (int i = n; i > to; i--)
        axes[i] = axes[i - 1];
    axes[to] = from;
    return expr_transpose(s, e, axes, at);
}

static Expr *drop_axis(Sem *s, Expr *e, int axis, Span at)
{
    const Dim *dim[RANK_MAX];
    int rank = 0;
    for (int i = 0; i < e->type->rank; i++)
        if (i != axis)
            dim[rank++] = e->type->dim[i];
    return expr_reshape(s, e, rank, dim, at);
}

/* Negative numbers count from the end. */
static const Dim *from_end(Sem *s, const Dim *d, const Dim *size)
{
    int64_t v;
    return d && dim_value(d, &v) && v < 0 ? dim_add(s->dims, size, d) : d;
}

static bool check_from(Sem *s, const Ast *a, const Dim *lo)
{
    return sem_require_le(s, a->span, dim_const(s->dims, 0), lo,
                          a->kind == AST_RANGE ? "the start of a slice" : "an index");
}

static Expr *index_range(Sem *s, const Ast *a, Expr *e, int axis, const Dim *lo, const Dim *hi)
{
    const Dim *size = e->type->dim[axis];
    int64_t zero;
    lo = from_end(s, lo, size);
    hi = from_end(s, hi, size);
    bool whole = dim_value(lo, &zero) && zero == 0 && dim_same(hi, size);
    if (whole)
        return e;
    if (!sem_no_mixing(s, a->span, size, "a slice") || !check_from(s, a, lo)
        || !sem_require_le(s, a->span, hi, size, "the end of a slice"))
        return NULL;
    const Dim *n = dim_sub(s->dims, hi, lo);
    int64_t count;
    if (dim_value(n, &count) && count < 1) {
        sem_error(s, a->span, "the slice %s is empty", ast_expr_text(s->cx, a));
        return NULL;
    }
    return expr_slice(s, e, axis, lo, n, a->span);
}

static Expr *index_number(Sem *s, const Ast *a, Expr *e, int axis, const Dim *k)
{
    const Dim *size = e->type->dim[axis], *one = dim_const(s->dims, 1), *written = k;
    int64_t at, have;
    k = from_end(s, k, size);
    if (dim_value(k, &at) && dim_value(size, &have) && (at < 0 || at >= have)) {
        Diag *d = sem_error(s, a->span, "index %s is outside 0..%lld", sem_dim_text(s, written),
                            (long long)have);
        sem_note_value(s, d, NULL, e);
        sem_note_dim(s, d, size);
        return NULL;
    }
    if (!sem_no_mixing(s, a->span, size, "an index") || !check_from(s, a, k)
        || !sem_require_le(s, a->span, dim_add(s->dims, k, one), size, "an index"))
        return NULL;
    return drop_axis(s, expr_slice(s, e, axis, k, one, a->span), axis, a->span);
}

static Expr *index_values(Sem *s, const Ast *a, Expr *e, int axis, Expr *ids)
{
    if (ids->type->dtype != DT_I32) {
        Diag *d = sem_error(s, a->span, "an index must be int, but %s is %s",
                            ast_expr_text(s->cx, a), sem_type_text(s, ids->type));
        sem_note_value(s, d, a, ids);
        if (ids->type->dtype == DT_BOOL)
            sem_hint(d, "choose with where(condition, x, 0), or average with mean(x, where: ...)");
        return NULL;
    }
    Expr *g = sem_gather(s, a, move_axis(s, e, axis, 0, a->span), ids);
    if (!g || axis == 0)
        return g;
    int axes[RANK_MAX], n = ids->type->rank, rank = g->type->rank, k = 0;
    for (int i = 0; i < axis; i++)
        axes[k++] = n + i;
    for (int i = 0; i < n; i++)
        axes[k++] = i;
    for (int i = n + axis; i < rank; i++)
        axes[k++] = i;
    return expr_transpose(s, g, axes, a->span);
}

static Expr *index_iter(Sem *s, const Ast *a, Expr *e, int axis, Thing *it)
{
    const Dim *size = e->type->dim[axis];
    if (sem_in_loop(e, it->loop))
        return index_values(s, a, e, axis, expr_iter(s, it, a->span));
    if (!sem_no_mixing(s, a->span, size, "a loop") || !check_from(s, a, it->dim)
        || !sem_require_le(s, a->span, dim_add(s->dims, it->dim, it->loop->trip), size, "an index"))
        return NULL;
    Expr *moved = move_axis(s, e, axis, 0, a->span);
    Expr *part = expr_slice(s, moved, 0, it->dim, it->loop->trip, a->span);
    return expr_elem(s, it->loop, part, a->span);
}

static Expr *index_one(Sem *s, const Ast *a, Expr *e, int axis)
{
    if (a->kind == AST_WHOLE)
        return e;
    if (a->kind == AST_RANGE) {
        const Dim *lo = a->left ? sem_eval_dim(s, a->left, "the start of a slice")
                                : dim_const(s->dims, 0);
        const Dim *hi = a->right ? sem_eval_dim(s, a->right, "the end of a slice")
                                 : e->type->dim[axis];
        return lo && hi ? index_range(s, a, e, axis, lo, hi) : NULL;
    }
    Thing *t = sem_eval(s, a);
    switch (t->kind) {
    case THING_RANGE: return index_range(s, a, e, axis, t->dim, t->to);
    case THING_DIM: return index_number(s, a, e, axis, t->dim);
    case THING_ITER: return index_iter(s, a, e, axis, t);
    default: {
        Expr *ids = sem_to_value(s, t, DT_COUNT, a);
        return ids ? index_values(s, a, e, axis, ids) : NULL;
    }
    }
}

/* The last index first, so that the axes before it keep their numbers. */
Thing *sem_index(Sem *s, const Ast *a, Expr *e)
{
    int n = a->args.len, rest = -1, rank = e->type->rank;
    for (int i = 0; i < n; i++) {
        const Ast *item = a->args.at[i];
        if (item->name) {
            sem_error(s, item->span, "an index has no name");
            return thing_poison(s);
        }
        if (item->value->kind == AST_ELLIPSIS && rest >= 0) {
            sem_error(s, item->span, "... can stand once between brackets");
            return thing_poison(s);
        }
        rest = item->value->kind == AST_ELLIPSIS ? i : rest;
    }
    if (n - (rest >= 0) > rank || n == 0) {
        Diag *d = sem_error(s, a->span, "%d indexes for %d axes", n - (rest >= 0), rank);
        sem_note_value(s, d, a->left, e);
        return thing_poison(s);
    }
    for (int i = n - 1; i >= 0; i--) {
        if (i == rest)
            continue;
        e = index_one(s, a->args.at[i]->value, e, rest >= 0 && i > rest ? rank - (n - i) : i);
        if (!e)
            return thing_poison(s);
    }
    return thing_value(s, e);
}

/* ---- products ------------------------------------------------------------------------------ */

static void matmul_error(Sem *s, const Ast *a, const Expr *l, const Expr *r)
{
    const Dim *x = l->type->dim[l->type->rank - 1];
    const Dim *y = r->type->dim[r->type->rank > 1 ? r->type->rank - 2 : 0];
    Diag *d = sem_error(s, a->at, "inner sizes differ in %s: %s against %s",
                        ast_expr_text(s->cx, a), sem_dim_text(s, x), sem_dim_text(s, y));
    if (a->kind == AST_BINARY) {
        sem_mark(d, a->left->span);
        sem_mark(d, a->right->span);
    }
    sem_note_value(s, d, a->left, l);
    sem_note_value(s, d, a->right, r);
    sem_note_dim(s, d, x);
    sem_note_dim(s, d, y);
    if (r->type->rank >= 2 && a->kind == AST_BINARY && dim_same(x, r->type->dim[r->type->rank - 1]))
        sem_hint(d, "write %s @ %s'", ast_expr_text(s->cx, a->left),
                 ast_expr_text(s->cx, a->right));
}

/* The leading axes of a product, broadcast; NULL after an error. */
static const Type *leading(Sem *s, const Ast *a, Expr *l, Expr *r)
{
    Expr x = *l, y = *r;
    x.type = sem_type(s, DT_F32, l->type->rank - 2, l->type->dim);
    y.type = sem_type(s, DT_F32, r->type->rank - 2, r->type->dim);
    return sem_broadcast(s, a, &x, &y);
}

Expr *sem_matmul(Sem *s, const Ast *a, Expr *l, Expr *r)
{
    Expr *side[2] = { l, r };
    for (int i = 0; i < 2; i++) {
        const Ast *where = i ? a->right : a->left;
        if (side[i]->type->rank == 0) {
            Diag *d = sem_error(s, a->at, "@ multiplies matrices, but %s is a single number",
                                ast_expr_text(s->cx, where));
            sem_hint(d, "* multiplies element by element");
            return NULL;
        }
        side[i] = expr_cast(s, side[i], DT_F32, where->span);
    }
    bool row = l->type->rank == 1, column = r->type->rank == 1;
    const Dim *one = dim_const(s->dims, 1), *inner = l->type->dim[l->type->rank - 1];
    if (!dim_same(inner, r->type->dim[column ? 0 : r->type->rank - 2])) {
        matmul_error(s, a, l, r);
        return NULL;
    }
    if (!sem_no_mixing(s, a->at, inner, "a product that sums"))
        return NULL;
    if (row)
        side[0] = expr_reshape(s, side[0], 2, (const Dim *[]){ one, inner }, a->span);
    if (column)
        side[1] = expr_reshape(s, side[1], 2, (const Dim *[]){ inner, one }, a->span);
    const Type *x = side[0]->type, *y = side[1]->type, *lead = leading(s, a, side[0], side[1]);
    if (!lead)
        return NULL;
    const Dim *dim[RANK_MAX];
    int rank = lead->rank;
    for (int i = 0; i < rank; i++)
        dim[i] = lead->dim[i];
    dim[rank++] = x->dim[x->rank - 2];
    dim[rank++] = y->dim[y->rank - 1];
    for (int i = 0; i < rank - 1; i++)
        if (dim_has_kind(dim[i], SYM_BATCH)
            && !sem_no_mixing(s, a->at, dim[rank - 1], "a product of all pairs"))
            return NULL;
    Expr *e = expr_new(s, EX_MATMUL, sem_type(s, DT_F32, rank, dim), 2, side, a->span);
    if (column)
        rank--;
    if (row) {
        dim[rank - (column ? 1 : 2)] = dim[rank - 1];
        rank--;
    }
    return expr_reshape(s, e, rank, dim, a->span);
}
