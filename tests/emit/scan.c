/* scan.c -- generated from scan.model by gradcc 0.1.
 * Do not edit: edit the model.
 *
 * command   gradcc --emit=c scan.model
 * source    scan.model, 27 lines, crc32 5ce82c0c
 * contents  1 dimensions  2 parameters  3 memory map  4 kernels
 *           5 forward     6 backward    7 step        8 model table
 * size      98 parameters; arena 38 KiB at B = 16, T = 16, full at step 23 of 25
 */
#include "rt.h"

/* ---- 1 dimensions ------------------------------------------------------- */

enum {                                  /* fixed when the model was compiled */
    D = 3,                              /* scan.model:2 */
    H = 4,                              /* scan.model:2 */
    L = 2,                              /* scan.model:2 */
};

typedef struct {                        /* known when the program starts */
    ptrdiff_t B;                        /* samples in a micro-step  scan.model:3 */
    ptrdiff_t T;                        /* scan.model:4 */
} Dims;

/* ---- 2 parameters ------------------------------------------------------- */

enum {                                                 /* in one repetition of deep : pass * L */
    P_deep_step_wx_weight = 0,                         /* [H,H]          scan.model:6 */
    P_deep_step_wx_bias = P_deep_step_wx_weight + H*H, /* [H]            scan.model:6 */
    P_deep_step_wh_weight = P_deep_step_wx_bias + H,   /* [H,H]          scan.model:7 */
    P_deep_STRIDE = P_deep_step_wh_weight + H*H,
};

enum {                                        /* first element in the flat buffer */
    P_first_weight = 0,                       /* [H,D]          scan.model:20 */
    P_first_bias = P_first_weight + D*H,      /* [H]            scan.model:20 */
    P_deep = P_first_bias + H,                /* L times        scan.model:21 */
    P_last_weight = P_deep + L*P_deep_STRIDE, /* [2,H]          scan.model:22 */
    P_last_bias = P_last_weight + 2*H,        /* [2]            scan.model:22 */
    P_COUNT = P_last_bias + 2,
};

static const RtParam scan_params[] = {
    { .path = "first.weight", .role = RT_WEIGHT, .decay = true, .rank = 2, .shape = { H, D },
      .at = P_first_weight, .init = { RT_UNIFORM, 0.5773502691896258 }, .where = "scan.model:20" },
    { .path = "first.bias", .role = RT_BIAS, .decay = false, .rank = 1, .shape = { H },
      .at = P_first_bias, .init = { RT_ZEROS, 0.0 }, .where = "scan.model:20" },
    { .path = "deep.*.step.wx.weight", .role = RT_WEIGHT, .decay = true, .rank = 2,
      .shape = { H, H }, .at = P_deep + P_deep_step_wx_weight,
      .n_stacks = 1, .stack = { { L, P_deep_STRIDE } }, .init = { RT_UNIFORM, 0.5 },
      .where = "scan.model:6" },
    { .path = "deep.*.step.wx.bias", .role = RT_BIAS, .decay = false, .rank = 1, .shape = { H },
      .at = P_deep + P_deep_step_wx_bias, .n_stacks = 1, .stack = { { L, P_deep_STRIDE } },
      .init = { RT_ZEROS, 0.0 }, .where = "scan.model:6" },
    { .path = "deep.*.step.wh.weight", .role = RT_WEIGHT, .decay = true, .rank = 2,
      .shape = { H, H }, .at = P_deep + P_deep_step_wh_weight,
      .n_stacks = 1, .stack = { { L, P_deep_STRIDE } }, .init = { RT_UNIFORM, 0.5 },
      .where = "scan.model:7" },
    { .path = "last.weight", .role = RT_WEIGHT, .decay = true, .rank = 2, .shape = { 2, H },
      .at = P_last_weight, .init = { RT_UNIFORM, 0.5 }, .where = "scan.model:22" },
    { .path = "last.bias", .role = RT_BIAS, .decay = false, .rank = 1, .shape = { 2 },
      .at = P_last_bias, .init = { RT_ZEROS, 0.0 }, .where = "scan.model:22" },
};

/* ---- 3 memory map ------------------------------------------------------- */

/* The arena of a training step: 38 KiB at B = 16, T = 16.
 * Offsets and bytes are those at these sizes; written and last read are steps.
 *
 *   buffer                 shape          type      offset       bytes  written  last read
 *   z                      [L + 1,B,T,H]  f32            0       12288        1         23
 *   deep_s                 [T + 1,B,H]    f32        28672        4352        2          7
 *   deep_s_2               [L,T,B,H]      f32        12288        8192        2         23
 *   deep_s_a               [B,H]          f32        33024         256        4          6
 *   deep_s_3               [L,T,B,H]      f32        20480        8192        2         23
 *   last_y_a               [B,H]          f32        29184         256        8         14
 *       over deep_s
 *   guess                  [B,2]          f32        28672         128        9         10
 *       over deep_s
 *   loss_a                 [B,2]          f32        29440         128       10         12
 *       over deep_s
 *   d_guess                [B,2]          f32        29568         128       12         14
 *       over deep_s
 *   d_last_y_a             [B,H]          f32        32768         256       13         15
 *       over deep_s
 *   d_z_a                  [B,H]          f32        32768         256       15         16
 *       in place of d_last_y_a
 *   d_z                    [B,T,H]        f32        28672        4096       16         25
 *       over deep_s, last_y_a, ...
 *   d_deep_s               [B,H]          f32        37888         256       17         22
 *   d_deep_step_wh_y       [B,H]          f32        38144         256       18         22
 *   d_deep_xt              [T,B,H]        f32        32768        4096       17         23
 *       over deep_s, deep_s_a, ...
 *   work_d_guess           [64,2]         f32        28672         512       12         12
 *       over deep_s, guess
 *   work_d_deep_step_wh_y  [64,H]         f32        36864        1024       18         18
 */

typedef struct { size_t z, deep_s, deep_s_2, deep_s_a, deep_s_3, last_y_a, guess, loss_a, d_guess,
        d_last_y_a, d_z_a, d_z, d_deep_s, d_deep_step_wh_y, d_deep_xt, work_d_guess,
        work_d_deep_step_wh_y, bytes; } Plan;

