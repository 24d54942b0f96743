/* fuse_roots.c -- which values are stored, and which are computed again where they are used.
 *
 * In: the nodes of a scope. Out: Info.free (costs nothing: constants, indexes), Info.root (a kernel
 * computes it), Info.need (somebody reads it where it lies). The idea: calls read from memory, so
 * their operands are stored; a reduction is computed once; of the rest, what is cheap or used once
 * becomes part of its users.
 */
#include "pass/fuse.h"

enum {
    COST_AGAIN = 3,  /* cheap enough to be computed several times */
    LOADS_AGAIN = 1, /* no more to read than if it were stored */
    COST_SPREAD = 4, /* too dear to be computed again along an axis */
    COST_MAX = 200,
    LOADS_MAX = 10, /* of one expression */
};

bool node_is_view(const Node *n)
{
    return n->op == OP_RESHAPE || n->op == OP_TRANSPOSE || n->op == OP_SLICE
           || n->op == OP_BROADCAST || node_is_handed(n);
}

bool node_is_call(const Node *n)
{
    return n->op == OP_MATMUL || n->op == OP_SCATTER || n->op == OP_ATTENTION
           || n->op == OP_ATTENTION_GRAD || n->op == OP_LOOP;
}

static bool node_is_buffer(const Node *n)
{
    return n->op == OP_PARAM || n->op == OP_COPY16 || n->op == OP_INPUT || n->op == OP_ARG
           || n->op == OP_RESULT || n->op == OP_CONCAT || node_is_call(n);
}

Scope *scope_of(Scope *s, const Node *n)
{
    while (s && s->g != n->graph)
        s = s->outer;
    if (!s)
        bug("%s %%%d of graph %s is not in reach", op_row(n->op)->name, n->id, n->graph->name);
    return s;
}

Node *node_resolve(Scope **s, Node *n)
{
    while (n->op == OP_ARG && n->attr.arg == ARG_SHARED && (*s)->outer && (*s)->at[n->id].free) {
        n = (*s)->node->in[n->attr.index];
        *s = (*s)->outer;
    }
    return n;
}

/* ---- reductions ----------------------------------------------------------------------------- */

static bool axes_adjacent(const Attr *a)
{
    return a->axes[a->n_axes - 1] - a->axes[0] == a->n_axes - 1;
}

RootKind root_kind(const Node *n)
{
    if (!op_is(n, CLASS_REDUCE))
        return ROOT_POINT;
    int rank = n->in[0]->type->rank;
    if (n->op == OP_SUM && n->attr.n_axes == rank)
        return ROOT_TOTAL;
    bool leading = n->attr.axes[0] == 0 && axes_adjacent(&n->attr);
    return n->op == OP_SUM && leading ? ROOT_COLUMN : ROOT_ROW;
}

/* A reduction over axes that lie apart: the last run of axes first. */
static Node *split_reduction(Graph *to, Node *n, void *user)
{
    (void)user;
    if (!op_is(n, CLASS_REDUCE) || axes_adjacent(&n->attr) || root_kind(n) == ROOT_TOTAL)
        return NULL;
    int count = n->attr.n_axes, from = count - 1;
    while (n->attr.axes[from - 1] == n->attr.axes[from] - 1)
        from--;
    Node *part = ir_reduce(to, n->op, n->in[0], count - from, n->attr.axes + from, n->span);
    part->undoes = n->undoes;
    part->backward = n->backward;
    Node *rest = ir_reduce(to, n->op, part, from, n->attr.axes, n->span);
    Node *again = split_reduction(to, rest, NULL);
    return again ? again : rest;
}

static bool has_apart(const Graph *g)
{
    for (int i = 0; i < g->nodes.len; i++) {
        const Node *n = g->nodes.at[i];
        if (op_is(n, CLASS_REDUCE) && !axes_adjacent(&n->attr) && root_kind(n) != ROOT_TOTAL)
            return true;
        if (n->op == OP_LOOP && has_apart(n->attr.loop->body))
            return true;
    }
    return false;
}

Graph *roots_prepare(Fuser *f, Graph *g)
{
    (void)f;
    return has_apart(g) ? graph_rewrite(g, split_reduction, NULL) : g;
}

/* ---- what costs nothing --------------------------------------------------------------------- */

