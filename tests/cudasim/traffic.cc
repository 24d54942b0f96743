/* traffic.cc -- CUDASIM_TRAFFIC=file: what each kernel moves, as a table, when the program ends.
 *
 * In: every access. Out, by kernel and per launch: the bytes that threads load and store; blocks,
 * each byte read once by a block; least, each byte read once by the launch, and in both each
 * written once; how much is used of the sectors, 32 bytes each, that warps ask for; conflicts of
 * banks in shared memory; the place with the worst of each; moved, each byte once by each
 * instruction of a block, but for what several blocks read, which comes from the caches: once. The
 * ratio is that of blocks to least: what the caches of a block do not spare. What adds the parts of
 * a kernel's sums has that kernel's name, too. The one idea: the nth time that the lanes of a warp
 * pass one instruction is one request.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <algorithm>
#include <map>
#include <unordered_map>

#include "sim.h"

bool sim_traffic;

namespace
{

struct Request { /* of a warp */
    uint32_t lanes;
    uint8_t bytes;
    bool shared, write;
    uintptr_t at[32];
};

struct Site { /* an instruction, in the block that runs; by warp */
    uint32_t count[32];
    std::vector<Request> requests;
};

struct Place { /* an instruction, in all launches */
    double used, sectors, wavefronts, ideal;
};

struct Kernel {
    int launches;
    double loaded, stored, block_read, least_read, least_written; /* bytes */
    double used, sectors, wavefronts, ideal;                      /* of warps */
    double moved;                                                 /* but for words below */
    std::map<const void *, Place> places;
};

struct Word {       /* 4 bytes that the launch reads */
    uint64_t block; /* the first that does */
    uint32_t read;  /* bytes, by each of its instructions */
    uint8_t bytes;  /* which, a bit each */
    bool others;    /* do other blocks, too? */
};

std::map<std::string, Kernel> kernels;
std::vector<std::string> order; /* of first launches */
Kernel *now;
std::string last; /* the kernel before, but for those that add parts of sums */
std::unordered_map<const void *, std::unordered_map<unsigned, Site>> sites;
std::unordered_map<uintptr_t, Word> words;
const char *path;

/* Distinct pieces of `size` bytes among the lanes' accesses. */
size_t pieces(const Request &r, size_t size, unsigned first, unsigned end)
{
    uintptr_t list[64];
    size_t n = 0;
    for (unsigned i = first; i < end; i++) {
        if (!(r.lanes >> i & 1))
            continue;
        list[n++] = r.at[i] / size;
        if ((r.at[i] + r.bytes - 1) / size != r.at[i] / size)
            list[n++] = (r.at[i] + r.bytes - 1) / size;
    }
    std::sort(list, list + n);
    return (size_t)(std::unique(list, list + n) - list);
}

/* Passes that shared memory needs for these lanes: the most words that one of 32 banks gives. */
size_t passes(const Request &r, unsigned first, unsigned end)
{
    std::vector<uintptr_t> words;
    size_t banks[32] = {};
    for (unsigned i = first; i < end; i++)
        for (unsigned b = 0; (r.lanes >> i & 1) && b < r.bytes; b += 4)
            words.push_back((r.at[i] + b) / 4);
    std::sort(words.begin(), words.end());
    words.erase(std::unique(words.begin(), words.end()), words.end());
    for (uintptr_t w : words)
        banks[w % 32]++;
    return *std::max_element(banks, banks + 32);
}

void add(const Request &r, Place *place)
{
    if (!r.shared) {
        const double sectors = (double)pieces(r, 32, 0, 32);
        const double used = (double)(pieces(r, r.bytes, 0, 32) * r.bytes);
        place->sectors += sectors, place->used += used;
        now->sectors += sectors, now->used += used;
        return;
    }
    const unsigned step = r.bytes == 16 ? 8 : r.bytes == 8 ? 16 : 32; /* lanes of one pass */
    for (unsigned i = 0; i < 32; i += step) {
        const double n = (double)passes(r, i, i + step), ideal = n > 0;
        place->wavefronts += n, place->ideal += ideal;
        now->wavefronts += n, now->ideal += ideal;
    }
}

/* A byte that an instruction of this block has read, once. */
void read_byte(uintptr_t at)
{
    const auto found = words.insert({ at / 4, Word{ sim_now.block, 0, 0, false } });
    Word &w = found.first->second;
    w.others |= w.block != sim_now.block;
    w.read += w.block == sim_now.block;
    w.bytes |= (uint8_t)(1 << at % 4);
}

/* The bytes of one instruction, in a block: each counts once. */
void count_moved(const std::unordered_map<unsigned, Site> &by_warp)
{
    std::vector<uintptr_t> bytes;
    bool write = false;
    for (auto &site : by_warp)
        for (const Request &r : site.second.requests)
            for (unsigned i = 0; i < 32 && !r.shared; i++)
                for (unsigned b = 0; (r.lanes >> i & 1) && b < r.bytes; b++) {
                    bytes.push_back(r.at[i] + b);
                    write = r.write;
                }
    std::sort(bytes.begin(), bytes.end());
    bytes.erase(std::unique(bytes.begin(), bytes.end()), bytes.end());
    if (write)
        now->moved += (double)bytes.size();
    else
        std::for_each(bytes.begin(), bytes.end(), read_byte);
}

