/* sem_parts.h -- what the files of semantic analysis share; nobody else includes it.
 *
 * The model is evaluated once per phase by walking its statements with values that are types: a
 * Thing is what a name or expression stands for while compiling. Tensors are Things that carry an
 * Expr of the checked tree; sizes, numbers, conditions, layers and instances exist only here.
 */
#ifndef GRADCC_SEM_PARTS_H
#define GRADCC_SEM_PARTS_H

#include "front/sem.h"

typedef struct Sem Sem;           /* the state of the analysis */
typedef struct Thing Thing;       /* what a name or an expression stands for */
typedef struct Scope Scope;       /* names and their things */
typedef struct Decl Decl;         /* a layer, function or model */
typedef struct Instance Instance; /* a layer with its parameters */
typedef struct Select Select;     /* which one of a stack */
typedef struct Frame Frame;       /* one application of a Decl */
typedef VEC(Thing *) ThingList;

/* ---- things -------------------------------------------------------------------------------- */

typedef enum {
    THING_POISON, /* of a mistake that is reported; silent in every use */
    THING_VALUE,  /* value: a tensor */
    /* dim: a whole number that may depend on sizes; value: what it is as a number where that
       differs (a division of run-time sizes), or NULL */
    THING_DIM,
    THING_REAL,     /* real */
    THING_BOOL,     /* yes */
    THING_TEXT,     /* text */
    THING_DTYPE,    /* dtype: the names int, real, bool */
    THING_RANGE,    /* dim..to */
    THING_TUPLE,    /* items */
    THING_INIT,     /* init, real: an initialiser */
    THING_DECL,     /* decl: a layer or function by name */
    THING_INSTANCE, /* inst, select: a layer with its parameters */
    THING_STACK,    /* inst, select: a stack of them, still to be indexed */
    THING_PARAM,    /* index: a parameter of the layer in whose scope it stands */
    THING_ITER,     /* loop, dim: iteration of loop plus dim */
} ThingKind;

/* part divides whole: said by whole / part where it is used as a size. */
typedef struct Claim {
    const Dim *whole, *part;
    const struct Claim *next; /* of the same thing, or NULL */
} Claim;

struct Thing {
    ThingKind kind;
    bool literal;        /* DIM: a bare number in the source */
    const Claim *claims; /* DIM */
    Span span;           /* where it is declared or computed */
    /* the rest by kind, as said at ThingKind */
    Expr *value;
    const Dim *dim, *to;
    int index;
    double real;
    bool yes;
    const char *text;
    DType dtype;
    SemInit init;
    Decl *decl;
    Instance *inst;
    const Select *select;
    CheckedLoop *loop;
    ThingList items;
};

/* A layer, function or model with the scope it was declared in. */
struct Decl {
    const char *name;
    const Ast *ast;
    Scope *scope;  /* around the declaration */
    bool prelude;  /* declared there, not in the user's file */
    bool building; /* being instantiated: to find recursion */
    int calls;     /* being applied: to find recursion */
};

typedef struct { /* a name of a scope */
    const char *name;
    Thing *thing;
} Binding;

/* Two name spaces: values (with sizes and constants), and layers. */
struct Scope {
    Scope *parent; /* around it, or NULL */
    VEC(Binding) values, layers;
};

/* A layer built at one place: its bracket arguments, parameters and sublayers live in scope. */
struct Instance {
    Decl *decl;        /* the layer */
    Instance *outer;   /* the layer or model that declares it; NULL: the model itself */
    Scope *scope;      /* its brackets, parameters and sublayers */
    const char *path;  /* "h.*.attn", "" for the model */
    const char *under; /* "h_attn": the path for names of values */
    int group;         /* of its parameters */
    const Dim *count;  /* THING_STACK: how many */
    Span span;         /* where it is built */
    SemRegion region;  /* its own precision; REGION_PROGRAM: that of the layer around it */
    bool used;         /* applied somewhere */
};

/* Which element of each enclosing stack is meant, outermost first. */
struct Select {
    const Select *outer; /* of the stack around it, or NULL */
    CheckedLoop *loop;   /* iteration of loop + at; or NULL: element at */
    const Dim *at;
};

