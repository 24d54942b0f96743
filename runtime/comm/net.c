/* net.c -- sockets of TCP, IPv4 and IPv6, with deadlines.
 *
 * In: names of hosts and interfaces, ports. Out: descriptors that do not block; reads and writes
 * that are whole or fail. The one idea: nothing here waits without a deadline, but for names
 * (getaddrinfo has its own).
 */
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/comm.h"

static int close_with(int fd, int error)
{
    (void)close(fd);
    errno = error;
    return -1;
}

static int new_socket(int family)
{
    const int on = 1, fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

/* Until the descriptor is ready, or the deadline; 0, or -1. */
static int wait_for(int fd, short events, double deadline)
{
    for (;;) {
        struct pollfd poll_fd = { .fd = fd, .events = events };
        const double left = deadline - rt_now();
        if (left <= 0) {
            errno = ETIMEDOUT;
            return -1;
        }
        const int n = poll(&poll_fd, 1, left > 1 ? 1000 : (int)(left * 1000) + 1);
        if (n > 0)
            return 0;
        if (n < 0 && errno != EINTR)
            return -1;
    }
}

/* ---- listen ---------------------------------------------------------------------------------- */

static void set_port(struct sockaddr_storage *at, int port)
{
    if (at->ss_family == AF_INET)
        ((struct sockaddr_in *)(void *)at)->sin_port = htons((uint16_t)port);
    else
        ((struct sockaddr_in6 *)(void *)at)->sin6_port = htons((uint16_t)port);
}

static int port_of(const struct sockaddr_storage *at)
{
    return ntohs(at->ss_family == AF_INET
                     ? ((const struct sockaddr_in *)(const void *)at)->sin_port
                     : ((const struct sockaddr_in6 *)(const void *)at)->sin6_port);
}

static socklen_t size_of(const struct sockaddr_storage *at)
{
    return at->ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
}

/* An address of that interface, of IPv4 if it has one; false: there is no such interface, or it has
   none. */
static bool interface_address(const char *name, struct sockaddr_storage *to)
{
    struct ifaddrs *all;
    bool found = false;
    if (getifaddrs(&all))
        return false;
    for (int family = 0; family < 2 && !found; family++)
        for (const struct ifaddrs *i = all; i && !found; i = i->ifa_next) {
            const int wanted = family ? AF_INET6 : AF_INET;
            if (!i->ifa_addr || i->ifa_addr->sa_family != wanted || strcmp(i->ifa_name, name) != 0)
                continue;
            memset(to, 0, sizeof *to);
            memcpy(to, i->ifa_addr,
                   family ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in));
            found = true;
        }
    freeifaddrs(all);
    return found;
}

/* The names of all interfaces, for a message. */
static const char *interface_names(void)
{
    struct ifaddrs *all;
    char *text = rt_printf("%s", "");
    if (getifaddrs(&all))
        return rt_keep(text);
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET)
            continue;
        char *more = rt_printf("%s%s%s", text, *text ? ", " : "", i->ifa_name);
        rt_free(text);
        text = more;
    }
    freeifaddrs(all);
    return rt_keep(text);
}

static int listen_at(struct sockaddr_storage *at, int *port)
{
    const int on = 1, off = 0, fd = new_socket(at->ss_family);
    socklen_t n = sizeof *at;
    if (fd < 0)
        return -1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (at->ss_family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    set_port(at, *port);
    if (bind(fd, (const struct sockaddr *)at, size_of(at)) || listen(fd, SOMAXCONN)
        || getsockname(fd, (struct sockaddr *)at, &n))
        return close_with(fd, errno);
    *port = port_of(at);
    return fd;
}

static void need_address(const char *interface, struct sockaddr_storage *to)
{
    if (!interface_address(interface, to))
        rt_fail(RT_EXIT_USAGE,
                "--interface %s: this host has no interface of that name with an address\nhint: it "
                "has %s",
                interface, interface_names());
}

void rt_net_check(const char *interface)
{
    struct sockaddr_storage unused;
    if (interface)
        need_address(interface, &unused);
}

int rt_net_listen(const char *interface, int *port)
{
    struct sockaddr_storage at = { .ss_family = AF_INET6 }; /* of both families */
    if (interface)
        need_address(interface, &at);
    const int fd = listen_at(&at, port);
    if (fd >= 0 || interface || (errno != EAFNOSUPPORT && errno != EADDRNOTAVAIL))
        return fd;
    at = (struct sockaddr_storage){ .ss_family = AF_INET }; /* a host without IPv6 */
    return listen_at(&at, port);
}

/* ---- connect --------------------------------------------------------------------------------- */

static int connect_to(const struct addrinfo *to, double deadline)
{
    const int fd = new_socket(to->ai_family);
    int error = 0;
    socklen_t n = sizeof error;
    if (fd < 0)
        return -1;
    if (connect(fd, to->ai_addr, to->ai_addrlen) == 0)
        return fd;
    if (errno != EINPROGRESS || wait_for(fd, POLLOUT, deadline))
        return close_with(fd, errno);
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n) || error)
        return close_with(fd, error ? error : errno);
    return fd;
}

