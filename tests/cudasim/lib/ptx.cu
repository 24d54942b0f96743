/* ptx.cu -- fragments of mma and ldmatrix against the formulas of the PTX ISA, late copies.
 *
 * The layouts stand here a second time, as the ISA writes them for .bf16/.f16 of mma.m16n8k16:
 *   A: row = groupID for ai of i = 0,1,4,5, groupID + 8 else;
 *      col = threadID_in_group * 2 + (i & 1), + 8 for i >= 4
 *   B: row = threadID_in_group * 2 + (i & 1), + 8 for i >= 2; col = groupID
 *   C: row = groupID for i < 2, groupID + 8 else; col = threadID_in_group * 2 + (i & 1)
 * with groupID = lane >> 2 and threadID_in_group = lane % 4. With an argument: one planted fault,
 * or "faults": their names.
 */
#include <math.h>
#include <string.h>

#include <rt_ptx.h>

#include "test.h"
#include "half.h"

static __device__ int a_row(int lane, int i)
{
    const bool low = (i >= 0 && i < 2) || (i >= 4 && i < 6);
    return (lane >> 2) + (low ? 0 : 8);
}
static __device__ int a_col(int lane, int i) { return lane % 4 * 2 + (i & 1) + (i >= 4 ? 8 : 0); }
static __device__ int b_row(int lane, int i) { return lane % 4 * 2 + (i & 1) + (i >= 2 ? 8 : 0); }
static __device__ int b_col(int lane) { return lane >> 2; }
static __device__ int c_row(int lane, int i) { return (lane >> 2) + (i < 2 ? 0 : 8); }
static __device__ int c_col(int lane, int i) { return lane % 4 * 2 + (i & 1); }

/* c[16][8] += a[16][16] b[16][8], every element fetched by the formulas. */
__global__ void product(float *c, const uint16_t *a, const uint16_t *b, bool bf16)
{
    const int lane = (int)threadIdx.x;
    uint32_t ra[4], rb[2];
    float rc[4];
    for (int i = 0; i < 8; i += 2) {
        const uint16_t *at = a + a_row(lane, i) * 16 + a_col(lane, i);
        ra[i / 2] = at[0] | (uint32_t)at[1] << 16;
    }
    for (int i = 0; i < 4; i += 2)
        rb[i / 2] = b[b_row(lane, i) * 8 + b_col(lane)]
                    | (uint32_t)b[b_row(lane, i + 1) * 8 + b_col(lane)] << 16;
    for (int i = 0; i < 4; i++)
        rc[i] = c[c_row(lane, i) * 8 + c_col(lane, i)];
    if (bf16)
        rt_mma_bf16(rc, ra, rb[0], rb[1]);
    else
        rt_mma_f16(rc, ra, rb[0], rb[1]);
    for (int i = 0; i < 4; i++)
        c[c_row(lane, i) * 8 + c_col(lane, i)] = rc[i];
}

/* The same from shared memory: A by ldmatrix, B by its transposed form, two steps of 16 along k;
   operands come by late copies, the second step while the first one is computed. */
__global__ void from_shared(float *c, const uint16_t *a, const uint16_t *b)
{
    __shared__ __align__(16) uint16_t sa[2][16][16], sb[2][16][16];
    const int lane = (int)threadIdx.x;
    float left[4] = {}, right[4] = {};
    for (int step = 0; step < 2; step++) { /* 32 pieces of 16 bytes of A, as many of B */
        rt_cp_async_16(&sa[step][lane / 2][lane % 2 * 8],
                       a + lane / 2 * 32 + step * 16 + lane % 2 * 8, true);
        rt_cp_async_16(&sb[step][lane / 2][lane % 2 * 8],
                       b + (step * 16 + lane / 2) * 16 + lane % 2 * 8, true);
        rt_cp_async_commit();
    }
    for (int step = 0; step < 2; step++) {
        uint32_t ra[4], rb[4];
        if (step == 0)
            rt_cp_async_wait<1>();
        else
            rt_cp_async_wait<0>();
        __syncthreads();
        /* Matrices of A: rows 0-7 and 8-15 of columns 0-7, then of columns 8-15. */
        rt_ldmatrix_x4(ra, &sa[step][lane % 16][lane / 16 * 8]);
        /* Of B: rows 0-7 and 8-15 of columns 0-7, then of columns 8-15; a column becomes a row. */
        rt_ldmatrix_x4_trans(rb, &sb[step][lane % 16][lane / 16 * 8]);
        rt_mma_bf16(left, ra, rb[0], rb[1]);
        rt_mma_bf16(right, ra, rb[2], rb[3]);
    }
    for (int i = 0; i < 4; i++) {
        c[c_row(lane, i) * 16 + c_col(lane, i)] = left[i];
        c[c_row(lane, i) * 16 + 8 + c_col(lane, i)] = right[i];
    }
}

