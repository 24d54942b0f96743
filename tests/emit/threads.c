/* threads.c -- prints the bits of sums and gradients of an emitted step, to compare thread counts. */
#define RT_LIBRARY
#include EMITTED

#include <stdio.h>

#include "values.h"

static const RtModel *const tested = &MODEL;
static int32_t              ids[2][64 * 1024];

void rt_begin_step(RtRun *run, RtStep *s)
{
    run->micro_steps = 1;
    memset(s, 0, sizeof *s);
}

void rt_begin_micro(RtRun *run, RtStep *s, int micro)
{
    RT_UNUSED(s);
    RT_UNUSED(micro);
    run->dims[0] = 64;                          /* B and T: enough for several threads */
    run->dims[1] = 8;
    run->inputs[0] = ids[0];
    run->inputs[1] = ids[1];
}

void rt_seed_losses(RtRun *run, RtStep *s)      { RT_UNUSED(run); s->seed[0] = 1 / s->count[0]; }
void rt_reduce_gradients(RtRun *run, RtStep *s) { RT_UNUSED(run); RT_UNUSED(s); }
void rt_finite_and_norm(RtRun *run, RtStep *s)  { RT_UNUSED(run); RT_UNUSED(s); }
void rt_update(RtRun *run, RtStep *s, void (*piece)(const RtUpdate *u))
{
    RT_UNUSED(run);
    RT_UNUSED(s);
    RT_UNUSED(piece);
}
void rt_end_step(RtRun *run, RtStep *s)         { RT_UNUSED(run); RT_UNUSED(s); }

int main(void)
{
    static RtStep s;
    const size_t  n = (size_t)tested->n_elems;
    RtRun         run = { .model = tested };
    float        *p = calloc(n, sizeof *p), *d_p = calloc(n, sizeof *d_p);
    for (size_t i = 0; i < n; i++)
        p[i] = (float)(0.2 * value_real(1, i));
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < 64 * 8; i++)
            ids[k][i] = (int32_t)value_int(k, i, 0, 64, 0, 0);
    run.p = p;
    run.d_p = d_p;
    run.dims[0] = 64;
    run.dims[1] = 8;
    run.arena = calloc(1, tested->arena_bytes(run.dims, RT_ENTRY_TRAIN) + 64);
    tested->step(&run, &s);
    printf("%a\n", s.sum[0]);
    for (size_t i = 0; i < n; i++)
        printf("%a\n", (double)d_p[i]);
    return 0;
}
