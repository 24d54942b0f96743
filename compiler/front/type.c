/* type.c -- symbols, symbolic dims, dtypes and types.
 *
 * In: names and numbers of a model. Out: interned dims and types that can be compared, computed
 * with, evaluated and printed.
 *
 * The one idea: a dim is a sum of terms (poly.h) in one order, and equal sums are one object. Each
 * dim also has its closed form, in which named constants are replaced by their values; two dims
 * mean the same when their closed forms are one object. So 3*C keeps its name in emitted code and
 * still equals 2304.
 */
#include "front/poly.h"

#include <string.h>

static const Dim *dim_intern(Dims *ds, Poly p);
static bool poly_divide_by(Dims *ds, Poly a, const Dim *b, Poly *q);

/* ---- symbols ------------------------------------------------------------------------------- */

Dims *dims_new(Context *cx)
{
    Dims *ds = NEW(cx->arena, Dims);
    ds->cx = cx;
    ds->overflow = NEW(cx->arena, Dim);
    ds->overflow->ds = ds;
    ds->overflow->p.overflow = true;
    ds->overflow->closed = ds->overflow;
    return ds;
}

Symbol *dims_symbol(Dims *ds, const char *name, SymKind kind, int64_t value, Span at)
{
    Symbol *s = NEW(ds->cx->arena, Symbol);
    s->name = intern(ds->cx, name);
    s->kind = kind;
    s->value = value;
    s->id = ds->symbols.len;
    s->span = at;
    vec_push(ds->cx->arena, &ds->symbols, s);
    return s;
}

Symbol *dims_find(const Dims *ds, const char *name)
{
    for (int i = 0; i < ds->symbols.len; i++) {
        Symbol *s = ds->symbols.at[i];
        if (s->kind != SYM_FRESH && strcmp(s->name, name) == 0)
            return s;
    }
    return NULL;
}

const Symbol *dims_part(Dims *ds, const char *name, const Dim *whole, const Dim *step,
                        const char *note)
{
    const char *unused = name;
    for (int i = 0; i < ds->symbols.len; i++) {
        const Symbol *s = ds->symbols.at[i];
        if (s->kind == SYM_PART && dim_same(s->whole, whole) && dim_same(s->step, step))
            return s;
    }
    for (int i = 2; dims_find(ds, unused); i++)
        unused = intern_printf(ds->cx, "%s_%d", name, i);
    Symbol *s = dims_symbol(ds, unused, SYM_PART, 0, (Span){ 0, 0, 0 });
    s->note = note;
    s->whole = whole;
    s->step = step;
    return s;
}

const Dim *dim_parts(Dims *ds, const Symbol *part)
{
    const Dim *less = dim_sub(ds, part->step, dim_const(ds, 1));
    return dim_floor_div(ds, dim_add(ds, part->whole, less), part->step);
}

int dims_count(const Dims *ds) { return ds->symbols.len; }
Symbol *dims_at(const Dims *ds, int id) { return ds->symbols.at[id]; }

/* ---- interning ----------------------------------------------------------------------------- */

/* d with symbol s (NULL: every named constant) replaced; false when a division fails. */
static bool poly_replace(Dims *ds, const Dim *d, const Symbol *s, const Dim *by, Poly *out)
{
    Poly sum = { .overflow = d->p.overflow };
    for (int i = 0; i < d->p.n; i++) {
        const Term *t = &d->p.at[i];
        Poly product = { 0 };
        poly_add_term(ds, &product, (Term){ t->num, t->den, 0, NULL });
        for (int k = 0; k < t->n; k++) {
            const Atom *m = t->factor[k].atom;
            const Dim *base = NULL;
            Poly part;
            if (m->kind == ATOM_SYMBOL) {
                if (s ? m->sym == s : m->sym->kind == SYM_CONST)
                    base = s ? by : dim_const(ds, m->sym->value);
                part = base ? base->p : poly_atom(ds, m);
            } else {
                if (!poly_replace(ds, m->a, s, by, &part))
                    return false;
                if (m->kind == ATOM_FLOOR) {
                    const Dim *above = dim_intern(ds, part);
                    if (!poly_replace(ds, m->b, s, by, &part))
                        return false;
                    base = dim_floor_div(ds, above, dim_intern(ds, part));
                    if (!base)
                        return false;
                    part = base->p;
                }
            }
            base = dim_intern(ds, part);
            for (int e = t->factor[k].power; e > 0; e--)
                product = poly_mul(ds, product, base->p);
            for (int e = t->factor[k].power; e < 0; e++)
                if (!poly_divide_by(ds, product, base, &product))
                    return false;
        }
        sum = poly_add(ds, sum, product, 1);
    }
    *out = poly_cancel(ds, sum);
    return true;
}

