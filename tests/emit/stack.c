/* stack.c -- generated from stack.model by gradcc 0.1.
 * Do not edit: edit the model.
 *
 * command   gradcc --emit=c stack.model
 * source    stack.model, 16 lines, crc32 ee3725fe
 * contents  1 dimensions  2 parameters  3 memory map  4 kernels
 *           5 forward     6 backward    7 step        8 model table
 * size      240 parameters; arena 8.4 KiB at B = 16, fullest at step 7 of 10
 */
#include "rt.h"

/* ---- 1 dimensions ------------------------------------------------------- */

enum {                                  /* fixed when the model was compiled */
    C = 8,                              /* channels  stack.model:2 */
    L = 3,                              /* layers    stack.model:2 */
};

typedef struct {                        /* known when the program starts */
    ptrdiff_t B;                        /* samples in a micro-step  stack.model:3 */
} Dims;

/* ---- 2 parameters ------------------------------------------------------- */

/* One flat buffer. A name is the path of declarations that leads to a parameter; layers
 * that the model's file does not show, such as linear and mlp, are those of prelude.model.
 * A linear layer stores [out,in] unless it is declared transposed: it is x @ w'. */

enum {                                    /* in one repetition of h : block * L */
    P_h_norm_weight = 0,                  /* [C]            stack.model:6 */
    P_h_lin_weight = P_h_norm_weight + C, /* [C,C]          stack.model:7 */
    P_h_lin_bias = P_h_lin_weight + C*C,  /* [C]            stack.model:7 */
    P_h_STRIDE = P_h_lin_bias + C,
};

enum {                                  /* first element in the flat buffer */
    P_h = 0,                            /* L times        stack.model:12 */
    P_COUNT = P_h + L*P_h_STRIDE,
};

static const RtParam stack_params[] = {
    { .path = "h.*.norm.weight", .role = RT_GAIN, .decay = false, .rank = 1, .shape = { C },
      .at = P_h + P_h_norm_weight, .n_stacks = 1, .stack = { { L, P_h_STRIDE } },
      .ready = 10, .each = true, .init = { RT_ONES, 0.0 }, .where = "stack.model:6" },
    { .path = "h.*.lin.weight", .role = RT_WEIGHT, .decay = true, .rank = 2, .shape = { C, C },
      .at = P_h + P_h_lin_weight, .n_stacks = 1, .stack = { { L, P_h_STRIDE } },
      .ready = 10, .each = true, .init = { RT_UNIFORM, 0.35355339059327373 },
      .where = "stack.model:7" },
    { .path = "h.*.lin.bias", .role = RT_BIAS, .decay = false, .rank = 1, .shape = { C },
      .at = P_h + P_h_lin_bias, .n_stacks = 1, .stack = { { L, P_h_STRIDE } },
      .ready = 10, .each = true, .init = { RT_ZEROS, 0.0 }, .where = "stack.model:7" },
};

/* ---- 3 memory map ------------------------------------------------------- */

/* One arena holds what a numbered step of sections 5 and 6 leaves for later ones. Values
 * that are not needed at the same time share bytes: 'over' lists what was there before, 'in
 * place of' means that a step replaces its input. work_* hold partial sums while a step
 * runs. Sizes are known when the program starts, so offsets are formulas: a buffer lies
 * above all that are needed while it is. RT_SIZE rounds up to RT_ALIGN bytes, and
 * rt_above(a, b) is the higher one. */

/* The arena of a training step: 8.4 KiB at B = 16.
 * Offsets and bytes are those at these sizes; written and last read are numbers of
 * steps (sections 5 and 6).
 *
 *   buffer        shape          type      offset       bytes  written  last read
 *   z             [L + 1,B,C]    f32            0        2048        1         10
 *   h_norm_mu     [L,B]          f32         5120         192        2         10
 *   h_norm_rstd   [L,B]          f32         5312         192        2         10
 *   h_norm_y      [L,B,C]        f32         2048        1536        2          9
 *   h_lin         [L,B,C]        f32         3584        1536        3          7
 *   loss_a        [B,C]          f32         5504         512        5          6
 *   d_z           [B,C]          f32         5504         512        6         10
 *       in place of loss_a
 *   d_h_lin       [B,C]          f32         8064         512        7          9
 *   d_h_norm_y    [B,C]          f32         6016         512        8         10
 *       over work_d_h_lin
 *   work_d_h_lin  [RT_CHUNKS,C]  f32         6016        2048        7          7
 *   work_d_z      [RT_CHUNKS,C]  f32         6528        2048       10         10
 *       over d_h_lin, work_d_h_lin
 */

typedef struct { size_t z, h_norm_mu, h_norm_rstd, h_norm_y, h_lin, loss_a, d_z, d_h_lin,
        d_h_norm_y, work_d_h_lin, work_d_z, bytes; } Plan;

