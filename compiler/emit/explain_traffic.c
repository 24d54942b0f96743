/* explain_traffic.c -- what the kernels of the CUDA target move (--explain=traffic).
 *
 * In: the steps of training, and sizes for the dims. Out: per kernel of an update how often it is
 * launched, the bytes it reads and writes, the least possible, and the ratio; then launches. The
 * one idea: each access of a kernel is counted as its form (cu_form.c) has it: once per phase that
 * needs it, unless it is kept; with partial sums, written and read. What all rows share is counted
 * once, for it comes from the caches. The least: each input read once, each output written once. Of
 * scatter it depends on the ids; products and attention are launches alone. Then the same where
 * products do GELU in their epilogues (cu_epilogue.c), as far as it differs.
 */
#include "emit/cu.h"
#include "emit/cu_form.h"

#include <math.h>
#include <string.h>

enum { SECTOR = 32, NAME_WIDTH = 34 }; /* bytes of memory that are moved at least */

typedef struct {
    KernelProgram *kp;
    Emitter e;
    const int64_t *dims;
    bool adds;      /* gradients: are there several micro-steps? */
    bool epilogues; /* products do what they can in theirs */
} Traffic;

typedef struct {
    double read, written, least;
    int launches;
} Moved;

typedef struct {
    const Kernel *k;
    const char *name; /* of what an epilogue does besides, or leaves to do; or NULL */
    double times;     /* per micro-step */
    Moved m;
} TrafficRow;
typedef VEC(TrafficRow) Rows;

static double size_of(const Traffic *t, const Dim *d)
{
    return d ? (double)dim_eval(d, t->dims) : 1;
}

/* Elements that an access reaches: of the axes that it depends on. */
static double touched(const Traffic *t, const Kernel *k, const Access *a)
{
    double n = 1;
    for (int i = 0; i < k->n_axes; i++)
        if (!dim_is(a->stride[i], 0) || (a->index >= 0 && i < k->n_axes - 1))
            n *= size_of(t, k->axis[i]);
    return n;
}

static bool is_near(const Dim *step) { return step == NULL || dim_is(step, 0) || dim_is(step, 1); }

/* Bytes that pass for an access: more than its elements where threads side by side do not read
   elements side by side. A thread that does a row alone has the other elements of a sector from the
   cache, where they are of its row, or of the next one. */
static double bytes_of(const Traffic *t, const Kernel *k, const CuForm *f, const Access *a)
{
    const int row = k->n_axes - 1, bytes = dtype_bytes(k->args.at[a->arg].dtype);
    const double n = touched(t, k, a);
    if (f->kind != CU_ROWS || f->team != CU_THREAD)
        return n * (row < 0 || is_near(a->stride[row]) ? bytes : SECTOR);
    if (row < 1 || is_near(a->stride[row - 1]))
        return n * bytes;
    const double along = is_near(a->stride[row]) ? size_of(t, k->axis[row]) : 1;
    if (dim_same(a->stride[row - 1], k->axis[row]))
        return n * bytes;
    return n / along * ceil(along * bytes / SECTOR) * SECTOR;
}

static bool adds(const Traffic *t, AddKind add)
{
    return add == ADD_ALWAYS || ((add == ADD_FLAG || add == ADD_FLAG_LATER) && t->adds)
           || add == ADD_LATER;
}

/* ---- one kernel ------------------------------------------------------------------------------ */

/* In how many phases the elements of a load are fetched from memory. */
static int fetches(const Kernel *k, const CuForm *f, int v)
{
    const Access *a = &k->values.at[v].access;
    const int phases = cu_phases_with(k, f, a);
    if (!f->varies[v] || phases == 0)
        return 1;
    for (int i = 0; i < k->effects.len; i++) /* stored by an earlier phase, and kept since */
        if (k->effects.at[i].kind == EFFECT_STORE && cu_same_access(&k->effects.at[i].access, a)
            && k->effects.at[i].phase < k->values.at[v].phase)
            return f->keep == CU_REGISTERS && f->vector > 1 ? 0 : phases - 1;
    return cu_may_keep(k, f, a) || !cu_is_of_row(k, a) ? 1 : phases;
}

static bool seen_before(const Kernel *k, int v)
{
    for (int i = 0; i < v; i++)
        if (k->values.at[i].kind == VAL_LOAD
            && cu_same_access(&k->values.at[i].access, &k->values.at[v].access))
            return true;
    return false;
}

/* An element that the kernel has stored itself is no input. */
static bool is_stored(const Kernel *k, const Access *a)
{
    for (int i = 0; i < k->effects.len; i++)
        if (k->effects.at[i].kind == EFFECT_STORE && cu_same_access(&k->effects.at[i].access, a))
            return true;
    return false;
}

