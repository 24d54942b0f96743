/* attention_tile.h -- tiles of rows in shared memory and their products on tensor cores.
 *
 * In: rows of a head in 16 bits, any distance apart. Out: a tile of rows of P columns in shared
 * memory, fragments of it in registers, as rt_ptx.h describes them. The one idea: 16 bytes number c
 * of row r lie at place c ^ (r % 8) of that row, or c ^ (r / 2 % 4) where a row has 4 places, so
 * that the 8 rows of a matrix that ldmatrix reads lie in different banks, along a row and across. A
 * tile is told by where it begins in the shared memory of the block, at a multiple of 8 rows: the
 * place of a fragment is then one exclusive or with a constant.
 *
 * Device code only. A group of 4 lanes holds rows `group` and `group` + 8 of each 16; lane % 4 is
 * which two of every 8 columns.
 */
#ifndef GRADCC_CUDA_ATTENTION_TILE_H
#define GRADCC_CUDA_ATTENTION_TILE_H

#include "rt_cuda.h"

#include <rt_ptx.h>

enum {
    TILE_THREADS = 128,
    TILE_WARPS = TILE_THREADS / 32,
    TILE_PIECE = 8 /* values in 16 bytes */
};

/* The two 16-bit types: what differs between them. */
struct Bf16 {
    static __device__ __forceinline__ void mma(float c[4], const uint32_t a[4], uint32_t b0,
                                               uint32_t b1)
    {
        rt_mma_bf16(c, a, b0, b1);
    }
    static __device__ __forceinline__ uint32_t pack(float first, float second)
    {
        return rt_pack_bf16(first, second);
    }
    static __device__ __forceinline__ float low(uint32_t both)
    {
        return rt_of_bf16((rt_bf16)(both & 0xffffu));
    }
    static __device__ __forceinline__ float high(uint32_t both)
    {
        return rt_of_bf16((rt_bf16)(both >> 16));
    }
};

struct F16 {
    static __device__ __forceinline__ void mma(float c[4], const uint32_t a[4], uint32_t b0,
                                               uint32_t b1)
    {
        rt_mma_f16(c, a, b0, b1);
    }
    static __device__ __forceinline__ uint32_t pack(float first, float second)
    {
        return rt_pack_f16(first, second);
    }
    static __device__ __forceinline__ float low(uint32_t both)
    {
        return rt_of_f16((rt_f16)(both & 0xffffu));
    }
    static __device__ __forceinline__ float high(uint32_t both)
    {
        return rt_of_f16((rt_f16)(both >> 16));
    }
};

/* Rows of one head in memory: `depth` values each; whole: they start at multiples of 16 bytes, and
   depth is a multiple of 8. */
typedef struct {
    const uint16_t *at;
    ptrdiff_t step, rows;
    int depth;
    bool whole;
} TileRows;

/* Where 16 bytes number `piece` of a row lie in a tile. */
template <int P> static __device__ __forceinline__ int tile_at(int row, int piece)
{
    return row * P + (piece ^ (P > 32 ? row & 7 : row >> 1 & 3)) * TILE_PIECE;
}

