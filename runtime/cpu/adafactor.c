/* adafactor.c -- Adafactor: Adam's second moment from the means of rows and columns.
 *
 * In: gradient, means, RtStep. Out: parameters. From Shazeer & Stern, "Adafactor: Adaptive Learning
 * Rates with Sublinear Memory Cost" (2018), as torch.optim.Adafactor has it; in update t
 *
 *     w = t^beta2_decay,  rho = min(lr, 1 / sqrt(t)),  alpha = max(eps2, rms(p)) rho
 *     r += w (mean over columns of g^2 - r);  c += w (mean over rows of g^2 - c)
 *     V = r c' / max(mean of r, eps1), or of a vector V += w (g^2 - V)
 *     u = g / sqrt(max(V, eps1^2))
 *     p = (1 - lr decay) p - alpha / max(1, rms(u) / d) u
 *
 * with the last two axes as rows and columns. eps1 = 0 stands for that of the type, 2^-23 or 2^-52.
 * The one idea: V is never stored; each element of it is computed again where it is used. The
 * gradient is read four times (rows, columns, rms(u), update) and p twice.
 */
#include "cpu/update.h"

#include <float.h>

typedef struct { /* a tensor and the numbers of its update */
    const RtRun *run;
    const RtTensor *t;
    double factor, fresh, eps1; /* fresh: w */
    ptrdiff_t matrices, R, C;   /* a vector is one row; mean NULL */
    ptrdiff_t rows,
        columns;  /* the first of its own in the states; of a vector in ADAFACTOR_WHOLE */
    double *mean; /* of r, of each matrix */
} View;

#define REAL float
#define N(x) x##_f32
#include "cpu/adafactor_real.h"
#undef REAL
#undef N
#define REAL double
#define N(x) x##_f64
#include "cpu/adafactor_real.h"

/* ---- an update ------------------------------------------------------------------------------ */

static View view(const RtRun *run, const RtStep *s, const RtTensor *t)
{
    const RtModel *m = run->model;
    const RtTrain *train = &run->state->opt->train;
    const RtStateTensor *states = run->state->states;
    const RtParam *q = &m->params[t->param];
    const ptrdiff_t n = t->all.to - t->all.from;
    View v = { .run = run, .t = t, .factor = rt_factor(s), .matrices = 1, .R = 1, .C = n };
    v.fresh = pow((double)(s->applied + 1), rt_hyper(train, "beta2-decay"));
    v.eps1 = rt_hyper(train, "eps1");
    if (v.eps1 == 0)
        v.eps1 = m->real == RT_F64 ? DBL_EPSILON : (double)FLT_EPSILON;
    if (q->rank < 2) {
        v.columns = rt_state_at(m, states[ADAFACTOR_WHOLE].shape, t->param, t->repeat);
        return v;
    }
    v.C = q->shape[q->rank - 1];
    v.R = q->shape[q->rank - 2];
    v.matrices = t->matrices;
    v.rows = rt_state_at(m, states[ADAFACTOR_ROWS].shape, t->param, t->repeat);
    v.columns = rt_state_at(m, states[ADAFACTOR_COLUMNS].shape, t->param, t->repeat);
    v.mean = run->state->tensors->means + t->matrix;
    return v;
}

static void average(const View *v)
{
    const bool wide = v->run->model->real == RT_F64;
    const ptrdiff_t rows = v->matrices * v->R, blocks = (v->C + RT_COLUMNS - 1) / RT_COLUMNS;
#pragma omp parallel if (v->t->n > 1)
    {
#pragma omp for schedule(static)
        for (ptrdiff_t k = 0; k < rows; k++)
            (wide ? row_means_f64 : row_means_f32)(v, k, k + 1);
#pragma omp for schedule(static)
        for (ptrdiff_t k = 0; k < v->matrices * blocks; k++) {
            const ptrdiff_t from = k % blocks * RT_COLUMNS, to = from + RT_COLUMNS;
            (wide ? column_means_f64 : column_means_f32)(v, k / blocks, from,
                                                         to < v->C ? to : v->C);
        }
#pragma omp for schedule(static)
        for (ptrdiff_t k = 0; k < v->matrices; k++)
            (wide ? matrix_mean_f64 : matrix_mean_f32)(v, k);
    }
}

/* alpha / max(1, rms(u) / d) */
static double step_size(const RtRun *run, const RtStep *s, const RtTensor *t)
{
    const RtTrain *train = &run->state->opt->train;
    const double n = (double)(t->all.to - t->all.from), lr = s->lr * t->all.rate;
    const double rho = fmin(lr, 1 / sqrt((double)(s->applied + 1)));
    const double own = sqrt(rt_tensor_sum(run->state->tensors, t, 0) / n);
    const double move = sqrt(rt_tensor_sum(run->state->tensors, t, 1) / n);
    return fmax(rt_hyper(train, "eps2"), own) * rho / fmax(1, move / rt_hyper(train, "d"));
}

void rt_update_adafactor(RtRun *run, RtStep *s)
{
    if (!s->finite)
        return;
    RtTensors *all = run->state->tensors;
    const bool wide = run->model->real == RT_F64;
    for (int i = 0; i < all->n; i++) {
        const View v = view(run, s, &all->at[i]);
        const int first = v.t->first, end = first + v.t->n;
        if (v.mean)
            average(&v);
#pragma omp parallel for schedule(static) if (v.t->n > 1)
        for (int k = first; k < end; k++) {
            all->sums[0][k] = (wide ? own_squares_f64 : own_squares_f32)(&v, all->pieces[k]);
            all->sums[1][k] = (wide ? visit_f64 : visit_f32)(&v, all->pieces[k], false, 0, 0);
        }
        const double rate = step_size(run, s, v.t);
        const double keep = 1
                            - s->lr * v.t->all.rate
                                  * rt_piece_decay(v.t->all, &run->state->opt->train);
#pragma omp parallel for schedule(static) if (v.t->n > 1)
        for (int k = first; k < end; k++) {
            (wide ? visit_f64 : visit_f32)(&v, all->pieces[k], true, keep, rate);
            rt_piece_updated(run, s, all->pieces[k]);
        }
    }
    run->state->ema_moved = true;
}
