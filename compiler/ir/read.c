/* read.c -- IR as text, the way in. text.c is the way out, and shows the form.
 *
 * In: a source file. Out: a Program whose graphs are those of the file, or errors with their
 * places. Before the graphs stand the symbols and the means:
 *
 *   batch B          dim T = 64          const C = 4          mean loss weight 1
 *
 * A value after = is only the value in training. A line that begins with --- ends the text: what
 * follows is a test's expectation. The reader stops at the first error.
 */
#include "ir/program.h"
#include "op/op.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef enum { TOK_END, TOK_WORD, TOK_VALUE, TOK_NUMBER, TOK_STRING, TOK_MARK } TokenKind;

typedef struct {
    TokenKind kind;
    const char *text; /* interned: WORD x, VALUE %x, STRING, MARK */
    double number;
    Span span;
} Token;

typedef struct Scope {
    Graph *g;
    Map *names;
} Scope; /* name -> Bound */
typedef struct {
    Node *node;
    int k;
} Bound; /* result k of a node */

typedef struct {
    Context *cx;
    Program *p;
    const char *text;
    uint32_t at;
    int file;
    Token tok;
    bool failed;
} Reader;

/* ---- tokens -------------------------------------------------------------------------------- */

static void fail(Reader *r, Span at, const char *fmt, ...) PRINTF_LIKE(3, 4);
static void fail(Reader *r, Span at, const char *fmt, ...)
{
    if (!r->failed) {
        va_list ap;
        Text t = text_new(r->cx->arena);
        va_start(ap, fmt);
        text_addv(&t, fmt, ap);
        va_end(ap);
        diag_error(r->cx, at, "%s", t.at);
    }
    r->failed = true;
    r->tok.kind = TOK_END;
}

static bool is_word(char c) { return isalnum((unsigned char)c) || c == '_' || c == '.'; }

static void skip_blank(Reader *r)
{
    for (;;) {
        while (isspace((unsigned char)r->text[r->at]))
            r->at++;
        if (r->text[r->at] != '#')
            return;
        while (r->text[r->at] && r->text[r->at] != '\n')
            r->at++;
    }
}

static void read_mark(Reader *r)
{
    static const char *const two[] = { "//", "<-" };
    for (int i = 0; i < 2; i++)
        if (strncmp(r->text + r->at, two[i], 2) == 0) {
            r->tok.text = two[i];
            r->at += 2;
            r->tok.text = intern(r->cx, r->tok.text);
            return;
        }
    r->tok.text = intern_n(r->cx, r->text + r->at, 1);
    r->at++;
}

static void next(Reader *r)
{
    if (r->failed)
        return;
    skip_blank(r);
    uint32_t lo = r->at;
    const char *c = r->text + lo;
    r->tok = (Token){ .kind = TOK_END };
    if (*c == '\0' || ((lo == 0 || c[-1] == '\n') && strncmp(c, "---", 3) == 0)) {
        r->tok.span = (Span){ r->file, lo, lo };
        return;
    }
    if (isdigit((unsigned char)*c)) {
        char *end;
        r->tok.kind = TOK_NUMBER;
        r->tok.number = strtod(c, &end);
        r->at += (uint32_t)(end - c);
    } else if (*c == '%' || isalpha((unsigned char)*c) || *c == '_') {
        r->tok.kind = *c == '%' ? TOK_VALUE : TOK_WORD;
        r->at++;
        while (is_word(r->text[r->at]))
            r->at++;
        r->tok.text = intern_n(r->cx, c, r->at - lo);
    } else if (*c == '"') {
        const char *end = strchr(c + 1, '"');
        r->tok.kind = TOK_STRING;
        r->at = end ? (uint32_t)(end + 1 - r->text) : lo + 1;
        r->tok.text = intern_n(r->cx, c + 1, end ? (size_t)(end - c - 1) : 0);
        if (!end)
            fail(r, (Span){ r->file, lo, lo + 1 }, "a string does not end");
    } else {
        r->tok.kind = TOK_MARK;
        read_mark(r);
    }
    r->tok.span = (Span){ r->file, lo, r->at };
}

