/* cu_map.c -- a MAP kernel as a __global__ function: which block and thread does which rows.
 *
 * In: a kernel and its form (cu_form.c). Out: the body of the function, its launch and what the
 * comment says of it, and the second stage that adds partial sums:
 *   flat      a thread per vector of the last axis
 *   rows      a warp, a block or a thread per row; its phases as cu_row.c writes them
 *   columns   32 vectors of columns times a range of rows per block
 * Sums over rows or everything: a fixed number of blocks, each over a fixed range, one partial
 * result each, which rt_add_parts adds in a fixed order; a single block writes the sum itself.
 */
#include "emit/cu_map.h"

#include <string.h>

enum {
    SHARED_FREE = 48 * 1024,   /* bytes of shared memory that any kernel may have */
    SHARED_OF_SM = 226 * 1024, /* ... that the blocks of a multiprocessor share, of sm_90 */
};

static void line(CuMap *x, const char *s) { map_statement(&x->m, s); }

static const char *size_text(CuMap *x, const Dim *d) { return dim_c(&x->m.w->dims, d); }

static const char *factor(CuMap *x, const Dim *d) { return dim_c_factor(&x->m.w->dims, d); }

static const Dim *rows_of(CuMap *x) { return map_space(&x->m, x->row < 0 ? 0 : x->row); }

static void open_brace(CuMap *x, const char *s)
{
    line(x, emit_format(x->m.e, "%s {", s));
    x->m.indent += INDENT;
}

static void close_brace(CuMap *x)
{
    x->m.indent -= INDENT;
    line(x, "}");
}

/* ---- indices --------------------------------------------------------------------------------- */

/* Index variables of the first n axes from one number over them; only those that are used. */
static void split_index(CuMap *x, Text *out, const char *number, int n, const char *body)
{
    MapWriter *m = &x->m;
    Emitter *e = m->e;
    for (int i = 0; i < n; i++) {
        const Dim *inner = dim_one(e);
        Text t = text_new(e->cx->scratch);
        if (!cu_has_word(body, m->index[i]) || strcmp(number, m->index[i]) == 0)
            continue;
        for (int j = i + 1; j < n; j++)
            inner = dim_mul(e->p->dims, inner, m->k->axis[j]);
        text_put(&t, number);
        if (!dim_is(inner, 1))
            text_add(&t, " / %s", dim_c_divisor(&m->w->dims, inner));
        if (i > 0)
            text_add(&t, " %% %s", dim_c_divisor(&m->w->dims, m->k->axis[i]));
        text_add(out, m->wide[i] ? "%*sconst %s %s = %s;\n" : "%*sconst %s %s = (int)(%s);\n",
                 m->indent, "", map_index_type(m, i), m->index[i], t.at);
    }
}

/* ---- totals ---------------------------------------------------------------------------------- */

static bool in_parts(const CuMap *x) { return x->f.parts > 1; }

static int number_of(const Kernel *k, int effect)
{
    int n = 0;
    for (int i = 0; i < effect; i++)
        n += k->effects.at[i].kind == k->effects.at[effect].kind;
    return n;
}

static void declare_totals(CuMap *x)
{
    MapWriter *m = &x->m;
    for (int i = 0; x->f.totals && i < m->k->effects.len; i++) {
        const Effect *f = &m->k->effects.at[i];
        if (f->kind != EFFECT_TOTAL)
            continue;
        m->total[i] = names_take(m->e, m->w->names,
                                 emit_format(m->e, "total_%s", m->w->arg[f->access.arg]));
        line(x, emit_format(m->e, "double %s = 0;", m->total[i]));
    }
}

static const char work_name[] = "work", total_work_name[] = "work_totals";

static const char *work_arg(CuMap *x, const char *name)
{
    for (int i = 0; i < x->m.k->args.len; i++)
        if (x->m.k->args.at[i].name == name)
            return x->m.w->arg[i];
    bug("kernel %s has no %s", x->m.k->name, name);
}

