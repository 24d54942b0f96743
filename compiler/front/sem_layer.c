/* sem_layer.c -- building layers: parameters, sublayers, stacks.
 *
 * In: `name : layer[args]` and the body of the layer. Out: an Instance whose scope holds what it
 * declares, and rows of the tables of parameters and groups in order of declaration. A body is
 * walked twice in its life: here for what it declares, in sem_body.c for what it computes.
 */
#include "front/sem_parts.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

/* ---- paths --------------------------------------------------------------------------------- */

static const char *join(Sem *s, const char *path, const char *glue, const char *name)
{
    return *path ? intern_printf(s->cx, "%s%s%s", path, glue, name) : intern(s->cx, name);
}

/* A path as an identifier: "encoder.layer" -> "encoder_layer". */
static const char *identifier(Sem *s, const char *path)
{
    char *out = arena_strndup(s->arena, path, strlen(path));
    for (char *c = out; *c; c++)
        if (!isalnum((unsigned char)*c))
            *c = '_';
    return isdigit((unsigned char)out[0]) ? intern_printf(s->cx, "_%s", out) : intern(s->cx, out);
}

static Instance *current(Sem *s) { return s->frame->inst; }

/* ---- parameters ---------------------------------------------------------------------------- */

static SemRole role_of(Sem *s, const Ast *a)
{
    static const char *const words[] = { "weight", "bias", "gain", "embedding" };
    if (!a->role)
        return SEM_WEIGHT;
    for (int i = 0; i < 4; i++)
        if (strcmp(a->role, words[i]) == 0)
            return (SemRole)i;
    Diag *d = sem_error(s, a->role_at, "unknown role %s: weight, bias, gain or embedding wanted",
                        a->role);
    sem_did_you_mean(d, a->role, words, 4);
    return SEM_WEIGHT;
}

/* Without `~`: zeros for biases, ones for gains, a width that keeps the variance for weights. */
static void default_init(CheckedParam *p)
{
    int64_t in = 1, out = 1;
    if (p->type->rank >= 1)
        dim_value(p->type->dim[p->type->rank - 1], &in);
    if (p->type->rank >= 2)
        dim_value(p->type->dim[p->type->rank - 2], &out);
    p->init = p->role == SEM_BIAS || p->role == SEM_STATE ? SEM_INIT_ZEROS
              : p->role == SEM_GAIN                       ? SEM_INIT_ONES
              : p->role == SEM_EMBEDDING                  ? SEM_INIT_NORMAL
                                                          : SEM_INIT_UNIFORM;
    p->init_value = p->role == SEM_EMBEDDING ? 0.02 : 0;
    if (p->init == SEM_INIT_UNIFORM)
        p->init_value = p->type->rank >= 2 ? sqrt(6.0 / ((double)in + (double)out))
                                           : sqrt(3.0 / (double)in);
}

static bool sizes_known(Sem *s, const Ast *a, const Type *t)
{
    int64_t v;
    for (int i = 0; i < t->rank; i++)
        if (!dim_value(t->dim[i], &v)) {
            Diag *d = sem_error(s, a->type->items.at[i]->span,
                                "the size %s of parameter %s is not known while compiling",
                                dim_text(s->cx, t->dim[i]), a->name);
            sem_note_dim(s, d, t->dim[i]);
            sem_hint(d, "sizes of parameters are constants: const %s = ...",
                     dim_text(s->cx, t->dim[i]));
            return false;
        }
    return true;
}

/* The type with the counts of all stacks around it in front; NULL after an error. */
static const Type *stacked_type(Sem *s, const Ast *a, const Type *t, int group)
{
    const Dim *dim[RANK_MAX];
    int rank = 0, depth = 0;
    for (int g = group; g >= 0; g = s->out->groups.at[g].parent)
        depth++;
    if (depth + t->rank > RANK_MAX) {
        sem_error(s, a->span, "%s has more than %d axes with its stacks", a->name, RANK_MAX);
        return NULL;
    }
    rank = depth;
    for (int g = group; g >= 0; g = s->out->groups.at[g].parent)
        dim[--depth] = s->out->groups.at[g].count;
    for (int i = 0; i < t->rank; i++)
        dim[rank++] = t->dim[i];
    const Type *all = sem_type(s, t->dtype, rank, dim);
    if (dim_overflows(type_elems(s->dims, all))) {
        sem_error(s, a->span, "parameter %s has more elements than 64 bits can count", a->name);
        return NULL;
    }
    return all;
}

