/* store_serve.c -- the store itself, a thread of rank 0.
 *
 * In: messages of ranks. Out: answers. The one idea: it alone decides that the job has failed
 * (somebody is missing, gone, silent, late, or says so), in one text which every rank is answered
 * with from then on.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/store.h"

typedef struct {
    int fd;
    int rank;               /* -1: it has not said */
    bool told;              /* that the job has failed */
    bool watch;             /* the connection that beats */
    bool waits;             /* a question is not answered: HELLO, or GET of */
    bool broken;            /* an answer could not be sent: to be dropped */
    char *key;              /* this; NULL, */
    double since, patience; /* asked for then, with so many seconds to wait */
    double came;            /* it is here since */
    size_t have;            /* of the message that comes, bytes that are there */
    StoreFrame frame;
    char *body; /* key and value of it; NULL before the frame is whole */
} Peer;

#define GRACE    0.3  /* seconds; */
#define STRANGER 10.0 /* that a connection may have no rank */

typedef struct {
    bool here, beats, left;
    StoreHello hello;
    int64_t at;  /* exchanges begun */
    double seen; /* last sign of life, since all are here */
    double gone; /* when a connection ended; 0 = they stand */
} Member;

typedef struct Warning {
    struct Warning *next;
    int rank;
    char *text;
} Warning;

typedef struct Value {
    struct Value *next;
    char *key, *bytes;
    size_t n;
} Value;

static struct {
    pthread_t thread;
    pthread_mutex_t lock; /* of the peers */
    bool runs;
    int listen_fd, wake[2];
    RtLaunch launch;
    double deadline, timeout, silence;
    Peer *peer;
    int n_peers, cap;
    Member *member;
    int n_here, n_beat;
    int n_told;       /* of those that have said hello, before all have */
    bool met;         /* all have said hello */
    bool full;        /* no descriptor is left for one more connection */
    char address[64]; /* that it listens at */
    char *verdict;    /* exit code and text; NULL: all is well */
    Value *values;
    Warning *warnings; /* the newest first */
} server = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void *checked(void *at)
{
    if (at)
        return at;
    rt_tell("the store has no memory left");
    _exit(RT_EXIT_FAIL);
}

/* ---- answers --------------------------------------------------------------------------------- */

static void answer(Peer *p, StoreOp op, const void *value, size_t n)
{
    const StoreFrame frame = { .magic = STORE_MAGIC,
                               .version = STORE_VERSION,
                               .op = (uint16_t)op,
                               .value = (uint32_t)n };
    const double by = rt_now() + 2;
    if (op != STORE_HEARD) {
        p->waits = false;
        free(p->key);
        p->key = NULL;
    }
    p->broken = p->broken || rt_net_write(p->fd, &frame, sizeof frame, by)
                || (n > 0 && rt_net_write(p->fd, value, n, by));
}

static void answer_failed(Peer *p)
{
    answer(p, STORE_FAILED, server.verdict, strlen(server.verdict));
    p->told = true;
    server.n_told += !server.met;
}

/* The first text stands. */
__attribute__((format(printf, 2, 3))) static void fail_job(int code, const char *fmt, ...)
{
    char text[4096];
    va_list args;
    if (server.verdict)
        return;
    int n = snprintf(text, sizeof text, "%d ", code);
    va_start(args, fmt);
    (void)vsnprintf(text + n, sizeof text - (size_t)n, fmt, args);
    va_end(args);
    server.verdict = checked(strdup(text));
    for (int i = 0; i < server.n_peers; i++)
        if (server.peer[i].waits)
            answer_failed(&server.peer[i]);
}

const char *rt_store_who(int rank, char text[RT_WHO_TEXT])
{
    const StoreHello *h = &server.member[rank].hello;
    snprintf(text, RT_WHO_TEXT, "rank %d (%.63s, process %lld)", rank, h->host,
             (long long)h->process);
    return text;
}

/* The first rank behind r whose host is another one. */
static int host_ends(int r)
{
    const char *host = server.member[r].hello.host;
    while (r < server.launch.size && strcmp(server.member[r].hello.host, host) == 0)
        r++;
    return r;
}

