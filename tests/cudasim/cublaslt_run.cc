/* cublaslt_run.cc -- one product of the simulated cuBLASLt, computed on the stream's turn.
 *
 * In: an LtProduct and addresses. Out: D, and what the epilogue writes. Every row or column that is
 * read or written is told to the simulator's memory first, so that bounds, unwritten elements and
 * missing events are found as in kernels. Sums run in float (double for fp64 products), along k in
 * chunks and parts that the algorithm fixes: two algorithms differ in the last bits.
 */
#include <math.h>
#include <string.h>
#include <vector>

#include "cublaslt.h"
#include "half.h"
#include "cudasim_library.h"

/* ---- elements -------------------------------------------------------------------------------- */

static double load(const void *p, uint32_t type)
{
    double d;
    float f;
    uint16_t h;
    switch (type) {
    case CUDA_R_64F: memcpy(&d, p, sizeof d); return d;
    case CUDA_R_32F: memcpy(&f, p, sizeof f); return (double)f;
    case CUDA_R_16BF: memcpy(&h, p, sizeof h); return (double)rt_of_bf16(h);
    default: memcpy(&h, p, sizeof h); return (double)rt_of_f16(h);
    }
}

static void store(void *p, uint32_t type, double x)
{
    const float f = (float)x;
    uint16_t h;
    switch (type) {
    case CUDA_R_64F: memcpy(p, &x, sizeof x); return;
    case CUDA_R_32F: memcpy(p, &f, sizeof f); return;
    case CUDA_R_16BF: h = rt_to_bf16(f); break;
    default: h = rt_to_f16(f); break;
    }
    memcpy(p, &h, sizeof h);
}

/* What the multipliers see of an fp32 operand. */
static float rounded(float x, int32_t compute)
{
    uint32_t u;
    switch (compute) {
    case CUBLAS_COMPUTE_32F_FAST_TF32: /* 10 bits of fraction */
        memcpy(&u, &x, sizeof u);
        u = isfinite(x) ? (u + 0x1000u) & 0xffffe000u : u;
        memcpy(&x, &u, sizeof x);
        return x;
    case CUBLAS_COMPUTE_32F_FAST_16BF: return rt_round_bf16(x);
    case CUBLAS_COMPUTE_32F_FAST_16F: return rt_round_f16(x);
    }
    return x;
}

/* ---- operands -------------------------------------------------------------------------------- */

static char *element(const void *base, const LtView *v, int64_t i, int64_t j)
{
    return (char *)base + (i * v->by_row + j * v->by_col) * (int64_t)lt_size(v->type);
}

/* Tells the memory of every line that lies together. */
static void touch(const void *base, const LtView *v, bool write, const char *what)
{
    const bool by_col = v->by_row == 1;
    const int64_t lines = by_col ? v->cols : v->rows, length = by_col ? v->rows : v->cols;
    const bool whole = (by_col ? v->by_col : v->by_row) == length;
    const size_t bytes = (size_t)length * lt_size(v->type);
    for (int64_t l = 0; l < (whole ? 1 : lines); l++) {
        char *at = by_col ? element(base, v, 0, l) : element(base, v, l, 0);
        if (write)
            cudasim_writes(at, whole ? bytes * (size_t)lines : bytes, what);
        else
            cudasim_reads(at, whole ? bytes * (size_t)lines : bytes, what);
    }
}

static const void *batch_at(const void *base, const LtView *v, int64_t b)
{
    return (const char *)base + b * v->stride * (int64_t)lt_size(v->type);
}

