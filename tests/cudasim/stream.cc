/* stream.cc -- streams and events: what is queued, what is ordered, and when it runs.
 *
 * Nothing runs when it is queued; when the host waits, what it waits for runs, and no more
 * (CUDASIM_STREAMS=late), or in an order by chance (a seed). early: everything at once. The one
 * idea: a lane is a stream or a branch of a graph; a clock says how many operations of each lane
 * are before something, so order is a comparison and never an accident of the order in time.
 */
#include <stdlib.h>
#include <string.h>
#include <algorithm>
#include <deque>

#include "sim.h"

SimClock sim_host_clock;

namespace
{

std::deque<SimOp *> pending;                     /* in the order in which they were queued */
std::vector<SimDone> done;                       /* in the order in which they ran */
std::vector<std::vector<uint32_t>> done_by_lane; /* indexes of done[]; by seq */
std::vector<uint32_t> seqs;                      /* by lane: operations queued */
std::vector<cudaStream_t> streams;
CUstream_st *default_stream;
double fake_ms;
bool not_yet; /* said by the operation that runs */
const SimOp *running;
uint64_t asked_from, asked_to; /* what sim_op_before was asked last: its operation's ticks */
bool asked_answer;

bool covers(const SimClock &clock, int lane, uint32_t seq)
{
    return (size_t)lane < clock.size() && clock[(size_t)lane] >= seq;
}

uint64_t sum_of(const SimHostRange &r)
{
    const unsigned char *p = (const unsigned char *)r.at;
    uint64_t h = r.bytes;
    size_t i = 0;
    for (; i + 8 <= r.bytes; i += 8) {
        uint64_t word;
        memcpy(&word, p + i, 8);
        h = (h ^ word) * 0x9e3779b97f4a7c15u;
        h ^= h >> 29;
    }
    for (; i < r.bytes; i++)
        h = (h ^ p[i]) * 0x9e3779b97f4a7c15u;
    return h;
}

/* The least tick of an operation that ran and is not before this one. */
uint64_t safe_tick(const SimOp *op)
{
    uint64_t safe = sim_now.op;
    for (size_t lane = 0; lane < done_by_lane.size(); lane++) {
        const uint32_t known = lane < op->clock.size() ? op->clock[lane] : 0;
        const std::vector<uint32_t> &ran = done_by_lane[lane];
        for (size_t i = ran.size(); i-- > 0 && done[ran[i]].seq > known;)
            safe = std::min(safe, done[ran[i]].tick);
    }
    return safe;
}

void run_op(SimOp *op)
{
    sim_now.thread = 0;
    sim_new_tick();
    sim_now.op = sim_now.block = sim_now.segment = sim_now.warp = sim_now.tick;
    sim_now.safe = safe_tick(op);
    done.push_back({ sim_now.tick, op->name, op->lane, op->seq });
    for (const SimHostRange &r : op->reads)
        if (sum_of(r) != r.sum)
            cudasim_report("the host changed %zu bytes of pinned memory at %p while %s (%s) that "
                           "reads them was pending",
                           r.bytes, r.at, op->name, sim_stream_name(op->lane).c_str());
    running = op;
    asked_from = asked_to = 0;
    sim_memory_open(true);
    not_yet = false;
    if (sim_traffic)
        sim_traffic_begin(op->name);
    op->run();
    done_by_lane.resize(seqs.size());
    done_by_lane[(size_t)op->lane].push_back((uint32_t)done.size() - 1);
    fake_ms += 0.001;
}

/* false: it cannot go on yet, and is to be called again. */
bool try_op(SimOp *op)
{
    not_yet = false;
    if (!sim_sticky)
        run_op(op);
    return !not_yet;
}

/* Runs the operation at place i and removes it; false: it stays. */
bool run_at(size_t i)
{
    SimOp *op = pending[i];
    if (!try_op(op))
        return false;
    pending.erase(pending.begin() + (ptrdiff_t)i);
    delete op;
    return true;
}

/* Runs what is needed (or everything) and not behind something that cannot go on yet. false: none
   came to its end. */
bool run_ready(const SimClock &goal, bool everything)
{
    std::deque<SimOp *> now, stay;
    std::vector<const SimOp *> stuck;
    bool ran = false;
    now.swap(pending);
    for (SimOp *op : now) {
        bool run = everything || covers(goal, op->lane, op->seq);
        for (const SimOp *s : stuck)
            run = run && !covers(op->clock, s->lane, s->seq);
        if (run && try_op(op)) {
            ran = true;
            delete op;
            continue;
        }
        if (run)
            stuck.push_back(op);
        stay.push_back(op);
    }
    pending.insert(pending.begin(), stay.begin(), stay.end());
    return ran;
}

/* Nothing that is pending is before it. */
bool ready(size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (covers(pending[i]->clock, pending[k]->lane, pending[k]->seq))
            return false;
    return true;
}

/* One operation by chance among those that are needed, sometimes another one. After some that could
   not go on, any one, and the host rests. */
bool run_any(const SimClock &goal, unsigned *failed)
{
    std::vector<size_t> choice;
    bool needed = false;
    const bool all = *failed > 8 || sim_random(4) == 0;
    for (size_t i = 0; i < pending.size(); i++) {
        const bool wanted = covers(goal, pending[i]->lane, pending[i]->seq);
        needed |= wanted;
        if ((wanted || all) && ready(i))
            choice.push_back(i);
    }
    if (needed)
        *failed = run_at(choice[sim_random((uint32_t)choice.size())]) ? 0 : *failed + 1;
    if (*failed % 32 == 31)
        sim_rest();
    return needed;
}

bool any_pending(const SimClock &goal)
{
    for (const SimOp *op : pending)
        if (covers(goal, op->lane, op->seq))
            return true;
    return false;
}

/* The first that is needed and can go on; all others where none can. */
void run_first(const SimClock &goal)
{
    for (size_t i = 0; i < pending.size(); i++)
        if (covers(goal, pending[i]->lane, pending[i]->seq) && ready(i) && run_at(i))
            return;
    run_ready(goal, true);
}

} // namespace

