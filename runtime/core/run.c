/* run.c -- one model with its buffers: what a step of the emitted code calls, and what callers do
 * with a run (create, step, evaluate, forward, save, load, free).
 *
 * In: the model table, settings, data. Out: updated parameters, means of slots. The one idea: a run
 * holds everything, so several can live in one process, and rt_main is only one caller of it.
 */
#include "comm/comm.h"

/* ---- sizes ---------------------------------------------------------------------------------- */

static ptrdiff_t elems(const ptrdiff_t *shape, int rank)
{
    ptrdiff_t n = 1;
    for (int i = 0; i < rank; i++)
        n *= shape[i];
    return n;
}

static ptrdiff_t input_row(const RtModel *m, const ptrdiff_t *dims, int input)
{
    ptrdiff_t shape[RT_MAX_RANK];
    m->input_shape(dims, input, shape);
    return elems(shape + 1, m->inputs[input].rank - 1);
}

size_t rt_row_bytes(const RtModel *m, const ptrdiff_t *dims, int input)
{
    const size_t each = m->inputs[input].type == RT_I32 ? sizeof(int32_t) : rt_real_bytes(m);
    return (size_t)input_row(m, dims, input) * each;
}

static size_t output_bytes(const RtModel *m, const ptrdiff_t *dims, int output)
{
    ptrdiff_t shape[RT_MAX_RANK];
    m->output_shape(dims, output, shape);
    return RT_SIZE(char, (size_t)elems(shape, m->outputs[output].rank) * rt_real_bytes(m));
}

static size_t arena_bytes(const RtModel *m, const RtOptions *o, int use)
{
    size_t most = use & RT_USE_TRAIN ? rt_optim_work_bytes(m, &o->train) : 0;
    for (int entry = RT_ENTRY_TRAIN; entry <= RT_ENTRY_COUNT; entry++) {
        const bool wanted = entry == RT_ENTRY_EVAL     ? (use & RT_USE_EVAL) != 0
                            : entry == RT_ENTRY_OUTPUT ? (use & RT_USE_OUTPUT) != 0
                            : entry == RT_ENTRY_COUNT  ? (use & (RT_USE_TRAIN | RT_USE_EVAL)) != 0
                                                       : (use & RT_USE_TRAIN) != 0;
        const size_t bytes = wanted ? m->arena_bytes(o->dims, (RtEntry)entry) : 0;
        most = bytes > most ? bytes : most;
    }
    return most;
}

ptrdiff_t rt_row_count(const RtModel *m, const RtOptions *o, int use)
{
    ptrdiff_t rows = use & RT_USE_TRAIN ? rt_rank_batch(&o->train) : 1;
    for (int i = 0; i < m->n_dims; i++)
        if (m->dims[i].batch && o->dims[i] > rows)
            rows = o->dims[i];
    return rows;
}

void rt_run_set_batch(RtRun *run, ptrdiff_t n)
{
    for (int i = 0; i < run->model->n_dims; i++)
        if (run->model->dims[i].batch)
            run->dims[i] = n;
}

static RtStateTensor average_tensor(void *at)
{
    return (RtStateTensor){ .name = "ema", .at = at, .file = "ema" };
}

static size_t state_bytes(const RtModel *m, const RtStateTensor *state)
{
    const ptrdiff_t n = state->shape ? rt_state_elems(m, state->shape) : m->n_elems;
    return (size_t)n * rt_real_bytes(m);
}

/* Of the average as the parameters are kept, where that is not as it is kept itself. */
static size_t other_bytes(const RtModel *m) { return m->n_halves > 0 ? rt_params_bytes(m) : 0; }

/* ---- sizes of a validation ------------------------------------------------------------------- */

/* The dim that sets the length of a window, or -1: the only one the map ranges depend on. */
static int window_dim(const RtModel *m, const ptrdiff_t *dims)
{
    int found = -1;
    for (int d = 0; d < m->n_dims; d++) {
        ptrdiff_t other[RT_MAX_DIMS];
        memcpy(other, dims, sizeof other);
        other[d]++;
        bool differs = false;
        for (int i = 0; i < m->train.n_maps; i++) {
            ptrdiff_t lo, hi, lo2, hi2;
            m->map_range(dims, i, &lo, &hi);
            m->map_range(other, i, &lo2, &hi2);
            differs = differs || lo != lo2 || hi != hi2;
        }
        if (differs && found >= 0)
            return -1;
        if (differs)
            found = d;
    }
    return found;
}

