/* c_call.c -- kernels that are calls of the runtime (products, attention), and scatter.
 *
 * In: sizes, strides and flags. Out: the body of a function that calls rt_matmul or rt_attention
 * with a struct of them; for scatter, loops: parallel over blocks of columns, rows in order. In
 * CUDA scatter is a call too, and all of them have a stream.
 */
#include "emit/parts.h"

#include <string.h>

typedef struct { /* fields of a struct under construction; sizes as the scope says */
    Emitter *e;
    DimScope *dims;
    VEC(const char *) text;
} Fields;

static void add_field(Fields *f, const char *name, const char *value)
{
    vec_push(f->e->cx->scratch, &f->text, emit_format(f->e, ".%s = %s", name, value));
}

static void add_size(Fields *f, const char *name, const Dim *d)
{
    add_field(f, name, dim_c(f->dims, d));
}

/* The argument for a flag of the call, true and false included. */
static const char *flag_value(KernelWriter *w, AddKind kind)
{
    const char *flag = c_flag(w, kind);
    return flag ? flag : kind == ADD_ALWAYS ? "true" : "false";
}

static void add_sizes(Fields *f, const char *name, const Dim *const *d, int n)
{
    Text t = text_new(f->e->cx->scratch);
    for (int i = 0; i < n; i++)
        text_add(&t, "%s%s", i ? ", " : "{ ", dim_c(f->dims, d[i]));
    text_put(&t, " }");
    add_field(f, name, t.at);
}

static void write_struct(KernelWriter *w, const char *type, const char *name, const Fields *f)
{
    emit_call(&w->body, INDENT, emit_format(w->e, "const %s %s = { ", type, name), f->text.at,
              f->text.len, " };\n");
}

static bool is_narrow(DType t) { return t == DT_BF16 || t == DT_F16; }

/* "rt_matmul_f32(c, a, b, shape);", in CUDA with the stream, which is told the line first. */
static void write_call(KernelWriter *w, const char *function, const char *shape)
{
    VEC(const char *) args = { 0 };
    Arena *a = w->e->cx->scratch;
    const int n = w->k->kind == KERNEL_MATMUL ? 3 : w->k->args.len; /* its bias is in the shape */
    for (int i = 0; i < n; i++)
        vec_push(a, &args, w->arg[i]);
    vec_push(a, &args, shape);
    if (w->e->cuda) {
        text_add(&w->body, "    stream->where = %s;\n",
                 emit_string(w->e, kernel_where(w->e, w->k)));
        vec_push(a, &args, "stream");
    }
    emit_call(&w->body, INDENT, emit_format(w->e, "%s(", function), args.at, args.len, ");\n");
}

/* ---- products -------------------------------------------------------------------------------- */

/* In the order of the struct. add: the value of .add, or NULL. */
static void add_matmul(Fields *f, const Matmul *x, const char *add)
{
    add_size(f, "m", x->m);
    add_size(f, "n", x->n);
    add_size(f, "k", x->k);
    if (x->ta)
        add_field(f, "ta", "true");
    if (x->tb)
        add_field(f, "tb", "true");
    if (add)
        add_field(f, "add", add);
    if (x->lda && !dim_same(x->lda, x->ta ? x->m : x->k))
        add_size(f, "lda", x->lda);
    if (x->ldb && !dim_same(x->ldb, x->tb ? x->k : x->n))
        add_size(f, "ldb", x->ldb);
    if (x->ldc && !dim_same(x->ldc, x->n))
        add_size(f, "ldc", x->ldc);
    if (x->n_batch > 0) {
        add_sizes(f, "batch", x->batch, x->n_batch);
        add_sizes(f, "step_a", x->step_a, x->n_batch);
        add_sizes(f, "step_b", x->step_b, x->n_batch);
        add_sizes(f, "step_c", x->step_c, x->n_batch);
    }
}

static void write_matmul(KernelWriter *w)
{
    const Matmul *x = &w->k->matmul;
    Fields f = { .e = w->e, .dims = &w->dims };
    const char *name = names_take(w->e, w->names, "shape");
    add_matmul(&f, x, x->add == ADD_NEVER ? NULL : flag_value(w, x->add));
    if (x->bias)
        add_field(&f, "bias", w->arg[3]);
    write_struct(w, "RtMatmul", name, &f);
    const KernelArg *arg = w->k->args.at;
    const bool narrow = is_narrow(arg[1].dtype);
    write_call(w,
               emit_format(w->e, "rt_matmul_%s%s%s", dtype_name(arg[1].dtype), narrow ? "_" : "",
                           narrow ? dtype_name(arg[0].dtype) : ""),
               name);
}

