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
 * k6_x is called by a step, on the host; it launches g6_x, which runs on the device, or
 * calls a library. RT_LAUNCH(stream, line, kernel, grid, block, shared bytes, ...): grid is
 * a count of blocks, block of threads in each. s is the step in device memory.
 * A __global__ function starts with who a thread is: lane is its place in a warp, warp
 * that of the warp in the block, at the first element of a vector, e the element in it.
 * RtVec<T, N> holds N elements in registers; rt_load and rt_store move them, 16 bytes at a
 * time, rt_load_part and rt_store_part those that a row ends with; x_row is what a thread
 * keeps of a row. rt_warp_sum, rt_block_sum and so on give every thread the sum over the
 * warp or the block. Sums over rows that blocks share are made over fixed ranges of rows,
 * at most three for each of 132 multiprocessors, whose partial results in work_* (ranges,
 * sums, columns) rt_add_parts adds in one order: so the device changes no bit. */

static_assert(C == 8 && L == 3, "kernels are made for these sizes: compile the model again");

enum {                                  /* means over the data, sum / count: places in RtStep */
    S_loss = 0,                         /* mean((z - y)^2)  stack.model:15 */
};

/* z[B,C] = x[B,C]                                stack.model:11
 * grid rt_blocks(B*C, 256), block 256: a thread has 1 element */
static __global__ void __launch_bounds__(256)
g1_z(float *restrict z, const float *restrict x, ptrdiff_t B)
{
    const ptrdiff_t i = (ptrdiff_t)blockIdx.x*256 + threadIdx.x;
    if (i >= B*C)
        return;
    z[i] = x[i];
}

static void k1_z(float *restrict z, const float *restrict x, ptrdiff_t B, RtStream *stream)
{
    RT_LAUNCH(stream, "stack.model:11", g1_z, rt_blocks(B*C, 256), 256, 0, z, x, B);
}

/* h_norm_mu[B] = (sum over C of z) / C
 * h_norm_rstd[B] = rsqrt((sum over C of h_norm_centred^2) / C + 1e-05)
 * h_norm_y[B,C] = h_norm_centred * h_norm_rstd * h_norm_weight
 * where h_norm_centred = z - h_norm_mu
 * stack.model:8
 * grid rt_blocks(B, 128), block 128: a thread per row */
static __global__ void __launch_bounds__(128)
g2_h_norm_y(float *restrict h_norm_mu, float *restrict h_norm_rstd, float *restrict h_norm_y,
            const float *restrict z, const float *restrict h_norm_weight, ptrdiff_t B)
{
    const ptrdiff_t ib = (ptrdiff_t)blockIdx.x*128 + (int)threadIdx.x;
    if (ib >= B)
        return;
    float sum = 0;
    for (int ic = 0; ic < C; ic++) {
        sum += z[ib*C + ic];
    }
    const float a = sum / (float)C;
    float b = 0;
    for (int ic = 0; ic < C; ic++) {
        const float h_norm_centred = z[ib*C + ic] - a;
        b += h_norm_centred * h_norm_centred;
    }
    h_norm_mu[ib] = a;
    const float c = rt_rsqrt(b / (float)C + 1e-05f);
    for (int ic = 0; ic < C; ic++) {
        h_norm_y[ib*C + ic] = (z[ib*C + ic] - a) * c * h_norm_weight[ic];
    }
    h_norm_rstd[ib] = c;
}

static void k2_h_norm_y(float *restrict h_norm_mu, float *restrict h_norm_rstd,
                        float *restrict h_norm_y, const float *restrict z,
                        const float *restrict h_norm_weight, ptrdiff_t B, RtStream *stream)
{
    RT_LAUNCH(stream, "stack.model:8", g2_h_norm_y, rt_blocks(B, 128), 128, 0, h_norm_mu,
              h_norm_rstd, h_norm_y, z, h_norm_weight, B);
}

/* h_lin[B,C] = h_norm_y[B,C] @ h_lin_weight[C,C]' + h_lin_bias  stack.model:8 */
static void k3_h_lin(float *restrict h_lin, const float *restrict h_norm_y,
                     const float *restrict h_lin_weight, const float *restrict h_lin_bias,
                     ptrdiff_t B, RtStream *stream)
{
    const RtMatmul shape = { .m = B, .n = C, .k = C, .tb = true, .bias = h_lin_bias };
    stream->where = "stack.model:8";
    rt_matmul_f32(h_lin, h_norm_y, h_lin_weight, shape, stream);
}

