/* base.c -- memory, files, messages and time of the runtime.
 *
 * In: sizes, paths, texts. Out: memory that is never NULL, files that are whole or absent, messages
 * that name the cause. The one idea: every allocation and every file operation of the runtime goes
 * through rt_mem and rt_io, so that one variable can make any of them fail:
 *
 *     RT_FAULT=alloc:12           the 12th allocation fails          alloc:12+  and all later ones
 *     RT_FAULT=io:write:3:ENOSPC  the 3rd write fails with ENOSPC    io:write:3+:ENOSPC  likewise
 *     RT_FAULT=io:any:7:EIO       the 7th operation of any kind
 *     RT_FAULT=io:short           reads and writes move at most half of what was asked for
 *     RT_FAULT=io:eintr           every second open, read, write and fsync is interrupted first
 *     RT_FAULT=io:kill:9          SIGKILL just before the 9th operation
 *     RT_FAULT=free:4096          so many bytes of memory are said to be free
 *
 * Several faults are separated by commas. /proc and /sys are read outside the table.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

#include "run.h"

/* ---- plain memory and files ----------------------------------------------------------------- */

enum { HUGE_PAGE = 2 << 20 };

/* What lies in front of what a caller gets. */
typedef struct {
    void *raw;
    size_t bytes; /* that were asked for */
} Block;

static struct {
    size_t held, most, lap; /* bytes that were asked for and not freed; the most, of a lap too */
} memory;

static void memory_count(size_t more, size_t less)
{
#pragma omp critical(rt_memory)
    {
        memory.held += more - less;
        memory.most = memory.held > memory.most ? memory.held : memory.most;
        memory.lap = memory.held > memory.lap ? memory.held : memory.lap;
    }
}

static void *plain_alloc(size_t bytes)
{
    const size_t extra = RT_ALIGN + sizeof(Block);
    if (bytes > SIZE_MAX - extra)
        return NULL;
    char *raw = calloc(1, bytes + extra);
    if (!raw)
        return NULL;
    const uintptr_t at = ((uintptr_t)raw + extra - 1) & ~(uintptr_t)(RT_ALIGN - 1);
    char *const base = raw + (at - (uintptr_t)raw);
    const Block block = { raw, bytes };
    memcpy(base - sizeof block, &block, sizeof block);
    memory_count(bytes, 0);
#ifdef MADV_HUGEPAGE
    const uintptr_t from = (at + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1);
    const uintptr_t to = (at + bytes) & ~(uintptr_t)(HUGE_PAGE - 1);
    if (bytes >= 4 * (size_t)HUGE_PAGE && from < to) /* fewer page faults; may be refused */
        (void)madvise(base + (from - at), to - from, MADV_HUGEPAGE);
#endif
    return base;
}

static void plain_free(void *at)
{
    if (!at)
        return;
    Block block;
    memcpy(&block, (char *)at - sizeof block, sizeof block);
    memory_count(0, block.bytes);
    free(block.raw);
}

static int plain_open(const char *path, int flags, int mode) { return open(path, flags, mode); }
static ssize_t plain_read(int fd, void *to, size_t n) { return read(fd, to, n); }
static ssize_t plain_write(int fd, const void *from, size_t n) { return write(fd, from, n); }
static int plain_fsync(int fd) { return fsync(fd); }
static int plain_close(int fd) { return close(fd); }
static int plain_rename(const char *from, const char *to) { return rename(from, to); }
static int plain_unlink(const char *path) { return unlink(path); }
static int plain_mkdir(const char *path, int mode) { return mkdir(path, (mode_t)mode); }

static int plain_lock(int fd) { return flock(fd, LOCK_EX | LOCK_NB); }

RtMem rt_mem = { plain_alloc, plain_free };
RtIo rt_io = { plain_open,   plain_read,   plain_write, plain_fsync, plain_close,
               plain_rename, plain_unlink, plain_mkdir, plain_lock };

/* ---- faults on demand ----------------------------------------------------------------------- */

typedef enum {
    CALL_OPEN,
    CALL_READ,
    CALL_WRITE,
    CALL_FSYNC,
    CALL_CLOSE,
    CALL_RENAME,
    CALL_UNLINK,
    CALL_MKDIR,
    CALL_LOCK,
    CALL_ANY,
    CALL_COUNT
} Call;

