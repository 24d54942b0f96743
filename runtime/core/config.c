/* config.c -- settings as JSON, and back at resume.
 *
 * In: RtOptions, or the config of a checkpoint. Out: config.json, or settings taken over. The one
 * idea: a resumed run goes on with the settings it had; what the command line says otherwise is
 * told, and so is what the program's own train block would have said.
 */
#include <jansson.h>
#include <stdarg.h>

#include "run.h"

typedef struct {
    char *at;
    size_t n, cap;
} JsonText;

__attribute__((format(printf, 2, 3))) static void put(JsonText *j, const char *fmt, ...)
{
    for (;;) {
        va_list args;
        va_start(args, fmt);
        const int n = vsnprintf(j->at + j->n, j->cap - j->n, fmt, args);
        va_end(args);
        if (n >= 0 && (size_t)n < j->cap - j->n) {
            j->n += (size_t)n;
            return;
        }
        char *more = rt_alloc(j->cap * 2, "the settings as JSON");
        memcpy(more, j->at, j->n);
        rt_free(j->at);
        j->at = more;
        j->cap *= 2;
    }
}

/* Bytes of the UTF-8 character at c; 0 = none is there. */
static int utf8_length(const unsigned char *c)
{
    const int n = c[0] < 0x80   ? 1
                  : c[0] < 0xc2 ? 0
                  : c[0] < 0xe0 ? 2
                  : c[0] < 0xf0 ? 3
                  : c[0] < 0xf5 ? 4
                                : 0;
    for (int i = 1; i < n; i++)
        if ((c[i] & 0xc0) != 0x80)
            return 0;
    const bool wrong = (c[0] == 0xe0 && c[1] < 0xa0) || (c[0] == 0xed && c[1] >= 0xa0)
                       || (c[0] == 0xf0 && c[1] < 0x90) || (c[0] == 0xf4 && c[1] >= 0x90);
    return wrong ? 0 : n;
}

/* A file name may be no UTF-8; JSON must be: such bytes become U+FFFD. */
static void put_text(JsonText *j, const char *text)
{
    if (!text) {
        put(j, "null");
        return;
    }
    put(j, "\"");
    for (const unsigned char *c = (const unsigned char *)text; *c;) {
        const int n = utf8_length(c);
        if (n == 0)
            put(j, "\\ufffd");
        else if (*c == '"' || *c == '\\')
            put(j, "\\%c", *c);
        else if (*c < 0x20)
            put(j, "\\u%04x", *c);
        else
            put(j, "%.*s", n, (const char *)c);
        c += n ? n : 1;
    }
    put(j, "\"");
}

static void put_real(JsonText *j, double value) /* shortest that reads back */
{
    char text[40];
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    put(j, "%s%s", text, strpbrk(text, ".e") ? "" : ".0");
}

static void put_dims(JsonText *j, const RtModel *m, const RtOptions *o)
{
    int n = 0;
    put(j, "{");
    for (int i = 0; i < m->n_dims; i++)
        if (!m->dims[i].batch)
            put(j, "%s\"%s\": %td", n++ ? ", " : "", m->dims[i].name, o->dims[i]);
    put(j, "}");
}

static void put_option(JsonText *j, const RtModel *m, const RtOptions *o, const RtOption *row)
{
    const char *const at = (const char *)o + row->at;
    bool flag;
    int64_t whole;
    double real;
    const char *text;
    switch (row->type) {
    case RT_OPT_INT:
    case RT_OPT_UINT: /* seeds above 2^63 come back by the same cast */
        memcpy(&whole, at, sizeof whole);
        put(j, "%lld", (long long)whole);
        break;
    case RT_OPT_REAL:
        memcpy(&real, at, sizeof real);
        put_real(j, real);
        break;
    case RT_OPT_TEXT:
        memcpy(&text, at, sizeof text);
        put_text(j, text);
        break;
    case RT_OPT_DIMS: put_dims(j, m, o); break;
    case RT_OPT_FLAG:
        memcpy(&flag, at, sizeof flag);
        put(j, flag ? "true" : "false");
        break;
    }
}

static JsonText json_text(void)
{
    return (JsonText){ .at = rt_alloc(1024, "the settings as JSON"), .cap = 1024 };
}

