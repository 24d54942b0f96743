/* test_faults.cu -- planted faults: each must end with exit code 99 and a report that names it. */
#include "test.h"

__global__ void fill(float *y, float value, int n)
{
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n)
        y[i] = value;
}

__global__ void copy(float *y, const float *x, int n)
{
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n)
        y[i] = x[i];
}

static void run(cudaStream_t s, float *y, const float *x) { LAUNCH(s, copy, 2, 32, 0, y, x, 64); }

/* ---- shared memory --------------------------------------------------------------------------- */

__global__ void no_barrier(float *y)
{
    __shared__ float s[64];
    s[threadIdx.x] = (float)threadIdx.x;
    y[threadIdx.x] = s[63 - threadIdx.x];
}

static void missing_barrier(void)
{
    LAUNCH(NULL, no_barrier, 1, 64, 0, on_device<float>(64));
    CHECK(cudaDeviceSynchronize());
}

/* The next pass writes what others may still read. */
__global__ void no_second_barrier(float *y)
{
    __shared__ float s[64];
    for (int i = 0; i < 2; i++) {
        s[threadIdx.x] = (float)(threadIdx.x + (unsigned)i);
        __syncthreads();
        y[threadIdx.x] = s[63 - threadIdx.x];
    }
}

static void missing_second_barrier(void)
{
    LAUNCH(NULL, no_second_barrier, 1, 64, 0, on_device<float>(64));
    /* nobody waits: it runs when the program ends */
}

/* A shuffle orders no memory. */
__global__ void no_syncwarp(float *y)
{
    __shared__ float s[32];
    s[threadIdx.x] = (float)threadIdx.x;
    const float v = __shfl_xor_sync(~0u, 1.0f, 1);
    y[threadIdx.x] = s[31 - threadIdx.x] * v;
}

static void missing_syncwarp(void)
{
    LAUNCH(NULL, no_syncwarp, 1, 32, 0, on_device<float>(32));
    CHECK(cudaDeviceSynchronize());
}

/* The same with halves of words. */
__global__ void no_barrier_16(uint16_t *y)
{
    __shared__ uint16_t s[128];
    s[threadIdx.x] = (uint16_t)threadIdx.x;
    __syncthreads();
    const uint16_t v = s[127 - threadIdx.x];
    s[threadIdx.x] = v;
    __syncthreads();
    y[threadIdx.x] = s[threadIdx.x];
}

static void halves_missing_barrier(void)
{
    LAUNCH(NULL, no_barrier_16, 1, 128, 0, on_device<uint16_t>(128));
    CHECK(cudaDeviceSynchronize());
}

__global__ void same_place(float *y)
{
    __shared__ float s;
    s = (float)threadIdx.x;
    __syncthreads();
    y[threadIdx.x] = s;
}

static void two_writers(void)
{
    LAUNCH(NULL, same_place, 1, 64, 0, on_device<float>(64));
    CHECK(cudaDeviceSynchronize());
}

__global__ void half_filled(float *y)
{
    __shared__ float s[64];
    if (threadIdx.x < 32)
        s[threadIdx.x] = 1.0f;
    __syncthreads();
    y[threadIdx.x] = s[threadIdx.x];
}

static void shared_unwritten(void)
{
    LAUNCH(NULL, half_filled, 2, 64, 0, on_device<float>(64));
    CHECK(cudaDeviceSynchronize());
}

__global__ void behind_arena(float *y)
{
    float *s = (float *)cudasim_shared_arena();
    s[threadIdx.x] = 1.0f;
    y[threadIdx.x] = s[threadIdx.x];
}

static void shared_bounds(void)
{
    LAUNCH(NULL, behind_arena, 1, 64, 255, on_device<float>(64));
    CHECK(cudaDeviceSynchronize());
}

__global__ void behind_array(float *y, int n)
{
    __shared__ float s[64], t[64];
    for (int i = 0; i < n; i++)
        s[i] = 1.0f;
    t[0] = 2.0f;
    y[0] = s[0] + t[0];
}

static void shared_array_bounds(void)
{
    LAUNCH(NULL, behind_array, 1, 1, 0, on_device<float>(64), 65);
    CHECK(cudaDeviceSynchronize());
}

/* ---- device memory --------------------------------------------------------------------------- */

static void global_bounds(void)
{
    LAUNCH(NULL, fill, 2, 32, 0, on_device<float>(63), 1.0f, 64);
    CHECK(cudaDeviceSynchronize());
}

static void read_bounds(void) /* far away: between two allocations */
{
    float *x = counting(64);
    run(NULL, x, x + 100);
    CHECK(cudaDeviceSynchronize());
}

