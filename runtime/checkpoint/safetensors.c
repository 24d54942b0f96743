/* safetensors.c -- the container of tensors: 8 bytes of length, a JSON header, raw data.
 *
 * In and out: files that other programs read too. The reader believes nothing: sizes before memory,
 * depth before parsing, every offset against its neighbours and the file's end; each broken rule
 * has a message of its own. Data are read in one pass, and hashed on the way.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <sys/stat.h>

#include "checkpoint/checkpoint.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "safetensors are little-endian");

enum {
    HEADER_MAX = 100000000,
    DEPTH_MAX = 8,
    COMMAS_MAX = 4000000, /* bounds the memory of the parsed header */
    CHUNK_BYTES = RT_PLACE_WINDOW,
    PIECE_BYTES = 1 << 16, /* of what is converted, or skipped */
};

/* ---- writing --------------------------------------------------------------------------------- */

uint64_t st_size(const CkList *list)
{
    uint64_t bytes = 0;
    for (ptrdiff_t i = 0; i < list->n; i++)
        bytes += list->tensor[i].bytes;
    return bytes;
}

void st_header(CkText *t, const CkList *list, const char *metadata)
{
    uint64_t at = 0;
    ck_add(t, "{\"__metadata__\":%s", metadata);
    for (ptrdiff_t i = 0; i < list->n; i++) {
        const CkTensor *one = &list->tensor[i];
        ck_add(t, ",");
        ck_add_string(t, one->name);
        ck_add(t, ":{\"dtype\":\"%s\",\"shape\":[", one->dtype);
        for (int axis = 0; axis < one->rank; axis++)
            ck_add(t, "%s%td", axis ? "," : "", one->shape[axis]);
        ck_add(t, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)at,
               (unsigned long long)(at + one->bytes));
        at += one->bytes;
    }
    ck_add(t, "}");
    while (t->len % 8 != 0 && !t->failed)
        ck_add(t, " ");
}

static int write_hashed(int fd, XXH3_state_t *hash, const void *data, size_t n)
{
    const char *at = data;
    while (n > 0) {
        const size_t part = n < CHUNK_BYTES ? n : CHUNK_BYTES;
        if (rt_write_all(fd, at, part))
            return -1;
        XXH3_128bits_update(hash, at, part);
        at += part;
        n -= part;
    }
    return 0;
}

/* Of a tensor, which may lie where the host does not see it but for a part at a time. */
static int write_placed(int fd, XXH3_state_t *hash, const void *data, size_t n)
{
    int failed = 0;
    for (size_t at = 0; at < n && !failed; at += CHUNK_BYTES) {
        const size_t part = n - at < CHUNK_BYTES ? n - at : CHUNK_BYTES;
        failed = write_hashed(fd, hash, rt_place_look((const char *)data + at, part), part);
    }
    return failed;
}

static void hash_text(const XXH3_state_t *state, char text[CK_HASH_TEXT])
{
    const XXH128_hash_t h = XXH3_128bits_digest(state);
    snprintf(text, CK_HASH_TEXT, "%016llx%016llx", (unsigned long long)h.high64,
             (unsigned long long)h.low64);
}

int st_write(int fd, const CkList *list, const char *metadata, uint64_t *bytes,
             char hash[CK_HASH_TEXT])
{
    XXH3_state_t state;
    XXH3_128bits_reset(&state);
    CkText header = { 0 };
    ck_reserve(&header, ck_lengths.header);
    st_header(&header, list, metadata);
    int failed = header.failed ? -1 : 0;
    if (failed)
        errno = ENOMEM;
    const uint64_t n = header.len;
    if (!failed)
        failed = write_hashed(fd, &state, &n, 8) || write_hashed(fd, &state, header.at, n) ? -1 : 0;
    for (ptrdiff_t i = 0; i < list->n && !failed; i++)
        failed = write_placed(fd, &state, list->tensor[i].at, list->tensor[i].bytes);
    const int error = errno;
    ck_free(header.at);
    errno = error;
    *bytes = 8 + n + st_size(list);
    hash_text(&state, hash);
    return failed;
}

/* ---- the header as text ---------------------------------------------------------------------- */

