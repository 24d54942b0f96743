/* test_grad.c -- gradients of whole graphs and loops against central differences.
 *
 * For each case: the adjoints of all real inputs for random adjoints of the results, against a
 * difference in a random direction; the same for the gradient graph itself (gradient of
 * gradient); and the simplified, the kept and the expanded graph must have the values of the graph
 * they came from. Prints `ok NAME` or `not ok NAME: why`.
 */
#include "checks.h"

static const int axis0[] = { 0 }, axis1[] = { 1 };

static Node *sum_all(Graph *g, Node *n)
{
    int axes[RANK_MAX];
    for (int i = 0; i < n->type->rank; i++)
        axes[i] = i;
    return n->type->rank ? ir_reduce(g, OP_SUM, n, n->type->rank, axes, nowhere) : n;
}

static Node *number(Graph *g, double v) { return ir_const(g, DT_F64, v, nowhere); }

#define UN(op, a)     ir_unary(g, OP_##op, (a), nowhere)
#define BIN(op, a, b) ir_binary(g, OP_##op, (a), (b), nowhere)

/* ---- cases by hand -------------------------------------------------------------------------- */

static void case_points(Case *c)
{
    Graph *g = c->g;
    const Dim *d[] = { case_dim(c, "B", SYM_BATCH, 3), case_dim(c, "T", SYM_DIM, 4) };
    Node *x = case_input(c, DT_F64, 2, d, 0), *y = case_input(c, DT_F64, 2, d, 0);
    Node *s = case_input(c, DT_F64, 0, NULL, 0);
    Node *pos = BIN(ADD, BIN(MUL, x, x), number(g, 0.5));
    Node *r = BIN(DIV, UN(SIN, x), pos);
    r = BIN(ADD, r, BIN(POW, pos, s));
    r = BIN(ADD, r, BIN(POW, pos, number(g, 2)));
    r = BIN(SUB, r, UN(LOG, pos));
    r = BIN(ADD, UN(RSQRT, pos), BIN(MUL, UN(SQRT, pos), r));
    r = BIN(ADD, r, UN(TANH, BIN(MUL, s, y)));
    r = BIN(ADD, r, UN(ERF, UN(SIGMOID, y)));
    r = BIN(ADD, r, BIN(MAX, x, y));
    r = BIN(SUB, r, BIN(MIN, x, BIN(MUL, y, s)));
    r = BIN(ADD, r, UN(COS, UN(ABS, UN(NEG, y))));
    r = BIN(ADD, r, UN(EXP, BIN(SUB, s, y)));
    ir_sink(g, SINK_RESULT, 0, r);
    ir_sink(g, SINK_RESULT, 1, BIN(MUL, s, s));
}

static void case_moves(Case *c)
{
    Graph *g = c->g;
    const Dim *B = case_dim(c, "B", SYM_BATCH, 2), *T = case_dim(c, "T", SYM_DIM, 3);
    const Dim *C = case_dim(c, "C", SYM_CONST, 4), *two = dim_const(c->dims, 2);
    const Dim *zero = dim_const(c->dims, 0), *three_c = dim_mul(c->dims, dim_const(c->dims, 3), C);
    Node *x = case_input(c, DT_F64, 3, (const Dim *[]){ B, T, three_c }, 0);
    Node *bias = case_input(c, DT_F64, 1, &C, 0), *part[3];
    for (int i = 0; i < 3; i++) {
        const Dim *lo[] = { zero, zero, dim_mul(c->dims, dim_const(c->dims, i), C) };
        part[i] = ir_slice(g, x, lo, (const Dim *[]){ B, T, C }, nowhere);
    }
    Node *q = ir_reshape(g, part[0], 4, (const Dim *[]){ B, T, two, two }, nowhere);
    q = ir_transpose(g, q, (const int[]){ 0, 2, 1, 3 }, nowhere);
    q = ir_reshape(g, ir_transpose(g, q, (const int[]){ 0, 2, 1, 3 }, nowhere), 3,
                   part[1]->type->dim, nowhere);
    Node *b = ir_broadcast(g, bias, 3, part[1]->type->dim, (const int[]){ 2 }, nowhere);
    Node *y = BIN(MUL, UN(TANH, q), BIN(ADD, part[1], b));
    Node *cat = ir_concat(g, 2, (Node *[]){ y, part[2] }, 2, nowhere);
    const Dim *before[] = { zero, dim_const(c->dims, 1), zero };
    const Dim *wide[] = { B, dim_add(c->dims, T, two), dim_mul(c->dims, two, C) };
    cat = UN(SIN, ir_pad(g, cat, before, wide, nowhere));
    ir_sink(g, SINK_RESULT, 0,
            ir_reduce(g, OP_SUM, BIN(MUL, cat, cat), 2, (const int[]){ 0, 1 }, nowhere));
    ir_sink(g, SINK_RESULT, 1, ir_reduce(g, OP_AMAX, y, 1, axis1, nowhere));
}

