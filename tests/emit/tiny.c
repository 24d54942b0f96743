/* tiny.c -- generated from tiny.model by gradcc 0.1.
 * Do not edit: edit the model.
 *
 * command   gradcc --emit=c tiny.model
 * source    tiny.model, 14 lines, crc32 5b6d6dad
 * contents  1 dimensions  2 parameters  3 memory map  4 kernels
 *           5 forward     6 backward    7 step        8 model table
 * size      10 parameters; arena 1.2 KiB at B = 32, fullest at step 3 of 4
 */
#include "rt.h"

/* ---- 1 dimensions ------------------------------------------------------- */

enum {                                  /* fixed when the model was compiled */
    D = 4,                              /* input width   tiny.model:2 */
    O = 2,                              /* output width  tiny.model:2 */
};

typedef struct {                        /* known when the program starts */
    ptrdiff_t B;                        /* samples in a micro-step  tiny.model:3 */
} Dims;

/* ---- 2 parameters ------------------------------------------------------- */

/* One flat buffer. A name is the path of declarations that leads to a parameter; layers
 * that the model's file does not show, such as linear and mlp, are those of prelude.model.
 * A linear layer stores [out,in] unless it is declared transposed: it is x @ w'. */

enum {                                  /* first element in the flat buffer */
    P_w = 0,                            /* [D,O]          tiny.model:6 */
    P_b = P_w + D*O,                    /* [O]            tiny.model:7 */
    P_COUNT = P_b + O,
};

static const RtParam tiny_params[] = {
    { .path = "w", .role = RT_WEIGHT, .decay = true, .rank = 2, .shape = { D, O }, .at = P_w,
      .ready = 4, .init = { RT_NORMAL, 0.02 }, .where = "tiny.model:6" },
    { .path = "b", .role = RT_BIAS, .decay = false, .rank = 1, .shape = { O }, .at = P_b,
      .ready = 3, .init = { RT_ZEROS, 0.0 }, .where = "tiny.model:7" },
};

/* ---- 3 memory map ------------------------------------------------------- */

/* One arena holds what a numbered step of sections 5 and 6 leaves for later ones. Values
 * that are not needed at the same time share bytes: 'over' lists what was there before, 'in
 * place of' means that a step replaces its input. work_* hold partial sums while a step
 * runs. Sizes are known when the program starts, so offsets are formulas: a buffer lies
 * above all that are needed while it is. RT_SIZE rounds up to RT_ALIGN bytes, and
 * rt_above(a, b) is the higher one. */

/* The arena of a training step: 1.2 KiB at B = 32.
 * Offsets and bytes are those at these sizes; written and last read are numbers of
 * steps (sections 5 and 6).
 *
 *   buffer      shape          type      offset       bytes  written  last read
 *   h_a         [B,O]          f32            0         256        1          2
 *   h           [B,O]          f32          512         256        2          3
 *   loss_a      [B,O]          f32          768         256        2          3
 *   d_h_a       [B,O]          f32         1024         256        3          4
 *   work_d_h_a  [RT_CHUNKS,O]  f32            0         512        3          3
 *       over h_a
 */

typedef struct { size_t h_a, h, loss_a, d_h_a, work_d_h_a, bytes; } Plan;

static Plan tiny_plan(Dims n)
{
    Plan at;
    at.h_a        = 0;
    at.work_d_h_a = 0;
    at.h          = at.work_d_h_a + RT_SIZE(float, RT_CHUNKS*O);
    at.h          = rt_above(at.h, at.h_a + RT_SIZE(float, n.B*O));
    at.loss_a     = at.h + RT_SIZE(float, n.B*O);
    at.d_h_a      = at.loss_a + RT_SIZE(float, n.B*O);
    at.bytes      = at.d_h_a + RT_SIZE(float, n.B*O);
    return at;
}

