/* sem_optimizer.c -- the optimizer of the train block.
 *
 * In: optimizer = name(arguments), and the declarations `optimizer name(lr, ...) { ... }` of the
 * model file and the prelude. Out: rate, numbers and rule of the update in the CheckedTrain. A
 * number becomes an option of the program under its argument's name; true and false are fixed.
 */
#include "front/sem_parts.h"

#include <math.h>
#include <string.h>

/* ---- numbers of optimizers on whole tensors ------------------------------------------------ */

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

/* ---- declarations -------------------------------------------------------------------------- */

/* Names of all optimizers there are, separated by blanks; the user's first. */
static const char *known_names(Sem *s)
{
    const Ast *const file[2] = { s->file, s->library };
    Text t = text_new(s->arena);
    for (int k = 0; k < 2; k++)
        for (int i = 0; file[k] && i < file[k]->items.len; i++) {
            const Ast *a = file[k]->items.at[i];
            if (a->kind == AST_OPTIMIZER && train_word(t.at, a->name) < 0)
                text_add(&t, "%s%s", t.len ? " " : "", a->name);
        }
    text_add(&t, " %s", sem_tensorwise_names(s));
    return t.at;
}

static const Ast *declared_in(Sem *s, const Ast *file, const char *name)
{
    const Ast *found = NULL;
    for (int i = 0; file && i < file->items.len; i++) {
        const Ast *a = file->items.at[i];
        if (a->kind != AST_OPTIMIZER || strcmp(a->name, name) != 0)
            continue;
        if (found) {
            Diag *d = sem_error(s, a->at, "%s is declared twice", name);
            sem_note(s, d, found->at, "the first %s", name);
        }
        found = found ? found : a;
    }
    return found;
}

static Decl *find_optimizer(Sem *s, const char *name)
{
    const Ast *own = declared_in(s, s->file, name);
    const Ast *ast = own ? own : declared_in(s, s->library, name);
    if (!ast)
        return NULL;
    Decl *d = NEW(s->arena, Decl);
    *d = (Decl){ .name = ast->name, .ast = ast, .scope = own ? s->global : s->prelude };
    d->prelude = !own;
    return d;
}

/* Options of every program, as runtime/core/options.c has them: a test compares the two. */
static const char taken_options[] =
    "data val_data split dims steps batch accumulate lr lr_end warmup decay_steps decay_length "
    "drop_every drop_at drop_factor pct_start div_factor final_div_factor weight_decay clip "
    "clip_value ema loss_scale scale_interval scale_growth scale_backoff nonfinite max_skips eval "
    "save keep log seed out resume checkpoint prompt tokens temperature top_k threads device "
    "tf32 dry_run plan force replay trace help version rank world_size local_rank rendezvous comm "
    "comm_dtype interface comm_timeout rendezvous_timeout tree bucket comm_check";

enum { NUMBERS_MAX = 16 }; /* as many as rt.h has room for */

static bool check_formal(Sem *s, const Decl *d, int i)
{
    const Ast *formal = d->ast->args.at[i];
    for (int k = 0; k < i; k++)
        if (d->ast->args.at[k]->name == formal->name) {
            sem_error(s, formal->at, "argument %s is declared twice", formal->name);
            return false;
        }
    if (formal->type) {
        sem_error(s, formal->type->span, "an argument of an optimizer is a number, true or false");
        return false;
    }
    if (i == 0 && formal->value) {
        sem_error(s, formal->value->span, "lr has no default: the train block sets it");
        return false;
    }
    if (i == 0 || strcmp(formal->name, "weight_decay") == 0)
        return true;
    if (train_word("p g t decay", formal->name) >= 0) {
        sem_error(s, formal->at, "%s is given to every optimizer: choose another name",
                  formal->name);
        return false;
    }
    if (train_word(taken_options, formal->name) >= 0) {
        sem_error(s, formal->at, "every program has an option %s already: choose another name",
                  formal->name);
        return false;
    }
    return true;
}

