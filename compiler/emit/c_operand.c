/* c_operand.c -- the pointers that steps work on.
 *
 * In: operands: a buffer, an offset, a stride per enclosing loop. Out: one local pointer per arena
 * buffer of a function, already moved to this iteration's slot where all its uses agree on that;
 * and the text of each operand of a call. Parameters of a stack are reached through one pointer to
 * this repetition.
 */
#include "emit/step.h"

#include <string.h>

bool loop_is_wide(const Function *f, int depth)
{
    return !dim_fits_int(f->e, f->loop[depth]->trip);
}

static bool same_stride(const Dim *a, const Dim *b)
{
    return a == NULL || b == NULL ? a == b : dim_same(a, b);
}

/* " + il*B*T*C" for every loop the operand moves with. */
static void add_strides(Function *f, Text *t, const Operand *o)
{
    for (int d = 0; d < f->depth; d++) {
        if (dim_is(o->loop_stride[d], 0))
            continue;
        const Dim *reach = dim_mul(f->e->p->dims, o->loop_stride[d], f->loop[d]->trip);
        int64_t v;
        const bool far = !loop_is_wide(f, d) && dim_value(reach, &v) && v > INT32_MAX;
        text_add(t, " + %s%s", far ? "(ptrdiff_t)" : "", f->var[d]);
        if (!dim_is(o->loop_stride[d], 1))
            text_add(t, "*%s", dim_c_factor(&f->dims, o->loop_stride[d]));
    }
}

/* ---- arena --------------------------------------------------------------------------------- */

typedef VEC(const Operand *) Operands;

static void collect(Function *f, const Steps *steps, bool backward, Operands *all)
{
    for (int i = 0; i < steps->len; i++) {
        const Step *s = steps->at[i];
        if (s->kernel == NULL || (f->depth == 0 && s->backward != backward))
            continue;
        for (int a = 0; a < s->kernel->args.len; a++)
            vec_push(f->e->cx->scratch, all, &s->operands[a]);
    }
}

static bool agree(const Operands *all, const Operand *o, int depth)
{
    for (int i = 0; i < all->len; i++)
        for (int d = 0; all->at[i]->buffer == o->buffer && d < depth; d++)
            if (!same_stride(all->at[i]->loop_stride[d], o->loop_stride[d]))
                return false;
    return true;
}

/* The axes in front that are done in parts, as one axis of one part. */
static const Type *part_of_type(Emitter *e, const Type *t, const Symbol *part)
{
    Dims *ds = e->p->dims;
    const Dim *dim[RANK_MAX] = { dim_sym(ds, part) }, *rows = dim_one(e);
    for (int n = 1; n <= t->rank; n++) {
        rows = dim_mul(ds, rows, t->dim[n - 1]);
        if (!dim_same(rows, part->whole))
            continue;
        for (int k = n; k < t->rank; k++)
            dim[k - n + 1] = t->dim[k];
        return type_of(ds, t->dtype, t->rank - n + 1, dim);
    }
    return t;
}

const Type *operand_type(Function *f, const Operand *o)
{
    const Type *t = o->buffer->type;
    int n = 0;
    for (int d = 0; d < f->depth; d++)
        n += !f->loop[d]->part && !dim_is(o->loop_stride[d], 0);
    t = n == 0 || n > t->rank ? t : type_of(f->e->p->dims, t->dtype, t->rank - n, t->dim + n);
    for (int d = 0; d < f->depth; d++)
        if (f->loop[d]->part && !dim_is(o->loop_stride[d], 0))
            t = part_of_type(f->e, t, f->loop[d]->part);
    return t;
}

static void declare_arena(Function *f, const Operands *all, const Operand *o)
{
    Emitter *e = f->e;
    const Buffer *b = o->buffer;
    const char *name = names_take(e, f->names, (b->twin ? b->twin : b)->name),
               *type = c_type(e, b->dtype);
    const char *at = emit_format(e, "rt_at_%s(arena, at%s%s)",
                                 b->dtype == DT_BOOL ? "bool" : dtype_name(b->dtype),
                                 f->depth ? "->" : ".", plan_field(e, b));
    Text moved = text_new(e->cx->scratch);
    f->head->arena = true;
    map_set(f->local, b, (void *)(uintptr_t)name);
    if (agree(all, o, f->depth))
        add_strides(f, &moved, o);
    else
        map_set(f->moving, b, (void *)(uintptr_t)b);
    text_add(&f->pointers, "    %s *%s = %s%s;\t/* %s */\n", type, name, at, moved.at,
             moved.len ? emit_comment(e, emit_shape(e, operand_type(f, o)), 40)
                       : c_buffer_shape(e, b));
}

/* ---- parameters and gradients -------------------------------------------------------------- */

/* Does the operand move with the stacks of its parameter, one loop each, and with nothing else?
   The loops are filled in, innermost stack first. */
