/* grad_flow.c -- what has to be differentiated.
 *
 * In: a graph, the nodes whose adjoints are wanted (sources), the nodes that have one (wanted).
 * Out: two flags per value. A value depends if it changes when a source does; it reaches if it
 * depends and a wanted value changes with it. Only values with both take part in the sweep.
 *
 * The idea: two passes over the nodes, forwards and backwards. A loop body is a graph of its own;
 * what its results say about its carries is fed back until nothing changes any more.
 */
#include "pass/grad.h"

Node *flow_result(const Graph *body, int index)
{
    for (int i = 0; i < body->sinks.len; i++)
        if (body->sinks.at[i].kind == SINK_RESULT && body->sinks.at[i].index == index)
            return body->sinks.at[i].node;
    bug("a loop body without result %d", index);
}

Flow *flow_new(Context *cx, Graph *g)
{
    Flow *f = NEW(cx->scratch, Flow);
    const int n = g->nodes.len;
    f->graph = g;
    f->at = NEW_ARRAY(cx->scratch, int, n + 1);
    f->source = NEW_ARRAY(cx->scratch, bool, n + 1);
    f->wanted = NEW_ARRAY(cx->scratch, bool, n + 1);
    f->inner = NEW_ARRAY(cx->scratch, Flow *, n + 1);
    for (int i = 0; i < n; i++) {
        f->at[i + 1] = f->at[i] + g->nodes.at[i]->n_out;
        if (g->nodes.at[i]->op == OP_LOOP)
            f->inner[i] = flow_new(cx, g->nodes.at[i]->attr.loop->body);
    }
    f->depends = NEW_ARRAY(cx->scratch, bool, f->at[n] + 1);
    f->reaches = NEW_ARRAY(cx->scratch, bool, f->at[n] + 1);
    return f;
}

static bool depends(const Flow *f, const Node *n) { return f->depends[f->at[n->id]]; }

/* Does the value of n carry a derivative from its inputs? A cut is where mathematics says zero. */
static bool node_cuts(const Node *n)
{
    if (op_row(n->op)->deriv == DERIV_ZERO)
        return true;
    return n->op == OP_CAST && !dtype_is_real(n->type->dtype);
}

/* ---- forwards ------------------------------------------------------------------------------- */

static void solve_depends(Flow *f);

static void loop_depends(Flow *f, const Node *n)
{
    Flow *in = f->inner[n->id];
    const Loop *l = n->attr.loop;
    for (int i = 0; i < n->n_in; i++)
        if (depends(f, n->in[i]))
            in->source[l->body->args.at[i]->id] = true;
    for (bool grew = true; grew;) {
        grew = false;
        solve_depends(in);
        for (int j = 0; j < l->n_carry; j++) {
            const int arg = l->body->args.at[j]->id;
            if (!in->source[arg] && depends(in, flow_result(l->body, j)))
                in->source[arg] = grew = true;
        }
    }
    for (int k = 0; k < n->n_out; k++)
        f->depends[f->at[n->id] + k] = depends(in, flow_result(l->body, k))
                                       || (k < l->n_carry && in->source[l->body->args.at[k]->id]);
}

static void solve_depends(Flow *f)
{
    for (int i = 0; i < f->graph->nodes.len; i++) {
        const Node *n = f->graph->nodes.at[i];
        bool *out = f->depends + f->at[i];
        if (n->op == OP_LOOP) {
            loop_depends(f, n);
        } else if (n->op == OP_RESULT) {
            out[0] = f->depends[f->at[n->in[0]->id] + n->attr.index];
        } else {
            bool any = false;
            for (int k = 0; k < n->n_in && !node_cuts(n); k++)
                any |= depends(f, n->in[k]);
            for (int k = 0; k < n->n_out; k++)
                out[k] = any;
        }
        if (f->source[i])
            out[0] = true;
    }
}

/* ---- backwards ------------------------------------------------------------------------------ */

static void solve_reaches(Flow *f);

static void reach(Flow *f, const Node *n, int k)
{
    const int at = f->at[n->id] + k;
    if (f->depends[at])
        f->reaches[at] = true;
}

static void loop_reaches(Flow *f, const Node *n)
{
    Flow *in = f->inner[n->id];
    const Loop *l = n->attr.loop;
    for (int k = 0; k < n->n_out; k++)
        if (f->reaches[f->at[n->id] + k])
            in->wanted[flow_result(l->body, k)->id] = true;
    for (bool grew = true; grew;) {
        grew = false;
        solve_reaches(in);
        for (int j = 0; j < l->n_carry; j++) {
            const Node *arg = l->body->args.at[j], *next = flow_result(l->body, j);
            if (in->reaches[in->at[arg->id]] && !in->wanted[next->id])
                in->wanted[next->id] = grew = true;
        }
    }
    for (int i = 0; i < n->n_in; i++) {
        const Node *arg = l->body->args.at[i];
        const bool carried_out = i < l->n_carry && f->reaches[f->at[n->id] + i];
        if (in->reaches[in->at[arg->id]] || carried_out)
            reach(f, n->in[i], 0);
    }
}

static void solve_reaches(Flow *f)
{
    for (int i = f->graph->nodes.len - 1; i >= 0; i--) {
        const Node *n = f->graph->nodes.at[i];
        bool any = false;
        if (f->wanted[i])
            reach(f, n, 0);
        for (int k = 0; k < n->n_out; k++)
            any |= f->reaches[f->at[i] + k];
        if (!any)
            continue;
        if (n->op == OP_LOOP)
            loop_reaches(f, n);
        else if (n->op == OP_RESULT)
            reach(f, n->in[0], n->attr.index);
        else
            for (int k = 0; k < n->n_in && !node_cuts(n); k++)
                reach(f, n->in[k], 0);
    }
}

void flow_solve(Flow *f)
{
    solve_depends(f);
    solve_reaches(f);
}

bool flow_active(const Flow *f, const Node *n, int k)
{
    return f->reaches[f->at[n->id] + k] && dtype_is_real(n->types[k]->dtype);
}

int flow_report(Context *cx, const Flow *f)
{
    int found = 0;
    for (int i = 0; i < f->graph->nodes.len; i++) {
        const Node *n = f->graph->nodes.at[i];
        if (f->inner[i])
            found += flow_report(cx, f->inner[i]);
        if (op_row(n->op)->deriv != DERIV_NONE || !f->reaches[f->at[i]])
            continue;
        Diag *d = diag_error(cx, n->span, "%s has no derivative: %s", op_row(n->op)->name,
                             op_row(n->op)->why);
        diag_hint(d, "stop_gradient(...) around it says that none is wanted");
        found++;
    }
    return found;
}
