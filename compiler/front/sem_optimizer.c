/* sem_optimizer.c -- the optimizer of the train block.
 *
 * In: optimizer = name(arguments). Out: its kind, rate and numbers in the CheckedTrain. A table has
 * what each optimizer takes; a number becomes an option of the program under the name given here.
 */
#include "front/sem_parts.h"

#include <math.h>
#include <string.h>

#define BELOW_1    0.9999999
#define OPTIMIZERS "sgd adam adamw lamb adafactor muon"

void sem_hyper(Sem *s, const char *name, double value, double lo, double hi)
{
    CheckedHyper h = { name, value, lo, hi };
    vec_push(s->arena, &s->out->train.hypers, h);
}

void sem_set_hyper(Sem *s, const char *name, double value)
{
    CheckedTrain *t = &s->out->train;
    for (int i = 0; i < t->hypers.len; i++)
        if (strcmp(t->hypers.at[i].name, name) == 0)
            t->hypers.at[i].value = value;
}

/* The numbers of an optimizer with their defaults. */
static void declare(Sem *s, int kind)
{
    CheckedTrain *t = &s->out->train;
    t->optimizer = kind == 0 ? SEM_SGD : kind == 1 ? SEM_ADAM : SEM_ADAMW;
    t->weight_decay = kind == 2 ? 0.01 : 0;
    t->hypers.len = 0;
    if (kind == 0) {
        sem_hyper(s, "momentum", 0, 0, BELOW_1);
        return;
    }
    sem_hyper(s, "beta1", 0.9, 0, BELOW_1);
    sem_hyper(s, "beta2", 0.999, 0, BELOW_1);
    sem_hyper(s, "eps", 1e-8, 0, 1e30);
}

void sem_optimizer_default(Sem *s) { declare(s, 2); }

void sem_betas(Sem *s, const Ast *a)
{
    const Thing *t = sem_eval(s, a);
    double v[2];
    if (t->kind == THING_POISON)
        return;
    bool fits = t->kind == THING_TUPLE && t->items.len == 2;
    for (int i = 0; fits && i < 2; i++)
        fits = thing_number(t->items.at[i], &v[i]) && v[i] >= 0 && v[i] < 1;
    if (!fits) {
        sem_error(s, a->span, "betas are two numbers from 0 to below 1: (0.9, 0.999)");
        return;
    }
    sem_set_hyper(s, "beta1", v[0]);
    sem_set_hyper(s, "beta2", v[1]);
}

void sem_optimizer(Sem *s, const Ast *a)
{
    static const char *const arguments[] = { "lr momentum nesterov weight_decay", "lr betas eps",
                                             "lr betas eps weight_decay" };
    CheckedTrain *t = &s->out->train;
    const char *name = train_called(a);
    t->tensorwise = false;
    t->optimizer_span = a->span;
    if (name && sem_optimizer_tensorwise(s, a, name))
        return;
    int kind = name ? train_word("sgd adam adamw", name) : -1;
    if (kind < 0) {
        if (!name) {
            sem_error(s, a->span, "an optimizer wanted: sgd(lr: ...), adam(...) or adamw(...)");
            return;
        }
        Diag *d = sem_error(s, a->span, "unknown optimizer %s", name);
        train_suggest(s, d, name, OPTIMIZERS);
        sem_hint(d, "the optimizers are %s", OPTIMIZERS);
        return;
    }
    TrainCall c = { .names = arguments[kind], .places = 1 };
    double momentum = 0, eps = 1;
    declare(s, kind);
    if (!train_call(s, a, &c))
        return;
    if (c.value[0])
        sem_train_rate(s, c.value[0]);
    else
        sem_error(s, a->span, "%s needs a rate: %s(lr: 1e-3)", name, name);
    if (kind == 0) {
        if (c.value[1] && train_number(s, c.value[1], "momentum", 0, 1, &momentum))
            sem_set_hyper(s, "momentum", momentum);
        if (c.value[2])
            sem_eval_bool(s, c.value[2], "nesterov", &t->nesterov);
        if (t->nesterov && momentum == 0)
            sem_error(s, c.value[2]->span, "nesterov needs a momentum above 0");
    } else {
        if (c.value[1])
            sem_betas(s, c.value[1]);
        if (c.value[2] && train_number(s, c.value[2], "eps", 0, 1, &eps))
            sem_set_hyper(s, "eps", eps);
        if (c.value[2] && eps == 0)
            sem_error(s, c.value[2]->span, "eps must be above 0: a gradient of 0 is divided by it");
    }
    if (c.value[3])
        train_number(s, c.value[3], "weight_decay", 0, HUGE_VAL, &t->weight_decay);
}
