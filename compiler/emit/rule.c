/* rule.c -- the update of an element of the parameters, for both targets.
 *
 * In: the optimizer's rule, a graph of scalars. Out: statements of what depends on numbers alone,
 * and of the loop's body behind them. The one idea: numbers are computed before the loop, in
 * double, and rounded once; x / number becomes a product with 1 / number.
 */
#include "emit/rule.h"
#include "op/op.h"

#include <string.h>

/* ---- which nodes are what ------------------------------------------------------------------- */

/* p is written in 16 bits too. */
bool rule_copies(const RuleWriter *w)
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

bool rule_has_gradient(const RuleWriter *w)
{
    return map_get(w->uses, w->rule->graph->args.at[RULE_G]) != NULL;
}

static int indent_before(const RuleWriter *w) { return w->device ? 2 * INDENT : INDENT; }
static int indent_loop(const RuleWriter *w) { return w->device ? 3 * INDENT : 2 * INDENT; }

/* ---- before the loop ------------------------------------------------------------------------ */

/* A number of the optimizer to the power of the update's, which a GPU has computed once: its number
   among them; -1: n is something else. */
static int power_of(const RuleWriter *w, const Node *n)
{
    const int first = RULE_STATES + w->n_states;
    const bool power = w->device && n->op == OP_POW && n->in[0]->op == OP_ARG
                       && n->in[1]->op == OP_ARG && n->in[1]->attr.index == RULE_T;
    return power && n->in[0]->attr.index >= first ? n->in[0]->attr.index - first : -1;
}

