/* matmul_time.cu -- algorithms of a product timed on the device, before the first step.
 *
 * In: a plan, the algorithms that the library proposes, memory that no step uses yet. Out: the
 * fastest. The one idea: each runs once to be loaded, and then as often as its share of the time
 * allows, in two rounds, of which the better one counts; operands are of the size and the steps
 * that the step will have, with the run's own workspace, since both decide what is fast. Clocks of
 * an idle device rise for a while: the first algorithm of a process runs before any is timed. What
 * an epilogue would save is timed too: a kernel that moves what the program's own would, for it
 * waits for memory alone.
 */
#include "cuda/matmul.h"

enum { ROUNDS = 2 };
static const int TIMES_MOST = 20; /* of one measurement */

typedef struct {         /* of one product, in the scratch memory */
    char *a, *b, *c, *x; /* x: of an epilogue, or c's end */
    size_t bytes_a, bytes_b, bytes_x;
} Operands;

typedef struct {
    cudaEvent_t from, to;
    RtStream *stream;
} Clock;

static size_t extent(int64_t rows, int64_t columns, int64_t row_step, int64_t batch, int64_t step,
                     int32_t type)
{
    return rt_place_size((size_t)((batch - 1) * step + (rows - 1) * row_step + columns)
                         * rt_type_bytes((RtType)type));
}

/* false: they do not fit. The two that are only read may overlap; the bias lies where a does. */
static bool place(const RtProduct *q, const RtProductsSetup *setup, Operands *at)
{
    const size_t c = extent(q->m, q->n, q->ldc, q->batch, q->step_c, q->out);
    const size_t bias = q->bias ? rt_place_size((size_t)q->n * rt_type_bytes((RtType)q->out)) : 0;
    at->bytes_a = extent(q->ta ? q->k : q->m, q->ta ? q->m : q->k, q->lda, q->batch, q->step_a,
                         q->in);
    at->bytes_b = extent(q->tb ? q->n : q->k, q->tb ? q->k : q->n, q->ldb, q->batch, q->step_b,
                         q->in);
    at->bytes_a = at->bytes_a > bias ? at->bytes_a : bias;
    const size_t larger = at->bytes_a > at->bytes_b ? at->bytes_a : at->bytes_b;
    const size_t room = setup->scratch_bytes / RT_DEVICE_ALIGN * RT_DEVICE_ALIGN;
    at->bytes_x = q->align_x > 0 ? c : 0;
    if (c + at->bytes_x + larger > room)
        return false;
    at->c = (char *)setup->scratch;
    at->x = at->c + c;
    at->a = at->x + at->bytes_x;
    at->b = c + at->bytes_x + at->bytes_a + at->bytes_b <= room
                ? at->a + at->bytes_a
                : (char *)setup->scratch + room - at->bytes_b;
    return true;
}

static bool prepare(RtPlan *plan, const RtProductsSetup *setup, Operands *at)
{
    if (!place(&plan->key, setup, at))
        return false;
    rt_product_fill(at->a, at->bytes_a, setup->stream);
    rt_product_fill(at->b, at->bytes_b, setup->stream);
    rt_product_fill(at->x, at->bytes_x, setup->stream);
    if (at->bytes_x > 0 && !rt_plan_set_x(plan, at->x))
        return false;
    return !plan->key.bias || plan->rows || rt_plan_set_bias(plan, at->a);
}

/* Seconds of one of `times` products; INFINITY: the algorithm does not run. */
static double run(const RtPlan *plan, const cublasLtMatmulAlgo_t *algo, const Operands *at,
                  int times, const Clock *clock)
{
    float milliseconds = 0;
    RT_CUDA_CALL(clock->stream, cudaEventRecord(clock->from, clock->stream->at));
    for (int i = 0; i < times; i++)
        if (rt_plan_call(plan, algo, at->c, at->a, at->b, false, clock->stream))
            return INFINITY;
    RT_CUDA_CALL(clock->stream, cudaEventRecord(clock->to, clock->stream->at));
    rt_stream_wait(clock->stream);
    RT_CUDA_CALL(clock->stream, cudaEventElapsedTime(&milliseconds, clock->from, clock->to));
    return 1e-3 * (double)milliseconds / times;
}

/* How many products of `once` seconds fill so many. */
static int times_in(double seconds, double once)
{
    const double times = floor(seconds / (once > 1e-6 ? once : 1e-6));
    return times > TIMES_MOST ? TIMES_MOST : times < 1 ? 1 : (int)times;
}

/* Until the clocks have risen; once in a process. */
static void warm_up(const RtPlan *plan, const cublasLtMatmulAlgo_t *algo, const Operands *at,
                    const Clock *clock)
{
    static bool warm;
    const double start = rt_now();
    double once = 0;
    while (!warm && !isinf(once) && rt_now() - start < RT_WARM_SECONDS)
        once = run(plan, algo, at, once > 0 ? times_in(RT_WARM_SECONDS / 5, once) : 1, clock);
    warm = warm || !isinf(once);
}

