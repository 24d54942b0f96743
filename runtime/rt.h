/* rt.h -- all that emitted code knows of the runtime, in sections by folder.
 *
 * Sizes are ptrdiff_t. "real" is float or double, fixed per model; functions come as _f32 and _f64.
 * Nothing here allocates or reads the disk inside a step.
 * Emitted code is compiled with -std=c11 -O3 -march=native -fopenmp -ffp-contract=off
 * -fno-math-errno -fno-trapping-math: the last two change no value and let loops vectorise.
 */
#ifndef GRADCC_RT_H
#define GRADCC_RT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "num.h" /* inline math, Philox; half.h: 16-bit types and conversions */

#if defined(__cplusplus) /* the CUDA target, rt_cuda.h: without the functions of the CPU */
#define RT_CUDA
#define restrict __restrict__
extern "C" {
#endif

/* ---- the arena ------------------------------------------------------------------------------ */

#if !defined(RT_CUDA)
#define RT_ALIGN 64 /* of buffers; sizes are rounded up to it */
#else
#define RT_ALIGN 256 /* on a device */
#endif
#define RT_SIZE(type, n) ((((size_t)(n) * sizeof(type)) + RT_ALIGN - 1) & ~(size_t)(RT_ALIGN - 1))
#define RT_AT(arena, at) ((void *)((char *)(arena) + (at)))
#define RT_UNUSED(x)     ((void)(x))
static inline float *rt_at_f32(void *arena, size_t at) { return (float *)RT_AT(arena, at); }
static inline double *rt_at_f64(void *arena, size_t at) { return (double *)RT_AT(arena, at); }
static inline rt_bf16 *rt_at_bf16(void *arena, size_t at) { return (rt_bf16 *)RT_AT(arena, at); }
static inline rt_f16 *rt_at_f16(void *arena, size_t at) { return (rt_f16 *)RT_AT(arena, at); }
static inline int32_t *rt_at_i32(void *arena, size_t at) { return (int32_t *)RT_AT(arena, at); }
static inline bool *rt_at_bool(void *arena, size_t at) { return (bool *)RT_AT(arena, at); }

/* Limits of a model; RT_CHUNKS: of the ranges that a sum is cut into. */
enum { RT_MAX_RANK = 8, RT_MAX_DIMS = 64, RT_MAX_SLOTS = 64, RT_MAX_STACKS = 4, RT_CHUNKS = 64 };
enum { RT_MAX_HYPERS = 16, RT_MAX_STATES = 8 }; /* of an optimizer */

/* ---- loops -----------------------------------------------------------------------------------
 * Without OpenMP the loops stand as they are. Work is split statically, and sums over what threads
 * share go over fixed ranges, at most RT_CHUNKS, so that no result depends on their number. */

#if defined(_OPENMP)
#define RT_PRAGMA(text) _Pragma(#text)
#else
#define RT_PRAGMA(text)
#endif
/* The next `loops` nested loops in parallel, the next loop in simd form (RT_SIMD takes reduction
   clauses), both at once; in parallel only where `work`, a count of elements, is worth it. */
#define RT_PARALLEL_FOR(loops, work)                                                               \
    RT_PRAGMA(omp parallel for collapse(loops) schedule(static) if(rt_is_worth(work)))
#define RT_PARALLEL_SIMD(work)                                                                     \
    RT_PRAGMA(omp parallel for simd schedule(static) if(parallel: rt_is_worth(work)))
#define RT_SIMD(...) RT_PRAGMA(omp simd __VA_ARGS__)
#if defined(__clang__) /* a simd loop that stays scalar is no mistake */
#pragma clang diagnostic ignored "-Wpass-failed"
#endif

enum {
    RT_PARALLEL_MIN = 32768, /* elements */
    RT_COLUMNS = 128,        /* columns that a thread sums at a time */
    RT_LANES = 64,           /* sums side by side, of a row */
};

static inline bool rt_is_worth(ptrdiff_t work) { return work >= RT_PARALLEL_MIN; }

static inline int rt_chunks(ptrdiff_t rows) /* of at least 8 rows each, at most RT_CHUNKS */
{
    return rows < 16 ? 1 : rows / 8 > RT_CHUNKS ? RT_CHUNKS : (int)(rows / 8);
}

static inline ptrdiff_t rt_chunk(ptrdiff_t rows, int chunk, int chunks) /* where one starts */
{
    return rows * chunk / chunks;
}

static inline double rt_sum_chunks(const double *part, int chunks) /* in order */
{
    double sum = 0;
    for (int chunk = 0; chunk < chunks; chunk++)
        sum += part[chunk];
    return sum;
}

/* A sum over a row is RT_LANES sums of every 64th element, which are added up here: in one order,
   whatever vectors a compiler makes of the loop. The same for the largest and the smallest. */
#define RT_DEFINE_FOLD(real, name, suffix, JOIN)                                                   \
    static inline real rt_##name##_lanes_##suffix(const real *lane)                                \
    {                                                                                              \
        real r[8];                                                                                 \
        for (int i = 0; i < 8; i++) {                                                              \
            r[i] = lane[i];                                                                        \
            for (int k = 8; k < RT_LANES; k += 8)                                                  \
                r[i] = JOIN(r[i], lane[k + i]);                                                    \
        }                                                                                          \
        for (int n = 4; n > 0; n /= 2)                                                             \
            for (int i = 0; i < n; i++)                                                            \
                r[i] = JOIN(r[i], r[i + n]);                                                       \
        return r[0];                                                                               \
    }
#define RT_DEFINE_LANES(real, suffix)                                                              \
    static inline void rt_set_lanes_##suffix(real *lane, real start)                               \
    {                                                                                              \
        for (int i = 0; i < RT_LANES; i++)                                                         \
            lane[i] = start;                                                                       \
    }                                                                                              \
    RT_DEFINE_FOLD(real, sum, suffix, RT_PLUS)                                                     \
    RT_DEFINE_FOLD(real, max, suffix, rt_max)                                                      \
    RT_DEFINE_FOLD(real, min, suffix, rt_min)
#define RT_PLUS(a, b) ((a) + (b))
RT_DEFINE_LANES(float, f32)
RT_DEFINE_LANES(double, f64)

/* Partial sums of columns: one row of n per chunk, zeroed before, added up in order afterwards. */
#define RT_DEFINE_COLUMNS(real, suffix)                                                            \
    static inline real *rt_zeros_##suffix(real *row, ptrdiff_t n)                                  \
    {                                                                                              \
        for (ptrdiff_t i = 0; i < n; i++)                                                          \
            row[i] = 0;                                                                            \
        return row;                                                                                \
    }                                                                                              \
    static inline void rt_add_rows_##suffix(real *restrict to, const real *restrict rows,          \
                                            int n_rows, ptrdiff_t n, bool add)                     \
    {                                                                                              \
        for (ptrdiff_t i = 0; i < n; i++)                                                          \
            to[i] = add ? to[i] + rows[i] : rows[i];                                               \
        for (int row = 1; row < n_rows; row++)                                                     \
            for (ptrdiff_t i = 0; i < n; i++)                                                      \
                to[i] += rows[row * n + i];                                                        \
    }
