/* attention_grad.cu -- the gradient of attention on heads in 16 bits, on tensor cores.
 *
 * In: q, k, v, y, lse and d_y in place. Out: d_q; d_k and d_v. Two kernels, each written like the
 * forward one: the first goes over blocks of queries and sums d_q along the keys, the second over
 * blocks of keys and sums d_k and d_v along the queries, head by head of those that share the keys.
 * The one idea: with the rows of the result as rows of the scores, weights and their gradients stay
 * in registers, and no sum is shared between blocks, so that nothing is added up in memory and the
 * order of every sum is fixed. Scores are computed twice for that: 7 products of matrices where 5
 * would do.
 */
#include "cuda/attention.h"
#include "cuda/attention_tile.h"

#define LOG2_E 1.4426950408889634

/* ---- d_q ------------------------------------------------------------------------------------- */

/* sum + the products of two pairs of values. */
template <class Half>
static __device__ __forceinline__ float product(uint32_t a, uint32_t b, float sum)
{
    return fmaf(Half::high(a), Half::high(b), fmaf(Half::low(a), Half::low(b), sum));
}

/* delta = sum of y d_y for each query of a warp, into shared memory and, for the second kernel,
   into that of the device. */
template <class Half, int P, int M>
static __device__ __forceinline__ void sum_delta(float *shared, float *delta, TileRows y,
                                                 TileRows d_y, ptrdiff_t t0, int row)
{
    constexpr int pieces = P / TILE_PIECE, at_once = 32 / pieces, times = 16 * M / at_once;
    const int lane = (int)threadIdx.x % 32, piece = lane % pieces;
    const int left = y.depth - piece * TILE_PIECE;
    uint4 a[times], b[times]; /* all are on their way before the first is waited for */
    row += lane / pieces;
#pragma unroll
    for (int i = 0; i < times; i++) {
        const ptrdiff_t t = t0 + row + i * at_once;
        const uint16_t *at_y = y.at + t * y.step + piece * TILE_PIECE;
        const uint16_t *at_d = d_y.at + t * d_y.step + piece * TILE_PIECE;
        a[i] = b[i] = make_uint4(0, 0, 0, 0);
        if (t < y.rows && left > 0) {
            a[i] = y.whole ? *(const uint4 *)at_y : tile_gather(at_y, left);
            b[i] = y.whole ? *(const uint4 *)at_d : tile_gather(at_d, left);
        }
    }
#pragma unroll
    for (int i = 0; i < times; i++) {
        float sum = product<Half>(a[i].x, b[i].x, 0);
        sum = product<Half>(a[i].y, b[i].y, sum);
        sum = product<Half>(a[i].z, b[i].z, sum);
        sum = product<Half>(a[i].w, b[i].w, sum);
#pragma unroll
        for (int step = 1; step < pieces; step *= 2)
            sum += __shfl_xor_sync(0xffffffffu, sum, step);
        if (piece == 0) {
            shared[row + i * at_once] = sum;
            if (t0 + row + i * at_once < y.rows)
                delta[t0 + row + i * at_once] = sum;
        }
    }
    __syncwarp();
}

/* Of a thread: queries 16 m + 8 h + group of its warp. */
template <int M> struct Rows {
    float lse[M][2], delta[M][2]; /* lse in powers of two */
};

/* dp becomes the gradient of the scores, p (dp - delta); the mask is that of the forward pass. */
template <int M, int N>
static __device__ __forceinline__ void score_gradient(float dp[M][N][4], const float s[M][N][4],
                                                      const Rows<M> *w, float scale, int first,
                                                      int more, int left)
{
    const int column = (int)threadIdx.x % 4 * 2;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float p = rt_exp2_fast(fmaf(s[m][n][i], scale, -w->lse[m][i / 2]));
                dp[m][n][i] = p * (dp[m][n][i] - w->delta[m][i / 2]);
            }
    if (min(first, left) >= 8 * N)
        return;
    first += (int)threadIdx.x % 32 / 4 * more;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (8 * n + column + i % 2 >= min(left, first + (16 * m + i / 2 * 8) * more))
                    dp[m][n][i] = 0;
}

