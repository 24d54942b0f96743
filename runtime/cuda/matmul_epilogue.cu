/* matmul_epilogue.cu -- GELU, or its gradient, in the kernel of a product: is it done there?
 *
 * In: a product that the program can do so, and the same without. Out: yes or no, with a reason
 * that is printed at start. The one idea: a library may say yes and launch a second kernel, which
 * is slower than the program's own, so a call is recorded as a CUDA graph and its kernels are
 * counted; where there is one, it is timed beside the product and a kernel like the program's. The
 * choice is kept as those of algorithms are, since it changes bits: on disk and in checkpoints.
 */
#include "cuda/matmul.h"

#include <stdarg.h>

RtEpilogues rt_epilogues(void)
{
    return rt_environment_is("RT_CUDA_EPILOGUE", "on")    ? RT_EPILOGUES_ON
           : rt_environment_is("RT_CUDA_EPILOGUE", "off") ? RT_EPILOGUES_OFF
                                                          : RT_EPILOGUES_PROBE;
}

/* Of the same name, and the same epilogue. */
static bool is_alike(const RtProduct *q, const RtProduct *r)
{
    char name[RT_PRODUCT_TEXT], other[RT_PRODUCT_TEXT];
    return q->epilogue == r->epilogue
           && strcmp(rt_product_name(q, name), rt_product_name(r, other)) == 0;
}

enum { FIELDS = 9 };

static const char *const field_texts[FIELDS] = {
    "rows of a %lld apart", "rows of b %lld apart", "rows of c %lld apart",
    "a at %lld bytes",      "b at %lld bytes",      "c at %lld bytes",
    "input at %lld bytes",  "bias at %lld bytes",   "biases: %lld",
};

static void fields_of(const RtProduct *q, long long to[FIELDS])
{
    const long long values[FIELDS] = { q->lda,     q->ldb,        q->ldc,
                                       q->align_a, q->align_b,    q->align_c,
                                       q->align_x, q->align_bias, q->bias };
    memcpy(to, values, sizeof values);
}

/* " (rows of c 160 apart, bias at 4 bytes)": what other products of the name have otherwise. */
static void tell_apart(const RtProduct *q, const RtProduct *all, int n, char text[RT_PRODUCT_TEXT])
{
    long long own[FIELDS], other[FIELDS];
    bool differs[FIELDS] = { false };
    size_t len = 0;
    fields_of(q, own);
    for (int i = 0; i < n; i++) {
        fields_of(&all[i], other);
        for (int f = 0; f < FIELDS && is_alike(q, &all[i]); f++)
            differs[f] = differs[f] || own[f] != other[f];
    }
    text[0] = 0;
    for (int f = 0; f < FIELDS && len + 48 < RT_PRODUCT_TEXT; f++)
        if (differs[f]) {
            len += (size_t)sprintf(text + len, "%s", len ? ", " : " (");
            len += (size_t)sprintf(text + len, field_texts[f], own[f]);
        }
    if (len > 0)
        (void)sprintf(text + len, ")");
}

const char *rt_epilogue_line(const RtPlan *plan, const RtProduct *all, int n,
                             char text[RT_EPILOGUE_TEXT])
{
    char name[RT_PRODUCT_TEXT], apart[RT_PRODUCT_TEXT];
    const int32_t kind = plan->key.epilogue;
    tell_apart(&plan->key, all, n, apart);
    (void)snprintf(text, RT_EPILOGUE_TEXT, "epilogue %s of %s%s: %s, %s",
                   kind == RT_GELU_GRAD        ? "gradient of GELU"
                   : kind == RT_GELU_AND_INPUT ? "GELU, beside its input,"
                                               : "GELU",
                   rt_product_name(&plan->key, name), apart,
                   plan->apart ? "a kernel of its own" : "in the product", plan->why);
    return text;
}

__attribute__((format(printf, 2, 3))) static void because(RtPlan *plan, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    (void)vsnprintf(plan->why, sizeof plan->why, format, list);
    va_end(list);
}

/* Those of n algorithms whose call is one kernel, in front; *least: the fewest kernels of any. */
static int one_kernel(RtPlan *plan, cublasLtMatmulHeuristicResult_t *found, int n,
                      const RtProductsSetup *setup, int *least)
{
    int good = 0;
    *least = 0;
    for (int i = 0; i < n; i++) {
        const int kernels = rt_plan_kernels(plan, &found[i].algo, setup);
        if (kernels > 0 && (*least == 0 || kernels < *least))
            *least = kernels;
        if (kernels == 1)
            found[good++] = found[i];
    }
    return good;
}

/* Seconds of a plan, by its own algorithm; 0: its operands do not fit. */
static double seconds_of(RtPlan *plan, const RtProductsSetup *setup, double budget)
{
    cublasLtMatmulHeuristicResult_t own;
    memset(&own, 0, sizeof own);
    own.algo = plan->algo;
    return rt_plan_fastest(plan, &own, 1, setup, budget) < 0 ? 0 : (double)plan->seconds;
}

/* Is the epilogue, by the fastest of n algorithms, faster than without? */
static bool is_worth(RtPlan *plan, RtPlan *product, const cublasLtMatmulHeuristicResult_t *found,
                     int n, const RtProductsSetup *setup, double budget)
{
    const int best = rt_plan_fastest(plan, found, n, setup, budget / 2);
    const double apart = seconds_of(product, setup, budget / 4);
    const double own = rt_epilogue_seconds(&plan->key, false, setup);
    if (best < 0 || apart <= 0 || own <= 0) {
        because(plan, "one kernel; no memory to time it in");
        plan->algo = found[0].algo;
        return true;
    }
    const double with = (double)plan->seconds + rt_epilogue_seconds(&plan->key, true, setup);
    plan->algo = found[best].algo;
    because(plan, "one kernel, %.1f us, without %.1f us", 1e6 * with, 1e6 * (apart + own));
    return with < apart + own;
}

/* The same without a kernel of its own: the first algorithm. */
static bool take(RtPlan *plan, const cublasLtMatmulHeuristicResult_t *first, const char *why)
{
    plan->algo = first->algo;
    because(plan, "%s", why);
    return true;
}

static bool choose(RtPlan *plan, RtPlan *product, const RtProductsSetup *setup, double budget)
{
    cublasLtMatmulHeuristicResult_t found[RT_ALGORITHMS];
    const RtEpilogues wish = rt_epilogues();
    int least, n;
    if (wish == RT_EPILOGUES_OFF || (wish == RT_EPILOGUES_PROBE && (!setup || !product))) {
        because(plan, wish == RT_EPILOGUES_OFF ? "RT_CUDA_EPILOGUE=off" : "not known at start");
        return false;
    }
    n = rt_plan_describe(plan, false) ? rt_plan_algorithms(plan, found, RT_ALGORITHMS) : 0;
    if (n == 0) {
        because(plan, "cuBLASLt has none");
        return false;
    }
    if (wish == RT_EPILOGUES_ON)
        return take(plan, &found[0], "RT_CUDA_EPILOGUE=on");
    n = one_kernel(plan, found, n, setup, &least);
    if (n == 0) {
        because(plan, least ? "it would be %d kernels" : "its kernels cannot be counted", least);
        return false;
    }
    return budget > 0 && product->op ? is_worth(plan, product, found, n, setup, budget)
                                     : take(plan, &found[0], "one kernel");
}

bool rt_epilogue_choose(RtPlan *plan, RtPlan *product, const RtProductsSetup *setup, double budget)
{
    plan->apart = !choose(plan, product, setup, budget);
    return budget > 0 && rt_epilogues() == RT_EPILOGUES_PROBE;
}
