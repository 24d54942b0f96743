/* poly.h -- atoms, terms and sums of terms: what a dim is made of. For poly.c and type.c only.
 *
 * A sum (Poly) is a list of terms in one order; a term is a rational coefficient times powers of
 * atoms. An exact division is a negative power, so (C/H)*H is C without any rule; the claim that
 * it divides makes the whole sum an integer, though not each term of it. Atoms are symbols, floor
 * divisions, and sums of several terms in a denominator.
 */
#ifndef GRADCC_POLY_H
#define GRADCC_POLY_H

#include "front/type.h"

typedef enum { ATOM_SYMBOL, ATOM_FLOOR, ATOM_SUM } AtomKind;

typedef struct Atom Atom;
struct Atom {
    AtomKind kind;
    const Symbol *sym; /* SYMBOL */
    const Dim *a, *b;  /* FLOOR: a // b; SUM: a, only below a line */
    int rank, id;      /* place in a term: by rank, then by id */
    bool has_const;    /* a named constant is in it */
    Atom *next;        /* in the table */
};

typedef struct { /* atom^power; the power may be negative */
    const Atom *atom;
    int power;
} Factor;
typedef struct { /* num / den times n factors, in atom order */
    int64_t num, den;
    int n;
    Factor *factor;
} Term;
typedef struct { /* a sum of terms, in term_order */
    Term *at;
    int n, cap;
    bool overflow; /* a number left 64 bits: the sum means nothing */
} Poly;

struct Dim {
    Dims *ds;          /* the table it is of */
    Poly p;            /* what it is */
    uint64_t hash;     /* of p */
    const Dim *closed; /* named constants replaced by their values */
    Dim *next;         /* in its bucket */
};

typedef struct TypeCell { /* an interned type in its bucket */
    Type type;
    struct TypeCell *next;
} TypeCell;

enum { N_BUCKETS = 1024 };

struct Dims {
    Context *cx;
    VEC(Symbol *) symbols; /* by id */
    Atom *atoms;           /* all, the newest first */
    int n_atoms;
    Dim *dims[N_BUCKETS]; /* by hash, and the types too */
    TypeCell *types[N_BUCKETS];
    Dim *overflow; /* the one dim that left 64 bits */
};

/* The atom of these, interned. */
const Atom *atom_of(Dims *ds, AtomKind kind, const Symbol *s, const Dim *a, const Dim *b);

int term_power(const Term *t, const Atom *m); /* 0 when it is not there */
/* a * b, or a / b with sign -1. */
Term term_mul(Dims *ds, const Term *a, const Term *b, int sign, bool *overflow);
/* num / den in lowest terms; false when it leaves 64 bits. */
bool ratio_set(Term *t, __int128 num, __int128 den);
__int128 gcd_of(__int128 a, __int128 b); /* the greatest common divisor */

/* All sums live in scratch; type.c copies what it interns. */
Poly poly_literal(Dims *ds, int64_t value);
Poly poly_atom(Dims *ds, const Atom *m);
void poly_add_term(Dims *ds, Poly *p, Term t);
Poly poly_add(Dims *ds, Poly a, Poly b, int sign); /* a + sign * b */
Poly poly_mul(Dims *ds, Poly a, Poly b);
Poly poly_over_term(Dims *ds, Poly a, const Term *t);     /* a / t */
bool poly_long_divide(Dims *ds, Poly a, Poly b, Poly *q); /* true when nothing is left */
/* a / t as far as its terms are whole; what is left of a in rest. */
Poly poly_take_whole(Dims *ds, Poly a, const Term *t, Poly *rest);
Poly poly_cancel(Dims *ds, Poly p); /* sums in denominators that divide, go */
/* p = above / line + rest, for printing. */
void poly_split(Dims *ds, const Poly *p, Poly *above, Term *line, Poly *rest);
uint64_t poly_hash(const Poly *p);
bool poly_equal(const Poly *a, const Poly *b);
bool poly_has_const(const Poly *p);
bool poly_number(const Poly *p, int64_t *value); /* a bare number, no name */
int64_t floor_div(int64_t a, int64_t b);

#endif
