/* bigram.c -- a hand-written program in the form of emitted code: a language model that looks one
 * character back. logits[B,T,V] = table[V,V] at tokens[B,T]; loss = mean(cross_entropy(logits,
 * targets), where: targets >= 0). V = 6 characters, with -DBYTES 256 bytes; -DLAST_GOOD=n makes
 * the loss NaN after n steps, a gradient infinite, and its logits NaN, -DSHORTEST=n takes no window
 * below n, -DIDS reads tokens that have no text, with no batch of its own, -DBARE is a model that
 * has no loss.
 *
 * contents  1 dimensions  2 parameters  3 memory map  4 kernels
 *           5 forward     6 backward    7 step        8 model table
 */
#include "rt.h"
#include "updates.h"

#ifndef SHORTEST
#define SHORTEST 1
#endif
#ifdef IDS
#define READER "tokens"
#define BATCH  0
#else
#define READER "text"
#define BATCH  12
#endif
#ifdef BYTES
#define VOCAB   "bytes"
#define SYMBOLS 256
#else
#define VOCAB   "chars"
#define SYMBOLS 6
#endif

/* ---- 1 dimensions ------------------------------------------------------- */

enum { V = SYMBOLS, Tmax = 64 };

typedef struct {
    ptrdiff_t B, T;
} Dims;

/* ---- 2 parameters ------------------------------------------------------- */

enum { P_table = 0, P_COUNT = V * V };

static const RtParam bigram_params[] = {
    { .path = "table",
      .role = RT_EMBEDDING,
      .decay = true,
      .rank = 2,
      .shape = { V, V },
      .at = P_table,
      .init = { RT_NORMAL, 0.02 },
      .where = "bigram.model:4" },
};

/* ---- 3 memory map ------------------------------------------------------- */

typedef struct {
    size_t logits, bytes;
} Plan;

static Plan bigram_plan(Dims n)
{
    Plan at;
    at.logits = 0;
    at.bytes = at.logits + RT_SIZE(float, n.B *n.T *V);
    return at;
}

/* ---- 4 kernels ---------------------------------------------------------- */

/* logits[B,T,V] = table[V,V] at tokens[B,T] */
static void k1_logits(float *restrict logits, const float *restrict table,
                      const int32_t *restrict tokens, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n; i++)
        for (int iv = 0; iv < V; iv++)
            logits[i * V + iv] = table[tokens[i] * V + iv];
}

/* sum += log-sum-exp of logits - logits at targets, where targets >= 0 */
static void k2_loss(double *sum, const float *restrict logits, const int32_t *restrict targets,
                    ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n; i++) {
        if (targets[i] < 0)
            continue;
        float most = logits[i * V], total = 0;
        for (int iv = 1; iv < V; iv++)
            most = rt_max(most, logits[i * V + iv]);
        for (int iv = 0; iv < V; iv++)
            total += rt_exp(logits[i * V + iv] - most);
        *sum += (double)(most + rt_log(total) - logits[i * V + targets[i]]);
    }
}

/* d_table[V,V] (+)= g (softmax(logits) - 1 at targets), added at tokens */
static void k3_d_table(float *restrict d_table, const float *restrict logits,
                       const int32_t *restrict tokens, const int32_t *restrict targets, float g,
                       bool add, ptrdiff_t n)
{
    for (int i = 0; !add && i < V * V; i++)
        d_table[i] = 0;
    for (ptrdiff_t i = 0; i < n; i++) {
        if (targets[i] < 0)
            continue;
        float total = 0;
        for (int iv = 0; iv < V; iv++)
            total += rt_exp(logits[i * V + iv]);
        for (int iv = 0; iv < V; iv++)
            d_table[tokens[i] * V + iv] += g
                                           * (rt_exp(logits[i * V + iv]) / total
                                              - (iv == targets[i] ? 1.0f : 0.0f));
    }
}

/* ---- 5 forward ---------------------------------------------------------- */

static Dims bigram_dims(const RtRun *run) { return (Dims){ run->dims[0], run->dims[1] }; }

static void bigram_count(RtRun *run, RtStep *s, Dims n)
{
    const int32_t *targets = run->inputs[1];
    for (ptrdiff_t i = 0; i < n.B * n.T; i++)
        s->count[0] += targets[i] >= 0;
}

static void bigram_loss(RtRun *run, RtStep *s, Dims n)
{
    float *logits = RT_AT(run->arena, bigram_plan(n).logits);
    k1_logits(logits, run->p, run->inputs[0], n.B * n.T);
    k2_loss(&s->sum[0], logits, run->inputs[1], n.B * n.T);
}

static void bigram_forward(RtRun *run, RtStep *s)
{
    RT_UNUSED(s);
    const Dims n = bigram_dims(run);
    k1_logits(run->outputs[0], run->p, run->inputs[0], n.B * n.T);
#ifdef LAST_GOOD
    for (ptrdiff_t i = 0; i < n.B * n.T * V; i++)
        ((float *)run->outputs[0])[i] = NAN;
#endif
}

/* ---- 6 backward --------------------------------------------------------- */

static void bigram_backward(RtRun *run, const RtStep *s, Dims n)
{
    k3_d_table(run->d_p, RT_AT(run->arena, bigram_plan(n).logits), run->inputs[0], run->inputs[1],
               (float)s->seed[0], s->add, n.B * n.T);
}

/* ---- 7 step ------------------------------------------------------------- */

