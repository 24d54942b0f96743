/* norm.cu -- from gradients to finite flag, norm and clip factor, all in the memory of the device.
 *
 * In: the flat gradient, still multiplied by the loss scale. Out: finite, norm, limited and factor
 * of the step's twin there; with a value to clip at, elements limited to it; the optimizer's
 * numbers to the power of the update's, which the blocks of an update read. The one idea: each
 * block adds up the squares of its parts in double; the last block to end adds up those sums and
 * decides. Blocks and order depend on the sizes alone, so the result has the same bits anywhere.
 */
#include "optim.h"

#include <math.h>

typedef struct {
    void *d_p;
    const RtPart *part;
    int n_parts;
    double *sums;   /* two of each block */
    unsigned *done; /* blocks that have ended */
    RtStep *s;
    uint64_t slots;                      /* bit i: slot i is part of the loss, and must be finite */
    double clip;                         /* largest norm; 0: none, or it is decided on later */
    double value;                        /* largest size of an element */
    double hyper[RT_MAX_HYPERS], *power; /* as in RtUpdates */
    int n_hypers;
} Norm;

#define RT_TINY 0x1p-600 /* squares that no double holds, are those of so many times the elements */

/* Squares of floats fit a double, so the sum is finite if and only if all elements are. */
RT_DEVICE void add_square(double sums[2], float g) { sums[0] = fma((double)g, (double)g, sums[0]); }

/* Squares of doubles need not: the second sum is that of elements times RT_TINY. */
RT_DEVICE void add_square(double sums[2], double g)
{
    const double a = g + g * 0, b = g * RT_TINY + g * 0; /* NaN if g is not finite */
    sums[0] = fma(a, a, sums[0]);
    sums[1] = fma(b, b, sums[1]);
}

/* Has every other block of the launch written its sums? Of all threads. */
RT_DEVICE bool is_last_block(unsigned *done)
{
    __shared__ bool last;
    if (threadIdx.x == 0) {
        __threadfence();
        last = atomicAdd(done, 1u) == gridDim.x - 1;
        if (last)
            atomicExch(done, 0u); /* for the next launch */
        __threadfence();
    }
    __syncthreads();
    return last;
}

/* The sums of the block to memory; behind the last block those of all, of thread 0: true there. */
RT_DEVICE bool sum_blocks(const Norm &n, double sums[2])
{
    for (int i = 0; i < 2; i++) {
        const double sum = rt_update_sum(sums[i]);
        if (threadIdx.x == 0)
            n.sums[2 * (ptrdiff_t)blockIdx.x + i] = sum;
    }
    if (!is_last_block(n.done))
        return false;
    for (int i = 0; i < 2; i++)
        sums[i] = rt_update_sum_of(n.sums + i, (int)gridDim.x, 2);
    return threadIdx.x == 0;
}

RT_DEVICE double scale_of(const RtStep *s) { return s->scale > 0 ? s->scale : 1; }

RT_DEVICE void set_factor(RtStep *s, double clip)
{
    s->factor = s->finite && clip > 0 && s->limited > clip ? clip / s->limited : 1;
}

/* A block adds up every gridDim.x-th part. */
template <typename T> __global__ void __launch_bounds__(RT_UPDATE_THREADS) g_norm(const Norm n)
{
    double sums[2] = { 0, 0 };
    for (int k = (int)blockIdx.x; k < n.n_parts; k += (int)gridDim.x) {
        const RtPart q = n.part[k];
        for (ptrdiff_t i = rt_update_first(q); i < q.to; i += RT_UPDATE_STRIDE) {
            T g[4];
            rt_take(g, n.d_p, q, i);
            for (int j = 0; j < 4; j++)
                add_square(sums, g[j]);
        }
    }
    if (!sum_blocks(n, sums))
        return;
    const bool scaled = sizeof(T) == sizeof(double) && isinf(sums[0]);
    const double squares = scaled ? sums[1] : sums[0];
    const double norm = sqrt(squares) / (scaled ? RT_TINY : 1) / scale_of(n.s);
    bool finite = isfinite(squares) && !n.s->held;
    for (int i = 0; i < RT_MAX_SLOTS; i++)
        if (n.slots >> i & 1 && !isfinite(n.s->sum[i]))
            finite = false;
    n.s->norm = n.s->limited = isnan(norm) ? (double)NAN : norm;
    n.s->finite = finite;
    set_factor(n.s, n.clip);
    for (int i = 0; i < n.n_hypers; i++)
        n.power[i] = rt_pow(n.hyper[i], (double)(n.s->applied + 1));
}