RT_DEFINE_COLUMNS(float, f32)
RT_DEFINE_COLUMNS(double, f64)

static inline size_t rt_above(size_t at, size_t end) /* the higher of two offsets */
{
    return at > end ? at : end;
}

/* ---- the model table ------------------------------------------------------------------------ */

typedef enum { RT_F32, RT_F64, RT_I32, RT_BF16, RT_F16 } RtType;
typedef enum { RT_WEIGHT, RT_BIAS, RT_GAIN, RT_EMBEDDING, RT_STATE } RtRole;
typedef enum { RT_ZEROS, RT_ONES, RT_CONST, RT_NORMAL, RT_UNIFORM } RtInitKind;
/* RT_RULE: its update is emitted */
typedef enum { RT_RULE, RT_LAMB, RT_ADAFACTOR, RT_MUON } RtOptKind;
typedef enum { /* formulas: optim/schedule.c */
               RT_CONSTANT,
               RT_LINEAR,
               RT_COSINE,
               RT_WSD,
               RT_STEP,
               RT_INVERSE_SQRT,
               RT_ONE_CYCLE,
               RT_FORMULA,
} RtSchedKind;

typedef struct {
    RtInitKind kind;
    double value; /* CONST: itself; NORMAL: std; UNIFORM: bound */
} RtInit;

