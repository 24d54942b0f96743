/* cu_map.h -- what cu_map.c (blocks, rows, sums over them) and cu_row.c (a row) share. */
#ifndef GRADCC_EMIT_CU_MAP_H
#define GRADCC_EMIT_CU_MAP_H

#include "emit/cu.h"
#include "emit/cu_form.h"
#include "emit/map.h"

typedef struct { /* elements that are loaded as vectors, or kept from phase to phase */
    const Access *access;
    const char *name; /* "x_v": of one vector; "x_row": of a thread's part of the row */
    bool kept;
    bool ready; /* filled by what is written so far */
} Held;

typedef struct { /* a MAP kernel's __global__ function under construction */
    MapWriter m; /* first: cu_of */
    CudaWriter *c;
    KernelProgram *kp;
    CuForm f;
    int row;                            /* number of the last axis; -1: none */
    const char *at;                     /* variable: first element of a vector */
    const char *lane, *warp, *k, *elem; /* other variables */
    VEC(Held) held;
    Names *names;             /* of the whole function */
    Text declared;            /* of what is kept, in front of the phases of a row */
    int depth;                /* indent of its declarations */
    int bytes;                /* of shared memory given out */
    Text shared;              /* ... in words of the host: "V*sizeof(rt_bf16)" */
    const char *first_shared; /* what lies first there */
} CuMap;

static inline CuMap *cu_of(MapWriter *m) { return (CuMap *)m; }

const char *cu_launch_comment(CuMap *x); /* cu_comment.c: grid, block, who owns what */

/* cu_row.c */
const char *cu_held(MapWriter *m, const Value *v);
void cu_row(CuMap *x, int phase);         /* what a thread does with its part of the row */
void cu_row_effects(CuMap *x, int phase); /* what a team does once per row */
bool cu_has_word(const char *text, const char *word);
const char *cu_sum_index(CuMap *x); /* of a sum of a column: "[k][e]" */

#endif
