/* scale.c -- the loss scale of fp16 programs, and how long updates may be skipped.
 *
 * In: was the update finite? Out: the scale of the next one. The one idea: gradients in fp16 are
 * kept as large as they can be. An update that is not finite is skipped and lowers the scale; a run
 * of finite ones raises it. At the least scale, or without one, only so many are skipped in a row.
 * The rules themselves are in scale.h, since a GPU follows them too.
 */
#include "optim/scale.h"
#include "run.h"

RtScaleRules rt_scale_rules(const RtState *state)
{
    const RtOptions *o = state->opt;
    return (RtScaleRules){ .skips = o->nonfinite && strcmp(o->nonfinite, "skip") == 0,
                           .max_skips = o->max_skips,
                           .interval = o->scale_interval,
                           .growth = o->scale_growth,
                           .backoff = o->scale_backoff };
}

static RtScale scale_of(const RtState *state)
{
    return (RtScale){ state->scale, state->tracker, state->stuck };
}

bool rt_scale_skips(const RtState *state)
{
    return rt_scale_may_skip(scale_of(state), rt_scale_rules(state));
}

void rt_scale_advance(RtState *state, bool finite)
{
    const RtScale next = rt_scale_next(scale_of(state), rt_scale_rules(state), finite);
    state->scale = next.scale;
    state->tracker = next.tracker;
    state->stuck = next.stuck;
}
