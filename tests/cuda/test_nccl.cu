/* test_nccl.cu -- NCCL on one GPU: a communicator of one rank, each call of exchange_nccl.cu, and
 * the same recorded in a CUDA graph.
 *
 * Usage: test_nccl [load]; prints `ok` lines, or what is wrong. load: only that the library is
 * there and has all functions, for which no GPU is needed. Sums over one rank are what they were;
 * what a rank sends to itself goes through a kernel of NCCL's, in a group that takes it for another
 * rank.
 */
#include <math.h>

#include "comm/comm.h"
#include "cuda/exchange_nccl.h"
#include "cuda/nccl.h"

enum { N = 3000 };

typedef struct { /* as exchange_nccl.cu has it */
    ncclComm_t at;
    int rank, size;
} Group;

static RtStream stream;
static float *x;
static double *d, *gathered, *moved;
static Group to_itself;
static int failed;

__global__ void g_count(float *to, double *wide)
{
    for (int i = (int)threadIdx.x; i < N; i += (int)blockDim.x) {
        to[i] += 1;
        wide[i] += 2;
    }
}

/* Everything that a run asks of NCCL, behind something else on the stream. */
static void step(void)
{
    const size_t at[2] = { 0, 0 }, bytes[2] = { N * sizeof *d, 0 };
    RT_LAUNCH(&stream, stream.where, g_count, 1, 128, 0, x, d);
    rt_nccl_sum(x, N, RT_F32);
    rt_nccl_sum(d, N, RT_F64);
    rt_nccl_gather(d, gathered, N);
    rt_nccl_broadcast(NULL, x, N * sizeof *x, 0);
    (void)rt_nccl_all_gather(NULL, d, at, bytes);
    (void)rt_nccl_scatter_gather(&to_itself, d, at, bytes, moved, N * sizeof *d);
}

/* After so many steps. */
static void check(const char *name, int steps)
{
    static float has_x[N];
    static double has[3][N];
    const double *from[3] = { d, gathered, moved };
    rt_stream_wait(&stream);
    RT_CUDA_CALL(NULL, cudaMemcpy(has_x, x, sizeof has_x, cudaMemcpyDeviceToHost));
    for (int k = 0; k < 3; k++)
        RT_CUDA_CALL(NULL, cudaMemcpy(has[k], from[k], sizeof has[k], cudaMemcpyDeviceToHost));
    int wrong = 0;
    for (int i = 0; i < N; i++) {
        wrong += fabs((double)has_x[i] - steps) > 0;
        for (int k = 0; k < 3; k++)
            wrong += fabs(has[k][i] - 2 * steps) > 0;
    }
    if (wrong)
        printf("not ok cuda/nccl/%s: %d of %d numbers\n", name, wrong, 4 * N);
    else
        printf("ok cuda/nccl/%s\n", name);
    failed += wrong > 0;
}

static cudaGraphExec_t record(void)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    RT_CUDA_CALL(&stream, cudaStreamBeginCapture(stream.at, cudaStreamCaptureModeThreadLocal));
    step();
    RT_CUDA_CALL(&stream, cudaStreamEndCapture(stream.at, &graph));
    RT_CUDA_CALL(&stream,
                 cudaGraphInstantiate(&exec, graph, cudaGraphInstantiateFlagUseNodePriority));
    RT_CUDA_CALL(&stream, cudaGraphDestroy(graph));
    return exec;
}

static void *numbers(size_t bytes)
{
    void *at = NULL;
    RT_CUDA_CALL(NULL, cudaMalloc(&at, bytes));
    RT_CUDA_CALL(NULL, cudaMemset(at, 0, bytes));
    RT_CUDA_CALL(NULL, cudaDeviceSynchronize());
    return at;
}

static void open_all(RtLaunch *l)
{
    RtOptions o;
    memset(&o, 0, sizeof o);
    o.device = -1;
    rt_store_serve(l, NULL, 10, 60, &l->port);
    rt_store_open(l, NULL, 10, 60);
    rt_nccl_now("the test");
    const char *text = rt_nccl_open(&o, l, &stream);
    stream.device = rt_device();
    stream.where = "test.model:1";
    RT_CUDA_CALL(NULL, cudaStreamCreateWithFlags(&stream.at, cudaStreamNonBlocking));
    rt_nccl_connect(l);
    printf("%s on %s\n", text, stream.device->name);
    x = (float *)numbers(N * sizeof *x);
    d = (double *)numbers(N * sizeof *d);
    gathered = (double *)numbers(N * sizeof *d);
    moved = (double *)numbers(2 * N * sizeof *d);
}

int main(int argc, char **argv)
{
    char name[RT_NCCL_NAME];
    RtLaunch l;
    memset(&l, 0, sizeof l);
    l.by = RT_BY_FLAGS;
    l.size = 1;
    l.host = "127.0.0.1";
    rt_base_init();
    (void)rt_nccl();
    if (argc > 1 && strcmp(argv[1], "load") == 0) {
        printf("ok cuda/nccl/load-%s\n", rt_nccl_version());
        return 0;
    }
    open_all(&l);
    rt_nccl_name(name);
    Group *group = (Group *)rt_nccl_join(name, 0, 1, "the test");
    to_itself = Group{ group->at, 1, 1 };
    step();
    step();
    check("alone", 2);
    cudaGraphExec_t exec = record();
    check("recorded", 2);
    for (int turn = 0; turn < 3; turn++)
        RT_CUDA_CALL(&stream, cudaGraphLaunch(exec, stream.at));
    check("graph", 5);
    step();
    RT_CUDA_CALL(&stream, cudaGraphLaunch(exec, stream.at));
    check("both", 7);
    RT_CUDA_CALL(&stream, cudaGraphExecDestroy(exec));
    rt_nccl_leave(group);
    rt_nccl_close();
    rt_store_close();
    printf("ok cuda/nccl/close\n");
    return failed > 0;
}
