/* simplify.h -- what the files of the simplify pass share; nobody else includes it.
 *
 * simplify_rules.c reads rules.def and applies its rows, simplify_view.c knows what moves elements,
 * simplify_move.c arithmetic on moved elements, simplify_range.c comparisons that are decided.
 * simplify.c puts them together, simplify_check.c tries the rows on numbers.
 */
#ifndef GRADCC_PASS_SIMPLIFY_H
#define GRADCC_PASS_SIMPLIFY_H

#include "op/op.h"
#include "pass/pass.h"

/* ---- simplify_rules.c ----------------------------------------------------------------------- */

typedef enum { RULE_EXACT, RULE_SIGN, RULE_NEAR, RULE_FAST } RuleKind;
typedef enum { PAT_OP, PAT_NAME, PAT_NUMBER } PatternKind;

typedef struct Pattern Pattern; /* one side of a rule, as a tree */
struct Pattern {
    PatternKind kind;
    Op op; /* PAT_OP, with the next two */
    int n_in;
    Pattern *in[3];
    char name;     /* PAT_NAME: x y z anything, c d truth, k l constant */
    double number; /* PAT_NUMBER */
};

typedef struct {
    Pattern *from, *to;
    const char *from_text, *to_text; /* the same as written */
    RuleKind kind;
} Rule;

/* All rows, and which of them begin with an op (numbers of rules, in order, ended by -1). */
typedef struct {
    Rule *rule;
    int n;
    int *by_op[OP_COUNT];
} Rules;

Rules *rules_read(Context *cx); /* rules.def; a mistake in it is a bug() */

/* ---- simplify.c ----------------------------------------------------------------------------- */

typedef struct {
    Context *cx;
    Rules *rules;
    bool fast;    /* FAST rules too */
    int depth;    /* of nested simplification, bounded */
    bool changed; /* something was */
} Simplify;

/* The best known node with the value of n. */
Node *simplify_node(Simplify *s, Graph *g, Node *n);
/* An op with simplified result. */
Node *simplify_make(Simplify *s, Graph *g, Op op, int n_in, Node *const *in, Span at);
/* n again over other inputs, simplified. */
Node *simplify_again(Simplify *s, Graph *g, const Node *n, Node *const *in);

/* What takes the place of n by a rule of the table; NULL when none fits. */
Node *simplify_by_rules(Simplify *s, Graph *g, Node *n);
/* The same for views, reductions and products of moved elements, pointwise ops of broadcasts. */
Node *simplify_view(Simplify *s, Graph *g, Node *n);
Node *simplify_gather(Simplify *s, Graph *g, Node *n);
Node *simplify_reduce(Simplify *s, Graph *g, Node *n);
Node *simplify_matmul(Simplify *s, Graph *g, Node *n);
Node *simplify_point_of_broadcast(Simplify *s, Graph *g, Node *n);
Node *simplify_point_of_units(Simplify *s, Graph *g, Node *n);
Node *simplify_narrow(Simplify *s, Graph *g, const Node *n);
Node *simplify_sum_of_negated(Simplify *s, Graph *g, const Node *n);
Node *simplify_sum_of_pads(Simplify *s, Graph *g, Node *n);
/* A comparison that the ranges of its operands decide, as a constant; NULL when they do not. */
Node *simplify_known(Graph *g, const Node *n);

static inline bool simplify_is_number(const Node *n, double value)
{
    return n->op == OP_CONST && n->attr.value == value;
}

#endif
