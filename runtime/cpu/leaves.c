/* leaves.c -- gradients and losses of a part of the batch are kept, and added, for --tree.
 *
 * In: what comm/tree.c keeps. Out: sums. cuda/leaves.cu is its twin.
 */
#include "comm/comm.h"

void rt_leaf_keep(const RtModel *m, const RtLeaf *to, const void *d_p, RtStep *s)
{
    memcpy(to->gradient, d_p, (size_t)m->n_elems * rt_real_bytes(m));
    memcpy(to->sum, s->sum, sizeof s->sum);
    memset(s->sum, 0, sizeof s->sum);
}

#define DEFINE_ADD(real, name)                                                                     \
    static void name(real *restrict to, const real *restrict from, ptrdiff_t n)                    \
    {                                                                                              \
        RT_PARALLEL_SIMD(n)                                                                        \
        for (ptrdiff_t i = 0; i < n; i++)                                                          \
            to[i] += from[i];                                                                      \
    }
DEFINE_ADD(float, add_f32)
DEFINE_ADD(double, add_f64)

void rt_leaf_add(const RtModel *m, const RtLeaf *from, void *d_p, RtStep *s)
{
    if (m->real == RT_F64)
        add_f64(d_p, from->gradient, m->n_elems);
    else
        add_f32(d_p, from->gradient, m->n_elems);
    for (int i = 0; i < RT_MAX_SLOTS; i++)
        s->sum[i] += from->sum[i];
}
