/* types_text.c -- what each value is in memory and in arithmetic, as a table (--emit=types).
 *
 * In: the routines after fuse, so that it is known which values get a place in memory. Out: one row
 * per value in order, loops indented: its name and op, its shape, the type of its place in memory
 * ("-" where only a kernel's registers hold it), the type it is computed in, the class of its op
 * by the policy of the op table, and the line of the model. A cast is a row of its own. Sizes,
 * constants and views are left out: they have no type that somebody chose.
 */
#include "emit/parts.h"
#include "op/op.h"

#include <string.h>

typedef struct {
    Emitter *e;
    Map *place;       /* node -> Buffer that holds its value */
    Map *role;        /* node -> Sink that takes it */
    Map *result;      /* node -> the result of a loop in whose place it is written */
    Map *given;       /* argument of a body -> the node that is passed */
    const char *real; /* "fp32": in registers */
    Text *out;
} Table;

static const char *type_word(DType t)
{
    switch (t) {
    case DT_F64: return "fp64";
    case DT_F32: return "fp32";
    case DT_BF16: return "bf16";
    case DT_F16: return "fp16";
    case DT_I32: return "int32";
    case DT_BOOL: return "bool";
    default: return dtype_name(t);
    }
}

static bool is_view(const Node *n)
{
    return n->op == OP_RESHAPE || n->op == OP_TRANSPOSE || n->op == OP_SLICE
           || n->op == OP_BROADCAST;
}

static bool is_told(const Node *n)
{
    const bool iteration = n->op == OP_ARG && n->attr.arg == ARG_ITER;
    return n->n_out == 1 && !is_view(n) && !iteration && n->op != OP_CONST && n->op != OP_DIM
           && n->op != OP_IOTA && n->op != OP_LOOP;
}

static const Node *through_views(const Node *n)
{
    while (is_view(n))
        n = n->in[0];
    return n;
}

/* ---- the columns --------------------------------------------------------------------------- */

/* What an iteration of the loop gives for its result k. */
static const Node *given_for(const Loop *l, int k)
{
    for (int i = 0; i < l->body->sinks.len; i++)
        if (l->body->sinks.at[i].index == k)
            return through_views(l->body->sinks.at[i].node);
    bug("a loop without its result %d", k);
}

/* Is it rounded to 16 bits where it is made, and so in a place of 16 bits? Of a carried value the
   next one is, if it is. */
static bool is_rounded(const Table *t, const Node *n)
{
    const Node *in = n->n_in ? n->in[0] : NULL, *passed = map_get(t->given, n);
    if (n->op == OP_RESULT && in->op == OP_LOOP)
        return is_rounded(t, given_for(in->attr.loop, n->attr.index));
    if (n->op == OP_LOOP && n->n_out == 1)
        return is_rounded(t, given_for(n->attr.loop, 0));
    if (is_view(n) || n->op == OP_PAD || n->op == OP_GATHER)
        return is_rounded(t, in);
    if (n->op == OP_COPY16)
        return t->e->p->narrow == DT_BF16 || t->e->p->narrow == DT_F16;
    return n->op == OP_BF16 || n->op == OP_F16 || (passed && is_rounded(t, passed));
}

/* A parameter without an fp32 master, or a repetition of one: 16 bits from the start. */
static bool is_half(const Table *t, const Node *n)
{
    while (map_get(t->given, n))
        n = map_get(t->given, n);
    return n->op == OP_PARAM && t->e->p->params.at[n->attr.index].half;
}

/* A rounding of what attention has rounded as it wrote it. */
static bool is_handed(const Node *n)
{
    return (n->op == OP_BF16 || n->op == OP_F16) && n->in[0]->op == OP_RESULT
           && op_row(n->in[0]->in[0]->op)->policy == POLICY_PRODUCT;
}

