/* c_body.c -- values and effects of a MAP kernel as C statements.
 *
 * In: the values that a phase needs. Out: one expression per result, with a variable for what is
 * used twice, is long, or must be read before something is stored. Values of the whole kernel and
 * of a row are held in variables outside the loop over the row.
 */
#include "emit/map.h"
#include "op/op.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

enum {
    LONG = 56,     /* characters of an operand */
    LANES = 64,    /* RT_LANES */
    FEW_LANES = 16 /* a row as short as that is added up in order */
};

static Code code_of(MapWriter *m, int v, bool root);

static const Value *value_at(const MapWriter *m, int v) { return &m->k->values.at[v]; }

static bool is_trivial(const Value *v)
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
    const Value *x = value_at(p->m, v);
    if (is_trivial(x))
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
    const Inputs in = inputs_of(value_at(p->m, v));
    for (int i = 0; i < in.n; i++)
        need_inside(p, in.at[i]);
}

static bool in_row_loop(const MapWriter *m, const Effect *f)
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
        if (value_at(m, i)->kind == VAL_REDUCE)
            need_inside(&p, value_at(m, i)->in[0]);
    for (int i = 0; i < m->k->effects.len; i++) {
        const Effect *f = &m->k->effects.at[i];
        if (in_row_loop(m, f))
            need_inside(&p, f->value);
        else
            need_outside(&p, f->value);
    }
    for (int i = 0; i < m->k->values.len; i++) /* read before the row stores to the same place */
        if (value_at(m, i)->kind == VAL_LOAD && m->level[i] != LEVEL_ELEM && p.seen[i]
            && m->k->args.at[value_at(m, i)->access.arg].written)
            m->hoist[i] = true;
}

/* ---- indices and loads ----------------------------------------------------------------------- */

const char *map_index_type(const MapWriter *m, int axis)
{
    return m->wide[axis] ? "ptrdiff_t" : "int";
}

static const char *index_of_access(MapWriter *m, const Access *a)
{
    Text t = text_new(m->e->cx->scratch);
    if (a->index >= 0) {
        const Value *v = value_at(m, a->index);
        const Code row = v->kind == VAL_AXIS ? code_plain(m->index[v->axis])
                                             : code_of(m, a->index, false);
        const bool wide = v->kind == VAL_AXIS && m->wide[v->axis];
        text_add(&t, "%s%s", wide ? "" : "(ptrdiff_t)", code_at_least(m->e, row, PREC_UNARY));
        if (a->index_stride && !dim_is(a->index_stride, 1))
            text_add(&t, "*%s", dim_c_factor(&m->w->dims, a->index_stride));
    }
    for (int i = 0; i < m->n_axes; i++) {
        if (dim_is(a->stride[i], 0))
            continue;
        text_add(&t, "%s%s", t.len ? " + " : "", m->index[i]);
        if (!dim_is(a->stride[i], 1))
            text_add(&t, "*%s", dim_c_factor(&m->w->dims, a->stride[i]));
    }
    if (!dim_is(a->offset, 0))
        text_add(&t, "%s%s", t.len ? " + " : "", dim_c_factor(&m->w->dims, a->offset));
    return t.len ? t.at : "0";
}

static const char *element_of(MapWriter *m, const Access *a)
{
    const char *index = index_of_access(m, a), *arg = m->w->arg[a->arg];
    if (strcmp(index, "0") == 0)
        return emit_format(m->e, "*%s", arg);
    return emit_format(m->e, "%s[%s]", arg, index);
}

static Code load(MapWriter *m, const Value *v)
{
    const char *text = element_of(m, &v->access);
    const DType from = m->k->args.at[v->access.arg].dtype;
    const bool narrow = from == DT_BF16 || from == DT_F16;
    if (narrow)
        text = emit_format(m->e, "rt_of_%s(%s)", dtype_name(from), text);
    if (v->access.guard < 0)
        return (Code){ text, text[0] == '*' ? PREC_UNARY : PREC_PRIMARY, false, NULL };
    const char *guard = code_at_least(m->e, code_of(m, v->access.guard, false), PREC_OR);
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
                              code_at_least(m->e, code_of(m, v->in[i], false), PREC_UNARY));
    const char *sample = index_of_access(m, &v->sample), *element = index_of_access(m, &v->element);
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
        in[i] = code_of(m, v->in[i], false);
    return code_point(m->e, v->op, in, v->n_in);
}

