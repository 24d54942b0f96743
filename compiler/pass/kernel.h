/* kernel.h -- kernel IR: what fuse makes, order and plan complete, and emit prints.
 *
 * No threads and no target here: an emitter maps a kernel's index space to loops and omp, or to
 * blocks and warps. A Routine is one graph turned into steps: kernels applied to buffers, and loops
 * over steps. Kernels are shared by all routines of a program (equal kernels are one).
 */
#ifndef GRADCC_KERNEL_H
#define GRADCC_KERNEL_H

#include "ir/program.h"

enum { AXES_MAX = 8, DEPTH_MAX = 4 };
enum { PHASE_MAX = 16 }; /* what a phase of a fused kernel may reduce, and may store */

/* ---- buffers -------------------------------------------------------------------------------- */

typedef enum {
    BUF_ARENA,   /* placed by plan */
    BUF_PARAM,   /* index: parameter; read only */
    BUF_PARAM16, /* index: parameter, in its 16-bit copy; read only */
    BUF_GRAD,    /* index: parameter whose gradient it is */
    BUF_INPUT,   /* index: program input */
    BUF_OUTPUT,  /* index: program output */
    BUF_SUM,     /* index: mean slot; the double s->sum[index] */
    BUF_COUNT,   /* index: mean slot; the double s->count[index] */
} BufKind;

typedef struct Buffer Buffer;
struct Buffer {
    int id; /* dense within its routine */
    BufKind kind;
    int index;        /* see BufKind */
    const char *name; /* unique in its routine: "x", "d_x", "h_qkv" */
    DType dtype;      /* of its elements */
    const Type *type; /* dense row-major; stacks: trip count in front */
    const Dim *row;   /* elements of its last axis that are values, where it has more; or NULL */
    const Node *node; /* whose value it holds */
    /* order.c; positions count steps of the routine in execution order, a loop's body once */
    int first, last; /* live from start of first to end of last */
    /* plan.c, ARENA only */
    Buffer *over;          /* shares the place of this buffer, or NULL */
    VEC(Buffer *) below;   /* offset = max of their ends; 0 if none */
    int64_t offset, bytes; /* at the training dims */
    int line;              /* in the memory map */
    Buffer *twin;          /* plan_share.c: whose place in another routine it takes, or NULL */
    int partials;          /* rows of partial sums: RT_CHUNKS times this; 0: an ordinary buffer */
};

/* ---- kernels -------------------------------------------------------------------------------- */

/* Element of an argument at kernel indices i: offset + sum stride[a] * i[a] + index * index_stride.
   With a guard (a bool value) a load reads only where it is true and is 0 elsewhere.
   An element that the kernel stores in one phase may be loaded in a later one, by the same access:
   such a load has an argument that is written, and reads what was stored. */
typedef struct {
    int arg;                     /* number of the kernel's argument */
    const Dim *offset;           /* elements */
    const Dim *stride[AXES_MAX]; /* per axis; NULL = does not depend on it */
    int index;                   /* value number of an i32 row index, -1 = none */
    const Dim *index_stride;     /* elements of a row */
    int guard;                   /* value number, -1 = none */
} Access;

typedef enum {
    VAL_LOAD,  /* access */
    VAL_CONST, /* number */
    VAL_DIM,   /* value of dim */
    VAL_AXIS,  /* index along axis number `axis`, i32 */
    VAL_ITER,  /* iteration of enclosing loop number `axis` (0 = outermost), i32 */
    VAL_SEED,  /* s->seed[slot] */
    VAL_POINT, /* pointwise op over in[] */
    VAL_CAST,  /* in[0] as dtype */
    VAL_DRAW,  /* op UNIFORM or NORMAL: stream, iterations in[], sample and element */
    /* op SUM AMAX AMIN ARGMAX ARGMIN of in[0] over the row axis: a LEVEL_ROW value of the next
       phase */
    VAL_REDUCE,
} ValKind;

typedef enum {
    LEVEL_ONCE, /* the same for the whole kernel (seeds, dims, constants) */
    LEVEL_ROW,  /* one per outer index */
    LEVEL_ELEM, /* one per element of the row; without a row, one per index of the axes */
} Level;

typedef struct {
    ValKind kind;
    Op op; /* POINT, DRAW, REDUCE */
    DType dtype;
    Level level; /* how often it is computed */
    /* first in which it can be computed: 0.. ; an ELEM value is computed again in each later
       phase */
    int phase;
    int in[4], n_in;    /* value numbers; smaller than its own */
    double number;      /* CONST */
    const Dim *dim;     /* DIM */
    int axis, slot;     /* AXIS, ITER; SEED */
    Access access;      /* LOAD */
    const char *stream; /* DRAW */
    Access sample;      /* DRAW: arg -1; gives the local sample index ... */
    Access element;     /* ... and the element within the sample */
    const char *name;   /* hint, or NULL */
    const Node *node;   /* what it computes */
} Value;

