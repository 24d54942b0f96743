/* harness.c -- runs the functions of an emitted file and compares them with the oracle.
 *
 * Compiled with -DEMITTED="file.c" -DMODEL=name -DREAL=double -DTOLERANCE=1e-11; of the CUDA target
 * as C++, with -DEMITTED="file.cu". The step of the emitted file runs as it is, over micro-steps;
 * the runtime's part of it is written here: it makes the inputs and stops before the update. Usage:
 * harness ORACLE.txt [NAME=VALUE ...]
 */
#define RT_LIBRARY
#include "rt.h"

/* The runtime's part of the step has other names here, so that the runtime can be linked whole. */
#define rt_begin_step       own_begin_step
#define rt_begin_micro      own_begin_micro
#define rt_seed_losses      own_seed_losses
#define rt_reduce_gradients own_nothing
#define rt_finite_and_norm  own_nothing
#define rt_clip             own_nothing
#define rt_clip_value       own_nothing
#define rt_update_muon      own_nothing
#define rt_end_step         own_nothing
#define rt_update(run, s, function)                                                                \
    own_nothing(run, s);                                                                           \
    (void)(function)
#define rt_graph_begin(run, s) own_graph_begin()
#define rt_graph_end(run, s)   own_nothing(run, s)
static bool own_graph_begin(void) /* the work of a micro-step is queued once */
{
    static bool begun;
    return begun = !begun;
}
static void own_begin_step(RtRun *run, RtStep *s);
static void own_begin_micro(RtRun *run, RtStep *s, int micro);
static void own_seed_losses(RtRun *run, RtStep *s);
static void own_nothing(RtRun *run, RtStep *s);

#include EMITTED

#include <stdio.h>
#include <stdlib.h>

#include "side.h"
#include "values.h"

static const RtModel *const tested = &MODEL;

typedef REAL Real;

static ptrdiff_t micro_dims[RT_MAX_DIMS];
static void *inputs[RT_MAX_DIMS];       /* of the whole batch, on the side of the run */
static size_t input_bytes[RT_MAX_DIMS]; /* of a micro-step */

/* ---- the runtime's part of the step ---------------------------------------------------------- */

static int64_t batch_of(const RtModel *m)
{
    for (int i = 0; i < m->n_dims; i++)
        if (m->dims[i].batch)
            return micro_dims[i];
    return 1;
}

static void own_begin_step(RtRun *run, RtStep *s)
{
    run->micro_steps = VALUE_MICRO_STEPS;
    memset((void *)s, 0, sizeof *s);
    s->key = (RtKey){ VALUE_SEED, VALUE_STEP };
    side_begin(s);
}

static void own_begin_micro(RtRun *run, RtStep *s, int micro)
{
    memcpy(run->dims, micro_dims, sizeof micro_dims);
    s->sample = micro * batch_of(run->model);
    side_sample(s);
    for (int i = 0; i < run->model->n_inputs; i++)
        run->inputs[i] = (char *)inputs[i] + (size_t)micro * input_bytes[i];
}

static void own_seed_losses(RtRun *run, RtStep *s)
{
    side_counts(s);
    for (int i = 0; i < run->model->n_slots; i++)
        s->seed[i] = s->count[i] > 0 ? run->model->slots[i].weight / s->count[i] : 0;
    side_seeds(s);
}

static void own_nothing(RtRun *run, RtStep *s)
{
    RT_UNUSED(own_graph_begin); /* no graphs on a CPU */
    RT_UNUSED(run);
    RT_UNUSED(s);
}

/* ---- values -------------------------------------------------------------------------------- */

static size_t type_bytes(RtType t) { return t == RT_F64 ? 8 : 4; }

static ptrdiff_t elems_of(const ptrdiff_t *shape, int rank)
{
    ptrdiff_t n = 1;
    for (int i = 0; i < rank; i++)
        n *= shape[i];
    return n;
}

