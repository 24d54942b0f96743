/* cpu.c -- a model with its buffers on the CPU, and its updates. */
#include "twins.h"

#include "../runtime/updates.h"

static ptrdiff_t state_elems(const Twin *t, int i)
{
    const RtStateShape shape = t->state.states[i].shape;
    return shape ? rt_state_elems(t->run.model, shape) : t->run.model->n_elems;
}

void cpu_open(Twin *t, const RtModel *m)
{
    const size_t flat = (size_t)m->n_elems * rt_real_bytes(m);
    *t = (Twin){ .opt.train = m->train };
    t->run.model = m;
    t->run.state = &t->state;
    t->state.opt = &t->opt;
    t->run.p = rt_alloc(rt_params_bytes(m), "a test");
    t->run.p16 = rt_params_halves(m, t->run.p);
    if (rt_params_copy_bytes(m) > 0)
        t->run.p16 = rt_alloc(rt_params_copy_bytes(m), "a test");
    t->run.d_p = rt_alloc(flat, "a test");
    t->run.arena = rt_alloc(rt_optim_work_bytes(m, &m->train) + 1, "a test");
    t->state.n_states = rt_optim_states(&m->train, t->state.states);
    for (int i = 0; i < t->state.n_states; i++)
        t->state.states[i].at = rt_alloc((size_t)state_elems(t, i) * rt_real_bytes(m) + 1,
                                         "a test");
    if (m->train.ema > 0)
        t->state.ema = rt_alloc(flat, "a test");
    if (m->train.ema > 0 && m->n_halves > 0)
        t->state.other = rt_alloc(rt_params_bytes(m), "a test");
    t->state.pieces = rt_optim_pieces(m, &t->state.n_pieces);
    t->state.tensors = rt_tensors_new(m, m->train.optimizer);
    rt_optim_open(&t->run);
}

static void update(Twin *t, RtStep *s)
{
    const RtModel *m = t->run.model;
    switch (m->train.optimizer) {
    case RT_LAMB: rt_update_lamb(&t->run, s); return;
    case RT_ADAFACTOR: rt_update_adafactor(&t->run, s); return;
    case RT_MUON: rt_update_muon(&t->run, s); return;
    default: break;
    }
    const bool copy = rt_params_copy_bytes(m) > 0;
    rt_update(&t->run, s,
              m->real == RT_F64               ? adamw_f64
              : copy && m->compute == RT_BF16 ? adamw_bf16
              : copy                          ? adamw_f16
                                              : adamw_f32);
}

void cpu_do(Twin *t, Do what, RtStep *s)
{
    switch (what) {
    case DO_NORM: rt_finite_and_norm(&t->run, s); break;
    case DO_CLIP_VALUE: rt_clip_value(&t->run, s); break;
    case DO_CLIP: rt_clip(&t->run, s); break;
    case DO_UPDATE: update(t, s); break;
    case DO_COPY: rt_params_copy(&t->run); break;
    case DO_EMA_START: rt_ema_start(&t->run); break;
    case DO_EMA_SWAP: rt_ema_swap(&t->run); break;
    }
}
