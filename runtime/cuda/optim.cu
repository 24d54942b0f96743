/* optim.cu -- the update of elements, and what belongs to it: the copy in 16 bits, the average of
 * the weights.
 *
 * In: gradients, RtStep's twin on the device. Out: parameters and states. The one idea: an update
 * is one launch of the emitted kernel over a table of parts (tables.cu); it reads and writes every
 * element of p, its states, the copy and the average once.
 */
#include "optim.h"

RtUpdates rt_updates(const RtRun *run, const RtStep *s)
{
    const RtState *state = run->state;
    const RtTrain *t = &state->opt->train;
    RtUpdates u = {};
    u.p = run->p;
    u.copy = run->model->n_halves > 0 ? NULL : run->p16;
    u.half = rt_params_halves(run->model, run->p);
    u.average = state->ema;
    for (int i = 0; i < state->n_states; i++)
        u.state[i] = state->states[i].at;
    u.d_p = run->d_p;
    u.part = state->tables.part;
    u.n_parts = state->tables.n_parts;
    for (int i = 0; i < t->n_hypers; i++)
        u.hyper[i] = t->hyper[i].value;
    u.power = state->tables.power;
    u.ema = t->ema;
    u.s = s->device;
    return u;
}

const double *rt_power_of(const RtRun *run, const char *hyper)
{
    const RtTrain *t = &run->state->opt->train;
    int i = 0;
    while (strcmp(t->hyper[i].name, hyper) != 0)
        i++;
    return run->state->tables.power + i;
}

void rt_update(RtRun *run, RtStep *s, void (*all)(const RtUpdates *u, RtStream *stream))
{
    const RtUpdates u = rt_updates(run, s);
    all(&u, run->stream);
    run->state->ema_moved = true;
}

/* ---- copies of flat buffers ------------------------------------------------------------------ */

/* Elements from..to-1 as a part: those of this block, RT_UPDATE_PART of them. */
RT_DEVICE RtPart block_part(ptrdiff_t from, ptrdiff_t to)
{
    RtPart q = {};
    const ptrdiff_t at = (from / RT_UPDATE_PART + (ptrdiff_t)blockIdx.x) * RT_UPDATE_PART;
    q.from = at > from ? at : from;
    q.to = at + RT_UPDATE_PART < to ? at + RT_UPDATE_PART : to;
    return q;
}

/* Flat values to 16 bits, at the same places: all of a model, or from..to-1. */
template <RtType type>
__global__ void __launch_bounds__(RT_UPDATE_THREADS)
    g_params_copy(uint16_t *copy, const float *p, ptrdiff_t from, ptrdiff_t to)
{
    const RtPart q = block_part(from, to);
    for (ptrdiff_t i = rt_update_first(q); i < q.to; i += RT_UPDATE_STRIDE) {
        float x[4];
        rt_take(x, p, q, i);
        if (type == RT_BF16)
            rt_put_bf16(copy, q, i, x);
        else
            rt_put_f16(copy, q, i, x);
    }
}

/* The other way, of parameters that are kept in 16 bits alone. */
__global__ void __launch_bounds__(RT_UPDATE_THREADS)
    g_params_widen(float *x, const uint16_t *half, ptrdiff_t from, ptrdiff_t to)
{
    const RtPart q = block_part(from, to);
    for (ptrdiff_t i = rt_update_first(q); i < q.to; i += RT_UPDATE_STRIDE) {
        uint16_t h[4];
        float wide[4];
        rt_take_halves(h, half, q, i);
        for (int k = 0; k < 4; k++)
            wide[k] = rt_of_bf16(h[k]);
        rt_put(x, q, i, wide);
    }
}

static void copy_to_bf16(const RtRun *run, void *to, const void *from, ptrdiff_t first)
{
    const ptrdiff_t n = run->model->n_elems;
    RT_LAUNCH(run->stream, run->model->source, g_params_copy<RT_BF16>, rt_parts_of(first, n),
              RT_UPDATE_THREADS, 0, (uint16_t *)to, (const float *)from, first, n);
}

void rt_params_copy(RtRun *run)
{
    const ptrdiff_t n = run->model->n_elems, none = 0;
    if (rt_params_copy_bytes(run->model) == 0)
        return;
    if (run->model->compute == RT_BF16)
        copy_to_bf16(run, run->p16, run->p, 0);
    else
        RT_LAUNCH(run->stream, run->model->source, g_params_copy<RT_F16>, rt_parts_of(0, n),
                  RT_UPDATE_THREADS, 0, (uint16_t *)run->p16, (const float *)run->p, none, n);
}

static void copy_wide(const RtRun *run, void *to, const void *from)
{
    const size_t bytes = (size_t)rt_params_wide(run->model) * rt_real_bytes(run->model);
    if (bytes > 0)
        RT_CUDA_CALL(run->stream,
                     cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, run->stream->at));
}

/* ---- the average of the weights -------------------------------------------------------------- */

void rt_ema_start(RtRun *run)
{
    const RtModel *m = run->model;
    const ptrdiff_t wide = rt_params_wide(m);
    if (!run->state->ema)
        return;
    copy_wide(run, run->state->ema, run->p);
    RT_LAUNCH(run->stream, m->source, g_params_widen, rt_parts_of(wide, m->n_elems),
              RT_UPDATE_THREADS, 0, (float *)run->state->ema, rt_params_halves(m, run->p), wide,
              m->n_elems);
}

void rt_ema_swap(RtRun *run)
{
    RtState *state = run->state;
    const RtModel *m = run->model;
    void **other = state->other ? &state->other : &state->ema, *p = run->p;
    state->swapped = !state->swapped;
    if (state->other && state->swapped) {
        copy_wide(run, state->other, state->ema);
        copy_to_bf16(run, rt_params_halves(m, state->other), state->ema, rt_params_wide(m));
    }
    run->p = *other;
    *other = p;
    if (state->other)
        run->p16 = rt_params_halves(m, run->p);
    rt_params_copy(run);
}
