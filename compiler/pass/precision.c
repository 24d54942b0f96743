/* precision.c -- which values are rounded to 16 bits.
 *
 * In: forward graphs in real arithmetic. Out: the same with a rounding op behind each value that
 * is kept in 16 bits; what is rounded can be stored so, and a product of two such operands can be
 * computed by 16-bit instructions. All else stays as it is: sums, statistics of norms, softmax,
 * losses, and what a kernel holds in registers.
 *
 *     %y = matmul %x, w              %wn = copy16 w
 *     %z = tanh %y          ->       %m  = matmul %x, %wn        (x is rounded where it is made)
 *                                    %y  = bf16 %m
 *                                    %z  = tanh %y
 *
 * Rounded are: operands of products, attention and tables of rows; results of products and of
 * attention, with their bias; and values that live across one of these, because they lie in memory
 * meanwhile. Of these, not what is a number per row (a reduction and what is made of such), which
 * is small and needs its digits. A carried value of a loop is rounded if it is used so in the body
 * and products are made of it: the state of a network, not a running sum.
 *
 * The idea: rounding is part of the forward program, before grad; so training, evaluation and
 * outputs compute the same values, and the adjoint of a rounded value is rounded likewise
 * (op/point.c). Parameters have a 16-bit copy in any case, and their gradients add up in 32 bits:
 * copy16, not a rounding. After grad, an adjoint that a loop carries and that the body rounds
 * before anything else is rounded where it is made (pass_settle): the same values, stored in 16
 * bits. So are the gradients that attention hands out.
 *
 * A layer may have a precision of its own (`in fp32`): its arguments, its parameters and its draws
 * come through a widen, what it gives through a narrow, and what is made of a value belongs to the
 * region that the value is of. In a wide region nothing is rounded and products take what is there;
 * a narrow op rounds operands of products, all else stays as it comes. Both ops are taken out. In a
 * program of 32 bits with layers in 16 it is the other way round.
 *
 * Needs: simplified tensor IR without adjoints. Guarantees: no op is removed; the results differ by
 * rounding alone.
 */
#include "pass/pass.h"

typedef struct {
    Context *cx;
    Op op;       /* OP_BF16 or OP_F16 */
    bool wide;   /* a value of no region is of 32 bits */
    Map *known;  /* nodes made here whose values need no rounding: arguments and results of loops */
    Map *params; /* arguments of bodies that are parameters, or one of a stack */
    Map *region; /* node of the graphs that come in -> Region */
} Precision;

/* What was said last on the way to a value: nothing, 32 bits, 16 bits. */
typedef enum { REGION_NONE, REGION_WIDE, REGION_NARROW } Region;

/* What is known of the values of one graph; all by node id. */
typedef struct {
    int *depth;    /* products on the longest way from an argument */
    bool *per_row; /* a reduction, or made of such and of constants */
    bool *operand; /* of a product, looking through views */
    bool *crosses; /* read behind a product that it does not go into */
    bool *biased; /* a product plus a bias, its only reader: the product's result as it is stored */
    bool *inner;  /* such a product */
    bool *feeds;  /* a product takes it, or something made of it */
} Facts;

static bool is_view(const Node *n)
{
    return n->op == OP_RESHAPE || n->op == OP_TRANSPOSE || n->op == OP_SLICE
           || n->op == OP_BROADCAST;
}

static const Node *through_views(const Node *n)
{
    while (is_view(n))
        n = n->in[0];
    return n;
}

static bool is_product(const Node *n)
{
    const OpClass c = op_row(n->op)->class;
    return c == CLASS_CONTRACT || c == CLASS_CUSTOM || c == CLASS_INDEX || n->op == OP_LOOP;
}

/* ---- regions -------------------------------------------------------------------------------- */

static Region region_of(const Precision *p, const Node *n)
{
    return (Region)(intptr_t)map_get(p->region, n);
}

static void set_region(Precision *p, const Node *n, Region r)
{
    map_set(p->region, n, (void *)(intptr_t)r);
}

static const Node *result_of(const Graph *body, int k)
{
    for (int i = 0; i < body->sinks.len; i++)
        if (body->sinks.at[i].index == k)
            return body->sinks.at[i].node;
    bug("a loop without its result %d", k);
}

static void find_regions(Precision *p, Graph *g);

