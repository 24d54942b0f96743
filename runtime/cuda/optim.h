/* optim.h -- what updates on a GPU share: the tables that they go through, sums of a block.
 */
#ifndef GRADCC_CUDA_OPTIM_H
#define GRADCC_CUDA_OPTIM_H

#include "optim/tensor.h"

#include "device.h"

enum {
    RT_NORM_BLOCKS = 4096, /* most blocks that sum over all parameters */
    RT_TILE_ROWS = 256,    /* rows that a thread adds up of a column */
};

/* A tensor as updates on the device see it: its parts, its rows and columns. */
typedef struct RtTensorRow {
    ptrdiff_t from, to; /* elements of the flat buffer */
    double rate, decay; /* as in RtPart */
    int first, n;       /* parts */
    int matrix;         /* the first of its matrices, and how many: those of its last two axes; */
    int matrices;       /* 0: it is a vector */
    ptrdiff_t R, C;     /* rows and columns of each; of a vector 1 and all */
    ptrdiff_t rows;     /* Adafactor: the first of its own in the state of rows, */
    ptrdiff_t own;      /* in that of columns, or of vectors; Muon: of what AdamW updates, -1: it
                            is a matrix that Muon takes */
} RtTensorRow;

/* What a block of Adafactor works on: rows or matrices from..to-1 of a tensor, or columns of all
   its matrices, in their rows row..row+RT_TILE_ROWS-1. */
typedef struct RtTile {
    int tensor;
    ptrdiff_t from, to, row;
    ptrdiff_t at; /* of columns: the first of their partial sums */
} RtTile;

/* tables.cu */
int rt_parts_of(ptrdiff_t from, ptrdiff_t to); /* how many parts elements from..to-1 are cut into */

/* optim.cu: all that the kernels of an update are given. */
RtUpdates rt_updates(const RtRun *run, const RtStep *s);
/* Where that of RtUpdates.power is; the optimizer has such a number. */
const double *rt_power_of(const RtRun *run, const char *hyper);

/* The sum of x over the threads of a block of RT_UPDATE_THREADS, of thread 0; in a fixed tree. */
RT_DEVICE double rt_update_sum(double x)
{
    __shared__ double warp[RT_UPDATE_THREADS / 32];
    x = rt_warp_sum(x);
    if (threadIdx.x % 32 == 0)
        warp[threadIdx.x / 32] = x;
    __syncthreads();
    for (int n = 1; threadIdx.x == 0 && n < RT_UPDATE_THREADS / 32; n++)
        x += warp[n];
    __syncthreads(); /* warp[] may be written again */
    return x;
}

/* The sum of n numbers, every `step`th, by the threads of a block; of thread 0. Other blocks of the
   launch may have written them. */
RT_DEVICE double rt_update_sum_of(const double *x, int n, int step)
{
    double sum = 0;
    for (int i = (int)threadIdx.x; i < n; i += RT_UPDATE_THREADS)
        sum += __ldcg(&x[(ptrdiff_t)i * step]);
    return rt_update_sum(sum);
}

/* New values of parameters: to p, to the copy that products read, to the average of the weights. */
template <typename T>
RT_DEVICE void rt_put_parameters(const RtUpdates &u, RtType copy, const RtPart &q, ptrdiff_t i,
                                 const T (&p)[4])
{
    rt_put(u.p, q, i, p);
    if constexpr (sizeof(T) == sizeof(float)) {
        if (u.copy && copy == RT_BF16)
            rt_put_bf16(u.copy, q, i, p);
        else if (u.copy)
            rt_put_f16(u.copy, q, i, p);
    }
    rt_put_average(u, q, i, p);
}

/* Elements i..i+3 of a buffer that has one for each element of a tensor: `first` is that of element
   `from` of the flat buffer. */
template <typename T>
RT_DEVICE void rt_take_own(T (&x)[4], const T *first, ptrdiff_t from, const RtPart &q, ptrdiff_t i)
{
    const T *at = first + (i - from);
    if (rt_part_has_four(q, i) && (uintptr_t)at % 16 == 0) {
        rt_read_four(x, at);
        return;
    }
    for (int k = 0; k < 4; k++)
        x[k] = rt_part_has(q, i + k) ? at[k] : (T)0;
}

template <typename T>
RT_DEVICE void rt_put_own(T *first, ptrdiff_t from, const RtPart &q, ptrdiff_t i, const T (&x)[4])
{
    T *at = first + (i - from);
    if (rt_part_has_four(q, i) && (uintptr_t)at % 16 == 0) {
        rt_write_four(at, x);
        return;
    }
    for (int k = 0; k < 4; k++)
        if (rt_part_has(q, i + k))
            at[k] = x[k];
}

#endif
