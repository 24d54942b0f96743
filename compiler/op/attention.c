/* attention.c -- scaled dot-product attention and its adjoint: shapes, values, expansions.
 *
 * attention(q[..,T,D], k[..,S,D], v[..,S,E]) = (y, lse) with p = softmax(scale q k') over the keys
 * that a query sees, y = p v and lse the log-sum-exp, from which the adjoint makes p again. Causal:
 * query t sees the keys s <= t + S - T. A query that sees none has y = 0, lse = 0 and no adjoint.
 * The axis before T and S are heads: q may have n times as many as k and v, and then its heads
 * n i .. n i + n - 1 share head i of them, whose adjoints are the sums over these.
 * attention_grad is an op of its own; grad differentiates its expansion for second order.
 */
#include "op/rows.h"

#include <math.h>

/* ---- shapes -------------------------------------------------------------------------------- */

static const char *check_qkv(Dims *ds, Node *const *in)
{
    const Type *q = in[0]->type, *k = in[1]->type, *v = in[2]->type;
    int r = q->rank;
    if (r < 2 || k->rank != r || v->rank != r)
        return "queries, keys and values have different numbers of axes";
    if (!dtype_is_real(q->dtype) || k->dtype != q->dtype || v->dtype != q->dtype)
        return "queries, keys and values are not of one real dtype";
    for (int i = 0; i < r - 3; i++)
        if (!dim_same(q->dim[i], k->dim[i]) || !dim_same(q->dim[i], v->dim[i]))
            return "the leading axes of queries, keys and values differ";
    if (r > 2 && !dim_same(k->dim[r - 3], v->dim[r - 3]))
        return "the heads of keys and values differ";
    if (r > 2 && !dim_ratio(ds, q->dim[r - 3], k->dim[r - 3]))
        return "the heads of queries are no multiple of those of keys and values";
    if (!dim_same(q->dim[r - 1], k->dim[r - 1]))
        return "queries and keys have different widths";
    return dim_same(k->dim[r - 2], v->dim[r - 2]) ? NULL : "the numbers of keys and values differ";
}

SHAPE(shape_attention)
{
    (void)n_in;
    (void)attr;
    const char *wrong = check_qkv(ds, in);
    if (wrong)
        return shape_refuse(why, wrong);
    const Type *q = in[0]->type;
    const Dim *dim[RANK_MAX];
    for (int i = 0; i < q->rank; i++)
        dim[i] = q->dim[i];
    out[1] = type_of(ds, q->dtype, q->rank - 1, dim);
    dim[q->rank - 1] = in[2]->type->dim[q->rank - 1];
    out[0] = type_of(ds, q->dtype, q->rank, dim);
    return 2;
}

SHAPE(shape_attention_grad)
{
    const Type *result[2];
    if (!shape_attention(ds, n_in, in, attr, result, why))
        return 0;
    if (!type_same(in[3]->type, result[0]) || !type_same(in[4]->type, result[1])
        || !type_same(in[5]->type, result[0]))
        return shape_refuse(why, "y, lse and d_y are not of the types of the attention");
    for (int i = 0; i < 3; i++)
        out[i] = in[i]->type;
    return 3;
}

/* ---- the parts that expansions share ------------------------------------------------------- */

typedef struct {
    Graph *g;
    Span at;
    Node *q, *k, *v;
    Node *scores; /* scale q k', [..,T,S] */
    Node *seen;   /* which keys a query sees; NULL = all */
    Node *zero;
    const Dim *shared; /* that many heads of q share one of k and v; NULL: one */
} Parts;

/* x[.., H, T, *] of q's heads as [.., H/n, n*T, *]: those that share a head of k and v are one
   matrix. */
static Node *gathered(const Parts *p, Node *x)
{
    if (!p->shared)
        return x;
    const Dim *dim[RANK_MAX];
    const int r = x->type->rank;
    for (int i = 0; i < r; i++)
        dim[i] = x->type->dim[i];
    dim[r - 3] = p->k->type->dim[r - 3];
    dim[r - 2] = dim_mul(p->g->program->dims, p->shared, dim[r - 2]);
    return ir_reshape(p->g, x, r, dim, p->at);
}

/* ... and back. */
static Node *spread(const Parts *p, Node *x)
{
    if (!p->shared)
        return x;
    const Dim *dim[RANK_MAX];
    const int r = x->type->rank;
    for (int i = 0; i < r; i++)
        dim[i] = i < r - 1 ? p->q->type->dim[i] : x->type->dim[i];
    return ir_reshape(p->g, x, r, dim, p->at);
}

static Node *scale_of(Graph *g, const Attr *attr, const Type *q, Span at)
{
    const Dim *width = q->dim[q->rank - 1];
    int64_t d;
    if (attr->value != 0)
        return ir_const(g, q->dtype, attr->value, at);
    if (dim_value(width, &d))
        return ir_const(g, q->dtype, 1 / sqrt((double)d), at);
    return ir_unary(g, OP_RSQRT, ir_dim(g, q->dtype, width, at), at);
}

