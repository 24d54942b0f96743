/* grad_text.c -- the backward pass in the model's notation, to be read (--emit=grad).
 *
 * In: the train graph after grad and tidy. Out: one assignment per value of the backward pass that
 * has a name or several uses, in order, with the model line it undoes; loops as loops. Values of
 * the forward pass appear under their names, or written out where they have none. Broadcasts are
 * not written, as in the model.
 */
#include "emit/parts.h"
#include "op/op.h"

#include <string.h>

enum { OPERAND = 64 };                          /* characters before a value gets its own line */

typedef struct {
    Emitter     e;                              /* cx, p and out are used                       */
    Graph      *g;
    const char **name;                          /* by node id: how uses write it, or NULL       */
    int        *uses;
    bool       *live;
    Names      *names;
    int         indent;
    Text       *out;
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
        const bool whole = dim_is(n->attr.lo[i], 0) &&
                           dim_same(n->type->dim[i], n->in[0]->type->dim[i]);
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
    case OP_BROADCAST:
        return text_of(w, n->in[0]);
    case OP_RESHAPE:
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
    default:
        return call_of(w, n, op_row(n->op)->name);
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
        return (Code){ whole ? arena_strndup(e->cx->scratch, s, len - 2) : s,
                       n->attr.value < 0 ? PREC_ADD : PREC_PRIMARY, false, NULL };
    }
    case OP_PARAM:
        return code_plain(e->p->params.at[n->attr.index].path);
    case OP_INPUT:
        return code_plain(e->p->inputs.at[n->attr.index].name);
    case OP_SEED:
        return format(w, PREC_PRIMARY, "seed(%s)%s", e->p->means.at[n->attr.index].name, "");
    case OP_MEAN:
        return format(w, PREC_PRIMARY, "mean(%s)%s", e->p->means.at[n->attr.index].name, "");
    case OP_DIM:
        return code_plain(dim_text(e->cx, n->attr.dim));
    case OP_IOTA:
        return format(w, PREC_PRIMARY, "iota(%s)%s", dim_text(e->cx, n->type->dim[n->attr.axes[0]]),
                      "");
    default:
        return code_plain(n->name ? n->name : "arg");
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
    static const struct { Op op; const char *fmt; Prec prec, left, right; } binary[] = {
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
    for (size_t i = 0; i < sizeof binary / sizeof *binary; i++)
        if (n->op == binary[i].op)
            return format(w, binary[i].prec, binary[i].fmt, operand(w, n->in[0], binary[i].left),
                          operand(w, n->in[1], binary[i].right));
    if (n->op == OP_NEG)
        return format(w, PREC_UNARY, "-%s%s", operand(w, n->in[0], PREC_UNARY), "");
    if (n->op == OP_CAST)
        return n->in[0]->type->dtype == DT_BOOL || !dtype_is_real(n->type->dtype)
             ? call_of(w, n, n->type->dtype == DT_I32 ? "int" : n->type->dtype == DT_BOOL ? "bool"
                       : "real")
             : text_of(w, n->in[0]);
    return call_of(w, n, op_row(n->op)->name);
}

static Code compute_text(Writer *w, const Node *n)
{
    switch (op_row(n->op)->class) {
    case CLASS_LEAF:
        return leaf_text(w, n);
    case CLASS_POINT:
        return point_text(w, n);
    case CLASS_REDUCE:
        return format(w, PREC_PRIMARY, emit_format(&w->e, "%s(%%s, over: %%s)",
                      op_row(n->op)->name), operand(w, n->in[0], PREC_NONE), axes_text(w, n));
    case CLASS_CONTRACT:
        return matmul_text(w, n);
    case CLASS_MOVE:
        return move_text(w, n);
    case CLASS_INDEX:
        if (n->op == OP_GATHER)
            return format(w, PREC_PRIMARY, "%s[%s]", operand(w, n->in[0], PREC_PRIMARY),
                          operand(w, n->in[1], PREC_NONE));
        return call_of(w, n, op_row(n->op)->name);
    case CLASS_STRUCT:
        if (n->op == OP_RESULT)
            return format(w, PREC_PRIMARY, emit_format(&w->e, "%%s.%d%%s",
                                                        n->attr.index),
                          operand(w, n->in[0], PREC_PRIMARY), "");
        break;
    default:
        break;
    }
    return call_of(w, n, op_row(n->op)->name);
}

static Code text_of(Writer *w, const Node *n)
{
    if (n->graph == w->g && w->name[n->id])
        return code_plain(w->name[n->id]);
    if (op_row(n->op)->class != CLASS_LEAF && !n->backward && n->name) {
        w->name[n->id] = n->name;               /* a value of the forward pass */
        return code_plain(n->name);
    }
    return compute_text(w, n);
}

/* ---- statements ---------------------------------------------------------------------------- */

static void put_line(Writer *w, const char *text, const Node *n)
{
    const Node *at = n && n->undoes ? n->undoes : n;
    Text       *t = w->out;
    text_add(t, "%*s%s", w->indent, "", text);
    if (at && at->span.file) {
        text_pad(t, 56);
        text_add(t, "  # %s  %s", source_where(w->e.cx, at->span),
                 source_text_line(w->e.cx, at->span));
    }
    text_put(t, "\n");
}