static Code compute(MapWriter *m, int n)
{
    const Value *v = value_at(m, n);
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
        return code_cast(m->e, code_of(m, v->in[0], false), value_at(m, v->in[0])->dtype, v->dtype);
    case VAL_DRAW: return draw(m, v);
    case VAL_REDUCE: break;
    }
    bug("kernel %s: value %d is used before its phase", m->k->name, n);
}

/* ---- variables ------------------------------------------------------------------------------- */

/* "mu" for h_ln_1_mu in a kernel that has an argument h_ln_1, "d_mu" for d_h_ln_1_mu. */
static const char *short_name(MapWriter *m, const char *name)
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

static bool is_free(MapWriter *m, const char *name)
{
    return !names_taken(m->e, m->w->names, emit_identifier(m->e, name)) && !emit_is_reserved(name);
}

/* A letter stands for one value of the kernel. */
static const char *free_name(MapWriter *m, const char *want)
{
    if (want)
        want = short_name(m, want);
    if (want && is_free(m, want))
        return names_take(m->e, m->w->names, want);
    for (char c = 'a'; c <= 'z'; c++) {
        const char name[] = { c, '\0' };
        if (strchr("ilnops", c) || m->letter[c - 'a'] || !is_free(m, name))
            continue;
        m->letter[c - 'a'] = true;
        return names_take(m->e, m->w->names, name);
    }
    return names_take(m->e, m->w->names, "t");
}

static void statement(MapWriter *m, const char *s) { emit_statement(m->out, m->indent, s); }

static Code declare(MapWriter *m, int v, Code c)
{
    m->temp[v] = free_name(m, value_at(m, v)->name);
    statement(m, emit_format(m->e, "const %s %s = %s;", c_type(m->e, value_at(m, v)->dtype),
                             m->temp[v], c.text));
    return code_plain(m->temp[v]);
}

/* A root is written out where it stands unless something else uses it too. */
static Code code_of(MapWriter *m, int v, bool root)
{
    const Value *x = value_at(m, v);
    if (m->temp[v])
        return code_plain(m->temp[v]);
    const Code c = compute(m, v);
    if (is_trivial(x) || (m->uses[v] <= 1 && (root || strlen(c.text) <= LONG)))
        return c;
    return declare(m, v, c);
}

/* ---- values outside the row loop ----------------------------------------------------------- */

void map_once_values(MapWriter *m)
{
    for (int i = 0; i < m->k->values.len; i++)
        if (m->hoist[i] && m->level[i] == LEVEL_ONCE && !is_trivial(value_at(m, i)))
            declare(m, i, compute(m, i));
}

void map_row_values(MapWriter *m, int phase)
{
    for (int i = 0; i < m->k->values.len; i++) {
        const Value *v = value_at(m, i);
        if (m->hoist[i] && m->level[i] == LEVEL_ROW && v->phase == phase && !m->temp[i]
            && !is_trivial(v) && v->kind != VAL_REDUCE)
            declare(m, i, compute(m, i));
    }
}

/* ---- effects ------------------------------------------------------------------------------- */

void map_write(MapWriter *m, const Effect *f, Code value, DType type)
{
    Arena *a = m->e->cx->scratch;
    const DType to = m->k->args.at[f->access.arg].dtype;
    const char *at = element_of(m, &f->access);
    const char *flag = c_flag(m->w, f->add);
    value = code_cast(m->e, value, type, to);
    if (flag && (value.prec != PREC_PRIMARY || strlen(value.text) > 32)) {
        const char *name = free_name(m, NULL);
        statement(m, arena_printf(a, "const %s %s = %s;", c_type(m->e, to), name, value.text));
        value = code_plain(name);
    }
    if (flag)
        statement(m,
                  arena_printf(a, "%s = %s ? %s + %s : %s;", at, flag, at, value.text, value.text));
    else
        statement(m,
                  arena_printf(a, "%s %s %s;", at, f->add == ADD_ALWAYS ? "+=" : "=", value.text));
}

