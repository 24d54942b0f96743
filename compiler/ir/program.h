/* program.h -- the model table: all that lower makes of a model, and all that emit needs.
 *
 * A Program holds the symbols, parameters, inputs, mean slots, metrics, outputs and train
 * settings, and one graph per (entry, phase). It has one entry and one objective today; both are
 * arrays so that several fit without a change of form.
 */
#ifndef GRADCC_PROGRAM_H
#define GRADCC_PROGRAM_H

#include "ir/ir.h"

typedef enum { ROLE_WEIGHT, ROLE_BIAS, ROLE_GAIN, ROLE_EMBEDDING, ROLE_STATE } Role;
/* CONST value; NORMAL std, mean 0; UNIFORM bound. Sem computes the other initialisers to these. */
typedef enum { INIT_ZEROS, INIT_ONES, INIT_CONST, INIT_NORMAL, INIT_UNIFORM } InitKind;

/* Parameters of a stack (`h : block[C,H] * L`) form a group: they lie together, count times.
   Groups nest. In the flat buffer a group is one run of count * stride elements. */
typedef struct {
    const char *name;         /* "h"; path within the parent */
    const char *layer;        /* "block": the layer stacked */
    int parent;               /* group index, -1 = top level */
    const Dim *count;         /* repetitions */
    const Dim *stride;        /* elements of one repetition (sum of its members) */
    const Symbol *stride_sym; /* P_h_STRIDE: a CONST symbol with that value */
    bool half, twin;          /* of parameters that are half; beside one of the others */
    Span span;
} ParamGroup;

typedef struct {
    const char *path;    /* checkpoint name: "h.*.attn.c_attn.weight" */
    const char *name;    /* in emitted code: "h_attn_c_attn_weight" */
    const Type *type;    /* of one repetition, without stack dims */
    const Type *stacked; /* type of the PARAM node: stack counts in front */
    int group;           /* -1 = top level */
    Role role;
    bool decay;             /* by default: weight and embedding */
    bool excepted;          /* Muon leaves it to AdamW */
    const uint8_t *updates; /* by repetition: number of its UpdateGroup, 0 = none; or NULL */
    InitKind init;
    double init_value;    /* see InitKind */
    bool trained;         /* false: no loss reaches it (an error unless state) */
    bool half;            /* no fp32 master: its 16 bits are all there is of it */
    const Type *fitted;   /* `state mu from mean(x)`: NULL or the type */
    int fit_input;        /* index of the input it is fitted on, -1 = none */
    const char *fit_kind; /* "mean" or "std" */
    Span span;
} Param;

typedef struct {
    const char *name;
    const Type *type; /* first axis is the batch */
    bool ranged;      /* integers: lo <= v < hi, or v == ignore */
    const Dim *lo, *hi;
    bool has_ignore;
    int64_t ignore; /* outside of lo..hi, allowed all the same */
    Span span;
} Input;

/* mean(x) or mean(x, where: m) over data axes: a (sum, count) pair, filled by the graphs. */
typedef struct {
    const char *name; /* "loss", "accuracy", or "loss_b" for a second term */
    const char *text; /* source text of the mean */
    double weight;    /* in the loss; 0 = only in metrics */
    const Dim *count; /* over dims; NULL: from the count graph */
    Span span;
} MeanSlot;

typedef struct { /* what is reported beside the loss */
    const char *name;
    Graph *formula; /* scalar graph over MEAN(slot) leaves; SINK_RESULT 0 */
    Span span;
} Metric;

typedef struct { /* what an inference gives */
    const char *name;
    const Type *type;
    Span span;
} Output;

typedef struct { /* left rel right holds for all sizes; REL_DIVIDES: left % right == 0 */
    const Dim *left;
    enum { REL_LE, REL_LT, REL_GE, REL_GT, REL_EQ, REL_DIVIDES } rel;
    const Dim *right;
    Span span;
    const char *text; /* as written */
} Constraint;

/* ---- train settings ------------------------------------------------------------------------- */

