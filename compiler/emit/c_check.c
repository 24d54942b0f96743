/* c_check.c -- what --replay looks at: the values that each step of training writes.
 *
 * In: a step and its operands. Out: a line RT_CHECK behind its call, which tests one pointer unless
 * the program replays a step, and for section 8 a row that says what the step does. The one idea:
 * the elements written are told as a grid of strides, taken from the kernel itself, so that nothing
 * is looked at that the step did not write.
 */
#include "emit/step.h"

#include <limits.h>
#include <string.h>

typedef struct { /* elements at + sum of i[a] * step[a], 0 <= i[a] < n[a]; no axis: one element */
    const Dim *n[AXES_MAX], *step[AXES_MAX];
    int n_axes;
} Grid;

static void grid_add(Grid *g, const Dim *n, const Dim *step)
{
    if (dim_is(step, 0) || dim_is(n, 1))
        return;
    g->n[g->n_axes] = n;
    g->step[g->n_axes++] = step;
}

/* The widest strides first, axes that run on into each other as one. */
static void grid_tidy(Emitter *e, Grid *g)
{
    Dims *ds = e->p->dims;
    for (int i = 1; i < g->n_axes; i++)
        for (int k = i;
             k > 0 && emit_train_value(e, g->step[k]) > emit_train_value(e, g->step[k - 1]); k--) {
            const Dim *n = g->n[k], *step = g->step[k];
            g->n[k] = g->n[k - 1], g->step[k] = g->step[k - 1];
            g->n[k - 1] = n, g->step[k - 1] = step;
        }
    for (int i = g->n_axes - 2; i >= 0; i--) {
        if (!dim_same(g->step[i], dim_mul(ds, g->n[i + 1], g->step[i + 1])))
            continue;
        g->n[i] = dim_mul(ds, g->n[i], g->n[i + 1]);
        g->step[i] = g->step[i + 1];
        for (int k = i + 1; k + 1 < g->n_axes; k++)
            g->n[k] = g->n[k + 1], g->step[k] = g->step[k + 1];
        g->n_axes--;
    }
}

static Grid grid_of_effect(const Kernel *k, const Effect *effect)
{
    Grid g = { .n_axes = 0 };
    for (int a = 0; effect->kind != EFFECT_TOTAL && a < k->n_axes; a++)
        if (effect->kind == EFFECT_STORE || (k->has_row && a == k->n_axes - 1))
            grid_add(&g, k->axis[a], effect->access.stride[a]);
    return g;
}

static Grid grid_of_matmul(Emitter *e, const Matmul *x)
{
    Grid g = { .n_axes = 0 };
    for (int i = 0; i < x->n_batch; i++)
        grid_add(&g, x->batch[i], x->step_c[i]);
    grid_add(&g, x->m, x->ldc ? x->ldc : x->n);
    grid_add(&g, x->n, dim_one(e));
    return g;
}

/* of_keys: the heads of k and v. */
static Grid grid_of_heads(Emitter *e, const Attention *x, const HeadSteps *h, bool of_keys,
                          const Dim *rows, const Dim *width)
{
    Dims *ds = e->p->dims;
    const Dim *heads = of_keys && x->group ? dim_exact_div(ds, x->H, x->group) : x->H;
    Grid g = { .n_axes = 0 };
    const bool dense = !h->b && !h->h && !h->t;
    const Dim *head = dim_mul(ds, rows, width);
    grid_add(&g, x->B, dense ? dim_mul(ds, heads, head) : h->b);
    grid_add(&g, heads, dense ? head : h->h);
    grid_add(&g, rows, dense ? width : h->t);
    grid_add(&g, width, dim_one(e));
    return g;
}

/* What a kernel that is a call writes through argument a. */
static Grid grid_of_call(Emitter *e, const Kernel *k, int a)
{
    static const HeadSteps dense = { 0 };
    const Attention *x = &k->attention;
    Grid g = { .n_axes = 0 };
    switch (k->kind) {
    case KERNEL_MATMUL: return grid_of_matmul(e, &k->matmul);
    case KERNEL_ATTENTION:
        return a == 0 ? grid_of_heads(e, x, &x->y, false, x->T, x->E)
                      : grid_of_heads(e, x, &dense, false, x->T, dim_one(e));
    case KERNEL_ATTENTION_GRAD:
        return a == 0   ? grid_of_heads(e, x, &x->d_q, false, x->T, x->D)
               : a == 1 ? grid_of_heads(e, x, &x->d_k, true, x->S, x->D)
                        : grid_of_heads(e, x, &x->d_v, true, x->S, x->E);
    case KERNEL_SCATTER:
        grid_add(&g, dim_mul(e->p->dims, k->scatter.n_rows, k->scatter.width), dim_one(e));
        return g;
    case KERNEL_MAP: break;
    }
    bug("kernel %s is no call", k->name);
}

