/* grad_text.c -- the backward pass in the model's notation, to be read (--emit=grad).
 *
 * In: the train graph after grad and tidy. Out: one assignment per value of the backward pass that
 * has a name, several uses or a long formula, in order, under the model line it undoes. Values of
 * the forward pass appear under their names, or written out where they have none; inside a loop
 * they are those of repetition i. Broadcasts, and reshapes that only put leading axes together, are
 * not written: the model's operators do not need them.
 */
#include "emit/parts.h"
#include "op/op.h"

#include <string.h>

enum { OPERAND = 64, KEPT = 72 }; /* characters before a value gets its own line */

typedef struct {
    Emitter e; /* cx, p and out are used */
    Graph *g;
    const char **name; /* by node id: how uses write it, or NULL */
    int *uses;
    bool *live;
    Names *names;
    /* by node id of the train graph: parameter whose gradient it is, plus 1 */
    int *sink;
    bool *written; /* by parameter: its gradient has appeared */
    int indent;
    Text *out;
    Span *above; /* the model line shown last */
} Writer;

static Code text_of(Writer *w, const Node *n);

static const char *operand(Writer *w, const Node *n, Prec least)
{
    return code_at_least(&w->e, text_of(w, n), least);
}

static Code format(Writer *w, Prec prec, const char *fmt, const char *a, const char *b)
{
    return (Code){ emit_format(&w->e, fmt, a, b), prec, false, NULL };
}

/* ---- expressions --------------------------------------------------------------------------- */

static const char *axes_text(Writer *w, const Node *n)
{
    Text t = text_new(w->e.cx->scratch);
    for (int i = 0; i < n->attr.n_axes; i++)
        text_add(&t, "%s%s", i ? ", " : "",
                 dim_text(w->e.cx, n->in[0]->type->dim[n->attr.axes[i]]));
    return n->attr.n_axes == 1 ? t.at : emit_format(&w->e, "(%s)", t.at);
}

static const char *box_text(Writer *w, const Node *n)
{
    Text t = text_new(w->e.cx->scratch);
    for (int i = 0; i < n->type->rank; i++) {
        const Dim *end = dim_add(w->e.p->dims, n->attr.lo[i], n->type->dim[i]);
        const bool whole = dim_is(n->attr.lo[i], 0)
                           && dim_same(n->type->dim[i], n->in[0]->type->dim[i]);
        text_put(&t, i ? ", " : "");
        if (whole)
            text_put(&t, ":");
        else
            text_add(&t, "%s..%s", dim_text(w->e.cx, n->attr.lo[i]), dim_text(w->e.cx, end));
    }
    return t.at;
}

static bool swaps_last_two(const Node *n)
{
    const int r = n->type->rank;
    for (int i = 0; i < r; i++)
        if (n->attr.axes[i] != (i == r - 2 ? r - 1 : i == r - 1 ? r - 2 : i))
            return false;
    return r >= 2;
}

/* Does the reshape only put leading axes together, or take them apart? */
static bool keeps_last_axis(const Node *n)
{
    const Type *a = n->in[0]->type, *b = n->type;
    return a->rank > 0 && b->rank > 0 && a->rank != b->rank
           && dim_same(a->dim[a->rank - 1], b->dim[b->rank - 1]);
}

static Code call_of(Writer *w, const Node *n, const char *name)
{
    Text t = text_new(w->e.cx->scratch);
    text_add(&t, "%s(", name);
    for (int i = 0; i < n->n_in; i++)
        text_add(&t, "%s%s", i ? ", " : "", operand(w, n->in[i], PREC_NONE));
    text_put(&t, ")");
    return code_plain(t.at);
}

static Code move_text(Writer *w, const Node *n)
{
    switch (n->op) {
    case OP_BROADCAST: return text_of(w, n->in[0]);
    case OP_RESHAPE:
        if (keeps_last_axis(n))
            return text_of(w, n->in[0]);
        return format(w, PREC_PRIMARY, "reshape(%s, %s)", operand(w, n->in[0], PREC_NONE),
                      emit_shape(&w->e, n->type));
    case OP_TRANSPOSE:
        if (swaps_last_two(n))
            return format(w, PREC_PRIMARY, "%s'%s", operand(w, n->in[0], PREC_PRIMARY), "");
        return format(w, PREC_PRIMARY, "transpose(%s) to %s", operand(w, n->in[0], PREC_NONE),
                      emit_shape(&w->e, n->type));
    case OP_SLICE:
        return format(w, PREC_PRIMARY, "%s[%s]", operand(w, n->in[0], PREC_PRIMARY),
                      box_text(w, n));
    case OP_PAD:
        return format(w, PREC_PRIMARY, "pad(%s, to: %s)", operand(w, n->in[0], PREC_NONE),
                      emit_shape(&w->e, n->type));
    default: return call_of(w, n, op_row(n->op)->name);
    }
}

