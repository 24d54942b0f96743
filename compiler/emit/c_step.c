/* c_step.c -- sections 5 and 6: the steps of each routine as functions.
 *
 * In: steps in order. Out: a function per part (count, forward, backward, evaluate, outputs), one
 * call per step with its number, source line and source text; a loop calls a function of its own,
 * named after the layer. A function takes what it uses and nothing else.
 */
#include "emit/step.h"

#include <ctype.h>
#include <string.h>

static const char how_to_read[] =
    "/* One call per step: its number, the line of the model that it is, or of such a line what\n"
    " * it computes. RT_CHECK looks at what the call above it wrote, for --replay and --trace\n"
    " * alone; RT_REPETITION tells it the repetition.";
static const char how_epilogues[] =
    " A product behind rt_epilogue_gelu may write\n"
    " * GELU of its result, too, in its own kernel (behind _grad, its result times the slope of\n"
    " * GELU alone): decided when the program starts. The step that does it else is left out then.";

static void write_function(Function *f, const char *name, const Steps *steps, bool backward,
                           const char *what);

/* ---- heads --------------------------------------------------------------------------------- */

static FunctionHead *head_new(Emitter *e)
{
    FunctionHead *h = NEW(e->cx->scratch, FunctionHead);
    h->input = NEW_ARRAY(e->cx->scratch, bool, e->p->inputs.len + 1);
    h->output = NEW_ARRAY(e->cx->scratch, bool, e->p->outputs.len + 1);
    return h;
}

static const void *head_key(Emitter *e, const Routine *r, const char *part)
{
    return intern_printf(e->cx, "function %s %s", r ? r->name : "none", part);
}

FunctionHead *function_head(Emitter *e, const Routine *r, const char *part)
{
    return map_get(e->call_dims, head_key(e, r, part));
}

typedef VEC(const char *) Words;

static void word(Emitter *e, Words *w, const char *s) { vec_push(e->cx->scratch, w, s); }

/* Parameters (with types) or arguments (without) in the one order there is. */
static Words head_words(const Function *f, const FunctionHead *h, bool types)
{
    Emitter *e = f->e;
    Arena *a = e->cx->scratch;
    Words w = { 0 };
    if (h->p)
        word(e, &w, types ? arena_printf(a, "const %s *p", e->real) : "p");
    if (h->p16)
        word(e, &w, types ? arena_printf(a, "const %s *p16", c_type(e, e->p->narrow)) : "p16");
    if (h->d_p)
        word(e, &w, types ? arena_printf(a, "%s *d_p", e->real) : "d_p");
    for (int i = 0; i < e->p->inputs.len; i++)
        if (h->input[i])
            word(e, &w,
                 types ? arena_printf(a, "const %s *%s", c_type(e, e->p->inputs.at[i].type->dtype),
                                      e->input[i])
                       : e->input[i]);
    for (int i = 0; i < e->p->outputs.len; i++)
        if (h->output[i])
            word(e, &w,
                 types ? arena_printf(a, "%s *%s", c_type(e, e->p->outputs.at[i].type->dtype),
                                      e->output[i])
                       : e->output[i]);
    if (h->arena)
        word(e, &w, types ? "void *arena" : "arena");
    return w;
}

/* What stands behind these: RtStream *stream, in CUDA. */
static void word_stream(Emitter *e, Words *w, const FunctionHead *h, bool types)
{
    if (h->stream)
        word(e, w, types ? "RtStream *stream" : "stream");
}

/* ---- one step ------------------------------------------------------------------------------ */

static const char *flag_text(Function *f, Flag flag)
{
    if (flag != FLAG_LATER)
        f->head->s = true;
    if (flag == FLAG_ADD)
        return "s->add";
    if (f->depth == 0)
        return flag == FLAG_LATER ? "false" : "s->add";
    const Loop *loop = f->loop[f->depth - 1];
    const char *var = f->var[f->depth - 1];
    const char *later = loop->reverse ? emit_format(f->e, "%s < %s - 1", var,
                                                    dim_c_factor(&f->dims, loop->trip))
                                      : emit_format(f->e, "%s > 0", var);
    return flag == FLAG_LATER ? later : emit_format(f->e, "s->add || %s", later);
}

