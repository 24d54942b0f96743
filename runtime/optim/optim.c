/* optim.c -- from the gradient to the new parameters: finite flag, norm, clip, update.
 *
 * In: the flat gradient and RtStep. Out: flat parameters and optimizer state. The one idea: the
 * flat buffer is cut into pieces that depend on the model table alone; a piece is summed in a fixed
 * order and the sums of pieces are added in a fixed tree, so no result depends on the thread count.
 * One pass per update: the emitted function of the optimizer gets piece by piece, and reads and
 * writes every element of p, its states and the 16-bit copy of p once. Gradients stay multiplied
 * by the loss scale: the norm is divided by it, the update reads factor / scale times the gradient.
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

const char *rt_optimizer_name(const RtTrain *t)
{
    static const char
        *const name[] = { [RT_LAMB] = "lamb", [RT_ADAFACTOR] = "adafactor", [RT_MUON] = "muon" };
    return t->optimizer != RT_RULE ? name[t->optimizer] : t->rule ? t->rule : "none";
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
    if (t->optimizer != RT_RULE) {
        state[0] = (RtStateTensor){ .name = "m" };
        state[1] = (RtStateTensor){ .name = "v" };
        return 2;
    }
    for (int i = 0; i < t->n_states; i++)
        state[i] = (RtStateTensor){ .name = t->states[i] };
    return t->n_states;
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
