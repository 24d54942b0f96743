/* comm.c -- what ranks exchange: sums, one behind the other, in a thread of their own.
 *
 * In: numbers of this rank. Out: the same numbers on every rank. The one idea: a sum over ranks is
 * made of two things that every back end has. Each rank is sent the others' numbers of its share,
 * adds them pairwise in the order of ranks, and sends the sums to all. So the bits depend neither
 * on the back end nor on who came first, and they are those of a sum over micro-steps in one
 * process.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include "comm/comm.h"
#include "wire/wire.h"

enum {
    SEGMENT = 32 << 20, /* most bytes of a sum at a time */
    QUEUE = 256,        /* exchanges that wait */
    BLOCK = 4096,       /* elements that are added at a time */
    PATIENCE = 3600,    /* seconds for what may take long */
};

typedef enum { SUM, MAX, BARRIER } Kind;

typedef struct {
    Kind kind;
    void *at;
    ptrdiff_t n;
    RtType type;
    const char *what;
} Exchange;

static struct {
    const RtWire *wire;
    RtLaunch launch;
    double timeout;
    char *received;       /* SEGMENT bytes, and some for shares that are not equal */
    size_t *from, *bytes; /* of each rank, in a segment */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t posted, finished;
    Exchange queue[QUEUE];
    int64_t n_posted, n_begun, n_done;
    double began; /* the one under way */
    bool stop;
} comm = { .launch = { .size = 1 },
           .lock = PTHREAD_MUTEX_INITIALIZER,
           .posted = PTHREAD_COND_INITIALIZER,
           .finished = PTHREAD_COND_INITIALIZER };

int rt_rank(void) { return comm.launch.rank; }

int rt_ranks(void) { return comm.launch.size; }

int rt_local_ranks(void) { return comm.launch.local_size > 0 ? comm.launch.local_size : 1; }

/* ---- sums ------------------------------------------------------------------------------------ */

#define DEFINE_ADD(real, name)                                                                     \
    /* to[i] = the sum over ranks of from[rank * n + i], pairwise; from is used up. */             \
    static void name(real *to, real *from, ptrdiff_t n, int ranks)                                 \
    {                                                                                              \
        for (ptrdiff_t at = 0; at < n; at += BLOCK) {                                              \
            const ptrdiff_t m = n - at < BLOCK ? n - at : BLOCK;                                   \
            for (int step = 1; step < ranks; step *= 2)                                            \
                for (int r = 0; r + step < ranks; r += 2 * step) {                                 \
                    real *restrict a = from + r * n + at;                                          \
                    const real *restrict b = from + (r + step) * n + at;                           \
                    for (ptrdiff_t i = 0; i < m; i++)                                              \
                        a[i] += b[i];                                                              \
                }                                                                                  \
            memcpy(to + at, from + at, (size_t)m * sizeof *to);                                    \
        }                                                                                          \
    }
DEFINE_ADD(float, add_f32)
DEFINE_ADD(double, add_f64)

static void find_max(double *to, const double *from, ptrdiff_t n, int ranks)
{
    for (ptrdiff_t i = 0; i < n; i++) {
        to[i] = from[i];
        for (int r = 1; r < ranks; r++)
            to[i] = from[r * n + i] > to[i] ? from[r * n + i] : to[i];
    }
}

/* n elements at `at`, of at most SEGMENT bytes. NULL, or what went wrong. */
static const char *reduce(Kind kind, char *at, ptrdiff_t n, RtType type)
{
    const int ranks = comm.launch.size, me = comm.launch.rank;
    const size_t each = type == RT_F64 ? sizeof(double) : sizeof(float);
    for (int r = 0; r < ranks; r++) {
        const ptrdiff_t first = n * r / ranks, last = n * (r + 1) / ranks;
        comm.from[r] = (size_t)first * each;
        comm.bytes[r] = (size_t)(last - first) * each;
    }
    const ptrdiff_t own = (ptrdiff_t)(comm.bytes[me] / each);
    char *to = at + comm.from[me];
    const char *wrong = comm.wire->scatter_gather(at, comm.from, comm.bytes, comm.received,
                                                  comm.bytes[me]);
    if (wrong)
        return wrong;
    if (kind == MAX)
        find_max((double *)(void *)to, (const double *)(const void *)comm.received, own, ranks);
    else if (type == RT_F64)
        add_f64((double *)(void *)to, (double *)(void *)comm.received, own, ranks);
    else
        add_f32((float *)(void *)to, (float *)(void *)comm.received, own, ranks);
    return comm.wire->all_gather(at, comm.from, comm.bytes);
}

