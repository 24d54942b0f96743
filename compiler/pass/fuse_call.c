/* fuse_call.c -- products, attention and scatter: operands as the runtime takes them.
 *
 * In: a call and views of its operands. Out: a kernel of that kind and a step. The idea: a matrix
 * may lie in memory either way round and with any distance between its rows, heads may lie inside
 * packed rows; only what no stride describes is copied first.
 */
#include "pass/fuse.h"

static bool unit_stride(const View *v, int k)
{
    return dim_is_one(v->dim[k]) || dim_is_one(v->stride[k]);
}

/* The view of an operand; where it lies nowhere as a view, a dense copy is made now. */
static View operand_view(Scope *s, Node *n)
{
    View v;
    if (!place_view(s, n, &v))
        copy_dense(s, n, &v);
    return v;
}

static View reshaped(Scope *s, Node *n, View v, int rank, const Dim *const *dim)
{
    const Type *t = type_of(s->f->ds, n->type->dtype, rank, dim);
    View r;
    if (view_reshape(s->f, &v, t, &r))
        return r;
    copy_dense(s, n, &v);
    if (!view_reshape(s->f, &v, t, &r))
        bug("a dense %s has another shape", type_text(s->f->cx, n->type));
    return r;
}

static Operand operand_of(Scope *s, const View *v)
{
    Operand o = { .buffer = v->buffer, .offset = dim_plus(s->f, v->base, v->offset) };
    for (int d = 0; d < DEPTH_MAX; d++)
        o.loop_stride[d] = v->loop[d];
    return o;
}

static Kernel *kernel_new(Scope *s, KernelKind kind, int n_written, int n, const View *v,
                          Operand **operands)
{
    Arena *a = s->f->cx->scratch;
    Kernel *k = NEW(a, Kernel);
    k->kind = kind;
    k->n_phases = 1;
    *operands = NEW_ARRAY(a, Operand, n);
    for (int i = 0; i < n; i++) {
        KernelArg arg = { .dtype = v[i].buffer->dtype,
                          .written = i < n_written,
                          .read = i >= n_written };
        vec_push(a, &k->args, arg);
        (*operands)[i] = operand_of(s, &v[i]);
    }
    return k;
}

static Kernel *finish(Scope *s, Unit *u, Kernel *k, Operand *operands)
{
    k->backward = u->backward;
    text_describe(s, u, k, operands);
    return step_add(s, k, operands, u->node, u->backward);
}

/* ---- products ------------------------------------------------------------------------------- */

typedef struct {
    bool turned;
    const Dim *ld;
} Matrix;

/* The last two axes of v as a stored matrix; turned: it is stored the other way round. */
static bool as_matrix(const View *v, Matrix *m)
{
    int r = v->rank - 2, c = v->rank - 1;
    m->turned = !unit_stride(v, c);
    if (m->turned && !unit_stride(v, r))
        return false;
    int along = m->turned ? c : r, across = m->turned ? r : c;
    m->ld = dim_is_one(v->dim[along]) ? v->dim[across] : v->stride[along];
    return m->ld != NULL;
}

static View matrix_operand(Scope *s, Node *n, Matrix *m)
{
    View v = operand_view(s, n);
    if (as_matrix(&v, m))
        return v;
    copy_dense(s, n, &v);
    as_matrix(&v, m);
    return v;
}

/* An operand of a product with one of another format. In 16 bits, what is of 16 bits though it lies
   in 32 is copied; else what lies in 16. */
static void one_format(Scope *s, Node *n, bool narrow, View *v, Matrix *m)
{
    if ((v->buffer->dtype == s->f->p->narrow) == narrow)
        return;
    if (narrow)
        copy_dense(s, n, v);
    else
        copy_wide(s, n, v);
    as_matrix(v, m);
}

typedef struct {
    int n;
    const Dim *size[RANK_MAX], *step[3][RANK_MAX];
} Batch;

