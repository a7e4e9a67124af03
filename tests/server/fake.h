/* SPDX-License-Identifier: MIT
 *
 * fake.h - a listener that is no server: whatever connects gets the same bytes.
 *
 * One thread, any number of connections. It reads what comes and throws it
 * away; the answer goes out when the first bytes have come.
 */
#ifndef DIBS_TESTS_SERVER_FAKE_H
#define DIBS_TESTS_SERVER_FAKE_H

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/kit.h"

struct fake {
    int fd, port;
    const char *answer; /* NULL: none */
    bool hang_up;       /* close behind the answer */
    atomic_bool stop;
    pthread_t thread;
    char url[64];
};

enum { FAKE_MAX = 16 };

static inline void fake_answer(const struct fake *f, int *fd)
{
    char bytes[4096];

    if (recv(*fd, bytes, sizeof bytes, MSG_DONTWAIT) <= 0) {
        close(*fd);
        *fd = -1;
        return;
    }
    if (f->answer)
        ts_tell(*fd, f->answer, strlen(f->answer));
    if (f->hang_up)
        shutdown(*fd, SHUT_WR);
}

static inline void *fake_main(void *arg)
{
    struct fake *f = arg;
    struct pollfd p[FAKE_MAX];

    p[0] = (struct pollfd){.fd = f->fd, .events = POLLIN};
    for (int i = 1; i < FAKE_MAX; i++)
        p[i] = (struct pollfd){.fd = -1, .events = POLLIN};
    while (!atomic_load(&f->stop)) {
        poll(p, FAKE_MAX, 10);
        for (int i = 1; i < FAKE_MAX; i++) {
            if (p[i].fd < 0)
                p[i].fd = accept4(f->fd, NULL, NULL, SOCK_CLOEXEC);
            else if (p[i].revents)
                fake_answer(f, &p[i].fd);
            p[i].revents = 0;
        }
    }
    for (int i = 1; i < FAKE_MAX; i++)
        if (p[i].fd >= 0)
            close(p[i].fd);
    return NULL;
}

static inline void fake_start(struct fake *f, const char *answer, bool hang_up)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;

    memset(f, 0, sizeof *f);
    f->answer = answer;
    f->hang_up = hang_up;
    f->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (f->fd < 0 || bind(f->fd, (struct sockaddr *)&at, len) != 0 ||
        listen(f->fd, FAKE_MAX) != 0 ||
        getsockname(f->fd, (struct sockaddr *)&at, &len) != 0)
        ts_fatal("no listener");
    f->port = ntohs(at.sin_port);
    snprintf(f->url, sizeof f->url, "redis://127.0.0.1:%d", f->port);
    if (pthread_create(&f->thread, NULL, fake_main, f) != 0)
        ts_fatal("no thread");
}

static inline void fake_stop(struct fake *f)
{
    atomic_store(&f->stop, true);
    pthread_join(f->thread, NULL);
    close(f->fd);
}

#endif
