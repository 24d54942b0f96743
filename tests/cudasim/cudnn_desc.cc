/* cudnn_desc.cc -- descriptors of the simulated cuDNN: made, filled, finalized, read, destroyed.
 *
 * In: attributes as bytes. Out: descriptors that hold together, plans, and work on a stream. A
 * table says which attributes of which descriptor are modelled, and in what type; others end the
 * program, since the simulator would not heed them.
 */
#include <stdlib.h>
#include <string.h>

#include "cudasim_library.h"
#include "cudnn.h"

typedef struct {
    int descriptor, name, type;
    int64_t least, most; /* how many values */
} Row;

static const Row rows[] = {
#define ONE(d, name, type)                                                                         \
    {                                                                                              \
        CUDNN_BACKEND_##d##_DESCRIPTOR, CUDNN_ATTR_##name, CUDNN_TYPE_##type, 1, 1                 \
    }
    ONE(TENSOR, TENSOR_DATA_TYPE, DATA_TYPE),
    { CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, 4 },
    { CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, 4 },
    ONE(TENSOR, TENSOR_UNIQUE_ID, INT64),
    ONE(TENSOR, TENSOR_BYTE_ALIGNMENT, INT64),
    ONE(TENSOR, TENSOR_IS_VIRTUAL, BOOLEAN),
    ONE(TENSOR, TENSOR_IS_BY_VALUE, BOOLEAN),
    ONE(POINTWISE, POINTWISE_MODE, POINTWISE_MODE),
    ONE(POINTWISE, POINTWISE_MATH_PREC, DATA_TYPE),
    ONE(POINTWISE, POINTWISE_AXIS, INT64),
    ONE(OPERATION_POINTWISE, OPERATION_POINTWISE_PW_DESCRIPTOR, BACKEND_DESCRIPTOR),
    ONE(OPERATION_POINTWISE, OPERATION_POINTWISE_XDESC, BACKEND_DESCRIPTOR),
    ONE(OPERATION_POINTWISE, OPERATION_POINTWISE_BDESC, BACKEND_DESCRIPTOR),
    ONE(OPERATION_POINTWISE, OPERATION_POINTWISE_TDESC, BACKEND_DESCRIPTOR),
    ONE(OPERATION_POINTWISE, OPERATION_POINTWISE_YDESC, BACKEND_DESCRIPTOR),
    ONE(MATMUL, MATMUL_COMP_TYPE, DATA_TYPE),
    ONE(OPERATION_MATMUL, OPERATION_MATMUL_DESC, BACKEND_DESCRIPTOR),
    ONE(OPERATION_MATMUL, OPERATION_MATMUL_ADESC, BACKEND_DESCRIPTOR),
    ONE(OPERATION_MATMUL, OPERATION_MATMUL_BDESC, BACKEND_DESCRIPTOR),
    ONE(OPERATION_MATMUL, OPERATION_MATMUL_CDESC, BACKEND_DESCRIPTOR),
    ONE(REDUCTION, REDUCTION_OPERATOR, REDUCTION_OPERATOR_TYPE),
    ONE(REDUCTION, REDUCTION_COMP_TYPE, DATA_TYPE),
    ONE(OPERATION_REDUCTION, OPERATION_REDUCTION_DESC, BACKEND_DESCRIPTOR),
    ONE(OPERATION_REDUCTION, OPERATION_REDUCTION_XDESC, BACKEND_DESCRIPTOR),
    ONE(OPERATION_REDUCTION, OPERATION_REDUCTION_YDESC, BACKEND_DESCRIPTOR),
    ONE(OPERATION_RESHAPE, OPERATION_RESHAPE_XDESC, BACKEND_DESCRIPTOR),
    ONE(OPERATION_RESHAPE, OPERATION_RESHAPE_YDESC, BACKEND_DESCRIPTOR),
    ONE(OPERATIONGRAPH, OPERATIONGRAPH_HANDLE, HANDLE),
    { CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, CUDNN_ATTR_OPERATIONGRAPH_OPS,
      CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 64 },
    ONE(ENGINEHEUR, ENGINEHEUR_OPERATION_GRAPH, BACKEND_DESCRIPTOR),
    ONE(ENGINEHEUR, ENGINEHEUR_MODE, HEUR_MODE),
    ONE(EXECUTION_PLAN, EXECUTION_PLAN_HANDLE, HANDLE),
    ONE(EXECUTION_PLAN, EXECUTION_PLAN_ENGINE_CONFIG, BACKEND_DESCRIPTOR),
    { CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64,
      1, 64 },
    { CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
      CUDNN_TYPE_VOID_PTR, 1, 64 },
    ONE(VARIANT_PACK, VARIANT_PACK_WORKSPACE, VOID_PTR),
#undef ONE
};