static Plan scan_plan(Dims n)
{
    Plan at;
    at.z                     = 0;
    at.deep_s_2              = at.z + RT_SIZE(float, n.B*n.T*H*L + n.B*n.T*H);
    at.deep_s_3              = at.deep_s_2 + RT_SIZE(float, n.B*n.T*H*L);
    at.deep_s                = at.deep_s_3 + RT_SIZE(float, n.B*n.T*H*L);
    at.deep_s_a              = at.deep_s + RT_SIZE(float, n.B*n.T*H + n.B*H);
    at.work_d_guess          = at.deep_s_3 + RT_SIZE(float, n.B*n.T*H*L);
    at.guess                 = at.deep_s_3 + RT_SIZE(float, n.B*n.T*H*L);
    at.last_y_a              = at.work_d_guess + RT_SIZE(float, 128);
    at.last_y_a              = rt_above(at.last_y_a, at.guess + RT_SIZE(float, 2*n.B));
    at.loss_a                = at.last_y_a + RT_SIZE(float, n.B*H);
    at.d_guess               = at.loss_a + RT_SIZE(float, 2*n.B);
    at.d_z                   = at.deep_s_3 + RT_SIZE(float, n.B*n.T*H*L);
    at.d_last_y_a            = at.d_guess + RT_SIZE(float, 2*n.B);
    at.d_last_y_a            = rt_above(at.d_last_y_a, at.d_z + RT_SIZE(float, n.B*n.T*H));
    at.d_z_a                 = at.d_last_y_a;
    at.d_deep_xt             = at.d_z + RT_SIZE(float, n.B*n.T*H);
    at.work_d_deep_step_wh_y = at.d_deep_xt + RT_SIZE(float, n.B*n.T*H);
    at.d_deep_s              = at.work_d_deep_step_wh_y + RT_SIZE(float, 64*H);
    at.d_deep_step_wh_y      = at.d_deep_s + RT_SIZE(float, n.B*H);
    at.bytes                 = at.deep_s_a + RT_SIZE(float, n.B*H);
    at.bytes                 = rt_above(at.bytes, at.d_last_y_a + RT_SIZE(float, n.B*H));
    at.bytes                 = rt_above(at.bytes, at.d_deep_step_wh_y + RT_SIZE(float, n.B*H));
    return at;
}

/* The arena of an evaluation: 8.5 KiB at B = 16, T = 16.
 * Offsets and bytes are those at these sizes; written and last read are steps.
 *
 *   buffer    shape        type      offset       bytes  written  last read
 *   z         [B,T,H]      f32         4352        4096        1         10
 *   deep_s    [T + 1,B,H]  f32            0        4352        2          6
 *   deep_s_a  [B,H]        f32         8448         256        3          5
 *   last_y_a  [B,H]        f32            0         256        7          8  over deep_s
 *   guess     [B,2]        f32          256         128        8          9  over deep_s
 */

typedef struct { size_t z, deep_s, deep_s_a, last_y_a, guess, bytes; } EvalPlan;

static EvalPlan scan_eval_plan(Dims n)
{
    EvalPlan at;
    at.last_y_a = 0;
    at.guess    = at.last_y_a + RT_SIZE(float, n.B*H);
    at.deep_s   = 0;
    at.z        = at.guess + RT_SIZE(float, 2*n.B);
    at.z        = rt_above(at.z, at.deep_s + RT_SIZE(float, n.B*n.T*H + n.B*H));
    at.deep_s_a = at.z + RT_SIZE(float, n.B*n.T*H);
    at.bytes    = at.deep_s_a + RT_SIZE(float, n.B*H);
    return at;
}

/* The arena of the outputs: 8.5 KiB at B = 16, T = 16.
 * Offsets and bytes are those at these sizes; written and last read are steps.
 *
 *   buffer    shape        type      offset       bytes  written  last read
 *   z         [B,T,H]      f32         4352        4096        1          7
 *   deep_s    [T + 1,B,H]  f32            0        4352        2          6
 *   deep_s_a  [B,H]        f32         8448         256        3          5
 *   last_y_a  [B,H]        f32            0         256        7          8  over deep_s
 */

typedef struct { size_t z, deep_s, deep_s_a, last_y_a, bytes; } OutputPlan;

static OutputPlan scan_output_plan(Dims n)
{
    OutputPlan at;
    at.last_y_a = 0;
    at.deep_s   = 0;
    at.z        = at.last_y_a + RT_SIZE(float, n.B*H);
    at.z        = rt_above(at.z, at.deep_s + RT_SIZE(float, n.B*n.T*H + n.B*H));
    at.deep_s_a = at.z + RT_SIZE(float, n.B*n.T*H);
    at.bytes    = at.deep_s_a + RT_SIZE(float, n.B*H);
    return at;
}

/* ---- 4 kernels ---------------------------------------------------------- */

/* One function per kernel, in the order of first use. (+)= : the first write of an update
 * replaces, later ones add. RT_PARALLEL_FOR and RT_SIMD are OpenMP pragmas; sums that
 * threads share are made in fixed chunks and added in order (rt.h), so that the number of
 * threads changes no bit. */

/* z[B,T,H] = x[B,T,D] @ first_weight[H,D]' + first_bias  scan.model:23   matmul+add */
static void k1_z(float *restrict z, const float *restrict x, const float *restrict first_weight,
                 const float *restrict first_bias, ptrdiff_t B, ptrdiff_t T)
{
    const RtMatmul shape = { .m = B*T, .n = H, .k = D, .tb = true, .bias = first_bias };
    rt_matmul_f32(z, x, first_weight, shape);
}

/* deep_s[B,H] = 0                                scan.model:12   copy */
static void k2_deep_s(float *restrict deep_s, ptrdiff_t B)
{
    RT_PARALLEL_SIMD(B*H)
    for (ptrdiff_t i = 0; i < B*H; i++)
        deep_s[i] = 0.0f;
}

/* deep_s_2[B,H] = deep_s[B,H]                    scan.model:12   copy */
static void k3_deep_s_2(float *restrict deep_s_2, const float *restrict deep_s, ptrdiff_t B)
{
    RT_PARALLEL_SIMD(B*H)
    for (ptrdiff_t i = 0; i < B*H; i++)
        deep_s_2[i] = deep_s[i];
}

/* deep_s_a[B,H] = z[B,H] @ deep_step_wx_weight[H,H]' + deep_step_wx_bias
 * scan.model:8   matmul+add */
static void k4_deep_s_a(float *restrict deep_s_a, const float *restrict z,
                        const float *restrict deep_step_wx_weight,
                        const float *restrict deep_step_wx_bias, ptrdiff_t B, ptrdiff_t T)
{
    const RtMatmul shape = { .m = B, .n = H, .k = H, .tb = true, .lda = T*H,
                             .bias = deep_step_wx_bias };
    rt_matmul_f32(deep_s_a, z, deep_step_wx_weight, shape);
}

/* deep_s_a[B,H] += deep_s[B,H] @ deep_step_wh_weight[H,H]'  scan.model:8   matmul */
static void k5_deep_s_a(float *restrict deep_s_a, const float *restrict deep_s,
                        const float *restrict deep_step_wh_weight, ptrdiff_t B)
{
    const RtMatmul shape = { .m = B, .n = H, .k = H, .tb = true, .add = true };
    rt_matmul_f32(deep_s_a, deep_s, deep_step_wh_weight, shape);
}

