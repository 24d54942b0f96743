/* fuse_formula.c -- the comment of each kernel: its equations in the model's notation.
 *
 * In: a kernel and the values it was made of. Out: lines such as
 *
 *     h_ln_1[B,T,C] = (x - h_ln_1_mu) * h_ln_1_rstd * h_ln_1_weight
 *     where h_ln_1_mu = (sum over C of x) / C
 *
 * One equation where it fits a line, written out to what lies in memory. Else an equation per value
 * that is stored, in which the model's names stand for what the kernel makes on the way, and a line
 * for each of these names.
 */
#include "pass/fuse.h"

#include <string.h>

enum { WIDTH = 90, DEEP = 12, LINES_MAX = 14, BRIEF = 66, BRIEF_BACKWARD = 54 };

/* ---- expressions ---------------------------------------------------------------------------- */

/* A value on the way that has a name in the model: it gets a line of its own. */
typedef struct {
    Scope *s;
    Node *n;
} Where;

typedef struct {
    Scope *s;
    const Unit *u;
    const Node *top; /* being defined */
    bool shapes;     /* types after names */
    bool names;      /* the model's names stand for values on the way; else these are written out */
    bool brief;      /* no shapes at all */
    int left;        /* nodes */
    VEC(Where) where;
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

/* The shape that the memory map gives a buffer, without the axes of loops; or n's own, where it is
   of another number of elements. */
static const Type *shown_shape(Writer *w, const Buffer *b, const Type *own)
{
    Dims *ds = w->s->f->ds;
    const Type *t = b->type;
    if (!t || b->kind == BUF_SUM || b->kind == BUF_COUNT)
        return own;
    for (int skip = 0; skip < t->rank; skip++) {
        const Type *part = type_of(ds, t->dtype, t->rank - skip, t->dim + skip);
        if (dim_same(type_elems(ds, part), type_elems(ds, own)))
            return part;
    }
    return own;
}

/* The name under which n lies in memory, or that its root in this kernel has. */
static const char *stored_name(Writer *w, Scope *s, Node *n)
{
    const Info *x = &s->at[n->id];
    View v;
    if (n == w->top || x->free || (node_is_view(n) && !x->maker && !x->copier))
        return NULL;
    const bool here = x->maker && x->maker->unit == w->u;
    if (here && (!w->names || n->name == NULL) && !root_is_read(s, x->maker))
        return NULL;
    if (!node_is_readable(s, n) || !place_view(s, n, &v))
        return NULL;
    if (here && v.buffer->id < 0) /* held in a register */
        return w->names ? NULL : x->hint;
    return v.buffer->name;
}

static const Buffer *stored_in(Scope *s, Node *n)
{
    View v;
    if (!place_view(s, n, &v))
        bug("%s lies in no buffer", op_row(n->op)->name);
    return v.buffer;
}

/* The model's name of a value on the way. Where two values have one, the second is written out. */
static const char *name_on_the_way(Writer *w, Scope *s, Node *n)
{
    if (!w->names || !n->name || n->n_in == 0 || n == w->top || node_is_view(n))
        return NULL;
    for (int i = 0; i < w->where.len; i++)
        if (w->where.at[i].n == n)
            return n->name;
        else if (w->where.at[i].n->name == n->name)
            return NULL;
    if (w->top && w->top->name == n->name)
        return NULL;
    vec_push(w->s->f->cx->scratch, &w->where, ((Where){ s, n }));
    return n->name;
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

/* x where the sum of x over an axis keeps one element: sum of where(0..V == at, x, 0). */
static Node *picked(const Node *n, Node **at)
{
    const Node *where = n->in[0];
    const int last = where->type->rank - 1;
    if (n->op != OP_SUM || n->attr.n_axes != 1 || n->attr.axes[0] != last || where->op != OP_WHERE)
        return NULL;
    const Node *is = where->in[0];
    while (is->op == OP_BROADCAST)
        is = is->in[0];
    if (is->op != OP_EQ || is->in[0]->op != OP_IOTA || is->in[0]->attr.axes[0] != last
        || where->in[2]->op != OP_CONST || where->in[2]->attr.value != 0)
        return NULL;
    *at = is->in[1];
    return where->in[1];
}

static void write_reduce(Writer *w, Text *t, Node *n, int outer)
{
    Node *at, *from = picked(n, &at);
    if (from) {
        write_node(w, t, from, 8);
        text_put(t, "[..,");
        write_node(w, t, at, 0);
        text_put(t, "]");
        return;
    }
    const char *name = n->op == OP_SUM    ? "sum"
                       : n->op == OP_AMAX ? "max"
                       : n->op == OP_AMIN ? "min"
                                          : op_row(n->op)->name;
    text_add(t, "%s%s over ", outer > 3 ? "(" : "", name);
    for (int i = 0; i < n->attr.n_axes; i++)
        text_add(t, "%s%s", i ? "," : "",
                 dim_text(w->s->f->cx, n->in[0]->type->dim[n->attr.axes[i]]));
    text_put(t, " of ");
    write_node(w, t, n->in[0], 5);
    text_put(t, outer > 3 ? ")" : "");
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
        text_add(t, "%.7g", n->attr.value);
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

/* x x is x^2, and with that x x x is x^3, and x^2 x^2 is x^4. */
static Node *power_base(Node *n, int *exponent)
{
    int a = 1, b = 1;
    *exponent = 1;
    if (n->op != OP_MUL)
        return n;
    if (n->in[0] == n->in[1]) {
        Node *base = power_base(n->in[0], &a);
        *exponent = 2 * a;
        return base;
    }
    Node *left = power_base(n->in[0], &a), *right = power_base(n->in[1], &b);
    if (left != right)
        return n;
    *exponent = a + b;
    return left;
}

static void write_infix(Writer *w, Text *t, Node *n, const char *op, int level, int outer)
{
    bool product = n->op == OP_MATMUL;
    int exponent;
    Node *base = power_base(n, &exponent);
    if (exponent > 1) {
        write_node(w, t, base, 8);
        text_add(t, "^%d", exponent);
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
    else if (n->op == OP_RESHAPE || n->op == OP_BROADCAST || n->op == OP_CAST || n->op == OP_STOP
             || n->op == OP_COPY16 || node_is_narrowing(n))
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
    const char *stored = stored_name(w, s, n);
    const char *name = stored ? stored : name_on_the_way(w, s, n);
    if (name) {
        text_put(t, name);
        write_shape(w, t, stored ? shown_shape(w, stored_in(s, n), n->type) : n->type);
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

/* "d_w[V,C] (+)= "; the shape is there with all forms but the brief one. */
static void write_left(Writer *w, Text *t, const Buffer *b, const Type *type, AddKind add)
{
    const bool shapes = w->shapes;
    w->shapes = !w->brief;
    text_put(t, b->name);
    write_shape(w, t, shown_shape(w, b, type));
    w->shapes = shapes;
    text_put(t, add == ADD_NEVER ? " = " : add == ADD_ALWAYS ? " += " : " (+)= ");
}

/* What the value of n is made of. */
static void write_right(Writer *w, Text *t, Node *n)
{
    w->top = n;
    w->left = DEEP * DEEP;
    if (op_is(n, CLASS_REDUCE))
        write_reduce(w, t, n, 0);
    else if (n->n_in == 0)
        write_leaf(w, t, w->s, n);
    else
        write_op(w, t, n, 0);
}

static void write_equation(Writer *w, Text *t, const Unit *u, int effect)
{
    const Root *r = u->owner[effect];
    write_left(w, t, u->target[effect]->view.buffer, r->node->type,
               u->kernel->effects.at[effect].add);
    w->top = NULL;
    w->left = DEEP * DEEP;
    if (r->kind == ROOT_COPY)
        write_node(w, t, r->node, 0);
    else
        write_right(w, t, r->node);
}

/* Does effect i store a value in its own place, or does that only wait there? */
static bool is_own(const Unit *u, int i)
{
    const Root *r = u->owner[i];
    for (int k = 0; k < r->dests.len; k++)
        if (&r->dests.at[k] == u->target[i])
            return true;
    return false;
}

/* The equation that says most: of a value with a name, of the largest, of those the last. */
int formula_main_effect(Scope *s, const Unit *u)
{
    int best = 0;
    int64_t most = -1;
    bool named = false;
    for (int i = 0; i < u->kernel->effects.len; i++) {
        const Root *r = u->owner[i];
        const int64_t n = is_own(u, i) ? size_in_training(s->f, r->size) : -1;
        const bool has = n >= 0 && r->node->name != NULL && r->kind != ROOT_COLUMN;
        if (has > named || (has == named && n >= most)) {
            most = n;
            named = has;
            best = i;
        }
    }
    return best;
}

/* Names of what else the kernel stores. */
static void write_others(Text *t, const Unit *u, int main)
{
    int n = 0;
    for (int i = 0; i < u->kernel->effects.len; i++)
        if (i != main && is_own(u, i))
            text_add(t, "%s%s", n++ ? ", " : "also ", u->target[i]->view.buffer->name);
}

/* Is there a rounding to 16 bits between n and what it is made of? Its type, or DT_COUNT. */
static DType rounded_on_the_way(const Node *n)
{
    for (; n->n_in == 1 && (node_is_view(n) || n->op == OP_CAST || node_is_narrowing(n));
         n = n->in[0])
        if (node_is_narrowing(n))
            return n->op == OP_BF16 ? DT_BF16 : DT_F16;
    return DT_COUNT;
}

/* The lines of the names on the way; each may bring more. A value that lies in memory under the
   same name differs from it by a rounding alone, or not at all. */
static void write_where(Writer *w, Text *t)
{
    for (int i = 0; i < w->where.len; i++) {
        Where at = w->where.at[i];
        Scope *s = w->s;
        Text right = text_new(s->f->cx->scratch);
        const DType rounded = rounded_on_the_way(at.n);
        w->s = at.s;
        write_right(w, &right, at.n);
        w->s = s;
        if (strcmp(right.at, at.n->name) != 0)
            text_add(t, "\nwhere %s = %s", at.n->name, right.at);
        else if (rounded != DT_COUNT)
            text_add(t, "\nwhere %s is rounded to %s", at.n->name, dtype_name(rounded));
    }
}

static int count_lines(const Text *t)
{
    int n = 1;
    size_t column = 0;
    for (const char *s = t->at; *s; s++, column++)
        if (*s == '\n' || column == WIDTH) {
            n++;
            column = 0;
        }
    return n;
}

/* One equation per stored value, or the main one and the names of the others. */
static Text write_map(Scope *s, const Unit *u, bool all)
{
    Writer w = { .s = s, .u = u, .names = true };
    Text t = text_new(s->f->cx->arena);
    const int main = formula_main_effect(s, u);
    const Root *last = NULL;
    for (int i = 0; i < u->kernel->effects.len; i++) {
        if (!is_own(u, i) || u->owner[i] == last || !(all || i == main))
            continue;
        last = u->owner[i];
        text_put(&t, t.len ? "\n" : "");
        write_equation(&w, &t, u, i);
    }
    write_where(&w, &t);
    if (!all && u->kernel->effects.len > 1) {
        text_put(&t, "\n");
        write_others(&t, u, main);
    }
    return t;
}

/* What it is made of, where a formula would be too long. */
static Text write_inputs(Scope *s, const Unit *u, const Operand *operands)
{
    const int main = formula_main_effect(s, u);
    Text t = text_new(s->f->cx->arena);
    Writer w = { .s = s, .u = u };
    int n = 0;
    write_left(&w, &t, u->target[main]->view.buffer, u->owner[main]->node->type,
               u->kernel->effects.at[main].add);
    text_put(&t, "f(");
    for (int i = 0; i < u->kernel->args.len; i++)
        if (u->kernel->args.at[i].read)
            text_add(&t, "%s%s", n++ ? ", " : "", operands[i].buffer->name);
    text_put(&t, u->kernel->effects.len > 1 ? ")\n" : ")");
    write_others(&t, u, main);
    return t;
}

/* One line with shapes, written out, where that is enough. */
static Text write_line(Scope *s, const Unit *u)
{
    Writer w = { .s = s, .u = u, .shapes = true };
    Text t = text_new(s->f->cx->arena);
    write_equation(&w, &t, u, formula_main_effect(s, u));
    return t;
}

static Text map_formula(Scope *s, const Unit *u, const Operand *operands)
{
    Text t = write_line(s, u);
    if (u->kernel->effects.len == 1 && t.len <= WIDTH)
        return t;
    t = write_map(s, u, true);
    if (count_lines(&t) > LINES_MAX)
        t = write_map(s, u, false);
    return count_lines(&t) > LINES_MAX ? write_inputs(s, u, operands) : t;
}

/* An operand of a product: views of a buffer are the buffer. */
static void write_operand(Writer *w, Text *t, Node *n, bool turned, int level)
{
    Scope *s = scope_of(w->s, n);
    Node *root = node_resolve(&s, n);
    while ((root->op == OP_RESHAPE || root->op == OP_TRANSPOSE) && !stored_name(w, s, root))
        root = node_resolve(&s, root->in[0]);
    const char *name = stored_name(w, s, root);
    if (!name) {
        write_matrix(w, t, n, turned, level);
        return;
    }
    text_put(t, name);
    write_shape(w, t, shown_shape(w, stored_in(s, root), root->type));
    text_put(t, turned ? "'" : "");
}

static void write_factors(Writer *w, Text *t, Node *n)
{
    write_operand(w, t, n->in[0], n->attr.ta, 5);
    text_put(t, " @ ");
    write_operand(w, t, n->in[1], n->attr.tb, 6);
}

static void write_product(Writer *w, Text *t, Unit *u, const Kernel *k, const Operand *operands)
{
    Node *n = u->node;
    const Info *x = &w->s->at[n->id];
    write_left(w, t, operands[0].buffer, n->type,
               k->kind == KERNEL_SCATTER ? k->scatter.add : k->matmul.add);
    w->top = n;
    w->left = DEEP * DEEP;
    if (n->op == OP_SCATTER) {
        text_put(t, "rows ");
        write_node(w, t, n->in[1], 0);
        text_put(t, " added at ");
        write_node(w, t, n->in[0], 0);
    } else if (x->sum) {
        write_factors(w, t, x->sum->at.at[u->part]);
        if (x->sum->bias && !u->part)
            text_add(t, " + %s", operands[3].buffer->name);
    } else {
        write_factors(w, t, n);
    }
}

/* "q @ k' / sqrt(D)" */
static void write_scores(Writer *w, Text *t, const Node *n, const char *q, const char *k)
{
    const Dim *width = n->in[0]->type->dim[n->in[0]->type->rank - 1];
    text_add(t, "%s @ %s'", q, k);
    if (n->attr.value > 0 || n->attr.value < 0)
        text_add(t, " * %.7g", n->attr.value);
    else
        text_add(t, " / sqrt(%s)", dim_text(w->s->f->cx, width));
}

/* Names of q, k and v in a formula: those of their buffers, unless they are parts of one. */
typedef struct {
    const char *q, *k, *v;
    const char *parts_of; /* or NULL */
} Heads;

static Heads heads_of(const Operand *o, const char *q, const char *k, const char *v)
{
    const char *name[3] = { o[0].buffer->name, o[1].buffer->name, o[2].buffer->name };
    if (name[0] == name[1] && name[1] == name[2])
        return (Heads){ q, k, v, name[0] };
    return (Heads){ name[0], name[1], name[2], NULL };
}

static void write_parts(Text *t, const Heads *h)
{
    if (h->parts_of)
        text_add(t, "\nwhere %s, %s and %s are parts of %s, head by head", h->q, h->k, h->v,
                 h->parts_of);
}

static void write_group(Writer *w, Text *t, const Node *n, const Heads *h, const char *sums)
{
    const Type *q = n->in[0]->type, *k = n->in[1]->type;
    const int r = q->rank;
    if (r > 2 && !dim_same(q->dim[r - 3], k->dim[r - 3]))
        text_add(t, "\nwhere %s heads of %s share one of %s and %s%s",
                 dim_text(w->s->f->cx, dim_ratio(w->s->f->ds, q->dim[r - 3], k->dim[r - 3])), h->q,
                 h->k, h->v, sums);
}

/* The five products of the gradient, with p made again from the scores. */
static void write_attention_grad(Writer *w, Text *t, const Node *n, const Operand *o)
{
    const Heads d = heads_of(o, "d_q", "d_k", "d_v"), h = heads_of(o + 3, "q", "k", "v");
    const char *y = o[6].buffer->name, *logsumexp = o[7].buffer->name, *d_y = o[8].buffer->name;
    const bool given = n->attr.value > 0 || n->attr.value < 0;
    const Dim *width = n->in[0]->type->dim[n->in[0]->type->rank - 1];
    const char *scale = arena_printf(w->s->f->cx->arena, given ? " * %s" : " / sqrt(%s)",
                                     given ? arena_printf(w->s->f->cx->arena, "%.7g", n->attr.value)
                                           : dim_text(w->s->f->cx, width));
    if (w->brief) {
        text_add(t, "%s, %s, %s", d.q, d.k, d.v);
        if (d.parts_of)
            text_add(t, ", parts of %s", d.parts_of);
        return;
    }
    text_add(t, "%s = prob' @ %s\n%s = d_s @ %s%s\n%s = d_s' @ %s%s", d.v, d_y, d.q, h.k, scale,
             d.k, h.q, scale);
    text_put(t, "\nwhere prob = exp(");
    write_scores(w, t, n, h.q, h.k);
    text_add(t, " - %s)%s", logsumexp,
             n->attr.causal ? ", and 0 for keys after the query (causal)" : "");
    text_add(t, "\nwhere d_s = prob * (%s @ %s' - sum of %s * %s over the width of a head)", d_y,
             h.v, d_y, y);
    write_group(w, t, n, &h, ", whose gradients are sums over these");
    write_parts(t, &d);
    write_parts(t, &h);
}

static void write_attention(Writer *w, Text *t, Unit *u, const Operand *o)
{
    const Node *n = u->node;
    if (n->op == OP_ATTENTION_GRAD) {
        write_attention_grad(w, t, n, o);
        return;
    }
    const Heads h = heads_of(o + 2, "q", "k", "v");
    write_left(w, t, o[0].buffer, n->types[0], ADD_NEVER);
    text_put(t, "softmax(");
    write_scores(w, t, n, h.q, h.k);
    text_add(t, "%s) @ %s", n->attr.causal ? ", causal" : "", h.v);
    if (w->brief)
        return;
    text_put(t, "\n");
    write_left(w, t, o[1].buffer, n->types[1], ADD_NEVER);
    text_put(t, "log of the sum that the softmax of a query divides by");
    write_group(w, t, n, &h, "");
    write_parts(t, &h);
    if (n->attr.causal)
        text_put(t, "\nwhere causal leaves out the keys after the query");
}

/* What the kernel writes, the main value first. */
static void brief_outputs(Text *t, const Kernel *k, const Operand *operands, int main_arg,
                          size_t room)
{
    int more = 0;
    text_put(t, operands[main_arg].buffer->name);
    for (int i = 0; i < k->args.len; i++) {
        if (i == main_arg || !k->args.at[i].written)
            continue;
        if (more == 0 && t->len + strlen(operands[i].buffer->name) + 2 <= room)
            text_add(t, ", %s", operands[i].buffer->name);
        else
            more++;
    }
    if (more)
        text_add(t, " and %d more", more);
}

/* " from x, d_y": what it is made of besides parameters. */
static void brief_inputs(Text *t, const Kernel *k, const Operand *operands, size_t room)
{
    int n = 0, more = 0;
    for (int i = 0; i < k->args.len; i++) {
        const Buffer *b = operands[i].buffer;
        if (!k->args.at[i].read || b->kind == BUF_PARAM || b->kind == BUF_PARAM16)
            continue;
        if (more == 0 && t->len + strlen(b->name) + 10 <= room)
            text_add(t, "%s%s", n++ ? ", " : " from ", b->name);
        else
            more++;
    }
    if (more)
        text_put(t, n ? ", ..." : " from ...");
}

/* "d_x = d_y @ w'": one short line for the list of steps; what is written and from what, where the
   equation is long or needs others. */
static const char *write_brief(Scope *s, Unit *u, const Kernel *k, const Operand *operands)
{
    Writer w = { .s = s, .u = u, .names = true, .brief = true };
    Text t = text_new(s->f->cx->arena);
    const int main = u->kind == UNIT_MAP ? formula_main_effect(s, u) : 0;
    const int main_arg = u->kind == UNIT_MAP ? k->effects.at[main].access.arg : 0;
    if (u->kind == UNIT_MAP)
        write_equation(&w, &t, u, main);
    else if (k->kind == KERNEL_ATTENTION || k->kind == KERNEL_ATTENTION_GRAD)
        write_attention(&w, &t, u, operands);
    else
        write_product(&w, &t, u, k, operands);
    const size_t room = u->backward ? BRIEF_BACKWARD : BRIEF;
    const bool whole = k->kind == KERNEL_ATTENTION_GRAD || (t.len <= room && k->effects.len <= 1);
    if (whole && w.where.len == 0)
        return t.at;
    t = text_new(s->f->cx->arena);
    brief_outputs(&t, k, operands, main_arg, room * 2 / 3);
    brief_inputs(&t, k, operands, room);
    return t.at;
}

void formula_write(Scope *s, Unit *u, Kernel *k, const Operand *operands)
{
    Text t = text_new(s->f->cx->arena);
    Writer w = { .s = s, .u = u, .shapes = true };
    if (u->kind == UNIT_MAP)
        t = map_formula(s, u, operands);
    else if (k->kind == KERNEL_ATTENTION || k->kind == KERNEL_ATTENTION_GRAD)
        write_attention(&w, &t, u, operands);
    else
        write_product(&w, &t, u, k, operands);
    k->formula = t.at;
    k->brief = write_brief(s, u, k, operands);
}
