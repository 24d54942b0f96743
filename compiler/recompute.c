/* recompute.c -- which values the backward pass computes again.
 *
 * In: the setting of the train block, and a way to try a choice: keep, fuse, order and plan on the
 * joint graph. Out: the choice, and what it costs.
 *
 * The idea: a price per byte of memory makes one number of bytes and time, and pass/keep_plan.c
 * finds the cheapest choice at that price. A budget is met by the lowest price whose plan fits: not
 * the sum of the bytes saved counts, but the arena as it would be. Prices are tried by halving;
 * then each value that is computed again at that price is kept after all where there is room.
 */
#include "recompute.h"

#include <math.h>
#include <string.h>

enum { HALVINGS = 12, HOLDS_MAX = 24 };
static const double price_low = 0.01, price_high = 1e8;

typedef struct {
    Program *p;
    const RecomputeTrial *trial;
    int64_t room;  /* for the arena */
    int64_t least; /* smallest arena of all that was tried */
    KeepChoice best;
    Tried found; /* by best */
    bool fits;
    AgainList again; /* by best */
} Search;

static const char *bytes_text(Context *cx, double v)
{
    static const char *const unit[] = { "B", "KiB", "MiB", "GiB", "TiB" };
    int u = 0;
    for (; v >= 1024 && u < 4; u++)
        v /= 1024;
    return arena_printf(cx->arena, "%.*f %s",
                        u == 0    ? 0
                        : v < 10  ? 2
                        : v < 100 ? 1
                                  : 0,
                        v, unit[u]);
}

static const char *flops_text(Context *cx, double v)
{
    static const char *const unit[] = { "", "k", "M", "G", "T", "P" };
    int u = 0;
    for (; v >= 1000 && u < 5; u++)
        v /= 1000;
    return arena_printf(cx->arena, "%.*f %sFLOP", u == 0 || v >= 100 ? 0 : 1, v, unit[u]);
}

/* ---- what is there in any case --------------------------------------------------------------- */

static int64_t elems_of(const Program *p, const Type *t, const int64_t *dims)
{
    return dim_eval(type_elems(p->dims, t), dims);
}

/* Bytes of parameters, 16-bit copy, average, gradients, optimizer state and the rows of a batch. */
static int64_t fixed_bytes(const Program *p)
{
    const int64_t *dims = program_training_dims(p);
    const bool narrow = p->narrow == DT_BF16 || p->narrow == DT_F16;
    int64_t params = 0, halves = 0, rows = 0;
    for (int i = 0; i < p->params.len; i++) {
        const int64_t n = elems_of(p, p->params.at[i].stacked, dims);
        params += n;
        halves += p->params.at[i].half ? n : 0;
    }
    const int64_t micro = p->train.accumulate > 0 ? p->train.accumulate : 1;
    for (int i = 0; i < p->inputs.len; i++) {
        const Type *t = p->inputs.at[i].type;
        rows += micro * elems_of(p, t, dims) * dtype_bytes(t->dtype);
    }
    OptimizerState state[PROGRAM_MAX_STATES];
    int64_t reals = (p->train.ema > 0 ? 3 : 2) * params;
    for (int i = program_states(p, dims, state) - 1; i >= 0; i--)
        reals += state[i].elems;
    int64_t kept = halves > 0 ? -2 * halves : narrow ? 2 * params : 0;
    if (halves > 0 && p->train.ema > 0) /* and the average as they are kept */
        kept += params * dtype_bytes(p->real) - 2 * halves;
    return reals * dtype_bytes(p->real) + kept + rows;
}

/* ---- trying ---------------------------------------------------------------------------------- */

/* Tries a choice; it becomes the best if it fits and takes no longer than the best so far. */
static bool try_choice(Search *s, const KeepChoice *choice, bool *better)
{
    AgainList again = { 0 };
    const Tried t = s->trial->train(s->trial->user, choice, &again);
    const bool fits = t.arena <= s->room;
    if (s->least == 0 || t.arena < s->least)
        s->least = t.arena;
    *better = fits && (!s->fits || t.effort.time <= s->found.effort.time);
    if (*better) {
        s->best = *choice;
        s->found = t;
        s->again = again;
        s->fits = true;
    }
    return fits;
}

static bool search_price(Search *s)
{
    const KeepChoice cheap = { .rule = KEEP_CHEAP }, carry = { .rule = KEEP_CARRY };
    bool better;
    if (try_choice(s, &cheap, &better))
        return true;
    double low = log(price_low), high = log(price_high);
    KeepChoice dear = { .rule = KEEP_PRICE, .price = price_high };
    if (!try_choice(s, &dear, &better))
        return try_choice(s, &carry, &better);
    for (int i = 0; i < HALVINGS; i++) {
        const double middle = (low + high) / 2;
        dear.price = exp(middle);
        if (try_choice(s, &dear, &better))
            high = middle;
        else
            low = middle;
    }
    return true;
}

static double again_time(const Program *p, const Again *a)
{
    const int64_t *dims = program_training_dims(p);
    return op_time(a->value, dims) * (double)dim_eval(a->trip, dims);
}

