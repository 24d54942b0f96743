/* random.c -- random graphs: any op over any value made before, loops in loops, sinks of all kinds.
 *
 * In: a seed. Out: a graph whose values stay small, so that the evaluator and the kernels agree to
 * rounding. The idea: a pool of values; each step takes some of it and makes one more.
 */
#include "random.h"

#include "op/op.h"

enum { POOL_MAX = 96, STEPS = 14, STEPS_IN_LOOP = 7 };

typedef struct {
    Program *p;
    Dims *ds;
    uint64_t *state;
    Graph *g;
    Node *pool[POOL_MAX];
    int n, depth;
    Node *iter[4];
    const Dim *dim[6]; /* B T C H D 2 */
    int *draws;
} Maker;

/* ---- choices -------------------------------------------------------------------------------- */

static int pick(Maker *m, int n)
{
    uint64_t z = *m->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (int)((z ^ (z >> 31)) % (uint64_t)n);
}

static Span nowhere(void) { return (Span){ 0, 0, 0 }; }

static Node *keep(Maker *m, Node *n)
{
    if (m->n < POOL_MAX)
        m->pool[m->n++] = n;
    return n;
}

/* A value of that dtype and rank (-1 = any); newer ones more often. NULL if none was found. */
static Node *any(Maker *m, DType t, int least_rank)
{
    for (int tries = 0; tries < 40; tries++) {
        int back = pick(m, 2) ? 6 : m->n;
        Node *n = m->pool[m->n - 1 - pick(m, back < m->n ? back : m->n)];
        if (n->type->dtype == t && n->type->rank >= least_rank)
            return n;
    }
    return NULL;
}

static Node *any_real(Maker *m, int least_rank) { return any(m, DT_F64, least_rank); }

/* A value of the type wanted, made from another if need be. */
static Node *of_type(Maker *m, const Type *t)
{
    int start = pick(m, m->n);
    for (int i = 0; i < m->n; i++) {
        Node *n = m->pool[(start + i) % m->n];
        if (type_same(n->type, t))
            return n;
    }
    Node *zero = ir_const(m->g, t->dtype, pick(m, 2), nowhere());
    if (t->rank == 0)
        return zero;
    return ir_broadcast(m->g, zero, t->rank, t->dim, NULL, nowhere());
}

/* ---- one op --------------------------------------------------------------------------------- */

static Node *small(Maker *m, Node *n) { return ir_unary(m->g, OP_TANH, n, nowhere()); }

static Node *make_unary(Maker *m, Node *x)
{
    static const Op ops[] = { OP_TANH, OP_NEG, OP_ABS, OP_SIGMOID, OP_SIN, OP_STOP, OP_COS };
    return ir_unary(m->g, ops[pick(m, 7)], x, nowhere());
}

static Node *make_binary(Maker *m, Node *x)
{
    static const Op ops[] = { OP_ADD, OP_SUB, OP_MUL, OP_MIN, OP_MAX, OP_ADD };
    Node *y = pick(m, 4) ? of_type(m, x->type) : ir_const(m->g, DT_F64, 0.5, nowhere());
    Node *r = ir_binary(m->g, ops[pick(m, 6)], pick(m, 2) ? x : y, x, nowhere());
    r = r->type->rank == x->type->rank ? r : x;
    return pick(m, 2) ? r : ir_binary(m->g, ops[pick(m, 6)], r, y, nowhere());
}

static Node *make_where(Maker *m, Node *x)
{
    Node *y = of_type(m, x->type);
    Node *c = ir_binary(m->g, pick(m, 2) ? OP_LT : OP_LE, x, y, nowhere());
    if (x->type->rank && pick(m, 2)) {
        Node *i = ir_iota(m->g, x->type->rank, x->type->dim, pick(m, x->type->rank), nowhere());
        c = ir_binary(m->g, OP_LE, ir_const(m->g, DT_I32, 1, nowhere()), i, nowhere());
    }
    return ir_where(m->g, c, x, y, nowhere());
}