static const char *call_text(Function *f, const Step *s, int indent)
{
    Emitter *e = f->e;
    Arena *a = e->cx->scratch;
    const KernelHead *h = map_get(e->call_dims, s->kernel);
    Words w = { 0 };
    Text t = text_new(a);
    for (int i = 0; i < h->n_args; i++)
        word(e, &w, operand_text(f, &s->operands[h->order[i]]));
    if (e->cuda && kernel_reads_step(e, h))
        word(e, &w, "s->device");
    for (int i = 0; !e->cuda && i < e->p->means.len; i++)
        if (h->seed[i])
            word(e, &w,
                 arena_printf(a, e->p->real == DT_F64 ? "s->seed[S_%s]" : "(float)s->seed[S_%s]",
                              e->slot[i]));
    for (int d = 0; d < DEPTH_MAX; d++)
        if (h->iter[d]) {
            if (d >= f->depth)
                bug("step %d (%s) asks for the iteration of loop %d", s->number, s->kernel->name,
                    d);
            word(e, &w, loop_is_wide(f, d) ? arena_printf(a, "(int)%s", f->var[d]) : f->var[d]);
        }
    if (h->key && !e->cuda)
        word(e, &w, "s->key");
    if (h->sample && !e->cuda)
        word(e, &w, "s->sample");
    f->head->s = f->head->s || kernel_reads_step(e, h);
    f->head->stream = e->cuda;
    for (int i = 0; i < N_FLAGS; i++)
        if (h->flag[i])
            word(e, &w, flag_text(f, (Flag)i));
    for (int i = 0; i < dims_count(e->p->dims); i++)
        if (h->dim[i])
            word(e, &w, dim_c(&f->dims, dim_sym(e->p->dims, dims_at(e->p->dims, i))));
    word_stream(e, &w, f->head, false);
    emit_call(&t, indent, arena_printf(a, "%s(", (const char *)map_get(e->kernel_name, s->kernel)),
              w.at, w.len, ");");
    return t.at;
}

/* A call, with what its epilogue may do said before; or the call that it leaves to do, and where it
   was not done, that of all. */
static const char *calls_text(Function *f, const Steps *steps, int i)
{
    Emitter *e = f->e;
    const Step *s = steps->at[i];
    const bool rest = i + 1 < steps->len && steps->at[i + 1]->rest;
    if (s->product == NULL && s->epilogue == NULL)
        return call_text(f, s, INDENT);
    if (s->product != NULL)
        return emit_format(e, "    if (!%s)\n%s%s%s", step_is_done(f, s->product),
                           call_text(f, s, 2 * INDENT), rest ? "\n    else\n" : "",
                           rest ? call_text(f, steps->at[i + 1], 2 * INDENT) : "");
    const bool grad = s->epilogue->kind == EPILOGUE_GELU_GRAD;
    Text t = text_new(e->cx->scratch);
    emit_call(&t, INDENT, grad ? "rt_epilogue_gelu_grad(" : "rt_epilogue_gelu(",
              (const char *[]){ operand_text(f, &s->epilogue->to),
                                grad ? operand_text(f, &s->epilogue->x) : "stream", "stream" },
              grad ? 3 : 2, ");\n");
    text_put(&t, call_text(f, s, INDENT));
    return t.at;
}

const char *step_is_done(Function *f, const Step *product)
{
    return emit_format(f->e, "rt_epilogue_wrote(%s, stream)",
                       operand_text(f, &product->epilogue->to));
}

/* Does another of the steps work on a line of this one? */
static bool shares_line(Emitter *e, const Steps *steps, const Step *s)
{
    for (int i = 0; i < steps->len; i++) {
        const Step *other = steps->at[i];
        if (!other->kernel || other == s || other->backward || other->rest)
            continue;
        for (int a = 0; a < s->kernel->lines.len; a++)
            for (int b = 0; b < other->kernel->lines.len; b++)
                if (strcmp(source_where(e->cx, s->kernel->lines.at[a]),
                           source_where(e->cx, other->kernel->lines.at[b]))
                    == 0)
                    return true;
    }
    return false;
}

/* Did a heading before step i show this line? */
static bool is_shown_before(Function *f, const Steps *steps, int i, const char *where)
{
    Emitter *e = f->e;
    for (int k = 0; k < i; k++)
        for (int a = 0; steps->at[k]->kernel && a < steps->at[k]->kernel->lines.len; a++)
            if (strcmp(source_where(e->cx, steps->at[k]->kernel->lines.at[a]), where) == 0)
                return true;
    return false;
}

