/* sem.h -- semantic analysis: from the syntax tree to the checked tree.
 *
 * In: the tree of a model file. Out: a Checked: everything the model says, typed and monomorphic.
 * Layers and functions are applied, compile-time conditions decided, constants computed; what is
 * left is a table of parameters, inputs and means, and per phase a web of Expr. An Expr is a value
 * with a type; loops over stacks and scans stay loops, with one body. Nothing here knows the IR:
 * broadcasts are implicit, products have any rank, free variables of loop bodies are just used.
 */
#ifndef GRADCC_SEM_H
#define GRADCC_SEM_H

#include "front/ast.h"
#include "front/type.h"

/* ---- values -------------------------------------------------------------------------------- */

typedef struct Expr Expr;               /* a value with a type */
typedef struct CheckedLoop CheckedLoop; /* a loop that stays one */

typedef enum {
    EX_CONST,         /* value, rank 0 */
    EX_DIM,           /* the value of dim, rank 0 */
    EX_PARAM,         /* index: parameter, with its stack counts in front */
    EX_INPUT,         /* index: input */
    EX_IOTA,          /* 0, 1, 2 ... along axes[0] */
    EX_MEAN,          /* index: mean slot; known after the step */
    EX_COUNTER,       /* index: what a formula of numbers is given, a rate or a rule of an update */
    EX_POINT,         /* op, element by element; operands broadcast */
    EX_CAST,          /* to the dtype of type */
    EX_REDUCE,        /* op: sum amax amin argmax argmin over axes, which disappear */
    EX_MATMUL,        /* in[0][.., m, k] in[1][.., k, n]; leading axes broadcast */
    EX_RESHAPE,       /* the same elements as type */
    EX_TRANSPOSE,     /* result axis k is operand axis axes[k] */
    EX_BROADCAST,     /* to type, aligned at the end */
    EX_SLICE,         /* the box of type's sizes that starts at lo */
    EX_PAD,           /* zeros around; lo of them before */
    EX_CONCAT,        /* along axes[0] */
    EX_GATHER,        /* rows in[0][in[1]] */
    EX_DRAW,          /* op: uniform normal; stream; in: iterations of the enclosing loops */
    EX_CROSS_ENTROPY, /* in[0][.., V], labels in[1]: 0 where a label is negative */
    EX_ATTENTION,     /* q, k, v; causal; value: the scale, 0 = 1/sqrt of the last axis */
    EX_LOOP,          /* loop; its values are taken with EX_RESULT */
    EX_RESULT,        /* index: result of in[0], an EX_LOOP: carries, then yields */
    EX_REGION,        /* in[0], where precision changes; index: SemRegion that begins */
    EX_ARG,           /* a carry, an element or the iteration of loop, inside its body */
} ExprKind;

/* What a layer is computed in: as the program is, or what its declaration says (`in fp32`). */
typedef enum { REGION_PROGRAM, REGION_FP32, REGION_BF16, REGION_FP16 } SemRegion;

enum { DEP_PARAM = 1, DEP_INPUT = 2, DEP_DRAW = 4, DEP_ITER = 8, DEP_MEAN = 16 };

struct Expr {
    ExprKind kind;
    const char *op;   /* name in the op table: POINT, REDUCE, DRAW */
    const Type *type; /* reals are DT_F32, whatever the program uses */
    int n_in;
    Expr **in; /* operands; the next seven as said at ExprKind */
    double value;
    int index;
    int n_axes, axes[RANK_MAX];
    const Dim *lo[RANK_MAX];
    const Dim *dim;
    bool causal;
    const char *stream;
    CheckedLoop *loop;    /* LOOP, ARG */
    CheckedLoop *home;    /* the innermost loop it depends on, or NULL */
    unsigned deps;        /* what it depends on: DEP_ bits */
    const Dim *from, *to; /* whole numbers: from <= value < to, if known */
    bool counts;          /* it is from, from + 1 ... to - 1, in order */
    Span span;            /* in the user's file */
    const char *name;     /* the model's name for it, path-joined, or NULL */
    bool hinted;          /* name comes from a layer's path or the prelude */
};

typedef struct { /* arg: the value in the body; init: before the loop; next: after an iteration */
    const char *name;
    Expr *arg, *init, *next;
} CheckedCarry;
typedef struct { /* arg is source[iteration, ...] */
    Expr *arg, *source;
} CheckedElem;

enum { LOOP_DEPTH_MAX = 4 }; /* loops around a value */

