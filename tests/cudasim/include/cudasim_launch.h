/* cudasim_launch.h -- a launch: the arguments become the kernel's types and are copied at once. */
#ifndef CUDASIM_LAUNCH_H
#define CUDASIM_LAUNCH_H

#include <stdlib.h>
#include <new>
#include <type_traits>
#include <utility>

#include "cudasim.h"

typedef struct {
    const char *name;
    const void *kernel;
    dim3 grid, block;
    size_t shared;
    void *arguments; /* of malloc; kernels may read them where they are */
    size_t argument_bytes;
    void (*call)(const void *kernel, const void *arguments);
} CudasimLaunch;

/* Takes the arguments over. */
void cudasim_launch_queue(cudaStream_t stream, const CudasimLaunch *launch);

/* The arguments as one object; plain members, since a function that gives one would be checked. */
template <size_t I, typename T> struct CudasimArgument {
    T value;
};
template <typename I, typename... P> struct CudasimArguments;
template <size_t... I, typename... P>
struct CudasimArguments<std::index_sequence<I...>, P...> : CudasimArgument<I, P>... {
    CudasimArguments(P... p) : CudasimArgument<I, P>{ p }... {}
    __attribute__((no_sanitize("thread"))) static void call(const void *kernel, const void *at)
    {
        const CudasimArguments *a = (const CudasimArguments *)at;
        (void)a;
        ((void (*)(P...))kernel)(((const CudasimArgument<I, P> *)a)->value...);
    }
};

template <typename... P, typename... A>
void cudasim_launch(cudaStream_t stream, const char *name, dim3 grid, dim3 block, size_t shared,
                    void (*kernel)(P...), A... arguments)
{
    static_assert(sizeof...(P) == sizeof...(A), "the kernel takes another number of arguments");
    static_assert((std::is_trivially_copyable_v<P> && ...), "arguments of kernels are plain data");
    typedef CudasimArguments<std::index_sequence_for<P...>, P...> Kept;
    void *kept = aligned_alloc(64, (sizeof(Kept) + 63) & ~(size_t)63);
    new (kept) Kept(arguments...);
    CudasimLaunch launch = { name, (const void *)kernel, grid,      block, shared,
                             kept, sizeof(Kept),         Kept::call };
    cudasim_launch_queue(stream, &launch);
}

#endif