static void case_products(Case *c)
{
    Graph *g = c->g;
    const Dim *N = case_dim(c, "N", SYM_BATCH, 2), *K = case_dim(c, "K", SYM_DIM, 3);
    Node *r = number(g, 0);
    for (int flags = 0; flags < 4; flags++) {
        const Dim *a[] = { N, K, K };
        Node *x = case_input(c, DT_F64, 3, a, 0);
        Node *y = flags ? UN(SIN, x) : x;
        Node *p = ir_matmul(g, y, x, flags & 1, flags >> 1, nowhere);
        r = BIN(ADD, r, BIN(MUL, p, UN(TANH, p)));
    }
    Node *ids = case_input(c, DT_I32, 2, (const Dim *[]){ N, K }, 2);
    Node *table = case_input(c, DT_F64, 2, (const Dim *[]){ N, K }, 0);
    Node *rows = ir_gather(g, table, ids, nowhere);
    ir_sink(g, SINK_RESULT, 0, BIN(ADD, r, BIN(MUL, rows, rows)));
}

/* log, sqrt and a quotient that are selected away where they are not finite. */
static void case_guards(Case *c)
{
    Graph *g = c->g;
    const Dim *d[] = { case_dim(c, "B", SYM_BATCH, 4), case_dim(c, "T", SYM_DIM, 3) };
    Node *x = case_input(c, DT_F64, 2, d, 0), *zero = number(g, 0);
    for (int i = 0; i < 6; i++)
        c->value.at[0].at[i] = 0;
    Node *positive = BIN(LT, zero, x), *r = zero;
    Node *bad[] = { UN(LOG, x),
                    UN(SQRT, x),
                    BIN(DIV, number(g, 1), x),
                    UN(RSQRT, UN(ABS, x)),
                    BIN(POW, x, number(g, 0.5)),
                    UN(EXP, BIN(DIV, number(g, 1), x)) };
    for (int i = 0; i < 6; i++)
        r = BIN(ADD, r, ir_where(g, positive, bad[i], zero, nowhere));
    Node *row_sum = ir_reduce(g, OP_SUM, UN(LOG, UN(ABS, x)), 1, axis1, nowhere);
    Node *row_min = ir_reduce(g, OP_AMIN, UN(ABS, x), 1, axis1, nowhere);
    Node *full = BIN(LT, zero, row_min);
    ir_sink(g, SINK_RESULT, 0, r);
    ir_sink(g, SINK_RESULT, 1, ir_where(g, full, row_sum, zero, nowhere));
}

static Loop *loop_new(Case *c, Graph *g, const Dim *trip, bool reverse)
{
    Loop *l = NEW(c->cx->arena, Loop);
    l->name = "scan";
    l->trip = trip;
    l->reverse = reverse;
    l->body = graph_new(c->program, "scan", g);
    return l;
}

