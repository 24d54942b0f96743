/* keep.c -- the backward pass of a loop keeps what is dear and computes the rest again.
 *
 * In: a graph after grad, where a backward loop slices a stack for each forward value it reads.
 * Out: the same values with fewer and smaller stacks.
 *
 *     block      stacks x, mean, rstd, xhat, y          block      stacks x, mean, rstd, y
 *     backward   slices xhat                     ->     backward   slices x, mean, rstd
 *                                                         %xhat = mul (sub %x, %mean), %rstd
 *
 * The idea: it does not matter that one loop is the gradient of the other. Any loop that slices
 * stacks of an earlier loop of the same trip count may compute a sliced value again, from values
 * of the same iteration: iterations are numbered alike, whichever way they run. keep_plan.c says
 * which. Here both loops are rebuilt: the first with a stack for each kept value, the second with
 * slices of these and the recomputation in its body. Draws come out the same, because they depend
 * on stream and iteration only. Stacks that nobody reads any more disappear at the end.
 *
 * Needs: simplified tensor IR. Guarantees: the same bits.
 */
#include "pass/keep.h"

typedef VEC(KeepPlan *) Plans;

typedef struct { ArgKind kind; Node *outer; Node *arg; const Type *type; const char *name; } NewArg;
typedef VEC(NewArg) NewArgs;

typedef struct {
    Context    *cx;
    Graph      *to;         /* the graph being made                                              */
    Node      **copy;       /* by id in the old graph: node of to                                */
    Node      **loop;       /* by id in the old graph: LOOP in to                                */
    int       **stack;      /* by id of a loop, by id in its old body: result that stacks it, -1 */
    const Node *second;     /* the loop being rebuilt, in the old graph                          */
    NewArgs     args;       /* of its new body                                                   */
    Node     ***there;      /* by plan, by id in from's body: node of the new body               */
} Rebuild;

/* ---- the first loop: more stacks ------------------------------------------------------------ */

/* A copy of a graph node by node: ids stay. */
static Graph *copy_body(Context *cx, Graph *g, Graph *parent)
{
    Graph *to = graph_new(g->program, g->name, parent);
    Node **copy = NEW_ARRAY(cx->scratch, Node *, g->nodes.len + 1);
    for (int i = 0; i < g->nodes.len; i++)
        copy[i] = graph_copy_node(to, g->nodes.at[i], copy);
    for (int i = 0; i < g->sinks.len; i++)
        ir_sink(to, g->sinks.at[i].kind, g->sinks.at[i].index, copy[g->sinks.at[i].node->id]);
    return to;
}

