/* data.c -- a data set for a model: opens a reader, maps inputs to it, fills batches.
 *
 * In: the train block, dims and maps of the model table. Out: rows of the input buffers. The one
 * idea: everything is checked when the data are opened (form, ranges, sizes), and what a batch
 * holds is a function of (seed, epoch, index) only.
 */
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "data/data.h"

/* ---- helpers of the readers ------------------------------------------------------------------ */

void data_own(RtData *d, void *at, size_t mapped)
{
    DataOwned *own = rt_alloc(sizeof *own, "a list of files");
    *own = (DataOwned){ .at = at, .mapped = mapped, .next = d->owned };
    d->owned = own;
}

void data_hash_more(RtData *d, const void *at, size_t n)
{
    d->hash = XXH3_64bits_withSeed(at, n, d->hash);
}

int64_t data_cut(double split, int64_t n)
{
    if (split <= 0 || split >= 1) /* not given: all of it trains */
        return n;
    const int64_t cut = (int64_t)floor(split * (double)n + 1e-6);
    return cut > n ? n : cut;
}

bool data_in_range(const RtInput *input, int64_t v)
{
    return !input->ranged || (v >= input->lo && v < input->hi)
           || (input->has_ignore && v == input->ignore);
}

const char *data_input_text(const DataMap *map, char text[160])
{
    const RtInput *input = map->input;
    char ignore[32] = "";
    if (input->has_ignore)
        snprintf(ignore, sizeof ignore, " or %lld", (long long)input->ignore);
    if (input->ranged)
        snprintf(text, 160, "%s: int in %lld..%lld%s (%s)", input->name, (long long)input->lo,
                 (long long)input->hi, ignore, input->where);
    else
        snprintf(text, 160, "%s (%s)", input->name, input->where);
    return text;
}

const char *data_hint_size(const DataMap *map, int64_t n, char text[160])
{
    text[0] = 0;
    if (n > 0 && map->input->hi_name && n > map->input->hi)
        snprintf(text, 160, "; compile with gradcc -D %s=%lld", map->input->hi_name, (long long)n);
    else if (n > 0 && n > map->input->hi)
        snprintf(text, 160, "; the model's range must reach %lld", (long long)n);
    return text;
}

void data_fail_missing(int part, const char *path, int error)
{
    rt_fail(RT_EXIT_FAIL, "%s: %s; %s", path, error == ENOENT ? "no such file" : strerror(error),
            part == RT_SPLIT_TRAIN
                ? "--data FILE names the training data"
                : "--val-data FILE names the validation data, none takes a share of --data");
}

/* ---- maps ------------------------------------------------------------------------------------ */

static void map_open(RtData *d, int i)
{
    const RtModel *m = d->m;
    const RtMap *map = &d->t.maps[i];
    ptrdiff_t shape[RT_MAX_RANK] = { 0 };
    DataMap *to = &d->map[d->n_maps++];
    *to = (DataMap){ .map = map, .input = &m->inputs[map->input], .elems = 1 };
    to->type = to->input->type;
    m->map_range(d->dims, i, &to->lo, &to->hi);
    m->input_shape(d->dims, map->input, shape);
    for (int axis = 1; axis < to->input->rank; axis++)
        to->elems *= shape[axis];
}

static void maps_open(RtData *d)
{
    const RtModel *m = d->m;
    for (int i = 0; i < d->t.n_maps; i++) {
        for (int j = 0; j < i; j++)
            if (d->t.maps[i].input == d->t.maps[j].input)
                rt_fail(RT_EXIT_FAIL, "%s: input %s is taken from the data twice",
                        d->t.maps[i].where, m->inputs[d->t.maps[i].input].name);
        map_open(d, i);
    }
    for (int input = 0; input < m->n_inputs; input++) {
        bool found = false;
        for (int i = 0; i < d->n_maps; i++)
            found |= d->map[i].map->input == input;
        if (!found)
            rt_fail(RT_EXIT_FAIL,
                    "%s: nothing in the data of the train block (%s) is given to input %s",
                    m->inputs[input].where, d->t.where, m->inputs[input].name);
    }
}

/* ---- opening --------------------------------------------------------------------------------- */

RtData *rt_data_open_vocab(const RtModel *m, const RtTrain *t, const char *vocab)
{
    const bool bytes = t->vocab && strcmp(t->vocab, "bytes") == 0;
    if (!t->reader || strcmp(t->reader, "text") != 0 || (!bytes && !vocab))
        return NULL;
    RtData *d = rt_alloc(sizeof *d, "the data");
    *d = (RtData){ .m = m, .t = *t, .has_vocab = true };
    if (!bytes)
        data_read_vocab(d, vocab);
    return d;
}

