/* matmul_plain.cu -- own kernels of products: a bias in every row, a bias in 16 bits, and the
 * product itself where the library has no algorithm or is not wanted (RT_MATMUL=plain).
 *
 * In: device memory and an RtProduct. Out: c. The one idea of the product: a block of 256 threads
 * has 64 x 64 elements of c, a thread 4 x 4 of them, and the operands come through shared memory 16
 * columns at a time; sums are in fp32 (fp64), over k in order, rounded once.
 */
#include "cuda/matmul.h"

enum { TILE = 64, DEPTH = 16, SIDE = 16, OWN = 4, THREADS = SIDE * SIDE, BATCH_MOST = 65535 };

/* A type for 16 bits each, since both are the same to C. */
struct Bf16 {
    uint16_t bits;
};
struct F16 {
    uint16_t bits;
};

static __device__ __forceinline__ float load(const float *p) { return *p; }
static __device__ __forceinline__ double load(const double *p) { return *p; }
static __device__ __forceinline__ float load(const Bf16 *p) { return rt_of_bf16(p->bits); }
static __device__ __forceinline__ float load(const F16 *p) { return rt_of_f16(p->bits); }
static __device__ __forceinline__ void store(float *p, float x) { *p = x; }
static __device__ __forceinline__ void store(double *p, double x) { *p = x; }
static __device__ __forceinline__ void store(Bf16 *p, float x) { p->bits = rt_to_bf16(x); }
static __device__ __forceinline__ void store(F16 *p, float x) { p->bits = rt_to_f16(x); }
static __device__ __forceinline__ float multiply_add(float a, float b, float c)
{
    return fmaf(a, b, c);
}
static __device__ __forceinline__ double multiply_add(double a, double b, double c)
{
    return fma(a, b, c);
}

static int grid_batch(int64_t batch) { return batch < BATCH_MOST ? (int)batch : (int)BATCH_MOST; }

/* ---- rows ------------------------------------------------------------------------------------ */

/* Block (x, y): 256 columns of rows y, y + gridDim.y, ...; the batch is more rows. */
template <typename Out, typename Sum>
__global__ void g_product_rows(Out *c, const Sum *bias, int64_t m, int64_t n, int64_t ldc,
                               int64_t batch, int64_t step)
{
    const int64_t column = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= n)
        return;
    const Sum value = bias ? bias[column] : 0;
    for (int64_t row = blockIdx.y; row < m * batch; row += gridDim.y)
        store(c + row / m * step + row % m * ldc + column, value);
}

template <typename Out, typename Sum>
static void rows(void *c, const void *bias, const RtProduct *q, RtStream *stream)
{
    const dim3 grid((unsigned)rt_blocks(q->n, THREADS), (unsigned)grid_batch(q->m * q->batch));
    RT_LAUNCH(stream, stream->where, (g_product_rows<Out, Sum>), grid, THREADS, 0, (Out *)c,
              (const Sum *)bias, q->m, q->n, q->ldc, q->batch, q->step_c);
}

void rt_product_rows(void *c, const void *bias, const RtProduct *q, RtStream *stream)
{
    if (q->out == RT_F64)
        rows<double, double>(c, bias, q, stream);
    else if (q->out == RT_F32)
        rows<float, float>(c, bias, q, stream);
    else if (q->out == RT_BF16)
        rows<Bf16, float>(c, bias, q, stream);
    else
        rows<F16, float>(c, bias, q, stream);
}

/* ---- 16 bits --------------------------------------------------------------------------------- */

template <typename Out> __global__ void g_product_round(Out *to, const float *from, int64_t n)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        store(to + i, from[i]);
}

void rt_product_round(void *to, const float *from, RtType type, ptrdiff_t n, RtStream *stream)
{
    if (type == RT_BF16)
        RT_LAUNCH(stream, stream->where, g_product_round<Bf16>, rt_blocks(n, THREADS), THREADS, 0,
                  (Bf16 *)to, from, n);
    else
        RT_LAUNCH(stream, stream->where, g_product_round<F16>, rt_blocks(n, THREADS), THREADS, 0,
                  (F16 *)to, from, n);
}

/* ---- the product ----------------------------------------------------------------------------- */

typedef struct {
    int64_t m, n, k, lda, ldb, ldc, step_a, step_b, step_c, batch;
    bool ta, tb, add;
} Plain;

/* 64 rows and 16 columns of a matrix, from row and column on, 0 beyond: tile[column][row]. Threads
   go along what is dense in memory. */
template <typename In, typename Sum>
static __device__ void tile_load(Sum tile[DEPTH][TILE + 1], const In *from, bool turned,
                                 int64_t step, int64_t rows, int64_t columns, int64_t row,
                                 int64_t column)
{
    for (int i = (int)threadIdx.x; i < TILE * DEPTH; i += THREADS) {
        const int r = turned ? i % TILE : i / DEPTH, c = turned ? i / TILE : i % DEPTH;
        const int64_t at_row = row + r, at_column = column + c;
        const bool inside = at_row < rows && at_column < columns;
        const int64_t at = turned ? at_column * step + at_row : at_row * step + at_column;
        tile[c][r] = inside ? load(from + at) : 0;
    }
}

