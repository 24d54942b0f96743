/* rt_device.h -- what kernels use besides num.h: vectors of 16 bytes, reductions over warps and
 * blocks in a fixed order. Device code only; emitted kernels and those of the runtime share it.
 *
 * A reduction over lanes is a butterfly of shuffles: a + b is b + a to the bit, so every lane ends
 * with the same number, and the order depends on nothing but the number of threads.
 */
#ifndef GRADCC_RT_DEVICE_H
#define GRADCC_RT_DEVICE_H

#include "rt.h"

#define RT_TEXT(x) #x
#if defined(RT_SIMULATOR)
#define RT_UNROLL
#define RT_UNROLL_BY(n)
#else
#define RT_UNROLL       _Pragma("unroll")
#define RT_UNROLL_BY(n) _Pragma(RT_TEXT(unroll n))
#endif

/* ---- vectors --------------------------------------------------------------------------------- */

/* N elements side by side, in registers. */
template <typename T, int N> struct RtVec {
    T at[N];
    __device__ __forceinline__ T &operator[](int i) { return at[i]; }
    __device__ __forceinline__ const T &operator[](int i) const { return at[i]; }
};

/* Words of one access of memory: 16 bytes, or what a shorter vector has. */
template <int BYTES> struct RtWord;
template <> struct RtWord<16> {
    typedef uint4 Type;
};
template <> struct RtWord<8> {
    typedef uint2 Type;
};
template <> struct RtWord<4> {
    typedef uint32_t Type;
};
template <> struct RtWord<2> {
    typedef uint16_t Type;
};
template <> struct RtWord<1> {
    typedef uint8_t Type;
};

/* From memory aligned to the words of the vector, and to it. */
template <int N, typename T> RT_DEVICE RtVec<T, N> rt_load(const T *from)
{
    constexpr int bytes = N * (int)sizeof(T), word = bytes < 16 ? bytes : 16;
    typedef typename RtWord<word>::Type Word;
    RtVec<T, N> v;
    RT_UNROLL
    for (int i = 0; i < bytes / word; i++) {
        const Word w = ((const Word *)from)[i];
        memcpy(&v.at[i * (word / (int)sizeof(T))], &w, word);
    }
    return v;
}

/* To device memory; __stcg, so that nvcc does not take a word of 16 bytes apart. */
template <int N, typename T> RT_DEVICE void rt_store(T *to, const RtVec<T, N> &v)
{
    constexpr int bytes = N * (int)sizeof(T), word = bytes < 16 ? bytes : 16;
    typedef typename RtWord<word>::Type Word;
    RT_UNROLL
    for (int i = 0; i < bytes / word; i++) {
        Word w;
        memcpy(&w, &v.at[i * (word / (int)sizeof(T))], word);
        __stcg((Word *)to + i, w);
    }
}

/* To shared memory. */
template <int N, typename T> RT_DEVICE void rt_share(T *to, const RtVec<T, N> &v)
{
    RT_UNROLL
    for (int i = 0; i < N; i++)
        to[i] = v.at[i];
}

/* The first `there` elements, the others 0: what a row ends with. */
template <int N, typename T> RT_DEVICE RtVec<T, N> rt_load_part(const T *from, int there)
{
    if (there >= N)
        return rt_load<N>(from);
    RtVec<T, N> v = {};
    RT_UNROLL
    for (int i = 0; i < N - 1; i++)
        if (i < there)
            v.at[i] = from[i];
    return v;
}

template <int N, typename T> RT_DEVICE void rt_store_part(T *to, const RtVec<T, N> &v, int there)
{
    if (there >= N) {
        rt_store(to, v);
        return;
    }
    RT_UNROLL
    for (int i = 0; i < N - 1; i++)
        if (i < there)
            to[i] = v.at[i];
}

/* Zeros where there is nothing to load. */
template <int N, typename T> RT_DEVICE RtVec<T, N> rt_load_if(bool there, const T *from)
{
    return there ? rt_load<N>(from) : RtVec<T, N>{};
}

/* ---- warps ----------------------------------------------------------------------------------- */

enum { RT_WARP = 32, RT_WARPS_MAX = 32 }; /* lanes; warps of a block */

template <typename T> RT_DEVICE T rt_from_lane(T x, int other)
{
    return __shfl_xor_sync(0xffffffffu, x, other);
}
template <> __device__ __forceinline__ bool rt_from_lane(bool x, int other)
{
    return __shfl_xor_sync(0xffffffffu, (int)x, other) != 0;
}

/* Of all lanes, in every lane. */
template <typename T> RT_DEVICE T rt_warp_sum(T x)
{
    RT_UNROLL
    for (int other = RT_WARP / 2; other > 0; other /= 2)
        x += rt_from_lane(x, other);
    return x;
}

