/* test_updates.c -- updates on the device against those of the CPU: norm, clipping, rules, LAMB,
 * Adafactor, Muon, the copy in 16 bits, the average of the weights, in all types.
 */
#include <math.h>
#include <stdio.h>

#include "twins.h"

/* Odd sizes and places: parts that begin anywhere, columns in several ranges, many small matrices.
 */
enum { WIDE = 3 * 4099, TALL = 700 * 7, STACK = 2 * 33 * 31, CUBE = 6 * 5 * 3 * 3 };
enum {
    AT_WIDE = 1,
    AT_BIAS = AT_WIDE + WIDE,
    AT_TALL = AT_BIAS + 5,
    AT_STACK = AT_TALL + TALL,
    AT_CUBE = AT_STACK + STACK,
    AT_FIXED = AT_CUBE + CUBE,
    AT_STATE = AT_FIXED + 10,
    AT_TABLE = AT_STATE + 7,
    N = AT_TABLE + 50 * 12 + 9000
};
static const RtParam params[] = {
    { .path = "wide", .decay = true, .rank = 2, .shape = { 3, 4099 }, .at = AT_WIDE },
    { .path = "b", .role = RT_BIAS, .rank = 1, .shape = { 5 }, .at = AT_BIAS, .group = 1 },
    { .path = "tall", .decay = true, .rank = 2, .shape = { 700, 7 }, .at = AT_TALL },
    { .path = "h.*",
      .decay = true,
      .rank = 2,
      .shape = { 33, 31 },
      .at = AT_STACK,
      .n_stacks = 1,
      .stack = { { 2, 33 * 31 } } },
    { .path = "cube", .decay = true, .rank = 4, .shape = { 6, 5, 3, 3 }, .at = AT_CUBE },
    { .path = "fixed", .role = RT_BIAS, .rank = 1, .shape = { 10 }, .at = AT_FIXED, .group = 2 },
    { .path = "s", .role = RT_STATE, .rank = 1, .shape = { 7 }, .at = AT_STATE },
    { .path = "table",
      .role = RT_EMBEDDING,
      .excepted = true,
      .decay = true,
      .rank = 2,
      .shape = { 50, 12 },
      .at = AT_TABLE },
    { .path = "long", .role = RT_BIAS, .rank = 1, .shape = { 9000 }, .at = AT_TABLE + 600 },
};
static const RtGroup groups[] = { { .names = "b", .rate = 0.5, .own_decay = true, .decay = 0.3 },
                                  { .names = "fixed", .rate = 0 } };
static const RtSlot slots[] = { { .name = "loss", .weight = 1 }, { .name = "other" } };

typedef struct {
    const char *name;
    RtTrain train;
} Case;

#define ADAMW                                                                                      \
    .optimizer = RT_RULE, .rule = "adamw", .lr = 0.01, .weight_decay = 0.1,                        \
    .states = { "m", "v" }, .n_states = 2, .n_hypers = 3,                                          \
    .hyper = { { "beta1", 0.9, 0, 1 }, { "beta2", 0.99, 0, 1 }, { "eps", 1e-8, 0, 1 } }
static const Case cases[] = {
    { "adamw", { ADAMW, .clip = 0.5, .ema = 0.9 } },
    { "adamw, no clip", { ADAMW } },
    { "adamw, clip by value", { ADAMW, .clip_value = 0.07, .clip = 2, .ema = 0.9 } },
    { "lamb",
      { .optimizer = RT_LAMB,
        .lr = 0.01,
        .weight_decay = 0.1,
        .clip = 1,
        .ema = 0.9,
        .n_hypers = 3,
        .hyper = { { "beta1", 0.9, 0, 1 }, { "beta2", 0.99, 0, 1 }, { "eps", 1e-6, 0, 1 } } } },
    { "adafactor",
      { .optimizer = RT_ADAFACTOR,
        .lr = 0.03,
        .weight_decay = 0.1,
        .ema = 0.9,
        .n_hypers = 4,
        .hyper = { { "beta2-decay", -0.8, -1, 0 },
                   { "eps1", 0, 0, 1 },
                   { "eps2", 1e-3, 0, 1 },
                   { "d", 1, 0, 9 } } } },
    { "muon",
      { .optimizer = RT_MUON,
        .lr = 0.02,
        .weight_decay = 0.1,
        .clip = 1,
        .ema = 0.9,
        .nesterov = true,
        .n_hypers = 5,
        .hyper = { { "momentum", 0.95, 0, 1 },
                   { "adamw-factor", 0.3, 0, 1 },
                   { "beta1", 0.9, 0, 1 },
                   { "beta2", 0.99, 0, 1 },
                   { "eps", 1e-8, 0, 1 } } } },
};
enum { N_CASES = sizeof cases / sizeof *cases };

static int failed;