/* deep_s[B,H] = tanh(deep_s_a)                   scan.model:8   tanh */
static void k6_deep_s_3(float *restrict deep_s, float *restrict deep_s_3,
                        const float *restrict deep_s_a, ptrdiff_t B)
{
    RT_PARALLEL_SIMD(B*H)
    for (ptrdiff_t i = 0; i < B*H; i++) {
        const float a = rt_tanh(deep_s_a[i]);
        deep_s[i] = a;
        deep_s_3[i] = a;
    }
}

/* z[B,T,H] = z[B,T,H] + deep_s[T,B,H]            scan.model:17   add */
static void k7_z(float *z_next, const float *z, const float *restrict deep_s, ptrdiff_t B,
                 ptrdiff_t T)
{
    RT_PARALLEL_FOR(2, B*T*H)
    for (ptrdiff_t ib = 0; ib < B; ib++)
        for (ptrdiff_t it = 0; it < T; it++) {
            RT_SIMD()
            for (int ih = 0; ih < H; ih++)
                z_next[ib*T*H + it*H + ih] = z[ib*T*H + it*H + ih] + deep_s[ib*H + it*B*H + ih];
        }
}

/* last_y_a[B,H] = (sum over T of z[B,T,H]) / T   scan.model:25   sum+div */
static void k8_last_y_a(float *restrict last_y_a, const float *restrict z, ptrdiff_t B,
                        ptrdiff_t T)
{
    RT_PARALLEL_FOR(2, B*T*H)
    for (ptrdiff_t ib = 0; ib < B; ib++)
        for (int ih = 0; ih < H; ih++) {
            float sum = 0;
            RT_SIMD(reduction(+:sum))
            for (ptrdiff_t it = 0; it < T; it++)
                sum += z[ib*T*H + ih + it*H];
            last_y_a[ib*H + ih] = sum / (float)T;
        }
}

/* guess[B,2] = last_y_a[B,H] @ last_weight[2,H]' + last_bias  scan.model:25   matmul+add */
static void k9_guess(float *restrict guess, const float *restrict last_y_a,
                     const float *restrict last_weight, const float *restrict last_bias,
                     ptrdiff_t B)
{
    const RtMatmul shape = { .m = B, .n = 2, .k = H, .tb = true, .bias = last_bias };
    rt_matmul_f32(guess, last_y_a, last_weight, shape);
}

/* loss_a[B,2] = guess - y
 * sum_loss += sum over B,2 of loss_a^2
 * scan.model:26   sub+mul+sum */
static void k10_sum_loss(float *restrict loss_a, double *restrict sum_loss,
                         const float *restrict guess, const float *restrict y, ptrdiff_t B)
{
    const int chunks = rt_chunks(2*B);
    double part_sum_loss[RT_CHUNKS];
    RT_PARALLEL_FOR(1, 2*B)
    for (int chunk = 0; chunk < chunks; chunk++) {
        const ptrdiff_t from = rt_chunk(2*B, chunk, chunks);
        const ptrdiff_t to = rt_chunk(2*B, chunk + 1, chunks);
        double total_sum_loss = 0;
        RT_SIMD(reduction(+:total_sum_loss))
        for (ptrdiff_t i = from; i < to; i++) {
            const float a = guess[i] - y[i];
            loss_a[i] = a;
            total_sum_loss += (double)(a * a);
        }
        part_sum_loss[chunk] = total_sum_loss;
    }
    *sum_loss += rt_sum_chunks(part_sum_loss, chunks);
}

/* sum_loss_b += sum over B,1,H of z[:,T - 1..T,:]^2  scan.model:26   mul+sum */
static void k11_sum_loss_b(double *restrict sum_loss_b, const float *restrict z, ptrdiff_t B,
                           ptrdiff_t T)
{
    const int chunks = rt_chunks(B);
    double part_sum_loss_b[RT_CHUNKS];
    RT_PARALLEL_FOR(1, B*H)
    for (int chunk = 0; chunk < chunks; chunk++) {
        const ptrdiff_t from = rt_chunk(B, chunk, chunks);
        const ptrdiff_t to = rt_chunk(B, chunk + 1, chunks);
        double total_sum_loss_b = 0;
        for (ptrdiff_t ib = from; ib < to; ib++) {
            RT_SIMD(reduction(+:total_sum_loss_b))
            for (int ih = 0; ih < H; ih++) {
                const float a = z[ib*T*H + ih + (T*H - H)];
                total_sum_loss_b += (double)(a * a);
            }
        }
        part_sum_loss_b[chunk] = total_sum_loss_b;
    }
    *sum_loss_b += rt_sum_chunks(part_sum_loss_b, chunks);
}

/* d_guess[B,2] = seed_loss * 2 * loss_a
 * d_last_bias[2] (+)= sum over B of d_guess
 * scan.model:26   gradient of k10, mul+sum */
static void k12_d_guess(float *restrict d_guess, float *restrict d_last_bias, float *restrict work,
                        const float *restrict loss_a, float seed_loss, bool add, ptrdiff_t B)
{
    const float a = seed_loss * 2;
    const int chunks = rt_chunks(B);
    RT_PARALLEL_FOR(1, 2*B)
    for (int chunk = 0; chunk < chunks; chunk++) {
        const ptrdiff_t from = rt_chunk(B, chunk, chunks);
        const ptrdiff_t to = rt_chunk(B, chunk + 1, chunks);
        float *restrict part_d_last_bias = rt_zeros_f32(work + chunk*2, 2);
        for (ptrdiff_t ib = from; ib < to; ib++) {
            RT_SIMD()
            for (int i1 = 0; i1 < 2; i1++) {
                const float b = a * loss_a[ib*2 + i1];
                d_guess[ib*2 + i1] = b;
                part_d_last_bias[i1] += b;
            }
        }
    }
    rt_add_rows_f32(d_last_bias, work, chunks, 2, add);
}

/* d_last_y_a[B,H] = d_guess[B,2] @ last_weight[2,H]  scan.model:25   gradient of k9, matmul */
static void k13_d_last_y_a(float *restrict d_last_y_a, const float *restrict d_guess,
                           const float *restrict last_weight, ptrdiff_t B)
{
    const RtMatmul shape = { .m = B, .n = H, .k = 2 };
    rt_matmul_f32(d_last_y_a, d_guess, last_weight, shape);
}

/* d_last_weight[2,H] (+)= d_guess[B,2]' @ last_y_a[B,H]  scan.model:25   gradient of k9, matmul */
static void k14_d_last_weight(float *restrict d_last_weight, const float *restrict d_guess,
                              const float *restrict last_y_a, bool add, ptrdiff_t B)
{
    const RtMatmul shape = { .m = 2, .n = H, .k = B, .ta = true, .add = add };
    rt_matmul_f32(d_last_weight, d_guess, last_y_a, shape);
}

