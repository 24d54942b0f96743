/* chunk.c -- the product before the loss, and all that follows from it, a part of the rows at a
 * time.
 *
 * In: a graph after the last tensor pass, and how many rows a part has. Out: the same graph, in
 * which the largest product that the loss follows from row by row, what is computed of it and, in
 * training, the gradients that flow back through it are the body of one loop over parts of the
 * rows, so that logits exist for one part only.
 *
 *     logits = h @ w'                               for each part of the rows of h, targets
 *     losses = cross entropy of logits, targets         logits, losses, d_logits of these rows
 *     d_h    = d_logits @ w                  ->         d_h of these rows
 *     d_w    = d_logits' @ h                            d_w += d_logits' @ h
 *
 * The idea: a value is taken into the loop if each of its rows follows from the same row of its
 * operands. What leaves the loop is stacked rows (losses, d_h), or a sum over rows that the loop
 * carries (d_w, the gradient of a bias). A sum over all is taken outside, of the sums of rows, so
 * that losses and d_h keep their bits; carried sums are added part by part. The last part is what
 * is left: rows need not divide.
 */
#include "pass/pass.h"

#include "ir/program.h"

typedef enum {
    FATE_BEFORE, /* does not depend on the product */
    FATE_INSIDE, /* its rows are computed in the loop */
    FATE_EXIT,   /* the same, and only what stands after the loop reads them */
    FATE_AFTER,  /* depends on what leaves the loop */
} Fate;

typedef enum {
    OUT_ROWS,  /* its rows, stacked */
    OUT_TOTAL, /* stacked sums of rows, of which it is the sum */
    OUT_SUM,   /* a sum over rows that the loop carries */
} OutKind;

typedef struct {
    const Node *node; /* of the graph */
    Node *value;      /* in the body: OUT_SUM: the next addend */
    OutKind kind;
    int result; /* of the loop */
} Out;

typedef struct {
    ArgKind kind;
    const Node *outer; /* of the graph; NULL: the sum number `out` starts at zero */
    int out;
    Node *arg; /* in the draft */
} In;

typedef VEC(In) Ins;

typedef struct {
    Context *cx;
    Dims *ds;
    Graph *g, *draft; /* the body, with its arguments in any order */
    const bool *live;
    const Symbol *part;
    Fate *fate;       /* by id */
    Node **in_body;   /* by id: what stands for it in the draft */
    Ins ins;          /* arguments of the draft */
    VEC(Out) outs;    /* results of the loop */
    const Node *fail; /* what needs all rows at once */
} Chunk;

/* ---- rows ----------------------------------------------------------------------------------- */

/* How many of the first axes are the rows: 0 = none. */
static int count_row_axes(const Chunk *c, const Type *t)
{
    const Dim *n = dim_const(c->ds, 1);
    for (int k = 0; k < t->rank; k++) {
        n = dim_mul(c->ds, n, t->dim[k]);
        if (dim_same(n, c->part->whole))
            return k + 1;
    }
    return 0;
}

/* [B,T,V] of B*T rows as [rows,V]; with whole, as [B*T,V]. */
static const Type *type_of_rows(const Chunk *c, const Type *t, bool whole)
{
    const int lead = count_row_axes(c, t);
    const Dim *dim[RANK_MAX] = { whole ? c->part->whole : dim_sym(c->ds, c->part) };
    for (int k = lead; k < t->rank; k++)
        dim[k - lead + 1] = t->dim[k];
    return type_of(c->ds, t->dtype, t->rank - lead + 1, dim);
}

/* One number in each row. */
static bool is_narrow_row(const Chunk *c, const Type *t)
{
    const int lead = count_row_axes(c, t);
    int64_t v;
    for (int k = lead; k < t->rank; k++)
        if (!dim_value(t->dim[k], &v) || v != 1)
            return false;
    return lead > 0;
}

static void mark_like(Node *made, const Node *n, int before)
{
    if (made->id < before)
        return;
    made->backward = n->backward;
    made->undoes = n->undoes;
    made->name = made->name ? made->name : n->name;
}

