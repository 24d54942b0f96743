/* rt_cuda.h -- all that emitted CUDA C knows of the runtime: rt.h, and what is the device's own.
 *
 * Compiled by nvcc (-std=c++20), or by g++ for the simulator of tests/cudasim (RT_SIMULATOR).
 * Pointers are device memory unless a comment says host. Everything here only queues work on a
 * stream, and no call waits for the device inside a step. A call that fails ends the program with
 * one message: the call, the line of the model, a hint (device.cu); exit code 1.
 */
#ifndef GRADCC_RT_CUDA_H
#define GRADCC_RT_CUDA_H

#if defined(__GNUC__) /* sizes are enums, and stand in sums with each other */
#pragma GCC diagnostic ignored "-Wdeprecated-enum-enum-conversion"
#endif

#include <cuda_runtime.h>

#include "rt.h"
#include "rt_device.h" /* inside kernels: vectors of 16 bytes, sums of warps and blocks */
#include "rt_update.h" /* the same of updates */

/* ---- streams and launches -------------------------------------------------------------------- */

typedef struct RtDevice RtDevice; /* device.h: one GPU, its arena, libraries and plans */

typedef enum {
    RT_NO_EPILOGUE,
    RT_GELU,           /* to = gelu(c), the tanh form, and no c */
    RT_GELU_AND_INPUT, /* to = gelu(c), and c */
    RT_GELU_GRAD,      /* to = c * gelu'(x), and no c */
} RtEpilogueKind;
typedef struct { /* what a product may do with its result c; to and x have rows as c has */
    RtEpilogueKind kind;
    void *to;
    const void *x;
} RtEpilogue;

/* Work in order. The line of the model is that of the launch to come, for messages. */
struct RtStream {
    cudaStream_t at;
    RtDevice *device;
    const char *where;  /* "chargpt.model:28, 29" */
    const char *kernel; /* that was launched last, or NULL */
    RtEpilogue next;    /* of the product to come, and what the epilogue of the last one that had */
    const void *wrote;  /* one has written; NULL: nothing, it was not done */
};

/* RT_LAUNCH(stream, "chargpt.model:28", g6_h_ln_2, blocks, threads, shared, arguments...): grid and
   block are sizes or dim3, shared the bytes of RT_SHARED_ARENA. Nothing where the grid is empty.
   Arguments are taken as they are now. */
