/* step.cu -- the calls that a step of the emitted code makes, on a GPU.
 *
 * In: data, counters of the run. Out: work on the compute stream. The one idea: the host decides
 * nothing inside a step. What depends on the result of a step before, which the host has not seen
 * (updates applied, rate, loss scale, whether the run has stopped), is decided by three kernels of
 * one block each, with the same rules as on a CPU: begin, seed, end.
 */
#include "cuda/exchange.h"
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

/* Of several ranks. Counts of this one: the device's own, and what the host counted. */
__global__ void g_add_counts(RtStep *s, const Seed host)
{
    s->count[threadIdx.x] += host.count[threadIdx.x]; /* RT_MAX_SLOTS threads */
}

/* Thread i: to[i] = the sum over ranks of all[rank * n + i], pairwise as on a CPU. n: of a rank. */
__global__ void g_add_ranks(double *to, double *all, int n, int ranks)
{
    const int i = (int)threadIdx.x;
    for (int step = 1; step < ranks; step *= 2)
        for (int r = 0; r + step < ranks; r += 2 * step)
            all[r * n + i] += all[(r + step) * n + i];
    to[i] = all[i];
}

/* What this rank tells the others at the end of a step. */
__global__ void g_tell_ranks(double *told, const RtStep *s, double signal)
{
    const int i = (int)threadIdx.x; /* RT_MAX_SLOTS + 1 threads */
    told[i] = i < RT_MAX_SLOTS ? s->sum[i] : signal;
}

/* The highest signal of all ranks; told: of one of them, n numbers, it is the last. */
__global__ void g_highest_signal(double *signal, const double *told, int n, int ranks)
{
    double highest = 0;
    for (int r = 0; r < ranks; r++)
        highest = fmax(highest, told[r * n + n - 1]);
    *signal = highest;
}

/* count: what the host counted, sizes; the device's own comes on top. */
__global__ void g_seed_losses(RtStep *s, const Seed host)
{
    const int i = (int)threadIdx.x; /* RT_MAX_SLOTS threads */
    const double scale = s->scale > 0 ? s->scale : 1, count = s->count[i] + host.count[i];
    s->count[i] = count;
    s->seed[i] = count > 0 ? host.weight[i] / count * scale : 0;
}

__global__ void g_end_step(const RtStep *s, RtCounters *counters, RtResult *result,
                           const RtScaleRules rules, const double *signal)
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
    result->signal = signal ? (int)*signal : 0;
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
    const ptrdiff_t share = rt_rank_batch(t);
    state->seeded = false;
    memset(s, 0, sizeof *s);
    s->key.seed = t->seed;
    s->key.step = (uint32_t)(state->step + q->queued);
    s->finite = true;
    s->factor = 1;
    s->check = state->check;
    s->device = q->twin;
    memcpy(run->dims, state->opt->dims, sizeof run->dims);
    run->micro_steps = rt_micro_steps(t);
    rt_data_fill(state->data, RT_SPLIT_TRAIN, t->seed,
                 state->samples + q->queued * t->batch + rt_rank() * share, share, rt_rows(run));
    rt_inputs_send(run, share);
    rt_twin_begin(run, s, q->hold);
    if (s->check)
        rt_check_begin(s->check);
}

void rt_begin_micro(RtRun *run, RtStep *s, int micro)
{
    const RtState *state = run->state;
    RtQueue *q = state->queue;
    const RtTrain *t = &state->opt->train;
    const ptrdiff_t n = rt_micro_batch(t);
    if (state->tree && state->seeded && micro > 0 && micro % t->accumulate == 0)
        rt_tree_leaf(state->tree, run->d_p, s);
    rt_run_set_batch(run, n);
    s->sample = (int64_t)rt_rank() * rt_rank_batch(t) + (int64_t)micro * n;
    s->buckets = micro == run->micro_steps - 1 && !state->tree ? state->buckets : NULL;
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
    run->state->seeded = true;
    if (rt_ranks() > 1) {
        RT_LAUNCH(run->stream, "counts", g_add_counts, 1, RT_MAX_SLOTS, 0, s->device, host);
        double *all = rt_exchange_gather(s->device->count, RT_MAX_SLOTS,
                                         "the counts of the losses");
        RT_LAUNCH(run->stream, "counts", g_add_ranks, 1, RT_MAX_SLOTS, 0, s->device->count, all,
                  RT_MAX_SLOTS, rt_ranks());
        memset(host.count, 0, sizeof host.count);
    }
    RT_LAUNCH(run->stream, "seeds of the losses", g_seed_losses, 1, RT_MAX_SLOTS, 0, s->device,
              host);
}

/* Over all ranks: what is not there without the others' share, and whether one is to stop. */
void rt_reduce_gradients(RtRun *run, RtStep *s)
{
    enum { TOLD = RT_MAX_SLOTS + 1 };
    const RtQueue *q = run->state->queue;
    s->buckets = NULL;
    rt_tree_finish(run->state->tree, run->d_p, s);
    if (rt_ranks() == 1) {
        run->state->signal = rt_signal_pending();
        return;
    }
    rt_buckets_finish(run->state->buckets);
    RT_LAUNCH(run->stream, "sums of the losses", g_tell_ranks, 1, TOLD, 0, q->told, s->device,
              (double)rt_signal_pending());
    double *all = rt_exchange_gather(q->told, TOLD, "the sums of the losses");
    RT_LAUNCH(run->stream, "signals", g_highest_signal, 1, 1, 0, q->told, all, TOLD, rt_ranks());
    RT_LAUNCH(run->stream, "sums of the losses", g_add_ranks, 1, RT_MAX_SLOTS, 0, s->device->sum,
              all, TOLD, rt_ranks());
}

void rt_end_step(RtRun *run, RtStep *s)
{
    const RtState *state = run->state;
    RtQueue *q = state->queue;
    RtQueued *slot = &q->slot[q->next];
    RtStream *stream = run->stream;
    RT_LAUNCH(stream, "end of a step", g_end_step, 1, 1, 0, s->device, q->counters,
              q->result[q->next], rt_scale_rules(state), q->told);
    RT_CUDA_CALL(stream, cudaMemcpyAsync(slot->result, q->result[q->next], sizeof *slot->result,
                                         cudaMemcpyDeviceToHost, stream->at));
    RT_CUDA_CALL(stream, cudaEventRecord(slot->done, stream->at));
}
