/* adafactor.cu -- Adafactor on the device; cpu/adafactor.c has the formulas.
 *
 * In: gradient, means, RtStep's twin. Out: parameters. Seven launches for all tensors: means of
 * squares of rows; of columns, in ranges of rows first, then the ranges added up; means of the rows
 * of each matrix; squares of p and u, and the means of vectors; the rate of each tensor; p. Tables
 * of tiles (tables.cu) say what a block works on. V is never stored.
 */
#include "optim.h"

#include <float.h>
#include <math.h>

typedef struct {
    RtUpdates u;
    RtType copy;
    const RtTensorRow *tensor;
    const RtTile *tile;
    double *sums;        /* of each part: squares of p, of u */
    double *numbers;     /* of each tensor: what p keeps, the rate of u */
    double *means;       /* of the rows' means, of each matrix */
    double *column_sums; /* of squares in RT_TILE_ROWS rows */
    double beta2_decay, eps1, eps2, d;
} Adafactor;

/* w = t^beta2_decay, the share of this update in the means: by one thread, for the block. */
RT_DEVICE double fresh_of(const Adafactor &a)
{
    __shared__ double fresh;
    if (threadIdx.x == 0)
        fresh = pow((double)(a.u.s->applied + 1), a.beta2_decay);
    __syncthreads();
    return fresh;
}

template <typename T> RT_DEVICE double square(T factor, T d)
{
    const double g = (double)(factor * d);
    return g * g;
}

/* ---- means of squares ------------------------------------------------------------------------ */

/* A warp per row, lane l owning columns l, l + 32, ... */
template <typename T>
__global__ void __launch_bounds__(RT_UPDATE_THREADS) g_adafactor_rows(const Adafactor a)
{
    const RtTile tile = a.tile[blockIdx.x];
    const RtTensorRow t = a.tensor[tile.tensor];
    if (!a.u.s->finite)
        return;
    const T factor = (T)rt_update_factor(a.u.s);
    const double fresh = fresh_of(a);
    for (ptrdiff_t k = tile.from + threadIdx.x / 32; k < tile.to; k += RT_UPDATE_THREADS / 32) {
        const T *row = (const T *)a.u.d_p + t.from + k * t.C;
        double sum = 0;
        for (ptrdiff_t j = threadIdx.x % 32; j < t.C; j += 32)
            sum += square(factor, row[j]);
        sum = rt_warp_sum(sum);
        if (threadIdx.x % 32 == 0) {
            T *mean = (T *)a.u.state[ADAFACTOR_ROWS] + t.rows + k;
            *mean = (T)((double)*mean + fresh * (sum / (double)t.C - (double)*mean));
        }
    }
}

/* A thread per column, in a range of rows. */
template <typename T>
__global__ void __launch_bounds__(RT_UPDATE_THREADS) g_adafactor_columns(const Adafactor a)
{
    const RtTile tile = a.tile[blockIdx.x];
    const RtTensorRow t = a.tensor[tile.tensor];
    const ptrdiff_t k = tile.from + threadIdx.x;
    if (!a.u.s->finite || k >= tile.to)
        return;
    const T factor = (T)rt_update_factor(a.u.s);
    const ptrdiff_t end = tile.row + RT_TILE_ROWS < t.R ? tile.row + RT_TILE_ROWS : t.R;
    const T *d = (const T *)a.u.d_p + t.from + k / t.C * t.R * t.C + k % t.C;
    double sum = 0;
    for (ptrdiff_t i = tile.row; i < end; i++)
        sum += square(factor, d[i * t.C]);
    a.column_sums[tile.at + threadIdx.x] = sum;
}

/* The same threads, those of the first range: the ranges of a column are added up. */
template <typename T>
__global__ void __launch_bounds__(RT_UPDATE_THREADS) g_adafactor_columns_end(const Adafactor a)
{
    const RtTile tile = a.tile[blockIdx.x];
    const RtTensorRow t = a.tensor[tile.tensor];
    const ptrdiff_t k = tile.from + threadIdx.x;
    if (!a.u.s->finite || tile.row > 0)
        return;
    const double fresh = fresh_of(a);
    if (k >= tile.to)
        return;
    double sum = 0;
    for (ptrdiff_t row = 0, at = tile.at + threadIdx.x; row < t.R; row += RT_TILE_ROWS) {
        sum += a.column_sums[at];
        at += t.matrices * t.C;
    }
    T *mean = (T *)a.u.state[ADAFACTOR_COLUMNS] + t.own + k;
    *mean = (T)((double)*mean + fresh * (sum / (double)t.R - (double)*mean));
}

