/* sem.c -- semantic analysis from top to bottom.
 *
 * In: the tree of a model file, -D overrides, the prelude. Out: the checked tree. Declarations
 * first, then the model is built (what it declares) and evaluated once per phase (what it
 * computes), then the train block is read. Mistakes of one part do not keep the others from being
 * looked at, but nothing is said twice.
 */
#include "front/sem_parts.h"

#include <string.h>

/* ---- declarations of a file ---------------------------------------------------------------- */

static void declare_decl(Sem *s, Scope *sc, const Ast *a, bool prelude)
{
    Thing *old = scope_find_here(sc, a->name);
    if (old) {
        Diag *d = sem_error(s, a->at, "%s is declared twice", a->name);
        sem_note(s, d, old->span, "the first %s", a->name);
        return;
    }
    Decl *decl = NEW(s->arena, Decl);
    *decl = (Decl){ .name = a->name, .ast = a, .scope = sc, .prelude = prelude };
    for (int list = 0; list < 2; list++) {
        const AstList *formals = list ? &a->args : &a->params;
        for (int i = 0; i < formals->len; i++)
            for (int k = 0; k < i; k++)
                if (formals->at[i]->name == formals->at[k]->name)
                    sem_error(s, formals->at[i]->at, "argument %s is declared twice",
                              formals->at[i]->name);
    }
    Thing *t = thing_new(s, THING_DECL, a->at);
    t->decl = decl;
    if (a->kind != AST_MODEL) {
        scope_set(s, sc, a->name, t);
    } else if (s->model) {
        Diag *d = sem_error(s, a->at, "this version has one model per program");
        sem_note(s, d, s->model->ast->at, "the first model");
    } else {
        s->model = decl;
    }
}

static void declare_all(Sem *s, Scope *sc, const Ast *file, bool prelude)
{
    for (int i = 0; i < file->items.len; i++) {
        const Ast *a = file->items.at[i];
        if (a->kind == AST_LAYER || a->kind == AST_FUNC || a->kind == AST_MODEL)
            declare_decl(s, sc, a, prelude);
    }
    for (int i = 0; i < file->items.len; i++) {
        const Ast *a = file->items.at[i];
        if (a->kind == AST_CONST)
            sem_declare_const(s, sc, a, !prelude);
        else if (a->kind == AST_BATCH || a->kind == AST_DIM)
            sem_declare_dim(s, a);
    }
}

static void read_prelude(Sem *s)
{
    s->prelude = scope_new(s, NULL);
    if (!s->opt->prelude)
        return;
    int file = source_read(s->cx, s->opt->prelude);
    if (!file)
        return;
    s->library = parse_source(s->cx, file);
    declare_all(s, s->prelude, s->library, true);
}

/* ---- notes of symbols ---------------------------------------------------------------------- */

static const char *trimmed(Sem *s, const char *from, const char *to)
{
    while (from < to && (*from == ' ' || *from == '\t'))
        from++;
    while (to > from && (to[-1] == ' ' || to[-1] == '\t'))
        to--;
    return arena_strndup(s->arena, from, (size_t)(to - from));
}

/* The comment behind `const C = 64, H = 4  # channels, heads` describes its symbols: one by one
   when it has as many parts, otherwise a symbol that is alone on its line. */
static void note_line(Sem *s, Symbol *const *on_line, int n)
{
    const char *line = source_text_line(s->cx, on_line[0]->span), *hash = strchr(line, '#');
    if (!hash || strchr(line, '"'))
        return;
    const char *at = hash + 1, *end = at + strlen(at);
    int parts = 1;
    for (const char *c = at; *c; c++)
        parts += *c == ',';
    for (int i = 0; i < n && (n == 1 || parts == n); i++) {
        const char *comma = n == 1 ? NULL : strchr(at, ',');
        on_line[i]->note = trimmed(s, at, comma ? comma : end);
        at = comma ? comma + 1 : end;
    }
}

static void note_symbols(Sem *s)
{
    VEC(Symbol *) on_line = { 0 };
    int line = 0, file = 0;
    for (int i = 0; i <= dims_count(s->dims); i++) {
        Symbol *sym = i < dims_count(s->dims) ? dims_at(s->dims, i) : NULL;
        int its = sym && sym->span.file ? source_line(s->cx, sym->span, NULL) : 0;
        if (on_line.len && (!sym || its != line || sym->span.file != file)) {
            note_line(s, on_line.at, on_line.len);
            on_line.len = 0;
        }
        if (!sym || !its || sym->kind == SYM_BATCH)
            continue;
        line = its;
        file = sym->span.file;
        vec_push(s->arena, &on_line, sym);
    }
}

/* ---- -D ------------------------------------------------------------------------------------ */

static void take_defines(Sem *s)
{
    s->defines = map_new(s->arena);
    for (int i = 0; i < s->opt->n_defines; i++)
        map_set(s->defines, intern(s->cx, s->opt->defines[i].name), (void *)&s->opt->defines[i]);
}

