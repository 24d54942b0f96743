/* poly.c -- arithmetic of sums of terms.
 *
 * In: sums as poly.h describes them. Out: new sums, in the one order, in scratch. The order is
 * graded lexicographic, larger monomials first, so that long division by a sum ends.
 */
#include "front/poly.h"

#include <string.h>

/* ---- atoms --------------------------------------------------------------------------------- */

bool poly_has_const(const Poly *p)
{
    for (int i = 0; i < p->n; i++)
        for (int k = 0; k < p->at[i].n; k++)
            if (p->at[i].factor[k].atom->has_const)
                return true;
    return false;
}

const Atom *atom_of(Dims *ds, AtomKind kind, const Symbol *s, const Dim *a, const Dim *b)
{
    static const int place
        [] = { [SYM_BATCH] = 0, [SYM_DIM] = 1, [SYM_PART] = 1, [SYM_CONST] = 2, [SYM_FRESH] = 3 };
    for (Atom *m = ds->atoms; m; m = m->next)
        if (m->kind == kind && m->sym == s && m->a == a && m->b == b)
            return m;
    Atom *m = NEW(ds->cx->arena, Atom);
    m->kind = kind;
    m->sym = s;
    m->a = a;
    m->b = b;
    m->rank = s ? place[s->kind] : 4 + (int)kind;
    m->id = s ? s->id : ds->n_atoms;
    m->has_const = s ? s->kind == SYM_CONST : poly_has_const(&a->p) || (b && poly_has_const(&b->p));
    m->next = ds->atoms;
    ds->atoms = m;
    ds->n_atoms++;
    return m;
}

static int atom_order(const Atom *a, const Atom *b)
{
    return a->rank != b->rank ? a->rank - b->rank : a->id - b->id;
}

/* ---- terms --------------------------------------------------------------------------------- */

__int128 gcd_of(__int128 a, __int128 b)
{
    if (a < 0)
        a = -a;
    if (b < 0)
        b = -b;
    while (b) {
        __int128 r = a % b;
        a = b;
        b = r;
    }
    return a;
}

/* num / den in lowest terms; false when it leaves 64 bits. */
bool ratio_set(Term *t, __int128 num, __int128 den)
{
    __int128 g = gcd_of(num, den);
    if (g > 1) {
        num /= g;
        den /= g;
    }
    if (den < 0) {
        num = -num;
        den = -den;
    }
    t->num = (int64_t)num;
    t->den = (int64_t)den;
    return t->num == num && t->den == den && num != INT64_MIN;
}

static int term_degree(const Term *t)
{
    int degree = 0;
    for (int i = 0; i < t->n; i++)
        degree += t->factor[i].power;
    return degree;
}

/* Graded lexicographic order of the monomials, larger first: < 0 when a stands before b. */
static int term_order(const Term *a, const Term *b)
{
    int degree = term_degree(b) - term_degree(a);
    if (degree)
        return degree;
    for (int i = 0; i < a->n || i < b->n; i++) {
        if (i == a->n)
            return b->factor[i].power > 0 ? 1 : -1;
        if (i == b->n)
            return a->factor[i].power > 0 ? -1 : 1;
        int order = atom_order(a->factor[i].atom, b->factor[i].atom);
        if (order < 0)
            return a->factor[i].power > 0 ? -1 : 1;
        if (order > 0)
            return b->factor[i].power > 0 ? 1 : -1;
        if (a->factor[i].power != b->factor[i].power)
            return b->factor[i].power - a->factor[i].power;
    }
    return 0;
}

/* a * b, or a / b with sign -1. */
Term term_mul(Dims *ds, const Term *a, const Term *b, int sign, bool *overflow)
{
    Term t = { 0, 1, 0, NULL };
    bool ok = sign > 0 ? ratio_set(&t, (__int128)a->num * b->num, (__int128)a->den * b->den)
                       : ratio_set(&t, (__int128)a->num * b->den, (__int128)a->den * b->num);
    if (!ok)
        *overflow = true;
    t.factor = NEW_ARRAY(ds->cx->scratch, Factor, a->n + b->n + 1);
    int i = 0, k = 0;
    while (i < a->n || k < b->n) {
        int order = i == a->n   ? 1
                    : k == b->n ? -1
                                : atom_order(a->factor[i].atom, b->factor[k].atom);
        Factor f = order <= 0 ? a->factor[i] : (Factor){ b->factor[k].atom, 0 };
        if (order >= 0)
            f.power += sign * b->factor[k].power;
        i += order <= 0;
        k += order >= 0;
        if (f.power)
            t.factor[t.n++] = f;
    }
    return t;
}

