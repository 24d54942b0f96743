/* nccl.cc -- the calls of the simulated NCCL.
 *
 * In: buffers, a communicator, a stream. Out: an operation queued on the stream, as a kernel is.
 * Calls between ncclGroupStart and ncclGroupEnd become one operation for each communicator. What is
 * wrong at the call is answered as NCCL does; what the real library would not notice, and hang or
 * write nonsense, ends the program with a report. A rank that does not come is waited for, as in
 * NCCL, but not for ever. A communicator that does not block answers "in progress"; what it was
 * asked is queued when the host has asked twice how it goes on, and not before.
 *
 *   NCCL_COMM_BLOCKING=0|1         whatever the config says, as in NCCL
 *   CUDASIM_NCCL_TIMEOUT=seconds   until a report tells what all ranks are at (60)
 *   CUDASIM_NCCL_DIR=folder        of the files through which ranks talk (/dev/shm)
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "nccl_inside.h"

struct ncclComm { /* never freed: a use after the end is told */
    std::shared_ptr<NcclComm> in;
    bool ended;
};

static thread_local int group_depth;
static thread_local std::vector<NcclOperation> group;
static std::string last_message;

/* ---- results --------------------------------------------------------------------------------- */

#define RESULTS(R)                                                                                 \
    R(ncclSuccess, "no error")                                                                     \
    R(ncclUnhandledCudaError, "unhandled cuda error")                                              \
    R(ncclSystemError, "unhandled system error")                                                   \
    R(ncclInternalError, "internal error")                                                         \
    R(ncclInvalidArgument, "invalid argument")                                                     \
    R(ncclInvalidUsage, "invalid usage")                                                           \
    R(ncclRemoteError, "remote process exited or there was a network error")                       \
    R(ncclInProgress, "operation in progress")

const char *ncclGetErrorString(ncclResult_t result)
{
    switch (result) {
#define TEXT(name, text)                                                                           \
    case name: return text;
        RESULTS(TEXT)
    default: return "unknown result code";
    }
}