static void host_pointer(void)
{
    run(NULL, on_device<float>(64), (float *)malloc(256));
    CHECK(cudaDeviceSynchronize());
}

float table[64];

__global__ void from_table(float *y) { y[threadIdx.x] = table[threadIdx.x]; }

static void host_variable(void)
{
    LAUNCH(NULL, from_table, 1, 32, 0, on_device<float>(64));
    CHECK(cudaDeviceSynchronize());
}

static void pinned_pointer(void)
{
    run(NULL, on_device<float>(64), pinned<float>(64));
    CHECK(cudaDeviceSynchronize());
}

static void device_pointer(void)
{
    float *x = counting(4);
    x[3] = 1.0f;
}

static void unwritten_output(void)
{
    float *x = on_device<float>(64), h[64];
    LAUNCH(NULL, fill, 2, 32, 0, x, 1.0f, 60); /* leaves the end out */
    CHECK(cudaMemcpy(h, x, sizeof h, cudaMemcpyDeviceToHost));
}

static void unwritten_input(void)
{
    float *x = on_device<float>(64);
    LAUNCH(NULL, fill, 2, 32, 0, x, 1.0f, 60);
    run(NULL, on_device<float>(64), x);
    CHECK(cudaDeviceSynchronize());
}

static void use_after_free(void)
{
    float *x = counting(64);
    CHECK(cudaFree(x));
    LAUNCH(NULL, fill, 2, 32, 0, x, 1.0f, 64);
    CHECK(cudaDeviceSynchronize());
}

static void free_twice(void)
{
    float *x = counting(64);
    CHECK(cudaFree(x));
    CHECK(cudaFree(x));
}

__global__ void wide(float4 *y) { y[threadIdx.x] = make_float4(1, 2, 3, 4); }

static void misaligned(void)
{
    LAUNCH(NULL, wide, 1, 4, 0, (float4 *)(on_device<float>(64) + 2));
    CHECK(cudaDeviceSynchronize());
}

__global__ void clear(float *y, int n) { memset(y, 0, (size_t)n * sizeof *y); }

static void memset_bounds(void)
{
    LAUNCH(NULL, clear, 1, 1, 0, on_device<float>(64), 65);
    CHECK(cudaDeviceSynchronize());
}

__global__ void local_index(float *y, int n)
{
    float v[8];
    for (int i = 0; i <= n; i++)
        v[i] = (float)i;
    y[threadIdx.x] = v[threadIdx.x % 8];
}

static void local_bounds(void)
{
    LAUNCH(NULL, local_index, 1, 8, 0, on_device<float>(8), 8);
    CHECK(cudaDeviceSynchronize());
}

__global__ void overlap(float *y) { y[blockIdx.x * 63 + threadIdx.x] = (float)threadIdx.x; }

static void two_blocks(void)
{
    LAUNCH(NULL, overlap, 2, 64, 0, on_device<float>(128));
    CHECK(cudaDeviceSynchronize());
}

__global__ void in_place(float *y) { y[threadIdx.x] = y[(threadIdx.x + 1) % 64] + 1.0f; }

static void neighbours(void)
{
    LAUNCH(NULL, in_place, 1, 64, 0, counting(64));
    CHECK(cudaDeviceSynchronize());
}

/* fences: 1 before the atomic, 2 behind it. */
template <int fences> __global__ void last_adds(float *out, float *parts, unsigned *count)
{
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = 1.0f;
        if (fences & 1)
            __threadfence();
        if (atomicAdd(count, 1u) == gridDim.x - 1) {
            if (fences & 2)
                __threadfence();
            for (unsigned i = 0; i < gridDim.x; i++)
                *out = parts[i];
        }
    }
}

static void last_with(void (*kernel)(float *, float *, unsigned *))
{
    unsigned *count = on_device<unsigned>(1);
    CHECK(cudaMemset(count, 0, 4));
    LAUNCH(NULL, kernel, 4, 32, 0, on_device<float>(1), on_device<float>(4), count);
    CHECK(cudaDeviceSynchronize());
}

static void missing_fence(void)
{
    last_with(last_adds<3>); /* that is right */
    last_with(last_adds<2>);
}

static void missing_second_fence(void) { last_with(last_adds<1>); }

__global__ void wait_for_first(volatile int *flag)
{
    if (blockIdx.x == 0)
        *flag = 1;
    while (!*flag)
        ;
}

static void spinning(void)
{
    setenv("CUDASIM_ORDER", "reverse", 1);
    int *flag = on_device<int>(1);
    CHECK(cudaMemset(flag, 0, sizeof *flag));
    LAUNCH(NULL, wait_for_first, 2, 1, 0, flag);
    CHECK(cudaDeviceSynchronize());
}

