/* machine.c -- executes the steps of a Routine as kernel.h says, one element at a time.
 *
 * In: a routine, values of dims, parameters and inputs. Out: the contents of its buffers. Slow and
 * obvious; every access is checked, what was never written is NaN.
 */
#include "machine.h"

#include <math.h>
#include <string.h>

static int64_t dim_of(const Machine *m, const Dim *d) { return d ? dim_eval(d, m->env->dims) : 0; }

/* ---- memory --------------------------------------------------------------------------------- */

int64_t machine_param_at(const Machine *m, int index, int64_t i)
{
    const Param *p = &m->p->params.at[index];
    int64_t inner = 1, at = 0;
    for (int k = 0; k < p->type->rank; k++)
        inner *= dim_of(m, p->type->dim[k]);
    int64_t outer = i / inner;
    for (int g = p->group; g >= 0; g = m->p->groups.at[g].parent) {
        const ParamGroup *group = &m->p->groups.at[g];
        int64_t count = dim_of(m, group->count);
        at += outer % count * dim_of(m, group->stride);
        outer /= count;
    }
    return at + i % inner;
}

static int64_t elems_of(const Machine *m, const Type *t)
{
    int64_t n = 1;
    for (int k = 0; k < t->rank; k++)
        n *= dim_of(m, t->dim[k]);
    return n;
}

static Memory memory_new(Arena *a, int64_t len)
{
    Memory r = { len, NEW_ARRAY(a, double, len + 1) };
    for (int64_t i = 0; i < len; i++)
        r.at[i] = NAN;
    return r;
}

Machine machine_new(Arena *a, Program *p, Routine *r, const EvalEnv *env)
{
    Machine m = { .arena = a, .p = p, .r = r, .env = env };
    m.buffer = NEW_ARRAY(a, Memory, r->buffers.len + 1);
    for (int i = 0; i < r->buffers.len; i++) {
        const Buffer *b = r->buffers.at[i];
        int64_t n = elems_of(&m, b->type);
        bool flat = b->kind == BUF_PARAM || b->kind == BUF_GRAD;
        m.buffer[i] = memory_new(a, flat && n > 0 ? machine_param_at(&m, b->index, n - 1) + 1 : n);
        for (int64_t k = 0; k < n; k++) {
            if (b->kind == BUF_PARAM)
                m.buffer[i].at[machine_param_at(&m, b->index, k)] = env->params[b->index].at[k];
            else if (b->kind == BUF_INPUT)
                m.buffer[i].at[k] = env->inputs[b->index].at[k];
            else if (b->kind == BUF_SUM || b->kind == BUF_COUNT)
                m.buffer[i].at[k] = 0;
        }
    }
    return m;
}

Memory *machine_buffer(Machine *m, BufKind kind, int index)
{
    for (int i = 0; i < m->r->buffers.len; i++)
        if (m->r->buffers.at[i]->kind == kind && m->r->buffers.at[i]->index == index)
            return &m->buffer[i];
    return NULL;
}

static double *cell(Machine *m, const Step *s, int arg, int64_t at)
{
    static double nowhere;
    const Operand *o = &s->operands[arg];
    at += dim_of(m, o->offset);
    for (int d = 0; d < DEPTH_MAX; d++)
        at += dim_of(m, o->loop_stride[d]) * m->iter[d];
    Memory *mem = &m->buffer[o->buffer->id];
    if (at >= 0 && at < mem->len)
        return &mem->at[at];
    if (!m->wrong)
        m->wrong = arena_printf(m->arena, "%s reaches element %lld of %s, which has %lld",
                                s->kernel->name, (long long)at, o->buffer->name,
                                (long long)mem->len);
    nowhere = NAN;
    return &nowhere;
}

static bool adds(const Machine *m, AddKind add)
{
    switch (add) {
    case ADD_NEVER: return false;
    case ADD_ALWAYS: return true;
    case ADD_FLAG: return m->add;
    case ADD_LATER: return !m->first;
    case ADD_FLAG_LATER: return m->add || !m->first;
    }
    return false;
}

