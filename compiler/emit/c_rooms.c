/* c_rooms.c -- in section 8, what products and attention work in besides the arena.
 *
 * In: the calls among the steps of each routine. Out: a function that asks for each of them, with
 * its sizes. On a GPU an algorithm for a product depends on the alignment of its operands: where
 * one begins elsewhere than on a boundary of 16 bytes, as parameters at odd places do, that place
 * is told too, in a stack for the repetitions that differ.
 */
#include "emit/step.h"

#include <string.h>

enum { BOUNDARY = 16, PLACES = 8 }; /* bytes; elements of 16 bits in them */

typedef struct { /* the calls of a routine */
    Emitter *e;
    DimScope *dims;
    Map *seen; /* statements that are there */
    int indent;
    Text *out;
    int depth; /* loops around the step */
    const Loop *loop[DEPTH_MAX];
    const char *var[DEPTH_MAX];
    bool moves[DEPTH_MAX]; /* an operand does not stay on its boundary from one to the next */
} Rooms;

/* ---- where operands begin -------------------------------------------------------------------- */

static void add_term(Emitter *e, Text *t, const char *term)
{
    text_put(t, emit_format(e, "%s%s", t->len ? " + " : "", term));
}

/* Of the flat buffer: the place of a parameter, or of its first repetition, if it is off. */
static void add_parameter(Rooms *r, Text *t, const Buffer *b, int n)
{
    Emitter *e = r->e;
    const bool halves = b->kind == BUF_PARAM16 && program_has_halves(e->p);
    if (!dim_is_multiple(c_param_at(e, b->index), n))
        add_term(e, t, c_param_start(e, b->index));
    if (halves
        && !dim_is_multiple(dim_sub(e->p->dims, c_count_parameters(e), c_count_halves(e)), n))
        add_term(e, t, "P_HALVES");
}

/* Elements from a boundary to where the operand begins, less what is a multiple of it; "": none.
   All buffers begin on one. n: elements from one boundary to the next. */
static const char *start_of(Rooms *r, const Operand *o, int n)
{
    Emitter *e = r->e;
    const BufKind kind = o->buffer->kind;
    Text t = text_new(e->cx->scratch);
    if (kind == BUF_PARAM || kind == BUF_PARAM16 || kind == BUF_GRAD)
        add_parameter(r, &t, o->buffer, n);
    for (int d = 0; d < r->depth; d++) {
        if (o->loop_stride[d] == NULL || dim_is_multiple(o->loop_stride[d], n))
            continue;
        r->moves[d] = true;
        add_term(e, &t,
                 emit_format(e, "%s*%s", r->var[d], dim_c_factor(r->dims, o->loop_stride[d])));
    }
    if (o->offset && !dim_is_multiple(o->offset, n))
        add_term(e, &t, dim_c(r->dims, o->offset));
    return t.at ? t.at : "";
}

/* A bias of a result in 16 bits is read in the parameters' copy in 16 bits, or else rounded. */
static bool bias_is_read(const Emitter *e, const Kernel *k, const Operand *bias)
{
    const bool wide = dtype_bytes(k->args.at[0].dtype) > 2;
    return wide || (bias->buffer->kind == BUF_PARAM && !program_has_halves(e->p));
}

