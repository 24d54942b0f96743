/* evaluate.c -- the sub-command that validates a checkpoint.
 *
 * In: a checkpoint and its data. Out: loss and metrics over the whole validation split.
 */
#include "comm/comm.h"

int rt_do_evaluate(const RtModel *m, RtOptions *o)
{
    if (!m->evaluate)
        rt_fail(RT_EXIT_USAGE, "%s has no loss and no metric to evaluate", m->name);
    RtCheckpoint c = { .best_val = NAN, .scale = NAN };
    const char *dir = rt_config_load(m, o, &c);
    if (m->compute == RT_BF16)
        (void)rt_products_choose(c.products);
    RtData *data = rt_data_open(m, &o->train, o->dims, c.vocab);
    int64_t left;
    if (rt_run_validates(m, o, data, &left) == 0)
        rt_fail(RT_EXIT_FAIL, "there are no validation data\nhint: give --val-data FILE, or "
                              "--split 0.9");
    rt_memory_check(m, o, data, RT_USE_EVAL);
    RtRun *run = rt_run_create(m, o, data, RT_USE_EVAL);
    (void)rt_run_load(run, dir, false, &c);
    rt_agree(run, dir);
    const double start = rt_now();
    const RtMeans means = rt_run_evaluate(run, RT_SPLIT_VAL);
    printf("%s: step %lld%s, %.0f validation samples in %.2f s\n", dir, (long long)c.step,
           o->average ? ", the average of the weights" : "", means.samples, rt_now() - start);
    if (left > 0)
        printf("%lld tokens at the end of files are left out: they are fewer than the model's "
               "window takes\n",
               (long long)left);
    printf("loss %.6f\n", means.loss);
    for (int i = 0; i < m->n_metrics; i++)
        printf("%s %.6g\n", m->metrics[i].name, means.metric[i]);
    rt_run_free(run);
    rt_data_close(data);
    return 0;
}
