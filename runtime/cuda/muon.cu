/* muon.cu -- Muon on the device; cpu/muon.c has the formulas.
 *
 * In: gradient, momentum, RtStep's twin. Out: parameters. A matrix takes 23 launches: the momentum,
 * its norm, five steps of three products and a polynomial, the new parameters; it works in the
 * arena, which holds nothing at that time. All that is no such matrix is updated by AdamW in one
 * launch more.
 */
#include "optim.h"

#include <math.h>

enum { NS_STEPS = 5 };
#define NS_A   3.4445
#define NS_B   -4.7750
#define NS_C   2.0315
#define NS_EPS 1e-7

typedef struct {
    RtUpdates u;
    RtType copy;
    const RtTensorRow *tensor;
    double *sums;           /* of each part: squares of what is made orthogonal */
    double momentum, ahead; /* ahead: 1 without nesterov */
    double beta1, beta2, eps, adamw_factor;
    const double *power1, *power2; /* of beta1, beta2 */
    int first;                     /* part and elements of the matrix at hand: */
    int n_parts;                   /* block i has part first + i */
    ptrdiff_t from, n;
    double size; /* factor of the rate that its size asks for */
    void *x;
} Muon;

/* ---- a matrix -------------------------------------------------------------------------------- */

/* Thread j owns elements 4 j to 4 j + 3 of every RT_UPDATE_STRIDE, here and below. An update that
   is left out has products too: of zeros. */
template <typename T>
__global__ void __launch_bounds__(RT_UPDATE_THREADS) g_muon_momentum(const Muon a)
{
    const RtPart q = a.u.part[a.first + (int)blockIdx.x];
    const bool finite = a.u.s->finite;
    const T factor = (T)rt_update_factor(a.u.s);
    const T more = (T)(1 - a.momentum), ahead = (T)a.ahead;
    double sum = 0;
    for (ptrdiff_t i = rt_update_first(q); i < q.to; i += RT_UPDATE_STRIDE) {
        T d[4], m[4], x[4] = { 0, 0, 0, 0 };
        if (finite) {
            rt_take(d, a.u.d_p, q, i);
            rt_take(m, a.u.state[MUON_MOMENTUM], q, i);
            for (int k = 0; k < 4; k++) {
                const T g = factor * d[k];
                m[k] += more * (g - m[k]);
                x[k] = g + ahead * (m[k] - g);
                sum += (double)x[k] * (double)x[k];
            }
            rt_put(a.u.state[MUON_MOMENTUM], q, i, m);
        }
        rt_put_own((T *)a.x, a.from, q, i, x);
    }
    sum = rt_update_sum(sum);
    if (threadIdx.x == 0)
        a.sums[a.first + (int)blockIdx.x] = sum;
}

/* x /= its norm; each block adds up the squares of all parts. */
template <typename T> __global__ void __launch_bounds__(RT_UPDATE_THREADS) g_muon_norm(const Muon a)
{
    __shared__ double by;
    const double squares = rt_update_sum_of(a.sums + a.first, a.n_parts, 1);
    if (threadIdx.x == 0)
        by = 1 / fmax(sqrt(squares), NS_EPS);
    __syncthreads();
    const T factor = (T)by;
    RtPart q = {};
    q.from = (ptrdiff_t)blockIdx.x * RT_UPDATE_PART;
    q.to = q.from + RT_UPDATE_PART < a.n ? q.from + RT_UPDATE_PART : a.n;
    for (ptrdiff_t i = rt_update_first(q); i < q.to; i += RT_UPDATE_STRIDE) {
        T x[4];
        rt_take(x, a.x, q, i);
        for (int k = 0; k < 4; k++)
            x[k] *= factor;
        rt_put(a.x, q, i, x);
    }
}

/* g = c g + b a + a0 I, of k x k: a thread per element. */
template <typename T>
__global__ void __launch_bounds__(RT_UPDATE_THREADS)
    g_muon_polynomial(T *g, const T *a, ptrdiff_t k)
{
    const ptrdiff_t i = (ptrdiff_t)blockIdx.x * RT_UPDATE_THREADS + threadIdx.x;
    if (i >= k * k)
        return;
    T x = (T)NS_C * g[i] + (T)NS_B * a[i];
    if (i % (k + 1) == 0)
        x += (T)NS_A;
    g[i] = x;
}

