/* SPDX-License-Identifier: MIT
 *
 * wrap_net.c - sockets and names as the library meets them in the simulated
 * world. A descriptor above SIM_FD_FIRST is one of ours; those below are real,
 * and left to the system.
 *
 * Beyond a good day: send takes only a part now and then, and recv gives only
 * some of the bytes that are there. Both are allowed, and seldom met.
 */
#include "sim/fiber.h"
#include "sim/net.h"
#include "sim/wrap.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#define SOCKS_MAX    262144
#define SHORT_ONE_IN 40

enum sock_state { FRESH, CONNECTING, UP, FAILED };

struct sim_sock {
    int fd;
    bool event; /* an eventfd; count counts */
    uint64_t count;
    enum sock_state state;
    int error_number;
    bool nonblock, ended;
    int64_t patience_us; /* of a receive; 0 = for ever */
    struct sim_proc *proc;
    struct sim_link *link;
    const void *polled_by;
    const void *waited_by; /* a poll of several */
    char *in;
    size_t start, len, cap;
};

static struct sim_sock *socks[SOCKS_MAX];
static int nsocks;

struct sim_sock *sim_sock_of(int fd)
{
    int i = fd - SIM_FD_FIRST;

    return i >= 0 && i < nsocks ? socks[i] : NULL;
}

static struct sim_sock *sock_new(void)
{
    if (nsocks == SOCKS_MAX)
        sim_die("too many sockets");
    struct sim_sock *s = calloc(1, sizeof *s);
    s->proc = sim_proc_self();
    s->fd = SIM_FD_FIRST + nsocks;
    socks[nsocks++] = s;
    s->proc->sockets++;
    return s;
}

static int fails(int error_number)
{
    errno = error_number;
    return -1;
}

/* ---- what happens to it ------------------------------------------------ */

int sim_sock_events(const struct sim_sock *s)
{
    if (s->event)
        return s->count ? UV_READABLE : 0;
    if (s->state == FAILED)
        return UV_READABLE | UV_WRITABLE;
    if (s->state != UP)
        return 0;
    return UV_WRITABLE | (s->len > 0 || s->ended ? UV_READABLE : 0);
}

void sim_sock_polled(struct sim_sock *s, const void *by)
{
    s->polled_by = by;
}

void sim_poll_changed(struct sim_sock *s)
{
    sim_wake(s, 100);
    if (s->polled_by)
        sim_wake(s->polled_by, 1);
    if (s->waited_by)
        sim_wake(s->waited_by, 1);
}

void sim_sock_up(struct sim_sock *s)
{
    s->state = UP;
    sim_poll_changed(s);
}

void sim_sock_failed(struct sim_sock *s, int error_number)
{
    s->error_number = s->state == CONNECTING && error_number == ECONNRESET
                          ? ECONNREFUSED
                          : error_number;
    s->state = FAILED;
    sim_poll_changed(s);
}

void sim_sock_ended(struct sim_sock *s)
{
    s->ended = true;
    sim_poll_changed(s);
}

/* Nothing comes behind a reset. */
void sim_sock_arrived(struct sim_sock *s, const void *bytes, size_t n)
{
    if (s->state == FAILED)
        return;
    if (s->start > 0) {
        memmove(s->in, s->in + s->start, s->len);
        s->start = 0;
    }
    if (s->len + n > s->cap) {
        s->cap = (s->len + n) * 2;
        s->in = realloc(s->in, s->cap);
    }
    memcpy(s->in + s->len, bytes, n);
    s->len += n;
    sim_poll_changed(s);
}

void sim_hang_up_all(struct sim_proc *p)
{
    for (int i = 0; i < nsocks; i++)
        if (socks[i] && socks[i]->proc == p)
            __wrap_close(socks[i]->fd);
}

/* ---- calls ------------------------------------------------------------- */

int __wrap_socket(int family, int type, int protocol)
{
    (void)family;
    (void)protocol;
    if (sim_memory_short())
        return fails(EMFILE);
    struct sim_sock *s = sock_new();
    s->nonblock = (type & SOCK_NONBLOCK) != 0;
    return s->fd;
}