static void check(bool good, const char *test, const char *what)
{
    if (!good) {
        printf("not ok updates/%s: %s\n", test, what);
        failed++;
    }
}

static double value(RtType real, const void *at, ptrdiff_t i)
{
    return real == RT_F64 ? ((const double *)at)[i] : (double)((const float *)at)[i];
}

static void set(const RtModel *m, void *at, ptrdiff_t i, double x)
{
    if (m->real == RT_F64)
        ((double *)at)[i] = x;
    else
        ((float *)at)[i] = (float)x;
}

/* Are n values near those of the CPU, which has them in host memory? */
static void same(const char *test, const char *what, RtType real, const void *cpu, const void *gpu,
                 ptrdiff_t n, double bound)
{
    const size_t bytes = (size_t)n * (real == RT_F64 ? 8 : 4);
    void *got = rt_alloc(bytes + 1, "a test");
    char text[128];
    gpu_get(got, gpu, bytes);
    for (ptrdiff_t i = 0; i < n; i++) {
        const double a = value(real, got, i), b = value(real, cpu, i);
        if (fabs(a - b) <= bound * (fabs(b) + 1e-3))
            continue;
        snprintf(text, sizeof text, "%s of element %td is %.10g, wanted %.10g", what, i, a, b);
        check(false, test, text);
        break;
    }
    rt_free(got);
}

static void same_halves(const char *test, const char *what, const uint16_t *cpu,
                        const uint16_t *gpu, ptrdiff_t n, int bound)
{
    uint16_t *got = rt_alloc((size_t)n * sizeof *got + 1, "a test");
    gpu_get(got, gpu, (size_t)n * sizeof *got);
    for (ptrdiff_t i = 0; i < n; i++)
        if (abs((int)got[i] - (int)cpu[i]) > bound) {
            check(false, test, what);
            break;
        }
    rt_free(got);
}

static void same_twins(const char *test, const Twin *c, const Twin *g, double bound)
{
    const RtModel *m = c->run.model;
    const ptrdiff_t wide = rt_params_wide(m);
    same(test, "p", m->real, c->run.p, g->run.p, wide, bound);
    if (m->n_halves > 0)
        same_halves(test, "halves", rt_params_halves(m, c->run.p) + wide,
                    rt_params_halves(m, g->run.p) + wide, m->n_halves, 0);
    for (int i = 0; i < c->state.n_states; i++) {
        const RtStateShape shape = c->state.states[i].shape;
        same(test, c->state.states[i].name, m->real, c->state.states[i].at, g->state.states[i].at,
             shape ? rt_state_elems(m, shape) : m->n_elems, bound);
    }
    if (c->state.ema)
        same(test, "average", m->real, c->state.ema, g->state.ema, m->n_elems,
             m->n_halves ? 1e-2 : bound);
    if (rt_params_copy_bytes(m) > 0)
        same_halves(test, "copy", c->run.p16, g->run.p16, m->n_elems, 1);
}

static void start(Twin *c)
{
    const RtModel *m = c->run.model;
    const ptrdiff_t wide = rt_params_wide(m);
    for (ptrdiff_t i = 0; i < wide; i++)
        set(m, c->run.p, i, 0.5 * sin((double)i));
    for (ptrdiff_t i = wide; i < m->n_elems; i++)
        rt_params_halves(m, c->run.p)[i] = rt_to_bf16((float)(0.5 * sin((double)i)));
    RtStep s = { .finite = true };
    cpu_do(c, DO_COPY, &s);
    cpu_do(c, DO_EMA_START, &s);
}

static void gradient(Twin *c, int step, double scale)
{
    for (ptrdiff_t i = 0; i < c->run.model->n_elems; i++)
        set(c->run.model, c->run.d_p, i,
            scale * 0.05 * (cos(0.37 * (double)i + step) + 0.3 * sin(0.011 * (double)i * step)));
}

/* Finite flag, norm, clipping, update; on both. */
static void step(const char *test, Twin *c, Twin *g, RtStep *s)
{
    static const Do order[] = { DO_NORM, DO_CLIP_VALUE, DO_CLIP, DO_UPDATE };
    RtStep on_gpu = *s;
    gpu_gradient(g, c);
    for (int i = 0; i < 4; i++) {
        cpu_do(c, order[i], s);
        gpu_do(g, order[i], &on_gpu);
    }
    check(on_gpu.finite == s->finite, test, "the finite flag");
    check(!s->finite || fabs(on_gpu.norm - s->norm) <= 1e-12 * s->norm, test, "the norm");
    check(!s->finite || fabs(on_gpu.limited - s->limited) <= 1e-12 * s->limited, test,
          "the norm of limited elements");
    check(!s->finite || fabs(on_gpu.factor - s->factor) <= 1e-12, test, "the factor");
}