/* A carried value is of the region of its first value, or of the next ones. */
static void find_regions_of_loop(Precision *p, const Node *loop)
{
    const Loop *l = loop->attr.loop;
    for (int k = 0; k < loop->n_in; k++)
        set_region(p, l->body->args.at[k], region_of(p, loop->in[k]));
    for (bool again = true; again;) {
        again = false;
        find_regions(p, l->body);
        for (int k = 0; k < l->n_carry; k++) {
            const Region next = region_of(p, result_of(l->body, k));
            if (region_of(p, l->body->args.at[k]) != REGION_NONE || next == REGION_NONE)
                continue;
            set_region(p, l->body->args.at[k], next);
            again = true;
        }
    }
}

static void find_regions(Precision *p, Graph *g)
{
    for (int i = 0; i < g->nodes.len; i++) {
        const Node *n = g->nodes.at[i];
        Region r = REGION_NONE;
        if (n->op == OP_ARG)
            continue;
        if (n->op == OP_LOOP)
            find_regions_of_loop(p, n);
        if (n->op == OP_WIDEN || n->op == OP_NARROW)
            r = n->op == OP_WIDEN ? REGION_WIDE : REGION_NARROW;
        else if (n->op == OP_LOOP && n->n_out == 1)
            r = region_of(p, result_of(n->attr.loop->body, 0));
        else if (n->op == OP_RESULT && n->in[0]->op == OP_LOOP)
            r = region_of(p, result_of(n->in[0]->attr.loop->body, n->attr.index));
        for (int k = 0; n->op != OP_LOOP && k < n->n_in && r == REGION_NONE; k++)
            r = region_of(p, n->in[k]);
        set_region(p, n, r);
    }
}

/* Is n computed in 32 bits? */
static bool is_wide(const Precision *p, const Node *n)
{
    const Region r = region_of(p, n);
    return r == REGION_WIDE || (r == REGION_NONE && p->wide);
}

/* ---- facts ---------------------------------------------------------------------------------- */

/* Does n take its input k as a 16-bit operand? */
static bool takes_narrow(const Precision *p, const Node *n, int k)
{
    if (is_wide(p, n))
        return false;
    const Policy policy = op_row(n->op)->policy;
    return policy == POLICY_PRODUCT || (policy == POLICY_TABLE && k == 0);
}

static bool is_tensor(const Node *n)
{
    return n->n_out == 1 && dtype_is_real(n->type->dtype) && n->type->rank > 0;
}

static bool find_per_row(const Facts *f, const Node *n)
{
    const OpClass c = op_row(n->op)->class;
    if (c == CLASS_REDUCE)
        return true;
    if (c != CLASS_POINT && !is_view(n))
        return false;
    bool any = false;
    for (int k = 0; k < n->n_in; k++) {
        const bool small = n->in[k]->type->rank == 0;
        if (!small && !f->per_row[n->in[k]->id])
            return false;
        any |= !small;
    }
    return any;
}

/* Is n a product, seen in another shape, plus something that a parameter gives? */
static void find_bias(Facts *f, const Node *n, const int *uses)
{
    for (int k = 0; n->op == OP_ADD && k < 2; k++) {
        const Node *root = n->in[k], *other = through_views(n->in[1 - k]);
        while (other->op == OP_WIDEN || other->op == OP_NARROW)
            other = through_views(other->in[0]);
        bool alone = uses[root->id] == 1;
        for (; root->op == OP_RESHAPE; alone &= uses[root->id] == 1)
            root = root->in[0];
        if (!alone || root->op != OP_MATMUL || (other->op != OP_PARAM && other->op != OP_ARG))
            continue;
        f->biased[n->id] = f->inner[root->id] = true;
        return;
    }
}

static Facts find_facts(const Precision *p, Graph *g)
{
    Arena *a = p->cx->scratch;
    const int n = g->nodes.len + 1;
    Facts f = { NEW_ARRAY(a, int, n),  NEW_ARRAY(a, bool, n), NEW_ARRAY(a, bool, n),
                NEW_ARRAY(a, bool, n), NEW_ARRAY(a, bool, n), NEW_ARRAY(a, bool, n),
                NEW_ARRAY(a, bool, n) };
    const int *uses = graph_uses(g);
    const bool *live = graph_live(g);
    for (int i = 0; i < g->nodes.len; i++) {
        const Node *node = g->nodes.at[i];
        for (int k = 0; k < node->n_in; k++) {
            const int d = f.depth[node->in[k]->id] + is_product(node);
            f.depth[i] = d > f.depth[i] ? d : f.depth[i];
        }
        f.per_row[i] = find_per_row(&f, node);
        find_bias(&f, node, uses);
    }
    for (int i = 0; i < g->nodes.len; i++) {
        const Node *node = g->nodes.at[i];
        for (int k = 0; live[i] && k < node->n_in; k++) {
            const Node *root = through_views(node->in[k]);
            f.operand[root->id] |= takes_narrow(p, node, k);
            f.crosses[root->id] |= f.depth[i] > f.depth[root->id];
        }
    }
    for (int i = g->nodes.len - 1; i >= 0; i--)
        for (int k = 0; live[i] && k < g->nodes.at[i]->n_in; k++)
            f.feeds[g->nodes.at[i]->in[k]->id] |= f.feeds[i] || takes_narrow(p, g->nodes.at[i], k);
    return f;
}

