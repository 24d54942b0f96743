/* text.c -- text as a sequence of tokens: bytes, or characters with a vocabulary.
 *
 * In: a file (and one for validation, or a share of the first). Out: streams of ids, and for
 * characters the vocabulary: the distinct characters of the text in the order of their code points,
 * or the one that a checkpoint holds. UTF-8 is validated; a message names line and column.
 */
#include <jansson.h>

#include "data/data.h"

enum { CODE_POINTS = 0x110000 };

typedef struct {
    const char *file;
    const uint8_t *at;
    size_t len;
} Text;

/* ---- UTF-8 ----------------------------------------------------------------------------------- */

int32_t rt_utf8_decode(const uint8_t *s, size_t left, int *length)
{
    static const int32_t smallest[5] = { 0, 0, 0x80, 0x800, 0x10000 };
    const int wide = s[0] >> 5 == 6 ? 2 : s[0] >> 4 == 14 ? 3 : s[0] >> 3 == 30 ? 4 : 0;
    const int n = s[0] < 0x80 ? 1 : wide;
    *length = 0;
    if (n == 0 || (size_t)n > left)
        return -1;
    int32_t code = n == 1 ? s[0] : s[0] & (0x7f >> n);
    for (int i = 1; i < n; i++) {
        if (s[i] >> 6 != 2)
            return -1;
        code = code << 6 | (s[i] & 0x3f);
    }
    if (code < smallest[n] || code >= CODE_POINTS || (code >= 0xd800 && code < 0xe000))
        return -1;
    *length = n;
    return code;
}

static int utf8_encode(int32_t code, char to[5])
{
    const uint32_t c = (uint32_t)code;
    int n = 0;
    if (c < 0x80) {
        to[n++] = (char)c;
    } else if (c < 0x800) {
        to[n++] = (char)(0xc0 | c >> 6);
    } else if (c < 0x10000) {
        to[n++] = (char)(0xe0 | c >> 12);
        to[n++] = (char)(0x80 | (c >> 6 & 0x3f));
    } else {
        to[n++] = (char)(0xf0 | c >> 18);
        to[n++] = (char)(0x80 | (c >> 12 & 0x3f));
        to[n++] = (char)(0x80 | (c >> 6 & 0x3f));
    }
    if (n > 0 && c >= 0x80)
        to[n++] = (char)(0x80 | (c & 0x3f));
    to[n] = 0;
    return n;
}

/* "input.txt:3:14" of a byte offset; columns count characters. */
static const char *text_place(const Text *text, size_t at, char place[320])
{
    size_t line = 1, column = 1;
    for (size_t i = 0; i < at; i++)
        if (text->at[i] == '\n') {
            line++;
            column = 1;
        } else if (text->at[i] >> 6 != 2) {
            column++;
        }
    snprintf(place, 320, "%s:%zu:%zu", text->file, line, column);
    return place;
}

/* ---- the vocabulary -------------------------------------------------------------------------- */

static void vocab_fill_text(DataVocab *v)
{
    v->text = rt_alloc((size_t)v->n * sizeof *v->text + 1, "the vocabulary");
    json_t *list = json_array();
    for (int32_t i = 0; i < v->n; i++) {
        const int n = utf8_encode(v->code[i], v->text[i]);
        json_array_append_new(list, json_stringn(v->text[i], (size_t)n));
    }
    char *json = json_dumps(list, JSON_COMPACT);
    if (!json || (int32_t)json_array_size(list) != v->n)
        rt_fail(RT_EXIT_FAIL, "out of memory: the vocabulary of %d characters", v->n);
    v->json = rt_printf("%s", json);
    json_decref(list);
    json_free_t release;
    json_get_alloc_funcs(NULL, &release);
    release(json);
}

/* Marks the characters of a text; every byte is checked. */
static void vocab_collect(const Text *text, uint8_t *seen)
{
    int length;
    for (size_t i = 0; i < text->len; i += (size_t)length) {
        const int32_t code = rt_utf8_decode(text->at + i, text->len - i, &length);
        if (length == 0) {
            char place[320];
            rt_fail(RT_EXIT_FAIL,
                    "%s: byte 0x%02x is no valid UTF-8; convert the text, or read it as "
                    "bytes (vocab: bytes)",
                    text_place(text, i, place), text->at[i]);
        }
        seen[code] = 1;
    }
}

