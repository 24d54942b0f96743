/* map_value.c -- values of a MAP kernel as C expressions, in variables where that is wanted.
 *
 * In: the values that a phase needs. Out: one expression per result, with a variable for what is
 * used twice, is long, or must be read before something is stored. Values of the whole kernel and
 * of a row are held in variables outside the loop over the row. Knows neither loops nor threads:
 * the C target and the CUDA target share it.
 */
#include "emit/map.h"
#include "op/op.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

enum { LONG = 56 }; /* characters of an operand */

const Value *map_value(const MapWriter *m, int v) { return &m->k->values.at[v]; }

bool map_is_trivial(const Value *v)
{
    return v->kind == VAL_CONST || v->kind == VAL_DIM || v->kind == VAL_AXIS || v->kind == VAL_ITER
           || v->kind == VAL_SEED;
}

/* ---- what a value reads ---------------------------------------------------------------------- */

typedef struct {
    int at[8], n;
} Inputs;

static void add_input(Inputs *in, int v)
{
    if (v >= 0 && in->n < 8)
        in->at[in->n++] = v;
}

static Inputs inputs_of(const Value *v)
{
    Inputs in = { .n = 0 };
    if (v->kind == VAL_LOAD) {
        add_input(&in, v->access.index);
        add_input(&in, v->access.guard);
    }
    if (v->kind == VAL_DRAW) {
        add_input(&in, v->sample.index);
        add_input(&in, v->element.index);
    }
    for (int i = 0; i < v->n_in; i++)
        add_input(&in, v->in[i]);
    return in;
}

/* ---- hoisting -------------------------------------------------------------------------------- */

typedef struct {
    MapWriter *m;
    bool *seen;
    int *row_uses;
} Prepare;

static void need_outside(Prepare *p, int v)
{
    const Value *x = map_value(p->m, v);
    if (map_is_trivial(x))
        return;
    if (p->m->level[v] == LEVEL_ONCE)
        p->m->hoist[v] = true;
    if (p->row_uses[v]++ > 0)
        p->m->hoist[v] = true;
    if (p->seen[v] || x->kind == VAL_REDUCE)
        return;
    p->seen[v] = true;
    const Inputs in = inputs_of(x);
    for (int i = 0; i < in.n; i++)
        need_outside(p, in.at[i]);
}

static void need_inside(Prepare *p, int v)
{
    if (p->m->level[v] != LEVEL_ELEM) {
        p->m->hoist[v] = true;
        need_outside(p, v);
        return;
    }
    if (p->seen[v])
        return;
    p->seen[v] = true;
    const Inputs in = inputs_of(map_value(p->m, v));
    for (int i = 0; i < in.n; i++)
        need_inside(p, in.at[i]);
}

bool map_in_row(const MapWriter *m, const Effect *f)
{
    if (!m->has_row)
        return false;
    const Level level = m->across ? m->k->values.at[f->value].level : m->level[f->value];
    return level == LEVEL_ELEM || f->kind == EFFECT_COLUMN || !m->k->has_row
           || (f->kind == EFFECT_STORE && f->access.stride[m->n_outer] != NULL);
}

void map_prepare(MapWriter *m)
{
    const int n = m->k->values.len + 1;
    Arena *a = m->e->cx->scratch;
    Prepare p = { m, NEW_ARRAY(a, bool, n), NEW_ARRAY(a, int, n) };
    for (int i = 0; i < m->k->values.len; i++)
        if (map_value(m, i)->kind == VAL_REDUCE)
            need_inside(&p, map_value(m, i)->in[0]);
    for (int i = 0; i < m->k->effects.len; i++) {
        const Effect *f = &m->k->effects.at[i];
        if (map_in_row(m, f))
            need_inside(&p, f->value);
        else
            need_outside(&p, f->value);
    }
    for (int i = 0; i < m->k->values.len; i++) /* read before the row stores to the same place */
        if (map_value(m, i)->kind == VAL_LOAD && m->level[i] != LEVEL_ELEM && p.seen[i]
            && m->k->args.at[map_value(m, i)->access.arg].written)
            m->hoist[i] = true;
}

