/* test_random.c -- graphs made at random: moves, products, selections, draws, loops inside loops.
 *
 * Each is checked as in test_grad.c: gradient, gradient of gradient, and every pass against the
 * graph it began with. Usage: test_random [HOW MANY [FIRST]]. One line per check that fails, one
 * line for all others.
 */
#define QUIET 1
#include "checks.h"

enum { POOL_MAX = 96 };

/* Values to choose operands from, by shape. */
typedef struct {
    Case *c;
    Graph *g;
    Node *at[POOL_MAX];
    int n;
    Node *iter[3];
    int n_iter;
} Pool;

static const Dim *size_b, *size_t_, *size_c;

static int pick(Case *c, int n)
{
    const int i = (int)((next_random(c) + 1) / 2 * n);
    return i < n ? i : n - 1;
}

static Node *any(Pool *p) { return p->at[pick(p->c, p->n)]; }

static void put(Pool *p, Node *n)
{
    if (p->n < POOL_MAX && dtype_is_real(n->type->dtype) && n->type->rank <= 4)
        p->at[p->n++] = n;
}

/* A value of that type: from the pool, or made of a scalar. */
static Node *like(Pool *p, const Type *t)
{
    for (int tries = 0; tries < 12; tries++) {
        Node *n = any(p);
        if (type_same(n->type, t))
            return n;
    }
    for (int tries = 0; tries < 40; tries++) {
        Node *n = any(p);
        if (n->type->rank == 0)
            return t->rank ? ir_broadcast(p->g, n, t->rank, t->dim, NULL, nowhere) : n;
    }
    Node *half = ir_const(p->g, DT_F64, 0.5, nowhere);
    return t->rank ? ir_broadcast(p->g, half, t->rank, t->dim, NULL, nowhere) : half;
}

static Node *bounded(Pool *p, Node *n) { return ir_unary(p->g, OP_TANH, n, nowhere); }

static void add_pointwise(Pool *p)
{
    static const Op unary[] = { OP_SIN, OP_TANH, OP_SIGMOID, OP_NEG, OP_COS, OP_ERF };
    static const Op binary[] = { OP_ADD, OP_SUB, OP_MUL, OP_ADD, OP_MUL };
    Graph *g = p->g;
    Node *a = any(p), *b = like(p, a->type);
    switch (pick(p->c, 5)) {
    case 0: put(p, ir_unary(g, unary[pick(p->c, 6)], a, nowhere)); break;
    case 1: {
        Node *d = ir_binary(g, OP_ADD, ir_binary(g, OP_MUL, b, b, nowhere),
                            ir_const(g, DT_F64, 1, nowhere), nowhere);
        put(p, ir_binary(g, OP_DIV, a, d, nowhere));
        break;
    }
    case 2: { /* smooth where the branches meet */
        Node *over = ir_binary(g, OP_SUB, a, ir_const(g, DT_F64, 0.25, nowhere), nowhere);
        Node *less = ir_binary(g, OP_LT, over, ir_const(g, DT_F64, 0, nowhere), nowhere);
        Node *cube = ir_binary(g, OP_POW, over, ir_const(g, DT_F64, 3, nowhere), nowhere);
        put(p, ir_where(g, less, b, ir_binary(g, OP_ADD, cube, b, nowhere), nowhere));
        break;
    }
    default: put(p, bounded(p, ir_binary(g, binary[pick(p->c, 5)], a, b, nowhere)));
    }
}

/* Axes of n in a random order. */
static Node *turned(Pool *p, Node *n)
{
    int axes[RANK_MAX], rank = n->type->rank;
    for (int i = 0; i < rank; i++)
        axes[i] = i;
    for (int i = rank - 1; i > 0; i--) {
        const int k = pick(p->c, i + 1), t = axes[i];
        axes[i] = axes[k];
        axes[k] = t;
    }
    return rank ? ir_transpose(p->g, n, axes, nowhere) : n;
}

static void add_boxed(Pool *p, Node *n)
{
    Dims *ds = p->c->dims;
    const Dim *lo[RANK_MAX], *size[RANK_MAX], *one = dim_const(ds, 1);
    const int axis = pick(p->c, n->type->rank);
    for (int i = 0; i < n->type->rank; i++) {
        lo[i] = i == axis ? one : dim_const(ds, 0);
        size[i] = n->type->dim[i];
    }
    switch (pick(p->c, 3)) {
    case 0:
        size[axis] = dim_add(ds, size[axis], dim_const(ds, 2));
        put(p, ir_unary(p->g, OP_SIN, ir_pad(p->g, n, lo, size, nowhere), nowhere));
        break;
    case 1:
        size[axis] = dim_sub(ds, size[axis], one);
        put(p, ir_slice(p->g, n, lo, size, nowhere));
        break;
    default: put(p, ir_concat(p->g, 2, (Node *[]){ n, like(p, n->type) }, axis, nowhere));
    }
}