/* Depth, NUL bytes and number of values, before a parser sees the header. */
static bool header_scan(const StFile *f, const char *text, size_t n, CkProblem *problem)
{
    int depth = 0, length;
    size_t commas = 0;
    bool quoted = false;
    for (size_t i = 0; i < n; i += (size_t)length) {
        rt_utf8_decode((const uint8_t *)text + i, n - i, &length);
        if (length == 0)
            return ck_wrong(problem, "%s: the header is no valid UTF-8 at byte %zu", f->path,
                            8 + i);
        const char c = text[i];
        if (c == 0)
            return ck_wrong(problem, "%s: a NUL byte in the header, at byte %zu", f->path, 8 + i);
        if (quoted) {
            quoted = c != '"';
            if (c == '\\' && i + 1 < n)
                length = 2;
            continue;
        }
        quoted = c == '"';
        depth += (c == '{' || c == '[') - (c == '}' || c == ']');
        commas += c == ',';
        if (depth > DEPTH_MAX)
            return ck_wrong(problem, "%s: the header nests deeper than %d, at byte %zu", f->path,
                            DEPTH_MAX, 8 + i);
        if (commas > COMMAS_MAX)
            return ck_wrong(problem, "%s: the header has more than %d values", f->path, COMMAS_MAX);
    }
    return true;
}

static const struct {
    const char *name;
    unsigned bits;
} dtypes[] = {
    { "BOOL", 8 },    { "F4", 4 },          { "F6_E2M3", 6 },     { "F6_E3M2", 6 },
    { "U8", 8 },      { "I8", 8 },          { "F8_E5M2", 8 },     { "F8_E4M3", 8 },
    { "F8_E8M0", 8 }, { "F8_E4M3FNUZ", 8 }, { "F8_E5M2FNUZ", 8 }, { "I16", 16 },
    { "U16", 16 },    { "F16", 16 },        { "BF16", 16 },       { "I32", 32 },
    { "U32", 32 },    { "F32", 32 },        { "C64", 64 },        { "F64", 64 },
    { "I64", 64 },    { "U64", 64 },
};

static unsigned dtype_bits(const char *name)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(name, dtypes[i].name) == 0)
            return dtypes[i].bits;
    return 0;
}

/* ---- one entry ------------------------------------------------------------------------------- */

static bool entry_shape(const StFile *f, StTensor *t, const json_t *shape, uint64_t *elems,
                        CkProblem *problem)
{
    *elems = 1;
    t->rank = (int)json_array_size(shape);
    for (size_t axis = 0; axis < json_array_size(shape); axis++) {
        const json_t *size = json_array_get(shape, axis);
        const json_int_t v = json_integer_value(size);
        if (!json_is_integer(size) || v < 0)
            return ck_wrong(problem, "%s: tensor %s: dim %zu of the shape is no size", f->path,
                            t->name, axis);
        if (__builtin_mul_overflow(*elems, (uint64_t)v, elems))
            return ck_wrong(problem, "%s: tensor %s: the product of the shape overflows", f->path,
                            t->name);
        if (axis < RT_MAX_RANK)
            t->shape[axis] = (ptrdiff_t)v;
    }
    if (json_array_size(shape) > RT_MAX_RANK)
        t->rank = -1;
    return true;
}

static bool entry_read(const StFile *f, StTensor *t, const char *name, json_t *entry,
                       CkProblem *problem)
{
    *t = (StTensor){ .name = name };
    const json_t *dtype = json_object_get(entry, "dtype"), *shape = json_object_get(entry, "shape");
    const json_t *offsets = json_object_get(entry, "data_offsets");
    if (!json_is_object(entry))
        return ck_wrong(problem, "%s: tensor %s is no object", f->path, name);
    if (!json_is_string(dtype) || !json_is_array(shape) || json_array_size(offsets) != 2)
        return ck_wrong(problem, "%s: tensor %s: dtype, shape and two data_offsets are wanted",
                        f->path, name);
    t->dtype = json_string_value(dtype);
    const unsigned bits = dtype_bits(t->dtype);
    if (bits == 0)
        return ck_wrong(problem, "%s: tensor %s: unknown dtype %s", f->path, name, t->dtype);
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    const json_int_t from = json_integer_value(begin), to = json_integer_value(end);
    if (!json_is_integer(begin) || !json_is_integer(end) || from < 0 || to < from)
        return ck_wrong(problem, "%s: tensor %s: its data end before they begin", f->path, name);
    t->begin = (uint64_t)from;
    t->end = (uint64_t)to;
    uint64_t elems, size;
    if (!entry_shape(f, t, shape, &elems, problem))
        return false;
    if (__builtin_mul_overflow(elems, (uint64_t)bits, &size))
        return ck_wrong(problem, "%s: tensor %s: its size in bits overflows", f->path, name);
    if (size % 8 != 0)
        return ck_wrong(problem, "%s: tensor %s: %llu bits are no whole number of bytes", f->path,
                        name, (unsigned long long)size);
    if (size / 8 != t->end - t->begin)
        return ck_wrong(
            problem, "%s: tensor %s: dtype and shape take %llu bytes, its data have %llu", f->path,
            name, (unsigned long long)(size / 8), (unsigned long long)(t->end - t->begin));
    if (json_object_size(entry) > 3)
        rt_warn("%s: tensor %s has keys besides dtype, shape and data_offsets; they are ignored",
                f->path, name);
    return true;
}