/* The dims for one window of this length; false: the model takes none. */
static bool tail_dims(const RtModel *m, ptrdiff_t tail, ptrdiff_t *dims)
{
    const int window = tail > 0 ? window_dim(m, dims) : -1;
    if (window < 0)
        return false;
    for (int i = 0; i < m->n_dims; i++)
        if (m->dims[i].batch)
            dims[i] = 1;
    dims[window] = tail;
    return !m->check_dims || !m->check_dims(dims);
}

/* ---- what a run allocates -------------------------------------------------------------------- */

/* What products and attention work in at all sizes that a run comes to: the last batch of a
   validation is smaller, and so are the last windows of files. */
static RtRooms room_sizes(const RtModel *m, const RtOptions *o, const RtData *data, int use)
{
    RtRooms rooms = { .device = 0 };
    if (use & RT_USE_TRAIN)
        rt_optim_rooms(m, &o->train, &rooms);
    if (!m->rooms)
        return rooms;
    if (use & RT_USE_TRAIN)
        m->rooms(o->dims, RT_ENTRY_TRAIN, &rooms);
    if (use & (RT_USE_TRAIN | RT_USE_EVAL))
        m->rooms(o->dims, RT_ENTRY_COUNT, &rooms);
    if (use & RT_USE_OUTPUT)
        m->rooms(o->dims, RT_ENTRY_OUTPUT, &rooms);
    if (!(use & RT_USE_EVAL))
        return rooms;
    ptrdiff_t dims[RT_MAX_DIMS];
    const int64_t n = data ? rt_data_samples(data, RT_SPLIT_VAL) : 0,
                  most = rt_micro_batch(&o->train);
    memcpy(dims, o->dims, sizeof dims);
    m->rooms(dims, RT_ENTRY_EVAL, &rooms);
    for (int i = 0; i < m->n_dims; i++)
        if (m->dims[i].batch && n % most)
            dims[i] = (ptrdiff_t)(n % most);
    m->rooms(dims, RT_ENTRY_EVAL, &rooms);
    for (int i = 0; data && i < rt_data_tails(data, RT_SPLIT_VAL); i++) {
        memcpy(dims, o->dims, sizeof dims);
        if (tail_dims(m, rt_data_tail(data, RT_SPLIT_VAL, i), dims))
            m->rooms(dims, RT_ENTRY_EVAL, &rooms);
    }
    return rooms;
}

/* Settings and lists of a save. */
static double saving_bytes(const RtModel *m, const RtOptions *o, const RtData *data,
                           const RtStateTensor *state, int n_state, size_t plans_most)
{
    const double before = rt_memory_held();
    char *config = rt_config_text(m, o);
    char *plans = plans_most ? memset(rt_alloc(plans_most + 1, "plans"), 'x', plans_most) : NULL;
    const double settings = rt_memory_held() - before;
    const RtCheckpoint c = { .config = config,
                             .vocab = data ? rt_data_vocab(data) : NULL,
                             .plans = plans };
    const double bytes = settings + (double)rt_checkpoint_plan(m, state, n_state, &c);
    rt_free(config);
    rt_free(plans);
    return bytes;
}

/* Bytes of an optimizer's tables in host memory: they are made, and freed. */
static double table_bytes(const RtModel *m, const RtOptions *o)
{
    const double before = rt_memory_held();
    int n;
    RtPiece *pieces = rt_optim_pieces(m, &n);
    RtTensors *tensors = rt_tensors_new(m, o->train.optimizer);
    RtBuckets *buckets = rt_buckets_open(m, NULL, o->bucket * 0x1p20);
    const double bytes = rt_memory_held() - before;
    rt_buckets_close(buckets);
    rt_tensors_free(tensors);
    rt_free(pieces);
    return bytes;
}

/* In the place, as it is taken there. */
static double placed(size_t bytes) { return (double)rt_place_size(bytes); }

