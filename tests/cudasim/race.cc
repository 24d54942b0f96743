/* race.cc -- what is rare in an access: the reports, and orders that atomics and fences make.
 *
 * A block releases what it stored: stores, __threadfence, then an atomic on a counter. Another
 * block acquires it by a later atomic on the same counter, then __threadfence. The one idea: both
 * are kept per launch, and are asked only when a word was last written by another block of the
 * launch.
 */
#include <string.h>
#include <algorithm>
#include <unordered_map>

#include "sim.h"

namespace
{

struct Release {
    uint64_t segment;           /* what the block stored before it */
    unsigned thread;            /* and what this thread did */
    uint64_t order;             /* of the atomics */
    std::vector<bool> unfenced; /* threads that stored and had no fence after it; empty: none */
};

struct Acquire {
    uintptr_t at;
    uint64_t tick, order;
    unsigned thread;
    bool fenced; /* a fence of the thread followed */
};

struct Block {
    uint64_t tick;
    dim3 index;
};

std::vector<Block> blocks; /* of this launch that began, in their order in time */
std::unordered_map<uintptr_t, std::unordered_map<unsigned, Release>> releases;
std::vector<Acquire> acquires; /* of the block that runs */
std::unordered_map<uintptr_t, std::vector<uint64_t>> more_readers;
uint64_t atomics;

const char *verb(const SimAccess *a)
{
    switch (a->mode) {
    case SIM_READ:
    case SIM_VOLATILE_READ: return "reads";
    case SIM_WRITE:
    case SIM_VOLATILE_WRITE: return "writes";
    default: return "changes atomically";
    }
}

std::string place(const SimAccess *a)
{
    std::string s = a->shared ? sim_shared_name(a->at) : sim_name_place(a->at);
    return a->what ? std::string(a->what) + ", " + s : s;
}

size_t block_at(uint64_t tick)
{
    auto after = std::upper_bound(blocks.begin(), blocks.end(), tick,
                                  [](uint64_t t, const Block &b) { return t < b.tick; });
    return (size_t)(after - blocks.begin()) - 1;
}

std::string index_text(dim3 v)
{
    return "(" + std::to_string(v.x) + "," + std::to_string(v.y) + "," + std::to_string(v.z) + ")";
}

/* Who has this stamp, seen from the access that runs. */
std::string who(uint64_t stamp)
{
    const uint64_t tick = stamp >> SIM_TICK;
    const unsigned thread = stamp >> SIM_THREAD & SIM_THREAD_MASK;
    if (tick < sim_now.op) {
        const SimDone *op = sim_op_at(tick);
        return std::string(op->name) + " (" + sim_stream_name(op->lane) + ")";
    }
    if (tick < sim_now.block)
        return "block " + index_text(blocks[block_at(tick)].index) + ", thread "
               + sim_thread_name(thread);
    return "thread " + sim_thread_name(thread);
}

__attribute__((noreturn)) void race(const SimAccess *a, uint64_t stamp, const char *did)
{
    const uint64_t tick = stamp >> SIM_TICK;
    const std::string other = who(stamp), at = place(a), line = sim_source_line(a->pc);
    if (tick < sim_now.op)
        cudasim_report("no event orders the two: %s %s %s, which %s %s%s", sim_where().c_str(),
                       verb(a), at.c_str(), other.c_str(), did, line.c_str());
    const char *why = tick < sim_now.block   ? "two blocks of one launch"
                      : tick >= sim_now.warp ? "two threads of a warp without __syncwarp between"
                                             : "two threads without __syncthreads between";
    cudasim_report("race, %s: %s %s %s, which %s %s%s", why, sim_where().c_str(), verb(a),
                   at.c_str(), other.c_str(), did, line.c_str());
}

} // namespace

void sim_bad_write_order(const SimAccess *a, const SimCell *cell) { race(a, cell->write, "wrote"); }

void sim_bad_read_order(const SimAccess *a, uint64_t read)
{
    const uint64_t tick = read >> SIM_TICK;
    if (!a->shared && tick >= sim_now.op && tick < sim_now.block && (read & SIM_LEVEL) == 0) {
        const SimCell cell = { read, 0 };
        if (sim_released(a, &cell))
            return;
    }
    if ((read & SIM_LEVEL) == SIM_BLOCKS && !a->shared && tick >= sim_now.op)
        for (const Acquire &q : acquires)
            if (q.at == (a->at & ~(uintptr_t)3))
                return;
    race(a, read, read & SIM_LEVEL ? "and others read" : "read");
}

