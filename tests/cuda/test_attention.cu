/* test_attention.cu -- attention on a device against the formula in double. Run by attention.sh in
 * the simulator; compiled by nvcc it runs on a GPU as well.
 *
 * Usage: attention TYPE [CASE], or attention TYPE plans: of cuDNN for more shapes than it keeps.
 * For each case one line, "ok NAME bits HASH of all results", or what
 * is wrong; where RT_ATTENTION is set, with who computed it. Outputs lie between values that must
 * stay as they are.
 */
#include "test_device.h"

#include "cuda/attention_cudnn.h"

/* ---- values ---------------------------------------------------------------------------------- */

static uint32_t state = 1;
static double draw(void) /* about normal */
{
    double sum = 0;
    for (int i = 0; i < 4; i++) {
        state = state * 1664525u + 1013904223u;
        sum += (double)(state >> 8) / (1 << 24) - 0.5;
    }
    return sum * 1.7;
}

static size_t bytes_of(RtType type) { return type == RT_F64 ? 8 : type == RT_F32 ? 4 : 2; }

static double get(const void *at, RtType type, ptrdiff_t i)
{
    return type == RT_F64    ? ((const double *)at)[i]
           : type == RT_F32  ? (double)((const float *)at)[i]
           : type == RT_BF16 ? (double)rt_of_bf16(((const uint16_t *)at)[i])
                             : (double)rt_of_f16(((const uint16_t *)at)[i]);
}

static void set(void *at, RtType type, ptrdiff_t i, double x)
{
    if (type == RT_F64)
        ((double *)at)[i] = x;
    else if (type == RT_F32)
        ((float *)at)[i] = (float)x;
    else
        ((uint16_t *)at)[i] = type == RT_BF16 ? rt_to_bf16((float)x) : rt_to_f16((float)x);
}

static const double GAP = 7; /* what outputs lie between */

typedef struct { /* heads: [B][H][rows][depth], wherever they lie in n elements */
    void *host, *device;
    ptrdiff_t n, at; /* at: where head 0 starts */
    RtHeads step;
    ptrdiff_t B, H, rows, depth;
    RtType type;
} Tensor;

static Tensor tensor(RtType type, ptrdiff_t n)
{
    Tensor x = { .n = n, .B = 1, .H = 1, .rows = 1, .depth = n, .type = type };
    x.host = malloc((size_t)n * bytes_of(type) + 1);
    rt_cuda_check(NULL, "cudaMalloc", cudaMalloc(&x.device, (size_t)n * bytes_of(type) + 1));
    for (ptrdiff_t i = 0; i < n; i++)
        set(x.host, type, i, GAP);
    return x;
}

static void tensor_free(Tensor x)
{
    free(x.host);
    rt_cuda_check(NULL, "cudaFree", cudaFree(x.device));
}

static void copy(Tensor x, bool put)
{
    const size_t bytes = (size_t)x.n * bytes_of(x.type);
    if (bytes > 0 && put)
        to_device(x.device, x.host, bytes);
    else if (bytes > 0)
        rt_cuda_check(NULL, "cudaMemcpy",
                      cudaMemcpy(x.host, x.device, bytes, cudaMemcpyDeviceToHost));
}

static ptrdiff_t place(const Tensor *x, ptrdiff_t b, ptrdiff_t h, ptrdiff_t t, ptrdiff_t d)
{
    return x->at + b * x->step.b + h * x->step.h + t * x->step.t + d;
}

static double value(const Tensor *x, ptrdiff_t b, ptrdiff_t h, ptrdiff_t t, ptrdiff_t d)
{
    return get(x->host, x->type, place(x, b, h, t, d));
}

static void draw_all(Tensor *x, double size)
{
    for (ptrdiff_t b = 0; b < x->B; b++)
        for (ptrdiff_t h = 0; h < x->H; h++)
            for (ptrdiff_t t = 0; t < x->rows; t++)
                for (ptrdiff_t d = 0; d < x->depth; d++)
                    set(x->host, x->type, place(x, b, h, t, d), size * draw());
    copy(*x, true);
}

/* ---- cases ----------------------------------------------------------------------------------- */