static void training_memory(const RtModel *m, const RtOptions *o, const RtData *data,
                            const RtRooms *rooms, RtMemory *at)
{
    const size_t flat = (size_t)m->n_elems * rt_real_bytes(m);
    RtStateTensor states[RT_MAX_STATES + 1];
    int n = rt_optim_states(&o->train, states);
    at->gradients = placed(flat) + rt_tree_place_bytes(m);
    for (int i = 0; i < n; i++)
        at->state += placed(state_bytes(m, &states[i]));
    if (o->train.ema > 0) {
        at->average = placed(flat) + placed(other_bytes(m));
        states[n++] = average_tensor(NULL);
    }
    at->tables += table_bytes(m, o) + 2.0 * (double)rt_plans_most(rooms); /* own, and stored */
    at->updates = (double)rt_optim_place_bytes(m, o);
    if (o->train.out && strcmp(o->train.out, "none") != 0)
        at->saving = saving_bytes(m, o, data, states, n, rt_plans_most(rooms));
}

RtMemory rt_run_memory(const RtModel *m, const RtOptions *o, const RtData *data, int use)
{
    RtMemory at = { .held = rt_memory_held(),
                    .ranks = rt_comm_bytes(),
                    .tables = sizeof(RtRun) + sizeof(RtState) };
    at.params = placed(rt_params_bytes(m));
    at.copy = placed(rt_params_copy_bytes(m));
    const RtRooms rooms = room_sizes(m, o, data, use);
    if (use & RT_USE_TRAIN)
        training_memory(m, o, data, &rooms, &at);
    const double agree = use & (RT_USE_TRAIN | RT_USE_EVAL) ? rt_agree_bytes(m, o) : 0;
    at.saving = agree > at.saving ? agree : at.saving;
    at.arena = placed(arena_bytes(m, o, use));
    at.rooms = rt_rooms_bytes(&rooms);
    const RtStepBytes step = rt_step_bytes(m, o, use);
    at.inputs = step.place;
    at.rows = step.pinned;
    at.tables += step.host;
    for (int i = 0; (use & RT_USE_OUTPUT) && i < m->n_outputs; i++)
        at.outputs += placed(output_bytes(m, o->dims, i));
    at.place = at.params + at.copy + at.gradients + at.state + at.average + at.arena + at.inputs
               + at.outputs + at.rooms + at.updates;
    at.needed = at.rows + at.tables + at.saving + (rt_place_is_host() ? at.place : 0);
    const double allocated = at.needed - at.rows + at.held; /* as rt_memory_most counts */
    at.total = allocated > rt_memory_most() ? allocated : rt_memory_most();
    return at;
}

/* ---- create and free ------------------------------------------------------------------------ */

static void training_buffers(RtRun *run)
{
    const RtModel *m = run->model;
    RtState *state = run->state;
    const RtTrain *t = &state->opt->train;
    const size_t flat = (size_t)m->n_elems * rt_real_bytes(m);
    run->d_p = rt_place_alloc(flat, "the gradient");
    state->n_states = rt_optim_states(t, state->states);
    for (int i = 0; i < state->n_states; i++)
        state->states[i].at = rt_place_alloc(state_bytes(m, &state->states[i]), "the optimizer");
    if (t->ema > 0)
        state->ema = rt_place_alloc(flat, "the average of the weights");
    if (t->ema > 0 && m->n_halves > 0)
        state->other = rt_place_alloc(other_bytes(m), "the average of the weights in 16 bits");
    state->tree = rt_tree_open(m);
    state->buckets = rt_buckets_open(m, run->d_p, state->opt->bucket * 0x1p20);
    state->pieces = rt_optim_pieces(m, &state->n_pieces);
    state->tensors = rt_tensors_new(m, t->optimizer);
    rt_optim_open(run);
}