static Parts parts_of(Graph *g, const Attr *attr, Node *const *in, Span at)
{
    Parts p = { .g = g, .at = at, .q = in[0], .k = in[1], .v = in[2] };
    const int r = p.q->type->rank;
    if (r > 2 && !dim_same(p.q->type->dim[r - 3], p.k->type->dim[r - 3]))
        p.shared = dim_ratio(g->program->dims, p.q->type->dim[r - 3], p.k->type->dim[r - 3]);
    Node *s = spread(&p, ir_matmul(g, gathered(&p, p.q), p.k, false, true, at));
    p.scores = ir_binary(g, OP_MUL, s, scale_of(g, attr, p.q->type, at), at);
    p.zero = ir_const(g, s->type->dtype, 0, at);
    if (attr->causal) {
        const Type *t = s->type;
        const Dim *ahead = dim_sub(g->program->dims, t->dim[t->rank - 1], t->dim[t->rank - 2]);
        Node *key = ir_iota(g, t->rank, t->dim, t->rank - 1, at);
        Node *query = ir_iota(g, t->rank, t->dim, t->rank - 2, at);
        Node *until = ir_binary(g, OP_ADD, query, ir_dim(g, DT_I32, ahead, at), at);
        p.seen = ir_binary(g, OP_LE, key, until, at);
    }
    return p;
}

/* row[..,T] repeated along the last axis of x[..,T,*]. */
static Node *along_keys(const Parts *p, Node *row, const Node *x)
{
    static const int axes[RANK_MAX] = { 0, 1, 2, 3, 4, 5, 6, 7 };
    return ir_broadcast(p->g, row, x->type->rank, x->type->dim, axes, p->at);
}

/* exp(scores - row) where a key is seen, else 0; the exponent of an unseen key is not formed. */
static Node *exp_seen(const Parts *p, Node *row)
{
    Node *x = ir_binary(p->g, OP_SUB, p->scores, along_keys(p, row, p->scores), p->at);
    if (!p->seen)
        return ir_unary(p->g, OP_EXP, x, p->at);
    x = ir_unary(p->g, OP_EXP, ir_where(p->g, p->seen, x, p->zero, p->at), p->at);
    return ir_where(p->g, p->seen, x, p->zero, p->at);
}

static Node *binary(const Parts *p, Op op, Node *a, Node *b)
{
    return ir_binary(p->g, op, a, b, p->at);
}

/* ---- expansions ---------------------------------------------------------------------------- */

EXPAND(expand_attention)
{
    Parts p = parts_of(g, &n->attr, in, n->span);
    Span at = n->span;
    int last = p.scores->type->rank - 1;
    DType dtype = p.scores->type->dtype;
    Node *scores = p.scores;
    if (p.seen)
        scores = ir_where(g, p.seen, scores, ir_const(g, dtype, -INFINITY, at), at);
    Node *m = ir_unary(g, OP_STOP, ir_reduce(g, OP_AMAX, scores, 1, &last, at), at);
    if (p.seen) /* a query without keys has no maximum */
        m = ir_where(g, binary(&p, OP_EQ, m, ir_const(g, dtype, -INFINITY, at)), p.zero, m, at);
    Node *e = exp_seen(&p, m);
    Node *z = ir_reduce(g, OP_SUM, e, 1, &last, at);
    if (p.seen)
        z = ir_where(g, binary(&p, OP_EQ, z, p.zero), ir_const(g, dtype, 1, at), z, at);
    Node *weights = binary(&p, OP_DIV, e, along_keys(&p, z, e));
    out[0] = spread(&p, ir_matmul(g, gathered(&p, weights), p.v, false, false, at));
    out[1] = binary(&p, OP_ADD, m, ir_unary(g, OP_LOG, z, at));
}

/* d_scores -> d_q, d_k */
static void scores_backward(const Parts *p, const Attr *attr, Node *d_scores, Node **d_q,
                            Node **d_k)
{
    Node *d = binary(p, OP_MUL, d_scores, scale_of(p->g, attr, p->q->type, p->at));
    d = gathered(p, d);
    *d_q = spread(p, ir_matmul(p->g, d, p->k, false, false, p->at));
    *d_k = ir_matmul(p->g, d, gathered(p, p->q), true, false, p->at);
}

EXPAND(expand_attention_grad)
{
    Parts p = parts_of(g, &n->attr, in, n->span);
    Span at = n->span;
    Node *y = in[3], *lse = in[4], *d_y = in[5];
    int last = y->type->rank - 1;
    Node *weights = exp_seen(&p, lse);
    Node *d_weights = spread(&p, ir_matmul(g, gathered(&p, d_y), p.v, false, true, at));
    Node *dot = ir_reduce(g, OP_SUM, binary(&p, OP_MUL, d_y, y), 1, &last, at);
    Node *d_scores = binary(&p, OP_SUB, d_weights, along_keys(&p, dot, d_weights));
    scores_backward(&p, &n->attr, binary(&p, OP_MUL, weights, d_scores), &out[0], &out[1]);
    out[2] = ir_matmul(g, gathered(&p, weights), gathered(&p, d_y), true, false, at);
}