/* z[B,C] = z + 0.5 * h_lin * (1 + tanh(h_inner))
 * where h_inner = 0.7978846 * (h_lin + 0.044715 * h_lin^3)
 * stack.model:8
 * grid rt_blocks(B*C, 1024), block 256: a thread has 4 elements side by side */
static __global__ void __launch_bounds__(256)
g4_z(float *z_next, const float *z, const float *restrict h_lin, ptrdiff_t B)
{
    const ptrdiff_t at = ((ptrdiff_t)blockIdx.x*256 + threadIdx.x)*4;
    if (at >= B*C)
        return;
    const RtVec<float, 4> z_v = rt_load<4>(z + at);
    const RtVec<float, 4> h_lin_v = rt_load<4>(h_lin + at);
    RtVec<float, 4> z_next_out;
    RT_UNROLL
    for (int e = 0; e < 4; e++) {
        const float a = h_lin_v[e];
        const float b = 0.5f * a * (1 + rt_tanh(0.7978846f * (a + 0.044715f * (a * a * a))));
        z_next_out[e] = z_v[e] + b;
    }
    rt_store(z_next + at, z_next_out);
}

static void k4_z(float *z_next, const float *z, const float *restrict h_lin, ptrdiff_t B,
                 RtStream *stream)
{
    RT_LAUNCH(stream, "stack.model:8", g4_z, rt_blocks(B*C, 1024), 256, 0, z_next, z, h_lin, B);
}

/* loss_a[B,C] = z - y
 * sum_loss += sum over B,C of loss_a^2
 * stack.model:15
 * grid 1, block 1024: one block has all, for it stores the sum; a thread has 1 element of every
 * 1024 */
static __global__ void __launch_bounds__(1024)
g5_sum_loss(float *restrict loss_a, double *restrict sum_loss, const float *restrict z,
            const float *restrict y, ptrdiff_t B)
{
    double total_sum_loss = 0;
    for (ptrdiff_t i = (ptrdiff_t)blockIdx.x*1024 + threadIdx.x; i < B*C; i += 1024) {
        const float a = z[i] - y[i];
        loss_a[i] = a;
        total_sum_loss += (double)(a * a);
    }
    total_sum_loss = rt_block_sum(total_sum_loss);
    if (threadIdx.x == 0)
        *sum_loss += total_sum_loss;
}

static void k5_sum_loss(float *restrict loss_a, double *restrict sum_loss, const float *restrict z,
                        const float *restrict y, ptrdiff_t B, RtStream *stream)
{
    RT_LAUNCH(stream, "stack.model:15", g5_sum_loss, 1, 1024, 0, loss_a, sum_loss, z, y, B);
}

/* ---- of the backward pass ---- */

/* d_z[B,C] = seed_loss * 2 * loss_a[B,C]         stack.model:15   gradient of k5
 * grid rt_blocks(B*C, 1024), block 256: a thread has 4 elements side by side */
static __global__ void __launch_bounds__(256)
g6_d_z(float *d_z, const float *loss_a, const RtStep *s, ptrdiff_t B)
{
    const float seed_loss = (float)s->seed[S_loss];
    const float a = seed_loss * 2;
    const ptrdiff_t at = ((ptrdiff_t)blockIdx.x*256 + threadIdx.x)*4;
    if (at >= B*C)
        return;
    const RtVec<float, 4> loss_a_v = rt_load<4>(loss_a + at);
    RtVec<float, 4> d_z_out;
    RT_UNROLL
    for (int e = 0; e < 4; e++)
        d_z_out[e] = a * loss_a_v[e];
    rt_store(d_z + at, d_z_out);
}

static void k6_d_z(float *d_z, const float *loss_a, const RtStep *s, ptrdiff_t B, RtStream *stream)
{
    RT_LAUNCH(stream, "stack.model:15", g6_d_z, rt_blocks(B*C, 1024), 256, 0, d_z, loss_a, s, B);
}

