/* sem_data.c -- where the data of a run come from, and which part of them each input is.
 *
 * In: `data = csv("h.csv", split: 0.8) { x = cols(0..8), y = col("price") }`. Out: reader, paths
 * and one map per input, checked against the input's type.
 */
#include "front/sem_parts.h"

#include <string.h>

static const char *text_of(Sem *s, const Ast *a, const char *what)
{
    const Thing *t = sem_eval(s, a);
    if (t->kind == THING_TEXT)
        return t->text;
    if (t->kind != THING_POISON)
        sem_error(s, a->span, "%s must be a text", what);
    return NULL;
}

/* The path of a file of data, which no output may replace. */
static const char *path_of(Sem *s, const Ast *a)
{
    const char *path = text_of(s, a, "the path of a file");
    if (path)
        vec_push(s->arena, &s->cx->named, ((Named){ path, a->span }));
    return path;
}

/* ---- maps ---------------------------------------------------------------------------------- */

static const CheckedInput *input_of(Sem *s, const Ast *m, int *index)
{
    VEC(const char *) names = { 0 };
    for (*index = 0; *index < s->out->inputs.len; (*index)++) {
        const CheckedInput *in = &s->out->inputs.at[*index];
        if (in->name == m->name)
            return in;
        vec_push(s->arena, &names, in->name);
    }
    for (int i = 0; i < s->model->ast->args.len; i++)
        if (s->model->ast->args.at[i]->name == m->name)
            return NULL; /* its declaration is wrong: said there */
    Diag *d = sem_error(s, m->at, "the model has no input %s", m->name);
    sem_did_you_mean(d, m->name, names.at, names.len);
    return NULL;
}

static void bad_fit(Sem *s, const Ast *m, const CheckedInput *in, const char *wanted)
{
    Diag *d = sem_error(s, m->value->span, "%s gives %s, but input %s is %s",
                        ast_expr_text(s->cx, m->value), wanted, in->name,
                        sem_type_text(s, in->type));
    sem_note(s, d, in->span, "%s is declared here", in->name);
}

static void map_window(Sem *s, const Ast *m, const CheckedInput *in, CheckedMap *map)
{
    const Thing *r = m->value->args.len == 1 ? sem_eval(s, m->value->args.at[0]->value) : NULL;
    if (r && r->kind == THING_POISON)
        return;
    if (!r || r->kind != THING_RANGE) {
        sem_error(s, m->value->span, "a window is a range of places: window(0..T)");
        return;
    }
    map->kind = SEM_WINDOW;
    map->lo = r->dim;
    map->hi = r->to;
    const Dim *n = dim_sub(s->dims, r->to, r->dim);
    if (in->type->dtype != DT_I32 || in->type->rank != 2 || !dim_same(in->type->dim[1], n)) {
        bad_fit(s, m, in,
                arena_printf(s->arena, "int[%s,%s]", dim_text(s->cx, in->type->dim[0]),
                             dim_text(s->cx, n)));
        return;
    }
    if (!in->hi) {
        Diag *d = sem_error(s, in->span,
                            "input %s needs its range, so that the data can be checked", in->name);
        sem_hint(d, "%s: %s in 0..V", in->name, sem_type_text(s, in->type));
    }
    vec_push(s->arena, &s->out->train.maps, *map);
}

static void map_column(Sem *s, const Ast *m, const CheckedInput *in, CheckedMap *map)
{
    const Ast *a = m->value->args.len == 1 ? m->value->args.at[0]->value : NULL;
    const Thing *t = a ? sem_eval(s, a) : NULL;
    int64_t n;
    if (t && t->kind == THING_POISON)
        return;
    if (t && t->kind == THING_TEXT) {
        map->column = t->text;
        if (!s->out->train.header) {
            sem_error(s, a->span, "a column by name needs a header: csv(..., header: true)");
            return;
        }
    } else if (!t || !thing_whole(t, &n) || n < 0) {
        sem_error(s, m->value->span,
                  "a column is given by number, from 0, or by name: col(\"price\")");
        return;
    } else {
        map->lo = t->dim;
        map->hi = dim_add(s->dims, t->dim, dim_const(s->dims, 1));
    }
    map->kind = SEM_COL;
    const Dim *one = dim_const(s->dims, 1);
    if (in->type->rank != 1 && !(in->type->rank == 2 && dim_same(in->type->dim[1], one))) {
        bad_fit(s, m, in, arena_printf(s->arena, "[%s]", dim_text(s->cx, in->type->dim[0])));
        return;
    }
    vec_push(s->arena, &s->out->train.maps, *map);
}

static void map_columns(Sem *s, const Ast *m, const CheckedInput *in, CheckedMap *map)
{
    const Thing *r = m->value->args.len == 1 ? sem_eval(s, m->value->args.at[0]->value) : NULL;
    int64_t lo, hi;
    if (r && r->kind == THING_POISON)
        return;
    if (!r || r->kind != THING_RANGE || !dim_value(r->dim, &lo) || !dim_value(r->to, &hi)
        || lo < 0) {
        sem_error(s, m->value->span, "columns are a constant range: cols(0..8)");
        return;
    }
    map->kind = SEM_COLS;
    map->lo = r->dim;
    map->hi = r->to;
    const Dim *n = dim_const(s->dims, 1);
    for (int i = 1; i < in->type->rank; i++)
        n = dim_mul(s->dims, n, in->type->dim[i]);
    if (in->type->rank < 2 || !dim_same(n, dim_sub(s->dims, r->to, r->dim))) {
        bad_fit(s, m, in,
                arena_printf(s->arena, "[%s,%lld]", dim_text(s->cx, in->type->dim[0]),
                             (long long)(hi - lo)));
        return;
    }
    vec_push(s->arena, &s->out->train.maps, *map);
}