static bool is_real(DType t) { return t == DT_F32 || t == DT_F64 || t == DT_BF16 || t == DT_F16; }

/* ---- what a step reads ---------------------------------------------------------------------- */

/* Which repetition's value operand o finds where operand w writes: "[i]" the same one's, "[i-1]" or
   "[i+1]" a neighbour's, NULL: it moves otherwise. */
static const char *repetition_of(Emitter *e, const Operand *o, const Operand *w, int depth)
{
    Dims *ds = e->p->dims;
    const Dim *zero = dim_const(ds, 0), *stride = o->loop_stride[depth];
    const Dim *to = w->offset ? w->offset : zero, *from = o->offset ? o->offset : zero;
    if (dim_is(w->loop_stride[depth], 0) || !dim_same(w->loop_stride[depth], stride))
        return NULL;
    if (dim_same(to, dim_add(ds, from, stride)))
        return "[i-1]";
    if (dim_same(from, dim_add(ds, to, stride)))
        return "[i+1]";
    const int64_t inside = emit_train_value(e, from) - emit_train_value(e, to);
    return inside >= 0 && inside < emit_train_value(e, stride) ? "[i]" : NULL;
}

/* The same, of the first of these steps that writes to its buffer so. */
static const char *repetition_read(Emitter *e, const Steps *steps, const Operand *o, int depth)
{
    const char *found = NULL;
    for (int i = 0; i < steps->len && !found; i++) {
        const Step *s = steps->at[i];
        if (!s->kernel)
            found = repetition_read(e, &s->body, o, depth);
        for (int a = 0; s->kernel && a < s->kernel->args.len && !found; a++)
            if (s->kernel->args.at[a].written && s->operands[a].buffer == o->buffer)
                found = repetition_of(e, o, &s->operands[a], depth);
    }
    return found;
}

/* Does one of these steps write the buffer where no loop moves it? */
static bool is_written_whole(const Steps *steps, const Buffer *b)
{
    bool found = false;
    for (int i = 0; i < steps->len && !found; i++) {
        const Step *s = steps->at[i];
        found = !s->kernel && is_written_whole(&s->body, b);
        for (int a = 0; s->kernel && a < s->kernel->args.len && !found; a++) {
            found = s->kernel->args.at[a].written && s->operands[a].buffer == b;
            for (int d = 0; found && d < DEPTH_MAX; d++)
                found = dim_is(s->operands[a].loop_stride[d], 0);
        }
    }
    return found;
}

/* "z[i-1]", "param h.*.norm.weight", "input x"; NULL: no value that is looked at. */
static const char *read_text(Function *f, const Operand *o)
{
    Emitter *e = f->e;
    const Buffer *b = o->buffer;
    if (b->kind == BUF_PARAM || b->kind == BUF_PARAM16)
        return emit_format(e, "param %s", e->p->params.at[b->index].path);
    if (b->kind == BUF_INPUT)
        return emit_format(e, "input %s", e->p->inputs.at[b->index].name);
    if (b->kind != BUF_ARENA || b->partials || !is_real(b->dtype))
        return NULL;
    for (int d = f->depth - 1; d >= 0; d--)
        if (!dim_is(o->loop_stride[d], 0)) {
            const char *which = repetition_read(e, &f->r->steps, o, d);
            const char *none = is_written_whole(&f->r->steps, b) ? "" : "[?]";
            return emit_format(e, "%s%s", b->name, which ? which : none);
        }
    return b->name;
}