static void put(Machine *m, const Step *s, int arg, int64_t at, AddKind add, double x)
{
    double *c = cell(m, s, arg, at);
    *c = adds(m, add) ? *c + x : x;
}

/* ---- random numbers: op/random.c on one element ---------------------------------------------- */

static double draw(const Machine *m, const Value *v, const double *iter, int64_t sample,
                   int64_t element)
{
    Node fake = { .op = v->op, .n_in = v->n_in, .attr = { .stream = v->stream } };
    Type line = { v->dtype, 0, { NULL } };
    Tensor in[4], out = { .rank = 1, .elems = element + 1, .dim = { element + 1 } };
    const Tensor *ins[4];
    EvalEnv env = *m->env;
    Graph g = { .program = m->p };
    if (element < 0 || sample < 0) /* outside of a guard: chosen by nobody */
        return 0;
    fake.graph = &g;
    fake.type = &line;
    env.sample_base = 0;
    for (int i = 0; i < v->n_in; i++) {
        in[i] = (Tensor){ .elems = 1, .at = (double *)&iter[i] };
        ins[i] = &in[i];
    }
    /* A tensor [B, element + 1] whose last number is the one wanted. */
    const Symbol *batch = NULL;
    for (int i = 0; i < dims_count(m->p->dims) && !batch; i++)
        if (dims_at(m->p->dims, i)->kind == SYM_BATCH)
            batch = dims_at(m->p->dims, i);
    Arena *a = arena_new();
    if (batch) {
        line.rank = 2;
        line.dim[0] = dim_sym(m->p->dims, batch);
        line.dim[1] = dim_const(m->p->dims, element + 1);
        out.rank = 2;
        out.dim[0] = 1;
        out.dim[1] = element + 1;
        env.sample_base = sample;
        int64_t *dims = NEW_ARRAY(a, int64_t, dims_count(m->p->dims) + 1);
        memcpy(dims, m->env->dims, sizeof *dims * (size_t)dims_count(m->p->dims));
        dims[batch->id] = 1;
        env.dims = dims;
    }
    out.at = NEW_ARRAY(a, double, out.elems);
    op_row(v->op)->eval(a, &fake, ins, &out, &env);
    double x = out.at[element];
    arena_free(a);
    return x;
}

/* ---- map kernels ---------------------------------------------------------------------------- */

typedef struct {
    Machine *m;
    const Step *s;
    const Kernel *k;
    int64_t size[AXES_MAX], at[AXES_MAX];
    double *value;
    int *stamp;     /* of which row or element a value is */
    int row, elem;  /* stamps */
    double *column; /* [effect][row element] */
    double *total;
    double *reduced; /* being summed */
    int64_t *place;
} Map2;

static int64_t index_of(Map2 *c, const Access *a)
{
    int64_t at = dim_of(c->m, a->offset);
    for (int i = 0; i < c->k->n_axes; i++)
        at += dim_of(c->m, a->stride[i]) * c->at[i];
    return at;
}

static double value_of(Map2 *c, int i);

static double point(Map2 *c, const Value *v)
{
    double x[4];
    Type t = { v->dtype, 0, { NULL } };
    Node fake = { .op = v->kind == VAL_CAST ? OP_CAST : v->op, .n_in = v->n_in, .type = &t };
    Tensor in[4], out = { .elems = 1, .at = &x[3] };
    const Tensor *ins[4];
    for (int i = 0; i < v->n_in; i++) {
        x[i] = value_of(c, v->in[i]);
        in[i] = (Tensor){ .elems = 1, .at = &x[i] };
        ins[i] = &in[i];
    }
    op_row(fake.op)->eval(c->m->arena, &fake, ins, &out, c->m->env);
    return x[3];
}

static double load(Map2 *c, const Value *v)
{
    int64_t at = index_of(c, &v->access);
    if (v->access.guard >= 0 && value_of(c, v->access.guard) == 0)
        return 0;
    if (v->access.index >= 0)
        at += (int64_t)value_of(c, v->access.index) * dim_of(c->m, v->access.index_stride);
    return *cell(c->m, c->s, v->access.arg, at);
}

