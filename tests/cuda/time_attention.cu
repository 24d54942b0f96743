/* time_attention.cu -- how long attention and the gradient of an embedding take on a device, by the
 * kernels of the runtime alone. Usage: time_attention SAMPLES TOKENS; a line for each.
 *
 * The operations counted are those of the formula, of the half that a causal mask leaves: 4 T S D
 * per head forward, 10 T S D backward. Of the scatter the bytes are counted that it must move: each
 * row read once, each sum written once.
 */
#include "test_device.h"

static const int TIMES = 20;

static cudaEvent_t begin, end;

static void timer_start(void)
{
    rt_cuda_check(NULL, "cudaEventRecord", cudaEventRecord(begin, stream.at));
}

static double timer_ms(void) /* of one of TIMES */
{
    float ms = 0;
    rt_cuda_check(NULL, "cudaEventRecord", cudaEventRecord(end, stream.at));
    rt_cuda_check(NULL, "cudaEventSynchronize", cudaEventSynchronize(end));
    rt_cuda_check(NULL, "cudaEventElapsedTime", cudaEventElapsedTime(&ms, begin, end));
    return (double)ms / (int)TIMES;
}

static void *zeros(size_t bytes)
{
    void *at;
    rt_cuda_check(NULL, "cudaMalloc", cudaMalloc(&at, bytes));
    rt_cuda_check(NULL, "cudaMemset", cudaMemset(at, 0, bytes));
    return at;
}

/* Numbers of all bits, 1/16 to 1 and their negatives: constants take less power, which is speed. */
static __global__ void g_draw(uint16_t *at, size_t n)
{
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    uint32_t bits = (uint32_t)i * 2654435769u;
    bits = (bits ^ bits >> 15) * 2246822519u;
    if (i < n)
        at[i] = (uint16_t)((bits >> 16 & 0x8000) | (0x3d80 + (bits >> 8 & 0x1ff)));
}

static rt_bf16 *drawn(size_t n)
{
    uint16_t *at = (uint16_t *)zeros(n * 2);
    RT_LAUNCH(&stream, stream.where, g_draw, rt_blocks((ptrdiff_t)n, 256), 256, 0, at, n);
    return (rt_bf16 *)at;
}

static void release(void *at) { rt_cuda_check(NULL, "cudaFree", cudaFree(at)); }

/* Heads in qkv[B][T][3][H][D], as GPT-2 has them. */
static void time_attention(ptrdiff_t B, ptrdiff_t T, ptrdiff_t H, ptrdiff_t D, bool causal)
{
    const ptrdiff_t C = H * D;
    const RtHeads packed = { T * 3 * C, D, 3 * C }, tokens = { T * C, D, C };
    const RtAttention a = { B,      H,      T,      T,      D,      D,      1,      0,     causal,
                            packed, packed, packed, tokens, packed, packed, packed, tokens };
    const size_t n = (size_t)(B * T * C);
    rt_bf16 *qkv = drawn(3 * n), *d_qkv = (rt_bf16 *)zeros(3 * n * 2);
    rt_bf16 *y = (rt_bf16 *)zeros(n * 2), *d_y = drawn(n);
    float *lse = (float *)zeros((size_t)(B * H * T) * 4);
    RtRooms rooms = {};
    rt_room_attention(&rooms, RT_BF16, a, false);
    rt_room_attention(&rooms, RT_BF16, a, true);
    work_open(rooms.device);
    double ms[2];
    for (int backward = 0; backward < 2; backward++)
        for (int i = -3; i < TIMES; i++) {
            if (i == 0)
                timer_start();
            if (backward)
                rt_attention_grad_bf16(d_qkv, d_qkv + C, d_qkv + 2 * C, qkv, qkv + C, qkv + 2 * C,
                                       y, lse, d_y, a, &stream);
            else
                rt_attention_bf16(y, lse, qkv, qkv + C, qkv + 2 * C, a, &stream);
            if (i == TIMES - 1)
                ms[backward] = timer_ms();
        }
    const double work_done = (double)(B * H) * (double)(T * T) * (double)D * (causal ? 0.5 : 1);
    printf("attention bf16, B %td, H %td, T %td, D %td%s: forward %.3f ms, %.0f TFLOP/s; backward "
           "%.3f ms, %.0f TFLOP/s\n",
           B, H, T, D, causal ? ", causal" : "", ms[0], 4e-9 * work_done / ms[0], ms[1],
           10e-9 * work_done / ms[1]);
    void *all[] = { qkv, d_qkv, y, d_y, lse };
    for (void *at : all)
        release(at);
    work_close();
}

static void time_scatter(ptrdiff_t n_ids, ptrdiff_t n_rows, ptrdiff_t width)
{
    const RtScatter p = { n_ids, n_rows, width, width, false };
    const size_t row_bytes = (size_t)(n_ids * width) * 2, out_bytes = (size_t)(n_rows * width) * 4;
    int32_t *ids = (int32_t *)malloc((size_t)n_ids * 4);
    uint32_t state = 1;
    for (ptrdiff_t i = 0; i < n_ids; i++) { /* small ids are frequent, as in text */
        state = state * 1664525u + 1013904223u;
        const double u = (double)(state >> 8) / (1 << 24);
        ids[i] = (int32_t)rt_min(pow((double)n_rows, u) - 1, (double)(n_rows - 1));
    }
    int32_t *d_ids = (int32_t *)zeros((size_t)n_ids * 4);
    to_device(d_ids, ids, (size_t)n_ids * 4);
    rt_bf16 *rows = drawn((size_t)(n_ids * width));
    float *out = (float *)zeros(out_bytes);
    RtRooms rooms = {};
    rt_room_scatter(&rooms, p);
    work_open(rooms.device);
    for (int i = -3; i < TIMES; i++) {
        if (i == 0)
            timer_start();
        rt_scatter_bf16_f32(out, d_ids, rows, p, &stream);
    }
    const double ms = timer_ms();
    printf("scatter bf16, %td ids, %td rows of %td: %.3f ms, %.0f GB/s\n", n_ids, n_rows, width, ms,
           1e-6 * (double)(row_bytes + out_bytes) / ms);
    void *all[] = { d_ids, rows, out };
    for (void *at : all)
        release(at);
    work_close();
    free(ids);
}

int main(int argc, char **argv)
{
    const ptrdiff_t B = argc > 1 ? atoi(argv[1]) : 64, T = argc > 2 ? atoi(argv[2]) : 1024;
    const ptrdiff_t heads = B < 8 ? 2 : 12; /* few: a rehearsal */
    stream_open();
    rt_cuda_check(NULL, "cudaEventCreate", cudaEventCreate(&begin));
    rt_cuda_check(NULL, "cudaEventCreate", cudaEventCreate(&end));
    time_attention(B, T, heads, 64, true);
    time_attention(B, T, heads, 64, false);
    time_attention(B, T, heads / 2, 128, true);
    time_scatter(B * T, B < 8 ? 100 : 50304, heads * 64);
    return 0;
}
