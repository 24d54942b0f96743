/* grad.c -- reverse mode: the gradient of every parameter, derived on the graph.
 *
 * In: a graph of sums (SINK_SUM). Out: the same graph, with a SINK_GRAD for each contribution to
 * the gradient of each parameter that a loss reaches. Nodes made here have backward = true, undo
 * a forward node, and are named d_x after it.
 *
 * The idea: each value has a list of terms, whose sum is its adjoint. The nodes are visited from
 * last to first; a node's adjoint, times its partials (or through its transpose), becomes terms
 * of its inputs. A partial that selects stays a selection: where(c, d, 0), never d * 0, and a
 * selection stays outermost, so that what was not taken cannot turn 0 into NaN.
 *
 *     graph train(...) {                          graph train(...) {
 *       %x = mul %w, %w                             %x   = mul %w, %w
 *       %s = sum %x                                 %s   = sum %x
 *       sum 0 %s                           ->       %d_x = broadcast (seed 0)
 *     }                                             %d_w = mul %d_x, %w
 *                                                   sum 0 %s, grad w %d_w, grad w %d_w
 *
 * Needs: tensor IR. Guarantees: several terms of one parameter stay several sinks, in order.
 */
#include "pass/grad.h"

/* ---- the sweep ------------------------------------------------------------------------------ */

Sweep *sweep_new(Context *cx, Flow *flow, Graph *fwd, Graph *bwd)
{
    Sweep *s = NEW(cx->scratch, Sweep);
    const int n = flow->graph->nodes.len;
    s->cx = cx;
    s->flow = flow;
    s->from = flow->graph;
    s->fwd = fwd;
    s->bwd = bwd;
    s->copy = NEW_ARRAY(cx->scratch, Node *, n + 1);
    s->undo = NEW_ARRAY(cx->scratch, LoopUndo *, n + 1);
    s->terms = NEW_ARRAY(cx->scratch, Terms, flow->at[n] + 1);
    if (fwd != bwd)
        s->imported = map_new(cx->scratch);
    return s;
}

/* A forward value as a node of the graph in which adjoints are built. */
static Node *sweep_value(Sweep *s, Node *forward)
{
    return s->imported ? loop_import(s, forward) : forward;
}

void sweep_forward(Sweep *s)
{
    Graph *g = s->from;
    const bool *live = graph_live(g);
    for (int i = 0; i < g->args.len; i++) {
        const Node *a = g->args.at[i];
        Node *made = ir_arg(s->fwd, a->attr.arg, a->type, a->span);
        s->copy[a->id] = a->name ? ir_named(made, a->name) : made;
    }
    for (int i = 0; i < g->nodes.len; i++) {
        const Node *n = g->nodes.at[i];
        if (!live[i] || s->copy[i])
            continue;
        if (n->op == OP_LOOP)
            s->undo[i] = loop_undo_new(s, n);
        if (!s->undo[i]) {
            s->copy[i] = graph_copy_node(s->fwd, n, s->copy);
            continue;
        }
        Node **in = NEW_ARRAY(s->cx->scratch, Node *, n->n_in + 1);
        for (int k = 0; k < n->n_in; k++)
            in[k] = s->copy[n->in[k]->id];
        Node *loop = ir_loop(s->fwd, s->undo[i]->forward, n->n_in, in, n->span);
        loop->undoes = n->undoes;
        loop->backward = n->backward;
        s->undo[i]->loop = loop;
        s->copy[i] = n->n_out == 1 ? ir_named(ir_result(loop, 0), n->name) : loop;
        s->copy[i]->backward = n->backward;
    }
}

void sweep_add(Sweep *s, const Node *value, Node *d)
{
    if (!d || !flow_active(s->flow, value, 0))
        return;
    if (!type_same(d->type, value->type))
        bug("the adjoint of %s is %s, not %s", op_row(value->op)->name, type_text(s->cx, d->type),
            type_text(s->cx, value->type));
    vec_push(s->cx->scratch, &s->terms[s->flow->at[value->id]], d);
}

