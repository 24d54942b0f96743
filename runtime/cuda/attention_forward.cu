/* attention_forward.cu -- softmax(scale q k') v of heads in 16 bits, on tensor cores.
 *
 * In: q, k, v in place, rows any distance apart. Out: y, and the logarithm of each query's sum. A
 * block of 4 warps does 128 queries of one head, a warp 32 of them, whose rows nobody else touches;
 * tiles of keys and values come in while the tile before is worked on. The one idea: scores,
 * weights and sums of a query live in the registers of 4 lanes; a running maximum per query keeps
 * powers of two below 1, and what was summed under an older maximum is scaled when that changes.
 */
#include "cuda/attention.h"
#include "cuda/attention_tile.h"

/* Of a thread: queries 16 m + 8 h + group of its warp, m < M, h < 2. */
template <int M> struct Softmax {
    float most[M][2], sum[M][2]; /* sum: of this lane's keys */
};

/* Keys that a query does not see have a score of -infinity. The first query of the warp sees
   `first` keys of the tile, each further one `more` in addition, but none sees more than `left`. */
template <int M, int N>
static __device__ __forceinline__ void mask(float s[M][N][4], int first, int more, int left)
{
    const int column = (int)threadIdx.x % 4 * 2;
    first += (int)threadIdx.x % 32 / 4 * more;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (8 * n + column + i % 2 >= min(left, first + (16 * m + i / 2 * 8) * more))
                    s[m][n][i] = -INFINITY;
}

/* Scores become 2^(scale (score - maximum)); o is scaled to the new maximum. */
template <int M, int N, int P>
static __device__ __forceinline__ void soften(float s[M][N][4], float o[M][P / 8][4], Softmax<M> *w,
                                              float scale)
{
    float worth[M][2];
    bool moved = false;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float most = w->most[m][h];
#pragma unroll
            for (int n = 0; n < N; n++)
                most = fmaxf(most, fmaxf(s[m][n][2 * h], s[m][n][2 * h + 1]));
            most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
            most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
            const float base = most == -INFINITY ? 0 : most * scale;
            worth[m][h] = rt_exp2_fast(w->most[m][h] * scale - base);
            moved |= most > w->most[m][h];
            w->most[m][h] = most;
            float sum = w->sum[m][h] * worth[m][h];
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int i = 2 * h; i < 2 * h + 2; i++) {
                    s[m][n][i] = rt_exp2_fast(fmaf(s[m][n][i], scale, -base));
                    sum += s[m][n][i];
                }
            w->sum[m][h] = sum;
        }
    if (!__any_sync(0xffffffffu, moved)) /* worth is 1 for all of the warp */
        return;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < P / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                o[m][n][i] *= worth[m][i / 2];
}

/* Sums of the 4 lanes of a query; y = o / sum, lse. */
template <class Half, int P, int M>
static __device__ __forceinline__ void finish(uint16_t *to, float *lse, const AttentionCall *c,
                                              ptrdiff_t t0, uint16_t *tile, int row,
                                              float o[M][P / 8][4], Softmax<M> *w, float scale)
{
    const int group = (int)threadIdx.x % 32 / 4;
    float factor[M][2];
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const ptrdiff_t t = t0 + row + 16 * m + 8 * h + group;
            float sum = w->sum[m][h];
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            const bool any = attention_seen(&c->a, t) > 0;
            factor[m][h] = any ? 1 / sum : 0;
            if (threadIdx.x % 4 == 0 && t < c->a.T)
                lse[t] = any ? (w->most[m][h] * scale + log2f(sum)) * 0.693147180559945f : 0;
        }
    tile_store<Half, P, M>(to, c->a.y.t, t0, c->a.T, (int)c->a.E, c->whole, tile, row, o, factor);
}

/* One tile of KEYS keys from key s0 on, for the queries of a warp: see mask. */
template <class Half, int P, int M, int KEYS, bool HELD>
static __device__ __forceinline__ void attend(float o[M][P / 8][4], Softmax<M> *w,
                                              const uint32_t held[M][P / 16][4],
                                              const uint16_t *arena, int q, int k, int v, int first,
                                              int more, int left, float scale)
{
    constexpr int N = KEYS / 8;
    float s[M][N][4];
    if (HELD)
        tile_held_by_rows<Half, P, M, N>(s, held, arena, k);
    else
        tile_rows_by_rows<Half, P, M, N>(s, arena, tile_again(q), k);
    if (scale < 0)
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    s[m][n][i] = -s[m][n][i];
    if (min(first, left) < KEYS)
        mask<M, N>(s, first, more, left);
    soften<M, N, P>(s, o, w, fabsf(scale));
    tile_weighted<Half, P, M, N>(o, s, arena, v);
}

