/* double_.c -- generated from names.model by gradcc 0.1.
 * Do not edit: edit the model.
 *
 * command   gradcc --emit=c names.model
 * source    names.model, 15 lines, crc32 6adbf80d
 * contents  1 dimensions  2 parameters  3 memory map  4 kernels
 *           5 forward     6 backward    7 step        8 model table
 * size      20 parameters; arena 1.7 KiB at B = 16, row = 16, fullest at step 8 of 9
 */
#include "rt.h"

/* ---- 1 dimensions ------------------------------------------------------- */

enum {                                  /* fixed when the model was compiled */
    int_max = 3,                        /* names.model:2 */
    N = 2,                              /* names.model:2 */
};

typedef struct {                        /* known when the program starts */
    ptrdiff_t B;                        /* samples in a micro-step  names.model:3 */
    ptrdiff_t row_;                     /*                          names.model:4 */
} Dims;

/* ---- 2 parameters ------------------------------------------------------- */

/* One flat buffer. A name is the path of declarations that leads to a parameter; layers
 * that the model's file does not show, such as linear and mlp, are those of prelude.model.
 * A linear layer stores [out,in] unless it is declared transposed: it is x @ w'. */

enum {                                                     /* first element in the flat buffer */
    P_restrict_weight = 0,                                 /* [int_max,int_max] names.model:7 */
    P_restrict_bias = P_restrict_weight + int_max*int_max, /* [int_max]      names.model:7 */
    P_s_weight = P_restrict_bias + int_max,                /* [N,int_max]    names.model:8 */
    P_s_bias = P_s_weight + int_max*N,                     /* [N]            names.model:8 */
    P_COUNT = P_s_bias + N,
};

static const RtParam double__params[] = {
    { .path = "restrict.weight", .role = RT_WEIGHT, .decay = true, .rank = 2,
      .shape = { int_max, int_max }, .at = P_restrict_weight,
      .init = { RT_UNIFORM, 0.5773502691896258 }, .where = "names.model:7" },
    { .path = "restrict.bias", .role = RT_BIAS, .decay = false, .rank = 1, .shape = { int_max },
      .at = P_restrict_bias, .init = { RT_ZEROS, 0.0 }, .where = "names.model:7" },
    { .path = "s.weight", .role = RT_WEIGHT, .decay = true, .rank = 2, .shape = { N, int_max },
      .at = P_s_weight, .init = { RT_UNIFORM, 0.5773502691896258 }, .where = "names.model:8" },
    { .path = "s.bias", .role = RT_BIAS, .decay = false, .rank = 1, .shape = { N }, .at = P_s_bias,
      .init = { RT_ZEROS, 0.0 }, .where = "names.model:8" },
};

/* ---- 3 memory map ------------------------------------------------------- */

/* One arena holds what a numbered step of sections 5 and 6 leaves for later ones. Values
 * that are not needed at the same time share bytes: 'over' lists what was there before, 'in
 * place of' means that a step replaces its input. work_* hold partial sums while a step
 * runs. Sizes are known when the program starts, so offsets are formulas: a buffer lies
 * above all that are needed while it is. RT_SIZE rounds up to RT_ALIGN bytes, and
 * rt_above(a, b) is the higher one. */

/* The arena of a training step: 1.7 KiB at B = 16, row = 16.
 * Offsets and bytes are those at these sizes; written and last read are numbers of
 * steps (sections 5 and 6).
 *
 *   buffer           shape                type      offset       bytes  written  last read
 *   restrict         [B,int_max]          f32          768         192        1          2
 *   k1_a             [B,int_max]          f32          768         192        2          8
 *       in place of restrict
 *   rt_exp_a         [B,int_max]          f32          960         192        2          8
 *   rt_exp           [B,int_max]          f32         1152         192        2          8
 *   at               [B,int_max]          f32          512         192        2          7
 *   p                [B,N]                f32         1344         128        3          5
 *   logsumexp        [B]                  f32          704          64        4          5
 *   d_p              [B,N]                f32         1536         128        5          7
 *   d_at             [B,int_max]          f32         1344         192        6          8
 *       over p
 *   d_restrict       [B,int_max]          f32         1536         192        8          9
 *       over d_p
 *   work_d_p         [RT_CHUNKS,N]        f32            0         512        5          5
 *   work_d_restrict  [RT_CHUNKS,int_max]  f32            0         768        8          8
 *       over at, logsumexp, work_d_p
 */