/* What was computed again in passing is kept where there is room; the dearest first. */
static void hold_values(Search *s)
{
    Arena *a = s->p->cx->arena;
    const AgainList all = s->again;
    int most = 0;
    for (int i = 0; i < all.len; i++)
        most = all.at[i].number > most ? all.at[i].number : most;
    bool *hold = NEW_ARRAY(a, bool, most + 1), *tried = NEW_ARRAY(a, bool, all.len + 1);
    for (int n = 0; n < HOLDS_MAX && s->best.rule == KEEP_PRICE; n++) {
        int next = -1;
        for (int i = 0; i < all.len; i++)
            if (!tried[i] && !all.at[i].light
                && (next < 0 || again_time(s->p, &all.at[i]) > again_time(s->p, &all.at[next])))
                next = i;
        if (next < 0)
            return;
        tried[next] = true;
        hold[all.at[next].number] = true;
        KeepChoice choice = s->best;
        bool better;
        choice.hold = hold;
        try_choice(s, &choice, &better);
        if (!better)
            hold[all.at[next].number] = false;
    }
}

/* ---- the report ------------------------------------------------------------------------------ */

/* FLOPs of n and of what is computed again on the way to it and belongs to no value before. */
static double chain_flops(const Program *p, const Node *n, const AgainList *again, bool *counted)
{
    const int64_t *dims = program_training_dims(p);
    for (int i = 0; i < again->len; i++) {
        const Again *a = &again->at[i];
        if (a->value != n || counted[i])
            continue;
        counted[i] = true;
        double sum = op_flops(n, dims) * (double)dim_eval(a->trip, dims);
        for (int k = 0; k < n->n_in; k++)
            sum += chain_flops(p, n->in[k], again, counted);
        return sum;
    }
    const OpClass c = op_row(n->op)->class;
    return n->op == OP_RESULT || (c == CLASS_MOVE && n->n_in == 1)
               ? chain_flops(p, n->in[0], again, counted)
               : 0;
}

static void list_values(Program *p, const AgainList *again)
{
    Arena *a = p->cx->arena;
    const int64_t *dims = program_training_dims(p);
    bool *counted = NEW_ARRAY(a, bool, again->len + 1);
    for (int i = 0; i < again->len; i++) {
        const Again *x = &again->at[i];
        if (!x->wanted)
            continue;
        const double flops = chain_flops(p, x->value, again, counted);
        RecomputedValue v = { .name = x->name,
                              .op = op_row(x->value->op)->name,
                              .span = x->value->span,
                              .flops = flops };
        for (int k = 0; k < x->value->n_out; k++)
            v.bytes += op_bytes(x->value, k, dims) * (double)dim_eval(x->trip, dims);
        p->recompute.flops += flops;
        vec_push(a, &p->recompute.values, v);
    }
}

static const char *setting_text(const Program *p)
{
    static const char *const words[] = { "auto", "none", "blocks" };
    const Recompute *r = &p->recompute;
    return r->kind == RECOMPUTE_BUDGET
               ? arena_printf(p->cx->arena, "budget(%s)", bytes_text(p->cx, (double)r->budget))
               : words[r->kind];
}

/* One sentence for the emitted program; NULL: nothing was asked for. */
static const char *summary_of(const Program *p)
{
    const Recompute *r = &p->recompute;
    const int n = r->values.len;
    if (r->kind == RECOMPUTE_AUTO)
        return NULL;
    return arena_printf(p->cx->arena,
                        "%s: %d value%s of loops computed again, %s more of %s in a micro-step, "
                        "predicted time %+.1f %% against auto",
                        setting_text(p), n, n == 1 ? "" : "s", flops_text(p->cx, r->flops),
                        flops_text(p->cx, r->step_flops), 100 * r->slower);
}

/* ---- the choice ------------------------------------------------------------------------------ */

static void report_budget(const Recompute *r, Context *cx, int64_t least)
{
    const char *budget = bytes_text(cx, (double)r->budget);
    Diag *d = r->budget <= r->fixed
                  ? diag_error(cx, r->span,
                               "a budget of %s is not enough: parameters, gradients, optimizer and "
                               "batch need %s",
                               budget, bytes_text(cx, (double)r->fixed))
                  : diag_error(cx, r->span,
                               "a budget of %s is met by no choice of what is computed again",
                               budget);
    diag_hint(d, "the least that can be reached is %s", bytes_text(cx, (double)least));
}

/* A budget is of the sizes that the train block gives. */
static bool sizes_known(const Program *p)
{
    for (int i = 0; i < dims_count(p->dims); i++) {
        const Symbol *s = dims_at(p->dims, i);
        if (s->kind != SYM_DIM || s->value > 0)
            continue;
        Diag *d = diag_error(p->cx, p->recompute.span, "a budget needs the size of %s in training",
                             s->name);
        diag_hint(d, "write dims = (%s: 128) into the train block", s->name);
        return false;
    }
    return true;
}

