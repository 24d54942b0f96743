/* text.c -- text buffers, source files, and where a span lies in them.
 *
 * In: formatted pieces; paths and bytes. Out: growing NUL-terminated buffers; sources with an index
 * of their lines. A span is two byte offsets; line and column are computed only when shown.
 */
#include "base/base.h"

#include <errno.h>
#include <string.h>

enum { SOURCE_BYTES_MAX = 16 << 20 }; /* more is no model: a wrong file */

/* ---- text buffers -------------------------------------------------------------------------- */

Text text_new(Arena *a)
{
    Text t = { .arena = a, .cap = 256 };
    t.at = arena_alloc(a, t.cap);
    return t;
}

/* Room for more bytes and the NUL behind them. */
static void text_reserve(Text *t, size_t more)
{
    if (t->len + more + 1 <= t->cap)
        return;
    size_t cap = t->cap * 2;
    while (cap < t->len + more + 1)
        cap *= 2;
    char *grown = arena_alloc(t->arena, cap);
    memcpy(grown, t->at, t->len);
    t->at = grown;
    t->cap = cap;
}

void text_putn(Text *t, const char *s, size_t len)
{
    text_reserve(t, len);
    memcpy(t->at + t->len, s, len);
    t->len += len;
    t->at[t->len] = '\0';
}

void text_put(Text *t, const char *s) { text_putn(t, s, strlen(s)); }

void text_addv(Text *t, const char *fmt, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    int len = vsnprintf(t->at + t->len, t->cap - t->len, fmt, ap);
    if (len < 0)
        bug("text that cannot be formatted: %s", fmt);
    if (t->len + (size_t)len + 1 > t->cap) {
        text_reserve(t, (size_t)len);
        vsnprintf(t->at + t->len, t->cap - t->len, fmt, again);
    }
    t->len += (size_t)len;
    va_end(again);
}

void text_add(Text *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    text_addv(t, fmt, ap);
    va_end(ap);
}

void text_pad(Text *t, size_t column)
{
    size_t width = 0;
    for (size_t i = t->len; i > 0 && t->at[i - 1] != '\n'; i--)
        width += ((unsigned char)t->at[i - 1] & 0xc0) != 0x80; /* UTF-8: count characters */
    for (; width < column; width++)
        text_putn(t, " ", 1);
}

/* ---- source files -------------------------------------------------------------------------- */

int source_add(Context *cx, const char *path, const char *text, size_t len)
{
    Source *s = NEW(cx->arena, Source);
    s->path = arena_strndup(cx->arena, path, strlen(path));
    s->text = arena_strndup(cx->arena, text, len);
    s->len = len;
    s->n_lines = 1;
    for (size_t i = 0; i + 1 < len; i++)
        s->n_lines += text[i] == '\n';
    s->line_start = NEW_ARRAY(cx->arena, uint32_t, s->n_lines);
    int line = 1;
    for (size_t i = 0; i + 1 < len; i++)
        if (text[i] == '\n')
            s->line_start[line++] = (uint32_t)(i + 1);
    vec_push(cx->arena, &cx->sources, s);
    return cx->sources.len;
}

int source_add_option(Context *cx, const char *typed, const char *text)
{
    const int file = source_add(cx, typed, text, strlen(text));
    cx->sources.at[file - 1]->no_file = true;
    return file;
}

int source_read(Context *cx, const char *path)
{
    Span nowhere = { 0 };
    bool from_stdin = strcmp(path, "-") == 0;
    FILE *f = from_stdin ? stdin : fopen(path, "rb");
    if (f == NULL) {
        diag_error(cx, nowhere, "cannot open %s: %s", path, strerror(errno));
        return 0;
    }
    Text t = text_new(cx->arena);
    char part[8192];
    size_t got;
    while (t.len <= SOURCE_BYTES_MAX && (got = fread(part, 1, sizeof part, f)) > 0)
        text_putn(&t, part, got);
    bool failed = ferror(f) != 0;
    int why = errno;
    if (!from_stdin)
        fclose(f);
    if (failed) {
        diag_error(cx, nowhere, "cannot read %s: %s", path, strerror(why));
        return 0;
    }
    if (t.len > SOURCE_BYTES_MAX) {
        diag_error(cx, nowhere, "%s is larger than %d MiB: not a model", path,
                   SOURCE_BYTES_MAX >> 20);
        return 0;
    }
    return source_add(cx, from_stdin ? "<stdin>" : path, t.at, t.len);
}

const Source *source_of(const Context *cx, int file)
{
    return file >= 1 && file <= cx->sources.len ? cx->sources.at[file - 1] : NULL;
}

int source_line(const Context *cx, Span s, int *column)
{
    const Source *src = source_of(cx, s.file);
    if (src == NULL) {
        if (column != NULL)
            *column = 0;
        return 0;
    }
    int lo = 0, hi = src->n_lines - 1;
    while (lo < hi) { /* the last line that starts at or before s.lo */
        int mid = (lo + hi + 1) / 2;
        if (src->line_start[mid] <= s.lo)
            lo = mid;
        else
            hi = mid - 1;
    }
    if (column != NULL)
        *column = (int)(s.lo - src->line_start[lo]) + 1;
    return lo + 1;
}

const char *source_where(Context *cx, Span s)
{
    const Source *src = source_of(cx, s.file);
    if (src == NULL)
        return "-";
    if (src->no_file)
        return "-D";
    const char *slash = strrchr(src->path, '/');
    return arena_printf(cx->arena, "%s:%d", slash != NULL ? slash + 1 : src->path,
                        source_line(cx, s, NULL));
}

const char *source_text_line(Context *cx, Span s)
{
    const Source *src = source_of(cx, s.file);
    if (src == NULL)
        return "";
    int line = source_line(cx, s, NULL) - 1;
    const char *from = src->text + src->line_start[line];
    const char *to = line + 1 < src->n_lines ? src->text + src->line_start[line + 1]
                                             : src->text + src->len;
    while (from < to && strchr(" \t\r\n", *from) != NULL)
        from++;
    while (to > from && strchr(" \t\r\n", to[-1]) != NULL)
        to--;
    return arena_strndup(cx->arena, from, (size_t)(to - from));
}

bool source_has_before(const Context *cx, Span s, const char *text)
{
    const Source *src = source_of(cx, s.file);
    const size_t len = strlen(text);
    for (size_t at = s.lo; src && at > 0 && src->text[at - 1] != '\n'; at--)
        if (strncmp(src->text + at - 1, text, len) == 0)
            return true;
    return false;
}

Span span_join(Span a, Span b)
{
    if (a.file == 0 || (b.file != 0 && a.file != b.file))
        return a.file == 0 ? b : a;
    if (b.file == 0)
        return a;
    Span s = { a.file, a.lo < b.lo ? a.lo : b.lo, a.hi > b.hi ? a.hi : b.hi };
    return s;
}
