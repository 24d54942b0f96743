/* exchange.h -- between comm.c, which opens and closes, and what exchanges: cpu/exchange.c or
 * cuda/exchange.cu, which both make sums of pieces (pieces.c). For these only.
 */
#ifndef GRADCC_EXCHANGE_H
#define GRADCC_EXCHANGE_H

#include "comm/comm.h"
#include "wire/wire.h"

#if defined(__cplusplus)
extern "C" {
#endif

struct RtComm {
    void *group; /* of the back end; NULL = the world */
    int rank, size;
};

typedef struct {
    const RtOptions *o;
    const RtLaunch *launch;
    const RtWire *wire; /* opened; NULL: exchanges do without it */
    const char *text;   /* what it said of itself, "Open MPI 4.1.4" */
    bool narrow;        /* gradients of fp32 go in bf16 */
} ExchangeOpen;

/* Has this place a back end of that name? NULL, or the names that there are. */
const char *exchange_names(const char *name);
/* Exchanges work from here on: what they go by, "NCCL 2.28.9", kept. Of more than one rank. */
const char *exchange_start(const ExchangeOpen *e);
void exchange_stop(void);      /* all are done */
double exchange_timeout(void); /* seconds that one may take now */
/* One has failed, which ends all ranks. */
__attribute__((noreturn)) void exchange_fail(const char *what, const char *wrong);

/* groups.c */
void exchange_set_world(int rank, int size);
size_t exchange_bytes_of(RtType type); /* of a number that is summed */
/* Of each place: part, whose rank and size are known, gets its group. All of c call it; first: its
   first rank, by its number in c. */
void exchange_join(const RtComm *c, int colour, int first, RtComm *part);
void exchange_leave(void *group);

/* ---- pieces.c -------------------------------------------------------------------------------- */

typedef struct { /* how bytes go from rank to rank in a place, and how numbers are added there */
    void *(*alloc)(size_t bytes, const char *what);
    void (*free)(void *at);
    /* as those of RtWire */
    const char *(*scatter_gather)(void *group, const void *from, const size_t *at, const size_t *n,
                                  void *to, size_t each);
    const char *(*all_gather)(void *group, void *base, const size_t *at, const size_t *n);
    /* to[i] = the sum (the largest) over ranks of from[rank * n + i], pairwise, in the order of
       ranks; from is used up, and may be to. */
    void (*reduce)(void *to, void *from, ptrdiff_t n, int ranks, RtType type, RtReduce op);
    void (*narrow)(uint16_t *to, const float *from, ptrdiff_t n); /* to bf16, and back */
    void (*widen)(float *to, const uint16_t *from, ptrdiff_t n);
} RtMover;

/* narrow: some sums will go in bf16. */
void pieces_open(const RtMover *mover, int ranks, bool narrow);
void pieces_close(void);
typedef enum { RT_REDUCE_PIECES = 1, RT_GATHER_PIECES = 2, RT_NARROW_PIECES = 4 } RtPieces;
/* n elements at `at`: shares are reduced, gathered, or both; NULL, or what went wrong. */
const char *pieces_run(const RtComm *c, int pieces, void *at, ptrdiff_t n, RtType type,
                       RtReduce op);

#if defined(__cplusplus)
} /* extern "C" */
#endif

#endif