static const char *const call_names[CALL_COUNT] = { "open",   "read",   "write", "fsync", "close",
                                                    "rename", "unlink", "mkdir", "lock",  "any" };

static struct {
    long alloc_at, allocs; /* allocation that fails; made so far */
    bool alloc_on;         /* and all later ones */
    long at[CALL_COUNT], calls[CALL_COUNT];
    bool on[CALL_COUNT];
    int error[CALL_COUNT];
    long kill_at;
    long room;           /* bytes said to be free; 0 = what is */
    bool cut, interrupt; /* io:short, io:eintr */
    long interrupts;
} fault;

static bool fault_due(long at, bool on, long now) { return at > 0 && (on ? now >= at : now == at); }

static void *fault_alloc(size_t bytes)
{
    long now;
#pragma omp atomic capture
    now = ++fault.allocs;
    if (fault_due(fault.alloc_at, fault.alloc_on, now))
        return NULL;
    return plain_alloc(bytes);
}

static bool fault_io(Call call) /* true: fails, with errno */
{
    const long any = ++fault.calls[CALL_ANY], now = ++fault.calls[call];
    if (fault.kill_at > 0 && any == fault.kill_at)
        (void)raise(SIGKILL);
    if (fault_due(fault.at[call], fault.on[call], now)) {
        errno = fault.error[call];
        return true;
    }
    if (fault_due(fault.at[CALL_ANY], fault.on[CALL_ANY], any)) {
        errno = fault.error[CALL_ANY];
        return true;
    }
    if (fault.interrupt && call <= CALL_FSYNC && ++fault.interrupts % 2 == 1) {
        errno = EINTR;
        return true;
    }
    return false;
}

static size_t fault_cut(size_t n) { return fault.cut && n > 1 ? n / 2 : n; }

static int fault_open(const char *path, int flags, int mode)
{
    return fault_io(CALL_OPEN) ? -1 : plain_open(path, flags, mode);
}
static ssize_t fault_read(int fd, void *to, size_t n)
{
    return fault_io(CALL_READ) ? -1 : plain_read(fd, to, fault_cut(n));
}
static ssize_t fault_write(int fd, const void *from, size_t n)
{
    return fault_io(CALL_WRITE) ? -1 : plain_write(fd, from, fault_cut(n));
}
static int fault_fsync(int fd) { return fault_io(CALL_FSYNC) ? -1 : plain_fsync(fd); }
static int fault_close(int fd)
{
    if (!fault_io(CALL_CLOSE))
        return plain_close(fd);
    const int error = errno; /* the descriptor is gone, as in a real failure */
    (void)plain_close(fd);
    errno = error;
    return -1;
}
static int fault_rename(const char *from, const char *to)
{
    return fault_io(CALL_RENAME) ? -1 : plain_rename(from, to);
}
static int fault_unlink(const char *path)
{
    return fault_io(CALL_UNLINK) ? -1 : plain_unlink(path);
}
static int fault_mkdir(const char *path, int mode)
{
    return fault_io(CALL_MKDIR) ? -1 : plain_mkdir(path, mode);
}
static int fault_lock(int fd) { return fault_io(CALL_LOCK) ? -1 : plain_lock(fd); }

static const struct {
    const char *name;
    int error;
} fault_errors[] = {
    { "ENOSPC", ENOSPC }, { "EIO", EIO },       { "EINTR", EINTR },
    { "EACCES", EACCES }, { "ENOENT", ENOENT }, { "EDQUOT", EDQUOT },
    { "EROFS", EROFS },   { "EMFILE", EMFILE }, { "ENOLCK", ENOLCK },
};

static int fault_parse_error(const char *name)
{
    for (size_t i = 0; i < sizeof fault_errors / sizeof *fault_errors; i++)
        if (strcmp(name, fault_errors[i].name) == 0)
            return fault_errors[i].error;
    rt_fail(RT_EXIT_USAGE, "RT_FAULT: unknown error '%s'", name);
}

