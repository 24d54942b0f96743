/* syntax_error.c -- what is said about a token that does not fit.
 *
 * In: the token, and the tokens that would fit. Out: one message in the user's words. A parser that
 * could go on with any of thirty tokens wants "an expression"; the sets are named here.
 */
#include "front/syntax.h"

#include <string.h>

enum { SHOWN_MAX = 4, CLIP = 40 };

typedef struct {
    const char *const *name;
    int n;
} Expected;

static bool is_in(const char *word, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i], word) == 0)
            return true;
    return false;
}

static bool wants(Expected e, const char *name) { return is_in(name, e.name, (size_t)e.n); }

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/* "layer" is a word of the language, "'('" is a sign, "a name" is a kind of token. */
static bool is_keyword(const char *name) { return is_letter(name[0]) && strchr(name, ' ') == NULL; }

static bool is_operator(const char *name)
{
    static const char *const all[] = {
        "'+'", "'-'", "'*'", "'/'", "//", "'%'", "'@'", "'^'", "==",  "!=",    "'<'",
        "<=",  "'>'", ">=",  "and", "or", "..",  "'('", "'['", "'.'", "'\\''",
    };
    return is_in(name, all, sizeof all / sizeof *all);
}

static bool begins_expression(const char *name)
{
    static const char *const all[] = {
        "a name", "a number", "a string", "'('", "'['", "'-'", "not", "if", "true", "false",
    };
    return is_keyword(name) || is_in(name, all, sizeof all / sizeof *all);
}

/* The sets that have a name of their own; sets what they cover. */
static const char *name_of_set(Expected e, bool (**covers)(const char *))
{
    *covers = begins_expression;
    if (wants(e, "a number"))
        return wants(e, "':'")                           ? "an index"
               : wants(e, "every") && !wants(e, "along") ? "a value"
                                                         : "an expression";
    *covers = is_keyword;
    if (wants(e, "a name") && wants(e, "along"))
        return wants(e, "'}'") || wants(e, "','") ? "a setting" : "a name";
    if (wants(e, "return"))
        return "a statement";
    if (wants(e, "layer"))
        return "a declaration";
    *covers = is_operator;
    return NULL;
}

static const char *quoted(Context *cx, const char *name)
{
    bool bare = strchr(name, ' ') != NULL || name[0] == '\'';
    if (strcmp(name, "'\\''") == 0)
        return "'";
    return bare ? name : arena_printf(cx->arena, "'%s'", name);
}

/* "',' or ')'", "an expression", "a name": what would fit, the most telling first. */
static const char *expected_text(Context *cx, Expected e)
{
    bool (*covers)(const char *);
    const char *set = name_of_set(e, &covers);
    const char *item[SHOWN_MAX];
    int n = 0;
    bool operators = wants(e, "'*'");
    if (wants(e, "<-"))
        return "'=', ':' or '<-'";
    if (set != NULL)
        item[n++] = set;
    for (int i = 0; i < e.n; i++) {
        const char *name = e.name[i];
        bool index = set != NULL && wants(e, "a number") && wants(e, "':'");
        if ((set != NULL && (covers(name) || strcmp(name, "a name") == 0))
            || (operators && is_operator(name))
            || (index && (name[0] == '.' || strcmp(name, "':'") == 0))
            || ((strcmp(name, "'}'") == 0 || strcmp(name, "'{'") == 0)
                && wants(e, "the end of the line"))
            || (strcmp(name, "the end of the line") == 0 && set != NULL)
            || (strcmp(name, "the end of the file") == 0))
            continue;
        if (n == SHOWN_MAX)
            break;
        item[n++] = quoted(cx, name);
    }
    if (n == 0)
        return operators ? "an operator" : "nothing more";
    Text t = text_new(cx->arena);
    for (int i = 0; i < n; i++)
        text_add(&t, "%s%s", i == 0 ? "" : i + 1 == n ? " or " : ", ", item[i]);
    return t.at;
}

static const char *source_piece(const Parser *p, Span at)
{
    size_t len = at.hi - at.lo;
    return arena_printf(p->cx->arena, "%.*s%s", (int)(len > CLIP ? CLIP : len),
                        p->source->text + at.lo, len > CLIP ? "..." : "");
}