static Code leaf_text(Writer *w, const Node *n)
{
    Emitter *e = &w->e;
    switch (n->op) {
    case OP_CONST: {
        const char *s = emit_number(e, n->attr.value);
        const size_t len = strlen(s);
        const bool whole = len > 2 && strcmp(s + len - 2, ".0") == 0;
        return (Code){ whole ? arena_strndup(e->cx->scratch, s, len - 2) : s, PREC_PRIMARY, false,
                       NULL };
    }
    case OP_PARAM: return code_plain(e->p->params.at[n->attr.index].path);
    case OP_INPUT: return code_plain(e->p->inputs.at[n->attr.index].name);
    case OP_SEED:
        return format(w, PREC_PRIMARY, "seed(%s)%s", e->p->means.at[n->attr.index].name, "");
    case OP_MEAN:
        return format(w, PREC_PRIMARY, "mean(%s)%s", e->p->means.at[n->attr.index].name, "");
    case OP_DIM: return code_plain(dim_text(e->cx, n->attr.dim));
    case OP_IOTA:
        return format(w, PREC_PRIMARY, "iota(%s)%s", dim_text(e->cx, n->type->dim[n->attr.axes[0]]),
                      "");
    default: return code_plain(n->name ? n->name : "arg");
    }
}

static const char *factor_text(Writer *w, const Node *n, bool transposed, Prec least)
{
    return transposed ? emit_format(&w->e, "%s'", operand(w, n, PREC_PRIMARY))
                      : operand(w, n, least);
}

static Code matmul_text(Writer *w, const Node *n)
{
    return format(w, PREC_MUL, "%s @ %s", factor_text(w, n->in[0], n->attr.ta, PREC_MUL),
                  factor_text(w, n->in[1], n->attr.tb, PREC_UNARY));
}

static Code point_text(Writer *w, const Node *n)
{
    static const struct {
        Op op;
        const char *fmt;
        Prec prec, left, right;
    } binary[] = {
        { OP_ADD, "%s + %s", PREC_ADD, PREC_ADD, PREC_MUL },
        { OP_SUB, "%s - %s", PREC_ADD, PREC_ADD, PREC_MUL },
        { OP_MUL, "%s * %s", PREC_MUL, PREC_MUL, PREC_UNARY },
        { OP_DIV, "%s / %s", PREC_MUL, PREC_MUL, PREC_UNARY },
        { OP_POW, "%s^%s", PREC_UNARY, PREC_PRIMARY, PREC_PRIMARY },
        { OP_EQ, "%s == %s", PREC_EQUAL, PREC_ADD, PREC_ADD },
        { OP_NE, "%s != %s", PREC_EQUAL, PREC_ADD, PREC_ADD },
        { OP_LT, "%s < %s", PREC_RELATION, PREC_ADD, PREC_ADD },
        { OP_LE, "%s <= %s", PREC_RELATION, PREC_ADD, PREC_ADD },
        { OP_AND, "%s and %s", PREC_AND, PREC_AND, PREC_NOT },
        { OP_OR, "%s or %s", PREC_OR, PREC_OR, PREC_AND },
    };
    const Node *b = n->n_in > 1 ? n->in[1] : NULL;
    while (b && b->op == OP_BROADCAST)
        b = b->in[0];
    if (n->op == OP_ADD && b->op == OP_NEG && (b->graph != w->g || w->name[b->id] == NULL))
        return format(w, PREC_ADD, "%s - %s", operand(w, n->in[0], PREC_ADD),
                      operand(w, b->in[0], PREC_MUL));
    for (size_t i = 0; i < sizeof binary / sizeof *binary; i++)
        if (n->op == binary[i].op)
            return format(w, binary[i].prec, binary[i].fmt, operand(w, n->in[0], binary[i].left),
                          operand(w, n->in[1], binary[i].right));
    if (n->op == OP_NEG)
        return format(w, PREC_UNARY, "-%s%s", operand(w, n->in[0], PREC_UNARY), "");
    if (n->op == OP_CAST)
        return n->in[0]->type->dtype == DT_BOOL || !dtype_is_real(n->type->dtype)
                   ? call_of(w, n,
                             n->type->dtype == DT_I32    ? "int"
                             : n->type->dtype == DT_BOOL ? "bool"
                                                         : "real")
                   : text_of(w, n->in[0]);
    return call_of(w, n, op_row(n->op)->name);
}

