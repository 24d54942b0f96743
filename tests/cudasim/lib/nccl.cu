/* nccl.cu -- NCCL between processes: nccl RANKS TEST.
 *
 * The first process makes an id and becomes rank 0 after it has forked the others, so all of them
 * begin without a device. Every rank checks its own results against what it computes alone. The
 * exit code is the largest of the ranks; a rank that is right prints nothing.
 */
#include <math.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <nccl.h>

#include "half.h"
#include "test.h"

typedef struct {
    int ranks, rank;
    ncclUniqueId id;
    ncclComm_t comm;
    cudaStream_t stream;
    int pipe[2]; /* of all ranks */
} World;

static int wrong;

static void expect(bool right, const World *w, const char *what)
{
    if (right)
        return;
    printf("rank %d: %s\n", w->rank, what);
    wrong = 1;
}

static void join(World *w)
{
    MUST(cudaSetDevice(0));
    MUST(cudaStreamCreateWithFlags(&w->stream, cudaStreamNonBlocking));
    MUST(ncclCommInitRank(&w->comm, w->ranks, w->id, w->rank));
}

/* ---- elements -------------------------------------------------------------------------------- */

static size_t size_of(ncclDataType_t t)
{
    return t == ncclFloat64 || t == ncclInt64                      ? 8
           : t == ncclFloat32 || t == ncclInt32 || t == ncclUint32 ? 4
           : t == ncclUint8 || t == ncclInt8                       ? 1
                                                                   : 2;
}

static void put(std::vector<char> *to, size_t i, ncclDataType_t t, double x)
{
    char *p = to->data() + i * size_of(t);
    const float f = (float)x;
    const int64_t n = (int64_t)x;
    const uint16_t h = t == ncclBfloat16 ? rt_to_bf16(f) : rt_to_f16(f);
    if (t == ncclFloat64)
        memcpy(p, &x, 8);
    else if (t == ncclFloat32)
        memcpy(p, &f, 4);
    else if (t == ncclFloat16 || t == ncclBfloat16)
        memcpy(p, &h, 2);
    else
        memcpy(p, &n, size_of(t)); /* the low bytes */
}

/* Element i of a rank's buffer: small whole numbers, exact in every type. */
static double value(int rank, size_t i) { return (double)((i * 3 + (size_t)rank * 5) % 7 + 1); }

static std::vector<char> buffer(int rank, size_t n, ncclDataType_t t)
{
    std::vector<char> x(n * size_of(t));
    for (size_t i = 0; i < n; i++)
        put(&x, i, t, value(rank, i));
    return x;
}

static double together(int ranks, size_t i, ncclRedOp_t op)
{
    double all = value(0, i);
    for (int r = 1; r < ranks; r++) {
        const double x = value(r, i);
        all = op == ncclMax    ? fmax(all, x)
              : op == ncclMin  ? fmin(all, x)
              : op == ncclProd ? all * x
                               : all + x;
    }
    return op == ncclAvg ? all / ranks : all;
}

static void *upload(const std::vector<char> &x)
{
    void *at;
    MUST(cudaMalloc(&at, x.size()));
    MUST(cudaMemcpy(at, x.data(), x.size(), cudaMemcpyHostToDevice));
    return at;
}

/* Does the device hold this? */
static bool holds(const World *w, const void *device, const std::vector<char> &want)
{
    std::vector<char> got(want.size());
    MUST(cudaStreamSynchronize(w->stream));
    MUST(cudaMemcpy(got.data(), device, got.size(), cudaMemcpyDeviceToHost));
    return memcmp(got.data(), want.data(), got.size()) == 0;
}

/* ---- collectives ----------------------------------------------------------------------------- */

