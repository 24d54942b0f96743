/* linear.c -- a hand-written program in the form of emitted code: a linear regression on a CSV.
 *
 * It proves the contract of rt.h without the compiler: y = x @ w + b, loss = mean((y - t)^2), with
 * mu fitted on the training rows. Options -DREAL=double and -DREAL_KIND=RT_F64 give fp64;
 * -DCOMPUTE=RT_BF16 and -DOF=rt_of_bf16 a compute copy of the parameters in 16 bits.
 *
 * contents  1 dimensions  2 parameters  3 memory map  4 kernels
 *           5 forward     6 backward    7 step        8 model table
 */
#include "rt.h"
#include "updates.h"

#ifndef REAL
#define REAL      float
#define REAL_KIND RT_F32
#endif
#ifndef COMPUTE
#define COMPUTE REAL_KIND
#endif
#ifndef OPTIMIZER
#define OPTIMIZER "adamw"
#define RULE      adamw
#endif
#ifdef PLAIN
#define HYPERS                                                                                     \
    {                                                                                              \
        "momentum", 0.9, 0, 0.9999999                                                              \
    }
#define N_HYPERS 1
#define N_STATES 1
#else
#define HYPERS                                                                                     \
    { "beta1", 0.9, 0, 1 }, { "beta2", 0.99, 0, 1 }, { "eps", 1e-8, 0, 1 }
#define N_HYPERS 3
#define N_STATES 2
#endif

/* ---- 1 dimensions ------------------------------------------------------- */

enum { D = 3 };

typedef struct {
    ptrdiff_t B;
} Dims;

/* ---- 2 parameters ------------------------------------------------------- */

enum { P_w = 0, P_b = P_w + D, P_mu = P_b + 1, P_COUNT = P_mu + D };

static const RtParam linear_params[] = {
    { .path = "w",
      .role = RT_WEIGHT,
      .decay = true,
      .rank = 1,
      .shape = { D },
      .at = P_w,
      .init = { RT_NORMAL, 0.02 },
      .where = "linear.model:4" },
    { .path = "b",
      .role = RT_BIAS,
      .rank = 1,
      .shape = { 1 },
      .at = P_b,
      .init = { RT_ZEROS, 0 },
      .where = "linear.model:5" },
    { .path = "mu",
      .role = RT_STATE,
      .rank = 1,
      .shape = { D },
      .at = P_mu,
      .init = { RT_ZEROS, 0 },
      .fit = "mean",
      .fit_input = 0,
      .where = "linear.model:6" },
};

/* ---- 3 memory map ------------------------------------------------------- */

typedef struct {
    size_t y, bytes;
} Plan;

static Plan linear_plan(Dims n)
{
    Plan at;
    at.y = 0;
    at.bytes = at.y + RT_SIZE(REAL, n.B);
    return at;
}

/* ---- 4 kernels ---------------------------------------------------------- */

/* y[B] = (x[B,D] - mu[D]) @ w[D] + b */
static void k1_y(REAL *restrict y, const REAL *restrict x, const REAL *restrict p, ptrdiff_t B)
{
    for (ptrdiff_t ib = 0; ib < B; ib++) {
        REAL a = p[P_b];
        for (int id = 0; id < D; id++)
            a += (x[ib * D + id] - p[P_mu + id]) * p[P_w + id];
        y[ib] = a;
    }
}

/* sum += sum of (y[B] - t[B])^2 */
static void k2_loss(double *sum, const REAL *restrict y, const REAL *restrict t, ptrdiff_t B)
{
    double a = 0;
    for (ptrdiff_t i = 0; i < B; i++)
        a += (double)((y[i] - t[i]) * (y[i] - t[i]));
    *sum += a;
}

/* d_w[D] (+)= sum over B of (x[B,D] - mu[D]) d_y[B], d_b likewise; d_y = g 2 (y - t) */
static void k3_d_p(REAL *restrict d_p, const REAL *restrict x, const REAL *restrict p,
                   const REAL *restrict y, const REAL *restrict t, REAL g, bool add, ptrdiff_t B)
{
    for (int id = 0; id < D; id++) {
        REAL a = add ? d_p[P_w + id] : 0;
        for (ptrdiff_t ib = 0; ib < B; ib++)
            a += (x[ib * D + id] - p[P_mu + id]) * g * 2 * (y[ib] - t[ib]);
        d_p[P_w + id] = a;
    }
    REAL a = add ? d_p[P_b] : 0;
    for (ptrdiff_t ib = 0; ib < B; ib++)
        a += g * 2 * (y[ib] - t[ib]);
    d_p[P_b] = a;
}

/* ---- 5 forward ---------------------------------------------------------- */

static Dims linear_dims(const RtRun *run) { return (Dims){ run->dims[0] }; }

/* The parameters that products read. */
static const REAL *linear_weights(const RtRun *run, REAL room[P_COUNT])
{
#ifdef OF
    for (int i = 0; i < P_COUNT; i++)
        room[i] = OF(((const uint16_t *)run->p16)[i]);
    return room;
#else
    RT_UNUSED(room);
    return run->p;
#endif
}

