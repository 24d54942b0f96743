/* exchange.cu -- what ranks exchange on GPUs: NCCL, on a stream of its own. cpu/exchange.c is its
 * twin.
 *
 * In: numbers of this rank, on the compute stream. Out: those of all. The one idea: the host queues
 * exchanges and goes on. Each begins behind what the compute stream has, and leaves its number in
 * memory of the host when it begins and when it is done; so a thread that never asks the GPU sees
 * which one is late, and how much of the time the compute stream waited, in a CUDA graph too.
 */
#include "cuda/exchange.h"

#include <pthread.h>

#include "comm/exchange.h"
#include "cuda/exchange_nccl.h"
#include "rt_ptx.h"

enum { NOTES = 256, THREADS = 256, BLOCKS_MOST = 1024 };

typedef struct {             /* in memory of the host; each field is written by one stream */
    int64_t begun, done;     /* exchanges, by their stream; */
    uint64_t since, took;    /* ns: when the one under way began; of sums that are timed */
    uint64_t behind, waited; /* when the compute stream began to wait for them, and how long */
} Marks;

typedef enum { BEGINS, ENDS, ENDS_SUM, COMPUTE_WAITS, COMPUTE_GOES_ON } Mark;

static struct {
    RtStream stream;
    cudaEvent_t ready, done; /* the compute stream's, the exchange's */
    volatile Marks *marks, *device_marks;
    bool exact, narrow; /* sums in the order of ranks; gradients of fp32 go in bf16 */
    bool open;          /* a sum was begun that the compute stream does not wait for yet */
    bool repeat;
    double *values; /* of rt_exchange_gather */
    char *stage;    /* of host values */
    size_t stage_bytes;
    double allocated;
    pthread_mutex_t lock; /* of what the watch reads: */
    int64_t posted;
    struct {
        const char *what;
        bool patient; /* it is behind what may take long */
    } note[NOTES];
    int64_t seen; /* the watch's: begun, when it looked last, and since when */
    double seen_since;
} x = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* ---- kernels --------------------------------------------------------------------------------- */

__global__ void g_mark(volatile Marks *m, Mark what)
{
    const uint64_t now = rt_nanoseconds();
    switch (what) {
    case BEGINS:
        m->since = now;
        m->begun = m->begun + 1;
        break;
    case ENDS_SUM: m->took = m->took + (now - m->since); [[fallthrough]];
    case ENDS: m->done = m->done + 1; break;
    case COMPUTE_WAITS: m->behind = now; break;
    case COMPUTE_GOES_ON: m->waited = m->waited + (now - m->behind); break;
    }
}

/* to[i] = the sum (the largest) over ranks of from[rank * n + i], pairwise; from is used up. */
template <typename T>
__global__ void g_reduce_ranks(T *to, T *from, ptrdiff_t n, int ranks, bool most)
{
    for (ptrdiff_t i = (ptrdiff_t)blockIdx.x * THREADS + threadIdx.x; i < n;
         i += (ptrdiff_t)gridDim.x * THREADS) {
        for (int step = 1; step < ranks; step *= 2)
            for (int r = 0; r + step < ranks; r += 2 * step) {
                const T a = from[r * n + i], b = from[(r + step) * n + i];
                from[r * n + i] = most ? (T)rt_max(a, b) : a + b;
            }
        to[i] = from[i];
    }
}

__global__ void g_narrow_sums(uint16_t *to, const float *from, ptrdiff_t n)
{
    for (ptrdiff_t i = (ptrdiff_t)blockIdx.x * THREADS + threadIdx.x; i < n;
         i += (ptrdiff_t)gridDim.x * THREADS)
        to[i] = rt_to_bf16(from[i]);
}

__global__ void g_widen_sums(float *to, const uint16_t *from, ptrdiff_t n)
{
    for (ptrdiff_t i = (ptrdiff_t)blockIdx.x * THREADS + threadIdx.x; i < n;
         i += (ptrdiff_t)gridDim.x * THREADS)
        to[i] = rt_of_bf16(from[i]);
}