/* n over in[], with attributes of its own, in the draft. */
static Node *make(Chunk *c, const Node *n, Node *const *in, const Attr *attr)
{
    const int before = c->draft->nodes.len;
    Node *made = op_row(n->op)->shape ? ir_node(c->draft, n->op, n->n_in, in, attr, n->span)
                                      : ir_typed(c->draft, n->op, type_of_rows(c, n->type, false),
                                                 n->n_in, in, attr, n->span);
    mark_like(made, n, before);
    return made;
}

/* ---- what the body reads -------------------------------------------------------------------- */

static Node *add_argument(Chunk *c, const Node *n, ArgKind kind)
{
    const Type *t = kind == ARG_SLICE ? type_of_rows(c, n->type, false) : n->type;
    Node *arg = ir_arg(c->draft, kind, t, n->span);
    arg->name = n->name;
    vec_push(c->cx->scratch, &c->ins, ((In){ kind, n, -1, arg }));
    c->in_body[n->id] = arg;
    return arg;
}

/* A value without rows, the same for all parts: a parameter, a seed. */
static Node *read_shared(Chunk *c, const Node *n)
{
    if (c->fate[n->id] != FATE_BEFORE)
        return NULL;
    if (c->in_body[n->id])
        return c->in_body[n->id];
    if (n->op != OP_CONST && n->op != OP_DIM)
        return add_argument(c, n, ARG_SHARED);
    return c->in_body[n->id] = graph_copy_node(c->draft, n, NULL);
}

static Node *take(Chunk *c, const Node *n);

/* A wide value that is computed element by element is computed in the loop too: it need not exist
   as a whole. */
static bool is_computed_again(const Chunk *c, const Node *n)
{
    return !is_narrow_row(c, n->type)
           && (op_is(n, CLASS_POINT) || n->op == OP_BROADCAST || n->op == OP_IOTA);
}

/* The rows of n in the body; NULL: they are not known there. */
static Node *read_rows(Chunk *c, const Node *n)
{
    if (c->fate[n->id] == FATE_EXIT || c->fate[n->id] == FATE_AFTER)
        return NULL;
    if (c->in_body[n->id])
        return c->in_body[n->id];
    if (count_row_axes(c, n->type) == 0)
        return NULL;
    if (is_computed_again(c, n))
        return c->in_body[n->id] = take(c, n);
    return add_argument(c, n, ARG_SLICE);
}

/* ---- one node ------------------------------------------------------------------------------- */

static Node *take_point(Chunk *c, const Node *n)
{
    Node *in[4];
    for (int i = 0; i < n->n_in; i++) {
        in[i] = n->in[i]->type->rank == 0 ? read_shared(c, n->in[i]) : read_rows(c, n->in[i]);
        if (!in[i])
            return NULL;
    }
    return make(c, n, in, &n->attr);
}

static Node *take_reshape(Chunk *c, const Node *n)
{
    Node *in = read_rows(c, n->in[0]);
    if (!in || count_row_axes(c, n->type) == 0)
        return NULL;
    const Type *t = type_of_rows(c, n->type, false);
    const int before = c->draft->nodes.len;
    Node *made = ir_reshape(c->draft, in, t->rank, t->dim, n->span);
    mark_like(made, n, before);
    return made;
}

/* The input has all axes of the rows (rows of it), or none (the same for each row). */
static Node *take_broadcast(Chunk *c, const Node *n)
{
    const int lead = count_row_axes(c, n->type), rank = n->in[0]->type->rank;
    int rows = 0;
    Attr attr = { .n_axes = 0 };
    while (rows < rank && n->attr.axes[rows] < lead)
        rows++;
    if (rows != 0 && rows != lead)
        return NULL;
    Node *in = rows ? read_rows(c, n->in[0]) : read_shared(c, n->in[0]);
    if (!in)
        return NULL;
    attr.n_axes = in->type->rank;
    for (int k = rows; k < rank; k++)
        attr.axes[k - rows + (rows > 0)] = n->attr.axes[k] - lead + 1;
    return make(c, n, &in, &attr);
}

static Node *take_iota(Chunk *c, const Node *n)
{
    const int axis = n->attr.axes[0] - count_row_axes(c, n->type);
    Attr attr = { .n_axes = 1, .axes = { axis + 1 } };
    return axis < 0 ? NULL : make(c, n, NULL, &attr);
}

