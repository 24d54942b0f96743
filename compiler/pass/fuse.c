/* fuse.c -- tensor IR to kernel IR.
 *
 * In: a graph after expand, simplify, grad and keep. Out: a Routine: buffers, and steps in a valid
 * order, each a kernel applied to operands, or a loop over steps.
 *
 *     %m = sum %x              each value is stored, or is a view of a stored one, or is computed
 *     %y = sub %x, %b    ->    again where it is used. k1: m[B] = sum over C of x;
 *     %z = exp %y              y[B,C] = x - m; z[B,C] = exp(y): one kernel with two phases
 *
 * The way of a graph: fuse_roots.c says what is stored, fuse_place.c where, fuse_group.c makes
 * units and merges them, fuse_map.c, fuse_call.c and fuse_loop.c turn each unit into a step. A try
 * may find out that a value has to be stored after all; then the scope starts again, knowing that.
 *
 * Needs: the ops that expand leaves. With fuse = false each op is a kernel of its own.
 */
#include "pass/fuse.h"

enum { TRIES_MAX = 200 };

/* ---- steps ---------------------------------------------------------------------------------- */

Kernel *step_add(Scope *s, Kernel *k, Operand *operands, const Node *n, bool backward)
{
    Fuser *f = s->f;
    Arena *a = f->cx->arena;
    Step *step = NEW(a, Step);
    step->operands = NEW_ARRAY(a, Operand, k->args.len + 1);
    for (int i = 0; i < k->args.len; i++) {
        step->operands[i] = operands[i];
        bool alone = true;
        for (int j = 0; j < k->args.len; j++)
            alone = alone && (j == i || operands[j].buffer != operands[i].buffer);
        k->args.at[i].exclusive = alone;
    }
    k->span = n->span;
    step->kernel = kernel_intern(f->kp, k);
    step->depth = s->depth;
    step->node = n;
    step->span = n->span;
    step->backward = backward;
    vec_push(a, &s->steps[0], step);
    return step->kernel;
}

static void copy_as(Scope *s, Node *n, const Type *t, View *to)
{
    MapFailure why;
    Dest d = { .how = HOW_REPLACE };
    const char *name = intern_printf(s->f->cx, "%s_dense", text_buffer_name(s, n));
    d.view = view_dense(s->f, buffer_new(s->f, name, t, n), n->type);
    Root *r = root_new(s, n, ROOT_COPY);
    vec_push(s->f->cx->scratch, &r->dests, d);
    Unit *u = NEW(s->f->cx->scratch, Unit);
    u->kind = UNIT_MAP;
    u->backward = n->backward;
    vec_push(s->f->cx->scratch, &u->roots, r);
    r->unit = u;
    r->token = -1;
    if (!map_build(s, u, &why))
        bug("%s %%%d of %s cannot be copied", op_row(n->op)->name, n->id, s->g->name);
    map_finish(s, u);
    *to = d.view;
}

void copy_dense(Scope *s, Node *n, View *to)
{
    copy_as(s, n, narrow_storage(s->f, n, n->type), to);
}

void copy_wide(Scope *s, Node *n, View *to) { copy_as(s, n, n->type, to); }

/* ---- one try -------------------------------------------------------------------------------- */

/* The additions of a sum that is kept where it is summed are nobody's work. */
static void forget_sum(Scope *s, Node *n, const Node *arg, const Carry *c)
{
    s->at[n->id].live = false;
    if (n == arg)
        return;
    for (int i = 0; i < n->n_in; i++) {
        bool term = false;
        for (int j = 0; j < c->terms.len; j++)
            term = term || c->terms.at[j] == n->in[i];
        if (!term)
            forget_sum(s, n->in[i], arg, c);
    }
}

static void begin_try(Scope *s)
{
    Arena *a = s->f->cx->scratch;
    bool *live = graph_live(s->g);
    s->at = NEW_ARRAY(a, Info, s->g->nodes.len + 1);
    s->units.len = s->roots.len = 0;
    s->n_tokens = s->max_tokens = 0;
    for (int id = 0; id < s->g->nodes.len; id++) {
        s->at[id].live = live[id];
        s->at[id].token = -1;
    }
    for (int k = 0; s->plan && k < s->loop->n_carry; k++)
        if (s->plan->carry[k].kind == CARRY_SUM)
            forget_sum(s, loop_result(s->g, k), s->g->args.at[k], &s->plan->carry[k]);
    text_hints(s);
    place_leaves(s);
    roots_choose(s);
    place_values(s);
    group_units(s);
}