/* d_z_a[B,H] = d_last_y_a[B,H] / T               scan.model:25   gradient of k9, div */
static void k15_d_z_a(float *d_z_a, const float *d_last_y_a, ptrdiff_t B, ptrdiff_t T)
{
    RT_PARALLEL_SIMD(B*H)
    for (ptrdiff_t i = 0; i < B*H; i++)
        d_z_a[i] = d_last_y_a[i] / (float)T;
}

/* d_z[B,T,H] = pad(seed_loss_b * 2 * z[:,T - 1..T,:]) + d_z_a[B,H]
 * scan.model:26   gradient of k11, le+mul+where+add */
static void k16_d_z(float *restrict d_z, const float *restrict z, const float *restrict d_z_a,
                    float seed_loss_b, ptrdiff_t B, ptrdiff_t T)
{
    const float a = seed_loss_b * 2;
    RT_PARALLEL_FOR(2, B*T*H)
    for (ptrdiff_t ib = 0; ib < B; ib++)
        for (ptrdiff_t it = 0; it < T; it++) {
            const bool b = (int32_t)(T - 1) <= (int32_t)it;
            RT_SIMD()
            for (int ih = 0; ih < H; ih++)
                d_z[ib*T*H + it*H + ih] = (b ? a * (b ? z[ib*T*H + ih + (T*H - H)] : 0.0f) : 0.0f) +
                        d_z_a[ib*H + ih];
        }
}

/* d_deep_s[B,H] = 0                              scan.model:13   copy */
static void k17_d_deep_s(float *restrict d_deep_s, ptrdiff_t B)
{
    RT_PARALLEL_SIMD(B*H)
    for (ptrdiff_t i = 0; i < B*H; i++)
        d_deep_s[i] = 0.0f;
}

/* d_deep_step_wh_y[B,H] = d_deep_s * (1 - deep_s_3^2)
 * d_deep_step_wx_bias[H] (+)= sum over B of d_deep_step_wh_y
 * where d_deep_s = d_deep_s + d_z
 * scan.model:8   gradient of k6, add+mul+sub+sum */
static void k18_d_deep_step_wh_y(float *restrict d_deep_step_wh_y,
                                 float *restrict d_deep_step_wx_bias, float *restrict work,
                                 const float *restrict d_deep_s, const float *restrict d_z,
                                 const float *restrict deep_s_3, bool add_later, ptrdiff_t B,
                                 ptrdiff_t T)
{
    const int chunks = rt_chunks(B);
    RT_PARALLEL_FOR(1, B*H)
    for (int chunk = 0; chunk < chunks; chunk++) {
        const ptrdiff_t from = rt_chunk(B, chunk, chunks);
        const ptrdiff_t to = rt_chunk(B, chunk + 1, chunks);
        float *restrict part_d_deep_step_wx_bias = rt_zeros_f32(work + chunk*H, H);
        for (ptrdiff_t ib = from; ib < to; ib++) {
            RT_SIMD()
            for (int ih = 0; ih < H; ih++) {
                const float deep_s = deep_s_3[ib*H + ih];
                const float a = (d_deep_s[ib*H + ih] + d_z[ib*T*H + ih]) * (1 - deep_s * deep_s);
                d_deep_step_wh_y[ib*H + ih] = a;
                part_d_deep_step_wx_bias[ih] += a;
            }
        }
    }
    rt_add_rows_f32(d_deep_step_wx_bias, work, chunks, H, add_later);
}

/* d_deep_s[B,H] = d_deep_step_wh_y[B,H] @ deep_step_wh_weight[H,H]
 * scan.model:8   gradient of k6, matmul */
static void k19_d_deep_s(float *restrict d_deep_s, const float *restrict d_deep_step_wh_y,
                         const float *restrict deep_step_wh_weight, ptrdiff_t B)
{
    const RtMatmul shape = { .m = B, .n = H, .k = H };
    rt_matmul_f32(d_deep_s, d_deep_step_wh_y, deep_step_wh_weight, shape);
}

/* d_deep_step_wh_weight[H,H] (+)= d_deep_step_wh_y[B,H]' @ deep_s_2[B,H]
 * scan.model:8   gradient of k6, matmul */
static void k20_d_deep_step_wh_weight(float *restrict d_deep_step_wh_weight,
                                      const float *restrict d_deep_step_wh_y,
                                      const float *restrict deep_s_2, bool add_later, ptrdiff_t B)
{
    const RtMatmul shape = { .m = H, .n = H, .k = B, .ta = true, .add = add_later };
    rt_matmul_f32(d_deep_step_wh_weight, d_deep_step_wh_y, deep_s_2, shape);
}

/* d_deep_xt[B,H] = d_deep_step_wh_y[B,H] @ deep_step_wx_weight[H,H]
 * scan.model:8   gradient of k5, matmul */
static void k21_d_deep_xt(float *restrict d_deep_xt, const float *restrict d_deep_step_wh_y,
                          const float *restrict deep_step_wx_weight, ptrdiff_t B)
{
    const RtMatmul shape = { .m = B, .n = H, .k = H };
    rt_matmul_f32(d_deep_xt, d_deep_step_wh_y, deep_step_wx_weight, shape);
}

/* d_deep_step_wx_weight[H,H] (+)= d_deep_step_wh_y[B,H]' @ z[B,H]
 * scan.model:8   gradient of k5, matmul */
static void k22_d_deep_step_wx_weight(float *restrict d_deep_step_wx_weight,
                                      const float *restrict d_deep_step_wh_y,
                                      const float *restrict z, bool add_later, ptrdiff_t B,
                                      ptrdiff_t T)
{
    const RtMatmul shape = { .m = H, .n = H, .k = B, .ta = true, .ldb = T*H, .add = add_later };
    rt_matmul_f32(d_deep_step_wx_weight, d_deep_step_wh_y, z, shape);
}

/* d_z[B,T,H] = d_z[B,T,H] + d_deep_xt[T,B,H]     scan.model:23   gradient of k1, add */
static void k23_d_z(float *restrict d_z, const float *restrict d_deep_xt, ptrdiff_t B, ptrdiff_t T)
{
    RT_PARALLEL_FOR(2, B*T*H)
    for (ptrdiff_t ib = 0; ib < B; ib++)
        for (ptrdiff_t it = 0; it < T; it++) {
            RT_SIMD()
            for (int ih = 0; ih < H; ih++)
                d_z[ib*T*H + it*H + ih] = d_z[ib*T*H + it*H + ih] + d_deep_xt[ib*H + it*B*H + ih];
        }
}

