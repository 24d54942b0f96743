/* matmul_onednn.c -- products by oneDNN; the only file that knows that library, 2.x and 3.x.
 *
 * In: one product, strides filled in. Out: c, or false: not mine, c is untouched. A primitive is
 * made once per shape and kept, with memory objects whose addresses are set at each call and a
 * scratchpad of ours, so nothing is allocated after the first product of a shape.
 */
#include <oneapi/dnnl/dnnl.h>

#include "cpu/cpu.h"

enum { KEPT = 64 }; /* primitives of a thread; the oldest makes room */

typedef struct {
    ptrdiff_t m, n, k, lda, ldb, ldc;
    bool ta, tb, add, bias;
    dnnl_data_type_t in, out;
} Key;

typedef struct {
    Key key;
    dnnl_primitive_t primitive; /* NULL: oneDNN declines this product */
    dnnl_memory_t memory[5];    /* a, b, bias, c, scratchpad */
    size_t scratch;
} Kept;

enum { MEM_A, MEM_B, MEM_BIAS, MEM_C, MEM_SCRATCH, MEM_COUNT };

static _Thread_local struct {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    bool failed;
    Kept kept[KEPT];
    int n, oldest;
} cache;

static bool engine_open(void)
{
    if (!cache.stream && !cache.failed)
        cache.failed = dnnl_engine_create(&cache.engine, dnnl_cpu, 0) != dnnl_success
                       || dnnl_stream_create(&cache.stream, cache.engine, dnnl_stream_default_flags)
                              != dnnl_success;
    return !cache.failed;
}

/* ---- the shim: where 2.x and 3.x differ ------------------------------------------------------ */

#if DNNL_VERSION_MAJOR >= 3

typedef dnnl_memory_desc_t Desc;

static bool desc_make(Desc *d, ptrdiff_t rows, ptrdiff_t columns, ptrdiff_t step_row,
                      ptrdiff_t step_column, dnnl_data_type_t type)
{
    const dnnl_dims_t dims = { rows, columns }, strides = { step_row, step_column };
    return dnnl_memory_desc_create_with_strides(d, 2, dims, type, strides) == dnnl_success;
}

static void desc_free(Desc *d) { dnnl_memory_desc_destroy(*d); }

static bool post_sum(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_sum(ops, 1, 0, dnnl_f32) == dnnl_success;
}

static bool memory_make(dnnl_memory_t *to, const Desc *d)
{
    return dnnl_memory_create(to, *d, cache.engine, DNNL_MEMORY_NONE) == dnnl_success;
}

static bool matmul_make(dnnl_primitive_desc_t *pd, Desc d[4], bool bias, dnnl_primitive_attr_t attr)
{
    return dnnl_matmul_primitive_desc_create(pd, cache.engine, d[MEM_A], d[MEM_B],
                                             bias ? d[MEM_BIAS] : NULL, d[MEM_C], attr)
           == dnnl_success;
}

static size_t scratch_bytes(const_dnnl_primitive_desc_t pd)
{
    const_dnnl_memory_desc_t d = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    return d ? dnnl_memory_desc_get_size(d) : 0;
}

static bool scratch_make(Kept *kept, const_dnnl_primitive_desc_t pd)
{
    const_dnnl_memory_desc_t d = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    kept->scratch = scratch_bytes(pd);
    return kept->scratch == 0
           || dnnl_memory_create(&kept->memory[MEM_SCRATCH], d, cache.engine, DNNL_MEMORY_NONE)
                  == dnnl_success;
}

#else

typedef dnnl_memory_desc_t Desc;

static bool desc_make(Desc *d, ptrdiff_t rows, ptrdiff_t columns, ptrdiff_t step_row,
                      ptrdiff_t step_column, dnnl_data_type_t type)
{
    const dnnl_dims_t dims = { rows, columns }, strides = { step_row, step_column };
    return dnnl_memory_desc_init_by_strides(d, 2, dims, type, strides) == dnnl_success;
}

static void desc_free(Desc *d) { RT_UNUSED(d); }

