/* again.c -- generated from again.model by gradcc 0.1.
 * Do not edit: edit the model.
 *
 * command   gradcc --emit=c again.model
 * source    again.model, 18 lines, crc32 53ef0621
 * contents  1 dimensions  2 parameters  3 memory map  4 kernels
 *           5 forward     6 backward    7 step        8 model table
 * size      204 parameters; arena 1.8 KiB at B = 8, fullest at step 17 of 17
 */
#include "rt.h"

/* ---- 1 dimensions ------------------------------------------------------- */

enum {                                  /* fixed when the model was compiled */
    C = 4,                              /* again.model:2 */
    L = 3,                              /* again.model:2 */
};

typedef struct {                        /* known when the program starts */
    ptrdiff_t B;                        /* samples in a micro-step  again.model:3 */
} Dims;

/* ---- 2 parameters ------------------------------------------------------- */

/* One flat buffer. A name is the path of declarations that leads to a parameter; layers
 * that the model's file does not show, such as linear and mlp, are those of prelude.model.
 * A linear layer stores [out,in] unless it is declared transposed: it is x @ w'. */

enum {                                       /* in one repetition of h : block * L */
    P_h_norm_weight = 0,                     /* [C]            again.model:6 */
    P_h_up_weight = P_h_norm_weight + C,     /* [2*C,C]        again.model:7 */
    P_h_down_weight = P_h_up_weight + 2*C*C, /* [C,2*C]        again.model:8 */
    P_h_STRIDE = P_h_down_weight + 2*C*C,
};

enum {                                  /* first element in the flat buffer */
    P_h = 0,                            /* L times        again.model:13 */
    P_COUNT = P_h + L*P_h_STRIDE,
};

static const RtParam again_params[] = {
    { .path = "h.*.norm.weight", .role = RT_GAIN, .decay = false, .rank = 1, .shape = { C },
      .at = P_h + P_h_norm_weight, .n_stacks = 1, .stack = { { L, P_h_STRIDE } },
      .ready = 17, .each = true, .init = { RT_ONES, 0.0 }, .where = "again.model:6" },
    { .path = "h.*.up.weight", .role = RT_WEIGHT, .decay = true, .rank = 2, .shape = { 2*C, C },
      .at = P_h + P_h_up_weight, .n_stacks = 1, .stack = { { L, P_h_STRIDE } },
      .ready = 17, .each = true, .init = { RT_UNIFORM, 0.5 }, .where = "again.model:7" },
    { .path = "h.*.down.weight", .role = RT_WEIGHT, .decay = true, .rank = 2, .shape = { C, 2*C },
      .at = P_h + P_h_down_weight, .n_stacks = 1, .stack = { { L, P_h_STRIDE } },
      .ready = 17, .each = true, .init = { RT_UNIFORM, 0.35355339059327373 },
      .where = "again.model:8" },
};

/* ---- 3 memory map ------------------------------------------------------- */

/* One arena holds what a numbered step of sections 5 and 6 leaves for later ones. Values
 * that are not needed at the same time share bytes: 'over' lists what was there before, 'in
 * place of' means that a step replaces its input. work_* hold partial sums while a step
 * runs. Sizes are known when the program starts, so offsets are formulas: a buffer lies
 * above all that are needed while it is. RT_SIZE rounds up to RT_ALIGN bytes, and
 * rt_above(a, b) is the higher one. */

