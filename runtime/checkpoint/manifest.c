/* manifest.c -- manifest.json: what a checkpoint directory holds, and where the run stood.
 *
 * In: counters, seed, hashes, vocabulary, settings, and the files with size and XXH3-128. Out: the
 * same, read back. A directory without a manifest is no checkpoint: it is written last.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdarg.h>

#include "checkpoint/checkpoint.h"

enum { FORMAT_VERSION = 1, MANIFEST_MAX = 256 << 20, READ_BYTES = 1 << 16 };

/* ---- texts that may fail --------------------------------------------------------------------- */

static bool text_grow(CkText *t, size_t cap)
{
    char *at = ck_alloc(cap);
    if (at && t->len)
        memcpy(at, t->at, t->len);
    ck_free(t->at);
    *t = (CkText){ .at = at, .len = at ? t->len : 0, .cap = at ? cap : 0, .failed = !at };
    return at;
}

static bool text_reserve(CkText *t, size_t more)
{
    if (t->failed)
        return false;
    return t->len + more + 1 <= t->cap || text_grow(t, (t->len + more + 1) * 2);
}

void ck_reserve(CkText *t, size_t bytes)
{
    if (bytes > 0)
        (void)text_grow(t, bytes);
}

void ck_add(CkText *t, const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    const int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (n >= 0 && text_reserve(t, (size_t)n))
        t->len += (size_t)vsnprintf(t->at + t->len, (size_t)n + 1, fmt, again);
    va_end(again);
}

void ck_add_string(CkText *t, const char *s)
{
    ck_add(t, "\"");
    for (; *s; s++)
        if (*s == '"' || *s == '\\')
            ck_add(t, "\\%c", *s);
        else if ((unsigned char)*s < 0x20)
            ck_add(t, "\\u%04x", (unsigned)*s);
        else
            ck_add(t, "%c", *s);
    ck_add(t, "\"");
}

bool ck_wrong(CkProblem *p, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(p->text, sizeof p->text, fmt, args);
    va_end(args);
    return false;
}

bool ck_read(const char *path, size_t limit, CkText *text, CkProblem *problem)
{
    const int fd = rt_open(path, O_RDONLY, 0);
    if (fd < 0)
        return ck_wrong(problem, "%s: cannot be opened: %s", path, strerror(errno));
    ssize_t got = 1;
    while (got > 0 && text->len <= limit && text_reserve(text, READ_BYTES)) {
        got = rt_read_some(fd, text->at + text->len, READ_BYTES);
        text->len += got > 0 ? (size_t)got : 0;
    }
    const int error = errno;
    (void)rt_io.close(fd);
    if (got < 0)
        ck_wrong(problem, "%s: cannot be read: %s", path, strerror(error));
    else if (text->failed || text->len > limit)
        ck_wrong(problem, "%s: %s", path, text->failed ? "out of memory" : "too large");
    else
        return true;
    ck_free(text->at);
    *text = (CkText){ 0 };
    return false;
}

/* ---- writing --------------------------------------------------------------------------------- */

static void add_build(CkText *t, const RtModel *m)
{
    ck_add(t, " \"build\": {\"compiler\": ");
    ck_add_string(t, __VERSION__);
    ck_add(t, ", \"isa\": \"%s\", \"real\": \"%s\", \"precision\": \"%s\"},\n",
#if defined(__AVX512F__)
           "avx512",
#elif defined(__AVX2__)
           "avx2",
#elif defined(__aarch64__)
           "neon",
#else
           "baseline",
#endif
           m->real == RT_F64 ? "f64" : "f32", rt_precision(m));
}

