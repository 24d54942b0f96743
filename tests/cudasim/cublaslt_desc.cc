/* cublaslt_desc.cc -- descriptors of the simulated cuBLASLt: created, filled, read, destroyed.
 *
 * In: attributes as bytes. Out: the structs of cublaslt.h. One table per descriptor says where an
 * attribute lies and how wide it is; an attribute that is in no table ends the program, since the
 * simulator would not heed it.
 */
#include <stdlib.h>
#include <string.h>

#include "cublaslt.h"
#include "cudasim_library.h"

typedef struct {
    int attr;
    size_t at, bytes;
} Field;

#define FIELD(type, attr, member)                                                                  \
    {                                                                                              \
        attr, offsetof(type, member), sizeof(((type *)0)->member)                                  \
    }

static const Field layout_fields[] = {
    FIELD(LtLayout, CUBLASLT_MATRIX_LAYOUT_TYPE, type),
    FIELD(LtLayout, CUBLASLT_MATRIX_LAYOUT_ORDER, order),
    FIELD(LtLayout, CUBLASLT_MATRIX_LAYOUT_ROWS, rows),
    FIELD(LtLayout, CUBLASLT_MATRIX_LAYOUT_COLS, cols),
    FIELD(LtLayout, CUBLASLT_MATRIX_LAYOUT_LD, ld),
    FIELD(LtLayout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, batch),
    FIELD(LtLayout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, stride),
};

static const Field desc_fields[] = {
    FIELD(LtDesc, CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, compute),
    FIELD(LtDesc, CUBLASLT_MATMUL_DESC_SCALE_TYPE, scale),
    FIELD(LtDesc, CUBLASLT_MATMUL_DESC_POINTER_MODE, pointer_mode),
    FIELD(LtDesc, CUBLASLT_MATMUL_DESC_TRANSA, trans_a),
    FIELD(LtDesc, CUBLASLT_MATMUL_DESC_TRANSB, trans_b),
    FIELD(LtDesc, CUBLASLT_MATMUL_DESC_TRANSC, trans_c),
    FIELD(LtDesc, CUBLASLT_MATMUL_DESC_FILL_MODE, fill),
    FIELD(LtDesc, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue),
    FIELD(LtDesc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias),
    FIELD(LtDesc, CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, bias_stride),
    FIELD(LtDesc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux),
    FIELD(LtDesc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, aux_ld),
    FIELD(LtDesc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, aux_stride),
    FIELD(LtDesc, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, sm_count),
    FIELD(LtDesc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, aux_type),
    FIELD(LtDesc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, bias_type),
};

static const Field pref_fields[] = {
    FIELD(LtPref, CUBLASLT_MATMUL_PREF_SEARCH_MODE, search),
    FIELD(LtPref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace),
    FIELD(LtPref, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, schemes),
    FIELD(LtPref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, align[0]),
    FIELD(LtPref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, align[1]),
    FIELD(LtPref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, align[2]),
    FIELD(LtPref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, align[3]),
    FIELD(LtPref, CUBLASLT_MATMUL_PREF_MAX_WAVES_COUNT, waves),
    FIELD(LtPref, CUBLASLT_MATMUL_PREF_IMPL_MASK, impl),
};

static const Field algo_fields[] = {
    FIELD(LtAlgo, CUBLASLT_ALGO_CONFIG_ID, id),
    FIELD(LtAlgo, CUBLASLT_ALGO_CONFIG_TILE_ID, tile),
    FIELD(LtAlgo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, split),
    FIELD(LtAlgo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, scheme),
    FIELD(LtAlgo, CUBLASLT_ALGO_CONFIG_STAGES_ID, stages),
};

#define COUNT(table) ((int)(sizeof(table) / sizeof((table)[0])))

static const Field *field(const Field *table, int n, int attr, const char *what)
{
    for (int i = 0; i < n; i++)
        if (table[i].attr == attr)
            return &table[i];
    cudasim_report("not modelled: attribute %d of %s", attr, what);
}

