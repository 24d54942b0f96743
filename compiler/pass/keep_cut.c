/* keep_cut.c -- a cheapest set of nodes that cuts all ways from a source to a sink.
 *
 * In: a directed graph whose nodes have weights. Out: the set. The idea: maximum flow through
 * nodes of limited width (each node is an edge from its entrance to its exit); where the flow
 * fills a node there is the cut. Shortest ways first; bodies have hundreds of nodes, not millions.
 */
#include "pass/keep.h"

typedef struct {
    int to, back;
    int64_t room;
} Edge;
typedef VEC(Edge) Edges;

struct Cut {
    Arena *arena;
    int n; /* nodes; entrance 2i, exit 2i + 1, then source and sink */
    Edges *out;
};

static const int64_t unlimited = INT64_MAX / 4;

static int source_end(const Cut *c) { return 2 * c->n; }
static int sink_end(const Cut *c) { return 2 * c->n + 1; }

Cut *cut_new(Arena *a, int n_nodes)
{
    Cut *c = NEW(a, Cut);
    c->arena = a;
    c->n = n_nodes;
    c->out = NEW_ARRAY(a, Edges, 2 * n_nodes + 2);
    return c;
}

static void add_edge(Cut *c, int from, int to, int64_t room)
{
    const Edge there = { to, c->out[to].len, room }, back = { from, c->out[from].len, 0 };
    vec_push(c->arena, &c->out[from], there);
    vec_push(c->arena, &c->out[to], back);
}

static int64_t room_of(int64_t weight) { return weight == CUT_NEVER ? unlimited : weight; }

void cut_weight(Cut *c, int node, int64_t weight)
{
    add_edge(c, 2 * node, 2 * node + 1, room_of(weight));
}
void cut_edge(Cut *c, int from, int to) { add_edge(c, 2 * from + 1, 2 * to, unlimited); }
void cut_source(Cut *c, int node, int64_t weight)
{
    add_edge(c, source_end(c), 2 * node, room_of(weight));
}
void cut_sink(Cut *c, int node) { add_edge(c, 2 * node + 1, sink_end(c), unlimited); }

/* A shortest way with room to the sink; edges by which its nodes are entered. False: none. */
static bool find_way(Cut *c, Edge **entered, int *queue)
{
    const int n = 2 * c->n + 2;
    int head = 0, tail = 0;
    for (int i = 0; i < n; i++)
        entered[i] = NULL;
    queue[tail++] = source_end(c);
    while (head < tail && !entered[sink_end(c)]) {
        const int at = queue[head++];
        for (int i = 0; i < c->out[at].len; i++) {
            Edge *e = &c->out[at].at[i];
            if (e->room <= 0 || entered[e->to] || e->to == source_end(c))
                continue;
            entered[e->to] = e;
            queue[tail++] = e->to;
        }
    }
    return entered[sink_end(c)] != NULL;
}

static Edge *twin(const Cut *c, const Edge *e) { return &c->out[e->to].at[e->back]; }

static void push_flow(Cut *c, Edge *const *entered)
{
    int64_t room = unlimited;
    for (int at = sink_end(c); at != source_end(c); at = twin(c, entered[at])->to)
        room = entered[at]->room < room ? entered[at]->room : room;
    for (int at = sink_end(c); at != source_end(c);) {
        Edge *e = entered[at], *t = twin(c, e);
        e->room -= room;
        t->room += room;
        at = t->to;
    }
}

bool *cut_solve(Cut *c)
{
    const int n = 2 * c->n + 2;
    Edge **entered = NEW_ARRAY(c->arena, Edge *, n);
    int *queue = NEW_ARRAY(c->arena, int, n);
    while (find_way(c, entered, queue))
        push_flow(c, entered);
    /* What still reaches the sink lies behind the cut. */
    bool *behind = NEW_ARRAY(c->arena, bool, n), *cut = NEW_ARRAY(c->arena, bool, c->n + 1);
    int head = 0, tail = 0;
    behind[sink_end(c)] = true;
    queue[tail++] = sink_end(c);
    while (head < tail) {
        const int at = queue[head++];
        for (int i = 0; i < c->out[at].len; i++) {
            const Edge *e = &c->out[at].at[i];
            if (twin(c, e)->room <= 0 || behind[e->to])
                continue;
            behind[e->to] = true;
            queue[tail++] = e->to;
        }
    }
    for (int i = 0; i < c->n; i++)
        cut[i] = behind[2 * i + 1] && !behind[2 * i] && c->out[2 * i].len > 0;
    return cut;
}
