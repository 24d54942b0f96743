/* emit.h -- from kernels, steps and plan to the text of a program in the target's language.
 *
 * Names, comments and layout know no target; the files c_*.c know C. Nothing above this folder
 * knows a target.
 */
#ifndef GRADCC_EMIT_H
#define GRADCC_EMIT_H

#include "pass/kernel.h"

typedef struct {
    const char *command; /* "gradcc --emit=c models/tiny.model" */
    const char *version; /* of gradcc */
} EmitOptions;

/* A language that programs are emitted in. The pipeline calls through it. */
typedef struct {
    const char *name; /* of --target */
    int64_t align;    /* of buffers: RT_ALIGN of the runtime */
    /* What it needs from the plan besides, as more arguments of kernels: room for the partial sums
       of kernels that sum over rows beside other work. Runs between fuse and order. */
    void (*workspace)(KernelProgram *kp);
    /* The whole file. */
    void (*emit)(Text *out, KernelProgram *kp, const EmitOptions *opt);
} Target;

extern const Target target_c;    /* c.c */
extern const Target target_cuda; /* cu.c */

/* grad_text.c: the backward pass in the model's language (--emit=grad). */
void emit_grad(Text *out, Program *p);
/* types_text.c: what each value is in memory and in arithmetic (--emit=types). */
void emit_types(Text *out, KernelProgram *kp);
/* explain.c: bytes of a program by category, phase and line (--explain=memory). dims: "T=128"; a
   wrong one is reported. */
void explain_memory(Text *out, KernelProgram *kp, const char *const *dims, int n_dims);
/* explain_traffic.c: what the kernels of the CUDA target move, and launches
   (--explain=traffic). */
void explain_traffic(Text *out, KernelProgram *kp, const char *const *dims, int n_dims);

#endif
