/* optim.c -- from the gradient to the new parameters: finite flag, norm, clip, update.
 *
 * In: the flat gradient and RtStep. Out: flat parameters and optimizer state. The one idea: the
 * flat buffer is cut into pieces that depend on the model table alone; a piece is summed in a fixed
 * order and the sums of pieces are added in a fixed tree, so no result depends on the thread count.
 * One pass per update: every element of p, m, v and the gradient is read and written once, and the
 * 16-bit copy of p, where there is one, is written beside it. Gradients stay multiplied by the loss
 * scale: the norm is divided by it, and the update reads factor / scale times the gradient.
 *
 *     sgd     g += decay p;  m = momentum m + g;  p -= lr (g + momentum m if nesterov, else m)
 *     adam    g += decay p, then as adamw without decay
 *     adamw   p *= 1 - lr decay;  m, v = running means of g, g^2;
 *             p -= lr/(1 - beta1^t) m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
 */
#include "run.h"

/* ---- pieces --------------------------------------------------------------------------------- */

static int piece_compare(const void *a, const void *b)
{
    const ptrdiff_t x = ((const RtPiece *)a)->from, y = ((const RtPiece *)b)->from;
    return (x > y) - (x < y);
}

static bool same_numbers(RtPiece a, RtPiece b)
{
    return a.half == b.half && a.decay == b.decay && a.rate == b.rate
           && (a.own == b.own || (isnan(a.own) && isnan(b.own)));
}

double rt_piece_decay(RtPiece q, const RtTrain *t)
{
    return !isnan(q.own) ? q.own : q.decay ? t->weight_decay : 0;
}

RtPiece *rt_optim_pieces(const RtModel *m, int *n)
{
    size_t rows = 0;
    for (int i = 0; i < m->n_params; i++)
        if (m->params[i].role != RT_STATE)
            rows += (size_t)rt_param_repeats(&m->params[i]);
    RtPiece *whole = rt_alloc((rows + 1) * sizeof *whole, "the table of parameters");
    size_t k = 0;
    for (int i = 0; i < m->n_params; i++) {
        const RtParam *q = &m->params[i];
        for (ptrdiff_t r = 0; q->role != RT_STATE && r < rt_param_repeats(q); r++) {
            whole[k] = rt_param_piece(m, q, r);
            k += whole[k].rate != 0;
        }
    }
    qsort(whole, k, sizeof *whole, piece_compare);
    size_t joined = 0; /* neighbours of one kind become one */
    for (size_t i = 0; i < k; i++)
        if (joined && whole[joined - 1].to == whole[i].from
            && same_numbers(whole[joined - 1], whole[i]))
            whole[joined - 1].to = whole[i].to;
        else
            whole[joined++] = whole[i];

    size_t count = 0;
    for (size_t i = 0; i < joined; i++)
        count += (size_t)((whole[i].to - whole[i].from + RT_PIECE - 1) / RT_PIECE);
    RtPiece *piece = rt_alloc((count + 1) * sizeof *piece, "the table of parameters");
    size_t put = 0;
    for (size_t i = 0; i < joined; i++)
        for (ptrdiff_t at = whole[i].from; at < whole[i].to; at += RT_PIECE) {
            piece[put] = whole[i];
            piece[put].from = at;
            piece[put++].to = at + RT_PIECE < whole[i].to ? at + RT_PIECE : whole[i].to;
        }
    rt_free(whole);
    *n = (int)put;
    return piece;
}

/* ---- states and numbers --------------------------------------------------------------------- */

const char *rt_optimizer_name(RtOptKind kind)
{
    static const char *const name[] = {
        [RT_SGD] = "sgd",   [RT_ADAM] = "adam",           [RT_ADAMW] = "adamw",
        [RT_LAMB] = "lamb", [RT_ADAFACTOR] = "adafactor", [RT_MUON] = "muon"
    };
    return name[kind];
}