typedef struct { /* a size bound when the program starts */
    const char *name;
    bool batch;        /* the sample axis: not set by --dims */
    ptrdiff_t value;   /* from the train block; 0 = must be given */
    const char *where; /* "chargpt.model:4" */
} RtDim;

typedef struct { /* repetitions, and elements from one to the next */
    ptrdiff_t count, stride;
} RtStack;

typedef struct {       /* parameters that are updated with numbers of their own */
    const char *names; /* patterns, as the model has them */
    double rate;       /* factor of the learning rate; 0: they are left as they are */
    bool own_decay;    /* .decay, for all of them; else that of other parameters */
    double decay;
    const char *where;
} RtGroup;

typedef struct {      /* one row stands for all repetitions of a stack */
    const char *path; /* "h.*.attn.c_attn.weight": one * per stack */
    RtRole role;
    bool decay;            /* weight decay applies, if no group says otherwise */
    bool excepted;         /* Muon leaves it to AdamW whatever it is */
    int group;             /* of all repetitions, from 1; 0 = none, or */
    const uint8_t *groups; /* the group of each; NULL = they have one */
    int rank;              /* of one repetition */
    ptrdiff_t shape[RT_MAX_RANK];
    ptrdiff_t at;                 /* first element in the flat buffer */
    int n_stacks;                 /* element (i, j) of nested stacks starts at */
    RtStack stack[RT_MAX_STACKS]; /* at + i*stack[0].stride + j*stack[1].stride */
    int ready;                    /* its gradient is complete behind this step; 0: it has none */
    bool each;                    /* behind that of each repetition of its outermost stack */
    RtInit init;
    const char *fit;   /* "mean" or "std" of input fit_input, or NULL */
    int fit_input;     /* row of the inputs */
    const char *where; /* "chargpt.model:12"; here and below */
} RtParam;

typedef struct {
    const char *name;
    RtType type; /* RT_I32 or the model's real type */
    int rank;    /* sizes by input_shape; axis 0 is the batch */
    bool ranged; /* integers: lo <= v < hi, or v == ignore */
    int64_t lo, hi;
    const char *hi_name; /* the const that hi is, "V", or NULL */
    bool has_ignore;
    int64_t ignore;
    const char *where;
} RtInput;

typedef struct { /* of real type */
    const char *name;
    int rank;
    uint64_t needs; /* bit i: it depends on input i */
    const char *where;
} RtOutput;

typedef struct { /* a mean over data: (sum, count) */
    const char *name;
    const char *text; /* "mean(cross_entropy(logits, targets))" */
    double weight;    /* in the loss; 0 = metrics only */
    const char *where;
} RtSlot;

typedef struct {
    const char *name, *where;
} RtMetric;

typedef struct {        /* a loss and what it trains: elements from..to-1 */
    const char *loss;   /* its name */
    ptrdiff_t from, to; /* in the flat buffer */
    RtOptKind optimizer;
    const char *where;
} RtObjective;

typedef struct {      /* a number of the optimizer besides rate and decay; --NAME sets it */
    const char *name; /* "beta1" */
    double value;     /* of the train block, or the rule's default; the flag's where one is given */
    double lo, hi;    /* what it may be */
} RtHyper;

