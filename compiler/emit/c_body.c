/* c_body.c -- the loops over a row of a MAP kernel, in C.
 *
 * In: the reductions and effects of a phase, values as map_value.c writes them. Out: simd loops,
 * with sums in lanes that are added up behind the loop.
 */
#include "emit/map.h"
#include "op/op.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

enum {
    LANES = 64,    /* RT_LANES */
    FEW_LANES = 16 /* a row as short as that is added up in order */
};

static void write_effect(MapWriter *m, int n, const char *lane)
{
    Arena *a = m->e->cx->scratch;
    const Effect *f = &m->k->effects.at[n];
    const DType type = map_value(m, f->value)->dtype;
    const Code c = map_code(m, f->value, true);
    if (m->total[n])
        map_statement(m, arena_printf(a, "%s += %s;", lane ? lane : m->total[n],
                                      code_cast(m->e, c, type, DT_F64).text));
    else if (m->column[n])
        map_statement(m, arena_printf(a, "%s[%s] += %s;", m->column[n], m->column_index, c.text));
    else
        map_write(m, f, c, type);
}

/* ---- the loop over the row ----------------------------------------------------------------- */

static void write_row_effects(MapWriter *m, int phase)
{
    for (int i = 0; i < m->k->effects.len; i++)
        if (m->k->effects.at[i].phase == phase && !map_in_row(m, &m->k->effects.at[i]))
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
        const Value *v = map_value(m, r->reduce[i]);
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
        const Value *v = map_value(m, i);
        if (v->kind != VAL_REDUCE || v->phase != phase + 1)
            continue;
        r.reduce[r.n_reduce++] = i;
        r.places = r.places || v->op == OP_ARGMAX || v->op == OP_ARGMIN;
    }
    for (int i = 0; i < m->k->effects.len; i++) {
        if (m->k->effects.at[i].phase != phase || !map_in_row(m, &m->k->effects.at[i]))
            continue;
        r.effect[r.n_effect++] = i;
    }
    return r;
}