/* ---- indices and loads ----------------------------------------------------------------------- */

const char *map_index_type(const MapWriter *m, int axis)
{
    return m->wide[axis] ? "ptrdiff_t" : "int";
}

/* Do the axes before the row lie as one, so that their one number leads to the row? */
static bool is_outer_one(const MapWriter *m, const Access *a)
{
    const int last = m->n_outer - 1;
    if (!m->outer || last < 1 || dim_is(a->stride[last], 0))
        return false;
    const Dim *step = a->stride[last];
    for (int i = last - 1; i >= 0; i--) {
        step = dim_mul(m->e->p->dims, step, m->k->axis[i + 1]);
        if (!a->stride[i] || !dim_same(a->stride[i], step))
            return false;
    }
    return true;
}

const char *map_index_of(MapWriter *m, const Access *a)
{
    Text t = text_new(m->e->cx->scratch);
    if (a->index >= 0) {
        const Value *v = map_value(m, a->index);
        const Code row = v->kind == VAL_AXIS ? code_plain(m->index[v->axis])
                                             : map_code(m, a->index, false);
        const bool wide = v->kind == VAL_AXIS && m->wide[v->axis];
        text_add(&t, "%s%s", wide ? "" : "(ptrdiff_t)", code_at_least(m->e, row, PREC_UNARY));
        if (a->index_stride && !dim_is(a->index_stride, 1))
            text_add(&t, "*%s", dim_c_factor(&m->w->dims, a->index_stride));
    }
    const int one = is_outer_one(m, a) ? m->n_outer - 1 : 0; /* their last axis stands for all */
    for (int i = one; i < m->n_axes; i++) {
        if (dim_is(a->stride[i], 0))
            continue;
        text_add(&t, "%s%s", t.len ? " + " : "", one > 0 && i == one ? m->outer : m->index[i]);
        if (!dim_is(a->stride[i], 1))
            text_add(&t, "*%s", dim_c_factor(&m->w->dims, a->stride[i]));
    }
    if (!dim_is(a->offset, 0))
        text_add(&t, "%s%s", t.len ? " + " : "", dim_c_factor(&m->w->dims, a->offset));
    return t.len ? t.at : "0";
}

const char *map_element(MapWriter *m, const Access *a)
{
    const char *index = map_index_of(m, a), *arg = m->w->arg[a->arg];
    if (strcmp(index, "0") == 0)
        return emit_format(m->e, "*%s", arg);
    return emit_format(m->e, "%s[%s]", arg, index);
}

static Code load(MapWriter *m, const Value *v)
{
    const char *held = m->held ? m->held(m, v) : NULL;
    const char *text = held ? held : map_element(m, &v->access);
    const DType from = m->k->args.at[v->access.arg].dtype;
    const bool narrow = from == DT_BF16 || from == DT_F16;
    if (narrow)
        text = emit_format(m->e, "rt_of_%s(%s)", dtype_name(from), text);
    if (v->access.guard < 0 || held)
        return (Code){ text, text[0] == '*' ? PREC_UNARY : PREC_PRIMARY, false, NULL };
    const char *guard = code_at_least(m->e, map_code(m, v->access.guard, false), PREC_OR);
    return (
        Code){ emit_format(m->e, "%s ? %s : %s", guard, text, code_literal(m->e, 0, v->dtype).text),
               PREC_COND, false, NULL };
}

/* ---- the other kinds of values ------------------------------------------------------------- */

static Code axis_value(MapWriter *m, const Value *v)
{
    const char *i = m->index[v->axis];
    if (!m->wide[v->axis])
        return code_plain(i);
    return (Code){ emit_format(m->e, "(int32_t)%s", i), PREC_UNARY, false, NULL };
}

static Code dim_as_value(MapWriter *m, const Value *v)
{
    return (Code){ emit_format(m->e, "(%s)%s", c_type(m->e, v->dtype),
                               dim_c_divisor(&m->w->dims, v->dim)),
                   PREC_UNARY, false, NULL };
}