static void write_graph(Writer *w);

static Writer inner_writer(const Writer *w, Graph *body)
{
    Writer     in = *w;
    const int  n = body->nodes.len + 1;
    in.g = body;
    in.name = NEW_ARRAY(w->e.cx->scratch, const char *, n);
    in.live = graph_live(body);
    in.uses = graph_uses(body);
    in.indent += 4;
    return in;
}

static void write_loop(Writer *w, const Node *n)
{
    const Loop *loop = n->attr.loop;
    Arena      *a = w->e.cx->scratch;
    Writer      in = inner_writer(w, loop->body);
    const char *trip = dim_text(w->e.cx, loop->trip);
    for (int i = 0; i < loop->body->args.len; i++) {
        const Node *arg = loop->body->args.at[i];
        const char *outer = i < n->n_in ? operand(w, n->in[i], PREC_PRIMARY) : NULL;
        const char *name = arg->name ? arg->name : arena_printf(a, "x%d", i);
        if (arg->attr.arg == ARG_SLICE)
            name = arena_printf(a, "%s[%s]", outer, loop->var ? loop->var : "i");
        else if (arg->attr.arg == ARG_SHARED)
            name = outer;
        else if (arg->attr.arg == ARG_ITER)
            name = loop->var ? loop->var : "i";
        else
            put_line(w, arena_printf(a, "%s = %s", name, outer), NULL);
        in.name[arg->id] = name;
    }
    put_line(w, arena_printf(a, loop->reverse ? "for %s in 0..%s reversed {" : "for %s in 0..%s {",
                             loop->var ? loop->var : "i", trip), n);
    write_graph(&in);
    for (int i = 0; i < loop->body->sinks.len; i++) {
        const Sink *s = &loop->body->sinks.at[i];
        const char *value = operand(&in, s->node, PREC_NONE);
        if (s->index < loop->n_carry)
            put_line(&in, arena_printf(a, "%s = %s", in.name[loop->body->args.at[s->index]->id],
                                       value), NULL);
        else
            put_line(&in, arena_printf(a, "yield %s", value), NULL);
    }
    put_line(w, "}", NULL);
}

static const char *fresh_name(Writer *w, const Node *n)
{
    for (int k = 0;; k++) {
        const char *want = n->name ? n->name : n->undoes && n->undoes->name
                         ? emit_format(&w->e, "d_%s", n->undoes->name) : "t";
        const char *name = k == 0 && want[1] ? intern(w->e.cx, want)
                         : intern_printf(w->e.cx, "%s%s%d", want, want[1] ? "_" : "",
                                         k + (want[1] != 0));
        if (!names_taken(&w->e, w->names, name))
            return names_take_exact(&w->e, w->names, name);
    }
}

/* Values of the backward pass; in a loop body of the backward pass, all of them. */
static void write_graph(Writer *w)
{
    const bool body = w->g->parent != NULL;
    for (int i = 0; i < w->g->nodes.len; i++) {
        const Node *n = w->g->nodes.at[i];
        const OpClass class = op_row(n->op)->class;
        if (!w->live[i] || class == CLASS_LEAF || (!n->backward && !body) || n->op == OP_RESULT ||
            w->name[i])
            continue;
        if (n->op == OP_LOOP) {
            const char *name = fresh_name(w, n);
            write_loop(w, n);
            w->name[i] = name;
            continue;
        }
        if (!n->backward && n->name)            /* computed again: under its own name */
            w->name[i] = NULL;
        const Code c = compute_text(w, n);
        const bool own = w->uses[i] > 1 || strlen(c.text) > OPERAND || class == CLASS_CONTRACT ||
                         n->n_out > 1 || (n->name && n->backward);
        if (!own || n->op == OP_BROADCAST)
            continue;
        const char *name = fresh_name(w, n);
        put_line(w, emit_format(&w->e, "%s = %s", name, c.text), n);
        w->name[i] = name;
    }
}

void emit_grad(Text *out, Program *p)
{
    Writer w = { .e = { .cx = p->cx, .p = p, .out = out }, .g = p->train_graph, .out = out };
    text_add(out, "# The backward pass of %s, from the loss to the parameters.\n"
                  "# seed(m): the weight of the mean m in the loss, over its global count.\n\n",
             p->name);
    if (p->train_graph == NULL) {
        text_put(out, "# nothing: there is no loss\n");
        return;
    }
    w.name = NEW_ARRAY(p->cx->scratch, const char *, w.g->nodes.len + 1);
    w.live = graph_live(w.g);
    w.uses = graph_uses(w.g);
    w.names = names_new(&w.e, NULL);
    write_graph(&w);
    text_put(out, "\n");
    bool *seen = NEW_ARRAY(p->cx->scratch, bool, p->params.len + 1);
    for (int i = 0; i < w.g->sinks.len; i++) {
        const Sink *s = &w.g->sinks.at[i];
        if (s->kind != SINK_GRAD)
            continue;
        put_line(&w, arena_printf(p->cx->scratch, "gradient of %s %s %s",
                                  p->params.at[s->index].path,
                                  seen[s->index] ? "+=" : "=", operand(&w, s->node, PREC_NONE)),
                                          NULL);
        seen[s->index] = true;
    }
}
