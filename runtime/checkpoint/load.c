/* load.c -- matching the tensors of a checkpoint with those of the model, and reading them.
 *
 * In: files and the model's list. Out: filled buffers, or why not: a damaged file (the caller falls
 * back to an older checkpoint) or a checkpoint of another model (an error with all differences).
 */
#include <errno.h>
#include <stdarg.h>
#include <sys/stat.h>

#include "checkpoint/checkpoint.h"

enum { LISTED = 12 }; /* names shown of each kind of difference */

typedef enum { PARAMS, STATE, AVERAGE, PARTS } Part; /* of a checkpoint: a file each */
static const char *const part_name[] = { CK_MODEL_FILE, CK_STATE_FILE, CK_AVERAGE_FILE };

typedef struct {
    const char *dir;
    const RtModel *m;
    CkManifest manifest;
    CkList want[PARTS];
    CkPath path[PARTS];
    StFile file[PARTS];
    bool read[PARTS], matched[PARTS]; /* is it read; compared with the model? */
    int64_t converted;                /* tensors of another type */
} Load;

/* ---- differences ----------------------------------------------------------------------------- */

typedef struct { /* of one kind, as text */
    const char *title;
    char text[3 * 1024];
    size_t len;
    int shown, count;
} Differences;

__attribute__((format(printf, 2, 3))) static void difference_add(Differences *d, const char *fmt,
                                                                 ...)
{
    char line[RT_NAME_TEXT + 160];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    if (d->count++ >= LISTED || d->len + strlen(line) + 2 > sizeof d->text)
        return;
    d->shown++;
    d->len += (size_t)snprintf(d->text + d->len, sizeof d->text - d->len, "\n    %s", line);
}

static void shape_text(int rank, const ptrdiff_t *shape, const char *dtype, char text[128])
{
    size_t n = (size_t)snprintf(text, 128, "%s[", dtype);
    for (int i = 0; i < rank && n < 100; i++)
        n += (size_t)snprintf(text + n, 128 - n, "%s%td", i ? "," : "", shape[i]);
    snprintf(text + n, 128 - n, rank < 0 ? "more than 8 dims]" : "]");
}

/* Is one in fp32 and the other in bf16? Then it is converted. */
static bool other_type(const StTensor *have, const CkTensor *want)
{
    const bool narrow = strcmp(have->dtype, "BF16") == 0;
    return strcmp(have->dtype, narrow ? "BF16" : "F32") == 0
           && strcmp(want->dtype, narrow ? "F32" : "BF16") == 0;
}

static bool same_shape(const StTensor *have, const CkTensor *want)
{
    return have->rank == want->rank
           && (strcmp(have->dtype, want->dtype) == 0 || other_type(have, want))
           && memcmp(have->shape, want->shape, (size_t)want->rank * sizeof *want->shape) == 0;
}

static int have_by_name(const void *a, const void *b)
{
    return strcmp((*(StTensor *const *)a)->name, (*(StTensor *const *)b)->name);
}

/* Walks both lists in the order of their names; sets where each tensor goes. How many are
   converted. */
static int64_t match_file(StFile *f, const CkList *want, Differences kinds[3])
{
    int64_t converted = 0;
    StTensor **have = ck_alloc((size_t)f->n * sizeof *have + 1);
    if (!have)
        rt_fail(RT_EXIT_FAIL, "out of memory: the tensors of a checkpoint");
    for (ptrdiff_t i = 0; i < f->n; i++)
        have[i] = &f->tensor[i];
    qsort(have, (size_t)f->n, sizeof *have, have_by_name);
    for (ptrdiff_t i = 0, j = 0; i < f->n || j < want->n;) {
        int order = i == f->n ? 1 : -1;
        if (i < f->n && j < want->n)
            order = strcmp(have[i]->name, want->tensor[j].name);
        char is[128] = "", was[128] = "";
        if (order <= 0)
            shape_text(have[i]->rank, have[i]->shape, have[i]->dtype, was);
        if (order >= 0)
            shape_text(want->tensor[j].rank, want->tensor[j].shape, want->tensor[j].dtype, is);
        if (order > 0)
            difference_add(&kinds[0], "%s %s", want->tensor[j].name, is);
        else if (order < 0)
            difference_add(&kinds[1], "%s %s", have[i]->name, was);
        else if (!same_shape(have[i], &want->tensor[j]))
            difference_add(&kinds[2], "%s is %s, saved as %s", have[i]->name, is, was);
        else
            have[i]->to = want->tensor[j].at;
        if (order == 0 && other_type(have[i], &want->tensor[j])) {
            have[i]->as = want->tensor[j].dtype;
            converted++;
        }
        i += order <= 0;
        j += order >= 0;
    }
    ck_free(have);
    return converted;
}

