/* run.h -- what the files of the runtime know of each other; emitted code never sees it.
 *
 * Errors: every function that can fail prints one clear message with rt_fail (file, place, found,
 * wanted, hint) and the program ends with the exit code given; state on disk stays as it was.
 */
#ifndef GRADCC_RUN_H
#define GRADCC_RUN_H

#include <stdio.h>
#include <sys/types.h>

#include "rt.h"

/* ---- core/base.c: memory, files, messages, time --------------------------------------------- */

/* All allocation and file I/O goes through these two tables, so that tests can inject faults:
   RT_FAULT=alloc:N, io:CALL:N:ERRNO, io:short, io:eintr, io:kill:N (see base.c). */
typedef struct {
    void *(*alloc)(size_t bytes);               /* zeroed, RT_ALIGN-aligned; NULL = no memory    */
    void  (*free)(void *at);
} RtMem;
typedef struct {
    int     (*open)(const char *path, int flags, int mode);
    ssize_t (*read)(int fd, void *to, size_t n);
    ssize_t (*write)(int fd, const void *from, size_t n);
    int     (*fsync)(int fd);
    int     (*close)(int fd);
    int     (*rename)(const char *from, const char *to);
    int     (*unlink)(const char *path);
    int     (*mkdir)(const char *path, int mode);
} RtIo;
extern RtMem rt_mem;
extern RtIo  rt_io;

enum { RT_EXIT_FAIL = 1, RT_EXIT_USAGE = 2, RT_EXIT_REQUEUE = 75, RT_EXIT_INTERRUPT = 130 };

__attribute__((noreturn, format(printf, 2, 3))) void rt_fail(int exit_code, const char *fmt, ...);
__attribute__((format(printf, 1, 2))) void rt_warn(const char *fmt, ...);
void  *rt_alloc(size_t bytes, const char *what);            /* never NULL: fails with the sizes  */
char  *rt_printf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));   /* allocated text */
extern void (*rt_before_message)(void);                     /* ends a progress line; or NULL     */
void   rt_base_init(void);                                  /* reads RT_FAULT                    */
void   rt_free(void *at);                                   /* what the others here allocated    */
double rt_now(void);                                        /* seconds, monotonic                */
double rt_memory_free(void);                                /* bytes; -1 = unknown               */
double rt_memory_peak(void);                                /* of this process; -1 = unknown     */
enum { RT_BYTES_TEXT = 32 };
const char *rt_bytes(double bytes, char text[RT_BYTES_TEXT]);           /* "12.5 MiB"            */
int    rt_open(const char *path, int flags, int mode);      /* like open(), never EINTR          */
ssize_t rt_read_some(int fd, void *to, size_t n);           /* like read(), never EINTR          */
int    rt_write_all(int fd, const void *data, size_t len);  /* 0, or -1 with errno               */
int    rt_fsync(int fd);                                    /* 0, or -1 with errno               */
int    rt_fsync_directory_of(const char *path);             /* the folder that holds path        */
/* Whole file, a NUL byte behind it; .gz is expanded. limit: of bytes, before and after expanding. */
void  *rt_read_file(const char *path, size_t limit, size_t *len);
/* Temporary file beside path, write, fsync, rename, fsync of the directory. 0, or -1 with errno. */
int    rt_write_atomic(const char *path, const void *data, size_t len);

/* ---- data: readers and order ---------------------------------------------------------------- */

typedef struct RtData RtData;
typedef enum { RT_SPLIT_TRAIN, RT_SPLIT_VAL } RtSplit;

/* Opens and checks the whole data set (ranges of integer inputs included) for these dims. vocab:
   of a checkpoint (JSON array of strings) or NULL. */
RtData *rt_data_open(const RtModel *m, const RtTrain *t, const ptrdiff_t *dims, const char *vocab);
/* Encodes and decodes only, without any file: of a model trained on text, with the vocabulary of
   its checkpoint. NULL: the data have no vocabulary (ids are all there is). */
RtData *rt_data_open_vocab(const RtModel *m, const RtTrain *t, const char *vocab);
void    rt_data_close(RtData *d);
int64_t rt_data_samples(const RtData *d, RtSplit split);    /* N: samples of one epoch           */
/* Fills n samples into inputs[] (one buffer per input, n rows). Training: sample i of the run is
   element i mod N of the permutation of epoch i div N; validation: in order. */
void    rt_data_fill(RtData *d, RtSplit split, uint64_t seed, int64_t first, ptrdiff_t n,
                     void *const *inputs);
/* What validation over the whole split still needs when windows do not divide it: the length of
   the last, shorter window (0 = none), usable only if the model's dim allows it. */
ptrdiff_t rt_data_tail(const RtData *d, RtSplit split);
void    rt_data_fill_tail(RtData *d, RtSplit split, void *const *inputs);
const char *rt_data_vocab(const RtData *d);                 /* JSON array of strings, NULL = none */
/* Tokens of a text; -1: a character outside the vocabulary. */
int64_t rt_data_encode(const RtData *d, const char *text, int32_t *ids, int64_t cap);
const char *rt_data_decode(const RtData *d, int32_t id);    /* text of a token                   */
uint64_t rt_data_hash(const RtData *d);
void    rt_data_fit(RtData *d, const RtModel *m, void *p);  /* constants from the training split */
uint64_t rt_permute(uint64_t i, uint64_t n, uint64_t key);  /* bijection on 0..n-1               */

/* ---- checkpoint ------------------------------------------------------------------------------ */

typedef struct {                                /* what a checkpoint holds besides tensors       */
    int64_t  step;                              /* position: updates done, applied or skipped    */
    int64_t  applied, skipped, samples;         /* samples: of the run, drawn so far             */
    uint64_t seed, data_hash;
    double   best_val;                          /* NAN = none yet                                */
    const char *vocab;                          /* JSON array or NULL                            */
    const char *config;                         /* JSON object: resolved settings                */
} RtCheckpoint;

typedef struct { const char *name; void *at; } RtStateTensor;   /* "m", "v": flat, as parameters */

/* Writes DIR/step-%08lld atomically (checkpoints-and-faults.md 1); returns 0, or -1 after a warning
   (training goes on; the previous checkpoint is intact). Removes older ones beyond keep. */
int  rt_checkpoint_save(const char *dir, const RtModel *m, const void *p,
                        const RtStateTensor *state, int n_state, const RtCheckpoint *c,
                        int64_t keep);
/* path: a step directory, or a run directory (newest complete one; falls back loudly over damaged
   ones). Returns the directory loaded, NULL if `path` is a run directory without checkpoints. state
   may be NULL: only the parameters (generate). */
const char *rt_checkpoint_load(const char *path, const RtModel *m, void *p, RtStateTensor *state,
                               int n_state, RtCheckpoint *c);
bool rt_checkpoint_exists(const char *dir);
void rt_checkpoint_clean(const char *dir);      /* left-over temporary folders, with a message   */

/* ---- core/params.c, optim/, core/log.c: sections of their own ---------------------------------- */

#endif