const char *rt_store_hosts(void)
{
    static char text[1024];
    size_t at = 0;
    int r = 0;
    if (!server.member || host_ends(0) == server.launch.size)
        return NULL;
    while (r < server.launch.size && at < sizeof text - 128) {
        const int first = r;
        r = host_ends(first);
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%.63s (rank%s %d", at ? ", " : "",
                               server.member[first].hello.host, r - first > 1 ? "s" : "", first);
        if (r - first > 1)
            at += (size_t)snprintf(text + at, sizeof text - at, " to %d", r - 1);
        at += (size_t)snprintf(text + at, sizeof text - at, ")");
    }
    snprintf(text + at, sizeof text - at, "%s", r < server.launch.size ? ", ..." : "");
    return text;
}

/* ---- meeting --------------------------------------------------------------------------------- */

/* The first rank behind r that is not here as r is, or the other way round. */
static int here_ends(int r)
{
    const bool here = server.member[r].here;
    while (r < server.launch.size && server.member[r].here == here)
        r++;
    return r;
}

/* Lines of the table: the ranks that are missing, at most some; how many of them there are. */
static int missing_lines(char *text, size_t most, size_t *n)
{
    int missing = 0;
    for (int r = 0, end; r < server.launch.size; r = end) {
        end = here_ends(r);
        if (server.member[r].here)
            continue;
        missing += end - r;
        if (*n > most - 64)
            continue;
        *n += (size_t)snprintf(text + *n, most - *n, "\n  rank %d", r);
        if (end - r > 1)
            *n += (size_t)snprintf(text + *n, most - *n, " to %d", end - 1);
        *n += (size_t)snprintf(text + *n, most - *n, " MISSING");
    }
    return missing;
}

/* Those that are missing, and "rank 0 node1, process 12" by line, as many as there is room for. */
static void fail_missing(void)
{
    enum { MOST = 24 };
    char text[3072] = "";
    size_t n = 0;
    int told = 0;
    const int missing = missing_lines(text, sizeof text / 4, &n);
    for (int r = 0; r < server.launch.size; r++) {
        const Member *m = &server.member[r];
        if (m->here && n < sizeof text - 160 && told++ < MOST)
            n += (size_t)snprintf(text + n, sizeof text - n, "\n  rank %-4d %s, process %lld", r,
                                  m->hello.host, (long long)m->hello.process);
    }
    fail_job(RT_EXIT_STALL,
             "%d of %d ranks did not come within %.0f s (port %d of rank 0)%s%s\nhint: look at the "
             "output of those%s; --rendezvous-timeout sets how long to wait",
             missing, server.launch.size, server.timeout, server.launch.port, text,
             told > MOST ? "\n  ..." : "",
             server.launch.dir ? "; do their hosts share the directory of --rendezvous?" : "");
}

/* How many ranks are on the host of this one. */
static int32_t local_ranks(int rank)
{
    const char *host = server.member[rank].hello.host;
    int32_t n = 0;
    for (int r = 0; r < server.launch.size; r++)
        n += strcmp(server.member[r].hello.host, host) == 0;
    return n;
}

static void say_met(void)
{
    server.met = true;
    for (int r = 0; r < server.launch.size; r++)
        server.member[r].seen = rt_now();
    for (int i = 0; i < server.n_peers; i++) {
        Peer *p = &server.peer[i];
        const int32_t n = p->waits && !p->key ? local_ranks(p->rank) : 0;
        if (n > 0)
            answer(p, STORE_OK, &n, sizeof n);
    }
}

/* op: STORE_AWAY to another job, which may look elsewhere; STORE_FAILED to one more process of this
   one */
static void turn_away(Peer *p, StoreOp op, char *why)
{
    char *text = rt_printf("%d %s\nhint: another port (MASTER_PORT, --rendezvous) for each job",
                           RT_EXIT_USAGE, why);
    answer(p, op, text, strlen(text));
    p->rank = -1;
    rt_free(text);
    rt_free(why);
}

static bool is_same(const StoreHello *a, const StoreHello *b)
{
    return a->process == b->process && strcmp(a->host, b->host) == 0;
}