static void count_loads(const Traffic *t, const Kernel *k, const CuForm *f, Moved *m)
{
    for (int arg = 0; arg < k->args.len; arg++) {
        double least = 0;
        for (int i = 0; i < k->values.len; i++) {
            const Value *v = &k->values.at[i];
            if (v->kind != VAL_LOAD || v->access.arg != arg || seen_before(k, i))
                continue;
            const double n = touched(t, k, &v->access) * dtype_bytes(k->args.at[arg].dtype);
            m->read += bytes_of(t, k, f, &v->access) * fetches(k, f, i);
            if (!is_stored(k, &v->access))
                least = n > least ? n : least;
        }
        m->least += least;
    }
}

static void count_effects(const Traffic *t, const Kernel *k, const CuForm *f, Moved *m)
{
    double partial = 0;
    for (int i = 0; i < k->effects.len; i++) {
        const Effect *x = &k->effects.at[i];
        const double n = touched(t, k, &x->access) * dtype_bytes(k->args.at[x->access.arg].dtype);
        const double bytes = x->kind == EFFECT_STORE ? bytes_of(t, k, f, &x->access) : n;
        m->written += bytes;
        m->least += n;
        if (adds(t, x->add)) {
            m->read += bytes;
            m->least += n;
        }
        if (x->kind == EFFECT_COLUMN && f->columns > 0)
            partial += size_of(t, k->axis[k->n_axes - 1])
                       * dtype_bytes(k->values.at[x->value].dtype) * (f->in_work ? 2 : 1);
        if (x->kind == EFFECT_TOTAL && f->totals > 0)
            partial += sizeof(double);
    }
    if (f->parts > 1) {
        m->written += partial * f->parts;
        m->read += partial * f->parts;
    }
}

static Moved moved_by(const Traffic *t, const Kernel *k)
{
    const CuForm f = cu_form(t->kp, k);
    Moved m = { .launches = 1 };
    if (f.parts > 1)
        m.launches += (f.columns > 0) + (f.totals > 0);
    count_loads(t, k, &f, &m);
    count_effects(t, k, &f, &m);
    return m;
}

/* ---- scatter --------------------------------------------------------------------------------- */

enum { DIGITS = 256, SORT_BLOCKS = 256, SORT_LEAST = 1024, PART = 64 };

/* As runtime/cuda/scatter.cu does it: ids are sorted with where they came from, 8 bits at a time;
   then rows are summed, with a partial sum for each 64 of them, as if all ids came often. */
static Moved moved_by_scatter(const Traffic *t, const Kernel *k)
{
    const Scatter *x = &k->scatter;
    const double n = size_of(t, x->n_ids), rows = size_of(t, x->n_rows), id = 4;
    const double out = size_of(t, x->width) * dtype_bytes(k->args.at[0].dtype);
    const double row = size_of(t, x->width) * dtype_bytes(k->args.at[2].dtype);
    const bool add = adds(t, x->add);
    const double written = (add && n < rows ? n : rows) * out, parts = floor(n / PART) * out;
    int passes = 1;
    while (passes < 4 && rows - 1 >= pow(DIGITS, passes))
        passes++;
    const double blocks = fmin(ceil(n / SORT_LEAST), SORT_BLOCKS);
    const double counts = DIGITS * (blocks + 1) * id;
    const double sort_read = passes * (3 * n * id + 2 * counts) - n * id;
    Moved m = { .launches = 3 * passes + 3 };
    m.read = sort_read + (2 * n + 2 * rows) * id + n * row + parts + (add ? written : 0);
    m.written = passes * (2 * n * id + 2 * counts) + rows * id + parts + written;
    m.least = n * (id + row) + written * (add ? 2 : 1);
    return m;
}

static Moved moved_by_step(const Traffic *t, const Kernel *k)
{
    switch (k->kind) {
    case KERNEL_MAP: return moved_by(t, k);
    case KERNEL_SCATTER: return moved_by_scatter(t, k);
    case KERNEL_ATTENTION_GRAD: return (Moved){ .launches = 2 }; /* of q; of keys and values */
    default: return (Moved){ .launches = 1 };
    }
}

/* ---- the steps of a micro-step --------------------------------------------------------------- */

/* The product's epilogue writes GELU of the result besides, or reads what its gradient is of. */
static Moved moved_besides(const Traffic *t, const Step *s)
{
    const Matmul *x = &s->kernel->matmul;
    const double n = size_of(t, x->m) * size_of(t, x->n);
    const double bytes = n * dtype_bytes(s->kernel->args.at[0].dtype);
    const bool grad = s->epilogue->kind == EPILOGUE_GELU_GRAD;
    return (Moved){ grad ? bytes : 0, grad ? 0 : bytes, bytes, 0 };
}

