/* scatter.cu -- rows added up by their ids: the gradient of a table of which rows were taken.
 *
 * In: ids[n_ids], and a row for each. Out: out[n_rows, width], each row the sum of those with its
 * id, in the order in which they stand; zeros where there are none. The one idea: ids are sorted,
 * stably, with the places they came from, so that rows with one id lie side by side and each is one
 * sum: no sum is shared, and every order is fixed by sizes and ids. Of an id that comes more often
 * than PART times, parts of PART rows are summed first, by blocks of their own, and then added in
 * order.
 *
 * Sorting goes by 8 bits of the id at a time, lowest first: count digits by blocks of ids, sum up
 * where each block's digits go, move.
 */
#include "cuda/device.h"

enum {
    DIGITS = 256,
    SORT_THREADS = 256,
    SORT_WARPS = SORT_THREADS / 32,
    SORT_LEAST = 1024, /* ids of a block, at least */
    SORT_BLOCKS = 256, /* blocks, at most */
    SCAN_THREADS = 1024,
    PART = 64, /* rows */
    SUM_THREADS = 128,
};

typedef struct { /* of ids and the places they came from */
    int32_t *id, *from;
} Pairs;

/* What a call works in. */
typedef struct {
    int32_t n, n_rows, blocks, each;                      /* each: ids of a block */
    int passes, windows;                                  /* windows of PART sorted ids */
    size_t pairs[4], counts, first, starts, parts, bytes; /* where things lie */
} Plan;

static size_t take(size_t *bytes, ptrdiff_t n, size_t each)
{
    const size_t at = *bytes;
    *bytes += ((size_t)n * each + RT_DEVICE_ALIGN - 1) / RT_DEVICE_ALIGN * RT_DEVICE_ALIGN;
    return at;
}

static Plan plan_of(RtScatter p)
{
    Plan w = {};
    w.n = rt_blocks(p.n_ids, 1);
    w.n_rows = rt_blocks(p.n_rows, 1);
    const int least = rt_blocks(p.n_ids, SORT_BLOCKS);
    w.each = rt_blocks(rt_max(least, (int)SORT_LEAST), SORT_THREADS) * SORT_THREADS;
    w.blocks = rt_blocks(p.n_ids, w.each);
    w.windows = rt_blocks(p.n_ids, PART);
    w.passes = 1;
    while (w.passes < 4 && (p.n_rows - 1) >> (8 * w.passes) > 0)
        w.passes++;
    for (int i = 0; i < 4; i++)
        w.pairs[i] = take(&w.bytes, p.n_ids, sizeof(int32_t));
    w.counts = take(&w.bytes, DIGITS * (ptrdiff_t)w.blocks, sizeof(int32_t));
    w.first = take(&w.bytes, DIGITS, sizeof(int32_t));
    w.starts = take(&w.bytes, p.n_rows + 1, sizeof(int32_t));
    w.parts = take(&w.bytes, 2 * w.windows * p.width, sizeof(double)); /* or float */
    return w;
}

void rt_room_scatter(RtRooms *rooms, RtScatter p)
{
    const size_t bytes = plan_of(p).bytes;
    rooms->device = bytes > rooms->device ? bytes : rooms->device;
}

/* ---- sorting --------------------------------------------------------------------------------- */

/* counts[digit][block] = ids of the block that have this digit. */
__global__ void __launch_bounds__(SORT_THREADS)
    scatter_count(int32_t *counts, const int32_t *ids, int32_t n, int32_t each, int shift)
{
    __shared__ int32_t count[DIGITS];
    const int32_t first = (int32_t)blockIdx.x * each, end = min(n, first + each);
    count[threadIdx.x] = 0;
    __syncthreads();
    for (int32_t i = first + (int32_t)threadIdx.x; i < end; i += SORT_THREADS)
        atomicAdd(&count[ids[i] >> shift & (DIGITS - 1)], 1);
    __syncthreads();
    counts[threadIdx.x * gridDim.x + blockIdx.x] = count[threadIdx.x];
}

/* In each digit's row of counts: how many there are in blocks before; first[digit]: how many ids
   have smaller digits. A warp to a digit. */