int __wrap_connect(int fd, const struct sockaddr *to, socklen_t len)
{
    struct sim_sock *s = sim_sock_of(fd);
    const struct sockaddr_in *in = (const void *)to;
    char host[INET_ADDRSTRLEN];

    (void)len;
    if (to->sa_family != AF_INET)
        return fails(ENOENT);
    inet_ntop(AF_INET, &in->sin_addr, host, sizeof host);
    struct sim_server *sv = sim_server_at(host, ntohs(in->sin_port));
    if (!sv)
        return fails(ENETUNREACH);
    s->state = CONNECTING;
    s->link = sim_link_new(sv, s, s->proc);
    return fails(EINPROGRESS);
}

int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *len)
{
    struct sim_sock *s = sim_sock_of(fd);
    int zero = 0;

    (void)level;
    memcpy(value,
           name == SO_ERROR && s->state == FAILED ? &s->error_number : &zero,
           sizeof zero);
    *len = sizeof zero;
    return 0;
}

int __wrap_setsockopt(int fd, int level, int name, const void *value,
                      socklen_t len)
{
    struct timeval tv;

    (void)len;
    if (level == SOL_SOCKET && name == SO_RCVTIMEO) {
        memcpy(&tv, value, sizeof tv);
        sim_sock_of(fd)->patience_us =
            (int64_t)tv.tv_sec * 1000000 + tv.tv_usec;
    }
    return 0;
}

/* A real descriptor is the system's: a file of counts, say, and its lock. */
static int change_flags(int fd, int what, void *arg)
{
    struct sim_sock *s = sim_sock_of(fd);

    if (!s && fd < SIM_FD_FIRST)
        return __real_fcntl(fd, what, arg);
    if (s && what == F_GETFL)
        return O_RDWR | (s->nonblock ? O_NONBLOCK : 0);
    if (s && what == F_SETFL)
        s->nonblock = ((intptr_t)arg & O_NONBLOCK) != 0;
    return 0;
}

int __wrap_fcntl(int fd, int what, ...)
{
    va_list list;

    va_start(list, what);
    void *arg = va_arg(list, void *);
    va_end(list);
    return change_flags(fd, what, arg);
}

int __wrap_fcntl64(int fd, int what, ...)
{
    va_list list;

    va_start(list, what);
    void *arg = va_arg(list, void *);
    va_end(list);
    return change_flags(fd, what, arg);
}

/* Whoever waits for bytes finds the end. */
int __wrap_shutdown(int fd, int how)
{
    struct sim_sock *s = sim_sock_of(fd);

    (void)how;
    if (s)
        sim_sock_ended(s);
    return s ? 0 : fails(ENOTCONN);
}

ssize_t __wrap_send(int fd, const void *p, size_t n, int flags)
{
    struct sim_sock *s = sim_sock_of(fd);

    (void)flags;
    sim_preempt();
    if (s->state == FAILED)
        return fails(s->error_number);
    if (s->state != UP)
        return fails(ENOTCONN);
    if (s->ended && sim_once_in(&sim_luck, 2))
        return fails(EPIPE);
    if (n > 1 && sim_once_in(&sim_luck, SHORT_ONE_IN))
        n = (size_t)sim_between(&sim_luck, 1, (int64_t)n);
    sim_link_send(s->link, p, n);
    return (ssize_t)n;
}

static ssize_t take_bytes(struct sim_sock *s, void *p, size_t n, bool peek)
{
    n = n < s->len ? n : s->len;
    if (n > 1 && sim_once_in(&sim_luck, SHORT_ONE_IN))
        n = (size_t)sim_between(&sim_luck, 1, (int64_t)n);
    memcpy(p, s->in + s->start, n);
    if (!peek) {
        s->start += n;
        s->len -= n;
    }
    return (ssize_t)n;
}

ssize_t __wrap_recv(int fd, void *p, size_t n, int flags)
{
    struct sim_sock *s = sim_sock_of(fd);
    bool wait = !s->nonblock && !(flags & MSG_DONTWAIT);
    int64_t until = s->patience_us ? sim_now() + s->patience_us : SIM_NEVER;

    sim_preempt();
    for (;;) {
        if (s->len > 0)
            return take_bytes(s, p, n, (flags & MSG_PEEK) != 0);
        if (s->state == FAILED)
            return fails(s->error_number);
        if (s->ended)
            return 0;
        if (s->state != UP)
            return fails(ENOTCONN);
        if (!wait || !sim_block(s, until))
            return fails(EAGAIN);
    }
}