static bool path_is_free(Sem *s, const Ast *a, const char *path)
{
    for (int i = 0; i < s->out->params.len; i++)
        if (s->out->params.at[i].path == path) {
            Diag *d = sem_error(s, a->at, "two parameters have the path %s", path);
            sem_note(s, d, s->out->params.at[i].span, "the first of them");
            return false;
        }
    return true;
}

static const char *free_name(Sem *s, const char *name)
{
    for (int i = 0; i < s->out->params.len; i++)
        if (s->out->params.at[i].name == name)
            return free_name(s, intern_printf(s->cx, "%s_", name));
    return name;
}

/* A row of the table and a name in the scope; -1 after an error. */
int sem_add_param(Sem *s, const Ast *a, const Type *type, SemRole role)
{
    Instance *inst = current(s);
    const char *last = a->path ? intern(s->cx, a->path) : a->name;
    CheckedParam p = { .type = type, .role = role, .group = inst->group, .fit_input = -1 };
    p.stacked = stacked_type(s, a, type, inst->group);
    p.path = join(s, inst->path, ".", last);
    if (!p.stacked || !path_is_free(s, a, p.path))
        return -1;
    p.name = free_name(s, identifier(s, join(s, inst->under, "_", last)));
    p.span = sem_here(s, a->at);
    default_init(&p);
    vec_push(s->arena, &s->out->params, p);
    vec_push(s->arena, &s->owners, inst);
    Thing *t = thing_new(s, THING_PARAM, p.span);
    t->index = s->out->params.len - 1;
    t->text = last;
    scope_set(s, inst->scope, a->name, t);
    return t->index;
}

static void declare_param(Sem *s, const Ast *a)
{
    const Type *type = sem_eval_type(s, a->type, a->name);
    SemRole role = role_of(s, a);
    Thing *old = scope_find_here(current(s)->scope, a->name);
    if (old) {
        Diag *d = sem_error(s, a->at, "%s is declared twice", a->name);
        sem_note(s, d, old->span, "the first %s", a->name);
        return;
    }
    if (!type) {
        scope_set(s, current(s)->scope, a->name, thing_poison(s));
        return;
    }
    if (type->dtype != DT_F32) {
        sem_error(s, a->type->span, "parameters are real");
        type = NULL;
    } else if (!sizes_known(s, a, type)) {
        type = NULL;
    }
    int index = type ? sem_add_param(s, a, type, role) : -1;
    if (index < 0)
        scope_set(s, current(s)->scope, a->name, thing_poison(s));
    else if (a->value)
        sem_set_init(s, index, a->value);
}

/* ---- building ------------------------------------------------------------------------------ */

typedef struct {
    const char *path, *under;
    int group;
    SemRegion region;
} Place;

static void declare_block(Sem *s, const Ast *block)
{
    for (int i = 0; i < block->items.len; i++)
        sem_declare_statement(s, block->items.at[i]);
}

Instance *sem_build(Sem *s, Decl *d, Scope *brackets, const char *path, const char *under,
                    int group, Span at)
{
    if (d->building) {
        Diag *diag = sem_error(s, at, "layer %s contains itself", d->name);
        sem_note(s, diag, d->ast->at, "%s is declared here", d->name);
        return NULL;
    }
    Instance *inst = NEW(s->arena, Instance);
    *inst = (Instance){ .decl = d,
                        .outer = s->frame ? s->frame->inst : NULL,
                        .scope = brackets,
                        .path = path,
                        .under = under,
                        .group = group,
                        .span = sem_here(s, at) };
    Frame f;
    bool before = s->declaring;
    frame_push(s, &f, d, brackets, at);
    f.inst = inst;
    f.builds = true;
    s->declaring = true;
    d->building = true;
    declare_block(s, d->ast->body);
    d->building = false;
    s->declaring = before;
    frame_pop(s);
    return f.failed ? NULL : inst;
}

/* dense[4, 2]: the layers of the prelude that take as many sizes. */
static void hint_layers(Sem *s, Diag *d, int n_args)
{
    Text list = text_new(s->arena);
    for (int i = 0; i < s->prelude->values.len; i++) {
        const Thing *t = s->prelude->values.at[i].thing;
        if (t->kind != THING_DECL || t->decl->ast->kind != AST_LAYER)
            continue;
        const AstList *formals = &t->decl->ast->params;
        int wanted = 0;
        while (wanted < formals->len && !formals->at[wanted]->value)
            wanted++;
        if (wanted != n_args)
            continue;
        text_add(&list, "%s%s[", list.len ? ", " : "", t->decl->name);
        for (int k = 0; k < wanted; k++)
            text_add(&list, "%s%s", k ? ", " : "", formals->at[k]->name);
        text_put(&list, "]");
    }
    if (list.len)
        sem_hint(d, "the prelude has %s", list.at);
}

