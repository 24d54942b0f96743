/* cudasim_kernel.h -- the kernel language: keywords, indexes, barriers, warps, atomics, vectors.
 *
 * Shared variables are thread-local ones of the thread that runs the kernels: so they lie in one
 * range of memory, and templates can have them too. The one idea: what CUDA leaves open is an error
 * here (a lane that does not come, an order that is not given), what is not modelled is not there.
 */
#ifndef CUDASIM_KERNEL_H
#define CUDASIM_KERNEL_H

#include <math.h>
#include <stdint.h>
#include <string.h>
#include <type_traits>

#include "cudasim.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __shared__      static thread_local
/* A kernel begins with an instruction without effect for each 32 threads of its bound, so that the
   launch can count them. */
#define __launch_bounds__(threads, ...)                                                            \
    __attribute__((patchable_function_entry(((threads) + 31) / 32)))
#define __align__(n) __attribute__((aligned(n)))
#define __grid_constant__

/* ---- where a thread is ----------------------------------------------------------------------- */

/* Read by an instruction of its own: no checked access. */
__forceinline__ unsigned cudasim_word(const unsigned *at)
{
#if defined(__x86_64__)
    unsigned value;
    asm("movl %1, %0" : "=r"(value) : "m"(*at));
    return value;
#else
    return *at;
#endif
}

__forceinline__ uint3 cudasim_index(const uint3 &v)
{
    return uint3{ cudasim_word(&v.x), cudasim_word(&v.y), cudasim_word(&v.z) };
}

#define threadIdx cudasim_index(cudasim_thread)
#define blockIdx  cudasim_index(cudasim_block)
#define blockDim  cudasim_index(cudasim_block_size)
#define gridDim   cudasim_index(cudasim_grid_size)
enum { warpSize = 32 };

/* ---- vectors --------------------------------------------------------------------------------- */

#define CUDASIM_VECTORS(type, name, align2, align4)                                                \
    struct __attribute__((aligned(align2))) name##2 { type x, y; };                                \
    struct name##3 { type x, y, z; };                                                              \
    struct __attribute__((aligned(align4))) name##4 { type x, y, z, w; };                          \
    __forceinline__ name##2 make_##name##2(type x, type y) { return name##2 { x, y }; }            \
    __forceinline__ name##3 make_##name##3(type x, type y, type z) { return name##3 { x, y, z }; } \
    __forceinline__ name##4 make_##name##4(type x, type y, type z, type w)                         \
    {                                                                                              \
        return name##4 { x, y, z, w };                                                             \
    }

struct uint2 {
    unsigned x, y;
} __attribute__((aligned(8)));
struct uint4 {
    unsigned x, y, z, w;
} __attribute__((aligned(16)));
__forceinline__ uint2 make_uint2(unsigned x, unsigned y) { return uint2{ x, y }; }
__forceinline__ uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return uint3{ x, y, z }; }
__forceinline__ uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w)
{
    return uint4{ x, y, z, w };
}
CUDASIM_VECTORS(int, int, 8, 16)
CUDASIM_VECTORS(float, float, 8, 16)
CUDASIM_VECTORS(unsigned short, ushort, 4, 8)
CUDASIM_VECTORS(short, short, 4, 8)
CUDASIM_VECTORS(unsigned char, uchar, 2, 4)
CUDASIM_VECTORS(double, double, 16, 16)
CUDASIM_VECTORS(long long, longlong, 16, 16)
CUDASIM_VECTORS(unsigned long long, ulonglong, 16, 16)

/* ---- barriers -------------------------------------------------------------------------------- */

#define CUDASIM_HERE const char *file = __builtin_FILE(), int line = __builtin_LINE()

__forceinline__ void __syncthreads(CUDASIM_HERE) { cudasim_barrier(0, 0, file, line); }
__forceinline__ int __syncthreads_or(int p, CUDASIM_HERE)
{
    return cudasim_barrier(1, p != 0, file, line);
}
__forceinline__ int __syncthreads_and(int p, CUDASIM_HERE)
{
    return cudasim_barrier(2, p != 0, file, line);
}
__forceinline__ int __syncthreads_count(int p, CUDASIM_HERE)
{
    return cudasim_barrier(3, p != 0, file, line);
}
__forceinline__ void __threadfence(void) { cudasim_fence(); }
__forceinline__ void __threadfence_block(void) {}