/* One step of N*8 keys, at their place in the tiles k and v. */
template <class Half, int P, int M, int N, bool HELD>
static __device__ __forceinline__ void add_to_q(float d_q[M][P / 8][4],
                                                const uint32_t held[M][P / 16][4],
                                                const uint16_t *arena, TileLane lane, int q,
                                                int d_y, int k, int v, const Rows<M> *w,
                                                float scale, int first, int more, int left)
{
    float s[M][N][4], dp[M][N][4];
    if (HELD)
        tile_held_by_rows<Half, P, M, N>(s, held, arena, k + lane.pairs);
    else
        tile_rows_by_rows<Half, P, M, N>(s, arena, tile_again(q + lane.rows), k + lane.pairs);
    tile_rows_by_rows<Half, P, M, N>(dp, arena, tile_again(d_y + lane.rows), v + lane.pairs);
    score_gradient<M, N>(dp, s, w, scale, first, more, left);
    tile_weighted<Half, P, M, N>(d_q, dp, arena, k + lane.rows);
}

/* Tiles of KEYS keys, N*8 of them at a time. */
template <class Half, int P, int M, int KEYS, int N, bool HELD>
static __device__ __forceinline__ void grad_q(const AttentionHalf &x, const AttentionCall &c)
{
    RT_SHARED_ARENA(uint16_t, arena);
    constexpr int QUERIES = TILE_WARPS * 16 * M, other = KEYS * P;
    constexpr int tile_d_y = QUERIES * P, tile_k = 2 * tile_d_y, tile_v = tile_k + 2 * other;
    float *const shared_delta = (float *)(arena + tile_v + 2 * other);
    const RtAttention *a = &c.a;
    const TileLane lane = tile_lane<P>();
    const unsigned head = blockIdx.x / c.blocks;
    const ptrdiff_t t0 = (ptrdiff_t)(c.blocks - 1 - blockIdx.x % c.blocks) * QUERIES;
    const int D = (int)a->D, E = (int)a->E, row = (int)threadIdx.x / 32 * 16 * M;
    const TileRows q = { x.q + attention_head(a, a->q, head), a->q.t, a->T, D, c.whole };
    const TileRows k = { x.k + attention_keys(a, a->k, head), a->k.t, a->S, D, c.whole };
    const TileRows v = { x.v + attention_keys(a, a->v, head), a->v.t, a->S, E, c.whole };
    const TileRows y = { x.y + attention_head(a, a->y, head), a->y.t, a->T, E, c.whole };
    const TileRows d_y = { x.d_y + attention_head(a, a->d_y, head), a->d_y.t, a->T, E, c.whole };
    const float scale = (float)(a->scale * LOG2_E);
    const int last = (int)attention_seen(a, rt_min(t0 + QUERIES, a->T) - 1);
    const int warp_last = (int)attention_seen(a, rt_min(t0 + row + 16 * M, a->T) - 1);
    const int warp_first = a->causal ? (int)(t0 + row + a->S - a->T) + 1 : (int)a->S;
    uint32_t held[M][P / 16][4];
    float d_q[M][P / 8][4], factor[M][2];
    Rows<M> w;

    tile_load<QUERIES, P>(arena, q, t0);
    tile_load<QUERIES, P>(arena + tile_d_y, d_y, t0);
    tile_load<KEYS, P>(arena + tile_k, k, 0);
    tile_load<KEYS, P>(arena + tile_v, v, 0);
    rt_cp_async_commit();
    sum_delta<Half, P, M>(shared_delta, x.delta + head * a->T, y, d_y, t0, row);
    tile_zero<M, P / 8>(d_q);
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int r = row + 16 * m + 8 * h + (int)threadIdx.x % 32 / 4;
            factor[m][h] = (float)a->scale;
            w.lse[m][h] = t0 + r < a->T ? x.lse[head * a->T + t0 + r] * (float)LOG2_E : INFINITY;
            w.delta[m][h] = shared_delta[r];
        }
    rt_cp_async_wait<0>();
    __syncthreads();
    if (HELD)
        tile_hold<P, M>(held, arena, lane.rows + row * P);