/* How many have something. by: who is woken when that changes. */
static int look_at_socks(struct pollfd *fds, nfds_t n, const void *by)
{
    int ready = 0;

    for (nfds_t i = 0; i < n; i++) {
        struct sim_sock *s = sim_sock_of(fds[i].fd);
        if (!s)
            sim_die("poll of something that is not a socket");
        int events = sim_sock_events(s);
        fds[i].revents = 0;
        if ((events & UV_READABLE) && (fds[i].events & POLLIN))
            fds[i].revents |= POLLIN;
        if ((events & UV_WRITABLE) && (fds[i].events & POLLOUT))
            fds[i].revents |= POLLOUT;
        ready += fds[i].revents != 0;
        s->waited_by = by;
    }
    return ready;
}

int __wrap_poll(struct pollfd *fds, nfds_t n, int ms)
{
    int64_t until = ms < 0 ? SIM_NEVER : sim_now() + (int64_t)ms * 1000;
    int ready = 0;

    sim_preempt();
    while ((ready = look_at_socks(fds, n, fds)) == 0 && sim_block(fds, until))
        ;
    (void)look_at_socks(fds, n, NULL);
    return ready;
}

int __wrap_eventfd(unsigned first, int flags)
{
    (void)first;
    (void)flags;
    if (sim_memory_short())
        return fails(EMFILE);
    struct sim_sock *s = sock_new();
    s->event = true;
    s->state = UP;
    return s->fd;
}

ssize_t __wrap_read(int fd, void *p, size_t n)
{
    struct sim_sock *s = sim_sock_of(fd);

    if (!s)
        return __real_read(fd, p, n);
    if (!s->event)
        return __wrap_recv(fd, p, n, 0);
    if (s->count == 0)
        return fails(EAGAIN);
    memcpy(p, &s->count, sizeof s->count);
    s->count = 0;
    return sizeof s->count;
}

ssize_t __wrap_write(int fd, const void *p, size_t n)
{
    struct sim_sock *s = sim_sock_of(fd);
    uint64_t more;

    if (!s)
        return __real_write(fd, p, n);
    if (!s->event)
        return __wrap_send(fd, p, n, 0);
    memcpy(&more, p, sizeof more);
    s->count += more;
    sim_poll_changed(s);
    return sizeof more;
}

int __wrap_close(int fd)
{
    struct sim_sock *s = sim_sock_of(fd);

    if (fd < SIM_FD_FIRST)
        return __real_close(fd);
    if (!s)
        sim_die("descriptor %d is closed twice", fd);
    if (s->link)
        sim_link_close(s->link);
    s->proc->sockets--;
    socks[fd - SIM_FD_FIRST] = NULL;
    free(s->in);
    free(s);
    return 0;
}

/* ---- names ------------------------------------------------------------- */

struct found {
    struct addrinfo info;
    struct sockaddr_in in;
};

/* Names are addresses here; looking one up takes its time all the same. */
int __wrap_getaddrinfo(const char *host, const char *port,
                       const struct addrinfo *want, struct addrinfo **out)
{
    struct found *f;

    (void)want;
    sim_sleep(sim_skewed(&sim_luck, 20000) + 10);
    f = calloc(1, sizeof *f);
    f->in.sin_family = AF_INET;
    f->in.sin_port = htons((uint16_t)atoi(port));
    if (inet_pton(AF_INET, host, &f->in.sin_addr) != 1) {
        free(f);
        return EAI_NONAME;
    }
    f->info.ai_family = AF_INET;
    f->info.ai_socktype = SOCK_STREAM;
    f->info.ai_addr = (struct sockaddr *)&f->in;
    f->info.ai_addrlen = sizeof f->in;
    *out = &f->info;
    return 0;
}

void __wrap_freeaddrinfo(struct addrinfo *a)
{
    free(a);
}

/* The same in every run: both are part of what a connection is called. */
int __wrap_gethostname(char *name, size_t size)
{
    snprintf(name, size, "sim");
    return 0;
}

pid_t __wrap_getpid(void)
{
    return 4711;
}
