/* gpu.c -- which GPUs are in this machine.
 *
 * In: the NVIDIA driver's library, if one is here. Out: compute capabilities. The one idea: the
 * driver is asked itself, since nvcc, told -arch=native where none answers, warns and makes code
 * for GPUs that no program of ours runs on.
 */
#include "gpu.h"

#include <dlfcn.h>

/* The driver's interface: 0 is success. */
enum { CAPABILITY_MAJOR = 75, CAPABILITY_MINOR = 76 };
typedef int (*Init)(unsigned flags);
typedef int (*Count)(int *count);
typedef int (*Attribute)(int *value, int attribute, int device);

/* A function of a library; the standard has no cast from void * to one. */
#define FIND(library, function, name) (*(void **)&(function) = dlsym(library, name))

/* Keeps the list ascending, each number once. */
static int insert(int *to, int n, int cap, int number)
{
    int at = 0;
    while (at < n && to[at] < number)
        at++;
    if (n == cap || (at < n && to[at] == number))
        return n;
    for (int i = n; i > at; i--)
        to[i] = to[i - 1];
    to[at] = number;
    return n + 1;
}

int gpu_capabilities(int *to, int cap)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    Init init;
    Count count;
    Attribute attribute;
    int devices = 0, n = 0;
    if (library == NULL)
        return 0;
    if (FIND(library, init, "cuInit") && FIND(library, count, "cuDeviceGetCount")
        && FIND(library, attribute, "cuDeviceGetAttribute") && init(0) == 0 && count(&devices) == 0)
        for (int i = 0; i < devices; i++) {
            int major, minor;
            if (attribute(&major, CAPABILITY_MAJOR, i) == 0
                && attribute(&minor, CAPABILITY_MINOR, i) == 0)
                n = insert(to, n, cap, 10 * major + minor);
        }
    dlclose(library);
    return n;
}