static bool all_free(const Scope *s, const Node *n)
{
    for (int i = 0; i < n->n_in; i++)
        if (!s->at[n->in[i]->id].free)
            return false;
    return n->n_in > 0;
}

static bool is_free(Scope *s, const Node *n)
{
    if (s->force[n->id])
        return false;
    switch (n->op) {
    case OP_CONST:
    case OP_DIM:
    case OP_SEED:
    case OP_IOTA: return true;
    case OP_ARG:
        if (n->attr.arg == ARG_ITER)
            return true;
        if (n->attr.arg != ARG_SHARED || !s->outer)
            return false;
        return s->outer->at[s->node->in[n->attr.index]->id].free;
    case OP_RESHAPE:
    case OP_TRANSPOSE:
    case OP_SLICE:
    case OP_BROADCAST: return all_free(s, n);
    default: break;
    }
    bool point = op_is(n, CLASS_POINT) && op_row(n->op)->cost <= 1;
    return s->f->fuse && point && all_free(s, n);
}

/* ---- what must be stored -------------------------------------------------------------------- */

static void must_store(Scope *s, Node *n)
{
    Info *x = &s->at[n->id];
    if (!node_is_buffer(n) || x->free) /* kernels compute what is free all the same */
        x->root = true;
}

/* Somebody reads n where it lies. */
static void mark_needed(Scope *s, Node *n)
{
    Info *x = &s->at[n->id];
    x->need = true;
    if (node_is_view(n) && !x->free && !x->root)
        mark_needed(s, n->in[0]);
    else
        must_store(s, n);
}

/* n has a place of its own to go to. */
static void mark_destined(Scope *s, Node *n)
{
    while ((n->op == OP_RESHAPE || n->op == OP_TRANSPOSE || node_is_handed(n)) && !s->at[n->id].free
           && !s->at[n->id].root)
        n = n->in[0];
    if (s->at[n->id].free || node_is_view(n))
        return; /* place.c makes a copy */
    if (n->op == OP_CONCAT)
        for (int i = 0; i < n->n_in; i++)
            mark_destined(s, n->in[i]);
    else if (!node_is_buffer(n))
        s->at[n->id].root = true;
}

static void mark_inputs(Scope *s, Node *n)
{
    switch (n->op) {
    case OP_MATMUL:
    case OP_SCATTER:
    case OP_ATTENTION:
    case OP_ATTENTION_GRAD:
        for (int i = 0; i < n->n_in; i++)
            mark_needed(s, n->in[i]);
        break;
    case OP_GATHER: mark_needed(s, n->in[0]); break;
    case OP_CONCAT:
        for (int i = 0; i < n->n_in; i++)
            mark_destined(s, n->in[i]);
        break;
    case OP_LOOP:
        for (int i = 0; i < n->n_in; i++) {
            const Loop *l = n->attr.loop;
            bool free = s->at[n->in[i]->id].free;
            if (i < l->n_carry)
                mark_destined(s, n->in[i]);
            else if (i < l->n_carry + l->n_slice || !free)
                mark_needed(s, n->in[i]);
        }
        break;
    default: break;
    }
}

/* ---- sums of products ----------------------------------------------------------------------- */

static Node *through_reshapes(Scope *s, Node *n)
{
    while (n->op == OP_RESHAPE && s->at[n->id].uses == 1)
        n = n->in[0];
    return n;
}

static bool is_bias(const Scope *s, const Node *n, const Dim *width)
{
    int last = n->type->rank - 1;
    return n->op == OP_BROADCAST && !s->at[n->id].free && n->in[0]->type->rank == 1
           && n->attr.axes[0] == last && dim_same(n->type->dim[last], width);
}

/* Is n a sum of matrix products of that width and at most one bias along their columns, used for
   nothing else? */
static bool collect_products(Scope *s, Node *n, const Dim *width, Products *p)
{
    n = through_reshapes(s, n);
    if (is_bias(s, n, width) && !p->bias) {
        p->bias = n->in[0];
        return true;
    }
    if (s->at[n->id].uses != 1 || s->at[n->id].folded || n->type->rank < 1
        || !dim_same(n->type->dim[n->type->rank - 1], width))
        return false;
    if (n->op == OP_MATMUL && n->type->rank == 2) {
        vec_push(s->f->cx->scratch, &p->at, n);
        return true;
    }
    return n->op == OP_ADD && n->in[0] != n->in[1] && collect_products(s, n->in[0], width, p)
           && collect_products(s, n->in[1], width, p);
}