static bool post_sum(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_sum(ops, 1) == dnnl_success;
}

static bool memory_make(dnnl_memory_t *to, const Desc *d)
{
    return dnnl_memory_create(to, d, cache.engine, DNNL_MEMORY_NONE) == dnnl_success;
}

static bool matmul_make(dnnl_primitive_desc_t *pd, Desc d[4], bool bias, dnnl_primitive_attr_t attr)
{
    dnnl_matmul_desc_t op;
    return dnnl_matmul_desc_init(&op, &d[MEM_A], &d[MEM_B], bias ? &d[MEM_BIAS] : NULL, &d[MEM_C])
               == dnnl_success
           && dnnl_primitive_desc_create(pd, &op, attr, cache.engine, NULL) == dnnl_success;
}

static size_t scratch_bytes(const_dnnl_primitive_desc_t pd)
{
    const dnnl_memory_desc_t *d = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    return d ? dnnl_memory_desc_get_size(d) : 0;
}

static bool scratch_make(Kept *kept, const_dnnl_primitive_desc_t pd)
{
    const dnnl_memory_desc_t *d = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    kept->scratch = scratch_bytes(pd);
    return kept->scratch == 0
           || dnnl_memory_create(&kept->memory[MEM_SCRATCH], d, cache.engine, DNNL_MEMORY_NONE)
                  == dnnl_success;
}

#endif

/* ---- one primitive per shape ----------------------------------------------------------------- */

static bool attr_make(dnnl_primitive_attr_t *attr, bool add)
{
    dnnl_post_ops_t ops = NULL;
    bool good = dnnl_primitive_attr_create(attr) == dnnl_success
                && dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user)
                       == dnnl_success;
    if (good && add) {
        good = dnnl_post_ops_create(&ops) == dnnl_success && post_sum(ops)
               && dnnl_primitive_attr_set_post_ops(*attr, ops) == dnnl_success;
        dnnl_post_ops_destroy(ops);
    }
    return good;
}

