/* index.c -- rows by index: gather and its transpose, scatter with addition.
 *
 * gather(table[N,..], ids[..]) has the shape of ids, then the table's without its first axis.
 * Indexes are in range because inputs are checked when they are read; the evaluator gives NaN for
 * an index outside and adds nothing there.
 */
#include "op/rows.h"

#include <math.h>

SHAPE(shape_gather)
{
    (void)n_in;
    (void)attr;
    const Type *table = in[0]->type, *ids = in[1]->type;
    const Dim *dim[RANK_MAX];
    if (table->rank < 1 || ids->rank + table->rank - 1 > RANK_MAX)
        return shape_refuse(why, table->rank < 1 ? "a scalar has no rows" : "too many axes");
    if (ids->dtype != DT_I32)
        return shape_refuse(why, "indexes are integers");
    for (int k = 0; k < ids->rank; k++)
        dim[k] = ids->dim[k];
    for (int k = 1; k < table->rank; k++)
        dim[ids->rank + k - 1] = table->dim[k];
    out[0] = type_of(ds, table->dtype, ids->rank + table->rank - 1, dim);
    return 1;
}

CHECK(check_scatter)
{
    (void)g;
    (void)n_in;
    (void)attr;
    const Type *ids = in[0]->type, *rows = in[1]->type;
    if (ids->dtype != DT_I32)
        return "indexes are integers";
    if (type->dtype != rows->dtype || type->dtype == DT_BOOL)
        return "the dtype changes";
    if (type->rank < 1 || rows->rank != ids->rank + type->rank - 1)
        return "one row for each index is wanted";
    for (int k = 0; k < rows->rank; k++)
        if (!dim_same(rows->dim[k], k < ids->rank ? ids->dim[k] : type->dim[k - ids->rank + 1]))
            return "the sizes differ";
    return NULL;
}

TRANSPOSES(transpose_gather)
{
    d_in[0] = ir_scatter(a->g, a->in[1], a->d_out[0], a->in[0]->type->dim[0], a->at);
    d_in[1] = NULL;
}

TRANSPOSES(transpose_scatter)
{
    d_in[0] = NULL;
    d_in[1] = ir_gather(a->g, a->d_out[0], a->in[0], a->at);
}

EVAL(eval_gather)
{
    (void)a;
    (void)n;
    (void)env;
    const Tensor *table = in[0], *ids = in[1];
    int64_t width = table->dim[0] ? table->elems / table->dim[0] : 0;
    for (int64_t i = 0; i < ids->elems; i++) {
        int64_t row = (int64_t)ids->at[i];
        bool inside = row >= 0 && row < table->dim[0];
        for (int64_t k = 0; k < width; k++)
            out->at[i * width + k] = inside ? table->at[row * width + k] : NAN;
    }
}

EVAL(eval_scatter)
{
    (void)a;
    (void)n;
    (void)env;
    const Tensor *ids = in[0], *rows = in[1];
    int64_t width = out->dim[0] ? out->elems / out->dim[0] : 0;
    for (int64_t i = 0; i < ids->elems; i++) {
        int64_t row = (int64_t)ids->at[i];
        for (int64_t k = 0; k < width && row >= 0 && row < out->dim[0]; k++)
            out->at[row * width + k] += rows->at[i * width + k];
    }
}
