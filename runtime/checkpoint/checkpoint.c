/* checkpoint.c -- saving a checkpoint so that a run is never lost.
 *
 * In: parameters, optimizer state, their average, counters. Out: DIR/step-00001000/ with
 * model.safetensors, optimizer.safetensors, ema.safetensors and manifest.json. The one idea: a
 * checkpoint is written under another name, synced, and renamed when it is complete, so a directory
 * named step-N is whole whenever the program or the machine stops. A failure is a warning: training
 * goes on.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "checkpoint/checkpoint.h"

/* ---- saving ---------------------------------------------------------------------------------- */

static int write_tensors(const char *path, const CkList *list, const char *metadata, CkFile *file)
{
    const int fd = rt_open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd < 0)
        return -1;
    return rt_file_finish(fd, st_write(fd, list, metadata, &file->bytes, file->hash));
}

static int write_text(const char *path, const CkText *text)
{
    const int fd = rt_open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd < 0)
        return -1;
    return rt_file_finish(fd, rt_write_all(fd, text->at, text->len));
}

void ck_metadata(CkText *t, const RtModel *m, const RtCheckpoint *c)
{
    ck_add(t, "{\"format\":\"gradcc\",\"model\":");
    ck_add_string(t, m->name);
    ck_add(t,
           ",\"step\":\"%lld\",\"applied\":\"%lld\",\"skipped\":\"%lld\",\"samples\":\"%lld\","
           "\"seed\":\"%llu\",\"data_hash\":\"%016llx\"}",
           (long long)c->step, (long long)c->applied, (long long)c->skipped, (long long)c->samples,
           (unsigned long long)c->seed, (unsigned long long)c->data_hash);
}

typedef struct {
    const char *dir;
    const RtModel *m;
    const RtCheckpoint *c;
    CkList params, state, average;
    CkText metadata, manifest;
    const char *at; /* what failed, for the message */
    bool named;     /* the checkpoint has its name */
} Save;

/* The files of the temporary directory; 0, or -1 with errno and s->at. */
static int save_files(Save *s, const char *tmp)
{
    CkManifest manifest = { .c = *s->c };
    const CkList *lists[] = { &s->params, &s->state, &s->average };
    const char *const names[] = { CK_MODEL_FILE, CK_STATE_FILE, CK_AVERAGE_FILE };
    for (int i = 0; i < 3; i++) {
        if (lists[i]->n == 0)
            continue;
        CkFile *file = &manifest.file[manifest.n_files++];
        snprintf(file->name, sizeof file->name, "%s", names[i]);
        s->at = names[i];
        if (write_tensors(ck_path("%s/%s", tmp, names[i]).text, lists[i], s->metadata.at, file))
            return -1;
    }
    s->at = CK_MANIFEST_FILE;
    ck_reserve(&s->manifest, ck_lengths.manifest);
    if (!manifest_text(&s->manifest, s->m, &s->params, &manifest)) {
        errno = ENOMEM;
        return -1;
    }
    if (write_text(ck_path("%s/%s", tmp, CK_MANIFEST_FILE).text, &s->manifest))
        return -1;
    s->at = "the directory";
    return rt_fsync_directory(tmp);
}

/* Gives the complete temporary directory its name. */
static int save_publish(Save *s, const char *tmp, const char *final)
{
    const CkPath old = ck_path("%s.replaced", final);
    s->at = "renaming the directory";
    if (access(final, F_OK) == 0) {
        (void)ck_remove_directory(old.text);
        if (rt_io.rename(final, old.text))
            return -1;
    }
    if (rt_io.rename(tmp, final)) {
        const int error = errno;
        if (access(old.text, F_OK) == 0)
            (void)rt_io.rename(old.text, final);
        errno = error;
        return -1;
    }
    s->named = true;
    if (rt_fsync_directory(s->dir))
        return -1;
    (void)ck_remove_directory(old.text);
    return 0;
}