/* The same ranges of the columns. */
static Node *take_range(Chunk *c, const Node *n)
{
    const int lead = count_row_axes(c, n->in[0]->type);
    Node *in = read_rows(c, n->in[0]);
    Attr attr = { .lo = { dim_const(c->ds, 0) } };
    if (!in || lead == 0 || lead != count_row_axes(c, n->type))
        return NULL;
    for (int k = lead; k < n->type->rank; k++)
        attr.lo[k - lead + 1] = n->attr.lo[k];
    return make(c, n, &in, &attr);
}

/* What n is called, or else the first value that is made of it. */
static const char *name_of(const Graph *g, const Node *n)
{
    for (int id = n->id + 1; n->name == NULL && id < g->nodes.len; id++)
        for (int i = 0; i < g->nodes.at[id]->n_in && n->name == NULL; i++)
            if (g->nodes.at[id]->in[i] == n && !op_is(n, CLASS_STRUCT))
                n = g->nodes.at[id];
    return n->name;
}

static void add_out(Chunk *c, const Node *n, Node *value, OutKind kind)
{
    if (value->name == NULL && kind == OUT_ROWS)
        value->name = name_of(c->g, n);
    vec_push(c->cx->scratch, &c->outs, ((Out){ n, value, kind, 0 }));
}

/* A sum over the rows, of what is first summed over columns. */
static Node *take_sum_of_rows(Chunk *c, const Node *n, Node *in, int lead)
{
    int axes[RANK_MAX], n_axes = 0;
    for (int k = 0; k < n->attr.n_axes; k++)
        if (n->attr.axes[k] >= lead)
            axes[n_axes++] = n->attr.axes[k] - lead + 1;
    const int before = c->draft->nodes.len;
    Node *sum = n_axes ? ir_reduce(c->draft, OP_SUM, in, n_axes, axes, n->span) : in;
    c->fate[n->id] = FATE_EXIT;
    if (sum->type->rank > 1)
        sum = ir_reduce(c->draft, OP_SUM, sum, 1, (int[]){ 0 }, n->span);
    if (sum != in)
        mark_like(sum, n, before);
    if (n->type->rank == 0 && n->name)
        ir_named(sum, intern_printf(c->cx, "%s_rows", n->name));
    add_out(c, n, sum, n->type->rank == 0 ? OUT_TOTAL : OUT_SUM);
    return sum;
}

static Node *take_reduce(Chunk *c, const Node *n)
{
    const int lead = count_row_axes(c, n->in[0]->type);
    Node *in = read_rows(c, n->in[0]);
    Attr attr = { .n_axes = n->attr.n_axes };
    int rows = 0;
    for (int k = 0; k < n->attr.n_axes; k++) {
        rows += n->attr.axes[k] < lead;
        attr.axes[k] = n->attr.axes[k] - lead + 1;
    }
    if (!in || (rows > 0 && (rows < lead || n->op != OP_SUM)))
        return NULL;
    return rows > 0 ? take_sum_of_rows(c, n, in, lead) : make(c, n, &in, &attr);
}

static Node *take_product(Chunk *c, const Node *n)
{
    const Node *a = n->in[0], *b = n->in[1];
    if (n->type->rank != 2)
        return NULL;
    const bool rows_a = count_row_axes(c, a->type) == 1, rows_b = count_row_axes(c, b->type) == 1;
    const bool sums = rows_a && rows_b && n->attr.ta && !n->attr.tb;
    if (!sums && (!rows_a || rows_b || n->attr.ta))
        return NULL;
    Node *in[] = { read_rows(c, a), sums ? read_rows(c, b) : read_shared(c, b) };
    if (!in[0] || !in[1])
        return NULL;
    Node *made = make(c, n, in, &n->attr);
    c->fate[n->id] = FATE_EXIT;
    add_out(c, n, made, sums ? OUT_SUM : OUT_ROWS);
    return made;
}

