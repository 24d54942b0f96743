/* toolchain.h -- how the compiler of emitted text is called: cc for C, nvcc for CUDA. */
#ifndef GRADCC_TOOLCHAIN_H
#define GRADCC_TOOLCHAIN_H

#include "build.h"

/* False after a message: what the target needs is not here. */
bool toolchain_is_here(Context *cx, const Options *opt, const Places *at);
const char *toolchain_ending(const Options *opt); /* of a source file: ".c" */
/* The words of the call that makes a program of source, ending with NULL; none after a message. */
TextList toolchain_call(Context *cx, const Options *opt, const Places *at, const char *source,
                        const char *output);
/* ... of a call that only asks whether a text compiles, by the usual compiler, without the flags of
   the user. */
TextList toolchain_trial(Context *cx, const Options *opt, const Places *at, const char *source);
const char *toolchain_usual(Context *cx, const Options *opt); /* that compiler: "cc" */
/* A text that any compiler of the language takes. */
const char *toolchain_simplest(const Options *opt);
/* Did the user set anything that the call above leaves out? */
bool toolchain_is_own(const Options *opt);

#endif
