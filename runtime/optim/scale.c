/* scale.c -- the loss scale of fp16 programs, and how long updates may be skipped.
 *
 * In: was the update finite? Out: the scale of the next one. The one idea: gradients in fp16 are
 * kept as large as they can be. An update that is not finite is skipped and lowers the scale; a run
 * of finite ones raises it. At the least scale, or without one, only so many are skipped in a row.
 * The algorithm and its usual constants are those of PyTorch's GradScaler, but for the floor:
 *
 *     not finite    scale = max(scale * backoff, 1), tracker = 0          backoff 0.5
 *     finite        tracker = tracker + 1; at the interval scale = scale * growth if that is
 *                   finite in fp32, tracker = 0                           interval 2000, growth 2
 */
#include "run.h"

#define LEAST 1.0

static bool can_fall(const RtState *state) { return state->scale > LEAST; }

bool rt_scale_skips(const RtState *state)
{
    const RtOptions *o = state->opt;
    return o->nonfinite && strcmp(o->nonfinite, "skip") == 0
           && (can_fall(state) || state->stuck + 1 < o->max_skips);
}

void rt_scale_advance(RtState *state, bool finite)
{
    const RtOptions *o = state->opt;
    state->stuck = finite || can_fall(state) ? 0 : state->stuck + 1;
    if (!finite) {
        state->scale = can_fall(state) ? fmax(state->scale * o->scale_backoff, LEAST)
                                       : state->scale;
        state->tracker = 0;
    } else if (state->scale > 0 && ++state->tracker >= o->scale_interval) {
        if (isfinite((float)(state->scale * o->scale_growth)))
            state->scale *= o->scale_growth;
        state->tracker = 0;
    }
}