template <class Half, int P, int M, int KEYS, bool HELD>
static __device__ __forceinline__ void forward(const AttentionHalf &x, const AttentionCall &c)
{
    RT_SHARED_ARENA(uint16_t, arena);
    constexpr int QUERIES = TILE_WARPS * 16 * M;
    constexpr int tile_k = QUERIES * P, tile_v = tile_k + 2 * KEYS * P, other = KEYS * P;
    const TileLane lane = tile_lane<P>();
    const RtAttention *a = &c.a;
    const unsigned head = blockIdx.x / c.blocks;
    const ptrdiff_t t0 = (ptrdiff_t)(c.blocks - 1 - blockIdx.x % c.blocks) * QUERIES;
    const int D = (int)a->D, E = (int)a->E;
    const TileRows q = { x.q + attention_head(a, a->q, head), a->q.t, a->T, D, c.whole };
    const TileRows k = { x.k + attention_keys(a, a->k, head), a->k.t, a->S, D, c.whole };
    const TileRows v = { x.v + attention_keys(a, a->v, head), a->v.t, a->S, E, c.whole };
    const int row = (int)threadIdx.x / 32 * 16 * M;
    const float scale = (float)(a->scale * 1.4426950408889634);
    const int last = (int)attention_seen(a, rt_min(t0 + QUERIES, a->T) - 1);
    const int warp_last = (int)attention_seen(a, rt_min(t0 + row + 16 * M, a->T) - 1);
    const int warp_first = a->causal ? (int)(t0 + row + a->S - a->T) + 1 : (int)a->S;
    uint32_t held[M][P / 16][4];
    float o[M][P / 8][4];
    Softmax<M> w;

    tile_load<QUERIES, P>(arena, q, t0);
    tile_load<KEYS, P>(arena + tile_k, k, 0);
    tile_load<KEYS, P>(arena + tile_v, v, 0);
    rt_cp_async_commit();
    tile_zero<M, P / 8>(o);
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            w.most[m][h] = -INFINITY;
            w.sum[m][h] = 0;
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
        if (s0 < warp_last)
            attend<Half, P, M, KEYS, HELD>(o, &w, held, arena, lane.rows + row * P,
                                           tile_k + i + lane.pairs, tile_v + i + lane.rows,
                                           warp_first - s0, a->causal, (int)a->S - s0, scale);
        rt_cp_async_wait<0>();
        __syncthreads(); /* the next tile is there, and nobody reads this one any more */
    }
    finish<Half, P, M>(x.to_y + attention_head(a, a->y, head), x.to_lse + head * a->T, &c, t0,
                       arena, row, o, &w, fabsf(scale));
}

/* ---- kernels and their launches -------------------------------------------------------------- */

#define DEFINE_FORWARD(half, Half, P, KEYS, HELD)                                                  \
    __global__ void __launch_bounds__(TILE_THREADS, 2)                                             \
        attention_##half##_##P(AttentionHalf x, AttentionCall c)                                   \
    {                                                                                              \
        forward<Half, P, 2, KEYS, HELD>(x, c);                                                     \
    }                                                                                              \
    static void forward_##half##_##P(const AttentionHalf &x, AttentionCall c, RtStream *stream)    \
    {                                                                                              \
        constexpr int rows = TILE_WARPS * 16 * 2, room = (rows + 4 * KEYS) * P * 2;                \
        c.blocks = (unsigned)rt_blocks(c.a.T, rows);                                               \
        rt_attention_shared(stream, (const void *)attention_##half##_##P, room);                   \
        RT_LAUNCH(stream, stream->where, attention_##half##_##P,                                   \
                  rt_blocks(c.a.B *c.a.H *c.blocks, 1), TILE_THREADS, room, x, c);                 \
    }
DEFINE_FORWARD(bf16, Bf16, 32, 64, true)
DEFINE_FORWARD(bf16, Bf16, 64, 64, true)
DEFINE_FORWARD(bf16, Bf16, 128, 32, false)
DEFINE_FORWARD(f16, F16, 32, 64, true)
DEFINE_FORWARD(f16, F16, 64, 64, true)
DEFINE_FORWARD(f16, F16, 128, 32, false)

void rt_attention_half_forward(RtType type, AttentionHalf x, AttentionCall c, RtStream *stream)
{
    const ptrdiff_t width = rt_max(c.a.D, c.a.E);
    const bool bf16 = type == RT_BF16;
    if (width <= 32)
        bf16 ? forward_bf16_32(x, c, stream) : forward_f16_32(x, c, stream);
    else if (width <= 64)
        bf16 ? forward_bf16_64(x, c, stream) : forward_f16_64(x, c, stream);
    else
        bf16 ? forward_bf16_128(x, c, stream) : forward_f16_128(x, c, stream);
}
