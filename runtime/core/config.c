/* config.c -- settings as JSON, and back at resume.
 *
 * In: RtOptions, or the config of a checkpoint. Out: config.json, or settings taken over. The one
 * idea: a resumed run goes on with the settings it had; what the command line says otherwise is
 * told, and so is what the program's own train block would have said.
 */
#include <jansson.h>

#include "run.h"

static const char *const optimizer_names[] = { "sgd", "adam", "adamw" };
static const char *const schedule_names[] = { "constant", "linear", "cosine" };

static json_t *dims_json(const RtModel *m, const RtOptions *o)
{
    json_t *dims = json_object();
    for (int i = 0; i < m->n_dims; i++)
        if (!m->dims[i].batch)
            json_object_set_new(dims, m->dims[i].name, json_integer(o->dims[i]));
    return dims;
}

static json_t *option_json(const RtModel *m, const RtOptions *o, const RtOption *row)
{
    const char *const at = (const char *)o + row->at;
    switch (row->type) {
    case RT_OPT_INT:
    case RT_OPT_UINT: {
        int64_t value;
        memcpy(&value, at, sizeof value);
        return json_integer(value);             /* seeds above 2^63 come back by the same cast   */
    }
    case RT_OPT_REAL: {
        double value;
        memcpy(&value, at, sizeof value);
        return json_real(value);
    }
    case RT_OPT_TEXT: {
        const char *value;
        memcpy(&value, at, sizeof value);
        return value ? json_string(value) : json_null();
    }
    case RT_OPT_DIMS:
        return dims_json(m, o);
    case RT_OPT_FLAG:
        break;
    }
    return NULL;
}

char *rt_config_text(const RtModel *m, const RtOptions *o)
{
    char crc[16];
    snprintf(crc, sizeof crc, "%08x", (unsigned)m->source_crc);
    json_t *config = json_object();
    json_object_set_new(config, "model", json_string(m->name));
    json_object_set_new(config, "source", json_string(m->source));
    json_object_set_new(config, "source_crc32", json_string(crc));
    json_object_set_new(config, "precision", json_string(m->real == RT_F64 ? "fp64" : "fp32"));
    json_object_set_new(config, "optimizer", json_string(optimizer_names[o->train.optimizer]));
    json_object_set_new(config, "schedule", json_string(schedule_names[o->train.schedule]));
    for (int i = 0; i < rt_n_options; i++) {
        json_t *value = rt_options[i].saved && rt_option_applies(m, &rt_options[i])
                      ? option_json(m, o, &rt_options[i]) : NULL;
        if (value)
            json_object_set_new(config, rt_options[i].name, value);
    }
    char *text = json_dumps(config, JSON_INDENT(2));
    json_decref(config);
    if (!text)
        rt_fail(RT_EXIT_FAIL, "the settings cannot be written as JSON: a text is no UTF-8");
    char *copy = rt_printf("%s\n", text);
    free(text);
    return copy;
}

/* ---- back -------------------------------------------------------------------------------------- */

typedef struct { const RtModel *m; RtOptions *o; FILE *to; int told; } Adopt;

static void tell(Adopt *a, const char *name, const char *was, const char *is, bool given)
{
    if (!a->to)
        return;
    if (a->told++ == 0)
        fprintf(a->to, "settings that differ from the checkpoint's:\n");
    if (given)
        fprintf(a->to, "  %-14s %s -> %s (given on the command line)\n", name, was, is);
    else
        fprintf(a->to, "  %-14s %s (the program's own %s is ignored; --%s changes it)\n", name, was,
                is, name);
}

static void option_text(const RtModel *m, const RtOptions *o, const RtOption *row, char text[96])
{
    json_t *value = option_json(m, o, row);
    char *dump = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(6));
    snprintf(text, 96, "%s", dump ? dump : "?");
    free(dump);
    json_decref(value);
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
        const char *text = json_is_string(value) ? rt_printf("%s", json_string_value(value)) : NULL;
        memcpy(at, &text, sizeof text);
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
    const RtOption *row = &rt_options[index];
    const bool given = (a->o->given >> index & 1u) != 0;
    if (row->type == RT_OPT_DIMS) {
        adopt_dims(a, value);
        return;
    }
    char was[96], is[96];
    RtOptions saved = *a->o;
    if (!option_take(&saved, row, value))
        rt_fail(RT_EXIT_FAIL, "the checkpoint's config has a wrong value of %s", row->name);
    option_text(a->m, &saved, row, was);
    option_text(a->m, a->o, row, is);
    if (strcmp(row->name, "threads") == 0) {    /* the machine's, unless given                    */
        if (strcmp(was, is) != 0 && a->to)
            fprintf(a->to, "threads %s -> %s: results agree to rounding, no longer bit for bit\n",
                    was, is);
        return;
    }
    if (strcmp(was, is) != 0)
        tell(a, row->name, was, is, given);
    if (!given)
        *a->o = saved;
}

void rt_config_adopt(const RtModel *m, RtOptions *o, const char *config, FILE *to)
{
    json_error_t error;
    json_t *root = config ? json_loads(config, JSON_REJECT_DUPLICATES, &error) : NULL;
    if (!json_is_object(root))
        rt_fail(RT_EXIT_FAIL, "the checkpoint's config is no JSON object: %s",
                config ? error.text : "it is missing");
    char crc[16];
    snprintf(crc, sizeof crc, "%08x", (unsigned)m->source_crc);
    const char *was = json_string_value(json_object_get(root, "source_crc32"));
    if (was && strcmp(was, crc) != 0 && to)
        fprintf(to, "the program changed since the checkpoint: crc32 of %s was %s, now %s\n",
                m->source, was, crc);
    Adopt a = { m, o, to, 0 };
    for (int i = 0; i < rt_n_options; i++) {
        const json_t *value = json_object_get(root, rt_options[i].name);
        if (value && rt_options[i].saved && rt_option_applies(m, &rt_options[i]))
            adopt_row(&a, i, value);
    }
    json_decref(root);
}