static long fault_parse_number(const char *text, bool *on)
{
    char *end;
    const long n = strtol(text, &end, 10);
    *on = *end == '+';
    if (n < 1 || (*on ? end[1] : *end))
        rt_fail(RT_EXIT_USAGE, "RT_FAULT: '%s' is no positive number", text);
    return n;
}

static void fault_parse_one(char *text)
{
    char *field[4] = { 0 }, *save = NULL;
    int n = 0;
    for (char *f = strtok_r(text, ":", &save); f && n < 4; f = strtok_r(NULL, ":", &save))
        field[n++] = f;
    bool on;
    if (n == 2 && strcmp(field[0], "alloc") == 0) {
        fault.alloc_at = fault_parse_number(field[1], &fault.alloc_on);
    } else if (n == 2 && strcmp(field[0], "free") == 0) {
        fault.room = fault_parse_number(field[1], &on);
    } else if (n == 2 && strcmp(field[0], "io") == 0 && strcmp(field[1], "short") == 0) {
        fault.cut = true;
    } else if (n == 2 && strcmp(field[0], "io") == 0 && strcmp(field[1], "eintr") == 0) {
        fault.interrupt = true;
    } else if (n == 3 && strcmp(field[0], "io") == 0 && strcmp(field[1], "kill") == 0) {
        fault.kill_at = fault_parse_number(field[2], &on);
    } else if (n == 4 && strcmp(field[0], "io") == 0) {
        int call = 0;
        while (call < CALL_COUNT && strcmp(field[1], call_names[call]) != 0)
            call++;
        if (call == CALL_COUNT)
            rt_fail(RT_EXIT_USAGE, "RT_FAULT: unknown operation '%s'", field[1]);
        fault.at[call] = fault_parse_number(field[2], &fault.on[call]);
        fault.error[call] = fault_parse_error(field[3]);
    } else {
        rt_fail(RT_EXIT_USAGE,
                "RT_FAULT: '%s' is none of alloc:N, io:CALL:N:ERRNO, io:short, "
                "io:eintr, io:kill:N, free:N",
                field[0] ? field[0] : "");
    }
}

void rt_base_init(void)
{
    memset(&fault, 0, sizeof fault);
    const char *text = getenv("RT_FAULT");
    if (!text || !*text)
        return;
    char copy[256], *save = NULL;
    if (snprintf(copy, sizeof copy, "%s", text) >= (int)sizeof copy)
        rt_fail(RT_EXIT_USAGE, "RT_FAULT is longer than %zu bytes", sizeof copy - 1);
    for (char *one = strtok_r(copy, ",", &save); one; one = strtok_r(NULL, ",", &save))
        fault_parse_one(one);
    rt_mem = (RtMem){ fault_alloc, plain_free };
    rt_io = (RtIo){ fault_open,   fault_read,   fault_write, fault_fsync, fault_close,
                    fault_rename, fault_unlink, fault_mkdir, fault_lock };
}

/* ---- messages and time ---------------------------------------------------------------------- */

void (*rt_before_message)(void) = NULL;
void (*rt_on_fail)(int exit_code, const char *text) = NULL;
void (*rt_on_warning)(const char *text) = NULL;

static const char *speaker; /* of several processes; NULL = the first, or the only one */

static void say(const char *kind, const char *text)
{
    if (rt_before_message)
        rt_before_message();
    fflush(stdout);
    fprintf(stderr, "%s%s%s%s: %s\n", speaker ? "[" : "", speaker ? speaker : "",
            speaker ? "] " : "", kind, text);
    fflush(stderr);
}

void rt_tell(const char *text) { say("error", text); }

void rt_speak_as(const char *name)
{
    speaker = name;
    if (!freopen("/dev/null", "w", stdout))
        rt_fail(RT_EXIT_FAIL, "/dev/null cannot be opened: %s", strerror(errno));
}

void rt_fail(int exit_code, const char *fmt, ...)
{
    char text[1 << 14];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (rt_on_fail)
        rt_on_fail(exit_code, text);
    else
        rt_tell(text);
    exit(exit_code);
}

void rt_warn(const char *fmt, ...)
{
    char text[1 << 12];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (!speaker)
        say("warning", text);
    if (rt_on_warning)
        rt_on_warning(text);
}