/* One application of a function, layer or model. */
struct Frame {
    Frame *up;             /* the caller, or NULL */
    Decl *decl;            /* what is applied */
    Instance *inst;        /* NULL for functions */
    const Select *select;  /* which one of its stacks inst is */
    SemRegion region;      /* what its values are computed in */
    Scope *scope;          /* of its body */
    Span call;             /* where it is applied, in the caller */
    Span user;             /* the same, in the user's file */
    const char *statement; /* name for values of the current statement */
    const Dim **rest;      /* what ... stands for; NULL: nothing yet */
    int n_rest;            /* dims of rest */
    Thing *result;         /* after return */
    bool builds;           /* a layer is being built, not applied */
    bool failed;           /* a statement was wrong: what it binds may lack */
    CheckedLoop *loop;     /* loop around the application */
    ThingList *yields;     /* of the innermost scan in this frame */
};

typedef struct { /* a message, and the frames it was made in */
    Diag *d;
    Frame *frame;
} Late;

/* An index that is reported: by which values, into how many rows (NULL: into any number). */
typedef struct {
    const Expr *ids;
    const Dim *rows;
} Unsafe;

struct Sem {
    Context *cx;
    Arena *arena; /* that of the compilation */
    Dims *dims;
    Checked *out;       /* what is made */
    const Ast *file;    /* the declarations of the user */
    const Ast *library; /* those of the prelude, or NULL */
    const SemOptions *opt;
    Scope *prelude, *global; /* global: of the user's file, inside the prelude */
    Decl *model;             /* that is compiled */
    Instance *main;          /* the model built */
    Frame *frame;            /* innermost */
    Frame *matching;         /* whose signature sem_match_type reads */
    CheckedLoop *loop;       /* innermost, or NULL */
    bool training;           /* of the phase being evaluated */
    bool declaring;          /* building instances: no values exist */
    bool elements;           /* reading an optimizer: a value is one element of a tensor */
    VEC(Unsafe) unsafe;
    bool deep_told;                         /* a value of too many axes in loops is reported */
    CheckedPhase *phase;                    /* being evaluated */
    const Ast *loss;                        /* the loss statement of this phase */
    const char *slot_name;                  /* of means of the model's current statement */
    Map *draws;                             /* path -> number of draws so far (boxed int) */
    Map *mean_slots;                        /* place -> MeanPlace, see sem_loss.c */
    VEC(Expr *) param_values, input_values; /* of this phase */
    VEC(Instance *) owners;                 /* by parameter: the layer that declares it */
    VEC(Symbol *) batches;                  /* the sample axes: one */
    Map *defines;                           /* name -> Define, those not used yet */
    VEC(Span) reported;                     /* places with an error: no second one */
    VEC(Late) late;                         /* messages and where they were made */
};

/* ---- sem_names.c: scopes, messages --------------------------------------------------------- */

Scope *scope_new(Sem *s, Scope *parent);                       /* empty */
void scope_set(Sem *s, Scope *sc, const char *name, Thing *t); /* new or replaced */
void scope_set_layer(Sem *s, Scope *sc, const char *name, Thing *t);
Thing *scope_find(const Scope *sc, const char *name);       /* here and outwards */
Thing *scope_find_layer(const Scope *sc, const char *name); /* the same among layers */
Thing *scope_find_here(const Scope *sc, const char *name);  /* in this scope only */

/* Things of each kind; thing_new sets kind and place, the rest is 0. */
Thing *thing_new(Sem *s, ThingKind kind, Span at);
Thing *thing_poison(Sem *s);
Thing *thing_value(Sem *s, Expr *e);
Thing *thing_dim(Sem *s, const Dim *d, Span at);
Thing *thing_real(Sem *s, double v, Span at);
Thing *thing_bool(Sem *s, bool yes, Span at);
const char *thing_text(Sem *s, const Thing *t); /* "real[B,T]", "a layer": messages */