bool manifest_text(CkText *t, const RtModel *m, const CkList *params, const CkManifest *manifest)
{
    const RtCheckpoint *c = &manifest->c;
    ck_add(t, "{\n \"format\": \"gradcc checkpoint\", \"version\": %d,\n", FORMAT_VERSION);
    ck_add(t, " \"model\": ");
    ck_add_string(t, m->name);
    ck_add(t, ", \"source\": ");
    ck_add_string(t, m->source);
    ck_add(t, ", \"source_crc\": \"%08x\",\n", m->source_crc);
    ck_add(t, " \"step\": %lld, \"applied\": %lld, \"skipped\": %lld, \"samples\": %lld,\n",
           (long long)c->step, (long long)c->applied, (long long)c->skipped, (long long)c->samples);
    ck_add(t, " \"seed\": \"%llu\", \"data_hash\": \"%016llx\", \"world_size\": 1,\n",
           (unsigned long long)c->seed, (unsigned long long)c->data_hash);
    if (isfinite(c->best_val))
        ck_add(t, " \"best_val\": %.17g,\n", c->best_val);
    else
        ck_add(t, " \"best_val\": null,\n");
    if (c->products != RT_PRODUCTS_UNSET)
        ck_add(t, " \"products\": \"%s\",\n", rt_products_name(c->products));
    if (*c->library) {
        ck_add(t, " \"library\": ");
        ck_add_string(t, c->library);
        ck_add(t, ",\n");
    }
    if (c->plans) {
        ck_add(t, " \"plans\": ");
        ck_add_string(t, c->plans);
        ck_add(t, ",\n");
    }
    if (isfinite(c->scale))
        ck_add(t, " \"loss_scale\": %.17g,", c->scale);
    else
        ck_add(t, " \"loss_scale\": null,");
    ck_add(t, " \"scale_tracker\": %lld, \"skips_in_row\": %lld,\n", (long long)c->tracker,
           (long long)c->stuck);
    add_build(t, m);
    const char *config = c->config ? c->config : "null";
    size_t n = strlen(config);
    while (n > 0 && config[n - 1] == '\n')
        n--;
    ck_add(t, " \"vocab\": %s,\n \"config\": %.*s,\n \"files\": {", c->vocab ? c->vocab : "null",
           (int)n, config);
    for (int i = 0; i < manifest->n_files; i++) {
        ck_add(t, "%s\n  ", i ? "," : "");
        ck_add_string(t, manifest->file[i].name);
        ck_add(t, ": {\"bytes\": %llu, \"xxh3_128\": \"%s\"}",
               (unsigned long long)manifest->file[i].bytes, manifest->file[i].hash);
    }
    ck_add(t, "\n },\n \"tensors\": {");
    for (ptrdiff_t i = 0; i < params->n; i++) {
        ck_add(t, "%s\n  ", i ? "," : "");
        ck_add_string(t, params->tensor[i].name);
        ck_add(t, ": [");
        for (int axis = 0; axis < params->tensor[i].rank; axis++)
            ck_add(t, "%s%td", axis ? ", " : "", params->tensor[i].shape[axis]);
        ck_add(t, "]");
    }
    ck_add(t, "\n }\n}\n");
    return !t->failed;
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool get_int(const char *path, const json_t *root, const char *key, int64_t *to,
                    CkProblem *problem)
{
    const json_t *v = json_object_get(root, key);
    if (!json_is_integer(v) || json_integer_value(v) < 0)
        return ck_wrong(problem, "%s: %s is missing or no count", path, key);
    *to = json_integer_value(v);
    return true;
}

static bool get_u64(const char *path, const json_t *root, const char *key, int base, uint64_t *to,
                    CkProblem *problem)
{
    const char *text = json_string_value(json_object_get(root, key));
    char *end = NULL;
    if (text)
        *to = strtoull(text, &end, base);
    return (text && *text && !*end)
           || ck_wrong(problem, "%s: %s is missing or no number", path, key);
}

/* Loss scale and skipped updates: all of them, or none in checkpoints of older programs. */
static bool get_scale(const char *path, const json_t *root, RtCheckpoint *c, CkProblem *problem)
{
    const json_t *scale = json_object_get(root, "loss_scale");
    c->scale = json_is_number(scale) ? json_number_value(scale) : (double)NAN;
    if (!scale && !json_object_get(root, "scale_tracker") && !json_object_get(root, "skips_in_row"))
        return true;
    if (!json_is_null(scale) && !(c->scale >= 0))
        return ck_wrong(problem, "%s: loss_scale is missing or below 0", path);
    return get_int(path, root, "scale_tracker", &c->tracker, problem)
           && get_int(path, root, "skips_in_row", &c->stuck, problem);
}

static bool get_files(const char *path, json_t *files, CkManifest *manifest, CkProblem *problem)
{
    const char *name;
    json_t *entry;
    if (!json_is_object(files))
        return ck_wrong(problem, "%s: it lists no files", path);
    json_object_foreach(files, name, entry)
    {
        const char *hash = json_string_value(json_object_get(entry, "xxh3_128"));
        const json_t *bytes = json_object_get(entry, "bytes");
        if (!hash || strlen(hash) != CK_HASH_TEXT - 1 || !json_is_integer(bytes)
            || strlen(name) >= sizeof manifest->file[0].name || manifest->n_files == CK_FILES)
            return ck_wrong(problem, "%s: the entry of file %s is damaged", path, name);
        CkFile *file = &manifest->file[manifest->n_files++];
        snprintf(file->name, sizeof file->name, "%s", name);
        snprintf(file->hash, sizeof file->hash, "%s", hash);
        file->bytes = (uint64_t)json_integer_value(bytes);
    }
    return true;
}

/* A JSON value as an allocated text, NULL for null. */
static const char *value_text(const json_t *value)
{
    if (!value || json_is_null(value))
        return NULL;
    char *dumped = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
    if (!dumped)
        rt_fail(RT_EXIT_FAIL, "out of memory: the manifest of a checkpoint");
    char *text = rt_printf("%s", dumped);
    json_free_t release;
    json_get_alloc_funcs(NULL, &release);
    release(dumped);
    return text;
}

static bool manifest_parse(const char *path, json_t *root, CkManifest *manifest, CkProblem *problem)
{
    RtCheckpoint *c = &manifest->c;
    const char *format = json_string_value(json_object_get(root, "format"));
    const char *source = json_string_value(json_object_get(root, "source"));
    const char *model = json_string_value(json_object_get(root, "model"));
    const json_t *best = json_object_get(root, "best_val");
    int64_t version = 0;
    uint64_t crc = 0;
    if (!format || strcmp(format, "gradcc checkpoint") != 0)
        return ck_wrong(problem, "%s: no manifest of a gradcc checkpoint", path);
    if (!get_int(path, root, "version", &version, problem))
        return false;
    if (version != FORMAT_VERSION)
        return ck_wrong(problem, "%s: format version %lld; this program reads version %d", path,
                        (long long)version, FORMAT_VERSION);
    if (!get_int(path, root, "step", &c->step, problem)
        || !get_int(path, root, "applied", &c->applied, problem)
        || !get_int(path, root, "skipped", &c->skipped, problem)
        || !get_int(path, root, "samples", &c->samples, problem)
        || !get_u64(path, root, "seed", 10, &c->seed, problem)
        || !get_u64(path, root, "data_hash", 16, &c->data_hash, problem)
        || !get_u64(path, root, "source_crc", 16, &crc, problem)
        || !get_scale(path, root, c, problem)
        || !get_files(path, json_object_get(root, "files"), manifest, problem))
        return false;
    manifest->source_crc = (uint32_t)crc;
    snprintf(manifest->model, sizeof manifest->model, "%s", model ? model : "?");
    snprintf(manifest->source, sizeof manifest->source, "%s", source ? source : "?");
    c->products = rt_products_by_name(json_string_value(json_object_get(root, "products")));
    const char *library = json_string_value(json_object_get(root, "library"));
    snprintf(c->library, sizeof c->library, "%s", library ? library : "");
    c->best_val = json_is_number(best) ? json_number_value(best) : (double)NAN;
    const char *plans = json_string_value(json_object_get(root, "plans"));
    c->plans = plans && !rt_place_is_host() ? rt_printf("%s", plans) : NULL; /* of no use there */
    c->vocab = value_text(json_object_get(root, "vocab"));
    c->config = value_text(json_object_get(root, "config"));
    return true;
}

bool manifest_read(const char *path, CkManifest *manifest, CkProblem *problem)
{
    *manifest = (CkManifest){ .n_files = 0 };
    CkText text = { 0 };
    if (!ck_read(path, MANIFEST_MAX, &text, problem))
        return false;
    json_error_t error;
    json_t *root = json_loadb(text.at, text.len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    const bool good = root ? manifest_parse(path, root, manifest, problem)
                           : ck_wrong(problem, "%s:%d:%d: %s", path, error.line, error.column,
                                      error.text);
    json_decref(root);
    ck_free(text.at);
    return good;
}

const CkFile *manifest_file(const CkManifest *manifest, const char *name)
{
    for (int i = 0; i < manifest->n_files; i++)
        if (strcmp(manifest->file[i].name, name) == 0)
            return &manifest->file[i];
    return NULL;
}
