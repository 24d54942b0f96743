/* exchange.c -- what ranks exchange: one thing behind the other, in a thread of its own.
 *
 * In: numbers of this rank. Out: numbers of all. The one idea: a sum over ranks is made of two
 * things that every back end has. Each rank is sent the others' numbers of its share, adds them
 * pairwise in the order of ranks, and sends the sums to all. So the bits depend neither on the back
 * end nor on who came first.
 */
#include "comm/exchange.h"

#include <pthread.h>
#include <unistd.h>

enum {
    SEGMENT = 32 << 20, /* most bytes of a sum at a time */
    RANGE = 1 << 30,    /* ... that is one exchange */
    QUEUE = 256,        /* exchanges that wait */
    BLOCK = 4096,       /* elements that are added at a time */
    PATIENCE = 3600,    /* seconds for what may take long */
};

typedef enum { SPLIT, ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, SEND, RECV, BARRIER } Kind;

typedef struct {
    Kind kind;
    const RtComm *comm;
    void *at;
    ptrdiff_t n; /* elements, bytes; or a colour */
    RtType type;
    RtReduce op;
    int peer; /* root; to, from */
    void **part;
    const char *what;
    bool timed; /* it is of gradients: nobody waits for it at once */
} Exchange;

static struct {
    const RtWire *wire;
    RtComm world;
    double timeout;
    char *received;          /* SEGMENT bytes */
    uint16_t *sent, *halves; /* of sums in bf16: SEGMENT / 2 bytes each; NULL: there are none */
    size_t *sent_at, *sent_bytes;
    size_t *from, *bytes; /* of each rank, in a segment */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t posted, finished;
    Exchange queue[QUEUE];
    int64_t n_posted, n_begun, n_done;
    double began; /* the one under way */
    double allocated;
    double seconds; /* of those that are timed */
    bool stop;
} x = { .world = { .size = 1 },
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .posted = PTHREAD_COND_INITIALIZER,
        .finished = PTHREAD_COND_INITIALIZER };

/* ---- sums ------------------------------------------------------------------------------------ */

/* to[i] = the sum (the largest) over ranks of from[rank * n + i], pairwise; from is used up. */
#define DEFINE_REDUCE(real, name, JOIN)                                                            \
    static void name(real *to, real *from, ptrdiff_t n, int ranks)                                 \
    {                                                                                              \
        for (ptrdiff_t at = 0; at < n; at += BLOCK) {                                              \
            const ptrdiff_t m = n - at < BLOCK ? n - at : BLOCK;                                   \
            for (int step = 1; step < ranks; step *= 2)                                            \
                for (int r = 0; r + step < ranks; r += 2 * step) {                                 \
                    real *restrict a = from + r * n + at;                                          \
                    const real *restrict b = from + (r + step) * n + at;                           \
                    for (ptrdiff_t i = 0; i < m; i++)                                              \
                        a[i] = JOIN(a[i], b[i]);                                                   \
                }                                                                                  \
            if (to != from)                                                                        \
                memcpy(to + at, from + at, (size_t)m * sizeof *to);                                \
        }                                                                                          \
    }
DEFINE_REDUCE(float, sum_f32, RT_PLUS)
DEFINE_REDUCE(double, sum_f64, RT_PLUS)
DEFINE_REDUCE(float, max_f32, rt_max)
DEFINE_REDUCE(double, max_f64, rt_max)

static size_t size_of(RtType type) { return type == RT_F64 ? sizeof(double) : sizeof(float); }

/* Of each rank's share of the n elements, what begins at `done` in it, at most so much. */
static void set_pieces(const RtComm *c, ptrdiff_t n, ptrdiff_t done, ptrdiff_t most, size_t each)
{
    for (int r = 0; r < c->size; r++) {
        const ptrdiff_t first = n * r / c->size + done, left = n * (r + 1) / c->size - first;
        x.from[r] = left > 0 ? (size_t)first * each : 0;
        x.bytes[r] = left > 0 ? (size_t)(left < most ? left : most) * each : 0;
    }
}

