/* fuse_narrow.c -- what lies in memory in 16 bits.
 *
 * In: a graph in which roundings are ops. Out: which values are of 16 bits whoever makes them, so
 * that a buffer of that format holds them exactly.
 *
 * The idea: a rounding and the copy of a parameter are; what moves elements of such is; a carried
 * value is if the initial one and the next one are, which is assumed first and given up where it
 * does not hold; results and slices follow. Attention on 16-bit operands writes 16 bits: all read
 * its results through a rounding.
 */
#include "pass/fuse.h"

bool node_is_narrowing(const Node *n) { return n->op == OP_BF16 || n->op == OP_F16; }

/* A rounding of what a call has rounded already as it stored it. */
bool node_is_handed(const Node *n)
{
    const Node *in = n->n_in ? n->in[0] : NULL;
    if (!node_is_narrowing(n) || in->op != OP_RESULT || in->in[0]->attr.wide)
        return false;
    return (in->in[0]->op == OP_ATTENTION && in->attr.index == 0)
           || in->in[0]->op == OP_ATTENTION_GRAD;
}

static bool is_marked(const Fuser *f, const Node *n) { return map_get(f->narrow, n) != NULL; }

static void mark(Fuser *f, Node *n, bool narrow) { map_set(f->narrow, n, narrow ? f : NULL); }

static void mark_graph(Fuser *f, Graph *g);

/* The arguments of a body, and its carries until they hold. */
static void mark_loop(Fuser *f, Node *n)
{
    const Loop *l = n->attr.loop;
    Graph *body = l->body;
    for (int k = 0; k < body->args.len; k++)
        mark(f, body->args.at[k], body->args.at[k]->attr.arg != ARG_ITER && is_marked(f, n->in[k]));
    for (bool again = true; again;) {
        again = false;
        mark_graph(f, body);
        for (int k = 0; k < l->n_carry; k++) {
            Node *arg = body->args.at[k];
            if (!is_marked(f, arg) || is_marked(f, loop_result(body, k)))
                continue;
            mark(f, arg, false);
            again = true;
        }
    }
}

static bool result_is_narrow(const Fuser *f, const Node *call, int k)
{
    if (call->op == OP_ATTENTION || call->op == OP_ATTENTION_GRAD)
        return !call->attr.wide && (k == 0 || call->op == OP_ATTENTION_GRAD);
    const Loop *l = call->attr.loop;
    return call->op == OP_LOOP
           && is_marked(f, k < l->n_carry ? l->body->args.at[k] : loop_result(l->body, k));
}

static bool is_narrow(const Fuser *f, const Node *n)
{
    switch (n->op) {
    case OP_BF16:
    case OP_F16:
    case OP_COPY16: return true;
    case OP_CONST: return op_fits(n->attr.value, f->p->narrow);
    case OP_RESHAPE:
    case OP_TRANSPOSE:
    case OP_SLICE:
    case OP_BROADCAST:
    case OP_PAD:
    case OP_GATHER: return is_marked(f, n->in[0]);
    case OP_RESULT: return result_is_narrow(f, n->in[0], n->attr.index);
    case OP_LOOP: return n->n_out == 1 && result_is_narrow(f, n, 0);
    default: break;
    }
    for (int k = 0; n->op == OP_CONCAT && k < n->n_in; k++)
        if (!is_marked(f, n->in[k]))
            return false;
    return n->op == OP_CONCAT;
}

static void mark_graph(Fuser *f, Graph *g)
{
    for (int i = 0; i < g->nodes.len; i++) {
        Node *n = g->nodes.at[i];
        if (n->op == OP_LOOP)
            mark_loop(f, n);
        if (n->op != OP_ARG)
            mark(f, n, is_narrow(f, n));
    }
}

void narrow_find(Fuser *f, Graph *g)
{
    f->narrow = map_new(f->cx->scratch);
    if (f->p->narrow == DT_BF16 || f->p->narrow == DT_F16)
        mark_graph(f, g);
}

const Type *narrow_storage(const Fuser *f, const Node *n, const Type *t)
{
    return is_marked(f, n) ? type_of(f->ds, f->p->narrow, t->rank, t->dim) : t;
}

bool narrow_is(const Fuser *f, const Node *n) { return is_marked(f, n); }
