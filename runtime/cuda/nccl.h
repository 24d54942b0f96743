/* nccl.h -- NCCL as a table of functions, loaded when a program of several ranks needs it. */
#ifndef GRADCC_CUDA_NCCL_H
#define GRADCC_CUDA_NCCL_H

#include "rt_cuda.h"

#if defined(RT_SIMULATOR)
#include <nccl.h>
#else
#include "cuda/nccl_api.h"
#endif

/* X(name, arguments) of functions that return ncclResult_t. */
#define RT_NCCL_FUNCTIONS(X)                                                                       \
    X(GetVersion, (int *version))                                                                  \
    X(GetUniqueId, (ncclUniqueId * id))                                                            \
    X(CommInitRankConfig,                                                                          \
      (ncclComm_t * comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config))             \
    X(CommFinalize, (ncclComm_t comm))                                                             \
    X(CommDestroy, (ncclComm_t comm))                                                              \
    X(CommGetAsyncError, (ncclComm_t comm, ncclResult_t * error))                                  \
    X(AllReduce, (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, \
                  ncclComm_t comm, cudaStream_t stream))                                           \
    X(AllGather, (const void *send, void *recv, size_t count, ncclDataType_t type,                 \
                  ncclComm_t comm, cudaStream_t stream))                                           \
    X(Broadcast, (const void *send, void *recv, size_t count, ncclDataType_t type, int root,       \
                  ncclComm_t comm, cudaStream_t stream))                                           \
    X(Send, (const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,       \
             cudaStream_t stream))                                                                 \
    X(Recv, (void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,             \
             cudaStream_t stream))                                                                 \
    X(GroupStart, (void))                                                                          \
    X(GroupEnd, (void))

typedef struct {
#define X(name, arguments) ncclResult_t(*name) arguments;
    RT_NCCL_FUNCTIONS(X)
#undef X
    const char *(*GetErrorString)(ncclResult_t result);
    const char *(*GetLastError)(ncclComm_t comm);
} RtNccl;

/* The library, loaded and new enough; else the program ends with a message. */
const RtNccl *rt_nccl(void);
const char *rt_nccl_version(void); /* "2.28.9" */

#endif