static void run_case(const Case *k, RtType real, RtType compute, ptrdiff_t n_halves)
{
    RtModel m = { .name = "net",
                  .source = "net.model",
                  .real = real,
                  .compute = compute,
                  .params = params,
                  .n_params = sizeof params / sizeof *params,
                  .n_elems = N,
                  .n_halves = n_halves,
                  .groups = groups,
                  .n_groups = 2,
                  .slots = slots,
                  .n_slots = 2,
                  .train = k->train };
    static const char *const types[] = { "fp32", "fp64", "", "bf16", "fp16" };
    char test[96];
    m.train.where = "net.model:9";
    snprintf(test, sizeof test, "%s, %s%s", k->name, types[real == RT_F64 ? RT_F64 : compute],
             n_halves ? ", no masters" : "");
    Twin c, g;
    cpu_open(&c, &m);
    start(&c);
    gpu_open(&g, &c);
    RtStep none = { .finite = true };
    gpu_do(&g, DO_COPY, &none);
    gpu_do(&g, DO_EMA_START, &none);
    /* Newton-Schulz raises what is small in a matrix, and rounding with it */
    const double bound = real == RT_F64 ? 1e-11 : k->train.optimizer == RT_MUON ? 3e-3 : 3e-6;
    const int before = failed;
    const double scale = compute == RT_F16 ? 1024 : 1;
    int applied = 0;
    for (int i = 0; i < 4; i++) {
        RtStep s = { .key = { 7, (uint32_t)i },
                     .lr = k->train.lr * (i + 1),
                     .applied = applied,
                     .scale = scale,
                     .factor = 1 };
        gradient(&c, i, scale);
        if (i == 1)
            set(&m, c.run.d_p, AT_TALL + 11, i % 2 ? (double)INFINITY : (double)NAN);
        if (i == 2)
            s.sum[1] = NAN; /* no part of the loss */
        step(test, &c, &g, &s);
        check(s.finite == (i != 1), test, "a gradient that is not finite");
        applied += s.finite;
        same_twins(test, &c, &g, bound);
    }
    if (k->train.ema > 0) {
        cpu_do(&c, DO_EMA_SWAP, &none);
        gpu_do(&g, DO_EMA_SWAP, &none);
        same_twins(test, &c, &g, n_halves ? 1e-2 : bound);
    }
    gpu_close(&g);
    if (failed == before)
        printf("ok updates/%s\n", test);
}

/* A norm that no double holds the square of; a loss that is not finite. */
static void extremes(void)
{
    const Case k = { "extremes", { ADAMW, .clip = 1 } };
    RtModel m = { .source = "net.model",
                  .real = RT_F64,
                  .compute = RT_F64,
                  .params = params,
                  .n_params = sizeof params / sizeof *params,
                  .n_elems = N,
                  .groups = groups,
                  .n_groups = 2,
                  .slots = slots,
                  .n_slots = 2,
                  .train = k.train };
    m.train.where = "net.model:9";
    Twin c, g;
    const int before = failed;
    cpu_open(&c, &m);
    start(&c);
    gpu_open(&g, &c);
    for (int i = 0; i < 3; i++) {
        RtStep s = { .lr = 0.01, .factor = 1, .scale = 1, .applied = i };
        gradient(&c, i, i == 0 ? 1e200 : 1);
        s.sum[0] = i == 1 ? NAN : 1;
        step(k.name, &c, &g, &s);
        check(s.finite == (i != 1), k.name, "a loss that is not finite");
        same_twins(k.name, &c, &g, 1e-11);
    }
    RtStep held = { .lr = 0.01, .factor = 1, .scale = 1, .applied = 3, .held = true };
    gpu_do(&g, DO_NORM, &held);
    gpu_do(&g, DO_UPDATE, &held);
    check(!held.finite && held.norm > 0, k.name, "a step that is held");
    same_twins(k.name, &c, &g, 1e-11);
    gpu_close(&g);
    if (failed == before)
        printf("ok updates/%s\n", k.name);
}

int main(void)
{
    rt_base_init();
    for (int i = 0; i < N_CASES; i++) {
        const bool rule = cases[i].train.optimizer == RT_RULE;
        run_case(&cases[i], RT_F32, RT_F32, 0);
        run_case(&cases[i], RT_F64, RT_F64, 0);
        run_case(&cases[i], RT_F32, i % 2 ? RT_BF16 : RT_F16, 0);
        if (rule && cases[i].train.clip == 0)
            run_case(&cases[i], RT_F32, RT_BF16, N - AT_TABLE);
    }
    const Case plain = { "adamw, average", { ADAMW, .ema = 0.9 } };
    run_case(&plain, RT_F32, RT_BF16, 0);
    run_case(&plain, RT_F32, RT_BF16, N - AT_CUBE); /* halves at odd places */
    extremes();
    return failed > 0;
}
