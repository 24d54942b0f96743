/* effort.c -- what a routine takes: floating-point operations and time.
 *
 * In: steps, and the training dims. Out: sums over all steps, loops as often as they run. The one
 * idea: a kernel takes as long as its arithmetic or its memory, whichever takes longer; time is
 * counted in operations of a large product, so that it means the same on fast and slow machines.
 * The three numbers below are of two processors and two models; they are to compare plans.
 */
#include "op/op.h"
#include "pass/kernel.h"

enum {
    FLOPS_PER_BYTE = 6, /* of a product, while a byte passes through memory */
    MAP_SLOW = 4,       /* times as long as one of a product: an operation of a loop, ... */
    ATTENTION_SLOW = 2, /* ... of attention */
    DRAW_FLOPS = 40,    /* of a random number */
};

typedef struct {
    const KernelProgram *kp;
    const int64_t *dims;
} Count;

static double size_of(const Count *c, const Dim *d) { return d ? (double)dim_eval(d, c->dims) : 1; }

static double larger(double a, double b) { return a > b ? a : b; }

/* Different elements that an access reaches. */
static double touched(const Count *c, const Kernel *k, const Access *a)
{
    double n = 1;
    for (int i = 0; i < k->n_axes; i++)
        if (a->stride[i] || a->index >= 0)
            n *= size_of(c, k->axis[i]);
    return n;
}

static double times_computed(const Count *c, const Kernel *k, const Value *v)
{
    double n = 1;
    const int outer = k->n_axes - k->has_row;
    for (int i = 0; i < k->n_axes && v->level != LEVEL_ONCE; i++)
        if (i < outer || v->level == LEVEL_ELEM)
            n *= size_of(c, k->axis[i]);
    return n;
}

static Effort map_effort(const Count *c, const Kernel *k)
{
    double flops = 0, bytes = 0;
    for (int a = 0; a < k->args.len; a++) {
        double most = 0;
        for (int i = 0; i < k->values.len; i++)
            if (k->values.at[i].kind == VAL_LOAD && k->values.at[i].access.arg == a)
                most = larger(most, touched(c, k, &k->values.at[i].access));
        for (int i = 0; i < k->effects.len; i++)
            if (k->effects.at[i].kind == EFFECT_STORE && k->effects.at[i].access.arg == a)
                most = larger(most, 2 * touched(c, k, &k->effects.at[i].access));
        bytes += most * dtype_bytes(k->args.at[a].dtype);
    }
    for (int i = 0; i < k->values.len; i++) {
        const Value *v = &k->values.at[i];
        if (v->kind == VAL_POINT)
            flops += times_computed(c, k, v) * op_row(v->op)->cost;
        else if (v->kind == VAL_DRAW)
            flops += times_computed(c, k, v) * DRAW_FLOPS;
        else if (v->kind == VAL_REDUCE)
            flops += times_computed(c, k, &k->values.at[v->in[0]]);
    }
    return (Effort){ flops, larger(MAP_SLOW * flops, FLOPS_PER_BYTE * bytes) };
}

static Effort matmul_effort(const Count *c, const Kernel *k)
{
    const Matmul *x = &k->matmul;
    const double m = size_of(c, x->m), n = size_of(c, x->n), kk = size_of(c, x->k);
    double batch = 1;
    for (int i = 0; i < x->n_batch; i++)
        batch *= size_of(c, x->batch[i]);
    const double flops = 2 * batch * m * n * kk;
    const double bytes = batch * (m * n + m * kk + n * kk) * dtype_bytes(k->args.at[0].dtype);
    return (Effort){ flops, larger(flops, FLOPS_PER_BYTE * bytes) };
}

static Effort attention_effort(const Count *c, const Kernel *k)
{
    const Attention *a = &k->attention;
    const double pairs = size_of(c, a->B) * size_of(c, a->H) * size_of(c, a->T) * size_of(c, a->S)
                         * (a->causal ? 0.5 : 1);
    const double d = size_of(c, a->D), e = size_of(c, a->E);
    const double flops = 2 * pairs * (k->kind == KERNEL_ATTENTION ? d + e : 3 * d + 2 * e);
    return (Effort){ flops, ATTENTION_SLOW * flops };
}

static Effort kernel_effort(const Count *c, const Kernel *k)
{
    switch (k->kind) {
    case KERNEL_MAP: return map_effort(c, k);
    case KERNEL_MATMUL: return matmul_effort(c, k);
    case KERNEL_ATTENTION:
    case KERNEL_ATTENTION_GRAD: return attention_effort(c, k);
    case KERNEL_SCATTER: break;
    }
    const double rows = size_of(c, k->scatter.n_ids) * size_of(c, k->scatter.width);
    return (Effort){ rows, FLOPS_PER_BYTE * 3 * rows * dtype_bytes(k->args.at[0].dtype) };
}

static Effort steps_effort(const Count *c, const Steps *steps)
{
    Effort sum = { 0, 0 };
    for (int i = 0; i < steps->len; i++) {
        const Step *s = steps->at[i];
        if (s->rest) /* it is done in place of the step before */
            continue;
        const Effort one = s->kernel ? kernel_effort(c, s->kernel) : steps_effort(c, &s->body);
        const double times = s->kernel ? 1 : size_of(c, s->loop->trip);
        sum.flops += one.flops * times;
        sum.time += one.time * times;
    }
    return sum;
}

Effort routine_effort(const KernelProgram *kp, const Routine *r)
{
    const Count c = { kp, program_training_dims(kp->program) };
    return steps_effort(&c, &r->steps);
}
