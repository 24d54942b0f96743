/* diag.c -- messages to the user, and the end of a compiler that found a bug in itself.
 *
 * In: what is wrong, where, and what else is worth showing. Out: text in one shape:
 *
 *     mlp.model:6:12: error: inner sizes differ in x @ w: D = 4 against O = 2
 *         h = tanh(x @ w + b)
 *                  ~ ^ ~
 *     mlp.model:5:7: note: x is [B,D]
 *     hint: declare w as [D,O], or write x @ w'
 *
 * Messages are collected and printed in the order of the source, not of their discovery.
 */
#include "base/base.h"

#include <stdlib.h>
#include <string.h>

enum { MARKS_MAX = 4, SUGGEST_LEN_MAX = 64 };

typedef struct {
    Span at;
    const char *text;
} Note;

struct Diag {
    Arena *arena;
    bool warning;
    Span at;
    const char *text;
    const char *group; /* of a warning: -Wgroup */
    Span mark[MARKS_MAX];
    int n_marks;
    VEC(Note) notes;
    VEC(const char *) hints;
    int order; /* of discovery */
};

/* ---- the context --------------------------------------------------------------------------- */

Context *context_new(void)
{
    Arena *arena = arena_new();
    Context *cx = NEW(arena, Context);
    cx->arena = arena;
    cx->scratch = arena_new();
    cx->error_limit = 20;
    return cx;
}

void context_free(Context *cx)
{
    arena_free(cx->scratch);
    arena_free(cx->arena); /* cx itself lives in it */
}

/* ---- collecting ---------------------------------------------------------------------------- */

static const char *format_text(Context *cx, const char *fmt, va_list ap)
{
    Text t = text_new(cx->arena);
    text_addv(&t, fmt, ap);
    return t.at;
}

static bool span_same(Span a, Span b) { return a.file == b.file && a.lo == b.lo && a.hi == b.hi; }

/* A layer that is applied twice is checked twice: the same mistake is told once. */
static bool diag_is_known(const Context *cx, const Diag *d)
{
    for (int i = 0; i < cx->diags.len; i++) {
        const Diag *old = cx->diags.at[i];
        if (old->warning == d->warning && span_same(old->at, d->at)
            && strcmp(old->text, d->text) == 0)
            return true;
    }
    return false;
}

static bool is_option(const Context *cx, Span at)
{
    const Source *src = source_of(cx, at.file);
    return src != NULL && src->no_file;
}

static Diag *add_error(Context *cx, Span at, const char *fmt, va_list ap)
{
    Diag *d = NEW(cx->arena, Diag);
    d->arena = cx->arena;
    d->at = at;
    d->text = format_text(cx, fmt, ap);
    if (diag_is_known(cx, d))
        return d; /* marks and notes hung on it are not shown */
    d->order = cx->n_errors++;
    cx->n_usage += is_option(cx, at);
    if (cx->error_limit == 0 || cx->n_errors <= cx->error_limit)
        vec_push(cx->arena, &cx->diags, d);
    return d;
}

Diag *diag_error(Context *cx, Span at, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    Diag *d = add_error(cx, at, fmt, ap);
    va_end(ap);
    return d;
}

Diag *diag_option(Context *cx, const char *typed, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    Diag *d = add_error(cx, (Span){ source_add_option(cx, typed, ""), 0, 0 }, fmt, ap);
    va_end(ap);
    return d;
}

static bool is_quiet(const Context *cx, const char *group)
{
    for (int i = 0; i < cx->quiet.len; i++)
        if (strcmp(cx->quiet.at[i], group) == 0)
            return true;
    return cx->no_warnings;
}

Diag *diag_warning(Context *cx, Span at, const char *group, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    Diag *d = NEW(cx->arena, Diag);
    d->arena = cx->arena;
    d->warning = true;
    d->at = at;
    d->group = group;
    d->text = format_text(cx, fmt, ap);
    va_end(ap);
    d->order = cx->n_errors;
    if (!is_quiet(cx, group) && !diag_is_known(cx, d))
        vec_push(cx->arena, &cx->diags, d);
    return d;
}

void diag_mark(Diag *d, Span operand)
{
    if (d->n_marks < MARKS_MAX && operand.file != 0)
        d->mark[d->n_marks++] = operand;
}

void diag_note(Diag *d, Span at, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    Text t = text_new(d->arena);
    text_addv(&t, fmt, ap);
    va_end(ap);
    Note n = { at, t.at };
    vec_push(d->arena, &d->notes, n);
}

void diag_hint(Diag *d, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    Text t = text_new(d->arena);
    text_addv(&t, fmt, ap);
    va_end(ap);
    vec_push(d->arena, &d->hints, (const char *)t.at);
}

int diag_count(const Context *cx) { return cx->n_errors; }

bool diag_is_usage(const Context *cx) { return cx->n_errors > 0 && cx->n_usage == cx->n_errors; }

/* ---- printing ------------------------------------------------------------------------------ */

/* The start of a line of a message: where, and its label ("error", "note"). Behind the label stands
   an option. */
