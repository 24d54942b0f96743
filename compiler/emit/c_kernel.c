/* c_kernel.c -- section 4: one C function per kernel.
 *
 * In: a kernel. Out: its comment (formula, source lines, what was fused or is undone) and its
 * function. The body is written first, by c_map.c or c_call.c; it notes in a KernelHead which sizes
 * and step values it uses, and the head of the function, as well as every call of it, lists exactly
 * those.
 */
#include "emit/parts.h"

#include <string.h>

const char *c_type(const Emitter *e, DType t)
{
    static const char *const name[DT_COUNT] = { "bool",   "int32_t", "float",
                                                "double", "rt_bf16", "rt_f16" };
    (void)e;
    return name[t];
}

const char *c_flag(KernelWriter *w, AddKind add)
{
    static const char *const name[N_FLAGS] = { "add", "later", "add_later" };
    const Flag flag = add == ADD_FLAG ? FLAG_ADD : add == ADD_LATER ? FLAG_LATER : FLAG_ADD_LATER;
    if (add == ADD_NEVER || add == ADD_ALWAYS)
        return NULL;
    w->head->flag[flag] = true;
    return name[flag];
}

bool kernel_reads_step(const Emitter *e, const KernelHead *h)
{
    bool any = h->key || h->sample;
    for (int i = 0; i < e->p->means.len; i++)
        any = any || h->seed[i];
    return any;
}

/* Outputs first, then inputs, each in the kernel's order. */
static void order_arguments(KernelWriter *w)
{
    Kernel *k = w->k;
    KernelHead *h = w->head;
    h->order = NEW_ARRAY(w->e->cx->scratch, int, k->args.len + 1);
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < k->args.len; i++)
            if (k->args.at[i].written == (pass == 0))
                h->order[h->n_args++] = i;
}

/* "chargpt.model:28, 29": the lines whose values a kernel stores. */
const char *c_kernel_lines(Emitter *e, const Kernel *k)
{
    Text t = text_new(e->cx->scratch);
    for (int i = 0; i < k->lines.len; i++) {
        const char *where = source_where(e->cx, k->lines.at[i]);
        text_add(&t, i ? ", %s" : "%s", i ? strrchr(where, ':') + 1 : where);
    }
    return t.at;
}

static void link_steps(Emitter *e, const Steps *steps)
{
    for (int i = 0; i < steps->len; i++) {
        Step *s = steps->at[i];
        link_steps(e, &s->body);
        if (s->kernel && s->undone.len > 0 && !map_get(e->kernel_undone, s->kernel))
            map_set(e->kernel_undone, s->kernel, s);
    }
}

const Kernel *kernel_of_lines(Emitter *e, const Kernel *k)
{
    const Step *s = map_get(e->kernel_undone, k);
    return s ? steps_find(&e->kp->train->steps, s->undoes)->kernel : k;
}

const char *kernel_where(Emitter *e, const Kernel *k)
{
    return c_kernel_lines(e, kernel_of_lines(e, k));
}

/* "   gradient of k8, k7", and the lines of these. */
static void write_undone(Emitter *e, Text *about, const Kernel *k)
{
    const Step *s = map_get(e->kernel_undone, k);
    const Steps *all = s ? &e->kp->train->steps : NULL;
    text_put(about, kernel_where(e, k));
    for (int i = 0; s && i < s->undone.len; i++)
        text_add(about, "%sk%d",
                 i            ? ", "
                 : about->len ? "   gradient of "
                              : "gradient of ",
                 steps_find(all, s->undone.at[i])->kernel->number);
}

void c_link_kernels(Emitter *e)
{
    e->kernel_undone = map_new(e->cx->scratch);
    if (e->kp->train)
        link_steps(e, &e->kp->train->steps);
}