/* The arena of an evaluation: 256 B at B = 32.
 * Offsets and bytes are those at these sizes; written and last read are numbers of
 * steps (section 5).
 *
 *   buffer  shape  type      offset       bytes  written  last read
 *   h_a     [B,O]  f32            0         256        1          2
 */

typedef struct { size_t h_a, bytes; } EvalPlan;

static EvalPlan tiny_eval_plan(Dims n)
{
    EvalPlan at;
    at.h_a   = 0;
    at.bytes = at.h_a + RT_SIZE(float, n.B*O);
    return at;
}

/* ---- 4 kernels ---------------------------------------------------------- */

/* One function per kernel, in the order of first use: forward, backward, then what only
 * evaluation and outputs use. Above it, what it computes in the model's notation:
 *   x @ w, x'    product and transpose of matrices. A value of more axes is a matrix of
 *                rows: [B,T,C] has B*T rows of C, [B,T,H,C/H] likewise
 *   x - m        an axis that m lacks is repeated: [B,T,C] - [B,T], [B,T,C] + [C]
 *   sum over C   of the product that follows, up to the next + or -
 *   0..V, x[i]   the index along an axis; the element or row with that index
 *   a == b       1 where it holds, else 0; a < b and so on likewise
 *   pad(x)       x with zeros around it, up to the shape on the left
 *   d_x          d loss / d x, see section 6
 *   (+)=         the first write of an update replaces, later ones add
 *   RT_READY     these gradients are complete: their sums over ranks may begin
 * A variable of a kernel has the end of a name above, mu for h_ln_mu; a, b, ... have none.
 * RT_PARALLEL_FOR(loops, work), RT_PARALLEL_SIMD(work) and RT_SIMD are OpenMP pragmas. Sums
 * over rows that threads share are made in at most RT_CHUNKS fixed ranges of rows, whose
 * partial results are added in order, or by blocks of RT_COLUMNS columns, each by one
 * thread; sums over a row in RT_LANES sums side by side. So neither threads nor what else a
 * loop does change a bit. */

/* h_a[B,O] = x[B,D] @ w[D,O] + b                 tiny.model:8 */
static void k1_h_a(float *restrict h_a, const float *restrict x, const float *restrict w,
                   const float *restrict b, ptrdiff_t B)
{
    const RtMatmul shape = { .m = B, .n = O, .k = D, .bias = b };
    rt_matmul_f32(h_a, x, w, shape);
}

/* h[B,O] = tanh(h_a)
 * loss_a[B,O] = h - y
 * sum_loss += sum over B,O of loss_a^2
 * tiny.model:8, 9 */
static void k2_h(float *restrict h, float *restrict loss_a, double *restrict sum_loss,
                 const float *restrict h_a, const float *restrict y, ptrdiff_t B)
{
    const int chunks = rt_chunks(B*O);
    double part_sum_loss[RT_CHUNKS];
    RT_PARALLEL_FOR(1, B*O)
    for (int chunk = 0; chunk < chunks; chunk++) {
        const ptrdiff_t from = rt_chunk(B*O, chunk, chunks);
        const ptrdiff_t to = rt_chunk(B*O, chunk + 1, chunks);
        double total_sum_loss = 0;
        double sum_loss_lanes[RT_LANES] = { 0 };
        for (ptrdiff_t block = from; block < to; block += RT_LANES) {
            const ptrdiff_t end = rt_min(block + RT_LANES, to);
            RT_SIMD()
            for (ptrdiff_t i = block; i < end; i++) {
                const float a = rt_tanh(h_a[i]);
                h[i] = a;
                const float b = a - y[i];
                loss_a[i] = b;
                sum_loss_lanes[i - block] += (double)(b * b);
            }
        }
        total_sum_loss += rt_sum_lanes_f64(sum_loss_lanes);
        part_sum_loss[chunk] = total_sum_loss;
    }
    *sum_loss += rt_sum_chunks(part_sum_loss, chunks);
}

/* ---- of the backward pass ---- */

