/* lower_schedule.c -- the schedule of the rate, from the checked tree to the model table.
 *
 * In: kind, numbers and, for a formula, its graph. Out: the same in TrainSettings; an error where
 * the formula gives no rate, found by evaluating it.
 */
#include "front/lower_parts.h"

#include <math.h>

enum { TRIES = 2048 }; /* updates at which a formula is tried */

/* A formula is tried at updates all over the run: it must give a rate there. */
void lower_check_rate(Context *cx, const CheckedTrain *t, Graph *rate)
{
    const int64_t every = t->steps / TRIES + 1;
    for (int64_t i = 0; i < t->steps; i += every) {
        const int64_t step = i + every < t->steps ? i : t->steps - 1;
        double number[2] = { (double)step, (double)t->steps };
        const Tensor args[2] = { { .elems = 1, .at = &number[0] },
                                 { .elems = 1, .at = &number[1] } };
        const double lr = ir_eval(cx->scratch, rate, &(EvalEnv){ .args = args })[0].at[0];
        if (lr >= 0 && isfinite(lr))
            continue;
        Diag *d = diag_error(cx, t->rate_span, "this rate is %g at step = %lld, steps = %lld", lr,
                             (long long)step, (long long)t->steps);
        diag_hint(d, "step counts from 0 to steps - 1, and a rate must be 0 or more");
        return;
    }
}

void lower_schedule(const CheckedTrain *t, TrainSettings *s)
{
    static const SchedKind kinds[] = {
        [SEM_CONSTANT] = SCHED_CONSTANT,   [SEM_LINEAR] = SCHED_LINEAR,
        [SEM_COSINE] = SCHED_COSINE,       [SEM_WSD] = SCHED_WSD,
        [SEM_STEP] = SCHED_STEP,           [SEM_INVERSE_SQRT] = SCHED_INVERSE_SQRT,
        [SEM_ONE_CYCLE] = SCHED_ONE_CYCLE, [SEM_FORMULA] = SCHED_FORMULA,
    };
    s->schedule = kinds[t->schedule];
    s->lr = t->lr;
    s->lr_end = t->lr_end;
    s->warmup = t->warmup;
    s->decay_steps = t->decay_steps;
    s->decay = t->decay;
    s->decay_sqrt = t->decay_sqrt;
    s->drop_every = t->drop_every;
    s->drop_at = t->drop_at;
    s->drop_factor = t->drop_factor;
    s->pct_start = t->pct_start;
    s->div_factor = t->div_factor;
    s->final_div_factor = t->final_div_factor;
    s->three_phase = t->three_phase;
    s->rate_text = t->rate_text;
    s->rate_span = t->rate_span;
}
