/* leaves.cu -- gradients and losses of a part of the batch are kept, and added, for --tree.
 *
 * In: what comm/tree.c keeps. Out: sums, queued on the compute stream. cpu/leaves.c is its twin.
 */
#include "comm/comm.h"
#include "cuda/device.h"

template <typename T> __global__ void g_add_leaf(T *to, const T *from, ptrdiff_t n)
{
    const ptrdiff_t step = (ptrdiff_t)gridDim.x * blockDim.x;
    for (ptrdiff_t i = (ptrdiff_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        to[i] += from[i];
}

/* RT_MAX_SLOTS threads: sums of a leaf are kept, and begin anew. */
__global__ void g_keep_sums(double *to, RtStep *s)
{
    to[threadIdx.x] = s->sum[threadIdx.x];
    s->sum[threadIdx.x] = 0;
}

void rt_leaf_keep(const RtModel *m, const RtLeaf *to, const void *d_p, RtStep *s)
{
    RtStream *stream = rt_device_stream();
    RT_CUDA_CALL(stream, cudaMemcpyAsync(to->gradient, d_p, (size_t)m->n_elems * rt_real_bytes(m),
                                         cudaMemcpyDeviceToDevice, stream->at));
    RT_LAUNCH(stream, "a leaf of sums", g_keep_sums, 1, RT_MAX_SLOTS, 0, to->sum, s->device);
}

void rt_leaf_add(const RtModel *m, const RtLeaf *from, void *d_p, RtStep *s)
{
    enum { THREADS = 256, BLOCKS_MOST = 1024 };
    RtStream *stream = rt_device_stream();
    const int all = rt_blocks(m->n_elems, THREADS);
    const int blocks = all < BLOCKS_MOST ? all : (int)BLOCKS_MOST;
    if (m->real == RT_F64)
        RT_LAUNCH(stream, "a leaf of gradients", g_add_leaf<double>, blocks, THREADS, 0,
                  (double *)d_p, (const double *)from->gradient, m->n_elems);
    else
        RT_LAUNCH(stream, "a leaf of gradients", g_add_leaf<float>, blocks, THREADS, 0,
                  (float *)d_p, (const float *)from->gradient, m->n_elems);
    RT_LAUNCH(stream, "a leaf of sums", g_add_leaf<double>, 1, RT_MAX_SLOTS, 0, s->device->sum,
              (const double *)from->sum, (ptrdiff_t)RT_MAX_SLOTS);
}
