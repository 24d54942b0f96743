/* lamb.c -- LAMB: Adam's direction, in steps as long as each tensor is.
 *
 * In: gradient, moments, RtStep. Out: parameters. From You et al., "Large Batch Optimization for
 * Deep Learning: Training BERT in 76 minutes" (2019), algorithm 2, with its bias correction; for
 * each tensor, which in a stack is each layer's own:
 *
 *     m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
 *     u = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + decay p
 *     p -= lr |p| / |u| u,  and p -= lr u where one of the norms is 0
 *
 * The one idea: norms first. One pass writes the moments and sums the squares, a second computes u
 * again from them and moves p: one pass over p, m and v more than AdamW, and no buffer for u.
 */
#include "cpu/update.h"

typedef struct {
    double factor, decay, beta1, beta2, eps;
    double first, root; /* 1 / (1 - beta1^t), 1 / sqrt(1 - beta2^t) */
    double rate;        /* lr |p| / |u| */
} Lamb;

#define LAMB(real, sfx)                                                                            \
    static void moments_##sfx(const RtRun *run, RtPiece q, Lamb u, double *own, double *move)      \
    {                                                                                              \
        const real *restrict p = run->p, *restrict d = run->d_p;                                   \
        real *restrict m = run->state->states[0].at, *restrict v = run->state->states[1].at;       \
        const real factor = (real)u.factor, beta1 = (real)u.beta1, beta2 = (real)u.beta2;          \
        const real more1 = (real)(1 - u.beta1), more2 = (real)(1 - u.beta2);                       \
        const real first = (real)u.first, root = (real)u.root;                                     \
        const real eps = (real)u.eps, decay = (real)u.decay;                                       \
        double squares_p = 0, squares_u = 0;                                                       \
        _Pragma("omp simd reduction(+ : squares_p, squares_u)") for (ptrdiff_t i = q.from;         \
                                                                     i < q.to; i++)                \
        {                                                                                          \
            const real g = factor * d[i];                                                          \
            const real mean = beta1 * m[i] + more1 * g, square = beta2 * v[i] + more2 * (g * g);   \
            m[i] = mean;                                                                           \
            v[i] = square;                                                                         \
            const real x = first * mean / (rt_sqrt_##sfx(square) * root + eps) + decay * p[i];     \
            squares_p += (double)p[i] * (double)p[i];                                              \
            squares_u += (double)x * (double)x;                                                    \
        }                                                                                          \
        *own = squares_p;                                                                          \
        *move = squares_u;                                                                         \
    }                                                                                              \
    static void move_##sfx(const RtRun *run, RtPiece q, Lamb u)                                    \
    {                                                                                              \
        real *restrict p = run->p;                                                                 \
        const real *restrict m = run->state->states[0].at, *restrict v = run->state->states[1].at; \
        const real first = (real)u.first, root = (real)u.root, rate = (real)u.rate;                \
        const real eps = (real)u.eps, decay = (real)u.decay;                                       \
        _Pragma("omp simd") for (ptrdiff_t i = q.from; i < q.to; i++)                              \
            p[i] -= rate * (first * m[i] / (rt_sqrt_##sfx(v[i]) * root + eps) + decay * p[i]);     \
    }

LAMB(float, f32)
LAMB(double, f64)

static double trust(const RtTensors *all, const RtTensor *t)
{
    const double own = sqrt(rt_tensor_sum(all, t, 0)), move = sqrt(rt_tensor_sum(all, t, 1));
    return own > 0 && move > 0 ? own / move : 1;
}

static Lamb numbers(const RtRun *run, const RtStep *s)
{
    const RtTrain *t = &run->state->opt->train;
    const double applied = (double)(s->applied + 1);
    Lamb u = { .factor = rt_factor(s),
               .beta1 = rt_hyper(t, "beta1"),
               .beta2 = rt_hyper(t, "beta2"),
               .eps = rt_hyper(t, "eps") };
    u.first = 1 / (1 - pow(u.beta1, applied));
    u.root = 1 / sqrt(1 - pow(u.beta2, applied));
    return u;
}

void rt_update_lamb(RtRun *run, RtStep *s)
{
    if (!s->finite)
        return;
    RtTensors *all = run->state->tensors;
    const Lamb u = numbers(run, s);
    const bool wide = run->model->real == RT_F64;
    RT_EACH_PIECE(run)
    for (int k = 0; k < all->n_pieces; k++) {
        const RtPiece q = all->pieces[k];
        Lamb own = u;
        own.decay = rt_piece_decay(q, &run->state->opt->train);
        (wide ? moments_f64 : moments_f32)(run, q, own, &all->sums[0][k], &all->sums[1][k]);
    }
    for (int i = 0; i < all->n; i++)
        all->factor[i] = trust(all, &all->at[i]);
    RT_EACH_PIECE(run)
    for (int k = 0; k < all->n_pieces; k++) {
        const RtPiece q = all->pieces[k];
        Lamb own = u;
        own.decay = rt_piece_decay(q, &run->state->opt->train);
        own.rate = s->lr * q.rate * all->factor[all->owner[k]];
        (wide ? move_f64 : move_f32)(run, q, own);
        rt_piece_updated(run, s, q);
    }
    run->state->ema_moved = true;
}