static void linear_forward(RtRun *run, RtStep *s, Dims n)
{
    const Plan at = linear_plan(n);
    REAL *y = RT_AT(run->arena, at.y), room[P_COUNT];

    k1_y(y, run->inputs[0], linear_weights(run, room), n.B);
    k2_loss(&s->sum[0], y, run->inputs[1], n.B);
}

/* ---- 6 backward --------------------------------------------------------- */

static void linear_backward(RtRun *run, const RtStep *s, Dims n)
{
    const Plan at = linear_plan(n);
    k3_d_p(run->d_p, run->inputs[0], run->p, RT_AT(run->arena, at.y), run->inputs[1],
           (REAL)s->seed[0], s->add, n.B);
}

/* ---- 7 step ------------------------------------------------------------- */

#define JOIN_(rule, type) rule##_##type
#define JOIN(rule, type)  JOIN_(rule, type)

static void linear_update(const RtUpdate *u)
{
    if (REAL_KIND == RT_F64)
        JOIN(RULE, f64)(u);
    else if (COMPUTE == RT_BF16)
        JOIN(RULE, bf16)(u);
    else if (COMPUTE == RT_F16)
        JOIN(RULE, f16)(u);
    else
        JOIN(RULE, f32)(u);
}

static void linear_step(RtRun *run, RtStep *s)
{
    rt_begin_step(run, s);
    for (int micro = 0; micro < run->micro_steps; micro++) {
        rt_begin_micro(run, s, micro);
        s->count[0] += (double)linear_dims(run).B;
    }
    rt_seed_losses(run, s);
    for (int micro = 0; micro < run->micro_steps; micro++) {
        rt_begin_micro(run, s, micro);
        linear_forward(run, s, linear_dims(run));
        linear_backward(run, s, linear_dims(run));
        s->add = true;
    }
    rt_reduce_gradients(run, s);
    rt_finite_and_norm(run, s);
    rt_clip(run, s);
    rt_update(run, s, linear_update);
    rt_end_step(run, s);
}

static void linear_evaluate(RtRun *run, RtStep *s)
{
    s->count[0] += (double)linear_dims(run).B;
    linear_forward(run, s, linear_dims(run));
}

/* ---- 8 model table ------------------------------------------------------ */

static void linear_input_shape(const ptrdiff_t *dims, int input, ptrdiff_t *shape)
{
    shape[0] = dims[0];
    if (input == 0)
        shape[1] = D;
}

static void linear_map_range(const ptrdiff_t *dims, int map, ptrdiff_t *lo, ptrdiff_t *hi)
{
    RT_UNUSED(dims);
    *lo = map == 0 ? 0 : D;
    *hi = map == 0 ? D : D + 1;
}

static size_t linear_arena_bytes(const ptrdiff_t *dims, RtEntry entry)
{
    RT_UNUSED(entry);
    return linear_plan((Dims){ dims[0] }).bytes;
}

static void linear_metric_values(const double *mean, double *value) { value[0] = sqrt(mean[0]); }

static const RtDim linear_dims_table[] = { { "B", true, 0, "linear.model:1" } };
static const RtInput linear_inputs[] = {
    { .name = "x", .type = REAL_KIND, .rank = 2, .where = "linear.model:2" },
    { .name = "t", .type = REAL_KIND, .rank = 1, .where = "linear.model:2" },
};
static const RtSlot linear_slots[] = { { "loss", "mean((y - t)^2)", 1, "linear.model:8" } };
static const RtMetric linear_metrics[] = { { "rmse", "linear.model:9" } };
static const RtObjective linear_objectives[] = {
    { "loss", 0, P_COUNT, RT_RULE, "linear.model:8" },
};
static const RtMap linear_maps[] = {
    { 0, RT_MAP_COLS, NULL, "linear.model:11" },
    { 1, RT_MAP_COL, "price", "linear.model:11" },
};

static const RtModel linear = {
    .name = "linear", .source = "linear.model", .source_crc = 0x12345678, .real = REAL_KIND,
    .compute = COMPUTE,
    .dims = linear_dims_table, .n_dims = 1,
    .params = linear_params, .n_params = 3, .n_elems = P_COUNT,
    .inputs = linear_inputs, .n_inputs = 2,
    .slots = linear_slots, .n_slots = 1,
    .metrics = linear_metrics, .n_metrics = 1,
    .objectives = linear_objectives, .n_objectives = 1,
    .train = {
        .present = true, .reader = "csv", .path = "linear.csv", .split = 0.8, .header = true,
        .maps = linear_maps, .n_maps = 2, .batch = 32, .accumulate = 1, .rule = OPTIMIZER,
        .decays = true, .weight_decay = 0.01, .states = { "m", "v" }, .n_states = N_STATES,
        .hyper = { HYPERS }, .n_hypers = N_HYPERS,
        .schedule = RT_COSINE, .lr = 0.05, .lr_end = 0.0005, .warmup = 10, .clip = 100,
        .steps = 400, .eval_every = 100, .save_every = 100, .keep = 2, .seed = 1,
        .where = "linear.model:10",
    },
    .input_shape = linear_input_shape, .map_range = linear_map_range,
    .arena_bytes = linear_arena_bytes, .step = linear_step, .evaluate = linear_evaluate,
    .metric_values = linear_metric_values,
};

int main(int argc, char **argv) { return rt_main(&linear, argc, argv); }