/* ---- warps ----------------------------------------------------------------------------------- */

struct CudasimLane { /* what a lane brings to a vote or shuffle, and takes from it */
    uint64_t value, result;
    int source; /* of a shuffle: a lane of this warp */
};

void cudasim_warp_shuffle(void *const lanes[32]);
void cudasim_warp_ballot(void *const lanes[32]);
void cudasim_warp_nothing(void *const lanes[32]);
void cudasim_warp_match(void *const lanes[32]);

__forceinline__ void __syncwarp(unsigned mask = 0xffffffffu, CUDASIM_HERE)
{
    cudasim_warp("__syncwarp", mask, NULL, cudasim_warp_nothing, true, file, line);
}

__forceinline__ unsigned __ballot_sync(unsigned mask, int p, CUDASIM_HERE)
{
    CudasimLane lane = { p != 0, 0, 0 };
    cudasim_warp("__ballot_sync", mask, &lane, cudasim_warp_ballot, false, file, line);
    return (unsigned)lane.result;
}

__forceinline__ int __any_sync(unsigned mask, int p, CUDASIM_HERE)
{
    return __ballot_sync(mask, p, file, line) != 0;
}

__forceinline__ int __all_sync(unsigned mask, int p, CUDASIM_HERE)
{
    return __ballot_sync(mask, p, file, line) == mask;
}

/* Lanes that bring the same value. */
template <typename T>
__forceinline__ unsigned __match_any_sync(unsigned mask, T value, CUDASIM_HERE)
{
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "32 or 64 bits");
    CudasimLane lane = { 0, 0, 0 };
    memcpy(&lane.value, &value, sizeof value);
    cudasim_warp("__match_any_sync", mask, &lane, cudasim_warp_match, false, file, line);
    return (unsigned)lane.result;
}

template <typename T>
__forceinline__ T cudasim_shuffle(const char *what, unsigned mask, T value, int source,
                                  const char *file, int line)
{
    static_assert(std::is_arithmetic_v<T> && (sizeof(T) == 4 || sizeof(T) == 8),
                  "shuffles are of 32 or 64 bits");
    CudasimLane lane = { 0, 0, source };
    memcpy(&lane.value, &value, sizeof value);
    cudasim_warp(what, mask, &lane, cudasim_warp_shuffle, false, file, line);
    memcpy(&value, &lane.result, sizeof value);
    return value;
}

/* Sections of `width` lanes; a lane outside of the section gives the own value. */
template <typename T>
__forceinline__ T __shfl_sync(unsigned mask, T value, int source, int width = 32, CUDASIM_HERE)
{
    const int first = (int)cudasim_lane() & ~(width - 1);
    return cudasim_shuffle("__shfl_sync", mask, value, first + (source & (width - 1)), file, line);
}

template <typename T>
__forceinline__ T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, CUDASIM_HERE)
{
    const int me = (int)cudasim_lane(), source = me ^ bits;
    const bool inside = source < (me & ~(width - 1)) + width;
    return cudasim_shuffle("__shfl_xor_sync", mask, value, inside ? source : me, file, line);
}

template <typename T>
__forceinline__ T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32,
                                   CUDASIM_HERE)
{
    const int me = (int)cudasim_lane(), source = me + (int)by;
    const bool inside = source < (me & ~(width - 1)) + width;
    return cudasim_shuffle("__shfl_down_sync", mask, value, inside ? source : me, file, line);
}

template <typename T>
__forceinline__ T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32, CUDASIM_HERE)
{
    const int me = (int)cudasim_lane(), source = me - (int)by;
    const bool inside = source >= (me & ~(width - 1));
    return cudasim_shuffle("__shfl_up_sync", mask, value, inside ? source : me, file, line);
}