/* The arena of a training step: 1.8 KiB at B = 8.
 * Offsets and bytes are those at these sizes; written and last read are numbers of
 * steps (sections 5 and 6).
 *
 * recompute = blocks: 6 values of loops computed again, 3.2 kFLOP more of 19.9 kFLOP in a
 * micro-step, predicted time +17.4 % against auto.
 *
 *   buffer             shape          type      offset       bytes  written  last read
 *   x_2                [L + 1,B,C]    f32         1024         512        1         17
 *   h_norm             [B,C]          f32          256         128        2          3
 *   h_up_y             [B,2*C]        f32            0         256        3          4
 *   h_down_y_a         [B,2*C]        f32            0         256        4          5
 *       in place of h_up_y
 *   h_down_y           [B,C]          f32          256         128        5          6
 *       over h_norm
 *   loss_a             [B,C]          f32         1536         128        7          8
 *   d_x                [B,C]          f32         1536         128        8         17
 *       in place of loss_a
 *   d_h_down_y         [B,C]          f32          512         128        9         14
 *   d_h_down_y_a       [B,2*C]        f32            0         256       10         13
 *       over h_up_y, h_down_y_a
 *   h_norm_rstd        [B]            f32         1792          64       11         17
 *   h_norm_2           [B,C]          f32          640         128       11         16
 *   h_up_y_2           [B,2*C]        f32          256         256       12         13
 *       over h_norm, h_down_y
 *   d_h_down_weight_a  [B,2*C]        f32          256         256       13         14
 *       in place of h_up_y_2
 *   d_h_up_y           [B,2*C]        f32            0         256       13         16
 *       in place of d_h_down_y_a
 *   d_h_norm           [B,C]          f32         1664         128       15         17
 *   work_d_x           [RT_CHUNKS,C]  f32            0        1024       17         17
 *       over h_norm, h_up_y, h_down_y_a, h_down_y, d_h_down_y, d_h_down_y_a, h_norm_2, h_up_y_2,
 *         d_h_down_weight_a, d_h_up_y
 */

typedef struct { size_t x_2, h_norm, h_up_y, h_down_y_a, h_down_y, loss_a, d_x, d_h_down_y,
        d_h_down_y_a, h_norm_rstd, h_norm_2, h_up_y_2, d_h_down_weight_a, d_h_up_y, d_h_norm,
        work_d_x, bytes; } Plan;

static Plan again_plan(Dims n)
{
    Plan at;
    at.d_h_down_y_a      = 0;
    at.h_up_y_2          = at.d_h_down_y_a + RT_SIZE(float, 2*n.B*C);
    at.d_h_down_y        = at.h_up_y_2 + RT_SIZE(float, 2*n.B*C);
    at.h_norm_2          = at.d_h_down_y + RT_SIZE(float, n.B*C);
    at.h_up_y            = 0;
    at.h_down_y          = at.h_up_y + RT_SIZE(float, 2*n.B*C);
    at.h_norm            = at.h_up_y + RT_SIZE(float, 2*n.B*C);
    at.work_d_x          = 0;
    at.x_2               = at.h_norm_2 + RT_SIZE(float, n.B*C);
    at.x_2               = rt_above(at.x_2, at.h_down_y + RT_SIZE(float, n.B*C));
    at.x_2               = rt_above(at.x_2, at.h_norm + RT_SIZE(float, n.B*C));
    at.x_2               = rt_above(at.x_2, at.work_d_x + RT_SIZE(float, RT_CHUNKS*C));
    at.h_down_y_a        = at.h_up_y;
    at.loss_a            = at.x_2 + RT_SIZE(float, n.B*C*L + n.B*C);
    at.d_x               = at.loss_a;
    at.d_h_norm          = at.loss_a + RT_SIZE(float, n.B*C);
    at.h_norm_rstd       = at.d_h_norm + RT_SIZE(float, n.B*C);
    at.d_h_down_weight_a = at.h_up_y_2;
    at.d_h_up_y          = at.d_h_down_y_a;
    at.bytes             = at.h_norm_rstd + RT_SIZE(float, n.B);
    return at;
}

/* The arena of an evaluation: 512 B at B = 8.
 * Offsets and bytes are those at these sizes; written and last read are numbers of
 * steps (section 5).
 *
 *   buffer      shape    type      offset       bytes  written  last read
 *   x_2         [B,C]    f32          256         128        1          7
 *   h_norm      [B,C]    f32          384         128        2          3
 *   h_up_y      [B,2*C]  f32            0         256        3          4
 *   h_down_y_a  [B,2*C]  f32            0         256        4          5
 *       in place of h_up_y
 *   h_down_y    [B,C]    f32          384         128        5          6
 *       over h_norm
 */

typedef struct { size_t x_2, h_norm, h_up_y, h_down_y_a, h_down_y, bytes; } EvalPlan;

