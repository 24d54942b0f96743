/* fuse_loop.c -- loops: where carries and stacked results live.
 *
 * In: a LOOP node and what its results are used for. Out: views for the arguments and results of
 * the body, then a Step with the body's steps. The idea: nothing is moved between iterations.
 *     place   a carried value has one buffer and is overwritten
 *     slots   if every state of it is kept anyway (a stack of arguments or next values), they lie
 *             in one buffer of trip + 1 slots: iteration i reads slot i and writes slot i + 1
 *     sum     a value that starts at zero and to which the body only adds is never carried: what is
 *             added is added where the sum belongs (the gradient of a shared parameter)
 * A stacked result is written into its slot of the stack, wherever the stack has its place.
 */
#include "pass/fuse.h"

Node *loop_result(const Graph *body, int k)
{
    for (int i = 0; i < body->sinks.len; i++)
        if (body->sinks.at[i].kind == SINK_RESULT && body->sinks.at[i].index == k)
            return body->sinks.at[i].node;
    bug("loop body %s has no result %d", body->name, k);
}

/* ---- sums ----------------------------------------------------------------------------------- */

static bool is_zero(Scope *s, Node *n)
{
    n = node_resolve(&s, n);
    while (node_is_view(n) && s->at[n->id].free)
        n = node_resolve(&s, n->in[0]);
    return n->op == OP_CONST && n->attr.value == 0;
}

/* Is n arg + term + term ...? Collects the terms, the first added first. */
static bool find_terms(Fuser *f, Node *n, const Node *arg, const int *uses, Carry *c)
{
    if (n == arg)
        return true;
    if (n->op != OP_ADD || uses[n->id] != 1)
        return false;
    for (int side = 0; side < 2; side++)
        if (find_terms(f, n->in[side], arg, uses, c)) {
            vec_push(f->cx->scratch, &c->terms, n->in[1 - side]);
            return true;
        }
    return false;
}

/* Terms must have the shape of the sum, not be scalars that are added to each element. */
static bool terms_fit(const Carry *c, const Node *arg)
{
    for (int i = 0; i < c->terms.len; i++)
        if (!type_same(c->terms.at[i]->type, arg->type))
            return false;
    return c->terms.len > 0;
}

static bool plan_sum(Scope *s, Node *n, int k, Carry *c, Info *result)
{
    Fuser *f = s->f;
    const Loop *l = n->attr.loop;
    const Node *arg = l->body->args.at[k];
    int *uses = graph_uses(l->body);
    if (uses[arg->id] != 1 || !is_zero(s, n->in[k]))
        return false;
    /* without an iteration nothing would write it; parts of something are one at least */
    if (!l->part && !dim_le(f->ds, f->one, l->trip))
        return false;
    if (!find_terms(f, loop_result(l->body, k), arg, uses, c) || !terms_fit(c, arg)) {
        c->terms.len = 0;
        return false;
    }
    c->kind = CARRY_SUM;
    bool direct = result && result->readers == 0 && result->dests.len == 1
                  && result->dests.at[0].how == HOW_GRAD;
    if (direct) {
        c->how = HOW_GRAD_LATER;
        c->last = result->dests.at[0].view;
        c->started = result->dests.at[0].started;
        result->dests.len = 0;
    } else {
        c->how = HOW_LATER;
        c->started = NEW(f->cx->arena, bool);
    }
    c->next = c->last;
    return true;
}

/* ---- slots ---------------------------------------------------------------------------------- */

static View shifted(Fuser *f, View v, const Dim *by)
{
    v.base = dim_plus(f, v.base, by);
    return v;
}

static View stacked_view(const View *slot, const Dim *trip, const Dim *step)
{
    View v = *slot;
    v.rank++;
    v.dim[0] = trip;
    v.stride[0] = dim_is_one(trip) ? NULL : step;
    for (int k = 0; k < slot->rank; k++) {
        v.dim[k + 1] = slot->dim[k];
        v.stride[k + 1] = slot->stride[k];
    }
    return v;
}

/* Does stacked result j keep the states of carry k, before (arg) or after an iteration? */
static bool keeps_states(const Loop *l, int k, int j, bool *before)
{
    const Node *elem = loop_result(l->body, l->n_carry + j);
    *before = elem == l->body->args.at[k];
    return *before || elem == loop_result(l->body, k);
}

static bool stack_is_free_to_move(const LoopPlan *p, const Scope *s, int result)
{
    const Node *r = p->result[result];
    return r && s->at[r->id].dests.len == 0;
}

