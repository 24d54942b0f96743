/* cudnn_api.h -- the part of cuDNN's C interface that this runtime uses.
 *
 * cuDNN comes apart from the CUDA toolkit, mostly as a library inside a Python package, whose
 * headers no compiler finds. Its graph interface is a few functions and numbers that hold for all
 * of version 9, so they are declared here; tests/cudasim compares them with cuDNN's headers where
 * those are. Never included together with them.
 */
#ifndef GRADCC_CUDNN_API_H
#define GRADCC_CUDNN_API_H

#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime.h>

#define CUDNN_VERSION_OF(major, minor) ((major)*10000 + (minor)*100)

typedef struct cudnnContext *cudnnHandle_t;
typedef void *cudnnBackendDescriptor_t;
typedef int cudnnStatus_t; /* their enums, as they are passed */
typedef int cudnnBackendDescriptorType_t;
typedef int cudnnBackendAttributeName_t;
typedef int cudnnBackendAttributeType_t;

enum { /* cudnnStatus_t; what is not supported is 3000 to 3999 */
       CUDNN_STATUS_SUCCESS = 0,
       CUDNN_STATUS_NOT_INITIALIZED = 1001,
       CUDNN_STATUS_BAD_PARAM = 2000,
       CUDNN_STATUS_NOT_SUPPORTED = 3000,
       CUDNN_STATUS_INTERNAL_ERROR = 4000,
       CUDNN_STATUS_EXECUTION_FAILED = 5000,
};

enum { /* cudnnBackendDescriptorType_t */
       CUDNN_BACKEND_POINTWISE_DESCRIPTOR = 0,
       CUDNN_BACKEND_ENGINE_DESCRIPTOR = 2,
       CUDNN_BACKEND_ENGINECFG_DESCRIPTOR = 3,
       CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR = 4,
       CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR = 5,
       CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR = 13,
       CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR = 15,
       CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR = 16,
       CUDNN_BACKEND_TENSOR_DESCRIPTOR = 17,
       CUDNN_BACKEND_MATMUL_DESCRIPTOR = 18,
       CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR = 19,
       CUDNN_BACKEND_REDUCTION_DESCRIPTOR = 21,
       CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR = 22,
       CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR = 31,
       CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR = 38,
};

enum { /* cudnnBackendAttributeName_t */
       CUDNN_ATTR_POINTWISE_MODE = 0,
       CUDNN_ATTR_POINTWISE_MATH_PREC = 1,
       CUDNN_ATTR_POINTWISE_AXIS = 9,
       CUDNN_ATTR_ENGINEHEUR_MODE = 200,
       CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH = 201,
       CUDNN_ATTR_ENGINEHEUR_RESULTS = 202,
       CUDNN_ATTR_ENGINEHEUR_DEVICEPROP = 204,
       CUDNN_ATTR_ENGINECFG_ENGINE = 300,
       CUDNN_ATTR_EXECUTION_PLAN_HANDLE = 400,
       CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG = 401,
       CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE = 402,
       CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP = 407,
       CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR = 750,
       CUDNN_ATTR_OPERATION_POINTWISE_XDESC = 751,
       CUDNN_ATTR_OPERATION_POINTWISE_BDESC = 752,
       CUDNN_ATTR_OPERATION_POINTWISE_YDESC = 753,
       CUDNN_ATTR_OPERATION_POINTWISE_TDESC = 758,
       CUDNN_ATTR_OPERATIONGRAPH_HANDLE = 800,
       CUDNN_ATTR_OPERATIONGRAPH_OPS = 801,
       CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT = 900,
       CUDNN_ATTR_TENSOR_DATA_TYPE = 901,
       CUDNN_ATTR_TENSOR_DIMENSIONS = 902,
       CUDNN_ATTR_TENSOR_STRIDES = 903,
       CUDNN_ATTR_TENSOR_UNIQUE_ID = 906,
       CUDNN_ATTR_TENSOR_IS_VIRTUAL = 907,
       CUDNN_ATTR_TENSOR_IS_BY_VALUE = 908,
       CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS = 1000,
       CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS = 1001,
       CUDNN_ATTR_VARIANT_PACK_WORKSPACE = 1003,
       CUDNN_ATTR_ENGINE_GLOBAL_INDEX = 1301,
       CUDNN_ATTR_ENGINE_NUMERICAL_NOTE = 1303,
       CUDNN_ATTR_MATMUL_COMP_TYPE = 1500,
       CUDNN_ATTR_OPERATION_MATMUL_ADESC = 1520,
       CUDNN_ATTR_OPERATION_MATMUL_BDESC = 1521,
       CUDNN_ATTR_OPERATION_MATMUL_CDESC = 1522,
       CUDNN_ATTR_OPERATION_MATMUL_DESC = 1523,
       CUDNN_ATTR_REDUCTION_OPERATOR = 1600,
       CUDNN_ATTR_REDUCTION_COMP_TYPE = 1601,
       CUDNN_ATTR_OPERATION_REDUCTION_XDESC = 1610,
       CUDNN_ATTR_OPERATION_REDUCTION_YDESC = 1611,
       CUDNN_ATTR_OPERATION_REDUCTION_DESC = 1612,
       CUDNN_ATTR_OPERATION_RESHAPE_XDESC = 2200,
       CUDNN_ATTR_OPERATION_RESHAPE_YDESC = 2201,
       CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION = 2702,
};