static const char *found_text(const Parser *p, Span at, const char *found)
{
    if (strncmp(found, "the end", 7) == 0)
        return found;
    if (is_keyword(found))
        return arena_printf(p->cx->arena, "the word '%s'", found);
    if (strcmp(found, "a string") == 0)
        return source_piece(p, at);
    return arena_printf(p->cx->arena, "'%s'", source_piece(p, at));
}

/* ---- hints --------------------------------------------------------------------------------- */

/* A statement that begins with a word that is none of ours, but nearly, or of other languages. */
static void hint_first_word(Parser *p, Diag *d, bool statement)
{
    static const struct {
        const char *word, *hint;
    } foreign[] = {
        { "def", "a function is written: func f(x) { return ... }" },
        { "fn", "a function is written: func f(x) { return ... }" },
        { "function", "a function is written: func f(x) { return ... }" },
        { "class", "a layer is written: layer name[C](x: [B, C]) { ... }" },
        { "import", "a file is taken in with: include \"layers.model\"" },
        { "elif", "write: else if" },
        { "while", "loops are written: for i in 0..L { ... }, or: for x in xs along T { ... }" },
        { "let", "a value gets its name by: y = f(x)" },
        { "var", "a value gets its name by: y = f(x)" },
    };
    static const char *const declarations[] = {
        "const", "batch", "dim", "layer", "func", "model", "train", "include", "optimizer",
    };
    static const char *const statements[] = {
        "const",  "param", "output", "metric", "loss",  "state",
        "return", "yield", "if",     "for",    "entry", "else",
    };
    if (!p->line.name)
        return;
    const char *word = source_piece(p, p->line.at);
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        if (strcmp(word, foreign[i].word) == 0) {
            diag_hint(d, "%s", foreign[i].hint);
            return;
        }
    const char *behind = p->source->text + p->line.at.hi;
    if (!statement && behind[strspn(behind, " \t")] == '=') {
        diag_hint(d, "a constant is written: const %s = ...", word);
        return;
    }
    const char *near = statement
                           ? diag_suggest(word, statements, sizeof statements / sizeof *statements)
                           : diag_suggest(word, declarations,
                                          sizeof declarations / sizeof *declarations);
    if (near != NULL)
        diag_hint(d, "did you mean %s?", near);
}

/* Inside the braces of train { ... }? There = sets a value and == has no use. */
static bool in_settings(const Parser *p)
{
    uint32_t at = p->brackets.len ? p->brackets.at[0].at.lo : 0;
    while (at > 0 && strchr(" \t\r\n", p->source->text[at - 1]))
        at--;
    return at >= 5 && strncmp(p->source->text + at - 5, "train", 5) == 0;
}

/* "Gib", "mb", "KB": a unit of bytes, were it written right. */
static bool is_like_unit(const char *word)
{
    const size_t n = strlen(word);
    return (n == 2 || (n == 3 && (word[1] == 'i' || word[1] == 'I')))
           && strchr("kKmMgGtT", word[0]) != NULL && (word[n - 1] == 'b' || word[n - 1] == 'B');
}