static bool plan_slots(Scope *s, Node *n, int k, LoopPlan *p)
{
    Fuser *f = s->f;
    const Loop *l = n->attr.loop;
    Carry *c = &p->carry[k];
    const Node *arg = l->body->args.at[k];
    bool any = false, before;
    for (int j = 0; j < l->n_stack; j++)
        any |= keeps_states(l, k, j, &before) && stack_is_free_to_move(p, s, l->n_carry + j);
    if (!any || loop_result(l->body, k) == arg)
        return false;
    const Dim *dim[RANK_MAX + 1] = { dim_add(f->ds, l->trip, f->one) };
    for (int i = 0; i < arg->type->rank; i++)
        dim[i + 1] = arg->type->dim[i];
    const Type *t = type_of(f->ds, arg->type->dtype, arg->type->rank + 1, dim);
    Buffer *b = buffer_new(f, text_carry_name(s, n, k), narrow_storage(f, arg, t), n);
    const Dim *step = type_elems(f->ds, arg->type), *end = dim_mul(f->ds, l->trip, step);
    View slot = view_dense(f, b, arg->type), moving = slot;
    moving.loop[s->depth] = step;
    c->kind = CARRY_SLOTS;
    c->arg = l->reverse ? shifted(f, moving, step) : moving;
    c->next = l->reverse ? moving : shifted(f, moving, step);
    c->first = l->reverse ? shifted(f, slot, end) : slot;
    c->last = l->reverse ? slot : shifted(f, slot, end);
    for (int j = 0; j < l->n_stack; j++) {
        if (!keeps_states(l, k, j, &before) || !stack_is_free_to_move(p, s, l->n_carry + j)
            || p->stack_slot[j])
            continue;
        View stack = stacked_view(&slot, l->trip, step);
        p->stack[j].view = before == l->reverse ? shifted(f, stack, step) : stack;
        p->stack_slot[j] = true;
    }
    return true;
}

/* ---- the plan of a loop --------------------------------------------------------------------- */

/* One of the places that a result is given may be its own; the others get copies. */
static bool take_place(Scope *s, Node *r, bool gradient, Dest *out)
{
    Info *x = &s->at[r->id];
    bool alone = x->dests.len == 1 && x->readers == 0;
    for (int i = 0; i < x->dests.len; i++) {
        const Dest *d = &x->dests.at[i];
        if (d->how == HOW_REPLACE || (gradient && alone && d->how == HOW_GRAD)) {
            *out = *d;
            out->lazy = false; /* it is read outside, not in the body */
            for (int k = i; k + 1 < x->dests.len; k++)
                x->dests.at[k] = x->dests.at[k + 1];
            x->dests.len--;
            return true;
        }
    }
    return false;
}

static void finish_result(Scope *s, Node *r, const View *v)
{
    Info *x = &s->at[r->id];
    x->view = *v;
    x->has_view = true;
    for (int i = 0; i < x->dests.len; i++)
        place_copy(s, r, r, &x->dests.at[i]);
}

/* Is input k used by this loop alone, once, and made as a whole? Then it may be made in a place
   that the loop overwrites. */
static bool is_alone(const Scope *s, const Node *loop, int k)
{
    const Node *n = loop->in[k];
    for (int i = 0; i < loop->n_in; i++)
        if (i != k && loop->in[i] == n)
            return false;
    while ((n->op == OP_RESHAPE || n->op == OP_TRANSPOSE) && s->at[n->id].uses == 1)
        n = n->in[0];
    return s->at[n->id].uses == 1 && n->op != OP_CONCAT;
}

static void plan_carry(Scope *s, Node *n, int k, LoopPlan *p)
{
    Fuser *f = s->f;
    Carry *c = &p->carry[k];
    Node *r = p->result[k];
    const Type *t = n->types[k];
    if (!plan_sum(s, n, k, c, r ? &s->at[r->id] : NULL) && !plan_slots(s, n, k, p))
        c->kind = CARRY_PLACE;
    if (c->kind != CARRY_SLOTS && !c->last.buffer) {
        Dest d;
        if (!r || !take_place(s, r, false, &d))
            d.view = view_dense(f,
                                buffer_new(f, text_carry_name(s, n, k),
                                           narrow_storage(f, n->attr.loop->body->args.at[k], t), n),
                                t);
        c->first = c->last = c->arg = c->next = d.view;
    }
    if (r)
        finish_result(s, r, &c->last);
    if (c->kind == CARRY_SUM)
        return;
    Dest first = { .view = c->first };
    if (c->kind == CARRY_SLOTS || is_alone(s, n, k))
        place_give(s, n->in[k], &first);
    else {
        Root *copy = place_copy(s, NULL, n->in[k], &first);
        if (copy)
            vec_push(f->cx->scratch, &p->start, copy);
    }
}

