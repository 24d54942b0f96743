/* mpi.c -- the back end over MPI: Open MPI, MPICH and what is built like one of them.
 *
 * In: bytes. Out: bytes of other ranks. MPI is initialised by the main thread and then used by it
 * and one other, one at a time (MPI_THREAD_SERIALIZED). Its errors are returned, not fatal.
 */
#define _POSIX_C_SOURCE 200809L
#include <limits.h>
#include <math.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "wire/wire.h"

static MPI_Comm world;
static int size; /* of it */
static int *counts, *places, *own_counts, *own_places;
static char text[MPI_MAX_ERROR_STRING + 1], version[MPI_MAX_LIBRARY_VERSION_STRING + 1];

static const char *wrong(int error)
{
    int n = 0;
    if (error == MPI_SUCCESS)
        return NULL;
    if (MPI_Error_string(error, text, &n) != MPI_SUCCESS)
        snprintf(text, sizeof text, "error %d of MPI", error);
    return text;
}

/* Open MPI's ends with a comma and its package; MPICH's has lines. */
static void find_version(void)
{
    int n = 0;
    if (MPI_Get_library_version(version, &n) != MPI_SUCCESS)
        snprintf(version, sizeof version, "MPI");
    version[strcspn(version, ",\n")] = 0;
    for (char *c = version; *c; c++)
        *c = *c == '\t' ? ' ' : *c;
}

/* Started by the mpirun of another MPI, each process would be a world of its own, and train alone.
 */
static const char *find_stranger(void)
{
    static const char *const names[] = { "OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
                                         "SLURM_STEP_NUM_TASKS" };
    static char message[400];
    const char *found = NULL;
    for (int i = 0; i < 3 && size == 1; i++) {
        const char *value = getenv(names[i]);
        if (value && strtol(value, NULL, 10) == 1)
            return NULL;
        found = !found && value && strtol(value, NULL, 10) > 1 ? names[i] : found;
    }
    if (!found)
        return NULL;
    snprintf(message, sizeof message,
             "%.32s is %.16s, and %.64s knows of 1 rank: another MPI started it\n"
             "hint: take the mpirun of that MPI, or build gradcc with the other one's mpicc "
             "(make MPICC=mpicc.mpich)",
             found, getenv(found), version);
    return message;
}

static const char *wire_open(RtWireOpen *o)
{
    int has = 0, error = MPI_SUCCESS;
    MPI_Comm host;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &has) != MPI_SUCCESS)
        return "MPI_Init_thread failed";
    if (has < MPI_THREAD_SERIALIZED)
        return "this MPI cannot be used by a thread that is not the main one";
    if ((error = MPI_Comm_dup(MPI_COMM_WORLD, &world)) != MPI_SUCCESS)
        return wrong(error);
    MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN);
    MPI_Comm_rank(world, &o->rank);
    MPI_Comm_size(world, &size);
    o->size = size;
    find_version();
    o->text = o->version = version;
    const char *stranger = find_stranger();
    if (stranger)
        return stranger;
    if ((error = MPI_Comm_split_type(world, MPI_COMM_TYPE_SHARED, o->rank, MPI_INFO_NULL, &host))
        != MPI_SUCCESS)
        return wrong(error);
    MPI_Comm_rank(host, &o->local_rank);
    MPI_Comm_size(host, &o->local_size);
    MPI_Comm_free(&host);
    int **const lists[] = { &counts, &places, &own_counts, &own_places };
    for (int i = 0; i < 4; i++)
        if (!(*lists[i] = calloc((size_t)size, sizeof **lists[i])))
            return "no memory";
    return NULL;
}

/* ---- groups ---------------------------------------------------------------------------------- */

static MPI_Comm of(void *group) { return group ? *(MPI_Comm *)group : world; }

static const char *wire_split(void *group, int colour, int rank, void **part)
{
    MPI_Comm *new = malloc(sizeof *new);
    *part = new;
    if (!new)
        return "no memory";
    return wrong(MPI_Comm_split(of(group), colour, rank, new));
}

static void wire_free(void *part)
{
    MPI_Comm_free(part);
    free(part);
}

/* A call that waits would keep a processor busy that computes: it is begun, and looked after at
   intervals. Of an update of 620 ms (GPT-2 124M, 256 tokens, two ranks on two cores) this thread
   takes 40 ms of its rank's core so, and 220 ms where MPI_Wait spins; sums are as fast. */
