/* options.h -- the command line of gradcc as a struct. */
#ifndef GRADCC_OPTIONS_H
#define GRADCC_OPTIONS_H

#include "base/base.h"
#include "front/sem.h"

typedef enum {
    EMIT_EXE,
    EMIT_AST,
    EMIT_IR,
    EMIT_GRAD,
    EMIT_PLAN,
    EMIT_C,
    EMIT_TYPES,
    EMIT_CUDA
} EmitKind;
typedef enum { TARGET_UNSET = -1, TARGET_C, TARGET_CUDA } TargetKind;
typedef enum { EXPLAIN_NOTHING, EXPLAIN_MEMORY, EXPLAIN_RECOMPUTE, EXPLAIN_TRAFFIC } ExplainKind;
/* In the order of the words of precision = in the train block. */
typedef enum {
    PRECISION_UNSET = -1,
    PRECISION_FP32,
    PRECISION_FP64,
    PRECISION_BF16,
    PRECISION_FP16
} Precision;
typedef enum { MASTERS_UNSET, MASTERS_FP32, MASTERS_NONE } Masters;
typedef enum { DEPS_NONE, DEPS_ONLY, DEPS_BESIDE } DepsKind;

typedef VEC(const char *) TextList;

typedef struct {
    const char *input;               /* a path, or "-" */
    const char *output;              /* -o, or NULL */
    int emit;                        /* EmitKind */
    bool emit_set;                   /* --emit was given */
    int target;                      /* TargetKind; set by --emit=cuda too */
    bool ir;                         /* the input is IR text */
    int precision;                   /* Precision */
    const char *recompute;           /* --recompute, or NULL */
    int masters;                     /* Masters */
    int explain;                     /* ExplainKind */
    TextList dims;                   /* --dims: "T=128" */
    long head_rows;                  /* -1: as the train block says */
    int level;                       /* -O */
    bool unoptimised;                /* -O0 */
    VEC(Define) defines;             /* -D */
    TextList include_dirs;           /* -I */
    TextList dump_after, skip, only; /* names of passes, as the next one */
    const char *stop_after;
    bool list_ops, list_passes, check_rules, time_passes, help, version;
    const char *cc, *cflags, *march;     /* of the C compiler */
    const char *nvcc, *cuda_arch;        /* of the CUDA compiler; NULL: not given */
    long error_limit;                    /* 0 = none */
    bool no_warnings;                    /* -w */
    TextList quiet;                      /* -Wno-GROUP */
    int colour;                          /* -1 auto, 0 never, 1 always */
    int deps;                            /* DepsKind */
    const char *deps_file, *deps_target; /* -MF, -MT; or NULL */
    bool deps_phony;                     /* -MP */
    const char *command;                 /* what matters of the command line, for the file */
} Options;

/* False after a usage error, which is printed to stderr. */
bool options_parse(Context *cx, int argc, char **argv, Options *opt);
void options_help(FILE *out); /* --help */

#endif