/* What -D names must be a constant of the file or a setting of the train block. */
static void check_defines(Sem *s)
{
    for (int i = 0; i < s->opt->n_defines; i++) {
        const Define *def = &s->opt->defines[i];
        const char *name = intern(s->cx, def->name);
        if (!map_get(s->defines, name))
            continue;
        const Symbol *sym = dims_find(s->dims, name);
        if (sym) {
            Diag *d = diag_option(s->cx, def->typed, "%s is bound when the program starts", name);
            sem_note(s, d, sym->span, "%s is declared here", name);
            sem_hint(d,
                     sym->kind == SYM_BATCH ? "give --batch to the program"
                                            : "give --dims %s=%s to the program",
                     name, def->value);
            continue;
        }
        VEC(const char *) names = { 0 };
        for (int k = 0; k < s->global->values.len; k++) {
            ThingKind kind = s->global->values.at[k].thing->kind;
            if (kind == THING_DIM || kind == THING_REAL || kind == THING_BOOL)
                vec_push(s->arena, &names, s->global->values.at[k].name);
        }
        for (int k = 0; setting_key(s, k); k++)
            vec_push(s->arena, &names, setting_key(s, k));
        Diag *d = diag_option(s->cx, def->typed,
                              "the file has no constant and the train block no setting %s", name);
        sem_did_you_mean(d, name, names.at, names.len);
    }
}

/* ---- the model's inputs -------------------------------------------------------------------- */

static bool input_range(Sem *s, const Ast *type, CheckedInput *in)
{
    if (!type->value)
        return true;
    if (in->type->dtype != DT_I32) {
        sem_error(s, type->value->span, "a range is for int inputs: %s is %s", in->name,
                  sem_type_text(s, in->type));
        return false;
    }
    in->lo = sem_eval_dim(s, type->value->left, "the start of a range");
    in->hi = sem_eval_dim(s, type->value->right, "the end of a range");
    if (!in->lo || !in->hi)
        return false;
    int64_t lo, hi;
    if (dim_value(in->lo, &lo) && dim_value(in->hi, &hi) && hi <= lo) {
        sem_error(s, type->value->span, "the range of %s is empty: %s to %s", in->name,
                  sem_dim_text(s, in->lo), sem_dim_text(s, in->hi));
        return false;
    }
    if (type->args.len == 0)
        return true;
    const Ast *a = type->args.at[0];
    const Thing *t = sem_eval(s, a);
    if (!thing_whole(t, &in->ignore) || in->ignore >= 0 || type->args.len > 1) {
        if (t->kind != THING_POISON)
            sem_error(s, a->span, "one ignored label can be given, below 0: in 0..V or -100");
        return false;
    }
    in->has_ignore = true;
    return true;
}

/* [B, 8] without batch B: said once, then B is a mistake that is known. */
static void check_sample_axis(Sem *s, const AstList *sizes)
{
    const Ast *first = sizes->len ? sizes->at[0] : NULL;
    if (s->batches.len || !first || first->kind != AST_NAME
        || scope_find(s->frame->scope, first->name))
        return;
    Diag *d = sem_unknown(s, first->span, "size", first->name, false);
    sem_hint(d, "declare the sample axis: batch %s", first->name);
    scope_set(s, s->global, first->name, thing_poison(s));
}

/* False after an error: the name is then bound to nothing. */
static bool declare_input(Sem *s, const Ast *a)
{
    if (!a->type || !a->type->flag) {
        Diag *d = sem_error(s, a->span, "input %s needs a type", a->name);
        sem_hint(d, "for example %s: [B, 8], or %s: int[B] in 0..10", a->name, a->name);
        return false;
    }
    if (a->value)
        sem_error(s, a->value->span, "an input has no default");
    for (int i = 0; i < s->out->inputs.len; i++)
        if (s->out->inputs.at[i].name == a->name)
            return true; /* said with the arguments */
    check_sample_axis(s, &a->type->items);
    const Type *type = sem_eval_type(s, a->type, a->name);
    CheckedInput in = { .name = a->name, .type = type, .span = a->at };
    if (!type || !input_range(s, a->type, &in))
        return false;
    bool first = type->rank > 0;
    for (int i = 0; i < type->rank; i++)
        first = first && dim_has_kind(type->dim[i], SYM_BATCH) == (i == 0);
    if (!first || type->dim[0] != dim_sym(s->dims, s->batches.at[0])) {
        Diag *d = sem_error(s, a->type->span,
                            "the first axis of an input, and only that, is the "
                            "sample axis");
        if (s->batches.len)
            sem_note(s, d, s->batches.at[0]->span, "the sample axis %s is declared here",
                     s->batches.at[0]->name);
        else
            sem_hint(d, "declare it: batch B");
        return false;
    }
    vec_push(s->arena, &s->out->inputs, in);
    return true;
}

