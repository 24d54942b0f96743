/* explain.c -- where the memory of a program goes, before it runs (--explain=memory).
 *
 * In: the planned routines, and sizes for the dims. Out: bytes by category, the arena of each phase
 * beside the most bytes that are alive at once, and what is alive at the fullest moment, by line of
 * the model. The one idea: offsets are evaluated by the formulas that the emitted file holds, so
 * the figures are those of the program at these sizes, whatever sizes the places were chosen at.
 */
#include "emit/parts.h"

#include <stdlib.h>
#include <string.h>

enum { NAME_WIDTH = 34, TEXT_WIDTH = 46, VALUES_WIDTH = 30 };

typedef struct {
    Emitter e;       /* cx, kp, p and out are used */
    int64_t *values; /* of the symbols */
    int64_t batch;   /* samples of an update; 0 = the model trains on nothing */
    bool *set;       /* by symbol: it has a value, of the model or of --dims */
    Span asked;      /* all that --dims gives, an option; or nowhere */
    bool overflow;
} Explainer;

typedef struct { /* a routine at these sizes */
    const Routine *r;
    int64_t *bytes, *offset; /* by id of a root, else 0; -1 = not known yet */
    int *first, *last;       /* of all that share the root's place */
    int64_t arena, live;
    int peak; /* position at which the most is alive */
} Sized;

/* ---- sizes ----------------------------------------------------------------------------------- */

static int64_t value_of(Explainer *x, const Dim *d)
{
    const int64_t v = dim_eval(d, x->values);
    if (v < 0 || v > (int64_t)1 << 48) {
        x->overflow = true;
        return 0;
    }
    return v;
}

static int64_t offset_of(Sized *z, const Buffer *b)
{
    if (z->offset[b->id] >= 0)
        return z->offset[b->id];
    int64_t at = 0;
    for (int i = 0; i < b->below.len; i++) {
        const Buffer *y = buffer_root(b->below.at[i]);
        const int64_t end = offset_of(z, y) + z->bytes[y->id];
        at = end > at ? end : at;
    }
    return z->offset[b->id] = at;
}

static int64_t live_at(const Sized *z, int position)
{
    int64_t live = 0;
    for (int i = 0; i < z->r->buffers.len; i++)
        if (z->bytes[i] > 0 && z->first[i] <= position && z->last[i] >= position)
            live += z->bytes[i];
    return live;
}

/* Bytes and lives of the places; where they lie is another question. */
static Sized size_places(Explainer *x, const Routine *r)
{
    Arena *a = x->e.cx->scratch;
    const size_t n = (size_t)r->buffers.len + 1;
    Sized z = { r,
                NEW_ARRAY(a, int64_t, n),
                NEW_ARRAY(a, int64_t, n),
                NEW_ARRAY(a, int, n),
                NEW_ARRAY(a, int, n),
                0,
                0,
                0 };
    for (int i = 0; i < r->buffers.len; i++) {
        Buffer *b = r->buffers.at[i];
        z.offset[i] = -1;
        if (!buffer_is_placed(b))
            continue;
        const int root = buffer_root(b)->id;
        const bool seen = z.bytes[root] > 0;
        z.first[root] = !seen || b->first < z.first[root] ? b->first : z.first[root];
        z.last[root] = !seen || b->last > z.last[root] ? b->last : z.last[root];
        z.bytes[root] = plan_round(x->e.kp,
                                   value_of(x, type_elems(x->e.p->dims, buffer_root(b)->type))
                                       * dtype_bytes(b->dtype));
    }
    for (int i = 0; i < r->buffers.len; i++) {
        const int64_t live = z.bytes[i] > 0 ? live_at(&z, z.first[i]) : 0;
        if (live > z.live) {
            z.live = live;
            z.peak = z.first[i];
        }
    }
    return z;
}

static Sized size_routine(Explainer *x, const Routine *r)
{
    Sized z = size_places(x, r);
    Sized other = r->shares ? size_places(x, r->shares) : z;
    for (int i = 0; i < r->buffers.len; i++) {
        Buffer *b = r->buffers.at[i];
        if (!buffer_is_placed(b) || (r->shares && !b->twin))
            continue;
        Buffer *place = buffer_root(r->shares ? b->twin : b);
        const int64_t end = offset_of(&other, place) + other.bytes[place->id];
        z.arena = end > z.arena ? end : z.arena;
    }
    return z;
}