static double compute(Map2 *c, const Value *v)
{
    double iter[4];
    switch (v->kind) {
    case VAL_LOAD: return load(c, v);
    case VAL_CONST: return v->number;
    case VAL_DIM: return (double)dim_of(c->m, v->dim);
    case VAL_AXIS: return (double)c->at[v->axis];
    case VAL_ITER: return (double)c->m->iter[v->axis];
    case VAL_SEED: return c->m->env->seeds[v->slot];
    case VAL_POINT:
    case VAL_CAST: return point(c, v);
    case VAL_DRAW:
        for (int i = 0; i < v->n_in; i++)
            iter[i] = value_of(c, v->in[i]);
        return draw(c->m, v, iter, index_of(c, &v->sample), index_of(c, &v->element));
    case VAL_REDUCE: bug("%s v%d is read before its phase", c->k->name, (int)(v - c->k->values.at));
    }
    return NAN;
}

static double value_of(Map2 *c, int i)
{
    const Value *v = &c->k->values.at[i];
    int want = v->level == LEVEL_ELEM ? c->elem : v->level == LEVEL_ROW ? c->row : 1;
    if (c->stamp[i] == want)
        return c->value[i];
    double x = compute(c, v);
    c->stamp[i] = want;
    return c->value[i] = x;
}

static bool beats(Op op, double x, double best)
{
    bool smaller = op == OP_AMIN || op == OP_ARGMIN;
    return !isnan(best) && (isnan(x) || (smaller ? x < best : x > best));
}

static void reduce(Map2 *c, int i, int64_t e)
{
    const Value *v = &c->k->values.at[i];
    double x = value_of(c, v->in[0]);
    if (v->op == OP_SUM)
        c->reduced[i] = e ? c->reduced[i] + x : x;
    else if (e == 0 || beats(v->op, x, c->reduced[i])) {
        c->reduced[i] = x;
        c->place[i] = e;
    }
}

static void effects(Map2 *c, int phase, Level level, int64_t e)
{
    for (int i = 0; i < c->k->effects.len; i++) {
        const Effect *f = &c->k->effects.at[i];
        Level l = c->k->values.at[f->value].level;
        bool varies = f->kind == EFFECT_COLUMN;
        for (int a = 0; a < c->k->n_axes && f->kind != EFFECT_TOTAL; a++) {
            bool inner = !c->k->has_row || a == c->k->n_axes - 1;
            varies |= inner && f->access.stride[a] != NULL;
        }
        /* a value of a row, or of the whole kernel, may be stored per element */
        Level at = varies || l == LEVEL_ELEM || !c->k->has_row ? LEVEL_ELEM : LEVEL_ROW;
        if (f->kind == EFFECT_TOTAL && l != LEVEL_ELEM && c->k->has_row && f->access.arg >= 0)
            at = LEVEL_ROW;
        if (f->phase != phase || at != level)
            continue;
        double x = value_of(c, f->value);
        if (f->kind == EFFECT_STORE)
            put(c->m, c->s, f->access.arg, index_of(c, &f->access), f->add, x);
        else if (f->kind == EFFECT_TOTAL)
            c->total[i] += x;
        else
            c->column[i * c->size[c->k->n_axes - 1] + e] += x;
    }
}

/* All values of an element that this phase needs, before any of its effects. */
static void compute_first(Map2 *c, int phase)
{
    for (int i = 0; i < c->k->effects.len; i++)
        if (c->k->effects.at[i].phase == phase)
            value_of(c, c->k->effects.at[i].value);
}

static void row(Map2 *c)
{
    const Kernel *k = c->k;
    int last = k->n_axes - 1;
    int64_t n = k->has_row ? c->size[last] : 1;
    c->row++;
    for (int phase = 0; phase < k->n_phases; phase++) {
        for (int64_t e = 0; e < n; e++) {
            c->elem++;
            if (k->has_row)
                c->at[last] = e;
            compute_first(c, phase);
            for (int i = 0; i < k->values.len; i++)
                if (k->values.at[i].kind == VAL_REDUCE && k->values.at[i].phase == phase + 1)
                    reduce(c, i, e);
            effects(c, phase, LEVEL_ELEM, e);
        }
        if (k->has_row)
            effects(c, phase, LEVEL_ROW, 0);
        for (int i = 0; i < k->values.len; i++) {
            const Value *v = &k->values.at[i];
            if (v->kind != VAL_REDUCE || v->phase != phase + 1)
                continue;
            bool place = v->op == OP_ARGMAX || v->op == OP_ARGMIN;
            c->value[i] = place ? (double)c->place[i] : c->reduced[i];
            c->stamp[i] = c->row;
        }
    }
}