/* How heads lie. PACKED: q, k, v are parts of [B][T][3][H][D]; TOKENS: [B][T][H][D]; HEADS:
   [B][H][T][D]; APART: the same with 3 values between rows, from an odd place on; ALIKE: TOKENS,
   with one head of k and v in the place of all; SHIFTED: TOKENS from an odd place on. */
typedef enum { PACKED, TOKENS, HEADS, APART, ALIKE, SHIFTED } Layout;

typedef struct {
    const char *name;
    ptrdiff_t B, H, T, S, D, E;
    bool causal;
    Layout layout;
    double scale, size; /* size: of q; scale 0: the usual */
    ptrdiff_t group;    /* heads of q for one of k and v; 0 = 1 */
} Case;

static const Case cases[] = {
    { "packed", 2, 2, 140, 140, 64, 64, true, PACKED, 0, 1 },
    { "tiles", 1, 1, 300, 300, 64, 64, true, TOKENS, 0, 1 },
    { "packed-32", 1, 2, 140, 140, 32, 32, true, PACKED, 0, 1 },
    { "all-keys", 2, 3, 70, 70, 64, 64, false, TOKENS, 0, 1 },
    { "more-keys", 1, 2, 70, 150, 64, 64, true, TOKENS, 0, 1 },
    { "fewer-keys", 1, 2, 200, 60, 64, 64, true, TOKENS, 0, 1 },
    { "packed-128", 1, 2, 140, 140, 128, 128, true, PACKED, 0, 1 },
    { "wide-values", 1, 2, 33, 65, 48, 128, false, HEADS, 0, 1 },
    { "narrow-values", 1, 2, 90, 40, 104, 16, true, HEADS, 0, 1 },
    { "small-heads", 1, 2, 17, 31, 40, 24, true, TOKENS, 0, 1 },
    { "odd", 1, 2, 20, 21, 7, 13, true, APART, 0, 1 },
    { "apart", 2, 1, 66, 66, 64, 64, true, APART, 0, 1 },
    { "one", 1, 2, 1, 1, 1, 1, true, HEADS, 0, 1 },
    { "long-heads", 1, 1, 70, 70, 136, 200, true, TOKENS, 0, 1 },
    { "alike", 2, 3, 40, 50, 64, 64, true, ALIKE, 0, 1 },
    { "grouped", 2, 6, 40, 50, 64, 64, true, TOKENS, 0, 1, 3 },
    { "grouped-tiles", 1, 4, 200, 200, 64, 64, true, TOKENS, 0, 1, 2 },
    { "grouped-32", 2, 2, 140, 150, 32, 24, false, HEADS, 0, 1, 2 },
    { "grouped-128", 1, 3, 90, 70, 128, 128, true, HEADS, 0, 1, 3 },
    { "grouped-odd", 1, 4, 70, 75, 7, 13, true, APART, 0, 1, 2 },
    { "grouped-long", 1, 2, 70, 66, 136, 70, true, TOKENS, 0, 1, 2 },
    { "grouped-none", 1, 4, 20, 0, 64, 64, true, HEADS, 0, 1, 2 },
    { "large", 1, 2, 80, 80, 64, 64, true, TOKENS, 0, 300 },
    { "large-all", 1, 1, 64, 130, 128, 128, false, TOKENS, 2, 100 },
    { "negative", 1, 2, 70, 70, 64, 64, true, TOKENS, -0.3, 1 },
    { "no-keys", 1, 2, 20, 0, 64, 64, true, HEADS, 0, 1 },
    { "no-queries", 1, 2, 0, 20, 64, 64, false, HEADS, 0, 1 },
    { "shifted", 1, 2, 20, 20, 64, 64, true, SHIFTED, 0, 1 },
    { "no-heads", 1, 0, 20, 20, 64, 64, false, HEADS, 0, 1 },
};

static bool is_odd(Layout layout) { return layout == APART || layout == SHIFTED; }
static ptrdiff_t group_of(const Case *c) { return c->group > 0 ? c->group : 1; }