/* n with equal elements along an axis set apart, so that no maximum is a tie. */
static Node *apart(Pool *p, Node *n, int axis)
{
    Node *i = ir_iota(p->g, n->type->rank, n->type->dim, axis, nowhere);
    Node *step = ir_binary(p->g, OP_MUL, ir_cast(p->g, i, DT_F64, nowhere),
                           ir_const(p->g, DT_F64, 0.0173, nowhere), nowhere);
    return ir_binary(p->g, OP_ADD, n, step, nowhere);
}

static void add_move(Pool *p)
{
    Node *n = any(p);
    const int rank = n->type->rank, axis = rank ? pick(p->c, rank) : 0;
    if (!rank)
        return;
    switch (pick(p->c, 5)) {
    case 0: put(p, turned(p, n)); break;
    case 1: {
        if (rank < 4 && pick(p->c, 2)) { /* an axis of size 1, used and dropped again */
            const Dim *dim[RANK_MAX];
            for (int i = 0; i <= rank; i++)
                dim[i] = i == axis ? dim_const(p->c->dims, 1) : n->type->dim[i - (i > axis)];
            Node *thin = bounded(p, ir_reshape(p->g, n, rank + 1, dim, nowhere));
            put(p, thin);
            put(p, bounded(p, ir_reshape(p->g, thin, rank, n->type->dim, nowhere)));
            break;
        }
        const Dim *flat = type_elems(p->c->dims, n->type);
        put(p, ir_reshape(p->g, n, 1, &flat, nowhere));
        break;
    }
    case 2: {
        Node *sum = ir_reduce(p->g, OP_SUM, n, 1, &axis, nowhere);
        int axes[RANK_MAX];
        for (int i = 0; i < rank - 1; i++)
            axes[i] = i + (i >= axis);
        put(p, sum);
        put(p, ir_broadcast(p->g, bounded(p, sum), rank, n->type->dim, axes, nowhere));
        break;
    }
    case 3: put(p, ir_reduce(p->g, OP_AMAX, apart(p, n, axis), 1, &axis, nowhere)); break;
    default: add_boxed(p, n);
    }
}

static void add_product(Pool *p)
{
    Node *a = any(p);
    if (a->type->rank < 2 || a->type->rank > 3)
        return;
    Node *b = like(p, a->type);
    const bool ta = pick(p->c, 2);
    put(p, bounded(p, ir_matmul(p->g, a, b, ta, !ta, nowhere)));
}

static void add_draw(Pool *p, int number)
{
    Node *a = any(p);
    for (int i = 0, follow = 0; i < a->type->rank; i++) /* what check_draw refuses */
        if (dim_has_kind(a->type->dim[i], SYM_BATCH)
            && (follow++ || !dim_per_sample(p->c->program->dims, a->type->dim[i])))
            return;
    const Attr attr = { .stream = intern_printf(p->c->cx, "draw.%d", number) };
    const Type *t = case_type(p->c, DT_F64, a->type->rank, a->type->dim);
    Node *u = ir_typed(p->g, OP_UNIFORM, t, p->n_iter, p->iter, &attr, nowhere);
    Node *half = ir_const(p->g, DT_F64, 0.5, nowhere), *zero = ir_const(p->g, DT_F64, 0, nowhere);
    put(p, ir_where(p->g, ir_binary(p->g, OP_LT, u, half, nowhere), zero, a, nowhere));
}

static void add_some(Pool *p, int n, int depth);

