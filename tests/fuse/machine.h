/* machine.h -- a machine that executes kernel IR in double precision. */
#ifndef GRADCC_TEST_MACHINE_H
#define GRADCC_TEST_MACHINE_H

#include "op/op.h"
#include "pass/kernel.h"

typedef struct {
    int64_t len;
    double *at;
} Memory;

typedef struct {
    Arena *arena;
    Program *p;
    Routine *r;
    const EvalEnv *env;
    bool add;       /* s->add */
    Memory *buffer; /* by buffer id */
    int64_t iter[DEPTH_MAX];
    bool first;        /* first executed iteration of the innermost loop */
    const char *wrong; /* first access out of bounds, or NULL */
} Machine;

/* Memory of all buffers: NaN, but for parameters and inputs. */
Machine machine_new(Arena *a, Program *p, Routine *r, const EvalEnv *env);
void machine_run(Machine *m);
Memory *machine_buffer(Machine *m, BufKind kind, int index); /* NULL when the routine has none */
/* Element i (row-major) of a parameter of the given stacked type: where it lies. */
int64_t machine_param_at(const Machine *m, int index, int64_t i);

#endif
