/* exchange.c -- what ranks exchange on CPUs. cuda/exchange.cu is its twin.
 *
 * In: numbers of this rank. Out: numbers of all. The one idea: one exchange behind the other, in a
 * thread of its own, which alone calls the back end; whoever wants one waits for its number, or
 * does something else until then.
 */
#include "comm/exchange.h"

#include <pthread.h>

enum {
    RANGE = 1 << 30, /* most bytes of a sum that is one exchange */
    QUEUE = 256,     /* exchanges that wait */
    BLOCK = 4096,    /* elements that are added at a time */
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
    bool narrow; /* gradients of fp32 go in bf16 */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t posted, finished;
    Exchange queue[QUEUE];
    int64_t n_posted, n_begun, n_done;
    double began; /* the one under way */
    double allocated;
    double seconds; /* of those that are timed */
    double waited;  /* for them */
    bool stop;
} x = { .lock = PTHREAD_MUTEX_INITIALIZER,
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

static void reduce(void *to, void *from, ptrdiff_t n, int ranks, RtType type, RtReduce op)
{
    if (type == RT_F64)
        (op == RT_MAX ? max_f64 : sum_f64)(to, from, n, ranks);
    else
        (op == RT_MAX ? max_f32 : sum_f32)(to, from, n, ranks);
}

static void narrow(uint16_t *to, const float *from, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n; i++)
        to[i] = rt_to_bf16(from[i]);
}

static void widen(float *to, const uint16_t *from, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n; i++)
        to[i] = rt_of_bf16(from[i]);
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
    case REDUCE_SCATTER:
    case ALL_GATHER:
    case ALL_REDUCE: break;
    }
    const int pieces = (e->kind != ALL_GATHER ? RT_REDUCE_PIECES : 0)
                       | (e->kind != REDUCE_SCATTER ? RT_GATHER_PIECES : 0)
                       | (e->timed && x.narrow ? RT_NARROW_PIECES : 0);
    return pieces_run(e->comm, pieces, e->at, e->n, e->type, e->op);
}

/* ---- the thread ------------------------------------------------------------------------------ */

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
            exchange_fail(e.what, wrong);
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
    pthread_mutex_lock(&x.lock);
    RtProgress p = { .begun = x.n_begun };
    if (x.n_begun > x.n_done) {
        const Exchange *e = &x.queue[x.n_done % QUEUE];
        p.what = e->what;
        p.waited = rt_now() - x.began;
        p.late = p.waited - (e->kind == BARRIER ? RT_PATIENCE : exchange_timeout());
    }
    pthread_mutex_unlock(&x.lock);
    return p;
}

const char *exchange_names(const char *name)
{
    static const char *const names[] = { "auto", "mpi", "gloo" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0)
            return NULL;
    return "auto, mpi or gloo";
}

const char *exchange_start(const ExchangeOpen *e)
{
    static RtMover mover = { .alloc = rt_alloc,
                             .free = rt_free,
                             .reduce = reduce,
                             .narrow = narrow,
                             .widen = widen };
    x.wire = e->wire;
    exchange_set_world(e->launch->rank, e->launch->size);
    x.narrow = e->narrow;
    mover.scatter_gather = e->wire->scatter_gather;
    mover.all_gather = e->wire->all_gather;
    const double before = rt_memory_held();
    pieces_open(&mover, e->launch->size, x.narrow);
    x.allocated = rt_memory_held() - before;
    if (pthread_create(&x.thread, NULL, make_exchanges, NULL))
        rt_fail(RT_EXIT_FAIL, "a thread for exchanges cannot be started");
    rt_watch_exchanges(progress);
    /* one that ends before others are connected to it would look lost to them */
    rt_comm_barrier(rt_comm_world(), "the start of the run");
    return e->text;
}

void exchange_stop(void)
{
    pthread_mutex_lock(&x.lock);
    x.stop = true;
    pthread_cond_signal(&x.posted);
    pthread_mutex_unlock(&x.lock);
    pthread_join(x.thread, NULL);
    rt_watch_stop();
    pieces_close();
    exchange_set_world(0, 1);
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
    const size_t each = exchange_bytes_of(e.type);
    const ptrdiff_t n = e.n, most = (ptrdiff_t)(RANGE / each);
    char *const at = e.at;
    int64_t last = 0;
    for (ptrdiff_t first = 0; first < n && e.comm->size > 1; first += most) {
        e.at = at + (size_t)first * each;
        e.n = n - first < most ? n - first : most;
        last = post(e);
    }
    return last;
}

void exchange_join(const RtComm *c, int colour, int first, RtComm *part)
{
    RT_UNUSED(first);
    make((Exchange){ .kind = SPLIT,
                     .comm = c,
                     .n = colour,
                     .part = &part->group,
                     .what = "a split" });
}

void exchange_leave(void *group) { x.wire->free(group); } /* nothing is under way */

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
    return post_ranges((Exchange){ ALL_REDUCE, rt_comm_world(), at, n, type, RT_SUM, .what = what,
                                   .timed = true });
}

void rt_comm_wait(int64_t number)
{
    const double start = rt_now();
    wait_until(number);
    x.waited += rt_now() - start;
}

double rt_comm_waited(void) { return x.waited; }

double rt_comm_seconds(void)
{
    pthread_mutex_lock(&x.lock);
    const double seconds = x.seconds;
    pthread_mutex_unlock(&x.lock);
    return seconds;
}
