/* lower.c -- from the checked tree to the tensor IR; the only file that sees both.
 *
 * In: a Checked. Out: a Program: its tables, and one graph per (entry, phase). Each Expr becomes a
 * few nodes: broadcasts are made explicit, products with a shared matrix are flattened to rank 2.
 * A loop is closed: what its body reads from outside becomes shared inputs, found before the body
 * is built. Views and index arithmetic are cheap, so a body rebuilds them instead of sharing them.
 */
#include "front/lower_parts.h"

#include "op/op.h"

#include <string.h>

typedef struct {
    Context *cx;
    Checked *c;
    Program *p;
    DType real;
    LowerRegions regions;
} Low;

/* One graph being built: the top of a phase, or the body of a loop. */
typedef struct Site Site;
struct Site {
    Low *low;
    Graph *g;
    const CheckedLoop *loop; /* NULL: the top */
    Site *up;
    Map *done; /* Expr -> Node */
};

static Node *lower(Site *x, Expr *e);

static const Type *lower_type(Low *low, const Type *t)
{
    if (!dtype_is_real(t->dtype) || t->dtype == low->real)
        return t;
    return type_of(low->p->dims, low->real, t->rank, t->dim);
}

static bool same_dims(const Type *t, int n, const Dim *const *dim)
{
    bool same = t->rank == n;
    for (int i = 0; same && i < n; i++)
        same = dim_same(t->dim[i], dim[i]);
    return same;
}

/* ---- where a value lives ------------------------------------------------------------------- */

static bool needs_loop(const Expr *e, const CheckedLoop *loop)
{
    for (const CheckedLoop *l = e->home; l; l = l->parent)
        if (l == loop)
            return true;
    return false;
}

/* Built anew in each body that reads it. */
static bool is_cheap(const Expr *e)
{
    switch (e->kind) {
    case EX_CONST:
    case EX_DIM:
    case EX_IOTA:
    case EX_MEAN:
    case EX_COUNTER:
    case EX_RESHAPE:
    case EX_TRANSPOSE:
    case EX_BROADCAST: return true;
    case EX_POINT:
    case EX_CAST: return e->deps == 0 && !e->home;
    default: return false;
    }
}

typedef VEC(Expr *) ExprList;

typedef struct {
    Low *low;
    const CheckedLoop *loop;
    Map *seen;
    ExprList shared, todo;
} Free;

/* Lists what the body of a loop reads from outside. An explicit stack: chains may be long. */
static void find_free(Free *f, Expr *root)
{
    Arena *arena = f->low->cx->arena;
    vec_push(arena, &f->todo, root);
    while (f->todo.len) {
        Expr *e = f->todo.at[--f->todo.len];
        if (map_get(f->seen, e))
            continue;
        map_set(f->seen, e, e);
        if (!needs_loop(e, f->loop) && !is_cheap(e)) {
            vec_push(arena, &f->shared, e);
            continue;
        }
        for (int i = e->n_in - 1; i >= 0; i--)
            vec_push(arena, &f->todo, e->in[i]);
        if (e->kind != EX_LOOP)
            continue;
        const CheckedLoop *l = e->loop;
        for (int i = 0; i < l->elems.len; i++)
            vec_push(arena, &f->todo, l->elems.at[i].source);
        for (int i = 0; i < l->yields.len; i++)
            vec_push(arena, &f->todo, l->yields.at[i]);
        for (int i = 0; i < l->carries.len; i++) {
            vec_push(arena, &f->todo, l->carries.at[i].init);
            vec_push(arena, &f->todo, l->carries.at[i].next);
        }
    }
}

/* ---- loops --------------------------------------------------------------------------------- */

static Node *body_arg(Site *body, ArgKind kind, const Type *t, Expr *stands_for)
{
    Node *arg = ir_arg(body->g, kind, lower_type(body->low, t), stands_for->span);
    if (stands_for->name)
        ir_named(arg, stands_for->name);
    map_set(body->done, stands_for, arg);
    return arg;
}