static void store_totals(CuMap *x)
{
    MapWriter *m = &x->m;
    Emitter *e = m->e;
    for (int i = 0; i < m->k->effects.len; i++)
        if (m->total[i] && x->f.threads > 1)
            line(x, emit_format(e, "%s = rt_block_sum(%s);", m->total[i], m->total[i]));
    for (int i = 0; i < m->k->effects.len; i++) {
        const Effect *f = &m->k->effects.at[i];
        if (m->total[i] == NULL)
            continue;
        const bool one = x->f.threads > 1;
        Text body = text_new(e->cx->scratch), *out = m->out;
        m->out = &body;
        m->indent += one ? INDENT : 0;
        if (!in_parts(x))
            map_write(m, f, code_plain(m->total[i]), DT_F64);
        else
            line(x, emit_format(e, "%s[blockIdx.x%s] = %s;", work_arg(x, total_work_name),
                                x->f.totals == 1
                                    ? ""
                                    : emit_format(e, "*%d + %d", x->f.totals, number_of(m->k, i)),
                                m->total[i]));
        m->indent -= one ? INDENT : 0;
        m->out = out;
        const bool brace = one && !map_is_one_statement(body.at);
        if (one)
            line(x, brace ? "if (threadIdx.x == 0) {" : "if (threadIdx.x == 0)");
        text_put(m->out, body.at);
        if (brace)
            line(x, "}");
    }
}

/* ---- sums of columns ------------------------------------------------------------------------- */

static const Effect *first_column(const Kernel *k)
{
    for (int i = 0; i < k->effects.len; i++)
        if (k->effects.at[i].kind == EFFECT_COLUMN)
            return &k->effects.at[i];
    return NULL;
}

static DType sum_type(const Kernel *k) { return k->values.at[first_column(k)->value].dtype; }

/* "work[((ptrdiff_t)blockIdx.x*2 + 1)*C": where the partial row of a sum in this block begins. */
static const char *part_row(CuMap *x, int effect, const char *block)
{
    const char *columns = factor(x, x->m.k->axis[x->row]);
    const int n = number_of(x->m.k, effect);
    block = emit_format(x->m.e, "(ptrdiff_t)%s", block);
    const char *at = x->f.columns == 1 ? block
                     : n == 0          ? emit_format(x->m.e, "%s*%d", block, x->f.columns)
                              : emit_format(x->m.e, "(%s*%d + %d)", block, x->f.columns, n);
    return emit_format(x->m.e, "%s*%s", at, columns);
}

static const char *sum_name(CuMap *x, const Effect *f)
{
    return names_take(
        x->m.e, x->m.w->names,
        x->f.columns == 1 ? "sums" : emit_format(x->m.e, "sum_%s", x->m.w->arg[f->access.arg]));
}

/* Registers for the sums of this thread's columns, or the block's row in the workspace. */
static void declare_columns(CuMap *x)
{
    MapWriter *m = &x->m;
    Emitter *e = m->e;
    for (int i = 0; x->f.columns && i < m->k->effects.len; i++) {
        const Effect *f = &m->k->effects.at[i];
        if (f->kind != EFFECT_COLUMN)
            continue;
        const char *type = c_type(e, m->k->values.at[f->value].dtype);
        m->column[i] = sum_name(x, f);
        if (!x->f.in_work) {
            line(x, emit_format(e, "%s %s[%d][%d] = {};", type, m->column[i],
                                x->f.kind == CU_COLUMNS ? 1 : x->f.count, x->f.vector));
            continue;
        }
        const char *size = size_text(x, m->k->axis[x->row]), *type_of = map_index_type(m, x->row);
        line(x, emit_format(e, "%s *%s = %s;", type, m->column[i],
                            emit_format(e, "%s + %s", work_arg(x, work_name),
                                        part_row(x, i, "blockIdx.x"))));
        line(x, emit_format(e, "for (%s %s = (int)threadIdx.x*%d; %s < %s; %s += %d)", type_of,
                            x->at, x->f.vector, x->at, size, x->at, x->f.threads * x->f.vector));
        const char *there = !x->f.ragged ? ""
                                         : emit_format(e, " && %s + %s < %s", x->at, x->elem, size);
        line(x, emit_format(e, "    for (int %s = 0; %s < %d%s; %s++)", x->elem, x->elem,
                            x->f.vector, there, x->elem));
        line(x, emit_format(e, "        %s[%s + %s] = 0;", m->column[i], x->at, x->elem));
    }
}

