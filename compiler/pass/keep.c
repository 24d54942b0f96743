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
 * which; both loops are rebuilt, the first with a stack for each kept value, the second with slices
 * of these and the recomputation in its body. Draws come out the same, because they depend on
 * stream and iteration only. Stacks that nobody reads any more disappear at the end.
 *
 * Needs: simplified tensor IR. Guarantees: the same bits.
 */
#include "pass/keep.h"

static void find_plans(Context *cx, Graph *g, const KeepChoice *choice, KeepPlans *plans)
{
    int number = 0;
    for (int b = 0; b < g->nodes.len; b++)
        for (int a = 0; g->nodes.at[b]->op == OP_LOOP && a < b; a++) {
            if (g->nodes.at[a]->op != OP_LOOP)
                continue;
            KeepPlan *plan = keep_plan(cx, NULL, g->nodes.at[a], g->nodes.at[b], choice, number);
            if (plan)
                vec_push(cx->scratch, plans, plan);
            number += plan ? plan->from->attr.loop->body->nodes.len : 0;
        }
}

static Node *rebuild_loop(Rebuild *r, const Node *n)
{
    Loop *loop = rebuild_stacks(r, r->to, n);
    if (rebuild_is_second(r, n))
        return rebuild_second(r, n, loop);
    Node **in = NEW_ARRAY(r->cx->scratch, Node *, n->n_in + 1);
    for (int i = 0; i < n->n_in; i++)
        in[i] = r->copy[n->in[i]->id];
    return ir_loop(r->to, loop, n->n_in, in, n->span);
}

/* g again, with every loop rebuilt by the plans. */
static Graph *rebuild_graph(Context *cx, Graph *g, KeepPlans *plans)
{
    Graph *to = graph_new(g->program, g->name, g->parent);
    Rebuild *r = rebuild_new(cx, plans, to, g->nodes.len, g->nodes.len);
    r->first = r->copy;
    for (int i = 0; i < g->nodes.len; i++) {
        const Node *n = g->nodes.at[i];
        if (n->op == OP_LOOP) {
            r->loop[i] = rebuild_loop(r, n);
            r->copy[i] = rebuild_provenance(r->loop[i], n);
        } else {
            r->copy[i] = graph_copy_node(to, n, r->copy);
        }
    }
    for (int i = 0; i < g->sinks.len; i++)
        ir_sink(to, g->sinks.at[i].kind, g->sinks.at[i].index, r->copy[g->sinks.at[i].node->id]);
    return to;
}

static Graph *keep_graph(Context *cx, Graph *g, const KeepChoice *choice, AgainList *again);

/* Inside an iteration that is computed again, what costs no time is enough. */
static const KeepChoice *inner_choice(const KeepChoice *choice)
{
    static const KeepChoice cheap = { .rule = KEEP_CHEAP };
    return choice->rule == KEEP_ALL ? choice : &cheap;
}

/* The value that a needed one is a view of, or a result of: that is what is told. */
static const Node *told_of(const KeepPlan *plan, const Node *n)
{
    while (!plan->saved[n->id] && !plan->turned[n->id] && (n->op == OP_RESULT || keep_is_view(n)))
        n = n->in[0];
    return n;
}

static const char **names_told(Context *cx, const KeepPlan *plan, bool *wanted)
{
    const Graph *body = plan->from->attr.loop->body;
    const char **name = NEW_ARRAY(cx->scratch, const char *, body->nodes.len + 1);
    for (int i = 0; i < body->nodes.len; i++) {
        const Node *n = body->nodes.at[i], *root = told_of(plan, n);
        if (!plan->needed[i])
            continue;
        wanted[root->id] = true;
        if (!name[root->id])
            name[root->id] = root->name ? root->name : n->name;
    }
    return name;
}

static void list_again(Context *cx, const KeepPlans *plans, AgainList *again)
{
    for (int p = 0; p < plans->len; p++) {
        const KeepPlan *plan = plans->at[p];
        const Loop *l = plan->from->attr.loop;
        bool *wanted = NEW_ARRAY(cx->scratch, bool, l->body->nodes.len + 1);
        const char **name = names_told(cx, plan, wanted);
        for (int i = 0; i < l->body->nodes.len; i++) {
            const Node *n = l->body->nodes.at[i];
            const bool made = plan->needed[i] || plan->again[i];
            if (!made || plan->saved[i] || plan->turned[i] || n->op == OP_RESULT || keep_is_view(n)
                || op_row(n->op)->class == CLASS_LEAF)
                continue;
            const Again a = { .number = plan->first_number + i,
                              .value = n,
                              .trip = l->trip,
                              .wanted = wanted[i],
                              .name = name[i] ? name[i] : n->name,
                              .light = keep_is_light(n) && !plan->operand[i] };
            vec_push(cx->arena, again, a);
        }
    }
}

/* g with what this pass makes of the loops inside its loops. */
static Graph *keep_bodies(Context *cx, Graph *g, const KeepChoice *choice)
{
    Graph *to = graph_new(g->program, g->name, g->parent);
    Node **copy = NEW_ARRAY(cx->scratch, Node *, g->nodes.len + 1);
    for (int i = 0; i < g->nodes.len; i++) {
        const Node *n = g->nodes.at[i];
        Graph *kept = n->op == OP_LOOP ? keep_graph(cx, n->attr.loop->body, choice, NULL) : NULL;
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

static Graph *keep_graph(Context *cx, Graph *g, const KeepChoice *choice, AgainList *again)
{
    KeepPlans plans = { 0 };
    bool loops = false;
    for (int i = 0; i < g->nodes.len; i++)
        loops |= g->nodes.at[i]->op == OP_LOOP;
    if (!loops)
        return g;
    g = keep_nested(cx, keep_bodies(cx, g, inner_choice(choice)), inner_choice(choice));
    find_plans(cx, g, choice, &plans);
    if (again)
        list_again(cx, &plans, again);
    return plans.len ? rebuild_graph(cx, g, &plans) : g;
}

Graph *pass_keep(Graph *g, const KeepChoice *choice, AgainList *again)
{
    g = graph_rewrite(g, NULL, NULL);
    return graph_rewrite(keep_graph(g->program->cx, g, choice, again), NULL, NULL);
}
