/* eval.c -- the slow, obvious evaluator: a graph's sinks in double.
 *
 * In: a graph, values of dims, parameters, inputs, seeds. Out: the values of its sinks. Every live
 * node is evaluated once in id order by its row's function; a loop evaluates its body once for
 * each iteration. It folds constants, is the oracle of the tests and checks rewrite rules.
 */
#include "op/rows.h"

Tensor tensor_new(Arena *a, const Type *t, const int64_t *dims)
{
    Tensor x = { .rank = t->rank, .elems = 1 };
    for (int k = 0; k < t->rank; k++) {
        x.dim[k] = dim_eval(t->dim[k], dims);
        if (x.dim[k] < 0)
            bug("axis %d of a tensor has size %lld", k, (long long)x.dim[k]);
        x.elems *= x.dim[k];
    }
    x.at = NEW_ARRAY(a, double, x.elems + 1);
    return x;
}

Tensor *ir_eval(Arena *a, Graph *g, const EvalEnv *env)
{
    bool *live = graph_live(g);
    Tensor **value = NEW_ARRAY(a, Tensor *, g->nodes.len + 1);
    for (int id = 0; id < g->nodes.len; id++) {
        const Node *n = g->nodes.at[id];
        if (!live[id])
            continue;
        const Tensor **in = NEW_ARRAY(a, const Tensor *, n->n_in + 1);
        for (int i = 0; i < n->n_in; i++)
            in[i] = value[n->in[i]->id];
        value[id] = NEW_ARRAY(a, Tensor, n->n_out);
        for (int k = 0; k < n->n_out; k++)
            value[id][k] = tensor_new(a, n->types[k], env->dims);
        op_row(n->op)->eval(a, n, in, value[id], env);
    }
    Tensor *sinks = NEW_ARRAY(a, Tensor, g->sinks.len + 1);
    for (int i = 0; i < g->sinks.len; i++)
        sinks[i] = value[g->sinks.at[i].node->id][0];
    return sinks;
}

/* Element `index` along the first axis, in place. */
static Tensor tensor_slice(const Tensor *t, int64_t index)
{
    Tensor s = { .rank = t->rank - 1, .elems = t->dim[0] ? t->elems / t->dim[0] : 0 };
    for (int k = 1; k < t->rank; k++)
        s.dim[k - 1] = t->dim[k];
    s.at = t->at + index * s.elems;
    return s;
}

static void tensor_copy(Tensor *to, const Tensor *from)
{
    for (int64_t i = 0; i < from->elems; i++)
        to->at[i] = from->at[i];
}

/* Rows [from, from + n) along the first axis, in place. */
static Tensor tensor_rows(const Tensor *t, int64_t from, int64_t n)
{
    const int64_t row = t->dim[0] ? t->elems / t->dim[0] : 0;
    Tensor s = *t;
    s.dim[0] = n;
    s.elems = n * row;
    s.at = t->at + from * row;
    return s;
}

/* What iteration i has of a sliced input or a stacked result. */
static Tensor loop_slice(const Loop *l, const Tensor *t, int64_t i, const EvalEnv *env)
{
    if (!l->part)
        return tensor_slice(t, i);
    return tensor_rows(t, i * dim_eval(l->part->step, env->dims), env->dims[l->part->id]);
}

/* The dims of iteration i, in which the last part is what is left. */
static const int64_t *loop_dims(Arena *a, const Loop *l, int64_t i, const EvalEnv *env)
{
    if (!l->part)
        return env->dims;
    const int n = dims_count(l->body->program->dims);
    int64_t *dims = NEW_ARRAY(a, int64_t, n + 1);
    for (int k = 0; k < n; k++)
        dims[k] = env->dims[k];
    const int64_t step = dim_eval(l->part->step, env->dims);
    const int64_t left = dim_eval(l->part->whole, env->dims) - i * step;
    dims[l->part->id] = left < step ? left : step;
    return dims;
}

EVAL(eval_loop)
{
    const Loop *l = n->attr.loop;
    int64_t trip = dim_eval(l->trip, env->dims);
    double iteration = 0;
    Tensor *args = NEW_ARRAY(a, Tensor, n->n_in + 1);
    EvalEnv inner = *env;
    inner.args = args;
    for (int i = 0; i < n->n_in; i++)
        args[i] = *in[i];
    args[n->n_in] = (Tensor){ .elems = 1, .at = &iteration };
    for (int64_t step = 0; step < trip; step++) {
        int64_t i = l->reverse ? trip - 1 - step : step;
        iteration = (double)i;
        inner.dims = loop_dims(a, l, i, env);
        for (int k = l->n_carry; k < l->n_carry + l->n_slice; k++)
            args[k] = loop_slice(l, in[k], i, &inner);
        Tensor *result = ir_eval(a, l->body, &inner);
        for (int s = 0; s < l->body->sinks.len; s++) {
            int k = l->body->sinks.at[s].index;
            if (k < l->n_carry) {
                args[k] = result[s];
            } else {
                Tensor place = loop_slice(l, &out[k], i, &inner);
                tensor_copy(&place, &result[s]);
            }
        }
    }
    for (int k = 0; k < l->n_carry; k++)
        tensor_copy(&out[k], &args[k]);
}
