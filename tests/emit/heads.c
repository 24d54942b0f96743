/* heads.c -- generated from heads.model by gradcc 0.1.
 * Do not edit: edit the model.
 *
 * command   gradcc --emit=c heads.model
 * source    heads.model, 13 lines, crc32 07bee3cf
 * contents  1 dimensions  2 parameters  3 memory map  4 kernels
 *           5 forward     6 backward    7 step        8 model table
 * size      280 parameters; arena 74 KiB at B = 16, T = 16, fullest at step 11 of 14
 */
#include "rt.h"

/* ---- 1 dimensions ------------------------------------------------------- */

enum {                                  /* fixed when the model was compiled */
    V = 11,                             /* tokens    heads.model:2 */
    C = 8,                              /* channels  heads.model:2 */
    H = 2,                              /* heads     heads.model:2 */
};

typedef struct {                        /* known when the program starts */
    ptrdiff_t B;                        /* samples in a micro-step  heads.model:3 */
    ptrdiff_t T;                        /* tokens of a window       heads.model:4 */
} Dims;

/* ---- 2 parameters ------------------------------------------------------- */

/* One flat buffer. A name is the path of declarations that leads to a parameter; layers
 * that the model's file does not show, such as linear and mlp, are those of prelude.model.
 * A linear layer stores [out,in] unless it is declared transposed: it is x @ w'. */

enum {                                  /* first element in the flat buffer */
    P_wte_weight = 0,                   /* [V,C]          heads.model:7 */
    P_qkv_weight = P_wte_weight + V*C,  /* [3*C,C]        heads.model:8 */
    P_COUNT = P_qkv_weight + 3*C*C,
};

static const RtParam heads_params[] = {
    { .path = "wte.weight", .role = RT_EMBEDDING, .decay = true, .rank = 2, .shape = { V, C },
      .at = P_wte_weight, .ready = 14, .init = { RT_NORMAL, 0.02 }, .where = "heads.model:7" },
    { .path = "qkv.weight", .role = RT_WEIGHT, .decay = true, .rank = 2, .shape = { 3*C, C },
      .at = P_qkv_weight, .ready = 13, .init = { RT_UNIFORM, 0.35355339059327373 },
      .where = "heads.model:8" },
};

/* ---- 3 memory map ------------------------------------------------------- */

/* One arena holds what a numbered step of sections 5 and 6 leaves for later ones. Values
 * that are not needed at the same time share bytes: 'over' lists what was there before, 'in
 * place of' means that a step replaces its input. work_* hold partial sums while a step
 * runs. Sizes are known when the program starts, so offsets are formulas: a buffer lies
 * above all that are needed while it is. RT_SIZE rounds up to RT_ALIGN bytes, and
 * rt_above(a, b) is the higher one. */

/* The arena of a training step: 74 KiB at B = 16, T = 16.
 * Offsets and bytes are those at these sizes; written and last read are numbers of
 * steps (sections 5 and 6).
 *
 *   buffer       shape        type      offset       bytes  written  last read
 *   wte          [B,T,C]      f32        49152        8192        1         13
 *   qkv_y        [B,T,3*C]    f32            0       24576        2         11
 *   y            [B,H,T,C/H]  f32        57344        8192        3         11
 *   y_logsumexp  [B,H,T]      f32        73728        2048        3         11
 *   z_a          [B,T,C]      bool       44032        2048        4         10
 *   z            [B,T,C]      f32        35840        8192        4          9
 *   logsumexp_a  [B*T,V]      f32        24576       11264        5          7
 *   logsumexp    [B,T]        f32        46080        1024        6          7
 *   d_z_a        [B,T,V]      f32        24576       11264        7          9
 *       in place of logsumexp_a
 *   d_z          [B,T,C]      f32        65536        8192        8         10
 *   d_y          [B,T,H,C/H]  f32        65536        8192       10         11
 *       in place of d_z
 *   d_qkv_y      [B,T,3*C]    f32        24576       24576       11         13
 *       over z_a, z, logsumexp_a, logsumexp, d_z_a
 *   d_wte        [B,T,C]      f32            0        8192       12         14
 *       over qkv_y
 */

