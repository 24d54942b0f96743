/* sem_require.c -- what numbers must be for a layer or function to have a meaning.
 *
 * In: `_ = require(p >= 0 and p < 1)` in a body, and bracket arguments that are sizes. Out: nothing
 * where they fit or are not known while compiling; else one message, where the layer is built or
 * the function applied, with the condition and the values of its names.
 */
#include "front/sem_parts.h"

#include <math.h>
#include <string.h>

/* ---- require(condition) -------------------------------------------------------------------- */

const char *sem_number_text(Sem *s, double v)
{
    bool whole = fabs(v) < 1e15 && v == floor(v);
    return arena_printf(s->arena, whole ? "%.1f" : "%g", v);
}

/* "p = 1.5", for the names of a condition that are numbers; several with commas. */
static void add_values(Sem *s, const Ast *a, Text *out)
{
    if (!a)
        return;
    add_values(s, a->left, out);
    add_values(s, a->right, out);
    const Thing *t = a->kind == AST_NAME ? scope_find(s->frame->scope, a->name) : NULL;
    double v;
    int64_t whole;
    if (!t || !thing_number(t, &v))
        return;
    const char *text = thing_whole(t, &whole) ? arena_printf(s->arena, "%lld", (long long)whole)
                                              : arena_printf(s->arena, "%g", v);
    const char *pair = arena_printf(s->arena, "%s = %s", a->name, text);
    if (!strstr(out->at, pair))
        text_add(out, "%s%s", out->len ? ", " : "", pair);
}

/* Are tensors compared? Then the data decide, and nothing is checked. */
static bool has_values(const Sem *s, const Ast *a)
{
    if (!a)
        return false;
    const Thing *t = a->kind == AST_NAME ? scope_find(s->frame->scope, a->name) : NULL;
    return (t && t->kind == THING_VALUE) || has_values(s, a->left) || has_values(s, a->right);
}

Thing *builtin_require(Sem *s, const Ast *call)
{
    const Ast *cond = call_arg(call, 0);
    if (has_values(s, cond))
        return thing_bool(s, true, call->span);
    const Thing *t = sem_eval(s, cond);
    if (t->kind != THING_BOOL && t->kind != THING_POISON
        && (t->kind != THING_VALUE || t->value->type->dtype != DT_BOOL)) {
        sem_error(s, cond->span, "require wants a condition, not %s", thing_text(s, t));
        return thing_poison(s);
    }
    if (t->kind != THING_BOOL || t->yes)
        return thing_bool(s, true, call->span);
    Text values = text_new(s->arena);
    add_values(s, cond, &values);
    sem_error(s, call->span, "%s wants %s%s%s", s->frame->decl->name, ast_expr_text(s->cx, cond),
              values.len ? ", not " : "", values.at);
    return thing_poison(s);
}

/* Is this statement a requirement, to be looked at when the layer is built? */
bool sem_is_requirement(const Sem *s, const Ast *a)
{
    return a->kind == AST_ASSIGN && a->value->kind == AST_CALL && a->value->left->kind == AST_NAME
           && strcmp(a->value->left->name, "require") == 0
           && !scope_find(s->frame->scope, a->value->left->name);
}

/* ---- bracket arguments that are sizes ------------------------------------------------------ */

static bool is_name(const Ast *a, const char *name)
{
    return a->kind == AST_NAME && a->name == name;
}

static bool is_in_types(const AstList *list, const char *name)
{
    for (int i = 0; i < list->len; i++) {
        const Ast *type = list->at[i]->kind == AST_TYPE ? list->at[i] : list->at[i]->type;
        for (int k = 0; type && k < type->items.len; k++)
            if (is_name(type->items.at[k], name))
                return true;
    }
    return false;
}

static bool is_size(const Decl *d, const char *name, int depth);

/* name : linear[C, F]: C and F are sizes because I and O of linear are. */
static bool is_size_of_sublayer(const Decl *d, const Ast *a, const char *name, int depth)
{
    const Ast *value = a->value;
    if (value->kind == AST_BINARY && value->op == AST_MUL)
        value = value->left;
    if (value->kind != AST_INDEX || value->left->kind != AST_NAME)
        return false;
    const Thing *t = scope_find(d->scope, value->left->name);
    if (!t || t->kind != THING_DECL)
        return false;
    const AstList *formals = &t->decl->ast->params;
    for (int i = 0; i < value->args.len; i++) {
        const Ast *arg = value->args.at[i];
        if (!is_name(arg->value, name))
            continue;
        const char *formal = arg->name ? arg->name : i < formals->len ? formals->at[i]->name : NULL;
        if (formal && is_size(t->decl, formal, depth - 1))
            return true;
    }
    return false;
}

/* Is the bracket argument the size of an axis wherever the layer is built? */
static bool is_size(const Decl *d, const char *name, int depth)
{
    const Ast *a = d->ast;
    if (depth == 0)
        return false;
    if (is_in_types(&a->args, name) || is_in_types(&a->results, name))
        return true;
    for (int i = 0; i < a->body->items.len; i++) {
        const Ast *item = a->body->items.at[i];
        for (int k = 0; item->kind == AST_PARAM && k < item->type->items.len; k++)
            if (is_name(item->type->items.at[k], name))
                return true;
        if (item->kind == AST_SUBLAYER && is_size_of_sublayer(d, item, name, depth))
            return true;
    }
    return false;
}

/* A size given in brackets: said where it is given, not where the layer makes use of it. */
bool sem_check_size_argument(Sem *s, const Decl *d, const Ast *formal, const Thing *t,
                             const Ast *given)
{
    enum { LAYERS_DEEP = 8 };
    int64_t v;
    if ((t->kind != THING_REAL && !thing_whole(t, &v)) || !is_size(d, formal->name, LAYERS_DEEP))
        return true;
    const char *what = arena_printf(s->arena, "size %s of %s", formal->name, d->name);
    const Dim *size = thing_to_dim(s, t, given, what);
    if (!size || v >= 1)
        return size != NULL;
    Diag *diag = sem_error(s, given->span, "%s must be at least 1, not %s", what,
                           sem_dim_text(s, size));
    sem_note_dim(s, diag, size);
    sem_poison_constants(s, given);
    return false;
}