static void plan_stack(Scope *s, Node *n, int j, LoopPlan *p)
{
    const Loop *l = n->attr.loop;
    Node *r = p->result[l->n_carry + j];
    Dest *d = &p->stack[j];
    if (!p->stack_slot[j] && (!r || !take_place(s, r, true, d))) {
        const Type *t = n->types[l->n_carry + j];
        const Node *yield = loop_result(l->body, l->n_carry + j);
        Buffer *b = buffer_new(s->f, text_stack_name(s, n, j), narrow_storage(s->f, yield, t), n);
        *d = (Dest){ .view = view_dense(s->f, b, t) };
    }
    if (r)
        finish_result(s, r, &d->view);
}

void loop_plan(Scope *s, Node *n)
{
    Arena *a = s->f->cx->scratch;
    const Loop *l = n->attr.loop;
    LoopPlan *p = NEW(a, LoopPlan);
    if (s->depth >= DEPTH_MAX)
        bug("loops are nested deeper than %d in %s", DEPTH_MAX, s->g->name);
    p->carry = NEW_ARRAY(a, Carry, l->n_carry + 1);
    p->stack = NEW_ARRAY(a, Dest, l->n_stack + 1);
    p->stack_slot = NEW_ARRAY(a, bool, l->n_stack + 1);
    p->result = NEW_ARRAY(a, Node *, n->n_out + 1);
    if (n->n_out == 1)
        p->result[0] = n;
    for (int id = n->id + 1; id < s->g->nodes.len; id++) {
        Node *r = s->g->nodes.at[id];
        if (s->at[id].live && r->op == OP_RESULT && r->in[0] == n)
            p->result[r->attr.index] = r;
    }
    s->at[n->id].loop = p;
    for (int k = 0; k < l->n_carry; k++)
        plan_carry(s, n, k, p);
    for (int j = 0; j < l->n_stack; j++)
        plan_stack(s, n, j, p);
}

/* ---- the body ------------------------------------------------------------------------------- */

static void place_carry_result(Scope *s, int k, Node *n)
{
    Carry *c = &s->plan->carry[k];
    Dest d = { .view = c->next,
               .how = c->kind == CARRY_SUM ? c->how : HOW_REPLACE,
               .started = c->started };
    if (c->kind == CARRY_SUM) {
        for (int i = 0; i < c->terms.len; i++)
            place_give(s, c->terms.at[i], &d);
        return;
    }
    if (s->temp[k])
        place_copy(s, NULL, n, &d);
    else if (n != s->g->args.at[k] || c->kind == CARRY_SLOTS)
        place_give(s, n, &d);
}

/* The next value of carry k is copied into its place at the end. Where it may be a view of an old
   state, it is copied before that too. */
bool loop_use_temp(Scope *s, int k)
{
    const Node *next = loop_result(s->g, k);
    if (s->temp[k])
        return false;
    s->temp[k] = true;
    if (node_is_view(next) || next->op == OP_ARG)
        s->copy[next->id] = true;
    return true;
}

void loop_place_result(Scope *s, int k, Node *n)
{
    const Loop *l = s->loop;
    if (k < l->n_carry) {
        place_carry_result(s, k, n);
        return;
    }
    int j = k - l->n_carry;
    if (s->plan->stack_slot[j])
        return;
    Dest d = s->plan->stack[j];
    d.view = view_of_iteration(s->f, l, &s->plan->stack[j].view, s->depth - 1);
    place_give(s, n, &d);
}

void loop_finish(Scope *s, Unit *u)
{
    Fuser *f = s->f;
    Node *n = u->node;
    Scope *body = NEW(f->cx->scratch, Scope);
    Step *step = NEW(f->cx->arena, Step);
    step->loop = n->attr.loop;
    step->depth = s->depth;
    step->node = n;
    step->span = n->span;
    step->backward = n->backward;
    *body = (Scope){ .f = f,
                     .g = n->attr.loop->body,
                     .outer = s,
                     .loop = n->attr.loop,
                     .plan = s->at[n->id].loop,
                     .depth = s->depth + 1,
                     .node = n };
    body->steps = &step->body;
    scope_run(body);
    vec_push(f->cx->arena, s->steps, step);
}
