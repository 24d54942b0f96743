/* profile.cu -- RT_CUDA_PROFILE=FILE: the time that each kernel of an update takes.
 *
 * In: launches, as they are queued. Out: FILE, a row for each kernel and line of the model, the
 * most time first. The one idea: an event before and one behind each launch, read when many are
 * queued, so that the GPU goes on as it would without them. Graphs are off then, and the first
 * update, which loads kernels, does not count.
 */
#include <errno.h>

#include "cuda/queue.h"

enum { ROWS = 1024, PAIRS = 1024 };

typedef struct {
    const char *kernel, *where;
    int calls;
    double total, least; /* milliseconds */
} Row;

typedef struct {
    cudaEvent_t from, to;
    const char *kernel, *where;
} Pair; /* of a launch that is queued */

static Row row[ROWS];
static Pair pair[PAIRS];
static int n_rows, n_pairs, updates;
static const char *path; /* NULL: none */
static bool on, begun;   /* an update that counts is queued; a launch of it */

bool rt_profile_open(void)
{
    path = rt_environment("RT_CUDA_PROFILE");
    return path != NULL;
}

void rt_profile_update(bool begin)
{
    on = begin && path && updates > 0;
    updates += !begin;
}

static void add(const Pair *p)
{
    float ms = 0;
    int i = 0;
    RT_CUDA_CALL(NULL, cudaEventElapsedTime(&ms, p->from, p->to));
    while (i < n_rows
           && !(strcmp(row[i].kernel, p->kernel) == 0 && strcmp(row[i].where, p->where) == 0))
        i++;
    if (i == ROWS)
        return;
    if (i == n_rows) {
        n_rows++;
        row[i].kernel = p->kernel;
        row[i].where = p->where;
        row[i].least = (double)ms;
    }
    row[i].calls++;
    row[i].total += (double)ms;
    row[i].least = (double)ms < row[i].least ? (double)ms : row[i].least;
}

/* All that is queued is done. */
static void read_pairs(void)
{
    rt_stream_wait(rt_device_stream());
    for (int i = 0; i < n_pairs; i++)
        add(&pair[i]);
    n_pairs = 0;
}

void rt_profile_begin(RtStream *stream)
{
    if (!on || stream != rt_device_stream())
        return;
    if (n_pairs == PAIRS)
        read_pairs();
    Pair *p = &pair[n_pairs];
    if (!p->from) {
        RT_CUDA_CALL(stream, cudaEventCreate(&p->from));
        RT_CUDA_CALL(stream, cudaEventCreate(&p->to));
    }
    RT_CUDA_CALL(stream, cudaEventRecord(p->from, stream->at));
    begun = true;
}

void rt_profile_end(RtStream *stream, const char *kernel)
{
    if (!begun || stream != rt_device_stream())
        return;
    begun = false;
    Pair *p = &pair[n_pairs++];
    p->kernel = kernel;
    p->where = stream->where ? stream->where : "";
    RT_CUDA_CALL(stream, cudaEventRecord(p->to, stream->at));
}

/* ---- the table ------------------------------------------------------------------------------- */

static int most_first(const void *a, const void *b)
{
    const Row *x = (const Row *)a, *y = (const Row *)b;
    return (x->total < y->total) - (x->total > y->total);
}

void rt_profile_write(void)
{
    enum { LINE = 256 };
    if (!path || !*path || updates < 2)
        return;
    read_pairs();
    qsort(row, (size_t)n_rows, sizeof *row, most_first);
    double all = 0;
    int calls = 0;
    for (int i = 0; i < n_rows; i++) {
        all += row[i].total;
        calls += row[i].calls;
    }
    const size_t cap = (size_t)(n_rows + 3) * LINE;
    char *text = (char *)rt_alloc(cap, "the table of kernels");
    size_t n = (size_t)snprintf(text, cap,
                                "%d updates, the first left out: %d launches and %.3f ms each\n"
                                "%9s %6s %9s %9s %6s  kernel, line of the model\n",
                                updates, calls / (updates - 1), all / (updates - 1), "ms", "calls",
                                "mean us", "least us", "share");
    for (int i = 0; i < n_rows; i++) {
        const char *kernel = row[i].kernel;
        const int len = rt_kernel_name(&kernel);
        const int put = snprintf(text + n, LINE, "%9.3f %6d %9.2f %9.2f %5.1f%%  %.*s, %s\n",
                                 row[i].total / (updates - 1), row[i].calls / (updates - 1),
                                 1000 * row[i].total / row[i].calls, 1000 * row[i].least,
                                 all > 0 ? 100 * row[i].total / all : 0, len, kernel, row[i].where);
        n += (size_t)(put < LINE ? put : LINE - 1);
    }
    if (rt_write_atomic(path, text, strlen(text)))
        rt_warn("RT_CUDA_PROFILE=%s: cannot be written: %s", path, strerror(errno));
    rt_free(text);
    updates = 0;
}
