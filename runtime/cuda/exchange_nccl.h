/* exchange_nccl.h -- NCCL as exchange.cu and its pieces use it: communicators, calls, failures. */
#ifndef GRADCC_CUDA_EXCHANGE_NCCL_H
#define GRADCC_CUDA_EXCHANGE_NCCL_H

#include "cuda/exchange.h"

enum { RT_NCCL_NAME = 128 }; /* bytes of a communicator's name */

/* Chooses the GPU of this rank and loads NCCL: "NCCL 2.28.9", with the variables NCCL_* that are
   set. What is queued goes to this stream. */
const char *rt_nccl_open(const RtOptions *o, const RtLaunch *l, RtStream *stream);
void rt_nccl_connect(const RtLaunch *l); /* all ranks, each on a GPU of its own */
void rt_nccl_close(void);

/* For messages: of what the calls to come are. */
void rt_nccl_now(const char *what);
/* NULL, or what the host waits for inside a call, and since when. By any thread. */
const char *rt_nccl_waits(double *since);
void rt_nccl_look(void); /* has it failed meanwhile? That ends the program */

/* Queued; group: NULL for all ranks, or what rt_nccl_join gave. */
const char *rt_nccl_scatter_gather(void *group, const void *from, const size_t *at, const size_t *n,
                                   void *to, size_t each);
const char *rt_nccl_all_gather(void *group, void *base, const size_t *at, const size_t *n);
void rt_nccl_sum(void *at, ptrdiff_t n, RtType type); /* over all ranks, in NCCL's order */
void rt_nccl_gather(const double *values, double *all, int n);
void rt_nccl_broadcast(void *group, void *at, size_t bytes, int root);
void rt_nccl_send(void *group, void *at, size_t bytes, int to);
void rt_nccl_recv(void *group, void *at, size_t bytes, int from);

void rt_nccl_name(char name[RT_NCCL_NAME]); /* a new one */
void *rt_nccl_join(const char *name, int rank, int size, const char *what);
void rt_nccl_leave(void *group);

#endif
