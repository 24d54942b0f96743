/* type.h -- dtypes, symbolic dims and shapes.
 *
 * A Dim is an interned polynomial over symbols with integer coefficients; floor and exact division
 * of two dims are atoms. Constants of the model keep their names (3*C stays 3*C, so that emitted
 * code can say it), but two dims are equal when their polynomials are, or when both have values
 * and these are equal. Interned: the same form is the same pointer.
 */
#ifndef GRADCC_TYPE_H
#define GRADCC_TYPE_H

#include "base/base.h"

enum { RANK_MAX = 8 };

/* ---- symbols ------------------------------------------------------------------------------- */

typedef enum {
    SYM_CONST, /* fixed when the model is compiled: has a value */
    SYM_DIM,   /* bound when the program starts: dim T */
    SYM_BATCH, /* the sample axis: batch B; also bound at program start */
    SYM_PART,  /* rows of one part of an axis that a loop does in parts: step, or what is left */
    SYM_FRESH, /* front end only: a dim of a layer's signature, not yet bound */
} SymKind;

typedef struct {
    const char *name; /* interned; unique unless FRESH */
    SymKind kind;
    /* CONST; for DIM and BATCH the one in training, 0 = unset; of a PART the most it can be, while
       dims have the values of training */
    int64_t value;
    int id;                         /* place in the table; order of declaration */
    Span span;                      /* where it is declared */
    const char *note;               /* one-line description for emitted code, or NULL */
    const struct Dim *whole, *step; /* PART: the axis it is of; rows of every part but the last */
} Symbol;

/* ---- dims ---------------------------------------------------------------------------------- */

typedef struct Dim Dim;
typedef struct Dims Dims; /* the table: symbols and interned dims */

Dims *dims_new(Context *cx);
Symbol *dims_symbol(Dims *ds, const char *name, SymKind kind, int64_t value, Span at);
Symbol *dims_find(const Dims *ds, const char *name); /* NULL when absent */
int dims_count(const Dims *ds);
Symbol *dims_at(const Dims *ds, int id);

const Dim *dim_const(Dims *ds, int64_t value);
const Dim *dim_sym(Dims *ds, const Symbol *s);
/* The rows of one part, of `whole` done in parts of `step`: the symbol of that name, made if there
   is none yet. */
const Symbol *dims_part(Dims *ds, const char *name, const Dim *whole, const Dim *step,
                        const char *note);
const Dim *dim_parts(Dims *ds, const Symbol *part); /* how many parts there are */
const Dim *dim_add(Dims *ds, const Dim *a, const Dim *b);
const Dim *dim_sub(Dims *ds, const Dim *a, const Dim *b);
const Dim *dim_mul(Dims *ds, const Dim *a, const Dim *b);
const Dim *dim_floor_div(Dims *ds, const Dim *a, const Dim *b); /* NULL when b is 0, as dim_mod */
const Dim *dim_mod(Dims *ds, const Dim *a, const Dim *b);
/* a / b where b divides a: cancels where the sum allows it; otherwise a quotient that claims it.
   NULL when both have values and b does not divide a, or b is 0. */
const Dim *dim_exact_div(Dims *ds, const Dim *a, const Dim *b);
/* a / b where that is a number, 1 or more, at all sizes of run-time dims; else NULL. */
const Dim *dim_ratio(Dims *ds, const Dim *a, const Dim *b);
/* NULL where a division of d no longer divides, or divides by 0. */
const Dim *dim_replace(Dims *ds, const Dim *d, const Symbol *s, const Dim *by);

bool dim_same(const Dim *a, const Dim *b);      /* equal for all run-time dims */
bool dim_value(const Dim *d, int64_t *value);   /* true when no run-time dim is in it */
bool dim_literal(const Dim *d, int64_t *value); /* true when it is a bare number, no name */
bool dim_overflows(const Dim *d);               /* its constant part left int64 */
bool dim_has_kind(const Dim *d, SymKind kind);  /* is a symbol of that kind in it? */
bool dim_has_symbol(const Dim *d, const Symbol *s);
/* What of an axis of that size belongs to one sample: T of B*T. NULL: it is no whole number of
   samples, as B + 1, B*B and B/2, or has none in it. */
const Dim *dim_per_sample(Dims *ds, const Dim *d);
int64_t dim_eval(const Dim *d, const int64_t *values); /* by symbol id; -1 on overflow */
/* Proven a <= b for all positive run-time dims (coefficient-wise); false = unknown. */
bool dim_le(Dims *ds, const Dim *a, const Dim *b);
/* Proven a multiple of n for all run-time dims (term by term); false = unknown. */
bool dim_is_multiple(const Dim *d, int64_t n);

/* "B*T", "3*C", "Tmax - T", "C/H" (exact), "T//2" (floor). With parts: name of each symbol through
   the function (emitters say "n.B"), and floor division as "/", as C has it. parenthesise_sums
   wraps whatever may not stand as a factor: sums, quotients, what begins with a minus. */
const char *dim_text(Context *cx, const Dim *d);
typedef const char *(*DimNamer)(const Symbol *s, void *user);
void dim_print(Text *t, const Dim *d, DimNamer namer, void *user, bool parenthesise_sums);

/* ---- dtypes and types ---------------------------------------------------------------------- */

/* BF16 and F16 are formats of memory: values in the IR are F32 or F64, rounded where it says so. */
typedef enum { DT_BOOL, DT_I32, DT_F32, DT_F64, DT_BF16, DT_F16, DT_COUNT } DType;

const char *dtype_name(DType t); /* bool i32 f32 f64 */
bool dtype_is_real(DType t);
int dtype_bytes(DType t); /* bool: 1 */

typedef struct Type { /* interned; the meaning is compared with type_same */
    DType dtype;
    int rank;
    const Dim *dim[RANK_MAX];
} Type;

const Type *type_of(Dims *ds, DType dtype, int rank, const Dim *const *dim);
bool type_same(const Type *a, const Type *b); /* dtype and dims */
bool type_same_shape(const Type *a, const Type *b);
const Dim *type_elems(Dims *ds, const Type *t);    /* product of the dims; 1 for rank 0 */
const char *type_text(Context *cx, const Type *t); /* "f32[B,T,C]" */

#endif
