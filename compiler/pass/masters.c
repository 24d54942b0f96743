/* masters.c -- parameters without an fp32 master (masters = none): they have 16 bits alone.
 *
 * In: the forward graphs behind precision, where products read the copy of a parameter and all else
 * reads the parameter. Out: parameters that products read are marked, and whatever else reads them
 * reads those 16 bits too:
 *
 *     %m = matmul %x, copy16 w       ->    %m = matmul %x, copy16 w
 *     %s = sum w                           %s = sum copy16 w
 *
 * Parameters that no product reads (biases, gains) stay in fp32, where they are small and need
 * their digits; so does a state, which is no weight.
 *
 * The idea: the flat numbering of elements stays one for values, gradients and states of the
 * optimizer. Marked parameters come last in it; so the program keeps the others in fp32 up to the
 * border, and in 16 bits from there on. A stack with parameters of both kinds becomes two, each
 * with a stride of its own.
 *
 * Needs: graphs without adjoints. Guarantees: no value of a product changes.
 */
#include "pass/pass.h"

#include <string.h>

typedef struct {
    Program *p;
    Map *of; /* parameter, or argument of a body that is one or a repetition of one -> index + 1 */
} Masters;

/* The parameter that n is, as it is; -1: none. */
static int param_of(const Masters *m, const Node *n)
{
    return n->op == OP_PARAM ? n->attr.index : (int)(intptr_t)map_get(m->of, n) - 1;
}

static void bind_arguments(Masters *m, const Node *loop)
{
    const Loop *l = loop->attr.loop;
    for (int k = l->n_carry; k < loop->n_in; k++) {
        const int param = param_of(m, loop->in[k]);
        if (param >= 0)
            map_set(m->of, l->body->args.at[k], (void *)(intptr_t)(param + 1));
    }
}

/* ---- which ---------------------------------------------------------------------------------- */

static void mark_params(Masters *m, Graph *g)
{
    const bool *live = graph_live(g);
    for (int i = 0; i < g->nodes.len; i++) {
        const Node *n = g->nodes.at[i];
        if (live[i] && n->op == OP_LOOP) {
            bind_arguments(m, n);
            mark_params(m, n->attr.loop->body);
        }
        const int param = live[i] && n->op == OP_COPY16 ? param_of(m, n->in[0]) : -1;
        if (param >= 0 && m->p->params.at[param].role != ROLE_STATE)
            m->p->params.at[param].half = true;
    }
}

void masters_mark(Graph *g)
{
    Masters m = { g->program, map_new(g->program->cx->scratch) };
    mark_params(&m, g);
}

/* ---- graphs --------------------------------------------------------------------------------- */

static Graph *read_halves(Masters *m, Graph *g, Graph *parent);

/* n, or the 16 bits of it where it is a parameter that has no others. */
static Node *as_kept(const Masters *m, Graph *to, const Node *n, Node *copy)
{
    const int param = param_of(m, n);
    if (param < 0 || !m->p->params.at[param].half)
        return copy;
    Node *half = ir_unary(to, OP_COPY16, copy, n->span);
    return n->name ? ir_named(half, n->name) : half;
}

static Node *read_node(Masters *m, Graph *to, const Node *n, Node *const *copy)
{
    if (n->op == OP_LOOP) {
        Loop *made = NEW(m->p->cx->arena, Loop);
        Node **in = NEW_ARRAY(m->p->cx->scratch, Node *, n->n_in + 1);
        bind_arguments(m, n);
        *made = *n->attr.loop;
        made->body = read_halves(m, made->body, to);
        for (int k = 0; k < n->n_in; k++)
            in[k] = k < made->n_carry ? as_kept(m, to, n->in[k], copy[n->in[k]->id])
                                      : copy[n->in[k]->id];
        Node *loop = ir_loop(to, made, n->n_in, in, n->span);
        return n->n_out == 1 ? ir_named(loop, n->name) : loop;
    }
    if (n->op == OP_COPY16) {
        Node *in = copy[n->in[0]->id];
        const int param = param_of(m, n->in[0]);
        const bool half = param >= 0 && m->p->params.at[param].half;
        const Op narrow = m->p->narrow == DT_BF16 ? OP_BF16 : OP_F16;
        return ir_named(ir_unary(to, half ? OP_COPY16 : narrow, in, n->span), n->name);
    }
    Node **by_id = NEW_ARRAY(m->p->cx->scratch, Node *, n->id + 1);
    for (int k = 0; k < n->n_in; k++)
        by_id[n->in[k]->id] = as_kept(m, to, n->in[k], copy[n->in[k]->id]);
    return graph_copy_node(to, n, by_id);
}

