/* attention_plain.cu -- attention and its gradient in fp32 and fp64, on the cores that do single
 * products; and in 16 bits where heads are too long for attention_forward.cu.
 *
 * In: q, k, v (and y, lse, d_y) in place, of any size. Out: y and lse; d_q; d_k and d_v. A block of
 * 256 threads, 16 by 16, takes 64 rows of one head: queries for y and d_q, keys for d_k and d_v. A
 * thread holds 4 by 4 of everything: scores of rows ty + 16 i and columns tx + 16 j, and of the
 * result 4 columns of the same rows. The one idea: one product of rows by rows and one of weights
 * by rows, both by way of shared memory, are all there is. Results wider than 64 columns are done
 * 64 at a time, by blocks of their own, which compute the scores again.
 */
#include "cuda/attention.h"

enum {
    SIDE = 16, /* threads of a block: SIDE by SIDE */
    PLAIN_THREADS = SIDE * SIDE,
    TILE = 64,          /* rows of a block, rows that it meets, columns of a result */
    EACH = TILE / SIDE, /* of a thread, along each axis */
    DEPTH = 32,         /* columns of q and k in shared memory */
};

/* What lies in memory as T and is computed with as Real. */
struct F32 {
    typedef float T, Real;
    static __device__ __forceinline__ float get(float x) { return x; }
    static __device__ __forceinline__ float put(float x) { return x; }
};
struct F64 {
    typedef double T, Real;
    static __device__ __forceinline__ double get(double x) { return x; }
    static __device__ __forceinline__ double put(double x) { return x; }
};
struct OfBf16 {
    typedef rt_bf16 T;
    typedef float Real;
    static __device__ __forceinline__ float get(rt_bf16 x) { return rt_of_bf16(x); }
    static __device__ __forceinline__ rt_bf16 put(float x) { return rt_to_bf16(x); }
};
struct OfF16 {
    typedef rt_f16 T;
    typedef float Real;
    static __device__ __forceinline__ float get(rt_f16 x) { return rt_of_f16(x); }
    static __device__ __forceinline__ rt_f16 put(float x) { return rt_to_f16(x); }
};

/* 16 bytes of Reals; rows in shared memory are that much longer than their columns, so that 8 rows
   lie in different banks. */
template <class Real> struct Pack {
    enum { N = 16 / sizeof(Real), DEPTH_STEP = DEPTH + N, TILE_STEP = TILE + N };
    enum {
        STAGE = 2 * TILE * DEPTH_STEP > TILE *TILE_STEP ? 2 * TILE *DEPTH_STEP : TILE *TILE_STEP
    };
    enum { ROOM = (STAGE + TILE * TILE_STEP) * sizeof(Real) };
    alignas(16) Real at[N];
};

/* Rows of one head in memory, `depth` values each. */
template <class T> struct PlainRows {
    const T *at;
    ptrdiff_t step, rows, depth;
};

static __device__ __forceinline__ float power(float x) { return expf(x); }
static __device__ __forceinline__ double power(double x) { return exp(x); }
static __device__ __forceinline__ float logarithm(float x) { return logf(x); }
static __device__ __forceinline__ double logarithm(double x) { return log(x); }

/* Rows first .. first + TILE - 1, columns column .. column + COLUMNS - 1 go into shared memory;
   zeros beyond the last. */
template <class Type, int COLUMNS, int STEP>
static __device__ __forceinline__ void stage(typename Type::Real *to,
                                             PlainRows<typename Type::T> from, ptrdiff_t first,
                                             ptrdiff_t column)
{
    constexpr int at_once = PLAIN_THREADS / COLUMNS;
    const int c = (int)threadIdx.x % COLUMNS, row = (int)threadIdx.x / COLUMNS;
    const int left = column + c < from.depth ? (int)rt_min(from.rows - first, (ptrdiff_t)TILE) : 0;
    const typename Type::T *at = from.at + (first + row) * from.step + column + c;
    to += row * STEP + c;
#pragma unroll 4
    for (int r = 0; r < TILE; r += at_once) {
        to[r * STEP] = row + r < left ? Type::get(*at) : 0;
        at += at_once * from.step;
    }
}