static const Dim *dim_intern(Dims *ds, Poly p)
{
    if (p.overflow)
        return ds->overflow;
    uint64_t hash = poly_hash(&p);
    Dim **bucket = &ds->dims[hash % N_BUCKETS];
    for (Dim *d = *bucket; d; d = d->next)
        if (d->hash == hash && poly_equal(&d->p, &p))
            return d;

    Arena *a = ds->cx->arena;
    Dim *d = NEW(a, Dim);
    d->ds = ds;
    d->hash = hash;
    d->p.n = d->p.cap = p.n;
    d->p.at = NEW_ARRAY(a, Term, p.n + 1);
    for (int i = 0; i < p.n; i++) {
        d->p.at[i] = p.at[i];
        d->p.at[i].factor = NEW_ARRAY(a, Factor, p.at[i].n + 1);
        if (p.at[i].n)
            memcpy(d->p.at[i].factor, p.at[i].factor, sizeof(Factor) * (size_t)p.at[i].n);
    }
    d->next = *bucket;
    *bucket = d;
    d->closed = d;
    Poly closed;
    if (poly_has_const(&d->p))
        d->closed = poly_replace(ds, d, NULL, NULL, &closed) ? dim_intern(ds, closed)
                                                             : ds->overflow;
    return d;
}

/* ---- arithmetic ---------------------------------------------------------------------------- */

const Dim *dim_const(Dims *ds, int64_t value) { return dim_intern(ds, poly_literal(ds, value)); }

const Dim *dim_sym(Dims *ds, const Symbol *s)
{
    return dim_intern(ds, poly_atom(ds, atom_of(ds, ATOM_SYMBOL, s, NULL, NULL)));
}

const Dim *dim_add(Dims *ds, const Dim *a, const Dim *b)
{
    return dim_intern(ds, poly_cancel(ds, poly_add(ds, a->p, b->p, 1)));
}

const Dim *dim_sub(Dims *ds, const Dim *a, const Dim *b)
{
    return dim_intern(ds, poly_cancel(ds, poly_add(ds, a->p, b->p, -1)));
}

const Dim *dim_mul(Dims *ds, const Dim *a, const Dim *b)
{
    return dim_intern(ds, poly_cancel(ds, poly_mul(ds, a->p, b->p)));
}

static bool dim_is_zero(const Dim *d) { return d->closed->p.n == 0 && !dim_overflows(d); }

/* a / b as it is written; false when b is 0. */
static bool poly_divide_by(Dims *ds, Poly a, const Dim *b, Poly *q)
{
    if (dim_is_zero(b))
        return false;
    if (b->p.overflow) {
        *q = (Poly){ .overflow = true };
        return true;
    }
    if (b->p.n == 1) {
        *q = poly_over_term(ds, a, &b->p.at[0]);
        return true;
    }
    if (poly_long_divide(ds, a, b->p, q))
        return true;
    __int128 num = 0, den = 1; /* the content goes to the coefficient */
    for (int i = 0; i < b->p.n; i++) {
        num = gcd_of(num, b->p.at[i].num);
        den = den / gcd_of(den, b->p.at[i].den) * b->p.at[i].den;
    }
    Term content = { 1, 1, 0, NULL };
    if (!ratio_set(&content, b->p.at[0].num < 0 ? -num : num, den))
        content = (Term){ 1, 1, 0, NULL };
    const Dim *sum = dim_intern(ds, poly_over_term(ds, b->p, &content));
    Poly line = poly_atom(ds, atom_of(ds, ATOM_SUM, NULL, sum, NULL));
    *q = poly_over_term(ds, poly_over_term(ds, a, &content), &line.at[0]);
    *q = poly_cancel(ds, *q);
    return true;
}

/* A number that is no integer: a claim that it divides is wrong. */
static bool dim_is_fraction(const Dim *d)
{
    const Poly *p = &d->closed->p;
    return p->n == 1 && p->at[0].n == 0 && p->at[0].den != 1;
}

const Dim *dim_exact_div(Dims *ds, const Dim *a, const Dim *b)
{
    Poly q;
    if (dim_overflows(a) || dim_overflows(b))
        return ds->overflow;
    if (!poly_divide_by(ds, a->p, b, &q))
        return NULL;
    const Dim *d = dim_intern(ds, q);
    return dim_is_fraction(d) ? NULL : d;
}