static Code compute_text(Writer *w, const Node *n)
{
    switch (op_row(n->op)->class) {
    case CLASS_LEAF: return leaf_text(w, n);
    case CLASS_POINT: return point_text(w, n);
    case CLASS_REDUCE:
        return format(w, PREC_PRIMARY,
                      emit_format(&w->e, "%s(%%s, over: %%s)", op_row(n->op)->name),
                      operand(w, n->in[0], PREC_NONE), axes_text(w, n));
    case CLASS_CONTRACT: return matmul_text(w, n);
    case CLASS_MOVE: return move_text(w, n);
    case CLASS_INDEX:
        if (n->op == OP_GATHER)
            return format(w, PREC_PRIMARY, "%s[%s]", operand(w, n->in[0], PREC_PRIMARY),
                          operand(w, n->in[1], PREC_NONE));
        return call_of(w, n, op_row(n->op)->name);
    case CLASS_STRUCT:
        if (n->op == OP_RESULT)
            return format(w, PREC_PRIMARY, emit_format(&w->e, "%%s.%d%%s", n->attr.index),
                          operand(w, n->in[0], PREC_PRIMARY), "");
        break;
    default: break;
    }
    return call_of(w, n, op_row(n->op)->name);
}

static Code text_of(Writer *w, const Node *n)
{
    if (n->graph == w->g && w->name[n->id])
        return code_plain(w->name[n->id]);
    if (op_row(n->op)->class != CLASS_LEAF && !n->backward && n->name) {
        w->name[n->id] = n->name; /* a value of the forward pass */
        return code_plain(n->name);
    }
    return compute_text(w, n);
}

/* ---- statements ---------------------------------------------------------------------------- */

/* One line, under a comment with the model line where that is another than before. */
static void put_line(Writer *w, const char *text, const Node *n)
{
    const Node *at = n && n->undoes ? n->undoes : n;
    Emitter *e = &w->e;
    if (at && at->span.file) {
        int column;
        const bool same = at->span.file == w->above->file
                          && source_line(e->cx, at->span, &column)
                                 == source_line(e->cx, *w->above, &column);
        if (!same)
            text_add(w->out, "%*s# %s  %s\n", w->indent, "", source_where(e->cx, at->span),
                     source_text_line(e->cx, at->span));
        *w->above = at->span;
    }
    text_add(w->out, "%*s%s\n", w->indent, "", text);
}

static void write_graph(Writer *w);

static Writer inner_writer(const Writer *w, Graph *body)
{
    Writer in = *w;
    const int n = body->nodes.len + 1;
    in.g = body;
    in.name = NEW_ARRAY(w->e.cx->scratch, const char *, n);
    in.live = graph_live(body);
    in.uses = graph_uses(body);
    in.indent += 4;
    return in;
}

static const char *loop_variable(const Loop *loop) { return loop->var ? loop->var : "i"; }

/* "h.*.ln_1.weight" in the loop over the stack: h[i].ln_1.weight */
static const char *path_in_loop(Writer *w, const char *path, const Loop *loop)
{
    const char *star = strstr(path, ".*");
    return star == NULL ? path
                        : emit_format(&w->e, "%.*s[%s]%s", (int)(star - path), path,
                                      loop_variable(loop), star + 2);
}

static const Sink *result_sink(const Node *result)
{
    const Graph *body = result->in[0]->attr.loop->body;
    for (int i = 0; i < body->sinks.len; i++)
        if (body->sinks.at[i].kind == SINK_RESULT && body->sinks.at[i].index == result->attr.index)
            return &body->sinks.at[i];
    bug("a loop has no result %d", result->attr.index);
}