/* ---- lines of the report --------------------------------------------------------------------- */

static const char *percent(Explainer *x, int64_t part, int64_t all)
{
    return emit_format(&x->e, "%5.1f %%", all > 0 ? 100.0 * (double)part / (double)all : 0);
}

static const char *size_text(Explainer *x, int64_t bytes)
{
    static const char *const unit[] = { "B", "KiB", "MiB", "GiB", "TiB" };
    double v = (double)bytes;
    int u = 0;
    for (; v >= 1024 && u < 4; u++)
        v /= 1024;
    return emit_format(&x->e, "%.*f %s", u == 0 || v >= 100 ? 0 : v >= 10 ? 1 : 2, v, unit[u]);
}

/* "  optimizer, m             497,759,232   475 MiB   9.8 %  4.0 bytes per parameter" */
static void write_row(Explainer *x, const char *name, int64_t bytes, int64_t all, const char *note)
{
    Emitter *e = &x->e;
    if (bytes == 0)
        return;
    text_add(e->out, "  %-*s %17s %9s  %s%s%s\n", NAME_WIDTH, name, emit_count(e, bytes),
             size_text(x, bytes), percent(x, bytes, all), note[0] ? "  " : "", note);
}

static const char *phase_name(const Routine *r)
{
    static const char *const names[][2] = { { "train", "a training step" },
                                            { "eval", "an evaluation" },
                                            { "output", "the outputs" },
                                            { "count", "counting" } };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(r->name, names[i][0]) == 0)
            return names[i][1];
    return r->name;
}

static int count_steps(const Steps *steps)
{
    int n = 0;
    for (int i = 0; i < steps->len; i++)
        n += steps->at[i]->kernel ? !steps->at[i]->rest : count_steps(&steps->at[i]->body);
    return n;
}

/* The first step at a position or behind it. */
static const Step *step_at(const Steps *steps, int position)
{
    const Step *found = NULL;
    for (int i = 0; i < steps->len && found == NULL; i++) {
        const Step *s = steps->at[i];
        if (s->kernel == NULL)
            found = step_at(&s->body, position);
        else if (s->position >= position)
            found = s;
    }
    return found;
}

static int first_backward(const Steps *steps)
{
    for (int i = 0; i < steps->len; i++)
        if (steps->at[i]->backward)
            return steps->at[i]->position;
    return INT32_MAX;
}

static void write_title(Explainer *x)
{
    static const char *const names[DT_COUNT] = { [DT_F32] = "fp32",
                                                 [DT_F64] = "fp64",
                                                 [DT_BF16] = "bf16",
                                                 [DT_F16] = "fp16" };
    Emitter *e = &x->e;
    const Program *p = e->p;
    const DType kind = p->narrow != DT_F32 ? p->narrow : p->real;
    const char *sizes = program_sizes_text(p, x->values, x->set);
    text_add(e->out, "memory of %s, %s", p->name,
             names[p->real == DT_F64 ? DT_F64 : kind] ? names[p->real == DT_F64 ? DT_F64 : kind]
                                                      : "fp32");
    text_add(e->out, "%s%s", *sizes ? ", at " : "", sizes);
    if (x->batch > 0 && p->train.accumulate > 1)
        text_add(e->out, "; %lld samples per update in %lld micro-steps", (long long)x->batch,
                 (long long)p->train.accumulate);
    text_put(e->out, "\n");
}

/* ---- by category ----------------------------------------------------------------------------- */

typedef struct {
    int64_t kept, sums, rest; /* alive at the peak, by kind */
} Alive;

static Alive alive_of(const Sized *z)
{
    Alive at = { 0, 0, 0 };
    const int backward = z->r ? first_backward(&z->r->steps) : 0;
    for (int i = 0; z->r && i < z->r->buffers.len; i++) {
        if (z->bytes[i] == 0 || z->first[i] > z->peak || z->last[i] < z->peak)
            continue;
        if (z->r->buffers.at[i]->partials)
            at.sums += z->bytes[i];
        else if (z->first[i] < backward && z->last[i] >= backward)
            at.kept += z->bytes[i];
        else
            at.rest += z->bytes[i];
    }
    return at;
}

