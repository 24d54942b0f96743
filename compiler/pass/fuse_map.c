/* fuse_map.c -- the kernel of a unit: its index space, its values, what it stores.
 *
 * In: a unit (roots with destinations). Out: a MAP kernel and its operands, or why there is none.
 * The idea: choose the axes that the roots agree on and build; where an index has to be taken
 * apart, split that axis and build again. A dear value that a later phase reads waits in memory.
 */
#include "pass/fuse.h"

enum { TRIES_MAX = 16, COST_DEAR = 8 };

/* How a dear value waits for a later phase: not at all, where it would lie if others read it, or,
   from KEEP_IN on, in the place of root kept - KEEP_IN, which is written after that. */
typedef enum { KEEP_NOT, KEEP_OWN, KEEP_IN } Keep;

typedef struct {
    int n;
    const Dim *axis[AXES_MAX];
    const Dim *row;
} Space;

/* ---- the index space ------------------------------------------------------------------------ */

static void space_from(Space *sp, int n, const Dim *const *dim)
{
    sp->n = 0;
    for (int i = 0; i < n && sp->n < AXES_MAX; i++)
        if (!dim_is_one(dim[i]))
            sp->axis[sp->n++] = dim[i];
}

/* The shape whose elements the root runs over, one by one. */
static const Type *root_shape(const Root *r)
{
    return r->kind == ROOT_TOTAL ? r->node->in[0]->type : r->node->type;
}

/* Leading dims of t with the given product; -1 = none. */
static int prefix_with(Fuser *f, const Type *t, const Dim *product)
{
    for (int i = 0; i <= t->rank; i++)
        if (dim_same(dim_product(f, i, t->dim), product))
            return i;
    return -1;
}

/* Two sizes without a reduction: one value per row beside one per element. */
static bool space_of_two(Fuser *f, const Root *small, const Root *big, Space *sp)
{
    const Type *t = root_shape(big);
    int cut = prefix_with(f, t, small->outer);
    if (cut < 0)
        return false;
    space_from(sp, cut, t->dim);
    sp->row = dim_product(f, t->rank - cut, t->dim + cut);
    return true;
}

static bool choose_space(Fuser *f, const Unit *u, Space *sp)
{
    const Root *best = NULL, *other = NULL;
    *sp = (Space){ 0 };
    for (int i = 0; i < u->roots.len; i++) {
        const Root *r = u->roots.at[i];
        if (r->row) {
            const Type *in = r->node->in[0]->type;
            if (r->kind == ROOT_ROW)
                space_from(sp, r->node->type->rank, r->node->type->dim);
            else
                space_from(sp, r->node->attr.n_axes, in->dim);
            sp->row = r->row;
            return sp->n < AXES_MAX;
        }
        if (!best || root_shape(r)->rank > root_shape(best)->rank)
            best = r;
    }
    for (int i = 0; i < u->roots.len; i++)
        if (!dim_same(u->roots.at[i]->outer, best->outer))
            other = u->roots.at[i];
    if (other)
        return space_of_two(f, other, best, sp) || space_of_two(f, best, other, sp);
    space_from(sp, root_shape(best)->rank, root_shape(best)->dim);
    return true;
}

static bool split_axis(Space *sp, const Split *split)
{
    if (!split->n || split->axis >= sp->n || sp->n + split->n - 1 + (sp->row != NULL) > AXES_MAX)
        return false;
    for (int i = sp->n - 1; i > split->axis; i--)
        sp->axis[i + split->n - 1] = sp->axis[i];
    for (int i = 0; i < split->n; i++)
        sp->axis[split->axis + i] = split->dim[i];
    sp->n += split->n - 1;
    return true;
}

/* Which elements root r has in this space: one per row, or one per element. */
bool map_root_coords(MapBuild *m, const Root *r, Coords *c)
{
    const Dim *rows = dim_product(m->f, m->n_outer, m->size);
    const Dim *all = m->has_row ? dim_mul(m->f->ds, rows, m->size[m->n_outer]) : rows;
    if (r->row) {
        bool fits = m->has_row ? dim_same(r->row, m->size[m->n_outer]) : dim_is_one(r->row);
        *c = m->row;
        return fits && dim_same(r->outer, rows);
    }
    bool elem = dim_same(r->outer, all);
    *c = elem ? m->elem : m->row;
    return elem || dim_same(r->outer, rows);
}