/* The layer that an expression names, with its bracket arguments; NULL after an error. */
static Decl *layer_named(Sem *s, const Ast *a, const AstList **args)
{
    static const AstList none = { 0 };
    const Ast *name = a->kind == AST_INDEX ? a->left : a;
    *args = a->kind == AST_INDEX ? &a->args : &none;
    if (name->kind != AST_NAME) {
        Diag *d = sem_error(s, a->span, "a layer wanted, such as linear[4, 2]");
        if (a->kind == AST_CALL)
            sem_hint(d, "a value is assigned with =");
        return NULL;
    }
    Thing *t = scope_find(s->frame->scope, name->name);
    if (t && t->kind == THING_DECL && t->decl->ast->kind == AST_LAYER)
        return t->decl;
    if (!t)
        hint_layers(s, sem_unknown(s, name->span, "layer", name->name, true), (*args)->len);
    else if (t->kind == THING_DECL)
        sem_error(s, name->span, "%s is a function: it has no parameters and is just applied",
                  name->name);
    else if (t->kind != THING_POISON)
        sem_error(s, name->span, "%s is %s, not a layer", name->name, thing_text(s, t));
    return NULL;
}

static Thing *build_one(Sem *s, const Ast *a, Place at, Span where)
{
    const AstList *args;
    Decl *d = layer_named(s, a, &args);
    Scope *scope = d ? scope_new(s, d->scope) : NULL;
    if (!d || !sem_bind_brackets(s, d, a->span, args, scope))
        return thing_poison(s);
    Thing *t = thing_new(s, THING_INSTANCE, sem_here(s, where));
    t->inst = sem_build(s, d, scope, at.path, at.under, at.group, where);
    if (t->inst)
        t->inst->region = at.region;
    return t->inst ? t : thing_poison(s);
}

static const char *layer_name(const Ast *a)
{
    while (a->kind == AST_INDEX || a->kind == AST_BINARY)
        a = a->left;
    return a->kind == AST_NAME ? a->name : "";
}

/* layer[args] * count: one instance with the path h.*, and a group for its parameters. */
static Thing *build_stack(Sem *s, const Ast *a, Place at, Span where)
{
    const Dim *count = sem_eval_dim(s, a->right, "the height of a stack");
    int64_t n;
    if (!count)
        return thing_poison(s);
    if (!dim_value(count, &n) || n < 1) {
        Diag *d = sem_error(s, a->right->span,
                            "a stack needs a constant number of layers, 1 or more, not %s",
                            sem_dim_text(s, count));
        sem_note_dim(s, d, count);
        return thing_poison(s);
    }
    if (a->left->kind == AST_BINARY) {
        sem_error(s, a->span, "a stack is written layer[...] * count");
        return thing_poison(s);
    }
    CheckedGroup g = { .name = at.path,
                       .path = at.path,
                       .layer = layer_name(a),
                       .parent = at.group,
                       .count = count,
                       .span = sem_here(s, where) };
    if (at.group >= 0) /* relative to the stack around it */
        g.name = intern(s->cx, at.path + strlen(s->out->groups.at[at.group].path) + 3);
    vec_push(s->arena, &s->out->groups, g);
    at.path = intern_printf(s->cx, "%s.*", at.path);
    at.group = s->out->groups.len - 1;
    Thing *t = build_one(s, a->left, at, where);
    if (t->kind == THING_POISON)
        return t;
    t->kind = THING_STACK;
    t->inst->count = count;
    return t;
}

static Thing *build_value(Sem *s, const Ast *a, Place at, Span where);

