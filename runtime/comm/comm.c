/* comm.c -- a job is opened and closed: its launcher, its store, its back end.
 *
 * In: flags and the environment. Out: rt_rank, rt_ranks, and exchanges that work; or the end of the
 * program, on every rank with one message.
 */
#include <dlfcn.h>
#include <stdatomic.h>
#include <unistd.h>

#include "comm/exchange.h"

static struct {
    const RtWire *wire;
    RtLaunch launch;
    const char *version;
    bool by_mpi_alone;     /* there is no store yet that a failure could be told */
    double timeout, first; /* of exchanges; of those before rt_comm_settled */
    atomic_bool settled;
} comm = { .launch = { .size = 1 } };

int rt_rank(void) { return comm.launch.rank; }

int rt_ranks(void) { return comm.launch.size; }

int rt_local_ranks(void) { return comm.launch.local_size > 0 ? comm.launch.local_size : 1; }

const char *rt_comm_version(void) { return comm.version ? comm.version : "none"; }

ptrdiff_t rt_rank_batch(const RtTrain *t) { return (ptrdiff_t)(t->batch / rt_ranks()); }

ptrdiff_t rt_micro_batch(const RtTrain *t)
{
    return (ptrdiff_t)(rt_rank_batch(t) / rt_micro_steps(t));
}

int rt_micro_steps(const RtTrain *t) { return (int)t->accumulate * rt_leaves(); }

/* The store learns first that a rank is gone, and says it better. */
__attribute__((noreturn)) static void fail_late(const char *text)
{
    (void)sleep(3);
    while (!rt_store_tells()) /* the watch does, and ends the process */
        (void)pause();
    rt_tell(text);
    rt_report_failure(text);
    rt_store_fail(RT_EXIT_STALL, text);
    (void)sleep(3);
    _exit(RT_EXIT_STALL);
}

void exchange_fail(const char *what, const char *wrong)
{
    fail_late(rt_printf("%s failed: %s", what, wrong));
}

double exchange_timeout(void) { return comm.settled ? comm.timeout : comm.first; }

void rt_comm_settled(void) { comm.settled = true; }

/* ---- open and close -------------------------------------------------------------------------- */

bool rt_comm_has(const char *name)
{
    char file[64];
    snprintf(file, sizeof file, "libgradcc_%.32s.so", name);
    void *library = dlopen(file, RTLD_LAZY | RTLD_LOCAL);
    if (library)
        (void)dlclose(library);
    return library;
}

/* What there is instead of a back end. */
static const char *other_than(const char *name)
{
    const bool mpi = strcmp(name, "gloo") == 0;
    if (!rt_comm_has(mpi ? "mpi" : "gloo"))
        return "none";
    return mpi ? "MPI, for ranks that mpirun or srun starts" : "Gloo, for other launchers";
}

/* The back end of that name; ends the program where it is not here. */
static const RtWire *load(const char *name)
{
    char file[64];
    snprintf(file, sizeof file, "libgradcc_%.32s.so", name);
    void *library = dlopen(file, RTLD_NOW | RTLD_GLOBAL);
    const char *why = library ? "it is of another version of gradcc"
                              : rt_keep(rt_printf("%s", dlerror()));
    const RtWire *wire = library ? dlsym(library, "rt_wire") : NULL;
    if (!wire || wire->abi != RT_WIRE_ABI)
        rt_fail(RT_EXIT_USAGE,
                "started by %s, and the back end %s cannot be loaded: %s\nhint: gradcc is built "
                "with it where its library is installed; there is %s here",
                rt_launcher_name(comm.launch.by), name, why, other_than(name));
    return wire;
}

/* The back end of CPUs that this launcher needs; NULL: programs for GPUs need none. */
static const char *choose(const RtOptions *o)
{
    const bool mpi = comm.launch.by == RT_BY_MPI, automatic = strcmp(o->comm, "auto") == 0;
    const char *names = exchange_names(o->comm);
    if (names)
        rt_fail(RT_EXIT_USAGE, "--comm %s: wants %s", o->comm, names);
    if (!rt_place_is_host())
        return mpi ? "mpi" : NULL; /* which knows the ranks, and is asked for nothing else */
    if (comm.launch.by != RT_BY_NOBODY && !automatic && mpi != (strcmp(o->comm, "mpi") == 0))
        rt_fail(RT_EXIT_USAGE, "--comm %s: ranks started by %s talk through %s", o->comm,
                rt_launcher_name(comm.launch.by), mpi ? "MPI" : "Gloo");
    return mpi ? "mpi" : "gloo";
}

