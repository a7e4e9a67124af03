/* SPDX-License-Identifier: MIT
 *
 * proxy.c - the fault proxy: its life, its thread, its doors, its switches.
 *
 * Thread  One of its own, a single poll loop: it accepts clients and serves
 *         all links (proxy_link.c). Each round looks at every link, not only
 *         at those that poll named: a rule or a switch may have changed what
 *         they may do, and there are never many.
 * Locks   p.mu, held by the thread except while it polls. The others take it
 *         to change or read what is there and then wake the thread; where the
 *         change must have happened before the call returns, they wait for a
 *         whole round.
 *
 * Doors   A Unix socket in the server's folder, which goes when the server
 *         goes, and a TCP port that stays ours while the door is shut.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "support/proxy_impl.h"
#include "support/server_impl.h"
#include "support/util.h"

/* ---- the doors --------------------------------------------------------- */

static int open_door(const struct sockaddr *a, socklen_t len)
{
    int on = 1;
    int fd =
        socket(a->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0 ||
        bind(fd, a, len) < 0 || listen(fd, 511) < 0)
        ts_fatal("the proxy cannot listen: %s", strerror(errno));
    return fd;
}

static void open_doors(struct ts_proxy *p)
{
    struct sockaddr_un u = {.sun_family = AF_UNIX};
    struct sockaddr_in t = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)p->port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

    strncpy(u.sun_path, p->socket, sizeof u.sun_path - 1);
    unlink(p->socket);
    p->doors[0] = open_door((struct sockaddr *)&u, sizeof u);
    p->doors[1] = open_door((struct sockaddr *)&t, sizeof t);
}

/* A forked child may have copies; shutdown shuts those too. */
static void shut_doors(struct ts_proxy *p)
{
    for (int i = 0; i < 2; i++) {
        if (p->doors[i] < 0)
            continue;
        shutdown(p->doors[i], SHUT_RDWR);
        close(p->doors[i]);
        p->doors[i] = -1;
    }
}

static void accept_all(struct ts_proxy *p)
{
    for (int i = 0; i < 2; i++)
        while (p->doors[i] >= 0) {
            int fd =
                accept4(p->doors[i], NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
            if (fd < 0)
                break;
            ts__link_open(p, fd, i == 1);
        }
}

/* ---- the thread -------------------------------------------------------- */

/* Locks: needs p.mu. Returns when to look again at the latest. */
static int64_t fill_polls(struct ts_proxy *p, size_t links)
{
    const size_t fixed = 3;
    int64_t due = INT64_MAX;
    size_t n = fixed;

    p->n_polls = fixed + 2 * links;
    p->polls = realloc(p->polls, p->n_polls * sizeof *p->polls);
    if (!p->polls)
        ts_fatal("out of memory");
    p->polls[0] = (struct pollfd){.fd = p->wake, .events = POLLIN};
    p->polls[1] = (struct pollfd){.fd = p->doors[0], .events = POLLIN};
    p->polls[2] = (struct pollfd){.fd = p->doors[1], .events = POLLIN};
    for (struct link *l = p->links; l; l = ts__link_next(l), n += 2) {
        int64_t when = ts__link_polls(l, &p->polls[n]);
        due = when < due ? when : due;
    }
    return due;
}

/* Locks: needs p.mu, gives it away meanwhile. */
static void poll_once(struct ts_proxy *p, int64_t due)
{
    const int64_t most = 60000;
    int64_t left = due - ts_now_ms();
    uint64_t n;

    left = left > most ? most : left < 0 ? 0 : left;
    pthread_mutex_unlock(&p->mu);
    if (poll(p->polls, p->n_polls, (int)left) < 0 && errno != EINTR)
        ts_fatal("poll: %s", strerror(errno));
    pthread_mutex_lock(&p->mu);
    if (p->polls[0].revents && read(p->wake, &n, sizeof n) < 0)
        ts_fatal("eventfd: %s", strerror(errno));
}

/* Since they were polled, links have neither come nor gone: new ones are let
 * in afterwards. Locks: needs p.mu. */
static void serve_links(struct ts_proxy *p)
{
    const struct pollfd *f = p->polls + 3;

    for (struct link *l = p->links; l; l = ts__link_next(l), f += 2)
        ts__link_serve(l, f[0].revents, f[1].revents);
    accept_all(p);
}

/* Locks: needs p.mu. */
static void obey(struct ts_proxy *p)
{
    if (p->kill)
        for (struct link *l = p->links; l; l = ts__link_next(l))
            ts__link_kill(l, p->kill_rst);
    p->kill = false;
    if (p->refuse)
        shut_doors(p);
    else if (p->doors[0] < 0)
        open_doors(p);
}

static void *run(void *arg)
{
    struct ts_proxy *p = arg;

    pthread_mutex_lock(&p->mu);
    while (!p->stop) {
        size_t links = ts__links_sweep(p);
        int64_t due = fill_polls(p, links);
        poll_once(p, due);
        unsigned asked = p->asked;
        serve_links(p);
        obey(p);
        p->seen = asked;
        pthread_cond_broadcast(&p->changed);
    }
    pthread_mutex_unlock(&p->mu);
    return NULL;
}

/* ---- its life ---------------------------------------------------------- */

static void start_thread(struct ts_proxy *p)
{
    sigset_t all, before;
    pthread_condattr_t attr;

    pthread_mutex_init(&p->mu, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&p->changed, &attr);
    pthread_condattr_destroy(&attr);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&p->thread, NULL, run, p) != 0)
        ts_fatal("no thread for the proxy");
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