static bool at_text(const Reader *r, const char *text)
{
    return (r->tok.kind == TOK_MARK || r->tok.kind == TOK_WORD) && strcmp(r->tok.text, text) == 0;
}

static bool accept(Reader *r, const char *text)
{
    if (!at_text(r, text))
        return false;
    next(r);
    return true;
}

static void expect(Reader *r, const char *text)
{
    if (!accept(r, text))
        fail(r, r->tok.span, "'%s' is wanted here", text);
}

static const char *read_word(Reader *r, const char *what)
{
    const char *text = r->tok.text;
    if (r->tok.kind != TOK_WORD && r->tok.kind != TOK_STRING) {
        fail(r, r->tok.span, "%s is wanted here", what);
        return intern(r->cx, "");
    }
    next(r);
    return text;
}

static double read_number(Reader *r)
{
    double sign = accept(r, "-") ? -1 : 1, value = r->tok.number;
    if (accept(r, "inf"))
        return sign * INFINITY;
    if (accept(r, "nan"))
        return NAN;
    if (r->tok.kind != TOK_NUMBER)
        fail(r, r->tok.span, "a number is wanted here");
    next(r);
    return sign * value;
}

static int64_t read_integer(Reader *r)
{
    Span at = r->tok.span;
    double v = read_number(r);
    if (v != floor(v) || fabs(v) > 9e15)
        fail(r, at, "a whole number is wanted here");
    return r->failed ? 0 : (int64_t)v;
}

/* ---- dims and types ------------------------------------------------------------------------ */

static const Dim *read_dim(Reader *r);

static const Dim *read_factor(Reader *r)
{
    Dims *ds = r->p->dims;
    if (accept(r, "(")) {
        const Dim *d = read_dim(r);
        expect(r, ")");
        return d;
    }
    if (accept(r, "-"))
        return dim_sub(ds, dim_const(ds, 0), read_factor(r));
    if (r->tok.kind == TOK_NUMBER)
        return dim_const(ds, read_integer(r));
    const Symbol *s = r->tok.kind == TOK_WORD ? dims_find(ds, r->tok.text) : NULL;
    if (!s) {
        fail(r, r->tok.span, "a dim is wanted here; dims are declared before the graphs");
        return dim_const(ds, 1);
    }
    next(r);
    return dim_sym(ds, s);
}

static const Dim *read_product(Reader *r)
{
    Dims *ds = r->p->dims;
    const Dim *d = read_factor(r);
    for (;;) {
        Span at = r->tok.span;
        if (accept(r, "*")) {
            d = dim_mul(ds, d, read_factor(r));
            continue;
        }
        bool exact = at_text(r, "/");
        if (!exact && !at_text(r, "//"))
            return d;
        next(r);
        const Dim *by = read_factor(r);
        d = exact ? dim_exact_div(ds, d, by) : dim_floor_div(ds, d, by);
        if (!d) {
            fail(r, at, "it does not divide");
            return dim_const(ds, 1);
        }
    }
}

static const Dim *read_dim(Reader *r)
{
    Dims *ds = r->p->dims;
    const Dim *d = read_product(r);
    for (;;) {
        if (accept(r, "+"))
            d = dim_add(ds, d, read_product(r));
        else if (accept(r, "-"))
            d = dim_sub(ds, d, read_product(r));
        else
            return d;
    }
}

/* "[B,T]": the number of dims. */
static int read_dims(Reader *r, const Dim **dim)
{
    int n = 0;
    expect(r, "[");
    while (!r->failed && !at_text(r, "]")) {
        if (n == RANK_MAX)
            fail(r, r->tok.span, "more than %d axes", RANK_MAX);
        else
            dim[n++] = read_dim(r);
        if (!accept(r, ","))
            break;
    }
    expect(r, "]");
    return n;
}

