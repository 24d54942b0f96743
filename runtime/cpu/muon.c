/* muon.c -- Muon: momentum made orthogonal, for matrices; AdamW for all else.
 *
 * In: gradient, momentum, RtStep. Out: parameters. From Jordan et al., "Muon: An optimizer for
 * hidden layers in neural networks" (2024), as torch.optim.Muon has it; for a matrix [R,C] of role
 * weight
 *
 *     m += (1 - momentum) (g - m);  u = g + momentum (m - g), or without nesterov m
 *     X = u / max(|u|, 1e-7);  5 times  X = (a I + b A + c A A) X, A = X X'   (Newton-Schulz)
 *     p = (1 - lr decay) p - lr s X
 *
 * with a, b, c below and s = sqrt(max(1, R / C)), or 0.2 sqrt(max(R, C)) to match AdamW's steps.
 * Other parameters, and matrices that the model excepts, are updated by AdamW, whose rate is
 * adamw-factor lr. The one idea: products are those of the runtime, in the parameters' type, and
 * work in the arena, which holds nothing at that time; it is made large enough for the largest
 * matrix. Of one with sides k <= l they take 20 k^2 l + 10 k^3 operations.
 */
#include "cpu/update.h"

enum { NS_STEPS = 5 };
#define NS_A   3.4445
#define NS_B   -4.7750
#define NS_C   2.0315
#define NS_EPS 1e-7

typedef struct {
    const RtRun *run;
    double factor, momentum, beta1, beta2, eps;
    double root;       /* 1 / sqrt(1 - beta2^t) */
    double keep, rate; /* p = keep p - rate ..., of the tensor at hand */
    bool nesterov;
} Muon;

#define REAL float
#define N(x) x##_f32
#include "cpu/muon_real.h"
#undef REAL
#undef N
#define REAL double
#define N(x) x##_f64
#include "cpu/muon_real.h"

/* ---- an update ------------------------------------------------------------------------------ */

static double size_factor(const RtTrain *t, const RtParam *q)
{
    const double R = (double)q->shape[0], C = (double)q->shape[1];
    return t->match_rms ? 0.2 * sqrt(fmax(R, C)) : sqrt(fmax(1, R / C));
}

static void update_tensor(Muon u, const RtStep *s, const RtTensor *t)
{
    const RtModel *m = u.run->model;
    const RtTrain *train = &u.run->state->opt->train;
    const RtParam *q = &m->params[t->param];
    const bool matrix = rt_muon_takes(q), wide = m->real == RT_F64;
    const double lr = s->lr * t->all.rate * (matrix ? 1 : rt_hyper(train, "adamw-factor"));
    u.keep = 1 - lr * rt_piece_decay(t->all, train);
    u.rate = matrix ? lr * size_factor(train, q)
                    : lr / (1 - pow(u.beta1, (double)(s->applied + 1)));
    if (matrix)
        (wide ? update_matrix_f64 : update_matrix_f32)(&u, s, t, q);
    else
        (wide ? update_rest_f64 : update_rest_f32)(&u, s, t);
}

void rt_update_muon(RtRun *run, RtStep *s)
{
    if (!s->finite)
        return;
    const RtTrain *t = &run->state->opt->train;
    Muon u = { .run = run,
               .factor = rt_factor(s),
               .momentum = rt_hyper(t, "momentum"),
               .nesterov = t->nesterov,
               .beta1 = rt_hyper(t, "beta1"),
               .beta2 = rt_hyper(t, "beta2"),
               .eps = rt_hyper(t, "eps") };
    u.root = 1 / sqrt(1 - pow(u.beta2, (double)(s->applied + 1)));
    for (int i = 0; i < run->state->tensors->n; i++)
        update_tensor(u, s, &run->state->tensors->at[i]);
    run->state->ema_moved = true;
}
