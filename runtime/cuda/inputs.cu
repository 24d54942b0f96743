/* inputs.cu -- samples on their way to a GPU.
 *
 * In: rows that the host wrote. Out: run->inputs, always at one place, so that a micro-step can
 * be recorded. The one idea: the samples of a whole update are copied while the update before it
 * computes: from one of two pinned buffers, on a stream of their own, to a staging area; a kernel
 * takes those of a micro-step from there. Events keep each from being overwritten too early.
 */
#include "cuda/queue.h"

/* ---- kernels --------------------------------------------------------------------------------- */

typedef struct {
    struct {
        char *to;
        const char *from;
        size_t bytes; /* a multiple of 4 */
    } input[RT_MAX_DIMS];
} Take;

enum { THREADS = 256, BLOCKS_MOST = 512 };

/* Block (x, i) copies part of input i; thread 0 of all tells the number of the first sample. */
__global__ void g_take_samples(RtStep *twin, int64_t sample, const Take take)
{
    const size_t bytes = take.input[blockIdx.y].bytes;
    const char *const from = take.input[blockIdx.y].from;
    char *const to = take.input[blockIdx.y].to;
    const size_t first = (size_t)blockIdx.x * THREADS + threadIdx.x;
    const size_t step = (size_t)gridDim.x * THREADS;
    if (first == 0 && blockIdx.y == 0)
        twin->sample = sample;
    if ((uintptr_t)from % 16 == 0) { /* to is aligned */
        for (size_t i = first; i < bytes / 16; i += step)
            ((uint4 *)to)[i] = ((const uint4 *)from)[i];
        for (size_t i = bytes / 16 * 4 + first; i < bytes / 4; i += step)
            ((uint32_t *)to)[i] = ((const uint32_t *)from)[i];
    } else {
        for (size_t i = first; i < bytes / 4; i += step)
            ((uint32_t *)to)[i] = ((const uint32_t *)from)[i];
    }
}

/* ---- buffers --------------------------------------------------------------------------------- */

/* Samples of a micro-step, or of a batch of a validation. */
static ptrdiff_t batch_rows(const RtModel *m, const ptrdiff_t *dims)
{
    ptrdiff_t rows = 1;
    for (int i = 0; i < m->n_dims; i++)
        if (m->dims[i].batch && dims[i] > rows)
            rows = dims[i];
    return rows;
}

RtStepBytes rt_step_bytes(const RtModel *m, const RtOptions *o, int use)
{
    const size_t rows = (size_t)rt_row_count(m, o, use), batch = (size_t)batch_rows(m, o->dims);
    RtStepBytes bytes = { 0, (double)(sizeof(RtQueue) + rt_place_overhead()), 0 };
    for (int i = 0; i < m->n_inputs; i++) {
        const size_t row = rt_row_bytes(m, o->dims, i);
        bytes.place += (double)(rt_place_size(rows * row) + rt_place_size(batch * row));
        bytes.pinned += (double)(RT_STEPS_QUEUED * rows * row);
    }
    bytes.place += (double)(rt_place_size(sizeof(RtStep)) + rt_place_size(sizeof(RtCounters))
                            + RT_STEPS_QUEUED * rt_place_size(sizeof(RtResult))
                            + (rt_ranks() > 1 ? rt_place_size(RT_TOLD_BYTES) : 0));
    bytes.pinned += (double)(RT_STEPS_QUEUED * sizeof(RtResult));
    return bytes;
}

static void *pinned(size_t bytes, const char *what)
{
    void *at = NULL;
    char size[RT_BYTES_TEXT];
    if (bytes == 0)
        return NULL;
    const cudaError_t error = cudaHostAlloc(&at, bytes, cudaHostAllocDefault);
    if (error != cudaSuccess)
        rt_fail(RT_EXIT_FAIL, "out of memory: %s needs %s of pinned host memory: %s", what,
                rt_bytes((double)bytes, size), cudaGetErrorString(error));
    memset(at, 0, bytes);
    return at;
}

