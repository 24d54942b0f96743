/* sim.h -- what the files of the simulator know of each other.
 *
 *   device.cc  devices, errors, injected failures   report.cc   one report and the end
 *   memory.cc  device memory, pinned memory         access.cc   checks of every access
 *   race.cc    why an access is wrong, in words     bounds.cc   arrays and alignment of types
 *   block.cc   fibers, barriers, warps              launch.cc   limits of a launch
 *   stream.cc  queues, events, what is ordered      copy.cc     copies and fills
 *   graph.cc   capture and launch of graphs         order.cc    orders that CUDA leaves open
 *   symbols.cc shared variables, source lines       traffic.cc  what kernels move, as a table
 *
 * The one idea: time is a count of intervals (ticks). Work runs one operation after another, in it
 * one block after another, in that one warp after another, and a tick begins with each of them and
 * with each barrier. So the tick of an access, compared with when the present operation, block,
 * barrier interval and warp began, says whether the two are ordered.
 */
#ifndef CUDASIM_SIM_H
#define CUDASIM_SIM_H

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "include/cudasim_library.h"
#include "include/cudasim_launch.h"

#define SIM_COLD      __attribute__((cold, noinline))
#define SIM_LIKELY(x) __builtin_expect(!!(x), 1)

/* ---- shadow ---------------------------------------------------------------------------------- */

/* Of 4 bytes of device or shared memory.
   write: tick << 20 | thread << 8 | bytes of the last write << 4 | bytes ever written; bit 18: the
   last write was atomic. read: tick << 20 | thread << 8 | bytes << 4 | SIM_MORE | level. */
struct SimCell {
    uint64_t write, read;
};

enum {
    SIM_TICK = 20,
    SIM_THREAD = 8,
    SIM_THREAD_MASK = 0x3ff,
    SIM_ATOMIC = 1 << 18,
    SIM_LANES = 1, /* levels: read by several threads of a warp, warps of a block, blocks */
    SIM_WARPS = 2,
    SIM_BLOCKS = 3,
    SIM_LEVEL = 3,
    SIM_MORE = 4 /* and by operations that have no order: sim_more_readers */
};

enum SimMode { SIM_READ, SIM_WRITE, SIM_ATOMIC_ACCESS, SIM_VOLATILE_READ, SIM_VOLATILE_WRITE };

/* What every access looks at; see the head for the ticks. */
struct SimNow {
    uintptr_t device_base, device_span; /* bytes of address space */
    SimCell *device_cells;
    uintptr_t shared_base, shared_span; /* of the thread that runs kernels */
    SimCell *shared_cells;
    uintptr_t stack; /* of the fiber; SIM_STACK bytes */
    uint64_t tick, warp, segment, block, op, safe;
    uint64_t stamp; /* tick << 20 | thread << 8 */
    unsigned thread;
    unsigned spins; /* its volatile and atomic accesses since it last went on */
    bool dirty;     /* the thread stored to device memory since its last fence */
};
extern SimNow sim_now;
extern thread_local bool sim_in_kernel; /* is this thread running kernel code? */
/* SIM_GUARD: closed memory below a stack, as much as a thread has at most on a device. */
enum { SIM_STACK = 128 << 10, SIM_GUARD = 512 << 10, SIM_ARENA = 227 << 10 };

inline void sim_new_tick(void)
{
    sim_now.tick++;
    sim_now.stamp = sim_now.tick << SIM_TICK | (uint64_t)sim_now.thread << SIM_THREAD;
}

/* access.cc */
void sim_range(uintptr_t at, size_t bytes, enum SimMode mode, const char *what); /* device memory */

/* race.cc: all end the program unless the access turns out to be right */
struct SimAccess {
    uintptr_t at;
    size_t bytes;
    enum SimMode mode;
    const void *pc;
    const char *what; /* of a library's or copy's access, or NULL */
    bool shared;
};
bool sim_released(const SimAccess *a, const SimCell *cell); /* by atomics and fences */
void sim_bad_write_order(const SimAccess *a, const SimCell *cell);
void sim_bad_read_order(const SimAccess *a, uint64_t read);
void sim_unwritten(const SimAccess *a);
void sim_elsewhere(const SimAccess *a); /* neither device nor shared nor the own stack */
void sim_out_of_bounds(const SimAccess *a);
void sim_misaligned(const SimAccess *a);
void sim_keep_reader(uintptr_t at, uint64_t read); /* SIM_MORE */
void sim_check_readers(const SimAccess *a);
void sim_atomic_done(uintptr_t at); /* releases and acquires */
void sim_fence_done(void);
void sim_launch_begins(void);
void sim_block_begins(dim3 index);
std::vector<bool> sim_unfenced(void); /* of the block that runs: block.cc */

/* ---- memory.cc ------------------------------------------------------------------------------- */

struct SimAllocation {
    uintptr_t at;
    size_t bytes;
    int number;
    bool freed;
};
const SimAllocation *sim_allocation(uintptr_t at); /* that holds it, or NULL; freed ones too */
bool sim_allocated(uintptr_t at, size_t bytes);    /* live */
bool sim_pinned(const void *at, size_t bytes);
bool sim_mapped(const void *at, size_t bytes); /* and kernels may use it */
std::string sim_name_place(uintptr_t at);      /* "allocation 3 (4096 bytes) + 0x10" */
void sim_memory_init(void);
void sim_memory_open(bool open); /* for kernels and copies; closed while host code runs */