static Node *plus(const Adjoint *a, Node *x, Node *y)
{
    return x ? ir_binary(a->g, OP_ADD, x, y, a->at) : y;
}

TRANSPOSES(transpose_attention)
{
    d_in[0] = d_in[1] = d_in[2] = NULL;
    if (a->d_out[0]) {
        Node *in[6] = { a->in[0], a->in[1], a->in[2], a->out[0], a->out[1], a->d_out[0] };
        Attr attr = { .value = a->n->attr.value,
                      .causal = a->n->attr.causal,
                      .wide = a->n->attr.wide };
        Node *d = ir_node(a->g, OP_ATTENTION_GRAD, 6, in, &attr, a->at);
        for (int i = 0; i < 3; i++)
            d_in[i] = ir_result(d, i);
    }
    if (a->d_out[1]) { /* the weights are the gradient of lse */
        Parts p = parts_of(a->g, &a->n->attr, a->in, a->at);
        Node *w = exp_seen(&p, a->out[1]), *d_q, *d_k;
        w = binary(&p, OP_MUL, w, along_keys(&p, a->d_out[1], w));
        scores_backward(&p, &a->n->attr, w, &d_q, &d_k);
        d_in[0] = plus(a, d_in[0], d_q);
        d_in[1] = plus(a, d_in[1], d_k);
    }
}

/* ---- values -------------------------------------------------------------------------------- */

typedef struct {
    int64_t n_mats, shared, n_queries, n_keys, width,
        v_width; /* shared: heads of q, of a head of k */
    double scale;
    bool causal;
} Sizes;

static Sizes sizes_of(const Node *n, const Tensor *const *in)
{
    int r = in[0]->rank;
    Sizes s = { 1,
                1,
                in[0]->dim[r - 2],
                in[1]->dim[r - 2],
                in[0]->dim[r - 1],
                in[2]->dim[r - 1],
                n->attr.value,
                n->attr.causal };
    for (int i = 0; i < r - 2; i++)
        s.n_mats *= in[0]->dim[i];
    if (r > 2 && in[1]->dim[r - 3] > 0)
        s.shared = in[0]->dim[r - 3] / in[1]->dim[r - 3];
    if (s.scale == 0)
        s.scale = 1 / sqrt((double)s.width);
    return s;
}

/* The number of keys that query t sees. */
static int64_t n_seen(const Sizes *s, int64_t t)
{
    int64_t n = s->causal ? t + s->n_keys - s->n_queries + 1 : s->n_keys;
    return n < 0 ? 0 : n;
}

static double dot(const double *x, const double *y, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}

EVAL(eval_attention)
{
    (void)env;
    Sizes s = sizes_of(n, in);
    double *score = NEW_ARRAY(a, double, s.n_keys + 1);
    for (int64_t row = 0; row < s.n_mats * s.n_queries; row++) {
        int64_t mat = row / s.n_queries / s.shared, seen = n_seen(&s, row % s.n_queries);
        const double *k = in[1]->at + mat * s.n_keys * s.width;
        const double *v = in[2]->at + mat * s.n_keys * s.v_width;
        double m = -INFINITY, z = 0;
        if (seen == 0)
            continue;
        for (int64_t i = 0; i < seen; i++) {
            score[i] = s.scale * dot(in[0]->at + row * s.width, k + i * s.width, s.width);
            m = score[i] > m ? score[i] : m;
        }
        for (int64_t i = 0; i < seen; i++)
            z += exp(score[i] - m);
        out[1].at[row] = m + log(z);
        for (int64_t i = 0; i < seen; i++)
            for (int64_t e = 0; e < s.v_width; e++)
                out[0].at[row * s.v_width + e] += exp(score[i] - m) / z * v[i * s.v_width + e];
    }
}

EVAL(eval_attention_grad)
{
    (void)a;
    (void)env;
    Sizes s = sizes_of(n, in);
    for (int64_t row = 0; row < s.n_mats * s.n_queries; row++) {
        int64_t mat = row / s.n_queries / s.shared, seen = n_seen(&s, row % s.n_queries);
        int64_t k0 = mat * s.n_keys * s.width, v0 = mat * s.n_keys * s.v_width;
        const double *q = in[0]->at + row * s.width, *d_y = in[5]->at + row * s.v_width;
        double y_dot = dot(d_y, in[3]->at + row * s.v_width, s.v_width);
        for (int64_t i = 0; i < seen; i++) {
            const double *k = in[1]->at + k0 + i * s.width, *v = in[2]->at + v0 + i * s.v_width;
            double w = exp(s.scale * dot(q, k, s.width) - in[4]->at[row]);
            double d_score = w * (dot(d_y, v, s.v_width) - y_dot) * s.scale;
            for (int64_t c = 0; c < s.width; c++) {
                out[0].at[row * s.width + c] += d_score * k[c];
                out[1].at[k0 + i * s.width + c] += d_score * q[c];
            }
            for (int64_t e = 0; e < s.v_width; e++)
                out[2].at[v0 + i * s.v_width + e] += w * d_y[e];
        }
    }
}