struct CheckedLoop {
    const char *name;        /* the layer applied ("block") or "scan" */
    const char *var, *stack; /* as written, or NULL */
    const Dim *trip;         /* iterations */
    CheckedLoop *parent;     /* around it, or NULL */
    Expr *iter;              /* i32, rank 0, starts at 0 */
    VEC(CheckedCarry) carries;
    VEC(CheckedElem) elems;
    VEC(Expr *) yields; /* stacked: result [trip, ...] */
    Span span;
};

/* ---- tables -------------------------------------------------------------------------------- */

typedef enum { SEM_WEIGHT, SEM_BIAS, SEM_GAIN, SEM_EMBEDDING, SEM_STATE } SemRole;
typedef enum {
    SEM_INIT_ZEROS,
    SEM_INIT_ONES,
    SEM_INIT_CONST,
    SEM_INIT_NORMAL,
    SEM_INIT_UNIFORM
} SemInit;

typedef struct {       /* a stack: `h : block[C, H] * L` */
    const char *name;  /* path within the parent: "h", "enc.h" */
    const char *path;  /* whole path, stacks as "*": "h", "a.*.h" */
    const char *layer; /* that is stacked */
    int parent;        /* -1 = none */
    const Dim *count;  /* repetitions */
    Span span;
} CheckedGroup;

typedef struct {
    const char *path, *name;    /* "h.*.ln_1.weight", "h_ln_1_weight" */
    const Type *type, *stacked; /* of one repetition; with the stack counts in front */
    int group;                  /* -1 = top level */
    SemRole role;
    SemInit init;
    double init_value;    /* CONST: itself; NORMAL: std; UNIFORM: bound */
    bool used;            /* by the loss */
    uint8_t *updates;     /* by repetition: number of its CheckedUpdate, 0 = none; or NULL */
    bool excepted;        /* Muon leaves it to AdamW */
    int fit_input;        /* state from mean(x): the input, else -1 */
    const char *fit_kind; /* "mean", "std" or NULL */
    Span span;
} CheckedParam;

typedef struct {
    const char *name;
    const Type *type;
    const Dim *lo, *hi; /* NULL: not declared */
    bool has_ignore;
    int64_t ignore; /* a value outside of lo..hi that is allowed: no label */
    bool used;      /* by anything */
    Span span;
} CheckedInput;

typedef struct {
    const char *name, *text; /* "loss", "mean((y - z)^2)" */
    double weight;           /* in the loss */
    const Dim *count;        /* NULL: depends on data */
    Span span;
} CheckedMean;

typedef struct { /* `name : layer[...] in fp32` */
    const char *name;
    SemRegion region;
    Span span; /* of the word */
} CheckedRegion;

typedef struct { /* of a metric, an output */
    const char *name;
    Span span;
} CheckedName;

typedef struct { /* left rel right holds for all sizes; DIVIDES: left % right == 0 */
    const Dim *left, *right;
    enum { SEM_LE, SEM_LT, SEM_GE, SEM_GT, SEM_EQ, SEM_DIVIDES } rel;
    const char *text; /* as written */
    Span span;
} CheckedConstraint;

typedef struct {              /* a constant that is no size */
    const char *name, *value; /* "rate", "0.1" */
    Span span;
} CheckedConst;

/* One evaluation of the model's body, with `training` true or false. */
typedef struct {
    bool training;
    VEC(Expr *) sums;    /* by mean slot: the sum over all, NULL = absent */
    VEC(Expr *) counts;  /* by mean slot: NULL when it follows from dims */
    VEC(Expr *) metrics; /* formulas over EX_MEAN */
    VEC(Expr *) outputs; /* in the order of Checked.outputs */
} CheckedPhase;

/* ---- the train block ----------------------------------------------------------------------- */

typedef struct { /* what an input is given of the data */
    int input;
    enum { SEM_WINDOW, SEM_COL, SEM_COLS } kind;
    const Dim *lo, *hi; /* window offsets, column numbers */
    const char *column; /* col("price") */
    Span span;
} CheckedMap;

typedef struct { /* a number of the optimizer, set by --name in the program */
    const char *name;
    double value, lo, hi; /* lo..hi: what it may be, both included */
} CheckedHyper;

/* What an update does with each element of a parameter, as the optimizer is declared. EX_COUNTERs
   are p, g, lr, decay, t, then the states, then the numbers of the optimizer. */
enum { SEM_RULE_P, SEM_RULE_G, SEM_RULE_LR, SEM_RULE_DECAY, SEM_RULE_T, SEM_RULE_STATES };

typedef struct {
    const char *name;        /* of the optimizer; NULL: none is read yet */
    VEC(const char *) state; /* names; they begin at 0 */
    VEC(Expr *) next;        /* of each state */
    Expr *p;                 /* of the parameter */
    bool decays;             /* it has the argument weight_decay */
    const char *text;        /* its statements, a line each */
    Span span;               /* where it is declared */
} CheckedRule;