typedef enum { RT_MAP_WINDOW, RT_MAP_COL, RT_MAP_COLS } RtMapKind;
typedef struct { /* what an input is given of the data; ranges by RtModel.map_range */
    int input;   /* row of the inputs */
    RtMapKind kind;
    const char *column; /* COL by name, or NULL */
    const char *where;
} RtMap;

typedef struct {                          /* the train block: defaults of the flags */
    bool present;                         /* false: the model has none */
    const char *reader, *path, *val_path; /* reader: "text", "csv", "tokens" or NULL */
    double split;                         /* training share of the data */
    bool header;                          /* csv: the first row names the columns */
    const char *vocab;                    /* text: "bytes" or "chars" */
    const RtMap *maps;
    int n_maps;
    int64_t batch, accumulate; /* samples of an update; micro-steps it is split into */
    RtOptKind optimizer;
    const char *rule;                  /* RT_RULE: its name, "adamw" */
    bool decays;                       /* it has a weight decay: */
    double weight_decay;               /* of parameters marked so */
    const char *states[RT_MAX_STATES]; /* RT_RULE: what it keeps for each element, "m", "v" */
    int n_states;
    bool nesterov, match_rms;     /* of Muon; match_rms: steps as large as AdamW's */
    RtHyper hyper[RT_MAX_HYPERS]; /* other numbers of the optimizer, n_hypers of them */
    int n_hypers;
    RtSchedKind schedule;
    double lr, lr_end;           /* highest rate; that at the end of the schedule */
    int64_t warmup, decay_steps; /* decay_steps 0 = steps */
    int64_t decay;               /* WSD: length of its last part, and is that 1 - sqrt(r)? */
    bool decay_sqrt;
    int64_t drop_every;  /* STEP: the rate falls after so many updates, or */
    const char *drop_at; /* "3000,6000": at these; NULL = every drop_every */
    double drop_factor;
    double pct_start, div_factor, final_div_factor; /* ONE_CYCLE: the top; the first and the last */
    bool three_phase;
    double (*rate)(double step, double steps); /* FORMULA, and as the model has it: */
    const char *rate_text;
    double ema;            /* decay of the average of the weights; 0 = none is kept */
    const char *nonfinite; /* "stop", "skip"; NULL, and 0 below: the usual, as in core/options.c */
    int64_t max_skips;
    double loss_scale; /* -1 = none */
    int64_t scale_interval;
    double scale_growth, scale_backoff;
    double clip_value; /* largest size of the gradient's elements; 0 = no limit */
    double clip;       /* largest norm of the gradient, behind that; 0 = no clipping */
    int64_t steps, eval_every, save_every, log_every, keep; /* in updates; keep: checkpoints */
    uint64_t seed;
    const char *out; /* NULL = <model>.run */
    const char *where;
} RtTrain;

typedef struct {                      /* a step of training, for --replay */
    int number;                       /* in the emitted file */
    bool backward;                    /* of the backward pass */
    const char *loops[RT_MAX_STACKS]; /* it stands in: "h" of h.3, outermost first */
    const char *where, *how;          /* lines of the model; "h = tanh(x)" */
    const char *reads; /* "z[i-1], param h.*.norm.weight": values of a repetition, and others */
} RtStepRow;

typedef struct RtRun RtRun;
typedef struct RtStep RtStep;
typedef struct RtCheck RtCheck;     /* core/check.c */
typedef struct RtBuckets RtBuckets; /* comm/buckets.c */
typedef struct RtRooms RtRooms;
typedef struct RtStream RtStream; /* work of a GPU, cuda/rt_cuda.h */

typedef enum { RT_ENTRY_TRAIN, RT_ENTRY_EVAL, RT_ENTRY_OUTPUT, RT_ENTRY_COUNT } RtEntry;

typedef struct { /* what the arena holds in the fullest step, by line of the model */
    const char *line, *values;
    size_t bytes;
} RtAlive;

