/* c_map.c -- a MAP kernel as loops: outer axes, and the row with its phases.
 *
 * In: values, phases and effects. Out: the body of a function, in one of five forms:
 *   rows       parallel over the outer axes; per row the phases, each a simd loop over the row
 *   across     rows whose elements lie far apart, while neighbours along the last outer axis lie
 *              side by side: blocks of that axis are walked inside the row, as simd loops
 *   flat       one parallel simd loop
 *   columns    sums over the outer axes alone: parallel over blocks of columns, rows in order
 *   chunks     sums over the outer axes or over everything, beside other work: RT_CHUNKS fixed
 *              ranges of rows, one partial result each, added up in order
 * so that no result depends on the number of threads. Sums over a row go into lanes (c_body.c), so
 * that none depends on what else its loop does either.
 */
#include "emit/map.h"
#include "op/op.h"

#include <string.h>

/* ---- which form ------------------------------------------------------------------------------ */

static bool has_effect(const Kernel *k, EffectKind kind)
{
    for (int i = 0; i < k->effects.len; i++)
        if (k->effects.at[i].kind == kind)
            return true;
    return false;
}

static bool has_reduce(const Kernel *k)
{
    for (int i = 0; i < k->values.len; i++)
        if (k->values.at[i].kind == VAL_REDUCE)
            return true;
    return false;
}

bool c_map_needs_partials(const Kernel *k)
{
    const bool other = has_effect(k, EFFECT_STORE) || has_effect(k, EFFECT_TOTAL) || has_reduce(k);
    return k->kind == KERNEL_MAP && has_effect(k, EFFECT_COLUMN) && k->n_axes > 1 && other;
}

static bool is_stride_one(const Dim *d) { return d != NULL && dim_is(d, 1); }

/* Does neither axis stand in the way: +1 far apart along the row and side by side along the axis
   before it, -1 the other way round, 0 where it does not matter. */
static int leans_across(const Kernel *k, const Access *a)
{
    const int row = k->n_axes - 1;
    const bool by_row = a->stride[row] != NULL, by_column = a->stride[row - 1] != NULL;
    if (is_stride_one(a->stride[row]) || (by_column && !is_stride_one(a->stride[row - 1])))
        return by_column || by_row ? -1 : 0;
    return by_row && by_column;
}

/* Rows that only reduce and store, and whose loads all lie across. */
static bool goes_across(Emitter *e, const Kernel *k)
{
    enum { LEAST = 8 }; /* columns that make it worth while */
    int across = 0;
    if (!k->has_row || k->n_axes < 2 || !has_reduce(k)
        || emit_train_value(e, k->axis[k->n_axes - 2]) < LEAST)
        return false;
    for (int i = 0; i < k->values.len; i++) {
        const Value *v = &k->values.at[i];
        if (v->kind == VAL_REDUCE && (v->op == OP_ARGMAX || v->op == OP_ARGMIN))
            return false;
        if (v->kind != VAL_LOAD)
            continue;
        if (v->level == LEVEL_ROW && k->args.at[v->access.arg].written)
            return false;
        const int lean = v->access.index >= 0 ? -1 : leans_across(k, &v->access);
        if (lean < 0)
            return false;
        across += lean;
    }
    for (int i = 0; i < k->effects.len; i++)
        if (k->effects.at[i].kind != EFFECT_STORE || leans_across(k, &k->effects.at[i].access) < 0)
            return false;
    return across > 0;
}

/* ---- index variables ------------------------------------------------------------------------- */

/* Could an index into this access leave the range of int, if all its parts are int? */
static bool access_is_wide(MapWriter *m, const Access *a)
{
    const Dim *top = a->offset ? a->offset : dim_const(m->e->p->dims, 0);
    for (int i = 0; i < m->n_axes; i++)
        if (a->stride[i])
            top = dim_add(m->e->p->dims, top, dim_mul(m->e->p->dims, a->stride[i], m->k->axis[i]));
    int64_t v;
    return dim_value(top, &v) && v > INT32_MAX;
}

