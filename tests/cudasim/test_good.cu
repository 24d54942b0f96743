/* test_good.cu -- correct programs, which pass under all orders of threads, blocks and streams. */
#include "test.h"

__global__ void __launch_bounds__(256) add_one(float *y, const float *x, int n)
{
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n)
        y[i] = x[i] + 1.0f;
}

/* One block: sums of warps, then of the block. */
__device__ float block_sum(float v)
{
    __shared__ float warps[32];
    for (int d = 16; d; d >>= 1)
        v += __shfl_xor_sync(~0u, v, d);
    if (threadIdx.x % 32 == 0)
        warps[threadIdx.x / 32] = v;
    __syncthreads();
    v = threadIdx.x < blockDim.x / 32 ? warps[threadIdx.x] : 0.0f;
    if (threadIdx.x < 32)
        for (int d = 16; d; d >>= 1)
            v += __shfl_down_sync(~0u, v, (unsigned)d);
    return v; /* of thread 0 */
}

__global__ void sum_all(float *out, const float *x, int n)
{
    float v = 0;
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x)
        v += x[i];
    v = block_sum(v);
    if (threadIdx.x == 0)
        *out = v;
}

static float read_one(const float *p)
{
    float v;
    CHECK(cudaMemcpy(&v, p, sizeof v, cudaMemcpyDeviceToHost));
    return v;
}

static void reduction(void)
{
    float *x = counting(1000), *y = on_device<float>(1000), *out = on_device<float>(1);
    LAUNCH(NULL, add_one, 4, 256, 0, y, x, 1000);
    LAUNCH(NULL, sum_all, 1, 256, 0, out, y, 1000);
    WANT(read_one(out) == 500500.0f);
    CHECK(cudaFree(x));
}

__global__ void last_block(float *out, float *parts, unsigned *count, const float *x, int n)
{
    __shared__ bool last;
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    const float v = block_sum(i < n ? x[i] : 0.0f);
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = v;
        __threadfence();
        last = atomicAdd(count, 1u) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    if (!last)
        return;
    const float part = block_sum(threadIdx.x < gridDim.x ? parts[threadIdx.x] : 0.0f);
    if (threadIdx.x == 0) {
        *out = part;
        *count = 0;
    }
}

static void last_block_adds(void)
{
    float *x = counting(1000), *parts = on_device<float>(8), *out = on_device<float>(1);
    unsigned *count = on_device<unsigned>(1);
    CHECK(cudaMemset(count, 0, sizeof *count));
    for (int i = 0; i < 2; i++) {
        LAUNCH(NULL, last_block, 8, 128, 0, out, parts, count, x, 1000);
        WANT(read_one(out) == 499500.0f);
    }
}

__global__ void transpose(float4 *y, const float4 *x)
{
    float *tile = (float *)cudasim_shared_arena();
    const float4 v = x[threadIdx.x];
    tile[4 * threadIdx.x] = v.x, tile[4 * threadIdx.x + 1] = v.y;
    tile[4 * threadIdx.x + 2] = v.z, tile[4 * threadIdx.x + 3] = v.w;
    __syncwarp();
    const float *t = tile + threadIdx.x; /* a matrix [4, 32], of rows of 32 */
    y[threadIdx.x] = make_float4(t[0], t[32], t[64], t[96]);
}

