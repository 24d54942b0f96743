/* step.cu -- the calls that a step of the emitted code makes, on a GPU.
 *
 * In: data, counters of the run. Out: work on the compute stream. The one idea: the host decides
 * nothing inside a step. What depends on the result of a step before, which the host has not seen
 * (updates applied, rate, loss scale, whether the run has stopped), is decided by three kernels of
 * one block each, with the same rules as on a CPU: begin, seed, end.
 */
#include "cuda/queue.h"

/* ---- kernels --------------------------------------------------------------------------------- */

typedef struct { /* what the host says of a step */
    RtKey key;
    RtCounters from;            /* as the host has the counters; .halted does not matter */
    bool take;                  /* these hold: no step is queued before this one */
    bool hold;                  /* it is to change nothing */
    double lr[RT_STEPS_QUEUED]; /* of the update after from.applied + i */
} Begin;

__global__ void g_begin_step(RtStep *s, RtCounters *counters, const Begin begin)
{
    const int i = (int)threadIdx.x; /* RT_MAX_SLOTS threads */
    s->sum[i] = s->count[i] = s->seed[i] = 0;
    if (i > 0)
        return;
    RtCounters c = *counters;
    if (begin.take) {
        c = begin.from;
        c.halted = false;
    }
    *counters = c;
    const int64_t late = c.applied - begin.from.applied;
    s->key = begin.key;
    s->sample = 0;
    s->finite = true;
    s->held = begin.hold || c.halted;
    s->norm = s->limited = 0;
    s->factor = 1;
    s->lr = begin.lr[late > 0 && late < RT_STEPS_QUEUED ? late : 0];
    s->applied = c.applied;
    s->scale = c.scale.scale > 0 ? c.scale.scale : 1;
}

typedef struct {
    double count[RT_MAX_SLOTS], weight[RT_MAX_SLOTS];
} Seed;

/* count: what the host counted, sizes; the device's own comes on top. */
__global__ void g_seed_losses(RtStep *s, const Seed host)
{
    const int i = (int)threadIdx.x; /* RT_MAX_SLOTS threads */
    const double scale = s->scale > 0 ? s->scale : 1, count = s->count[i] + host.count[i];
    s->count[i] = count;
    s->seed[i] = count > 0 ? host.weight[i] / count * scale : 0;
}

__global__ void g_end_step(const RtStep *s, RtCounters *counters, RtResult *result,
                           const RtScaleRules rules)
{
    RtCounters c = *counters;
    const bool finite = s->finite;
    const bool advanced = !s->held && (finite || rt_scale_may_skip(c.scale, rules));
    if (advanced) {
        c.scale = rt_scale_next(c.scale, rules, finite);
        c.applied += finite;
    }
    if (!s->held && !finite)
        c.halted = true;
    *counters = c;
    result->step = *s;
    result->after = c;
    result->advanced = advanced;
}

/* ---- as the emitted code calls them ---------------------------------------------------------- */

void rt_twin_begin(RtRun *run, const RtStep *s, bool hold)
{
    const RtState *state = run->state;
    RtQueue *q = state->queue;
    Begin begin;
    rt_biases_follow(run);
    memset(&begin, 0, sizeof begin);
    begin.key = s->key;
    begin.from.scale.scale = state->scale;
    begin.from.scale.tracker = state->tracker;
    begin.from.scale.stuck = state->stuck;
    begin.from.applied = state->applied;
    begin.take = q->queued == 0;
    begin.hold = hold;
    for (int i = 0; i < RT_STEPS_QUEUED && run->model->step; i++)
        begin.lr[i] = rt_schedule_lr(&state->opt->train, state->applied + i);
    RT_LAUNCH(run->stream, "begin of a step", g_begin_step, 1, RT_MAX_SLOTS, 0, q->twin,
              q->counters, begin);
}

void rt_begin_step(RtRun *run, RtStep *s)
{
    RtState *state = run->state;
    RtQueue *q = state->queue;
    const RtTrain *t = &state->opt->train;
    memset(s, 0, sizeof *s);
    s->key.seed = t->seed;
    s->key.step = (uint32_t)(state->step + q->queued);
    s->finite = true;
    s->factor = 1;
    s->check = state->check;
    s->device = q->twin;
    memcpy(run->dims, state->opt->dims, sizeof run->dims);
    run->micro_steps = (int)t->accumulate;
    rt_data_fill(state->data, RT_SPLIT_TRAIN, t->seed, state->samples + q->queued * t->batch,
                 (ptrdiff_t)t->batch, rt_rows(run));
    rt_inputs_send(run, (ptrdiff_t)t->batch);
    rt_twin_begin(run, s, q->hold);
    if (s->check)
        rt_check_begin(s->check);
}

void rt_begin_micro(RtRun *run, RtStep *s, int micro)
{
    const RtState *state = run->state;
    RtQueue *q = state->queue;
    const ptrdiff_t n = (ptrdiff_t)(state->opt->train.batch / run->micro_steps);
    rt_run_set_batch(run, n);
    s->sample = (int64_t)micro * n;
    if (q->micro != micro) /* with one micro-step it is there since the counts */
        rt_inputs_take(run, micro * n, n, s->sample);
    q->micro = micro;
    if (s->check)
        rt_check_micro(s->check, micro);
}

void rt_seed_losses(RtRun *run, RtStep *s)
{
    Seed host;
    memset(&host, 0, sizeof host);
    memcpy(host.count, s->count, sizeof host.count);
    for (int i = 0; i < run->model->n_slots; i++)
        host.weight[i] = run->model->slots[i].weight;
    RT_LAUNCH(run->stream, "seeds of the losses", g_seed_losses, 1, RT_MAX_SLOTS, 0, s->device,
              host);
}

void rt_reduce_gradients(RtRun *run, RtStep *s) /* one rank has the sum already */
{
    run->state->signal = rt_signal_pending();
    RT_UNUSED(s);
}

void rt_end_step(RtRun *run, RtStep *s)
{
    const RtState *state = run->state;
    RtQueue *q = state->queue;
    RtQueued *slot = &q->slot[q->next];
    RtStream *stream = run->stream;
    RT_LAUNCH(stream, "end of a step", g_end_step, 1, 1, 0, s->device, q->counters,
              q->result[q->next], rt_scale_rules(state));
    RT_CUDA_CALL(stream, cudaMemcpyAsync(slot->result, q->result[q->next], sizeof *slot->result,
                                         cudaMemcpyDeviceToHost, stream->at));
    RT_CUDA_CALL(stream, cudaEventRecord(slot->done, stream->at));
}