/* The operand as out[column][row] where `across`, else out[row][column]. */
template <typename T>
static void unpack(const void *base, const LtView *v, int32_t compute, bool across,
                   const char *what, T *out)
{
    touch(base, v, false, what);
    for (int64_t i = 0; i < v->rows; i++)
        for (int64_t j = 0; j < v->cols; j++) {
            T x = (T)load(element(base, v, i, j), v->type);
            if (v->type == CUDA_R_32F)
                x = (T)rounded((float)x, compute);
            out[across ? j * v->rows + i : i * v->cols + j] = x;
        }
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* out[n][m] += a[k][m] b[k][n] for k from `from` up to `to`. */
template <typename T>
static void add_chunk(const LtProduct *p, const T *a, const T *b, int64_t from, int64_t to, T *out)
{
    std::vector<T> sum((size_t)p->m);
    for (int64_t j = 0; j < p->n; j++) {
        memset(sum.data(), 0, sizeof(T) * (size_t)p->m);
        for (int64_t k = from; k < to; k++) {
            const T x = b[k * p->n + j];
            const T *ak = a + k * p->m;
            for (int64_t i = 0; i < p->m; i++)
                sum[(size_t)i] += ak[i] * x;
        }
        for (int64_t i = 0; i < p->m; i++)
            out[j * p->m + i] += sum[(size_t)i];
    }
}

template <typename T> static std::vector<T> multiply(const LtProduct *p, const T *a, const T *b)
{
    std::vector<T> total((size_t)(p->m * p->n)), part(total.size());
    const int64_t parts = lt_algo_parts(p), chunk = lt_algo_chunk(p);
    const int64_t length = (p->k + parts - 1) / parts;
    for (int64_t q = 0; q < parts; q++) {
        const int64_t end = (q + 1) * length < p->k ? (q + 1) * length : p->k;
        memset(part.data(), 0, sizeof(T) * part.size());
        for (int64_t k = q * length; k < end; k += chunk)
            add_chunk(p, a, b, k, k + chunk < end ? k + chunk : end, part.data());
        for (size_t i = 0; i < total.size(); i++)
            total[i] += part[i];
    }
    return total;
}

/* ---- epilogues ------------------------------------------------------------------------------- */

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x)
{
    const double t = tanh(0.7978845608028654 * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 3 * 0.044715 * x * x);
}

static LtView vector_view(int32_t type, int64_t length)
{
    return (LtView){ (uint32_t)type, length, 1, 1, length, 0 };
}

/* Sums of an operand's rows or columns over k. */
template <typename T> static void sum_operand(const LtProduct *p, const T *x, int64_t length)
{
    const LtView v = vector_view(p->op.bias_type, length);
    touch(p->op.bias, &v, true, "gradient of the bias");
    for (int64_t i = 0; i < length; i++) {
        T sum = 0;
        for (int64_t k = 0; k < p->k; k++)
            sum += x[k * length + i];
        store(element(p->op.bias, &v, i, 0), v.type, (double)sum);
    }
}

/* x: alpha times the product, beta C added, by columns; becomes what D gets. */
template <typename T> static void epilogue(const LtProduct *p, int64_t batch, T *x)
{
    const uint32_t e = p->op.epilogue;
    const LtView bias = vector_view(p->op.bias_type, p->m);
    const LtView aux = { (uint32_t)p->op.aux_type, p->m, p->n, 1, p->op.aux_ld, 0 };
    const char *b = (const char *)p->op.bias
                    + batch * p->op.bias_stride * (int64_t)lt_size(bias.type);
    char *u = (char *)p->op.aux + batch * p->op.aux_stride * (int64_t)lt_size(aux.type);
    if (e & CUBLASLT_EPILOGUE_BIAS)
        touch(b, &bias, false, "bias");
    if (e & 128u)
        touch(u, &aux, e & CUBLASLT_EPILOGUE_GELU, "auxiliary matrix");
    for (int64_t j = 0; j < p->n; j++)
        for (int64_t i = 0; i < p->m; i++) {
            T y = x[j * p->m + i];
            if (e & CUBLASLT_EPILOGUE_BIAS)
                y += (T)load(element(b, &bias, i, 0), bias.type);
            if ((e & 128u) && (e & CUBLASLT_EPILOGUE_GELU))
                store(element(u, &aux, i, j), aux.type, (double)y);
            if (e & CUBLASLT_EPILOGUE_GELU)
                y = (T)gelu((double)y);
            if (e & 64u)
                y *= (T)gelu_slope(load(element(u, &aux, i, j), aux.type));
            if (e & CUBLASLT_EPILOGUE_RELU)
                y = y > 0 ? y : 0;
            x[j * p->m + i] = y;
        }
}

