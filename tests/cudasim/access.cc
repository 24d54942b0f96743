/* access.cc -- every load and store of compiled kernels, checked against the shadow.
 *
 * In: the calls that g++ -fsanitize=thread places before each access (this library stands where
 * libtsan would). Out: nothing, or a report. The one idea: the usual case is a comparison of ticks;
 * all that is rare is in race.cc.
 */
#include <string.h>

#include "sim.h"

SimNow sim_now;
thread_local bool sim_in_kernel;

enum { SPINS = 20000000 };

/* Was what the stamp says before this access? Exact but for blocks, which may have released it. */
static inline bool ordered(uint64_t stamp)
{
    const uint64_t tick = stamp >> SIM_TICK;
    if (tick < sim_now.safe)
        return true;
    if (tick < sim_now.block)
        return tick < sim_now.op && sim_op_before(tick);
    if (tick < sim_now.segment)
        return true;
    if ((stamp >> SIM_THREAD & SIM_THREAD_MASK) == sim_now.thread)
        return true;
    return tick >= sim_now.warp && tick < sim_now.tick;
}

/* The same for reads by several. */
static inline bool all_ordered(uint64_t read)
{
    const uint64_t tick = read >> SIM_TICK;
    if (tick < sim_now.safe)
        return true;
    if (tick < sim_now.op)
        return sim_op_before(tick);
    switch (read & SIM_LEVEL) {
    case SIM_LANES:
        return tick >= sim_now.block
               && (tick < sim_now.segment || (tick >= sim_now.warp && tick < sim_now.tick));
    case SIM_WARPS: return tick >= sim_now.block && tick < sim_now.segment;
    case SIM_BLOCKS: return false;
    default: return ordered(read);
    }
}

/* Others read the word too. Where they read other bytes of it, only the last reader is kept. */
static SIM_COLD void slow_read(SimCell *cell, const SimAccess *a, unsigned bytes)
{
    const uint64_t old = cell->read, tick = old >> SIM_TICK;
    uint64_t level = 0, more = old & SIM_MORE;
    if (a->shared && tick < sim_now.block) { /* of another block's variable */
        more = 0;
    } else if (tick < sim_now.op) {
        if (tick >= sim_now.safe
            && !sim_op_before(tick)) { /* another operation, not ordered with this one */
            sim_keep_reader(a->at, old);
            more = SIM_MORE;
        }
    } else if (tick < sim_now.block || (old & SIM_LEVEL) == SIM_BLOCKS) {
        level = SIM_BLOCKS;
    } else if (tick >= sim_now.segment) {
        level = old & SIM_LEVEL;
        if (tick < sim_now.warp)
            level = SIM_WARPS;
        else if (level != SIM_WARPS && tick < sim_now.tick)
            level = 0;
        else if (level == 0 && (old >> SIM_THREAD & SIM_THREAD_MASK) != sim_now.thread)
            level = SIM_LANES;
    }
    uint64_t read = bytes << 4;
    if (old >> SIM_THREAD == sim_now.stamp >> SIM_THREAD && !(old & SIM_LEVEL))
        read |= old & 0xf0;
    else if (level && !(old & read))
        level = 0;
    else if (level)
        read &= old;
    cell->read = sim_now.stamp | read | more | level;
}

static SIM_COLD void bad_written(const SimAccess *a, SimCell *cell, unsigned bytes)
{
    const bool old = a->shared && (cell->write >> SIM_TICK) < sim_now.block;
    if (a->shared ? !sim_shared_valid(a->at, a->bytes)
                  : !a->what && !sim_allocated(a->at, a->bytes))
        sim_out_of_bounds(a);
    if (old || (cell->write & bytes) != bytes)
        if (a->mode != SIM_WRITE && a->mode != SIM_VOLATILE_WRITE)
            sim_unwritten(a);
}

/* One word; bytes: which of its four. */
static inline void check_cell(SimCell *cell, unsigned bytes, const SimAccess *a)
{
    const uint64_t write = cell->write;
    const bool fresh = a->shared && (write >> SIM_TICK) < sim_now.block;
    const enum SimMode mode = a->mode;
    if (__builtin_expect(fresh || (write & bytes) != bytes, 0))
        bad_written(a, cell, bytes);
    if (mode == SIM_VOLATILE_READ)
        return;
    if (!fresh && !ordered(write) && (write >> 4 & bytes)) {
        const bool atomics = (write & SIM_ATOMIC) && mode >= SIM_ATOMIC_ACCESS
                             && (write >> SIM_TICK) >= sim_now.op;
        if (!atomics && !sim_released(a, cell))
            sim_bad_write_order(a, cell);
    }
    if (mode == SIM_READ) {
        const uint64_t read = cell->read;
        if (SIM_LIKELY((read >> SIM_TICK) < sim_now.safe && !(read & SIM_MORE)))
            cell->read = sim_now.stamp | bytes << 4;
        else if ((read | SIM_LEVEL) != (sim_now.stamp | SIM_LEVEL | bytes << 4))
            slow_read(cell, a, bytes);
        return;
    }
    const uint64_t read = cell->read;
    if (__builtin_expect(read & SIM_MORE, 0)) {
        sim_check_readers(a);
        cell->read &= ~(uint64_t)SIM_MORE;
    }
    const bool stale = a->shared && (read >> SIM_TICK) < sim_now.block;
    if (__builtin_expect((read >> 4 & bytes) && !stale && !all_ordered(read), 0))
        sim_bad_read_order(a, read);
    cell->write = sim_now.stamp | (mode >= SIM_ATOMIC_ACCESS ? SIM_ATOMIC : 0) | bytes << 4 | bytes
                  | (fresh ? 0 : write & 15);
}