/* d_h_a[B,O] = d_h * (1 - h^2)
 * d_b[O] (+)= sum over B of d_h_a
 * where d_h = seed_loss * 2 * loss_a
 * tiny.model:8, 9   gradient of k2, k1 */
static void k3_d_h_a(float *restrict d_h_a, float *restrict d_b, float *restrict work,
                     const float *restrict loss_a, const float *restrict h, float seed_loss,
                     bool add, ptrdiff_t B)
{
    const float a = seed_loss * 2;
    const int chunks = rt_chunks(B);
    RT_PARALLEL_FOR(1, B*O)
    for (int chunk = 0; chunk < chunks; chunk++) {
        const ptrdiff_t from = rt_chunk(B, chunk, chunks);
        const ptrdiff_t to = rt_chunk(B, chunk + 1, chunks);
        float *restrict part_d_b = rt_zeros_f32(work + chunk*O, O);
        for (ptrdiff_t ib = from; ib < to; ib++) {
            RT_SIMD()
            for (int io = 0; io < O; io++) {
                const float b = h[ib*O + io];
                const float c = a * loss_a[ib*O + io] * (1 - b * b);
                d_h_a[ib*O + io] = c;
                part_d_b[io] += c;
            }
        }
    }
    rt_add_rows_f32(d_b, work, chunks, O, add);
}

/* d_w[D,O] (+)= x[B,D]' @ d_h_a[B,O]             tiny.model:8   gradient of k1 */
static void k4_d_w(float *restrict d_w, const float *restrict x, const float *restrict d_h_a,
                   bool add, ptrdiff_t B)
{
    const RtMatmul shape = { .m = D, .n = O, .k = B, .ta = true, .add = add };
    rt_matmul_f32(d_w, x, d_h_a, shape);
}

/* ---- of evaluation and outputs, where they differ ---- */

/* sum_loss += sum over B,O of (tanh(h_a[B,O]) - y[B,O])^2  tiny.model:9 */
static void k5_sum_loss(double *restrict sum_loss, const float *restrict h_a,
                        const float *restrict y, ptrdiff_t B)
{
    const int chunks = rt_chunks(B*O);
    double part_sum_loss[RT_CHUNKS];
    RT_PARALLEL_FOR(1, B*O)
    for (int chunk = 0; chunk < chunks; chunk++) {
        const ptrdiff_t from = rt_chunk(B*O, chunk, chunks);
        const ptrdiff_t to = rt_chunk(B*O, chunk + 1, chunks);
        double total_sum_loss = 0;
        double sum_loss_lanes[RT_LANES] = { 0 };
        for (ptrdiff_t block = from; block < to; block += RT_LANES) {
            const ptrdiff_t end = rt_min(block + RT_LANES, to);
            RT_SIMD()
            for (ptrdiff_t i = block; i < end; i++) {
                const float a = rt_tanh(h_a[i]) - y[i];
                sum_loss_lanes[i - block] += (double)(a * a);
            }
        }
        total_sum_loss += rt_sum_lanes_f64(sum_loss_lanes);
        part_sum_loss[chunk] = total_sum_loss;
    }
    *sum_loss += rt_sum_chunks(part_sum_loss, chunks);
}

/* ---- 5 forward ---------------------------------------------------------- */

/* One call per step: its number, the line of the model that it is, or of such a line what
 * it computes. RT_CHECK looks at what the call above it wrote, for --replay and --trace
 * alone; RT_REPETITION tells it the repetition. */

enum {                                  /* means over the data, sum / count: places in RtStep */
    S_loss = 0,                         /* mean((h - y)^2)  tiny.model:9 */
};

/* adds what the means divide by, for one micro-step */
static void tiny_count(RtStep *s, Dims n)
{
    s->count[S_loss] += (double)(n.B*O);  /* mean((h - y)^2)  tiny.model:9 */
}

