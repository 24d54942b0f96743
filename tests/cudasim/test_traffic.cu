/* test_traffic.cu -- kernels whose traffic is known: what CUDASIM_TRAFFIC must say of them. */
#include "test.h"

__global__ void straight(float4 *y, const float4 *x)
{
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[i];
}

/* Every eighth float: a sector of 32 bytes for each. */
__global__ void strided(float *y, const float *x) { y[8 * threadIdx.x] = x[8 * threadIdx.x]; }

__global__ void twice(float *y, const float *x)
{
    y[threadIdx.x] = x[threadIdx.x] + x[threadIdx.x ^ 1];
}

/* A row by each block; all blocks read w. */
__global__ void each_row(float *y, const float *x, const float *w)
{
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[i] * w[threadIdx.x];
}

template <int pad> __global__ void transpose(float *y, const float *x)
{
    __shared__ float tile[32][32 + pad];
    for (unsigned i = threadIdx.y; i < 32; i += 8)
        tile[i][threadIdx.x] = x[i * 32 + threadIdx.x];
    __syncthreads();
    for (unsigned i = threadIdx.y; i < 32; i += 8)
        y[i * 32 + threadIdx.x] = tile[threadIdx.x][i];
}

int main(void)
{
    float *x = counting(4096), *y = on_device<float>(4096);
    LAUNCH(NULL, straight, 4, 256, 0, (float4 *)y, (const float4 *)x);
    LAUNCH(NULL, strided, 1, 256, 0, y, x);
    LAUNCH(NULL, twice, 1, 256, 0, y, x);
    for (int i = 0; i < 4; i++)
        LAUNCH(NULL, each_row, 8, 128, 0, y, x, x + 2048);
    cudasim_launch(NULL, "transpose_0", 1, dim3(32, 8), 0, transpose<0>, y, x);
    cudasim_launch(NULL, "transpose_1", 1, dim3(32, 8), 0, transpose<1>, y, x);
    return 0;
}