typedef struct { size_t restrict_, k1_a_, rt_exp_a_, rt_exp_, at_, p_, logsumexp, d_p_, d_at,
        d_restrict, work_d_p, work_d_restrict, bytes; } Plan;

static Plan double__plan(Dims n)
{
    Plan at;
    at.work_d_p        = 0;
    at.at_             = at.work_d_p + RT_SIZE(float, RT_CHUNKS*N);
    at.logsumexp       = at.at_ + RT_SIZE(float, n.B*int_max);
    at.work_d_restrict = 0;
    at.restrict_       = at.logsumexp + RT_SIZE(float, n.B);
    at.restrict_       = rt_above(at.restrict_,
                                  at.work_d_restrict + RT_SIZE(float, RT_CHUNKS*int_max));
    at.k1_a_           = at.restrict_;
    at.rt_exp_a_       = at.restrict_ + RT_SIZE(float, n.B*int_max);
    at.rt_exp_         = at.rt_exp_a_ + RT_SIZE(float, n.B*int_max);
    at.p_              = at.rt_exp_ + RT_SIZE(float, n.B*int_max);
    at.d_at            = at.rt_exp_ + RT_SIZE(float, n.B*int_max);
    at.d_p_            = at.d_at + RT_SIZE(float, n.B*int_max);
    at.d_p_            = rt_above(at.d_p_, at.p_ + RT_SIZE(float, n.B*N));
    at.d_restrict      = at.d_at + RT_SIZE(float, n.B*int_max);
    at.bytes           = at.d_p_ + RT_SIZE(float, n.B*N);
    at.bytes           = rt_above(at.bytes, at.d_restrict + RT_SIZE(float, n.B*int_max));
    return at;
}

/* The arena of an evaluation: 320 B at B = 16, row = 16.
 * Offsets and bytes are those at these sizes; written and last read are numbers of
 * steps (section 5).
 *
 *   buffer    shape        type      offset       bytes  written  last read
 *   restrict  [B,int_max]  f32            0         192        1          2
 *   at        [B,int_max]  f32            0         192        2          3
 *       in place of restrict
 *   p         [B,N]        f32          192         128        3          4
 */

typedef struct { size_t restrict_, at_, p_, outputs, bytes; } EvalPlan;

static EvalPlan double__eval_plan(Dims n)
{
    EvalPlan at;
    at.restrict_ = 0;
    at.at_       = at.restrict_;
    at.p_        = at.restrict_ + RT_SIZE(float, n.B*int_max);
    at.outputs   = at.restrict_ + RT_SIZE(float, n.B*int_max);
    at.bytes     = at.p_ + RT_SIZE(float, n.B*N);
    return at;
}

/* The outputs use the arena of an evaluation: some of its steps make them. They
 * themselves lie in the caller's memory. */

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
 * A variable of a kernel has the end of a name above, mu for h_ln_mu; a, b, ... have none.
 * RT_PARALLEL_FOR(loops, work), RT_PARALLEL_SIMD(work) and RT_SIMD are OpenMP pragmas. Sums
 * over rows that threads share are made in at most RT_CHUNKS fixed ranges of rows, whose
 * partial results are added in order, or by blocks of RT_COLUMNS columns, each by one
 * thread; sums over a row in RT_LANES sums side by side. So neither threads nor what else a
 * loop does change a bit. */

/* restrict[B,int_max] = float[B,int_max] @ restrict_weight[int_max,int_max]' + restrict_bias
 * names.model:9 */
static void k1_restrict(float *restrict restrict_, const float *restrict float_,
                        const float *restrict restrict_weight, const float *restrict restrict_bias,
                        ptrdiff_t B)
{
    const RtMatmul shape = { .m = B, .n = int_max, .k = int_max, .tb = true,
                             .bias = restrict_bias };
    rt_matmul_f32(restrict_, float_, restrict_weight, shape);
}

