/* fuse.h -- what the files of the fuse pass share. For fuse*.c only.
 *
 * A Scope is one graph on its way to steps: the whole graph, or the body of a loop. Its values are
 * read from views of buffers, or computed again where they are used. Units (kernels, calls, loops)
 * make values; roots are the values that a kernel is built for.
 */
#ifndef GRADCC_FUSE_H
#define GRADCC_FUSE_H

#include "op/op.h"
#include "pass/kernel.h"

enum { FACTORS_MAX = 12 }; /* most dims of Coords */

typedef struct Fuser Fuser; /* what all scopes share */
typedef struct Scope Scope; /* one graph on its way to steps */
typedef struct Unit Unit;   /* a kernel, a call or a loop to be: makes values */
typedef struct Root Root;   /* a value that a kernel is built for */

/* ---- where a value lies ---------------------------------------------------------------------- */

/* Element i of a value: base + sum loop[d] * iteration d, then offset + sum stride[k] * i[k].
   NULL stands for 0. */
typedef struct {
    Buffer *buffer;
    const Dim *base, *loop[DEPTH_MAX]; /* go into the operand */
    const Dim *offset;                 /* goes into the access */
    int rank;
    const Dim *dim[RANK_MAX], *stride[RANK_MAX]; /* of the value's axes */
} View;

typedef enum {
    HOW_REPLACE,    /* store */
    HOW_ADD,        /* add to what is there: sums and counts of the step */
    HOW_GRAD,       /* gradient: the first contribution adds by the step's flag */
    HOW_GRAD_LATER, /* the same, summed over the iterations of a loop */
    HOW_LATER,      /* a sum over the iterations of a loop */
} How;

typedef struct {
    View view;     /* where it is written */
    How how;       /* what happens to what is there */
    bool *started; /* a contribution was written before: add */
    bool lazy;     /* stored only where somebody reads it */
} Dest;

/* ---- indexes --------------------------------------------------------------------------------- */

typedef struct {
    const Dim *offset, *coef[AXES_MAX];
} Form; /* offset + sum coef[a] * axis a */

/* The row-major position of an element, as indexes along dims whose product is its size: not
   always the dims of its type, so that a reshape changes nothing. */
typedef struct {
    int rank;                    /* of the dims below */
    const Dim *dim[FACTORS_MAX]; /* outermost first */
    Form at[FACTORS_MAX];        /* index along each of them */
} Coords;

/* ---- units ----------------------------------------------------------------------------------- */

typedef enum {
    ROOT_POINT,  /* element by element */
    ROOT_ROW,    /* a reduction over the row */
    ROOT_COLUMN, /* a sum over leading axes */
    ROOT_TOTAL,  /* a sum over all axes */
    ROOT_COPY,   /* the value again, from where it lies */
} RootKind;

typedef VEC(Dest) Dests;
typedef VEC(Operand) Operands;

struct Root {
    Node *node; /* the value */
    RootKind kind;
    int token;              /* stands for it in sets */
    const Dim *size;        /* elements of the value */
    const Dim *outer, *row; /* of the space it needs; row NULL = any */
    Dests dests;            /* where it is stored, each place */
    Unit *unit;             /* makes it */
};

typedef struct { /* of tokens: bit i of the words stands for token i */
    int n;       /* words */
    uint64_t *word;
} Set;

typedef enum { UNIT_MAP, UNIT_CALL, UNIT_LOOP } UnitKind;

struct Unit {
    UnitKind kind;
    int id;                       /* place in Scope.units */
    bool dead, done;              /* merged into another; became a step */
    bool backward;                /* its step is of the backward pass */
    int key;                      /* order in the model: its last node */
    VEC(Root *) roots;            /* MAP, by node id */
    Node *node;                   /* CALL, LOOP; MAP, described: what it is for */
    int token;                    /* of what a CALL or LOOP makes; MAP: -1 */
    int part;                     /* of a sum of products: which one is being done */
    Set makes, reads, overwrites; /* tokens */
    Set holds;                    /* LOOP: what it reads in every iteration */
    Kernel *kernel;               /* MAP: built */
    Operands operands;            /* of the kernel's arguments */
    Dest **target;                /* of each effect */
    Root **owner;                 /* of each effect: whose value it stores */
};

/* ---- scopes ---------------------------------------------------------------------------------- */

/* How a loop's carried value is kept. */
typedef enum {
    CARRY_PLACE, /* one buffer, overwritten */
    CARRY_SLOTS, /* trip + 1 slots: every state is kept */
    CARRY_SUM,   /* a sum of what the iterations contribute: the body writes there */
} CarryKind;