static int blocks_for(ptrdiff_t n)
{
    const ptrdiff_t blocks = (n + THREADS - 1) / THREADS;
    return blocks < BLOCKS_MOST ? (int)blocks : (int)BLOCKS_MOST;
}

/* ---- as pieces.c asks for them --------------------------------------------------------------- */

static void *place_take(size_t bytes, const char *what)
{
    void *at = NULL;
    char size[RT_BYTES_TEXT];
    const cudaError_t error = cudaMalloc(&at, bytes);
    if (error != cudaSuccess)
        rt_fail(RT_EXIT_FAIL, "out of memory on the GPU: %s need %s: %s", what,
                rt_bytes((double)bytes, size), cudaGetErrorString(error));
    return at;
}

static void place_give(void *at) { RT_CUDA_CALL(&x.stream, cudaFree(at)); }

static void reduce(void *to, void *from, ptrdiff_t n, int ranks, RtType type, RtReduce op)
{
    const bool most = op == RT_MAX;
    if (type == RT_F64)
        RT_LAUNCH(&x.stream, x.stream.where, g_reduce_ranks<double>, blocks_for(n), THREADS, 0,
                  (double *)to, (double *)from, n, ranks, most);
    else
        RT_LAUNCH(&x.stream, x.stream.where, g_reduce_ranks<float>, blocks_for(n), THREADS, 0,
                  (float *)to, (float *)from, n, ranks, most);
}

static void narrow(uint16_t *to, const float *from, ptrdiff_t n)
{
    RT_LAUNCH(&x.stream, x.stream.where, g_narrow_sums, blocks_for(n), THREADS, 0, to, from, n);
}

static void widen(float *to, const uint16_t *from, ptrdiff_t n)
{
    RT_LAUNCH(&x.stream, x.stream.where, g_widen_sums, blocks_for(n), THREADS, 0, to, from, n);
}

static const RtMover mover = {
    place_take, place_give, rt_nccl_scatter_gather, rt_nccl_all_gather, reduce, narrow, widen
};

/* ---- one exchange ---------------------------------------------------------------------------- */

static void mark(RtStream *stream, Mark what)
{
    RT_LAUNCH(stream, stream->where, g_mark, 1, 1, 0, x.device_marks, what);
}

static void note(const char *what, bool patient)
{
    pthread_mutex_lock(&x.lock);
    x.note[x.posted % NOTES].what = what;
    x.note[x.posted++ % NOTES].patient = patient;
    pthread_mutex_unlock(&x.lock);
}

static void follow(RtStream *stream, cudaEvent_t event, RtStream *behind)
{
    RT_CUDA_CALL(behind, cudaEventRecord(event, behind->at));
    RT_CUDA_CALL(stream, cudaStreamWaitEvent(stream->at, event, 0));
}

/* What is queued between begin and end is one exchange, behind what the compute stream has. */
static void begin(const char *what)
{
    x.stream.where = what;
    rt_nccl_now(what);
    follow(&x.stream, x.ready, rt_device_stream());
    mark(&x.stream, BEGINS);
}

static void end(bool timed) { mark(&x.stream, timed ? ENDS_SUM : ENDS); }

/* The same of one that what the compute stream has next waits for. */
static void begin_now(const char *what, bool patient)
{
    note(what, patient);
    begin(what);
}

static void end_now(void)
{
    end(false);
    follow(rt_device_stream(), x.done, &x.stream);
}

void rt_exchange_join(void)
{
    RtStream *compute = rt_device_stream();
    if (!x.open)
        return;
    x.open = false;
    mark(compute, COMPUTE_WAITS);
    follow(compute, x.done, &x.stream);
    mark(compute, COMPUTE_GOES_ON);
}

void rt_exchange_repeat(bool repeat) { x.repeat = repeat; }

