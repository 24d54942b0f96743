/* recompute.h -- the choice of what the backward pass computes again. */
#ifndef GRADCC_RECOMPUTE_H
#define GRADCC_RECOMPUTE_H

#include "emit/emit.h"
#include "pass/pass.h"

/* Arena bytes and effort of the training routine that a joint graph becomes. */
typedef struct {
    int64_t arena;
    Effort effort;
} Tried;

/* How a choice is tried: the passes behind keep, on a copy of the joint graph. */
typedef struct {
    void *user;
    Tried (*train)(void *user, const KeepChoice *choice, AgainList *again);
    int64_t (*others)(void *user); /* arena bytes of validation and counts: the arena is shared */
} RecomputeTrial;

/* Decides by p->recompute; the report goes there. report: the numbers of other choices are wanted
   too. False after an error: a budget that cannot be met. */
bool recompute_choose(Program *p, const RecomputeTrial *trial, bool report, KeepChoice *choice);
/* --explain=recompute */
void recompute_explain(Text *out, const Program *p);

#endif