/* A launch has ended. */
void count_words(void)
{
    for (auto &w : words)
        now->moved += w.second.others ? __builtin_popcount(w.second.bytes) : (int)w.second.read;
    words.clear();
}

void write_worst(FILE *f, const Kernel &k)
{
    const void *spread = NULL, *conflict = NULL;
    double waste = 0, passes = 0;
    for (auto &p : k.places) {
        const double w = p.second.sectors * 32 - p.second.used,
                     c = p.second.wavefronts - p.second.ideal;
        if (w > waste && p.second.used < 0.75 * 32 * p.second.sectors)
            waste = w, spread = p.first;
        if (c > passes)
            passes = c, conflict = p.first;
    }
    if (spread)
        fprintf(f, "    sectors half empty%s\n", sim_source_line(spread).c_str());
    if (conflict)
        fprintf(f, "    bank conflicts%s\n", sim_source_line(conflict).c_str());
}

void write_table(int, void *)
{
    FILE *f = fopen(path, "w");
    if (!f)
        return;
    count_words();
    fprintf(f, "%-40s %8s %12s %12s %12s %12s %7s %7s %7s %12s\n", "kernel, per launch", "launches",
            "loaded", "stored", "blocks", "least", "ratio", "sectors", "banks", "moved");
    double all = 0, moved = 0, blocks = 0, least = 0;
    for (const std::string &name : order) {
        const Kernel &k = kernels[name];
        const double n = k.launches, by_block = k.block_read + k.stored;
        const double min = k.least_read + k.least_written;
        all += n, moved += k.loaded + k.stored, blocks += by_block, least += min;
        fprintf(f, "%-40s %8d %12.0f %12.0f %12.0f %12.0f %7.2f %6.0f%% %7.2f %12.0f\n",
                name.c_str(), k.launches, k.loaded / n, k.stored / n, by_block / n, min / n,
                min > 0 ? by_block / min : 0, k.sectors > 0 ? 100 * k.used / (32 * k.sectors) : 100,
                k.ideal > 0 ? k.wavefronts / k.ideal : 1, k.moved / n);
        write_worst(f, k);
    }
    fprintf(f, "%-40s %8.0f %25.0f %12.0f %12.0f %7.2f\n", "all", all, moved, blocks, least,
            least > 0 ? blocks / least : 0);
    fclose(f);
}

} // namespace

void sim_traffic_init(void)
{
    path = getenv("CUDASIM_TRAFFIC");
    sim_traffic = path && *path;
    if (sim_traffic)
        on_exit(write_table, NULL);
}

void sim_traffic_begin(const char *kernel)
{
    static const char parts[] = "rt_add_parts";
    const bool adds = strncmp(kernel, parts, sizeof parts - 1) == 0;
    const std::string name = adds ? std::string(kernel) + "," + last : kernel;
    count_words();
    last = adds ? last : name;
    if (!kernels.count(name))
        order.push_back(name);
    now = &kernels[name];
    now->launches++;
}

/* Of a library or a copy: all is used, once. */
void sim_traffic_range(size_t bytes, bool write)
{
    (write ? now->stored : now->loaded) += (double)bytes;
    (write ? now->least_written : now->least_read) += (double)bytes;
    now->block_read += write ? 0 : (double)bytes;
    now->moved += (double)bytes;
    now->used += (double)bytes, now->sectors += (double)bytes / 32;
}

void sim_traffic_access(uintptr_t at, size_t bytes, bool write, const void *pc)
{
    const uintptr_t off = at - sim_now.device_base;
    const bool shared = at - sim_now.shared_base < sim_now.shared_span;
    if (!shared && off >= sim_now.device_span)
        return;
    Site &site = sites[pc][sim_now.thread / 32];
    const unsigned lane = sim_now.thread % 32, nth = site.count[lane]++;
    if (site.requests.size() <= nth)
        site.requests.resize(nth + 1);
    Request &r = site.requests[nth];
    r.lanes |= 1u << lane;
    r.bytes = (uint8_t)bytes, r.shared = shared, r.write = write, r.at[lane] = at;
    if (shared)
        return;
    (write ? now->stored : now->loaded) += (double)bytes;
    const size_t part = bytes < 4 ? bytes : 4;
    for (size_t i = 0; i < bytes; i += part) {
        const SimCell *cell = &sim_now.device_cells[(off + i) / 4];
        const uint64_t read = cell->read >> SIM_TICK, written = cell->write >> SIM_TICK;
        const bool wrote = written >= sim_now.op;
        const double whole = part < 4 ? 4 : (double)part; /* a word is marked as one */
        const unsigned mask = ((1u << part) - 1) << ((off + i) & 3);
        if (write && !(wrote && (cell->write >> 4 & mask)))
            now->least_written += (double)part;
        if (!write && !wrote && read < sim_now.op)
            now->least_read += whole;
        if (!write && written < sim_now.block && read < sim_now.block)
            now->block_read += whole;
    }
}

void sim_traffic_block_ends(void)
{
    for (auto &by_pc : sites) {
        for (auto &by_warp : by_pc.second)
            for (const Request &r : by_warp.second.requests)
                add(r, &now->places[by_pc.first]);
        count_moved(by_pc.second);
    }
    sites.clear();
}
