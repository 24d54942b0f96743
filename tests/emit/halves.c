/* halves.c -- generated from halves.model by gradcc 0.1.
 * Do not edit: edit the model.
 *
 * command   gradcc --emit=c halves.model
 * source    halves.model, 24 lines, crc32 b109fee2
 * contents  1 dimensions  2 parameters  3 memory map  4 kernels
 *           5 forward     6 backward    7 step        8 model table
 * size      224 parameters; arena 7.5 KiB at B = 32, fullest at step 11 of 14
 */
#include "rt.h"

/* ---- 1 dimensions ------------------------------------------------------- */

enum {                                  /* fixed when the model was compiled */
    D = 8,                              /* halves.model:2 */
    L = 2,                              /* halves.model:2 */
};

typedef struct {                        /* known when the program starts */
    ptrdiff_t B;                        /* samples in a micro-step  halves.model:3 */
} Dims;

/* ---- 2 parameters ------------------------------------------------------- */

/* One flat buffer. A name is the path of declarations that leads to a parameter; layers
 * that the model's file does not show, such as linear and mlp, are those of prelude.model.
 * A linear layer stores [out,in] unless it is declared transposed: it is x @ w'. */

/* Those before P_HALVES are in p, in fp32. Those from P_HALVES on have no fp32
 * master: they are in p16, in bf16, at the same numbers, and the update rounds them
 * at random, up or down, so that on average nothing is lost. Values that are
 * rounded to bf16 lie in memory so (section 3), and kernels compute with them in
 * fp32. */

enum {                                  /* in one repetition of h : block * L */
    P_h_b = 0,                          /* [D]            halves.model:7 */
    P_h_g = P_h_b + D,                  /* [D]            halves.model:8 */
    P_h_STRIDE = P_h_g + D,
};

enum {                                  /* in one repetition of h : block * L, in 16 bits */
    P_h_w = 0,                          /* [D,D]          halves.model:6 */
    P_h16_STRIDE = P_h_w + D*D,
};

enum {                                     /* first element in the flat buffer */
    P_h = 0,                               /* L times        halves.model:13 */
    P_HALVES = P_h + L*P_h_STRIDE,         /* from here on in p16 alone */
    P_h16 = P_HALVES,                      /* L times        halves.model:13 */
    P_out_weight = P_h16 + L*P_h16_STRIDE, /* [D,D]          halves.model:14 */
    P_COUNT = P_out_weight + D*D,
};

static const RtParam halves_params[] = {
    { .path = "h.*.w", .role = RT_WEIGHT, .decay = true, .rank = 2, .shape = { D, D },
      .at = P_h16 + P_h_w, .n_stacks = 1, .stack = { { L, P_h16_STRIDE } },
      .ready = 14, .each = true, .init = { RT_UNIFORM, 0.6123724356957945 },
      .where = "halves.model:6" },
    { .path = "h.*.b", .role = RT_BIAS, .decay = false, .rank = 1, .shape = { D },
      .at = P_h + P_h_b, .n_stacks = 1, .stack = { { L, P_h_STRIDE } }, .ready = 14, .each = true,
      .init = { RT_ZEROS, 0.0 }, .where = "halves.model:7" },
    { .path = "h.*.g", .role = RT_GAIN, .decay = false, .rank = 1, .shape = { D },
      .at = P_h + P_h_g, .n_stacks = 1, .stack = { { L, P_h_STRIDE } }, .ready = 14, .each = true,
      .init = { RT_ONES, 0.0 }, .where = "halves.model:8" },
    { .path = "out.weight", .role = RT_WEIGHT, .decay = true, .rank = 2, .shape = { D, D },
      .at = P_out_weight, .ready = 9, .init = { RT_UNIFORM, 0.35355339059327373 },
      .where = "halves.model:14" },
};

/* ---- 3 memory map ------------------------------------------------------- */

/* One arena holds what a numbered step of sections 5 and 6 leaves for later ones. Values
 * that are not needed at the same time share bytes: 'over' lists what was there before, 'in
 * place of' means that a step replaces its input. work_* hold partial sums while a step
 * runs. Sizes are known when the program starts, so offsets are formulas: a buffer lies
 * above all that are needed while it is. RT_SIZE rounds up to RT_ALIGN bytes, and
 * rt_above(a, b) is the higher one. */