/* k1_a[B,int_max] = tanh(restrict)
 * rt_exp_a[B,int_max] = exp(k1)
 * rt_exp[B,int_max] = rt_exp_a * n
 * at[B,int_max] = where(1 < rt_exp, rt_exp, -n)
 * where k1 = k1_a + 1
 * names.model:9, 10, 11 */
static void k2_at(float *k1_a_, float *restrict rt_exp_a_, float *restrict rt_exp_,
                  float *restrict at_, const float *restrict_, const float *restrict n_,
                  ptrdiff_t B)
{
    RT_PARALLEL_SIMD(B*int_max)
    for (ptrdiff_t i = 0; i < B*int_max; i++) {
        const float a = restrict_[i];
        const float b = rt_tanh(a);
        k1_a_[i] = b;
        const float c = rt_exp(b + 1);
        rt_exp_a_[i] = c;
        const float d = n_[i];
        const float e = c * d;
        rt_exp_[i] = e;
        at_[i] = 1 < e ? e : -d;
    }
}

/* p[B,N] = at[B,int_max] @ s_weight[N,int_max]' + s_bias  names.model:12 */
static void k3_p(float *restrict p_, const float *restrict at_, const float *restrict s_weight,
                 const float *restrict s_bias, ptrdiff_t B)
{
    const RtMatmul shape = { .m = B, .n = N, .k = int_max, .tb = true, .bias = s_bias };
    rt_matmul_f32(p_, at_, s_weight, shape);
}

/* logsumexp[B] = (max over N of p) + log(sum over N of exp(p - (max over N of p)))
 * sum_loss += sum over B of where(0 <= label, logsumexp - p[..,label], 0)
 * names.model:13 */
static void k4_logsumexp(float *restrict logsumexp, double *restrict sum_loss,
                         const float *restrict p_, const int32_t *restrict label, ptrdiff_t B)
{
    const int chunks = rt_chunks(B);
    double part_sum_loss[RT_CHUNKS];
    RT_PARALLEL_FOR(1, B*N)
    for (int chunk = 0; chunk < chunks; chunk++) {
        const ptrdiff_t from = rt_chunk(B, chunk, chunks);
        const ptrdiff_t to = rt_chunk(B, chunk + 1, chunks);
        double total_sum_loss = 0;
        for (ptrdiff_t ib = from; ib < to; ib++) {
            const int32_t a = label[ib];
            float max = -INFINITY;
            float sum = 0;
            for (int in = 0; in < N; in++) {
                const float b = p_[ib*N + in];
                max = rt_max(max, b);
                sum += in == a ? b : 0.0f;
            }
            float c = 0;
            for (int in = 0; in < N; in++)
                c += rt_exp(p_[ib*N + in] - max);
            const float d = max + rt_log(c);
            logsumexp[ib] = d;
            total_sum_loss += (double)(0 <= a ? d - sum : 0.0f);
        }
        part_sum_loss[chunk] = total_sum_loss;
    }
    *sum_loss += rt_sum_chunks(part_sum_loss, chunks);
}

/* ---- of the backward pass ---- */

/* d_p[B,N] = where(0 <= label, where(0 <= label, seed_loss, 0) *
 *         (exp(p - logsumexp) - (0..N == label)), 0)
 * d_s_bias[N] (+)= sum over B of d_p
 * names.model:13   gradient of k4, k3 */
static void k5_d_p(float *restrict d_p_, float *restrict d_s_bias, float *restrict work,
                   const int32_t *restrict label, const float *restrict p_,
                   const float *restrict logsumexp, float seed_loss, bool add, ptrdiff_t B)
{
    const int chunks = rt_chunks(B);
    RT_PARALLEL_FOR(1, B*N)
    for (int chunk = 0; chunk < chunks; chunk++) {
        const ptrdiff_t from = rt_chunk(B, chunk, chunks);
        const ptrdiff_t to = rt_chunk(B, chunk + 1, chunks);
        float *restrict part_d_s_bias = rt_zeros_f32(work + chunk*N, N);
        for (ptrdiff_t ib = from; ib < to; ib++) {
            const int32_t a = label[ib];
            const bool b = 0 <= a;
            const float c = b ? seed_loss : 0.0f;
            const float d = logsumexp[ib];
            RT_SIMD()
            for (int in = 0; in < N; in++) {
                const float e = b ? c * (rt_exp(p_[ib*N + in] - d) - (float)(in == a)) : 0.0f;
                d_p_[ib*N + in] = e;
                part_d_s_bias[in] += e;
            }
        }
    }
    rt_add_rows_f32(d_s_bias, work, chunks, N, add);
}