RtRun *rt_run_create(const RtModel *m, const RtOptions *o, RtData *data, int use)
{
    rt_place_start(m, o, false);
    rt_place_open(rt_run_memory(m, o, data, use).place, m->name);
    RtRun *run = rt_alloc(sizeof *run, "a run");
    RtState *state = rt_alloc(sizeof *state, "a run");
    run->model = m;
    run->state = state;
    state->opt = o;
    state->data = data;
    state->best_val = NAN;
    state->scale = m->compute == RT_F16 ? o->loss_scale : 0;
    run->p = rt_place_take(rt_params_bytes(m), "the parameters");
    run->p16 = rt_params_halves(m, run->p);
    if (rt_params_copy_bytes(m) > 0)
        run->p16 = rt_place_take(rt_params_copy_bytes(m), "the parameters in 16 bits");
    if (use & RT_USE_TRAIN)
        training_buffers(run);
    run->arena = rt_place_take(arena_bytes(m, o, use), "the arena (activations)");
    state->row_cap = rt_row_count(m, o, use);
    memcpy(run->dims, o->dims, sizeof run->dims);
    for (int i = 0; i < m->n_inputs; i++)
        state->row_elems[i] = input_row(m, o->dims, i);
    rt_step_open(run);
    for (int i = 0; (use & RT_USE_OUTPUT) && i < m->n_outputs; i++)
        run->outputs[i] = rt_place_take(output_bytes(m, o->dims, i), m->outputs[i].name);
    run->micro_steps = rt_micro_steps(&o->train);
    const RtRooms rooms = room_sizes(m, o, data, use);
    rt_rooms_open(&rooms, run->arena, arena_bytes(m, o, use));
    rt_place_close();
    return run;
}

void rt_run_free(RtRun *run)
{
    RtState *state = run->state;
    rt_step_close(run);
    for (int i = 0; i < RT_MAX_DIMS; i++)
        rt_place_free(run->outputs[i]);
    rt_optim_close(run);
    rt_buckets_close(state->buckets);
    rt_tree_close(state->tree);
    rt_free(state->pieces);
    rt_tensors_free(state->tensors);
    for (int i = 0; i < state->n_states; i++)
        rt_place_free(state->states[i].at);
    rt_place_free(state->ema);
    rt_place_free(state->other);
    rt_place_free(run->arena);
    rt_place_free(run->d_p);
    if (run->model->n_halves == 0)
        rt_place_free(run->p16);
    rt_place_free(run->p);
    rt_free(state);
    rt_free(run);
}

/* ---- callers -------------------------------------------------------------------------------- */

RtMeans rt_run_means(const RtModel *m, const RtStep *s)
{
    RtMeans means = { 0 };
    for (int i = 0; i < m->n_slots; i++) {
        means.count[i] = s->count[i];
        means.mean[i] = s->count[i] > 0 ? s->sum[i] / s->count[i] : NAN;
        if (m->slots[i].weight != 0 && s->count[i] > 0)
            means.loss += m->slots[i].weight * means.mean[i];
    }
    if (m->n_metrics > 0)
        m->metric_values(means.mean, means.metric);
    means.loss = rt_plain_nan(means.loss);
    for (int i = 0; i < m->n_metrics; i++)
        means.metric[i] = rt_plain_nan(means.metric[i]);
    return means;
}

/* A training step sums the means of the loss only (weight != 0); a metric that uses another one has
   no value there. It is found out by trying: such a metric follows the values of the others. */
static void forget_metrics(const RtModel *m, RtMeans *means)
{
    static const double tries[] = { 1, INFINITY, -INFINITY };
    double mean[RT_MAX_SLOTS], value[RT_MAX_SLOTS];
    memcpy(mean, means->mean, sizeof mean);
    bool all = true;
    for (int i = 0; i < m->n_slots; i++) {
        all = all && m->slots[i].weight != 0;
        if (m->slots[i].weight == 0)
            means->mean[i] = NAN;
    }
    for (size_t k = 0; k < sizeof tries / sizeof *tries && !all && m->n_metrics > 0; k++) {
        for (int i = 0; i < m->n_slots; i++)
            mean[i] = m->slots[i].weight == 0 ? tries[k] : mean[i];
        m->metric_values(mean, value);
        for (int i = 0; i < m->n_metrics; i++)
            if (!(value[i] == means->metric[i]))
                means->metric[i] = NAN;
    }
}

RtMeans rt_run_step(RtRun *run, RtStep *s, bool ahead)
{
    rt_step_run(run, s, ahead);
    RtMeans means = rt_run_means(run->model, s);
    forget_metrics(run->model, &means);
    means.samples = (double)run->state->opt->train.batch;
    return means;
}