typedef enum {
    ADD_NEVER,      /* replaces */
    ADD_ALWAYS,     /* adds */
    ADD_FLAG,       /* gradient: adds if s->add (not the first micro-step) */
    ADD_LATER,      /* adds in all but the first executed iteration of the innermost loop */
    ADD_FLAG_LATER, /* adds if s->add, or in all but the first iteration */
} AddKind;

typedef enum {
    EFFECT_STORE,  /* store value (ELEM or ROW level) through access */
    EFFECT_COLUMN, /* sum of an ELEM value over the outer axes, stored per row element */
    EFFECT_TOTAL,  /* sum of an ELEM or ROW value over the whole space (double), one element */
} EffectKind;

typedef struct {
    EffectKind kind;
    int value;     /* its number */
    int phase;     /* in which it happens */
    Access access; /* STORE: all axes; COLUMN: the row axis only */
    AddKind add;   /* to what is there */
} Effect;

typedef enum {
    KERNEL_MAP,
    KERNEL_MATMUL,
    KERNEL_ATTENTION,
    KERNEL_ATTENTION_GRAD,
    KERNEL_SCATTER
} KernelKind;

typedef struct {
    const char *name; /* "x" */
    DType dtype;
    bool written;   /* the kernel stores there */
    bool read;      /* what it held before the kernel is read */
    bool exclusive; /* restrict holds; plan may clear it */
} KernelArg;

/* KERNEL_MATMUL: args c, a, b (, bias): see RtMatmul in the runtime for the meaning. lda, ldb and
   ldc are always set, also where the matrix is dense. */
typedef struct {
    const Dim *m, *n, *k, *lda, *ldb, *ldc;
    bool ta, tb, bias;
    int n_batch; /* 0..2 */
    const Dim *batch[2], *step_a[2], *step_b[2], *step_c[2];
    AddKind add; /* to what c holds */
} Matmul;

/* KERNEL_ATTENTION: args y, lse, q, k, v. _GRAD: d_q, d_k, d_v, q, k, v, y, lse, d_y */
typedef struct { /* elements from one b, h, t to the next */
    const Dim *b, *h, *t;
} HeadSteps;
typedef struct {
    const Dim *B, *H, *T, *S, *D, *E; /* as in RtAttention of the runtime */
    const Dim *group;                 /* the same; NULL: each head of q has its own k and v */
    double scale;                     /* 0 = 1/sqrt(D) */
    bool causal;
    HeadSteps q, k, v, y, d_q, d_k, d_v, d_y;
} Attention;

/* KERNEL_SCATTER: args out [n_rows, width], ids, rows [.., width]: out[ids[i], :] += rows[i, :] in
   the order of i; where it does not add, out is zero first */
typedef struct {
    const Dim *n_ids, *n_rows, *width, *row_step; /* row_step: elements from row to row of `rows` */
    AddKind add;
} Scatter;

typedef struct Kernel Kernel;
struct Kernel {
    int number;       /* in the file, by first use: k3 */
    const char *name; /* "k3_x" without the number: "x" */
    KernelKind kind;
    int n_axes;                      /* MAP: outer axes, then the row axis */
    const Dim *axis[AXES_MAX];       /* their sizes */
    const char *axis_name[AXES_MAX]; /* "b", "t", "c": loops are ib, it, ic; NULL: i */
    bool has_row;                    /* the last axis is the row; else all are outer */
    int n_phases;                    /* passes over a row */
    VEC(Value) values;
    VEC(Effect) effects;
    VEC(KernelArg) args;
    Matmul matmul;       /* of that kind, and so on */
    Attention attention; /* its gradient too */
    Scatter scatter;
    /* "x[B,T,C] = wte[tokens] + wpe[0..T]"; several lines where one is short */
    const char *formula;
    const char *brief; /* its main equation without shapes, or what it writes */
    const char *what;  /* "gather+add", "gradient of k3, add" */
    Span span;         /* of its main value */
    VEC(Span) lines;   /* of the values it stores, each line of the model once */
    bool backward;     /* of the backward pass */
    const Kernel
        *like; /* it is a copy of that one, for operands with longer rows or dense; or NULL */
};

/* ---- steps ---------------------------------------------------------------------------------- */

typedef struct {
    Buffer *buffer;    /* what the kernel works on */
    const Dim *offset; /* elements from its start */
    /* elements per iteration of enclosing loop d, 0 the outermost; NULL = 0 */
    const Dim *loop_stride[DEPTH_MAX];
} Operand;