/* ---- order ----------------------------------------------------------------------------------- */

void sim_join(SimClock *into, const SimClock &other)
{
    if (into->size() < other.size())
        into->resize(other.size());
    for (size_t i = 0; i < other.size(); i++)
        (*into)[i] = std::max((*into)[i], other[i]);
}

void sim_wait(const SimClock &goal)
{
    unsigned failed = 0;
    if (sim_streams() == SIM_SHUFFLED) {
        while (run_any(goal, &failed))
            ;
    } else {
        while (any_pending(goal))
            if (!run_ready(goal, false) && !run_ready(goal, true))
                sim_rest();
    }
    sim_memory_open(false);
    sim_join(&sim_host_clock, goal);
}

/* Work that nobody waited for runs when the program ends well, so that its faults are found. What
   waits for another process is left, when none of it has gone on for a while. */
static void run_rest(int status, void *)
{
    enum { TRIES = 2000 };
    if (status || sim_sticky || cudasim_in_kernel())
        return;
    SimLock lock;
    for (int tries = 0; !pending.empty() && tries < TRIES; tries++)
        if (run_ready(sim_host_clock, true))
            tries = 0;
        else
            sim_rest();
    sim_memory_open(false);
}

void sim_stream_init(void) { on_exit(run_rest, NULL); }

void sim_wait_all(void)
{
    const SimClock all(seqs.begin(), seqs.end());
    sim_wait(all);
}

int sim_new_lane(void)
{
    seqs.push_back(0);
    return (int)seqs.size() - 1;
}

const SimDone *sim_op_at(uint64_t tick)
{
    auto after = std::upper_bound(done.begin(), done.end(), tick,
                                  [](uint64_t t, const SimDone &d) { return t < d.tick; });
    return after == done.begin() ? NULL : &*std::prev(after);
}

bool sim_op_before(uint64_t tick)
{
    if (tick >= asked_from && tick < asked_to)
        return asked_answer;
    const SimDone *op = sim_op_at(tick);
    if (!op)
        return true;
    asked_from = op->tick;
    asked_to = op == &done.back() ? ~(uint64_t)0 : op[1].tick;
    return asked_answer = covers(running->clock, op->lane, op->seq);
}

std::string sim_stream_name(int lane)
{
    if (default_stream && lane == default_stream->lane)
        return "the default stream";
    for (size_t i = 0; i < streams.size(); i++)
        if (streams[i] && streams[i]->lane == lane)
            return "stream " + std::to_string(i + 1);
    return "branch " + std::to_string(lane) + " of a graph, or a stream that is gone";
}

cudaStream_t sim_stream(cudaStream_t stream)
{
    if (!stream || stream == cudaStreamLegacy) {
        if (!default_stream)
            default_stream = new CUstream_st{ sim_new_lane(), true, {}, NULL, 0, {} };
        return default_stream;
    }
    if (std::find(streams.begin(), streams.end(), stream) == streams.end())
        cudasim_report("%p is no stream, or one that was destroyed", (void *)stream);
    return stream;
}

SimOp *sim_queue_at(int lane, const SimClock &before, const char *name,
                    const std::function<void()> &run, const std::vector<SimHostRange> &reads)
{
    SimOp *op = new SimOp{ name, run, reads, lane, ++seqs[(size_t)lane], before };
    sim_join(&op->clock, sim_host_clock);
    if (op->clock.size() <= (size_t)lane)
        op->clock.resize((size_t)lane + 1);
    op->clock[(size_t)lane] = op->seq;
    for (SimHostRange &r : op->reads)
        r.sum = sum_of(r);
    pending.push_back(op);
    return op;
}