#pragma unroll 1
    for (int s0 = 0, i = 0; s0 < last; s0 += KEYS, i ^= other) {
        if (s0 + KEYS < last) {
            tile_load<KEYS, P>(arena + tile_k + (i ^ other), k, s0 + KEYS);
            tile_load<KEYS, P>(arena + tile_v + (i ^ other), v, s0 + KEYS);
            rt_cp_async_commit();
        }
#pragma unroll 1
        for (int s = 0; s < KEYS && s0 + s < warp_last; s += 8 * N)
            add_to_q<Half, P, M, N, HELD>(d_q, held, arena, lane, row * P, tile_d_y + row * P,
                                          tile_k + i + s * P, tile_v + i + s * P, &w, scale,
                                          warp_first - s0 - s, a->causal, (int)a->S - s0 - s);
        rt_cp_async_wait<0>();
        __syncthreads(); /* the next tile is there, and nobody reads this one any more */
    }
    tile_store<Half, P, M>(x.d_q + attention_head(a, a->d_q, head), a->d_q.t, t0, a->T, D, c.whole,
                           arena, row, d_q, factor);
}

/* ---- d_k and d_v ----------------------------------------------------------------------------- */

/* Scores s of 16 M keys and 8 N queries become weights; queries that do not see a key weigh
   nothing. The first query of the step sees `ahead` keys more than up to the first key of the
   warp. */
template <int M, int N>
static __device__ __forceinline__ void weigh(float s[M][N][4], const float *lse, float scale,
                                             bool causal, int ahead)
{
    const int column = (int)threadIdx.x % 4 * 2, group = (int)threadIdx.x % 32 / 4;
#pragma unroll
    for (int n = 0; n < N; n++) {
        const float2 l = *(const float2 *)(lse + 8 * n + column);
        const float below[2] = { -l.x * (float)LOG2_E, -l.y * (float)LOG2_E };
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                s[m][n][i] = rt_exp2_fast(fmaf(s[m][n][i], scale, below[i % 2]));
    }
    if (!causal || ahead >= 16 * M - 1)
        return;
    ahead += column - group;
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (ahead + 8 * n + i % 2 < 16 * m + i / 2 * 8)
                    s[m][n][i] = 0;
}

/* One step of N*8 queries, at their place in the tiles q and d_y. */
template <class Half, int P, int M, int N>
static __device__ __forceinline__ void add_to_kv(float d_k[M][P / 8][4], float d_v[M][P / 8][4],
                                                 const uint16_t *arena, TileLane lane, int k, int v,
                                                 int q, int d_y, const float *number, int lse,
                                                 int delta, float scale, bool causal, int ahead)
{
    float p[M][N][4], dp[M][N][4];
    tile_rows_by_rows<Half, P, M, N>(p, arena, tile_again(k + lane.rows), q + lane.pairs);
    weigh<M, N>(p, number + lse, scale, causal, ahead);
    tile_weighted<Half, P, M, N>(d_v, p, arena, d_y + lane.rows);
    tile_rows_by_rows<Half, P, M, N>(dp, arena, tile_again(v + lane.rows), d_y + lane.pairs);
#pragma unroll
    for (int n = 0; n < N; n++) {
        const float2 d = *(const float2 *)(number + delta + 8 * n + (int)threadIdx.x % 4 * 2);
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                dp[m][n][i] = p[m][n][i] * (dp[m][n][i] - (i % 2 ? d.y : d.x));
    }
    tile_weighted<Half, P, M, N>(d_k, dp, arena, q + lane.rows);
}

/* The sums of a block of keys, by way of the tiles that k and v had. */
template <class Half, int P, int M>
static __device__ __forceinline__ void put_kv(const AttentionHalf &x, const AttentionCall &c,
                                              unsigned head, ptrdiff_t s0, uint16_t *arena,
                                              int tile_v, int row, const float d_k[M][P / 8][4],
                                              const float d_v[M][P / 8][4])
{
    const RtAttention *a = &c.a;
    const int D = (int)a->D, E = (int)a->E;
    float factor[M][2];
#pragma unroll
    for (int m = 0; m < M; m++)
        factor[m][0] = factor[m][1] = (float)a->scale;
    tile_store<Half, P, M>(x.d_k + attention_keys(a, a->d_k, head), a->d_k.t, s0, a->S, D, c.whole,
                           arena, row, d_k, factor);
#pragma unroll
    for (int m = 0; m < M; m++)
        factor[m][0] = factor[m][1] = 1;
    tile_store<Half, P, M>(x.d_v + attention_keys(a, a->d_v, head), a->d_v.t, s0, a->S, E, c.whole,
                           arena + tile_v, row, d_v, factor);
}