/* The lines of the model for which a step does a part, unless they stand above the step before. */
static const char *step_heading(Function *f, const Steps *steps, int i)
{
    Emitter *e = f->e;
    const Step *s = steps->at[i], *before = i > 0 ? steps->at[i - 1] : NULL;
    Text t = text_new(e->cx->scratch);
    if (before && before->kernel
        && strcmp(c_kernel_lines(e, before->kernel), c_kernel_lines(e, s->kernel)) == 0)
        return NULL;
    for (int k = 0; k < s->kernel->lines.len; k++) {
        const Span at = s->kernel->lines.at[k];
        const char *where = source_where(e->cx, at);
        const char *line = is_shown_before(f, steps, i, where)
                               ? emit_format(e, "%s goes on", where)
                               : emit_format(e, "%s  %s", where, emit_source_line(e, at));
        text_add(&t, "    /* %s */\n", emit_comment(e, line, COLUMNS - 10));
    }
    return t.len ? t.at : NULL;
}

/* "9    undoes 3, 2  tiny.model:8  d_x = ..." */
static const char *undone_text(Emitter *e, const Step *s)
{
    Text t = text_new(e->cx->scratch);
    text_put(&t, s->undone.len ? "undoes " : "");
    for (int i = 0; i < s->undone.len; i++)
        text_add(&t, "%s%d", i ? ", " : "", s->undone.at[i]);
    return t.at;
}

/* What is said of a step. Forward: the line of the model where it does all of it, "3  tiny.model:8
   h = tanh(x)"; else that line as a heading and its own equation. Backward: its own equation. */
static Row step_row(Function *f, const Steps *steps, int i)
{
    Emitter *e = f->e;
    const Step *s = steps->at[i];
    const char *where = s->span.file ? source_where(e->cx, s->span) : "";
    const bool part = s->kernel->lines.len != 1 || shares_line(e, steps, s);
    Row row = { .left = calls_text(f, steps, i) };
    if (s->backward)
        row.comment = emit_format(e, "%-4d %-11s  %s  %s", s->number, undone_text(e, s),
                                  kernel_where(e, s->kernel), s->kernel->brief);
    else if (part)
        row.comment = emit_format(e, "%-4d %s", s->number, s->kernel->brief);
    else
        row.comment = emit_format(e, "%-4d %s  %s", s->number, where, emit_source_line(e, s->span));
    if (!s->backward && part)
        row.heading = step_heading(f, steps, i);
    row.comment = emit_comment(e, row.comment, COLUMNS - 10);
    return row;
}

/* ---- loops --------------------------------------------------------------------------------- */

/* "il" for a loop over L; "i" where the trip count is no name. */
static const char *loop_variable(Function *f, const Loop *loop)
{
    const char *trip = dim_text(f->e->cx, loop->trip);
    bool name = isalpha((unsigned char)trip[0]) != 0;
    for (const char *s = trip; *s; s++)
        name = name && (isalnum((unsigned char)*s) || *s == '_');
    char *var = arena_printf(f->e->cx->scratch, "i%s", name ? trip : "");
    for (char *s = var; *s; s++)
        *s = (char)tolower((unsigned char)*s);
    return names_take_exact(f->e, f->names, var);
}

typedef struct {
    int first, last;
} Numbers;

static void number_in(Numbers *n, int number)
{
    n->first = n->first == 0 || (number && number < n->first) ? number : n->first;
    n->last = number > n->last ? number : n->last;
}

static void numbers_in(const Steps *steps, Numbers *own, Numbers *undone)
{
    for (int i = 0; i < steps->len; i++) {
        const Step *s = steps->at[i];
        if (s->kernel) {
            number_in(own, s->number);
            number_in(undone, s->undoes);
        }
        numbers_in(&s->body, own, undone);
    }
}

/* "2..10  chargpt.model:39  for i in 0..L { x = h[i](x) }" */
static const char *loop_comment(Function *f, const Step *s)
{
    Emitter *e = f->e;
    Numbers own = { 0 }, undone = { 0 };
    Text t = text_new(e->cx->scratch);
    numbers_in(&s->body, &own, &undone);
    text_add(&t, "%d..%d  ", own.first, own.last);
    if (s->backward && undone.first && !s->loop->part)
        text_add(&t, "undoes %d..%d  ", undone.first, undone.last);
    text_add(&t, "%s  %s", s->span.file ? source_where(e->cx, s->span) : "",
             s->span.file ? emit_source_line(e, s->span) : "");
    return emit_comment(e, t.at, COLUMNS - 10);
}

