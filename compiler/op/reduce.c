/* reduce.c -- sums, extrema and their places over axes: shapes, transposes, values.
 *
 * A reduction drops its axes. The adjoint of a sum is the adjoint of the result, repeated; that of
 * an extremum goes to the elements that attain it, in equal shares.
 */
#include "op/rows.h"

#include <math.h>

static const char *check_axes(const Type *t, const Attr *attr)
{
    for (int i = 0; i < attr->n_axes; i++)
        if (attr->axes[i] < 0 || attr->axes[i] >= t->rank
            || (i && attr->axes[i] <= attr->axes[i - 1]))
            return "the axes are not ascending axes of the operand";
    return attr->n_axes ? NULL : "no axis is given";
}

/* Axis k of the operand: is it reduced? */
static bool is_reduced(const Attr *attr, int k)
{
    for (int i = 0; i < attr->n_axes; i++)
        if (attr->axes[i] == k)
            return true;
    return false;
}

static const Type *drop_axes(Dims *ds, DType dtype, const Type *t, const Attr *attr)
{
    const Dim *dim[RANK_MAX];
    int rank = 0;
    for (int k = 0; k < t->rank; k++)
        if (!is_reduced(attr, k))
            dim[rank++] = t->dim[k];
    return type_of(ds, dtype, rank, dim);
}

SHAPE(shape_reduce)
{
    (void)n_in;
    const Type *t = in[0]->type;
    const char *wrong = check_axes(t, attr);
    if (wrong)
        return shape_refuse(why, wrong);
    if (t->dtype == DT_BOOL)
        return shape_refuse(why, "truth values are counted after a cast");
    out[0] = drop_axes(ds, t->dtype, t, attr);
    return 1;
}

SHAPE(shape_argreduce)
{
    if (!shape_reduce(ds, n_in, in, attr, out, why))
        return 0;
    if (attr->n_axes != 1)
        return shape_refuse(why, "one axis is wanted");
    out[0] = drop_axes(ds, DT_I32, in[0]->type, attr);
    return 1;
}

/* ---- transposes ---------------------------------------------------------------------------- */

/* x, which has dropped the axes of a->n, repeated along them again. */
static Node *undrop(const Adjoint *a, Node *x)
{
    const Type *t = a->in[0]->type;
    int axes[RANK_MAX], rank = 0;
    for (int k = 0; k < t->rank; k++)
        if (!is_reduced(&a->n->attr, k))
            axes[rank++] = k;
    return ir_broadcast(a->g, x, t->rank, t->dim, axes, a->at);
}

TRANSPOSES(transpose_sum) { d_in[0] = undrop(a, a->d_out[0]); }

TRANSPOSES(transpose_extremum)
{
    Graph *g = a->g;
    DType dtype = a->n->type->dtype;
    Node *here = ir_binary(g, OP_EQ, a->in[0], undrop(a, a->out[0]), a->at);
    Node *ties = ir_reduce(g, OP_SUM, ir_cast(g, here, dtype, a->at), a->n->attr.n_axes,
                           a->n->attr.axes, a->at);
    Node *share = ir_binary(g, OP_DIV, a->d_out[0], ties, a->at);
    d_in[0] = ir_where(g, here, undrop(a, share), ir_const(g, dtype, 0, a->at), a->at);
}

/* ---- values -------------------------------------------------------------------------------- */

/* Does x take the place of best? A NaN does, once. */
static bool beats(Op op, double x, double best)
{
    bool smaller = op == OP_AMIN || op == OP_ARGMIN;
    return !isnan(best) && (isnan(x) || (smaller ? x < best : x > best));
}

EVAL(eval_reduce)
{
    (void)env;
    double *best = NEW_ARRAY(a, double, out->elems);
    bool *seen = NEW_ARRAY(a, bool, out->elems);
    bool place = n->op == OP_ARGMAX || n->op == OP_ARGMIN;
    for (int64_t i = 0; i < in[0]->elems; i++) {
        int64_t idx[RANK_MAX], kept[RANK_MAX];
        int rank = 0;
        index_split(in[0], i, idx);
        for (int k = 0; k < in[0]->rank; k++)
            if (!is_reduced(&n->attr, k))
                kept[rank++] = idx[k];
        int64_t to = index_join(out, kept);
        double x = in[0]->at[i];
        if (n->op == OP_SUM) {
            out->at[to] += x;
        } else if (!seen[to] || beats(n->op, x, best[to])) {
            best[to] = x;
            out->at[to] = place ? (double)idx[n->attr.axes[0]] : x;
        }
        seen[to] = true;
    }
}