/* "z[i-1], param h.*.norm.weight" as string literals, a new one where a line is full. */
static const char *reads_text(Function *f, const Step *s)
{
    Emitter *e = f->e;
    Text t = text_new(e->cx->scratch);
    size_t column = 3 * INDENT;
    Map *seen = map_new(e->cx->scratch);
    text_put(&t, "\"");
    for (int a = 0; a < s->kernel->args.len; a++) {
        const KernelArg *arg = &s->kernel->args.at[a];
        const char *one = arg->written && !arg->read ? NULL : read_text(f, &s->operands[a]);
        const char *key = one ? intern_printf(e->cx, "%s", one) : NULL;
        if (!one || map_get(seen, key))
            continue;
        map_set(seen, key, (void *)(uintptr_t)key);
        text_put(&t, t.len > 1 ? ", " : "");
        column += strlen(one) + 2;
        if (column > COLUMNS - 5 && t.len > 1) {
            text_put(&t, "\"\n            \"");
            column = 3 * INDENT + strlen(one) + 2;
        }
        text_put(&t, one);
    }
    text_put(&t, "\"");
    return t.at;
}

/* "a.model:8, 9 (with 7)": the lines that the kernel's comment has, then others, of values that it
   computes on the way. */
static const char *lines_text(Emitter *e, const Step *s)
{
    const Kernel *of = kernel_of_lines(e, s->kernel);
    Map *seen = map_new(e->cx->scratch);
    Text t = text_new(e->cx->scratch);
    bool more = false;
    if (!s->span.file)
        return "";
    text_put(&t, of->lines.len ? c_kernel_lines(e, of) : source_where(e->cx, s->span));
    for (int i = 0; i < of->lines.len; i++)
        map_set(seen, intern_printf(e->cx, "%s", source_where(e->cx, of->lines.at[i])), e);
    for (int i = 0; i < s->kernel->values.len; i++) {
        const Value *v = &s->kernel->values.at[i];
        if ((v->kind != VAL_POINT && v->kind != VAL_REDUCE) || !v->node
            || v->node->span.file != s->span.file)
            continue;
        const char *where = intern_printf(e->cx, "%s", source_where(e->cx, v->node->span));
        if (!map_get(seen, where) && t.len < 40) {
            text_add(&t, more ? ", %s" : " (with %s", strrchr(where, ':') + 1);
            more = true;
        }
        map_set(seen, where, e);
    }
    text_put(&t, more ? ")" : "");
    return t.at;
}

/* ---- lines and rows -------------------------------------------------------------------------- */

/* { 3, false, { "h" }, "a.model:8", "h = tanh(x)", "x" }, for section 8 */
static void add_row(Function *f, const Step *s)
{
    Emitter *e = f->e;
    Text t = text_new(e->cx->scratch), loops = text_new(e->cx->scratch);
    for (int d = 0; d < f->depth; d++) {
        const Loop *loop = f->loop[d];
        const char *name = loop->stack ? loop->stack : loop->part ? "part" : loop->name;
        text_add(&loops, "%s%s", d ? ", " : "", emit_string(e, name ? name : "loop"));
    }
    const char *reads = reads_text(f, s);
    const bool wide = strchr(reads, '\n') != NULL;
    emit_call(&t, INDENT, "{ ",
              (const char *[]){ emit_format(e, "%d", s->number), s->backward ? "true" : "false",
                                emit_format(e, "{ %s }", f->depth ? loops.at : "0"),
                                emit_string(e, lines_text(e, s)),
                                emit_string(e, emit_comment(e, s->kernel->brief, 80)), reads },
              wide ? 5 : 6, wide ? "," : " },\n");
    if (wide)
        text_add(&t, "\n            %s },\n", reads);
    vec_push(e->cx->scratch, &e->steps, ((StepRow){ s->number, t.at }));
}

/* "z[B,C]" of `all` elements that a step writes through argument a: the first axes of the type may
   be those of loops, of which it writes one iteration. */
static const char *written_name(Emitter *e, const Step *s, int a, const Type *type, const Dim *all)
{
    const char *name = s->operands[a].buffer->name;
    if (s->operands[a].buffer->kind == BUF_SUM)
        return name;
    if (s->operands[a].buffer->row && type->rank > 0) {
        const Dim *dim[RANK_MAX];
        for (int k = 0; k < type->rank; k++)
            dim[k] = k < type->rank - 1 ? type->dim[k] : s->operands[a].buffer->row;
        type = type_of(e->p->dims, type->dtype, type->rank, dim);
    }
    for (int k = 0; k <= type->rank; k++) {
        const Type *part = type_of(e->p->dims, type->dtype, type->rank - k, type->dim + k);
        if (dim_same(all, type_elems(e->p->dims, part)))
            return emit_format(e, "%s%s", name, part->rank ? emit_shape(e, part) : "");
    }
    return s->kernel->kind == KERNEL_ATTENTION_GRAD
               ? emit_format(e, "%s, its part %s", name, s->kernel->args.at[a].name)
               : emit_format(e, "%s, %s elements of it", name, dim_text(e->cx, all));
}