__global__ void __launch_bounds__(SCAN_THREADS)
    scatter_offsets(int32_t *counts, int32_t *first, int32_t blocks)
{
    __shared__ int32_t total[DIGITS];
    const int lane = (int)threadIdx.x % 32;
    for (int digit = (int)threadIdx.x / 32; digit < DIGITS; digit += SCAN_THREADS / 32) {
        int32_t before = 0;
        for (int32_t b0 = 0; b0 < blocks; b0 += 32) {
            int32_t *at = counts + (ptrdiff_t)digit * blocks + b0 + lane;
            const int32_t own = b0 + lane < blocks ? *at : 0;
            int32_t upto = own;
            for (int step = 1; step < 32; step *= 2) {
                const int32_t other = __shfl_up_sync(0xffffffffu, upto, (unsigned)step);
                upto += lane >= step ? other : 0;
            }
            if (b0 + lane < blocks)
                *at = before + upto - own;
            before += __shfl_sync(0xffffffffu, upto, 31);
        }
        if (lane == 0)
            total[digit] = before;
    }
    __syncthreads();
    if (threadIdx.x < DIGITS) {
        int32_t sum = 0;
        for (int digit = 0; digit < (int)threadIdx.x; digit++)
            sum += total[digit];
        first[threadIdx.x] = sum;
    }
}

/* Lanes of the warp with the same digit, this one included; 0 if it has no id. */
static __device__ __forceinline__ unsigned equals(int digit, bool live)
{
    unsigned same = __ballot_sync(0xffffffffu, live);
    for (int bit = 0; bit < 8; bit++) {
        const unsigned ones = __ballot_sync(0xffffffffu, digit >> bit & 1);
        same &= digit >> bit & 1 ? ones : ~ones;
    }
    return live ? same : 0;
}

/* Pairs go where their digit belongs, in the order in which they are; from NULL: that of number i
   is i. SORT_THREADS ids at a time: place[warp][digit] is where the next one of that warp goes. */
__global__ void __launch_bounds__(SORT_THREADS)
    scatter_move(Pairs to, Pairs is, const int32_t *counts, const int32_t *first, int32_t n,
                 int32_t each, int shift)
{
    __shared__ int32_t next[DIGITS], place[SORT_WARPS][DIGITS];
    const int thread = (int)threadIdx.x, warp = thread / 32;
    const int32_t begin = (int32_t)blockIdx.x * each, end = min(n, begin + each);
    next[thread] = first[thread] + counts[threadIdx.x * gridDim.x + blockIdx.x];
    for (int32_t i0 = begin; i0 < end; i0 += SORT_THREADS) {
        const int32_t i = i0 + thread;
        const bool live = i < end;
        const int32_t id = live ? is.id[i] : 0, digit = id >> shift & (DIGITS - 1);
        const unsigned same = equals(digit, live), below = (1u << thread % 32) - 1;
        const int rank = __popc(same & below);
        for (int w = 0; w < SORT_WARPS; w++)
            place[w][thread] = 0;
        __syncthreads();
        if (live && rank == 0)
            place[warp][digit] = __popc(same);
        __syncthreads();
        int32_t at = next[thread];
        for (int w = 0; w < SORT_WARPS; w++) {
            const int32_t count = place[w][thread];
            place[w][thread] = at;
            at += count;
        }
        next[thread] = at;
        __syncthreads();
        if (live) {
            to.id[place[warp][digit] + rank] = id;
            to.from[place[warp][digit] + rank] = is.from ? is.from[i] : i;
        }
        __syncthreads();
    }
}

/* starts[row]: the first of the sorted ids that is not below the row. */
__global__ void __launch_bounds__(SORT_THREADS)
    scatter_starts(int32_t *starts, const int32_t *ids, int32_t n, int32_t n_rows)
{
    const int32_t row = (int32_t)(blockIdx.x * SORT_THREADS + threadIdx.x);
    if (row > n_rows)
        return;
    int32_t lo = 0, hi = n;
    while (lo < hi) {
        const int32_t middle = lo + (hi - lo) / 2;
        if (ids[middle] < row)
            lo = middle + 1;
        else
            hi = middle;
    }
    starts[row] = lo;
}

/* ---- sums ------------------------------------------------------------------------------------ */

struct OfF32 {
    typedef float T, Real;
    static __device__ __forceinline__ float get(float x) { return x; }
};
struct OfF64 {
    typedef double T, Real;
    static __device__ __forceinline__ double get(double x) { return x; }
};
struct OfBf16 {
    typedef rt_bf16 T;
    typedef float Real;
    static __device__ __forceinline__ float get(rt_bf16 x) { return rt_of_bf16(x); }
};
struct OfF16 {
    typedef rt_f16 T;
    typedef float Real;
    static __device__ __forceinline__ float get(rt_f16 x) { return rt_of_f16(x); }
};

/* What the kernels of sums get. `lanes` threads do one row, N columns at a time each. */
template <class Type> struct Sums {
    typename Type::Real *out, *parts; /* parts[2 windows][width] */
    const typename Type::T *rows;
    const int32_t *id, *from, *starts;
    ptrdiff_t width, row_step;
    int32_t n, n_rows, lanes;
    bool add;
};