static Graph *read_halves(Masters *m, Graph *g, Graph *parent)
{
    Graph *to = graph_new(g->program, g->name, parent);
    Node **copy = NEW_ARRAY(m->p->cx->scratch, Node *, g->nodes.len + 1);
    for (int i = 0; i < g->nodes.len; i++)
        copy[i] = read_node(m, to, g->nodes.at[i], copy);
    for (int i = 0; i < g->sinks.len; i++) {
        const Sink *s = &g->sinks.at[i];
        ir_sink(to, s->kind, s->index, as_kept(m, to, s->node, copy[s->node->id]));
    }
    return to;
}

Graph *pass_masters(Graph *g)
{
    Masters m = { g->program, map_new(g->program->cx->scratch) };
    return read_halves(&m, g, NULL);
}

/* ---- places ---------------------------------------------------------------------------------- */

/* Elements of one repetition of a group. */
static const Dim *stride_of(const Program *p, int group)
{
    const Dim *sum = dim_const(p->dims, 0);
    for (int i = 0; i < p->params.len; i++)
        if (p->params.at[i].group == group)
            sum = dim_add(p->dims, sum, type_elems(p->dims, p->params.at[i].type));
    for (int g = 0; g < p->groups.len; g++)
        if (p->groups.at[g].parent == group)
            sum = dim_add(p->dims, sum, dim_mul(p->dims, p->groups.at[g].count, stride_of(p, g)));
    return sum;
}

/* Are there parameters of that kind in group g or in one inside it? */
static bool has_kind(const Program *p, int g, bool half)
{
    for (int i = 0; i < p->params.len; i++)
        for (int at = p->params.at[i].group; at >= 0; at = p->groups.at[at].parent)
            if (at == g && p->params.at[i].half == half)
                return true;
    return false;
}

/* P_h_STRIDE -> P_h16_STRIDE */
static const Symbol *half_symbol(Program *p, const Symbol *of)
{
    const size_t stem = strlen(of->name) - strlen("_STRIDE");
    const char *name = intern_printf(p->cx, "%.*s16_STRIDE", (int)stem, of->name);
    while (dims_find(p->dims, name))
        name = intern_printf(p->cx, "%s_", name);
    return dims_symbol(p->dims, name, SYM_CONST, 0, of->span);
}

/* The group in which the marked parameters of g lie: itself where there are no others. */
static int half_group(Program *p, int g, int *twin)
{
    if (twin[g] >= 0)
        return twin[g];
    const int parent = p->groups.at[g].parent;
    const int above = parent < 0 ? parent : half_group(p, parent, twin);
    twin[g] = g;
    if (has_kind(p, g, false)) {
        ParamGroup made = p->groups.at[g];
        made.stride_sym = half_symbol(p, made.stride_sym);
        made.twin = true;
        twin[g] = p->groups.len;
        vec_push(p->cx->arena, &p->groups, made);
    }
    p->groups.at[twin[g]].half = true;
    p->groups.at[twin[g]].parent = above;
    return twin[g];
}

void masters_place(Program *p)
{
    int *twin = NEW_ARRAY(p->cx->scratch, int, p->groups.len + 1);
    int *moved = NEW_ARRAY(p->cx->scratch, int, p->params.len + 1);
    for (int g = 0; g < p->groups.len; g++)
        twin[g] = -1;
    for (int i = 0; i < p->params.len; i++) {
        const Param *q = &p->params.at[i];
        moved[i] = q->half && q->group >= 0 ? half_group(p, q->group, twin) : q->group;
    }
    for (int i = 0; i < p->params.len; i++)
        p->params.at[i].group = moved[i];
    for (int g = 0; g < p->groups.len; g++) {
        ParamGroup *group = &p->groups.at[g];
        group->stride = stride_of(p, g);
        dim_value(group->stride, &dims_find(p->dims, group->stride_sym->name)->value);
    }
}