/* ---- attention ------------------------------------------------------------------------------- */

static void add_heads(Fields *f, const char *name, const HeadSteps *h)
{
    if (h->b || h->h || h->t)
        add_sizes(f, name, (const Dim *[]){ h->b, h->h, h->t }, 3);
}

static void add_attention(Fields *f, const Attention *x)
{
    add_size(f, "B", x->B);
    add_size(f, "H", x->H);
    add_size(f, "T", x->T);
    add_size(f, "S", x->S);
    add_size(f, "D", x->D);
    add_size(f, "E", x->E);
    if (x->group)
        add_size(f, "group", x->group);
}

/* What the result and the way through memory depend on, besides sizes. */
static void add_attention_steps(Fields *f, const Attention *x, bool grad)
{
    add_field(f, "scale",
              x->scale > 0 || x->scale < 0
                  ? emit_number(f->e, x->scale)
                  : emit_format(f->e, "1 / sqrt((double)%s)", dim_c_divisor(f->dims, x->D)));
    add_field(f, "causal", x->causal ? "true" : "false");
    add_heads(f, "q", &x->q);
    add_heads(f, "k", &x->k);
    add_heads(f, "v", &x->v);
    add_heads(f, "y", &x->y);
    if (grad) {
        add_heads(f, "d_q", &x->d_q);
        add_heads(f, "d_k", &x->d_k);
        add_heads(f, "d_v", &x->d_v);
        add_heads(f, "d_y", &x->d_y);
    }
}

static void write_attention(KernelWriter *w)
{
    const Attention *x = &w->k->attention;
    const bool grad = w->k->kind == KERNEL_ATTENTION_GRAD;
    const char *name = names_take(w->e, w->names, "shape");
    Fields f = { .e = w->e, .dims = &w->dims };
    add_attention(&f, x);
    add_attention_steps(&f, x, grad);
    write_struct(w, "RtAttention", name, &f);
    write_call(w,
               emit_format(w->e, "rt_attention%s_%s", grad ? "_grad" : "",
                           dtype_name(w->k->args.at[0].dtype)),
               name);
}

/* ---- what they work in ----------------------------------------------------------------------- */

static const char *rt_type(DType t)
{
    return t == DT_F64 ? "RT_F64" : t == DT_BF16 ? "RT_BF16" : t == DT_F16 ? "RT_F16" : "RT_F32";
}

static void add_scatter(Fields *f, const Scatter *x)
{
    add_size(f, "n_ids", x->n_ids);
    add_size(f, "n_rows", x->n_rows);
    add_size(f, "width", x->width);
    add_size(f, "row_step", x->row_step);
}

/* "rt_room_x(rooms, RT_F32, (RtX){ .m = 3 });", in two lines if one is too short. */
static const char *room_statement(Fields *f, const char *head, const char *type, const char *tail,
                                  int indent)
{
    Emitter *e = f->e;
    Text t = text_new(e->cx->scratch);
    emit_call(&t, indent + INDENT, emit_format(e, "%s{ ", c_literal(e, type)), f->text.at,
              f->text.len, emit_format(e, " }%s);\n", tail));
    const char *fields = t.at + indent + INDENT;
    if ((size_t)indent + strlen(head) + 1 + strlen(fields) - 1 <= COLUMNS)
        return emit_format(e, "%*s%s %s", indent, "", head, fields);
    return emit_format(e, "%*s%s\n%s", indent, "", head, t.at);
}

const char *c_call_room(Emitter *e, DimScope *dims, const Kernel *k, const char *starts, int indent)
{
    Fields f = { .e = e, .dims = dims };
    const char *out = rt_type(k->args.at[0].dtype);
    if (k->kind == KERNEL_MATMUL) {
        add_matmul(&f, &k->matmul, k->matmul.add == ADD_NEVER ? NULL : "true");
        if (k->matmul.bias)
            add_field(&f, "bias", "rooms");
        return room_statement(&f,
                              emit_format(e, "rt_room_matmul%s(rooms, %s, %s,", starts ? "_at" : "",
                                          rt_type(k->args.at[1].dtype), out),
                              "RtMatmul", starts ? emit_format(e, ", %s", starts) : "", indent);
    }
    if (k->kind == KERNEL_SCATTER && e->cuda) {
        add_scatter(&f, &k->scatter);
        return room_statement(&f, "rt_room_scatter(rooms,", "RtScatter", "", indent);
    }
    if (k->kind != KERNEL_ATTENTION && k->kind != KERNEL_ATTENTION_GRAD)
        return "";
    add_attention(&f, &k->attention);
    if (e->cuda) /* which may plan it by a library */
        add_attention_steps(&f, &k->attention, k->kind == KERNEL_ATTENTION_GRAD);
    return room_statement(&f, emit_format(e, "rt_room_attention(rooms, %s,", out), "RtAttention",
                          k->kind == KERNEL_ATTENTION ? ", false" : ", true", indent);
}

