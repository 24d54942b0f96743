/* lt_faults.cu -- what cuBLASLt refuses, and what the simulator finds around it.
 *
 * Without an argument: the names of the cases, each with the text of its report, or "status NUMBER"
 * where the call answers with a status of the library. With a name: that case.
 */
#include <string.h>

#include <cublasLt.h>

#include "test.h"

enum { M = 16, N = 8, K = 32 };

typedef struct {
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t op;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulPreference_t pref;
    float *A, *B, *D;
    void *workspace;
    size_t workspace_bytes;
    cublasLtMatmulHeuristicResult_t how[8];
    int n;
} Work;

static cublasLtMatrixLayout_t layout(cudaDataType_t type, int rows, int cols, int ld)
{
    cublasLtMatrixLayout_t l;
    MUST(cublasLtMatrixLayoutCreate(&l, type, (uint64_t)rows, (uint64_t)cols, ld));
    return l;
}

static float *zeros(size_t n)
{
    float *x;
    MUST(cudaMalloc((void **)&x, n * sizeof *x));
    MUST(cudaMemset(x, 0, n * sizeof *x));
    return x;
}

static cublasStatus_t find(Work *w)
{
    return cublasLtMatmulAlgoGetHeuristic(w->handle, w->op, w->a, w->b, w->d, w->d, w->pref, 8,
                                          w->how, &w->n);
}

