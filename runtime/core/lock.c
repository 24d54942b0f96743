/* lock.c -- one process at a time writes to a run directory.
 *
 * In: a run directory. Out: the lock, held until the process ends, or the end of the program with a
 * message that names who holds it. The one idea: the kernel holds the lock (flock), so it goes with
 * the process however that ends; what the file says is for messages only, and it stays behind.
 */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "run.h"

enum { OWNER = 128 }; /* bytes of "PID HOST" */

__attribute__((noreturn)) static void fail_taken(int fd, const char *dir)
{
    char text[OWNER + 1] = "", host[OWNER + 1] = "";
    long pid = 0;
    const ssize_t n = rt_read_some(fd, text, OWNER);
    text[n > 0 ? n : 0] = 0;
    const int found = sscanf(text, "%ld %128s", &pid, host);
    if (found == 2 && pid > 0)
        rt_fail(RT_EXIT_FAIL,
                "%s: process %ld on %s is training there\nhint: wait until it ends, or choose "
                "another --out DIR",
                dir, pid, host);
    rt_fail(RT_EXIT_FAIL,
            "%s: another process is training there\nhint: wait until it ends, or choose another "
            "--out DIR",
            dir);
}

/* For the message of whoever comes next; that it is not written is no failure. */
static void write_owner(int fd)
{
    char text[OWNER], host[64] = "";
    if (gethostname(host, sizeof host - 1) || !host[0])
        snprintf(host, sizeof host, "this-machine");
    const int n = snprintf(text, sizeof text, "%ld %s\n", (long)getpid(), host);
    if (ftruncate(fd, 0) == 0)
        (void)rt_write_all(fd, text, (size_t)n);
}

bool rt_lock_take(const char *dir, bool create)
{
    char *path = rt_printf("%s/run.lock", dir);
    const int fd = rt_open(path, O_RDWR | O_CLOEXEC | (create ? O_CREAT : 0), 0666);
    if (fd < 0 && !create) {
        rt_free(path);
        return false;
    }
    if (fd < 0)
        rt_fail(RT_EXIT_FAIL, "%s: cannot be opened: %s", path, strerror(errno));
    int failed = rt_io.lock(fd);
    while (failed && errno == EINTR)
        failed = rt_io.lock(fd);
    if (failed && errno == EWOULDBLOCK)
        fail_taken(fd, dir);
    if (failed)
        rt_warn("%s: cannot be locked: %s; see to it that no other process trains in %s", path,
                strerror(errno), dir);
    else
        write_owner(fd);
    rt_free(path);
    return true; /* the descriptor stays open: it is the lock */
}