/* The leading axes of c, a, b, with neighbours walked as one where all three allow it. */
static Batch batch_of(Fuser *f, const View *const *v)
{
    Batch b = { 0 };
    for (int k = 0; k < v[0]->rank - 2; k++) {
        const Dim *size = v[0]->dim[k];
        bool join = b.n > 0;
        if (dim_is_one(size))
            continue;
        for (int i = 0; i < 3 && join; i++)
            join = dim_equal(b.step[i][b.n - 1], dim_times(f, v[i]->stride[k], size));
        if (join)
            b.size[b.n - 1] = dim_mul(f->ds, b.size[b.n - 1], size);
        else
            b.size[b.n++] = size;
        for (int i = 0; i < 3; i++)
            b.step[i][b.n - 1] = v[i]->stride[k];
    }
    return b;
}

static const Dim *or_zero(Fuser *f, const Dim *d) { return d ? d : dim_const(f->ds, 0); }

static void set_batch(Fuser *f, Matmul *p, const Batch *b)
{
    p->n_batch = b->n;
    for (int i = 0; i < b->n; i++) {
        p->batch[i] = b->size[i];
        p->step_c[i] = or_zero(f, b->step[0][i]);
        p->step_a[i] = or_zero(f, b->step[1][i]);
        p->step_b[i] = or_zero(f, b->step[2][i]);
    }
}

/* n, a product, to the place of the unit's node. */
static void finish_product(Scope *s, Unit *u, Node *n, Node *bias, AddKind add)
{
    Fuser *f = s->f;
    Info *x = &s->at[u->node->id];
    Node *in[2] = { n->in[0], n->in[1] };
    Matrix c, a, b;
    View v[4];
    int r = n->type->rank;
    v[0] = reshaped(s, u->node, x->view, r, n->type->dim);
    v[1] = matrix_operand(s, in[0], &a);
    v[2] = matrix_operand(s, in[1], &b);
    const bool narrow = narrow_is(f, in[0]) && narrow_is(f, in[1]);
    if (v[1].buffer->dtype != v[2].buffer->dtype)
        for (int i = 1; i < 3; i++)
            one_format(s, in[i - 1], narrow, &v[i], i == 1 ? &a : &b);
    if (!as_matrix(&v[0], &c))
        bug("the result of a product is no matrix");
    Batch batch = batch_of(f, (const View *[]){ &v[0], &v[1], &v[2] });
    for (int i = 1; i < 3 && batch.n > 2; i++) {
        copy_dense(s, in[i - 1], &v[i]);
        as_matrix(&v[i], i == 1 ? &a : &b);
        batch = batch_of(f, (const View *[]){ &v[0], &v[1], &v[2] });
    }
    bool ta = n->attr.ta != a.turned, tb = n->attr.tb != b.turned;
    int depth = n->attr.ta ? r - 2 : r - 1;
    Matmul p = { .m = n->type->dim[r - 2],
                 .n = n->type->dim[r - 1],
                 .k = in[0]->type->dim[depth],
                 .lda = a.ld,
                 .ldb = b.ld,
                 .ldc = c.ld,
                 .ta = ta,
                 .tb = tb,
                 .bias = bias != NULL,
                 .add = add };
    if (c.turned) { /* c' = b' a' */
        View swap = v[1];
        v[1] = v[2];
        v[2] = swap;
        p = (Matmul){ .m = p.n,
                      .n = p.m,
                      .k = p.k,
                      .lda = b.ld,
                      .ldb = a.ld,
                      .ldc = c.ld,
                      .ta = !tb,
                      .tb = !ta,
                      .add = add };
        batch = batch_of(f, (const View *[]){ &v[0], &v[1], &v[2] });
    }
    set_batch(f, &p, &batch);
    if (bias) {
        v[3] = operand_view(s, bias);
        if (!unit_stride(&v[3], 0))
            copy_dense(s, bias, &v[3]);
    }
    Operand *operands;
    Kernel *k = kernel_new(s, KERNEL_MATMUL, 1, bias ? 4 : 3, v, &operands);
    k->matmul = p;
    finish(s, u, k, operands);
}

