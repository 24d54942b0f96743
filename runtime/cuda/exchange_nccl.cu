/* exchange_nccl.cu -- ranks meet in NCCL, and its calls.
 *
 * In: the store (comm/store.c), GPUs. Out: communicators, work on the stream of exchanges. The one
 * idea: communicators are opened so that they do not block the host. A call that is not done yet is
 * asked again until it is; the watch sees how long that takes, and a call that does block, too. Of
 * a call that is in progress nothing is queued yet, and later NCCLs begin a thread for each, so all
 * are done before the host goes on; whatever else they answer ends all ranks with one message.
 */
#include "cuda/exchange_nccl.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include "comm/exchange.h"
#include "cuda/nccl.h"

extern char **environ;

typedef struct {
    ncclComm_t at;
    int rank, size;
} Group;

static struct {
    Group world;
    RtStream *stream;
    const char *what;
    pthread_mutex_t lock; /* of these: */
    const char *waits;
    double since;
} n = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* ---- calls ----------------------------------------------------------------------------------- */

void rt_nccl_now(const char *what) { n.what = what; }

static void host_waits(const char *what)
{
    pthread_mutex_lock(&n.lock);
    n.waits = what;
    n.since = rt_now();
    pthread_mutex_unlock(&n.lock);
}

const char *rt_nccl_waits(double *since)
{
    pthread_mutex_lock(&n.lock);
    const char *what = n.waits;
    *since = n.since;
    pthread_mutex_unlock(&n.lock);
    return what;
}

__attribute__((noreturn)) static void fail(ncclComm_t comm, const char *call, ncclResult_t result)
{
    const char *more = rt_nccl()->GetLastError(comm);
    const char *hint = result == ncclSystemError
                           ? "; in a container --shm-size=1g --ulimit memlock=-1; "
                             "NCCL_SOCKET_IFNAME names the interface of the network"
                           : "";
    char *wrong = rt_printf("%s: %s%s%s%s\nhint: NCCL_DEBUG=WARN tells more%s", call,
                            rt_nccl()->GetErrorString(result), more && *more ? " (" : "",
                            more ? more : "", more && *more ? ")" : "", hint);
    exchange_fail(n.what, wrong);
}

/* Until the call is done, of which host_waits was told. */
static void check(ncclComm_t comm, const char *call, ncclResult_t result)
{
    while (result == ncclInProgress) {
        const ncclResult_t asked = rt_nccl()->CommGetAsyncError(comm, &result);
        if (asked != ncclSuccess)
            result = asked;
        (void)sched_yield();
    }
    host_waits(NULL);
    if (result != ncclSuccess)
        fail(comm, call, result);
}

/* Of a call inside a group, which is done at its end. */
static void check_in_group(ncclComm_t comm, const char *call, ncclResult_t result)
{
    if (result != ncclSuccess && result != ncclInProgress)
        fail(comm, call, result);
}

