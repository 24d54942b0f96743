/* queue.h -- steps that are queued on a GPU: what the host keeps of them until they are done.
 *
 * At most RT_STEPS_QUEUED at a time, each in a slot of its own: the samples it was given, the
 * host's copy of its RtStep, what came back. Counters of the run (updates applied, loss scale) go
 * on in the memory of the GPU; the host has them when it has the result of a step, and hands them
 * over with a step that no other one is queued before.
 */
#ifndef GRADCC_QUEUE_H
#define GRADCC_QUEUE_H

#include "comm/comm.h"
#include "cuda/device.h"
#include "optim/scale.h"

enum { RT_STEPS_QUEUED = 2, RT_GRAPHS = 16 };
#define RT_TOLD_BYTES ((RT_MAX_SLOTS + 1) * sizeof(double))

typedef struct { /* of the run, in the memory of the GPU */
    RtScale scale;
    int64_t applied;
    bool halted; /* an update was not finite: what is queued behind it changes nothing */
} RtCounters;

typedef struct { /* what comes back of a step */
    RtStep step;
    RtCounters after;
    bool advanced; /* the step is done, applied or skipped; else it stops the run */
    int signal;    /* of several ranks, the highest that one was sent */
} RtResult;

typedef struct {             /* of one step, or one batch, on its way */
    void *rows[RT_MAX_DIMS]; /* pinned: samples */
    cudaEvent_t sent;        /* they are in the memory of the GPU */
    RtStep step;             /* the host's copy */
    RtResult *result;        /* pinned */
    cudaEvent_t done;        /* it is there */
    bool held;               /* it was queued to change nothing */
} RtQueued;

typedef struct { /* a micro-step as a CUDA graph */
    ptrdiff_t dims[RT_MAX_DIMS];
    const void *p;
    bool add, sums;       /* sums over ranks begin in it: */
    RtBucketsAt summed;   /* these */
    cudaGraphExec_t exec; /* NULL: seen once, not recorded yet */
} RtGraph;

struct RtQueue {
    RtQueued slot[RT_STEPS_QUEUED];
    int next;   /* slot of the step or batch to come */
    int queued; /* steps whose result has not been taken */
    bool hold;  /* the step to come changes nothing */

    RtStep *twin; /* these in the memory of the GPU */
    RtCounters *counters;
    RtResult *result[RT_STEPS_QUEUED];
    double *told;              /* of several ranks: sums and the signal of this one; NULL */
    char *staged[RT_MAX_DIMS]; /* samples of an update */
    char *batch[RT_MAX_DIMS];  /* those of a micro-step: run->inputs */
    cudaEvent_t taken;         /* the samples staged were copied to batch */
    bool fresh;                /* samples were sent, and the compute stream does not know */
    int micro;                 /* the micro-step that is in batch, -1 = none of this update */

    RtGraph graph[RT_GRAPHS];
    int n_graphs;
    const void *work;   /* the work space that they have */
    RtGraph *recording; /* NULL: none */
    bool graph_done, graphs,
        noted; /* work of a micro-step is done; graphs are used; told why not */
};

/* inputs.cu */
void rt_inputs_open(RtRun *run);
void rt_inputs_close(RtRun *run);
/* n samples of the slot go to the GPU, on the copy stream. */
void rt_inputs_send(RtRun *run, ptrdiff_t n);
/* n samples from `first` of those staged become run->inputs; sample: the first one's number. */
void rt_inputs_take(RtRun *run, ptrdiff_t first, ptrdiff_t n, int64_t sample);

/* place.cu: host memory of what rt_place_open takes. */
size_t rt_place_overhead(void);

/* queue.cu: products find biases in the 16-bit copy of this run's parameters, as they are now: the
   average of the weights takes their place in a validation. */
void rt_biases_follow(const RtRun *run);

/* step.cu: the twin begins a step or an evaluation. */
void rt_twin_begin(RtRun *run, const RtStep *s, bool hold);

/* rooms.cu: what rt_rooms_open took is not needed by this run any more. */
void rt_rooms_leave(void);

/* profile.cu: is there a file to write; an update is queued between begin and not begin. */
bool rt_profile_open(void);
void rt_profile_update(bool begin);
void rt_profile_write(void);

/* graph.cu */
void rt_graphs_close(RtQueue *q);

#endif