/* s = rows a0 .. of a times rows b0 .. of b. */
template <class Type>
static __device__ __forceinline__ void rows_by_rows(typename Type::Real s[EACH][EACH],
                                                    PlainRows<typename Type::T> a, ptrdiff_t a0,
                                                    PlainRows<typename Type::T> b, ptrdiff_t b0,
                                                    typename Type::Real *shared)
{
    typedef typename Type::Real Real;
    typedef Pack<Real> Pack;
    constexpr int N = Pack::N, STEP = Pack::DEPTH_STEP;
    Real *const of_a = shared, *const of_b = shared + TILE * STEP;
    const int tx = (int)threadIdx.x % SIDE, ty = (int)threadIdx.x / SIDE;
#pragma unroll
    for (int i = 0; i < EACH; i++)
#pragma unroll
        for (int j = 0; j < EACH; j++)
            s[i][j] = 0;
    for (ptrdiff_t d0 = 0; d0 < a.depth; d0 += DEPTH) {
        __syncthreads(); /* nobody reads what was there */
        stage<Type, DEPTH, STEP>(of_a, a, a0, d0);
        stage<Type, DEPTH, STEP>(of_b, b, b0, d0);
        __syncthreads();
#pragma unroll 1
        for (int d = 0; d < DEPTH; d += N) {
            Pack x[EACH], y[EACH];
#pragma unroll
            for (int i = 0; i < EACH; i++) {
                x[i] = *(const Pack *)(of_a + (ty + SIDE * i) * STEP + d);
                y[i] = *(const Pack *)(of_b + (tx + SIDE * i) * STEP + d);
            }
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int i = 0; i < EACH; i++)
#pragma unroll
                    for (int j = 0; j < EACH; j++)
                        s[i][j] = fma(x[i].at[n], y[j].at[n], s[i][j]);
        }
    }
}

/* Column number j of the 4 that a thread has of a result. */
template <class Real> static __device__ __forceinline__ int column_of(int j)
{
    constexpr int N = Pack<Real>::N;
    return j / N * SIDE * N + (int)threadIdx.x % SIDE * N + j % N;
}

/* o += w, the weights of 64 rows and 64 others, times those others: rows b0 .. of b, columns
   column .. column + TILE - 1. */
template <class Type>
static __device__ __forceinline__ void add_weighted(typename Type::Real o[EACH][EACH],
                                                    const typename Type::Real w[EACH][EACH],
                                                    PlainRows<typename Type::T> b, ptrdiff_t b0,
                                                    ptrdiff_t column, typename Type::Real *shared)
{
    typedef typename Type::Real Real;
    typedef Pack<Real> Pack;
    constexpr int N = Pack::N, STEP = Pack::TILE_STEP;
    Real *const of_b = shared, *const of_w = shared + Pack::STAGE;
    const int tx = (int)threadIdx.x % SIDE, ty = (int)threadIdx.x / SIDE;
    __syncthreads(); /* nobody reads what was there */
    stage<Type, TILE, STEP>(of_b, b, b0, column);
#pragma unroll
    for (int i = 0; i < EACH; i++)
#pragma unroll
        for (int j = 0; j < EACH; j++)
            of_w[(ty + SIDE * i) * STEP + tx + SIDE * j] = w[i][j];
    __syncthreads();
#pragma unroll 1
    for (int s = 0; s < TILE; s += N) {
        Pack x[EACH], y[EACH / N];
#pragma unroll
        for (int i = 0; i < EACH; i++)
            x[i] = *(const Pack *)(of_w + (ty + SIDE * i) * STEP + s);
#pragma unroll
        for (int n = 0; n < N; n++) {
#pragma unroll
            for (int j = 0; j < EACH / N; j++)
                y[j] = *(const Pack *)(of_b + (s + n) * STEP + column_of<Real>(j * N));
#pragma unroll
            for (int i = 0; i < EACH; i++)
#pragma unroll
                for (int j = 0; j < EACH; j++)
                    o[i][j] = fma(x[i].at[n], y[j / N].at[j % N], o[i][j]);
        }
    }
}

