/* two_runs.cc -- a CUDA program as a library: two runs of one model in a process, in turn; then two
 * of which the second one needs more room to work in, when the first has recorded its graphs.
 *
 * In: options of the program. Out: "ok", or what differs. All that do the same updates have the
 * same bytes as parameters; when all are freed, nothing of the GPU's memory is left. GPUs are
 * numbered as nvidia-smi numbers them.
 */
#include "cuda/device.h"
#include "run.h"

extern "C" const RtModel digits_mlp;

static RtRun *open(RtOptions *o, RtData *data)
{
    RtRun *run = rt_run_create(&digits_mlp, o, data, RT_USE_TRAIN | RT_USE_EVAL);
    rt_params_init(&digits_mlp, o->train.seed, run->p);
    rt_params_copy(run);
    return run;
}

enum { STEPS = 5 };

/* STEPS of a small run, and a large one opened between two of them: the parameters of the small
   one. */
static bool grow(RtOptions *small, RtData *data, void *parameters)
{
    RtStep s;
    RtOptions large = *small;
    large.train.batch = 1024;
    large.dims[0] = 1024;
    RtRun *a = open(small, data), *b = NULL;
    const void *const before = rt_device()->work;
    for (int i = 0; i < STEPS; i++) {
        if (i == STEPS - 1)
            b = open(&large, data);
        (void)rt_run_step(a, &s, false);
    }
    const bool moved = rt_device()->work != before;
    rt_place_get(parameters, a->p, rt_params_bytes(&digits_mlp));
    (void)rt_run_step(b, &s, false);
    rt_run_free(a);
    rt_run_free(b);
    return moved;
}

int main(int argc, char **argv)
{
    rt_base_init();
    RtOptions o = rt_options_parse(&digits_mlp, argc, argv);
    rt_options_settle(&digits_mlp, &o);
    RtData *data = rt_data_open(&digits_mlp, &o.train, o.dims, NULL);
    RtRun *a = open(&o, data), *b = open(&o, data);
    const size_t bytes = rt_params_bytes(&digits_mlp);
    void *of_a = malloc(bytes), *of_b = malloc(bytes);
    for (int i = 0; i < STEPS; i++) {
        RtStep s;
        (void)rt_run_step(a, &s, i + 1 < STEPS);
        (void)rt_run_step(b, &s, i % 2 == 0);
    }
    rt_place_get(of_a, a->p, bytes);
    const RtMeans means = rt_run_evaluate(a, RT_SPLIT_VAL);
    rt_run_free(a); /* the other one goes on */
    RtStep s;
    if (rt_step_is_ahead(b))
        (void)rt_run_step(b, &s, false);
    (void)rt_run_evaluate(b, RT_SPLIT_VAL);
    printf("validation loss %.6f, b at step %lld\n", means.loss, (long long)b->state->step);
    rt_run_free(b);
    RtRun *c = open(&o, data);
    for (int i = 0; i < STEPS; i++)
        (void)rt_run_step(c, &s, false);
    rt_place_get(of_b, c->p, bytes);
    rt_run_free(c);
    bool same = memcmp(of_a, of_b, bytes) == 0;
    const bool moved = grow(&o, data, of_b);
    same = same && memcmp(of_a, of_b, bytes) == 0;
    if (!same)
        printf("the parameters differ\n");
    else if (!moved)
        printf("a larger run has not moved the work space\n");
    else if (strcmp(getenv("CUDA_DEVICE_ORDER"), "PCI_BUS_ID") != 0)
        printf("GPUs are not numbered as nvidia-smi does\n");
    else if (rt_place_taken() != 0)
        printf("%.0f bytes of the GPU are left\n", rt_place_taken());
    else
        printf("ok\n");
    free(of_a);
    free(of_b);
    rt_data_close(data);
    return 0;
}