/* The second connection of a rank that has said hello. */
static void on_watch(Peer *p, const StoreHello *h)
{
    const int rank = p->frame.rank;
    Member *m = rank >= 0 && rank < server.launch.size ? &server.member[rank] : NULL;
    if (!m || !m->here || m->beats || !is_same(&m->hello, h)) {
        turn_away(p, STORE_AWAY, rt_printf("rank %d of another process is there", rank));
        return;
    }
    p->rank = rank;
    p->watch = true;
    m->beats = true;
    server.n_beat++;
    m->seen = rt_now();
    answer(p, STORE_OK, NULL, 0);
}

static void on_hello(Peer *p, const StoreHello *h)
{
    const int rank = p->frame.rank, size = p->frame.size;
    if (p->frame.job != store_job(server.launch.job)) {
        turn_away(p, STORE_AWAY,
                  rt_printf("rank %d is of job %.191s, and the store at this address of job %s",
                            rank, h->job, server.launch.job));
        return;
    }
    if (server.met) {
        turn_away(
            p, STORE_FAILED,
            rt_printf("the job at this address has its %d ranks already", server.launch.size));
        return;
    }
    answer(p, STORE_HEARD, NULL, 0);
    p->waits = true;
    if (size != server.launch.size || rank < 0 || rank >= size) {
        fail_job(RT_EXIT_USAGE,
                 "rank %d (%.63s, process %lld) was told of %d ranks, and rank 0 of %d", rank,
                 h->host, (long long)h->process, size, server.launch.size);
        return;
    }
    Member *m = &server.member[rank];
    if (m->here || (rank == 0 && !is_same(&m->hello, h))) {
        fail_job(RT_EXIT_USAGE,
                 "two processes have the rank %d: process %lld on %.63s, and %lld on %.63s\nhint: "
                 "each needs a number of its own (RANK, --rank), from 0 to %d",
                 rank, (long long)m->hello.process, m->hello.host, (long long)h->process, h->host,
                 size - 1);
        return;
    }
    p->rank = rank;
    m->here = true;
    m->hello = *h;
    if (++server.n_here == size)
        say_met();
}

/* ---- values ---------------------------------------------------------------------------------- */

static const Value *find(const char *key)
{
    const Value *v = server.values;
    while (v && strcmp(v->key, key) != 0)
        v = v->next;
    return v;
}

static void on_set(Peer *p, const char *key, const char *value, size_t n)
{
    Value *v = checked(calloc(1, sizeof *v));
    v->key = checked(strdup(key));
    v->bytes = checked(malloc(n + 1));
    memcpy(v->bytes, value, n);
    v->n = n;
    v->next = server.values;
    server.values = v;
    for (int i = 0; i < server.n_peers; i++)
        if (server.peer[i].key && strcmp(server.peer[i].key, key) == 0)
            answer(&server.peer[i], STORE_OK, v->bytes, v->n);
    answer(p, STORE_OK, NULL, 0);
}

static void on_get(Peer *p, const char *key, double patience)
{
    const Value *v = find(key);
    if (v) {
        answer(p, STORE_OK, v->bytes, v->n);
        return;
    }
    p->key = checked(strdup(key));
    p->since = rt_now();
    p->patience = patience;
    p->waits = true;
}

/* Who has not set what a rank waits for, and waits for nothing itself; *key: what that is. */
static int who_owes(const char **key)
{
    int rank = 0;
    for (int step = 0; step < server.launch.size; step++) {
        const char *slash = strrchr(*key, '/'), *next = NULL;
        rank = slash ? (int)strtol(slash + 1, NULL, 10) : 0;
        for (int i = 0; i < server.n_peers; i++)
            if (server.peer[i].rank == rank && server.peer[i].key)
                next = server.peer[i].key;
        if (!next)
            break;
        *key = next;
    }
    return rank >= 0 && rank < server.launch.size ? rank : 0;
}

static void look_for_late(void)
{
    const double now = rt_now();
    for (int i = 0; i < server.n_peers; i++) {
        const Peer *p = &server.peer[i];
        const char *key = p->key;
        char name[RT_WHO_TEXT];
        if (!key || now - p->since <= p->patience)
            continue;
        const int rank = who_owes(&key);
        fail_job(RT_EXIT_STALL,
                 "%s keeps the others waiting: it is alive, and has not come to \"%s\" within %.0f "
                 "s\nhint: does it wait for a file, a disk or a GPU?",
                 rt_store_who(rank, name), key, p->patience);
        return;
    }
}