void rt_warn_as(const char *name, const char *text)
{
    const char *const own = speaker;
    speaker = name;
    say("warning", text);
    speaker = own;
}

/* Whoever reads the output must learn that it is not whole. A pipe that its reader has closed is no
   failure: `| head` wanted no more. */
int rt_end(int exit_code)
{
    const bool before = ferror(stdout);
    if (fflush(stdout) == 0 && !before)
        return exit_code;
    if (before) { /* the reason is gone: it is asked for again */
        (void)signal(SIGPIPE, SIG_IGN);
        clearerr(stdout);
        errno = 0;
        if (fputc('\n', stdout) != EOF)
            (void)fflush(stdout);
    }
    if (errno == EPIPE)
        return exit_code;
    rt_warn("standard output: not all of it could be written: %s",
            errno ? strerror(errno) : "a write failed");
    return exit_code ? exit_code : RT_EXIT_FAIL;
}

double rt_now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- memory --------------------------------------------------------------------------------- */

const char *rt_bytes(double bytes, char text[RT_BYTES_TEXT])
{
    static const char *const units[] = { "bytes", "KiB", "MiB", "GiB", "TiB" };
    int unit = 0;
    while (bytes >= 1024 && unit < 4) {
        bytes /= 1024;
        unit++;
    }
    snprintf(text, RT_BYTES_TEXT, unit == 0 || bytes >= 100 ? "%.0f %s" : "%.1f %s", bytes,
             units[unit]);
    return text;
}

static bool read_number(const char *path, const char *key, double *value)
{
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    char line[256];
    bool found = false;
    while (!found && fgets(line, sizeof line, f))
        if (strncmp(line, key, strlen(key)) == 0)
            found = sscanf(line + strlen(key), "%lf", value) == 1;
    fclose(f);
    return found;
}

double rt_memory_free(void)
{
    double room = -1, limit, used;
    if (fault.room > 0)
        return (double)fault.room;
    if (read_number("/proc/meminfo", "MemAvailable:", &room))
        room *= 1024;
    const bool v2 = read_number("/sys/fs/cgroup/memory.max", "", &limit)
                    && read_number("/sys/fs/cgroup/memory.current", "", &used);
    const bool v1 = !v2 && read_number("/sys/fs/cgroup/memory/memory.limit_in_bytes", "", &limit)
                    && read_number("/sys/fs/cgroup/memory/memory.usage_in_bytes", "", &used);
    if (v2 || v1) { /* caches of files count as used but can go */
        double cache = 0;
        if (!read_number(v2 ? "/sys/fs/cgroup/memory.stat" : "/sys/fs/cgroup/memory/memory.stat",
                         v2 ? "inactive_file " : "total_inactive_file ", &cache))
            cache = 0;
        const double left = limit - used + cache;
        if (room < 0 || left < room)
            room = left;
    }
    return room;
}

double rt_memory_held(void) { return (double)memory.held; }

double rt_memory_most(void) { return (double)memory.most; }

double rt_memory_lap(void)
{
    const double most = (double)memory.lap;
    memory.lap = memory.held;
    return most;
}

double rt_memory_peak(void)
{
    double peak;
    return read_number("/proc/self/status", "VmHWM:", &peak) ? peak * 1024 : -1;
}