static void print_head(Text *out, const Context *cx, Span at, const char *label)
{
    const char *ink = strcmp(label, "error") == 0  ? "\33[1;31m"
                      : strcmp(label, "note") == 0 ? "\33[1;36m"
                                                   : "\33[1;35m";
    const Source *src = source_of(cx, at.file);
    int column = 0;
    int line = source_line(cx, at, &column);
    text_put(out, cx->colour ? "\33[1m" : "");
    if (src == NULL || src->no_file)
        text_put(out, "gradcc: ");
    else
        text_add(out, "%s:%d:%d: ", src->path, line, column);
    text_put(out, cx->colour ? "\33[0m" : "");
    text_add(out, "%s%s:%s ", cx->colour ? ink : "", label, cx->colour ? "\33[0m" : "");
    if (is_option(cx, at))
        text_add(out, "%s: ", src->path);
}

static void print_diag(Text *out, const Context *cx, const Diag *d)
{
    print_head(out, cx, d->at, d->warning ? "warning" : "error");
    text_put(out, d->text);
    if (d->warning && d->group != NULL)
        text_add(out, " [-W%s]", d->group);
    text_put(out, "\n");
    if (d->at.file != 0 && !is_option(cx, d->at))
        diag_print_echo(out, cx, d->at, d->mark, d->n_marks);
    for (int i = 0; i < d->notes.len; i++) {
        print_head(out, cx, d->notes.at[i].at, "note");
        text_add(out, "%s\n", d->notes.at[i].text);
    }
    for (int i = 0; i < d->hints.len; i++)
        text_add(out, "hint: %s\n", d->hints.at[i]);
}

static int diag_compare(const void *pa, const void *pb)
{
    const Diag *a = *(Diag *const *)pa, *b = *(Diag *const *)pb;
    if (a->at.file != b->at.file)
        return a->at.file < b->at.file ? -1 : 1;
    if (a->at.lo != b->at.lo)
        return a->at.lo < b->at.lo ? -1 : 1;
    if (a->order != b->order)
        return a->order < b->order ? -1 : 1;
    return (int)b->warning - (int)a->warning;
}

void diag_flush(Context *cx, FILE *out)
{
    Text t = text_new(cx->arena);
    int shown = 0;
    if (cx->diags.len > 0)
        qsort(cx->diags.at, (size_t)cx->diags.len, sizeof *cx->diags.at, diag_compare);
    for (int i = 0; i < cx->diags.len; i++) {
        print_diag(&t, cx, cx->diags.at[i]);
        shown += !cx->diags.at[i]->warning;
    }
    if (cx->error_limit != 0 && shown == cx->error_limit && cx->n_errors > cx->error_limit)
        text_add(&t, "gradcc: %d more error%s not shown (-ferror-limit=0 shows all)\n",
                 cx->n_errors - cx->error_limit, cx->n_errors - cx->error_limit == 1 ? "" : "s");
    fwrite(t.at, 1, t.len, out);
    fflush(out);
    cx->diags.len = 0;
}

/* ---- suggestions --------------------------------------------------------------------------- */

static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c; }

static int min_of(int a, int b) { return a < b ? a : b; }

/* Edits that make b from a: insert, delete, replace, swap neighbours. Case counts for nothing. */
static int edit_distance(const char *a, int la, const char *b, int lb)
{
    int row[3][SUGGEST_LEN_MAX + 2]; /* rows i - 2, i - 1 and i, in turn */
    for (int j = 0; j <= lb; j++)
        row[0][j] = j;
    for (int i = 1; i <= la; i++) {
        const int *before = row[(i + 1) % 3], *up = row[(i - 1) % 3];
        int *now = row[i % 3];
        now[0] = i;
        for (int j = 1; j <= lb; j++) {
            int same = lower(a[i - 1]) == lower(b[j - 1]);
            now[j] = min_of(min_of(up[j] + 1, now[j - 1] + 1), up[j - 1] + !same);
            if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2])
                && lower(a[i - 2]) == lower(b[j - 1]))
                now[j] = min_of(now[j], before[j - 2] + 1);
        }
    }
    return row[la % 3][lb];
}

const char *diag_suggest(const char *word, const char *const *candidates, int n)
{
    const char *best = NULL;
    size_t len = strlen(word);
    if (len > SUGGEST_LEN_MAX)
        return NULL;
    int limit = (int)(len / 3) + 1; /* a distance below this one is near enough */
    for (int i = 0; i < n; i++) {
        size_t other = strlen(candidates[i]);
        if (other > SUGGEST_LEN_MAX || strcmp(candidates[i], word) == 0)
            continue;
        int d = edit_distance(word, (int)len, candidates[i], (int)other);
        if (d < limit) {
            best = candidates[i];
            limit = d;
        }
    }
    return best;
}

/* ---- bugs ---------------------------------------------------------------------------------- */

void bug(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fflush(stdout);
    fputs("gradcc: internal error: ", stderr);
    vfprintf(stderr, fmt, ap);
    fputs("\nThis is a mistake in gradcc, not in the model. Please report it with the model.\n",
          stderr);
    va_end(ap);
    exit(70);
}
