/* nccl.cu -- loads NCCL.
 *
 * In: the library that library.cu finds, or RT_NCCL=FILE instead. Out: its functions. Nothing is
 * linked: programs on one rank never look for it, and one that is missing or old is told like every
 * other fault of the start.
 */
#include "cuda/nccl.h"

#include <dlfcn.h>

#include "cuda/library.h"

#include "run.h"

#define NAME "libnccl.so.2"
#define HINT                                                                                       \
    "\nhint: install NCCL 2.18 or later for this CUDA (NVIDIA's package libnccl2), or let "        \
    "LD_LIBRARY_PATH or RT_NCCL=FILE say where " NAME " is"

enum { OLDEST = 21800 }; /* communicators that do not block, with their errors mended */

static RtNccl table;
static bool loaded;

static void load(const char *file)
{
    void *library = rt_library_open(NAME, file);
    if (!library)
        rt_fail(RT_EXIT_FAIL, "NCCL, which sums over GPUs, is missing: %s" HINT, rt_library_why());
#define LOAD(name)                                                                                 \
    table.name = (decltype(table.name))dlsym(library, "nccl" #name);                               \
    if (!table.name)                                                                               \
        rt_fail(RT_EXIT_FAIL, "NCCL is too old: it has no nccl" #name HINT);
#define X(name, arguments) LOAD(name)
    RT_NCCL_FUNCTIONS(X)
#undef X
    LOAD(GetErrorString)
    LOAD(GetLastError)
}

static int version(void)
{
    int number = 0;
    return table.GetVersion(&number) == ncclSuccess ? number : 0;
}

const RtNccl *rt_nccl(void)
{
    const char *file = rt_environment("RT_NCCL");
    if (loaded)
        return &table;
#if defined(RT_SIMULATOR) /* it is part of the program, unless a test wants another one */
    if (!file) {
#define X(name, arguments) table.name = nccl##name;
        RT_NCCL_FUNCTIONS(X)
#undef X
        table.GetErrorString = ncclGetErrorString;
        table.GetLastError = ncclGetLastError;
    } else
#endif
        load(file);
    loaded = true;
    if (version() < OLDEST)
        rt_fail(RT_EXIT_FAIL, "NCCL is too old: version %s, wanted 2.18" HINT, rt_nccl_version());
    return &table;
}

const char *rt_nccl_version(void)
{
    static char text[32];
    const int number = version();
    snprintf(text, sizeof text, "%d.%d.%d", number / 10000, number / 100 % 100, number % 100);
    return text;
}
