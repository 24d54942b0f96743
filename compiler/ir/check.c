/* check.c -- what must hold of a graph after every pass.
 *
 * In: a graph and the stage it is at. Out: NULL, or one sentence that names the node and what is
 * wrong. Every type is inferred or checked again by the op's row, so a pass that builds nodes
 * behind node.c's back is found here.
 */
#include "ir/program.h"
#include "op/op.h"

static const char *node_text(const Graph *g, const Node *n, const char *wrong)
{
    Context *cx = g->program->cx;
    return arena_printf(cx->arena, "graph %s, node %d (%s%s%s%s%s): %s", g->name, n->id,
                        op_row(n->op)->name, n->name ? " " : "", n->name ? n->name : "",
                        n->span.file ? ", " : "", n->span.file ? source_where(cx, n->span) : "",
                        wrong);
}

static const char *sink_text(const Graph *g, int i, const char *wrong)
{
    return arena_printf(g->program->cx->arena, "graph %s, sink %d: %s", g->name, i, wrong);
}

/* ---- nodes --------------------------------------------------------------------------------- */

static const char *check_order(const Graph *g, const Node *n, int id)
{
    const OpRow *row = op_row(n->op);
    if (n->id != id || n->graph != g)
        return "it is not at its place in its graph";
    if (row->arity >= 0 && n->n_in != row->arity)
        return "the number of inputs is wrong";
    for (int i = 0; i < n->n_in; i++) {
        if (n->in[i]->graph != g || n->in[i]->id >= id)
            return "an input does not come before it in the graph";
        if ((n->in[i]->n_out != 1) != (n->op == OP_RESULT))
            return "an input has several results, of which none is chosen";
    }
    return NULL;
}

static const char *check_types(const Graph *g, const Node *n)
{
    const OpRow *row = op_row(n->op);
    Arena *scratch = g->program->cx->scratch;
    const char *why = "its type cannot be inferred";
    if (row->check)
        return n->n_out == 1 ? row->check(g, n->type, n->n_in, n->in, &n->attr)
                             : "it has several results";
    const Loop *l = n->attr.loop;
    const Type **types = NEW_ARRAY(scratch, const Type *, (l ? l->n_carry + l->n_stack : 4) + 1);
    int n_out = row->shape(g->program->dims, n->n_in, n->in, &n->attr, types, &why);
    if (n_out < 1)
        return why;
    if (n_out != n->n_out || n->type != n->types[0])
        return "the number of results is wrong";
    for (int k = 0; k < n_out; k++)
        if (!type_same(types[k], n->types[k]))
            return arena_printf(scratch, "result %d is %s, but %s is inferred", k,
                                type_text(g->program->cx, n->types[k]),
                                type_text(g->program->cx, types[k]));
    return NULL;
}

/* Which ops are legal where. */
static const char *check_stage(const Node *n, Stage stage)
{
    switch (stage) {
    case STAGE_TENSOR:
        if (n->op == OP_SEED || n->op == OP_ATTENTION_GRAD || n->backward)
            return "nothing of the backward pass exists at this stage";
        return NULL;
    case STAGE_KERNEL:
        if (op_is(n, CLASS_CUSTOM) && n->op != OP_ATTENTION && n->op != OP_ATTENTION_GRAD)
            return "it should have been expanded at this stage";
        return NULL;
    default: return NULL;
    }
}

static const char *check_arg_node(const Graph *g, const Node *n)
{
    if (n->op != OP_ARG)
        return NULL;
    if (!g->parent)
        return "only the body of a loop has arguments";
    if (n->attr.index >= g->args.len || g->args.at[n->attr.index] != n)
        return "it is not in the graph's list of arguments";
    return NULL;
}

/* ---- loops --------------------------------------------------------------------------------- */