/* Marks the numbers that n is made of as read, and computes what it needs more than once. */
static void prepare(RuleWriter *w, const Node *n)
{
    Emitter *e = w->e;
    if (map_get(w->prepared, n))
        return;
    map_set(w->prepared, n, (void *)(uintptr_t)1);
    if (n->op == OP_ARG)
        w->used[n->attr.index] = true;
    const int power = power_of(w, n);
    if (power >= 0) {
        w->powers = true;
        map_set(e->shared, n, (void *)(uintptr_t)emit_format(e, "u.power[%d]", power));
        return;
    }
    for (int i = 0; i < n->n_in; i++)
        prepare(w, n->in[i]);
    const int *times = map_get(w->in_numbers, n);
    if (n->n_in == 0 || !times || *times < 2)
        return;
    const Code c = code_scalar(e, "the optimizer", n);
    const char *name = names_take(e, w->names, n->name ? n->name : "n1");
    emit_statement(&w->numbers, indent_before(w),
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
    if (n->op == OP_ARG && t == DT_F64 && !inverse && !w->device)
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
    const RuleConstant made = { real ? e->real : "bool", name };
    vec_push(e->cx->scratch, &w->constants, made);
    emit_statement(&w->numbers, indent_before(w),
                   w->device ? emit_format(e, "now.%s = %s;", name, c.text)
                             : emit_format(e, "const %s %s = %s;", made.type, name, c.text));
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
    emit_statement(&w->body, indent_loop(w),
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

/* What the result k is stored as; of another buffer that is its old element, which may be stored
   before. */
static const char *new_value(RuleWriter *w, int k, int to)
{
    Emitter *e = w->e;
    const Node *n = result_of(w, k);
    const char *value = in_loop(w, n).text;
    if (n->op != OP_ARG || !w->element[n->attr.index] || n->attr.index == to)
        return value;
    const char *name = names_take(e, w->names, map_get(w->want, n));
    emit_statement(&w->body, indent_loop(w),
                   emit_format(e, "const %s %s = %s;", e->real, name, value));
    return name;
}

/* The states first, then the parameter, as they are declared. */
void rule_body(RuleWriter *w)
{
    Emitter *e = w->e;
    const int indent = indent_loop(w);
    Text stores = text_new(e->cx->scratch);
    for (int k = 0; k <= w->n_states; k++)
        look(w, result_of(w, k));
    for (int k = 0; k <= w->n_states; k++)
        if (!map_get(w->want, result_of(w, k)))
            map_set(w->want, result_of(w, k),
                    (void *)(uintptr_t)emit_format(e, "new_%s",
                                                   k ? e->p->train.states.at[k - 1] : "p"));
    if (rule_has_gradient(w))
        text_add(&w->body, "%*sconst %s %s = factor * d_p[%s];\n", indent, "", e->real,
                 w->number[RULE_G], w->device ? "k" : "i");
    for (int i = 1; i <= w->n_states + 1; i++) {
        const int k = i <= w->n_states ? i : 0, to = k ? RULE_STATES + k - 1 : RULE_P;
        const char *value = new_value(w, k, to);
        text_add(&stores, "%*s%s = %s;\n", indent, "", w->element[to], value);
        if (k == 0 && !w->device && rule_copies(w))
            text_add(&stores, "%*scopy[i] = rt_to_%s(%s);\n", indent, "", dtype_name(e->p->narrow),
                     value);
    }
    text_put(&w->body, stores.at);
}

/* ---- around the loop ------------------------------------------------------------------------ */

static void name_arguments(RuleWriter *w)
{
    static const char *const given[] = { "p", "g", "lr", "decay", "t" };
    Emitter *e = w->e;
    const TrainSettings *t = &e->p->train;
    const int n = RULE_STATES + w->n_states + t->hypers.len;
    w->number = NEW_ARRAY(e->cx->scratch, const char *, n);
    w->element = NEW_ARRAY(e->cx->scratch, const char *, n);
    w->used = NEW_ARRAY(e->cx->scratch, bool, n);
    static const char *const fixed[] = { "u", "n", "i", "d_p", "copy", "factor", "k", "q", "now" };
    for (int i = 0; i < (w->device ? 9 : 6); i++)
        names_take_exact(e, w->names, fixed[i]);
    for (int i = 0; i < n; i++) {
        const int state = i - RULE_STATES;
        const char *name = i < RULE_STATES ? names_take_exact(e, w->names, given[i])
                           : state < w->n_states
                               ? names_take(e, w->names, t->states.at[state])
                               : names_take(e, w->names, t->hypers.at[state - w->n_states].name);
        w->number[i] = name;
        if (rule_arg_is_element(w->e->p, i))
            w->element[i] = i == RULE_G ? name
                                        : emit_format(e, w->device ? "%s[k]" : "%s[i]", name);
    }
    e->arg = w->number;
}

/* "const double lr = u->lr, t = u->t;", in as many lines as it takes. */
void rule_declare(RuleWriter *w, int indent, const char *type, const char *const *one, int n)
{
    Text *out = w->e->out;
    const size_t start = (size_t)indent + strlen(type) + 1;
    size_t column = 0;
    for (int i = 0; i < n; i++) {
        const bool fits = column > 0 && column + strlen(one[i]) + 3 <= COLUMNS;
        text_put(out, fits ? ", " : column ? ";\n" : "");
        if (!fits)
            text_add(out, "%*s%s ", indent, "", type);
        text_put(out, one[i]);
        column = (fits ? column + 2 : start) + strlen(one[i]);
    }
    text_put(out, column ? ";\n" : "");
}

void rule_numbers(RuleWriter *w, int indent)
{
    static const char *const on_host[] = { "u->lr", "u->decay", "u->t" };
    static const char *const on_device[] = { "u.s->lr * q.rate", "q.decay",
                                             "(double)(u.s->applied + 1)" };
    Emitter *e = w->e;
    const int hyper = RULE_STATES + w->n_states, n = hyper + e->p->train.hypers.len;
    const char *const *field = w->device ? on_device : on_host;
    const char *of_hyper = w->device ? "u.hyper[%d]" : "u->hyper[%d].value";
    const char **one = NEW_ARRAY(e->cx->scratch, const char *, n);
    int count = 0;
    for (int i = RULE_LR; i < n; i++)
        if (w->used[i])
            one[count++] = emit_format(e, "%s = %s", w->number[i],
                                       i < RULE_STATES ? field[i - RULE_LR]
                                                       : emit_format(e, of_hyper, i - hyper));
    rule_declare(w, indent, "const double", one, count);
}

void rule_comment(RuleWriter *w, const char *how)
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
    if (w->used[RULE_T] || w->powers)
        text_put(&about, "t counts the updates from 1; ");
    if (w->powers)
        text_put(&about, "u.power[k] is u.hyper[k]^t, computed once; ");
    text_put(&about, "what is the same for all elements is computed in double.");
    emit_prose(e->out, " * ", " * ", emit_format(e, "%s%s\n", about.at, *how ? "" : " */"));
    if (*how)
        emit_prose(e->out, " * ", " * ", emit_format(e, "%s */\n", how));
}

RuleWriter rule_new(Emitter *e, bool device)
{
    Arena *a = e->cx->scratch;
    RuleWriter w = { .e = e,
                     .rule = &e->p->train.rule,
                     .device = device,
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
    return w;
}
