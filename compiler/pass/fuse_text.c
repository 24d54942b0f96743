/* fuse_text.c -- what a kernel says of itself: names, source lines, what was fused in it.
 *
 * In: nodes with the model's names and places. Out: names of buffers ("h_a" for an unnamed value of
 * the statement h) and of a kernel's arguments (those of attention by their part in it: q, k, v);
 * the lines of the model it computes, in the order of the file; "matmul+add".
 */
#include "pass/fuse.h"

#include <string.h>

enum { DEEP = 12, OPS_MAX = 6 };

/* ---- names ---------------------------------------------------------------------------------- */

static const char *sink_name(const Fuser *f, const Sink *k)
{
    switch (k->kind) {
    case SINK_SUM:
    case SINK_COUNT: return f->p->means.at[k->index].name;
    case SINK_GRAD: return intern_printf(f->cx, "d_%s", f->p->params.at[k->index].name);
    case SINK_OUTPUT: return f->p->outputs.at[k->index].name;
    case SINK_RESULT: break;
    }
    return NULL;
}

/* A reshape, a transpose or a cast is the same value to a reader. */
static bool same_value(const Node *n)
{
    return n->op == OP_RESHAPE || n->op == OP_TRANSPOSE || n->op == OP_CAST;
}

/* An unnamed value belongs to the statement of the first value that is made of it. */
void text_hints(Scope *s)
{
    Graph *g = s->g;
    for (int i = g->sinks.len - 1; i >= 0; i--) {
        Info *x = &s->at[g->sinks.at[i].node->id];
        x->hint = sink_name(s->f, &g->sinks.at[i]);
        x->exact = g->sinks.at[i].kind == SINK_GRAD;
    }
    for (int id = g->nodes.len - 1; id >= 0; id--) {
        const Node *n = g->nodes.at[id];
        Info *x = &s->at[id];
        if (n->name) {
            if (x->hint != n->name || (x->shape && x->shape->rank < n->type->rank))
                x->shape = NULL;
            x->hint = n->name;
            x->exact = true;
        }
        for (int i = 0; i < n->n_in && x->hint; i++) {
            Info *in = &s->at[n->in[i]->id];
            in->hint = x->hint;
            in->exact = x->exact && same_value(n);
            in->shape = !in->exact || n->op != OP_RESHAPE ? NULL : x->shape ? x->shape : n->type;
            if (in->shape && in->shape->rank < n->in[i]->type->rank)
                in->shape = NULL;
        }
    }
    bool *below = NEW_ARRAY(s->f->cx->scratch, bool, g->nodes.len + 1); /* named by its input */
    for (int id = 0; id < g->nodes.len; id++) {
        const Node *n = g->nodes.at[id];
        if (n->name || !same_value(n) || !(n->in[0]->name || below[n->in[0]->id]))
            continue;
        below[id] = true;
        s->at[id].hint = s->at[n->in[0]->id].hint;
        s->at[id].exact = true;
        s->at[id].shape = NULL;
    }
}

const char *text_buffer_name(Scope *s, const Node *n)
{
    Context *cx = s->f->cx;
    const Info *x = &s->at[n->id];
    if (!x->exact && n->backward && n->undoes && n->undoes->name)
        return intern_printf(cx, "d_%s_a", n->undoes->name);
    return intern_printf(cx, "%s%s", x->hint ? x->hint : op_row(n->op)->name, x->exact ? "" : "_a");
}

/* The name of a value of a loop's body. */
static const char *name_in_body(const Graph *g, const Node *n, bool *exact)
{
    *exact = true;
    for (const Node *from = n; same_value(from) || from->name; from = from->in[0])
        if (from->name)
            return from->name;
    for (int depth = 0; n && !n->name && depth < DEEP; depth++) {
        const Node *user = NULL;
        for (int id = n->id + 1; id < g->nodes.len && !user; id++)
            for (int i = 0; i < g->nodes.at[id]->n_in; i++)
                if (g->nodes.at[id]->in[i] == n)
                    user = g->nodes.at[id];
        n = user;
        *exact = *exact && n && same_value(n);
    }
    return n ? n->name : NULL;
}

const char *text_carry_name(Scope *s, const Node *loop, int k)
{
    const Graph *body = loop->attr.loop->body;
    const Node *next = loop_result(body, k);
    bool exact;
    const char *name = name_in_body(body, body->args.at[k], &exact);
    if (!body->args.at[k]->name && next->name)
        name = next->name;
    return name ? intern(s->f->cx, name) : intern_printf(s->f->cx, "carry%d", k);
}