template <class Type>
static __device__ __forceinline__ void put_rows(typename Type::T *to, ptrdiff_t step,
                                                ptrdiff_t first, ptrdiff_t rows, ptrdiff_t column,
                                                ptrdiff_t columns,
                                                const typename Type::Real o[EACH][EACH],
                                                const typename Type::Real factor[EACH])
{
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const ptrdiff_t row = first + (int)threadIdx.x / SIDE + SIDE * i;
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            const ptrdiff_t c = column + column_of<typename Type::Real>(j);
            if (row < rows && c < columns)
                to[row * step + c] = Type::put(o[i][j] * factor[i]);
        }
    }
}

/* Over the 16 threads of a row, in a fixed order. */
template <class Real> static __device__ __forceinline__ Real row_sum(Real x)
{
#pragma unroll
    for (int step = 1; step < SIDE; step *= 2)
        x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

template <class Real> static __device__ __forceinline__ Real row_max(Real x)
{
#pragma unroll
    for (int step = 1; step < SIDE; step *= 2) {
        const Real y = __shfl_xor_sync(0xffffffffu, x, step);
        x = x > y ? x : y;
    }
    return x;
}

/* ---- forward --------------------------------------------------------------------------------- */

/* Scores of a row become weights; what was summed before is scaled to the new maximum. */
template <class Real>
static __device__ __forceinline__ void soften(Real s[EACH], Real o[EACH], Real *most, Real *sum,
                                              Real scale, ptrdiff_t seen)
{
    const int tx = (int)threadIdx.x % SIDE;
    Real top = *most;
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        s[j] = tx + SIDE * j < seen ? s[j] * scale : -(Real)INFINITY;
        top = s[j] > top ? s[j] : top;
    }
    top = row_max(top);
    const Real base = top == -(Real)INFINITY ? 0 : top, worth = power(*most - base);
    Real total = *sum * worth;
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        s[j] = power(s[j] - base);
        total += s[j];
        o[j] *= worth;
    }
    *most = top;
    *sum = total;
}

template <class Type>
static __device__ __forceinline__ void plain_forward(
    const AttentionTensors<typename Type::T, typename Type::Real> &x, const AttentionCall &c)
{
    typedef typename Type::Real Real;
    typedef PlainRows<typename Type::T> Rows;
    RT_SHARED_ARENA(Real, shared);
    const RtAttention *a = &c.a;
    const unsigned head = blockIdx.x / c.blocks;
    const ptrdiff_t t0 = (ptrdiff_t)(c.blocks - 1 - blockIdx.x % c.blocks) * TILE;
    const ptrdiff_t column = (ptrdiff_t)blockIdx.y * TILE;
    const Rows q = { x.q + attention_head(a, a->q, head), a->q.t, a->T, a->D };
    const Rows k = { x.k + attention_keys(a, a->k, head), a->k.t, a->S, a->D };
    const Rows v = { x.v + attention_keys(a, a->v, head), a->v.t, a->S, a->E };
    const ptrdiff_t last = attention_seen(a, rt_min(t0 + TILE, a->T) - 1);
    const int ty = (int)threadIdx.x / SIDE;
    Real s[EACH][EACH], o[EACH][EACH] = {}, most[EACH], sum[EACH], factor[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        most[i] = -(Real)INFINITY;
        sum[i] = 0;
    }
    for (ptrdiff_t s0 = 0; s0 < last; s0 += TILE) {
        rows_by_rows<Type>(s, q, t0, k, s0, shared);
#pragma unroll
        for (int i = 0; i < EACH; i++)
            soften(s[i], o[i], &most[i], &sum[i], (Real)a->scale,
                   attention_seen(a, t0 + ty + SIDE * i) - s0);
        add_weighted<Type>(o, s, v, s0, column, shared);
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const ptrdiff_t t = t0 + ty + SIDE * i;
        const bool any = attention_seen(a, t) > 0;
        const Real all = row_sum(sum[i]);
        factor[i] = any ? 1 / all : 0;
        if (threadIdx.x % SIDE == 0 && blockIdx.y == 0 && t < a->T)
            x.to_lse[head * a->T + t] = any ? most[i] + logarithm(all) : 0;
    }
    put_rows<Type>(x.to_y + attention_head(a, a->y, head), a->y.t, t0, a->T, column, a->E, o,
                   factor);
}

