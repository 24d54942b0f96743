/* sem_train.c -- the train block: numbers of a run.
 *
 * In: settings `key = value`. Out: a CheckedTrain with every value given or its default. Every key
 * is known, every number in its range. The data setting is in sem_data.c, the rate in
 * sem_schedule.c, the optimizer in sem_optimizer.c.
 */
#include "front/sem_parts.h"

#include <math.h>
#include <string.h>

/* ---- reading values ------------------------------------------------------------------------ */

bool train_whole(Sem *s, const Ast *a, const char *what, int64_t least, int64_t *v)
{
    const Ast *value = a->kind == AST_EVERY ? a->value : a;
    const Thing *t = sem_eval(s, value);
    if (t->kind == THING_POISON)
        return false;
    if (thing_whole(t, v) && *v >= least)
        return true;
    sem_error(s, value->span, "%s must be a whole number, %lld or more", what, (long long)least);
    return false;
}

bool train_number(Sem *s, const Ast *a, const char *what, double least, double most, double *v)
{
    const Thing *t = sem_eval(s, a);
    if (t->kind == THING_POISON)
        return false;
    if (thing_number(t, v) && *v >= least && *v <= most)
        return true;
    if (most < HUGE_VAL)
        sem_error(s, a->span, "%s must be a number from %g to %g", what, least, most);
    else
        sem_error(s, a->span, "%s must be a number, %g or more", what, least);
    return false;
}

int train_word(const char *names, const char *name)
{
    size_t len = strlen(name);
    int k = 0;
    for (const char *p = names; *p; k++) {
        size_t n = strcspn(p, " ");
        if (n == len && strncmp(p, name, n) == 0)
            return k;
        p += n + (p[n] == ' ');
    }
    return -1;
}

void train_suggest(Sem *s, Diag *d, const char *word, const char *names)
{
    VEC(const char *) list = { 0 };
    for (const char *p = names; *p;) {
        size_t n = strcspn(p, " ");
        vec_push(s->arena, &list, arena_strndup(s->arena, p, n));
        p += n + (p[n] == ' ');
    }
    sem_did_you_mean(d, word, list.at, list.len);
}

bool train_call(Sem *s, const Ast *a, TrainCall *call)
{
    int next = 0;
    for (int i = 0; i < a->args.len; i++) {
        const Ast *arg = a->args.at[i];
        int k = arg->name ? train_word(call->names, arg->name) : next++;
        if (k < 0) {
            Diag *d = sem_error(s, arg->at, "%s has no argument %s", a->left->name, arg->name);
            train_suggest(s, d, arg->name, call->names);
            return false;
        }
        if (!arg->name && k >= call->places) {
            Diag *d = sem_error(s, arg->span, "this argument of %s needs its name", a->left->name);
            sem_hint(d, "the arguments are %s", call->names);
            return false;
        }
        if (call->value[k]) {
            sem_error(s, arg->span, "%s is given twice", arg->name ? arg->name : "an argument");
            return false;
        }
        call->value[k] = arg->value;
    }
    return true;
}

const char *train_called(const Ast *a)
{
    return a->kind == AST_CALL && a->left->kind == AST_NAME ? a->left->name : NULL;
}

/* ---- sizes --------------------------------------------------------------------------------- */

static void set_dims(Sem *s, const Ast *a)
{
    if (a->kind != AST_TUPLE) {
        sem_error(s, a->span, "the sizes of a run are written dims = (T: 128)");
        return;
    }
    for (int i = 0; i < a->args.len; i++) {
        const Ast *arg = a->args.at[i];
        int64_t v;
        Symbol *sym = arg->name ? dims_find(s->dims, arg->name) : NULL;
        if (!arg->name) {
            sem_error(s, arg->span, "a size needs its name: (T: 128)");
        } else if (!sym) {
            sem_unknown(s, arg->at, "size", arg->name, false);
        } else if (sym->kind != SYM_DIM) {
            Diag *d = sem_error(
                s, arg->at,
                sym->kind == SYM_BATCH
                    ? "%s is the sample axis: batch = sets it"
                    : "%s is a constant: it is set where it is declared, or with -D",
                arg->name);
            sem_note(s, d, sym->span, "%s is declared here", arg->name);
        } else if (train_whole(s, arg->value, arg->name, 1, &v)) {
            sym->value = v;
        }
    }
}