static Node *make_reduce(Maker *m, Node *x)
{
    static const Op ops[] = { OP_SUM, OP_SUM, OP_SUM, OP_AMAX, OP_AMIN };
    int axes[RANK_MAX], n = 0;
    if (x->type->rank < 1)
        return x;
    for (int k = 0; k < x->type->rank; k++)
        if (pick(m, 2))
            axes[n++] = k;
    if (n == 0)
        axes[n++] = pick(m, x->type->rank);
    Node *r = ir_reduce(m->g, ops[pick(m, 5)], x, n, axes, nowhere());
    bool exact = x->op == OP_INPUT || x->op == OP_PARAM; /* rounding decides no place */
    if (n == 1 && exact && pick(m, 3)) {
        r = ir_reduce(m->g, pick(m, 2) ? OP_ARGMAX : OP_ARGMIN, x, n, axes, nowhere());
        return ir_binary(m->g, OP_MUL, ir_cast(m->g, r, DT_F64, nowhere()),
                         ir_const(m->g, DT_F64, 0.125, nowhere()), nowhere());
    }
    if (r->op != OP_SUM)
        return r;
    r = ir_binary(m->g, OP_MUL, r, ir_const(m->g, DT_F64, 0.25, nowhere()), nowhere());
    return pick(m, 2) && r->type->rank ? small(m, r) : r;
}

/* x / (1 + sum of |x|) along the last axis: several phases. */
static Node *make_row(Maker *m, Node *x)
{
    int axis = x->type->rank - 1, axes[RANK_MAX];
    if (axis < 0)
        return x;
    for (int k = 0; k < axis; k++)
        axes[k] = k;
    Node *a = ir_unary(m->g, pick(m, 2) ? OP_ABS : OP_EXP, x, nowhere());
    Node *s = ir_reduce(m->g, OP_SUM, a, 1, &axis, nowhere());
    s = ir_binary(m->g, OP_ADD, s, ir_const(m->g, DT_F64, 1, nowhere()), nowhere());
    Node *b = ir_broadcast(m->g, s, axis + 1, x->type->dim, axes, nowhere());
    return ir_binary(m->g, OP_DIV, pick(m, 2) ? a : x, b, nowhere());
}

static Node *make_transpose(Maker *m, Node *x)
{
    int axes[RANK_MAX], r = x->type->rank;
    for (int k = 0; k < r; k++)
        axes[k] = k;
    for (int k = r - 1; k > 0; k--) {
        int j = pick(m, k + 1), swap = axes[k];
        axes[k] = axes[j];
        axes[j] = swap;
    }
    return r > 1 ? ir_transpose(m->g, x, axes, nowhere()) : x;
}

/* Merges two neighbours, or splits C into H and D, or adds an axis of one. */
static Node *make_reshape(Maker *m, Node *x)
{
    const Dim *dim[RANK_MAX + 1];
    int r = x->type->rank, n = 0, at = r ? pick(m, r) : 0, how = pick(m, 4);
    for (int k = 0; k < r; k++) {
        if (how < 2 && k == at && k + 1 < r) {
            dim[n++] = dim_mul(m->ds, x->type->dim[k], x->type->dim[k + 1]);
            k++;
        } else if (how == 2 && dim_same(x->type->dim[k], m->dim[2]) && r < 5) {
            dim[n++] = m->dim[3];
            dim[n++] = m->dim[4];
            how = 3;
        } else {
            dim[n++] = x->type->dim[k];
        }
    }
    if (how == 3 && r < 4 && pick(m, 3) == 0)
        dim[n++] = dim_const(m->ds, 1);
    return ir_reshape(m->g, x, n, dim, nowhere());
}

static Node *make_broadcast(Maker *m, Node *x)
{
    const Dim *dim[RANK_MAX];
    int axes[RANK_MAX], r = x->type->rank, at = pick(m, r + 1), n = 0;
    if (r > 3)
        return x;
    for (int k = 0; k <= r; k++) {
        if (k == at)
            dim[n++] = m->dim[pick(m, 6)];
        if (k < r) {
            axes[k] = n;
            dim[n++] = x->type->dim[k];
        }
    }
    return ir_broadcast(m->g, x, n, dim, axes, nowhere());
}