static Node *lower_loop(Site *x, Expr *e)
{
    Low *low = x->low;
    Arena *arena = low->cx->arena;
    CheckedLoop *l = e->loop;
    Free f = { .low = low, .loop = l, .seen = map_new(arena) };
    Site body = { low, graph_new(low->p, l->name, x->g), l, x, map_new(arena) };
    VEC(Node *) in = { 0 };
    Loop *loop = NEW(arena, Loop);
    *loop = (Loop){ .name = l->name,
                    .var = l->var,
                    .stack = l->stack,
                    .trip = l->trip,
                    .n_carry = l->carries.len,
                    .n_stack = l->yields.len,
                    .body = body.g };
    for (int i = 0; i < l->carries.len; i++)
        find_free(&f, l->carries.at[i].next);
    for (int i = 0; i < l->yields.len; i++)
        find_free(&f, l->yields.at[i]);

    for (int i = 0; i < l->carries.len; i++) {
        vec_push(arena, &in, lower(x, l->carries.at[i].init));
        body_arg(&body, ARG_CARRY, l->carries.at[i].arg->type, l->carries.at[i].arg);
    }
    for (int i = 0; i < l->elems.len; i++) {
        if (!map_get(f.seen, l->elems.at[i].arg))
            continue;
        vec_push(arena, &in, lower(x, l->elems.at[i].source));
        body_arg(&body, ARG_SLICE, l->elems.at[i].arg->type, l->elems.at[i].arg);
        loop->n_slice++;
    }
    loop->n_shared = f.shared.len;
    for (int i = 0; i < f.shared.len; i++) {
        vec_push(arena, &in, lower(x, f.shared.at[i]));
        body_arg(&body, ARG_SHARED, f.shared.at[i]->type, f.shared.at[i]);
    }
    body_arg(&body, ARG_ITER, l->iter->type, l->iter);
    for (int i = 0; i < l->carries.len; i++)
        ir_sink(body.g, SINK_RESULT, i, lower(&body, l->carries.at[i].next));
    for (int i = 0; i < l->yields.len; i++)
        ir_sink(body.g, SINK_RESULT, l->carries.len + i, lower(&body, l->yields.at[i]));
    return ir_loop(x->g, loop, in.len, in.at, e->span);
}

/* ---- broadcasting -------------------------------------------------------------------------- */

/* n in another shape; a reshape of a reshape is one. */
static Node *reshaped(Site *x, Node *n, int rank, const Dim *const *dim, Span at)
{
    while (n->op == OP_RESHAPE)
        n = n->in[0];
    return ir_reshape(x->g, n, rank, dim, at);
}

/* e as an operand of a result of type t, aligned at the end: a single number, or of t's shape.
   Literal-1 axes of e that are wider in t disappear first. */
static Node *spread(Site *x, Expr *e, const Type *t, Span at)
{
    const Dim *left[RANK_MAX];
    int n = 0, axes[RANK_MAX], skip = t->rank - e->type->rank;
    if (e->type->rank == 0 || same_dims(e->type, t->rank, t->dim))
        return lower(x, e);
    for (int i = 0; i < e->type->rank; i++)
        if (dim_same(e->type->dim[i], t->dim[skip + i])) {
            left[n] = e->type->dim[i];
            axes[n++] = skip + i;
        }
    Node *node = reshaped(x, lower(x, e), n, left, e->span);
    return n == 0 ? node : ir_broadcast(x->g, node, t->rank, t->dim, axes, at);
}

static Node *lower_broadcast(Site *x, Expr *e)
{
    const Type *t = e->type;
    Node *n = spread(x, e->in[0], t, e->span);
    return n->type->rank == t->rank ? n : ir_broadcast(x->g, n, t->rank, t->dim, NULL, e->span);
}

/* ---- products ------------------------------------------------------------------------------ */

/* The operand of a product without a transposition of its last two axes. */
static Expr *untransposed(Expr *e, bool *swapped)
{
    *swapped = false;
    if (e->kind != EX_TRANSPOSE)
        return e;
    int n = e->n_axes;
    for (int i = 0; i < n - 2; i++)
        if (e->axes[i] != i)
            return e;
    *swapped = e->axes[n - 1] == n - 2;
    return *swapped ? e->in[0] : e;
}

/* e with the leading axes lead in front of its own last two. */
static Node *with_leading(Site *x, Expr *e, const Type *lead, Span at)
{
    const Dim *dim[RANK_MAX];
    int rank = lead->rank;
    for (int i = 0; i < rank - 2; i++)
        dim[i] = lead->dim[i];
    dim[rank - 2] = e->type->dim[e->type->rank - 2];
    dim[rank - 1] = e->type->dim[e->type->rank - 1];
    return spread(x, e, type_of(x->low->p->dims, e->type->dtype, rank, dim), at);
}