static bool holds(const CheckedConstraint *c, int64_t l, int64_t r)
{
    switch (c->rel) {
    case SEM_LE: return l <= r;
    case SEM_LT: return l < r;
    case SEM_GE: return l >= r;
    case SEM_GT: return l > r;
    case SEM_EQ: return l == r;
    default: return r != 0 && l % r == 0;
    }
}

/* The limits that the model declares hold at the sizes of the run. */
static void check_limits(Sem *s, const Ast *at)
{
    int64_t *values = NEW_ARRAY(s->arena, int64_t, dims_count(s->dims) + 1);
    for (int i = 0; i < dims_count(s->dims); i++) {
        values[i] = dims_at(s->dims, i)->value;
        if (values[i] == 0 && dims_at(s->dims, i)->kind == SYM_DIM)
            return;
    }
    for (int i = 0; i < s->out->constraints.len; i++) {
        const CheckedConstraint *c = &s->out->constraints.at[i];
        int64_t l = dim_eval(c->left, values), r = dim_eval(c->right, values);
        if (holds(c, l, r))
            continue;
        Diag *d = sem_error(s, c->span, "%s does not hold in this run: %lld against %lld", c->text,
                            (long long)l, (long long)r);
        sem_note(s, d, at->span, "the sizes are set here");
    }
}

/* ---- the block ----------------------------------------------------------------------------- */

static const char setting_keys[] =
    "data batch accumulate dims optimizer clip steps eval save log seed keep out precision "
    "head_rows groups ema recompute masters clip_value nonfinite max_skips loss_scale "
    "scale_interval scale_growth scale_backoff";

enum { SETTINGS_MAX = 32 };

/* The k-th key, NULL behind the last. */
const char *setting_key(Sem *s, int k)
{
    const char *p = setting_keys;
    for (; k > 0 && *p; k--)
        p += strcspn(p, " ") + (p[strcspn(p, " ")] == ' ');
    return *p ? arena_strndup(s->arena, p, strcspn(p, " ")) : NULL;
}

/* lr = 3: an argument of a setting, or a word of other programs. */
static bool hint_argument(Diag *d, const Ast *a)
{
    static const struct {
        const char *names, *form;
    } homes[] = {
        { "lr betas eps weight_decay", "optimizer = adamw(%s: ...)" },
        { "momentum nesterov", "optimizer = sgd(lr: ..., %s: ...)" },
        { "warmup end", "optimizer = adamw(lr: cosine(..., %s: ...))" },
        { "split val", "data = csv(\"file\", %s: ...)" },
        { "header", "data = csv(\"file\", %s: true)" },
        { "vocab", "data = text(\"file\", %s: \"bytes\")" },
        { "learning_rate rate", "optimizer = adamw(lr: ...)" },
        { "epochs epoch", "steps = ...: the number of updates" },
    };
    for (size_t i = 0; i < sizeof homes / sizeof homes[0]; i++) {
        if (train_word(homes[i].names, a->name) < 0)
            continue;
        const char *form = homes[i].form, *hole = strstr(form, "%s");
        if (hole)
            sem_hint(d, "write %.*s%s%s", (int)(hole - form), form, a->name, hole + 2);
        else
            sem_hint(d, "write %s", form);
        return true;
    }
    return false;
}

static void precision(Sem *s, const Ast *a)
{
    static const char words[] = "fp32 fp64 bf16 fp16";
    const char *name = a->kind == AST_NAME ? a->name : NULL;
    s->out->train.precision = name ? train_word(words, name) : -1;
    if (s->out->train.precision >= 0)
        return;
    Diag *d = sem_error(s, a->span, "precision is one of fp32, fp64, bf16 and fp16");
    if (name)
        train_suggest(s, d, name, words);
}

static void masters(Sem *s, const Ast *a)
{
    static const char words[] = "fp32 none";
    const char *name = a->kind == AST_NAME ? a->name : NULL;
    const int kind = name ? train_word(words, name) : -1;
    s->out->train.masterless = kind == 1;
    s->out->train.masters_span = a->span;
    if (kind >= 0)
        return;
    Diag *d = sem_error(s, a->span, "masters is one of fp32 and none");
    if (name)
        train_suggest(s, d, name, words);
}

