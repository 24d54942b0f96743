/* node.c -- building nodes.
 *
 * In: an op, inputs, attributes. Out: the one node of the graph that is this value: nodes are
 * hash-consed, so building an equal node again gives the first one back, with its span and name.
 * Arity, types and attributes are checked by the op's row; a violation is a bug of the caller.
 */
#include "ir/program.h"
#include "op/op.h"

#include <string.h>

/* ---- the table of a graph's nodes ---------------------------------------------------------- */

typedef struct Cell {
    uint64_t hash;
    Node *node;
    struct Cell *next;
} Cell;
typedef struct {
    Cell **bucket;
    int n_buckets, n;
} Consed;

Graph *graph_new(Program *p, const char *name, Graph *parent)
{
    Graph *g = NEW(p->cx->arena, Graph);
    Consed *c = NEW(p->cx->arena, Consed);
    c->n_buckets = 64;
    c->bucket = NEW_ARRAY(p->cx->arena, Cell *, c->n_buckets);
    g->program = p;
    g->name = name;
    g->parent = parent;
    g->consed = c;
    return g;
}

static uint64_t node_hash(Op op, const Type *type, int n_in, Node *const *in, const Attr *attr)
{
    int part[8] = { (int)op,      (int)type->dtype,
                    type->rank,   attr->index,
                    n_in,         (int)attr->arg,
                    attr->n_axes, attr->ta + 2 * attr->tb + 4 * attr->causal + 8 * attr->wide };
    uint64_t h = hash_bytes(part, sizeof part, 1469598103934665603u);
    h = hash_bytes(&attr->value, sizeof attr->value, h);
    h = hash_bytes(attr->axes, sizeof attr->axes[0] * (size_t)attr->n_axes, h);
    for (int i = 0; i < n_in; i++)
        h = hash_bytes(&in[i]->id, sizeof in[i]->id, h);
    return h;
}

static bool same_dim(const Dim *a, const Dim *b) { return a == b || (a && b && dim_same(a, b)); }

static bool attr_same(const Attr *a, const Attr *b)
{
    if (memcmp(&a->value, &b->value, sizeof a->value) != 0 || a->index != b->index
        || a->arg != b->arg || a->n_axes != b->n_axes || a->ta != b->ta || a->tb != b->tb
        || a->causal != b->causal || a->wide != b->wide || a->stream != b->stream
        || a->loop != b->loop || !same_dim(a->dim, b->dim))
        return false;
    for (int i = 0; i < RANK_MAX; i++)
        if ((i < a->n_axes && a->axes[i] != b->axes[i]) || !same_dim(a->lo[i], b->lo[i]))
            return false;
    return true;
}

static void consed_add(Arena *a, Consed *c, uint64_t hash, Node *n)
{
    if (c->n >= c->n_buckets) {
        Cell **grown = NEW_ARRAY(a, Cell *, c->n_buckets * 4);
        for (int i = 0; i < c->n_buckets; i++)
            for (Cell *cell = c->bucket[i], *next; cell; cell = next) {
                next = cell->next;
                uint64_t to = cell->hash % (uint64_t)(c->n_buckets * 4);
                cell->next = grown[to];
                grown[to] = cell;
            }
        c->bucket = grown;
        c->n_buckets *= 4;
    }
    Cell *cell = NEW(a, Cell);
    *cell = (Cell){ hash, n, c->bucket[hash % (uint64_t)c->n_buckets] };
    c->bucket[hash % (uint64_t)c->n_buckets] = cell;
    c->n++;
}

static Node *consed_find(const Consed *c, uint64_t hash, Op op, const Type *type, int n_in,
                         Node *const *in, const Attr *attr)
{
    for (Cell *cell = c->bucket[hash % (uint64_t)c->n_buckets]; cell; cell = cell->next) {
        Node *n = cell->node;
        bool same = cell->hash == hash && n->op == op && n->n_in == n_in && type_same(n->type, type)
                    && attr_same(&n->attr, attr);
        for (int i = 0; same && i < n_in; i++)
            same = n->in[i] == in[i];
        if (same)
            return n;
    }
    return NULL;
}

/* ---- nodes --------------------------------------------------------------------------------- */

static Node *node_intern(Graph *g, Op op, int n_out, const Type *const *types, int n_in,
                         Node *const *in, const Attr *attr, Span at)
{
    Arena *a = g->program->cx->arena;
    uint64_t hash = node_hash(op, types[0], n_in, in, attr);
    if (!attr->keep) {
        Node *old = consed_find(g->consed, hash, op, types[0], n_in, in, attr);
        if (old)
            return old;
    }
    Node *n = NEW(a, Node);
    n->op = op;
    n->id = g->nodes.len;
    n->graph = g;
    n->n_in = n_in;
    n->n_out = n_out;
    n->in = NEW_ARRAY(a, Node *, n_in + 1);
    n->types = NEW_ARRAY(a, const Type *, n_out);
    for (int i = 0; i < n_in; i++)
        n->in[i] = in[i];
    for (int i = 0; i < n_out; i++)
        n->types[i] = types[i];
    n->type = types[0];
    n->attr = *attr;
    n->span = at;
    vec_push(a, &g->nodes, n);
    if (!attr->keep)
        consed_add(a, g->consed, hash, n);
    return n;
}

