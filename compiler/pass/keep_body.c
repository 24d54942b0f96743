/* keep_body.c -- loops rebuilt by plans.
 *
 * In: plans for pairs of loops. Out: first loops with a stack for each value that is kept, second
 * loops with slices of these and the recomputation in their bodies.
 *
 * The idea: ids in the body of a first loop stay, so that the plans can speak of its values. A
 * second loop gets a new body: arguments in the order of a loop, what is computed again, then the
 * old body over these.
 */
#include "pass/keep.h"

Rebuild *rebuild_new(Context *cx, KeepPlans *plans, Graph *to, int n_first, int n_second)
{
    Rebuild *r = NEW(cx->scratch, Rebuild);
    r->cx = cx;
    r->plans = plans;
    r->to = to;
    r->copy = NEW_ARRAY(cx->scratch, Node *, n_second + 1);
    r->first = NEW_ARRAY(cx->scratch, Node *, n_first + 1);
    r->loop = NEW_ARRAY(cx->scratch, Node *, n_first + 1);
    r->stack = NEW_ARRAY(cx->scratch, int *, n_first + 1);
    r->there = NEW_ARRAY(cx->scratch, Node **, plans->len + 1);
    for (int p = 0; p < plans->len; p++)
        r->there[p] = NEW_ARRAY(cx->scratch, Node *,
                                plans->at[p]->from->attr.loop->body->nodes.len + 1);
    return r;
}

bool rebuild_is_second(const Rebuild *r, const Node *n)
{
    for (int p = 0; p < r->plans->len; p++)
        if (r->plans->at[p]->to == n)
            return true;
    return false;
}

Node *rebuild_provenance(Node *made, const Node *n)
{
    made->undoes = n->undoes;
    made->backward = n->backward;
    if (n->n_out > 1 || made->n_out == 1)
        return n->n_out == 1 ? ir_named(made, n->name) : made;
    Node *only = ir_named(ir_result(made, 0), n->name);
    only->backward = n->backward;
    return only;
}

/* ---- first loops ---------------------------------------------------------------------------- */

static Graph *copy_body(Context *cx, Graph *g, Graph *parent);

/* As graph_copy_node, but a loop gets a body of its own. */
static Node *copy_whole(Context *cx, Graph *to, const Node *n, Node *const *map)
{
    if (n->op != OP_LOOP)
        return graph_copy_node(to, n, map);
    Node with = *n;
    with.attr.loop = NEW(cx->arena, Loop);
    *with.attr.loop = *n->attr.loop;
    with.attr.loop->body = copy_body(cx, n->attr.loop->body, to);
    return graph_copy_node(to, &with, map);
}

/* A copy of a graph node by node: ids stay. */
static Graph *copy_body(Context *cx, Graph *g, Graph *parent)
{
    Graph *to = graph_new(g->program, g->name, parent);
    Node **copy = NEW_ARRAY(cx->scratch, Node *, g->nodes.len + 1);
    for (int i = 0; i < g->nodes.len; i++)
        copy[i] = copy_whole(cx, to, g->nodes.at[i], copy);
    for (int i = 0; i < g->sinks.len; i++)
        ir_sink(to, g->sinks.at[i].kind, g->sinks.at[i].index, copy[g->sinks.at[i].node->id]);
    return to;
}

Loop *rebuild_stacks(Rebuild *r, Graph *to, const Node *n)
{
    const KeepPlans *plans = r->plans;
    Loop *made = NEW(r->cx->arena, Loop);
    *made = *n->attr.loop;
    made->body = copy_body(r->cx, made->body, to);
    const Graph *body = made->body;
    int *stack = NEW_ARRAY(r->cx->scratch, int, body->nodes.len + 1);
    for (int i = 0; i < body->nodes.len; i++)
        stack[i] = -1;
    for (int i = 0; i < body->sinks.len; i++)
        if (body->sinks.at[i].index >= made->n_carry)
            stack[body->sinks.at[i].node->id] = body->sinks.at[i].index;
    for (int p = 0; p < plans->len; p++)
        for (int i = 0; plans->at[p]->from == n && i < body->nodes.len; i++)
            if (plans->at[p]->saved[i] && stack[i] < 0) {
                stack[i] = made->n_carry + made->n_stack++;
                ir_sink(made->body, SINK_RESULT, stack[i], body->nodes.at[i]);
            }
    for (int p = 0; p < plans->len; p++)
        if (plans->at[p]->from == n)
            r->stack[n->id] = stack;
    return made;
}