static inline void check_words(SimCell *cells, uintptr_t off, size_t bytes, SimAccess *a)
{
    if (SIM_LIKELY(bytes >= 4 && !(off & 3))) {
        SimCell *cell = cells + (off >> 2);
        const uintptr_t at = a->at;
        const size_t all = a->bytes;
        for (size_t i = 0; i < bytes >> 2; i++) {
            a->at = at + 4 * i, a->bytes = 4;
            check_cell(cell + i, 15, a);
        }
        a->at = at, a->bytes = all;
        off += bytes & ~(size_t)3, bytes &= 3;
    }
    while (bytes) {
        const unsigned first = off & 3, n = first + bytes > 4 ? 4 - first : (unsigned)bytes;
        check_cell(cells + (off >> 2), ((1u << n) - 1) << first, a);
        off += n, bytes -= n;
    }
}

static inline void check(uintptr_t at, size_t bytes, enum SimMode mode, bool aligned,
                         const void *pc)
{
    SimAccess a = { at, bytes, mode, pc, NULL, false };
    const uintptr_t off = at - sim_now.device_base;
    if (mode >= SIM_ATOMIC_ACCESS && ++sim_now.spins > SPINS)
        cudasim_report("%s waits in a loop for another thread or block: the simulator runs them "
                       "one after another%s",
                       sim_where().c_str(), sim_source_line(pc).c_str());
    if (aligned && (at & (bytes - 1) & 7)) /* of 16 bytes see bounds.cc */
        sim_misaligned(&a);
    if (off < sim_now.device_span) {
        if (mode != SIM_READ && mode != SIM_VOLATILE_READ)
            sim_now.dirty = true;
        check_words(sim_now.device_cells, off, bytes, &a);
        return;
    }
    if (at - sim_now.stack < SIM_STACK)
        return;
    const uintptr_t here = at - sim_now.shared_base;
    if (here < sim_now.shared_span) {
        a.shared = true;
        check_words(sim_now.shared_cells, here, bytes, &a);
        return;
    }
    sim_elsewhere(&a);
}

void sim_range(uintptr_t at, size_t bytes, enum SimMode mode, const char *what)
{
    SimAccess a = { at, bytes, mode, NULL, what, false };
    if (!bytes)
        return;
    if (!sim_allocated(at, bytes))
        sim_out_of_bounds(&a);
    if (sim_traffic)
        sim_traffic_range(bytes, mode == SIM_WRITE);
    check_words(sim_now.device_cells, at - sim_now.device_base, bytes, &a);
}

/* ---- asked for by headers and libraries ------------------------------------------------------ */

void cudasim_check_read(const void *at, size_t bytes, bool aligned)
{
    if (sim_traffic && sim_in_kernel)
        sim_traffic_access((uintptr_t)at, bytes, false, __builtin_return_address(0));
    check((uintptr_t)at, bytes, SIM_READ, aligned, __builtin_return_address(0));
}

void cudasim_check_write(void *at, size_t bytes, bool aligned)
{
    if (sim_traffic && sim_in_kernel)
        sim_traffic_access((uintptr_t)at, bytes, true, __builtin_return_address(0));
    check((uintptr_t)at, bytes, SIM_WRITE, aligned, __builtin_return_address(0));
}

void cudasim_check_late(void *to, const void *from, size_t bytes)
{
    check((uintptr_t)to, bytes, SIM_WRITE, true, __builtin_return_address(0));
    if (from)
        check((uintptr_t)from, bytes, SIM_READ, true, __builtin_return_address(0));
}

void cudasim_check_atomic(void *at, size_t bytes)
{
    if (!sim_in_kernel)
        cudasim_report("an atomic operation of a kernel is called by host code");
    const bool dirty = sim_now.dirty;
    check((uintptr_t)at, bytes, SIM_ATOMIC_ACCESS, true, __builtin_return_address(0));
    sim_now.dirty = dirty;
    sim_atomic_done((uintptr_t)at);
}

