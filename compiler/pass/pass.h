/* pass.h -- the passes, one function and one file each. pipeline.c runs them in order.
 *
 * A tensor pass takes a graph and returns the graph that replaces it. Passes never include each
 * other and keep nothing between calls.
 */
#ifndef GRADCC_PASS_H
#define GRADCC_PASS_H

#include "ir/program.h"
#include "op/op.h"

/* expand.c: sets what the later passes need: CUSTOM ops other than ATTENTION and ATTENTION_GRAD
   become smaller ops (cross entropy is a row kernel after that). Runs after grad. With all set
   (-O0 and checks), attention too. */
Graph *pass_expand(Graph *g, bool all);

/* simplify.c + rules.def: rewrite rules, constant folding, views merged (reshape of reshape,
   transpose pairs, slice of concat, sum of disjoint pads -> concat), dead code. */
Graph *pass_simplify(Graph *g);
Graph *pass_simplify_fast(Graph *g); /* the rules marked FAST too */
/* gradcc --check-rules: both sides of every rule on random and special values. Prints a line per
   rule that fails and the count; true if all hold. */
bool simplify_check_rules(Context *cx, FILE *out);

/* precision.c: rounds what is kept in 16 bits, narrow = DT_BF16 or DT_F16, in a graph without
   adjoints. pass_settle, after grad: carries that are rounded wherever they are read are rounded
   where they are made. */
Graph *pass_precision(Graph *g, DType narrow);
Graph *pass_borderless(Graph *g); /* without the ops that say where precision changes */
Graph *pass_settle(Graph *g);

/* masters.c: parameters without an fp32 master, behind precision. Marks those that a product of g
   reads (of every graph, first); lets all that reads them read their 16 bits; splits stacks that
   have parameters of both kinds (once). */
void masters_mark(Graph *g);
Graph *pass_masters(Graph *g);
void masters_place(Program *p);

/* lint.c: warns of arithmetic that can make NaN or infinity, in the forward graphs. */
void pass_lint(Program *p);

/* grad.c: reverse mode. Adds SINK_GRAD contributions for every parameter that the SINK_SUM of
   slots with weight != 0 reaches; the adjoint of slot k's sum is SEED(k). Nodes it makes have
   backward = true and undoes set. Reports (diag_error at the user's line) ops without a
   derivative on the way, and parameters that no loss reaches. */
Graph *pass_grad(Graph *g);

/* Adjoints for the tests: the sinks SINK_RESULT of the result are the adjoints of `wrt` when the
   adjoint of SINK_RESULT k of g is d_out[k] (inputs that are appended to the program). */
Graph *grad_of_results(Graph *g, Node *const *wrt, int n_wrt);

/* keep.c: which forward values the backward pass of a loop keeps, and which it computes again.
   Stacks that nobody reads disappear. Runs after grad and simplify. */
typedef enum {
    KEEP_CHEAP, /* what costs no time is computed again: pointwise values, views, draws */
    KEEP_ALL,   /* nothing is, but for views */
    KEEP_CARRY, /* all is, from the carried values */
    KEEP_PRICE, /* what costs less than price per byte that it saves */
} KeepRule;
typedef struct {
    KeepRule rule;
    double price;     /* of a byte, in FLOPs of a product */
    const bool *hold; /* values that are kept all the same, by the number below; or NULL */
} KeepChoice;
/* What is computed again. */
typedef struct {
    int number;        /* the same for every choice */
    const Node *value; /* in the body of the loop that makes it */
    const char *name;  /* its own, or of its first result; or NULL */
    const Dim *trip;   /* iterations of that loop */
    bool wanted;       /* the backward pass reads it; else it is on the way to such a value */
    bool light;        /* costs no time: part of a kernel that would be there without it */
} Again;
typedef VEC(Again) AgainList;
/* again: what is computed again in loops of this graph; NULL: nobody asks. */
Graph *pass_keep(Graph *g, const KeepChoice *choice, AgainList *again);

/* chunk.c: the largest product that the loss follows from row by row, and all that follows from
   it, in a loop over parts of that many rows, so that only one part of the logits exists. The
   values of losses and of gradients of rows are the same; sums over rows (the gradient of the
   weight) are added part by part. NULL where that cannot be: *fail is the node that needs more
   than its rows, or NULL where there is no such product. Runs last. */
Graph *pass_chunk(Graph *g, int64_t rows, const Node **fail);
int64_t chunk_head_bytes(Graph *g); /* of that product, at the training dims; 0: there is none */

#endif