/* The place in the user's file: in a prelude function, the call of it. */
Span sem_here(const Sem *s, Span at);
/* NULL when the same place is already reported; sem_note and the others accept NULL. */
Diag *sem_error(Sem *s, Span at, const char *fmt, ...) PRINTF_LIKE(3, 4);
void sem_mark(Diag *d, Span at); /* ~~~ under an operand */
/* A note about a place that the user can see: none for places of the prelude. */
void sem_note(Sem *s, Diag *d, Span at, const char *fmt, ...) PRINTF_LIKE(4, 5);
void sem_hint(Diag *d, const char *fmt, ...) PRINTF_LIKE(2, 3);      /* under 400 bytes */
void sem_note_value(Sem *s, Diag *d, const Ast *ast, const Expr *e); /* "x is [B,T]" */
void sem_note_dim(Sem *s, Diag *d, const Dim *dim); /* where its symbols are declared */
/* An unknown name, with the nearest of those that could stand there. */
Diag *sem_unknown(Sem *s, Span at, const char *what, const char *name, bool layers);
/* Hints at the candidate nearest to word, if one is near. */
void sem_did_you_mean(Diag *d, const char *word, const char *const *candidates, int n);
const char *sem_dim_text(Sem *s, const Dim *d);   /* "T", "3*C = 384" */
const char *sem_type_text(Sem *s, const Type *t); /* "[B,T]", "int[B,T]" */
void sem_finish_messages(Sem *s);                 /* adds the calls that led to each message */

/* ---- sem_const.c: compile-time values ------------------------------------------------------ */

void sem_declare_const(Sem *s, Scope *sc, const Ast *a, bool top);
void sem_declare_dim(Sem *s, const Ast *a);      /* a batch or dim of the file */
void sem_add_condition(Sem *s, const Ast *cond); /* of a dim: holds for all sizes at run time */
bool thing_number(const Thing *t, double *v);    /* a number known while compiling */
bool thing_whole(const Thing *t, int64_t *v);
/* A size; what: the words of the message when it is none. */
const Dim *sem_eval_dim(Sem *s, const Ast *a, const char *what); /* NULL after an error */
const Dim *thing_to_dim(Sem *s, const Thing *t, const Ast *a, const char *what); /* the same */
/* A condition that is known while compiling; false after an error. */
bool sem_eval_bool(Sem *s, const Ast *a, const char *what, bool *yes);
/* Both operands known while compiling: the result, NULL if it is not such a case. */
Thing *const_binary(Sem *s, const Ast *a, Thing *l, Thing *r);
Thing *const_unary(Sem *s, const Ast *a, Thing *t); /* the same for -t and not t */
Thing *const_math(Sem *s, const char *name, const Thing *t, Span at); /* sqrt(2), exp(1) */
bool sem_known_le(Sem *s, const Dim *a, const Dim *b); /* proven, with the declared limits */
/* Reports when a <= b is not known; what: which number of the model this is about. */
bool sem_require_le(Sem *s, Span at, const Dim *a, const Dim *b, const char *what);

/* ---- sem_shape.c: types, dims, axes -------------------------------------------------------- */

const Type *sem_type(Sem *s, DType t, int rank, const Dim *const *dim); /* the type of these */
/* The type written, all names known; NULL after an error. */
const Type *sem_eval_type(Sem *s, const Ast *type, const char *what);
bool sem_type_dtype(Sem *s, const Ast *type, DType *dtype); /* real, int, bool; none: real */
/* Binds the fresh names of a signature's type to e's sizes. Two rounds: names, then formulas. */
bool sem_match_type(Sem *s, const Ast *type, const Expr *e, const Ast *arg, const char *who,
                    int round);
/* The shape of a and b together, aligned at the last axis, with a's dtype; NULL after an error. */
const Type *sem_broadcast(Sem *s, const Ast *at, const Expr *a, const Expr *b);
bool sem_find_axis(Sem *s, const Ast *a, const Type *t, int *axis);         /* name or number */
bool sem_find_axes(Sem *s, const Ast *a, const Type *t, int *n, int *axes); /* ascending */
int sem_batch_axis(const Type *t);                                          /* -1 = none */
void sem_poison_constants(Sem *s, const Ast *a); /* of a size that is reported */
bool sem_is_one(const Dim *d);                   /* the literal 1 */

/* ---- sem_value.c: making Exprs ------------------------------------------------------------- */

