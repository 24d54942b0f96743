/* fuse_text.c -- names of buffers, and the comment of each kernel.
 *
 * In: nodes with the model's names. Out: "h_a" for an unnamed value of the statement h; the formula
 * of a kernel in the model's notation, and what was fused in it.
 */
#include "pass/fuse.h"

#include <string.h>

enum { WIDTH = 90, DEEP = 12, OPS_MAX = 6 }; /* columns of a line of formula */

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
            x->hint = n->name;
            x->exact = true;
            x->shape = NULL;
        }
        for (int i = 0; i < n->n_in && x->hint; i++) {
            Info *in = &s->at[n->in[i]->id];
            in->hint = x->hint;
            in->exact = x->exact && same_value(n);
            in->shape = !in->exact || n->op != OP_RESHAPE ? NULL : x->shape ? x->shape : n->type;
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

/* ---- expressions ---------------------------------------------------------------------------- */

typedef struct {
    Scope *s;
    const Unit *u;
    const Node *top; /* being defined */
    bool shapes;     /* types after names */
    bool expand;     /* values of this kernel are written out */
    bool names;      /* what has a name is not written out */
    int left;        /* nodes */
} Writer;

static void write_node(Writer *w, Text *t, Node *n, int outer);

static void write_shape(Writer *w, Text *t, const Type *type)
{
    if (!w->shapes || type->rank == 0)
        return;
    text_put(t, "[");
    for (int i = 0; i < type->rank; i++)
        text_add(t, "%s%s", i ? "," : "", dim_text(w->s->f->cx, type->dim[i]));
    text_put(t, "]");
}

/* The name under which n lies in memory, or that its root in this kernel has. */
static const char *stored_name(Writer *w, Scope *s, Node *n)
{
    const Info *x = &s->at[n->id];
    View v;
    if (n == w->top || x->free)
        return NULL;
    if (w->names && n->name && n->n_in > 0)
        return n->name;
    if (node_is_view(n) && !x->maker && !x->copier)
        return NULL;
    bool here = x->maker && x->maker->unit == w->u;
    if (here && (w->expand || n->name == NULL) && !root_is_read(s, x->maker))
        return NULL;
    if (!node_is_readable(s, n) || !place_view(s, n, &v))
        return NULL;
    return here && v.buffer->id < 0 ? x->hint : v.buffer->name;
}

static const char *infix(Op op, int *level)
{
    switch (op) {
    case OP_OR: *level = 1; return " or ";
    case OP_AND: *level = 2; return " and ";
    case OP_EQ: *level = 3; return " == ";
    case OP_NE: *level = 3; return " != ";
    case OP_LT: *level = 3; return " < ";
    case OP_LE: *level = 3; return " <= ";
    case OP_ADD: *level = 4; return " + ";
    case OP_SUB: *level = 4; return " - ";
    case OP_MUL: *level = 5; return " * ";
    case OP_DIV: *level = 5; return " / ";
    case OP_FDIV: *level = 5; return " // ";
    case OP_MOD: *level = 5; return " % ";
    case OP_MATMUL: *level = 5; return " @ ";
    case OP_POW: *level = 7; return "^";
    default: return NULL;
    }
}

static void write_call(Writer *w, Text *t, const char *name, const Node *n)
{
    text_add(t, "%s(", name);
    for (int i = 0; i < n->n_in; i++) {
        text_put(t, i ? ", " : "");
        write_node(w, t, n->in[i], 0);
    }
    text_put(t, ")");
}

static void write_reduce(Writer *w, Text *t, Node *n, int outer)
{
    const char *name = n->op == OP_SUM    ? "sum"
                       : n->op == OP_AMAX ? "max"
                       : n->op == OP_AMIN ? "min"
                                          : op_row(n->op)->name;
    text_add(t, "%s%s over ", outer > 4 ? "(" : "", name);
    for (int i = 0; i < n->attr.n_axes; i++)
        text_add(t, "%s%s", i ? "," : "",
                 dim_text(w->s->f->cx, n->in[0]->type->dim[n->attr.axes[i]]));
    text_put(t, " of ");
    write_node(w, t, n->in[0], 5);
    text_put(t, outer > 4 ? ")" : "");
}

static void write_slice(Writer *w, Text *t, Node *n)
{
    Fuser *f = w->s->f;
    bool shapes = w->shapes;
    w->shapes = false;
    write_node(w, t, n->in[0], 8);
    w->shapes = shapes;
    text_put(t, "[");
    for (int k = 0; k < n->type->rank; k++) {
        const Dim *hi = dim_add(f->ds, n->attr.lo[k], n->type->dim[k]);
        bool whole = dim_same(n->type->dim[k], n->in[0]->type->dim[k]);
        text_put(t, k ? "," : "");
        if (whole)
            text_put(t, ":");
        else
            text_add(t, "%s..%s", dim_text(f->cx, n->attr.lo[k]), dim_text(f->cx, hi));
    }
    text_put(t, "]");
}

static void write_leaf(Writer *w, Text *t, Scope *s, Node *n)
{
    Context *cx = w->s->f->cx;
    if (n->op == OP_CONST)
        text_add(t, "%g", n->attr.value);
    else if (n->op == OP_DIM)
        text_put(t, dim_text(cx, n->attr.dim));
    else if (n->op == OP_IOTA)
        text_add(t, "0..%s", dim_text(cx, n->type->dim[n->attr.axes[0]]));
    else if (n->op == OP_SEED)
        text_add(t, "seed_%s", s->f->p->means.at[n->attr.index].name);
    else if (n->op == OP_ARG)
        text_put(t, s->loop && s->loop->var ? s->loop->var : "i");
    else
        text_put(t, n->name ? n->name : op_row(n->op)->name);
}

static void write_matrix(Writer *w, Text *t, Node *n, bool turned, int level)
{
    write_node(w, t, n, turned ? 8 : level);
    text_put(t, turned ? "'" : "");
}

static void write_infix(Writer *w, Text *t, const Node *n, const char *op, int level, int outer)
{
    bool product = n->op == OP_MATMUL;
    if (n->op == OP_MUL && n->in[0] == n->in[1]) {
        write_node(w, t, n->in[0], 8);
        text_put(t, "^2");
        return;
    }
    if (n->op == OP_ADD && n->in[1]->op == OP_NEG) {
        text_put(t, outer > level ? "(" : "");
        write_node(w, t, n->in[0], level);
        text_put(t, " - ");
        write_node(w, t, n->in[1]->in[0], level + 1);
        text_put(t, outer > level ? ")" : "");
        return;
    }
    text_put(t, outer > level ? "(" : "");
    write_matrix(w, t, n->in[0], product && n->attr.ta, level);
    text_put(t, op);
    write_matrix(w, t, n->in[1], product && n->attr.tb, level + 1);
    text_put(t, outer > level ? ")" : "");
}

static void write_op(Writer *w, Text *t, Node *n, int outer)
{
    int level = 0;
    const char *op = infix(n->op, &level);
    if (op)
        write_infix(w, t, n, op, level, outer);
    else if (n->op == OP_RESHAPE || n->op == OP_BROADCAST || n->op == OP_CAST || n->op == OP_STOP)
        write_node(w, t, n->in[0], outer);
    else if (n->op == OP_TRANSPOSE) {
        int last = n->attr.n_axes - 1;
        bool swap = last > 0 && n->attr.axes[last] == last - 1 && n->attr.axes[last - 1] == last;
        write_node(w, t, n->in[0], swap ? 8 : outer);
        text_put(t, swap ? "'" : "");
    } else if (n->op == OP_NEG) {
        text_put(t, outer > 5 ? "(-" : "-");
        write_node(w, t, n->in[0], 6);
        text_put(t, outer > 5 ? ")" : "");
    } else if (n->op == OP_NOT) {
        text_put(t, "not ");
        write_node(w, t, n->in[0], 8);
    } else if (n->op == OP_SLICE)
        write_slice(w, t, n);
    else if (n->op == OP_GATHER) {
        bool shapes = w->shapes;
        w->shapes = false;
        write_node(w, t, n->in[0], 8);
        w->shapes = shapes;
        text_put(t, "[");
        write_node(w, t, n->in[1], 0);
        text_put(t, "]");
    } else if (op_is(n, CLASS_REDUCE))
        write_reduce(w, t, n, outer);
    else
        write_call(w, t, op_row(n->op)->name, n);
}

static void write_node(Writer *w, Text *t, Node *n, int outer)
{
    Scope *s = scope_of(w->s, n), *old = w->s;
    n = node_resolve(&s, n);
    w->s = s;
    const char *name = stored_name(w, s, n);
    if (name) {
        text_put(t, name);
        write_shape(w, t, n->type);
    } else if (w->left-- <= 0)
        text_put(t, "...");
    else if (n->n_in == 0)
        write_leaf(w, t, s, n);
    else if (n->op == OP_RESULT)
        write_node(w, t, n->in[0], outer);
    else
        write_op(w, t, n, outer);
    w->s = old;
}

/* ---- formulas ------------------------------------------------------------------------------- */

static size_t columns(const Text *t) { return t->len; }

static void write_left(Writer *w, Text *t, const Buffer *b, const Type *type, How how)
{
    text_put(t, b->name);
    bool shapes = w->shapes;
    w->shapes = true;
    write_shape(w, t, type);
    w->shapes = shapes;
    text_put(t, how == HOW_REPLACE ? " = " : how == HOW_ADD ? " += " : " (+)= ");
}

static void write_equation(Writer *w, Text *t, Unit *u, const Root *r, const Dest *d)
{
    write_left(w, t, d->view.buffer, r->node->type, d->how);
    w->u = u;
    w->top = r->kind == ROOT_COPY ? NULL : r->node;
    w->left = DEEP * DEEP;
    if (r->kind != ROOT_COPY && op_is(r->node, CLASS_REDUCE))
        write_reduce(w, t, r->node, 0);
    else if (r->kind == ROOT_COPY)
        write_node(w, t, r->node, 0);
    else if (r->node->n_in == 0)
        write_leaf(w, t, w->s, r->node);
    else
        write_op(w, t, r->node, 0);
}

/* Whose value effect i stores in its own place; NULL where it only waits there. */
static const Root *root_of_effect(const Unit *u, int i)
{
    const Root *r = u->owner[i];
    for (int k = 0; k < r->dests.len; k++)
        if (&r->dests.at[k] == u->target[i])
            return r;
    return NULL;
}

/* The equation that says most: of a value with a name, of the largest, of those the last. */
static int main_effect(Scope *s, Unit *u)
{
    int best = 0;
    int64_t most = -1;
    bool named = false;
    for (int i = 0; i < u->kernel->effects.len; i++) {
        const Root *r = root_of_effect(u, i);
        int64_t n = r ? size_in_training(s->f, r->size) : -1;
        bool has = r && r->node->name != NULL && r->kind != ROOT_COLUMN;
        if (has > named || (has == named && n >= most)) {
            most = n;
            named = has;
            best = i;
        }
    }
    return best;
}

/* One equation per stored value; with `only`, one equation and the names of the others. */
static void write_map(Writer *w, Text *t, Unit *u, bool only)
{
    const Root *last = NULL;
    int main = main_effect(w->s, u), others = 0;
    for (int i = 0; i < u->kernel->effects.len; i++) {
        const Root *r = root_of_effect(u, i);
        if (r == last || !r || (only && i != main))
            continue;
        last = r;
        text_put(t, t->len ? "; " : "");
        write_equation(w, t, u, r, u->target[i]);
    }
    for (int i = 0; only && i < u->kernel->effects.len; i++)
        if (i != main && root_of_effect(u, i))
            text_add(t, "%s%s", others++ ? ", " : "; also ", u->target[i]->view.buffer->name);
}

/* What it is made of, where a formula would be too long. */
static void write_inputs(Scope *s, Text *t, Unit *u, const Operand *operands)
{
    int main = main_effect(s, u), n = 0;
    Writer w = { .s = s, .u = u, .shapes = true };
    const Dest *d = u->target[main];
    write_left(&w, t, d->view.buffer, u->owner[main]->node->type, d->how);
    text_put(t, "f(");
    for (int i = 0; i < u->kernel->args.len; i++)
        if (u->kernel->args.at[i].read && columns(t) < WIDTH - 12)
            text_add(t, "%s%s", n++ ? ", " : "", operands[i].buffer->name);
    text_put(t, columns(t) < WIDTH - 12 ? ")" : ", ...)");
    n = 0;
    for (int i = 0; i < u->kernel->effects.len; i++)
        if (i != main && root_of_effect(u, i) && columns(t) < WIDTH - 16)
            text_add(t, "%s%s", n++ ? ", " : "; also ", u->target[i]->view.buffer->name);
}

static void write_product(Writer *w, Text *t, Unit *u, const Operand *operands)
{
    Node *n = u->node;
    const Info *x = &w->s->at[n->id];
    write_left(w, t, operands[0].buffer, n->type, u->part ? HOW_ADD : x->dests.at[0].how);
    w->top = n;
    w->left = DEEP * DEEP;
    if (n->op == OP_SCATTER) {
        text_put(t, "rows ");
        write_node(w, t, n->in[1], 0);
        text_put(t, " added at ");
        write_node(w, t, n->in[0], 0);
    } else if (x->sum) {
        write_infix(w, t, x->sum->at.at[u->part], " @ ", 5, 0);
        if (x->sum->bias && !u->part)
            text_add(t, " + %s", operands[3].buffer->name);
    } else {
        write_infix(w, t, n, " @ ", 5, 0);
    }
}

static void write_attention(Writer *w, Text *t, Unit *u, const Operand *o)
{
    const Node *n = u->node;
    bool grad = n->op == OP_ATTENTION_GRAD;
    int at = grad ? 3 : 2;
    (void)w;
    if (grad && o[0].buffer == o[1].buffer && o[1].buffer == o[2].buffer)
        text_add(t, "d_q, d_k, d_v of %s", o[0].buffer->name);
    else if (grad)
        text_add(t, "%s, %s, %s", o[0].buffer->name, o[1].buffer->name, o[2].buffer->name);
    else
        text_add(t, "%s, %s", o[0].buffer->name, o[1].buffer->name);
    const char *q = o[at].buffer->name, *k = o[at + 1].buffer->name, *v = o[at + 2].buffer->name;
    text_add(t, " = %s(", grad ? "gradient of attention" : "attention");
    if (q == k && k == v)
        text_add(t, "q, k, v of %s", q);
    else
        text_add(t, "%s, %s, %s", q, k, v);
    text_put(t, n->attr.causal ? ", causal)" : ")");
}

/* Forms of a formula, the fullest first, and how many lines each may take. */
static const struct {
    bool shapes, expand, names, only;
    int lines;
} forms[] = {
    { .shapes = true, .expand = true, .lines = 1 },
    { .expand = true, .lines = 2 },
    { .lines = 3 },
    { .names = true, .lines = 3 },
    { .expand = true, .only = true, .lines = 2 },
    { .only = true, .lines = 3 },
    { .names = true, .only = true, .lines = 3 },
};

enum { N_FORMS = sizeof forms / sizeof *forms };

static void write_formula(Scope *s, Unit *u, Kernel *k, const Operand *operands)
{
    Text t = text_new(s->f->cx->arena);
    for (int i = 0; i <= N_FORMS; i++) {
        t = text_new(s->f->cx->arena);
        if (i == N_FORMS) {
            write_inputs(s, &t, u, operands);
            break;
        }
        Writer w = { .s = s,
                     .u = u,
                     .shapes = forms[i].shapes,
                     .expand = forms[i].expand,
                     .names = forms[i].names };
        if (u->kind == UNIT_MAP)
            write_map(&w, &t, u, forms[i].only);
        else if (k->kind == KERNEL_ATTENTION || k->kind == KERNEL_ATTENTION_GRAD)
            write_attention(&w, &t, u, operands);
        else
            write_product(&w, &t, u, operands);
        if (columns(&t) <= (size_t)(WIDTH * forms[i].lines) || u->kind != UNIT_MAP)
            break;
    }
    k->formula = t.at;
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
    const Node *n = u->node;
    const Kernel *from = n->undoes ? map_get(s->f->kernel_of, n->undoes) : NULL;
    list_ops(s, u, k, &l);
    if (u->backward && from)
        text_add(&t, "gradient of k%d", from->number);
    for (int i = 0; i < l.n && i < OPS_MAX; i++)
        text_add(&t, "%s%s", i ? "+" : t.len ? ", " : "", op_row(l.op[i])->name);
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

void text_describe(Scope *s, Unit *u, Kernel *k, const Operand *operands)
{
    for (int i = 0; i < k->args.len; i++)
        buffer_use(s->f, operands[i].buffer);
    name_arguments(s->f, k, operands);
    k->name = operands[0].buffer->name;
    if (u->kind == UNIT_MAP) {
        int main = main_effect(s, u);
        k->name = operands[k->effects.at[main].access.arg].buffer->name;
        u->node = u->owner[main]->node;
    }
    write_formula(s, u, k, operands);
    write_what(s, u, k);
}