void grad_mark(Sweep *s, int first, const Node *undone)
{
    for (int i = first; i < s->bwd->nodes.len; i++) {
        Node *n = s->bwd->nodes.at[i];
        if (n->op == OP_ARG || n->undoes || n->backward)
            continue;
        n->backward = true;
        n->undoes = undone;
    }
}

/* The name that the model gives to a value; a parameter has it in the program's table. */
static const char *value_name(const Sweep *s, const Node *n)
{
    if (n->op == OP_PARAM && !n->name && n->attr.index < s->from->program->params.len)
        return s->from->program->params.at[n->attr.index].name;
    return n->name;
}

static void name_adjoint(const Sweep *s, Node *d, const Node *n)
{
    const char *name = value_name(s, n);
    if (name && d->backward && d->op != OP_ARG)
        ir_named(d, intern_printf(s->cx, "d_%s", name));
}

Node *sweep_adjoint(Sweep *s, const Node *n, int k)
{
    const Terms *t = &s->terms[s->flow->at[n->id] + k];
    if (!t->len)
        return NULL;
    const int first = s->bwd->nodes.len;
    Node *sum = t->at[0];
    for (int i = 1; i < t->len; i++)
        sum = ir_binary(s->bwd, OP_ADD, sum, t->at[i], n->span);
    grad_mark(s, first, s->copy[n->id]);
    name_adjoint(s, sum, n);
    return sum;
}

Node *grad_zeros(Graph *g, const Type *t, Span at)
{
    Node *zero = ir_const(g, t->dtype, 0, at);
    return t->rank ? ir_broadcast(g, zero, t->rank, t->dim, NULL, at) : zero;
}

/* ---- products of an adjoint and a partial --------------------------------------------------- */

static bool is_number(const Node *n, double value)
{
    return n->op == OP_CONST && n->attr.value == value;
}

/* The view n of another value. */
static Node *view_again(Graph *g, const Node *n, Node *in)
{
    const Type *t = n->type;
    if (!in->type->rank && n->in[0]->type->rank)
        return in; /* a scalar condition holds for every element */
    if (n->op == OP_TRANSPOSE)
        return ir_transpose(g, in, n->attr.axes, n->span);
    if (n->op == OP_RESHAPE)
        return ir_reshape(g, in, t->rank, t->dim, n->span);
    return ir_broadcast(g, in, t->rank, t->dim, n->attr.axes, n->span);
}

static bool split_select(Graph *g, Node *d, Node **c, Node **v);

/* where(c, v, 0), where(not c, 0, v), and one of these inside another. */
static bool split_where(Graph *g, Node *d, Node **c, Node **v)
{
    Node *inner_c, *inner_v;
    const int zero = is_number(d->in[2], 0) ? 2 : is_number(d->in[1], 0) ? 1 : 0;
    if (!zero || !type_same_shape(d->in[3 - zero]->type, d->type))
        return false;
    *c = zero == 2 ? d->in[0] : ir_unary(g, OP_NOT, d->in[0], d->span);
    *v = d->in[3 - zero];
    if (split_select(g, *v, &inner_c, &inner_v)) {
        *c = ir_binary(g, OP_AND, *c, inner_c, d->span);
        *v = inner_v;
    }
    return true;
}

/* d as where(c, v, 0), looking through views, negation and sums; false when it is not one. */
static bool split_select(Graph *g, Node *d, Node **c, Node **v)
{
    Node *c0, *v0, *c1, *v1;
    switch (d->op) {
    case OP_WHERE: return split_where(g, d, c, v);
    case OP_RESHAPE:
    case OP_TRANSPOSE:
    case OP_BROADCAST:
        if (!split_select(g, d->in[0], &c0, &v0))
            return false;
        *c = view_again(g, d, c0);
        *v = view_again(g, d, v0);
        return true;
    case OP_NEG:
        if (!split_select(g, d->in[0], c, &v0))
            return false;
        *v = ir_unary(g, OP_NEG, v0, d->span);
        return true;
    case OP_ADD:
        if (!split_select(g, d->in[0], &c0, &v0) || !split_select(g, d->in[1], &c1, &v1))
            return false;
        *c = ir_binary(g, OP_OR, c0, c1, d->span);
        *v = d;
        return true;
    default: return false;
    }
}

