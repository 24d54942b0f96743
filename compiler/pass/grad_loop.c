/* grad_loop.c -- the adjoint of a loop is a loop that runs the other way.
 *
 * In: a LOOP of the graph being swept. Out: the same loop with more stacked results (what the way
 * back reads), and a reversed loop over them.
 *
 *     backward loop
 *       carries   adjoints of the carries; sums of the adjoints of shared inputs, from zero
 *       slices    adjoints of the stacked results; sliced inputs; saved values
 *       shared    shared inputs
 *       results   adjoints of the initial carries and of the shared inputs; stacked: adjoints of
 *                 the sliced inputs
 *
 * The idea: the body is swept like any graph, but into a body of its own. A forward value that is
 * read there becomes an argument when it is first asked for (loop_import). A loop inside the body
 * is undone by the same functions, so that a value saved inside it is saved once more outside.
 * All that is needed is saved; keep.c decides later what is computed again instead.
 */
#include "pass/grad.h"

/* ---- arguments of the backward body --------------------------------------------------------- */

static Node *body_arg(Sweep *s, ArgKind kind, FromKind from, int index, const Type *type,
                      const char *name, Span at)
{
    Node *arg = ir_arg(s->bwd, kind, type, at);
    if (name)
        ir_named(arg, name);
    const BodyArg made = { kind, from, index, arg };
    vec_push(s->cx->scratch, &s->args, made);
    return arg;
}

static Node *import_arg(Sweep *s, const Node *forward)
{
    const int index = forward->attr.index;
    switch (forward->attr.arg) {
    case ARG_ITER: return s->iter;
    case ARG_SLICE:
    case ARG_SHARED:
        return body_arg(s, forward->attr.arg, FROM_INPUT, index, forward->type, forward->name,
                        forward->span);
    case ARG_CARRY: break;
    }
    return NULL;
}

Node *loop_import(Sweep *s, Node *forward)
{
    Node *made = map_get(s->imported, forward);
    if (made)
        return made;
    if (forward->op == OP_CONST || forward->op == OP_DIM || forward->op == OP_IOTA)
        made = graph_copy_node(s->bwd, forward, NULL);
    else if (forward->op == OP_ARG)
        made = import_arg(s, forward);
    if (!made) {
        made = body_arg(s, ARG_SLICE, FROM_SAVED, s->n_forward + s->saved.len, forward->type,
                        forward->name, forward->span);
        vec_push(s->cx->scratch, &s->saved, forward);
    }
    map_set(s->imported, forward, made);
    return made;
}

/* ---- the backward body ---------------------------------------------------------------------- */

/* Which inputs of the loop get an adjoint, and from where in the backward loop. */
typedef struct {
    bool *carry, *shared, *slice;
} Active;

static const char *d_name(Context *cx, const char *name)
{
    return name ? intern_printf(cx, "d_%s", name) : NULL;
}

/* The arguments that exist whatever the body needs: adjoints, in the order of the carries. */
static void add_adjoint_args(Sweep *s, const Loop *l, Node **d_arg)
{
    Graph *body = l->body;
    const Flow *f = s->flow;
    for (int j = 0; j < l->n_carry; j++) {
        const Node *arg = body->args.at[j], *next = flow_result(body, j);
        if (flow_active(f, arg, 0) || flow_active(f, next, 0))
            d_arg[j] = body_arg(s, ARG_CARRY, FROM_D_RESULT, j, arg->type,
                                d_name(s->cx, arg->name ? arg->name : next->name), arg->span);
        if (d_arg[j])
            sweep_add(s, next, d_arg[j]);
    }
    for (int i = l->n_carry + l->n_slice; i < l->n_carry + l->n_slice + l->n_shared; i++) {
        const Node *arg = body->args.at[i];
        if (flow_active(f, arg, 0))
            d_arg[i] = body_arg(s, ARG_CARRY, FROM_ZERO, i, arg->type, d_name(s->cx, arg->name),
                                arg->span);
    }
    for (int k = l->n_carry; k < l->n_carry + l->n_stack; k++) {
        const Node *elem = flow_result(body, k);
        if (flow_active(f, elem, 0))
            sweep_add(s, elem,
                      body_arg(s, ARG_SLICE, FROM_D_RESULT, k, elem->type,
                               d_name(s->cx, elem->name), elem->span));
    }
}

