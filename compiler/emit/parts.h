/* parts.h -- what the files of this folder know of each other.
 *
 * An Emitter writes one file. Text is made inside out: the body of a function first, which records
 * the sizes and step values it uses, then its head with exactly those as parameters.
 */
#ifndef GRADCC_EMIT_PARTS_H
#define GRADCC_EMIT_PARTS_H

#include "emit/emit.h"

enum { COLUMNS = 100, INDENT = 4 };

/* A scope of identifiers: what is taken in it or around it gets another name. */
typedef struct Names Names;
struct Names {
    const Names *outer; /* around it, or NULL */
    Map *taken;         /* interned name -> itself */
};

typedef struct { /* of the table of steps */
    int step;
    const char *text;
} StepRow;

typedef struct Emitter Emitter;

typedef struct { /* what differs from target to target */
    bool cuda;
    const char *ending, *header;           /* ".c", "rt.h" */
    const char *how_to_read;               /* of the functions of section 4, behind the notation */
    void (*kernel)(Emitter *e, Kernel *k); /* of section 4: comment and functions */
    void (*rule)(Emitter *e);              /* of section 7: the update of elements */
} Language;

struct Emitter {
    const Language *language;
    bool cuda; /* as the language says */
    Context *cx;
    KernelProgram *kp;
    Program *p;
    const EmitOptions *opt;
    Text *out;                    /* the file so far */
    const char *model;            /* identifier of the model */
    const char *real, *suffix;    /* "float", "f32" */
    Names *file;                  /* identifiers of the whole file */
    const char **symbol;          /* by symbol id */
    const char **param, **group;  /* P_ names by index */
    const char **slot;            /* S_ names by mean slot */
    const char **input, **output; /* names of the pointers */
    const char **metric;          /* identifiers by index */
    Map *kernel_name;             /* Kernel -> "k3_x" */
    Map *kernel_undone;           /* backward Kernel -> its first Step */
    Map *field;                   /* arena Buffer -> its name in the plan struct */
    Map *call_dims;               /* Kernel -> KernelHead */
    const char *const *arg;       /* in code_scalar: names of the graph's arguments */
    Map *shared;                  /* the same: Node -> name of what is computed already; or NULL */
    Map *group_list;              /* "0, 1, 1", groups of repetitions -> its array */
    Map *loops;         /* Step of a loop -> LoopFunction, for its twin in another routine */
    VEC(StepRow) steps; /* of training */
    struct {            /* the kernel of a GPU with the most shared memory for a row; or NULL */
        const char *kernel, *bytes, *where;
        int row_bytes;
    } code;
};

/* c.c: the whole file. */
void emit_file(Text *out, KernelProgram *kp, const EmitOptions *opt, const Language *language);

/* ---- emit.c: names, comments, layout -------------------------------------------------------- */

const char *emit_format(Emitter *e, const char *fmt, ...) PRINTF_LIKE(2, 3); /* in scratch */
Names *names_new(Emitter *e, const Names *outer);                            /* an empty scope */
/* An identifier made from what is wanted: reserved words get a trailing underscore, taken names a
   number. The result is taken in n. */
const char *names_take(Emitter *e, Names *n, const char *want);
const char *names_take_exact(Emitter *e, Names *n, const char *want); /* reserved or not */
bool names_taken(Emitter *e, const Names *n, const char *name);
const char *emit_identifier(Emitter *e, const char *want); /* only the letters, no scope */
bool emit_is_reserved(const char *name);

/* Text that may stand inside a comment; at most `width` columns, cut with "...". */
const char *emit_comment(Emitter *e, const char *s, size_t width);
const char *emit_source_line(Emitter *e, Span at);  /* its text, without the comment behind it */
const char *emit_string(Emitter *e, const char *s); /* "..." with escapes, NULL for NULL */
const char *emit_number(Emitter *e, double v);      /* a double literal */
const char *emit_bytes(Emitter *e, int64_t bytes);  /* "1.5 MiB" */
const char *emit_count(Emitter *e, int64_t n);      /* "124,439,808" */
const char *emit_shape(Emitter *e, const Type *t);  /* "[B,T,C]", "scalar" */
/* "head(a, b, c)tail", with the arguments wrapped and aligned behind the parenthesis. */
void emit_call(Text *t, int indent, const char *head, const char *const *arg, int n,
               const char *tail);
/* One statement, broken at spaces where it is too long. */
void emit_statement(Text *t, int indent, const char *s);
/* Prose, broken at spaces; each line begins with `first` or `later`. */
void emit_prose(Text *t, const char *first, const char *later, const char *s);
/* The line above a section. */
void emit_banner(Emitter *e, int number, const char *title);
/* Comments of consecutive lines, aligned: left \t comment. Lines without a tab are left alone. */
void emit_aligned(Text *t, const char *lines, size_t least);