/* Up to 8 values that do not lie as 16 bytes; zeros behind the last. */
static __device__ __forceinline__ uint4 tile_gather(const uint16_t *from, int n)
{
    uint32_t pair[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        pair[i] = (2 * i < n ? from[2 * i] : 0u)
                  | (uint32_t)(2 * i + 1 < n ? from[2 * i + 1] : 0u) << 16;
    return make_uint4(pair[0], pair[1], pair[2], pair[3]);
}

/* Rows first .. first + ROWS - 1 go into a tile, by all threads of the block; beyond the last row
   and column there are zeros. Whole rows are under way when this returns. */
template <int ROWS, int P>
static __device__ __forceinline__ void tile_load(uint16_t *tile, TileRows from, ptrdiff_t first)
{
    constexpr int pieces = P / TILE_PIECE, rows_at_once = TILE_THREADS / pieces;
    static_assert(ROWS % rows_at_once == 0 && rows_at_once % 8 == 0, "rows of the same places");
    const int piece = (int)threadIdx.x % pieces, row = (int)threadIdx.x / pieces;
    const int left = from.depth - piece * TILE_PIECE;
    const uint16_t *at = from.at + (first + row) * from.step + piece * TILE_PIECE;
    if (from.whole && from.depth == P && first + ROWS <= from.rows) { /* most tiles */
        uint16_t *const to = tile + tile_at<P>(row, piece);
#pragma unroll(P > 64 ? 1 : ROWS)
        for (int r = 0; r < ROWS; r += rows_at_once) {
            rt_cp_async_16(to + r * P, at, true);
            at += rows_at_once * from.step;
        }
        return;
    }
    if (from.whole) {
#pragma unroll 1
        for (int r = 0; r < ROWS; r += rows_at_once) {
            const bool live = first + row + r < from.rows && left > 0;
            rt_cp_async_16(tile + tile_at<P>(row + r, piece), live ? at : from.at, live);
            at += rows_at_once * from.step;
        }
        return;
    }
#pragma unroll 1
    for (int r = 0; r < ROWS; r += rows_at_once) {
        const int n = first + row + r < from.rows ? left : 0;
        *(uint4 *)(tile + tile_at<P>(row + r, piece)) = tile_gather(at, n);
        at += rows_at_once * from.step;
    }
}

/* ---- fragments ------------------------------------------------------------------------------- */

/* Where this lane's row of a fragment lies in a tile, for row 0 and column 0. */
typedef struct {
    int rows;  /* 16 rows of 16 columns: as a, and turned as b */
    int pairs; /* 16 rows that are columns of b */
} TileLane;

template <int P> static __device__ __forceinline__ TileLane tile_lane(void)
{
    const int lane = (int)threadIdx.x % 32;
    return (TileLane){ tile_at<P>(lane % 16, lane / 16),
                       tile_at<P>(lane / 16 * 8 + lane % 8, lane / 8 % 2) };
}

/* The same number, but the compiler does not know that: what is computed from it inside a loop
   stays there and takes no registers elsewhere. */
static __device__ __forceinline__ int tile_again(int at)
{
    asm volatile("" : "+r"(at));
    return at;
}

/* The same for row `row`, a multiple of 8, and column 16 k; both constants. */
template <int P> static __device__ __forceinline__ int tile_move(int lane, int row, int k)
{
    return (lane ^ k % 4 * 16) + k / 4 * 64 + row * P;
}

/* a[16][16]: rows row .. row + 15, columns 16 k .. 16 k + 15 of a tile. */
template <int P>
static __device__ __forceinline__ void tile_a(uint32_t a[4], const uint16_t *arena, int lane,
                                              int row, int k)
{
    rt_ldmatrix_x4(a, arena + tile_move<P>(lane, row, k));
}

/* b of 16 columns, each a row of the tile: rows row .. row + 15, columns 16 k .. 16 k + 15. b[0],
   b[1] belong to the first 8 rows, b[2], b[3] to the others. */
template <int P>
static __device__ __forceinline__ void tile_b(uint32_t b[4], const uint16_t *arena, int lane,
                                              int row, int k)
{
    rt_ldmatrix_x4(b, arena + tile_move<P>(lane, row, k));
}

/* b of 16 columns, each a column of the tile: rows row .. row + 15, columns 16 n .. 16 n + 15. */
template <int P>
static __device__ __forceinline__ void tile_b_turned(uint32_t b[4], const uint16_t *arena, int lane,
                                                     int row, int n)
{
    rt_ldmatrix_x4_trans(b, arena + tile_move<P>(lane, row, n));
}

/* The sums of two neighbouring tiles of 8 columns as an operand a of 16 columns. */
template <class Half>
static __device__ __forceinline__ void tile_narrow(uint32_t a[4], const float c[2][4])
{
    a[0] = Half::pack(c[0][0], c[0][1]);
    a[1] = Half::pack(c[0][2], c[0][3]);
    a[2] = Half::pack(c[1][0], c[1][1]);
    a[3] = Half::pack(c[1][2], c[1][3]);
}

template <int M, int N> static __device__ __forceinline__ void tile_zero(float c[M][N][4])
{
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                c[m][n][i] = 0;
}

/* ---- products of a warp; a tile is where the lane's row 0 of it lies in the arena ------------ */

/* c[16 M][8 N] = rows of tile a (TileLane.rows) times rows of tile b (.pairs), over P columns. */
template <class Half, int P, int M, int N>
static __device__ __forceinline__ void tile_rows_by_rows(float c[M][N][4], const uint16_t *arena,
                                                         int at_a, int at_b)
{
    tile_zero<M, N>(c);
#pragma unroll(P / 32) /* no further: it takes registers that are not there */
    for (int k = 0; k < P / 16; k++) {
        uint32_t a[M][4], b[4];
#pragma unroll
        for (int m = 0; m < M; m++)
            tile_a<P>(a[m], arena, at_a, 16 * m, k);
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            tile_b<P>(b, arena, at_b, 8 * n, k);
#pragma unroll
            for (int m = 0; m < M; m++) {
                Half::mma(c[m][n], a[m], b[0], b[1]);
                Half::mma(c[m][n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

/* Fragments of 16 M rows, to be held in registers. */
template <int P, int M>
static __device__ __forceinline__ void tile_hold(uint32_t a[M][P / 16][4], const uint16_t *arena,
                                                 int at)
{
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int k = 0; k < P / 16; k++)
            tile_a<P>(a[m][k], arena, at, 16 * m, k);
}

/* As tile_rows_by_rows, with rows that are held. */
template <class Half, int P, int M, int N>
static __device__ __forceinline__ void tile_held_by_rows(float c[M][N][4],
                                                         const uint32_t a[M][P / 16][4],
                                                         const uint16_t *arena, int at_b)
{
    tile_zero<M, N>(c);
#pragma unroll
    for (int k = 0; k < P / 16; k++) {
        uint32_t b[4];
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            tile_b<P>(b, arena, at_b, 8 * n, k);
#pragma unroll
            for (int m = 0; m < M; m++) {
                Half::mma(c[m][n], a[m][k], b[0], b[1]);
                Half::mma(c[m][n + 1], a[m][k], b[2], b[3]);
            }
        }
    }
}

/* c[16 M][P] += w[16 M][8 N], rounded to 16 bits, times the first 8 N rows of a tile (.rows). */
template <class Half, int P, int M, int N>
static __device__ __forceinline__ void tile_weighted(float c[M][P / 8][4], const float w[M][N][4],
                                                     const uint16_t *arena, int at)
{
#pragma unroll
    for (int k = 0; k < N / 2; k++) {
        uint32_t a[M][4], b[4];
#pragma unroll
        for (int m = 0; m < M; m++)
            tile_narrow<Half>(a[m], &w[m][2 * k]);
#pragma unroll
        for (int n = 0; n < P / 16; n++) {
            tile_b_turned<P>(b, arena, at, 16 * k, n);
#pragma unroll
            for (int m = 0; m < M; m++) {
                Half::mma(c[m][2 * n], a[m], b[0], b[1]);
                Half::mma(c[m][2 * n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

/* ---- results --------------------------------------------------------------------------------- */

/* c[16 M][P] of a warp, times factor[m][row, row + 8], to rows row .. of memory by way of the same
   rows of a tile, which no other warp uses any more. */
template <class Half, int P, int M>
static __device__ __forceinline__ void tile_store(uint16_t *to, ptrdiff_t step, ptrdiff_t first,
                                                  ptrdiff_t rows, int depth, bool whole,
                                                  uint16_t *tile, int row,
                                                  const float c[M][P / 8][4],
                                                  const float factor[M][2])
{
    constexpr int pieces = P / TILE_PIECE, rows_at_once = 32 / pieces;
    const int lane = (int)threadIdx.x % 32;
    __syncwarp();
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < P / 8; n++) {
            const int r = row + 16 * m + lane / 4;
            *(uint32_t *)(tile + tile_at<P>(r, n) + lane % 4 * 2) = Half::pack(
                c[m][n][0] * factor[m][0], c[m][n][1] * factor[m][0]);
            *(uint32_t *)(tile + tile_at<P>(r + 8, n) + lane % 4 * 2) = Half::pack(
                c[m][n][2] * factor[m][1], c[m][n][3] * factor[m][1]);
        }
    __syncwarp();
    const int piece = lane % pieces, left = depth - piece * TILE_PIECE;
#pragma unroll 1
    for (int r = lane / pieces; r < 16 * M; r += rows_at_once) {
        if (first + row + r >= rows || left <= 0)
            continue;
        const uint16_t *from = tile + tile_at<P>(row + r, piece);
        uint16_t *at = to + (first + row + r) * step + piece * TILE_PIECE;
        if (whole)
            *(uint4 *)at = *(const uint4 *)from;
        else
            for (int i = 0; i < TILE_PIECE && i < left; i++)
                at[i] = from[i];
    }
}

#endif