static int64_t batch_bytes(Explainer *x)
{
    const Program *p = x->e.p;
    int64_t bytes = 0, *micro = x->values;
    const int n = dims_count(p->dims);
    x->values = NEW_ARRAY(x->e.cx->scratch, int64_t, n + 1);
    for (int i = 0; i < n; i++)
        x->values[i] = dims_at(p->dims, i)->kind == SYM_BATCH ? x->batch : micro[i];
    for (int i = 0; i < p->inputs.len; i++) {
        const Type *t = p->inputs.at[i].type;
        bytes += value_of(x, type_elems(p->dims, t))
                 * (t->dtype == DT_I32 ? 4 : dtype_bytes(p->real));
    }
    x->values = micro;
    return bytes;
}

static const char *per_parameter(Explainer *x, int64_t bytes, int64_t parameters)
{
    return parameters > 0
               ? emit_format(&x->e, "%.1f bytes per parameter", (double)bytes / (double)parameters)
               : "";
}

/* What a training process holds; the arena is that of its largest phase. */
static void write_categories(Explainer *x, const Sized *z)
{
    Emitter *e = &x->e;
    const Program *p = e->p;
    const int64_t n = value_of(x, c_count_parameters(e)), flat = n * dtype_bytes(p->real);
    const bool half = p->narrow == DT_BF16 || p->narrow == DT_F16, trains = e->kp->train != NULL;
    OptimizerState state[PROGRAM_MAX_STATES];
    const int states = trains ? program_states(p, x->values, state) : 0;
    const int64_t halves = value_of(x, c_count_halves(e)), params = flat - 2 * halves;
    const int64_t copy = half && halves == 0 ? 2 * n : 0;
    const int64_t average = trains && p->train.ema > 0 ? flat + (halves > 0 ? params : 0) : 0;
    int64_t fixed = params + copy + average + (trains ? flat : 0);
    for (int i = 0; i < states; i++)
        fixed += state[i].elems * dtype_bytes(p->real);
    const int64_t update = trains ? program_update_bytes(p, x->values) : 0;
    const int64_t arena = update > z->arena ? update : z->arena;
    const int64_t batch = batch_bytes(x), all = fixed + arena + batch;
    const Alive at = alive_of(z);
    text_add(e->out, "\n  %-*s %17s\n", NAME_WIDTH, trains ? "training" : "running it", "bytes");
    const char *kept = halves > 0 ? emit_format(e, ", %s in 16 bits alone", emit_count(e, halves))
                                  : "";
    write_row(x, "parameters", params, all, emit_format(e, "%s of them%s", emit_count(e, n), kept));
    write_row(x, "16-bit copy", copy, all, "");
    write_row(x, "gradients", trains ? flat : 0, all, "");
    for (int i = 0; i < states; i++)
        write_row(x, emit_format(e, "optimizer, %s", state[i].name),
                  state[i].elems * dtype_bytes(p->real), all, "");
    write_row(x, "average of the weights", average, all, "");
    write_row(x, "  these together", fixed, all, per_parameter(x, fixed, n));
    write_row(x, "arena", arena, all, "");
    write_row(x, "  kept for the backward pass", at.kept, all, "");
    write_row(x, at.kept ? "  other values at the peak" : "  values at the peak", at.rest, all, "");
    write_row(x, "  partial sums of kernels", at.sums, all, "");
    write_row(x, "  gaps", z->arena - z->live, all, "");
    write_row(x, "  more for the update's products", arena - z->arena, all, "");
    write_row(x, "batch", batch, all, "");
    write_row(x, "total", all, all, "");
}

/* ---- by phase -------------------------------------------------------------------------------- */

static const char *peak_text(Explainer *x, const Sized *z)
{
    const Step *s = step_at(&z->r->steps, z->peak);
    if (s == NULL)
        return "";
    return emit_format(&x->e, "step %d of %d  %s  %s", s->number, count_steps(&z->r->steps),
                       s->span.file ? source_where(x->e.cx, s->span) : "",
                       emit_comment(&x->e, s->kernel->brief ? s->kernel->brief : "", 50));
}

