/* gpu.cu -- the same model on the device, and its updates; what of runtime/cuda they call. */
#include "twins.h"

#include "device.h"
#include "optim.h"

/* ---- places, launches, products ------------------------------------------------------------- */

static char window[RT_PLACE_WINDOW];

static void must(cudaError_t e)
{
    if (e != cudaSuccess)
        rt_fail(RT_EXIT_FAIL, "%s", cudaGetErrorString(e));
}

size_t rt_place_size(size_t bytes) { return bytes; }
void *rt_place_window(void) { return window; }
void rt_place_free(void *at) { must(cudaFree(at)); }
void *rt_place_alloc(size_t bytes, const char *what)
{
    void *at = NULL;
    RT_UNUSED(what);
    must(cudaMalloc(&at, bytes + 1));
    must(cudaMemset(at, 0, bytes + 1));
    return at;
}
void rt_place_put(void *to, const void *from, size_t bytes)
{
    must(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice));
    must(cudaDeviceSynchronize()); /* from pageable memory it may be on its way still */
}
void rt_place_get(void *to, const void *from, size_t bytes)
{
    must(cudaDeviceSynchronize());
    must(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost));
}

void rt_cuda_check(const RtStream *stream, const char *call, cudaError_t error)
{
    RT_UNUSED(stream);
    RT_UNUSED(call);
    must(error);
}
bool rt_launch_begin(RtStream *stream, const char *line, const char *kernel, dim3 grid)
{
    stream->where = line;
    RT_UNUSED(kernel);
    return grid.x > 0;
}
void rt_launch_end(RtStream *stream, const char *kernel)
{
    RT_UNUSED(stream);
    RT_UNUSED(kernel);
}
int rt_blocks(ptrdiff_t n, ptrdiff_t each) { return (int)((n + each - 1) / each); }

/* A thread per element of c. */
template <typename T> __global__ void g_product(T *c, const T *a, const T *b, const RtMatmul p)
{
    const ptrdiff_t e = (ptrdiff_t)blockIdx.x * blockDim.x + threadIdx.x, i = e / p.n, j = e % p.n;
    if (e >= p.m * p.n)
        return;
    double sum = 0;
    for (ptrdiff_t k = 0; k < p.k; k++)
        sum += (double)a[p.ta ? k * p.m + i : i * p.k + k]
               * (double)b[p.tb ? j * p.k + k : k * p.n + j];
    c[e] = (T)sum;
}
void rt_matmul_f32(float *c, const float *a, const float *b, RtMatmul p, RtStream *stream)
{
    RT_LAUNCH(stream, "", g_product<float>, rt_blocks(p.m * p.n, 64), 64, 0, c, a, b, p);
}
void rt_matmul_f64(double *c, const double *a, const double *b, RtMatmul p, RtStream *stream)
{
    RT_LAUNCH(stream, "", g_product<double>, rt_blocks(p.m * p.n, 64), 64, 0, c, a, b, p);
}

/* ---- a rule, as emitted files have it -------------------------------------------------------- */

template <typename T, int copy>
__global__ void __launch_bounds__(RT_UPDATE_THREADS) g_adamw(const RtUpdates u)
{
    __shared__ struct {
        T beta1, c1, beta2, c2, c3, c4, c5, eps, factor;
    } now;
    const RtPart q = u.part[blockIdx.x];
    if (!u.s->finite)
        return;
    if (threadIdx.x == 0) {
        const double lr = u.s->lr * q.rate, t = (double)(u.s->applied + 1);
        now.beta1 = (T)u.hyper[0];
        now.c1 = (T)(1 - u.hyper[0]);
        now.beta2 = (T)u.hyper[1];
        now.c2 = (T)(1 - u.hyper[1]);
        now.c3 = (T)(1 - lr * q.decay);
        now.c4 = (T)(lr / (1 - pow(u.hyper[0], t)));
        now.c5 = (T)(1 / sqrt(1 - pow(u.hyper[1], t)));
        now.eps = (T)u.hyper[2];
        now.factor = (T)rt_update_factor(u.s);
    }
    __syncthreads();
    for (ptrdiff_t i = rt_update_first(q); i < q.to; i += RT_UPDATE_STRIDE) {
        T p[4], m[4], v[4], d_p[4];
        if constexpr (copy == 3)
            rt_take_widened(p, u, q, i);
        else
            rt_take(p, u.p, q, i);
        rt_take(m, u.state[0], q, i);
        rt_take(v, u.state[1], q, i);
        rt_take(d_p, u.d_p, q, i);
        for (int k = 0; k < 4; k++) {
            const T g = now.factor * d_p[k];
            m[k] = now.beta1 * m[k] + now.c1 * g;
            v[k] = now.beta2 * v[k] + now.c2 * (g * g);
            p[k] = now.c3 * p[k] - now.c4 * m[k] / (rt_sqrt(v[k]) * now.c5 + now.eps);
        }
        rt_put(u.state[0], q, i, m);
        rt_put(u.state[1], q, i, v);
        if constexpr (copy == 3)
            rt_put_rounded(u, q, i, p);
        else
            rt_put(u.p, q, i, p);
        if constexpr (copy == 1)
            rt_put_bf16(u.copy, q, i, p);
        if constexpr (copy == 2)
            rt_put_f16(u.copy, q, i, p);
        rt_put_average(u, q, i, p);
    }
}

