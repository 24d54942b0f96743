/* double_.c -- generated from names.model by gradcc 0.1.
 * Do not edit: edit the model.
 *
 * command   gradcc --emit=c names.model
 * source    names.model, 16 lines, crc32 1c5e2997
 * contents  1 dimensions  2 parameters  3 memory map  4 kernels
 *           5 forward     6 backward    7 step        8 model table
 * size      32 parameters; arena 1.9 KiB at B = 16, row = 16, fullest at step 9 of 13
 */
#include "rt.h"

/* ---- 1 dimensions ------------------------------------------------------- */

enum {                                  /* fixed when the model was compiled */
    int_max = 3,                        /* names.model:2 */
    clock = 2,                          /* names.model:2 */
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
    P_restrict_bias = P_restrict_weight + int_max*int_max, /* [int_max]         names.model:7 */
    P_export_weight = P_restrict_bias + int_max,           /* [int_max,int_max] names.model:8 */
    P_export_bias = P_export_weight + int_max*int_max,     /* [int_max]         names.model:8 */
    P_s_weight = P_export_bias + int_max,                  /* [clock,int_max]   names.model:9 */
    P_s_bias = P_s_weight + int_max*clock,                 /* [clock]           names.model:9 */
    P_COUNT = P_s_bias + clock,
};

static const RtParam double__params[] = {
    { .path = "restrict.weight", .role = RT_WEIGHT, .decay = true, .rank = 2,
      .shape = { int_max, int_max }, .at = P_restrict_weight, .ready = 11,
      .init = { RT_UNIFORM, 0.5773502691896258 }, .where = "names.model:7" },
    { .path = "restrict.bias", .role = RT_BIAS, .decay = false, .rank = 1, .shape = { int_max },
      .at = P_restrict_bias, .ready = 9, .init = { RT_ZEROS, 0.0 }, .where = "names.model:7" },
    { .path = "export.weight", .role = RT_WEIGHT, .decay = true, .rank = 2,
      .shape = { int_max, int_max }, .at = P_export_weight, .ready = 13,
      .init = { RT_UNIFORM, 0.5773502691896258 }, .where = "names.model:8" },
    { .path = "export.bias", .role = RT_BIAS, .decay = false, .rank = 1, .shape = { int_max },
      .at = P_export_bias, .ready = 12, .init = { RT_ZEROS, 0.0 }, .where = "names.model:8" },
    { .path = "s.weight", .role = RT_WEIGHT, .decay = true, .rank = 2, .shape = { clock, int_max },
      .at = P_s_weight, .ready = 8, .init = { RT_UNIFORM, 0.5773502691896258 },
      .where = "names.model:9" },
    { .path = "s.bias", .role = RT_BIAS, .decay = false, .rank = 1, .shape = { clock },
      .at = P_s_bias, .ready = 6, .init = { RT_ZEROS, 0.0 }, .where = "names.model:9" },
};

/* ---- 3 memory map ------------------------------------------------------- */

/* One arena holds what a numbered step of sections 5 and 6 leaves for later ones. Values
 * that are not needed at the same time share bytes: 'over' lists what was there before, 'in
 * place of' means that a step replaces its input. work_* hold partial sums while a step
 * runs. Sizes are known when the program starts, so offsets are formulas: a buffer lies
 * above all that are needed while it is. RT_SIZE rounds up to RT_ALIGN bytes, and
 * rt_above(a, b) is the higher one. */

/* The arena of a training step: 1.9 KiB at B = 16, row = 16.
 * Offsets and bytes are those at these sizes; written and last read are numbers of
 * steps (sections 5 and 6).
 *
 *   buffer           shape                type      offset       bytes  written  last read
 *   export           [B,int_max]          f32          768         192        1         11
 *   restrict         [B,int_max]          f32          960         192        2          3
 *   k1_a             [B,int_max]          f32          960         192        3          9
 *       in place of restrict
 *   rt_exp_a         [B,int_max]          f32         1152         192        3          9
 *   rt_exp           [B,int_max]          f32         1344         192        3          9
 *   at               [B,int_max]          f32          512         192        3          8
 *   p                [B,clock]            f32         1536         128        4          6
 *   logsumexp        [B]                  f32          704          64        5          6
 *   d_p              [B,clock]            f32         1728         128        6          8
 *   d_at             [B,int_max]          f32         1536         192        7          9
 *       over p
 *   d_restrict       [B,int_max]          f32         1728         192        9         11
 *       over d_p
 *   d_export         [B,int_max]          f32            0         192       10         13
 *       over work_d_p, work_d_restrict
 *   work_d_p         [RT_CHUNKS,clock]    f32            0         512        6          6
 *   work_d_restrict  [RT_CHUNKS,int_max]  f32            0         768        9          9
 *       over at, logsumexp, work_d_p
 */