struct cudnnContext {
    cudaStream_t stream;
};

static char last_error[128];

cudnnStatus_t dn_wrong(cudnnStatus_t status, const char *why)
{
    strncpy(last_error, why, sizeof last_error - 1);
    return status;
}

/* ---- statuses -------------------------------------------------------------------------------- */

typedef struct {
    cudnnStatus_t status;
    const char *name;
} Status;

static const Status statuses[] = {
    { CUDNN_STATUS_SUCCESS, "CUDNN_STATUS_SUCCESS" },
    { CUDNN_STATUS_NOT_INITIALIZED, "CUDNN_STATUS_NOT_INITIALIZED" },
    { CUDNN_STATUS_BAD_PARAM, "CUDNN_STATUS_BAD_PARAM" },
    { CUDNN_STATUS_NOT_SUPPORTED, "CUDNN_STATUS_NOT_SUPPORTED" },
    { CUDNN_STATUS_INTERNAL_ERROR, "CUDNN_STATUS_INTERNAL_ERROR" },
    { CUDNN_STATUS_EXECUTION_FAILED, "CUDNN_STATUS_EXECUTION_FAILED" },
};

const char *cudnnGetErrorString(cudnnStatus_t status)
{
    for (const Status &s : statuses)
        if (s.status == status)
            return s.name;
    return "CUDNN_UNKNOWN_STATUS";
}

void cudnnGetLastErrorString(char *message, size_t most)
{
    strncpy(message, last_error, most - 1);
    message[most - 1] = 0;
    last_error[0] = 0;
}

/* The status that CUDASIM_FAIL wants of this call, or SUCCESS. */
static cudnnStatus_t injected(const char *call)
{
    const char *name = cudasim_injected(call);
    for (const Status &s : statuses)
        if (name && strcmp(s.name, name) == 0)
            return s.status;
    if (name)
        cudasim_report("CUDASIM_FAIL: %s ends with a CUDNN_STATUS_..., not %s", call, name);
    return CUDNN_STATUS_SUCCESS;
}

size_t cudnnGetVersion(void) { return dn_setting("old") ? 91002 : 91900; }

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle)
{
    const cudnnStatus_t status = injected("cudnnCreate");
    if (status)
        return status;
    *handle = (cudnnHandle_t)calloc(1, sizeof **handle);
    return *handle ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_INTERNAL_ERROR;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
    free(handle);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
    if (!handle)
        return dn_wrong(CUDNN_STATUS_BAD_PARAM, "no handle");
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

/* ---- descriptors ----------------------------------------------------------------------------- */

static DnDescriptor *live(cudnnBackendDescriptor_t descriptor)
{
    DnDescriptor *d = (DnDescriptor *)descriptor;
    if (!d || d->mark != DN_LIVE)
        cudasim_report("a call of cuDNN with %s", d ? "a descriptor that was destroyed" : "NULL");
    return d;
}

DnDescriptor *dn_get(cudnnBackendDescriptor_t descriptor, int type)
{
    DnDescriptor *d = live(descriptor);
    if (d->type != type)
        cudasim_report("a call of cuDNN with a descriptor of kind %d, not %d", d->type, type);
    return d;
}

const void *dn_value(const DnDescriptor *d, int name)
{
    const auto found = d->set.find(name);
    return found == d->set.end() ? NULL : found->second.bytes.data();
}

DnDescriptor *dn_part(const DnDescriptor *d, int name, int type)
{
    const void *value = dn_value(d, name);
    return value ? dn_get(*(const cudnnBackendDescriptor_t *)value, type) : NULL;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t *descriptor)
{
    const cudnnStatus_t status = injected("cudnnBackendCreateDescriptor");
    if (status)
        return status;
    DnDescriptor *d = new DnDescriptor();
    d->mark = DN_LIVE;
    d->type = type;
    *descriptor = d;
    return CUDNN_STATUS_SUCCESS;
}

/* What is left of it tells later calls that it is dead. */
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor)
{
    DnDescriptor *d = live(descriptor);
    d->mark = DN_DEAD;
    d->set.clear();
    return CUDNN_STATUS_SUCCESS;
}