/* The arena of a training step: 7.5 KiB at B = 32.
 * Offsets and bytes are those at these sizes; written and last read are numbers of
 * steps (sections 5 and 6).
 *
 *   buffer        shape            type      offset       bytes  written  last read
 *   x_2           [L + 1,B,D]      bf16        4096        1536        1         13
 *   h_x_a         [L,B,D]          bf16        5632        1024        2         11
 *   out_y         [B,D]            bf16        1024         512        4          6
 *   loss_a        scalar           f32         1536          64        5          6
 *   loss_b        [B,D]            f32            0        1024        6          8
 *   d_out_y       [B,D]            bf16        1024         512        8         10
 *       over out_y
 *   d_x           [B,D]            bf16        6656         512       10         14
 *   d_h_b_a       [B,D]            bf16        7168         512       11         13
 *   d_x_a         [B,D]            f32            0        1024       12         14
 *       over loss_b, work_d_h_b_a
 *   work_d_h_b_a  [2*RT_CHUNKS,D]  f32            0        4096       11         11
 *       over out_y, loss_a, loss_b, d_out_y
 */

typedef struct { size_t x_2, h_x_a, out_y, loss_a, loss_b, d_out_y, d_x, d_h_b_a, d_x_a,
        work_d_h_b_a, bytes; } Plan;

static Plan halves_plan(Dims n)
{
    Plan at;
    at.loss_b       = 0;
    at.out_y        = at.loss_b + RT_SIZE(float, n.B*D);
    at.loss_a       = at.out_y + RT_SIZE(rt_bf16, n.B*D);
    at.d_out_y      = at.loss_b + RT_SIZE(float, n.B*D);
    at.work_d_h_b_a = 0;
    at.d_x_a        = 0;
    at.x_2          = at.loss_a + RT_SIZE(float, 1);
    at.x_2          = rt_above(at.x_2, at.d_out_y + RT_SIZE(rt_bf16, n.B*D));
    at.x_2          = rt_above(at.x_2, at.work_d_h_b_a + RT_SIZE(float, 2*RT_CHUNKS*D));
    at.x_2          = rt_above(at.x_2, at.d_x_a + RT_SIZE(float, n.B*D));
    at.h_x_a        = at.x_2 + RT_SIZE(rt_bf16, n.B*D*L + n.B*D);
    at.d_x          = at.h_x_a + RT_SIZE(rt_bf16, n.B*D*L);
    at.d_h_b_a      = at.d_x + RT_SIZE(rt_bf16, n.B*D);
    at.bytes        = at.d_h_b_a + RT_SIZE(rt_bf16, n.B*D);
    return at;
}

/* The arena of an evaluation: 1.0 KiB at B = 32.
 * Offsets and bytes are those at these sizes; written and last read are numbers of
 * steps (section 5).
 *
 *   buffer  shape   type      offset       bytes  written  last read
 *   x_2     [B,D]   bf16           0         512        1          4
 *   x_a     [B,D]   bf16         512         512        2          3
 *   out_y   [B,D]   bf16         512         512        4          6
 *       over x_a
 *   loss_a  scalar  f32            0          64        5          6
 *       over x_2
 */

typedef struct { size_t x_2, x_a, out_y, loss_a, bytes; } EvalPlan;

