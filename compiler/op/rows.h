/* rows.h -- the functions that rows of ops.def name, by family file. For compiler/op and ir/eval.c.
 */
#ifndef GRADCC_ROWS_H
#define GRADCC_ROWS_H

#include "ir/program.h"
#include "op/op.h"

#define SHAPE(f)                                                                                   \
    int f(Dims *ds, int n_in, Node *const *in, const Attr *attr, const Type **out, const char **why)
#define CHECK(f)                                                                                   \
    const char *f(const Graph *g, const Type *type, int n_in, Node *const *in, const Attr *attr)
#define TRANSPOSES(f) void f(const Adjoint *a, Node **d_in)
#define EVAL(f)                                                                                    \
    void f(Arena *a, const Node *n, const Tensor *const *in, Tensor *out, const EvalEnv *env)
#define EXPAND(f) void f(Graph *g, const Node *n, Node *const *in, Node **out)

/* leaf.c */
CHECK(check_leaf);
CHECK(check_param);
CHECK(check_input);
CHECK(check_arg);
CHECK(check_slot);
CHECK(check_dim);
CHECK(check_iota);
EVAL(eval_const);
EVAL(eval_param);
EVAL(eval_input);
EVAL(eval_arg);
EVAL(eval_seed);
EVAL(eval_mean);
EVAL(eval_dim);
EVAL(eval_iota);

/* point.c */
SHAPE(shape_point);
SHAPE(shape_real);
SHAPE(shape_same);
SHAPE(shape_compare);
SHAPE(shape_logic);
SHAPE(shape_where);
CHECK(check_cast);
TRANSPOSES(transpose_where);
TRANSPOSES(transpose_cast);
TRANSPOSES(transpose_narrow);
EVAL(eval_point);
EVAL(eval_cast);

/* reduce.c */
SHAPE(shape_reduce);
SHAPE(shape_argreduce);
TRANSPOSES(transpose_sum);
TRANSPOSES(transpose_extremum);
EVAL(eval_reduce);

/* contract.c */
SHAPE(shape_matmul);
TRANSPOSES(transpose_matmul);
EVAL(eval_matmul);

/* move.c */
SHAPE(shape_transpose);
SHAPE(shape_concat);
CHECK(check_reshape);
CHECK(check_broadcast);
CHECK(check_slice);
CHECK(check_pad);
TRANSPOSES(transpose_reshape);
TRANSPOSES(transpose_transpose);
TRANSPOSES(transpose_broadcast);
TRANSPOSES(transpose_slice);
TRANSPOSES(transpose_pad);
TRANSPOSES(transpose_concat);
EVAL(eval_move);

/* index.c */
SHAPE(shape_gather);
CHECK(check_scatter);
TRANSPOSES(transpose_gather);
TRANSPOSES(transpose_scatter);
EVAL(eval_gather);
EVAL(eval_scatter);

/* random.c */
CHECK(check_draw);
EVAL(eval_draw);

/* loss.c */
SHAPE(shape_cross_entropy);
TRANSPOSES(transpose_cross_entropy);
EVAL(eval_cross_entropy);
EXPAND(expand_cross_entropy);

/* attention.c */
SHAPE(shape_attention);
SHAPE(shape_attention_grad);
TRANSPOSES(transpose_attention);
EVAL(eval_attention);
EVAL(eval_attention_grad);
EXPAND(expand_attention);
EXPAND(expand_attention_grad);

/* loop.c; eval_loop is in ir/eval.c, where graphs are evaluated */
SHAPE(shape_loop);
SHAPE(shape_result);
EVAL(eval_loop);
EVAL(eval_result);

/* An error of a shape rule. */
static inline int shape_refuse(const char **why, const char *text)
{
    *why = text;
    return 0;
}

/* The multi-index of a flat row-major index, and back. */
static inline void index_split(const Tensor *t, int64_t flat, int64_t *idx)
{
    for (int i = t->rank - 1; i >= 0; i--) {
        idx[i] = flat % t->dim[i];
        flat /= t->dim[i];
    }
}

static inline int64_t index_join(const Tensor *t, const int64_t *idx)
{
    int64_t flat = 0;
    for (int i = 0; i < t->rank; i++)
        flat = flat * t->dim[i] + idx[i];
    return flat;
}

#endif
