/* tensor.h -- what optimizers share that need something of a whole tensor first: its norm, means
 * of its rows, a product. A tensor is a parameter, or one repetition of it in a stack.
 */
#ifndef GRADCC_TENSOR_H
#define GRADCC_TENSOR_H

#include "run.h"

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

/* A sum of all pieces of a tensor, in a fixed tree. */
double rt_tensor_sum(const RtTensors *all, const RtTensor *t, int sum);
/* A piece of p has its new values: they go to the 16-bit copy and the average of the weights. */
void rt_piece_updated(const RtRun *run, const RtStep *s, RtPiece q);

/* What gradients are multiplied with: the clip's factor, without the loss scale. */
static inline double rt_factor(const RtStep *s)
{
    return s->factor / (s->scale > 0 ? s->scale : 1);
}

/* The next loop over pieces, in parallel. */
#define RT_EACH_PIECE(run)                                                                         \
    RT_PRAGMA(omp parallel for schedule(static) if ((run)->model->n_elems > RT_PIECE))

#endif
