/* keep.h -- what the files of the keep pass share; nobody else includes it.
 *
 * keep_plan.c decides for one pair of loops, keep_cut.c finds a cheapest cut, keep_body.c rebuilds
 * loops, keep.c and keep_nest.c the graphs around them.
 */
#ifndef GRADCC_PASS_KEEP_H
#define GRADCC_PASS_KEEP_H

#include "op/op.h"
#include "pass/pass.h"

/* ---- keep_cut.c: the cheapest set of nodes that separates source and sink -------------------- */

typedef struct Cut Cut;

Cut *cut_new(Arena *a, int n_nodes);
void cut_weight(Cut *c, int node, int64_t weight); /* of having it in the set */
void cut_edge(Cut *c, int from, int to);           /* one of the ways to cut */
void cut_source(Cut *c, int node, int64_t weight); /* ways begin here, unless that is paid */
enum { CUT_NEVER = -1 };                           /* a weight that is not to be paid */
void cut_sink(Cut *c, int node);                   /* and end here */
/* Which nodes are in the set; of several cheapest sets the one nearest to the sink. */
bool *cut_solve(Cut *c);

/* ---- keep_plan.c ---------------------------------------------------------------------------- */

/* Two loops whose bodies hold the pair in question; `to` slices stacks of `from`. */
typedef struct {
    Node *from, *to;
} KeepBridge;

/* What the loop `to` has of the loop `from`, whose stacks it slices. */
typedef struct {
    Node *from, *to;        /* LOOPs */
    const KeepBridge *over; /* they stand in the bodies of these; NULL: in one graph */
    bool *needed;           /* by id in from's body: `to` slices the stack of this value */
    bool *saved;            /* by id: the value is stacked from now on */
    bool *again;            /* by id: it is computed again, for a needed value */
    int first_number;       /* of Again: that of the first node of from's body */
    bool *operand;          /* by id: of a product, looking through views */
    /* by id: the saved transpose from which the value is had by turning it back, or NULL */
    Node **turned;
} KeepPlan;

typedef VEC(KeepPlan *) KeepPlans;

/* The plan for a pair of loops; NULL when `to` slices nothing of `from`. */
KeepPlan *keep_plan(Context *cx, const KeepBridge *over, Node *from, Node *to,
                    const KeepChoice *choice, int first_number);
/* Costs no time to compute again, if no call reads it. */
bool keep_is_light(const Node *n);
bool keep_is_view(const Node *n); /* RESHAPE TRANSPOSE SLICE BROADCAST */
/* The value of from's body that is sliced as input i of `to`, or NULL. */
Node *keep_sliced(const KeepBridge *over, const Node *from, const Node *to, int i);

/* ---- keep_body.c: loops rebuilt by plans ----------------------------------------------------- */

typedef struct {
    ArgKind kind;
    Node *outer; /* the loop's input for it */
    Node *arg;   /* in the body */
    const Type *type;
    const char *name;
} NewArg;
typedef VEC(NewArg) NewArgs;

typedef struct Rebuild Rebuild;
struct Rebuild {
    Context *cx;
    KeepPlans *plans;
    Graph *to;     /* the graph being made, of the second loops */
    Node **copy;   /* by id in the old graph of the second loops: node of to */
    Node **first;  /* by id in the old graph of the first loops: its copy */
    Node **loop;   /* by id in that graph: the LOOP, rebuilt */
    int **stack;   /* by id of a loop, by id in its body: result that stacks it, or -1 */
    Node ***there; /* by plan, by id in from's body: node of the new body */
    NewArgs args;  /* of the body being made */
    /* A copy of a node of the first graph as a node of `to`; NULL: it is one. */
    Node *(*carry_over)(Rebuild *r, Node *n);
    void *user; /* of carry_over */
};

Rebuild *rebuild_new(Context *cx, KeepPlans *plans, Graph *to, int n_first, int n_second);
/* The second loop n of plans; loop is what rebuild_stacks has made of it. */
Node *rebuild_second(Rebuild *r, const Node *n, Loop *loop);
/* A copy of a loop with stacks for the plans; the body's ids stay. */
Loop *rebuild_stacks(Rebuild *r, Graph *to, const Node *n);
/* Is n the second loop of a plan? */
bool rebuild_is_second(const Rebuild *r, const Node *n);
/* name, undoes and side of a loop, for its successor; the value that stands for it. */
Node *rebuild_provenance(Node *made, const Node *n);

/* ---- keep_nest.c ---------------------------------------------------------------------------- */

/* The same for pairs of loops of which one stands in a loop and the other in a later one. */
Graph *keep_nested(Context *cx, Graph *g, const KeepChoice *choice);

#endif
