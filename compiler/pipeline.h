/* pipeline.h -- from a model file to text: the passes in order. */
#ifndef GRADCC_PIPELINE_H
#define GRADCC_PIPELINE_H

#include "options.h"

/* Runs the passes that opt asks for. What is dumped and what is emitted goes to out. False after
   errors, which are in cx's messages. */
bool pipeline_run(Context *cx, const Options *opt, const char *prelude, Text *out);
void pipeline_list(Text *out); /* --list-passes */
/* NULL, or the first name in the options that is no pass (or one that cannot be skipped). */
const char *pipeline_check_names(Context *cx, const Options *opt);

#endif