/* ---- life ------------------------------------------------------------------------------------ */

/* Who has begun the fewest exchanges keeps the others waiting. */
static void on_stalled(const char *value, size_t n)
{
    int64_t least = INT64_MAX, most = 0;
    char names[1024] = "";
    size_t at = 0;
    int late = 0;
    for (int r = 0; r < server.launch.size; r++) {
        const int64_t now = server.member[r].at;
        least = now < least ? now : least;
        most = now > most ? now : most;
    }
    for (int r = 0; r < server.launch.size; r++) {
        char name[RT_WHO_TEXT];
        if (server.member[r].at != least || least == most)
            continue;
        if (late++ < 4)
            at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", at ? ", " : "",
                                   rt_store_who(r, name));
    }
    const char *text = n > sizeof(int64_t) ? value + sizeof(int64_t) : "";
    if (late == 0)
        fail_job(RT_EXIT_STALL, "%s; all ranks are in it (exchange %lld)", text, (long long)most);
    else
        fail_job(RT_EXIT_STALL, "%s: %s%s at exchange %lld, others at %lld", text, names,
                 late > 1 ? late > 4 ? " and more are" : " are" : " is", (long long)least,
                 (long long)most);
}

static void on_warning(int rank, const char *text)
{
    Warning *w = checked(calloc(1, sizeof *w));
    *w = (Warning){ .next = server.warnings, .rank = rank, .text = checked(strdup(text)) };
    server.warnings = w;
}

char *rt_store_heard(int *rank)
{
    char *text = NULL;
    pthread_mutex_lock(&server.lock);
    Warning **at = &server.warnings;
    while (*at && (*at)->next)
        at = &(*at)->next;
    if (*at) {
        *rank = (*at)->rank;
        text = (*at)->text;
        free(*at);
        *at = NULL;
    }
    pthread_mutex_unlock(&server.lock);
    return text;
}

static void on_gone(int rank)
{
    char name[RT_WHO_TEXT];
    if (server.met && !server.member[rank].left)
        fail_job(RT_EXIT_STALL, "%s is gone: it ended, or its host was cut off",
                 rt_store_who(rank, name));
}

static void look_for_silence(void)
{
    const double now = rt_now();
    double since = now - server.silence;
    char name[RT_WHO_TEXT];
    int silent = -1; /* for the longest time */
    for (int r = 0; r < server.launch.size; r++) {
        const Member *m = &server.member[r];
        if (m->gone > 0 && now - m->gone > GRACE)
            on_gone(r);
        if (!m->left && m->seen < since) {
            silent = r;
            since = m->seen;
        }
    }
    if (silent >= 0)
        fail_job(RT_EXIT_STALL,
                 "%s has given no sign of life for %.0f s: it is stopped, or its host cannot be "
                 "reached",
                 rt_store_who(silent, name), now - since);
}

static void look(void)
{
    if (server.met) {
        look_for_silence();
        look_for_late();
    } else if (rt_now() > server.deadline)
        fail_missing();
}

/* ---- messages -------------------------------------------------------------------------------- */

