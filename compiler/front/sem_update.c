/* sem_update.c -- what an update does besides the optimizer's rule: the average of the weights,
 * groups of parameters with numbers of their own, updates that are not finite.
 *
 * In: the settings ema, groups, nonfinite and those of the loss scale. Out: their numbers in
 * CheckedTrain, and for each parameter the group that each of its repetitions is in. The one idea:
 * a pattern is matched with the names that checkpoints have, h.3.attn.weight, so one repetition of
 * a stack can be told from the others.
 */
#include "front/sem_parts.h"

#include <math.h>
#include <string.h>

/* ---- ema ----------------------------------------------------------------------------------- */

void sem_train_ema(Sem *s, const Ast *a)
{
    CheckedTrain *t = &s->out->train;
    if (train_number(s, a, "ema", 0, 1, &t->ema) && t->ema == 1)
        sem_error(s, a->span, "ema must be below 1: 1 never leaves the initial weights");
}

/* ---- what is not finite --------------------------------------------------------------------- */

static void nonfinite_policy(Sem *s, const Ast *a)
{
    static const char words[] = "stop skip";
    const char *name = a->kind == AST_NAME ? a->name : NULL;
    const int k = name ? train_word(words, name) : -1;
    s->out->train.nonfinite.policy = k == 0 ? "stop" : k == 1 ? "skip" : NULL;
    if (k >= 0)
        return;
    Diag *d = sem_error(s, a->span, "nonfinite is one of stop and skip");
    if (name)
        train_suggest(s, d, name, words);
}

void sem_train_nonfinite(Sem *s, int key, const Ast *a)
{
    CheckedNonfinite *n = &s->out->train.nonfinite;
    switch (key) {
    case 0: nonfinite_policy(s, a); break;
    case 1: train_whole(s, a, "max_skips", 1, &n->max_skips); break;
    case 2:
        n->scale_set = train_number(s, a, "loss_scale", 0, 0x1p120, &n->scale);
        if (n->scale > 0 && n->scale < 1)
            sem_error(s, a->span, "loss_scale must be 1 or more, or 0 for none");
        break;
    case 3: train_whole(s, a, "scale_interval", 1, &n->interval); break;
    case 4: train_number(s, a, "scale_growth", 1, 0x1p20, &n->growth); break;
    case 5:
        if (train_number(s, a, "scale_backoff", 0, 1, &n->backoff)
            && (n->backoff <= 0 || n->backoff >= 1))
            sem_error(s, a->span, "scale_backoff must be above 0 and below 1");
        break;
    default: bug("setting %d of what is not finite", key);
    }
}

/* ---- names --------------------------------------------------------------------------------- */