static void write_phases(Explainer *x, const Sized *z, int n, const Sized *most)
{
    Emitter *e = &x->e;
    text_add(e->out, "\n  %-*s %17s %17s  ratio  fullest at\n", NAME_WIDTH, "the arena, by phase",
             "bytes", "alive at once");
    for (int i = 0; i < n; i++) {
        text_add(e->out, "  %-*s %17s %17s  %5.3f  %s\n", NAME_WIDTH, phase_name(z[i].r),
                 emit_count(e, z[i].arena), emit_count(e, z[i].live),
                 z[i].live > 0 ? (double)z[i].arena / (double)z[i].live : 1.0, peak_text(x, &z[i]));
    }
    text_add(e->out, "  phases share one arena; the largest is that of %s\n", phase_name(most->r));
    for (int i = 0; e->kp->output && i < e->p->outputs.len; i++) {
        const Output *o = &e->p->outputs.at[i];
        const int64_t bytes = plan_round(e->kp, value_of(x, type_elems(e->p->dims, o->type))
                                                    * dtype_bytes(e->p->real));
        text_add(e->out, "  %-*s %17s  beside it where outputs are asked for\n", NAME_WIDTH,
                 emit_format(e, "result %s", o->name), emit_count(e, bytes));
    }
}

/* ---- by line --------------------------------------------------------------------------------- */

typedef struct {
    const char *where; /* "gpt2.model:12", interned */
    Span at;
    int64_t bytes;
    Text names;
    VEC(const Buffer *) places;
} Line;

static int by_bytes(const void *a, const void *b)
{
    const Line *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return x->at.file != y->at.file ? x->at.file - y->at.file : x->at.lo < y->at.lo ? -1 : 1;
}

/* Who of those that share a place is there at the peak. */
static const Buffer *tenant(const Sized *z, const Buffer *root)
{
    const Buffer *found = root;
    for (int i = 0; i < z->r->buffers.len; i++) {
        Buffer *b = z->r->buffers.at[i];
        if (buffer_is_placed(b) && buffer_root(b) == root && b->first <= z->peak
            && b->last >= z->peak)
            found = b;
    }
    return found;
}

/* Where the model computes what a step writes through argument a. */
static Span written_at(const Step *s, int a)
{
    const Kernel *k = s->kernel;
    for (int i = 0; i < k->effects.len; i++) {
        const Node *n = k->values.at[k->effects.at[i].value].node;
        if (k->effects.at[i].access.arg == a && n && n->span.file)
            return n->span;
    }
    return s->span.file ? s->span : k->span;
}

/* The step that writes b first; of a stack, the one in the loop. */
static bool find_written(const Steps *steps, const Buffer *b, Span *at)
{
    for (int i = 0; i < steps->len; i++) {
        const Step *s = steps->at[i];
        if (!s->kernel && find_written(&s->body, b, at))
            return true;
        for (int a = 0; s->kernel && a < s->kernel->args.len; a++)
            if (s->operands[a].buffer == b && s->kernel->args.at[a].written) {
                *at = b->partials ? s->span : written_at(s, a);
                return true;
            }
    }
    return false;
}

/* Ids of the places that are alive at the peak, the largest first. */
static int *alive_ids(Explainer *x, const Sized *z, int *n)
{
    int *id = NEW_ARRAY(x->e.cx->scratch, int, z->r->buffers.len + 1);
    *n = 0;
    for (int i = 0; i < z->r->buffers.len; i++) {
        if (z->bytes[i] == 0 || z->first[i] > z->peak || z->last[i] < z->peak)
            continue;
        int k = (*n)++;
        for (; k > 0 && z->bytes[id[k - 1]] < z->bytes[i]; k--)
            id[k] = id[k - 1];
        id[k] = i;
    }
    return id;
}

static int collect_lines(Explainer *x, const Sized *z, Line *line)
{
    Context *cx = x->e.cx;
    int n = 0, alive;
    const int *id = alive_ids(x, z, &alive);
    for (int i = 0; i < alive; i++) {
        const Buffer *b = tenant(z, z->r->buffers.at[id[i]]);
        Span at = { 0, 0, 0 };
        find_written(&z->r->steps, b, &at);
        const char *where = intern(cx, at.file ? source_where(cx, at) : "-");
        int k = 0;
        while (k < n && line[k].where != where)
            k++;
        if (k == n)
            line[n++] = (Line){ where, at, 0, text_new(cx->scratch), { 0 } };
        line[k].bytes += z->bytes[id[i]];
        vec_push(cx->scratch, &line[k].places, z->r->buffers.at[id[i]]);
        text_add(&line[k].names, "%s%s", line[k].names.len ? ", " : "", b->name);
    }
    qsort(line, (size_t)n, sizeof *line, by_bytes);
    return n;
}

