/* cudnn.cu -- loads cuDNN.
 *
 * In: the library that library.cu finds, or RT_CUDNN=FILE instead. Out: its functions. As with
 * cuBLASLt, nothing is linked: programs that do not ask for it never look for it, and one that is
 * missing or old is told like every other fault of the start.
 */
#include "cuda/cudnn.h"

#include <dlfcn.h>

#include "cuda/library.h"

#include "run.h"

#define NAME     "libcudnn.so.9"
#define PACKAGES "cuDNN 9.16 or later for this CUDA"
#define HINT                                                                                       \
    "\nhint: install " PACKAGES ", let LD_LIBRARY_PATH or RT_CUDNN=FILE say where " NAME           \
    " is, or take own kernels: RT_ATTENTION=own"

/* Before, sizes that are no multiple of 128 went wrong in gradients without a mask of their own. */
enum { OLDEST = 91600 };

static RtCudnn table;
static bool loaded;

static void load(const char *file)
{
    void *library = rt_library_open(NAME, file);
    if (!library)
        rt_fail(RT_EXIT_FAIL, "cuDNN, which is to compute attention, is missing: %s" HINT,
                rt_library_why());
#define X(name)                                                                                    \
    table.name = (decltype(table.name))dlsym(library, "cudnn" #name);                              \
    if (!table.name)                                                                               \
        rt_fail(RT_EXIT_FAIL, "cuDNN is too old: it has no cudnn" #name HINT);
    RT_CUDNN_FUNCTIONS(X)
#undef X
}

const RtCudnn *rt_cudnn(void)
{
    const char *file = getenv("RT_CUDNN");
    if (loaded)
        return &table;
#if defined(RT_SIMULATOR) /* it is part of the program, unless a test wants another one */
    if (!file) {
#define X(name) table.name = cudnn##name;
        RT_CUDNN_FUNCTIONS(X)
#undef X
    } else
#endif
        load(file);
    loaded = true;
    if (table.GetVersion() < OLDEST || table.GetVersion() >= 100000)
        rt_fail(RT_EXIT_FAIL, "cuDNN %s is here, wanted is 9.16 to 9.99" HINT, rt_cudnn_version());
    return &table;
}

const char *rt_cudnn_version(void)
{
    static char text[32];
    const int version = (int)rt_cudnn()->GetVersion();
    snprintf(text, sizeof text, "%d.%d.%d", version / 10000, version / 100 % 100, version % 100);
    return text;
}