double rt_processor_quota(void)
{
    double quota, period;
    FILE *f = fopen("/sys/fs/cgroup/cpu.max", "re");
    if (f) {
        const bool limited = fscanf(f, "%lf %lf", &quota, &period) == 2 && period > 0;
        fclose(f);
        return limited ? quota / period : 0;
    }
    if (read_number("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "", &quota) && quota > 0
        && read_number("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "", &period) && period > 0)
        return quota / period;
    return 0;
}

void *rt_alloc(size_t bytes, const char *what)
{
    void *at = rt_mem.alloc(bytes);
    if (at)
        return at;
    char asked[RT_BYTES_TEXT], room[RT_BYTES_TEXT];
    const double left = rt_memory_free();
    rt_fail(RT_EXIT_FAIL, "out of memory: %s for %s; %s free", rt_bytes((double)bytes, asked), what,
            left < 0 ? "unknown" : rt_bytes(left, room));
}

void rt_free(void *at) { rt_mem.free(at); }

/* ---- texts of settings, kept until the end -------------------------------------------------- */

typedef struct Kept Kept;
struct Kept {
    Kept *next;
    char *text;
};
static Kept *kept;

const char *rt_keep(char *text)
{
    Kept *one = rt_alloc(sizeof *one, "a text");
    *one = (Kept){ kept, text };
    kept = one;
    return text;
}

void rt_base_end(void)
{
    while (kept) {
        Kept *one = kept;
        kept = one->next;
        rt_free(one->text);
        rt_free(one);
    }
}

char *rt_printf(const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    const int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (n < 0)
        rt_fail(RT_EXIT_FAIL, "a text cannot be formatted: %s", strerror(errno));
    char *text = rt_alloc((size_t)n + 1, "a text");
    vsnprintf(text, (size_t)n + 1, fmt, again);
    va_end(again);
    return text;
}

/* ---- reading -------------------------------------------------------------------------------- */

int rt_open(const char *path, int flags, int mode)
{
    int fd;
    do
        fd = rt_io.open(path, flags | O_CLOEXEC, mode);
    while (fd < 0 && errno == EINTR);
    return fd;
}

ssize_t rt_read_some(int fd, void *to, size_t n)
{
    ssize_t got;
    do
        got = rt_io.read(fd, to, n);
    while (got < 0 && errno == EINTR);
    return got;
}

typedef struct {
    char *at;
    size_t len, cap;
} Bytes;

static void bytes_reserve(Bytes *b, size_t cap, const char *path)
{
    if (cap <= b->cap)
        return;
    char *more = rt_alloc(cap, path);
    if (b->len)
        memcpy(more, b->at, b->len);
    rt_mem.free(b->at);
    b->at = more;
    b->cap = cap;
}

static void bytes_check_limit(const Bytes *b, size_t limit, const char *path)
{
    char text[RT_BYTES_TEXT];
    if (b->len > limit)
        rt_fail(RT_EXIT_FAIL, "%s: larger than the limit of %s for this kind of file", path,
                rt_bytes((double)limit, text));
}

static Bytes read_plain(const char *path, size_t limit)
{
    const int fd = rt_open(path, O_RDONLY, 0);
    if (fd < 0)
        rt_fail(RT_EXIT_FAIL, "%s: cannot be opened: %s", path, strerror(errno));
    struct stat st;
    Bytes b = { 0 };
    if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode))
        rt_fail(RT_EXIT_FAIL, "%s: is a directory; a file is wanted", path);
    const bool sized = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size >= 0;
    bytes_reserve(&b, (sized && (size_t)st.st_size <= limit ? (size_t)st.st_size : 4096) + 2, path);
    for (;;) {
        if (b.len + 1 >= b.cap)
            bytes_reserve(&b, b.cap * 2, path);
        const ssize_t got = rt_read_some(fd, b.at + b.len, b.cap - 1 - b.len);
        if (got < 0)
            rt_fail(RT_EXIT_FAIL, "%s: cannot be read at byte %zu: %s", path, b.len,
                    strerror(errno));
        if (got == 0)
            break;
        b.len += (size_t)got;
        bytes_check_limit(&b, limit, path);
    }
    (void)rt_io.close(fd);
    b.at[b.len] = 0;
    return b;
}

static void *inflate_alloc(void *unused, unsigned n, unsigned size)
{
    RT_UNUSED(unused);
    return rt_mem.alloc((size_t)n * size);
}

static void inflate_free(void *unused, void *at)
{
    RT_UNUSED(unused);
    rt_mem.free(at);
}

static Bytes expand_gzip(const Bytes *in, size_t limit, const char *path)
{
    z_stream z = { .zalloc = inflate_alloc, .zfree = inflate_free };
    if (inflateInit2(&z, 16 + MAX_WBITS) != Z_OK)
        rt_fail(RT_EXIT_FAIL, "%s: out of memory while expanding it", path);
    Bytes out = { 0 };
    bytes_reserve(&out, in->len * 4 + 4096, path);
    size_t used = 0;
    int status = Z_OK;
    for (;;) {
        if (out.len + 1 >= out.cap)
            bytes_reserve(&out, out.cap * 2, path);
        const size_t left = in->len - used, room = out.cap - 1 - out.len;
        z.next_in = (Bytef *)in->at + used;
        z.avail_in = left > INT_MAX ? INT_MAX : (unsigned)left;
        z.next_out = (Bytef *)out.at + out.len;
        z.avail_out = room > INT_MAX ? INT_MAX : (unsigned)room;
        const unsigned given = z.avail_in, space = z.avail_out;
        status = inflate(&z, Z_NO_FLUSH);
        used += given - z.avail_in;
        out.len += space - z.avail_out;
        bytes_check_limit(&out, limit, path);
        if (status == Z_STREAM_END && used < in->len && in->at[used] == '\x1f') {
            if (inflateReset(&z) != Z_OK) /* another member follows */
                break;
        } else if (status != Z_OK) {
            break;
        }
    }
    if (status == Z_BUF_ERROR || (status == Z_OK && used == in->len))
        rt_fail(RT_EXIT_FAIL, "%s: the gzip data end early, at byte %zu: the file is truncated",
                path, in->len);
    if (status != Z_STREAM_END)
        rt_fail(RT_EXIT_FAIL, "%s: damaged gzip data near byte %zu (%s)", path, used,
                z.msg ? z.msg : "out of memory");
    (void)inflateEnd(&z);
    out.at[out.len] = 0;
    return out;
}

void *rt_read_file(const char *path, size_t limit, size_t *len)
{
    Bytes b = read_plain(path, limit);
    const size_t n = strlen(path);
    if (n > 3 && strcmp(path + n - 3, ".gz") == 0) {
        if (b.len < 2 || (unsigned char)b.at[0] != 0x1f || (unsigned char)b.at[1] != 0x8b)
            rt_fail(RT_EXIT_FAIL, "%s: no gzip file (its first bytes are not 1f 8b)", path);
        Bytes expanded = expand_gzip(&b, limit, path);
        rt_mem.free(b.at);
        b = expanded;
    }
    *len = b.len;
    return b.at;
}

/* ---- writing -------------------------------------------------------------------------------- */

int rt_write_all(int fd, const void *data, size_t len)
{
    const char *at = data;
    while (len > 0) {
        const ssize_t put = rt_io.write(fd, at, len);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0) {
            if (put == 0)
                errno = EIO;
            return -1;
        }
        at += put;
        len -= (size_t)put;
    }
    return 0;
}