/* "A: the checkpoint is of another model" and of which; its length */
static size_t other_model_text(const Load *l, CkProblem *problem)
{
    const CkManifest *has = &l->manifest;
    const size_t n = (size_t)snprintf(problem->text, sizeof problem->text,
                                      "%s: the checkpoint is of another model: ", l->dir);
    if (strcmp(has->model, l->m->name) == 0)
        return n
               + (size_t)snprintf(problem->text + n, sizeof problem->text - n,
                                  "of %s (%s) with other parameters", has->model, has->source);
    return n
           + (size_t)snprintf(problem->text + n, sizeof problem->text - n,
                              "of %s (%s), this program is %s (%s)", has->model, has->source,
                              l->m->name, l->m->source);
}

/* Every name, shape and type of all files at once; false: they differ, and the text says how. */
static bool match_all(Load *l, CkProblem *problem)
{
    Differences kinds[3] = { { .title = "the model has, the checkpoint has not" },
                             { .title = "the checkpoint has, the model has not" },
                             { .title = "changed" } };
    for (int i = 0; i < PARTS; i++)
        if (l->read[i] && l->matched[i])
            l->converted += match_file(&l->file[i], &l->want[i], kinds);
    size_t n = other_model_text(l, problem);
    bool good = true;
    for (int i = 0; i < 3; i++) {
        if (kinds[i].count == 0 || n >= sizeof problem->text)
            continue;
        good = false;
        n += (size_t)snprintf(problem->text + n, sizeof problem->text - n, "\n  %s (%d):%s%s",
                              kinds[i].title, kinds[i].count, kinds[i].text,
                              kinds[i].count > kinds[i].shown ? "\n    ..." : "");
    }
    return good;
}

/* ---- one checkpoint -------------------------------------------------------------------------- */

static bool read_file(Load *l, int i, CkProblem *problem)
{
    char hash[CK_HASH_TEXT];
    const CkFile *file = manifest_file(&l->manifest, part_name[i]);
    if (!st_read(&l->file[i], hash, problem))
        return false;
    return strcmp(hash, file->hash) == 0
           || ck_wrong(problem, "%s: damaged: its hash is %s, the manifest says %s",
                       l->file[i].path, hash, file->hash);
}

static bool open_file(Load *l, int i, CkProblem *problem)
{
    const char *name = part_name[i];
    const CkFile *file = manifest_file(&l->manifest, name);
    if (!file)
        return ck_wrong(problem, "%s: the manifest does not list %s", l->dir, name);
    l->file[i] = (StFile){ .fd = -1 };
    if (!st_open(&l->file[i], l->path[i].text, problem))
        return false;
    return l->file[i].bytes == file->bytes
           || ck_wrong(problem, "%s: has %llu bytes, the manifest says %llu", l->path[i].text,
                       (unsigned long long)l->file[i].bytes, (unsigned long long)file->bytes);
}

/* All files of one directory; false: damaged. A whole one of another model ends the program. */
static bool load_files(Load *l, CkProblem *problem)
{
    CkProblem differences;
    const CkPath manifest = ck_path("%s/%s", l->dir, CK_MANIFEST_FILE);
    bool good = manifest_read(manifest.text, &l->manifest, problem);
    if (good && !l->matched[STATE] && !manifest_file(&l->manifest, CK_STATE_FILE))
        l->read[STATE] = false;
    if (good && !manifest_file(&l->manifest, CK_AVERAGE_FILE))
        l->read[AVERAGE] = false;
    for (int i = 0; i < PARTS; i++)
        l->path[i] = ck_path("%s/%s", l->dir, part_name[i]);
    for (int i = 0; i < PARTS && good; i++)
        good = !l->read[i] || open_file(l, i, problem);
    const bool same = good && match_all(l, &differences);
    for (int i = 0; i < PARTS && good; i++)
        good = !l->read[i] || read_file(l, i, problem);
    for (int i = 0; i < PARTS; i++)
        if (l->read[i])
            st_close(&l->file[i]);
    if (good && !same)
        rt_fail(RT_EXIT_FAIL, "%s", differences.text);
    return good;
}

typedef struct {
    const RtModel *m;
    void *p; /* NULL: nothing is kept, the files are read for names, shapes and hashes */
    RtStateTensor *state;
    int n_state;
    int n_files; /* besides the manifest: 0, 1 parameters, 2 state and average too */
} Wanted;