static bool is_recorded(void)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    RtStream *compute = rt_device_stream();
    RT_CUDA_CALL(compute, cudaStreamIsCapturing(compute->at, &status));
    return status != cudaStreamCaptureStatusNone;
}

int64_t rt_comm_begin_sum(void *at, ptrdiff_t n, RtType type, const char *what)
{
    if (rt_ranks() == 1 || n == 0)
        return 0;
    const bool recorded = !x.repeat && is_recorded(); /* it is noted when the graph is launched */
    if (!recorded)
        note(what, false);
    if (x.repeat)
        return 0;
    begin(what);
    if (x.exact || x.narrow)
        (void)pieces_run(rt_comm_world(),
                         RT_REDUCE_PIECES | RT_GATHER_PIECES | (x.narrow ? RT_NARROW_PIECES : 0),
                         at, n, type, RT_SUM);
    else
        rt_nccl_sum(at, n, type);
    end(true);
    x.open = true;
    return recorded ? 0 : x.posted;
}

void rt_comm_wait(int64_t number)
{
    if (number > 0)
        rt_exchange_join();
}

double *rt_exchange_gather(const double *values, int n, const char *what)
{
    begin_now(what, false);
    rt_nccl_gather(values, x.values, n);
    end_now();
    return x.values;
}

/* ---- values of the host ---------------------------------------------------------------------- */

static char *stage(size_t bytes)
{
    if (bytes > x.stage_bytes) {
        if (x.stage)
            place_give(x.stage);
        x.stage = (char *)place_take(bytes, "values of the host");
        x.stage_bytes = bytes;
    }
    return x.stage;
}

static void exchange_pieces(const RtComm *c, int pieces, void *at, ptrdiff_t n, RtType type,
                            RtReduce op, const char *what)
{
    const size_t bytes = (size_t)n * exchange_bytes_of(type);
    if (c->size == 1 || n == 0)
        return;
    char *const by = stage(bytes);
    rt_place_put(by, at, bytes);
    begin_now(what, false);
    (void)pieces_run(c, pieces, by, n, type, op);
    end_now();
    rt_place_get(at, by, bytes);
}

void rt_comm_all_reduce(const RtComm *c, void *at, ptrdiff_t n, RtType type, RtReduce op,
                        const char *what)
{
    exchange_pieces(c, RT_REDUCE_PIECES | RT_GATHER_PIECES, at, n, type, op, what);
}

void rt_comm_reduce_scatter(const RtComm *c, void *at, ptrdiff_t n, RtType type, RtReduce op,
                            const char *what)
{
    exchange_pieces(c, RT_REDUCE_PIECES, at, n, type, op, what);
}

void rt_comm_all_gather(const RtComm *c, void *at, ptrdiff_t n, RtType type, const char *what)
{
    exchange_pieces(c, RT_GATHER_PIECES, at, n, type, RT_SUM, what);
}

typedef void (*MoveBytes)(void *group, void *at, size_t bytes, int peer);

static void exchange_bytes(const RtComm *c, MoveBytes move, void *at, size_t bytes, int peer,
                           const char *what)
{
    if (c->size == 1 || bytes == 0)
        return;
    char *const by = stage(bytes);
    rt_place_put(by, at, bytes);
    begin_now(what, false);
    move(c->group, by, bytes, peer);
    end_now();
    if (move != rt_nccl_send)
        rt_place_get(at, by, bytes);
}

void rt_comm_broadcast(const RtComm *c, void *at, size_t bytes, int root, const char *what)
{
    exchange_bytes(c, rt_nccl_broadcast, at, bytes, root, what);
}

void rt_comm_send(const RtComm *c, const void *at, size_t bytes, int to, const char *what)
{
    exchange_bytes(c, rt_nccl_send, (void *)(uintptr_t)at, bytes, to, what);
}

