/* attention.cu -- attention and its gradient on a device: which kernels do it.
 *
 * In: heads in place, 16, 32 or 64 bits. Out: y and lse; d_q, d_k and d_v. Heads in 16 bits of at
 * most 128 values go to tensor cores (attention_forward.cu, attention_grad.cu), or to cuDNN where
 * that is asked for (attention_cudnn.cu); all others to attention_plain.cu. No result depends on
 * anything but sizes: nothing is added up in memory, and nothing is chosen by time.
 */
#include "cuda/attention_cudnn.h"

#include "cuda/device.h"

void rt_attention_shared(RtStream *stream, const void *kernel, int bytes)
{
    if (bytes > 48 * 1024)
        RT_CUDA_CALL(stream, cudaFuncSetAttribute(
                                 kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
}

static RtAttention completed(RtAttention a)
{
    if (a.scale == 0)
        a.scale = 1 / sqrt((double)a.D);
    a.group = rt_max(a.group, (ptrdiff_t)1);
    return a;
}

/* Do all heads and rows start at multiples of 16 bytes? A step that is taken at most 0 times does
   not matter. */
static bool starts_whole(const RtAttention *a, const void *at, RtHeads step, ptrdiff_t rows)
{
    return (uintptr_t)at % 16 == 0 && (a->B <= 1 || step.b % 8 == 0)
           && (a->H <= 1 || step.h % 8 == 0) && (rows <= 1 || step.t % 8 == 0);
}

static bool is_whole(const AttentionHalf *x, const RtAttention *a)
{
    const bool read = a->D % 8 == 0 && a->E % 8 == 0 && starts_whole(a, x->q, a->q, a->T)
                      && starts_whole(a, x->k, a->k, a->S) && starts_whole(a, x->v, a->v, a->S);
    if (!x->d_y)
        return read && starts_whole(a, x->to_y, a->y, a->T);
    return read && starts_whole(a, x->y, a->y, a->T) && starts_whole(a, x->d_y, a->d_y, a->T)
           && starts_whole(a, x->d_q, a->d_q, a->T) && starts_whole(a, x->d_k, a->d_k, a->S)
           && starts_whole(a, x->d_v, a->d_v, a->S);
}

static bool fits_tensor_cores(const RtAttention *a)
{
    return a->D <= 128 && a->E <= 128 && a->T <= INT32_MAX / 2 && a->S <= INT32_MAX / 2;
}

static size_t delta_bytes(const RtAttention *a, size_t real)
{
    return (size_t)(a->B * a->H * a->T) * real;
}

static void half_forward(RtType type, AttentionHalf x, RtAttention a, RtStream *stream)
{
    a = completed(a);
    const RtCudnnPlan *plan = rt_attention_plan(type, &a, false);
    if (plan && rt_attention_plan_run(plan, &x, &a, stream))
        return;
    if (fits_tensor_cores(&a))
        rt_attention_half_forward(type, x, (AttentionCall){ a, 0, is_whole(&x, &a) }, stream);
    else
        rt_attention_plain_forward(type, x, a, stream);
}

static void half_grad(RtType type, AttentionHalf x, RtAttention a, RtStream *stream)
{
    a = completed(a);
    const RtCudnnPlan *plan = rt_attention_plan(type, &a, true);
    if (plan && rt_attention_plan_run(plan, &x, &a, stream))
        return;
    x.delta = (float *)rt_device_work(stream, delta_bytes(&a, sizeof(float)));
    if (fits_tensor_cores(&a))
        rt_attention_half_grad(type, x, (AttentionCall){ a, 0, is_whole(&x, &a) }, stream);
    else
        rt_attention_plain_grad(type, x, a, stream);
}

/* ---- as in rt_cuda.h ------------------------------------------------------------------------- */

void rt_attention_f32(float *y, float *lse, const float *q, const float *k, const float *v,
                      RtAttention a, RtStream *stream)
{
    AttentionTensors<float, float> x = { .q = q, .k = k, .v = v, .to_y = y, .to_lse = lse };
    rt_attention_plain_forward(x, completed(a), stream);
}

void rt_attention_f64(double *y, double *lse, const double *q, const double *k, const double *v,
                      RtAttention a, RtStream *stream)
{
    AttentionTensors<double, double> x = { .q = q, .k = k, .v = v, .to_y = y, .to_lse = lse };
    rt_attention_plain_forward(x, completed(a), stream);
}

void rt_attention_bf16(rt_bf16 *y, float *lse, const rt_bf16 *q, const rt_bf16 *k, const rt_bf16 *v,
                       RtAttention a, RtStream *stream)
{
    half_forward(RT_BF16, { .q = q, .k = k, .v = v, .to_y = y, .to_lse = lse }, a, stream);
}

void rt_attention_f16(rt_f16 *y, float *lse, const rt_f16 *q, const rt_f16 *k, const rt_f16 *v,
                      RtAttention a, RtStream *stream)
{
    half_forward(RT_F16, { .q = q, .k = k, .v = v, .to_y = y, .to_lse = lse }, a, stream);
}

void rt_attention_grad_f32(float *d_q, float *d_k, float *d_v, const float *q, const float *k,
                           const float *v, const float *y, const float *lse, const float *d_y,
                           RtAttention a, RtStream *stream)
{
    float *const delta = (float *)rt_device_work(stream, delta_bytes(&a, sizeof(float)));
    AttentionTensors<float, float> x = { q, k, v, y, d_y, NULL, d_q, d_k, d_v, lse, NULL, delta };
    rt_attention_plain_grad(x, completed(a), stream);
}

void rt_attention_grad_f64(double *d_q, double *d_k, double *d_v, const double *q, const double *k,
                           const double *v, const double *y, const double *lse, const double *d_y,
                           RtAttention a, RtStream *stream)
{
    double *const delta = (double *)rt_device_work(stream, delta_bytes(&a, sizeof(double)));
    AttentionTensors<double, double> x = { q, k, v, y, d_y, NULL, d_q, d_k, d_v, lse, NULL, delta };
    rt_attention_plain_grad(x, completed(a), stream);
}

void rt_attention_grad_bf16(rt_bf16 *d_q, rt_bf16 *d_k, rt_bf16 *d_v, const rt_bf16 *q,
                            const rt_bf16 *k, const rt_bf16 *v, const rt_bf16 *y, const float *lse,
                            const rt_bf16 *d_y, RtAttention a, RtStream *stream)
{
    half_grad(RT_BF16, { q, k, v, y, d_y, NULL, d_q, d_k, d_v, lse, NULL, NULL }, a, stream);
}

void rt_attention_grad_f16(rt_f16 *d_q, rt_f16 *d_k, rt_f16 *d_v, const rt_f16 *q, const rt_f16 *k,
                           const rt_f16 *v, const rt_f16 *y, const float *lse, const rt_f16 *d_y,
                           RtAttention a, RtStream *stream)
{
    half_grad(RT_F16, { q, k, v, y, d_y, NULL, d_q, d_k, d_v, lse, NULL, NULL }, a, stream);
}

void rt_room_attention(RtRooms *rooms, RtType type, RtAttention a, bool backward)
{
    a = completed(a);
    const RtCudnnPlan *plan = rt_attention_plan(type, &a, backward);
    const size_t own = backward ? delta_bytes(&a, type == RT_F64 ? sizeof(double) : sizeof(float))
                                : 0;
    const size_t bytes = plan ? rt_attention_plan_bytes(plan) : own;
    rooms->device = bytes > rooms->device ? bytes : rooms->device;
}