/* d_h_lin[B,C] = d_h_inner * 0.7978846 + d_h_inner * 0.7978846 * 0.044715 * (3 * h_lin^2) +
 *         d_z * (1 + tanh(h_inner)) * 0.5
 * d_h_lin_bias[C] (+)= sum over B of d_h_lin
 * where d_h_inner = d_z * (0.5 * h_lin) * (1 - tanh(h_inner)^2)
 * where h_inner = 0.7978846 * (h_lin + 0.044715 * h_lin^3)
 * stack.model:8   gradient of k4, k3
 * grid dim3(rt_blocks(C, 128), 1), block 256: a block has 128 columns and all rows, for it stores
 * the sum; a warp has every 8th of these rows, a lane 4 columns */
static __global__ void __launch_bounds__(256, 4)
g7_d_h_lin(float *restrict d_h_lin, float *restrict d_h_lin_bias, const float *restrict h_lin,
           const float *restrict d_z, bool add, ptrdiff_t B)
{
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int first = (int)blockIdx.x*128, at = first + lane*4;
    float sums[1][4] = {};
    for (ptrdiff_t ib = warp; ib < B && at < C; ib += 8) {
        const RtVec<float, 4> h_lin_v = rt_load<4>(h_lin + ib*C + at);
        const RtVec<float, 4> d_z_v = rt_load<4>(d_z + ib*C + at);
        RtVec<float, 4> d_h_lin_out;
        RT_UNROLL
        for (int e = 0; e < 4; e++) {
            const float a = d_z_v[e];
            const float b = h_lin_v[e];
            const float c = b * b;
            const float d = rt_tanh(0.7978846f * (b + 0.044715f * (c * b)));
            const float f = a * (0.5f * b) * (1 - d * d) * 0.7978846f;
            const float g = f + f * 0.044715f * (3 * c) + a * (1 + d) * 0.5f;
            d_h_lin_out[e] = g;
            sums[0][e] += g;
        }
        rt_store(d_h_lin + ib*C + at, d_h_lin_out);
    }
    __shared__ float all[4*RT_SUM_ROW(4)];
    const int column = (int)threadIdx.x;
    rt_add_warps<1, 4>(all, sums);
    if (column < 128) {
        if (first + column < C)
            d_h_lin_bias[first + column] = add ? d_h_lin_bias[first + column] +
                    all[rt_sum_at<4>(column)] : all[rt_sum_at<4>(column)];
    }
}

static void k7_d_h_lin(float *restrict d_h_lin, float *restrict d_h_lin_bias,
                       const float *restrict h_lin, const float *restrict d_z, bool add,
                       ptrdiff_t B, RtStream *stream)
{
    RT_LAUNCH(stream, "stack.model:8", g7_d_h_lin, dim3(rt_blocks(C, 128), 1), 256, 0, d_h_lin,
              d_h_lin_bias, h_lin, d_z, add, B);
}

/* d_h_norm_y[B,C] = d_h_lin[B,C] @ h_lin_weight[C,C]  stack.model:8   gradient of k3 */
static void k8_d_h_norm_y(float *restrict d_h_norm_y, const float *restrict d_h_lin,
                          const float *restrict h_lin_weight, ptrdiff_t B, RtStream *stream)
{
    const RtMatmul shape = { .m = B, .n = C, .k = C };
    stream->where = "stack.model:8";
    rt_matmul_f32(d_h_norm_y, d_h_lin, h_lin_weight, shape, stream);
}

/* d_h_lin_weight[C,C] (+)= d_h_lin[B,C]' @ h_norm_y[B,C]  stack.model:8   gradient of k3 */
static void k9_d_h_lin_weight(float *restrict d_h_lin_weight, const float *restrict d_h_lin,
                              const float *restrict h_norm_y, bool add, ptrdiff_t B,
                              RtStream *stream)
{
    const RtMatmul shape = { .m = C, .n = C, .k = B, .ta = true, .add = add };
    stream->where = "stack.model:8";
    rt_matmul_f32(d_h_lin_weight, d_h_lin, h_norm_y, shape, stream);
}

/* d_h_norm_weight[C] (+)= sum over B of d_h_norm_y * (h_norm_centred * h_norm_rstd)
 * d_z[B,C] = d_z + d_h_norm_centred - (sum over C of d_h_norm_centred) / C
 * where h_norm_centred = z - h_norm_mu
 * where d_h_norm_centred = d_h_norm_y * h_norm_weight * h_norm_rstd +
 *         d_h_norm_rstd * (-0.5 * h_norm_rstd^3) / C * 2 * h_norm_centred
 * where d_h_norm_rstd = sum over C of d_h_norm_y * h_norm_weight * h_norm_centred
 * stack.model:8   gradient of k2
 * grid 1, block 128: one block has all rows, for it stores the sum; a warp per row, a lane has up
 * to 4 elements of it */