/* Is n rounded where it is made, for all who read it? */
static bool is_rounded(const Precision *p, const Facts *f, const Node *n)
{
    const Policy policy = op_row(n->op)->policy;
    if (!is_tensor(n) || f->per_row[n->id] || is_wide(p, n))
        return false;
    if (n->op == OP_MATMUL)
        return !f->inner[n->id];
    if (n->op == OP_RESULT)
        return n->in[0]->op == OP_ATTENTION && n->attr.index == 0;
    if (n->op == OP_NARROW)
        return f->operand[n->id];
    return (policy == POLICY_POINT || (policy == POLICY_MOVE && !is_view(n)))
           && (f->operand[n->id] || f->crosses[n->id] || f->biased[n->id]);
}

/* ---- what is narrow already ----------------------------------------------------------------- */

static void set_known(Precision *p, const Node *n) { map_set(p->known, n, p); }

static bool is_known(const Precision *p, const Node *n)
{
    if (n->op == p->op || n->op == OP_COPY16 || map_get(p->known, n))
        return true;
    if (n->op == OP_CONST)
        return op_fits(n->attr.value, p->op == OP_BF16 ? DT_BF16 : DT_F16);
    if (is_view(n) || n->op == OP_PAD || n->op == OP_GATHER)
        return is_known(p, n->in[0]);
    for (int k = 0; n->op == OP_CONCAT && k < n->n_in; k++)
        if (!is_known(p, n->in[k]))
            return false;
    return n->op == OP_CONCAT;
}

static bool is_param(const Precision *p, const Node *n)
{
    return n->op == OP_PARAM || map_get(p->params, n) != NULL;
}

/* n in 16 bits: as it is, or its root rounded and the views of it taken again. */
static Node *narrowed(Precision *p, Graph *g, Node *n)
{
    if (n->n_out > 1 || !dtype_is_real(n->type->dtype) || is_known(p, n))
        return n;
    if (!is_view(n)) {
        Node *made = ir_unary(g, is_param(p, n) ? OP_COPY16 : p->op, n, n->span);
        return n->name ? ir_named(made, n->name) : made;
    }
    Node *in = narrowed(p, g, n->in[0]);
    Node *made = op_row(n->op)->shape ? ir_node(g, n->op, 1, &in, &n->attr, n->span)
                                      : ir_typed(g, n->op, n->type, 1, &in, &n->attr, n->span);
    return n->name ? ir_named(made, n->name) : made;
}

/* ---- graphs --------------------------------------------------------------------------------- */

static Graph *narrow_graph(Precision *p, Graph *g, Graph *parent, const Node *loop, Node *const *in,
                           const bool *carry);

/* Which carries of a loop are rounded. */
static bool *rounded_carries(const Precision *p, const Node *loop)
{
    const Loop *l = loop->attr.loop;
    const Facts f = find_facts(p, l->body);
    bool *carry = NEW_ARRAY(p->cx->scratch, bool, l->n_carry + 1);
    for (int k = 0; k < l->n_carry; k++) {
        const Node *arg = l->body->args.at[k];
        carry[k] = is_tensor(arg) && !is_wide(p, arg)
                   && (f.operand[arg->id] || (f.crosses[arg->id] && f.feeds[arg->id]));
    }
    return carry;
}

static Node *narrow_loop(Precision *p, Graph *to, const Node *n, Node *const *copy)
{
    const bool *carry = rounded_carries(p, n);
    Loop *made = NEW(p->cx->arena, Loop);
    Node **in = NEW_ARRAY(p->cx->scratch, Node *, n->n_in + 1);
    *made = *n->attr.loop;
    for (int k = 0; k < n->n_in; k++) {
        in[k] = copy[n->in[k]->id];
        if (k < made->n_carry && carry[k])
            in[k] = narrowed(p, to, in[k]);
    }
    made->body = narrow_graph(p, made->body, to, n, in, carry);
    return ir_loop(to, made, n->n_in, in, n->span);
}