/* ---- symbols.cc ------------------------------------------------------------------------------ */

void sim_symbols_init(void);
bool sim_shared_valid(uintptr_t at, size_t bytes); /* inside of one variable, or of the arena */
std::string sim_shared_name(uintptr_t at);
bool sim_constant(uintptr_t at); /* read-only data of the program */
std::string sim_source_line(const void *pc);
void sim_shared_here(void);    /* the shared variables are those of the calling thread */
extern size_t sim_arena_bytes; /* of this launch */

/* ---- block.cc -------------------------------------------------------------------------------- */

void sim_run_kernel(const CudasimLaunch *launch);
std::string sim_where(void); /* "kernel g6_h, block (1,0,0), thread (3,0,0)" */
std::string sim_thread_name(unsigned number);
extern const CudasimLaunch *sim_launch; /* that runs, or NULL */

/* ---- stream.cc ------------------------------------------------------------------------------- */

typedef std::vector<uint32_t> SimClock; /* by lane: this many of its operations are before */

struct SimHostRange { /* pinned memory that work reads: it must not change until then */
    const void *at;
    size_t bytes;
    uint64_t sum;
};

struct SimOp {
    const char *name;
    std::function<void()> run;
    std::vector<SimHostRange> reads;
    int lane;
    uint32_t seq;
    SimClock clock;
};

struct SimDone { /* an operation that ran: who to blame for its accesses */
    uint64_t tick;
    const char *name;
    int lane;
    uint32_t seq;
};

struct CUstream_st {
    int lane;
    bool blocking; /* waits for the default stream and makes it wait */
    SimClock clock;
    struct SimCapture *capture;
    int branch;            /* of the capture */
    std::vector<int> tail; /* nodes of the capture that the next one follows */
};

struct CUevent_st {
    bool recorded, timing;
    SimClock clock;
    double ms; /* of the fake clock */
    struct SimCapture *capture;
    std::vector<int> tail;
};

void sim_queue(cudaStream_t stream, const char *name, std::function<void()> run,
               std::vector<SimHostRange> reads);
SimOp *sim_queue_at(int lane, const SimClock &before, const char *name,
                    const std::function<void()> &run, const std::vector<SimHostRange> &reads);
void sim_join(SimClock *into, const SimClock &other);
void sim_wait(const SimClock &goal); /* runs what it needs; the host is behind it then */
void sim_wait_all(void);
void sim_stream_init(void);
cudaStream_t sim_stream(cudaStream_t stream); /* the default one for NULL */
const SimDone *sim_op_at(uint64_t tick);
bool sim_op_before(uint64_t tick); /* is the operation that ran then before the present one? */
int sim_new_lane(void);
std::string sim_stream_name(int lane);
bool sim_is_stream(cudaStream_t stream);
extern SimClock sim_host_clock;

/* ---- graph.cc -------------------------------------------------------------------------------- */

bool sim_capturing(void); /* any stream */
void sim_capture(cudaStream_t stream, const char *name, std::function<void()> run,
                 std::vector<SimHostRange> reads);
void sim_capture_wait(cudaStream_t stream, cudaEvent_t event);

/* ---- device.cc ------------------------------------------------------------------------------- */

void sim_begin(const char *call);                 /* first in each call of the interface */
cudaError_t sim_call_error(const char *call);     /* injected, or sticky, or cudaSuccess */
cudaError_t sim_injected_error(const char *call); /* of CUDASIM_FAIL */
cudaError_t sim_result(cudaError_t error);        /* remembered for cudaGetLastError */
void sim_stick(cudaError_t error);                /* the device is lost */
extern cudaError_t sim_sticky;
bool sim_asynchronous(cudaError_t error); /* found while work runs, not by the call */
struct SimLock {                          /* one call at a time */
    SimLock();
    ~SimLock();
};
void sim_rest(void); /* inside a call: lets other threads and processes go on */
size_t sim_total_memory(void);
size_t sim_shared_most(void); /* per block, asked for */

/* Begins a call: lock, CUDASIM_FAIL, lost device. */
#define SIM_CALL(name)                                                                             \
    SimLock lock;                                                                                  \
    if (cudaError_t sim_error = sim_call_error(name))                                              \
    return sim_result(sim_error)
/* A call that waits or allocates: not while a stream is captured. */
#define SIM_CALL_OUTSIDE(name)                                                                     \
    SIM_CALL(name);                                                                                \
    if (sim_capturing())                                                                           \
    cudasim_report("%s while a stream is captured: not permitted", name)

/* ---- traffic.cc: CUDASIM_TRAFFIC ------------------------------------------------------------- */

extern bool sim_traffic; /* is it counted? */
void sim_traffic_init(void);
void sim_traffic_begin(const char *name);
void sim_traffic_range(size_t bytes, bool write);
void sim_traffic_access(uintptr_t at, size_t bytes, bool write, const void *pc);
void sim_traffic_block_ends(void);

/* ---- order.cc: CUDASIM_ORDER, CUDASIM_STREAMS ------------------------------------------------ */

enum SimStreams { SIM_LATE, SIM_EARLY, SIM_SHUFFLED };
enum SimStreams sim_streams(void);
uint32_t sim_random(uint32_t below);
const uint8_t *sim_lane_order(void);            /* of a warp's interval: 32 lanes */
void sim_warp_order(int warps, uint8_t *order); /* of a barrier interval */
uint64_t sim_block_order(uint64_t i, uint64_t n);

#endif
