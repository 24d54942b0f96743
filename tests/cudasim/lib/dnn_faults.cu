/* dnn_faults.cu -- what cuDNN refuses, and what the simulator finds around it.
 *
 * Without an argument: the names of the cases, each with the text of its report, or "gives NUMBER"
 * where the call answers with a status of the library. With a name: that case. The graph is that of
 * the runtime: attention of 2 heads of 16 queries, 8 values each.
 */
#include "../test.h"

#include "cuda/cudnn_graph.h"

enum { B = 1, H = 2, T = 16, D = 8, ELEMENTS = B * H * T * D };

const RtCudnn *rt_cudnn(void)
{
    static RtCudnn table;
#define X(name) table.name = cudnn##name;
    RT_CUDNN_FUNCTIONS(X)
#undef X
    return &table;
}

typedef struct {
    cudnnHandle_t handle;
    RtCudnnPlan plan;
    uint16_t *q, *k, *v, *y;
    float *lse;
    float scale, mask;
    void *at[RT_CUDNN_TENSORS], *work;
} Work;

static uint16_t *zeros(void)
{
    uint16_t *x = on_device<uint16_t>(ELEMENTS);
    CHECK(cudaMemset(x, 0, ELEMENTS * sizeof *x));
    return x;
}

static Work *work(void)
{
    static Work w;
    int64_t *const of[] = { w.plan.key.step[RT_CUDNN_Q], w.plan.key.step[RT_CUDNN_K],
                            w.plan.key.step[RT_CUDNN_V], w.plan.key.step[RT_CUDNN_Y] };
    RtCudnnKey *key = &w.plan.key;
    key->B = B, key->H = H, key->T = key->S = T, key->D = key->E = D, key->group = 1;
    key->type = RT_BF16;
    key->causal = true;
    for (int i = 0; i < 4; i++)
        of[i][0] = H * T * D, of[i][1] = T * D, of[i][2] = D;
    WANT(cudnnCreate(&w.handle) == CUDNN_STATUS_SUCCESS);
    rt_cudnn_plan(&w.plan, (RtCudnnTarget){ w.handle, NULL });
    WANT(w.plan.plan);
    w.q = zeros(), w.k = zeros(), w.v = zeros();
    w.y = on_device<uint16_t>(ELEMENTS);
    w.lse = on_device<float>(B * H * T);
    w.work = on_device<char>((size_t)w.plan.work_bytes);
    w.scale = 1, w.mask = -INFINITY;
    CHECK(cudaDeviceSynchronize());
    return &w;
}

static int run(Work *w)
{
    w->at[RT_CUDNN_Q] = w->q, w->at[RT_CUDNN_K] = w->k, w->at[RT_CUDNN_V] = w->v;
    w->at[RT_CUDNN_Y] = w->y, w->at[RT_CUDNN_LSE] = w->lse;
    w->at[RT_CUDNN_SCALE] = &w->scale, w->at[RT_CUDNN_MASK] = &w->mask;
    const int status = rt_cudnn_run(&w->plan, w->handle, w->at, w->work);
    CHECK(cudaDeviceSynchronize());
    return status;
}

static void gives(int status)
{
    printf("gives %d\n", status);
    exit(1);
}

/* ---- reports --------------------------------------------------------------------------------- */

static void unwritten(void)
{
    Work *w = work();
    w->k = on_device<uint16_t>(ELEMENTS);
    (void)run(w);
}

static void too_small(void)
{
    Work *w = work();
    w->y = on_device<uint16_t>(ELEMENTS - 8);
    (void)run(w);
}

static void host_pointer(void)
{
    alignas(16) static uint16_t q[ELEMENTS];
    Work *w = work();
    w->q = q;
    (void)run(w);
}

static void freed(void)
{
    Work *w = work();
    CHECK(cudaFree(w->v));
    (void)run(w);
}

static void work_too_small(void)
{
    Work *w = work();
    w->work = on_device<char>((size_t)w->plan.work_bytes - 1);
    (void)run(w);
}

static void no_event(void)
{
    Work *w = work();
    WANT(cudnnSetStream(w->handle, new_stream()) == CUDNN_STATUS_SUCCESS);
    CHECK(cudaMemsetAsync(w->q, 0, ELEMENTS * sizeof *w->q, new_stream()));
    (void)run(w);
}

static void destroyed(void)
{
    Work *w = work();
    WANT(cudnnBackendDestroyDescriptor(w->plan.plan) == CUDNN_STATUS_SUCCESS);
    (void)run(w);
}

static void not_modelled(void)
{
    const int64_t n = 1;
    cudnnBackendDescriptor_t tensor;
    WANT(!cudnnBackendCreateDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, &tensor));
    (void)cudnnBackendSetAttribute(tensor, 904, CUDNN_TYPE_INT64, 1, &n);
}

/* ---- statuses -------------------------------------------------------------------------------- */

static void misaligned(void)
{
    Work *w = work();
    w->q = (uint16_t *)((char *)w->q + 8);
    gives(run(w));
}

static void without_operand(void)
{
    Work *w = work();
    w->k = NULL;
    gives(run(w));
}

static void without_work(void)
{
    Work *w = work();
    w->work = NULL;
    gives(run(w));
}

static void other_type(void)
{
    const int32_t n = 1;
    cudnnBackendDescriptor_t tensor;
    WANT(!cudnnBackendCreateDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, &tensor));
    gives(
        cudnnBackendSetAttribute(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_DATA_TYPE, 1, &n));
}

static void without_attribute(void)
{
    cudnnBackendDescriptor_t tensor;
    WANT(!cudnnBackendCreateDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, &tensor));
    gives(cudnnBackendFinalize(tensor));
}

static const Case cases[] = {
    { "unwritten", unwritten, "reads tensor 1 of cuDNN, allocation" },
    { "too-small", too_small, "at tensor 3 of cuDNN" },
    { "host-pointer", host_pointer, "at tensor 0 of cuDNN" },
    { "freed", freed, "use after cudaFree" },
    { "work-too-small", work_too_small, "at work space of cuDNN" },
    { "no-event", no_event, "no event orders the two" },
    { "destroyed", destroyed, "a descriptor that was destroyed" },
    { "not-modelled", not_modelled, "not modelled: attribute 904 of cuDNN's descriptor 17" },
    { "misaligned", misaligned, "gives 2000" },
    { "without-operand", without_operand, "gives 2000" },
    { "without-work", without_work, "gives 2000" },
    { "other-type", other_type, "gives 2000" },
    { "without-attribute", without_attribute, "gives 2000" },
};

int main(int argc, char **argv)
{
    return run_cases(cases, (int)(sizeof cases / sizeof cases[0]), argc, argv);
}
