/* twins.h -- the same functions on the CPU and on the device, by other names: cpu.c, gpu.cu. */
#ifndef TWINS_H
#define TWINS_H

#include "run.h"

#if defined(__cplusplus)
extern "C" {
#endif

typedef struct { /* one model on one of the two */
    RtRun run;
    RtState state;
    RtOptions opt;
} Twin;

typedef enum { DO_NORM, DO_CLIP_VALUE, DO_CLIP, DO_UPDATE, DO_COPY, DO_EMA_START, DO_EMA_SWAP } Do;

void cpu_open(Twin *t, const RtModel *m);
void cpu_do(Twin *t, Do what, RtStep *s);

/* Buffers in device memory, as those of the CPU's twin are now. */
void gpu_open(Twin *t, const Twin *like);
void gpu_gradient(Twin *t, const Twin *like); /* d_p alone */
void gpu_do(Twin *t, Do what, RtStep *s);     /* s comes back from the device */
void gpu_get(void *to, const void *from, size_t bytes);
void gpu_close(Twin *t);

#if defined(__cplusplus)
}
#endif

#endif