/* ---- the second loop ------------------------------------------------------------------------ */

static int find_arg(const Rebuild *r, ArgKind kind, const Node *outer)
{
    for (int i = 0; i < r->args.len; i++)
        if (r->args.at[i].kind == kind && r->args.at[i].outer == outer)
            return i;
    return -1;
}

/* The outer value of an argument for a value of plan's first body: its stack, or what the first
   loop itself is given. */
static NewArg arg_source(Rebuild *r, const KeepPlan *plan, const Node *value)
{
    NewArg made = { .kind = ARG_SLICE, .type = value->type, .name = value->name };
    if (plan->saved[value->id]) {
        made.outer = ir_result(r->loop[plan->from->id], r->stack[plan->from->id][value->id]);
        if (value->name)
            ir_named(made.outer, value->name);
    } else {
        made.kind = value->attr.arg;
        made.outer = r->first[plan->from->in[value->attr.index]->id];
    }
    if (r->carry_over)
        made.outer = r->carry_over(r, made.outer);
    return made;
}

static bool is_outside(const KeepPlan *plan, const Node *value)
{
    const bool arg = value->op == OP_ARG && value->attr.arg != ARG_ITER;
    return plan->saved[value->id] || (plan->again[value->id] && arg);
}

/* The plan of a value that is sliced as input i, and the value; -1 when there is none. */
static int plan_of_slice(const Rebuild *r, const Node *n, int i, Node **value)
{
    for (int p = 0; p < r->plans->len; p++) {
        const KeepPlan *plan = r->plans->at[p];
        *value = plan->to == n ? keep_sliced(plan->over, plan->from, n, i) : NULL;
        if (*value)
            return p;
    }
    return -1;
}

static void collect_arg(Rebuild *r, const KeepPlan *plan, const Node *value)
{
    if (!is_outside(plan, value))
        return;
    const NewArg made = arg_source(r, plan, value);
    if (find_arg(r, made.kind, made.outer) < 0)
        vec_push(r->cx->scratch, &r->args, made);
}

/* The inputs of the new loop: those of the old one but for slices of planned values, and what the
   plans add. */
static void collect_args(Rebuild *r, const Node *n)
{
    Node *value;
    Graph *body = n->attr.loop->body;
    for (int i = 0; i < n->n_in; i++) {
        const Node *arg = body->args.at[i];
        const NewArg made = { arg->attr.arg, r->copy[n->in[i]->id], NULL, arg->type, arg->name };
        if (plan_of_slice(r, n, i, &value) < 0)
            vec_push(r->cx->scratch, &r->args, made);
    }
    for (int p = 0; p < r->plans->len; p++) {
        const KeepPlan *plan = r->plans->at[p];
        if (plan->to != n)
            continue;
        const Graph *first = plan->from->attr.loop->body;
        for (int i = 0; i < first->nodes.len; i++)
            if (plan->needed[i] || plan->again[i])
                collect_arg(r, plan, plan->turned[i] ? plan->turned[i] : first->nodes.at[i]);
    }
}

/* Arguments of the new body in the order of a loop; inputs in that order into in[]. */
static int make_args(Rebuild *r, Graph *body, Loop *loop, Node **in, Span at)
{
    static const ArgKind order[] = { ARG_CARRY, ARG_SLICE, ARG_SHARED };
    int n = 0;
    loop->n_slice = loop->n_shared = 0;
    for (int o = 0; o < 3; o++)
        for (int i = 0; i < r->args.len; i++) {
            NewArg *a = &r->args.at[i];
            if (a->kind != order[o])
                continue;
            a->arg = ir_arg(body, a->kind, a->type, at);
            a->arg->name = a->name;
            in[n++] = a->outer;
            loop->n_slice += a->kind == ARG_SLICE;
            loop->n_shared += a->kind == ARG_SHARED;
        }
    return n;
}

