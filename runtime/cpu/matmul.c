/* matmul.c -- the seam of matrix products: every product of emitted code comes through here.
 *
 * In: RtMatmul, with zeros for defaults. Out: c. The one idea: who computes a product is a function
 * of its shape alone (and of RT_MATMUL=plain), never of a clock, so a resumed run computes the same
 * bits. Operands in bf16 have one choice more, made once in a run and kept with it (products.c).
 */
#include <stdlib.h>

#include "cpu/cpu.h"
#include "cpu/simd.h"

/* Fills in the defaults; false where there is nothing to do. */
static bool matmul_complete(RtMatmul *p)
{
    if (p->lda == 0)
        p->lda = p->ta ? p->m : p->k;
    if (p->ldb == 0)
        p->ldb = p->tb ? p->k : p->n;
    if (p->ldc == 0)
        p->ldc = p->n;
    for (int i = 0; i < 2; i++)
        if (p->batch[i] == 0)
            p->batch[i] = 1;
    return p->m > 0 && p->n > 0;
}

static ptrdiff_t matmul_offset(const ptrdiff_t step[2], const RtMatmul *p, ptrdiff_t problem)
{
    return problem / p->batch[1] * step[0] + problem % p->batch[1] * step[1];
}

/* One team for the batch, or one for each product: whole products to threads where there are enough
   of them, and where one product alone would not occupy a team. */
static bool matmul_is_batch_parallel(const RtMatmul *p, ptrdiff_t problems, int threads)
{
    const double work = (double)p->m * (double)p->n * (double)p->k;
    if (problems <= 1 || threads <= 1 || work * (double)problems <= RT_MATMUL_SMALL)
        return false;
    return problems >= 4 * threads || work <= 4 * RT_MATMUL_SMALL;
}

static int matmul_threads(void) { return omp_in_parallel() ? 1 : omp_get_max_threads(); }

static bool matmul_is_plain(void)
{
    static int plain = -1;
    if (plain < 0)
        plain = rt_environment_is("RT_MATMUL", "plain");
    return plain == 1;
}

/* Measured on Zen 4, one thread: below RT_MATMUL_SMALL the plain tile wins by its short way; where
   a side is short oneDNN wins, since it packs nothing; where both sides are long the plain product
   packs each operand once and is 0-30 % ahead. Without 512-bit vectors oneDNN takes all that is not
   small. */
static bool matmul_is_onednn(const RtMatmul *p, int threads)
{
    const double work = (double)p->m * (double)p->n * (double)p->k;
    const bool both_long = p->m >= 256 && p->n >= 256 && VECTOR_BYTES == 64;
    return work > RT_MATMUL_SMALL && !both_long && threads > 0 && !omp_in_parallel()
           && !matmul_is_plain();
}

static void matmul_one_f32(float *c, const float *a, const float *b, const RtMatmul *p, int threads)
{
    if (!matmul_is_onednn(p, threads) || !rt_matmul_onednn_f32(c, a, b, p))
        rt_matmul_plain_f32(c, a, b, p, threads);
}

/* Products one after another must not stand in a parallel region, not even in an idle one: oneDNN
   would find itself inside a team and run on one thread. */
#define MATMUL_BATCH(one)                                                                          \
    if (!matmul_complete(&p))                                                                      \
        return;                                                                                    \
    const ptrdiff_t problems = p.batch[0] * p.batch[1];                                            \
    const int threads = matmul_threads();                                                          \
    if (matmul_is_batch_parallel(&p, problems, threads)) {                                         \
        _Pragma("omp parallel for schedule(static)") for (ptrdiff_t i = 0; i < problems; i++)      \
            one(c + matmul_offset(p.step_c, &p, i), a + matmul_offset(p.step_a, &p, i),            \
                b + matmul_offset(p.step_b, &p, i), &p, 1);                                        \
    } else {                                                                                       \
        for (ptrdiff_t i = 0; i < problems; i++)                                                   \
            one(c + matmul_offset(p.step_c, &p, i), a + matmul_offset(p.step_a, &p, i),            \
                b + matmul_offset(p.step_b, &p, i), &p, threads);                                  \
    }

const char *rt_products_library(const RtModel *m)
{
    return m->real == RT_F64 || matmul_is_plain() ? "none" : rt_onednn_version();
}

