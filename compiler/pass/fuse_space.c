/* fuse_space.c -- the last touches to a MAP kernel: phases, axes, levels.
 *
 * In: a kernel over all axes that were needed while it was built. Out: the same kernel, in which
 * values that a later phase reads again are loaded instead of computed, axes that can be walked as
 * one are one, the last axis is the row, and each value has its level.
 */
#include "pass/fuse.h"

#include <ctype.h>

/* ---- loading again -------------------------------------------------------------------------- */

static void renumber(MapBuild *m, int at)
{
    Kernel *k = m->k;
    for (int i = 0; i < k->values.len; i++) {
        Value *v = &k->values.at[i];
        for (int j = 0; j < v->n_in; j++)
            v->in[j] += v->in[j] >= at;
        if (v->kind == VAL_LOAD) {
            v->access.index += v->access.index >= at;
            v->access.guard += v->access.guard >= at;
        }
    }
    for (int i = 0; i < k->effects.len; i++)
        k->effects.at[i].value += k->effects.at[i].value >= at;
    for (int i = 0; i < m->u->roots.len; i++)
        m->value[i] += m->value[i] >= at;
}

static void insert_value(MapBuild *m, int at, Value v)
{
    Kernel *k = m->k;
    renumber(m, at);
    vec_push(m->f->attempt, &k->values, v);
    for (int i = k->values.len - 1; i > at; i--)
        k->values.at[i] = k->values.at[i - 1];
    k->values.at[at] = v;
}

static bool reads_later(const Kernel *k, int value)
{
    for (int i = 0; i < k->values.len; i++) {
        const Value *v = &k->values.at[i];
        for (int j = 0; j < v->n_in; j++)
            if (v->in[j] == value && v->phase > k->values.at[value].phase && v->kind != VAL_REDUCE)
                return true;
    }
    return false;
}

/* A stored element that a later phase reads is loaded there. */
static void load_again(MapBuild *m)
{
    Kernel *k = m->k;
    for (int i = 0; m->has_row && i < k->effects.len; i++) {
        Effect e = k->effects.at[i];
        Value *v = &k->values.at[e.value];
        bool elem = e.access.stride[m->n_outer] != NULL;
        if (e.kind != EFFECT_STORE || !elem || m->target.at[i]->how != HOW_REPLACE
            || v->kind == VAL_LOAD || v->kind == VAL_CONST || !reads_later(k, e.value))
            continue;
        Value again = { .kind = VAL_LOAD,
                        .dtype = v->dtype,
                        .phase = v->phase + 1,
                        .access = e.access,
                        .name = v->name,
                        .node = v->node };
        int from = e.value, to = from + 1;
        insert_value(m, to, again);
        for (int w = to + 1; w < k->values.len; w++) {
            Value *user = &k->values.at[w];
            bool later = user->phase > again.phase - 1
                         && !(user->kind == VAL_REDUCE && user->phase == again.phase);
            for (int j = 0; j < user->n_in && later; j++)
                if (user->in[j] == from)
                    user->in[j] = to;
        }
    }
}

/* ---- axes ----------------------------------------------------------------------------------- */

static bool pair_fits(MapBuild *m, const Access *a, int axis)
{
    return dim_equal(a->stride[axis], dim_times(m->f, a->stride[axis + 1], m->size[axis + 1]));
}

/* Can axes a and a + 1 be walked as one, everywhere? */
static bool axes_merge(MapBuild *m, int a)
{
    const Kernel *k = m->k;
    for (int i = 0; i < k->values.len; i++) {
        const Value *v = &k->values.at[i];
        if (v->kind == VAL_AXIS && (v->axis == a || v->axis == a + 1))
            return false;
        if (v->kind == VAL_LOAD && !pair_fits(m, &v->access, a))
            return false;
        if (v->kind == VAL_DRAW && !(pair_fits(m, &v->sample, a) && pair_fits(m, &v->element, a)))
            return false;
    }
    for (int i = 0; i < k->effects.len; i++)
        if (k->effects.at[i].kind == EFFECT_STORE && !pair_fits(m, &k->effects.at[i].access, a))
            return false;
    return true;
}

static void drop_axis(Access *a, int axis)
{
    for (int i = axis; i + 1 < AXES_MAX; i++)
        a->stride[i] = a->stride[i + 1];
    a->stride[AXES_MAX - 1] = NULL;
}

static void merge_axes(MapBuild *m, int a)
{
    Kernel *k = m->k;
    for (int i = 0; i < k->values.len; i++) {
        Value *v = &k->values.at[i];
        if (v->kind == VAL_AXIS)
            v->axis -= v->axis > a;
        if (v->kind == VAL_LOAD)
            drop_axis(&v->access, a);
        if (v->kind == VAL_DRAW) {
            drop_axis(&v->sample, a);
            drop_axis(&v->element, a);
        }
    }
    for (int i = 0; i < k->effects.len; i++)
        drop_axis(&k->effects.at[i].access, a);
    m->size[a] = dim_mul(m->f->ds, m->size[a], m->size[a + 1]);
    m->n_outer--;
    for (int i = a + 1; i < m->n_outer + m->has_row; i++)
        m->size[i] = m->size[i + 1];
}

