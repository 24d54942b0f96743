/* text.c -- IR as text, the way out. read.c is the way in.
 *
 * In: a graph. Out: one line for each live value, in id order, that read.c reads back into an
 * equal graph:
 *
 *   graph f(x: f32[B,D], param w: f32[D,O]) {
 *     %h = matmul x, w : f32[B,O]                          # a.model:3
 *     %y, %s = loop block var i over h trip L (a = %h; b in h_b; c = x; i) {
 *       %a = add a, b : f32[B,O]
 *       next %a
 *       stack %a
 *     }
 *     sum loss %y
 *     return %s
 *   }
 *
 * Inputs, parameters and arguments of bodies stand without %; a loop lists its carried values,
 * slices and shared values, each with the outer value it gets, then the iteration. A value without
 * a name is numbered; equal names get .2, .3 and so on. `<- %y` marks a node of the backward pass,
 * and which forward node it undoes.
 */
#include "ir/program.h"
#include "op/op.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    Context *cx;
    Text *t;
    Graph *g;
    bool *live;
    const char **name; /* by id, with its %; NULL = not printed yet */
    Map *taken;        /* name -> how many values have it */
    int n_unnamed, width, indent;
} Printer;

/* ---- names --------------------------------------------------------------------------------- */

/* The hint as an identifier, or NULL. */
static const char *clean_name(Context *cx, const char *hint)
{
    if (!hint || !*hint)
        return NULL;
    Text t = text_new(cx->scratch);
    if (isdigit((unsigned char)hint[0]))
        text_put(&t, "_");
    for (const char *c = hint; *c; c++)
        text_putn(&t, isalnum((unsigned char)*c) ? c : "_", 1);
    return t.at;
}

static const char *unique_name(Printer *w, const char *sigil, const char *name)
{
    const char *full = intern_printf(w->cx, "%s%s", sigil, name);
    intptr_t n = (intptr_t)map_get(w->taken, full) + 1;
    map_set(w->taken, full, (void *)n);
    return n == 1 ? full : intern_printf(w->cx, "%s.%d", full, (int)n);
}

static void name_node(Printer *w, const Node *n)
{
    const char *hint = clean_name(w->cx, n->name);
    if (n->op == OP_PARAM)
        hint = clean_name(w->cx, w->g->program->params.at[n->attr.index].name);
    if (n->op == OP_INPUT)
        hint = clean_name(w->cx, w->g->program->inputs.at[n->attr.index].name);
    if (n->op == OP_ARG && !hint)
        hint = n->attr.arg == ARG_ITER ? "i" : "a";
    bool bare = n->op == OP_PARAM || n->op == OP_INPUT || n->op == OP_ARG;
    w->name[n->id] = hint ? unique_name(w, bare ? "" : "%", hint)
                          : intern_printf(w->cx, "%%%d", ++w->n_unnamed);
}

/* Names all values of the graph, those of one node together. */
static void name_nodes(Printer *w)
{
    w->name = NEW_ARRAY(w->cx->scratch, const char *, w->g->nodes.len + 1);
    for (int i = 0; i < w->g->args.len; i++)
        name_node(w, w->g->args.at[i]);
    for (int id = 0; id < w->g->nodes.len; id++) {
        const Node *n = w->g->nodes.at[id];
        if (w->live[id] && !w->name[id] && n->n_out == 1)
            name_node(w, n);
    }
    for (int id = 0; id < w->g->nodes.len; id++)
        if (w->name[id] && (int)strlen(w->name[id]) > w->width)
            w->width = (int)strlen(w->name[id]);
    if (w->width > 16)
        w->width = 16;
}

static const char *name_of(const Printer *w, const Node *n)
{
    return w->name[n->id] ? w->name[n->id] : "_";
}

/* ---- attributes ---------------------------------------------------------------------------- */