static Code draw(MapWriter *m, const Value *v)
{
    Arena *a = m->e->cx->scratch;
    const char *stream = arena_printf(a, "0x%016llxu",
                                      (unsigned long long)op_stream_hash(v->stream));
    for (int i = 0; i < v->n_in; i++)
        stream = arena_printf(a, "rt_stream(%s, (uint64_t)%s)", stream,
                              code_at_least(m->e, map_code(m, v->in[i], false), PREC_UNARY));
    const char *sample = map_index_of(m, &v->sample), *element = map_index_of(m, &v->element);
    bool per_sample = false;
    for (int i = 0; i < m->n_axes; i++)
        per_sample = per_sample || !dim_is(v->sample.stride[i], 0);
    m->w->head->key = true;
    m->w->head->sample = m->w->head->sample || per_sample;
    return code_plain(arena_printf(
        a, "%s_%s(key, %s, %s, (uint64_t)(%s))", v->op == OP_NORMAL ? "rt_normal" : "rt_uniform",
        v->dtype == DT_F64 ? "f64" : "f32", stream,
        per_sample ? arena_printf(a, "(uint64_t)(sample + %s)", sample) : "0", element));
}

static Code point(MapWriter *m, const Value *v)
{
    Code in[4];
    for (int i = 0; i < v->n_in; i++)
        in[i] = map_code(m, v->in[i], false);
    return code_point(m->e, v->op, in, v->n_in);
}

Code map_compute(MapWriter *m, int n)
{
    const Value *v = map_value(m, n);
    switch (v->kind) {
    case VAL_LOAD: return load(m, v);
    case VAL_CONST: return code_literal(m->e, v->number, v->dtype);
    case VAL_DIM: return dim_as_value(m, v);
    case VAL_AXIS: return axis_value(m, v);
    case VAL_ITER: m->w->head->iter[v->axis] = true; return code_plain(m->w->iter[v->axis]);
    case VAL_SEED:
        m->w->head->seed[v->slot] = true;
        return (Code){ emit_format(m->e, "seed_%s", m->e->slot[v->slot]), PREC_PRIMARY, false,
                       NULL };
    case VAL_POINT: return point(m, v);
    case VAL_CAST:
        return code_cast(m->e, map_code(m, v->in[0], false), map_value(m, v->in[0])->dtype,
                         v->dtype);
    case VAL_DRAW: return draw(m, v);
    case VAL_REDUCE: break;
    }
    bug("kernel %s: value %d is used before its phase", m->k->name, n);
}

/* ---- variables ------------------------------------------------------------------------------- */

/* "mu" for h_ln_1_mu in a kernel that has an argument h_ln_1, "d_mu" for d_h_ln_1_mu. */
const char *map_short_name(MapWriter *m, const char *name)
{
    const bool adjoint = strncmp(name, "d_", 2) == 0;
    const char *own = name + (adjoint ? 2 : 0), *rest = NULL;
    for (int i = 0; i < m->k->args.len; i++) {
        const char *arg = m->k->args.at[i].name;
        arg += strncmp(arg, "d_", 2) == 0 ? 2 : 0;
        const size_t len = strlen(arg);
        if (strncmp(own, arg, len) == 0 && own[len] == '_' && isalpha((unsigned char)own[len + 1]))
            rest = own + len + 1;
    }
    return rest ? emit_format(m->e, "%s%s", adjoint ? "d_" : "", rest) : name;
}

bool map_is_free(MapWriter *m, const char *name)
{
    return !names_taken(m->e, m->w->names, emit_identifier(m->e, name)) && !emit_is_reserved(name);
}

/* A letter stands for one value of the kernel. */
const char *map_free_name(MapWriter *m, const char *want)
{
    if (want)
        want = map_short_name(m, want);
    if (want && map_is_free(m, want))
        return names_take(m->e, m->w->names, want);
    for (char c = 'a'; c <= 'z'; c++) {
        const char name[] = { c, '\0' };
        if (strchr("ilnops", c) || m->letter[c - 'a'] || !map_is_free(m, name))
            continue;
        m->letter[c - 'a'] = true;
        return names_take(m->e, m->w->names, name);
    }
    return names_take(m->e, m->w->names, "t");
}

void map_statement(MapWriter *m, const char *s) { emit_statement(m->out, m->indent, s); }