/* n in the body, its rows from the same rows of its operands; NULL: they do not follow so. */
static Node *take(Chunk *c, const Node *n)
{
    switch (n->op) {
    case OP_RESHAPE: return take_reshape(c, n);
    case OP_BROADCAST: return take_broadcast(c, n);
    case OP_IOTA: return take_iota(c, n);
    case OP_SLICE:
    case OP_PAD: return take_range(c, n);
    case OP_MATMUL: return take_product(c, n);
    default: break;
    }
    return op_is(n, CLASS_POINT)    ? take_point(c, n)
           : op_is(n, CLASS_REDUCE) ? take_reduce(c, n)
                                    : NULL;
}

/* ---- all nodes ------------------------------------------------------------------------------ */

/* n stands after the loop: what it reads of the inside leaves it, if that is a number a row. */
static bool leave(Chunk *c, const Node *n)
{
    c->fate[n->id] = FATE_AFTER;
    for (int i = 0; i < n->n_in; i++) {
        const Node *in = n->in[i];
        if (c->fate[in->id] != FATE_INSIDE)
            continue;
        if (!is_narrow_row(c, in->type))
            return false;
        bool out = false;
        for (int k = 0; k < c->outs.len; k++)
            out |= c->outs.at[k].node == in;
        if (!out)
            add_out(c, in, c->in_body[in->id], OUT_ROWS);
    }
    return true;
}

/* Decides on each node behind the product. False: c->fail needs more than rows. */
static bool follow(Chunk *c, const Node *product)
{
    for (int id = product->id + 1; id < c->g->nodes.len; id++) {
        const Node *n = c->g->nodes.at[id];
        bool inside = false, after = false;
        for (int i = 0; c->live[id] && i < n->n_in; i++) {
            inside |= c->fate[n->in[i]->id] == FATE_INSIDE;
            after |= c->fate[n->in[i]->id] > FATE_INSIDE;
        }
        if (after || inside)
            c->fate[id] = FATE_AFTER;
        Node *made = inside && !after ? take(c, n) : NULL;
        c->in_body[id] = made ? made : c->in_body[id];
        if (made && c->fate[id] != FATE_EXIT)
            c->fate[id] = FATE_INSIDE;
        if (inside && !made && !leave(c, n)) {
            c->fail = n;
            return false;
        }
    }
    for (int i = 0; i < c->g->sinks.len; i++) {
        const Node *n = c->g->sinks.at[i].node;
        if (c->fate[n->id] == FATE_INSIDE)
            c->fail = n;
    }
    return c->fail == NULL;
}

/* ---- the loop ------------------------------------------------------------------------------- */

static Node *zeros(Graph *g, const Type *t, Span at)
{
    return ir_broadcast(g, ir_const(g, t->dtype, 0, at), t->rank, t->dim, NULL, at);
}

/* Results in the order of a loop: carried sums, then stacks. */
static void number_results(Chunk *c, Loop *l)
{
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < c->outs.len; i++) {
            Out *o = &c->outs.at[i];
            if ((o->kind == OUT_SUM) != (pass == 0))
                continue;
            o->result = pass == 0 ? l->n_carry++ : l->n_carry + l->n_stack++;
            if (o->kind != OUT_SUM)
                continue;
            Node *arg = ir_arg(c->draft, ARG_CARRY, o->value->type, o->value->span);
            arg->name = o->node->name;
            vec_push(c->cx->scratch, &c->ins, ((In){ ARG_CARRY, NULL, i, arg }));
            const int before = c->draft->nodes.len;
            o->value = ir_binary(c->draft, OP_ADD, arg, o->value, o->value->span);
            o->value->backward = before < c->draft->nodes.len && o->node->backward;
        }
}

/* What n undoes, where that is now. */
static void relink(const Chunk *c, Node *made, Node *const *copy)
{
    const Node *was = made->undoes;
    if (was && was->graph == c->g)
        made->undoes = copy[was->id];
}

/* The draft with its arguments in the order of a loop, without what nobody reads. In: the copies of
   the graph's nodes. Out: of those inside, too. */