/* ---- dims.c: sizes as C expressions --------------------------------------------------------- */

typedef struct {
    Emitter *e;
    const char *prefix; /* of run-time dims: "n." or "" */
    bool *used;         /* by symbol id */
} DimScope;

DimScope dim_scope(Emitter *e, const char *prefix);
const char *dim_c(DimScope *s, const Dim *d);         /* an expression */
const char *dim_c_factor(DimScope *s, const Dim *d);  /* ... that may stand beside * */
const char *dim_c_divisor(DimScope *s, const Dim *d); /* ... behind / and % */
bool dim_any_used(const DimScope *s);
bool dim_is(const Dim *d, int64_t value);    /* d is that number (NULL is 0) */
bool dim_fits_int(Emitter *e, const Dim *d); /* const, and no more than INT_MAX */
const Dim *dim_one(Emitter *e);
int64_t emit_train_value(Emitter *e, const Dim *d); /* at the training dims */

/* ---- kernels -------------------------------------------------------------------------------- */

typedef enum { FLAG_ADD, FLAG_LATER, FLAG_ADD_LATER, N_FLAGS } Flag;

/* What a kernel's function takes besides its pointers, in this order. */
typedef struct {
    int *order; /* pointer arguments as printed */
    int n_args;
    bool *seed;                                       /* by slot */
    bool iter[DEPTH_MAX], key, sample, flag[N_FLAGS]; /* iterations and values of the step */
    bool *dim;                                        /* by symbol id */
} KernelHead;

typedef struct { /* a kernel's function under construction */
    Emitter *e;
    Kernel *k;
    Names *names;                /* of the function */
    const char **arg;            /* C names of the pointers */
    const char *iter[DEPTH_MAX]; /* C names of the iterations */
    KernelHead *head;            /* what the body has used so far */
    DimScope dims;
    Text body;
} KernelWriter;

void c_link_kernels(Emitter *e); /* c_kernel.c: what backward kernels undo */
const char *c_kernel_lines(Emitter *e, const Kernel *k); /* "tiny.model:8, 9" */
void c_kernel(Emitter *e, Kernel *k);                    /* comment and function */
/* Its parts, which the targets share. A writer with names for all that the kernel has; the kernel
   whose lines it works for, backward that which it undoes, and these lines; the comment, `launch`
   its last words or NULL; the name of its host function. */
KernelWriter kernel_writer(Emitter *e, Kernel *k);
const Kernel *kernel_of_lines(Emitter *e, const Kernel *k);
const char *kernel_where(Emitter *e, const Kernel *k);
void kernel_comment(Emitter *e, const Kernel *k, const char *launch);
const char *kernel_function(Emitter *e, const Kernel *k);
/* Does it take values of the step that the device knows: seeds, key, sample? */
bool kernel_reads_step(const Emitter *e, const KernelHead *h);
void c_map(KernelWriter *w);                /* c_map.c: loops */
bool c_map_needs_partials(const Kernel *k); /* sums over rows beside other work */
void c_call(KernelWriter *w);               /* c_call.c: runtime calls, scatter */
/* The statement that asks what a call works in; "": nothing, it is loops. starts: name of the
   places where a product's operands begin, or NULL. */
const char *c_call_room(Emitter *e, DimScope *dims, const Kernel *k, const char *starts,
                        int indent);
const char *c_type(const Emitter *e, DType t); /* of elements */
/* The condition under which an addition happens, or NULL where it always or never does. */
const char *c_flag(KernelWriter *w, AddKind add);

/* ---- sections ------------------------------------------------------------------------------- */

/* "(Dims)", in C++ "Dims": before { } of its fields, as an expression */
const char *c_literal(Emitter *e, const char *type);

typedef struct { /* what c_alive has written */
    int lines, step;
} Fullest;

void c_name_all(Emitter *e);                  /* c_head.c: identifiers of the whole file */
void c_head(Emitter *e);                      /* the comment at the top */
void c_dimensions(Emitter *e);                /* section 1 */
const Dim *c_count_parameters(Emitter *e);    /* elements of the flat buffer */
const Dim *c_count_halves(Emitter *e);        /* those of them that p16 alone holds */
const Dim *c_param_at(Emitter *e, int index); /* first element of a parameter, or of its first
                                                 repetition (c_params.c) */