/* Refuses what no node may be built from; prints the operands' types. */
static void node_refuse(Graph *g, Op op, int n_in, Node *const *in, Span at, const char *why)
{
    Context *cx = g->program->cx;
    Text t = text_new(cx->scratch);
    for (int i = 0; i < n_in; i++)
        text_add(&t, "%s%s", i ? ", " : "", type_text(cx, in[i]->type));
    bug("%s of (%s) in graph %s%s%s: %s", op_row(op)->name, t.at, g->name, at.file ? " at " : "",
        at.file ? source_where(cx, at) : "", why);
}

static void check_inputs(Graph *g, Op op, int n_in, Node *const *in, Span at)
{
    const OpRow *row = op_row(op);
    if (row->arity >= 0 && row->arity != n_in)
        bug("%s has %d inputs, not %d", row->name, row->arity, n_in);
    for (int i = 0; i < n_in; i++) {
        if (in[i]->graph != g)
            node_refuse(g, op, n_in, in, at, "an input is in another graph");
        if (in[i]->n_out != 1 && op != OP_RESULT)
            node_refuse(g, op, n_in, in, at, "an input has several results");
    }
}

Node *ir_node(Graph *g, Op op, int n_in, Node *const *in, const Attr *attr, Span at)
{
    static const Attr none = { 0 };
    const OpRow *row = op_row(op);
    const char *why = "its type is not inferred";
    attr = attr ? attr : &none;
    check_inputs(g, op, n_in, in, at);
    int max = attr->loop ? attr->loop->n_carry + attr->loop->n_stack : 4;
    const Type **types = NEW_ARRAY(g->program->cx->scratch, const Type *, max + 1);
    int n_out = row->shape ? row->shape(g->program->dims, n_in, in, attr, types, &why) : 0;
    if (n_out < 1)
        node_refuse(g, op, n_in, in, at, why);
    return node_intern(g, op, n_out, types, n_in, in, attr, at);
}

Node *ir_typed(Graph *g, Op op, const Type *type, int n_in, Node *const *in, const Attr *attr,
               Span at)
{
    static const Attr none = { 0 };
    const OpRow *row = op_row(op);
    attr = attr ? attr : &none;
    check_inputs(g, op, n_in, in, at);
    if (!row->check)
        bug("the type of %s is inferred", row->name);
    const char *why = row->check(g, type, n_in, in, attr);
    if (why)
        node_refuse(g, op, n_in, in, at, why);
    return node_intern(g, op, 1, &type, n_in, in, attr, at);
}

void ir_sink(Graph *g, SinkKind kind, int index, Node *n)
{
    vec_push(g->program->cx->arena, &g->sinks, ((Sink){ kind, index, n }));
}

Node *ir_named(Node *n, const char *name)
{
    if (!n->name)
        n->name = name;
    return n;
}

/* ---- leaves -------------------------------------------------------------------------------- */

static const Type *scalar(Graph *g, DType t) { return type_of(g->program->dims, t, 0, NULL); }

Node *ir_const(Graph *g, DType t, double value, Span at)
{
    return ir_typed(g, OP_CONST, scalar(g, t), 0, NULL, &(Attr){ .value = value }, at);
}

Node *ir_dim(Graph *g, DType t, const Dim *d, Span at)
{
    return ir_typed(g, OP_DIM, scalar(g, t), 0, NULL, &(Attr){ .dim = d }, at);
}

Node *ir_param(Graph *g, int index, Span at)
{
    const Param *p = &g->program->params.at[index];
    Node *n = ir_typed(g, OP_PARAM, p->stacked, 0, NULL, &(Attr){ .index = index }, at);
    return ir_named(n, p->name);
}

Node *ir_input(Graph *g, int index, Span at)
{
    const Input *p = &g->program->inputs.at[index];
    Node *n = ir_typed(g, OP_INPUT, p->type, 0, NULL, &(Attr){ .index = index }, at);
    return ir_named(n, p->name);
}

Node *ir_arg(Graph *body, ArgKind kind, const Type *type, Span at)
{
    Attr attr = { .index = body->args.len, .arg = kind };
    Node *n = ir_typed(body, OP_ARG, type, 0, NULL, &attr, at);
    vec_push(body->program->cx->arena, &body->args, n);
    return n;
}

Node *ir_iota(Graph *g, int rank, const Dim *const *dim, int axis, Span at)
{
    const Type *type = type_of(g->program->dims, DT_I32, rank, dim);
    return ir_typed(g, OP_IOTA, type, 0, NULL, &(Attr){ .n_axes = 1, .axes = { axis } }, at);
}