static bool is_sequence(const RtData *d) { return strcmp(d->t.reader, "csv") != 0; }

RtData *rt_data_open(const RtModel *m, const RtTrain *t, const ptrdiff_t *dims, const char *vocab)
{
    if (!t->reader)
        rt_fail(RT_EXIT_USAGE, "%s: the model has no data in its train block", m->source);
    if (!t->path || !*t->path)
        rt_fail(RT_EXIT_USAGE, "%s: no data file is named; give --data FILE", t->where);
    if (t->n_maps > RT_MAX_DIMS)
        rt_fail(RT_EXIT_FAIL, "%s: more than %d inputs", t->where, RT_MAX_DIMS);
    RtData *d = rt_alloc(sizeof *d, "the data");
    *d = (RtData){ .m = m, .t = *t, .path = { t->path, t->val_path } };
    if (t->val_path && (!*t->val_path || strcmp(t->val_path, "none") == 0))
        d->path[1] = NULL;
    for (int part = 0; part < 2 && strcmp(t->reader, "tokens") != 0; part++)
        if (d->path[part] && access(d->path[part], F_OK) != 0)
            data_fail_missing(part, d->path[part], errno);
    memcpy(d->dims, dims, (size_t)m->n_dims * sizeof *dims);
    maps_open(d);
    if (strcmp(t->reader, "text") == 0)
        data_open_text(d, vocab);
    else if (strcmp(t->reader, "tokens") == 0)
        data_open_tokens(d);
    else if (strcmp(t->reader, "csv") == 0)
        data_open_csv(d);
    else
        rt_fail(RT_EXIT_FAIL, "%s: there is no reader '%s': text, csv, tokens", t->where,
                t->reader);
    if (is_sequence(d))
        data_plan_windows(d);
    return d;
}

void rt_data_close(RtData *d)
{
    if (!d)
        return;
    for (DataOwned *own = d->owned, *next; own; own = next) {
        next = own->next;
        if (own->mapped)
            (void)munmap(own->at, own->mapped);
        else
            rt_free(own->at);
        rt_free(own);
    }
    for (int part = 0; part < 2; part++) {
        rt_free(d->stream[part].segment);
        rt_free(d->row[part]);
        for (int i = 0; i < d->n_maps; i++)
            rt_free(d->table[part].at[i]);
    }
    rt_free(d->vocab.code);
    rt_free(d->vocab.text);
    rt_free(d->vocab.json);
    rt_free(d);
}

uint64_t rt_data_hash(const RtData *d) { return d->hash; }
int64_t rt_data_samples(const RtData *d, RtSplit split) { return d->samples[split]; }
int rt_data_tails(const RtData *d, RtSplit split) { return d->stream[split].n; }
ptrdiff_t rt_data_tail(const RtData *d, RtSplit split, int i)
{
    return d->stream[split].segment[i].tail;
}

/* ---- batches --------------------------------------------------------------------------------- */

static size_t type_bytes(RtType type) { return type == RT_F64 ? sizeof(double) : sizeof(float); }

static void fill_columns(const RtData *d, RtSplit split, int64_t sample, ptrdiff_t row,
                         void *const *inputs)
{
    const DataTable *table = &d->table[split == RT_SPLIT_VAL && d->path[1]];
    for (int i = 0; i < d->n_maps; i++) {
        const DataMap *map = &d->map[i];
        const size_t bytes = (size_t)map->elems * type_bytes(map->type);
        memcpy((char *)inputs[map->map->input] + (size_t)row * bytes,
               (const char *)table->at[i] + (size_t)d->row[split][sample] * bytes, bytes);
    }
}

int64_t rt_data_index(const RtData *d, uint64_t seed, int64_t i)
{
    const uint64_t count = (uint64_t)d->samples[RT_SPLIT_TRAIN], sample = (uint64_t)i;
    return (int64_t)rt_permute(sample % count, count, rt_stream(seed, sample / count));
}

