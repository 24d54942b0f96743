/* cu_form.h -- how the threads of a GPU do a MAP kernel: decided once, for the emitter, for the
 * workspace and for --explain=traffic.
 */
#ifndef GRADCC_EMIT_CU_FORM_H
#define GRADCC_EMIT_CU_FORM_H

#include "emit/parts.h"

typedef enum {
    CU_FLAT,    /* a thread per vector of the last axis; nothing is summed but totals */
    CU_ROWS,    /* a team per row; phases over the row */
    CU_COLUMNS, /* a thread per vector of columns, rows in ranges: sums of columns, no phases */
} CuKind;

typedef enum { CU_THREAD, CU_WARP, CU_BLOCK } CuTeam; /* of threads that do a row together */

typedef enum {
    CU_AGAIN,     /* what a later phase needs is read again */
    CU_REGISTERS, /* it stays in registers */
    CU_SHARED,    /* ... in shared memory */
} CuKeep;

typedef struct {
    CuKind kind;
    CuTeam team;  /* ROWS */
    int threads;  /* of a block */
    int vector;   /* elements of the last axis that a thread takes at a time; 1: no vectors */
    bool ragged;  /* ROWS, COLUMNS: the last vector of a row is not whole */
    int count;    /* ROWS: vectors of a row that each thread has; 0: a loop */
    bool whole;   /* ... and they are just the row */
    CuKeep keep;  /* ROWS of several phases */
    int kept;     /* ... registers of a lane for that */
    int shared;   /* bytes of shared memory for rows that are kept */
    int parts;    /* ranges of rows or elements, a block each; 0: no sums over them */
    int columns;  /* effects that sum columns, and */
    int totals;   /* ... everything */
    bool in_work; /* ROWS: sums of columns do not fit registers and lie in the workspace */
    bool *varies; /* by value: does it depend on the last axis? */
    int *with;    /* by value: a sum of exp(x - the largest x) is made in the loop that finds that
                     value, for x is not kept; -1: it is not */
} CuForm;

CuForm cu_form(KernelProgram *kp, const Kernel *k);
/* Are the elements of an access side by side along the last axis, and vectors of them aligned? */
bool cu_is_vector(KernelProgram *kp, const Kernel *k, const CuForm *f, const Access *a);
/* Is it another one for each row? What all rows share lies in the caches, and is not kept. */
bool cu_is_of_row(const Kernel *k, const Access *a);
bool cu_may_keep(const Kernel *k, const CuForm *f, const Access *a); /* from phase to phase */
/* The phase in whose loop over the row a reduction is made. */
int cu_loop_of(const Kernel *k, const CuForm *f, int v);
/* Phases whose loops over the row load or store the elements of an access. */
int cu_phases_with(const Kernel *k, const CuForm *f, const Access *a);
bool cu_same_access(const Access *a, const Access *b);
int64_t cu_shared_elements(const CuForm *f, int64_t n); /* of a row of n there: whole vectors */
int cu_shared_bytes(int64_t n, DType t); /* of n elements there, the next ones aligned */
int cu_row_lanes(const CuForm *f);       /* threads of a team */

#endif
