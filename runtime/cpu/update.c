/* update.c -- from the gradient to the new parameters on a CPU: finite flag, norm, clip, update.
 *
 * In: the flat gradient and RtStep. Out: flat parameters and optimizer state. The one idea: a piece
 * is summed in a fixed order and the sums of pieces are added in a fixed tree, so no result depends
 * on the thread count. One pass per update: the emitted function of the optimizer gets piece by
 * piece, and reads and writes every element of p, its states and the 16-bit copy of p once.
 * Gradients stay multiplied by the loss scale: the norm is divided by it, the update reads factor /
 * scale times the gradient.
 */
#include "cpu/update.h"

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
    s->norm = s->limited = rt_plain_nan(sqrt(squares) / scale / scale_of(s));
    bool finite = isfinite(squares) != 0;
    for (int i = 0; i < run->model->n_slots; i++)
        if (run->model->slots[i].weight != 0 && !isfinite(s->sum[i]))
            finite = false;
    s->finite = s->check ? rt_check_finite(s->check, finite) : finite;
    s->factor = 1;
}

void rt_clip(RtRun *run, RtStep *s)
{
    const double clip = run->state->opt->train.clip;
    if (s->finite && clip > 0 && s->limited > clip)
        s->factor = clip / s->limited;
}

/* ---- updates -------------------------------------------------------------------------------- */

static char *element(void *flat, ptrdiff_t i, size_t bytes)
{
    return flat ? (char *)flat + (size_t)i * bytes : NULL;
}

RtUpdate rt_piece_update(const RtRun *run, const RtStep *s, RtPiece q)
{
    const RtState *state = run->state;
    const size_t bytes = rt_real_bytes(run->model);
    RtUpdate u = {
        .p = q.half ? NULL : element(run->p, q.from, bytes),
        .copy = run->model->n_halves > 0 ? NULL : element(run->p16, q.from, sizeof(uint16_t)),
        .d_p = element(run->d_p, q.from, bytes),
        .factor = s->factor / scale_of(s),
        .lr = s->lr * q.rate,
        .decay = rt_piece_decay(q, &state->opt->train),
        .t = (double)(s->applied + 1),
        .hyper = state->opt->train.hyper,
        .n = q.to - q.from,
    };
    for (int i = 0; i < state->n_states; i++)
        u.state[i] = element(state->states[i].at, q.from, bytes);
    return u;
}

typedef struct {
    const RtStep *s;
    void (*piece)(const RtUpdate *u);
} Emitted;

/* Elements q.from..q.to-1, which are at p. */
static void update_at(RtRun *run, RtPiece q, void *p, const void *how)
{
    const Emitted *emitted = how;
    RtUpdate u = rt_piece_update(run, emitted->s, q);
    u.p = p;
    emitted->piece(&u);
}

void rt_update(RtRun *run, RtStep *s, void (*piece)(const RtUpdate *u))
{
    const Emitted emitted = { s, piece };
    if (!s->finite)
        return;
#pragma omp parallel for schedule(static) if (run->model->n_elems > RT_PIECE)
    for (int i = 0; i < run->state->n_pieces; i++) {
        const RtPiece q = run->state->pieces[i];
        const RtUpdate u = rt_piece_update(run, s, q);
        if (q.half)
            rt_piece_rounded(run, s, q, update_at, &emitted);
        else
            piece(&u);
        if (run->state->ema)
            rt_ema_piece(run, s, q);
    }
    run->state->ema_moved = true;
}

/* ---- of optimizers that go through tensors --------------------------------------------------- */

double rt_tensor_sum(const RtTensors *all, const RtTensor *t, int sum)
{
    return rt_sum_tree(all->sums[sum] + t->first, t->n);
}

void rt_piece_updated(const RtRun *run, const RtStep *s, RtPiece q)
{
    const float *restrict p = run->p;
    if (run->p16 && run->model->compute == RT_BF16) {
        rt_bf16 *restrict copy = run->p16;
#pragma omp simd
        for (ptrdiff_t i = q.from; i < q.to; i++)
            copy[i] = rt_to_bf16(p[i]);
    } else if (run->p16) {
        rt_f16 *restrict copy = run->p16;
#pragma omp simd
        for (ptrdiff_t i = q.from; i < q.to; i++)
            copy[i] = rt_to_f16(p[i]);
    }
    if (run->state->ema)
        rt_ema_piece(run, s, q);
}

/* ---- what they keep -------------------------------------------------------------------------- */

static size_t sums_bytes(int n) { return (size_t)(n + 1) * sizeof(double); }

size_t rt_optim_place_bytes(const RtModel *m, const RtOptions *o)
{
    RT_UNUSED(o);
    int n;
    rt_free(rt_optim_pieces(m, &n));
    return sums_bytes(n);
}

void rt_optim_open(RtRun *run)
{
    RtState *state = run->state;
    state->piece_sums = rt_alloc(sums_bytes(state->n_pieces), "the sums of the norm");
}

void rt_optim_close(RtRun *run) { rt_free(run->state->piece_sums); }