bool rt_optim_is_tensorwise(RtOptKind kind) { return kind >= RT_LAMB; }

double rt_hyper(const RtTrain *t, const char *name)
{
    for (int i = 0; i < t->n_hypers; i++)
        if (strcmp(t->hyper[i].name, name) == 0)
            return t->hyper[i].value;
    return 0;
}

int rt_optim_states(const RtTrain *t, RtStateTensor state[RT_MAX_STATES])
{
    if (t->optimizer == RT_ADAFACTOR)
        return rt_adafactor_states(state);
    if (t->optimizer == RT_MUON)
        return rt_muon_states(state);
    state[0] = (RtStateTensor){ .name = "m" };
    state[1] = (RtStateTensor){ .name = "v" };
    return t->optimizer == RT_SGD ? rt_hyper(t, "momentum") != 0 : 2;
}

/* ---- finite? norm --------------------------------------------------------------------------- */

enum { LANES = 16 }; /* partial sums, added in a fixed tree */

static double lanes_add(double lane[LANES])
{
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] += lane[i + half];
    return lane[0];
}

/* Squares of floats fit a double, so the sum is finite if and only if all elements are. */
static double squares_f32(const float *g, ptrdiff_t n)
{
    double lane[LANES] = { 0 };
    ptrdiff_t i = 0;
    for (; i + LANES <= n; i += LANES)
#pragma omp simd
        for (int k = 0; k < LANES; k++)
            lane[k] = fma((double)g[i + k], (double)g[i + k], lane[k]);
    for (; i < n; i++)
        lane[i % LANES] = fma((double)g[i], (double)g[i], lane[i % LANES]);
    return lanes_add(lane);
}

/* Sum of (g * scale)^2; NaN if an element is not finite. */
static double squares_f64(const double *g, ptrdiff_t n, double scale)
{
    double lane[LANES] = { 0 };
    ptrdiff_t i = 0;
    for (; i + LANES <= n; i += LANES)
#pragma omp simd
        for (int k = 0; k < LANES; k++) {
            const double a = g[i + k] * scale + g[i + k] * 0;
            lane[k] = fma(a, a, lane[k]);
        }
    for (; i < n; i++) {
        const double a = g[i] * scale + g[i] * 0;
        lane[i % LANES] = fma(a, a, lane[i % LANES]);
    }
    return lanes_add(lane);
}

double rt_sum_tree(const double *x, int n)
{
    if (n <= 0)
        return 0;
    return n == 1 ? x[0] : rt_sum_tree(x, n / 2) + rt_sum_tree(x + n / 2, n - n / 2);
}

/* What the gradients were multiplied with. */
static double scale_of(const RtStep *s) { return s->scale > 0 ? s->scale : 1; }

static double squares_all(const RtRun *run, double scale)
{
    const RtState *state = run->state;
    const bool wide = run->model->real == RT_F64;
#pragma omp parallel for schedule(static) if (run->model->n_elems > RT_PIECE)
    for (int i = 0; i < state->n_pieces; i++) {
        const RtPiece q = state->pieces[i];
        state->piece_sums[i] = wide ? squares_f64((const double *)run->d_p + q.from, q.to - q.from,
                                                  scale)
                                    : squares_f32((const float *)run->d_p + q.from, q.to - q.from);
    }
    return rt_sum_tree(state->piece_sums, state->n_pieces);
}

void rt_finite_and_norm(RtRun *run, RtStep *s)
{
    double squares = squares_all(run, 1), scale = 1;
    if (isinf(squares) && run->model->real == RT_F64) { /* finite, but its squares are not */
        scale = 0x1p-600;
        squares = squares_all(run, scale);
    }
    s->norm = sqrt(squares) / scale / scale_of(s);
    bool finite = isfinite(squares) != 0;
    for (int i = 0; i < run->model->n_slots; i++)
        if (run->model->slots[i].weight != 0 && !isfinite(s->sum[i]))
            finite = false;
    s->finite = finite;
    s->factor = 1;
}