/* The gradient of a bias: sums of what D gets, over columns. */
template <typename T> static void sum_columns(const LtProduct *p, const T *x)
{
    const LtView v = vector_view(p->op.bias_type, p->m);
    touch(p->op.bias, &v, true, "gradient of the bias");
    for (int64_t i = 0; i < p->m; i++) {
        T sum = 0;
        for (int64_t j = 0; j < p->n; j++)
            sum += x[j * p->m + i];
        store(element(p->op.bias, &v, i, 0), v.type, (double)sum);
    }
}

/* ---- one product ----------------------------------------------------------------------------- */

template <typename T>
static void run_batch(const LtProduct *p, const LtArguments *at, int64_t batch, T alpha, T beta)
{
    std::vector<T> a((size_t)(p->m * p->k)), b((size_t)(p->k * p->n));
    unpack(batch_at(at->a, &p->a, batch), &p->a, p->op.compute, true, "operand A", a.data());
    unpack(batch_at(at->b, &p->b, batch), &p->b, p->op.compute, false, "operand B", b.data());
    std::vector<T> x = multiply(p, a.data(), b.data());
    const void *c = batch_at(at->c, &p->c, batch);
    void *d = (void *)batch_at(at->d, &p->d, batch);
    if (beta != 0)
        touch(c, &p->c, false, "operand C");
    for (int64_t j = 0; j < p->n; j++)
        for (int64_t i = 0; i < p->m; i++) {
            T *y = &x[(size_t)(j * p->m + i)];
            *y *= alpha;
            if (beta != 0)
                *y += beta * (T)load(element(c, &p->c, i, j), p->c.type);
        }
    if (p->op.epilogue == CUBLASLT_EPILOGUE_BGRADA)
        sum_operand(p, a.data(), p->m);
    else if (p->op.epilogue == CUBLASLT_EPILOGUE_BGRADB)
        sum_operand(p, b.data(), p->n);
    else
        epilogue(p, batch, x.data());
    if (p->op.epilogue & 16u)
        sum_columns(p, x.data());
    touch(d, &p->d, true, "D");
    for (int64_t j = 0; j < p->n; j++)
        for (int64_t i = 0; i < p->m; i++)
            store(element(d, &p->d, i, j), p->d.type, (double)x[(size_t)(j * p->m + i)]);
}

static double scalar(const void *device, uint32_t type, double value)
{
    if (!device)
        return value;
    cudasim_reads(device, lt_size(type), "alpha or beta");
    return load(device, type);
}

/* What the algorithm needs of the workspace is taken, and holds nothing of use afterwards. */
static void spoil(void *workspace, size_t bytes)
{
    if (bytes == 0)
        return;
    cudasim_writes(workspace, bytes, "workspace");
    memset(workspace, 0xff, bytes);
    cudasim_unwrite(workspace, bytes);
}

void lt_run(const LtProduct *p, const LtArguments *at)
{
    const uint32_t scale = (uint32_t)p->op.scale;
    const double alpha = scalar(at->alpha, scale, at->alpha_value);
    const double beta = scalar(at->beta, scale, at->beta_value);
    for (int64_t batch = 0; batch < p->batch; batch++)
        if (scale == CUDA_R_64F)
            run_batch<double>(p, at, batch, alpha, beta);
        else
            run_batch<float>(p, at, batch, (float)alpha, (float)beta);
    spoil(at->workspace, at->workspace_bytes);
}

/* ---- the call -------------------------------------------------------------------------------- */

static uint32_t alignment(const void *p)
{
    const uintptr_t at = (uintptr_t)p | 256;
    return (uint32_t)(at & ~(at - 1));
}

/* From the first to the last byte of an operand. */
static void span(const void *base, const LtView *v, int64_t batch, const char **from,
                 const char **to)
{
    const int64_t last = (v->rows - 1) * v->by_row + (v->cols - 1) * v->by_col
                         + (batch - 1) * v->stride + 1;
    *from = (const char *)base;
    *to = *from + last * (int64_t)lt_size(v->type);
}