static void vocab_from_text(DataVocab *v, const Text *text)
{
    uint8_t *seen = rt_alloc(CODE_POINTS, "the table of characters");
    vocab_collect(text, seen);
    for (int32_t c = 0; c < CODE_POINTS; c++)
        v->n += seen[c];
    v->code = rt_alloc((size_t)v->n * sizeof *v->code + 1, "the vocabulary");
    int32_t n = 0;
    for (int32_t c = 0; c < CODE_POINTS; c++)
        if (seen[c])
            v->code[n++] = c;
    rt_free(seen);
    vocab_fill_text(v);
}

void data_read_vocab(RtData *d, const char *text)
{
    json_error_t error;
    json_t *list = json_loads(text, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (!json_is_array(list) || json_array_size(list) >= CODE_POINTS)
        rt_fail(RT_EXIT_FAIL, "the vocabulary of the checkpoint is no list of characters");
    DataVocab *v = &d->vocab;
    v->code = rt_alloc(json_array_size(list) * sizeof *v->code + 1, "the vocabulary");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        const size_t len = json_is_string(item) ? json_string_length(item) : 0;
        int length = 0;
        const int32_t code = len ? rt_utf8_decode((const uint8_t *)json_string_value(item), len,
                                                  &length)
                                 : -1;
        if (length == 0 || (size_t)length != len || (i > 0 && code <= v->code[i - 1]))
            rt_fail(RT_EXIT_FAIL,
                    "the vocabulary of the checkpoint: entry %zu is no single character "
                    "in ascending order",
                    i);
        v->code[v->n++] = code;
    }
    json_decref(list);
    vocab_fill_text(v);
}

static int32_t vocab_find(const DataVocab *v, int32_t code)
{
    int32_t low = 0, high = v->n - 1;
    while (low <= high) {
        const int32_t middle = (low + high) / 2;
        if (v->code[middle] == code)
            return middle;
        if (v->code[middle] < code)
            low = middle + 1;
        else
            high = middle - 1;
    }
    return -1;
}

/* ---- a text as ids --------------------------------------------------------------------------- */

static void ids_put(void *at, int width, int64_t i, int32_t id)
{
    if (width == 1)
        ((uint8_t *)at)[i] = (uint8_t)id;
    else if (width == 2)
        ((uint16_t *)at)[i] = (uint16_t)id;
    else
        ((int32_t *)at)[i] = id;
}

__attribute__((noreturn)) static void text_fail_unknown(const Text *text, size_t at, int32_t code,
                                                        int32_t n)
{
    char place[320], character[5], shown[16] = "";
    utf8_encode(code, character);
    if (code >= ' ' && code != 0x7f)
        snprintf(shown, sizeof shown, " ('%s')", character);
    rt_fail(RT_EXIT_FAIL, "%s: character U+%04X%s is not in the vocabulary of %d characters",
            text_place(text, at, place), (unsigned)code, shown, n);
}

static DataSegment text_encode(RtData *d, const Text *text)
{
    const DataVocab *v = &d->vocab;
    int32_t *id_of = rt_alloc(CODE_POINTS * sizeof *id_of, "the table of characters");
    for (int32_t i = 0; i < v->n; i++)
        id_of[v->code[i]] = i + 1;
    const int width = v->n <= 1 << 8 ? 1 : v->n <= 1 << 16 ? 2 : 4;
    int64_t n = 0;
    for (size_t i = 0; i < text->len; i++)
        n += text->at[i] >> 6 != 2;
    void *ids = rt_alloc((size_t)n * (size_t)width + 1, text->file);
    data_own(d, ids, 0);
    int length;
    n = 0;
    for (size_t i = 0; i < text->len; i += (size_t)length) {
        const int32_t code = rt_utf8_decode(text->at + i, text->len - i, &length);
        char place[320];
        if (length == 0)
            rt_fail(RT_EXIT_FAIL, "%s: byte 0x%02x is no valid UTF-8", text_place(text, i, place),
                    text->at[i]);
        if (id_of[code] == 0)
            text_fail_unknown(text, i, code, v->n);
        ids_put(ids, width, n++, id_of[code] - 1);
    }
    rt_free(id_of);
    return (DataSegment){ .file = text->file, .at = ids, .width = width, .n = n };
}