/* where(c, a, b) in which a or b may be NULL: 0. */
static Node *select_of(Graph *g, Node *c, Node *a, Node *b, Span at)
{
    if (!a && !b)
        return NULL;
    Node *zero = ir_const(g, (a ? a : b)->type->dtype, 0, at);
    return ir_where(g, c, a ? a : zero, b ? b : zero, at);
}

/* d times a partial that is no number and no selection. */
static Node *plain_product(Graph *g, Node *d, Node *partial, Span at)
{
    if (partial->op == OP_NEG)
        return ir_unary(g, OP_NEG, plain_product(g, d, partial->in[0], at), at);
    if (partial->op == OP_DIV && is_number(partial->in[0], 1))
        return ir_binary(g, OP_DIV, d, partial->in[1], at);
    return ir_binary(g, OP_MUL, d, partial, at);
}

/* d times a partial; NULL for 0. */
static Node *product(Graph *g, Node *d, Node *partial, Span at)
{
    Node *c, *v;
    if (is_number(partial, 0))
        return NULL;
    if (is_number(partial, 1))
        return d;
    if (is_number(partial, -1))
        return ir_unary(g, OP_NEG, d, at);
    if (partial->op == OP_CAST && partial->in[0]->type->dtype == DT_BOOL)
        return select_of(g, partial->in[0], d, NULL, at);
    if (partial->op == OP_WHERE)
        return select_of(g, partial->in[0], product(g, d, partial->in[1], at),
                         product(g, d, partial->in[2], at), at);
    if (split_select(g, d, &c, &v))
        return select_of(g, c, plain_product(g, v, partial, at), NULL, at);
    return plain_product(g, d, partial, at);
}

/* What n contributes to the adjoint of its input k, d being that of its result. */
static Node *partial_term(Graph *g, const Node *n, int k, Node *const *in, Node *out, Node *d)
{
    Node *partial = op_partial(g, n, k, in, out, n->span);
    if (!partial)
        return NULL;
    if (n->in[k]->type->rank == n->type->rank)
        return product(g, d, partial, n->span);
    int axes[RANK_MAX];
    for (int i = 0; i < n->type->rank; i++)
        axes[i] = i;
    if (!partial->type->rank) /* the same for all elements: sum first */
        return product(g, ir_reduce(g, OP_SUM, d, n->type->rank, axes, n->span), partial, n->span);
    Node *t = product(g, d, partial, n->span);
    return t ? ir_reduce(g, OP_SUM, t, n->type->rank, axes, n->span) : NULL;
}

/* ---- one node ------------------------------------------------------------------------------- */

/* The terms of a pointwise op. A square gives one term with twice the adjoint. */
static void undo_point(Sweep *s, const Node *n, Node *const *in, Node *out, Node *d, Node **d_in)
{
    const bool square = n->op == OP_MUL && n->in[0] == n->in[1];
    if (square)
        d = product(s->bwd, d, ir_const(s->bwd, n->type->dtype, 2, n->span), n->span);
    for (int k = 0; k < (square ? 1 : n->n_in); k++)
        if (flow_active(s->flow, n->in[k], 0))
            d_in[k] = partial_term(s->bwd, n, k, in, out, d);
}