template <typename T> RT_DEVICE T rt_warp_max(T x)
{
    RT_UNROLL
    for (int other = RT_WARP / 2; other > 0; other /= 2)
        x = (T)rt_max(x, rt_from_lane(x, other));
    return x;
}

template <typename T> RT_DEVICE T rt_warp_min(T x)
{
    RT_UNROLL
    for (int other = RT_WARP / 2; other > 0; other /= 2)
        x = (T)rt_min(x, rt_from_lane(x, other));
    return x;
}

/* The largest of a row and where it stands, the first of equals; NaN counts as larger. */
template <typename T> struct RtPlace {
    T best;
    int32_t at;
};

/* Does x take the place of best? sign: 1 for the largest, -1 for the smallest. */
template <typename T> RT_DEVICE bool rt_is_better(T x, T best, int sign)
{
    return (sign > 0 ? x > best : x < best) || (x != x && best == best);
}

template <typename T> RT_DEVICE RtPlace<T> rt_better(RtPlace<T> a, RtPlace<T> b, int sign)
{
    if (rt_is_better(b.best, a.best, sign))
        return b;
    return rt_is_better(a.best, b.best, sign) || a.at <= b.at ? a : b;
}

template <typename T> RT_DEVICE RtPlace<T> rt_warp_place(T best, int32_t at, int sign)
{
    RtPlace<T> a = { best, at };
    RT_UNROLL
    for (int other = RT_WARP / 2; other > 0; other /= 2) {
        const RtPlace<T> b = { rt_from_lane(a.best, other), rt_from_lane(a.at, other) };
        a = rt_better(a, b, sign);
    }
    return a;
}
template <typename T> RT_DEVICE int32_t rt_warp_argmax(T best, int32_t at)
{
    return rt_warp_place(best, at, 1).at;
}
template <typename T> RT_DEVICE int32_t rt_warp_argmin(T best, int32_t at)
{
    return rt_warp_place(best, at, -1).at;
}

/* The largest x so far, and the sum of exp(x - that): one of both takes in another one. A sum made
   for a smaller largest x is scaled; equal ones are not, infinite ones neither. */
template <typename T> struct RtExpSum {
    T max, sum;
};
template <typename T> RT_DEVICE RtExpSum<T> rt_join(RtExpSum<T> a, RtExpSum<T> b)
{
    const bool up = b.max > a.max;
    const RtExpSum<T> low = up ? a : b, high = up ? b : a;
    const T scale = low.max == high.max ? (T)1 : (T)rt_exp(low.max - high.max);
    return { (T)rt_max(a.max, b.max), high.sum + low.sum * scale };
}

/* x joins them. */
template <typename T> RT_DEVICE void rt_add_exp(T &max, T &sum, T x)
{
    const RtExpSum<T> all = rt_join(RtExpSum<T>{ max, sum }, RtExpSum<T>{ x, 1 });
    max = all.max;
    sum = all.sum;
}

template <typename T> RT_DEVICE RtExpSum<T> rt_warp_exp_sum(RtExpSum<T> a)
{
    RT_UNROLL
    for (int other = RT_WARP / 2; other > 0; other /= 2)
        a = rt_join(a, RtExpSum<T>{ rt_from_lane(a.max, other), rt_from_lane(a.sum, other) });
    return a;
}

