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

enum { FACTORS_MAX = 12 };

typedef struct Fuser Fuser;
typedef struct Scope Scope;
typedef struct Unit Unit;
typedef struct Root Root;

/* ---- where a value lies ---------------------------------------------------------------------- */

/* Element i of a value: base + sum loop[d] * iteration d, then offset + sum stride[k] * i[k].
   NULL stands for 0. */
typedef struct {
    Buffer *buffer;
    const Dim *base, *loop[DEPTH_MAX]; /* go into the operand */
    const Dim *offset;                 /* goes into the access */
    int rank;
    const Dim *dim[RANK_MAX], *stride[RANK_MAX];
} View;

typedef enum {
    HOW_REPLACE,    /* store */
    HOW_ADD,        /* add to what is there: sums and counts of the step */
    HOW_GRAD,       /* gradient: the first contribution adds by the step's flag */
    HOW_GRAD_LATER, /* the same, summed over the iterations of a loop */
    HOW_LATER,      /* a sum over the iterations of a loop */
} How;

typedef struct {
    View view;
    How how;
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
    int rank;
    const Dim *dim[FACTORS_MAX];
    Form at[FACTORS_MAX];
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
    Node *node;
    RootKind kind;
    int token;
    const Dim *size;        /* elements of the value */
    const Dim *outer, *row; /* of the space it needs; row NULL = any */
    Dests dests;
    Unit *unit;
};

typedef struct {
    int n;
    uint64_t *word;
} Set;

typedef enum { UNIT_MAP, UNIT_CALL, UNIT_LOOP } UnitKind;

struct Unit {
    UnitKind kind;
    int id;
    bool dead, done, backward;
    int key;           /* order in the model: its last node */
    VEC(Root *) roots; /* MAP, by node id */
    Node *node;        /* CALL, LOOP; MAP, described: what it is for */
    int token;
    int part;                     /* of a sum of products: which one is being done */
    Set makes, reads, overwrites; /* tokens */
    Set holds;                    /* LOOP: what it reads in every iteration */
    Kernel *kernel;               /* MAP: built */
    Operands operands;
    Dest **target; /* of each effect */
    Root **owner;  /* whose value it stores */
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
    View arg, next;   /* in the body: loop[] of its depth set */
    View first, last; /* outside: initial and final value */
    bool temp;        /* the next value is copied at the end */
    How how;          /* SUM */
    bool *started;
    VEC(Node *) terms; /* SUM: what the body adds, in order */
} Carry;

typedef struct { /* of a LOOP node */
    Carry *carry;
    Dest *stack;       /* of each stacked result, outside */
    bool *stack_slot;  /* lies in the slots of a carry: nothing to do */
    Node **result;     /* who reads result k, NULL = nobody */
    VEC(Root *) start; /* copies of initial values */
} LoopPlan;

/* h = a @ b + c @ d + bias: the first product writes, the others add. */
typedef struct Products {
    VEC(Node *) at;
    Node *bias;
} Products;

typedef struct {
    bool live, free, root, need, own;
    bool folded;     /* part of a sum of products */
    Products *sum;   /* of an addition that products do */
    int uses;        /* by nodes and sinks, views looked through */
    int readers;     /* by nodes that read it where it lies */
    int cost, loads; /* of what is computed in place */
    bool has_view;
    View view;
    Root *maker;
    Unit *unit; /* CALL, LOOP */
    Dests dests;
    VEC(Root *)
    pieces; /* copies that fill places in which views of it
                                                   lie; CONCAT: copies of its parts             */
    LoopPlan *loop;
    const char *hint;  /* name, or of the statement it belongs to */
    bool exact;        /* hint names this very value */
    const Type *shape; /* of the reshape that has the name, or NULL */
    int token;         /* of a leaf that lies somewhere, else -1 */
    Root *copier;      /* it is read where this root has copied it */
} Info;

