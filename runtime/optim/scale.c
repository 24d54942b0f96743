/* scale.c -- the loss scale of fp16 programs, and how long updates may be skipped.
 *
 * In: was the update finite? Out: the scale of the next one. The one idea: gradients in fp16 are
 * kept as large as they can be. An update that is not finite is skipped and halves the scale; a run
 * of finite ones doubles it. At the least scale, or without one, only so many are skipped in a row.
 *
 *     not finite    scale = max(scale / 2, 1), tracker = 0
 *     finite        tracker = tracker + 1; at the interval scale = 2 scale if that is finite in
 *                   fp32, tracker = 0
 */
#include "run.h"

#define GROWTH   2.0
#define BACK_OFF 0.5
#define LEAST    1.0

static bool can_fall(const RtState *state) { return state->scale > LEAST; }

bool rt_scale_skips(const RtState *state)
{
    const RtOptions *o = state->opt;
    return o->nonfinite && strcmp(o->nonfinite, "skip") == 0
           && (can_fall(state) || state->stuck + 1 < o->max_skips);
}

void rt_scale_advance(RtState *state, bool finite)
{
    state->stuck = finite || can_fall(state) ? 0 : state->stuck + 1;
    if (!finite) {
        state->scale = can_fall(state) ? fmax(state->scale * BACK_OFF, LEAST) : state->scale;
        state->tracker = 0;
    } else if (state->scale > 0 && ++state->tracker >= state->opt->scale_interval) {
        if (isfinite((float)(state->scale * GROWTH)))
            state->scale *= GROWTH;
        state->tracker = 0;
    }
}
