/* cudasim_library.h -- what the simulated libraries (cuBLASLt, NCCL) ask of the core.
 *
 * Their work is queued on streams as kernels are, and says which device memory it reads and writes.
 */
#ifndef CUDASIM_LIBRARY_H
#define CUDASIM_LIBRARY_H

#include <functional>

#include "cudasim.h"

/* Queues work as a kernel is queued: captured by graphs, run when the host waits. It is called with
   device memory open; name lives on. The error that CUDASIM_FAIL asks for, or cudaSuccess. */
cudaError_t cudasim_enqueue(cudaStream_t stream, const char *name, std::function<void()> run);
/* Inside such work: these bytes are read or written by it. Checks bounds, unwritten bytes and the
   order of streams. what: for messages, "operand A". */
void cudasim_reads(const void *at, size_t bytes, const char *what);
void cudasim_writes(void *at, size_t bytes, const char *what);
/* Inside such work: it cannot go on before another process has done something. It is called again,
   after other work that is ready, until it does not say so; a query of its stream tries it once. */
void cudasim_not_yet(void);
/* The host does something else, and others wait for this process: all that is ready runs once. */
void cudasim_idle(void);
uint64_t cudasim_calls(void); /* of the runtime so far: does the host do something else? */
/* Bytes of device or shared memory hold nothing of use any more: to read them is an error. */
void cudasim_unwrite(void *at, size_t bytes);
/* The work failed: every later call of the runtime answers with this error. */
void cudasim_work_failed(cudaError_t error);
bool cudasim_is_device(const void *at, size_t bytes); /* all of it in one allocation */

#endif