static void test_all_reduce(World *w, ncclDataType_t t, ncclRedOp_t op)
{
    enum { N = 1001 };
    std::vector<char> want(N * size_of(t));
    void *x = upload(buffer(w->rank, N, t)), *y;
    MUST(cudaMalloc(&y, N * size_of(t)));
    for (size_t i = 0; i < N; i++)
        put(&want, i, t, together(w->ranks, i, op));
    MUST(ncclAllReduce(x, y, N, t, op, w->comm, w->stream));
    MUST(ncclAllReduce(x, x, N, t, op, w->comm, w->stream));
    expect(holds(w, y, want), w, "ncclAllReduce differs");
    expect(holds(w, x, want), w, "ncclAllReduce in place differs");
    MUST(cudaFree(x));
    MUST(cudaFree(y));
}

static void test_reductions(World *w)
{
    static const ncclDataType_t types[] = { ncclFloat32, ncclFloat64, ncclBfloat16,
                                            ncclFloat16, ncclInt32,   ncclInt64,
                                            ncclUint8,   ncclInt8,    ncclUint32 };
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        test_all_reduce(w, types[t], ncclSum);
        test_all_reduce(w, types[t], ncclMax);
        test_all_reduce(w, types[t], ncclMin);
    }
    test_all_reduce(w, ncclFloat64, ncclProd);
    test_all_reduce(w, ncclFloat64, ncclAvg);
}

static void test_scatter_gather(World *w)
{
    enum { N = 37 };
    const size_t all = (size_t)w->ranks * N;
    std::vector<char> part(N * 4), whole(all * 4);
    for (size_t i = 0; i < N; i++)
        put(&part, i, ncclFloat32, together(w->ranks, (size_t)w->rank * N + i, ncclSum));
    for (size_t i = 0; i < all; i++)
        put(&whole, i, ncclFloat32, together(w->ranks, i, ncclSum));
    float *x = (float *)upload(buffer(w->rank, all, ncclFloat32)), *y;
    float *own = x + w->rank * N;
    MUST(cudaMalloc((void **)&y, N * 4));
    MUST(ncclReduceScatter(x, y, N, ncclFloat32, ncclSum, w->comm, w->stream));
    MUST(ncclReduceScatter(x, own, N, ncclFloat32, ncclSum, w->comm, w->stream));
    expect(holds(w, y, part), w, "ncclReduceScatter differs");
    expect(holds(w, own, part), w, "ncclReduceScatter in place differs");
    MUST(ncclAllGather(own, x, N, ncclFloat32, w->comm, w->stream));
    expect(holds(w, x, whole), w, "ncclAllGather in place differs");
    float *z;
    MUST(cudaMalloc((void **)&z, all * 4));
    MUST(ncclAllGather(y, z, N, ncclFloat32, w->comm, w->stream));
    expect(holds(w, z, whole), w, "ncclAllGather differs");
}

static void test_rooted(World *w)
{
    enum { N = 100 };
    std::vector<char> sum(N * 8), first = buffer(w->rank, N, ncclFloat64);
    for (size_t i = 0; i < N; i++)
        put(&sum, i, ncclFloat64, together(w->ranks, i, ncclSum));
    for (int root = 0; root < w->ranks; root++) {
        void *x = upload(first), *y = NULL;
        if (w->rank == root)
            MUST(cudaMalloc(&y, N * 8));
        MUST(ncclReduce(x, y, N, ncclFloat64, ncclSum, root, w->comm, w->stream));
        if (y)
            expect(holds(w, y, sum), w, "ncclReduce differs");
        MUST(ncclBroadcast(x, x, N, ncclFloat64, root, w->comm, w->stream));
        expect(holds(w, x, buffer(root, N, ncclFloat64)), w, "ncclBroadcast differs");
    }
}

/* ---- groups, sends and receives -------------------------------------------------------------- */