/* Tiles of QUERIES queries, N*8 of them at a time. */
template <class Half, int P, int M, int QUERIES, int N>
static __device__ __forceinline__ void grad_kv(const AttentionHalf &x, const AttentionCall &c)
{
    RT_SHARED_ARENA(uint16_t, arena);
    constexpr int KEYS = TILE_WARPS * 16 * M, other = QUERIES * P, numbers = 2 * QUERIES;
    constexpr int tile_v = KEYS * P, tile_q = 2 * tile_v, tile_d_y = tile_q + 2 * other;
    float *const number = (float *)(arena + tile_d_y + 2 * other); /* [2][lse, delta][QUERIES] */
    const RtAttention *a = &c.a;
    const TileLane lane = tile_lane<P>();
    const unsigned head = blockIdx.x / c.blocks * (unsigned)a->group; /* the first that shares k */
    const ptrdiff_t s0 = (ptrdiff_t)(blockIdx.x % c.blocks) * KEYS;
    const int D = (int)a->D, E = (int)a->E, row = (int)threadIdx.x / 32 * 16 * M;
    const int thread = (int)threadIdx.x, T = (int)a->T;
    /* lse and delta of a tile of queries: each thread brings one; beyond the last query lse is such
       that nothing weighs anything */
    const float *numbers_at = (thread < QUERIES ? x.lse : x.delta) + head * a->T + thread % QUERIES;
    const float none = thread < QUERIES ? INFINITY : 0;
    TileRows q = { x.q + attention_head(a, a->q, head), a->q.t, a->T, D, c.whole };
    const TileRows k = { x.k + attention_keys(a, a->k, head), a->k.t, a->S, D, c.whole };
    const TileRows v = { x.v + attention_keys(a, a->v, head), a->v.t, a->S, E, c.whole };
    TileRows d_y = { x.d_y + attention_head(a, a->d_y, head), a->d_y.t, a->T, E, c.whole };
    const float scale = (float)(a->scale * LOG2_E);
    const int ahead = (int)(a->S - a->T - s0) - row; /* of query 0 */
    const ptrdiff_t seen_from = a->causal ? rt_max(s0 + a->T - a->S, (ptrdiff_t)0) : 0;
    const int first = (int)rt_min(seen_from, a->T) / QUERIES * QUERIES;
    float d_k[M][P / 8][4], d_v[M][P / 8][4];

    tile_load<KEYS, P>(arena, k, s0);
    tile_load<KEYS, P>(arena + tile_v, v, s0);
    tile_load<QUERIES, P>(arena + tile_q, q, first);
    tile_load<QUERIES, P>(arena + tile_d_y, d_y, first);
    rt_cp_async_commit();
    if (thread < numbers)
        number[thread] = first + thread % QUERIES < T ? numbers_at[first] : none;
    tile_zero<M, P / 8>(d_k);
    tile_zero<M, P / 8>(d_v);
    rt_cp_async_wait<0>();
    __syncthreads();
    int heads = T > 0 ? (int)a->group : 0; /* that are left */
#pragma unroll 1
    for (int t0 = first, then, i = 0; heads > 0; t0 = then, i ^= 1) {
        float next = 0;
        then = t0 + QUERIES;
        if (then >= T) { /* the next head of the group */
            then = first;
            heads--;
            q.at += a->q.h;
            d_y.at += a->d_y.h;
            numbers_at += T;
        }
        if (heads > 0) {
            tile_load<QUERIES, P>(arena + tile_q + (i ^ 1) * other, q, then);
            tile_load<QUERIES, P>(arena + tile_d_y + (i ^ 1) * other, d_y, then);
            rt_cp_async_commit();
            if (thread < numbers)
                next = then + thread % QUERIES < T ? numbers_at[then] : none;
        }
#pragma unroll 1
        for (int t = 0; t < QUERIES; t += 8 * N)
            if (!a->causal || ahead + t0 + t + 8 * N > 0)
                add_to_kv<Half, P, M, N>(d_k, d_v, arena, lane, row * P, tile_v + row * P,
                                         tile_q + i * other + t * P, tile_d_y + i * other + t * P,
                                         number, i * numbers + t, i * numbers + QUERIES + t, scale,
                                         a->causal, ahead + t0 + t);
        if (thread < numbers)
            number[(i ^ 1) * numbers + thread] = next;
        rt_cp_async_wait<0>();
        __syncthreads(); /* the next tile is there, and nobody reads this one any more */
    }
    put_kv<Half, P, M>(x, c, head, s0, arena, tile_v, row, d_k, d_v);
}

