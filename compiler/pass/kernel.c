/* kernel.c -- kernels of a program: equal ones are one; printing kernels, steps and plans.
 *
 * In: kernels and routines. Out: the list of distinct kernels, and text for people and tests.
 */
#include "pass/kernel.h"
#include "op/op.h"

#include <string.h>

/* ---- equal kernels -------------------------------------------------------------------------- */

static bool dims_same(const Dim *a, const Dim *b) { return a == b || (a && b && dim_same(a, b)); }

static bool text_same(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static bool access_same(const Access *a, const Access *b)
{
    bool same = a->arg == b->arg && a->index == b->index && a->guard == b->guard
                && dims_same(a->offset, b->offset) && dims_same(a->index_stride, b->index_stride);
    for (int i = 0; same && i < AXES_MAX; i++)
        same = dims_same(a->stride[i], b->stride[i]);
    return same;
}

static bool value_same(const Value *a, const Value *b)
{
    bool same = a->kind == b->kind && a->op == b->op && a->dtype == b->dtype && a->level == b->level
                && a->phase == b->phase && a->n_in == b->n_in
                && memcmp(&a->number, &b->number, sizeof a->number) == 0
                && dims_same(a->dim, b->dim) && a->axis == b->axis && a->slot == b->slot
                && a->stream == b->stream && text_same(a->name, b->name);
    for (int i = 0; same && i < a->n_in; i++)
        same = a->in[i] == b->in[i];
    if (same && a->kind == VAL_LOAD)
        same = access_same(&a->access, &b->access);
    if (same && a->kind == VAL_DRAW)
        same = access_same(&a->sample, &b->sample) && access_same(&a->element, &b->element);
    return same;
}

static bool map_same(const Kernel *a, const Kernel *b)
{
    bool same = a->n_axes == b->n_axes && a->has_row == b->has_row && a->n_phases == b->n_phases
                && a->values.len == b->values.len && a->effects.len == b->effects.len;
    for (int i = 0; same && i < a->n_axes; i++)
        same = dims_same(a->axis[i], b->axis[i]) && text_same(a->axis_name[i], b->axis_name[i]);
    for (int i = 0; same && i < a->values.len; i++)
        same = value_same(&a->values.at[i], &b->values.at[i]);
    for (int i = 0; same && i < a->effects.len; i++) {
        const Effect *x = &a->effects.at[i], *y = &b->effects.at[i];
        same = x->kind == y->kind && x->value == y->value && x->phase == y->phase
               && x->add == y->add && access_same(&x->access, &y->access);
    }
    return same;
}

static bool matmul_same(const Matmul *a, const Matmul *b)
{
    bool same = dims_same(a->m, b->m) && dims_same(a->n, b->n) && dims_same(a->k, b->k)
                && dims_same(a->lda, b->lda) && dims_same(a->ldb, b->ldb)
                && dims_same(a->ldc, b->ldc) && a->ta == b->ta && a->tb == b->tb
                && a->bias == b->bias && a->n_batch == b->n_batch && a->add == b->add;
    for (int i = 0; same && i < a->n_batch; i++)
        same = dims_same(a->batch[i], b->batch[i]) && dims_same(a->step_a[i], b->step_a[i])
               && dims_same(a->step_b[i], b->step_b[i]) && dims_same(a->step_c[i], b->step_c[i]);
    return same;
}

static bool steps_same(const HeadSteps *a, const HeadSteps *b)
{
    return dims_same(a->b, b->b) && dims_same(a->h, b->h) && dims_same(a->t, b->t);
}

static bool attention_same(const Attention *a, const Attention *b)
{
    return dims_same(a->B, b->B) && dims_same(a->H, b->H) && dims_same(a->T, b->T)
           && dims_same(a->S, b->S) && dims_same(a->D, b->D) && dims_same(a->E, b->E)
           && dims_same(a->group, b->group) && memcmp(&a->scale, &b->scale, sizeof a->scale) == 0
           && a->causal == b->causal && steps_same(&a->q, &b->q) && steps_same(&a->k, &b->k)
           && steps_same(&a->v, &b->v) && steps_same(&a->y, &b->y) && steps_same(&a->d_q, &b->d_q)
           && steps_same(&a->d_k, &b->d_k) && steps_same(&a->d_v, &b->d_v)
           && steps_same(&a->d_y, &b->d_y);
}

static bool scatter_same(const Scatter *a, const Scatter *b)
{
    return dims_same(a->n_ids, b->n_ids) && dims_same(a->n_rows, b->n_rows)
           && dims_same(a->width, b->width) && dims_same(a->row_step, b->row_step)
           && a->add == b->add;
}

static bool kernel_same(const Kernel *a, const Kernel *b)
{
    bool same = a->kind == b->kind && a->args.len == b->args.len && a->backward == b->backward
                && text_same(a->name, b->name) && text_same(a->formula, b->formula)
                && text_same(a->brief, b->brief) && text_same(a->what, b->what)
                && a->span.file == b->span.file && a->span.lo == b->span.lo;
    for (int i = 0; same && i < a->args.len; i++) {
        const KernelArg *x = &a->args.at[i], *y = &b->args.at[i];
        same = text_same(x->name, y->name) && x->dtype == y->dtype && x->written == y->written
               && x->read == y->read && x->exclusive == y->exclusive;
    }
    if (!same)
        return false;
    switch (a->kind) {
    case KERNEL_MAP: return map_same(a, b);
    case KERNEL_MATMUL: return matmul_same(&a->matmul, &b->matmul);
    case KERNEL_ATTENTION:
    case KERNEL_ATTENTION_GRAD: return attention_same(&a->attention, &b->attention);
    case KERNEL_SCATTER: return scatter_same(&a->scatter, &b->scatter);
    }
    return false;
}

Kernel *kernel_copy(Arena *a, const Kernel *k)
{
    Kernel *made = NEW(a, Kernel);
    *made = *k;
    memset(&made->values, 0, sizeof made->values);
    memset(&made->effects, 0, sizeof made->effects);
    memset(&made->args, 0, sizeof made->args);
    memset(&made->lines, 0, sizeof made->lines);
    for (int i = 0; i < k->lines.len; i++)
        vec_push(a, &made->lines, k->lines.at[i]);
    vec_grow(a, (void **)&made->values.at, &made->values.cap, k->values.len, sizeof(Value));
    for (int i = 0; i < k->values.len; i++)
        vec_push(a, &made->values, k->values.at[i]);
    for (int i = 0; i < k->effects.len; i++)
        vec_push(a, &made->effects, k->effects.at[i]);
    for (int i = 0; i < k->args.len; i++)
        vec_push(a, &made->args, k->args.at[i]);
    return made;
}

Kernel *kernel_intern(KernelProgram *kp, const Kernel *k)
{
    Arena *a = kp->program->cx->arena;
    for (int i = 0; i < kp->kernels.len; i++)
        if (kernel_same(kp->kernels.at[i], k))
            return kp->kernels.at[i];
    Kernel *made = kernel_copy(a, k);
    made->number = kp->kernels.len + 1;
    vec_push(a, &kp->kernels, made);
    return made;
}

/* ---- printing ------------------------------------------------------------------------------- */

typedef struct {
    Text *t;
    Context *cx;
    const Kernel *k;
} Printer;

static void print_term(Printer *p, const Dim *by, const char *name, bool *any)
{
    if (!by)
        return;
    int64_t v;
    bool one = dim_value(by, &v) && v == 1;
    text_put(p->t, *any ? " + " : "");
    *any = true;
    text_put(p->t, name);
    if (!one) {
        text_put(p->t, "*");
        dim_print(p->t, by, NULL, NULL, true);
    }
}

static const char *axis_label(Printer *p, int axis)
{
    const char *n = p->k->axis_name[axis];
    return n ? arena_printf(p->cx->scratch, "i%s", n) : "i";
}

static void print_access(Printer *p, const Access *a)
{
    bool any = false;
    if (a->arg >= 0)
        text_put(p->t, p->k->args.at[a->arg].name);
    text_put(p->t, "[");
    for (int i = 0; i < p->k->n_axes; i++)
        print_term(p, a->stride[i], axis_label(p, i), &any);
    if (a->index >= 0)
        print_term(p, a->index_stride, arena_printf(p->cx->scratch, "v%d", a->index), &any);
    if (a->offset) {
        text_put(p->t, any ? " + " : "");
        dim_print(p->t, a->offset, NULL, NULL, false);
    } else if (!any) {
        text_put(p->t, "0");
    }
    text_put(p->t, "]");
    if (a->guard >= 0)
        text_add(p->t, " if v%d", a->guard);
}

static const char *const level_names[] = { "once", "row", "elem" };

static void print_value(Printer *p, int i)
{
    const Value *v = &p->k->values.at[i];
    text_add(p->t, "    v%d: %s %s.%d = ", i, dtype_name(v->dtype), level_names[v->level],
             v->phase);
    switch (v->kind) {
    case VAL_LOAD: print_access(p, &v->access); break;
    case VAL_CONST: text_add(p->t, "%.17g", v->number); break;
    case VAL_DIM: text_put(p->t, dim_text(p->cx, v->dim)); break;
    case VAL_AXIS: text_put(p->t, axis_label(p, v->axis)); break;
    case VAL_ITER: text_add(p->t, "iteration %d", v->axis); break;
    case VAL_SEED: text_add(p->t, "seed %d", v->slot); break;
    case VAL_CAST: text_add(p->t, "%s", dtype_name(v->dtype)); break;
    case VAL_POINT:
    case VAL_REDUCE:
    case VAL_DRAW: text_put(p->t, op_row(v->op)->name); break;
    }
    for (int j = 0; j < v->n_in; j++)
        text_add(p->t, "%s v%d", j ? "," : "", v->in[j]);
    if (v->kind == VAL_DRAW) {
        text_add(p->t, " %s sample ", v->stream);
        print_access(p, &v->sample);
        text_put(p->t, " element ");
        print_access(p, &v->element);
    }
    if (v->name)
        text_add(p->t, "        # %s", v->name);
    text_put(p->t, "\n");
}

static const char *add_text(AddKind add)
{
    switch (add) {
    case ADD_NEVER: return "=";
    case ADD_ALWAYS: return "+=";
    case ADD_FLAG: return "(+)=";
    case ADD_LATER: return "(later +)=";
    case ADD_FLAG_LATER: return "(+, later +)=";
    }
    return "?";
}

static void print_map(Printer *p)
{
    const Kernel *k = p->k;
    text_put(p->t, "    over");
    for (int i = 0; i < k->n_axes; i++)
        text_add(p->t, "%s %s < %s", k->has_row && i == k->n_axes - 1 ? " row" : "",
                 axis_label(p, i), dim_text(p->cx, k->axis[i]));
    text_add(p->t, ", %d phase%s\n", k->n_phases, k->n_phases == 1 ? "" : "s");
    for (int i = 0; i < k->values.len; i++)
        print_value(p, i);
    for (int i = 0; i < k->effects.len; i++) {
        const Effect *e = &k->effects.at[i];
        text_add(p->t, "    .%d ", e->phase);
        print_access(p, &e->access);
        text_add(p->t, " %s %sv%d\n", add_text(e->add),
                 e->kind == EFFECT_COLUMN  ? "column sum of "
                 : e->kind == EFFECT_TOTAL ? "total of "
                                           : "",
                 e->value);
    }
}

static void print_dim(Printer *p, const char *label, const Dim *d)
{
    text_add(p->t, " %s %s", label, d ? dim_text(p->cx, d) : "0");
}

static void print_matmul(Printer *p, const Matmul *m)
{
    text_put(p->t, "    c");
    text_add(p->t, " %s a%s @ b%s%s:", add_text(m->add), m->ta ? "'" : "", m->tb ? "'" : "",
             m->bias ? " + bias" : "");
    print_dim(p, "m", m->m);
    print_dim(p, "n", m->n);
    print_dim(p, "k", m->k);
    print_dim(p, "lda", m->lda);
    print_dim(p, "ldb", m->ldb);
    print_dim(p, "ldc", m->ldc);
    for (int i = 0; i < m->n_batch; i++) {
        print_dim(p, "batch", m->batch[i]);
        print_dim(p, "a", m->step_a[i]);
        print_dim(p, "b", m->step_b[i]);
        print_dim(p, "c", m->step_c[i]);
    }
    text_put(p->t, "\n");
}

static void print_heads(Printer *p, const char *name, const HeadSteps *h)
{
    text_add(p->t, "    %s:", name);
    print_dim(p, "b", h->b);
    print_dim(p, "h", h->h);
    print_dim(p, "t", h->t);
    text_put(p->t, "\n");
}

static void print_attention(Printer *p, const Attention *a, bool grad)
{
    text_put(p->t, "   ");
    print_dim(p, "B", a->B);
    print_dim(p, "H", a->H);
    print_dim(p, "T", a->T);
    print_dim(p, "S", a->S);
    print_dim(p, "D", a->D);
    print_dim(p, "E", a->E);
    if (a->group)
        print_dim(p, "group", a->group);
    text_add(p->t, " scale %g%s\n", a->scale, a->causal ? " causal" : "");
    print_heads(p, "q", &a->q);
    print_heads(p, "k", &a->k);
    print_heads(p, "v", &a->v);
    print_heads(p, "y", &a->y);
    if (!grad)
        return;
    print_heads(p, "d_q", &a->d_q);
    print_heads(p, "d_k", &a->d_k);
    print_heads(p, "d_v", &a->d_v);
    print_heads(p, "d_y", &a->d_y);
}

static void print_kernel(Printer *p)
{
    const Kernel *k = p->k;
    text_add(p->t, "k%d_%s(", k->number, k->name);
    for (int i = 0; i < k->args.len; i++)
        text_add(p->t, "%s%s%s %s", i ? ", " : "", k->args.at[i].written ? "" : "const ",
                 dtype_name(k->args.at[i].dtype), k->args.at[i].name);
    text_add(p->t, ")%s\n    # ", k->backward ? " backward" : "");
    for (const char *c = k->formula; *c; c++)
        text_add(p->t, *c == '\n' ? "\n    # " : "%c", *c);
    text_put(p->t, "\n");
    text_add(p->t, "    # %s, %s\n", source_where(p->cx, k->span), k->what);
    switch (k->kind) {
    case KERNEL_MAP: print_map(p); break;
    case KERNEL_MATMUL: print_matmul(p, &k->matmul); break;
    case KERNEL_ATTENTION: print_attention(p, &k->attention, false); break;
    case KERNEL_ATTENTION_GRAD: print_attention(p, &k->attention, true); break;
    case KERNEL_SCATTER:
        text_add(p->t, "    out[ids] %s rows:", add_text(k->scatter.add));
        print_dim(p, "ids", k->scatter.n_ids);
        print_dim(p, "rows", k->scatter.n_rows);
        print_dim(p, "width", k->scatter.width);
        print_dim(p, "row_step", k->scatter.row_step);
        text_put(p->t, "\n");
        break;
    }
}

static void print_steps(Printer *p, const Steps *steps, int indent)
{
    for (int i = 0; i < steps->len; i++) {
        const Step *s = steps->at[i];
        text_add(p->t, "%*s", indent, "");
        if (!s->kernel) {
            text_add(p->t, "loop %s %s%s\n", s->loop->name ? s->loop->name : "",
                     dim_text(p->cx, s->loop->trip), s->loop->reverse ? " reverse" : "");
            print_steps(p, &s->body, indent + 4);
            continue;
        }
        text_add(p->t, "k%d_%s(", s->kernel->number, s->kernel->name);
        for (int a = 0; a < s->kernel->args.len; a++) {
            const Operand *o = &s->operands[a];
            text_add(p->t, "%s%s", a ? ", " : "", o->buffer->name);
            for (int d = 0; d < DEPTH_MAX; d++)
                if (o->loop_stride[d]) {
                    text_add(p->t, " + i%d*", d);
                    dim_print(p->t, o->loop_stride[d], NULL, NULL, true);
                }
            if (o->offset)
                text_add(p->t, " + %s", dim_text(p->cx, o->offset));
        }
        text_put(p->t, ")\n");
    }
}

void kernel_print(Text *t, const KernelProgram *kp, const Routine *r)
{
    Context *cx = kp->program->cx;
    Printer p = { t, cx, NULL };
    text_add(t, "routine %s\n", r->name);
    for (int i = 0; i < r->buffers.len; i++) {
        static const char *const kinds[] = { "arena",  "param", "grad", "input",
                                             "output", "sum",   "count" };
        const Buffer *b = r->buffers.at[i];
        text_add(t, "  %s %s: %s\n", kinds[b->kind], b->name, type_text(cx, b->type));
    }
    print_steps(&p, &r->steps, 2);
    for (int i = 0; i < kp->kernels.len; i++) {
        p.k = kp->kernels.at[i];
        print_kernel(&p);
    }
}

void plan_print(Text *t, const KernelProgram *kp, const Routine *r)
{
    Context *cx = kp->program->cx;
    const double bound = r->live_bytes > 0 ? (double)r->live_bytes : 1;
    text_add(t, "plan of %s: %lld bytes, %lld alive at step %d: %.3f\n", r->name,
             (long long)r->arena_bytes, (long long)r->live_bytes, r->peak_step,
             r->live_bytes > 0 ? (double)r->arena_bytes / bound : 1.0);
    for (int i = 0; i < r->buffers.len; i++) {
        const Buffer *b = r->buffers.at[i];
        if (b->kind != BUF_ARENA)
            continue;
        text_add(t, "  %10lld %10lld  %3d..%-3d %-24s %s", (long long)b->offset,
                 (long long)b->bytes, b->first, b->last, b->name, type_text(cx, b->type));
        text_add(t, "%s%s\n", b->over ? "  over " : "", b->over ? b->over->name : "");
    }
}
