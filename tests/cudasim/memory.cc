/* memory.cc -- device memory, pinned host memory, and which of them an address is in.
 *
 * Device memory is one range of addresses, closed (PROT_NONE) while host code runs. An address is
 * never given out twice, so what was freed stays known. The one idea: gaps between allocations are
 * red zones, and fresh memory needs no fill, since its shadow says that nothing has written it.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <map>

#include "sim.h"

namespace
{

enum : uintptr_t { SPAN = (uintptr_t)64 << 30, GAP = 512, PAGE = 4096 };

std::map<uintptr_t, SimAllocation> device; /* by address */
std::map<uintptr_t, size_t> pinned;
std::map<uintptr_t, size_t> mapped; /* of it, what kernels may use */
uintptr_t next;                     /* address to give out */
size_t used;
int n_allocations;
bool is_open;
const SimAllocation *last;
char signal_stack[64 << 10];

void *reserve(size_t bytes, int protection)
{
    void *p = mmap(NULL, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        cudasim_report("the simulator needs %zu GiB of address space (ulimit -v)", bytes >> 30);
    return p;
}

void on_fault(int number, siginfo_t *info, void *context)
{
    const uintptr_t at = (uintptr_t)info->si_addr;
#if defined(__x86_64__)
    const void *pc = (void *)(((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] + 1);
#else
    const void *pc = NULL;
    (void)context;
#endif
    if (at - sim_now.device_base < sim_now.device_span)
        cudasim_report("device pointer on the host: host code uses %s%s",
                       sim_name_place(at).c_str(), sim_source_line(pc).c_str());
    if (sim_in_kernel && sim_now.stack - at <= SIM_GUARD)
        cudasim_report("%s: its stack is full%s", sim_where().c_str(), sim_source_line(pc).c_str());
    signal(number, SIG_DFL); /* any other fault of the program: again, without us */
}

} // namespace

void sim_memory_init(void)
{
    sim_now.device_base = (uintptr_t)reserve(SPAN, PROT_NONE);
    sim_now.device_span = SPAN;
    sim_now.device_cells = (SimCell *)reserve(SPAN / 4 * sizeof(SimCell), PROT_READ | PROT_WRITE);
    next = sim_now.device_base + GAP + GAP / 2;
    stack_t stack = {};
    stack.ss_sp = signal_stack, stack.ss_size = sizeof signal_stack;
    sigaltstack(&stack, NULL);
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
}

void sim_memory_open(bool open)
{
    if (open == is_open)
        return;
    is_open = open;
    const size_t bytes = (next - sim_now.device_base + PAGE - 1) & ~(PAGE - 1);
    if (mprotect((void *)sim_now.device_base, bytes, open ? PROT_READ | PROT_WRITE : PROT_NONE))
        cudasim_report("mprotect of the device memory failed");
}

const SimAllocation *sim_allocation(uintptr_t at)
{
    if (last && at - last->at < last->bytes)
        return last;
    auto after = device.upper_bound(at);
    if (after == device.begin())
        return NULL;
    const SimAllocation *m = &std::prev(after)->second;
    if (at - m->at >= m->bytes)
        return NULL;
    return last = m;
}

bool sim_allocated(uintptr_t at, size_t bytes)
{
    const SimAllocation *m = sim_allocation(at);
    return m && !m->freed && at + bytes <= m->at + m->bytes;
}

bool cudasim_is_device(const void *at, size_t bytes) { return sim_allocated((uintptr_t)at, bytes); }

static bool is_inside(const std::map<uintptr_t, size_t> &all, const void *at, size_t bytes)
{
    auto after = all.upper_bound((uintptr_t)at);
    if (after == all.begin())
        return false;
    auto m = std::prev(after);
    return (uintptr_t)at + bytes <= m->first + m->second;
}

bool sim_pinned(const void *at, size_t bytes) { return is_inside(pinned, at, bytes); }

bool sim_mapped(const void *at, size_t bytes) { return is_inside(mapped, at, bytes); }

std::string sim_name_place(uintptr_t at)
{
    char text[160];
    auto after = device.upper_bound(at);
    if (after == device.begin()) {
        snprintf(text, sizeof text, "%p, before all device memory", (void *)at);
        return text;
    }
    const SimAllocation *m = &std::prev(after)->second;
    snprintf(text, sizeof text, "allocation %d (%zu bytes%s) + %zu", m->number, m->bytes,
             m->freed ? ", freed" : "", (size_t)(at - m->at));
    return text;
}

/* ---- the interface --------------------------------------------------------------------------- */

cudaError_t cudaMalloc(void **at, size_t bytes)
{
    SIM_CALL_OUTSIDE("cudaMalloc");
    *at = NULL;
    if (!bytes)
        return cudaSuccess;
    const size_t room = (bytes + GAP - 1) & ~(GAP - 1);
    if (bytes > sim_total_memory() || used + room > sim_total_memory())
        return sim_result(cudaErrorMemoryAllocation);
    if (next + room + GAP >= sim_now.device_base + SPAN)
        cudasim_report("the simulator's addresses are used up: %d allocations", n_allocations);
    device[next] = { next, bytes, ++n_allocations, false };
    *at = (void *)next;
    next += room + GAP;
    used += room;
    return cudaSuccess;
}

cudaError_t cudaFree(void *at)
{
    SIM_CALL_OUTSIDE("cudaFree");
    if (!at)
        return cudaSuccess;
    sim_wait_all();
    auto m = device.find((uintptr_t)at);
    if (m == device.end())
        cudasim_report("cudaFree of %s, which cudaMalloc did not return",
                       sim_name_place((uintptr_t)at).c_str());
    if (m->second.freed)
        cudasim_report("cudaFree a second time of %s", sim_name_place((uintptr_t)at).c_str());
    const size_t room = (m->second.bytes + GAP - 1) & ~(GAP - 1);
    m->second.freed = true;
    used -= room;
    SimCell *cells = sim_now.device_cells + (m->first - sim_now.device_base) / 4;
    for (size_t i = 0; i < room / 4; i++)
        cells[i] = { 0, 0 };
    const uintptr_t from = (m->first + PAGE - 1) & ~(PAGE - 1),
                    to = (m->first + room) & ~(PAGE - 1);
    if (to > from)
        madvise((void *)from, to - from, MADV_DONTNEED);
    return sim_result(sim_sticky);
}

cudaError_t cudaHostAlloc(void **at, size_t bytes, unsigned flags)
{
    SIM_CALL_OUTSIDE("cudaHostAlloc");
    *at = NULL;
    if (flags & ~(unsigned)(cudaHostAllocPortable | cudaHostAllocMapped))
        cudasim_report("cudaHostAlloc: the simulator has no flags 0x%x", flags);
    if (!bytes)
        return cudaSuccess;
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return sim_result(cudaErrorMemoryAllocation);
    memset(p, 0xff, bytes); /* not zero: nobody said so */
    pinned[(uintptr_t)p] = bytes;
    if (flags & cudaHostAllocMapped)
        mapped[(uintptr_t)p] = bytes;
    *at = p;
    return cudaSuccess;
}

cudaError_t cudaHostGetDevicePointer(void **device_at, void *at, unsigned flags)
{
    SIM_CALL("cudaHostGetDevicePointer");
    if (flags || !sim_mapped(at, 1))
        return sim_result(cudaErrorInvalidValue);
    *device_at = at;
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void **at, size_t bytes) { return cudaHostAlloc(at, bytes, 0); }

cudaError_t cudaFreeHost(void *at)
{
    SIM_CALL_OUTSIDE("cudaFreeHost");
    if (!at)
        return cudaSuccess;
    sim_wait_all();
    auto m = pinned.find((uintptr_t)at);
    if (m == pinned.end())
        cudasim_report("cudaFreeHost of %p, which cudaHostAlloc did not return", at);
    mprotect(at, m->second, PROT_NONE); /* stays closed: a use of it is a fault */
    madvise(at, m->second, MADV_DONTNEED);
    pinned.erase(m);
    mapped.erase((uintptr_t)at);
    return sim_result(sim_sticky);
}

cudaError_t cudaMemGetInfo(size_t *free, size_t *total)
{
    SIM_CALL("cudaMemGetInfo");
    *total = sim_total_memory();
    *free = *total - used;
    return cudaSuccess;
}