#define ADAMW(name, T, copy)                                                                       \
    static void name(const RtUpdates *u, RtStream *stream)                                         \
    {                                                                                              \
        void (*kernel)(const RtUpdates) = g_adamw<T, copy>;                                        \
        RT_LAUNCH(stream, "", kernel, u->n_parts, RT_UPDATE_THREADS, 0, *u);                       \
    }
ADAMW(adamw_f32, float, 0)
ADAMW(adamw_bf16, float, 1)
ADAMW(adamw_f16, float, 2)
ADAMW(adamw_halves, float, 3)
ADAMW(adamw_f64, double, 0)

/* ---- the twin -------------------------------------------------------------------------------- */

static void *placed(const void *like, size_t bytes)
{
    void *at = like ? rt_place_alloc(bytes, "a test") : NULL;
    if (like)
        rt_place_put(at, like, bytes);
    return at;
}

void gpu_open(Twin *t, const Twin *like)
{
    const RtModel *m = like->run.model;
    const size_t flat = (size_t)m->n_elems * rt_real_bytes(m);
    *t = *like;
    t->run.state = &t->state;
    t->state.opt = &t->opt;
    t->state.piece_sums = NULL;
    t->run.p = placed(like->run.p, rt_params_bytes(m));
    t->run.p16 = rt_params_copy_bytes(m) ? placed(like->run.p16, rt_params_copy_bytes(m))
                                         : (void *)rt_params_halves(m, t->run.p);
    t->run.d_p = placed(like->run.d_p, flat);
    t->run.arena = rt_place_alloc(rt_optim_work_bytes(m, &m->train), "a test");
    for (int i = 0; i < t->state.n_states; i++) {
        const RtStateShape shape = t->state.states[i].shape;
        const ptrdiff_t n = shape ? rt_state_elems(m, shape) : m->n_elems;
        t->state.states[i].at = placed(like->state.states[i].at, (size_t)n * rt_real_bytes(m));
    }
    t->state.ema = placed(like->state.ema, flat);
    t->state.other = placed(like->state.other, rt_params_bytes(m));
    t->run.stream = (RtStream *)rt_alloc(sizeof(RtStream), "a test");
    must(cudaStreamCreate(&t->run.stream->at));
    rt_optim_open(&t->run);
}

void gpu_close(Twin *t)
{
    rt_optim_close(&t->run);
    rt_place_free(t->run.p);
    if (rt_params_copy_bytes(t->run.model))
        rt_place_free(t->run.p16);
    rt_place_free(t->run.d_p);
    rt_place_free(t->run.arena);
    for (int i = 0; i < t->state.n_states; i++)
        rt_place_free(t->state.states[i].at);
    if (t->state.ema)
        rt_place_free(t->state.ema);
    if (t->state.other)
        rt_place_free(t->state.other);
    must(cudaStreamDestroy(t->run.stream->at));
    rt_free(t->run.stream);
}

void gpu_gradient(Twin *t, const Twin *like)
{
    const RtModel *m = t->run.model;
    rt_place_put(t->run.d_p, like->run.d_p, (size_t)m->n_elems * rt_real_bytes(m));
}

void gpu_get(void *to, const void *from, size_t bytes) { rt_place_get(to, from, bytes); }

static void update(Twin *t, RtStep *s)
{
    const RtModel *m = t->run.model;
    switch (m->train.optimizer) {
    case RT_LAMB: rt_update_lamb(&t->run, s); return;
    case RT_ADAFACTOR: rt_update_adafactor(&t->run, s); return;
    case RT_MUON: rt_update_muon(&t->run, s); return;
    default: break;
    }
    const bool copy = rt_params_copy_bytes(m) > 0;
    rt_update(&t->run, s,
              m->n_halves > 0                 ? adamw_halves
              : m->real == RT_F64             ? adamw_f64
              : copy && m->compute == RT_BF16 ? adamw_bf16
              : copy                          ? adamw_f16
                                              : adamw_f32);
}

void gpu_do(Twin *t, Do what, RtStep *s)
{
    s->device = (RtStep *)placed(s, sizeof *s);
    switch (what) {
    case DO_NORM: rt_finite_and_norm(&t->run, s); break;
    case DO_CLIP_VALUE: rt_clip_value(&t->run, s); break;
    case DO_CLIP: rt_clip(&t->run, s); break;
    case DO_UPDATE: update(t, s); break;
    case DO_COPY: rt_params_copy(&t->run); break;
    case DO_EMA_START: rt_ema_start(&t->run); break;
    case DO_EMA_SWAP: rt_ema_swap(&t->run); break;
    }
    RtStep *device = s->device;
    rt_place_get(s, device, sizeof *s);
    rt_place_free(device);
    s->device = NULL;
}
