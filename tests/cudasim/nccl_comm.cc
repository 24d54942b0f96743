/* nccl_comm.cc -- the ranks of a simulated NCCL communicator find each other, and part.
 *
 * In: an id that names a control file, the number of ranks, one rank. Out: all data files open in
 * every process. Each rank holds a lock on its own data file; it goes with the process, so that the
 * others can tell a rank that ended from one that is slow. Once all have opened all, the names are
 * removed: nothing is left behind.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "nccl_inside.h"

#define TIMEOUT 60.0 /* seconds that a rank waits for others, where the environment says none */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double timeout(void)
{
    const char *given = getenv("CUDASIM_NCCL_TIMEOUT");
    const double seconds = given ? atof(given) : TIMEOUT;
    if (!(seconds > 0))
        cudasim_report("CUDASIM_NCCL_TIMEOUT is a number of seconds, not '%s'", given);
    return seconds;
}

/* ---- joining --------------------------------------------------------------------------------- */

static std::string data_path(const NcclComm *c, int rank)
{
    return c->path + "." + std::to_string(rank);
}

static int open_file(const std::string &path, int flags)
{
    const int fd = open(path.c_str(), flags | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0)
        cudasim_report("NCCL: cannot open %s: %s", path.c_str(), strerror(errno));
    return fd;
}

static void map_control(NcclComm *c)
{
    const int fd = open_file(c->path, O_CREAT);
    c->control_bytes = sizeof(NcclControl) + sizeof(NcclSlot) * (size_t)c->ranks;
    int none = 0;
    struct stat st;
    if (fstat(fd, &st) != 0
        || (st.st_size < (off_t)c->control_bytes && ftruncate(fd, (off_t)c->control_bytes) != 0))
        cudasim_report("NCCL: no room for %s: %s", c->path.c_str(), strerror(errno));
    void *at = mmap(NULL, c->control_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (at == MAP_FAILED)
        cudasim_report("NCCL: cannot map %s: %s", c->path.c_str(), strerror(errno));
    c->control = (NcclControl *)at;
    if (!c->control->ranks.compare_exchange_strong(none, c->ranks) && none != c->ranks)
        cudasim_report("ncclCommInitRank: rank %d says there are %d ranks, another one %d", c->rank,
                       c->ranks, none);
}

/* First step: this rank is there, with its data file. */
static void claim(NcclComm *c)
{
    map_control(c);
    NcclSlot *own = &c->control->slot[c->rank];
    int away = 0;
    if (!own->pid.compare_exchange_strong(away, (int)getpid()))
        cudasim_report("ncclCommInitRank: two processes are rank %d (%d and %d)", c->rank, away,
                       (int)getpid());
    c->files.assign((size_t)c->ranks, -1);
    c->files[(size_t)c->rank] = open_file(data_path(c, c->rank), O_CREAT | O_EXCL);
    if (flock(c->files[(size_t)c->rank], LOCK_EX | LOCK_NB) != 0)
        cudasim_report("NCCL: cannot lock %s", data_path(c, c->rank).c_str());
    own->device = c->device;
    own->state = NCCL_CLAIMED;
}

static bool all_reached(NcclComm *c, int state)
{
    for (int r = 0; r < c->ranks; r++)
        if (c->control->slot[r].state < state) {
            nccl_wait(c, "ncclCommInitRank",
                      [c, state](int q) { return c->control->slot[q].state < state; });
            return false;
        }
    return true;
}

bool nccl_same_device(const NcclComm *c, int *one, int *other)
{
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices < 2)
        return false;
    for (*one = 0; *one < c->ranks; ++*one)
        for (*other = *one + 1; *other < c->ranks; ++*other)
            if (c->control->slot[*one].device == c->control->slot[*other].device)
                return true;
    return false;
}

bool nccl_join(NcclComm *c)
{
    if (!c->control)
        claim(c);
    if (!c->opened) {
        if (!all_reached(c, NCCL_CLAIMED))
            return false;
        for (int r = 0; r < c->ranks; r++)
            if (r != c->rank)
                c->files[(size_t)r] = open_file(data_path(c, r), 0);
        c->control->slot[c->rank].state = NCCL_OPENED;
        c->opened = true;
    }
    if (!all_reached(c, NCCL_OPENED))
        return false;
    unlink(data_path(c, c->rank).c_str());
    unlink(c->path.c_str()); /* of all ranks the first */
    c->joined = true;
    nccl_went_on(c);
    return true;
}

void nccl_leave(NcclComm *c)
{
    if (!c->control)
        return;
    c->control->slot[c->rank].state = NCCL_PARTED;
    flock(c->files[(size_t)c->rank], LOCK_UN);
    if (!c->joined) {
        unlink(data_path(c, c->rank).c_str());
        unlink(c->path.c_str());
    }
}

void nccl_part(NcclComm *c)
{
    if (!c->control)
        return;
    nccl_leave(c);
    for (size_t r = 0; r < c->files.size(); r++)
        if (c->files[r] >= 0)
            close(c->files[r]);
    munmap(c->control, c->control_bytes);
    c->control = NULL;
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* Its lock is free: the process is gone, or has left the communicator. */
static bool ended(const NcclComm *c, int rank)
{
    const int fd = c->files.empty() ? -1 : c->files[(size_t)rank];
    if (rank == c->rank || fd < 0 || flock(fd, LOCK_SH | LOCK_NB) != 0)
        return false;
    flock(fd, LOCK_UN);
    return true;
}

/* "rank 0: ncclAllReduce number 3 of 10 float32, sum; rank 1: 2 collectives" */
static std::string where_ranks_are(const NcclComm *c)
{
    std::string text;
    for (int r = 0; r < c->ranks && c->control; r++) {
        const NcclSlot *s = &c->control->slot[r];
        const uint64_t posted = s->posted, done = s->done;
        text += (r ? "; rank " : "rank ") + std::to_string(r) + ": ";
        if (s->state == NCCL_AWAY)
            text += "has not come";
        else if (posted > done)
            text += "in number " + std::to_string(posted) + ", " + nccl_describe(&s->what);
        else
            text += std::to_string(done) + " collectives done";
        if (s->n_sends)
            text += ", offers " + nccl_describe(&s->sends[0].what);
        if (ended(c, r))
            text += ", has ended";
    }
    return text;
}

void nccl_went_on(NcclComm *c) { c->since = 0; }

/* A rank may do what is waited for and end at once: so that it ended is looked at first. */
void nccl_wait(NcclComm *c, const char *what, std::function<bool(int)> missing)
{
    if (c->since == 0)
        c->since = now();
    for (int r = 0; r < c->ranks && c->error != ncclRemoteError; r++)
        if (ended(c, r) && missing(r)) {
            c->message = "rank " + std::to_string(r) + " has ended";
            c->error = ncclRemoteError;
        }
    if (now() - c->since > timeout())
        cudasim_report("%s: rank %d of %d has waited %g s for the others (%s)", what, c->rank,
                       c->ranks, timeout(), where_ranks_are(c).c_str());
}