/* lane: of its total, or NULL. */
static void write_effect(MapWriter *m, int n, const char *lane)
{
    Arena *a = m->e->cx->scratch;
    const Effect *f = &m->k->effects.at[n];
    const DType type = value_at(m, f->value)->dtype;
    const Code c = code_of(m, f->value, true);
    if (m->total[n])
        statement(m, arena_printf(a, "%s += %s;", lane ? lane : m->total[n],
                                  code_cast(m->e, c, type, DT_F64).text));
    else if (m->column[n])
        statement(m, arena_printf(a, "%s[%s] += %s;", m->column[n], m->column_index, c.text));
    else
        map_write(m, f, c, type);
}

/* ---- the loop over the row ----------------------------------------------------------------- */

static void count_uses(MapWriter *m, int v)
{
    if (m->level[v] != LEVEL_ELEM || m->uses[v]++ > 0)
        return;
    const Inputs in = inputs_of(value_at(m, v));
    for (int i = 0; i < in.n; i++)
        count_uses(m, in.at[i]);
}

static void write_row_effects(MapWriter *m, int phase)
{
    for (int i = 0; i < m->k->effects.len; i++)
        if (m->k->effects.at[i].phase == phase && !in_row_loop(m, &m->k->effects.at[i]))
            write_effect(m, i, NULL);
}

/* How the sums over a row are held. A compiler that makes vectors of a reduction chooses the order
   of its additions by what else the loop does; so there are RT_LANES sums side by side, which are
   added up behind the loop, in one order always. */
typedef enum {
    LANES_NONE,  /* one variable: nothing is summed, or in order */
    LANES_ONE,   /* the row is one block of lanes, or part of one */
    LANES_BLOCKS /* it is cut into blocks */
} LaneForm;

typedef struct {
    int *reduce, n_reduce, *effect, n_effect;
    bool places;
    bool ordered;                     /* sums, in order: no simd loop */
    LaneForm form;                    /* of sums, largest and smallest */
    const char **lanes, **total_lane; /* by position in reduce, effect: the array, or NULL */
} RowWork;

static bool has_lanes(const Value *v)
{
    return (v->op == OP_SUM || v->op == OP_AMAX || v->op == OP_AMIN) && dtype_is_real(v->dtype);
}

static void choose_lanes(MapWriter *m, RowWork *r, bool whole)
{
    bool sums = false;
    int64_t n;
    for (int i = 0; i < r->n_reduce; i++) {
        const Value *v = value_at(m, r->reduce[i]);
        sums |= v->op == OP_SUM && dtype_is_real(v->dtype);
    }
    for (int i = 0; i < r->n_effect; i++)
        sums |= m->total[r->effect[i]] != NULL;
    if (!sums || m->across)
        return;
    const bool known = dim_value(m->k->axis[m->n_outer], &n);
    r->ordered = known && n <= FEW_LANES;
    r->form = r->ordered ? LANES_NONE : known && n <= LANES && whole ? LANES_ONE : LANES_BLOCKS;
}

static RowWork work_of(MapWriter *m, int phase)
{
    Arena *a = m->e->cx->scratch;
    RowWork r = { .reduce = NEW_ARRAY(a, int, m->k->values.len + 1),
                  .effect = NEW_ARRAY(a, int, m->k->effects.len + 1),
                  .lanes = NEW_ARRAY(a, const char *, m->k->values.len + 1),
                  .total_lane = NEW_ARRAY(a, const char *, m->k->effects.len + 1) };
    for (int i = 0; i < m->k->values.len; i++) {
        const Value *v = value_at(m, i);
        if (v->kind != VAL_REDUCE || v->phase != phase + 1)
            continue;
        r.reduce[r.n_reduce++] = i;
        r.places = r.places || v->op == OP_ARGMAX || v->op == OP_ARGMIN;
    }
    for (int i = 0; i < m->k->effects.len; i++) {
        if (m->k->effects.at[i].phase != phase || !in_row_loop(m, &m->k->effects.at[i]))
            continue;
        r.effect[r.n_effect++] = i;
    }
    return r;
}

static const char *reduce_start(MapWriter *m, const Value *v, DType t)
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

