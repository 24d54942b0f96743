/* comm.h -- the ranks of a job: processes that train one model together, each with its share of
 * every batch. Adding ranks changes speed and nothing else.
 *
 *     launch.c    who this process is: flags, torchrun, MPI, SLURM
 *     net.c       sockets with deadlines
 *     meet.c      where rank 0 is, in a file of a directory that hosts share
 *     store.c     where ranks meet: names and values, served by rank 0; who is alive
 *     warn.c      warnings of all ranks, each told once
 *     watch.c     a thread that says so once a second, and ends the process where a rank is lost
 *     comm.c      a job is opened and closed
 *     groups.c    all ranks, and groups of them
 *     pieces.c    sums over ranks, made of what moves bytes
 *     buckets.c   gradients, summed while the backward pass goes on
 *     tree.c      the same bits for each number of ranks
 *     agree.c     do all ranks train the same thing?
 *     report.c    what torchrun is told of a failure
 *     wire/       what moves bytes between CPUs: back ends, each loaded when it is needed
 *
 * What ranks exchange, and when: cpu/exchange.c, in a thread; cuda/exchange.cu, on a stream.
 *
 * Errors: one message and the end of the program on every rank; exit code RT_EXIT_USAGE where flags
 * or the environment are wrong, RT_EXIT_STALL where a rank is missing, lost or late.
 */
#ifndef GRADCC_COMM_H
#define GRADCC_COMM_H

#include "run.h"

