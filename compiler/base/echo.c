/* echo.c -- the source line of a message, with a caret under the place.
 *
 * In: a span and the spans of its operands. Out: two lines, the source as written (indentation
 * removed, tabs kept, bytes that a terminal might obey replaced) and the marks under it. Marks are
 * placed by display width, so they stand right under accents and wide characters too.
 */
#include "base/base.h"

#include <string.h>

enum { ECHO_WIDTH = 120, ECHO_BEFORE = 60 }; /* of a long line, what is shown around the caret */

/* One character: its code and length in bytes; code -1 for a byte that is not UTF-8. */
static int32_t read_char(const char *s, const char *end, int *len)
{
    const unsigned char *p = (const unsigned char *)s;
    int n = p[0] < 0x80   ? 1
            : p[0] < 0xc2 ? 0
            : p[0] < 0xe0 ? 2
            : p[0] < 0xf0 ? 3
            : p[0] < 0xf5 ? 4
                          : 0;
    *len = 1;
    if (n == 1)
        return p[0];
    if (n == 0 || end - s < n)
        return -1;
    int32_t code = p[0] & (0x7f >> n);
    for (int i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return -1;
        code = (code << 6) | (p[i] & 0x3f);
    }
    *len = n;
    return code;
}

/* Columns of a character on a terminal: 0 for combining marks, 2 for wide ones. */
static int char_width(int32_t c)
{
    static const int32_t wide[][2] = {
        { 0x1100, 0x115f },   { 0x2e80, 0x303e },   { 0x3041, 0xa4cf },   { 0xac00, 0xd7a3 },
        { 0xf900, 0xfaff },   { 0xfe30, 0xfe6f },   { 0xff00, 0xff60 },   { 0xffe0, 0xffe6 },
        { 0x1f300, 0x1f64f }, { 0x1f680, 0x1f6ff }, { 0x1f900, 0x1f9ff }, { 0x20000, 0x3fffd },
    };
    if ((c >= 0x300 && c <= 0x36f) || (c >= 0x200b && c <= 0x200f) || (c >= 0xfe00 && c <= 0xfe0f))
        return 0;
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
        if (c >= wide[i][0] && c <= wide[i][1])
            return 2;
    return 1;
}

/* May it go to a terminal? Not control characters, nor what turns the writing direction. */
static bool char_is_safe(int32_t c)
{
    return c >= 0x20 && !(c >= 0x7f && c < 0xa0) && !(c >= 0x202a && c <= 0x202e)
           && !(c >= 0x2066 && c <= 0x2069);
}

static bool inside(Span s, int file, uint32_t offset)
{
    return s.file == file && s.lo <= offset && offset < s.hi;
}

void diag_print_echo(Text *out, const Context *cx, Span at, const Span *mark, int n_marks)
{
    const Source *src = source_of(cx, at.file);
    int line = source_line(cx, at, NULL) - 1;
    const char *from = src->text + src->line_start[line];
    const char *end = src->text + src->len;
    const char *to = memchr(from, '\n', (size_t)(end - from));
    const char *caret = src->text + (at.lo < src->len ? at.lo : src->len);
    Text under = text_new(out->arena);
    bool cut = false;
    to = to == NULL ? end : to;
    while (from < to && (*from == ' ' || *from == '\t') && from < caret)
        from++;
    if (caret - from > ECHO_WIDTH - ECHO_BEFORE / 2) {
        from = caret - ECHO_BEFORE;
        while (from < caret && ((unsigned char)*from & 0xc0) == 0x80)
            from++; /* not in the middle of a character */
        cut = true;
    }
    text_put(out, cut ? "    ..." : "    ");
    text_put(&under, cut ? "       " : "    ");
    int len = 1, width = 1;
    for (const char *s = from; s < to && s - from < ECHO_WIDTH; s += len) {
        uint32_t offset = (uint32_t)(s - src->text);
        int32_t c = read_char(s, to, &len);
        bool marked = inside(at, at.file, offset);
        if (*s == '\r' && s + 1 == to)
            break;
        for (int i = 0; i < n_marks; i++)
            marked = marked || inside(mark[i], at.file, offset);
        const char *ink = s == caret ? "^" : marked ? "~" : c == '\t' ? "\t" : " ";
        if (c == '\t' || char_is_safe(c))
            text_putn(out, s, (size_t)len);
        else
            text_put(out, "?");
        width = c == '\t' ? 1 : char_is_safe(c) ? char_width(c) : 1;
        for (int i = 0; i < width; i++)
            text_put(&under, i > 0 && *ink == '^' ? " " : ink);
    }
    if (caret >= to || caret - from >= ECHO_WIDTH || *caret == '\r')
        text_put(&under, "^"); /* the end of the line */
    while (under.len > 0 && strchr(" \t", under.at[under.len - 1]) != NULL)
        under.len--;
    under.at[under.len] = '\0';
    text_add(out, "\n%s\n", under.at);
}
