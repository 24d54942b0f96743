/* copy.cc -- copies and fills: queued like kernels, their bytes checked as a kernel's.
 *
 * The one idea: a copy on a stream takes pinned host memory only; pageable memory would make it
 * wait for the host, unseen.
 */
#include <string.h>

#include "sim.h"

static bool on_device(const void *at)
{
    return (uintptr_t)at - sim_now.device_base < sim_now.device_span;
}

void cudasim_reads(const void *at, size_t bytes, const char *what)
{
    sim_range((uintptr_t)at, bytes, SIM_READ, what);
}

void cudasim_writes(void *at, size_t bytes, const char *what)
{
    sim_range((uintptr_t)at, bytes, SIM_WRITE, what);
}

static SimCell *cell_of(uintptr_t at)
{
    return sim_now.device_cells + (at - sim_now.device_base) / 4;
}
static unsigned bit_of(uintptr_t at) { return 1u << (at & 3); }

/* From device to device: what nothing has written stays so in the copy. */
static void copy_on_device(void *to, const void *from, size_t bytes)
{
    const uintptr_t source = (uintptr_t)from, target = (uintptr_t)to;
    std::vector<size_t> missing;
    if (cudasim_is_device(from, bytes))
        for (size_t i = 0; i < bytes; i++)
            if (!(cell_of(source + i)->write & bit_of(source + i))) {
                missing.push_back(i);
                cell_of(source + i)->write |= bit_of(source + i);
            }
    sim_range(source, bytes, SIM_READ, "source");
    sim_range(target, bytes, SIM_WRITE, "target");
    memmove(to, from, bytes);
    for (size_t i : missing) {
        cell_of(source + i)->write &= ~(uint64_t)bit_of(source + i);
        cell_of(target + i)->write &= ~(uint64_t)bit_of(target + i);
    }
}

static void copy_now(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    if (kind == cudaMemcpyDeviceToDevice) {
        copy_on_device(to, from, bytes);
        return;
    }
    if (kind == cudaMemcpyHostToDevice)
        sim_range((uintptr_t)to, bytes, SIM_WRITE, "target");
    else
        sim_range((uintptr_t)from, bytes, SIM_READ, "source");
    memcpy(to, from, bytes);
}

/* The kind that the addresses say; another one is an error. */
static enum cudaMemcpyKind kind_of(const char *call, const void *to, const void *from,
                                   enum cudaMemcpyKind kind)
{
    const bool d = on_device(to), s = on_device(from);
    const enum cudaMemcpyKind real = d && s ? cudaMemcpyDeviceToDevice
                                     : d    ? cudaMemcpyHostToDevice
                                     : s    ? cudaMemcpyDeviceToHost
                                            : cudaMemcpyHostToHost;
    if (real == cudaMemcpyHostToHost)
        cudasim_report("%s between two places of the host: the simulator has no such copy", call);
    if (kind != cudaMemcpyDefault && kind != real)
        cudasim_report("%s: the target is memory of the %s and the source of the %s, the kind says "
                       "otherwise (%d)",
                       call, d ? "device" : "host", s ? "device" : "host", kind);
    return real;
}

static const char *const copy_names[] = { "", "copy to the device", "copy to the host",
                                          "copy on the device" };

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    SIM_CALL("cudaMemcpyAsync");
    if (!bytes)
        return cudaSuccess;
    const enum cudaMemcpyKind real = kind_of("cudaMemcpyAsync", to, from, kind);
    const void *host = real == cudaMemcpyHostToDevice   ? from
                       : real == cudaMemcpyDeviceToHost ? to
                                                        : NULL;
    if (host && !sim_pinned(host, bytes))
        cudasim_report("cudaMemcpyAsync with pageable host memory at %p: only cudaHostAlloc's is "
                       "copied without waiting",
                       host);
    std::vector<SimHostRange> reads;
    if (real == cudaMemcpyHostToDevice)
        reads.push_back({ from, bytes, 0 });
    sim_queue(
        stream, copy_names[real], [=] { copy_now(to, from, bytes, real); }, reads);
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    SIM_CALL_OUTSIDE("cudaMemcpy");
    if (!bytes)
        return cudaSuccess;
    const enum cudaMemcpyKind real = kind_of("cudaMemcpy", to, from, kind);
    sim_queue(NULL, copy_names[real], [=] { copy_now(to, from, bytes, real); }, {});
    if (real != cudaMemcpyDeviceToDevice)
        sim_wait(SimClock(sim_stream(NULL)->clock));
    return sim_result(sim_sticky);
}

cudaError_t cudaMemsetAsync(void *at, int value, size_t bytes, cudaStream_t stream)
{
    SIM_CALL("cudaMemsetAsync");
    if (!bytes)
        return cudaSuccess;
    if (!on_device(at))
        cudasim_report("cudaMemset of host memory at %p", at);
    sim_queue(stream, "fill",
              [=] {
                  sim_range((uintptr_t)at, bytes, SIM_WRITE, "target");
                  memset(at, value, bytes);
              },
              {});
    return cudaSuccess;
}

cudaError_t cudaMemset(void *at, int value, size_t bytes)
{
    return cudaMemsetAsync(at, value, bytes, NULL);
}