/* met: the store knows of this rank. */
static void open_wire(RtWireOpen *w, bool met)
{
    const char *wrong = comm.wire->open(w);
    char *text = wrong ? rt_printf("the back end %s cannot start: %s", comm.wire->name, wrong)
                       : NULL;
    if (text && met)
        fail_late(text);
    if (text)
        rt_fail(RT_EXIT_STALL, "%s", text);
}

/* Signs of life, from here on. */
static const char *task_of(const RtOptions *o)
{
    static const char *const commands
        [] = { [RT_DO_TRAIN] = "train", [RT_DO_EVAL] = "eval", [RT_DO_GENERATE] = "generate" };
    const char *task = o->comm_check ? "--comm-check"
                       : o->dry_run  ? "--dry-run"
                                     : commands[o->command];
    return rt_keep(rt_printf("%s, by %s", task, rt_place_is_host() ? "processors" : "GPUs"));
}

/* Ranks that do not do the same would wait for each other's exchanges. */
static void compare_tasks(const RtOptions *o)
{
    const char *own = task_of(o);
    char key[32];
    if (o->command == RT_DO_GENERATE)
        rt_fail(RT_EXIT_USAGE,
                "generate writes one text, and was started by %s on %d ranks\nhint: "
                "start it alone, without the launcher or its variables",
                rt_launcher_name(comm.launch.by), comm.launch.size);
    snprintf(key, sizeof key, "task/%d", comm.launch.rank);
    rt_store_set(key, own, strlen(own));
    for (int r = 1; r < comm.launch.size && comm.launch.rank == 0; r++) {
        snprintf(key, sizeof key, "task/%d", r);
        char *other = rt_store_get(key, NULL);
        if (strcmp(own, other) != 0)
            rt_fail(RT_EXIT_USAGE,
                    "ranks were started to do different things:\n  rank 0    %s\n  rank %-4d %s\n"
                    "hint: the same command on every rank",
                    own, r, other);
        free(other);
    }
    if (comm.launch.rank == 0)
        rt_store_set("tasks", "", 0);
    free(rt_store_get("tasks", NULL));
}

static void meet(const RtOptions *o)
{
    const double eighth = o->comm_timeout / 8;
    rt_store_open(&comm.launch, o->interface, o->rendezvous_timeout, o->comm_timeout);
    rt_watch_start(eighth < 1 ? eighth : 1);
    compare_tasks(o);
}

/* Rank 0 is where MPI says: its host and port are told through it. */
static void open_by_mpi(const RtOptions *o, RtWireOpen *w)
{
    struct {
        char host[64];
        int port;
    } at = { .port = 0 };
    RtLaunch *l = &comm.launch;
    open_wire(w, false);
    l->rank = w->rank;
    l->size = w->size;
    l->local_rank = w->local_rank;
    l->local_size = w->local_size;
    if (l->size == 1)
        return;
    comm.by_mpi_alone = true;
    if (gethostname(at.host, sizeof at.host - 1) || l->local_size == l->size)
        snprintf(at.host, sizeof at.host, "127.0.0.1");
    if (l->rank == 0)
        rt_store_serve(l, o->interface, o->rendezvous_timeout, o->comm_timeout, &at.port);
    if (l->rank == 0 && o->interface)
        snprintf(at.host, sizeof at.host, "%s", rt_store_address());
    const char *wrong = comm.wire->meet(&at, sizeof at, o->rendezvous_timeout);
    if (wrong)
        rt_fail(RT_EXIT_STALL, "the address of rank 0 cannot be told: %s", wrong);
    l->host = rt_keep(rt_printf("%s", at.host));
    l->port = at.port;
    meet(o);
    comm.by_mpi_alone = false;
    rt_net_check(o->interface);
}

