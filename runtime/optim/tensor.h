/* tensor.h -- what optimizers share that need something of a whole tensor first: its norm, means
 * of its rows, a product. A tensor is a parameter, or one repetition of it in a stack.
 */
#ifndef GRADCC_TENSOR_H
#define GRADCC_TENSOR_H

#include "run.h"

#if defined(__cplusplus) /* cuda/ */
extern "C" {
#endif

typedef struct {
    int param; /* row of the parameter table, and which repetition of it: */
    ptrdiff_t repeat;
    RtPiece all;          /* its elements, and the numbers they are updated with */
    int first, n;         /* its pieces */
    int matrix, matrices; /* those of its last two axes, 0 of a vector; the first in .means */
} RtTensor;

enum { RT_TENSOR_SUMS = 2 };

struct RtTensors { /* in the order of the table; those that stay as they are not among them */
    RtTensor *at;
    int n;
    RtPiece *pieces; /* of all, at most RT_PIECE elements each, so no thread count changes them */
    int n_pieces;
    int *owner;                   /* the tensor of each piece */
    double *factor;               /* one per tensor, for what an update finds out about it */
    double *means;                /* one per matrix */
    double *sums[RT_TENSOR_SUMS]; /* one per piece each, for what an update adds up */
};

/* ---- states.c -------------------------------------------------------------------------------- */

enum { ADAFACTOR_ROWS, ADAFACTOR_COLUMNS, ADAFACTOR_WHOLE }; /* states */
enum { MUON_MOMENTUM, MUON_SQUARES };

bool rt_muon_takes(const RtParam *q); /* else it is updated by AdamW */
/* The products of a step for X[R,C]: A = X X' or X' X, A A, and that times X. It works in the arena
   in x[R,C], y[R,C], A, A A, each of rt_muon_room elements. */
RtMatmul rt_muon_square(ptrdiff_t R, ptrdiff_t C);
RtMatmul rt_muon_power(ptrdiff_t R, ptrdiff_t C);
RtMatmul rt_muon_apply(ptrdiff_t R, ptrdiff_t C);
ptrdiff_t rt_muon_room(ptrdiff_t n); /* of a buffer of n: the next one is aligned too */

#if defined(__cplusplus)
}
#endif

#endif