/* [.., m, k] @ [k, n] with one matrix for all: rows of all leading axes together. */
static Node *shared_product(Site *x, Expr *e, Expr *a, Expr *b, bool tb)
{
    Dims *ds = x->low->p->dims;
    const Type *t = a->type;
    const Dim *rows = dim_const(ds, 1);
    for (int i = 0; i < t->rank - 1; i++)
        rows = dim_mul(ds, rows, t->dim[i]);
    const Dim *flat[2] = { rows, t->dim[t->rank - 1] };
    Node *left = reshaped(x, lower(x, a), 2, flat, e->span);
    Node *product = ir_matmul(x->g, left, lower(x, b), false, tb, e->span);
    if (e->name)
        ir_named(product, e->name);
    return ir_reshape(x->g, product, e->type->rank, e->type->dim, e->span);
}

static Node *lower_matmul(Site *x, Expr *e)
{
    bool ta, tb;
    Expr *a = untransposed(e->in[0], &ta), *b = untransposed(e->in[1], &tb);
    if (e->in[1]->type->rank == 2 && e->in[0]->type->rank > 2)
        return shared_product(x, e, e->in[0], b, tb);
    Node *left = with_leading(x, a, e->type, e->span);
    Node *right = with_leading(x, b, e->type, e->span);
    return ir_matmul(x->g, left, right, ta, tb, e->span);
}

/* ---- values -------------------------------------------------------------------------------- */

static Op op_named(const char *name)
{
    Op op = op_find(name);
    if (op == OP_COUNT)
        bug("the op table has no %s", name);
    return op;
}

static bool is_one(const Dim *d)
{
    int64_t v;
    return dim_literal(d, &v) && v == 1;
}

/* An operand of a pointwise op with result type t, of which only the axes `axes` are computed. */
static Node *thin_operand(Site *x, Expr *e, const Type *t, int n, const int *axes, const Dim **dim,
                          Span at)
{
    const Dim *left[RANK_MAX];
    int k = 0, to[RANK_MAX], skip = t->rank - e->type->rank;
    if (e->type->rank == 0)
        return lower(x, e);
    for (int i = 0; i < n; i++)
        if (axes[i] >= skip && !is_one(e->type->dim[axes[i] - skip])) {
            left[k] = e->type->dim[axes[i] - skip];
            to[k++] = i;
        }
    Node *node = reshaped(x, lower(x, e), k, left, e->span);
    return k == n || k == 0 ? node : ir_broadcast(x->g, node, n, dim, to, at);
}

/* Literal-1 axes of the result (of mean(x, keep: true), say) are left out while computing. */
static Node *lower_point(Site *x, Expr *e)
{
    const Type *t = e->type;
    const Dim *dim[RANK_MAX];
    int n = 0, axes[RANK_MAX];
    Node *in[3];
    for (int i = 0; i < t->rank; i++)
        if (!is_one(t->dim[i])) {
            dim[n] = t->dim[i];
            axes[n++] = i;
        }
    for (int i = 0; i < e->n_in; i++)
        in[i] = n == t->rank ? spread(x, e->in[i], t, e->span)
                             : thin_operand(x, e->in[i], t, n, axes, dim, e->span);
    Node *node = ir_node(x->g, op_named(e->op), e->n_in, in, NULL, e->span);
    if (e->name)
        ir_named(node, e->name);
    return ir_reshape(x->g, node, t->rank, t->dim, e->span);
}

static Node *lower_many(Site *x, Expr *e, Op op, const Attr *attr)
{
    Node **in = NEW_ARRAY(x->low->cx->arena, Node *, e->n_in + 1);
    for (int i = 0; i < e->n_in; i++)
        in[i] = lower(x, e->in[i]);
    return ir_node(x->g, op, e->n_in, in, attr, e->span);
}

static Node *lower_draw(Site *x, Expr *e)
{
    Node **in = NEW_ARRAY(x->low->cx->arena, Node *, e->n_in + 1);
    for (int i = 0; i < e->n_in; i++)
        in[i] = lower(x, e->in[i]);
    return ir_typed(x->g, op_named(e->op), lower_type(x->low, e->type), e->n_in, in,
                    &(Attr){ .stream = e->stream }, e->span);
}