/* training: fills the arena and adds to the sums */
static void tiny_forward(const float *p, const float *x, const float *y, void *arena, RtStep *s,
                         Dims n)
{
    const Plan at = tiny_plan(n);
    float *h_a = rt_at_f32(arena, at.h_a);       /* [B,O] */
    float *h = rt_at_f32(arena, at.h);           /* [B,O] */
    float *loss_a = rt_at_f32(arena, at.loss_a); /* [B,O] */

    /* tiny.model:8  h = tanh(x @ w + b) */
    k1_h_a(h_a, x, p + P_w, p + P_b, n.B);          /* 1    h_a = x @ w + b */
    RT_CHECK(s, 1, "h_a[B,O]", h_a, n.B*O);
    /* tiny.model:8 goes on */
    /* tiny.model:9  loss = mean((h - y)^2) */
    k2_h(h, loss_a, &s->sum[S_loss], h_a, y, n.B);  /* 2    h, loss_a, sum_loss from h_a, y */
    RT_CHECK(s, 2, "h[B,O]", h, n.B*O);
    RT_CHECK(s, 2, "loss_a[B,O]", loss_a, n.B*O);
    RT_CHECK(s, 2, "sum_loss", &s->sum[S_loss], 1);
}

/* evaluation: the same values, kept for no backward pass; adds to the sums */
static void tiny_evaluate(const float *p, const float *x, const float *y, void *arena, RtStep *s,
                          Dims n)
{
    const EvalPlan at = tiny_eval_plan(n);
    float *h_a = rt_at_f32(arena, at.h_a);      /* [B,O] */

    k1_h_a(h_a, x, p + P_w, p + P_b, n.B);      /* 1    tiny.model:8  h = tanh(x @ w + b) */
    k5_sum_loss(&s->sum[S_loss], h_a, y, n.B);  /* 2    tiny.model:9  loss = mean((h - y)^2) */
}

/* ---- 6 backward: the steps of section 5, last first --------------------- */

/* From the loss back. d_x is d loss / d x; seed_* is d loss / d sum_*, the weight of
 * the mean / its count in the whole update, over all micro-steps (and ranks, where
 * several processes train together). An addition hands its gradient on to its terms
 * as it is, so it has no step here, and one d_x may belong to a sum and to its terms.
 * A value that is used twice gets the sum of two gradients; a bias, the sum over all
 * rows. */

/* gradients: the first write of an update replaces, later ones add */
static void tiny_backward(float *d_p, const float *x, void *arena, const RtStep *s, Dims n)
{
    const Plan at = tiny_plan(n);
    float *loss_a = rt_at_f32(arena, at.loss_a);         /* [B,O] */
    float *h = rt_at_f32(arena, at.h);                   /* [B,O] */
    float *d_h_a = rt_at_f32(arena, at.d_h_a);           /* [B,O] */
    float *work_d_h_a = rt_at_f32(arena, at.work_d_h_a); /* [RT_CHUNKS,O] */

    /* 3    undoes 2, 1  tiny.model:8, 9  d_h_a, d_b from loss_a, h */
    k3_d_h_a(d_h_a, d_p + P_b, work_d_h_a, loss_a, h, (float)s->seed[S_loss], s->add, n.B);
    RT_CHECK(s, 3, "d_h_a[B,O]", d_h_a, n.B*O);
    RT_CHECK(s, 3, "d_b[O]", d_p + P_b, O);
    RT_READY(s, 3, -1); /* sums: b */
    /* 4    undoes 1     tiny.model:8  d_w (+)= x' @ d_h_a */
    k4_d_w(d_p + P_w, x, d_h_a, s->add, n.B);
    RT_CHECK(s, 4, "d_w[D,O]", d_p + P_w, D*O);
    RT_READY(s, 4, -1); /* sums: w */
}

/* ---- 7 step: one update of the parameters ------------------------------- */

static Dims tiny_dims(const ptrdiff_t *dims)
{
    return (Dims){ .B = dims[0] };
}

/* Each element is updated by sgd, where g = factor * d_p:
 *
 *     g = g + decay * p
 *     p = p - lr * g
 *
 * factor is min(1, clip / norm of the gradient); decay is .weight_decay for parameters marked
 * .decay, else 0; what is the same for all elements is computed in double. */