/* One running value for each column of the block. */
static void declare_columns(MapWriter *m, int n)
{
    Arena *a = m->e->cx->scratch;
    const Value *v = map_value(m, n);
    const char *name = m->temp[n], *start = map_reduce_start(m, v, v->dtype);
    const bool zero = strcmp(start, "0") == 0;
    map_statement(m, arena_printf(a, "%s %s[RT_COLUMNS]%s;", c_type(m->e, v->dtype), name,
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
    map_statement(
        m, arena_printf(a, "%s %s[RT_LANES]%s;", c_type(m->e, t), lanes, zero ? " = { 0 }" : ""));
    if (!zero)
        map_statement(m, arena_printf(a, "rt_set_lanes_%s(%s, %s);", lane_suffix(t), lanes, start));
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
        const Value *v = map_value(m, r->reduce[i]);
        const char *how = v->op == OP_SUM ? "sum" : v->op == OP_AMAX ? "max" : "min";
        if (r->lanes[i])
            map_statement(m, arena_printf(a, "const %s %s = rt_%s_lanes_%s(%s);",
                                          c_type(m->e, v->dtype), m->temp[r->reduce[i]], how,
                                          lane_suffix(v->dtype), r->lanes[i]));
    }
    for (int i = 0; i < r->n_effect; i++)
        if (r->total_lane[i])
            map_statement(m, arena_printf(a, "%s += rt_sum_lanes_f64(%s);", m->total[r->effect[i]],
                                          r->total_lane[i]));
}

/* The variables of the reductions; for the index of the largest, one for the largest as well. */
static void declare_reductions(MapWriter *m, const RowWork *r, const char **best)
{
    Arena *a = m->e->cx->scratch;
    for (int i = 0; i < r->n_reduce; i++) {
        const int n = r->reduce[i];
        const Value *v = map_value(m, n);
        const DType in = map_value(m, v->in[0])->dtype;
        const bool place = v->op == OP_ARGMAX || v->op == OP_ARGMIN;
        const char *plain = v->op == OP_SUM    ? "sum"
                            : v->op == OP_AMAX ? "max"
                            : v->op == OP_AMIN ? "min"
                                               : "best";
        if (place) {
            best[i] = map_free_name(m, "best");
            map_statement(m, arena_printf(a, "%s %s = %s;", c_type(m->e, in), best[i],
                                          map_reduce_start(m, v, in)));
        }
        const bool named = v->name && map_is_free(m, map_short_name(m, v->name));
        m->temp[n] = map_free_name(m, named ? v->name : plain);
        if (m->across)
            declare_columns(m, n);
        else if (r->form != LANES_NONE && has_lanes(v))
            r->lanes[i] = declare_lane_array(m, m->temp[n], v->dtype,
                                             map_reduce_start(m, v, v->dtype));
        else
            map_statement(m, arena_printf(a, "%s %s = %s;", c_type(m->e, v->dtype), m->temp[n],
                                          place ? "0" : map_reduce_start(m, v, v->dtype)));
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
    const Value *v = map_value(m, n);
    const char *to = lane ? lane : m->temp[n];
    if (v->op == OP_SUM) {
        map_statement(m, arena_printf(a, "%s += %s;", to, map_code(m, v->in[0], true).text));
        return;
    }
    if (v->op == OP_AMAX || v->op == OP_AMIN) {
        map_statement(m, arena_printf(a, "%s = %s(%s, %s);", to,
                                      v->op == OP_AMAX ? "rt_max" : "rt_min", to,
                                      map_code(m, v->in[0], true).text));
        return;
    }
    const char x[] = "x";
    const DType t = map_value(m, v->in[0])->dtype;
    const char *name = m->temp[v->in[0]];
    if (name == NULL) {
        name = map_free_name(m, x);
        map_statement(m, arena_printf(a, "const %s %s = %s;", c_type(m->e, t), name,
                                      map_code(m, v->in[0], true).text));
    }
    map_statement(m,
                  arena_printf(a, "if (%s %s %s%s) {", name, v->op == OP_ARGMAX ? ">" : "<", best,
                               dtype_is_real(t)
                                   ? arena_printf(a, " || (isnan(%s) && !isnan(%s))", name, best)
                                   : ""));
    map_statement(m, arena_printf(a, "    %s = %s;", best, name));
    map_statement(m, arena_printf(a, "    %s = %s%s;", to, m->wide[m->n_outer] ? "(int32_t)" : "",
                                  m->index[m->n_outer]));
    map_statement(m, "}");
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
            if (map_value(m, r->reduce[i])->op == kinds[k].op && !r->lanes[i])
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
        const Value *v = map_value(m, i);
        if (v->kind != VAL_LOAD || m->level[i] != LEVEL_ELEM || m->uses[i] == 0 || m->temp[i])
            continue;
        const KernelArg *arg = &m->k->args.at[v->access.arg];
        if (arg->written || !arg->exclusive)
            map_declare(m, i, map_compute(m, i));
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
        map_statement(m, pragma);
    map_statement(m, emit_format(m->e, "for (%s %s = %s; %s < %s; %s++)%s", map_index_type(m, axis),
                                 i, from, i, to, i, brace ? " {" : ""));
    text_put(m->out, body);
    if (brace)
        map_statement(m, "}");
}

void map_row_effects(MapWriter *m, int phase)
{
    MapInner x;
    if (!m->across) {
        memset(m->uses, 0, sizeof *m->uses * (size_t)m->k->values.len);
        write_row_effects(m, phase);
        return;
    }
    map_inner_open(m, &x, 1);
    for (int i = 0; i < m->k->effects.len; i++)
        if (m->k->effects.at[i].phase == phase && !map_in_row(m, &m->k->effects.at[i]))
            map_count_uses(m, m->k->effects.at[i].value);
    write_row_effects(m, phase);
    const char *body = map_inner_close(m, &x);
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
    map_statement(m, emit_format(m->e, "for (%s block = %s; block < %s; block += RT_LANES) {", type,
                                 from, to));
    m->indent += INDENT;
    if (!even)
        map_statement(m,
                      emit_format(m->e, "const %s end = rt_min(block + RT_LANES, %s);", type, to));
    map_loop(m, m->n_outer, "block", even ? "block + RT_LANES" : "end", pragma, body);
    m->indent -= INDENT;
    map_statement(m, "}");
}

/* The statements of one element, as the body of its loop. */
static const char *row_body(MapWriter *m, const RowWork *r, const char *const *best)
{
    MapInner x;
    map_inner_open(m, &x, 1 + (m->across || r->form == LANES_BLOCKS));
    for (int i = 0; i < r->n_reduce; i++)
        map_count_uses(m, map_value(m, r->reduce[i])->in[0]);
    for (int i = 0; i < r->n_effect; i++)
        map_count_uses(m, m->k->effects.at[r->effect[i]].value);
    declare_forced(m, r);
    for (int i = 0; i < r->n_reduce; i++)
        reduce_statement(m, r->reduce[i], r->lanes[i] ? lane_at(m, r, r->lanes[i]) : NULL, best[i]);
    for (int i = 0; i < r->n_effect; i++)
        write_effect(m, r->effect[i], r->total_lane[i] ? lane_at(m, r, r->total_lane[i]) : NULL);
    return map_inner_close(m, &x);
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
        MapInner x;
        map_inner_open(m, &x, 1);
        map_loop(m, m->n_outer - 1, "block", "end", "RT_SIMD()", body);
        body = map_inner_close(m, &x);
    }
    if (r.form == LANES_BLOCKS)
        loop_blocks(m, from, to, row_pragma(m, &r, to), body);
    else
        map_loop(m, m->n_outer, from, to, row_pragma(m, &r, to), body);
    fold_lanes(m, &r);
}