/* The type of n in memory; NULL: it has no place there. */
static const char *kept_in(const Table *t, const Node *n)
{
    const DType narrow = t->e->p->narrow;
    const Sink *sink = map_get(t->role, n);
    for (;; n = n->in[0]) {
        const Node *passed = map_get(t->given, n);
        const Node *result = map_get(t->result, n);
        const Buffer *b = map_get(t->place, n);
        if (sink && sink->kind == SINK_SUM)
            return "fp64";
        if (sink && sink->kind == SINK_GRAD)
            return t->real;
        if (is_half(t, n))
            return type_word(narrow);
        if (n->op == OP_COPY16 && (narrow == DT_BF16 || narrow == DT_F16))
            return type_word(narrow);
        if (b)
            return type_word(b->dtype);
        if (is_handed(n))
            return type_word(narrow);
        if (result) /* and itself, of a loop */
            return type_word(is_rounded(t, result) ? narrow : result->type->dtype);
        if (passed)
            return kept_in(t, passed);
        if (n->op == OP_PARAM || n->op == OP_INPUT)
            return type_word(n->type->dtype);
        if (!is_view(n))
            return NULL;
    }
}

static bool is_16_bit(const Table *t, const Node *n)
{
    const char *kept = kept_in(t, n);
    return kept && kept == type_word(t->e->p->narrow) && strcmp(kept, t->real) != 0;
}

static const char *computed_in(const Table *t, const Node *n)
{
    const Sink *sink = map_get(t->role, n);
    const Node *made = n->op == OP_RESULT ? n->in[0] : n;
    const char *operand = made->n_in ? type_word(
                              made->in[n->op == OP_WHERE || n->op == OP_SCATTER]->type->dtype)
                                     : t->real;
    switch (op_row(made->op)->policy) {
    case POLICY_NONE:
    case POLICY_MOVE:
    case POLICY_TABLE: return "-";
    case POLICY_PRODUCT:
        if (!is_16_bit(t, made->in[0]) || !is_16_bit(t, made->in[1]))
            return t->real;
        return emit_format(t->e, "%s, sums %s", type_word(t->e->p->narrow), t->real);
    case POLICY_CAST:
        if (n->op == OP_CAST)
            return emit_format(t->e, "%s to %s", operand, type_word(n->type->dtype));
        if (n->op == OP_COPY16 && is_half(t, n->in[0]))
            return "-";
        return emit_format(t->e, "%s to %s", operand,
                           n->op == OP_F16    ? "fp16"
                           : n->op == OP_BF16 ? "bf16"
                                              : type_word(t->e->p->narrow));
    case POLICY_FULL:
        if (sink && sink->kind == SINK_SUM)
            return "fp64";
        break;
    case POLICY_POINT: break;
    }
    return n->type->dtype == DT_BOOL || dtype_is_real(n->type->dtype) ? operand : type_word(DT_I32);
}

static const char *class_of(const Node *n)
{
    static const char *const word[] = {
        [POLICY_NONE] = "given",      [POLICY_MOVE] = "moved",  [POLICY_POINT] = "element-wise",
        [POLICY_PRODUCT] = "product", [POLICY_TABLE] = "table", [POLICY_FULL] = "full",
        [POLICY_CAST] = "cast",
    };
    const Node *made = n->op == OP_RESULT ? n->in[0] : n;
    if (n->op == OP_PARAM)
        return "parameter";
    return made->op == OP_LOOP ? "of the loop" : word[op_row(made->op)->policy];
}

static const char *name_of(const Table *t, const Node *n)
{
    const Program *p = t->e->p;
    const Buffer *b = map_get(t->place, n);
    if (n->op == OP_PARAM)
        return p->params.at[n->attr.index].path;
    if (n->op == OP_INPUT)
        return p->inputs.at[n->attr.index].name;
    return n->name ? n->name : b ? b->name : ".";
}

/* ---- rows ---------------------------------------------------------------------------------- */

static void put_columns(Table *t, int indent, const char *const *word)
{
    static const size_t column[] = { 0, 30, 46, 64, 72, 90, 104 };
    Text *out = t->out;
    text_add(out, "%*s%s", indent, "", word[0]);
    for (int i = 1; i < 7; i++) {
        text_put(out, " ");
        text_pad(out, column[i]);
        text_put(out, word[i]);
    }
    text_put(out, "\n");
}

static void put_row(Table *t, const Node *n, int indent)
{
    const char *kept = kept_in(t, n);
    const Node *made = n->op == OP_RESULT ? n->in[0] : n;
    const char *word[] = { name_of(t, n),
                           op_row(made->op)->name,
                           n->type->rank ? emit_shape(t->e, n->type) : "[]",
                           kept ? kept : "-",
                           computed_in(t, n),
                           class_of(n),
                           n->span.file ? source_where(t->e->cx, n->span) : "" };
    put_columns(t, indent, word);
}