static void open_by_store(const RtOptions *o, RtWireOpen *w)
{
    RtLaunch *l = &comm.launch;
    int port;
    if (l->rank == 0)
        rt_store_serve(l, o->interface, o->rendezvous_timeout, o->comm_timeout, &port);
    meet(o);
    rt_net_check(o->interface);
    if (l->local_size < 0)
        l->local_size = rt_store_local_ranks();
    w->rank = l->rank;
    w->size = l->size;
    w->address = rt_store_own();
    if (comm.wire)
        open_wire(w, true);
}

/* rt_fail ends this rank, and the others hear of it; but where the watch ends it already, that
   alone tells why. */
static void on_fail(int exit_code, const char *text)
{
    enum { LONGEST = 10 }; /* that it takes */
    const bool several = comm.launch.size > 1;
    if (several && !rt_store_tells()) {
        (void)sleep(LONGEST);
        _exit(exit_code);
    }
    rt_tell(text);
    rt_report_failure(text);
    if (comm.by_mpi_alone)
        comm.wire->abort(exit_code);
    if (several)
        rt_store_fail(exit_code, text);
}

static bool is_narrow(const RtOptions *o)
{
    const bool narrow = strcmp(o->comm_dtype, "bf16") == 0;
    if (!narrow && strcmp(o->comm_dtype, "fp32") != 0)
        rt_fail(RT_EXIT_USAGE, "--comm-dtype %s: wants fp32 or bf16", o->comm_dtype);
    if (narrow && o->tree > 0)
        rt_fail(RT_EXIT_USAGE, "--comm-dtype bf16 rounds what ranks send, so --tree cannot give "
                               "the same bits for each number of them");
    return narrow;
}

static void tell(const char *by)
{
    const RtLaunch *l = &comm.launch;
    printf("ranks    %d, started by %s; this is rank %d", l->size, rt_launcher_name(l->by),
           l->rank);
    if (l->local_size > 0)
        printf(", with %d of them on this host", l->local_size);
    printf("; they met at %s; sums by %s\n", rt_store_text(), by);
    const char *hosts = l->rank == 0 ? rt_store_hosts() : NULL;
    if (hosts)
        printf("hosts    %s\n", hosts);
}

void rt_comm_open(const RtOptions *o)
{
    RtLaunch *l = &comm.launch;
    rt_on_fail = on_fail;
    *l = rt_launch_find(o);
    const char *name = choose(o);
    const bool narrow = is_narrow(o);
    if (l->size == 1 && l->by != RT_BY_MPI)
        return;
    comm.wire = name ? load(name) : NULL;
    RtWireOpen w = {
        .rank = -1,
        .interface = o->interface,
        .timeout = o->comm_timeout,
        .set = rt_store_set,
        .get = rt_store_get,
    };
    if (l->by == RT_BY_MPI)
        open_by_mpi(o, &w);
    else
        open_by_store(o, &w);
    if (l->size == 1)
        return;
    comm.timeout = o->comm_timeout;
    comm.first = o->comm_check ? o->comm_timeout : fmax(o->comm_timeout, o->rendezvous_timeout);
    const char *by = exchange_start(&(ExchangeOpen){ o, l, comm.wire, w.text, narrow });
    if (l->rank > 0 && !o->comm_check)
        rt_speak_as(rt_keep(rt_printf("rank %d", l->rank)));
    if (!o->comm_check)
        rt_warnings_start();
    tell(by);
    /* without NCCL's variables: interfaces have other names on other hosts */
    comm.version = rt_place_is_host() ? w.version
                                      : rt_keep(rt_printf("%.*s", (int)strcspn(by, ","), by));
}

void rt_comm_close(void)
{
    if (comm.launch.size > 1) {
        rt_comm_barrier(rt_comm_world(), "the end of the run");
        rt_warnings_tell();
        rt_on_fail = NULL;
        rt_on_warning = NULL;
        exchange_stop();
        rt_store_close();
    }
    if (comm.wire)
        comm.wire->close();
    comm.wire = NULL;
    comm.launch = (RtLaunch){ .size = 1 };
}
