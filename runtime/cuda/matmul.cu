/* matmul.cu -- the seam of matrix products on a device: every product of emitted code comes here.
 *
 * In: RtMatmul, with zeros for defaults, and device memory. Out: c, queued on the stream. The one
 * idea: row-major matrices are the transposes of column-major ones, so c' = b' @ a' is what
 * cuBLASLt is asked for, and nothing is copied. Batches that lie evenly are one call; of two batch
 * axes that do not, the longer is one call and the other a loop.
 *
 * A bias is added by the library, to the sum before it is rounded, where it can; it wants a bias of
 * c's type, so that of a result in 16 bits is rounded first. Else every row of c starts as the
 * bias, and the product is added to it.
 *
 * What the step wants done with the result besides, RtEpilogue, is done by another plan, if that
 * was chosen when the program started.
 */
#include "cuda/matmul.h"

size_t rt_type_bytes(RtType type)
{
    return type == RT_F64 ? 8 : type == RT_F32 || type == RT_I32 ? 4 : 2;
}

/* ---- errors ---------------------------------------------------------------------------------- */

static const char *type_name(int32_t type)
{
    return type == RT_F64 ? "fp64" : type == RT_F32 ? "fp32" : type == RT_BF16 ? "bf16" : "fp16";
}

const char *rt_product_name(const RtProduct *q, char text[RT_PRODUCT_TEXT])
{
    int n = snprintf(text, RT_PRODUCT_TEXT, "%s -> %s%s, a[%lld,%lld]%s @ b[%lld,%lld]%s",
                     type_name(q->in), type_name(q->out), q->tf32 ? " by TF32" : "",
                     (long long)(q->ta ? q->k : q->m), (long long)(q->ta ? q->m : q->k),
                     q->ta ? "'" : "", (long long)(q->tb ? q->n : q->k),
                     (long long)(q->tb ? q->k : q->n), q->tb ? "'" : "");
    if (q->batch > 1 && n > 0 && n < RT_PRODUCT_TEXT)
        snprintf(text + n, (size_t)(RT_PRODUCT_TEXT - n), ", %lld of them", (long long)q->batch);
    return text;
}

void rt_product_lt(cublasStatus_t status, const char *call, const RtProduct *q,
                   const RtStream *stream)
{
    char name[RT_PRODUCT_TEXT];
    if (status == CUBLAS_STATUS_SUCCESS)
        return;
    rt_cuda_check(stream, call, cudaPeekAtLastError()); /* of what was queued before */
    rt_fail(RT_EXIT_FAIL,
            "%s: %s: %s of cuBLASLt %s%s%s\nhint: RT_MATMUL=plain computes products without it, "
            "slowly",
            stream && stream->where ? stream->where : "products", call,
            rt_lt()->GetStatusName(status), rt_lt_version(), q ? ": " : "",
            q ? rt_product_name(q, name) : "");
}

/* ---- what a product is, to a library --------------------------------------------------------- */

static void swap_axes(RtMatmul *p)
{
    ptrdiff_t *const axes[] = { p->batch, p->step_a, p->step_b, p->step_c };
    for (int i = 0; i < 4; i++) {
        const ptrdiff_t first = axes[i][0];
        axes[i][0] = axes[i][1];
        axes[i][1] = first;
    }
}

/* The two batch axes as one, where they lie evenly; else the longer one last. */
static void merge_axes(RtMatmul *p)
{
    const bool even = p->step_a[0] == p->batch[1] * p->step_a[1]
                      && p->step_b[0] == p->batch[1] * p->step_b[1]
                      && p->step_c[0] == p->batch[1] * p->step_c[1];
    if (p->batch[0] > 1 && p->batch[1] > 1 && even) {
        p->batch[1] *= p->batch[0];
        p->batch[0] = 1;
    } else if (p->batch[0] > p->batch[1]) {
        swap_axes(p);
    }
}

/* Rows of a batch that share b and go on where the last problem ended: more rows of one problem. */
static void merge_rows(RtMatmul *p)
{
    if (p->batch[1] > 1 && !p->ta && p->step_b[1] == 0 && p->step_a[1] == p->m * p->lda
        && p->step_c[1] == p->m * p->ldc) {
        p->m *= p->batch[1];
        p->batch[1] = 1;
        swap_axes(p);
    }
}

bool rt_product_complete(RtMatmul *p)
{
    if (p->lda == 0)
        p->lda = p->ta ? p->m : p->k;
    if (p->ldb == 0)
        p->ldb = p->tb ? p->k : p->n;
    if (p->ldc == 0)
        p->ldc = p->n;
    for (int i = 0; i < 2; i++)
        if (p->batch[i] == 0)
            p->batch[i] = 1;
    merge_axes(p);
    merge_rows(p);
    return p->m > 0 && p->n > 0 && p->batch[0] > 0 && p->batch[1] > 0;
}

/* The alignment that all of these have: an address, and steps in bytes. */
static int32_t alignment(const void *at, ptrdiff_t step0, ptrdiff_t step1, size_t size)
{
    const uintptr_t bits = (uintptr_t)at | (uintptr_t)step0 * size | (uintptr_t)step1 * size | 16;
    return (int32_t)(bits & (~bits + 1));
}

/* From one row to the next; a matrix of one row is dense. */
static int64_t row_step(ptrdiff_t rows, ptrdiff_t columns, ptrdiff_t step)
{
    return rows == 1 ? columns : step;
}