static void add_hints(Parser *p, Diag *d, Span at, const char *found, Expected e)
{
    static const char *const comparisons[] = { "'<'", "<=", "'>'", ">=", "==", "!=" };
    const char *before = source_piece(p, p->before.at);
    bool in_braces = p->brackets.len > 0;
    bool compared = wants(e, "'*'") && !wants(e, "==");
    if (source_has_before(p->cx, at, "//"))
        diag_hint(d, "a comment begins with #; // divides and rounds down");
    else if (is_keyword(found) && wants(e, "a name") && !wants(e, "return"))
        diag_hint(d, "%s is a word of the language: choose another name", found);
    else if (strcmp(found, "':'") == 0 && wants(e, "'*'") && wants(e, "']'"))
        diag_hint(d, "a range is written with two points: a..b");
    else if (strcmp(found, "'='") == 0 && wants(e, "':'") && wants(e, "']'"))
        diag_hint(d, "in brackets a default is written %s: value", before);
    else if (strcmp(found, "a number") == 0 && wants(e, "a name") && wants(e, "'['"))
        diag_hint(d, "behind : stands a type; a default is written name = value");
    else if (strcmp(found, "'='") == 0 && wants(e, "':'") && wants(e, "')'"))
        diag_hint(d, "a named argument is written %s: value", before);
    else if (strcmp(found, "'='") == 0
             && (strcmp(before, "output") == 0 || strcmp(before, "metric") == 0))
        diag_hint(d, "it needs a name: %s y = ...", before);
    else if (strcmp(found, "'='") == 0 && wants(e, "'*'") && !in_settings(p))
        diag_hint(d, "equality is written ==");
    else if (compared && is_in(found, comparisons, 6))
        diag_hint(d, "comparisons and ranges do not chain: a < b and b < c, (a..b) > c");
    else if (strcmp(found, "'('") == 0 && p->before.first && wants(e, "'='"))
        diag_hint(d, "a call alone has no effect: name its value, as in y = %s(...)", before);
    else if (strcmp(found, "'['") == 0 && p->before.first && wants(e, "'='"))
        diag_hint(d, "values do not change in place: make a new one, as in y = where(...)");
    else if (before[0] >= '0' && before[0] <= '9' && is_like_unit(source_piece(p, at)))
        diag_hint(d, "units of bytes are KiB, MiB, GiB, TiB and kB, MB, GB, TB");
    else if (p->now.first || p->before.first)
        hint_first_word(p, d, in_braces);
}

/* ---- the message --------------------------------------------------------------------------- */

static bool begins_declaration(const char *found)
{
    static const char *const all[] = {
        "layer", "func", "model", "train", "include", "batch", "dim",
    };
    return is_in(found, all, sizeof all / sizeof *all);
}

/* A bracket that stays open swallows the lines behind it; the mistake is at the bracket. */
static bool report_open_bracket(Parser *p, Span at, const char *found)
{
    const Bracket *top = p->brackets.len > 0 ? &p->brackets.at[p->brackets.len - 1] : NULL;
    bool at_end = strcmp(found, "the end of the file") == 0;
    bool closes = strcmp(found, "'}'") == 0;
    bool ends = strcmp(found, "the end of the line") == 0;
    if (top == NULL)
        return false;
    bool declares = begins_declaration(found) && !source_has_before(p->cx, at, "//");
    if (top->open == '{' && (at_end || declares)) {
        if (!p->brace_reported)
            diag_note(diag_error(p->cx, top->at, "this { is not closed"), at,
                      at_end ? "the file ends here" : "%s begins here", found);
        p->brace_reported = true;
        return true;
    }
    if (top->open != '{' && (at_end || closes || ends)) {
        diag_note(diag_error(p->cx, top->at, "this %c is not closed", top->open), at,
                  at_end   ? "the file ends here"
                  : closes ? "the block ends here"
                           : "the statement ends here");
        return true;
    }
    return false;
}

void syntax_error(Parser *p, Span at, const char *found, const char *const *expected, int n)
{
    Expected e = { expected, n };
    if (p->stopped)
        return;
    if (!report_open_bracket(p, at, found)) {
        bool stray = strlen(found) == 3 && strchr(")]}", found[1]) != NULL;
        Diag *d;
        if (stray && !wants(e, found) && p->brackets.len == 0 && !wants(e, "a number"))
            d = diag_error(p->cx, at, "this %c closes nothing", found[1]);
        else
            d = diag_error(p->cx, at, "expected %s, found %s", expected_text(p->cx, e),
                           found_text(p, at, found));
        if (syntax_in_parentheses(p))
            diag_note(d, p->brackets.at[p->brackets.len - 1].at, "inside this %c",
                      p->brackets.at[p->brackets.len - 1].open);
        add_hints(p, d, at, found, e);
    }
    syntax_recover(p);
    if (strcmp(found, "the end of the line") == 0 || strcmp(found, "'{'") == 0
        || strcmp(found, "'}'") == 0 || strcmp(found, "the end of the file") == 0)
        p->recovering = false; /* the parser goes on from this token */
}