static bool declare_decay(Sem *s, const Ast *formal)
{
    CheckedTrain *t = &s->out->train;
    t->rule.decays = true;
    t->weight_decay = NAN;
    return !formal->value
           || train_number(s, formal->value, "weight_decay", 0, HUGE_VAL, &t->weight_decay);
}

/* The arguments of d with their defaults; values without any are NAN. False after an error. */
static bool declare_args(Sem *s, const Decl *d, RuleArgs *args)
{
    const AstList *formals = &d->ast->args;
    bool fine = true;
    if (formals->len == 0 || strcmp(formals->at[0]->name, "lr") != 0) {
        Diag *diag = sem_error(s, d->ast->at, "the first argument of an optimizer is lr");
        sem_hint(diag, "optimizer %s(lr) { p = p - lr * g }", d->name);
        return false;
    }
    for (int i = 0; i < formals->len; i++) {
        const Ast *formal = formals->at[i];
        RuleArg arg = { .name = formal->name, .span = formal->at, .value = NAN };
        arg.lo = -1e300;
        arg.hi = 1e300;
        if (!check_formal(s, d, i)) {
            fine = false;
            continue;
        }
        if (strcmp(formal->name, "weight_decay") == 0) {
            fine = declare_decay(s, formal) && fine;
            continue;
        }
        const Thing *v = formal->value ? sem_eval(s, formal->value) : NULL;
        arg.flag = v && v->kind == THING_BOOL;
        arg.yes = arg.flag && v->yes;
        if (v && v->kind == THING_POISON) {
            fine = false;
        } else if (v && !arg.flag && !thing_number(v, &arg.value)) {
            sem_error(s, formal->value->span, "%s must be a number, true or false", formal->name);
            fine = false;
        } else if (i > 0) {
            vec_push(s->arena, args, arg);
        }
    }
    if (args->len > NUMBERS_MAX) {
        sem_error(s, d->ast->at, "more than %d arguments of an optimizer", NUMBERS_MAX);
        return false;
    }
    return fine;
}

/* ---- the call ------------------------------------------------------------------------------ */

/* betas for beta1 and beta2: the stem of `name` if its last letter is 1, and s. */
static const char *tuple_name(Sem *s, const RuleArgs *args, int i)
{
    const char *name = args->at[i].name;
    const size_t len = strlen(name);
    if (len < 2 || name[len - 1] != '1' || i + 1 == args->len)
        return NULL;
    const char *next = args->at[i + 1].name;
    if (strlen(next) != len || next[len - 1] != '2' || strncmp(name, next, len - 1) != 0)
        return NULL;
    return arena_printf(s->arena, "%.*ss", (int)(len - 1), name);
}

static void set_arg(Sem *s, RuleArg *arg, const Ast *a)
{
    arg->given = a->span;
    if (arg->flag) {
        sem_eval_bool(s, a, arg->name, &arg->yes);
        return;
    }
    const Thing *t = sem_eval(s, a);
    if (t->kind == THING_POISON)
        arg->value = 0;
    else if (!thing_number(t, &arg->value) || !isfinite(arg->value))
        sem_error(s, a->span, "%s must be a number", arg->name);
}

/* betas: (0.9, 0.99) */
static void set_tuple(Sem *s, RuleArgs *args, int i, const char *name, const Ast *a)
{
    const Thing *t = sem_eval(s, a);
    double v[2];
    if (t->kind == THING_POISON)
        return;
    bool fits = t->kind == THING_TUPLE && t->items.len == 2;
    for (int k = 0; fits && k < 2; k++)
        fits = thing_number(t->items.at[k], &v[k]);
    if (!fits)
        sem_error(s, a->span, "%s are two numbers, %s and %s: (%g, %g)", name, args->at[i].name,
                  args->at[i + 1].name, args->at[i].value, args->at[i + 1].value);
    for (int k = 0; fits && k < 2; k++) {
        args->at[i + k].value = v[k];
        args->at[i + k].given = a->span;
    }
}