static void vectors_in_a_warp(void)
{
    float *x = counting(128), *y = on_device<float>(128), h[128];
    LAUNCH(NULL, transpose, 1, 32, 512, (float4 *)y, (const float4 *)x);
    CHECK(cudaMemcpy(h, y, sizeof h, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 128; i++)
        WANT(h[i] == (float)(i % 4 * 32 + i / 4));
}

__global__ void votes(unsigned *out)
{
    const unsigned lane = threadIdx.x & 31;
    const unsigned odd = __ballot_sync(~0u, lane & 1);
    const int any = __any_sync(~0u, lane == 7), all = __all_sync(~0u, lane == 7);
    const double low = __shfl_sync(~0u, (double)lane, 3, 8);
    const int up = __shfl_up_sync(~0u, (int)lane, 1);
    const unsigned same = __match_any_sync(~0u, lane / 8);
    if (lane < 16)
        __syncwarp(0xffffu);
    const int count = __syncthreads_count(threadIdx.x < 40);
    out[threadIdx.x] = odd == 0xaaaaaaaau && any && !all && low == (double)(lane / 8 * 8 + 3)
                       && up == (lane ? (int)lane - 1 : 0) && same == 0xffu << lane / 8 * 8
                       && count == 40 && __syncthreads_or(threadIdx.x == 3)
                       && !__syncthreads_and(threadIdx.x == 3)
                       && __reduce_max_sync(~0u, lane) == 31;
}

static void votes_and_shuffles(void)
{
    unsigned *out = on_device<unsigned>(64), h[64];
    LAUNCH(NULL, votes, 1, 64, 0, out);
    CHECK(cudaMemcpy(h, out, sizeof h, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 64; i++)
        WANT(h[i] == 1);
}

/* Halves of a word belong to two threads. */
__global__ void halves(uint16_t *y)
{
    __shared__ uint16_t s[64];
    s[threadIdx.x] = (uint16_t)threadIdx.x;
    __syncthreads();
    y[threadIdx.x] = s[63 - threadIdx.x];
}

/* In place, with a neighbour's half read where the barrier allows it. */
__global__ void halves_in_place(uint16_t *y, unsigned char *z)
{
    const uint16_t own = y[threadIdx.x], other = y[threadIdx.x ^ 2];
    __syncthreads();
    y[threadIdx.x] = (uint16_t)(y[threadIdx.x] + 1 + 0 * (own + other));
    z[threadIdx.x] = (unsigned char)(z[threadIdx.x] + 1);
}

static void halves_of_words(void)
{
    uint16_t *y = on_device<uint16_t>(64), h[64];
    unsigned char *z = on_device<unsigned char>(64);
    LAUNCH(NULL, halves, 1, 64, 0, y);
    CHECK(cudaMemset(z, 0, 64));
    LAUNCH(NULL, halves_in_place, 1, 64, 0, y, z);
    CHECK(cudaMemcpy(h, y, sizeof h, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 64; i++)
        WANT(h[i] == 64 - i);
}

/* Double-buffered input: copies on one stream, work on another, events both ways. */
static void two_streams(void)
{
    cudaStream_t copies = new_stream(), work = new_stream();
    cudaEvent_t filled[2], empty[2];
    float *host[2], *x[2], *y = on_device<float>(256), *total = on_device<float>(8);
    for (int i = 0; i < 2; i++) {
        CHECK(cudaEventCreateWithFlags(&filled[i], cudaEventDisableTiming));
        CHECK(cudaEventCreateWithFlags(&empty[i], cudaEventDisableTiming));
        host[i] = pinned<float>(256), x[i] = on_device<float>(256);
    }
    for (int step = 0; step < 8; step++) {
        const int b = step % 2;
        CHECK(cudaEventSynchronize(filled[b])); /* the host's buffer is free again */
        for (int i = 0; i < 256; i++)
            host[b][i] = (float)step;
        CHECK(cudaStreamWaitEvent(copies, empty[b]));
        CHECK(cudaMemcpyAsync(x[b], host[b], 1024, cudaMemcpyHostToDevice, copies));
        CHECK(cudaEventRecord(filled[b], copies));
        CHECK(cudaStreamWaitEvent(work, filled[b]));
        LAUNCH(work, add_one, 1, 256, 0, y, x[b], 256);
        CHECK(cudaEventRecord(empty[b], work));
        LAUNCH(work, sum_all, 1, 256, 0, total + step, y, 256);
    }
    CHECK(cudaStreamSynchronize(work));
    for (int step = 0; step < 8; step++)
        WANT(read_one(total + step) == 256.0f * (float)(step + 1));
}

/* A graph of two branches, launched twice. */
static void graph(void)
{
    cudaStream_t a = new_stream(), b = new_stream();
    cudaEvent_t fork, join;
    cudaGraph_t graph;
    cudaGraphNode_t nodes[6];
    cudaGraphNodeType type;
    size_t n;
    int kernels = 0;
    cudaGraphExec_t exec;
    float *x = counting(256), *y = on_device<float>(256), *z = on_device<float>(256);
    float *out = pinned<float>(2), *sums = on_device<float>(2);
    CHECK(cudaEventCreate(&fork));
    CHECK(cudaEventCreate(&join));
    CHECK(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal));
    LAUNCH(a, add_one, 1, 256, 0, y, x, 256);
    CHECK(cudaEventRecord(fork, a));
    CHECK(cudaStreamWaitEvent(b, fork));
    LAUNCH(b, add_one, 1, 256, 0, z, y, 256);
    LAUNCH(b, sum_all, 1, 256, 0, sums, z, 256);
    LAUNCH(a, sum_all, 1, 256, 0, sums + 1, y, 256);
    CHECK(cudaEventRecord(join, b));
    CHECK(cudaStreamWaitEvent(a, join));
    LAUNCH(a, add_one, 1, 256, 0, x, z, 256);
    CHECK(cudaMemsetAsync(z, 0, 1024, a));
    CHECK(cudaStreamEndCapture(a, &graph));
    CHECK(cudaGraphGetNodes(graph, NULL, &n));
    WANT(n == 6);
    CHECK(cudaGraphGetNodes(graph, nodes, &n));
    for (size_t i = 0; i < n; i++) {
        CHECK(cudaGraphNodeGetType(nodes[i], &type));
        kernels += type == cudaGraphNodeTypeKernel;
    }
    WANT(kernels == 5);
    CHECK(cudaGraphInstantiate(&exec, graph));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaGraphLaunch(exec, a));
    CHECK(cudaGraphLaunch(exec, a));
    CHECK(cudaMemcpyAsync(out, sums, 8, cudaMemcpyDeviceToHost, a));
    CHECK(cudaStreamSynchronize(a));
    WANT(out[0] == 32640.0f + 5 * 256.0f && out[1] == 32640.0f + 4 * 256.0f);
    CHECK(cudaGraphExecDestroy(exec));
}

static void events_and_queries(void)
{
    cudaStream_t s = new_stream();
    cudaEvent_t start, end;
    float *x = counting(64), *y = on_device<float>(64), ms;
    CHECK(cudaEventCreate(&start));
    CHECK(cudaEventCreate(&end));
    CHECK(cudaEventRecord(start, s));
    LAUNCH(s, add_one, 1, 64, 0, y, x, 64);
    CHECK(cudaEventRecord(end, s));
    cudaError_t error;
    while ((error = cudaEventQuery(end)) == cudaErrorNotReady)
        ;
    CHECK(error);
    CHECK(cudaEventElapsedTime(&ms, start, end));
    WANT(ms > 0);
}

/* A copy keeps what is not written apart. */
static void partly_written(void)
{
    float *x = on_device<float>(8), *y = on_device<float>(8);
    CHECK(cudaMemset(x, 0, 16));
    CHECK(cudaMemcpy(y, x, 32, cudaMemcpyDeviceToDevice));
    CHECK(cudaDeviceSynchronize());
    WANT(read_one(y + 3) == 0);
}

static void memory_limit(void)
{
    void *p;
    size_t free, total;
    setenv("CUDASIM_MEMORY", "1000000", 1);
    CHECK(cudaMemGetInfo(&free, &total));
    WANT(total == 1000000 && free == total);
    WANT(cudaMalloc(&p, 1000001) == cudaErrorMemoryAllocation && !p);
    WANT(cudaGetLastError() == cudaErrorMemoryAllocation && cudaGetLastError() == cudaSuccess);
    CHECK(cudaMalloc(&p, 900000));
    WANT(cudaMalloc(&p, 200000) == cudaErrorMemoryAllocation);
}

static void launch_limits(void)
{
    float *x = counting(4);
    LAUNCH(NULL, add_one, 1, 1025, 0, x, x, 4);
    WANT(cudaGetLastError() == cudaErrorInvalidConfiguration);
    LAUNCH(NULL, add_one, 1, 288, 0, x, x, 4); /* beyond its bounds */
    WANT(cudaGetLastError() == cudaErrorInvalidValue);
    LAUNCH(NULL, add_one, 0, 32, 0, x, x, 4);
    WANT(cudaGetLastError() == cudaErrorInvalidConfiguration);
    LAUNCH(NULL, add_one, dim3(1, 65536), 32, 0, x, x, 4);
    WANT(cudaGetLastError() == cudaErrorInvalidConfiguration);
    LAUNCH(NULL, add_one, 1, 32, 49153, x, x, 4);
    WANT(cudaGetLastError() == cudaErrorInvalidValue);
    CHECK(cudaFuncSetAttribute(add_one, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536));
    LAUNCH(NULL, add_one, 1, 32, 65536, x, x, 4);
    CHECK(cudaDeviceSynchronize());
    WANT(cudaFuncSetAttribute(add_one, cudaFuncAttributeMaxDynamicSharedMemorySize, 1 << 20)
         == cudaErrorInvalidValue);
}

static void injected(void)
{
    void *p;
    int count;
    float *x;
    setenv("CUDASIM_FAIL",
           "cudaMalloc:2:cudaErrorMemoryAllocation,"
           "launch:add_one:2:cudaErrorLaunchFailure",
           1);
    x = counting(4);
    WANT(cudaMalloc(&p, 4) == cudaErrorMemoryAllocation);
    LAUNCH(NULL, add_one, 1, 32, 0, x, x, 4);
    CHECK(cudaDeviceSynchronize());
    LAUNCH(NULL, add_one, 1, 32, 0, x, x, 4); /* fails while it runs: the device is lost */
    WANT(cudaDeviceSynchronize() == cudaErrorLaunchFailure);
    WANT(cudaMalloc(&p, 4) == cudaErrorLaunchFailure && cudaGetLastError() && cudaGetLastError());
    WANT(cudaGetDeviceCount(&count) == cudaErrorLaunchFailure);
}

static void no_driver(void)
{
    int n;
    setenv("CUDASIM_DRIVER", "none", 1);
    WANT(cudaGetDeviceCount(&n) == cudaErrorInsufficientDriver && n == 0);
    CHECK(cudaDriverGetVersion(&n));
    WANT(n == 0);
}

static void wrong_architecture(void)
{
    setenv("CUDASIM_ARCH", "70", 1);
    float *x = counting(4);
    LAUNCH(NULL, add_one, 1, 32, 0, x, x, 4);
    WANT(cudaGetLastError() == cudaErrorNoKernelImageForDevice);
}

static const Case cases[] = {
    { "reduction", reduction, NULL },
    { "last_block", last_block_adds, NULL },
    { "vectors_in_a_warp", vectors_in_a_warp, NULL },
    { "votes_and_shuffles", votes_and_shuffles, NULL },
    { "halves_of_words", halves_of_words, NULL },
    { "two_streams", two_streams, NULL },
    { "graph", graph, NULL },
    { "events_and_queries", events_and_queries, NULL },
    { "partly_written", partly_written, NULL },
    { "memory_limit", memory_limit, NULL },
    { "launch_limits", launch_limits, NULL },
    { "injected", injected, NULL },
    { "no_driver", no_driver, NULL },
    { "wrong_architecture", wrong_architecture, NULL },
};

int main(int argc, char **argv)
{
    return run_cases(cases, sizeof cases / sizeof *cases, argc, argv);
}
