/* copy.c -- parameters in 16 bits: the copy that products read, and those that are kept so.
 *
 * In: flat values in real type. Out: each rounded to the nearest, at the same place.
 */
#include "cpu/update.h"

void rt_params_round(const RtModel *m, const void *x, void *p)
{
    const ptrdiff_t wide = rt_params_wide(m);
    const float *restrict from = x;
    uint16_t *restrict half = rt_params_halves(m, p);
    memcpy(p, x, (size_t)wide * rt_real_bytes(m));
#pragma omp parallel for simd schedule(static) if (parallel : m->n_halves > RT_PIECE)
    for (ptrdiff_t i = wide; i < m->n_elems; i++)
        half[i] = rt_to_bf16(from[i]);
}

void rt_params_copy(RtRun *run)
{
    const float *restrict p = run->p;
    const ptrdiff_t n = run->p16 && run->model->n_halves == 0 ? run->model->n_elems : 0;
    uint16_t *restrict copy = run->p16;
    if (run->model->compute == RT_BF16) {
#pragma omp parallel for simd schedule(static) if (parallel : n > RT_PIECE)
        for (ptrdiff_t i = 0; i < n; i++)
            copy[i] = rt_to_bf16(p[i]);
    } else {
#pragma omp parallel for simd schedule(static) if (parallel : n > RT_PIECE)
        for (ptrdiff_t i = 0; i < n; i++)
            copy[i] = rt_to_f16(p[i]);
    }
}
