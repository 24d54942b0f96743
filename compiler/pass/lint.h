/* lint.h -- what the files of the lint pass share; nobody else includes it.
 *
 * lint_range.c bounds the values of a graph, lint.c says where that is dangerous.
 */
#ifndef GRADCC_PASS_LINT_H
#define GRADCC_PASS_LINT_H

#include "op/op.h"
#include "pass/pass.h"

/* Can a value be 0: in real arithmetic never; only as what is too small for its type; or so. */
typedef enum { ZERO_NEVER, ZERO_TINY, ZERO_YES } Zero;

typedef struct {
    double lo, hi; /* lo <= value <= hi */
    Zero zero;
} Bounds;

typedef struct {
    Context *cx;
    Map *bounds;  /* node -> Bounds */
    Map *trained; /* nodes that a parameter reaches -> themselves */
} Lint;

/* Bounds of all values of g and of its loops. */
void lint_find_bounds(Lint *l, Graph *g);
Bounds lint_bounds(const Lint *l, const Node *n);

/* The constant branch of a where that is at most that, or NULL. */
const Node *lint_mask_of(const Node *choice, double most);
bool lint_is_fixed(const Node *n); /* known without data, as a mask by place */

static inline bool lint_is_view(const Node *n)
{
    return n->op == OP_RESHAPE || n->op == OP_TRANSPOSE || n->op == OP_SLICE
           || n->op == OP_BROADCAST;
}

/* n without the views and roundings around it. */
static inline Node *lint_root(const Node *n)
{
    while (lint_is_view(n) || n->op == OP_BF16 || n->op == OP_F16 || n->op == OP_COPY16)
        n = n->in[0];
    return (Node *)n;
}

#endif