/* ---- kernels and their launches -------------------------------------------------------------- */

#define DEFINE_GRAD(half, Half, P, M, KEYS, QUERIES)                                               \
    __global__ void __launch_bounds__(TILE_THREADS, 2)                                             \
        attention_grad_q_##half##_##P(AttentionHalf x, AttentionCall c)                            \
    {                                                                                              \
        grad_q<Half, P, M, KEYS, 4, true>(x, c);                                                   \
    }                                                                                              \
    __global__ void __launch_bounds__(TILE_THREADS, 2)                                             \
        attention_grad_kv_##half##_##P(AttentionHalf x, AttentionCall c)                           \
    {                                                                                              \
        grad_kv<Half, P, M, QUERIES, 4>(x, c);                                                     \
    }                                                                                              \
    static void grad_##half##_##P(const AttentionHalf &x, AttentionCall c, RtStream *stream)       \
    {                                                                                              \
        constexpr int rows = TILE_WARPS * 16 * M;                                                  \
        constexpr int room_q = (2 * rows + 4 * KEYS) * P * 2 + rows * 4;                           \
        constexpr int room_kv = (2 * rows + 4 * QUERIES) * P * 2 + 4 * QUERIES * 4;                \
        c.blocks = (unsigned)rt_blocks(c.a.T, rows);                                               \
        rt_attention_shared(stream, (const void *)attention_grad_q_##half##_##P, room_q);          \
        RT_LAUNCH(stream, stream->where, attention_grad_q_##half##_##P,                            \
                  rt_blocks(c.a.B *c.a.H *c.blocks, 1), TILE_THREADS, room_q, x, c);               \
        c.blocks = (unsigned)rt_blocks(c.a.S, rows);                                               \
        rt_attention_shared(stream, (const void *)attention_grad_kv_##half##_##P, room_kv);        \
        RT_LAUNCH(stream, stream->where, attention_grad_kv_##half##_##P,                           \
                  rt_blocks(c.a.B *(c.a.H / c.a.group) * c.blocks, 1), TILE_THREADS, room_kv, x,   \
                  c);                                                                              \
    }
DEFINE_GRAD(bf16, Bf16, 32, 2, 64, 64)
DEFINE_GRAD(bf16, Bf16, 64, 2, 64, 64)
DEFINE_GRAD(bf16, Bf16, 128, 1, 32, 32)
DEFINE_GRAD(f16, F16, 32, 2, 64, 64)
DEFINE_GRAD(f16, F16, 64, 2, 64, 64)
DEFINE_GRAD(f16, F16, 128, 1, 32, 32)

void rt_attention_half_grad(RtType type, AttentionHalf x, AttentionCall c, RtStream *stream)
{
    const ptrdiff_t width = rt_max(c.a.D, c.a.E);
    const bool bf16 = type == RT_BF16;
    if (width <= 32)
        bf16 ? grad_bf16_32(x, c, stream) : grad_f16_32(x, c, stream);
    else if (width <= 64)
        bf16 ? grad_bf16_64(x, c, stream) : grad_f16_64(x, c, stream);
    else
        bf16 ? grad_bf16_128(x, c, stream) : grad_f16_128(x, c, stream);
}