/* Names of the buffers that a repetition reads before it writes them: what it got from the one
   before and hands on. */
static const char *names_carried(Function *f, const Step *loop)
{
    Emitter *e = f->e;
    Text t = text_new(e->cx->scratch);
    Map *first = map_new(e->cx->scratch); /* Buffer -> the word for its first access */
    for (int i = 0; i < loop->body.len; i++) {
        const Step *s = loop->body.at[i];
        for (int pass = 0; s->kernel && pass < 2; pass++)
            for (int a = 0; a < s->kernel->args.len; a++) {
                const KernelArg *arg = &s->kernel->args.at[a];
                const Operand *o = &s->operands[a];
                const char *was = map_get(first, o->buffer);
                if (o->buffer->kind != BUF_ARENA || o->loop_stride[loop->depth]
                    || (pass == 0 ? !arg->read : !arg->written))
                    continue;
                if (!was)
                    map_set(first, o->buffer, (void *)(uintptr_t)(pass == 0 ? "read" : "written"));
                else if (pass == 1 && strcmp(was, "read") == 0) {
                    text_add(&t, "%s%s", t.len ? ", " : "", o->buffer->name);
                    map_set(first, o->buffer, (void *)(uintptr_t)("told"));
                }
            }
    }
    return t.at;
}

static const Operand *first_operand(const Step *loop, const Buffer *b, bool written)
{
    for (int i = 0; i < loop->body.len; i++) {
        const Step *s = loop->body.at[i];
        for (int a = 0; s->kernel && a < s->kernel->args.len; a++) {
            const KernelArg *arg = &s->kernel->args.at[a];
            if (s->operands[a].buffer == b && (written ? arg->written : arg->read))
                return &s->operands[a];
        }
    }
    return NULL;
}

/* "; reads x, writes the next x": buffers with a place per repetition, where each reads its own
   and writes its neighbour's. */
static const char *names_passed_on(Function *f, const Step *loop)
{
    Dims *ds = f->e->p->dims;
    const Dim *zero = dim_const(ds, 0);
    Text t = text_new(f->e->cx->scratch);
    for (int i = 0; i < f->r->buffers.len; i++) {
        const Buffer *b = f->r->buffers.at[i];
        const Operand *in = first_operand(loop, b, false), *out = first_operand(loop, b, true);
        if (b->kind != BUF_ARENA || !in || !out || dim_is(out->loop_stride[loop->depth], 0))
            continue;
        const Dim *from = in->offset ? in->offset : zero, *to = out->offset ? out->offset : zero;
        const Dim *stride = out->loop_stride[loop->depth];
        if (dim_same(to, dim_add(ds, from, stride)))
            text_add(&t, "; reads %s, writes the next %s", b->name, b->name);
        else if (dim_same(from, dim_add(ds, to, stride)))
            text_add(&t, "; reads %s, writes the %s before", b->name, b->name);
    }
    return t.at;
}

static void merge_heads(FunctionHead *to, const FunctionHead *from, const Emitter *e)
{
    to->p |= from->p;
    to->p16 |= from->p16;
    to->d_p |= from->d_p;
    to->arena |= from->arena;
    to->s |= from->s;
    to->stream |= from->stream;
    to->sums |= from->sums;
    to->n |= from->n;
    for (int i = 0; i < e->p->inputs.len; i++)
        to->input[i] |= from->input[i];
    for (int i = 0; i < e->p->outputs.len; i++)
        to->output[i] |= from->output[i];
}

static const char *loop_call(Function *f, const Step *s, const char *name, const char *var,
                             const FunctionHead *h)
{
    Emitter *e = f->e;
    Arena *a = e->cx->scratch;
    Words w = head_words(f, h, false);
    Text t = text_new(a);
    const char *trip = dim_c(&f->dims, s->loop->trip);
    const char *type = dim_fits_int(e, s->loop->trip) ? "int" : "ptrdiff_t";
    if (h->arena)
        word(e, &w, f->depth ? "at" : "&at");
    if (h->s)
        word(e, &w, "s");
    if (h->n)
        word(e, &w,
             s->loop->part ? arena_printf(a, "%s(n, %s)", c_part_function(e, s->loop->part), var)
                           : "n");
    for (int d = 0; d < f->depth; d++)
        word(e, &w, f->var[d]);
    word(e, &w, var);
    word_stream(e, &w, h, false);
    if (s->loop->reverse)
        text_add(&t, "    for (%s %s = %s - 1; %s >= 0; %s--)\n", type, var, trip, var, var);
    else
        text_add(&t, "    for (%s %s = 0; %s < %s; %s++)\n", type, var, var, trip, var);
    emit_call(&t, 2 * INDENT, arena_printf(a, "%s(", name), w.at, w.len, ");");
    return t.at;
}

