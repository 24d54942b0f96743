/* emit.h -- from kernels, steps and plan to the text of a program in the target's language.
 *
 * Names, comments and layout know no target; the files c_*.c know C. Nothing above this folder
 * knows a target.
 */
#ifndef GRADCC_EMIT_H
#define GRADCC_EMIT_H

#include "pass/kernel.h"

typedef struct {
    const char *command;                        /* "gradcc --emit=c models/tiny.model"          */
    const char *version;
    bool        trace;                          /* a line about each value, after each step     */
} EmitOptions;

/* c.c: the C file. */
void emit_c(Text *out, KernelProgram *kp, const EmitOptions *opt);
/* What the C target needs from the plan besides: room for partial sums, as one more argument of
   the kernels that sum over rows beside other work. Between fuse and order. */
void emit_c_workspace(KernelProgram *kp);

/* grad_text.c: the backward pass in the model's language (--emit=grad). */
void emit_grad(Text *out, Program *p);

#endif
