/* emit.c -- names, literals, comments and layout of an emitted file.
 *
 * In: names of the model, numbers, pieces of text. Out: identifiers that neither C nor rt.h knows
 * and that do not hide each other; literals; comments that end where they should; lines of at most
 * 100 columns. Nothing here knows a target's kernels.
 */
#include "emit/parts.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *emit_format(Emitter *e, const char *fmt, ...)
{
    Text t = text_new(e->cx->scratch);
    va_list ap;
    va_start(ap, fmt);
    text_addv(&t, fmt, ap);
    va_end(ap);
    return t.at;
}

/* ---- names ---------------------------------------------------------------------------------- */

/* Words of C, of the headers that rt.h includes, and names that every emitted file uses itself. */
static const char *const reserved[] = {
    "auto",      "break",       "case",      "char",     "const",     "continue", "default",
    "do",        "double",      "else",      "enum",     "extern",    "float",    "for",
    "goto",      "if",          "inline",    "int",      "long",      "register", "restrict",
    "return",    "short",       "signed",    "sizeof",   "static",    "struct",   "switch",
    "typedef",   "union",       "unsigned",  "void",     "volatile",  "while",    "_Bool",
    "bool",      "true",        "false",     "asm",      "class",     "new",      "delete",
    "this",      "template",    "private",   "public",   "protected", "operator", "namespace",
    "virtual",   "try",         "catch",     "throw",    "using",     "typename", "explicit",
    "friend",    "NULL",        "NAN",       "INFINITY", "HUGE_VAL",  "EOF",      "offsetof",
    "errno",     "assert",      "main",      "stdin",    "stdout",    "stderr",   "size_t",
    "ptrdiff_t", "wchar_t",     "int8_t",    "int16_t",  "int32_t",   "int64_t",  "uint8_t",
    "uint16_t",  "uint32_t",    "uint64_t",  "float_t",  "double_t",  "abs",      "acos",
    "acosh",     "asin",        "asinh",     "atan",     "atan2",     "atanh",    "cbrt",
    "ceil",      "copysign",    "cos",       "cosh",     "erf",       "erfc",     "exp",
    "exp2",      "expm1",       "fabs",      "fdim",     "floor",     "fma",      "fmax",
    "fmin",      "fmod",        "frexp",     "gamma",    "hypot",     "index",    "isnan",
    "isinf",     "isfinite",    "j0",        "j1",       "jn",        "ldexp",    "lgamma",
    "log",       "log10",       "log1p",     "log2",     "logb",      "lrint",    "lround",
    "memcmp",    "memcpy",      "memmove",   "memset",   "modf",      "nan",      "nearbyint",
    "nextafter", "pow",         "remainder", "remquo",   "rint",      "round",    "scalb",
    "scalbn",    "significand", "signgam",   "sin",      "sinh",      "sqrt",     "strcat",
    "strcmp",    "strcpy",      "strlen",    "tan",      "tanh",      "tgamma",   "trunc",
    "y0",        "y1",          "yn",        "linux",    "unix",      "i386",     "Dims",
    "Plan",      "run",         "arena",     "at",       "add",       "later",    "add_later",
    "key",       "sample",      "stream",    "i",        "j",         "chunk",    "chunks",
    "block",     "from",        "to",        "end",      "part",      "row",      "micro",
    "dims",      "n",           "s",         "p",        "d_p",
};

/* More words of C++, and what CUDA calls threads and blocks. */
static const char reserved_in_cuda[] =
    " alignas alignof and and_eq bitand bitor char8_t char16_t char32_t co_await co_return co_yield"
    " compl concept const_cast consteval constexpr constinit decltype dynamic_cast export mutable"
    " noexcept not not_eq nullptr or or_eq reinterpret_cast requires static_assert static_cast"
    " thread_local typeid xor xor_eq signbit isnormal"
    " threadIdx blockIdx blockDim gridDim warpSize ";