/* ---- sums of terms ------------------------------------------------------------------------- */

Poly poly_literal(Dims *ds, int64_t value)
{
    Poly p = { 0 };
    if (value)
        vec_grow(ds->cx->scratch, (void **)&p.at, &p.cap, 1, sizeof *p.at),
            p.at[p.n++] = (Term){ value, 1, 0, NULL };
    return p;
}

Poly poly_atom(Dims *ds, const Atom *m)
{
    Poly p = poly_literal(ds, 1);
    p.at[0].factor = NEW(ds->cx->scratch, Factor);
    p.at[0].factor[0] = (Factor){ m, 1 };
    p.at[0].n = 1;
    return p;
}

/* Adds a term in its place. */
void poly_add_term(Dims *ds, Poly *p, Term t)
{
    int i = 0;
    while (i < p->n && term_order(&p->at[i], &t) < 0)
        i++;
    if (i < p->n && term_order(&p->at[i], &t) == 0) {
        Term *s = &p->at[i];
        if (!ratio_set(s, (__int128)s->num * t.den + (__int128)t.num * s->den,
                       (__int128)s->den * t.den))
            p->overflow = true;
        if (s->num == 0) {
            memmove(s, s + 1, sizeof *s * (size_t)(p->n - i - 1));
            p->n--;
        }
        return;
    }
    if (t.num == 0)
        return;
    vec_grow(ds->cx->scratch, (void **)&p->at, &p->cap, p->n + 1, sizeof *p->at);
    memmove(&p->at[i + 1], &p->at[i], sizeof *p->at * (size_t)(p->n - i));
    p->at[i] = t;
    p->n++;
}

/* a + sign * b */
Poly poly_add(Dims *ds, Poly a, Poly b, int sign)
{
    Poly p = { .overflow = a.overflow || b.overflow };
    for (int i = 0; i < a.n; i++)
        poly_add_term(ds, &p, a.at[i]);
    for (int i = 0; i < b.n; i++) {
        Term t = b.at[i];
        t.num *= sign;
        poly_add_term(ds, &p, t);
    }
    return p;
}

Poly poly_mul(Dims *ds, Poly a, Poly b)
{
    Poly p = { .overflow = a.overflow || b.overflow };
    for (int i = 0; i < a.n; i++)
        for (int k = 0; k < b.n; k++)
            poly_add_term(ds, &p, term_mul(ds, &a.at[i], &b.at[k], 1, &p.overflow));
    return p;
}

Poly poly_over_term(Dims *ds, Poly a, const Term *t)
{
    Poly p = { .overflow = a.overflow };
    for (int i = 0; i < a.n; i++)
        poly_add_term(ds, &p, term_mul(ds, &a.at[i], t, -1, &p.overflow));
    return p;
}

/* The power of m in t, 0 when it is not there. */
int term_power(const Term *t, const Atom *m)
{
    for (int i = 0; i < t->n; i++)
        if (t->factor[i].atom == m)
            return t->factor[i].power;
    return 0;
}

/* Long division by a sum of several terms; true when nothing is left. */
bool poly_long_divide(Dims *ds, Poly a, Poly b, Poly *q)
{
    Poly rest = a;
    *q = (Poly){ 0 };
    for (int step = 0; rest.n > 0; step++) {
        const Term *lead = &b.at[0];
        for (int i = 0; i < lead->n; i++)
            if (term_power(&rest.at[0], lead->factor[i].atom) < lead->factor[i].power)
                return false;
        Poly one = { .overflow = false };
        poly_add_term(ds, &one, term_mul(ds, &rest.at[0], lead, -1, &one.overflow));
        *q = poly_add(ds, *q, one, 1);
        rest = poly_add(ds, rest, poly_mul(ds, one, b), -1);
        if (rest.overflow || q->overflow || step == 64)
            return false;
    }
    return true;
}