static Plan stack_plan(Dims n)
{
    Plan at;
    at.z            = 0;
    at.h_norm_y     = at.z + RT_SIZE(float, n.B*C*L + n.B*C);
    at.h_lin        = at.h_norm_y + RT_SIZE(float, n.B*C*L);
    at.h_norm_mu    = at.h_lin + RT_SIZE(float, n.B*C*L);
    at.h_norm_rstd  = at.h_norm_mu + RT_SIZE(float, n.B*L);
    at.loss_a       = at.h_norm_rstd + RT_SIZE(float, n.B*L);
    at.d_z          = at.loss_a;
    at.work_d_h_lin = at.loss_a + RT_SIZE(float, n.B*C);
    at.d_h_norm_y   = at.loss_a + RT_SIZE(float, n.B*C);
    at.d_h_lin      = at.work_d_h_lin + RT_SIZE(float, RT_CHUNKS*C);
    at.d_h_lin      = rt_above(at.d_h_lin, at.d_h_norm_y + RT_SIZE(float, n.B*C));
    at.work_d_z     = at.d_h_norm_y + RT_SIZE(float, n.B*C);
    at.bytes        = at.d_h_lin + RT_SIZE(float, n.B*C);
    at.bytes        = rt_above(at.bytes, at.work_d_z + RT_SIZE(float, RT_CHUNKS*C));
    return at;
}

/* The arena of an evaluation: 1.5 KiB at B = 16.
 * Offsets and bytes are those at these sizes; written and last read are numbers of
 * steps (section 5).
 *
 *   buffer    shape  type      offset       bytes  written  last read
 *   z         [B,C]  f32            0         512        1          5
 *   h_norm_y  [B,C]  f32          512         512        2          3
 *   h_lin     [B,C]  f32         1024         512        3          4
 */

typedef struct { size_t z, h_norm_y, h_lin, bytes; } EvalPlan;

