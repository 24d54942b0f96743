/* c_rule.c -- the update of a piece of the parameters, in section 7.
 *
 * In: the optimizer's rule, a graph of scalars. Out: a comment with its statements, and a function
 * with one loop over the piece that reads and writes p, the states and the 16-bit copy once. The
 * one idea: what depends on numbers alone is computed before the loop, in double, and rounded once;
 * x / number becomes a product with 1 / number.
 */
#include "emit/parts.h"
#include "op/op.h"

#include <string.h>

typedef struct {
    Emitter *e;
    const UpdateRule *rule;
    int n_states, n_constants;
    Names *names;
    const char **number;     /* of the arguments: names in double, of elements NULL */
    const char **element;    /* "p[i]", of numbers NULL */
    bool *used;              /* arguments that are read as numbers */
    Map *varies;             /* Node -> "" if it depends on elements */
    Map *uses;               /* Node -> how often it is an operand, boxed */
    Map *in_numbers;         /* Node -> how often it is an operand of numbers, boxed */
    Map *prepared;           /* nodes of numbers that were looked at */
    Map *constant, *inverse; /* Node -> name of it, of 1 / it, before the loop */
    Map *local;              /* Node -> name in the loop */
    Map *want;               /* Node -> the name it should have there */
    Text numbers, body;
} RuleWriter;

/* ---- which nodes are what ------------------------------------------------------------------- */

/* p is written in 16 bits too. */
static bool copies(const RuleWriter *w)
{
    const DType half = w->e->p->narrow;
    return (half == DT_BF16 || half == DT_F16) && !program_has_halves(w->e->p);
}

/* Counts uses and finds what varies from element to element. */
static void look(RuleWriter *w, const Node *n)
{
    int *uses = map_get(w->uses, n);
    if (uses) {
        ++*uses;
        return;
    }
    uses = NEW(w->e->cx->scratch, int);
    *uses = 1;
    map_set(w->uses, n, uses);
    bool varies = n->op == OP_ARG && rule_arg_is_element(w->e->p, n->attr.index);
    for (int i = 0; i < n->n_in; i++) {
        look(w, n->in[i]);
        varies = varies || map_get(w->varies, n->in[i]);
    }
    if (varies)
        map_set(w->varies, n, (void *)(uintptr_t)1);
    for (int i = 0; !varies && i < n->n_in; i++) {
        int *times = map_get(w->in_numbers, n->in[i]);
        if (!times)
            map_set(w->in_numbers, n->in[i], times = NEW(w->e->cx->scratch, int));
        ++*times;
    }
}

/* Elements and constants have the type of the parameters; the graph has that of numbers. */
static DType type_in_loop(const RuleWriter *w, const Node *n)
{
    const DType t = n->types[0]->dtype;
    return dtype_is_real(t) ? w->e->p->real : t;
}

static bool is_literal(const Node *n)
{
    while (n->op == OP_CAST)
        n = n->in[0];
    return n->op == OP_CONST || n->op == OP_DIM;
}

/* ---- before the loop ------------------------------------------------------------------------ */

/* Marks the numbers that n is made of as read, and computes what it needs more than once. */
static void prepare(RuleWriter *w, const Node *n)
{
    Emitter *e = w->e;
    if (map_get(w->prepared, n))
        return;
    map_set(w->prepared, n, (void *)(uintptr_t)1);
    if (n->op == OP_ARG)
        w->used[n->attr.index] = true;
    for (int i = 0; i < n->n_in; i++)
        prepare(w, n->in[i]);
    const int *times = map_get(w->in_numbers, n);
    if (n->n_in == 0 || !times || *times < 2)
        return;
    const Code c = code_scalar(e, "the optimizer", n);
    const char *name = names_take(e, w->names, n->name ? n->name : "n1");
    emit_statement(&w->numbers, INDENT,
                   emit_format(e, "const %s %s = %s;",
                               n->types[0]->dtype == DT_BOOL ? "bool" : "double", name, c.text));
    map_set(e->shared, n, (void *)(uintptr_t)name);
}

/* The name of n, or of 1 / n, as a constant of the loop. */
static const char *constant(RuleWriter *w, const Node *n, bool inverse)
{
    Emitter *e = w->e;
    const char *name = map_get(inverse ? w->inverse : w->constant, n);
    const DType t = type_in_loop(w, n);
    const bool real = dtype_is_real(t);
    if (name)
        return name;
    prepare(w, n);
    Code c = code_scalar(e, "the optimizer", n);
    if (n->op == OP_ARG && t == DT_F64 && !inverse)
        return w->number[n->attr.index];
    if (inverse) {
        const Code in[2] = { code_literal(e, 1, DT_F64), c };
        c = code_point(e, OP_DIV, in, 2);
    }
    if (n->op == OP_ARG && !inverse)
        name = names_take(e, w->names, emit_format(e, "%s_", w->number[n->attr.index]));
    else
        name = names_take(e, w->names,
                          n->name && !inverse ? n->name : emit_format(e, "c%d", ++w->n_constants));
    if (real)
        c = code_cast(e, c, DT_F64, t);
    emit_statement(&w->numbers, INDENT,
                   emit_format(e, "const %s %s = %s;", real ? e->real : "bool", name, c.text));
    map_set(inverse ? w->inverse : w->constant, n, (void *)(uintptr_t)name);
    return name;
}