static void read_map(Sem *s, const Ast *m)
{
    const char *reader = s->out->train.reader;
    bool csv = strcmp(reader, "csv") == 0;
    int index;
    const CheckedInput *in = input_of(s, m, &index);
    if (!in)
        return;
    for (int i = 0; i < s->out->train.maps.len; i++)
        if (s->out->train.maps.at[i].input == index) {
            sem_error(s, m->at, "input %s is mapped twice", m->name);
            return;
        }
    CheckedMap map = { .input = index, .span = m->span };
    const char *kind = m->value->kind == AST_CALL && m->value->left->kind == AST_NAME
                           ? m->value->left->name
                           : "";
    if (!csv && strcmp(kind, "window") == 0)
        map_window(s, m, in, &map);
    else if (csv && strcmp(kind, "col") == 0)
        map_column(s, m, in, &map);
    else if (csv && strcmp(kind, "cols") == 0)
        map_columns(s, m, in, &map);
    else
        sem_error(s, m->value->span, "%s wants %s for input %s", reader,
                  csv ? "col(\"name\"), col(number) or cols(0..n)" : "window(0..T)", m->name);
}

/* ---- the setting --------------------------------------------------------------------------- */

static bool read_arguments(Sem *s, const Ast *a, const char *reader)
{
    CheckedTrain *t = &s->out->train;
    bool text = strcmp(reader, "text") == 0, csv = strcmp(reader, "csv") == 0;
    TrainCall c = { .names = text  ? "path split val vocab"
                             : csv ? "path split val header"
                                   : "path split val",
                    .places = 1 };
    if (!train_call(s, a, &c))
        return false;
    if (!c.value[0]) {
        sem_error(s, a->span, "%s needs a file: %s(\"file\")", reader, reader);
        return false;
    }
    t->path = path_of(s, c.value[0]);
    if (c.value[1])
        train_number(s, c.value[1], "split", 0.001, 1, &t->split);
    if (c.value[2])
        t->val_path = path_of(s, c.value[2]);
    if (c.value[1] && c.value[2]) {
        Diag *d = sem_error(s, c.value[1]->span, "split and val exclude each other");
        sem_note(s, d, c.value[2]->span, "a file of its own for validation");
    }
    if (csv && c.value[3]) {
        t->header_set = true;
        sem_eval_bool(s, c.value[3], "header", &t->header);
    }
    if (text) {
        t->vocab = c.value[3] ? text_of(s, c.value[3], "vocab") : "chars";
        if (t->vocab && strcmp(t->vocab, "chars") != 0 && strcmp(t->vocab, "bytes") != 0)
            sem_error(s, c.value[3]->span, "vocab is \"chars\" or \"bytes\"");
    }
    return t->path != NULL;
}

static void check_complete(Sem *s, const Ast *setting)
{
    const CheckedTrain *t = &s->out->train;
    for (int i = 0; i < s->out->inputs.len; i++) {
        const CheckedInput *in = &s->out->inputs.at[i];
        bool mapped = false;
        for (int k = 0; k < t->maps.len; k++)
            mapped = mapped || t->maps.at[k].input == i;
        if (mapped)
            continue;
        Diag *d = sem_error(s, setting->at, "the data have nothing for input %s", in->name);
        sem_note(s, d, in->span, "%s is declared here", in->name);
    }
    for (int i = 0; i < s->out->params.len; i++)
        if (s->out->params.at[i].fit_kind && strcmp(t->reader, "csv") != 0)
            sem_error(s, s->out->params.at[i].span, "only columns of csv data can be fitted");
}

void sem_train_data(Sem *s, const Ast *setting)
{
    const Ast *a = setting->value;
    CheckedTrain *t = &s->out->train;
    const char *reader = a->kind == AST_CALL && a->left->kind == AST_NAME ? a->left->name : "";
    t->data_span = setting->span;
    static const char *const readers[] = { "text", "csv", "tokens" };
    bool known = false;
    for (int i = 0; i < 3; i++)
        known = known || strcmp(reader, readers[i]) == 0;
    if (!known) {
        Diag *d = sem_error(s, a->span,
                            "unknown data: text(\"file\"), csv(\"file\") or "
                            "tokens(\"file\") wanted");
        sem_did_you_mean(d, reader, readers, 3);
        return;
    }
    int before = diag_count(s->cx);
    if (!read_arguments(s, a, reader))
        return;
    t->reader = reader;
    if (!s->main)
        return; /* the inputs are not known for sure */
    for (int i = 0; i < setting->items.len; i++) {
        const Ast *m = setting->items.at[i];
        if (m->kind == AST_SETTING && m->value->kind != AST_BAD)
            read_map(s, m);
    }
    if (diag_count(s->cx) == before)
        check_complete(s, setting);
}