static void put_number(Text *t, double v)
{
    char buf[40];
    if (isnan(v) || isinf(v)) {
        text_put(t, isnan(v) ? "nan" : v < 0 ? "-inf" : "inf");
        return;
    }
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(buf, sizeof buf, "%.*g", digits, v);
        if (strtod(buf, NULL) == v)
            break;
    }
    text_put(t, buf);
}

/* A name where only an identifier reads back as one; quoted otherwise. */
static void put_word(Text *t, const char *word)
{
    bool plain = isalpha((unsigned char)word[0]) || word[0] == '_';
    for (const char *c = word; *c; c++)
        plain &= isalnum((unsigned char)*c) || *c == '_';
    text_add(t, plain ? "%s" : "\"%s\"", word);
}

static void put_dim(Text *t, const Dim *d) { dim_print(t, d, NULL, NULL, false); }

static void put_attr(Text *t, const Node *n)
{
    const Attr *a = &n->attr;
    const Program *p = n->graph->program;
    switch (n->op) {
    case OP_CONST:
        text_put(t, " ");
        put_number(t, a->value);
        return;
    case OP_SEED:
    case OP_MEAN:
        text_put(t, " ");
        put_word(t, p->means.at[a->index].name);
        return;
    case OP_DIM:
        text_put(t, " [");
        put_dim(t, a->dim);
        text_put(t, "]");
        return;
    case OP_SLICE:
    case OP_PAD:
        for (int k = 0; k < n->type->rank; k++) {
            text_put(t, k ? "," : " lo [");
            put_dim(t, a->lo[k]);
        }
        text_put(t, n->type->rank ? "]" : "");
        return;
    case OP_UNIFORM:
    case OP_NORMAL: text_add(t, " stream \"%s\"", a->stream); return;
    case OP_MATMUL: text_add(t, "%s%s", a->ta ? " ta" : "", a->tb ? " tb" : ""); return;
    case OP_ATTENTION:
    case OP_ATTENTION_GRAD:
        text_put(t, a->causal ? " causal" : "");
        text_put(t, a->wide ? " wide" : "");
        if (a->value != 0) {
            text_put(t, " scale ");
            put_number(t, a->value);
        }
        return;
    default:
        for (int k = 0; k < a->n_axes; k++)
            text_add(t, "%s%d", k ? " " : " axes ", a->axes[k]);
        text_put(t, a->keep ? " keep" : "");
    }
}

/* ---- lines --------------------------------------------------------------------------------- */

static void put_indent(const Printer *w) { text_add(w->t, "%*s", w->indent, ""); }

/* "%y, _ =" for a node with several results. */
static void put_targets(const Printer *w, const Node *n)
{
    size_t start = w->t->len;
    for (int k = 0; k < n->n_out; k++) {
        const char *name = n->n_out == 1 ? name_of(w, n) : "_";
        for (int id = n->id + 1; n->n_out > 1 && id < w->g->nodes.len; id++) {
            const Node *r = w->g->nodes.at[id];
            if (w->live[id] && r->op == OP_RESULT && r->in[0] == n && r->attr.index == k)
                name = name_of(w, r);
        }
        text_add(w->t, "%s%s", k ? ", " : "", name);
    }
    int len = (int)(w->t->len - start);
    text_add(w->t, "%*s = ", len < w->width ? w->width - len : 0, "");
}

/* Where it comes from: marks of the backward pass, and the place in the model as a comment. */
static void put_origin(const Printer *w, const Node *n)
{
    if (n->backward)
        text_put(w->t, " <-");
    if (n->backward && n->undoes && n->undoes->graph == w->g && w->live[n->undoes->id]
        && w->name[n->undoes->id])
        text_add(w->t, " %s", name_of(w, n->undoes));
    const Source *s = n->span.file ? source_of(w->cx, n->span.file) : NULL;
    size_t len = s ? strlen(s->path) : 0;
    if (s && !(len > 3 && strcmp(s->path + len - 3, ".ir") == 0))
        text_add(w->t, "  # %s", source_where(w->cx, n->span));
}