bool cudasim_is_shared(const void *at)
{
    return (uintptr_t)at - sim_now.shared_base < sim_now.shared_span;
}

/* ---- called by compiled code ----------------------------------------------------------------- */

/* The usual access of whole words, which what is ordered before it wrote and read last: nothing is
   asked but that. False: check looks closer. */
static inline bool usual(uintptr_t at, size_t bytes, enum SimMode mode)
{
    const uintptr_t off = at - sim_now.device_base;
    if (off >= sim_now.device_span || (at & (bytes - 1)))
        return false;
    SimCell *cell = sim_now.device_cells + (off >> 2);
    const uint64_t safe = sim_now.safe << SIM_TICK, stamp = sim_now.stamp;
    for (size_t i = 0; i < bytes / 4; i++) {
        const uint64_t write = cell[i].write, read = cell[i].read;
        if ((write & 15) != 15 || write >= safe || read >= safe || (read & SIM_MORE))
            return false;
    }
    for (size_t i = 0; i < bytes / 4; i++)
        if (mode == SIM_READ)
            cell[i].read = stamp | 0xf0;
        else
            cell[i].write = stamp | 0xff;
    sim_now.dirty |= mode == SIM_WRITE;
    return true;
}

#define SIM_ACCESS(name, bytes, mode, aligned)                                                     \
    extern "C" void name(void *at);                                                                \
    void name(void *at)                                                                            \
    {                                                                                              \
        if (!sim_in_kernel)                                                                        \
            return;                                                                                \
        if (__builtin_expect(sim_traffic, 0))                                                      \
            sim_traffic_access((uintptr_t)at, bytes, mode == SIM_WRITE,                            \
                               __builtin_return_address(0));                                       \
        if (bytes >= 4 && mode <= SIM_WRITE && SIM_LIKELY(usual((uintptr_t)at, bytes, mode)))      \
            return;                                                                                \
        check((uintptr_t)at, bytes, mode, aligned, __builtin_return_address(0));                   \
    }
#define SIM_ACCESSES(bytes)                                                                        \
    SIM_ACCESS(__tsan_read##bytes, bytes, SIM_READ, true)                                          \
    SIM_ACCESS(__tsan_write##bytes, bytes, SIM_WRITE, true)                                        \
    SIM_ACCESS(__tsan_unaligned_read##bytes, bytes, SIM_READ, false)                               \
    SIM_ACCESS(__tsan_unaligned_write##bytes, bytes, SIM_WRITE, false)                             \
    SIM_ACCESS(__tsan_volatile_read##bytes, bytes, SIM_VOLATILE_READ, true)                        \
    SIM_ACCESS(__tsan_volatile_write##bytes, bytes, SIM_VOLATILE_WRITE, true)
SIM_ACCESSES(1)
SIM_ACCESSES(2)
SIM_ACCESSES(4)
SIM_ACCESSES(8)
SIM_ACCESSES(16)

/* memcpy, memset and memmove of kernels, under other names (cc.sh). */
extern "C" void *cudasim_memcpy(void *to, const void *from, size_t bytes);
void *cudasim_memcpy(void *to, const void *from, size_t bytes)
{
    if (sim_in_kernel && bytes) {
        check((uintptr_t)from, bytes, SIM_READ, false, __builtin_return_address(0));
        check((uintptr_t)to, bytes, SIM_WRITE, false, __builtin_return_address(0));
    }
    return memmove(to, from, bytes);
}

extern "C" void *cudasim_memmove(void *to, const void *from, size_t bytes);
void *cudasim_memmove(void *to, const void *from, size_t bytes)
{
    return cudasim_memcpy(to, from, bytes);
}

extern "C" void *cudasim_memset(void *to, int value, size_t bytes);
void *cudasim_memset(void *to, int value, size_t bytes)
{
    if (sim_in_kernel && bytes)
        check((uintptr_t)to, bytes, SIM_WRITE, false, __builtin_return_address(0));
    return memset(to, value, bytes);
}

extern "C" void __tsan_init(void);
void __tsan_init(void) {}

/* A structure: as many accesses as it has words. */
static void range(uintptr_t at, size_t bytes, enum SimMode mode, const void *pc)
{
    if (!sim_in_kernel)
        return;
    for (size_t i = 0; sim_traffic && i < bytes; i += 4)
        sim_traffic_access(at + i, bytes - i < 4 ? bytes - i : 4, mode == SIM_WRITE, pc);
    check(at, bytes, mode, false, pc);
}

extern "C" void __tsan_read_range(void *at, size_t bytes);
void __tsan_read_range(void *at, size_t bytes)
{
    range((uintptr_t)at, bytes, SIM_READ, __builtin_return_address(0));
}

extern "C" void __tsan_write_range(void *at, size_t bytes);
void __tsan_write_range(void *at, size_t bytes)
{
    range((uintptr_t)at, bytes, SIM_WRITE, __builtin_return_address(0));
}
