/* emit.h -- from kernels, steps and plan to the text of a program in the target's language.
 *
 * emit.c knows sections, names, comments and tables; a Target knows a language. Nothing above this
 * folder knows a target.
 */
#ifndef GRADCC_EMIT_H
#define GRADCC_EMIT_H

#include "pass/kernel.h"

typedef struct {
    const char *command;                        /* "gradcc --emit=c models/tiny.model"          */
    const char *version;
    bool        trace, line_directives;
} EmitOptions;

/* c.c: the C file. */
void emit_c(Text *out, KernelProgram *kp, const EmitOptions *opt);
/* text of the backward pass in the model's language (--emit=grad) */
void emit_grad(Text *out, Program *p);

#endif