/* ---- gradient -------------------------------------------------------------------------------- */

/* delta = sum of y d_y of each of the thread's rows; kept for the second kernel by one block. */
template <class Type>
static __device__ __forceinline__ void sum_delta(typename Type::Real delta[EACH],
                                                 typename Type::Real *keep,
                                                 PlainRows<typename Type::T> y,
                                                 PlainRows<typename Type::T> d_y, ptrdiff_t t0)
{
    const int tx = (int)threadIdx.x % SIDE, ty = (int)threadIdx.x / SIDE;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const ptrdiff_t t = t0 + ty + SIDE * i;
        delta[i] = 0;
        for (ptrdiff_t e = tx; e < y.depth && t < y.rows; e += SIDE)
            delta[i] = fma(Type::get(y.at[t * y.step + e]), Type::get(d_y.at[t * d_y.step + e]),
                           delta[i]);
        delta[i] = row_sum(delta[i]);
        if (tx == 0 && blockIdx.y == 0 && t < y.rows)
            keep[t] = delta[i];
    }
}

template <class Type>
static __device__ __forceinline__ void plain_grad_q(
    const AttentionTensors<typename Type::T, typename Type::Real> &x, const AttentionCall &c)
{
    typedef typename Type::Real Real;
    typedef PlainRows<typename Type::T> Rows;
    RT_SHARED_ARENA(Real, shared);
    const RtAttention *a = &c.a;
    const unsigned head = blockIdx.x / c.blocks;
    const ptrdiff_t t0 = (ptrdiff_t)(c.blocks - 1 - blockIdx.x % c.blocks) * TILE;
    const ptrdiff_t column = (ptrdiff_t)blockIdx.y * TILE;
    const Rows q = { x.q + attention_head(a, a->q, head), a->q.t, a->T, a->D };
    const Rows k = { x.k + attention_keys(a, a->k, head), a->k.t, a->S, a->D };
    const Rows v = { x.v + attention_keys(a, a->v, head), a->v.t, a->S, a->E };
    const Rows y = { x.y + attention_head(a, a->y, head), a->y.t, a->T, a->E };
    const Rows d_y = { x.d_y + attention_head(a, a->d_y, head), a->d_y.t, a->T, a->E };
    const ptrdiff_t last = attention_seen(a, rt_min(t0 + TILE, a->T) - 1);
    const int tx = (int)threadIdx.x % SIDE, ty = (int)threadIdx.x / SIDE;
    const Real scale = (Real)a->scale;
    Real s[EACH][EACH], dp[EACH][EACH], o[EACH][EACH] = {}, delta[EACH], lse[EACH], factor[EACH];
    sum_delta<Type>(delta, x.delta + head * a->T, y, d_y, t0);
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const ptrdiff_t t = t0 + ty + SIDE * i;
        lse[i] = t < a->T ? x.lse[head * a->T + t] : 0;
        factor[i] = scale;
    }
    for (ptrdiff_t s0 = 0; s0 < last; s0 += TILE) {
        rows_by_rows<Type>(s, q, t0, k, s0, shared);
        rows_by_rows<Type>(dp, d_y, t0, v, s0, shared);
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const ptrdiff_t t = t0 + ty + SIDE * i;
            const ptrdiff_t seen = t < a->T ? attention_seen(a, t) - s0 : 0;
#pragma unroll
            for (int j = 0; j < EACH; j++) {
                const Real p = power(s[i][j] * scale - lse[i]);
                s[i][j] = tx + SIDE * j < seen ? p * (dp[i][j] - delta[i]) : 0;
            }
        }
        add_weighted<Type>(o, s, k, s0, column, shared);
    }
    put_rows<Type>(x.d_q + attention_head(a, a->d_q, head), a->d_q.t, t0, a->T, column, a->D, o,
                   factor);
}