void rt_clip(RtRun *run, RtStep *s)
{
    const double clip = run->state->opt->train.clip;
    if (s->finite && clip > 0 && s->norm > clip)
        s->factor = clip / s->norm;
}

/* ---- updates of one piece ------------------------------------------------------------------- */

typedef struct {
    double factor, lr, decay, momentum, beta1, beta2, eps;
    double rate, root; /* lr / (1 - beta1^t), 1 / sqrt(1 - beta2^t) */
    bool nesterov, decoupled;
} Update;

/* The 16-bit copy of parameter i, x: */
#define COPY_NONE(x) RT_UNUSED(copy)
#define COPY_BF16(x) copy[i] = rt_to_bf16(x)
#define COPY_F16(x)  copy[i] = rt_to_f16(x)

#define SGD_PIECE(name, real, half, COPY)                                                          \
    static void sgd_##name(real *restrict p, half *restrict copy, real *restrict m,                \
                           const real *restrict d, ptrdiff_t n, Update u)                          \
    {                                                                                              \
        const real factor = (real)u.factor, lr = (real)u.lr, decay = (real)u.decay;                \
        const real momentum = (real)u.momentum, ahead = u.nesterov ? momentum : 1;                 \
        const real own = u.nesterov ? 1 : 0;                                                       \
        if (!m) {                                                                                  \
            _Pragma("omp simd") for (ptrdiff_t i = 0; i < n; i++)                                  \
            {                                                                                      \
                const real x = p[i] - lr * (factor * d[i] + decay * p[i]);                         \
                p[i] = x;                                                                          \
                COPY(x);                                                                           \
            }                                                                                      \
            return;                                                                                \
        }                                                                                          \
        _Pragma("omp simd") for (ptrdiff_t i = 0; i < n; i++)                                      \
        {                                                                                          \
            const real g = factor * d[i] + decay * p[i];                                           \
            const real mean = momentum * m[i] + g;                                                 \
            m[i] = mean;                                                                           \
            const real x = p[i] - lr * (own * g + ahead * mean);                                   \
            p[i] = x;                                                                              \
            COPY(x);                                                                               \
        }                                                                                          \
    }