static bool dense(const LtView *v, int64_t batch)
{
    return batch == 1
           && v->rows * v->cols == (v->rows - 1) * v->by_row + (v->cols - 1) * v->by_col + 1;
}

/* Lines of one operand may lie between those of another, as those of packed q, k and v do: then
   only the same first byte is a mistake for sure. */
static bool overlaps(const LtProduct *p, const void *a, const LtView *v, const void *d)
{
    const char *a0, *a1, *d0, *d1;
    span(a, v, p->batch, &a0, &a1);
    span(d, &p->d, p->batch, &d0, &d1);
    if (dense(v, p->batch) && dense(&p->d, p->batch))
        return a0 < d1 && d0 < a1;
    return a0 == d0;
}

static cublasStatus_t check_addresses(const LtProduct *p, const LtArguments *at)
{
    if (!at->a || !at->b || !at->d || (!at->c && (at->beta || at->beta_value != 0)))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (overlaps(p, at->a, &p->a, at->d) || overlaps(p, at->b, &p->b, at->d))
        cudasim_report("cublasLtMatmul writes D over the operand that it reads");
    const bool needs_bias = p->op.epilogue & (CUBLASLT_EPILOGUE_BIAS | 16u | 256u | 512u);
    if ((needs_bias && !p->op.bias) || ((p->op.epilogue & 128u) && !p->op.aux))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (at->c && at->c == at->d && (p->c.by_col != p->d.by_col || p->c.by_row != p->d.by_row))
        return CUBLAS_STATUS_INVALID_VALUE; /* in place, in another layout */
    return CUBLAS_STATUS_SUCCESS;
}

static double host_scalar(const void *p, uint32_t type) { return load(p, type); }

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *A, cublasLtMatrixLayout_t a, const void *B,
                              cublasLtMatrixLayout_t b, const void *beta, const void *C,
                              cublasLtMatrixLayout_t c, void *D, cublasLtMatrixLayout_t d,
                              const cublasLtMatmulAlgo_t *algo, void *workspace,
                              size_t workspaceBytes, cudaStream_t stream)
{
    LtProduct p;
    LtArguments at = { A, B, C, D, workspace, 0, NULL, NULL, 0, 0 };
    cublasStatus_t s = lt_injected("cublasLtMatmul");
    if (s != CUBLAS_STATUS_SUCCESS)
        return s;
    if (!handle)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!alpha || !beta)
        return CUBLAS_STATUS_INVALID_VALUE;
    if ((s = lt_product(desc, a, b, c, d, &p)) != CUBLAS_STATUS_SUCCESS)
        return s;
    if (p.op.pointer_mode == CUBLASLT_POINTER_MODE_DEVICE) {
        at.alpha = alpha;
        at.beta = beta;
    } else if (lt_size((uint32_t)p.op.scale)) {
        at.alpha_value = host_scalar(alpha, (uint32_t)p.op.scale);
        at.beta_value = host_scalar(beta, (uint32_t)p.op.scale);
    }
    const uint32_t align[4] = { alignment(A), alignment(B), alignment(C), alignment(D) };
    s = algo ? lt_algo_row(&p, algo, &p.algo) : lt_algo_default(&p, align, workspaceBytes);
    if (s != CUBLAS_STATUS_SUCCESS
        || (s = lt_algo_fits(&p, align, &at.workspace_bytes)) != CUBLAS_STATUS_SUCCESS
        || (s = check_addresses(&p, &at)) != CUBLAS_STATUS_SUCCESS)
        return s;
    if (at.workspace_bytes > workspaceBytes
        || (at.workspace_bytes && (!workspace || (uintptr_t)workspace % 16 != 0)))
        return CUBLAS_STATUS_INVALID_VALUE;
    cudaError_t e = cudasim_enqueue(stream, "cublasLtMatmul", [p, at] { lt_run(&p, &at); });
    if (e == cudaSuccess && lt_twice() && (p.op.epilogue & (CUBLASLT_EPILOGUE_GELU | 64u)))
        e = cudasim_enqueue(stream, "epilogue of cublasLtMatmul", [] {});
    return e == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