/* To the right and from the left, around; then from all to all. */
static void test_pairs(World *w)
{
    enum { N = 300 };
    const int right = (w->rank + 1) % w->ranks, left = (w->rank + w->ranks - 1) % w->ranks;
    char *x = (char *)upload(buffer(w->rank, N, ncclUint8)), *y, *z;
    MUST(cudaMalloc((void **)&y, N));
    MUST(cudaMalloc((void **)&z, (size_t)(N * w->ranks)));
    MUST(ncclGroupStart());
    MUST(ncclSend(x, N, ncclUint8, right, w->comm, w->stream));
    MUST(ncclRecv(y, N, ncclUint8, left, w->comm, w->stream));
    MUST(ncclGroupEnd());
    expect(holds(w, y, buffer(left, N, ncclUint8)), w, "what came from the left differs");
    MUST(ncclGroupStart());
    for (int r = 0; r < w->ranks; r++) {
        MUST(ncclSend(x, N, ncclUint8, r, w->comm, w->stream));
        MUST(ncclRecv(z + r * N, N, ncclUint8, r, w->comm, w->stream));
    }
    MUST(ncclGroupEnd());
    for (int r = 0; r < w->ranks; r++)
        expect(holds(w, z + r * N, buffer(r, N, ncclUint8)), w, "what came from a rank differs");
}

/* Several collectives as one group, and one in a chain of alone standing sends. */
static void test_group(World *w)
{
    enum { N = 64 };
    std::vector<char> want(N * 4);
    void *x[3];
    for (size_t i = 0; i < N; i++)
        put(&want, i, ncclFloat32, together(w->ranks, i, ncclSum));
    for (int i = 0; i < 3; i++)
        x[i] = upload(buffer(w->rank, N, ncclFloat32));
    MUST(ncclGroupStart());
    for (int i = 0; i < 3; i++)
        MUST(ncclAllReduce(x[i], x[i], N, ncclFloat32, ncclSum, w->comm, w->stream));
    MUST(ncclGroupEnd());
    for (int i = 0; i < 3; i++)
        expect(holds(w, x[i], want), w, "ncclAllReduce of a group differs");
    if (w->rank == 0)
        MUST(ncclSend(x[0], N, ncclFloat32, 1, w->comm, w->stream));
    if (w->rank == 1)
        MUST(ncclRecv(x[1], N, ncclFloat32, 0, w->comm, w->stream));
    MUST(cudaStreamSynchronize(w->stream));
}

/* Two streams, one communicator: calls take their turn as they were made. Rank 0 waits for the
   second one only. */
static void test_streams(World *w)
{
    cudaStream_t other;
    void *x = upload(buffer(w->rank, 50, ncclFloat32)), *y = upload(buffer(w->rank, 9, ncclInt32));
    std::vector<char> want(9 * 4);
    for (size_t i = 0; i < 9; i++)
        put(&want, i, ncclInt32, together(w->ranks, i, ncclSum));
    MUST(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    MUST(ncclAllReduce(x, x, 50, ncclFloat32, ncclSum, w->comm, other));
    MUST(ncclAllReduce(y, y, 9, ncclInt32, ncclSum, w->comm, w->stream));
    if (w->rank != 0)
        MUST(cudaStreamSynchronize(other));
    expect(holds(w, y, want), w, "the second ncclAllReduce differs");
    MUST(cudaStreamSynchronize(other));
}

static void test_graph(World *w)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    std::vector<char> want(20 * 8);
    void *x = upload(buffer(w->rank, 20, ncclFloat64));
    for (size_t i = 0; i < 20; i++) /* twice: the second time all hold the same */
        put(&want, i, ncclFloat64, together(w->ranks, i, ncclSum) * w->ranks);
    MUST(cudaStreamBeginCapture(w->stream, cudaStreamCaptureModeGlobal));
    MUST(ncclAllReduce(x, x, 20, ncclFloat64, ncclSum, w->comm, w->stream));
    MUST(cudaStreamEndCapture(w->stream, &graph));
    MUST(cudaGraphInstantiate(&exec, graph, 0));
    MUST(cudaGraphLaunch(exec, w->stream));
    MUST(cudaGraphLaunch(exec, w->stream));
    expect(holds(w, x, want), w, "ncclAllReduce in a graph differs");
    MUST(cudaGraphDestroy(graph));
    MUST(cudaGraphExecDestroy(exec)); /* or the communicator does not end */
}