static cudaEvent_t event_new(void)
{
    cudaEvent_t event;
    RT_CUDA_CALL(NULL, cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    return event;
}

void rt_inputs_open(RtRun *run)
{
    RtState *state = run->state;
    RtQueue *q = state->queue;
    const RtModel *m = run->model;
    const size_t batch = (size_t)batch_rows(m, run->dims);
    q->taken = event_new();
    for (int k = 0; k < RT_STEPS_QUEUED; k++) {
        RtQueued *slot = &q->slot[k];
        slot->sent = event_new();
        slot->done = event_new();
        slot->result = (RtResult *)pinned(sizeof *slot->result, "a step");
    }
    for (int i = 0; i < m->n_inputs; i++) {
        const size_t row = rt_row_bytes(m, run->dims, i), rows = (size_t)state->row_cap * row;
        q->staged[i] = (char *)rt_place_take(rows, m->inputs[i].name);
        q->batch[i] = (char *)rt_place_take(batch * row, m->inputs[i].name);
        run->inputs[i] = q->batch[i];
        for (int k = 0; k < RT_STEPS_QUEUED; k++)
            q->slot[k].rows[i] = pinned(rows, m->inputs[i].name);
        state->rows[i] = q->slot[0].rows[i];
    }
}

void rt_inputs_close(RtRun *run)
{
    RtQueue *q = run->state->queue;
    RT_CUDA_CALL(NULL, cudaEventDestroy(q->taken));
    for (int k = 0; k < RT_STEPS_QUEUED; k++) {
        RtQueued *slot = &q->slot[k];
        RT_CUDA_CALL(NULL, cudaEventDestroy(slot->sent));
        RT_CUDA_CALL(NULL, cudaEventDestroy(slot->done));
        RT_CUDA_CALL(NULL, cudaFreeHost(slot->result));
        for (int i = 0; i < run->model->n_inputs; i++)
            if (slot->rows[i])
                RT_CUDA_CALL(NULL, cudaFreeHost(slot->rows[i]));
    }
    for (int i = 0; i < run->model->n_inputs; i++) {
        rt_place_free(q->staged[i]);
        rt_place_free(q->batch[i]);
    }
}

/* ---- on their way ---------------------------------------------------------------------------- */

/* The samples that went from this buffer before are on the GPU when the host may write others. */
void *const *rt_rows(RtRun *run)
{
    RtState *state = run->state;
    RtQueued *slot = &state->queue->slot[state->queue->next];
    rt_event_wait(&rt_device()->copy, slot->sent);
    memcpy(state->rows, slot->rows, sizeof slot->rows);
    return state->rows;
}

void rt_inputs_send(RtRun *run, ptrdiff_t n)
{
    RtQueue *q = run->state->queue;
    RtQueued *slot = &q->slot[q->next];
    RtStream *stream = &rt_device()->copy;
    RT_CUDA_CALL(stream, cudaStreamWaitEvent(stream->at, q->taken, 0));
    for (int i = 0; i < run->model->n_inputs; i++) {
        const size_t bytes = (size_t)n * rt_row_bytes(run->model, run->state->opt->dims, i);
        if (bytes > 0)
            RT_CUDA_CALL(stream, cudaMemcpyAsync(q->staged[i], slot->rows[i], bytes,
                                                 cudaMemcpyHostToDevice, stream->at));
    }
    RT_CUDA_CALL(stream, cudaEventRecord(slot->sent, stream->at));
    q->fresh = true;
    q->micro = -1;
}

void rt_inputs_take(RtRun *run, ptrdiff_t first, ptrdiff_t n, int64_t sample)
{
    RtQueue *q = run->state->queue;
    RtStream *stream = run->stream;
    Take take;
    size_t most = 0;
    memset(&take, 0, sizeof take);
    for (int i = 0; i < run->model->n_inputs; i++) {
        const size_t row = rt_row_bytes(run->model, run->state->opt->dims, i);
        take.input[i].to = q->batch[i];
        take.input[i].from = q->staged[i] + (size_t)first * row;
        take.input[i].bytes = (size_t)n * row;
        most = take.input[i].bytes > most ? take.input[i].bytes : most;
        run->inputs[i] = q->batch[i];
    }
    if (q->fresh)
        RT_CUDA_CALL(stream, cudaStreamWaitEvent(stream->at, q->slot[q->next].sent, 0));
    q->fresh = false;
    int blocks = rt_blocks((ptrdiff_t)most, 16 * THREADS);
    blocks = blocks < 1 ? 1 : blocks > BLOCKS_MOST ? BLOCKS_MOST : blocks;
    RT_LAUNCH(
        stream, "samples", g_take_samples,
        dim3((unsigned)blocks, (unsigned)(run->model->n_inputs > 0 ? run->model->n_inputs : 1)),
        THREADS, 0, q->twin, sample, take);
    RT_CUDA_CALL(stream, cudaEventRecord(q->taken, stream->at));
}

/* Of an evaluation or an output. */
void rt_rows_send(RtRun *run, const RtStep *s, ptrdiff_t n)
{
    RtQueue *q = run->state->queue;
    rt_inputs_send(run, n);
    rt_inputs_take(run, 0, n, s->sample);
    q->next = (q->next + 1) % RT_STEPS_QUEUED;
}