static const Type *read_type(Reader *r)
{
    const Dim *dim[RANK_MAX];
    DType dtype = DT_COUNT;
    for (int i = 0; i < DT_COUNT; i++)
        if (r->tok.kind == TOK_WORD && strcmp(r->tok.text, dtype_name((DType)i)) == 0)
            dtype = (DType)i;
    if (dtype == DT_COUNT) {
        fail(r, r->tok.span, "a dtype is wanted here: bool, i32, f32 or f64");
        return type_of(r->p->dims, DT_F32, 0, NULL);
    }
    next(r);
    int rank = read_dims(r, dim);
    return type_of(r->p->dims, dtype, rank, dim);
}

/* ---- names --------------------------------------------------------------------------------- */

/* The hint in a printed name: without the % and the .2; NULL for a number. */
static const char *hint_of(Reader *r, const char *name)
{
    name += *name == '%';
    const char *dot = strrchr(name, '.');
    if (isdigit((unsigned char)*name) || !*name)
        return NULL;
    return dot && isdigit((unsigned char)dot[1]) ? intern_n(r->cx, name, (size_t)(dot - name))
                                                 : intern(r->cx, name);
}

static void bind(Reader *r, Scope *s, const char *name, Span at, Node *node, int k)
{
    Bound *b = NEW(r->cx->arena, Bound);
    *b = (Bound){ node, k };
    if (map_get(s->names, name))
        fail(r, at, "the name %s is taken", name);
    map_set(s->names, name, b);
}

static Node *read_operand(Reader *r, Scope *s)
{
    Bound *b = r->tok.kind == TOK_WORD || r->tok.kind == TOK_VALUE ? map_get(s->names, r->tok.text)
                                                                   : NULL;
    if (!b) {
        if (r->tok.kind == TOK_WORD || r->tok.kind == TOK_VALUE)
            fail(r, r->tok.span, "no value %s comes before", r->tok.text);
        else
            fail(r, r->tok.span, "a value is wanted here");
        return NULL;
    }
    next(r);
    Node *n = ir_result(b->node, b->k);
    if (n != b->node)
        n->backward |= b->node->backward;
    return n;
}

static int find_mean(Reader *r, const char *name, Span at)
{
    for (int i = 0; i < r->p->means.len; i++)
        if (strcmp(r->p->means.at[i].name, name) == 0)
            return i;
    vec_push(r->cx->arena, &r->p->means,
             ((MeanSlot){ .name = name, .text = name, .weight = 1, .span = at }));
    return r->p->means.len - 1;
}

/* ---- nodes --------------------------------------------------------------------------------- */

enum { OPERANDS_MAX = 64 };

static void read_attr(Reader *r, Op op, Attr *attr)
{
    const Dim *dim[1 + RANK_MAX];
    Span at = r->tok.span;
    if (op == OP_CONST) {
        attr->value = read_number(r);
    } else if (op == OP_SEED || op == OP_MEAN) {
        attr->index = find_mean(r, read_word(r, "the name of a mean"), at);
    } else if (op == OP_DIM) {
        if (read_dims(r, dim) == 1)
            attr->dim = dim[0];
        else
            fail(r, at, "one dim is wanted here");
    }
    while (!r->failed && r->tok.kind == TOK_WORD) {
        at = r->tok.span;
        if (accept(r, "axes")) {
            while (r->tok.kind == TOK_NUMBER && attr->n_axes < RANK_MAX)
                attr->axes[attr->n_axes++] = (int)read_integer(r);
        } else if (accept(r, "lo")) {
            int n = read_dims(r, attr->lo);
            attr->index = n; /* checked against the operand, then 0 */
        } else if (accept(r, "scale")) {
            attr->value = read_number(r);
        } else if (accept(r, "stream")) {
            attr->stream = read_word(r, "a string");
        } else if (accept(r, "ta")) {
            attr->ta = true;
        } else if (accept(r, "tb")) {
            attr->tb = true;
        } else if (accept(r, "causal")) {
            attr->causal = true;
        } else if (accept(r, "wide")) {
            attr->wide = true;
        } else if (accept(r, "keep")) {
            attr->keep = true;
        } else {
            fail(r, at, "no attribute '%s'", r->tok.text);
        }
    }
}

