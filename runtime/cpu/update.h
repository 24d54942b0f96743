/* update.h -- what updates on a CPU share: pieces of the flat buffer, sums in a fixed tree. */
#ifndef GRADCC_UPDATE_H
#define GRADCC_UPDATE_H

#include "optim/tensor.h"

double rt_sum_tree(const double *x, int n); /* in a fixed tree */
/* What an optimizer is given of a piece. */
RtUpdate rt_piece_update(const RtRun *run, const RtStep *s, RtPiece q);
/* A piece of p has its new values: they go to the 16-bit copy and the average of the weights. */
void rt_piece_updated(const RtRun *run, const RtStep *s, RtPiece q);
/* A sum of all pieces of a tensor, in a fixed tree. */
double rt_tensor_sum(const RtTensors *all, const RtTensor *t, int sum);

void rt_ema_piece(const RtRun *run, const RtStep *s, RtPiece q); /* one step of the average */
void rt_ema_follow(const RtRun *run, const RtStep *s);           /* the same, of all */
void rt_params_round(const RtModel *m, const void *x, void *p);  /* p = flat values in real type */

/* rounding.c: an update of elements q.from..q.to-1, which are at p in fp32. */
typedef void (*RtUpdatePiece)(RtRun *run, RtPiece q, void *p, const void *how);
void rt_piece_rounded(RtRun *run, const RtStep *s, RtPiece q, RtUpdatePiece update,
                      const void *how);
/* Elements from..from+n-1 of the flat buffer, rounded to bf16 at random. */
void rt_round_halves(RtKey key, ptrdiff_t from, ptrdiff_t n, const float *restrict x,
                     uint16_t *restrict to);

/* What gradients are multiplied with: the clip's factor, without the loss scale. */
static inline double rt_factor(const RtStep *s)
{
    return s->factor / (s->scale > 0 ? s->scale : 1);
}

/* The next loop over pieces, in parallel. */
#define RT_EACH_PIECE(run)                                                                         \
    RT_PRAGMA(omp parallel for schedule(static) if ((run)->model->n_elems > RT_PIECE))

#endif
