/* move.c -- ops that only move elements: shapes, transposes, values.
 *
 * Each is linear and the transpose of another: slice of pad, broadcast of sum, concat of slices.
 */
#include "op/rows.h"

/* ---- shapes -------------------------------------------------------------------------------- */

SHAPE(shape_transpose)
{
    (void)n_in;
    const Type *t = in[0]->type;
    const Dim *dim[RANK_MAX];
    unsigned seen = 0;
    for (int k = 0; k < attr->n_axes; k++) {
        if (attr->axes[k] < 0 || attr->axes[k] >= t->rank)
            return shape_refuse(why, "no such axis");
        seen |= 1u << attr->axes[k];
        dim[k] = t->dim[attr->axes[k]];
    }
    if (attr->n_axes != t->rank || seen != (1u << t->rank) - 1)
        return shape_refuse(why, "the axes are not an order of all axes");
    out[0] = type_of(ds, t->dtype, t->rank, dim);
    return 1;
}

SHAPE(shape_concat)
{
    int axis = attr->axes[0];
    if (n_in < 1 || attr->n_axes != 1 || axis < 0 || axis >= in[0]->type->rank)
        return shape_refuse(why, "no such axis");
    const Dim *dim[RANK_MAX];
    for (int k = 0; k < in[0]->type->rank; k++)
        dim[k] = in[0]->type->dim[k];
    for (int i = 1; i < n_in; i++) {
        const Type *t = in[i]->type;
        if (t->rank != in[0]->type->rank || t->dtype != in[0]->type->dtype)
            return shape_refuse(why, "the ranks or dtypes differ");
        for (int k = 0; k < t->rank; k++)
            if (k != axis && !dim_same(t->dim[k], dim[k]))
                return shape_refuse(why, "the other sizes differ");
        dim[axis] = dim_add(ds, dim[axis], t->dim[axis]);
    }
    out[0] = type_of(ds, in[0]->type->dtype, in[0]->type->rank, dim);
    return 1;
}

CHECK(check_reshape)
{
    (void)n_in;
    (void)attr;
    Dims *ds = g->program->dims;
    if (type->dtype != in[0]->type->dtype)
        return "the dtype changes";
    return dim_same(type_elems(ds, type), type_elems(ds, in[0]->type))
               ? NULL
               : "the number of elements changes";
}

CHECK(check_broadcast)
{
    (void)g;
    (void)n_in;
    const Type *t = in[0]->type;
    if (type->dtype != t->dtype)
        return "the dtype changes";
    if (attr->n_axes != t->rank || type->rank < t->rank)
        return "each axis of the operand needs a place in the result";
    for (int k = 0; k < t->rank; k++) {
        if (attr->axes[k] < 0 || attr->axes[k] >= type->rank
            || (k && attr->axes[k] <= attr->axes[k - 1]))
            return "the axes are not ascending axes of the result";
        if (!dim_same(t->dim[k], type->dim[attr->axes[k]]))
            return "the sizes differ";
    }
    return NULL;
}

/* Is lo + size <= all, as far as it is known? */
static const char *check_box(const Graph *g, const Type *box, const Type *all, const Attr *attr)
{
    if (box->rank != all->rank || box->dtype != all->dtype)
        return "the rank or the dtype changes";
    for (int k = 0; k < box->rank; k++) {
        int64_t lo, end, size;
        if (!attr->lo[k])
            return "a first index is missing";
        const Dim *hi = dim_add(g->program->dims, attr->lo[k], box->dim[k]);
        if ((dim_value(attr->lo[k], &lo) && lo < 0)
            || (dim_value(hi, &end) && dim_value(all->dim[k], &size) && end > size))
            return "it reaches over the end";
    }
    return NULL;
}

CHECK(check_slice)
{
    (void)n_in;
    return check_box(g, type, in[0]->type, attr);
}
CHECK(check_pad)
{
    (void)n_in;
    return check_box(g, in[0]->type, type, attr);
}

/* ---- transposes ---------------------------------------------------------------------------- */

