/* block.cc -- the threads of a block as fibers: barriers of the block and operations of warps.
 *
 * In: a launch whose limits are checked. Out: its blocks run, one after another. A warp runs until
 * all its lanes wait at a barrier or ended, a lane until it waits for its warp. The one idea: a
 * fiber has a stack only while it waits, so kernels without barriers use one stack again and again.
 */
#include <string.h>
#include <sys/mman.h>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#include "include/cuda_runtime.h"
#include "sim.h"

uint3 cudasim_thread, cudasim_block, cudasim_block_size, cudasim_grid_size;
const CudasimLaunch *sim_launch;
void (*cudasim_thread_ends)(void);

namespace
{

enum State : uint8_t { FRESH, READY, WARP, BARRIER, DONE };

struct Lane {
    void *at; /* where it goes on */
    char *stack;
    State state;
    bool dirty;
    unsigned number; /* in the block */
    uint3 thread;
    /* at what it waits */
    const char *what, *file;
    int line, kind, predicate;
    unsigned mask;
    void *argument;
};

Lane lanes[1024];
unsigned waiting[32]; /* by warp: the lanes that wait for others of it */
int n_lanes, barrier_result;
Lane *current; /* NULL: the scheduler */
void *scheduler;
std::vector<char *> stacks; /* free ones */
int n_stacks;
uint64_t serial;

/* ---- switching ------------------------------------------------------------------------------- */

#if defined(__x86_64__)
extern "C" void sim_switch(void **save, void *load);
asm(".text\n.globl sim_switch\n.type sim_switch,@function\nsim_switch:\n"
    "    push %rbp\n    push %rbx\n    push %r12\n    push %r13\n    push %r14\n    push %r15\n"
    "    mov %rsp, (%rdi)\n    mov %rsi, %rsp\n"
    "    pop %r15\n    pop %r14\n    pop %r13\n    pop %r12\n    pop %rbx\n    pop %rbp\n    ret\n"
    ".size sim_switch,.-sim_switch\n");

void *fresh_context(char *top, void (*entry)(void))
{
    void **sp = (void **)top; /* top is a multiple of 16 */
    *--sp = NULL;             /* as if called: entry sees a stack 8 bytes off */
    *--sp = (void *)entry;
    return sp - 6;
}
#else
void sim_switch(void **save, void *load)
{
    ucontext_t from;
    *save = &from;
    swapcontext(&from, (ucontext_t *)load);
}

void *fresh_context(char *top, void (*entry)(void))
{
    ucontext_t *c = (ucontext_t *)(top - sizeof(ucontext_t) - 64);
    getcontext(c);
    c->uc_stack.ss_sp = top - SIM_STACK / 2;
    c->uc_stack.ss_size = SIM_STACK / 2 - sizeof(ucontext_t) - 64;
    c->uc_link = NULL;
    makecontext(c, entry, 0);
    return c;
}
#endif

char *take_stack(void)
{
    if (stacks.empty()) {
        char *s = (char *)mmap(NULL, SIM_STACK + SIM_GUARD, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (s == MAP_FAILED || mprotect(s, SIM_GUARD, PROT_NONE))
            cudasim_report("no memory for the stack of a thread");
        n_stacks++;
        return s + SIM_GUARD;
    }
    char *s = stacks.back();
    stacks.pop_back();
    return s;
}

void lane_main(void)
{
    sim_launch->call(sim_launch->kernel, sim_launch->arguments);
    if (cudasim_thread_ends)
        cudasim_thread_ends();
    current->state = DONE;
    void *unused;
    sim_switch(&unused, scheduler);
    __builtin_unreachable();
}

void resume(Lane *lane)
{
    if (lane->state == FRESH) {
        lane->stack = take_stack();
        /* Tops at different places of a page, so that they do not share lines of the cache. */
        char *top = lane->stack + SIM_STACK - (lane->number & 63) * 576;
        lane->at = fresh_context(top, lane_main);
    }
    lane->state = READY;
    current = lane;
    cudasim_thread = lane->thread;
    sim_now.thread = lane->number;
    sim_now.stamp = sim_now.tick << SIM_TICK | (uint64_t)lane->number << SIM_THREAD;
    sim_now.stack = (uintptr_t)lane->stack;
    sim_now.dirty = lane->dirty;
    sim_now.spins = 0;
    sim_in_kernel = true;
    sim_switch(&scheduler, lane->at);
    sim_in_kernel = false;
    lane->dirty = sim_now.dirty;
    current = NULL;
    if (lane->state == DONE) {
        stacks.push_back(lane->stack);
        lane->stack = NULL;
    }
}

/* The lane that runs waits; returns when it may go on. */
void wait_as(State state)
{
    Lane *lane = current;
    lane->state = state;
    sim_in_kernel = false;
    sim_switch(&lane->at, scheduler);
    sim_in_kernel = true;
}

/* ---- reports --------------------------------------------------------------------------------- */

std::string index_text(uint3 v)
{
    return "(" + std::to_string(v.x) + "," + std::to_string(v.y) + "," + std::to_string(v.z) + ")";
}

std::string doing(const Lane *lane)
{
    std::string s = "thread " + index_text(lane->thread);
    if (lane->state == DONE)
        return s + " has ended";
    const char *slash = lane->file ? strrchr(lane->file, '/') : NULL;
    return s + " waits at " + (lane->state == BARRIER ? "__syncthreads" : lane->what) + " in "
           + (slash ? slash + 1 : lane->file) + ":" + std::to_string(lane->line);
}

std::string block_text(void)
{
    return std::string("kernel ") + sim_launch->name + ", block " + index_text(cudasim_block);
}

/* No lane of the warp can go on, and one waits for others. */
__attribute__((noreturn)) void stuck(Lane *warp, int n)
{
    for (int i = 0; i < n; i++) {
        if (warp[i].state != WARP)
            continue;
        const Lane *other = NULL;
        for (int j = 0; j < n && !other; j++)
            if (j != i && (warp[i].mask >> j & 1)
                && (warp[j].state != WARP || warp[j].line != warp[i].line
                    || warp[j].mask != warp[i].mask || strcmp(warp[j].what, warp[i].what)))
                other = &warp[j];
        if (other)
            cudasim_report("operation of a warp in divergent code: %s: %s with mask 0x%08x while "
                           "%s",
                           block_text().c_str(), doing(&warp[i]).c_str(), warp[i].mask,
                           doing(other).c_str());
        cudasim_report("%s: %s with mask 0x%08x, which names lanes that are not there",
                       block_text().c_str(), doing(&warp[i]).c_str(), warp[i].mask);
    }
    cudasim_report("%s: no thread can go on", block_text().c_str());
}

/* ---- a block --------------------------------------------------------------------------------- */

void run_warp(int first, const uint8_t *order)
{
    const int n = n_lanes - first < 32 ? n_lanes - first : 32;
    sim_now.warp = ++sim_now.tick;
    bool moved = true;
    while (moved) {
        moved = false;
        for (int i = 0; i < 32; i++) {
            if (order[i] >= n)
                continue;
            Lane *lane = &lanes[first + order[i]];
            if (lane->state == FRESH || lane->state == READY) {
                resume(lane);
                moved = true;
            }
        }
    }
    for (int i = 0; i < n; i++)
        if (lanes[first + i].state == WARP)
            stuck(lanes + first, n);
}

/* All warps stand at a barrier or ended. False: the block is done. */
bool pass_barrier(void)
{
    const Lane *waits = NULL, *ended = NULL;
    int counted = 0;
    for (int i = 0; i < n_lanes; i++) {
        Lane *lane = &lanes[i];
        if (lane->state == DONE) {
            ended = lane;
            continue;
        }
        counted += lane->predicate;
        if (!waits)
            waits = lane;
        else if (lane->line != waits->line || strcmp(lane->file, waits->file))
            cudasim_report("barrier in divergent code: %s: %s while %s", block_text().c_str(),
                           doing(lane).c_str(), doing(waits).c_str());
    }
    if (!waits)
        return false;
    if (ended)
        cudasim_report("barrier in divergent code: %s: %s while %s", block_text().c_str(),
                       doing(ended).c_str(), doing(waits).c_str());
    barrier_result = waits->kind == 1   ? counted != 0
                     : waits->kind == 2 ? counted == n_lanes
                                        : counted;
    for (int i = 0; i < n_lanes; i++)
        lanes[i].state = READY;
    sim_now.segment = ++sim_now.tick;
    return true;
}

void begin_block(uint64_t index)
{
    const dim3 g = sim_launch->grid;
    cudasim_block = { (unsigned)(index % g.x), (unsigned)(index / g.x % g.y),
                      (unsigned)(index / g.x / g.y) };
    sim_now.block = sim_now.segment = ++sim_now.tick;
    serial++;
    sim_block_begins(cudasim_block);
    for (int i = 0; i < n_lanes; i++) {
        lanes[i].state = FRESH;
        lanes[i].dirty = false;
    }
}

void begin_lanes(dim3 b)
{
    n_lanes = (int)(b.x * b.y * b.z);
    for (int i = 0; i < n_lanes; i++) {
        lanes[i].number = (unsigned)i;
        lanes[i].thread = { (unsigned)i % b.x, (unsigned)i / b.x % b.y, (unsigned)i / b.x / b.y };
    }
}

} // namespace

void sim_run_kernel(const CudasimLaunch *launch)
{
    const uint64_t blocks = (uint64_t)launch->grid.x * launch->grid.y * launch->grid.z;
    sim_launch = launch;
    sim_arena_bytes = launch->shared;
    sim_shared_here();
    cudasim_block_size = launch->block;
    cudasim_grid_size = launch->grid;
    begin_lanes(launch->block);
    sim_launch_begins();
    for (uint64_t i = 0; i < blocks; i++) {
        begin_block(sim_block_order(i, blocks));
        const int warps = (n_lanes + 31) / 32;
        uint8_t order[32];
        do {
            sim_warp_order(warps, order);
            for (int w = 0; w < warps; w++)
                run_warp(order[w] * 32, sim_lane_order());
        } while (pass_barrier());
        if (sim_traffic)
            sim_traffic_block_ends();
    }
    sim_launch = NULL;
}

std::string sim_where(void)
{
    if (!sim_launch) {
        const SimDone *op = sim_op_at(sim_now.tick);
        return op ? std::string(op->name) + " (" + sim_stream_name(op->lane) + ")" : "host code";
    }
    return block_text() + (current ? ", thread " + index_text(current->thread) : "");
}

std::string sim_thread_name(unsigned number) { return index_text(lanes[number].thread); }

std::vector<bool> sim_unfenced(void)
{
    std::vector<bool> set;
    if (current)
        current->dirty = sim_now.dirty;
    for (int i = 0; i < n_lanes; i++) {
        if (!lanes[i].dirty)
            continue;
        set.resize(1024);
        set[(size_t)i] = true;
    }
    return set;
}

/* ---- asked for by kernels -------------------------------------------------------------------- */

int cudasim_barrier(int kind, int predicate, const char *file, int line)
{
    if (!current)
        cudasim_report("__syncthreads is called by host code in %s:%d", file, line);
    current->kind = kind, current->predicate = predicate;
    current->file = file, current->line = line;
    wait_as(BARRIER);
    return barrier_result;
}

void cudasim_warp(const char *what, unsigned mask, void *argument,
                  void (*all)(void *const arguments[32]), bool memory, const char *file, int line)
{
    if (!current)
        cudasim_report("%s is called by host code in %s:%d", what, file, line);
    Lane *me = current, *warp = lanes + (me->number & ~31u);
    if (!(mask >> (me->number & 31) & 1))
        cudasim_report("%s in %s:%d: %s is not in its own mask 0x%08x", what, file, line,
                       sim_where().c_str(), mask);
    me->what = what, me->mask = mask, me->argument = argument;
    me->file = file, me->line = line;
    unsigned *others = &waiting[me->number / 32];
    *others |= 1u << (me->number & 31);
    void *arguments[32] = {};
    bool all_here = (*others & mask) == mask;
    for (int i = 0; i < 32 && all_here; i++) {
        if (!(mask >> i & 1))
            continue;
        const Lane *lane = &warp[i];
        if (lane->mask != mask || lane->line != line
            || (lane->what != what && strcmp(lane->what, what)))
            all_here = false;
        else
            arguments[i] = lane->argument;
    }
    if (!all_here) {
        wait_as(WARP);
        return;
    }
    *others &= ~mask;
    sim_in_kernel = false;
    all(arguments);
    sim_in_kernel = true;
    for (int i = 0; i < 32; i++)
        if ((mask >> i & 1) && &warp[i] != me)
            warp[i].state = READY;
    if (memory)
        sim_new_tick();
}

void cudasim_fence(void)
{
    sim_now.dirty = false;
    sim_fence_done();
}
unsigned cudasim_lane(void) { return sim_now.thread & 31; }
unsigned cudasim_thread_number(void) { return sim_now.thread; }
uint64_t cudasim_block_serial(void) { return serial; }
bool cudasim_in_kernel(void) { return current != NULL; }

/* ---- votes and shuffles ---------------------------------------------------------------------- */

void cudasim_warp_nothing(void *const[32]) {}

void cudasim_warp_shuffle(void *const at[32])
{
    for (int i = 0; i < 32; i++) {
        CudasimLane *lane = (CudasimLane *)at[i];
        if (!lane)
            continue;
        const CudasimLane *from = (const CudasimLane *)at[lane->source & 31];
        if (!from)
            cudasim_report("%s: lane %d asks lane %d, which is not in the mask",
                           sim_where().c_str(), i, lane->source & 31);
        lane->result = from->value;
    }
}

void cudasim_warp_ballot(void *const at[32])
{
    uint64_t votes = 0;
    for (int i = 0; i < 32; i++)
        if (at[i] && ((const CudasimLane *)at[i])->value)
            votes |= 1u << i;
    for (int i = 0; i < 32; i++)
        if (at[i])
            ((CudasimLane *)at[i])->result = votes;
}

void cudasim_warp_match(void *const at[32])
{
    for (int i = 0; i < 32; i++) {
        CudasimLane *lane = (CudasimLane *)at[i];
        for (int j = 0; lane && j < 32; j++)
            if (at[j] && ((const CudasimLane *)at[j])->value == lane->value)
                lane->result |= 1u << j;
    }
}

static void reduce(void *const at[32])
{
    int64_t sum = 0;
    bool first = true;
    for (int i = 0; i < 32; i++) {
        const CudasimLane *lane = (const CudasimLane *)at[i];
        if (!lane)
            continue;
        const int64_t v = (int64_t)lane->value;
        if (lane->source == CUDASIM_REDUCE_ADD)
            sum += v;
        else if (first || (lane->source == CUDASIM_REDUCE_MIN ? v < sum : v > sum))
            sum = v;
        first = false;
    }
    for (int i = 0; i < 32; i++)
        if (at[i])
            ((CudasimLane *)at[i])->result = (uint64_t)sum;
}

uint64_t cudasim_reduce(const char *what, int kind, unsigned mask, int64_t value, const char *file,
                        int line)
{
    CudasimLane lane = { (uint64_t)value, 0, kind };
    if (cudasim_arch() < 80)
        cudasim_report("%s needs compute capability 8.0, this device has %d", what, cudasim_arch());
    cudasim_warp(what, mask, &lane, reduce, false, file, line);
    return lane.result;
}