static int stack_loops(const Function *f, const Operand *o, int loop[DEPTH_MAX])
{
    const Program *p = f->e->p;
    int n = 0, d = f->depth;
    for (int g = p->params.at[o->buffer->index].group; g >= 0; g = p->groups.at[g].parent) {
        const Dim *stride = dim_sym(p->dims, p->groups.at[g].stride_sym);
        while (--d >= 0 && dim_is(o->loop_stride[d], 0))
            ;
        if (d < 0 || n == DEPTH_MAX || !dim_same(o->loop_stride[d], stride))
            return 0;
        loop[n++] = d;
    }
    while (--d >= 0)
        if (!dim_is(o->loop_stride[d], 0))
            return 0;
    return n;
}

/* What the flat buffer of that kind is called. */
static const char *flat_name(BufKind kind)
{
    return kind == BUF_GRAD ? "d_p" : kind == BUF_PARAM16 ? "p16" : "p";
}

/* "p_h": this repetition of stack h, declared on first use. */
static const char *stack_pointer(Function *f, const Operand *o, const int *loop)
{
    Emitter *e = f->e;
    const BufKind kind = o->buffer->kind;
    const char *flat = flat_name(kind), *real = c_type(e, o->buffer->dtype);
    const int group = e->p->params.at[o->buffer->index].group;
    const char *key = intern_printf(e->cx, "%s %s", flat, e->group[group]);
    const char *name = map_get(f->base, key);
    if (name)
        return name;
    Text start = text_new(e->cx->scratch);
    int k = 0;
    for (int g = group; g >= 0; g = e->p->groups.at[g].parent, k++) {
        const char *inner = emit_format(e, "%s", start.at);
        Operand one = { .buffer = o->buffer };
        Text outer = text_new(e->cx->scratch);
        one.loop_stride[loop[k]] = o->loop_stride[loop[k]];
        text_add(&outer, " + %s", e->group[g]);
        add_strides(f, &outer, &one);
        text_put(&outer, inner);
        start = outer;
    }
    name = names_take_exact(e, f->names, emit_format(e, "%s_%s", flat, e->group[group] + 2));
    map_set(f->base, key, (void *)(uintptr_t)name);
    text_add(&f->pointers, "    %s%s *%s = %s%s;\t/* this repetition of %s */\n",
             kind == BUF_GRAD ? "" : "const ", real, name, flat, start.at,
             e->p->groups.at[group].name);
    return name;
}

static const char *parameter_text(Function *f, const Operand *o)
{
    Emitter *e = f->e;
    const BufKind kind = o->buffer->kind;
    int loop[DEPTH_MAX];
    const int n = stack_loops(f, o, loop);
    Text t = text_new(e->cx->scratch);
    f->head->d_p |= kind == BUF_GRAD;
    f->head->p16 |= kind == BUF_PARAM16;
    f->head->p |= kind == BUF_PARAM;
    if (n > 0) {
        text_add(&t, "%s + %s", stack_pointer(f, o, loop), e->param[o->buffer->index]);
    } else {
        text_add(&t, "%s + %s", flat_name(kind), c_param_start(e, o->buffer->index));
        add_strides(f, &t, o);
    }
    if (!dim_is(o->offset, 0))
        text_add(&t, " + %s", dim_c_factor(&f->dims, o->offset));
    return t.at;
}

/* ---- operands ------------------------------------------------------------------------------ */

void operands_declare(Function *f, const Steps *steps, bool backward)
{
    Operands all = { 0 };
    collect(f, steps, backward, &all);
    for (int i = 0; i < all.len; i++) {
        const Operand *o = all.at[i];
        if (o->buffer->kind == BUF_PARAM || o->buffer->kind == BUF_PARAM16
            || o->buffer->kind == BUF_GRAD)
            parameter_text(f, o); /* for its declaration */
        else if (o->buffer->kind == BUF_ARENA && map_get(f->local, o->buffer) == NULL)
            declare_arena(f, &all, o);
    }
}

const char *operand_text(Function *f, const Operand *o)
{
    Emitter *e = f->e;
    const Buffer *b = o->buffer;
    Text t = text_new(e->cx->scratch);
    bool moves = true;
    switch (b->kind) {
    case BUF_PARAM:
    case BUF_PARAM16:
    case BUF_GRAD: return parameter_text(f, o);
    case BUF_SUM:
    case BUF_COUNT:
        f->head->s = f->head->sums = true;
        return emit_format(e, e->cuda ? "&s->device->%s[S_%s]" : "&s->%s[S_%s]",
                           b->kind == BUF_SUM ? "sum" : "count", e->slot[b->index]);
    case BUF_INPUT:
        f->head->input[b->index] = true;
        text_put(&t, e->input[b->index]);
        break;
    case BUF_OUTPUT:
        f->head->output[b->index] = true;
        text_put(&t, e->output[b->index]);
        break;
    case BUF_ARENA:
        text_put(&t, (const char *)map_get(f->local, b));
        moves = map_get(f->moving, b) != NULL;
        break;
    }
    if (moves)
        add_strides(f, &t, o);
    if (!dim_is(o->offset, 0))
        text_add(&t, " + %s", dim_c_factor(&f->dims, o->offset));
    return t.at;
}
