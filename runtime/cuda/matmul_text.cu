/* matmul_text.cu -- which algorithm computes which product, as text: for checkpoints and the disk.
 *
 * In: choices, and a line that says on which GPU and with which library they hold. Out: lines that
 * a person can read, with a hash behind them; and back. The one idea: an algorithm is 64 bytes that
 * the same version of the library takes back, so a choice outlives the process that measured it.
 *
 * The file is RT_CUDA_CACHE=FOLDER|none, else XDG_CACHE_HOME or ~/.cache, one per GPU and library.
 * It is read whole and replaced whole, so starts at the same time do not disturb each other; what
 * is damaged or of another machine counts as not there, and is told.
 */
#include "cuda/matmul.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>

#define FORMAT "gradcc products 2"
#define COLUMNS                                                                                    \
    "# in out a' b' tf32 bias rows epilogue apart m n k lda ldb ldc batch steps alignments "       \
    "microseconds algorithm"

enum { LINE_MOST = 640, FILE_MOST = 4 << 20 };

static const char *const type_names[] = { "fp32", "fp64", "int32", "bf16", "fp16" };

/* ---- a list of choices ----------------------------------------------------------------------- */

const RtChoice *rt_choices_find(const RtChoices *all, const RtProduct *key)
{
    for (int i = 0; i < all->n; i++)
        if (memcmp(&all->at[i].key, key, sizeof *key) == 0)
            return &all->at[i];
    return NULL;
}

void rt_choices_add(RtChoices *to, const RtChoice *choice)
{
    const RtChoice *old = rt_choices_find(to, &choice->key);
    if (!old && to->n == to->cap) {
        const int cap = to->cap ? 2 * to->cap : 16;
        RtChoice *more = (RtChoice *)rt_alloc((size_t)cap * sizeof *more, "choices of products");
        if (to->n > 0)
            memcpy(more, to->at, (size_t)to->n * sizeof *more);
        rt_free(to->at);
        to->at = more;
        to->cap = cap;
    }
    to->at[old ? old - to->at : to->n++] = *choice;
}

void rt_choices_free(RtChoices *all)
{
    rt_free(all->at);
    *all = (RtChoices){ NULL, 0, 0 };
}

/* ---- as text --------------------------------------------------------------------------------- */

static int line_write(char *to, const RtChoice *x)
{
    const RtProduct *q = &x->key;
    const unsigned char *algo = (const unsigned char *)&x->algo;
    int n = snprintf(to, LINE_MOST,
                     "%s %s %d %d %d %d %d %d %d %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64
                     " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64
                     " %d %d %d %d %d %.3f ",
                     type_names[q->in], type_names[q->out], q->ta, q->tb, q->tf32, q->bias, x->rows,
                     q->epilogue, x->apart, q->m, q->n, q->k, q->lda, q->ldb, q->ldc, q->batch,
                     q->step_a, q->step_b, q->step_c, q->align_a, q->align_b, q->align_c,
                     q->align_bias, q->align_x, 1e6 * (double)x->seconds);
    for (size_t i = 0; i < sizeof x->algo; i++)
        n += snprintf(to + n, (size_t)(LINE_MOST - n), "%02x", algo[i]);
    to[n++] = '\n';
    return n;
}

char *rt_choices_text(const RtChoices *all, const char *machine, const char *before)
{
    const size_t head = strlen(before) + strlen(machine) + 256;
    char *text = (char *)rt_alloc(head + (size_t)all->n * LINE_MOST, "choices of products");
    char *const products = text + sprintf(text, "%s", before);
    char *to = products + sprintf(products, "%s\n%s\n%s\n", FORMAT, machine, COLUMNS);
    for (int i = 0; i < all->n; i++)
        to += line_write(to, &all->at[i]);
    *to = 0;
    sprintf(to, "end %016" PRIx64 "\n", rt_hash_text(products));
    return text;
}

static bool type_parse(const char *name, int32_t *type)
{
    for (*type = 0; *type < 5; ++*type)
        if (strcmp(name, type_names[*type]) == 0)
            return true;
    return false;
}

static bool bytes_parse(const char *hex, unsigned char *to, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned value;
        if (sscanf(hex + 2 * i, "%2x", &value) != 1)
            return false;
        to[i] = (unsigned char)value;
    }
    return hex[2 * n] == 0;
}