/* A loop's function, for an equal loop of another routine. */
typedef struct {
    const char *name;
    FunctionHead *head;
} LoopFunction;

/* The function of one repetition, written unless an equal loop has it. */
static const LoopFunction *loop_function(Function *f, const Step *s, const char *var)
{
    Emitter *e = f->e;
    Arena *a = e->cx->scratch;
    LoopFunction *own = s->twin ? map_get(e->loops, s->twin) : NULL;
    if (own)
        return own;
    Function in = { .e = e, .r = f->r, .part = f->part, .depth = f->depth + 1 };
    const char *layer = s->loop->name ? s->loop->name : "loop";
    own = NEW(a, LoopFunction);
    own->name = names_take(e, e->file, arena_printf(a, "%s_%s", layer, f->part));
    memcpy(in.loop, f->loop, sizeof in.loop);
    memcpy(in.var, f->var, sizeof in.var);
    in.loop[f->depth] = s->loop;
    in.step = f->depth ? f->step : s;
    in.var[f->depth] = var;
    const char *carried = names_carried(f, s);
    const char *what = s->loop->part
                           ? arena_printf(a, "%s of the %s rows of %s%s",
                                          dim_text(e->cx, s->loop->part->step),
                                          dim_text(e->cx, s->loop->part->whole), layer,
                                          s->backward ? ", forward and backward" : "")
                           : arena_printf(a, "one repetition of %s, %s",
                                          s->loop->stack ? s->loop->stack : layer, f->part);
    write_function(&in, own->name, &s->body, s->backward,
                   arena_printf(a, "%s%s%s%s", what, names_passed_on(f, s),
                                carried[0] ? "; in place: " : "", carried));
    own->head = in.head;
    map_set(e->loops, s, own);
    return own;
}

static void write_loop(Function *f, const Step *s)
{
    Emitter *e = f->e;
    Arena *a = e->cx->scratch;
    const char *var = loop_variable(f, s->loop);
    if (f->depth == DEPTH_MAX)
        bug("loops nest deeper than %d", DEPTH_MAX);
    const LoopFunction *function = loop_function(f, s, var);
    merge_heads(f->head, function->head, e);
    vec_push(a, &f->rows,
             ((Row){ .left = loop_call(f, s, function->name, var, function->head),
                     .comment = loop_comment(f, s) }));
}

/* ---- functions ----------------------------------------------------------------------------- */

/* Beside the calls where all fit, else each above its call. */
static void write_rows(Function *f, Text *t)
{
    bool beside = true;
    size_t column = 0;
    for (int i = 0; i < f->rows.len; i++) {
        const size_t len = f->rows.at[i].check ? 0 : strlen(f->rows.at[i].left);
        column = len > column ? len : column;
    }
    for (int i = 0; i < f->rows.len; i++)
        beside = beside
                 && (f->rows.at[i].check
                     || (strchr(f->rows.at[i].left, '\n') == NULL && f->rows.at[i].comment
                         && column + 8 + strlen(f->rows.at[i].comment) <= COLUMNS));
    for (int i = 0; i < f->rows.len; i++) {
        const Row *r = &f->rows.at[i];
        text_put(t, r->heading ? r->heading : "");
        if (!beside && r->comment)
            text_add(t, "    /* %s */\n", r->comment);
        text_put(t, r->left);
        if (beside && r->comment) {
            text_pad(t, column + 1);
            text_add(t, " /* %s */", r->comment);
        }
        text_put(t, "\n");
    }
}

