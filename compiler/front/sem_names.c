/* sem_names.c -- scopes, the things names stand for, and messages.
 *
 * In: names and places. Out: bindings, and diagnostics in the user's file. A place inside the
 * prelude is replaced by the call that led there, a place is reported once however often its layer
 * is applied, and each message ends with the chain of applications around it.
 */
#include "front/sem_parts.h"

#include <string.h>

/* ---- scopes -------------------------------------------------------------------------------- */

Scope *scope_new(Sem *s, Scope *parent)
{
    Scope *sc = NEW(s->arena, Scope);
    sc->parent = parent;
    return sc;
}

void scope_set(Sem *s, Scope *sc, const char *name, Thing *t)
{
    for (int i = 0; i < sc->values.len; i++)
        if (sc->values.at[i].name == name) {
            sc->values.at[i].thing = t;
            return;
        }
    Binding b = { name, t };
    vec_push(s->arena, &sc->values, b);
}

void scope_set_layer(Sem *s, Scope *sc, const char *name, Thing *t)
{
    Binding b = { name, t };
    vec_push(s->arena, &sc->layers, b);
}

Thing *scope_find_here(const Scope *sc, const char *name)
{
    for (int i = 0; i < sc->values.len; i++)
        if (sc->values.at[i].name == name)
            return sc->values.at[i].thing;
    return NULL;
}

Thing *scope_find(const Scope *sc, const char *name)
{
    for (; sc; sc = sc->parent) {
        Thing *t = scope_find_here(sc, name);
        if (t)
            return t;
    }
    return NULL;
}

Thing *scope_find_layer(const Scope *sc, const char *name)
{
    for (; sc; sc = sc->parent)
        for (int i = 0; i < sc->layers.len; i++)
            if (sc->layers.at[i].name == name)
                return sc->layers.at[i].thing;
    return NULL;
}

/* ---- things -------------------------------------------------------------------------------- */

Thing *thing_new(Sem *s, ThingKind kind, Span at)
{
    Thing *t = NEW(s->arena, Thing);
    t->kind = kind;
    t->span = at;
    return t;
}

Thing *thing_poison(Sem *s) { return thing_new(s, THING_POISON, (Span){ 0 }); }

Thing *thing_value(Sem *s, Expr *e)
{
    Thing *t = thing_new(s, THING_VALUE, e->span);
    t->value = e;
    return t;
}

Thing *thing_dim(Sem *s, const Dim *d, Span at)
{
    Thing *t = thing_new(s, THING_DIM, at);
    t->dim = d;
    return t;
}

Thing *thing_real(Sem *s, double v, Span at)
{
    Thing *t = thing_new(s, THING_REAL, at);
    t->real = v;
    return t;
}

Thing *thing_bool(Sem *s, bool yes, Span at)
{
    Thing *t = thing_new(s, THING_BOOL, at);
    t->yes = yes;
    return t;
}

const char *thing_text(Sem *s, const Thing *t)
{
    switch (t->kind) {
    case THING_POISON: return "a mistake";
    case THING_VALUE: return sem_type_text(s, t->value->type);
    case THING_DIM: return arena_printf(s->arena, "the size %s", sem_dim_text(s, t->dim));
    case THING_REAL: return arena_printf(s->arena, "the number %g", t->real);
    case THING_BOOL: return t->yes ? "true" : "false";
    case THING_TEXT: return "a text";
    case THING_DTYPE: return "a type";
    case THING_RANGE: return "a range";
    case THING_TUPLE: return arena_printf(s->arena, "a list of %d", t->items.len);
    case THING_INIT: return "an initialiser";
    case THING_DECL:
        return arena_printf(s->arena, "the %s %s",
                            t->decl->ast->kind == AST_FUNC ? "function" : "layer", t->decl->name);
    case THING_INSTANCE: return "a layer";
    case THING_STACK: return "a stack of layers";
    case THING_PARAM: return "a parameter";
    case THING_ITER: return "a loop's number";
    }
    return "?";
}

/* ---- messages ------------------------------------------------------------------------------ */

Span sem_here(const Sem *s, Span at)
{
    return s->frame && s->frame->decl && s->frame->decl->prelude ? s->frame->user : at;
}

/* The applications around the place of an error, innermost first. */
static void add_chain(Sem *s, Diag *d)
{
    Text inside = text_new(s->arena);
    for (const Frame *f = s->frame; f && f->up; f = f->up) {
        if (f->decl->prelude) {
            text_add(&inside, "%s%s", inside.len ? ", called by " : "", f->decl->name);
            if (!f->up->decl->prelude)
                diag_note(d, f->user, "inside %s", inside.at);
        } else {
            diag_note(d, f->call, "in %s %s, %s here",
                      f->decl->ast->kind == AST_FUNC ? "function" : "layer", f->decl->name,
                      f->builds ? "built" : "applied");
        }
    }
}

/* A message gets its chain at the end, because what it says itself comes first. */
static Frame *frame_copy(Sem *s, const Frame *f)
{
    if (!f)
        return NULL;
    Frame *copy = NEW(s->arena, Frame);
    *copy = *f;
    copy->up = frame_copy(s, f->up);
    return copy;
}