/* ---- pointwise, reductions, products ------------------------------------------------------- */

Node *ir_unary(Graph *g, Op op, Node *a, Span at) { return ir_node(g, op, 1, &a, NULL, at); }

Node *ir_binary(Graph *g, Op op, Node *a, Node *b, Span at)
{
    return ir_node(g, op, 2, (Node *[]){ a, b }, NULL, at);
}

Node *ir_where(Graph *g, Node *c, Node *a, Node *b, Span at)
{
    return ir_node(g, OP_WHERE, 3, (Node *[]){ c, a, b }, NULL, at);
}

Node *ir_cast(Graph *g, Node *a, DType t, Span at)
{
    if (a->type->dtype == t)
        return a;
    const Type *type = type_of(g->program->dims, t, a->type->rank, a->type->dim);
    return ir_typed(g, OP_CAST, type, 1, &a, NULL, at);
}

static Attr attr_axes(int n, const int *axes)
{
    Attr attr = { .n_axes = n };
    if (n > RANK_MAX)
        bug("%d axes", n);
    for (int i = 0; i < n; i++)
        attr.axes[i] = axes[i];
    return attr;
}

Node *ir_reduce(Graph *g, Op op, Node *a, int n_axes, const int *axes, Span at)
{
    Attr attr = attr_axes(n_axes, axes);
    return ir_node(g, op, 1, &a, &attr, at);
}

Node *ir_matmul(Graph *g, Node *a, Node *b, bool ta, bool tb, Span at)
{
    return ir_node(g, OP_MATMUL, 2, (Node *[]){ a, b }, &(Attr){ .ta = ta, .tb = tb }, at);
}

/* ---- movement ------------------------------------------------------------------------------ */

Node *ir_reshape(Graph *g, Node *a, int rank, const Dim *const *dim, Span at)
{
    const Type *type = type_of(g->program->dims, a->type->dtype, rank, dim);
    return type_same(type, a->type) ? a : ir_typed(g, OP_RESHAPE, type, 1, &a, NULL, at);
}

Node *ir_transpose(Graph *g, Node *a, const int *axes, Span at)
{
    Attr attr = attr_axes(a->type->rank, axes);
    return ir_node(g, OP_TRANSPOSE, 1, &a, &attr, at);
}

Node *ir_broadcast(Graph *g, Node *a, int rank, const Dim *const *dim, const int *axes, Span at)
{
    Attr attr = attr_axes(a->type->rank, axes);
    return ir_typed(g, OP_BROADCAST, type_of(g->program->dims, a->type->dtype, rank, dim), 1, &a,
                    &attr, at);
}

static Node *boxed(Graph *g, Op op, Node *a, const Dim *const *lo, const Dim *const *size, Span at)
{
    Attr attr = { 0 };
    for (int i = 0; i < a->type->rank; i++)
        attr.lo[i] = lo[i];
    return ir_typed(g, op, type_of(g->program->dims, a->type->dtype, a->type->rank, size), 1, &a,
                    &attr, at);
}

Node *ir_slice(Graph *g, Node *a, const Dim *const *lo, const Dim *const *size, Span at)
{
    return boxed(g, OP_SLICE, a, lo, size, at);
}

Node *ir_pad(Graph *g, Node *a, const Dim *const *before, const Dim *const *size, Span at)
{
    return boxed(g, OP_PAD, a, before, size, at);
}

Node *ir_concat(Graph *g, int n, Node *const *in, int axis, Span at)
{
    return ir_node(g, OP_CONCAT, n, in, &(Attr){ .n_axes = 1, .axes = { axis } }, at);
}

Node *ir_gather(Graph *g, Node *table, Node *ids, Span at)
{
    return ir_binary(g, OP_GATHER, table, ids, at);
}

Node *ir_scatter(Graph *g, Node *ids, Node *rows, const Dim *n_rows, Span at)
{
    const Dim *dim[RANK_MAX] = { n_rows };
    int ids_rank = ids->type->rank, rank = 1;
    for (int i = ids_rank; i < rows->type->rank && rank < RANK_MAX; i++)
        dim[rank++] = rows->type->dim[i];
    const Type *type = type_of(g->program->dims, rows->type->dtype, rank, dim);
    return ir_typed(g, OP_SCATTER, type, 2, (Node *[]){ ids, rows }, NULL, at);
}

/* ---- several results, loops ---------------------------------------------------------------- */

Node *ir_result(Node *n, int k)
{
    if (n->n_out == 1 && k == 0)
        return n;
    return ir_node(n->graph, OP_RESULT, 1, &n, &(Attr){ .index = k }, n->span);
}

Node *ir_loop(Graph *g, Loop *loop, int n_in, Node *const *in, Span at)
{
    return ir_node(g, OP_LOOP, n_in, in, &(Attr){ .loop = loop }, at);
}