#define IN_GROUP(comm, name, ...) check_in_group(comm, "nccl" #name, rt_nccl()->name(__VA_ARGS__))
#define CALL(comm, name, ...)                                                                      \
    do {                                                                                           \
        host_waits(n.what);                                                                        \
        check(comm, "nccl" #name, rt_nccl()->name(__VA_ARGS__));                                   \
    } while (0)

static void begin_group(const Group *g)
{
    host_waits(n.what);
    IN_GROUP(g->at, GroupStart);
}

static void end_group(const Group *g) { check(g->at, "ncclGroupEnd", rt_nccl()->GroupEnd()); }

void rt_nccl_look(void)
{
    ncclResult_t now = ncclSuccess;
    if (!n.world.at)
        return;
    const ncclResult_t asked = rt_nccl()->CommGetAsyncError(n.world.at, &now);
    now = asked == ncclSuccess ? now : asked;
    if (now != ncclSuccess && now != ncclInProgress)
        fail(n.world.at, "an exchange that was queued", now);
}

static const Group *group_of(void *group) { return group ? (const Group *)group : &n.world; }

const char *rt_nccl_scatter_gather(void *group, const void *from, const size_t *at,
                                   const size_t *bytes, void *to, size_t each)
{
    const Group *g = group_of(group);
    begin_group(g);
    for (int r = 0; r < g->size; r++) {
        if (r != g->rank && bytes[r] > 0)
            IN_GROUP(g->at, Send, (const char *)from + at[r], bytes[r], ncclInt8, r, g->at,
                     n.stream->at);
        if (r != g->rank && each > 0)
            IN_GROUP(g->at, Recv, (char *)to + (size_t)r * each, each, ncclInt8, r, g->at,
                     n.stream->at);
    }
    end_group(g);
    if (each > 0)
        RT_CUDA_CALL(n.stream, cudaMemcpyAsync((char *)to + (size_t)g->rank * each,
                                               (const char *)from + at[g->rank], each,
                                               cudaMemcpyDeviceToDevice, n.stream->at));
    return NULL;
}

const char *rt_nccl_all_gather(void *group, void *base, const size_t *at, const size_t *bytes)
{
    const Group *g = group_of(group);
    begin_group(g);
    for (int r = 0; r < g->size; r++) {
        char *const its = (char *)base + at[r];
        if (bytes[r] > 0)
            IN_GROUP(g->at, Broadcast, its, its, bytes[r], ncclInt8, r, g->at, n.stream->at);
    }
    end_group(g);
    return NULL;
}

void rt_nccl_sum(void *at, ptrdiff_t count, RtType type)
{
    CALL(n.world.at, AllReduce, at, at, (size_t)count, type == RT_F64 ? ncclFloat64 : ncclFloat32,
         ncclSum, n.world.at, n.stream->at);
}

void rt_nccl_gather(const double *values, double *all, int count)
{
    CALL(n.world.at, AllGather, values, all, (size_t)count, ncclFloat64, n.world.at, n.stream->at);
}

void rt_nccl_broadcast(void *group, void *at, size_t bytes, int root)
{
    const Group *g = group_of(group);
    CALL(g->at, Broadcast, at, at, bytes, ncclInt8, root, g->at, n.stream->at);
}

void rt_nccl_send(void *group, void *at, size_t bytes, int to)
{
    const Group *g = group_of(group);
    CALL(g->at, Send, at, bytes, ncclInt8, to, g->at, n.stream->at);
}

void rt_nccl_recv(void *group, void *at, size_t bytes, int from)
{
    const Group *g = group_of(group);
    CALL(g->at, Recv, at, bytes, ncclInt8, from, g->at, n.stream->at);
}

/* ---- communicators --------------------------------------------------------------------------- */

void rt_nccl_name(char name[RT_NCCL_NAME])
{
    ncclUniqueId id;
    static_assert(sizeof id == RT_NCCL_NAME, "a name is an id of NCCL");
    CALL(NULL, GetUniqueId, &id);
    memcpy(name, &id, sizeof id);
}

static void join(Group *g, const char *name)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    config.blocking = 0;
    memcpy(&id, name, sizeof id);
    host_waits(n.what);
    const ncclResult_t result = rt_nccl()->CommInitRankConfig(&g->at, g->size, id, g->rank,
                                                              &config);
    check(g->at, "ncclCommInitRankConfig", result);
}

void *rt_nccl_join(const char *name, int rank, int size, const char *what)
{
    Group *g = (Group *)rt_alloc(sizeof *g, what);
    g->rank = rank;
    g->size = size;
    n.what = what;
    join(g, name);
    return g;
}

/* Graphs that hold its calls are gone by now: NCCL waits for that. */
static void leave(Group *g)
{
    CALL(g->at, CommFinalize, g->at);
    host_waits(n.what);
    IN_GROUP(NULL, CommDestroy, g->at);
    host_waits(NULL);
    g->at = NULL;
}

void rt_nccl_leave(void *group)
{
    leave((Group *)group);
    rt_free(group);
}

/* ---- open and close -------------------------------------------------------------------------- */