/* Chooses inputs and makes the arguments of a body for them. */
static int choose_inputs(Pool *p, Pool *body, Loop *l, Node **in)
{
    int n = 0;
    for (int want = 1 + pick(p->c, 2); l->n_carry < want; l->n_carry++) {
        in[n] = any(p);
        put(body, ir_arg(body->g, ARG_CARRY, in[n++]->type, nowhere));
    }
    for (int tries = 0; tries < 30 && l->n_slice < 2; tries++) {
        Node *s = any(p);
        if (!s->type->rank || !dim_same(s->type->dim[0], l->trip))
            continue;
        const Type *t = case_type(p->c, DT_F64, s->type->rank - 1, s->type->dim + 1);
        in[n++] = s;
        l->n_slice++;
        put(body, ir_arg(body->g, ARG_SLICE, t, nowhere));
    }
    for (int want = 1 + pick(p->c, 3); l->n_shared < want; l->n_shared++) {
        in[n] = any(p);
        put(body, ir_arg(body->g, ARG_SHARED, in[n++]->type, nowhere));
    }
    for (int i = 0; i < p->n_iter; i++, l->n_shared++) {
        in[n++] = p->iter[i];
        body->iter[i] = ir_arg(body->g, ARG_SHARED, p->iter[i]->type, nowhere);
    }
    const Type *index = case_type(p->c, DT_I32, 0, NULL);
    body->iter[p->n_iter] = ir_arg(body->g, ARG_ITER, index, nowhere);
    body->n_iter = p->n_iter + 1;
    return n;
}

static void add_loop(Pool *p, int depth)
{
    Case *c = p->c;
    Node *in[16];
    Loop *l = NEW(c->cx->arena, Loop);
    l->name = "loop";
    l->trip = pick(c, 2) ? size_t_ : size_b;
    l->reverse = pick(c, 2);
    l->body = graph_new(c->program, "loop", p->g);
    Pool body = { .c = c, .g = l->body };
    const int n = choose_inputs(p, &body, l, in);
    add_some(&body, 6 + pick(c, 6), depth);
    for (int j = 0; j < l->n_carry; j++) {
        Node *arg = l->body->args.at[j];
        Node *half = ir_const(body.g, DT_F64, 0.5, nowhere);
        Node *next = ir_binary(body.g, OP_MUL, arg, half, nowhere);
        next = ir_binary(body.g, OP_ADD, bounded(&body, like(&body, arg->type)), next, nowhere);
        ir_sink(body.g, SINK_RESULT, j, pick(c, 4) ? next : like(&body, arg->type));
    }
    for (int want = 1 + pick(c, 2); l->n_stack < want;) {
        Node *elem = body.at[body.n - 1 - pick(c, body.n > 6 ? 6 : body.n)];
        const int last = elem->type->rank - 1;
        if (elem->type->rank > 3)
            elem = ir_reduce(body.g, OP_SUM, elem, 1, &last, nowhere);
        ir_sink(body.g, SINK_RESULT, l->n_carry + l->n_stack++, elem);
    }
    Node *loop = ir_loop(p->g, l, n, in, nowhere);
    for (int k = 0; k < l->n_carry + l->n_stack; k++)
        put(p, ir_result(loop, k));
}

static void add_some(Pool *p, int n, int depth)
{
    for (int i = 0; i < n; i++)
        switch (pick(p->c, 10)) {
        case 0:
        case 1:
        case 2:
        case 3:
        case 4: add_pointwise(p); break;
        case 5:
        case 6: add_move(p); break;
        case 7: add_product(p); break;
        case 8: add_draw(p, i); break;
        default:
            if (depth > 0)
                add_loop(p, depth - 1);
        }
}

static void case_random(Case *c)
{
    size_b = case_dim(c, "B", SYM_BATCH, 2);
    size_t_ = case_dim(c, "T", SYM_DIM, 3);
    size_c = case_dim(c, "C", SYM_CONST, 4);
    Pool p = { .c = c, .g = c->g };
    put(&p, case_input(c, DT_F64, 3, (const Dim *[]){ size_b, size_t_, size_c }, 0));
    put(&p, case_input(c, DT_F64, 2, (const Dim *[]){ size_t_, size_c }, 0));
    put(&p, case_input(c, DT_F64, 2, (const Dim *[]){ size_b, size_c }, 0));
    put(&p, case_input(c, DT_F64, 1, &size_c, 0));
    put(&p, case_input(c, DT_F64, 0, NULL, 0));
    add_some(&p, 8, 2);
    add_loop(&p, 2);
    add_some(&p, 4, 2);
    for (int k = 0; k < 4; k++)
        ir_sink(c->g, SINK_RESULT, k, p.at[p.n - 1 - k]);
}

int main(int argc, char **argv)
{
    const int n = argc > 1 ? atoi(argv[1]) : 40, first = argc > 2 ? atoi(argv[2]) : 1;
    for (int i = first; i < first + n; i++) {
        char name[32];
        Case *c = case_new((uint64_t)i);
        snprintf(name, sizeof name, "random %d", i);
        case_random(c);
        check_case(c, name);
    }
    if (!n_failed)
        printf("ok grad random: %d graphs\n", n);
    return n_failed != 0;
}