int rt_plan_fastest(RtPlan *plan, const cublasLtMatmulHeuristicResult_t *found, int n,
                    const RtProductsSetup *setup, double budget)
{
    double start, least = INFINITY, once[RT_ALGORITHMS] = {};
    Clock clock = { NULL, NULL, setup->stream };
    Operands at;
    int best = -1;
    if (!prepare(plan, setup, &at))
        return -1;
    RT_CUDA_CALL(setup->stream, cudaEventCreate(&clock.from));
    RT_CUDA_CALL(setup->stream, cudaEventCreate(&clock.to));
    warm_up(plan, &found[0].algo, &at, &clock);
    start = rt_now();
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < n && (best < 0 || rt_now() - start < budget); i++) {
            const cublasLtMatmulAlgo_t *algo = &found[i].algo;
            if (round == 0 && !isinf(once[i] = run(plan, algo, &at, 1, &clock)))
                once[i] = run(plan, algo, &at, 1, &clock);
            if (isinf(once[i]))
                continue;
            const double seconds = run(plan, algo, &at,
                                       times_in(budget / n / (ROUNDS + 1), once[i]), &clock);
            if (seconds < least) {
                least = seconds;
                best = i;
            }
        }
    RT_CUDA_CALL(setup->stream, cudaEventDestroy(clock.from));
    RT_CUDA_CALL(setup->stream, cudaEventDestroy(clock.to));
    plan->seconds = best < 0 ? 0 : (float)least;
    return best;
}

bool rt_plan_rehearse(RtPlan *plan, const RtProductsSetup *setup)
{
    Operands at;
    if (!prepare(plan, setup, &at))
        return true;
    const cublasStatus_t status = rt_plan_call(plan, &plan->algo, at.c, at.a, at.b, false,
                                               setup->stream);
    rt_stream_wait(setup->stream);
    return status == CUBLAS_STATUS_SUCCESS;
}

/* ---- epilogues ------------------------------------------------------------------------------- */

/* Of a graph that was recorded; 0: it cannot be told. */
static int kernels_of(cudaGraph_t graph)
{
    enum { NODES = 16 };
    cudaGraphNode_t node[NODES];
    size_t n = NODES;
    int kernels = 0;
    if (cudaGraphGetNodes(graph, NULL, &n) || n > NODES || cudaGraphGetNodes(graph, node, &n))
        return 0;
    for (size_t i = 0; i < n; i++) {
        enum cudaGraphNodeType type;
        if (cudaGraphNodeGetType(node[i], &type))
            return 0;
        kernels += type == cudaGraphNodeTypeKernel;
    }
    return kernels;
}

/* What is recorded is never launched: any addresses will do. */
int rt_plan_kernels(RtPlan *plan, const cublasLtMatmulAlgo_t *algo, const RtProductsSetup *setup)
{
    RtProductsSetup any = *setup;
    Operands at;
    cudaGraph_t graph = NULL;
    int kernels = 0;
    any.scratch = setup->room;
    any.scratch_bytes = SIZE_MAX / 2;
    if (!place(&plan->key, &any, &at) || (at.bytes_x > 0 && !rt_plan_set_x(plan, at.x))
        || (plan->key.bias && !rt_plan_set_bias(plan, at.a)))
        return 0;
    RT_CUDA_CALL(setup->stream,
                 cudaStreamBeginCapture(setup->stream->at, cudaStreamCaptureModeRelaxed));
    const cublasStatus_t status = rt_plan_call(plan, algo, at.c, at.a, at.b, false, setup->stream);
    const cudaError_t error = cudaStreamEndCapture(setup->stream->at, &graph);
    if (status == CUBLAS_STATUS_SUCCESS && error == cudaSuccess)
        kernels = kernels_of(graph);
    if (graph)
        RT_CUDA_CALL(setup->stream, cudaGraphDestroy(graph));
    (void)cudaGetLastError();
    return kernels;
}

double rt_epilogue_seconds(const RtProduct *q, bool fused, const RtProductsSetup *setup)
{
    enum { TIMES = 10 };
    Clock clock = { NULL, NULL, setup->stream };
    float milliseconds = 0;
    Operands at;
    if (fused && q->epilogue != RT_GELU_GRAD) /* nothing is left */
        return 0;
    if (!place(q, setup, &at))
        return 0;
    char *const x = at.bytes_x > 0 ? at.x : at.c;
    const size_t bytes = extent(q->m, q->n, q->ldc, 1, 0, q->out);
    rt_product_fill(at.c, bytes, setup->stream);
    rt_product_fill(x, bytes, setup->stream);
    RT_CUDA_CALL(setup->stream, cudaEventCreate(&clock.from));
    RT_CUDA_CALL(setup->stream, cudaEventCreate(&clock.to));
    for (int i = -1; i < TIMES; i++) { /* once to be loaded */
        if (i == 0)
            RT_CUDA_CALL(setup->stream, cudaEventRecord(clock.from, setup->stream->at));
        rt_product_walk(at.c, q->epilogue == RT_GELU_GRAD && !fused ? at.c : NULL, fused ? at.c : x,
                        bytes, !fused, setup->stream);
    }
    RT_CUDA_CALL(setup->stream, cudaEventRecord(clock.to, setup->stream->at));
    rt_stream_wait(setup->stream);
    RT_CUDA_CALL(setup->stream, cudaEventElapsedTime(&milliseconds, clock.from, clock.to));
    RT_CUDA_CALL(setup->stream, cudaEventDestroy(clock.from));
    RT_CUDA_CALL(setup->stream, cudaEventDestroy(clock.to));
    return 1e-3 * (double)milliseconds / (int)TIMES;
}