static void on_message(Peer *p)
{
    char key[STORE_KEY + 1];
    const char *value = p->body + p->frame.key;
    const size_t n = p->frame.value;
    memcpy(key, p->body, p->frame.key);
    key[p->frame.key] = 0;
    const StoreOp op = (StoreOp)p->frame.op;
    if (op <= STORE_WATCH && n == sizeof(StoreHello)) {
        StoreHello h;
        memcpy(&h, value, sizeof h);
        h.host[sizeof h.host - 1] = h.job[sizeof h.job - 1] = 0;
        if (server.verdict && (op == STORE_WATCH || !server.met))
            answer_failed(p);
        else if (op == STORE_WATCH)
            on_watch(p, &h);
        else
            on_hello(p, &h);
        return;
    }
    Member *m = p->rank >= 0 ? &server.member[p->rank] : NULL;
    if (!m)
        return;
    if (op == STORE_BYE) {
        m->left = true;
        return;
    }
    if (op == STORE_WARN) {
        on_warning(p->rank, value);
        return;
    }
    if (op == STORE_BEAT && n == sizeof m->at)
        memcpy(&m->at, value, sizeof m->at);
    m->seen = rt_now();
    if (op == STORE_FAIL) {
        char name[RT_WHO_TEXT], *text;
        const long code = strtol(value, &text, 10);
        fail_job((int)code, "%s: %s", rt_store_who(p->rank, name), text + (*text == ' '));
        return;
    }
    if (op == STORE_STALLED && n > sizeof m->at) {
        memcpy(&m->at, value, sizeof m->at);
        on_stalled(value, n);
    }
    double number = 0;
    memcpy(&number, value, n == sizeof number ? n : 0);
    if (server.verdict)
        answer_failed(p);
    else if (op == STORE_SET)
        on_set(p, key, value, n);
    else if (op == STORE_GET && n == sizeof(double))
        on_get(p, key, number);
    else
        answer(p, STORE_OK, NULL, 0);
}

/* stranger: who has no rank yet, and no more to say than hello */
static bool is_sound(const StoreFrame *f, bool stranger)
{
    if (stranger && (f->op > STORE_WATCH || f->key > 0 || f->value > sizeof(StoreHello)))
        return false;
    return f->magic == STORE_MAGIC && f->version == STORE_VERSION && f->op <= STORE_BYE
           && f->key <= STORE_KEY && f->value <= STORE_VALUE;
}

/* Bytes that are there; false: the peer is to be dropped. */
static bool on_bytes(Peer *p)
{
    const size_t head = sizeof p->frame;
    char *to = p->have < head ? (char *)&p->frame + p->have : p->body + (p->have - head);
    const size_t all = p->have < head ? head : head + p->frame.key + p->frame.value;
    const ssize_t got = recv(p->fd, to, all - p->have, 0);
    if (got <= 0)
        return got < 0 && (errno == EAGAIN || errno == EINTR);
    p->have += (size_t)got;
    if (p->have == head && !p->body) {
        if (!is_sound(&p->frame, p->rank < 0))
            return false;
        p->body = calloc(1, (size_t)p->frame.key + p->frame.value + 1);
        if (!p->body)
            return false;
    }
    if (p->body && p->have == head + p->frame.key + p->frame.value) {
        on_message(p);
        free(p->body);
        p->body = NULL;
        p->have = 0;
    }
    return true;
}

/* ---- the thread ------------------------------------------------------------------------------ */

static void drop(int i)
{
    Peer *p = &server.peer[i];
    const int rank = p->rank;
    server.full = false;
    Member *m = rank >= 0 ? &server.member[rank] : NULL;
    (void)close(p->fd);
    free(p->body);
    free(p->key);
    const bool watch = p->watch;
    *p = server.peer[--server.n_peers];
    if (m && server.met) /* what it said before may still come by the other one */
        m->gone = m->gone > 0 ? m->gone : rt_now();
    else if (m && !watch) { /* it may come again */
        m->here = false;
        server.n_here--;
    }
}

static void accept_peer(void)
{
    const int fd = accept4(server.listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
        server.full = true;
        if (server.n_beat < server.launch.size) /* else it is a stranger */
            fail_job(RT_EXIT_USAGE,
                     "rank 0 has no descriptors left for connections of %d ranks: %s\nhint: raise "
                     "the limit of open files there, to 3 for each rank and 100 (ulimit -Hn)",
                     server.launch.size, strerror(errno));
    }
    if (fd < 0)
        return;
    if (server.n_peers == server.cap) {
        server.cap = server.cap ? 2 * server.cap : 64;
        server.peer = checked(realloc(server.peer, (size_t)server.cap * sizeof *server.peer));
    }
    Peer *p = &server.peer[server.n_peers++];
    *p = (Peer){ .fd = fd, .rank = -1, .came = rt_now() };
}

static bool is_strange(const Peer *p) { return p->rank < 0 && rt_now() - p->came > STRANGER; }