/* Does the epilogue of a product write something in place of its result? */
static bool is_left_out(const Step *s)
{
    return s->epilogue->kind == EPILOGUE_GELU_GRAD
           || buffer_root(s->epilogue->to.buffer) == buffer_root(s->operands[0].buffer);
}

/* RT_CHECK(s, 3, "h[B,C]", h, n.B*C); of what the step writes through argument a. */
static void add_check(Function *f, const Step *s, int a, const Dim *offset, Grid g)
{
    Emitter *e = f->e;
    const Operand *o = &s->operands[a];
    Text t = text_new(e->cx->scratch), axes = text_new(e->cx->scratch);
    const Dim *all = dim_one(e);
    grid_tidy(e, &g);
    for (int i = 0; i < g.n_axes; i++) {
        all = dim_mul(e->p->dims, all, g.n[i]);
        text_add(&axes, "%s{ %s, %s }", i ? ", " : "", dim_c(&f->dims, g.n[i]),
                 dim_c(&f->dims, g.step[i]));
    }
    const bool dense = g.n_axes == 0 || (g.n_axes == 1 && dim_is(g.step[0], 1));
    const char *at = operand_text(f, o);
    at = dim_is(offset, 0) ? at : emit_format(e, "%s + %s", at, dim_c_factor(&f->dims, offset));
    const char *name = written_name(e, s, a, operand_type(f, o), all);
    const bool maybe = s->epilogue && a == 0 && is_left_out(s);
    if (maybe)
        text_add(&t, "    if (!%s)\n", step_is_done(f, s));
    emit_call(&t, maybe ? 2 * INDENT : INDENT, dense ? "RT_CHECK(" : "RT_CHECK_GRID(",
              (const char *[]){ "s", emit_format(e, "%d", s->number), emit_string(e, name), at,
                                dense ? dim_c(&f->dims, all) : axes.at },
              5, ");");
    f->head->s = true;
    vec_push(e->cx->scratch, &f->rows, ((Row){ .left = t.at, .check = true }));
}

static bool is_looked_at(const Step *s, int a)
{
    const Buffer *b = s->operands[a].buffer;
    return s->kernel->args.at[a].written && b->kind != BUF_COUNT && !b->partials
           && (b->kind == BUF_SUM || is_real(b->dtype));
}

void check_step(Function *f, const Step *s)
{
    const Kernel *k = s->kernel;
    add_row(f, s);
    if (k->kind != KERNEL_MAP) {
        for (int a = 0; a < k->args.len; a++)
            if (is_looked_at(s, a))
                add_check(f, s, a, NULL, grid_of_call(f->e, k, a));
        return;
    }
    for (int i = 0; i < k->effects.len; i++) {
        const Effect *effect = &k->effects.at[i];
        const int a = effect->access.arg;
        if (is_looked_at(s, a) && effect->access.index < 0)
            add_check(f, s, a, effect->access.offset, grid_of_effect(k, effect));
    }
}

void check_repetition(Function *f)
{
    bool any = false;
    for (int i = 0; i < f->rows.len; i++)
        any = any || f->rows.at[i].check;
    if (!any || f->depth == 0)
        return;
    const int d = f->depth - 1;
    text_add(f->e->out, "    RT_REPETITION(s, %d, %s);\n", d, f->var[d]);
}

bool c_steps(Emitter *e)
{
    if (e->steps.len == 0)
        return false;
    text_put(e->out, "/* Number, is it of the backward pass, loops, lines of the model, what it "
                     "computes, of what. */\n");
    text_add(e->out, "static const RtStepRow %s_steps[] = {\n", e->model);
    int next = 0;
    for (int number = 0; next < INT_MAX; number = next) {
        next = INT_MAX;
        for (int i = 0; i < e->steps.len; i++) {
            const StepRow *row = &e->steps.at[i];
            if (row->step == number)
                text_put(e->out, row->text);
            else if (row->step > number && row->step < next)
                next = row->step;
        }
    }
    text_put(e->out, "};\n\n");
    return true;
}