/* d_first_bias[H] (+)= sum over B,T of d_z[B,T,H]  scan.model:23   gradient of k1, sum */
static void k24_d_first_bias(float *restrict d_first_bias, const float *restrict d_z, bool add,
                             ptrdiff_t B, ptrdiff_t T)
{
    RT_PARALLEL_FOR(1, B*T*H)
    for (int block = 0; block < H; block += RT_COLUMNS) {
        const int end = rt_min(block + RT_COLUMNS, H);
        float sum[RT_COLUMNS] = { 0 };
        for (ptrdiff_t i = 0; i < B*T; i++) {
            RT_SIMD()
            for (int ih = block; ih < end; ih++)
                sum[ih - block] += d_z[i*H + ih];
        }
        RT_SIMD()
        for (int ih = block; ih < end; ih++)
            d_first_bias[ih] = add ? d_first_bias[ih] + sum[ih - block] : sum[ih - block];
    }
}

/* d_first_weight[H,D] (+)= d_z[B,T,H]' @ x[B,T,D]  scan.model:23   gradient of k1, matmul */
static void k25_d_first_weight(float *restrict d_first_weight, const float *restrict d_z,
                               const float *restrict x, bool add, ptrdiff_t B, ptrdiff_t T)
{
    const RtMatmul shape = { .m = H, .n = D, .k = B*T, .ta = true, .add = add };
    rt_matmul_f32(d_first_weight, d_z, x, shape);
}

/* deep_s[B,H] = tanh(deep_s_a[B,H])              scan.model:8   tanh */
static void k26_deep_s(float *restrict deep_s, const float *restrict deep_s_a, ptrdiff_t B)
{
    RT_PARALLEL_SIMD(B*H)
    for (ptrdiff_t i = 0; i < B*H; i++)
        deep_s[i] = rt_tanh(deep_s_a[i]);
}

/* z[B,T,H] = z[B,T,H] + deep_s[T,B,H]            scan.model:17   add */
static void k27_z(float *restrict z, const float *restrict deep_s, ptrdiff_t B, ptrdiff_t T)
{
    RT_PARALLEL_FOR(2, B*T*H)
    for (ptrdiff_t ib = 0; ib < B; ib++)
        for (ptrdiff_t it = 0; it < T; it++) {
            RT_SIMD()
            for (int ih = 0; ih < H; ih++)
                z[ib*T*H + it*H + ih] = z[ib*T*H + it*H + ih] + deep_s[ib*H + it*B*H + ih];
        }
}

/* sum_loss += sum over B,2 of (guess[B,2] - y[B,2])^2  scan.model:26   sub+mul+sum */
static void k28_sum_loss(double *restrict sum_loss, const float *restrict guess,
                         const float *restrict y, ptrdiff_t B)
{
    const int chunks = rt_chunks(2*B);
    double part_sum_loss[RT_CHUNKS];
    RT_PARALLEL_FOR(1, 2*B)
    for (int chunk = 0; chunk < chunks; chunk++) {
        const ptrdiff_t from = rt_chunk(2*B, chunk, chunks);
        const ptrdiff_t to = rt_chunk(2*B, chunk + 1, chunks);
        double total_sum_loss = 0;
        RT_SIMD(reduction(+:total_sum_loss))
        for (ptrdiff_t i = from; i < to; i++) {
            const float a = guess[i] - y[i];
            total_sum_loss += (double)(a * a);
        }
        part_sum_loss[chunk] = total_sum_loss;
    }
    *sum_loss += rt_sum_chunks(part_sum_loss, chunks);
}

/* ---- 5 forward ---------------------------------------------------------- */

enum {                                  /* means over the data: places in RtStep */
    S_loss = 0,                         /* mean((guess - y)^2)  scan.model:26 */
    S_loss_b = 1,                       /* mean(z[:, -1]^2)  scan.model:26 */
};

/* what the means divide by, over one micro-step */
static void scan_count(RtStep *s, Dims n)
{
    s->count[S_loss] += (double)(2*n.B);    /* mean((guess - y)^2)  scan.model:26 */
    s->count[S_loss_b] += (double)(n.B*H);  /* mean(z[:, -1]^2)  scan.model:26 */
}

/* one repetition of scan, forward */
static void scan_forward_2(const float *p, void *arena, const Plan *at, Dims n, int il,
                           ptrdiff_t it)
{
    float *deep_s = (float *)RT_AT(arena, at->deep_s) + it*n.B*H;      /* [B,H] */
    float *deep_s_2 = (float *)RT_AT(arena, at->deep_s_2) + il*n.B*n.T*H + it*n.B*H; /* [B,H] */
    float *deep_s_a = RT_AT(arena, at->deep_s_a);                      /* [B,H] */
    float *z = (float *)RT_AT(arena, at->z) + il*n.B*n.T*H + it*H;     /* [T,H] */
    const float *p_deep = p + P_deep + il*P_deep_STRIDE;               /* this repetition of deep */
    float *deep_s_3 = (float *)RT_AT(arena, at->deep_s_3) + il*n.B*n.T*H + it*n.B*H; /* [B,H] */

    /* 3    scan.model:12  s = zeros([B, H]) */
    k3_deep_s_2(deep_s_2, deep_s, n.B);
    /* 4    scan.model:8  return tanh(wx(x) + wh(h)) */
    k4_deep_s_a(deep_s_a, z, p_deep + P_deep_step_wx_weight, p_deep + P_deep_step_wx_bias, n.B,
                n.T);
    /* 5    scan.model:8  return tanh(wx(x) + wh(h)) */
    k5_deep_s_a(deep_s_a, deep_s, p_deep + P_deep_step_wh_weight, n.B);
    /* 6    scan.model:8  return tanh(wx(x) + wh(h)) */
    k6_deep_s_3(deep_s + n.B*H, deep_s_3, deep_s_a, n.B);
}

/* one repetition of deep, forward */
static void pass_forward(const float *p, void *arena, const Plan *at, Dims n, int il)
{
    float *deep_s = RT_AT(arena, at->deep_s);               /* [T + 1,B,H] */
    float *z = (float *)RT_AT(arena, at->z) + il*n.B*n.T*H; /* [B,T,H] */

    /* 2    scan.model:12  s = zeros([B, H]) */
    k2_deep_s(deep_s, n.B);
    /* 3..6  scan.model:13  ys = for xt in x along T { */
    for (ptrdiff_t it = 0; it < n.T; it++)
        scan_forward_2(p, arena, at, n, il, it);
    /* 7    scan.model:17  return x + ys */
    k7_z(z + n.B*n.T*H, z, deep_s + n.B*H, n.B, n.T);
}