static Node *arg_of(Rebuild *r, const KeepPlan *plan, const Node *value)
{
    const NewArg from = arg_source(r, plan, value);
    return r->args.at[find_arg(r, from.kind, from.outer)].arg;
}

/* The operand of a transpose, from its result. */
static Node *turn_back(Graph *g, const Node *transpose, Node *result)
{
    int back[RANK_MAX] = { 0 };
    for (int k = 0; k < transpose->type->rank; k++)
        back[transpose->attr.axes[k]] = k;
    return ir_named(ir_transpose(g, result, back, transpose->span), transpose->in[0]->name);
}

/* A second body that is being made. */
typedef struct {
    Rebuild *r;
    const Node *n;
    Graph *body;
    Node *iter;
    Node **copy; /* by id in the old body */
} Second;

/* A value of the first body as a node of the new one, made where it is first asked for: what is
   computed again late does not lie in memory for long. */
static Node *value_again(Second *x, int p, const Node *value)
{
    const KeepPlan *plan = x->r->plans->at[p];
    Node **there = x->r->there[p];
    if (there[value->id])
        return there[value->id];
    if (is_outside(plan, value))
        there[value->id] = arg_of(x->r, plan, value);
    else if (plan->turned[value->id])
        there[value->id] = turn_back(x->body, plan->turned[value->id],
                                     arg_of(x->r, plan, plan->turned[value->id]));
    else if (value->op == OP_ARG)
        there[value->id] = x->iter;
    else {
        for (int i = 0; i < value->n_in; i++)
            value_again(x, p, value->in[i]);
        there[value->id] = copy_whole(x->r->cx, x->body, value, there);
    }
    return there[value->id];
}

/* The node of the new body for one of the old. */
static Node *old_again(Second *x, const Node *old)
{
    Node *value;
    if (x->copy[old->id])
        return x->copy[old->id];
    if (old->op == OP_ARG) {
        const int i = old->attr.index, p = plan_of_slice(x->r, x->n, i, &value);
        const Node *outer = p < 0 ? x->r->copy[x->n->in[i]->id] : NULL;
        x->copy[old->id] = p >= 0 ? value_again(x, p, value)
                           : i < x->n->attr.loop->n_carry
                               ? x->r->args.at[i].arg
                               : x->r->args.at[find_arg(x->r, old->attr.arg, outer)].arg;
        return x->copy[old->id];
    }
    for (int i = 0; i < old->n_in; i++)
        old_again(x, old->in[i]);
    x->copy[old->id] = graph_copy_node(x->body, old, x->copy);
    return x->copy[old->id];
}

Node *rebuild_second(Rebuild *r, const Node *n, Loop *loop)
{
    Graph *old = loop->body, *body = graph_new(old->program, old->name, r->to);
    r->args.len = 0;
    collect_args(r, n);
    Node **in = NEW_ARRAY(r->cx->scratch, Node *, r->args.len + 1);
    const int n_in = make_args(r, body, loop, in, n->span);
    const Node *old_iter = old->args.at[n->n_in];
    Node *iter = ir_arg(body, ARG_ITER, old_iter->type, old_iter->span);
    iter->name = old_iter->name;
    Second x = { r, n, body, iter, NEW_ARRAY(r->cx->scratch, Node *, old->nodes.len + 1) };
    x.copy[old_iter->id] = iter;
    const bool *live = graph_live(old);
    for (int i = 0; i < old->nodes.len; i++)
        if (live[i] && old->nodes.at[i]->op != OP_ARG)
            old_again(&x, old->nodes.at[i]);
    for (int i = 0; i < old->sinks.len; i++)
        ir_sink(body, SINK_RESULT, old->sinks.at[i].index, old_again(&x, old->sinks.at[i].node));
    loop->body = body;
    return ir_loop(r->to, loop, n_in, in, n->span);
}
