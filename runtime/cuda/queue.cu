/* queue.cu -- steps one behind the other on a GPU, and what the host learns of them.
 *
 * In: how far ahead the host may go. Out: results, at most one step late. The one idea: while the
 * GPU computes a step, the next one is queued already; where an update was not finite, what was
 * queued behind it changes nothing (RtCounters.halted) and is queued anew later, and the step
 * itself runs once more, held, so that its gradient is there to be looked at.
 */
#include "cuda/matmul.h"
#include "cuda/queue.h"

void rt_biases_follow(const RtRun *run)
{
    const RtModel *m = run->model;
    const bool copied = run->p16 && m->n_halves == 0;
    rt_products_copy((const float *)run->p, (const uint16_t *)run->p16, m->compute,
                     copied ? m->n_elems : 0);
}

/* ---- open and close -------------------------------------------------------------------------- */

/* Are micro-steps recorded as graphs? NCCL wants that of all ranks or of none. */
static bool use_graphs(bool profiled)
{
    double none = rt_environment_is("RT_CUDA_GRAPH", "0") || rt_device()->sync || profiled;
    rt_comm_all_reduce(rt_comm_world(), &none, 1, RT_F64, RT_MAX, "whether there are graphs");
    return none < 1;
}

void rt_step_open(RtRun *run)
{
    RtQueue *q = (RtQueue *)rt_alloc(sizeof *q, "the queue of steps");
    const bool profiled = rt_profile_open();
    run->stream = &rt_device()->compute;
    run->state->queue = q;
    q->micro = -1;
    rt_device()->tf32 = run->state->opt->tf32;
    q->graphs = use_graphs(profiled);
    q->twin = (RtStep *)rt_place_alloc(sizeof *q->twin, "a step");
    q->counters = (RtCounters *)rt_place_alloc(sizeof *q->counters, "a step");
    for (int k = 0; k < RT_STEPS_QUEUED; k++)
        q->result[k] = (RtResult *)rt_place_alloc(sizeof(RtResult), "a step");
    if (rt_ranks() > 1)
        q->told = (double *)rt_place_alloc(RT_TOLD_BYTES, "a step");
    rt_inputs_open(run);
    rt_biases_follow(run);
}

void rt_step_close(RtRun *run)
{
    RtQueue *q = run->state->queue;
    rt_stream_wait(run->stream);
    rt_stream_wait(&rt_device()->copy);
    rt_profile_write();
    rt_graphs_close(q);
    rt_inputs_close(run);
    rt_products_copy(NULL, NULL, RT_F32, 0);
    for (int k = 0; k < RT_STEPS_QUEUED; k++)
        rt_place_free(q->result[k]);
    rt_place_free(q->told);
    rt_place_free(q->counters);
    rt_place_free(q->twin);
    rt_free(q);
    rt_rooms_leave();
}

/* ---- steps ----------------------------------------------------------------------------------- */

static void queue_step(RtRun *run, bool hold)
{
    RtQueue *q = run->state->queue;
    RtQueued *slot = &q->slot[q->next];
    q->hold = slot->held = hold;
    rt_profile_update(true);
    run->model->step(run, &slot->step);
    rt_profile_update(false);
    q->hold = false;
    q->next = (q->next + 1) % RT_STEPS_QUEUED;
    q->queued++;
}

/* The oldest step that is queued is done: what came back of it. */
static RtResult oldest_result(RtRun *run)
{
    RtQueue *q = run->state->queue;
    RtQueued *slot = &q->slot[(q->next + RT_STEPS_QUEUED - q->queued) % RT_STEPS_QUEUED];
    rt_event_wait(run->stream, slot->done);
    q->queued--;
    RtResult result = *slot->result;
    result.step.check = slot->step.check;
    result.step.device = q->twin;
    return result;
}

static void tell_empty(RtState *state, const RtModel *m, const RtStep *s)
{
    bool empty = false;
    for (int i = 0; i < m->n_slots; i++)
        empty = empty || (m->slots[i].weight != 0 && !(s->count[i] > 0));
    if (empty && state->empty++ == 0)
        rt_warn("step %lld: no element of the batch counts in the loss: it is 0, and so is its "
                "gradient",
                (long long)state->step + 1);
}

/* Is the loss finite, and the gradient? Held or not. */
static bool found_finite(const RtModel *m, const RtStep *s)
{
    bool finite = isfinite(s->norm) != 0;
    for (int i = 0; i < m->n_slots; i++)
        finite = finite && (m->slots[i].weight == 0 || isfinite(s->sum[i]));
    return finite;
}

/* A step that was not finite, and another one behind it that changed nothing: d_p is that of the
   first again. */
static void repeat_held(RtRun *run)
{
    while (run->state->queue->queued > 0)
        (void)oldest_result(run);
    queue_step(run, true);
    (void)oldest_result(run);
}

void rt_step_run(RtRun *run, RtStep *s, bool ahead)
{
    RtState *state = run->state;
    RtQueue *q = state->queue;
    const bool hold = rt_check_rehearses(state->check);
    if (q->queued == 0)
        queue_step(run, hold);
    if (ahead && !state->check)
        queue_step(run, false);
    const RtResult result = oldest_result(run);
    *s = result.step;
    if (rt_ranks() > 1)
        state->signal = result.signal;
    tell_empty(state, run->model, s);
    if (!s->finite && q->queued > 0)
        repeat_held(run);
    if (s->check)
        s->finite = rt_check_finite(s->check, found_finite(run->model, s));
    if (!result.advanced)
        return;
    state->step++;
    state->applied = result.after.applied;
    state->skipped += !s->finite;
    state->samples += state->opt->train.batch;
    state->scale = result.after.scale.scale;
    state->tracker = result.after.scale.tracker;
    state->stuck = result.after.scale.stuck;
}

bool rt_step_is_ahead(const RtRun *run) { return run->state->queue->queued > 0; }

/* ---- evaluations and outputs ----------------------------------------------------------------- */

void rt_step_start(RtRun *run, RtStep *s)
{
    RtQueue *q = run->state->queue;
    while (q->queued > 0) /* never, as the runtime calls it */
        (void)oldest_result(run);
    s->device = q->twin;
    rt_twin_begin(run, s, true);
}

void rt_step_wait(RtRun *run, RtStep *s)
{
    RtQueue *q = run->state->queue;
    RtStep *back = &q->slot[0].result->step;
    RtStream *stream = run->stream;
    RT_CUDA_CALL(stream,
                 cudaMemcpyAsync(back, q->twin, sizeof *back, cudaMemcpyDeviceToHost, stream->at));
    rt_stream_wait(stream);
    for (int i = 0; i < RT_MAX_SLOTS; i++) {
        s->sum[i] = back->sum[i];
        s->count[i] += back->count[i]; /* sizes were counted by the host */
    }
}