static cublasStatus_t set(void *desc, uint32_t mark, const Field *f, const void *value,
                          size_t bytes)
{
    uint32_t found;
    if (!desc || !value || bytes != f->bytes)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(&found, desc, sizeof found);
    if (found != mark)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy((char *)desc + f->at, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t get(const void *desc, uint32_t mark, const Field *f, void *value,
                          size_t bytes, size_t *written)
{
    uint32_t found;
    if (!desc || (bytes == 0 ? !written : !value || bytes != f->bytes))
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(&found, desc, sizeof found);
    if (found != mark)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (bytes)
        memcpy(value, (const char *)desc + f->at, bytes);
    if (written)
        *written = f->bytes;
    return CUBLAS_STATUS_SUCCESS;
}

/* Room for a descriptor of the library's size, its beginning as given. */
static void *create(size_t size, const void *start, size_t bytes)
{
    void *p = calloc(1, size);
    if (p)
        memcpy(p, start, bytes);
    return p;
}

static cublasStatus_t destroy(void *desc, uint32_t mark, size_t size, const char *what)
{
    uint32_t found;
    if (!desc)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(&found, desc, sizeof found);
    if (found != mark)
        cudasim_report("%s: this is no such descriptor, or it was destroyed before", what);
    memset(desc, 0, size);
    free(desc);
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- layouts --------------------------------------------------------------------------------- */

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t ld)
{
    static_assert(sizeof(LtLayout) <= sizeof(cublasLtMatrixLayoutOpaque_t));
    const cublasStatus_t s = lt_injected("cublasLtMatrixLayoutCreate");
    if (s != CUBLAS_STATUS_SUCCESS)
        return s;
    if (!layout)
        return CUBLAS_STATUS_INVALID_VALUE;
    const LtLayout start = { LT_LAYOUT, type, CUBLASLT_ORDER_COL, 1, rows, cols, ld, 0 };
    *layout = (cublasLtMatrixLayout_t)create(sizeof **layout, &start, sizeof start);
    return *layout ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    return destroy(layout, LT_LAYOUT, sizeof *layout, "cublasLtMatrixLayoutDestroy");
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attr,
                                                const void *value, size_t bytes)
{
    const Field *f = field(layout_fields, COUNT(layout_fields), attr, "a matrix layout");
    return set(layout, LT_LAYOUT, f, value, bytes);
}

cublasStatus_t cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attr, void *value,
                                                size_t bytes, size_t *written)
{
    const Field *f = field(layout_fields, COUNT(layout_fields), attr, "a matrix layout");
    return get(layout, LT_LAYOUT, f, value, bytes, written);
}

/* ---- operations ------------------------------------------------------------------------------ */

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    static_assert(sizeof(LtDesc) <= sizeof(cublasLtMatmulDescOpaque_t));
    const cublasStatus_t s = lt_injected("cublasLtMatmulDescCreate");
    if (s != CUBLAS_STATUS_SUCCESS)
        return s;
    if (!desc)
        return CUBLAS_STATUS_INVALID_VALUE;
    LtDesc start = {};
    start.mark = LT_DESC;
    start.compute = compute;
    start.scale = scale;
    start.fill = CUBLAS_FILL_MODE_FULL;
    start.epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    start.bias_type = start.aux_type = -1;
    *desc = (cublasLtMatmulDesc_t)create(sizeof **desc, &start, sizeof start);
    return *desc ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
    return destroy(desc, LT_DESC, sizeof *desc, "cublasLtMatmulDescDestroy");
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attr,
                                              const void *value, size_t bytes)
{
    const Field *f = field(desc_fields, COUNT(desc_fields), attr, "a matmul descriptor");
    return set(desc, LT_DESC, f, value, bytes);
}

cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attr, void *value,
                                              size_t bytes, size_t *written)
{
    const Field *f = field(desc_fields, COUNT(desc_fields), attr, "a matmul descriptor");
    return get(desc, LT_DESC, f, value, bytes, written);
}

/* ---- preferences ----------------------------------------------------------------------------- */

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *pref)
{
    static_assert(sizeof(LtPref) <= sizeof(cublasLtMatmulPreferenceOpaque_t));
    const cublasStatus_t s = lt_injected("cublasLtMatmulPreferenceCreate");
    if (s != CUBLAS_STATUS_SUCCESS)
        return s;
    if (!pref)
        return CUBLAS_STATUS_INVALID_VALUE;
    const LtPref start = { LT_PREF,
                           CUBLASLT_SEARCH_BEST_FIT,
                           CUBLASLT_REDUCTION_SCHEME_MASK,
                           { 256, 256, 256, 256 },
                           0,
                           0,
                           UINT64_MAX };
    *pref = (cublasLtMatmulPreference_t)create(sizeof **pref, &start, sizeof start);
    return *pref ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t pref)
{
    return destroy(pref, LT_PREF, sizeof *pref, "cublasLtMatmulPreferenceDestroy");
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t pref,
                                                    cublasLtMatmulPreferenceAttributes_t attr,
                                                    const void *value, size_t bytes)
{
    const Field *f = field(pref_fields, COUNT(pref_fields), attr, "a matmul preference");
    return set(pref, LT_PREF, f, value, bytes);
}

cublasStatus_t cublasLtMatmulPreferenceGetAttribute(cublasLtMatmulPreference_t pref,
                                                    cublasLtMatmulPreferenceAttributes_t attr,
                                                    void *value, size_t bytes, size_t *written)
{
    const Field *f = field(pref_fields, COUNT(pref_fields), attr, "a matmul preference");
    return get(pref, LT_PREF, f, value, bytes, written);
}

/* ---- algorithms ------------------------------------------------------------------------------ */

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t attr,
                                                    void *value, size_t bytes, size_t *written)
{
    static_assert(sizeof(LtAlgo) <= sizeof(cublasLtMatmulAlgo_t));
    static const uint16_t none = 0;
    static const uint32_t zero = 0;
    if (attr == CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID
        || attr == CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID)
        return bytes == sizeof none && value ? (memcpy(value, &none, bytes), CUBLAS_STATUS_SUCCESS)
                                             : CUBLAS_STATUS_INVALID_VALUE;
    if (attr == CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING || attr == CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION)
        return bytes == sizeof zero && value ? (memcpy(value, &zero, bytes), CUBLAS_STATUS_SUCCESS)
                                             : CUBLAS_STATUS_INVALID_VALUE;
    const Field *f = field(algo_fields, COUNT(algo_fields), attr, "a matmul algorithm");
    return get(algo, LT_ALGO, f, value, bytes, written);
}