/* Results of a loop: rounded carries, and stacks of rounded values. */
static bool result_is_known(const Precision *p, const Node *loop, int k, const bool *carry)
{
    const Graph *body = loop->attr.loop->body;
    if (k < loop->attr.loop->n_carry)
        return carry[k];
    for (int i = 0; i < body->sinks.len; i++)
        if (body->sinks.at[i].index == k)
            return is_known(p, body->sinks.at[i].node);
    return false;
}

/* A value that enters another region. A parameter is read as it is; products find its copy. */
static Node *narrow_border(Precision *p, Graph *to, const Facts *f, const Node *n, Node *in)
{
    if (n->name)
        ir_named(in, n->name);
    return is_rounded(p, f, n) && !is_param(p, through_views(in)) ? narrowed(p, to, in) : in;
}

static Node *narrow_node(Precision *p, Graph *to, const Facts *f, const Node *n, Node **copy)
{
    if (n->op == OP_LOOP) {
        Node *loop = narrow_loop(p, to, n, copy);
        if (loop->n_out == 1 && result_is_known(p, loop, 0, rounded_carries(p, n)))
            set_known(p, loop);
        return n->n_out == 1 ? ir_named(loop, n->name) : loop;
    }
    if (n->op == OP_WIDEN || n->op == OP_NARROW)
        return narrow_border(p, to, f, n, copy[n->in[0]->id]);
    Node **in = NEW_ARRAY(p->cx->scratch, Node *, n->n_in + 1);
    for (int k = 0; k < n->n_in; k++) {
        in[k] = copy[n->in[k]->id];
        if (takes_narrow(p, n, k))
            in[k] = narrowed(p, to, in[k]);
    }
    Node **by_id = NEW_ARRAY(p->cx->scratch, Node *, n->id + 1);
    for (int k = 0; k < n->n_in; k++)
        by_id[n->in[k]->id] = in[k];
    Node said = *n;
    said.attr.wide |= n->op == OP_ATTENTION && is_wide(p, n);
    Node *made = graph_copy_node(to, &said, by_id);
    if (n->op == OP_RESULT && n->in[0]->op == OP_LOOP
        && result_is_known(p, copy[n->in[0]->id], n->attr.index, rounded_carries(p, n->in[0])))
        set_known(p, made);
    return is_rounded(p, f, n) ? narrowed(p, to, made) : made;
}

static Graph *narrow_graph(Precision *p, Graph *g, Graph *parent, const Node *loop, Node *const *in,
                           const bool *carry)
{
    const Facts f = find_facts(p, g);
    for (int i = 0; loop && i < g->sinks.len;
         i++) /* the next value is rounded for all its readers */
        if (g->sinks.at[i].index < loop->attr.loop->n_carry && carry[g->sinks.at[i].index])
            f.operand[through_views(g->sinks.at[i].node)->id] = true;
    Graph *to = graph_new(g->program, g->name, parent);
    Node **copy = NEW_ARRAY(p->cx->scratch, Node *, g->nodes.len + 1);
    for (int i = 0; i < g->nodes.len; i++) {
        const Node *n = g->nodes.at[i];
        copy[i] = narrow_node(p, to, &f, n, copy);
        if (loop && n->op == OP_ARG && (n->attr.arg == ARG_SLICE || n->attr.arg == ARG_SHARED)
            && is_param(p, in[n->attr.index]))
            map_set(p->params, copy[i], p);
        if (loop && n->op == OP_ARG && n->attr.arg != ARG_ITER
            && (n->attr.arg == ARG_CARRY ? carry[n->attr.index] : is_known(p, in[n->attr.index])))
            set_known(p, copy[i]);
    }
    for (int i = 0; i < g->sinks.len; i++) {
        const Sink *s = &g->sinks.at[i];
        Node *n = copy[s->node->id];
        if (loop && s->index < loop->attr.loop->n_carry && carry[s->index])
            n = narrowed(p, to, n);
        ir_sink(to, s->kind, s->index, n);
    }
    return to;
}

/* ---- carries of the backward pass ----------------------------------------------------------- */

/* By carry: does the body round it wherever it reads it? */
static bool *settled_carries(const Precision *p, const Loop *l)
{
    Graph *g = l->body;
    const bool *live = graph_live(g);
    bool *carry = NEW_ARRAY(p->cx->scratch, bool, l->n_carry + 1);
    for (int k = 0; k < l->n_carry; k++) {
        const Node *arg = g->args.at[k];
        bool all = is_tensor(arg), any = false;
        for (int i = 0; i < g->nodes.len; i++)
            for (int a = 0; live[i] && a < g->nodes.at[i]->n_in; a++)
                if (g->nodes.at[i]->in[a] == arg) {
                    all &= g->nodes.at[i]->op == p->op;
                    any = true;
                }
        for (int i = 0; i < g->sinks.len; i++)
            all &= g->sinks.at[i].node != arg;
        carry[k] = all && any;
    }
    return carry;
}