static Work work(void)
{
    Work w = {};
    const uint64_t most = 4 << 20;
    MUST(cublasLtCreate(&w.handle));
    MUST(cublasLtMatmulDescCreate(&w.op, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    w.a = layout(CUDA_R_32F, M, K, M);
    w.b = layout(CUDA_R_32F, K, N, K);
    w.d = layout(CUDA_R_32F, M, N, M);
    w.A = zeros(M * K);
    w.B = zeros(K * N);
    MUST(cudaMalloc((void **)&w.D, M * N * sizeof *w.D));
    MUST(cublasLtMatmulPreferenceCreate(&w.pref));
    MUST(cublasLtMatmulPreferenceSetAttribute(w.pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                              &most, sizeof most));
    MUST(find(&w));
    w.workspace_bytes = most;
    MUST(cudaMalloc(&w.workspace, most));
    MUST(cudaDeviceSynchronize());
    return w;
}

static int multiply(const Work *w, const float *A, float *D, cudaStream_t stream)
{
    const float one = 1, zero = 0;
    return (int)cublasLtMatmul(w->handle, w->op, &one, A, w->a, w->B, w->b, &zero, D, w->d, D, w->d,
                               &w->how[0].algo, w->workspace, w->workspace_bytes, stream);
}

static int set(const Work *w, cublasLtMatmulDescAttributes_t attr, const void *value, size_t bytes)
{
    return (int)cublasLtMatmulDescSetAttribute(w->op, attr, value, bytes);
}

/* ---- reports --------------------------------------------------------------------------------- */

static int unwritten(Work *w)
{
    float *A;
    MUST(cudaMalloc((void **)&A, M * K * sizeof *A));
    MUST(cudaMemset(A, 0, M * (K - 1) * sizeof *A));
    MUST(multiply(w, A, w->D, 0));
    return (int)cudaDeviceSynchronize();
}

static int too_small(Work *w)
{
    MUST(multiply(w, w->A, zeros(M * N - 4), 0));
    return (int)cudaDeviceSynchronize();
}

static int host_pointer(Work *w)
{
    static float A[M * K + 4];
    MUST(multiply(w, (float *)(((uintptr_t)A + 15) & ~(uintptr_t)15), w->D, 0));
    return (int)cudaDeviceSynchronize();
}

static int freed(Work *w)
{
    MUST(cudaFree(w->A));
    MUST(multiply(w, w->A, w->D, 0));
    return (int)cudaDeviceSynchronize();
}

static int over_operand(Work *w) { return multiply(w, w->A, w->A, 0); }

static int no_event(Work *w)
{
    cudaStream_t one, two;
    MUST(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
    MUST(cudaStreamCreateWithFlags(&two, cudaStreamNonBlocking));
    MUST(cudaMemsetAsync(w->A, 0, M * K * sizeof *w->A, one));
    MUST(multiply(w, w->A, w->D, two));
    return (int)cudaDeviceSynchronize();
}

/* Takes an algorithm that needs a workspace. */
static void with_workspace(Work *w)
{
    for (int i = 0; i < w->n; i++)
        if (w->how[i].workspaceSize)
            w->how[0] = w->how[i];
    MUST(w->how[0].workspaceSize == 0);
}

/* Two products at a time in one workspace. */
static int workspace_shared(Work *w)
{
    cudaStream_t one, two;
    MUST(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
    MUST(cudaStreamCreateWithFlags(&two, cudaStreamNonBlocking));
    float *other = zeros(M * N);
    with_workspace(w);
    MUST(cudaDeviceSynchronize());
    MUST(multiply(w, w->A, w->D, one));
    MUST(multiply(w, w->A, other, two));
    return (int)cudaDeviceSynchronize();
}

static int workspace_read(Work *w)
{
    char first;
    with_workspace(w);
    MUST(cudaMemset(w->workspace, 0, w->workspace_bytes));
    MUST(multiply(w, w->A, w->D, 0));
    return (int)cudaMemcpy(&first, w->workspace, 1, cudaMemcpyDeviceToHost);
}

static int not_modelled(Work *w)
{
    const int64_t stride = 1;
    return set(w, (cublasLtMatmulDescAttributes_t)14, &stride, sizeof stride);
}

static int epilogue_not_modelled(Work *w)
{
    const uint32_t epilogue = CUBLASLT_EPILOGUE_DRELU;
    MUST(set(w, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
    return (int)find(w);
}

/* ---- statuses -------------------------------------------------------------------------------- */

static int sizes_differ(Work *w)
{
    w->b = layout(CUDA_R_32F, K + 1, N, K + 1);
    return (int)find(w);
}

static int types_differ(Work *w)
{
    w->b = layout(CUDA_R_16BF, K, N, K);
    return (int)find(w);
}

static int algorithm_damaged(Work *w)
{
    cublasLtMatmulHeuristicResult_t result;
    w->how[0].algo.data[3] ^= 1;
    return (int)cublasLtMatmulAlgoCheck(w->handle, w->op, w->a, w->b, w->d, w->d, &w->how[0].algo,
                                        &result);
}

static int algorithm_of_other_types(Work *w)
{
    w->a = layout(CUDA_R_64F, M, K, M);
    w->b = layout(CUDA_R_64F, K, N, K);
    w->d = layout(CUDA_R_64F, M, N, M);
    MUST(cublasLtMatmulDescDestroy(w->op));
    MUST(cublasLtMatmulDescCreate(&w->op, CUBLAS_COMPUTE_64F, CUDA_R_64F));
    cublasLtMatmulHeuristicResult_t result;
    return (int)cublasLtMatmulAlgoCheck(w->handle, w->op, w->a, w->b, w->d, w->d, &w->how[0].algo,
                                        &result);
}

/* The algorithm was found for rows of 16 bytes at addresses of 16. */
static int misaligned(Work *w) { return multiply(w, zeros(M * K + 1) + 1, w->D, 0); }

static int workspace_small(Work *w)
{
    with_workspace(w);
    w->workspace_bytes = w->how[0].workspaceSize - 1;
    return multiply(w, w->A, w->D, 0);
}

static int no_workspace_no_such_algorithm(Work *w)
{
    const uint64_t none = 0;
    MUST(cublasLtMatmulPreferenceSetAttribute(w->pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                              &none, sizeof none));
    MUST(find(w));
    for (int i = 0; i < w->n; i++)
        if (w->how[i].workspaceSize)
            return 0;
    return CUBLAS_STATUS_NOT_SUPPORTED;
}

static int bias_of_another_type(Work *w)
{
    const uint32_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    const int32_t type = CUDA_R_32F;
    w->a = layout(CUDA_R_16BF, M, K, M);
    w->b = layout(CUDA_R_16BF, K, N, K);
    w->d = layout(CUDA_R_16BF, M, N, M);
    MUST(find(w));
    MUST(set(w, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
    MUST(find(w));
    MUST(set(w, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type));
    return (int)find(w);
}

static int wrong_width(Work *w)
{
    const int64_t transposed = CUBLAS_OP_T;
    return set(w, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed);
}

static const struct {
    const char *name, *text;
    int (*run)(Work *w);
} cases[] = {
    { "unwritten", "reads operand A, allocation 5 (2048 bytes) + 1984", unwritten },
    { "too-small", "writes 512 bytes at D", too_small },
    { "host-pointer", "operand A", host_pointer },
    { "freed", "freed", freed },
    { "over-operand", "over the operand", over_operand },
    { "no-event", "cublasLtMatmul (stream 2) reads operand A", no_event },
    { "workspace-shared", "cublasLtMatmul (stream 2) writes workspace", workspace_shared },
    { "workspace-read", "nothing has written", workspace_read },
    { "attribute", "not modelled: attribute 14", not_modelled },
    { "epilogue", "not modelled: epilogue 136", epilogue_not_modelled },
    { "sizes-differ", "status 7", sizes_differ },
    { "types-differ", "status 15", types_differ },
    { "algorithm-damaged", "status 7", algorithm_damaged },
    { "algorithm-of-other-types", "status 15", algorithm_of_other_types },
    { "misaligned", "status 15", misaligned },
    { "workspace-small", "status 7", workspace_small },
    { "no-workspace", "status 15", no_workspace_no_such_algorithm },
    { "bias-type", "status 15", bias_of_another_type },
    { "wrong-width", "status 7", wrong_width },
};

int main(int argc, char **argv)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (argc < 2)
            printf("%s %s\n", cases[i].name, cases[i].text);
        else if (strcmp(argv[1], cases[i].name) == 0) {
            Work w = work();
            fprintf(stderr, "status %d\n", cases[i].run(&w));
        }
    return 0;
}
