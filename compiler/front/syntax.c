/* syntax.c -- line ends, brackets, and mistakes inside a token.
 *
 * In: what the lexer met. Out: whether a statement goes on, and messages that name what was found
 * in the user's words, with a hint where another language's habit is likely behind it.
 */
#include "front/syntax.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- bytes --------------------------------------------------------------------------------- */

/* Length of the character at s, 0 when it is not UTF-8. */
static int character_length(const char *s, const char *end)
{
    const unsigned char *p = (const unsigned char *)s;
    int n = p[0] < 0x80   ? 1
            : p[0] < 0xc2 ? 0
            : p[0] < 0xe0 ? 2
            : p[0] < 0xf0 ? 3
            : p[0] < 0xf5 ? 4
                          : 0;
    if (n == 0 || end - s < n)
        return 0;
    for (int i = 1; i < n; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    return n;
}

bool syntax_check_bytes(Parser *p)
{
    const char *s = p->source->text, *end = s + p->source->len;
    if (p->source->len >= 3 && memcmp(s, "\xef\xbb\xbf", 3) == 0)
        p->offset = 3;
    for (int n; s < end; s += n) {
        n = character_length(s, end);
        uint32_t offset = (uint32_t)(s - p->source->text);
        Span at = { p->file, offset, offset + 1 };
        if (n > 0 && *s != '\0')
            continue;
        if (n == 0)
            diag_hint(diag_error(p->cx, at, "byte 0x%02x is not UTF-8", (unsigned char)*s),
                      "save the file as UTF-8 text");
        else
            diag_error(p->cx, at, "a zero byte: this is not a text file");
        return false;
    }
    return true;
}

/* ---- brackets and line ends ---------------------------------------------------------------- */

static void open_bracket(Parser *p, char bracket, Span at)
{
    Bracket b = { bracket, at };
    vec_push(p->cx->arena, &p->brackets, b);
    if (p->brackets.len > AST_DEPTH_MAX && !p->stopped) {
        diag_error(p->cx, at, "brackets nested more than %d deep", AST_DEPTH_MAX);
        p->stopped = true;
    }
}

/* Inner ones that stayed open are forgotten, but ) and ] close nothing that is outside a {. */
static void close_bracket(Parser *p, char bracket)
{
    char open = bracket == ')' ? '(' : bracket == ']' ? '[' : '{';
    int n = p->brackets.len;
    while (n > 0 && p->brackets.at[n - 1].open != open
           && (open == '{' || p->brackets.at[n - 1].open != '{'))
        n--;
    if (n > 0 && p->brackets.at[n - 1].open == open)
        p->brackets.len = n - 1;
}

void syntax_count_bracket(Parser *p)
{
    if (p->bracket == '(' || p->bracket == '[' || p->bracket == '{')
        open_bracket(p, p->bracket, p->now.at);
    else if (p->bracket != '\0')
        close_bracket(p, p->bracket);
    p->bracket = '\0';
}

bool syntax_in_parentheses(const Parser *p)
{
    return p->brackets.len > 0 && p->brackets.at[p->brackets.len - 1].open != '{';
}

void syntax_recover(Parser *p)
{
    p->recovering = true;
    while (syntax_in_parentheses(p)) /* one of them may be what is wrong */
        p->brackets.len--;
}

static bool is_letter(char c)
{
    return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/* Is the word at s one of the list? */
static bool is_one_of(const char *s, size_t len, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strlen(list[i]) == len && memcmp(s, list[i], len) == 0)
            return true;
    return false;
}

/* Does a statement begin at s, whatever stands before? These words are never operands. */
static bool begins_statement(const char *s, bool after_operand)
{
    static const char *const words[] = {
        "const", "param", "output", "metric", "return",  "yield",
        "layer", "func",  "model",  "train",  "include", "dim",
    };
    static const char *const words_before_a_name[] = { "batch", "state", "entry", "loss",
                                                       "optimizer" };
    size_t len = 0;
    while (is_letter(s[len]))
        len++;
    const char *behind = s + len + strspn(s + len, " \t");
    if (*s == '}')
        return true;
    if (len == 0 || *behind == ':')
        return false; /* dim: 1, an argument with such a name */
    if (after_operand && behind[0] == '=' && behind[1] != '=')
        return true;
    if (is_one_of(s, len, words_before_a_name,
                  sizeof words_before_a_name / sizeof *words_before_a_name))
        return is_letter(*behind);
    return *behind != '=' && is_one_of(s, len, words, sizeof words / sizeof *words);
}

bool syntax_line_joins(const Parser *p)
{
    static const char *const words[] = { "else", "then", "gradient" };
    const char *s = p->source->text + p->offset;
    size_t len = 0;
    if (p->ended)
        return true;
    while (*s == '#' || (*s != '\0' && strchr(" \t\r\n", *s) != NULL)) {
        if (*s == '#')
            s += strcspn(s, "\n");
        else
            s++;
    }
    if (p->joins || syntax_in_parentheses(p))
        return !begins_statement(s, p->now.value);
    while (is_letter(s[len]))
        len++;
    return *s == '{' || strncmp(s, "->", 2) == 0
           || is_one_of(s, len, words, sizeof words / sizeof *words);
}

/* ---- mistakes inside a token --------------------------------------------------------------- */

static const char *token_text(const Parser *p, Span at)
{
    return arena_strndup(p->cx->arena, p->source->text + at.lo, at.hi - at.lo);
}

void syntax_bad_string(Parser *p, Span at)
{
    if (!p->recovering)
        diag_hint(diag_error(p->cx, at, "this string has no end"),
                  "a string ends with \" on the same line");
}

void syntax_bad_character(Parser *p, Span at)
{
    static const struct {
        const char *seen, *use;
    } likely[] = {
        { "\xe2\x80\x9c", "\"" }, { "\xe2\x80\x9d", "\"" },  { "\xe2\x80\x98", "\"" },
        { "\xe2\x80\x99", "'" },  { "\xe2\x88\x92", "-" },   { "\xe2\x80\x93", "-" },
        { "\xe2\x80\x94", "-" },  { "\xc3\x97", "*" },       { "\xc2\xb7", "*" },
        { "\xe2\x88\x99", "*" },  { "\xe2\x89\xa4", "<=" },  { "\xe2\x89\xa5", ">=" },
        { "\xe2\x89\xa0", "!=" }, { "\xe2\x80\xa6", "..." }, { "\xe2\x86\x92", "->" },
        { "\xe2\x86\x90", "<-" }, { "\xe1\xb5\x80", "'" },
    };
    const char *s = p->source->text + at.lo;
    int n = character_length(s, p->source->text + p->source->len);
    at.hi = at.lo + (uint32_t)(n > 0 ? n : 1);
    if (p->recovering)
        return;
    if ((unsigned char)*s < 0x20 || *s == 0x7f) {
        diag_error(p->cx, at, "the control character 0x%02x has no meaning", (unsigned)*s);
        return;
    }
    Diag *d = diag_error(p->cx, at, "the character %s has no meaning here", token_text(p, at));
    for (size_t i = 0; i < sizeof likely / sizeof *likely; i++)
        if (strncmp(s, likely[i].seen, strlen(likely[i].seen)) == 0)
            diag_hint(d, "write %s", likely[i].use);
    if ((unsigned char)*s >= 0x80 && p->now.name && p->now.at.hi == at.lo)
        diag_hint(d, "names are written with the letters a to z, digits and _");
}

void syntax_bad_number(Parser *p, Span at)
{
    if (p->recovering)
        return;
    const char *text = token_text(p, at);
    size_t digits = strspn(text, "0123456789.");
    Diag *d = diag_error(p->cx, at, "%s is neither a number nor a name", text);
    if (text[digits] == 'x' || text[digits] == 'X')
        diag_hint(d, "numbers are decimal");
    else if ((text[digits] == 'e' || text[digits] == 'E') && text[digits + 1] == '\0')
        diag_hint(d, "an exponent needs digits, as in 1e-3");
    else
        diag_hint(d, "a product is written %.*s*%s; a name begins with a letter", (int)digits, text,
                  text + digits);
}

void syntax_bad_point(Parser *p, Span at)
{
    if (p->recovering)
        return;
    const char *text = token_text(p, at);
    Diag *d = diag_error(p->cx, at, "a point needs digits on both sides");
    diag_hint(d, *text == '.' ? "write 0%s" : "write %s0", text);
}

void syntax_bad_sign(Parser *p, Span at)
{
    static const struct {
        const char *seen, *hint;
    } likely[] = {
        { "**", "power is written ^" },
        { "&&", "write and" },
        { "||", "write or" },
        { "!", "write not" },
        { "/*", "a comment begins with #" },
        { "//", "a comment begins with #" },
        { "'", "a string is written with \"; ' behind a value swaps its last two axes" },
    };
    if (p->recovering)
        return;
    const char *text = token_text(p, at);
    Diag *d = diag_error(p->cx, at, "%s has no meaning here", text);
    for (size_t i = 0; i < sizeof likely / sizeof *likely; i++)
        if (strcmp(text, likely[i].seen) == 0)
            diag_hint(d, "%s", likely[i].hint);
    if (strlen(text) == 2 && text[1] == '=')
        diag_hint(d, "write x = x %c ...", text[0]);
}

const char *syntax_string(Parser *p, Span at, const char *s, size_t len)
{
    Text t = text_new(p->cx->arena);
    for (size_t i = 0; i < len; i++) {
        char c = s[i];
        if (c == '\\') {
            c = s[++i];
            if (c != '"' && c != '\\' && c != 'n' && c != 't') {
                uint32_t lo = at.lo + (uint32_t)i;
                Span here = { at.file, lo, lo + 2 };
                if (p->recovering)
                    return NULL;
                diag_hint(diag_error(p->cx, here, "\\%c means nothing in a string", c),
                          "there are \\\" \\\\ \\n and \\t");
                return NULL;
            }
            c = c == 'n' ? '\n' : c == 't' ? '\t' : c;
        }
        text_putn(&t, &c, 1);
    }
    return intern_n(p->cx, t.at, t.len);
}

bool syntax_whole(Parser *p, Span at, const char *s, int64_t *value)
{
    errno = 0;
    long long v = strtoll(s, NULL, 10);
    *value = (int64_t)v;
    if (errno == 0)
        return true;
    if (!p->recovering)
        diag_hint(diag_error(p->cx, at, "this whole number is too large"),
                  "the largest is %lld; write 1e30 for a real number", (long long)INT64_MAX);
    return false;
}

bool syntax_real(Parser *p, Span at, const char *s, double *value)
{
    *value = strtod(s, NULL);
    if (*value <= 1.7976931348623157e308)
        return true;
    if (!p->recovering)
        diag_error(p->cx, at, "this number is too large");
    return false;
}

bool syntax_bytes(Parser *p, Span at, const char *s, Number *n)
{
    static const char prefixes[] = "kMGT";
    const char *unit = s + strcspn(s, "KkMGT");
    const double base = unit[1] == 'i' ? 1024 : 1000;
    if (!syntax_real(p, at, s, &n->real))
        return false;
    const char *prefix = strchr(prefixes, *unit == 'K' ? 'k' : *unit);
    for (ptrdiff_t i = prefix - prefixes; i >= 0; i--)
        n->real *= base;
    n->is_whole = n->real < 9e15 && n->real <= (double)(int64_t)n->real;
    n->whole = n->is_whole ? (int64_t)n->real : 0;
    return true;
}