bool emit_is_reserved(const char *name)
{
    const char *found = strstr(reserved_in_cuda, name);
    for (; found && *found; found = strstr(found + 1, name))
        if (found > reserved_in_cuda && found[-1] == ' ' && found[strlen(name)] == ' ')
            return true;
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        if (strcmp(reserved[i], name) == 0)
            return true;
    if (name[0] == 'k' && isdigit((unsigned char)name[1]))
        return true;
    return strncmp(name, "rt_", 3) == 0 || strncmp(name, "RT_", 3) == 0
           || strncmp(name, "Rt", 2) == 0 || strncmp(name, "P_", 2) == 0
           || strncmp(name, "S_", 2) == 0 || strncmp(name, "__", 2) == 0
           || (name[0] == '_' && isupper((unsigned char)name[1]));
}

const char *emit_identifier(Emitter *e, const char *want)
{
    Text t = text_new(e->cx->scratch);
    if (want[0] == '\0' || isdigit((unsigned char)want[0]))
        text_put(&t, "v");
    for (const char *s = want; *s; s++)
        text_add(&t, "%c", isalnum((unsigned char)*s) ? *s : '_');
    return intern(e->cx, t.at);
}

Names *names_new(Emitter *e, const Names *outer)
{
    Names *n = NEW(e->cx->scratch, Names);
    n->outer = outer;
    n->taken = map_new(e->cx->scratch);
    return n;
}

bool names_taken(Emitter *e, const Names *n, const char *name)
{
    name = intern(e->cx, name);
    for (; n; n = n->outer)
        if (map_get(n->taken, name))
            return true;
    return false;
}

const char *names_take_exact(Emitter *e, Names *n, const char *want)
{
    const char *name = intern(e->cx, want);
    for (int k = 2; names_taken(e, n, name); k++)
        name = intern_printf(e->cx, "%s_%d", want, k);
    map_set(n->taken, name, (void *)(uintptr_t)name);
    return name;
}

const char *names_take(Emitter *e, Names *n, const char *want)
{
    const char *base = emit_identifier(e, want);
    if (emit_is_reserved(base))
        base = emit_format(e, "%s_", base);
    return names_take_exact(e, n, base);
}

/* ---- literals ------------------------------------------------------------------------------- */

const char *emit_number(Emitter *e, double v)
{
    char text[40];
    if (isnan(v))
        return "NAN";
    if (isinf(v))
        return v < 0 ? "-INFINITY" : "INFINITY";
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v) /* -0.0 == 0.0, and %g keeps the sign */
            break;
    }
    return emit_format(e, "%s%s", text, strpbrk(text, ".e") ? "" : ".0");
}

const char *emit_string(Emitter *e, const char *s)
{
    Text t = text_new(e->cx->scratch);
    if (s == NULL)
        return "NULL";
    text_put(&t, "\"");
    for (; *s; s++) {
        const unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\')
            text_add(&t, "\\%c", c);
        else if (c == '?' && s[1] == '?') /* no trigraphs */
            text_put(&t, "?\" \"");
        else if (c < 32 || c == 127)
            text_add(&t, "\\%03o", c);
        else
            text_add(&t, "%c", c);
    }
    text_put(&t, "\"");
    return t.at;
}

const char *emit_bytes(Emitter *e, int64_t bytes)
{
    static const char *const unit[] = { "B", "KiB", "MiB", "GiB", "TiB" };
    double v = (double)bytes;
    int u = 0;
    while (v >= 1024 && u < 4) {
        v /= 1024;
        u++;
    }
    return emit_format(e, v < 10 && u > 0 ? "%.1f %s" : "%.0f %s", v, unit[u]);
}

const char *emit_count(Emitter *e, int64_t n)
{
    char digits[32];
    Text t = text_new(e->cx->scratch);
    int len = snprintf(digits, sizeof digits, "%lld", (long long)n);
    for (int i = 0; i < len; i++)
        text_add(&t, "%s%c", i > 0 && (len - i) % 3 == 0 && digits[i - 1] != '-' ? "," : "",
                 digits[i]);
    return t.at;
}