static bool meet_budget(Search *s)
{
    Recompute *r = &s->p->recompute;
    const int64_t entries = s->trial->others(s->trial->user);
    const int64_t update = program_update_bytes(s->p, program_training_dims(s->p));
    const int64_t others = entries > update ? entries : update;
    if (!sizes_known(s->p))
        return false;
    s->room = r->budget - r->fixed;
    const bool found = search_price(s);
    const int64_t least = s->least > others ? s->least : others;
    if (diag_count(s->p->cx) > 0)
        return false;
    if (!found || others > s->room) {
        report_budget(r, s->p->cx, r->fixed + least);
        return false;
    }
    hold_values(s);
    r->arena = s->found.arena > others ? s->found.arena : others;
    return true;
}

static void compare(Search *s, bool report)
{
    Recompute *r = &s->p->recompute;
    const KeepChoice cheap = { .rule = KEEP_CHEAP }, all = { .rule = KEEP_ALL };
    const Tried plain = s->trial->train(s->trial->user, &cheap, NULL);
    r->step_flops = plain.effort.flops;
    r->slower = s->found.effort.time / plain.effort.time - 1;
    r->arena_auto = plain.arena;
    if (report)
        r->arena_none = s->trial->train(s->trial->user, &all, NULL).arena;
}

/* What blocks would come to, for the hint of a program that does not fit. */
static void try_blocks(Program *p, const RecomputeTrial *trial)
{
    const KeepChoice carry = { .rule = KEEP_CARRY };
    const Graph *g = p->train_graph;
    bool loops = false;
    for (int i = 0; i < g->nodes.len; i++)
        loops = loops || g->nodes.at[i]->op == OP_LOOP;
    if (loops && p->recompute.kind != RECOMPUTE_BLOCKS)
        p->recompute.arena_blocks = trial->train(trial->user, &carry, NULL).arena;
}

bool recompute_choose(Program *p, const RecomputeTrial *trial, bool report, KeepChoice *choice)
{
    static const KeepRule rules[] = { KEEP_CHEAP, KEEP_ALL, KEEP_CARRY, KEEP_PRICE };
    Recompute *r = &p->recompute;
    Search s = { .p = p, .trial = trial, .room = INT64_MAX, .best.rule = rules[r->kind] };
    bool better;
    *choice = s.best;
    if (p->train_graph)
        try_blocks(p, trial);
    if (!p->train_graph || (!report && r->kind == RECOMPUTE_AUTO))
        return true;
    r->fixed = fixed_bytes(p);
    if (r->kind == RECOMPUTE_BUDGET ? !meet_budget(&s) : !try_choice(&s, choice, &better))
        return false;
    if (r->kind != RECOMPUTE_BUDGET)
        r->arena = s.found.arena;
    compare(&s, report);
    list_values(p, &s.again);
    r->summary = summary_of(p);
    *choice = s.best;
    return diag_count(p->cx) == 0;
}

/* ---- to read --------------------------------------------------------------------------------- */

static const char *sizes_text(const Program *p)
{
    bool *set = NEW_ARRAY(p->cx->scratch, bool, dims_count(p->dims) + 1);
    for (int i = 0; i < dims_count(p->dims); i++)
        set[i] = program_dim_is_set(dims_at(p->dims, i));
    const char *text = program_sizes_text(p, program_training_dims(p), set);
    return *text ? text : "any size";
}

static void explain_totals(Text *out, const Program *p)
{
    Context *cx = p->cx;
    const Recompute *r = &p->recompute;
    text_add(out,
             "in all %s for each micro-step of %s: %.2f %%, most of it in passing where the values "
             "are read\n",
             flops_text(cx, r->flops), flops_text(cx, r->step_flops),
             100 * r->flops / r->step_flops);
    text_add(out, "predicted time of a micro-step: %+.1f %% against recompute = auto\n",
             100 * r->slower);
    text_add(out, "memory: %s, of which %s arena (auto %s, none %s)\n",
             bytes_text(cx, (double)(r->fixed + r->arena)), bytes_text(cx, (double)r->arena),
             bytes_text(cx, (double)r->arena_auto), bytes_text(cx, (double)r->arena_none));
    if (r->kind == RECOMPUTE_BUDGET && r->budget - r->fixed >= r->arena_auto)
        text_put(out, "the budget is no limit: recompute = auto meets it\n");
}

void recompute_explain(Text *out, const Program *p)
{
    Context *cx = p->cx;
    const Recompute *r = &p->recompute;
    text_add(out, "recompute = %s, at %s\n", setting_text(p), sizes_text(p));
    if (!p->train_graph) {
        text_put(out, "the model has no loss: nothing is computed backward\n");
        return;
    }
    if (r->values.len)
        text_put(out, "\n  value                     line                       kept, it would take"
                      "   computing it takes\n");
    for (int i = 0; i < r->values.len; i++) {
        const RecomputedValue *v = &r->values.at[i];
        text_add(out, "  %-25s %-26s %19s  %12s %5.2f %%\n",
                 v->name ? v->name : arena_printf(cx->arena, "(%s)", v->op),
                 v->span.file ? source_where(cx, v->span) : "", bytes_text(cx, v->bytes),
                 flops_text(cx, v->flops), 100 * v->flops / r->step_flops);
    }
    text_put(out, r->values.len ? "\n" : "nothing is computed again in loops\n");
    explain_totals(out, p);
}