typedef struct {
    const char *name;      /* "chargpt" */
    const char *source;    /* "chargpt.model" */
    uint32_t source_crc;   /* of its text; program hash of checkpoints */
    RtType real;           /* of parameters, gradients, optimizer state: RT_F32 or RT_F64 */
    RtType compute;        /* RT_BF16, RT_F16: products read a 16-bit copy; else no copy */
    const char *recompute; /* what is computed again to save memory, in a sentence, or NULL */
    double blocks;         /* compiled with --recompute=blocks, about this part of the arena */
    const RtDim *dims;
    int n_dims;
    const RtParam *params;
    int n_params;
    ptrdiff_t n_elems;  /* of the flat parameter buffer */
    ptrdiff_t n_halves; /* the last so many have no fp32 master: p16 alone holds them, p does not */
    const RtGroup *groups;
    int n_groups;
    const RtInput *inputs;
    int n_inputs;
    const RtOutput *outputs;
    int n_outputs;
    const RtSlot *slots;
    int n_slots;
    const RtMetric *metrics;
    int n_metrics;
    const RtObjective *objectives;
    int n_objectives;
    const RtStepRow *steps; /* of an update, by number */
    int n_steps;
    RtTrain train;

    /* dims: values in the order of .dims */
    const char *(*check_dims)(const ptrdiff_t *dims); /* NULL, or the constraint that fails */
    /* Sizes of an input and an output; the range of a map; the bytes an entry works in. */
    void (*input_shape)(const ptrdiff_t *dims, int input, ptrdiff_t *shape);
    void (*output_shape)(const ptrdiff_t *dims, int output, ptrdiff_t *shape);
    void (*map_range)(const ptrdiff_t *dims, int map, ptrdiff_t *lo, ptrdiff_t *hi);
    size_t (*arena_bytes)(const ptrdiff_t *dims, RtEntry entry);
    /* What its products and attention work in; NULL: it has none. */
    void (*rooms)(const ptrdiff_t *dims, RtEntry entry, RtRooms *rooms);
    void (*alive)(const ptrdiff_t *dims, RtAlive *row); /* .n_alive rows of an update; or NULL */
    int n_alive, fullest; /* number of the step in which the arena holds the most; or 0 */
    void (*step)(RtRun *run, RtStep *s);     /* one update; NULL without a loss */
    void (*evaluate)(RtRun *run, RtStep *s); /* adds sums and counts of one batch */
    void (*forward)(RtRun *run, RtStep *s);  /* fills run->outputs; or NULL */
    void (*metric_values)(const double *mean, double *value); /* from means of the slots */
    /* Of a GPU: a kernel of the file, that which keeps the longest row in shared memory if one
       does; the bytes of that row, and its line. NULL and 0 on a CPU. */
    const void *code;
    size_t row_bytes;
    const char *row_where;
} RtModel;

/* ---- what a step reads and writes ----------------------------------------------------------- */

struct RtStep {
    double sum[RT_MAX_SLOTS];   /* of the slots, over the update */
    double count[RT_MAX_SLOTS]; /* over the whole global batch, before backward */
    double seed[RT_MAX_SLOTS];  /* weight / count * scale; 0 where the count is 0 */
    RtKey key;                  /* of the generator: run seed and step */
    int64_t sample;             /* index in the update of the micro-step's first */
    bool add;                   /* gradients: false = the first write replaces */
    bool finite;                /* all gradients of all ranks are finite, and on a GPU not held */
    bool held;                  /* of a GPU: the update is not to be applied, finite or not */
    double norm;                /* global norm of the gradient, without the scale */
    double limited;             /* the same behind clipping by value */
    double factor;              /* clip; the update multiplies gradients with factor / scale */
    double lr;                  /* of this update */
    int64_t applied;            /* updates applied before this one */
    double scale;               /* of loss and gradients, for fp16; 0 reads as 1, none */
    RtBuckets *buckets;         /* NULL, or what sums gradients over ranks: the last micro-step */
    RtCheck *check;             /* NULL, or what looks at each value (--replay, --trace) */
    RtStep *device;             /* its twin in the memory of a GPU, which kernels read and write;
                                   there add, check and this are not used. NULL on a CPU */
};