/* Result k of a forward node; a second result, the log-sum-exp, is called after the first. */
static Node *forward_result(Sweep *s, const Node *n, int k)
{
    Node *r = ir_result(s->copy[n->id], k);
    const bool lse = (n->op == OP_ATTENTION || n->op == OP_CROSS_ENTROPY) && k == 1;
    if (lse && !r->name) {
        const char *of = ir_result(s->copy[n->id], 0)->name;
        r->name = of ? intern_printf(s->cx, "%s_logsumexp", of) : intern(s->cx, "logsumexp");
    }
    /* What is in memory is the rounded result; the adjoint is taken there. */
    const DType narrow = s->from->program->narrow;
    if (n->op == OP_ATTENTION && k == 0 && !n->attr.wide && (narrow == DT_BF16 || narrow == DT_F16))
        return ir_unary(r->graph, narrow == DT_BF16 ? OP_BF16 : OP_F16, r, r->span);
    return r;
}

static void undo_node(Sweep *s, const Node *n)
{
    const OpRow *row = op_row(n->op);
    Arena *a = s->cx->scratch;
    Node **d_out = NEW_ARRAY(a, Node *, n->n_out), **out = NEW_ARRAY(a, Node *, n->n_out);
    Node **in = NEW_ARRAY(a, Node *, n->n_in + 1), **d_in = NEW_ARRAY(a, Node *, n->n_in + 1);
    bool any = false;
    for (int k = 0; k < n->n_out; k++) {
        d_out[k] = sweep_adjoint(s, n, k);
        any |= d_out[k] != NULL;
    }
    if (!any)
        return;
    for (int k = 0; k < n->n_in; k++)
        in[k] = sweep_value(s, s->copy[n->in[k]->id]);
    for (int k = 0; k < n->n_out; k++)
        out[k] = sweep_value(s, forward_result(s, n, k));
    const int first = s->bwd->nodes.len;
    if (row->deriv == DERIV_PARTIALS) {
        undo_point(s, n, in, out[0], d_out[0], d_in);
    } else {
        const Adjoint adjoint = { s->bwd, n, in, out, d_out, n->span };
        row->transpose(&adjoint, d_in);
    }
    grad_mark(s, first, s->copy[n->id]);
    for (int k = 0; k < n->n_in; k++)
        sweep_add(s, n->in[k], d_in[k]);
}

void sweep_backward(Sweep *s)
{
    for (int i = s->from->nodes.len - 1; i >= 0; i--) {
        const Node *n = s->from->nodes.at[i];
        const OpRow *row = op_row(n->op);
        if (n->op == OP_LOOP) {
            if (s->undo[i])
                loop_undo_apply(s, n);
        } else if (n->op == OP_RESULT) {
            Node *d = sweep_adjoint(s, n, 0);
            if (d)
                vec_push(s->cx->scratch, &s->terms[s->flow->at[n->in[0]->id] + n->attr.index], d);
        } else if (n->op == OP_COPY16) { /* each use of a parameter contributes on its own */
            const Terms *t = &s->terms[s->flow->at[n->id]];
            for (int k = 0; k < t->len; k++)
                sweep_add(s, n->in[0], t->at[k]);
        } else if (n->n_in && (row->deriv == DERIV_PARTIALS || row->transpose)) {
            undo_node(s, n);
        }
    }
}

/* ---- ops that are differentiated through their expansion ------------------------------------- */

static bool by_expansion(const Node *n)
{
    const OpRow *row = op_row(n->op);
    return row->deriv == DERIV_CUSTOM && !row->transpose && row->expand;
}

static bool needs_expansion(const Flow *f)
{
    for (int i = 0; i < f->graph->nodes.len; i++) {
        const Node *n = f->graph->nodes.at[i];
        if (f->inner[i] && needs_expansion(f->inner[i]))
            return true;
        for (int k = 0; k < n->n_out && by_expansion(n); k++)
            if (f->reaches[f->at[i] + k])
                return true;
    }
    return false;
}

static Node *expand_node(Graph *to, Node *n, void *user)
{
    (void)user;
    if (n->op != OP_RESULT || !by_expansion(n->in[0]))
        return NULL;
    Node *custom = n->in[0], **out = NEW_ARRAY(to->program->cx->scratch, Node *, custom->n_out);
    op_row(custom->op)->expand(to, custom, custom->in, out);
    return out[n->attr.index];
}

