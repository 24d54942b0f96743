/* cudasim.h -- what headers and libraries in this folder ask of the simulator's core.
 *
 * A kernel runs as fibers, the 32 lanes of a warp in any order between two operations of the warp.
 * The one idea: every access, of kernels, copies and libraries, goes through one shadow.
 */
#ifndef CUDASIM_H
#define CUDASIM_H

#include <stddef.h>
#include <stdint.h>

#include "cuda_runtime_api.h"

/* ---- inside kernels -------------------------------------------------------------------------- */

extern uint3 cudasim_thread, cudasim_block, cudasim_block_size, cudasim_grid_size;

/* All lanes of mask come to `what` at one place of the source; the last one calls all() with the
   argument of each lane (NULL where a lane is not in the mask), then all go on. memory: what the
   lanes stored before is visible to them afterwards, as __syncwarp says and shuffles do not. */
void cudasim_warp(const char *what, unsigned mask, void *argument,
                  void (*all)(void *const arguments[32]), bool memory, const char *file, int line);
/* The barrier of the block; kind 0 plain, 1 or, 2 and, 3 count of the predicates. */
int cudasim_barrier(int kind, int predicate, const char *file, int line);
void cudasim_fence(void);
void *cudasim_shared_arena(void);
unsigned cudasim_lane(void);          /* of the thread in its warp */
unsigned cudasim_thread_number(void); /* in its block */
uint64_t cudasim_block_serial(void);  /* another number for each block that ever ran */
bool cudasim_in_kernel(void);
/* Called when a thread ends, before it is gone: is what it began also finished? */
extern void (*cudasim_thread_ends)(void);

/* Checks an access of this thread as if compiled code had made it. Ends the program with a report
   if it is wrong. aligned: the address must be a multiple of bytes. */
void cudasim_check_read(const void *at, size_t bytes, bool aligned);
void cudasim_check_write(void *at, size_t bytes, bool aligned);
void cudasim_check_atomic(void *at, size_t bytes);
/* The end of a copy whose begin was checked as a write and, unless from is NULL, a read. */
void cudasim_check_late(void *to, const void *from, size_t bytes);
bool cudasim_is_shared(const void *at);

/* ---- failures -------------------------------------------------------------------------------- */

/* The error that CUDASIM_FAIL names for this call of `call`, as text, or NULL. Counts calls. */
const char *cudasim_injected(const char *call);
/* A fault of the program under test: one report, exit code 99. */
__attribute__((noreturn, format(printf, 1, 2))) void cudasim_report(const char *fmt, ...);
int cudasim_arch(void); /* 90, 80, 70: CUDASIM_ARCH */

#endif