/* p = keep p - rate x */
template <typename T> __global__ void __launch_bounds__(RT_UPDATE_THREADS) g_muon_move(const Muon a)
{
    const RtPart q = a.u.part[a.first + (int)blockIdx.x];
    if (!a.u.s->finite)
        return;
    const double lr = a.u.s->lr * q.rate;
    const T keep = (T)(1 - lr * q.decay), rate = (T)(lr * a.size);
    for (ptrdiff_t i = rt_update_first(q); i < q.to; i += RT_UPDATE_STRIDE) {
        T p[4], x[4];
        rt_take(p, a.u.p, q, i);
        rt_take_own(x, (const T *)a.x, a.from, q, i);
        for (int k = 0; k < 4; k++)
            p[k] = keep * p[k] - rate * x[k];
        rt_put_parameters(a.u, a.copy, q, i, p);
    }
}

static void product(float *c, const float *a, const float *b, RtMatmul p, RtStream *stream)
{
    rt_matmul_f32(c, a, b, p, stream);
}

static void product(double *c, const double *a, const double *b, RtMatmul p, RtStream *stream)
{
    rt_matmul_f64(c, a, b, p, stream);
}

/* Newton-Schulz: x[R,C] becomes (nearly) orthogonal; the result is in x or y, which it returns. */
template <typename T>
static T *orthogonal(const RtRun *run, ptrdiff_t R, ptrdiff_t C, T *x, T *y, T *a, T *g)
{
    const bool wide = R <= C;
    const ptrdiff_t k = wide ? R : C;
    RtStream *to = run->stream;
    for (int step = 0; step < NS_STEPS; step++) {
        to->where = run->model->train.where;
        product(a, x, x, rt_muon_square(R, C), to);
        product(g, a, a, rt_muon_power(R, C), to);
        RT_LAUNCH(to, run->model->train.where, g_muon_polynomial<T>,
                  rt_blocks(k * k, RT_UPDATE_THREADS), RT_UPDATE_THREADS, 0, g, (const T *)a, k);
        product(y, wide ? g : x, wide ? x : g, rt_muon_apply(R, C), to);
        T *swap = x;
        x = y;
        y = swap;
    }
    return x;
}

template <typename T> static void update_matrix(const RtRun *run, const RtParam *q, Muon u)
{
    const char *where = run->model->train.where;
    const ptrdiff_t R = q->shape[0], C = q->shape[1], k = R < C ? R : C;
    T *const x = (T *)run->arena, *const y = x + rt_muon_room(R * C);
    T *const a = y + rt_muon_room(R * C), *const g = a + rt_muon_room(k * k);
    RtStream *to = run->stream;
    u.x = x;
    RT_LAUNCH(to, where, g_muon_momentum<T>, u.n_parts, RT_UPDATE_THREADS, 0, u);
    RT_LAUNCH(to, where, g_muon_norm<T>, rt_blocks(u.n, RT_UPDATE_PART), RT_UPDATE_THREADS, 0, u);
    u.x = orthogonal(run, R, C, x, y, a, g);
    RT_LAUNCH(to, where, g_muon_move<T>, u.n_parts, RT_UPDATE_THREADS, 0, u);
}

/* ---- all else -------------------------------------------------------------------------------- */

/* The numbers of a part, as all elements read them. */
template <typename T> struct Numbers {
    T factor, beta1, beta2, more1, more2, eps, keep, rate, root;
};