struct ts_proxy *ts_proxy_start(struct ts_server *s)
{
    static atomic_uint made;
    struct ts_proxy *p = ts_alloc(sizeof *p);

    p->server = s;
    p->socket = ts_text("%s/proxy-%u.sock", ts_server_dir(s),
                        atomic_fetch_add(&made, 1));
    p->url = ts_text("unix://%s", p->socket);
    p->port_fd = ts__port_take(&p->port);
    p->tcp_url = ts_text("redis://127.0.0.1:%d", p->port);
    p->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (p->wake < 0)
        ts_fatal("eventfd: %s", strerror(errno));
    open_doors(p);
    start_thread(p);
    return p;
}

static void wake_up(struct ts_proxy *p)
{
    const uint64_t one = 1;

    if (write(p->wake, &one, sizeof one) < 0 && errno != EAGAIN)
        ts_fatal("eventfd: %s", strerror(errno));
}

void ts_proxy_stop(struct ts_proxy *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->mu);
    p->stop = true;
    wake_up(p);
    pthread_mutex_unlock(&p->mu);
    pthread_join(p->thread, NULL);

    for (struct link *l = p->links; l; l = ts__link_next(l))
        ts__link_kill(l, false);
    ts__links_sweep(p);
    shut_doors(p);
    unlink(p->socket);
    close(p->port_fd);
    close(p->wake);
    ts__book_free(p);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->mu);
    free(p->polls);
    free(p->socket);
    free(p->url);
    free(p->tcp_url);
    free(p);
}

const char *ts_proxy_url(const struct ts_proxy *p)
{
    return p->url;
}

const char *ts_proxy_tcp_url(const struct ts_proxy *p)
{
    return p->tcp_url;
}

const char *ts_proxy_socket(const struct ts_proxy *p)
{
    return p->socket;
}

int ts_proxy_port(const struct ts_proxy *p)
{
    return p->port;
}

/* ---- its switches ------------------------------------------------------ */

/* Waits until the thread has been round once more with what we changed, and
 * gives the mutex back. Locks: needs p.mu. */
static void apply(struct ts_proxy *p)
{
    unsigned mine = ++p->asked;

    wake_up(p);
    while ((int)(p->seen - mine) < 0)
        pthread_cond_wait(&p->changed, &p->mu);
    pthread_mutex_unlock(&p->mu);
}

void ts_proxy_release(struct ts_proxy *p)
{
    pthread_mutex_lock(&p->mu);
    for (struct link *l = p->links; l; l = ts__link_next(l))
        ts__link_release(l);
    apply(p);
}

void ts_proxy_blackhole(struct ts_proxy *p, bool to_server, bool to_client)
{
    pthread_mutex_lock(&p->mu);
    p->hole_up = to_server;
    p->hole_down = to_client;
    apply(p);
}

void ts_proxy_refuse(struct ts_proxy *p, bool refuse)
{
    pthread_mutex_lock(&p->mu);
    p->refuse = refuse;
    apply(p);
}

void ts_proxy_bytewise(struct ts_proxy *p, bool bytewise)
{
    pthread_mutex_lock(&p->mu);
    p->bytewise = bytewise;
    apply(p);
}

void ts_proxy_kill_all(struct ts_proxy *p, bool rst)
{
    pthread_mutex_lock(&p->mu);
    p->kill = true;
    p->kill_rst = rst;
    apply(p);
}

void ts_proxy_reset(struct ts_proxy *p)
{
    ts_proxy_unrule(p, 0);
    pthread_mutex_lock(&p->mu);
    p->hole_up = p->hole_down = p->refuse = p->bytewise = false;
    for (struct link *l = p->links; l; l = ts__link_next(l))
        ts__link_release(l);
    ts__book_forget(p);
    apply(p);
}

/* ---- what it has seen -------------------------------------------------- */

unsigned ts_proxy_accepted(struct ts_proxy *p)
{
    pthread_mutex_lock(&p->mu);
    unsigned n = p->accepted;
    pthread_mutex_unlock(&p->mu);
    return n;
}

unsigned ts_proxy_messages(struct ts_proxy *p)
{
    pthread_mutex_lock(&p->mu);
    unsigned n = p->messages;
    pthread_mutex_unlock(&p->mu);
    return n;
}

unsigned ts_proxy_open(struct ts_proxy *p)
{
    unsigned n = 0;

    pthread_mutex_lock(&p->mu);
    for (const struct link *l = p->links; l; l = ts__link_next(l))
        n += !ts__link_dead(l);
    pthread_mutex_unlock(&p->mu);
    return n;
}