/* One text for each host, whatever its name is in a container. */
static void host_text(char text[64])
{
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (!f || fscanf(f, "%63s", text) != 1)
        (void)gethostname(text, 63);
    if (f)
        (void)fclose(f);
}

/* Where the launcher does not say it: how many of the ranks before this one are on its host. */
static int local_rank(const RtLaunch *l)
{
    char key[32], host[64] = "";
    int before = 0;
    if (l->local_rank >= 0)
        return l->local_rank;
    host_text(host);
    snprintf(key, sizeof key, "host/%d", l->rank);
    rt_store_set(key, host, strlen(host));
    for (int r = 0; r < l->rank; r++) {
        snprintf(key, sizeof key, "host/%d", r);
        char *other = rt_store_get(key, NULL);
        before += strcmp(other, host) == 0;
        free(other);
    }
    return before;
}

/* "NCCL 2.28.9, NCCL_DEBUG=INFO" */
static const char *version_text(void)
{
    char text[1024];
    size_t at = (size_t)snprintf(text, sizeof text, "NCCL %s", rt_nccl_version());
    for (char **e = environ; *e; e++)
        if (strncmp(*e, "NCCL_", 5) == 0 && at < sizeof text - 256)
            at += (size_t)snprintf(text + at, sizeof text - at, ", %.200s", *e);
    return rt_keep(rt_printf("%s", text));
}

const char *rt_nccl_open(const RtOptions *o, const RtLaunch *l, RtStream *stream)
{
    n.stream = stream;
    n.world.rank = l->rank;
    n.world.size = l->size;
    rt_device_choose((int)o->device, local_rank(l), o->tf32);
    (void)rt_device();
    (void)rt_nccl();
    return version_text();
}

/* Rank 0: are two ranks on one GPU, which NCCL may not survive? Do all have the same NCCL? */
static void compare(const RtLaunch *l)
{
    char **text = (char **)rt_alloc((size_t)l->size * sizeof *text, "the GPUs of all ranks");
    char key[32];
    for (int r = 0; r < l->size; r++) {
        snprintf(key, sizeof key, "gpu/%d", r);
        text[r] = rt_store_get(key, NULL);
        const char *its = strchr(text[r], '\n'), *own = strchr(text[0], '\n');
        if (strcmp(its, own) != 0)
            rt_fail(RT_EXIT_USAGE, "rank 0 has NCCL %s, rank %d %s\nhint: the same on every host",
                    own + 1, r, its + 1);
        for (int q = 0; q < r; q++)
            if (strcmp(text[q], text[r]) == 0)
                rt_fail(RT_EXIT_USAGE,
                        "ranks %d and %d are on one GPU, %.*s\nhint: as many ranks on a host as "
                        "GPUs; --local-rank, --device and CUDA_VISIBLE_DEVICES say which has which",
                        q, r, (int)strcspn(strchr(text[r], ' ') + 1, "\n"),
                        strchr(text[r], ' ') + 1);
    }
    for (int r = 0; r < l->size; r++)
        free(text[r]);
    rt_free(text);
}

void rt_nccl_connect(const RtLaunch *l)
{
    char host[64] = "", bus[32] = "", key[32], name[RT_NCCL_NAME];
    host_text(host);
    RT_CUDA_CALL(NULL, cudaDeviceGetPCIBusId(bus, sizeof bus, rt_device()->number));
    char *own = rt_printf("%s PCI %s\n%s", host, bus, rt_nccl_version());
    snprintf(key, sizeof key, "gpu/%d", l->rank);
    rt_store_set(key, own, strlen(own));
    rt_free(own);
    if (l->rank == 0) {
        compare(l);
        rt_nccl_name(name);
        rt_store_set("nccl", name, sizeof name);
    } else {
        size_t bytes;
        char *given = rt_store_get("nccl", &bytes);
        memcpy(name, given, sizeof name);
        free(given);
    }
    join(&n.world, name);
}

void rt_nccl_close(void) { leave(&n.world); }
