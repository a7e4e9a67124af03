/* SPDX-License-Identifier: MIT
 *
 * relay.h - a wire to a port of 127.0.0.1 that can be cut or pinched.
 *
 * It knows nothing of what it carries, so it does for TLS what the proxy does
 * for the protocol: cuts a record in the middle, or lets it through byte by
 * byte. One thread, a few connections.
 */
#ifndef DIBS_TESTS_SERVER_RELAY_H
#define DIBS_TESTS_SERVER_RELAY_H

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/kit.h"

enum { RELAY_MAX = 8 };

struct relay {
    int fd, port, to;
    atomic_long left;   /* bytes of the server that still get through; then
                           the connection is cut, or frozen */
    atomic_bool freeze; /* what is behind them waits instead */
    atomic_int drip_ms; /* one byte every so often; 0 = as they come */
    atomic_bool stop;
    pthread_t thread;
    int client[RELAY_MAX], server[RELAY_MAX];
};

#define RELAY_ALL 1000000000L

static inline int relay_dial(int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || connect(fd, (struct sockaddr *)&at, sizeof at) != 0)
        ts_fatal("no connection to the server");
    return fd;
}

static inline void relay_cut(struct relay *r, int i)
{
    if (r->client[i] >= 0) {
        close(r->client[i]);
        close(r->server[i]);
    }
    r->client[i] = r->server[i] = -1;
}

static inline void relay_up(struct relay *r, int i)
{
    char bytes[4096];
    ssize_t n = recv(r->client[i], bytes, sizeof bytes, MSG_DONTWAIT);

    if (n <= 0 || !ts_tell(r->server[i], bytes, (size_t)n))
        relay_cut(r, i);
}

static inline void relay_down(struct relay *r, int i)
{
    char bytes[4096];
    long left = atomic_load(&r->left);
    int drip = atomic_load(&r->drip_ms);
    size_t most = drip ? 1 : sizeof bytes;

    if (left <= 0) {
        relay_cut(r, i);
        return;
    }
    most = left < (long)most ? (size_t)left : most;
    ssize_t n = recv(r->server[i], bytes, most, MSG_DONTWAIT);
    /* Counted before anybody can act on them. */
    if (n > 0)
        atomic_fetch_sub(&r->left, n);
    if (n <= 0 || !ts_tell(r->client[i], bytes, (size_t)n)) {
        relay_cut(r, i);
        return;
    }
    if (drip)
        poll(NULL, 0, drip);
}

static inline void *relay_main(void *arg)
{
    struct relay *r = arg;

    while (!atomic_load(&r->stop)) {
        struct pollfd p[1 + 2 * RELAY_MAX] = {{.fd = r->fd, .events = POLLIN}};
        bool frozen = atomic_load(&r->freeze) && atomic_load(&r->left) <= 0;

        for (int i = 0; i < RELAY_MAX; i++) {
            p[1 + i] = (struct pollfd){.fd = r->client[i], .events = POLLIN};
            p[1 + RELAY_MAX + i] = (struct pollfd){
                .fd = frozen ? -1 : r->server[i], .events = POLLIN};
        }
        poll(p, COUNT(p), 10);
        for (int i = 0; i < RELAY_MAX; i++) {
            if (p[1 + i].revents)
                relay_up(r, i);
            if (p[1 + RELAY_MAX + i].revents && r->server[i] >= 0)
                relay_down(r, i);
        }
        for (int i = 0; i < RELAY_MAX && p[0].revents; i++)
            if (r->client[i] < 0) {
                r->client[i] = accept4(r->fd, NULL, NULL, SOCK_CLOEXEC);
                r->server[i] = r->client[i] < 0 ? -1 : relay_dial(r->to);
                break;
            }
    }
    for (int i = 0; i < RELAY_MAX; i++)
        relay_cut(r, i);
    return NULL;
}

static inline void relay_start(struct relay *r, int to)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;

    memset(r, 0, sizeof *r);
    r->to = to;
    atomic_store(&r->left, RELAY_ALL);
    for (int i = 0; i < RELAY_MAX; i++)
        r->client[i] = r->server[i] = -1;
    r->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (r->fd < 0 || bind(r->fd, (struct sockaddr *)&at, len) != 0 ||
        listen(r->fd, RELAY_MAX) != 0 ||
        getsockname(r->fd, (struct sockaddr *)&at, &len) != 0)
        ts_fatal("no listener");
    r->port = ntohs(at.sin_port);
    if (pthread_create(&r->thread, NULL, relay_main, r) != 0)
        ts_fatal("no thread");
}

static inline void relay_stop(struct relay *r)
{
    atomic_store(&r->stop, true);
    pthread_join(r->thread, NULL);
    close(r->fd);
}

#endif
