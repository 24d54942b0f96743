/* window.c -- samples of token sequences: windows that start anywhere (training) or follow one
 * another (validation).
 *
 * In: streams of tokens, the maps' positions lo..hi within a window. Out: rows of the input
 * buffers. A window never reaches over the end of a file. Validation covers every position of every
 * file that has a target, once: whole windows in order, then one shorter window with the rest.
 */
#include "data/data.h"

static int64_t segment_get(const DataSegment *s, int64_t i)
{
    switch (s->width) {
    case 1: return ((const uint8_t *)s->at)[i];
    case 2: return ((const uint16_t *)s->at)[i];
    default: return ((const uint32_t *)s->at)[i];
    }
}

/* ---- ranges ---------------------------------------------------------------------------------- */

static int64_t segment_max(const DataSegment *s)
{
    uint32_t most = 0;
    if (s->width == 1)
        for (int64_t i = 0; i < s->n; i++) {
            const uint32_t v = ((const uint8_t *)s->at)[i];
            most = v > most ? v : most;
        }
    else if (s->width == 2)
        for (int64_t i = 0; i < s->n; i++) {
            const uint32_t v = ((const uint16_t *)s->at)[i];
            most = v > most ? v : most;
        }
    else
        for (int64_t i = 0; i < s->n; i++) {
            const uint32_t v = ((const uint32_t *)s->at)[i];
            most = v > most ? v : most;
        }
    return most;
}

static void range_fail(const RtData *d, const DataSegment *s, const DataMap *map, int64_t i)
{
    char input[160], hint[160];
    const int64_t id = segment_get(s, i);
    rt_fail(RT_EXIT_FAIL, "%s: token %lld is %lld, outside of %s%s", s->file, (long long)i,
            (long long)id, data_input_text(map, input),
            data_hint_size(map, d->has_vocab ? 0 : id + 1, hint));
}

/* One look at all tokens; only if one is too large, or small ones are out of range, a second. */
static void check_segment(const RtData *d, const DataSegment *s)
{
    const int64_t most = segment_max(s);
    for (int j = 0; j < d->n_maps; j++) {
        const DataMap *map = &d->map[j];
        if (map->type != RT_I32)
            continue;
        const bool wrong = map->input->ranged && (map->input->lo > 0 || most >= map->input->hi);
        for (int64_t i = 0; i < s->n && wrong; i++)
            if (!data_in_range(map->input, segment_get(s, i)))
                range_fail(d, s, map, i);
        if (most > INT32_MAX)
            rt_fail(RT_EXIT_FAIL, "%s: a token is larger than %d", s->file, INT32_MAX);
    }
}

/* ---- how many -------------------------------------------------------------------------------- */

/* false: the inputs have windows of several lengths, and shorter ones would not be uniform. */
static bool plan_length(RtData *d)
{
    ptrdiff_t shortest = PTRDIFF_MAX;
    for (int i = 0; i < d->n_maps; i++) {
        const DataMap *map = &d->map[i];
        const ptrdiff_t length = map->hi - map->lo;
        if (map->map->kind != RT_MAP_WINDOW)
            rt_fail(RT_EXIT_FAIL,
                    "%s: input %s wants a column, but the data are a sequence: "
                    "window(..) is wanted",
                    map->map->where, map->input->name);
        if (map->lo < 0 || length < 1)
            rt_fail(RT_EXIT_FAIL, "%s: window(%td..%td) of input %s is empty or starts before 0",
                    map->map->where, map->lo, map->hi, map->input->name);
        if (length != map->elems)
            rt_fail(RT_EXIT_FAIL, "%s: window(%td..%td) has %td tokens, input %s takes %td",
                    map->map->where, map->lo, map->hi, length, map->input->name, map->elems);
        d->span = map->hi > d->span ? map->hi : d->span;
        d->length = length > d->length ? length : d->length;
        shortest = length < shortest ? length : shortest;
    }
    return shortest == d->length;
}

void data_plan_windows(RtData *d)
{
    const bool uniform = plan_length(d);
    for (int part = 0; part < 2; part++) {
        DataStream *stream = &d->stream[part];
        for (int i = 0; i < stream->n; i++) {
            DataSegment *s = &stream->segment[i];
            check_segment(d, s);
            if (s->n >= d->span)
                d->samples[part] += part == RT_SPLIT_TRAIN ? s->n - d->span + 1
                                                           : (s->n - d->span) / d->length + 1;
            s->samples = d->samples[part];
            const int64_t places = s->n - (d->span - d->length);
            if (part == RT_SPLIT_VAL && uniform && places > 0)
                s->tail = (ptrdiff_t)(places % d->length);
            stream->tokens += s->n;
        }
    }
    if (d->stream[0].n > 0 && d->samples[0] == 0)
        rt_fail(RT_EXIT_FAIL,
                "%s: %lld tokens to train on, one window takes %td: more data or "
                "shorter windows are wanted (--dims)",
                d->path[0], (long long)d->stream[0].tokens, d->span);
}

/* ---- filling --------------------------------------------------------------------------------- */

static void copy_tokens(const DataSegment *s, const DataMap *map, int64_t from, ptrdiff_t n,
                        ptrdiff_t at, void *to)
{
    for (ptrdiff_t i = 0; i < n; i++) {
        const int64_t v = segment_get(s, from + i);
        if (map->type == RT_I32)
            ((int32_t *)to)[at + i] = (int32_t)v;
        else if (map->type == RT_F32)
            ((float *)to)[at + i] = (float)v;
        else
            ((double *)to)[at + i] = (double)v;
    }
}

/* A file that is mapped may have changed since it was checked. */
static void check_again(const RtData *d, const DataSegment *s, const DataMap *map, int64_t from,
                        ptrdiff_t n)
{
    if (s->width > 1 && map->type == RT_I32 && map->input->ranged)
        for (ptrdiff_t i = 0; i < n; i++)
            if (!data_in_range(map->input, segment_get(s, from + i)))
                range_fail(d, s, map, from + i);
}

void data_fill_window(const RtData *d, RtSplit split, int64_t sample, ptrdiff_t row,
                      void *const *inputs)
{
    const DataStream *stream = &d->stream[split];
    int low = 0, high = stream->n - 1;
    while (low < high) { /* the first segment with more samples */
        const int middle = (low + high) / 2;
        if (stream->segment[middle].samples > sample)
            high = middle;
        else
            low = middle + 1;
    }
    const DataSegment *s = &stream->segment[low];
    const int64_t in = sample - (low > 0 ? stream->segment[low - 1].samples : 0);
    const int64_t start = split == RT_SPLIT_TRAIN ? in : in * d->length;
    for (int i = 0; i < d->n_maps; i++) {
        const DataMap *map = &d->map[i];
        check_again(d, s, map, start + map->lo, map->elems);
        copy_tokens(s, map, start + map->lo, map->elems, row * map->elems, inputs[map->map->input]);
    }
}

void data_fill_rest(const RtData *d, const DataSegment *s, void *const *inputs)
{
    const int64_t start = s->n - (d->span - d->length) - s->tail;
    for (int i = 0; i < d->n_maps; i++) {
        const DataMap *map = &d->map[i];
        check_again(d, s, map, start + map->lo, s->tail);
        copy_tokens(s, map, start + map->lo, s->tail, 0, inputs[map->map->input]);
    }
}