typedef struct {        /* a group of parameters with numbers of its own */
    const char *names;  /* its patterns, as written */
    double rate, decay; /* factor of the rate; weight decay, NAN = that of the optimizer */
    Span span;
} CheckedUpdate;

typedef struct {        /* updates that are not finite, and the loss scale of fp16; 0: not given */
    const char *policy; /* "stop", "skip" */
    int64_t max_skips;
    bool scale_set;
    double scale; /* at the start; 0 = none, where it is set */
    int64_t interval;
    double growth, backoff;
} CheckedNonfinite;

typedef struct { /* settings as Program's TrainSettings has them */
    bool present;
    const char *reader, *path, *val_path, *vocab; /* NULL: not given */
    double split;
    bool header, header_set;
    VEC(CheckedMap) maps;
    Span data_span;
    int64_t batch, accumulate;
    enum { SEM_RULE, SEM_LAMB, SEM_ADAFACTOR, SEM_MUON } optimizer;
    CheckedRule rule;         /* of SEM_RULE */
    VEC(CheckedHyper) hypers; /* numbers of the optimizer besides rate and decay */
    double weight_decay;
    bool nesterov, match_rms; /* of Muon; match_rms: steps as large as AdamW's */
    bool tensorwise;          /* the optimizer needs something of whole tensors first */
    Span optimizer_span;
    enum {
        SEM_CONSTANT,
        SEM_LINEAR,
        SEM_COSINE,
        SEM_WSD,
        SEM_STEP,
        SEM_INVERSE_SQRT,
        SEM_ONE_CYCLE,
        SEM_FORMULA
    } schedule;
    double lr, lr_end;
    int64_t warmup, decay_steps;
    int64_t decay;       /* WSD: updates of the last part */
    bool decay_sqrt;     /* WSD: the shape of it */
    int64_t drop_every;  /* STEP: 0 = at drop_at, "3000,6000" */
    const char *drop_at; /* NULL = every drop_every */
    double drop_factor;
    double pct_start, div_factor, final_div_factor; /* ONE_CYCLE, as in PyTorch */
    bool three_phase;
    Expr *rate; /* FORMULA */
    const char *rate_text;
    Span rate_span, warmup_span, decay_span;
    double clip, clip_value; /* of the norm, of each element; 0 = none */
    double ema;              /* 0 = none */
    CheckedNonfinite nonfinite;
    VEC(CheckedUpdate) updates; /* numbered from 1 */
    int precision;              /* 0 fp32, 1 fp64, 2 bf16, 3 fp16; -1 not given */
    bool masterless;            /* masters = none */
    Span masters_span;          /* where that is set */
    int64_t head_rows;          /* rows of the logits at a time; 0: all, -1: not given */
    Span head_span;             /* where that is set */
    enum {
        SEM_RECOMPUTE_AUTO,
        SEM_RECOMPUTE_NONE,
        SEM_RECOMPUTE_BLOCKS,
        SEM_RECOMPUTE_BUDGET
    } recompute;
    int64_t budget; /* of SEM_RECOMPUTE_BUDGET, bytes */
    Span recompute_span;
    int64_t steps, eval_every, save_every, log_every, seed, keep;
    const char *out;
    Span span;
} CheckedTrain;

typedef struct {
    Context *cx;
    Dims *dims;
    const char *name; /* of the model */
    int file;         /* number of the source */
    VEC(CheckedGroup) groups;
    VEC(CheckedParam) params; /* in order of declaration */
    VEC(CheckedInput) inputs;
    VEC(CheckedMean) means;
    VEC(CheckedRegion) regions; /* layers with a precision of their own */
    VEC(CheckedName) metrics;
    VEC(CheckedName) outputs;
    VEC(CheckedConstraint) constraints;
    VEC(CheckedConst) consts; /* of the file, that are no sizes */
    CheckedTrain train;
    bool has_loss;         /* the model has a loss statement */
    CheckedPhase phase[2]; /* [0]: training = false, [1]: training = true */
} Checked;

/* ---- the entry ----------------------------------------------------------------------------- */

typedef struct { /* -D name=value */
    const char *name, *value;
    const char *typed; /* the option, for messages */
} Define;

typedef struct {
    const Define *defines;
    int n_defines;
    const char *prelude; /* path of prelude.model */
} SemOptions;

/* NULL after errors, which are in cx's messages. */
Checked *sem_check(Context *cx, Ast *file, const SemOptions *opt);

#endif
