/* SPDX-License-Identifier: MIT
 *
 * fake_redis_main.c - the small Redis as a program, sim_redis, on real sockets
 * and by the real clock: so that tests written for redis-server can be run
 * against it (SERVER=sim_redis), which is why it is believed.
 *
 *     sim_redis --port 7000 --unixsocket /tmp/x.sock [--name value ...]
 *
 * One thread, poll. Other names are settings, as far as it knows them.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "sim/redis.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define MAX_CLIENTS 4000

struct front {
    struct sr_server *s;
    const char *path;
    int port;
    struct pollfd fds[MAX_CLIENTS + 2]; /* TCP, Unix, clients */
    struct sr_session *sessions[MAX_CLIENTS + 2];
    nfds_t n;
};

static int64_t now_us(void *arg)
{
    struct timespec t;

    (void)arg;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

_Noreturn static void die(const char *what)
{
    fprintf(stderr, "sim_redis: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* ---- sockets ----------------------------------------------------------- */

static int listen_tcp(int port)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) ||
        bind(fd, (struct sockaddr *)&a, sizeof a) || listen(fd, 511))
        die("cannot listen");
    return fd;
}

static int listen_unix(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    unlink(path);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) || listen(fd, 511))
        die("cannot listen");
    return fd;
}

static void accept_one(struct front *f, int at)
{
    struct sockaddr_in a;
    socklen_t len = sizeof a;
    char host[64], addr[200];
    int on = 1;
    int fd = accept4(f->fds[at].fd, at == 0 ? (struct sockaddr *)&a : NULL,
                     at == 0 ? &len : NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd < 0)
        return;
    if (f->n == MAX_CLIENTS + 2) {
        close(fd);
        return;
    }
    snprintf(addr, sizeof addr, "%s:0", f->path);
    if (at == 0) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        inet_ntop(AF_INET, &a.sin_addr, host, sizeof host);
        snprintf(addr, sizeof addr, "%s:%d", host, ntohs(a.sin_port));
    }
    f->fds[f->n] = (struct pollfd){.fd = fd, .events = POLLIN};
    f->sessions[f->n++] = sr_open(f->s, addr);
}

static void hang_up(struct front *f, nfds_t i)
{
    close(f->fds[i].fd);
    sr_close(f->sessions[i]);
    f->n--;
    f->fds[i] = f->fds[f->n];
    f->sessions[i] = f->sessions[f->n];
}

/* ---- bytes ------------------------------------------------------------- */

/* False: the client is gone. */
static bool read_some(struct front *f, nfds_t i)
{
    char bytes[65536];
    ssize_t n = recv(f->fds[i].fd, bytes, sizeof bytes, 0);

    if (n > 0)
        sr_feed(f->sessions[i], bytes, (size_t)n);
    return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

/* All that can be sent now. False: the client is gone, or is to go. */
static bool write_some(struct front *f, nfds_t i)
{
    struct sr_session *c = f->sessions[i];
    char bytes[65536];

    while (sr_waiting(c) > 0) {
        size_t all = sr_peek(c, bytes, sizeof bytes);
        ssize_t n = send(f->fds[i].fd, bytes, all, MSG_NOSIGNAL);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            break;
        if (n < 0)
            return false;
        sr_take(c, bytes, (size_t)n);
    }
    f->fds[i].events = sr_waiting(c) ? POLLIN | POLLOUT : POLLIN;
    return sr_waiting(c) > 0 || !sr_ended(c);
}

static void serve(struct front *f)
{
    int64_t next = sr_next(f->s), now = now_us(NULL) / 1000;
    int patience = next < 0 ? -1 : next <= now ? 0 : (int)(next - now);

    if (poll(f->fds, f->n, patience) < 0 && errno != EINTR)
        die("poll");
    nfds_t n = f->n; /* those who are accepted now come next time */
    for (nfds_t i = n; i-- > 2;)
        if (f->fds[i].revents && !read_some(f, i))
            hang_up(f, i);
    for (int i = 0; i < 2; i++)
        if (f->fds[i].revents)
            accept_one(f, i);
    sr_tick(f->s);
    for (nfds_t i = f->n; i-- > 2;)
        if (!write_some(f, i))
            hang_up(f, i);
}

/* ---- arguments --------------------------------------------------------- */

static void set(struct front *f, const char *name, const char *value)
{
    char text[1000], reply[1000];
    struct sr_session *c = sr_open(f->s, "");
    int n = snprintf(text, sizeof text,
                     "*4\r\n$6\r\nCONFIG\r\n$3\r\nSET\r\n$%zu\r\n%s\r\n$%zu"
                     "\r\n%s\r\n",
                     strlen(name), name, strlen(value), value);

    sr_feed(c, text, (size_t)n);
    sr_take(c, reply, sizeof reply);
    if (reply[0] == '-')
        fprintf(stderr, "sim_redis: %s is not known here\n", name);
    sr_close(c);
}

int main(int argc, char **argv)
{
    static struct front f;

    f.path = "/tmp/sim_redis.sock";
    f.port = 6379;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--port") == 0)
            f.port = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--unixsocket") == 0)
            f.path = argv[i + 1];
    }
    struct sr_config config = {
        .now_us = now_us, .port = f.port, .seed = (uint64_t)now_us(NULL)};
    f.s = sr_server_new(&config);
    for (int i = 1; i + 1 < argc; i++)
        if (strncmp(argv[i], "--", 2) == 0)
            set(&f, argv[i] + 2, argv[i + 1]);
    sr_restart(f.s, NULL); /* numbers begin with the first client */
    f.fds[0] = (struct pollfd){.fd = listen_tcp(f.port), .events = POLLIN};
    f.fds[1] = (struct pollfd){.fd = listen_unix(f.path), .events = POLLIN};
    f.n = 2;
    signal(SIGPIPE, SIG_IGN);
    for (;;)
        serve(&f);
}