/* training: fills the arena and adds to the sums */
static void scan_forward(const float *p, const float *x, const float *y, void *arena, RtStep *s,
                         Dims n)
{
    const Plan at = scan_plan(n);
    float *z = RT_AT(arena, at.z);               /* [L + 1,B,T,H] */
    float *last_y_a = RT_AT(arena, at.last_y_a); /* [B,H] */
    float *guess = RT_AT(arena, at.guess);       /* [B,2] */
    float *loss_a = RT_AT(arena, at.loss_a);     /* [B,2] */

    /* 1    scan.model:23  z = first(x) */
    k1_z(z, x, p + P_first_weight, p + P_first_bias, n.B, n.T);
    /* 2..7  scan.model:24  for i in 0..L { z = deep[i](z) } */
    for (int il = 0; il < L; il++)
        pass_forward(p, arena, &at, n, il);
    /* 8    scan.model:25  output guess = last(mean(z, over: T)) */
    k8_last_y_a(last_y_a, z + n.B*n.T*H*L, n.B, n.T);
    /* 9    scan.model:25  output guess = last(mean(z, over: T)) */
    k9_guess(guess, last_y_a, p + P_last_weight, p + P_last_bias, n.B);
    /* 10   scan.model:26  loss = mean((guess - y)^2) + 0.1 * mean(z[:, -1]^2) */
    k10_sum_loss(loss_a, &s->sum[S_loss], guess, y, n.B);
    /* 11   scan.model:26  loss = mean((guess - y)^2) + 0.1 * mean(z[:, -1]^2) */
    k11_sum_loss_b(&s->sum[S_loss_b], z + n.B*n.T*H*L, n.B, n.T);
}

/* one repetition of scan, evaluate */
static void scan_evaluate_2(const float *p, void *arena, const EvalPlan *at, Dims n, int il,
                            ptrdiff_t it)
{
    float *deep_s_a = RT_AT(arena, at->deep_s_a);                 /* [B,H] */
    float *z = (float *)RT_AT(arena, at->z) + it*H;               /* [T,H] */
    const float *p_deep = p + P_deep + il*P_deep_STRIDE;          /* this repetition of deep */
    float *deep_s = (float *)RT_AT(arena, at->deep_s) + it*n.B*H; /* [B,H] */

    /* 3    scan.model:8  return tanh(wx(x) + wh(h)) */
    k4_deep_s_a(deep_s_a, z, p_deep + P_deep_step_wx_weight, p_deep + P_deep_step_wx_bias, n.B,
                n.T);
    /* 4    scan.model:8  return tanh(wx(x) + wh(h)) */
    k5_deep_s_a(deep_s_a, deep_s, p_deep + P_deep_step_wh_weight, n.B);
    /* 5    scan.model:8  return tanh(wx(x) + wh(h)) */
    k26_deep_s(deep_s + n.B*H, deep_s_a, n.B);
}

/* one repetition of deep, evaluate */
static void pass_evaluate(const float *p, void *arena, const EvalPlan *at, Dims n, int il)
{
    float *deep_s = RT_AT(arena, at->deep_s);   /* [T + 1,B,H] */
    float *z = RT_AT(arena, at->z);             /* [B,T,H] */

    /* 2    scan.model:12  s = zeros([B, H]) */
    k2_deep_s(deep_s, n.B);
    /* 3..5  scan.model:13  ys = for xt in x along T { */
    for (ptrdiff_t it = 0; it < n.T; it++)
        scan_evaluate_2(p, arena, at, n, il, it);
    /* 6    scan.model:17  return x + ys */
    k27_z(z, deep_s + n.B*H, n.B, n.T);
}

/* evaluation: adds to the sums */
static void scan_evaluate(const float *p, const float *x, const float *y, void *arena, RtStep *s,
                          Dims n)
{
    const EvalPlan at = scan_eval_plan(n);
    float *z = RT_AT(arena, at.z);               /* [B,T,H] */
    float *last_y_a = RT_AT(arena, at.last_y_a); /* [B,H] */
    float *guess = RT_AT(arena, at.guess);       /* [B,2] */

    /* 1    scan.model:23  z = first(x) */
    k1_z(z, x, p + P_first_weight, p + P_first_bias, n.B, n.T);
    /* 2..6  scan.model:24  for i in 0..L { z = deep[i](z) } */
    for (int il = 0; il < L; il++)
        pass_evaluate(p, arena, &at, n, il);
    /* 7    scan.model:25  output guess = last(mean(z, over: T)) */
    k8_last_y_a(last_y_a, z, n.B, n.T);
    /* 8    scan.model:25  output guess = last(mean(z, over: T)) */
    k9_guess(guess, last_y_a, p + P_last_weight, p + P_last_bias, n.B);
    /* 9    scan.model:26  loss = mean((guess - y)^2) + 0.1 * mean(z[:, -1]^2) */
    k28_sum_loss(&s->sum[S_loss], guess, y, n.B);
    /* 10   scan.model:26  loss = mean((guess - y)^2) + 0.1 * mean(z[:, -1]^2) */
    k11_sum_loss_b(&s->sum[S_loss_b], z, n.B, n.T);
}

/* one repetition of scan, outputs */
static void scan_outputs_2(const float *p, void *arena, const OutputPlan *at, Dims n, int il,
                           ptrdiff_t it)
{
    float *deep_s_a = RT_AT(arena, at->deep_s_a);                 /* [B,H] */
    float *z = (float *)RT_AT(arena, at->z) + it*H;               /* [T,H] */
    const float *p_deep = p + P_deep + il*P_deep_STRIDE;          /* this repetition of deep */
    float *deep_s = (float *)RT_AT(arena, at->deep_s) + it*n.B*H; /* [B,H] */

    /* 3    scan.model:8  return tanh(wx(x) + wh(h)) */
    k4_deep_s_a(deep_s_a, z, p_deep + P_deep_step_wx_weight, p_deep + P_deep_step_wx_bias, n.B,
                n.T);
    /* 4    scan.model:8  return tanh(wx(x) + wh(h)) */
    k5_deep_s_a(deep_s_a, deep_s, p_deep + P_deep_step_wh_weight, n.B);
    /* 5    scan.model:8  return tanh(wx(x) + wh(h)) */
    k26_deep_s(deep_s + n.B*H, deep_s_a, n.B);
}

/* one repetition of deep, outputs */
static void pass_outputs(const float *p, void *arena, const OutputPlan *at, Dims n, int il)
{
    float *deep_s = RT_AT(arena, at->deep_s);   /* [T + 1,B,H] */
    float *z = RT_AT(arena, at->z);             /* [B,T,H] */

    /* 2    scan.model:12  s = zeros([B, H]) */
    k2_deep_s(deep_s, n.B);
    /* 3..5  scan.model:13  ys = for xt in x along T { */
    for (ptrdiff_t it = 0; it < n.T; it++)
        scan_outputs_2(p, arena, at, n, il, it);
    /* 6    scan.model:17  return x + ys */
    k27_z(z, deep_s + n.B*H, n.B, n.T);
}