static void run_map(Machine *m, const Step *s)
{
    const Kernel *k = s->kernel;
    Arena *a = arena_new();
    Map2 c = { .m = m, .s = s, .k = k };
    int64_t rows = 1;
    c.row = c.elem = 1;
    for (int i = 0; i < k->n_axes; i++) {
        c.size[i] = dim_of(m, k->axis[i]);
        rows *= k->has_row && i == k->n_axes - 1 ? 1 : c.size[i];
    }
    int64_t width = k->has_row ? c.size[k->n_axes - 1] : 1;
    c.value = NEW_ARRAY(a, double, k->values.len + 1);
    c.reduced = NEW_ARRAY(a, double, k->values.len + 1);
    c.place = NEW_ARRAY(a, int64_t, k->values.len + 1);
    c.stamp = NEW_ARRAY(a, int, k->values.len + 1);
    c.total = NEW_ARRAY(a, double, k->effects.len + 1);
    c.column = NEW_ARRAY(a, double, (int64_t)k->effects.len *width + 1);
    for (int64_t r = 0; r < rows; r++) {
        int64_t rest = r;
        for (int i = k->n_axes - 1 - k->has_row; i >= 0; i--) {
            c.at[i] = rest % c.size[i];
            rest /= c.size[i];
        }
        row(&c);
    }
    for (int i = 0; i < k->effects.len; i++) {
        const Effect *f = &k->effects.at[i];
        if (f->kind == EFFECT_TOTAL)
            put(m, s, f->access.arg, dim_of(m, f->access.offset), f->add, c.total[i]);
        for (int64_t e = 0; f->kind == EFFECT_COLUMN && e < width; e++)
            put(m, s, f->access.arg,
                dim_of(m, f->access.offset) + e * dim_of(m, f->access.stride[k->n_axes - 1]),
                f->add, c.column[i * width + e]);
    }
    arena_free(a);
}

/* ---- calls ---------------------------------------------------------------------------------- */

static void run_matmul(Machine *m, const Step *s)
{
    const Matmul *p = &s->kernel->matmul;
    int64_t batch[2] = { 1, 1 }, M = dim_of(m, p->m), N = dim_of(m, p->n), K = dim_of(m, p->k);
    int64_t lda = dim_of(m, p->lda), ldb = dim_of(m, p->ldb), ldc = dim_of(m, p->ldc);
    for (int i = 0; i < p->n_batch; i++)
        batch[i] = dim_of(m, p->batch[i]);
    for (int64_t q = 0; q < batch[0] * batch[1]; q++) {
        int64_t idx[2] = { q / batch[1], q % batch[1] }, c0 = 0, a0 = 0, b0 = 0;
        for (int i = 0; i < p->n_batch; i++) {
            c0 += idx[i] * dim_of(m, p->step_c[i]);
            a0 += idx[i] * dim_of(m, p->step_a[i]);
            b0 += idx[i] * dim_of(m, p->step_b[i]);
        }
        for (int64_t i = 0; i < M; i++)
            for (int64_t j = 0; j < N; j++) {
                double x = p->bias ? *cell(m, s, 3, j) : 0;
                for (int64_t k = 0; k < K; k++)
                    x += *cell(m, s, 1, a0 + (p->ta ? k * lda + i : i * lda + k))
                         * *cell(m, s, 2, b0 + (p->tb ? j * ldb + k : k * ldb + j));
                put(m, s, 0, c0 + i * ldc + j, p->add, x);
            }
    }
}