static bool line_parse(const char *line, RtChoice *x)
{
    RtProduct *q = &x->key;
    char in[8], out[8], hex[2 * sizeof x->algo + 2];
    int rows, apart;
    float microseconds;
    memset(x, 0, sizeof *x);
    const int fields = sscanf(
        line,
        "%7s %7s %d %d %d %d %d %d %d %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64
        " %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %d %d %d %d %d %f %129s",
        in, out, &q->ta, &q->tb, &q->tf32, &q->bias, &rows, &q->epilogue, &apart, &q->m, &q->n,
        &q->k, &q->lda, &q->ldb, &q->ldc, &q->batch, &q->step_a, &q->step_b, &q->step_c,
        &q->align_a, &q->align_b, &q->align_c, &q->align_bias, &q->align_x, &microseconds, hex);
    x->rows = fields > 6 && rows;
    x->apart = fields > 8 && apart;
    x->seconds = fields > 24 ? 1e-6f * microseconds : 0;
    return fields == 26 && type_parse(in, &q->in) && type_parse(out, &q->out)
           && strlen(hex) == 2 * sizeof x->algo
           && bytes_parse(hex, (unsigned char *)&x->algo, sizeof x->algo);
}

/* The text before its last line is what that line's hash is of. */
static bool is_whole(char *text)
{
    char *end = strstr(text, "\nend ");
    uint64_t hash;
    if (!end || sscanf(end, "\nend %16" SCNx64, &hash) != 1 || strcmp(end + 21, "\n") != 0)
        return false;
    end[1] = 0;
    return rt_hash_text(text) == hash;
}

static const char *text_parse(RtChoices *to, char *text, const char *machine)
{
    RtChoice choice;
    if (strncmp(text, FORMAT "\n", sizeof FORMAT) != 0)
        return "of another format";
    if (!is_whole(text))
        return "damaged";
    char *line = text + sizeof FORMAT;
    if (strncmp(line, machine, strlen(machine)) != 0 || line[strlen(machine)] != '\n')
        return "of another GPU or library";
    line = strchr(strchr(line, '\n') + 1, '\n') + 1;
    for (char *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        *end = 0;
        if (!line_parse(line, &choice))
            return "damaged";
        rt_choices_add(to, &choice);
    }
    return NULL;
}

const char *rt_choices_parse(RtChoices *to, const char *text, const char *machine)
{
    RtChoices found = { NULL, 0, 0 };
    char *copy = rt_printf("%s", text);
    const char *problem = text_parse(&found, copy, machine);
    for (int i = 0; i < found.n && !problem; i++)
        rt_choices_add(to, &found.at[i]);
    rt_choices_free(&found);
    rt_free(copy);
    return problem;
}

/* ---- on disk --------------------------------------------------------------------------------- */

/* The folder, made if need be; NULL: there is none. */
static char *folder_path(void)
{
    const char *wish = rt_environment("RT_CUDA_CACHE"), *cache = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    if (wish)
        return strcmp(wish, "none") == 0 ? NULL : rt_printf("%s", wish);
    if (cache && *cache)
        return rt_printf("%s/gradcc", cache);
    return home && *home ? rt_printf("%s/.cache/gradcc", home) : NULL;
}

static void folder_make(char *path)
{
    for (char *at = path + 1; *at; at++)
        if (*at == '/') {
            *at = 0;
            (void)rt_io.mkdir(path, 0777);
            *at = '/';
        }
    (void)rt_io.mkdir(path, 0777);
}

char *rt_choices_path(const char *machine)
{
    char *folder = folder_path();
    if (!folder)
        return NULL;
    char *path = rt_printf("%s/products %s", folder, machine);
    for (char *at = path + strlen(folder) + 1; *at; at++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.", *at))
            *at = '-';
    rt_free(folder);
    return path;
}

void rt_choices_load(RtChoices *to, const char *path, const char *machine)
{
    struct stat of;
    if (stat(path, &of) || !S_ISREG(of.st_mode) || of.st_size > FILE_MOST)
        return;
    char *text = (char *)rt_alloc((size_t)of.st_size + 1, "choices of products");
    const int fd = rt_open(path, O_RDONLY, 0);
    size_t n = 0;
    ssize_t got = 0;
    while (fd >= 0 && n < (size_t)of.st_size
           && (got = rt_read_some(fd, text + n, (size_t)of.st_size - n)) > 0)
        n += (size_t)got;
    const int error = errno;
    if (fd >= 0)
        (void)rt_io.close(fd);
    const char *problem = fd < 0 || got < 0 ? strerror(error) : rt_choices_parse(to, text, machine);
    if (problem)
        rt_warn("%s: %s; products are timed again", path, problem);
    rt_free(text);
}

void rt_choices_save(const RtChoices *all, const char *path, const char *machine)
{
    RtChoices merged = { NULL, 0, 0 };
    rt_choices_load(&merged, path, machine);
    for (int i = 0; i < all->n; i++)
        rt_choices_add(&merged, &all->at[i]);
    char *text = rt_choices_text(&merged, machine, "");
    char *folder = rt_printf("%.*s", (int)(strrchr(path, '/') - path), path);
    folder_make(folder);
    if (rt_write_atomic(path, text, strlen(text)))
        rt_warn("%s: %s; products will be timed at the next start again", path, strerror(errno));
    rt_free(folder);
    rt_free(text);
    rt_choices_free(&merged);
}