/* ---- in the loop ---------------------------------------------------------------------------- */

static Code in_loop(RuleWriter *w, const Node *n);

static Code formula(RuleWriter *w, const Node *n)
{
    Emitter *e = w->e;
    Code in[4];
    if (n->op == OP_CAST)
        return code_cast(e, in_loop(w, n->in[0]), type_in_loop(w, n->in[0]), type_in_loop(w, n));
    if (!op_is(n, CLASS_POINT) || n->n_in > 4)
        bug("an optimizer with the op %s", op_row(n->op)->name);
    in[0] = in_loop(w, n->in[0]);
    if (n->op == OP_DIV && !map_get(w->varies, n->in[1]) && !is_literal(n->in[1])) {
        in[1] = code_plain(constant(w, n->in[1], true));
        return code_point(e, OP_MUL, in, 2);
    }
    for (int i = 1; i < n->n_in; i++)
        in[i] = in_loop(w, n->in[i]);
    return code_point(e, n->op, in, n->n_in);
}

static Code in_loop(RuleWriter *w, const Node *n)
{
    Emitter *e = w->e;
    const char *name = map_get(w->local, n);
    if (name)
        return code_plain(name);
    if (is_literal(n)) {
        while (n->op == OP_CAST)
            n = n->in[0];
        int64_t v = 0;
        if (n->op == OP_DIM)
            dim_value(n->attr.dim, &v);
        return code_literal(e, n->op == OP_DIM ? (double)v : n->attr.value, e->p->real);
    }
    if (!map_get(w->varies, n))
        return code_plain(constant(w, n, false));
    if (n->op == OP_ARG)
        return code_plain(w->element[n->attr.index]);
    const Code c = formula(w, n);
    const char *want = map_get(w->want, n);
    const int *uses = map_get(w->uses, n);
    if (!want && !n->name && *uses < 2)
        return c;
    name = names_take(e, w->names, want ? want : n->name ? n->name : "x");
    emit_statement(&w->body, 2 * INDENT,
                   emit_format(e, "const %s %s = %s;",
                               type_in_loop(w, n) == DT_BOOL ? "bool" : e->real, name, c.text));
    map_set(w->local, n, (void *)(uintptr_t)name);
    return code_plain(name);
}

static const Node *result_of(const RuleWriter *w, int k)
{
    for (int i = 0; i < w->rule->graph->sinks.len; i++)
        if (w->rule->graph->sinks.at[i].index == k)
            return w->rule->graph->sinks.at[i].node;
    bug("an optimizer without its result %d", k);
}

/* The states first, then the parameter, as they are declared. */
static void write_body(RuleWriter *w)
{
    Emitter *e = w->e;
    const DType half = e->p->narrow;
    Text stores = text_new(e->cx->scratch);
    for (int k = 0; k <= w->n_states; k++)
        look(w, result_of(w, k));
    for (int k = 0; k <= w->n_states; k++)
        if (!map_get(w->want, result_of(w, k)))
            map_set(w->want, result_of(w, k),
                    (void *)(uintptr_t)emit_format(e, "new_%s",
                                                   k ? e->p->train.states.at[k - 1] : "p"));
    for (int i = 1; i <= w->n_states + 1; i++) {
        const int k = i <= w->n_states ? i : 0;
        const char *value = in_loop(w, result_of(w, k)).text;
        text_add(&stores, "%*s%s = %s;\n", 2 * INDENT, "",
                 w->element[k ? RULE_STATES + k - 1 : RULE_P], value);
        if (k == 0 && copies(w))
            text_add(&stores, "%*scopy[i] = rt_to_%s(%s);\n", 2 * INDENT, "", dtype_name(half),
                     value);
    }
    text_put(&w->body, stores.at);
}

/* ---- the function --------------------------------------------------------------------------- */

static void name_arguments(RuleWriter *w)
{
    static const char *const given[] = { "p", "g", "lr", "decay", "t" };
    Emitter *e = w->e;
    const TrainSettings *t = &e->p->train;
    const int n = RULE_STATES + w->n_states + t->hypers.len;
    w->number = NEW_ARRAY(e->cx->scratch, const char *, n);
    w->element = NEW_ARRAY(e->cx->scratch, const char *, n);
    w->used = NEW_ARRAY(e->cx->scratch, bool, n);
    static const char *const fixed[] = { "u", "n", "i", "d_p", "copy", "factor" };
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        names_take_exact(e, w->names, fixed[i]);
    for (int i = 0; i < n; i++) {
        const int state = i - RULE_STATES;
        const char *name = i < RULE_STATES ? names_take_exact(e, w->names, given[i])
                           : state < w->n_states
                               ? names_take(e, w->names, t->states.at[state])
                               : names_take(e, w->names, t->hypers.at[state - w->n_states].name);
        w->number[i] = name;
        if (rule_arg_is_element(w->e->p, i))
            w->element[i] = i == RULE_G ? name : emit_format(e, "%s[i]", name);
    }
    e->arg = w->number;
}