static EvalPlan stack_eval_plan(Dims n)
{
    EvalPlan at;
    at.z        = 0;
    at.h_norm_y = at.z + RT_SIZE(float, n.B*C);
    at.h_lin    = at.h_norm_y + RT_SIZE(float, n.B*C);
    at.bytes    = at.h_lin + RT_SIZE(float, n.B*C);
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

/* z[B,C] = x[B,C]                                stack.model:11 */
static void k1_z(float *restrict z, const float *restrict x, ptrdiff_t B)
{
    RT_PARALLEL_SIMD(B*C)
    for (ptrdiff_t i = 0; i < B*C; i++)
        z[i] = x[i];
}

/* h_norm_mu[B] = (sum over C of z) / C
 * h_norm_rstd[B] = rsqrt((sum over C of h_norm_centred^2) / C + 1e-05)
 * h_norm_y[B,C] = h_norm_centred * h_norm_rstd * h_norm_weight
 * where h_norm_centred = z - h_norm_mu
 * stack.model:8 */
static void k2_h_norm_y(float *restrict h_norm_mu, float *restrict h_norm_rstd,
                        float *restrict h_norm_y, const float *restrict z,
                        const float *restrict h_norm_weight, ptrdiff_t B)
{
    RT_PARALLEL_FOR(1, B*C)
    for (ptrdiff_t ib = 0; ib < B; ib++) {
        float sum = 0;
        for (int ic = 0; ic < C; ic++)
            sum += z[ib*C + ic];
        const float a = sum / (float)C;
        float b = 0;
        for (int ic = 0; ic < C; ic++) {
            const float h_norm_centred = z[ib*C + ic] - a;
            b += h_norm_centred * h_norm_centred;
        }
        h_norm_mu[ib] = a;
        const float c = rt_rsqrt(b / (float)C + 1e-05f);
        RT_SIMD()
        for (int ic = 0; ic < C; ic++)
            h_norm_y[ib*C + ic] = (z[ib*C + ic] - a) * c * h_norm_weight[ic];
        h_norm_rstd[ib] = c;
    }
}

/* h_lin[B,C] = h_norm_y[B,C] @ h_lin_weight[C,C]' + h_lin_bias  stack.model:8 */
static void k3_h_lin(float *restrict h_lin, const float *restrict h_norm_y,
                     const float *restrict h_lin_weight, const float *restrict h_lin_bias,
                     ptrdiff_t B)
{
    const RtMatmul shape = { .m = B, .n = C, .k = C, .tb = true, .bias = h_lin_bias };
    rt_matmul_f32(h_lin, h_norm_y, h_lin_weight, shape);
}

/* z[B,C] = z + 0.5 * h_lin * (1 + tanh(h_inner))
 * where h_inner = 0.7978846 * (h_lin + 0.044715 * h_lin^3)
 * stack.model:8 */
static void k4_z(float *z_next, const float *z, const float *restrict h_lin, ptrdiff_t B)
{
    RT_PARALLEL_SIMD(B*C)
    for (ptrdiff_t i = 0; i < B*C; i++) {
        const float a = h_lin[i];
        const float b = 0.5f * a * (1 + rt_tanh(0.7978846f * (a + 0.044715f * (a * a * a))));
        z_next[i] = z[i] + b;
    }
}

/* loss_a[B,C] = z - y
 * sum_loss += sum over B,C of loss_a^2
 * stack.model:15 */
static void k5_sum_loss(float *restrict loss_a, double *restrict sum_loss, const float *restrict z,
                        const float *restrict y, ptrdiff_t B)
{
    const int chunks = rt_chunks(B*C);
    double part_sum_loss[RT_CHUNKS];
    RT_PARALLEL_FOR(1, B*C)
    for (int chunk = 0; chunk < chunks; chunk++) {
        const ptrdiff_t from = rt_chunk(B*C, chunk, chunks);
        const ptrdiff_t to = rt_chunk(B*C, chunk + 1, chunks);
        double total_sum_loss = 0;
        double sum_loss_lanes[RT_LANES] = { 0 };
        for (ptrdiff_t block = from; block < to; block += RT_LANES) {
            const ptrdiff_t end = rt_min(block + RT_LANES, to);
            RT_SIMD()
            for (ptrdiff_t i = block; i < end; i++) {
                const float a = z[i] - y[i];
                loss_a[i] = a;
                sum_loss_lanes[i - block] += (double)(a * a);
            }
        }
        total_sum_loss += rt_sum_lanes_f64(sum_loss_lanes);
        part_sum_loss[chunk] = total_sum_loss;
    }
    *sum_loss += rt_sum_chunks(part_sum_loss, chunks);
}

/* ---- of the backward pass ---- */

/* d_z[B,C] = seed_loss * 2 * loss_a[B,C]         stack.model:15   gradient of k5 */
static void k6_d_z(float *d_z, const float *loss_a, float seed_loss, ptrdiff_t B)
{
    const float a = seed_loss * 2;
    RT_PARALLEL_SIMD(B*C)
    for (ptrdiff_t i = 0; i < B*C; i++)
        d_z[i] = a * loss_a[i];
}

/* d_h_lin[B,C] = d_h_inner * 0.7978846 + d_h_inner * 0.7978846 * 0.044715 * (3 * h_lin^2) +
 *         d_z * (1 + tanh(h_inner)) * 0.5
 * d_h_lin_bias[C] (+)= sum over B of d_h_lin
 * where d_h_inner = d_z * (0.5 * h_lin) * (1 - tanh(h_inner)^2)
 * where h_inner = 0.7978846 * (h_lin + 0.044715 * h_lin^3)
 * stack.model:8   gradient of k4, k3 */
static void k7_d_h_lin(float *restrict d_h_lin, float *restrict d_h_lin_bias, float *restrict work,
                       const float *restrict h_lin, const float *restrict d_z, bool add,
                       ptrdiff_t B)
{
    const int chunks = rt_chunks(B);
    RT_PARALLEL_FOR(1, B*C)
    for (int chunk = 0; chunk < chunks; chunk++) {
        const ptrdiff_t from = rt_chunk(B, chunk, chunks);
        const ptrdiff_t to = rt_chunk(B, chunk + 1, chunks);
        float *restrict part_d_h_lin_bias = rt_zeros_f32(work + chunk*C, C);
        for (ptrdiff_t ib = from; ib < to; ib++) {
            RT_SIMD()
            for (int ic = 0; ic < C; ic++) {
                const float a = d_z[ib*C + ic];
                const float b = h_lin[ib*C + ic];
                const float c = b * b;
                const float d = rt_tanh(0.7978846f * (b + 0.044715f * (c * b)));
                const float e = a * (0.5f * b) * (1 - d * d) * 0.7978846f;
                const float f = e + e * 0.044715f * (3 * c) + a * (1 + d) * 0.5f;
                d_h_lin[ib*C + ic] = f;
                part_d_h_lin_bias[ic] += f;
            }
        }
    }
    rt_add_rows_f32(d_h_lin_bias, work, chunks, C, add);
}

/* d_h_norm_y[B,C] = d_h_lin[B,C] @ h_lin_weight[C,C]  stack.model:8   gradient of k3 */
static void k8_d_h_norm_y(float *restrict d_h_norm_y, const float *restrict d_h_lin,
                          const float *restrict h_lin_weight, ptrdiff_t B)
{
    const RtMatmul shape = { .m = B, .n = C, .k = C };
    rt_matmul_f32(d_h_norm_y, d_h_lin, h_lin_weight, shape);
}

/* d_h_lin_weight[C,C] (+)= d_h_lin[B,C]' @ h_norm_y[B,C]  stack.model:8   gradient of k3 */
static void k9_d_h_lin_weight(float *restrict d_h_lin_weight, const float *restrict d_h_lin,
                              const float *restrict h_norm_y, bool add, ptrdiff_t B)
{
    const RtMatmul shape = { .m = C, .n = C, .k = B, .ta = true, .add = add };
    rt_matmul_f32(d_h_lin_weight, d_h_lin, h_norm_y, shape);
}

/* d_h_norm_weight[C] (+)= sum over B of d_h_norm_y * (h_norm_centred * h_norm_rstd)
 * d_z[B,C] = d_z + d_h_norm_centred - (sum over C of d_h_norm_centred) / C
 * where h_norm_centred = z - h_norm_mu
 * where d_h_norm_centred = d_h_norm_y * h_norm_weight * h_norm_rstd +
 *         d_h_norm_rstd * (-0.5 * h_norm_rstd^3) / C * 2 * h_norm_centred
 * where d_h_norm_rstd = sum over C of d_h_norm_y * h_norm_weight * h_norm_centred
 * stack.model:8   gradient of k2 */
static void k10_d_z(float *restrict d_z, float *restrict d_h_norm_weight, float *restrict work,
                    const float *restrict d_h_norm_y, const float *restrict z,
                    const float *restrict h_norm_mu, const float *restrict h_norm_rstd,
                    const float *restrict h_norm_weight, bool add, ptrdiff_t B)
{
    const int chunks = rt_chunks(B);
    RT_PARALLEL_FOR(1, B*C)
    for (int chunk = 0; chunk < chunks; chunk++) {
        const ptrdiff_t from = rt_chunk(B, chunk, chunks);
        const ptrdiff_t to = rt_chunk(B, chunk + 1, chunks);
        float *restrict part_d_h_norm_weight = rt_zeros_f32(work + chunk*C, C);
        for (ptrdiff_t ib = from; ib < to; ib++) {
            const float a = h_norm_mu[ib];
            const float b = h_norm_rstd[ib];
            float d_h_norm_rstd = 0;
            for (int ic = 0; ic < C; ic++) {
                const float c = d_h_norm_y[ib*C + ic];
                const float h_norm_centred = z[ib*C + ic] - a;
                d_h_norm_rstd += c * h_norm_weight[ic] * h_norm_centred;
                part_d_h_norm_weight[ic] += c * (h_norm_centred * b);
            }
            const float d = d_h_norm_rstd * (-0.5f * (b * b * b)) / (float)C * 2;
            float sum = 0;
            for (int ic = 0; ic < C; ic++)
                sum += d_h_norm_y[ib*C + ic] * h_norm_weight[ic] * b + d * (z[ib*C + ic] - a);
            const float e = sum / (float)C;
            RT_SIMD()
            for (int ic = 0; ic < C; ic++) {
                const float d_h_norm_centred = d_h_norm_y[ib*C + ic] * h_norm_weight[ic] * b +
                        d * (z[ib*C + ic] - a);
                d_z[ib*C + ic] = d_z[ib*C + ic] + d_h_norm_centred - e;
            }
        }
    }
    rt_add_rows_f32(d_h_norm_weight, work, chunks, C, add);
}

/* ---- of evaluation and outputs, where they differ ---- */

/* h_norm_y[B,C] = h_norm_centred * h_norm_rstd * h_norm_weight
 * where h_norm_centred = z - h_norm_mu
 * where h_norm_rstd = rsqrt((sum over C of h_norm_centred^2) / C + 1e-05)
 * where h_norm_mu = (sum over C of z) / C
 * stack.model:8 */
static void k11_h_norm_y(float *restrict h_norm_y, const float *restrict z,
                         const float *restrict h_norm_weight, ptrdiff_t B)
{
    RT_PARALLEL_FOR(1, B*C)
    for (ptrdiff_t ib = 0; ib < B; ib++) {
        float sum = 0;
        for (int ic = 0; ic < C; ic++)
            sum += z[ib*C + ic];
        const float h_norm_mu = sum / (float)C;
        float a = 0;
        for (int ic = 0; ic < C; ic++) {
            const float h_norm_centred = z[ib*C + ic] - h_norm_mu;
            a += h_norm_centred * h_norm_centred;
        }
        const float h_norm_rstd = rt_rsqrt(a / (float)C + 1e-05f);
        RT_SIMD()
        for (int ic = 0; ic < C; ic++)
            h_norm_y[ib*C + ic] = (z[ib*C + ic] - h_norm_mu) * h_norm_rstd * h_norm_weight[ic];
    }
}

/* z[B,C] = z + 0.5 * h_lin * (1 + tanh(h_inner))
 * where h_inner = 0.7978846 * (h_lin + 0.044715 * h_lin^3)
 * stack.model:8 */
static void k12_z(float *restrict z, const float *restrict h_lin, ptrdiff_t B)
{
    RT_PARALLEL_SIMD(B*C)
    for (ptrdiff_t i = 0; i < B*C; i++) {
        const float a = h_lin[i];
        const float b = 0.5f * a * (1 + rt_tanh(0.7978846f * (a + 0.044715f * (a * a * a))));
        z[i] = z[i] + b;
    }
}

/* sum_loss += sum over B,C of (z[B,C] - y[B,C])^2  stack.model:15 */
static void k13_sum_loss(double *restrict sum_loss, const float *restrict z,
                         const float *restrict y, ptrdiff_t B)
{
    const int chunks = rt_chunks(B*C);
    double part_sum_loss[RT_CHUNKS];
    RT_PARALLEL_FOR(1, B*C)
    for (int chunk = 0; chunk < chunks; chunk++) {
        const ptrdiff_t from = rt_chunk(B*C, chunk, chunks);
        const ptrdiff_t to = rt_chunk(B*C, chunk + 1, chunks);
        double total_sum_loss = 0;
        double sum_loss_lanes[RT_LANES] = { 0 };
        for (ptrdiff_t block = from; block < to; block += RT_LANES) {
            const ptrdiff_t end = rt_min(block + RT_LANES, to);
            RT_SIMD()
            for (ptrdiff_t i = block; i < end; i++) {
                const float a = z[i] - y[i];
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
    S_loss = 0,                         /* mean((z - y)^2)  stack.model:15 */
};

/* adds what the means divide by, for one micro-step */
static void stack_count(RtStep *s, Dims n)
{
    s->count[S_loss] += (double)(n.B*C);  /* mean((z - y)^2)  stack.model:15 */
}

/* one repetition of h, forward; reads z, writes the next z */
static void block_forward(const float *p, void *arena, const Plan *at, const RtStep *s, Dims n,
                          int il)
{
    float *z = rt_at_f32(arena, at->z) + il*n.B*C;                   /* [B,C] */
    const float *p_h = p + P_h + il*P_h_STRIDE;                      /* this repetition of h */
    float *h_norm_mu = rt_at_f32(arena, at->h_norm_mu) + il*n.B;     /* [B] */
    float *h_norm_rstd = rt_at_f32(arena, at->h_norm_rstd) + il*n.B; /* [B] */
    float *h_norm_y = rt_at_f32(arena, at->h_norm_y) + il*n.B*C;     /* [B,C] */
    float *h_lin = rt_at_f32(arena, at->h_lin) + il*n.B*C;           /* [B,C] */

    RT_REPETITION(s, 0, il);
    /* stack.model:8  return x + gelu(lin(norm(x))) */
    /* 2    h_norm_y, h_norm_mu, h_norm_rstd from z */
    k2_h_norm_y(h_norm_mu, h_norm_rstd, h_norm_y, z, p_h + P_h_norm_weight, n.B);
    RT_CHECK(s, 2, "h_norm_mu[B]", h_norm_mu, n.B);
    RT_CHECK(s, 2, "h_norm_rstd[B]", h_norm_rstd, n.B);
    RT_CHECK(s, 2, "h_norm_y[B,C]", h_norm_y, n.B*C);
    /* 3    h_lin = h_norm_y @ h_lin_weight' + h_lin_bias */
    k3_h_lin(h_lin, h_norm_y, p_h + P_h_lin_weight, p_h + P_h_lin_bias, n.B);
    RT_CHECK(s, 3, "h_lin[B,C]", h_lin, n.B*C);
    /* 4    z from z, h_lin */
    k4_z(z + n.B*C, z, h_lin, n.B);
    RT_CHECK(s, 4, "z[B,C]", z + n.B*C, n.B*C);
}

/* training: fills the arena and adds to the sums */
static void stack_forward(const float *p, const float *x, const float *y, void *arena, RtStep *s,
                          Dims n)
{
    const Plan at = stack_plan(n);
    float *z = rt_at_f32(arena, at.z);           /* [L + 1,B,C] */
    float *loss_a = rt_at_f32(arena, at.loss_a); /* [B,C] */

    /* 1    stack.model:11  model stack(x: [B, C], y: [B, C]) { */
    k1_z(z, x, n.B);
    RT_CHECK(s, 1, "z[B,C]", z, n.B*C);
    /* 2..4  stack.model:14  for i in 0..L { z = h[i](z) } */
    for (int il = 0; il < L; il++)
        block_forward(p, arena, &at, s, n, il);
    /* 5    stack.model:15  loss = mean((z - y)^2) */
    k5_sum_loss(loss_a, &s->sum[S_loss], z + n.B*C*L, y, n.B);
    RT_CHECK(s, 5, "loss_a[B,C]", loss_a, n.B*C);
    RT_CHECK(s, 5, "sum_loss", &s->sum[S_loss], 1);
}

/* one repetition of h, evaluate; in place: z */
static void block_evaluate(const float *p, void *arena, const EvalPlan *at, Dims n, int il)
{
    float *z = rt_at_f32(arena, at->z);               /* [B,C] */
    const float *p_h = p + P_h + il*P_h_STRIDE;       /* this repetition of h */
    float *h_norm_y = rt_at_f32(arena, at->h_norm_y); /* [B,C] */
    float *h_lin = rt_at_f32(arena, at->h_lin);       /* [B,C] */

    /* stack.model:8  return x + gelu(lin(norm(x))) */
    /* 2    h_norm_y from z */
    k11_h_norm_y(h_norm_y, z, p_h + P_h_norm_weight, n.B);
    /* 3    h_lin = h_norm_y @ h_lin_weight' + h_lin_bias */
    k3_h_lin(h_lin, h_norm_y, p_h + P_h_lin_weight, p_h + P_h_lin_bias, n.B);
    /* 4    z from z, h_lin */
    k12_z(z, h_lin, n.B);
}

/* evaluation: the same values, kept for no backward pass; adds to the sums */
static void stack_evaluate(const float *p, const float *x, const float *y, void *arena, RtStep *s,
                           Dims n)
{
    const EvalPlan at = stack_eval_plan(n);
    float *z = rt_at_f32(arena, at.z);          /* [B,C] */

    /* 1    stack.model:11  model stack(x: [B, C], y: [B, C]) { */
    k1_z(z, x, n.B);
    /* 2..4  stack.model:14  for i in 0..L { z = h[i](z) } */
    for (int il = 0; il < L; il++)
        block_evaluate(p, arena, &at, n, il);
    /* 5    stack.model:15  loss = mean((z - y)^2) */
    k13_sum_loss(&s->sum[S_loss], z, y, n.B);
}

/* ---- 6 backward: the steps of section 5, last first --------------------- */

/* From the loss back. d_x is d loss / d x; seed_* is d loss / d sum_*, the weight of
 * the mean / its count in the whole update, over all micro-steps (and ranks, where
 * several processes train together). An addition hands its gradient on to its terms
 * as it is, so it has no step here, and one d_x may belong to a sum and to its terms.
 * A value that is used twice gets the sum of two gradients; a bias, the sum over all
 * rows. */

/* one repetition of h, backward; in place: d_z */
static void block_backward(const float *p, float *d_p, void *arena, const Plan *at, const RtStep *s,
                           Dims n, int il)
{
    float *h_lin = rt_at_f32(arena, at->h_lin) + il*n.B*C;           /* [B,C] */
    float *d_z = rt_at_f32(arena, at->d_z);                          /* [B,C] */
    float *d_h_lin = rt_at_f32(arena, at->d_h_lin);                  /* [B,C] */
    float *d_p_h = d_p + P_h + il*P_h_STRIDE;                        /* this repetition of h */
    float *work_d_h_lin = rt_at_f32(arena, at->work_d_h_lin);        /* [RT_CHUNKS,C] */
    float *d_h_norm_y = rt_at_f32(arena, at->d_h_norm_y);            /* [B,C] */
    const float *p_h = p + P_h + il*P_h_STRIDE;                      /* this repetition of h */
    float *h_norm_y = rt_at_f32(arena, at->h_norm_y) + il*n.B*C;     /* [B,C] */
    float *z = rt_at_f32(arena, at->z) + il*n.B*C;                   /* [B,C] */
    float *h_norm_mu = rt_at_f32(arena, at->h_norm_mu) + il*n.B;     /* [B] */
    float *h_norm_rstd = rt_at_f32(arena, at->h_norm_rstd) + il*n.B; /* [B] */
    float *work_d_z = rt_at_f32(arena, at->work_d_z);                /* [RT_CHUNKS,C] */

    RT_REPETITION(s, 0, il);
    /* 7    undoes 4, 3  stack.model:8  d_h_lin, d_h_lin_bias from h_lin, d_z */
    k7_d_h_lin(d_h_lin, d_p_h + P_h_lin_bias, work_d_h_lin, h_lin, d_z, s->add, n.B);
    RT_CHECK(s, 7, "d_h_lin[B,C]", d_h_lin, n.B*C);
    RT_CHECK(s, 7, "d_h_lin_bias[C]", d_p_h + P_h_lin_bias, C);
    /* 8    undoes 3     stack.model:8  d_h_norm_y = d_h_lin @ h_lin_weight */
    k8_d_h_norm_y(d_h_norm_y, d_h_lin, p_h + P_h_lin_weight, n.B);
    RT_CHECK(s, 8, "d_h_norm_y[B,C]", d_h_norm_y, n.B*C);
    /* 9    undoes 3     stack.model:8  d_h_lin_weight (+)= d_h_lin' @ h_norm_y */
    k9_d_h_lin_weight(d_p_h + P_h_lin_weight, d_h_lin, h_norm_y, s->add, n.B);
    RT_CHECK(s, 9, "d_h_lin_weight[C,C]", d_p_h + P_h_lin_weight, C*C);
    /* 10   undoes 2     stack.model:8  d_z, d_h_norm_weight from d_h_norm_y, z, ... */
    k10_d_z(d_z, d_p_h + P_h_norm_weight, work_d_z, d_h_norm_y, z, h_norm_mu, h_norm_rstd,
            p_h + P_h_norm_weight, s->add, n.B);
    RT_CHECK(s, 10, "d_h_norm_weight[C]", d_p_h + P_h_norm_weight, C);
    RT_CHECK(s, 10, "d_z[B,C]", d_z, n.B*C);
    RT_READY(s, 10, il); /* sums: h.*.norm.weight, h.*.lin.weight, h.*.lin.bias */
}

/* gradients: the first write of an update replaces, later ones add */
static void stack_backward(const float *p, float *d_p, void *arena, const RtStep *s, Dims n)
{
    const Plan at = stack_plan(n);
    float *loss_a = rt_at_f32(arena, at.loss_a); /* [B,C] */
    float *d_z = rt_at_f32(arena, at.d_z);       /* [B,C] */

    /* 6    undoes 5     stack.model:15  d_z = seed_loss * 2 * loss_a */
    k6_d_z(d_z, loss_a, (float)s->seed[S_loss], n.B);
    RT_CHECK(s, 6, "d_z[B,C]", d_z, n.B*C);
    /* 7..10  undoes 2..4  stack.model:14  for i in 0..L { z = h[i](z) } */
    for (int il = L - 1; il >= 0; il--)
        block_backward(p, d_p, arena, &at, s, n, il);
}

/* ---- 7 step: one update of the parameters ------------------------------- */

static Dims stack_dims(const ptrdiff_t *dims)
{
    return (Dims){ .B = dims[0] };
}

/* Each element is updated by adamw, where g = factor * d_p:
 *
 *     m = beta1 * m + (1 - beta1) * g
 *     v = beta2 * v + (1 - beta2) * (g * g)
 *     p = (1 - lr * decay) * p - lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
 *
 * factor is 1; decay is .weight_decay for parameters marked .decay, else 0; t counts the updates
 * from 1; what is the same for all elements is computed in double. */
static void stack_update(const RtUpdate *u)
{
    const double lr = u->lr, decay = u->decay, t = u->t, beta1 = u->hyper[0].value;
    const double beta2 = u->hyper[1].value, eps = u->hyper[2].value;
    const float beta1_ = (float)beta1;
    const float c1 = (float)(1 - beta1);
    const float beta2_ = (float)beta2;
    const float c2 = (float)(1 - beta2);
    const float c3 = (float)(1 - lr * decay);
    const float c4 = (float)(lr / (1 - rt_pow(beta1, t)));
    const float c5 = (float)(1 / rt_sqrt(1 - rt_pow(beta2, t)));
    const float eps_ = (float)eps;
    float *restrict p = u->p, *restrict m = u->state[0], *restrict v = u->state[1];
    const float *restrict d_p = u->d_p;
    const float factor = (float)u->factor;
    RT_SIMD()
    for (ptrdiff_t i = 0; i < u->n; i++) {
        const float g = factor * d_p[i];
        const float new_m = beta1_ * m[i] + c1 * g;
        const float new_v = beta2_ * v[i] + c2 * (g * g);
        const float new_p = c3 * p[i] - c4 * new_m / (rt_sqrt(new_v) * c5 + eps_);
        m[i] = new_m;
        v[i] = new_v;
        p[i] = new_p;
    }
}

/* Counts come first, since gradients are divided by those of the whole update. lr is .lr. */
static void stack_step(RtRun *run, RtStep *s)
{
    rt_begin_step(run, s);                      /* sums and counts 0, add = false; random key, lr */
    for (int micro = 0; micro < run->micro_steps; micro++) {
        rt_begin_micro(run, s, micro);          /* sizes, inputs, first sample */
        const Dims n = stack_dims(run->dims);
        stack_count(s, n);
    }
    rt_seed_losses(run, s);                  /* weight / count of the update; 0 if the count is 0 */

    for (int micro = 0; micro < run->micro_steps; micro++) {
        rt_begin_micro(run, s, micro);
        const Dims n = stack_dims(run->dims);
        const float *x = run->inputs[0];
        const float *y = run->inputs[1];
        stack_forward(run->p, x, y, run->arena, s, n);
        stack_backward(run->p, run->d_p, run->arena, s, n);
        s->add = true;                          /* later micro-steps add */
    }
    rt_reduce_gradients(run, s);                /* sum over ranks */
    rt_finite_and_norm(run, s);                 /* are all finite? norm of all as one vector */
    rt_update(run, s, stack_update);            /* of all parameters, if all is finite */
    rt_end_step(run, s);                        /* counters: updates applied, or skipped */
}

static void stack_run_evaluate(RtRun *run, RtStep *s)
{
    const Dims n = stack_dims(run->dims);
    const float *x = run->inputs[0];
    const float *y = run->inputs[1];
    stack_count(s, n);
    stack_evaluate(run->p, x, y, run->arena, s, n);
}

/* ---- 8 model table ------------------------------------------------------ */

/* What the runtime knows of the model: rt.h explains the fields of each table. */

static const RtDim stack_sizes[] = {
    { .name = "B", .batch = true, .value = 0, .where = "stack.model:3" },
};

static const RtInput stack_inputs[] = {
    { .name = "x", .type = RT_F32, .rank = 2, .where = "stack.model:11" },
    { .name = "y", .type = RT_F32, .rank = 2, .where = "stack.model:11" },
};

static const RtSlot stack_means[] = {
    { .name = "loss", .text = "mean((z - y)^2)",
      .weight = 1.0, .where = "stack.model:15" },
};

static const RtObjective stack_objectives[] = {
    { .loss = "loss", .from = 0, .to = P_COUNT, .optimizer = RT_RULE, .where = "stack.model:15" },
};

static void stack_input_shape(const ptrdiff_t *dims, int input, ptrdiff_t *shape)
{
    const Dims n = stack_dims(dims);
    switch (input) {
    case 0:
        shape[0] = n.B;
        shape[1] = C;
        break;
    case 1:
        shape[0] = n.B;
        shape[1] = C;
        break;
    default:
        break;
    }
}

static size_t stack_arena_bytes(const ptrdiff_t *dims, RtEntry entry)
{
    const Dims n = stack_dims(dims);
    if (entry == RT_ENTRY_TRAIN)
        return stack_plan(n).bytes;
    if (entry == RT_ENTRY_EVAL)
        return stack_eval_plan(n).bytes;
    return 0;
}

/* What products and attention work in, besides the arena: asked for before a step. A
 * .bias only says that there is one. */
static void stack_rooms(const ptrdiff_t *dims, RtEntry entry, RtRooms *rooms)
{
    const Dims n = stack_dims(dims);
    if (entry == RT_ENTRY_TRAIN) {
        rt_room_matmul(rooms, RT_F32, RT_F32,
            (RtMatmul){ .m = n.B, .n = C, .k = C, .tb = true, .bias = rooms });
        rt_room_matmul(rooms, RT_F32, RT_F32, (RtMatmul){ .m = n.B, .n = C, .k = C });
        rt_room_matmul(rooms, RT_F32, RT_F32,
            (RtMatmul){ .m = C, .n = C, .k = n.B, .ta = true, .add = true });
    }
    if (entry == RT_ENTRY_EVAL) {
        rt_room_matmul(rooms, RT_F32, RT_F32,
            (RtMatmul){ .m = n.B, .n = C, .k = C, .tb = true, .bias = rooms });
    }
}

/* Number, is it of the backward pass, loops, lines of the model, what it computes, of what. */
static const RtStepRow stack_steps[] = {
    { 1, false, { 0 }, "stack.model:11", "z = x", "input x" },
    { 2, false, { "h" }, "stack.model:8", "h_norm_y, h_norm_mu, h_norm_rstd from z",
      "z[i-1], param h.*.norm.weight" },
    { 3, false, { "h" }, "stack.model:8", "h_lin = h_norm_y @ h_lin_weight' + h_lin_bias",
      "h_norm_y[i], param h.*.lin.weight, param h.*.lin.bias" },
    { 4, false, { "h" }, "stack.model:8", "z from z, h_lin", "z[i-1], h_lin[i]" },
    { 5, false, { 0 }, "stack.model:15", "sum_loss, loss_a from z, y", "z, input y" },
    { 6, true, { 0 }, "stack.model:15", "d_z = seed_loss * 2 * loss_a", "loss_a" },
    { 7, true, { "h" }, "stack.model:8", "d_h_lin, d_h_lin_bias from h_lin, d_z",
      "h_lin[i], d_z" },
    { 8, true, { "h" }, "stack.model:8", "d_h_norm_y = d_h_lin @ h_lin_weight",
      "d_h_lin, param h.*.lin.weight" },
    { 9, true, { "h" }, "stack.model:8", "d_h_lin_weight (+)= d_h_lin' @ h_norm_y",
      "d_h_lin, h_norm_y[i]" },
    { 10, true, { "h" }, "stack.model:8 (with 11)", "d_z, d_h_norm_weight from d_h_norm_y, z, ...",
      "d_h_norm_y, z[i-1], h_norm_mu[i], h_norm_rstd[i], param h.*.norm.weight, d_z" },
};

/* What the arena holds in step 7, where it is fullest at B = 16, by line of the model. */
static void stack_alive(const ptrdiff_t *dims, RtAlive *row)
{
    const Dims n = stack_dims(dims);
    row[0] = (RtAlive){ "stack.model:8", "work_d_h_lin, h_norm_y, h_lin, d_h_li...", 0 };
    row[0].bytes = RT_SIZE(float, RT_CHUNKS*C) + 2*RT_SIZE(float, n.B*C*L) + RT_SIZE(float, n.B*C) +
            2*RT_SIZE(float, n.B*L);
    row[1] = (RtAlive){ "stack.model:11", "z", 0 };
    row[1].bytes = RT_SIZE(float, n.B*C*L + n.B*C);
    row[2] = (RtAlive){ "stack.model:15", "d_z", 0 };
    row[2].bytes = RT_SIZE(float, n.B*C);
}

const RtModel stack = {
    .name = "stack",
    .source = "stack.model", .source_crc = 0xee3725feu,
    .real = RT_F32, .compute = RT_F32,
    .blocks = 0.731,
    .dims = stack_sizes, .n_dims = 1,
    .params = stack_params, .n_params = 3, .n_elems = P_COUNT,
    .inputs = stack_inputs, .n_inputs = 2,
    .slots = stack_means, .n_slots = 1,
    .objectives = stack_objectives, .n_objectives = 1,
    .steps = stack_steps, .n_steps = 10,
    .train = {
        .reader = NULL, .path = NULL, .val_path = NULL,
        .split = 1.0, .header = false, .vocab = NULL,
        .batch = 32, .accumulate = 1,
        .optimizer = RT_RULE, .rule = "adamw", .decays = true, .weight_decay = 0.01,
        .states = { "m", "v" }, .n_states = 2,
        .hyper = {
            { .name = "beta1", .value = 0.9, .lo = 0.0, .hi = 0.9999999 },
            { .name = "beta2", .value = 0.999, .lo = 0.0, .hi = 0.9999999 },
            { .name = "eps", .value = 1e-08, .lo = 1e-30, .hi = 1e+300 },
        },
        .n_hypers = 3,
        .schedule = RT_CONSTANT, .lr = 0.001, .lr_end = 0.001,
        .warmup = 0, .decay_steps = 0,
        .clip = 0.0, .steps = 1000, .eval_every = 0, .save_every = 0,
        .log_every = 10, .keep = 3, .seed = 1u, .out = NULL,
        .where = "",
    },
    .input_shape = stack_input_shape,
    .arena_bytes = stack_arena_bytes,
    .rooms = stack_rooms,
    .alive = stack_alive, .n_alive = 3, .fullest = 7,
    .step = stack_step,
    .evaluate = stack_run_evaluate,
};

#ifndef RT_LIBRARY
int main(int argc, char **argv)
{
    return rt_main(&stack, argc, argv);
}
#endif
