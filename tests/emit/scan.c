/* scan.c -- generated from scan.model by gradcc 0.1.
 * Do not edit: edit the model.
 *
 * command   gradcc --emit=c scan.model
 * source    scan.model, 15 lines, crc32 3f035e97
 * contents  1 dimensions  2 parameters  3 memory map  4 kernels
 *           5 forward     6 backward    7 step        8 model table
 * size      32 parameters; arena 9.8 KiB at B = 16, T = 16, fullest at step 8 of 11
 */
#include "rt.h"

/* ---- 1 dimensions ------------------------------------------------------- */

enum {                                  /* fixed when the model was compiled */
    D = 3,                              /* input width  scan.model:2 */
    H = 4,                              /* state width  scan.model:2 */
};

typedef struct {                        /* known when the program starts */
    ptrdiff_t B;                        /* samples in a micro-step  scan.model:3 */
    ptrdiff_t T;                        /* points in time           scan.model:4 */
} Dims;

/* ---- 2 parameters ------------------------------------------------------- */

/* One flat buffer. A name is the path of declarations that leads to a parameter; layers
 * that the model's file does not show, such as linear and mlp, are those of prelude.model.
 * A linear layer stores [out,in] unless it is declared transposed: it is x @ w'. */

enum {                                  /* first element in the flat buffer */
    P_wx_weight = 0,                    /* [H,D]          scan.model:7 */
    P_wx_bias = P_wx_weight + D*H,      /* [H]            scan.model:7 */
    P_wh_weight = P_wx_bias + H,        /* [H,H]          scan.model:8 */
    P_COUNT = P_wh_weight + H*H,
};

static const RtParam scan_params[] = {
    { .path = "wx.weight", .role = RT_WEIGHT, .decay = true, .rank = 2, .shape = { H, D },
      .at = P_wx_weight, .ready = 11, .init = { RT_UNIFORM, 0.5773502691896258 },
      .where = "scan.model:7" },
    { .path = "wx.bias", .role = RT_BIAS, .decay = false, .rank = 1, .shape = { H },
      .at = P_wx_bias, .ready = 11, .init = { RT_ZEROS, 0.0 }, .where = "scan.model:7" },
    { .path = "wh.weight", .role = RT_WEIGHT, .decay = true, .rank = 2, .shape = { H, H },
      .at = P_wh_weight, .ready = 11, .init = { RT_UNIFORM, 0.5 }, .where = "scan.model:8" },
};

/* ---- 3 memory map ------------------------------------------------------- */

/* One arena holds what a numbered step of sections 5 and 6 leaves for later ones. Values
 * that are not needed at the same time share bytes: 'over' lists what was there before, 'in
 * place of' means that a step replaces its input. work_* hold partial sums while a step
 * runs. Sizes are known when the program starts, so offsets are formulas: a buffer lies
 * above all that are needed while it is. RT_SIZE rounds up to RT_ALIGN bytes, and
 * rt_above(a, b) is the higher one. */

/* The arena of a training step: 9.8 KiB at B = 16, T = 16.
 * Offsets and bytes are those at these sizes; written and last read are numbers of
 * steps (sections 5 and 6).
 *
 *   buffer       shape          type      offset       bytes  written  last read
 *   d_s          [B,H]          f32         9472         256        1          8
 *   s            [T + 1,B,H]    f32            0        4352        2         10
 *   s_a          [B,H]          f32         4352         256        3          5
 *   loss_a       [B,T,H]        f32         4352        4096        6          7
 *       over s_a
 *   d_states     [B,T,H]        f32         4352        4096        7          8
 *       in place of loss_a
 *   d_wh_y       [B,H]          f32         9728         256        8         11
 *   work_d_wh_y  [RT_CHUNKS,H]  f32         8448        1024        8          8
 */

typedef struct { size_t d_s, s_, s_a, loss_a, d_states, d_wh_y, work_d_wh_y, bytes; } Plan;

static Plan scan_plan(Dims n)
{
    Plan at;
    at.s_          = 0;
    at.loss_a      = at.s_ + RT_SIZE(float, n.B*n.T*H + n.B*H);
    at.work_d_wh_y = at.loss_a + RT_SIZE(float, n.B*n.T*H);
    at.s_a         = at.s_ + RT_SIZE(float, n.B*n.T*H + n.B*H);
    at.d_s         = at.work_d_wh_y + RT_SIZE(float, RT_CHUNKS*H);
    at.d_s         = rt_above(at.d_s, at.s_a + RT_SIZE(float, n.B*H));
    at.d_states    = at.loss_a;
    at.d_wh_y      = at.d_s + RT_SIZE(float, n.B*H);
    at.bytes       = at.d_wh_y + RT_SIZE(float, n.B*H);
    return at;
}