static const char *kernel_name(Traffic *t, const Kernel *k)
{
    return emit_format(&t->e, "k%d_%s", k->number, k->name);
}

/* besides: what the epilogue of step s moves, not the step. */
static void add_row(Traffic *t, Rows *rows, const Step *s, bool besides, double times)
{
    int at = 0;
    while (at < rows->len
           && (rows->at[at].k != s->kernel || (rows->at[at].m.launches == 0) != besides))
        at++;
    if (at == rows->len) {
        TrafficRow row = { .k = s->kernel };
        row.m = besides ? moved_besides(t, s) : moved_by_step(t, s->kernel);
        if (besides || s->rest)
            row.name = emit_format(&t->e, "%s%s", kernel_name(t, s->kernel),
                                   besides ? ", besides" : "");
        vec_push(t->e.cx->scratch, rows, row);
    }
    rows->at[at].times += times;
}

static void add_steps(Traffic *t, Rows *rows, const Steps *steps, double times)
{
    for (int i = 0; i < steps->len; i++) {
        const Step *s = steps->at[i];
        if (s->kernel == NULL) {
            add_steps(t, rows, &s->body, times * size_of(t, s->loop->trip));
            continue;
        }
        if (t->epilogues ? s->product && !s->rest : s->rest)
            continue;
        if (t->epilogues && s->epilogue)
            add_row(t, rows, s, true, times);
        add_row(t, rows, s, false, times);
    }
}

static void fill_rows(Traffic *t, Rows *rows)
{
    rows->len = 0;
    if (t->kp->count)
        add_steps(t, rows, &t->kp->count->steps, 1);
    add_steps(t, rows, &t->kp->train->steps, 1);
}

/* The rows of a part of an axis are those of every part but the last. */
static const int64_t *with_parts(const Program *p, const int64_t *sizes)
{
    const int n = dims_count(p->dims);
    int64_t *all = NEW_ARRAY(p->cx->scratch, int64_t, n + 1);
    memcpy(all, sizes, sizeof *all * (size_t)n);
    for (int i = 0; i < n; i++) {
        const Symbol *s = dims_at(p->dims, i);
        if (s->kind != SYM_PART)
            continue;
        const int64_t whole = dim_eval(s->whole, all), step = dim_eval(s->step, all);
        all[i] = whole < step ? whole : step;
    }
    return all;
}

static const char *megabytes(Traffic *t, double bytes)
{
    return emit_format(&t->e, bytes < 1e5 ? "%.4f" : bytes < 1e7 ? "%.2f" : "%.1f", bytes / 1e6);
}

static void write_row(Traffic *t, Text *out, const char *name, double times, const Moved *m)
{
    text_add(out, "%-*s %6.0f %10s %10s %10s %10s %6.2f\n", NAME_WIDTH, name, times,
             megabytes(t, m->read), megabytes(t, m->written), megabytes(t, m->read + m->written),
             megabytes(t, m->least), m->least > 0 ? (m->read + m->written) / m->least : 1);
}

/* Behind the micro-steps: each buffer is read once, written once. */
static void write_update(Traffic *t, Text *out, double *bytes)
{
    UpdateLaunch launch[UPDATE_LAUNCHES_MAX];
    const int n = explain_update(&t->e, t->dims, launch);
    *bytes = 0;
    for (int i = 0; i < n; i++) {
        const double all = launch[i].read + launch[i].written;
        const Moved m = { launch[i].read, launch[i].written, all, 1 };
        write_row(t, out, launch[i].name, 1, &m);
        *bytes += all;
    }
}

/* With one micro-step the samples that were taken for its counts are there still. */
static void write_launches(const Traffic *t, Text *out, const Rows *rows, double micro_steps)
{
    double maps = 0, second = 0, products = 0, attention = 0, scatters = 0;
    for (int i = 0; i < rows->len; i++) {
        const TrafficRow *r = &rows->at[i];
        const double all = r->times * r->m.launches;
        switch (r->k->kind) {
        case KERNEL_MAP:
            maps += r->times;
            second += all - r->times;
            break;
        case KERNEL_MATMUL: products += all; break;
        case KERNEL_SCATTER: scatters += all; break;
        default: attention += all;
        }
    }
    const double micro = maps + second + products + attention + scatters;
    const double update = explain_update_launches(t->kp->program, t->dims);
    const double samples = micro_steps > 1 ? 2 * micro_steps : 1, ends = 3;
    static const char said[] =
        "\nIn a micro-step %.0f launches of these kernels and %.0f that add their partial sums,\n"
        "%.0f products, each one launch where the library adds its bias, %.0f launches of\n"
        "attention and %.0f of scatter: %.0f. An update has %.0f micro-step%s, and\n"
        "%.0f launches for norm, clipping and the update of the parameters%s,\n"
        "%.0f that take%s samples, and 3 at its begin, for the seeds of losses and at its end: "
        "%.0f in all.\n";
    text_add(out, said, maps, second, products, attention, scatters, micro, micro_steps,
             micro_steps == 1 ? "" : "s", update,
             t->kp->program->train.optimizer == OPT_RULE ? "" : " (not in the table)", samples,
             samples == 1 ? "s" : "", micro * micro_steps + update + samples + ends);
}