static __global__ void __launch_bounds__(128, 2)
g10_d_z(float *restrict d_z, float *restrict d_h_norm_weight, const float *restrict d_h_norm_y,
        const float *restrict z, const float *restrict h_norm_mu, const float *restrict h_norm_rstd,
        const float *restrict h_norm_weight, bool add, ptrdiff_t B)
{
    const int lane = (int)threadIdx.x % 32;
    const int warp = (int)threadIdx.x / 32;
    float sums[1][4] = {};
    for (ptrdiff_t ib = warp; ib < B; ib += 4) {
        RtVec<float, 4> d_h_norm_y_row[1];
        RtVec<float, 4> z_row[1];
        const float a = h_norm_mu[ib];
        const float b = h_norm_rstd[ib];
        float d_h_norm_rstd = 0;
        RT_UNROLL
        for (int k = 0; k < 1; k++) {
            const int at = (k*32 + lane)*4;
            if (at >= C)
                break;
            d_h_norm_y_row[k] = rt_load<4>(d_h_norm_y + ib*C + at);
            z_row[k] = rt_load<4>(z + ib*C + at);
            const RtVec<float, 4> h_norm_weight_v = rt_load<4>(h_norm_weight + at);
            RT_UNROLL
            for (int e = 0; e < 4; e++) {
                const float c = d_h_norm_y_row[k][e];
                const float h_norm_centred = z_row[k][e] - a;
                d_h_norm_rstd += c * h_norm_weight_v[e] * h_norm_centred;
                sums[k][e] += c * (h_norm_centred * b);
            }
        }
        d_h_norm_rstd = rt_warp_sum(d_h_norm_rstd);
        const float d = d_h_norm_rstd * (-0.5f * (b * b * b)) / (float)C * 2;
        float sum = 0;
        RT_UNROLL
        for (int k = 0; k < 1; k++) {
            const int at = (k*32 + lane)*4;
            if (at >= C)
                break;
            const RtVec<float, 4> h_norm_weight_v = rt_load<4>(h_norm_weight + at);
            RT_UNROLL
            for (int e = 0; e < 4; e++)
                sum += d_h_norm_y_row[k][e] * h_norm_weight_v[e] * b + d * (z_row[k][e] - a);
        }
        sum = rt_warp_sum(sum);
        const float f = sum / (float)C;
        RT_UNROLL
        for (int k = 0; k < 1; k++) {
            const int at = (k*32 + lane)*4;
            if (at >= C)
                break;
            const RtVec<float, 4> h_norm_weight_v = rt_load<4>(h_norm_weight + at);
            const RtVec<float, 4> d_z_v = rt_load<4>(d_z + ib*C + at);
            RtVec<float, 4> d_z_out;
            RT_UNROLL
            for (int e = 0; e < 4; e++) {
                const float d_h_norm_centred = d_h_norm_y_row[k][e] * h_norm_weight_v[e] * b +
                        d * (z_row[k][e] - a);
                d_z_out[e] = d_z_v[e] + d_h_norm_centred - f;
            }
            rt_store(d_z + ib*C + at, d_z_out);
        }
    }
    __shared__ float all[4*RT_SUM_ROW(4)];
    const int column = (int)threadIdx.x;
    rt_add_warps<1, 4>(all, sums);
    if (column < C) {
        d_h_norm_weight[column] = add ? d_h_norm_weight[column] + all[rt_sum_at<4>(column)] :
                all[rt_sum_at<4>(column)];
    }
}

static void k10_d_z(float *restrict d_z, float *restrict d_h_norm_weight,
                    const float *restrict d_h_norm_y, const float *restrict z,
                    const float *restrict h_norm_mu, const float *restrict h_norm_rstd,
                    const float *restrict h_norm_weight, bool add, ptrdiff_t B, RtStream *stream)
{
    RT_LAUNCH(stream, "stack.model:8", g10_d_z, 1, 128, 0, d_z, d_h_norm_weight, d_h_norm_y, z,
              h_norm_mu, h_norm_rstd, h_norm_weight, add, B);
}

/* ---- of evaluation and outputs, where they differ ---- */