const char *text_stack_name(Scope *s, const Node *loop, int j)
{
    const Loop *l = loop->attr.loop;
    const Node *n = loop_result(l->body, l->n_carry + j);
    bool exact;
    const char *name = name_in_body(l->body, n, &exact), *tail = exact ? "" : "_a";
    if (!name)
        name = "kept";
    if (l->stack && strncmp(name, l->stack, strlen(l->stack)) != 0)
        return intern_printf(s->f->cx, "%s_%s%s", l->stack, name, tail);
    return intern_printf(s->f->cx, "%s%s", name, tail);
}

/* ---- what a kernel is ----------------------------------------------------------------------- */

typedef struct {
    Op op[OPS_MAX + 1];
    int n;
} OpList;

static void list_op(OpList *l, Op op)
{
    for (int i = 0; i < l->n; i++)
        if (l->op[i] == op)
            return;
    if (l->n <= OPS_MAX)
        l->op[l->n++] = op;
}

static void list_ops(Scope *s, const Unit *u, const Kernel *k, OpList *l)
{
    for (int i = 0; i < k->values.len; i++) {
        const Value *v = &k->values.at[i];
        if (v->kind == VAL_POINT || v->kind == VAL_DRAW || v->kind == VAL_REDUCE)
            list_op(l, v->op);
        else if (v->kind == VAL_LOAD && v->access.index >= 0)
            list_op(l, OP_GATHER);
    }
    for (int i = 0; i < u->roots.len; i++)
        if (u->roots.at[i]->kind == ROOT_COLUMN || u->roots.at[i]->kind == ROOT_TOTAL)
            list_op(l, OP_SUM);
    if (u->node && u->kind != UNIT_MAP)
        list_op(l, s->at[u->node->id].sum ? OP_MATMUL : u->node->op);
    if (k->kind == KERNEL_MATMUL && k->matmul.bias)
        list_op(l, OP_ADD);
}

static void write_what(Scope *s, Unit *u, Kernel *k)
{
    Text t = text_new(s->f->cx->arena);
    OpList l = { .n = 0 };
    list_ops(s, u, k, &l);
    for (int i = 0; i < l.n && i < OPS_MAX; i++)
        text_add(&t, "%s%s", i ? "+" : "", op_row(l.op[i])->name);
    if (l.n > OPS_MAX)
        text_put(&t, "+...");
    k->what = t.len ? t.at : "copy";
}

/* ---- arguments ------------------------------------------------------------------------------ */

/* What an operand of attention is called whatever buffer it lies in: q, k and v are often one. */
static const char *attention_role(const Kernel *k, int arg)
{
    static const char *const grad[] = { "d_q", "d_k", "d_v", "q", "k", "v" };
    if (k->kind == KERNEL_ATTENTION)
        return arg >= 2 && arg < 5 ? grad[arg + 1] : NULL;
    return k->kind == KERNEL_ATTENTION_GRAD && arg < 6 ? grad[arg] : NULL;
}

static void name_arguments(Fuser *f, Kernel *k, const Operand *operands)
{
    for (int i = 0; i < k->args.len; i++) {
        const char *role = attention_role(k, i);
        const char *base = role ? intern(f->cx, role) : operands[i].buffer->name, *name = base;
        for (int j = 0, n = 2; j < i; j++)
            if (k->args.at[j].name == name) {
                name = k->args.at[i].written && n == 2 ? intern_printf(f->cx, "%s_next", base)
                                                       : intern_printf(f->cx, "%s_%d", base, n);
                n++;
                j = -1;
            }
        k->args.at[i].name = name;
    }
}

/* A line of the model, unless it is there already; in the order of the file. */
static void add_line(Fuser *f, Kernel *k, Span at)
{
    const int line = at.file ? source_line(f->cx, at, NULL) : 0;
    int place = 0;
    if (!line)
        return;
    for (int i = 0; i < k->lines.len; i++) {
        const int other = source_line(f->cx, k->lines.at[i], NULL);
        if (k->lines.at[i].file == at.file && other == line)
            return;
        place = k->lines.at[i].file == at.file && other < line ? i + 1 : place;
    }
    vec_push(f->cx->arena, &k->lines, at);
    for (int i = k->lines.len - 1; i > place; i--)
        k->lines.at[i] = k->lines.at[i - 1];
    k->lines.at[place] = at;
}

void text_describe(Scope *s, Unit *u, Kernel *k, const Operand *operands)
{
    for (int i = 0; i < k->args.len; i++)
        buffer_use(s->f, operands[i].buffer);
    name_arguments(s->f, k, operands);
    k->name = operands[0].buffer->name;
    if (u->kind == UNIT_MAP) {
        const int main = formula_main_effect(s, u);
        k->name = operands[k->effects.at[main].access.arg].buffer->name;
        u->node = u->owner[main]->node;
        for (int i = 0; i < k->effects.len; i++)
            add_line(s->f, k, u->owner[i]->node->span);
    } else {
        add_line(s->f, k, u->node->span);
    }
    formula_write(s, u, k, operands);
    write_what(s, u, k);
}