static void map_begin(MapBuild *m, Scope *s, Unit *u, const Space *sp, MapFailure *why, int *kept)
{
    Arena *a = s->f->attempt;
    arena_reset(a);
    *m = (MapBuild){ .s = s, .f = s->f, .u = u, .why = why, .kept = kept, .n_outer = sp->n };
    *why = (MapFailure){ .temp = -1 };
    m->k = NEW(a, Kernel);
    m->k->kind = KERNEL_MAP;
    m->has_row = sp->row && !dim_is_one(sp->row);
    for (int i = 0; i < sp->n; i++) {
        m->size[i] = sp->axis[i];
        m->row.dim[i] = sp->axis[i];
        m->row.at[i] = form_axis(s->f, i);
    }
    m->row.rank = sp->n;
    m->elem = m->row;
    if (m->has_row) {
        m->size[sp->n] = sp->row;
        m->elem.dim[sp->n] = sp->row;
        m->elem.at[sp->n] = form_axis(s->f, sp->n);
        m->elem.rank++;
    }
    m->value = NEW_ARRAY(a, int, u->roots.len + 1);
    m->busy = NEW_ARRAY(a, bool, u->roots.len + 1);
    for (int i = 0; i < u->roots.len; i++)
        m->value[i] = -1;
}

/* ---- effects -------------------------------------------------------------------------------- */

static bool add_effect(MapBuild *m, Root *r, int value, Dest *d)
{
    Effect e = { .value = value, .phase = m->k->values.at[value].phase };
    Coords c = { 0 };
    const Type *t = r->node->type;
    View v = d->view;
    e.kind = r->kind == ROOT_COLUMN && m->has_row              ? EFFECT_COLUMN
             : r->kind == ROOT_COLUMN || r->kind == ROOT_TOTAL ? EFFECT_TOTAL
                                                               : EFFECT_STORE;
    if (r->kind == ROOT_COLUMN) {
        const Type *line = type_of(m->f->ds, t->dtype, 1, &r->row);
        if (!view_reshape(m->f, &d->view, line, &v))
            return false;
        c.rank = m->has_row;
        c.dim[0] = r->row;
        c.at[0] = form_axis(m->f, m->n_outer);
    } else if (r->kind != ROOT_TOTAL && !map_root_coords(m, r, &c)) {
        return false;
    }
    if (!map_access(m, r->node, &v, &c, &e.access)) {
        m->why->copy = NULL;
        return false;
    }
    m->k->args.at[e.access.arg].written = true;
    vec_push(m->f->attempt, &m->k->effects, e);
    vec_push(m->f->attempt, &m->target, d);
    vec_push(m->f->attempt, &m->owner, r);
    return true;
}

static bool same_access(const Access *a, const Access *b)
{
    bool same = a->arg == b->arg && dim_equal(a->offset, b->offset) && a->index < 0 && b->index < 0;
    for (int i = 0; same && i < AXES_MAX; i++)
        same = dim_equal(a->stride[i], b->stride[i]);
    return same;
}

/* Contributions to one place must come in order, element by element. */
static bool adds_in_order(const MapBuild *m)
{
    for (int j = 0; j < m->k->effects.len; j++)
        for (int i = 0; i < j; i++) {
            const Effect *x = &m->k->effects.at[i], *y = &m->k->effects.at[j];
            How a = m->target.at[i]->how, b = m->target.at[j]->how;
            if (m->operands.at[x->access.arg].buffer != m->operands.at[y->access.arg].buffer
                || (a == HOW_REPLACE && b == HOW_REPLACE) || (a == HOW_ADD && b == HOW_ADD))
                continue;
            if (x->kind != y->kind || x->phase > y->phase || !same_access(&x->access, &y->access))
                return false;
        }
    return true;
}

/* The place where root i is stored, or NULL. */
static Dest *plain_dest(const MapBuild *m, int i)
{
    const Root *r = m->u->roots.at[i];
    for (int j = 0; j < r->dests.len; j++) {
        Dest *d = &r->dests.at[j];
        if (d->how == HOW_REPLACE && (!d->lazy || root_is_read(m->s, r)))
            return d;
    }
    return NULL;
}

static bool add_effects(MapBuild *m)
{
    for (int i = 0; i < m->u->roots.len; i++) {
        Root *r = m->u->roots.at[i];
        bool read = root_is_read(m->s, r) || m->kept[i] == KEEP_OWN;
        if (m->kept[i] >= KEEP_IN
            && !add_effect(m, r, m->value[i], plain_dest(m, m->kept[i] - KEEP_IN)))
            return false;
        for (int j = 0; j < r->dests.len; j++) {
            Dest *d = &r->dests.at[j];
            if ((!d->lazy || read) && !add_effect(m, r, m->value[i], d))
                return false;
        }
    }
    return adds_in_order(m);
}

/* ---- what a kernel overwrites while it reads it ---------------------------------------------- */