int64_t rt_run_validates(const RtModel *m, const RtOptions *o, const RtData *data, int64_t *left)
{
    int64_t samples = rt_data_samples(data, RT_SPLIT_VAL);
    *left = 0;
    for (int i = 0; i < rt_data_tails(data, RT_SPLIT_VAL); i++) {
        const ptrdiff_t tail = rt_data_tail(data, RT_SPLIT_VAL, i);
        ptrdiff_t dims[RT_MAX_DIMS];
        memcpy(dims, o->dims, sizeof dims);
        if (tail_dims(m, tail, dims))
            samples++;
        else
            *left += tail;
    }
    return samples;
}

/* Rank r does every so manyth batch, from the r-th on. */
static bool is_own(int64_t batch) { return batch % rt_ranks() == rt_rank(); }

static void evaluate_tails(RtRun *run, RtSplit split, RtStep *s)
{
    RtState *state = run->state;
    s->sample = rt_data_samples(state->data, split);
    for (int i = 0; i < rt_data_tails(state->data, split); i++) {
        memcpy(run->dims, state->opt->dims, sizeof run->dims);
        if (!tail_dims(run->model, rt_data_tail(state->data, split, i), run->dims))
            continue;
        if (is_own(i)) {
            rt_data_fill_tail(state->data, split, i, rt_rows(run));
            rt_rows_send(run, s, 1);
            run->model->evaluate(run, s);
        }
        s->sample++;
    }
    memcpy(run->dims, state->opt->dims, sizeof run->dims);
}

RtMeans rt_run_evaluate(RtRun *run, RtSplit split)
{
    RtState *state = run->state;
    const int64_t n = rt_data_samples(state->data, split);
    RtStep s = { .key = { state->opt->train.seed, UINT32_MAX }, .finite = true, .factor = 1 };
    const ptrdiff_t most = rt_micro_batch(&state->opt->train);
    memcpy(run->dims, state->opt->dims, sizeof run->dims);
    rt_step_start(run, &s);
    for (int64_t at = 0; at < n; at += most) {
        const ptrdiff_t rows = n - at < most ? (ptrdiff_t)(n - at) : most;
        if (!is_own(at / most))
            continue;
        rt_run_set_batch(run, rows);
        rt_data_fill(state->data, split, state->opt->train.seed, at, rows, rt_rows(run));
        s.sample = at;
        rt_rows_send(run, &s, rows);
        run->model->evaluate(run, &s);
    }
    evaluate_tails(run, split, &s);
    rt_step_wait(run, &s);
    rt_comm_barrier(rt_comm_world(), "a validation"); /* of unlike length on unlike ranks */
    rt_comm_sum(s.sum, RT_MAX_SLOTS, RT_F64, "the sums of a validation");
    rt_comm_sum(s.count, RT_MAX_SLOTS, RT_F64, "the counts of a validation");
    rt_run_set_batch(run, most);
    RtMeans means = rt_run_means(run->model, &s);
    means.samples = (double)s.sample;
    return means;
}

void rt_run_forward(RtRun *run)
{
    RtStep s = { .key = { run->state->opt->train.seed, UINT32_MAX }, .finite = true, .factor = 1 };
    ptrdiff_t n = 1;
    for (int i = 0; i < run->model->n_dims; i++)
        n = run->model->dims[i].batch ? run->dims[i] : n;
    rt_step_start(run, &s);
    rt_rows_send(run, &s, n);
    run->model->forward(run, &s);
    rt_step_wait(run, &s);
}

/* ---- save and load -------------------------------------------------------------------------- */

/* All that is saved beside the parameters; how many. */
static int state_tensors(const RtState *state, RtStateTensor tensor[RT_MAX_STATES + 1])
{
    memcpy(tensor, state->states, sizeof state->states);
    if (!state->ema)
        return state->n_states;
    tensor[state->n_states] = average_tensor(state->ema);
    return state->n_states + 1;
}

int rt_run_save(RtRun *run, const char *dir)
{
    const RtState *state = run->state;
    RtStateTensor tensor[RT_MAX_STATES + 1];
    const int n = state_tensors(state, tensor);
    char *config = rt_config_text(run->model, state->opt);
    RtCheckpoint c = {
        .step = state->step,
        .applied = state->applied,
        .skipped = state->skipped,
        .samples = state->samples,
        .seed = state->opt->train.seed,
        .data_hash = rt_data_hash(state->data),
        .best_val = state->best_val,
        .vocab = rt_data_vocab(state->data),
        .config = config,
        .products = run->model->compute == RT_BF16 ? rt_products_now() : RT_PRODUCTS_UNSET,
        .plans = rt_products_text(),
        .scale = run->model->compute == RT_F16 ? state->scale : (double)NAN,
        .tracker = state->tracker,
        .stuck = state->stuck,
    };
    snprintf(c.library, sizeof c.library, "%s", rt_products_library(run->model));
    const int failed = rt_checkpoint_save(dir, run->model, run->p, tensor, n, &c,
                                          state->opt->train.keep);
    rt_free(config);
    return failed;
}

