/* SPDX-License-Identifier: MIT
 *
 * callback_io.c - what callbacks begin, without a second thread.
 *
 * Thread  cb, the thread of our own that runs callbacks, or the one that
 *         dispatches them; io where it says so.
 * Locks   callback.mu: who has which connection.
 *
 * How     A call that a callback begins is not handed to io, which would wake
 *         it, and it us again with the reply. It is appended to a connection
 *         that cb borrows. When no more callbacks wait, cb sends all that was
 *         appended in one write, reads replies, and runs the callbacks that
 *         follow from them. While it runs many, it sends now and then, so that
 *         the server has work meanwhile. It gives the connection back when
 *         nothing is on it any more.
 *
 *         User code may take its time, and a command or a reply must not wait
 *         for that. So io looks at such a connection every millisecond. One
 *         that was left for user code, with work on it, for one millisecond or
 *         two, it takes over with all that is on it, and lends it anew when all
 *         is answered. For a while callbacks then hand their calls to io.
 *
 *         A program with a loop of its own waits for the socket, too: its
 *         descriptor is one of epoll. Each dispatch reads replies, runs what
 *         follows from them, and sends what that began. Between two of them the
 *         connection is LEFT. One thread at a time does so.
 *
 *         state   what happens                           next
 *         NONE    a callback begins a call, it is lent   LEFT
 *         LEFT    no more callbacks wait                 OURS
 *         LEFT    io finds that nobody sees to it        TAKEN
 *         OURS    a callback is to run                   LEFT
 *         OURS    all is answered, or it breaks          NONE
 *         TAKEN   all is answered, or it breaks          NONE
 *
 * Rules   In OURS it is cb's alone, in TAKEN io's alone, in LEFT it changes
 *         under the mutex only. In LEFT and TAKEN no whole reply is in the
 *         reader. cb does not run user code in OURS.
 *
 * Trouble A connection that breaks, or whose reply is late, goes back to be
 *         closed with its requests on it. So io handles them as it does those
 *         of its own connection: as in doubt, resent, or not executed. An error
 *         reply is for io, too, which sends the command again.
 */
#include "client/callback_io.h"

#include <limits.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define RIDES_MAX 8    /* servers at a time */
#define TICK_MS   1    /* how often io looks */
#define SLOW_MS   100  /* so long nothing more is left to a slow thread */
#define SEND_AT   4096 /* bytes that are worth a write of their own */

static struct dibs__pooled_conn *link_at(struct dibs__list *l)
{
    return DIBS_OF(l, struct dibs__pooled_conn, ride.at);
}

/* The program's own loop waits for what comes on it. False: no memory. */
static bool watch_socket(const struct dibs__callbacks *cbs,
                         const struct dibs__pooled_conn *conn)
{
    struct epoll_event ev = {.events = EPOLLIN};

    return cbs->fd < 0 ||
           epoll_ctl(cbs->fd, EPOLL_CTL_ADD, conn->cn.fd, &ev) == 0;
}

static void forget_socket(const struct dibs__callbacks *cbs,
                          const struct dibs__pooled_conn *conn)
{
    if (cbs->fd >= 0)
        epoll_ctl(cbs->fd, EPOLL_CTL_DEL, conn->cn.fd, NULL);
}

/* ---- io looks after it ------------------------------------------------- */

static bool has_work(const struct dibs__conn *cn)
{
    return !dibs__list_empty(&cn->fifo) &&
           (cn->out.len > 0 || dibs__conn_readable(cn) ||
            dibs__conn_expires(cn) <= dibs__now_ms());
}

/* Thread: io. */
static void ride_ticked(struct dibs__timer *t)
{
    struct dibs__pooled_conn *conn =
        DIBS_OF(t, struct dibs__pooled_conn, ride.tick);
    struct dibs__ride *ride = &conn->ride;
    struct dibs__callbacks *cbs = ride->by;

    dibs__lock(&cbs->mu);
    bool taken = ride->state == RIDE_LEFT && ride->turn == ride->seen &&
                 has_work(&conn->cn);
    ride->seen = ride->turn;
    if (taken) {
        ride->state = RIDE_TAKEN;
        dibs__list_del(&ride->at);
        forget_socket(cbs, conn);
        cbs->slow_until = dibs__now_ms() + SLOW_MS;
    }
    bool goes_on = ride->watched = !taken && ride->state != RIDE_NONE;
    dibs__unlock(&cbs->mu);
    if (taken) {
        dibs__commands_count_queued(&conn->cn.fifo);
        dibs__conn_adopt(&conn->cn);
    }
    if (goes_on)
        dibs__timer_set(conn->server->lp, t, dibs__now_ms() + TICK_MS);
}

/* Thread: io. */
static void watch_ride(struct dibs__task *t)
{
    struct dibs__pooled_conn *conn =
        DIBS_OF(t, struct dibs__pooled_conn, ride.watch);

    dibs__timer_set(conn->server->lp, &conn->ride.tick,
                    dibs__now_ms() + TICK_MS);
}

