/* cublaslt_algo.cc -- which products the simulated cuBLASLt has algorithms for.
 *
 * In: descriptors, layouts, preferences. Out: an LtProduct whose sizes agree, and rows of the table
 * of algorithms. The real library has kernels for some combinations of types, alignment and
 * epilogue and none for others; where its documentation leaves it open, there is none here, so that
 * a caller keeps another way. The rows differ in workspace and in the order of sums.
 *
 *   CUDASIM_CUBLASLT=missing|old|plain|twice   no handle; a version of years ago; no fused
 *   epilogues; GELU and its gradient by a second kernel
 */
#include <stdlib.h>
#include <string.h>

#include "cublaslt.h"
#include "cudasim_library.h"

struct cublasLtContext {
    uint32_t mark;
};

enum { LT_HANDLE = 0x4c54484e, OLD_VERSION = 11200 };

typedef struct {
    int32_t id;
    uint32_t tile, stages;
    int32_t split;    /* parts of k that are summed on their own, then together in the workspace */
    uint32_t scheme;  /* cublasLtReductionScheme_t */
    uint32_t align;   /* bytes, of operands and rows; 0 = that of an element */
    int32_t chunk;    /* of k, summed before it is added; 0 = all */
    size_t workspace; /* bytes besides those of the parts */
} Row;

static const Row rows[] = {
    { 66, 20, 13, 1, CUBLASLT_REDUCTION_SCHEME_NONE, 16, 32, 0 },
    { 67, 20, 24, 1, CUBLASLT_REDUCTION_SCHEME_NONE, 16, 64, 256 << 10 },
    { 31, 18, 11, 4, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, 16, 32, 0 },
    { 21, 15, 7, 1, CUBLASLT_REDUCTION_SCHEME_NONE, 0, 0, 0 },
    { 5, 15, 7, 2, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, 0, 0, 1024 },
};

enum { ROWS = sizeof rows / sizeof rows[0] };

/* ---- the library as a whole ------------------------------------------------------------------ */

static bool setting(const char *value)
{
    const char *given = getenv("CUDASIM_CUBLASLT");
    if (!given || !*given)
        return false;
    if (strcmp(given, "missing") != 0 && strcmp(given, "old") != 0 && strcmp(given, "plain") != 0
        && strcmp(given, "twice") != 0)
        cudasim_report("CUDASIM_CUBLASLT is missing, old, plain or twice, not '%s'", given);
    return strcmp(given, value) == 0;
}

bool lt_missing(void) { return setting("missing"); }
bool lt_plain(void) { return setting("plain"); }
bool lt_twice(void) { return setting("twice"); }

size_t cublasLtGetVersion(void) { return setting("old") ? OLD_VERSION : CUBLAS_VERSION; }
size_t cublasLtGetCudartVersion(void) { return CUDART_VERSION; }

cublasStatus_t cublasLtGetProperty(libraryPropertyType type, int *value)
{
    if (!value || type < MAJOR_VERSION || type > PATCH_LEVEL)
        return CUBLAS_STATUS_INVALID_VALUE;
    const int now[] = { CUBLAS_VER_MAJOR, CUBLAS_VER_MINOR, CUBLAS_VER_PATCH };
    const int old[] = { OLD_VERSION / 1000, OLD_VERSION / 100 % 10, OLD_VERSION % 100 };
    *value = setting("old") ? old[type] : now[type];
    return CUBLAS_STATUS_SUCCESS;
}

#define STATUSES(S)                                                                                \
    S(SUCCESS, "success")                                                                          \
    S(NOT_INITIALIZED, "the library was not initialized")                                          \
    S(ALLOC_FAILED, "an allocation failed")                                                        \
    S(INVALID_VALUE, "an unsupported value or parameter was passed")                               \
    S(ARCH_MISMATCH, "the device lacks a feature that the call needs")                             \
    S(MAPPING_ERROR, "access to device memory failed")                                             \
    S(EXECUTION_FAILED, "the program failed to execute on the device")                             \
    S(INTERNAL_ERROR, "an internal operation failed")                                              \
    S(NOT_SUPPORTED, "the functionality is not supported")                                         \
    S(LICENSE_ERROR, "the functionality needs a license")