static void put_nodes(Printer *w);

/* Inputs [lo, hi) of a loop with the arguments of its body: "a = %x, b = %y; ". */
static void put_section(const Printer *outer, const Printer *w, const Node *n, int lo, int hi,
                        const char *word)
{
    for (int i = lo; i < hi; i++)
        text_add(w->t, "%s%s %s %s", i > lo ? ", " : "", name_of(w, w->g->args.at[i]), word,
                 name_of(outer, n->in[i]));
    text_put(w->t, "; ");
}

/* Results [lo, hi) of a body: "next %a, %b". */
static void put_results(const Printer *w, const char *word, int lo, int hi)
{
    if (lo == hi)
        return;
    put_indent(w);
    text_put(w->t, word);
    for (int k = lo; k < hi; k++)
        for (int s = 0; s < w->g->sinks.len; s++)
            if (w->g->sinks.at[s].index == k)
                text_add(w->t, "%s%s", k > lo ? ", " : " ", name_of(w, w->g->sinks.at[s].node));
    text_put(w->t, "\n");
}

static void put_body(const Printer *outer, const Node *n)
{
    const Loop *l = n->attr.loop;
    Graph *body = l->body;
    int slices = l->n_carry + l->n_slice;
    Printer w = { .cx = outer->cx,
                  .t = outer->t,
                  .g = body,
                  .live = graph_live(body),
                  .taken = map_new(outer->cx->scratch),
                  .indent = outer->indent + 2 };
    name_nodes(&w);
    text_put(w.t, " (");
    put_section(outer, &w, n, 0, l->n_carry, "=");
    put_section(outer, &w, n, l->n_carry, slices, "in");
    put_section(outer, &w, n, slices, n->n_in, "=");
    text_add(w.t, "%s) {\n", name_of(&w, body->args.at[n->n_in]));
    put_nodes(&w);
    put_results(&w, "next", 0, l->n_carry);
    put_results(&w, "stack", l->n_carry, l->n_carry + l->n_stack);
    put_indent(outer);
    text_put(w.t, "}");
}

static void put_loop(const Printer *w, const Node *n)
{
    const Loop *l = n->attr.loop;
    text_put(w->t, "loop ");
    put_word(w->t, l->name ? l->name : "loop");
    if (l->var) {
        text_put(w->t, " var ");
        put_word(w->t, l->var);
    }
    if (l->stack) {
        text_put(w->t, " over ");
        put_word(w->t, l->stack);
    }
    text_put(w->t, " trip [");
    put_dim(w->t, l->trip);
    text_put(w->t, l->reverse ? "] reverse" : "]");
    if (l->part)
        text_add(w->t, " part %s", l->part->name);
    put_body(w, n);
}

static void put_nodes(Printer *w)
{
    for (int id = 0; id < w->g->nodes.len; id++) {
        const Node *n = w->g->nodes.at[id];
        if (!w->live[id] || n->op == OP_PARAM || n->op == OP_INPUT || n->op == OP_ARG
            || n->op == OP_RESULT)
            continue;
        put_indent(w);
        put_targets(w, n);
        if (n->op == OP_LOOP) {
            put_loop(w, n);
        } else {
            text_put(w->t, op_row(n->op)->name);
            for (int i = 0; i < n->n_in; i++)
                text_add(w->t, "%s%s", i ? ", " : " ", name_of(w, n->in[i]));
            put_attr(w->t, n);
            for (int k = 0; k < n->n_out; k++)
                text_add(w->t, "%s%s", k ? ", " : " : ", type_text(w->cx, n->types[k]));
        }
        put_origin(w, n);
        text_put(w->t, "\n");
    }
}