static const char *run(const Exchange *e)
{
    if (e->kind == BARRIER)
        return comm.wire->barrier();
    const size_t each = e->type == RT_F64 ? sizeof(double) : sizeof(float);
    const ptrdiff_t most = (ptrdiff_t)(SEGMENT / each);
    const char *wrong = NULL;
    for (ptrdiff_t at = 0; at < e->n && !wrong; at += most)
        wrong = reduce(e->kind, (char *)e->at + (size_t)at * each,
                       e->n - at < most ? e->n - at : most, e->type);
    return wrong;
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

static void *exchange(void *unused)
{
    RT_UNUSED(unused);
    pthread_mutex_lock(&comm.lock);
    for (;;) {
        while (!comm.stop && comm.n_begun == comm.n_posted)
            pthread_cond_wait(&comm.posted, &comm.lock);
        if (comm.n_begun == comm.n_posted)
            break;
        const Exchange e = comm.queue[comm.n_begun % QUEUE];
        comm.n_begun++;
        comm.began = rt_now();
        pthread_mutex_unlock(&comm.lock);
        const char *wrong = run(&e);
        if (wrong)
            end_exchange(&e, wrong);
        pthread_mutex_lock(&comm.lock);
        comm.n_done++;
        pthread_cond_broadcast(&comm.finished);
    }
    pthread_mutex_unlock(&comm.lock);
    return NULL;
}

static RtProgress progress(void)
{
    static char text[512];
    pthread_mutex_lock(&comm.lock);
    RtProgress p = { .begun = comm.n_begun, .late = -1, .what = text };
    if (comm.n_begun > comm.n_done) {
        const Exchange *e = &comm.queue[comm.n_done % QUEUE];
        const double waited = rt_now() - comm.began;
        p.late = waited - (e->kind == BARRIER ? PATIENCE : comm.timeout);
        snprintf(text, sizeof text, "%s has waited for %.0f s", e->what, waited);
    }
    pthread_mutex_unlock(&comm.lock);
    return p;
}

/* ---- as the runtime calls it ----------------------------------------------------------------- */

static int64_t post(Exchange e)
{
    pthread_mutex_lock(&comm.lock);
    while (comm.n_posted - comm.n_done == QUEUE)
        pthread_cond_wait(&comm.finished, &comm.lock);
    comm.queue[comm.n_posted % QUEUE] = e;
    const int64_t number = ++comm.n_posted;
    pthread_cond_signal(&comm.posted);
    pthread_mutex_unlock(&comm.lock);
    return number;
}

static void wait_until(int64_t number)
{
    pthread_mutex_lock(&comm.lock);
    while (comm.n_done < number)
        pthread_cond_wait(&comm.finished, &comm.lock);
    pthread_mutex_unlock(&comm.lock);
}

void rt_comm_sum(void *at, ptrdiff_t n, RtType type, const char *what)
{
    if (comm.launch.size > 1 && n > 0)
        wait_until(post((Exchange){ SUM, at, n, type, what }));
}

void rt_comm_max(double *at, int n, const char *what)
{
    if (comm.launch.size > 1)
        wait_until(post((Exchange){ MAX, at, n, RT_F64, what }));
}

int rt_comm_signal(void)
{
    double signal = rt_signal_pending();
    rt_comm_max(&signal, 1, "the signals of an update");
    return (int)signal;
}

void rt_comm_barrier(const char *what)
{
    if (comm.launch.size > 1)
        wait_until(post((Exchange){ .kind = BARRIER, .what = what }));
}

/* ---- open and close -------------------------------------------------------------------------- */

/* The back end of that name; ends the program where it is not here. */
static const RtWire *load(const char *name, const char *why)
{
    char file[64];
    snprintf(file, sizeof file, "libgradcc_%.32s.so", name);
    void *library = dlopen(file, RTLD_NOW | RTLD_GLOBAL);
    const RtWire *wire = library ? dlsym(library, "rt_wire") : NULL;
    if (!wire || wire->abi != RT_WIRE_ABI)
        rt_fail(RT_EXIT_USAGE,
                "%s, and the back end %s cannot be loaded: %s\nhint: gradcc is built with it where "
                "its library is installed; --comm names another one",
                why, name, library ? "it is of another version of gradcc" : dlerror());
    return wire;
}

static const char *choose(const RtOptions *o)
{
    static const char *const names[] = { "auto", "mpi", "gloo" };
    const char *name = o->comm;
    for (int i = 0; i < 3; i++)
        if (strcmp(name, names[i]) == 0)
            return i > 0 ? name : comm.launch.by == RT_BY_MPI ? "mpi" : "gloo";
    rt_fail(RT_EXIT_USAGE, "--comm %s: wants auto, mpi or gloo", name);
}

static const char *open_wire(RtWireOpen *w)
{
    const char *wrong = comm.wire->open(w);
    if (wrong)
        rt_fail(RT_EXIT_STALL, "the back end %s cannot start: %s", comm.wire->name, wrong);
    return w->text;
}

/* Rank 0 is where MPI says: its host and port are told through it. */
static void open_by_mpi(const RtOptions *o, RtWireOpen *w)
{
    struct {
        char host[64];
        int port;
    } at = { .port = 0 };
    RtLaunch *l = &comm.launch;
    open_wire(w);
    l->rank = w->rank;
    l->size = w->size;
    l->local_rank = w->local_rank;
    l->local_size = w->local_size;
    if (l->size == 1)
        return;
    if (gethostname(at.host, sizeof at.host - 1) || l->local_size == l->size)
        snprintf(at.host, sizeof at.host, "127.0.0.1");
    if (l->rank == 0)
        rt_store_serve(l, o->interface, o->rendezvous_timeout, comm.timeout, &at.port);
    const char *wrong = comm.wire->broadcast(&at, sizeof at, 0);
    if (wrong)
        rt_fail(RT_EXIT_STALL, "the address of rank 0 cannot be told: %s", wrong);
    l->host = rt_keep(rt_printf("%s", at.host));
    l->port = at.port;
    rt_store_open(l, o->rendezvous_timeout, comm.timeout);
}

static void open_by_store(const RtOptions *o, RtWireOpen *w)
{
    RtLaunch *l = &comm.launch;
    int port;
    if (l->rank == 0)
        rt_store_serve(l, o->interface, o->rendezvous_timeout, comm.timeout, &port);
    rt_store_open(l, o->rendezvous_timeout, comm.timeout);
    w->rank = l->rank;
    w->size = l->size;
    w->address = rt_store_own();
    open_wire(w);
}

void rt_comm_open(const RtOptions *o)
{
    comm.launch = rt_launch_find(o);
    comm.timeout = o->comm_timeout;
    if (comm.launch.size == 1 && comm.launch.by != RT_BY_MPI)
        return;
    char *why = rt_printf("started by %s", rt_launcher_name(comm.launch.by));
    const char *name = choose(o);
    comm.wire = load(name, why);
    RtWireOpen w = { .rank = -1,
                     .interface = o->interface,
                     .timeout = comm.timeout,
                     .set = rt_store_set,
                     .get = rt_store_get };
    if (comm.launch.by == RT_BY_MPI)
        open_by_mpi(o, &w);
    else
        open_by_store(o, &w);
    const int ranks = comm.launch.size;
    rt_free(why);
    if (ranks == 1)
        return;
    comm.received = rt_alloc(SEGMENT + (size_t)ranks * 16, "sums over ranks");
    comm.from = rt_alloc((size_t)ranks * sizeof *comm.from, "sums over ranks");
    comm.bytes = rt_alloc((size_t)ranks * sizeof *comm.bytes, "sums over ranks");
    if (pthread_create(&comm.thread, NULL, exchange, NULL))
        rt_fail(RT_EXIT_FAIL, "a thread for exchanges cannot be started");
    const double eighth = comm.timeout / 8;
    rt_watch_start(progress, eighth < 1 ? eighth : 1);
    if (comm.launch.rank > 0)
        rt_speak_as(rt_keep(rt_printf("rank %d", comm.launch.rank)));
    rt_before_fail = rt_store_fail;
    printf("ranks    %d, started by %s; sums by %s; met at %s\n", ranks,
           rt_launcher_name(comm.launch.by), w.text, rt_store_text());
}

void rt_comm_close(void)
{
    if (!comm.wire)
        return;
    if (comm.launch.size > 1) {
        rt_comm_barrier("the end of the run");
        rt_before_fail = NULL;
        pthread_mutex_lock(&comm.lock);
        comm.stop = true;
        pthread_cond_signal(&comm.posted);
        pthread_mutex_unlock(&comm.lock);
        pthread_join(comm.thread, NULL);
        rt_watch_stop();
        rt_store_close();
        rt_free(comm.received);
        rt_free(comm.from);
        rt_free(comm.bytes);
    }
    comm.wire->close();
    comm.wire = NULL;
    comm.launch = (RtLaunch){ .size = 1 };
}