static const char *keep_texts(const char *dir, RtCheckpoint *c)
{
    if (!dir)
        return NULL;
    c->vocab = c->vocab ? rt_keep((char *)(uintptr_t)c->vocab) : NULL;
    c->config = c->config ? rt_keep((char *)(uintptr_t)c->config) : NULL;
    c->plans = c->plans ? rt_keep((char *)(uintptr_t)c->plans) : NULL;
    return rt_keep((char *)(uintptr_t)dir);
}

/* Who resumes has the texts: rt_run_find gave them. */
static const char *drop_texts(const char *dir, const char *path, RtCheckpoint *c)
{
    if (!dir)
        return NULL;
    rt_free((char *)(uintptr_t)c->vocab);
    rt_free((char *)(uintptr_t)c->config);
    rt_free((char *)(uintptr_t)c->plans);
    c->vocab = c->config = c->plans = NULL;
    if (strcmp(dir, path) != 0)
        return rt_keep((char *)(uintptr_t)dir);
    rt_free((char *)(uintptr_t)dir);
    return path;
}

const char *rt_run_find(const RtModel *m, const char *path, int n_files, RtCheckpoint *c)
{
    const char *dir = keep_texts(rt_checkpoint_find(path, m, n_files, c), c);
    rt_products_take(dir ? c->plans : NULL);
    return dir;
}

/* A run that goes on computes other bits where others compute its products. */
static void tell_library(const RtModel *m, const char *before)
{
    const char *now = rt_products_library(m);
    if (*before && strcmp(before, now) != 0)
        printf("note     products were computed by %s and are by %s now%s: results agree to "
               "rounding, not bit for bit\n",
               strcmp(before, "none") ? before : "gradcc's own code",
               strcmp(now, "none") ? now : "gradcc's own code",
               rt_environment_is("RT_MATMUL", "plain") ? " (RT_MATMUL=plain)" : "");
}

const char *rt_run_load(RtRun *run, const char *path, bool with_state, RtCheckpoint *c)
{
    RtState *state = run->state;
    RtStateTensor tensor[RT_MAX_STATES + 1] = { average_tensor(run->p) };
    const bool average = !with_state && state->opt->average; /* it is read over the parameters */
    const int n = with_state ? state_tensors(state, tensor) : average;
    const char *dir = rt_checkpoint_load(path, run->model, run->p,
                                         with_state || average ? tensor : NULL, n, c);
    dir = with_state ? drop_texts(dir, path, c) : keep_texts(dir, c);
    if (dir && average && !tensor[0].at)
        rt_fail(RT_EXIT_FAIL,
                "%s: has no average of the weights\nhint: training keeps one with --ema 0.999, or "
                "ema = 0.999 in the train block",
                dir);
    if (dir && state->ema && !tensor[n - 1].at) {
        rt_ema_start(run);
        printf("note     the checkpoint has no average of the weights: it begins with them\n");
    }
    if (dir && with_state)
        tell_library(run->model, c->library);
    if (dir && with_state && c->converted > 0)
        printf(
            "note     the checkpoint has %lld tensors %s: results agree to rounding, not bit for "
            "bit\n",
            (long long)c->converted,
            run->model->n_halves > 0 ? "in fp32, which become bf16" : "in bf16, which become fp32");
    if (dir) {
        rt_params_copy(run);
        state->step = c->step;
        state->applied = c->applied;
        state->skipped = c->skipped;
        state->samples = c->samples;
        state->best_val = c->best_val;
        state->stuck = c->stuck;
        const bool given = rt_option_given(run->model, state->opt, "loss-scale");
        if (run->model->compute == RT_F16 && !given && !isnan(c->scale)) {
            state->scale = c->scale;
            state->tracker = c->tracker;
        }
    }
    return dir;
}
