/* build.h -- the files beside the model, and the run of the C or CUDA compiler. */
#ifndef GRADCC_BUILD_H
#define GRADCC_BUILD_H

#include "options.h"

typedef struct { /* found beside the compiler's own binary; NULL = not there */
    const char *prelude, *include, *library, *libs;
    const char *cuda_library, *cuda_libs; /* of --target=cuda */
} Places;

Places build_find_places(Context *cx);
/* All or nothing: a temporary file beside path, then rename. False after a message. */
bool build_write_file(Context *cx, const char *path, const char *text, size_t len);
/* Compiles the emitted text and links it with the runtime. 0, or an exit code after a message. */
int build_program(Context *cx, const Options *opt, const Places *at, const Text *c,
                  const char *output);
/* The files read, as a make rule. */
void build_print_deps(Context *cx, const Options *opt, const char *target, Text *out);
bool build_same_file(const char *a, const char *b);             /* false if one is not there */
bool build_names_file(const char *pattern, const char *path);   /* is path one of these files? */
const char *build_output_name(Context *cx, const Options *opt); /* -o, or the model's stem */

#endif