static void recompute(Sem *s, const Ast *a)
{
    static const char words[] = "auto none blocks budget";
    CheckedTrain *t = &s->out->train;
    const char *name = a->kind == AST_NAME ? a->name : train_called(a);
    const int kind = name ? train_word(words, name) : -1;
    TrainCall c = { .names = "bytes", .places = 1 };
    double bytes = 0;
    t->recompute_span = a->span;
    if (kind < 0 || (kind < 3 && a->kind == AST_CALL)) {
        Diag *d = sem_error(s, a->span, "recompute is one of none, auto, blocks and budget(6 GiB)");
        if (name && kind < 0)
            train_suggest(s, d, name, words);
    } else if (kind == 3 && (a->kind == AST_NAME || a->args.len == 0)) {
        sem_error(s, a->span, "a budget needs the memory of a training process: budget(6 GiB)");
    } else if (kind < 3) {
        t->recompute = kind == 0   ? SEM_RECOMPUTE_AUTO
                       : kind == 1 ? SEM_RECOMPUTE_NONE
                                   : SEM_RECOMPUTE_BLOCKS;
    } else if (train_call(s, a, &c) && train_number(s, c.value[0], "the budget", 1, 1e18, &bytes)) {
        t->recompute = SEM_RECOMPUTE_BUDGET;
        t->budget = (int64_t)bytes;
    }
}

static void read_setting(Sem *s, const Ast *a)
{
    CheckedTrain *t = &s->out->train;
    const Ast *v = a->value;
    const Thing *text;
    if (a->flag && strcmp(a->name, "data") != 0) {
        sem_error(s, a->at, "%s has no block", a->name);
        return;
    }
    const int key = train_word(setting_keys, a->name);
    switch (key) {
    case 0: sem_train_data(s, a); break;
    case 1: train_whole(s, v, "batch", 1, &t->batch); break;
    case 2: train_whole(s, v, "accumulate", 1, &t->accumulate); break;
    case 3: set_dims(s, v); break;
    case 4: sem_optimizer(s, v); break;
    case 5: train_number(s, v, "clip", 0, HUGE_VAL, &t->clip); break;
    case 6: train_whole(s, v, "steps", 1, &t->steps); break;
    case 7: train_whole(s, v, "eval", 0, &t->eval_every); break;
    case 8: train_whole(s, v, "save", 0, &t->save_every); break;
    case 9: train_whole(s, v, "log", 0, &t->log_every); break;
    case 10: train_whole(s, v, "seed", 0, &t->seed); break;
    case 11: train_whole(s, v, "keep", 2, &t->keep); break;
    case 12:
        text = sem_eval(s, v);
        if (text->kind == THING_TEXT)
            t->out = text->text;
        else if (text->kind != THING_POISON)
            sem_error(s, v->span, "out is the folder of a run, a text");
        break;
    case 13: precision(s, v); break;
    case 14:
        train_whole(s, v, "head_rows", 0, &t->head_rows);
        t->head_span = v->span;
        break;
    case 15: sem_train_groups(s, v); break;
    case 16: sem_train_ema(s, v); break;
    case 17: recompute(s, v); break;
    case 18: masters(s, v); break;
    case 19: train_number(s, v, "clip_value", 0, HUGE_VAL, &t->clip_value); break;
    default: sem_train_nonfinite(s, key - 20, v); break;
    case -1: {
        Diag *d = sem_error(s, a->at, "unknown setting %s", a->name);
        if (hint_argument(d, a))
            break;
        train_suggest(s, d, a->name, setting_keys);
        sem_hint(d, "the settings are %s", setting_keys);
    }
    }
}

static void check_batch(Sem *s, const Ast *batch, const Ast *accumulate)
{
    CheckedTrain *t = &s->out->train;
    if (t->batch % t->accumulate != 0) {
        Diag *d = sem_error(s, accumulate->span,
                            "batch = %lld does not split into accumulate = %lld equal parts",
                            (long long)t->batch, (long long)t->accumulate);
        if (batch)
            sem_note(s, d, batch->span, "batch is set here");
        else
            sem_hint(d, "batch is %lld if it is not set", (long long)t->batch);
    }
    for (int i = 0; i < s->batches.len; i++)
        s->batches.at[i]->value = t->batch / t->accumulate;
}