static void name_arguments(Writer *w, Writer *in, const Node *n);

/* What the forward loop keeps of each repetition: its name there, or its formula. */
static const char *kept_text(Writer *w, const Node *result)
{
    const Node *n = result->in[0], *kept = result_sink(result)->node;
    Writer in = inner_writer(w, n->attr.loop->body);
    if (kept->name)
        return kept->name;
    name_arguments(w, &in, n);
    if (kept->op == OP_RESULT && kept->in[0]->op == OP_LOOP)
        return kept_text(&in, kept);
    const Code c = text_of(&in, kept);
    return strlen(c.text) <= KEPT ? code_at_least(&w->e, c, PREC_PRIMARY)
                                  : emit_format(&w->e, "kept_%d", result->attr.index);
}

static const char *argument_name(Writer *w, const Node *n, int i)
{
    const Loop *loop = n->attr.loop;
    const Node *arg = loop->body->args.at[i], *outer = i < n->n_in ? n->in[i] : NULL;
    if (arg->attr.arg == ARG_ITER)
        return loop_variable(loop);
    if (arg->attr.arg == ARG_CARRY)
        return arg->name ? arg->name : outer->name ? outer->name : emit_format(&w->e, "x%d", i);
    if (arg->attr.arg == ARG_SHARED)
        return operand(w, outer, PREC_PRIMARY);
    if (outer->op == OP_PARAM)
        return path_in_loop(w, w->e.p->params.at[outer->attr.index].path, loop);
    if (outer->op == OP_RESULT && outer->in[0]->op == OP_LOOP && !outer->in[0]->backward
        && !(outer->graph == w->g && w->name[outer->id]))
        return kept_text(w, outer);
    const char *text = operand(w, outer, PREC_PRIMARY);
    return strstr(text, ".*") ? path_in_loop(w, text, loop)
                              : emit_format(&w->e, "%s[%s]", text, loop_variable(loop));
}

static void name_arguments(Writer *w, Writer *in, const Node *n)
{
    const Graph *body = n->attr.loop->body;
    for (int i = 0; i < body->args.len; i++)
        in->name[body->args.at[i]->id] = argument_name(w, n, i);
}

/* The RESULT nodes of loop n, by number. */
static const Node *result_of(const Writer *w, const Node *n, int index)
{
    for (int i = n->id + 1; i < w->g->nodes.len; i++) {
        const Node *r = w->g->nodes.at[i];
        if (w->live[i] && r->op == OP_RESULT && r->in[0] == n && r->attr.index == index)
            return r;
    }
    return NULL;
}

static void put_gradient(Writer *w, int param, const char *path, const char *value)
{
    put_line(
        w, emit_format(&w->e, "gradient of %s %s %s", path, w->written[param] ? "+=" : "=", value),
        NULL);
    w->written[param] = true;
}

static void write_results(Writer *w, Writer *in, const Node *n)
{
    const Loop *loop = n->attr.loop;
    for (int i = 0; i < loop->body->sinks.len; i++) {
        const Sink *s = &loop->body->sinks.at[i];
        const Node *r = result_of(w, n, s->index);
        const char *value = operand(in, s->node, PREC_NONE);
        const int param = r && w->g->parent == NULL ? w->sink[r->id] - 1 : -1;
        if (s->index < loop->n_carry) {
            const char *carry = in->name[loop->body->args.at[s->index]->id];
            if (strcmp(carry, value) != 0)
                put_line(in, emit_format(&w->e, "%s = %s", carry, value), NULL);
            if (r)
                w->name[r->id] = carry;
        } else if (param >= 0) {
            put_gradient(in, param, path_in_loop(w, w->e.p->params.at[param].path, loop), value);
            w->sink[r->id] = 0;
        } else if (r) {
            const char *want = s->node->name ? s->node->name : "t";
            const char *name = names_take_exact(&w->e, w->names, want);
            put_line(in, emit_format(&w->e, "yield %s as %s", value, name), NULL);
            w->name[r->id] = name;
        }
    }
}

