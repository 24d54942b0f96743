/* op.h -- one row per op: shape, derivative, evaluator, code per target.
 *
 * ops.def is the table; the functions a row names stand together in one family file (point.c,
 * reduce.c, contract.c, move.c, index.c, random.c, loss.c, leaf.c).
 */
#ifndef GRADCC_OP_H
#define GRADCC_OP_H

#include "ir/ir.h"

typedef enum {
    CLASS_LEAF,     /* CONST PARAM INPUT ARG SEED MEAN DIM IOTA: no tensor inputs */
    CLASS_POINT,    /* element by element */
    CLASS_REDUCE,   /* SUM AMAX AMIN ARGMAX ARGMIN */
    CLASS_CONTRACT, /* MATMUL */
    CLASS_MOVE,     /* RESHAPE TRANSPOSE BROADCAST SLICE PAD CONCAT */
    CLASS_INDEX,    /* GATHER SCATTER */
    CLASS_DRAW,     /* UNIFORM NORMAL */
    CLASS_CUSTOM,   /* CROSS_ENTROPY ATTENTION ATTENTION_GRAD */
    CLASS_STRUCT,   /* LOOP RESULT */
} OpClass;

/* How an op computes in a program whose values may lie in 16 bits. Sums are of 32 bits, and so is
   what a kernel holds in registers; fp64 programs have 64 bits in place of 32. */
typedef enum {
    POLICY_NONE,  /* given, or made of others: leaves, loops */
    POLICY_MOVE,  /* elements as they are: the type of the operand */
    POLICY_POINT, /* element-wise: operands of any type, the result rounded where memory holds it */
    POLICY_PRODUCT, /* operands in 16 bits, the result rounded once */
    POLICY_TABLE,   /* rows of a table in 16 bits */
    POLICY_FULL,    /* reductions, statistics, losses: 32 bits in and out */
    POLICY_CAST,    /* a rounding, or another reading of the same number */
} Policy;

typedef enum {
    DERIV_PARTIALS, /* text over $0 $1 $2 (operands) and $r (result), one each; "" = none */
    DERIV_LINEAR,   /* transpose() gives the adjoint of each input; jvp is the op itself */
    /* transpose() builds the adjoints from anything it likes. Without one, grad differentiates
       the expansion (ATTENTION_GRAD) or knows the op itself (LOOP, RESULT) */
    DERIV_CUSTOM,
    DERIV_LEAF, /* PARAM INPUT ARG: where adjoints end; grad collects them itself */
    DERIV_ZERO, /* mathematically zero; why says so */
    DERIV_NONE, /* no derivative: a diagnostic at the user's line quotes why */
} DerivKind;

/* Adjoints of n's inputs given the adjoints of its results (d_out[k] NULL = zero): fills d_in[k]
   (NULL = none). `value(n)` of a forward node is the node itself. Built into g. */
typedef struct {
    Graph *g;      /* where adjoints are built */
    const Node *n; /* being undone */
    Node *const *in, *const *out, *const *d_out;
    Span at; /* for what is made */
} Adjoint;
typedef void (*TransposeFn)(const Adjoint *a, Node **d_in);

/* Result types, n_out of them (the returned number), from inputs and attr; 0 is an error with its
   text in *why (front-end words). */
typedef int (*ShapeFn)(Dims *ds, int n_in, Node *const *in, const Attr *attr, const Type **out,
                       const char **why);
/* Ops whose type is given: what is wrong with it, or NULL. */
typedef const char *(*CheckFn)(const Graph *g, const Type *type, int n_in, Node *const *in,
                               const Attr *attr);
/* Reference evaluation in double. out[k] has its shape and zeroed elements already. */
typedef void (*EvalFn)(Arena *a, const Node *n, const Tensor *const *in, Tensor *out,
                       const EvalEnv *env);
/* Expansion into smaller ops (CLASS_CUSTOM), the same meaning: results in out[]. */
typedef void (*ExpandFn)(Graph *g, const Node *n, Node *const *in, Node **out);

typedef struct {
    const char *tag, *name; /* "MUL", "mul" */
    int arity;              /* -1 = any */
    OpClass class;
    Policy policy;
    ShapeFn shape; /* NULL: typed by the builder, see check */
    CheckFn check; /* NULL when shape is set */
    DerivKind deriv;
    const char *partial[3]; /* PARTIALS */
    TransposeFn transpose;  /* LINEAR, CUSTOM */
    const char *why;        /* ZERO, NONE */
    EvalFn eval;            /* the reference */
    ExpandFn expand;        /* or NULL */
    const char *c, *cuda;   /* expression over $0.. for pointwise ops */
    int cost;               /* 0 free, 1 cheap (add, mul), 8 dear (exp, div, tanh) */
    const char *meaning;    /* in words */
} OpRow;

extern const OpRow op_table[OP_COUNT];

/* The partial of n with respect to an input, as IR: the row's text over in[] and the result. A
   comparison becomes 1 or 0 in the operand's dtype. NULL when the row has none for that input. */
Node *op_partial(Graph *g, const Node *n, int input, Node *const *in, Node *result, Span at);
/* d summed to a scalar when the operand it belongs to is one and d is not; else d. */
Node *op_unbroadcast(Graph *g, Node *d, const Type *operand, Span at);

static inline const OpRow *op_row(Op op) { return &op_table[op]; }
/* Is a the same number in that 16-bit format, DT_BF16 or DT_F16? */
bool op_fits(double a, DType narrow);
double op_round(double a, DType narrow); /* the nearest number of that format */

static inline bool op_is(const Node *n, OpClass c) { return op_table[n->op].class == c; }
uint64_t op_stream_hash(const char *stream); /* random.c: what a stream is to the generator */
Op op_find(const char *name);                /* OP_COUNT when unknown */
void op_list(Text *t);                       /* --list-ops */

/* ---- work.c: what a node takes, at the sizes dims (by symbol id) ---------------------------- */

double op_bytes(const Node *n, int result, const int64_t *dims); /* of a result, as it is stored */
double op_flops(const Node *n, const int64_t *dims); /* floating-point operations; loops whole */
/* Time, in FLOPs of a large product: what waits for memory counts for that. */
double op_time(const Node *n, const int64_t *dims);

#endif
