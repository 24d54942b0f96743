/* sem_tensorwise.c -- optimizers that need something of a whole tensor first.
 *
 * In: optimizer = name(arguments), with such a name. Out: its kind, rate and numbers in the
 * CheckedTrain. A row of the table has what each takes; its function reads what no other has.
 */
#include "front/sem_parts.h"

#include <math.h>
#include <string.h>

#define BELOW_1 0.9999999

typedef struct {
    const char *name;
    int kind;
    const char *arguments; /* lr and weight_decay are the first two */
    double weight_decay;   /* if none is given */
    void (*read)(Sem *s, const Ast *a, const Ast *const *value);
} Row;

/* The numbers of Adam's direction. */
static void read_adam(Sem *s, const Ast *betas, const Ast *eps_given, double eps)
{
    if (eps_given && train_number(s, eps_given, "eps", 0, 1, &eps) && eps == 0)
        sem_error(s, eps_given->span, "eps must be above 0: a gradient of 0 is divided by it");
    sem_hyper(s, "beta1", 0.9, 0, BELOW_1);
    sem_hyper(s, "beta2", 0.999, 0, BELOW_1);
    sem_hyper(s, "eps", eps, 1e-30, 1e30);
    if (betas)
        sem_betas(s, betas);
}

static void read_lamb(Sem *s, const Ast *a, const Ast *const *value)
{
    (void)a;
    read_adam(s, value[2], value[3], 1e-6);
}

/* (1e-7, 1e-3) */
static void read_eps(Sem *s, const Ast *a, double eps[2])
{
    const Thing *t = sem_eval(s, a);
    if (t->kind == THING_POISON)
        return;
    bool fits = t->kind == THING_TUPLE && t->items.len == 2;
    for (int i = 0; fits && i < 2; i++)
        fits = thing_number(t->items.at[i], &eps[i]) && eps[i] > 0 && eps[i] <= 1;
    if (!fits)
        sem_error(s, a->span,
                  "adafactor's eps are two numbers, above 0 and at most 1: (1e-7, 1e-3)");
}

static void read_adafactor(Sem *s, const Ast *a, const Ast *const *value)
{
    (void)a;
    double decay = -0.8, eps[2] = { 0, 1e-3 }, d = 1;
    if (value[2])
        train_number(s, value[2], "beta2_decay", -10, 0, &decay);
    if (value[3])
        read_eps(s, value[3], eps);
    if (value[4])
        train_number(s, value[4], "d", 1, HUGE_VAL, &d);
    sem_hyper(s, "beta2-decay", decay, -10, 0);
    sem_hyper(s, "eps1", eps[0], 0, 1); /* 0: that of the type */
    sem_hyper(s, "eps2", eps[1], 0, 1);
    sem_hyper(s, "d", d, 1, 1e30);
}

static bool has_matrix(const Sem *s)
{
    for (int i = 0; i < s->out->params.len; i++) {
        const CheckedParam *p = &s->out->params.at[i];
        if (p->role == SEM_WEIGHT && p->type->rank == 2 && !p->excepted)
            return true;
    }
    return false;
}

static void read_muon(Sem *s, const Ast *a, const Ast *const *value)
{
    CheckedTrain *t = &s->out->train;
    double momentum = 0.95, factor = 0;
    if (value[2] && train_number(s, value[2], "momentum", 0, 1, &momentum) && momentum == 1)
        sem_error(s, value[2]->span, "momentum must be below 1: 1 never takes in a gradient");
    t->nesterov = true;
    if (value[3])
        sem_eval_bool(s, value[3], "nesterov", &t->nesterov);
    if (value[4]) {
        const Ast *word = value[4];
        const int k = word->kind == AST_NAME ? train_word("shape rms", word->name) : -1;
        t->match_rms = k == 1;
        if (k < 0)
            sem_error(s, word->span, "adjust is shape or rms");
    }
    factor = t->match_rms ? 1 : 0.015;
    if (value[5])
        sem_train_except(s, value[5]);
    if (value[6])
        train_number(s, value[6], "adamw_factor", 0, HUGE_VAL, &factor);
    sem_hyper(s, "momentum", momentum, 0, BELOW_1);
    sem_hyper(s, "adamw-factor", factor, 0, 1e30);
    read_adam(s, value[7], value[8], 1e-8);
    if (diag_count(s->cx) == 0 && !has_matrix(s)) {
        Diag *d = sem_error(s, a->span, "muon updates matrices of role weight, and there is none");
        sem_hint(d, "adamw(...) updates the rest");
    }
}

static const Row rows[] = {
    { "lamb", SEM_LAMB, "lr weight_decay betas eps", 0.01, read_lamb },
    { "adafactor", SEM_ADAFACTOR, "lr weight_decay beta2_decay eps d", 0, read_adafactor },
    { "muon", SEM_MUON, "lr weight_decay momentum nesterov adjust except adamw_factor betas eps",
      0.1, read_muon },
};

const char *sem_tensorwise_names(Sem *s)
{
    Text t = text_new(s->arena);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        text_add(&t, "%s%s", i ? " " : "", rows[i].name);
    return t.at;
}

bool sem_optimizer_tensorwise(Sem *s, const Ast *a, const char *name)
{
    CheckedTrain *t = &s->out->train;
    const Row *row = NULL;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].name, name) == 0)
            row = &rows[i];
    if (!row)
        return false;
    TrainCall c = { .names = row->arguments, .places = 1 };
    t->optimizer = row->kind;
    t->tensorwise = true;
    t->weight_decay = row->weight_decay;
    t->hypers.len = 0;
    if (!train_call(s, a, &c))
        return true;
    if (c.value[0])
        sem_train_rate(s, c.value[0]);
    else
        sem_error(s, a->span, "%s needs a rate: %s(lr: 1e-3)", name, name);
    if (c.value[1])
        train_number(s, c.value[1], "weight_decay", 0, HUGE_VAL, &t->weight_decay);
    row->read(s, a, c.value);
    return true;
}