static void test_all(World *w)
{
    int count = 0, rank = -1, version = 0;
    join(w);
    MUST(ncclCommCount(w->comm, &count));
    MUST(ncclCommUserRank(w->comm, &rank));
    MUST(ncclGetVersion(&version));
    expect(count == w->ranks && rank == w->rank && version >= 20000, w, "who am I");
    test_reductions(w);
    test_scatter_gather(w);
    test_rooted(w);
    test_pairs(w);
    test_group(w);
    test_streams(w);
    test_graph(w);
    MUST(ncclCommDestroy(w->comm));
}

/* ---- what goes wrong ------------------------------------------------------------------------- */

static void test_count(World *w)
{
    join(w);
    void *x = upload(buffer(w->rank, 20, ncclFloat32));
    MUST(ncclAllReduce(x, x, w->rank ? 20 : 19, ncclFloat32, ncclSum, w->comm, w->stream));
    MUST(cudaStreamSynchronize(w->stream));
}

static void test_kind(World *w)
{
    join(w);
    void *x = upload(buffer(w->rank, 20, ncclFloat32));
    if (w->rank)
        MUST(ncclAllReduce(x, x, 20, ncclFloat32, ncclSum, w->comm, w->stream));
    else
        MUST(ncclBroadcast(x, x, 20, ncclFloat32, 0, w->comm, w->stream));
    MUST(cudaStreamSynchronize(w->stream));
}

static void test_pair_count(World *w)
{
    join(w);
    void *x = upload(buffer(w->rank, 20, ncclFloat32));
    if (w->rank)
        MUST(ncclRecv(x, 20, ncclFloat32, 0, w->comm, w->stream));
    else
        MUST(ncclSend(x, 20, ncclInt32, 1, w->comm, w->stream));
    MUST(cudaStreamSynchronize(w->stream));
}

/* Everyone sends first and nobody receives: the group is missing. */
static void test_no_group(World *w)
{
    join(w);
    void *x = upload(buffer(w->rank, 20, ncclFloat32));
    MUST(ncclSend(x, 20, ncclFloat32, (w->rank + 1) % w->ranks, w->comm, w->stream));
    MUST(ncclRecv(x, 20, ncclFloat32, (w->rank + 1) % w->ranks, w->comm, w->stream));
    MUST(cudaStreamSynchronize(w->stream));
}

static void test_host_pointer(World *w)
{
    float x[4] = {};
    join(w);
    MUST(ncclAllReduce(x, x, 4, ncclFloat32, ncclSum, w->comm, w->stream));
}

static void test_unwritten(World *w)
{
    void *x;
    join(w);
    MUST(cudaMalloc(&x, 80));
    MUST(ncclAllReduce(x, x, 20, ncclFloat32, ncclSum, w->comm, w->stream));
    MUST(cudaStreamSynchronize(w->stream));
}

/* The receive buffer begins inside the send buffer. */
static void test_overlap(World *w)
{
    join(w);
    float *x = (float *)upload(buffer(w->rank, 40, ncclFloat32));
    MUST(ncclAllReduce(x, x + 8, 20, ncclFloat32, ncclSum, w->comm, w->stream));
}

static void test_after_end(World *w)
{
    join(w);
    void *x = upload(buffer(w->rank, 20, ncclFloat32));
    MUST(ncclCommDestroy(w->comm));
    MUST(ncclAllReduce(x, x, 20, ncclFloat32, ncclSum, w->comm, w->stream));
}