static size_t type_bytes(int type)
{
    return type == CUDNN_TYPE_BOOLEAN ? sizeof(bool)
           : type == CUDNN_TYPE_INT64 || type == CUDNN_TYPE_VOID_PTR
                   || type == CUDNN_TYPE_BACKEND_DESCRIPTOR || type == CUDNN_TYPE_HANDLE
               ? 8
               : sizeof(int);
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void *elements)
{
    DnDescriptor *d = live(descriptor);
    const cudnnStatus_t status = injected("cudnnBackendSetAttribute");
    if (status)
        return status;
    if (d->final)
        return dn_wrong(CUDNN_STATUS_BAD_PARAM, "the descriptor is final");
    for (const Row &row : rows)
        if (row.descriptor == d->type && row.name == name) {
            if (row.type != type || count < row.least || count > row.most || !elements)
                return dn_wrong(CUDNN_STATUS_BAD_PARAM, "an attribute of another type or count");
            const char *from = (const char *)elements;
            d->set[name] = { type, count,
                             std::vector<char>(from, from + type_bytes(type) * count) };
            return CUDNN_STATUS_SUCCESS;
        }
    cudasim_report("not modelled: attribute %d of cuDNN's descriptor %d", name, d->type);
}

/* ---- finalizing ------------------------------------------------------------------------------ */

static bool has_all(const DnDescriptor *d, std::initializer_list<int> names)
{
    for (int name : names)
        if (!dn_value(d, name))
            return false;
    return true;
}