/* the outputs, for given inputs */
static void scan_outputs(const float *p, const float *x, float *guess, void *arena, Dims n)
{
    const OutputPlan at = scan_output_plan(n);
    float *z = RT_AT(arena, at.z);               /* [B,T,H] */
    float *last_y_a = RT_AT(arena, at.last_y_a); /* [B,H] */

    /* 1    scan.model:23  z = first(x) */
    k1_z(z, x, p + P_first_weight, p + P_first_bias, n.B, n.T);
    /* 2..6  scan.model:24  for i in 0..L { z = deep[i](z) } */
    for (int il = 0; il < L; il++)
        pass_outputs(p, arena, &at, n, il);
    /* 7    scan.model:25  output guess = last(mean(z, over: T)) */
    k8_last_y_a(last_y_a, z, n.B, n.T);
    /* 8    scan.model:25  output guess = last(mean(z, over: T)) */
    k9_guess(guess, last_y_a, p + P_last_weight, p + P_last_bias, n.B);
}

/* ---- 6 backward: each step undoes a step of section 5 ------------------- */

/* one repetition of scan, backward */
static void scan_backward_2(const float *p, float *d_p, void *arena, const Plan *at,
                            const RtStep *s, Dims n, int il, ptrdiff_t it)
{
    float *d_deep_s = RT_AT(arena, at->d_deep_s);                      /* [B,H] */
    float *d_z = (float *)RT_AT(arena, at->d_z) + it*H;                /* [T,H] */
    float *deep_s_3 = (float *)RT_AT(arena, at->deep_s_3) + il*n.B*n.T*H + it*n.B*H; /* [B,H] */
    float *d_deep_step_wh_y = RT_AT(arena, at->d_deep_step_wh_y);      /* [B,H] */
    float *d_p_deep = d_p + P_deep + il*P_deep_STRIDE;                 /* this repetition of deep */
    float *work_d_deep_step_wh_y = RT_AT(arena, at->work_d_deep_step_wh_y); /* [64,H] */
    const float *p_deep = p + P_deep + il*P_deep_STRIDE;               /* this repetition of deep */
    float *deep_s_2 = (float *)RT_AT(arena, at->deep_s_2) + il*n.B*n.T*H + it*n.B*H; /* [B,H] */
    float *d_deep_xt = (float *)RT_AT(arena, at->d_deep_xt) + it*n.B*H; /* [B,H] */
    float *z = (float *)RT_AT(arena, at->z) + il*n.B*n.T*H + it*H;     /* [T,H] */

    /* 18   undoes 6    scan.model:8  d_deep_step_wh_y[B,H] = d_deep_s * (1 - deep_s_3^2) */
    k18_d_deep_step_wh_y(d_deep_step_wh_y, d_p_deep + P_deep_step_wx_bias, work_d_deep_step_wh_y,
                         d_deep_s, d_z, deep_s_3, s->add || it < n.T - 1, n.B, n.T);
    /* 19   undoes 6    scan.model:8  d_deep_s[B,H] = d_deep_step_wh_y @ deep_step_wh_weight */
    k19_d_deep_s(d_deep_s, d_deep_step_wh_y, p_deep + P_deep_step_wh_weight, n.B);
    /* 20   undoes 6    scan.model:8  d_deep_step_wh_weight */
    k20_d_deep_step_wh_weight(d_p_deep + P_deep_step_wh_weight, d_deep_step_wh_y, deep_s_2,
                              s->add || it < n.T - 1, n.B);
    /* 21   undoes 5    scan.model:8  d_deep_xt[B,H] = d_deep_step_wh_y @ deep_step_wx_weight */
    k21_d_deep_xt(d_deep_xt, d_deep_step_wh_y, p_deep + P_deep_step_wx_weight, n.B);
    /* 22   undoes 5    scan.model:8  d_deep_step_wx_weight[H,H] (+)= d_deep_step_wh_y' @ z */
    k22_d_deep_step_wx_weight(d_p_deep + P_deep_step_wx_weight, d_deep_step_wh_y, z,
                              s->add || it < n.T - 1, n.B, n.T);
}

/* one repetition of deep, backward */
static void pass_backward(const float *p, float *d_p, void *arena, const Plan *at, const RtStep *s,
                          Dims n, int il)
{
    float *d_deep_s = RT_AT(arena, at->d_deep_s);   /* [B,H] */
    float *d_z = RT_AT(arena, at->d_z);             /* [B,T,H] */
    float *d_deep_xt = RT_AT(arena, at->d_deep_xt); /* [T,B,H] */

    /* 17   scan.model:13  d_deep_s[B,H] = 0 */
    k17_d_deep_s(d_deep_s, n.B);
    /* 18..22  scan.model:13  ys = for xt in x along T { */
    for (ptrdiff_t it = n.T - 1; it >= 0; it--)
        scan_backward_2(p, d_p, arena, at, s, n, il, it);
    /* 23   undoes 1    scan.model:23  d_z[B,T,H] = d_z + d_deep_xt */
    k23_d_z(d_z, d_deep_xt, n.B, n.T);
}

/* gradients: the first write of an update replaces, later ones add */
static void scan_backward(const float *p, float *d_p, const float *x, void *arena, const RtStep *s,
                          Dims n)
{
    const Plan at = scan_plan(n);
    float *loss_a = RT_AT(arena, at.loss_a);             /* [B,2] */
    float *d_guess = RT_AT(arena, at.d_guess);           /* [B,2] */
    float *work_d_guess = RT_AT(arena, at.work_d_guess); /* [64,2] */
    float *d_last_y_a = RT_AT(arena, at.d_last_y_a);     /* [B,H] */
    float *last_y_a = RT_AT(arena, at.last_y_a);         /* [B,H] */
    float *d_z_a = RT_AT(arena, at.d_z_a);               /* [B,H] */
    float *z = RT_AT(arena, at.z);                       /* [L + 1,B,T,H] */
    float *d_z = RT_AT(arena, at.d_z);                   /* [B,T,H] */

    /* 12   undoes 10   scan.model:26  d_guess[B,2] = seed_loss * 2 * loss_a */
    k12_d_guess(d_guess, d_p + P_last_bias, work_d_guess, loss_a, (float)s->seed[S_loss], s->add,
                n.B);
    /* 13   undoes 9    scan.model:25  d_last_y_a[B,H] = d_guess @ last_weight */
    k13_d_last_y_a(d_last_y_a, d_guess, p + P_last_weight, n.B);
    /* 14   undoes 9    scan.model:25  d_last_weight[2,H] (+)= d_guess' @ last_y_a */
    k14_d_last_weight(d_p + P_last_weight, d_guess, last_y_a, s->add, n.B);
    /* 15   undoes 9    scan.model:25  d_z_a[B,H] = d_last_y_a / T */
    k15_d_z_a(d_z_a, d_last_y_a, n.B, n.T);
    /* 16   undoes 11   scan.model:26  d_z */
    k16_d_z(d_z, z + n.B*n.T*H*L, d_z_a, (float)s->seed[S_loss_b], n.B, n.T);
    /* 17..23  scan.model:24  for i in 0..L { z = deep[i](z) } */
    for (int il = L - 1; il >= 0; il--)
        pass_backward(p, d_p, arena, &at, s, n, il);
    /* 24   undoes 1    scan.model:23  d_first_bias[H] (+)= sum over B,T of d_z */
    k24_d_first_bias(d_p + P_first_bias, d_z, s->add, n.B, n.T);
    /* 25   undoes 1    scan.model:23  d_first_weight[H,D] (+)= d_z' @ x */
    k25_d_first_weight(d_p + P_first_weight, d_z, x, s->add, n.B, n.T);
}