static Graph *order_body(Chunk *c, Loop *l, Graph *parent, Node **copy, Ins *order)
{
    static const ArgKind kinds[] = { ARG_CARRY, ARG_SLICE, ARG_SHARED };
    Graph *from = c->draft, *to = graph_new(from->program, from->name, parent);
    for (int i = 0; i < c->outs.len; i++)
        ir_sink(from, SINK_RESULT, c->outs.at[i].result, c->outs.at[i].value);
    const bool *live = graph_live(from);
    Node **made = NEW_ARRAY(c->cx->scratch, Node *, from->nodes.len + 1);
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < c->ins.len; i++) {
            const In *in = &c->ins.at[i];
            if (in->kind != kinds[k] || !live[in->arg->id])
                continue;
            made[in->arg->id] = ir_arg(to, in->kind, in->arg->type, in->arg->span);
            made[in->arg->id]->name = in->arg->name;
            l->n_slice += in->kind == ARG_SLICE;
            l->n_shared += in->kind == ARG_SHARED;
            vec_push(c->cx->scratch, order, *in);
        }
    ir_named(ir_arg(to, ARG_ITER, type_of(c->ds, DT_I32, 0, NULL), (Span){ 0, 0, 0 }), "part");
    for (int id = 0; id < from->nodes.len; id++)
        if (live[id] && !made[id])
            made[id] = graph_copy_node(to, from->nodes.at[id], made);
    for (int id = 0; id < c->g->nodes.len; id++)
        if (c->fate[id] != FATE_BEFORE && c->in_body[id] && live[c->in_body[id]->id])
            copy[id] = made[c->in_body[id]->id];
    for (int id = 0; id < to->nodes.len; id++)
        relink(c, to->nodes.at[id], copy);
    for (int i = 0; i < from->sinks.len; i++)
        ir_sink(to, SINK_RESULT, from->sinks.at[i].index, made[from->sinks.at[i].node->id]);
    return to;
}

static Loop *loop_new(Chunk *c)
{
    Loop *l = NEW(c->cx->arena, Loop);
    l->name = c->draft->name;
    l->part = c->part;
    l->trip = dim_parts(c->ds, c->part);
    return l;
}

/* The input of the loop, in the new graph. */
static Node *loop_input(Chunk *c, Graph *to, const In *in, Node *const *copy)
{
    const Type *t = in->arg->type;
    if (in->kind == ARG_CARRY)
        return zeros(to, t, in->arg->span);
    if (in->kind == ARG_SHARED)
        return copy[in->outer->id];
    t = type_of_rows(c, in->outer->type, true);
    return ir_reshape(to, copy[in->outer->id], t->rank, t->dim, in->outer->span);
}

/* What stands for o->node outside. */
static Node *loop_output(Chunk *c, Graph *to, Node *loop, const Out *o)
{
    const Node *n = o->node;
    const Type *t = o->kind == OUT_TOTAL ? n->in[0]->type : n->type;
    const int rank = o->kind == OUT_TOTAL ? count_row_axes(c, t) : t->rank;
    static const int all[] = { 0, 1, 2, 3, 4, 5, 6, 7 };
    const int before = to->nodes.len;
    Node *r = ir_result(loop, o->result);
    if (o->kind != OUT_SUM)
        r = ir_reshape(to, r, rank, t->dim, n->span);
    if (o->kind == OUT_TOTAL)
        r = ir_reduce(to, OP_SUM, r, rank, all, n->span);
    mark_like(r, n, before);
    return r;
}

static void copy_those(Chunk *c, Graph *to, Node **copy, Fate fate)
{
    for (int id = 0; id < c->g->nodes.len; id++) {
        if (!c->live[id] || c->fate[id] != fate)
            continue;
        copy[id] = graph_copy_node(to, c->g->nodes.at[id], copy);
        relink(c, copy[id], copy);
    }
}

static Graph *assemble(Chunk *c, const Node *product)
{
    Graph *g = c->g, *to = graph_new(g->program, g->name, g->parent);
    Node **copy = NEW_ARRAY(c->cx->scratch, Node *, g->nodes.len + 1);
    Ins order = { 0 };
    Loop *l = loop_new(c);
    copy_those(c, to, copy, FATE_BEFORE);
    number_results(c, l);
    l->body = order_body(c, l, to, copy, &order);
    Node **in = NEW_ARRAY(c->cx->scratch, Node *, order.len + 1);
    for (int i = 0; i < order.len; i++)
        in[i] = loop_input(c, to, &order.at[i], copy);
    Node *loop = ir_loop(to, l, order.len, in, product->span);
    for (int i = 0; i < c->outs.len; i++)
        loop->backward |= c->outs.at[i].node->backward;
    for (int i = 0; i < c->outs.len; i++)
        copy[c->outs.at[i].node->id] = loop_output(c, to, loop, &c->outs.at[i]);
    copy_those(c, to, copy, FATE_AFTER);
    for (int i = 0; i < g->sinks.len; i++)
        ir_sink(to, g->sinks.at[i].kind, g->sinks.at[i].index, copy[g->sinks.at[i].node->id]);
    return graph_rewrite(to, NULL, NULL);
}