struct RtRun { /* the part that emitted code sees */
    const RtModel *model;
    void *p, *d_p;   /* flat parameters and gradients, real type */
    void *p16;       /* p rounded to the compute type, same places; NULL: the model has none. With
                        n_halves: only those, and they are what is trained */
    void *arena;     /* where values of a micro-step or batch live */
    int micro_steps; /* of this update */
    ptrdiff_t dims[RT_MAX_DIMS];     /* of the current micro-step or batch */
    const void *inputs[RT_MAX_DIMS]; /* of the current micro-step or batch */
    void *outputs[RT_MAX_DIMS];      /* filled by forward */
    struct RtState *state;           /* core/train.c's own: options, data, optimizer */
    RtStream *stream; /* of a GPU; NULL on a CPU. There p to outputs are its memory */
};

void rt_begin_step(RtRun *run, RtStep *s);             /* sums and counts 0, key, rate */
void rt_begin_micro(RtRun *run, RtStep *s, int micro); /* dims, inputs, sample */
void rt_seed_losses(RtRun *run,
                    RtStep *s); /* counts over all ranks; weight / count * scale, or 0 */
void rt_reduce_gradients(RtRun *run, RtStep *s); /* sum over ranks */
void rt_finite_and_norm(RtRun *run, RtStep *s);  /* finite? global norm, unscaled */
void rt_clip_value(RtRun *run, RtStep *s);       /* elements to -clip_value..clip_value */
void rt_clip(RtRun *run, RtStep *s);             /* factor = min(1, clip / norm) */
/* The average of the weights after t applied updates is e = d e + (1 - d) p, with this d: it begins
   as a copy of the initial weights, which are soon forgotten as d grows. */
RT_INLINE double rt_ema_decay(double ema, int64_t t)
{
    const double young = (double)(1 + t) / (double)(10 + t);
    return ema < young ? ema : young;
}

/* Updates a piece of the parameters: all that it reads and writes is here. */
typedef struct {
    void *p;                    /* n parameters, real type; where they are kept in 16 bits alone:
                                   widened for the update, and rounded at random behind it */
    void *copy;                 /* their copy in 16 bits; NULL: the model has none */
    void *state[RT_MAX_STATES]; /* n elements of each state of the optimizer */
    const void *d_p;            /* their gradients, still to be multiplied with: */
    double factor;              /* what clipping leaves, divided by the loss scale */
    double lr, decay;           /* rate and weight decay of this piece */
    double t;                   /* number of this update, from 1; skipped ones do not count */
    const RtHyper *hyper;       /* the optimizer's numbers, in the order of RtTrain.hyper */
    ptrdiff_t n;
} RtUpdate;
/* Each: nothing unless s->finite. */
#if defined(RT_CUDA)
typedef struct RtUpdates RtUpdates; /* cuda/rt_update.h */
void rt_update(RtRun *run, RtStep *s, void (*all)(const RtUpdates *u, RtStream *stream));
#else
void rt_update(RtRun *run, RtStep *s, void (*piece)(const RtUpdate *u)); /* piece by piece */
#endif
void rt_update_lamb(RtRun *run, RtStep *s);
void rt_update_adafactor(RtRun *run, RtStep *s);
void rt_update_muon(RtRun *run, RtStep *s);
void rt_end_step(RtRun *run, RtStep *s); /* counters; the next loss scale */

/* ---- cpu: products and attention ------------------------------------------------------------ */

/* c[m,n] (+)= a[m,k] @ b[k,n] (+ bias[n]) for each of batch[0]*batch[1] problems. ta: a is stored
   [k,m]; tb: b is stored [n,k]. lda.. are row strides of the stored matrices, 0 = dense. Error: as
   that of any order of the sum, below k u times the sum of |a b|, u = 2^-24 (fp64: 2^-53). */
