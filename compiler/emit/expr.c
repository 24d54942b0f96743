/* expr.c -- pointwise code of the op table as C expressions, with as few parentheses as C needs.
 *
 * In: operands as text with the precedence of their outermost operator. Out: the same for the
 * result. The precedence of a row of the op table is read off its code: " + ", " ? ", "f(".
 */
#include "emit/parts.h"
#include "op/op.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *code_at_least(Emitter *e, Code a, Prec least)
{
    return a.prec >= least ? a.text : emit_format(e, "(%s)", a.text);
}

Code code_plain(const char *text) { return (Code){ text, PREC_PRIMARY, false, NULL }; }

/* ---- literals ------------------------------------------------------------------------------- */

static Code literal_int(Emitter *e, double v)
{
    const char *text = v <= -2147483648.0
                           ? "INT32_MIN"
                           : emit_format(e, "%.0f", v > 2147483647.0 ? 2147483647.0 : v);
    return (Code){ text, v < 0 ? PREC_UNARY : PREC_PRIMARY, true, text };
}

static Code literal_f32(Emitter *e, double v)
{
    char text[40];
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)(float)v);
        if (strtof(text, NULL) == (float)v)
            break;
    }
    Code c = { .prec = v < 0 || signbit(v) ? PREC_UNARY : PREC_PRIMARY, .number = true };
    c.text = emit_format(e, "%s%sf", text, strpbrk(text, ".e") ? "" : ".0");
    return c;
}

Code code_literal(Emitter *e, double v, DType t)
{
    if (t == DT_BOOL) {
        const char *text = v != 0 ? "true" : "false";
        return (Code){ text, PREC_PRIMARY, true, text };
    }
    if (t == DT_I32)
        return literal_int(e, v);
    if (t == DT_F32 && isfinite(v))
        v = (double)(float)v;
    Code c = { emit_number(e, v), v < 0 || signbit(v) ? PREC_UNARY : PREC_PRIMARY, true, NULL };
    if (isinf(v))
        c.text = v < 0 ? "-INFINITY" : "INFINITY";
    else if (isfinite(v) && t == DT_F32)
        c = literal_f32(e, v);
    if (v == floor(v) && fabs(v) <= 9999 && !(v == 0 && signbit(v)))
        c.whole = emit_format(e, "%.0f", v);
    return c;
}

/* ---- code of the op table ------------------------------------------------------------------- */

static bool has_outside(const char *code, const char *op)
{
    int depth = 0;
    for (const char *s = code; *s; s++) {
        depth += (*s == '(') - (*s == ')');
        if (depth == 0 && strncmp(s, op, strlen(op)) == 0)
            return true;
    }
    return false;
}

static Prec prec_of(const char *code)
{
    static const struct {
        const char *op;
        Prec prec;
    } table[] = {
        { " ? ", PREC_COND },      { " || ", PREC_OR },      { " && ", PREC_AND },
        { " == ", PREC_EQUAL },    { " != ", PREC_EQUAL },   { " < ", PREC_RELATION },
        { " <= ", PREC_RELATION }, { " > ", PREC_RELATION }, { " >= ", PREC_RELATION },
        { " + ", PREC_ADD },       { " - ", PREC_ADD },      { " * ", PREC_MUL },
        { " / ", PREC_MUL },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (has_outside(code, table[i].op))
            return table[i].prec;
    if (code[0] == '!')
        return PREC_NOT;
    return code[0] == '-' ? PREC_UNARY : PREC_PRIMARY;
}

/* What an operand must bind like, where the operator of the code stands beside it. */
static Prec least_for(Prec outer, bool first)
{
    switch (outer) {
    case PREC_COND: return PREC_OR;
    case PREC_OR: return first ? PREC_OR : PREC_NOT;
    case PREC_AND: return first ? PREC_AND : PREC_NOT;
    case PREC_EQUAL:
    case PREC_RELATION: return PREC_ADD;
    case PREC_ADD: return first ? PREC_ADD : PREC_MUL;
    case PREC_MUL: return first ? PREC_MUL : PREC_UNARY;
    case PREC_NOT:
    case PREC_UNARY: return PREC_PRIMARY;
    default: return PREC_NONE;
    }
}

static bool is_arithmetic(Prec p)
{
    return p == PREC_ADD || p == PREC_MUL || p == PREC_EQUAL || p == PREC_RELATION;
}

Code code_point(Emitter *e, Op op, const Code *in, int n)
{
    const char *code = e->cuda ? op_row(op)->cuda : op_row(op)->c;
    if (code == NULL)
        bug("the op %s has no code", op_row(op)->name);
    if (strcmp(code, "$0") == 0)
        return in[0];
    const Prec outer = prec_of(code);
    Text t = text_new(e->cx->scratch);
    int depth = 0;
    for (const char *s = code; *s; s++) {
        depth += (*s == '(') - (*s == ')');
        if (*s != '$' || !isdigit((unsigned char)s[1])) {
            text_putn(&t, s, 1);
            continue;
        }
        const int k = *++s - '0';
        if (k >= n)
            bug("the code of %s names operand %d of %d", op_row(op)->name, k, n);
        const Code a = in[k];
        const bool minus = a.number && a.text[0] == '-' && k > 0 && depth == 0;
        const Prec least = minus ? PREC_PRIMARY : depth > 0 ? PREC_NONE : least_for(outer, k == 0);
        const bool whole = a.number && a.whole && depth == 0 && n == 2 && is_arithmetic(outer)
                           && !in[1 - k].number;
        if (whole) /* 2*x, not 2.0f*x */
            text_put(&t, code_at_least(e, (Code){ a.whole, a.prec, true, a.whole }, least));
        else
            text_put(&t, code_at_least(e, a, least));
    }
    return (Code){ .text = t.at, .prec = outer };
}

/* What a call rounds, if the text is that call and nothing else: storing rounds just so. */
static const char *unrounded(Emitter *e, const char *text, DType to)
{
    const char *call = emit_format(e, "rt_round_%s(", dtype_name(to));
    const size_t len = strlen(call);
    int depth = 1;
    if (strncmp(text, call, len) != 0)
        return text;
    const char *s = text + len;
    for (; *s && depth > 0; s++)
        depth += *s == '(' ? 1 : *s == ')' ? -1 : 0;
    return *s ? text : emit_format(e, "%.*s", (int)(s - 1 - (text + len)), text + len);
}

Code code_cast(Emitter *e, Code a, DType from, DType to)
{
    if (from == to)
        return a;
    if (to == DT_BOOL)
        return (Code){ emit_format(e, "%s != 0", code_at_least(e, a, PREC_ADD)), PREC_EQUAL, false,
                       NULL };
    if (to == DT_BF16 || to == DT_F16)
        return code_plain(emit_format(e, "rt_to_%s(%s)", dtype_name(to), unrounded(e, a.text, to)));
    const char *type = to == DT_I32 ? "int32_t" : to == DT_F32 ? "float" : "double";
    return (Code){ emit_format(e, "(%s)%s", type, code_at_least(e, a, PREC_UNARY)), PREC_UNARY,
                   false, NULL };
}
