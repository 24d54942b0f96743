/* graph.cc -- streams that are captured, graphs, their launches.
 *
 * A capture keeps what is queued on its streams as nodes, each with those it follows. The one idea:
 * a launch queues the nodes again, the first stream's on the stream of the launch and those of each
 * other stream on a lane of the graph's own, ordered as the capture was.
 */
#include "sim.h"

#include <string.h>

struct CUgraphNode_st {
    const char *name;
    std::function<void()> run;
    std::vector<SimHostRange> reads;
    int branch;
    std::vector<int> after;
};
typedef struct CUgraphNode_st Node;

static int n_captures; /* that run */

struct SimCapture {
    cudaStream_t origin;
    std::vector<cudaStream_t> streams;
    std::vector<Node> nodes;
    bool ended;
};

struct CUgraph_st {
    std::vector<Node> nodes;
    int branches;
};

struct CUgraphExec_st {
    CUgraph_st graph;
    std::vector<int> lanes; /* of branches from 1 on */
    SimClock last;          /* a graph does not run beside itself */
};

bool sim_capturing(void) { return n_captures > 0; }

void sim_capture(cudaStream_t stream, const char *name, std::function<void()> run,
                 std::vector<SimHostRange> reads)
{
    SimCapture *c = stream->capture;
    c->nodes.push_back({ name, run, reads, stream->branch, stream->tail });
    stream->tail = { (int)c->nodes.size() - 1 };
}

void sim_capture_wait(cudaStream_t stream, cudaEvent_t event)
{
    if (!event->capture || event->capture->ended)
        cudasim_report("cudaStreamWaitEvent: a captured stream waits for an event that was not "
                       "recorded in this capture");
    if (stream->capture && stream->capture != event->capture)
        cudasim_report("cudaStreamWaitEvent: the event belongs to another capture");
    if (!stream->capture) {
        stream->capture = event->capture;
        stream->branch = (int)event->capture->streams.size();
        stream->tail.clear();
        event->capture->streams.push_back(stream);
    }
    stream->tail.insert(stream->tail.end(), event->tail.begin(), event->tail.end());
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode)
{
    SIM_CALL("cudaStreamBeginCapture");
    if (!stream || stream == cudaStreamLegacy)
        return sim_result(cudaErrorStreamCaptureUnsupported);
    cudaStream_t s = sim_stream(stream);
    if (s->capture)
        return sim_result(cudaErrorInvalidValue);
    s->capture = new SimCapture{ s, { s }, {}, false }; /* stays: events may point to it */
    s->branch = 0;
    s->tail.clear();
    n_captures++;
    return cudaSuccess;
}

/* Does the origin's end follow all nodes? */
static bool joined(const SimCapture *c)
{
    std::vector<bool> before(c->nodes.size());
    for (int i : c->origin->tail)
        before[(size_t)i] = true;
    bool all = true;
    for (size_t i = c->nodes.size(); i-- > 0;) {
        for (int k : c->nodes[i].after)
            before[(size_t)k] = before[(size_t)k] || before[i];
        all &= before[i];
    }
    return all;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    SIM_CALL("cudaStreamEndCapture");
    SimCapture *c = sim_stream(stream)->capture;
    *graph = NULL;
    if (!c)
        return sim_result(cudaErrorInvalidValue);
    if (c->origin != stream)
        return sim_result(cudaErrorStreamCaptureUnmatched);
    const bool whole = joined(c);
    for (cudaStream_t s : c->streams)
        s->capture = NULL;
    std::vector<Node> nodes;
    nodes.swap(c->nodes); /* what they hold is the graph's alone */
    c->ended = true;
    n_captures--;
    if (!whole)
        return sim_result(cudaErrorStreamCaptureUnjoined);
    *graph = new CUgraph_st{ nodes, (int)c->streams.size() };
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    SIM_CALL("cudaStreamIsCapturing");
    *status = sim_stream(stream)->capture ? cudaStreamCaptureStatusActive
                                          : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *n)
{
    SIM_CALL("cudaGraphGetNodes");
    const size_t room = nodes ? *n : 0;
    *n = graph->nodes.size();
    for (size_t i = 0; i < room && i < *n; i++)
        nodes[i] = &graph->nodes[i];
    return cudaSuccess;
}

/* By the name that the operation was queued with. */
cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, enum cudaGraphNodeType *type)
{
    SIM_CALL("cudaGraphNodeGetType");
    *type = strncmp(node->name, "copy ", 5) == 0            ? cudaGraphNodeTypeMemcpy
            : strcmp(node->name, "fill") == 0               ? cudaGraphNodeTypeMemset
            : strcmp(node->name, "cudaLaunchHostFunc") == 0 ? cudaGraphNodeTypeHost
                                                            : cudaGraphNodeTypeKernel;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
    SIM_CALL("cudaGraphInstantiate");
    if (flags & ~(unsigned long long)cudaGraphInstantiateFlagUseNodePriority)
        cudasim_report("cudaGraphInstantiate: the simulator has no flags 0x%llx", flags);
    *exec = new CUgraphExec_st{ *graph, {}, {} };
    for (int i = 1; i < graph->branches; i++)
        (*exec)->lanes.push_back(sim_new_lane());
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    SIM_CALL("cudaGraphLaunch");
    cudaStream_t s = sim_stream(stream);
    if (sim_capturing())
        cudasim_report("cudaGraphLaunch while a stream is captured: the simulator has no such "
                       "graph in a graph");
    SimClock base = s->clock;
    sim_join(&base, exec->last);
    std::vector<SimClock> clocks;
    for (const Node &node : exec->graph.nodes) {
        SimClock before = base;
        for (int i : node.after)
            sim_join(&before, clocks[(size_t)i]);
        const int lane = node.branch ? exec->lanes[(size_t)node.branch - 1] : s->lane;
        clocks.push_back(sim_queue_at(lane, before, node.name, node.run, node.reads)->clock);
        sim_join(&s->clock, clocks.back());
    }
    exec->last = s->clock;
    if (sim_streams() == SIM_EARLY) {
        const SimClock goal = s->clock, host = sim_host_clock;
        sim_wait(goal);
        sim_host_clock = host;
    }
    return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t)
{
    SIM_CALL("cudaGraphUpload");
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    SIM_CALL("cudaGraphDestroy");
    delete graph;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    SIM_CALL("cudaGraphExecDestroy");
    delete exec;
    return cudaSuccess;
}
