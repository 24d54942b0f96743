/* c_memory.c -- section 3: the memory map of each routine, its plan struct and plan function.
 *
 * In: buffers as plan.c placed them. Out: a table in a comment (offsets and bytes at the training
 * dims), a struct with one offset per buffer, and a function with the formulas that hold for all
 * dims: a buffer lies above everything in `below`.
 */
#include "emit/parts.h"

#include <string.h>

static const char how_to_read[] =
    "/* One arena holds what a numbered step of sections 5 and 6 leaves for later ones. Values\n"
    " * that are not needed at the same time share bytes: 'over' lists what was there before, 'in\n"
    " * place of' means that a step replaces its input. work_* hold partial sums while a step\n"
    " * runs. Sizes are known when the program starts, so offsets are formulas: a buffer lies\n"
    " * above all that are needed while it is. RT_SIZE rounds up to RT_ALIGN bytes, and\n"
    " * rt_above(a, b) is the higher one. */\n\n";

static bool is_train(const Routine *r) { return strcmp(r->name, "train") == 0; }

const char *routine_plan_type(Emitter *e, const Routine *r)
{
    r = r->shares ? r->shares : r;
    if (is_train(r))
        return "Plan";
    char *type = arena_printf(e->cx->scratch, "%sPlan", r->name);
    type[0] = (char)(type[0] - 'a' + 'A');
    return type;
}

const char *routine_plan_function(Emitter *e, const Routine *r)
{
    r = r->shares ? r->shares : r;
    return emit_format(e, is_train(r) ? "%s_plan" : "%s_%s_plan", e->model, r->name);
}

bool routine_has_arena(const Routine *r)
{
    for (int i = 0; i < r->buffers.len; i++)
        if (buffer_is_placed(r->buffers.at[i]))
            return true;
    return false;
}

/* "RT_CHUNKS", "4*RT_CHUNKS": rows of a buffer of partial sums. */
static const char *chunk_rows(Emitter *e, const Buffer *b)
{
    return b->partials == 1 ? "RT_CHUNKS" : emit_format(e, "%d*RT_CHUNKS", b->partials);
}

const char *c_buffer_shape(Emitter *e, const Buffer *b)
{
    if (!b->partials)
        return emit_comment(e, emit_shape(e, b->type), 40);
    return emit_format(e, "[%s,%s]", chunk_rows(e, b), dim_text(e->cx, b->type->dim[1]));
}

/* ---- the table ------------------------------------------------------------------------------- */

/* Numbers of the first step that writes a buffer and of the last that reads it. */
typedef struct {
    int written, read;
} Life;

static void find_life(const Steps *steps, const Buffer *b, Life *life)
{
    for (int i = 0; i < steps->len; i++) {
        const Step *s = steps->at[i];
        for (int a = 0; s->kernel && a < s->kernel->args.len; a++) {
            if (s->operands[a].buffer != b)
                continue;
            const KernelArg *arg = &s->kernel->args.at[a];
            if (arg->written && (life->written == 0 || s->number < life->written))
                life->written = s->number;
            if ((arg->read || b->partials) && s->number > life->read)
                life->read = s->number;
        }
        find_life(&s->body, b, life);
    }
}

/* What lay in the same bytes before: the buffer in whose place it is written, or others. */
static const char *shares_with(Emitter *e, const Routine *r, const Buffer *b)
{
    Text t = text_new(e->cx->scratch);
    if (b->over)
        return emit_format(e, "in place of %s", b->over->name);
    for (int i = 0; i < r->buffers.len; i++) {
        const Buffer *o = r->buffers.at[i];
        if (o == b || !buffer_is_placed(o) || o->last >= b->first
            || o->offset >= b->offset + b->bytes || b->offset >= o->offset + o->bytes)
            continue;
        text_add(&t, "%s%s", t.len ? ", " : "over ", o->name);
    }
    return t.at;
}

