/* cu_pitch.c -- long rows on a boundary.
 *
 * In: steps over buffers (fuse.c). Out: a matrix of the arena whose rows are long, of one length,
 * and no multiple of 16 bytes, as logits of 50257 are, gets rows of the next multiple of 64;
 * products and kernels walk by the new distance. The one idea: a distance that is a multiple of the
 * row's length counts rows, so it becomes as many longer ones. What is touched otherwise, and what
 * a caller sees, stays dense. The elements behind a row are never written, nor read.
 */
#include "emit/cu.h"

enum { LONG_ROW = 1024, BOUNDARY = 64, WORD = 16 }; /* elements; elements; bytes */

typedef struct {
    int64_t n;         /* elements of a row */
    const Dim *row;    /* the same */
    const Dim *longer; /* elements from row to row */
} Row;

typedef struct {
    KernelProgram *kp;
    Arena *a;
    Map *rows; /* Buffer -> Row, of those that get longer rows */
    VEC(Step *) steps;
} Pitch;

static Row *row_of(const Pitch *p, const Step *s, int arg)
{
    return map_get(p->rows, s->operands[arg].buffer);
}

/* ---- which buffers --------------------------------------------------------------------------- */

static void add_steps(Pitch *p, const Steps *steps)
{
    for (int i = 0; i < steps->len; i++) {
        if (steps->at[i]->kernel)
            vec_push(p->a, &p->steps, steps->at[i]);
        add_steps(p, &steps->at[i]->body);
    }
}

static void add_buffers(Pitch *p, const Routine *r)
{
    for (int i = 0; i < r->buffers.len; i++) {
        const Buffer *b = r->buffers.at[i];
        const Type *t = b->type;
        int64_t n;
        if (b->kind != BUF_ARENA || b->partials || t->rank < 2
            || !dim_value(t->dim[t->rank - 1], &n) || n < LONG_ROW
            || n * dtype_bytes(b->dtype) % WORD == 0)
            continue;
        Row *row = NEW(p->a, Row);
        row->n = n;
        row->row = t->dim[t->rank - 1];
        row->longer = dim_const(p->kp->program->dims, (n + BOUNDARY - 1) / BOUNDARY * BOUNDARY);
        map_set(p->rows, b, row);
    }
}

static bool counts_rows(const Dim *d, int64_t n) { return d == NULL || dim_is_multiple(d, n); }

static bool is_within(const Dim *size, int64_t n)
{
    int64_t v;
    return dim_value(size, &v) && v <= n;
}

/* Does it move along one row by 1, and else from row to row? */
static bool access_fits(const Kernel *k, const Access *a, int64_t n)
{
    int along = 0;
    for (int i = 0; i < k->n_axes; i++) {
        if (a->stride[i] && dim_is(a->stride[i], 1) && is_within(k->axis[i], n))
            along++;
        else if (!counts_rows(a->stride[i], n))
            return false;
    }
    if (a->index >= 0 && (a->index_stride == NULL || dim_is(a->index_stride, 1)))
        along++;
    else if (a->index >= 0 && !counts_rows(a->index_stride, n))
        return false;
    return along <= 1 && counts_rows(a->offset, n);
}

static bool map_fits(const Kernel *k, int arg, int64_t n)
{
    for (int i = 0; i < k->values.len; i++) {
        const Value *v = &k->values.at[i];
        if (v->kind == VAL_LOAD && v->access.arg == arg && !access_fits(k, &v->access, n))
            return false;
    }
    for (int i = 0; i < k->effects.len; i++) {
        const Effect *f = &k->effects.at[i];
        if (f->access.arg == arg && (f->kind != EFFECT_STORE || !access_fits(k, &f->access, n)))
            return false;
    }
    return true;
}

static bool matmul_fits(const Matmul *m, int arg, int64_t n)
{
    const Dim *const ld[] = { m->ldc, m->lda, m->ldb };
    const Dim *const width[] = { m->n, m->ta ? m->m : m->k, m->tb ? m->k : m->n };
    const Dim *const *const step[] = { m->step_c, m->step_a, m->step_b };
    if (arg > 2 || !is_within(width[arg], n) || !counts_rows(ld[arg], n))
        return false;
    for (int i = 0; i < m->n_batch; i++)
        if (!counts_rows(step[arg][i], n))
            return false;
    return true;
}

static bool operand_fits(const Step *s, int arg, int64_t n)
{
    const Kernel *k = s->kernel;
    const Operand *o = &s->operands[arg];
    for (int d = 0; d < DEPTH_MAX; d++)
        if (!counts_rows(o->loop_stride[d], n))
            return false;
    return counts_rows(o->offset, n)
           && (k->kind == KERNEL_MAP      ? map_fits(k, arg, n)
               : k->kind == KERNEL_MATMUL ? matmul_fits(&k->matmul, arg, n)
                                          : false);
}

/* Does the step touch a buffer of the same shape that stays dense? One could be written in place of
   the other. */
static bool has_dense_mate(const Pitch *p, const Step *s, const Buffer *b)
{
    for (int i = 0; s->kernel->kind == KERNEL_MAP && i < s->kernel->args.len; i++) {
        const Buffer *o = s->operands[i].buffer;
        if (o != b && o->kind == BUF_ARENA && o->dtype == b->dtype && type_same(o->type, b->type)
            && !map_get(p->rows, o))
            return true;
    }
    return false;
}

/* Leaves out what one of the steps does not touch by rows. */
static void sift(Pitch *p)
{
    for (bool again = true; again;) {
        again = false;
        for (int i = 0; i < p->steps.len; i++) {
            const Step *s = p->steps.at[i];
            for (int arg = 0; arg < s->kernel->args.len; arg++) {
                const Row *row = row_of(p, s, arg);
                const Buffer *b = s->operands[arg].buffer;
                if (!row || (operand_fits(s, arg, row->n) && !has_dense_mate(p, s, b)))
                    continue;
                map_set(p->rows, b, NULL);
                again = true;
            }
        }
    }
}