static void choose_axes(MapBuild *m)
{
    Kernel *k = m->k;
    for (int a = m->n_outer - 2; a >= 0; a--)
        if (axes_merge(m, a))
            merge_axes(m, a);
    if (!m->has_row && m->n_outer > 1) {
        m->has_row = true;
        m->n_outer--;
    }
    k->has_row = m->has_row;
    k->n_axes = m->n_outer + m->has_row;
    for (int i = 0; i < k->n_axes; i++)
        k->axis[i] = m->size[i];
}

/* "b" for B, "tmax" for Tmax; a number where the size has no name of its own. */
static const char *axis_name(MapBuild *m, int axis)
{
    Context *cx = m->f->cx;
    const char *text = dim_text(cx, m->size[axis]);
    char *name = arena_strndup(cx->arena, text, 16);
    bool plain = isalpha((unsigned char)name[0]) != 0;
    for (char *c = name; *c; c++) {
        plain = plain && (isalnum((unsigned char)*c) || *c == '_');
        *c = (char)tolower((unsigned char)*c);
    }
    bool taken = false;
    for (int i = 0; i < axis; i++)
        taken = taken || (m->k->axis_name[i] && intern(cx, name) == m->k->axis_name[i]);
    if (plain && !taken)
        return intern(cx, name);
    return m->k->n_axes == 1 || axis == 0 ? NULL : intern_printf(cx, "%d", axis);
}

/* ---- levels --------------------------------------------------------------------------------- */

static Level level_of_access(const MapBuild *m, const Access *a)
{
    Level l = LEVEL_ONCE;
    for (int i = 0; i < m->n_outer + m->has_row; i++)
        if (a->stride[i]) {
            Level x = m->has_row && i < m->n_outer ? LEVEL_ROW : LEVEL_ELEM;
            l = x > l ? x : l;
        }
    return l;
}

static Level max_level(Level a, Level b) { return a > b ? a : b; }

static void set_levels(MapBuild *m)
{
    Kernel *k = m->k;
    for (int i = 0; i < k->values.len; i++) {
        Value *v = &k->values.at[i];
        Level l = LEVEL_ONCE;
        for (int j = 0; j < v->n_in; j++)
            l = max_level(l, k->values.at[v->in[j]].level);
        if (v->kind == VAL_LOAD) {
            l = level_of_access(m, &v->access);
            if (v->access.index >= 0)
                l = max_level(l, k->values.at[v->access.index].level);
            if (v->access.guard >= 0)
                l = max_level(l, k->values.at[v->access.guard].level);
        } else if (v->kind == VAL_AXIS) {
            l = m->has_row && v->axis < m->n_outer ? LEVEL_ROW : LEVEL_ELEM;
        } else if (v->kind == VAL_DRAW) {
            l = max_level(
                l, max_level(level_of_access(m, &v->sample), level_of_access(m, &v->element)));
        } else if (v->kind == VAL_REDUCE) {
            l = LEVEL_ROW;
        }
        v->level = l;
    }
}

/* A total over all elements of what is the same along a row counts it for each of them. */
static void lift_totals(MapBuild *m)
{
    Kernel *k = m->k;
    const Dim *all = dim_product(m->f, k->n_axes, k->axis);
    for (int i = 0; i < k->effects.len; i++) {
        Effect *e = &k->effects.at[i];
        const Value *v = &k->values.at[e->value];
        if (e->kind != EFFECT_TOTAL || !k->has_row || v->level == LEVEL_ELEM
            || !dim_same(m->owner.at[i]->outer, all))
            continue;
        Value same = { .kind = VAL_POINT,
                       .op = OP_STOP,
                       .dtype = v->dtype,
                       .level = LEVEL_ELEM,
                       .phase = v->phase,
                       .n_in = 1,
                       .in = { e->value },
                       .node = v->node };
        vec_push(m->f->attempt, &k->values, same);
        k->effects.at[i].value = k->values.len - 1;
    }
}

void map_tidy(MapBuild *m)
{
    Kernel *k = m->k;
    load_again(m);
    choose_axes(m);
    set_levels(m);
    lift_totals(m);
    for (int i = 0; i < k->n_axes; i++)
        k->axis_name[i] = axis_name(m, i);
    k->n_phases = 1;
    for (int i = 0; i < k->effects.len; i++)
        if (k->effects.at[i].phase + 1 > k->n_phases)
            k->n_phases = k->effects.at[i].phase + 1;
}
