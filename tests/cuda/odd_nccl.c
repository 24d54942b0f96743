/* odd_nccl.c -- an NCCL with something wrong, for RT_NCCL=FILE in the simulator. It hands calls on
 * to the program's own.
 *
 *   ODD_NCCL=old       of a version of years ago
 *   ODD_NCCL=other     of a newer version
 *   ODD_NCCL=nothing   sums are what they were
 *   ODD_NCCL=sleep:N   behind the Nth ncclAllGather, the host does not come back when it asks
 *   ODD_NCCL=broken:N  an error, the Nth time that it asks while nothing is in progress
 *   ODD_NCCL=stuck:ncclCommFinalize   this call never comes back; or ncclCommInitRankConfig
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INTERNAL_ERROR = 3, IN_PROGRESS = 7 };

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

static void stuck(const char *call)
{
    const char *odd = getenv("ODD_NCCL");
    while (is("stuck:") && strcmp(odd + strlen("stuck:"), call) == 0)
        pause();
}

#define OF(name) dlsym(RTLD_DEFAULT, #name)
#define PASS(name, parameters, ...)                                                                \
    int name parameters                                                                            \
    {                                                                                              \
        int(*own) parameters = (int(*) parameters)OF(name);                                        \
        stuck(#name);                                                                              \
        return own(__VA_ARGS__);                                                                   \
    }

typedef void *P;
PASS(ncclGetUniqueId, (Id * id), id)
PASS(ncclCommInitRankConfig, (P * c, int ranks, Id id, int rank, P config), c, ranks, id, rank,
     config)
PASS(ncclCommFinalize, (P c), c)
PASS(ncclBroadcast, (P from, P to, size_t n, int type, int root, P c, P stream), from, to, n, type,
     root, c, stream)
PASS(ncclSend, (P at, size_t n, int type, int peer, P c, P stream), at, n, type, peer, c, stream)
PASS(ncclRecv, (P at, size_t n, int type, int peer, P c, P stream), at, n, type, peer, c, stream)

static int gathers, last; /* calls; the last answer to a question for errors */
int ncclAllGather(P from, P to, size_t n, int type, P c, P stream)
{
    int (*own)(P, P, size_t, int, P, P) = (int (*)(P, P, size_t, int, P, P))OF(ncclAllGather);
    gathers++;
    last = IN_PROGRESS;
    return own(from, to, n, type, c, stream);
}

int ncclCommDestroy(P c) { return ((int (*)(P))OF(ncclCommDestroy))(c); }

int ncclGroupStart(void) { return ((int (*)(void))OF(ncclGroupStart))(); }

int ncclGroupEnd(void) { return ((int (*)(void))OF(ncclGroupEnd))(); }

int ncclAllReduce(P from, P to, size_t n, int type, int op, P c, P stream)
{
    int (*own)(P, P, size_t, int, int, P,
               P) = (int (*)(P, P, size_t, int, int, P, P))OF(ncclAllReduce);
    if (is("nothing"))
        return SUCCESS;
    return own(from, to, n, type, op, c, stream);
}

int ncclCommGetAsyncError(P c, int *error)
{
    int (*own)(P, int *) = (int (*)(P, int *))OF(ncclCommGetAsyncError);
    static int idle;
    while (last == SUCCESS && gathers >= number() && is("sleep"))
        pause();
    const int result = own(c, error);
    idle += last == SUCCESS && *error == SUCCESS;
    last = *error;
    if (is("broken") && idle >= number())
        *error = INTERNAL_ERROR;
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
