/* matmul_plain.c -- products of matrices in plain C: nothing but libc and OpenMP.
 *
 * In: a product as rt.h describes it, strides filled in; operands in fp32, fp64, or 16 bits. Out:
 * c. Large ones are packed and cut into register tiles by plain.h, 16 bits becoming fp32 on the
 * way; small ones run the same tile straight on the operands (small.h), where packing and a team of
 * threads would cost more than the product. round.h rounds results to 16 bits.
 */
#include "cpu/cpu.h"
#include "cpu/simd.h"

enum {
    DEPTH = 512,            /* k of one pass over a register tile */
    NEAR_BYTES = 800 << 10, /* packed near side: most of a second-level cache */
    BLOCK_ROWS = 96,        /* rows packed at a time as the far side */
    SMALL_DEPTH = 512,      /* largest k of a product that is not packed */
    ROUND_SIDE = 256,       /* sums before they are rounded: the shorter side of a block, */
    ROUND_ELEMS = 256 * 288 /* and all of it */
};

static bool is_small(const RtMatmul *p)
{
    return p->k <= SMALL_DEPTH && (double)p->m * (double)p->n * (double)p->k <= RT_MATMUL_SMALL;
}

#define TEMPLATE "cpu/plain.h"
#include "cpu/twice.h"
#define TEMPLATE "cpu/small.h"
#include "cpu/twice.h"

#define TEMPLATE "cpu/plain.h"
#include "cpu/halves.h"
#define TEMPLATE "cpu/round.h"
#include "cpu/halves.h"