/* The node, or NULL after an error. */
static Node *make_node(Reader *r, Scope *s, Op op, int n_in, Node *const *in, Attr *attr,
                       const Type **types, int n_types, Span at)
{
    const OpRow *row = op_row(op);
    const Type *inferred[8];
    const char *why = NULL;
    if (row->arity >= 0 && row->arity != n_in) {
        fail(r, at, "%s has %d operands, not %d", row->name, row->arity, n_in);
        return NULL;
    }
    if ((op == OP_SLICE || op == OP_PAD)
        && (attr->index != in[0]->type->rank || types[0]->rank != attr->index)) {
        fail(r, at, "%s wants a first index for each axis", row->name);
        return NULL;
    }
    if (op == OP_SLICE || op == OP_PAD)
        attr->index = 0;
    if (row->check) {
        why = n_types == 1 ? row->check(s->g, types[0], n_in, in, attr) : "it has one result";
        if (why)
            fail(r, at, "%s: %s", row->name, why);
        return why ? NULL : ir_typed(s->g, op, types[0], n_in, in, attr, at);
    }
    int n = row->shape(r->p->dims, n_in, in, attr, inferred, &why);
    if (n < 1) {
        fail(r, at, "%s: %s", row->name, why);
        return NULL;
    }
    for (int k = 0; k < n; k++)
        if (n != n_types || !type_same(inferred[k], types[k])) {
            fail(r, at, "result %d of %s is %s", k, row->name, type_text(r->cx, inferred[k]));
            return NULL;
        }
    return ir_node(s->g, op, n_in, in, attr, at);
}

static Node *read_node(Reader *r, Scope *s)
{
    Node *in[OPERANDS_MAX];
    const Type *types[8];
    Attr attr = { 0 };
    int n_in = 0, n_types = 0;
    Span at = r->tok.span;
    const char *name = read_word(r, "an op");
    Op op = op_find(name);
    if (op == OP_COUNT || op == OP_LOOP || op == OP_RESULT || op == OP_PARAM || op == OP_INPUT
        || op == OP_ARG) {
        fail(r, at, "no op '%s'", name);
        return NULL;
    }
    int want = op_row(op)->arity;
    if (want && (r->tok.kind == TOK_VALUE || want > 0 || map_get(s->names, r->tok.text)))
        do {
            if (n_in == OPERANDS_MAX)
                fail(r, at, "more than %d operands", OPERANDS_MAX);
            else
                in[n_in++] = read_operand(r, s);
        } while (accept(r, ","));
    read_attr(r, op, &attr);
    expect(r, ":");
    do
        types[n_types++] = read_type(r);
    while (n_types < 8 && accept(r, ","));
    return r->failed ? NULL : make_node(r, s, op, n_in, in, &attr, types, n_types, at);
}

/* ---- loops --------------------------------------------------------------------------------- */

static bool read_statement(Reader *r, Scope *s, Loop *loop);

static const Type *slice_type(Reader *r, const Loop *l, const Type *t, Span at)
{
    if (t->rank < 1) {
        fail(r, at, "a scalar has no slices");
        return t;
    }
    if (l->part) {
        const Dim *dim[RANK_MAX] = { dim_sym(r->p->dims, l->part) };
        for (int k = 1; k < t->rank; k++)
            dim[k] = t->dim[k];
        return type_of(r->p->dims, t->dtype, t->rank, dim);
    }
    return type_of(r->p->dims, t->dtype, t->rank - 1, t->dim + 1);
}

/* One section of a loop's list: name = value, or name in value. */
static int read_section(Reader *r, Scope *outer, Scope *inner, const Loop *l, ArgKind kind,
                        Node **in, int n)
{
    int count = 0;
    while (!r->failed && !at_text(r, ";")) {
        Span at = r->tok.span;
        const char *name = read_word(r, "the name of an argument");
        expect(r, kind == ARG_SLICE ? "in" : "=");
        Node *value = read_operand(r, outer);
        if (!value || n + count == OPERANDS_MAX) {
            fail(r, at, "more than %d operands", OPERANDS_MAX);
            break;
        }
        const Type *t = kind == ARG_SLICE ? slice_type(r, l, value->type, at) : value->type;
        Node *arg = ir_arg(inner->g, kind, t, at);
        ir_named(arg, hint_of(r, name));
        bind(r, inner, name, at, arg, 0);
        in[n + count++] = value;
        if (!accept(r, ","))
            break;
    }
    expect(r, ";");
    return count;
}

