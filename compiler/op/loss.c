/* loss.c -- cross entropy of logits against labels: shape, adjoint, value, expansion.
 *
 * cross_entropy(x[..,V], t[..]) = (lse - x[t], lse) with lse = log sum exp x, which is saved for
 * the adjoint: d_x = d (exp(x - lse) - [v = t]). A negative label gives 0, and its logits have
 * no influence.
 */
#include "op/rows.h"

#include <math.h>

SHAPE(shape_cross_entropy)
{
    (void)n_in;
    (void)attr;
    const Type *x = in[0]->type, *t = in[1]->type;
    if (!dtype_is_real(x->dtype) || x->rank < 1)
        return shape_refuse(why, "the logits are no rows of real numbers");
    if (t->dtype != DT_I32)
        return shape_refuse(why, "the labels are no integers");
    const Type *rows = type_of(ds, x->dtype, x->rank - 1, x->dim);
    if (!type_same_shape(rows, t))
        return shape_refuse(why, "one label for each row of logits is wanted");
    out[0] = out[1] = rows;
    return 2;
}

/* row[..] repeated along the last axis of x. */
static Node *along_rows(Graph *g, Node *row, const Node *x, Span at)
{
    static const int axes[RANK_MAX] = { 0, 1, 2, 3, 4, 5, 6, 7 };
    return ir_broadcast(g, row, x->type->rank, x->type->dim, axes, at);
}

/* [v = t], of the shape of x. */
static Node *is_label(Graph *g, Node *x, Node *t, Span at)
{
    Node *v = ir_iota(g, x->type->rank, x->type->dim, x->type->rank - 1, at);
    return ir_binary(g, OP_EQ, v, along_rows(g, t, x, at), at);
}

static Node *is_counted(Graph *g, Node *t, Span at)
{
    return ir_binary(g, OP_LE, ir_const(g, DT_I32, 0, at), t, at);
}

TRANSPOSES(transpose_cross_entropy)
{
    Graph *g = a->g;
    Span at = a->at;
    Node *x = a->in[0], *t = a->in[1];
    DType dtype = x->type->dtype;
    Node *zero = ir_const(g, dtype, 0, at);
    Node *lse = along_rows(g, a->out[1], x, at);
    Node *p = ir_unary(g, OP_EXP, ir_binary(g, OP_SUB, x, lse, at), at);
    d_in[0] = d_in[1] = NULL;
    if (a->d_out[0]) {
        Node *label = ir_cast(g, is_label(g, x, t, at), dtype, at);
        Node *d = along_rows(g, a->d_out[0], x, at);
        Node *term = ir_binary(g, OP_MUL, d, ir_binary(g, OP_SUB, p, label, at), at);
        d_in[0] = ir_where(g, along_rows(g, is_counted(g, t, at), x, at), term, zero, at);
    }
    if (a->d_out[1]) {
        Node *term = ir_binary(g, OP_MUL, along_rows(g, a->d_out[1], x, at), p, at);
        d_in[0] = d_in[0] ? ir_binary(g, OP_ADD, d_in[0], term, at) : term;
    }
}

/* The shift by the maximum changes no value, so it has no derivative either. */
EXPAND(expand_cross_entropy)
{
    Span at = n->span;
    Node *x = in[0], *t = in[1];
    int last = x->type->rank - 1;
    Node *zero = ir_const(g, x->type->dtype, 0, at);
    Node *m = ir_unary(g, OP_STOP, ir_reduce(g, OP_AMAX, x, 1, &last, at), at);
    Node *e = ir_unary(g, OP_EXP, ir_binary(g, OP_SUB, x, along_rows(g, m, x, at), at), at);
    Node *z = ir_reduce(g, OP_SUM, e, 1, &last, at);
    Node *lse = ir_binary(g, OP_ADD, m, ir_unary(g, OP_LOG, z, at), at);
    Node *own = ir_where(g, is_label(g, x, t, at), x, zero, at);
    Node *picked = ir_reduce(g, OP_SUM, own, 1, &last, at);
    out[0] = ir_where(g, is_counted(g, t, at), ir_binary(g, OP_SUB, lse, picked, at), zero, at);
    out[1] = lse;
}

EVAL(eval_cross_entropy)
{
    (void)a;
    (void)n;
    (void)env;
    const Tensor *x = in[0], *t = in[1];
    int64_t width = x->dim[x->rank - 1];
    for (int64_t i = 0; i < t->elems; i++) {
        const double *row = x->at + i * width;
        double m = -INFINITY, z = 0;
        int64_t label = (int64_t)t->at[i];
        for (int64_t v = 0; v < width; v++)
            m = row[v] > m ? row[v] : m;
        for (int64_t v = 0; v < width; v++)
            z += exp(row[v] - m);
        double lse = m + log(z);
        out[1].at[i] = lse;
        out[0].at[i] = label < 0 ? 0 : lse - (label < width ? row[label] : 0);
    }
}
