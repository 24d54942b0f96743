/* base.h -- memory, strings, tables, source files and diagnostics of the compiler.
 *
 * Everything hangs on one Context; nothing is global. What lives as long as the compilation is
 * allocated in cx->arena; what a pass needs only while it runs goes to cx->scratch, which the
 * pipeline resets after each pass. Nothing is freed one by one.
 */
#ifndef GRADCC_BASE_H
#define GRADCC_BASE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Attributes of functions: which arguments are a format and its values; it does not return. */
#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))
#define NORETURN               __attribute__((noreturn))

typedef struct Context Context; /* below */

/* ---- arena.c: memory ----------------------------------------------------------------------- */

typedef struct Arena Arena; /* memory that is freed at once */

Arena *arena_new(void);
void arena_reset(Arena *a);                               /* forget everything, keep the blocks */
void arena_free(Arena *a);                                /* and all that lies in it */
void *arena_alloc(Arena *a, size_t bytes);                /* zeroed, 16-byte aligned; never NULL */
char *arena_strndup(Arena *a, const char *s, size_t len); /* a copy, NUL-terminated */
char *arena_printf(Arena *a, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* Zeroed: one value, or n of them. */
#define NEW(arena, type)          ((type *)arena_alloc((arena), sizeof(type)))
#define NEW_ARRAY(arena, type, n) ((type *)arena_alloc((arena), sizeof(type) * (size_t)(n)))

/* ---- table.c: growable arrays, hash maps, interned strings --------------------------------- */

/* VEC(T) v = {0};  vec_push(arena, &v, x);  v.at[i], v.len */
#define VEC(type)                                                                                  \
    struct {                                                                                       \
        type *at;                                                                                  \
        int len, cap;                                                                              \
    }
#define vec_push(arena, v, x)                                                                      \
    (vec_grow((arena), (void **)&(v)->at, &(v)->cap, (v)->len + 1, sizeof *(v)->at),               \
     (void)((v)->at[(v)->len++] = (x)))
/* What vec_push calls: makes room for `want` elements of this size. */
void vec_grow(Arena *a, void **at, int *cap, int want, size_t size);

/* A map from pointers (interned strings, nodes) to pointers. */
typedef struct Map Map;
Map *map_new(Arena *a);
void *map_get(const Map *m, const void *key);       /* NULL when absent */
void map_set(Map *m, const void *key, void *value); /* new or replaced */

/* Equal strings give the same pointer, so names are compared with ==. */
const char *intern(Context *cx, const char *s);
const char *intern_n(Context *cx, const char *s, size_t len);
const char *intern_printf(Context *cx, const char *fmt, ...) PRINTF_LIKE(2, 3);

uint64_t hash_bytes(const void *p, size_t len, uint64_t seed); /* FNV-1a, for tables */
uint32_t crc32_of(const void *p, size_t len);                  /* of source files, IEEE */

/* ---- text.c: text buffers and source files ------------------------------------------------- */

typedef struct {
    Arena *arena;
    char *at;
    size_t len, cap; /* without the NUL; with it */
} Text;              /* always NUL-terminated */

Text text_new(Arena *a); /* empty; what follows adds at its end */
void text_add(Text *t, const char *fmt, ...) PRINTF_LIKE(2, 3);
void text_addv(Text *t, const char *fmt, va_list ap);
void text_put(Text *t, const char *s);
void text_putn(Text *t, const char *s, size_t len);
void text_pad(Text *t, size_t column); /* spaces up to that column of the last line */

typedef struct {
    int file;
    uint32_t lo, hi;
} Span; /* bytes [lo, hi); file 0 = nowhere */

typedef struct {
    const char *path; /* as given; printed in messages; of an option: it, as typed */
    const char *text; /* NUL-terminated */
    size_t len;
    uint32_t *line_start; /* byte offset of each line */
    int n_lines;
    bool no_file; /* the text is of an option of the command line */
} Source;

/* Both give the file's number. */
int source_add(Context *cx, const char *path, const char *text, size_t len);
int source_read(Context *cx, const char *path); /* 0 after a reported error */
/* "-D clip=x": mistakes in its text are told as those of the option. */
int source_add_option(Context *cx, const char *typed, const char *text);
const Source *source_of(const Context *cx, int file);
int source_line(const Context *cx, Span s, int *column); /* 1-based; column in bytes */
const char *source_where(Context *cx, Span s);           /* "gpt2.model:12", base name only */
const char *source_text_line(Context *cx, Span s);       /* the trimmed text of that line */
bool source_has_before(const Context *cx, Span s, const char *text); /* in its line, before it */
Span span_join(Span a, Span b);                                      /* the smallest around both */

/* ---- diag.c: messages ---------------------------------------------------------------------- */

typedef struct Diag Diag; /* a message */

/* A user's mistake. Returns the message so that marks, notes and hints can be hung on it. After
   cx->error_limit errors the rest is counted, not printed. */
Diag *diag_error(Context *cx, Span at, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* ... in an option of the command line, told in front of it. */
Diag *diag_option(Context *cx, const char *typed, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* What may be meant, and is no mistake; group: the kind of warning, in brackets behind it. */
Diag *diag_warning(Context *cx, Span at, const char *group, const char *fmt, ...) PRINTF_LIKE(4, 5);
void diag_mark(Diag *d, Span operand); /* ~~~ under it, same line only */
/* A place that has to do with it; what to do, the last line. */
void diag_note(Diag *d, Span at, const char *fmt, ...) PRINTF_LIKE(3, 4);
void diag_hint(Diag *d, const char *fmt, ...) PRINTF_LIKE(2, 3);
int diag_count(const Context *cx);       /* errors so far */
bool diag_is_usage(const Context *cx);   /* ... all of them of options */
void diag_flush(Context *cx, FILE *out); /* print all, in source order */

/* echo.c: the source line of at, and under it a caret and the marks. */
void diag_print_echo(Text *out, const Context *cx, Span at, const Span *mark, int n_marks);

/* The candidate nearest to word (Damerau-Levenshtein, at most a third of the length), or NULL. */
const char *diag_suggest(const char *word, const char *const *candidates, int n);

/* A bug of the compiler: prints what and where, and exits with 70. */
NORETURN void bug(const char *fmt, ...) PRINTF_LIKE(1, 2);

/* ---- the context --------------------------------------------------------------------------- */

typedef struct { /* a file, and where the model names it */
    const char *path;
    Span at;
} Named;

struct Context {
    Arena *arena;              /* lives as long as the compilation */
    Arena *scratch;            /* reset after each pass */
    void *interned;            /* table.c */
    VEC(Source *) sources;     /* text.c; file numbers start at 1 */
    VEC(Named) named;          /* files that the model names without reading them: data */
    VEC(Diag *) diags;         /* diag.c */
    VEC(const char *) quiet;   /* groups of warnings that are not wanted */
    bool no_warnings;          /* none is wanted */
    int n_errors, error_limit; /* limit 20 unless -ferror-limit */
    int n_usage;               /* errors of options */
    int colour;                /* 0 never, 1 always */
};

Context *context_new(void);
void context_free(Context *cx); /* with both arenas */

#endif