/* OPT_RULE: declared in the language */
typedef enum { OPT_RULE, OPT_LAMB, OPT_ADAFACTOR, OPT_MUON } OptKind;
typedef enum {
    SCHED_CONSTANT,
    SCHED_LINEAR,
    SCHED_COSINE,
    SCHED_WSD,
    SCHED_STEP,
    SCHED_INVERSE_SQRT,
    SCHED_ONE_CYCLE,
    SCHED_FORMULA, /* of TrainSettings.rate */
} SchedKind;

typedef struct {          /* a number of the optimizer, set by --name in the program */
    const char *name;     /* "beta1" */
    double value, lo, hi; /* lo..hi: what it may be, both included */
} Hyper;

/* What an update does with each element of a parameter. */
enum { RULE_P, RULE_G, RULE_LR, RULE_DECAY, RULE_T, RULE_STATES };
typedef struct {
    /* of scalars; arguments: p, g, lr, decay, t, the states, the numbers (.hypers); results: p, the
       states. NULL: the runtime has a function for the optimizer */
    Graph *graph;
    const char *name; /* "adamw" */
    const char *text; /* as declared, a line per statement */
    Span span;        /* of the declaration */
} UpdateRule;

/* tokens = window(0..T): how an input is cut from the data. */
typedef struct {
    int input; /* program input */
    enum { MAP_WINDOW, MAP_COL, MAP_COLS } kind;
    const Dim *lo, *hi; /* WINDOW: offsets from the window's start; COLS: columns */
    const char *column; /* COL by name, or NULL: lo is the number */
    Span span;
} DataMap;

typedef struct {
    const char *reader; /* "text", "csv", "tokens"; NULL = no data given */
    const char *path;
    double split;            /* training share, 0 < split <= 1 */
    const char *val_path;    /* a file of its own for validation, or NULL */
    bool header, header_set; /* csv: first row names the columns */
    const char *vocab;       /* text: "bytes" or "chars" */
    VEC(DataMap) maps;
    Span span;
} DataSource;

typedef struct {        /* parameters that are updated with numbers of their own */
    const char *names;  /* patterns, as written */
    double rate, decay; /* factor of the rate, 0 = they stay; weight decay, NAN = the optimizer's */
    Span span;
} UpdateGroup;

typedef struct {        /* updates that are not finite, and the loss scale of fp16; 0 = default */
    const char *policy; /* "stop", "skip" */
    int64_t max_skips;
    bool scale_set;
    double scale; /* at the start; 0 = none, where it is set */
    int64_t interval;
    double growth, backoff;
} NonfiniteSettings;

typedef struct {
    bool present; /* a train block exists */
    DataSource data;
    int64_t batch;      /* global samples per update */
    int64_t accumulate; /* micro-steps, default 1 */
    OptKind optimizer;
    UpdateRule rule;          /* OPT_RULE */
    VEC(const char *) states; /* of OPT_RULE: flat buffers that it keeps */
    VEC(Hyper) hypers;        /* numbers of the optimizer besides rate and decay */
    double weight_decay;      /* of parameters marked so */
    bool decays;              /* the optimizer has a weight decay */
    bool nesterov, match_rms; /* of Muon; match_rms: steps as large as AdamW's */
    SchedKind schedule;
    double lr, lr_end;                              /* highest; end of linear and cosine */
    int64_t warmup;                                 /* steps */
    int64_t decay_steps;                            /* steps until lr_end; 0 = `steps` */
    int64_t decay;                                  /* WSD: updates of its last part */
    bool decay_sqrt;                                /* WSD: shaped 1 - sqrt, else linear */
    int64_t drop_every;                             /* STEP: where the rate falls, or */
    const char *drop_at;                            /* "3000,6000"; NULL = every so many */
    double drop_factor;                             /* STEP: by what */
    double pct_start, div_factor, final_div_factor; /* ONE_CYCLE, as in PyTorch */
    bool three_phase;                               /* ONE_CYCLE */
    Graph *rate; /* FORMULA: over ARG 0, updates applied so far, and ARG 1, those of the run */
    const char *rate_text; /* as written */
    Span rate_span;
    double clip;       /* global norm; 0 = none (no clip code) */
    double clip_value; /* of each element, before that; 0 = none, the same */
    double ema;        /* decay of the average of weights; 0 = none */
    NonfiniteSettings nonfinite;
    VEC(UpdateGroup) updates;                         /* numbered from 1 */
    int64_t steps, eval_every, save_every, log_every; /* in updates */
    uint64_t seed;                                    /* of weights, order and draws */
    int64_t keep;                                     /* checkpoints kept */
    const char *out;                                  /* run directory, NULL = <model>.run */
    Span span;
} TrainSettings;