/* The arena of an evaluation: 4.5 KiB at B = 16, T = 16.
 * Offsets and bytes are those at these sizes; written and last read are numbers of
 * steps (section 5).
 *
 *   buffer  shape        type      offset       bytes  written  last read
 *   s       [T + 1,B,H]  f32            0        4352        1          5
 *   s_a     [B,H]        f32         4352         256        2          4
 */

typedef struct { size_t s_, s_a, bytes; } EvalPlan;

static EvalPlan scan_eval_plan(Dims n)
{
    EvalPlan at;
    at.s_    = 0;
    at.s_a   = at.s_ + RT_SIZE(float, n.B*n.T*H + n.B*H);
    at.bytes = at.s_a + RT_SIZE(float, n.B*H);
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

/* d_s[B,H] = 0                                   scan.model:9 */
static void k1_d_s(float *restrict d_s, ptrdiff_t B)
{
    RT_PARALLEL_SIMD(B*H)
    for (ptrdiff_t i = 0; i < B*H; i++)
        d_s[i] = 0.0f;
}

/* s[B,H] = 0                                     scan.model:9 */
static void k2_s(float *restrict s_, ptrdiff_t B)
{
    RT_PARALLEL_SIMD(B*H)
    for (ptrdiff_t i = 0; i < B*H; i++)
        s_[i] = 0.0f;
}

/* s_a[B,H] = x[B,D] @ wx_weight[H,D]' + wx_bias  scan.model:11 */
static void k3_s_a(float *restrict s_a, const float *restrict x, const float *restrict wx_weight,
                   const float *restrict wx_bias, ptrdiff_t B, ptrdiff_t T)
{
    const RtMatmul shape = { .m = B, .n = H, .k = D, .tb = true, .lda = T*D, .bias = wx_bias };
    rt_matmul_f32(s_a, x, wx_weight, shape);
}

/* s_a[B,H] += s[B,H] @ wh_weight[H,H]'           scan.model:11 */
static void k4_s_a(float *restrict s_a, const float *restrict s_, const float *restrict wh_weight,
                   ptrdiff_t B)
{
    const RtMatmul shape = { .m = B, .n = H, .k = H, .tb = true, .add = true };
    rt_matmul_f32(s_a, s_, wh_weight, shape);
}

/* s[B,H] = tanh(s_a[B,H])                        scan.model:11 */
static void k5_s(float *restrict s_, const float *restrict s_a, ptrdiff_t B)
{
    RT_PARALLEL_SIMD(B*H)
    for (ptrdiff_t i = 0; i < B*H; i++)
        s_[i] = rt_tanh(s_a[i]);
}

/* loss_a[B,T,H] = s - y
 * sum_loss += sum over B,T,H of loss_a^2
 * scan.model:14 */
static void k6_sum_loss(float *restrict loss_a, double *restrict sum_loss, const float *restrict s_,
                        const float *restrict y, ptrdiff_t B, ptrdiff_t T)
{
    const int chunks = rt_chunks(B*T);
    double part_sum_loss[RT_CHUNKS];
    RT_PARALLEL_FOR(1, B*T*H)
    for (int chunk = 0; chunk < chunks; chunk++) {
        const ptrdiff_t from = rt_chunk(B*T, chunk, chunks);
        const ptrdiff_t to = rt_chunk(B*T, chunk + 1, chunks);
        double total_sum_loss = 0;
        for (ptrdiff_t row = from; row < to; row++) {
            const ptrdiff_t ib = row / T;
            const ptrdiff_t it = row % T;
            for (int ih = 0; ih < H; ih++) {
                const float a = s_[ib*H + it*B*H + ih] - y[ib*T*H + it*H + ih];
                loss_a[ib*T*H + it*H + ih] = a;
                total_sum_loss += (double)(a * a);
            }
        }
        part_sum_loss[chunk] = total_sum_loss;
    }
    *sum_loss += rt_sum_chunks(part_sum_loss, chunks);
}

/* ---- of the backward pass ---- */

/* d_states[B,T,H] = seed_loss * 2 * loss_a[B,T,H]  scan.model:14   gradient of k6 */
static void k7_d_states(float *d_states, const float *loss_a, float seed_loss, ptrdiff_t B,
                        ptrdiff_t T)
{
    const float a = seed_loss * 2;
    RT_PARALLEL_SIMD(B*T*H)
    for (ptrdiff_t i = 0; i < B*T*H; i++)
        d_states[i] = a * loss_a[i];
}

/* d_wh_y[B,H] = d_s * (1 - s^2)
 * d_wx_bias[H] (+)= sum over B of d_wh_y
 * where d_s = d_s + d_states
 * scan.model:11   gradient of k5, k3 */
static void k8_d_wh_y(float *restrict d_wh_y, float *restrict d_wx_bias, float *restrict work,
                      const float *restrict d_s, const float *restrict d_states,
                      const float *restrict s_, bool add_later, ptrdiff_t B, ptrdiff_t T)
{
    const int chunks = rt_chunks(B);
    RT_PARALLEL_FOR(1, B*H)
    for (int chunk = 0; chunk < chunks; chunk++) {
        const ptrdiff_t from = rt_chunk(B, chunk, chunks);
        const ptrdiff_t to = rt_chunk(B, chunk + 1, chunks);
        float *restrict part_d_wx_bias = rt_zeros_f32(work + chunk*H, H);
        for (ptrdiff_t ib = from; ib < to; ib++) {
            RT_SIMD()
            for (int ih = 0; ih < H; ih++) {
                const float a = s_[ib*H + ih];
                const float b = (d_s[ib*H + ih] + d_states[ib*T*H + ih]) * (1 - a * a);
                d_wh_y[ib*H + ih] = b;
                part_d_wx_bias[ih] += b;
            }
        }
    }
    rt_add_rows_f32(d_wx_bias, work, chunks, H, add_later);
}

/* d_s[B,H] = d_wh_y[B,H] @ wh_weight[H,H]        scan.model:11   gradient of k5 */
static void k9_d_s(float *restrict d_s, const float *restrict d_wh_y,
                   const float *restrict wh_weight, ptrdiff_t B)
{
    const RtMatmul shape = { .m = B, .n = H, .k = H };
    rt_matmul_f32(d_s, d_wh_y, wh_weight, shape);
}

/* d_wh_weight[H,H] (+)= d_wh_y[B,H]' @ s[B,H]    scan.model:11   gradient of k4 */
static void k10_d_wh_weight(float *restrict d_wh_weight, const float *restrict d_wh_y,
                            const float *restrict s_, bool add_later, ptrdiff_t B)
{
    const RtMatmul shape = { .m = H, .n = H, .k = B, .ta = true, .add = add_later };
    rt_matmul_f32(d_wh_weight, d_wh_y, s_, shape);
}

/* d_wx_weight[H,D] (+)= d_wh_y[B,H]' @ x[B,D]    scan.model:11   gradient of k4, k3 */
static void k11_d_wx_weight(float *restrict d_wx_weight, const float *restrict d_wh_y,
                            const float *restrict x, bool add_later, ptrdiff_t B, ptrdiff_t T)
{
    const RtMatmul shape = { .m = H, .n = D, .k = B, .ta = true, .add = add_later, .ldb = T*D };
    rt_matmul_f32(d_wx_weight, d_wh_y, x, shape);
}

/* ---- of evaluation and outputs, where they differ ---- */

/* sum_loss += sum over B,T,H of (s[T,B,H] - y[B,T,H])^2  scan.model:14 */
static void k12_sum_loss(double *restrict sum_loss, const float *restrict s_,
                         const float *restrict y, ptrdiff_t B, ptrdiff_t T)
{
    const int chunks = rt_chunks(B*T);
    double part_sum_loss[RT_CHUNKS];
    RT_PARALLEL_FOR(1, B*T*H)
    for (int chunk = 0; chunk < chunks; chunk++) {
        const ptrdiff_t from = rt_chunk(B*T, chunk, chunks);
        const ptrdiff_t to = rt_chunk(B*T, chunk + 1, chunks);
        double total_sum_loss = 0;
        for (ptrdiff_t row = from; row < to; row++) {
            const ptrdiff_t ib = row / T;
            const ptrdiff_t it = row % T;
            for (int ih = 0; ih < H; ih++) {
                const float a = s_[ib*H + it*B*H + ih] - y[ib*T*H + it*H + ih];
                total_sum_loss += (double)(a * a);
            }
        }
        part_sum_loss[chunk] = total_sum_loss;
    }
    *sum_loss += rt_sum_chunks(part_sum_loss, chunks);
}

/* ---- 5 forward ---------------------------------------------------------- */

/* One call per step: its number, the line of the model that it is, or of such a line what
 * it computes. RT_CHECK looks at what the call above it wrote, for --replay and --trace
 * alone; RT_REPETITION tells it the repetition. */

enum {                                  /* means over the data, sum / count: places in RtStep */
    S_loss = 0,                         /* mean((states - y)^2)  scan.model:14 */
};

/* adds what the means divide by, for one micro-step */
static void scan_count(RtStep *s, Dims n)
{
    s->count[S_loss] += (double)(n.B*n.T*H);  /* mean((states - y)^2)  scan.model:14 */
}

/* one repetition of scan, forward; reads s, writes the next s */
static void scan_forward_2(const float *p, const float *x, void *arena, const Plan *at,
                           const RtStep *s, Dims n, ptrdiff_t it)
{
    float *s_a = rt_at_f32(arena, at->s_a);          /* [B,H] */
    float *s_ = rt_at_f32(arena, at->s_) + it*n.B*H; /* [B,H] */

    RT_REPETITION(s, 0, it);
    /* scan.model:11  s = tanh(wx(xt) + wh(s)) */
    /* 3    s_a = x @ wx_weight' + wx_bias */
    k3_s_a(s_a, x + it*D, p + P_wx_weight, p + P_wx_bias, n.B, n.T);
    RT_CHECK(s, 3, "s_a[B,H]", s_a, n.B*H);
    /* 4    s_a += s @ wh_weight' */
    k4_s_a(s_a, s_, p + P_wh_weight, n.B);
    RT_CHECK(s, 4, "s_a[B,H]", s_a, n.B*H);
    /* 5    s = tanh(s_a) */
    k5_s(s_ + n.B*H, s_a, n.B);
    RT_CHECK(s, 5, "s[B,H]", s_ + n.B*H, n.B*H);
}

/* training: fills the arena and adds to the sums */
static void scan_forward(const float *p, const float *x, const float *y, void *arena, RtStep *s,
                         Dims n)
{
    const Plan at = scan_plan(n);
    float *d_s = rt_at_f32(arena, at.d_s);       /* [B,H] */
    float *s_ = rt_at_f32(arena, at.s_);         /* [T + 1,B,H] */
    float *loss_a = rt_at_f32(arena, at.loss_a); /* [B,T,H] */

    /* scan.model:9  s = zeros([B, H]) */
    /* 1    d_s = 0 */
    k1_d_s(d_s, n.B);
    RT_CHECK(s, 1, "d_s[B,H]", d_s, n.B*H);
    /* 2    s = 0 */
    k2_s(s_, n.B);
    RT_CHECK(s, 2, "s[B,H]", s_, n.B*H);
    /* 3..5  scan.model:10  states = for xt in x along T { */
    for (ptrdiff_t it = 0; it < n.T; it++)
        scan_forward_2(p, x, arena, &at, s, n, it);
    /* 6    scan.model:14  loss = mean((states - y)^2) */
    k6_sum_loss(loss_a, &s->sum[S_loss], s_ + n.B*H, y, n.B, n.T);
    RT_CHECK(s, 6, "loss_a[B,T,H]", loss_a, n.B*n.T*H);
    RT_CHECK(s, 6, "sum_loss", &s->sum[S_loss], 1);
}

/* one repetition of scan, evaluate; reads s, writes the next s */
static void scan_evaluate_2(const float *p, const float *x, void *arena, const EvalPlan *at, Dims n,
                            ptrdiff_t it)
{
    float *s_a = rt_at_f32(arena, at->s_a);          /* [B,H] */
    float *s_ = rt_at_f32(arena, at->s_) + it*n.B*H; /* [B,H] */

    /* scan.model:11  s = tanh(wx(xt) + wh(s)) */
    /* 2    s_a = x @ wx_weight' + wx_bias */
    k3_s_a(s_a, x + it*D, p + P_wx_weight, p + P_wx_bias, n.B, n.T);
    /* 3    s_a += s @ wh_weight' */
    k4_s_a(s_a, s_, p + P_wh_weight, n.B);
    /* 4    s = tanh(s_a) */
    k5_s(s_ + n.B*H, s_a, n.B);
}

/* evaluation: the same values, kept for no backward pass; adds to the sums */
static void scan_evaluate(const float *p, const float *x, const float *y, void *arena, RtStep *s,
                          Dims n)
{
    const EvalPlan at = scan_eval_plan(n);
    float *s_ = rt_at_f32(arena, at.s_);        /* [T + 1,B,H] */

    /* 1    scan.model:9  s = zeros([B, H]) */
    k2_s(s_, n.B);
    /* 2..4  scan.model:10  states = for xt in x along T { */
    for (ptrdiff_t it = 0; it < n.T; it++)
        scan_evaluate_2(p, x, arena, &at, n, it);
    /* 5    scan.model:14  loss = mean((states - y)^2) */
    k12_sum_loss(&s->sum[S_loss], s_ + n.B*H, y, n.B, n.T);
}

/* ---- 6 backward: the steps of section 5, last first --------------------- */

/* From the loss back. d_x is d loss / d x; seed_* is d loss / d sum_*, the weight of
 * the mean / its count in the whole update, over all micro-steps (and ranks, where
 * several processes train together). An addition hands its gradient on to its terms
 * as it is, so it has no step here, and one d_x may belong to a sum and to its terms.
 * A value that is used twice gets the sum of two gradients; a bias, the sum over all
 * rows. */

/* one repetition of scan, backward; in place: d_s */
static void scan_backward_2(const float *p, float *d_p, const float *x, void *arena, const Plan *at,
                            const RtStep *s, Dims n, ptrdiff_t it)
{
    float *d_s = rt_at_f32(arena, at->d_s);                  /* [B,H] */
    float *d_states = rt_at_f32(arena, at->d_states) + it*H; /* [T,H] */
    float *s_ = rt_at_f32(arena, at->s_) + it*n.B*H;         /* [B,H] */
    float *d_wh_y = rt_at_f32(arena, at->d_wh_y);            /* [B,H] */
    float *work_d_wh_y = rt_at_f32(arena, at->work_d_wh_y);  /* [RT_CHUNKS,H] */

    RT_REPETITION(s, 0, it);
    /* 8    undoes 5, 3  scan.model:11  d_wh_y, d_wx_bias from d_s, d_states, s */
    k8_d_wh_y(d_wh_y, d_p + P_wx_bias, work_d_wh_y, d_s, d_states, s_ + n.B*H,
              s->add || it < n.T - 1, n.B, n.T);
    RT_CHECK(s, 8, "d_wh_y[B,H]", d_wh_y, n.B*H);
    RT_CHECK(s, 8, "d_wx_bias[H]", d_p + P_wx_bias, H);
    /* 9    undoes 5     scan.model:11  d_s = d_wh_y @ wh_weight */
    k9_d_s(d_s, d_wh_y, p + P_wh_weight, n.B);
    RT_CHECK(s, 9, "d_s[B,H]", d_s, n.B*H);
    /* 10   undoes 4     scan.model:11  d_wh_weight (+)= d_wh_y' @ s */
    k10_d_wh_weight(d_p + P_wh_weight, d_wh_y, s_, s->add || it < n.T - 1, n.B);
    RT_CHECK(s, 10, "d_wh_weight[H,H]", d_p + P_wh_weight, H*H);
    /* 11   undoes 4, 3  scan.model:11  d_wx_weight (+)= d_wh_y' @ x */
    k11_d_wx_weight(d_p + P_wx_weight, d_wh_y, x + it*D, s->add || it < n.T - 1, n.B, n.T);
    RT_CHECK(s, 11, "d_wx_weight[H,D]", d_p + P_wx_weight, D*H);
}

/* gradients: the first write of an update replaces, later ones add */
static void scan_backward(const float *p, float *d_p, const float *x, void *arena, const RtStep *s,
                          Dims n)
{
    const Plan at = scan_plan(n);
    float *loss_a = rt_at_f32(arena, at.loss_a);     /* [B,T,H] */
    float *d_states = rt_at_f32(arena, at.d_states); /* [B,T,H] */

    /* 7    undoes 6     scan.model:14  d_states = seed_loss * 2 * loss_a */
    k7_d_states(d_states, loss_a, (float)s->seed[S_loss], n.B, n.T);
    RT_CHECK(s, 7, "d_states[B,T,H]", d_states, n.B*n.T*H);
    /* 8..11  undoes 4..5  scan.model:10  states = for xt in x along T { */
    for (ptrdiff_t it = n.T - 1; it >= 0; it--)
        scan_backward_2(p, d_p, x, arena, &at, s, n, it);
    RT_READY(s, 11, -1); /* sums: wx.weight, wx.bias, wh.weight */
}

/* ---- 7 step: one update of the parameters ------------------------------- */

static Dims scan_dims(const ptrdiff_t *dims)
{
    return (Dims){ .B = dims[0], .T = dims[1] };
}

/* Each element is updated by adamw, where g = factor * d_p:
 *
 *     m = beta1 * m + (1 - beta1) * g
 *     v = beta2 * v + (1 - beta2) * (g * g)
 *     p = (1 - lr * decay) * p - lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
 *
 * factor is 1; decay is .weight_decay for parameters marked .decay, else 0; t counts the updates
 * from 1; what is the same for all elements is computed in double. */
static void scan_update(const RtUpdate *u)
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
static void scan_step(RtRun *run, RtStep *s)
{
    rt_begin_step(run, s);                      /* sums and counts 0, add = false; random key, lr */
    for (int micro = 0; micro < run->micro_steps; micro++) {
        rt_begin_micro(run, s, micro);          /* sizes, inputs, first sample */
        const Dims n = scan_dims(run->dims);
        scan_count(s, n);
    }
    rt_seed_losses(run, s);                  /* weight / count of the update; 0 if the count is 0 */

    for (int micro = 0; micro < run->micro_steps; micro++) {
        rt_begin_micro(run, s, micro);
        const Dims n = scan_dims(run->dims);
        const float *x = run->inputs[0];
        const float *y = run->inputs[1];
        scan_forward(run->p, x, y, run->arena, s, n);
        scan_backward(run->p, run->d_p, x, run->arena, s, n);
        s->add = true;                          /* later micro-steps add */
    }
    rt_reduce_gradients(run, s);                /* sum over ranks */
    rt_finite_and_norm(run, s);                 /* are all finite? norm of all as one vector */
    rt_update(run, s, scan_update);             /* of all parameters, if all is finite */
    rt_end_step(run, s);                        /* counters: updates applied, or skipped */
}

static void scan_run_evaluate(RtRun *run, RtStep *s)
{
    const Dims n = scan_dims(run->dims);
    const float *x = run->inputs[0];
    const float *y = run->inputs[1];
    scan_count(s, n);
    scan_evaluate(run->p, x, y, run->arena, s, n);
}

/* ---- 8 model table ------------------------------------------------------ */

/* What the runtime knows of the model: rt.h explains the fields of each table. */

static const RtDim scan_sizes[] = {
    { .name = "B", .batch = true, .value = 0, .where = "scan.model:3" },
    { .name = "T", .batch = false, .value = 0, .where = "scan.model:4" },
};

static const RtInput scan_inputs[] = {
    { .name = "x", .type = RT_F32, .rank = 3, .where = "scan.model:6" },
    { .name = "y", .type = RT_F32, .rank = 3, .where = "scan.model:6" },
};

static const RtSlot scan_means[] = {
    { .name = "loss", .text = "mean((states - y)^2)",
      .weight = 1.0, .where = "scan.model:14" },
};

static const RtObjective scan_objectives[] = {
    { .loss = "loss", .from = 0, .to = P_COUNT, .optimizer = RT_RULE, .where = "scan.model:14" },
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
        shape[1] = n.T;
        shape[2] = H;
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
    return 0;
}

/* What products and attention work in, besides the arena: asked for before a step. A
 * .bias only says that there is one. */
static void scan_rooms(const ptrdiff_t *dims, RtEntry entry, RtRooms *rooms)
{
    const Dims n = scan_dims(dims);
    if (entry == RT_ENTRY_TRAIN) {
        rt_room_matmul(rooms, RT_F32, RT_F32,
            (RtMatmul){ .m = n.B, .n = H, .k = D, .tb = true, .lda = n.T*D, .bias = rooms });
        rt_room_matmul(rooms, RT_F32, RT_F32,
            (RtMatmul){ .m = n.B, .n = H, .k = H, .tb = true, .add = true });
        rt_room_matmul(rooms, RT_F32, RT_F32, (RtMatmul){ .m = n.B, .n = H, .k = H });
        rt_room_matmul(rooms, RT_F32, RT_F32,
            (RtMatmul){ .m = H, .n = H, .k = n.B, .ta = true, .add = true });
        rt_room_matmul(rooms, RT_F32, RT_F32,
            (RtMatmul){ .m = H, .n = D, .k = n.B, .ta = true, .add = true, .ldb = n.T*D });
    }
    if (entry == RT_ENTRY_EVAL) {
        rt_room_matmul(rooms, RT_F32, RT_F32,
            (RtMatmul){ .m = n.B, .n = H, .k = D, .tb = true, .lda = n.T*D, .bias = rooms });
        rt_room_matmul(rooms, RT_F32, RT_F32,
            (RtMatmul){ .m = n.B, .n = H, .k = H, .tb = true, .add = true });
    }
}

/* Number, is it of the backward pass, loops, lines of the model, what it computes, of what. */
static const RtStepRow scan_steps[] = {
    { 1, false, { 0 }, "scan.model:9", "d_s = 0", "" },
    { 2, false, { 0 }, "scan.model:9", "s = 0", "" },
    { 3, false, { "scan" }, "scan.model:11", "s_a = x @ wx_weight' + wx_bias",
      "input x, param wx.weight, param wx.bias" },
    { 4, false, { "scan" }, "scan.model:11", "s_a += s @ wh_weight'", "s[i-1], param wh.weight" },
    { 5, false, { "scan" }, "scan.model:11", "s = tanh(s_a)", "s_a" },
    { 6, false, { 0 }, "scan.model:14", "sum_loss, loss_a from s, y", "s, input y" },
    { 7, true, { 0 }, "scan.model:14", "d_states = seed_loss * 2 * loss_a", "loss_a" },
    { 8, true, { "scan" }, "scan.model:11", "d_wh_y, d_wx_bias from d_s, d_states, s",
      "d_s, d_states, s[i]" },
    { 9, true, { "scan" }, "scan.model:11", "d_s = d_wh_y @ wh_weight",
      "d_wh_y, param wh.weight" },
    { 10, true, { "scan" }, "scan.model:11", "d_wh_weight (+)= d_wh_y' @ s", "d_wh_y, s[i-1]" },
    { 11, true, { "scan" }, "scan.model:11", "d_wx_weight (+)= d_wh_y' @ x", "d_wh_y, input x" },
};

/* What the arena holds in step 8, where it is fullest at B = 16, T = 16, by line of the model. */
static void scan_alive(const ptrdiff_t *dims, RtAlive *row)
{
    const Dims n = scan_dims(dims);
    row[0] = (RtAlive){ "scan.model:9", "s, d_s", 0 };
    row[0].bytes = RT_SIZE(float, n.B*n.T*H + n.B*H) + RT_SIZE(float, n.B*H);
    row[1] = (RtAlive){ "scan.model:14", "d_states", 0 };
    row[1].bytes = RT_SIZE(float, n.B*n.T*H);
    row[2] = (RtAlive){ "scan.model:11", "work_d_wh_y, d_wh_y", 0 };
    row[2].bytes = RT_SIZE(float, RT_CHUNKS*H) + RT_SIZE(float, n.B*H);
}

const RtModel scan = {
    .name = "scan",
    .source = "scan.model", .source_crc = 0x3f035e97u,
    .real = RT_F32, .compute = RT_F32,
    .dims = scan_sizes, .n_dims = 2,
    .params = scan_params, .n_params = 3, .n_elems = P_COUNT,
    .inputs = scan_inputs, .n_inputs = 2,
    .slots = scan_means, .n_slots = 1,
    .objectives = scan_objectives, .n_objectives = 1,
    .steps = scan_steps, .n_steps = 11,
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
    .check_dims = scan_check_dims,
    .input_shape = scan_input_shape,
    .arena_bytes = scan_arena_bytes,
    .rooms = scan_rooms,
    .alive = scan_alive, .n_alive = 3, .fullest = 8,
    .step = scan_step,
    .evaluate = scan_run_evaluate,
};

#ifndef RT_LIBRARY
int main(int argc, char **argv)
{
    return rt_main(&scan, argc, argv);
}
#endif