void sim_unwritten(const SimAccess *a)
{
    cudasim_report("%s %s %s, which nothing has written%s", sim_where().c_str(), verb(a),
                   place(a).c_str(), sim_source_line(a->pc).c_str());
}

void sim_misaligned(const SimAccess *a)
{
    cudasim_report("misaligned address: %s %s %zu bytes at %p, no multiple of %zu%s",
                   sim_where().c_str(), verb(a), a->bytes, (void *)a->at, a->bytes,
                   sim_source_line(a->pc).c_str());
}

void sim_out_of_bounds(const SimAccess *a)
{
    const SimAllocation *m = a->shared ? NULL : sim_allocation(a->at);
    const char *why = m && m->freed ? "use after cudaFree" : "out of bounds";
    cudasim_report("%s: %s %s %zu bytes at %s%s", why, sim_where().c_str(), verb(a), a->bytes,
                   place(a).c_str(), sim_source_line(a->pc).c_str());
}

void sim_elsewhere(const SimAccess *a)
{
    if (sim_launch && a->at - (uintptr_t)sim_launch->arguments < sim_launch->argument_bytes)
        return;
    if (a->mode == SIM_READ && sim_constant(a->at))
        return;
    if (sim_mapped((void *)a->at, a->bytes))
        return;
    const char *kind = sim_pinned((void *)a->at, a->bytes) ? " (pinned memory of the host)" : "";
    cudasim_report("host pointer: %s %s %zu bytes at %p%s, which is no memory of the device%s",
                   sim_where().c_str(), verb(a), a->bytes, (void *)a->at, kind,
                   sim_source_line(a->pc).c_str());
}

/* ---- readers of streams without order -------------------------------------------------------- */

void sim_keep_reader(uintptr_t at, uint64_t read)
{
    std::vector<uint64_t> &list = more_readers[at & ~(uintptr_t)3];
    std::erase_if(list, [](uint64_t r) { return sim_op_before(r >> SIM_TICK); });
    list.push_back(read & ~(uint64_t)0xff);
}

void sim_check_readers(const SimAccess *a)
{
    auto found = more_readers.find(a->at & ~(uintptr_t)3);
    if (found == more_readers.end())
        return;
    for (uint64_t read : found->second)
        if (read >> SIM_TICK >= sim_now.safe && read >> SIM_TICK < sim_now.op
            && !sim_op_before(read >> SIM_TICK))
            race(a, read, "read");
    more_readers.erase(found);
}

/* ---- blocks of a launch ---------------------------------------------------------------------- */

void sim_launch_begins(void)
{
    blocks.clear();
    releases.clear();
}

void sim_block_begins(dim3 index)
{
    blocks.push_back({ sim_now.block, index });
    acquires.clear();
}

void sim_atomic_done(uintptr_t at)
{
    if (at - sim_now.shared_base < sim_now.shared_span)
        return;
    atomics++;
    acquires.push_back({ at, sim_now.tick, atomics, sim_now.thread, false });
    releases[at][(unsigned)blocks.size() - 1] = { sim_now.segment, sim_now.thread, atomics,
                                                  sim_unfenced() };
}

void sim_fence_done(void)
{
    for (Acquire &q : acquires)
        q.fenced |= q.thread == sim_now.thread;
}

bool sim_released(const SimAccess *a, const SimCell *cell)
{
    const uint64_t tick = cell->write >> SIM_TICK;
    const unsigned thread = cell->write >> SIM_THREAD & SIM_THREAD_MASK;
    if (a->shared || tick < sim_now.op || tick >= sim_now.block)
        return false;
    const unsigned block = (unsigned)block_at(tick);
    for (const Acquire &q : acquires) {
        if (q.thread != sim_now.thread && q.tick >= sim_now.segment)
            continue; /* another thread acquired it, and no barrier came since */
        if (q.at == (a->at & ~(uintptr_t)3))
            return true; /* the counter itself: its atomics are in order */
        if (!q.fenced)
            continue;
        auto by = releases.find(q.at);
        if (by == releases.end())
            continue;
        auto r = by->second.find(block);
        if (r == by->second.end() || r->second.order >= q.order)
            continue;
        const Release &done = r->second;
        if ((tick < done.segment || thread == done.thread)
            && (done.unfenced.empty() || !done.unfenced[thread]))
            return true;
    }
    return false;
}
