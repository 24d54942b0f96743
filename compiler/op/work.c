/* work.c -- what it takes to compute a node: floating-point operations and time.
 *
 * In: a node, the sizes by symbol id. Out: FLOPs of one evaluation, and the time it takes in units
 * of a FLOP of a large product. The one idea: a call is bound by its arithmetic or by the memory it
 * touches, whichever takes longer; all else is bound by memory.
 */
#include "op/op.h"

enum {
    FLOPS_PER_BYTE = 6, /* of products, in the time in which a byte passes through memory */
    ATTENTION_SLOW = 2, /* times as long per FLOP as a product */
};

static double elems_of(const Type *t, const int64_t *dims)
{
    double n = 1;
    for (int k = 0; k < t->rank; k++)
        n *= (double)dim_eval(t->dim[k], dims);
    return n > 0 ? n : 0;
}

double op_bytes(const Node *n, int result, const int64_t *dims)
{
    const bool narrow = n->op == OP_BF16 || n->op == OP_F16 || n->op == OP_COPY16;
    const Type *t = n->types[result];
    return elems_of(t, dims) * (narrow ? 2 : dtype_bytes(t->dtype));
}

/* Bytes that a node reads and writes where nothing is fused. */
static double traffic_of(const Node *n, const int64_t *dims)
{
    double bytes = 0;
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i]->op != OP_LOOP)
            bytes += op_bytes(n->in[i], 0, dims);
    for (int k = 0; k < n->n_out; k++)
        bytes += op_bytes(n, k, dims);
    return bytes;
}

static double attention_flops(const Node *n, const int64_t *dims)
{
    const Type *q = n->in[0]->type, *k = n->in[1]->type, *v = n->in[2]->type;
    const int r = q->rank;
    const double rows = elems_of(q, dims) / (double)dim_eval(q->dim[r - 1], dims);
    const double keys = (double)dim_eval(k->dim[r - 2], dims);
    const double d = (double)dim_eval(q->dim[r - 1], dims);
    const double e = (double)dim_eval(v->dim[r - 1], dims);
    const double pairs = rows * keys * (n->attr.causal ? 0.5 : 1);
    return n->op == OP_ATTENTION ? 2 * pairs * (d + e) : 2 * pairs * (3 * d + 2 * e);
}

/* Sum over the body of a loop of what f says, times its iterations. */
static double loop_sum(const Node *n, const int64_t *dims,
                       double (*f)(const Node *, const int64_t *))
{
    const Graph *body = n->attr.loop->body;
    double sum = 0;
    for (int i = 0; i < body->nodes.len; i++)
        sum += f(body->nodes.at[i], dims);
    return sum * (double)dim_eval(n->attr.loop->trip, dims);
}

double op_flops(const Node *n, const int64_t *dims)
{
    switch (op_row(n->op)->class) {
    case CLASS_POINT:
    case CLASS_DRAW: return elems_of(n->type, dims) * op_row(n->op)->cost;
    case CLASS_REDUCE: return elems_of(n->in[0]->type, dims);
    case CLASS_CONTRACT: {
        const Type *a = n->in[0]->type;
        const Dim *k = a->dim[a->rank - (n->attr.ta ? 2 : 1)];
        return 2 * elems_of(n->type, dims) * (double)dim_eval(k, dims);
    }
    case CLASS_CUSTOM:
        return n->op == OP_CROSS_ENTROPY ? elems_of(n->in[0]->type, dims) * op_row(n->op)->cost
                                         : attention_flops(n, dims);
    case CLASS_INDEX:
        return n->op == OP_SCATTER ? elems_of(n->in[1]->type, dims) : elems_of(n->type, dims);
    case CLASS_STRUCT: return n->op == OP_LOOP ? loop_sum(n, dims, op_flops) : 0;
    case CLASS_LEAF:
    case CLASS_MOVE: break;
    }
    return 0;
}

double op_time(const Node *n, const int64_t *dims)
{
    const double memory = FLOPS_PER_BYTE * traffic_of(n, dims), flops = op_flops(n, dims);
    switch (op_row(n->op)->class) {
    case CLASS_CUSTOM: return ATTENTION_SLOW * flops > memory ? ATTENTION_SLOW * flops : memory;
    case CLASS_CONTRACT:
    case CLASS_INDEX: return flops > memory ? flops : memory;
    case CLASS_POINT:
    case CLASS_DRAW:
    case CLASS_REDUCE: return flops > memory / 2 ? flops : memory / 2; /* most is fused */
    case CLASS_STRUCT: return n->op == OP_LOOP ? loop_sum(n, dims, op_time) : 0;
    case CLASS_LEAF:
    case CLASS_MOVE: break;
    }
    return 0;
}
