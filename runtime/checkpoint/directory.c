/* directory.c -- the names in a run directory, and the list of what a model saves.
 *
 * In: a run directory. Out: its complete checkpoints, newest first. "Newest" is derived from the
 * names; there is no pointer that could be wrong.
 *
 *   step-N            a complete checkpoint (it has a manifest)
 *   step-N.tmp-PID    being written              removed at the next start
 *   step-N.replaced   the one before a new step-N; counts while that is missing or damaged
 *   step-N.deleting   being removed              removed at the next start
 */
#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <unistd.h>

#include "checkpoint/checkpoint.h"

CkPath ck_path(const char *fmt, ...)
{
    CkPath path;
    va_list args;
    va_start(args, fmt);
    const int n = vsnprintf(path.text, sizeof path.text, fmt, args);
    va_end(args);
    if (n < 0 || n >= (int)sizeof path.text)
        rt_fail(RT_EXIT_FAIL, "%.60s...: the path is longer than %d bytes", path.text, CK_PATH);
    return path;
}

/* ---- what is in a run directory -------------------------------------------------------------- */

/* "step-00001000" or "step-00001000.replaced" */
static bool found_parse(const char *name, CkFound *found)
{
    char *end;
    if (strncmp(name, "step-", 5) != 0 || strlen(name) >= sizeof found->name || name[5] < '0'
        || name[5] > '9')
        return false;
    found->step = strtoll(name + 5, &end, 10);
    found->replaced = strcmp(end, ".replaced") == 0;
    memcpy(found->name, name, strlen(name) + 1);
    return *end == 0 || found->replaced;
}

static int newest_first(const void *a, const void *b)
{
    const CkFound *x = a, *y = b;
    return x->step != y->step ? (x->step > y->step ? -1 : 1) : (int)x->replaced - (int)y->replaced;
}

bool ck_missing(int error) { return error == ENOENT || error == ENOTDIR; }

/* false: out of memory. */
static bool found_add(CkFoundList *list, int *cap, const CkFound *found)
{
    if (list->n == *cap) {
        *cap = *cap ? 2 * *cap : 16;
        CkFound *more = rt_mem.alloc((size_t)*cap * sizeof *more);
        if (!more)
            return false;
        if (list->n)
            memcpy(more, list->at, (size_t)list->n * sizeof *more);
        rt_free(list->at);
        list->at = more;
    }
    list->at[list->n++] = *found;
    return true;
}

/* Complete checkpoints, newest first; all of them, or none and n < 0 with errno. A directory that
   cannot be looked into counts, so that nobody takes the run for a new one. */
CkFoundList ck_found_list(const char *dir)
{
    CkFoundList list = { 0 };
    DIR *d = opendir(dir);
    if (!d)
        return (CkFoundList){ .n = -1 };
    int cap = 0, error = 0;
    while (!error) {
        errno = 0;
        const struct dirent *e = readdir(d);
        CkFound found;
        if (!e) {
            error = errno;
            break;
        }
        if (!found_parse(e->d_name, &found)
            || (access(ck_path("%s/%s/%s", dir, e->d_name, CK_MANIFEST_FILE).text, F_OK) != 0
                && ck_missing(errno)))
            continue;
        if (!found_add(&list, &cap, &found))
            error = ENOMEM;
    }
    closedir(d);
    if (error) {
        rt_free(list.at);
        errno = error;
        return (CkFoundList){ .n = -1 };
    }
    if (list.n > 1)
        qsort(list.at, (size_t)list.n, sizeof *list.at, newest_first);
    return list;
}

bool rt_checkpoint_exists(const char *dir)
{
    const CkFoundList list = ck_found_list(dir);
    if (list.n < 0 && !ck_missing(errno))
        rt_fail(RT_EXIT_FAIL, "%s: its checkpoints cannot be listed: %s", dir, strerror(errno));
    rt_free(list.at);
    return list.n > 0;
}

/* A directory of ours with its files; 0, or -1 with errno. */
int ck_remove_directory(const char *path)
{
    DIR *d = opendir(path);
    if (!d)
        return -1;
    int failed = 0;
    for (struct dirent *e = readdir(d); e; e = readdir(d))
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            failed |= rt_io.unlink(ck_path("%s/%s", path, e->d_name).text);
    closedir(d);
    return failed || rmdir(path) ? -1 : 0;
}