static void finish_matmul(Scope *s, Unit *u)
{
    Info *x = &s->at[u->node->id];
    Products alone = { 0 }, *sum = x->sum ? x->sum : &alone;
    AddKind add = dest_add(&x->dests.at[0]);
    if (!x->sum)
        vec_push(s->f->cx->scratch, &alone.at, u->node);
    for (u->part = 0; u->part < sum->at.len; u->part++)
        finish_product(s, u, sum->at.at[u->part], u->part ? NULL : sum->bias,
                       u->part ? ADD_ALWAYS : add);
}

/* ---- attention ------------------------------------------------------------------------------ */

static View heads(Scope *s, Node *n, View v, const Dim *const *dim)
{
    v = reshaped(s, n, v, 4, dim);
    if (unit_stride(&v, 3))
        return v;
    copy_dense(s, n, &v);
    return reshaped(s, n, v, 4, dim);
}

/* [.., T, D] as [B, H, T, D]. */
static void four(Fuser *f, const Type *t, const Dim **dim)
{
    int r = t->rank;
    dim[0] = r > 3 ? dim_product(f, r - 3, t->dim) : f->one;
    dim[1] = r > 2 ? t->dim[r - 3] : f->one;
    dim[2] = t->dim[r - 2];
    dim[3] = t->dim[r - 1];
}

static HeadSteps steps_of(Fuser *f, const View *v)
{
    return (HeadSteps){ or_zero(f, v->stride[0]), or_zero(f, v->stride[1]),
                        or_zero(f, v->stride[2]) };
}

static Node *result_node(Scope *s, Node *n, int k)
{
    for (int id = n->id + 1; id < s->g->nodes.len; id++) {
        Node *r = s->g->nodes.at[id];
        if (s->at[id].live && r->op == OP_RESULT && r->in[0] == n && r->attr.index == k)
            return r;
    }
    return NULL;
}

/* Where result k goes; if nobody wants it, to a buffer of its own. */
static View result_view(Scope *s, Node *n, int k)
{
    static const char *const tails[] = { "d_q", "d_k", "d_v" };
    Node *r = result_node(s, n, k), *other = NULL;
    if (r)
        return s->at[r->id].view;
    for (int i = 0; i < n->n_out && !other; i++)
        other = result_node(s, n, i);
    const char *tail = n->op == OP_ATTENTION_GRAD ? tails[k] : k ? "logsumexp" : "y";
    const char *name = intern_printf(s->f->cx, "%s_%s", text_buffer_name(s, other ? other : n),
                                     tail);
    const Type *t = n->types[k];
    if (narrow_is(s->f, n->in[0]) && !n->attr.wide && (k == 0 || n->op == OP_ATTENTION_GRAD))
        t = type_of(s->f->ds, s->f->p->narrow, t->rank, t->dim);
    return view_dense(s->f, buffer_new(s->f, name, t, n), n->types[k]);
}

/* An operand of a call; of one in 32 bits, what lies in 16 is copied. */
static View input_heads(Scope *s, const Node *call, Node *n)
{
    const Dim *dim[4];
    View v = operand_view(s, n);
    if (call->attr.wide && v.buffer->dtype == s->f->p->narrow)
        copy_wide(s, n, &v);
    four(s->f, n->type, dim);
    return heads(s, n, v, dim);
}

static View output_heads(Scope *s, Node *n, int k)
{
    const Dim *dim[4];
    View v = result_view(s, n, k), r;
    four(s->f, n->types[k], dim);
    if (!view_reshape(s->f, &v, type_of(s->f->ds, n->types[k]->dtype, 4, dim), &r)
        || !unit_stride(&r, 3))
        bug("a result of attention lies in no heads");
    return r;
}