static EvalPlan halves_eval_plan(Dims n)
{
    EvalPlan at;
    at.x_2    = 0;
    at.x_a    = at.x_2 + RT_SIZE(rt_bf16, n.B*D);
    at.loss_a = 0;
    at.out_y  = at.loss_a + RT_SIZE(float, 1);
    at.out_y  = rt_above(at.out_y, at.x_2 + RT_SIZE(rt_bf16, n.B*D));
    at.bytes  = at.x_a + RT_SIZE(rt_bf16, n.B*D);
    at.bytes  = rt_above(at.bytes, at.out_y + RT_SIZE(rt_bf16, n.B*D));
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

/* x_2[B,D] = x[B,D]                              halves.model:12 */
static void k1_x_2(rt_bf16 *restrict x_2, const float *restrict x, ptrdiff_t B)
{
    RT_PARALLEL_SIMD(B*D)
    for (ptrdiff_t i = 0; i < B*D; i++)
        x_2[i] = rt_to_bf16(x[i]);
}

/* h_x_a[B,D] = x_2[B,D] @ h_w[D,D] + h_b         halves.model:9 */
static void k2_h_x_a(rt_bf16 *restrict h_x_a, const rt_bf16 *restrict x_2,
                     const rt_bf16 *restrict h_w, const float *restrict h_b, ptrdiff_t B)
{
    const RtMatmul shape = { .m = B, .n = D, .k = D, .bias = h_b };
    rt_matmul_bf16_bf16(h_x_a, x_2, h_w, shape);
}

/* x_2[B,D] = x_2[B,D] + h_g[D] * tanh(h_x_a[B,D])  halves.model:9 */
static void k3_x_2(rt_bf16 *x_2_next, const rt_bf16 *x_2, const float *restrict h_g,
                   const rt_bf16 *restrict h_x_a, ptrdiff_t B)
{
    RT_PARALLEL_FOR(1, B*D)
    for (ptrdiff_t ib = 0; ib < B; ib++) {
        RT_SIMD()
        for (int id = 0; id < D; id++) {
            const float x = rt_of_bf16(x_2[ib*D + id]) + h_g[id] *
                    rt_tanh(rt_of_bf16(h_x_a[ib*D + id]));
            x_2_next[ib*D + id] = rt_to_bf16(x);
        }
    }
}

/* out_y[B,D] = x_2[B,D] @ out_weight[D,D]'       halves.model:16 */
static void k4_out_y(rt_bf16 *restrict out_y, const rt_bf16 *restrict x_2,
                     const rt_bf16 *restrict out_weight, ptrdiff_t B)
{
    const RtMatmul shape = { .m = B, .n = D, .k = D, .tb = true };
    rt_matmul_bf16_bf16(out_y, x_2, out_weight, shape);
}

/* loss_a = sum over D,D of out_weight[D,D]^2     halves.model:16 */
static void k5_loss_a(float *restrict loss_a, const rt_bf16 *restrict out_weight)
{
    const int chunks = rt_chunks(D*D);
    double part_loss_a[RT_CHUNKS];
    RT_PARALLEL_FOR(1, D*D)
    for (int chunk = 0; chunk < chunks; chunk++) {
        const ptrdiff_t from = rt_chunk(D*D, chunk, chunks);
        const ptrdiff_t to = rt_chunk(D*D, chunk + 1, chunks);
        double total_loss_a = 0;
        double loss_a_lanes[RT_LANES] = { 0 };
        for (ptrdiff_t block = from; block < to; block += RT_LANES) {
            const ptrdiff_t end = rt_min(block + RT_LANES, to);
            RT_SIMD()
            for (ptrdiff_t i = block; i < end; i++) {
                const float a = rt_of_bf16(out_weight[i]);
                loss_a_lanes[i - block] += (double)(a * a);
            }
        }
        total_loss_a += rt_sum_lanes_f64(loss_a_lanes);
        part_loss_a[chunk] = total_loss_a;
    }
    *loss_a = (float)rt_sum_chunks(part_loss_a, chunks);
}

/* loss_b[B,D] = out_y - y
 * sum_loss += sum over B,D of (loss_b^2 + 0.01 * loss_a)
 * halves.model:16 */
static void k6_sum_loss(float *restrict loss_b, double *restrict sum_loss,
                        const rt_bf16 *restrict out_y, const float *restrict y,
                        const float *restrict loss_a, ptrdiff_t B)
{
    const float a = *loss_a;
    const float b = 0.01f * a;
    const int chunks = rt_chunks(B*D);
    double part_sum_loss[RT_CHUNKS];
    RT_PARALLEL_FOR(1, B*D)
    for (int chunk = 0; chunk < chunks; chunk++) {
        const ptrdiff_t from = rt_chunk(B*D, chunk, chunks);
        const ptrdiff_t to = rt_chunk(B*D, chunk + 1, chunks);
        double total_sum_loss = 0;
        double sum_loss_lanes[RT_LANES] = { 0 };
        for (ptrdiff_t block = from; block < to; block += RT_LANES) {
            const ptrdiff_t end = rt_min(block + RT_LANES, to);
            RT_SIMD()
            for (ptrdiff_t i = block; i < end; i++) {
                const float c = rt_of_bf16(out_y[i]) - y[i];
                loss_b[i] = c;
                sum_loss_lanes[i - block] += (double)(c * c + b);
            }
        }
        total_sum_loss += rt_sum_lanes_f64(sum_loss_lanes);
        part_sum_loss[chunk] = total_sum_loss;
    }
    *sum_loss += rt_sum_chunks(part_sum_loss, chunks);
}

/* ---- of the backward pass ---- */

/* d_out_weight[D,D] (+)= seed_loss * B*D * 0.01 * 2 * out_weight[D,D]
 * halves.model:16   gradient of k6, k5 */
static void k7_d_out_weight(float *restrict d_out_weight, const rt_bf16 *restrict out_weight,
                            float seed_loss, bool add, ptrdiff_t B)
{
    const float a = seed_loss * (float)(B*D);
    const float b = a * 0.01f;
    const float c = b * 2;
    RT_PARALLEL_SIMD(D*D)
    for (int i = 0; i < D*D; i++) {
        const float d = c * rt_of_bf16(out_weight[i]);
        d_out_weight[i] = add ? d_out_weight[i] + d : d;
    }
}

/* d_out_y[B,D] = seed_loss * 2 * loss_b[B,D]     halves.model:16   gradient of k6 */
static void k8_d_out_y(rt_bf16 *restrict d_out_y, const float *restrict loss_b, float seed_loss,
                       ptrdiff_t B)
{
    const float a = seed_loss * 2;
    RT_PARALLEL_SIMD(B*D)
    for (ptrdiff_t i = 0; i < B*D; i++)
        d_out_y[i] = rt_to_bf16(a * loss_b[i]);
}

/* d_out_weight[D,D] += d_out_y[B,D]' @ x_2[B,D]  halves.model:16   gradient of k4 */
static void k9_d_out_weight(float *restrict d_out_weight, const rt_bf16 *restrict d_out_y,
                            const rt_bf16 *restrict x_2, ptrdiff_t B)
{
    const RtMatmul shape = { .m = D, .n = D, .k = B, .ta = true, .add = true };
    rt_matmul_bf16_f32(d_out_weight, d_out_y, x_2, shape);
}

/* d_x[B,D] = d_out_y[B,D] @ out_weight[D,D]      halves.model:16   gradient of k4 */
static void k10_d_x(rt_bf16 *restrict d_x, const rt_bf16 *restrict d_out_y,
                    const rt_bf16 *restrict out_weight, ptrdiff_t B)
{
    const RtMatmul shape = { .m = B, .n = D, .k = D };
    rt_matmul_bf16_bf16(d_x, d_out_y, out_weight, shape);
}

/* d_h_g[D] (+)= sum over B of d_x * tanh(h_x_a)
 * d_h_b_a[B,D] = d_x * h_g * (1 - tanh(h_x_a)^2)
 * d_h_b[D] (+)= sum over B of d_h_b_a
 * halves.model:9   gradient of k3, k2 */
static void k11_d_h_b_a(float *restrict d_h_g, rt_bf16 *restrict d_h_b_a, float *restrict d_h_b,
                        float *restrict work, const rt_bf16 *restrict h_x_a,
                        const rt_bf16 *restrict d_x, const float *restrict h_g, bool add,
                        ptrdiff_t B)
{
    const int chunks = rt_chunks(B);
    RT_PARALLEL_FOR(1, B*D)
    for (int chunk = 0; chunk < chunks; chunk++) {
        const ptrdiff_t from = rt_chunk(B, chunk, chunks);
        const ptrdiff_t to = rt_chunk(B, chunk + 1, chunks);
        float *restrict part_d_h_g = rt_zeros_f32(work + chunk*D, D);
        float *restrict part_d_h_b = rt_zeros_f32(work + RT_CHUNKS*D + chunk*D, D);
        for (ptrdiff_t ib = from; ib < to; ib++) {
            RT_SIMD()
            for (int id = 0; id < D; id++) {
                const float a = rt_of_bf16(d_x[ib*D + id]);
                const float b = rt_tanh(rt_of_bf16(h_x_a[ib*D + id]));
                part_d_h_g[id] += a * b;
                const float c = rt_round_bf16(a * h_g[id] * (1 - b * b));
                d_h_b_a[ib*D + id] = rt_to_bf16(c);
                part_d_h_b[id] += c;
            }
        }
    }
    rt_add_rows_f32(d_h_g, work, chunks, D, add);
    rt_add_rows_f32(d_h_b, work + RT_CHUNKS*D, chunks, D, add);
}

/* d_x_a[B,D] = d_h_b_a[B,D] @ h_w[D,D]'          halves.model:9   gradient of k2 */
static void k12_d_x_a(float *restrict d_x_a, const rt_bf16 *restrict d_h_b_a,
                      const rt_bf16 *restrict h_w, ptrdiff_t B)
{
    const RtMatmul shape = { .m = B, .n = D, .k = D, .tb = true };
    rt_matmul_bf16_f32(d_x_a, d_h_b_a, h_w, shape);
}

/* d_h_w[D,D] (+)= x_2[B,D]' @ d_h_b_a[B,D]       halves.model:9   gradient of k2 */
static void k13_d_h_w(float *restrict d_h_w, const rt_bf16 *restrict x_2,
                      const rt_bf16 *restrict d_h_b_a, bool add, ptrdiff_t B)
{
    const RtMatmul shape = { .m = D, .n = D, .k = B, .ta = true, .add = add };
    rt_matmul_bf16_f32(d_h_w, x_2, d_h_b_a, shape);
}

/* d_x[B,D] = d_x[B,D] + d_x_a[B,D]               halves.model:12   gradient of k1 */
static void k14_d_x(rt_bf16 *restrict d_x, const float *restrict d_x_a, ptrdiff_t B)
{
    RT_PARALLEL_SIMD(B*D)
    for (ptrdiff_t i = 0; i < B*D; i++)
        d_x[i] = rt_to_bf16(rt_of_bf16(d_x[i]) + d_x_a[i]);
}

/* ---- of evaluation and outputs, where they differ ---- */

/* x_a[B,D] = x_2[B,D] @ h_w[D,D] + h_b           halves.model:9 */
static void k15_x_a(rt_bf16 *restrict x_a, const rt_bf16 *restrict x_2, const rt_bf16 *restrict h_w,
                    const float *restrict h_b, ptrdiff_t B)
{
    const RtMatmul shape = { .m = B, .n = D, .k = D, .bias = h_b };
    rt_matmul_bf16_bf16(x_a, x_2, h_w, shape);
}

/* x_2[B,D] = x_2[B,D] + h_g[D] * tanh(x_a[B,D])  halves.model:9 */
static void k16_x_2(rt_bf16 *restrict x_2, const float *restrict h_g, const rt_bf16 *restrict x_a,
                    ptrdiff_t B)
{
    RT_PARALLEL_FOR(1, B*D)
    for (ptrdiff_t ib = 0; ib < B; ib++) {
        RT_SIMD()
        for (int id = 0; id < D; id++) {
            const float x = rt_of_bf16(x_2[ib*D + id]) + h_g[id] *
                    rt_tanh(rt_of_bf16(x_a[ib*D + id]));
            x_2[ib*D + id] = rt_to_bf16(x);
        }
    }
}

/* sum_loss += sum over B,D of ((out_y[B,D] - y[B,D])^2 + 0.01 * loss_a)  halves.model:16 */
static void k17_sum_loss(double *restrict sum_loss, const rt_bf16 *restrict out_y,
                         const float *restrict y, const float *restrict loss_a, ptrdiff_t B)
{
    const float a = *loss_a;
    const float b = 0.01f * a;
    const int chunks = rt_chunks(B*D);
    double part_sum_loss[RT_CHUNKS];
    RT_PARALLEL_FOR(1, B*D)
    for (int chunk = 0; chunk < chunks; chunk++) {
        const ptrdiff_t from = rt_chunk(B*D, chunk, chunks);
        const ptrdiff_t to = rt_chunk(B*D, chunk + 1, chunks);
        double total_sum_loss = 0;
        double sum_loss_lanes[RT_LANES] = { 0 };
        for (ptrdiff_t block = from; block < to; block += RT_LANES) {
            const ptrdiff_t end = rt_min(block + RT_LANES, to);
            RT_SIMD()
            for (ptrdiff_t i = block; i < end; i++) {
                const float c = rt_of_bf16(out_y[i]) - y[i];
                sum_loss_lanes[i - block] += (double)(c * c + b);
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
    S_loss = 0,                         /* mean((out(x) - y)^2 + 0.01 * sum(...  halves.model:16 */
};

/* adds what the means divide by, for one micro-step */
static void halves_count(RtStep *s, Dims n)
{
    /* mean((out(x) - y)^2 + 0.01 * sum(out.weight^2))  halves.model:16 */
    s->count[S_loss] += (double)(n.B*D);
}

/* one repetition of h, forward; reads x_2, writes the next x_2 */
static void block_forward(const float *p, const rt_bf16 *p16, void *arena, const Plan *at,
                          const RtStep *s, Dims n, int il)
{
    rt_bf16 *h_x_a = rt_at_bf16(arena, at->h_x_a) + il*n.B*D; /* [B,D] */
    rt_bf16 *x_2 = rt_at_bf16(arena, at->x_2) + il*n.B*D;     /* [B,D] */
    const rt_bf16 *p16_h16 = p16 + P_h16 + il*P_h16_STRIDE;   /* this repetition of h */
    const float *p_h = p + P_h + il*P_h_STRIDE;               /* this repetition of h */

    RT_REPETITION(s, 0, il);
    /* halves.model:9  return x + g * tanh(x @ w + b) */
    /* 2    h_x_a = x_2 @ h_w + h_b */
    k2_h_x_a(h_x_a, x_2, p16_h16 + P_h_w, p_h + P_h_b, n.B);
    RT_CHECK(s, 2, "h_x_a[B,D]", h_x_a, n.B*D);
    /* 3    x_2 = x_2 + h_g * tanh(h_x_a) */
    k3_x_2(x_2 + n.B*D, x_2, p_h + P_h_g, h_x_a, n.B);
    RT_CHECK(s, 3, "x_2[B,D]", x_2 + n.B*D, n.B*D);
}

/* training: fills the arena and adds to the sums */
static void halves_forward(const float *p, const rt_bf16 *p16, const float *x, const float *y,
                           void *arena, RtStep *s, Dims n)
{
    const Plan at = halves_plan(n);
    rt_bf16 *x_2 = rt_at_bf16(arena, at.x_2);     /* [L + 1,B,D] */
    rt_bf16 *out_y = rt_at_bf16(arena, at.out_y); /* [B,D] */
    float *loss_a = rt_at_f32(arena, at.loss_a);  /* scalar */
    float *loss_b = rt_at_f32(arena, at.loss_b);  /* [B,D] */

    /* 1    halves.model:12  model halves(x: [B, D], y: [B, D]) { */
    k1_x_2(x_2, x, n.B);
    RT_CHECK(s, 1, "x_2[B,D]", x_2, n.B*D);
    /* 2..3  halves.model:15  for i in 0..L { x = h[i](x) } */
    for (int il = 0; il < L; il++)
        block_forward(p, p16, arena, &at, s, n, il);
    /* halves.model:16  loss = mean((out(x) - y)^2 + 0.01 * sum(out.weight^2)) */
    /* 4    out_y = x_2 @ out_weight' */
    k4_out_y(out_y, x_2 + n.B*D*L, p16 + P_out_weight, n.B);
    RT_CHECK(s, 4, "out_y[B,D]", out_y, n.B*D);
    /* 5    loss_a = sum over D,D of out_weight^2 */
    k5_loss_a(loss_a, p16 + P_out_weight);
    RT_CHECK(s, 5, "loss_a", loss_a, 1);
    /* 6    sum_loss, loss_b from out_y, y, loss_a */
    k6_sum_loss(loss_b, &s->sum[S_loss], out_y, y, loss_a, n.B);
    RT_CHECK(s, 6, "loss_b[B,D]", loss_b, n.B*D);
    RT_CHECK(s, 6, "sum_loss", &s->sum[S_loss], 1);
}

/* one repetition of h, evaluate; in place: x_2 */
static void block_evaluate(const float *p, const rt_bf16 *p16, void *arena, const EvalPlan *at,
                           Dims n, int il)
{
    rt_bf16 *x_a = rt_at_bf16(arena, at->x_a);              /* [B,D] */
    rt_bf16 *x_2 = rt_at_bf16(arena, at->x_2);              /* [B,D] */
    const rt_bf16 *p16_h16 = p16 + P_h16 + il*P_h16_STRIDE; /* this repetition of h */
    const float *p_h = p + P_h + il*P_h_STRIDE;             /* this repetition of h */

    /* halves.model:9  return x + g * tanh(x @ w + b) */
    k15_x_a(x_a, x_2, p16_h16 + P_h_w, p_h + P_h_b, n.B);  /* 2    x_a = x_2 @ h_w + h_b */
    k16_x_2(x_2, p_h + P_h_g, x_a, n.B);                   /* 3    x_2 = x_2 + h_g * tanh(x_a) */
}

/* evaluation: the same values, kept for no backward pass; adds to the sums */
static void halves_evaluate(const float *p, const rt_bf16 *p16, const float *x, const float *y,
                            void *arena, RtStep *s, Dims n)
{
    const EvalPlan at = halves_eval_plan(n);
    rt_bf16 *x_2 = rt_at_bf16(arena, at.x_2);     /* [B,D] */
    rt_bf16 *out_y = rt_at_bf16(arena, at.out_y); /* [B,D] */
    float *loss_a = rt_at_f32(arena, at.loss_a);  /* scalar */

    /* 1    halves.model:12  model halves(x: [B, D], y: [B, D]) { */
    k1_x_2(x_2, x, n.B);
    /* 2..3  halves.model:15  for i in 0..L { x = h[i](x) } */
    for (int il = 0; il < L; il++)
        block_evaluate(p, p16, arena, &at, n, il);
    /* halves.model:16  loss = mean((out(x) - y)^2 + 0.01 * sum(out.weight^2)) */
    /* 4    out_y = x_2 @ out_weight' */
    k4_out_y(out_y, x_2, p16 + P_out_weight, n.B);
    /* 5    loss_a = sum over D,D of out_weight^2 */
    k5_loss_a(loss_a, p16 + P_out_weight);
    /* 6    sum_loss += sum over B,D of ((out_y - y)^2 + 0.01 * loss_a) */
    k17_sum_loss(&s->sum[S_loss], out_y, y, loss_a, n.B);
}

/* ---- 6 backward: the steps of section 5, last first --------------------- */

/* From the loss back. d_x is d loss / d x; seed_* is d loss / d sum_*, the weight of
 * the mean / its count in the whole update, over all micro-steps (and ranks, where
 * several processes train together). An addition hands its gradient on to its terms
 * as it is, so it has no step here, and one d_x may belong to a sum and to its terms.
 * A value that is used twice gets the sum of two gradients; a bias, the sum over all
 * rows. */

/* one repetition of h, backward; in place: d_x */
static void block_backward(const float *p, const rt_bf16 *p16, float *d_p, void *arena,
                           const Plan *at, const RtStep *s, Dims n, int il)
{
    rt_bf16 *h_x_a = rt_at_bf16(arena, at->h_x_a) + il*n.B*D; /* [B,D] */
    rt_bf16 *d_x = rt_at_bf16(arena, at->d_x);                /* [B,D] */
    const float *p_h = p + P_h + il*P_h_STRIDE;               /* this repetition of h */
    float *d_p_h = d_p + P_h + il*P_h_STRIDE;                 /* this repetition of h */
    rt_bf16 *d_h_b_a = rt_at_bf16(arena, at->d_h_b_a);        /* [B,D] */
    float *work_d_h_b_a = rt_at_f32(arena, at->work_d_h_b_a); /* [2*RT_CHUNKS,D] */
    float *d_x_a = rt_at_f32(arena, at->d_x_a);               /* [B,D] */
    const rt_bf16 *p16_h16 = p16 + P_h16 + il*P_h16_STRIDE;   /* this repetition of h */
    float *d_p_h16 = d_p + P_h16 + il*P_h16_STRIDE;           /* this repetition of h */
    rt_bf16 *x_2 = rt_at_bf16(arena, at->x_2) + il*n.B*D;     /* [B,D] */

    RT_REPETITION(s, 0, il);
    /* 11   undoes 3, 2  halves.model:9  d_h_b_a, d_h_g, d_h_b from h_x_a, d_x */
    k11_d_h_b_a(d_p_h + P_h_g, d_h_b_a, d_p_h + P_h_b, work_d_h_b_a, h_x_a, d_x, p_h + P_h_g,
                s->add, n.B);
    RT_CHECK(s, 11, "d_h_g[D]", d_p_h + P_h_g, D);
    RT_CHECK(s, 11, "d_h_b_a[B,D]", d_h_b_a, n.B*D);
    RT_CHECK(s, 11, "d_h_b[D]", d_p_h + P_h_b, D);
    /* 12   undoes 2     halves.model:9  d_x_a = d_h_b_a @ h_w' */
    k12_d_x_a(d_x_a, d_h_b_a, p16_h16 + P_h_w, n.B);
    RT_CHECK(s, 12, "d_x_a[B,D]", d_x_a, n.B*D);
    /* 13   undoes 2     halves.model:9  d_h_w (+)= x_2' @ d_h_b_a */
    k13_d_h_w(d_p_h16 + P_h_w, x_2, d_h_b_a, s->add, n.B);
    RT_CHECK(s, 13, "d_h_w[D,D]", d_p_h16 + P_h_w, D*D);
    /* 14   undoes 1     halves.model:12  d_x = d_x + d_x_a */
    k14_d_x(d_x, d_x_a, n.B);
    RT_CHECK(s, 14, "d_x[B,D]", d_x, n.B*D);
    RT_READY(s, 14, il); /* sums: h.*.w, h.*.b, h.*.g */
}

/* gradients: the first write of an update replaces, later ones add */
static void halves_backward(const float *p, const rt_bf16 *p16, float *d_p, void *arena,
                            const RtStep *s, Dims n)
{
    const Plan at = halves_plan(n);
    float *loss_b = rt_at_f32(arena, at.loss_b);      /* [B,D] */
    rt_bf16 *d_out_y = rt_at_bf16(arena, at.d_out_y); /* [B,D] */
    rt_bf16 *x_2 = rt_at_bf16(arena, at.x_2);         /* [L + 1,B,D] */
    rt_bf16 *d_x = rt_at_bf16(arena, at.d_x);         /* [B,D] */

    /* 7    undoes 6, 5  halves.model:16  d_out_weight */
    k7_d_out_weight(d_p + P_out_weight, p16 + P_out_weight, (float)s->seed[S_loss], s->add, n.B);
    RT_CHECK(s, 7, "d_out_weight[D,D]", d_p + P_out_weight, D*D);
    /* 8    undoes 6     halves.model:16  d_out_y = seed_loss * 2 * loss_b */
    k8_d_out_y(d_out_y, loss_b, (float)s->seed[S_loss], n.B);
    RT_CHECK(s, 8, "d_out_y[B,D]", d_out_y, n.B*D);
    /* 9    undoes 4     halves.model:16  d_out_weight += d_out_y' @ x_2 */
    k9_d_out_weight(d_p + P_out_weight, d_out_y, x_2 + n.B*D*L, n.B);
    RT_CHECK(s, 9, "d_out_weight[D,D]", d_p + P_out_weight, D*D);
    RT_READY(s, 9, -1); /* sums: out.weight */
    /* 10   undoes 4     halves.model:16  d_x = d_out_y @ out_weight */
    k10_d_x(d_x, d_out_y, p16 + P_out_weight, n.B);
    RT_CHECK(s, 10, "d_x[B,D]", d_x, n.B*D);
    /* 11..14  undoes 1..3  halves.model:15  for i in 0..L { x = h[i](x) } */
    for (int il = L - 1; il >= 0; il--)
        block_backward(p, p16, d_p, arena, &at, s, n, il);
}

/* ---- 7 step: one update of the parameters ------------------------------- */

static Dims halves_dims(const ptrdiff_t *dims)
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
static void halves_update(const RtUpdate *u)
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

/* Counts come first, since gradients are divided by those of the whole update. Parameters from
 * P_HALVES on are widened for that, and rounded at random behind it. The average of the weights
 * follows each update: e = d e + (1 - d) p, where d grows to .ema. lr is .lr. */
static void halves_step(RtRun *run, RtStep *s)
{
    rt_begin_step(run, s);                      /* sums and counts 0, add = false; random key, lr */
    for (int micro = 0; micro < run->micro_steps; micro++) {
        rt_begin_micro(run, s, micro);          /* sizes, inputs, first sample */
        const Dims n = halves_dims(run->dims);
        halves_count(s, n);
    }
    rt_seed_losses(run, s);                  /* weight / count of the update; 0 if the count is 0 */

    for (int micro = 0; micro < run->micro_steps; micro++) {
        rt_begin_micro(run, s, micro);
        const Dims n = halves_dims(run->dims);
        const float *x = run->inputs[0];
        const float *y = run->inputs[1];
        halves_forward(run->p, run->p16, x, y, run->arena, s, n);
        halves_backward(run->p, run->p16, run->d_p, run->arena, s, n);
        s->add = true;                          /* later micro-steps add */
    }
    rt_reduce_gradients(run, s);                /* sum over ranks */
    rt_finite_and_norm(run, s);                 /* are all finite? norm of all as one vector */
    rt_update(run, s, halves_update);           /* of all parameters, if all is finite */
    rt_end_step(run, s);                        /* counters: updates applied, or skipped */
}

static void halves_run_evaluate(RtRun *run, RtStep *s)
{
    const Dims n = halves_dims(run->dims);
    const float *x = run->inputs[0];
    const float *y = run->inputs[1];
    halves_count(s, n);
    halves_evaluate(run->p, run->p16, x, y, run->arena, s, n);
}