/* What follows is in 32 bits, or may be in 16: told to the precision pass by an op. */
static Node *lower_region(Site *x, Expr *e)
{
    const LowerRegions regions = x->low->regions;
    Node *n = lower(x, e->in[0]);
    if (regions == LOWER_ALIKE)
        return n;
    const bool wide = e->index == REGION_FP32
                      || (e->index == REGION_PROGRAM && regions == LOWER_NARROW);
    return ir_unary(x->g, wide ? OP_WIDEN : OP_NARROW, n, e->span);
}

static Node *lower_new(Site *x, Expr *e)
{
    const Type *t = lower_type(x->low, e->type);
    Graph *g = x->g;
    switch (e->kind) {
    case EX_CONST: return ir_const(g, t->dtype, e->value, e->span);
    case EX_DIM: return ir_dim(g, t->dtype, e->dim, e->span);
    case EX_PARAM: return ir_param(g, e->index, e->span);
    case EX_INPUT: return ir_input(g, e->index, e->span);
    case EX_IOTA: return ir_iota(g, t->rank, t->dim, e->axes[0], e->span);
    case EX_MEAN: return ir_typed(g, OP_MEAN, t, 0, NULL, &(Attr){ .index = e->index }, e->span);
    case EX_COUNTER: return g->args.at[e->index];
    case EX_POINT: return lower_point(x, e);
    case EX_CAST: return ir_cast(g, lower(x, e->in[0]), t->dtype, e->span);
    case EX_REDUCE:
        return ir_reduce(g, op_named(e->op), lower(x, e->in[0]), e->n_axes, e->axes, e->span);
    case EX_MATMUL: return lower_matmul(x, e);
    case EX_RESHAPE: return reshaped(x, lower(x, e->in[0]), t->rank, t->dim, e->span);
    case EX_TRANSPOSE: return ir_transpose(g, lower(x, e->in[0]), e->axes, e->span);
    case EX_BROADCAST: return lower_broadcast(x, e);
    case EX_SLICE: return ir_slice(g, lower(x, e->in[0]), e->lo, t->dim, e->span);
    case EX_PAD: return ir_pad(g, lower(x, e->in[0]), e->lo, t->dim, e->span);
    case EX_CONCAT:
        return lower_many(x, e, OP_CONCAT, &(Attr){ .n_axes = 1, .axes = { e->axes[0] } });
    case EX_GATHER: return lower_many(x, e, OP_GATHER, NULL);
    case EX_DRAW: return lower_draw(x, e);
    case EX_CROSS_ENTROPY: return ir_result(lower_many(x, e, OP_CROSS_ENTROPY, NULL), 0);
    case EX_ATTENTION:
        return ir_result(
            lower_many(x, e, OP_ATTENTION, &(Attr){ .causal = e->causal, .value = e->value }), 0);
    case EX_LOOP: return lower_loop(x, e);
    case EX_REGION: return lower_region(x, e);
    case EX_RESULT: return ir_result(lower(x, e->in[0]), e->index);
    case EX_ARG: break;
    }
    bug("an argument of a loop was used outside of it");
}

static void lower_one(Site *x, Expr *e)
{
    Node *n = lower_new(x, e);
    if (e->name && e->kind != EX_LOOP)
        ir_named(n, e->name);
    map_set(x->done, e, n);
}

/* What e is made of in this graph, as far as it is not there yet. */
static void push_operands(Site *x, Expr *e, ExprList *todo)
{
    Arena *arena = x->low->cx->arena;
    bool swapped;
    for (int i = e->n_in - 1; i >= 0; i--) {
        Expr *in = e->kind == EX_MATMUL ? untransposed(e->in[i], &swapped) : e->in[i];
        if (!map_get(x->done, in))
            vec_push(arena, todo, in);
    }
    for (int i = 0; e->kind == EX_LOOP && i < e->loop->carries.len; i++)
        if (!map_get(x->done, e->loop->carries.at[i].init))
            vec_push(arena, todo, e->loop->carries.at[i].init);
}

/* Operands first; an explicit stack, because chains may be long. */
static Node *lower(Site *x, Expr *root)
{
    Node *n = map_get(x->done, root);
    ExprList todo = { 0 };
    if (n)
        return n;
    vec_push(x->low->cx->arena, &todo, root);
    while (todo.len) {
        Expr *e = todo.at[todo.len - 1];
        int before = todo.len;
        if (!map_get(x->done, e))
            push_operands(x, e, &todo);
        if (todo.len > before)
            continue;
        todo.len--;
        if (!map_get(x->done, e))
            lower_one(x, e);
    }
    return map_get(x->done, root);
}