typedef struct { size_t export_, restrict_, k1_a_, rt_exp_a_, rt_exp_, at_, p_, logsumexp, d_p_,
        d_at, d_restrict, d_export, work_d_p, work_d_restrict, bytes; } Plan;

static Plan double__plan(Dims n)
{
    Plan at;
    at.work_d_p        = 0;
    at.at_             = at.work_d_p + RT_SIZE(float, RT_CHUNKS*clock);
    at.logsumexp       = at.at_ + RT_SIZE(float, n.B*int_max);
    at.work_d_restrict = 0;
    at.d_export        = 0;
    at.export_         = at.logsumexp + RT_SIZE(float, n.B);
    at.export_         = rt_above(at.export_,
                                  at.work_d_restrict + RT_SIZE(float, RT_CHUNKS*int_max));
    at.export_         = rt_above(at.export_, at.d_export + RT_SIZE(float, n.B*int_max));
    at.restrict_       = at.export_ + RT_SIZE(float, n.B*int_max);
    at.k1_a_           = at.restrict_;
    at.rt_exp_a_       = at.restrict_ + RT_SIZE(float, n.B*int_max);
    at.rt_exp_         = at.rt_exp_a_ + RT_SIZE(float, n.B*int_max);
    at.p_              = at.rt_exp_ + RT_SIZE(float, n.B*int_max);
    at.d_at            = at.rt_exp_ + RT_SIZE(float, n.B*int_max);
    at.d_p_            = at.d_at + RT_SIZE(float, n.B*int_max);
    at.d_p_            = rt_above(at.d_p_, at.p_ + RT_SIZE(float, n.B*clock));
    at.d_restrict      = at.d_at + RT_SIZE(float, n.B*int_max);
    at.bytes           = at.d_p_ + RT_SIZE(float, n.B*clock);
    at.bytes           = rt_above(at.bytes, at.d_restrict + RT_SIZE(float, n.B*int_max));
    return at;
}

/* The arena of an evaluation: 384 B at B = 16, row = 16.
 * Offsets and bytes are those at these sizes; written and last read are numbers of
 * steps (section 5).
 *
 *   buffer    shape        type      offset       bytes  written  last read
 *   export    [B,int_max]  f32            0         192        1          2
 *   restrict  [B,int_max]  f32          192         192        2          3
 *   at        [B,int_max]  f32          192         192        3          4
 *       in place of restrict
 *   p         [B,clock]    f32            0         128        4          5
 *       over export
 */

typedef struct { size_t export_, restrict_, at_, p_, bytes; } EvalPlan;

