/* keep_nest.c -- pairs of loops across two bodies.
 *
 * In: a graph with a loop that slices stacks of an earlier loop, where loops inside the one slice
 * stacks of stacks of loops inside the other: a scan in each layer of a stack. Out: the inner
 * loops rebuilt by plans, as keep.c does it for loops of one graph.
 *
 * The idea: the two bodies are bridged. What the inner loop of the second body needs from the
 * first body is stacked by the first outer loop and sliced by the second, unless the second has it
 * in any case. keep.c then decides on those stacks as on all others.
 */
#include "pass/keep.h"

typedef struct {
    KeepBridge pair; /* the outer loops, in the old graph */
    Graph *fa;       /* the new body of the first */
    Loop *la;        /* what it becomes */
    int *stack;      /* by id in fa: result that stacks the value; -1 none */
    int cap;
    Graph *fb; /* the new body of the second, arguments not yet in order */
    Node *iter;
    VEC(Node *) extra; /* its new arguments ... */
    VEC(int) source;   /* ... and what they are: result of la, or input of it: -1 - input */
    Map *carried;      /* from nodes of fa to nodes of fb */
} Nest;

/* ---- the bridge ------------------------------------------------------------------------------ */

static Node *extra_arg(Rebuild *r, Nest *n, ArgKind kind, int source, const Node *like)
{
    Node *arg = ir_arg(n->fb, kind, like->type, like->span);
    arg->name = like->name;
    vec_push(r->cx->scratch, &n->extra, arg);
    vec_push(r->cx->scratch, &n->source, source);
    return arg;
}

/* The argument of fb that slices what result k of the first outer loop was before; NULL: none. */
static Node *old_slice(const Nest *n, int k)
{
    const Node *from = n->pair.from, *to = n->pair.to;
    const Loop *l = to->attr.loop;
    for (int i = l->n_carry; i < l->n_carry + l->n_slice; i++) {
        const Node *in = to->in[i];
        if (in == from ? k == 0 : in->op == OP_RESULT && in->in[0] == from && in->attr.index == k)
            return n->fb->args.at[i];
    }
    return NULL;
}

static Node *carry_arg(Rebuild *r, Nest *n, const Node *arg)
{
    const Node *from = n->pair.from, *to = n->pair.to;
    if (arg->attr.arg == ARG_ITER)
        return n->iter;
    for (int i = 0; i < to->n_in; i++)
        if (to->in[i] == from->in[arg->attr.index] && n->fb->args.at[i]->attr.arg == arg->attr.arg)
            return n->fb->args.at[i];
    return extra_arg(r, n, arg->attr.arg, -1 - arg->attr.index, arg);
}

/* Number of the result of la that stacks a value of fa. */
static int stack_number(Rebuild *r, Nest *n, Node *value)
{
    if (value->id >= n->cap) {
        const int cap = 2 * (value->id + 8);
        int *grown = NEW_ARRAY(r->cx->scratch, int, cap);
        for (int i = 0; i < cap; i++)
            grown[i] = i < n->cap ? n->stack[i] : -1;
        n->stack = grown;
        n->cap = cap;
    }
    if (n->stack[value->id] < 0) {
        n->stack[value->id] = n->la->n_carry + n->la->n_stack++;
        ir_sink(n->fa, SINK_RESULT, n->stack[value->id], value);
    }
    return n->stack[value->id];
}

/* A node of fa as a node of fb. */
static Node *carry_over(Rebuild *r, Node *value)
{
    Nest *n = r->user;
    Node *made = map_get(n->carried, value);
    if (made)
        return made;
    if (value->op == OP_CONST || value->op == OP_DIM || value->op == OP_IOTA)
        made = graph_copy_node(n->fb, value, NULL);
    else if (value->op == OP_ARG && value->attr.arg != ARG_CARRY)
        made = carry_arg(r, n, value);
    if (!made) {
        const int k = stack_number(r, n, value);
        made = old_slice(n, k);
        if (!made)
            made = extra_arg(r, n, ARG_SLICE, k, value);
    }
    map_set(n->carried, value, made);
    return made;
}

/* ---- the two bodies -------------------------------------------------------------------------- */

