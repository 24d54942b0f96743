/* run.h -- what the files of the runtime know of each other; emitted code never sees it.
 *
 * Errors: every function that can fail prints one clear message with rt_fail (file, place, found,
 * wanted, hint) and the program ends with the exit code given; state on disk stays as it was.
 */
#ifndef GRADCC_RUN_H
#define GRADCC_RUN_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>

#include "rt.h"

#if defined(__cplusplus) /* cuda/ */
extern "C" {
#endif

/* ---- core/base.c: memory, files, messages, time ---------------------------------------------- */

/* All allocation and file I/O goes through these two tables, so that tests can inject faults:
   RT_FAULT=alloc:N, io:CALL:N:ERRNO, io:short, io:eintr, io:kill:N (see base.c). */
typedef struct {
    void *(*alloc)(size_t bytes); /* zeroed, RT_ALIGN-aligned; NULL = no memory */
    void (*free)(void *at);
} RtMem;
typedef struct {
    int (*open)(const char *path, int flags, int mode);
    ssize_t (*read)(int fd, void *to, size_t n);
    ssize_t (*write)(int fd, const void *from, size_t n);
    int (*fsync)(int fd);
    int (*close)(int fd);
    int (*rename)(const char *from, const char *to);
    int (*unlink)(const char *path);
    int (*mkdir)(const char *path, int mode);
    int (*lock)(int fd); /* alone, without waiting: flock(fd, LOCK_EX | LOCK_NB) */
} RtIo;
extern RtMem rt_mem;
extern RtIo rt_io;

enum { RT_EXIT_FAIL = 1, RT_EXIT_USAGE = 2, RT_EXIT_REQUEUE = 75, RT_EXIT_INTERRUPT = 130 };

__attribute__((noreturn, format(printf, 2, 3))) void rt_fail(int exit_code, const char *fmt, ...);
__attribute__((format(printf, 1, 2))) void rt_warn(const char *fmt, ...);
void rt_tell(const char *text);                 /* as rt_fail does, without an end */
void *rt_alloc(size_t bytes, const char *what); /* never NULL: fails with the sizes */
char *rt_printf(const char *fmt, ...) __attribute__((format(printf, 1, 2))); /* allocated text */
const char *rt_keep(char *text);        /* freed by rt_base_end */
int rt_end(int exit_code);              /* of main: the same, or 1 where stdout failed, told */
void rt_base_end(void);                 /* frees what rt_keep was given */
extern void (*rt_before_message)(void); /* ends a progress line; or NULL */
/* In place of rt_tell, before rt_fail ends the program; or NULL. */
extern void (*rt_on_fail)(int exit_code, const char *text);
/* One of several processes: what is not the first's says nothing but errors, under that name;
   warnings go to rt_on_warning alone. */
void rt_speak_as(const char *name);
extern void (*rt_on_warning)(const char *text);      /* of each; or NULL */
void rt_warn_as(const char *name, const char *text); /* another process has warned of it */
void rt_base_init(void);                             /* reads RT_FAULT */
void rt_free(void *at);                              /* what the others here allocated */
double rt_now(void);                                 /* seconds, monotonic */
double rt_memory_free(void);                         /* bytes; -1 = unknown */
double rt_memory_peak(void);                         /* of this process; -1 = unknown */
double rt_memory_held(void);                         /* bytes that were asked for and not freed */
double rt_memory_most(void);                         /* the most of these so far */
double rt_memory_lap(void);                          /* the most since this was called before */
double rt_processor_quota(void);                     /* of the container; 0 = none */
enum { RT_BYTES_TEXT = 32 };
const char *rt_bytes(double bytes, char text[RT_BYTES_TEXT]); /* "12.5 MiB" */
int rt_open(const char *path, int flags, int mode);           /* like open(), never EINTR */
ssize_t rt_read_some(int fd, void *to, size_t n);             /* like read(), never EINTR */
int rt_write_all(int fd, const void *data, size_t len);       /* 0, or -1 with errno */
int rt_fsync(int fd);                                         /* 0, or -1 with errno */
int rt_file_finish(int fd, int failed);   /* unless failed, fsync; close; the first errno */
int rt_fsync_directory(const char *path); /* the names in it reach the disk; 0, or -1 with errno */
/* Whole file, a NUL byte behind it; .gz is expanded. limit: of bytes, as stored and expanded. */
void *rt_read_file(const char *path, size_t limit, size_t *len);
/* Temporary file beside path, write, fsync, rename, fsync of the directory. 0, or -1 with errno. */
int rt_write_atomic(const char *path, const void *data, size_t len);

/* ---- core/environment.c: RT_ variables ------------------------------------------------------- */

void rt_environment_check(void);              /* all of them, at the start */
const char *rt_environment(const char *name); /* its value; NULL: not set, or empty */
bool rt_environment_is(const char *name, const char *word);

typedef struct RtOptions RtOptions;

/* ---- cpu/place.c, cuda/place.cu: where the buffers of a run are ------------------------------ */

/* One of the two is linked. Host memory on a CPU; else that of a GPU, which the host reads and
   writes by these functions alone: each waits until the bytes are there. */
#define RT_PLACE_WINDOW ((size_t)4 << 20) /* bytes seen at a time */
/* A GPU is chosen, and checked for what the model needs; a line names it. */
void rt_place_start(const RtModel *m, const RtOptions *o, bool tell);
size_t rt_place_size(size_t bytes);                   /* what rt_place_alloc takes for them */
void rt_place_open(double bytes, const char *what);   /* all that is allocated until close */
void rt_place_close(void);                            /* it is taken at once on a GPU */
void *rt_place_alloc(size_t bytes, const char *what); /* zeroed; fails with the sizes */
void *rt_place_take(size_t bytes, const char *what);  /* the same, with any contents */
void rt_place_free(void *at);
void rt_place_put(void *to, const void *from, size_t bytes); /* from host memory */
void rt_place_get(void *to, const void *from, size_t bytes); /* to host memory */
void rt_place_fill(void *at, int byte, size_t bytes);
/* At most RT_PLACE_WINDOW bytes of it for the host to read, until the next call of these two: at
   itself on a CPU. And host memory of so many bytes to be put there, NULL on a CPU. */
const void *rt_place_look(const void *at, size_t bytes);
void *rt_place_window(void);
double rt_place_memory_free(void); /* bytes; -1 = unknown */
double rt_place_taken(void);       /* bytes of buffers there; 0 on a CPU */
const char *rt_place_name(void);   /* "NVIDIA H200, cuda:0"; NULL on a CPU */
bool rt_place_is_host(void);

/* ---- data: readers and order ----------------------------------------------------------------- */

typedef struct RtData RtData; /* an open data set */
typedef enum { RT_SPLIT_TRAIN, RT_SPLIT_VAL } RtSplit;

/* Opens and checks the whole data set (ranges of integer inputs included) for these dims. vocab:
   of a checkpoint (JSON array of strings) or NULL. */
RtData *rt_data_open(const RtModel *m, const RtTrain *t, const ptrdiff_t *dims, const char *vocab);
/* Encodes and decodes only, without any file: of a model trained on text, with the vocabulary of
   its checkpoint. NULL: the data have no vocabulary (ids are all there is). */
RtData *rt_data_open_vocab(const RtModel *m, const RtTrain *t, const char *vocab);
void rt_data_close(RtData *d);
int64_t rt_data_samples(const RtData *d, RtSplit split); /* N: samples of one epoch */
/* Fills n samples into inputs[] (one buffer per input, n rows). Training: sample i of the run is
   element i mod N of the permutation of epoch i div N; validation: in order. */
void rt_data_fill(RtData *d, RtSplit split, uint64_t seed, int64_t first, ptrdiff_t n,
                  void *const *inputs);
/* What validation over the whole split still needs where windows do not divide a file: for each of
   its files the length of the last, shorter window (0 = none), usable only if the model's dim
   allows it. */
int rt_data_tails(const RtData *d, RtSplit split);
ptrdiff_t rt_data_tail(const RtData *d, RtSplit split, int i);
void rt_data_fill_tail(RtData *d, RtSplit split, int i, void *const *inputs);
int64_t rt_data_index(const RtData *d, uint64_t seed,
                      int64_t i);           /* of sample i of a training run */
const char *rt_data_vocab(const RtData *d); /* JSON array of strings, NULL = none */
/* Tokens of a text; -1: a character outside the vocabulary. */
int64_t rt_data_encode(const RtData *d, const char *text, int32_t *ids, int64_t cap);
const char *rt_data_decode(const RtData *d, int32_t id); /* text of a token */
uint64_t rt_data_hash(const RtData *d); /* of the files' bytes: is it the same data? */
void rt_data_fit(RtData *d, const RtModel *m, void *p);    /* constants from the training split */
uint64_t rt_permute(uint64_t i, uint64_t n, uint64_t key); /* bijection on 0..n-1 */
/* The code point at s; *length 0 where the bytes are no UTF-8. */
int32_t rt_utf8_decode(const uint8_t *s, size_t left, int *length);

/* ---- cpu/products.c: how products of bf16 operands are computed ------------------------------ */

typedef enum {
    RT_PRODUCTS_UNSET,
    RT_PRODUCTS_NATIVE, /* by the processor's instructions for them */
    RT_PRODUCTS_UNPACK, /* in fp32, operands converted block by block */
} RtProducts;

/* For the rest of the process: RT_MATMUL_BF16=native|unpack, or stored (of a checkpoint), or what a
   short measurement says. */
RtProducts rt_products_choose(RtProducts stored);
RtProducts rt_products_now(void); /* never unset on a CPU */
/* "in fp32, unpacked block by block (as before)" */
const char *rt_products_how(RtProducts now, RtProducts stored);
bool rt_products_are_native(void);
/* Who computes products of that model, besides gradcc: "oneDNN 2.6.3"; or "none". */
enum { RT_LIBRARY_TEXT = 48 };
const char *rt_products_library(const RtModel *m);
/* How those of a GPU are computed, in lines for a checkpoint; NULL: there is nothing to say, or it
   is a CPU. And back, before a run is created: NULL = as this start chooses. */
const char *rt_products_text(void);
void rt_products_take(const char *plans);
size_t rt_plans_most(const RtRooms *rooms); /* the longest that text can become; 0 on a CPU */

/* ---- checkpoint ------------------------------------------------------------------------------ */

typedef struct {                       /* what a checkpoint holds besides tensors */
    int64_t step;                      /* position: updates done, applied or skipped */
    int64_t applied, skipped, samples; /* samples: of the run, drawn so far */
    uint64_t seed, data_hash;          /* of the run; of rt_data_hash */
    double best_val;                   /* NAN = none yet */
    const char *vocab;                 /* JSON array or NULL */
    const char *config;                /* JSON object: resolved settings */
    RtProducts products;               /* how those of bf16 operands were computed */
    const char *plans;                 /* of rt_products_text, or NULL */
    char library[RT_LIBRARY_TEXT];     /* of rt_products_library; "": not known */
    double scale;                      /* of the loss, of the update to come; NAN = not known */
    int64_t tracker, stuck;            /* as in RtState */
    int64_t converted;                 /* parameters read from fp32 to bf16 or back */
} RtCheckpoint;

/* What a state of the optimizer keeps for each repetition of a parameter: the rank and the shape of
   that, or -1: nothing. */
typedef int (*RtStateShape)(const RtModel *m, const RtParam *q, ptrdiff_t shape[RT_MAX_RANK]);
typedef struct {        /* a state: in checkpoints NAME.PARAMETER, real type */
    const char *name;   /* "m", "v" */
    void *at;           /* NULL: not allocated */
    RtStateShape shape; /* NULL: flat, one value per element at the parameters' own places */
    /* NULL: in the file of the optimizer. Else in one of its own, with the parameters' names, so
       that it can stand for them; a checkpoint may have none: then .at becomes NULL at loading */
    const char *file;
} RtStateTensor;
/* With a shape, what is kept lies one behind the other, by row of the parameter table, then by
   repetition. Elements in all, and the first of a repetition. */
ptrdiff_t rt_state_elems(const RtModel *m, RtStateShape shape);
ptrdiff_t rt_state_at(const RtModel *m, RtStateShape shape, int param, ptrdiff_t repeat);

/* Writes DIR/step-%08lld, whole or not at all; returns 0, or -1 after a warning (training goes on;
   the previous checkpoint is intact). Removes older ones beyond keep. */
int rt_checkpoint_save(const char *dir, const RtModel *m, const void *p, const RtStateTensor *state,
                       int n_state, const RtCheckpoint *c, int64_t keep);
/* path: a step directory, or a run directory (newest complete one; falls back loudly over damaged
   ones). Returns the directory loaded, NULL if `path` is a run directory without checkpoints. state
   may be NULL: only the parameters (generate). */
const char *rt_checkpoint_load(const char *path, const RtModel *m, void *p, RtStateTensor *state,
                               int n_state, RtCheckpoint *c);
/* The directory that rt_checkpoint_load would load, and its manifest. Nothing is kept of its first
   n_files files (1 parameters, 2 state too), but they are read and must be whole, and the
   parameters those of the model. */
const char *rt_checkpoint_find(const char *path, const RtModel *m, int n_files, RtCheckpoint *c);
/* Bytes that a save works in, taken at once; counters of c do not matter. Saves that follow keep to
   it. */
size_t rt_checkpoint_plan(const RtModel *m, const RtStateTensor *state, int n_state,
                          const RtCheckpoint *c);
bool rt_checkpoint_exists(const char *dir); /* any, damaged or not */
/* Removes left-over temporary folders, with a message; not the one that was loaded (or NULL). */
void rt_checkpoint_clean(const char *dir, const char *loaded);

/* ---- core/params.c: the flat buffer by name -------------------------------------------------- */

enum { RT_NAME_TEXT = 512 }; /* longest logical name, with its NUL */

ptrdiff_t rt_param_elems(const RtParam *q);                /* of one repetition */
ptrdiff_t rt_param_repeats(const RtParam *q);              /* product of the stack counts */
ptrdiff_t rt_param_at(const RtParam *q, ptrdiff_t repeat); /* first element of a repetition */
/* "h.3.attn.c_attn.weight" for repetition 3 of "h.*.attn.c_attn.weight" */
const char *rt_param_name(const RtParam *q, ptrdiff_t repeat, char name[RT_NAME_TEXT]);
ptrdiff_t rt_params_count(const RtModel *m, bool trained_only); /* elements in all */
void rt_params_init(const RtModel *m, uint64_t seed, void *p);  /* keyed by logical name */
void rt_params_print(const RtModel *m, FILE *to);               /* the table */
uint64_t rt_hash_text(const char *text);    /* 64-bit FNV-1a: streams of names */
size_t rt_real_bytes(const RtModel *m);     /* 4 or 8 */
const char *rt_precision(const RtModel *m); /* "fp64", "fp32", "bf16", "fp16" */
size_t rt_params_bytes(const RtModel *m);   /* of the parameters as they are kept */
/* Where those without an fp32 master are, by their numbers in the flat buffer; NULL: none are. They
   lie behind the others in one block that begins at p. */
uint16_t *rt_params_halves(const RtModel *m, void *p);
/* Where element i of the parameters is, and in what: RT_F32, RT_F64 or RT_BF16. */
void *rt_param_place(const RtModel *m, void *p, ptrdiff_t i, RtType *type);
ptrdiff_t rt_params_wide(const RtModel *m);        /* elements before them, in real type */
size_t rt_params_copy_bytes(const RtModel *m);     /* of the compute copy in 16 bits; 0 = none */
const char *rt_products_name(RtProducts products); /* "native", "unpack", "unset" */
RtProducts rt_products_by_name(const char *name);  /* NULL or unknown: unset */

/* ---- cpu/rooms.c: what products and attention work in ---------------------------------------- */

enum { RT_ROOM_PACK, RT_ROOM_HALF, RT_ROOM_COUNT }; /* of a thread */
double rt_rooms_bytes(const RtRooms *need);         /* of all threads */
/* Allocates them; what is asked for beyond is allocated when it is needed, but not on a GPU.
   scratch: of the place, not in use yet: products are timed there by a GPU; or NULL. */
void rt_rooms_open(const RtRooms *need, void *scratch, size_t scratch_bytes);
void rt_rooms_close(void); /* those of all threads */

/* ---- optim/: schedules, and what updates go through ------------------------------------------ */

typedef struct { /* elements from..to-1 of the flat buffer, all updated with the same numbers */
    ptrdiff_t from, to;
    bool decay;  /* RtTrain.weight_decay applies, else it is 0 here */
    double rate; /* multiplier of the learning rate: 1, or that of a group of parameters */
    double own;  /* weight decay of a group that has its own; NAN = as .decay says */
    bool half;   /* kept in 16 bits alone */
} RtPiece;
enum { RT_PIECE = 1 << 15 }; /* most elements of a piece */

/* A repetition of a parameter as one piece; rate 0: it is not updated. */
RtPiece rt_param_piece(const RtModel *m, const RtParam *q, ptrdiff_t repeat);
double rt_piece_decay(RtPiece q, const RtTrain *t); /* its weight decay */
/* Pieces of what is updated in flat order; independent of the thread count. */
RtPiece *rt_optim_pieces(const RtModel *m, int *n);
/* The states that the optimizer keeps, not allocated; how many. */
int rt_optim_states(const RtTrain *t, RtStateTensor state[RT_MAX_STATES]);
double rt_hyper(const RtTrain *t, const char *name); /* 0 = it has no such number */
const char *rt_optimizer_name(const RtTrain *t);     /* "adamw" */
bool rt_optim_is_tensorwise(RtOptKind kind);         /* it needs something of whole tensors first */
typedef struct RtTensors RtTensors;                  /* optim/tensor.h */
RtTensors *rt_tensors_new(const RtModel *m, RtOptKind kind); /* NULL: it needs none */
void rt_tensors_free(RtTensors *all);
int rt_adafactor_states(RtStateTensor state[RT_MAX_STATES]); /* as rt_optim_states */
/* What the products of an update work in besides the arena. */
void rt_optim_rooms(const RtModel *m, const RtTrain *t, RtRooms *rooms);
int rt_muon_states(RtStateTensor state[RT_MAX_STATES]);
/* Of the arena that the update works in, behind the backward pass. */
size_t rt_optim_work_bytes(const RtModel *m, const RtTrain *t);
double rt_schedule_lr(const RtTrain *t, int64_t applied); /* of the update to come */
const char *rt_schedule_name(const RtTrain *t);           /* "cosine", or the formula */
void rt_schedule_settle(RtTrain *t); /* its settings one by one: what is wrong ends the program */
void rt_schedule_check(const RtTrain *t); /* together, and with the length of the run: warnings */
void rt_schedule_print(const RtTrain *t, FILE *to);           /* the line "rate ..." */
bool rt_schedule_takes(RtSchedKind kind, const char *option); /* "lr-end"; others: true */
bool rt_schedule_owns(const char *option);                    /* some kind does not take it */
typedef struct RtState RtState;
bool rt_scale_skips(const RtState *state);          /* an update that is not finite, or stops */
void rt_scale_advance(RtState *state, bool finite); /* to the scale of the next update */

/* ---- cpu/, cuda/: updates, one of the two is linked ------------------------------------------ */

/* Beside rt_finite_and_norm, rt_clip_value, rt_clip, rt_update, rt_update_lamb, .._adafactor and
   .._muon of rt.h. What they keep besides states (partial sums, tables on a device) in bytes of the
   place, and open: takes that, when pieces, tensors and states are there. */
size_t rt_optim_place_bytes(const RtModel *m, const RtOptions *o);
void rt_optim_open(RtRun *run);
void rt_optim_close(RtRun *run);
void rt_params_copy(RtRun *run); /* p16 from p; updates keep it so */
void rt_ema_start(RtRun *run);   /* as the parameters are */
void rt_ema_swap(RtRun *run);    /* the average takes the parameters' place, or they theirs again */

/* ---- core/options.c, help.c, config.c: settings ---------------------------------------------- */

enum { RT_MAX_OPTIONS = 128 }; /* rows of the option table and numbers of the optimizer */

typedef enum { RT_DO_TRAIN = 1, RT_DO_EVAL = 2, RT_DO_GENERATE = 4 } RtCommand;

struct RtOptions {
    const char *program;         /* argv[0] */
    RtCommand command;           /* train, if none was given */
    RtTrain train;               /* the train block, flags applied */
    ptrdiff_t dims[RT_MAX_DIMS]; /* batch dims: samples of a micro-step */
    bool given[RT_MAX_OPTIONS];  /* by row of the option table, the optimizer's numbers behind it */
    uint64_t dims_given;         /* bit i: dim i was given */
    int64_t threads;             /* 0 = what the machine offers */
    const char *resume;          /* "none", "auto" or a path */
    const char *replay;          /* directory of a capsule, "auto" or "none" */
    bool trace;                  /* a line for each value that a step writes */
    bool dry_run, force;         /* tell and stop; start whatever memory says */
    const char *checkpoint;      /* eval, generate: NULL = newest of the run */
    bool average;                /* the same: the average of the weights instead of them */
    const char *prompt;          /* generate, with the next two lines */
    int64_t tokens, top_k;
    double temperature;
    double loss_scale;                    /* at the start; 0 = no scaling, as in all but fp16 */
    int64_t scale_interval;               /* finite updates until it grows */
    double scale_growth, scale_backoff;   /* factors of it */
    const char *nonfinite;                /* "stop" or "skip" */
    int64_t max_skips;                    /* in a row, where no lower scale is left */
    int64_t device;                       /* of a GPU: its number */
    bool tf32;                            /* of a GPU: products of fp32 in TF32 */
    int64_t rank, world_size, local_rank; /* of this process in a job of several; -1 = not given */
    const char *rendezvous, *comm;        /* where rank 0 is, or NULL; the back end, or auto */
    const char *comm_dtype;               /* of gradients between ranks: fp32 or bf16 */
    const char *interface;                /* of the network, or NULL */
    double rendezvous_timeout, comm_timeout; /* seconds */
    int64_t tree;                            /* leaves of an update, or 0 */
    double bucket;                           /* MiB of gradients that are summed at a time */
    double started;                          /* rt_now when the program began */
    bool comm_check;                         /* check the exchanges of ranks, and stop */
    bool help, version;                      /* print it and stop */
};

typedef enum {
    RT_OPT_INT,
    RT_OPT_UINT,
    RT_OPT_REAL,
    RT_OPT_TEXT,
    RT_OPT_DIMS,
    RT_OPT_FLAG,
} RtOptType;

typedef struct {      /* one row serves parser, --help and config.json */
    const char *name; /* without the dashes */
    RtOptType type;
    size_t at;         /* of the value, in RtOptions */
    int commands;      /* or of RtCommand */
    double lo, hi;     /* of numbers */
    const char *value; /* how help calls it: "N" */
    const char *text;  /* of the help */
    bool saved;        /* in config.json, taken over by --resume */
} RtOption;

/* In the order of the help; behind the rows that are always the same those of the optimizer's
   numbers. */
int rt_option_count(const RtModel *m);
RtOption rt_option_at(const RtModel *m, int i);

/* Prints help or a message and ends the program where that is asked for or needed. */
RtOptions rt_options_parse(const RtModel *m, int argc, char **argv);
/* Checks batch, accumulate and dims against each other; fills the batch dims. */
void rt_options_settle(const RtModel *m, RtOptions *o);
bool rt_option_applies(const RtModel *m, const RtOption *row); /* to this model */
int rt_option_index(const RtModel *m, const char *name);       /* row, -1 = none */
bool rt_option_given(const RtModel *m, const RtOptions *o, const char *name);
void rt_help_print(const RtModel *m, const RtOptions *o, FILE *to); /* of this command */
/* The candidate nearest to a mistyped word, or NULL. */
const char *rt_suggest(const char *word, const char *const *words, int n);

/* JSON object of all settings; and back: settings that were not given come from it. to: where the
   differences are told, or NULL. */
char *rt_config_text(const RtModel *m, const RtOptions *o);
void rt_config_adopt(const RtModel *m, RtOptions *o, const char *config, FILE *to);
/* eval and generate: the checkpoint they work on, its settings taken over and settled. */
const char *rt_config_load(const RtModel *m, RtOptions *o, RtCheckpoint *c);

/* ---- core/run.c: one model with its buffers -------------------------------------------------- */

typedef struct {                 /* means of all slots over a data set or update */
    double mean[RT_MAX_SLOTS];   /* NAN where the count is 0 */
    double count[RT_MAX_SLOTS];  /* elements that each mean is over */
    double loss;                 /* sum of weight * mean; an empty mean counts 0 */
    double metric[RT_MAX_SLOTS]; /* NAN: the training step does not compute its means */
    double samples;              /* of the data set or update */
} RtMeans;

typedef struct { /* what updates on a GPU go through, in one buffer there (cuda/tables.cu) */
    void *at;
    struct RtPart *part; /* of all parameters that are updated */
    int n_parts;
    struct RtTensorRow *tensor; /* where the optimizer needs something of whole tensors; */
    int n_tensors;              /* in the order of RtTensors */
    struct RtTile *rows, *columns, *matrices; /* of Adafactor: what a block works on */
    int n_rows, n_columns, n_matrices;
    double *sums;    /* of squares, two for each part or block */
    double *numbers; /* two for each tensor, which its parts are updated with */
    double *power;   /* the optimizer's numbers to the power of the update's */
    double *means, *column_sums;
    unsigned *done; /* blocks of a sum */
} RtOptimTables;

typedef struct { /* bytes */
    double params, copy, gradients, state, average, arena, inputs, outputs;
    double rooms;   /* what products and attention work in */
    double updates; /* what updates keep besides states */
    double place;   /* all of these; in the memory of a GPU, where there is one */
    double rows;    /* samples in host memory, on their way to a GPU */
    double tables;  /* of the optimizer, and of the run */
    double saving;  /* settings and lists, while a checkpoint is written */
    double needed;  /* all of these in host memory */
    double held;    /* allocated before: settings and data, */
    double ranks;   /* and of it, what sums over ranks work in */
    double total;   /* the most that is allocated at a time, from the start of the program */
} RtMemory;

struct RtState {
    const RtOptions *opt;
    RtData *data; /* NULL: none is used */
    int n_states; /* of the optimizer */
    RtStateTensor states[RT_MAX_STATES];
    void *ema;          /* the average of the weights, flat; NULL: none is kept */
    bool ema_moved;     /* by the update of this step */
    void *other;        /* room for the average as the parameters are kept, where that differs */
    bool swapped;       /* the average is in the parameters' place */
    RtPiece *pieces;    /* what updates go through, in host memory */
    double *piece_sums; /* of squares, one per piece; of a CPU */
    int n_pieces;
    RtTensors *tensors;               /* NULL: the optimizer goes through pieces */
    RtOptimTables tables;             /* of a GPU */
    struct RtQueue *queue;            /* of a GPU: steps that are not done yet */
    ptrdiff_t row_elems[RT_MAX_DIMS]; /* of an input: elements of a sample */
    void *rows[RT_MAX_DIMS];          /* samples of a whole update, or of a batch; host memory */
    ptrdiff_t row_cap;                /* samples that fit there */
    int64_t step, applied, skipped;   /* updates done; counters of the run */
    int64_t samples;                  /* of the run, drawn so far */
    int64_t empty;                    /* updates in which a loss had no valid element */
    struct RtTree *tree;              /* of a rank with several leaves, or NULL */
    bool seeded;                      /* counts are there: forward and backward passes follow */
    RtBuckets *buckets;               /* what sums gradients over ranks; NULL in a job of one */
    int signal;      /* that some rank was sent by the end of an update; 0 = none */
    double best_val; /* least loss of a validation; NAN = none yet */
    double scale;    /* of the loss; 0 = none */
    int64_t tracker; /* finite updates since it changed */
    int64_t stuck;   /* updates skipped in a row with no lower scale left */
    RtCheck *check;  /* looks at each value of the steps to come, or NULL */
};

enum { RT_USE_TRAIN = 1, RT_USE_EVAL = 2, RT_USE_OUTPUT = 4 };

size_t rt_row_bytes(const RtModel *m, const ptrdiff_t *dims, int input); /* of a sample */
ptrdiff_t rt_row_count(const RtModel *m, const RtOptions *o, int use);   /* the most at a time */
void rt_run_set_batch(RtRun *run, ptrdiff_t n); /* samples of the batch to come */
/* comm/comm.c: of an update, the samples of this rank, which begin at rank times as many; of a
   micro-step. */
ptrdiff_t rt_rank_batch(const RtTrain *t);
ptrdiff_t rt_micro_batch(const RtTrain *t);
int rt_micro_steps(const RtTrain *t); /* of this rank in an update */
/* Bytes of everything a run allocates at these settings. data: as open by now, or NULL. */
RtMemory rt_run_memory(const RtModel *m, const RtOptions *o, const RtData *data, int use);
/* Buffers for `use`, parameters not set. */
RtRun *rt_run_create(const RtModel *m, const RtOptions *o, RtData *data, int use);
void rt_run_free(RtRun *run);
/* nan without its sign, which says nothing and would be printed. */
static inline double rt_plain_nan(double x) { return isnan(x) ? (double)NAN : x; }
RtMeans rt_run_means(const RtModel *m, const RtStep *s); /* of sums and counts of a step */
/* One update, and its result. ahead: nothing follows it before the next one, which a GPU may begin
   at once; its result is that of the call to come. */
RtMeans rt_run_step(RtRun *run, RtStep *s, bool ahead);
RtMeans rt_run_evaluate(RtRun *run, RtSplit split); /* over the whole split */
/* Samples of validation, shorter windows included; *left: tokens that none of them has as target,
   since the model takes no shorter window. */
int64_t rt_run_validates(const RtModel *m, const RtOptions *o, const RtData *data, int64_t *left);
void rt_run_forward(RtRun *run);              /* outputs from rt_rows and dims */
int rt_run_save(RtRun *run, const char *dir); /* 0, or -1 after a warning */
/* rt_checkpoint_find, with texts that live on. */
const char *rt_run_find(const RtModel *m, const char *path, int n_files, RtCheckpoint *c);
/* NULL: no checkpoint there. with_state false: parameters only. */
const char *rt_run_load(RtRun *run, const char *path, bool with_state, RtCheckpoint *c);

/* ---- cpu/step.c, cuda/step.cu: what of a step depends on where it runs ----------------------- */

/* Beside rt_begin_step .. rt_end_step of rt.h. Inputs: where the host writes the samples of a batch
   to come (once a GPU has taken those before), and the word that n of them are there, s->sample the
   first: run->inputs has them for what is called next. */
typedef struct {
    double place, host, pinned; /* bytes; pinned: what a GPU copies from */
} RtStepBytes;
RtStepBytes rt_step_bytes(const RtModel *m, const RtOptions *o, int use);
void rt_step_open(RtRun *run);
void rt_step_close(RtRun *run);
void *const *rt_rows(RtRun *run);
void rt_rows_send(RtRun *run, const RtStep *s, ptrdiff_t n);
/* One update, its result in *s and in the counters of the run; ahead as in rt_run_step. */
void rt_step_run(RtRun *run, RtStep *s, bool ahead);
bool rt_step_is_ahead(const RtRun *run); /* a further update has begun */
/* Before and behind evaluate and forward: sums and counts 0; they are there, in *s. */
void rt_step_start(RtRun *run, RtStep *s);
void rt_step_wait(RtRun *run, RtStep *s);

/* ---- core/memory.c --------------------------------------------------------------------------- */

/* Before a run is created: training prints what it takes; what does not fit ends the program. */
void rt_memory_check(const RtModel *m, const RtOptions *o, const RtData *data, int use);
double rt_memory_planned(void);       /* what that said, in all, of the host's memory */
double rt_memory_planned_place(void); /* and of a GPU's */

/* ---- core/check.c: a step looked at value by value ------------------------------------------- */

RtCheck *rt_check_create(const RtRun *run,
                         bool trace); /* trace: a line for each value, to stderr */
void rt_check_free(RtCheck *check);
bool rt_check_rehearses(const RtCheck *check);  /* NULL: no */
void rt_check_begin(RtCheck *check);            /* an update; its inputs and parameters are there */
void rt_check_micro(RtCheck *check, int micro); /* one of its micro-steps */
/* Between begin and end a step is run that is not updated, with samples that are no fault: what is
   infinite in it, is so in the steps to come without a report. */
void rt_check_rehearse(RtCheck *check, bool begin);
bool rt_check_finite(RtCheck *check, bool finite); /* is the update to be applied? */
/* Lines about the first value of the update that is not finite, without the last line end. */
const char *rt_check_report(const RtCheck *check);
bool rt_check_found(const RtCheck *check); /* such a value */

/* ---- core/replay.c: the step that was not finite, kept and run again ------------------------- */

/* Saves DIR as it was before step s, with capsule.json: what that step was. before: of that time.
   0, or -1 after a warning. */
int rt_capsule_save(RtRun *run, const RtState *before, const RtStep *s, const RtMeans *means,
                    const char *dir);
/* Names of parameters whose gradient is not finite, the first three; allocated. */
uint64_t rt_place_hash(const void *at, size_t bytes); /* of what lies in the place; XXH3 */
char *rt_bad_parameters(const RtRun *run);
/* Runs the step to come once more, each value looked at: the report. It must not have been finite;
   what it changes this time is of no use any more. */
const char *rt_replay_report(RtRun *run);
int rt_do_replay(const RtModel *m, RtOptions *o); /* --replay; the exit code */

/* ---- core/log.c: what a person and a program read -------------------------------------------- */

typedef struct {
    int fd;                              /* metrics.jsonl, -1 = none */
    bool live;                           /* a terminal: one line, updated in place */
    bool open_line;                      /* the line has no end yet */
    int64_t steps, every;                /* plain lines every so many steps */
    double started, last_shown, program; /* program: when it began */
    double seconds;                      /* of the steps after the first */
    double recent_seconds, recent_steps; /* the same, fading */
    int64_t counted;                     /* steps of this process */
    int64_t unit;                        /* tokens or samples per sample */
    const char *unit_name;               /* "tokens" or "samples" */
} RtLog;

/* dir: where metrics.jsonl lies, NULL = none is written; from: the step gone on from, 0 = none. */
RtLog rt_log_open(const RtModel *m, const RtOptions *o, const char *dir, int64_t from);
void rt_log_begin(RtLog *log); /* log stays where it is from here on */
/* The first record of a process; checkpoint: what it goes on from, NULL = a fresh run. */
void rt_log_record_start(RtLog *log, int64_t step, const char *checkpoint);
/* A step and a validation that are done: a line where one is due, a record. average: with the
   average of the weights, NULL = there is none. */
void rt_log_step(RtLog *log, const RtRun *run, const RtStep *s, const RtMeans *means,
                 double seconds);
void rt_log_validation(RtLog *log, const RtRun *run, const RtMeans *means, const RtMeans *average,
                       double seconds, bool best);
/* A line of its own, for people only. */
__attribute__((format(printf, 2, 3))) void rt_log_say(RtLog *log, const char *fmt, ...);
void rt_log_close(RtLog *log);

/* ---- core/threads.c -------------------------------------------------------------------------- */

void rt_threads_tame(char **argv); /* may start the program anew; first in main */
void rt_threads_set(RtOptions *o); /* --threads, or what the machine offers */

/* ---- core/lock.c ----------------------------------------------------------------------------- */

/* The lock of a run directory, until the process ends; fails if another process has it. create:
   false = only where a run left a lock file. false: there is none, nothing is locked. */
bool rt_lock_take(const char *dir, bool create);

/* ---- core/signal.c --------------------------------------------------------------------------- */

void rt_signal_catch(void);  /* SIGINT, SIGTERM, SIGUSR1 */
int rt_signal_pending(void); /* signal number, 0 = none */

/* ---- core/utf8.c: a text that comes a byte at a time ----------------------------------------- */

typedef struct { /* bytes that may begin a character */
    uint8_t at[4];
    int n;
} RtHeld;
void rt_utf8_write(RtHeld *held, uint8_t byte, FILE *out); /* U+FFFD for what is no UTF-8 */
void rt_utf8_end(RtHeld *held, FILE *out);                 /* nothing follows */

/* ---- core/evaluate.c, generate.c: the other sub-commands ------------------------------------- */

const char *rt_generate_possible(const RtModel *m); /* NULL, or why it is not */
/* The sub-commands eval and generate; the exit code. */
int rt_do_evaluate(const RtModel *m, RtOptions *o);
int rt_do_generate(const RtModel *m, RtOptions *o);

#if defined(__cplusplus)
}
#endif

#endif