static void note_sinks(Table *t, Graph *g)
{
    for (int i = 0; i < g->sinks.len; i++)
        if (g->sinks.at[i].kind != SINK_RESULT && g->sinks.at[i].kind != SINK_OUTPUT)
            map_set(t->role, g->sinks.at[i].node, &g->sinks.at[i]);
}

/* What a body hands on is written where the result of the loop lies; the first value of what it
   carries too. */
static void note_result(Table *t, const Node *loop, int k, Node *result)
{
    const Loop *l = loop->attr.loop;
    map_set(t->result, result, result);
    map_set(t->result, given_for(l, k), result);
    if (k >= l->n_carry)
        return;
    map_set(t->result, l->body->args.at[k], result);
    if (!map_get(t->result, through_views(loop->in[k])))
        map_set(t->result, through_views(loop->in[k]), result);
}

static void note_loop(Table *t, Graph *g, Node *loop)
{
    for (int k = 0; k < loop->n_in; k++)
        map_set(t->given, loop->attr.loop->body->args.at[k], loop->in[k]);
    if (loop->n_out == 1)
        note_result(t, loop, 0, loop);
    for (int i = loop->id; i < g->nodes.len; i++)
        if (g->nodes.at[i]->op == OP_RESULT && g->nodes.at[i]->in[0] == loop)
            note_result(t, loop, g->nodes.at[i]->attr.index, g->nodes.at[i]);
}

/* Loops first: a value before one may be written in the place of what it carries. */
static void put_graph(Table *t, Graph *g, int indent)
{
    const bool *live = graph_live(g);
    note_sinks(t, g);
    for (int i = 0; i < g->nodes.len; i++)
        if (live[i] && g->nodes.at[i]->op == OP_LOOP)
            note_loop(t, g, g->nodes.at[i]);
    for (int i = 0; i < g->nodes.len; i++) {
        Node *n = g->nodes.at[i];
        if (!live[i])
            continue;
        if (n->op == OP_LOOP) {
            const Loop *l = n->attr.loop;
            text_add(t->out, "%*sloop %s%s, %s times\n", indent, "", l->name,
                     n->backward ? ", backward" : "", dim_text(t->e->cx, l->trip));
            put_graph(t, l->body, indent + 2);
            text_add(t->out, "%*send of loop %s\n", indent, "", l->name);
        }
        if (is_told(n) || (n->op == OP_LOOP && n->n_out == 1))
            put_row(t, n, indent);
    }
}

static void put_routine(Emitter *e, Text *out, const Routine *r)
{
    static const char *const head[] = { "value",       "op",    "shape", "memory",
                                        "computed in", "class", "line" };
    Arena *a = e->cx->scratch;
    Table t = { e, map_new(a), map_new(a), map_new(a), map_new(a), type_word(e->p->real), out };
    for (int i = 0; i < r->buffers.len; i++) {
        Buffer *b = r->buffers.at[i];
        if (b->node && b->kind != BUF_PARAM && b->kind != BUF_PARAM16 && !map_get(t.place, b->node))
            map_set(t.place, b->node, b);
    }
    text_add(out, "%s\n", r->name);
    put_columns(&t, 2, head);
    put_graph(&t, r->graph, 2);
}

void emit_types(Text *out, KernelProgram *kp)
{
    Program *p = kp->program;
    Emitter e = { .cx = p->cx, .kp = kp, .p = p, .out = out };
    const Routine *const all[] = { kp->train, kp->eval, kp->count, kp->output };
    const bool narrow = p->narrow == DT_BF16 || p->narrow == DT_F16;
    const char *real = type_word(p->real);
    if (program_has_halves(p))
        text_add(out,
                 "types of %s: weights of products in %s alone, other parameters, gradients and\n"
                 "the optimizer in %s",
                 p->name, type_word(p->narrow), real);
    else
        text_add(out, "types of %s: parameters, gradients and the optimizer in %s", p->name, real);
    text_add(out, narrow ? ", compute type %s\n" : "\n", type_word(p->narrow));
    text_put(out,
             "memory: the type of its place; - where only registers hold it, in the type it is\n"
             "computed in. class, by the policy of the op table: element-wise values are rounded\n"
             "where memory holds them, products take 16-bit operands, full is never 16 bits\n");
    for (int i = 0; i < 4; i++)
        if (all[i]) {
            text_put(out, "\n");
            put_routine(&e, out, all[i]);
        }
}