/* ---- the model ----------------------------------------------------------------------------- */

static bool build_model(Sem *s)
{
    static const AstList none = { 0 };
    const Ast *a = s->model->ast;
    Scope *scope = scope_new(s, s->global);
    Frame f;
    frame_push(s, &f, s->model, scope, a->at);
    bool fine = sem_bind_brackets(s, s->model, a->at, &none, scope);
    for (int i = 0; i < a->args.len; i++)
        if (!declare_input(s, a->args.at[i]))
            scope_set(s, scope, a->args.at[i]->name, thing_poison(s));
    frame_pop(s);
    if (!fine)
        return false;
    s->main = sem_build(s, s->model, scope, "", "", -1, a->at);
    return s->main != NULL;
}

enum { MANY = 64 }; /* as many as rt.h has room for */

static void check_count(Sem *s, int n, Span at, const char *what)
{
    if (n > MANY)
        sem_error(s, at, "more than %d %s in one model", MANY, what);
}

/* The program has tables of a fixed size for these. */
static void check_counts(Sem *s)
{
    Checked *c = s->out;
    check_count(s, c->means.len, c->means.len > MANY ? c->means.at[MANY].span : (Span){ 0 },
                "means in losses and metrics");
    if (c->means.len <= MANY) /* each metric has a mean or more */
        check_count(s, c->metrics.len,
                    c->metrics.len > MANY ? c->metrics.at[MANY].span : (Span){ 0 }, "metrics");
    check_count(s, c->outputs.len, c->outputs.len > MANY ? c->outputs.at[MANY].span : (Span){ 0 },
                "outputs");
    check_count(s, c->inputs.len, c->inputs.len > MANY ? c->inputs.at[MANY].span : (Span){ 0 },
                "inputs");
    int dims = 0;
    for (int i = 0; i < dims_count(s->dims); i++) {
        const Symbol *sym = dims_at(s->dims, i);
        dims += sym->kind == SYM_DIM || sym->kind == SYM_BATCH;
        if (dims == MANY + 1)
            check_count(s, dims++, sym->span, "sizes that are bound when the program starts");
    }
}

static void check_model(Sem *s)
{
    s->out->name = s->model->name;
    s->out->file = s->model->ast->span.file;
    if (!build_model(s))
        return;
    sem_run_model(s, true);
    if (diag_count(s->cx))
        return;
    sem_run_model(s, false);
    if (diag_count(s->cx))
        return;
    check_counts(s);
    sem_mark_used(s);
    sem_check_params(s);
    if (!s->out->has_loss && s->out->outputs.len == 0 && s->out->metrics.len == 0) {
        Diag *d = sem_error(s, s->model->ast->at, "model %s has no loss and no output",
                            s->model->name);
        sem_hint(d, "loss = mean(...) trains it, output y = ... computes y");
    }
}

/* A program that trains nothing may be meant, but it is said. */
static void warn_untrained(Sem *s)
{
    Span at = s->model->ast->at;
    if (!s->out->has_loss) {
        Diag *d = diag_warning(s->cx, at, "untrained",
                               "model %s has no loss: its program computes "
                               "outputs and trains nothing",
                               s->model->name);
        diag_hint(d, "loss = mean(...) says what training makes small");
    } else if (s->out->params.len == 0) {
        diag_warning(s->cx, at, "untrained",
                     "model %s has no parameters: there is nothing to "
                     "train",
                     s->model->name);
    }
}

Checked *sem_check(Context *cx, Ast *file, const SemOptions *opt)
{
    Sem *s = NEW(cx->arena, Sem);
    s->cx = cx;
    s->arena = cx->arena;
    s->opt = opt;
    s->file = file;
    s->dims = dims_new(cx);
    s->out = NEW(cx->arena, Checked);
    s->out->cx = cx;
    s->out->dims = s->dims;
    s->mean_slots = map_new(s->arena);
    read_prelude(s);
    s->global = scope_new(s, s->prelude);
    take_defines(s);
    declare_all(s, s->global, file, false);
    if (s->model)
        check_model(s);
    else if (diag_count(cx) == 0)
        sem_error(s, file->span, "the file has no model");
    note_symbols(s);
    const Ast *train = NULL;
    for (int i = 0; i < file->items.len; i++) {
        const Ast *a = file->items.at[i];
        if (a->kind != AST_TRAIN)
            continue;
        if (train) {
            Diag *d = sem_error(s, a->span, "a second train block");
            sem_note(s, d, train->span, "the first train block");
        }
        train = train ? train : a;
    }
    if (diag_count(cx) == 0 && (s->out->has_loss || !train))
        warn_untrained(s);
    sem_train(s, train);
    check_defines(s);
    sem_finish_messages(s);
    return diag_count(cx) ? NULL : s->out;
}