/* What is reduced is still being filled in another stream. */
static void test_no_event(World *w)
{
    cudaStream_t other;
    join(w);
    void *x = upload(buffer(w->rank, 20, ncclFloat32));
    MUST(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    MUST(cudaMemsetAsync(x, 0, 80, other));
    MUST(ncclAllReduce(x, x, 20, ncclFloat32, ncclSum, w->comm, w->stream));
    MUST(cudaStreamSynchronize(w->stream));
    MUST(cudaStreamSynchronize(other));
}

/* The last rank does not come; the others see it in a query, and give up. */
static void test_missing(World *w)
{
    ncclResult_t state = ncclSuccess;
    join(w);
    void *x = upload(buffer(w->rank, 20, ncclFloat32));
    if (w->rank == w->ranks - 1) {
        usleep(400000);
        MUST(ncclCommAbort(w->comm));
        return;
    }
    MUST(ncclAllReduce(x, x, 20, ncclFloat32, ncclSum, w->comm, w->stream));
    for (int i = 0; i < 100; i++) {
        expect(cudaStreamQuery(w->stream) == cudaErrorNotReady, w, "it finished without a rank");
        usleep(1000);
    }
    MUST(ncclCommGetAsyncError(w->comm, &state));
    expect(state == ncclSuccess, w, "an error although all live");
    MUST(ncclCommAbort(w->comm));
    MUST(cudaStreamSynchronize(w->stream));
}

static void *abort_soon(void *world)
{
    usleep(200000);
    MUST(ncclCommAbort(((World *)world)->comm));
    return NULL;
}

/* The host waits for a collective that never ends; another thread of it aborts. */
static void test_watchdog(World *w)
{
    pthread_t thread;
    join(w);
    void *x = upload(buffer(w->rank, 20, ncclFloat32));
    MUST(pthread_create(&thread, NULL, abort_soon, w));
    if (w->rank != w->ranks - 1)
        MUST(ncclAllReduce(x, x, 20, ncclFloat32, ncclSum, w->comm, w->stream));
    MUST(cudaStreamSynchronize(w->stream));
    MUST(pthread_join(thread, NULL));
}

/* The program ends with a collective queued that cannot end: it does not stay for it. */
static void test_not_waited(World *w)
{
    join(w);
    void *x = upload(buffer(w->rank, 20, ncclFloat32));
    if (w->rank != w->ranks - 1)
        MUST(ncclAllReduce(x, x, 20, ncclFloat32, ncclSum, w->comm, w->stream));
}

/* The last rank dies: an error that is seen by asking. */
static void test_dead(World *w)
{
    ncclResult_t state = ncclSuccess;
    join(w);
    if (w->rank == w->ranks - 1)
        _exit(0);
    void *x = upload(buffer(w->rank, 20, ncclFloat32));
    MUST(ncclAllReduce(x, x, 20, ncclFloat32, ncclSum, w->comm, w->stream));
    for (int i = 0; i < 2000 && state == ncclSuccess; i++) {
        expect(cudaStreamQuery(w->stream) == cudaErrorNotReady, w, "it finished without a rank");
        MUST(ncclCommGetAsyncError(w->comm, &state));
        usleep(1000);
    }
    expect(state == ncclRemoteError, w, "no error although a rank has ended");
    expect(strlen(ncclGetLastError(w->comm)) > 0, w, "no message");
    MUST(ncclCommAbort(w->comm));
    MUST(cudaStreamSynchronize(w->stream));
}

/* A rank that never comes: without an abort the program would hang. */
static void test_hang(World *w)
{
    join(w);
    void *x = upload(buffer(w->rank, 20, ncclFloat32));
    if (w->rank)
        sleep(3);
    else
        MUST(ncclAllReduce(x, x, 20, ncclFloat32, ncclSum, w->comm, w->stream));
    MUST(cudaStreamSynchronize(w->stream));
}

/* A rank waits for another one in a way of its own, while that one waits for a collective: work
   goes on although its host asks for nothing. */
static void test_idle(World *w)
{
    char byte = 0;
    join(w);
    void *x = upload(buffer(w->rank, 20, ncclFloat32));
    MUST(ncclAllReduce(x, x, 20, ncclFloat32, ncclSum, w->comm, w->stream));
    if (w->rank == 0) {
        MUST(cudaStreamSynchronize(w->stream));
        for (int r = 1; r < w->ranks; r++)
            expect(write(w->pipe[1], &byte, 1) == 1, w, "write fails");
    } else {
        expect(read(w->pipe[0], &byte, 1) == 1, w, "read fails");
        MUST(cudaStreamSynchronize(w->stream));
    }
    MUST(ncclCommDestroy(w->comm));
}

static void join_not_blocking(World *w)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    MUST(cudaSetDevice(0));
    MUST(cudaStreamCreateWithFlags(&w->stream, cudaStreamNonBlocking));
    config.blocking = 0;
    const ncclResult_t r = ncclCommInitRankConfig(&w->comm, w->ranks, w->id, w->rank, &config);
    expect(r == ncclInProgress, w, "ncclCommInitRankConfig blocks");
}

