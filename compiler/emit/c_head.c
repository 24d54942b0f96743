/* c_head.c -- names of the whole file, its head comment, and section 1: dimensions.
 *
 * In: the program. Out: identifiers for everything that has one in the file; the comment that says
 * what the file is; constants as an enum, run-time dims as a struct.
 */
#include "emit/parts.h"

#include <string.h>

/* ---- names ---------------------------------------------------------------------------------- */

static void name_symbols(Emitter *e)
{
    const int n = dims_count(e->p->dims);
    e->symbol = NEW_ARRAY(e->cx->scratch, const char *, n + 1);
    for (int g = 0; g < e->p->groups.len; g++) {
        const Symbol *s = e->p->groups.at[g].stride_sym;
        if (s != NULL)
            e->symbol[s->id] = names_take_exact(e, e->file, s->name);
    }
    for (int i = 0; i < n; i++)
        if (e->symbol[i] == NULL)
            e->symbol[i] = names_take(e, e->file, dims_at(e->p->dims, i)->name);
}

/* "enc.h" within "a": a_enc_h, of its 16-bit half a16_enc_h16 */
static const char *group_path(Emitter *e, int g)
{
    const ParamGroup *group = &e->p->groups.at[g];
    const char *name = emit_format(e, "%s%s", emit_identifier(e, group->name),
                                   group->twin ? "16" : "");
    return group->parent < 0 ? name : emit_format(e, "%s_%s", group_path(e, group->parent), name);
}

static void name_parameters(Emitter *e)
{
    Arena *a = e->cx->scratch;
    e->param = NEW_ARRAY(a, const char *, e->p->params.len + 1);
    e->group = NEW_ARRAY(a, const char *, e->p->groups.len + 1);
    names_take_exact(e, e->file, "P_COUNT");
    names_take_exact(e, e->file, "P_HALVES");
    for (int i = 0; i < e->p->groups.len; i++)
        e->group[i] = names_take_exact(e, e->file, arena_printf(a, "P_%s", group_path(e, i)));
    for (int i = 0; i < e->p->params.len; i++)
        e->param[i] = names_take_exact(
            e, e->file, arena_printf(a, "P_%s", emit_identifier(e, e->p->params.at[i].name)));
}

/* As the steps have it that make it: "logits_2" where logits is another value, in 16 bits. */
static const char *output_name(Emitter *e, int output)
{
    for (int i = 0; e->kp->output && i < e->kp->output->buffers.len; i++) {
        const Buffer *b = e->kp->output->buffers.at[i];
        if (b->kind == BUF_OUTPUT && b->index == output)
            return b->name;
    }
    return e->p->outputs.at[output].name;
}

void c_name_all(Emitter *e)
{
    Program *p = e->p;
    Arena *a = e->cx->scratch;
    Names *slots = names_new(e, NULL), *tensors = names_new(e, NULL);
    e->real = p->real == DT_F64 ? "double" : "float";
    e->suffix = p->real == DT_F64 ? "f64" : "f32";
    e->file = names_new(e, NULL);
    name_symbols(e);
    e->model = names_take(e, e->file, p->name);
    name_parameters(e);
    e->slot = NEW_ARRAY(a, const char *, p->means.len + 1);
    e->input = NEW_ARRAY(a, const char *, p->inputs.len + 1);
    e->output = NEW_ARRAY(a, const char *, p->outputs.len + 1);
    tensors->outer = e->file;
    for (int i = 0; i < p->means.len; i++)
        e->slot[i] = names_take_exact(e, slots, emit_identifier(e, p->means.at[i].name));
    for (int i = 0; i < p->inputs.len; i++)
        e->input[i] = names_take(e, tensors, p->inputs.at[i].name);
    for (int i = 0; i < p->outputs.len; i++)
        e->output[i] = names_take(e, tensors, output_name(e, i));
    e->kernel_name = map_new(a);
    e->loops = map_new(a);
    c_link_kernels(e);
    e->call_dims = map_new(a);
    e->field = map_new(a);
}

/* ---- the head comment ------------------------------------------------------------------------ */

