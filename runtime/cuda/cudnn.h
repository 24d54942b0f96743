/* cudnn.h -- cuDNN as a table of functions, loaded when RT_ATTENTION=cudnn asks for it. */
#ifndef GRADCC_CUDNN_H
#define GRADCC_CUDNN_H

#include "rt_cuda.h"

#include "cuda/cudnn_api.h"

#define RT_CUDNN_FUNCTIONS(X)                                                                      \
    X(GetVersion)                                                                                  \
    X(GetErrorString)                                                                              \
    X(GetLastErrorString)                                                                          \
    X(Create)                                                                                      \
    X(Destroy)                                                                                     \
    X(SetStream)                                                                                   \
    X(BackendCreateDescriptor)                                                                     \
    X(BackendDestroyDescriptor)                                                                    \
    X(BackendSetAttribute)                                                                         \
    X(BackendGetAttribute)                                                                         \
    X(BackendFinalize)                                                                             \
    X(BackendExecute)

typedef struct {
#define X(name) decltype(&cudnn##name) name;
    RT_CUDNN_FUNCTIONS(X)
#undef X
} RtCudnn;

/* The library, loaded and new enough; else the program ends with a message. */
const RtCudnn *rt_cudnn(void);
const char *rt_cudnn_version(void); /* "9.19.0" */

#endif
