/* partial.c -- partial derivatives of pointwise ops, from the texts of their rows to IR.
 *
 * In: "1 - $r * $r" and the nodes of operands and result. Out: the nodes of that expression. The
 * texts know numbers, $0 $1 $2 and $r, + - * /, comparisons, and calls of ops by name; a truth
 * value that meets arithmetic counts as 1 or 0. The parser is a recursive descent, one function
 * per level of precedence.
 */
#include "op/op.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *text, *at; /* the partial; the next character */
    Graph *g;
    DType dtype; /* of operands and numbers */
    Node *const *in;
    Node *result;
    Span span;
} Reader;

static Node *read_compare(Reader *r);

static bool accept(Reader *r, const char *token)
{
    while (*r->at == ' ')
        r->at++;
    size_t len = strlen(token);
    if (strncmp(r->at, token, len) != 0)
        return false;
    r->at += len;
    return true;
}

static void expect(Reader *r, const char *token)
{
    if (!accept(r, token))
        bug("partial '%s': '%s' is missing at '%s'", r->text, token, r->at);
}

static Node *as_number(Reader *r, Node *n) { return ir_cast(r->g, n, r->dtype, r->span); }

static Node *arithmetic(Reader *r, Op op, Node *a, Node *b)
{
    return ir_binary(r->g, op, as_number(r, a), as_number(r, b), r->span);
}

static Node *read_call(Reader *r)
{
    const char *start = r->at;
    char name[32];
    Node *in[4];
    int n = 0;
    while (isalnum((unsigned char)*r->at) || *r->at == '_')
        r->at++;
    size_t len = (size_t)(r->at - start);
    if (len == 0 || len >= sizeof name)
        bug("partial '%s': an operand is missing at '%s'", r->text, start);
    memcpy(name, start, len);
    name[len] = '\0';
    Op op = op_find(name);
    if (op == OP_COUNT)
        bug("partial '%s': no op '%s'", r->text, name);
    expect(r, "(");
    do
        in[n++] = read_compare(r);
    while (n < 3 && accept(r, ","));
    expect(r, ")");
    for (int i = op == OP_WHERE; i < n; i++)
        in[i] = as_number(r, in[i]);
    return ir_node(r->g, op, n, in, NULL, r->span);
}

static Node *read_primary(Reader *r)
{
    if (accept(r, "(")) {
        Node *n = read_compare(r);
        expect(r, ")");
        return n;
    }
    if (accept(r, "$r"))
        return r->result;
    if (accept(r, "$"))
        return r->in[*r->at++ - '0'];
    if (isdigit((unsigned char)*r->at)) {
        char *end;
        double value = strtod(r->at, &end);
        r->at = end;
        return ir_const(r->g, r->dtype, value, r->span);
    }
    return read_call(r);
}

static Node *read_unary(Reader *r)
{
    if (!accept(r, "-"))
        return read_primary(r);
    while (*r->at == ' ')
        r->at++;
    if (isdigit((unsigned char)*r->at)) {
        char *end;
        double value = strtod(r->at, &end);
        r->at = end;
        return ir_const(r->g, r->dtype, -value, r->span);
    }
    return ir_unary(r->g, OP_NEG, as_number(r, read_unary(r)), r->span);
}

/* part, then any of two signs and another part, from left to right. */
static Node *read_chain(Reader *r, Node *(*read_part)(Reader *), const char *const *sign,
                        const Op *op)
{
    Node *n = read_part(r);
    for (;;) {
        const int i = accept(r, sign[0]) ? 0 : accept(r, sign[1]) ? 1 : -1;
        if (i < 0)
            return n;
        n = arithmetic(r, op[i], n, read_part(r));
    }
}

static Node *read_product(Reader *r)
{
    return read_chain(r, read_unary, (const char *[]){ "*", "/" }, (Op[]){ OP_MUL, OP_DIV });
}

static Node *read_sum(Reader *r)
{
    return read_chain(r, read_product, (const char *[]){ "+", "-" }, (Op[]){ OP_ADD, OP_SUB });
}

static Node *read_compare(Reader *r)
{
    static const struct {
        const char *token;
        Op op;
        bool swap;
    } compare[] = {
        { "==", OP_EQ, false }, { "!=", OP_NE, false }, { "<=", OP_LE, false },
        { ">=", OP_LE, true },  { "<", OP_LT, false },  { ">", OP_LT, true },
    };
    Node *a = read_sum(r);
    for (size_t i = 0; i < sizeof compare / sizeof *compare; i++)
        if (accept(r, compare[i].token)) {
            Node *b = read_sum(r);
            return compare[i].swap ? arithmetic(r, compare[i].op, b, a)
                                   : arithmetic(r, compare[i].op, a, b);
        }
    return a;
}

Node *op_partial(Graph *g, const Node *n, int input, Node *const *in, Node *result, Span at)
{
    const OpRow *row = op_row(n->op);
    const char *text = row->deriv == DERIV_PARTIALS && input < 3 ? row->partial[input] : NULL;
    if (!text || !*text)
        return NULL;
    Reader r = { text, text, g, n->type->dtype, in, result, at };
    Node *p = read_compare(&r);
    if (*r.at)
        bug("partial '%s' of %s: what is '%s'", text, row->name, r.at);
    return as_number(&r, p);
}

Node *op_unbroadcast(Graph *g, Node *d, const Type *operand, Span at)
{
    static const int all[RANK_MAX] = { 0, 1, 2, 3, 4, 5, 6, 7 };
    if (operand->rank > 0 || d->type->rank == 0)
        return d;
    return ir_reduce(g, OP_SUM, d, d->type->rank, all, at);
}