static void write_loop(Writer *w, const Node *n)
{
    const Loop *loop = n->attr.loop;
    Writer in = inner_writer(w, loop->body);
    name_arguments(w, &in, n);
    for (int i = 0; i < loop->n_carry; i++) {
        const char *name = in.name[loop->body->args.at[i]->id];
        const char *value = operand(w, n->in[i], PREC_NONE);
        if (strcmp(name, value) != 0)
            put_line(w, emit_format(&w->e, "%s = %s", name, value), n);
    }
    put_line(w,
             emit_format(&w->e,
                         loop->reverse ? "for %s in 0..%s, last one first {" : "for %s in 0..%s {",
                         loop_variable(loop), dim_text(w->e.cx, loop->trip)),
             n);
    write_graph(&in);
    write_results(w, &in, n);
    put_line(w, "}", NULL);
    *w->above = (Span){ 0 };
}

static const char *fresh_name(Writer *w, const Node *n)
{
    const char *want = n->name                        ? n->name
                       : n->undoes && n->undoes->name ? emit_format(&w->e, "d_%s", n->undoes->name)
                                                      : "t";
    return names_take_exact(&w->e, w->names, want);
}

/* d_q, d_k, d_v = attention_grad(...) */
static void write_several(Writer *w, const Node *n)
{
    Text t = text_new(w->e.cx->scratch);
    for (int k = 0; k < n->n_out; k++) {
        const Node *r = result_of(w, n, k);
        const char *name = r ? fresh_name(w, r) : "_";
        text_add(&t, "%s%s", k ? ", " : "", name);
        if (r)
            w->name[r->id] = name;
    }
    put_line(w, emit_format(&w->e, "%s = %s", t.at, compute_text(w, n).text), n);
}

static bool is_view(const Node *n)
{
    return n->op == OP_BROADCAST || (n->op == OP_RESHAPE && keeps_last_axis(n));
}

/* Values of the backward pass; in a loop body of the backward pass, all of them. */
static void write_graph(Writer *w)
{
    for (int i = 0; i < w->g->nodes.len; i++) {
        const Node *n = w->g->nodes.at[i];
        const OpClass class = op_row(n->op)->class;
        if (!w->live[i] || class == CLASS_LEAF || (!n->backward && w->g->parent == NULL)
            || n->op == OP_RESULT || w->name[i] || is_view(n))
            continue;
        if (n->op == OP_LOOP) {
            write_loop(w, n);
            continue;
        }
        if (n->n_out > 1) {
            write_several(w, n);
            continue;
        }
        const Code c = compute_text(w, n);
        if (w->uses[i] <= 1 && strlen(c.text) <= OPERAND && class != CLASS_CONTRACT
            && !(n->name && n->backward))
            continue;
        const char *name = fresh_name(w, n);
        put_line(w, emit_format(&w->e, "%s = %s", name, c.text), n);
        w->name[i] = name;
    }
}

void emit_grad(Text *out, Program *p)
{
    Span above = { 0 };
    Arena *a = p->cx->scratch;
    Writer w = { .e = { .cx = p->cx, .p = p, .out = out },
                 .g = p->train_graph,
                 .out = out,
                 .above = &above };
    text_add(out,
             "# The backward pass of %s, from the loss to the parameters.\n"
             "# seed(m): the weight of the mean m in the loss, over its global count.\n\n",
             p->name);
    if (p->train_graph == NULL) {
        text_put(out, "# nothing: there is no loss\n");
        return;
    }
    w.name = NEW_ARRAY(a, const char *, w.g->nodes.len + 1);
    w.sink = NEW_ARRAY(a, int, w.g->nodes.len + 1);
    w.written = NEW_ARRAY(a, bool, p->params.len + 1);
    w.live = graph_live(w.g);
    w.uses = graph_uses(w.g);
    w.names = names_new(&w.e, NULL);
    for (int i = 0; i < w.g->sinks.len; i++)
        if (w.g->sinks.at[i].kind == SINK_GRAD)
            w.sink[w.g->sinks.at[i].node->id] = w.g->sinks.at[i].index + 1;
    write_graph(&w);
    text_put(out, "\n");
    for (int i = 0; i < w.g->sinks.len; i++) {
        const Sink *s = &w.g->sinks.at[i];
        if (s->kind == SINK_GRAD && w.sink[s->node->id] == s->index + 1)
            put_gradient(&w, s->index, p->params.at[s->index].path,
                         operand(&w, s->node, PREC_NONE));
    }
}
