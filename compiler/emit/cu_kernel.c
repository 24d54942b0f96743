/* cu_kernel.c -- section 4 in CUDA: per kernel a __global__ function, and a host function.
 *
 * In: a kernel; of MAP kernels, what cu_map.c makes of it. Out: its comment with the launch in
 * words, the function of the device, and the host function, which launches it. Both take what they
 * use, in one order: pointers, the step's twin, iterations, flags, sizes, the stream.
 */
#include "emit/cu.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

typedef VEC(const char *) Words;

typedef enum { HOST, DEVICE } Side;
typedef enum { TYPED, NAMES } Form; /* parameters, arguments */

static const char *const flag_name[N_FLAGS] = { "add", "later", "add_later" };

const char *cu_flag(CudaWriter *c, AddKind add)
{
    const Flag flag = add == ADD_FLAG ? FLAG_ADD : add == ADD_LATER ? FLAG_LATER : FLAG_ADD_LATER;
    if (add == ADD_NEVER || add == ADD_ALWAYS)
        return NULL;
    c->flag[flag] = true;
    return flag_name[flag];
}

void cu_launch(CudaWriter *c, Text *t, const char *kernel, const char *grid, const char *block,
               const char *shared, const char *const *arg, int n)
{
    Arena *a = c->w.e->cx->scratch;
    Words w = { 0 };
    vec_push(a, &w, "stream");
    vec_push(a, &w, emit_string(c->w.e, kernel_where(c->w.e, c->w.k)));
    vec_push(a, &w, kernel);
    vec_push(a, &w, grid);
    vec_push(a, &w, block);
    vec_push(a, &w, shared ? shared : "0");
    for (int i = 0; i < n; i++)
        vec_push(a, &w, arg[i]);
    emit_call(t, INDENT, "RT_LAUNCH(", w.at, w.len, ");\n");
}

static void add_word(Words *w, Emitter *e, Form form, const char *type, const char *name)
{
    vec_push(e->cx->scratch, w, form == TYPED ? emit_format(e, "%s%s", type, name) : name);
}

/* Parameters or arguments of one of the two functions. */
static Words words_of(CudaWriter *c, Side side, Form form)
{
    const KernelHead *h = c->w.head;
    Emitter *e = c->w.e;
    Words w = { 0 };
    for (int i = 0; i < h->n_args; i++) {
        const KernelArg *k = &c->w.k->args.at[h->order[i]];
        if (side == DEVICE && c->apart[h->order[i]])
            continue;
        add_word(&w, e, form,
                 emit_format(e, "%s%s *%s", k->written ? "" : "const ", c_type(e, k->dtype),
                             k->exclusive ? "restrict " : ""),
                 c->w.arg[h->order[i]]);
    }
    if (kernel_reads_step(e, h))
        add_word(&w, e, form, "const RtStep *", "s");
    for (int i = 0; i < DEPTH_MAX; i++)
        if (h->iter[i])
            add_word(&w, e, form, "int ", c->w.iter[i]);
    for (int i = 0; i < N_FLAGS; i++)
        if (h->flag[i] || (side == HOST && c->flag[i]))
            add_word(&w, e, form, "bool ", flag_name[i]);
    for (int i = 0; i < dims_count(e->p->dims); i++)
        if (c->w.dims.used[i] || (side == HOST && c->host.used[i]))
            add_word(&w, e, form, "ptrdiff_t ", e->symbol[i]);
    if (side == HOST)
        add_word(&w, e, form, "RtStream *", "stream");
    return w;
}

/* What the body names of the step, from its twin. */
static void write_step_values(CudaWriter *c)
{
    const KernelHead *h = c->w.head;
    Emitter *e = c->w.e;
    for (int i = 0; i < e->p->means.len; i++)
        if (h->seed[i])
            text_add(e->out, "    const %s seed_%s = %ss->seed[S_%s];\n", e->real, e->slot[i],
                     e->p->real == DT_F64 ? "" : "(float)", e->slot[i]);
    if (h->key)
        text_put(e->out, "    const RtKey key = s->key;\n");
    if (h->sample)
        text_put(e->out, "    const int64_t sample = s->sample;\n");
}

static bool is_number(const char *s)
{
    for (const char *c = s; *c; c++)
        if (!isdigit((unsigned char)*c))
            return false;
    return *s != '\0';
}

static void write_device(CudaWriter *c)
{
    Emitter *e = c->w.e;
    const Words w = words_of(c, DEVICE, TYPED);
    text_put(e->out, c->before.at);
    if (c->bounds || is_number(c->block))
        text_add(e->out, "static __global__ void __launch_bounds__(%s)\n",
                 c->bounds ? c->bounds : c->block);
    else
        text_put(e->out, "static __global__ void\n");
    emit_call(e->out, 0, emit_format(e, "%s(", c->device), w.at, w.len, ")\n{\n");
    write_step_values(c);
    text_add(e->out, "%s}\n\n%s", c->w.body.at, c->later.at);
}

/* The head of the host function, and what the callers must give it. */
static void write_host(CudaWriter *c, const char *name, const char *body)
{
    Emitter *e = c->w.e;
    KernelHead *h = c->w.head;
    const Words w = words_of(c, HOST, TYPED);
    emit_call(e->out, 0, emit_format(e, "static void %s(", name), w.at, w.len, ")\n");
    text_add(e->out, "{\n%s}\n\n", body);
    for (int i = 0; i < N_FLAGS; i++)
        h->flag[i] = h->flag[i] || c->flag[i];
    for (int i = 0; i < dims_count(e->p->dims); i++)
        h->dim[i] = h->dim[i] || c->host.used[i];
    map_set(e->kernel_name, c->w.k, (void *)(uintptr_t)name);
    map_set(e->call_dims, c->w.k, h);
}

/* For the model table: the kernel that takes the most shared memory, or the first. */
static void note_code(CudaWriter *c)
{
    Emitter *e = c->w.e;
    if (e->code.kernel && c->row_bytes <= e->code.row_bytes)
        return;
    e->code.kernel = c->device;
    e->code.row_bytes = c->row_bytes;
    e->code.bytes = c->shared;
    e->code.where = kernel_where(e, c->w.k);
}

static void write_map(CudaWriter *c, const char *name)
{
    Emitter *e = c->w.e;
    Text host = text_new(e->cx->scratch);
    c->device = names_take_exact(e, e->file, emit_format(e, "g%s", name + 1));
    cu_map(c);
    note_code(c);
    kernel_comment(e, c->w.k, c->comment);
    write_device(c);
    const Words w = words_of(c, DEVICE, NAMES);
    text_put(&host, c->locals.at);
    cu_launch(c, &host, c->device, c->grid, c->block, c->shared, w.at, w.len);
    text_put(&host, c->launch.at);
    write_host(c, name, host.at);
}

void cu_kernel(Emitter *e, Kernel *k)
{
    Arena *a = e->cx->scratch;
    CudaWriter c = { .w = kernel_writer(e, k),
                     .host = dim_scope(e, ""),
                     .apart = NEW_ARRAY(a, bool, k->args.len + 1),
                     .before = text_new(a),
                     .later = text_new(a),
                     .locals = text_new(a),
                     .launch = text_new(a) };
    const char *name = kernel_function(e, k);
    if (k->kind == KERNEL_MAP) {
        write_map(&c, name);
        return;
    }
    c_call(&c.w);
    kernel_comment(e, k, NULL);
    write_host(&c, name, c.w.body.at);
}