enum { /* cudnnBackendAttributeType_t */
       CUDNN_TYPE_HANDLE = 0,
       CUDNN_TYPE_DATA_TYPE = 1,
       CUDNN_TYPE_BOOLEAN = 2,
       CUDNN_TYPE_INT64 = 3,
       CUDNN_TYPE_VOID_PTR = 6,
       CUDNN_TYPE_HEUR_MODE = 8,
       CUDNN_TYPE_NUMERICAL_NOTE = 11,
       CUDNN_TYPE_POINTWISE_MODE = 14,
       CUDNN_TYPE_BACKEND_DESCRIPTOR = 15,
       CUDNN_TYPE_REDUCTION_OPERATOR_TYPE = 18,
       CUDNN_TYPE_CHAR = 24,
};

enum { /* types of values */
       CUDNN_DATA_FLOAT = 0,
       CUDNN_DATA_HALF = 2,
       CUDNN_DATA_INT32 = 4,
       CUDNN_DATA_BFLOAT16 = 9,
       CUDNN_DATA_BOOLEAN = 11,
};

enum { /* what is done to each element */
       CUDNN_POINTWISE_ADD = 0,
       CUDNN_POINTWISE_MUL = 1,
       CUDNN_POINTWISE_DIV = 6,
       CUDNN_POINTWISE_SUB = 9,
       CUDNN_POINTWISE_EXP = 13,
       CUDNN_POINTWISE_LOG = 15,
       CUDNN_POINTWISE_CMP_GE = 303,
       CUDNN_POINTWISE_GEN_INDEX = 501,
       CUDNN_POINTWISE_BINARY_SELECT = 601,
};

enum { CUDNN_REDUCE_TENSOR_ADD = 0, CUDNN_REDUCE_TENSOR_MAX = 3 };
enum { CUDNN_HEUR_MODE_A = 3 };
enum { CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC = 4, CUDNN_NUMERICAL_NOTE_TYPE_COUNT = 10 };

extern "C" {
size_t cudnnGetVersion(void);
const char *cudnnGetErrorString(cudnnStatus_t status);
void cudnnGetLastErrorString(char *message, size_t most);
cudnnStatus_t cudnnCreate(cudnnHandle_t *handle);
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle);
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream);
cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t *descriptor);
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor);
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void *elements);
cudnnStatus_t cudnnBackendGetAttribute(const cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t most,
                                       int64_t *count, void *elements);
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor);
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack);
}

#endif