typedef struct {
    CarryKind kind;
    View arg, next;    /* in the body: loop[] of its depth set */
    View first, last;  /* outside: initial and final value */
    bool temp;         /* the next value is copied at the end */
    How how;           /* SUM: as in Dest */
    bool *started;     /* SUM: as in Dest */
    VEC(Node *) terms; /* SUM: what the body adds, in order */
} Carry;

typedef struct {       /* of a LOOP node */
    Carry *carry;      /* each carried value */
    Dest *stack;       /* of each stacked result, outside */
    bool *stack_slot;  /* lies in the slots of a carry: nothing to do */
    Node **result;     /* who reads result k, NULL = nobody */
    VEC(Root *) start; /* copies of initial values */
} LoopPlan;

/* h = a @ b + c @ d + bias: the first product writes, the others add. */
typedef struct Products {
    VEC(Node *) at; /* the products, in the order they are done */
    Node *bias;     /* added by the first, or NULL */
} Products;

typedef struct {     /* what is known of a node */
    bool live;       /* a sink depends on it */
    bool free;       /* costs nothing to compute again: constants, indexes */
    bool root;       /* a kernel computes and stores it */
    bool need;       /* somebody reads it where it lies */
    bool own;        /* a needed view that no strides over its input show: it is copied */
    bool folded;     /* part of a sum of products */
    Products *sum;   /* of an addition that products do */
    int uses;        /* by nodes and sinks, views looked through */
    int readers;     /* by nodes that read it where it lies */
    int cost, loads; /* of what is computed in place */
    bool has_view;   /* view is set */
    View view;       /* where it can be read */
    Root *maker;     /* computes it, if it is a root */
    Unit *unit;      /* CALL, LOOP: makes it */
    Dests dests;     /* places it was given */
    /* copies that fill places in which views of it lie; CONCAT: copies of its parts */
    VEC(Root *) pieces;
    LoopPlan *loop;    /* LOOP */
    const char *hint;  /* name, or of the statement it belongs to */
    bool exact;        /* hint names this very value */
    const Type *shape; /* of the reshape that has the name, or NULL */
    int token;         /* of a leaf that lies somewhere, else -1 */
    Root *copier;      /* it is read where this root has copied it */
} Info;

struct Scope {
    Fuser *f;
    Graph *g;                 /* the whole graph, or the body */
    Scope *outer;             /* around the loop; NULL for the whole graph */
    Loop *loop;               /* whose body g is, or NULL */
    LoopPlan *plan;           /* of that loop */
    int depth;                /* enclosing loops */
    Node *node;               /* the LOOP, in outer's graph */
    Info *at;                 /* by node id */
    int n_tokens, max_tokens; /* given out; room in a Set */
    Set work;                 /* of group_writes */
    bool *seen;               /* of path_between: by unit */
    VEC(Unit *) units;
    VEC(Root *) roots;
    Steps *steps; /* made so far */
    /* what earlier tries have found out */
    bool *force; /* must be stored */
    bool *copy;  /* must be read through a dense copy */
    bool *temp;  /* carry of this body goes over a copy */
};

struct Fuser {
    KernelProgram *kp; /* gets the kernels */
    Program *p;
    Dims *ds;
    Context *cx;
    Arena *attempt; /* what is tried: forgotten with each new try */
    Routine *r;     /* being made */
    bool fuse;      /* false: each op is a kernel of its own */
    Map *names;     /* taken names of buffers */
    /* by their numbers in the program; NULL = not used yet */
    Map *narrow; /* nodes whose values are of 16 bits */
    Buffer **param, **param16, **grad, **input, **output, **sum, **count;
    bool **started;     /* per parameter: has a contribution */
    int *contributions; /* per parameter: SINK_GRAD of the whole graph */
    const Dim *one;     /* the dim 1 */
    int64_t *values;    /* of the symbols, at the training dims */
};

/* ---- fuse_access.c: dims with NULL for 0, views, forms, coords ------------------------------- */

const Dim *dim_plus(Fuser *f, const Dim *a, const Dim *b);
const Dim *dim_times(Fuser *f, const Dim *a, const Dim *b);
bool dim_equal(const Dim *a, const Dim *b);
bool dim_is_one(const Dim *d);
const Dim *dim_product(Fuser *f, int n, const Dim *const *dim); /* 1 for none */
int64_t size_in_training(Fuser *f, const Dim *d);               /* its value at those dims */

