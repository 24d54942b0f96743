/* exchange.h -- what a step on a GPU knows of exchanges between ranks, beside comm/comm.h. */
#ifndef GRADCC_CUDA_EXCHANGE_H
#define GRADCC_CUDA_EXCHANGE_H

#include "comm/comm.h"

#include "cuda/device.h"

/* n doubles of the device, from each rank, behind what is queued on the compute stream: rank r's
   at r n, in memory that holds until the next call; what is queued there next finds them. */
double *rt_exchange_gather(const double *values, int n, const char *what);
/* What is queued on the compute stream next waits for all sums that were begun. */
void rt_exchange_join(void);
/* Until not repeat, rt_comm_begin_sum only takes notes: a graph has the sum itself. */
void rt_exchange_repeat(bool repeat);
/* Of a host that waits: has NCCL failed? That ends the program. */
void rt_exchange_look(void);

#endif