static cudnnStatus_t finalize(DnDescriptor *d)
{
    DnTensor tensor;
    DnGraph graph;
    bool good = true;
    switch (d->type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR: return dn_tensor(d, &tensor);
    case CUDNN_BACKEND_POINTWISE_DESCRIPTOR:
        good = has_all(d, { CUDNN_ATTR_POINTWISE_MODE, CUDNN_ATTR_POINTWISE_MATH_PREC });
        break;
    case CUDNN_BACKEND_MATMUL_DESCRIPTOR: good = has_all(d, { CUDNN_ATTR_MATMUL_COMP_TYPE }); break;
    case CUDNN_BACKEND_REDUCTION_DESCRIPTOR:
        good = has_all(d, { CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_ATTR_REDUCTION_COMP_TYPE });
        break;
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR: return dn_check_op(d);
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
        if (!has_all(d, { CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_ATTR_OPERATIONGRAPH_OPS }))
            return dn_wrong(CUDNN_STATUS_BAD_PARAM, "a graph without handle or operations");
        return dn_graph(d, &graph);
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
        good = has_all(d, { CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_ATTR_ENGINEHEUR_MODE });
        break;
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
        good = has_all(
            d, { CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG });
        break;
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
        good = has_all(
            d, { CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS });
        break;
    default: cudasim_report("not modelled: cuDNN's descriptor %d is finalized", d->type);
    }
    return good ? CUDNN_STATUS_SUCCESS
                : dn_wrong(CUDNN_STATUS_BAD_PARAM, "an attribute is missing");
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor)
{
    DnDescriptor *d = live(descriptor);
    cudnnStatus_t status = injected("cudnnBackendFinalize");
    if (!status)
        status = finalize(d);
    d->final = !status;
    if (status || d->type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)
        return status;
    const DnDescriptor *config = dn_part(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                         CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (!config->final)
        return dn_wrong(CUDNN_STATUS_BAD_PARAM, "a configuration that is not final");
    d->engine = config->engine;
    d->work_bytes = config->work_bytes;
    d->set[CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH] = config->set.at(
        CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    return CUDNN_STATUS_SUCCESS;
}

/* ---- reading --------------------------------------------------------------------------------- */

static cudnnStatus_t give_configs(const DnDescriptor *d, int64_t most, int64_t *count, void **to)
{
    DnGraph graph;
    int64_t engine[DN_ENGINES], work_bytes;
    (void)dn_graph(
        dn_part(d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR),
        &graph);
    const int n = dn_engines(&graph, engine, &work_bytes);
    for (int i = 0; i < n && i < most; i++) {
        DnDescriptor *config = dn_get(to[i], CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
        config->engine = engine[i];
        config->work_bytes = work_bytes;
        config->set[CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH] = d->set.at(
            CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
        config->final = true;
    }
    *count = n; /* more than were asked for, as the real one */
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t give_notes(const DnDescriptor *d, int64_t most, int64_t *count, int *to)
{
    *count = d->engine == DN_ENGINE_ATOMIC;
    if (*count && most > 0)
        to[0] = CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(const cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t most,
                                       int64_t *count, void *elements)
{
    const DnDescriptor *d = live(descriptor);
    (void)type;
    if (!d->final)
        return dn_wrong(CUDNN_STATUS_BAD_PARAM, "a descriptor that is not final");
    *count = 1;
    switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS: return give_configs(d, most, count, (void **)elements);
    case CUDNN_ATTR_ENGINECFG_ENGINE: {
        DnDescriptor *engine = dn_get(*(void **)elements, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
        engine->engine = d->engine;
        engine->final = true;
        return CUDNN_STATUS_SUCCESS;
    }
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE: return give_notes(d, most, count, (int *)elements);
    case CUDNN_ATTR_ENGINE_GLOBAL_INDEX: *(int64_t *)elements = d->engine; break;
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE: *(int64_t *)elements = d->work_bytes; break;
    default: cudasim_report("not modelled: attribute %d of cuDNN is read", name);
    }
    return CUDNN_STATUS_SUCCESS;
}

/* ---- running --------------------------------------------------------------------------------- */

/* false: a tensor has no address, or one that is not aligned as it was described. */
static bool places(const DnGraph *g, const DnDescriptor *pack, std::map<int64_t, void *> *at)
{
    const DnAttribute &numbers = pack->set.at(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    const DnAttribute &pointers = pack->set.at(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    if (numbers.count != pointers.count)
        return false;
    for (int64_t i = 0; i < numbers.count; i++)
        (*at)[((const int64_t *)numbers.bytes.data())[i]] =
            ((void *const *)pointers.bytes.data())[i];
    for (const auto &entry : g->tensors) {
        const DnTensor &t = entry.second;
        if (!t.hidden && (!at->count(t.number) || (uintptr_t)at->at(t.number) % (size_t)t.align))
            return false;
    }
    return true;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack)
{
    const DnDescriptor *p = dn_get(plan, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    const DnDescriptor *k = dn_get(pack, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    const cudnnStatus_t status = injected("cudnnBackendExecute");
    if (status)
        return status;
    if (!handle || !p->final || !k->final)
        return dn_wrong(CUDNN_STATUS_BAD_PARAM, "no handle, or a descriptor that is not final");
    DnGraph g;
    std::map<int64_t, void *> at;
    std::map<int64_t, float> values; /* by value: they are read now */
    (void)dn_graph(
        dn_part(p, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR),
        &g);
    if (!places(&g, k, &at))
        return dn_wrong(CUDNN_STATUS_BAD_PARAM, "a tensor without an address, or not aligned");
    const void *found = dn_value(k, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
    void *work = found ? *(void *const *)found : NULL;
    if (p->work_bytes && !work)
        return dn_wrong(CUDNN_STATUS_BAD_PARAM, "no work space");
    for (const auto &entry : g.tensors)
        if (entry.second.by_value)
            values[entry.first] = *(const float *)at.at(entry.first);
    const int64_t work_bytes = p->work_bytes;
    return cudasim_enqueue(
               handle->stream, "cudnnBackendExecute",
               [g, at, values, work, work_bytes] { dn_run(&g, at, values, work, work_bytes); })
                   == cudaSuccess
               ? CUDNN_STATUS_SUCCESS
               : CUDNN_STATUS_EXECUTION_FAILED;
}
