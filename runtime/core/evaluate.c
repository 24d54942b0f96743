/* evaluate.c -- the sub-command that validates a checkpoint.
 *
 * In: a checkpoint and its data. Out: loss and metrics over the whole validation split.
 */
#include "run.h"

int rt_do_evaluate(const RtModel *m, RtOptions *o)
{
    if (!m->evaluate)
        rt_fail(RT_EXIT_USAGE, "%s has no loss and no metric to evaluate", m->name);
    const char *path = o->checkpoint ? o->checkpoint : o->train.out;
    RtCheckpoint c = { .best_val = NAN };
    if (!rt_run_peek(m, path, &c))
        rt_fail(RT_EXIT_FAIL,
                "%s: holds no checkpoint\nhint: train first, or give --checkpoint "
                "PATH",
                path);
    rt_config_adopt(m, o, c.config, NULL);
    rt_options_settle(m, o);
    rt_threads_set(o);
    RtData *data = rt_data_open(m, &o->train, o->dims, c.vocab);
    if (rt_data_samples(data, RT_SPLIT_VAL) == 0)
        rt_fail(RT_EXIT_FAIL, "there are no validation data\nhint: give --val-data FILE, or "
                              "--split 0.9");
    RtRun *run = rt_run_create(m, o, data, RT_USE_EVAL);
    const char *dir = rt_run_load(run, path, false, &c);
    const double start = rt_now();
    const RtMeans means = rt_run_evaluate(run, RT_SPLIT_VAL);
    printf("%s: step %lld, %.0f validation samples in %.2f s\n", dir, (long long)c.step,
           means.samples, rt_now() - start);
    printf("loss %.6f\n", means.loss);
    for (int i = 0; i < m->n_metrics; i++)
        printf("%s %.6g\n", m->metrics[i].name, means.metric[i]);
    rt_run_free(run);
    rt_data_close(data);
    return 0;
}