/* Equations, one under the other; then source lines and, backward, the forward kernel. */
void kernel_comment(Emitter *e, const Kernel *k, const char *launch)
{
    Text about = text_new(e->cx->scratch), t = text_new(e->cx->scratch);
    write_undone(e, &about, k);
    const char *s = k->formula;
    for (bool first = true; *s; first = false) {
        const size_t len = strcspn(s, "\n");
        const char *line = emit_comment(e, emit_format(e, "%.*s", (int)len, s), 4 * COLUMNS);
        emit_prose(&t, first ? "/* " : "\n * ", " *         ", line);
        s += len + (s[len] == '\n');
    }
    const size_t column = t.len < 48 ? 48 : t.len;
    if (!strchr(t.at, '\n') && column + 2 + about.len + 3 <= COLUMNS) {
        text_pad(&t, column);
        text_add(&t, about.len ? "  %s" : "", about.at);
    } else if (about.len) {
        text_add(&t, "\n * %s", about.at);
    }
    text_put(e->out, t.at);
    if (launch)
        emit_prose(e->out, "\n * ", " * ", emit_format(e, "%s */\n", launch));
    else
        text_put(e->out, " */\n");
}

static void write_head(KernelWriter *w, const char *name)
{
    Emitter *e = w->e;
    KernelHead *h = w->head;
    VEC(const char *) arg = { 0 };
    Arena *a = e->cx->scratch;
    for (int i = 0; i < h->n_args; i++) {
        const KernelArg *k = &w->k->args.at[h->order[i]];
        vec_push(a, &arg,
                 arena_printf(a, "%s%s *%s%s", k->written ? "" : "const ", c_type(e, k->dtype),
                              k->exclusive ? "restrict " : "", w->arg[h->order[i]]));
    }
    for (int i = 0; i < e->p->means.len; i++)
        if (h->seed[i])
            vec_push(a, &arg, arena_printf(a, "%s seed_%s", e->real, e->slot[i]));
    for (int i = 0; i < DEPTH_MAX; i++)
        if (h->iter[i])
            vec_push(a, &arg, arena_printf(a, "int %s", w->iter[i]));
    if (h->key)
        vec_push(a, &arg, "RtKey key");
    if (h->sample)
        vec_push(a, &arg, "int64_t sample");
    for (int i = 0; i < N_FLAGS; i++)
        if (h->flag[i])
            vec_push(a, &arg,
                     i == FLAG_ADD     ? "bool add"
                     : i == FLAG_LATER ? "bool later"
                                       : "bool add_later");
    for (int i = 0; i < dims_count(e->p->dims); i++)
        if (h->dim[i])
            vec_push(a, &arg, arena_printf(a, "ptrdiff_t %s", e->symbol[i]));
    emit_call(e->out, 0, arena_printf(a, "static void %s(", name), arg.at, arg.len, ")\n");
}

KernelWriter kernel_writer(Emitter *e, Kernel *k)
{
    Arena *a = e->cx->scratch;
    KernelWriter w = { .e = e, .k = k, .dims = dim_scope(e, ""), .body = text_new(a) };
    w.names = names_new(e, e->file);
    w.head = NEW(a, KernelHead);
    w.head->seed = NEW_ARRAY(a, bool, e->p->means.len + 1);
    w.head->dim = w.dims.used;
    w.arg = NEW_ARRAY(a, const char *, k->args.len + 1);
    for (int i = 0; i < k->args.len; i++)
        w.arg[i] = names_take(e, w.names, k->args.at[i].name);
    for (int i = 0; i < DEPTH_MAX; i++)
        w.iter[i] = i == 0 ? "iter" : arena_printf(a, "iter_%d", i + 1);
    order_arguments(&w);
    return w;
}

const char *kernel_function(Emitter *e, const Kernel *k)
{
    return intern_printf(e->cx, "k%d_%s", k->number, emit_identifier(e, k->name));
}

void c_kernel(Emitter *e, Kernel *k)
{
    KernelWriter w = kernel_writer(e, k);
    const char *name = kernel_function(e, k);
    if (k->kind == KERNEL_MAP)
        c_map(&w);
    else
        c_call(&w);
    kernel_comment(e, k, NULL);
    write_head(&w, name);
    text_add(e->out, "{\n%s}\n\n", w.body.at);
    map_set(e->kernel_name, k, (void *)(uintptr_t)name);
    map_set(e->call_dims, k, w.head);
}