static EvalPlan again_eval_plan(Dims n)
{
    EvalPlan at;
    at.h_up_y     = 0;
    at.x_2        = at.h_up_y + RT_SIZE(float, 2*n.B*C);
    at.h_norm     = at.x_2 + RT_SIZE(float, n.B*C);
    at.h_down_y_a = at.h_up_y;
    at.h_down_y   = at.x_2 + RT_SIZE(float, n.B*C);
    at.bytes      = at.h_norm + RT_SIZE(float, n.B*C);
    at.bytes      = rt_above(at.bytes, at.h_down_y + RT_SIZE(float, n.B*C));
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

/* x_2[B,C] = x[B,C]                              again.model:12 */
static void k1_x_2(float *restrict x_2, const float *restrict x, ptrdiff_t B)
{
    RT_PARALLEL_SIMD(B*C)
    for (ptrdiff_t i = 0; i < B*C; i++)
        x_2[i] = x[i];
}

/* h_norm[B,C] = x_2[B,C] * rsqrt((sum over C of x_2[B,C]^2) / C + 1e-06) * h_norm_weight[C]
 * again.model:9 */
static void k2_h_norm(float *restrict h_norm, const float *restrict x_2,
                      const float *restrict h_norm_weight, ptrdiff_t B)
{
    RT_PARALLEL_FOR(1, B*C)
    for (ptrdiff_t ib = 0; ib < B; ib++) {
        float sum = 0;
        for (int ic = 0; ic < C; ic++) {
            const float x = x_2[ib*C + ic];
            sum += x * x;
        }
        const float rstd = rt_rsqrt(sum / (float)C + 1e-06f);
        RT_SIMD()
        for (int ic = 0; ic < C; ic++)
            h_norm[ib*C + ic] = x_2[ib*C + ic] * rstd * h_norm_weight[ic];
    }
}

/* h_up_y[B,2*C] = h_norm[B,C] @ h_up_weight[2*C,C]'  again.model:9 */
static void k3_h_up_y(float *restrict h_up_y, const float *restrict h_norm,
                      const float *restrict h_up_weight, ptrdiff_t B)
{
    const RtMatmul shape = { .m = B, .n = 2*C, .k = C, .tb = true };
    rt_matmul_f32(h_up_y, h_norm, h_up_weight, shape);
}

/* h_down_y_a[B,2*C] = max(0, h_up_y[B,2*C])      again.model:9 */
static void k4_h_down_y_a(float *h_down_y_a, const float *h_up_y, ptrdiff_t B)
{
    RT_PARALLEL_SIMD(2*B*C)
    for (ptrdiff_t i = 0; i < 2*B*C; i++)
        h_down_y_a[i] = rt_max(0.0f, h_up_y[i]);
}

/* h_down_y[B,C] = h_down_y_a[B,2*C] @ h_down_weight[C,2*C]'  again.model:9 */
static void k5_h_down_y(float *restrict h_down_y, const float *restrict h_down_y_a,
                        const float *restrict h_down_weight, ptrdiff_t B)
{
    const RtMatmul shape = { .m = B, .n = C, .k = 2*C, .tb = true };
    rt_matmul_f32(h_down_y, h_down_y_a, h_down_weight, shape);
}

/* x_2[B,C] = x_2[B,C] + where(uniform(i) < 0.9, h_down_y[B,C] * 1.111111, 0)  again.model:9 */
static void k6_x_2(float *x_2_next, const float *x_2, const float *restrict h_down_y, int iter,
                   RtKey key, int64_t sample, ptrdiff_t B)
{
    RT_PARALLEL_FOR(1, B*C)
    for (ptrdiff_t ib = 0; ib < B; ib++) {
        RT_SIMD()
        for (int ic = 0; ic < C; ic++) {
            const float a = rt_uniform_f32(key, rt_stream(0x48e952c65cabd4ecu, (uint64_t)iter),
                    (uint64_t)(sample + ib), (uint64_t)(ic));
            x_2_next[ib*C + ic] = x_2[ib*C + ic] + (a < 0.9f ? h_down_y[ib*C + ic] * 1.1111112f :
                    0.0f);
        }
    }
}

/* loss_a[B,C] = x_2 - y
 * sum_loss += sum over B,C of loss_a^2
 * again.model:15 */
static void k7_sum_loss(float *restrict loss_a, double *restrict sum_loss,
                        const float *restrict x_2, const float *restrict y, ptrdiff_t B)
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
                const float a = x_2[i] - y[i];
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

/* d_x[B,C] = seed_loss * 2 * loss_a[B,C]         again.model:15   gradient of k7 */
static void k8_d_x(float *d_x, const float *loss_a, float seed_loss, ptrdiff_t B)
{
    const float a = seed_loss * 2;
    RT_PARALLEL_SIMD(B*C)
    for (ptrdiff_t i = 0; i < B*C; i++)
        d_x[i] = a * loss_a[i];
}

/* d_h_down_y[B,C] = where(uniform(i) < 0.9, d_x[B,C] * 1.111111, 0)
 * again.model:9   gradient of k6 */
static void k9_d_h_down_y(float *restrict d_h_down_y, const float *restrict d_x, int iter,
                          RtKey key, int64_t sample, ptrdiff_t B)
{
    RT_PARALLEL_FOR(1, B*C)
    for (ptrdiff_t ib = 0; ib < B; ib++) {
        RT_SIMD()
        for (int ic = 0; ic < C; ic++) {
            const float a = rt_uniform_f32(key, rt_stream(0x48e952c65cabd4ecu, (uint64_t)iter),
                    (uint64_t)(sample + ib), (uint64_t)(ic));
            d_h_down_y[ib*C + ic] = a < 0.9f ? d_x[ib*C + ic] * 1.1111112f : 0.0f;
        }
    }
}

/* d_h_down_y_a[B,2*C] = d_h_down_y[B,C] @ h_down_weight[C,2*C]  again.model:9   gradient of k5 */
static void k10_d_h_down_y_a(float *restrict d_h_down_y_a, const float *restrict d_h_down_y,
                             const float *restrict h_down_weight, ptrdiff_t B)
{
    const RtMatmul shape = { .m = B, .n = 2*C, .k = C };
    rt_matmul_f32(d_h_down_y_a, d_h_down_y, h_down_weight, shape);
}

/* h_norm_rstd[B] = rsqrt((sum over C of x_2^2) / C + 1e-06)
 * h_norm_2[B,C] = x_2 * h_norm_rstd * h_norm_weight
 * again.model:9 */
static void k11_h_norm_2(float *restrict h_norm_rstd, float *restrict h_norm_2,
                         const float *restrict x_2, const float *restrict h_norm_weight,
                         ptrdiff_t B)
{
    RT_PARALLEL_FOR(1, B*C)
    for (ptrdiff_t ib = 0; ib < B; ib++) {
        float sum = 0;
        for (int ic = 0; ic < C; ic++) {
            const float x = x_2[ib*C + ic];
            sum += x * x;
        }
        const float a = rt_rsqrt(sum / (float)C + 1e-06f);
        RT_SIMD()
        for (int ic = 0; ic < C; ic++)
            h_norm_2[ib*C + ic] = x_2[ib*C + ic] * a * h_norm_weight[ic];
        h_norm_rstd[ib] = a;
    }
}

/* h_up_y_2[B,2*C] = h_norm_2[B,C] @ h_up_weight[2*C,C]'  again.model:9 */
static void k12_h_up_y_2(float *restrict h_up_y_2, const float *restrict h_norm_2,
                         const float *restrict h_up_weight, ptrdiff_t B)
{
    const RtMatmul shape = { .m = B, .n = 2*C, .k = C, .tb = true };
    rt_matmul_f32(h_up_y_2, h_norm_2, h_up_weight, shape);
}

/* d_h_down_weight_a[B,2*C] = max(0, h_up_y_2)
 * d_h_up_y[B,2*C] = where(0 < h_up_y_2, d_h_down_y_a, 0)
 * again.model:9   gradient of k4 */
static void k13_d_h_up_y(float *d_h_down_weight_a, float *d_h_up_y, const float *h_up_y_2,
                         const float *d_h_down_y_a, ptrdiff_t B)
{
    RT_PARALLEL_SIMD(2*B*C)
    for (ptrdiff_t i = 0; i < 2*B*C; i++) {
        const float h_up_y = h_up_y_2[i];
        const float a = d_h_down_y_a[i];
        d_h_down_weight_a[i] = rt_max(0.0f, h_up_y);
        d_h_up_y[i] = 0 < h_up_y ? a : 0.0f;
    }
}

/* d_h_down_weight[C,2*C] (+)= d_h_down_y[B,C]' @ d_h_down_weight_a[B,2*C]
 * again.model:9   gradient of k5 */
static void k14_d_h_down_weight(float *restrict d_h_down_weight, const float *restrict d_h_down_y,
                                const float *restrict d_h_down_weight_a, bool add, ptrdiff_t B)
{
    const RtMatmul shape = { .m = C, .n = 2*C, .k = B, .ta = true, .add = add };
    rt_matmul_f32(d_h_down_weight, d_h_down_y, d_h_down_weight_a, shape);
}

/* d_h_norm[B,C] = d_h_up_y[B,2*C] @ h_up_weight[2*C,C]  again.model:9   gradient of k3 */
static void k15_d_h_norm(float *restrict d_h_norm, const float *restrict d_h_up_y,
                         const float *restrict h_up_weight, ptrdiff_t B)
{
    const RtMatmul shape = { .m = B, .n = C, .k = 2*C };
    rt_matmul_f32(d_h_norm, d_h_up_y, h_up_weight, shape);
}

/* d_h_up_weight[2*C,C] (+)= d_h_up_y[B,2*C]' @ h_norm_2[B,C]  again.model:9   gradient of k3 */
static void k16_d_h_up_weight(float *restrict d_h_up_weight, const float *restrict d_h_up_y,
                              const float *restrict h_norm_2, bool add, ptrdiff_t B)
{
    const RtMatmul shape = { .m = 2*C, .n = C, .k = B, .ta = true, .add = add };
    rt_matmul_f32(d_h_up_weight, d_h_up_y, h_norm_2, shape);
}

/* d_h_norm_weight[C] (+)= sum over B of d_h_norm * (x_2 * h_norm_rstd)
 * d_x[B,C] = d_x + d_h_norm * h_norm_weight * h_norm_rstd +
 *         d_h_norm_rstd * (-0.5 * h_norm_rstd^3) / C * 2 * x_2
 * where d_h_norm_rstd = sum over C of d_h_norm * h_norm_weight * x_2
 * again.model:9   gradient of k2 */
static void k17_d_x(float *restrict d_x, float *restrict d_h_norm_weight, float *restrict work,
                    const float *restrict d_h_norm, const float *restrict x_2,
                    const float *restrict h_norm_rstd, const float *restrict h_norm_weight,
                    bool add, ptrdiff_t B)
{
    const int chunks = rt_chunks(B);
    RT_PARALLEL_FOR(1, B*C)
    for (int chunk = 0; chunk < chunks; chunk++) {
        const ptrdiff_t from = rt_chunk(B, chunk, chunks);
        const ptrdiff_t to = rt_chunk(B, chunk + 1, chunks);
        float *restrict part_d_h_norm_weight = rt_zeros_f32(work + chunk*C, C);
        for (ptrdiff_t ib = from; ib < to; ib++) {
            const float rstd = h_norm_rstd[ib];
            float d_rstd = 0;
            for (int ic = 0; ic < C; ic++) {
                const float a = d_h_norm[ib*C + ic];
                const float x = x_2[ib*C + ic];
                d_rstd += a * h_norm_weight[ic] * x;
                part_d_h_norm_weight[ic] += a * (x * rstd);
            }
            const float b = d_rstd * (-0.5f * (rstd * rstd * rstd)) / (float)C * 2;
            RT_SIMD()
            for (int ic = 0; ic < C; ic++) {
                const float c = d_x[ib*C + ic] + d_h_norm[ib*C + ic] * h_norm_weight[ic] * rstd;
                d_x[ib*C + ic] = c + b * x_2[ib*C + ic];
            }
        }
    }
    rt_add_rows_f32(d_h_norm_weight, work, chunks, C, add);
}

/* ---- of evaluation and outputs, where they differ ---- */

/* x_2[B,C] = x_2[B,C] + h_down_y[B,C]            again.model:9 */
static void k18_x_2(float *restrict x_2, const float *restrict h_down_y, ptrdiff_t B)
{
    RT_PARALLEL_SIMD(B*C)
    for (ptrdiff_t i = 0; i < B*C; i++)
        x_2[i] = x_2[i] + h_down_y[i];
}

/* sum_loss += sum over B,C of (x_2[B,C] - y[B,C])^2  again.model:15 */
static void k19_sum_loss(double *restrict sum_loss, const float *restrict x_2,
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
                const float a = x_2[i] - y[i];
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
    S_loss = 0,                         /* mean((x - y)^2)  again.model:15 */
};

/* adds what the means divide by, for one micro-step */
static void again_count(RtStep *s, Dims n)
{
    s->count[S_loss] += (double)(n.B*C);  /* mean((x - y)^2)  again.model:15 */
}

/* one repetition of h, forward; reads x_2, writes the next x_2 */
static void block_forward(const float *p, void *arena, const Plan *at, const RtStep *s, Dims n,
                          int il)
{
    float *x_2 = rt_at_f32(arena, at->x_2) + il*n.B*C;    /* [B,C] */
    const float *p_h = p + P_h + il*P_h_STRIDE;           /* this repetition of h */
    float *h_norm = rt_at_f32(arena, at->h_norm);         /* [B,C] */
    float *h_up_y = rt_at_f32(arena, at->h_up_y);         /* [B,2*C] */
    float *h_down_y_a = rt_at_f32(arena, at->h_down_y_a); /* [B,2*C] */
    float *h_down_y = rt_at_f32(arena, at->h_down_y);     /* [B,C] */

    RT_REPETITION(s, 0, il);
    /* again.model:9  return x + dropout(down(relu(up(norm(x)))), 0.1) */
    /* 2    h_norm from x_2 */
    k2_h_norm(h_norm, x_2, p_h + P_h_norm_weight, n.B);
    RT_CHECK(s, 2, "h_norm[B,C]", h_norm, n.B*C);
    /* 3    h_up_y = h_norm @ h_up_weight' */
    k3_h_up_y(h_up_y, h_norm, p_h + P_h_up_weight, n.B);
    RT_CHECK(s, 3, "h_up_y[B,2*C]", h_up_y, 2*n.B*C);
    /* 4    h_down_y_a = max(0, h_up_y) */
    k4_h_down_y_a(h_down_y_a, h_up_y, n.B);
    RT_CHECK(s, 4, "h_down_y_a[B,2*C]", h_down_y_a, 2*n.B*C);
    /* 5    h_down_y = h_down_y_a @ h_down_weight' */
    k5_h_down_y(h_down_y, h_down_y_a, p_h + P_h_down_weight, n.B);
    RT_CHECK(s, 5, "h_down_y[B,C]", h_down_y, n.B*C);
    /* 6    x_2 = x_2 + where(uniform(i) < 0.9, h_down_y * 1.111111, 0) */
    k6_x_2(x_2 + n.B*C, x_2, h_down_y, il, s->key, s->sample, n.B);
    RT_CHECK(s, 6, "x_2[B,C]", x_2 + n.B*C, n.B*C);
}

/* training: fills the arena and adds to the sums */
static void again_forward(const float *p, const float *x, const float *y, void *arena, RtStep *s,
                          Dims n)
{
    const Plan at = again_plan(n);
    float *x_2 = rt_at_f32(arena, at.x_2);       /* [L + 1,B,C] */
    float *loss_a = rt_at_f32(arena, at.loss_a); /* [B,C] */

    /* 1    again.model:12  model again(x: [B, C], y: [B, C]) { */
    k1_x_2(x_2, x, n.B);
    RT_CHECK(s, 1, "x_2[B,C]", x_2, n.B*C);
    /* 2..6  again.model:14  for i in 0..L { x = h[i](x) } */
    for (int il = 0; il < L; il++)
        block_forward(p, arena, &at, s, n, il);
    /* 7    again.model:15  loss = mean((x - y)^2) */
    k7_sum_loss(loss_a, &s->sum[S_loss], x_2 + n.B*C*L, y, n.B);
    RT_CHECK(s, 7, "loss_a[B,C]", loss_a, n.B*C);
    RT_CHECK(s, 7, "sum_loss", &s->sum[S_loss], 1);
}

/* one repetition of h, evaluate; in place: x_2 */
static void block_evaluate(const float *p, void *arena, const EvalPlan *at, Dims n, int il)
{
    float *x_2 = rt_at_f32(arena, at->x_2);               /* [B,C] */
    const float *p_h = p + P_h + il*P_h_STRIDE;           /* this repetition of h */
    float *h_norm = rt_at_f32(arena, at->h_norm);         /* [B,C] */
    float *h_up_y = rt_at_f32(arena, at->h_up_y);         /* [B,2*C] */
    float *h_down_y_a = rt_at_f32(arena, at->h_down_y_a); /* [B,2*C] */
    float *h_down_y = rt_at_f32(arena, at->h_down_y);     /* [B,C] */

    /* again.model:9  return x + dropout(down(relu(up(norm(x)))), 0.1) */
    /* 2    h_norm from x_2 */
    k2_h_norm(h_norm, x_2, p_h + P_h_norm_weight, n.B);
    /* 3    h_up_y = h_norm @ h_up_weight' */
    k3_h_up_y(h_up_y, h_norm, p_h + P_h_up_weight, n.B);
    /* 4    h_down_y_a = max(0, h_up_y) */
    k4_h_down_y_a(h_down_y_a, h_up_y, n.B);
    /* 5    h_down_y = h_down_y_a @ h_down_weight' */
    k5_h_down_y(h_down_y, h_down_y_a, p_h + P_h_down_weight, n.B);
    /* 6    x_2 = x_2 + h_down_y */
    k18_x_2(x_2, h_down_y, n.B);
}

/* evaluation: the same values, kept for no backward pass; adds to the sums */
static void again_evaluate(const float *p, const float *x, const float *y, void *arena, RtStep *s,
                           Dims n)
{
    const EvalPlan at = again_eval_plan(n);
    float *x_2 = rt_at_f32(arena, at.x_2);      /* [B,C] */

    /* 1    again.model:12  model again(x: [B, C], y: [B, C]) { */
    k1_x_2(x_2, x, n.B);
    /* 2..6  again.model:14  for i in 0..L { x = h[i](x) } */
    for (int il = 0; il < L; il++)
        block_evaluate(p, arena, &at, n, il);
    /* 7    again.model:15  loss = mean((x - y)^2) */
    k19_sum_loss(&s->sum[S_loss], x_2, y, n.B);
}

/* ---- 6 backward: the steps of section 5, last first --------------------- */

/* From the loss back. d_x is d loss / d x; seed_* is d loss / d sum_*, the weight of
 * the mean / its count in the whole update, over all micro-steps (and ranks, where
 * several processes train together). An addition hands its gradient on to its terms
 * as it is, so it has no step here, and one d_x may belong to a sum and to its terms.
 * A value that is used twice gets the sum of two gradients; a bias, the sum over all
 * rows. */

/* one repetition of h, backward; in place: d_x */
static void block_backward(const float *p, float *d_p, void *arena, const Plan *at, const RtStep *s,
                           Dims n, int il)
{
    float *d_x = rt_at_f32(arena, at->d_x);                             /* [B,C] */
    float *d_h_down_y = rt_at_f32(arena, at->d_h_down_y);               /* [B,C] */
    float *d_h_down_y_a = rt_at_f32(arena, at->d_h_down_y_a);           /* [B,2*C] */
    const float *p_h = p + P_h + il*P_h_STRIDE;                         /* this repetition of h */
    float *x_2 = rt_at_f32(arena, at->x_2) + il*n.B*C;                  /* [B,C] */
    float *h_norm_rstd = rt_at_f32(arena, at->h_norm_rstd);             /* [B] */
    float *h_norm_2 = rt_at_f32(arena, at->h_norm_2);                   /* [B,C] */
    float *h_up_y_2 = rt_at_f32(arena, at->h_up_y_2);                   /* [B,2*C] */
    float *d_h_down_weight_a = rt_at_f32(arena, at->d_h_down_weight_a); /* [B,2*C] */
    float *d_h_up_y = rt_at_f32(arena, at->d_h_up_y);                   /* [B,2*C] */
    float *d_p_h = d_p + P_h + il*P_h_STRIDE;                           /* this repetition of h */
    float *d_h_norm = rt_at_f32(arena, at->d_h_norm);                   /* [B,C] */
    float *work_d_x = rt_at_f32(arena, at->work_d_x);                   /* [RT_CHUNKS,C] */

    RT_REPETITION(s, 0, il);
    /* 9    undoes 6     again.model:9  d_h_down_y from d_x */
    k9_d_h_down_y(d_h_down_y, d_x, il, s->key, s->sample, n.B);
    RT_CHECK(s, 9, "d_h_down_y[B,C]", d_h_down_y, n.B*C);
    /* 10   undoes 5     again.model:9  d_h_down_y_a = d_h_down_y @ h_down_weight */
    k10_d_h_down_y_a(d_h_down_y_a, d_h_down_y, p_h + P_h_down_weight, n.B);
    RT_CHECK(s, 10, "d_h_down_y_a[B,2*C]", d_h_down_y_a, 2*n.B*C);
    /* 11                again.model:9  h_norm_2, h_norm_rstd from x_2 */
    k11_h_norm_2(h_norm_rstd, h_norm_2, x_2, p_h + P_h_norm_weight, n.B);
    RT_CHECK(s, 11, "h_norm_rstd[B]", h_norm_rstd, n.B);
    RT_CHECK(s, 11, "h_norm_2[B,C]", h_norm_2, n.B*C);
    /* 12                again.model:9  h_up_y_2 = h_norm_2 @ h_up_weight' */
    k12_h_up_y_2(h_up_y_2, h_norm_2, p_h + P_h_up_weight, n.B);
    RT_CHECK(s, 12, "h_up_y_2[B,2*C]", h_up_y_2, 2*n.B*C);
    /* 13   undoes 4     again.model:9  d_h_up_y, d_h_down_weight_a from h_up_y_2, ... */
    k13_d_h_up_y(d_h_down_weight_a, d_h_up_y, h_up_y_2, d_h_down_y_a, n.B);
    RT_CHECK(s, 13, "d_h_down_weight_a[B,2*C]", d_h_down_weight_a, 2*n.B*C);
    RT_CHECK(s, 13, "d_h_up_y[B,2*C]", d_h_up_y, 2*n.B*C);
    /* 14   undoes 5     again.model:9  d_h_down_weight (+)= d_h_down_y' @ d_h_down_weight_a */
    k14_d_h_down_weight(d_p_h + P_h_down_weight, d_h_down_y, d_h_down_weight_a, s->add, n.B);
    RT_CHECK(s, 14, "d_h_down_weight[C,2*C]", d_p_h + P_h_down_weight, 2*C*C);
    /* 15   undoes 3     again.model:9  d_h_norm = d_h_up_y @ h_up_weight */
    k15_d_h_norm(d_h_norm, d_h_up_y, p_h + P_h_up_weight, n.B);
    RT_CHECK(s, 15, "d_h_norm[B,C]", d_h_norm, n.B*C);
    /* 16   undoes 3     again.model:9  d_h_up_weight (+)= d_h_up_y' @ h_norm_2 */
    k16_d_h_up_weight(d_p_h + P_h_up_weight, d_h_up_y, h_norm_2, s->add, n.B);
    RT_CHECK(s, 16, "d_h_up_weight[2*C,C]", d_p_h + P_h_up_weight, 2*C*C);
    /* 17   undoes 2     again.model:9  d_x, d_h_norm_weight from d_h_norm, x_2, ... */
    k17_d_x(d_x, d_p_h + P_h_norm_weight, work_d_x, d_h_norm, x_2, h_norm_rstd,
            p_h + P_h_norm_weight, s->add, n.B);
    RT_CHECK(s, 17, "d_h_norm_weight[C]", d_p_h + P_h_norm_weight, C);
    RT_CHECK(s, 17, "d_x[B,C]", d_x, n.B*C);
    RT_READY(s, 17, il); /* sums: h.*.norm.weight, h.*.up.weight, h.*.down.weight */
}

/* gradients: the first write of an update replaces, later ones add */
static void again_backward(const float *p, float *d_p, void *arena, const RtStep *s, Dims n)
{
    const Plan at = again_plan(n);
    float *loss_a = rt_at_f32(arena, at.loss_a); /* [B,C] */
    float *d_x = rt_at_f32(arena, at.d_x);       /* [B,C] */

    /* 8    undoes 7     again.model:15  d_x = seed_loss * 2 * loss_a */
    k8_d_x(d_x, loss_a, (float)s->seed[S_loss], n.B);
    RT_CHECK(s, 8, "d_x[B,C]", d_x, n.B*C);
    /* 9..17  undoes 2..6  again.model:14  for i in 0..L { x = h[i](x) } */
    for (int il = L - 1; il >= 0; il--)
        block_backward(p, d_p, arena, &at, s, n, il);
}

