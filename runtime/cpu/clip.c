/* clip.c -- clipping of single elements of the gradient.
 *
 * In: finite gradients, still multiplied by the loss scale. Out: each limited to -clip_value ..
 * clip_value times that scale, in place, and their norm, which clipping by norm goes on from. The
 * one idea: whether all are finite is decided before, since a limit would hide what is infinite.
 */
#include "cpu/update.h"

#define CLIP(real, sfx)                                                                            \
    /* Limits a piece; the sum of its squares. */                                                  \
    static double limit_##sfx(real *restrict d, RtPiece q, double most)                            \
    {                                                                                              \
        const real hi = (real)most, lo = -hi;                                                      \
        double sum = 0;                                                                            \
        RT_SIMD(reduction(+ : sum))                                                                \
        for (ptrdiff_t i = q.from; i < q.to; i++) {                                                \
            const real g = d[i] > hi ? hi : d[i] < lo ? lo : d[i];                                 \
            d[i] = g;                                                                              \
            sum += (double)g * (double)g;                                                          \
        }                                                                                          \
        return sum;                                                                                \
    }

CLIP(float, f32)
CLIP(double, f64)

void rt_clip_value(RtRun *run, RtStep *s)
{
    const RtState *state = run->state;
    const double value = state->opt->train.clip_value, scale = s->scale > 0 ? s->scale : 1;
    if (!s->finite || !(value > 0))
        return;
    RT_PRAGMA(omp parallel for schedule(static) if (run->model->n_elems > RT_PIECE))
    for (int i = 0; i < state->n_pieces; i++)
        state->piece_sums[i] = run->model->real == RT_F64
                                   ? limit_f64(run->d_p, state->pieces[i], value * scale)
                                   : limit_f32(run->d_p, state->pieces[i], value * scale);
    s->limited = sqrt(rt_sum_tree(state->piece_sums, state->n_pieces)) / scale;
}