/* Until the call before is done. */
static void until_done(World *w)
{
    ncclResult_t state;
    do {
        MUST(ncclCommGetAsyncError(w->comm, &state));
        usleep(1000);
    } while (state == ncclInProgress);
    expect(state == ncclSuccess, w, "a call fails");
}

/* A sum, alone, in a group and in a graph. */
static void test_not_blocking(World *w)
{
    std::vector<char> want(20 * 8);
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    void *x = upload(buffer(w->rank, 20, ncclFloat64));
    if (w->rank)
        usleep(100000);
    join_not_blocking(w);
    until_done(w);
    expect(ncclAllReduce(x, x, 20, ncclFloat64, ncclSum, w->comm, w->stream) == ncclInProgress, w,
           "ncclAllReduce is done at once");
    until_done(w);
    MUST(ncclGroupStart());
    MUST(ncclAllReduce(x, x, 20, ncclFloat64, ncclSum, w->comm, w->stream));
    expect(ncclGroupEnd() == ncclInProgress, w, "ncclGroupEnd is done at once");
    until_done(w);
    MUST(cudaStreamBeginCapture(w->stream, cudaStreamCaptureModeThreadLocal));
    (void)ncclAllReduce(x, x, 20, ncclFloat64, ncclSum, w->comm, w->stream);
    until_done(w);
    MUST(cudaStreamEndCapture(w->stream, &graph));
    MUST(cudaGraphInstantiate(&exec, graph, 0));
    MUST(cudaGraphDestroy(graph));
    MUST(cudaGraphLaunch(exec, w->stream));
    for (size_t i = 0; i < 20; i++)
        put(&want, i, ncclFloat64, together(w->ranks, i, ncclSum) * w->ranks * w->ranks);
    expect(holds(w, x, want), w, "sums that do not block differ");
    MUST(cudaGraphExecDestroy(exec));
    expect(ncclCommFinalize(w->comm) == ncclInProgress, w, "ncclCommFinalize blocks");
    until_done(w);
    MUST(ncclCommDestroy(w->comm));
}

/* The next call comes while this one is in progress. */
static void test_in_progress(World *w)
{
    void *x = upload(buffer(w->rank, 20, ncclFloat32));
    join_not_blocking(w);
    until_done(w);
    (void)ncclAllReduce(x, x, 20, ncclFloat32, ncclSum, w->comm, w->stream);
    (void)ncclAllReduce(x, x, 20, ncclFloat32, ncclSum, w->comm, w->stream);
}

/* What the stream is given while a call is in progress comes before it. */
static void test_too_soon(World *w)
{
    std::vector<char> want(20, (char)w->ranks);
    void *x = upload(buffer(w->rank, 20, ncclUint8));
    join_not_blocking(w);
    until_done(w);
    (void)ncclAllReduce(x, x, 20, ncclUint8, ncclSum, w->comm, w->stream);
    MUST(cudaMemsetAsync(x, 1, 20, w->stream));
    until_done(w);
    expect(holds(w, x, want), w, "what came behind the call waited for it");
}

static void capture_sum(World *w, void *x)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    MUST(cudaStreamBeginCapture(w->stream, cudaStreamCaptureModeGlobal));
    MUST(ncclAllReduce(x, x, 20, ncclFloat32, ncclSum, w->comm, w->stream));
    MUST(cudaStreamEndCapture(w->stream, &graph));
    MUST(cudaGraphInstantiate(&exec, graph, 0));
    MUST(cudaGraphDestroy(graph));
    MUST(cudaGraphLaunch(exec, w->stream));
}