static void bigram_step(RtRun *run, RtStep *s)
{
    rt_begin_step(run, s);
    for (int micro = 0; micro < run->micro_steps; micro++) {
        rt_begin_micro(run, s, micro);
        bigram_count(run, s, bigram_dims(run));
    }
    rt_seed_losses(run, s);
    for (int micro = 0; micro < run->micro_steps; micro++) {
        rt_begin_micro(run, s, micro);
        bigram_loss(run, s, bigram_dims(run));
        bigram_backward(run, s, bigram_dims(run));
#ifdef LAST_GOOD
        if (s->applied >= LAST_GOOD) {
            s->sum[0] = (double)NAN;
            ((float *)run->d_p)[3] = INFINITY;
        }
#endif
        RT_CHECK(s, 1, "logits[B,T,V]", (float *)run->arena, run->dims[0] * run->dims[1] * V);
        RT_CHECK(s, 3, "d_table[V,V]", (float *)run->d_p, P_COUNT);
        s->add = true;
    }
    rt_reduce_gradients(run, s);
    rt_finite_and_norm(run, s);
    rt_update(run, s, sgd_f32);
    rt_end_step(run, s);
}

static void bigram_evaluate(RtRun *run, RtStep *s)
{
    bigram_count(run, s, bigram_dims(run));
    bigram_loss(run, s, bigram_dims(run));
}

/* ---- 8 model table ------------------------------------------------------ */

static const char *bigram_check(const ptrdiff_t *dims)
{
    if (dims[1] < SHORTEST)
        return "T >= Tmin (bigram.model:2)";
    return dims[1] <= Tmax ? NULL : "T <= Tmax (bigram.model:2)";
}

static void bigram_input_shape(const ptrdiff_t *dims, int input, ptrdiff_t *shape)
{
    RT_UNUSED(input);
    shape[0] = dims[0];
    shape[1] = dims[1];
}

static void bigram_output_shape(const ptrdiff_t *dims, int output, ptrdiff_t *shape)
{
    RT_UNUSED(output);
    shape[0] = dims[0];
    shape[1] = dims[1];
    shape[2] = V;
}

static void bigram_map_range(const ptrdiff_t *dims, int map, ptrdiff_t *lo, ptrdiff_t *hi)
{
    *lo = map;
    *hi = dims[1] + map;
}

static size_t bigram_arena_bytes(const ptrdiff_t *dims, RtEntry entry)
{
    return entry == RT_ENTRY_OUTPUT ? 0 : bigram_plan((Dims){ dims[0], dims[1] }).bytes;
}

static void bigram_metric_values(const double *mean, double *value) { value[0] = exp(mean[0]); }

static const RtDim bigram_sizes[] = {
    { .name = "B", .batch = true, .where = "bigram.model:1" },
    { .name = "T", .value = 8, .where = "bigram.model:2" },
};
static const RtInput bigram_inputs[] = {
    { .name = "tokens",
      .type = RT_I32,
      .rank = 2,
      .ranged = true,
      .hi = V,
      .hi_name = "V",
      .where = "bigram.model:3" },
    { .name = "targets",
      .type = RT_I32,
      .rank = 2,
      .ranged = true,
      .hi = V,
      .hi_name = "V",
      .where = "bigram.model:3" },
};
static const RtOutput bigram_outputs[] = {
    { .name = "logits", .rank = 3, .where = "bigram.model:5", .needs = 1 },
};
static const RtSlot bigram_means[] = {
    { .name = "loss",
      .text = "mean(cross_entropy(logits, targets), where: targets >= 0)",
      .weight = 1,
      .where = "bigram.model:6" },
};
static const RtMetric bigram_metrics[] = { { .name = "perplexity", .where = "bigram.model:7" } };
static const RtMap bigram_maps[] = {
    { .input = 0, .kind = RT_MAP_WINDOW, .where = "bigram.model:9" },
    { .input = 1, .kind = RT_MAP_WINDOW, .where = "bigram.model:9" },
};
static const RtObjective bigram_objectives[] = {
    { .loss = "loss", .to = P_COUNT, .optimizer = RT_RULE, .where = "bigram.model:6" },
};

static const RtStepRow bigram_steps[] = {
    { 1, false, { 0 }, "bigram.model:6", "logits = table[tokens]", "param table, input tokens" },
    { 3, true, { 0 }, "bigram.model:6", "d_table from logits", "logits" },
};

static const RtModel bigram = {
    .name = "bigram", .source = "bigram.model", .source_crc = 0x00c0ffee, .real = RT_F32,
    .dims = bigram_sizes, .n_dims = 2,
    .params = bigram_params, .n_params = 1, .n_elems = P_COUNT,
    .inputs = bigram_inputs, .n_inputs = 2,
    .outputs = bigram_outputs, .n_outputs = 1,
    .slots = bigram_means, .n_slots = 1,
    .metrics = bigram_metrics, .n_metrics = 1,
    .objectives = bigram_objectives, .n_objectives = 1,
    .steps = bigram_steps, .n_steps = 2,
    .train = {
        .present = true, .reader = READER, .path = "bigram.txt", .split = 0.9, .vocab = VOCAB,
        .maps = bigram_maps, .n_maps = 2, .batch = BATCH, .accumulate = 1, .rule = "sgd",
        .hyper = { { "momentum", 0.9, 0, 0.9999999 } }, .n_hypers = 1,
        .schedule = RT_CONSTANT, .lr = 0.5, .steps = 60, .eval_every = 30, .save_every = 25,
        .keep = 3, .seed = 1, .where = "bigram.model:8",
    },
    .check_dims = bigram_check, .input_shape = bigram_input_shape,
    .output_shape = bigram_output_shape, .map_range = bigram_map_range,
    .arena_bytes = bigram_arena_bytes,
    .step = bigram_step, .evaluate = bigram_evaluate,
    .forward = bigram_forward, .metric_values = bigram_metric_values,
};

int main(int argc, char **argv)
{
    RtModel m = bigram;
#ifdef BARE
    m.step = m.evaluate = NULL;
#endif
    return rt_main(&m, argc, argv);
}