/* One running value for each column of the block. */
static void declare_columns(MapWriter *m, int n)
{
    Arena *a = m->e->cx->scratch;
    const Value *v = value_at(m, n);
    const char *name = m->temp[n], *start = reduce_start(m, v, v->dtype);
    const bool zero = strcmp(start, "0") == 0;
    statement(m, arena_printf(a, "%s %s[RT_COLUMNS]%s;", c_type(m->e, v->dtype), name,
                              zero ? " = { 0 }" : ""));
    m->temp[n] = arena_printf(a, "%s[%s - block]", name, m->index[m->n_outer - 1]);
    if (!zero)
        map_loop(m, m->n_outer - 1, "block", "end", "RT_SIMD()",
                 arena_printf(a, "%*s%s = %s;\n", m->indent + INDENT, "", m->temp[n], start));
}

static const char *lane_suffix(DType t) { return t == DT_F64 ? "f64" : "f32"; }

/* The array of lanes for a reduction or a total called `name`. */
static const char *declare_lane_array(MapWriter *m, const char *name, DType t, const char *start)
{
    Arena *a = m->e->cx->scratch;
    const bool zero = strcmp(start, "0") == 0;
    const char *lanes = names_take(m->e, m->w->names, arena_printf(a, "%s_lanes", name));
    statement(
        m, arena_printf(a, "%s %s[RT_LANES]%s;", c_type(m->e, t), lanes, zero ? " = { 0 }" : ""));
    if (!zero)
        statement(m, arena_printf(a, "rt_set_lanes_%s(%s, %s);", lane_suffix(t), lanes, start));
    return lanes;
}

/* Where the lane of this element is. */
static const char *lane_at(MapWriter *m, const RowWork *r, const char *lanes)
{
    return arena_printf(m->e->cx->scratch, r->form == LANES_ONE ? "%s[%s]" : "%s[%s - block]",
                        lanes, m->index[m->n_outer]);
}

/* After the loop: the lanes become what the reductions are. */
static void fold_lanes(MapWriter *m, const RowWork *r)
{
    Arena *a = m->e->cx->scratch;
    for (int i = 0; i < r->n_reduce; i++) {
        const Value *v = value_at(m, r->reduce[i]);
        const char *how = v->op == OP_SUM ? "sum" : v->op == OP_AMAX ? "max" : "min";
        if (r->lanes[i])
            statement(m,
                      arena_printf(a, "const %s %s = rt_%s_lanes_%s(%s);", c_type(m->e, v->dtype),
                                   m->temp[r->reduce[i]], how, lane_suffix(v->dtype), r->lanes[i]));
    }
    for (int i = 0; i < r->n_effect; i++)
        if (r->total_lane[i])
            statement(m, arena_printf(a, "%s += rt_sum_lanes_f64(%s);", m->total[r->effect[i]],
                                      r->total_lane[i]));
}

/* The variables of the reductions; for the index of the largest, one for the largest as well. */
static void declare_reductions(MapWriter *m, const RowWork *r, const char **best)
{
    Arena *a = m->e->cx->scratch;
    for (int i = 0; i < r->n_reduce; i++) {
        const int n = r->reduce[i];
        const Value *v = value_at(m, n);
        const DType in = value_at(m, v->in[0])->dtype;
        const bool place = v->op == OP_ARGMAX || v->op == OP_ARGMIN;
        const char *plain = v->op == OP_SUM    ? "sum"
                            : v->op == OP_AMAX ? "max"
                            : v->op == OP_AMIN ? "min"
                                               : "best";
        if (place) {
            best[i] = free_name(m, "best");
            statement(m, arena_printf(a, "%s %s = %s;", c_type(m->e, in), best[i],
                                      reduce_start(m, v, in)));
        }
        const bool named = v->name && is_free(m, short_name(m, v->name));
        m->temp[n] = free_name(m, named ? v->name : plain);
        if (m->across)
            declare_columns(m, n);
        else if (r->form != LANES_NONE && has_lanes(v))
            r->lanes[i] = declare_lane_array(m, m->temp[n], v->dtype, reduce_start(m, v, v->dtype));
        else
            statement(m, arena_printf(a, "%s %s = %s;", c_type(m->e, v->dtype), m->temp[n],
                                      place ? "0" : reduce_start(m, v, v->dtype)));
    }
    for (int i = 0; r->form != LANES_NONE && i < r->n_effect; i++)
        if (m->total[r->effect[i]]) {
            const char *arg = m->w->arg[m->k->effects.at[r->effect[i]].access.arg];
            r->total_lane[i] = declare_lane_array(m, arg, DT_F64, "0");
        }
}