/* of: that many heads; alike: one lies in the place of all. rows: T or S. */
static Tensor heads(const Case *c, RtType type, ptrdiff_t of, ptrdiff_t rows, ptrdiff_t depth,
                    bool alike, Layout layout)
{
    const ptrdiff_t B = c->B, H = alike ? 1 : of, row = layout == APART ? depth + 3 : depth;
    Tensor x = tensor(type, B * H * rows * row + is_odd(layout));
    x.at = is_odd(layout);
    x.step = layout == HEADS || layout == APART ? (RtHeads){ H * rows * row, rows * row, row }
                                                : (RtHeads){ rows * H * row, row, H * row };
    if (alike)
        x.step.h = 0;
    x.B = B;
    x.H = of;
    x.rows = rows;
    x.depth = depth;
    return x;
}

/* Part number i of 3 of a packed tensor. */
static Tensor part(const Case *c, Tensor whole, int i)
{
    whole.at = i * c->H * c->D;
    whole.step = (RtHeads){ c->T * 3 * c->H * c->D, c->D, 3 * c->H * c->D };
    whole.B = c->B;
    whole.H = c->H;
    whole.rows = c->T;
    whole.depth = c->D;
    return whole;
}

typedef struct { /* of one case; packed: q, k, v are parts of one, and d_q, d_k, d_v, too */
    Tensor q, k, v, y, lse, d_y, d_q, d_k, d_v;
} All;

static All all_new(const Case *c, RtType type)
{
    const bool packed = c->layout == PACKED, alike = c->layout == ALIKE;
    const ptrdiff_t H = c->H, of_keys = H / group_of(c);
    All x = {};
    if (packed) {
        Tensor qkv = tensor(type, c->B * c->T * 3 * c->H * c->D);
        Tensor d_qkv = tensor(type, qkv.n);
        x.q = part(c, qkv, 0), x.k = part(c, qkv, 1), x.v = part(c, qkv, 2);
        x.d_q = part(c, d_qkv, 0), x.d_k = part(c, d_qkv, 1), x.d_v = part(c, d_qkv, 2);
    } else {
        x.q = heads(c, type, H, c->T, c->D, false, c->layout);
        x.k = heads(c, type, of_keys, c->S, c->D, alike, c->layout);
        x.v = heads(c, type, of_keys, c->S, c->E, alike, c->layout);
        x.d_q = heads(c, type, H, c->T, c->D, false, c->layout);
        x.d_k = heads(c, type, of_keys, c->S, c->D, false, c->layout);
        x.d_v = heads(c, type, of_keys, c->S, c->E, false, c->layout);
    }
    x.y = heads(c, type, H, c->T, c->E, false, c->layout == HEADS ? TOKENS : c->layout);
    x.d_y = heads(c, type, H, c->T, c->E, false, HEADS);
    x.lse = tensor(type == RT_F64 ? RT_F64 : RT_F32, c->B * c->H * c->T);
    return x;
}

static void all_free(const Case *c, All x)
{
    Tensor each[] = { x.q, x.d_q, x.y, x.d_y, x.lse, x.k, x.v, x.d_k, x.d_v };
    for (int i = 0; i < (c->layout == PACKED ? 5 : 9); i++)
        tensor_free(each[i]);
}

/* ---- what is wanted -------------------------------------------------------------------------- */

static ptrdiff_t seen(const Case *c, ptrdiff_t t)
{
    const ptrdiff_t n = c->causal ? t + c->S - c->T + 1 : c->S;
    return n < 0 ? 0 : n < c->S ? n : c->S;
}

typedef struct { /* dense, of one head */
    double *y, *lse, *d_q;
    double *d_k, *d_v; /* the part of that head, and of those before it in the group */
} Wanted;

static double *zeros(ptrdiff_t n) { return (double *)calloc((size_t)n + 1, sizeof(double)); }

/* Weights of query t, and lse. */
static double weights(const Case *c, const All *x, double scale, ptrdiff_t b, ptrdiff_t h,
                      ptrdiff_t t, double *p)
{
    const ptrdiff_t n = seen(c, t);
    double most = -INFINITY, sum = 0;
    for (ptrdiff_t s = 0; s < n; s++) {
        p[s] = 0;
        for (ptrdiff_t d = 0; d < c->D; d++)
            p[s] += value(&x->q, b, h, t, d) * value(&x->k, b, h / group_of(c), s, d);
        p[s] *= scale;
        most = fmax(most, p[s]);
    }
    for (ptrdiff_t s = 0; s < n; s++)
        sum += p[s] = exp(p[s] - most);
    for (ptrdiff_t s = 0; s < n; s++)
        p[s] /= sum;
    return n ? most + log(sum) : 0;
}