static Node *sum_onto(Sweep *s, Node *sum, const Node *arg)
{
    const Terms *t = &s->terms[s->flow->at[arg->id]];
    const int first = s->bwd->nodes.len;
    for (int i = 0; i < t->len; i++)
        sum = ir_binary(s->bwd, OP_ADD, sum, t->at[i], arg->span);
    grad_mark(s, first, s->copy[arg->id]);
    return sum;
}

static Node *adjoint_or_zeros(Sweep *s, const Node *arg)
{
    Node *d = sweep_adjoint(s, arg, 0);
    const int first = s->bwd->nodes.len;
    if (d)
        return d;
    d = grad_zeros(s->bwd, arg->type, arg->span);
    grad_mark(s, first, s->copy[arg->id]);
    return d;
}

/* Sinks of the backward body, in the order of the results; target[] says whose adjoint each is. */
static void add_adjoint_results(Sweep *s, const Loop *l, Node *const *d_arg, LoopUndo *u)
{
    Graph *body = l->body;
    const int first_slice = l->n_carry, first_shared = l->n_carry + l->n_slice;
    for (int j = 0; j < l->n_carry; j++)
        if (d_arg[j]) {
            ir_sink(s->bwd, SINK_RESULT, u->n_out, adjoint_or_zeros(s, body->args.at[j]));
            u->target[u->n_out++] = j;
        }
    for (int i = first_shared; i < first_shared + l->n_shared; i++)
        if (d_arg[i]) {
            ir_sink(s->bwd, SINK_RESULT, u->n_out, sum_onto(s, d_arg[i], body->args.at[i]));
            u->target[u->n_out++] = i;
        }
    u->backward->n_carry = u->n_out;
    for (int i = first_slice; i < first_shared; i++)
        if (flow_active(s->flow, body->args.at[i], 0)) {
            ir_sink(s->bwd, SINK_RESULT, u->n_out, adjoint_or_zeros(s, body->args.at[i]));
            u->target[u->n_out++] = i;
        }
    u->backward->n_stack = u->n_out - u->backward->n_carry;
}

/* The order in which a loop wants its arguments. */
static int arg_rank(const BodyArg *a)
{
    return a->kind == ARG_CARRY ? 0 : a->kind == ARG_SLICE ? 1 : 2;
}

/* The body again, with arguments in order and without those that nobody reads. */
static Graph *tidy_body(Sweep *s, LoopUndo *u)
{
    Graph *from = s->bwd, *to = graph_new(from->program, from->name, from->parent);
    const bool *live = graph_live(from);
    Node **copy = NEW_ARRAY(s->cx->scratch, Node *, from->nodes.len);
    for (int rank = 0; rank < 3; rank++)
        for (int i = 0; i < s->args.len; i++) {
            const BodyArg *a = &s->args.at[i];
            if (arg_rank(a) != rank || (!live[a->arg->id] && a->kind != ARG_CARRY))
                continue;
            copy[a->arg->id] = ir_arg(to, a->kind, a->arg->type, a->arg->span);
            copy[a->arg->id]->name = a->arg->name;
            vec_push(s->cx->scratch, &u->in, *a);
            u->backward->n_slice += a->kind == ARG_SLICE;
            u->backward->n_shared += a->kind == ARG_SHARED;
        }
    copy[s->iter->id] = ir_arg(to, ARG_ITER, s->iter->type, s->iter->span);
    copy[s->iter->id]->name = s->iter->name;
    for (int i = 0; i < from->nodes.len; i++) {
        const Node *n = from->nodes.at[i];
        if (live[i] && !copy[i])
            copy[i] = graph_copy_node(to, n, copy);
    }
    for (int i = 0; i < from->sinks.len; i++)
        ir_sink(to, SINK_RESULT, from->sinks.at[i].index, copy[from->sinks.at[i].node->id]);
    return to;
}