static Thing *build_list(Sem *s, const Ast *a, Place at, Span where)
{
    Thing *list = thing_new(s, THING_TUPLE, sem_here(s, where)), *range = NULL;
    int64_t lo = 0, hi = a->items.len;
    Scope *outer = s->frame->scope;
    if (a->kind == AST_LIST_FOR) {
        range = sem_eval(s, a->right);
        if (range->kind != THING_RANGE || !dim_value(range->dim, &lo)
            || !dim_value(range->to, &hi)) {
            if (range->kind != THING_POISON)
                sem_error(s, a->right->span, "a list of layers runs over a constant range");
            return thing_poison(s);
        }
        if (!sem_few_turns(s, a->right, "a list of layers", lo, hi))
            return thing_poison(s);
        s->frame->scope = scope_new(s, outer);
    }
    for (int64_t i = lo; i < hi && list->kind != THING_POISON; i++) {
        Place one = at;
        one.path = intern_printf(s->cx, "%s.%lld", at.path, (long long)(i - lo));
        one.under = intern_printf(s->cx, "%s_%lld", at.under, (long long)(i - lo));
        if (range)
            scope_set(s, s->frame->scope, a->name, thing_dim(s, dim_const(s->dims, i), a->at));
        Thing *t = build_value(s, range ? a->value : a->items.at[i], one, where);
        if (t->kind == THING_POISON)
            list = t; /* the next ones would say the same */
        else
            vec_push(s->arena, &list->items, t);
    }
    s->frame->scope = outer;
    return list;
}

static Thing *build_value(Sem *s, const Ast *a, Place at, Span where)
{
    bool yes;
    switch (a->kind) {
    case AST_BAD: return thing_poison(s);
    case AST_CHOICE:
        if (!sem_eval_bool(s, a->cond, "the condition of if", &yes))
            return thing_poison(s);
        return build_value(s, yes ? a->left : a->right, at, where);
    case AST_LIST:
    case AST_LIST_FOR: return build_list(s, a, at, where);
    case AST_BINARY:
        if (a->op == AST_MUL)
            return build_stack(s, a, at, where);
        break;
    default: break;
    }
    return build_one(s, a, at, where);
}

/* `in fp32` behind a declaration. */
static SemRegion region_of(Sem *s, const Ast *a)
{
    static const char *const words[] = { "fp32", "bf16", "fp16" };
    if (!a->role)
        return REGION_PROGRAM;
    for (int i = 0; i < 3; i++)
        if (strcmp(a->role, words[i]) == 0) {
            CheckedRegion r = { a->name, (SemRegion)(i + 1), a->role_at };
            vec_push(s->arena, &s->out->regions, r);
            return r.region;
        }
    Diag *d = sem_error(s, a->role_at, "a layer is computed in fp32, bf16 or fp16, not in %s",
                        a->role);
    if (strcmp(a->role, "fp64") == 0)
        sem_hint(d, "fp64 is for whole programs: precision = fp64");
    else
        sem_did_you_mean(d, a->role, words, 3);
    return REGION_PROGRAM;
}

static void declare_sublayer(Sem *s, const Ast *a)
{
    Instance *inst = current(s);
    const char *last = a->path ? a->path : a->name;
    Place at = { join(s, inst->path, ".", last), identifier(s, join(s, inst->under, "_", last)),
                 inst->group, region_of(s, a) };
    for (int i = 0; i < inst->scope->layers.len; i++)
        if (inst->scope->layers.at[i].name == a->name) {
            Diag *d = sem_error(s, a->at, "layer %s is declared twice", a->name);
            sem_note(s, d, inst->scope->layers.at[i].thing->span, "the first %s", a->name);
            return;
        }
    scope_set_layer(s, inst->scope, a->name, build_value(s, a->value, at, a->at));
}

/* ---- statements that declare --------------------------------------------------------------- */

static bool declares(const Ast *a)
{
    switch (a->kind) {
    case AST_PARAM:
    case AST_SUBLAYER:
    case AST_INIT:
    case AST_STATE: return true;
    case AST_BLOCK:
        for (int i = 0; i < a->items.len; i++)
            if (declares(a->items.at[i]))
                return true;
        return false;
    case AST_IF: return declares(a->body) || (a->other && declares(a->other));
    case AST_FOR:
    case AST_SCAN: return declares(a->body);
    case AST_ASSIGN: return a->value->kind == AST_SCAN && declares(a->value);
    default: return false;
    }
}

/* What a loop declares is a mistake: uses of it are none. */
static void poison_declared(Sem *s, const Ast *a)
{
    Scope *scope = current(s)->scope;
    if (a->kind == AST_SUBLAYER)
        scope_set_layer(s, scope, a->name, thing_poison(s));
    else if (a->kind == AST_PARAM || a->kind == AST_STATE)
        scope_set(s, scope, a->name, thing_poison(s));
    else if (a->kind == AST_IF || a->kind == AST_FOR || a->kind == AST_SCAN)
        poison_declared(s, a->body);
    if (a->kind == AST_IF && a->other)
        poison_declared(s, a->other);
    for (int i = 0; a->kind == AST_BLOCK && i < a->items.len; i++)
        poison_declared(s, a->items.at[i]);
}