/* ---- whole graphs --------------------------------------------------------------------------- */

static bool is_loss(const Program *p, const Sink *s)
{
    return s->kind == SINK_SUM && s->index < p->means.len && p->means.at[s->index].weight != 0;
}

/* On a way from the parameter to a loss: an op whose derivative is zero, or NULL. */
static const Node *find_cut(Context *cx, Graph *g, const Node *param)
{
    bool *from_param = NEW_ARRAY(cx->scratch, bool, g->nodes.len);
    bool *to_loss = NEW_ARRAY(cx->scratch, bool, g->nodes.len);
    for (int i = 0; i < g->sinks.len; i++)
        to_loss[g->sinks.at[i].node->id] |= is_loss(g->program, &g->sinks.at[i]);
    for (int i = g->nodes.len - 1; i >= 0; i--)
        for (int k = 0; to_loss[i] && k < g->nodes.at[i]->n_in; k++)
            to_loss[g->nodes.at[i]->in[k]->id] = true;
    from_param[param->id] = true;
    for (int i = 0; i < g->nodes.len; i++) {
        const Node *n = g->nodes.at[i];
        for (int k = 0; k < n->n_in; k++)
            from_param[i] |= from_param[n->in[k]->id];
        if (from_param[i] && to_loss[i] && n->n_in && op_row(n->op)->deriv == DERIV_ZERO)
            return n;
    }
    return NULL;
}

static void report_unused(Context *cx, Graph *g)
{
    const Program *p = g->program;
    for (int i = 0; i < p->params.len; i++) {
        const Param *param = &p->params.at[i];
        if (param->trained || param->role == ROLE_STATE)
            continue;
        const Node *cut = NULL;
        for (int k = 0; k < g->nodes.len && !cut; k++)
            if (g->nodes.at[k]->op == OP_PARAM && g->nodes.at[k]->attr.index == i)
                cut = find_cut(cx, g, g->nodes.at[k]);
        if (!cut) {
            diag_error(cx, param->span, "parameter %s is not used by the loss", param->path);
            continue;
        }
        Diag *d = diag_error(cx, param->span, "the gradient of parameter %s is always zero",
                             param->path);
        diag_note(d, cut->span, "here the derivative of %s is zero: %s", op_row(cut->op)->name,
                  op_row(cut->op)->why);
    }
}

/* Terms of the parameters become sinks, in the order of the table. */
static void add_gradient_sinks(Sweep *s)
{
    Program *p = s->from->program;
    for (int i = 0; i < p->params.len; i++)
        p->params.at[i].trained = false;
    for (int i = 0; i < s->from->nodes.len; i++) {
        const Node *n = s->from->nodes.at[i];
        if (n->op != OP_PARAM)
            continue;
        const Terms *t = &s->terms[s->flow->at[i]];
        for (int k = 0; k < t->len; k++) {
            name_adjoint(s, t->at[k], n);
            ir_sink(s->bwd, SINK_GRAD, n->attr.index, t->at[k]);
            p->params.at[n->attr.index].trained = true;
        }
    }
}

/* The flow from all parameters to all losses. */
static Flow *loss_flow(Context *cx, Graph *g)
{
    const Program *p = g->program;
    Flow *flow = flow_new(cx, g);
    for (int i = 0; i < g->nodes.len; i++)
        if (g->nodes.at[i]->op == OP_PARAM)
            flow->source[i] = p->params.at[g->nodes.at[i]->attr.index].role != ROLE_STATE;
    for (int i = 0; i < g->sinks.len; i++)
        if (is_loss(p, &g->sinks.at[i]))
            flow->wanted[g->sinks.at[i].node->id] = true;
    flow_solve(flow);
    return flow;
}

