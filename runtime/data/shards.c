/* shards.c -- token files of llm.c: a header of 256 integers, then 16-bit or 32-bit tokens.
 *
 * In: a path or a pattern (train_*.bin) for training, another for validation or a share of the
 * first. Out: streams, one segment a file, mapped into memory. Magic, version and the number of
 * tokens are checked against the size of the file before anything is used.
 */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "data/data.h"

enum { HEADER_INTS = 256, HEADER_BYTES = HEADER_INTS * 4 };

typedef struct {
    int32_t magic, version;
    int width;
    const char *name;
} ShardKind;

static const ShardKind kinds[] = {
    { 20240520, 1, 2, "GPT-2" },
    { 20240801, 7, 4, "Llama-3" },
};

static const struct {
    int32_t magic;
    const char *what;
} others[] = {
    { 20240522, "an evaluation file (HellaSwag)" },
    { 20240326, "a model" },
    { 20240327, "a debug state" },
    { 20240328, "a tokenizer" },
    { 20240527, "a training state" },
};

static const ShardKind *shard_kind(const char *file, int32_t magic, int32_t version)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].magic == magic) {
            if (kinds[i].version != version)
                rt_fail(RT_EXIT_FAIL, "%s: version %d of a %s token file; version %d is wanted",
                        file, version, kinds[i].name, kinds[i].version);
            return &kinds[i];
        }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (others[i].magic == magic)
            rt_fail(RT_EXIT_FAIL, "%s: %s of llm.c (magic %d); a token file is wanted", file,
                    others[i].what, magic);
    rt_fail(RT_EXIT_FAIL,
            "%s: no token file of llm.c: it starts with %d, wanted 20240520 (16-bit tokens) "
            "or 20240801 (32-bit tokens)",
            file, magic);
}

/* The whole file, read-only; small files are read, large ones mapped. */
static const uint8_t *shard_map(RtData *d, const char *file, size_t *bytes)
{
    const int fd = rt_open(file, O_RDONLY, 0);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0)
        rt_fail(RT_EXIT_FAIL, "%s: cannot be opened: %s", file, strerror(errno));
    if (!S_ISREG(st.st_mode))
        rt_fail(RT_EXIT_FAIL, "%s: is no regular file", file);
    *bytes = (size_t)st.st_size;
    if (*bytes < HEADER_BYTES)
        rt_fail(RT_EXIT_FAIL, "%s: %zu bytes; the header of a token file alone has %d", file,
                *bytes, HEADER_BYTES);
    void *at = mmap(NULL, *bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (at == MAP_FAILED)
        rt_fail(RT_EXIT_FAIL, "%s: cannot be mapped: %s", file, strerror(errno));
    (void)rt_io.close(fd);
    data_own(d, at, *bytes);
    return at;
}

static DataSegment shard_open(RtData *d, const char *file)
{
    size_t bytes;
    const uint8_t *at = shard_map(d, file, &bytes);
    int32_t header[3];
    memcpy(header, at, sizeof header);
    const ShardKind *kind = shard_kind(file, header[0], header[1]);
    const int64_t found = (int64_t)(bytes - HEADER_BYTES);
    const bool longer = header[2] >= 0 && found > (int64_t)header[2] * kind->width;
    if (header[2] < 0 || found != (int64_t)header[2] * kind->width)
        rt_fail(RT_EXIT_FAIL,
                "%s: the header promises %d tokens of %d bytes, the file has %lld bytes of "
                "tokens: it is %s",
                file, header[2], kind->width, (long long)found, longer ? "longer" : "truncated");
    data_hash_more(d, at, bytes);
    return (
        DataSegment){ .file = file, .at = at + HEADER_BYTES, .width = kind->width, .n = header[2] };
}

static void stream_open(RtData *d, int part, const char *pattern)
{
    glob_t found = { 0 };
    const int status = glob(pattern, GLOB_ERR, NULL, &found);
    if (status != 0 || found.gl_pathc == 0)
        data_fail_missing(part, pattern, status == GLOB_NOMATCH || status == 0 ? ENOENT : EIO);
    DataStream *stream = &d->stream[part];
    stream->segment = rt_alloc(found.gl_pathc * sizeof *stream->segment, "the list of token files");
    for (size_t i = 0; i < found.gl_pathc; i++) {
        char *file = rt_printf("%s", found.gl_pathv[i]);
        data_own(d, file, 0);
        stream->segment[stream->n++] = shard_open(d, file);
    }
    globfree(&found);
}

/* The last share of the tokens, over the borders of files, becomes the validation stream. */
static void stream_split(RtData *d, double split)
{
    DataStream *train = &d->stream[RT_SPLIT_TRAIN], *val = &d->stream[RT_SPLIT_VAL];
    int64_t total = 0, before = 0;
    for (int i = 0; i < train->n; i++)
        total += train->segment[i].n;
    const int64_t cut = data_cut(split, total);
    if (cut == total)
        return;
    val->segment = rt_alloc((size_t)train->n * sizeof *val->segment, "the list of token files");
    for (int i = 0; i < train->n; i++) {
        DataSegment *s = &train->segment[i], rest = *s;
        const int64_t keep = cut <= before ? 0 : cut - before < s->n ? cut - before : s->n;
        before += s->n;
        rest.at = (const char *)s->at + keep * s->width;
        rest.n = s->n - keep;
        s->n = keep;
        if (rest.n > 0)
            val->segment[val->n++] = rest;
    }
}

void data_open_tokens(RtData *d)
{
    stream_open(d, RT_SPLIT_TRAIN, d->path[0]);
    if (d->path[1])
        stream_open(d, RT_SPLIT_VAL, d->path[1]);
    else
        stream_split(d, d->t.split);
}