void rt_data_fill(RtData *d, RtSplit split, uint64_t seed, int64_t first, ptrdiff_t n,
                  void *const *inputs)
{
    const uint64_t count = (uint64_t)d->samples[split];
    if (count == 0)
        rt_fail(RT_EXIT_FAIL, "%s: the %s data have no sample", d->path[0],
                split == RT_SPLIT_TRAIN ? "training" : "validation");
    for (ptrdiff_t row = 0; row < n; row++) {
        uint64_t sample = (uint64_t)(first + row);
        if (split == RT_SPLIT_TRAIN)
            sample = (uint64_t)rt_data_index(d, seed, first + row);
        if (is_sequence(d))
            data_fill_window(d, split, (int64_t)(sample % count), row, inputs);
        else
            fill_columns(d, split, (int64_t)(sample % count), row, inputs);
    }
}

void rt_data_fill_tail(RtData *d, RtSplit split, int i, void *const *inputs)
{
    data_fill_rest(d, &d->stream[split].segment[i], inputs);
}

/* ---- constants fitted on the training split -------------------------------------------------- */

static double column_value(const RtData *d, const DataMap *map, int i, int64_t sample,
                           ptrdiff_t elem)
{
    const void *at = d->table[0].at[i];
    const int64_t place = d->row[0][sample] * map->elems + elem;
    switch (map->type) {
    case RT_F64: return ((const double *)at)[place];
    case RT_F32: return ((const float *)at)[place];
    default: return ((const int32_t *)at)[place];
    }
}

typedef struct {
    double mean, std;
} ColumnFit;

/* Mean and population standard deviation of elements [from, to) of map i over all samples; both
   exact where all values are equal. */
static ColumnFit column_fit(const RtData *d, int i, ptrdiff_t from, ptrdiff_t to)
{
    const double n = (double)d->samples[0] * (double)(to - from);
    double least = INFINITY, most = -INFINITY, mean = 0, sum = 0, squares = 0;
    for (int64_t s = 0; s < d->samples[0]; s++)
        for (ptrdiff_t e = from; e < to; e++) {
            const double v = column_value(d, &d->map[i], i, s, e);
            least = fmin(least, v);
            most = fmax(most, v);
            mean += v / n;
        }
    if (!(least < most))
        return (ColumnFit){ .mean = least };
    const double scale = fmax(fabs(least), fabs(most)); /* squares neither overflow nor vanish */
    for (int64_t s = 0; s < d->samples[0]; s++)
        for (ptrdiff_t e = from; e < to; e++) {
            const double off = (column_value(d, &d->map[i], i, s, e) - mean) / scale;
            sum += off;
            squares += off * off;
        }
    const double rest = sum / n; /* what rounding left in the mean */
    return (ColumnFit){ .mean = mean + rest * scale,
                        .std = sqrt(fmax(squares / n - rest * rest, 0)) * scale };
}

static void fit_param(const RtData *d, const RtModel *m, const RtParam *q, void *p)
{
    int i = 0;
    while (i < d->n_maps && d->map[i].map->input != q->fit_input)
        i++;
    const bool std = strcmp(q->fit, "std") == 0;
    const ptrdiff_t elems = rt_param_elems(q);
    if (i == d->n_maps || is_sequence(d))
        rt_fail(RT_EXIT_FAIL, "%s: %s of input %s can be fitted on columns only", q->where, q->fit,
                m->inputs[q->fit_input].name);
    if (elems != 1 && elems != d->map[i].elems)
        rt_fail(RT_EXIT_FAIL, "%s: %s has %td elements, input %s has %td per sample", q->where,
                q->path, elems, d->map[i].input->name, d->map[i].elems);
    for (ptrdiff_t e = 0; e < elems; e++) {
        const ColumnFit fit = column_fit(d, i, elems == 1 ? 0 : e,
                                         elems == 1 ? d->map[i].elems : e + 1);
        double v = std ? fit.std : fit.mean;
        const double stored = m->real == RT_F64 ? v : (double)(float)v;
        if (std && !(stored > 0)) {
            rt_warn("%s: element %td of %s is constant in the training data; its standard "
                    "deviation is set to 1",
                    q->where, e, d->map[i].input->name);
            v = 1;
        }
        const size_t bytes = rt_real_bytes(m);
        const float narrow = (float)v;
        rt_place_put((char *)p + (size_t)(q->at + e) * bytes,
                     bytes == sizeof v ? (const void *)&v : &narrow, bytes);
    }
}

void rt_data_fit(RtData *d, const RtModel *m, void *p)
{
    for (int i = 0; i < m->n_params; i++)
        if (m->params[i].fit)
            fit_param(d, m, &m->params[i], p);
}
