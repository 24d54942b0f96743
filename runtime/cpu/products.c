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
    const char *name = getenv("RT_MATMUL_BF16");
    const RtProducts wanted = rt_products_by_name(name);
    if (name && wanted == RT_PRODUCTS_UNSET)
        rt_warn("RT_MATMUL_BF16=%s means nothing; it is native or unpack", name);
    return wanted;
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

enum { SIDE_M = 256, SIDE_N = 768, SIDE_K = 512, TIMES = 5 };

static void fill(float *x, rt_bf16 *half, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n; i++) {
        x[i] = (float)(i % 251 - 125) / 128;
        half[i] = rt_to_bf16(x[i]);
    }
}

/* Seconds of the fastest of some native products and of some in fp32, in turn; false: no native
   ones here. */
static bool measure(double *native, double *fp32)
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
    float *x = rt_alloc((size_a + size_b + size_c) * sizeof *x, "a measurement");
    rt_bf16 *half = rt_alloc((size_a + size_b + size_c) * sizeof *half, "a measurement");
    bool good = true;
    fill(x, half, (ptrdiff_t)(size_a + size_b));
    *native = *fp32 = INFINITY;
    for (int i = 0; i <= TIMES && good; i++) { /* the first ones warm up */
        const double start = rt_now();
        good = rt_matmul_onednn_bf16(half + size_a + size_b, RT_BF16, half, half + size_a, &p);
        const double between = rt_now();
        if (good)
            rt_matmul_f32(x + size_a + size_b, x, x + size_a, p);
        const double end = rt_now();
        if (i > 0) {
            *native = fmin(*native, between - start);
            *fp32 = fmin(*fp32, end - between);
        }
    }
    rt_free(x);
    rt_free(half);
    return good;
}

RtProducts rt_products_choose(RtProducts stored)
{
    double native, fp32;
    const RtProducts wanted = wanted_by_environment();
    chosen = wanted != RT_PRODUCTS_UNSET ? wanted : stored;
    if (chosen == RT_PRODUCTS_UNPACK)
        return chosen;
    const bool possible = measure(&native, &fp32);
    if (chosen == RT_PRODUCTS_NATIVE && !possible)
        rt_warn("bf16 products cannot be native here: they are computed in fp32, which agrees to "
                "rounding, not bit for bit");
    if (chosen == RT_PRODUCTS_UNSET || !possible)
        chosen = possible && native < fp32 ? RT_PRODUCTS_NATIVE : RT_PRODUCTS_UNPACK;
    return chosen;
}