/* d_at[B,int_max] = d_p[B,N] @ s_weight[N,int_max]  names.model:12   gradient of k3 */
static void k6_d_at(float *restrict d_at, const float *restrict d_p_,
                    const float *restrict s_weight, ptrdiff_t B)
{
    const RtMatmul shape = { .m = B, .n = int_max, .k = N };
    rt_matmul_f32(d_at, d_p_, s_weight, shape);
}

/* d_s_weight[N,int_max] (+)= d_p[B,N]' @ at[B,int_max]  names.model:12   gradient of k3 */
static void k7_d_s_weight(float *restrict d_s_weight, const float *restrict d_p_,
                          const float *restrict at_, bool add, ptrdiff_t B)
{
    const RtMatmul shape = { .m = N, .n = int_max, .k = B, .ta = true, .add = add };
    rt_matmul_f32(d_s_weight, d_p_, at_, shape);
}

/* d_restrict[B,int_max] = where(1 < rt_exp, d_at * n * rt_exp_a * (1 - k1_a^2), 0)
 * d_restrict_bias[int_max] (+)= sum over B of d_restrict
 * names.model:9, 10, 11   gradient of k2, k1 */
static void k8_d_restrict(float *restrict d_restrict, float *restrict d_restrict_bias,
                          float *restrict work, const float *restrict rt_exp_,
                          const float *restrict d_at, const float *restrict n_,
                          const float *restrict rt_exp_a_, const float *restrict k1_a_, bool add,
                          ptrdiff_t B)
{
    const int chunks = rt_chunks(B);
    RT_PARALLEL_FOR(1, B*int_max)
    for (int chunk = 0; chunk < chunks; chunk++) {
        const ptrdiff_t from = rt_chunk(B, chunk, chunks);
        const ptrdiff_t to = rt_chunk(B, chunk + 1, chunks);
        float *restrict part_d_restrict_bias = rt_zeros_f32(work + chunk*int_max, int_max);
        for (ptrdiff_t ib = from; ib < to; ib++) {
            RT_SIMD()
            for (int iint_max = 0; iint_max < int_max; iint_max++) {
                const float a = d_at[ib*int_max + iint_max] * n_[ib*int_max + iint_max] *
                        rt_exp_a_[ib*int_max + iint_max];
                const float b = k1_a_[ib*int_max + iint_max];
                const float c = 1 < rt_exp_[ib*int_max + iint_max] ? a * (1 - b * b) : 0.0f;
                d_restrict[ib*int_max + iint_max] = c;
                part_d_restrict_bias[iint_max] += c;
            }
        }
    }
    rt_add_rows_f32(d_restrict_bias, work, chunks, int_max, add);
}

/* d_restrict_weight[int_max,int_max] (+)= d_restrict[B,int_max]' @ float[B,int_max]
 * names.model:9   gradient of k1 */
static void k9_d_restrict_weight(float *restrict d_restrict_weight,
                                 const float *restrict d_restrict, const float *restrict float_,
                                 bool add, ptrdiff_t B)
{
    const RtMatmul shape = { .m = int_max, .n = int_max, .k = B, .ta = true, .add = add };
    rt_matmul_f32(d_restrict_weight, d_restrict, float_, shape);
}

/* ---- of evaluation and outputs, where they differ ---- */

/* at[B,int_max] = where(1 < rt_exp, rt_exp, -n)
 * where rt_exp = exp(k1) * n
 * where k1 = tanh(restrict) + 1
 * names.model:11 */