static const Symbol *read_part(Reader *r)
{
    Span at = r->tok.span;
    const Symbol *s = dims_find(r->p->dims, read_word(r, "the name of a part"));
    if (!r->failed && (!s || s->kind != SYM_PART))
        fail(r, at, "the name of a part is wanted here");
    return s;
}

static Node *read_loop(Reader *r, Scope *s)
{
    Node *in[OPERANDS_MAX];
    const Type *types[2 * OPERANDS_MAX];
    const char *why = NULL;
    Span at = r->tok.span;
    Loop *l = NEW(r->cx->arena, Loop);
    next(r);
    l->name = read_word(r, "the name of the loop");
    if (accept(r, "var"))
        l->var = read_word(r, "the name of a variable");
    if (accept(r, "over"))
        l->stack = read_word(r, "the name of a stack");
    expect(r, "trip");
    expect(r, "[");
    l->trip = read_dim(r);
    expect(r, "]");
    l->reverse = accept(r, "reverse");
    if (accept(r, "part"))
        l->part = read_part(r);
    l->body = graph_new(r->p, l->name, s->g);
    Scope inner = { l->body, map_new(r->cx->scratch) };
    expect(r, "(");
    l->n_carry = read_section(r, s, &inner, l, ARG_CARRY, in, 0);
    l->n_slice = read_section(r, s, &inner, l, ARG_SLICE, in, l->n_carry);
    l->n_shared = read_section(r, s, &inner, l, ARG_SHARED, in, l->n_carry + l->n_slice);
    Span iter_at = r->tok.span;
    const char *iter = read_word(r, "the name of the iteration");
    Node *arg = ir_arg(l->body, ARG_ITER, type_of(r->p->dims, DT_I32, 0, NULL), iter_at);
    ir_named(arg, hint_of(r, iter));
    bind(r, &inner, iter, iter_at, arg, 0);
    expect(r, ")");
    expect(r, "{");
    while (!r->failed && !at_text(r, "}"))
        if (!read_statement(r, &inner, l))
            break;
    expect(r, "}");
    int n_in = l->n_carry + l->n_slice + l->n_shared;
    if (!r->failed && l->n_carry + l->n_stack > 2 * OPERANDS_MAX)
        fail(r, at, "too many results");
    if (r->failed)
        return NULL;
    if (!op_row(OP_LOOP)->shape(r->p->dims, n_in, in, &(Attr){ .loop = l }, types, &why)) {
        fail(r, at, "loop: %s", why);
        return NULL;
    }
    return ir_loop(s->g, l, n_in, in, at);
}

/* ---- statements ---------------------------------------------------------------------------- */

static void read_assignment(Reader *r, Scope *s)
{
    Token target[2 * OPERANDS_MAX];
    int n = 0;
    do {
        if (n == 2 * OPERANDS_MAX)
            fail(r, r->tok.span, "too many results");
        else
            target[n++] = r->tok;
        if (r->tok.kind != TOK_VALUE && !at_text(r, "_"))
            fail(r, r->tok.span, "a value such as %%x is wanted here");
        next(r);
    } while (accept(r, ","));
    expect(r, "=");
    Node *node = at_text(r, "loop") ? read_loop(r, s) : read_node(r, s);
    if (!node)
        return;
    if (node->n_out != n) {
        fail(r, target[0].span, "there are %d results, not %d", node->n_out, n);
        return;
    }
    if (at_text(r, "<-")) {
        uint32_t end = r->tok.span.hi;
        next(r);
        node->backward = true;
        bool same_line = !memchr(r->text + end, '\n', r->tok.span.lo - end);
        if (same_line && (r->tok.kind == TOK_VALUE || r->tok.kind == TOK_WORD))
            node->undoes = read_operand(r, s);
    }
    for (int k = 0; k < n; k++) {
        if (target[k].kind != TOK_VALUE)
            continue;
        Node *result = ir_result(node, k);
        ir_named(result, hint_of(r, target[k].text));
        if (result != node)
            result->backward |= node->backward;
        bind(r, s, target[k].text, target[k].span, node, k);
    }
}

