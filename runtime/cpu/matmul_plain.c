/* matmul_plain.c -- products of matrices in plain C: nothing but libc and OpenMP, fp32 and fp64.
 *
 * In: a product as rt.h describes it, strides filled in. Out: c. Large ones are packed and cut into
 * register tiles by plain.h; small ones run the same tile straight on the operands, where packing
 * and a team of threads would cost more than the product.
 */
#include "cpu/cpu.h"
#include "cpu/simd.h"

enum {
    DEPTH = 512,            /* k of one pass over a register tile */
    NEAR_BYTES = 800 << 10, /* packed near side: most of a second-level cache */
    BLOCK_ROWS = 96,        /* rows packed at a time as the far side */
    SMALL_DEPTH = 512,      /* largest k of a product that is not packed */
};

/* Packing room of this thread, kept between calls. */
static _Thread_local struct {
    void *at;
    size_t bytes;
} workspace;

void *rt_cpu_room(size_t bytes)
{
    if (workspace.bytes < bytes) {
        rt_mem.free(workspace.at);
        workspace.bytes = 0;
        workspace.at = rt_alloc(bytes, "workspace of products");
        workspace.bytes = bytes;
    }
    return workspace.at;
}

#define TEMPLATE "cpu/plain.h"
#include "cpu/twice.h"