static void write_lines(Explainer *x, const Sized *z)
{
    Emitter *e = &x->e;
    Line *line = NEW_ARRAY(e->cx->scratch, Line, z->r->buffers.len + 1);
    const int n = collect_lines(x, z, line);
    const Step *s = step_at(&z->r->steps, z->peak);
    size_t wide = 4;
    for (int i = 0; i < n; i++)
        wide = strlen(line[i].where) > wide ? strlen(line[i].where) : wide;
    if (s)
        text_add(e->out, "\nalive at step %d of %s, by line of the model\n\n", s->number,
                 phase_name(z->r));
    text_add(e->out, "  %-*s %17s %9s           %-*s  text\n", (int)wide, "line", "bytes", "",
             VALUES_WIDTH, "values");
    for (int i = 0; i < n; i++) {
        const char *text = line[i].at.file ? emit_source_line(e, line[i].at) : "";
        text_add(e->out, "  %-*s %17s %9s  %s  %-*s  %s\n", (int)wide, line[i].where,
                 emit_count(e, line[i].bytes), size_text(x, line[i].bytes),
                 percent(x, line[i].bytes, z->live), VALUES_WIDTH,
                 emit_comment(e, line[i].names.at, VALUES_WIDTH),
                 text[0] ? emit_comment(e, text, TEXT_WIDTH) : "-");
    }
}

int explain_alive(Emitter *e, AliveLine **alive, const Step **step)
{
    Explainer x = { .e = *e, .values = program_training_dims(e->p) };
    if (e->kp->train == NULL || !routine_has_arena(e->kp->train))
        return 0;
    const Sized z = size_places(&x, e->kp->train);
    Line *line = NEW_ARRAY(e->cx->scratch, Line, z.r->buffers.len + 1);
    const int n = z.live > 0 ? collect_lines(&x, &z, line) : 0;
    *step = step_at(&z.r->steps, z.peak);
    *alive = NEW_ARRAY(e->cx->scratch, AliveLine, n + 1);
    for (int i = 0; i < n; i++)
        (*alive)[i] = (AliveLine){ line[i].where, line[i].names.at, line[i].places.at,
                                   line[i].places.len };
    return n;
}

/* ---- the dims -------------------------------------------------------------------------------- */

/* The dim that "T=128" names, or NULL after a message. */
static const Symbol *find_dim(Explainer *x, const char *typed, const char *name, const char *given)
{
    const Program *p = x->e.p;
    const int n = dims_count(p->dims);
    const char **names = NEW_ARRAY(x->e.cx->scratch, const char *, n + 1);
    int n_names = 0;
    for (int i = 0; i < n; i++) {
        const Symbol *s = dims_at(p->dims, i);
        if (s->kind != SYM_DIM && s->kind != SYM_BATCH)
            continue;
        if (s->name == name)
            return s;
        names[n_names++] = s->name;
    }
    if (dims_find(p->dims, name)) {
        diag_option(x->e.cx, typed, "%s is fixed in the model; -D %s gives it another value", name,
                    given);
        return NULL;
    }
    const char *near = diag_suggest(name, names, n_names);
    Diag *d = diag_option(x->e.cx, typed, "the model has no dim %s", name);
    if (near)
        diag_hint(d, "did you mean %s?", near);
    return NULL;
}

/* "T=128" */
static bool set_dim(Explainer *x, const char *given)
{
    Context *cx = x->e.cx;
    const char *typed = emit_format(&x->e, "--dims %s", given), *eq = strchr(given, '=');
    char *end = NULL;
    const long long v = eq ? strtoll(eq + 1, &end, 10) : 0;
    if (eq == NULL || eq == given || end == eq + 1 || *end || v < 1 || v > INT32_MAX) {
        diag_option(cx, typed, "wants NAME=SIZE, with a whole number from 1");
        return false;
    }
    const Symbol *s = find_dim(x, typed, intern_n(cx, given, (size_t)(eq - given)), given);
    if (s == NULL)
        return false;
    x->values[s->id] = v;
    x->set[s->id] = true;
    return true;
}