static Node *settled(Precision *p, Graph *g, Node *n)
{
    if (is_known(p, n))
        return n;
    Node *made = ir_unary(g, p->op, n, n->span);
    made->backward = n->backward;
    made->undoes = n->undoes;
    return n->name ? ir_named(made, n->name) : made;
}

static Graph *settle_graph(Precision *p, Graph *g, Graph *parent, const Loop *loop,
                           const bool *carry);

static Node *settle_loop(Precision *p, Graph *to, const Node *n, Node *const *copy)
{
    const bool *carry = settled_carries(p, n->attr.loop);
    Loop *made = NEW(p->cx->arena, Loop);
    Node **in = NEW_ARRAY(p->cx->scratch, Node *, n->n_in + 1);
    *made = *n->attr.loop;
    made->body = settle_graph(p, made->body, to, made, carry);
    for (int k = 0; k < n->n_in; k++) {
        in[k] = copy[n->in[k]->id];
        if (k < made->n_carry && carry[k])
            in[k] = settled(p, to, in[k]);
    }
    Node *loop = ir_loop(to, made, n->n_in, in, n->span);
    loop->undoes = n->undoes;
    loop->backward = n->backward;
    if (n->n_out == 1 && result_is_known(p, loop, 0, carry))
        set_known(p, loop);
    return n->n_out == 1 ? ir_named(loop, n->name) : loop;
}

static Node *settle_node(Precision *p, Graph *to, const Node *n, Node *const *copy)
{
    if (n->op == OP_LOOP)
        return settle_loop(p, to, n, copy);
    if (n->op == p->op && is_known(p, copy[n->in[0]->id]))
        return copy[n->in[0]->id];
    Node *made = graph_copy_node(to, n, copy);
    if (n->op == OP_RESULT && n->in[0]->op == OP_ATTENTION_GRAD && !n->in[0]->attr.wide)
        return settled(p, to, made);
    if (n->op == OP_RESULT && n->in[0]->op == OP_LOOP
        && result_is_known(p, copy[n->in[0]->id], n->attr.index,
                           settled_carries(p, n->in[0]->attr.loop)))
        set_known(p, made);
    return made;
}

static Graph *settle_graph(Precision *p, Graph *g, Graph *parent, const Loop *loop,
                           const bool *carry)
{
    Graph *to = graph_new(g->program, g->name, parent);
    Node **copy = NEW_ARRAY(p->cx->scratch, Node *, g->nodes.len + 1);
    for (int i = 0; i < g->nodes.len; i++) {
        const Node *n = g->nodes.at[i];
        copy[i] = settle_node(p, to, n, copy);
        if (loop && n->op == OP_ARG && n->attr.arg == ARG_CARRY && carry[n->attr.index])
            set_known(p, copy[i]);
    }
    for (int i = 0; i < g->sinks.len; i++) {
        const Sink *s = &g->sinks.at[i];
        const bool next = loop && s->index < loop->n_carry && carry[s->index];
        Node *n = copy[s->node->id];
        ir_sink(to, s->kind, s->index, next ? settled(p, to, n) : n);
    }
    return to;
}

static Precision precision_of(const Graph *g, DType narrow)
{
    Context *cx = g->program->cx;
    return (Precision){ cx,
                        narrow == DT_BF16 ? OP_BF16 : OP_F16,
                        g->program->wide,
                        map_new(cx->scratch),
                        map_new(cx->scratch),
                        map_new(cx->scratch) };
}

Graph *pass_settle(Graph *g)
{
    if (g->program->narrow != DT_BF16 && g->program->narrow != DT_F16)
        return g;
    Precision p = precision_of(g, g->program->narrow);
    return settle_graph(&p, g, NULL, NULL, NULL);
}

Graph *pass_precision(Graph *g, DType narrow)
{
    Precision p = precision_of(g, narrow);
    find_regions(&p, g);
    return narrow_graph(&p, g, NULL, NULL, NULL, NULL);
}

static Node *without_border(Graph *to, Node *n, void *user)
{
    (void)to;
    (void)user;
    return n->op == OP_WIDEN || n->op == OP_NARROW ? n->in[0] : NULL;
}

Graph *pass_borderless(Graph *g) { return graph_rewrite(g, without_border, NULL); }