/* A sum in a denominator disappears where it divides what stands above it. */
Poly poly_cancel(Dims *ds, Poly p)
{
    for (int i = 0; i < p.n; i++) {
        const Atom *m = NULL;
        for (int k = 0; k < p.at[i].n && !m; k++)
            if (p.at[i].factor[k].atom->kind == ATOM_SUM)
                m = p.at[i].factor[k].atom;
        if (!m)
            continue;
        int power = term_power(&p.at[i], m);
        Poly above = { 0 }, rest = { 0 }, quotient;
        Term line = { 1, 1, 1, &(Factor){ m, power } };
        for (int k = 0; k < p.n; k++) {
            bool same = term_power(&p.at[k], m) == power;
            poly_add_term(ds, same ? &above : &rest,
                          same ? term_mul(ds, &p.at[k], &line, -1, &p.overflow) : p.at[k]);
        }
        if (!poly_long_divide(ds, above, m->a->p, &quotient))
            continue;
        for (int k = power + 1; k < 0; k++) {
            line.factor[0].power = 1;
            quotient = poly_over_term(ds, quotient, &line);
        }
        bool overflow = p.overflow;
        p = poly_add(ds, rest, quotient, 1);
        p.overflow |= overflow;
        i = -1;
    }
    return p;
}

/* ---- equality, numbers, division with a rest ----------------------------------------------- */

uint64_t poly_hash(const Poly *p)
{
    uint64_t h = 1469598103934665603u;
    for (int i = 0; i < p->n; i++) {
        const Term *t = &p->at[i];
        h = hash_bytes(&t->num, sizeof t->num, h);
        h = hash_bytes(&t->den, sizeof t->den, h);
        for (int k = 0; k < t->n; k++) {
            int part[3] = { t->factor[k].atom->rank, t->factor[k].atom->id, t->factor[k].power };
            h = hash_bytes(part, sizeof part, h);
        }
    }
    return h;
}

bool poly_equal(const Poly *a, const Poly *b)
{
    if (a->n != b->n)
        return false;
    for (int i = 0; i < a->n; i++) {
        const Term *s = &a->at[i], *t = &b->at[i];
        if (s->num != t->num || s->den != t->den || s->n != t->n)
            return false;
        for (int k = 0; k < s->n; k++)
            if (s->factor[k].atom != t->factor[k].atom || s->factor[k].power != t->factor[k].power)
                return false;
    }
    return true;
}

/* Is it a bare number (no name), and which? */
bool poly_number(const Poly *p, int64_t *value)
{
    if (p->overflow) {
        *value = INT64_MAX;
        return true;
    }
    if (p->n > 1 || (p->n == 1 && (p->at[0].n || p->at[0].den != 1)))
        return false;
    *value = p->n ? p->at[0].num : 0;
    return true;
}

int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

/* Takes out of `a` what is a whole multiple of the one term t. */
Poly poly_take_whole(Dims *ds, Poly a, const Term *t, Poly *rest)
{
    Poly whole = { 0 };
    *rest = (Poly){ 0 };
    for (int i = 0; i < a.n; i++) {
        Term q = term_mul(ds, &a.at[i], t, -1, &whole.overflow), r = a.at[i];
        bool below = r.den != 1;
        for (int k = 0; k < q.n; k++)
            below |= q.factor[k].power < 0;
        if (below || (q.den != 1 && (t->n || t->den != 1))) {
            poly_add_term(ds, rest, r);
            continue;
        }
        int64_t n = floor_div(q.num, q.den);
        r.num -= n * t->num; /* t is the number num, or divides r */
        q.num = n;
        q.den = 1;
        poly_add_term(ds, &whole, q);
        if (t->n == 0)
            poly_add_term(ds, rest, r);
    }
    return whole;
}

/* Splits into what has a denominator, brought over one line, and the rest. */
void poly_split(Dims *ds, const Poly *p, Poly *above, Term *line, Poly *rest)
{
    bool overflow = false;
    *line = (Term){ 1, 1, 0, NULL };
    for (int i = 0; i < p->n; i++) {
        const Term *t = &p->at[i];
        line->num = (int64_t)(line->num / gcd_of(line->num, t->den) * t->den);
        for (int k = 0; k < t->n; k++) {
            int more = -t->factor[k].power - term_power(line, t->factor[k].atom);
            if (t->factor[k].power < 0 && more > 0) {
                Term f = { 1, 1, 1, &(Factor){ t->factor[k].atom, more } };
                *line = term_mul(ds, line, &f, 1, &overflow);
            }
        }
    }
    for (int i = 0; i < p->n; i++) {
        const Term *t = &p->at[i];
        bool below = t->den != 1;
        for (int k = 0; k < t->n; k++)
            below |= t->factor[k].power < 0;
        poly_add_term(ds, below ? above : rest, below ? term_mul(ds, t, line, 1, &overflow) : *t);
    }
}