typedef struct { /* of the columns of a table */
    size_t name, shape, offset, bytes;
} Widths;

static void widen(size_t *width, size_t to) { *width = to > *width ? to : *width; }

/* Where a line is too short, numbers get the width that they need, and then shapes are cut. */
static Widths widths_of(Emitter *e, const Routine *r)
{
    enum { NUMBER = 11, SHAPE_MOST = 28, SHAPE_LEAST = 12 };
    const size_t room = COLUMNS - strlen(" *       bf16    written  last read");
    Widths w = { .name = strlen("buffer"), strlen("shape"), strlen("offset"), strlen("bytes") };
    for (int i = 0; i < r->buffers.len; i++) {
        const Buffer *b = r->buffers.at[i];
        if (!buffer_is_placed(b))
            continue;
        widen(&w.name, strlen(b->name));
        widen(&w.shape, strlen(c_buffer_shape(e, b)));
        widen(&w.offset, strlen(emit_format(e, "%lld", (long long)b->offset)));
        widen(&w.bytes, strlen(emit_format(e, "%lld", (long long)b->bytes)));
    }
    w.shape = w.shape > SHAPE_MOST ? SHAPE_MOST : w.shape;
    if (w.name + w.shape + 2 * NUMBER <= room)
        w.offset = w.bytes = NUMBER;
    while (w.shape > SHAPE_LEAST && w.name + w.shape + w.offset + w.bytes > room)
        w.shape--;
    return w;
}

static void write_table(Emitter *e, const Routine *r)
{
    const char *dims = c_training_dims(e);
    const Widths w = widths_of(e, r);
    text_add(e->out,
             "/* The arena of %s: %s%s%s.\n"
             " * Offsets and bytes are those at these sizes; written and last read are numbers of\n"
             " * steps (section%s).\n"
             " *\n",
             is_train(r)                      ? "a training step"
             : strcmp(r->name, "eval") == 0   ? "an evaluation"
             : strcmp(r->name, "output") == 0 ? "the outputs"
                                              : "the counts",
             emit_bytes(e, r->arena_bytes), dims[0] ? " at " : "", dims,
             is_train(r) ? "s 5 and 6" : " 5");
    if (is_train(r) && e->p->recompute.summary) {
        emit_prose(e->out, " * ", " * ",
                   emit_format(e, "recompute = %s.", e->p->recompute.summary));
        text_put(e->out, "\n *\n");
    }
    text_add(e->out, " *   %-*s  %-*s  %-4s %*s %*s  written  last read\n", (int)w.name, "buffer",
             (int)w.shape, "shape", "type", (int)w.offset, "offset", (int)w.bytes, "bytes");
    for (int i = 0; i < r->buffers.len; i++) {
        const Buffer *b = r->buffers.at[i];
        if (!buffer_is_placed(b))
            continue;
        Life life = { 0 };
        Text t = text_new(e->cx->scratch);
        find_life(&r->steps, b, &life);
        text_add(&t, "%-*s  %-*s  %-4s %*lld %*lld  %7d  %9d", (int)w.name, b->name, (int)w.shape,
                 emit_comment(e, c_buffer_shape(e, b), w.shape), dtype_name(b->dtype),
                 (int)w.offset, (long long)b->offset, (int)w.bytes, (long long)b->bytes,
                 life.written, life.read > life.written ? life.read : life.written);
        text_add(e->out, " *   %s", emit_comment(e, t.at, COLUMNS - 5));
        const char *shares = shares_with(e, r, b);
        if (b->row)
            text_add(e->out, "\n *       %s of each row are values",
                     emit_comment(e, dim_text(e->cx, b->row), 40));
        text_put(e->out, "\n");
        if (shares[0])
            emit_prose(e->out, " *       ", " *         ", shares);
        text_put(e->out, shares[0] ? "\n" : "");
    }
    text_put(e->out, " */\n");
}