struct Scope {
    Fuser *f;
    Graph *g;
    Scope *outer;
    Loop *loop;
    LoopPlan *plan;
    int depth;  /* enclosing loops */
    Node *node; /* the LOOP, in outer's graph */
    Info *at;   /* by node id */
    int n_tokens, max_tokens;
    Set work;   /* of group_writes */
    bool *seen; /* of path_between: by unit */
    VEC(Unit *) units;
    VEC(Root *) roots;
    Steps *steps;
    /* what earlier tries have found out */
    bool *force; /* must be stored */
    bool *copy;  /* must be read through a dense copy */
    bool *temp;  /* carry of this body goes over a copy */
};

struct Fuser {
    KernelProgram *kp;
    Program *p;
    Dims *ds;
    Context *cx;
    Arena *attempt; /* what is tried: forgotten with each new try */
    Routine *r;
    bool fuse;
    Map *names; /* taken names of buffers */
    Buffer **param, **grad, **input, **output, **sum, **count;
    bool **started;     /* per parameter: has a contribution */
    int *contributions; /* per parameter: SINK_GRAD of the whole graph */
    const Dim *one;
    int64_t *values; /* of the symbols, at the training dims */
};

/* ---- fuse_access.c: dims with NULL for 0, views, forms, coords ------------------------------- */

const Dim *dim_plus(Fuser *f, const Dim *a, const Dim *b);
const Dim *dim_times(Fuser *f, const Dim *a, const Dim *b);
bool dim_equal(const Dim *a, const Dim *b);
bool dim_is_one(const Dim *d);
const Dim *dim_product(Fuser *f, int n, const Dim *const *dim);
int64_t size_in_training(Fuser *f, const Dim *d);

View view_dense(Fuser *f, Buffer *b, const Type *t);
bool view_reshape(Fuser *f, const View *v, const Type *t, View *out);
/* The view of n, a RESHAPE, TRANSPOSE, SLICE or BROADCAST, when its input lies in v. */
bool view_move(Fuser *f, const View *v, const Node *n, View *out);
/* The view of n's input, n a RESHAPE or TRANSPOSE, when n lies in v. */
bool view_move_back(Fuser *f, const View *v, const Node *n, View *out);
bool view_same_place(const View *a, const View *b); /* buffer and operand */

Form form_axis(Fuser *f, int axis);
Form form_add(Fuser *f, const Form *a, const Form *b);
Form form_scale(Fuser *f, const Form *a, const Dim *by);
bool form_equal(const Form *a, const Form *b);
Form coords_linear(Fuser *f, const Coords *c);

typedef struct {
    int axis, n;
    const Dim *dim[RANK_MAX];
} Split;
/* an axis that should be several; n 0 = none   */

/* c along the dims wanted. False: an index cannot be taken apart; *split says which axis would
   have to be split. size[a]: of kernel axis a. */
bool coords_along(Fuser *f, const Coords *c, int n, const Dim *const *want, const Dim *const *size,
                  Coords *out, Split *split);
/* The element of a view of the given dims at c, as an access. */
bool coords_access(Fuser *f, const Coords *c, const View *v, const Dim *const *size, Form *out,
                   Split *split);

/* ---- fuse_roots.c: which values are stored --------------------------------------------------- */

Graph *roots_prepare(Fuser *f, Graph *g); /* splits reductions that no kernel can do */
void roots_choose(Scope *s);
bool node_is_view(const Node *n); /* RESHAPE TRANSPOSE SLICE BROADCAST */
bool node_is_call(const Node *n); /* MATMUL SCATTER ATTENTION ATTENTION_GRAD LOOP */
bool node_is_readable(const Scope *s, const Node *n); /* it lies somewhere, or a view does */
Scope *scope_of(Scope *s, const Node *n);
/* The node behind an argument that is computed again in the body; else n. */
Node *node_resolve(Scope **s, Node *n);
RootKind root_kind(const Node *n);

/* ---- fuse_place.c: where they are stored ----------------------------------------------------- */

