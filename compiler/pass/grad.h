/* grad.h -- what the files of the grad pass share; nobody else includes it.
 *
 * grad_flow.c finds what must be differentiated, grad.c sweeps a graph backwards, grad_loop.c
 * does the same for the body of a loop and makes the reversed loop.
 */
#ifndef GRADCC_PASS_GRAD_H
#define GRADCC_PASS_GRAD_H

#include "op/op.h"
#include "pass/pass.h"

/* ---- grad_flow.c: which values depend on the sources and count for the results -------------- */

/* Flags per value of a graph: result k of node id is at[id] + k. */
typedef struct Flow Flow;
struct Flow {
    Graph *graph;
    int *at;       /* by node id: index of its first result */
    bool *source;  /* by node id: set by the caller; adjoints of these are wanted */
    bool *wanted;  /* by node id: set by the caller; results with an adjoint */
    bool *depends; /* by value: changes when a source changes */
    bool *reaches; /* by value: depends, and a wanted node changes with it */
    Flow **inner;  /* by node id: flow of the body of a LOOP, else NULL */
};

Flow *flow_new(Context *cx, Graph *g); /* nothing is wanted yet */
void flow_solve(Flow *f);              /* source and wanted -> depends and reaches */
bool flow_active(const Flow *f, const Node *n, int k); /* has result k an adjoint? */
int flow_report(Context *cx, const Flow *f);     /* reports ops without a derivative; how many */
Node *flow_result(const Graph *body, int index); /* the node of SINK_RESULT index */

/* ---- grad.c: one graph backwards ------------------------------------------------------------ */

typedef VEC(Node *) Terms; /* whose sum is an adjoint */

/* An argument of a backward body and where the loop around it gets the value. */
typedef enum {
    FROM_D_RESULT, /* adjoint of result `index` of the forward loop */
    FROM_ZERO,     /* zeros like input `index`: the sum of a shared input's adjoint */
    FROM_INPUT,    /* input `index` of the forward loop */
    FROM_SAVED,    /* result `index` of the forward loop, added for this */
} FromKind;

typedef struct {
    ArgKind kind;
    FromKind from;
    int index; /* see FromKind */
    Node *arg; /* in the body */
} BodyArg;
typedef VEC(BodyArg) BodyArgs;

/* How a loop is undone: the forward loop that also saves, and the loop that goes back. */
typedef struct {
    Loop *forward, *backward; /* being made */
    Node *loop;               /* the forward loop in fwd */
    BodyArgs in;              /* of the backward loop, in the order of its inputs, without iter */
    int n_out;                /* results of the backward loop */
    int *target; /* by result of the backward loop: the forward input it is adjoint of */
} LoopUndo;

/* The work on one graph. Forward values are copied from `from` to `fwd`; adjoints are built in
   `bwd`. For a whole graph these two are one; for a loop body they are two bodies, and a forward
   value that `bwd` reads becomes an argument of it. */
typedef struct {
    Context *cx;
    Flow *flow;
    Graph *from, *fwd, *bwd;
    Node **copy;       /* by id in from: the node in fwd */
    Terms *terms;      /* by value: what adds up to its adjoint, nodes of bwd */
    LoopUndo **undo;   /* by id in from: of loops on the way */
    Map *imported;     /* from nodes of fwd to nodes of bwd; NULL when they are one graph */
    BodyArgs args;     /* of a backward body, in order of creation */
    VEC(Node *) saved; /* nodes of fwd that FROM_SAVED counts */
    int n_forward;     /* results of the forward loop before any is added */
    Node *iter;        /* ARG_ITER of bwd */
} Sweep;

/* No terms yet; flow is solved. */
Sweep *sweep_new(Context *cx, Flow *flow, Graph *fwd, Graph *bwd);
/* Copies from into fwd; its loops learn to save. */
void sweep_forward(Sweep *s);
/* From the terms of the results to those of the sources. */
void sweep_backward(Sweep *s);
/* One more term of the adjoint of a node of from. */
void sweep_add(Sweep *s, const Node *value, Node *d);
/* The sum of the terms of result k; NULL when there are none. */
Node *sweep_adjoint(Sweep *s, const Node *n, int k);
/* Provenance of the nodes of bwd from number first on. */
void grad_mark(Sweep *s, int first, const Node *undone);
Node *grad_zeros(Graph *g, const Type *t, Span at); /* a value of type t that is 0 */

/* ---- grad_loop.c ---------------------------------------------------------------------------- */

LoopUndo *loop_undo_new(Sweep *s, const Node *loop); /* NULL when nothing in it has an adjoint */
void loop_undo_apply(Sweep *s, const Node *loop);    /* makes the backward loop; adds its terms */
Node *loop_import(Sweep *s, Node *forward);          /* a node of fwd as a node of bwd */

#endif