/* Writes one finished sum of column `index`: a partial one, or where it belongs. */
static void write_sum(CuMap *x, int effect, const char *index, const char *block, const char *sum)
{
    MapWriter *m = &x->m;
    const Effect *f = &m->k->effects.at[effect];
    const char *own = m->index[x->row];
    if (in_parts(x)) {
        line(x, emit_format(m->e, "%s[%s + %s] = %s;", work_arg(x, work_name),
                            part_row(x, effect, block), index, sum));
        return;
    }
    m->index[x->row] = index;
    map_write(m, f, code_plain(sum), m->k->values.at[f->value].dtype);
    m->index[x->row] = own;
}

/* "for (int column = threadIdx.x; column < C; column += 128) {": a thread's columns of n. Where a
   thread has one at most, `if`, or nothing at all; n < 0: known when the program starts. */
static void open_columns(CuMap *x, const char *column, int64_t n, const char *size)
{
    Emitter *e = x->m.e;
    const int threads = x->f.threads;
    if (n < 0 || n > threads)
        open_brace(x, emit_format(e, "for (int %s = (int)threadIdx.x; %s < %s; %s += %d)", column,
                                  column, size, column, threads));
    else if (n < threads)
        open_brace(x, emit_format(e, "if (%s < %s)", column, size));
}

/* Warps of a block have sums of the same columns: added up in shared memory. tile: columns there,
   from `first` on; 0: all of the row. */
static void store_shared_sums(CuMap *x, int count, int tile, const char *first, const char *block)
{
    MapWriter *m = &x->m;
    Emitter *e = m->e;
    const Dim *axis = m->k->axis[x->row];
    const char *all = names_take_exact(e, m->w->names, "all");
    const char *c = names_take_exact(e, m->w->names, "column");
    int64_t n = tile;
    if (tile == 0 && !dim_value(axis, &n))
        n = -1;
    const char *size = tile ? emit_format(e, "%d", tile) : size_text(x, axis);
    const bool loop = n < 0 || n > x->f.threads, bounded = tile && !dim_is_multiple(axis, tile);
    line(x, emit_format(e, "__shared__ %s %s[%s%d*RT_SUM_ROW(%d)];", c_type(e, sum_type(m->k)), all,
                        count > 1 ? emit_format(e, "%d*", count) : "", x->f.vector, x->f.vector));
    if (!loop)
        line(x, emit_format(e, "const int %s = (int)threadIdx.x;", c));
    for (int i = 0, done = 0; i < m->k->effects.len; i++) {
        if (m->column[i] == NULL)
            continue;
        if (done++ > 0)
            line(x, "__syncthreads();");
        line(x, emit_format(e, "rt_add_warps<%d, %d>(%s, %s);", count, x->f.vector, all,
                            m->column[i]));
        open_columns(x, c, n, size);
        if (bounded)
            line(x, emit_format(e, "if (%s + %s < %s)", first, c, size_text(x, axis)));
        m->indent += bounded ? INDENT : 0;
        write_sum(x, i, first ? emit_format(e, "%s + %s", first, c) : c, block,
                  emit_format(e, "%s[rt_sum_at<%d>(%s)]", all, x->f.vector, c));
        m->indent -= bounded ? INDENT : 0;
        if (n != x->f.threads)
            close_brace(x);
    }
}