/* live false: zeros, whatever the address. */
__global__ void tail(uint16_t *out, const uint16_t *in, int n)
{
    __shared__ __align__(16) uint16_t s[32][8];
    const int lane = (int)threadIdx.x;
    rt_cp_async_16(s[lane], in + lane * 8, lane < n);
    rt_cp_async_commit();
    rt_cp_async_wait<0>();
    for (int i = 0; i < 8; i++)
        out[lane * 8 + i] = s[lane][i];
}

__global__ void convert(uint32_t *bits, float *powers, const float *x)
{
    const int i = (int)threadIdx.x;
    bits[2 * i] = rt_pack_bf16(x[i], x[i + 1]);
    bits[2 * i + 1] = rt_pack_f16(x[i], x[i + 1]);
    powers[i] = rt_exp2_fast(x[i]);
}

enum {
    NO_WAIT = 1,
    NO_BARRIER,
    ENDS_EARLY,
    HALF_A_WARP,
    NOT_SHARED,
    MISALIGNED,
    OVERWRITES,
    FAULTS
};
static const struct {
    const char *name, *text;
} faults[FAULTS] = { {},
                     { "no-wait", "which nothing has written" },
                     { "no-barrier", "which nothing has written" },
                     { "ends-early", "rt_cp_async_wait is missing" },
                     { "half-warp", "operation of a warp in divergent code" },
                     { "not-shared", "is not in shared memory" },
                     { "misaligned", "misaligned address" },
                     { "overwrites", "without __syncthreads between" } };

__global__ void faulty(float *out, const uint16_t *in, int fault)
{
    __shared__ __align__(16) uint16_t s[64][8];
    const int thread = (int)threadIdx.x;
    uint32_t r[4] = {};
    float c[4] = {};
    if (fault == OVERWRITES) {
        for (int i = 0; i < 8; i++)
            s[thread][i] = 1;
        __syncthreads();
        out[thread] = s[thread ^ 32][0];
    }
    rt_cp_async_16(s[thread], in + thread * 8, true);
    rt_cp_async_commit();
    if (fault == ENDS_EARLY)
        return;
    if (fault != NO_WAIT)
        rt_cp_async_wait<0>();
    if (fault != NO_BARRIER)
        __syncthreads();
    if (fault == HALF_A_WARP && thread % 32 < 16)
        return;
    const void *row = fault == NOT_SHARED   ? (const void *)(in + thread * 8)
                      : fault == MISALIGNED ? (const void *)&s[thread / 2][1]
                                            : (const void *)s[thread ^ 32];
    rt_ldmatrix_x4(r, row);
    rt_mma_bf16(c, r, r[0], r[1]);
    rt_cp_async_wait<0>();
    out[thread] = c[0];
}

/* ---- host ------------------------------------------------------------------------------------ */

static void *upload(const void *from, size_t bytes)
{
    void *at;
    MUST(cudaMalloc(&at, bytes));
    MUST(cudaMemcpy(at, from, bytes, cudaMemcpyHostToDevice));
    return at;
}

/* Small whole numbers: every sum is exact, in whatever order. */
static float value(int i) { return (float)(i * 7 % 13 - 6); }

static void fill(uint16_t *x, int n, bool bf16, int seed)
{
    for (int i = 0; i < n; i++)
        x[i] = bf16 ? rt_to_bf16(value(i + seed)) : rt_to_f16(value(i + seed));
}