static ncclResult_t injected(const char *call)
{
    const char *name = cudasim_injected(call);
    if (!name)
        return ncclSuccess;
#define INJECTED(result, text)                                                                     \
    if (strcmp(name, #result) == 0)                                                                \
        return result;
    RESULTS(INJECTED)
    cudasim_report("CUDASIM_FAIL: %s ends with an ncclResult_t, not with '%s'", call, name);
}

static ncclResult_t fails(ncclResult_t result, const std::string &message)
{
    last_message = message;
    return result;
}

const char *ncclGetLastError(ncclComm_t comm)
{
    if (comm && !comm->in->message.empty())
        return comm->in->message.c_str();
    return last_message.c_str();
}

ncclResult_t ncclGetVersion(int *version)
{
    if (!version)
        return fails(ncclInvalidArgument, "ncclGetVersion: no place for the version");
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

/* ---- while the host does something else ------------------------------------------------------ */

enum { IDLE = 500000 }; /* microseconds without a call, after which work goes on alone */

static std::atomic<int> alive; /* communicators */

/* Work runs when the host waits for it. A host that waits for another process instead, which waits
   for a collective of this one, would wait for ever; so once it has called nothing for a while,
   what is queued goes on in a thread of its own. */
static void *idle_thread(void *)
{
    for (;;) {
        const uint64_t calls = cudasim_calls();
        usleep(IDLE);
        while (alive > 0 && cudasim_calls() == calls) {
            cudasim_idle();
            usleep(1000);
        }
    }
    return NULL;
}

static void start_idle_thread(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    alive++;
    pthread_once(&once, [] {
        pthread_t thread;
        if (pthread_create(&thread, NULL, idle_thread, NULL) != 0)
            cudasim_report("NCCL: a thread cannot be started");
        pthread_detach(thread);
    });
}

/* ---- communicators --------------------------------------------------------------------------- */

static NcclComm *inside(ncclComm_t comm, const char *call)
{
    if (comm && comm->ended)
        cudasim_report("%s: the communicator was destroyed or aborted before", call);
    return comm ? comm->in.get() : NULL;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    const char *given = getenv("CUDASIM_NCCL_DIR");
    const char *dir = given ? given : access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    uint64_t random[2];
    const ncclResult_t r = injected("ncclGetUniqueId");
    if (r != ncclSuccess)
        return r;
    if (!id || getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return fails(ncclInvalidArgument, "ncclGetUniqueId: no id");
    memset(id, 0, sizeof *id);
    if (snprintf(id->internal, sizeof id->internal, "%s/cudasim-nccl-%016llx%016llx", dir,
                 (unsigned long long)random[0], (unsigned long long)random[1])
        >= (int)sizeof id->internal)
        cudasim_report("CUDASIM_NCCL_DIR: '%s' is too long", dir);
    return ncclSuccess;
}

static bool is_blocking(const ncclConfig_t *config)
{
    const char *set = getenv("NCCL_COMM_BLOCKING");
    return set ? strcmp(set, "0") != 0 : !config || config->blocking != 0;
}

/* A try. */
static ncclResult_t join(NcclComm *c)
{
    int one, other;
    if (!nccl_join(c))
        return ncclInProgress;
    if (!nccl_same_device(c, &one, &other))
        return ncclSuccess;
    c->message = "ranks " + std::to_string(one) + " and " + std::to_string(other)
                 + " are on the same device";
    return fails(ncclInvalidUsage, c->message);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    const ncclResult_t r = injected("ncclCommInitRank");
    if (r != ncclSuccess)
        return r;
    if (!comm || ranks < 1 || rank < 0 || rank >= ranks || id.internal[0] != '/'
        || !memchr(id.internal, 0, sizeof id.internal))
        return fails(ncclInvalidArgument, "ncclCommInitRank: ranks, rank or id are wrong");
    if (config && (config->size != sizeof *config || config->magic != 0xcafebeef))
        return fails(ncclInvalidArgument, "ncclCommInitRankConfig: config is not initialized");
    if (group_depth)
        cudasim_report("not modelled: ncclCommInitRank between ncclGroupStart and ncclGroupEnd");
    ncclComm_t fresh = new ncclComm;
    fresh->in = std::make_shared<NcclComm>();
    fresh->ended = false;
    NcclComm *c = fresh->in.get();
    c->ranks = ranks;
    c->rank = rank;
    c->path = id.internal;
    c->error = ncclSuccess;
    if (cudaGetDevice(&c->device) != cudaSuccess)
        return fails(ncclUnhandledCudaError, "ncclCommInitRank: no device");
    *comm = fresh;
    start_idle_thread();
    c->blocking = is_blocking(config);
    if (!c->blocking) {
        c->error = ncclInProgress;
        return ncclInProgress;
    }
    ncclResult_t joined;
    while ((joined = join(c)) == ncclInProgress)
        usleep(200);
    return joined;
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank)
{
    return ncclCommInitRankConfig(comm, ranks, id, rank, NULL);
}

/* Waits until all that was queued is done. */
static ncclResult_t flush(NcclComm *c)
{
    for (size_t i = 0; i < c->streams.size() && c->finished < c->issued; i++)
        if (cudaStreamSynchronize(c->streams[i]) != cudaSuccess)
            return fails(ncclUnhandledCudaError, "cudaStreamSynchronize failed");
    return ncclSuccess;
}

static ncclResult_t queue(const NcclOperation &given);

/* Not blocking: what the last call began goes on. */
static ncclResult_t go_on(NcclComm *c)
{
    enum { ASKED = 2 };
    std::vector<NcclOperation> all;
    ncclResult_t result = ncclSuccess;
    if (!c->joined)
        return join(c);
    if (++c->asked < ASKED)
        return ncclInProgress;
    all.swap(c->begun);
    for (size_t i = 0; i < all.size() && result == ncclSuccess; i++)
        result = queue(all[i]);
    if (c->finalizes)
        result = flush(c);
    return result;
}

static ncclResult_t begin(NcclComm *c)
{
    c->asked = 0;
    c->error = ncclInProgress;
    return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
    const ncclResult_t r = injected("ncclCommGetAsyncError");
    NcclComm *c = inside(comm, "ncclCommGetAsyncError");
    if (!c || !error)
        return fails(ncclInvalidArgument, "ncclCommGetAsyncError: no communicator");
    if (r != ncclSuccess)
        c->error = r;
    if (c->error == ncclInProgress)
        c->error = go_on(c);
    *error = (ncclResult_t)c->error.load();
    return ncclSuccess;
}

/* NCCL answers such a call with ncclInvalidArgument. */
static void check_ready(const NcclComm *c, const char *call)
{
    if (c->error == ncclInProgress)
        cudasim_report("%s: the call before on this communicator is in progress: "
                       "ncclCommGetAsyncError tells when it is done",
                       call);
}

static void check_graphs(const NcclComm *c, const char *call)
{
    if (c->graphs > 0)
        cudasim_report("%s: graphs hold %d operations of this communicator: NCCL waits until they "
                       "are destroyed",
                       call, c->graphs.load());
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    NcclComm *c = inside(comm, "ncclCommFinalize");
    const ncclResult_t r = injected("ncclCommFinalize");
    if (!c || r != ncclSuccess)
        return c ? r : fails(ncclInvalidArgument, "ncclCommFinalize: no communicator");
    check_ready(c, "ncclCommFinalize");
    check_graphs(c, "ncclCommFinalize");
    c->finalizes = true;
    return c->blocking ? flush(c) : begin(c);
}

static ncclResult_t end(ncclComm_t comm, const char *call, bool abort)
{
    NcclComm *c = inside(comm, call);
    const ncclResult_t r = injected(call);
    if (r != ncclSuccess)
        return r;
    if (!c)
        return fails(ncclInvalidArgument, std::string(call) + ": no communicator");
    ncclResult_t flushed = ncclSuccess;
    if (abort) {
        c->aborted = true;
        nccl_leave(c);
    } else {
        check_ready(c, call);
        check_graphs(c, call);
        flushed = flush(c);
        nccl_part(c);
    }
    comm->ended = true;
    alive--;
    return flushed;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) { return end(comm, "ncclCommDestroy", false); }
ncclResult_t ncclCommAbort(ncclComm_t comm) { return end(comm, "ncclCommAbort", true); }

static ncclResult_t answer(ncclComm_t comm, const char *call, int NcclComm::*member, int *value)
{
    const NcclComm *c = inside(comm, call);
    if (!c || !value)
        return fails(ncclInvalidArgument, std::string(call) + ": no communicator");
    *value = c->*member;
    return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int *count)
{
    return answer(comm, "ncclCommCount", &NcclComm::ranks, count);
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank)
{
    return answer(comm, "ncclCommUserRank", &NcclComm::rank, rank);
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device)
{
    return answer(comm, "ncclCommCuDevice", &NcclComm::device, device);
}

/* ---- queueing -------------------------------------------------------------------------------- */

static ncclResult_t queue(const NcclOperation &given)
{
    enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    if (cudaStreamIsCapturing(given.stream, &capture) != cudaSuccess)
        return fails(ncclUnhandledCudaError, "the stream is not valid");
    auto o = std::make_shared<NcclOperation>(given);
    NcclComm *c = o->comm.get();
    std::shared_ptr<void> held;
    o->ticketed = capture == cudaStreamCaptureStatusNone;
    for (size_t i = 0; i < o->parts.size(); i++)
        o->parts[i].what.graph = !o->ticketed;
    if (!o->ticketed) {
        c->graphs++;
        held = std::shared_ptr<void>(NULL, [o](void *) { o->comm->graphs--; });
    } else {
        o->ticket = c->issued++;
        bool known = false;
        for (size_t i = 0; i < c->streams.size(); i++)
            known = known || c->streams[i] == o->stream;
        if (!known)
            c->streams.push_back(o->stream);
    }
    const char *name = o->parts.size() > 1 ? "NCCL group" : nccl_kind_name(o->parts[0].what.kind);
    if (cudasim_enqueue(o->stream, name,
                        [o, held] {
                            if (!nccl_run(o.get()))
                                cudasim_not_yet();
                        })
        != cudaSuccess)
        return fails(ncclUnhandledCudaError, std::string(name) + ": could not be queued");
    return ncclSuccess;
}

static ncclResult_t issue(const NcclOperation &o)
{
    NcclComm *c = o.comm.get();
    if (c->blocking)
        return queue(o);
    c->begun.push_back(o);
    return begin(c);
}

/* The operation of the open group that a call on this communicator belongs to. */
static NcclOperation *of_group(const std::shared_ptr<NcclComm> &comm, cudaStream_t stream)
{
    for (size_t i = 0; i < group.size(); i++)
        if (group[i].comm == comm) {
            if (group[i].stream != stream)
                cudasim_report("not modelled: calls of one group and communicator on two streams");
            return &group[i];
        }
    NcclOperation fresh = {};
    fresh.comm = comm;
    fresh.stream = stream;
    group.push_back(fresh);
    return &group.back();
}

ncclResult_t ncclGroupStart(void)
{
    group_depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    ncclResult_t result = ncclSuccess;
    if (group_depth == 0)
        return fails(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
    if (--group_depth > 0)
        return ncclSuccess;
    std::vector<NcclOperation> all;
    all.swap(group);
    const ncclResult_t r = injected("ncclGroupEnd");
    for (size_t i = 0; i < all.size() && r == ncclSuccess; i++) {
        const ncclResult_t one = issue(all[i]);
        result = result == ncclSuccess ? one : result;
    }
    return r == ncclSuccess ? result : r;
}

/* ---- checks of a call ------------------------------------------------------------------------ */

static void check_buffer(const char *call, const char *which, const void *at, size_t bytes)
{
    if (bytes && !cudasim_is_device(at, bytes))
        cudasim_report("%s: %s of %zu bytes at %p is not in one allocation of the device", call,
                       which, bytes, at);
}

/* In place is where NCCL says it is; other overlaps are not. */
static void check_overlap(const char *call, const NcclPart *part, size_t given, size_t got,
                          const void *in_place)
{
    const char *send = (const char *)part->send, *recv = (const char *)part->recv;
    if (given && got && part->recv != in_place && send < recv + got && recv < send + given)
        cudasim_report("%s: the receive buffer overlaps the send buffer, but is not in place",
                       call);
}

static void check_buffers(const NcclComm *c, const NcclPart *part)
{
    const NcclWhat *what = &part->what;
    const char *call = nccl_kind_name(what->kind);
    const size_t bytes = what->count * nccl_size(what->type), all = bytes * (size_t)c->ranks;
    const size_t own = bytes * (size_t)c->rank;
    const bool root = c->rank == what->root;
    size_t given = bytes, got = bytes;
    const void *in_place = part->send;
    switch (what->kind) {
    case NCCL_REDUCE_SCATTER:
        given = all;
        in_place = (const char *)part->send + own;
        break;
    case NCCL_ALL_GATHER:
        got = all;
        in_place = (const char *)part->send - own;
        break;
    case NCCL_REDUCE: got = root ? bytes : 0; break;
    case NCCL_BROADCAST: given = root ? bytes : 0; break;
    case NCCL_SEND: got = 0; break;
    case NCCL_RECV: given = 0; break;
    case NCCL_ALL_REDUCE: break;
    }
    check_buffer(call, "the send buffer", part->send, given);
    check_buffer(call, "the receive buffer", part->recv, got);
    check_overlap(call, part, given, got, in_place);
}

static ncclResult_t call(NcclPart part, ncclComm_t comm, cudaStream_t stream)
{
    const char *name = nccl_kind_name(part.what.kind);
    const ncclResult_t r = injected(name);
    NcclComm *c = inside(comm, name);
    if (r != ncclSuccess)
        return fails(r, std::string(name) + ": injected failure");
    if (!c || part.what.root < 0 || part.what.root >= c->ranks)
        return fails(ncclInvalidArgument, std::string(name) + ": no communicator, or no such rank");
    if (part.what.op < ncclSum || part.what.op > ncclAvg || part.what.type < 0
        || part.what.type >= ncclNumTypes)
        return fails(ncclInvalidArgument, std::string(name) + ": operation or type is wrong");
    if (nccl_size(part.what.type) == 0)
        cudasim_report("not modelled: %s with data type %d", name, part.what.type);
    check_ready(c, name);
    if (!c->joined)
        return fails(ncclInvalidUsage, std::string(name) + ": the communicator is not ready");
    check_buffers(c, &part);
    if (group_depth) {
        of_group(comm->in, stream)->parts.push_back(part);
        return ncclSuccess;
    }
    NcclOperation alone = {};
    alone.comm = comm->in;
    alone.stream = stream;
    alone.parts.push_back(part);
    return issue(alone);
}

/* ---- collectives, sends and receives --------------------------------------------------------- */

ncclResult_t ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)
{
    return call({ { NCCL_REDUCE, type, op, root, count, false }, send, recv, 0, 0 }, comm, stream);
}

ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream)
{
    return call({ { NCCL_BROADCAST, type, ncclSum, root, count, false }, send, recv, 0, 0 }, comm,
                stream);
}

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    return call({ { NCCL_ALL_REDUCE, type, op, 0, count, false }, send, recv, 0, 0 }, comm, stream);
}

ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t recvcount, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    return call({ { NCCL_REDUCE_SCATTER, type, op, 0, recvcount, false }, send, recv, 0, 0 }, comm,
                stream);
}

ncclResult_t ncclAllGather(const void *send, void *recv, size_t sendcount, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream)
{
    return call({ { NCCL_ALL_GATHER, type, ncclSum, 0, sendcount, false }, send, recv, 0, 0 }, comm,
                stream);
}

ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
    return call({ { NCCL_SEND, type, ncclSum, peer, count, false }, send, NULL, 0, 0 }, comm,
                stream);
}

ncclResult_t ncclRecv(void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    return call({ { NCCL_RECV, type, ncclSum, peer, count, false }, NULL, recv, 0, 0 }, comm,
                stream);
}
