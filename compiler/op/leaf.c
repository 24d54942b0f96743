/* leaf.c -- values that are computed from no other: constants, parameters, inputs, arguments of
 * loop bodies, seeds and means of slots, dims, indexes.
 *
 * In: attributes. Out: checks of their types against the program, and their values.
 */
#include "op/rows.h"

CHECK(check_leaf)
{
    (void)g;
    (void)n_in;
    (void)in;
    (void)attr;
    return type->rank == 0 ? NULL : "a constant is a scalar";
}

CHECK(check_param)
{
    (void)n_in;
    (void)in;
    if (attr->index < 0 || attr->index >= g->program->params.len)
        return "no such parameter";
    if (!type_same(type, g->program->params.at[attr->index].stacked))
        return "not the type of that parameter";
    return g->parent ? "a parameter reaches a loop body as an argument" : NULL;
}

CHECK(check_input)
{
    (void)n_in;
    (void)in;
    if (attr->index < 0 || attr->index >= g->program->inputs.len)
        return "no such input";
    if (!type_same(type, g->program->inputs.at[attr->index].type))
        return "not the type of that input";
    return g->parent ? "an input reaches a loop body as an argument" : NULL;
}

CHECK(check_arg)
{
    (void)n_in;
    (void)in;
    if (attr->index < 0 || attr->index > g->args.len)
        return "no such argument";
    if (attr->arg == ARG_ITER && (type->dtype != DT_I32 || type->rank != 0))
        return "the iteration is an i32 scalar";
    return NULL;
}

CHECK(check_slot)
{
    (void)n_in;
    (void)in;
    if (attr->index < 0 || attr->index >= g->program->means.len)
        return "no such mean";
    return type->rank == 0 && dtype_is_real(type->dtype) ? NULL : "a real scalar is wanted";
}

CHECK(check_dim)
{
    (void)g;
    (void)n_in;
    (void)in;
    if (!attr->dim)
        return "no dim is given";
    return type->rank == 0 && type->dtype != DT_BOOL ? NULL : "the value of a dim is a scalar";
}

CHECK(check_iota)
{
    (void)g;
    (void)n_in;
    (void)in;
    if (attr->n_axes != 1 || attr->axes[0] < 0 || attr->axes[0] >= type->rank)
        return "the axis is not one of the result's";
    return type->dtype == DT_BOOL ? "an index is a number" : NULL;
}

/* ---- values -------------------------------------------------------------------------------- */

static void copy_elems(Tensor *out, const Tensor *from)
{
    if (out->elems != from->elems)
        bug("a tensor of %lld elements was given for one of %lld", (long long)from->elems,
            (long long)out->elems);
    for (int64_t i = 0; i < out->elems; i++)
        out->at[i] = from->at[i];
}

EVAL(eval_const)
{
    (void)a;
    (void)in;
    (void)env;
    out->at[0] = n->attr.value;
}
EVAL(eval_param)
{
    (void)a;
    (void)in;
    copy_elems(out, &env->params[n->attr.index]);
}
EVAL(eval_input)
{
    (void)a;
    (void)in;
    copy_elems(out, &env->inputs[n->attr.index]);
}
EVAL(eval_arg)
{
    (void)a;
    (void)in;
    copy_elems(out, &env->args[n->attr.index]);
}
EVAL(eval_seed)
{
    (void)a;
    (void)in;
    out->at[0] = env->seeds[n->attr.index];
}
EVAL(eval_mean)
{
    (void)a;
    (void)in;
    out->at[0] = env->means[n->attr.index];
}

EVAL(eval_dim)
{
    (void)a;
    (void)in;
    out->at[0] = (double)dim_eval(n->attr.dim, env->dims);
}

EVAL(eval_iota)
{
    (void)a;
    (void)in;
    (void)env;
    int64_t idx[RANK_MAX];
    for (int64_t i = 0; i < out->elems; i++) {
        index_split(out, i, idx);
        out->at[i] = (double)idx[n->attr.axes[0]];
    }
}