/* -D clip=1.0: the setting, read like a line of the block; NULL when there is none, or after an
   error. */
static const Ast *given_setting(Sem *s, const char *key)
{
    const Define *def = map_get(s->defines, intern(s->cx, key));
    if (!def)
        return NULL;
    map_set(s->defines, intern(s->cx, key), NULL);
    Text text = text_new(s->arena);
    text_add(&text, "train { %s = %s }\n", key, def->value);
    const int before = diag_count(s->cx);
    const Ast *file = parse_source(s->cx, source_add_option(s->cx, def->typed, text.at));
    const Ast *block = file->items.len == 1 ? file->items.at[0] : NULL;
    if (diag_count(s->cx) > before)
        return NULL;
    if (block && block->kind == AST_TRAIN && block->items.len == 1)
        return block->items.at[0];
    diag_option(s->cx, def->typed, "one value wanted");
    return NULL;
}

/* Reads the settings of the block, then those that -D gives in their place. set[k]: where the k-th
   is set, or NULL. */
static void read_settings(Sem *s, const Ast *train, const Ast *set[SETTINGS_MAX])
{
    const Ast *given[SETTINGS_MAX] = { NULL };
    for (int k = 0; setting_key(s, k); k++)
        given[k] = given_setting(s, setting_key(s, k));
    for (int i = 0; train && i < train->items.len; i++) {
        const Ast *a = train->items.at[i];
        if (a->kind != AST_SETTING || a->value->kind == AST_BAD)
            continue;
        int k = train_word(setting_keys, a->name);
        if (k >= 0 && set[k]) {
            sem_error(s, a->at, "%s is set twice", a->name);
            continue;
        }
        if (k >= 0)
            set[k] = a;
        if (k < 0 || !given[k])
            read_setting(s, a);
    }
    for (int k = 0; setting_key(s, k); k++)
        if (given[k]) {
            read_setting(s, given[k]);
            set[k] = given[k];
        }
}

/* Groups with a weight decay want an optimizer that has one. */
static void check_group_decays(Sem *s)
{
    const CheckedTrain *t = &s->out->train;
    for (int i = 0; i < t->updates.len; i++)
        if (!isnan(t->updates.at[i].decay) && t->rule.name && !t->rule.decays) {
            Diag *d = sem_error(s, t->updates.at[i].span, "optimizer %s has no weight decay",
                                t->rule.name);
            sem_note(s, d, t->rule.span, "%s is declared here", t->rule.name);
            sem_hint(d, "an argument weight_decay gives it one, and `decay` to its body");
        }
}

void sem_train(Sem *s, const Ast *train)
{
    CheckedTrain *t = &s->out->train;
    *t = (CheckedTrain){ .split = 1,
                         .batch = 32,
                         .accumulate = 1,
                         .schedule = SEM_CONSTANT,
                         .lr = 1e-3,
                         .lr_end = 1e-3,
                         .drop_factor = 0.1,
                         .pct_start = 0.3,
                         .div_factor = 25,
                         .final_div_factor = 1e4,
                         .steps = 1000,
                         .precision = -1,
                         .head_rows = -1,
                         .log_every = 10,
                         .seed = 1,
                         .keep = 3 };
    const Ast *set[SETTINGS_MAX] = { NULL };
    read_settings(s, train, set);
    if (!set[train_word(setting_keys, "optimizer")])
        sem_optimizer_default(s);
    if (!train && (set[1] || set[2])) /* by -D */
        check_batch(s, set[1], set[2]);
    if (!train)
        return;
    t->present = true;
    t->span = train->span;
    check_batch(s, set[1], set[2]);
    sem_check_schedule(s, set[train_word(setting_keys, "steps")]);
    check_group_decays(s);
    if (diag_count(s->cx))
        return;
    check_limits(s, set[3] ? set[3] : train);
    if (!s->out->has_loss)
        sem_error(s, train->span, "there is a train block, but the model has no loss");
}