/* ---- struct and function --------------------------------------------------------------------- */

const char *c_place_size(Emitter *e, DimScope *s, const Buffer *b)
{
    if (b->partials)
        return emit_format(e, "RT_SIZE(%s, %s*%s)", c_type(e, b->dtype), chunk_rows(e, b),
                           dim_c_factor(s, b->type->dim[1]));
    return emit_format(e, "RT_SIZE(%s, %s)", c_type(e, b->dtype),
                       dim_c(s, type_elems(e->p->dims, b->type)));
}

const char *plan_field(Emitter *e, const Buffer *b)
{
    return map_get(e->field, b->twin ? b->twin : b);
}

static void name_fields(Emitter *e, const Routine *r)
{
    Names *scope = names_new(e, NULL);
    names_take_exact(e, scope, "bytes");
    if (routine_is_part(e, r))
        names_take_exact(e, scope, "outputs");
    for (int i = 0; i < r->buffers.len; i++)
        if (buffer_is_placed(r->buffers.at[i]))
            map_set(e->field, r->buffers.at[i],
                    (void *)(uintptr_t)names_take(e, scope, r->buffers.at[i]->name));
}

static void write_struct(Emitter *e, const Routine *r)
{
    Text fields = text_new(e->cx->scratch);
    text_put(&fields, "typedef struct { size_t");
    for (int i = 0; i < r->buffers.len; i++)
        if (buffer_is_placed(r->buffers.at[i]))
            text_add(&fields, " %s,", plan_field(e, r->buffers.at[i]));
    text_put(&fields, routine_is_part(e, r) ? " outputs," : "");
    text_add(&fields, " bytes; } %s;", routine_plan_type(e, r));
    emit_statement(e->out, 0, fields.at);
    text_put(e->out, "\n");
}

/* Buffers in an order in which each comes after those below it. */
static void place_in_order(Emitter *e, Buffer *b, bool *done, Buffer **order, int *n)
{
    if (done[b->id])
        return;
    done[b->id] = true;
    if (b->over)
        place_in_order(e, b->over, done, order, n);
    for (int i = 0; i < b->below.len; i++)
        place_in_order(e, buffer_root(b->below.at[i]), done, order, n);
    order[(*n)++] = b;
}

/* at.x = at.y + SIZE;  or, where x has an offset already,  at.x = rt_above(at.x, at.y + SIZE); */
static void write_assignment(Emitter *e, const char *name, const char *old, const char *below,
                             const char *size, size_t width)
{
    Arena *a = e->cx->scratch;
    const char *end = arena_printf(a, "at.%s + %s", below, size);
    if (old == NULL) {
        emit_statement(e->out, INDENT, arena_printf(a, "at.%-*s = %s;", (int)width, name, end));
        return;
    }
    emit_call(e->out, INDENT, arena_printf(a, "at.%-*s = rt_above(", (int)width, name),
              (const char *[]){ arena_printf(a, "at.%s", old), end }, 2, ");\n");
}

static void write_offset(Emitter *e, DimScope *s, const Buffer *b, size_t width)
{
    const char *name = plan_field(e, b);
    if (b->over) {
        text_add(e->out, "    at.%-*s = at.%s;\n", (int)width, name, plan_field(e, b->over));
        return;
    }
    if (b->below.len == 0)
        text_add(e->out, "    at.%-*s = 0;\n", (int)width, name);
    for (int i = 0; i < b->below.len; i++) {
        const Buffer *y = buffer_root(b->below.at[i]);
        write_assignment(e, name, i == 0 ? NULL : name, plan_field(e, y), c_place_size(e, s, y),
                         width);
    }
}

