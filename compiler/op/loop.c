/* loop.c -- the loop op and the op that takes one result of several: their types.
 *
 * What a loop's inputs, body arguments and results are is said at Loop in ir.h; pass/grad.c makes
 * the adjoint, ir/eval.c the value.
 */
#include "op/rows.h"

/* The sink of a body's result k, or NULL. */
static const Node *body_result(const Graph *body, int k)
{
    for (int i = 0; i < body->sinks.len; i++)
        if (body->sinks.at[i].kind == SINK_RESULT && body->sinks.at[i].index == k)
            return body->sinks.at[i].node;
    return NULL;
}

/* Is the type of a body argument right for the input that feeds it? */
static const char *check_argument(const Loop *l, int i, const Type *given, const Type *wanted)
{
    if (i < l->n_carry || i >= l->n_carry + l->n_slice)
        return type_same(given, wanted) ? NULL : "an argument of the body has another type";
    if (given->rank < 1 || !dim_same(given->dim[0], l->part ? l->part->whole : l->trip))
        return l->part ? "a sliced input has not the rows that are done in parts"
                       : "a sliced input has not one element for each iteration";
    const int gone = l->part ? 0 : 1; /* axes that a slice has less */
    bool same = given->dtype == wanted->dtype && given->rank == wanted->rank + gone;
    for (int k = 1 - gone; same && k < wanted->rank; k++)
        same = dim_same(given->dim[k + gone], wanted->dim[k]);
    if (l->part && same)
        same = dim_has_symbol(wanted->dim[0], l->part);
    return same ? NULL : "a slice has not the type of its argument of the body";
}

static const Type *stacked_type(Dims *ds, const Type *t, const Loop *l)
{
    const Dim *dim[RANK_MAX] = { l->part ? l->part->whole : l->trip };
    const int more = l->part ? 0 : 1;
    for (int k = 1 - more; k < t->rank; k++)
        dim[k + more] = t->dim[k];
    return type_of(ds, t->dtype, t->rank + more, dim);
}

SHAPE(shape_loop)
{
    const Loop *l = attr->loop;
    if (!l || !l->body || !l->trip)
        return shape_refuse(why, "no body is given");
    if (n_in != l->n_carry + l->n_slice + l->n_shared)
        return shape_refuse(why, "the number of inputs is wrong");
    if (l->body->args.len != n_in + 1)
        return shape_refuse(why, "the body has not one argument for each input, and the iteration");
    for (int i = 0; i < n_in; i++) {
        const char *wrong = check_argument(l, i, in[i]->type, l->body->args.at[i]->type);
        if (wrong)
            return shape_refuse(why, wrong);
    }
    for (int i = 0; i < l->n_carry + l->n_stack; i++) {
        const Node *r = body_result(l->body, i);
        if (!r)
            return shape_refuse(why, "a result of the body is missing");
        if (i < l->n_carry && !type_same(r->type, in[i]->type))
            return shape_refuse(why, "a carried value changes its type");
        if (i >= l->n_carry && !l->part && r->type->rank == RANK_MAX)
            return shape_refuse(why, "a stacked result would have too many axes");
        if (i >= l->n_carry && l->part
            && (r->type->rank < 1 || !dim_has_symbol(r->type->dim[0], l->part)))
            return shape_refuse(why, "a stacked result has not the rows of a part");
        out[i] = i < l->n_carry ? in[i]->type : stacked_type(ds, r->type, l);
    }
    return l->n_carry + l->n_stack ? l->n_carry + l->n_stack
                                   : shape_refuse(why, "a loop without results does nothing");
}

SHAPE(shape_result)
{
    (void)ds;
    (void)n_in;
    if (attr->index < 0 || attr->index >= in[0]->n_out || in[0]->n_out < 2)
        return shape_refuse(why, "no such result");
    out[0] = in[0]->types[attr->index];
    return 1;
}

EVAL(eval_result)
{
    (void)a;
    (void)env;
    const Tensor *from = &in[0][n->attr.index];
    for (int64_t i = 0; i < out->elems; i++)
        out->at[i] = from->at[i];
}