const char *emit_shape(Emitter *e, const Type *type)
{
    Text t = text_new(e->cx->scratch);
    if (type->rank == 0)
        return "scalar";
    for (int i = 0; i < type->rank; i++)
        text_add(&t, "%s%s", i ? "," : "[", dim_text(e->cx, type->dim[i]));
    text_put(&t, "]");
    return t.at;
}

/* ---- comments ------------------------------------------------------------------------------- */

static size_t width_of(const char *s, size_t len)
{
    size_t width = 0;
    for (size_t i = 0; i < len; i++)
        width += ((unsigned char)s[i] & 0xc0) != 0x80;
    return width;
}

const char *emit_comment(Emitter *e, const char *s, size_t width)
{
    Text t = text_new(e->cx->scratch);
    for (; s && *s; s++) {
        const char last = t.len ? t.at[t.len - 1] : ' ';
        if ((*s == '/' && last == '*') || (*s == '*' && last == '/') || (*s == '?' && last == '?'))
            text_put(&t, " ");
        if ((unsigned char)*s >= 32 && *s != '\\')
            text_putn(&t, s, 1);
        else
            text_put(&t, " ");
    }
    if (width_of(t.at, t.len) <= width)
        return t.at;
    size_t keep = 0;
    for (size_t w = 0; keep < t.len && w + 3 < width; keep++)
        w += ((unsigned char)t.at[keep + 1] & 0xc0) != 0x80;
    while (keep > 0 && t.at[keep - 1] == ' ')
        keep--;
    Text cut = text_new(e->cx->scratch);
    text_putn(&cut, t.at, keep);
    text_put(&cut, "...");
    return cut.at;
}

const char *emit_source_line(Emitter *e, Span at)
{
    const char *line = source_text_line(e->cx, at);
    bool quoted = false;
    size_t len = 0;
    while (line[len] && (quoted || line[len] != '#'))
        quoted ^= line[len++] == '"';
    while (len > 0 && line[len - 1] == ' ')
        len--;
    return emit_format(e, "%.*s", (int)len, line);
}

/* ---- layout --------------------------------------------------------------------------------- */

static size_t column_of(const Text *t)
{
    size_t i = t->len;
    while (i > 0 && t->at[i - 1] != '\n')
        i--;
    return width_of(t->at + i, t->len - i);
}

static void spaces(Text *t, size_t n)
{
    for (size_t i = 0; i < n; i++)
        text_put(t, " ");
}

void emit_call(Text *t, int indent, const char *head, const char *const *arg, int n,
               const char *tail)
{
    spaces(t, (size_t)indent);
    text_put(t, head);
    size_t column = column_of(t), widest = 0;
    for (int i = 0; i < n; i++) {
        const size_t need = strlen(arg[i]) + (i + 1 < n ? 1 : strlen(tail));
        widest = need > widest ? need : widest;
    }
    if (column >= COLUMNS / 2 || column + widest > COLUMNS)
        column = (size_t)indent + 2 * INDENT;
    for (int i = 0; i < n; i++) {
        const size_t need = strlen(arg[i]) + (i + 1 < n ? 1 : strlen(tail));
        if (i > 0 && column_of(t) + 1 + need > COLUMNS) {
            text_put(t, "\n");
            spaces(t, column);
        } else if (i > 0) {
            text_put(t, " ");
        }
        text_add(t, "%s%s", arg[i], i + 1 < n ? "," : "");
    }
    text_put(t, tail);
}

/* Does a break at the space s[i] tear a product apart, or "name = value" in a list of them? */
static bool tears(const char *s, size_t i, int depth)
{
    const bool product = strchr("*/", s[i - 1]) || strchr("*/", s[i + 1]);
    return product || (depth > 0 && (s[i - 1] == '=' || s[i + 1] == '='));
}