static void tiny_update(const RtUpdate *u)
{
    const double lr = u->lr, decay = u->decay;
    const float lr_ = (float)lr;
    const float decay_ = (float)decay;
    float *restrict p = u->p;
    const float *restrict d_p = u->d_p;
    const float factor = (float)u->factor;
    RT_SIMD()
    for (ptrdiff_t i = 0; i < u->n; i++) {
        const float g = factor * d_p[i];
        const float g_2 = g + decay_ * p[i];
        const float new_p = p[i] - lr_ * g_2;
        p[i] = new_p;
    }
}

/* Counts come first, since gradients are divided by those of the whole update. lr is .lr. */
static void tiny_step(RtRun *run, RtStep *s)
{
    rt_begin_step(run, s);                      /* sums and counts 0, add = false; random key, lr */
    for (int micro = 0; micro < run->micro_steps; micro++) {
        rt_begin_micro(run, s, micro);          /* sizes, inputs, first sample */
        const Dims n = tiny_dims(run->dims);
        tiny_count(s, n);
    }
    rt_seed_losses(run, s);                  /* weight / count of the update; 0 if the count is 0 */

    for (int micro = 0; micro < run->micro_steps; micro++) {
        rt_begin_micro(run, s, micro);
        const Dims n = tiny_dims(run->dims);
        const float *x = run->inputs[0];
        const float *y = run->inputs[1];
        tiny_forward(run->p, x, y, run->arena, s, n);
        tiny_backward(run->d_p, x, run->arena, s, n);
        s->add = true;                          /* later micro-steps add */
    }
    rt_reduce_gradients(run, s);                /* sum over ranks */
    rt_finite_and_norm(run, s);                 /* are all finite? norm of all as one vector */
    rt_clip(run, s);                            /* factor = min(1, clip / norm) */
    rt_update(run, s, tiny_update);             /* of all parameters, if all is finite */
    rt_end_step(run, s);                        /* counters: updates applied, or skipped */
}

static void tiny_run_evaluate(RtRun *run, RtStep *s)
{
    const Dims n = tiny_dims(run->dims);
    const float *x = run->inputs[0];
    const float *y = run->inputs[1];
    tiny_count(s, n);
    tiny_evaluate(run->p, x, y, run->arena, s, n);
}

/* ---- 8 model table ------------------------------------------------------ */

/* What the runtime knows of the model: rt.h explains the fields of each table. */

static const RtDim tiny_sizes[] = {
    { .name = "B", .batch = true, .value = 32, .where = "tiny.model:3" },
};

static const RtInput tiny_inputs[] = {
    { .name = "x", .type = RT_F32, .rank = 2, .where = "tiny.model:5" },
    { .name = "y", .type = RT_F32, .rank = 2, .where = "tiny.model:5" },
};

static const RtSlot tiny_means[] = {
    { .name = "loss", .text = "mean((h - y)^2)",
      .weight = 1.0, .where = "tiny.model:9" },
};

static const RtObjective tiny_objectives[] = {
    { .loss = "loss", .from = 0, .to = P_COUNT, .optimizer = RT_RULE, .where = "tiny.model:9" },
};

static void tiny_input_shape(const ptrdiff_t *dims, int input, ptrdiff_t *shape)
{
    const Dims n = tiny_dims(dims);
    switch (input) {
    case 0:
        shape[0] = n.B;
        shape[1] = D;
        break;
    case 1:
        shape[0] = n.B;
        shape[1] = O;
        break;
    default:
        break;
    }
}

static size_t tiny_arena_bytes(const ptrdiff_t *dims, RtEntry entry)
{
    const Dims n = tiny_dims(dims);
    if (entry == RT_ENTRY_TRAIN)
        return tiny_plan(n).bytes;
    if (entry == RT_ENTRY_EVAL)
        return tiny_eval_plan(n).bytes;
    return 0;
}