/* NaN where the largest is infinite, as exp(x - x) is then. */
template <typename T> RT_DEVICE void rt_finish_exp(T &max, T &sum, RtExpSum<T> all)
{
    max = all.max;
    sum = all.sum == 0 ? all.sum : all.sum + (all.max - all.max);
}
template <typename T> RT_DEVICE void rt_warp_add_exp(T &max, T &sum)
{
    rt_finish_exp(max, sum, rt_warp_exp_sum(RtExpSum<T>{ max, sum }));
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* Every thread of the block calls these, and gets the result: warps first, then what each of them
   has. Threads of a block: a multiple of 32. */
#define RT_BLOCK_FOLD(T, x, FOLD, none)                                                            \
    do {                                                                                           \
        __shared__ T rt_of_warp[RT_WARPS_MAX];                                                     \
        const int warps = (int)blockDim.x / RT_WARP, lane = (int)threadIdx.x % RT_WARP;            \
        x = FOLD(x);                                                                               \
        if (lane == 0)                                                                             \
            rt_of_warp[threadIdx.x / RT_WARP] = x;                                                 \
        __syncthreads();                                                                           \
        x = FOLD(lane < warps ? rt_of_warp[lane] : none);                                          \
        __syncthreads();                                                                           \
    } while (0)

template <typename T> RT_DEVICE T rt_block_sum(T x)
{
    RT_BLOCK_FOLD(T, x, rt_warp_sum, (T)0);
    return x;
}
template <typename T> RT_DEVICE T rt_block_max(T x)
{
    RT_BLOCK_FOLD(T, x, rt_warp_max, rt_of_warp[0]);
    return x;
}
template <typename T> RT_DEVICE T rt_block_min(T x)
{
    RT_BLOCK_FOLD(T, x, rt_warp_min, rt_of_warp[0]);
    return x;
}

template <typename T> RT_DEVICE int32_t rt_block_place(T best, int32_t at, int sign)
{
    __shared__ RtPlace<T> of_warp[RT_WARPS_MAX];
    const int warps = (int)blockDim.x / RT_WARP, lane = (int)threadIdx.x % RT_WARP;
    const RtPlace<T> mine = rt_warp_place(best, at, sign);
    if (lane == 0)
        of_warp[threadIdx.x / RT_WARP] = mine;
    __syncthreads();
    const RtPlace<T> all = of_warp[lane < warps ? lane : 0];
    const int32_t place = rt_warp_place(all.best, all.at, sign).at;
    __syncthreads();
    return place;
}
template <typename T> RT_DEVICE int32_t rt_block_argmax(T best, int32_t at)
{
    return rt_block_place(best, at, 1);
}
template <typename T> RT_DEVICE int32_t rt_block_argmin(T best, int32_t at)
{
    return rt_block_place(best, at, -1);
}

template <typename T> RT_DEVICE void rt_block_add_exp(T &max, T &sum)
{
    RtExpSum<T> x = { max, sum };
    RT_BLOCK_FOLD(RtExpSum<T>, x, rt_warp_exp_sum, (RtExpSum<T>{ -INFINITY, 0 }));
    rt_finish_exp(max, sum, x);
}

/* ---- ranges and partial sums ----------------------------------------------------------------- */

/* Where part number `part` of n rows begins. */
RT_DEVICE ptrdiff_t rt_part(ptrdiff_t n, int part, int parts)
{
    return n / parts * part + n % parts * part / parts;
}

/* Where the sum of a column lies that the warps of a block add up: element e of the vectors of N
   columns in a row of its own, a place per lane, and further places so that rows begin 32/N banks
   apart: neither lanes that add, nor threads that read columns side by side, meet in a bank. */
#define RT_SUM_ROW(N) ((N) == 1 ? RT_WARP : RT_WARP + RT_WARP / (N))
template <int N> RT_DEVICE int rt_sum_at(int column)
{
    const int vector = column / N;
    return (vector / RT_WARP * N + column % N) * RT_SUM_ROW(N) + vector % RT_WARP;
}

/* What the warps of a block have summed for the same columns, added up in the order of the warps:
   of each lane the COUNT vectors of N columns that begin at (k*32 + lane)*N. all: shared, COUNT*N
   rows of RT_SUM_ROW(N). */
template <int COUNT, int N, typename T>
RT_DEVICE void rt_add_warps(T *all, const T (&sum)[COUNT][N])
{
    const int lane = (int)threadIdx.x % RT_WARP, warps = (int)blockDim.x / RT_WARP;
    for (int warp = 0; warp < warps; warp++) {
        if ((int)threadIdx.x / RT_WARP == warp) {
            RT_UNROLL
            for (int k = 0; k < COUNT; k++) {
                RT_UNROLL
                for (int e = 0; e < N; e++) {
                    T *to = all + (k * N + e) * RT_SUM_ROW(N) + lane;
                    *to = warp == 0 ? sum[k][e] : *to + sum[k][e];
                }
            }
        }
        __syncthreads();
    }
}

/* Sums of columns from the partial rows of `parts` blocks: rows of n_sums * columns elements. */
enum { RT_SUMS_MAX = 16 };
template <typename T> struct RtParts {
    const T *work;
    int parts, n_sums;
    ptrdiff_t columns;
    T *to[RT_SUMS_MAX];
    bool add[RT_SUMS_MAX]; /* to what is there */
};

/* Block (32, 32): a warp per range of parts, a lane per column; the ranges are added in order. */
template <typename T> static __global__ void __launch_bounds__(1024) rt_add_parts(RtParts<T> p)
{
    __shared__ T range[RT_WARP][RT_WARP];
    const ptrdiff_t width = p.n_sums * p.columns;
    const ptrdiff_t at = (ptrdiff_t)blockIdx.x * RT_WARP + threadIdx.x;
    T sum = 0;
    if (at < width) {
        const int to = (int)rt_part(p.parts, (int)threadIdx.y + 1, RT_WARP);
        for (int part = (int)rt_part(p.parts, (int)threadIdx.y, RT_WARP); part < to; part++)
            sum += p.work[part * width + at];
    }
    range[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || at >= width)
        return;
    for (int i = 1; i < RT_WARP; i++)
        sum += range[i][threadIdx.x];
    T *to = p.to[at / p.columns] + at % p.columns;
    *to = p.add[at / p.columns] ? *to + sum : sum;
}

#endif