void rt_comm_recv(const RtComm *c, void *at, size_t bytes, int from, const char *what)
{
    exchange_bytes(c, rt_nccl_recv, at, bytes, from, what);
}

void rt_comm_barrier(const RtComm *c, const char *what)
{
    if (c->size == 1)
        return;
    char *const by = stage(sizeof(double));
    rt_place_fill(by, 0, sizeof(double));
    begin_now(what, true);
    (void)pieces_run(c, RT_REDUCE_PIECES | RT_GATHER_PIECES, by, 1, RT_F64, RT_SUM);
    end_now();
    rt_stream_wait(rt_device_stream());
}

/* ---- groups ---------------------------------------------------------------------------------- */

/* A communicator of its own: its first rank makes the name, which all of c are given. */
void exchange_join(const RtComm *c, int colour, int first, RtComm *part)
{
    enum { DOUBLES = (int)(RT_NCCL_NAME / sizeof(double)) };
    double *all = (double *)rt_alloc((size_t)c->size * DOUBLES * sizeof *all, "a group of ranks");
    char *const name = (char *)(all + (size_t)first * DOUBLES);
    RT_UNUSED(colour);
    if (first == c->rank)
        rt_nccl_name(name);
    rt_comm_all_gather(c, all, (ptrdiff_t)c->size * DOUBLES, RT_F64, "the names of a split");
    part->group = rt_nccl_join(name, part->rank, part->size, "a split");
    rt_free(all);
}

void exchange_leave(void *group) { rt_nccl_leave(group); }

/* ---- what is late ---------------------------------------------------------------------------- */

void rt_exchange_look(void)
{
    if (rt_ranks() > 1)
        rt_nccl_look();
}

double rt_comm_bytes(void) { return x.allocated; }

double rt_comm_seconds(void) { return x.marks ? (double)x.marks->took * 1e-9 : 0; }

double rt_comm_waited(void) { return x.marks ? (double)x.marks->waited * 1e-9 : 0; }

/* Called by the watch. Exchanges are late by the time since they began on the GPU: what the compute
   stream does before does not count. */
static RtProgress progress(void)
{
    const double now = rt_now();
    RtProgress p = { .begun = x.marks ? x.marks->begun : 0 };
    const int64_t done = x.marks ? x.marks->done : 0;
    double since;
    const char *what = rt_nccl_waits(&since);
    if (p.begun != x.seen || p.begun == done)
        x.seen_since = now;
    x.seen = p.begun;
    if (what) {
        p.waited = now - since;
        p.late = p.waited - exchange_timeout();
    } else if (p.begun > done) {
        pthread_mutex_lock(&x.lock);
        what = x.note[(p.begun - 1) % NOTES].what;
        const bool patient = x.note[(p.begun - 1) % NOTES].patient;
        pthread_mutex_unlock(&x.lock);
        since = x.seen_since;
        p.waited = now - since;
        p.late = p.waited - (patient ? (double)RT_PATIENCE : exchange_timeout());
    }
    p.what = what;
    p.hint = " (NCCL's own view: echo verbose status | nc localhost 28028)";
    return p;
}

/* ---- open and close -------------------------------------------------------------------------- */

const char *exchange_names(const char *name)
{
    return strcmp(name, "auto") == 0 || strcmp(name, "nccl") == 0
               ? NULL
               : "auto or nccl: this program is for GPUs";
}

static void open_streams(void)
{
    enum { FIRST = -1 }; /* priority: sums are few and short, and others wait for them */
    void *at = NULL;
    x.stream.device = rt_device();
    RT_CUDA_CALL(NULL, cudaStreamCreateWithPriority(&x.stream.at, cudaStreamNonBlocking, FIRST));
    RT_CUDA_CALL(NULL, cudaEventCreateWithFlags(&x.ready, cudaEventDisableTiming));
    RT_CUDA_CALL(NULL, cudaEventCreateWithFlags(&x.done, cudaEventDisableTiming));
    RT_CUDA_CALL(NULL, cudaHostAlloc(&at, sizeof(Marks), cudaHostAllocMapped));
    memset(at, 0, sizeof(Marks));
    RT_CUDA_CALL(NULL, cudaHostGetDevicePointer((void **)&x.device_marks, at, 0));
    x.marks = (volatile Marks *)at;
}

