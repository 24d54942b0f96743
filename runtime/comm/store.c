/* store.c -- a rank's end of the store: names and values that all ranks see, and signs of life.
 *
 * In: where rank 0 serves it. Out: values; the end of the process, with the message that every rank
 * ends with, where one is missing, lost or late. The one idea: whatever goes wrong in one rank is
 * told by the store to all, in one text.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "comm/store.h"

typedef struct {
    int fd;
    pthread_mutex_t lock;  /* one question at a time */
    pthread_mutex_t write; /* one message at a time */
} Line;

#define NO_LINE                                                                                    \
    {                                                                                              \
        -1, PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER                                   \
    }

static struct {
    Line main, watch;
    RtLaunch launch;
    RtMeeting meeting; /* of a launch with a directory: what is written there */
    double timeout, silence;
    const char *interface;
    atomic_bool told; /* this rank has said why it ends */
    char text[128], own[64];
    int32_t local_ranks;
} store = { .main = NO_LINE, .watch = NO_LINE };

uint64_t store_job(const char *name) { return rt_hash_text(name); }

const char *rt_store_text(void) { return store.text; }

const char *rt_store_own(void) { return store.own; }

int rt_store_local_ranks(void) { return store.local_ranks; }

/* ---- the end --------------------------------------------------------------------------------- */

bool rt_store_tells(void) { return !atomic_exchange(&store.told, true); }

/* What the exchange was that this rank waits in, before the hint of a text that does not say it. */
static void add_exchange(char *to, size_t n, const char *text)
{
    const RtProgress now = rt_watch_now();
    const char *hint = strstr(text, "\nhint: ");
    const size_t head = hint ? (size_t)(hint - text) : strlen(text);
    if (now.what && !strstr(text, now.what))
        snprintf(to, n, "%.*s\nrank %d was in exchange %lld then: %s%s", (int)head, text,
                 store.launch.rank, (long long)now.begun, now.what, text + head);
    else
        snprintf(to, n, "%s", text);
}

/* Of a thread that is not the main one too: nothing is flushed or freed that another may use. */
__attribute__((noreturn)) static void end_job(const char *answer)
{
    char *end, text[8192];
    const long code = strtol(answer, &end, 10);
    const char *verdict = end + (*end == ' ');
    if (code == RT_EXIT_STALL)
        add_exchange(text, sizeof text, verdict);
    if (rt_store_tells()) {
        rt_tell(code == RT_EXIT_STALL ? text : verdict);
        rt_report_failure(code == RT_EXIT_STALL ? text : verdict);
    }
    rt_store_linger();
    _exit(code > 0 && code < 256 ? (int)code : RT_EXIT_STALL);
}

/* The line to rank 0 is cut, or nothing comes. */
__attribute__((noreturn)) static void end_without(int error)
{
    char text[512];
    if (error == ETIMEDOUT)
        snprintf(text, sizeof text,
                 "%d rank 0 (%s) has not answered for %.0f s\nhint: it is stopped, or its host "
                 "cannot be reached any more; --comm-timeout sets how long to wait",
                 RT_EXIT_STALL, store.text, store.silence);
    else
        snprintf(text, sizeof text, "%d rank 0 (%s) is gone: %s", RT_EXIT_STALL, store.text,
                 strerror(error));
    end_job(text);
}

/* ---- questions and answers ------------------------------------------------------------------- */

static int send_frame(Line *line, StoreOp op, const char *key, const void *value, size_t n,
                      double by)
{
    const StoreFrame frame = { .magic = STORE_MAGIC,
                               .version = STORE_VERSION,
                               .op = (uint16_t)op,
                               .job = store_job(store.launch.job),
                               .rank = store.launch.rank,
                               .size = store.launch.size,
                               .key = (uint32_t)strlen(key),
                               .value = (uint32_t)n };
    pthread_mutex_lock(&line->write);
    const int failed = rt_net_write(line->fd, &frame, sizeof frame, by)
                       || rt_net_write(line->fd, key, frame.key, by)
                       || (n > 0 && rt_net_write(line->fd, value, n, by));
    const int error = errno;
    pthread_mutex_unlock(&line->write);
    errno = error;
    return failed;
}

/* The answer's value, malloc; NULL with errno. */
static char *read_answer(int fd, StoreFrame *frame, double by)
{
    if (rt_net_read(fd, frame, sizeof *frame, by))
        return NULL;
    if (frame->magic != STORE_MAGIC || frame->key != 0 || frame->value > STORE_VALUE) {
        errno = EPROTO;
        return NULL;
    }
    char *value = calloc(1, (size_t)frame->value + 1);
    errno = value ? errno : ENOMEM;
    if (value && rt_net_read(fd, value, frame->value, by)) {
        const int error = errno;
        free(value);
        errno = error;
        return NULL;
    }
    return value;
}