static void test_product(bool bf16)
{
    uint16_t a[16 * 16], b[16 * 8];
    float c[16 * 8];
    bool same = true;
    fill(a, 256, bf16, 3);
    fill(b, 128, bf16, 5);
    for (int i = 0; i < 128; i++)
        c[i] = (float)i;
    float *dc = (float *)upload(c, sizeof c);
    LAUNCH(product, 1, 32, dc, (const uint16_t *)upload(a, sizeof a),
           (const uint16_t *)upload(b, sizeof b), bf16);
    MUST(cudaMemcpy(c, dc, sizeof c, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 8; j++) {
            float sum = (float)(i * 8 + j);
            for (int k = 0; k < 16; k++)
                sum += value(i * 16 + k + 3) * value(k * 8 + j + 5);
            same = same && sum == c[i * 8 + j];
        }
    printf("%s ptx/mma-%s%s\n", same ? "ok" : "not ok", bf16 ? "bf16" : "f16",
           same ? "" : ": C differs from a plain product");
}

static void test_from_shared(void)
{
    uint16_t a[16 * 32], b[32 * 16];
    float c[16 * 16];
    bool same = true;
    fill(a, 512, true, 1);
    fill(b, 512, true, 2);
    memset(c, 0, sizeof c);
    float *dc = (float *)upload(c, sizeof c);
    LAUNCH(from_shared, 1, 32, dc, (const uint16_t *)upload(a, sizeof a),
           (const uint16_t *)upload(b, sizeof b));
    MUST(cudaMemcpy(c, dc, sizeof c, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++) {
            float sum = 0;
            for (int k = 0; k < 32; k++)
                sum += value(i * 32 + k + 1) * value(k * 16 + j + 2);
            same = same && sum == c[i * 16 + j];
        }
    printf("%s ptx/ldmatrix%s\n", same ? "ok" : "not ok",
           same ? "" : ": C differs from a plain product");
}

static void test_tail(void)
{
    uint16_t in[20 * 8], out[32 * 8];
    bool same = true;
    fill(in, 160, true, 0);
    uint16_t *d;
    MUST(cudaMalloc((void **)&d, sizeof out));
    LAUNCH(tail, 1, 32, d, (const uint16_t *)upload(in, sizeof in), 20);
    MUST(cudaMemcpy(out, d, sizeof out, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 256; i++)
        same = same && out[i] == (i < 160 ? in[i] : 0);
    printf("%s ptx/copy%s\n", same ? "ok" : "not ok", same ? "" : ": what arrived differs");
}

static void test_convert(void)
{
    const float x[9] = { 1.0f, -2.5f, 3.14159f, 1e-5f, 70000.0f, -1e30f, 0.0f, -130.0f, 1.0f };
    uint32_t bits[16];
    float powers[8];
    bool same = true;
    uint32_t *db;
    float *dp;
    MUST(cudaMalloc((void **)&db, sizeof bits));
    MUST(cudaMalloc((void **)&dp, sizeof powers));
    LAUNCH(convert, 1, 8, db, dp, (const float *)upload(x, sizeof x));
    MUST(cudaMemcpy(bits, db, sizeof bits, cudaMemcpyDeviceToHost));
    MUST(cudaMemcpy(powers, dp, sizeof powers, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 8; i++) {
        const double exact = exp2((double)x[i]);
        same = same && bits[2 * i] == (rt_to_bf16(x[i]) | (uint32_t)rt_to_bf16(x[i + 1]) << 16)
               && bits[2 * i + 1] == (rt_to_f16(x[i]) | (uint32_t)rt_to_f16(x[i + 1]) << 16)
               && (exact < 0x1p-126  ? powers[i] == 0
                   : exact > 0x1p127 ? isinf(powers[i])
                                     : fabs((double)powers[i] - exact) <= exact * 0x1p-21);
    }
    printf("%s ptx/convert%s\n", same ? "ok" : "not ok", same ? "" : ": a value differs");
}

static void plant(int fault)
{
    uint16_t in[64 * 8];
    float *out, first[64];
    fill(in, 512, true, 0);
    MUST(cudaMalloc((void **)&out, sizeof first));
    LAUNCH(faulty, 1, 64, out, (const uint16_t *)upload(in, sizeof in), fault);
    MUST(cudaMemcpy(first, out, sizeof first, cudaMemcpyDeviceToHost));
}

int main(int argc, char **argv)
{
    for (int i = 1; i < FAULTS && argc > 1 && strcmp(argv[1], "faults") == 0; i++)
        printf("%s %s\n", faults[i].name, faults[i].text);
    if (argc < 2) {
        test_product(true);
        test_product(false);
        test_from_shared();
        test_tail();
        test_convert();
        return 0;
    }
    for (int i = 1; i < FAULTS; i++)
        if (strcmp(argv[1], faults[i].name) == 0)
            plant(i);
    return 0;
}