/* A list of results: `return`, `next`, `stack`. */
static int read_results(Reader *r, Scope *s, int first)
{
    int n = 0;
    do {
        Node *v = read_operand(r, s);
        if (v)
            ir_sink(s->g, SINK_RESULT, first + n, v);
        n++;
    } while (!r->failed && accept(r, ","));
    return n;
}

static int find_param(const Program *p, const char *name)
{
    for (int i = 0; i < p->params.len; i++)
        if (strcmp(p->params.at[i].name, name) == 0)
            return i;
    return -1;
}

static void read_sink(Reader *r, Scope *s, SinkKind kind)
{
    Span at = r->tok.span;
    const char *name = read_word(r, "a name");
    Node *v = read_operand(r, s);
    if (!v)
        return;
    int index = -1;
    if (kind == SINK_SUM || kind == SINK_COUNT)
        index = find_mean(r, name, at);
    else if (kind == SINK_GRAD)
        index = find_param(r->p, name);
    else
        for (int i = 0; i < r->p->outputs.len; i++)
            if (strcmp(r->p->outputs.at[i].name, name) == 0)
                index = i;
    if (index < 0 && kind == SINK_OUTPUT) {
        index = r->p->outputs.len;
        vec_push(r->cx->arena, &r->p->outputs, ((Output){ name, v->type, at }));
    }
    if (index < 0)
        fail(r, at, "no parameter '%s'", name);
    else
        ir_sink(s->g, kind, index, v);
}

/* False when the text is at no statement. */
static bool read_statement(Reader *r, Scope *s, Loop *loop)
{
    Span at = r->tok.span;
    if (r->tok.kind == TOK_VALUE || at_text(r, "_"))
        read_assignment(r, s);
    else if (loop && accept(r, "next") && read_results(r, s, 0) != loop->n_carry)
        fail(r, at, "there are %d carried values", loop->n_carry);
    else if (loop && accept(r, "stack"))
        loop->n_stack += read_results(r, s, loop->n_carry);
    else if (!loop && accept(r, "return"))
        read_results(r, s, 0);
    else if (!loop && accept(r, "sum"))
        read_sink(r, s, SINK_SUM);
    else if (!loop && accept(r, "count"))
        read_sink(r, s, SINK_COUNT);
    else if (!loop && accept(r, "grad"))
        read_sink(r, s, SINK_GRAD);
    else if (!loop && accept(r, "output"))
        read_sink(r, s, SINK_OUTPUT);
    else if (r->tok.kind == TOK_END)
        fail(r, at, "'}' is wanted here");
    else if (!(loop && s->g->sinks.len))
        fail(r, at, "a statement is wanted here");
    return !r->failed && r->tok.span.lo > at.lo;
}

/* ---- the file ------------------------------------------------------------------------------ */

static int add_param(Reader *r, const char *name, const Type *t, Span at)
{
    int i = find_param(r->p, name);
    if (i >= 0 && !type_same(r->p->params.at[i].stacked, t))
        fail(r, at, "parameter %s has another type above", name);
    if (i >= 0)
        return i;
    vec_push(r->cx->arena, &r->p->params,
             ((Param){ .path = name,
                       .name = name,
                       .type = t,
                       .stacked = t,
                       .group = -1,
                       .role = ROLE_WEIGHT,
                       .decay = true,
                       .trained = true,
                       .fit_input = -1,
                       .span = at }));
    return r->p->params.len - 1;
}

static int add_input(Reader *r, const char *name, const Type *t, Span at)
{
    for (int i = 0; i < r->p->inputs.len; i++)
        if (strcmp(r->p->inputs.at[i].name, name) == 0 && type_same(r->p->inputs.at[i].type, t))
            return i;
    vec_push(r->cx->arena, &r->p->inputs, ((Input){ .name = name, .type = t, .span = at }));
    return r->p->inputs.len - 1;
}