static Text text_read(RtData *d, const char *file)
{
    Text text = { .file = file };
    text.at = rt_read_file(file, PTRDIFF_MAX, &text.len);
    if (text.len == 0)
        rt_fail(RT_EXIT_FAIL, "%s: is empty", file);
    data_hash_more(d, text.at, text.len);
    return text;
}

static bool text_is_chars(const RtTrain *t) { return t->vocab && strcmp(t->vocab, "chars") == 0; }

static DataSegment text_segment(RtData *d, const Text *text)
{
    if (text_is_chars(&d->t)) {
        const DataSegment s = text_encode(d, text);
        rt_free((void *)(uintptr_t)text->at);
        return s;
    }
    data_own(d, (void *)(uintptr_t)text->at, 0);
    return (DataSegment){ .file = text->file, .at = text->at, .width = 1, .n = (int64_t)text->len };
}

/* Does the vocabulary fit the range that the model gives its tokens? fresh: found in the text; that
   the model has room for more is told then. */
static void vocab_check(const RtData *d, bool fresh)
{
    for (int i = 0; i < d->n_maps && text_is_chars(&d->t); i++) {
        const DataMap *map = &d->map[i];
        char input[160], hint[160];
        if (map->type == RT_I32 && map->input->ranged && d->vocab.n > map->input->hi)
            rt_fail(RT_EXIT_FAIL,
                    "%s: the vocabulary has %d characters, more than %s has room for%s", d->path[0],
                    d->vocab.n, data_input_text(map, input), data_hint_size(map, d->vocab.n, hint));
        if (fresh && map->type == RT_I32 && map->input->ranged && d->vocab.n < map->input->hi) {
            fprintf(stderr, "note: %s has %d different characters, fewer than %s has room for",
                    d->path[0], d->vocab.n, data_input_text(map, input));
            if (map->input->hi_name)
                fprintf(stderr, "; compiled with gradcc -D %s=%d the model is smaller",
                        map->input->hi_name, d->vocab.n);
            fputc('\n', stderr);
            fresh = false; /* once */
        }
    }
}

static void stream_set(RtData *d, int part, DataSegment s)
{
    d->stream[part].segment = rt_alloc(sizeof s, "a list of files");
    *d->stream[part].segment = s;
    d->stream[part].n = 1;
}

void data_open_text(RtData *d, const char *vocab)
{
    const Text text = text_read(d, d->path[0]);
    d->has_vocab = true;
    if (text_is_chars(&d->t)) {
        if (vocab)
            data_read_vocab(d, vocab);
        else
            vocab_from_text(&d->vocab, &text);
        vocab_check(d, !vocab);
    }
    DataSegment s = text_segment(d, &text);
    if (d->path[1]) {
        const Text other = text_read(d, d->path[1]);
        stream_set(d, RT_SPLIT_VAL, text_segment(d, &other));
    } else {
        const int64_t cut = data_cut(d->t.split, s.n);
        DataSegment rest = s;
        rest.at = (const char *)s.at + cut * s.width;
        rest.n = s.n - cut;
        s.n = cut;
        if (rest.n > 0)
            stream_set(d, RT_SPLIT_VAL, rest);
    }
    stream_set(d, RT_SPLIT_TRAIN, s);
}

/* ---- texts of users -------------------------------------------------------------------------- */

const char *rt_data_vocab(const RtData *d) { return d->vocab.json; }

int64_t rt_data_encode(const RtData *d, const char *text, int32_t *ids, int64_t cap)
{
    const uint8_t *s = (const uint8_t *)text;
    const size_t len = strlen(text);
    int64_t n = 0;
    int length = 1;
    if (!d->has_vocab)
        return -1;
    for (size_t i = 0; i < len && n < cap; i += (size_t)length) {
        int32_t id = s[i];
        if (d->vocab.code) {
            const int32_t code = rt_utf8_decode(s + i, len - i, &length);
            id = length == 0 ? -1 : vocab_find(&d->vocab, code);
        }
        if (id < 0)
            return -1;
        ids[n++] = id;
    }
    return n;
}

const char *rt_data_decode(const RtData *d, int32_t id)
{
    static _Thread_local char one[2];
    if (!d->has_vocab || id < 0)
        return NULL;
    if (d->vocab.code)
        return id < d->vocab.n ? d->vocab.text[id] : NULL;
    one[0] = (char)id;
    return id < 256 ? one : NULL;
}
