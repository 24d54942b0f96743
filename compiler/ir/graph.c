/* graph.c -- walking and rewriting graphs.
 *
 * In: a graph and a function that may replace a node. Out: a new graph that holds what the sinks
 * need and nothing else. The one idea: a graph is never changed, it is copied node by node in id
 * order, and the copy asks for a replacement of each rebuilt node. Copies repeat without the
 * function until nothing disappears any more, because a replaced node can leave others unused.
 */
#include "ir/program.h"
#include "op/op.h"

/* ---- what is needed ------------------------------------------------------------------------ */

/* Marks the inputs of marked nodes. */
static void mark_inputs(const Graph *g, bool *live)
{
    for (int id = g->nodes.len - 1; id >= 0; id--)
        for (int i = 0; live[id] && i < g->nodes.at[id]->n_in; i++)
            live[g->nodes.at[id]->in[i]->id] = true;
}

bool *graph_live(Graph *g)
{
    bool *live = NEW_ARRAY(g->program->cx->scratch, bool, g->nodes.len + 1);
    for (int i = 0; i < g->sinks.len; i++)
        live[g->sinks.at[i].node->id] = true;
    mark_inputs(g, live);
    return live;
}

int *graph_uses(Graph *g)
{
    bool *live = graph_live(g);
    int *uses = NEW_ARRAY(g->program->cx->scratch, int, g->nodes.len + 1);
    for (int id = 0; id < g->nodes.len; id++)
        for (int i = 0; live[id] && i < g->nodes.at[id]->n_in; i++)
            uses[g->nodes.at[id]->in[i]->id]++;
    for (int i = 0; i < g->sinks.len; i++)
        uses[g->sinks.at[i].node->id]++;
    return uses;
}

/* ---- copying ------------------------------------------------------------------------------- */

typedef struct {
    Rewrite fn; /* or NULL */
    void *user;
    Map *to;         /* old node -> new node */
    Map *renumbered; /* old LOOP -> new index of each result */
    Arena *scratch;
} Copy;

/* What a new node is called and where it comes from, if it has not said so itself. */
static void set_provenance(Node *n, const Node *from)
{
    n->undoes = from->undoes;
    n->backward = from->backward;
    if (!n->name)
        n->name = from->name;
    if (!n->span.file)
        n->span = from->span;
}

/* n over the inputs in[]. */
static Node *rebuild(Graph *to, const Node *n, Node *const *in)
{
    int before = to->nodes.len;
    Node *r;
    if (n->op == OP_ARG) {
        if (n->attr.index < to->args.len)
            return to->args.at[n->attr.index];
        r = ir_arg(to, n->attr.arg, n->type, n->span);
    } else if (op_row(n->op)->shape) {
        r = ir_node(to, n->op, n->n_in, in, &n->attr, n->span);
    } else {
        r = ir_typed(to, n->op, n->type, n->n_in, in, &n->attr, n->span);
    }
    if (to->nodes.len > before)
        set_provenance(r, n);
    return r;
}

Node *graph_copy_node(Graph *to, const Node *n, Node *const *map)
{
    Node **in = NEW_ARRAY(to->program->cx->scratch, Node *, n->n_in + 1);
    for (int i = 0; i < n->n_in; i++)
        in[i] = map[n->in[i]->id];
    return rebuild(to, n, in);
}

/* Offers r, which stands for n, to the rewrite. */
static Node *offer(Copy *c, Graph *to, const Node *n, Node *r)
{
    int before = to->nodes.len;
    Node *other = c->fn ? c->fn(to, r, c->user) : NULL;
    if (!other || other == r)
        return r;
    for (int id = before; id < to->nodes.len; id++) {
        Node *made = to->nodes.at[id];
        if (!made->backward) {
            made->backward = r->backward;
            made->undoes = r->undoes;
        }
        if (!made->span.file)
            made->span = n->span;
    }
    return other->n_in > 0 ? ir_named(other, n->name) : other;
}

static void copy_nodes(Copy *c, Graph *from, Graph *to, const bool *live);

/* ---- loops --------------------------------------------------------------------------------- */

/* What of a loop is needed: body nodes by id, inputs and results by position. */
typedef struct {
    bool *nodes, *inputs, *results;
} Needed;

static const Node *body_result(const Graph *body, int k)
{
    for (int i = 0; i < body->sinks.len; i++)
        if (body->sinks.at[i].index == k)
            return body->sinks.at[i].node;
    bug("loop body %s has no result %d", body->name, k);
}

/* A carry is needed when its last value is, or when the body reads it. */
static Needed loop_needed(Arena *scratch, const Loop *l, const bool *used)
{
    int n_in = l->n_carry + l->n_slice + l->n_shared, n_out = l->n_carry + l->n_stack;
    Needed need = { NEW_ARRAY(scratch, bool, l->body->nodes.len + 1),
                    NEW_ARRAY(scratch, bool, n_in + 1), NEW_ARRAY(scratch, bool, n_out + 1) };
    for (int k = 0; k < n_out; k++)
        need.results[k] = used[k];
    for (bool more = true; more;) {
        more = false;
        for (int k = 0; k < n_out; k++)
            if (need.results[k])
                need.nodes[body_result(l->body, k)->id] = true;
        mark_inputs(l->body, need.nodes);
        for (int k = 0; k < l->n_carry; k++)
            if (!need.results[k] && need.nodes[l->body->args.at[k]->id])
                more = need.results[k] = true;
    }
    for (int i = 0; i < n_in; i++)
        need.inputs[i] = i < l->n_carry ? need.results[i] : need.nodes[l->body->args.at[i]->id];
    return need;
}

