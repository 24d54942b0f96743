/* step.c -- the calls that a step of the emitted code makes, on a CPU; its inputs.
 *
 * In: data, counters of the run. Out: inputs, keys, seeds; counters. cuda/step.cu is its twin.
 */
#include "comm/comm.h"
#include "cpu/update.h"

/* ---- inputs ---------------------------------------------------------------------------------- */

RtStepBytes rt_step_bytes(const RtModel *m, const RtOptions *o, int use)
{
    RtStepBytes bytes = { 0 };
    for (int i = 0; i < m->n_inputs; i++)
        bytes.place += (double)rt_row_count(m, o, use) * (double)rt_row_bytes(m, o->dims, i);
    return bytes;
}

void rt_step_open(RtRun *run)
{
    RtState *state = run->state;
    for (int i = 0; i < run->model->n_inputs; i++) {
        const size_t row = rt_row_bytes(run->model, run->dims, i);
        state->rows[i] = rt_alloc((size_t)state->row_cap * row, run->model->inputs[i].name);
        run->inputs[i] = state->rows[i];
    }
}

void rt_step_close(RtRun *run)
{
    for (int i = 0; i < run->model->n_inputs; i++)
        rt_free(run->state->rows[i]);
}

void *const *rt_rows(RtRun *run) { return run->state->rows; }

void rt_rows_send(RtRun *run, const RtStep *s, ptrdiff_t n)
{
    RT_UNUSED(s);
    RT_UNUSED(n);
    for (int i = 0; i < run->model->n_inputs; i++)
        run->inputs[i] = run->state->rows[i];
}

/* ---- as the runtime calls it ----------------------------------------------------------------- */

void rt_step_run(RtRun *run, RtStep *s, bool ahead)
{
    RT_UNUSED(ahead);
    run->model->step(run, s);
}

bool rt_step_is_ahead(const RtRun *run)
{
    RT_UNUSED(run);
    return false;
}

void rt_step_start(RtRun *run, RtStep *s)
{
    RT_UNUSED(run);
    RT_UNUSED(s);
}

void rt_step_wait(RtRun *run, RtStep *s)
{
    RT_UNUSED(run);
    RT_UNUSED(s);
}

/* ---- as the emitted code calls them ---------------------------------------------------------- */

void rt_begin_step(RtRun *run, RtStep *s)
{
    RtState *state = run->state;
    const RtTrain *t = &state->opt->train;
    state->seeded = false;
    *s = (RtStep){ .key = { t->seed, (uint32_t)state->step },
                   .finite = true,
                   .factor = 1,
                   .lr = rt_schedule_lr(t, state->applied),
                   .applied = state->applied,
                   .scale = state->scale > 0 ? state->scale : 1,
                   .check = state->check };
    memcpy(run->dims, state->opt->dims, sizeof run->dims);
    run->micro_steps = rt_micro_steps(t);
    const ptrdiff_t share = rt_rank_batch(t);
    rt_data_fill(state->data, RT_SPLIT_TRAIN, t->seed, state->samples + rt_rank() * share, share,
                 state->rows);
    if (s->check)
        rt_check_begin(s->check);
}

void rt_begin_micro(RtRun *run, RtStep *s, int micro)
{
    const RtState *state = run->state;
    const RtTrain *t = &state->opt->train;
    const ptrdiff_t n = rt_micro_batch(t);
    if (state->tree && state->seeded && micro > 0 && micro % t->accumulate == 0)
        rt_tree_leaf(state->tree, run->d_p, s);
    rt_run_set_batch(run, n);
    s->sample = (int64_t)rt_rank() * rt_rank_batch(t) + (int64_t)micro * n;
    for (int i = 0; i < run->model->n_inputs; i++)
        run->inputs[i] = (const char *)state->rows[i]
                         + (size_t)(micro * n) * rt_row_bytes(run->model, state->opt->dims, i);
    s->buckets = micro == run->micro_steps - 1 && !state->tree ? state->buckets : NULL;
    if (s->check)
        rt_check_micro(s->check, micro);
}

void rt_seed_losses(RtRun *run, RtStep *s)
{
    const double scale = s->scale > 0 ? s->scale : 1;
    bool empty = false;
    rt_comm_sum(s->count, run->model->n_slots, RT_F64, "the counts of the losses");
    for (int i = 0; i < run->model->n_slots; i++) {
        s->seed[i] = s->count[i] > 0 ? run->model->slots[i].weight / s->count[i] * scale : 0;
        empty = empty || (run->model->slots[i].weight != 0 && !(s->count[i] > 0));
    }
    RtState *state = run->state;
    state->seeded = true;
    if (empty && state->empty++ == 0)
        rt_warn("step %lld: no element of the batch counts in the loss: it is 0, and so is its "
                "gradient",
                (long long)state->step + 1);
}

/* Over all ranks: what is not there without the others' share, and whether one is to stop. */
void rt_reduce_gradients(RtRun *run, RtStep *s)
{
    const RtModel *m = run->model;
    s->buckets = NULL;
    rt_tree_finish(run->state->tree, run->d_p, s);
    rt_buckets_finish(run->state->buckets);
    run->state->signal = rt_comm_signal();
    rt_comm_sum(s->sum, m->n_slots, RT_F64, "the sums of the losses");
}

void rt_end_step(RtRun *run, RtStep *s)
{
    RtState *state = run->state;
    if (s->finite && state->ema && !state->ema_moved)
        rt_ema_follow(run, s);
    state->ema_moved = false;
    if (!s->finite && !rt_scale_skips(state)) /* the caller sees the same step, and stops */
        return;
    rt_scale_advance(state, s->finite);
    state->step++;
    state->applied += s->finite;
    state->skipped += !s->finite;
    state->samples += state->opt->train.batch;
}