View view_dense(Fuser *f, Buffer *b, const Type *t); /* row-major, from the buffer's start */
/* The same elements as a value of type t. False: no strides describe it. */
bool view_reshape(Fuser *f, const View *v, const Type *t, View *out);
/* The view of n, a RESHAPE, TRANSPOSE, SLICE or BROADCAST, when its input lies in v. */
bool view_move(Fuser *f, const View *v, const Node *n, View *out);
/* The view of n's input, n a RESHAPE or TRANSPOSE, when n lies in v. */
bool view_move_back(Fuser *f, const View *v, const Node *n, View *out);
bool view_same_place(const View *a, const View *b); /* buffer and operand */

Form form_axis(Fuser *f, int axis);                      /* the index along one kernel axis */
Form form_add(Fuser *f, const Form *a, const Form *b);   /* a + b */
Form form_scale(Fuser *f, const Form *a, const Dim *by); /* a times by */
bool form_equal(const Form *a, const Form *b);
Form coords_linear(Fuser *f, const Coords *c); /* the row-major position as one number */

typedef struct { /* an axis that should be several; n 0 = none */
    int axis, n;
    const Dim *dim[RANK_MAX]; /* the n sizes, outermost first */
} Split;

/* c along the dims wanted. False: an index cannot be taken apart; *split says which axis would
   have to be split. size[a]: of kernel axis a. */
bool coords_along(Fuser *f, const Coords *c, int n, const Dim *const *want, const Dim *const *size,
                  Coords *out, Split *split);
/* The element of a view of the given dims at c, as an access. */
bool coords_access(Fuser *f, const Coords *c, const View *v, const Dim *const *size, Form *out,
                   Split *split);

/* ---- fuse_narrow.c: what lies in memory in 16 bits ------------------------------------------- */

bool node_is_narrowing(const Node *n); /* BF16, F16 */
bool node_is_handed(const Node *n);    /* ... of what a call stores rounded */
void narrow_find(Fuser *f, Graph *g);
bool narrow_is(const Fuser *f, const Node *n);
/* The type t of a value, or that with the 16-bit dtype, if n is of 16 bits: for its buffer. */
const Type *narrow_storage(const Fuser *f, const Node *n, const Type *t);

/* ---- fuse_roots.c: which values are stored --------------------------------------------------- */

Graph *roots_prepare(Fuser *f, Graph *g); /* splits reductions that no kernel can do */
void roots_choose(Scope *s);              /* sets root, need, uses ... of each Info */
bool node_is_view(const Node *n);         /* RESHAPE TRANSPOSE SLICE BROADCAST */
bool node_is_call(const Node *n);         /* MATMUL SCATTER ATTENTION ATTENTION_GRAD LOOP */
bool node_is_readable(const Scope *s, const Node *n); /* it lies somewhere, or a view does */
Scope *scope_of(Scope *s, const Node *n);             /* s or the one around it that has n */
/* The node behind an argument that is computed again in the body; else n. */
Node *node_resolve(Scope **s, Node *n);
RootKind root_kind(const Node *n); /* what kind of root n is, if it becomes one */

/* ---- fuse_place.c: where they are stored ----------------------------------------------------- */

void place_leaves(Scope *s); /* views of what lies somewhere already */
void place_values(Scope *s); /* all others, last node first, from users to makers */
void place_give(Scope *s, Node *n, const Dest *d); /* n goes to d */
/* n is copied to d; who reads `of` waits for that. NULL: it lies there already. */
Root *place_copy(Scope *s, Node *of, Node *n, const Dest *d);
/* A buffer of the arena for n. */
Buffer *buffer_new(Fuser *f, const char *name, const Type *t, const Node *n);
void buffer_use(Fuser *f, Buffer *b);          /* it has an id and a unique name from now on */
bool place_view(Scope *s, Node *n, View *out); /* where n can be read */
/* What one iteration of l, in `depth` other loops, has of a sliced input or a stacked result. */
View view_of_iteration(Fuser *f, const Loop *l, const View *stack, int depth);
Root *root_new(Scope *s, Node *n, RootKind kind); /* without a place */

/* ---- fuse_group.c: units, what they depend on, merging, order -------------------------------- */

void group_units(Scope *s); /* one unit per root and call */
bool group_check(Scope *s); /* false: a carry cannot be overwritten; again */
void group_merge(Scope *s); /* kernels into kernels, while that saves traffic */
Unit *group_next(Scope *s); /* the next one whose inputs are made; NULL */
bool set_has(const Set *a, int i);
bool sets_meet(const Set *a, const Set *b);          /* they share a token */
bool root_is_read(const Scope *s, const Root *r);    /* by another unit */
bool group_writes(Scope *s, const Unit *u, Node *n); /* u itself writes where n lies */