/* ---- graphs -------------------------------------------------------------------------------- */

static Site site_new(Low *low, const char *name)
{
    return (
        Site){ .low = low, .g = graph_new(low->p, name, NULL), .done = map_new(low->cx->arena) };
}

/* The sums of the slots; in training only of those with a weight in the loss. */
static Graph *lower_sums(Low *low, const CheckedPhase *phase, const char *name)
{
    Site x = site_new(low, name);
    for (int i = 0; i < phase->sums.len; i++)
        if (phase->sums.at[i] && (!phase->training || low->c->means.at[i].weight != 0))
            ir_sink(x.g, SINK_SUM, i, lower(&x, phase->sums.at[i]));
    return x.g;
}

static Graph *lower_counts(Low *low, const CheckedPhase *phase)
{
    Site x = site_new(low, "count");
    for (int i = 0; i < phase->counts.len; i++)
        if (phase->counts.at[i])
            ir_sink(x.g, SINK_COUNT, i, lower(&x, phase->counts.at[i]));
    return x.g->sinks.len ? x.g : NULL;
}

/* Outputs are real: an index or a truth value becomes a number. */
static Node *lower_output(Site *x, Expr *e)
{
    Node *n = lower(x, e);
    return dtype_is_real(n->type->dtype) ? n : ir_cast(x->g, n, x->low->real, e->span);
}

static void lower_graphs(Low *low)
{
    Checked *c = low->c;
    Program *p = low->p;
    const CheckedPhase *eval = &c->phase[0], *train = &c->phase[1];
    if (c->has_loss)
        p->train_graph = lower_sums(low, train, "train");
    p->eval_graph = lower_sums(low, eval, "eval");
    p->count_graph = lower_counts(low, c->has_loss ? train : eval);
    if (eval->outputs.len) {
        Site x = site_new(low, "output");
        for (int i = 0; i < eval->outputs.len; i++)
            ir_sink(x.g, SINK_OUTPUT, i, lower_output(&x, eval->outputs.at[i]));
        p->output_graph = x.g;
    }
    for (int i = 0; i < eval->metrics.len; i++) {
        Site x = site_new(low, c->metrics.at[i].name);
        Metric m = { c->metrics.at[i].name, x.g, c->metrics.at[i].span };
        ir_sink(x.g, SINK_RESULT, 0, lower(&x, eval->metrics.at[i]));
        vec_push(low->cx->arena, &p->metrics, m);
    }
}

/* ---- tables -------------------------------------------------------------------------------- */

/* Elements of one repetition of a group: its parameters and the groups inside it. */
static const Dim *group_stride(Low *low, int group)
{
    Dims *ds = low->p->dims;
    Checked *c = low->c;
    const Dim *sum = dim_const(ds, 0);
    for (int i = 0; i < c->params.len; i++)
        if (c->params.at[i].group == group)
            sum = dim_add(ds, sum, type_elems(ds, c->params.at[i].type));
    for (int i = 0; i < c->groups.len; i++)
        if (c->groups.at[i].parent == group)
            sum = dim_add(ds, sum, dim_mul(ds, c->groups.at[i].count, group_stride(low, i)));
    return sum;
}

/* "enc.*.h" -> "P_enc_h_STRIDE" */
static const Symbol *stride_symbol(Low *low, const CheckedGroup *g, const Dim *stride)
{
    Text t = text_new(low->cx->arena);
    int64_t value = 0;
    text_put(&t, "P_");
    for (const char *c = g->path; *c; c++) {
        if (c[0] == '.' && c[1] == '*')
            c++;
        else
            text_add(&t, "%c", *c == '.' ? '_' : *c);
    }
    text_put(&t, "_STRIDE");
    const char *name = intern(low->cx, t.at);
    while (dims_find(low->p->dims, name))
        name = intern_printf(low->cx, "%s_", name);
    dim_value(stride, &value);
    return dims_symbol(low->p->dims, name, SYM_CONST, value, g->span);
}