/* h_norm_y[B,C] = h_norm_centred * h_norm_rstd * h_norm_weight
 * where h_norm_centred = z - h_norm_mu
 * where h_norm_rstd = rsqrt((sum over C of h_norm_centred^2) / C + 1e-05)
 * where h_norm_mu = (sum over C of z) / C
 * stack.model:8
 * grid rt_blocks(B, 128), block 128: a thread per row */
static __global__ void __launch_bounds__(128)
g11_h_norm_y(float *restrict h_norm_y, const float *restrict z, const float *restrict h_norm_weight,
             ptrdiff_t B)
{
    const ptrdiff_t ib = (ptrdiff_t)blockIdx.x*128 + (int)threadIdx.x;
    if (ib >= B)
        return;
    float sum = 0;
    for (int ic = 0; ic < C; ic++) {
        sum += z[ib*C + ic];
    }
    const float h_norm_mu = sum / (float)C;
    float a = 0;
    for (int ic = 0; ic < C; ic++) {
        const float h_norm_centred = z[ib*C + ic] - h_norm_mu;
        a += h_norm_centred * h_norm_centred;
    }
    const float h_norm_rstd = rt_rsqrt(a / (float)C + 1e-05f);
    for (int ic = 0; ic < C; ic++) {
        h_norm_y[ib*C + ic] = (z[ib*C + ic] - h_norm_mu) * h_norm_rstd * h_norm_weight[ic];
    }
}

static void k11_h_norm_y(float *restrict h_norm_y, const float *restrict z,
                         const float *restrict h_norm_weight, ptrdiff_t B, RtStream *stream)
{
    RT_LAUNCH(stream, "stack.model:8", g11_h_norm_y, rt_blocks(B, 128), 128, 0, h_norm_y, z,
              h_norm_weight, B);
}

/* z[B,C] = z + 0.5 * h_lin * (1 + tanh(h_inner))
 * where h_inner = 0.7978846 * (h_lin + 0.044715 * h_lin^3)
 * stack.model:8
 * grid rt_blocks(B*C, 1024), block 256: a thread has 4 elements side by side */
static __global__ void __launch_bounds__(256)
g12_z(float *restrict z, const float *restrict h_lin, ptrdiff_t B)
{
    const ptrdiff_t at = ((ptrdiff_t)blockIdx.x*256 + threadIdx.x)*4;
    if (at >= B*C)
        return;
    const RtVec<float, 4> z_v = rt_load<4>(z + at);
    const RtVec<float, 4> h_lin_v = rt_load<4>(h_lin + at);
    RtVec<float, 4> z_out;
    RT_UNROLL
    for (int e = 0; e < 4; e++) {
        const float a = h_lin_v[e];
        const float b = 0.5f * a * (1 + rt_tanh(0.7978846f * (a + 0.044715f * (a * a * a))));
        z_out[e] = z_v[e] + b;
    }
    rt_store(z + at, z_out);
}

static void k12_z(float *restrict z, const float *restrict h_lin, ptrdiff_t B, RtStream *stream)
{
    RT_LAUNCH(stream, "stack.model:8", g12_z, rt_blocks(B*C, 1024), 256, 0, z, h_lin, B);
}

/* sum_loss += sum over B,C of (z[B,C] - y[B,C])^2  stack.model:15
 * grid 1, block 1024: one block has all, for it stores the sum; a thread has 1 element of every
 * 1024 */
static __global__ void __launch_bounds__(1024)
g13_sum_loss(double *restrict sum_loss, const float *restrict z, const float *restrict y,
             ptrdiff_t B)
{
    double total_sum_loss = 0;
    for (ptrdiff_t i = (ptrdiff_t)blockIdx.x*1024 + threadIdx.x; i < B*C; i += 1024) {
        const float a = z[i] - y[i];
        total_sum_loss += (double)(a * a);
    }
    total_sum_loss = rt_block_sum(total_sum_loss);
    if (threadIdx.x == 0)
        *sum_loss += total_sum_loss;
}

static void k13_sum_loss(double *restrict sum_loss, const float *restrict z,
                         const float *restrict y, ptrdiff_t B, RtStream *stream)
{
    RT_LAUNCH(stream, "stack.model:15", g13_sum_loss, 1, 1024, 0, sum_loss, z, y, B);
}

/* ---- 5 forward ---------------------------------------------------------- */