void place_leaves(Scope *s); /* views of what lies somewhere already */
void place_values(Scope *s);
void place_give(Scope *s, Node *n, const Dest *d); /* n goes to d */
/* n is copied to d; who reads `of` waits for that. NULL: it lies there already. */
Root *place_copy(Scope *s, Node *of, Node *n, const Dest *d);
Buffer *buffer_new(Fuser *f, const char *name, const Type *t, const Node *n);
void buffer_use(Fuser *f, Buffer *b);          /* it has an id and a unique name from now on */
bool place_view(Scope *s, Node *n, View *out); /* where n can be read */
Root *root_new(Scope *s, Node *n, RootKind kind);

/* ---- fuse_group.c: units, what they depend on, merging, order -------------------------------- */

void group_units(Scope *s); /* one unit per root and call */
bool group_check(Scope *s); /* false: a carry cannot be overwritten; again */
void group_merge(Scope *s);
Unit *group_next(Scope *s); /* the next one whose inputs are made; NULL */
bool set_has(const Set *a, int i);
bool sets_meet(const Set *a, const Set *b);
bool root_is_read(const Scope *s, const Root *r);    /* by another unit */
bool group_writes(Scope *s, const Unit *u, Node *n); /* u itself writes where n lies */

/* ---- fuse_map.c, fuse_value.c: the kernel of a unit ------------------------------------------ */

/* Why a kernel cannot be built, and what would help: storing a value, reading it through a dense
   copy, not overwriting carry `temp`. */
typedef struct {
    Node *force, *copy;
    int temp;
} MapFailure;

typedef struct {
    const Node *node;
    Form at;
    int guard, value;
} Key;

/* A kernel that is being built. */
typedef struct {
    Scope *s;
    Fuser *f;
    Unit *u;
    Kernel *k;
    Operands operands;
    VEC(Dest *) target; /* per effect */
    VEC(Root *) owner;
    int n_outer;
    const Dim *size[AXES_MAX]; /* outer axes, then the row */
    bool has_row;
    Coords row, elem; /* one per outer index; one per element */
    VEC(Key) keys;
    int *value; /* per root: its value, -1 = not yet */
    bool *busy; /* per root */
    int *kept;  /* per root: stored for a later phase, see Keep */
    Split split;
    MapFailure *why;
} MapBuild;

bool map_build(Scope *s, Unit *u, MapFailure *why);
void map_finish(Scope *s, Unit *u); /* adds, names; the step */
int map_argument(MapBuild *m, const View *v);
bool map_root_coords(MapBuild *m, const Root *r, Coords *c); /* of the value itself */
int value_of_root(MapBuild *m, int i);                       /* -1: cannot be built */
bool map_access(MapBuild *m, Node *n, const View *v, const Coords *c, Access *a);
void map_tidy(MapBuild *m); /* fuse_space.c: phases, axes, levels */

/* ---- steps ----------------------------------------------------------------------------------- */

Kernel *step_add(Scope *s, Kernel *k, Operand *operands, const Node *n, bool backward);
AddKind dest_add(Dest *d); /* and marks it as started */

/* ---- fuse_call.c, fuse_loop.c ---------------------------------------------------------------- */

void call_finish(Scope *s, Unit *u);
void loop_plan(Scope *s, Node *n);                /* places of carries and stacks */
void loop_place_result(Scope *s, int k, Node *n); /* result k of the body */
bool loop_use_temp(Scope *s, int k);              /* carry k goes over a copy; false: it does */
Node *loop_result(const Graph *body, int k);
void loop_finish(Scope *s, Unit *u);
void scope_run(Scope *s);                     /* fuse.c */
void copy_dense(Scope *s, Node *n, View *to); /* a step that copies n; to: where it lies then */

/* ---- fuse_text.c: names and formulas --------------------------------------------------------- */

void text_hints(Scope *s);
const char *text_buffer_name(Scope *s, const Node *n);
const char *text_carry_name(Scope *s, const Node *loop, int k);
const char *text_stack_name(Scope *s, const Node *loop, int j);
void text_describe(Scope *s, Unit *u, Kernel *k, const Operand *operands);

/* ---- fuse_formula.c -------------------------------------------------------------------------- */

/* The number of the effect whose equation says most; formula and brief of a kernel. */
int formula_main_effect(Scope *s, const Unit *u);
void formula_write(Scope *s, Unit *u, Kernel *k, const Operand *operands);

#endif