static void widen(MapWriter *m, const Access *a)
{
    if (a->arg >= 0 && access_is_wide(m, a))
        for (int i = 0; i < m->n_axes; i++)
            m->wide[i] = m->wide[i] || a->stride[i] != NULL;
}

/* "ib" for axis b, "i" for an axis without a name. */
static const char *index_name(MapWriter *m, const char *axis)
{
    if (axis == NULL)
        return names_take_exact(m->e, m->w->names, "i");
    return names_take(m->e, m->w->names, emit_format(m->e, "i%s", axis));
}

void map_name_indices(MapWriter *m)
{
    for (int i = 0; i < m->n_axes; i++) {
        m->wide[i] = !dim_fits_int(m->e, m->k->axis[i]);
        m->index[i] = index_name(m, m->k->axis_name[i]);
    }
    for (int i = 0; i < m->k->values.len; i++)
        if (m->k->values.at[i].kind == VAL_LOAD)
            widen(m, &m->k->values.at[i].access);
    for (int i = 0; i < m->k->effects.len; i++)
        widen(m, &m->k->effects.at[i].access);
}

/* ---- loops ----------------------------------------------------------------------------------- */

static void line(MapWriter *m, const char *s) { emit_statement(m->out, m->indent, s); }

static void open_loop(MapWriter *m, int axis, const char *from, const char *to, bool brace)
{
    const char *i = m->index[axis];
    line(m, emit_format(m->e, "for (%s %s = %s; %s < %s; %s++)%s", map_index_type(m, axis), i, from,
                        i, to, i, brace ? " {" : ""));
    m->indent += INDENT;
}

static void close_loop(MapWriter *m, bool brace)
{
    m->indent -= INDENT;
    if (brace)
        line(m, "}");
}

const Dim *map_space(MapWriter *m, int axes)
{
    const Dim *n = dim_one(m->e);
    for (int i = 0; i < axes; i++)
        n = dim_mul(m->e->p->dims, n, m->k->axis[i]);
    return n;
}

static const char *size_text(MapWriter *m, const Dim *d) { return dim_c(&m->w->dims, d); }

static void parallel(MapWriter *m, int axes)
{
    line(m,
         emit_format(m->e, "RT_PARALLEL_FOR(%d, %s)", axes, size_text(m, map_space(m, m->n_axes))));
}

/* ---- sums over everything -------------------------------------------------------------------- */

static bool is_total(const Effect *f) { return f->kind == EFFECT_TOTAL; }

/* "loss" -> names of its running total and of the array of its partial results. */
static void declare_totals(MapWriter *m, bool chunked)
{
    for (int i = 0; i < m->k->effects.len; i++) {
        const Effect *f = &m->k->effects.at[i];
        if (!is_total(f))
            continue;
        const char *arg = m->w->arg[f->access.arg];
        m->total[i] = names_take(m->e, m->w->names, emit_format(m->e, "total_%s", arg));
        if (!chunked) {
            line(m, emit_format(m->e, "double %s = 0;", m->total[i]));
            continue;
        }
        m->partial[i] = names_take(m->e, m->w->names, emit_format(m->e, "part_%s", arg));
        line(m, emit_format(m->e, "double %s[RT_CHUNKS];", m->partial[i]));
    }
}

