/* trace.c -- what a program emitted with --trace prints: one line per value that a step wrote.
 *
 * In: a value and its name. Out: to stderr, the smallest, largest and mean element, and how many
 * are not finite. The first value of an update that has such elements is kept: it is named when
 * training stops for that. Slow on purpose of being plain: it is for looking, not for training.
 */
#include "run.h"

typedef struct {
    double min, max, sum;
    ptrdiff_t n, n_nan, n_inf;
} Range;

static RtTraced traced; /* of the update in work */

void rt_trace_begin(void) { traced.bad = false; }

const RtTraced *rt_trace_seen(void) { return traced.name ? &traced : NULL; }

static void add(Range *r, double v)
{
    if (!isfinite(v)) {
        *(isnan(v) ? &r->n_nan : &r->n_inf) += 1;
        return;
    }
    r->min = r->n == 0 || v < r->min ? v : r->min;
    r->max = r->n == 0 || v > r->max ? v : r->max;
    r->sum += v;
    r->n++;
}

static void print(int step, const char *name, const char *shape, const Range *r)
{
    fprintf(stderr,
            "trace %4d  %-28s %-20s min %11.4g  max %11.4g  mean %11.4g  nan %td  inf %td\n", step,
            name, shape, r->min, r->max, r->n > 0 ? r->sum / (double)r->n : 0, r->n_nan, r->n_inf);
    if (!traced.bad)
        traced = (RtTraced){ name, shape, step, r->n_nan + r->n_inf > 0 };
}

void rt_trace_f32(int step, const char *name, const char *shape, const float *at, ptrdiff_t n)
{
    Range r = { .n = 0 };
    for (ptrdiff_t i = 0; i < n; i++)
        add(&r, (double)at[i]);
    print(step, name, shape, &r);
}

void rt_trace_f64(int step, const char *name, const char *shape, const double *at, ptrdiff_t n)
{
    Range r = { .n = 0 };
    for (ptrdiff_t i = 0; i < n; i++)
        add(&r, at[i]);
    print(step, name, shape, &r);
}
