/* random.h -- random graphs for the tests of the fuse pass. */
#ifndef GRADCC_TEST_RANDOM_H
#define GRADCC_TEST_RANDOM_H

#include "ir/program.h"

/* A program with dims, parameters, inputs and one random graph, program->graphs.at[0]. The same
   seed gives the same graph. */
Program *random_program(Context *cx, uint64_t seed);

#endif