/* The sum of N columns of the rows number from .. end - 1 of the sorted ones, in order. */
template <class Type, int N>
static __device__ __forceinline__ RtVec<typename Type::Real, N> sum_rows(const Sums<Type> &x,
                                                                         int32_t from, int32_t end,
                                                                         ptrdiff_t column)
{
    enum { AHEAD = 4 }; /* rows that are on their way */
    RtVec<typename Type::Real, N> sum = {};
    for (int32_t p = from; p < end; p += AHEAD) {
        RtVec<typename Type::T, N> row[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            row[i] = rt_load_if<N>(p + i < end,
                                   x.rows + x.from[min(p + i, end - 1)] * x.row_step + column);
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
#pragma unroll
            for (int j = 0; j < N; j++)
                sum.at[j] = p + i < end ? sum.at[j] + Type::get(row[i].at[j]) : sum.at[j];
    }
    return sum;
}

/* Where the sum of the part that begins at sorted id p is kept: a window of PART ids has the begin
   of at most one part that is the first of its id, and of one that is not. */
static __device__ __forceinline__ ptrdiff_t slot_of(int32_t p, bool first)
{
    return (ptrdiff_t)(p / PART) * 2 + first;
}

/* The part of a slot: where it begins and ends, or nothing. */
template <class Type>
static __device__ __forceinline__ bool part_of(const Sums<Type> &x, int32_t slot, int32_t *from,
                                               int32_t *end)
{
    const bool first = slot % 2;
    const int32_t window = slot / 2 * PART, inside = first ? window + PART : window;
    if (inside >= x.n)
        return false;
    const int32_t id = x.id[inside], start = x.starts[id], stop = x.starts[id + 1];
    if (stop - start <= PART)
        return false;
    *from = first ? start : start + (inside - start + PART - 1) / PART * PART;
    *end = min(*from + PART, stop);
    return first ? start >= window && start < inside : *from > start && *from < stop;
}

template <class Type, int N> static __device__ __forceinline__ void sum_part(const Sums<Type> &x)
{
    const int32_t groups = SUM_THREADS / x.lanes;
    const int32_t slot = (int32_t)blockIdx.x * groups + (int32_t)threadIdx.x / x.lanes;
    int32_t from, end;
    if (!part_of(x, slot, &from, &end))
        return;
    for (ptrdiff_t c = (int32_t)threadIdx.x % x.lanes * N; c < x.width; c += x.lanes * N)
        rt_store<N>(x.parts + slot * x.width + c, sum_rows<Type, N>(x, from, end, c));
}

template <class Type, int N> static __device__ __forceinline__ void sum_row(const Sums<Type> &x)
{
    typedef typename Type::Real Real;
    const int32_t groups = SUM_THREADS / x.lanes;
    const int32_t row = (int32_t)blockIdx.x * groups + (int32_t)threadIdx.x / x.lanes;
    if (row >= x.n_rows)
        return;
    const int32_t start = x.starts[row], end = x.starts[row + 1];
    if (x.add && start == end)
        return;
    for (ptrdiff_t c = (int32_t)threadIdx.x % x.lanes * N; c < x.width; c += x.lanes * N) {
        Real *to = x.out + row * x.width + c;
        RtVec<Real, N> sum = {};
        if (end - start <= PART)
            sum = sum_rows<Type, N>(x, start, end, c);
        else
            for (int32_t p = start; p < end; p += PART) {
                const RtVec<Real, N> part = rt_load<N>((const Real *)x.parts
                                                       + slot_of(p, p == start) * x.width + c);
#pragma unroll
                for (int j = 0; j < N; j++)
                    sum.at[j] += part.at[j];
            }
        if (x.add) {
            const RtVec<Real, N> old = rt_load<N>((const Real *)to);
#pragma unroll
            for (int j = 0; j < N; j++)
                sum.at[j] += old.at[j];
        }
        rt_store<N>(to, sum);
    }
}

#define DEFINE_SUMS(name, Type, N)                                                                 \
    __global__ void __launch_bounds__(SUM_THREADS, 8) scatter_parts_##name(Sums<Type> x)           \
    {                                                                                              \
        sum_part<Type, N>(x);                                                                      \
    }                                                                                              \
    __global__ void __launch_bounds__(SUM_THREADS, 8) scatter_rows_##name(Sums<Type> x)            \
    {                                                                                              \
        sum_row<Type, N>(x);                                                                       \
    }                                                                                              \
    static void sums_##name(Sums<Type> x, int windows, RtStream *stream)                           \
    {                                                                                              \
        x.lanes = 1;                                                                               \
        while (x.lanes < SUM_THREADS && x.lanes * (N) < x.width)                                   \
            x.lanes *= 2;                                                                          \
        const int groups = SUM_THREADS / x.lanes;                                                  \
        RT_LAUNCH(stream, stream->where, scatter_parts_##name, rt_blocks(2 * windows, groups),     \
                  SUM_THREADS, 0, x);                                                              \
        RT_LAUNCH(stream, stream->where, scatter_rows_##name, rt_blocks(x.n_rows, groups),         \
                  SUM_THREADS, 0, x);                                                              \
    }
DEFINE_SUMS(f32_4, OfF32, 4)
DEFINE_SUMS(f32_1, OfF32, 1)
DEFINE_SUMS(f64_2, OfF64, 2)
DEFINE_SUMS(f64_1, OfF64, 1)
DEFINE_SUMS(bf16_8, OfBf16, 8)
DEFINE_SUMS(bf16_1, OfBf16, 1)
DEFINE_SUMS(f16_8, OfF16, 8)
DEFINE_SUMS(f16_1, OfF16, 1)

/* ---- as in rt_cuda.h ------------------------------------------------------------------------- */

/* Ids sorted, with where each row's begin. */
static Pairs sort(char *work, const Plan *w, const int32_t *ids, RtStream *stream)
{
    int32_t *const counts = (int32_t *)(work + w->counts), *const first = (int32_t *)(work
                                                                                      + w->first);
    Pairs is = { (int32_t *)ids, NULL };
    for (int pass = 0; pass < w->passes; pass++) {
        const Pairs to = { (int32_t *)(work + w->pairs[pass % 2 * 2]),
                           (int32_t *)(work + w->pairs[pass % 2 * 2 + 1]) };
        RT_LAUNCH(stream, stream->where, scatter_count, w->blocks, SORT_THREADS, 0, counts, is.id,
                  w->n, w->each, 8 * pass);
        RT_LAUNCH(stream, stream->where, scatter_offsets, w->blocks > 0, SCAN_THREADS, 0, counts,
                  first, w->blocks);
        RT_LAUNCH(stream, stream->where, scatter_move, w->blocks, SORT_THREADS, 0, to, is, counts,
                  first, w->n, w->each, 8 * pass);
        is = to;
    }
    RT_LAUNCH(stream, stream->where, scatter_starts,
              rt_blocks(w->n_rows + (ptrdiff_t)1, SORT_THREADS), SORT_THREADS, 0,
              (int32_t *)(work + w->starts), is.id, w->n, w->n_rows);
    return is;
}

template <class Type>
static Sums<Type> sorted(typename Type::Real *out, const int32_t *ids, const typename Type::T *rows,
                         const RtScatter &p, const Plan *w, RtStream *stream)
{
    char *const work = (char *)rt_device_work(stream, w->bytes);
    const Pairs pairs = sort(work, w, ids, stream);
    return { out,        (typename Type::Real *)(work + w->parts),
             rows,       pairs.id,
             pairs.from, (int32_t *)(work + w->starts),
             p.width,    p.row_step,
             w->n,       w->n_rows,
             1,          p.add };
}

/* Can all rows be read and written 16 bytes at a time? */
static bool in_vectors(const void *out, const void *rows, const RtScatter *p, int n)
{
    return (uintptr_t)out % 16 == 0 && (uintptr_t)rows % 16 == 0 && p->width % n == 0
           && (p->n_ids <= 1 || p->row_step % n == 0);
}

/* By sums of N columns at a time where that goes, else of one. */
template <int N, class Type>
static void scatter(typename Type::Real *out, const int32_t *ids, const typename Type::T *rows,
                    const RtScatter &p, RtStream *stream,
                    void (*of_vectors)(Sums<Type> x, int windows, RtStream *stream),
                    void (*of_single)(Sums<Type> x, int windows, RtStream *stream))
{
    const Plan w = plan_of(p);
    const Sums<Type> x = sorted<Type>(out, ids, rows, p, &w, stream);
    (in_vectors(out, rows, &p, N) ? of_vectors : of_single)(x, w.windows, stream);
}

void rt_scatter_f32(float *out, const int32_t *ids, const float *rows, RtScatter p,
                    RtStream *stream)
{
    scatter<4, OfF32>(out, ids, rows, p, stream, sums_f32_4, sums_f32_1);
}

void rt_scatter_f64(double *out, const int32_t *ids, const double *rows, RtScatter p,
                    RtStream *stream)
{
    scatter<2, OfF64>(out, ids, rows, p, stream, sums_f64_2, sums_f64_1);
}

void rt_scatter_bf16_f32(float *out, const int32_t *ids, const rt_bf16 *rows, RtScatter p,
                         RtStream *stream)
{
    scatter<8, OfBf16>(out, ids, rows, p, stream, sums_bf16_8, sums_bf16_1);
}

void rt_scatter_f16_f32(float *out, const int32_t *ids, const rt_f16 *rows, RtScatter p,
                        RtStream *stream)
{
    scatter<8, OfF16>(out, ids, rows, p, stream, sums_f16_8, sums_f16_1);
}