/* ---- 7 step: one update of the parameters ------------------------------- */

static Dims scan_dims(const ptrdiff_t *dims)
{
    return (Dims){ .B = dims[0], .T = dims[1] };
}

static void scan_step(RtRun *run, RtStep *s)
{
    rt_begin_step(run, s);                    /* sums and counts are 0; generator key, rate */
    for (int micro = 0; micro < run->micro_steps; micro++) {
        rt_begin_micro(run, s, micro);        /* sizes, inputs, first sample */
        const Dims n = scan_dims(run->dims);
        scan_count(s, n);
    }
    rt_seed_losses(run, s);                   /* weight / count of all ranks; 0 if the count is 0 */

    for (int micro = 0; micro < run->micro_steps; micro++) {
        rt_begin_micro(run, s, micro);
        const Dims n = scan_dims(run->dims);
        const float *x = run->inputs[0];
        const float *y = run->inputs[1];
        scan_forward(run->p, x, y, run->arena, s, n);
        scan_backward(run->p, run->d_p, x, run->arena, s, n);
        s->add = true;                        /* later micro-steps add */
    }
    rt_reduce_gradients(run, s);              /* sum over ranks */
    rt_finite_and_norm(run, s);               /* are all finite? global norm */
    rt_update_adamw(run, s);                  /* Adam with decoupled decay, if finite */
    rt_end_step(run, s);                      /* counters and schedule, if applied */
}

static void scan_run_evaluate(RtRun *run, RtStep *s)
{
    const Dims n = scan_dims(run->dims);
    const float *x = run->inputs[0];
    const float *y = run->inputs[1];
    scan_count(s, n);
    scan_evaluate(run->p, x, y, run->arena, s, n);
}

static void scan_run_outputs(RtRun *run, RtStep *s)
{
    RT_UNUSED(s);
    const Dims n = scan_dims(run->dims);
    const float *x = run->inputs[0];
    scan_outputs(run->p, x, run->outputs[0], run->arena, n);
}

/* ---- 8 model table ------------------------------------------------------ */

static const RtDim scan_sizes[] = {
    { .name = "B", .batch = true, .value = 0, .where = "scan.model:3" },
    { .name = "T", .batch = false, .value = 0, .where = "scan.model:4" },
};

static const RtInput scan_inputs[] = {
    { .name = "x", .type = RT_F32, .rank = 3, .where = "scan.model:19" },
    { .name = "y", .type = RT_F32, .rank = 2, .where = "scan.model:19" },
};

static const RtOutput scan_output_table[] = {
    { .name = "guess", .rank = 2, .needs = 0x1, .where = "scan.model:25" },
};

static const RtSlot scan_means[] = {
    { .name = "loss", .text = "mean((guess - y)^2)",
      .weight = 1.0, .where = "scan.model:26" },
    { .name = "loss_b", .text = "mean(z[:, -1]^2)",
      .weight = 0.1, .where = "scan.model:26" },
};

static const RtObjective scan_objectives[] = {
    { .loss = "loss", .from = 0, .to = P_COUNT, .optimizer = RT_ADAMW, .where = "scan.model:26" },
};

static const char *scan_check_dims(const ptrdiff_t *dims)
{
    const Dims n = scan_dims(dims);
    if (!(n.T <= 8))
        return "T <= 8 (scan.model:4)";
    return NULL;
}

static void scan_input_shape(const ptrdiff_t *dims, int input, ptrdiff_t *shape)
{
    const Dims n = scan_dims(dims);
    switch (input) {
    case 0:
        shape[0] = n.B;
        shape[1] = n.T;
        shape[2] = D;
        break;
    case 1:
        shape[0] = n.B;
        shape[1] = 2;
        break;
    default:
        break;
    }
}

static void scan_output_shape(const ptrdiff_t *dims, int output, ptrdiff_t *shape)
{
    const Dims n = scan_dims(dims);
    switch (output) {
    case 0:
        shape[0] = n.B;
        shape[1] = 2;
        break;
    default:
        break;
    }
}

static size_t scan_arena_bytes(const ptrdiff_t *dims, RtEntry entry)
{
    const Dims n = scan_dims(dims);
    if (entry == RT_ENTRY_TRAIN)
        return scan_plan(n).bytes;
    if (entry == RT_ENTRY_EVAL)
        return scan_eval_plan(n).bytes;
    if (entry == RT_ENTRY_OUTPUT)
        return scan_output_plan(n).bytes;
    return 0;
}

const RtModel scan = {
    .name = "scan",
    .source = "scan.model", .source_crc = 0x5ce82c0cu,
    .real = RT_F32,
    .dims = scan_sizes, .n_dims = 2,
    .params = scan_params, .n_params = 7, .n_elems = P_COUNT,
    .inputs = scan_inputs, .n_inputs = 2,
    .outputs = scan_output_table, .n_outputs = 1,
    .slots = scan_means, .n_slots = 2,
    .objectives = scan_objectives, .n_objectives = 1,
    .train = {
        .reader = NULL, .path = NULL, .val_path = NULL,
        .split = 1.0, .header = false, .vocab = NULL,
        .batch = 32, .accumulate = 1,
        .optimizer = RT_ADAMW, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-08,
        .momentum = 0.0, .nesterov = false, .weight_decay = 0.01,
        .schedule = RT_CONSTANT, .lr = 0.001, .lr_end = 0.001,
        .warmup = 0, .decay_steps = 0,
        .clip = 0.0, .steps = 1000, .eval_every = 0, .save_every = 0,
        .log_every = 10, .keep = 3, .seed = 1u, .out = NULL,
        .where = "",
    },
    .check_dims = scan_check_dims,
    .input_shape = scan_input_shape,
    .output_shape = scan_output_shape,
    .arena_bytes = scan_arena_bytes,
    .step = scan_step,
    .evaluate = scan_run_evaluate,
    .forward = scan_run_outputs,
};

#ifndef RT_LIBRARY
int main(int argc, char **argv)
{
    return rt_main(&scan, argc, argv);
}
#endif