/* Saved values that the tidied body still reads become results of the forward body. */
static void add_saved_results(Sweep *s, LoopUndo *u)
{
    for (int i = 0; i < u->in.len; i++) {
        if (u->in.at[i].from != FROM_SAVED)
            continue;
        Node *saved = s->saved.at[u->in.at[i].index - s->n_forward];
        u->in.at[i].index = u->forward->n_carry + u->forward->n_stack++;
        ir_sink(s->fwd, SINK_RESULT, u->in.at[i].index, saved);
    }
}

/* ---- the loop ------------------------------------------------------------------------------- */

static bool loop_active(const Flow *f, const Node *loop)
{
    bool out = false, in = false;
    for (int k = 0; k < loop->n_out; k++)
        out |= flow_active(f, loop, k);
    for (int i = 0; i < loop->n_in; i++)
        in |= flow_active(f, loop->in[i], 0);
    return out && in;
}

static Loop *loop_like(Context *cx, const Loop *l)
{
    Loop *made = NEW(cx->arena, Loop);
    *made = *l;
    return made;
}

LoopUndo *loop_undo_new(Sweep *outer, const Node *loop)
{
    Context *cx = outer->cx;
    const Loop *l = loop->attr.loop;
    if (!loop_active(outer->flow, loop))
        return NULL;
    LoopUndo *u = NEW(cx->scratch, LoopUndo);
    u->forward = loop_like(cx, l);
    u->backward = loop_like(cx, l);
    u->backward->reverse = !l->reverse;
    u->backward->n_slice = u->backward->n_shared = 0;
    u->target = NEW_ARRAY(cx->scratch, int, loop->n_in + 1);
    Program *p = l->body->program;
    Sweep *s = sweep_new(cx, outer->flow->inner[loop->id], graph_new(p, l->body->name, outer->fwd),
                         graph_new(p, l->body->name, outer->bwd));
    s->n_forward = loop->n_out;
    sweep_forward(s);
    for (int i = 0; i < l->n_carry + l->n_stack; i++)
        ir_sink(s->fwd, SINK_RESULT, i, s->copy[flow_result(l->body, i)->id]);
    const Node *iter = l->body->args.at[loop->n_in];
    s->iter = ir_arg(s->bwd, ARG_ITER, iter->type, iter->span);
    s->iter->name = iter->name;
    Node **d_arg = NEW_ARRAY(cx->scratch, Node *, loop->n_in + 1);
    add_adjoint_args(s, l, d_arg);
    sweep_backward(s);
    add_adjoint_results(s, l, d_arg, u);
    if (!u->n_out)
        return NULL;
    u->backward->body = tidy_body(s, u);
    add_saved_results(s, u);
    u->forward->body = s->fwd;
    return u;
}

/* The value of an input of the backward loop, in the graph around it. */
static Node *backward_input(Sweep *s, const Node *loop, const LoopUndo *u, const BodyArg *a)
{
    const bool apart = s->imported != NULL;
    Node *value = NULL;
    switch (a->from) {
    case FROM_D_RESULT:
        value = sweep_adjoint(s, loop, a->index);
        return value ? value : grad_zeros(s->bwd, loop->types[a->index], loop->span);
    case FROM_ZERO: return grad_zeros(s->bwd, loop->in[a->index]->type, loop->span);
    case FROM_INPUT: value = s->copy[loop->in[a->index]->id]; break;
    case FROM_SAVED:
        value = ir_result(u->loop, a->index);
        if (!value->name && a->arg->name)
            value->name = a->arg->name;
        break;
    }
    return apart ? loop_import(s, value) : value;
}

void loop_undo_apply(Sweep *s, const Node *loop)
{
    const LoopUndo *u = s->undo[loop->id];
    Node **in = NEW_ARRAY(s->cx->scratch, Node *, u->in.len + 1);
    const int first = s->bwd->nodes.len;
    for (int i = 0; i < u->in.len; i++)
        in[i] = backward_input(s, loop, u, &u->in.at[i]);
    Node *back = ir_loop(s->bwd, u->backward, u->in.len, in, loop->span);
    Node **out = NEW_ARRAY(s->cx->scratch, Node *, u->n_out + 1);
    for (int r = 0; r < u->n_out; r++)
        out[r] = ir_result(back, r);
    grad_mark(s, first, u->loop);
    for (int r = 0; r < u->n_out; r++)
        sweep_add(s, loop->in[u->target[r]], out[r]);
}