/* The pieces of the own share, of all ranks, become one. */
static const char *reduce_pieces(const Exchange *e)
{
    const RtComm *c = e->comm;
    const size_t own = x.bytes[c->rank];
    const char *wrong = x.wire->scatter_gather(c->group, e->at, x.from, x.bytes, x.received, own);
    if (wrong)
        return wrong;
    void *to = (char *)e->at + x.from[c->rank], *from = x.received;
    const ptrdiff_t n = (ptrdiff_t)(own / size_of(e->type));
    if (e->type == RT_F64)
        (e->op == RT_MAX ? max_f64 : sum_f64)(to, from, n, c->size);
    else
        (e->op == RT_MAX ? max_f32 : sum_f32)(to, from, n, c->size);
    return NULL;
}

/* The same, in 16 bits on the wire: each rank's numbers are rounded once, added in fp32, and the
   sum is rounded once. */
static const char *sum_narrow(const Exchange *e)
{
    const RtComm *c = e->comm;
    float *at = e->at, *own = (float *)(void *)x.received;
    const ptrdiff_t n = (ptrdiff_t)(x.bytes[c->rank] / sizeof(float));
    size_t first = 0;
    for (int r = 0; r < c->size; r++) {
        x.sent_at[r] = first;
        x.sent_bytes[r] = x.bytes[r] / 2;
        const float *from = at + x.from[r] / sizeof(float);
        for (size_t i = 0; i < x.bytes[r] / sizeof(float); i++)
            x.sent[first / 2 + i] = rt_to_bf16(from[i]);
        first += x.sent_bytes[r];
    }
    const char *wrong = x.wire->scatter_gather(c->group, x.sent, x.sent_at, x.sent_bytes, x.halves,
                                               x.sent_bytes[c->rank]);
    if (wrong)
        return wrong;
    for (ptrdiff_t i = 0; i < n * c->size; i++)
        own[i] = rt_of_bf16(x.halves[i]);
    sum_f32(own, own, n, c->size);
    uint16_t *to = x.sent + x.sent_at[c->rank] / 2;
    for (ptrdiff_t i = 0; i < n; i++)
        to[i] = rt_to_bf16(own[i]);
    wrong = x.wire->all_gather(c->group, x.sent, x.sent_at, x.sent_bytes);
    for (int r = 0; r < c->size && !wrong; r++)
        for (size_t i = 0; i < x.bytes[r] / sizeof(float); i++)
            at[x.from[r] / sizeof(float) + i] = rt_of_bf16(x.sent[x.sent_at[r] / 2 + i]);
    return wrong;
}

/* By pieces of all shares that fit into what is received. */
static const char *in_pieces(const Exchange *e)
{
    const RtComm *c = e->comm;
    const size_t each = size_of(e->type);
    const ptrdiff_t most = (ptrdiff_t)(SEGMENT / each) / c->size;
    const ptrdiff_t longest = (e->n + c->size - 1) / c->size;
    const char *wrong = NULL;
    for (ptrdiff_t done = 0; done < longest && !wrong; done += most) {
        set_pieces(c, e->n, done, most, each);
        if (e->timed && x.sent && e->type == RT_F32) {
            wrong = sum_narrow(e);
            continue;
        }
        if (e->kind != ALL_GATHER)
            wrong = reduce_pieces(e);
        if (e->kind != REDUCE_SCATTER && !wrong)
            wrong = x.wire->all_gather(c->group, e->at, x.from, x.bytes);
    }
    return wrong;
}