void sim_queue(cudaStream_t stream, const char *name, std::function<void()> run,
               std::vector<SimHostRange> reads)
{
    cudaStream_t s = sim_stream(stream);
    if (s->capture) {
        sim_capture(s, name, run, reads);
        return;
    }
    if (s == default_stream && sim_capturing())
        cudasim_report("%s on the default stream while a stream is captured", name);
    if (s == default_stream) { /* behind all streams that are not cudaStreamNonBlocking */
        for (cudaStream_t other : streams)
            if (other && other->blocking)
                sim_join(&s->clock, other->clock);
    } else if (s->blocking && default_stream) {
        sim_join(&s->clock, default_stream->clock);
    }
    s->clock = sim_queue_at(s->lane, s->clock, name, run, reads)->clock;
    if (sim_streams() == SIM_EARLY) {
        run_ready(s->clock, false); /* the host does not wait */
        sim_memory_open(false);
    }
}

cudaError_t cudasim_enqueue(cudaStream_t stream, const char *name, std::function<void()> run)
{
    SimLock lock;
    if (sim_sticky)
        return sim_result(sim_sticky);
    sim_queue(stream, name, run, {});
    return cudaSuccess;
}

void cudasim_not_yet(void) { not_yet = true; }

void cudasim_idle(void)
{
    SimLock lock;
    run_ready(sim_host_clock, true);
    sim_memory_open(false);
}

/* ---- streams --------------------------------------------------------------------------------- */

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int)
{
    SIM_CALL("cudaStreamCreateWithPriority");
    if (flags > cudaStreamNonBlocking)
        cudasim_report("cudaStreamCreateWithPriority: the simulator has no flags 0x%x", flags);
    *stream = new CUstream_st{ sim_new_lane(), flags != cudaStreamNonBlocking, {}, NULL, 0, {} };
    streams.push_back(*stream);
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    SIM_CALL("cudaStreamDestroy");
    sim_stream(stream);
    std::replace(streams.begin(), streams.end(), stream, (cudaStream_t)NULL);
    delete stream; /* what is queued there stays queued, as in CUDA */
    return sim_result(sim_sticky);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    SIM_CALL_OUTSIDE("cudaStreamSynchronize");
    sim_wait(SimClock(sim_stream(stream)->clock));
    return sim_result(sim_sticky);
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    SIM_CALL_OUTSIDE("cudaStreamQuery");
    const SimClock goal = sim_stream(stream)->clock;
    if (any_pending(goal)) { /* a step further each time it is asked */
        run_first(goal);
        sim_memory_open(false);
        return sim_sticky ? sim_result(sim_sticky) : cudaErrorNotReady;
    }
    sim_join(&sim_host_clock, goal);
    return sim_result(sim_sticky);
}

cudaError_t cudaDeviceSynchronize(void)
{
    SIM_CALL_OUTSIDE("cudaDeviceSynchronize");
    sim_wait_all();
    return sim_result(sim_sticky);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *argument)
{
    SIM_CALL("cudaLaunchHostFunc");
    sim_queue(stream, "cudaLaunchHostFunc",
              [=] {
                  sim_memory_open(false);
                  function(argument);
                  sim_memory_open(true);
              },
              {});
    return cudaSuccess;
}

/* ---- events ---------------------------------------------------------------------------------- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    SIM_CALL("cudaEventCreateWithFlags");
    if (flags & ~(unsigned)(cudaEventBlockingSync | cudaEventDisableTiming))
        cudasim_report("cudaEventCreateWithFlags: the simulator has no flags 0x%x", flags);
    *event = new CUevent_st{ false, !(flags & cudaEventDisableTiming), {}, 0, NULL, {} };
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event) { return cudaEventCreateWithFlags(event, 0); }

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    SIM_CALL("cudaEventDestroy");
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    SIM_CALL("cudaEventRecord");
    cudaStream_t s = sim_stream(stream);
    event->capture = s->capture;
    if (s->capture) {
        event->tail = s->tail;
        return cudaSuccess;
    }
    event->recorded = true;
    event->clock = s->clock;
    sim_join(&event->clock, sim_host_clock);
    event->ms = fake_ms += 0.001;
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    SIM_CALL("cudaStreamWaitEvent");
    if (flags)
        cudasim_report("cudaStreamWaitEvent: the simulator has no flags 0x%x", flags);
    cudaStream_t s = sim_stream(stream);
    if (s->capture || event->capture)
        sim_capture_wait(s, event);
    else if (event->recorded)
        sim_join(&s->clock, event->clock);
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    SIM_CALL_OUTSIDE("cudaEventSynchronize");
    if (event->recorded)
        sim_wait(SimClock(event->clock));
    return sim_result(sim_sticky);
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    SIM_CALL_OUTSIDE("cudaEventQuery");
    if (event->recorded && any_pending(event->clock)) {
        run_first(event->clock);
        sim_memory_open(false);
        return sim_sticky ? sim_result(sim_sticky) : cudaErrorNotReady;
    }
    if (event->recorded)
        sim_join(&sim_host_clock, event->clock);
    return sim_result(sim_sticky);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    SIM_CALL("cudaEventElapsedTime");
    if (!start->timing || !end->timing || !start->recorded || !end->recorded)
        return sim_result(cudaErrorInvalidResourceHandle);
    if (any_pending(start->clock) || any_pending(end->clock))
        return cudaErrorNotReady;
    *ms = (float)(end->ms - start->ms);
    return cudaSuccess;
}