static void make_input(const RtModel *m, int i)
{
    const RtInput *in = &m->inputs[i];
    ptrdiff_t shape[RT_MAX_RANK] = { 0 };
    m->input_shape(micro_dims, i, shape);
    const ptrdiff_t n = elems_of(shape, in->rank) * VALUE_MICRO_STEPS;
    input_bytes[i] = (size_t)(n / VALUE_MICRO_STEPS) * type_bytes(in->type);
    void *values = calloc((size_t)n + 1, 8);
    for (ptrdiff_t k = 0; k < n; k++) {
        const double r = value_real(2000 + (uint64_t)i, (uint64_t)k);
        if (in->type == RT_I32)
            ((int32_t *)values)[k] = (int32_t)value_int(i, (uint64_t)k, in->ranged ? in->lo : 0,
                                                        in->ranged ? in->hi : 4, in->has_ignore,
                                                        in->ignore);
        else if (in->type == RT_F32)
            ((float *)values)[k] = (float)r;
        else
            ((double *)values)[k] = r;
    }
    const size_t bytes = input_bytes[i] * VALUE_MICRO_STEPS;
    inputs[i] = side_new(bytes);
    side_put(inputs[i], values, bytes);
    free(values);
}

/* Where element k of parameter i, counted over all its repetitions, lies in the flat buffer. */
static ptrdiff_t flat_place(const RtParam *p, ptrdiff_t k)
{
    const ptrdiff_t inner = elems_of(p->shape, p->rank);
    ptrdiff_t at = p->at + k % inner, rest = k / inner;
    for (int s = p->n_stacks - 1; s >= 0; s--) {
        at += rest % p->stack[s].count * p->stack[s].stride;
        rest /= p->stack[s].count;
    }
    return at;
}

static ptrdiff_t param_elems(const RtParam *p)
{
    ptrdiff_t n = elems_of(p->shape, p->rank);
    for (int s = 0; s < p->n_stacks; s++)
        n *= p->stack[s].count;
    return n;
}

/* The 16-bit copy of the parameters that precision = bf16 and fp16 read. */
static void *make_copy16(const RtModel *m, const Real *p)
{
    if (m->compute != RT_BF16 && m->compute != RT_F16)
        return NULL;
    uint16_t *copy = (uint16_t *)malloc(((size_t)m->n_elems + 1) * sizeof *copy);
    for (ptrdiff_t k = 0; k < m->n_elems; k++)
        copy[k] = m->compute == RT_BF16 ? rt_to_bf16((float)p[k]) : rt_to_f16((float)p[k]);
    void *at = side_new((size_t)m->n_elems * sizeof *copy);
    side_put(at, copy, (size_t)m->n_elems * sizeof *copy);
    free(copy);
    return at;
}

/* Parameters as the oracle has them; gradients that the first write must replace. */
static void make_parameters(const RtModel *m, RtRun *run)
{
    const size_t bytes = (size_t)m->n_elems * sizeof(Real);
    Real *p = (Real *)calloc((size_t)m->n_elems + 1, sizeof(Real));
    for (int i = 0; i < m->n_params; i++)
        for (ptrdiff_t k = 0; k < param_elems(&m->params[i]); k++)
            p[flat_place(&m->params[i], k)] = (Real)value_param(i, m->params[i].role == RT_STATE,
                                                                (uint64_t)k);
    run->p = side_new(bytes);
    side_put(run->p, p, bytes);
    run->p16 = make_copy16(m, p);
    for (ptrdiff_t k = 0; k < m->n_elems; k++)
        p[k] = (Real)NAN;
    run->d_p = side_new(bytes);
    side_put(run->d_p, p, bytes);
    free(p);
}

/* ---- the comparison ------------------------------------------------------------------------ */

typedef struct {
    char what[16];
    int index;
    double diff, size;
    long n;
} Group;
static Group groups[512];
static int n_groups;

static void compare(const char *what, int index, double got, double want)
{
    Group *g = NULL;
    for (int i = n_groups - 1; i >= 0 && g == NULL; i--)
        if (groups[i].index == index && strcmp(groups[i].what, what) == 0)
            g = &groups[i];
    if (g == NULL) {
        g = &groups[n_groups++];
        snprintf(g->what, sizeof g->what, "%s", what);
        g->index = index;
    }
    g->n++;
    if (isnan(got) != isnan(want))
        g->diff = INFINITY;
    if (!isnan(want)) {
        g->diff += (got - want) * (got - want);
        g->size += want * want;
    }
}