/* h' = tanh(h w + x_t + b_t), dropped out; y_t = h' c. */
static void case_scan(Case *c)
{
    Graph *g = c->g;
    const Dim *B = case_dim(c, "B", SYM_BATCH, 2), *T = case_dim(c, "T", SYM_DIM, 4);
    const Dim *C = case_dim(c, "C", SYM_CONST, 3), *bc[] = { B, C };
    Node *h0 = case_input(c, DT_F64, 2, bc, 0);
    Node *xs = case_input(c, DT_F64, 3, (const Dim *[]){ T, B, C }, 0);
    Node *bs = case_input(c, DT_F64, 2, (const Dim *[]){ T, C }, 0);
    Node *w = case_input(c, DT_F64, 2, (const Dim *[]){ C, C }, 0);
    Node *s = case_input(c, DT_F64, 0, NULL, 0);
    Loop *l = loop_new(c, g, T, false);
    l->n_carry = 1;
    l->n_slice = 2;
    l->n_shared = 2;
    l->n_stack = 2;
    Node *in[] = { h0, xs, bs, w, s };
    Graph *outer = g;
    g = l->body;
    Node *h = ir_arg(g, ARG_CARRY, h0->type, nowhere);
    Node *x = ir_arg(g, ARG_SLICE, h0->type, nowhere);
    Node *b = ir_arg(g, ARG_SLICE, case_type(c, DT_F64, 1, &C), nowhere);
    Node *wa = ir_arg(g, ARG_SHARED, w->type, nowhere);
    Node *sa = ir_arg(g, ARG_SHARED, s->type, nowhere);
    Node *iter = ir_arg(g, ARG_ITER, case_type(c, DT_I32, 0, NULL), nowhere);
    Node *bb = ir_broadcast(g, b, 2, bc, (const int[]){ 1 }, nowhere);
    Node *a = BIN(ADD, BIN(ADD, ir_matmul(g, h, wa, false, true, nowhere), x), bb);
    const Attr draw = { .stream = intern(c->cx, "drop.0") };
    Node *u = ir_typed(g, OP_UNIFORM, h0->type, 1, &iter, &draw, nowhere);
    Node *next = ir_where(g, BIN(LT, u, number(g, 0.3)), number(g, 0), UN(TANH, a), nowhere);
    ir_sink(g, SINK_RESULT, 0, next);
    ir_sink(g, SINK_RESULT, 1, BIN(MUL, BIN(MUL, next, sa), UN(EXP, h)));
    ir_sink(g, SINK_RESULT, 2, ir_cast(g, iter, DT_F64, nowhere));
    g = outer;
    Node *loop = ir_loop(g, l, 5, in, nowhere);
    Node *ys = ir_result(loop, 1), *is = ir_result(loop, 2);
    is = ir_broadcast(g, is, 3, ys->type->dim, axis0, nowhere);
    ir_sink(g, SINK_RESULT, 0, BIN(MUL, UN(SIN, ys), is));
    ir_sink(g, SINK_RESULT, 1, ir_result(loop, 0));
}

