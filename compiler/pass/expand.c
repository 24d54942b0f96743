/* expand.c -- ops that are made of smaller ones, written out.
 *
 * In: a graph after grad. Out: the same without cross entropy, whose parts fuse into row kernels
 * like any others, and without stop_gradient, which has done its work. With all, attention and its
 * gradient too: for checks, and for -O0. Third and fourth powers become products only
 * here, because the derivative of a power, 3 x^2, is less work than that of two products.
 *
 *     %ce   = cross_entropy %x, %t        ->        %m = amax %x, axes 1  ...
 *     %loss = result 0 %ce
 *
 * The idea: the op's row says what it expands to; the results of the node are replaced one by one.
 */
#include "pass/pass.h"

static bool stays_whole(Op op, bool all)
{
    return !op_row(op)->expand || (!all && (op == OP_ATTENTION || op == OP_ATTENTION_GRAD));
}

/* x^3 as x x x and x^4 as the square of a square; NULL for other powers. */
static Node *expand_power(Graph *to, const Node *n)
{
    const double exponent = n->in[1]->op == OP_CONST ? n->in[1]->attr.value : 0;
    if (exponent != 3 && exponent != 4)
        return NULL;
    Node *square = ir_binary(to, OP_MUL, n->in[0], n->in[0], n->span);
    return ir_binary(to, OP_MUL, square, exponent == 3 ? n->in[0] : square, n->span);
}

static Node *expand_node(Graph *to, Node *n, void *user)
{
    const bool all = *(const bool *)user;
    if (n->op == OP_STOP)
        return n->in[0];
    if (n->op == OP_POW)
        return expand_power(to, n);
    Node *custom = n->op == OP_RESULT ? n->in[0] : n;
    if (custom->n_out > 1 && n->op != OP_RESULT)
        return NULL;
    if (stays_whole(custom->op, all))
        return NULL;
    Node **out = NEW_ARRAY(to->program->cx->scratch, Node *, custom->n_out);
    op_row(custom->op)->expand(to, custom, custom->in, out);
    return out[n->op == OP_RESULT ? n->attr.index : 0];
}

Graph *pass_expand(Graph *g, bool all)
{
    g = graph_rewrite(g, expand_node, &all);
    /* An expansion may be made of ops that expand themselves. */
    return graph_rewrite(g, expand_node, &all);
}
