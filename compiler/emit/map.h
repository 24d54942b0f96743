/* map.h -- what c_map.c (loops) and c_body.c (values and statements) share. */
#ifndef GRADCC_EMIT_MAP_H
#define GRADCC_EMIT_MAP_H

#include "emit/parts.h"

typedef struct { /* a MAP kernel's loops under construction */
    KernelWriter *w;
    Emitter *e;
    Kernel *k;
    Text *out;           /* where statements go now */
    int indent;          /* of them */
    int n_axes, n_outer; /* of the kernel; before the row */
    bool has_row;
    bool inside;                             /* an enclosing loop is parallel already */
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
} MapWriter;

void map_prepare(MapWriter *m);               /* which values are hoisted */
void map_once_values(MapWriter *m);           /* variables of the whole kernel */
void map_row_values(MapWriter *m, int phase); /* of a row, before its loop */
/* The loop over a row; what a phase stores once per row. */
void map_row_loop(MapWriter *m, int phase, const char *from, const char *to);
void map_row_effects(MapWriter *m, int phase);
/* Stores, or adds, a value through the effect's access. */
void map_write(MapWriter *m, const Effect *f, Code value, DType type);

/* Writes `for index of axis from .. to: body`, with a pragma before it if there is one. */
void map_loop(MapWriter *m, int axis, const char *from, const char *to, const char *pragma,
              const char *body);
bool map_is_one_statement(const char *text);              /* needs no braces */
const char *map_index_type(const MapWriter *m, int axis); /* "int" or "ptrdiff_t" */
const Dim *map_space(MapWriter *m, int axes);             /* product of the first axes */

#endif