/* lane: where it is added up, or NULL for the variable itself. */
static void reduce_statement(MapWriter *m, int n, const char *lane, const char *best)
{
    Arena *a = m->e->cx->scratch;
    const Value *v = value_at(m, n);
    const char *to = lane ? lane : m->temp[n];
    if (v->op == OP_SUM) {
        statement(m, arena_printf(a, "%s += %s;", to, code_of(m, v->in[0], true).text));
        return;
    }
    if (v->op == OP_AMAX || v->op == OP_AMIN) {
        statement(m, arena_printf(a, "%s = %s(%s, %s);", to, v->op == OP_AMAX ? "rt_max" : "rt_min",
                                  to, code_of(m, v->in[0], true).text));
        return;
    }
    const char x[] = "x";
    const DType t = value_at(m, v->in[0])->dtype;
    const char *name = m->temp[v->in[0]];
    if (name == NULL) {
        name = free_name(m, x);
        statement(m, arena_printf(a, "const %s %s = %s;", c_type(m->e, t), name,
                                  code_of(m, v->in[0], true).text));
    }
    statement(m, arena_printf(a, "if (%s %s %s%s) {", name, v->op == OP_ARGMAX ? ">" : "<", best,
                              dtype_is_real(t)
                                  ? arena_printf(a, " || (isnan(%s) && !isnan(%s))", name, best)
                                  : ""));
    statement(m, arena_printf(a, "    %s = %s;", best, name));
    statement(m, arena_printf(a, "    %s = %s%s;", to, m->wide[m->n_outer] ? "(int32_t)" : "",
                              m->index[m->n_outer]));
    statement(m, "}");
}

static const char *clauses(MapWriter *m, const RowWork *r)
{
    static const struct {
        Op op;
        const char *sign;
    } kinds[] = {
        { OP_SUM, "+" },
        { OP_AMAX, "max" },
        { OP_AMIN, "min" },
    };
    Text t = text_new(m->e->cx->scratch);
    for (int k = 0; k < 3; k++) {
        Text list = text_new(m->e->cx->scratch);
        for (int i = 0; i < r->n_reduce; i++)
            if (value_at(m, r->reduce[i])->op == kinds[k].op && !r->lanes[i])
                text_add(&list, "%s%s", list.len ? ", " : "", m->temp[r->reduce[i]]);
        if (list.len)
            text_add(&t, "%sreduction(%s:%s)", t.len ? " " : "", kinds[k].sign, list.at);
    }
    return t.at;
}

/* Loads from what the phase also stores to are read first. */
static void declare_forced(MapWriter *m, const RowWork *r)
{
    if (r->n_effect < 2)
        return;
    for (int i = 0; i < m->k->values.len; i++) {
        const Value *v = value_at(m, i);
        if (v->kind != VAL_LOAD || m->level[i] != LEVEL_ELEM || m->uses[i] == 0 || m->temp[i])
            continue;
        const KernelArg *arg = &m->k->args.at[v->access.arg];
        if (arg->written || !arg->exclusive)
            declare(m, i, compute(m, i));
    }
}

bool map_is_one_statement(const char *text)
{
    int n = 0;
    for (; *text; text++)
        n += *text == ';';
    return n == 1;
}

void map_loop(MapWriter *m, int axis, const char *from, const char *to, const char *pragma,
              const char *body)
{
    const bool brace = strstr(body, "for (") != NULL || !map_is_one_statement(body);
    const char *i = m->index[axis];
    if (pragma)
        statement(m, pragma);
    statement(m, emit_format(m->e, "for (%s %s = %s; %s < %s; %s++)%s", map_index_type(m, axis), i,
                             from, i, to, i, brace ? " {" : ""));
    text_put(m->out, body);
    if (brace)
        statement(m, "}");
}

/* What is written now goes into `body`, further in, with names of its own. */
typedef struct {
    Text body, *out;
    Names *names;
    int steps;
} Inner;

static void inner_open(MapWriter *m, Inner *x, int steps)
{
    *x = (Inner){ text_new(m->e->cx->scratch), m->out, m->w->names, steps };
    m->out = &x->body;
    m->w->names = names_new(m->e, x->names);
    m->indent += steps * INDENT;
    memset(m->uses, 0, sizeof *m->uses * (size_t)m->k->values.len);
}