/* Where the buffers marked in `of` end (NULL: all): those ends that no other of them lies above. */
static void write_end(Emitter *e, DimScope *s, const Routine *r, const char *field, const bool *of,
                      size_t width)
{
    bool *covered = NEW_ARRAY(e->cx->scratch, bool, r->buffers.len + 1);
    bool first = true;
    for (int i = 0; i < r->buffers.len; i++) {
        const Buffer *b = r->buffers.at[i];
        for (int k = 0; buffer_is_placed(b) && (!of || of[i]) && k < b->below.len; k++)
            covered[buffer_root(b->below.at[k])->id] = true;
    }
    for (int i = 0; i < r->buffers.len; i++) {
        const Buffer *b = r->buffers.at[i];
        if (!buffer_is_placed(b) || b->over || covered[b->id] || (of && !of[i]))
            continue;
        write_assignment(e, field, first ? NULL : field, plan_field(e, b), c_place_size(e, s, b),
                         width);
        first = false;
    }
}

/* By id of r's places: the outputs, which use the plan of r, need it. */
static const bool *places_of_outputs(Emitter *e, const Routine *r)
{
    bool *of = NEW_ARRAY(e->cx->scratch, bool, r->buffers.len + 1);
    const Routine *part = e->kp->output;
    for (int i = 0; i < part->buffers.len; i++)
        if (part->buffers.at[i]->twin)
            of[buffer_root(part->buffers.at[i]->twin)->id] = true;
    return of;
}

bool routine_is_part(Emitter *e, const Routine *r)
{
    const Routine *part = e->kp->output;
    return part && part->shares && (r == part || r == part->shares)
           && part->arena_bytes < part->shares->arena_bytes;
}

static void write_plan(Emitter *e, const Routine *r)
{
    DimScope s = dim_scope(e, "n.");
    Text *out = e->out, body = text_new(e->cx->scratch);
    bool *done = NEW_ARRAY(e->cx->scratch, bool, r->buffers.len + 1), any = false;
    Buffer **order = NEW_ARRAY(e->cx->scratch, Buffer *, r->buffers.len + 1);
    size_t width = 5;
    int n = 0;
    for (int i = 0; i < r->buffers.len; i++)
        if (buffer_is_placed(r->buffers.at[i])) {
            const size_t len = strlen(plan_field(e, r->buffers.at[i]));
            place_in_order(e, r->buffers.at[i], done, order, &n);
            width = len > width ? len : width;
        }
    width = width > 24 ? 24 : width;
    e->out = &body;
    for (int i = 0; i < n; i++)
        write_offset(e, &s, order[i], width);
    if (routine_is_part(e, r))
        write_end(e, &s, r, "outputs", places_of_outputs(e, r), width);
    write_end(e, &s, r, "bytes", NULL, width);
    e->out = out;
    for (int i = 0; i < dims_count(e->p->dims); i++)
        any = any || s.used[i];
    text_add(out, "static %s %s(Dims n)\n{\n    %s at;\n%s%s    return at;\n}\n",
             routine_plan_type(e, r), routine_plan_function(e, r), routine_plan_type(e, r),
             any ? "" : "    RT_UNUSED(n);\n", body.at);
}

void c_memory(Emitter *e)
{
    const Routine *const routine[] = { e->kp->train, e->kp->eval, e->kp->output, e->kp->count };
    bool any = false;
    emit_banner(e, 3, "memory map");
    for (int i = 0; i < 4; i++) {
        if (routine[i] == NULL || !routine_has_arena(routine[i]))
            continue;
        text_put(e->out, any ? "\n" : how_to_read);
        any = true;
        if (routine[i]->shares) {
            text_put(
                e->out,
                "/* The outputs use the arena of an evaluation: some of its steps make them. They\n"
                " * themselves lie in the caller's memory. */\n");
            continue;
        }
        name_fields(e, routine[i]);
        write_table(e, routine[i]);
        text_put(e->out, "\n");
        write_struct(e, routine[i]);
        write_plan(e, routine[i]);
    }
    if (!any)
        text_put(e->out, "/* nothing: no step needs memory of its own */\n");
}