static EvalPlan double__eval_plan(Dims n)
{
    EvalPlan at;
    at.export_   = 0;
    at.p_        = 0;
    at.restrict_ = at.p_ + RT_SIZE(float, n.B*clock);
    at.restrict_ = rt_above(at.restrict_, at.export_ + RT_SIZE(float, n.B*int_max));
    at.at_       = at.restrict_;
    at.bytes     = at.restrict_ + RT_SIZE(float, n.B*int_max);
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
 *   RT_READY     these gradients are complete: their sums over ranks may begin
 * A variable of a kernel has the end of a name above, mu for h_ln_mu; a, b, ... have none.
 * RT_PARALLEL_FOR(loops, work), RT_PARALLEL_SIMD(work) and RT_SIMD are OpenMP pragmas. Sums
 * over rows that threads share are made in at most RT_CHUNKS fixed ranges of rows, whose
 * partial results are added in order, or by blocks of RT_COLUMNS columns, each by one
 * thread; sums over a row in RT_LANES sums side by side. So neither threads nor what else a
 * loop does change a bit. */

/* export[B,int_max] = float[B,int_max] @ export_weight[int_max,int_max]' + export_bias
 * names.model:10 */
static void k1_export(float *restrict export_, const float *restrict float_,
                      const float *restrict export_weight, const float *restrict export_bias,
                      ptrdiff_t B)
{
    const RtMatmul shape = { .m = B, .n = int_max, .k = int_max, .tb = true, .bias = export_bias };
    rt_matmul_f32(export_, float_, export_weight, shape);
}

/* restrict[B,int_max] = export[B,int_max] @ restrict_weight[int_max,int_max]' + restrict_bias
 * names.model:10 */
static void k2_restrict(float *restrict restrict_, const float *restrict export_,
                        const float *restrict restrict_weight, const float *restrict restrict_bias,
                        ptrdiff_t B)
{
    const RtMatmul shape = { .m = B, .n = int_max, .k = int_max, .tb = true,
                             .bias = restrict_bias };
    rt_matmul_f32(restrict_, export_, restrict_weight, shape);
}

/* k1_a[B,int_max] = tanh(restrict)
 * rt_exp_a[B,int_max] = exp(k1)
 * rt_exp[B,int_max] = rt_exp_a * n
 * at[B,int_max] = where(1 < rt_exp, rt_exp, -n)
 * where k1 = k1_a + 1
 * names.model:10, 11, 12 */
static void k3_at(float *k1_a_, float *restrict rt_exp_a_, float *restrict rt_exp_,
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

/* p[B,clock] = at[B,int_max] @ s_weight[clock,int_max]' + s_bias  names.model:13 */
static void k4_p(float *restrict p_, const float *restrict at_, const float *restrict s_weight,
                 const float *restrict s_bias, ptrdiff_t B)
{
    const RtMatmul shape = { .m = B, .n = clock, .k = int_max, .tb = true, .bias = s_bias };
    rt_matmul_f32(p_, at_, s_weight, shape);
}

/* logsumexp[B] = (max over clock of p) + log(sum over clock of exp(p - (max over clock of p)))
 * sum_loss += sum over B of where(0 <= label, logsumexp - p[..,label], 0)
 * names.model:14 */
static void k5_logsumexp(float *restrict logsumexp, double *restrict sum_loss,
                         const float *restrict p_, const int32_t *restrict label, ptrdiff_t B)
{
    const int chunks = rt_chunks(B);
    double part_sum_loss[RT_CHUNKS];
    RT_PARALLEL_FOR(1, B*clock)
    for (int chunk = 0; chunk < chunks; chunk++) {
        const ptrdiff_t from = rt_chunk(B, chunk, chunks);
        const ptrdiff_t to = rt_chunk(B, chunk + 1, chunks);
        double total_sum_loss = 0;
        for (ptrdiff_t ib = from; ib < to; ib++) {
            const int32_t a = label[ib];
            float max = -INFINITY;
            float sum = 0;
            for (int iclock = 0; iclock < clock; iclock++) {
                const float b = p_[ib*clock + iclock];
                max = rt_max(max, b);
                sum += iclock == a ? b : 0.0f;
            }
            float c = 0;
            for (int iclock = 0; iclock < clock; iclock++)
                c += rt_exp(p_[ib*clock + iclock] - max);
            const float d = max + rt_log(c);
            logsumexp[ib] = d;
            total_sum_loss += (double)(0 <= a ? d - sum : 0.0f);
        }
        part_sum_loss[chunk] = total_sum_loss;
    }
    *sum_loss += rt_sum_chunks(part_sum_loss, chunks);
}

/* ---- of the backward pass ---- */

/* d_p[B,clock] = where(0 <= label, where(0 <= label, seed_loss, 0) *
 *         (exp(p - logsumexp) - (0..clock == label)), 0)
 * d_s_bias[clock] (+)= sum over B of d_p
 * names.model:14   gradient of k5, k4 */
static void k6_d_p(float *restrict d_p_, float *restrict d_s_bias, float *restrict work,
                   const int32_t *restrict label, const float *restrict p_,
                   const float *restrict logsumexp, float seed_loss, bool add, ptrdiff_t B)
{
    const int chunks = rt_chunks(B);
    RT_PARALLEL_FOR(1, B*clock)
    for (int chunk = 0; chunk < chunks; chunk++) {
        const ptrdiff_t from = rt_chunk(B, chunk, chunks);
        const ptrdiff_t to = rt_chunk(B, chunk + 1, chunks);
        float *restrict part_d_s_bias = rt_zeros_f32(work + chunk*clock, clock);
        for (ptrdiff_t ib = from; ib < to; ib++) {
            const int32_t a = label[ib];
            const bool b = 0 <= a;
            const float c = b ? seed_loss : 0.0f;
            const float d = logsumexp[ib];
            RT_SIMD()
            for (int iclock = 0; iclock < clock; iclock++) {
                const float e = c * (rt_exp(p_[ib*clock + iclock] - d) - (float)(iclock == a));
                const float f = b ? e : 0.0f;
                d_p_[ib*clock + iclock] = f;
                part_d_s_bias[iclock] += f;
            }
        }
    }
    rt_add_rows_f32(d_s_bias, work, chunks, clock, add);
}

/* d_at[B,int_max] = d_p[B,clock] @ s_weight[clock,int_max]  names.model:13   gradient of k4 */
static void k7_d_at(float *restrict d_at, const float *restrict d_p_,
                    const float *restrict s_weight, ptrdiff_t B)
{
    const RtMatmul shape = { .m = B, .n = int_max, .k = clock };
    rt_matmul_f32(d_at, d_p_, s_weight, shape);
}

/* d_s_weight[clock,int_max] (+)= d_p[B,clock]' @ at[B,int_max]  names.model:13   gradient of k4 */
static void k8_d_s_weight(float *restrict d_s_weight, const float *restrict d_p_,
                          const float *restrict at_, bool add, ptrdiff_t B)
{
    const RtMatmul shape = { .m = clock, .n = int_max, .k = B, .ta = true, .add = add };
    rt_matmul_f32(d_s_weight, d_p_, at_, shape);
}

/* d_restrict[B,int_max] = where(1 < rt_exp, d_at * n * rt_exp_a * (1 - k1_a^2), 0)
 * d_restrict_bias[int_max] (+)= sum over B of d_restrict
 * names.model:10, 11, 12   gradient of k3, k2 */
static void k9_d_restrict(float *restrict d_restrict, float *restrict d_restrict_bias,
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

/* d_export[B,int_max] = d_restrict[B,int_max] @ restrict_weight[int_max,int_max]
 * names.model:10   gradient of k2 */
static void k10_d_export(float *restrict d_export, const float *restrict d_restrict,
                         const float *restrict restrict_weight, ptrdiff_t B)
{
    const RtMatmul shape = { .m = B, .n = int_max, .k = int_max };
    rt_matmul_f32(d_export, d_restrict, restrict_weight, shape);
}

/* d_restrict_weight[int_max,int_max] (+)= d_restrict[B,int_max]' @ export[B,int_max]
 * names.model:10   gradient of k2 */
static void k11_d_restrict_weight(float *restrict d_restrict_weight,
                                  const float *restrict d_restrict, const float *restrict export_,
                                  bool add, ptrdiff_t B)
{
    const RtMatmul shape = { .m = int_max, .n = int_max, .k = B, .ta = true, .add = add };
    rt_matmul_f32(d_restrict_weight, d_restrict, export_, shape);
}

/* d_export_bias[int_max] (+)= sum over B of d_export[B,int_max]  names.model:10   gradient of k1 */
static void k12_d_export_bias(float *restrict d_export_bias, const float *restrict d_export,
                              bool add, ptrdiff_t B)
{
    RT_PARALLEL_FOR(1, B*int_max)
    for (int block = 0; block < int_max; block += RT_COLUMNS) {
        const int end = rt_min(block + RT_COLUMNS, int_max);
        float sum[RT_COLUMNS] = { 0 };
        for (ptrdiff_t ib = 0; ib < B; ib++) {
            RT_SIMD()
            for (int iint_max = block; iint_max < end; iint_max++)
                sum[iint_max - block] += d_export[ib*int_max + iint_max];
        }
        RT_SIMD()
        for (int iint_max = block; iint_max < end; iint_max++)
            d_export_bias[iint_max] = add ? d_export_bias[iint_max] + sum[iint_max - block] :
                    sum[iint_max - block];
    }
}

/* d_export_weight[int_max,int_max] (+)= d_export[B,int_max]' @ float[B,int_max]
 * names.model:10   gradient of k1 */
static void k13_d_export_weight(float *restrict d_export_weight, const float *restrict d_export,
                                const float *restrict float_, bool add, ptrdiff_t B)
{
    const RtMatmul shape = { .m = int_max, .n = int_max, .k = B, .ta = true, .add = add };
    rt_matmul_f32(d_export_weight, d_export, float_, shape);
}

/* ---- of evaluation and outputs, where they differ ---- */

/* at[B,int_max] = where(1 < rt_exp, rt_exp, -n)
 * where rt_exp = exp(k1) * n
 * where k1 = tanh(restrict) + 1
 * names.model:12 */
static void k14_at(float *at_, const float *restrict_, const float *restrict n_, ptrdiff_t B)
{
    RT_PARALLEL_SIMD(B*int_max)
    for (ptrdiff_t i = 0; i < B*int_max; i++) {
        const float a = n_[i];
        const float b = rt_exp(rt_tanh(restrict_[i]) + 1) * a;
        at_[i] = 1 < b ? b : -a;
    }
}

/* sum_loss += sum over B of where(0 <= label, (max over clock of p) +
 *         log(sum over clock of exp(p - (max over clock of p))) - p[..,label], 0)
 * names.model:14 */
static void k15_sum_loss(double *restrict sum_loss, const float *restrict p_,
                         const int32_t *restrict label, ptrdiff_t B)
{
    const int chunks = rt_chunks(B);
    double part_sum_loss[RT_CHUNKS];
    RT_PARALLEL_FOR(1, B*clock)
    for (int chunk = 0; chunk < chunks; chunk++) {
        const ptrdiff_t from = rt_chunk(B, chunk, chunks);
        const ptrdiff_t to = rt_chunk(B, chunk + 1, chunks);
        double total_sum_loss = 0;
        for (ptrdiff_t ib = from; ib < to; ib++) {
            const int32_t a = label[ib];
            float max = -INFINITY;
            float sum = 0;
            for (int iclock = 0; iclock < clock; iclock++) {
                const float b = p_[ib*clock + iclock];
                max = rt_max(max, b);
                sum += iclock == a ? b : 0.0f;
            }
            float c = 0;
            for (int iclock = 0; iclock < clock; iclock++)
                c += rt_exp(p_[ib*clock + iclock] - max);
            total_sum_loss += (double)(0 <= a ? max + rt_log(c) - sum : 0.0f);
        }
        part_sum_loss[chunk] = total_sum_loss;
    }
    *sum_loss += rt_sum_chunks(part_sum_loss, chunks);
}

/* count_loss += sum over B of (0 <= label[B])    names.model:14 */
static void k16_count_loss(double *restrict count_loss, const int32_t *restrict label, ptrdiff_t B)
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
    S_loss = 0,                         /* mean(cross_entropy(p, label), whe...  names.model:14 */
};

/* adds what the means divide by, for one micro-step */
static void double__count(const int32_t *label, RtStep *s, Dims n)
{
    /* 1    names.model:14  loss = mean(cross_entropy(p, label), where: label >= 0) */
    k16_count_loss(&s->count[S_loss], label, n.B);
}

/* training: fills the arena and adds to the sums */
static void double__forward(const float *p, const float *float_, const float *n_,
                            const int32_t *label, void *arena, RtStep *s, Dims n)
{
    const Plan at = double__plan(n);
    float *export_ = rt_at_f32(arena, at.export_);     /* [B,int_max] */
    float *restrict_ = rt_at_f32(arena, at.restrict_); /* [B,int_max] */
    float *k1_a_ = rt_at_f32(arena, at.k1_a_);         /* [B,int_max] */
    float *rt_exp_a_ = rt_at_f32(arena, at.rt_exp_a_); /* [B,int_max] */
    float *rt_exp_ = rt_at_f32(arena, at.rt_exp_);     /* [B,int_max] */
    float *at_ = rt_at_f32(arena, at.at_);             /* [B,int_max] */
    float *p_ = rt_at_f32(arena, at.p_);               /* [B,clock] */
    float *logsumexp = rt_at_f32(arena, at.logsumexp); /* [B] */

    /* names.model:10  k1 = tanh(restrict(export(float))) + 1 */
    /* 1    export = float @ export_weight' + export_bias */
    k1_export(export_, float_, p + P_export_weight, p + P_export_bias, n.B);
    RT_CHECK(s, 1, "export[B,int_max]", export_, n.B*int_max);
    /* 2    restrict = export @ restrict_weight' + restrict_bias */
    k2_restrict(restrict_, export_, p + P_restrict_weight, p + P_restrict_bias, n.B);
    RT_CHECK(s, 2, "restrict[B,int_max]", restrict_, n.B*int_max);
    /* names.model:10 goes on */
    /* names.model:11  rt_exp = exp(k1) * n */
    /* names.model:12  at = where(rt_exp > 1, rt_exp, -n) */
    /* 3    at, k1_a, rt_exp_a, rt_exp from restrict, n */
    k3_at(k1_a_, rt_exp_a_, rt_exp_, at_, restrict_, n_, n.B);
    RT_CHECK(s, 3, "k1_a[B,int_max]", k1_a_, n.B*int_max);
    RT_CHECK(s, 3, "rt_exp_a[B,int_max]", rt_exp_a_, n.B*int_max);
    RT_CHECK(s, 3, "rt_exp[B,int_max]", rt_exp_, n.B*int_max);
    RT_CHECK(s, 3, "at[B,int_max]", at_, n.B*int_max);
    /* 4    names.model:13  output p = s(at) */
    k4_p(p_, at_, p + P_s_weight, p + P_s_bias, n.B);
    RT_CHECK(s, 4, "p[B,clock]", p_, n.B*clock);
    /* 5    names.model:14  loss = mean(cross_entropy(p, label), where: label >= 0) */
    k5_logsumexp(logsumexp, &s->sum[S_loss], p_, label, n.B);
    RT_CHECK(s, 5, "logsumexp[B]", logsumexp, n.B);
    RT_CHECK(s, 5, "sum_loss", &s->sum[S_loss], 1);
}

/* evaluation: the same values, kept for no backward pass; adds to the sums */
static void double__evaluate(const float *p, const float *float_, const float *n_,
                             const int32_t *label, void *arena, RtStep *s, Dims n)
{
    const EvalPlan at = double__eval_plan(n);
    float *export_ = rt_at_f32(arena, at.export_);     /* [B,int_max] */
    float *restrict_ = rt_at_f32(arena, at.restrict_); /* [B,int_max] */
    float *at_ = rt_at_f32(arena, at.at_);             /* [B,int_max] */
    float *p_ = rt_at_f32(arena, at.p_);               /* [B,clock] */

    /* names.model:10  k1 = tanh(restrict(export(float))) + 1 */
    /* 1    export = float @ export_weight' + export_bias */
    k1_export(export_, float_, p + P_export_weight, p + P_export_bias, n.B);
    /* 2    restrict = export @ restrict_weight' + restrict_bias */
    k2_restrict(restrict_, export_, p + P_restrict_weight, p + P_restrict_bias, n.B);
    /* 3    names.model:12  at = where(rt_exp > 1, rt_exp, -n) */
    k14_at(at_, restrict_, n_, n.B);
    /* 4    names.model:13  output p = s(at) */
    k4_p(p_, at_, p + P_s_weight, p + P_s_bias, n.B);
    /* 5    names.model:14  loss = mean(cross_entropy(p, label), where: label >= 0) */
    k15_sum_loss(&s->sum[S_loss], p_, label, n.B);
}

/* the outputs, for given inputs */
static void double__outputs(const float *p, const float *float_, const float *n_, float *p_,
                            void *arena, Dims n)
{
    const EvalPlan at = double__eval_plan(n);
    float *export_ = rt_at_f32(arena, at.export_);     /* [B,int_max] */
    float *restrict_ = rt_at_f32(arena, at.restrict_); /* [B,int_max] */
    float *at_ = rt_at_f32(arena, at.at_);             /* [B,int_max] */

    /* names.model:10  k1 = tanh(restrict(export(float))) + 1 */
    /* 1    export = float @ export_weight' + export_bias */
    k1_export(export_, float_, p + P_export_weight, p + P_export_bias, n.B);
    /* 2    restrict = export @ restrict_weight' + restrict_bias */
    k2_restrict(restrict_, export_, p + P_restrict_weight, p + P_restrict_bias, n.B);
    /* 3    names.model:12  at = where(rt_exp > 1, rt_exp, -n) */
    k14_at(at_, restrict_, n_, n.B);
    /* 4    names.model:13  output p = s(at) */
    k4_p(p_, at_, p + P_s_weight, p + P_s_bias, n.B);
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
    float *p_ = rt_at_f32(arena, at.p_);                           /* [B,clock] */
    float *logsumexp = rt_at_f32(arena, at.logsumexp);             /* [B] */
    float *d_p_ = rt_at_f32(arena, at.d_p_);                       /* [B,clock] */
    float *work_d_p = rt_at_f32(arena, at.work_d_p);               /* [RT_CHUNKS,clock] */
    float *d_at = rt_at_f32(arena, at.d_at);                       /* [B,int_max] */
    float *at_ = rt_at_f32(arena, at.at_);                         /* [B,int_max] */
    float *rt_exp_ = rt_at_f32(arena, at.rt_exp_);                 /* [B,int_max] */
    float *rt_exp_a_ = rt_at_f32(arena, at.rt_exp_a_);             /* [B,int_max] */
    float *k1_a_ = rt_at_f32(arena, at.k1_a_);                     /* [B,int_max] */
    float *d_restrict = rt_at_f32(arena, at.d_restrict);           /* [B,int_max] */
    float *work_d_restrict = rt_at_f32(arena, at.work_d_restrict); /* [RT_CHUNKS,int_max] */
    float *d_export = rt_at_f32(arena, at.d_export);               /* [B,int_max] */
    float *export_ = rt_at_f32(arena, at.export_);                 /* [B,int_max] */

    /* 6    undoes 5, 4  names.model:14  d_p, d_s_bias from label, p, logsumexp */
    k6_d_p(d_p_, d_p + P_s_bias, work_d_p, label, p_, logsumexp, (float)s->seed[S_loss], s->add,
           n.B);
    RT_CHECK(s, 6, "d_p[B,clock]", d_p_, n.B*clock);
    RT_CHECK(s, 6, "d_s_bias[clock]", d_p + P_s_bias, clock);
    RT_READY(s, 6, -1); /* sums: s.bias */
    /* 7    undoes 4     names.model:13  d_at = d_p @ s_weight */
    k7_d_at(d_at, d_p_, p + P_s_weight, n.B);
    RT_CHECK(s, 7, "d_at[B,int_max]", d_at, n.B*int_max);
    /* 8    undoes 4     names.model:13  d_s_weight (+)= d_p' @ at */
    k8_d_s_weight(d_p + P_s_weight, d_p_, at_, s->add, n.B);
    RT_CHECK(s, 8, "d_s_weight[clock,int_max]", d_p + P_s_weight, int_max*clock);
    RT_READY(s, 8, -1); /* sums: s.weight */
    /* 9    undoes 3, 2  names.model:10, 11, 12  d_restrict, d_restrict_bias from rt_exp, d_at... */
    k9_d_restrict(d_restrict, d_p + P_restrict_bias, work_d_restrict, rt_exp_, d_at, n_, rt_exp_a_,
                  k1_a_, s->add, n.B);
    RT_CHECK(s, 9, "d_restrict[B,int_max]", d_restrict, n.B*int_max);
    RT_CHECK(s, 9, "d_restrict_bias[int_max]", d_p + P_restrict_bias, int_max);
    RT_READY(s, 9, -1); /* sums: restrict.bias */
    /* 10   undoes 2     names.model:10  d_export = d_restrict @ restrict_weight */
    k10_d_export(d_export, d_restrict, p + P_restrict_weight, n.B);
    RT_CHECK(s, 10, "d_export[B,int_max]", d_export, n.B*int_max);
    /* 11   undoes 2     names.model:10  d_restrict_weight (+)= d_restrict' @ export */
    k11_d_restrict_weight(d_p + P_restrict_weight, d_restrict, export_, s->add, n.B);
    RT_CHECK(s, 11, "d_restrict_weight[int_max,int_max]", d_p + P_restrict_weight, int_max*int_max);
    RT_READY(s, 11, -1); /* sums: restrict.weight */
    /* 12   undoes 1     names.model:10  d_export_bias (+)= sum over B of d_export */
    k12_d_export_bias(d_p + P_export_bias, d_export, s->add, n.B);
    RT_CHECK(s, 12, "d_export_bias[int_max]", d_p + P_export_bias, int_max);
    RT_READY(s, 12, -1); /* sums: export.bias */
    /* 13   undoes 1     names.model:10  d_export_weight (+)= d_export' @ float */
    k13_d_export_weight(d_p + P_export_weight, d_export, float_, s->add, n.B);
    RT_CHECK(s, 13, "d_export_weight[int_max,int_max]", d_p + P_export_weight, int_max*int_max);
    RT_READY(s, 13, -1); /* sums: export.weight */
}