/* ---- fuse_map.c, fuse_value.c: the kernel of a unit ------------------------------------------ */

/* Why a kernel cannot be built, and what would help: storing a value, reading it through a dense
   copy, not overwriting carry `temp`. */
typedef struct {
    Node *force, *copy; /* NULL = neither */
    int temp;           /* -1 = none */
} MapFailure;

/* A node at a position, read under a guard (-1 = none): the kernel value that is this already. */
typedef struct {
    const Node *node;
    Form at; /* its linear position */
    int guard, value;
} Key;

/* A kernel that is being built. */
typedef struct {
    Scope *s;
    Fuser *f;
    Unit *u; /* whose kernel it is */
    Kernel *k;
    Operands operands;         /* of the kernel's arguments so far */
    VEC(Dest *) target;        /* per effect */
    VEC(Root *) owner;         /* per effect: whose value it stores */
    int n_outer;               /* axes before the row */
    const Dim *size[AXES_MAX]; /* outer axes, then the row */
    bool has_row;              /* false: one element per outer index */
    Coords row, elem;          /* one per outer index; one per element */
    VEC(Key) keys;             /* values that are there */
    int *value;                /* per root: its value, -1 = not yet */
    bool *busy;                /* per root: being built, to find what depends on itself */
    int *kept;                 /* per root: stored for a later phase, see Keep in fuse_map.c */
    Split split;               /* an axis that has to be split before the next try */
    MapFailure *why;           /* what else is in the way */
} MapBuild;

/* Builds u's kernel, operands and effects. False, and why: there is no such kernel. */
bool map_build(Scope *s, Unit *u, MapFailure *why);
void map_finish(Scope *s, Unit *u);                          /* adds, names; the step */
int map_argument(MapBuild *m, const View *v);                /* the kernel's argument for it */
bool map_root_coords(MapBuild *m, const Root *r, Coords *c); /* of the value itself */
int value_of_root(MapBuild *m, int i);                       /* -1: cannot be built */
/* n's element at c, where n lies in v. False: m->split and m->why say what helps. */
bool map_access(MapBuild *m, Node *n, const View *v, const Coords *c, Access *a);
void map_tidy(MapBuild *m); /* fuse_space.c: phases, axes, levels */

/* ---- steps ----------------------------------------------------------------------------------- */

/* Adds a step that applies k, or the equal kernel that is there already; returns that. */
Kernel *step_add(Scope *s, Kernel *k, Operand *operands, const Node *n, bool backward);
AddKind dest_add(Dest *d); /* how a kernel writes there; marks it as started */

/* ---- fuse_call.c, fuse_loop.c ---------------------------------------------------------------- */

void call_finish(Scope *s, Unit *u);              /* the step of a call, after copies it needs */
void loop_plan(Scope *s, Node *n);                /* places of carries and stacks */
void loop_place_result(Scope *s, int k, Node *n); /* result k of the body */
bool loop_use_temp(Scope *s, int k);              /* carry k goes over a copy; false: it does */
Node *loop_result(const Graph *body, int k);      /* the node that is result k */
void loop_finish(Scope *s, Unit *u);              /* its step, with those of the body */
void scope_run(Scope *s);                         /* fuse.c: from nodes to steps */
void copy_wide(Scope *s, Node *n, View *to);      /* the same in 32 bits, of a 16-bit value */
void copy_dense(Scope *s, Node *n, View *to);     /* a step that copies n; to: where it lies then */

/* ---- fuse_text.c: names, source lines, what was fused ---------------------------------------- */

void text_hints(Scope *s); /* hint, exact and shape of each Info */
const char *text_buffer_name(Scope *s, const Node *n);
const char *text_carry_name(Scope *s, const Node *loop, int k); /* of carry k */
const char *text_stack_name(Scope *s, const Node *loop, int j); /* of stacked result j */
/* Names, lines, formula and ops of a kernel that is built. */
void text_describe(Scope *s, Unit *u, Kernel *k, const Operand *operands);

/* ---- fuse_formula.c: equations --------------------------------------------------------------- */

int formula_main_effect(Scope *s, const Unit *u); /* whose equation says most */
void formula_write(Scope *s, Unit *u, Kernel *k, const Operand *operands); /* formula and brief */

#endif
