/* c_call.c -- kernels that are calls of the runtime (products, attention), and scatter.
 *
 * In: sizes, strides and flags. Out: the body of a function that calls rt_matmul or rt_attention
 * with a struct of them; for scatter, loops: parallel over blocks of columns, rows in order.
 */
#include "emit/parts.h"

#include <string.h>

typedef VEC(const char *) Parts;

static void add(KernelWriter *w, Parts *parts, const char *text)
{
    vec_push(w->e->cx->scratch, parts, text);
}

static void add_field(KernelWriter *w, Parts *parts, const char *name, const char *value)
{
    add(w, parts, emit_format(w->e, ".%s = %s", name, value));
}

static void add_size(KernelWriter *w, Parts *parts, const char *name, const Dim *d)
{
    add_field(w, parts, name, dim_c(&w->dims, d));
}

/* The argument for a flag of the call, true and false included. */
static const char *flag_value(KernelWriter *w, AddKind kind)
{
    const char *flag = c_flag(w, kind);
    return flag ? flag : kind == ADD_ALWAYS ? "true" : "false";
}

static const char *braces(KernelWriter *w, const Dim *const *d, int n)
{
    Text t = text_new(w->e->cx->scratch);
    for (int i = 0; i < n; i++)
        text_add(&t, "%s%s", i ? ", " : "{ ", dim_c(&w->dims, d[i]));
    text_put(&t, " }");
    return t.at;
}

static void write_struct(KernelWriter *w, const char *type, const char *name, const Parts *parts)
{
    emit_call(&w->body, INDENT, emit_format(w->e, "const %s %s = { ", type, name), parts->at,
              parts->len, " };\n");
}

static bool is_narrow(DType t) { return t == DT_BF16 || t == DT_F16; }

/* ---- products -------------------------------------------------------------------------------- */

static void write_matmul(KernelWriter *w)
{
    const Matmul *x = &w->k->matmul;
    Parts parts = { 0 };
    const char *name = names_take(w->e, w->names, "shape");
    add_size(w, &parts, "m", x->m);
    add_size(w, &parts, "n", x->n);
    add_size(w, &parts, "k", x->k);
    if (x->ta)
        add_field(w, &parts, "ta", "true");
    if (x->tb)
        add_field(w, &parts, "tb", "true");
    if (x->lda && !dim_same(x->lda, x->ta ? x->m : x->k))
        add_size(w, &parts, "lda", x->lda);
    if (x->ldb && !dim_same(x->ldb, x->tb ? x->k : x->n))
        add_size(w, &parts, "ldb", x->ldb);
    if (x->ldc && !dim_same(x->ldc, x->n))
        add_size(w, &parts, "ldc", x->ldc);
    if (x->n_batch > 0) {
        add_field(w, &parts, "batch", braces(w, x->batch, x->n_batch));
        add_field(w, &parts, "step_a", braces(w, x->step_a, x->n_batch));
        add_field(w, &parts, "step_b", braces(w, x->step_b, x->n_batch));
        add_field(w, &parts, "step_c", braces(w, x->step_c, x->n_batch));
    }
    if (x->bias)
        add_field(w, &parts, "bias", w->arg[3]);
    if (x->add != ADD_NEVER)
        add_field(w, &parts, "add", flag_value(w, x->add));
    write_struct(w, "RtMatmul", name, &parts);
    const KernelArg *arg = w->k->args.at;
    const bool narrow = is_narrow(arg[1].dtype);
    text_add(&w->body, "    rt_matmul_%s%s%s(%s, %s, %s, %s);\n", dtype_name(arg[1].dtype),
             narrow ? "_" : "", narrow ? dtype_name(arg[0].dtype) : "", w->arg[0], w->arg[1],
             w->arg[2], name);
}

/* ---- attention ------------------------------------------------------------------------------- */

static void add_heads(KernelWriter *w, Parts *parts, const char *name, const HeadSteps *h)
{
    if (h->b || h->h || h->t)
        add_field(w, parts, name, braces(w, (const Dim *[]){ h->b, h->h, h->t }, 3));
}

static void write_attention(KernelWriter *w)
{
    const Attention *x = &w->k->attention;
    const bool grad = w->k->kind == KERNEL_ATTENTION_GRAD;
    const char *name = names_take(w->e, w->names, "shape");
    Parts parts = { 0 };
    add_size(w, &parts, "B", x->B);
    add_size(w, &parts, "H", x->H);
    add_size(w, &parts, "T", x->T);
    add_size(w, &parts, "S", x->S);
    add_size(w, &parts, "D", x->D);
    add_size(w, &parts, "E", x->E);
    add_field(w, &parts, "scale",
              x->scale > 0 || x->scale < 0
                  ? emit_number(w->e, x->scale)
                  : emit_format(w->e, "1 / sqrt((double)%s)", dim_c_divisor(&w->dims, x->D)));
    add_field(w, &parts, "causal", x->causal ? "true" : "false");
    add_heads(w, &parts, "q", &x->q);
    add_heads(w, &parts, "k", &x->k);
    add_heads(w, &parts, "v", &x->v);
    add_heads(w, &parts, "y", &x->y);
    if (grad) {
        add_heads(w, &parts, "d_q", &x->d_q);
        add_heads(w, &parts, "d_k", &x->d_k);
        add_heads(w, &parts, "d_v", &x->d_v);
        add_heads(w, &parts, "d_y", &x->d_y);
    }
    write_struct(w, "RtAttention", name, &parts);
    Parts args = { 0 };
    for (int i = 0; i < w->k->args.len; i++)
        add(w, &args, w->arg[i]);
    add(w, &args, name);
    emit_call(&w->body, INDENT,
              emit_format(w->e, "rt_attention%s_%s(", grad ? "_grad" : "",
                          dtype_name(w->k->args.at[0].dtype)),
              args.at, args.len, ");\n");
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
    case KERNEL_SCATTER: write_scatter(w); return;
    case KERNEL_MAP: break;
    }
    bug("kernel %s is no call", w->k->name);
}