/* A block per row: each column has one thread. */
static void store_own_sums(CuMap *x)
{
    MapWriter *m = &x->m;
    Emitter *e = m->e;
    const char *size = size_text(x, m->k->axis[x->row]);
    const char *at = names_take_exact(e, m->w->names, "column");
    if (x->f.in_work) {
        for (int i = 0; i < m->k->effects.len; i++)
            if (m->column[i] && !in_parts(x))
                bug("kernel %s: sums in the workspace without a second stage", m->k->name);
        return;
    }
    line(x, "RT_UNROLL");
    open_brace(x, emit_format(e, "for (int %s = 0; %s < %d; %s++)", x->k, x->k, x->f.count, x->k));
    line(x, "RT_UNROLL");
    open_brace(x, emit_format(e, "for (int %s = 0; %s < %d; %s++)", x->elem, x->elem, x->f.vector,
                              x->elem));
    line(x, emit_format(e, "const int %s = (%s*%d + (int)threadIdx.x)*%d + %s;", at, x->k,
                        x->f.threads, x->f.vector, x->elem));
    if (!x->f.whole)
        line(x, emit_format(e, "if (%s >= %s)", at, size));
    if (!x->f.whole)
        line(x, "    break;");
    for (int i = 0; i < m->k->effects.len; i++)
        if (m->column[i])
            write_sum(x, i, at, "blockIdx.x",
                      emit_format(e, "%s[%s][%s]", m->column[i], x->k, x->elem));
    close_brace(x);
    close_brace(x);
}

/* ---- flat ------------------------------------------------------------------------------------ */

