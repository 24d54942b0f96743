/* graph.cu -- a micro-step recorded as a CUDA graph, and launched as one.
 *
 * In: the calls between begin and end. Out: the same work. The one idea: of small models the host
 * takes longer to launch kernels than the GPU to run them. The first time a micro-step of some
 * sizes comes, its kernels are launched one by one (so that what is loaded or planned late is
 * there); the second time they are recorded; from then on the record is launched.
 */
#include "cuda/exchange.h"
#include "cuda/queue.h"

static RtGraph *find(RtRun *run, const RtStep *s)
{
    RtQueue *q = run->state->queue;
    for (int i = 0; i < q->n_graphs; i++) {
        RtGraph *g = &q->graph[i];
        if (g->add == s->add && g->sums == (s->buckets != NULL) && g->p == run->p
            && memcmp(g->dims, run->dims, sizeof g->dims) == 0)
            return g;
    }
    return NULL;
}

static void give_up(RtQueue *q, const char *call, cudaError_t error)
{
    (void)cudaGetLastError();
    q->graphs = false;
    if (!q->noted)
        rt_warn("a micro-step cannot be recorded as a CUDA graph: %s: %s; its kernels are launched "
                "one by one",
                call, cudaGetErrorString(error));
    q->noted = true;
}

/* A run that needs more room than those before has moved the work space: records have the address
   of the old one. */
static void drop_old(RtQueue *q, const void *work)
{
    if (q->work != work) {
        rt_graphs_close(q);
        q->n_graphs = 0;
    }
    q->work = work;
}

bool rt_graph_begin(RtRun *run, RtStep *s)
{
    RtQueue *q = run->state->queue;
    RtStream *stream = run->stream;
    if (q->graph_done) {
        q->graph_done = false;
        return false;
    }
    drop_old(q, stream->device->work);
    RtGraph *g = q->graphs && !s->check ? find(run, s) : NULL;
    rt_buckets_go_to(s->buckets, (RtBucketsAt){});
    if (g && g->exec) {
        rt_exchange_repeat(true);
        rt_buckets_go_to(s->buckets, g->summed);
        rt_exchange_repeat(false);
        stream->where = "a micro-step";
        stream->kernel = "a graph of kernels";
        RT_CUDA_CALL(stream, cudaGraphLaunch(g->exec, stream->at));
        return false;
    }
    if (g) {
        const cudaError_t error = cudaStreamBeginCapture(stream->at,
                                                         cudaStreamCaptureModeThreadLocal);
        q->recording = error == cudaSuccess ? g : NULL;
        if (error != cudaSuccess)
            give_up(q, "cudaStreamBeginCapture", error);
    } else if (q->graphs && !s->check && q->n_graphs < RT_GRAPHS) {
        g = &q->graph[q->n_graphs++];
        memcpy(g->dims, run->dims, sizeof g->dims);
        g->p = run->p;
        g->add = s->add;
        g->sums = s->buckets != NULL;
    }
    return true;
}

/* What was recorded has not been done: begin comes again, and launches it. */
void rt_graph_end(RtRun *run, RtStep *s)
{
    RtQueue *q = run->state->queue;
    RtGraph *g = q->recording;
    cudaGraph_t graph = NULL;
    q->recording = NULL;
    if (!g) {
        q->graph_done = true;
        return;
    }
    rt_exchange_join(); /* of sums that it began, the compute stream is behind */
    g->summed = rt_buckets_at(s->buckets);
    cudaError_t error = cudaStreamEndCapture(run->stream->at, &graph);
    if (error != cudaSuccess) {
        give_up(q, "cudaStreamEndCapture", error);
        return;
    }
    /* sums over ranks keep the priority of their stream */
    error = cudaGraphInstantiate(&g->exec, graph, cudaGraphInstantiateFlagUseNodePriority);
    if (error != cudaSuccess) {
        g->exec = NULL;
        give_up(q, "cudaGraphInstantiate", error);
    }
    RT_CUDA_CALL(run->stream, cudaGraphDestroy(graph));
}

void rt_graphs_close(RtQueue *q)
{
    for (int i = 0; i < q->n_graphs; i++)
        if (q->graph[i].exec) {
            RT_CUDA_CALL(NULL, cudaGraphExecDestroy(q->graph[i].exec));
            q->graph[i].exec = NULL;
        }
}