/* A box of two along one axis, and perhaps zeros around it again. */
static Node *make_box(Maker *m, Node *x)
{
    const Dim *lo[RANK_MAX], *size[RANK_MAX];
    int r = x->type->rank, at = r ? pick(m, r) : 0;
    if (r == 0)
        return x;
    for (int k = 0; k < r; k++) {
        lo[k] = dim_const(m->ds, 0);
        size[k] = x->type->dim[k];
    }
    if (pick(m, 3)) {
        int64_t all;
        if (dim_value(x->type->dim[at], &all) && all < 2)
            return x;
        lo[at] = dim_const(m->ds, pick(m, 2) && (!dim_value(x->type->dim[at], &all) || all > 2));
        size[at] = dim_const(m->ds, 2);
        return ir_slice(m->g, x, lo, size, nowhere());
    }
    lo[at] = dim_const(m->ds, pick(m, 3));
    size[at] = dim_add(m->ds, dim_add(m->ds, size[at], lo[at]), dim_const(m->ds, pick(m, 2)));
    return ir_pad(m->g, x, lo, size, nowhere());
}

static Node *make_concat(Maker *m, Node *x)
{
    Node *in[3] = { x, of_type(m, x->type), pick(m, 2) ? x : small(m, x) };
    return x->type->rank ? ir_concat(m->g, 2 + pick(m, 2), in, pick(m, x->type->rank), nowhere())
                         : x;
}

static Node *make_product(Maker *m, Node *x)
{
    Node *y = any_real(m, 2);
    int r = x->type->rank;
    if (!y || r < 2)
        return x;
    for (int tries = 0; tries < 8; tries++) {
        bool ta = pick(m, 2), tb = pick(m, 2);
        const Dim *inner = x->type->dim[ta ? r - 2 : r - 1];
        bool fits = y->type->rank == r && dim_same(inner, y->type->dim[tb ? r - 1 : r - 2]);
        for (int k = 0; fits && k < r - 2; k++)
            fits = dim_same(x->type->dim[k], y->type->dim[k]);
        if (fits)
            return small(m, ir_matmul(m->g, x, y, ta, tb, nowhere()));
        if (tries == 5)
            y = x;
        else if (tries == 3)
            y = make_transpose(m, y);
    }
    return x;
}

/* h = x @ w (+ v @ w) + b over flat rows, with the parameters 0 [C,C] and 1 [C]. */
static Node *make_linear(Maker *m, Node *x)
{
    const Type *t = x->type;
    if (m->depth > 0 || t->rank < 1 || !dim_same(t->dim[t->rank - 1], m->dim[2]))
        return x;
    const Dim *rows = dim_const(m->ds, 1);
    for (int k = 0; k + 1 < t->rank; k++)
        rows = dim_mul(m->ds, rows, t->dim[k]);
    const Dim *dim[2] = { rows, m->dim[2] };
    int last = t->rank - 1;
    Node *w = ir_param(m->g, 0, nowhere());
    Node *f = ir_reshape(m->g, x, 2, dim, nowhere());
    Node *h = ir_reshape(m->g, ir_matmul(m->g, f, w, false, pick(m, 2), nowhere()), t->rank, t->dim,
                         nowhere());
    if (pick(m, 3) == 0) {
        Node *v = ir_reshape(m->g, of_type(m, t), 2, dim, nowhere());
        Node *k = ir_matmul(m->g, v, w, false, true, nowhere());
        h = ir_binary(m->g, OP_ADD, h, ir_reshape(m->g, k, t->rank, t->dim, nowhere()), nowhere());
    }
    if (pick(m, 3))
        h = ir_binary(
            m->g, OP_ADD, h,
            ir_broadcast(m->g, ir_param(m->g, 1, nowhere()), t->rank, t->dim, &last, nowhere()),
            nowhere());
    return pick(m, 2) ? small(m, h) : keep(m, h);
}