int rt_net_connect(const char *host, int port, double deadline)
{
    struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM }, *found;
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    const int error = getaddrinfo(host, service, &hints, &found);
    if (error) { /* names may be known later, as those of containers that start */
        errno = EHOSTUNREACH;
        return -1;
    }
    int fd = -1, left = 0;
    for (const struct addrinfo *to = found; to; to = to->ai_next)
        left++;
    for (const struct addrinfo *to = found; to && fd < 0; to = to->ai_next, left--) {
        const double now = rt_now();
        fd = connect_to(to, now + (deadline - now) / left);
    }
    const int why = errno;
    freeaddrinfo(found);
    errno = why;
    return fd;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

int rt_net_read(int fd, void *to, size_t n, double deadline)
{
    char *at = to;
    while (n > 0) {
        const ssize_t got = recv(fd, at, n, 0);
        if (got > 0) {
            at += got;
            n -= (size_t)got;
        } else if (got == 0) {
            errno = ECONNRESET; /* the other end is closed */
            return -1;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            if (wait_for(fd, POLLIN, deadline))
                return -1;
        } else if (errno != EINTR) {
            return -1;
        }
    }
    return 0;
}

int rt_net_write(int fd, const void *from, size_t n, double deadline)
{
    const char *at = from;
    while (n > 0) {
        const ssize_t put = send(fd, at, n, MSG_NOSIGNAL);
        if (put >= 0) {
            at += put;
            n -= (size_t)put;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            if (wait_for(fd, POLLOUT, deadline))
                return -1;
        } else if (errno != EINTR) {
            return -1;
        }
    }
    return 0;
}

/* ---- addresses of this host ------------------------------------------------------------------ */

static const char *text_of(const struct sockaddr *at, char text[64])
{
    char host[48] = "?";
    const socklen_t n = at->sa_family == AF_INET ? sizeof(struct sockaddr_in)
                                                 : sizeof(struct sockaddr_in6);
    (void)getnameinfo(at, n, host, sizeof host, NULL, 0, NI_NUMERICHOST);
    snprintf(text, 64, "%s", strncmp(host, "::ffff:", 7) == 0 ? host + 7 : host);
    return text;
}

const char *rt_net_own(int fd, char text[64])
{
    struct sockaddr_storage at = { .ss_family = AF_INET };
    socklen_t n = sizeof at;
    (void)getsockname(fd, (struct sockaddr *)&at, &n);
    return text_of((const struct sockaddr *)&at, text);
}

static int add(char to[][64], int n, int most, const char *text)
{
    for (int i = 0; i < n; i++)
        if (strcmp(to[i], text) == 0)
            return n;
    if (n < most)
        snprintf(to[n++], 64, "%s", text);
    return n;
}

/* From where this host would speak to one far away; false: it would not. Nothing is sent. */
static bool way_out(int family, char text[64])
{
    struct addrinfo hints = { .ai_family = family, .ai_socktype = SOCK_DGRAM }, *far;
    const char *nobody = family == AF_INET ? "192.0.2.1" : "2001:db8::1"; /* of documentation */
    hints.ai_flags = AI_NUMERICHOST;
    if (getaddrinfo(nobody, "9", &hints, &far))
        return false;
    const int fd = socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const bool found = fd >= 0 && connect(fd, far->ai_addr, far->ai_addrlen) == 0;
    if (found)
        (void)rt_net_own(fd, text);
    if (fd >= 0)
        (void)close(fd);
    freeaddrinfo(far);
    return found;
}

/* One that other hosts may know. */
static bool is_outward(const struct ifaddrs *i, int family)
{
    const struct sockaddr *at = i->ifa_addr;
    if (!at || at->sa_family != family || !(i->ifa_flags & IFF_UP) || (i->ifa_flags & IFF_LOOPBACK))
        return false;
    return family == AF_INET
           || !IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)(const void *)at)->sin6_addr);
}

int rt_net_addresses(char to[][64], int most)
{
    static const int families[] = { AF_INET, AF_INET6 };
    struct ifaddrs *all = NULL;
    char text[64];
    int n = 0;
    for (int f = 0; f < 2; f++)
        if (way_out(families[f], text))
            n = add(to, n, most, text);
    (void)getifaddrs(&all);
    for (int f = 0; f < 2; f++)
        for (const struct ifaddrs *i = all; i; i = i->ifa_next)
            if (is_outward(i, families[f]))
                n = add(to, n, most - 2, text_of(i->ifa_addr, text));
    if (all)
        freeifaddrs(all);
    n = add(to, n, most, "127.0.0.1");
    return add(to, n, most, "::1");
}