/* ".b = P_FC2_WEIGHT": all operands of a product that are off their boundary; "": none. */
static const char *starts_of(Rooms *r, const Step *step)
{
    static const char *const name[] = { "c", "a", "b", "bias" };
    const Kernel *k = step->kernel;
    Text t = text_new(r->e->cx->scratch);
    memset(r->moves, 0, sizeof r->moves);
    if (k->kind != KERNEL_MATMUL || !r->e->cuda)
        return "";
    for (int i = 0; i < (k->matmul.bias ? 4 : 3); i++) {
        const Operand *o = &step->operands[i];
        if (i == 3 && !bias_is_read(r->e, k, o))
            continue;
        const char *start = start_of(r, o, BOUNDARY / dtype_bytes(k->args.at[i % 3].dtype));
        if (start[0])
            text_add(&t, "%s.%s = %s", t.len ? ", " : "", name[i], start);
    }
    return t.len ? t.at : "";
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* What the product that is told next may do besides. */
static const char *epilogue_of(Emitter *e, const Step *s, int indent)
{
    const Epilogue *x = s->epilogue;
    if (x == NULL)
        return "";
    const bool alone = buffer_root(x->to.buffer) == buffer_root(s->operands[0].buffer);
    return emit_format(e, "%*srt_room_epilogue(rooms, %s);\n", indent, "",
                       x->kind == EPILOGUE_GELU_GRAD ? "RT_GELU_GRAD"
                       : alone                       ? "RT_GELU"
                                                     : "RT_GELU_AND_INPUT");
}

/* A product with operands off their boundaries, in each iteration that differs. */
static const char *product_with_starts(Rooms *r, const Step *step, const char *starts)
{
    Emitter *e = r->e;
    Text t = text_new(e->cx->scratch);
    int indent = r->indent;
    for (int d = 0; d < r->depth; d++) {
        const char *trip = dim_c(r->dims, r->loop[d]->trip);
        if (!r->moves[d])
            continue;
        text_add(&t, "%*sfor (ptrdiff_t %s = 0; %s < %d && %s < %s; %s++)", indent, "", r->var[d],
                 r->var[d], PLACES, r->var[d], trip, r->var[d]);
        text_put(&t, "\n");
        indent += INDENT;
    }
    if (indent > r->indent) /* the brace of the innermost loop */
        t.at[--t.len] = '\0';
    text_add(&t, indent > r->indent ? " {\n" : "%*s{\n", indent, "");
    indent += indent > r->indent ? 0 : INDENT;
    emit_statement(&t, indent, emit_format(e, "const RtStarts at = { %s };", starts));
    text_put(&t, epilogue_of(e, step, indent));
    text_put(&t, c_call_room(e, r->dims, step->kernel, "at", indent));
    text_add(&t, "%*s}\n", indent - INDENT, "");
    return t.at;
}

static const char *product_or_call(Rooms *r, const Step *step)
{
    return emit_format(r->e, "%s%s", epilogue_of(r->e, step, r->indent),
                       c_call_room(r->e, r->dims, step->kernel, NULL, r->indent));
}

static void collect(Rooms *r, const Steps *steps)
{
    for (int i = 0; i < steps->len; i++) {
        const Step *step = steps->at[i];
        if (step->kernel == NULL) {
            r->loop[r->depth++] = step->loop;
            collect(r, &step->body);
            r->depth--;
            continue;
        }
        const char *starts = starts_of(r, step);
        const char *text = starts[0] ? product_with_starts(r, step, starts)
                                     : product_or_call(r, step);
        text = intern(r->e->cx, text);
        if (text[0] && !map_get(r->seen, text))
            text_put(r->out, text);
        map_set(r->seen, text, (void *)(uintptr_t)text);
    }
}

/* ---- the function ---------------------------------------------------------------------------- */

/* What a part is like that comes last: less than the others. */
static void write_last_parts(Emitter *e, DimScope *s, Text *t)
{
    for (int i = 0; i < dims_count(e->p->dims); i++) {
        const Symbol *part = dims_at(e->p->dims, i);
        if (part->kind == SYM_PART)
            text_add(t, "        n = %s(n, %s);\n", c_part_function(e, part),
                     dim_c(s, dim_sub(e->p->dims, dim_parts(e->p->dims, part), dim_one(e))));
    }
}

/* The calls of each routine, those that several have once. */
static Text write_entries(Emitter *e, DimScope *s, int indent)
{
    const Routine *const routine[] = { e->kp->train, e->kp->eval, e->kp->output, e->kp->count };
    Text body = text_new(e->cx->scratch), calls[4];
    Names *names = names_new(e, e->file);
    Rooms r = { .e = e, .dims = s, .indent = indent + INDENT };
    for (int d = 0; d < DEPTH_MAX; d++)
        r.var[d] = names_take_exact(e, names, "i");
    for (int i = 0; i < 4; i++) {
        calls[i] = text_new(e->cx->scratch);
        r.out = &calls[i];
        r.seen = map_new(e->cx->scratch);
        if (routine[i])
            collect(&r, &routine[i]->steps);
    }
    for (int i = 0; i < 4; i++) {
        if (calls[i].len == 0)
            continue;
        text_add(&body, "%*sif (entry == %s", indent, "", c_entry_name[i]);
        for (int k = i + 1; k < 4; k++)
            if (strcmp(calls[k].at, calls[i].at) == 0) {
                text_add(&body, " || entry == %s", c_entry_name[k]);
                calls[k].len = 0;
            }
        text_add(&body, ") {\n%s%*s}\n", calls[i].at, indent, "");
    }
    return body;
}

bool c_rooms(Emitter *e)
{
    DimScope s = dim_scope(e, "n.");
    Text last = text_new(e->cx->scratch);
    write_last_parts(e, &s, &last);
    const Text body = write_entries(e, &s, last.len ? 2 * INDENT : INDENT);
    if (body.len == 0)
        return false;
    text_put(e->out,
             "/* What products and attention work in, besides the arena: asked for before a "
             "step. A\n"
             " * .bias only says that there is one.");
    if (strstr(body.at, "RtStarts"))
        text_add(e->out,
                 " RtStarts: operands that begin so many elements\n"
                 " * behind a boundary of %d bytes, give or take some boundaries; the places of a\n"
                 " * stack repeat after %d.",
                 BOUNDARY, PLACES);
    text_add(e->out,
             " */\nstatic void %s_rooms(const ptrdiff_t *dims, RtEntry entry, RtRooms *rooms)\n{\n",
             e->model);
    if (dim_any_used(&s))
        text_add(e->out, "    %sDims n = %s_dims(dims);\n", last.len ? "" : "const ", e->model);
    else
        text_put(e->out, "    RT_UNUSED(dims);\n");
    if (last.len)
        text_add(e->out,
                 "    for (int part = 0; part < 2; part++) { /* the first, the last */\n"
                 "%s%s    }\n}\n\n",
                 body.at, last.at);
    else
        text_add(e->out, "%s}\n\n", body.at);
    return true;
}