static bool is_two(const Dim *d)
{
    int64_t v;
    return dim_value(d, &v) && v == 2;
}

static Node *make_index(Maker *m, Node *x)
{
    Node *ids = any(m, DT_I32, 0);
    int r = x->type->rank;
    if (!ids || r < 1 || r + ids->type->rank > 5)
        return x;
    if (is_two(x->type->dim[0]) && pick(m, 2))
        return ir_gather(m->g, x, ids, nowhere());
    const Dim *lo[RANK_MAX], *size[RANK_MAX];
    for (int k = 0; k < r; k++) {
        lo[k] = dim_const(m->ds, 0);
        size[k] = k ? x->type->dim[k] : dim_const(m->ds, 2);
    }
    int64_t all;
    if (dim_value(x->type->dim[0], &all) && all < 2)
        return x;
    Node *table = ir_slice(m->g, x, lo, size, nowhere());
    Node *rows = ir_gather(m->g, table, ids, nowhere());
    if (pick(m, 2) || ids->type->rank == 0)
        return rows;
    return small(m, ir_scatter(m->g, ids, rows, dim_const(m->ds, 2 + pick(m, 2)), nowhere()));
}

static Node *make_draw(Maker *m, Node *x)
{
    char name[32];
    for (int k = 0, follow = 0; k < x->type->rank; k++) /* what check_draw refuses */
        if (dim_has_kind(x->type->dim[k], SYM_BATCH)
            && (follow++ || !dim_per_sample(m->ds, x->type->dim[k])))
            return x;
    snprintf(name, sizeof name, "draw.%d", (*m->draws)++);
    Attr attr = { .stream = intern(m->p->cx, name) };
    Node *u = ir_typed(m->g, pick(m, 3) ? OP_UNIFORM : OP_NORMAL, x->type, m->depth, m->iter, &attr,
                       nowhere());
    Node *half = ir_const(m->g, DT_F64, 0.5, nowhere());
    Node *zero = ir_const(m->g, DT_F64, 0, nowhere());
    return ir_where(m->g, ir_binary(m->g, OP_LT, u, half, nowhere()), x, zero, nowhere());
}

/* The type of k and v that have one head for all of q; t, where their number is not known. */
static const Type *one_head(Maker *m, const Type *t)
{
    Dims *ds = m->p->dims;
    const Dim *dim[RANK_MAX], *one = dim_const(ds, 1);
    if (t->rank < 3 || !dim_ratio(ds, t->dim[t->rank - 3], one))
        return t;
    for (int i = 0; i < t->rank; i++)
        dim[i] = i == t->rank - 3 ? one : t->dim[i];
    return type_of(ds, t->dtype, t->rank, dim);
}

static Node *make_attention(Maker *m, Node *x)
{
    if (x->type->rank < 2 || x->type->rank > 4)
        return x;
    const Type *of_keys = pick(m, 2) ? x->type : one_head(m, x->type);
    Node *in[3] = { x, of_type(m, of_keys), of_type(m, of_keys) };
    Node *a = ir_node(m->g, OP_ATTENTION, 3, in, &(Attr){ .causal = pick(m, 2) }, nowhere());
    Node *lse = keep(m, ir_result(a, 1)), *y = ir_result(a, 0);
    if (pick(m, 2))
        return y;
    Node *back[6] = { x, in[1], in[2], y, lse, of_type(m, x->type) };
    Node *g = ir_node(m->g, OP_ATTENTION_GRAD, 6, back, &a->attr, nowhere());
    Node *d_q = keep(m, ir_result(g, pick(m, 3)));
    return of_keys != x->type || pick(m, 2)
               ? d_q
               : ir_concat(m->g, 3, (Node *[]){ ir_result(g, 0), ir_result(g, 1), ir_result(g, 2) },
                           pick(m, x->type->rank), nowhere());
}

static void make_steps(Maker *m, int steps);

