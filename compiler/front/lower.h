/* lower.h -- from the checked tree to the tensor IR. */
#ifndef GRADCC_LOWER_H
#define GRADCC_LOWER_H

#include "front/sem.h"
#include "ir/program.h"

/* How layers with a precision of their own differ from the program. */
typedef enum {
    LOWER_ALIKE,  /* in nothing: marks of precision are left out */
    LOWER_WIDE,   /* some are in 32 bits, the program has 16 */
    LOWER_NARROW, /* some are in 16 bits, the program has 32 */
} LowerRegions;

/* The program of a checked model: tables, and the graphs train, eval, count and output. Reals
   become `real`. Cannot fail: what could is reported by sem_check. */
Program *lower_program(Context *cx, Checked *c, DType real, LowerRegions regions);

#endif