/* ---- which product -------------------------------------------------------------------------- */

/* Does the forward pass go on from n, within elements and rows, to its end? */
static bool is_last(const Graph *g, const bool *live, const Node *product)
{
    bool *behind = NEW_ARRAY(g->program->cx->scratch, bool, g->nodes.len + 1);
    behind[product->id] = true;
    for (int id = product->id + 1; id < g->nodes.len; id++) {
        const Node *n = g->nodes.at[id];
        for (int i = 0; live[id] && i < n->n_in; i++)
            behind[id] |= behind[n->in[i]->id];
        if (behind[id] && !n->backward && !op_is(n, CLASS_POINT) && !op_is(n, CLASS_REDUCE)
            && !op_is(n, CLASS_MOVE))
            return false;
    }
    return true;
}

/* The largest product with the rows of samples that the loss follows from without another. */
static const Node *find_product(const Graph *g, const bool *live)
{
    const int64_t *values = program_training_dims(g->program);
    const Node *best = NULL;
    int64_t most = 0;
    for (int id = 0; id < g->nodes.len; id++) {
        const Node *n = g->nodes.at[id];
        if (!live[id] || n->op != OP_MATMUL || n->backward || n->type->rank != 2 || n->attr.ta
            || !dim_has_kind(n->type->dim[0], SYM_BATCH) || !is_last(g, live, n))
            continue;
        const int64_t elems = dim_eval(type_elems(g->program->dims, n->type), values);
        best = elems > most ? n : best;
        most = elems > most ? elems : most;
    }
    return best;
}

int64_t chunk_head_bytes(Graph *g)
{
    const Node *n = find_product(g, graph_live(g));
    const int64_t *values = program_training_dims(g->program);
    return n ? dim_eval(type_elems(g->program->dims, n->type), values) * dtype_bytes(n->type->dtype)
             : 0;
}

/* The size of a part as a constant of the program, so that emitted code can name it. */
static const Dim *named_rows(Context *cx, Dims *ds, const char *name, int64_t rows)
{
    Symbol *s = dims_find(ds, "HEAD_ROWS");
    if (s == NULL) {
        s = dims_symbol(ds, "HEAD_ROWS", SYM_CONST, rows, (Span){ 0, 0, 0 });
        s->note = intern_printf(cx, "rows of %s at a time", name);
    }
    return s->kind == SYM_CONST && s->value == rows ? dim_sym(ds, s) : dim_const(ds, rows);
}

Graph *pass_chunk(Graph *g, int64_t rows, const Node **fail)
{
    Context *cx = g->program->cx;
    Dims *ds = g->program->dims;
    const bool *live = graph_live(g);
    const Node *product = find_product(g, live);
    *fail = NULL;
    if (product == NULL)
        return NULL;
    Chunk c = { .cx = cx, .ds = ds, .g = g, .live = live };
    const char *name = name_of(g, product);
    name = name ? name : "product";
    c.part = dims_part(ds, "rows", product->type->dim[0], named_rows(cx, ds, name, rows),
                       intern_printf(cx, "rows of %s in this part", name));
    c.draft = graph_new(g->program, name, g);
    c.fate = NEW_ARRAY(cx->scratch, Fate, g->nodes.len + 1);
    c.in_body = NEW_ARRAY(cx->scratch, Node *, g->nodes.len + 1);
    c.in_body[product->id] = take_product(&c, product);
    c.fate[product->id] = FATE_INSIDE;
    c.outs.len = 0; /* the product itself stays inside */
    if (c.in_body[product->id] == NULL || !follow(&c, product)) {
        *fail = c.fail ? c.fail : product;
        return NULL;
    }
    return assemble(&c, product);
}