/* ---- scatter --------------------------------------------------------------------------------- */

static void write_zeros(KernelWriter *w)
{
    const Scatter *x = &w->k->scatter;
    const char *flag = c_flag(w, x->add);
    const Dim *n = dim_mul(w->e->p->dims, x->n_rows, x->width);
    const char *indent = flag ? "        " : "    ";
    if (x->add == ADD_ALWAYS)
        return;
    if (flag)
        text_add(&w->body, "    if (!%s) {\n", flag);
    text_add(&w->body, "%sRT_PARALLEL_SIMD(%s)\n", indent, dim_c(&w->dims, n));
    text_add(&w->body, "%sfor (ptrdiff_t i = 0; i < %s; i++)\n", indent, dim_c(&w->dims, n));
    text_add(&w->body, "%s    %s[i] = 0;\n%s", indent, w->arg[0], flag ? "    }\n" : "");
}

/* The same as a call, in CUDA. */
static void call_scatter(KernelWriter *w)
{
    const char *name = names_take(w->e, w->names, "shape");
    const DType out = w->k->args.at[0].dtype, rows = w->k->args.at[2].dtype;
    Fields f = { .e = w->e, .dims = &w->dims };
    add_scatter(&f, &w->k->scatter);
    if (w->k->scatter.add != ADD_NEVER)
        add_field(&f, "add", flag_value(w, w->k->scatter.add));
    write_struct(w, "RtScatter", name, &f);
    write_call(w,
               is_narrow(rows)
                   ? emit_format(w->e, "rt_scatter_%s_%s", dtype_name(rows), dtype_name(out))
                   : emit_format(w->e, "rt_scatter_%s", dtype_name(out)),
               name);
}

static void write_scatter(KernelWriter *w)
{
    const Scatter *x = &w->k->scatter;
    const char *width = dim_c(&w->dims, x->width), *factor = dim_c_factor(&w->dims, x->width);
    const char *ids = dim_c(&w->dims, x->n_ids), *step = dim_c_factor(&w->dims, x->row_step);
    const Dim *work = dim_mul(w->e->p->dims, x->n_ids, x->width);
    const char *real = c_type(w->e, w->k->args.at[0].dtype);
    const char *to = names_take(w->e, w->names, "to_row");
    const char *type = dim_fits_int(w->e, x->width) ? "int" : "ptrdiff_t";
    write_zeros(w);
    text_add(&w->body, "    RT_PARALLEL_FOR(1, %s)\n", dim_c(&w->dims, work));
    text_add(&w->body, "    for (%s block = 0; block < %s; block += RT_COLUMNS) {\n", type, width);
    text_add(&w->body, "        const %s end = rt_min(block + RT_COLUMNS, %s);\n", type, width);
    text_add(&w->body, "        for (ptrdiff_t i = 0; i < %s; i++) {\n", ids);
    text_add(&w->body, "            %s *%s = %s + (ptrdiff_t)%s[i]*%s;\n", real, to, w->arg[0],
             w->arg[1], factor);
    text_put(&w->body, "            RT_SIMD()\n");
    text_add(&w->body, "            for (%s j = block; j < end; j++)\n", type);
    const DType from = w->k->args.at[2].dtype;
    const char *row = emit_format(w->e, "%s[i*%s + j]", w->arg[2], step);
    if (is_narrow(from))
        row = emit_format(w->e, "rt_of_%s(%s)", dtype_name(from), row);
    text_add(&w->body, "                %s[j] += %s;\n", to, row);
    text_put(&w->body, "        }\n    }\n");
}

void c_call(KernelWriter *w)
{
    switch (w->k->kind) {
    case KERNEL_MATMUL: write_matmul(w); return;
    case KERNEL_ATTENTION:
    case KERNEL_ATTENTION_GRAD: write_attention(w); return;
    case KERNEL_SCATTER:
        if (w->e->cuda)
            call_scatter(w);
        else
            write_scatter(w);
        return;
    case KERNEL_MAP: break;
    }
    bug("kernel %s is no call", w->k->name);
}