static void write_flat(CuMap *x)
{
    MapWriter *m = &x->m;
    Emitter *e = m->e;
    const Dim *all = map_space(m, m->n_axes);
    const int n = x->f.vector, step = x->f.threads * n;
    const bool one_axis = m->n_axes == 1, loop = x->f.totals > 0;
    const char *number = n == 1 && one_axis ? m->index[0]
                         : one_axis         ? x->at
                                            : names_take_exact(e, m->w->names, "n");
    Text body = text_new(e->cx->scratch), indices = text_new(e->cx->scratch), *out = m->out;
    declare_totals(x);
    m->indent += loop ? INDENT : 0;
    m->out = &body;
    map_row_values(m, 0);
    cu_row(x, 0);
    cu_row_effects(x, 0);
    m->out = out;
    const char *last = m->index[x->row];
    if (!one_axis && n > 1)
        m->index[x->row] = x->at;
    split_index(x, &indices, number, m->n_axes, body.at);
    m->index[x->row] = last;
    m->indent -= loop ? INDENT : 0;
    const char *first = emit_format(e, "((ptrdiff_t)blockIdx.x*%d + threadIdx.x)%s", x->f.threads,
                                    n > 1 ? emit_format(e, "*%d", n) : "");
    if (n == 1)
        first = emit_format(e, "(ptrdiff_t)blockIdx.x*%d + threadIdx.x", x->f.threads);
    const char *size = size_text(x, all);
    if (loop) {
        open_brace(x, emit_format(e, "for (ptrdiff_t %s = %s; %s < %s; %s += %d)", number, first,
                                  number, size, number, x->f.parts * step));
        text_put(m->out, indices.at);
        text_put(m->out, body.at);
        close_brace(x);
        store_totals(x);
    } else {
        line(x, emit_format(e, "const ptrdiff_t %s = %s;", number, first));
        line(x, emit_format(e, "if (%s >= %s)", number, size));
        line(x, "    return;");
        text_put(m->out, indices.at);
        text_put(m->out, body.at);
    }
    x->c->grid = loop ? emit_format(e, "%d", x->f.parts)
                      : emit_format(e, "rt_blocks(%s, %d)", dim_c(&x->c->host, all), step);
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Does a phase load, once per row, what an earlier one has stored? */
static bool reads_back(const CuMap *x, int phase)
{
    const Kernel *k = x->m.k;
    for (int i = 0; i < k->values.len; i++) {
        const Value *v = &k->values.at[i];
        if (v->kind == VAL_LOAD && x->m.level[i] != LEVEL_ELEM && v->phase == phase
            && (k->args.at[v->access.arg].written || !k->args.at[v->access.arg].exclusive))
            return true;
    }
    return false;
}

static void sync_team(CuMap *x)
{
    if (x->f.team != CU_THREAD)
        line(x, x->f.team == CU_WARP ? "__syncwarp();" : "__syncthreads();");
}

/* All phases of one row. */
static void write_phases(CuMap *x)
{
    MapWriter *m = &x->m;
    Text body = text_new(m->e->cx->scratch), *out = m->out;
    m->out = &body;
    x->depth = m->indent;
    for (int phase = 0; phase < m->k->n_phases; phase++) {
        const bool back = reads_back(x, phase);
        if (back && phase > 0)
            sync_team(x);
        map_row_values(m, phase);
        if (back)
            sync_team(x);
        cu_row(x, phase);
        cu_row_effects(x, phase);
    }
    m->out = out;
    text_put(out, x->declared.at);
    text_put(out, body.at);
}

/* "from + warp", "warp" where from is NULL: 0. */
static const char *row_first(CuMap *x, const char *from)
{
    const char *team = x->f.team == CU_WARP || x->f.kind == CU_COLUMNS ? x->warp
                       : x->f.team == CU_THREAD                        ? "(int)threadIdx.x"
                                                                       : NULL;
    return !team ? (from ? from : "0") : from ? emit_format(x->m.e, "%s + %s", from, team) : team;
}

typedef struct {
    const char *from, *to; /* from: NULL, 0 */
} Range;

/* The block's rows: all, or those between two variables. */
static Range declare_range(CuMap *x, const char *block)
{
    Emitter *e = x->m.e;
    const char *rows = size_text(x, rows_of(x));
    if (!in_parts(x))
        return (Range){ NULL, rows };
    const Range r = { names_take_exact(e, x->m.w->names, "from"),
                      names_take_exact(e, x->m.w->names, "to") };
    line(x, emit_format(e, "const ptrdiff_t %s = rt_part(%s, %s, %d);", r.from, rows, block,
                        x->f.parts));
    line(x, emit_format(e, "const ptrdiff_t %s = rt_part(%s, %s + 1, %d);", r.to, rows, block,
                        x->f.parts));
    return r;
}

/* The head of the function: who this thread is, and its row or rows. */
static void open_rows(CuMap *x, const char *number)
{
    MapWriter *m = &x->m;
    Emitter *e = m->e;
    const char *rows = size_text(x, rows_of(x));
    const int teams = x->f.threads / cu_row_lanes(&x->f);
    if (x->f.parts > 0) {
        const Range r = declare_range(x, "blockIdx.x");
        declare_totals(x);
        declare_columns(x);
        open_brace(x, emit_format(e, "for (ptrdiff_t %s = %s; %s < %s; %s += %d)", number,
                                  row_first(x, r.from), number, r.to, number, teams));
        return;
    }
    const char *block = teams == 1 ? "blockIdx.x"
                                   : emit_format(e, "(ptrdiff_t)blockIdx.x*%d", teams);
    line(x, emit_format(e, "const ptrdiff_t %s = %s;", number, row_first(x, block)));
    if (x->f.team != CU_BLOCK) {
        line(x, emit_format(e, "if (%s >= %s)", number, rows));
        line(x, "    return;");
    }
}

static void write_rows(CuMap *x)
{
    MapWriter *m = &x->m;
    Emitter *e = m->e;
    Text body = text_new(e->cx->scratch), head = text_new(e->cx->scratch), *out = m->out;
    Text indices = text_new(e->cx->scratch);
    const bool one = x->row <= 0;
    const char *number = x->row == 1 && m->wide[0] ? m->index[0]
                                                   : names_take_exact(e, m->w->names, "row");
    m->outer = one ? NULL : number;
    if (one) {
        declare_totals(x);
    } else {
        m->out = &head;
        open_rows(x, number);
    }
    m->out = &body;
    write_phases(x);
    m->out = out;
    if (!one)
        split_index(x, &indices, number, x->row, body.at);
    text_put(&head, indices.at);
    text_put(&head, body.at);
    m->out = &head;
    if (!one && x->f.parts > 0)
        close_brace(x);
    if (x->f.columns && x->f.team == CU_WARP)
        store_shared_sums(x, x->f.count, 0, NULL, "blockIdx.x");
    else if (x->f.columns)
        store_own_sums(x);
    store_totals(x);
    m->out = out;
    if (cu_has_word(head.at, x->lane))
        line(x, emit_format(e, "const int %s = (int)threadIdx.x %% 32;", x->lane));
    if (cu_has_word(head.at, x->warp))
        line(x, emit_format(e, "const int %s = (int)threadIdx.x / 32;", x->warp));
    text_put(m->out, head.at);
    const int teams = x->f.threads / cu_row_lanes(&x->f);
    x->c->grid = one ? "1"
                 : x->f.parts > 0
                     ? emit_format(e, "%d", x->f.parts)
                     : emit_format(e, "rt_blocks(%s, %d)", dim_c(&x->c->host, rows_of(x)), teams);
    if (x->f.shared > 0)
        x->c->shared = x->shared.at;
    if (x->bytes != x->f.shared)
        bug("kernel %s: %d bytes of shared memory, not %d", m->k->name, x->bytes, x->f.shared);
    if (x->f.shared > SHARED_FREE)
        emit_statement(&x->c->locals, INDENT,
                       emit_format(e, "RT_ALLOW_SHARED(stream, %s, %s, %s);",
                                   emit_string(e, kernel_where(e, m->k)), x->c->device,
                                   x->shared.at));
    x->c->row_bytes = x->f.shared;
}

/* ---- columns --------------------------------------------------------------------------------- */

static void write_columns(CuMap *x)
{
    MapWriter *m = &x->m;
    Emitter *e = m->e;
    Text body = text_new(e->cx->scratch), indices = text_new(e->cx->scratch), *out = m->out;
    const int n = x->f.vector, tile = 32 * n, warps = x->f.threads / 32;
    const char *type = map_index_type(m, x->row), *at = n > 1 ? x->at : m->index[x->row];
    const char *first = names_take_exact(e, m->w->names, "first");
    const char *number = x->row == 1 && m->wide[0] ? m->index[0]
                                                   : names_take_exact(e, m->w->names, "row");
    line(x, emit_format(e, "const int %s = (int)threadIdx.x %% 32, %s = (int)threadIdx.x / 32;",
                        x->lane, x->warp));
    line(x, emit_format(e, "const %s %s = (%s)blockIdx.x*%d, %s = %s + %s%s;", type, first, type,
                        tile, at, first, x->lane, n > 1 ? emit_format(e, "*%d", n) : ""));
    const Range r = declare_range(x, "blockIdx.y");
    m->outer = number;
    declare_totals(x);
    declare_columns(x);
    const char *there = dim_is_multiple(m->k->axis[x->row], tile)
                            ? ""
                            : emit_format(e, " && %s < %s", at, size_text(x, m->k->axis[x->row]));
    open_brace(x, emit_format(e, "for (ptrdiff_t %s = %s; %s < %s%s; %s += %d)", number,
                              row_first(x, r.from), number, r.to, there, number, warps));
    m->out = &body;
    map_row_values(m, 0);
    cu_row(x, 0);
    cu_row_effects(x, 0);
    m->out = out;
    split_index(x, &indices, number, x->row, body.at);
    text_put(m->out, indices.at);
    text_put(m->out, body.at);
    close_brace(x);
    store_shared_sums(x, 1, tile, first, "blockIdx.y");
    x->c->grid = emit_format(e, "dim3(rt_blocks(%s, %d), %d)",
                             dim_c(&x->c->host, m->k->axis[x->row]), tile, x->f.parts);
}

/* ---- second stage ---------------------------------------------------------------------------- */

static const char *flag_text(CuMap *x, AddKind add)
{
    const char *flag = cu_flag(x->c, add);
    return flag ? flag : add == ADD_ALWAYS ? "true" : "false";
}

/* One launch that adds the partial results of all effects of a kind. */
static void second_stage(CuMap *x, EffectKind kind, const char *work, const char *type,
                         const Dim *columns, int n)
{
    MapWriter *m = &x->m;
    Emitter *e = m->e;
    Text to = text_new(e->cx->scratch), add = text_new(e->cx->scratch);
    const char *name = names_take(e, m->w->names, kind == EFFECT_COLUMN ? "parts" : "total_parts");
    for (int i = 0; i < m->k->effects.len; i++) {
        const Effect *f = &m->k->effects.at[i];
        if (f->kind != kind)
            continue;
        text_add(&to, "%s%s", to.len ? ", " : "", m->w->arg[f->access.arg]);
        if (!dim_is(f->access.offset, 0))
            text_add(&to, " + %s", dim_c_factor(&x->c->host, f->access.offset));
        text_add(&add, "%s%s", add.len ? ", " : "", flag_text(x, f->add));
        x->c->apart[f->access.arg] = true;
    }
    const char *arg[] = { name };
    const char *all = dim_c(&x->c->host, columns);
    emit_statement(&x->c->launch, INDENT,
                   emit_format(e,
                               "const RtParts<%s> %s = { .work = %s, .parts = %d, .n_sums = %d, "
                               ".columns = %s, .to = { %s }, .add = { %s } };",
                               type, name, work, x->f.parts, n, all, to.at, add.at));
    cu_launch(
        x->c, &x->c->launch, emit_format(e, "rt_add_parts<%s>", type),
        emit_format(e, "rt_blocks(%s, 32)",
                    n == 1 ? all : emit_format(e, "%d*%s", n, dim_c_factor(&x->c->host, columns))),
        "dim3(32, 32)", NULL, arg, 1);
}

static void write_second_stage(CuMap *x)
{
    Emitter *e = x->m.e;
    if (!in_parts(x))
        return;
    if (x->f.columns)
        second_stage(x, EFFECT_COLUMN, work_arg(x, work_name), c_type(e, sum_type(x->m.k)),
                     x->m.k->axis[x->row], x->f.columns);
    if (x->f.totals)
        second_stage(x, EFFECT_TOTAL, work_arg(x, total_work_name), "double", dim_one(e),
                     x->f.totals);
}

/* ---- the kernel ------------------------------------------------------------------------------ */

static void settle_levels(CuMap *x)
{
    MapWriter *m = &x->m;
    const Kernel *k = m->k;
    m->n_axes = k->n_axes;
    m->has_row = k->n_axes > 0;
    m->n_outer = m->has_row ? k->n_axes - 1 : 0;
    m->level = NEW_ARRAY(m->e->cx->scratch, Level, k->values.len + 1);
    for (int i = 0; i < k->values.len; i++)
        m->level[i] = k->values.at[i].level == LEVEL_ONCE ? LEVEL_ONCE
                      : x->f.varies[i]                    ? LEVEL_ELEM
                                                          : LEVEL_ROW;
}

static void name_variables(CuMap *x)
{
    MapWriter *m = &x->m;
    x->at = names_take_exact(m->e, m->w->names, "at");
    x->lane = names_take_exact(m->e, m->w->names, "lane");
    x->warp = names_take_exact(m->e, m->w->names, "warp");
    x->k = names_take_exact(m->e, m->w->names, "k");
    x->elem = names_take_exact(m->e, m->w->names, "e");
}

void cu_map(CudaWriter *c)
{
    Emitter *e = c->w.e;
    Arena *a = e->cx->scratch;
    Kernel *k = c->w.k;
    const int n = k->values.len + 1, n_effects = k->effects.len + 1;
    CuMap x = { .m = { .w = &c->w, .e = e, .k = k, .out = &c->w.body, .indent = INDENT },
                .c = c,
                .kp = e->kp,
                .f = cu_form(e->kp, k),
                .row = k->n_axes - 1,
                .names = c->w.names,
                .declared = text_new(a),
                .shared = text_new(a) };
    x.m.held = cu_held;
    settle_levels(&x);
    x.m.temp = NEW_ARRAY(a, const char *, n);
    x.m.uses = NEW_ARRAY(a, int, n);
    x.m.hoist = NEW_ARRAY(a, bool, n);
    x.m.force = NEW_ARRAY(a, bool, n);
    x.m.total = NEW_ARRAY(a, const char *, n_effects);
    x.m.partial = NEW_ARRAY(a, const char *, n_effects);
    x.m.column = NEW_ARRAY(a, const char *, n_effects);
    map_name_indices(&x.m);
    name_variables(&x);
    map_prepare(&x.m);
    map_once_values(&x.m);
    if (x.f.kind == CU_FLAT)
        write_flat(&x);
    else if (x.f.kind == CU_COLUMNS)
        write_columns(&x);
    else
        write_rows(&x);
    write_second_stage(&x);
    c->block = emit_format(e, "%d", x.f.threads);
    const int few = x.f.ragged ? 16 : 24; /* registers for what is kept, beside which others fit */
    if (x.f.kind == CU_ROWS && x.f.team == CU_WARP && x.f.count > 0)
        c->bounds = x.f.columns ? "128, 2" : x.f.kept > few ? "256, 2" : "256, 3";
    if (x.f.kind == CU_COLUMNS) /* room for loads that are on their way */
        c->bounds = "256, 4";
    const bool slim = x.f.kind == CU_ROWS && x.f.count == 0 && x.f.parts == 0
                      && e->p->real != DT_F64; /* little of a row is in registers */
    if (slim && x.f.threads == 1024 && 2 * x.f.shared <= SHARED_OF_SM)
        c->bounds = "1024, 2";
    c->comment = cu_launch_comment(&x);
}

/* ---- room for partial sums ------------------------------------------------------------------- */

static void add_work(KernelProgram *kp, Kernel *k, const char *name, DType t)
{
    vec_push(kp->program->cx->arena, &k->args,
             ((KernelArg){ .name = name, .dtype = t, .written = true, .exclusive = true }));
}

static Buffer *work_buffer(KernelProgram *kp, Routine *r, const Kernel *k, int arg)
{
    Context *cx = kp->program->cx;
    Dims *ds = kp->program->dims;
    const CuForm f = cu_form(kp, k);
    const bool columns = k->args.at[arg].name == work_name;
    const int n = columns ? f.columns : f.totals;
    const Dim *dim[3] = { dim_const(ds, f.parts) };
    int rank = 1;
    if (n > 1)
        dim[rank++] = dim_const(ds, n);
    dim[rank++] = columns ? k->axis[k->n_axes - 1] : dim_const(ds, 1);
    Buffer *b = NEW(cx->arena, Buffer);
    b->id = r->buffers.len;
    b->kind = BUF_ARENA;
    b->name = intern_printf(cx, "%s_%s", k->args.at[arg].name, k->name);
    b->dtype = k->args.at[arg].dtype;
    b->type = type_of(ds, b->dtype, rank, dim);
    for (int i = 0; i < r->buffers.len; i++) {
        Buffer *o = r->buffers.at[i];
        if (o->name == b->name && type_same(o->type, b->type))
            return o;
        if (o->name == b->name) {
            b->name = intern_printf(cx, "%s_%d", b->name, r->buffers.len);
            break;
        }
    }
    vec_push(cx->arena, &r->buffers, b);
    return b;
}

static void add_operands(KernelProgram *kp, Routine *r, Steps *steps, Map *first)
{
    Context *cx = kp->program->cx;
    for (int i = 0; i < steps->len; i++) {
        Step *s = steps->at[i];
        if (s->kernel == NULL) {
            add_operands(kp, r, &s->body, first);
            continue;
        }
        const int *from = map_get(first, s->kernel), n = s->kernel->args.len;
        if (from == NULL)
            continue;
        Operand *operands = NEW_ARRAY(cx->arena, Operand, n);
        memcpy(operands, s->operands, sizeof *operands * (size_t)*from);
        for (int arg = *from; arg < n; arg++) {
            operands[arg].buffer = work_buffer(kp, r, s->kernel, arg);
            operands[arg].offset = dim_const(kp->program->dims, 0);
        }
        s->operands = operands;
    }
}

void cu_workspace(KernelProgram *kp)
{
    cu_pitch(kp);
    cu_epilogue(kp);
    Routine *const routine[] = { kp->train, kp->eval, kp->output, kp->count };
    Map *first = map_new(kp->program->cx->scratch); /* Kernel -> its first work argument */
    for (int i = 0; i < kp->kernels.len; i++) {
        Kernel *k = kp->kernels.at[i];
        if (k->kind != KERNEL_MAP)
            continue;
        const CuForm f = cu_form(kp, k);
        int *from = NEW(kp->program->cx->scratch, int);
        *from = k->args.len;
        if (f.parts > 1 && f.columns > 0)
            add_work(kp, k, work_name, sum_type(k));
        if (f.parts > 1 && f.totals > 0)
            add_work(kp, k, total_work_name, DT_F64);
        if (k->args.len > *from)
            map_set(first, k, from);
    }
    for (int i = 0; i < 4; i++)
        if (routine[i])
            add_operands(kp, routine[i], &routine[i]->steps, first);
}
