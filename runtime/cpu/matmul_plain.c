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

CPU_INLINE ptrdiff_t min_size(ptrdiff_t a, ptrdiff_t b) { return a < b ? a : b; }
CPU_INLINE ptrdiff_t max_size(ptrdiff_t a, ptrdiff_t b) { return a > b ? a : b; }
CPU_INLINE ptrdiff_t ceil_div(ptrdiff_t a, ptrdiff_t b) { return (a + b - 1) / b; }
CPU_INLINE ptrdiff_t round_up(ptrdiff_t a, ptrdiff_t b) { return (a + b - 1) / b * b; }

#define REAL  float
#define V     Vf
#define LANES LANES_F
#define N(x)  x##_f32
#include "cpu/plain.h"
#undef REAL
#undef V
#undef LANES
#undef N

#define REAL  double
#define V     Vd
#define LANES LANES_D
#define N(x)  x##_f64
#include "cpu/plain.h"
#undef REAL
#undef V
#undef LANES
#undef N

void rt_matmul_plain_f32(float *c, const float *a, const float *b, const RtMatmul *p, int threads)
{
    if (p->k <= SMALL_DEPTH && (double)p->m * (double)p->n * (double)p->k <= RT_MATMUL_SMALL)
        run_small_f32(c, a, b, p);
    else
        run_product_f32(c, a, b, p, threads);
}

void rt_matmul_plain_f64(double *c, const double *a, const double *b, const RtMatmul *p,
                         int threads)
{
    if (p->k <= SMALL_DEPTH && (double)p->m * (double)p->n * (double)p->k <= RT_MATMUL_SMALL)
        run_small_f64(c, a, b, p);
    else
        run_product_f64(c, a, b, p, threads);
}