static const char *run(const Exchange *e)
{
    void *const group = e->comm->group;
    switch (e->kind) {
    case SPLIT: return x.wire->split(group, (int)e->n, e->comm->rank, e->part);
    case BROADCAST: return x.wire->broadcast(group, e->at, (size_t)e->n, e->peer);
    case SEND: return x.wire->send(group, e->at, (size_t)e->n, e->peer);
    case RECV: return x.wire->recv(group, e->at, (size_t)e->n, e->peer);
    case BARRIER: return x.wire->barrier(group);
    case ALL_REDUCE:
    case REDUCE_SCATTER:
    case ALL_GATHER: break;
    }
    return in_pieces(e);
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* The store learns first that a rank is gone, and says it better. */
__attribute__((noreturn)) static void end_exchange(const Exchange *e, const char *wrong)
{
    char *text = rt_printf("%s failed: %s", e->what, wrong);
    (void)sleep(3);
    rt_store_fail(RT_EXIT_STALL, text);
    (void)sleep(3);
    rt_tell(text);
    _exit(RT_EXIT_STALL);
}

static void *make_exchanges(void *unused)
{
    RT_UNUSED(unused);
    pthread_mutex_lock(&x.lock);
    for (;;) {
        while (!x.stop && x.n_begun == x.n_posted)
            pthread_cond_wait(&x.posted, &x.lock);
        if (x.n_begun == x.n_posted)
            break;
        const Exchange e = x.queue[x.n_begun % QUEUE];
        x.n_begun++;
        x.began = rt_now();
        pthread_mutex_unlock(&x.lock);
        const char *wrong = run(&e);
        if (wrong)
            end_exchange(&e, wrong);
        pthread_mutex_lock(&x.lock);
        x.n_done++;
        x.seconds += e.timed ? rt_now() - x.began : 0;
        pthread_cond_broadcast(&x.finished);
    }
    pthread_mutex_unlock(&x.lock);
    return NULL;
}

static RtProgress progress(void)
{
    static char text[512];
    pthread_mutex_lock(&x.lock);
    RtProgress p = { .begun = x.n_begun, .late = -1, .what = text };
    if (x.n_begun > x.n_done) {
        const Exchange *e = &x.queue[x.n_done % QUEUE];
        const double waited = rt_now() - x.began;
        p.late = waited - (e->kind == BARRIER ? PATIENCE : x.timeout);
        snprintf(text, sizeof text, "%s has waited for %.0f s", e->what, waited);
    }
    pthread_mutex_unlock(&x.lock);
    return p;
}

void exchange_start(const RtWire *wire, RtComm world, double timeout, bool narrow)
{
    x.wire = wire;
    x.world = world;
    x.timeout = timeout;
    const double before = rt_memory_held();
    x.received = rt_alloc(SEGMENT, "sums over ranks");
    x.from = rt_alloc((size_t)world.size * sizeof *x.from, "sums over ranks");
    x.bytes = rt_alloc((size_t)world.size * sizeof *x.bytes, "sums over ranks");
    if (narrow) {
        x.sent = rt_alloc(SEGMENT / 2, "sums over ranks in bf16");
        x.halves = rt_alloc(SEGMENT / 2, "sums over ranks in bf16");
        x.sent_at = rt_alloc((size_t)world.size * sizeof *x.sent_at, "sums over ranks in bf16");
        x.sent_bytes = rt_alloc((size_t)world.size * sizeof *x.sent_bytes, "sums in bf16");
    }
    x.allocated = rt_memory_held() - before;
    if (pthread_create(&x.thread, NULL, make_exchanges, NULL))
        rt_fail(RT_EXIT_FAIL, "a thread for exchanges cannot be started");
    const double eighth = timeout / 8;
    rt_watch_start(progress, eighth < 1 ? eighth : 1);
}

void exchange_stop(void)
{
    pthread_mutex_lock(&x.lock);
    x.stop = true;
    pthread_cond_signal(&x.posted);
    pthread_mutex_unlock(&x.lock);
    pthread_join(x.thread, NULL);
    rt_watch_stop();
    rt_free(x.received);
    rt_free(x.from);
    rt_free(x.bytes);
    rt_free(x.sent);
    rt_free(x.halves);
    rt_free(x.sent_at);
    rt_free(x.sent_bytes);
    x.world = (RtComm){ .size = 1 };
    x.allocated = 0;
}

/* ---- as the runtime calls it ----------------------------------------------------------------- */

static int64_t post(Exchange e)
{
    pthread_mutex_lock(&x.lock);
    while (x.n_posted - x.n_done == QUEUE)
        pthread_cond_wait(&x.finished, &x.lock);
    x.queue[x.n_posted % QUEUE] = e;
    const int64_t number = ++x.n_posted;
    pthread_cond_signal(&x.posted);
    pthread_mutex_unlock(&x.lock);
    return number;
}

static void wait_until(int64_t number)
{
    pthread_mutex_lock(&x.lock);
    while (x.n_done < number)
        pthread_cond_wait(&x.finished, &x.lock);
    pthread_mutex_unlock(&x.lock);
}

static void make(Exchange e)
{
    if (e.comm->size > 1 && (e.n > 0 || e.kind == BARRIER || e.kind == SPLIT))
        wait_until(post(e));
}

/* A sum by ranges, since back ends count bytes in 32 bits: the number of the last one. */
static int64_t post_ranges(Exchange e)
{
    const ptrdiff_t n = e.n, most = (ptrdiff_t)(RANGE / size_of(e.type));
    char *const at = e.at;
    int64_t last = 0;
    for (ptrdiff_t first = 0; first < n && e.comm->size > 1; first += most) {
        e.at = at + (size_t)first * size_of(e.type);
        e.n = n - first < most ? n - first : most;
        last = post(e);
    }
    return last;
}

const RtComm *rt_comm_world(void) { return &x.world; }

int rt_comm_rank(const RtComm *c) { return c->rank; }

int rt_comm_size(const RtComm *c) { return c->size; }

RtComm *rt_comm_split(const RtComm *c, int colour)
{
    RtComm *part = rt_alloc(sizeof *part, "a group of ranks");
    double *colours = rt_alloc((size_t)c->size * sizeof *colours, "a group of ranks");
    colours[c->rank] = colour;
    rt_comm_all_gather(c, colours, c->size, RT_F64, "the colours of a split");
    for (int r = 0; r < c->size; r++) {
        part->size += (int)colours[r] == colour;
        part->rank += (int)colours[r] == colour && r < c->rank;
    }
    rt_free(colours);
    make((Exchange){ .kind = SPLIT,
                     .comm = c,
                     .n = colour,
                     .part = &part->group,
                     .what = "a split" });
    return part;
}

void rt_comm_free(RtComm *c)
{
    if (c && c->group)
        x.wire->free(c->group); /* nothing is under way */
    rt_free(c);
}

void rt_comm_all_reduce(const RtComm *c, void *at, ptrdiff_t n, RtType type, RtReduce op,
                        const char *what)
{
    wait_until(post_ranges((Exchange){ ALL_REDUCE, c, at, n, type, op, .what = what }));
}

void rt_comm_reduce_scatter(const RtComm *c, void *at, ptrdiff_t n, RtType type, RtReduce op,
                            const char *what)
{
    make((Exchange){ REDUCE_SCATTER, c, at, n, type, op, .what = what });
}

void rt_comm_all_gather(const RtComm *c, void *at, ptrdiff_t n, RtType type, const char *what)
{
    make((Exchange){ ALL_GATHER, c, at, n, type, RT_SUM, .what = what });
}

void rt_comm_broadcast(const RtComm *c, void *at, size_t bytes, int root, const char *what)
{
    make((Exchange){ BROADCAST, c, at, (ptrdiff_t)bytes, .peer = root, .what = what });
}

void rt_comm_send(const RtComm *c, const void *at, size_t bytes, int to, const char *what)
{
    make((Exchange){ SEND, c, (void *)(uintptr_t)at, (ptrdiff_t)bytes, .peer = to, .what = what });
}

void rt_comm_recv(const RtComm *c, void *at, size_t bytes, int from, const char *what)
{
    make((Exchange){ RECV, c, at, (ptrdiff_t)bytes, .peer = from, .what = what });
}

void rt_comm_barrier(const RtComm *c, const char *what)
{
    make((Exchange){ .kind = BARRIER, .comm = c, .what = what });
}

double rt_comm_bytes(void) { return x.allocated; }

int64_t rt_comm_begin_sum(void *at, ptrdiff_t n, RtType type, const char *what)
{
    return post_ranges(
        (Exchange){ ALL_REDUCE, &x.world, at, n, type, RT_SUM, .what = what, .timed = true });
}

void rt_comm_wait(int64_t number) { wait_until(number); }

double rt_comm_seconds(void)
{
    pthread_mutex_lock(&x.lock);
    const double seconds = x.seconds;
    pthread_mutex_unlock(&x.lock);
    return seconds;
}

void rt_comm_sum(void *at, ptrdiff_t n, RtType type, const char *what)
{
    rt_comm_all_reduce(&x.world, at, n, type, RT_SUM, what);
}

int rt_comm_signal(void)
{
    double signal = rt_signal_pending();
    rt_comm_all_reduce(&x.world, &signal, 1, RT_F64, RT_MAX, "the signals of an update");
    return (int)signal;
}