/* The same, of elements that are limited first. */
template <typename T>
__global__ void __launch_bounds__(RT_UPDATE_THREADS) g_clip_value(const Norm n)
{
    if (!n.s->finite)
        return;
    const T hi = (T)(n.value * scale_of(n.s)), lo = -hi;
    double sums[2] = { 0, 0 };
    for (int k = (int)blockIdx.x; k < n.n_parts; k += (int)gridDim.x) {
        const RtPart q = n.part[k];
        for (ptrdiff_t i = rt_update_first(q); i < q.to; i += RT_UPDATE_STRIDE) {
            T g[4];
            rt_take(g, n.d_p, q, i);
            for (int j = 0; j < 4; j++) {
                g[j] = g[j] > hi ? hi : g[j] < lo ? lo : g[j];
                sums[0] = fma((double)g[j], (double)g[j], sums[0]);
            }
            rt_put(n.d_p, q, i, g);
        }
    }
    if (!sum_blocks(n, sums))
        return;
    n.s->limited = sqrt(sums[0]) / scale_of(n.s);
    set_factor(n.s, n.clip);
}

static Norm norm_of(const RtRun *run, const RtStep *s)
{
    const RtOptimTables *t = &run->state->tables;
    const RtTrain *train = &run->state->opt->train;
    Norm n = {};
    n.d_p = run->d_p;
    n.part = t->part;
    n.n_parts = t->n_parts;
    n.sums = t->sums;
    n.done = t->done;
    n.s = s->device;
    n.clip = train->clip;
    n.value = train->clip_value;
    n.power = t->power;
    n.n_hypers = train->n_hypers;
    for (int i = 0; i < n.n_hypers; i++)
        n.hyper[i] = train->hyper[i].value;
    for (int i = 0; i < run->model->n_slots; i++)
        if (run->model->slots[i].weight != 0)
            n.slots |= (uint64_t)1 << i;
    return n;
}

static int norm_blocks(const Norm *n)
{
    return n->n_parts > RT_NORM_BLOCKS ? RT_NORM_BLOCKS : n->n_parts > 0 ? n->n_parts : 1;
}

void rt_finite_and_norm(RtRun *run, RtStep *s)
{
    Norm n = norm_of(run, s);
    if (n.value > 0)
        n.clip = 0; /* its norm is that behind rt_clip_value */
    const char *where = run->model->train.where;
    if (run->model->real == RT_F64)
        RT_LAUNCH(run->stream, where, g_norm<double>, norm_blocks(&n), RT_UPDATE_THREADS, 0, n);
    else
        RT_LAUNCH(run->stream, where, g_norm<float>, norm_blocks(&n), RT_UPDATE_THREADS, 0, n);
}

void rt_clip_value(RtRun *run, RtStep *s)
{
    const Norm n = norm_of(run, s);
    const char *where = run->model->train.where;
    if (!(n.value > 0))
        return;
    if (run->model->real == RT_F64)
        RT_LAUNCH(run->stream, where, g_clip_value<double>, norm_blocks(&n), RT_UPDATE_THREADS, 0,
                  n);
    else
        RT_LAUNCH(run->stream, where, g_clip_value<float>, norm_blocks(&n), RT_UPDATE_THREADS, 0,
                  n);
}

/* The launch that ends the norm has the factor, too: it knows all that it takes. */
void rt_clip(RtRun *run, RtStep *s)
{
    RT_UNUSED(run);
    RT_UNUSED(s);
}