/* Rows of scores are keys here, columns are queries: those of all heads that share the keys. */
template <class Type>
static __device__ __forceinline__ void plain_grad_kv(
    const AttentionTensors<typename Type::T, typename Type::Real> &x, const AttentionCall &c)
{
    typedef typename Type::Real Real;
    typedef PlainRows<typename Type::T> Rows;
    RT_SHARED_ARENA(Real, shared);
    const RtAttention *a = &c.a;
    const unsigned head = blockIdx.x / c.blocks * (unsigned)a->group; /* the first that shares k */
    const ptrdiff_t s0 = (ptrdiff_t)(blockIdx.x % c.blocks) * TILE;
    const ptrdiff_t column = (ptrdiff_t)blockIdx.y * TILE;
    Rows q = { x.q + attention_head(a, a->q, head), a->q.t, a->T, a->D };
    const Rows k = { x.k + attention_keys(a, a->k, head), a->k.t, a->S, a->D };
    const Rows v = { x.v + attention_keys(a, a->v, head), a->v.t, a->S, a->E };
    Rows d_y = { x.d_y + attention_head(a, a->d_y, head), a->d_y.t, a->T, a->E };
    const ptrdiff_t first = a->causal ? rt_max(s0 + a->T - a->S, (ptrdiff_t)0) / TILE * TILE : 0;
    const int tx = (int)threadIdx.x % SIDE, ty = (int)threadIdx.x / SIDE;
    Real p[EACH][EACH], dp[EACH][EACH], k_o[EACH][EACH] = {}, v_o[EACH][EACH] = {}, factor[EACH];
    ptrdiff_t row = head * a->T;              /* of lse and delta */
    int heads = a->T > 0 ? (int)a->group : 0; /* that are left */
    for (ptrdiff_t t0 = first; heads > 0;) {
        rows_by_rows<Type>(p, k, s0, q, t0, shared);
        rows_by_rows<Type>(dp, v, s0, d_y, t0, shared);
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            const ptrdiff_t t = t0 + tx + SIDE * j, at = row + t;
            const bool live = t < a->T;
            const Real lse = live ? x.lse[at] : 0, delta = live ? x.delta[at] : 0;
            const ptrdiff_t seen = live ? attention_seen(a, t) : 0;
#pragma unroll
            for (int i = 0; i < EACH; i++) {
                const bool sees = s0 + ty + SIDE * i < seen;
                p[i][j] = sees ? power(p[i][j] * (Real)a->scale - lse) : 0;
                dp[i][j] = sees ? p[i][j] * (dp[i][j] - delta) : 0;
            }
        }
        if (column < a->E)
            add_weighted<Type>(v_o, p, d_y, t0, column, shared);
        if (column < a->D)
            add_weighted<Type>(k_o, dp, q, t0, column, shared);
        t0 += TILE;
        if (t0 >= a->T) { /* the next head of the group */
            t0 = first;
            heads--;
            q.at += a->q.h;
            d_y.at += a->d_y.h;
            row += a->T;
        }
    }
#pragma unroll
    for (int i = 0; i < EACH; i++)
        factor[i] = (Real)a->scale;
    put_rows<Type>(x.d_k + attention_keys(a, a->d_k, head), a->d_k.t, s0, a->S, column, a->D, k_o,
                   factor);
