/* simplify_range.c -- comparisons that the ranges of their operands decide.
 *
 *     %c = le 0, %targets            ->        %c = const 1        (targets: int[B,T] in 0..V)
 *
 * The idea: constants, declared ranges of inputs, indexes and sizes bound a value from both sides;
 * views and casts keep the bounds. Declared ranges hold, because data is checked when it is read.
 */
#include "pass/simplify.h"

#include <math.h>

typedef struct {
    double lo, hi;
} Range;

static const Range anything = { -INFINITY, INFINITY };

static Range range_of_dim(const Dim *first, const Dim *end)
{
    int64_t lo, hi;
    return (Range){ dim_value(first, &lo) ? (double)lo : -INFINITY,
                    dim_value(end, &hi) ? (double)hi - 1 : INFINITY };
}

static Range range_of_input(const Graph *g, const Node *n)
{
    const Program *p = g->program;
    if (n->attr.index >= p->inputs.len)
        return anything;
    const Input *in = &p->inputs.at[n->attr.index];
    return in->ranged && !in->has_ignore ? range_of_dim(in->lo, in->hi) : anything;
}

static Range range_of(const Graph *g, const Node *n)
{
    int64_t size;
    switch (n->op) {
    case OP_CONST: return (Range){ n->attr.value, n->attr.value };
    case OP_INPUT: return range_of_input(g, n);
    case OP_IOTA:
        return (Range){ 0, dim_value(n->type->dim[n->attr.axes[0]], &size) ? (double)size - 1
                                                                           : INFINITY };
    case OP_RESHAPE:
    case OP_TRANSPOSE:
    case OP_BROADCAST:
    case OP_SLICE: return range_of(g, n->in[0]);
    case OP_CAST: /* float and double hold small whole numbers as they are */
        return n->in[0]->type->dtype == DT_I32 ? range_of(g, n->in[0]) : anything;
    default: return anything;
    }
}

Node *simplify_known(Graph *g, const Node *n)
{
    if (n->op != OP_LE && n->op != OP_LT && n->op != OP_EQ && n->op != OP_NE)
        return NULL;
    const Range a = range_of(g, n->in[0]), b = range_of(g, n->in[1]);
    const bool below = a.hi<b.lo, above = a.lo> b.hi; /* everywhere */
    int known = -1;
    if (n->op == OP_LE)
        known = a.hi <= b.lo ? 1 : above ? 0 : -1;
    else if (n->op == OP_LT)
        known = below ? 1 : a.lo >= b.hi ? 0 : -1;
    else if (below || above)
        known = n->op == OP_NE;
    if (known < 0 || isinf(a.lo + b.lo) || isnan(a.lo + b.lo))
        return NULL;
    Node *c = ir_const(g, DT_BOOL, known, n->span);
    return n->type->rank ? ir_broadcast(g, c, n->type->rank, n->type->dim, NULL, n->span) : c;
}