static bool metadata_check(const StFile *f, json_t *metadata, CkProblem *problem)
{
    const char *key;
    json_t *value;
    if (!json_is_object(metadata))
        return ck_wrong(problem, "%s: __metadata__ is no object", f->path);
    json_object_foreach(metadata, key, value) if (!json_is_string(value)) return ck_wrong(
        problem, "%s: __metadata__: the value of %s is no string", f->path, key);
    return true;
}

/* ---- the header ------------------------------------------------------------------------------ */

static int by_offset(const void *a, const void *b)
{
    const StTensor *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end ? 1 : strcmp(x->name, y->name);
}

static bool offsets_check(const StFile *f, uint64_t data_bytes, CkProblem *problem)
{
    uint64_t at = 0;
    for (ptrdiff_t i = 0; i < f->n; i++) {
        const StTensor *t = &f->tensor[i];
        if (t->begin != at)
            return ck_wrong(problem, "%s: tensor %s: its data begin at %llu, wanted %llu: %s",
                            f->path, t->name, (unsigned long long)t->begin, (unsigned long long)at,
                            t->begin > at ? "a hole" : "an overlap");
        at = t->end;
    }
    if (at != data_bytes)
        return ck_wrong(problem, "%s: the tensors take %llu bytes, the file has %llu: it is %s",
                        f->path, (unsigned long long)at, (unsigned long long)data_bytes,
                        at > data_bytes ? "truncated" : "longer than its header says");
    return true;
}

static bool header_parse(StFile *f, const char *text, size_t n, CkProblem *problem)
{
    if (!header_scan(f, text, n, problem))
        return false;
    json_error_t error;
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error);
    f->json = root;
    if (!json_is_object(root))
        return ck_wrong(problem, "%s: the header is no JSON object: %s", f->path,
                        root ? "" : error.text);
    f->tensor = ck_alloc(json_object_size(root) * sizeof *f->tensor + 1);
    if (!f->tensor)
        return ck_wrong(problem, "%s: out of memory: %zu tensors", f->path, json_object_size(root));
    const char *name;
    json_t *entry;
    json_object_foreach(root, name, entry)
    {
        const bool metadata = strcmp(name, "__metadata__") == 0;
        if (metadata ? !metadata_check(f, entry, problem)
                     : !entry_read(f, &f->tensor[f->n], name, entry, problem))
            return false;
        f->n += !metadata;
    }
    qsort(f->tensor, (size_t)f->n, sizeof *f->tensor, by_offset);
    return offsets_check(f, f->bytes - 8 - n, problem);
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool read_hashed(StFile *f, void *to, uint64_t n, uint64_t at, CkProblem *problem)
{
    char *next = to;
    while (n > 0) {
        const size_t part = n < CHUNK_BYTES ? (size_t)n : CHUNK_BYTES;
        const ssize_t got = rt_read_some(f->fd, next, part);
        if (got < 0)
            return ck_wrong(problem, "%s: cannot be read at byte %llu: %s", f->path,
                            (unsigned long long)at, strerror(errno));
        if (got == 0)
            return ck_wrong(problem, "%s: ends at byte %llu, while it is read", f->path,
                            (unsigned long long)at);
        XXH3_128bits_update(f->hash, next, (size_t)got);
        next += got;
        at += (uint64_t)got;
        n -= (uint64_t)got;
    }
    return true;
}