/* Checkpoints of this step and before it, beyond the newest `keep`, go. */
static void save_retain(const char *dir, int64_t step, int64_t keep)
{
    const CkFoundList list = ck_found_list(dir);
    int64_t kept = 0;
    if (list.n < 0)
        rt_warn("%s: old checkpoints are not removed: %s", dir, strerror(errno));
    for (int i = 0; i < list.n && keep > 0; i++) {
        if (list.at[i].step > step || (!list.at[i].replaced && kept++ < keep))
            continue;
        const CkPath path = ck_path("%s/%s", dir, list.at[i].name);
        const CkPath gone = ck_path("%s.deleting", path.text);
        if (rt_io.rename(path.text, gone.text) || ck_remove_directory(gone.text))
            rt_warn("%s: this old checkpoint cannot be removed: %s", path.text, strerror(errno));
    }
    rt_free(list.at);
}

static bool save_has_room(const char *dir, uint64_t bytes)
{
    struct statvfs fs;
    if (statvfs(dir, &fs) != 0)
        return true; /* writing will tell */
    const double room = (double)fs.f_bavail * (double)fs.f_frsize;
    if (room >= (double)bytes)
        return true;
    char need[RT_BYTES_TEXT], left[RT_BYTES_TEXT];
    rt_warn("%s: no checkpoint was saved: it takes %s, the disk has %s free; training goes on, "
            "and checkpoints that are there stay",
            dir, rt_bytes((double)bytes, need), rt_bytes(room, left));
    return false;
}

static int save_run(Save *s)
{
    const CkPath final = ck_path("%s/step-%08lld", s->dir, (long long)s->c->step);
    const CkPath tmp = ck_path("%s.tmp-%ld", final.text, (long)getpid());
    s->at = "making the directory";
    (void)ck_remove_directory(tmp.text);
    int failed = rt_io.mkdir(tmp.text, 0777);
    if (!failed)
        failed = save_files(s, tmp.text) || save_publish(s, tmp.text, final.text) ? -1 : 0;
    if (failed && s->named) {
        rt_warn("%s: the checkpoint was saved, but a power cut may lose it: %s: %s; training goes "
                "on",
                final.text, s->dir, strerror(errno));
    } else if (failed) {
        const int error = errno;
        (void)ck_remove_directory(tmp.text);
        rt_warn("%s: no checkpoint was saved: %s: %s; training goes on, the last checkpoint is "
                "intact",
                final.text, s->at, strerror(error));
    }
    return failed;
}

int rt_checkpoint_save(const char *dir, const RtModel *m, const void *p, const RtStateTensor *state,
                       int n_state, const RtCheckpoint *c, int64_t keep)
{
    Save s = { .dir = dir, .m = m, .c = c };
    int failed = -1;
    if (ck_room_open()) {
        ck_reserve(&s.metadata, ck_lengths.metadata);
        ck_metadata(&s.metadata, m, c);
    } else {
        s.metadata.failed = true;
    }
    if (rt_io.mkdir(dir, 0777) && errno != EEXIST)
        rt_warn("%s: no checkpoint was saved: the directory cannot be made: %s; training goes on",
                dir, strerror(errno));
    else if (s.metadata.failed || !ck_list_params(&s.params, m, (void *)(uintptr_t)p)
             || !ck_list_state(&s.state, m, state, n_state)
             || !ck_list_average(&s.average, m, state, n_state))
        rt_warn("%s: no checkpoint was saved: out of memory; training goes on", dir);
    else if (save_has_room(dir, st_size(&s.params) + st_size(&s.state) + st_size(&s.average)))
        failed = save_run(&s);
    ck_free(s.manifest.at);
    ck_list_free(&s.average);
    ck_list_free(&s.state);
    ck_list_free(&s.params);
    ck_free(s.metadata.at);
    ck_room_close();
    if (!failed)
        save_retain(dir, c->step, keep);
    return failed;
}
