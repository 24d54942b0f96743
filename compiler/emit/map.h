/* map.h -- what map_value.c (values), c_map.c and c_body.c (loops in C) and cu_map.c and its parts
 * (threads in CUDA) share.
 */
#ifndef GRADCC_EMIT_MAP_H
#define GRADCC_EMIT_MAP_H

#include "emit/parts.h"

typedef struct MapWriter MapWriter;
struct MapWriter { /* a MAP kernel's loops under construction */
    KernelWriter *w;
    Emitter *e;
    Kernel *k;
    Text *out;           /* where statements go now */
    int indent;          /* of them */
    int n_axes, n_outer; /* of the kernel; before the row */
    bool has_row;
    bool inside;                             /* an enclosing loop is parallel already */
    const char *outer;                       /* one number over the axes before the row, or NULL */
    const char *index[AXES_MAX];             /* variables */
    bool wide[AXES_MAX];                     /* ptrdiff_t, not int */
    Level *level;                            /* by value */
    const char **temp;                       /* by value: the variable that holds it */
    bool *hoist;                             /* by value: held outside the row loop */
    bool *force;                             /* by value: to be held before anything is stored */
    int *uses;                               /* by value, in the body being written */
    bool letter[26];                         /* taken: one variable of the kernel each */
    const char **total, **partial, **column; /* by effect: running sums */
    const char *column_index;                /* into these sums, in the row loop */
    bool across; /* the last outer axis is walked inside the row, by blocks: c_map.c */
    /* The element that a load reads, where it is at hand already: "x_row[k][e]"; or NULL. */
    const char *(*held)(MapWriter *m, const Value *v);
    void *own; /* of the target */
};

/* ---- map_value.c ----------------------------------------------------------------------------- */

const Value *map_value(const MapWriter *m, int v);
bool map_is_trivial(const Value *v);                  /* a number, an index: never in a variable */
bool map_in_row(const MapWriter *m, const Effect *f); /* does it happen in the loop over the row? */
const char *map_index_of(MapWriter *m, const Access *a); /* "i*C + ic" */
const char *map_element(MapWriter *m, const Access *a);  /* "x[i*C + ic]" */
/* A value: what its variable is called, or what it is made of, in a new variable where it is long
   or used again; a root is written out where it stands. */
Code map_code(MapWriter *m, int v, bool root);
Code map_compute(MapWriter *m, int v);         /* without its variable */
Code map_declare(MapWriter *m, int v, Code c); /* a variable for it */
bool map_is_free(MapWriter *m, const char *name);
const char *map_short_name(MapWriter *m, const char *name); /* "mu" for h_ln_1_mu */
const char *map_free_name(MapWriter *m, const char *want);  /* that, or a letter */
void map_statement(MapWriter *m, const char *s);
void map_count_uses(MapWriter *m, int v);                            /* in the body to come */
const char *map_reduce_start(MapWriter *m, const Value *v, DType t); /* "0", "-INFINITY" */

/* What is written now goes into `body`, further in, with names of its own. */
typedef struct {
    Text body, *out;
    Names *names;
    int steps;
} MapInner;
void map_inner_open(MapWriter *m, MapInner *x, int steps);
const char *map_inner_close(MapWriter *m, MapInner *x);

void map_name_indices(MapWriter *m);          /* c_map.c: of the axes; int or ptrdiff_t */
void map_prepare(MapWriter *m);               /* which values are hoisted */
void map_once_values(MapWriter *m);           /* variables of the whole kernel */
void map_row_values(MapWriter *m, int phase); /* of a row, before its loop */
/* Stores, or adds, a value through the effect's access. */
void map_write(MapWriter *m, const Effect *f, Code value, DType type);
const char *map_index_type(const MapWriter *m, int axis); /* "int" or "ptrdiff_t" */

/* ---- c_map.c, c_body.c ----------------------------------------------------------------------- */

/* The loop over a row; what a phase stores once per row. */
void map_row_loop(MapWriter *m, int phase, const char *from, const char *to);
void map_row_effects(MapWriter *m, int phase);

/* Writes `for index of axis from .. to: body`, with a pragma before it if there is one. */
void map_loop(MapWriter *m, int axis, const char *from, const char *to, const char *pragma,
              const char *body);
bool map_is_one_statement(const char *text);  /* needs no braces */
const Dim *map_space(MapWriter *m, int axes); /* product of the first axes */

#endif
