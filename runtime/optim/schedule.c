/* schedule.c -- the learning rate of an update.
 *
 * In: the settings and the number of updates applied so far. Out: the rate of the update to come.
 * The one idea: skipped updates do not advance it. With i updates applied, W of warm-up and D to
 * decay over (nanoGPT's convention):
 *
 *     i < W         lr (i + 1) / (W + 1)
 *     i <= D        lr_end + c (lr - lr_end), r = (i - W) / (D - W)
 *                   linear: c = 1 - r;  cosine: c = (1 + cos(pi r)) / 2;  constant: c = 1
 *     after         lr_end (constant: lr)
 */
#include "run.h"

double rt_schedule_lr(const RtTrain *t, int64_t applied)
{
    if (applied < t->warmup)
        return t->lr * (double)(applied + 1) / (double)(t->warmup + 1);
    if (t->schedule == RT_CONSTANT)
        return t->lr;
    const int64_t decay = t->decay_steps > 0 ? t->decay_steps : t->steps;
    if (applied > decay || decay <= t->warmup)
        return t->lr_end;
    const double r = (double)(applied - t->warmup) / (double)(decay - t->warmup);
    const double c = t->schedule == RT_LINEAR ? 1 - r : 0.5 * (1 + cos(3.14159265358979323846 * r));
    return t->lr_end + c * (t->lr - t->lr_end);
}