static Node *make_loop(Maker *m)
{
    Loop *l = NEW(m->p->cx->arena, Loop);
    Node *in[8];
    Maker b = *m;
    *l = (Loop){ .name = "scan", .trip = m->dim[1], .reverse = pick(m, 2) };
    b.g = l->body = graph_new(m->p, "body", m->g);
    b.n = 0;
    int n = 0;
    for (int i = 1 + pick(m, 2); i > 0; i--) {
        Node *x = any_real(m, 0);
        l->n_carry += x != NULL;
        if (x)
            in[n++] = x;
    }
    for (int i = 0; i < m->n && l->n_slice < 2; i++) {
        Node *x = m->pool[i];
        if (x->type->rank && dim_same(x->type->dim[0], l->trip) && pick(m, 2)) {
            in[n++] = x;
            l->n_slice++;
        }
    }
    for (int i = pick(m, 3); i > 0; i--) {
        in[n++] = m->pool[pick(m, m->n)];
        l->n_shared++;
    }
    for (int i = 0; i < n; i++) {
        bool slice = i >= l->n_carry && i < l->n_carry + l->n_slice;
        const Type *t = in[i]->type;
        if (slice)
            t = type_of(m->ds, t->dtype, t->rank - 1, t->dim + 1);
        keep(&b, ir_arg(b.g,
                        i < l->n_carry ? ARG_CARRY
                        : slice        ? ARG_SLICE
                                       : ARG_SHARED,
                        t, nowhere()));
    }
    int args = b.n;
    for (int i = 0; i < m->depth; i++) /* iterations of loops around are shared */
        b.iter[i] = NULL;
    b.iter[m->depth] = ir_arg(b.g, ARG_ITER, type_of(m->ds, DT_I32, 0, NULL), nowhere());
    b.depth = m->depth + 1;
    make_steps(&b, STEPS_IN_LOOP);
    for (int k = 0; k < l->n_carry; k++) {
        Node *arg = b.pool[k], *next = of_type(&b, arg->type);
        for (int tries = 0; tries < 5 && pick(m, 2); tries++)
            next = of_type(&b, arg->type);
        if (pick(m, 3) == 0)
            next = ir_binary(b.g, OP_ADD, arg, small(&b, of_type(&b, arg->type)), nowhere());
        ir_sink(b.g, SINK_RESULT, k, next);
    }
    for (int k = pick(m, 3); k >= 0; k--) {
        Node *x = pick(m, 4) ? b.pool[b.n - 1 - pick(m, b.n - args + 1)] : b.pool[pick(m, args)];
        if (x->type->dtype == DT_F64 && x->type->rank < 4)
            ir_sink(b.g, SINK_RESULT, l->n_carry + l->n_stack++, x);
    }
    if (l->n_carry + l->n_stack == 0)
        return any_real(m, 0);
    Node *loop = ir_loop(m->g, l, n, in, nowhere());
    Node *r = NULL;
    for (int k = 0; k < loop->n_out; k++)
        if (pick(m, 3) || !r) {
            r = ir_result(loop, k);
            r = keep(m, pick(m, 3) ? r : small(m, r));
        }
    return r;
}

static void make_steps(Maker *m, int steps)
{
    static Node *(*const make[])(Maker *, Node *) = {
        make_unary,  make_binary,    make_binary,  make_where,   make_reduce,    make_reduce,
        make_row,    make_transpose, make_reshape, make_reshape, make_broadcast, make_box,
        make_concat, make_product,   make_linear,  make_index,   make_draw,      make_attention,
    };
    for (int i = 0; i < steps; i++) {
        int which = pick(m, 20);
        Node *x = any_real(m, pick(m, 2));
        if (!x)
            continue;
        bool draws = which == 16 && m->depth > 1; /* their iterations are not at hand */
        Node *made = which < 18 && !draws ? make[which](m, x) : m->depth < 2 ? make_loop(m) : x;
        if (made && made->type->rank <= 5)
            keep(m, made);
    }
}

/* ---- the program ---------------------------------------------------------------------------- */

static void add_param(Maker *m, const char *name, int rank, const Dim *const *dim)
{
    const Type *t = type_of(m->ds, DT_F64, rank, dim);
    Param p = { .path = name, .name = name, .type = t, .stacked = t, .group = -1 };
    vec_push(m->p->cx->arena, &m->p->params, p);
}