static void test_graph_left(World *w)
{
    join(w);
    capture_sum(w, upload(buffer(w->rank, 20, ncclFloat32)));
    MUST(cudaStreamSynchronize(w->stream));
    MUST(ncclCommDestroy(w->comm));
}

static void test_graph_of_one(World *w)
{
    join(w);
    void *x = upload(buffer(w->rank, 20, ncclFloat32));
    if (w->rank == 0)
        capture_sum(w, x);
    else
        MUST(ncclAllReduce(x, x, 20, ncclFloat32, ncclSum, w->comm, w->stream));
    MUST(cudaStreamSynchronize(w->stream));
}

/* CUDASIM_FAIL says what the second call gives. */
static void test_injected(World *w)
{
    join(w);
    void *x = upload(buffer(w->rank, 20, ncclFloat32));
    MUST(ncclAllReduce(x, x, 20, ncclFloat32, ncclSum, w->comm, w->stream));
    const ncclResult_t r = ncclAllReduce(x, x, 20, ncclFloat32, ncclSum, w->comm, w->stream);
    expect(r == ncclSystemError, w, ncclGetErrorString(r));
    MUST(cudaStreamSynchronize(w->stream));
    MUST(ncclCommDestroy(w->comm));
}

/* Each rank has its device, then all the same one. */
static void test_devices(World *w)
{
    MUST(cudaSetDevice(w->rank));
    MUST(cudaStreamCreateWithFlags(&w->stream, cudaStreamNonBlocking));
    MUST(ncclCommInitRank(&w->comm, w->ranks, w->id, w->rank));
    test_all_reduce(w, ncclFloat32, ncclSum);
    MUST(ncclCommDestroy(w->comm));
}

static void test_same_device(World *w)
{
    MUST(cudaSetDevice(1));
    const ncclResult_t r = ncclCommInitRank(&w->comm, w->ranks, w->id, w->rank);
    expect(r == ncclInvalidUsage, w, "two ranks may have one device");
    expect(strstr(ncclGetLastError(NULL), "0 and 1") != NULL, w, ncclGetLastError(NULL));
}

static const struct {
    const char *name;
    void (*run)(World *w);
} tests[] = {
    { "all", test_all },
    { "count", test_count },
    { "kind", test_kind },
    { "pair-count", test_pair_count },
    { "no-group", test_no_group },
    { "host-pointer", test_host_pointer },
    { "unwritten", test_unwritten },
    { "overlap", test_overlap },
    { "after-end", test_after_end },
    { "no-event", test_no_event },
    { "missing", test_missing },
    { "watchdog", test_watchdog },
    { "not-waited", test_not_waited },
    { "dead", test_dead },
    { "hang", test_hang },
    { "idle", test_idle },
    { "devices", test_devices },
    { "same-device", test_same_device },
    { "not-blocking", test_not_blocking },
    { "in-progress", test_in_progress },
    { "too-soon", test_too_soon },
    { "graph-left", test_graph_left },
    { "graph-of-one", test_graph_of_one },
    { "injected", test_injected },
};

int main(int argc, char **argv)
{
    World w = { argc == 3 ? atoi(argv[1]) : 0, 0, {}, NULL, NULL, {} };
    int status = 0, most = 0;
    MUST(w.ranks < 1);
    MUST(ncclGetUniqueId(&w.id));
    MUST(pipe(w.pipe));
    fflush(stdout);
    for (int r = 1; r < w.ranks && w.rank == 0; r++)
        if (fork() == 0)
            w.rank = r;
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++)
        if (strcmp(argv[2], tests[i].name) == 0)
            tests[i].run(&w);
    fflush(stdout);
    if (w.rank)
        exit(wrong);
    while (wait(&status) > 0)
        most = WEXITSTATUS(status) > most ? WEXITSTATUS(status) : most;
    return most > wrong ? most : wrong;
}
