/* comm_check.c -- --comm-check: do the ranks of this job exchange what they should, and how fast?
 *
 * In: ranks. Out: on each a line for each exchange, with what it got and whether that is right;
 * then bytes per second of a large sum. The classic one comes first: each rank gives its number,
 * all print the same sum.
 */
#include "comm/comm.h"

enum { MANY = 4 << 20 }; /* elements of the large sum */

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

static void check_reductions(const RtComm *c, const char *where)
{
    const int me = rt_comm_rank(c), size = rt_comm_size(c);
    const double sum = size * (size - 1) / 2.0;
    char name[64];
    double one = me;
    float half = (float)me;
    rt_comm_all_reduce(c, &one, 1, RT_F64, RT_SUM, "the sum of the check");
    snprintf(name, sizeof name, "all-reduce%s", where);
    tell(name, one, sum);
    rt_comm_all_reduce(c, &half, 1, RT_F32, RT_SUM, "the fp32 sum of the check");
    snprintf(name, sizeof name, "all-reduce%s, fp32", where);
    tell(name, (double)half, sum);
    one = me;
    rt_comm_all_reduce(c, &one, 1, RT_F64, RT_MAX, "the largest of the check");
    snprintf(name, sizeof name, "all-reduce%s, max", where);
    tell(name, one, size - 1);
}

static void check_shares(const RtComm *c)
{
    const int me = rt_comm_rank(c), size = rt_comm_size(c);
    double *at = rt_alloc((size_t)size * sizeof *at, "the check");
    for (int r = 0; r < size; r++)
        at[r] = me + 100 * r;
    rt_comm_reduce_scatter(c, at, size, RT_F64, RT_SUM, "the shares of the check");
    tell("reduce-scatter", at[me], size * (size - 1) / 2.0 + 100.0 * me * size);
    double sum = 0;
    for (int r = 0; r < size; r++)
        at[r] = r == me ? (double)me : (double)NAN;
    rt_comm_all_gather(c, at, size, RT_F64, "the gathering of the check");
    for (int r = 0; r < size; r++)
        sum += at[r];
    tell("all-gather, sum", sum, size * (size - 1) / 2.0);
    rt_free(at);
}

/* Each rank sends its number to the next one; even ranks send first. */
static void check_pairs(const RtComm *c)
{
    const int me = rt_comm_rank(c), size = rt_comm_size(c);
    const int next = (me + 1) % size, last = (me + size - 1) % size;
    const double own = me;
    double got = -1;
    if (me % 2 == 0)
        rt_comm_send(c, &own, sizeof own, next, "a number of the check, sent");
    rt_comm_recv(c, &got, sizeof got, last, "a number of the check, received");
    if (me % 2 != 0)
        rt_comm_send(c, &own, sizeof own, next, "a number of the check, sent");
    tell("send and receive", got, last);
}

/* A sum of gradients is begun and waited for, in the place. */
static void check_speed(const RtComm *c)
{
    const int size = rt_comm_size(c);
    const size_t bytes = (size_t)MANY * sizeof(float);
    float *at = rt_alloc(bytes, "the check");
    void *place = rt_place_alloc(bytes, "the check");
    double seconds = INFINITY;
    for (int turn = 0; turn < 4; turn++) {
        for (ptrdiff_t i = 0; i < MANY; i++)
            at[i] = (float)(i % 5);
        rt_place_put(place, at, bytes);
        rt_comm_barrier(c, "the start of a large sum");
        const double start = rt_now(), before = rt_comm_seconds();
        rt_comm_wait(rt_comm_begin_sum(place, MANY, RT_F32, "the large sum of the check"));
        (void)rt_place_look(place, sizeof *at); /* it is there */
        const double took = rt_comm_seconds() - before, wall = rt_now() - start;
        seconds = fmin(seconds, took > 0 ? took : wall);
    }
    rt_place_get(at, place, bytes);
    bool right = true;
    for (ptrdiff_t i = 0; i < MANY; i++)
        right = right && (double)at[i] == (double)(i % 5 * size);
    tell("a large sum", right, 1);
    printf("comm-check rank %d: %.0f MB summed in %.1f ms, %.2f GB/s (a ring's: %.2f)\n", rt_rank(),
           (double)bytes / 1e6, seconds * 1e3, (double)bytes / seconds / 1e9,
           2.0 * (size - 1) / size * (double)bytes / seconds / 1e9);
    rt_place_free(place);
    rt_free(at);
}

int rt_comm_check(void)
{
    const RtComm *world = rt_comm_world();
    check_reductions(world, "");
    check_shares(world);
    double root = rt_rank() == 0 ? 42 : 0;
    rt_comm_broadcast(world, &root, sizeof root, 0, "the broadcast of the check");
    tell("broadcast", root, 42);
    if (rt_ranks() > 1)
        check_pairs(world);
    RtComm *part = rt_comm_split(world, rt_rank() % 2);
    check_reductions(part, rt_rank() % 2 ? ", odd ranks" : ", even ranks");
    rt_comm_free(part);
    if (rt_ranks() > 1)
        check_speed(world);
    double all = failures;
    rt_comm_all_reduce(world, &all, 1, RT_F64, RT_SUM, "the failures of the check");
    return all > 0 ? RT_EXIT_FAIL : 0;
}