static void find_plans(Context *cx, const KeepBridge *pair, const KeepChoice *choice,
                       KeepPlans *plans)
{
    const Graph *a = pair->from->attr.loop->body, *b = pair->to->attr.loop->body;
    for (int j = 0; j < b->nodes.len; j++)
        for (int i = 0; b->nodes.at[j]->op == OP_LOOP && i < a->nodes.len; i++) {
            KeepPlan *plan = a->nodes.at[i]->op != OP_LOOP
                                 ? NULL
                                 : keep_plan(cx, pair, a->nodes.at[i], b->nodes.at[j], choice, 0);
            if (plan)
                vec_push(cx->scratch, plans, plan);
        }
}

static Node *loop_again(Rebuild *r, Graph *to, const Node *n, Node *const *copy)
{
    Node **in = NEW_ARRAY(r->cx->scratch, Node *, n->n_in + 1);
    for (int i = 0; i < n->n_in; i++)
        in[i] = copy[n->in[i]->id];
    return ir_loop(to, rebuild_stacks(r, to, n), n->n_in, in, n->span);
}

/* The first body: its loops stack more. */
static void make_first(Rebuild *r, Nest *n)
{
    const Graph *old = n->pair.from->attr.loop->body;
    for (int i = 0; i < old->nodes.len; i++) {
        const Node *node = old->nodes.at[i];
        bool planned = false;
        for (int p = 0; p < r->plans->len; p++)
            planned |= r->plans->at[p]->from == node;
        if (planned) {
            r->loop[i] = loop_again(r, n->fa, node, r->first);
            r->first[i] = rebuild_provenance(r->loop[i], node);
        } else {
            r->first[i] = graph_copy_node(n->fa, node, r->first);
        }
    }
    n->cap = 2 * n->fa->nodes.len + 8;
    n->stack = NEW_ARRAY(r->cx->scratch, int, n->cap);
    for (int i = 0; i < n->cap; i++)
        n->stack[i] = -1;
    for (int i = 0; i < old->sinks.len; i++) {
        Node *value = r->first[old->sinks.at[i].node->id];
        ir_sink(n->fa, SINK_RESULT, old->sinks.at[i].index, value);
        if (old->sinks.at[i].index >= n->la->n_carry)
            n->stack[value->id] = old->sinks.at[i].index;
    }
}

/* The second body: its planned loops compute again. */
static void make_second(Rebuild *r, Nest *n)
{
    const Graph *old = n->pair.to->attr.loop->body;
    for (int i = 0; i < old->args.len; i++) {
        const Node *a = old->args.at[i];
        r->copy[a->id] = graph_copy_node(n->fb, a, NULL);
    }
    n->iter = r->copy[old->args.at[old->args.len - 1]->id];
    for (int i = 0; i < old->nodes.len; i++) {
        const Node *node = old->nodes.at[i];
        if (node->op == OP_ARG)
            continue;
        if (node->op != OP_LOOP || !rebuild_is_second(r, node)) {
            r->copy[i] = graph_copy_node(n->fb, node, r->copy);
            continue;
        }
        Loop *loop = NEW(r->cx->arena, Loop);
        *loop = *node->attr.loop;
        r->copy[i] = rebuild_provenance(rebuild_second(r, node, loop), node);
    }
    for (int i = 0; i < old->sinks.len; i++)
        ir_sink(n->fb, SINK_RESULT, old->sinks.at[i].index, r->copy[old->sinks.at[i].node->id]);
}

/* ---- the outer loops ------------------------------------------------------------------------- */

