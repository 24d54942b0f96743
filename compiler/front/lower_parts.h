/* lower_parts.h -- what the files of lowering know of each other. */
#ifndef GRADCC_LOWER_PARTS_H
#define GRADCC_LOWER_PARTS_H

#include "front/lower.h"

/* ---- lower_schedule.c ---------------------------------------------------------------------- */

void lower_schedule(const CheckedTrain *t, TrainSettings *s); /* all but the formula's graph */
/* Reports a formula that gives no rate somewhere in the run. */
void lower_check_rate(Context *cx, const CheckedTrain *t, Graph *rate);

#endif