static void *serve(void *unused)
{
    RT_UNUSED(unused);
    for (;;) {
        const int n = server.n_peers;
        struct pollfd *fds = checked(calloc((size_t)n + 2, sizeof *fds));
        fds[0] = (struct pollfd){ .fd = server.wake[0], .events = POLLIN };
        fds[1] = (struct pollfd){ .fd = server.full ? -1 : server.listen_fd, .events = POLLIN };
        for (int i = 0; i < n; i++)
            fds[i + 2] = (struct pollfd){ .fd = server.peer[i].fd, .events = POLLIN };
        const int ready = poll(fds, (nfds_t)n + 2, 100);
        if (ready > 0 && fds[0].revents) {
            free(fds);
            return NULL;
        }
        pthread_mutex_lock(&server.lock);
        for (int i = n - 1; ready > 0 && i >= 0; i--) /* drop fills the gap from behind */
            if (fds[i + 2].revents && !on_bytes(&server.peer[i]))
                drop(i);
        for (int i = server.n_peers - 1; i >= 0; i--)
            if (server.peer[i].broken || is_strange(&server.peer[i]))
                drop(i);
        if (ready > 0 && fds[1].revents)
            accept_peer();
        look();
        pthread_mutex_unlock(&server.lock);
        free(fds);
    }
}

/* Ranks ask once a second; those that are gone are no longer among the peers. Before they have met,
   those that are on their way are waited for, too. */
void rt_store_linger(void)
{
    rt_meet_leave();
    const double by = rt_now() + 3;
    for (bool all = !server.runs; !all && rt_now() < by;) {
        (void)usleep(20000);
        pthread_mutex_lock(&server.lock);
        all = server.met || server.n_told >= server.launch.size || rt_now() > server.deadline;
        for (int i = 0; i < server.n_peers; i++)
            all = all && (!server.peer[i].watch || server.peer[i].rank == 0 || server.peer[i].told);
        pthread_mutex_unlock(&server.lock);
    }
}

static bool has_ranks(void)
{
    bool found = false;
    pthread_mutex_lock(&server.lock);
    for (int i = 0; i < server.n_peers; i++)
        found = found || server.peer[i].rank >= 0;
    pthread_mutex_unlock(&server.lock);
    return found;
}

/* All have left, or a moment has passed: a store that ends first would look like a loss. */
static void end_server(void)
{
    if (!server.runs)
        return;
    rt_meet_leave();
    for (const double by = rt_now() + 5; has_ranks() && rt_now() < by;)
        (void)usleep(2000);
    (void)!write(server.wake[1], "", 1);
    pthread_join(server.thread, NULL);
    server.runs = false;
}

const char *rt_store_address(void) { return server.address; }

void rt_store_serve(const RtLaunch *l, const char *interface, double timeout, double silence,
                    int *port)
{
    server.launch = *l;
    if (l->dir)
        rt_meet_token(&server.launch);
    server.timeout = timeout;
    server.silence = silence;
    server.deadline = rt_now() + timeout;
    server.member = calloc((size_t)l->size, sizeof *server.member);
    server.listen_fd = -1;
    store_room();
    const StorePorts ports = store_ports(l);
    char text[48];
    for (int at = ports.first; at <= ports.last && server.listen_fd < 0; at++) {
        *port = at;
        server.listen_fd = rt_net_listen(interface, port);
        if (server.listen_fd < 0 && errno == EADDRINUSE && l->host)
            store_is_there(l, at);
    }
    if (server.listen_fd < 0)
        rt_fail(RT_EXIT_USAGE,
                "rank 0 cannot listen at %s: %s\nhint: another job may have it, or another "
                "process is rank 0; choose another MASTER_PORT or --rendezvous",
                store_ports_text(l, text), strerror(errno));
    server.launch.port = *port;
    (void)rt_net_own(server.listen_fd, server.address);
    if (server.member)
        server.member[0].hello = store_hello(l);
    if (!server.member || pipe2(server.wake, O_CLOEXEC)
        || pthread_create(&server.thread, NULL, serve, NULL))
        rt_fail(RT_EXIT_FAIL, "the store cannot be started: %s", strerror(errno));
    server.runs = true;
    atexit(end_server);
    if (l->dir)
        rt_meet_write(l, &server.launch, interface ? server.address : NULL);
}