RtProduct rt_product_key(RtPlaces at, RtType in, RtType out, const RtMatmul *p)
{
    const bool batch = p->batch[1] > 1;
    const ptrdiff_t outer = p->batch[0] > 1;
    RtProduct q;
    memset(&q, 0, sizeof q);
    q.m = p->m;
    q.n = p->n;
    q.k = p->k;
    q.lda = row_step(p->ta ? p->k : p->m, p->ta ? p->m : p->k, p->lda);
    q.ldb = row_step(p->tb ? p->n : p->k, p->tb ? p->k : p->n, p->ldb);
    q.ldc = row_step(p->m, p->n, p->ldc);
    q.batch = p->batch[1];
    q.step_a = batch ? p->step_a[1] : 0;
    q.step_b = batch ? p->step_b[1] : 0;
    q.step_c = batch ? p->step_c[1] : 0;
    q.in = in;
    q.out = out;
    q.ta = p->ta;
    q.tb = p->tb;
    q.tf32 = in == RT_F32 && rt_product_is_tf32();
    q.bias = p->bias != NULL;
    q.align_a = alignment(at.a, q.step_a, outer * p->step_a[0], rt_type_bytes(in));
    q.align_b = alignment(at.b, q.step_b, outer * p->step_b[0], rt_type_bytes(in));
    q.align_c = alignment(at.c, q.step_c, outer * p->step_c[0], rt_type_bytes(out));
    q.align_bias = alignment(at.bias, 0, 0, 1);
    return q;
}

RtProduct rt_product_with(const RtProduct *q, const RtEpilogue *e, const void *c)
{
    RtProduct r = *q;
    const bool input = e->kind == RT_GELU && e->to != c;
    r.epilogue = input ? RT_GELU_AND_INPUT : e->kind;
    r.align_c = alignment(e->to, 0, 0, 1);
    r.align_x = r.epilogue == RT_GELU ? 0 : alignment(input ? c : e->x, 0, 0, 1);
    return r;
}

/* ---- one product ----------------------------------------------------------------------------- */

bool rt_product_is_plain(void)
{
    static int plain = -1;
    if (plain < 0)
        plain = rt_environment_is("RT_MATMUL", "plain");
    return plain == 1;
}

static void product_one(void *c, const void *a, const void *b, const RtMatmul *p,
                        const RtProduct *q, RtStream *stream)
{
    if (q->k == 0) {
        if (!p->add)
            rt_product_rows(c, p->bias, q, stream);
        return;
    }
    RtPlan *plan = rt_product_is_plain() ? NULL : rt_plan_find(q, stream);
    if (!plan || !plan->op)
        rt_product_plain(c, a, b, p->bias, p->add, q, stream);
    else
        rt_plan_run(plan, c, a, b, p->bias, p->add, stream);
}

/* The product with its epilogue; false: that is not used here. */
static bool product_with(void *c, const void *a, const void *b, const RtMatmul *p,
                         const RtProduct *q, const RtEpilogue *e, RtStream *stream)
{
    if (rt_product_is_plain() || q->k == 0 || q->batch > 1 || p->batch[0] > 1 || p->add)
        return false;
    const RtProduct with = rt_product_with(q, e, c);
    RtPlan *plan = rt_plan_find(&with, stream);
    if (plan->apart)
        return false;
    if (with.epilogue != RT_GELU
        && !rt_plan_set_x(plan, with.epilogue == RT_GELU_AND_INPUT ? c : e->x))
        rt_product_lt(CUBLAS_STATUS_INVALID_VALUE, "cublasLtMatmulDescSetAttribute", q, stream);
    rt_plan_run(plan, e->to, a, b, p->bias, false, stream);
    stream->wrote = e->to;
    return true;
}

static void product(void *c, const void *a, const void *b, RtType in, RtType out, RtMatmul *p,
                    RtStream *stream)
{
    const RtEpilogue e = stream->next;
    stream->next.kind = RT_NO_EPILOGUE;
    if (!rt_product_complete(p))
        return;
    const void *const bias = rt_type_bytes(out) == 2 ? rt_product_bias_copy(p->bias, out) : p->bias;
    const RtProduct q = rt_product_key({ c, a, b, bias }, in, out, p);
    if (e.kind != RT_NO_EPILOGUE && product_with(c, a, b, p, &q, &e, stream))
        return;
    for (ptrdiff_t i = 0; i < p->batch[0]; i++)
        product_one((char *)c + (size_t)(i * p->step_c[0]) * rt_type_bytes(out),
                    (const char *)a + (size_t)(i * p->step_a[0]) * rt_type_bytes(in),
                    (const char *)b + (size_t)(i * p->step_b[0]) * rt_type_bytes(in), p, &q,
                    stream);
}

void rt_matmul_f32(float *c, const float *a, const float *b, RtMatmul p, RtStream *stream)
{
    product(c, a, b, RT_F32, RT_F32, &p, stream);
}

void rt_matmul_f64(double *c, const double *a, const double *b, RtMatmul p, RtStream *stream)
{
    product(c, a, b, RT_F64, RT_F64, &p, stream);
}

void rt_matmul_bf16_bf16(rt_bf16 *c, const rt_bf16 *a, const rt_bf16 *b, RtMatmul p,
                         RtStream *stream)
{
    product(c, a, b, RT_BF16, RT_BF16, &p, stream);
}

void rt_matmul_bf16_f32(float *c, const rt_bf16 *a, const rt_bf16 *b, RtMatmul p, RtStream *stream)
{
    product(c, a, b, RT_BF16, RT_F32, &p, stream);
}

void rt_matmul_f16_f16(rt_f16 *c, const rt_f16 *a, const rt_f16 *b, RtMatmul p, RtStream *stream)
{
    product(c, a, b, RT_F16, RT_F16, &p, stream);
}

void rt_matmul_f16_f32(float *c, const rt_f16 *a, const rt_f16 *b, RtMatmul p, RtStream *stream)
{
    product(c, a, b, RT_F16, RT_F32, &p, stream);
}