/* One call per step: its number, the line of the model that it is, or of such a line what
 * it computes. RT_CHECK looks at what the call above it wrote, for --replay and --trace
 * alone; RT_REPETITION tells it the repetition. */

/* adds what the means divide by, for one micro-step */
static void stack_count(RtStep *s, Dims n)
{
    s->count[S_loss] += (double)(n.B*C);  /* mean((z - y)^2)  stack.model:15 */
}

/* one repetition of h, forward; reads z, writes the next z */
static void block_forward(const float *p, void *arena, const Plan *at, const RtStep *s, Dims n,
                          int il, RtStream *stream)
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
    k2_h_norm_y(h_norm_mu, h_norm_rstd, h_norm_y, z, p_h + P_h_norm_weight, n.B, stream);
    RT_CHECK(s, 2, "h_norm_mu[B]", h_norm_mu, n.B);
    RT_CHECK(s, 2, "h_norm_rstd[B]", h_norm_rstd, n.B);
    RT_CHECK(s, 2, "h_norm_y[B,C]", h_norm_y, n.B*C);
    /* 3    h_lin = h_norm_y @ h_lin_weight' + h_lin_bias */
    k3_h_lin(h_lin, h_norm_y, p_h + P_h_lin_weight, p_h + P_h_lin_bias, n.B, stream);
    RT_CHECK(s, 3, "h_lin[B,C]", h_lin, n.B*C);
    /* 4    z from z, h_lin */
    k4_z(z + n.B*C, z, h_lin, n.B, stream);
    RT_CHECK(s, 4, "z[B,C]", z + n.B*C, n.B*C);
}

/* training: fills the arena and adds to the sums */
static void stack_forward(const float *p, const float *x, const float *y, void *arena, RtStep *s,
                          Dims n, RtStream *stream)
{
    const Plan at = stack_plan(n);
    float *z = rt_at_f32(arena, at.z);           /* [L + 1,B,C] */
    float *loss_a = rt_at_f32(arena, at.loss_a); /* [B,C] */

    /* 1    stack.model:11  model stack(x: [B, C], y: [B, C]) { */
    k1_z(z, x, n.B, stream);
    RT_CHECK(s, 1, "z[B,C]", z, n.B*C);
    /* 2..4  stack.model:14  for i in 0..L { z = h[i](z) } */
    for (int il = 0; il < L; il++)
        block_forward(p, arena, &at, s, n, il, stream);
    /* 5    stack.model:15  loss = mean((z - y)^2) */
    k5_sum_loss(loss_a, &s->device->sum[S_loss], z + n.B*C*L, y, n.B, stream);
    RT_CHECK(s, 5, "loss_a[B,C]", loss_a, n.B*C);
    RT_CHECK(s, 5, "sum_loss", &s->device->sum[S_loss], 1);
}

/* one repetition of h, evaluate; in place: z */
static void block_evaluate(const float *p, void *arena, const EvalPlan *at, Dims n, int il,
                           RtStream *stream)
{
    float *z = rt_at_f32(arena, at->z);               /* [B,C] */
    const float *p_h = p + P_h + il*P_h_STRIDE;       /* this repetition of h */
    float *h_norm_y = rt_at_f32(arena, at->h_norm_y); /* [B,C] */
    float *h_lin = rt_at_f32(arena, at->h_lin);       /* [B,C] */

    /* stack.model:8  return x + gelu(lin(norm(x))) */
    /* 2    h_norm_y from z */
    k11_h_norm_y(h_norm_y, z, p_h + P_h_norm_weight, n.B, stream);
    /* 3    h_lin = h_norm_y @ h_lin_weight' + h_lin_bias */
    k3_h_lin(h_lin, h_norm_y, p_h + P_h_lin_weight, p_h + P_h_lin_bias, n.B, stream);
    /* 4    z from z, h_lin */
    k12_z(z, h_lin, n.B, stream);
}