Code map_declare(MapWriter *m, int v, Code c)
{
    m->temp[v] = map_free_name(m, map_value(m, v)->name);
    map_statement(m, emit_format(m->e, "const %s %s = %s;", c_type(m->e, map_value(m, v)->dtype),
                                 m->temp[v], c.text));
    return code_plain(m->temp[v]);
}

/* A root is written out where it stands unless something else uses it too. */
Code map_code(MapWriter *m, int v, bool root)
{
    const Value *x = map_value(m, v);
    if (m->temp[v])
        return code_plain(m->temp[v]);
    const Code c = map_compute(m, v);
    if (map_is_trivial(x) || (m->uses[v] <= 1 && (root || strlen(c.text) <= LONG)))
        return c;
    return map_declare(m, v, c);
}

/* ---- values outside the row loop ----------------------------------------------------------- */

void map_once_values(MapWriter *m)
{
    for (int i = 0; i < m->k->values.len; i++)
        if (m->hoist[i] && m->level[i] == LEVEL_ONCE && !map_is_trivial(map_value(m, i)))
            map_declare(m, i, map_compute(m, i));
}

void map_row_values(MapWriter *m, int phase)
{
    for (int i = 0; i < m->k->values.len; i++) {
        const Value *v = map_value(m, i);
        if (m->hoist[i] && m->level[i] == LEVEL_ROW && v->phase == phase && !m->temp[i]
            && !map_is_trivial(v) && v->kind != VAL_REDUCE)
            map_declare(m, i, map_compute(m, i));
    }
}

/* ---- effects ------------------------------------------------------------------------------- */

void map_write(MapWriter *m, const Effect *f, Code value, DType type)
{
    Arena *a = m->e->cx->scratch;
    const DType to = m->k->args.at[f->access.arg].dtype;
    const char *at = map_element(m, &f->access);
    const char *flag = c_flag(m->w, f->add);
    value = code_cast(m->e, value, type, to);
    if (flag && (value.prec != PREC_PRIMARY || strlen(value.text) > 32)) {
        const char *name = map_free_name(m, NULL);
        map_statement(m, arena_printf(a, "const %s %s = %s;", c_type(m->e, to), name, value.text));
        value = code_plain(name);
    }
    if (flag)
        map_statement(
            m, arena_printf(a, "%s = %s ? %s + %s : %s;", at, flag, at, value.text, value.text));
    else
        map_statement(
            m, arena_printf(a, "%s %s %s;", at, f->add == ADD_ALWAYS ? "+=" : "=", value.text));
}

/* ---- the body of a loop over the row --------------------------------------------------------- */

void map_count_uses(MapWriter *m, int v)
{
    if (m->level[v] != LEVEL_ELEM || m->uses[v]++ > 0)
        return;
    const Inputs in = inputs_of(map_value(m, v));
    for (int i = 0; i < in.n; i++)
        map_count_uses(m, in.at[i]);
}

const char *map_reduce_start(MapWriter *m, const Value *v, DType t)
{
    const bool low = v->op == OP_AMAX || v->op == OP_ARGMAX;
    if (v->op == OP_SUM)
        return "0";
    if (t == DT_I32)
        return low ? "INT32_MIN" : "INT32_MAX";
    if (t == DT_BOOL)
        return low ? "false" : "true";
    (void)m;
    return low ? "-INFINITY" : "INFINITY";
}

void map_inner_open(MapWriter *m, MapInner *x, int steps)
{
    *x = (MapInner){ text_new(m->e->cx->scratch), m->out, m->w->names, steps };
    m->out = &x->body;
    m->w->names = names_new(m->e, x->names);
    m->indent += steps * INDENT;
    memset(m->uses, 0, sizeof *m->uses * (size_t)m->k->values.len);
}

const char *map_inner_close(MapWriter *m, MapInner *x)
{
    m->indent -= x->steps * INDENT;
    m->w->names = x->names;
    m->out = x->out;
    for (int i = 0; i < m->k->values.len; i++)
        if (m->level[i] == LEVEL_ELEM)
            m->temp[i] = NULL;
    return x->body.at;
}