/* ---- kernels and operands -------------------------------------------------------------------- */

/* As many longer rows; a step along a row stays. */
static const Dim *longer(const Pitch *p, const Dim *d, const Row *row)
{
    Dims *ds = p->kp->program->dims;
    if (d == NULL || dim_is(d, 0) || dim_is(d, 1))
        return d;
    const Dim *rows = dim_exact_div(ds, d, row->row);
    if (rows == NULL)
        rows = dim_exact_div(ds, d, dim_const(ds, row->n));
    if (rows == NULL)
        bug("%s is no number of rows of %s", dim_text(p->kp->program->cx, d),
            dim_text(p->kp->program->cx, row->row));
    return dim_mul(ds, rows, row->longer);
}

static void change_access(const Pitch *p, Access *a, const Row *row)
{
    a->offset = longer(p, a->offset, row);
    a->index_stride = longer(p, a->index_stride, row);
    for (int i = 0; i < AXES_MAX; i++)
        a->stride[i] = longer(p, a->stride[i], row);
}

static void change_matmul(const Pitch *p, Matmul *m, int arg, const Row *row)
{
    const Dim **const ld[] = { &m->ldc, &m->lda, &m->ldb };
    const Dim **const step[] = { m->step_c, m->step_a, m->step_b };
    *ld[arg] = longer(p, *ld[arg], row);
    for (int i = 0; i < m->n_batch; i++)
        step[arg][i] = longer(p, step[arg][i], row);
}

/* k for operands as s has them. */
static void change_kernel(const Pitch *p, Kernel *k, const Step *s)
{
    for (int arg = 0; arg < k->args.len; arg++) {
        const Row *row = row_of(p, s, arg);
        if (row == NULL)
            continue;
        if (k->kind == KERNEL_MATMUL)
            change_matmul(p, &k->matmul, arg, row);
        for (int i = 0; i < k->values.len; i++)
            if (k->values.at[i].kind == VAL_LOAD && k->values.at[i].access.arg == arg)
                change_access(p, &k->values.at[i].access, row);
        for (int i = 0; i < k->effects.len; i++)
            if (k->effects.at[i].access.arg == arg)
                change_access(p, &k->effects.at[i].access, row);
    }
}

/* Are the operands of both dense, or of rows as long, one by one? */
static bool operands_alike(const Pitch *p, const Step *a, const Step *b)
{
    for (int arg = 0; arg < a->kernel->args.len; arg++) {
        const Row *x = row_of(p, a, arg), *y = row_of(p, b, arg);
        if ((x ? x->n : 0) != (y ? y->n : 0))
            return false;
    }
    return true;
}

/* Steps of one kernel with other operands than its first step get a copy of it; then it is changed
   itself. */
static void change_steps(Pitch *p, Kernel *k)
{
    Arena *a = p->kp->program->cx->arena;
    VEC(Step *) first = { 0 }; /* of each kind of operands */
    VEC(Kernel *) made = { 0 };
    for (int i = 0; i < p->steps.len; i++) {
        Step *s = p->steps.at[i];
        int at = 0;
        if (s->kernel != k)
            continue;
        while (at < first.len && !operands_alike(p, s, first.at[at]))
            at++;
        if (at == first.len) {
            Kernel *copy = at == 0 ? k : kernel_copy(a, k);
            if (at > 0) {
                copy->number = p->kp->kernels.len + 1;
                copy->like = k;
                vec_push(a, &p->kp->kernels, copy);
            }
            vec_push(p->a, &first, s);
            vec_push(p->a, &made, copy);
        }
        s->kernel = made.at[at];
    }
    for (int i = 0; i < first.len; i++)
        change_kernel(p, made.at[i], first.at[i]);
}

static void change_operands(const Pitch *p, Step *s)
{
    for (int arg = 0; arg < s->kernel->args.len; arg++) {
        const Row *row = row_of(p, s, arg);
        Operand *o = &s->operands[arg];
        if (row == NULL)
            continue;
        o->offset = longer(p, o->offset, row);
        for (int d = 0; d < DEPTH_MAX; d++)
            o->loop_stride[d] = longer(p, o->loop_stride[d], row);
    }
}

static void change_buffers(const Pitch *p, const Routine *r)
{
    for (int i = 0; i < r->buffers.len; i++) {
        Buffer *b = r->buffers.at[i];
        const Row *row = map_get(p->rows, b);
        const Dim *dim[RANK_MAX];
        if (row == NULL)
            continue;
        for (int k = 0; k < b->type->rank; k++)
            dim[k] = b->type->dim[k];
        dim[b->type->rank - 1] = row->longer;
        b->row = row->row;
        b->type = type_of(p->kp->program->dims, b->type->dtype, b->type->rank, dim);
    }
}

void cu_pitch(KernelProgram *kp)
{
    const Routine *const routine[] = { kp->train, kp->eval, kp->output, kp->count };
    Arena *a = kp->program->cx->scratch;
    Pitch p = { .kp = kp, .a = a, .rows = map_new(a) };
    for (int i = 0; i < 4; i++)
        if (routine[i]) {
            add_steps(&p, &routine[i]->steps);
            add_buffers(&p, routine[i]);
        }
    sift(&p);
    for (int i = 0, n = kp->kernels.len; i < n; i++)
        change_steps(&p, kp->kernels.at[i]);
    for (int i = 0; i < p.steps.len; i++)
        change_operands(&p, p.steps.at[i]);
    for (int i = 0; i < 4; i++)
        if (routine[i])
            change_buffers(&p, routine[i]);
}