template <typename T> RT_DEVICE void set_numbers(Numbers<T> *n, const Muon &a, const RtPart &q)
{
    const double lr = a.u.s->lr * q.rate * a.adamw_factor;
    n->factor = (T)rt_update_factor(a.u.s);
    n->beta1 = (T)a.beta1;
    n->beta2 = (T)a.beta2;
    n->more1 = (T)(1 - a.beta1);
    n->more2 = (T)(1 - a.beta2);
    n->eps = (T)a.eps;
    n->keep = (T)(1 - lr * q.decay);
    n->rate = (T)(lr / (1 - *a.power1));
    n->root = (T)(1 / sqrt(1 - *a.power2));
}

/* AdamW; the parts of matrices that Muon takes have nothing to do. */
template <typename T>
__global__ void __launch_bounds__(RT_UPDATE_THREADS) g_muon_adamw(const Muon a)
{
    __shared__ Numbers<T> shared;
    const RtPart q = a.u.part[blockIdx.x];
    const RtTensorRow t = a.tensor[q.tensor];
    if (!a.u.s->finite || t.own < 0)
        return;
    if (threadIdx.x == 0)
        set_numbers(&shared, a, q);
    __syncthreads();
    const Numbers<T> n = shared;
    T *own = (T *)a.u.state[MUON_SQUARES] + t.own;
    for (ptrdiff_t i = rt_update_first(q); i < q.to; i += RT_UPDATE_STRIDE) {
        T p[4], d[4], m[4], v[4];
        rt_take(p, a.u.p, q, i);
        rt_take(d, a.u.d_p, q, i);
        rt_take(m, a.u.state[MUON_MOMENTUM], q, i);
        rt_take_own(v, own, t.from, q, i);
        for (int k = 0; k < 4; k++) {
            const T g = n.factor * d[k];
            m[k] = n.beta1 * m[k] + n.more1 * g;
            v[k] = n.beta2 * v[k] + n.more2 * (g * g);
            p[k] = n.keep * p[k] - n.rate * m[k] / (rt_sqrt(v[k]) * n.root + n.eps);
        }
        rt_put(a.u.state[MUON_MOMENTUM], q, i, m);
        rt_put_own(own, t.from, q, i, v);
        rt_put_parameters(a.u, a.copy, q, i, p);
    }
}

/* ---- an update ------------------------------------------------------------------------------- */

static double size_factor(const RtTrain *t, const RtParam *q)
{
    const double R = (double)q->shape[0], C = (double)q->shape[1];
    return t->match_rms ? 0.2 * sqrt(fmax(R, C)) : sqrt(fmax(1.0, R / C));
}

template <typename T> static void queue(RtRun *run, Muon u)
{
    const RtTensors *all = run->state->tensors;
    const RtTrain *t = &run->state->opt->train;
    for (int i = 0; i < all->n; i++, u.first += u.n_parts) {
        const RtTensor *of = &all->at[i];
        const RtParam *q = &run->model->params[of->param];
        u.n_parts = rt_parts_of(of->all.from, of->all.to);
        u.from = of->all.from;
        u.n = of->all.to - of->all.from;
        if (!rt_muon_takes(q))
            continue;
        u.size = size_factor(t, q);
        update_matrix<T>(run, q, u);
    }
    RT_LAUNCH(run->stream, run->model->train.where, g_muon_adamw<T>, run->state->tables.n_parts,
              RT_UPDATE_THREADS, 0, u);
}

void rt_update_muon(RtRun *run, RtStep *s)
{
    const RtTrain *t = &run->state->opt->train;
    Muon u = {};
    u.u = rt_updates(run, s);
    u.copy = run->model->compute;
    u.tensor = run->state->tables.tensor;
    u.sums = run->state->tables.sums;
    u.momentum = rt_hyper(t, "momentum");
    u.ahead = t->nesterov ? (double)u.momentum : 1;
    u.beta1 = rt_hyper(t, "beta1");
    u.power1 = rt_power_of(run, "beta1");
    u.power2 = rt_power_of(run, "beta2");
    u.beta2 = rt_hyper(t, "beta2");
    u.eps = rt_hyper(t, "eps");
    u.adamw_factor = rt_hyper(t, "adamw-factor");
    if (run->model->real == RT_F64)
        queue<double>(run, u);
    else
        queue<float>(run, u);
    run->state->ema_moved = true;
}