const char *cublasLtGetStatusName(cublasStatus_t status)
{
    switch (status) {
#define NAME(name, text)                                                                           \
    case CUBLAS_STATUS_##name: return "CUBLAS_STATUS_" #name;
        STATUSES(NAME)
    }
    return "unknown status";
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    switch (status) {
#define TEXT(name, text)                                                                           \
    case CUBLAS_STATUS_##name: return text;
        STATUSES(TEXT)
    }
    return "unknown status";
}

const char *cublasGetStatusName(cublasStatus_t status) { return cublasLtGetStatusName(status); }
const char *cublasGetStatusString(cublasStatus_t status) { return cublasLtGetStatusString(status); }

cublasStatus_t lt_injected(const char *call)
{
    const char *name = cudasim_injected(call);
    if (!name)
        return CUBLAS_STATUS_SUCCESS;
#define INJECTED(status, text)                                                                     \
    if (strcmp(name, "CUBLAS_STATUS_" #status) == 0)                                               \
        return CUBLAS_STATUS_##status;
    STATUSES(INJECTED)
    cudasim_report("CUDASIM_FAIL: %s ends with a CUBLAS_STATUS_..., not with '%s'", call, name);
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    const cublasStatus_t s = lt_injected("cublasLtCreate");
    if (s != CUBLAS_STATUS_SUCCESS)
        return s;
    if (!handle)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (lt_missing())
        return CUBLAS_STATUS_NOT_INITIALIZED;
    *handle = (cublasLtHandle_t)malloc(sizeof **handle);
    if (!*handle)
        return CUBLAS_STATUS_ALLOC_FAILED;
    (*handle)->mark = LT_HANDLE;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    if (!handle || handle->mark != LT_HANDLE)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    handle->mark = 0;
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- is it a product ------------------------------------------------------------------------- */

size_t lt_size(uint32_t type)
{
    switch (type) {
    case CUDA_R_64F: return 8;
    case CUDA_R_32F: return 4;
    case CUDA_R_16F:
    case CUDA_R_16BF: return 2;
    }
    return 0;
}

static bool view_of(cublasLtMatrixLayout_t layout, LtView *v, int64_t *batch)
{
    LtLayout l;
    if (!layout)
        return false;
    memcpy(&l, layout, sizeof l);
    const bool row = l.order == CUBLASLT_ORDER_ROW;
    if (l.order != CUBLASLT_ORDER_COL && !row)
        cudasim_report("not modelled: order %d of a matrix layout", l.order);
    if (l.mark != LT_LAYOUT || l.rows == 0 || l.cols == 0 || l.batch < 1)
        return false;
    if (l.ld < (int64_t)(row ? l.cols : l.rows))
        return false;
    *batch = l.batch;
    *v = (LtView){ l.type,         (int64_t)l.rows, (int64_t)l.cols,
                   row ? l.ld : 1, row ? 1 : l.ld,  l.stride };
    return true;
}

static LtView transposed(LtView v, int32_t op)
{
    if (op == CUBLAS_OP_N)
        return v;
    return (LtView){ v.type, v.cols, v.rows, v.by_col, v.by_row, v.stride };
}

static void check_modelled(const LtDesc *op)
{
    static const uint32_t known[] = {
        CUBLASLT_EPILOGUE_DEFAULT,   CUBLASLT_EPILOGUE_RELU,   CUBLASLT_EPILOGUE_BIAS,
        CUBLASLT_EPILOGUE_RELU_BIAS, CUBLASLT_EPILOGUE_GELU,   CUBLASLT_EPILOGUE_GELU_AUX,
        CUBLASLT_EPILOGUE_GELU_BIAS, CUBLASLT_EPILOGUE_DGELU,  CUBLASLT_EPILOGUE_DGELU_BGRAD,
        CUBLASLT_EPILOGUE_BGRADA,    CUBLASLT_EPILOGUE_BGRADB, CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
    };
    bool found = false;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        found = found || known[i] == op->epilogue;
    if (!found)
        cudasim_report("not modelled: epilogue %u of cublasLtMatmul", op->epilogue);
    if (op->pointer_mode != CUBLASLT_POINTER_MODE_HOST
        && op->pointer_mode != CUBLASLT_POINTER_MODE_DEVICE)
        cudasim_report("not modelled: pointer mode %d of cublasLtMatmul", op->pointer_mode);
    if (op->fill != CUBLAS_FILL_MODE_FULL || op->trans_c != CUBLAS_OP_N)
        cudasim_report("not modelled: fill mode %d, transposed C %d", op->fill, op->trans_c);
}

cublasStatus_t lt_product(cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                          cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                          cublasLtMatrixLayout_t d, LtProduct *p)
{
    int64_t batch[4];
    memset(p, 0, sizeof *p);
    if (!desc)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(&p->op, desc, sizeof p->op);
    if (p->op.mark != LT_DESC || !view_of(a, &p->a, &batch[0]) || !view_of(b, &p->b, &batch[1])
        || !view_of(c, &p->c, &batch[2]) || !view_of(d, &p->d, &batch[3]))
        return CUBLAS_STATUS_INVALID_VALUE;
    check_modelled(&p->op);
    p->a = transposed(p->a, p->op.trans_a);
    p->b = transposed(p->b, p->op.trans_b);
    p->m = p->d.rows;
    p->n = p->d.cols;
    p->k = p->a.cols;
    p->batch = batch[3];
    if (p->a.rows != p->m || p->b.cols != p->n || p->b.rows != p->k || p->c.rows != p->m
        || p->c.cols != p->n || batch[0] != p->batch || batch[1] != p->batch
        || batch[2] != p->batch)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (p->batch > 1 && p->d.stride == 0) /* batches would write over each other */
        return CUBLAS_STATUS_INVALID_VALUE;
    if (p->op.bias_type < 0)
        p->op.bias_type = (int32_t)p->d.type;
    if (p->op.aux_type < 0)
        p->op.aux_type = (int32_t)p->d.type;
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- is there an algorithm ------------------------------------------------------------------- */

static bool types_fit(const LtProduct *p)
{
    const uint32_t ab = p->a.type, cd = p->d.type;
    if (p->b.type != ab || p->c.type != cd)
        return false;
    switch (p->op.compute) {
    case CUBLAS_COMPUTE_32F:
    case CUBLAS_COMPUTE_32F_PEDANTIC:
        if (ab != CUDA_R_32F && ab != CUDA_R_16F && ab != CUDA_R_16BF)
            return false;
        return p->op.scale == CUDA_R_32F && (cd == CUDA_R_32F || cd == ab);
    case CUBLAS_COMPUTE_32F_FAST_16F:
    case CUBLAS_COMPUTE_32F_FAST_16BF:
    case CUBLAS_COMPUTE_32F_FAST_TF32:
        return p->op.scale == CUDA_R_32F && ab == CUDA_R_32F && cd == CUDA_R_32F;
    case CUBLAS_COMPUTE_64F:
    case CUBLAS_COMPUTE_64F_PEDANTIC:
        return p->op.scale == CUDA_R_64F && ab == CUDA_R_64F && cd == CUDA_R_64F;
    }
    return false;
}

static bool arch_fits(const LtProduct *p)
{
    return cudasim_arch() >= 80
           || (p->a.type != CUDA_R_16BF && p->d.type != CUDA_R_16BF
               && p->op.compute != CUBLAS_COMPUTE_32F_FAST_TF32
               && p->op.compute != CUBLAS_COMPUTE_32F_FAST_16BF);
}

/* Every row or column begins at a multiple of `align` bytes, if the operand does. */
static bool view_aligned(const LtView *v, uint32_t given, uint32_t align, int64_t batch)
{
    const int64_t bytes = (int64_t)lt_size(v->type), ld = v->by_row == 1 ? v->by_col : v->by_row;
    return given % align == 0 && ld * bytes % align == 0
           && (batch == 1 || v->stride * bytes % align == 0);
}

static bool aligned(const LtProduct *p, const uint32_t given[4], uint32_t align)
{
    return view_aligned(&p->a, given[0], align, p->batch)
           && view_aligned(&p->b, given[1], align, p->batch)
           && view_aligned(&p->c, given[2], align, p->batch)
           && view_aligned(&p->d, given[3], align, p->batch);
}

/* Fused epilogues are there in kernels with rows of 16 bytes, for D by columns and not in fp64, and
   where the bias has the type of D; gradients of a bias without batches only, sums over an operand
   for 16 bits and D = A B' only (as products for a weight's gradient are). */
static bool epilogue_fits(const LtProduct *p, const Row *row)
{
    const LtDesc *op = &p->op;
    if (op->epilogue == CUBLASLT_EPILOGUE_DEFAULT)
        return true;
    if (lt_plain() || row->align < 16 || p->d.by_row != 1 || p->d.type == CUDA_R_64F)
        return false;
    const bool bias = op->epilogue & (CUBLASLT_EPILOGUE_BIAS | 16u | 256u | 512u);
    const bool aux = op->epilogue & 128u, by_k = op->epilogue & (256u | 512u);
    if (bias && (op->bias_type != (int32_t)p->d.type || (uintptr_t)op->bias % lt_size(p->d.type)))
        return false;
    if (aux
        && (op->aux_type != (int32_t)p->d.type || op->aux_ld < p->m || op->aux_ld % 8 != 0
            || (uintptr_t)op->aux % 16 != 0 || (p->batch > 1 && op->aux_stride % 8 != 0)))
        return false;
    if ((by_k || (op->epilogue & 16u)) && p->batch > 1)
        return false;
    if (by_k)
        return row->split == 1 && lt_size(p->a.type) == 2 && op->trans_a == CUBLAS_OP_N
               && op->trans_b == CUBLAS_OP_T;
    return row->split == 1;
}

cublasStatus_t lt_algo_fits(const LtProduct *p, const uint32_t align[4], size_t *workspace)
{
    const Row *row = &rows[p->algo];
    *workspace = row->workspace;
    if (!types_fit(p))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (!arch_fits(p))
        return CUBLAS_STATUS_ARCH_MISMATCH;
    const uint32_t element = (uint32_t)lt_size(p->a.type), d = (uint32_t)lt_size(p->d.type);
    if (!aligned(p, align, row->align ? row->align : element < d ? element : d))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (!epilogue_fits(p, row) || (row->split > 1 && p->k < 32 * row->split))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (row->split > 1)
        *workspace += (size_t)(p->batch * p->m * p->n * row->split) * (d == 8 ? 8 : 4);
    return CUBLAS_STATUS_SUCCESS;
}

int lt_algo_parts(const LtProduct *p) { return rows[p->algo].split; }
int64_t lt_algo_chunk(const LtProduct *p)
{
    return rows[p->algo].chunk ? rows[p->algo].chunk : p->k;
}

static uint32_t types_of(const LtProduct *p)
{
    return p->a.type | p->d.type << 8 | (uint32_t)p->op.compute << 16;
}

static cublasLtMatmulAlgo_t algo_of(const LtProduct *p)
{
    const Row *row = &rows[p->algo];
    const LtAlgo inside = { LT_ALGO,     (uint32_t)cublasLtGetVersion(),
                            row->id,     row->split,
                            row->tile,   row->stages,
                            row->scheme, types_of(p) };
    cublasLtMatmulAlgo_t algo = {};
    memcpy(&algo, &inside, sizeof inside);
    return algo;
}

cublasStatus_t lt_algo_row(const LtProduct *p, const cublasLtMatmulAlgo_t *algo, int32_t *row)
{
    LtAlgo inside;
    memcpy(&inside, algo, sizeof inside);
    if (inside.mark != LT_ALGO || inside.version != cublasLtGetVersion())
        return CUBLAS_STATUS_INVALID_VALUE;
    if (inside.types != types_of(p))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    LtProduct q = *p;
    for (q.algo = 0; q.algo < ROWS; q.algo++) {
        const cublasLtMatmulAlgo_t known = algo_of(&q);
        *row = q.algo;
        if (memcmp(&known, algo, sizeof known) == 0)
            return CUBLAS_STATUS_SUCCESS;
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

/* ---- the best ones --------------------------------------------------------------------------- */

/* Algorithms that fit, the fastest first: where D is small and k long, those that split k. */
static int rank(LtProduct *p, const LtPref *pref, int order[ROWS], size_t workspace[ROWS])
{
    int n = 0;
    const bool deep = p->k >= 4 * (p->m > p->n ? p->m : p->n);
    for (int pass = 0; pass < 2; pass++)
        for (p->algo = 0; p->algo < ROWS; p->algo++) {
            const Row *row = &rows[p->algo];
            if ((row->split > 1) == (deep == (pass == 0))
                && lt_algo_fits(p, pref->align, &workspace[n]) == CUBLAS_STATUS_SUCCESS
                && workspace[n] <= pref->workspace && (row->scheme & ~pref->schemes) == 0)
                order[n++] = p->algo;
        }
    return n;
}

static float waves(const LtProduct *p)
{
    const int64_t tiles = p->batch * ((p->m + 127) / 128) * ((p->n + 127) / 128);
    return (float)tiles / 132.0f;
}

static cublasStatus_t pref_of(cublasLtMatmulPreference_t pref, LtPref *out)
{
    if (!pref)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(out, pref, sizeof *out);
    if (out->mark != LT_PREF)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (out->search != CUBLASLT_SEARCH_BEST_FIT)
        cudasim_report("not modelled: search mode %u of cublasLtMatmulAlgoGetHeuristic",
                       out->search);
    for (int i = 0; i < 4; i++)
        if (out->align[i] == 0 || (out->align[i] & (out->align[i] - 1)) != 0)
            return CUBLAS_STATUS_INVALID_VALUE;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t pref, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[], int *found)
{
    LtProduct p;
    LtPref how;
    int order[ROWS];
    size_t workspace[ROWS + 1];
    cublasStatus_t s = lt_injected("cublasLtMatmulAlgoGetHeuristic");
    if (s != CUBLAS_STATUS_SUCCESS)
        return s;
    if (!handle || handle->mark != LT_HANDLE)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (wanted <= 0 || !results || !found)
        return CUBLAS_STATUS_INVALID_VALUE;
    *found = 0;
    if ((s = pref_of(pref, &how)) != CUBLAS_STATUS_SUCCESS
        || (s = lt_product(desc, a, b, c, d, &p)) != CUBLAS_STATUS_SUCCESS)
        return s;
    const int n = rank(&p, &how, order, workspace);
    for (int i = 0; i < n && i < wanted; i++) {
        p.algo = order[i];
        results[i] = (cublasLtMatmulHeuristicResult_t){ algo_of(&p),
                                                        workspace[i],
                                                        CUBLAS_STATUS_SUCCESS,
                                                        waves(&p),
                                                        {} };
        *found = i + 1;
    }
    return n ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t lt_algo_default(LtProduct *p, const uint32_t align[4], size_t workspace)
{
    int order[ROWS];
    size_t bytes[ROWS + 1];
    LtPref how = { LT_PREF,
                   CUBLASLT_SEARCH_BEST_FIT,
                   CUBLASLT_REDUCTION_SCHEME_MASK,
                   { align[0], align[1], align[2], align[3] },
                   0,
                   workspace,
                   UINT64_MAX };
    if (rank(p, &how, order, bytes) == 0)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    p->algo = order[0];
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t *algo,
                                       cublasLtMatmulHeuristicResult_t *result)
{
    static const uint32_t any[4] = { 256, 256, 256, 256 };
    LtProduct p;
    cublasStatus_t s = lt_injected("cublasLtMatmulAlgoCheck");
    if (s != CUBLAS_STATUS_SUCCESS)
        return s;
    if (!handle || handle->mark != LT_HANDLE)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!algo || !result)
        return CUBLAS_STATUS_INVALID_VALUE;
    if ((s = lt_product(desc, a, b, c, d, &p)) != CUBLAS_STATUS_SUCCESS
        || (s = lt_algo_row(&p, algo, &p.algo)) != CUBLAS_STATUS_SUCCESS
        || (s = lt_algo_fits(&p, any, &result->workspaceSize)) != CUBLAS_STATUS_SUCCESS)
        return s;
    result->state = CUBLAS_STATUS_SUCCESS;
    result->wavesCount = waves(&p);
    return CUBLAS_STATUS_SUCCESS;
}