const char *c_part_function(Emitter *e, const Symbol *s); /* gives the sizes of one part */
const char *c_training_dims(Emitter *e);                  /* "B = 32, T = 128" */
typedef struct {
    int step;  /* of the backward pass, behind which a gradient is complete; 0: there is none */
    bool each; /* behind that of each repetition of the outermost stack, not of all */
} Ready;
Ready c_ready(Emitter *e, int param); /* c_ready.c */
void c_parameters(Emitter *e);        /* c_params.c: section 2 */
void c_memory(Emitter *e);            /* c_memory.c: section 3 */
void c_slots(Emitter *e);             /* c_step.c: places of the means */
void c_fixed_sizes(Emitter *e);       /* c_head.c: they may not be edited */
void c_forward(Emitter *e);           /* sections 5 and 6 */
void c_backward(Emitter *e);
void c_step(Emitter *e);                  /* c_update.c: section 7 */
void c_rule(Emitter *e);                  /* c_rule.c: the function of an update of elements */
const char *c_schedule_prose(Emitter *e); /* c_schedule.c: how the rate runs, a sentence */
void c_rate(Emitter *e);                  /* the function of a rate that is a formula */
void c_schedule_rows(Emitter *e);         /* of .train */
bool c_steps(Emitter *e);                 /* c_check.c: its table of steps; false: none */
Fullest c_alive(Emitter *e);              /* c_alive.c: what the fullest step holds */
void c_table(Emitter *e);                 /* c_table.c: section 8 */
bool c_rooms(Emitter *e);                 /* c_rooms.c: its function of rooms; false: none */
extern const char *const c_entry_name[];  /* of RtEntry: training, evaluation, outputs, counts */

/* Values of all symbols at the sizes that --dims gives; NULL: an error was reported. *text: of
   program_sizes_text. */
const int64_t *explain_sizes(Emitter *e, const char *const *dims, int n_dims, const char **text);

/* explain.c: what is alive in the fullest step of training, by the line of the model that computes
   it, the largest first at the training dims. Returns the lines; *step may become NULL. */
typedef struct {
    const char *where, *names; /* "gpt2.model:12", "h_ln_1, h_x" */
    const Buffer **place;
    int n_places;
} AliveLine;
int explain_alive(Emitter *e, AliveLine **alive, const Step **step);

/* Names of what a routine is called in the file: "Plan", "chargpt_plan", "chargpt_forward". */
const char *routine_plan_type(Emitter *e, const Routine *r);
const char *routine_plan_function(Emitter *e, const Routine *r);
bool routine_has_arena(const Routine *r);            /* does any buffer lie in it? */
bool routine_is_part(Emitter *e, const Routine *r);  /* do the outputs need less than its plan? */
const char *plan_field(Emitter *e, const Buffer *b); /* its name in the plan struct */
const char *c_place_size(Emitter *e, DimScope *s, const Buffer *b); /* "RT_SIZE(float, n.B*C)" */
const char *c_buffer_shape(Emitter *e, const Buffer *b); /* "[B,T,C]", "[RT_CHUNKS,4*C]" */

/* Which values of a step a function needs. */
typedef struct {
    bool p, p16, d_p, arena, s, n; /* of RtRun; RtStep; Dims */
    bool stream;                   /* launches something, in CUDA */
    bool sums;                     /* writes to s->sum or s->count */
    bool *input, *output;          /* by index */
} FunctionHead;
/* Of the function that does a part of r: "forward", "backward", "evaluate". */
FunctionHead *function_head(Emitter *e, const Routine *r, const char *part);
/* The arguments of a call from the step: run->p and so on. */
void function_call(Emitter *e, Text *t, int indent, const Routine *r, const char *part);

/* ---- expr.c: pointwise code of the op table as C -------------------------------------------- */

typedef enum {
    PREC_NONE,
    PREC_COND,
    PREC_OR,
    PREC_AND,
    PREC_NOT,
    PREC_EQUAL,
    PREC_RELATION,
    PREC_ADD,
    PREC_MUL,
    PREC_UNARY,
    PREC_PRIMARY,
} Prec;

typedef struct { /* an expression */
    const char *text;
    Prec prec;         /* of its outermost operator */
    bool number;       /* a literal: text of it as a whole number: */
    const char *whole; /* "2" for 2.0f, or NULL */
} Code;

Code code_plain(const char *text); /* a name, a call, an element */
Code code_literal(Emitter *e, double v, DType t);
Code code_point(Emitter *e, Op op, const Code *in, int n); /* the op's row over in[] */
Code code_cast(Emitter *e, Code a, DType from, DType to);  /* a itself if they are one */
/* c_table.c: a formula of means or counters, in double; what: for messages. */
Code code_scalar(Emitter *e, const char *what, const Node *n);
const char *code_at_least(Emitter *e, Code a, Prec least); /* in parentheses if weaker */

#endif
