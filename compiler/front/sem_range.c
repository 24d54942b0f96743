/* sem_range.c -- what is known of whole numbers while compiling.
 *
 * In: a pointwise value whose operands have their ranges. Out: its own: from <= value < to, NULL
 * where nothing is known. A value chosen by where(condition, a, b) is known to fulfil the
 * condition, which is how an index is kept inside a table.
 */
#include "front/sem_parts.h"

#include <string.h>

typedef struct {
    const Dim *from, *to;
} Range;

static const Dim *larger(Sem *s, const Dim *a, const Dim *b)
{
    if (!a || !b)
        return NULL;
    return sem_known_le(s, a, b) ? b : sem_known_le(s, b, a) ? a : NULL;
}

static const Dim *smaller(Sem *s, const Dim *a, const Dim *b)
{
    if (!a || !b)
        return NULL;
    return sem_known_le(s, a, b) ? a : sem_known_le(s, b, a) ? b : NULL;
}

/* ---- conditions ---------------------------------------------------------------------------- */

/* The tighter of two bounds that both hold. */
static const Dim *tighter(const Dim *old, const Dim *new, const Dim *best)
{
    return !new ? old : !old ? new : best ? best : old;
}

static void raise(Sem *s, Range *r, const Dim *from)
{
    r->from = tighter(r->from, from, larger(s, r->from, from));
}

static void lower(Sem *s, Range *r, const Dim *to)
{
    r->to = tighter(r->to, to, smaller(s, r->to, to));
}

/* x is below y (or equal, if equal is true): what this says of e, which is one of them. */
static void narrow_by_order(Sem *s, const Expr *x, const Expr *y, bool equal, const Expr *e,
                            Range *r)
{
    const Dim *one = dim_const(s->dims, 1);
    if (e == x && y->to)
        lower(s, r, equal ? y->to : dim_sub(s->dims, y->to, one));
    if (e == y && x->from)
        raise(s, r, equal ? x->from : dim_add(s->dims, x->from, one));
}

/* e is not the mark of a label to ignore: it is in the range of the others. */
static void narrow_by_mark(Sem *s, const Expr *x, const Expr *y, const Expr *e, Range *r)
{
    const Expr *mark = e == x ? y : x;
    if ((e != x && e != y) || e->kind != EX_INPUT || mark->kind != EX_CONST)
        return;
    const CheckedInput *in = &s->out->inputs.at[e->index];
    if (in->has_ignore && mark->value == (double)in->ignore)
        raise(s, r, in->lo);
}

/* Narrows the range of e to where cond is true, or false. */
static void narrow(Sem *s, const Expr *cond, bool yes, const Expr *e, Range *r)
{
    if (cond->kind != EX_POINT)
        return;
    const char *op = cond->op;
    if (strcmp(op, "not") == 0) {
        narrow(s, cond->in[0], !yes, e, r);
        return;
    }
    if (cond->n_in != 2)
        return;
    const Expr *x = cond->in[0], *y = cond->in[1];
    const bool less = strcmp(op, "lt") == 0, at_most = strcmp(op, "le") == 0;
    if (strcmp(op, yes ? "and" : "or") == 0) {
        narrow(s, x, yes, e, r);
        narrow(s, y, yes, e, r);
    } else if ((less || at_most) && yes) {
        narrow_by_order(s, x, y, at_most, e, r);
    } else if (less || at_most) {
        narrow_by_order(s, y, x, less, e, r);
    } else if (strcmp(op, yes ? "ne" : "eq") == 0) {
        narrow_by_mark(s, x, y, e, r);
    }
}

static Range range_if(Sem *s, const Expr *cond, bool yes, const Expr *e)
{
    Range r = { e->from, e->to };
    narrow(s, cond, yes, e, &r);
    return r;
}

/* ---- operations ---------------------------------------------------------------------------- */

static bool is_one_number(Sem *s, const Expr *e)
{
    return e->from && e->to && dim_same(dim_add(s->dims, e->from, dim_const(s->dims, 1)), e->to);
}

/* What is known of the whole numbers that op gives: from <= value < to, each NULL if unknown. */
void sem_find_range(Sem *s, Expr *e)
{
    Dims *ds = s->dims;
    const Dim *one = dim_const(ds, 1);
    bool where = strcmp(e->op, "where") == 0;
    const Expr *a = e->n_in > 1 ? e->in[where] : NULL, *b = a ? e->in[where + 1] : NULL;
    if (e->type->dtype != DT_I32 || !a)
        return;
    bool both = a->from && a->to && b->from && b->to;
    if (where) {
        const Range x = range_if(s, e->in[0], true, a), y = range_if(s, e->in[0], false, b);
        e->from = smaller(s, x.from, y.from);
        e->to = larger(s, x.to, y.to);
    } else if (strcmp(e->op, "add") == 0 && both) {
        e->from = dim_add(ds, a->from, b->from);
        e->to = dim_sub(ds, dim_add(ds, a->to, b->to), one);
    } else if (strcmp(e->op, "sub") == 0 && both) {
        e->from = dim_add(ds, dim_sub(ds, a->from, b->to), one);
        e->to = dim_sub(ds, a->to, b->from);
    } else if (strcmp(e->op, "mod") == 0 && is_one_number(s, b) && sem_known_le(s, one, b->from)) {
        e->from = dim_const(ds, 0);
        e->to = b->from;
    } else if (strcmp(e->op, "fdiv") == 0 && both && is_one_number(s, b)
               && sem_known_le(s, one, b->from)) {
        e->from = dim_floor_div(ds, a->from, b->from);
        e->to = dim_add(ds, dim_floor_div(ds, dim_sub(ds, a->to, one), b->from), one);
    } else if (strcmp(e->op, "mul") == 0 && both && sem_known_le(s, dim_const(ds, 0), a->from)
               && sem_known_le(s, dim_const(ds, 0), b->from)) {
        e->from = dim_mul(ds, a->from, b->from);
        e->to = dim_add(ds, dim_mul(ds, dim_sub(ds, a->to, one), dim_sub(ds, b->to, one)), one);
        if (!sem_known_le(s, e->to, dim_const(ds, INT32_MAX)))
            e->from = e->to = NULL; /* it may wrap */
    } else if (strcmp(e->op, "max") == 0) {
        e->from = a->from && b->from ? larger(s, a->from, b->from) : a->from ? a->from : b->from;
        e->to = larger(s, a->to, b->to);
    } else if (strcmp(e->op, "min") == 0) {
        e->from = smaller(s, a->from, b->from);
        e->to = a->to && b->to ? smaller(s, a->to, b->to) : a->to ? a->to : b->to;
    }
}