/* The arguments of the call a, and that none is missing. */
static bool read_call(Sem *s, const Ast *a, RuleArgs *args)
{
    CheckedTrain *t = &s->out->train;
    Text names = text_new(s->arena);
    text_put(&names, "lr");
    for (int i = 0; i < args->len; i++)
        text_add(&names, " %s", args->at[i].name);
    for (int i = 0; i < args->len; i++)
        if (tuple_name(s, args, i))
            text_add(&names, " %s", tuple_name(s, args, i));
    if (t->rule.decays)
        text_put(&names, " weight_decay");
    TrainCall c = { .names = names.at, .places = 1 };
    if (!train_call(s, a, &c))
        return false;
    if (c.value[0])
        sem_train_rate(s, c.value[0]);
    else
        sem_error(s, a->span, "%s needs a rate: %s(lr: 1e-3)", a->left->name, a->left->name);
    for (int i = 0; i < args->len; i++) {
        const char *tuple = tuple_name(s, args, i);
        const Ast *both = tuple ? c.value[train_word(names.at, tuple)] : NULL;
        for (int k = 0; both && k < 2; k++)
            if (c.value[i + k + 1])
                sem_error(s, c.value[i + k + 1]->span, "%s is given by %s too",
                          args->at[i + k].name, tuple);
        if (both)
            set_tuple(s, args, i, tuple, both);
        if (c.value[i + 1])
            set_arg(s, &args->at[i], c.value[i + 1]);
    }
    const Ast *decay = t->rule.decays ? c.value[train_word(names.at, "weight_decay")] : NULL;
    if (decay)
        train_number(s, decay, "weight_decay", 0, HUGE_VAL, &t->weight_decay);
    const char *missing = t->rule.decays && isnan(t->weight_decay) ? "weight_decay" : NULL;
    for (int i = 0; !missing && i < args->len; i++)
        if (!args->at[i].flag && isnan(args->at[i].value))
            missing = args->at[i].name;
    if (missing)
        sem_error(s, a->span, "%s needs the argument %s", a->left->name, missing);
    return !missing;
}

/* --name of the program: my_number is --my-number. */
static const char *option_name(Sem *s, const char *name)
{
    char *option = arena_strndup(s->arena, name, strlen(name));
    for (char *c = option; *c; c++)
        *c = *c == '_' ? '-' : *c;
    return option;
}

static void apply(Sem *s, Decl *d, const Ast *call, Span at)
{
    CheckedTrain *t = &s->out->train;
    RuleArgs args = { 0 };
    if (!declare_args(s, d, &args) || (call && !read_call(s, call, &args)))
        return;
    sem_rule(s, d, &args, at);
    for (int i = 0; i < args.len; i++)
        if (!args.at[i].flag)
            vec_push(s->arena, &t->hypers,
                     ((CheckedHyper){ option_name(s, args.at[i].name), args.at[i].value,
                                      args.at[i].lo, args.at[i].hi }));
}

void sem_optimizer_default(Sem *s)
{
    Decl *d = find_optimizer(s, "adamw");
    if (d)
        apply(s, d, NULL, d->ast->at);
}

void sem_optimizer(Sem *s, const Ast *a)
{
    CheckedTrain *t = &s->out->train;
    const char *name = train_called(a);
    t->optimizer_span = a->span;
    if (!name) {
        sem_error(s, a->span, "an optimizer wanted: sgd(lr: ...), adam(...) or adamw(...)");
        return;
    }
    Decl *d = find_optimizer(s, name);
    if (d)
        apply(s, d, a, a->span);
    if (d || sem_optimizer_tensorwise(s, a, name))
        return;
    Diag *unknown = sem_error(s, a->span, "unknown optimizer %s", name);
    train_suggest(s, unknown, name, known_names(s));
    sem_hint(unknown, "the optimizers are %s", known_names(s));
}