const Dim *c_count_parameters(Emitter *e)
{
    Dims *ds = e->p->dims;
    const Dim *n = dim_const(ds, 0);
    for (int i = 0; i < e->p->params.len; i++)
        n = dim_add(ds, n, type_elems(ds, e->p->params.at[i].stacked));
    return n;
}

const Dim *c_count_halves(Emitter *e)
{
    Dims *ds = e->p->dims;
    const Dim *n = dim_const(ds, 0);
    for (int i = 0; i < e->p->params.len; i++)
        if (e->p->params.at[i].half)
            n = dim_add(ds, n, type_elems(ds, e->p->params.at[i].stacked));
    return n;
}

/* "B = 32, T = 128" */
const char *c_training_dims(Emitter *e)
{
    Text t = text_new(e->cx->scratch);
    for (int i = 0; i < dims_count(e->p->dims); i++) {
        const Symbol *s = dims_at(e->p->dims, i);
        if (s->kind == SYM_DIM || s->kind == SYM_BATCH)
            text_add(&t, "%s%s = %lld", t.len ? ", " : "", s->name,
                     (long long)emit_train_value(e, dim_sym(e->p->dims, s)));
    }
    return t.at;
}

static const char *shown_path(const char *path)
{
    const char *base = strrchr(path, '/');
    return path[0] == '/' && base ? base + 1 : path;
}

static int count_steps(const Steps *steps)
{
    int n = 0;
    for (int i = 0; i < steps->len; i++)
        n += steps->at[i]->kernel ? !steps->at[i]->rest : count_steps(&steps->at[i]->body);
    return n;
}

void c_head(Emitter *e)
{
    const Source *s = source_of(e->cx, e->p->file);
    const Routine *r = e->kp->train ? e->kp->train : e->kp->output;
    const char *path = s ? shown_path(s->path) : e->p->name;
    Text *t = e->out;
    text_add(t, "/* %s%s -- generated from %s by gradcc %s.\n * Do not edit: edit the model.\n *\n",
             e->model, e->language->ending, emit_comment(e, path, 50), e->opt->version);
    text_add(t, " * command   %s\n", emit_comment(e, e->opt->command, 200));
    if (s)
        text_add(t, " * source    %s, %d lines, crc32 %08x\n", emit_comment(e, path, 60),
                 s->n_lines, (unsigned)crc32_of(s->text, s->len));
    text_put(t, " * contents  1 dimensions  2 parameters  3 memory map  4 kernels\n"
                " *           5 forward     6 backward    7 step        8 model table\n");
    text_add(t, " * size      %s parameters",
             emit_count(e, emit_train_value(e, c_count_parameters(e))));
    if (r && routine_has_arena(r)) {
        const char *dims = c_training_dims(e);
        text_add(t, "; arena %s%s%s, fullest at step %d of %d", emit_bytes(e, r->arena_bytes),
                 dims[0] ? " at " : "", dims, r->peak_step, count_steps(&r->steps));
    }
    text_add(t, "\n */\n#include \"%s\"\n", e->language->header);
    if (e->cuda)
        text_put(t, "\nnamespace { /* so that no name here is one of the CUDA headers */\n");
}

/* ---- section 1 ------------------------------------------------------------------------------- */

static bool is_stride(const Emitter *e, const Symbol *s)
{
    for (int g = 0; g < e->p->groups.len; g++)
        if (e->p->groups.at[g].stride_sym == s)
            return true;
    return false;
}

static const char *note_of(Emitter *e, const Symbol *s)
{
    if (s->note)
        return emit_comment(e, s->note, 40);
    return s->kind == SYM_BATCH ? "samples in a micro-step" : "";
}

static bool is_shown(const Emitter *e, const Symbol *s, bool constants)
{
    return (s->kind == SYM_CONST) == constants && s->kind != SYM_FRESH && !is_stride(e, s);
}