typedef struct {              /* a constant that is no size */
    const char *name, *value; /* "rate", "0.1" */
    Span span;
} FixedValue;

/* What the backward pass computes again, at the training dims; of one micro-step. */
typedef enum { RECOMPUTE_AUTO, RECOMPUTE_NONE, RECOMPUTE_BLOCKS, RECOMPUTE_BUDGET } RecomputeKind;
typedef struct {
    const char *name; /* of the value; NULL: it has none */
    const char *op;   /* what makes it */
    Span span;        /* and where */
    double bytes;     /* it would be kept in */
    double flops;     /* to compute it again, with what it takes only for that */
} RecomputedValue;
typedef struct {
    RecomputeKind kind;
    int64_t budget; /* bytes of a training process */
    Span span;      /* of the setting */
    VEC(RecomputedValue) values;
    double flops, step_flops;       /* added; of a micro-step without */
    double slower;                  /* predicted: time added, as a part of the time without */
    int64_t fixed;                  /* bytes of parameters, gradients, optimizer, copy and batch */
    int64_t arena;                  /* of the process, with this choice; 0: it was not asked for */
    int64_t arena_auto, arena_none; /* and with others */
    int64_t arena_blocks;           /* of training alone, with blocks; 0: not asked for */
    const char *summary;            /* a sentence; NULL: auto */
} Recompute;

struct Program {
    Context *cx;
    Dims *dims;
    const char *name; /* of the model */
    int file;         /* source */
    DType real;       /* DT_F32 or DT_F64 */
    bool wide;        /* 16 bits are for the layers that ask for them only */
    DType narrow; /* DT_BF16 or DT_F16: rounded values lie in memory so; else the same as real */
    VEC(ParamGroup) groups;
    VEC(Param) params; /* in flat-buffer order, but that those that are half come last */
    VEC(Input) inputs;
    VEC(MeanSlot) means;
    VEC(Metric) metrics;
    VEC(Output) outputs;
    VEC(Constraint) constraints;
    VEC(FixedValue) fixed; /* consts of the model that are no sizes: to be told, no more */
    TrainSettings train;
    Recompute recompute;
    Graph *train_graph;  /* training = true; NULL without loss */
    Graph *eval_graph;   /* sums of all mean slots, training = false */
    Graph *count_graph;  /* counts that depend on data; may be NULL */
    Graph *output_graph; /* all outputs; NULL without any */
    VEC(Graph *) graphs; /* of IR read from text */
};

Program *program_new(Context *cx);         /* empty */
bool program_has_halves(const Program *p); /* parameters that are half */
/* Is this argument of the update's rule a value per element (p, g, a state), not a number? */
bool rule_arg_is_element(const Program *p, int arg);

/* By symbol id, in scratch: what each symbol is worth where a size must be chosen or shown. Consts
   and the dims of the train block have values; the others are taken as PROGRAM_USUAL_*. */
int64_t *program_training_dims(const Program *p);
/* "B = 4, T = 16 (not set)": of the dims and the sample axis; "" without any. set: by symbol id. */
const char *program_sizes_text(const Program *p, const int64_t *values, const bool *set);
bool program_dim_is_set(const Symbol *s); /* by the model, for training */
enum { PROGRAM_USUAL_BATCH = 16, PROGRAM_USUAL_DIM = 16 };

typedef struct {      /* what the optimizer keeps from update to update, in the parameters' type */
    const char *name; /* "m" */
    int64_t elems;
} OptimizerState;
enum { PROGRAM_MAX_STATES = 8 };
/* The states at these dims (by symbol id); how many. */
int program_states(const Program *p, const int64_t *dims, OptimizerState state[PROGRAM_MAX_STATES]);
bool program_is_muon(const Program *p, const Param *q); /* a matrix that Muon makes orthogonal */
/* Bytes of the arena that the update works in; operations of its products. */
int64_t program_update_bytes(const Program *p, const int64_t *dims);
double program_update_flops(const Program *p, const int64_t *dims);

#endif
