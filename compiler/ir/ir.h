/* ir.h -- the tensor IR: immutable, hash-consed nodes; graphs; one loop op; text in and out.
 *
 * A Node is a value (or several) computed from others. Equal nodes are one object. Nothing in a
 * node belongs to a pass: passes keep side arrays indexed by node id. Nodes of one graph have
 * dense ids in creation order, and a node is created after its inputs, so id order is a
 * topological order.
 *
 * Shapes: a pointwise operand has the shape of the result or rank 0; every other broadcast is an
 * explicit BROADCAST. Reductions drop their axes. MATMUL has equal leading (batch) dims on both
 * sides; products with a shared matrix are flattened to rank 2 by reshapes.
 */
#ifndef GRADCC_IR_H
#define GRADCC_IR_H

#include "front/type.h"

/* Op codes: one per row of op/ops.def, in its order. */
typedef enum {
#define OP(tag, ...) OP_##tag,
#include "op/ops.def"
#undef OP
    OP_COUNT
} Op;

typedef struct Node Node;
typedef struct Graph Graph;
typedef struct Program Program; /* program.h */

/* ---- attributes ---------------------------------------------------------------------------- */

typedef enum { ARG_CARRY, ARG_SLICE, ARG_SHARED, ARG_ITER } ArgKind;

typedef struct Loop Loop;

typedef struct {  /* all zero unless the op uses the field */
    double value; /* CONST */
    /* PARAM, INPUT, SEED, MEAN: number in the program's table; ARG: position; RESULT: which
       result */
    int index;
    ArgKind arg; /* ARG */
    /* reductions: axes, ascending; TRANSPOSE: result axis k is input axis axes[k]; BROADCAST:
       input axis k is result axis axes[k] (ascending); CONCAT, IOTA: the one axis */
    int n_axes;
    int axes[RANK_MAX];
    const Dim *lo[RANK_MAX]; /* SLICE: first index per axis; PAD: zeros before */
    bool ta, tb;             /* MATMUL: operand is transposed in its last two */
    bool causal;             /* ATTENTION* */
    bool wide;               /* ATTENTION*: in 32 bits, in a program that has 16 */
    bool keep;               /* STOP: never merged with an equal node */
    /* UNIFORM, NORMAL: declaration path and number of the draw, "h.*.dropout.0"; keys the
       generator */
    const char *stream;
    const Dim *dim; /* DIM: the dim whose value this is */
    Loop *loop;     /* LOOP */
} Attr;

/* LOOP. Node inputs: n_carry initial values, n_slice sliced tensors [trip, ...], n_shared
   loop-invariant values. Body arguments in the same order, then ARG_ITER (i32 scalar).
   Body results (sinks SINK_RESULT 0..): n_carry next values, then n_stack elements.
   Node results: n_carry final values, then n_stack stacked tensors [trip, ...].
   With reverse, iterations run from trip-1 down to 0 (slices and stacks are indexed by the
   iteration, not by the order).
   With part, an iteration gets the next rows of the first axis instead of one element: that axis
   of sliced inputs and stacked results is part->whole outside and the symbol part in the body. */
struct Loop {
    /* the layer's ("block") or "scan"; names the emitted function */
    const char *name;
    const char *var;                         /* loop variable of the source ("i"), or NULL */
    const char *stack;                       /* the stack iterated over ("h"), or NULL */
    const Dim *trip;                         /* iterations */
    const Symbol *part;                      /* NULL: slices are elements */
    bool reverse;                            /* from the last to the first */
    int n_carry, n_slice, n_shared, n_stack; /* of each kind of input, and stacked results */
    Graph *body;                             /* of one iteration */
};

/* ---- nodes --------------------------------------------------------------------------------- */

struct Node {
    Op op;
    int id; /* dense within its graph */
    Graph *graph;
    int n_in, n_out;
    Node **in;          /* operands */
    const Type **types; /* n_out of them */
    const Type *type;   /* types[0] */
    Attr attr;
    Span span; /* of the first creator */
    /* hint from the model: "x", path-joined in layers ("attn_q"); NULL = none */
    const char *name;
    const Node *undoes; /* gradient node: the forward node it came from */
    bool backward;      /* made by the grad pass */
};

typedef enum {
    SINK_SUM,    /* index: mean slot; scalar added to the slot's sum */
    SINK_COUNT,  /* index: mean slot; scalar added to the slot's count */
    SINK_GRAD,   /* index: parameter. May appear several times: contributions, in order */
    SINK_OUTPUT, /* index: program output */
    SINK_RESULT, /* index: result of a loop body, of a scalar formula, of an IR text */
} SinkKind;

typedef struct {
    SinkKind kind;
    int index;  /* see SinkKind */
    Node *node; /* whose value goes there */
} Sink;

struct Graph {
    Program *program;
    const char *name;  /* "train", "eval", "count", "output", or of the body */
    VEC(Node *) nodes; /* by id */
    VEC(Node *) args;  /* ARG nodes of a loop body, by position */
    VEC(Sink) sinks;
    Graph *parent; /* of a loop body: the graph of the LOOP */
    void *consed;  /* hash table of node.c */
};

/* ---- node.c: building. All check arity and types; a violation is a bug(). ------------------- */

Graph *graph_new(Program *p, const char *name, Graph *parent);
/* Types are inferred by the op's shape rule. */
Node *ir_node(Graph *g, Op op, int n_in, Node *const *in, const Attr *attr, Span at);
/* The type is given: PARAM INPUT ARG CONST SEED MEAN DIM IOTA UNIFORM NORMAL RESHAPE BROADCAST
   SLICE PAD CAST SCATTER. */
