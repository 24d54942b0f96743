/* attention_cudnn.h -- attention by cuDNN, where RT_ATTENTION=cudnn asks for it. */
#ifndef GRADCC_CUDA_ATTENTION_CUDNN_H
#define GRADCC_CUDA_ATTENTION_CUDNN_H

#include "cuda/attention.h"
#include "cuda/cudnn_graph.h"

/* All that its plan depends on. a: scale and group as they are set, never 0, here and below. */
RtCudnnKey rt_attention_key(RtType type, const RtAttention *a, bool grad);
/* The plan of a call, made when it is first asked for; NULL: own kernels compute it. */
const RtCudnnPlan *rt_attention_plan(RtType type, const RtAttention *a, bool grad);
/* Bytes that it works in. */
size_t rt_attention_plan_bytes(const RtCudnnPlan *plan);
/* false: operands do not lie as was planned. */
bool rt_attention_plan_run(const RtCudnnPlan *plan, const AttentionHalf *x, const RtAttention *a,
                           RtStream *stream);

/* For the runtime: "cuDNN 9.19.0: 3 shapes", or NULL; warns if it is not as in the checkpoint. */
const char *rt_attention_line(void);
/* A line for a checkpoint, "" if there is nothing to say. And back: the rest of the text. */
const char *rt_attention_text(void);
const char *rt_attention_take(const char *plans);
void rt_attention_close(void);

#endif