/* What products and attention work in, besides the arena: asked for before a step. A
 * .bias only says that there is one. */
static void tiny_rooms(const ptrdiff_t *dims, RtEntry entry, RtRooms *rooms)
{
    const Dims n = tiny_dims(dims);
    if (entry == RT_ENTRY_TRAIN) {
        rt_room_matmul(rooms, RT_F32, RT_F32,
            (RtMatmul){ .m = n.B, .n = O, .k = D, .bias = rooms });
        rt_room_matmul(rooms, RT_F32, RT_F32,
            (RtMatmul){ .m = D, .n = O, .k = n.B, .ta = true, .add = true });
    }
    if (entry == RT_ENTRY_EVAL) {
        rt_room_matmul(rooms, RT_F32, RT_F32,
            (RtMatmul){ .m = n.B, .n = O, .k = D, .bias = rooms });
    }
}

/* Number, is it of the backward pass, loops, lines of the model, what it computes, of what. */
static const RtStepRow tiny_steps[] = {
    { 1, false, { 0 }, "tiny.model:8", "h_a = x @ w + b", "input x, param w, param b" },
    { 2, false, { 0 }, "tiny.model:8, 9", "h, loss_a, sum_loss from h_a, y", "h_a, input y" },
    { 3, true, { 0 }, "tiny.model:8, 9", "d_h_a, d_b from loss_a, h", "loss_a, h" },
    { 4, true, { 0 }, "tiny.model:8", "d_w (+)= x' @ d_h_a", "input x, d_h_a" },
};

/* What the arena holds in step 3, where it is fullest at B = 32, by line of the model. */
static void tiny_alive(const ptrdiff_t *dims, RtAlive *row)
{
    const Dims n = tiny_dims(dims);
    row[0] = (RtAlive){ "tiny.model:8", "work_d_h_a, h, d_h_a", 0 };
    row[0].bytes = RT_SIZE(float, RT_CHUNKS*O) + 2*RT_SIZE(float, n.B*O);
    row[1] = (RtAlive){ "tiny.model:9", "loss_a", 0 };
    row[1].bytes = RT_SIZE(float, n.B*O);
}

const RtModel tiny = {
    .name = "tiny",
    .source = "tiny.model", .source_crc = 0x5b6d6dadu,
    .real = RT_F32, .compute = RT_F32,
    .dims = tiny_sizes, .n_dims = 1,
    .params = tiny_params, .n_params = 2, .n_elems = P_COUNT,
    .inputs = tiny_inputs, .n_inputs = 2,
    .slots = tiny_means, .n_slots = 1,
    .objectives = tiny_objectives, .n_objectives = 1,
    .steps = tiny_steps, .n_steps = 4,
    .train = {
        .present = true,
        .reader = NULL, .path = NULL, .val_path = NULL,
        .split = 1.0, .header = false, .vocab = NULL,
        .batch = 32, .accumulate = 1,
        .optimizer = RT_RULE, .rule = "sgd", .decays = true, .weight_decay = 0.0,
        .hyper = {
            { .name = "momentum", .value = 0.0, .lo = 0.0, .hi = 0.0 },
        },
        .n_hypers = 1,
        .schedule = RT_CONSTANT, .lr = 0.1, .lr_end = 0.1,
        .warmup = 0, .decay_steps = 0,
        .clip = 1.0, .steps = 1000, .eval_every = 0, .save_every = 0,
        .log_every = 10, .keep = 3, .seed = 1u, .out = NULL,
        .where = "tiny.model:12",
    },
    .input_shape = tiny_input_shape,
    .arena_bytes = tiny_arena_bytes,
    .rooms = tiny_rooms,
    .alive = tiny_alive, .n_alive = 2, .fullest = 3,
    .step = tiny_step,
    .evaluate = tiny_run_evaluate,
};

#ifndef RT_LIBRARY
int main(int argc, char **argv)
{
    return rt_main(&tiny, argc, argv);
}
#endif