/* A warp per matrix; the whole block where a matrix has as many rows. */
template <typename T>
__global__ void __launch_bounds__(RT_UPDATE_THREADS) g_adafactor_means(const Adafactor a)
{
    const RtTile tile = a.tile[blockIdx.x];
    const RtTensorRow t = a.tensor[tile.tensor];
    if (!a.u.s->finite)
        return;
    const T *r = (const T *)a.u.state[ADAFACTOR_ROWS] + t.rows;
    const bool whole = t.R >= RT_UPDATE_THREADS;
    const int width = whole ? RT_UPDATE_THREADS : 32;
    for (ptrdiff_t k = tile.from + threadIdx.x / width; k < tile.to;
         k += RT_UPDATE_THREADS / width) {
        double sum = 0;
        for (ptrdiff_t i = threadIdx.x % width; i < t.R; i += width)
            sum += (double)r[k * t.R + i];
        sum = whole ? rt_update_sum(sum) : rt_warp_sum(sum);
        if (threadIdx.x % width == 0)
            a.means[t.matrix + k] = sum / (double)t.R;
    }
}

/* ---- u --------------------------------------------------------------------------------------- */

typedef struct { /* where an element of a tensor is */
    ptrdiff_t row, column;
} Place;

RT_DEVICE Place place_of(const RtTensorRow &t, ptrdiff_t i)
{
    const ptrdiff_t e = i - t.from;
    Place at = { 0, e };
    if (t.to - t.from <= (ptrdiff_t)UINT32_MAX)
        at.row = (uint32_t)e / (uint32_t)t.C;
    else
        at.row = e / t.C;
    at.column = e - at.row * t.C;
    return at;
}

/* What the means of columns are multiplied with in a row: its own, against those of all rows. */
template <typename T> RT_DEVICE T row_scale(const Adafactor &a, const RtTensorRow &t, ptrdiff_t row)
{
    const T *r = (const T *)a.u.state[ADAFACTOR_ROWS] + t.rows;
    return (T)((double)r[row] / fmax(a.means[t.matrix + row / t.R], a.eps1));
}

/* u of elements i..i+3, 0 where they are not in the part. */
template <typename T>
RT_DEVICE void directions(T (&u)[4], const Adafactor &a, const RtTensorRow &t, T factor,
                          const RtPart &q, ptrdiff_t i)
{
    const T least = (T)(a.eps1 * a.eps1);
    const T *mean = (const T *)a.u.state[t.matrices ? ADAFACTOR_COLUMNS : ADAFACTOR_WHOLE] + t.own;
    ptrdiff_t last = -1;
    T d[4], scale = 1;
    rt_take(d, a.u.d_p, q, i);
    for (int k = 0; k < 4; k++) {
        u[k] = 0;
        if (!rt_part_has(q, i + k))
            continue;
        const Place at = place_of(t, i + k);
        if (t.matrices && at.row != last)
            scale = row_scale<T>(a, t, at.row);
        last = at.row;
        const T v = scale * mean[at.row / t.R * t.C + at.column];
        u[k] = factor * d[k] * rt_rsqrt(v > least ? v : least);
    }
}

/* Of a vector: means of squares of its elements. */
template <typename T>
RT_DEVICE void own_means(const Adafactor &a, const RtTensorRow &t, T factor, T fresh,
                         const RtPart &q, ptrdiff_t i)
{
    T *first = (T *)a.u.state[ADAFACTOR_WHOLE] + t.own;
    T d[4], v[4];
    rt_take(d, a.u.d_p, q, i);
    rt_take_own(v, first, t.from, q, i);
    for (int k = 0; k < 4; k++) {
        const T g = factor * d[k];
        v[k] += fresh * (g * g - v[k]);
    }
    rt_put_own(first, t.from, q, i, v);
}

/* A block per part, thread j owning elements 4 j to 4 j + 3 of every RT_UPDATE_STRIDE. */
template <typename T>
__global__ void __launch_bounds__(RT_UPDATE_THREADS) g_adafactor_squares(const Adafactor a)
{
    const RtPart q = a.u.part[blockIdx.x];
    const RtTensorRow t = a.tensor[q.tensor];
    if (!a.u.s->finite)
        return;
    const T factor = (T)rt_update_factor(a.u.s), fresh = (T)fresh_of(a);
    double own = 0, move = 0;
    for (ptrdiff_t i = rt_update_first(q); i < q.to; i += RT_UPDATE_STRIDE) {
        T p[4], u[4];
        rt_take(p, a.u.p, q, i);
        if (t.matrices == 0)
            own_means(a, t, factor, fresh, q, i);
        directions(u, a, t, factor, q, i);
        for (int k = 0; k < 4; k++) {
            own += (double)p[k] * (double)p[k];
            move += (double)u[k] * (double)u[k];
        }
    }
    own = rt_update_sum(own);
    move = rt_update_sum(move);
    if (threadIdx.x == 0) {
        a.sums[2 * (ptrdiff_t)blockIdx.x] = own;
        a.sums[2 * (ptrdiff_t)blockIdx.x + 1] = move;
    }
}

