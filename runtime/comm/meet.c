/* meet.c -- ranks meet through a directory that their hosts share: rank 0 writes there where it is.
 *
 * In: a directory, the addresses of this host. Out: a file, rank0.JOB.RESTART, that is there while
 * rank 0 waits for the others; what it says. The one idea: a file may be left of a job that is
 * dead, so it proves nothing: it holds a token, which the store behind the address must know.
 *
 *     gradcc ranks 1
 *     JOB/RESTART@TOKEN
 *     PORT
 *     HOST, process N
 *     ADDRESS                  each that may be tried, the likeliest first
 *     .
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "comm/comm.h"

enum { ADDRESSES = 8, TEXT = 1024, LINES = 5 };

#define HEAD "gradcc ranks 1"

static struct {                  /* by this process */
    char path[4096], text[TEXT]; /* "" = nothing, or it is removed */
} written;

/* Of the job, without what a file system may mind. Allocated. */
static char *path_of(const RtLaunch *l)
{
    char name[3 * sizeof l->job];
    size_t at = 0;
    for (const char *c = l->job; *c; c++) {
        if (isalnum((unsigned char)*c) || *c == '-' || *c == '_')
            name[at++] = *c;
        else if (*c == '/')
            name[at++] = '.';
        else
            at += (size_t)sprintf(name + at, "%%%02x", (unsigned char)*c);
    }
    return rt_printf("%s/rank0.%.*s", l->dir, (int)at, name);
}

/* Opened each time: hosts that share a directory may believe that a file is not there until they
   look at the directory again. */
static void look_at_directory(const RtLaunch *l)
{
    const int fd = rt_open(l->dir, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0)
        rt_fail(RT_EXIT_USAGE,
                "--rendezvous %s: the directory cannot be opened: %s\nhint: one that the hosts of "
                "all ranks share, and that is there before they start",
                l->dir, strerror(errno));
    (void)rt_io.close(fd);
}

/* "" where there is none; 0, or -1 with errno. */
static int read_text(const char *path, char text[TEXT])
{
    const int fd = rt_open(path, O_RDONLY, 0);
    ssize_t n = -1;
    if (fd >= 0) {
        n = rt_read_some(fd, text, TEXT - 1);
        const int error = errno;
        (void)rt_io.close(fd);
        errno = error;
    }
    text[n > 0 ? n : 0] = 0;
    return n < 0 && errno != ENOENT && errno != ESTALE ? -1 : 0;
}

/* ---- rank 0 ---------------------------------------------------------------------------------- */

static const char *host_name(char host[64])
{
    host[63] = 0;
    return gethostname(host, 63) || !host[0] ? "unknown" : host;
}

void rt_meet_token(RtLaunch *l)
{
    char host[64];
    char *text = rt_printf("%s %ld %.9f", host_name(host), (long)getpid(), rt_now());
    const size_t at = strlen(l->job);
    snprintf(l->job + at, sizeof l->job - at, "@%012llx",
             (unsigned long long)rt_hash_text(text) >> 16);
    rt_free(text);
}

void rt_meet_write(const RtLaunch *l, const RtLaunch *served, const char *address)
{
    char host[64], own[ADDRESSES][64], *text = written.text, *path = path_of(l);
    look_at_directory(l);
    size_t at = (size_t)snprintf(text, TEXT, HEAD "\n%s\n%d\n%s, process %ld\n", served->job,
                                 served->port, host_name(host), (long)getpid());
    const int n = address ? 0 : rt_net_addresses(own, ADDRESSES);
    for (int i = 0; i < n; i++)
        at += (size_t)snprintf(text + at, TEXT - at, "%s\n", own[i]);
    if (address)
        at += (size_t)snprintf(text + at, TEXT - at, "%s\n", address);
    at += (size_t)snprintf(text + at, TEXT - at, ".\n");
    if (rt_write_atomic(path, text, at))
        rt_fail(RT_EXIT_USAGE,
                "--rendezvous %s: rank 0 cannot write %s: %s\nhint: a directory that rank 0 may "
                "write in",
                l->dir, path, strerror(errno));
    snprintf(written.path, sizeof written.path, "%s", path);
    rt_free(path);
}

/* Another job of that name may have come since: its file stays. */
void rt_meet_leave(void)
{
    char text[TEXT];
    if (!written.path[0])
        return;
    read_text(written.path, text);
    if (strcmp(text, written.text) == 0)
        (void)rt_io.unlink(written.path);
    written.path[0] = 0;
}

/* ---- the others ------------------------------------------------------------------------------ */

/* The lines of a text, in place; below LINES + 1 of them it is not one of rank 0. */
static int split(char *text, char *line[LINES + ADDRESSES])
{
    int n = 0;
    char *save = NULL;
    for (char *one = strtok_r(text, "\n", &save); one && n < LINES + ADDRESSES;
         one = strtok_r(NULL, "\n", &save))
        line[n++] = one;
    return n >= LINES + 1 && strcmp(line[0], HEAD) == 0 && strcmp(line[n - 1], ".") == 0 ? n : 0;
}

bool rt_meet_read(const RtLaunch *l, int k, RtMeeting *found)
{
    char text[TEXT], *line[LINES + ADDRESSES], *path = path_of(l);
    look_at_directory(l);
    if (written.path[0]) /* whatever has happened to the file */
        memcpy(text, written.text, sizeof text);
    else if (read_text(path, text))
        rt_fail(RT_EXIT_USAGE, "%s: cannot be read: %s", path, strerror(errno));
    rt_free(path);
    const int n = split(text, line);
    if (n == 0 || k >= n - LINES)
        return false;
    found->port = (int)strtol(line[2], NULL, 10);
    snprintf(found->job, sizeof found->job, "%s", line[1]);
    snprintf(found->process, sizeof found->process, "%s", line[3]);
    snprintf(found->host, sizeof found->host, "%s", line[LINES - 1 + k]);
    return true;
}