static void fold(Scope *s, Node *n)
{
    n = through_reshapes(s, n);
    s->at[n->id].folded = n->op == OP_MATMUL || n->op == OP_ADD;
    for (int i = 0; n->op == OP_ADD && i < 2; i++)
        fold(s, n->in[i]);
}

/* A product of values of 16 bits, rounded, and its bias: it is written rounded. */
static void find_rounded_product(Scope *s, Node *n)
{
    if (!s->f->fuse || !node_is_narrowing(n) || n->type->rank < 1 || s->at[n->id].folded)
        return;
    Products *p = NEW(s->f->cx->scratch, Products);
    if (!collect_products(s, n->in[0], n->type->dim[n->type->rank - 1], p) || p->at.len != 1
        || !narrow_is(s->f, p->at.at[0]->in[0]) || !narrow_is(s->f, p->at.at[0]->in[1]))
        return;
    s->at[n->id].sum = p;
    fold(s, n->in[0]);
    if (p->bias)
        mark_needed(s, p->bias);
}

/* h = a @ b + c @ d + bias becomes calls that write to one place: h = a @ b + bias; h += c @ d. */
static void find_products(Scope *s, Node *n)
{
    if (!s->f->fuse || n->op != OP_ADD || n->type->rank < 1 || s->at[n->id].folded
        || n->in[0] == n->in[1])
        return;
    const Dim *width = n->type->dim[n->type->rank - 1];
    Products *p = NEW(s->f->cx->scratch, Products);
    if (!collect_products(s, n->in[0], width, p) || !collect_products(s, n->in[1], width, p)
        || !p->at.len)
        return;
    s->at[n->id].sum = p;
    fold(s, n->in[0]);
    fold(s, n->in[1]);
    if (p->bias)
        mark_needed(s, p->bias);
}

/* ---- uses ----------------------------------------------------------------------------------- */

static bool looks_through(const Scope *s, const Node *n)
{
    return node_is_view(n) && !s->at[n->id].root && !s->at[n->id].free;
}

/* Does n read its input k where it lies? A carry and a part of a concatenation are copied or made
   in place. */
static bool reads_input(const Node *n, const Node *in)
{
    const Loop *l = n->op == OP_LOOP ? n->attr.loop : NULL;
    for (int k = l ? l->n_carry : 0; k < n->n_in; k++)
        if (n->in[k] == in)
            return n->op != OP_CONCAT;
    return false;
}

static void count_uses(Scope *s, const Node *n)
{
    const Info *x = &s->at[n->id];
    for (int i = 0; i < n->n_in; i++) {
        bool seen = false;
        for (int j = 0; j < i; j++)
            seen |= n->in[j] == n->in[i];
        if (seen)
            continue;
        Info *in = &s->at[n->in[i]->id];
        in->uses += looks_through(s, n) ? x->uses : 1;
        in->readers += looks_through(s, n) ? x->readers : reads_input(n, n->in[i]);
    }
}

/* What a sink stores: the terms of a sum that the loop keeps where it is summed, or the node. */
static void count_sink(Scope *s, const Sink *k)
{
    const Carry *c = s->plan && k->index < s->loop->n_carry ? &s->plan->carry[k->index] : NULL;
    bool sum = c && c->kind == CARRY_SUM;
    for (int i = 0; i < (sum ? c->terms.len : 1); i++) {
        Node *n = sum ? c->terms.at[i] : k->node;
        s->at[n->id].uses++;
        mark_destined(s, n);
    }
}

static void scan_backwards(Scope *s)
{
    Graph *g = s->g;
    for (int i = 0; i < g->sinks.len; i++)
        count_sink(s, &g->sinks.at[i]);
    for (int id = g->nodes.len - 1; id >= 0; id--) {
        Node *n = g->nodes.at[id];
        if (!s->at[id].live)
            continue;
        if (s->force[id])
            must_store(s, n);
        if (s->copy[id])
            mark_needed(s, n);
        mark_inputs(s, n);
        count_uses(s, n);
    }
    for (int id = g->nodes.len - 1; id >= 0; id--)
        if (s->at[id].live) {
            find_rounded_product(s, g->nodes.at[id]);
            find_products(s, g->nodes.at[id]);
        }
}

