/* c_schedule.c -- the rate of an update: its formula in words, its rows of the model table.
 *
 * In: the schedule of the train settings. Out: a sentence for the comment above the step, rows of
 * RtTrain, and for a rate that the model writes as a formula a function of its own.
 */
#include "emit/parts.h"

#include <string.h>

static const char *const kind_name[] = {
    [SCHED_CONSTANT] = "RT_CONSTANT",   [SCHED_LINEAR] = "RT_LINEAR",
    [SCHED_COSINE] = "RT_COSINE",       [SCHED_WSD] = "RT_WSD",
    [SCHED_STEP] = "RT_STEP",           [SCHED_INVERSE_SQRT] = "RT_INVERSE_SQRT",
    [SCHED_ONE_CYCLE] = "RT_ONE_CYCLE", [SCHED_FORMULA] = "RT_FORMULA",
};

static const char *const sentence[] = {
    [SCHED_CONSTANT] = "lr is .lr",
    [SCHED_LINEAR] = "lr = .lr_end + (.lr - .lr_end) (1 - r), where r runs from 0 to 1 over the "
                     "updates that are left",
    [SCHED_COSINE] = "lr = .lr_end + (.lr - .lr_end) (1 + cos(pi r)) / 2, where r runs from 0 to 1 "
                     "over the updates that are left",
    [SCHED_WSD] = "lr is .lr, until in the last .decay updates lr = .lr_end + (.lr - .lr_end) "
                  "(1 - r), where r runs from 0 to 1",
    [SCHED_STEP] = "lr is .lr, multiplied with .drop_factor",
    [SCHED_INVERSE_SQRT] = "lr = .lr sqrt((.warmup + 1) / (k + 1))",
    [SCHED_ONE_CYCLE] = "lr rises along half a cosine from .lr / .div_factor to .lr in .pct_start "
                        "of the updates, then falls so to .lr / .div_factor / .final_div_factor",
};

const char *c_schedule_prose(Emitter *e)
{
    const TrainSettings *train = &e->p->train;
    Text t = text_new(e->cx->scratch);
    if (train->schedule == SCHED_FORMULA)
        return emit_format(e, "lr = %s_rate(updates applied so far, updates of the run).",
                           e->model);
    if (train->warmup > 0)
        text_put(&t, "With k updates applied so far, lr = .lr (k + 1) / (.warmup + 1) while k < "
                     ".warmup; then ");
    text_put(&t, train->schedule == SCHED_WSD && train->decay_sqrt
                     ? "lr is .lr, until in the last .decay updates lr = .lr_end + (.lr - .lr_end) "
                       "(1 - sqrt(r)), where r runs from 0 to 1"
                     : sentence[train->schedule]);
    if (train->schedule == SCHED_STEP)
        text_put(&t, train->drop_at ? " at each of .drop_at" : " after every .drop_every updates");
    if (train->schedule == SCHED_INVERSE_SQRT && train->warmup == 0)
        text_put(&t, " with k updates applied so far");
    text_put(&t, ".");
    return t.at;
}

static bool reads(const Node *n, int counter)
{
    bool any = n->op == OP_ARG && n->attr.index == counter;
    for (int i = 0; i < n->n_in; i++)
        any = any || reads(n->in[i], counter);
    return any;
}

void c_rate(Emitter *e)
{
    static const char *const counter[] = { "step", "steps" };
    const TrainSettings *train = &e->p->train;
    if (train->schedule != SCHED_FORMULA)
        return;
    const Node *n = train->rate->sinks.at[0].node;
    e->arg = counter;
    const char *formula = code_scalar(e, "the rate", n).text;
    Text body = text_new(e->cx->scratch);
    emit_statement(&body, INDENT, emit_format(e, "return %s;", formula));
    emit_prose(e->out, "/* ", " * ",
               emit_format(e,
                           "The rate of an update, from updates applied so far and those of the "
                           "run (%s): %s */\n",
                           source_where(e->cx, train->rate_span),
                           emit_comment(e, train->rate_text, 400)));
    text_add(e->out, "static double %s_rate(double step, double steps)\n{\n", e->model);
    text_put(e->out, reads(n, 0) ? "" : "    RT_UNUSED(step);\n");
    text_put(e->out, reads(n, 1) ? "" : "    RT_UNUSED(steps);\n");
    text_add(e->out, "%s}\n\n", body.at);
}

void c_schedule_rows(Emitter *e)
{
    const TrainSettings *t = &e->p->train;
    Text *o = e->out;
    text_add(o, "        .schedule = %s, .lr = %s, .lr_end = %s,\n", kind_name[t->schedule],
             emit_number(e, t->lr), emit_number(e, t->lr_end));
    text_add(o, "        .warmup = %lld, .decay_steps = %lld,\n", (long long)t->warmup,
             (long long)t->decay_steps);
    if (t->schedule == SCHED_WSD)
        text_add(o, "        .decay = %lld, .decay_sqrt = %s,\n", (long long)t->decay,
                 t->decay_sqrt ? "true" : "false");
    if (t->schedule == SCHED_STEP)
        text_add(o, "        .drop_every = %lld, .drop_at = %s, .drop_factor = %s,\n",
                 (long long)t->drop_every, emit_string(e, t->drop_at),
                 emit_number(e, t->drop_factor));
    if (t->schedule == SCHED_ONE_CYCLE)
        text_add(o,
                 "        .pct_start = %s, .div_factor = %s, .final_div_factor = %s,\n"
                 "        .three_phase = %s,\n",
                 emit_number(e, t->pct_start), emit_number(e, t->div_factor),
                 emit_number(e, t->final_div_factor), t->three_phase ? "true" : "false");
    if (t->schedule == SCHED_FORMULA)
        emit_statement(o, 8,
                       emit_format(e, ".rate = %s_rate, .rate_text = %s,", e->model,
                                   emit_string(e, t->rate_text)));
}
