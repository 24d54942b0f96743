/* ema.c -- an average of the weights that forgets: the exponential moving average.
 *
 * In: parameters after an update that was applied. Out: e = e + (1 - d) (p - e), which is
 * d e + (1 - d) p, in the parameters' own type, with d = min(ema, (1 + t) / (10 + t)) after t
 * updates (rt_ema_decay).
 *
 * The one idea: each piece of the parameters is averaged right after it was updated, while it is in
 * the cache. An optimizer that does not go through pieces has a pass of its own behind it.
 */
#include "cpu/update.h"

void rt_ema_start(RtRun *run)
{
    if (run->state->ema)
        memcpy(run->state->ema, run->p,
               (size_t)rt_params_wide(run->model) * rt_real_bytes(run->model));
    const uint16_t *half = rt_params_halves(run->model, run->p);
    float *e = run->state->ema;
    for (ptrdiff_t i = rt_params_wide(run->model); e && i < run->model->n_elems; i++)
        e[i] = rt_of_bf16(half[i]);
}

void rt_ema_piece(const RtRun *run, const RtStep *s, RtPiece q)
{
    const double more = 1 - rt_ema_decay(run->state->opt->train.ema, s->applied);
    if (run->model->real == RT_F64) {
        const double *restrict p = run->p;
        double *restrict e = run->state->ema;
#pragma omp simd
        for (ptrdiff_t i = q.from; i < q.to; i++)
            e[i] += more * (p[i] - e[i]);
    } else if (q.half) {
        const uint16_t *restrict p = rt_params_halves(run->model, run->p);
        float *restrict e = run->state->ema, part = (float)more;
#pragma omp simd
        for (ptrdiff_t i = q.from; i < q.to; i++)
            e[i] += part * (rt_of_bf16(p[i]) - e[i]);
    } else {
        const float *restrict p = run->p, part = (float)more;
        float *restrict e = run->state->ema;
#pragma omp simd
        for (ptrdiff_t i = q.from; i < q.to; i++)
            e[i] += part * (p[i] - e[i]);
    }
}

void rt_ema_follow(const RtRun *run, const RtStep *s)
{
    const RtState *state = run->state;
#pragma omp parallel for schedule(static) if (run->model->n_elems > RT_PIECE)
    for (int i = 0; i < state->n_pieces; i++)
        rt_ema_piece(run, s, state->pieces[i]);
}

void rt_ema_swap(RtRun *run)
{
    RtState *state = run->state;
    void **other = state->other ? &state->other : &state->ema, *p = run->p;
    state->swapped = !state->swapped;
    if (state->other && state->swapped)
        rt_params_round(run->model, state->ema, state->other);
    run->p = *other;
    *other = p;
    if (state->other)
        run->p16 = rt_params_halves(run->model, run->p);
    rt_params_copy(run);
}