/* " in 0 to V or -100" behind the type of an input. */
static void read_range(Reader *r, Input *in)
{
    if (!accept(r, "in"))
        return;
    in->ranged = true;
    in->lo = read_dim(r);
    expect(r, "to");
    in->hi = read_dim(r);
    in->has_ignore = accept(r, "or");
    in->ignore = in->has_ignore ? read_integer(r) : 0;
}

static void read_graph(Reader *r)
{
    Span name_at = r->tok.span;
    Graph *g = graph_new(r->p, read_word(r, "the name of the graph"), NULL);
    Scope s = { g, map_new(r->cx->scratch) };
    expect(r, "(");
    while (!r->failed && !at_text(r, ")")) {
        bool param = accept(r, "param");
        Span at = r->tok.span;
        const char *name = read_word(r, "the name of an input");
        expect(r, ":");
        const Type *t = read_type(r);
        const char *hint = r->failed ? NULL : hint_of(r, name);
        if (!hint)
            break;
        if (dtype_is_real(t->dtype))
            r->p->real = t->dtype;
        const int index = param ? add_param(r, hint, t, at) : add_input(r, hint, t, at);
        Node *leaf = param ? ir_param(g, index, at) : ir_input(g, index, at);
        if (!param)
            read_range(r, &r->p->inputs.at[index]);
        bind(r, &s, name, at, leaf, 0);
        if (!accept(r, ","))
            break;
    }
    expect(r, ")");
    expect(r, "{");
    while (!r->failed && !at_text(r, "}"))
        if (!read_statement(r, &s, NULL))
            break;
    expect(r, "}");
    const char *wrong = r->failed ? NULL : ir_check(g, STAGE_JOINT);
    if (wrong)
        fail(r, name_at, "%s", wrong);
    vec_push(r->cx->arena, &r->p->graphs, g);
}

static void read_symbol(Reader *r, SymKind kind)
{
    Span at = r->tok.span;
    const char *name = read_word(r, "a name");
    int64_t value = accept(r, "=") ? read_integer(r) : 0;
    if (kind == SYM_CONST && !r->failed && value < 1)
        fail(r, at, "a const needs a value above 0: const %s = 4", name);
    if (dims_find(r->p->dims, name))
        fail(r, at, "%s is declared twice", name);
    dims_symbol(r->p->dims, name, kind, value, at);
}

/* part rows of [B*T] by [8] */
static void read_part_symbol(Reader *r)
{
    Span at = r->tok.span;
    const char *name = read_word(r, "a name");
    expect(r, "of");
    expect(r, "[");
    const Dim *whole = read_dim(r);
    expect(r, "]");
    expect(r, "by");
    expect(r, "[");
    const Dim *step = read_dim(r);
    expect(r, "]");
    if (!r->failed && dims_find(r->p->dims, name))
        fail(r, at, "%s is declared twice", name);
    if (!r->failed)
        dims_part(r->p->dims, name, whole, step, NULL);
}

bool ir_read(Context *cx, int file, Program **program)
{
    Reader r = { .cx = cx, .p = program_new(cx), .file = file };
    r.text = source_of(cx, file)->text;
    r.p->file = file;
    *program = r.p;
    next(&r);
    while (!r.failed && r.tok.kind != TOK_END) {
        Span at = r.tok.span;
        if (accept(&r, "batch")) {
            read_symbol(&r, SYM_BATCH);
        } else if (accept(&r, "dim")) {
            read_symbol(&r, SYM_DIM);
        } else if (accept(&r, "part")) {
            read_part_symbol(&r);
        } else if (accept(&r, "const")) {
            read_symbol(&r, SYM_CONST);
        } else if (accept(&r, "mean")) {
            int i = find_mean(&r, read_word(&r, "the name of a mean"), at);
            if (accept(&r, "weight"))
                r.p->means.at[i].weight = read_number(&r);
        } else if (accept(&r, "graph")) {
            read_graph(&r);
        } else {
            fail(&r, at, "batch, dim, part, const, mean or graph is wanted here");
        }
    }
    return !r.failed;
}