static void add_inputs(Maker *m)
{
    static const char shapes[][4] = { { 0, 1, 2, -1 }, { 1, 0, 2, -1 }, { 0, 1, -1, 0 },
                                      { 2, 2, -1, 0 }, { 1, 2, -1, 0 }, { 2, -1, 0, 0 } };
    for (int i = 0; i < 6; i++) {
        const Dim *dim[3];
        int rank = 0;
        for (; rank < 3 && shapes[i][rank] >= 0; rank++)
            dim[rank] = m->dim[(int)shapes[i][rank]];
        Input in = { .name = intern_printf(m->p->cx, "x%d", i),
                     .type = type_of(m->ds, DT_F64, rank, dim) };
        vec_push(m->p->cx->arena, &m->p->inputs, in);
        keep(m, ir_input(m->g, i, nowhere()));
    }
    Input ids = { .name = "ids",
                  .type = type_of(m->ds, DT_I32, 2, m->dim),
                  .ranged = true,
                  .lo = dim_const(m->ds, 0),
                  .hi = dim_const(m->ds, 2) };
    vec_push(m->p->cx->arena, &m->p->inputs, ids);
    keep(m, ir_input(m->g, 6, nowhere()));
    keep(m, ir_param(m->g, 0, nowhere()));
    keep(m, ir_param(m->g, 1, nowhere()));
}

static void add_sinks(Maker *m)
{
    MeanSlot slot = { .name = "loss", .weight = 1 };
    vec_push(m->p->cx->arena, &m->p->means, slot);
    for (int i = 0, k = 0; i < 5; i++)
        ir_sink(m->g, SINK_RESULT, k++, m->pool[m->n - 1 - pick(m, i < 3 ? 4 : m->n)]);
    for (int i = 0; i < 2; i++) {
        Node *x = m->pool[m->n - 1 - pick(m, 5)];
        int axes[RANK_MAX] = { 0, 1, 2, 3, 4, 5, 6, 7 };
        if (x->type->dtype == DT_F64)
            ir_sink(m->g, SINK_SUM, 0,
                    x->type->rank ? ir_reduce(m->g, OP_SUM, x, x->type->rank, axes, nowhere()) : x);
    }
    for (int i = 0; i < m->n; i++)
        for (int p = 0; p < m->p->params.len; p++)
            if (type_same(m->pool[i]->type, m->p->params.at[p].stacked) && pick(m, 2))
                ir_sink(m->g, SINK_GRAD, p, m->pool[i]);
}

Program *random_program(Context *cx, uint64_t seed)
{
    Maker m = { .p = program_new(cx), .state = NEW(cx->arena, uint64_t) };
    m.ds = m.p->dims;
    m.p->real = DT_F64;
    m.draws = NEW(cx->arena, int);
    *m.state = seed * 0x2545f4914f6cdd1du + 1;
    static const struct {
        const char *name;
        SymKind kind;
        int64_t value;
    } symbols[] = {
        { "B", SYM_BATCH, 3 },
        { "T", SYM_DIM, 4 },
        { "C", SYM_CONST, 6 },
        { "H", SYM_CONST, 2 },
    };
    for (int i = 0; i < 4; i++)
        m.dim[i] = dim_sym(m.ds, dims_symbol(m.ds, intern(cx, symbols[i].name), symbols[i].kind,
                                             symbols[i].value, nowhere()));
    m.dim[4] = dim_exact_div(m.ds, m.dim[2], m.dim[3]);
    m.dim[5] = dim_const(m.ds, 2);
    m.g = graph_new(m.p, "random", NULL);
    add_param(&m, "w", 2, (const Dim *[]){ m.dim[2], m.dim[2] });
    add_param(&m, "b", 1, (const Dim *[]){ m.dim[2] });
    add_inputs(&m);
    make_steps(&m, STEPS);
    add_sinks(&m);
    vec_push(cx->arena, &m.p->graphs, m.g);
    return m.p;
}