static void write_head(Function *f, const char *name)
{
    Emitter *e = f->e;
    Words w = head_words(f, f->head, true);
    if (f->depth > 0 && f->head->arena)
        word(e, &w, emit_format(e, "const %s *at", routine_plan_type(e, f->r)));
    if (f->head->s)
        word(e, &w, f->head->sums ? "RtStep *s" : "const RtStep *s");
    if (f->head->n)
        word(e, &w, "Dims n");
    for (int d = 0; d < f->depth; d++)
        word(e, &w, emit_format(e, "%s %s", loop_is_wide(f, d) ? "ptrdiff_t" : "int", f->var[d]));
    word_stream(e, &w, f->head, true);
    if (w.len == 0)
        word(e, &w, "void");
    emit_call(e->out, 0, emit_format(e, "static void %s(", name), w.at, w.len, ")\n{\n");
}

static void function_prepare(Function *f)
{
    Emitter *e = f->e;
    f->head = head_new(e);
    f->names = names_new(e, e->file);
    f->dims = dim_scope(e, "n.");
    f->local = map_new(e->cx->scratch);
    f->moving = map_new(e->cx->scratch);
    f->base = map_new(e->cx->scratch);
    f->pointers = text_new(e->cx->scratch);
    for (int i = 0; i < e->p->inputs.len; i++)
        names_take_exact(e, f->names, e->input[i]);
    for (int i = 0; f->r && f->r == e->kp->output && i < e->p->outputs.len; i++)
        names_take_exact(e, f->names, e->output[i]);
    for (int d = 0; d < f->depth; d++)
        names_take_exact(e, f->names, f->var[d]);
}

/* Outputs: the same pointer serves as argument and as the name of the value it holds. */
static void write_function(Function *f, const char *name, const Steps *steps, bool backward,
                           const char *what)
{
    Emitter *e = f->e;
    Arena *a = e->cx->scratch;
    if (f->head == NULL)
        function_prepare(f);
    operands_declare(f, steps, backward);
    for (int i = 0; i < steps->len; i++) {
        const Step *s = steps->at[i];
        if ((f->depth == 0 && s->backward != backward) || s->rest)
            continue;
        if (s->kernel == NULL)
            write_loop(f, s);
        else
            vec_push(a, &f->rows, step_row(f, steps, i));
        if (s->kernel && f->r == e->kp->train)
            check_step(f, s);
        if (f->depth == 0)
            ready_mark(f, s, false);
    }
    if (f->depth == 1)
        ready_mark(f, f->step, true);
    for (int i = 0; i < dims_count(e->p->dims); i++)
        f->head->n = f->head->n || f->dims.used[i];
    const bool plan = f->depth == 0 && f->head->arena;
    f->head->n = f->head->n || plan;
    text_add(e->out, "/* %s */\n", emit_comment(e, what, 90));
    write_head(f, name);
    if (plan)
        text_add(e->out, "    const %s at = %s(n);\n", routine_plan_type(e, f->r),
                 routine_plan_function(e, f->r));
    emit_aligned(e->out, f->pointers.at, 48);
    text_put(e->out, (plan || f->pointers.len) && f->rows.len ? "\n" : "");
    check_repetition(f);
    write_rows(f, e->out);
    text_put(e->out, "}\n\n");
}

static bool has_steps(const Routine *r, bool backward)
{
    for (int i = 0; r && i < r->steps.len; i++)
        if (r->steps.at[i]->backward == backward)
            return true;
    return false;
}

static void write_part(Emitter *e, const Routine *r, const char *part, bool backward,
                       const char *what)
{
    Function f = { .e = e, .r = r, .part = part };
    const char *name = names_take(e, e->file, emit_format(e, "%s_%s", e->model, part));
    write_function(&f, name, &r->steps, backward, what);
    map_set(e->call_dims, head_key(e, r, part), f.head);
}

/* ---- counts -------------------------------------------------------------------------------- */

/* What the means divide by: formulas of the dims, then the steps that look at the data. */
static void write_count(Emitter *e)
{
    static const Steps nothing = { 0 };
    const Routine *r = e->kp->count;
    Function f = { .e = e, .r = r, .part = "count" };
    const char *name = names_take(e, e->file, emit_format(e, "%s_count", e->model));
    function_prepare(&f);
    for (int i = 0; i < e->p->means.len; i++) {
        const MeanSlot *m = &e->p->means.at[i];
        if (m->count == NULL)
            continue;
        f.head->s = f.head->sums = true;
        vec_push(e->cx->scratch, &f.rows,
                 ((Row){ .left = emit_format(e, "    s->count[S_%s] += (double)(%s);", e->slot[i],
                                             dim_c(&f.dims, m->count)),
                         .comment = emit_format(
                             e, "%s  %s", emit_comment(e, m->text ? m->text : m->name, 60),
                             m->span.file ? source_where(e->cx, m->span) : "") }));
    }
    write_function(&f, name, r ? &r->steps : &nothing, false,
                   "adds what the means divide by, for one micro-step");
    map_set(e->call_dims, head_key(e, r, "count"), f.head);
}

