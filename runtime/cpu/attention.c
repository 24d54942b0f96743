/* attention.c -- softmax(scale q k') v and its gradient, in memory of order T.
 *
 * In: heads in place, wherever their rows lie (packed qkv included). Out: y and lse; d_q, d_k and
 * d_v. One thread does one head; where there are fewer heads than threads, blocks of queries (and
 * in backward, for d_k and d_v, blocks of keys) are shared out. Every sum has a fixed order.
 */
#include "cpu/cpu.h"
#include "cpu/simd.h"

enum { BLOCK = 64 }; /* queries, and keys, that meet in cache */

CPU_INLINE ptrdiff_t min_size(ptrdiff_t a, ptrdiff_t b) { return a < b ? a : b; }
CPU_INLINE ptrdiff_t max_size(ptrdiff_t a, ptrdiff_t b) { return a > b ? a : b; }
CPU_INLINE ptrdiff_t ceil_div(ptrdiff_t a, ptrdiff_t b) { return (a + b - 1) / b; }
CPU_INLINE ptrdiff_t round_up(ptrdiff_t a, ptrdiff_t b) { return (a + b - 1) / b * b; }

#define REAL  float
#define V     Vf
#define LANES LANES_F
#define N(x)  x##_f32
#include "cpu/attend.h"
#undef REAL
#undef V
#undef LANES
#undef N

#define REAL  double
#define V     Vd
#define LANES LANES_D
#define N(x)  x##_f64
#include "cpu/attend.h"
#undef REAL
#undef V
#undef LANES
#undef N

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

void rt_attention_f32(float *y, float *lse, const float *q, const float *k, const float *v,
                      RtAttention a)
{
    const Forward_f32 w = { .q = q, .y = y, .lse = lse, .q_t = a.q.t, .y_t = a.y.t };
    if (attention_complete(&a))
        attend_f32(w, k, v, &a, attention_threads(&a));
}

void rt_attention_f64(double *y, double *lse, const double *q, const double *k, const double *v,
                      RtAttention a)
{
    const Forward_f64 w = { .q = q, .y = y, .lse = lse, .q_t = a.q.t, .y_t = a.y.t };
    if (attention_complete(&a))
        attend_f64(w, k, v, &a, attention_threads(&a));
}

void rt_attention_grad_f32(float *d_q, float *d_k, float *d_v, const float *q, const float *k,
                           const float *v, const float *y, const float *lse, const float *d_y,
                           RtAttention a)
{
    if (!attention_complete(&a))
        return;
    const Backward_f32 w = { .q = q,
                             .y = y,
                             .lse = lse,
                             .d_y = d_y,
                             .d_q = d_q,
                             .d_k = d_k,
                             .d_v = d_v,
                             .q_t = a.q.t,
                             .d_q_t = a.d_q.t,
                             .d_k_t = a.d_k.t,
                             .d_v_t = a.d_v.t,
                             .d_y_t = a.d_y.t };
    attend_back_f32(w, k, v, &a, attention_threads(&a));
}

void rt_attention_grad_f64(double *d_q, double *d_k, double *d_v, const double *q, const double *k,
                           const double *v, const double *y, const double *lse, const double *d_y,
                           RtAttention a)
{
    if (!attention_complete(&a))
        return;
    const Backward_f64 w = { .q = q,
                             .y = y,
                             .lse = lse,
                             .d_y = d_y,
                             .d_q = d_q,
                             .d_k = d_k,
                             .d_v = d_v,
                             .q_t = a.q.t,
                             .d_q_t = a.d_q.t,
                             .d_k_t = a.d_k.t,
                             .d_v_t = a.d_v.t,
                             .d_y_t = a.d_y.t };
    attend_back_f64(w, k, v, &a, attention_threads(&a));
}