/* ---- between callbacks ------------------------------------------------- */

static void leave_rides(struct dibs__callbacks *cbs) REQUIRES(cbs->mu)
{
    for (struct dibs__list *l = cbs->rides.next; l != &cbs->rides;
         l = l->next) {
        struct dibs__ride *ride = &link_at(l)->ride;
        if (ride->state == RIDE_OURS) {
            ride->state = RIDE_LEFT;
            ride->turn++;
        }
    }
}

static void return_to_rides(struct dibs__callbacks *cbs)
{
    dibs__lock(&cbs->mu);
    for (struct dibs__list *l = cbs->rides.next; l != &cbs->rides; l = l->next)
        link_at(l)->ride.state = RIDE_OURS;
    dibs__unlock(&cbs->mu);
}

/* usable: and nothing is on it. */
static void end_ride(struct dibs__callbacks *cbs,
                     struct dibs__pooled_conn *conn, bool usable)
{
    dibs__lock(&cbs->mu);
    conn->ride.state = RIDE_NONE;
    dibs__list_del(&conn->ride.at);
    forget_socket(cbs, conn);
    dibs__unlock(&cbs->mu);
    dibs__commands_count_queued(&conn->cn.fifo);
    dibs__server_give_back(conn, usable);
}

/* False: it is broken, or out of step. */
static bool take_rides_replies(struct dibs__pooled_conn *conn)
{
    struct dibs__conn *cn = &conn->cn;
    const struct dibs__reply *reply;

    if (!dibs__conn_recv_some(cn))
        return false;
    while (dibs__reader_next(&cn->in, &reply) == DIBS_OK) {
        if (!reply)
            return true;
        struct dibs__list *l = dibs__conn_pop_request(cn);
        if (!l)
            return false; /* nobody asked */
        if (!dibs__command_consume_reply(
                DIBS_OF(l, struct dibs__command, req.link), reply)) {
            dibs__list_add_first(&cn->fifo, l);
            return false;
        }
    }
    return false;
}

/* Sends what is to be sent. Those that have nothing on them are given back, the
 * others are what is waited for; how many, and until when. */
static nfds_t send_rides(struct dibs__callbacks *cbs,
                         struct pollfd fds[RIDES_MAX + 1], int64_t *until)
{
    nfds_t n = 0;

    for (struct dibs__list *l = cbs->rides.next, *next; l != &cbs->rides;
         l = next) {
        struct dibs__pooled_conn *conn = link_at(l);
        next = l->next;
        if (conn->cn.out.len > 0 && !dibs__conn_send_some(&conn->cn)) {
            end_ride(cbs, conn, false);
            continue;
        }
        if (dibs__list_empty(&conn->cn.fifo)) {
            end_ride(cbs, conn, true);
            continue;
        }
        fds[n++] = (struct pollfd){.fd = conn->cn.fd,
                                   .events = conn->cn.out.len ? POLLIN | POLLOUT
                                                              : POLLIN};
        *until = dibs__min(*until, conn->ride.expires);
    }
    return n;
}

/* Until something comes, on a connection or for us. */
static void wait_for_any(struct dibs__callbacks *cbs, struct pollfd *fds,
                         nfds_t n, int64_t until)
{
    int64_t left = dibs__max(until - dibs__now_ms(), 0);
    uint64_t count;

    dibs__lock(&cbs->mu);
    if (cbs->stop || !dibs__list_empty(&cbs->queue))
        left = 0;
    cbs->polls = left > 0;
    fds[n] = (struct pollfd){.fd = cbs->wake_fd, .events = POLLIN};
    dibs__unlock(&cbs->mu);
    if (poll(fds, n + 1, (int)dibs__min(left, INT_MAX)) <= 0)
        for (nfds_t i = 0; i <= n; i++)
            fds[i].revents = 0;
    dibs__lock(&cbs->mu);
    cbs->polls = false;
    dibs__unlock(&cbs->mu);
    if (fds[n].revents) {
        ssize_t got = read(fds[n].fd, &count, sizeof count);
        (void)got;
    }
}

/* A reply is. One that has come, and is read next time, is not. */
static bool is_late(struct dibs__pooled_conn *conn)
{
    if (dibs__now_ms() < conn->ride.expires)
        return false;
    conn->ride.expires = dibs__conn_expires(&conn->cn);
    return dibs__now_ms() >= conn->ride.expires &&
           !dibs__conn_extend_once(&conn->cn);
}

static void work_rides(struct dibs__callbacks *cbs)
{
    struct pollfd fds[RIDES_MAX + 1];
    int64_t until = INT64_MAX;

    return_to_rides(cbs);
    nfds_t n = send_rides(cbs, fds, &until);
    if (n == 0)
        return;
    wait_for_any(cbs, fds, n, until);
    struct dibs__list *l = cbs->rides.next;
    for (nfds_t i = 0; i < n; i++) {
        struct dibs__pooled_conn *conn = link_at(l);
        l = l->next;
        if ((fds[i].revents && !take_rides_replies(conn)) || is_late(conn))
            end_ride(cbs, conn, false);
    }
}