/* The second outer loop with its arguments in order, over what copy[] has of the graph. */
static Node *second_outer(Rebuild *r, const Nest *n, Graph *to, Node *const *copy, Node *first)
{
    static const ArgKind order[] = { ARG_CARRY, ARG_SLICE, ARG_SHARED, ARG_ITER };
    const Node *old = n->pair.to;
    Graph *body = graph_new(to->program, n->fb->name, to);
    Loop *loop = NEW(r->cx->arena, Loop);
    Node **again = NEW_ARRAY(r->cx->scratch, Node *, n->fb->nodes.len + 1);
    Node **in = NEW_ARRAY(r->cx->scratch, Node *, n->fb->args.len + 1);
    int n_in = 0;
    *loop = *old->attr.loop;
    loop->body = body;
    loop->n_slice = loop->n_shared = 0;
    for (int o = 0; o < 4; o++)
        for (int i = 0; i < n->fb->args.len; i++) {
            const Node *arg = n->fb->args.at[i];
            if (arg->attr.arg != order[o])
                continue;
            again[arg->id] = ir_named(ir_arg(body, order[o], arg->type, arg->span), arg->name);
            loop->n_slice += order[o] == ARG_SLICE;
            loop->n_shared += order[o] == ARG_SHARED;
            if (order[o] == ARG_ITER)
                continue;
            const int extra = i - old->n_in - 1;
            const int source = extra >= 0 ? n->source.at[extra] : 0;
            in[n_in++] = extra < 0    ? copy[old->in[i]->id]
                         : source < 0 ? copy[n->pair.from->in[-1 - source]->id]
                                      : ir_result(first, source);
        }
    for (int i = 0; i < n->fb->nodes.len; i++)
        if (!again[i])
            again[i] = graph_copy_node(body, n->fb->nodes.at[i], again);
    for (int i = 0; i < n->fb->sinks.len; i++)
        ir_sink(body, SINK_RESULT, n->fb->sinks.at[i].index, again[n->fb->sinks.at[i].node->id]);
    return ir_loop(to, loop, n_in, in, old->span);
}

/* g with the two outer loops replaced. */
static Graph *replace_pair(Rebuild *r, const Nest *n, Graph *g)
{
    Graph *to = graph_new(g->program, g->name, g->parent);
    Node **copy = NEW_ARRAY(r->cx->scratch, Node *, g->nodes.len + 1), *first = NULL;
    for (int i = 0; i < g->nodes.len; i++) {
        const Node *node = g->nodes.at[i];
        if (node == n->pair.from) {
            Node **in = NEW_ARRAY(r->cx->scratch, Node *, node->n_in + 1);
            for (int k = 0; k < node->n_in; k++)
                in[k] = copy[node->in[k]->id];
            n->fa->parent = to;
            first = ir_loop(to, n->la, node->n_in, in, node->span);
            copy[i] = rebuild_provenance(first, node);
        } else if (node == n->pair.to) {
            copy[i] = rebuild_provenance(second_outer(r, n, to, copy, first), node);
        } else {
            copy[i] = graph_copy_node(to, node, copy);
        }
    }
    for (int i = 0; i < g->sinks.len; i++)
        ir_sink(to, g->sinks.at[i].kind, g->sinks.at[i].index, copy[g->sinks.at[i].node->id]);
    return to;
}

static Graph *keep_pair(Context *cx, Graph *g, Node *a, Node *b, const KeepChoice *choice)
{
    Nest n = { .pair = { a, b } };
    KeepPlans plans = { 0 };
    if (!dim_same(a->attr.loop->trip, b->attr.loop->trip))
        return g;
    find_plans(cx, &n.pair, choice, &plans);
    if (!plans.len)
        return g;
    n.la = NEW(cx->arena, Loop);
    *n.la = *a->attr.loop;
    n.fa = n.la->body = graph_new(g->program, a->attr.loop->body->name, g);
    n.fb = graph_new(g->program, b->attr.loop->body->name, g);
    n.carried = map_new(cx->scratch);
    Rebuild *r = rebuild_new(cx, &plans, n.fb, a->attr.loop->body->nodes.len,
                             b->attr.loop->body->nodes.len);
    r->carry_over = carry_over;
    r->user = &n;
    make_first(r, &n);
    make_second(r, &n);
    return replace_pair(r, &n, g);
}

static Node *nth_loop(const Graph *g, int n)
{
    for (int i = 0; i < g->nodes.len; i++)
        if (g->nodes.at[i]->op == OP_LOOP && n-- == 0)
            return g->nodes.at[i];
    return NULL;
}

Graph *keep_nested(Context *cx, Graph *g, const KeepChoice *choice)
{
    for (int b = 1; nth_loop(g, b); b++)
        for (int a = 0; a < b; a++)
            g = keep_pair(cx, g, nth_loop(g, a), nth_loop(g, b), choice);
    return g;
}
