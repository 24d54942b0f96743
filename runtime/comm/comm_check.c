/* comm_check.c -- --comm-check: do the ranks of this job exchange what they should, and how fast?
 *
 * In: ranks. Out: on each a line for each exchange, with what it got and whether that is right;
 * then bytes per second of each. The classic one comes first: each rank gives its number,
 * all print the same sum.
 */
#include "comm/comm.h"

enum { MANY = 4 << 20, TURNS = 4 }; /* elements of a large one; so often it is timed */

static int failures;

/* what: "all-reduce". One write for a line, so that those of ranks do not mix. */
static void tell(const char *what, double got, double wanted)
{
    const bool right = got == wanted || (isnan(got) && isnan(wanted));
    failures += !right;
    char *line = rt_printf("comm-check rank %d: %-28s %g%s\n", rt_rank(), what, got,
                           right ? "" : rt_keep(rt_printf(", WRONG: it is %g", wanted)));
    fputs(line, stdout);
    fflush(stdout);
    rt_free(line);
}

/* ---- each exchange --------------------------------------------------------------------------- */

/* name, where: "all-reduce", ", odd ranks" */
static void tell_of(const char *name, const char *where, double got, double wanted)
{
    char what[64];
    snprintf(what, sizeof what, "%s%s", name, where);
    tell(what, got, wanted);
}

static void check_reductions(const RtComm *c, const char *where)
{
    const int me = rt_comm_rank(c), size = rt_comm_size(c);
    const double sum = size * (size - 1) / 2.0;
    double one = me;
    float half = (float)me;
    rt_comm_all_reduce(c, &one, 1, RT_F64, RT_SUM, "the sum of the check");
    tell_of("all-reduce", where, one, sum);
    rt_comm_all_reduce(c, &half, 1, RT_F32, RT_SUM, "the fp32 sum of the check");
    tell_of("all-reduce, fp32", where, (double)half, sum);
    one = me;
    rt_comm_all_reduce(c, &one, 1, RT_F64, RT_MAX, "the largest of the check");
    tell_of("all-reduce, max", where, one, size - 1);
}

static void check_shares(const RtComm *c, const char *where)
{
    const int me = rt_comm_rank(c), size = rt_comm_size(c);
    double *at = rt_alloc((size_t)size * sizeof *at, "the check");
    for (int r = 0; r < size; r++)
        at[r] = me + 100 * r;
    rt_comm_reduce_scatter(c, at, size, RT_F64, RT_SUM, "the shares of the check");
    tell_of("reduce-scatter", where, at[me], size * (size - 1) / 2.0 + 100.0 * me * size);
    double sum = 0;
    for (int r = 0; r < size; r++)
        at[r] = r == me ? (double)me : (double)NAN;
    rt_comm_all_gather(c, at, size, RT_F64, "the gathering of the check");
    for (int r = 0; r < size; r++)
        sum += at[r];
    tell_of("all-gather, sum", where, sum, size * (size - 1) / 2.0);
    rt_free(at);
}

/* Each rank sends to the next one; even ranks send first. */
static void pass_on(const RtComm *c, const void *own, void *got, size_t bytes)
{
    const int me = rt_comm_rank(c), size = rt_comm_size(c);
    const int next = (me + 1) % size, last = (me + size - 1) % size;
    if (me % 2 == 0)
        rt_comm_send(c, own, bytes, next, "what the check sends");
    rt_comm_recv(c, got, bytes, last, "what the check receives");
    if (me % 2 != 0)
        rt_comm_send(c, own, bytes, next, "what the check sends");
}

static void check_all(const RtComm *c, const char *where)
{
    const int me = rt_comm_rank(c), size = rt_comm_size(c);
    double root = me == 0 ? 42 : 0, own = me, got = -1;
    check_reductions(c, where);
    check_shares(c, where);
    rt_comm_broadcast(c, &root, sizeof root, 0, "the broadcast of the check");
    tell_of("broadcast", where, root, 42);
    if (size == 1)
        return;
    pass_on(c, &own, &got, sizeof own);
    tell_of("send and receive", where, got, (me + size - 1) % size);
}

/* ---- how fast -------------------------------------------------------------------------------- */