static void k10_at(float *at_, const float *restrict_, const float *restrict n_, ptrdiff_t B)
{
    RT_PARALLEL_SIMD(B*int_max)
    for (ptrdiff_t i = 0; i < B*int_max; i++) {
        const float a = n_[i];
        const float b = rt_exp(rt_tanh(restrict_[i]) + 1) * a;
        at_[i] = 1 < b ? b : -a;
    }
}

/* sum_loss += sum over B of where(0 <= label, (max over N of p) +
 *         log(sum over N of exp(p - (max over N of p))) - p[..,label], 0)
 * names.model:13 */
static void k11_sum_loss(double *restrict sum_loss, const float *restrict p_,
                         const int32_t *restrict label, ptrdiff_t B)
{
    const int chunks = rt_chunks(B);
    double part_sum_loss[RT_CHUNKS];
    RT_PARALLEL_FOR(1, B*N)
    for (int chunk = 0; chunk < chunks; chunk++) {
        const ptrdiff_t from = rt_chunk(B, chunk, chunks);
        const ptrdiff_t to = rt_chunk(B, chunk + 1, chunks);
        double total_sum_loss = 0;
        for (ptrdiff_t ib = from; ib < to; ib++) {
            const int32_t a = label[ib];
            float max = -INFINITY;
            float sum = 0;
            for (int in = 0; in < N; in++) {
                const float b = p_[ib*N + in];
                max = rt_max(max, b);
                sum += in == a ? b : 0.0f;
            }
            float c = 0;
            for (int in = 0; in < N; in++)
                c += rt_exp(p_[ib*N + in] - max);
            total_sum_loss += (double)(0 <= a ? max + rt_log(c) - sum : 0.0f);
        }
        part_sum_loss[chunk] = total_sum_loss;
    }
    *sum_loss += rt_sum_chunks(part_sum_loss, chunks);
}

/* count_loss += sum over B of (0 <= label[B])    names.model:13 */
static void k12_count_loss(double *restrict count_loss, const int32_t *restrict label, ptrdiff_t B)
{
    const int chunks = rt_chunks(B);
    double part_count_loss[RT_CHUNKS];
    RT_PARALLEL_FOR(1, B)
    for (int chunk = 0; chunk < chunks; chunk++) {
        const ptrdiff_t from = rt_chunk(B, chunk, chunks);
        const ptrdiff_t to = rt_chunk(B, chunk + 1, chunks);
        double total_count_loss = 0;
        double count_loss_lanes[RT_LANES] = { 0 };
        for (ptrdiff_t block = from; block < to; block += RT_LANES) {
            const ptrdiff_t end = rt_min(block + RT_LANES, to);
            RT_SIMD()
            for (ptrdiff_t ib = block; ib < end; ib++)
                count_loss_lanes[ib - block] += (double)(float)(0 <= label[ib]);
        }
        total_count_loss += rt_sum_lanes_f64(count_loss_lanes);
        part_count_loss[chunk] = total_count_loss;
    }
    *count_loss += rt_sum_chunks(part_count_loss, chunks);
}

/* ---- 5 forward ---------------------------------------------------------- */

/* One call per step: its number, the line of the model that it is, or of such a line what
 * it computes. RT_CHECK looks at what the call above it wrote, for --replay and --trace
 * alone; RT_REPETITION tells it the repetition. */

enum {                                  /* means over the data, sum / count: places in RtStep */
    S_loss = 0,                         /* mean(cross_entropy(p, label), whe...  names.model:13 */
};

/* adds what the means divide by, for one micro-step */
static void double__count(const int32_t *label, RtStep *s, Dims n)
{
    /* 1    names.model:13  loss = mean(cross_entropy(p, label), where: label >= 0) */
    k12_count_loss(&s->count[S_loss], label, n.B);
}