/* const double lr = u->lr, beta1 = u->hyper[0].value; */
static void write_numbers(RuleWriter *w)
{
    static const char *const field[] = { NULL, NULL, "lr", "decay", "t" };
    Emitter *e = w->e;
    const int hyper = RULE_STATES + w->n_states, n = hyper + e->p->train.hypers.len;
    size_t column = 0;
    for (int i = RULE_LR; i < n; i++) {
        if (!w->used[i])
            continue;
        const char *one = i < RULE_STATES
                              ? emit_format(e, "%s = u->%s", w->number[i], field[i])
                              : emit_format(e, "%s = u->hyper[%d].value", w->number[i], i - hyper);
        const bool fits = column > 0 && column + strlen(one) + 3 <= COLUMNS;
        text_add(e->out, "%s%s",
                 fits     ? ", "
                 : column ? ";\n    const double "
                          : "    const double ",
                 one);
        column = (fits ? column + 2 : sizeof "    const double") + strlen(one);
    }
    text_put(e->out, column ? ";\n" : "");
}

static void write_pointers(RuleWriter *w)
{
    Emitter *e = w->e;
    const DType half = e->p->narrow;
    Text t = text_new(e->cx->scratch);
    text_add(&t, "%s *restrict %s = u->p", e->real, w->number[RULE_P]);
    for (int i = 0; i < w->n_states; i++)
        text_add(&t, ", *restrict %s = u->state[%d]", w->number[RULE_STATES + i], i);
    emit_statement(e->out, INDENT, emit_format(e, "%s;", t.at));
    if (copies(w))
        text_add(e->out, "    %s *restrict copy = u->copy;\n", c_type(e, half));
    if (map_get(w->uses, w->rule->graph->args.at[RULE_G]))
        text_add(e->out,
                 "    const %s *restrict d_p = u->d_p;\n    const %s factor = %su->factor;\n",
                 e->real, e->real, e->p->real == DT_F64 ? "" : "(float)");
}

static void write_comment(RuleWriter *w)
{
    Emitter *e = w->e;
    Text about = text_new(e->cx->scratch);
    const bool own = w->rule->span.file == e->p->file;
    text_add(e->out, "/* Each element is updated by %s%s%s%s, where g = factor * d_p:\n *\n",
             w->rule->name, own ? " (" : "", own ? source_where(e->cx, w->rule->span) : "",
             own ? ")" : "");
    for (const char *line = w->rule->text; *line;) {
        const size_t len = strcspn(line, "\n");
        emit_prose(
            e->out, " *     ", " *         ",
            emit_format(e, "%s\n", emit_comment(e, emit_format(e, "%.*s", (int)len, line), 400)));
        line += len + (line[len] == '\n');
    }
    text_put(e->out, " *\n");
    text_add(&about, "factor is %s%s; ",
             e->p->train.clip > 0 ? "min(1, clip / norm of the gradient)" : "1",
             e->p->narrow == DT_F16 ? ", divided by the loss scale that d_p still has" : "");
    if (w->used[RULE_DECAY])
        text_put(&about, "decay is .weight_decay for parameters marked .decay, else 0; ");
    if (w->used[RULE_T])
        text_put(&about, "t counts the updates from 1; ");
    text_put(&about, "what is the same for all elements is computed in double.");
    emit_prose(e->out, " * ", " * ", emit_format(e, "%s */\n", about.at));
}

void c_rule(Emitter *e)
{
    const UpdateRule *rule = &e->p->train.rule;
    Arena *a = e->cx->scratch;
    if (!rule->graph)
        return;
    RuleWriter w = { .e = e,
                     .rule = rule,
                     .n_states = e->p->train.states.len,
                     .names = names_new(e, e->file),
                     .varies = map_new(a),
                     .uses = map_new(a),
                     .in_numbers = map_new(a),
                     .prepared = map_new(a),
                     .constant = map_new(a),
                     .inverse = map_new(a),
                     .local = map_new(a),
                     .want = map_new(a),
                     .numbers = text_new(a),
                     .body = text_new(a) };
    e->shared = map_new(a);
    name_arguments(&w);
    write_body(&w);
    write_comment(&w);
    text_add(e->out, "static void %s_update(const RtUpdate *u)\n{\n", e->model);
    write_numbers(&w);
    text_put(e->out, w.numbers.at);
    write_pointers(&w);
    text_put(e->out, "    RT_SIMD()\n    for (ptrdiff_t i = 0; i < u->n; i++) {\n");
    if (map_get(w.uses, rule->graph->args.at[RULE_G]))
        text_add(e->out, "        const %s %s = factor * d_p[i];\n", e->real, w.number[RULE_G]);
    text_add(e->out, "%s    }\n}\n\n", w.body.at);
    e->shared = NULL;
}