static void lower_params(Low *low)
{
    static const Role roles[] = { [SEM_WEIGHT] = ROLE_WEIGHT,
                                  [SEM_BIAS] = ROLE_BIAS,
                                  [SEM_GAIN] = ROLE_GAIN,
                                  [SEM_EMBEDDING] = ROLE_EMBEDDING,
                                  [SEM_STATE] = ROLE_STATE };
    static const InitKind inits[] = { [SEM_INIT_ZEROS] = INIT_ZEROS,
                                      [SEM_INIT_ONES] = INIT_ONES,
                                      [SEM_INIT_CONST] = INIT_CONST,
                                      [SEM_INIT_NORMAL] = INIT_NORMAL,
                                      [SEM_INIT_UNIFORM] = INIT_UNIFORM };
    Checked *c = low->c;
    Arena *a = low->cx->arena;
    for (int i = 0; i < c->groups.len; i++) {
        const CheckedGroup *g = &c->groups.at[i];
        ParamGroup to = { .name = g->name,
                          .layer = g->layer,
                          .parent = g->parent,
                          .count = g->count,
                          .span = g->span };
        to.stride = group_stride(low, i);
        to.stride_sym = stride_symbol(low, g, to.stride);
        vec_push(a, &low->p->groups, to);
    }
    for (int i = 0; i < c->params.len; i++) {
        const CheckedParam *p = &c->params.at[i];
        Param to = { .path = p->path,
                     .name = p->name,
                     .type = lower_type(low, p->type),
                     .stacked = lower_type(low, p->stacked),
                     .group = p->group,
                     .role = roles[p->role],
                     .init = inits[p->init],
                     .init_value = p->init_value,
                     .trained = p->used && p->role != SEM_STATE,
                     .updates = p->updates,
                     .excepted = p->excepted,
                     .fit_input = p->fit_input,
                     .fit_kind = p->fit_kind,
                     .span = p->span };
        to.decay = to.role == ROLE_WEIGHT || to.role == ROLE_EMBEDDING;
        to.fitted = p->fit_kind ? to.type : NULL;
        vec_push(a, &low->p->params, to);
    }
}

static void lower_tables(Low *low)
{
    static const int rels[] = { [SEM_LE] = REL_LE, [SEM_LT] = REL_LT, [SEM_GE] = REL_GE,
                                [SEM_GT] = REL_GT, [SEM_EQ] = REL_EQ, [SEM_DIVIDES] = REL_DIVIDES };
    Checked *c = low->c;
    Arena *a = low->cx->arena;
    for (int i = 0; i < c->inputs.len; i++) {
        const CheckedInput *in = &c->inputs.at[i];
        Input to = { .name = in->name,
                     .type = lower_type(low, in->type),
                     .ranged = in->lo != NULL,
                     .lo = in->lo,
                     .hi = in->hi,
                     .has_ignore = in->has_ignore,
                     .ignore = in->ignore,
                     .span = in->span };
        vec_push(a, &low->p->inputs, to);
    }
    for (int i = 0; i < c->means.len; i++) {
        const CheckedMean *m = &c->means.at[i];
        MeanSlot to = { m->name, m->text, m->weight, m->count, m->span };
        vec_push(a, &low->p->means, to);
    }
    for (int i = 0; i < c->outputs.len; i++) {
        const Type *t = c->phase[0].outputs.at[i]->type;
        t = type_of(low->p->dims, low->real, t->rank, t->dim);
        Output to = { c->outputs.at[i].name, t, c->outputs.at[i].span };
        vec_push(a, &low->p->outputs, to);
    }
    for (int i = 0; i < c->consts.len; i++) {
        const CheckedConst *k = &c->consts.at[i];
        vec_push(a, &low->p->fixed, ((FixedValue){ k->name, k->value, k->span }));
    }
    for (int i = 0; i < c->constraints.len; i++) {
        const CheckedConstraint *k = &c->constraints.at[i];
        Constraint to = { .left = k->left, .right = k->right, .span = k->span, .text = k->text };
        to.rel = rels[k->rel];
        vec_push(a, &low->p->constraints, to);
    }
}

static void lower_data(Low *low)
{
    static const int
        kinds[] = { [SEM_WINDOW] = MAP_WINDOW, [SEM_COL] = MAP_COL, [SEM_COLS] = MAP_COLS };
    const CheckedTrain *t = &low->c->train;
    DataSource *d = &low->p->train.data;
    d->reader = t->reader;
    d->path = t->path;
    d->split = t->split;
    d->val_path = t->val_path;
    d->header = t->header;
    d->header_set = t->header_set;
    d->vocab = t->vocab;
    d->span = t->data_span;
    for (int i = 0; i < t->maps.len; i++) {
        const CheckedMap *m = &t->maps.at[i];
        DataMap to = { .input = m->input,
                       .lo = m->lo,
                       .hi = m->hi,
                       .column = m->column,
                       .span = m->span };
        to.kind = kinds[m->kind];
        vec_push(low->cx->arena, &d->maps, to);
    }
}