/* ---- in dispatch ------------------------------------------------------- */

/* Between two dispatch calls it is left to io, too. */
static void hear_rides(struct dibs__callbacks *cbs)
{
    return_to_rides(cbs);
    for (struct dibs__list *l = cbs->rides.next, *next; l != &cbs->rides;
         l = next) {
        struct dibs__pooled_conn *conn = link_at(l);
        next = l->next;
        if (!take_rides_replies(conn) || is_late(conn))
            end_ride(cbs, conn, false);
    }
    dibs__lock(&cbs->mu);
    leave_rides(cbs);
    dibs__unlock(&cbs->mu);
}

static void send_rest(struct dibs__callbacks *cbs)
{
    struct pollfd fds[RIDES_MAX + 1];
    int64_t until = INT64_MAX;

    return_to_rides(cbs);
    (void)send_rides(cbs, fds, &until);
    dibs__lock(&cbs->mu);
    leave_rides(cbs);
    dibs__unlock(&cbs->mu);
}

/* ---- inside a callback ------------------------------------------------- */

static bool may_ride(struct dibs__callbacks *cbs,
                     const struct dibs__command *cmd)
{
    if (!dibs__callbacks_on_thread(cbs) || !cmd->server || cmd->replicas ||
        cmd->server->target.url.tls.on)
        return false;
    dibs__lock(&cbs->mu);
    bool slow = dibs__now_ms() < cbs->slow_until;
    dibs__unlock(&cbs->mu);
    return !slow;
}

/* False: there is no connection to it, or no memory. */
static bool board_ride(struct dibs__callbacks *cbs, struct dibs__command *cmd)
{
    struct dibs__pooled_conn *conn = NULL;

    dibs__lock(&cbs->mu);
    for (struct dibs__list *l = cbs->rides.next; l != &cbs->rides; l = l->next)
        if (link_at(l)->server == cmd->server &&
            link_at(l)->ride.state == RIDE_LEFT)
            conn = link_at(l);
    if (conn && conn->generation != atomic_load(&cmd->server->generation))
        conn = NULL;
    if (conn)
        dibs__command_mark_sent(cmd);
    bool boarded = conn && dibs__conn_append(&conn->cn, &cmd->req);
    if (boarded)
        conn->ride.expires = dibs__min(conn->ride.expires, cmd->req.expires);
    if (boarded && conn->cn.out.len >= SEND_AT)
        (void)dibs__conn_send_some(&conn->cn); /* what fails here fails again */
    dibs__unlock(&cbs->mu);
    return boarded;
}

/* For one more; the first time, makes a descriptor to be woken by. */
static bool has_room(struct dibs__callbacks *cbs)
{
    unsigned count = 0;

    dibs__lock(&cbs->mu);
    for (struct dibs__list *l = cbs->rides.next; l != &cbs->rides; l = l->next)
        count++;
    if (cbs->wake_fd < 0)
        cbs->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    bool room = count < RIDES_MAX && cbs->wake_fd >= 0;
    dibs__unlock(&cbs->mu);
    return room;
}

static bool begin_ride(struct dibs__callbacks *cbs, struct dibs__server *s)
{
    struct dibs__pooled_conn *conn =
        has_room(cbs) ? dibs__server_borrow_always(s) : NULL;

    if (!conn)
        return false;
    if (!dibs__conn_is_batchable(&conn->cn) || !watch_socket(cbs, conn)) {
        dibs__server_give_back(conn, false);
        return false;
    }
    dibs__lock(&cbs->mu);
    struct dibs__ride *ride = &conn->ride;
    bool watch = !ride->watched;
    if (watch) {
        ride->by = cbs;
        ride->tick.fire = ride_ticked;
        ride->watch.run = watch_ride;
    }
    ride->state = RIDE_LEFT;
    ride->turn++;
    ride->expires = INT64_MAX;
    ride->watched = true;
    cbs->leave = leave_rides;
    cbs->work = work_rides;
    cbs->hear = hear_rides;
    cbs->send = send_rest;
    dibs__list_add(&cbs->rides, &ride->at);
    dibs__unlock(&cbs->mu);
    if (watch)
        dibs__loop_post(s->lp, &ride->watch);
    return true;
}

void dibs__ride_start(struct dibs__callbacks *cbs, struct dibs__route to,
                      struct dibs__command *cmd)
{
    dibs__command_prepare(to, cmd);
    if (may_ride(cbs, cmd) &&
        (board_ride(cbs, cmd) ||
         (begin_ride(cbs, cmd->server) && board_ride(cbs, cmd))))
        return;
    dibs__command_post(cmd);
}