typedef struct { size_t wte, qkv_y, y, y_logsumexp, z_a, z, logsumexp_a, logsumexp, d_z_a, d_z, d_y,
        d_qkv_y, d_wte, bytes; } Plan;

static Plan heads_plan(Dims n)
{
    Plan at;
    at.qkv_y       = 0;
    at.logsumexp_a = at.qkv_y + RT_SIZE(float, 3*n.B*n.T*C);
    at.z           = at.logsumexp_a + RT_SIZE(float, n.B*n.T*V);
    at.z_a         = at.z + RT_SIZE(float, n.B*n.T*C);
    at.logsumexp   = at.z_a + RT_SIZE(bool, n.B*n.T*C);
    at.d_wte       = 0;
    at.d_qkv_y     = at.d_wte + RT_SIZE(float, n.B*n.T*C);
    at.d_qkv_y     = rt_above(at.d_qkv_y, at.qkv_y + RT_SIZE(float, 3*n.B*n.T*C));
    at.wte         = at.logsumexp + RT_SIZE(float, n.B*n.T);
    at.wte         = rt_above(at.wte, at.d_qkv_y + RT_SIZE(float, 3*n.B*n.T*C));
    at.y           = at.wte + RT_SIZE(float, n.B*n.T*C);
    at.d_z         = at.y + RT_SIZE(float, n.B*n.T*C);
    at.y_logsumexp = at.d_z + RT_SIZE(float, n.B*n.T*C);
    at.d_z_a       = at.logsumexp_a;
    at.d_y         = at.d_z;
    at.bytes       = at.y_logsumexp + RT_SIZE(float, n.B*n.T*H);
    return at;
}

/* The arena of an evaluation: 34 KiB at B = 16, T = 16.
 * Offsets and bytes are those at these sizes; written and last read are numbers of
 * steps (section 5).
 *
 *   buffer       shape        type      offset       bytes  written  last read
 *   wte          [B,T,C]      f32        24576        8192        1          2
 *   qkv_y        [B,T,3*C]    f32            0       24576        2          3
 *   y            [B,T,H,C/H]  f32        24576        8192        3          4
 *       over wte
 *   y_logsumexp  [B,H,T]      f32        32768        2048        3          3
 *   loss_a       [B*T,V]      f32            0       11264        4          5
 *       over qkv_y
 */

typedef struct { size_t wte, qkv_y, y, y_logsumexp, loss_a, bytes; } EvalPlan;

