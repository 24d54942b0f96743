/* lamb.cu -- LAMB on the device; cpu/lamb.c has the formulas.
 *
 * In: gradient, moments, RtStep's twin. Out: parameters. Three launches for all tensors: moments
 * and the squares of p and u, a block per part; the ratio of the norms, a block per tensor;
 * p -= rate u, a block per part. u is computed again from the moments, so it needs no buffer.
 */
#include "optim.h"

#include <math.h>

typedef struct {
    RtUpdates u;
    RtType copy;
    const RtTensorRow *tensor;
    double *sums;    /* of each part: squares of p, of u */
    double *numbers; /* of each tensor: |p| / |u| */
    double beta1, beta2, eps;
    const double *power1, *power2; /* of beta1, beta2 */
} Lamb;

/* The numbers of a part, as all elements read them. */
template <typename T> struct Numbers {
    T factor, beta1, beta2, more1, more2, first, root, eps, decay, rate;
};

template <typename T> RT_DEVICE void set_numbers(Numbers<T> *n, const Lamb &l, const RtPart &q)
{
    n->factor = (T)rt_update_factor(l.u.s);
    n->beta1 = (T)l.beta1;
    n->beta2 = (T)l.beta2;
    n->more1 = (T)(1 - l.beta1);
    n->more2 = (T)(1 - l.beta2);
    n->first = (T)(1 / (1 - *l.power1));
    n->root = (T)(1 / sqrt(1 - *l.power2));
    n->eps = (T)l.eps;
    n->decay = (T)q.decay;
    n->rate = 0;
}

template <typename T> RT_DEVICE T direction(const Numbers<T> &n, T m, T v, T p)
{
    return n.first * m / (rt_sqrt(v) * n.root + n.eps) + n.decay * p;
}

/* Thread j owns elements 4 j to 4 j + 3 of every RT_UPDATE_STRIDE, here and below. */
template <typename T>
__global__ void __launch_bounds__(RT_UPDATE_THREADS) g_lamb_moments(const Lamb l)
{
    __shared__ Numbers<T> shared;
    const RtPart q = l.u.part[blockIdx.x];
    if (!l.u.s->finite)
        return;
    if (threadIdx.x == 0)
        set_numbers(&shared, l, q);
    __syncthreads();
    const Numbers<T> n = shared;
    double own = 0, move = 0;
    for (ptrdiff_t i = rt_update_first(q); i < q.to; i += RT_UPDATE_STRIDE) {
        T p[4], d[4], m[4], v[4];
        rt_take(p, l.u.p, q, i);
        rt_take(d, l.u.d_p, q, i);
        rt_take(m, l.u.state[0], q, i);
        rt_take(v, l.u.state[1], q, i);
        for (int k = 0; k < 4; k++) {
            const T g = n.factor * d[k];
            m[k] = n.beta1 * m[k] + n.more1 * g;
            v[k] = n.beta2 * v[k] + n.more2 * (g * g);
            const T x = direction(n, m[k], v[k], p[k]);
            own += (double)p[k] * (double)p[k];
            if (rt_part_has(q, i + k))
                move += (double)x * (double)x;
        }
        rt_put(l.u.state[0], q, i, m);
        rt_put(l.u.state[1], q, i, v);
    }
    own = rt_update_sum(own);
    move = rt_update_sum(move);
    if (threadIdx.x == 0) {
        l.sums[2 * (ptrdiff_t)blockIdx.x] = own;
        l.sums[2 * (ptrdiff_t)blockIdx.x + 1] = move;
    }
}

/* A block per tensor adds up the sums of its parts. */
__global__ void __launch_bounds__(RT_UPDATE_THREADS) g_lamb_ratio(const Lamb l)
{
    const RtTensorRow t = l.tensor[blockIdx.x];
    if (!l.u.s->finite)
        return;
    const double *sums = l.sums + 2 * (ptrdiff_t)t.first;
    const double own = sqrt(rt_update_sum_of(sums, t.n, 2));
    const double move = sqrt(rt_update_sum_of(sums + 1, t.n, 2));
    if (threadIdx.x == 0)
        l.numbers[blockIdx.x] = own > 0 && move > 0 ? own / move : 1;
}

template <typename T> __global__ void __launch_bounds__(RT_UPDATE_THREADS) g_lamb_move(const Lamb l)
{
    __shared__ Numbers<T> shared;
    const RtPart q = l.u.part[blockIdx.x];
    if (!l.u.s->finite)
        return;
    if (threadIdx.x == 0) {
        set_numbers(&shared, l, q);
        shared.rate = (T)(l.u.s->lr * q.rate * l.numbers[q.tensor]);
    }
    __syncthreads();
    const Numbers<T> n = shared;
    for (ptrdiff_t i = rt_update_first(q); i < q.to; i += RT_UPDATE_STRIDE) {
        T p[4], m[4], v[4];
        rt_take(p, l.u.p, q, i);
        rt_take(m, l.u.state[0], q, i);
        rt_take(v, l.u.state[1], q, i);
        for (int k = 0; k < 4; k++)
            p[k] -= n.rate * direction(n, m[k], v[k], p[k]);
        rt_put_parameters(l.u, l.copy, q, i, p);
    }
}

void rt_update_lamb(RtRun *run, RtStep *s)
{
    const RtTrain *t = &run->state->opt->train;
    const RtOptimTables *tables = &run->state->tables;
    const char *where = run->model->train.where;
    Lamb l = {};
    l.u = rt_updates(run, s);
    l.copy = run->model->compute;
    l.tensor = tables->tensor;
    l.sums = tables->sums;
    l.numbers = tables->numbers;
    l.beta1 = rt_hyper(t, "beta1");
    l.power1 = rt_power_of(run, "beta1");
    l.power2 = rt_power_of(run, "beta2");
    l.beta2 = rt_hyper(t, "beta2");
    l.eps = rt_hyper(t, "eps");
    const bool wide = run->model->real == RT_F64;
    const int parts = tables->n_parts, tensors = tables->n_tensors;
    if (wide)
        RT_LAUNCH(run->stream, where, g_lamb_moments<double>, parts, RT_UPDATE_THREADS, 0, l);
    else
        RT_LAUNCH(run->stream, where, g_lamb_moments<float>, parts, RT_UPDATE_THREADS, 0, l);
    RT_LAUNCH(run->stream, where, g_lamb_ratio, tensors, RT_UPDATE_THREADS, 0, l);
    if (wide)
        RT_LAUNCH(run->stream, where, g_lamb_move<double>, parts, RT_UPDATE_THREADS, 0, l);
    else
        RT_LAUNCH(run->stream, where, g_lamb_move<float>, parts, RT_UPDATE_THREADS, 0, l);
    run->state->ema_moved = true;
}