/* training: fills the arena and adds to the sums */
static void double__forward(const float *p, const float *float_, const float *n_,
                            const int32_t *label, void *arena, RtStep *s, Dims n)
{
    const Plan at = double__plan(n);
    float *restrict_ = rt_at_f32(arena, at.restrict_); /* [B,int_max] */
    float *k1_a_ = rt_at_f32(arena, at.k1_a_);         /* [B,int_max] */
    float *rt_exp_a_ = rt_at_f32(arena, at.rt_exp_a_); /* [B,int_max] */
    float *rt_exp_ = rt_at_f32(arena, at.rt_exp_);     /* [B,int_max] */
    float *at_ = rt_at_f32(arena, at.at_);             /* [B,int_max] */
    float *p_ = rt_at_f32(arena, at.p_);               /* [B,N] */
    float *logsumexp = rt_at_f32(arena, at.logsumexp); /* [B] */

    /* names.model:9  k1 = tanh(restrict(float)) + 1 */
    /* 1    restrict = float @ restrict_weight' + restrict_bias */
    k1_restrict(restrict_, float_, p + P_restrict_weight, p + P_restrict_bias, n.B);
    RT_CHECK(s, 1, "restrict[B,int_max]", restrict_, n.B*int_max);
    /* names.model:9 goes on */
    /* names.model:10  rt_exp = exp(k1) * n */
    /* names.model:11  at = where(rt_exp > 1, rt_exp, -n) */
    /* 2    at, k1_a, rt_exp_a, rt_exp from restrict, n */
    k2_at(k1_a_, rt_exp_a_, rt_exp_, at_, restrict_, n_, n.B);
    RT_CHECK(s, 2, "k1_a[B,int_max]", k1_a_, n.B*int_max);
    RT_CHECK(s, 2, "rt_exp_a[B,int_max]", rt_exp_a_, n.B*int_max);
    RT_CHECK(s, 2, "rt_exp[B,int_max]", rt_exp_, n.B*int_max);
    RT_CHECK(s, 2, "at[B,int_max]", at_, n.B*int_max);
    /* 3    names.model:12  output p = s(at) */
    k3_p(p_, at_, p + P_s_weight, p + P_s_bias, n.B);
    RT_CHECK(s, 3, "p[B,N]", p_, n.B*N);
    /* 4    names.model:13  loss = mean(cross_entropy(p, label), where: label >= 0) */
    k4_logsumexp(logsumexp, &s->sum[S_loss], p_, label, n.B);
    RT_CHECK(s, 4, "logsumexp[B]", logsumexp, n.B);
    RT_CHECK(s, 4, "sum_loss", &s->sum[S_loss], 1);
}

/* evaluation: the same values, kept for no backward pass; adds to the sums */
static void double__evaluate(const float *p, const float *float_, const float *n_,
                             const int32_t *label, void *arena, RtStep *s, Dims n)
{
    const EvalPlan at = double__eval_plan(n);
    float *restrict_ = rt_at_f32(arena, at.restrict_); /* [B,int_max] */
    float *at_ = rt_at_f32(arena, at.at_);             /* [B,int_max] */
    float *p_ = rt_at_f32(arena, at.p_);               /* [B,N] */

    /* 1    names.model:9  k1 = tanh(restrict(float)) + 1 */
    k1_restrict(restrict_, float_, p + P_restrict_weight, p + P_restrict_bias, n.B);
    /* 2    names.model:11  at = where(rt_exp > 1, rt_exp, -n) */
    k10_at(at_, restrict_, n_, n.B);
    /* 3    names.model:12  output p = s(at) */
    k3_p(p_, at_, p + P_s_weight, p + P_s_bias, n.B);
    /* 4    names.model:13  loss = mean(cross_entropy(p, label), where: label >= 0) */
    k11_sum_loss(&s->sum[S_loss], p_, label, n.B);
}

/* the outputs, for given inputs */
static void double__outputs(const float *p, const float *float_, const float *n_, float *p_,
                            void *arena, Dims n)
{
    const EvalPlan at = double__eval_plan(n);
    float *restrict_ = rt_at_f32(arena, at.restrict_); /* [B,int_max] */
    float *at_ = rt_at_f32(arena, at.at_);             /* [B,int_max] */

    /* 1    names.model:9  k1 = tanh(restrict(float)) + 1 */
    k1_restrict(restrict_, float_, p + P_restrict_weight, p + P_restrict_bias, n.B);
    /* 2    names.model:11  at = where(rt_exp > 1, rt_exp, -n) */
    k10_at(at_, restrict_, n_, n.B);
    /* 3    names.model:12  output p = s(at) */
    k3_p(p_, at_, p + P_s_weight, p + P_s_bias, n.B);
}