/* Adds the totals to where they belong. */
static void store_totals(MapWriter *m, bool chunked)
{
    Arena *a = m->e->cx->scratch;
    for (int i = 0; i < m->k->effects.len; i++) {
        const Effect *f = &m->k->effects.at[i];
        if (!is_total(f))
            continue;
        const char *sum = chunked ? arena_printf(a, "rt_sum_chunks(%s, chunks)", m->partial[i])
                                  : m->total[i];
        map_write(m, f, code_plain(sum), DT_F64);
    }
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* All phases of one row. */
static void write_row(MapWriter *m, const char *from, const char *to)
{
    for (int phase = 0; phase < m->k->n_phases; phase++) {
        map_row_values(m, phase);
        map_row_loop(m, phase, from, to);
        map_row_effects(m, phase);
    }
}

static void write_rows(MapWriter *m)
{
    const char *row = m->has_row ? size_text(m, m->k->axis[m->n_outer]) : "";
    if (m->n_outer > 0) {
        parallel(m, m->n_outer);
        for (int i = 0; i < m->n_outer; i++)
            open_loop(m, i, "0", size_text(m, m->k->axis[i]), i == m->n_outer - 1);
    }
    m->inside = m->n_outer > 0;
    write_row(m, "0", row);
    for (int i = m->n_outer - 1; i >= 0; i--)
        close_loop(m, i == m->n_outer - 1);
}

/* ---- rows, across ---------------------------------------------------------------------------- */

static void open_block(MapWriter *m, int axis)
{
    const char *type = map_index_type(m, axis), *size = size_text(m, m->k->axis[axis]);
    line(m, emit_format(m->e, "for (%s block = 0; block < %s; block += RT_COLUMNS) {", type, size));
    m->indent += INDENT;
    line(m, emit_format(m->e, "const %s end = rt_min(block + RT_COLUMNS, %s);", type, size));
}

static void write_across(MapWriter *m)
{
    parallel(m, m->n_outer);
    for (int i = 0; i < m->n_outer - 1; i++)
        open_loop(m, i, "0", size_text(m, m->k->axis[i]), false);
    open_block(m, m->n_outer - 1);
    m->inside = true;
    write_row(m, "0", size_text(m, m->k->axis[m->n_outer]));
    close_loop(m, true);
    for (int i = m->n_outer - 2; i >= 0; i--)
        close_loop(m, false);
}

/* ---- columns --------------------------------------------------------------------------------- */

/* A loop that writes the sums of one column effect where they belong. */
static void store_column(MapWriter *m, const Effect *f, const char *sums, const char *index,
                         const char *from, const char *to)
{
    Arena *a = m->e->cx->scratch;
    Text body = text_new(a), *out = m->out;
    const Code sum = { arena_printf(a, "%s[%s]", sums, index), PREC_PRIMARY, false, NULL };
    m->out = &body;
    m->indent += INDENT;
    map_write(m, f, sum, m->k->values.at[f->value].dtype);
    m->indent -= INDENT;
    m->out = out;
    const bool brace = !map_is_one_statement(body.at);
    line(m, "RT_SIMD()");
    open_loop(m, m->n_outer, from, to, brace);
    text_put(m->out, body.at);
    close_loop(m, brace);
}

static void write_columns(MapWriter *m)
{
    Arena *a = m->e->cx->scratch;
    const int row = m->n_outer;
    parallel(m, 1);
    open_block(m, row);
    for (int i = 0; i < m->k->effects.len; i++) {
        m->column[i] = names_take(
            m->e, m->w->names,
            m->k->effects.len == 1
                ? "sum"
                : arena_printf(a, "sum_%s", m->w->arg[m->k->effects.at[i].access.arg]));
        line(m, arena_printf(a, "%s %s[RT_COLUMNS] = { 0 };",
                             c_type(m->e, m->k->values.at[m->k->effects.at[i].value].dtype),
                             m->column[i]));
    }
    m->column_index = arena_printf(a, "%s - block", m->index[row]);
    for (int i = 0; i < m->n_outer; i++)
        open_loop(m, i, "0", size_text(m, m->k->axis[i]), i == m->n_outer - 1);
    m->inside = true;
    write_row(m, "block", "end");
    for (int i = m->n_outer - 1; i >= 0; i--)
        close_loop(m, i == m->n_outer - 1);
    for (int i = 0; i < m->k->effects.len; i++)
        store_column(m, &m->k->effects.at[i], m->column[i], m->column_index, "block", "end");
    m->indent -= INDENT;
    line(m, "}");
}

/* ---- chunks ---------------------------------------------------------------------------------- */

/* The partial rows of column sum number n of this kernel lie in its last argument. */
static const char *partial_rows(MapWriter *m, int n)
{
    const char *work = m->w->arg[m->k->args.len - 1];
    const char *size = dim_c_factor(&m->w->dims, m->k->axis[m->n_outer]);
    return n == 0   ? work
           : n == 1 ? emit_format(m->e, "%s + RT_CHUNKS*%s", work, size)
                    : emit_format(m->e, "%s + %d*RT_CHUNKS*%s", work, n, size);
}

static const char *suffix_of(DType t) { return t == DT_F64 ? "f64" : "f32"; }

static void open_partial_columns(MapWriter *m)
{
    Arena *a = m->e->cx->scratch;
    const Dim *columns = m->k->axis[m->n_outer];
    int n = 0;
    for (int i = 0; i < m->k->effects.len; i++) {
        const Effect *f = &m->k->effects.at[i];
        if (f->kind != EFFECT_COLUMN)
            continue;
        const DType type = m->k->values.at[f->value].dtype;
        m->column[i] = names_take(m->e, m->w->names,
                                  arena_printf(a, "part_%s", m->w->arg[f->access.arg]));
        m->column_index = m->index[m->n_outer];
        line(m,
             arena_printf(a, "%s *restrict %s = rt_zeros_%s(%s + chunk*%s, %s);",
                          c_type(m->e, type), m->column[i], suffix_of(type), partial_rows(m, n++),
                          dim_c_factor(&m->w->dims, columns), size_text(m, columns)));
    }
}

static void store_partial_columns(MapWriter *m)
{
    Arena *a = m->e->cx->scratch;
    const Dim *columns = m->k->axis[m->n_outer];
    int n = 0;
    for (int i = 0; i < m->k->effects.len; i++) {
        const Effect *f = &m->k->effects.at[i];
        if (f->kind != EFFECT_COLUMN)
            continue;
        if (!dim_is(f->access.stride[m->n_outer], 1))
            bug("kernel %s: a sum of columns is not dense", m->k->name);
        const char *flag = c_flag(m->w, f->add), *to = m->w->arg[f->access.arg];
        if (!dim_is(f->access.offset, 0))
            to = arena_printf(a, "%s + %s", to, dim_c_factor(&m->w->dims, f->access.offset));
        line(m, arena_printf(a, "rt_add_rows_%s(%s, %s, chunks, %s, %s);",
                             suffix_of(m->k->values.at[f->value].dtype), to, partial_rows(m, n++),
                             size_text(m, columns),
                             flag                   ? flag
                             : f->add == ADD_ALWAYS ? "true"
                                                    : "false"));
    }
}

/* Index variables of the outer axes from the number of the row. */
static void split_row(MapWriter *m)
{
    Arena *a = m->e->cx->scratch;
    const char *rest = "row";
    for (int i = 0; i < m->n_outer; i++) {
        const Dim *inner = dim_one(m->e);
        for (int j = i + 1; j < m->n_outer; j++)
            inner = dim_mul(m->e->p->dims, inner, m->k->axis[j]);
        const bool last = i == m->n_outer - 1, first = i == 0;
        const char *size = dim_c_divisor(&m->w->dims, m->k->axis[i]);
        Text t = text_new(a);
        text_put(&t, rest);
        if (!last)
            text_add(&t, " / %s", dim_c_divisor(&m->w->dims, inner));
        if (!first)
            text_add(&t, " %% %s", size);
        line(m, arena_printf(a, m->wide[i] ? "const %s %s = %s%s;" : "const %s %s = (int)(%s%s);",
                             map_index_type(m, i), m->index[i], t.at, ""));
    }
}

static void write_chunks(MapWriter *m)
{
    Arena *a = m->e->cx->scratch;
    const bool flat = m->n_outer == 0;
    const Dim *rows = flat ? m->k->axis[0] : map_space(m, m->n_outer);
    line(m, arena_printf(a, "const int chunks = rt_chunks(%s);", size_text(m, rows)));
    declare_totals(m, true);
    parallel(m, 1);
    line(m, "for (int chunk = 0; chunk < chunks; chunk++) {");
    m->indent += INDENT;
    line(m, arena_printf(a, "const ptrdiff_t from = rt_chunk(%s, chunk, chunks);",
                         size_text(m, rows)));
    line(m, arena_printf(a, "const ptrdiff_t to = rt_chunk(%s, chunk + 1, chunks);",
                         size_text(m, rows)));
    for (int i = 0; i < m->k->effects.len; i++)
        if (is_total(&m->k->effects.at[i]))
            line(m, arena_printf(a, "double %s = 0;", m->total[i]));
    open_partial_columns(m);
    if (flat) {
        m->wide[0] = true;
        m->inside = true;
        write_row(m, "from", "to");
    } else {
        if (m->n_outer == 1) {
            m->wide[0] = true;
            open_loop(m, 0, "from", "to", true);
        } else {
            line(m, "for (ptrdiff_t row = from; row < to; row++) {");
            m->indent += INDENT;
            split_row(m);
        }
        m->inside = true;
        write_row(m, "0", size_text(m, m->k->axis[m->n_outer]));
        m->indent -= INDENT;
        line(m, "}");
    }
    for (int i = 0; i < m->k->effects.len; i++)
        if (is_total(&m->k->effects.at[i]))
            line(m, arena_printf(a, "%s[chunk] = %s;", m->partial[i], m->total[i]));
    m->indent -= INDENT;
    line(m, "}");
    store_totals(m, true);
    store_partial_columns(m);
}

/* ---- the kernel ------------------------------------------------------------------------------ */

/* A kernel without a row makes its last axis the row, so that it is a simd loop. */
static void settle_axes(MapWriter *m)
{
    Kernel *k = m->k;
    m->n_axes = k->n_axes;
    m->has_row = k->n_axes > 0;
    m->n_outer = m->has_row ? k->n_axes - 1 : 0;
    m->level = NEW_ARRAY(m->e->cx->scratch, Level, k->values.len + 1);
    for (int i = 0; i < k->values.len; i++) {
        m->level[i] = k->values.at[i].level;
        if (m->level[i] != LEVEL_ONCE && !k->has_row)
            m->level[i] = m->has_row ? LEVEL_ELEM : LEVEL_ROW;
        else if (m->level[i] == LEVEL_ROW && m->across && k->values.at[i].kind != VAL_REDUCE)
            m->level[i] = LEVEL_ELEM; /* another one for each column of the block */
    }
}

void c_map(KernelWriter *w)
{
    Arena *a = w->e->cx->scratch;
    Kernel *k = w->k;
    MapWriter m = { .w = w, .e = w->e, .k = k, .out = &w->body, .indent = INDENT };
    const int n = k->values.len + 1, n_effects = k->effects.len + 1;
    m.across = goes_across(w->e, k);
    settle_axes(&m);
    m.temp = NEW_ARRAY(a, const char *, n);
    m.uses = NEW_ARRAY(a, int, n);
    m.hoist = NEW_ARRAY(a, bool, n);
    m.force = NEW_ARRAY(a, bool, n);
    m.total = NEW_ARRAY(a, const char *, n_effects);
    m.partial = NEW_ARRAY(a, const char *, n_effects);
    m.column = NEW_ARRAY(a, const char *, n_effects);
    map_name_indices(&m);
    map_prepare(&m);
    map_once_values(&m);
    const bool totals = has_effect(k, EFFECT_TOTAL), columns = has_effect(k, EFFECT_COLUMN);
    const bool one_row = m.n_outer == 0;
    if (c_map_needs_partials(k) || (totals && m.has_row && !(one_row && has_reduce(k)))) {
        write_chunks(&m);
    } else if (m.across) {
        write_across(&m);
    } else if (columns && !one_row) {
        write_columns(&m);
    } else {
        if (m.has_row)
            declare_totals(&m, false);
        write_rows(&m);
        if (m.has_row)
            store_totals(&m, false);
    }
}