/* Does the name fit the pattern? * is any characters, ? is one. */
static bool fits(const char *pattern, const char *name)
{
    const char *star = NULL, *from = name;
    while (*name) {
        if (*pattern == *name || *pattern == '?') {
            pattern++;
            name++;
        } else if (*pattern == '*') {
            star = pattern++;
            from = name;
        } else if (star) {
            pattern = star + 1;
            name = ++from;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return *pattern == 0;
}

static int64_t times(const Sem *s, int group)
{
    int64_t n = 1, count;
    for (int g = group; g >= 0; g = s->out->groups.at[g].parent)
        n *= dim_value(s->out->groups.at[g].count, &count) ? count : 1;
    return n;
}

/* h.*.weight of repetition r: h.3.weight */
static const char *name_of(Sem *s, const CheckedParam *p, int64_t r)
{
    int64_t index[LOOP_DEPTH_MAX] = { 0 }, count;
    int depth = 0, k = 0;
    for (int g = p->group; g >= 0; g = s->out->groups.at[g].parent)
        depth++;
    for (int g = p->group, i = depth - 1; g >= 0; g = s->out->groups.at[g].parent, i--) {
        if (i >= LOOP_DEPTH_MAX || !dim_value(s->out->groups.at[g].count, &count))
            return p->path;
        index[i] = r % count;
        r /= count;
    }
    Text name = text_new(s->arena);
    for (const char *c = p->path; *c; c++)
        if (*c == '*' && k < depth)
            text_add(&name, "%lld", (long long)index[k++]);
        else
            text_putn(&name, c, 1);
    return name.at;
}

/* ---- groups -------------------------------------------------------------------------------- */

enum { UPDATES_MAX = 255 }; /* a byte per repetition holds them */

static void claim(Sem *s, CheckedParam *p, int64_t r, const char *name, int group, const Ast *a)
{
    if (!p->updates)
        p->updates = NEW_ARRAY(s->arena, uint8_t, (size_t)times(s, p->group));
    const int other = p->updates[r];
    if (other && other != group) {
        Diag *d = sem_error(s, a->span, "%s is in two groups", name);
        sem_note(s, d, s->out->train.updates.at[other - 1].span, "the other group");
    }
    p->updates[r] = (uint8_t)group;
}

/* Claims for a group what the pattern names; 0: it is excepted from Muon. */
static void match(Sem *s, const Ast *a, int group)
{
    Checked *c = s->out;
    VEC(const char *) paths = { 0 };
    bool any = false;
    for (int i = 0; i < c->params.len; i++) {
        CheckedParam *p = &c->params.at[i];
        if (p->role == SEM_STATE)
            continue;
        vec_push(s->arena, &paths, p->path);
        int64_t hits = 0;
        for (int64_t r = 0; r < times(s, p->group); r++) {
            const char *name = name_of(s, p, r);
            if (!fits(a->name, name))
                continue;
            hits++;
            if (group)
                claim(s, p, r, name, group, a);
        }
        any = any || hits;
        p->excepted = p->excepted || (hits && !group);
        if (hits && hits < times(s, p->group) && !group)
            sem_error(s, a->span, "except takes all repetitions of %s, or none", p->path);
    }
    if (any)
        return;
    Diag *d = sem_error(s, a->span, "no parameter is called \"%s\"", a->name);
    sem_did_you_mean(d, a->name, paths.at, paths.len);
    if (paths.len)
        sem_hint(d, "names are those of checkpoints, as %s; * is any characters",
                 name_of(s, &c->params.at[0], 0));
}

static void group(Sem *s, const Ast *a)
{
    CheckedTrain *t = &s->out->train;
    CheckedUpdate u = { .rate = 1, .decay = NAN, .span = a->span };
    Text names = text_new(s->arena);
    bool named = false, numbers = false, wrong = false;
    if (!train_called(a) || strcmp(a->left->name, "group") != 0) {
        Diag *d = sem_error(s, a->span, "a group of parameters wanted");
        sem_hint(d, "group(\"wte.weight\", lr: 0.5, weight_decay: 0)");
        return;
    }
    if (t->updates.len == UPDATES_MAX) {
        sem_error(s, a->span, "more than %d groups", UPDATES_MAX);
        return;
    }
    vec_push(s->arena, &t->updates, u);
    CheckedUpdate *to = &t->updates.at[t->updates.len - 1];
    for (int i = 0; i < a->args.len; i++) {
        const Ast *arg = a->args.at[i];
        const int k = arg->name ? train_word("lr weight_decay", arg->name) : -1;
        if (k >= 0) {
            numbers = true;
            train_number(s, arg->value, arg->name, 0, HUGE_VAL, k ? &to->decay : &to->rate);
        } else if (arg->name) {
            wrong = true;
            Diag *d = sem_error(s, arg->at, "group has no argument %s", arg->name);
            train_suggest(s, d, arg->name, "lr weight_decay");
        } else if (arg->value->kind != AST_STRING) {
            wrong = true;
            sem_error(s, arg->span, "a pattern of names is a text: \"h.*.attn.*\"");
        } else {
            named = true;
            text_add(&names, "%s%s", names.len ? ", " : "", arg->value->name);
            match(s, arg->value, t->updates.len);
        }
    }
    to->names = names.at;
    if (wrong)
        return;
    if (!named)
        sem_error(s, a->span, "a group names its parameters: group(\"h.*\", lr: 0.5)");
    else if (!numbers)
        sem_error(s, a->span, "a group has lr, a factor of the rate, or weight_decay, or both");
}

void sem_train_except(Sem *s, const Ast *a)
{
    const bool list = a->kind == AST_LIST;
    for (int i = 0; i < (list ? a->items.len : 1); i++) {
        const Ast *item = list ? a->items.at[i] : a;
        if (item->kind == AST_STRING)
            match(s, item, 0);
        else
            sem_error(s, item->span, "a pattern of names is a text: \"h.*.attn.*\"");
    }
}

void sem_train_groups(Sem *s, const Ast *a)
{
    if (a->kind != AST_LIST) {
        group(s, a);
        return;
    }
    for (int i = 0; i < a->items.len; i++)
        group(s, a->items.at[i]);
}