static View line(Scope *s, Node *n)
{
    const Dim *dim[1] = { type_elems(s->f->ds, n->type) };
    View v = reshaped(s, n, operand_view(s, n), 1, dim);
    if (!unit_stride(&v, 0))
        copy_dense(s, n, &v);
    return v;
}

static Attention attention_of(Fuser *f, const Node *n)
{
    const Dim *q[4], *v[4];
    Attention a = { .scale = n->attr.value, .causal = n->attr.causal };
    four(f, n->in[0]->type, q);
    four(f, n->in[2]->type, v);
    a.B = q[0];
    a.H = q[1];
    a.T = q[2];
    a.S = v[2];
    a.D = q[3];
    a.E = v[3];
    if (!dim_same(q[1], v[1]))
        a.group = dim_ratio(f->ds, q[1], v[1]);
    return a;
}

static void finish_attention(Scope *s, Unit *u)
{
    Fuser *f = s->f;
    Node *n = u->node;
    bool grad = n->op == OP_ATTENTION_GRAD;
    View v[9], q = input_heads(s, n, n->in[0]), k = input_heads(s, n, n->in[1]);
    View w = input_heads(s, n, n->in[2]);
    Attention a = attention_of(f, n);
    a.q = steps_of(f, &q);
    a.k = steps_of(f, &k);
    a.v = steps_of(f, &w);
    int at = 0;
    if (grad) {
        View y = input_heads(s, n, n->in[3]), lse = line(s, n->in[4]),
             d_y = input_heads(s, n, n->in[5]);
        for (int i = 0; i < 3; i++)
            v[at++] = output_heads(s, n, i);
        a.y = steps_of(f, &y);
        a.d_y = steps_of(f, &d_y);
        a.d_q = steps_of(f, &v[0]);
        a.d_k = steps_of(f, &v[1]);
        a.d_v = steps_of(f, &v[2]);
        v[6] = y;
        v[7] = lse;
        v[8] = d_y;
    } else {
        v[at++] = output_heads(s, n, 0);
        v[at++] = result_view(s, n, 1);
        a.y = steps_of(f, &v[0]);
    }
    v[at] = q;
    v[at + 1] = k;
    v[at + 2] = w;
    Operand *operands;
    Kernel *kernel = kernel_new(s, grad ? KERNEL_ATTENTION_GRAD : KERNEL_ATTENTION, at,
                                grad ? 9 : 5, v, &operands);
    kernel->attention = a;
    finish(s, u, kernel, operands);
}

/* ---- scatter -------------------------------------------------------------------------------- */

static void finish_scatter(Scope *s, Unit *u)
{
    Fuser *f = s->f;
    Node *n = u->node, *ids = n->in[0], *rows = n->in[1];
    Info *x = &s->at[n->id];
    const Dim *count = type_elems(f->ds, ids->type);
    const Dim *width = dim_product(f, n->type->rank - 1, n->type->dim + 1);
    const Dim *dim[2] = { count, width };
    View v[3] = { x->view, line(s, ids) };
    v[2] = reshaped(s, rows, operand_view(s, rows), 2, dim);
    if (!unit_stride(&v[2], 1)) {
        copy_dense(s, rows, &v[2]);
        v[2] = reshaped(s, rows, v[2], 2, dim);
    }
    Operand *operands;
    Kernel *k = kernel_new(s, KERNEL_SCATTER, 1, 3, v, &operands);
    k->scatter = (Scatter){ .n_ids = count,
                            .n_rows = n->type->dim[0],
                            .width = width,
                            .row_step = dim_is_one(count) ? width : or_zero(f, v[2].stride[0]),
                            .add = dest_add(&x->dests.at[0]) };
    finish(s, u, k, operands);
}

void call_finish(Scope *s, Unit *u)
{
    if (u->node->op == OP_ATTENTION || u->node->op == OP_ATTENTION_GRAD)
        finish_attention(s, u);
    else if (u->node->op == OP_SCATTER)
        finish_scatter(s, u);
    else
        finish_matmul(s, u);
}
