/* step.h -- what c_step.c (functions of steps), c_operand.c (their pointers) and c_check.c (a look
 * at what they wrote) share. */
#ifndef GRADCC_EMIT_STEP_H
#define GRADCC_EMIT_STEP_H

#include "emit/parts.h"

typedef struct { /* a call and what is said of it */
    const char *left, *comment;
    const char *heading; /* lines of the model above it, or NULL */
    bool check;          /* RT_CHECK of the call before */
} Row;

/* A function under construction: the steps of a routine, or of the body of a loop. */
typedef struct Function Function;
struct Function {
    Emitter *e;
    const Routine *r;            /* whose steps they are */
    const char *part;            /* "forward", "backward", "evaluate", ... */
    int depth;                   /* enclosing loops */
    const Loop *loop[DEPTH_MAX]; /* these */
    const Step *step;            /* of the outermost */
    const char *var[DEPTH_MAX];  /* their variables */
    FunctionHead *head;          /* what it needs */
    Names *names;                /* of the function */
    DimScope dims;
    Map *local; /* Buffer -> name of its pointer */
    /* Buffer -> itself, where the pointer stands at the start: calls add the iterations */
    Map *moving;
    Text pointers; /* declarations, with a tab before the comment */
    VEC(Row) rows;
    Map *base; /* group name -> name of its pointer */
};

bool loop_is_wide(const Function *f, int depth); /* its variable is ptrdiff_t */
/* Declares what the operands of these steps need, loops inside left out. */
void operands_declare(Function *f, const Steps *steps, bool backward);
/* What an operand is in one iteration: without the axes that its loops run along. */
const Type *operand_type(Function *f, const Operand *o);
const char *operand_text(Function *f, const Operand *o); /* as an argument of a call */
/* c_step.c: a condition: this product's epilogue was done. */
const char *step_is_done(Function *f, const Step *product);
/* c_check.c: a line for each value that the step writes; which repetition it is. */
void check_step(Function *f, const Step *s);
void check_repetition(Function *f);
/* c_ready.c: a line behind the step, or behind each repetition of that loop, if a gradient is
   complete there. */
void ready_mark(Function *f, const Step *s, bool each);
/* c_params.c: the first element of a parameter in the flat buffer. */
const char *c_param_start(Emitter *e, int index);

#endif