static EvalPlan heads_eval_plan(Dims n)
{
    EvalPlan at;
    at.qkv_y       = 0;
    at.wte         = at.qkv_y + RT_SIZE(float, 3*n.B*n.T*C);
    at.loss_a      = 0;
    at.y           = at.loss_a + RT_SIZE(float, n.B*n.T*V);
    at.y           = rt_above(at.y, at.qkv_y + RT_SIZE(float, 3*n.B*n.T*C));
    at.y_logsumexp = at.y + RT_SIZE(float, n.B*n.T*C);
    at.bytes       = at.wte + RT_SIZE(float, n.B*n.T*C);
    at.bytes       = rt_above(at.bytes, at.y_logsumexp + RT_SIZE(float, n.B*n.T*H));
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

/* wte[B,T,C] = wte_weight[tokens[B,T]]           heads.model:9 */
static void k1_wte(float *restrict wte, const int32_t *restrict tokens,
                   const float *restrict wte_weight, ptrdiff_t B, ptrdiff_t T)
{
    RT_PARALLEL_FOR(1, B*T*C)
    for (ptrdiff_t i = 0; i < B*T; i++) {
        const int32_t a = tokens[i];
        RT_SIMD()
        for (int ic = 0; ic < C; ic++)
            wte[i*C + ic] = wte_weight[(ptrdiff_t)a*C + ic];
    }
}

/* qkv_y[B,T,3*C] = wte[B,T,C] @ qkv_weight[3*C,C]'  heads.model:9 */
static void k2_qkv_y(float *restrict qkv_y, const float *restrict wte,
                     const float *restrict qkv_weight, ptrdiff_t B, ptrdiff_t T)
{
    const RtMatmul shape = { .m = B*T, .n = 3*C, .k = C, .tb = true };
    rt_matmul_f32(qkv_y, wte, qkv_weight, shape);
}

/* y[B,H,T,C/H] = softmax(q @ k' / sqrt(C/H), causal) @ v
 * y_logsumexp[B,H,T] = log of the sum that the softmax of a query divides by
 * where q, k and v are parts of qkv_y, head by head
 * where causal leaves out the keys after the query
 * heads.model:10 */
static void k3_y(float *restrict y, float *restrict y_logsumexp, const float *q, const float *k,
                 const float *v, ptrdiff_t B, ptrdiff_t T)
{
    const RtAttention shape = { .B = B, .H = H, .T = T, .S = T, .D = C/H, .E = C/H,
                                .scale = 1 / sqrt((double)(C/H)), .causal = true,
                                .q = { 3*T*C, C/H, 3*C }, .k = { 3*T*C, C/H, 3*C },
                                .v = { 3*T*C, C/H, 3*C }, .y = { T*C, T*C/H, C/H } };
    rt_attention_f32(y, y_logsumexp, q, k, v, shape);
}

/* z_a[B,T,C] = uniform < 0.8
 * z[B,T,C] = where(z_a, y * 1.25, 0)
 * heads.model:11 */
static void k4_z(bool *restrict z_a, float *restrict z, const float *restrict y, RtKey key,
                 int64_t sample, ptrdiff_t B, ptrdiff_t T)
{
    RT_PARALLEL_FOR(3, B*T*C)
    for (ptrdiff_t ib = 0; ib < B; ib++)
        for (ptrdiff_t it = 0; it < T; it++)
            for (int ih = 0; ih < H; ih++) {
                RT_SIMD()
                for (int i3 = 0; i3 < C/H; i3++) {
                    const float a = rt_uniform_f32(key, 0xd0012963bda11c1eu,
                            (uint64_t)(sample + ib), (uint64_t)(it*C + ih*(C/H) + i3));
                    const bool b = a < 0.8f;
                    z_a[ib*T*C + it*C + ih*(C/H) + i3] = b;
                    z[ib*T*C + it*C + ih*(C/H) + i3] = b ? y[ib*T*C + it*(C/H) + ih*(T*C/H) + i3] *
                            1.25f : 0.0f;
                }
            }
}

/* logsumexp_a[B*T,V] = z[B,T,C] @ wte_weight[V,C]'  heads.model:12 */
static void k5_logsumexp_a(float *restrict logsumexp_a, const float *restrict z,
                           const float *restrict wte_weight, ptrdiff_t B, ptrdiff_t T)
{
    const RtMatmul shape = { .m = B*T, .n = V, .k = C, .tb = true };
    rt_matmul_f32(logsumexp_a, z, wte_weight, shape);
}

/* logsumexp[B,T] = (max over V of logsumexp_a) + log(sum over V of
 *         exp(logsumexp_a - (max over V of logsumexp_a)))
 * sum_loss += sum over B,T of where(0 <= targets, logsumexp - logsumexp_a[..,targets], 0)
 * heads.model:12 */
static void k6_logsumexp(float *restrict logsumexp, double *restrict sum_loss,
                         const float *restrict logsumexp_a, const int32_t *restrict targets,
                         ptrdiff_t B, ptrdiff_t T)
{
    const int chunks = rt_chunks(B*T);
    double part_sum_loss[RT_CHUNKS];
    RT_PARALLEL_FOR(1, B*T*V)
    for (int chunk = 0; chunk < chunks; chunk++) {
        const ptrdiff_t from = rt_chunk(B*T, chunk, chunks);
        const ptrdiff_t to = rt_chunk(B*T, chunk + 1, chunks);
        double total_sum_loss = 0;
        for (ptrdiff_t i = from; i < to; i++) {
            const int32_t a = targets[i];
            float max = -INFINITY;
            float sum = 0;
            for (int iv = 0; iv < V; iv++) {
                const float b = logsumexp_a[i*V + iv];
                max = rt_max(max, b);
                sum += iv == a ? b : 0.0f;
            }
            float c = 0;
            for (int iv = 0; iv < V; iv++)
                c += rt_exp(logsumexp_a[i*V + iv] - max);
            const float d = max + rt_log(c);
            logsumexp[i] = d;
            total_sum_loss += (double)(0 <= a ? d - sum : 0.0f);
        }
        part_sum_loss[chunk] = total_sum_loss;
    }
    *sum_loss += rt_sum_chunks(part_sum_loss, chunks);
}

/* ---- of the backward pass ---- */

/* d_z_a[B,T,V] = where(0 <= targets, where(0 <= targets, seed_loss, 0) *
 *         (exp(logsumexp_a - logsumexp) - (0..V == targets)), 0)
 * heads.model:12   gradient of k6 */
static void k7_d_z_a(float *d_z_a, const int32_t *restrict targets, const float *logsumexp_a,
                     const float *restrict logsumexp, float seed_loss, ptrdiff_t B, ptrdiff_t T)
{
    RT_PARALLEL_FOR(1, B*T*V)
    for (ptrdiff_t i = 0; i < B*T; i++) {
        const int32_t a = targets[i];
        const bool b = 0 <= a;
        const float c = b ? seed_loss : 0.0f;
        const float d = logsumexp[i];
        RT_SIMD()
        for (int iv = 0; iv < V; iv++) {
            const float e = c * (rt_exp(logsumexp_a[i*V + iv] - d) - (float)(iv == a));
            d_z_a[i*V + iv] = b ? e : 0.0f;
        }
    }
}

/* d_z[B,T,C] = d_z_a[B,T,V] @ wte_weight[V,C]    heads.model:12   gradient of k5 */
static void k8_d_z(float *restrict d_z, const float *restrict d_z_a,
                   const float *restrict wte_weight, ptrdiff_t B, ptrdiff_t T)
{
    const RtMatmul shape = { .m = B*T, .n = C, .k = V };
    rt_matmul_f32(d_z, d_z_a, wte_weight, shape);
}

/* d_wte_weight[V,C] (+)= d_z_a[B,T,V]' @ z[B,T,C]  heads.model:12   gradient of k5 */
static void k9_d_wte_weight(float *restrict d_wte_weight, const float *restrict d_z_a,
                            const float *restrict z, bool add, ptrdiff_t B, ptrdiff_t T)
{
    const RtMatmul shape = { .m = V, .n = C, .k = B*T, .ta = true, .add = add };
    rt_matmul_f32(d_wte_weight, d_z_a, z, shape);
}

/* d_y[B,T,H,C/H] = where(z_a[B,T,C], d_z[B,T,C] * 1.25, 0)  heads.model:11   gradient of k4 */
static void k10_d_y(float *d_y, const bool *restrict z_a, const float *d_z, ptrdiff_t B,
                    ptrdiff_t T)
{
    RT_PARALLEL_SIMD(B*T*C)
    for (ptrdiff_t i = 0; i < B*T*C; i++)
        d_y[i] = z_a[i] ? d_z[i] * 1.25f : 0.0f;
}

/* d_v = prob' @ d_y
 * d_q = d_s @ k / sqrt(C/H)
 * d_k = d_s' @ q / sqrt(C/H)
 * where prob = exp(q @ k' / sqrt(C/H) - y_logsumexp), and 0 for keys after the query (causal)
 * where d_s = prob * (d_y @ v' - sum of d_y * y over the width of a head)
 * where d_q, d_k and d_v are parts of d_qkv_y, head by head
 * where q, k and v are parts of qkv_y, head by head
 * heads.model:10   gradient of k3 */
static void k11_d_qkv_y(float *d_q, float *d_k, float *d_v, const float *q, const float *k,
                        const float *v, const float *restrict y, const float *restrict y_logsumexp,
                        const float *restrict d_y, ptrdiff_t B, ptrdiff_t T)
{
    const RtAttention shape = { .B = B, .H = H, .T = T, .S = T, .D = C/H, .E = C/H,
                                .scale = 1 / sqrt((double)(C/H)), .causal = true,
                                .q = { 3*T*C, C/H, 3*C }, .k = { 3*T*C, C/H, 3*C },
                                .v = { 3*T*C, C/H, 3*C }, .y = { T*C, T*C/H, C/H },
                                .d_q = { 3*T*C, C/H, 3*C }, .d_k = { 3*T*C, C/H, 3*C },
                                .d_v = { 3*T*C, C/H, 3*C }, .d_y = { T*C, C/H, C } };
    rt_attention_grad_f32(d_q, d_k, d_v, q, k, v, y, y_logsumexp, d_y, shape);
}

/* d_wte[B,T,C] = d_qkv_y[B,T,3*C] @ qkv_weight[3*C,C]  heads.model:9   gradient of k2 */
static void k12_d_wte(float *restrict d_wte, const float *restrict d_qkv_y,
                      const float *restrict qkv_weight, ptrdiff_t B, ptrdiff_t T)
{
    const RtMatmul shape = { .m = B*T, .n = C, .k = 3*C };
    rt_matmul_f32(d_wte, d_qkv_y, qkv_weight, shape);
}

/* d_qkv_weight[3*C,C] (+)= d_qkv_y[B,T,3*C]' @ wte[B,T,C]  heads.model:9   gradient of k2 */
static void k13_d_qkv_weight(float *restrict d_qkv_weight, const float *restrict d_qkv_y,
                             const float *restrict wte, bool add, ptrdiff_t B, ptrdiff_t T)
{
    const RtMatmul shape = { .m = 3*C, .n = C, .k = B*T, .ta = true, .add = add };
    rt_matmul_f32(d_qkv_weight, d_qkv_y, wte, shape);
}

/* d_wte_weight[V,C] += rows d_wte[B,T,C] added at tokens[B,T]  heads.model:9   gradient of k1 */
static void k14_d_wte_weight(float *restrict d_wte_weight, const int32_t *restrict tokens,
                             const float *restrict d_wte, ptrdiff_t B, ptrdiff_t T)
{
    RT_PARALLEL_FOR(1, B*T*C)
    for (int block = 0; block < C; block += RT_COLUMNS) {
        const int end = rt_min(block + RT_COLUMNS, C);
        for (ptrdiff_t i = 0; i < B*T; i++) {
            float *to_row = d_wte_weight + (ptrdiff_t)tokens[i]*C;
            RT_SIMD()
            for (int j = block; j < end; j++)
                to_row[j] += d_wte[i*C + j];
        }
    }
}

/* ---- of evaluation and outputs, where they differ ---- */

/* y[B,T,H,C/H] = softmax(q @ k' / sqrt(C/H), causal) @ v
 * y_logsumexp[B,H,T] = log of the sum that the softmax of a query divides by
 * where q, k and v are parts of qkv_y, head by head
 * where causal leaves out the keys after the query
 * heads.model:10 */
static void k15_y(float *restrict y, float *restrict y_logsumexp, const float *q, const float *k,
                  const float *v, ptrdiff_t B, ptrdiff_t T)
{
    const RtAttention shape = { .B = B, .H = H, .T = T, .S = T, .D = C/H, .E = C/H,
                                .scale = 1 / sqrt((double)(C/H)), .causal = true,
                                .q = { 3*T*C, C/H, 3*C }, .k = { 3*T*C, C/H, 3*C },
                                .v = { 3*T*C, C/H, 3*C }, .y = { T*C, C/H, C } };
    rt_attention_f32(y, y_logsumexp, q, k, v, shape);
}

/* loss_a[B*T,V] = y[B,T,H,C/H] @ wte_weight[V,C]'  heads.model:12 */
static void k16_loss_a(float *restrict loss_a, const float *restrict y,
                       const float *restrict wte_weight, ptrdiff_t B, ptrdiff_t T)
{
    const RtMatmul shape = { .m = B*T, .n = V, .k = C, .tb = true };
    rt_matmul_f32(loss_a, y, wte_weight, shape);
}

/* sum_loss += sum over B,T of where(0 <= targets, (max over V of loss_a) +
 *         log(sum over V of exp(loss_a - (max over V of loss_a))) - loss_a[..,targets], 0)
 * heads.model:12 */
static void k17_sum_loss(double *restrict sum_loss, const float *restrict loss_a,
                         const int32_t *restrict targets, ptrdiff_t B, ptrdiff_t T)
{
    const int chunks = rt_chunks(B*T);
    double part_sum_loss[RT_CHUNKS];
    RT_PARALLEL_FOR(1, B*T*V)
    for (int chunk = 0; chunk < chunks; chunk++) {
        const ptrdiff_t from = rt_chunk(B*T, chunk, chunks);
        const ptrdiff_t to = rt_chunk(B*T, chunk + 1, chunks);
        double total_sum_loss = 0;
        for (ptrdiff_t i = from; i < to; i++) {
            const int32_t a = targets[i];
            float max = -INFINITY;
            float sum = 0;
            for (int iv = 0; iv < V; iv++) {
                const float b = loss_a[i*V + iv];
                max = rt_max(max, b);
                sum += iv == a ? b : 0.0f;
            }
            float c = 0;
            for (int iv = 0; iv < V; iv++)
                c += rt_exp(loss_a[i*V + iv] - max);
            total_sum_loss += (double)(0 <= a ? max + rt_log(c) - sum : 0.0f);
        }
        part_sum_loss[chunk] = total_sum_loss;
    }
    *sum_loss += rt_sum_chunks(part_sum_loss, chunks);
}

/* count_loss += sum over B,T of (0 <= targets[B,T])  heads.model:12 */
static void k18_count_loss(double *restrict count_loss, const int32_t *restrict targets,
                           ptrdiff_t B, ptrdiff_t T)
{
    const int chunks = rt_chunks(B*T);
    double part_count_loss[RT_CHUNKS];
    RT_PARALLEL_FOR(1, B*T)
    for (int chunk = 0; chunk < chunks; chunk++) {
        const ptrdiff_t from = rt_chunk(B*T, chunk, chunks);
        const ptrdiff_t to = rt_chunk(B*T, chunk + 1, chunks);
        double total_count_loss = 0;
        double count_loss_lanes[RT_LANES] = { 0 };
        for (ptrdiff_t block = from; block < to; block += RT_LANES) {
            const ptrdiff_t end = rt_min(block + RT_LANES, to);
            RT_SIMD()
            for (ptrdiff_t i = block; i < end; i++)
                count_loss_lanes[i - block] += (double)(float)(0 <= targets[i]);
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
    S_loss = 0,                         /* mean(cross_entropy(z @ wte.weight...  heads.model:12 */
};

/* adds what the means divide by, for one micro-step */
static void heads_count(const int32_t *targets, RtStep *s, Dims n)
{
    /* 1    heads.model:12  loss = mean(cross_entropy(z @ wte.weight', targets), where: target... */
    k18_count_loss(&s->count[S_loss], targets, n.B, n.T);
}

/* training: fills the arena and adds to the sums */
static void heads_forward(const float *p, const int32_t *tokens, const int32_t *targets,
                          void *arena, RtStep *s, Dims n)
{
    const Plan at = heads_plan(n);
    float *wte = rt_at_f32(arena, at.wte);                 /* [B,T,C] */
    float *qkv_y = rt_at_f32(arena, at.qkv_y);             /* [B,T,3*C] */
    float *y = rt_at_f32(arena, at.y);                     /* [B,H,T,C/H] */
    float *y_logsumexp = rt_at_f32(arena, at.y_logsumexp); /* [B,H,T] */
    bool *z_a = rt_at_bool(arena, at.z_a);                 /* [B,T,C] */
    float *z = rt_at_f32(arena, at.z);                     /* [B,T,C] */
    float *logsumexp_a = rt_at_f32(arena, at.logsumexp_a); /* [B*T,V] */
    float *logsumexp = rt_at_f32(arena, at.logsumexp);     /* [B,T] */

    /* heads.model:9  q, k, v = split(qkv(wte(tokens)), 3) */
    /* 1    wte = wte_weight[tokens] */
    k1_wte(wte, tokens, p + P_wte_weight, n.B, n.T);
    RT_CHECK(s, 1, "wte[B,T,C]", wte, n.B*n.T*C);
    /* 2    qkv_y = wte @ qkv_weight' */
    k2_qkv_y(qkv_y, wte, p + P_qkv_weight, n.B, n.T);
    RT_CHECK(s, 2, "qkv_y[B,T,3*C]", qkv_y, 3*n.B*n.T*C);
    /* 3    heads.model:10  y = attention(heads(q, H), heads(k, H), heads(v, H), causal: true) */
    k3_y(y, y_logsumexp, qkv_y, qkv_y + C, qkv_y + 2*C, n.B, n.T);
    RT_CHECK(s, 3, "y[B,H,T,C/H]", y, n.B*n.T*C);
    RT_CHECK(s, 3, "y_logsumexp[B,H,T]", y_logsumexp, n.B*n.T*H);
    /* 4    heads.model:11  z = dropout(merge_heads(y), 0.2) */
    k4_z(z_a, z, y, s->key, s->sample, n.B, n.T);
    RT_CHECK(s, 4, "z[B,T,C]", z, n.B*n.T*C);
    /* heads.model:12  loss = mean(cross_entropy(z @ wte.weight', targets), where: targets >= 0) */
    /* 5    logsumexp_a = z @ wte_weight' */
    k5_logsumexp_a(logsumexp_a, z, p + P_wte_weight, n.B, n.T);
    RT_CHECK(s, 5, "logsumexp_a[B*T,V]", logsumexp_a, n.B*n.T*V);
    /* 6    logsumexp, sum_loss from logsumexp_a, targets */
    k6_logsumexp(logsumexp, &s->sum[S_loss], logsumexp_a, targets, n.B, n.T);
    RT_CHECK(s, 6, "logsumexp[B,T]", logsumexp, n.B*n.T);
    RT_CHECK(s, 6, "sum_loss", &s->sum[S_loss], 1);
}

/* evaluation: the same values, kept for no backward pass; adds to the sums */
static void heads_evaluate(const float *p, const int32_t *tokens, const int32_t *targets,
                           void *arena, RtStep *s, Dims n)
{
    const EvalPlan at = heads_eval_plan(n);
    float *wte = rt_at_f32(arena, at.wte);                 /* [B,T,C] */
    float *qkv_y = rt_at_f32(arena, at.qkv_y);             /* [B,T,3*C] */
    float *y = rt_at_f32(arena, at.y);                     /* [B,T,H,C/H] */
    float *y_logsumexp = rt_at_f32(arena, at.y_logsumexp); /* [B,H,T] */
    float *loss_a = rt_at_f32(arena, at.loss_a);           /* [B*T,V] */

    /* heads.model:9  q, k, v = split(qkv(wte(tokens)), 3) */
    /* 1    wte = wte_weight[tokens] */
    k1_wte(wte, tokens, p + P_wte_weight, n.B, n.T);
    /* 2    qkv_y = wte @ qkv_weight' */
    k2_qkv_y(qkv_y, wte, p + P_qkv_weight, n.B, n.T);
    /* 3    heads.model:10  y = attention(heads(q, H), heads(k, H), heads(v, H), causal: true) */
    k15_y(y, y_logsumexp, qkv_y, qkv_y + C, qkv_y + 2*C, n.B, n.T);
    /* heads.model:12  loss = mean(cross_entropy(z @ wte.weight', targets), where: targets >= 0) */
    /* 4    loss_a = y @ wte_weight' */
    k16_loss_a(loss_a, y, p + P_wte_weight, n.B, n.T);
    /* 5    sum_loss from loss_a, targets */
    k17_sum_loss(&s->sum[S_loss], loss_a, targets, n.B, n.T);
}

/* ---- 6 backward: the steps of section 5, last first --------------------- */

/* From the loss back. d_x is d loss / d x; seed_* is d loss / d sum_*, the weight of
 * the mean / its count in the whole update, over all micro-steps (and ranks, where
 * several processes train together). An addition hands its gradient on to its terms
 * as it is, so it has no step here, and one d_x may belong to a sum and to its terms.
 * A value that is used twice gets the sum of two gradients; a bias, the sum over all
 * rows. */

/* gradients: the first write of an update replaces, later ones add */
static void heads_backward(const float *p, float *d_p, const int32_t *tokens,
                           const int32_t *targets, void *arena, const RtStep *s, Dims n)
{
    const Plan at = heads_plan(n);
    float *logsumexp_a = rt_at_f32(arena, at.logsumexp_a); /* [B*T,V] */
    float *logsumexp = rt_at_f32(arena, at.logsumexp);     /* [B,T] */
    float *d_z_a = rt_at_f32(arena, at.d_z_a);             /* [B,T,V] */
    float *d_z = rt_at_f32(arena, at.d_z);                 /* [B,T,C] */
    float *z = rt_at_f32(arena, at.z);                     /* [B,T,C] */
    bool *z_a = rt_at_bool(arena, at.z_a);                 /* [B,T,C] */
    float *d_y = rt_at_f32(arena, at.d_y);                 /* [B,T,H,C/H] */
    float *d_qkv_y = rt_at_f32(arena, at.d_qkv_y);         /* [B,T,3*C] */
    float *qkv_y = rt_at_f32(arena, at.qkv_y);             /* [B,T,3*C] */
    float *y = rt_at_f32(arena, at.y);                     /* [B,H,T,C/H] */
    float *y_logsumexp = rt_at_f32(arena, at.y_logsumexp); /* [B,H,T] */
    float *d_wte = rt_at_f32(arena, at.d_wte);             /* [B,T,C] */
    float *wte = rt_at_f32(arena, at.wte);                 /* [B,T,C] */

    /* 7    undoes 6     heads.model:12  d_z_a from targets, logsumexp_a, logsumexp */
    k7_d_z_a(d_z_a, targets, logsumexp_a, logsumexp, (float)s->seed[S_loss], n.B, n.T);
    RT_CHECK(s, 7, "d_z_a[B,T,V]", d_z_a, n.B*n.T*V);
    /* 8    undoes 5     heads.model:12  d_z = d_z_a @ wte_weight */
    k8_d_z(d_z, d_z_a, p + P_wte_weight, n.B, n.T);
    RT_CHECK(s, 8, "d_z[B,T,C]", d_z, n.B*n.T*C);
    /* 9    undoes 5     heads.model:12  d_wte_weight (+)= d_z_a' @ z */
    k9_d_wte_weight(d_p + P_wte_weight, d_z_a, z, s->add, n.B, n.T);
    RT_CHECK(s, 9, "d_wte_weight[V,C]", d_p + P_wte_weight, V*C);
    /* 10   undoes 4     heads.model:11  d_y = where(z_a, d_z * 1.25, 0) */
    k10_d_y(d_y, z_a, d_z, n.B, n.T);
    RT_CHECK(s, 10, "d_y[B,T,H,C/H]", d_y, n.B*n.T*C);
    /* 11   undoes 3     heads.model:10  d_q, d_k, d_v, parts of d_qkv_y */
    k11_d_qkv_y(d_qkv_y, d_qkv_y + C, d_qkv_y + 2*C, qkv_y, qkv_y + C, qkv_y + 2*C, y, y_logsumexp,
                d_y, n.B, n.T);
    RT_CHECK_GRID(s, 11, "d_qkv_y, its part d_q", d_qkv_y, { n.B*n.T, 3*C }, { C, 1 });
    RT_CHECK_GRID(s, 11, "d_qkv_y, its part d_k", d_qkv_y + C, { n.B*n.T, 3*C }, { C, 1 });
    RT_CHECK_GRID(s, 11, "d_qkv_y, its part d_v", d_qkv_y + 2*C, { n.B*n.T, 3*C }, { C, 1 });
    /* 12   undoes 2     heads.model:9  d_wte = d_qkv_y @ qkv_weight */
    k12_d_wte(d_wte, d_qkv_y, p + P_qkv_weight, n.B, n.T);
    RT_CHECK(s, 12, "d_wte[B,T,C]", d_wte, n.B*n.T*C);
    /* 13   undoes 2     heads.model:9  d_qkv_weight (+)= d_qkv_y' @ wte */
    k13_d_qkv_weight(d_p + P_qkv_weight, d_qkv_y, wte, s->add, n.B, n.T);
    RT_CHECK(s, 13, "d_qkv_weight[3*C,C]", d_p + P_qkv_weight, 3*C*C);
    RT_READY(s, 13, -1); /* sums: qkv.weight */
    /* 14   undoes 1     heads.model:9  d_wte_weight += rows d_wte added at tokens */
    k14_d_wte_weight(d_p + P_wte_weight, tokens, d_wte, n.B, n.T);
    RT_CHECK(s, 14, "d_wte_weight[V,C]", d_p + P_wte_weight, V*C);
    RT_READY(s, 14, -1); /* sums: wte.weight */
}

