/* launch.cc -- a launch as CUDA takes it: limits, attributes of kernels, failures on request. */
#include <stdlib.h>
#include <map>

#include "sim.h"

namespace
{

std::map<const void *, size_t> shared_asked; /* cudaFuncAttributeMaxDynamicSharedMemorySize */

size_t shared_limit(const void *kernel)
{
    auto found = shared_asked.find(kernel);
    return found == shared_asked.end() ? (size_t)48 << 10 : found->second;
}

/* Of __launch_bounds__, see cudasim_kernel.h; 1024 where there are none. */
unsigned thread_limit(const void *kernel)
{
    const unsigned char *code = (const unsigned char *)kernel;
    unsigned n = 0;
#if defined(__x86_64__)
    while (n < 32 && code[n] == 0x90)
        n++;
#else
    (void)code;
#endif
    return n ? 32 * n : 1024;
}

cudaError_t check(const CudasimLaunch *l)
{
    const dim3 g = l->grid, b = l->block;
    if (cudasim_arch() < 80)
        return cudaErrorNoKernelImageForDevice; /* nvcc is called for sm_80 and sm_90 */
    if (!g.x || !g.y || !g.z || !b.x || !b.y || !b.z || g.x > 0x7fffffff || g.y > 65535
        || g.z > 65535 || b.x > 1024 || b.y > 1024 || b.z > 64 || b.x * b.y * b.z > 1024)
        return cudaErrorInvalidConfiguration;
    if (l->shared > shared_limit(l->kernel) || b.x * b.y * b.z > thread_limit(l->kernel))
        return cudaErrorInvalidValue;
    return cudaSuccess;
}

} // namespace

void cudasim_launch_queue(cudaStream_t stream, const CudasimLaunch *launch)
{
    SimLock lock;
    const std::shared_ptr<void> arguments(launch->arguments, free); /* until the work is gone */
    const std::string call = std::string("launch:") + launch->name;
    if (sim_sticky)
        return;
    cudaError_t error = sim_call_error("launch");
    if (!error)
        error = check(launch);
    if (!error)
        error = sim_injected_error(call.c_str());
    if (error && !sim_asynchronous(error)) {
        sim_result(error);
        return;
    }
    if (error)
        sim_queue(stream, launch->name, [error] { sim_stick(error); }, {});
    else
        sim_queue(stream, launch->name, [l = *launch, arguments] { sim_run_kernel(&l); }, {});
}

cudaError_t cudasim_func_set_attribute(const void *kernel, enum cudaFuncAttribute attribute,
                                       int value)
{
    SIM_CALL("cudaFuncSetAttribute");
    if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout)
        return cudaSuccess; /* a hint */
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize)
        cudasim_report("cudaFuncSetAttribute: the simulator has no attribute %d", attribute);
    if (value < 0 || (size_t)value > sim_shared_most())
        return sim_result(cudaErrorInvalidValue);
    shared_asked[kernel] = (size_t)value;
    return cudaSuccess;
}

cudaError_t cudasim_func_get_attributes(struct cudaFuncAttributes *out, const void *kernel)
{
    SIM_CALL("cudaFuncGetAttributes");
    *out = {};
    out->maxThreadsPerBlock = (int)thread_limit(kernel);
    out->numRegs = 32;
    out->ptxVersion = out->binaryVersion = cudasim_arch();
    out->maxDynamicSharedSizeBytes = (int)shared_limit(kernel);
    return cudaSuccess;
}

cudaError_t cudasim_occupancy(int *blocks, const void *kernel, int threads, size_t shared)
{
    SIM_CALL("cudaOccupancyMaxActiveBlocksPerMultiprocessor");
    if (threads < 1 || threads > (int)thread_limit(kernel) || shared > shared_limit(kernel))
        return sim_result(cudaErrorInvalidValue);
    const int by_threads = 2048 / ((threads + 31) / 32 * 32);
    const int by_shared = (int)((sim_shared_most() + 1024) / (shared + 1024));
    *blocks = by_threads < by_shared ? by_threads : by_shared;
    if (*blocks > 32)
        *blocks = 32;
    return cudaSuccess;
}