int loop_depth(const CheckedLoop *l); /* loops around its body, it included; NULL: 0 */
void sem_check_axes_in_loops(Sem *s, const Expr *e, Span at);
/* An Expr of any kind, then one for each. */
Expr *expr_new(Sem *s, ExprKind kind, const Type *type, int n_in, Expr *const *in, Span at);
Expr *expr_named(Expr *e, const char *name);  /* a name of the user's */
Expr *expr_hinted(Expr *e, const char *name); /* a name until the user gives one */
Expr *expr_const(Sem *s, DType t, double v, Span at);
Expr *expr_dim(Sem *s, DType t, const Dim *d, Span at);
Expr *expr_point(Sem *s, const char *op, const Type *type, int n_in, Expr *const *in, Span at);
Expr *expr_cast(Sem *s, Expr *e, DType t, Span at);
/* e where precision changes to region; e itself if it is no real tensor. */
Expr *expr_region(Sem *s, Expr *e, SemRegion region, Span at);
/* e, a value without real operands, as one of the region of the frame. */
Expr *expr_here(Sem *s, Expr *e);
Expr *expr_reduce(Sem *s, const char *op, Expr *e, int n, const int *axes, bool keep, Span at);
Expr *expr_reshape(Sem *s, Expr *e, int rank, const Dim *const *dim, Span at);
Expr *expr_transpose(Sem *s, Expr *e, const int *axes, Span at);
Expr *expr_slice(Sem *s, Expr *e, int axis, const Dim *lo, const Dim *size, Span at);
Expr *expr_iota(Sem *s, const Dim *from, const Dim *to, Span at); /* from ... to - 1 */
/* source[iteration of loop], as a value of loop's body. */
Expr *expr_elem(Sem *s, CheckedLoop *loop, Expr *source, Span at);
Expr *expr_iter(Sem *s, const Thing *t, Span at); /* a THING_ITER as a value */
/* A parameter as seen by the selected layer. */
Expr *expr_param(Sem *s, int index, const Select *select, Span at);

/* ---- sem_range.c: what is known of whole numbers ------------------------------------------- */

void sem_find_range(Sem *s, Expr *e);

/* ---- sem_expr.c: expressions --------------------------------------------------------------- */

Thing *sem_eval(Sem *s, const Ast *a); /* any expression; never NULL */
/* The tensor that t stands for; literals take the type like (may be DT_COUNT: their own). */
Expr *sem_to_value(Sem *s, Thing *t, DType like, const Ast *a);
Expr *sem_eval_value(Sem *s, const Ast *a);                  /* NULL after an error */
Thing *sem_binary(Sem *s, const Ast *a, Thing *l, Thing *r); /* a's operator on l and r */
/* Applies a pointwise op to operands of any shapes; kind: 'n' numbers, 'r' reals, 'c' compares,
   'l' logic. NULL after an error. */
Expr *sem_point(Sem *s, const Ast *a, const char *op, char kind, Expr *l, Expr *r);
bool sem_no_mixing(Sem *s, Span at, const Dim *d, const char *what); /* d is no sample axis */
/* False after a message: deps mix means over samples with something else. */
bool sem_check_means(Sem *s, const Ast *a, unsigned deps);
Expr *sem_matmul(Sem *s, const Ast *a, Expr *l, Expr *r); /* sem_index.c */

/* ---- sem_index.c: brackets behind a value -------------------------------------------------- */

Thing *sem_index(Sem *s, const Ast *a, Expr *e);                /* e[...] */
Expr *sem_gather(Sem *s, const Ast *a, Expr *table, Expr *ids); /* rows; NULL after an error */
bool sem_in_loop(const Expr *e, const CheckedLoop *loop);       /* does it need loop? */

/* ---- sem_call.c: applying functions and layers --------------------------------------------- */

Thing *sem_call(Sem *s, const Ast *a);         /* f(...) of any kind */
Thing *sem_lookup_layer(Sem *s, const Ast *a); /* h, h[i], enc.h; NULL if no layer */
/* The bracket arguments become names of `into`; false after an error. */
bool sem_bind_brackets(Sem *s, Decl *d, Span at, const AstList *args, Scope *into);
/* Runs d's body on the arguments of call; inst NULL: a function. */
Thing *sem_apply(Sem *s, Decl *d, Instance *inst, const Select *select, Scope *scope,
                 const Ast *call);
