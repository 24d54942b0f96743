/* trace.c -- what a program emitted with --trace prints: one line per value that a step wrote.
 *
 * In: a value and its name. Out: to stderr, the smallest, largest and mean element, and how many
 * are no numbers. Slow on purpose of being plain: it is for looking, not for training.
 */
#include <stdio.h>

#include "rt.h"

typedef struct {
    double min, max, sum;
    ptrdiff_t n, n_nan;
} Range;

static void add(Range *r, double v)
{
    if (isnan(v)) {
        r->n_nan++;
        return;
    }
    r->min = r->n == 0 || v < r->min ? v : r->min;
    r->max = r->n == 0 || v > r->max ? v : r->max;
    r->sum += v;
    r->n++;
}

static void print(int step, const char *name, const char *shape, const Range *r)
{
    fprintf(stderr, "trace %4d  %-28s %-20s min %11.4g  max %11.4g  mean %11.4g  nan %td\n", step,
            name, shape, r->min, r->max, r->n > 0 ? r->sum / (double)r->n : 0, r->n_nan);
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