/* Where to break: the last space before the limit that is not inside a string, in the second half
   of the line at the one with the fewest brackets open around it, not in a product if it can be.
   0 = none. */
static size_t break_point(const char *s, size_t room)
{
    size_t best = 0;
    int depth = 0, best_cost = 0;
    bool quoted = false;
    for (size_t i = 0; s[i] && i <= room; i++) {
        if (s[i] == '"' && (i == 0 || s[i - 1] != '\\'))
            quoted = !quoted;
        if (quoted)
            continue;
        depth += s[i] == '(' || s[i] == '[' || s[i] == '{';
        depth -= s[i] == ')' || s[i] == ']' || s[i] == '}';
        if (s[i] != ' ' || i == 0)
            continue;
        const int cost = 2 * depth + tears(s, i, depth);
        if (best > room / 2 && cost > best_cost)
            continue;
        best = i;
        best_cost = cost;
    }
    return best;
}

void emit_statement(Text *t, int indent, const char *s)
{
    size_t column = (size_t)indent;
    spaces(t, column);
    while (column + strlen(s) > COLUMNS) {
        const size_t at = break_point(s, COLUMNS - column);
        if (at == 0)
            break;
        text_putn(t, s, at);
        text_put(t, "\n");
        s += at + 1;
        column = (size_t)indent + 2 * INDENT;
        spaces(t, column);
    }
    text_add(t, "%s\n", s);
}

void emit_prose(Text *t, const char *first, const char *later, const char *s)
{
    text_put(t, first);
    while (column_of(t) + strlen(s) > COLUMNS) {
        const size_t at = break_point(s, COLUMNS - column_of(t));
        if (at == 0)
            break;
        text_putn(t, s, at);
        text_add(t, "\n%s", later);
        s += at + 1;
    }
    text_put(t, s);
}

void emit_banner(Emitter *e, int number, const char *title)
{
    const bool apart = e->out->len > 1 && e->out->at[e->out->len - 2] == '\n';
    text_add(e->out, "%s/* ---- %d %s ", apart ? "" : "\n", number, title);
    while (column_of(e->out) < 76)
        text_put(e->out, "-");
    text_put(e->out, " */\n\n");
}

/* A line of so many bytes, as a statement. */
static void put_long(Text *t, const char *s, size_t len)
{
    const size_t indent = strspn(s, " ");
    Text line = text_new(t->arena);
    text_putn(&line, s + indent, len - indent);
    emit_statement(t, (int)indent, line.at);
}

void emit_aligned(Text *t, const char *lines, size_t least)
{
    size_t column = least;
    for (const char *s = lines; *s;) {
        const size_t len = strcspn(s, "\n"), tab = strcspn(s, "\t\n");
        const size_t left = width_of(s, tab);
        const size_t right = tab < len ? width_of(s + tab + 1, len - tab - 1) : 0;
        const bool beside = tab < len && left + 1 + right <= COLUMNS;
        column = beside && left + 1 > column ? left + 1 : column;
        s += len + (s[len] == '\n');
    }
    for (const char *s = lines; *s;) {
        const size_t len = strcspn(s, "\n"), tab = strcspn(s, "\t\n");
        const size_t left = width_of(s, tab);
        const size_t right = tab < len ? width_of(s + tab + 1, len - tab - 1) : 0;
        if (tab < len && left + 1 + right > COLUMNS) { /* the comment above its line */
            spaces(t, strspn(s, " "));
            text_putn(t, s + tab + 1, right ? len - tab - 1 : 0);
            text_put(t, "\n");
        }
        if (left > COLUMNS) {
            put_long(t, s, tab);
        } else {
            text_putn(t, s, tab);
            if (tab < len && left + 1 + right <= COLUMNS) {
                text_pad(t, column + right > COLUMNS ? COLUMNS - right : column);
                text_putn(t, s + tab + 1, len - tab - 1);
            }
            text_put(t, "\n");
        }
        s += len + (s[len] == '\n');
    }
}