/* A large exchange: of gradients in the place, of values in host memory otherwise. */
static void sum_gradients(const RtComm *c, float *at, void *place)
{
    RT_UNUSED(c);
    RT_UNUSED(at);
    rt_comm_wait(rt_comm_begin_sum(place, MANY, RT_F32, "the large sum of the check"));
    (void)rt_place_look(place, sizeof *at); /* it is there */
}

static void scatter_many(const RtComm *c, float *at, void *place)
{
    RT_UNUSED(place);
    rt_comm_reduce_scatter(c, at, MANY, RT_F32, RT_SUM, "the large shares of the check");
}

static void gather_many(const RtComm *c, float *at, void *place)
{
    RT_UNUSED(place);
    rt_comm_all_gather(c, at, MANY, RT_F32, "the large gathering of the check");
}

static void broadcast_many(const RtComm *c, float *at, void *place)
{
    RT_UNUSED(place);
    rt_comm_broadcast(c, at, MANY * sizeof *at, 0, "the large broadcast of the check");
}

static void pass_many(const RtComm *c, float *at, void *place)
{
    RT_UNUSED(place);
    pass_on(c, at, at + MANY, MANY * sizeof *at);
}

static const struct {
    const char *name;
    void (*run)(const RtComm *c, float *at, void *place);
    bool host; /* of values in host memory, which a GPU's go through another time */
} speeds[] = {
    { "all-reduce", sum_gradients, false },  { "reduce-scatter", scatter_many, true },
    { "all-gather", gather_many, true },     { "broadcast", broadcast_many, true },
    { "send and receive", pass_many, true },
};

/* Seconds of the fastest of some turns. */
static double time_of(int i, const RtComm *c, float *at, void *place)
{
    double seconds = INFINITY;
    for (int turn = 0; turn < TURNS; turn++) {
        for (ptrdiff_t k = 0; k < MANY; k++)
            at[k] = (float)(k % 5);
        rt_place_put(place, at, MANY * sizeof *at);
        rt_comm_barrier(c, "the start of a large exchange");
        const double start = rt_now();
        speeds[i].run(c, at, place);
        seconds = fmin(seconds, rt_now() - start);
    }
    return seconds;
}

static void check_speed(const RtComm *c)
{
    const int size = rt_comm_size(c);
    const size_t bytes = (size_t)MANY * sizeof(float);
    float *at = rt_alloc(2 * bytes, "the check");
    void *place = rt_place_alloc(bytes, "the check");
    for (size_t i = 0; i < sizeof speeds / sizeof *speeds; i++) {
        const double seconds = time_of((int)i, c, at, place);
        printf("comm-check rank %d: %.0f MB, %-21s %8.2f ms, %.2f GB/s%s\n", rt_rank(),
               (double)bytes / 1e6, speeds[i].name, seconds * 1e3, (double)bytes / seconds / 1e9,
               speeds[i].host && !rt_place_is_host() ? ", from and to the host" : "");
        bool right = true;
        rt_place_get(at, place, bytes);
        for (ptrdiff_t k = 0; k < MANY && i == 0; k++)
            right = right && (double)at[k] == (double)(k % 5 * size);
        if (i == 0)
            tell("a large sum", right, 1);
    }
    rt_place_free(place);
    rt_free(at);
}

int rt_comm_check(void)
{
    const RtComm *world = rt_comm_world();
    check_all(world, "");
    RtComm *part = rt_comm_split(world, rt_rank() % 2);
    check_all(part, rt_rank() % 2 ? ", odd ranks" : ", even ranks");
    rt_comm_free(part);
    if (rt_ranks() > 1)
        check_speed(world);
    else
        printf("comm-check: one rank, which exchanges nothing: a launcher (mpirun, torchrun) or "
               "--rank starts more\n");
    double all = failures;
    rt_comm_all_reduce(world, &all, 1, RT_F64, RT_SUM, "the failures of the check");
    if (rt_rank() == 0 && rt_ranks() > 1)
        printf("comm-check: %s\n",
               all > 0 ? "something is WRONG" : "all exchanges are right on all ranks");
    return all > 0 ? RT_EXIT_FAIL : 0;
}