static const char *wait_until(int error, MPI_Request *request, double end)
{
    int done = 0;
    for (long pause = 10000; error == MPI_SUCCESS; pause = pause < 500000 ? 2 * pause : pause) {
        error = MPI_Test(request, &done, MPI_STATUS_IGNORE);
        if (done)
            break;
        if (error == MPI_SUCCESS && MPI_Wtime() > end)
            return "nothing has come for too long";
        (void)nanosleep(&(struct timespec){ 0, pause }, NULL);
    }
    return wrong(error);
}

static const char *wait_for(int error, MPI_Request *request)
{
    return wait_until(error, request, HUGE_VAL);
}

/* ---- before there is a store ----------------------------------------------------------------- */

static const char *wire_meet(void *at, size_t n, double seconds)
{
    MPI_Request request;
    return wait_until(MPI_Ibcast(at, (int)n, MPI_BYTE, 0, world, &request), &request,
                      MPI_Wtime() + seconds);
}

static void wire_abort(int exit_code)
{
    fflush(NULL);
    MPI_Abort(world, exit_code);
}

/* ---- exchanges ------------------------------------------------------------------------------- */

static const char too_long[] = "MPI counts bytes in 32 bits, and this is longer";

/* How many ranks; 0: a place is beyond what MPI counts to. */
static int set_lists(void *group, const size_t *at, const size_t *n)
{
    int ranks = 0;
    MPI_Comm_size(of(group), &ranks);
    for (int r = 0; r < ranks; r++) {
        if (at[r] > INT_MAX || n[r] > INT_MAX)
            return 0;
        places[r] = (int)at[r];
        counts[r] = (int)n[r];
    }
    return ranks;
}

static const char *wire_scatter_gather(void *group, const void *from, const size_t *at,
                                       const size_t *n, void *to, size_t each)
{
    const int ranks = set_lists(group, at, n);
    if (ranks == 0 || each > INT_MAX / (size_t)ranks)
        return too_long;
    for (int r = 0; r < ranks; r++) {
        own_places[r] = (int)(each * (size_t)r);
        own_counts[r] = (int)each;
    }
    MPI_Request request;
    return wait_for(MPI_Ialltoallv(from, counts, places, MPI_BYTE, to, own_counts, own_places,
                                   MPI_BYTE, of(group), &request),
                    &request);
}

static const char *wire_all_gather(void *group, void *base, const size_t *at, const size_t *n)
{
    MPI_Request request;
    if (set_lists(group, at, n) == 0)
        return too_long;
    return wait_for(MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_BYTE, base, counts, places, MPI_BYTE,
                                    of(group), &request),
                    &request);
}

static const char *wire_broadcast(void *group, void *at, size_t n, int root)
{
    MPI_Request request;
    if (n > INT_MAX)
        return too_long;
    return wait_for(MPI_Ibcast(at, (int)n, MPI_BYTE, root, of(group), &request), &request);
}

static const char *wire_send(void *group, const void *at, size_t n, int to)
{
    MPI_Request request;
    if (n > INT_MAX)
        return too_long;
    return wait_for(MPI_Isend(at, (int)n, MPI_BYTE, to, 0, of(group), &request), &request);
}

static const char *wire_recv(void *group, void *at, size_t n, int from)
{
    MPI_Request request;
    if (n > INT_MAX)
        return too_long;
    return wait_for(MPI_Irecv(at, (int)n, MPI_BYTE, from, 0, of(group), &request), &request);
}

static const char *wire_barrier(void *group)
{
    MPI_Request request;
    return wait_for(MPI_Ibarrier(of(group), &request), &request);
}

static void wire_close(void)
{
    MPI_Comm_free(&world);
    MPI_Finalize();
    free(counts);
    free(places);
    free(own_counts);
    free(own_places);
}

const RtWire rt_wire = {
    .abi = RT_WIRE_ABI,
    .name = "mpi",
    .open = wire_open,
    .meet = wire_meet,
    .abort = wire_abort,
    .split = wire_split,
    .free = wire_free,
    .scatter_gather = wire_scatter_gather,
    .all_gather = wire_all_gather,
    .broadcast = wire_broadcast,
    .send = wire_send,
    .recv = wire_recv,
    .barrier = wire_barrier,
    .close = wire_close,
};
