/* scale.h -- what the loss scale becomes behind an update: one text for host and device.
 *
 * The algorithm and its usual constants are those of PyTorch's GradScaler, but for the floor:
 *
 *     not finite    scale = max(scale * backoff, 1), tracker = 0          backoff 0.5
 *     finite        tracker = tracker + 1; at the interval scale = scale * growth if that is
 *                   finite in fp32, tracker = 0                           interval 2000, growth 2
 */
#ifndef GRADCC_SCALE_H
#define GRADCC_SCALE_H

#include "rt.h"

#define RT_SCALE_LEAST 1.0

typedef struct {
    double scale;    /* of the loss; 0 = none */
    int64_t tracker; /* finite updates since it changed */
    int64_t stuck;   /* updates skipped in a row with no lower scale left */
} RtScale;

typedef struct {
    bool skips;        /* updates that are not finite, so many in a row with no lower scale left */
    int64_t max_skips; /* less than this */
    int64_t interval;
    double growth, backoff;
} RtScaleRules;

RT_INLINE bool rt_scale_can_fall(RtScale s) { return s.scale > RT_SCALE_LEAST; }

/* Is an update that is not finite skipped? Else it stops the run. */
RT_INLINE bool rt_scale_may_skip(RtScale s, RtScaleRules r)
{
    return r.skips && (rt_scale_can_fall(s) || s.stuck + 1 < r.max_skips);
}

RT_INLINE RtScale rt_scale_next(RtScale s, RtScaleRules r, bool finite)
{
    s.stuck = finite || rt_scale_can_fall(s) ? 0 : s.stuck + 1;
    if (!finite) {
        if (rt_scale_can_fall(s))
            s.scale = s.scale * r.backoff > RT_SCALE_LEAST ? s.scale * r.backoff : RT_SCALE_LEAST;
        s.tracker = 0;
    } else if (s.scale > 0 && ++s.tracker >= r.interval) {
        if ((float)(s.scale * r.growth) <= 3.40282347e38f)
            s.scale *= r.growth;
        s.tracker = 0;
    }
    return s;
}

#if defined(__cplusplus)
extern "C" {
#endif
struct RtState;
RtScaleRules rt_scale_rules(const struct RtState *state); /* of its settings */
#if defined(__cplusplus)
}
#endif

#endif