/* The last phase in which each value is computed. */
static int *last_phases(MapBuild *m)
{
    Kernel *k = m->k;
    int *last = NEW_ARRAY(m->f->attempt, int, k->values.len + 1);
    for (int i = 0; i < k->effects.len; i++) {
        const Effect *e = &k->effects.at[i];
        last[e->value] = e->phase > last[e->value] ? e->phase : last[e->value];
    }
    for (int i = k->values.len - 1; i >= 0; i--) {
        const Value *v = &k->values.at[i];
        int used = v->kind == VAL_REDUCE ? v->phase - 1 : last[i];
        const int in[6] = { v->in[0],
                            v->in[1],
                            v->in[2],
                            v->in[3],
                            v->kind == VAL_LOAD ? v->access.index : -1,
                            v->kind == VAL_LOAD ? v->access.guard : -1 };
        for (int j = 0; j < 6; j++)
            if ((j >= v->n_in && j < 4) || in[j] < 0)
                continue;
            else if (last[in[j]] < used)
                last[in[j]] = used;
    }
    return last;
}

/* An old state may be read where the new one is stored, but not after that. */
static bool overwrites_safely(MapBuild *m, const int *last)
{
    const Scope *s = m->s;
    for (int i = 0; i < m->k->effects.len; i++) {
        const Effect *e = &m->k->effects.at[i];
        const Buffer *b = m->operands.at[e->access.arg].buffer;
        for (int j = 0; j < m->k->values.len; j++) {
            const Value *v = &m->k->values.at[j];
            if (v->kind != VAL_LOAD || m->operands.at[v->access.arg].buffer != b
                || v->access.arg != e->access.arg)
                continue;
            if (same_access(&v->access, &e->access) && last[j] <= e->phase)
                continue;
            for (int k = 0; s->plan && k < s->loop->n_carry; k++)
                if (s->plan->carry[k].arg.buffer == b)
                    m->why->temp = k;
            return false;
        }
    }
    return true;
}

/* ---- values that later phases read again ----------------------------------------------------- */

/* Which values differ from element to element of a row. */
static bool *along_row(const MapBuild *m)
{
    const Kernel *k = m->k;
    bool *elem = NEW_ARRAY(m->f->attempt, bool, k->values.len + 1);
    for (int i = 0; i < k->values.len; i++) {
        const Value *v = &k->values.at[i];
        for (int j = 0; j < v->n_in && v->kind != VAL_REDUCE; j++)
            elem[i] |= elem[v->in[j]];
        if (v->kind == VAL_AXIS)
            elem[i] = v->axis == m->n_outer;
        else if (v->kind == VAL_DRAW)
            elem[i] |= v->sample.stride[m->n_outer] || v->element.stride[m->n_outer];
        else if (v->kind == VAL_LOAD)
            elem[i] = v->access.stride[m->n_outer]
                      || (v->access.index >= 0 && elem[v->access.index])
                      || (v->access.guard >= 0 && elem[v->access.guard]);
    }
    return elem;
}

/* What it takes to compute value i again in another phase. */
static int cost_again(const Kernel *k, const bool *elem, int i)
{
    const Value *v = &k->values.at[i];
    if (!elem[i])
        return 0;
    int cost = v->kind == VAL_POINT ? op_row(v->op)->cost : v->kind == VAL_DRAW ? COST_DEAR : 0;
    for (int j = 0; j < v->n_in && cost < COST_DEAR; j++)
        cost += cost_again(k, elem, v->in[j]);
    return cost;
}

static bool is_loaded(const MapBuild *m, const Buffer *b)
{
    for (int i = 0; i < m->k->values.len; i++) {
        const Value *v = &m->k->values.at[i];
        if (v->kind == VAL_LOAD && m->operands.at[v->access.arg].buffer == b)
            return true;
    }
    return false;
}

static bool is_elem_root(MapBuild *m, int i)
{
    Coords c;
    const Root *r = m->u->roots.at[i];
    return r->kind == ROOT_POINT && map_root_coords(m, r, &c) && c.rank == m->elem.rank;
}

/* A place for value i until its last use: where another root is written then or later. */
static int place_to_keep(MapBuild *m, int i, const int *last)
{
    const Value *v = &m->k->values.at[m->value[i]];
    for (int j = 0; j < m->u->roots.len; j++) {
        const Value *w = &m->k->values.at[m->value[j]];
        const Dest *d = j != i && is_elem_root(m, j) ? plain_dest(m, j) : NULL;
        for (int k = 0; k < m->u->roots.len; k++)
            if (m->kept[k] == KEEP_IN + j)
                d = NULL; /* taken */
        if (d && w->phase >= last[m->value[i]] && d->view.buffer->dtype == v->dtype
            && !is_loaded(m, d->view.buffer))
            return KEEP_IN + j;
    }
    return KEEP_OWN;
}

/* Marks the dear values that are not stored and that later phases read: true if there are any. */
static bool keep_dear(MapBuild *m, const int *last)
{
    bool any = false, *elem = along_row(m);
    for (int i = 0; i < m->u->roots.len; i++) {
        int v = m->value[i];
        if (!m->has_row || m->kept[i] || !is_elem_root(m, i) || plain_dest(m, i)
            || last[v] <= m->k->values.at[v].phase || cost_again(m->k, elem, v) < COST_DEAR)
            continue;
        m->kept[i] = place_to_keep(m, i, last);
        any = true;
    }
    return any;
}

