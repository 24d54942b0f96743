/* include.c -- a program of several files.
 *
 * In: a file and the folders to look in. Out: one tree, in which each include is replaced by the
 * declarations of its file, where it first stands. A file is known by its path as it was found; a
 * file that includes itself, by whatever detour, is an error.
 */
#include "front/ast.h"

#include <string.h>

typedef struct Including { /* the files that are being read, innermost first */
    struct Including *outer;
    const char *path; /* interned */
    Span at;          /* the include in the outer file */
} Including;

typedef struct {
    Context *cx;
    const char *const *dirs;
    int n_dirs;
    VEC(const char *) seen; /* interned paths of all files read */
} Includer;

static bool file_exists(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (f != NULL)
        fclose(f);
    return f != NULL;
}

/* "a/./b/../c.model" and "a/c.model" are one file: dots are taken out of the text. */
static const char *tidy_path(Context *cx, const char *path)
{
    VEC(const char *) part = { 0 };
    bool rooted = path[0] == '/';
    while (*path != '\0') {
        size_t len = strcspn(path, "/");
        const char *piece = arena_strndup(cx->arena, path, len);
        path += len + (path[len] == '/');
        if (len == 0 || strcmp(piece, ".") == 0)
            continue;
        if (strcmp(piece, "..") == 0 && part.len > 0 && strcmp(part.at[part.len - 1], "..") != 0)
            part.len--;
        else
            vec_push(cx->arena, &part, piece);
    }
    Text t = text_new(cx->arena);
    for (int i = 0; i < part.len; i++)
        text_add(&t, "%s%s", i > 0 || rooted ? "/" : "", part.at[i]);
    return intern(cx, t.len == 0 ? rooted ? "/" : "." : t.at);
}

/* Beside the including file first, then in the folders in turn. NULL when it is nowhere. */
static const char *find_file(const Includer *in, const Ast *include)
{
    Context *cx = in->cx;
    const Source *from = source_of(cx, include->span.file);
    const char *slash = strrchr(from->path, '/');
    const char *path = include->path;
    if (path[0] == '/')
        return file_exists(path) ? tidy_path(cx, path) : NULL;
    const char *beside = slash == NULL
                             ? path
                             : arena_printf(cx->arena, "%.*s%s", (int)(slash + 1 - from->path),
                                            from->path, path);
    if (file_exists(beside))
        return tidy_path(cx, beside);
    for (int i = 0; i < in->n_dirs; i++) {
        const char *there = arena_printf(cx->arena, "%s/%s", in->dirs[i], path);
        if (file_exists(there))
            return tidy_path(cx, there);
    }
    return NULL;
}

static AstList with_includes(Includer *in, const Ast *tree, Including *outer);

static AstList declarations_of(Includer *in, const Ast *include, Including *outer)
{
    AstList none = { 0 };
    const char *path = find_file(in, include);
    if (path == NULL) {
        Diag *d = diag_error(in->cx, include->path_at, "there is no file %s", include->path);
        diag_hint(d, "it is looked for beside the including file%s",
                  in->n_dirs > 0 ? " and in the folders of -I" : "; -I DIR adds a folder");
        return none;
    }
    for (Including *i = outer; i != NULL; i = i->outer)
        if (i->path == path) {
            Diag *d = diag_error(in->cx, include->path_at, "%s includes itself", path);
            for (Including *j = outer; j != i; j = j->outer)
                diag_note(d, j->at, "%s is included here", j->path);
            return none;
        }
    for (int i = 0; i < in->seen.len; i++)
        if (in->seen.at[i] == path)
            return none; /* its declarations are there already */
    vec_push(in->cx->arena, &in->seen, path);
    int told = in->cx->diags.len;
    int file = source_read(in->cx, path);
    if (file == 0) {
        if (in->cx->diags.len > told)
            diag_note(in->cx->diags.at[told], include->path_at, "included here");
        return none;
    }
    Including now = { outer, path, include->path_at };
    return with_includes(in, parse_source(in->cx, file), &now);
}

static AstList with_includes(Includer *in, const Ast *tree, Including *outer)
{
    AstList all = { 0 };
    for (int i = 0; i < tree->items.len; i++) {
        Ast *item = tree->items.at[i];
        if (item->kind == AST_INCLUDE)
            all = ast_concat(in->cx, all, declarations_of(in, item, outer));
        else
            all = ast_append(in->cx, all, item);
    }
    return all;
}

/* data = csv("h.csv", val: "v.csv"): the files are named as text, and no result may replace them
   even if the program goes no further than to its tree. */
static void name_data(Context *cx, const Ast *train)
{
    for (int i = 0; i < train->items.len; i++) {
        const Ast *call = train->items.at[i]->value;
        if (!call || call->kind != AST_CALL || train->items.at[i]->name != intern(cx, "data"))
            continue;
        for (int k = 0; k < call->args.len; k++) {
            const Ast *arg = call->args.at[k], *file = arg->value;
            if (file->kind == AST_STRING && arg->name != intern(cx, "vocab"))
                vec_push(cx->arena, &cx->named, ((Named){ file->name, file->span }));
        }
    }
}

Ast *parse_program(Context *cx, int file, const char *const *dirs, int n_dirs)
{
    Includer in = { .cx = cx, .dirs = dirs, .n_dirs = n_dirs };
    Ast *tree = parse_source(cx, file);
    Including top = { .path = tidy_path(cx, source_of(cx, file)->path), .at = tree->span };
    vec_push(cx->arena, &in.seen, top.path);
    tree->items = with_includes(&in, tree, &top);
    for (int i = 0; i < tree->items.len; i++)
        if (tree->items.at[i]->kind == AST_TRAIN)
            name_data(cx, tree->items.at[i]);
    return tree;
}
