/* simplify.c -- the same values with less work.
 *
 * In: a graph. Out: the graph in which no rule of rules.def applies any more, numbers are folded,
 * views of views are one view, and dead code is gone.
 *
 *     %two = const 2 : f32[]                             %y = mul %x, %x : f32[B]
 *     %p   = pow %x, %two : f32[B]             ->        return %y
 *     %one = const 1 : f32[]
 *     %y   = mul %p, %one : f32[B]
 *
 * The idea: nodes are rebuilt in order; each new node is replaced by a better one until none is
 * known, and so are the nodes made for that. Each step makes a node cheaper, so this ends; a bound
 * on the depth makes sure. Every replacement has the same value bit for bit, or a class in
 * rules.def that says how it may differ.
 *
 * Needs: tensor IR, before grad or after. Guarantees: the same sinks; provenance is kept.
 */
#include "pass/simplify.h"

#include <math.h>

enum { DEPTH_LIMIT = 40, ROUND_LIMIT = 4 };

/* ---- folding -------------------------------------------------------------------------------- */

static Node *fold_point(Simplify *s, Graph *g, Node *n)
{
    Tensor operand[3], result = { .elems = 1 };
    const Tensor *in[3];
    double value[3], out = 0;
    if (n->type->rank || !n->n_in || n->n_in > 3 || n->op == OP_STOP)
        return NULL;
    for (int i = 0; i < n->n_in; i++) {
        if (n->in[i]->op != OP_CONST)
            return NULL;
        value[i] = n->in[i]->attr.value;
        operand[i] = (Tensor){ .elems = 1, .at = &value[i] };
        in[i] = &operand[i];
    }
    const EvalEnv none = { 0 };
    result.at = &out;
    op_row(n->op)->eval(s->cx->scratch, n, in, &result, &none);
    if (n->type->dtype == DT_F32)
        out = (double)(float)out;
    if (!isfinite(out) || (n->type->dtype == DT_I32 && fabs(out) > INT32_MAX))
        return NULL;
    return ir_const(g, n->type->dtype, out, n->span);
}

/* A dim that is a bare number; a dim in another dtype. */
static Node *fold_dim(Graph *g, Node *n)
{
    int64_t value;
    if (n->op == OP_DIM && dim_literal(n->attr.dim, &value))
        return ir_const(g, n->type->dtype, (double)value, n->span);
    if (n->op == OP_CAST && n->in[0]->op == OP_DIM && n->type->dtype != DT_BOOL)
        return ir_dim(g, n->type->dtype, n->in[0]->attr.dim, n->span);
    return NULL;
}

/* A cast to the dtype that is there; there and back when the way there loses nothing. */
static Node *fold_cast(Node *n)
{
    const Node *in = n->in[0];
    if (in->type->dtype == n->type->dtype)
        return n->in[0];
    if (in->op != OP_CAST || in->in[0]->type->dtype != n->type->dtype)
        return NULL;
    const DType from = n->type->dtype, over = in->type->dtype;
    const bool keeps = from == DT_BOOL || (over == DT_F64 && from != DT_BOOL);
    return keeps ? in->in[0] : NULL;
}

/* ---- one node ------------------------------------------------------------------------------- */

/* The final value of a carry that the body hands on unchanged is the initial one. */
static Node *simplify_result(Node *n)
{
    const Node *from = n->in[0];
    if (from->op != OP_LOOP || n->attr.index >= from->attr.loop->n_carry)
        return NULL;
    const Graph *body = from->attr.loop->body;
    for (int i = 0; i < body->sinks.len; i++) {
        const Sink *s = &body->sinks.at[i];
        if (s->index == n->attr.index && s->node == body->args.at[s->index])
            return from->in[s->index];
    }
    return NULL;
}

static Node *step_point(Simplify *s, Graph *g, Node *n)
{
    Node *to = fold_point(s, g, n);
    if (!to)
        to = fold_dim(g, n);
    if (!to && n->op == OP_CAST)
        to = fold_cast(n);
    if (!to && (n->op == OP_BF16 || n->op == OP_F16))
        to = simplify_narrow(s, g, n);
    if (!to)
        to = simplify_known(g, n);
    if (!to)
        to = simplify_point_of_broadcast(s, g, n);
    if (!to)
        to = simplify_point_of_units(s, g, n);
    if (!to && (n->op == OP_ADD || n->op == OP_SUB))
        to = simplify_sum_of_negated(s, g, n);
    if (!to && n->op == OP_ADD)
        to = simplify_sum_of_pads(s, g, n);
    return to ? to : simplify_by_rules(s, g, n);
}

static Node *step(Simplify *s, Graph *g, Node *n)
{
    switch (op_row(n->op)->class) {
    case CLASS_POINT: return step_point(s, g, n);
    case CLASS_LEAF: return fold_dim(g, n);
    case CLASS_MOVE: return simplify_view(s, g, n);
    case CLASS_INDEX: return n->op == OP_GATHER ? simplify_gather(s, g, n) : NULL;
    case CLASS_REDUCE: return simplify_reduce(s, g, n);
    case CLASS_CONTRACT: return simplify_matmul(s, g, n);
    case CLASS_STRUCT: return n->op == OP_RESULT ? simplify_result(n) : NULL;
    default: return NULL;
    }
}

/* New nodes come from n: its place, its name if they have its value, its side of the step. */
static void keep_provenance(Graph *g, int first, const Node *n, Node *to)
{
    for (int i = first; i < g->nodes.len; i++) {
        Node *made = g->nodes.at[i];
        made->backward |= n->backward;
        if (!made->undoes)
            made->undoes = n->undoes;
    }
    while (n->name && to->id >= first && to->n_in) {
        ir_named(to, n->name);
        if (to->op != OP_RESHAPE && to->op != OP_TRANSPOSE && to->op != OP_BROADCAST)
            break;
        to = to->in[0]; /* a view shares its name with what it shows */
    }
}

Node *simplify_node(Simplify *s, Graph *g, Node *n)
{
    if (s->depth > DEPTH_LIMIT)
        return n;
    s->depth++;
    for (int round = 0; round < DEPTH_LIMIT; round++) {
        const int first = g->nodes.len;
        Node *to = step(s, g, n);
        if (!to || to == n)
            break;
        keep_provenance(g, first, n, to);
        s->changed = true;
        n = to;
    }
    s->depth--;
    return n;
}

Node *simplify_make(Simplify *s, Graph *g, Op op, int n_in, Node *const *in, Span at)
{
    return simplify_node(s, g, ir_node(g, op, n_in, in, NULL, at));
}

Node *simplify_again(Simplify *s, Graph *g, const Node *n, Node *const *in)
{
    return simplify_node(s, g, ir_node(g, n->op, n->n_in, in, &n->attr, n->span));
}

/* ---- the graph ------------------------------------------------------------------------------ */

static Node *offer(Graph *to, Node *rebuilt, void *user)
{
    Simplify *s = user;
    Node *better = simplify_node(s, to, rebuilt);
    return better == rebuilt ? NULL : better;
}

static Graph *simplify_graph(Graph *g, bool fast)
{
    Context *cx = g->program->cx;
    Simplify s = { .cx = cx, .rules = rules_read(cx), .fast = fast, .changed = true };
    for (int round = 0; round < ROUND_LIMIT && s.changed; round++) {
        s.changed = false;
        g = graph_rewrite(g, offer, &s);
    }
    return graph_rewrite(g, NULL, NULL);
}

Graph *pass_simplify(Graph *g) { return simplify_graph(g, false); }

Graph *pass_simplify_fast(Graph *g) { return simplify_graph(g, true); }