static Wanted wanted_new(const Case *c, const All *x, double scale, ptrdiff_t b, ptrdiff_t h,
                         double *d_k, double *d_v)
{
    Wanted w = { zeros(c->T * c->E), zeros(c->T), zeros(c->T * c->D), d_k, d_v };
    double *p = zeros(c->S), *dp = zeros(c->S);
    const ptrdiff_t of_keys = h / group_of(c);
    for (ptrdiff_t t = 0; t < c->T; t++) {
        w.lse[t] = weights(c, x, scale, b, h, t, p);
        double delta = 0;
        for (ptrdiff_t s = 0; s < seen(c, t); s++) {
            dp[s] = 0;
            for (ptrdiff_t e = 0; e < c->E; e++) {
                w.y[t * c->E + e] += p[s] * value(&x->v, b, of_keys, s, e);
                w.d_v[s * c->E + e] += p[s] * value(&x->d_y, b, h, t, e);
                dp[s] += value(&x->d_y, b, h, t, e) * value(&x->v, b, of_keys, s, e);
            }
            delta += p[s] * dp[s];
        }
        for (ptrdiff_t s = 0; s < seen(c, t); s++)
            for (ptrdiff_t d = 0; d < c->D; d++) {
                const double g = scale * p[s] * (dp[s] - delta);
                w.d_q[t * c->D + d] += g * value(&x->k, b, of_keys, s, d);
                w.d_k[s * c->D + d] += g * value(&x->q, b, h, t, d);
            }
    }
    free(p);
    free(dp);
    return w;
}

/* ---- comparison ------------------------------------------------------------------------------ */

static int wrong;
static double worst; /* error, in units of what is allowed */

/* Head b, h of x against dense values: within `allowed` of the largest, or of `most`. */
static void compare(const Case *c, const char *what, const Tensor *x, ptrdiff_t b, ptrdiff_t h,
                    const double *to, double allowed, double most)
{
    for (ptrdiff_t i = 0; i < x->rows * x->depth; i++)
        most = fmax(most, fabs(to[i]));
    for (ptrdiff_t t = 0; t < x->rows; t++)
        for (ptrdiff_t d = 0; d < x->depth; d++) {
            const double is = value(x, b, h, t, d), want = to[t * x->depth + d];
            const double error = fabs(is - want) / (most * allowed);
            worst = fmax(worst, error);
            if (!(error <= 1) && !wrong++)
                printf("%s: %s[%td,%td,%td,%td] is %.9g, not %.9g; allowed is %.1e of %.3g\n",
                       c->name, what, b, h, t, d, is, want, allowed, most);
        }
}

/* Values outside the heads are as they were. */
static void compare_gaps(const Case *c, const char *what, const Tensor *x, const Tensor *y,
                         const Tensor *z)
{
    bool *covered = (bool *)calloc((size_t)x->n + 1, 1);
    const Tensor *each[] = { x, y, z };
    for (int i = 0; i < 3; i++)
        for (ptrdiff_t j = 0; each[i] && j < each[i]->B * each[i]->H * each[i]->rows; j++)
            for (ptrdiff_t d = 0; d < each[i]->depth; d++)
                covered[place(each[i], j / each[i]->rows / each[i]->H,
                              j / each[i]->rows % each[i]->H, j % each[i]->rows, d)] = true;
    for (ptrdiff_t i = 0; i < x->n; i++)
        if (!covered[i] && get(x->host, x->type, i) != GAP && !wrong++)
            printf("%s: %s: element %td, between rows, was changed\n", c->name, what, i);
    free(covered);
}

static uint64_t hash = 0;
static void add_hash(const Tensor *x)
{
    for (size_t i = 0; i < (size_t)x->n * bytes_of(x->type); i++)
        hash = (hash ^ ((const unsigned char *)x->host)[i]) * 1099511628211u;
}