/* Remembers what would help; false: nothing would. */
static bool learn(Scope *s, const MapFailure *why)
{
    if (why->temp >= 0 && loop_use_temp(s, why->temp))
        return true;
    if (why->copy && why->copy->graph == s->g && !s->copy[why->copy->id]) {
        s->copy[why->copy->id] = true;
        return true;
    }
    if (why->force && why->force->graph == s->g && !s->force[why->force->id]) {
        s->force[why->force->id] = true;
        return true;
    }
    return false;
}

static bool build_all(Scope *s)
{
    for (int i = 0; i < s->units.len; i++) {
        Unit *u = s->units.at[i];
        MapFailure why;
        if (u->dead || u->kind != UNIT_MAP || map_build(s, u, &why))
            continue;
        if (!learn(s, &why)) {
            const Node *n = u->roots.at[0]->node;
            bug("no kernel for %s %%%d of %s%s%s", op_row(n->op)->name, n->id, s->g->name,
                n->span.file ? " at " : "", n->span.file ? source_where(s->f->cx, n->span) : "");
        }
        return false;
    }
    return true;
}

void scope_run(Scope *s)
{
    Arena *a = s->f->cx->scratch;
    int n = s->g->nodes.len + 1;
    s->force = NEW_ARRAY(a, bool, n);
    s->copy = NEW_ARRAY(a, bool, n);
    s->temp = NEW_ARRAY(a, bool, s->loop ? s->loop->n_carry + 1 : 1);
    for (int i = 0;; i++) {
        if (i == TRIES_MAX)
            bug("fuse finds no kernels for %s", s->g->name);
        begin_try(s);
        if (group_check(s) && build_all(s))
            break;
    }
    if (s->f->fuse)
        group_merge(s);
    for (Unit *u; (u = group_next(s)) != NULL;) {
        if (u->kind == UNIT_LOOP)
            loop_finish(s, u);
        else if (u->kind == UNIT_CALL)
            call_finish(s, u);
        else
            map_finish(s, u);
    }
}

/* ---- the pass ------------------------------------------------------------------------------- */

static void start_tables(Fuser *f, const Graph *g)
{
    Arena *a = f->cx->scratch;
    int n_params = f->p->params.len, n_in = f->p->inputs.len;
    int n_out = f->p->outputs.len; /* and the results of a graph from text */
    for (int i = 0; i < g->sinks.len; i++)
        if (g->sinks.at[i].kind == SINK_RESULT)
            n_out += g->sinks.at[i].index + 1;
    n_in = g->args.len > n_in ? g->args.len : n_in;
    f->param = NEW_ARRAY(a, Buffer *, n_params + 1);
    f->param16 = NEW_ARRAY(a, Buffer *, n_params + 1);
    f->grad = NEW_ARRAY(a, Buffer *, n_params + 1);
    f->input = NEW_ARRAY(a, Buffer *, n_in + 1);
    f->output = NEW_ARRAY(a, Buffer *, n_out + 1);
    f->sum = NEW_ARRAY(a, Buffer *, f->p->means.len + 1);
    f->count = NEW_ARRAY(a, Buffer *, f->p->means.len + 1);
    f->started = NEW_ARRAY(a, bool *, n_params + 1);
    f->contributions = NEW_ARRAY(a, int, n_params + 1);
    for (int i = 0; i < n_params; i++)
        f->started[i] = NEW(a, bool);
    for (int i = 0; i < g->sinks.len; i++)
        if (g->sinks.at[i].kind == SINK_GRAD)
            f->contributions[g->sinks.at[i].index]++;
    f->values = program_training_dims(f->p);
}

Routine *pass_fuse(KernelProgram *kp, Graph *g, const char *name, bool fuse)
{
    Context *cx = kp->program->cx;
    Fuser f = { .kp = kp, .p = kp->program, .ds = kp->program->dims, .cx = cx, .fuse = fuse };
    f.attempt = arena_new();
    f.r = NEW(cx->arena, Routine);
    f.names = map_new(cx->scratch);
    f.one = dim_const(f.ds, 1);
    g = roots_prepare(&f, g);
    f.r->graph = g;
    f.r->name = name;
    start_tables(&f, g);
    narrow_find(&f, g);
    Scope *s = NEW(cx->scratch, Scope);
    s->f = &f;
    s->g = g;
    s->steps = &f.r->steps;
    scope_run(s);
    arena_free(f.attempt);
    return f.r;
}