#pragma unroll
    for (int i = 0; i < EACH; i++)
        factor[i] = 1;
    put_rows<Type>(x.d_v + attention_keys(a, a->d_v, head), a->d_v.t, s0, a->S, column, a->E, v_o,
                   factor);
}

/* ---- kernels and their launches -------------------------------------------------------------- */

static int panels(ptrdiff_t columns) { return columns > TILE ? rt_blocks(columns, TILE) : 1; }

/* A block for each 64 rows of each head and 64 columns of the result. */
#define LAUNCH(kernel, Real, heads, rows, columns, x)                                              \
    do {                                                                                           \
        const AttentionCall c = { a, (unsigned)rt_blocks(rows, TILE), false };                     \
        const dim3 grid((unsigned)rt_blocks(a.B *(heads)*c.blocks, 1), (unsigned)panels(columns)); \
        rt_attention_shared(stream, (const void *)kernel, Pack<Real>::ROOM);                       \
        RT_LAUNCH(stream, stream->where, kernel, grid, PLAIN_THREADS, Pack<Real>::ROOM, x, c);     \
    } while (0)

/* The kernels of a type; forward and grad: the functions that launch them. */
#define DEFINE_PLAIN(suffix, Type, Store, Real, BLOCKS, forward, grad)                             \
    __global__ void __launch_bounds__(PLAIN_THREADS, BLOCKS)                                       \
        attention_##suffix(AttentionTensors<Store, Real> x, AttentionCall c)                       \
    {                                                                                              \
        plain_forward<Type>(x, c);                                                                 \
    }                                                                                              \
    __global__ void __launch_bounds__(PLAIN_THREADS, BLOCKS)                                       \
        attention_grad_q_##suffix(AttentionTensors<Store, Real> x, AttentionCall c)                \
    {                                                                                              \
        plain_grad_q<Type>(x, c);                                                                  \
    }                                                                                              \
    __global__ void __launch_bounds__(PLAIN_THREADS, BLOCKS)                                       \
        attention_grad_kv_##suffix(AttentionTensors<Store, Real> x, AttentionCall c)               \
    {                                                                                              \
        plain_grad_kv<Type>(x, c);                                                                 \
    }                                                                                              \
    forward(AttentionTensors<Store, Real> x, RtAttention a, RtStream *stream)                      \
    {                                                                                              \
        LAUNCH(attention_##suffix, Real, a.H, a.T, a.E, x);                                        \
    }                                                                                              \
    grad(AttentionTensors<Store, Real> x, RtAttention a, RtStream *stream)                         \
    {                                                                                              \
        LAUNCH(attention_grad_q_##suffix, Real, a.H, a.T, a.D, x);                                 \
        LAUNCH(attention_grad_kv_##suffix, Real, a.H / a.group, a.S, rt_max(a.D, a.E), x);         \
    }
DEFINE_PLAIN(f32, F32, float, float, 2, void rt_attention_plain_forward,
             void rt_attention_plain_grad)
DEFINE_PLAIN(f64, F64, double, double, 1, void rt_attention_plain_forward,
             void rt_attention_plain_grad)
DEFINE_PLAIN(bf16_long, OfBf16, uint16_t, float, 2, static void forward_bf16, static void grad_bf16)
DEFINE_PLAIN(f16_long, OfF16, uint16_t, float, 2, static void forward_f16, static void grad_f16)

void rt_attention_plain_forward(RtType type, AttentionHalf x, RtAttention a, RtStream *stream)
{
    (type == RT_BF16 ? forward_bf16 : forward_f16)(x, a, stream);
}

void rt_attention_plain_grad(RtType type, AttentionHalf x, RtAttention a, RtStream *stream)
{
    (type == RT_BF16 ? grad_bf16 : grad_f16)(x, a, stream);
}