void c_slots(Emitter *e)
{
    Text t = text_new(e->cx->scratch);
    if (e->p->means.len == 0)
        return;
    text_put(&t, "enum {\t/* means over the data, sum / count: places in RtStep */\n");
    for (int i = 0; i < e->p->means.len; i++) {
        const MeanSlot *m = &e->p->means.at[i];
        text_add(&t, "    S_%s = %d,\t/* %s%s  %s */\n", e->slot[i], i,
                 m->weight != 0 ? "" : "metric: ", emit_comment(e, m->text ? m->text : m->name, 36),
                 m->span.file ? source_where(e->cx, m->span) : "");
    }
    text_put(&t, "};\n");
    emit_aligned(e->out, t.at, 40);
    text_put(e->out, "\n");
}

/* ---- sections ------------------------------------------------------------------------------ */

static bool adds_to_sums(const Steps *steps, bool backward)
{
    for (int i = 0; i < steps->len; i++) {
        const Step *s = steps->at[i];
        for (int a = 0; s->kernel && a < s->kernel->args.len; a++)
            if (s->backward == backward && s->operands[a].buffer->kind == BUF_SUM)
                return true;
        if (adds_to_sums(&s->body, backward))
            return true;
    }
    return false;
}

static bool has_mixed(const Steps *steps)
{
    for (int i = 0; i < steps->len; i++)
        if (steps->at[i]->mixed || has_mixed(&steps->at[i]->body))
            return true;
    return false;
}

static bool has_epilogue(const Steps *steps)
{
    for (int i = 0; i < steps->len; i++)
        if (steps->at[i]->epilogue || has_epilogue(&steps->at[i]->body))
            return true;
    return false;
}

void c_forward(Emitter *e)
{
    emit_banner(e, 5, "forward");
    if (e->kp->train)
        text_add(e->out, "%s%s */\n\n", how_to_read,
                 has_epilogue(&e->kp->train->steps) ? how_epilogues : "");
    if (!e->cuda) /* there section 4 has them */
        c_slots(e);
    if (e->p->means.len > 0)
        write_count(e);
    if (e->kp->train)
        write_part(e, e->kp->train, "forward", false,
                   !adds_to_sums(&e->kp->train->steps, true)
                       ? "training: fills the arena and adds to the sums"
                   : adds_to_sums(&e->kp->train->steps, false)
                       ? "training: fills the arena and adds to sums; section 6 adds to others"
                       : "training: fills the arena; section 6 adds to the sums");
    if (e->kp->eval)
        write_part(e, e->kp->eval, "evaluate", false,
                   "evaluation: the same values, kept for no backward pass; adds to the sums");
    if (e->kp->output)
        write_part(e, e->kp->output, "outputs", false, "the outputs, for given inputs");
}

void c_backward(Emitter *e)
{
    emit_banner(e, 6, "backward: the steps of section 5, last first");
    text_put(
        e->out,
        "/* From the loss back. d_x is d loss / d x; seed_* is d loss / d sum_*, the weight of\n"
        " * the mean / its count in the whole update, over all micro-steps (and ranks, where\n"
        " * several processes train together). An addition hands its gradient on to its terms\n"
        " * as it is, so it has no step here, and one d_x may belong to a sum and to its terms.\n"
        " * A value that is used twice gets the sum of two gradients; a bias, the sum over all\n"
        " * rows.");
    if (e->kp->train && has_mixed(&e->kp->train->steps))
        text_put(e->out,
                 " What is computed for a part of the rows at a time is here as a whole, its\n"
                 " * forward steps too: a part's values are kept for its own gradients "
                 "alone.");
    text_put(e->out, " */\n\n");
    if (has_steps(e->kp->train, true))
        write_part(e, e->kp->train, "backward", true,
                   "gradients: the first write of an update replaces, later ones add");
    else
        text_put(e->out, "/* nothing: there is no loss */\n\n");
}