static void put_sinks(const Printer *w)
{
    const Program *p = w->g->program;
    bool returns = false;
    for (int i = 0; i < w->g->sinks.len; i++) {
        const Sink *s = &w->g->sinks.at[i];
        if (s->kind == SINK_RESULT) {
            returns = true;
            continue;
        }
        put_indent(w);
        text_put(w->t, s->kind == SINK_SUM     ? "sum "
                       : s->kind == SINK_COUNT ? "count "
                       : s->kind == SINK_GRAD  ? "grad "
                                               : "output ");
        put_word(w->t, s->kind == SINK_GRAD     ? p->params.at[s->index].name
                       : s->kind == SINK_OUTPUT ? p->outputs.at[s->index].name
                                                : p->means.at[s->index].name);
        text_add(w->t, " %s\n", name_of(w, s->node));
    }
    if (!returns)
        return;
    put_indent(w);
    text_put(w->t, "return");
    for (int k = 0; k < w->g->sinks.len; k++)
        for (int i = 0; i < w->g->sinks.len; i++)
            if (w->g->sinks.at[i].kind == SINK_RESULT && w->g->sinks.at[i].index == k)
                text_add(w->t, "%s%s", k ? ", " : " ", name_of(w, w->g->sinks.at[i].node));
    text_put(w->t, "\n");
}

/* " in 0 to V or -100": what the integers of an input may be. */
static void put_range(const Printer *w, const Input *in)
{
    if (!in->ranged)
        return;
    text_add(w->t, " in %s to %s", dim_text(w->cx, in->lo), dim_text(w->cx, in->hi));
    if (in->has_ignore)
        text_add(w->t, " or %lld", (long long)in->ignore);
}

/* The inputs or the parameters that the graph reads, by index. */
static int put_leaves(const Printer *w, Op op, int count, int n)
{
    for (int index = 0; index < count; index++)
        for (int id = 0; id < w->g->nodes.len; id++) {
            const Node *leaf = w->g->nodes.at[id];
            if (!w->live[id] || leaf->op != op || leaf->attr.index != index)
                continue;
            text_add(w->t, "%s%s%s: %s", n++ ? ", " : "", op == OP_PARAM ? "param " : "",
                     name_of(w, leaf), type_text(w->cx, leaf->type));
            if (op == OP_INPUT)
                put_range(w, &w->g->program->inputs.at[index]);
        }
    return n;
}

void ir_print(Text *t, Graph *g)
{
    Context *cx = g->program->cx;
    Printer w = { .cx = cx,
                  .t = t,
                  .g = g,
                  .live = graph_live(g),
                  .taken = map_new(cx->scratch),
                  .indent = 2 };
    name_nodes(&w);
    text_put(t, "graph ");
    put_word(t, g->name ? g->name : "graph");
    text_put(t, "(");
    int n = put_leaves(&w, OP_INPUT, g->program->inputs.len, 0);
    put_leaves(&w, OP_PARAM, g->program->params.len, n);
    text_put(t, ") {\n");
    put_nodes(&w);
    put_sinks(&w);
    text_put(t, "}\n");
}

void ir_print_header(Text *t, const Program *p)
{
    static const char *const kind[] = {
        [SYM_CONST] = "const",
        [SYM_DIM] = "dim",
        [SYM_BATCH] = "batch",
        [SYM_PART] = "part",
    };
    for (int i = 0; i < dims_count(p->dims); i++) {
        const Symbol *s = dims_at(p->dims, i);
        if (s->kind == SYM_FRESH)
            continue;
        text_add(t, "%s %s", kind[s->kind], s->name);
        if (s->kind == SYM_PART) {
            text_put(t, " of [");
            put_dim(t, s->whole);
            text_put(t, "] by [");
            put_dim(t, s->step);
            text_put(t, "]");
        } else if (s->value || s->kind == SYM_CONST) {
            text_add(t, " = %lld", (long long)s->value);
        }
        text_put(t, "\n");
    }
    for (int i = 0; i < p->means.len; i++) {
        text_put(t, "mean ");
        put_word(t, p->means.at[i].name);
        text_put(t, " weight ");
        put_number(t, p->means.at[i].weight);
        text_put(t, "\n");
    }
}
