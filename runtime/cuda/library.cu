/* library.cu -- opens libraries of NVIDIA's, and the only file that knows where they lie.
 *
 * In: the name of a library, and the file that a user names instead. Out: the library, or why there
 * is none. The one idea: a program that is linked with a library which is not there never reaches
 * main, and the loader's message has no hint; opened here, a missing one is told like every other
 * fault of the start. Where one was found that does not load, that is told, not the places that
 * have none.
 */
#include "cuda/library.h"

#include <dlfcn.h>
#include <unistd.h>

#include "run.h"

static char why[512];
static bool found; /* why is of a file that is there */

static void *open_file(const char *file)
{
    void *const library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    const char *said = library ? NULL : dlerror();
    if (!said)
        return library;
    /* of a name that it finds nowhere, the loader's message begins with that name */
    const bool there = strchr(file, '/') ? access(file, F_OK) == 0
                                         : strncmp(said, file, strlen(file)) != 0;
    if (!*why || (there && !found))
        (void)snprintf(why, sizeof why, "%s", said);
    found = found || there;
    return NULL;
}

void *rt_library_open(const char *name, const char *file)
{
    const char *const homes[] = { getenv("CUDA_HOME"), "/usr/local/cuda" };
    const char *const folders[] = { "lib64", "lib" };
    why[0] = 0;
    found = false;
    if (file && *file)
        return open_file(file);
    void *library = open_file(name);
    for (int i = 0; i < 4 && !library; i++)
        if (homes[i / 2] && *homes[i / 2]) {
            char *path = rt_printf("%s/%s/%s", homes[i / 2], folders[i % 2], name);
            library = open_file(path);
            rt_free(path);
        }
    return library;
}

const char *rt_library_why(void) { return why; }
