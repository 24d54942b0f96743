/* cublaslt.h -- inside the simulated cuBLASLt: what lies in its descriptors, and one product.
 *
 * cublaslt_desc.cc fills the descriptors, cublaslt_algo.cc judges which products there is an
 * algorithm for, cublaslt_run.cc computes them.
 */
#ifndef CUDASIM_CUBLASLT_INSIDE_H
#define CUDASIM_CUBLASLT_INSIDE_H

#include "cublasLt.h"

typedef struct { /* in cublasLtMatrixLayoutOpaque_t */
    uint32_t mark;
    uint32_t type; /* cudaDataType */
    int32_t order, batch;
    uint64_t rows, cols;
    int64_t ld, stride; /* stride: from one batch to the next, elements */
} LtLayout;

typedef struct { /* in cublasLtMatmulDescOpaque_t */
    uint32_t mark;
    int32_t compute, scale, pointer_mode, trans_a, trans_b, trans_c, fill;
    uint32_t epilogue;
    int32_t bias_type, aux_type, sm_count;
    void *bias, *aux;
    int64_t bias_stride, aux_ld, aux_stride;
} LtDesc;

typedef struct { /* in cublasLtMatmulPreferenceOpaque_t */
    uint32_t mark;
    uint32_t search, schemes;
    uint32_t align[4]; /* bytes: A B C D */
    float waves;
    uint64_t workspace, impl;
} LtPref;

typedef struct { /* in cublasLtMatmulAlgo_t */
    uint32_t mark, version;
    int32_t id, split;
    uint32_t tile, stages, scheme;
    uint32_t types; /* of the product it was found for */
} LtAlgo;

enum { LT_LAYOUT = 0x4c544c59, LT_DESC = 0x4c544453, LT_PREF = 0x4c545046, LT_ALGO = 0x4c54414c };

typedef struct {   /* one operand; element (row, column) lies at row * by_row + column * by_col */
    uint32_t type; /* cudaDataType */
    int64_t rows, cols; /* as they lie in memory */
    int64_t by_row, by_col, stride;
} LtView;

typedef struct { /* D[m,n] = epilogue(alpha op(A)[m,k] op(B)[k,n] + beta C[m,n]), batch times */
    int64_t m, n, k, batch;
    LtView a, b, c, d;
    LtDesc op;    /* its bias_type and aux_type are resolved */
    int32_t algo; /* row of the table */
} LtProduct;

size_t lt_size(uint32_t type); /* bytes of an element, 0 = not modelled */
bool lt_missing(void);         /* CUDASIM_CUBLASLT=missing */
bool lt_plain(void);           /* =plain: no epilogue but the default */
bool lt_twice(void);           /* =twice: GELU, its gradient: a kernel behind the product's */
/* The status that CUDASIM_FAIL wants of this call, or SUCCESS. */
cublasStatus_t lt_injected(const char *call);
/* Checks descriptors against each other. */
cublasStatus_t lt_product(cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                          cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                          cublasLtMatrixLayout_t d, LtProduct *p);
/* Is there an algorithm of row p->algo for this product? workspace: what it needs. */
cublasStatus_t lt_algo_fits(const LtProduct *p, const uint32_t align[4], size_t *workspace);
cublasStatus_t lt_algo_row(const LtProduct *p, const cublasLtMatmulAlgo_t *algo, int32_t *row);
/* The row that a call without an algorithm takes. */
cublasStatus_t lt_algo_default(LtProduct *p, const uint32_t align[4], size_t workspace);
int lt_algo_parts(const LtProduct *p);     /* of k, that are summed on their own */
int64_t lt_algo_chunk(const LtProduct *p); /* of k, that is summed before it is added */

typedef struct {
    const void *a, *b, *c;
    void *d, *workspace;
    size_t workspace_bytes;
    const void *alpha, *beta; /* device, or NULL: the values below */
    double alpha_value, beta_value;
} LtArguments;

void lt_run(const LtProduct *p, const LtArguments *at); /* on the device */

#endif