static const char *check_loop(const Loop *l)
{
    const Graph *body = l->body;
    int n_in = l->n_carry + l->n_slice + l->n_shared;
    if (!body->parent)
        return "its body has no parent";
    for (int i = 0; i <= n_in; i++) {
        ArgKind kind = i == n_in                     ? ARG_ITER
                       : i < l->n_carry              ? ARG_CARRY
                       : i < l->n_carry + l->n_slice ? ARG_SLICE
                                                     : ARG_SHARED;
        if (body->args.at[i]->attr.arg != kind)
            return "an argument of its body is of another kind";
    }
    if (body->sinks.len != l->n_carry + l->n_stack)
        return "its body has not one result for each carried value and each stack";
    for (int i = 0; i < body->sinks.len; i++)
        if (body->sinks.at[i].kind != SINK_RESULT)
            return "its body has a sink that is no result";
    return NULL;
}

/* ---- sinks --------------------------------------------------------------------------------- */

static const char *check_sink(const Graph *g, const Sink *s, Stage stage)
{
    const Program *p = g->program;
    const Node *n = s->node;
    int limit = s->kind == SINK_SUM || s->kind == SINK_COUNT ? p->means.len
                : s->kind == SINK_GRAD                       ? p->params.len
                : s->kind == SINK_OUTPUT                     ? p->outputs.len
                                                             : g->sinks.len;
    if (n->graph != g || n->id >= g->nodes.len || g->nodes.at[n->id] != n)
        return "its node is not in the graph";
    if (n->n_out != 1)
        return "its node has several results, of which none is chosen";
    if (s->index < 0 || s->index >= limit)
        return "its index is out of range";
    if ((s->kind == SINK_SUM || s->kind == SINK_COUNT)
        && (n->type->rank != 0 || !dtype_is_real(n->type->dtype)))
        return "a sum or a count is a real scalar";
    if (s->kind == SINK_GRAD && stage == STAGE_TENSOR)
        return "there are no gradients at this stage";
    if (s->kind == SINK_GRAD && !type_same(n->type, p->params.at[s->index].stacked))
        return "a gradient has the type of its parameter";
    if (s->kind == SINK_OUTPUT && !type_same(n->type, p->outputs.at[s->index].type))
        return "it has not the type of that output";
    return NULL;
}

static const char *check_results(const Graph *g)
{
    int n = 0;
    bool *seen = NEW_ARRAY(g->program->cx->scratch, bool, g->sinks.len + 1);
    for (int i = 0; i < g->sinks.len; i++)
        if (g->sinks.at[i].kind == SINK_RESULT) {
            if (seen[g->sinks.at[i].index])
                return sink_text(g, i, "the same result appears twice");
            seen[g->sinks.at[i].index] = true;
            n++;
        }
    for (int k = 0; k < n; k++)
        if (!seen[k])
            return arena_printf(g->program->cx->arena, "graph %s: result %d is missing", g->name,
                                k);
    return NULL;
}

/* ---- the whole ----------------------------------------------------------------------------- */

const char *ir_check(Graph *g, Stage stage)
{
    for (int id = 0; id < g->nodes.len; id++) {
        const Node *n = g->nodes.at[id];
        const char *wrong = check_order(g, n, id);
        if (!wrong)
            wrong = check_types(g, n);
        if (!wrong)
            wrong = check_arg_node(g, n);
        if (!wrong)
            wrong = check_stage(n, stage);
        if (!wrong && n->op == OP_LOOP)
            wrong = check_loop(n->attr.loop);
        if (wrong)
            return node_text(g, n, wrong);
        if (n->op == OP_LOOP) {
            wrong = ir_check(n->attr.loop->body, stage);
            if (wrong)
                return wrong;
        }
    }
    for (int i = 0; i < g->args.len; i++)
        if (g->args.at[i]->op != OP_ARG || g->args.at[i]->attr.index != i)
            return node_text(g, g->args.at[i], "the list of arguments is out of order");
    for (int i = 0; i < g->sinks.len; i++) {
        const char *wrong = check_sink(g, &g->sinks.at[i], stage);
        if (wrong)
            return sink_text(g, i, wrong);
    }
    return check_results(g);
}