/* Numbers are computed in double, and so is the graph. */
static void lower_rule(Low *low)
{
    const CheckedRule *r = &low->c->train.rule;
    TrainSettings *s = &low->p->train;
    Low wide = *low;
    wide.real = DT_F64;
    Site x = site_new(&wide, "update");
    if (!r->name)
        return;
    const int n = SEM_RULE_STATES + r->state.len + low->c->train.hypers.len;
    for (int i = 0; i < n; i++)
        ir_arg(x.g, ARG_SHARED, type_of(low->p->dims, DT_F64, 0, NULL), r->span);
    ir_sink(x.g, SINK_RESULT, 0, lower(&x, r->p));
    for (int i = 0; i < r->state.len; i++) {
        vec_push(low->cx->arena, &s->states, r->state.at[i]);
        ir_sink(x.g, SINK_RESULT, i + 1, lower(&x, r->next.at[i]));
    }
    s->rule = (UpdateRule){ x.g, r->name, r->text, r->span };
}

static void lower_train(Low *low)
{
    const CheckedTrain *t = &low->c->train;
    TrainSettings *s = &low->p->train;
    s->present = t->present;
    s->batch = t->batch;
    s->accumulate = t->accumulate;
    static const OptKind kinds[] = { [SEM_RULE] = OPT_RULE,
                                     [SEM_LAMB] = OPT_LAMB,
                                     [SEM_ADAFACTOR] = OPT_ADAFACTOR,
                                     [SEM_MUON] = OPT_MUON };
    s->optimizer = kinds[t->optimizer];
    for (int i = 0; i < t->hypers.len; i++) {
        const CheckedHyper *h = &t->hypers.at[i];
        vec_push(low->cx->arena, &s->hypers, ((Hyper){ h->name, h->value, h->lo, h->hi }));
    }
    s->weight_decay = t->weight_decay;
    s->nesterov = t->nesterov;
    s->match_rms = t->match_rms;
    s->decays = t->optimizer != SEM_RULE || t->rule.decays;
    lower_rule(low);
    lower_schedule(t, s);
    if (t->schedule == SEM_FORMULA) {
        Low wide = *low; /* rates are computed in double */
        wide.real = DT_F64;
        Site x = site_new(&wide, "rate");
        for (int i = 0; i < 2; i++) /* step, steps */
            ir_arg(x.g, ARG_SHARED, type_of(low->p->dims, DT_F64, 0, NULL), t->rate_span);
        ir_sink(x.g, SINK_RESULT, 0, lower(&x, t->rate));
        s->rate = x.g;
        lower_check_rate(low->cx, t, x.g);
    }
    s->clip = t->clip;
    s->clip_value = t->clip_value;
    s->ema = t->ema;
    const CheckedNonfinite *n = &t->nonfinite;
    s->nonfinite = (NonfiniteSettings){ n->policy,   n->max_skips, n->scale_set, n->scale,
                                        n->interval, n->growth,    n->backoff };
    for (int i = 0; i < t->updates.len; i++) {
        const CheckedUpdate *u = &t->updates.at[i];
        vec_push(low->cx->arena, &s->updates,
                 ((UpdateGroup){ u->names, u->rate, u->decay, u->span }));
    }
    s->steps = t->steps;
    s->eval_every = t->eval_every;
    s->save_every = t->save_every;
    s->log_every = t->log_every;
    s->seed = (uint64_t)t->seed;
    s->keep = t->keep;
    s->out = t->out;
    s->span = t->span;
    lower_data(low);
}

Program *lower_program(Context *cx, Checked *c, DType real, LowerRegions regions)
{
    Low low = { cx, c, program_new(cx), real, regions };
    low.p->wide = regions == LOWER_NARROW;
    low.p->dims = c->dims;
    low.p->name = c->name;
    low.p->file = c->file;
    low.p->real = real;
    lower_params(&low);
    lower_tables(&low);
    lower_train(&low);
    lower_graphs(&low);
    return low.p;
}
