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
    Atom *next;
};

typedef struct {
    const Atom *atom;
    int power;
} Factor;
typedef struct {
    int64_t num, den;
    int n;
    Factor *factor;
} Term; /* factors in atom order */
typedef struct {
    Term *at;
    int n, cap;
    bool overflow;
} Poly; /* terms in term_order */

struct Dim {
    Dims *ds;
    Poly p;
    uint64_t hash;
    const Dim *closed; /* named constants replaced by their values */
    Dim *next;         /* in its bucket */
};

typedef struct TypeCell {
    Type type;
    struct TypeCell *next;
} TypeCell;

enum { N_BUCKETS = 1024 };

struct Dims {
    Context *cx;
    VEC(Symbol *) symbols;
    Atom *atoms;
    int n_atoms;
    Dim *dims[N_BUCKETS];
    TypeCell *types[N_BUCKETS];
    Dim *overflow; /* the one dim that left 64 bits */
};

const Atom *atom_of(Dims *ds, AtomKind kind, const Symbol *s, const Dim *a, const Dim *b);

int term_power(const Term *t, const Atom *m); /* 0 when it is not there */
Term term_mul(Dims *ds, const Term *a, const Term *b, int sign, bool *overflow);
/* a * b, or a / b with sign -1              */
bool ratio_set(Term *t, __int128 num, __int128 den);
/* lowest terms; false when it leaves 64 bits */
__int128 gcd_of(__int128 a, __int128 b);

/* All sums live in scratch; type.c copies what it interns. */
Poly poly_literal(Dims *ds, int64_t value);
Poly poly_atom(Dims *ds, const Atom *m);
void poly_add_term(Dims *ds, Poly *p, Term t);
Poly poly_add(Dims *ds, Poly a, Poly b, int sign); /* a + sign * b */
Poly poly_mul(Dims *ds, Poly a, Poly b);
Poly poly_over_term(Dims *ds, Poly a, const Term *t);
bool poly_long_divide(Dims *ds, Poly a, Poly b, Poly *q); /* true when nothing is left */
Poly poly_take_whole(Dims *ds, Poly a, const Term *t, Poly *rest);
/* whole multiples of t; the others in rest  */
Poly poly_cancel(Dims *ds, Poly p); /* sums in denominators that divide, go */
void poly_split(Dims *ds, const Poly *p, Poly *above, Term *line, Poly *rest);
/* p = above / line + rest, for printing      */
uint64_t poly_hash(const Poly *p);
bool poly_equal(const Poly *a, const Poly *b);
bool poly_has_const(const Poly *p);
bool poly_number(const Poly *p, int64_t *value); /* a bare number, no name */
int64_t floor_div(int64_t a, int64_t b);

#endif