void frame_push(Sem *s, Frame *f, Decl *d, Scope *scope, Span call); /* f becomes the innermost */
void frame_pop(Sem *s);

/* ---- sem_builtin.c, sem_move.c: primitives ----------------------------------------- */

typedef struct {
    const char *name;                         /* in models */
    const char *form;                         /* "sum(x, over: axis)": for messages */
    int least, most;                          /* positional arguments */
    const char *named;                        /* named ones, separated by blanks */
    Thing *(*apply)(Sem *s, const Ast *call); /* its arguments are counted already */
} Builtin;

const Builtin *builtin_find(const char *name); /* NULL if there is none */
int builtin_count(void);
const Builtin *builtin_at(int i);                                 /* in the order of the table */
const Ast *call_arg(const Ast *call, int i);                      /* positional, or NULL */
const Ast *call_named(Sem *s, const Ast *call, const char *name); /* NULL: not given */
/* The sizes of a shape: items of a list, or with args arguments in brackets. */
bool sem_eval_shape(Sem *s, const AstList *items, bool args, int *rank, const Dim **dim);
/* What a call of each gives; poison after an error. */
Thing *builtin_mean(Sem *s, const Ast *call); /* sem_loss.c */
Thing *builtin_draw(Sem *s, const Ast *call);
Thing *builtin_reshape(Sem *s, const Ast *call);
Thing *builtin_transpose(Sem *s, const Ast *call);
Thing *builtin_swap(Sem *s, const Ast *call);
Thing *builtin_broadcast(Sem *s, const Ast *call);
Thing *builtin_split(Sem *s, const Ast *call);
Thing *builtin_concat(Sem *s, const Ast *call);
Thing *builtin_pad(Sem *s, const Ast *call);
Thing *builtin_fill(Sem *s, const Ast *call);
Thing *builtin_size(Sem *s, const Ast *call);
Thing *builtin_iota(Sem *s, const Ast *call);

/* ---- sem_require.c: what numbers must be --------------------------------------------------- */

Thing *builtin_require(Sem *s, const Ast *call);
bool sem_is_requirement(const Sem *s, const Ast *a);
bool sem_check_size_argument(Sem *s, const Decl *d, const Ast *formal, const Thing *t,
                             const Ast *given);
const char *sem_number_text(Sem *s, double v); /* "4.0", "0.25": with a point */

/* ---- sem_layer.c: building layers ---------------------------------------------------------- */

/* A layer d with its parameters and sublayers; NULL after an error. */
Instance *sem_build(Sem *s, Decl *d, Scope *brackets, const char *path, const char *under,
                    int group, Span at);
/* A parameter of the layer being built; its number, -1 after an error. */
int sem_add_param(Sem *s, const Ast *a, const Type *type, SemRole role);
void sem_declare_statement(Sem *s, const Ast *a); /* params, sublayers; ignores others */
void sem_check_params(Sem *s);                    /* reports those that no loss reaches */

/* ---- sem_init.c: states, initialisers ------------------------------------------------------ */

void sem_set_init(Sem *s, int param, const Ast *value); /* of a param statement */
void sem_override_init(Sem *s, const Ast *a);           /* wte.weight ~ normal(0, 0.02) */
void sem_declare_state(Sem *s, const Ast *a);           /* constants fitted to the training data */

/* ---- sem_body.c: statements ---------------------------------------------------------------- */

void sem_run(Sem *s, const Ast *block); /* all statements, until a return */
/* names = t; value: what t is of, for messages. */
void sem_bind(Sem *s, const AstList *names, Thing *t, const Ast *value);
const char *sem_value_name(Sem *s, const char *name); /* "h_attn_q": the path in front */
/* False after a message: the statement is not in the model itself. */
bool sem_at_model(Sem *s, const Ast *a, const char *what);
void sem_run_model(Sem *s, bool training); /* one phase: its sums, metrics and outputs */

