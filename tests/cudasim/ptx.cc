/* ptx.cc -- products of a warp, loads of their operands and late copies, for rt_ptx.h.
 *
 * In: the registers of 32 lanes, addresses in shared memory. Out: the same as the instructions
 * write, in the layout of the PTX ISA. Here the fragments are put together to whole matrices and
 * taken apart again; the two halves of a layout stand side by side, so that it can be compared with
 * the tables of the ISA.
 */
#include <string.h>
#include <time.h>
#include <deque>

#include "cudasim_library.h"
#include "rt_ptx.h"

enum { LANES = 32, ALL = -1 };

/* ---- mma.m16n8k16 ---------------------------------------------------------------------------- */

typedef struct {
    bool bf16;
    float *c;
    const uint32_t *a;
    uint32_t b[2];
} MmaLane;

/* Value 0 or 1 of a pair in a register. */
static float half_of(uint32_t pair, int which, bool bf16)
{
    const uint16_t h = (uint16_t)(which ? pair >> 16 : pair & 0xffffu);
    return bf16 ? rt_of_bf16(h) : rt_of_f16(h);
}

/* Products are exact in fp32; the sum of a row runs along k, then the accumulator is added. */
static void mma_all(void *const arguments[LANES])
{
    float a[16][16], b[16][8];
    for (int lane = 0; lane < LANES; lane++) {
        const MmaLane *own = (const MmaLane *)arguments[lane];
        const int group = lane / 4, in = lane % 4;
        for (int i = 0; i < 8; i++) { /* element i of A: pair i / 2 of the four registers */
            const int row = group + (i / 2 % 2 ? 8 : 0);
            const int col = in * 2 + i % 2 + (i >= 4 ? 8 : 0);
            a[row][col] = half_of(own->a[i / 2], i % 2, own->bf16);
        }
        for (int i = 0; i < 4; i++) {
            const int row = in * 2 + i % 2 + (i >= 2 ? 8 : 0);
            b[row][group] = half_of(own->b[i / 2], i % 2, own->bf16);
        }
    }
    for (int lane = 0; lane < LANES; lane++) {
        const MmaLane *own = (const MmaLane *)arguments[lane];
        for (int i = 0; i < 4; i++) {
            const int row = lane / 4 + (i >= 2 ? 8 : 0), col = lane % 4 * 2 + i % 2;
            float sum = 0;
            for (int k = 0; k < 16; k++)
                sum += a[row][k] * b[k][col];
            own->c[i] += sum;
        }
    }
}

void cudasim_mma(bool bf16, float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1,
                 const char *file, int line)
{
    MmaLane own = { bf16, c, a, { b0, b1 } };
    cudasim_warp(bf16 ? "mma.m16n8k16 bf16" : "mma.m16n8k16 f16", (unsigned)ALL, &own, mma_all,
                 false, file, line);
}

/* ---- ldmatrix.m8n8.x4 ------------------------------------------------------------------------ */

typedef struct {
    bool trans;
    uint32_t *to;
    const uint16_t *row; /* eight values */
} LoadLane;

static void load_all(void *const arguments[LANES])
{
    uint16_t m[4][8][8];
    for (int lane = 0; lane < LANES; lane++)
        memcpy(m[lane / 8][lane % 8], ((const LoadLane *)arguments[lane])->row, 16);
    for (int lane = 0; lane < LANES; lane++) {
        const LoadLane *own = (const LoadLane *)arguments[lane];
        const int group = lane / 4, pair = lane % 4 * 2;
        for (int i = 0; i < 4; i++) {
            const uint16_t low = own->trans ? m[i][pair][group] : m[i][group][pair];
            const uint16_t high = own->trans ? m[i][pair + 1][group] : m[i][group][pair + 1];
            own->to[i] = low | (uint32_t)high << 16;
        }
    }
}

void cudasim_need_shared(const char *what, const void *at, const char *file, int line)
{
    if (!cudasim_is_shared(at))
        cudasim_report("%s at %s:%d: %p is not in shared memory", what, file, line, at);
}

void cudasim_ldmatrix_x4(bool trans, uint32_t to[4], const void *row, const char *file, int line)
{
    LoadLane own = { trans, to, (const uint16_t *)row };
    cudasim_warp(trans ? "ldmatrix.x4.trans" : "ldmatrix.x4", (unsigned)ALL, &own, load_all, false,
                 file, line);
}

/* ---- cp.async -------------------------------------------------------------------------------- */

typedef struct {
    uint64_t block;
    std::deque<std::deque<CudasimCopy>> groups; /* closed ones, the oldest first */
    std::deque<CudasimCopy> open;
} Copies;

enum { THREADS = 1024 };

static thread_local Copies pending[THREADS];

static void thread_ends(void);

static Copies *copies_of_thread(void)
{
    Copies *own = &pending[cudasim_thread_number()];
    cudasim_thread_ends = thread_ends;
    if (own->block != cudasim_block_serial()) {
        own->block = cudasim_block_serial();
        own->groups.clear();
        own->open.clear();
    }
    return own;
}

/* Until it arrives, the 16 bytes are NaN in every type, and to read them is an error: what was
   there is lost from now on. */
void cudasim_copy_begin(const CudasimCopy *copy)
{
    memset(copy->shared, 0xff, 16);
    cudasim_unwrite(copy->shared, 16);
    copies_of_thread()->open.push_back(*copy);
}

void cudasim_copy_commit(void)
{
    Copies *own = copies_of_thread();
    own->groups.push_back(own->open);
    own->open.clear();
}

bool cudasim_copy_next(int left, CudasimCopy *copy)
{
    Copies *own = copies_of_thread();
    while (own->groups.size() > (size_t)left) {
        std::deque<CudasimCopy> *oldest = &own->groups.front();
        if (!oldest->empty()) {
            *copy = oldest->front();
            oldest->pop_front();
            return true;
        }
        own->groups.pop_front();
    }
    return false;
}

void cudasim_copy_arrive(const CudasimCopy *copy)
{
    if (copy->live)
        memcpy(copy->shared, copy->global, 16);
    else
        memset(copy->shared, 0, 16);
}

static void thread_ends(void)
{
    Copies *own = &pending[cudasim_thread_number()];
    if (own->block != cudasim_block_serial())
        return;
    size_t n = own->open.size();
    for (size_t i = 0; i < own->groups.size(); i++)
        n += own->groups[i].size();
    if (n)
        cudasim_report("thread %u ends before %zu of its cp.async copies have arrived: "
                       "rt_cp_async_wait is missing",
                       cudasim_thread_number(), n);
}

/* ---- time ------------------------------------------------------------------------------------ */

uint64_t cudasim_nanoseconds(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}