/* __reduce_*_sync: 32-bit integers, compute capability 8.0. */
enum { CUDASIM_REDUCE_ADD, CUDASIM_REDUCE_MIN, CUDASIM_REDUCE_MAX };
uint64_t cudasim_reduce(const char *what, int kind, unsigned mask, int64_t value, const char *file,
                        int line);

#define CUDASIM_REDUCE(name, KIND)                                                                 \
    __forceinline__ unsigned name(unsigned mask, unsigned value, CUDASIM_HERE)                     \
    {                                                                                              \
        return (unsigned)cudasim_reduce(#name, KIND, mask, value, file, line);                     \
    }                                                                                              \
    __forceinline__ int name(unsigned mask, int value, CUDASIM_HERE)                               \
    {                                                                                              \
        return (int)cudasim_reduce(#name, KIND, mask, value, file, line);                          \
    }
CUDASIM_REDUCE(__reduce_add_sync, CUDASIM_REDUCE_ADD)
CUDASIM_REDUCE(__reduce_min_sync, CUDASIM_REDUCE_MIN)
CUDASIM_REDUCE(__reduce_max_sync, CUDASIM_REDUCE_MAX)

/* ---- loads and stores with a hint: plain, checked accesses ----------------------------------- */

template <typename T> __forceinline__ T __ldg(const T *at) { return *at; }
template <typename T> __forceinline__ T __ldcs(const T *at) { return *at; }
template <typename T> __forceinline__ T __ldcg(const T *at) { return *at; }
template <typename T> __forceinline__ T __ldca(const T *at) { return *at; }
template <typename T> __forceinline__ T __ldlu(const T *at) { return *at; }
template <typename T> __forceinline__ void __stcs(T *at, T value) { *at = value; }
template <typename T> __forceinline__ void __stcg(T *at, T value) { *at = value; }
template <typename T> __forceinline__ void __stwb(T *at, T value) { *at = value; }
template <typename T> __forceinline__ void __stwt(T *at, T value) { *at = value; }

/* ---- atomics --------------------------------------------------------------------------------- */

template <typename T>
inline constexpr bool cudasim_atomic_type =
    std::is_same_v<T, int> || std::is_same_v<T, unsigned> || std::is_same_v<T, unsigned long long>;

template <typename T> inline constexpr bool cudasim_atomic_float = std::is_floating_point_v<T>;

#define CUDASIM_ATOMIC(name, result)                                                               \
    template <typename T>                                                                          \
    __attribute__((no_sanitize("thread"), noinline)) T name(T *at, std::type_identity_t<T> value)  \
    {                                                                                              \
        static_assert(!cudasim_atomic_float<T>,                                                    \
                      #name " of a float: the order of its sum would change from run to run");     \
        static_assert(cudasim_atomic_type<T>, #name ": int, unsigned or unsigned long long");      \
        cudasim_check_atomic(at, sizeof *at);                                                      \
        const T old = *at;                                                                         \
        *at = (T)(result);                                                                         \
        return old;                                                                                \
    }
CUDASIM_ATOMIC(atomicAdd, old + value)
CUDASIM_ATOMIC(atomicSub, old - value)
CUDASIM_ATOMIC(atomicMax, value > old ? value : old)
CUDASIM_ATOMIC(atomicMin, value < old ? value : old)
CUDASIM_ATOMIC(atomicExch, value)
CUDASIM_ATOMIC(atomicOr, old | value)
CUDASIM_ATOMIC(atomicAnd, old &value)
CUDASIM_ATOMIC(atomicXor, old ^ value)
CUDASIM_ATOMIC(atomicInc, old >= value ? 0 : old + 1)

template <typename T>
__attribute__((no_sanitize("thread"), noinline)) T atomicCAS(T *at, std::type_identity_t<T> compare,
                                                             std::type_identity_t<T> value)
{
    static_assert(cudasim_atomic_type<T>, "atomicCAS: int, unsigned or unsigned long long");
    cudasim_check_atomic(at, sizeof *at);
    const T old = *at;
    if (old == compare)
        *at = value;
    return old;
}

#include "cudasim_math.h"

#endif