#if defined(RT_SIMULATOR)
#define RT_LAUNCH(stream, line, kernel, grid, block, shared, ...)                                  \
    do                                                                                             \
        if (rt_launch_begin(stream, line, #kernel, grid)) {                                        \
            cudasim_launch((stream)->at, #kernel, grid, block, shared, kernel, __VA_ARGS__);       \
            rt_launch_end(stream, #kernel);                                                        \
        }                                                                                          \
    while (0)
#define RT_SHARED_ARENA(type, name) type *name = (type *)cudasim_shared_arena()
#else
#define RT_LAUNCH(stream, line, kernel, grid, block, shared, ...)                                  \
    do                                                                                             \
        if (rt_launch_begin(stream, line, #kernel, grid)) {                                        \
            kernel<<<grid, block, shared, (stream)->at>>>(__VA_ARGS__);                            \
            rt_launch_end(stream, #kernel);                                                        \
        }                                                                                          \
    while (0)
#define RT_SHARED_ARENA(type, name)                                                                \
    extern __shared__ __align__(16) unsigned char rt_shared_arena[];                               \
    type *name = (type *)rt_shared_arena
#endif

RtStream *rt_device_stream(void); /* where the steps of this process are queued */

/* Lets a kernel have more than 48 KiB of RT_SHARED_ARENA. */
#define RT_ALLOW_SHARED(stream, line, kernel, bytes)                                               \
    rt_allow_shared(stream, line, (const void *)(kernel), bytes)
void rt_allow_shared(RtStream *stream, const char *line, const void *kernel, size_t bytes);

bool rt_launch_begin(RtStream *stream, const char *line, const char *kernel, dim3 grid);
/* RT_CUDA_SYNC=1: waits, so that a failure has the name of its kernel. */
void rt_launch_end(RtStream *stream, const char *kernel);
/* Blocks for n items of `each`, as an int; a grid that does not fit ends the program. */
int rt_blocks(ptrdiff_t n, ptrdiff_t each);

/* while (begin) { work; end }: the work is recorded as a CUDA graph, one for each value of s->add,
   place of the parameters and set of sizes, and launched as one from then on. begin: false = it
   has been done. A graph holds the addresses that its kernels were given: gradients, arena and
   inputs stay where they are, and rt_begin_micro copies samples to the same places each time. */
bool rt_graph_begin(RtRun *run, RtStep *s);
void rt_graph_end(RtRun *run, RtStep *s);

/* ---- products and attention: as in rt.h, on a stream ----------------------------------------- */

/* cuBLASLt; plans are made at start for what .rooms names (matmul.cu). fp32 is fp32: TF32 only with
   --tf32. */
void rt_matmul_f32(float *c, const float *a, const float *b, RtMatmul p, RtStream *stream);
void rt_matmul_f64(double *c, const double *a, const double *b, RtMatmul p, RtStream *stream);
void rt_matmul_bf16_bf16(rt_bf16 *c, const rt_bf16 *a, const rt_bf16 *b, RtMatmul p,
                         RtStream *stream);
void rt_matmul_bf16_f32(float *c, const rt_bf16 *a, const rt_bf16 *b, RtMatmul p, RtStream *stream);
void rt_matmul_f16_f16(rt_f16 *c, const rt_f16 *a, const rt_f16 *b, RtMatmul p, RtStream *stream);
void rt_matmul_f16_f32(float *c, const rt_f16 *a, const rt_f16 *b, RtMatmul p, RtStream *stream);

/* As rt_room_matmul, of operands that do not all begin on a boundary of 16 bytes: how many of their
   elements behind one. bias: of those of c, whose type it is given in. */
typedef struct {
    ptrdiff_t c, a, b, bias;
} RtStarts;
void rt_room_matmul_at(RtRooms *rooms, RtType in, RtType out, RtMatmul p, RtStarts at);

/* The next product may do this too, in its own kernel: to = gelu(c), where c is written as well
   unless it lies there; or to = c * gelu'(x), where c is not. Whether it does was decided at start
   (matmul_epilogue.cu); _wrote tells. */
static inline void rt_epilogue_gelu(void *to, RtStream *stream)
{
    stream->next = RtEpilogue{ RT_GELU, to, NULL };
    stream->wrote = NULL;
}
static inline void rt_epilogue_gelu_grad(void *to, const void *x, RtStream *stream)
{
    stream->next = RtEpilogue{ RT_GELU_GRAD, to, x };
    stream->wrote = NULL;
}
static inline bool rt_epilogue_wrote(const void *to, const RtStream *stream)
{
    return stream->wrote == to;
}
void rt_room_epilogue(RtRooms *rooms, RtEpilogueKind kind); /* of the product that is told next */

/* attention.cu */
void rt_attention_f32(float *y, float *lse, const float *q, const float *k, const float *v,
                      RtAttention a, RtStream *stream);
void rt_attention_f64(double *y, double *lse, const double *q, const double *k, const double *v,
                      RtAttention a, RtStream *stream);
void rt_attention_bf16(rt_bf16 *y, float *lse, const rt_bf16 *q, const rt_bf16 *k, const rt_bf16 *v,
                       RtAttention a, RtStream *stream);
void rt_attention_f16(rt_f16 *y, float *lse, const rt_f16 *q, const rt_f16 *k, const rt_f16 *v,
                      RtAttention a, RtStream *stream);
void rt_attention_grad_f32(float *d_q, float *d_k, float *d_v, const float *q, const float *k,
                           const float *v, const float *y, const float *lse, const float *d_y,
                           RtAttention a, RtStream *stream);
void rt_attention_grad_f64(double *d_q, double *d_k, double *d_v, const double *q, const double *k,
                           const double *v, const double *y, const double *lse, const double *d_y,
                           RtAttention a, RtStream *stream);
void rt_attention_grad_bf16(rt_bf16 *d_q, rt_bf16 *d_k, rt_bf16 *d_v, const rt_bf16 *q,
                            const rt_bf16 *k, const rt_bf16 *v, const rt_bf16 *y, const float *lse,
                            const rt_bf16 *d_y, RtAttention a, RtStream *stream);
void rt_attention_grad_f16(rt_f16 *d_q, rt_f16 *d_k, rt_f16 *d_v, const rt_f16 *q, const rt_f16 *k,
                           const rt_f16 *v, const rt_f16 *y, const float *lse, const rt_f16 *d_y,
                           RtAttention a, RtStream *stream);

/* scatter.cu: out[ids[i], :] += rows[i, :] for each i, out[n_rows, width] zero first unless .add.
   Rows with one id are added in the order of i: ids are sorted, and each segment is one sum. */
typedef struct {
    ptrdiff_t n_ids, n_rows, width, row_step; /* row_step: elements from row to row of `rows` */
    bool add;
} RtScatter;
void rt_scatter_f32(float *out, const int32_t *ids, const float *rows, RtScatter p,
                    RtStream *stream);
void rt_scatter_f64(double *out, const int32_t *ids, const double *rows, RtScatter p,
                    RtStream *stream);
void rt_scatter_bf16_f32(float *out, const int32_t *ids, const rt_bf16 *rows, RtScatter p,
                         RtStream *stream);
void rt_scatter_f16_f32(float *out, const int32_t *ids, const rt_f16 *rows, RtScatter p,
                        RtStream *stream);
void rt_room_scatter(RtRooms *rooms, RtScatter p);

#endif