static int64_t head_at(const Machine *m, const HeadSteps *h, int64_t b, int64_t head, int64_t t)
{
    return b * dim_of(m, h->b) + head * dim_of(m, h->h) + t * dim_of(m, h->t);
}

/* How many heads of q share one of k and v. */
static int64_t group_of(const Machine *m, const Attention *p)
{
    return p->group ? dim_of(m, p->group) : 1;
}

/* Scores of one query with the keys it sees; returns how many these are: the first of all. */
static int64_t scores(Machine *m, const Step *s, int arg_q, int arg_k, const int64_t *at, double *x)
{
    const Attention *p = &s->kernel->attention;
    int64_t T = dim_of(m, p->T), S = dim_of(m, p->S), D = dim_of(m, p->D);
    int64_t seen = p->causal ? at[2] + S - T + 1 : S;
    double scale = p->scale != 0 ? p->scale : 1 / sqrt((double)D);
    int64_t q0 = head_at(m, &p->q, at[0], at[1], at[2]), of_keys = at[1] / group_of(m, p);
    for (int64_t j = 0; j < seen; j++) {
        int64_t k0 = head_at(m, &p->k, at[0], of_keys, j);
        x[j] = 0;
        for (int64_t d = 0; d < D; d++)
            x[j] += *cell(m, s, arg_q, q0 + d) * *cell(m, s, arg_k, k0 + d);
        x[j] *= scale;
    }
    return seen;
}

/* The weights are exp(x - top) / sum, not exp(x - lse): lse of large scores has too few digits. */
static void run_attention(Machine *m, const Step *s)
{
    const Attention *p = &s->kernel->attention;
    Arena *a = arena_new();
    int64_t H = dim_of(m, p->H), T = dim_of(m, p->T), S = dim_of(m, p->S), E = dim_of(m, p->E);
    double *x = NEW_ARRAY(a, double, S + 1);
    for (int64_t r = 0; r < dim_of(m, p->B) * H * T; r++) {
        int64_t at[3] = { r / (H * T), r / T % H, r % T };
        int64_t seen = scores(m, s, 2, 3, at, x), of_keys = at[1] / group_of(m, p);
        double top = -INFINITY, sum = 0;
        for (int64_t j = 0; j < seen; j++)
            top = x[j] > top ? x[j] : top;
        for (int64_t j = 0; j < seen; j++)
            sum += exp(x[j] - top);
        *cell(m, s, 1, r) = seen > 0 ? top + log(sum) : 0;
        for (int64_t e = 0; e < E; e++) {
            double y = 0;
            for (int64_t j = 0; j < seen; j++)
                y += exp(x[j] - top) / sum
                     * *cell(m, s, 4, head_at(m, &p->v, at[0], of_keys, j) + e);
            *cell(m, s, 0, head_at(m, &p->y, at[0], at[1], at[2]) + e) = y;
        }
    }
    arena_free(a);
}

static void zero_heads(Machine *m, const Step *s, int arg, const HeadSteps *h, int64_t heads,
                       const Dim *rows, const Dim *width)
{
    const Attention *p = &s->kernel->attention;
    for (int64_t b = 0; b < dim_of(m, p->B); b++)
        for (int64_t i = 0; i < heads; i++)
            for (int64_t t = 0; t < dim_of(m, rows); t++)
                for (int64_t d = 0; d < dim_of(m, width); d++)
                    *cell(m, s, arg, head_at(m, h, b, i, t) + d) = 0;
}

