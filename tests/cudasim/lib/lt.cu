/* lt.cu -- products of cuBLASLt against plain sums in double.
 *
 * Every combination of transposed operands, types, batches, strides, epilogues that is listed below
 * runs with each algorithm that the library offers; rows between which operands have gaps stay
 * unwritten, so that an access outside of an operand is seen. Prints "ok NAME" or "not ok NAME:
 * why".
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vector>

#include <cublasLt.h>
#include <cuda_runtime.h>

#include "half.h"

typedef struct {
    const char *name;
    int64_t m, n, k, batch;
    bool ta, tb;
    cudaDataType_t in, out;
    cublasComputeType_t compute;
    double alpha, beta;
    cublasLtEpilogue_t epilogue;
    int64_t gap; /* elements between columns */
} Case;

typedef struct { /* by columns, in double, as rounded to the type */
    int64_t rows, cols, ld, batch;
    cudaDataType_t type;
    std::vector<double> x;
    char *device;
    cublasLtMatrixLayout_t layout;
} Matrix;

enum { WORKSPACE = 32 << 20 };

static cublasLtHandle_t handle;
static void *workspace;

#define MUST(call)                                                                                 \
    do {                                                                                           \
        const int result = (int)(call);                                                            \
        if (result) {                                                                              \
            printf("not ok lt: %s gives %d\n", #call, result);                                     \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* ---- elements -------------------------------------------------------------------------------- */

static size_t size_of(cudaDataType_t t) { return t == CUDA_R_64F ? 8 : t == CUDA_R_32F ? 4 : 2; }

static double get(const char *p, cudaDataType_t t)
{
    double d;
    float f;
    uint16_t h;
    if (t == CUDA_R_64F)
        return memcpy(&d, p, 8), d;
    if (t == CUDA_R_32F)
        return memcpy(&f, p, 4), (double)f;
    memcpy(&h, p, 2);
    return (double)(t == CUDA_R_16BF ? rt_of_bf16(h) : rt_of_f16(h));
}

static void put(char *p, cudaDataType_t t, double x)
{
    const float f = (float)x;
    const uint16_t h = t == CUDA_R_16BF ? rt_to_bf16(f) : rt_to_f16(f);
    if (t == CUDA_R_64F)
        memcpy(p, &x, 8);
    else if (t == CUDA_R_32F)
        memcpy(p, &f, 4);
    else
        memcpy(p, &h, 2);
}

static double rounding(cudaDataType_t t)
{
    return t == CUDA_R_64F ? 1e-14 : t == CUDA_R_32F ? 2e-6 : t == CUDA_R_16BF ? 1e-2 : 2e-3;
}

/* ---- matrices -------------------------------------------------------------------------------- */

static double random_value(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (double)(*state >> 8) / (1 << 23) - 1;
}

static char *column(const Matrix *a, int64_t b, int64_t j)
{
    return a->device + (size_t)((b * a->cols + j) * a->ld) * size_of(a->type);
}

static void upload(Matrix *a)
{
    std::vector<char> line((size_t)a->rows * size_of(a->type));
    for (int64_t b = 0; b < a->batch; b++)
        for (int64_t j = 0; j < a->cols; j++) {
            for (int64_t i = 0; i < a->rows; i++) {
                double *x = &a->x[(size_t)((b * a->cols + j) * a->rows + i)];
                char *at = line.data() + (size_t)i * size_of(a->type);
                put(at, a->type, *x);
                *x = get(at, a->type);
            }
            MUST(cudaMemcpy(column(a, b, j), line.data(), line.size(), cudaMemcpyHostToDevice));
        }
}

static std::vector<double> download(const Matrix *a)
{
    std::vector<double> x(a->x.size());
    std::vector<char> line((size_t)a->rows * size_of(a->type));
    for (int64_t b = 0; b < a->batch; b++)
        for (int64_t j = 0; j < a->cols; j++) {
            MUST(cudaMemcpy(line.data(), column(a, b, j), line.size(), cudaMemcpyDeviceToHost));
            for (int64_t i = 0; i < a->rows; i++)
                x[(size_t)((b * a->cols + j) * a->rows + i)] = get(
                    line.data() + (size_t)i * size_of(a->type), a->type);
        }
    return x;
}

static Matrix create(int64_t rows, int64_t cols, int64_t batch, cudaDataType_t type, int64_t gap,
                     uint32_t seed)
{
    Matrix a = { rows, cols, rows + gap, batch, type, {}, NULL, NULL };
    a.x.resize((size_t)(rows * cols * batch));
    for (size_t i = 0; i < a.x.size(); i++)
        a.x[i] = random_value(&seed);
    MUST(cudaMalloc((void **)&a.device, (size_t)(a.ld * cols * batch) * size_of(type)));
    const int32_t count = (int32_t)batch;
    const int64_t stride = a.ld * cols;
    MUST(cublasLtMatrixLayoutCreate(&a.layout, type, (uint64_t)rows, (uint64_t)cols, a.ld));
    MUST(cublasLtMatrixLayoutSetAttribute(a.layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                          sizeof count));
    MUST(cublasLtMatrixLayoutSetAttribute(a.layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                          &stride, sizeof stride));
    return a;
}

static void destroy(Matrix *a)
{
    MUST(cudaFree(a->device));
    MUST(cublasLtMatrixLayoutDestroy(a->layout));
}

/* ---- what is to come out --------------------------------------------------------------------- */

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
static double gelu_slope(double x) { return (gelu(x + 1e-5) - gelu(x - 1e-5)) / 2e-5; }

typedef struct {
    Matrix a, b, d, aux, bias;
    std::vector<double> start; /* D before, where beta is not 0 */
} Problem;

static double operand(const Matrix *a, bool transposed, int64_t b, int64_t i, int64_t j)
{
    const int64_t row = transposed ? j : i, col = transposed ? i : j;
    return a->x[(size_t)((b * a->cols + col) * a->rows + row)];
}

static double plain(const Case *c, const Problem *p, int64_t b, int64_t i, int64_t j,
                    double *before)
{
    double sum = 0;
    for (int64_t k = 0; k < c->k; k++)
        sum += operand(&p->a, c->ta, b, i, k) * operand(&p->b, c->tb, b, k, j);
    const size_t at = (size_t)((b * c->n + j) * c->m + i);
    double x = c->alpha * sum + (c->beta != 0 ? c->beta * p->start[at] : 0);
    if (c->epilogue & CUBLASLT_EPILOGUE_BIAS)
        x += p->bias.x[(size_t)i];
    *before = x;
    if (c->epilogue & CUBLASLT_EPILOGUE_GELU)
        x = gelu(x);
    if (c->epilogue & CUBLASLT_EPILOGUE_RELU)
        x = x > 0 ? x : 0;
    if (c->epilogue & 64)
        x *= gelu_slope(p->aux.x[at]);
    return x;
}

static double worst(const std::vector<double> &got, const std::vector<double> &want, double scale)
{
    double most = 0;
    for (size_t i = 0; i < got.size(); i++) {
        const double e = fabs(got[i] - want[i]) / (scale + fabs(want[i]));
        most = e > most || isnan(e) ? (isnan(e) ? INFINITY : e) : most;
    }
    return most;
}

/* The largest relative error of D and of what else the epilogue writes. */
static double compare(const Case *c, const Problem *p)
{
    std::vector<double> d(p->d.x.size()), before(d.size()), sums((size_t)p->bias.rows);
    for (int64_t b = 0; b < c->batch; b++)
        for (int64_t j = 0; j < c->n; j++)
            for (int64_t i = 0; i < c->m; i++) {
                const size_t at = (size_t)((b * c->n + j) * c->m + i);
                d[at] = plain(c, p, b, i, j, &before[at]);
                if (c->epilogue & 16)
                    sums[(size_t)i] += d[at];
            }
    for (int64_t k = 0; k < c->k; k++)
        for (int64_t i = 0; i < p->bias.rows && (c->epilogue & (256 | 512)); i++)
            sums[(size_t)i] += c->epilogue == CUBLASLT_EPILOGUE_BGRADA
                                   ? operand(&p->a, c->ta, 0, i, k)
                                   : operand(&p->b, c->tb, 0, k, i);
    double e = worst(download(&p->d), d, sqrt((double)c->k));
    if ((c->epilogue & 128) && (c->epilogue & CUBLASLT_EPILOGUE_GELU))
        e = fmax(e, worst(download(&p->aux), before, sqrt((double)c->k)));
    if (c->epilogue & (16 | 256 | 512))
        e = fmax(e, worst(download(&p->bias), sums, 10));
    return e;
}

/* ---- a case ---------------------------------------------------------------------------------- */

static cublasLtMatmulDesc_t describe(const Case *c, const Problem *p)
{
    cublasLtMatmulDesc_t op;
    const int32_t ta = c->ta ? CUBLAS_OP_T : CUBLAS_OP_N, tb = c->tb ? CUBLAS_OP_T : CUBLAS_OP_N;
    const uint32_t epilogue = c->epilogue;
    const int64_t ld = p->aux.ld;
    MUST(cublasLtMatmulDescCreate(&op, c->compute, c->in == CUDA_R_64F ? CUDA_R_64F : CUDA_R_32F));
    MUST(cublasLtMatmulDescSetAttribute(op, CUBLASLT_MATMUL_DESC_TRANSA, &ta, sizeof ta));
    MUST(cublasLtMatmulDescSetAttribute(op, CUBLASLT_MATMUL_DESC_TRANSB, &tb, sizeof tb));
    MUST(cublasLtMatmulDescSetAttribute(op, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                        sizeof epilogue));
    MUST(cublasLtMatmulDescSetAttribute(op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p->bias.device,
                                        sizeof p->bias.device));
    MUST(cublasLtMatmulDescSetAttribute(op, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
                                        &p->aux.device, sizeof p->aux.device));
    MUST(cublasLtMatmulDescSetAttribute(op, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &ld, sizeof ld));
    return op;
}

static Problem problem(const Case *c)
{
    const int64_t bias = c->epilogue == CUBLASLT_EPILOGUE_BGRADB ? c->n : c->m;
    Problem p = { create(c->ta ? c->k : c->m, c->ta ? c->m : c->k, c->batch, c->in, c->gap, 1),
                  create(c->tb ? c->n : c->k, c->tb ? c->k : c->n, c->batch, c->in, c->gap, 2),
                  create(c->m, c->n, c->batch, c->out, c->gap, 3),
                  create(c->m, c->n, 1, c->out, c->gap, 4),
                  create(bias, 1, 1, c->out, 0, 5),
                  {} };
    upload(&p.a);
    upload(&p.b);
    if (c->epilogue & CUBLASLT_EPILOGUE_BIAS)
        upload(&p.bias);
    if ((c->epilogue & 64) && (c->epilogue & 128))
        upload(&p.aux);
    return p;
}

static int heuristics(const Case *c, const Problem *p, cublasLtMatmulDesc_t op, int most,
                      cublasLtMatmulHeuristicResult_t *found)
{
    cublasLtMatmulPreference_t pref;
    const uint64_t bytes = WORKSPACE;
    int n = 0;
    MUST(cublasLtMatmulPreferenceCreate(&pref));
    MUST(cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                              &bytes, sizeof bytes));
    const cublasStatus_t s = cublasLtMatmulAlgoGetHeuristic(
        handle, op, p->a.layout, p->b.layout, p->d.layout, p->d.layout, pref, most, found, &n);
    MUST(cublasLtMatmulPreferenceDestroy(pref));
    if (s != CUBLAS_STATUS_SUCCESS && s != CUBLAS_STATUS_NOT_SUPPORTED)
        printf("not ok lt/%s: heuristics give %s\n", c->name, cublasLtGetStatusName(s));
    return s == CUBLAS_STATUS_SUCCESS ? n : 0;
}

static double run(const Case *c, Problem *p, cublasLtMatmulDesc_t op,
                  const cublasLtMatmulHeuristicResult_t *how)
{
    const float alpha = (float)c->alpha, beta = (float)c->beta;
    const bool wide = c->in == CUDA_R_64F;
    if (c->beta != 0) {
        upload(&p->d);
        p->start = p->d.x;
    }
    MUST(cublasLtMatmul(handle, op, wide ? (const void *)&c->alpha : &alpha, p->a.device,
                        p->a.layout, p->b.device, p->b.layout,
                        wide ? (const void *)&c->beta : &beta, p->d.device, p->d.layout,
                        p->d.device, p->d.layout, &how->algo, workspace, how->workspaceSize, 0));
    MUST(cudaDeviceSynchronize());
    return compare(c, p);
}

static void test(const Case *c)
{
    cublasLtMatmulHeuristicResult_t found[16];
    Problem p = problem(c);
    cublasLtMatmulDesc_t op = describe(c, &p);
    const int n = heuristics(c, &p, op, 16, found);
    const double allowed = c->compute == CUBLAS_COMPUTE_32F_FAST_TF32 ? 1e-3 : rounding(c->out);
    const char *why = n ? NULL : "there is no algorithm";
    double e = 0;
    for (int i = 0; i < n && !why; i++) {
        e = run(c, &p, op, &found[i]);
        if (!(e < allowed))
            why = "D differs from a plain sum";
    }
    if (why)
        printf("not ok lt/%s: %s (%d algorithms, error %g)\n", c->name, why, n, e);
    else
        printf("ok lt/%s\n", c->name);
    MUST(cublasLtMatmulDescDestroy(op));
    Matrix *all[] = { &p.a, &p.b, &p.d, &p.aux, &p.bias };
    for (int i = 0; i < 5; i++)
        destroy(all[i]);
}

#define F32  CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F
#define F64  CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F
#define TF32 CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32
#define BF16 CUDA_R_16BF, CUDA_R_16BF, CUBLAS_COMPUTE_32F
#define F16  CUDA_R_16F, CUDA_R_16F, CUBLAS_COMPUTE_32F
#define WIDE CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F

static const Case cases[] = {
    { "f32-nn", 24, 16, 40, 1, false, false, F32, 1, 0, CUBLASLT_EPILOGUE_DEFAULT, 4 },
    { "f32-tn", 24, 16, 40, 1, true, false, F32, 1, 0, CUBLASLT_EPILOGUE_DEFAULT, 4 },
    { "f32-nt", 24, 16, 40, 1, false, true, F32, 1, 0, CUBLASLT_EPILOGUE_DEFAULT, 8 },
    { "f32-tt", 24, 16, 40, 1, true, true, F32, 1, 0, CUBLASLT_EPILOGUE_DEFAULT, 0 },
    { "f32-odd", 7, 3, 5, 1, true, false, F32, 1, 0, CUBLASLT_EPILOGUE_DEFAULT, 1 },
    { "f32-one", 1, 1, 1, 1, false, false, F32, 1, 0, CUBLASLT_EPILOGUE_DEFAULT, 0 },
    { "f32-add", 16, 16, 16, 1, false, false, F32, 0.5, 1, CUBLASLT_EPILOGUE_DEFAULT, 0 },
    { "f32-batch", 8, 12, 20, 6, false, true, F32, 1, 1, CUBLASLT_EPILOGUE_DEFAULT, 0 },
    { "f32-deep", 16, 8, 512, 1, false, true, F32, 1, 0, CUBLASLT_EPILOGUE_DEFAULT, 0 },
    { "f32-bias", 16, 8, 32, 1, true, false, F32, 1, 0, CUBLASLT_EPILOGUE_BIAS, 0 },
    { "f32-relu", 16, 8, 32, 1, true, false, F32, 1, 0, CUBLASLT_EPILOGUE_RELU_BIAS, 0 },
    { "tf32", 24, 16, 40, 1, true, false, TF32, 1, 0, CUBLASLT_EPILOGUE_DEFAULT, 0 },
    { "f64-nn", 9, 11, 13, 2, false, false, F64, 2, 0.5, CUBLASLT_EPILOGUE_DEFAULT, 2 },
    { "f64-tt", 9, 11, 200, 1, true, true, F64, 1, 0, CUBLASLT_EPILOGUE_DEFAULT, 0 },
    { "bf16-tn", 64, 32, 128, 1, true, false, BF16, 1, 0, CUBLASLT_EPILOGUE_DEFAULT, 8 },
    { "bf16-odd", 7, 5, 33, 1, false, false, BF16, 1, 1, CUBLASLT_EPILOGUE_DEFAULT, 0 },
    { "bf16-f32", 64, 32, 300, 1, false, true, WIDE, 1, 1, CUBLASLT_EPILOGUE_DEFAULT, 0 },
    { "f16-nt", 32, 64, 128, 3, false, true, F16, 1, 0, CUBLASLT_EPILOGUE_DEFAULT, 0 },
    { "bf16-bias", 32, 24, 64, 1, true, false, BF16, 1, 0, CUBLASLT_EPILOGUE_BIAS, 0 },
    { "bf16-gelu", 32, 24, 64, 1, true, false, BF16, 1, 0, CUBLASLT_EPILOGUE_GELU_AUX, 8 },
    { "f16-gelu", 32, 24, 64, 1, true, false, F16, 1, 0, CUBLASLT_EPILOGUE_GELU_AUX_BIAS, 0 },
    { "f32-gelu", 32, 24, 64, 1, true, false, F32, 1, 0, CUBLASLT_EPILOGUE_GELU_AUX_BIAS, 0 },
    { "bf16-dgelu", 32, 24, 64, 1, false, false, BF16, 1, 0, CUBLASLT_EPILOGUE_DGELU, 0 },
    { "f32-dgelu", 32, 24, 64, 1, false, false, F32, 1, 0, CUBLASLT_EPILOGUE_DGELU_BGRAD, 0 },
    { "bf16-bgrada", 32, 24, 64, 1, false, true, BF16, 1, 0, CUBLASLT_EPILOGUE_BGRADA, 0 },
    { "f16-bgradb", 32, 24, 64, 1, false, true, F16, 1, 0, CUBLASLT_EPILOGUE_BGRADB, 0 },
};

/* ---- other ways to ask for the same ---------------------------------------------------------- */

static const Case plain_case = {
    "plain", 16, 8, 32, 1, false, false, F32, 1, 1, CUBLASLT_EPILOGUE_DEFAULT, 0
};

static void answer(const char *name, double error)
{
    if (error < 2e-6)
        printf("ok lt/%s\n", name);
    else
        printf("not ok lt/%s: D differs from a plain sum by %g\n", name, error);
}

/* alpha and beta lie in device memory, and are read when the product runs. */
static void test_device_scalars(void)
{
    Case c = plain_case;
    cublasLtMatmulHeuristicResult_t found;
    Problem p = problem(&c);
    cublasLtMatmulDesc_t op = describe(&c, &p);
    const int32_t mode = CUBLASLT_POINTER_MODE_DEVICE;
    const float values[2] = { 0.5f, 2.0f };
    float *scalars;
    MUST(cudaMalloc((void **)&scalars, sizeof values));
    MUST(cublasLtMatmulDescSetAttribute(op, CUBLASLT_MATMUL_DESC_POINTER_MODE, &mode, sizeof mode));
    MUST(heuristics(&c, &p, op, 1, &found) != 1);
    upload(&p.d);
    p.start = p.d.x;
    MUST(cudaMemcpy(scalars, values, sizeof values, cudaMemcpyHostToDevice));
    MUST(cublasLtMatmul(handle, op, scalars, p.a.device, p.a.layout, p.b.device, p.b.layout,
                        scalars + 1, p.d.device, p.d.layout, p.d.device, p.d.layout, &found.algo,
                        workspace, WORKSPACE, 0));
    MUST(cudaDeviceSynchronize());
    c.alpha = 0.5;
    c.beta = 2;
    answer("device-scalars", compare(&c, &p));
}

/* Captured once, launched twice: D = start + 2 A B. Host scalars are those of the call. */
static void test_graph(void)
{
    Case c = plain_case;
    cublasLtMatmulHeuristicResult_t found;
    Problem p = problem(&c);
    cublasLtMatmulDesc_t op = describe(&c, &p);
    float alpha = 1, beta = 1;
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    MUST(heuristics(&c, &p, op, 1, &found) != 1);
    upload(&p.d);
    p.start = p.d.x;
    MUST(cudaDeviceSynchronize());
    MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    MUST(cublasLtMatmul(handle, op, &alpha, p.a.device, p.a.layout, p.b.device, p.b.layout, &beta,
                        p.d.device, p.d.layout, p.d.device, p.d.layout, &found.algo, workspace,
                        WORKSPACE, stream));
    MUST(cudaStreamEndCapture(stream, &graph));
    alpha = beta = 100;
    MUST(cublasLtMatmulDescDestroy(op));
    MUST(cudaGraphInstantiate(&exec, graph, 0));
    MUST(cudaGraphLaunch(exec, stream));
    MUST(cudaGraphLaunch(exec, stream));
    MUST(cudaStreamSynchronize(stream));
    c.alpha = 2;
    answer("graph", compare(&c, &p));
}

/* A' by columns is A by rows. */
static void test_row_order(void)
{
    Case c = plain_case;
    cublasLtMatmulHeuristicResult_t found;
    c.ta = true;
    c.beta = 0;
    Problem p = problem(&c);
    const int32_t order = CUBLASLT_ORDER_ROW;
    const uint64_t rows = (uint64_t)c.m, cols = (uint64_t)c.k;
    c.ta = false;
    cublasLtMatmulDesc_t op = describe(&c, &p);
    MUST(cublasLtMatrixLayoutSetAttribute(p.a.layout, CUBLASLT_MATRIX_LAYOUT_ORDER, &order,
                                          sizeof order));
    MUST(cublasLtMatrixLayoutSetAttribute(p.a.layout, CUBLASLT_MATRIX_LAYOUT_ROWS, &rows,
                                          sizeof rows));
    MUST(cublasLtMatrixLayoutSetAttribute(p.a.layout, CUBLASLT_MATRIX_LAYOUT_COLS, &cols,
                                          sizeof cols));
    MUST(heuristics(&c, &p, op, 1, &found) != 1);
    c.ta = true; /* for the plain sum */
    answer("row-order", run(&c, &p, op, &found));
}

int main(void)
{
    MUST(cublasLtCreate(&handle));
    MUST(cudaMalloc(&workspace, WORKSPACE));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        test(&cases[i]);
    test_device_scalars();
    test_graph();
    test_row_order();
    MUST(cudaFree(workspace));
    MUST(cublasLtDestroy(handle));
    return 0;
}