Diag *sem_error(Sem *s, Span at, const char *fmt, ...)
{
    Span here = sem_here(s, at);
    for (int i = 0; i < s->reported.len; i++)
        if (memcmp(&s->reported.at[i], &here, sizeof here) == 0)
            return NULL;
    if (here.file)
        vec_push(s->arena, &s->reported, here);
    va_list ap;
    va_start(ap, fmt);
    Text t = text_new(s->arena);
    text_addv(&t, fmt, ap);
    va_end(ap);
    Diag *d = diag_error(s->cx, here, "%s", t.at);
    Late late = { d, frame_copy(s, s->frame) };
    vec_push(s->arena, &s->late, late);
    return d;
}

void sem_finish_messages(Sem *s)
{
    for (int i = 0; i < s->late.len; i++) {
        s->frame = s->late.at[i].frame;
        if (s->late.at[i].d)
            add_chain(s, s->late.at[i].d);
    }
    s->frame = NULL;
    s->late.len = 0;
}

void sem_mark(Diag *d, Span at)
{
    if (d)
        diag_mark(d, at);
}

void sem_note(Sem *s, Diag *d, Span at, const char *fmt, ...)
{
    if (!d || at.file == 0)
        return;
    va_list ap;
    va_start(ap, fmt);
    Text t = text_new(s->arena);
    text_addv(&t, fmt, ap);
    va_end(ap);
    diag_note(d, at, "%s", t.at);
}

void sem_hint(Diag *d, const char *fmt, ...)
{
    if (!d)
        return;
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    diag_hint(d, "%s", text);
}

void sem_note_value(Sem *s, Diag *d, const Ast *ast, const Expr *e)
{
    if (!d || !e || e->kind == EX_CONST)
        return;
    const char *text = ast ? ast_expr_text(s->cx, ast) : NULL;
    const char *name = e->kind == EX_PARAM ? s->out->params.at[e->index].path : e->name;
    bool in_prelude = s->frame && s->frame->decl && s->frame->decl->prelude;
    if (!text || strlen(text) >= 40 || in_prelude)
        text = name ? name : "this";
    sem_note(s, d, e->span, "%s is %s", text, sem_type_text(s, e->type));
}

void sem_note_dim(Sem *s, Diag *d, const Dim *dim)
{
    for (int i = 0; dim && i < dims_count(s->dims); i++) {
        const Symbol *sym = dims_at(s->dims, i);
        if (!dim_has_symbol(dim, sym))
            continue;
        if (sym->kind == SYM_CONST)
            sem_note(s, d, sym->span, "%s = %lld is declared here", sym->name,
                     (long long)sym->value);
        else
            sem_note(s, d, sym->span, "%s is declared here", sym->name);
    }
}

void sem_did_you_mean(Diag *d, const char *word, const char *const *candidates, int n)
{
    const char *near = d ? diag_suggest(word, candidates, n) : NULL;
    if (near)
        diag_hint(d, "did you mean %s?", near);
}

/* The constant or size of the file with this name, wherever it stands. */
static const Ast *declared_later(const Sem *s, const char *name)
{
    for (int i = 0; i < s->file->items.len; i++) {
        const Ast *a = s->file->items.at[i];
        if ((a->kind == AST_CONST || a->kind == AST_BATCH || a->kind == AST_DIM) && a->name == name)
            return a;
    }
    return NULL;
}

/* An unknown name, with the nearest of those that could stand there. */
Diag *sem_unknown(Sem *s, Span at, const char *what, const char *name, bool layers)
{
    const Ast *later = layers ? NULL : declared_later(s, name);
    if (later) {
        Diag *d = sem_error(s, at, "%s is used before it is declared", name);
        sem_note(s, d, later->at, "%s is declared here", name);
        sem_hint(d, "a constant uses those above it");
        return d;
    }
    Diag *d = sem_error(s, at, "unknown %s %s", what, name);
    if (source_has_before(s->cx, at, "//")) {
        sem_hint(d, "a comment begins with #; // divides and rounds down");
        return d;
    }
    VEC(const char *) names = { 0 };
    for (const Scope *sc = s->frame ? s->frame->scope : s->global; sc; sc = sc->parent) {
        for (int i = 0; i < sc->layers.len && layers; i++)
            vec_push(s->arena, &names, sc->layers.at[i].name);
        for (int i = 0; i < sc->values.len; i++)
            if (layers == (sc->values.at[i].thing->kind == THING_DECL))
                vec_push(s->arena, &names, sc->values.at[i].name);
    }
    for (int i = 0; layers && i < builtin_count(); i++)
        vec_push(s->arena, &names, builtin_at(i)->name);
    sem_did_you_mean(d, name, names.at, names.len);
    return d;
}

/* ---- sizes and types in messages ----------------------------------------------------------- */

const char *sem_dim_text(Sem *s, const Dim *d)
{
    int64_t v;
    if (dim_literal(d, &v) || !dim_value(d, &v))
        return dim_text(s->cx, d);
    return arena_printf(s->arena, "%s = %lld", dim_text(s->cx, d), (long long)v);
}

const char *sem_type_text(Sem *s, const Type *t)
{
    Text out = text_new(s->arena);
    const char *word = t->dtype == DT_BOOL ? "bool" : t->dtype == DT_I32 ? "int" : "";
    text_put(&out, t->rank == 0 && !*word ? "a number" : word);
    for (int i = 0; i < t->rank; i++)
        text_add(&out, "%s%s", i ? "," : "[", dim_text(s->cx, t->dim[i]));
    text_put(&out, t->rank ? "]" : "");
    return out.at;
}