/* A view that is needed but cannot be a view of where its input will lie, gets a place of its own.
   Until places are chosen, Info.view is where a value would lie if stored densely. */
static void find_own(Scope *s)
{
    for (int id = 0; id < s->g->nodes.len; id++) {
        const Node *n = s->g->nodes.at[id];
        Info *x = &s->at[id];
        if (!x->live || x->has_view)
            continue;
        bool moved = x->need && node_is_view(n) && !x->root && !x->free
                     && view_move(s->f, &s->at[n->in[0]->id].view, n, &x->view);
        if (!moved) {
            x->own = x->need && node_is_view(n) && !x->root && !x->free;
            x->view = view_dense(s->f, NULL, n->type);
        }
    }
}

/* ---- the rest: again, or once --------------------------------------------------------------- */

/* What it takes to compute n in place: operations, and values of its size that are read. What is
   repeated along an axis is read and computed once per row, or stays in the cache. */
static void weigh(Scope *s, const Node *n)
{
    Info *x = &s->at[n->id];
    x->cost = x->loads = 0;
    if (x->free || node_is_buffer(n) || x->sum) {
        x->loads = !x->free && n->type->rank > 0;
        return;
    }
    x->cost = op_row(n->op)->cost + (n->op == OP_GATHER || n->op == OP_PAD);
    for (int i = 0; i < n->n_in; i++) {
        const Info *in = &s->at[n->in[i]->id];
        bool seen = false;
        for (int k = 0; k < i; k++)
            seen |= n->in[k] == n->in[i];
        if (seen)
            continue;
        x->cost += in->root ? 0 : in->cost;
        x->loads += in->root ? n->in[i]->type->rank > 0 : in->loads;
    }
    if (n->op == OP_BROADCAST)
        x->loads = x->cost = 0;
}

static void choose_one(Scope *s, const Node *n)
{
    Info *x = &s->at[n->id];
    weigh(s, n);
    if (x->root || x->free || node_is_buffer(n) || x->sum || x->folded || node_is_view(n))
        return;
    bool dear = x->cost > COST_AGAIN || x->loads > LOADS_AGAIN;
    if (op_is(n, CLASS_REDUCE) || !s->f->fuse)
        x->root = true;
    else if (n->type->rank > 0 && x->uses > 1 && dear)
        x->root = true;
    else if (x->cost > COST_MAX || x->loads > LOADS_MAX)
        x->root = true;
}

/* What is repeated along an axis, and dear, is computed before that. */
static void choose_spread(Scope *s)
{
    bool *spread = NEW_ARRAY(s->f->cx->scratch, bool, s->g->nodes.len + 1);
    for (int id = s->g->nodes.len - 1; s->f->fuse && id >= 0; id--) {
        const Node *n = s->g->nodes.at[id];
        Info *x = &s->at[id];
        if (!x->live || x->root || x->free || node_is_buffer(n) || x->sum || x->folded)
            continue;
        if (spread[id] && !node_is_view(n) && n->type->rank > 0 && x->cost >= COST_SPREAD) {
            x->root = true;
            continue;
        }
        bool repeats = n->op == OP_BROADCAST && n->in[0]->type->rank > 0;
        for (int i = 0; i < n->n_in; i++)
            spread[n->in[i]->id] |= repeats || spread[id];
    }
}

void roots_choose(Scope *s)
{
    Graph *g = s->g;
    for (int id = 0; id < g->nodes.len; id++)
        if (s->at[id].live)
            s->at[id].free = is_free(s, g->nodes.at[id]);
    scan_backwards(s);
    for (int id = 0; id < g->nodes.len; id++)
        if (s->at[id].live)
            choose_one(s, g->nodes.at[id]);
    choose_spread(s);
    find_own(s);
}

/* Can it be loaded, instead of computed? */
bool node_is_readable(const Scope *s, const Node *n)
{
    const Info *x = &s->at[n->id];
    return !x->free && (x->root || node_is_buffer(n) || x->sum != NULL);
}
