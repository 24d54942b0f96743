/* odd_nccl.c -- an NCCL with something wrong, for RT_NCCL=FILE in the simulator. It hands calls on
 * to the program's own.
 *
 *   ODD_NCCL=old       of a version of years ago
 *   ODD_NCCL=other     of a newer version
 *   ODD_NCCL=nothing   sums are what they were
 *   ODD_NCCL=sleep:N   the host never comes back when it asks for errors the Nth time
 *   ODD_NCCL=later:N   of N calls each, the first N-1 answers are "in progress"
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, IN_PROGRESS = 7 };

typedef struct {
    char bytes[128];
} Id;

static int is(const char *what)
{
    const char *odd = getenv("ODD_NCCL");
    return odd && strncmp(odd, what, strlen(what)) == 0;
}

static int number(void)
{
    const char *odd = getenv("ODD_NCCL"), *at = odd ? strchr(odd, ':') : NULL;
    return at ? atoi(at + 1) : 0;
}

/* The answer of a call that is not done at once; asked again, it is, after a while. */
static int left;
static int later(int result)
{
    if (!is("later") || result != SUCCESS)
        return result;
    left = number();
    return IN_PROGRESS;
}

#define OF(name) dlsym(RTLD_DEFAULT, #name)
#define PASS(name, parameters, ...)                                                                \
    int name parameters                                                                            \
    {                                                                                              \
        int(*own) parameters = (int(*) parameters)OF(name);                                        \
        return later(own(__VA_ARGS__));                                                            \
    }

typedef void *P;
PASS(ncclGetUniqueId, (Id * id), id)
PASS(ncclCommInitRankConfig, (P * c, int ranks, Id id, int rank, P config), c, ranks, id, rank,
     config)
PASS(ncclCommFinalize, (P c), c)
PASS(ncclAllGather, (P from, P to, size_t n, int type, P c, P stream), from, to, n, type, c, stream)
PASS(ncclBroadcast, (P from, P to, size_t n, int type, int root, P c, P stream), from, to, n, type,
     root, c, stream)
PASS(ncclSend, (P at, size_t n, int type, int peer, P c, P stream), at, n, type, peer, c, stream)
PASS(ncclRecv, (P at, size_t n, int type, int peer, P c, P stream), at, n, type, peer, c, stream)

int ncclCommDestroy(P c) { return ((int (*)(P))OF(ncclCommDestroy))(c); }

int ncclGroupStart(void) { return ((int (*)(void))OF(ncclGroupStart))(); }

int ncclGroupEnd(void) { return later(((int (*)(void))OF(ncclGroupEnd))()); }

int ncclAllReduce(P from, P to, size_t n, int type, int op, P c, P stream)
{
    int (*own)(P, P, size_t, int, int, P,
               P) = (int (*)(P, P, size_t, int, int, P, P))OF(ncclAllReduce);
    if (is("nothing"))
        return SUCCESS;
    return later(own(from, to, n, type, op, c, stream));
}

int ncclCommGetAsyncError(P c, int *error)
{
    int (*own)(P, int *) = (int (*)(P, int *))OF(ncclCommGetAsyncError);
    static int asked;
    while (++asked >= number() && is("sleep"))
        pause();
    const int result = c ? own(c, error) : (*error = SUCCESS);
    if (left > 0 && --left > 0)
        *error = IN_PROGRESS;
    return result;
}

int ncclGetVersion(int *version)
{
    *version = is("old") ? 21403 : is("other") ? 23007 : 22809;
    return SUCCESS;
}

const char *ncclGetErrorString(int result)
{
    return ((const char *(*)(int))OF(ncclGetErrorString))(result);
}

const char *ncclGetLastError(P c) { return ((const char *(*)(P))OF(ncclGetLastError))(c); }
