/* contract.c -- batched matrix products: shape, transpose, value.
 *
 * a[..,i,k] b[..,k,j]; with ta or tb the operand is stored with its last two axes exchanged. No
 * adjoint needs a transpose of its own: the flags of the two products express all of it.
 */
#include "op/rows.h"

SHAPE(shape_matmul)
{
    (void)n_in;
    const Type *a = in[0]->type, *b = in[1]->type;
    int r = a->rank;
    if (r < 2 || b->rank != r)
        return shape_refuse(why, "two matrices, or two equal stacks of them, are wanted");
    if (!dtype_is_real(a->dtype) || a->dtype != b->dtype)
        return shape_refuse(why, "real numbers of one dtype are wanted");
    for (int i = 0; i < r - 2; i++)
        if (!dim_same(a->dim[i], b->dim[i]))
            return shape_refuse(why, "the leading axes differ");
    if (!dim_same(a->dim[attr->ta ? r - 2 : r - 1], b->dim[attr->tb ? r - 1 : r - 2]))
        return shape_refuse(why, "the inner sizes differ");
    const Dim *dim[RANK_MAX];
    for (int i = 0; i < r - 2; i++)
        dim[i] = a->dim[i];
    dim[r - 2] = a->dim[attr->ta ? r - 1 : r - 2];
    dim[r - 1] = b->dim[attr->tb ? r - 2 : r - 1];
    out[0] = type_of(ds, a->dtype, r, dim);
    return 1;
}

TRANSPOSES(transpose_matmul)
{
    Node *x = a->in[0], *y = a->in[1], *d = a->d_out[0];
    bool ta = a->n->attr.ta, tb = a->n->attr.tb;
    d_in[0] = ta ? ir_matmul(a->g, y, d, tb, true, a->at)
                 : ir_matmul(a->g, d, y, false, !tb, a->at);
    d_in[1] = tb ? ir_matmul(a->g, d, x, true, ta, a->at)
                 : ir_matmul(a->g, x, d, !ta, false, a->at);
}

EVAL(eval_matmul)
{
    (void)a;
    (void)env;
    int r = out->rank;
    bool ta = n->attr.ta, tb = n->attr.tb;
    int64_t depth = in[0]->dim[ta ? r - 2 : r - 1];
    for (int64_t i = 0; i < out->elems; i++) {
        int64_t idx[RANK_MAX], x[RANK_MAX], y[RANK_MAX];
        index_split(out, i, idx);
        for (int k = 0; k < r - 2; k++)
            x[k] = y[k] = idx[k];
        for (int64_t k = 0; k < depth; k++) {
            x[r - 2] = ta ? k : idx[r - 2];
            x[r - 1] = ta ? idx[r - 2] : k;
            y[r - 2] = tb ? idx[r - 1] : k;
            y[r - 1] = tb ? k : idx[r - 1];
            out->at[i] += in[0]->at[index_join(in[0], x)] * in[1]->at[index_join(in[1], y)];
        }
    }
}