typedef struct Step Step;
typedef VEC(Step *) Steps;

/* What a library may do with the result of a product in the product's own kernel; the program
   decides when it starts. A target that has such a library finds them behind fuse. */
typedef enum {
    EPILOGUE_GELU,      /* to = gelu(c), the tanh form; c is written as well, unless it is `to` */
    EPILOGUE_GELU_GRAD, /* to = c * gelu'(x); c is not written */
} EpilogueKind;
typedef struct {
    EpilogueKind kind;
    Operand to, x; /* of rows as c has */
} Epilogue;

struct Step {
    Kernel *kernel;    /* NULL: a loop */
    Operand *operands; /* one per kernel argument */
    Loop *loop;        /* trip, reverse, names */
    Steps body;        /* of the loop */
    int depth;         /* enclosing loops */
    int number;        /* as printed; backward goes on from forward */
    int position;      /* order.c: in execution order */
    int undoes;        /* backward: number of the forward step, 0 = none */
    VEC(int) undone;   /* backward: numbers of all forward steps of which it undoes a part */
    const Node *node;  /* the main value it computes */
    Step *twin;        /* plan_share.c: a loop's equal in another routine, or NULL */
    Span span;         /* of that value */
    bool backward;     /* of the backward pass */
    bool mixed;        /* ... in a loop that does forward values too */
    /* A product with an epilogue; the step that is left out where that was done, and behind it, if
       it does more, the rest of it, done then and with its number: both have the product. */
    Epilogue *epilogue;
    Step *product;
    bool rest;
};

typedef struct Routine Routine;
struct Routine {
    Graph *graph;     /* that it computes */
    const char *name; /* "train", "eval", "count", "output" */
    VEC(Buffer *) buffers;
    Steps steps;                     /* all, in order; backward ones last */
    int64_t arena_bytes, live_bytes; /* at the training dims: planned, and the bound */
    int peak_step;                   /* number of the step at which the most is live */
    bool reuse;                      /* places are shared, as plan.c does unless it is skipped */
    Routine *shares;                 /* plan_share.c: whose plan it uses, or NULL */
};

typedef struct {
    Program *program;
    int64_t align; /* of the target: sizes of buffers in the arena are rounded up to it */
    VEC(Kernel *) kernels;
    Routine *train, *eval, *count, *output; /* NULL where the program has none */
} KernelProgram;

/* ---- passes ---------------------------------------------------------------------------------- */

/* fuse.c: graph -> steps over buffers. with fuse = false every op is a kernel of its own. */
Routine *pass_fuse(KernelProgram *kp, Graph *g, const char *name, bool fuse);
/* order.c: numbers and positions; first and last use of each buffer; the schedule. */
void pass_order(KernelProgram *kp, Routine *r);
/* plan.c: offsets at the training dims, formulas for all dims. reuse = false: no sharing. */
void pass_plan(KernelProgram *kp, Routine *r, bool reuse);
int64_t plan_round(const KernelProgram *kp, int64_t bytes); /* up to kp->align */
bool buffer_is_placed(const Buffer *b);                     /* does it lie in the arena? */
Buffer *buffer_root(Buffer *b); /* the first of those that share its place */
/* plan.c: places r anew, with the buffers of `low` (by id) below the others as far as that costs no
   memory; low_live: the most bytes of these that are alive at once. false: it would cost some, and
   r is as before. */
bool plan_lower(KernelProgram *kp, Routine *r, const bool *low, int64_t low_live);
/* plan_share.c: the outputs take the places of an evaluation, if they are some of its steps. */
void plan_share(KernelProgram *kp);
/* effort.c: what one run of r takes at the training dims: floating-point operations, and time in
   those of a large product. */
typedef struct {
    double flops, time;
} Effort;
Effort routine_effort(const KernelProgram *kp, const Routine *r);
/* order.c: the step of that number, in loops too; NULL if there is none. */
const Step *steps_find(const Steps *steps, int number);
/* judge.c: NULL, or why the plan is wrong: two live buffers overlap, a read before any write. */
const char *plan_judge(KernelProgram *kp, Routine *r);
Kernel *kernel_copy(Arena *a, const Kernel *k); /* with its values, effects and arguments */
/* kernel.c: the kernel of the program that equals k, or a copy of k as a new one */
Kernel *kernel_intern(KernelProgram *kp, const Kernel *k);
/* kernel.c: text of --dump-after and of --emit=plan */
void kernel_print(Text *t, const KernelProgram *kp, const Routine *r);
void plan_print(Text *t, const KernelProgram *kp, const Routine *r);

#endif
