/* attention.c -- softmax(scale q k') v and its gradient, in memory of order T.
 *
 * In: heads in place, wherever their rows lie (packed qkv included). Out: y and lse; d_q, d_k and
 * d_v. One thread does one head; where there are fewer heads than threads, blocks of queries (and
 * in backward, for d_k and d_v, blocks of keys) are shared out. Every sum has a fixed order.
 */
#include "cpu/cpu.h"
#include "cpu/simd.h"

enum { BLOCK = 64 }; /* queries, and keys, that meet in cache */

static bool attention_complete(RtAttention *a)
{
    if (a->scale == 0)
        a->scale = 1 / sqrt((double)a->D);
    return a->B > 0 && a->H > 0;
}

static int attention_threads(const RtAttention *a)
{
    const double work = (double)a->B * (double)a->H * (double)a->T * (double)a->S
                        * (double)(a->D + a->E);
    return omp_in_parallel() || work < RT_MATMUL_SMALL ? 1 : omp_get_max_threads();
}

#define TEMPLATE "cpu/attend.h"
#include "cpu/twice.h"
