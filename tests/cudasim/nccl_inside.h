/* nccl_inside.h -- inside the simulated NCCL: a communicator, what its ranks share, one operation.
 *
 * Ranks are processes. They share a small control file, and each has a data file in which it leaves
 * what the others may read. nccl_comm.cc joins and parts them, nccl_run.cc moves data, nccl.cc is
 * what programs call.
 */
#ifndef CUDASIM_NCCL_INSIDE_H
#define CUDASIM_NCCL_INSIDE_H

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cudasim_library.h"
#include "nccl.h"

enum { NCCL_MAX_SENDS = 256 }; /* of one rank in one group */

typedef enum {
    NCCL_ALL_REDUCE,
    NCCL_REDUCE,
    NCCL_BROADCAST,
    NCCL_REDUCE_SCATTER,
    NCCL_ALL_GATHER,
    NCCL_SEND,
    NCCL_RECV,
} NcclKind;

typedef struct { /* what all ranks must agree on */
    NcclKind kind;
    ncclDataType_t type;
    ncclRedOp_t op;
    int root; /* or the peer */
    uint64_t count;
    bool graph; /* it was captured */
} NcclWhat;

typedef struct {   /* of one rank to another, in the order of its group */
    NcclWhat what; /* root: the receiver */
    uint64_t at;   /* in the sender's data file */
    std::atomic<uint32_t> taken;
} NcclSend;

typedef enum { NCCL_AWAY, NCCL_CLAIMED, NCCL_OPENED, NCCL_PARTED } NcclState;

typedef struct {            /* one rank in the control file */
    std::atomic<int> state; /* NcclState */
    std::atomic<int> pid;
    int device;
    std::atomic<uint64_t> posted;  /* collectives, whose data lie in its file */
    std::atomic<uint64_t> done;    /* collectives it has finished */
    NcclWhat what;                 /* of the newest posted one */
    std::atomic<uint32_t> n_sends; /* posted: the others look for theirs */
    NcclSend sends[NCCL_MAX_SENDS];
} NcclSlot;

typedef struct { /* the control file; begins as zeros */
    std::atomic<int> ranks;
    NcclSlot slot[];
} NcclControl;

struct NcclOperation;

typedef struct {
    int ranks, rank, device;
    bool blocking;
    std::string path; /* of the control file; data files: path.RANK */
    NcclControl *control;
    size_t control_bytes;
    std::vector<int> files; /* data, by rank */
    double since;           /* when this process began to wait for others; 0: it does not */
    bool joined, opened;
    std::atomic<bool> aborted;
    std::atomic<int> error;            /* ncclResult_t: asynchronous */
    std::string message;               /* of the last error */
    uint64_t issued, finished;         /* operations, by the order of calls */
    std::vector<cudaStream_t> streams; /* that operations were queued on */
    std::vector<NcclOperation> begun;  /* not blocking: these are queued when the host has asked */
    bool finalizes;                    /* or this is done */
    int asked;                         /* so often since then */
    std::atomic<int> graphs;           /* operations that graphs hold */
} NcclComm;

typedef struct {
    NcclWhat what;
    const void *send;
    void *recv;
    int step;  /* 0 to begin, 1 posted, 2 done */
    int entry; /* of a send, in the slot */
} NcclPart;

struct NcclOperation { /* the parts of a group, or of one call */
    std::shared_ptr<NcclComm> comm;
    cudaStream_t stream;
    std::vector<NcclPart> parts;
    bool ticketed; /* runs after the calls before it; not in graphs */
    uint64_t ticket;
    bool sent; /* its sends are posted */
};

const char *nccl_kind_name(NcclKind kind);
size_t nccl_size(ncclDataType_t type); /* bytes, 0 = not modelled */
std::string nccl_describe(const NcclWhat *what);

/* ---- nccl_comm.cc ---------------------------------------------------------------------------- */

bool nccl_join(NcclComm *c); /* a try; true: all ranks are there */
/* Two ranks on one device of several: NCCL refuses it. With one device each process stands for a
   machine of its own. */
bool nccl_same_device(const NcclComm *c, int *one, int *other);
void nccl_part(NcclComm *c); /* lets go of the files */
/* The other ranks see that this one is gone; operations of this process may still be looking at the
   files, which stay open. */
void nccl_leave(NcclComm *c);
/* Nothing went on: notes missing ranks that have ended; a report after CUDASIM_NCCL_TIMEOUT.
   missing: does the wait go on because of this rank? */
void nccl_wait(NcclComm *c, const char *what, std::function<bool(int)> missing);
void nccl_went_on(NcclComm *c);

/* ---- nccl_run.cc ----------------------------------------------------------------------------- */

bool nccl_run(NcclOperation *o); /* a try; true: done */

#endif