/* ---- a case ---------------------------------------------------------------------------------- */

template <class T, class Real>
static void call(const All *x, const RtAttention &a,
                 void (*forward)(T *, Real *, const T *, const T *, const T *, RtAttention,
                                 RtStream *),
                 void (*grad)(T *, T *, T *, const T *, const T *, const T *, const T *,
                              const Real *, const T *, RtAttention, RtStream *))
{
    const T *q = (const T *)x->q.device + x->q.at, *k = (const T *)x->k.device + x->k.at;
    const T *v = (const T *)x->v.device + x->v.at, *d_y = (const T *)x->d_y.device + x->d_y.at;
    T *y = (T *)x->y.device + x->y.at;
    forward(y, (Real *)x->lse.device, q, k, v, a, &stream);
    grad((T *)x->d_q.device + x->d_q.at, (T *)x->d_k.device + x->d_k.at,
         (T *)x->d_v.device + x->d_v.at, q, k, v, y, (const Real *)x->lse.device, d_y, a, &stream);
    rt_cuda_check(NULL, "cudaDeviceSynchronize", cudaDeviceSynchronize());
}

static void call_type(RtType type, const All *x, const RtAttention &a)
{
    switch (type) {
    case RT_F64: call<double, double>(x, a, rt_attention_f64, rt_attention_grad_f64); break;
    case RT_BF16: call<rt_bf16, float>(x, a, rt_attention_bf16, rt_attention_grad_bf16); break;
    case RT_F16: call<rt_f16, float>(x, a, rt_attention_f16, rt_attention_grad_f16); break;
    default: call<float, float>(x, a, rt_attention_f32, rt_attention_grad_f32); break;
    }
}

/* Head h of k and v in batch b, and those of q that share it. */
static void check_head(const Case *c, const All *x, double scale, ptrdiff_t b, ptrdiff_t h)
{
    const RtType type = x->q.type;
    const double unit = type == RT_F64    ? 0x1p-44
                        : type == RT_F32  ? 0x1p-17
                        : type == RT_BF16 ? 0x1p-7
                                          : 0x1p-10;
    /* Large scores: their rounding is large, and gradients are small differences of large terms. */
    const bool large = c->size > 1;
    const double allowed = large ? (type == RT_F32 ? 32 : 4) * unit : unit,
                 term = large ? fabs(scale) * sqrt(c->E) : 1e-30;
    double *d_k = zeros(c->S * c->D), *d_v = zeros(c->S * c->E);
    for (ptrdiff_t of_q = h * group_of(c); of_q < (h + 1) * group_of(c); of_q++) {
        Wanted w = wanted_new(c, x, scale, b, of_q, d_k, d_v);
        Tensor lse = x->lse;
        lse.at = (b * c->H + of_q) * c->T;
        lse.step = { 0, 0, 1 };
        lse.rows = c->T;
        lse.depth = 1;
        compare(c, "y", &x->y, b, of_q, w.y, allowed, 1e-30);
        compare(c, "lse", &lse, 0, 0, w.lse, type == RT_F64 ? unit : 0x1p-17, 1e-30);
        compare(c, "d_q", &x->d_q, b, of_q, w.d_q, allowed, term);
        double *each[] = { w.y, w.lse, w.d_q };
        for (int i = 0; i < 3; i++)
            free(each[i]);
    }
    compare(c, "d_v", &x->d_v, b, h, d_v, allowed, 1e-30);
    compare(c, "d_k", &x->d_k, b, h, d_k, allowed, term * c->size);
    free(d_k);
    free(d_v);
}