/* evaluation: the same values, kept for no backward pass; adds to the sums */
static void stack_evaluate(const float *p, const float *x, const float *y, void *arena, RtStep *s,
                           Dims n, RtStream *stream)
{
    const EvalPlan at = stack_eval_plan(n);
    float *z = rt_at_f32(arena, at.z);          /* [B,C] */

    /* 1    stack.model:11  model stack(x: [B, C], y: [B, C]) { */
    k1_z(z, x, n.B, stream);
    /* 2..4  stack.model:14  for i in 0..L { z = h[i](z) } */
    for (int il = 0; il < L; il++)
        block_evaluate(p, arena, &at, n, il, stream);
    /* 5    stack.model:15  loss = mean((z - y)^2) */
    k13_sum_loss(&s->device->sum[S_loss], z, y, n.B, stream);
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
                           Dims n, int il, RtStream *stream)
{
    float *h_lin = rt_at_f32(arena, at->h_lin) + il*n.B*C;           /* [B,C] */
    float *d_z = rt_at_f32(arena, at->d_z);                          /* [B,C] */
    float *d_h_lin = rt_at_f32(arena, at->d_h_lin);                  /* [B,C] */
    float *d_p_h = d_p + P_h + il*P_h_STRIDE;                        /* this repetition of h */
    float *d_h_norm_y = rt_at_f32(arena, at->d_h_norm_y);            /* [B,C] */
    const float *p_h = p + P_h + il*P_h_STRIDE;                      /* this repetition of h */
    float *h_norm_y = rt_at_f32(arena, at->h_norm_y) + il*n.B*C;     /* [B,C] */
    float *z = rt_at_f32(arena, at->z) + il*n.B*C;                   /* [B,C] */
    float *h_norm_mu = rt_at_f32(arena, at->h_norm_mu) + il*n.B;     /* [B] */
    float *h_norm_rstd = rt_at_f32(arena, at->h_norm_rstd) + il*n.B; /* [B] */

    RT_REPETITION(s, 0, il);
    /* 7    undoes 4, 3  stack.model:8  d_h_lin, d_h_lin_bias from h_lin, d_z */
    k7_d_h_lin(d_h_lin, d_p_h + P_h_lin_bias, h_lin, d_z, s->add, n.B, stream);
    RT_CHECK(s, 7, "d_h_lin[B,C]", d_h_lin, n.B*C);
    RT_CHECK(s, 7, "d_h_lin_bias[C]", d_p_h + P_h_lin_bias, C);
    /* 8    undoes 3     stack.model:8  d_h_norm_y = d_h_lin @ h_lin_weight */
    k8_d_h_norm_y(d_h_norm_y, d_h_lin, p_h + P_h_lin_weight, n.B, stream);
    RT_CHECK(s, 8, "d_h_norm_y[B,C]", d_h_norm_y, n.B*C);
    /* 9    undoes 3     stack.model:8  d_h_lin_weight (+)= d_h_lin' @ h_norm_y */
    k9_d_h_lin_weight(d_p_h + P_h_lin_weight, d_h_lin, h_norm_y, s->add, n.B, stream);
    RT_CHECK(s, 9, "d_h_lin_weight[C,C]", d_p_h + P_h_lin_weight, C*C);
    /* 10   undoes 2     stack.model:8  d_z, d_h_norm_weight from d_h_norm_y, z, ... */
    k10_d_z(d_z, d_p_h + P_h_norm_weight, d_h_norm_y, z, h_norm_mu, h_norm_rstd,
            p_h + P_h_norm_weight, s->add, n.B, stream);
    RT_CHECK(s, 10, "d_h_norm_weight[C]", d_p_h + P_h_norm_weight, C);
    RT_CHECK(s, 10, "d_z[B,C]", d_z, n.B*C);
    RT_READY(s, 10, il); /* sums: h.*.norm.weight, h.*.lin.weight, h.*.lin.bias */
}

/* gradients: the first write of an update replaces, later ones add */
static void stack_backward(const float *p, float *d_p, void *arena, const RtStep *s, Dims n,
                           RtStream *stream)
{
    const Plan at = stack_plan(n);
    float *loss_a = rt_at_f32(arena, at.loss_a); /* [B,C] */
    float *d_z = rt_at_f32(arena, at.d_z);       /* [B,C] */

    /* 6    undoes 5     stack.model:15  d_z = seed_loss * 2 * loss_a */
    k6_d_z(d_z, loss_a, s->device, n.B, stream);
    RT_CHECK(s, 6, "d_z[B,C]", d_z, n.B*C);
    /* 7..10  undoes 2..4  stack.model:14  for i in 0..L { z = h[i](z) } */
    for (int il = L - 1; il >= 0; il--)
        block_backward(p, d_p, arena, &at, s, n, il, stream);
}

