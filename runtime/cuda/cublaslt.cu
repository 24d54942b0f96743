/* cublaslt.cu -- loads cuBLASLt.
 *
 * In: the library that library.cu finds, or RT_CUBLASLT=FILE instead. Out: its functions; one that
 * is missing or old is told like every other fault of the start.
 */
#include "cuda/cublaslt.h"

#include <dlfcn.h>

#include "cuda/library.h"
#include "cuda/matmul.h"

/* 12 has the types, epilogues and preferences used here; the header's own generation is asked for,
   since the layout of its structs is compiled in. */
#define TEXT_OF(x)    #x
#define TEXT(x)       TEXT_OF(x)
#define LT_NAME       "libcublasLt.so." TEXT(CUBLAS_VER_MAJOR)
#define LT_OLDEST     ((size_t)CUBLAS_VER_MAJOR * 10000)
#define LT_PACKAGES   "CUDA toolkit " TEXT(CUBLAS_VER_MAJOR)
#define LT_VERSION(v) (int)((v) / 10000), (int)((v) / 100 % 100), (int)((v) % 100)

static RtLt table;
static bool loaded;

static void load(const char *file)
{
    void *library = rt_library_open(LT_NAME, file);
    if (!library)
        rt_fail(RT_EXIT_FAIL,
                "cuBLASLt, which computes products, is missing: %s\nhint: install " LT_PACKAGES
                ", or let LD_LIBRARY_PATH name the folder of " LT_NAME
                ", or CUDA_HOME that of the toolkit, with lib64 in it",
                rt_library_why());
#define X(name)                                                                                    \
    table.name = (decltype(table.name))dlsym(library, "cublasLt" #name);                           \
    if (!table.name)                                                                               \
        rt_fail(RT_EXIT_FAIL,                                                                      \
                "cuBLASLt is too old: it has no cublasLt" #name "\nhint: install " LT_PACKAGES);
    RT_LT_FUNCTIONS(X)
#undef X
}

const RtLt *rt_lt(void)
{
    const char *file = getenv("RT_CUBLASLT");
    if (loaded)
        return &table;
#if defined(RT_SIMULATOR) /* it is part of the program, unless a test wants another one */
    if (!file) {
#define X(name) table.name = cublasLt##name;
        RT_LT_FUNCTIONS(X)
#undef X
    } else
#endif
        load(file);
    const size_t version = table.GetVersion();
    if (version < LT_OLDEST)
        rt_fail(RT_EXIT_FAIL,
                "cuBLASLt is too old: version %d.%d.%d, wanted %d.0.0\nhint: install " LT_PACKAGES,
                LT_VERSION(version), CUBLAS_VER_MAJOR);
    loaded = true;
    return &table;
}

const char *rt_lt_version(void)
{
    static char text[32];
    const size_t version = rt_lt()->GetVersion();
    snprintf(text, sizeof text, "%d.%d.%d", LT_VERSION(version));
    return text;
}