template <typename In, typename Out, typename Sum>
static __device__ void tile_product(Out *c, const In *a, const In *b, const Sum *bias,
                                    const Plain &p, int64_t row, int64_t column)
{
    __shared__ Sum tile_a[DEPTH][TILE + 1], tile_b[DEPTH][TILE + 1];
    const int y = (int)threadIdx.x / SIDE, x = (int)threadIdx.x % SIDE;
    Sum sum[OWN][OWN] = {};
    for (int64_t k = 0; k < p.k; k += DEPTH) {
        tile_load(tile_a, a, p.ta, p.lda, p.m, p.k, row, k);
        tile_load(tile_b, b, !p.tb, p.ldb, p.n, p.k, column, k);
        __syncthreads();
        for (int d = 0; d < DEPTH; d++)
            for (int i = 0; i < OWN; i++)
                for (int j = 0; j < OWN; j++)
                    sum[i][j] = multiply_add(tile_a[d][y + i * SIDE], tile_b[d][x + j * SIDE],
                                             sum[i][j]);
        __syncthreads();
    }
    for (int i = 0; i < OWN; i++)
        for (int j = 0; j < OWN; j++) {
            const int64_t at_row = row + y + i * SIDE, at_column = column + x + j * SIDE;
            if (at_row >= p.m || at_column >= p.n)
                continue;
            Out *to = c + at_row * p.ldc + at_column;
            const Sum start = p.add ? load(to) : bias ? bias[at_column] : 0;
            store(to, start + sum[i][j]);
        }
}

/* Block (x, y, z): rows 64 x and columns 64 y of problems z, z + gridDim.z, ... */
template <typename In, typename Out, typename Sum>
__global__ void __launch_bounds__(THREADS, 2)
    g_product_plain(Out *c, const In *a, const In *b, const Sum *bias, Plain p)
{
    for (int64_t z = blockIdx.z; z < p.batch; z += gridDim.z)
        for (int64_t column = (int64_t)blockIdx.y * TILE; column < p.n;
             column += (int64_t)gridDim.y * TILE)
            tile_product(c + z * p.step_c, a + z * p.step_a, b + z * p.step_b, bias, p,
                         (int64_t)blockIdx.x * TILE, column);
}

template <typename In, typename Out, typename Sum>
static void plain(void *c, const void *a, const void *b, const void *bias, bool add,
                  const RtProduct *q, RtStream *stream)
{
    const Plain p = { q->m,      q->n,      q->k,     q->lda,     q->ldb,     q->ldc, q->step_a,
                      q->step_b, q->step_c, q->batch, q->ta != 0, q->tb != 0, add };
    const dim3 grid((unsigned)rt_blocks(q->m, TILE), (unsigned)grid_batch((q->n + TILE - 1) / TILE),
                    (unsigned)grid_batch(q->batch));
    RT_LAUNCH(stream, stream->where, (g_product_plain<In, Out, Sum>), grid, THREADS, 0, (Out *)c,
              (const In *)a, (const In *)b, (const Sum *)bias, p);
}

void rt_product_plain(void *c, const void *a, const void *b, const void *bias, bool add,
                      const RtProduct *q, RtStream *stream)
{
    if (q->in == RT_F64)
        plain<double, double, double>(c, a, b, bias, add, q, stream);
    else if (q->in == RT_F32)
        plain<float, float, float>(c, a, b, bias, add, q, stream);
    else if (q->in == RT_BF16 && q->out == RT_BF16)
        plain<Bf16, Bf16, float>(c, a, b, bias, add, q, stream);
    else if (q->in == RT_BF16)
        plain<Bf16, float, float>(c, a, b, bias, add, q, stream);
    else if (q->out == RT_F16)
        plain<F16, F16, float>(c, a, b, bias, add, q, stream);
    else
        plain<F16, float, float>(c, a, b, bias, add, q, stream);
}

/* ---- what is timed --------------------------------------------------------------------------- */

/* 16 bits each: a sign, digits, and an exponent near 0 whichever type reads them. */
__global__ void g_product_fill(uint16_t *at, int64_t n)
{
    const int64_t threads = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += threads) {
        const uint32_t mixed = (uint32_t)i * 2654435761u;
        at[i] = (uint16_t)(0x3f80u | (mixed >> 16 & 0x807fu));
    }
}

void rt_product_fill(void *at, size_t bytes, RtStream *stream)
{
    const int64_t n = (int64_t)(bytes / 2);
    const int blocks = n < 1024 * THREADS ? rt_blocks(n, THREADS) : 1024;
    RT_LAUNCH(stream, stream->where, g_product_fill, blocks, THREADS, 0, (uint16_t *)at, n);
}

/* A word of 16 bytes of each per thread; a sum keeps what is only read from being left out. */
__global__ void __launch_bounds__(THREADS)
    g_product_walk(uint4 *to, const uint4 *x, const uint4 *y, int64_t n, bool write)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= n)
        return;
    uint4 v = y[i];
    if (x) {
        const uint4 w = x[i];
        v = make_uint4(v.x ^ w.y, v.y ^ w.z, v.z ^ w.w, v.w ^ w.x);
    }
    if (write || (v.x & v.y & v.z & v.w) == 0xffffffffu)
        to[i] = v;
}

void rt_product_walk(void *to, const void *x, const void *y, size_t bytes, bool write,
                     RtStream *stream)
{
    const int64_t n = (int64_t)(bytes / sizeof(uint4));
    RT_LAUNCH(stream, stream->where, g_product_walk, rt_blocks(n, THREADS), THREADS, 0, (uint4 *)to,
              (const uint4 *)x, (const uint4 *)y, n, write);
}