void rt_matmul_f32(float *c, const float *a, const float *b, RtMatmul p)
{
    MATMUL_BATCH(matmul_one_f32)
}

void rt_matmul_f64(double *c, const double *a, const double *b, RtMatmul p)
{
    MATMUL_BATCH(rt_matmul_plain_f64)
}

/* ---- 16 bit ---------------------------------------------------------------------------------- */

/* Above the small ones, where rt_products_choose or RT_MATMUL_BF16 says so. */
static bool matmul_is_native(const RtMatmul *p, int threads)
{
    const double work = (double)p->m * (double)p->n * (double)p->k;
    return work > RT_MATMUL_SMALL && threads > 0 && !omp_in_parallel() && !matmul_is_plain()
           && rt_products_are_native();
}

static void matmul_half_bf16(float *c, rt_bf16 *half, const rt_bf16 *a, const rt_bf16 *b,
                             const RtMatmul *p, int threads)
{
    if (!matmul_is_native(p, threads)
        || !rt_matmul_onednn_bf16(c ? (void *)c : half, c ? RT_F32 : RT_BF16, a, b, p))
        rt_matmul_plain_bf16(c, half, a, b, p, threads);
}

#define MATMUL_HALF(sfx, half)                                                                     \
    static void matmul_one_##sfx##_##sfx(half *c, const half *a, const half *b, const RtMatmul *p, \
                                         int threads)                                              \
    {                                                                                              \
        matmul_half_##sfx(NULL, c, a, b, p, threads);                                              \
    }                                                                                              \
    static void matmul_one_##sfx##_f32(float *c, const half *a, const half *b, const RtMatmul *p,  \
                                       int threads)                                                \
    {                                                                                              \
        matmul_half_##sfx(c, NULL, a, b, p, threads);                                              \
    }                                                                                              \
    void rt_matmul_##sfx##_##sfx(half *c, const half *a, const half *b, RtMatmul p)                \
    {                                                                                              \
        MATMUL_BATCH(matmul_one_##sfx##_##sfx)                                                     \
    }                                                                                              \
    void rt_matmul_##sfx##_f32(float *c, const half *a, const half *b, RtMatmul p)                 \
    {                                                                                              \
        MATMUL_BATCH(matmul_one_##sfx##_f32)                                                       \
    }

MATMUL_HALF(bf16, rt_bf16)
#define matmul_half_f16 rt_matmul_plain_f16
MATMUL_HALF(f16, rt_f16)

/* ---- what they work in ----------------------------------------------------------------------- */

static void plain_room(RtRooms *need, RtType in, RtType out, const RtMatmul *p, int threads)
{
    const bool rounded = in == out;
    if (in == RT_BF16)
        rt_plain_room_bf16(need, p, rounded, threads);
    else if (in == RT_F16)
        rt_plain_room_f16(need, p, rounded, threads);
    else if (in == RT_F64)
        rt_plain_room_f64(need, p, rounded, threads);
    else
        rt_plain_room_f32(need, p, rounded, threads);
}

/* One product by one team. */
static void one_room(RtRooms *need, RtType in, RtType out, const RtMatmul *p, int threads)
{
    size_t bytes;
    const bool library = (in == RT_F32 && matmul_is_onednn(p, threads))
                         || (in == RT_BF16 && matmul_is_native(p, threads));
    if (library && rt_onednn_room(in, out, p, &bytes))
        rt_cpu_room_ask(need, RT_ROOM_PACK, false, bytes);
    else
        plain_room(need, in, out, p, threads);
}

void rt_room_matmul(RtRooms *rooms, RtType in, RtType out, RtMatmul p)
{
    if (!matmul_complete(&p))
        return;
    const int threads = matmul_threads();
    if (matmul_is_batch_parallel(&p, p.batch[0] * p.batch[1], threads)) {
        RtRooms each = { .device = 0 };
        plain_room(&each, in, out, &p, 1);
        for (int kind = 0; kind < RT_ROOM_COUNT; kind++)
            rt_cpu_room_ask(rooms, kind, true, each.own[kind]);
        return;
    }
    one_room(rooms, in, out, &p, threads);
    p.add = false; /* the first micro-step replaces */
    one_room(rooms, in, out, &p, threads);
}
