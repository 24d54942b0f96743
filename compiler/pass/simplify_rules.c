/* simplify_rules.c -- the table of algebra: read, matched, applied.
 *
 * In: rows of text (rules.def). Out: for a node, the node that may take its place.
 *
 * The idea: both sides of a row are small trees. The left one is laid over the graph, names stand
 * for the nodes they meet (a name that comes twice for the same node twice), and the right one is
 * built from them. Numbers take the dtype of what stands beside them.
 */
#include "pass/simplify.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading -------------------------------------------------------------------------------- */

typedef struct {
    Context *cx;
    const char *row, *at;
} Reader;

static Pattern *read_pattern(Reader *r);

static Pattern *read_op(Reader *r, const char *word, size_t len)
{
    Pattern *p = NEW(r->cx->scratch, Pattern);
    p->op = op_find(arena_strndup(r->cx->scratch, word, len));
    if (p->op == OP_COUNT)
        bug("rules.def: no op is called %.*s in %s", (int)len, word, r->row);
    do {
        r->at++; /* ( or , */
        if (p->n_in == 3)
            bug("rules.def: too many operands in %s", r->row);
        p->in[p->n_in++] = read_pattern(r);
    } while (*r->at == ',');
    if (*r->at != ')' || op_row(p->op)->arity != p->n_in)
        bug("rules.def: wrong operands of %s in %s", op_row(p->op)->name, r->row);
    r->at++;
    return p;
}

static Pattern *read_pattern(Reader *r)
{
    while (*r->at == ' ')
        r->at++;
    const char *word = r->at;
    if (isalpha((unsigned char)*word)) {
        while (isalpha((unsigned char)*r->at) || *r->at == '_')
            r->at++;
        if (*r->at == '(')
            return read_op(r, word, (size_t)(r->at - word));
        Pattern *p = NEW(r->cx->scratch, Pattern);
        p->kind = PAT_NAME;
        p->name = *word;
        if (r->at != word + 1 || !strchr("xyzcdkl", *word))
            bug("rules.def: a name is one of x y z c d k l: %s", r->row);
        return p;
    }
    char *end;
    Pattern *p = NEW(r->cx->scratch, Pattern);
    p->kind = PAT_NUMBER;
    p->number = strtod(word, &end);
    if (end == word)
        bug("rules.def: cannot read %s", r->row);
    r->at = end;
    return p;
}

static Pattern *read_side(Context *cx, const char *text)
{
    Reader r = { cx, text, text };
    Pattern *p = read_pattern(&r);
    if (*r.at)
        bug("rules.def: more text than one term: %s", text);
    return p;
}

Rules *rules_read(Context *cx)
{
    enum { EXACT = RULE_EXACT, SIGN = RULE_SIGN, NEAR = RULE_NEAR, FAST = RULE_FAST };
    static const struct {
        const char *from, *to;
        int kind;
    } rows[] = {
#define RULE(from, to, kind) { from, to, kind },
#include "pass/rules.def"
#undef RULE
    };
    Rules *rules = NEW(cx->scratch, Rules);
    rules->n = (int)(sizeof rows / sizeof rows[0]);
    rules->rule = NEW_ARRAY(cx->scratch, Rule, rules->n);
    for (int i = 0; i < rules->n; i++) {
        Rule *rule = &rules->rule[i];
        rule->from_text = rows[i].from;
        rule->to_text = rows[i].to;
        rule->from = read_side(cx, rows[i].from);
        rule->to = read_side(cx, rows[i].to);
        rule->kind = (RuleKind)rows[i].kind;
    }
    for (int op = 0; op < OP_COUNT; op++) {
        int n = 0;
        rules->by_op[op] = NEW_ARRAY(cx->scratch, int, rules->n + 1);
        for (int i = 0; i < rules->n; i++)
            if (rules->rule[i].from->op == (Op)op)
                rules->by_op[op][n++] = i;
        rules->by_op[op][n] = -1;
    }
    return rules;
}

/* ---- matching ------------------------------------------------------------------------------- */

enum { N_NAMES = 128 };
typedef struct {
    Node *node[N_NAMES];
} Binding;

static bool commutes(Op op)
{
    return op == OP_ADD || op == OP_MUL || op == OP_AND || op == OP_OR || op == OP_EQ
           || op == OP_NE;
}

static bool match_name(char name, Node *n, Binding *b)
{
    if (b->node[(int)name])
        return b->node[(int)name] == n;
    if ((name == 'k' || name == 'l') && n->op != OP_CONST)
        return false;
    if ((name == 'c' || name == 'd') != (n->type->dtype == DT_BOOL))
        return false;
    b->node[(int)name] = n;
    return true;
}

static bool match(const Pattern *p, Node *n, Binding *b)
{
    if (p->kind == PAT_NAME)
        return match_name(p->name, n, b);
    if (p->kind == PAT_NUMBER)
        return simplify_is_number(n, p->number) && signbit(n->attr.value) == signbit(p->number);
    if (n->op != p->op)
        return false;
    const Binding before = *b;
    for (int turn = 0; turn < (commutes(p->op) ? 2 : 1); turn++) {
        bool all = true;
        *b = before;
        for (int i = 0; all && i < p->n_in; i++)
            all = match(p->in[i], n->in[turn ? 1 - i : i], b);
        if (all)
            return true;
    }
    *b = before;
    return false;
}

/* ---- building ------------------------------------------------------------------------------- */

/* The dtype of a term where the place does not say it: that of any name in it. */
static DType dtype_within(const Pattern *p, const Binding *b, DType otherwise)
{
    if (p->kind == PAT_NAME)
        return b->node[(int)p->name]->type->dtype;
    for (int i = 0; i < p->n_in; i++)
        if (p->in[i]->kind != PAT_NUMBER)
            return dtype_within(p->in[i], b, otherwise);
    return otherwise;
}

static Node *build(Simplify *s, Graph *g, const Pattern *p, const Binding *b, DType t, Span at)
{
    if (p->kind == PAT_NAME)
        return b->node[(int)p->name];
    if (p->kind == PAT_NUMBER)
        return ir_const(g, t, p->number, at);
    Node *in[3];
    const bool compares = p->op == OP_EQ || p->op == OP_NE || p->op == OP_LT || p->op == OP_LE;
    for (int i = 0; i < p->n_in; i++) {
        DType of_in = p->op == OP_WHERE && i == 0 ? DT_BOOL : t;
        if (compares)
            of_in = dtype_within(p, b, t);
        in[i] = build(s, g, p->in[i], b, of_in, at);
    }
    return simplify_make(s, g, p->op, p->n_in, in, at);
}

Node *simplify_by_rules(Simplify *s, Graph *g, Node *n)
{
    for (const int *i = s->rules->by_op[n->op]; *i >= 0; i++) {
        const Rule *rule = &s->rules->rule[*i];
        Binding b = { { NULL } };
        if ((rule->kind == RULE_FAST && !s->fast) || !match(rule->from, n, &b))
            continue;
        Node *to = build(s, g, rule->to, &b, n->type->dtype, n->span);
        if (to->type->rank == 0 && n->type->rank)
            to = ir_broadcast(g, to, n->type->rank, n->type->dim, NULL, n->span);
        if (type_same(to->type, n->type))
            return to;
    }
    return NULL;
}