Node *ir_typed(Graph *g, Op op, const Type *type, int n_in, Node *const *in, const Attr *attr,
               Span at);
void ir_sink(Graph *g, SinkKind kind, int index, Node *n); /* one more */
Node *ir_named(Node *n, const char *name); /* sets the hint if it has none; returns n */

/* Conveniences, each one node. `at` is the span. */
Node *ir_const(Graph *g, DType t, double value, Span at); /* rank 0 */
Node *ir_dim(Graph *g, DType t, const Dim *d, Span at);   /* its value, rank 0 */
Node *ir_param(Graph *g, int index, Span at);
Node *ir_input(Graph *g, int index, Span at);
Node *ir_arg(Graph *body, ArgKind kind, const Type *type, Span at); /* appended to args */
Node *ir_unary(Graph *g, Op op, Node *a, Span at);
Node *ir_binary(Graph *g, Op op, Node *a, Node *b, Span at);
Node *ir_where(Graph *g, Node *c, Node *a, Node *b, Span at);
Node *ir_cast(Graph *g, Node *a, DType t, Span at); /* a itself if it has t */
Node *ir_reduce(Graph *g, Op op, Node *a, int n_axes, const int *axes, Span at);
Node *ir_matmul(Graph *g, Node *a, Node *b, bool ta, bool tb, Span at);
Node *ir_reshape(Graph *g, Node *a, int rank, const Dim *const *dim, Span at); /* or a itself */
Node *ir_transpose(Graph *g, Node *a, const int *axes, Span at);
Node *ir_broadcast(Graph *g, Node *a, int rank, const Dim *const *dim, const int *axes, Span at);
Node *ir_slice(Graph *g, Node *a, const Dim *const *lo, const Dim *const *size, Span at);
/* size: of the result. */
Node *ir_pad(Graph *g, Node *a, const Dim *const *before, const Dim *const *size, Span at);
Node *ir_concat(Graph *g, int n, Node *const *in, int axis, Span at);
Node *ir_gather(Graph *g, Node *table, Node *ids, Span at); /* rows: table[ids] */
Node *ir_scatter(Graph *g, Node *ids, Node *rows, const Dim *n_rows, Span at); /* adds into zeros */
Node *ir_iota(Graph *g, int rank, const Dim *const *dim, int axis, Span at);   /* i32 */
Node *ir_result(Node *n, int k); /* RESULT k of several; n itself if it has one */
Node *ir_loop(Graph *g, Loop *loop, int n_in, Node *const *in, Span at);

/* ---- graph.c: walking and rewriting -------------------------------------------------------- */

/* Marks what the sinks need (loops included): bool per id, in scratch. */
bool *graph_live(Graph *g);
/* uses[id]: how many times a live node is an input or a sink. */
int *graph_uses(Graph *g);
/* A copy of g in which each live node is rebuilt over rebuilt inputs, and each rebuilt node is
   offered to rewrite (NULL from it = keep). Loop bodies are rewritten too, first. Dead code,
   results of loops that nobody uses, and loop inputs that the body does not use disappear.
   Span, name, undoes and backward are kept. */
typedef Node *(*Rewrite)(Graph *to, Node *rebuilt, void *user);
Graph *graph_rewrite(Graph *g, Rewrite rewrite, void *user);
/* The node of `to` that is n rebuilt over map[id of its input]; keeps span, name, undoes and
   backward. A LOOP shares its body with n. */
Node *graph_copy_node(Graph *to, const Node *n, Node *const *map);

/* ---- text.c, read.c: print and read back ------------------------------------------- */

/*  graph f(x: f32[B,D]) {
      %one = const 1 : f32[]
      %y   = mul x, %one : f32[B,D]        # a.model:3
      return %y
    }                                                                                        */
void ir_print(Text *t, Graph *g);
/* The symbols and means that read.c needs before the graphs of p. */
void ir_print_header(Text *t, const Program *p);
/* Reads graphs (dims, inputs, params as arguments of the graph); errors through diag with place. */
bool ir_read(Context *cx, int file, Program **program); /* fills program->graphs */

/* ---- check.c: what must hold after every pass ----------------------------------------------- */

typedef enum { STAGE_TENSOR, STAGE_JOINT, STAGE_KERNEL } Stage;
/* NULL if all is well, else what is wrong, with the node. */
const char *ir_check(Graph *g, Stage stage);

/* ---- eval.c: the slow, obvious evaluator, in double ----------------------------------------- */

typedef struct Tensor { /* dense, row-major; whole numbers and truth values as doubles too */
    int rank;
    int64_t dim[RANK_MAX];
    int64_t elems;
    double *at;
} Tensor;

typedef struct {
    const int64_t *dims;         /* values by symbol id */
    Tensor *params, *inputs;     /* by index */
    const double *seeds, *means; /* by mean slot */
    const Tensor *args;          /* of ARG nodes, by position */
    uint64_t seed, step;         /* of the generator */
    int64_t sample_base;         /* global index of the first sample */
} EvalEnv;

/* Zeros; dims: values by symbol id. */
Tensor tensor_new(Arena *a, const Type *t, const int64_t *dims);
/* Values of all sinks of g, in order, allocated in a. */
Tensor *ir_eval(Arena *a, Graph *g, const EvalEnv *env);

#endif
