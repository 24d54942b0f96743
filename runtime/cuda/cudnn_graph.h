/* cudnn_graph.h -- attention by cuDNN: what a plan depends on, and the plan. */
#ifndef GRADCC_CUDNN_GRAPH_H
#define GRADCC_CUDNN_GRAPH_H

#include "cuda/cudnn.h"

/* The tensors that a call brings, by the numbers under which cuDNN knows them. */
enum {
    RT_CUDNN_Q,
    RT_CUDNN_K,
    RT_CUDNN_V,
    RT_CUDNN_Y,
    RT_CUDNN_LSE,
    RT_CUDNN_D_Y,
    RT_CUDNN_D_Q,
    RT_CUDNN_D_K,
    RT_CUDNN_D_V,
    RT_CUDNN_DELTA, /* sums of y d_y: fp32 as lse, the last of the work space */
    RT_CUDNN_SCALE, /* the three are an fp32 each, in memory of the host */
    RT_CUDNN_MASK,  /* what hidden scores are */
    RT_CUDNN_ONE,
    RT_CUDNN_TENSORS
};

/* All that a plan depends on. Compared as bytes. */
typedef struct {
    int64_t B, H, T, S, D, E, group;
    int64_t step[RT_CUDNN_D_V + 1][3]; /* b, h, t of q, k, v, y; d_y to d_v: of the gradient */
    int32_t type;                      /* RT_BF16 or RT_F16 */
    int32_t causal, grad;
    int32_t rising; /* is the scale above 0? cuDNN takes no other */
} RtCudnnKey;

enum { RT_CUDNN_MADE = 128 }; /* descriptors of a plan, at most */

typedef struct {
    RtCudnnKey key;
    cudnnBackendDescriptor_t made[RT_CUDNN_MADE];
    int n_made;
    cudnnBackendDescriptor_t plan; /* NULL: cuDNN does not compute it, */
    char why[160];                 /* because of this */
    int64_t work_bytes, engine;
} RtCudnnPlan;

/* Where it is to run: a handle, or the properties of a device that is not here. */
typedef struct {
    cudnnHandle_t handle;
    cudnnBackendDescriptor_t properties;
} RtCudnnTarget;

/* plan->key is set, the rest 0. */
void rt_cudnn_plan(RtCudnnPlan *plan, RtCudnnTarget target);
void rt_cudnn_free(RtCudnnPlan *plan);
/* at: RT_CUDNN_TENSORS addresses, those that the call does not have NULL. */
cudnnStatus_t rt_cudnn_run(const RtCudnnPlan *plan, cudnnHandle_t handle, void *const *at,
                           void *work);

#endif