static const char *inner_close(MapWriter *m, Inner *x)
{
    m->indent -= x->steps * INDENT;
    m->w->names = x->names;
    m->out = x->out;
    for (int i = 0; i < m->k->values.len; i++)
        if (m->level[i] == LEVEL_ELEM)
            m->temp[i] = NULL;
    return x->body.at;
}

void map_row_effects(MapWriter *m, int phase)
{
    Inner x;
    if (!m->across) {
        memset(m->uses, 0, sizeof *m->uses * (size_t)m->k->values.len);
        write_row_effects(m, phase);
        return;
    }
    inner_open(m, &x, 1);
    for (int i = 0; i < m->k->effects.len; i++)
        if (m->k->effects.at[i].phase == phase && !in_row_loop(m, &m->k->effects.at[i]))
            count_uses(m, m->k->effects.at[i].value);
    write_row_effects(m, phase);
    const char *body = inner_close(m, &x);
    if (*body)
        map_loop(m, m->n_outer - 1, "block", "end", "RT_SIMD()", body);
}

/* The loop over the row, block by block. */
static void loop_blocks(MapWriter *m, const char *from, const char *to, const char *pragma,
                        const char *body)
{
    int64_t n;
    const char *type = map_index_type(m, m->n_outer);
    const bool even = dim_value(m->k->axis[m->n_outer], &n) && n % LANES == 0
                      && strcmp(from, "0") == 0;
    statement(m, emit_format(m->e, "for (%s block = %s; block < %s; block += RT_LANES) {", type,
                             from, to));
    m->indent += INDENT;
    if (!even)
        statement(m, emit_format(m->e, "const %s end = rt_min(block + RT_LANES, %s);", type, to));
    map_loop(m, m->n_outer, "block", even ? "block + RT_LANES" : "end", pragma, body);
    m->indent -= INDENT;
    statement(m, "}");
}

/* The statements of one element, as the body of its loop. */
static const char *row_body(MapWriter *m, const RowWork *r, const char *const *best)
{
    Inner x;
    inner_open(m, &x, 1 + (m->across || r->form == LANES_BLOCKS));
    for (int i = 0; i < r->n_reduce; i++)
        count_uses(m, value_at(m, r->reduce[i])->in[0]);
    for (int i = 0; i < r->n_effect; i++)
        count_uses(m, m->k->effects.at[r->effect[i]].value);
    declare_forced(m, r);
    for (int i = 0; i < r->n_reduce; i++)
        reduce_statement(m, r->reduce[i], r->lanes[i] ? lane_at(m, r, r->lanes[i]) : NULL, best[i]);
    for (int i = 0; i < r->n_effect; i++)
        write_effect(m, r->effect[i], r->total_lane[i] ? lane_at(m, r, r->total_lane[i]) : NULL);
    return inner_close(m, &x);
}

static const char *row_pragma(MapWriter *m, const RowWork *r, const char *to)
{
    if (m->across || r->ordered)
        return NULL;
    if (!m->inside && r->n_reduce == 0 && m->n_outer == 0 && m->k->n_phases == 1 && !r->form)
        return arena_printf(m->e->cx->scratch, "RT_PARALLEL_SIMD(%s)", to);
    return r->places ? NULL : arena_printf(m->e->cx->scratch, "RT_SIMD(%s)", clauses(m, r));
}

void map_row_loop(MapWriter *m, int phase, const char *from, const char *to)
{
    RowWork r = work_of(m, phase);
    const char **best = NEW_ARRAY(m->e->cx->scratch, const char *, r.n_reduce + 1);
    if (!m->has_row || r.n_reduce + r.n_effect == 0)
        return;
    choose_lanes(m, &r, strcmp(from, "0") == 0);
    declare_reductions(m, &r, best);
    const char *body = row_body(m, &r, best);
    if (m->across) {
        Inner x;
        inner_open(m, &x, 1);
        map_loop(m, m->n_outer - 1, "block", "end", "RT_SIMD()", body);
        body = inner_close(m, &x);
    }
    if (r.form == LANES_BLOCKS)
        loop_blocks(m, from, to, row_pragma(m, &r, to), body);
    else
        map_loop(m, m->n_outer, from, to, row_pragma(m, &r, to), body);
    fold_lanes(m, &r);
}