static void write_symbols(Emitter *e, bool constants)
{
    Text lines = text_new(e->cx->scratch);
    size_t width = 0;
    bool any = false;
    for (int i = 0; i < dims_count(e->p->dims); i++) {
        const Symbol *s = dims_at(e->p->dims, i);
        const size_t len = strlen(note_of(e, s));
        width = is_shown(e, s, constants) && len > width ? len : width;
    }
    text_add(&lines, constants ? "enum {\t/* fixed when the model was compiled */\n"
                               : "typedef struct {\t/* known when the program starts */\n");
    for (int i = 0; i < dims_count(e->p->dims); i++) {
        const Symbol *s = dims_at(e->p->dims, i);
        if (!is_shown(e, s, constants))
            continue;
        any = true;
        if (constants)
            text_add(&lines, "    %s = %lld,", e->symbol[i], (long long)s->value);
        else
            text_add(&lines, "    ptrdiff_t %s;", e->symbol[i]);
        const char *where = s->span.file ? source_where(e->cx, s->span) : "";
        text_add(&lines, width || where[0] ? "\t/* %-*s%s%s */\n" : "\n", (int)width, note_of(e, s),
                 width && where[0] ? "  " : "", where);
    }
    if (!any && constants)
        return;
    text_put(&lines, any ? "" : "    char none;\t/* every size is fixed */\n");
    text_put(&lines, constants ? "};\n\n" : "} Dims;\n");
    emit_aligned(e->out, lines.at, 40);
}

/* For a target whose kernels are made for sizes: an edit of one of them is an error. */
void c_fixed_sizes(Emitter *e)
{
    Text t = text_new(e->cx->scratch);
    for (int i = 0; i < dims_count(e->p->dims); i++) {
        const Symbol *s = dims_at(e->p->dims, i);
        if (is_shown(e, s, true))
            text_add(&t, "%s%s == %lld", t.len ? " && " : "", e->symbol[i], (long long)s->value);
    }
    if (t.len > 0)
        emit_statement(e->out, 0,
                       emit_format(e,
                                   "static_assert(%s, \"kernels are made for these sizes: "
                                   "compile the model again\");\n",
                                   t.at));
}

/* What is no size, but was decided with them. */
static void write_fixed(Emitter *e)
{
    Text t = text_new(e->cx->scratch);
    for (int i = 0; i < e->p->fixed.len; i++) {
        const FixedValue *v = &e->p->fixed.at[i];
        text_add(&t, "%s%s = %s (%s)", i ? ", " : "fixed, and so not seen below: ", v->name,
                 v->value, source_where(e->cx, v->span));
    }
    if (t.len == 0)
        return;
    emit_prose(e->out, "/* ", " * ",
               emit_format(e, "%s */\n\n", emit_comment(e, t.at, 8 * COLUMNS)));
}

const char *c_part_function(Emitter *e, const Symbol *s)
{
    return emit_format(e, "%s_%s", e->model, e->symbol[s->id]);
}

/* A function for each axis that is done in parts: the sizes of one part. */
static void write_parts(Emitter *e)
{
    for (int i = 0; i < dims_count(e->p->dims); i++) {
        const Symbol *s = dims_at(e->p->dims, i);
        DimScope n = dim_scope(e, "n.");
        if (s->kind != SYM_PART)
            continue;
        const char *step = dim_c(&n, s->step), *name = e->symbol[i];
        text_add(e->out, "\n/* %s in part i of %s: %s, or what is left */\n", name,
                 dim_text(e->cx, s->whole), step);
        text_add(e->out, "static Dims %s(Dims n, ptrdiff_t i)\n{\n", c_part_function(e, s));
        text_add(e->out, "    const ptrdiff_t left = %s - i*%s;\n", dim_c(&n, s->whole),
                 dim_c_factor(&n, s->step));
        text_add(e->out, "    n.%s = %s;\n    if (left < n.%s)\n        n.%s = left;\n", name, step,
                 name, name);
        text_put(e->out, "    return n;\n}\n");
    }
}

void c_dimensions(Emitter *e)
{
    emit_banner(e, 1, "dimensions");
    write_symbols(e, true);
    write_fixed(e);
    write_symbols(e, false);
    write_parts(e);
}
