/* sem_schedule.c -- the rate of an update: a number, or a schedule over the updates.
 *
 * In: the value of `lr` in the train block. Out: kind and numbers of the schedule in CheckedTrain.
 */
#include "front/sem_parts.h"

#include <math.h>
#include <string.h>

void sem_train_rate(Sem *s, const Ast *a)
{
    CheckedTrain *t = &s->out->train;
    const char *name = train_called(a);
    TrainCall c = { .names = "lr end warmup steps", .places = 2 };
    t->schedule = SEM_CONSTANT;
    if (!name) {
        train_number(s, a, "lr", 0, HUGE_VAL, &t->lr);
        t->lr_end = t->lr;
        return;
    }
    int kind = train_word("constant linear cosine", name);
    if (kind < 0) {
        Diag *d = sem_error(s, a->span, "unknown schedule %s: constant, linear or cosine wanted",
                            name);
        train_suggest(s, d, name, "constant linear cosine");
        return;
    }
    t->schedule = kind == 0 ? SEM_CONSTANT : kind == 1 ? SEM_LINEAR : SEM_COSINE;
    if (!train_call(s, a, &c))
        return;
    if (!c.value[0]) {
        sem_error(s, a->span, "%s needs the rate: %s(1e-3)", name, name);
        return;
    }
    if (!train_number(s, c.value[0], "lr", 0, HUGE_VAL, &t->lr))
        return;
    t->lr_end = kind == 0 ? t->lr : kind == 1 ? 0 : 0.1 * t->lr;
    if (c.value[1] && kind == 0)
        sem_error(s, c.value[1]->span, "a constant rate has no end");
    else if (c.value[1])
        train_number(s, c.value[1], "end", 0, HUGE_VAL, &t->lr_end);
    if (c.value[2])
        train_whole(s, c.value[2], "warmup", 0, &t->warmup);
    if (c.value[3])
        train_whole(s, c.value[3], "steps", 1, &t->decay_steps);
}