const Dim *dim_ratio(Dims *ds, const Dim *a, const Dim *b)
{
    int64_t times;
    const Dim *d = dim_exact_div(ds, a, b);
    return d && dim_value(d, &times) && times >= 1 ? d : NULL;
}

const Dim *dim_floor_div(Dims *ds, const Dim *a, const Dim *b)
{
    int64_t x, y;
    if (dim_overflows(a) || dim_overflows(b))
        return ds->overflow;
    if (dim_is_zero(b))
        return NULL;
    if (poly_number(&a->p, &x) && poly_number(&b->p, &y))
        return dim_const(ds, floor_div(x, y));
    Poly whole = { 0 }, rest = a->p;
    if (b->p.n == 1)
        whole = poly_take_whole(ds, a->p, &b->p.at[0], &rest);
    else if (!poly_long_divide(ds, a->p, b->p, &whole))
        whole = (Poly){ 0 };
    else
        rest = (Poly){ 0 };
    if (poly_number(&rest, &x) && (x == 0 || poly_number(&b->p, &y)))
        rest = poly_literal(ds, x ? floor_div(x, y) : 0);
    else
        rest = poly_atom(ds, atom_of(ds, ATOM_FLOOR, NULL, dim_intern(ds, rest), b));
    return dim_intern(ds, poly_cancel(ds, poly_add(ds, whole, rest, 1)));
}

const Dim *dim_mod(Dims *ds, const Dim *a, const Dim *b)
{
    const Dim *q = dim_floor_div(ds, a, b);
    return q ? dim_sub(ds, a, dim_mul(ds, q, b)) : NULL;
}

const Dim *dim_replace(Dims *ds, const Dim *d, const Symbol *s, const Dim *by)
{
    Poly p;
    if (!dim_has_symbol(d, s))
        return d;
    if (!poly_replace(ds, d, s, by, &p))
        return NULL;
    d = dim_intern(ds, p);
    return dim_is_fraction(d) ? NULL : d;
}

/* ---- questions ----------------------------------------------------------------------------- */

bool dim_same(const Dim *a, const Dim *b) { return a->closed == b->closed; }
bool dim_value(const Dim *d, int64_t *value) { return poly_number(&d->closed->p, value); }
bool dim_literal(const Dim *d, int64_t *value) { return poly_number(&d->p, value); }
bool dim_overflows(const Dim *d) { return d->closed->p.overflow; }

static bool dim_any_symbol(const Dim *d, const Symbol *s, SymKind kind)
{
    for (int i = 0; i < d->p.n; i++)
        for (int k = 0; k < d->p.at[i].n; k++) {
            const Atom *m = d->p.at[i].factor[k].atom;
            if (m->kind == ATOM_SYMBOL
                    ? (s ? m->sym == s : m->sym->kind == kind)
                    : dim_any_symbol(m->a, s, kind) || (m->b && dim_any_symbol(m->b, s, kind)))
                return true;
        }
    return false;
}

bool dim_has_kind(const Dim *d, SymKind kind) { return dim_any_symbol(d, NULL, kind); }
bool dim_has_symbol(const Dim *d, const Symbol *s) { return dim_any_symbol(d, s, SYM_FRESH); }

const Dim *dim_per_sample(Dims *ds, const Dim *d)
{
    const Dim *each = NULL;
    for (int i = 0; i < ds->symbols.len && !each; i++) {
        const Symbol *s = ds->symbols.at[i];
        if (s->kind == SYM_BATCH && dim_has_symbol(d, s))
            each = dim_exact_div(ds, d, dim_sym(ds, s));
    }
    if (!each || dim_has_kind(each, SYM_BATCH))
        return NULL;
    const Poly *p = &each->closed->p;
    for (int i = 0; i < p->n; i++) {
        for (int k = 0; k < p->at[i].n; k++)
            if (p->at[i].factor[k].power < 0)
                return NULL;
        if (p->at[i].den != 1)
            return NULL;
    }
    return each;
}

/* r += num / den, in lowest terms; false on overflow. */
static bool ratio_add(Term *r, __int128 num, __int128 den)
{
    return ratio_set(r, (__int128)r->num * den + num * r->den, (__int128)r->den * den);
}