/* With epilogues: the rows that are others. */
static void write_table(Traffic *t, Text *out, const Rows *rows, double micro_steps)
{
    double moved = 0, least = 0, update;
    Text behind = text_new(t->e.cx->scratch);
    text_add(out, "%-*s %6s %10s %10s %10s %10s %6s\n", NAME_WIDTH, "kernel", "times", "read",
             "written", "moved", "least", "ratio");
    for (int i = 0; i < rows->len; i++) {
        const TrafficRow *r = &rows->at[i];
        if (r->k->kind != KERNEL_MAP && r->k->kind != KERNEL_SCATTER && r->m.launches > 0)
            continue;
        if (!t->epilogues || r->name)
            write_row(t, out, r->name ? r->name : kernel_name(t, r->k), r->times * micro_steps,
                      &r->m);
        moved += r->times * micro_steps * (r->m.read + r->m.written);
        least += r->times * micro_steps * r->m.least;
    }
    write_update(t, t->epilogues ? &behind : out, &update);
    moved += update;
    least += update;
    text_add(out, "\n%s: %s MB moved, %s MB the least: %.3f times.\n",
             t->epilogues ? "An update then" : "Of an update", megabytes(t, moved),
             megabytes(t, least), least > 0 ? moved / least : 1);
}

/* Names of the kernels that epilogues stand for, each once. */
static void list_left_out(Traffic *t, Text *names, const Steps *steps)
{
    for (int i = 0; i < steps->len; i++) {
        const Step *s = steps->at[i];
        list_left_out(t, names, &s->body);
        if (!s->product || s->rest)
            continue;
        const char *name = kernel_name(t, s->kernel);
        if (!strstr(names->at, name))
            text_add(names, "%s%s", names->len ? ", " : "", name);
    }
}

static void write_epilogues(Traffic *t, Text *out, const Rows *rows, double micro_steps)
{
    Text left = text_new(t->e.cx->scratch);
    list_left_out(t, &left, &t->kp->train->steps);
    if (left.len == 0)
        return;
    text_add(out,
             "\nWhere the epilogues of products do GELU and its gradient, as the program decides "
             "when it starts,\nthese are left out: %s.\nInstead there are, of a product "
             "what its epilogue moves besides:\n\n",
             left.at);
    write_table(t, out, rows, micro_steps);
    write_launches(t, out, rows, micro_steps);
}

void explain_traffic(Text *out, KernelProgram *kp, const char *const *dims, int n_dims)
{
    Program *p = kp->program;
    Traffic t = { .kp = kp, .e = { .cx = p->cx, .kp = kp, .p = p, .out = out } };
    Rows rows = { 0 };
    const char *sizes;
    t.dims = explain_sizes(&t.e, dims, n_dims, &sizes);
    if (t.dims == NULL)
        return;
    t.dims = with_parts(p, t.dims);
    if (kp->train == NULL) {
        text_put(out, "The model has no loss: it trains nothing.\n");
        return;
    }
    double micro_steps = (double)p->train.accumulate;
    for (int i = 0; i < dims_count(p->dims); i++) {
        const Symbol *s = dims_at(p->dims, i);
        if (s->kind == SYM_BATCH)
            micro_steps = micro_steps * (double)s->value / (double)t.dims[i];
    }
    micro_steps = micro_steps < 1 ? 1 : micro_steps;
    t.adds = micro_steps > 1;
    text_add(out,
             "What the kernels of %s move in an update on a GPU, but for products and "
             "attention, at\n%s: times per update, then MB of one launch.\n\n",
             p->name, sizes);
    fill_rows(&t, &rows);
    write_table(&t, out, &rows, micro_steps);
    write_launches(&t, out, &rows, micro_steps);
    t.epilogues = true;
    fill_rows(&t, &rows);
    write_epilogues(&t, out, &rows, micro_steps);
}