/* What is answered; ends the process where the job has failed. */
static char *ask(Line *line, StoreOp op, const char *key, const void *value, size_t n, double wait,
                 size_t *size)
{
    StoreFrame frame = { 0 };
    const double by = rt_now() + wait;
    pthread_mutex_lock(&line->lock);
    char *answer = NULL;
    const int failed = send_frame(line, op, key, value, n, by);
    if (!failed)
        answer = read_answer(line->fd, &frame, by);
    const int error = errno;
    pthread_mutex_unlock(&line->lock);
    if (!answer)
        end_without(error);
    if (frame.op != STORE_OK)
        end_job(answer);
    if (size)
        *size = frame.value;
    return answer;
}

/* ---- meeting --------------------------------------------------------------------------------- */

StorePorts store_ports(const RtLaunch *l)
{
    enum { HIGHEST = 65535 };
    StorePorts p = { l->port, l->port };
    if (l->next_port) {
        p.first = l->port + 1;
        p.last = l->port + RT_NET_TRIES < HIGHEST ? l->port + RT_NET_TRIES : HIGHEST;
    }
    if (p.first > p.last)
        rt_fail(RT_EXIT_USAGE,
                "rank 0 needs a port behind %d, and there is none\nhint: a smaller MASTER_PORT",
                l->port);
    return p;
}

const char *store_ports_text(const RtLaunch *l, char text[48])
{
    const StorePorts p = store_ports(l);
    if (p.first < p.last)
        snprintf(text, 48, "ports %d to %d", p.first, p.last);
    else
        snprintf(text, 48, "port %d", p.first);
    return text;
}

void store_room(void)
{
    struct rlimit most;
    if (getrlimit(RLIMIT_NOFILE, &most))
        return;
    most.rlim_cur = most.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &most);
}

StoreHello store_hello(const RtLaunch *l)
{
    StoreHello h = { .process = (int64_t)getpid() };
    if (gethostname(h.host, sizeof h.host - 1) || !h.host[0])
        snprintf(h.host, sizeof h.host, "unknown");
    memcpy(h.job, l->job, sizeof h.job);
    return h;
}

/* What is answered at a port, malloc; NULL with errno: nothing there speaks as the store does. */
static char *try_port(Line *line, int port, StoreOp op, double by, StoreFrame *frame)
{
    const StoreHello h = store_hello(&store.launch);
    const double now = rt_now(), soon = now + 5 < by ? now + 5 : by;
    char *answer = NULL;
    line->fd = rt_net_connect(store.launch.host, port, soon);
    if (line->fd < 0)
        return NULL;
    if (send_frame(line, op, "", &h, sizeof h, soon) == 0)
        answer = read_answer(line->fd, frame, soon);
    if (answer && frame->op == STORE_HEARD) { /* and then it waits for the other ranks */
        free(answer);
        answer = read_answer(line->fd, frame, by);
    }
    return answer;
}

static void hang_up(Line *line)
{
    const int error = errno;
    if (line->fd >= 0)
        (void)close(line->fd);
    line->fd = -1;
    errno = error;
}

void store_is_there(const RtLaunch *l, int port)
{
    StoreFrame frame = { 0 };
    const int error = errno;
    store.launch = *l;
    char *answer = try_port(&store.main, port, STORE_HELLO, rt_now() + 2, &frame);
    if (answer && frame.op == STORE_FAILED) /* two processes have the rank 0 */
        end_job(answer);
    free(answer);
    hang_up(&store.main);
    errno = error;
}

static void first_line(char *to, size_t n, const char *text)
{
    snprintf(to, n, "%.*s", (int)strcspn(text, "\n"), text);
}

/* The store of this job: at the port of the launch, or behind it where that is somebody else's.
   What a store of another job says is the reason, for the end. */
static bool connect_once(Line *line, StoreOp op, double by, char *reason, size_t n)
{
    const RtLaunch *l = &store.launch;
    StoreFrame frame = { 0 };
    /* stores of other jobs may be there */
    const bool other = l->next_port || (l->dir && line == &store.main);
    const StorePorts ports = store_ports(l);
    for (int port = ports.first; port <= ports.last; port++) {
        char *answer = try_port(line, port, op, by, &frame);
        snprintf(store.text, sizeof store.text, "%s port %d", l->host, port);
        if (answer && frame.op == STORE_OK) {
            if (frame.value == sizeof store.local_ranks)
                memcpy(&store.local_ranks, answer, sizeof store.local_ranks);
            free(answer);
            return true;
        }
        if (answer && (frame.op != STORE_AWAY || !other))
            end_job(answer);
        if (answer)
            first_line(reason, n, answer + strspn(answer, "0123456789 "));
        else if (!*reason || !l->next_port)
            snprintf(reason, n, "%s", strerror(errno));
        free(answer);
        hang_up(line);
    }
    return false;
}

/* The same, at each address that rank 0 has written into the directory of the launch. */
static bool connect_through(const RtLaunch *asked, double by, char *reason, size_t n)
{
    RtMeeting *at = &store.meeting;
    RtLaunch *l = &store.launch;
    for (int k = 0; rt_meet_read(asked, k, at); k++) {
        l->host = at->host;
        l->port = at->port;
        memcpy(l->job, at->job, sizeof l->job);
        if (connect_once(&store.main, STORE_HELLO, by, reason, n))
            return true;
    }
    return false;
}