static bool load_directory(const char *dir, const Wanted *w, RtCheckpoint *c, CkProblem *problem)
{
    Load l = { .dir = dir, .m = w->m };
    int states = 0, average = -1;
    for (int i = 0; i < w->n_state; i++)
        if (w->state[i].file)
            average = i;
        else
            states++;
    const bool instead = average >= 0 && w->state[average].at == w->p; /* of the parameters */
    for (int i = 0; i < PARTS; i++) {
        const bool kept = i == PARAMS ? true : i == STATE ? states > 0 : average >= 0;
        l.file[i].fd = -1;
        l.read[i] = w->p ? kept : w->n_files > (i == PARAMS ? 0 : 1);
        l.matched[i] = i != STATE || w->p;
    }
    if (!ck_list_params(&l.want[PARAMS], w->m, w->p)
        || !(instead ? ck_list_params : ck_list_flat)(&l.want[AVERAGE], w->m,
                                                      average < 0 ? NULL : w->state[average].at)
        || (w->p && !ck_list_state(&l.want[STATE], w->m, w->state, w->n_state)))
        rt_fail(RT_EXIT_FAIL, "out of memory: the list of tensors");
    const bool good = load_files(&l, problem);
    for (int i = 0; i < PARTS; i++)
        ck_list_free(&l.want[i]);
    if (good) {
        *c = l.manifest.c;
        c->converted = l.converted;
    } else {
        rt_free((void *)(uintptr_t)l.manifest.c.vocab);
        rt_free((void *)(uintptr_t)l.manifest.c.config);
        rt_free((void *)(uintptr_t)l.manifest.c.plans);
    }
    const bool trains = w->state && !instead;
    if (good && average >= 0 && !l.read[AVERAGE])
        w->state[average].at = NULL;
    if (good && trains && l.manifest.source_crc != w->m->source_crc)
        rt_warn("%s: saved by another version of the program: %s of %s had crc32 %08x, this is %s "
                "of %s with %08x",
                dir, l.manifest.model, l.manifest.source, l.manifest.source_crc, w->m->name,
                w->m->source, w->m->source_crc);
    return good;
}

/* ---- the newest that is whole ---------------------------------------------------------------- */

static bool is_checkpoint(const char *path)
{
    struct stat st;
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    return stat(ck_path("%s/%s", path, CK_MANIFEST_FILE).text, &st) == 0
           || (strncmp(name, "step-", 5) == 0 && stat(path, &st) == 0);
}

static const char *load_newest(const char *path, const Wanted *w, RtCheckpoint *c)
{
    CkProblem problem;
    if (is_checkpoint(path)) {
        if (!load_directory(path, w, c, &problem))
            rt_fail(RT_EXIT_FAIL, "%s", problem.text);
        return rt_printf("%s", path);
    }
    const CkFoundList list = ck_found_list(path);
    if (list.n < 0 && !ck_missing(errno))
        rt_fail(RT_EXIT_FAIL, "%s: its checkpoints cannot be listed: %s", path, strerror(errno));
    for (int i = 0; i < list.n; i++) {
        const CkPath dir = ck_path("%s/%s", path, list.at[i].name);
        if (load_directory(dir.text, w, c, &problem)) {
            rt_free(list.at);
            return rt_printf("%s", dir.text);
        }
        rt_warn("the checkpoint %s is damaged:\n  %s\n  %s", dir.text, problem.text,
                i + 1 < list.n ? "going back to the one before it" : "there is none before it");
    }
    rt_free(list.at);
    if (list.n > 0)
        rt_fail(RT_EXIT_FAIL, "%s: none of its %d checkpoints can be used", path, list.n);
    return NULL;
}

const char *rt_checkpoint_load(const char *path, const RtModel *m, void *p, RtStateTensor *state,
                               int n_state, RtCheckpoint *c)
{
    const Wanted w = { m, p, state, state ? n_state : 0, 0 };
    if (!ck_room_open())
        rt_fail(RT_EXIT_FAIL, "out of memory: the lists of a checkpoint");
    const char *dir = load_newest(path, &w, c);
    ck_room_close();
    return dir;
}

const char *rt_checkpoint_find(const char *path, const RtModel *m, int n_files, RtCheckpoint *c)
{
    const Wanted w = { .m = m, .n_files = n_files };
    const double before = rt_memory_held();
    rt_memory_lap();
    const char *dir = load_newest(path, &w, c);
    ck_room_expect((size_t)(rt_memory_lap() - before));
    return dir;
}