static void try_sum(char *at)
{
    double own = rt_rank() + 1, sum = rt_ranks() * (rt_ranks() + 1) / 2.0;
    rt_place_put(at, &own, sizeof own);
    (void)rt_comm_begin_sum(at, 1, RT_F64, "the first sum");
    rt_exchange_join();
    rt_place_get(&own, at, sizeof own);
    if (own < sum || own > sum)
        rt_fail(RT_EXIT_FAIL, "NCCL adds up 1 to %d to %g\nhint: NCCL_DEBUG=WARN tells more",
                rt_ranks(), own);
}

/* NCCL connects ranks, and takes memory for that, when a way of summing is first used, which it
   chooses by bytes and type; and two ranks when they first send. So all that a run asks for happens
   here, before its memory is planned, and nothing of it while a graph is recorded. */
static void connect_all(void)
{
    enum { LARGEST = 1 << 23, EACH = 8 }; /* elements */
    static const char what[] = "the first sums";
    const size_t bytes = LARGEST * sizeof(float);
    char *const at = (char *)place_take(bytes, what);
    try_sum(at);
    rt_place_fill(at, 0, bytes);
    for (ptrdiff_t n = x.exact || x.narrow ? 0 : LARGEST; n > 0; n /= EACH)
        for (int wide = 0; wide < 2; wide++)
            (void)rt_comm_begin_sum(at, wide ? (n + 1) / 2 : n, wide ? RT_F64 : RT_F32, what);
    rt_exchange_join();
    (void)rt_exchange_gather((const double *)at, RT_MAX_SLOTS + 1, what);
    begin_now(what, false);
    (void)pieces_run(rt_comm_world(), RT_REDUCE_PIECES | RT_GATHER_PIECES, at, rt_ranks(), RT_F64,
                     RT_SUM);
    end_now();
    rt_stream_wait(rt_device_stream());
    place_give(at);
    rt_comm_barrier(rt_comm_world(), "the start of the run");
    x.marks->took = 0;
    x.marks->waited = 0;
}

const char *exchange_start(const ExchangeOpen *e)
{
    x.exact = e->o->tree > 0;
    x.narrow = e->narrow;
    const double before = rt_memory_held();
    rt_nccl_now("the start of NCCL");
    rt_watch_exchanges(progress);
    const char *text = rt_nccl_open(e->o, e->launch, &x.stream);
    open_streams();
    rt_nccl_connect(e->launch);
    exchange_set_world(e->launch->rank, e->launch->size);
    pieces_open(&mover, e->launch->size, x.narrow);
    x.values = (double *)place_take((size_t)e->launch->size * (RT_MAX_SLOTS + 1) * sizeof(double),
                                    "sums over ranks");
    connect_all();
    x.allocated = rt_memory_held() - before;
    return text;
}

/* Rank 0 serves the store, so it is the last. */
static void end_together(void)
{
    char key[32];
    snprintf(key, sizeof key, "end/%d", rt_rank());
    rt_store_set(key, "", 0);
    for (int r = 1; rt_rank() == 0 && r < rt_ranks(); r++) {
        snprintf(key, sizeof key, "end/%d", r);
        free(rt_store_get(key, NULL));
    }
}

void exchange_stop(void)
{
    rt_stream_wait(&x.stream);
    rt_nccl_now("the end of NCCL");
    rt_nccl_close();
    end_together();
    rt_watch_stop();
    exchange_set_world(0, 1);
    pieces_close();
    place_give(x.values);
    if (x.stage)
        place_give(x.stage);
    x.allocated = 0;
}