/* A loop in a loop: the inner one carries over rows, the outer one over a stack of weights. */
static void case_nested(Case *c)
{
    Graph *g = c->g;
    const Dim *B = case_dim(c, "B", SYM_BATCH, 2), *T = case_dim(c, "T", SYM_DIM, 3);
    const Dim *L = case_dim(c, "L", SYM_CONST, 2), *tb[] = { T, B }, *b_[] = { B };
    Node *x = case_input(c, DT_F64, 2, tb, 0),
         *w = case_input(c, DT_F64, 2, (const Dim *[]){ L, B }, 0);
    Node *v = case_input(c, DT_F64, 1, b_, 0);
    Loop *outer = loop_new(c, g, L, false), *inner = loop_new(c, outer->body, T, true);
    outer->n_carry = 1;
    outer->n_slice = 1;
    outer->n_shared = 1;
    inner->n_carry = 1;
    inner->n_slice = 1;
    inner->n_shared = 2;
    inner->n_stack = 1;
    Graph *top = g;
    g = outer->body;
    Node *xa = ir_arg(g, ARG_CARRY, x->type, nowhere), *wa = ir_arg(g, ARG_SLICE, v->type, nowhere);
    Node *va = ir_arg(g, ARG_SHARED, v->type, nowhere);
    ir_arg(g, ARG_ITER, case_type(c, DT_I32, 0, NULL), nowhere);
    Node *scaled = UN(TANH, xa), *in[] = { UN(SIN, wa), scaled, va, wa };
    g = inner->body;
    Node *h = ir_arg(g, ARG_CARRY, v->type, nowhere), *row = ir_arg(g, ARG_SLICE, v->type, nowhere);
    Node *vi = ir_arg(g, ARG_SHARED, v->type, nowhere);
    Node *wi = ir_arg(g, ARG_SHARED, v->type, nowhere);
    ir_arg(g, ARG_ITER, case_type(c, DT_I32, 0, NULL), nowhere);
    Node *next = UN(TANH, BIN(ADD, BIN(MUL, h, vi), BIN(MUL, row, wi)));
    ir_sink(g, SINK_RESULT, 0, next);
    ir_sink(g, SINK_RESULT, 1, BIN(MUL, next, row));
    g = outer->body;
    Node *loop = ir_loop(g, inner, 4, in, nowhere);
    Node *end = ir_broadcast(g, ir_result(loop, 0), 2, tb, axis1, nowhere);
    ir_sink(g, SINK_RESULT, 0, BIN(ADD, BIN(ADD, xa, ir_result(loop, 1)), BIN(MUL, end, scaled)));
    g = top;
    Node *out[] = { x, w, v };
    ir_sink(g, SINK_RESULT, 0, UN(SIN, ir_loop(g, outer, 3, out, nowhere)));
}

/* Attention and cross entropy in a stack of blocks. */
static void case_blocks(Case *c)
{
    Graph *g = c->g;
    const Dim *B = case_dim(c, "B", SYM_BATCH, 2), *T = case_dim(c, "T", SYM_DIM, 3);
    const Dim *L = case_dim(c, "L", SYM_CONST, 2), *C = case_dim(c, "C", SYM_CONST, 4);
    const Dim *btc[] = { B, T, C };
    Node *x = case_input(c, DT_F64, 3, btc, 0);
    Node *w = case_input(c, DT_F64, 3, (const Dim *[]){ L, C, C }, 0);
    Node *labels = case_input(c, DT_I32, 2, btc, 4);
    c->value.at[2].at[1] = -1;
    Loop *l = loop_new(c, g, L, false);
    l->n_carry = 1;
    l->n_slice = 1;
    Node *in[] = { x, w };
    Graph *top = g;
    g = l->body;
    Node *xa = ir_arg(g, ARG_CARRY, x->type, nowhere);
    Node *wa = ir_arg(g, ARG_SLICE, case_type(c, DT_F64, 2, w->type->dim + 1), nowhere);
    ir_arg(g, ARG_ITER, case_type(c, DT_I32, 0, NULL), nowhere);
    const Dim *flat[] = { dim_mul(c->dims, B, T), C };
    Node *p = ir_matmul(g, ir_reshape(g, xa, 2, flat, nowhere), wa, false, false, nowhere);
    p = ir_reshape(g, p, 3, btc, nowhere);
    Node *att = ir_node(g, OP_ATTENTION, 3, (Node *[]){ p, xa, UN(SIN, p) },
                        &(Attr){ .causal = true }, nowhere);
    ir_sink(g, SINK_RESULT, 0, BIN(ADD, xa, ir_result(att, 0)));
    g = top;
    Node *y = ir_loop(g, l, 2, in, nowhere);
    Node *ce = ir_binary(g, OP_CROSS_ENTROPY, y, labels, nowhere);
    ir_sink(g, SINK_RESULT, 0, sum_all(g, ir_result(ce, 0)));
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*make)(Case *);
    } cases[] = {
        { "points", case_points }, { "moves", case_moves }, { "products", case_products },
        { "guards", case_guards }, { "scan", case_scan },   { "nested", case_nested },
        { "blocks", case_blocks },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (argc > 1 && strcmp(argv[1], cases[i].name) != 0)
            continue;
        Case *c = case_new(i + 1);
        cases[i].make(c);
        check_case(c, cases[i].name);
    }
    return n_failed != 0;
}