__global__ void deep(float *y, int n)
{
    float big[40000];
    for (int i = 0; i < n; i++)
        big[i] = (float)i;
    y[threadIdx.x] = big[n / 2];
}

static void full_stack(void)
{
    LAUNCH(NULL, deep, 1, 1, 0, on_device<float>(1), 40000);
    CHECK(cudaDeviceSynchronize());
}

/* ---- divergent code -------------------------------------------------------------------------- */

__global__ void some_wait(float *y)
{
    if (threadIdx.x < 33)
        __syncthreads();
    y[threadIdx.x] = 1.0f;
}

static void divergent_barrier(void)
{
    LAUNCH(NULL, some_wait, 1, 64, 0, on_device<float>(64));
    CHECK(cudaDeviceSynchronize());
}

__global__ void two_barriers(float *y)
{
    if (threadIdx.x < 32)
        __syncthreads();
    else
        __syncthreads();
    y[threadIdx.x] = 1.0f;
}

static void other_barrier(void)
{
    LAUNCH(NULL, two_barriers, 1, 64, 0, on_device<float>(64));
    CHECK(cudaDeviceSynchronize());
}

__global__ void some_shuffle(float *y, int n)
{
    if ((int)threadIdx.x >= n)
        return;
    y[threadIdx.x] = __shfl_xor_sync(~0u, 1.0f, 1);
}

static void divergent_shuffle(void)
{
    LAUNCH(NULL, some_shuffle, 1, 64, 0, on_device<float>(64), 60);
    CHECK(cudaDeviceSynchronize());
}

/* ---- streams --------------------------------------------------------------------------------- */

static void missing_event(void)
{
    cudaStream_t a = new_stream(), b = new_stream();
    float *x = counting(64), *y = on_device<float>(64), *z = on_device<float>(64);
    LAUNCH(a, copy, 2, 32, 0, y, x, 64);
    LAUNCH(b, copy, 2, 32, 0, z, y, 64);
    CHECK(cudaDeviceSynchronize());
}

static void write_too_early(void) /* what another stream still reads */
{
    cudaStream_t a = new_stream(), b = new_stream(), c = new_stream();
    cudaEvent_t event;
    float *x = counting(64);
    CHECK(cudaEventCreate(&event));
    run(a, on_device<float>(64), x);
    run(b, on_device<float>(64), x);
    CHECK(cudaEventRecord(event, b));
    CHECK(cudaStreamWaitEvent(c, event)); /* waits for one of the two */
    LAUNCH(c, fill, 2, 32, 0, x, 1.0f, 64);
    CHECK(cudaDeviceSynchronize());
}

static void wait_before_record(void)
{
    cudaStream_t a = new_stream(), b = new_stream();
    cudaEvent_t event;
    float *x = counting(64), *y = on_device<float>(64);
    CHECK(cudaEventCreate(&event));
    CHECK(cudaStreamWaitEvent(b, event));
    run(a, y, x);
    CHECK(cudaEventRecord(event, a));
    run(b, x, y);
    CHECK(cudaDeviceSynchronize());
}

static void pageable_copy(void)
{
    static float h[64];
    CHECK(cudaMemcpyAsync(on_device<float>(64), h, sizeof h, cudaMemcpyHostToDevice, new_stream()));
}

static void changed_source(void)
{
    cudaStream_t s = new_stream();
    float *h = pinned<float>(64);
    CHECK(cudaMemcpyAsync(on_device<float>(64), h, 256, cudaMemcpyHostToDevice, s));
    h[17] = 1.0f;
    CHECK(cudaStreamSynchronize(s));
}

static void read_too_early(void) /* the copy to the host is not waited for */
{
    cudaStream_t s = new_stream();
    float *x = counting(64), *h = pinned<float>(64);
    CHECK(cudaMemcpyAsync(h, x, 256, cudaMemcpyDeviceToHost, s));
    if (!(h[3] == 3.0f))
        cudasim_report("the value is not there yet");
}

static void wrong_kind(void)
{
    float h[4];
    CHECK(cudaMemcpy(h, counting(4), 16, cudaMemcpyHostToDevice));
}

static void sync_in_capture(void)
{
    cudaStream_t s = new_stream();
    float *x = counting(64);
    CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    LAUNCH(s, fill, 2, 32, 0, x, 1.0f, 64);
    CHECK(cudaStreamSynchronize(s));
}

static void malloc_in_capture(void)
{
    cudaStream_t s = new_stream();
    CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    on_device<float>(4);
}

