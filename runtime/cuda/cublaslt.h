/* cublaslt.h -- cuBLASLt as a table of functions, loaded when a program first needs it. */
#ifndef GRADCC_CUBLASLT_H
#define GRADCC_CUBLASLT_H

#include "rt_cuda.h"

#include <cublasLt.h>

#define RT_LT_FUNCTIONS(X)                                                                         \
    X(Create)                                                                                      \
    X(Destroy)                                                                                     \
    X(GetVersion)                                                                                  \
    X(GetStatusName)                                                                               \
    X(MatmulDescCreate)                                                                            \
    X(MatmulDescSetAttribute)                                                                      \
    X(MatmulDescDestroy)                                                                           \
    X(MatrixLayoutCreate)                                                                          \
    X(MatrixLayoutSetAttribute)                                                                    \
    X(MatrixLayoutDestroy)                                                                         \
    X(MatmulPreferenceCreate)                                                                      \
    X(MatmulPreferenceSetAttribute)                                                                \
    X(MatmulPreferenceDestroy)                                                                     \
    X(MatmulAlgoGetHeuristic)                                                                      \
    X(MatmulAlgoCheck)                                                                             \
    X(Matmul)

typedef struct {
#define X(name) decltype(&cublasLt##name) name;
    RT_LT_FUNCTIONS(X)
#undef X
} RtLt;

/* The library, loaded and new enough; else the program ends with a message. */
const RtLt *rt_lt(void);
const char *rt_lt_version(void); /* "13.1.0" */

#endif
