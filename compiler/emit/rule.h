/* rule.h -- what the two targets share of an optimizer's update: rule.c finds what is the same for
 * all elements and writes the loop's body; c_rule.c and cu_rule.c put it into their functions.
 */
#ifndef GRADCC_EMIT_RULE_H
#define GRADCC_EMIT_RULE_H

#include "emit/parts.h"

typedef struct { /* computed before the loop: "float c1", "bool nesterov" */
    const char *type, *name;
} RuleConstant;

typedef struct {
    Emitter *e;
    const UpdateRule *rule;
    bool device; /* a block has four elements of a thread at a time, constants in shared
                             memory; else the loop goes over a piece */
    int n_states, n_constants;
    Names *names;
    const char **number;     /* of the arguments: names in double, of elements NULL */
    const char **element;    /* "p[i]", of numbers NULL */
    bool *used;              /* arguments that are read as numbers */
    bool powers;             /* u.power is */
    Map *varies;             /* Node -> "" if it depends on elements */
    Map *uses;               /* Node -> how often it is an operand, boxed */
    Map *in_numbers;         /* Node -> how often it is an operand of numbers, boxed */
    Map *prepared;           /* nodes of numbers that were looked at */
    Map *constant, *inverse; /* Node -> name of it, of 1 / it, before the loop */
    Map *local;              /* Node -> name in the loop */
    Map *want;               /* Node -> the name it should have there */
    VEC(RuleConstant) constants;
    Text numbers, body; /* statements before the loop, and in it */
} RuleWriter;

RuleWriter rule_new(Emitter *e, bool device);
void rule_body(RuleWriter *w);                     /* fills in numbers and body */
bool rule_copies(const RuleWriter *w);             /* p is written in 16 bits too */
bool rule_has_gradient(const RuleWriter *w);       /* it is read */
void rule_comment(RuleWriter *w, const char *how); /* how: of the launch; "" */
/* "const double a = x, b = y;" in as many lines as it takes, of the n items "a = x". */
void rule_declare(RuleWriter *w, int indent, const char *type, const char *const *one, int n);
/* const double lr = u->lr, beta1 = u->hyper[0].value; those that are used */
void rule_numbers(RuleWriter *w, int indent);

#endif