char *rt_config_text(const RtModel *m, const RtOptions *o)
{
    JsonText j = json_text();
    put(&j, "{\n  \"model\": ");
    put_text(&j, m->name);
    put(&j, ",\n  \"source\": ");
    put_text(&j, m->source);
    put(&j, ",\n  \"source_crc32\": \"%08x\"", (unsigned)m->source_crc);
    put(&j, ",\n  \"precision\": \"%s\"", rt_precision(m));
    if (m->n_halves > 0)
        put(&j, ",\n  \"masters\": \"none\"");
    put(&j, ",\n  \"optimizer\": \"%s\"", rt_optimizer_name(&o->train));
    put(&j, ",\n  \"states\": [");
    RtStateTensor states[RT_MAX_STATES];
    const int n = rt_optim_states(&o->train, states);
    for (int i = 0; i < n; i++)
        put(&j, "%s\"%s\"", i ? ", " : "", states[i].name);
    put(&j, "]");
    put(&j, ",\n  \"schedule\": ");
    put_text(&j, rt_schedule_name(&o->train));
    for (int i = 0; i < rt_option_count(m); i++) {
        const RtOption row = rt_option_at(m, i);
        if (row.saved && rt_option_applies(m, &row)) {
            put(&j, ",\n  \"%s\": ", row.name);
            put_option(&j, m, o, &row);
        }
    }
    put(&j, "\n}\n");
    return j.at;
}

/* ---- back ----------------------------------------------------------------------------------- */

typedef struct {
    const RtModel *m;
    RtOptions *o;
    FILE *to;
} Adopt;

static void tell(const Adopt *a, const char *name, const char *was, const char *is, bool given)
{
    if (a->to && given)
        fprintf(a->to, "changed  %s %s -> %s (given on the command line)\n", name, was, is);
    else if (a->to)
        fprintf(a->to, "kept     %s %s (the program's own %s is ignored; --%s changes it)\n", name,
                was, is, name);
}

static char *option_text(const RtModel *m, const RtOptions *o, const RtOption *row)
{
    if (row->type == RT_OPT_UINT) {
        uint64_t value;
        memcpy(&value, (const char *)o + row->at, sizeof value);
        return rt_printf("%llu", (unsigned long long)value);
    }
    JsonText j = json_text();
    put_option(&j, m, o, row);
    return j.at;
}

/* Stores a value of the config; false if it has the wrong type. */
static bool option_take(RtOptions *o, const RtOption *row, const json_t *value)
{
    char *const at = (char *)o + row->at;
    if ((row->type == RT_OPT_INT || row->type == RT_OPT_UINT) && json_is_integer(value)) {
        const int64_t number = json_integer_value(value);
        memcpy(at, &number, sizeof number);
    } else if (row->type == RT_OPT_REAL && json_is_number(value)) {
        const double number = json_number_value(value);
        memcpy(at, &number, sizeof number);
    } else if (row->type == RT_OPT_TEXT && (json_is_string(value) || json_is_null(value))) {
        const char *text = json_is_string(value)
                               ? rt_keep(rt_printf("%s", json_string_value(value)))
                               : NULL;
        memcpy(at, &text, sizeof text);
    } else if (row->type == RT_OPT_FLAG && json_is_boolean(value)) {
        const bool flag = json_is_true(value);
        memcpy(at, &flag, sizeof flag);
    } else {
        return false;
    }
    return true;
}

static void adopt_dims(Adopt *a, const json_t *dims)
{
    char was[32], is[32];
    for (int i = 0; i < a->m->n_dims; i++) {
        const json_t *value = json_object_get(dims, a->m->dims[i].name);
        if (a->m->dims[i].batch || !json_is_integer(value))
            continue;
        const ptrdiff_t saved = (ptrdiff_t)json_integer_value(value);
        const bool given = (a->o->dims_given >> i & 1u) != 0;
        if (saved != a->o->dims[i]) {
            snprintf(was, sizeof was, "%s=%td", a->m->dims[i].name, saved);
            snprintf(is, sizeof is, "%s=%td", a->m->dims[i].name, a->o->dims[i]);
            tell(a, "dims", was, is, given);
        }
        if (!given)
            a->o->dims[i] = saved;
    }
}

static void adopt_row(Adopt *a, int index, const json_t *value)
{
    const RtOption option = rt_option_at(a->m, index), *const row = &option;
    const bool given = a->o->given[index];
    if (row->type == RT_OPT_DIMS) {
        adopt_dims(a, value);
        return;
    }
    RtOptions saved = *a->o;
    if (!option_take(&saved, row, value))
        rt_fail(RT_EXIT_FAIL, "the checkpoint's config has a wrong value of %s", row->name);
    char *was = option_text(a->m, &saved, row), *is = option_text(a->m, a->o, row);
    const bool differs = strcmp(was, is) != 0;
    if (strcmp(row->name, "threads") == 0) { /* the machine's, unless given */
        if (differs && a->to)
            fprintf(a->to,
                    "changed  threads %s -> %s: results agree to rounding, not bit for "
                    "bit\n",
                    was, is);
    } else {
        if (differs)
            tell(a, row->name, was, is, given);
        if (!given)
            *a->o = saved;
    }
    rt_free(was);
    rt_free(is);
}