#define ADAM_PIECE(name, real, sfx, half, COPY)                                                    \
    static void adam_##name(real *restrict p, half *restrict copy, real *restrict m,               \
                            real *restrict v, const real *restrict d, ptrdiff_t n, Update u)       \
    {                                                                                              \
        const real factor = (real)u.factor, rate = (real)u.rate, root = (real)u.root;              \
        const real eps = (real)u.eps, beta1 = (real)u.beta1, beta2 = (real)u.beta2;                \
        const real more1 = (real)(1 - u.beta1), more2 = (real)(1 - u.beta2);                       \
        const real keep = u.decoupled ? (real)(1 - u.lr * u.decay) : 1;                            \
        const real pull = u.decoupled ? 0 : (real)u.decay;                                         \
        _Pragma("omp simd") for (ptrdiff_t i = 0; i < n; i++)                                      \
        {                                                                                          \
            const real g = factor * d[i] + pull * p[i];                                            \
            const real mean = beta1 * m[i] + more1 * g;                                            \
            const real square = beta2 * v[i] + more2 * (g * g);                                    \
            m[i] = mean;                                                                           \
            v[i] = square;                                                                         \
            const real x = keep * p[i] - rate * mean / (rt_sqrt_##sfx(square) * root + eps);       \
            p[i] = x;                                                                              \
            COPY(x);                                                                               \
        }                                                                                          \
    }

SGD_PIECE(f32, float, void, COPY_NONE)
SGD_PIECE(f64, double, void, COPY_NONE)
SGD_PIECE(bf16, float, rt_bf16, COPY_BF16)
SGD_PIECE(f16, float, rt_f16, COPY_F16)
ADAM_PIECE(f32, float, f32, void, COPY_NONE)
ADAM_PIECE(f64, double, f64, void, COPY_NONE)
ADAM_PIECE(bf16, float, f32, rt_bf16, COPY_BF16)
ADAM_PIECE(f16, float, f32, rt_f16, COPY_F16)

/* ---- updates of all ------------------------------------------------------------------------- */

/* Elements q.from..q.to-1, which are at p. */
static void update_piece(RtRun *run, RtPiece q, void *p, const void *how)
{
    const RtState *state = run->state;
    Update u = *(const Update *)how;
    const ptrdiff_t n = q.to - q.from;
    const size_t at = (size_t)q.from * rt_real_bytes(run->model);
    void *m = state->n_states > 0 ? (char *)state->states[0].at + at : NULL;
    void *v = state->n_states > 1 ? (char *)state->states[1].at + at : NULL;
    const void *d = (const char *)run->d_p + at;
    const bool copied = run->p16 && run->model->n_halves == 0;
    uint16_t *copy = copied ? (uint16_t *)run->p16 + q.from : NULL;
    const bool sgd = state->opt->train.optimizer == RT_SGD, wide = run->model->real == RT_F64;
    const bool bf16 = copy && run->model->compute == RT_BF16, f16 = copy && !bf16;
    u.decay = rt_piece_decay(q, &state->opt->train);
    u.lr *= q.rate;
    u.rate *= q.rate;
    if (sgd && wide)
        sgd_f64(p, NULL, m, d, n, u);
    else if (sgd && bf16)
        sgd_bf16(p, copy, m, d, n, u);
    else if (sgd && f16)
        sgd_f16(p, copy, m, d, n, u);
    else if (sgd)
        sgd_f32(p, NULL, m, d, n, u);
    else if (wide)
        adam_f64(p, NULL, m, v, d, n, u);
    else if (bf16)
        adam_bf16(p, copy, m, v, d, n, u);
    else if (f16)
        adam_f16(p, copy, m, v, d, n, u);
    else
        adam_f32(p, NULL, m, v, d, n, u);
}

static void update_all(RtRun *run, const RtStep *s, bool decoupled)
{
    if (!s->finite)
        return;
    const RtTrain *t = &run->state->opt->train;
    const bool sgd = t->optimizer == RT_SGD;
    const double applied = (double)(s->applied + 1), beta1 = sgd ? 0 : rt_hyper(t, "beta1"),
                 beta2 = sgd ? 0 : rt_hyper(t, "beta2");
    const Update u = {
        .factor = s->factor / scale_of(s),
        .lr = s->lr,
        .decay = t->weight_decay,
        .momentum = sgd ? rt_hyper(t, "momentum") : 0,
        .beta1 = beta1,
        .beta2 = beta2,
        .eps = sgd ? 0 : rt_hyper(t, "eps"),
        .nesterov = t->nesterov,
        .rate = s->lr / (1 - pow(beta1, applied)),
        .root = 1 / sqrt(1 - pow(beta2, applied)),
        .decoupled = decoupled,
    };
#pragma omp parallel for schedule(static) if (run->model->n_elems > RT_PIECE)
    for (int i = 0; i < run->state->n_pieces; i++) {
        const RtPiece q = run->state->pieces[i];
        if (q.half)
            rt_piece_rounded(run, s, q, update_piece, &u);
        else
            update_piece(run, q, (char *)run->p + (size_t)q.from * rt_real_bytes(run->model), &u);
        if (run->state->ema)
            rt_ema_piece(run, s, q);
    }
    run->state->ema_moved = true;
}

void rt_update_sgd(RtRun *run, RtStep *s) { update_all(run, s, false); }
void rt_update_adam(RtRun *run, RtStep *s) { update_all(run, s, false); }
void rt_update_adamw(RtRun *run, RtStep *s) { update_all(run, s, true); }