/* A loop like n whose body stacks all values that a plan keeps; ids in the body are the same. */
static Loop *loop_with_stacks(Rebuild *r, const Node *n, const Plans *plans)
{
    Loop *made = NEW(r->cx->arena, Loop);
    *made = *n->attr.loop;
    made->body = copy_body(r->cx, made->body, r->to);
    const Graph *body = made->body;
    int *stack = r->stack[n->id] = NEW_ARRAY(r->cx->scratch, int, body->nodes.len + 1);
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
static NewArg arg_source(const Rebuild *r, const KeepPlan *plan, const Node *value)
{
    NewArg made = { .kind = ARG_SLICE, .type = value->type, .name = value->name };
    if (plan->saved[value->id]) {
        made.outer = ir_result(r->loop[plan->from->id], r->stack[plan->from->id][value->id]);
        if (!made.outer->name)
            made.outer->name = value->name;
    } else {
        made.kind = value->attr.arg;
        made.outer = r->copy[plan->from->in[value->attr.index]->id];
    }
    return made;
}

static bool is_outside(const KeepPlan *plan, const Node *value)
{
    const bool arg = value->op == OP_ARG && value->attr.arg != ARG_ITER;
    return plan->saved[value->id] || (plan->again[value->id] && arg);
}

static bool is_sliced_of(const Plans *plans, const Node *second, int i)
{
    for (int p = 0; p < plans->len; p++)
        if (plans->at[p]->to == second && keep_sliced(plans->at[p]->from, second, i))
            return true;
    return false;
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
static void collect_args(Rebuild *r, const Plans *plans)
{
    const Node *n = r->second;
    Graph *body = n->attr.loop->body;
    for (int i = 0; i < n->n_in; i++) {
        const Node *arg = body->args.at[i];
        const NewArg made = { arg->attr.arg, r->copy[n->in[i]->id], NULL, arg->type, arg->name };
        if (!is_sliced_of(plans, n, i))
            vec_push(r->cx->scratch, &r->args, made);
    }
    for (int p = 0; p < plans->len; p++) {
        const KeepPlan *plan = plans->at[p];
        if (plan->to != n)
            continue;
        const Graph *first = plan->from->attr.loop->body;
        for (int i = 0; i < first->nodes.len; i++)
            if (plan->needed[i] || plan->again[i])
                collect_arg(r, plan, plan->turned[i] ? plan->turned[i] : first->nodes.at[i]);
    }
}

/* Arguments of the new body in the order of a loop; inputs in that order into in[]. */
static int make_args(Rebuild *r, Graph *body, Loop *loop, Node **in)
{
    static const ArgKind order[] = { ARG_CARRY, ARG_SLICE, ARG_SHARED };
    int n = 0;
    loop->n_slice = loop->n_shared = 0;
    for (int o = 0; o < 3; o++)
        for (int i = 0; i < r->args.len; i++) {
            NewArg *a = &r->args.at[i];
            if (a->kind != order[o])
                continue;
            a->arg = ir_arg(body, a->kind, a->type, r->second->span);
            a->arg->name = a->name;
            in[n++] = a->outer;
            loop->n_slice += a->kind == ARG_SLICE;
            loop->n_shared += a->kind == ARG_SHARED;
        }
    return n;
}

static Node *arg_of(const Rebuild *r, const KeepPlan *plan, const Node *value)
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

/* Values of the first body as nodes of the new one. */
static void compute_again(Rebuild *r, const KeepPlan *plan, Graph *body, Node *iter, Node **there)
{
    const Graph *first = plan->from->attr.loop->body;
    for (int i = 0; i < first->nodes.len; i++) {
        const Node *value = first->nodes.at[i];
        if (!plan->needed[i] && !plan->again[i])
            continue;
        if (is_outside(plan, value))
            there[i] = arg_of(r, plan, value);
        else if (plan->turned[i])
            there[i] = turn_back(body, plan->turned[i], arg_of(r, plan, plan->turned[i]));
        else if (value->op == OP_ARG)
            there[i] = iter;
        else
            there[i] = graph_copy_node(body, value, there);
    }
}

/* The node of the new body for argument i of the old one. */
static Node *arg_again(Rebuild *r, const Plans *plans, int i)
{
    const Node *n = r->second;
    for (int p = 0; p < plans->len; p++) {
        const KeepPlan *plan = plans->at[p];
        const Node *value = plan->to == n ? keep_sliced(plan->from, n, i) : NULL;
        if (value)
            return r->there[p][value->id];
    }
    if (i < n->attr.loop->n_carry)
        return r->args.at[i].arg;
    const ArgKind kind = n->attr.loop->body->args.at[i]->attr.arg;
    return r->args.at[find_arg(r, kind, r->copy[n->in[i]->id])].arg;
}

static Node *rebuild_second(Rebuild *r, const Plans *plans, Loop *loop)
{
    const Node *n = r->second;
    Graph *old = loop->body, *body = graph_new(old->program, old->name, r->to);
    r->args.len = 0;
    collect_args(r, plans);
    Node **in = NEW_ARRAY(r->cx->scratch, Node *, r->args.len + 1);
    const int n_in = make_args(r, body, loop, in);
    const Node *old_iter = old->args.at[n->n_in];
    Node *iter = ir_arg(body, ARG_ITER, old_iter->type, old_iter->span);
    iter->name = old_iter->name;
    for (int p = 0; p < plans->len; p++)
        if (plans->at[p]->to == n)
            compute_again(r, plans->at[p], body, iter, r->there[p]);
    Node **copy = NEW_ARRAY(r->cx->scratch, Node *, old->nodes.len + 1);
    for (int i = 0; i < n->n_in; i++)
        copy[old->args.at[i]->id] = arg_again(r, plans, i);
    copy[old_iter->id] = iter;
    const bool *live = graph_live(old);
    for (int i = 0; i < old->nodes.len; i++)
        if (live[i] && !copy[i])
            copy[i] = graph_copy_node(body, old->nodes.at[i], copy);
    for (int i = 0; i < old->sinks.len; i++)
        ir_sink(body, SINK_RESULT, old->sinks.at[i].index, copy[old->sinks.at[i].node->id]);
    loop->body = body;
    return ir_loop(r->to, loop, n_in, in, n->span);
}

/* ---- the graph ------------------------------------------------------------------------------ */

static void find_plans(Context *cx, Graph *g, Plans *plans)
{
    for (int b = 0; b < g->nodes.len; b++)
        for (int a = 0; g->nodes.at[b]->op == OP_LOOP && a < b; a++) {
            if (g->nodes.at[a]->op != OP_LOOP)
                continue;
            KeepPlan *plan = keep_plan(cx, g->nodes.at[a], g->nodes.at[b]);
            if (plan)
                vec_push(cx->scratch, plans, plan);
        }
}

static Node *rebuild_loop(Rebuild *r, const Plans *plans, const Node *n)
{
    Loop *loop = loop_with_stacks(r, n, plans);
    bool second = false;
    for (int p = 0; p < plans->len; p++)
        second |= plans->at[p]->to == n;
    r->second = n;
    if (second)
        return rebuild_second(r, plans, loop);
    Node **in = NEW_ARRAY(r->cx->scratch, Node *, n->n_in + 1);
    for (int i = 0; i < n->n_in; i++)
        in[i] = r->copy[n->in[i]->id];
    return ir_loop(r->to, loop, n->n_in, in, n->span);
}

/* g again, with every loop rebuilt by the plans. */
static Graph *rebuild_graph(Context *cx, Graph *g, const Plans *plans)
{
    Rebuild r = { .cx = cx, .to = graph_new(g->program, g->name, g->parent) };
    r.copy = NEW_ARRAY(cx->scratch, Node *, g->nodes.len + 1);
    r.loop = NEW_ARRAY(cx->scratch, Node *, g->nodes.len + 1);
    r.stack = NEW_ARRAY(cx->scratch, int *, g->nodes.len + 1);
    r.there = NEW_ARRAY(cx->scratch, Node **, plans->len + 1);
    for (int p = 0; p < plans->len; p++)
        r.there[p] = NEW_ARRAY(cx->scratch, Node *,
                               plans->at[p]->from->attr.loop->body->nodes.len + 1);
    for (int i = 0; i < g->nodes.len; i++) {
        const Node *n = g->nodes.at[i];
        if (n->op != OP_LOOP) {
            r.copy[i] = graph_copy_node(r.to, n, r.copy);
            continue;
        }
        Node *loop = rebuild_loop(&r, plans, n);
        loop->undoes = n->undoes;
        loop->backward = n->backward;
        r.loop[i] = loop;
        r.copy[i] = n->n_out == 1 ? ir_named(ir_result(loop, 0), n->name) : loop;
        r.copy[i]->backward = n->backward;
    }
    for (int i = 0; i < g->sinks.len; i++)
        ir_sink(r.to, g->sinks.at[i].kind, g->sinks.at[i].index,
                r.copy[g->sinks.at[i].node->id]);
    return r.to;
}

static Graph *keep_graph(Context *cx, Graph *g);

/* g with what this pass makes of the loops inside its loops. */
static Graph *keep_bodies(Context *cx, Graph *g)
{
    Graph *to = graph_new(g->program, g->name, g->parent);
    Node **copy = NEW_ARRAY(cx->scratch, Node *, g->nodes.len + 1);
    for (int i = 0; i < g->nodes.len; i++) {
        const Node *n = g->nodes.at[i];
        Graph *kept = n->op == OP_LOOP ? keep_graph(cx, n->attr.loop->body) : NULL;
        if (!kept || kept == n->attr.loop->body) {
            copy[i] = graph_copy_node(to, n, copy);
            continue;
        }
        Node with = *n;
        with.attr.loop = NEW(cx->arena, Loop);
        *with.attr.loop = *n->attr.loop;
        with.attr.loop->body = kept;
        kept->parent = to;
        copy[i] = graph_copy_node(to, &with, copy);
    }
    for (int i = 0; i < g->sinks.len; i++)
        ir_sink(to, g->sinks.at[i].kind, g->sinks.at[i].index, copy[g->sinks.at[i].node->id]);
    return to;
}

static Graph *keep_graph(Context *cx, Graph *g)
{
    Plans plans = { 0 };
    bool loops = false;
    for (int i = 0; i < g->nodes.len; i++)
        loops |= g->nodes.at[i]->op == OP_LOOP;
    if (!loops)
        return g;
    g = keep_bodies(cx, g);
    find_plans(cx, g, &plans);
    return plans.len ? rebuild_graph(cx, g, &plans) : g;
}

Graph *pass_keep(Graph *g)
{
    g = graph_rewrite(g, NULL, NULL);
    return graph_rewrite(keep_graph(g->program->cx, g), NULL, NULL);
}