TRANSPOSES(transpose_reshape)
{
    d_in[0] = ir_reshape(a->g, a->d_out[0], a->in[0]->type->rank, a->in[0]->type->dim, a->at);
}

TRANSPOSES(transpose_transpose)
{
    int back[RANK_MAX] = { 0 };
    for (int k = 0; k < a->n->attr.n_axes; k++)
        back[a->n->attr.axes[k]] = k;
    d_in[0] = ir_transpose(a->g, a->d_out[0], back, a->at);
}

TRANSPOSES(transpose_broadcast)
{
    int axes[RANK_MAX], n = 0;
    for (int k = 0, next = 0; k < a->n->type->rank; k++) {
        if (next < a->n->attr.n_axes && a->n->attr.axes[next] == k)
            next++;
        else
            axes[n++] = k;
    }
    d_in[0] = n ? ir_reduce(a->g, OP_SUM, a->d_out[0], n, axes, a->at) : a->d_out[0];
}

TRANSPOSES(transpose_slice)
{
    d_in[0] = ir_pad(a->g, a->d_out[0], a->n->attr.lo, a->in[0]->type->dim, a->at);
}

TRANSPOSES(transpose_pad)
{
    d_in[0] = ir_slice(a->g, a->d_out[0], a->n->attr.lo, a->in[0]->type->dim, a->at);
}

TRANSPOSES(transpose_concat)
{
    Dims *ds = a->g->program->dims;
    const Dim *lo[RANK_MAX];
    int axis = a->n->attr.axes[0];
    for (int k = 0; k < RANK_MAX; k++)
        lo[k] = dim_const(ds, 0);
    for (int i = 0; i < a->n->n_in; i++) {
        d_in[i] = ir_slice(a->g, a->d_out[0], lo, a->in[i]->type->dim, a->at);
        lo[axis] = dim_add(ds, lo[axis], a->in[i]->type->dim[axis]);
    }
}

/* ---- values -------------------------------------------------------------------------------- */

static void eval_concat(const Node *n, const Tensor *const *in, Tensor *out)
{
    int axis = n->attr.axes[0];
    int64_t first = 0;
    for (int k = 0; k < n->n_in; k++) {
        for (int64_t i = 0; i < in[k]->elems; i++) {
            int64_t idx[RANK_MAX];
            index_split(in[k], i, idx);
            idx[axis] += first;
            out->at[index_join(out, idx)] = in[k]->at[i];
        }
        first += in[k]->dim[axis];
    }
}

/* Where element idx of the result comes from; false: from nowhere, it is 0. */
static bool move_source(const Node *n, const Tensor *in, const int64_t *lo, const int64_t *idx,
                        int64_t *from)
{
    bool inside = true;
    for (int k = 0; k < in->rank; k++) {
        switch (n->op) {
        case OP_BROADCAST: from[k] = idx[n->attr.axes[k]]; break;
        case OP_SLICE: from[k] = idx[k] + lo[k]; break;
        default: from[k] = idx[k] - lo[k]; break;
        }
        inside &= from[k] >= 0 && from[k] < in->dim[k];
    }
    if (n->op == OP_TRANSPOSE)
        for (int k = 0; k < in->rank; k++)
            from[n->attr.axes[k]] = idx[k];
    return inside || n->op == OP_TRANSPOSE;
}

EVAL(eval_move)
{
    (void)a;
    int64_t lo[RANK_MAX] = { 0 };
    if (n->op == OP_CONCAT) {
        eval_concat(n, in, out);
        return;
    }
    for (int k = 0; k < n->type->rank; k++)
        lo[k] = n->attr.lo[k] ? dim_eval(n->attr.lo[k], env->dims) : 0;
    for (int64_t i = 0; i < out->elems; i++) {
        int64_t idx[RANK_MAX], from[RANK_MAX];
        if (n->op == OP_RESHAPE) {
            out->at[i] = in[0]->at[i];
            continue;
        }
        index_split(out, i, idx);
        if (move_source(n, in[0], lo, idx, from))
            out->at[i] = in[0]->at[index_join(in[0], from)];
    }
}