typedef struct {
    ptrdiff_t m, n, k;
    bool ta, tb, add;
    ptrdiff_t lda, ldb, ldc;
    ptrdiff_t batch[2];                        /* 0 = 1 */
    ptrdiff_t step_a[2], step_b[2], step_c[2]; /* elements per batch index */
    const void *bias;                          /* or NULL; not with add */
} RtMatmul;

#if !defined(RT_CUDA) /* there with a stream: rt_cuda.h */
void rt_matmul_f32(float *c, const float *a, const float *b, RtMatmul p);
void rt_matmul_f64(double *c, const double *a, const double *b, RtMatmul p);

/* 16-bit operands, sums in fp32, bias fp32: c rounded once at the end (no add), or c in fp32. */
void rt_matmul_bf16_bf16(rt_bf16 *c, const rt_bf16 *a, const rt_bf16 *b, RtMatmul p);
void rt_matmul_bf16_f32(float *c, const rt_bf16 *a, const rt_bf16 *b, RtMatmul p);
void rt_matmul_f16_f16(rt_f16 *c, const rt_f16 *a, const rt_f16 *b, RtMatmul p);
void rt_matmul_f16_f32(float *c, const rt_f16 *a, const rt_f16 *b, RtMatmul p);
#endif

/* y[b,h,t,:] = softmax over s of (scale q[b,h,t,:] . k[b,h,s,:]) @ v[b,h,s,:]; causal: s <= t+S-T.
   With a group, heads group*i .. group*i + group - 1 of q and y share head i of k and v, which have
   H/group heads; d_k and d_v are sums over them. lse[b,h,t], dense: the logarithm of that softmax's
   denominator. A query without keys has y = 0 and lse = 0. Error, as tested with values near 1:
   5e-5 (1 + |y|), in fp64 1e-12 (1 + |y|). */
typedef struct { /* elements from one b, h, t to the next; the last axis is dense */
    ptrdiff_t b, h, t;
} RtHeads;
typedef struct {
    ptrdiff_t B, H, T, S, D, E; /* batch, heads, queries, keys, size of q and k, size of v and y */
    ptrdiff_t group;            /* heads of q that share one of k and v; divides H. 0 = 1 */
    double scale;
    bool causal;
    RtHeads q, k, v, y; /* gradients have steps of their own: */
    RtHeads d_q, d_k, d_v, d_y;
} RtAttention;

#if !defined(RT_CUDA)
void rt_attention_f32(float *y, float *lse, const float *q, const float *k, const float *v,
                      RtAttention a);
void rt_attention_f64(double *y, double *lse, const double *q, const double *k, const double *v,
                      RtAttention a);
/* d_q, d_k, d_v = the gradients where y has d_y; y and lse are those of the forward call. They are
   written, not added to. The same errors. */
void rt_attention_grad_f32(float *d_q, float *d_k, float *d_v, const float *q, const float *k,
                           const float *v, const float *y, const float *lse, const float *d_y,
                           RtAttention a);
void rt_attention_grad_f64(double *d_q, double *d_k, double *d_v, const double *q, const double *k,
                           const double *v, const double *y, const double *lse, const double *d_y,
                           RtAttention a);

/* The same in 16 bit: fp32 inside, results rounded once. */
void rt_attention_bf16(rt_bf16 *y, float *lse, const rt_bf16 *q, const rt_bf16 *k, const rt_bf16 *v,
                       RtAttention a);
void rt_attention_grad_bf16(rt_bf16 *d_q, rt_bf16 *d_k, rt_bf16 *d_v, const rt_bf16 *q,
                            const rt_bf16 *k, const rt_bf16 *v, const rt_bf16 *y, const float *lse,
                            const rt_bf16 *d_y, RtAttention a);
void rt_attention_f16(rt_f16 *y, float *lse, const rt_f16 *q, const rt_f16 *k, const rt_f16 *v,
                      RtAttention a);