/* ---- building ------------------------------------------------------------------------------- */

static bool attempt(MapBuild *m)
{
    for (int i = 0; i < m->u->roots.len; i++) {
        Coords c;
        Root *r = m->u->roots.at[i];
        if (!map_root_coords(m, r, &c) || value_of_root(m, i) < 0)
            return false;
    }
    return add_effects(m);
}

static bool try_spaces(MapBuild *m, Scope *s, Unit *u, Space *sp, MapFailure *why, int *kept)
{
    for (int i = 0; i < TRIES_MAX; i++) {
        map_begin(m, s, u, sp, why, kept);
        if (attempt(m))
            return true;
        if (!split_axis(sp, &m->split))
            return false;
    }
    return false;
}

/* A kernel that does very much at once is hard to read and keeps too many streams open. */
static bool is_too_wide(const MapBuild *m)
{
    const Kernel *k = m->k;
    for (int phase = 0, left = k->effects.len; left > 0; phase++) {
        int stores = 0, reduces = 0;
        for (int i = 0; i < k->effects.len; i++)
            stores += k->effects.at[i].phase == phase;
        for (int i = 0; i < k->values.len; i++)
            reduces += k->values.at[i].kind == VAL_REDUCE && k->values.at[i].phase == phase + 1;
        if (stores > PHASE_MAX || reduces > PHASE_MAX)
            return true;
        left -= stores;
    }
    return false;
}

/* Rows whose elements lie far apart are walked side by side (emit/c_map.c), unless the kernel also
   sums over all of them: that does not pay. */
static bool sums_across(const MapBuild *m)
{
    bool across = false, total = false;
    for (int i = 0; m->has_row && m->n_outer > 0 && i < m->k->values.len; i++) {
        const Value *v = &m->k->values.at[i];
        const Dim *along = v->access.stride[m->n_outer], *aside = v->access.stride[m->n_outer - 1];
        across |= v->kind == VAL_LOAD && along && !dim_is_one(along) && aside && dim_is_one(aside);
    }
    for (int i = 0; i < m->k->effects.len; i++)
        total |= m->k->effects.at[i].kind == EFFECT_TOTAL;
    return across && total;
}

/* What was tried becomes the unit's kernel. */
static void keep_kernel(const MapBuild *m, Unit *u)
{
    Arena *a = m->f->cx->scratch;
    u->kernel = kernel_copy(a, m->k);
    u->operands = (Operands){ 0 };
    for (int i = 0; i < m->operands.len; i++)
        vec_push(a, &u->operands, m->operands.at[i]);
    u->target = NEW_ARRAY(a, Dest *, m->target.len + 1);
    u->owner = NEW_ARRAY(a, Root *, m->target.len + 1);
    for (int i = 0; i < m->target.len; i++) {
        u->target[i] = m->target.at[i];
        u->owner[i] = m->owner.at[i];
    }
}

bool map_build(Scope *s, Unit *u, MapFailure *why)
{
    Space sp;
    MapBuild m;
    int *kept = NEW_ARRAY(s->f->cx->scratch, int, u->roots.len + 1);
    *why = (MapFailure){ .temp = -1 };
    if (!choose_space(s->f, u, &sp))
        return false;
    for (;;) {
        if (!try_spaces(&m, s, u, &sp, why, kept))
            return false;
        const int *last = last_phases(&m);
        if (!overwrites_safely(&m, last))
            return false;
        if (!keep_dear(&m, last))
            break;
    }
    if (u->roots.len > 1 && (is_too_wide(&m) || sums_across(&m)))
        return false;
    map_tidy(&m);
    keep_kernel(&m, u);
    return true;
}

/* ---- the step ------------------------------------------------------------------------------- */

AddKind dest_add(Dest *d)
{
    bool first = d->started && !*d->started;
    if (d->how == HOW_REPLACE)
        return ADD_NEVER;
    if (d->started)
        *d->started = true;
    if (!first)
        return ADD_ALWAYS;
    return d->how == HOW_GRAD ? ADD_FLAG : d->how == HOW_LATER ? ADD_LATER : ADD_FLAG_LATER;
}

void map_finish(Scope *s, Unit *u)
{
    Kernel *k = u->kernel;
    if (k->effects.len == 0) /* nobody reads what it makes */
        return;
    for (int i = 0; i < k->effects.len; i++)
        k->effects.at[i].add = dest_add(u->target[i]);
    k->backward = u->backward;
    text_describe(s, u, k, u->operands.at);
    step_add(s, k, u->operands.at, u->node, u->backward);
}