/* Did the optimizer of the run keep what that of the program keeps? */
static bool same_states(const RtTrain *t, const json_t *states)
{
    RtStateTensor own[RT_MAX_STATES];
    const int n = rt_optim_states(t, own);
    bool same = !states || json_array_size(states) == (size_t)n;
    for (int i = 0; same && states && i < n; i++) {
        const char *name = json_string_value(json_array_get(states, (size_t)i));
        same = name && strcmp(name, own[i].name) == 0;
    }
    return same;
}

static void tell_kind(FILE *to, const char *what, const char *was, const char *is)
{
    if (was && strcmp(was, is) != 0)
        fprintf(to, "changed  %s %s -> %s (fixed when the program was compiled)\n", what, was, is);
}

/* Kinds are compiled in; a run that goes on with another kind is told, or ends where its state is
   of no use. */
static void compare_kinds(const RtModel *m, const json_t *root, FILE *to)
{
    const char *optimizer = json_string_value(json_object_get(root, "optimizer"));
    const char *own = rt_optimizer_name(&m->train);
    const bool same = !optimizer || same_states(&m->train, json_object_get(root, "states"));
    if (!same && strcmp(optimizer, own) == 0)
        rt_fail(RT_EXIT_FAIL,
                "the run was trained with another %s, which keeps another state than the one of "
                "this program\nhint: give %s its states of then and compile again",
                own, own);
    if (!same)
        rt_fail(RT_EXIT_FAIL,
                "the run was trained with %s; this program has %s, which keeps another state"
                "\nhint: set the optimizer in the train block of %s to %s and compile again",
                optimizer, own, m->source, optimizer);
    tell_kind(to, "precision", json_string_value(json_object_get(root, "precision")),
              rt_precision(m));
    tell_kind(to, "optimizer", optimizer, own);
    tell_kind(to, "schedule", json_string_value(json_object_get(root, "schedule")),
              rt_schedule_name(&m->train));
}

/* fp16 skips what is not finite, others stop: a program of the other kind has its own way. */
static bool fits_precision(const RtModel *m, const json_t *root, const char *option)
{
    const char *precision = json_string_value(json_object_get(root, "precision"));
    const bool half = precision && strcmp(precision, "fp16") == 0;
    return strcmp(option, "nonfinite") != 0 || half == (m->compute == RT_F16);
}

void rt_config_adopt(const RtModel *m, RtOptions *o, const char *config, FILE *to)
{
    json_error_t error;
    json_t *root = config ? json_loads(config, JSON_REJECT_DUPLICATES, &error) : NULL;
    if (!json_is_object(root))
        rt_fail(RT_EXIT_FAIL, "the checkpoint's config is no JSON object: %s",
                config ? error.text : "it is missing");
    if (to)
        compare_kinds(m, root, to);
    Adopt a = { m, o, to };
    for (int i = 0; i < rt_option_count(m); i++) {
        const RtOption row = rt_option_at(m, i);
        const json_t *value = json_object_get(root, row.name);
        if (value && row.saved && rt_option_applies(m, &row) && fits_precision(m, root, row.name))
            adopt_row(&a, i, value);
    }
    const RtTrain *t = &o->train;
    const json_t *steps = json_object_get(root, "steps");
    if (to && rt_schedule_takes(t->schedule, "decay-steps") && t->decay_steps == 0
        && json_is_integer(steps) && json_integer_value(steps) != t->steps)
        fprintf(to,
                "changed  the learning rate decays over %lld steps instead of %lld "
                "(--decay-steps %lld keeps the old schedule)\n",
                (long long)t->steps, (long long)json_integer_value(steps),
                (long long)json_integer_value(steps));
    json_decref(root);
}

const char *rt_config_load(const RtModel *m, RtOptions *o, RtCheckpoint *c)
{
    const char *path = o->checkpoint ? o->checkpoint : o->train.out;
    const char *dir = rt_run_find(m, path, 1, c);
    if (!dir)
        rt_fail(RT_EXIT_FAIL,
                "%s: holds no checkpoint\nhint: train first, or give --checkpoint PATH", path);
    rt_config_adopt(m, o, c->config, NULL);
    rt_options_settle(m, o);
    rt_threads_set(o);
    return dir;
}