static bool header_read(StFile *f, CkProblem *problem)
{
    uint64_t n;
    if (f->bytes < 8)
        return ck_wrong(problem, "%s: %llu bytes; a safetensors file has at least 8", f->path,
                        (unsigned long long)f->bytes);
    if (!read_hashed(f, &n, 8, 0, problem))
        return false;
    if (n > HEADER_MAX)
        return ck_wrong(problem, "%s: a header of %llu bytes; at most %d are accepted", f->path,
                        (unsigned long long)n, HEADER_MAX);
    if (8 + n > f->bytes)
        return ck_wrong(problem, "%s: the header of %llu bytes is longer than the file of %llu",
                        f->path, (unsigned long long)n, (unsigned long long)f->bytes);
    char *text = ck_alloc((size_t)n + 1);
    if (!text)
        return ck_wrong(problem, "%s: out of memory: a header of %llu bytes", f->path,
                        (unsigned long long)n);
    const bool good = read_hashed(f, text, n, 8, problem)
                      && header_parse(f, text, (size_t)n, problem);
    ck_free(text);
    return good;
}

bool st_open(StFile *f, const char *path, CkProblem *problem)
{
    struct stat st;
    *f = (StFile){ .path = path,
                   .fd = rt_open(path, O_RDONLY, 0),
                   .hash = ck_alloc(sizeof(XXH3_state_t)) };
    if (!f->hash)
        return ck_wrong(problem, "%s: out of memory", path);
    if (f->fd < 0 || fstat(f->fd, &st) != 0)
        return ck_wrong(problem, "%s: cannot be opened: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return ck_wrong(problem, "%s: is no regular file", path);
    f->bytes = (uint64_t)st.st_size;
    XXH3_128bits_reset(f->hash);
    return header_read(f, problem);
}

/* n bytes of a tensor that is another type there, bytes `at` of it: exactly, or to the nearest. */
static void convert(const StTensor *t, const void *from, uint64_t at, uint64_t n)
{
    const bool narrow = strcmp(t->as, "BF16") == 0;
    const float *f32 = from;
    const uint16_t *bf16 = from;
    const uint64_t size = narrow ? sizeof *f32 : sizeof *bf16, first = at / size;
    uint16_t halves[PIECE_BYTES / sizeof(float)];
    float wide[PIECE_BYTES / sizeof(uint16_t)];
    for (uint64_t i = 0; i < n / size; i++)
        if (narrow)
            halves[i] = rt_to_bf16(f32[i]);
        else
            wide[i] = rt_of_bf16(bf16[i]);
    if (narrow)
        rt_place_put((uint16_t *)t->to + first, halves, n / size * sizeof *halves);
    else
        rt_place_put((float *)t->to + first, wide, n / size * sizeof *wide);
}

/* Bytes `at` of a tensor as the file has them. */
static void put(const StTensor *t, const void *from, uint64_t at, uint64_t n)
{
    if (t->as)
        convert(t, from, at, n);
    else
        rt_place_put((char *)t->to + at, from, n);
}

bool st_read(StFile *f, char hash[CK_HASH_TEXT], CkProblem *problem)
{
    char chunk[PIECE_BYTES] __attribute__((aligned(RT_ALIGN)));
    bool good = true;
    const uint64_t data = f->n > 0 ? f->bytes - f->tensor[f->n - 1].end : f->bytes;
    for (ptrdiff_t i = 0; i < f->n && good; i++) {
        const StTensor *t = &f->tensor[i];
        if (t->to && !t->as && rt_place_is_host()) {
            good = read_hashed(f, t->to, t->end - t->begin, data + t->begin, problem);
            continue;
        }
        for (uint64_t at = t->begin; at < t->end && good; at += PIECE_BYTES) {
            const uint64_t part = t->end - at < PIECE_BYTES ? t->end - at : PIECE_BYTES;
            good = read_hashed(f, chunk, part, data + at, problem);
            if (good && t->to)
                put(t, chunk, at - t->begin, part);
        }
    }
    hash_text(f->hash, hash);
    return good;
}

void st_close(StFile *f)
{
    if (f->fd >= 0)
        (void)rt_io.close(f->fd);
    json_decref(f->json);
    ck_free(f->tensor);
    ck_free(f->hash);
    *f = (StFile){ .fd = -1 };
}