int64_t dim_eval(const Dim *d, const int64_t *values)
{
    Term sum = { 0, 1, 0, NULL };
    if (d->closed->p.overflow)
        return -1;
    for (int i = 0; i < d->closed->p.n; i++) {
        Term t = d->closed->p.at[i];
        for (int k = 0; k < t.n; k++) {
            const Atom *m = t.factor[k].atom;
            int64_t v = 0, b = 1;
            if (m->kind == ATOM_SYMBOL) {
                v = values[m->sym->id];
            } else {
                v = dim_eval(m->a, values);
                if (m->kind == ATOM_FLOOR) {
                    b = dim_eval(m->b, values);
                    if (b <= 0)
                        return -1;
                    v = floor_div(v, b);
                }
            }
            for (int e = t.factor[k].power; e > 0; e--)
                if (!ratio_set(&t, (__int128)t.num * v, t.den))
                    return -1;
            for (int e = t.factor[k].power; e < 0; e++)
                if (v == 0 || !ratio_set(&t, t.num, (__int128)t.den * v))
                    return -1;
        }
        if (!ratio_add(&sum, t.num, t.den))
            return -1;
    }
    return sum.den == 1 ? sum.num : -1;
}

bool dim_is_multiple(const Dim *d, int64_t n)
{
    const Poly *p = d->closed ? &d->closed->p : &d->p;
    if (p->overflow)
        return false;
    for (int i = 0; i < p->n; i++) {
        const Term *t = &p->at[i];
        if (t->den != 1 || t->num % n != 0)
            return false;
        for (int k = 0; k < t->n; k++)
            if (t->factor[k].power < 0)
                return false;
    }
    return true;
}

/* b - a with every run-time dim x written as 1 + (x - 1): no negative coefficient may remain. */
bool dim_le(Dims *ds, const Dim *a, const Dim *b)
{
    const Dim *d = dim_sub(ds, b, a)->closed;
    bool whole = true;
    if (dim_overflows(d))
        return false;
    for (int i = 0; i < d->p.n; i++)
        for (int k = 0; k < d->p.at[i].n; k++)
            whole &= d->p.at[i].factor[k].power > 0
                     && d->p.at[i].factor[k].atom->kind == ATOM_SYMBOL;
    for (int i = 0; whole && i < dims_count(ds); i++) {
        const Symbol *s = dims_at(ds, i);
        if (s->kind != SYM_CONST && dim_has_symbol(d, s))
            d = dim_replace(ds, d, s, dim_add(ds, dim_sym(ds, s), dim_const(ds, 1)));
    }
    for (int i = 0; i < d->p.n; i++)
        if (d->p.at[i].num < 0)
            return false;
    return !dim_overflows(d);
}

/* ---- printing ------------------------------------------------------------------------------ */

typedef struct {
    Text *t;
    DimNamer namer;
    void *user;
} Printer;

static void print_dim(const Printer *w, const Dim *d, bool parenthesise);

static void print_atom(const Printer *w, const Atom *m, bool alone)
{
    if (m->kind == ATOM_SYMBOL) {
        text_put(w->t, w->namer ? w->namer(m->sym, w->user) : m->sym->name);
        return;
    }
    if (m->kind == ATOM_SUM) {
        print_dim(w, m->a, true);
        return;
    }
    text_put(w->t, alone ? "" : "(");
    bool product = m->b->p.n == 1 && m->b->p.at[0].n + (m->b->p.at[0].num != 1) > 1;
    print_dim(w, m->a, true);
    text_put(w->t, w->namer ? "/" : "//");
    text_put(w->t, product ? "(" : "");
    print_dim(w, m->b, !product);
    text_put(w->t, product ? ")" : "");
    text_put(w->t, alone ? "" : ")");
}

/* |coefficient| * factors, those of positive power. */
static void print_term(const Printer *w, const Term *t, bool alone)
{
    int64_t n = t->num < 0 ? -t->num : t->num;
    bool first = true;
    if (n != 1 || t->n == 0) {
        text_add(w->t, "%lld", (long long)n);
        first = false;
    }
    alone = alone && n == 1 && t->n == 1 && t->factor[0].power == 1;
    for (int i = 0; i < t->n; i++)
        for (int e = 0; e < t->factor[i].power; e++) {
            text_put(w->t, first ? "" : "*");
            print_atom(w, t->factor[i].atom, alone);
            first = false;
        }
}

/* The first term that is added comes first, so that 4 - T does not begin with a minus. */
static void print_sum(const Printer *w, const Poly *p, bool alone)
{
    int first = 0;
    while (first < p->n && p->at[first].num < 0)
        first++;
    first = first == p->n ? 0 : first;
    if (p->n == 0)
        text_put(w->t, "0");
    for (int i = -1; i < p->n; i++) {
        const Term *t = &p->at[i < 0 ? first : i];
        if (i == first || p->n == 0)
            continue;
        text_put(w->t, i < 0 ? (t->num < 0 ? "-" : "") : t->num < 0 ? " - " : " + ");
        print_term(w, t, alone && p->n == 1 && t->num > 0);
    }
}