static void run(const Case *c, RtType type)
{
    All x = all_new(c, type);
    RtAttention a = { .B = c->B,
                      .H = c->H,
                      .T = c->T,
                      .S = c->S,
                      .D = c->D,
                      .E = c->E,
                      .group = c->group,
                      .scale = c->scale,
                      .causal = c->causal,
                      .q = x.q.step,
                      .k = x.k.step,
                      .v = x.v.step,
                      .y = x.y.step,
                      .d_q = x.d_q.step,
                      .d_k = x.d_k.step,
                      .d_v = x.d_v.step,
                      .d_y = x.d_y.step };
    RtRooms rooms = {};
    rt_room_attention(&rooms, type, a, false);
    rt_room_attention(&rooms, type, a, true);
    work_open(rooms.device);
    Tensor *in[] = { &x.q, &x.k, &x.v, &x.d_y }, *out[] = { &x.y, &x.lse, &x.d_q, &x.d_k, &x.d_v };
    for (int i = 0; i < 4; i++)
        draw_all(in[i], i == 0 ? c->size : 1);
    if (is_odd(c->layout)) /* elsewhere what is not written is found by the simulator */
        for (int i = 0; i < 5; i++)
            copy(*out[i], true);
    if (c->layout == PACKED) /* the last part has the host's copy of all three */
        x.q.host = x.k.host = x.v.host;
    call_type(type, &x, a);
    for (int i = 0; i < (c->layout == PACKED ? 3 : 5); i++)
        copy(*out[i], false);
    const double scale = c->scale == 0 ? 1 / sqrt((double)c->D) : c->scale;
    const ptrdiff_t of_keys = c->H / group_of(c);
    for (ptrdiff_t i = 0; i < c->B * of_keys; i++)
        check_head(c, &x, scale, i / of_keys, i % of_keys);
    compare_gaps(c, "y", &x.y, NULL, NULL);
    for (int i = 2; i < 5 && is_odd(c->layout); i++)
        compare_gaps(c, "a gradient", out[i], NULL, NULL);
    hash = 14695981039346656037u;
    for (int i = 0; i < (c->layout == PACKED ? 3 : 5); i++)
        add_hash(out[i]);
    all_free(c, x);
    work_close();
}

/* Plans of 16 bits for many shapes: those that were made first stay, and the sign of a scale has a
   plan of its own. */
static int many_plans(RtType type)
{
    enum { FIRST = 8, SHAPES = 70 };
    const RtCudnnPlan *plan[SHAPES];
    const RtHeads step = { 8 * 512, 8, 8 };
    RtAttention a = { .B = 1, .H = 1, .D = 8, .E = 8, .group = 1, .causal = true };
    int made = 0, kept = 0;
    a.q = a.k = a.v = a.y = step;
    for (int i = -3; i < SHAPES; i++) { /* own kernels do the first three */
        a.T = a.S = FIRST + (i < 0 ? 0 : i);
        a.scale = i < 0 ? i : 1;
        const RtCudnnPlan *now = rt_attention_plan(type, &a, false);
        if (i < 0 && now)
            return printf("a plan for a scale below 0\n"), 1;
        if (i >= 0)
            plan[i] = now;
        made += now != NULL;
    }
    for (int i = 0; i < SHAPES; i++) {
        a.T = a.S = FIRST + i;
        kept += plan[i] && rt_attention_plan(type, &a, false) == plan[i];
    }
    return printf("%d plans of %d, %d kept\n", made, (int)SHAPES, kept), rt_attention_close(), 0;
}

int main(int argc, char **argv)
{
    const char *const names[] = { "f32", "f64", "bf16", "f16" };
    const RtType types[] = { RT_F32, RT_F64, RT_BF16, RT_F16 };
    int type = 0, ran = 0, failed = 0;
    while (type < 3 && argc > 1 && strcmp(names[type], argv[1]) != 0)
        type++;
    stream_open();
    if (argc > 2 && strcmp(argv[2], "plans") == 0)
        return many_plans(types[type]);
    for (const Case &c : cases) {
        if (argc > 2 && strcmp(argv[2], c.name) != 0)
            continue;
        wrong = 0;
        state = 1;
        worst = 0;
        run(&c, types[type]);
        const char *who = getenv("RT_ATTENTION") ? rt_attention_line() : NULL;
        if (!wrong)
            printf("ok %s bits %016llx error %.2f%s%s\n", c.name, (unsigned long long)hash, worst,
                   who ? ", " : "", who ? who : "");
        rt_attention_close();
        fflush(stdout);
        failed += wrong > 0;
        ran++;
    }
    return failed || !ran;
}
