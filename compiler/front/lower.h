/* lower.h -- from the checked tree to the tensor IR. */
#ifndef GRADCC_LOWER_H
#define GRADCC_LOWER_H

#include "front/sem.h"
#include "ir/program.h"

/* The program of a checked model: tables, and the graphs train, eval, count and output. Reals
   become `real`. Cannot fail: what could is reported by sem_check. */
Program *lower_program(Context *cx, Checked *c, DType real);

#endif