static int count_true(const bool *at, int n)
{
    int count = 0;
    for (int i = 0; i < n; i++)
        count += at[i];
    return count;
}

/* An argument of the new body for an old one. */
static void copy_arg(Copy *c, Graph *body, const Node *old)
{
    Node *arg = ir_arg(body, old->attr.arg, old->type, old->span);
    set_provenance(arg, old);
    map_set(c->to, old, arg);
}

static Node *copy_loop(Copy *c, const Node *n, Graph *to, const bool *used)
{
    Arena *arena = to->program->cx->arena;
    const Loop *l = n->attr.loop;
    int n_in = n->n_in, n_out = l->n_carry + l->n_stack, kept = 0;
    Needed need = loop_needed(c->scratch, l, used);
    Loop *loop = NEW(arena, Loop);
    *loop = *l;
    loop->n_carry = count_true(need.inputs, l->n_carry);
    loop->n_slice = count_true(need.inputs + l->n_carry, l->n_slice);
    loop->n_shared = count_true(need.inputs + l->n_carry + l->n_slice, l->n_shared);
    loop->n_stack = count_true(need.results + l->n_carry, l->n_stack);
    loop->body = graph_new(to->program, l->body->name, to);

    Node **in = NEW_ARRAY(c->scratch, Node *, n_in + 1);
    for (int i = 0; i < n_in; i++)
        if (need.inputs[i]) {
            copy_arg(c, loop->body, l->body->args.at[i]);
            in[kept++] = map_get(c->to, n->in[i]);
        }
    copy_arg(c, loop->body, l->body->args.at[n_in]);
    copy_nodes(c, l->body, loop->body, need.nodes);

    int *renumbered = NEW_ARRAY(c->scratch, int, n_out + 1);
    for (int k = 0, next = 0; k < n_out; k++)
        if (need.results[k]) {
            Node *result = map_get(c->to, body_result(l->body, k));
            ir_sink(loop->body, SINK_RESULT, next, result);
            renumbered[k] = next++;
        }
    map_set(c->renumbered, n, renumbered);
    Node *r = ir_loop(to, loop, kept, in, n->span);
    set_provenance(r, n);
    return r;
}

/* Which results of node n live nodes and sinks read. */
static bool *used_results(Copy *c, const Graph *g, const Node *n, const bool *live)
{
    bool *used = NEW_ARRAY(c->scratch, bool, n->n_out + 1);
    used[0] = n->n_out == 1;
    for (int id = n->id + 1; id < g->nodes.len; id++) {
        const Node *r = g->nodes.at[id];
        if (live[id] && r->op == OP_RESULT && r->in[0] == n)
            used[r->attr.index] = true;
    }
    return used;
}

/* ---- the copy ------------------------------------------------------------------------------ */

static void copy_nodes(Copy *c, Graph *from, Graph *to, const bool *live)
{
    for (int id = 0; id < from->nodes.len; id++) {
        const Node *n = from->nodes.at[id];
        if (!live[id] || map_get(c->to, n))
            continue;
        Node *r;
        Node **in = NEW_ARRAY(c->scratch, Node *, n->n_in + 1);
        for (int i = 0; i < n->n_in; i++)
            in[i] = map_get(c->to, n->in[i]);
        if (n->op == OP_LOOP) {
            r = copy_loop(c, n, to, used_results(c, from, n, live));
        } else if (n->op == OP_RESULT && n->in[0]->op == OP_LOOP) {
            int *renumbered = map_get(c->renumbered, n->in[0]);
            r = ir_result(in[0], renumbered[n->attr.index]);
            if (r != in[0])
                set_provenance(r, n);
            else
                ir_named(r, n->name);
        } else {
            r = rebuild(to, n, in);
        }
        if (r->undoes && map_get(c->to, r->undoes))
            r->undoes = map_get(c->to, r->undoes);
        map_set(c->to, n, offer(c, to, n, r));
    }
}

static Graph *copy_graph(Graph *g, Rewrite fn, void *user)
{
    Context *cx = g->program->cx;
    Copy c = { fn, user, map_new(cx->scratch), map_new(cx->scratch), cx->scratch };
    Graph *to = graph_new(g->program, g->name, g->parent);
    for (int i = 0; i < g->args.len; i++)
        copy_arg(&c, to, g->args.at[i]);
    copy_nodes(&c, g, to, graph_live(g));
    for (int i = 0; i < g->sinks.len; i++)
        ir_sink(to, g->sinks.at[i].kind, g->sinks.at[i].index, map_get(c.to, g->sinks.at[i].node));
    return to;
}

static int count_nodes(const Graph *g)
{
    int n = g->nodes.len;
    for (int id = 0; id < g->nodes.len; id++)
        if (g->nodes.at[id]->op == OP_LOOP)
            n += count_nodes(g->nodes.at[id]->attr.loop->body);
    return n;
}

Graph *graph_rewrite(Graph *g, Rewrite rewrite, void *user)
{
    Graph *r = copy_graph(g, rewrite, user);
    for (;;) {
        Graph *smaller = copy_graph(r, NULL, NULL);
        if (count_nodes(smaller) == count_nodes(r))
            return smaller;
        r = smaller;
    }
}