/* Does it speak of a dim whose size nobody gave? */
static bool is_open(Explainer *x, const Constraint *c)
{
    for (int i = 0; i < dims_count(x->e.p->dims); i++) {
        const Symbol *s = dims_at(x->e.p->dims, i);
        if (!x->set[i] && (dim_has_symbol(c->left, s) || dim_has_symbol(c->right, s)))
            return true;
    }
    return false;
}

static bool check_constraints(Explainer *x)
{
    const Program *p = x->e.p;
    for (int i = 0; i < p->constraints.len; i++) {
        const Constraint *c = &p->constraints.at[i];
        const int64_t l = dim_eval(c->left, x->values), r = dim_eval(c->right, x->values);
        const bool good = c->rel == REL_LE   ? l <= r
                          : c->rel == REL_LT ? l < r
                          : c->rel == REL_GE ? l >= r
                          : c->rel == REL_GT ? l > r
                          : c->rel == REL_EQ ? l == r
                                             : r > 0 && l % r == 0;
        if (!good && !is_open(x, c)) {
            Diag *d = diag_error(x->e.cx, x->asked.file ? x->asked : c->span,
                                 "%s does not hold at these sizes", c->text);
            if (x->asked.file)
                diag_note(d, c->span, "it is declared here");
            return false;
        }
    }
    return true;
}

/* A training process makes no outputs, and evaluates where the model says so. */
static bool is_of_training(const Program *p, const Routine *r)
{
    return strcmp(r->name, "output") != 0
           && (strcmp(r->name, "eval") != 0 || p->train.eval_every > 0);
}

/* ---- the report ------------------------------------------------------------------------------ */

/* The sizes that are asked for; false: an error was reported. */
static bool set_sizes(Explainer *x, const char *const *dims, int n_dims)
{
    const Program *p = x->e.p;
    x->values = program_training_dims(p);
    x->set = NEW_ARRAY(p->cx->scratch, bool, dims_count(p->dims) + 1);
    for (int i = 0; i < dims_count(p->dims); i++)
        x->set[i] = program_dim_is_set(dims_at(p->dims, i));
    Text all = text_new(p->cx->scratch);
    for (int i = 0; i < n_dims; i++) {
        if (!set_dim(x, dims[i]))
            return false;
        text_add(&all, "%s%s", i ? "," : "--dims ", dims[i]);
    }
    if (n_dims > 0)
        x->asked.file = source_add_option(p->cx, all.at, "");
    return check_constraints(x);
}

const int64_t *explain_sizes(Emitter *e, const char *const *dims, int n_dims, const char **text)
{
    Explainer x = { .e = *e };
    if (!set_sizes(&x, dims, n_dims))
        return NULL;
    *text = program_sizes_text(e->p, x.values, x.set);
    return x.values;
}

void explain_memory(Text *out, KernelProgram *kp, const char *const *dims, int n_dims)
{
    const Routine *const routine[] = { kp->train, kp->eval, kp->output, kp->count };
    Program *p = kp->program;
    Explainer x = { .e = { .cx = p->cx, .kp = kp, .p = p, .out = out } };
    Sized z[4];
    int n = 0, most = 0;
    if (!set_sizes(&x, dims, n_dims))
        return;
    x.batch = p->train.accumulate;
    for (int i = 0; i < dims_count(p->dims); i++)
        if (dims_at(p->dims, i)->kind == SYM_BATCH)
            x.batch = x.values[i] * p->train.accumulate;
    for (int i = 0; i < 4; i++)
        if (routine[i] && routine_has_arena(routine[i]))
            z[n++] = size_routine(&x, routine[i]);
    for (int i = 1; i < n; i++)
        if (z[i].arena > z[most].arena && (kp->train == NULL || is_of_training(p, z[i].r)))
            most = i;
    const Sized none = { .r = NULL };
    write_title(&x);
    write_categories(&x, n ? &z[most] : &none);
    if (n > 0) {
        write_phases(&x, z, n, &z[most]);
        write_lines(&x, &z[most]);
    }
    text_put(out, "\nBeside it a process holds its data, and what products and saving need to work "
                  "in: that\ndepends on the machine, and the program tells it before step 0 "
                  "(--dry-run).\n");
    if (x.overflow)
        diag_error(p->cx, x.asked, "the sizes overflow at these dims");
}