/* A block per tensor: alpha / max(1, rms(u) / d), and 1 - lr decay. */
__global__ void __launch_bounds__(RT_UPDATE_THREADS) g_adafactor_rates(const Adafactor a)
{
    const RtTensorRow t = a.tensor[blockIdx.x];
    if (!a.u.s->finite)
        return;
    const double *sums = a.sums + 2 * (ptrdiff_t)t.first, n = (double)(t.to - t.from);
    const double own = sqrt(rt_update_sum_of(sums, t.n, 2) / n);
    const double move = sqrt(rt_update_sum_of(sums + 1, t.n, 2) / n);
    if (threadIdx.x > 0)
        return;
    const double lr = a.u.s->lr * t.rate;
    const double rho = fmin(lr, 1 / sqrt((double)(a.u.s->applied + 1)));
    a.numbers[2 * (ptrdiff_t)blockIdx.x] = 1 - lr * t.decay;
    a.numbers[2 * (ptrdiff_t)blockIdx.x + 1] = fmax(a.eps2, own) * rho / fmax(1.0, move / a.d);
}

template <typename T>
__global__ void __launch_bounds__(RT_UPDATE_THREADS) g_adafactor_move(const Adafactor a)
{
    const RtPart q = a.u.part[blockIdx.x];
    const RtTensorRow t = a.tensor[q.tensor];
    if (!a.u.s->finite)
        return;
    const T factor = (T)rt_update_factor(a.u.s);
    const T keep = (T)a.numbers[2 * (ptrdiff_t)q.tensor];
    const T rate = (T)a.numbers[2 * (ptrdiff_t)q.tensor + 1];
    for (ptrdiff_t i = rt_update_first(q); i < q.to; i += RT_UPDATE_STRIDE) {
        T p[4], u[4];
        rt_take(p, a.u.p, q, i);
        directions(u, a, t, factor, q, i);
        for (int k = 0; k < 4; k++)
            p[k] = keep * p[k] - rate * u[k];
        rt_put_parameters(a.u, a.copy, q, i, p);
    }
}

/* ---- an update ------------------------------------------------------------------------------- */

template <typename T> static void queue(RtRun *run, Adafactor a)
{
    const RtOptimTables *t = &run->state->tables;
    const char *where = run->model->train.where;
    RtStream *to = run->stream;
    a.tile = t->rows;
    RT_LAUNCH(to, where, g_adafactor_rows<T>, t->n_rows, RT_UPDATE_THREADS, 0, a);
    a.tile = t->columns;
    RT_LAUNCH(to, where, g_adafactor_columns<T>, t->n_columns, RT_UPDATE_THREADS, 0, a);
    RT_LAUNCH(to, where, g_adafactor_columns_end<T>, t->n_columns, RT_UPDATE_THREADS, 0, a);
    a.tile = t->matrices;
    RT_LAUNCH(to, where, g_adafactor_means<T>, t->n_matrices, RT_UPDATE_THREADS, 0, a);
    RT_LAUNCH(to, where, g_adafactor_squares<T>, t->n_parts, RT_UPDATE_THREADS, 0, a);
    RT_LAUNCH(to, where, g_adafactor_rates, t->n_tensors, RT_UPDATE_THREADS, 0, a);
    RT_LAUNCH(to, where, g_adafactor_move<T>, t->n_parts, RT_UPDATE_THREADS, 0, a);
}

void rt_update_adafactor(RtRun *run, RtStep *s)
{
    const RtTrain *t = &run->state->opt->train;
    const RtOptimTables *tables = &run->state->tables;
    const bool wide = run->model->real == RT_F64;
    Adafactor a = {};
    a.u = rt_updates(run, s);
    a.copy = run->model->compute;
    a.tensor = tables->tensor;
    a.sums = tables->sums;
    a.numbers = tables->numbers;
    a.means = tables->means;
    a.column_sums = tables->column_sums;
    a.beta2_decay = rt_hyper(t, "beta2-decay");
    a.eps1 = rt_hyper(t, "eps1");
    a.eps2 = rt_hyper(t, "eps2");
    a.d = rt_hyper(t, "d");
    if (a.eps1 == 0)
        a.eps1 = wide ? DBL_EPSILON : (double)FLT_EPSILON;
    if (wide)
        queue<double>(run, a);
    else
        queue<float>(run, a);
    run->state->ema_moved = true;
}
