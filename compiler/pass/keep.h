/* keep.h -- what the files of the keep pass share; nobody else includes it.
 *
 * keep_plan.c decides for one pair of loops, keep_cut.c finds a cheapest cut, keep.c rebuilds.
 */
#ifndef GRADCC_PASS_KEEP_H
#define GRADCC_PASS_KEEP_H

#include "op/op.h"
#include "pass/pass.h"

/* ---- keep_cut.c: the cheapest set of nodes that separates source and sink -------------------- */

typedef struct Cut Cut;

Cut  *cut_new(Arena *a, int n_nodes);
void  cut_weight(Cut *c, int node, int64_t weight);     /* what it costs to have it in the set   */
void  cut_edge(Cut *c, int from, int to);
void  cut_source(Cut *c, int node);
void  cut_sink(Cut *c, int node);
/* Which nodes are in the set; of several cheapest sets the one nearest to the sink. */
bool *cut_solve(Cut *c);

/* ---- keep_plan.c ----------------------------------------------------------------------------- */

/* What the loop `to` has of the loop `from`, whose stacks it slices. */
typedef struct {
    Node *from, *to;
    bool *needed;           /* by id in from's body: `to` slices the stack of this value         */
    bool *saved;            /* by id: the value is stacked from now on                           */
    bool *again;            /* by id: it is computed again, for a needed value                   */
    Node **turned;          /* by id: the saved transpose from which the value is had by turning
                               it back, or NULL                                                  */
} KeepPlan;

/* The plan for a pair of loops of one graph; NULL when `to` slices nothing of `from`. */
KeepPlan *keep_plan(Context *cx, Node *from, Node *to);
/* The value of from's body that is sliced as input i of `to`, or NULL. */
Node     *keep_sliced(const Node *from, const Node *to, int i);
/* Has `to` the outer value n as a sliced input already? Its position, or -1. */
int       keep_slice_of(const Node *to, const Node *outer);

#endif