/* ---- sem_loop.c: loops that stay loops ----------------------------------------------------- */

void sem_loop(Sem *s, const Ast *a);   /* for i in 0..L */
void sem_unroll(Sem *s, const Ast *a); /* for const i in ...: written out */
Thing *sem_scan(Sem *s, const Ast *a); /* the stacked yields */
/* For what is repeated for lo ... hi - 1; false after a message: too often. */
bool sem_few_turns(Sem *s, const Ast *range, const char *what, int64_t lo, int64_t hi);

/* ---- sem_loss.c: means, losses, metrics, outputs ------------------------------------------- */

/* loss = ..., metric m = ..., output o = ... */
void sem_loss_statement(Sem *s, const Ast *a);
void sem_metric_statement(Sem *s, const Ast *a);
void sem_output_statement(Sem *s, const Ast *a);
void sem_mark_used(Sem *s); /* what the loss reaches */

/* ---- sem_train.c, sem_schedule.c, sem_data.c: the train block -------------------------------- */

void sem_train(Sem *s, const Ast *train); /* NULL: the defaults */
const char *setting_key(Sem *s, int k);   /* "batch"; NULL behind the last */
void sem_train_data(Sem *s, const Ast *setting);
bool train_whole(Sem *s, const Ast *a, const char *what, int64_t least, int64_t *v);
bool train_number(Sem *s, const Ast *a, const char *what, double least, double most, double *v);
/* Splits name(args): each argument by its name, the first `places` of `names` by position too. */
enum { TRAIN_ARGS_MAX = 32 };
typedef struct {
    const char *names;
    int places;
    const Ast *value[TRAIN_ARGS_MAX];
} TrainCall;
bool train_call(Sem *s, const Ast *a, TrainCall *call);
const char *train_called(const Ast *a); /* the name in name(...), NULL if it is no such call */
/* Is `name` the k-th of the blank-separated names? -1 when it is none. */
int train_word(const char *names, const char *name);
void train_suggest(Sem *s, Diag *d, const char *word, const char *names); /* the nearest of them */
void sem_train_rate(Sem *s, const Ast *a); /* sem_schedule.c: of lr: ... */
/* Reports a schedule that does not fit the run; steps: where its length is set, or NULL. */
void sem_check_schedule(Sem *s, const Ast *steps);
/* sem_update.c: of ema and groups. */
void sem_train_ema(Sem *s, const Ast *a);
/* nonfinite, loss_scale, scale_interval, ... by their number in that list */
void sem_train_nonfinite(Sem *s, int key, const Ast *a);
void sem_train_groups(Sem *s, const Ast *a);
void sem_train_except(Sem *s, const Ast *a); /* patterns of what Muon leaves to AdamW */

/* ---- sem_optimizer.c, sem_rule.c, sem_tensorwise.c ----------------------------------------- */

typedef struct { /* an argument of an optimizer besides lr and weight_decay */
    const char *name;
    bool flag, yes;       /* it is true or false; which */
    double value, lo, hi; /* else a number; lo..hi: what --name may be, both included */
    Span span, given;     /* of its declaration; of the value in the train block */
} RuleArg;
typedef VEC(RuleArg) RuleArgs;

/* A number of the optimizer, lo..hi; another value for it; betas: (0.9, 0.999) for two. */
void sem_hyper(Sem *s, const char *name, double value, double lo, double hi);
void sem_set_hyper(Sem *s, const char *name, double value);
void sem_betas(Sem *s, const Ast *a);
/* name(...) of an optimizer that works on whole tensors; false: it is none. */
bool sem_optimizer_tensorwise(Sem *s, const Ast *a, const char *name);
const char *sem_tensorwise_names(Sem *s); /* of these, separated by blanks */
void sem_optimizer_default(Sem *s);       /* where the block sets none */
void sem_optimizer(Sem *s, const Ast *a); /* optimizer = ... */
/* CheckedTrain.rule from the body of d, applied at `at`; narrows lo..hi of the arguments. */
void sem_rule(Sem *s, Decl *d, RuleArgs *args, Span at);
/* In an optimizer: false after a message, at what works on more than one element. */
bool sem_has_tensors(Sem *s, Span at);

#endif
