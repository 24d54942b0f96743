/* attention.h -- what the files of attention share: where a head lies, and which kernels take it.
 *
 * attention.cu chooses; attention_forward.cu and attention_grad.cu work on tensor cores, in 16 bits
 * and with heads of up to 128 values; attention_plain.cu does everything else.
 */
#ifndef GRADCC_CUDA_ATTENTION_H
#define GRADCC_CUDA_ATTENTION_H

#include "rt_cuda.h"

/* What a kernel gets besides its operands. */
typedef struct {
    RtAttention a;   /* scale and group as they are set, never 0 */
    unsigned blocks; /* of queries or keys per head; block number = head * blocks + i */
    bool whole;      /* all rows start at multiples of 16 bytes and are a multiple of that long */
} AttentionCall;

/* Where head number `head` of B*H starts. 32 bits: a division of 64 is a call of many registers. */
static __device__ __forceinline__ ptrdiff_t attention_head(const RtAttention *a, RtHeads step,
                                                           unsigned head)
{
    const unsigned heads = (unsigned)a->H;
    return (ptrdiff_t)(head / heads) * step.b + (ptrdiff_t)(head % heads) * step.h;
}

/* The same of the head of k and v that it reads. */
static __device__ __forceinline__ ptrdiff_t attention_keys(const RtAttention *a, RtHeads step,
                                                           unsigned head)
{
    const unsigned heads = (unsigned)a->H, group = (unsigned)a->group;
    return (ptrdiff_t)(head / heads) * step.b + (ptrdiff_t)(head % heads / group) * step.h;
}

/* How many keys query t sees; may be less than 0. */
static __device__ __forceinline__ ptrdiff_t attention_seen(const RtAttention *a, ptrdiff_t t)
{
    return a->causal ? rt_min(a->S, t + a->S - a->T + 1) : a->S;
}

/* Operands of type T, sums of type Real; those that a call does not have are NULL. */
template <class T, class Real> struct AttentionTensors {
    const T *q = NULL, *k = NULL, *v = NULL;
    const T *y = NULL, *d_y = NULL; /* y: of the forward call */
    T *to_y = NULL, *d_q = NULL, *d_k = NULL, *d_v = NULL;
    const Real *lse = NULL;
    Real *to_lse = NULL;
    Real *delta = NULL; /* [B*H*T]: sum of y d_y, from the first kernel of the gradient for the
                           second */
};
typedef AttentionTensors<uint16_t, float> AttentionHalf;

/* On tensor cores: D and E at most 128. */
void rt_attention_half_forward(RtType type, AttentionHalf x, AttentionCall c, RtStream *stream);
void rt_attention_half_grad(RtType type, AttentionHalf x, AttentionCall c, RtStream *stream);

/* On the other ones: all sizes. */
void rt_attention_plain_forward(RtType type, AttentionHalf x, RtAttention a, RtStream *stream);
void rt_attention_plain_forward(AttentionTensors<float, float> x, RtAttention a, RtStream *stream);
void rt_attention_plain_forward(AttentionTensors<double, double> x, RtAttention a,
                                RtStream *stream);
void rt_attention_plain_grad(RtType type, AttentionHalf x, RtAttention a, RtStream *stream);
void rt_attention_plain_grad(AttentionTensors<float, float> x, RtAttention a, RtStream *stream);
void rt_attention_plain_grad(AttentionTensors<double, double> x, RtAttention a, RtStream *stream);

/* Before a launch with that much shared memory: more than 48 KiB must be asked for. */
void rt_attention_shared(RtStream *stream, const void *kernel, int bytes);

#endif