static void print_dim(const Printer *w, const Dim *d, bool parenthesise)
{
    if (d->p.overflow) {
        text_put(w->t, "(too large)");
        return;
    }
    Poly above = { 0 }, rest = { 0 };
    Term line;
    poly_split(d->ds, &d->p, &above, &line, &rest);
    bool whole = above.n == 0;
    bool floor_only = whole && rest.n == 1 && rest.at[0].n == 1
                      && rest.at[0].factor[0].atom->kind == ATOM_FLOOR;
    bool negative = whole && rest.n == 1 && rest.at[0].num < 0;
    bool wrap = parenthesise && (!whole || rest.n > 1 || floor_only || negative);
    text_put(w->t, wrap ? "(" : "");
    if (!whole) {
        bool several = above.n > 1, many = (line.num != 1) + line.n > 1;
        text_put(w->t, several ? "(" : "");
        print_sum(w, &above, false);
        text_put(w->t, several ? ")/" : "/");
        for (int i = 0; i < line.n; i++)
            many |= line.factor[i].power > 1;
        text_put(w->t, many ? "(" : "");
        print_term(w, &line, false);
        text_put(w->t, many ? ")" : "");
    }
    for (int i = 0; !whole && i < rest.n; i++) {
        text_put(w->t, rest.at[i].num < 0 ? " - " : " + ");
        print_term(w, &rest.at[i], false);
    }
    if (whole)
        print_sum(w, &rest, true);
    text_put(w->t, wrap ? ")" : "");
}

void dim_print(Text *t, const Dim *d, DimNamer namer, void *user, bool parenthesise_sums)
{
    print_dim(&(Printer){ t, namer, user }, d, parenthesise_sums);
}

const char *dim_text(Context *cx, const Dim *d)
{
    Text t = text_new(cx->arena);
    dim_print(&t, d, NULL, NULL, false);
    return t.at;
}

/* ---- dtypes and types ---------------------------------------------------------------------- */

const char *dtype_name(DType t)
{
    static const char *const name[DT_COUNT] = { "bool", "i32", "f32", "f64", "bf16", "f16" };
    return name[t];
}

bool dtype_is_real(DType t) { return t == DT_F32 || t == DT_F64; }

int dtype_bytes(DType t)
{
    static const int bytes[DT_COUNT] = { 1, 4, 4, 8, 2, 2 };
    return bytes[t];
}

const Type *type_of(Dims *ds, DType dtype, int rank, const Dim *const *dim)
{
    uint64_t h = hash_bytes(&dtype, sizeof dtype, 1469598103934665603u);
    for (int i = 0; i < rank; i++)
        h = hash_bytes(&dim[i]->hash, sizeof dim[i]->hash, h);
    TypeCell **bucket = &ds->types[h % N_BUCKETS];
    for (TypeCell *c = *bucket; c; c = c->next) {
        bool same = c->type.dtype == dtype && c->type.rank == rank;
        for (int i = 0; same && i < rank; i++)
            same = c->type.dim[i] == dim[i];
        if (same)
            return &c->type;
    }
    if (rank > RANK_MAX)
        bug("a type of rank %d", rank);
    TypeCell *c = NEW(ds->cx->arena, TypeCell);
    c->type.dtype = dtype;
    c->type.rank = rank;
    for (int i = 0; i < rank; i++)
        c->type.dim[i] = dim[i];
    c->next = *bucket;
    *bucket = c;
    return &c->type;
}

bool type_same_shape(const Type *a, const Type *b)
{
    if (a->rank != b->rank)
        return false;
    for (int i = 0; i < a->rank; i++)
        if (!dim_same(a->dim[i], b->dim[i]))
            return false;
    return true;
}

bool type_same(const Type *a, const Type *b)
{
    return a == b || (a->dtype == b->dtype && type_same_shape(a, b));
}

const Dim *type_elems(Dims *ds, const Type *t)
{
    const Dim *n = dim_const(ds, 1);
    for (int i = 0; i < t->rank; i++)
        n = dim_mul(ds, n, t->dim[i]);
    return n;
}

const char *type_text(Context *cx, const Type *t)
{
    Text text = text_new(cx->arena);
    text_put(&text, dtype_name(t->dtype));
    text_put(&text, "[");
    for (int i = 0; i < t->rank; i++) {
        text_put(&text, i ? "," : "");
        dim_print(&text, t->dim[i], NULL, NULL, false);
    }
    text_put(&text, "]");
    return text.at;
}