#if defined(__cplusplus)
extern "C" {
#endif

enum {
    RT_EXIT_STALL = 76,
    RT_MAX_RANKS = 4096,
    RT_PATIENCE = 3600 /* seconds that exchanges may take behind what takes long */
};

/* ---- launch.c -------------------------------------------------------------------------------- */

typedef enum { RT_BY_NOBODY, RT_BY_FLAGS, RT_BY_TORCHRUN, RT_BY_MPI, RT_BY_SLURM } RtLauncher;

typedef struct {
    RtLauncher by;
    int rank, size;             /* RT_BY_MPI: -1, MPI knows them */
    int local_rank, local_size; /* of this host; -1 = not said */
    const char *host;           /* where rank 0 serves the store; NULL = MPI tells, or one rank */
    int port;
    const char *named_by; /* "MASTER_ADDR and MASTER_PORT name it" */
    const char *dir;      /* or where rank 0 writes that; NULL = host and port are known */
    bool next_port;       /* something else listens there: a port behind it is taken */
    char job[192];        /* name of the job and its restarts; strangers are turned away */
} RtLaunch;

/* From flags and the environment; the first launcher that matches, as in launch.c's table. */
RtLaunch rt_launch_find(const RtOptions *o);
const char *rt_launcher_name(RtLauncher by); /* "torchrun" */

/* ---- net.c: 0 or a descriptor, or -1 with errno; ETIMEDOUT behind a deadline, of rt_now ------ */

enum { RT_NET_TRIES = 16 }; /* ports that are tried one behind the other */

void rt_net_check(const char *interface); /* ends the program where it is not here; NULL: none */
/* Listens at all addresses, or at those of an interface; port 0: a free one, told in *port. */
int rt_net_listen(const char *interface, int *port);
int rt_net_connect(const char *host, int port, double deadline); /* tries once */
int rt_net_read(int fd, void *to, size_t n, double deadline);
int rt_net_write(int fd, const void *from, size_t n, double deadline);
const char *rt_net_own(int fd, char text[64]); /* address of this end, "10.0.0.2" */
/* Of this host, at most so many, of both families: that of the way out of it first, those that only
   this host can reach last. How many there are. */
int rt_net_addresses(char to[][64], int most);

/* ---- meet.c: of a launch with a directory ---------------------------------------------------- */

void rt_meet_token(RtLaunch *l); /* rank 0: no other job has the name that l's has now */
/* Rank 0 is at that address, or at all of this host; served: the port, the name with the token. */
void rt_meet_write(const RtLaunch *l, const RtLaunch *served, const char *address);
void rt_meet_leave(void); /* what this process has written is removed, if it has */
typedef struct {
    char host[64], job[192], process[96]; /* "node1, process 12" */
    int port;
} RtMeeting;
/* The k-th address of rank 0 as the file has it now; false: there is none. */
bool rt_meet_read(const RtLaunch *l, int k, RtMeeting *found);

/* ---- store.c --------------------------------------------------------------------------------- */

/* Rank 0 listens; *port is then where: a free one, where that of the launch is 0. timeout: seconds
   in which all ranks must come; silence: without a sign of life, then a rank is lost. */
void rt_store_serve(const RtLaunch *l, const char *interface, double timeout, double silence,
                    int *port);
const char *rt_store_address(void); /* that it listens at: of the interface, if one was given */
/* Connects, and waits until all ranks have: ends the program with a table of who is there where one
   does not come. */
void rt_store_open(const RtLaunch *l, const char *interface, double timeout, double silence);
void rt_store_close(void); /* in order: not taken for a loss */
enum { RT_WHO_TEXT = 160 };
const char *rt_store_who(int rank,
                         char text[RT_WHO_TEXT]); /* rank 0: "rank 1 (node1, process 12)" */
void rt_store_set(const char *key, const void *value, size_t n);
/* Waits for it, at most those seconds in which all ranks must come, or more: then the job ends, and
   the rank is named that has not set it. malloc, a NUL byte behind it. Names end with the rank that
   sets them, "gpu/3", or they are rank 0's. */
char *rt_store_await(const char *key, double seconds, size_t *n);
char *rt_store_get(const char *key, size_t *n);
void rt_store_linger(void); /* rank 0, whose job has failed: until the others have been told */
/* On rank 0, all being there: "node1 (ranks 0 to 3), node2 (rank 4)"; NULL: one host has all. */
const char *rt_store_hosts(void);
const char *rt_store_text(void); /* "node1 port 29500" */
int rt_store_local_ranks(void);  /* on this host, by its name */
const char *rt_store_own(void);  /* address of this host, as rank 0 sees it */
/* watch.c: a sign of life, on a connection of its own. at: exchanges begun. Ends the process, with
   the message that all ranks end with, where the job has failed. */
void rt_store_beat(int64_t at);
/* Is the caller the one that says why this rank ends? True once; threads may find out together. */
bool rt_store_tells(void);
/* The job fails: on every rank with this text. */
void rt_store_fail(int exit_code, const char *text);
/* This rank warns: rank 0 hears of it, not this one. */
void rt_store_warn(const char *text);
char *rt_store_heard(int *rank); /* rank 0: what another has warned of, malloc; NULL: no more */
/* As rt_store_fail, of an exchange that waits for too long; the store finds out who is behind. */
void rt_store_stalled(int64_t at, const char *text);

/* ---- comm.c ---------------------------------------------------------------------------------- */

int rt_rank(void);        /* of this process; 0 before rt_comm_open, and in a job of one */
int rt_ranks(void);       /* of the job; 1 likewise */
int rt_local_ranks(void); /* of them on this host; 1 where that is not known */
bool rt_comm_has(const char *name); /* the back end "mpi" or "gloo" can be loaded */
/* Finds the launcher, meets the others, loads a back end; a line tells what was chosen. Nothing in
   a job of one rank. */
void rt_comm_open(const RtOptions *o);
void rt_comm_close(void);
/* Of what moves the bytes, the same on hosts with the same library: "Gloo 0.5.0" */
const char *rt_comm_version(void);
/* Exchanges until here may take as long as ranks may take to come: tables, files and pages are met
   for the first time, on some ranks later than on others. */
void rt_comm_settled(void);

/* ---- groups.c -------------------------------------------------------------------------------- */

typedef struct RtComm RtComm; /* ranks that exchange with each other, numbered from 0 */
typedef enum { RT_SUM, RT_MAX } RtReduce;

const RtComm *rt_comm_world(void); /* all ranks of the job */
/* Of the ranks of c those that give the same colour, in their order. All of c call it. */
RtComm *rt_comm_split(const RtComm *c, int colour);
void rt_comm_free(RtComm *c);
int rt_comm_rank(const RtComm *c);
int rt_comm_size(const RtComm *c);
void rt_comm_sum(void *at, ptrdiff_t n, RtType type, const char *what); /* over the world */
int rt_comm_signal(void); /* the highest number of rt_signal_pending of all ranks */

/* ---- cpu/exchange.c, cuda/exchange.cu -------------------------------------------------------- */

/* Exchanges of values in host memory; every rank of c makes the same, in the same order. Each waits
   for the end. n elements of RT_F32 or RT_F64; rank r's share of them begins at n r / size. Sums
   have the same bits on every rank and with every back end: pairwise, in the order of ranks,
   ((0 + 1) + (2 + 3)). what: for messages. */
void rt_comm_all_reduce(const RtComm *c, void *at, ptrdiff_t n, RtType type, RtReduce op,
                        const char *what);
void rt_comm_reduce_scatter(const RtComm *c, void *at, ptrdiff_t n, RtType type, RtReduce op,
                            const char *what); /* of `at`, the own share is reduced */
void rt_comm_all_gather(const RtComm *c, void *at, ptrdiff_t n, RtType type, const char *what);
void rt_comm_broadcast(const RtComm *c, void *at, size_t bytes, int root, const char *what);
void rt_comm_send(const RtComm *c, const void *at, size_t bytes, int to, const char *what);
void rt_comm_recv(const RtComm *c, void *at, size_t bytes, int from, const char *what);
/* All have come here, which may take long: rank 0 writes a checkpoint, say. */
void rt_comm_barrier(const RtComm *c, const char *what);

/* A sum over the world in memory of the place, begun: a number to wait for (0: there is nothing to
   wait for). at stays in place. By NCCL it is in NCCL's order, but for --tree and --comm-dtype. */
int64_t rt_comm_begin_sum(void *at, ptrdiff_t n, RtType type, const char *what);
void rt_comm_wait(int64_t number);
double rt_comm_bytes(void);   /* allocated to work in */
double rt_comm_seconds(void); /* that sums which were begun so took until now, */
double rt_comm_waited(void);  /* and of them, that rt_comm_wait took */

/* ---- buckets.c ------------------------------------------------------------------------------- */

/* Of so many bytes, the first smaller. NULL in a job of one rank; so may b be below. */
RtBuckets *rt_buckets_open(const RtModel *m, void *d_p, double bytes);
void rt_buckets_close(RtBuckets *b);
void rt_buckets_print(const RtBuckets *b);    /* the line "sums" */
uint64_t rt_buckets_hash(const RtBuckets *b); /* of the order and the places of sums; NULL: 0 */
void rt_buckets_finish(RtBuckets *b);         /* the backward pass is done: all sums are there */
typedef struct {
    int complete, begun; /* pieces, buckets */
} RtBucketsAt;
RtBucketsAt rt_buckets_at(const RtBuckets *b); /* in the backward pass that goes on */
/* Sums up to there are begun, from the first on; {}: none of this pass. */
void rt_buckets_go_to(RtBuckets *b, RtBucketsAt at);
void rt_buckets_report(const RtBuckets *b, int64_t steps); /* how much of them was hidden */

/* ---- tree.c ---------------------------------------------------------------------------------- */

typedef struct { /* in the place */
    void *gradient;
    double *sum; /* of the losses, RT_MAX_SLOTS */
} RtLeaf;
/* cpu/leaves.c, cuda/leaves.cu: a leaf, or a partial sum, is kept, and sums of losses begin anew;
   or it is added to the gradient and those sums. */
void rt_leaf_keep(const RtModel *m, const RtLeaf *to, const void *d_p, RtStep *s);
void rt_leaf_add(const RtModel *m, const RtLeaf *from, void *d_p, RtStep *s);
typedef struct RtTree RtTree;
void rt_tree_set(int64_t leaves);             /* of --tree; 0 = none: each rank is one leaf */
int rt_leaves(void);                          /* of each rank */
double rt_tree_place_bytes(const RtModel *m); /* what it keeps, in the place */
RtTree *rt_tree_open(const RtModel *m);       /* NULL: a rank has one leaf */
void rt_tree_close(RtTree *t);
/* A leaf is complete, and another one begins; the last one is. */
void rt_tree_leaf(RtTree *t, void *d_p, RtStep *s);
void rt_tree_finish(RtTree *t, void *d_p, RtStep *s);

void rt_report_failure(const char *text); /* report.c: to torchrun */

/* ---- agree.c, comm_check.c ------------------------------------------------------------------- */

/* Before the first update, or a validation alone: program, model, settings, data and parameters are
   the same on every rank, or all end with a table of who has what. */
void rt_agree(const RtRun *run, const char *checkpoint);
/* The parameters are the same on every rank, or all end and are told on which not; saved: the step
   of the last checkpoint, -1 = none. */
void rt_agree_still(const RtRun *run, int64_t saved);
double rt_agree_bytes(const RtModel *m, const RtOptions *o); /* that it works in */
/* --comm-check: each exchange with numbers whose answer is known, by rank; the exit code. */
int rt_comm_check(void);

/* ---- warn.c ---------------------------------------------------------------------------------- */

void rt_warnings_start(void);
/* Rank 0 tells what others have warned of and it has not. */
void rt_warnings_tell(void);

/* ---- watch.c --------------------------------------------------------------------------------- */

typedef struct {      /* of exchanges, as it is now */
    int64_t begun;    /* how many */
    const char *what; /* the one under way; NULL = none is */
    double waited;    /* seconds that it has taken until now; */
    double late;      /* over its time, below 0: it is not */
    const char *hint; /* to look further where it is; NULL */
} RtProgress;
/* From the meeting on, before there are exchanges; period: seconds between beats. */
void rt_watch_start(double period);
void rt_watch_exchanges(RtProgress (*progress)(void));
void rt_watch_stop(void);
RtProgress rt_watch_now(void); /* from any thread */

#if defined(__cplusplus)
} /* extern "C" */
#endif

#endif
