/* products.c -- how products of bf16 operands are computed: a choice that a run makes once.
 *
 * In: what the environment, the checkpoint or a measurement says. Out: native or unpack. The one
 * idea: a processor may have instructions for bf16 that are slower than its fp32 ones, so its
 * feature flags decide nothing; and a run that goes on must compute the same bits, so what was
 * measured is stored with it.
 */
#include <stdlib.h>

#include "cpu/cpu.h"

static RtProducts chosen; /* UNSET: as RT_MATMUL_BF16 says, else unpack */

static RtProducts wanted_by_environment(void)
{
    return rt_products_by_name(rt_environment("RT_MATMUL_BF16"));
}

RtProducts rt_products_now(void)
{
    if (chosen == RT_PRODUCTS_UNSET)
        chosen = wanted_by_environment() == RT_PRODUCTS_NATIVE ? RT_PRODUCTS_NATIVE
                                                               : RT_PRODUCTS_UNPACK;
    return chosen;
}

bool rt_products_are_native(void) { return rt_products_now() == RT_PRODUCTS_NATIVE; }

/* ---- the measurement ------------------------------------------------------------------------- */

enum { SIDE_M = 256, SIDE_N = 512, SIDE_K = 512, TIMES = 4 };

/* Seconds of the fastest native product of some, and of those unpacked to fp32, in turn, after one
   of each that warms up; false: no native ones here. */
static bool measure(int times, double *native, double *unpack)
{
    const RtMatmul p = { .m = SIDE_M,
                         .n = SIDE_N,
                         .k = SIDE_K,
                         .tb = true,
                         .lda = SIDE_K,
                         .ldb = SIDE_K,
                         .ldc = SIDE_N,
                         .batch = { 1, 1 } };
    const size_t size_a = SIDE_M * SIDE_K, size_b = SIDE_N * SIDE_K, size_c = SIDE_M * SIDE_N;
    rt_bf16 *a = rt_alloc((size_a + size_b + size_c) * sizeof *a, "a measurement");
    rt_bf16 *b = a + size_a, *c = b + size_b;
    bool good = true;
    for (size_t i = 0; i < size_a + size_b; i++)
        a[i] = rt_to_bf16((float)(i % 251) / 128 - 1);
    *native = *unpack = INFINITY;
    for (int i = 0; i <= times && good; i++) {
        const double start = rt_now();
        good = rt_matmul_onednn_bf16(c, RT_BF16, a, b, &p);
        const double between = rt_now();
        if (good && times > 0)
            rt_matmul_plain_bf16(NULL, c, a, b, &p, omp_get_max_threads());
        if (i > 0) {
            *native = fmin(*native, between - start);
            *unpack = fmin(*unpack, rt_now() - between);
        }
    }
    rt_free(a);
    rt_rooms_close();
    return good;
}

const char *rt_products_text(void) { return NULL; }
void rt_products_take(const char *plans) { RT_UNUSED(plans); }

RtProducts rt_products_choose(RtProducts stored)
{
    double native, unpack;
    const RtProducts wanted = wanted_by_environment();
    chosen = wanted != RT_PRODUCTS_UNSET ? wanted : stored;
    if (chosen == RT_PRODUCTS_UNPACK)
        return chosen;
    const bool asked = chosen == RT_PRODUCTS_NATIVE;
    const bool possible = measure(asked ? 0 : TIMES, &native, &unpack);
    if (asked && !possible)
        rt_warn("bf16 products cannot be native here: they are computed in fp32, which agrees to "
                "rounding, not bit for bit");
    chosen = possible && (asked || native < unpack) ? RT_PRODUCTS_NATIVE : RT_PRODUCTS_UNPACK;
    return chosen;
}

const char *rt_products_how(RtProducts now, RtProducts stored)
{
    static char text[128];
    snprintf(text, sizeof text, "%s (%s)",
             now == RT_PRODUCTS_NATIVE ? "by the processor's bf16 instructions"
                                       : "in fp32, unpacked block by block",
             now == stored                      ? "as before"
             : rt_environment("RT_MATMUL_BF16") ? "RT_MATMUL_BF16"
                                                : "the faster way here");
    return text;
}

size_t rt_plans_most(const RtRooms *rooms)
{
    RT_UNUSED(rooms);
    return 0;
}