void rt_attention_grad_f16(rt_f16 *d_q, rt_f16 *d_k, rt_f16 *d_v, const rt_f16 *q, const rt_f16 *k,
                           const rt_f16 *v, const rt_f16 *y, const float *lse, const rt_f16 *d_y,
                           RtAttention a);
#endif

/* What products and attention work in besides their operands, asked for before a step: the most of
   all calls, by kind of room. */
struct RtRooms {
    size_t own[2], team[2]; /* of the thread that calls; of every thread */
    size_t device;          /* of a GPU, and how many products were noted to be planned there: */
    int noted;              /* at 0 a new list begins */
};
/* in, out: types of the operands and of c; .add: c may be added to; .bias: not NULL if there is
   one. A GPU plans products and attention by their steps, too. */
void rt_room_matmul(RtRooms *rooms, RtType in, RtType out, RtMatmul p);
void rt_room_attention(RtRooms *rooms, RtType type, RtAttention a, bool backward);

/* ---- core ------------------------------------------------------------------------------------ */

/* Everything a program does, by its command line; the exit code. */
int rt_main(const RtModel *model, int argc, char **argv);

/* check.c: a look at the n elements that a step of the file wrote at `at`, and at a grid of them,
   { n, stride } per axis, as in RT_CHECK_GRID(s, 7, "d_qkv", d_qkv, { B*T, 3*C }, { C, 1 }); in
   which repetition of a loop of that depth the steps to come are. All three test one pointer and do
   nothing, unless a step is replayed or traced. */
#define RT_CHECK(s, step, name, at, n) RT_CHECK_GRID(s, step, name, at, { n, 1 })
#define RT_CHECK_GRID(s, step, name, at, ...)                                                      \
    do                                                                                             \
        if ((s)->check)                                                                            \
            RT_CHECK_VALUES((s)->check, step, name, at, { __VA_ARGS__ });                          \
    while (0)
#if defined(__cplusplus)
#define RT_CHECK_VALUES(check, step, name, at, ...)                                                \
    rt_check_grid(check, step, name, rt_type_of(at), at, RtGrid{ __VA_ARGS__ })
#else
#define RT_TYPE_AT(at) _Generic(*(at), float : RT_F32, double : RT_F64, rt_bf16 : RT_BF16)
#define RT_CHECK_VALUES(check, step, name, at, ...)                                                \
    rt_check_values(check, step, name, RT_TYPE_AT(at), at, &(RtGrid){ __VA_ARGS__ })
#endif
#define RT_REPETITION(s, depth, i)                                                                 \
    do                                                                                             \
        if ((s)->check)                                                                            \
            rt_check_repetition((s)->check, depth, i);                                             \
    while (0)

/* comm/buckets.c: gradients of RtParam.ready == step are complete, in a loop (i >= 0) those of
   repetition i: their sum over ranks may begin. */
#define RT_READY(s, step, i)                                                                       \
    do                                                                                             \
        if ((s)->buckets)                                                                          \
            rt_ready((s)->buckets, step, i);                                                       \
    while (0)
void rt_ready(RtBuckets *buckets, int step, ptrdiff_t i);

typedef struct {
    struct {
        ptrdiff_t n, step; /* elements; step 0: no such axis */
    } axis[RT_MAX_RANK];
} RtGrid;
/* type: RT_BF16 stands for both types of 16 bits. */
void rt_check_values(RtCheck *check, int step, const char *name, RtType type, const void *at,
                     const RtGrid *g);
void rt_check_repetition(RtCheck *check, int depth, ptrdiff_t i);

#if defined(__cplusplus)
}

static inline RtType rt_type_of(const float *) { return RT_F32; }
static inline RtType rt_type_of(const double *) { return RT_F64; }
static inline RtType rt_type_of(const rt_bf16 *) { return RT_BF16; }
static inline void rt_check_grid(RtCheck *check, int step, const char *name, RtType type,
                                 const void *at, const RtGrid &grid)
{
    rt_check_values(check, step, name, type, at, &grid);
}
#endif

#endif
