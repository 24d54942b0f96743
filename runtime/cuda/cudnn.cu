/* cudnn.cu -- loads cuDNN; the only file that knows where it lies.
 *
 * In: the loader's own places, CUDA_HOME, the toolkit's usual folders, or RT_CUDNN=FILE instead.
 * Out: its functions. As with cuBLASLt, nothing is linked: programs that do not ask for it never
 * look for it, and one that is missing or old is told like every other fault of the start.
 */
#include <dlfcn.h>

#include "cuda/cudnn.h"

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

static void *open_in(const char *home, const char *folder)
{
    char *path = rt_printf("%s/%s/%s", home, folder, NAME);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    rt_free(path);
    return library;
}

static void *open_anywhere(void)
{
    const char *homes[] = { getenv("CUDA_HOME"), "/usr/local/cuda" };
    void *library = dlopen(NAME, RTLD_NOW | RTLD_LOCAL);
    for (int i = 0; i < 2; i++)
        if (homes[i] && *homes[i]) {
            library = library ? library : open_in(homes[i], "lib64");
            library = library ? library : open_in(homes[i], "lib");
        }
    return library;
}

static void load(const char *file)
{
    void *library = file ? dlopen(file, RTLD_NOW | RTLD_LOCAL) : open_anywhere();
    if (!library)
        rt_fail(RT_EXIT_FAIL, "cuDNN, which is to compute attention, is missing: %s" HINT,
                dlerror());
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
        load(file && *file ? file : NULL);
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