Graph *pass_grad(Graph *g)
{
    Program *p = g->program;
    Context *cx = p->cx;
    Flow *flow = loss_flow(cx, g);
    if (flow_report(cx, flow))
        return g;
    if (needs_expansion(flow)) {
        g = graph_rewrite(g, expand_node, NULL);
        flow = loss_flow(cx, g);
    }
    Graph *to = graph_new(p, g->name, g->parent);
    Sweep *s = sweep_new(cx, flow, to, to);
    sweep_forward(s);
    for (int i = 0; i < g->sinks.len; i++) {
        const Sink *sink = &g->sinks.at[i];
        ir_sink(to, sink->kind, sink->index, s->copy[sink->node->id]);
        if (!is_loss(p, sink))
            continue;
        const int first = to->nodes.len;
        const Attr attr = { .index = sink->index };
        Node *seed = ir_typed(to, OP_SEED, sink->node->type, 0, NULL, &attr, sink->node->span);
        grad_mark(s, first, s->copy[sink->node->id]);
        sweep_add(s, sink->node, seed);
    }
    sweep_backward(s);
    add_gradient_sinks(s);
    report_unused(cx, g);
    return graph_rewrite(to, NULL, NULL);
}

static Flow *results_flow(Context *cx, Graph *g, Node *const *wrt, int n_wrt)
{
    Flow *flow = flow_new(cx, g);
    for (int i = 0; i < n_wrt; i++)
        flow->source[wrt[i]->id] = true;
    for (int i = 0; i < g->sinks.len; i++)
        if (g->sinks.at[i].kind == SINK_RESULT)
            flow->wanted[g->sinks.at[i].node->id] = true;
    flow_solve(flow);
    return flow;
}

/* The leaves of g that are those of another graph. */
static Node **leaves_again(Context *cx, Graph *g, Node *const *leaf, int n)
{
    Node **again = NEW_ARRAY(cx->scratch, Node *, n + 1);
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < g->nodes.len && !again[i]; k++) {
            Node *found = g->nodes.at[k];
            if (found->op == leaf[i]->op && !found->n_in
                && found->attr.index == leaf[i]->attr.index)
                again[i] = found;
        }
        if (!again[i])
            bug("grad_of_results: input %d is no leaf, or not used", i);
    }
    return again;
}

/* An input for the adjoint of each result becomes the first term of that. */
static void seed_results(Sweep *s)
{
    Program *p = s->from->program;
    for (int i = 0; i < s->from->sinks.len; i++) {
        const Node *n = s->from->sinks.at[i].node;
        if (s->from->sinks.at[i].kind != SINK_RESULT || !dtype_is_real(n->type->dtype))
            continue;
        const Input seed = { .name = intern_printf(s->cx, "d_result_%d", p->inputs.len),
                             .type = n->type,
                             .span = n->span };
        vec_push(s->cx->arena, &p->inputs, seed);
        sweep_add(s, n, ir_input(s->bwd, p->inputs.len - 1, n->span));
    }
}

Graph *grad_of_results(Graph *g, Node *const *wrt, int n_wrt)
{
    Context *cx = g->program->cx;
    Flow *flow = results_flow(cx, g, wrt, n_wrt);
    if (flow_report(cx, flow))
        return g;
    if (needs_expansion(flow)) {
        g = graph_rewrite(g, expand_node, NULL);
        wrt = leaves_again(cx, g, wrt, n_wrt);
        flow = results_flow(cx, g, wrt, n_wrt);
    }
    Graph *to = graph_new(g->program, g->name, g->parent);
    Sweep *s = sweep_new(cx, flow, to, to);
    sweep_forward(s);
    seed_results(s);
    sweep_backward(s);
    for (int i = 0; i < n_wrt; i++) {
        Node *d = sweep_adjoint(s, wrt[i], 0);
        ir_sink(to, SINK_RESULT, i, d ? d : grad_zeros(to, wrt[i]->type, wrt[i]->span));
    }
    return graph_rewrite(to, NULL, NULL);
}