static void pause_for(double seconds)
{
    const struct timespec t = { (time_t)seconds, (long)((seconds - floor(seconds)) * 1e9) };
    (void)nanosleep(&t, NULL);
}

__attribute__((noreturn)) static void fail_alone(double timeout, const char *reason)
{
    const RtLaunch *l = &store.launch;
    char ports[48];
    rt_net_check(store.interface); /* which rank 0 may have ended for, too */
    if (!l->dir)
        rt_fail(RT_EXIT_STALL,
                "rank %d found no rank 0 at %s %s within %.0f s: %s\nhint: is rank 0 started, "
                "and is that its address? %s; --rendezvous-timeout sets how long to wait",
                l->rank, l->host, store_ports_text(l, ports), timeout, reason, l->named_by);
    if (!l->host)
        rt_fail(RT_EXIT_STALL,
                "rank %d: no rank 0 has written its address into %s within %.0f s\nhint: is rank 0 "
                "started, of the same job (%s), and does its host share that directory? "
                "--rendezvous-timeout sets how long to wait",
                l->rank, l->dir, timeout, l->job);
    rt_fail(
        RT_EXIT_STALL,
        "rank %d found no rank 0 through %s within %.0f s: what is written there is of %s, at "
        "%s port %d: %s\nhint: it may be dead; is rank 0 of this job started, and does its host "
        "share that directory? --rendezvous-timeout sets how long to wait",
        l->rank, l->dir, timeout, store.meeting.process, l->host, l->port, reason);
}

/* Again and again, at growing intervals, until rank 0 is there. */
static void connect_line(const RtLaunch *asked, Line *line, StoreOp op, double timeout)
{
    const double end = rt_now() + timeout, by = end + 5; /* rank 0 speaks first, where it is */
    const bool through = asked->dir && line == &store.main;
    char reason[512] = "";
    for (double wait = 0.02;; wait = wait < 1 ? 1.5 * wait : 1) {
        if (through ? connect_through(asked, by, reason, sizeof reason)
                    : connect_once(line, op, by, reason, sizeof reason))
            return;
        if (rt_now() + wait > end)
            fail_alone(timeout, reason);
        pause_for(wait);
    }
}

void rt_store_open(const RtLaunch *l, const char *interface, double timeout, double silence)
{
    store_room();
    store.launch = *l;
    store.timeout = timeout;
    store.interface = interface;
    store.silence = silence;
    snprintf(store.text, sizeof store.text, "%s port %d", l->host ? l->host : l->dir, l->port);
    connect_line(l, &store.main, STORE_HELLO, timeout);
    (void)rt_net_own(store.main.fd, store.own);
    connect_line(l, &store.watch, STORE_WATCH, timeout);
    rt_meet_leave(); /* all are here */
}

void rt_store_close(void)
{
    Line *const lines[] = { &store.watch, &store.main };
    for (int i = 0; i < 2; i++) {
        if (lines[i]->fd >= 0)
            (void)send_frame(lines[i], STORE_BYE, "", NULL, 0, rt_now() + 1);
        hang_up(lines[i]);
    }
}

/* ---- values ---------------------------------------------------------------------------------- */

void rt_store_set(const char *key, const void *value, size_t n)
{
    free(ask(&store.main, STORE_SET, key, value, n, store.silence, NULL));
}

char *rt_store_await(const char *key, double seconds, size_t *n)
{
    const double patience = fmax(seconds, store.timeout);
    /* the store says when that is over, or the watch finds that there is no store */
    return ask(&store.main, STORE_GET, key, &patience, sizeof patience, 1e9, n);
}

char *rt_store_get(const char *key, size_t *n) { return rt_store_await(key, store.timeout, n); }

/* ---- life ------------------------------------------------------------------------------------ */

void rt_store_beat(int64_t at)
{
    free(ask(&store.watch, STORE_BEAT, "", &at, sizeof at, store.silence, NULL));
}

void rt_store_fail(int exit_code, const char *text)
{
    char *value = rt_printf("%d %s", exit_code, text);
    store.told = true;
    if (store.watch.fd >= 0)
        (void)send_frame(&store.watch, STORE_FAIL, "", value, strlen(value) + 1, rt_now() + 1);
    rt_free(value);
}

/* By the line of values: rank 0 has it before what is set later. */
void rt_store_warn(const char *text)
{
    if (store.main.fd >= 0)
        (void)send_frame(&store.main, STORE_WARN, "", text, strlen(text) + 1, rt_now() + 1);
}

void rt_store_stalled(int64_t at, const char *text)
{
    char value[1024];
    memcpy(value, &at, sizeof at);
    const int n = snprintf(value + sizeof at, sizeof value - sizeof at, "%s", text);
    free(ask(&store.watch, STORE_STALLED, "", value, sizeof at + (size_t)n + 1, store.silence,
             NULL));
}