/* ---- 6 backward: the steps of section 5, last first --------------------- */

/* From the loss back. d_x is d loss / d x; seed_* is d loss / d sum_*, the weight of
 * the mean / its count in the whole update, over all micro-steps (and ranks, where
 * several processes train together). An addition hands its gradient on to its terms
 * as it is, so it has no step here, and one d_x may belong to a sum and to its terms.
 * A value that is used twice gets the sum of two gradients; a bias, the sum over all
 * rows. */

/* gradients: the first write of an update replaces, later ones add */
static void double__backward(const float *p, float *d_p, const float *float_, const float *n_,
                             const int32_t *label, void *arena, const RtStep *s, Dims n)
{
    const Plan at = double__plan(n);
    float *p_ = rt_at_f32(arena, at.p_);                           /* [B,N] */
    float *logsumexp = rt_at_f32(arena, at.logsumexp);             /* [B] */
    float *d_p_ = rt_at_f32(arena, at.d_p_);                       /* [B,N] */
    float *work_d_p = rt_at_f32(arena, at.work_d_p);               /* [RT_CHUNKS,N] */
    float *d_at = rt_at_f32(arena, at.d_at);                       /* [B,int_max] */
    float *at_ = rt_at_f32(arena, at.at_);                         /* [B,int_max] */
    float *rt_exp_ = rt_at_f32(arena, at.rt_exp_);                 /* [B,int_max] */
    float *rt_exp_a_ = rt_at_f32(arena, at.rt_exp_a_);             /* [B,int_max] */
    float *k1_a_ = rt_at_f32(arena, at.k1_a_);                     /* [B,int_max] */
    float *d_restrict = rt_at_f32(arena, at.d_restrict);           /* [B,int_max] */
    float *work_d_restrict = rt_at_f32(arena, at.work_d_restrict); /* [RT_CHUNKS,int_max] */

    /* 5    undoes 4, 3  names.model:13  d_p, d_s_bias from label, p, logsumexp */
    k5_d_p(d_p_, d_p + P_s_bias, work_d_p, label, p_, logsumexp, (float)s->seed[S_loss], s->add,
           n.B);
    RT_CHECK(s, 5, "d_p[B,N]", d_p_, n.B*N);
    RT_CHECK(s, 5, "d_s_bias[N]", d_p + P_s_bias, N);
    /* 6    undoes 3     names.model:12  d_at = d_p @ s_weight */
    k6_d_at(d_at, d_p_, p + P_s_weight, n.B);
    RT_CHECK(s, 6, "d_at[B,int_max]", d_at, n.B*int_max);
    /* 7    undoes 3     names.model:12  d_s_weight (+)= d_p' @ at */
    k7_d_s_weight(d_p + P_s_weight, d_p_, at_, s->add, n.B);
    RT_CHECK(s, 7, "d_s_weight[N,int_max]", d_p + P_s_weight, int_max*N);
    /* 8    undoes 2, 1  names.model:11  d_restrict, d_restrict_bias from rt_exp, d_at, ... */
    k8_d_restrict(d_restrict, d_p + P_restrict_bias, work_d_restrict, rt_exp_, d_at, n_, rt_exp_a_,
                  k1_a_, s->add, n.B);
    RT_CHECK(s, 8, "d_restrict[B,int_max]", d_restrict, n.B*int_max);
    RT_CHECK(s, 8, "d_restrict_bias[int_max]", d_p + P_restrict_bias, int_max);
    /* 9    undoes 1     names.model:9  d_restrict_weight (+)= d_restrict' @ float */
    k9_d_restrict_weight(d_p + P_restrict_weight, d_restrict, float_, s->add, n.B);
    RT_CHECK(s, 9, "d_restrict_weight[int_max,int_max]", d_p + P_restrict_weight, int_max*int_max);
}