int rt_fsync(int fd)
{
    int failed;
    do
        failed = rt_io.fsync(fd);
    while (failed && errno == EINTR);
    return failed;
}

int rt_file_finish(int fd, int failed)
{
    failed = failed || rt_fsync(fd) ? -1 : 0;
    int error = errno;
    if (rt_io.close(fd) && !failed) {
        failed = -1;
        error = errno;
    }
    errno = error;
    return failed;
}

int rt_fsync_directory(const char *path)
{
    const int fd = rt_open(path, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0)
        return -1;
    const int failed = rt_fsync(fd), error = errno;
    (void)rt_io.close(fd);
    errno = error;
    return failed && error != EINVAL ? -1 : 0; /* some file systems cannot sync a directory */
}

static int fsync_directory_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *dir = slash ? rt_printf("%.*s", slash == path ? 1 : (int)(slash - path), path)
                      : rt_printf(".");
    const int failed = rt_fsync_directory(dir), error = errno;
    rt_mem.free(dir);
    errno = error;
    return failed;
}

int rt_write_atomic(const char *path, const void *data, size_t len)
{
    char *part = rt_printf("%s.tmp-%ld", path, (long)getpid());
    const int fd = rt_open(part, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    int failed = -1, error = errno;
    if (fd >= 0) {
        failed = rt_file_finish(fd, rt_write_all(fd, data, len)) || rt_io.rename(part, path) ? -1
                                                                                             : 0;
        error = errno;
        if (failed)
            (void)rt_io.unlink(part);
        else if (fsync_directory_of(path)) {
            failed = -1;
            error = errno;
        }
    }
    rt_mem.free(part);
    errno = error;
    return failed;
}