void rt_checkpoint_clean(const char *dir, const char *loaded)
{
    const char *slash = loaded ? strrchr(loaded, '/') : NULL;
    const char *own = slash ? slash + 1 : loaded;
    DIR *d = opendir(dir);
    if (!d)
        return;
    for (struct dirent *e = readdir(d); e; e = readdir(d)) {
        const char *dot = strncmp(e->d_name, "step-", 5) == 0 ? strchr(e->d_name, '.') : NULL;
        const CkPath path = ck_path("%s/%s", dir, e->d_name);
        const CkPath whole = ck_path("%s/%.*s/%s", dir, dot ? (int)(dot - e->d_name) : 0, e->d_name,
                                     CK_MANIFEST_FILE);
        const bool replaced = dot && strcmp(dot, ".replaced") == 0;
        const bool deleting = dot && strstr(dot, ".deleting");
        if (!dot || !(strncmp(dot, ".tmp-", 5) == 0 || deleting || replaced)
            || (replaced && access(whole.text, F_OK) != 0) || (own && strcmp(e->d_name, own) == 0))
            continue;
        if (ck_remove_directory(path.text) == 0)
            fprintf(stderr, "note: removed %s, left over from an interrupted run\n", path.text);
        else
            rt_warn("%s: left over from an interrupted run, cannot be removed: %s", path.text,
                    strerror(errno));
    }
    closedir(d);
}

/* ---- lists of tensors ------------------------------------------------------------------------ */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const CkTensor *)a)->name, ((const CkTensor *)b)->name);
}

/* t is the parameter that begins with element i; p: of them all, or NULL. */
static void place_param(CkTensor *t, const RtModel *m, void *p, ptrdiff_t i)
{
    RtType type;
    if (p)
        t->at = rt_param_place(m, p, i, &type);
    if (i < rt_params_wide(m))
        return;
    t->dtype = "BF16";
    t->bytes = t->bytes / sizeof(float) * sizeof(uint16_t);
}

/* All repetitions of all parameters in a flat buffer, named PREFIXpath; false: no memory. */
static bool list_add(CkList *list, const RtModel *m, const char *prefix, RtStateTensor state)
{
    const size_t real = rt_real_bytes(m);
    for (int i = 0; i < m->n_params; i++)
        for (ptrdiff_t r = 0; r < rt_param_repeats(&m->params[i]); r++) {
            const RtParam *q = &m->params[i];
            char name[RT_NAME_TEXT];
            CkTensor *t = &list->tensor[list->n];
            rt_param_name(q, r, name);
            *t = (CkTensor){ .rank = q->rank, .dtype = m->real == RT_F64 ? "F64" : "F32" };
            memcpy(t->shape, q->shape, sizeof t->shape);
            if (state.shape && (t->rank = state.shape(m, q, t->shape)) < 0)
                continue;
            t->bytes = real;
            for (int k = 0; k < t->rank; k++)
                t->bytes *= (size_t)t->shape[k];
            t->name = ck_alloc(strlen(prefix) + strlen(name) + 1);
            if (!t->name)
                return false;
            list->n++;
            memcpy(t->name, prefix, strlen(prefix));
            memcpy(t->name + strlen(prefix), name, strlen(name) + 1);
            const ptrdiff_t at = state.shape ? rt_state_at(m, state.shape, i, r)
                                             : rt_param_at(q, r);
            t->at = state.at ? (char *)state.at + (size_t)at * real : NULL;
        }
    return true;
}

void ck_list_free(CkList *list)
{
    for (ptrdiff_t i = 0; i < list->n; i++)
        ck_free(list->tensor[i].name);
    ck_free(list->tensor);
    *list = (CkList){ 0 };
}

/* An empty list with room for n times the parameters; false: out of memory. */
static bool list_begin(CkList *list, const RtModel *m, int n)
{
    ptrdiff_t one = 0;
    for (int i = 0; i < m->n_params; i++)
        one += rt_param_repeats(&m->params[i]);
    *list = (CkList){ .n = 0 };
    list->tensor = ck_alloc((size_t)(one * n) * sizeof *list->tensor + 1);
    return list->tensor;
}

static bool list_end(CkList *list, bool good)
{
    if (good)
        qsort(list->tensor, (size_t)list->n, sizeof *list->tensor, by_name);
    else
        ck_list_free(list);
    return good;
}

bool ck_list_flat(CkList *list, const RtModel *m, void *at)
{
    return list_end(list,
                    list_begin(list, m, 1) && list_add(list, m, "", (RtStateTensor){ .at = at }));
}

bool ck_list_params(CkList *list, const RtModel *m, void *p)
{
    bool good = list_begin(list, m, 1) && list_add(list, m, "", (RtStateTensor){ .at = p });
    ptrdiff_t k = 0;
    for (int i = 0; good && i < m->n_params; i++)
        for (ptrdiff_t r = 0; r < rt_param_repeats(&m->params[i]); r++)
            place_param(&list->tensor[k++], m, p, rt_param_at(&m->params[i], r));
    return list_end(list, good);
}

bool ck_list_state(CkList *list, const RtModel *m, const RtStateTensor *state, int n_state)
{
    bool good = list_begin(list, m, n_state);
    for (int i = 0; i < n_state; i++)
        if (!state[i].file)
            good = good && list_add(list, m, ck_path("%s.", state[i].name).text, state[i]);
    return list_end(list, good);
}

bool ck_list_average(CkList *list, const RtModel *m, const RtStateTensor *state, int n_state)
{
    for (int i = 0; i < n_state; i++)
        if (state[i].file)
            return ck_list_flat(list, m, state[i].at);
    return true;
}
