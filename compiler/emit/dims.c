/* dims.c -- sizes as C expressions.
 *
 * In: a dim and a scope that says how run-time dims are written ("n.B" in functions, "B" in
 * kernels). Out: text; the scope remembers which run-time dims it used. Products of constants that
 * leave the range of int are computed in ptrdiff_t.
 */
#include "emit/parts.h"

#include <string.h>

DimScope dim_scope(Emitter *e, const char *prefix)
{
    DimScope s = { e, prefix, NEW_ARRAY(e->cx->scratch, bool, dims_count(e->p->dims) + 1) };
    return s;
}

static const char *name_narrow(const Symbol *sym, void *user)
{
    DimScope *s = user;
    if (sym->kind == SYM_CONST)
        return s->e->symbol[sym->id];
    s->used[sym->id] = true;
    return s->prefix[0] == '\0' ? s->e->symbol[sym->id]
                                : emit_format(s->e, "%s%s", s->prefix, s->e->symbol[sym->id]);
}

static const char *name_wide(const Symbol *sym, void *user)
{
    DimScope *s = user;
    const char *name = name_narrow(sym, user);
    return sym->kind == SYM_CONST ? emit_format(s->e, "(ptrdiff_t)%s", name) : name;
}

/* The value with every run-time dim set to 1: what is computed in int at most. */
static bool constants_fit(Emitter *e, const Dim *d)
{
    const int n = dims_count(e->p->dims);
    int64_t *values = NEW_ARRAY(e->cx->scratch, int64_t, n + 1);
    for (int i = 0; i < n; i++) {
        const Symbol *s = dims_at(e->p->dims, i);
        values[i] = s->kind == SYM_CONST ? s->value : 1;
    }
    const int64_t v = dim_eval(d, values);
    return v >= -1 && v <= INT32_MAX;
}

static const char *print(DimScope *s, const Dim *d, bool factor)
{
    Text t = text_new(s->e->cx->scratch);
    if (d == NULL)
        return "0";
    dim_print(&t, d, constants_fit(s->e, d) ? name_narrow : name_wide, s, factor);
    return t.at;
}

const char *dim_c(DimScope *s, const Dim *d) { return print(s, d, false); }

const char *dim_c_factor(DimScope *s, const Dim *d) { return print(s, d, true); }

/* Is the text one name, one number, or one pair of parentheses? */
static bool is_closed(const char *text)
{
    int depth = 0;
    if (text[0] != '(')
        return strpbrk(text, "*/+- ") == NULL;
    for (; *text; text++) {
        depth += (*text == '(') - (*text == ')');
        if (depth == 0)
            return text[1] == '\0';
    }
    return false;
}

const char *dim_c_divisor(DimScope *s, const Dim *d)
{
    const char *text = print(s, d, true);
    return is_closed(text) ? text : emit_format(s->e, "(%s)", text);
}

bool dim_any_used(const DimScope *s)
{
    for (int i = 0; i < dims_count(s->e->p->dims); i++)
        if (s->used[i])
            return true;
    return false;
}

bool dim_is(const Dim *d, int64_t value)
{
    int64_t v = 0;
    return d == NULL ? value == 0 : dim_value(d, &v) && v == value;
}

bool dim_fits_int(Emitter *e, const Dim *d)
{
    int64_t v = 0;
    (void)e;
    return d == NULL || (dim_value(d, &v) && v <= INT32_MAX && v >= INT32_MIN);
}

const Dim *dim_one(Emitter *e) { return dim_const(e->p->dims, 1); }

int64_t emit_train_value(Emitter *e, const Dim *d)
{
    return dim_eval(d, program_training_dims(e->p));
}