static void query_grad(Machine *m, const Step *s, const int64_t *at, int64_t r, double *x)
{
    const Attention *p = &s->kernel->attention;
    int64_t D = dim_of(m, p->D), E = dim_of(m, p->E);
    double scale = p->scale != 0 ? p->scale : 1 / sqrt((double)D), own = 0;
    int64_t q0 = head_at(m, &p->q, at[0], at[1], at[2]);
    int64_t y0 = head_at(m, &p->y, at[0], at[1], at[2]);
    int64_t g0 = head_at(m, &p->d_y, at[0], at[1], at[2]);
    int64_t dq0 = head_at(m, &p->d_q, at[0], at[1], at[2]), of_keys = at[1] / group_of(m, p);
    int64_t seen = scores(m, s, 3, 4, at, x);
    for (int64_t e = 0; e < E; e++)
        own += *cell(m, s, 6, y0 + e) * *cell(m, s, 8, g0 + e);
    for (int64_t j = 0; j < seen; j++) {
        double w = exp(x[j] - *cell(m, s, 7, r)), d = 0;
        int64_t k0 = head_at(m, &p->k, at[0], of_keys, j),
                v0 = head_at(m, &p->v, at[0], of_keys, j);
        int64_t dk0 = head_at(m, &p->d_k, at[0], of_keys, j);
        int64_t dv0 = head_at(m, &p->d_v, at[0], of_keys, j);
        for (int64_t e = 0; e < E; e++) {
            d += *cell(m, s, 5, v0 + e) * *cell(m, s, 8, g0 + e);
            *cell(m, s, 2, dv0 + e) += w * *cell(m, s, 8, g0 + e);
        }
        d -= own; /* in this order: 0 where there is one key, as the evaluator has it */
        for (int64_t e = 0; e < D; e++) {
            *cell(m, s, 0, dq0 + e) += scale * w * d * *cell(m, s, 4, k0 + e);
            *cell(m, s, 1, dk0 + e) += scale * w * d * *cell(m, s, 3, q0 + e);
        }
    }
}

static void run_attention_grad(Machine *m, const Step *s)
{
    const Attention *p = &s->kernel->attention;
    Arena *a = arena_new();
    int64_t H = dim_of(m, p->H), T = dim_of(m, p->T);
    double *x = NEW_ARRAY(a, double, dim_of(m, p->S) + 1);
    zero_heads(m, s, 0, &p->d_q, H, p->T, p->D);
    zero_heads(m, s, 1, &p->d_k, H / group_of(m, p), p->S, p->D);
    zero_heads(m, s, 2, &p->d_v, H / group_of(m, p), p->S, p->E);
    for (int64_t r = 0; r < dim_of(m, p->B) * H * T; r++) {
        int64_t at[3] = { r / (H * T), r / T % H, r % T };
        query_grad(m, s, at, r, x);
    }
    arena_free(a);
}

static void run_scatter(Machine *m, const Step *s)
{
    const Scatter *p = &s->kernel->scatter;
    int64_t width = dim_of(m, p->width);
    for (int64_t i = 0; !adds(m, p->add) && i < dim_of(m, p->n_rows) * width; i++)
        *cell(m, s, 0, i) = 0;
    for (int64_t i = 0; i < dim_of(m, p->n_ids); i++)
        for (int64_t e = 0; e < width; e++)
            *cell(m, s, 0, (int64_t)*cell(m, s, 1, i) * width + e) += *cell(
                m, s, 2, i * dim_of(m, p->row_step) + e);
}

/* ---- steps ---------------------------------------------------------------------------------- */

static void run_steps(Machine *m, const Steps *steps, int depth);

static void run_loop(Machine *m, const Step *s, int depth)
{
    int64_t trip = dim_of(m, s->loop->trip);
    bool outer = m->first;
    for (int64_t i = 0; i < trip; i++) {
        m->iter[depth] = s->loop->reverse ? trip - 1 - i : i;
        m->first = i == 0;
        run_steps(m, &s->body, depth + 1);
    }
    m->iter[depth] = 0;
    m->first = outer;
}

static void run_steps(Machine *m, const Steps *steps, int depth)
{
    for (int i = 0; i < steps->len; i++) {
        const Step *s = steps->at[i];
        if (!s->kernel) {
            run_loop(m, s, depth);
            continue;
        }
        switch (s->kernel->kind) {
        case KERNEL_MAP: run_map(m, s); break;
        case KERNEL_MATMUL: run_matmul(m, s); break;
        case KERNEL_ATTENTION: run_attention(m, s); break;
        case KERNEL_ATTENTION_GRAD: run_attention_grad(m, s); break;
        case KERNEL_SCATTER: run_scatter(m, s); break;
        }
    }
}

void machine_run(Machine *m) { run_steps(m, &m->r->steps, 0); }