static bool names_known(Sem *s, const Ast *a);

static bool names_known_in(Sem *s, const AstList *list)
{
    for (int i = 0; i < list->len; i++)
        if (!names_known(s, list->at[i]))
            return false;
    return true;
}

/* Does a constant of the body need sizes that only an application gives? */
static bool names_known(Sem *s, const Ast *a)
{
    if (!a)
        return true;
    if (a->kind == AST_NAME)
        return scope_find(s->frame->scope, a->name) || builtin_find(a->name);
    if (a->kind == AST_CALL)
        return names_known_in(s, &a->args);
    return names_known(s, a->left) && names_known(s, a->right) && names_known(s, a->value)
           && names_known(s, a->cond) && names_known_in(s, &a->args)
           && names_known_in(s, &a->items);
}

void sem_declare_statement(Sem *s, const Ast *a)
{
    bool yes;
    switch (a->kind) {
    case AST_PARAM: declare_param(s, a); break;
    case AST_SUBLAYER: declare_sublayer(s, a); break;
    case AST_INIT: sem_override_init(s, a); break;
    case AST_STATE: sem_declare_state(s, a); break;
    case AST_CONST:
        if (names_known(s, a->value))
            sem_declare_const(s, s->frame->scope, a, false);
        break;
    case AST_IF:
        if (!declares(a) || !sem_eval_bool(s, a->cond, "the condition of if", &yes))
            break;
        if (yes)
            declare_block(s, a->body);
        else if (a->other && a->other->kind == AST_IF)
            sem_declare_statement(s, a->other);
        else if (a->other)
            declare_block(s, a->other);
        break;
    case AST_FOR:
    case AST_SCAN:
    case AST_ASSIGN:
        if (sem_is_requirement(s, a) && names_known_in(s, &a->value->args)) {
            if (sem_eval(s, a->value)->kind == THING_POISON)
                s->frame->failed = true;
        } else if (declares(a)) {
            Diag *d = sem_error(s, a->span, "a layer or parameter cannot be declared in a loop");
            sem_hint(d, "declare a stack before the loop: h : layer[...] * count");
            poison_declared(s, a->kind == AST_ASSIGN ? a->value->body : a->body);
        }
        break;
    default: break;
    }
}

/* ---- after all phases ---------------------------------------------------------------------- */

static bool lies_in(const Instance *part, const Instance *whole)
{
    while (part && part != whole)
        part = part->outer;
    return part != NULL;
}

static bool is_idle(const Sem *s, int param)
{
    const CheckedParam *p = &s->out->params.at[param];
    return !p->used && p->role != SEM_STATE;
}

/* Does the loss use no parameter of the layer? */
static bool all_idle(const Sem *s, const Instance *inst)
{
    for (int i = 0; i < s->out->params.len; i++)
        if (lies_in(s->owners.at[i], inst) && !is_idle(s, i))
            return false;
    return true;
}

/* The path of a layer without the star of a stack: "h.*" is h. */
static const char *layer_path(Sem *s, const Instance *inst)
{
    const size_t len = strlen(inst->path);
    const bool stack = len > 2 && strcmp(inst->path + len - 2, ".*") == 0;
    return arena_strndup(s->arena, inst->path, stack ? len - 2 : len);
}

/* A parameter that no loss reaches would stay as it was initialised. One message for the outermost
   layer that is of no use. */
void sem_check_params(Sem *s)
{
    bool *told = NEW_ARRAY(s->arena, bool, s->out->params.len + 1);
    for (int i = 0; s->out->has_loss && i < s->out->params.len; i++) {
        const CheckedParam *p = &s->out->params.at[i];
        const Instance *idle = NULL;
        if (told[i] || !is_idle(s, i))
            continue;
        for (const Instance *o = s->owners.at[i]; o && o->outer; o = o->outer)
            if (all_idle(s, o))
                idle = o;
        if (!idle) {
            Diag *d = sem_error(s, p->span, "parameter %s is not used by the loss", p->path);
            sem_hint(d, "use it, or remove it");
            continue;
        }
        for (int k = i; k < s->out->params.len; k++)
            told[k] = told[k] || lies_in(s->owners.at[k], idle);
        Diag *d = sem_error(s, idle->span, "layer %s is not used by the loss", layer_path(s, idle));
        sem_hint(d, idle->used
                        ? "what it gives does not reach the loss: use it, or remove the layer"
                        : "apply it, or remove it");
    }
}