const char *rt_onednn_version(void)
{
    static char text[48];
    const dnnl_version_t *v = dnnl_version();
    snprintf(text, sizeof text, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
    return text;
}

static void kept_free(Kept *kept)
{
    for (int i = 0; i < MEM_COUNT; i++)
        if (kept->memory[i])
            dnnl_memory_destroy(kept->memory[i]);
    if (kept->primitive)
        dnnl_primitive_destroy(kept->primitive);
    *kept = (Kept){ .primitive = NULL };
}

/* The product as oneDNN sees it: how it would be done, and its operands. What is
   made is freed by plan_free. */
typedef struct {
    Desc d[4];
    dnnl_primitive_attr_t attr;
    dnnl_primitive_desc_t pd;
    bool described; /* d is made */
} Plan;

static bool plan_make(Plan *plan, const Key *q)
{
    Desc *d = plan->d;
    *plan = (Plan){ .attr = NULL };
    plan->described = desc_make(&d[MEM_A], q->m, q->k, q->ta ? 1 : q->lda, q->ta ? q->lda : 1,
                                q->in)
                      && desc_make(&d[MEM_B], q->k, q->n, q->tb ? 1 : q->ldb, q->tb ? q->ldb : 1,
                                   q->in)
                      && desc_make(&d[MEM_BIAS], 1, q->n, q->n, 1, dnnl_f32)
                      && desc_make(&d[MEM_C], q->m, q->n, q->ldc, 1, q->out);
    return plan->described && attr_make(&plan->attr, q->add)
           && matmul_make(&plan->pd, d, q->bias, plan->attr);
}

static void plan_free(Plan *plan)
{
    for (int i = 0; i < 4 && plan->described; i++)
        desc_free(&plan->d[i]);
    if (plan->pd)
        dnnl_primitive_desc_destroy(plan->pd);
    if (plan->attr)
        dnnl_primitive_attr_destroy(plan->attr);
}

static void kept_make(Kept *kept, const Key *q)
{
    Plan plan;
    *kept = (Kept){ .key = *q };
    bool good = plan_make(&plan, q);
    for (int i = 0; i < 4 && good; i++)
        good = memory_make(&kept->memory[i], &plan.d[i]);
    good = good && scratch_make(kept, plan.pd)
           && dnnl_primitive_create(&kept->primitive, plan.pd) == dnnl_success;
    plan_free(&plan);
    if (!good) {
        kept_free(kept);
        kept->key = *q;
    }
}

static bool key_same(const Key *a, const Key *b)
{
    return a->m == b->m && a->n == b->n && a->k == b->k && a->lda == b->lda && a->ldb == b->ldb
           && a->ldc == b->ldc && a->ta == b->ta && a->tb == b->tb && a->add == b->add
           && a->bias == b->bias && a->in == b->in && a->out == b->out;
}

static Kept *kept_find(const Key *key)
{
    for (int i = 0; i < cache.n; i++)
        if (key_same(&cache.kept[i].key, key))
            return &cache.kept[i];
    Kept *kept = &cache.kept[cache.n < KEPT ? cache.n : cache.oldest];
    if (cache.n < KEPT)
        cache.n++;
    else
        cache.oldest = (cache.oldest + 1) % KEPT;
    kept_free(kept);
    kept_make(kept, key);
    return kept;
}

static Key key_of(const RtMatmul *p, dnnl_data_type_t in, dnnl_data_type_t out)
{
    return (Key){ .m = p->m,
                  .n = p->n,
                  .k = p->k,
                  .lda = p->lda,
                  .ldb = p->ldb,
                  .ldc = p->ldc,
                  .ta = p->ta,
                  .tb = p->tb,
                  .add = p->add,
                  .bias = p->bias,
                  .in = in,
                  .out = out };
}

static bool product(void *c, const void *a, const void *b, const RtMatmul *p, dnnl_data_type_t in,
                    dnnl_data_type_t out)
{
    const Key key = key_of(p, in, out);
    if (!engine_open())
        return false;
    Kept *kept = kept_find(&key);
    if (!kept->primitive)
        return false;
    const void *at[MEM_COUNT] = { a, b, p->bias, c,
                                  kept->scratch ? rt_cpu_room(RT_ROOM_PACK, kept->scratch) : NULL };
    static const int names[MEM_COUNT] = { DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS,
                                          DNNL_ARG_DST, DNNL_ARG_SCRATCHPAD };
    dnnl_exec_arg_t args[MEM_COUNT];
    int n = 0;
    for (int i = 0; i < MEM_COUNT; i++)
        if (at[i]) {
            if (dnnl_memory_set_data_handle(kept->memory[i], (void *)(uintptr_t)at[i])
                != dnnl_success)
                return false;
            args[n++] = (dnnl_exec_arg_t){ names[i], kept->memory[i] };
        }
    return dnnl_primitive_execute(kept->primitive, cache.stream, n, args) == dnnl_success
           && dnnl_stream_wait(cache.stream) == dnnl_success;
}

bool rt_matmul_onednn_f32(float *c, const float *a, const float *b, const RtMatmul *p)
{
    return product(c, a, b, p, dnnl_f32, dnnl_f32);
}

bool rt_matmul_onednn_bf16(void *c, RtType type, const rt_bf16 *a, const rt_bf16 *b,
                           const RtMatmul *p)
{
    return product(c, a, b, p, dnnl_bf16, type == RT_BF16 ? dnnl_bf16 : dnnl_f32);
}

bool rt_onednn_room(RtType in, RtType out, const RtMatmul *p, size_t *bytes)
{
    const Key key = key_of(p, in == RT_BF16 ? dnnl_bf16 : dnnl_f32,
                           out == RT_BF16 ? dnnl_bf16 : dnnl_f32);
    Plan plan;
    if (!engine_open())
        return false;
    const bool good = plan_make(&plan, &key);
    *bytes = good ? scratch_bytes(plan.pd) : 0;
    plan_free(&plan);
    return good;
}