static void compare_all(const RtModel *m, FILE *f, const Real *d_p, const RtStep *train,
                        const RtStep *eval, Real *const *outputs)
{
    char what[16];
    int index;
    long k;
    double want;
    while (fscanf(f, "%15s %d %ld %lf", what, &index, &k, &want) == 4) {
        double got = NAN;
        if (strcmp(what, "count") == 0)
            got = m->step ? train->count[index] : eval->count[index];
        else if (strcmp(what, "sum") == 0)
            got = train->sum[index];
        else if (strcmp(what, "eval_sum") == 0)
            got = eval->sum[index];
        else if (strcmp(what, "grad") == 0)
            got = (double)d_p[flat_place(&m->params[index], k)];
        else if (strcmp(what, "output") == 0)
            got = (double)outputs[index][k];
        compare(what, index, got, want);
    }
}

/* ---- running it ---------------------------------------------------------------------------- */

static void run_step(const RtModel *m, RtRun *run, RtStep *s)
{
    if (m->step == NULL)
        return;
    run->arena = side_new(m->arena_bytes(micro_dims, RT_ENTRY_TRAIN)
                          + m->arena_bytes(micro_dims, RT_ENTRY_COUNT));
    m->step(run, s);
    side_sums(s);
}

static ptrdiff_t output_elems(const RtModel *m, int i)
{
    ptrdiff_t shape[RT_MAX_RANK] = { 0 };
    m->output_shape(micro_dims, i, shape);
    return elems_of(shape, m->outputs[i].rank);
}

static void run_others(const RtModel *m, RtRun *run, RtStep *s, Real **outputs)
{
    const size_t eval = m->arena_bytes(micro_dims, RT_ENTRY_EVAL);
    const size_t out = m->arena_bytes(micro_dims, RT_ENTRY_OUTPUT);
    const size_t count = m->arena_bytes(micro_dims, RT_ENTRY_COUNT);
    run->arena = side_new(eval + out + count);
    own_begin_step(run, s);
    for (int i = 0; i < m->n_outputs; i++) {
        outputs[i] = (Real *)calloc((size_t)output_elems(m, i) * VALUE_MICRO_STEPS + 1,
                                    sizeof(Real));
        run->outputs[i] = side_new((size_t)output_elems(m, i) * sizeof(Real));
    }
    for (int micro = 0; micro < VALUE_MICRO_STEPS; micro++) {
        own_begin_micro(run, s, micro);
        if (m->evaluate)
            m->evaluate(run, s);
        if (m->forward)
            m->forward(run, s);
        for (int i = 0; m->forward && i < m->n_outputs; i++)
            side_get(outputs[i] + micro * output_elems(m, i), run->outputs[i],
                     (size_t)output_elems(m, i) * sizeof(Real));
    }
    side_sums(s);
}

static int report(const RtModel *m)
{
    int bad = 0;
    for (int i = 0; i < n_groups; i++) {
        const double size = sqrt(groups[i].size) + 1e-2 * sqrt((double)groups[i].n);
        const double diff = sqrt(groups[i].diff) / size;
        if (diff <= TOLERANCE)
            continue;
        bad++;
        printf("%s %d%s%s differs by %.2g\n", groups[i].what, groups[i].index,
               strcmp(groups[i].what, "grad") == 0 ? " " : "",
               strcmp(groups[i].what, "grad") == 0 ? m->params[groups[i].index].path : "", diff);
    }
    if (n_groups == 0)
        printf("nothing to compare\n");
    return bad > 0 || n_groups == 0;
}

int main(int argc, char **argv)
{
    static RtStep train, eval;
    const RtModel *m = tested;
    RtRun run = {};
    Real *outputs[RT_MAX_DIMS] = { NULL };
    FILE *f = argc > 1 ? fopen(argv[1], "r") : NULL;
    if (f == NULL)
        return 2;
    run.model = m;
    for (int i = 0; i < m->n_dims; i++)
        micro_dims[i] = (ptrdiff_t)value_dim(argc, argv, m->dims[i].name, m->dims[i].batch ? 3 : 5);
    const char *wrong = m->check_dims ? m->check_dims(micro_dims) : NULL;
    if (wrong) {
        printf("dims: %s\n", wrong);
        return 1;
    }
    side_open(m, micro_dims, &run);
    make_parameters(m, &run);
    for (int i = 0; i < m->n_inputs; i++)
        make_input(m, i);
    run_step(m, &run, &train);
    run_others(m, &run, &eval, outputs);
    Real *d_p = (Real *)calloc((size_t)m->n_elems + 1, sizeof(Real));
    side_get(d_p, run.d_p, (size_t)m->n_elems * sizeof(Real));
    compare_all(m, f, d_p, &train, &eval, outputs);
    return report(m);
}