static void graph_without_join(void)
{
    cudaStream_t a = new_stream(), b = new_stream();
    cudaEvent_t fork;
    cudaGraph_t graph;
    float *x = counting(64);
    CHECK(cudaEventCreate(&fork));
    CHECK(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal));
    CHECK(cudaEventRecord(fork, a));
    CHECK(cudaStreamWaitEvent(b, fork));
    LAUNCH(b, fill, 2, 32, 0, x, 1.0f, 64);
    if (cudaStreamEndCapture(a, &graph) == cudaErrorStreamCaptureUnjoined)
        cudasim_report("the graph has work that was not joined");
}

static void missing_event_in_graph(void)
{
    cudaStream_t a = new_stream(), b = new_stream();
    cudaEvent_t fork, join;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    float *x = counting(64), *y = on_device<float>(64);
    CHECK(cudaEventCreate(&fork));
    CHECK(cudaEventCreate(&join));
    CHECK(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal));
    CHECK(cudaEventRecord(fork, a));
    CHECK(cudaStreamWaitEvent(b, fork));
    run(b, y, x);
    LAUNCH(a, fill, 2, 32, 0, x, 1.0f, 64); /* before b has read it */
    CHECK(cudaEventRecord(join, b));
    CHECK(cudaStreamWaitEvent(a, join));
    CHECK(cudaStreamEndCapture(a, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph));
    CHECK(cudaGraphLaunch(exec, a));
    CHECK(cudaStreamSynchronize(a));
}

static const Case cases[] = {
    { "missing_barrier", missing_barrier, "race, two threads|which nothing has written" },
    { "missing_second_barrier", missing_second_barrier, "without __syncthreads between" },
    { "missing_syncwarp", missing_syncwarp, "race, two threads of a warp without __syncwarp" },
    { "halves_missing_barrier", halves_missing_barrier, "race, two threads" },
    { "two_writers", two_writers, "race, two threads" },
    { "shared_unwritten", shared_unwritten, "half_filled(float*)::s (256 bytes)" },
    { "shared_bounds", shared_bounds, "dynamic shared memory (255 bytes) + 252" },
    { "shared_array_bounds", shared_array_bounds, "uses index 64 of an array 'float [64]'" },
    { "global_bounds", global_bounds,
      "out of bounds: kernel fill, block (1,0,0), thread (31,0,0)" },
    { "read_bounds", read_bounds, "out of bounds: kernel copy" },
    { "host_pointer", host_pointer, "host pointer: kernel copy" },
    { "host_variable", host_variable, "host pointer: kernel from_table" },
    { "pinned_pointer", pinned_pointer, "pinned memory of the host" },
    { "device_pointer", device_pointer, "device pointer on the host" },
    { "unwritten_output", unwritten_output, "(256 bytes) + 240, which nothing has written" },
    { "unwritten_input", unwritten_input, "kernel copy, block (1,0,0), thread" },
    { "use_after_free", use_after_free, "use after cudaFree" },
    { "free_twice", free_twice, "cudaFree a second time" },
    { "misaligned", misaligned, "misaligned address" },
    { "memset_bounds", memset_bounds, "out of bounds: kernel clear" },
    { "local_bounds", local_bounds, "uses index 8 of an array 'float [8]'" },
    { "two_blocks", two_blocks, "race, two blocks of one launch" },
    { "neighbours", neighbours, "race, two threads" },
    { "missing_fence", missing_fence, "race, two blocks of one launch" },
    { "missing_second_fence", missing_second_fence, "race, two blocks of one launch" },
    { "spinning", spinning, "waits in a loop for another thread or block" },
    { "full_stack", full_stack, "its stack is full" },
    { "divergent_barrier", divergent_barrier, "has ended while thread" },
    { "other_barrier", other_barrier, "barrier in divergent code" },
    { "divergent_shuffle", divergent_shuffle, "operation of a warp in divergent code" },
    { "missing_event", missing_event, "no event orders the two|which nothing has written" },
    { "write_too_early", write_too_early, "no event orders the two" },
    { "wait_before_record", wait_before_record,
      "no event orders the two|which nothing has written" },
    { "pageable_copy", pageable_copy, "pageable host memory" },
    { "changed_source", changed_source, "the host changed 256 bytes of pinned memory" },
    { "read_too_early", read_too_early, "not there yet" },
    { "wrong_kind", wrong_kind, "the kind says otherwise" },
    { "sync_in_capture", sync_in_capture, "cudaStreamSynchronize while a stream is captured" },
    { "malloc_in_capture", malloc_in_capture, "cudaMalloc while a stream is captured" },
    { "graph_without_join", graph_without_join, "not joined" },
    { "missing_event_in_graph", missing_event_in_graph, "no event orders the two" },
};

int main(int argc, char **argv)
{
    return run_cases(cases, sizeof cases / sizeof *cases, argc, argv);
}
