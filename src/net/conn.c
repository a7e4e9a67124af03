/* SPDX-License-Identifier: MIT
 *
 * conn.c - one socket to one server, in use. How it comes up is in connect.c.
 *
 * Thread  io, except ask and hear: a caller that borrowed the connection.
 * Locks   none: one thread has it at a time.
 *
 * How     Requests wait in a queue, oldest first, as the server answers in
 *         order. Each has a time limit; the first that passes closes the
 *         connection, since a reply that comes late would be taken for the
 *         answer to the next command. A reply that comes while none is due
 *         closes it, too; the loop looks for that before it sends. One too many
 *         among others that are due does not have the number of the sending,
 *         which an answer can repeat: the one who reads it has to look.
 *
 *         Where many share it, answers are read in halves, so that the server
 *         has work while we deal with them.
 *
 *         The socket blocks, so that a caller can send and receive in two
 *         system calls; the loop asks for MSG_DONTWAIT. With TLS the same goes
 *         through a session, which may have bytes that poll does not know of.
 *
 * Trouble A request of which the kernel did not take every byte was surely not
 *         executed (CONN). Of all others without a reply nobody can tell
 *         (UNKNOWN).
 */
#include "net/conn.h"

#include "base/error_text.h"
#include "base/mem.h"
#include "net/resolve.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define STALE_US  1000000 /* idle for so long: look before sending */
#define READS_MAX 16      /* at a time, then others have their turn */

/* How long an answer is, about: a part of its question, but so many bytes. */
#define ANSWER_PART  16
#define ANSWER_LEAST 12

/* ---- closing ----------------------------------------------------------- */

static void gone_later(struct dibs__task *t)
{
    struct dibs__conn *cn = DIBS_OF(t, struct dibs__conn, step);

    cn->gone(cn);
}

static void poll_closed(uv_handle_t *h)
{
    dibs__free(h);
}

void dibs__conn_drop_socket(struct dibs__conn *cn)
{
    if (cn->poll)
        uv_close((uv_handle_t *)cn->poll, poll_closed);
    cn->poll = NULL;
    cn->polled = 0;
    if (cn->fd >= 0)
        close(cn->fd);
    cn->fd = -1;
}

static void fail_requests(struct dibs__conn *cn)
{
    struct dibs__list left;

    dibs__list_init(&left);
    dibs__list_move(&left, &cn->fifo);
    for (struct dibs__list *l; (l = dibs__list_pop(&left));) {
        struct dibs__req *req = DIBS_OF(l, struct dibs__req, link);
        req->done(req, req->end <= cn->sent ? DIBS_ERR_UNKNOWN : DIBS_ERR_CONN,
                  NULL);
    }
}

void dibs__conn_close(struct dibs__conn *cn, dibs_err err, const char *why)
{
    if (cn->state == CONN_CLOSED)
        return;
    cn->state = CONN_CLOSED;
    if (cn->resolve)
        dibs__resolve_cancel(cn->resolve);
    if (cn->found)
        freeaddrinfo(cn->found);
    cn->resolve = NULL;
    cn->found = NULL;
    dibs__timer_stop(cn->lp, &cn->timer);
    dibs__list_del(&cn->flush.link);
    dibs__tls_free(cn->tls);
    cn->tls = NULL;
    dibs__conn_drop_socket(cn);
    cn->down(cn, err, why);
    fail_requests(cn);
    dibs__buf_clear(&cn->out);
    dibs__reader_clear(&cn->in);
    if (!cn->dialing) {
        cn->step.run = gone_later;
        dibs__loop_post(cn->lp, &cn->step);
    }
}

void dibs__conn_fail(struct dibs__conn *cn, dibs_err err, const char *what,
                     int error_number)
{
    char why[256], text[DIBS__ERRNO_MAX];

    if (error_number && *what)
        snprintf(why, sizeof why, "%s: %s", what,
                 dibs__errno_text(error_number, text));
    else if (error_number)
        snprintf(why, sizeof why, "%s", dibs__errno_text(error_number, text));
    else
        snprintf(why, sizeof why, "%s", what);
    dibs__conn_close(cn, err, why);
}

/* ---- bytes ------------------------------------------------------------- */

/* As send and recv have it; flags: 0 or MSG_DONTWAIT. */
static ssize_t send_bytes(const struct dibs__conn *cn, const char *data,
                          size_t len, int flags)
{
    return cn->tls ? dibs__tls_send(cn->tls, data, len, flags)
                   : send(cn->fd, data, len, MSG_NOSIGNAL | flags);
}

static ssize_t get_bytes(struct dibs__conn *cn, int flags, size_t most)
{
    return cn->tls ? dibs__tls_recv(cn->tls, cn->bytes, most, flags)
                   : recv(cn->fd, cn->bytes, most, flags);
}

/* How much is read at once where many share the connection. If all answers were
 * taken together, and what follows from them went out together, the server and
 * we would only ever wait for each other. So half of them are taken; what
 * follows from those goes out before the rest is read. If that did not bring
 * even one, it is a long one. (Of what a session has, poll does not know.) */
static size_t half_of_answers(struct dibs__conn *cn)
{
    if (cn->tls || dibs__list_empty(&cn->fifo))
        return sizeof cn->bytes;
    uint64_t end = DIBS_OF(cn->fifo.next, struct dibs__req, link)->end;
    if (end >= cn->sent || end == cn->halved)
        return sizeof cn->bytes;
    cn->halved = end;
    int64_t half = (int64_t)((cn->sent - end) / ANSWER_PART / 2);
    half = dibs__max(half, ANSWER_LEAST);
    return (size_t)dibs__min(half, sizeof cn->bytes);
}

/* One of the two failed. Where the server ends a session that has hardly
 * begun, it does not like our certificate, and will not like it next time. */
static void fail_bytes(struct dibs__conn *cn, const char *what,
                       int error_number)
{
    if (cn->tls && error_number == EPROTO)
        dibs__conn_fail(cn,
                        cn->state == CONN_READY ? DIBS_ERR_CONN : DIBS_ERR_TLS,
                        dibs__tls_why(cn->tls), 0);
    else
        dibs__conn_fail(cn, DIBS_ERR_CONN, what, error_number);
}

/* ---- on the loop ------------------------------------------------------- */

/* A reply is to come: the first request is with the server. */
static bool is_awaited(const struct dibs__conn *cn)
{
    return !dibs__list_empty(&cn->fifo) &&
           DIBS_OF(cn->fifo.next, struct dibs__req, link)->end <= cn->sent;
}

static void conn_timed(struct dibs__timer *t)
{
    struct dibs__conn *cn = DIBS_OF(t, struct dibs__conn, timer);

    if (cn->state != CONN_READY) {
        cn->dial_late(cn);
        return;
    }
    int64_t now = dibs__now_ms(), first = dibs__conn_expires(cn);
    if (first <= now && dibs__conn_unread(cn))
        dibs__timer_set(cn->lp, &cn->timer, now + 1);
    else if (first <= now)
        dibs__conn_fail(cn, DIBS_ERR_UNKNOWN, "no reply within the time limit",
                        0);
    else if (first < INT64_MAX)
        dibs__timer_set(cn->lp, &cn->timer, first);
}

static void conn_event(uv_poll_t *poll, int status, int events);

void dibs__conn_poll(struct dibs__conn *cn, int events)
{
    if (events == cn->polled)
        return;
    cn->polled = events;
    if (events)
        uv_poll_start(cn->poll, events, conn_event);
    else
        uv_poll_stop(cn->poll);
}

/* Sends as much as the kernel takes; how much, or the error number, negative.
 */
static ssize_t send_some(const struct dibs__conn *cn)
{
    size_t at = 0;

    while (at < cn->out.len) {
        ssize_t n =
            send_bytes(cn, cn->out.data + at, cn->out.len - at, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            break;
        if (n < 0)
            return -errno;
        at += (size_t)n;
    }
    return (ssize_t)at;
}

/* Nothing, or the error number. */
static int put_bytes(struct dibs__conn *cn)
{
    ssize_t n = send_some(cn);

    if (n < 0)
        return (int)-n;
    cn->sent += (uint64_t)n;
    dibs__buf_drop(&cn->out, (size_t)n);
    return 0;
}

/* False: out of memory, nothing was appended. */
static bool append_request(struct dibs__conn *cn, struct dibs__req *req)
{
    size_t before = cn->out.len;

    req->cn = cn;
    cn->number = (uint16_t)(cn->number < DIBS__NUMBER_MAX ? cn->number + 1
                                                          : DIBS__NUMBER_MIN);
    req->number = cn->number;
    req->write(req, &cn->out);
    if (!dibs__buf_ok(&cn->out)) {
        dibs__buf_cut(&cn->out, before);
        return false;
    }
    cn->queued += cn->out.len - before;
    req->end = cn->queued;
    return true;
}

void dibs__conn_send(struct dibs__conn *cn, struct dibs__req *req)
{
    if (!append_request(cn, req)) {
        /* Nothing went out for it, so no reply may be taken for its own: the
         * connection ends, and this one is answered as not executed. */
        req->end = UINT64_MAX;
        cn->lacking = true;
    }
    dibs__list_add(&cn->fifo, &req->link);
    if (!cn->timer.at || req->expires < cn->timer.at)
        dibs__timer_set(cn->lp, &cn->timer, req->expires);
    dibs__loop_flush(cn->lp, &cn->flush);
}

struct dibs__list *dibs__conn_pop(struct dibs__conn *cn)
{
    return is_awaited(cn) ? dibs__list_pop(&cn->fifo) : NULL;
}

static void take_reply(struct dibs__conn *cn, const struct dibs__reply *reply)
{
    struct dibs__list *l = NULL;

    if (!cn->push || cn->state == CONN_SETUP)
        l = dibs__conn_pop(cn);
    if (l) {
        struct dibs__req *req = DIBS_OF(l, struct dibs__req, link);
        if (req->skip > 0) {
            req->skip--;
            dibs__list_add_first(&cn->fifo, l);
            return;
        }
        req->done(req, DIBS_OK, reply);
    } else if (cn->push) {
        cn->push(cn, reply);
    } else if (reply->type == REPLY_ERROR) {
        dibs__conn_fail(cn, DIBS_ERR_CONN, reply->text, 0);
    } else {
        dibs__conn_fail(cn, DIBS_ERR_PROTOCOL, "a reply nobody asked for", 0);
    }
}

/* The first bytes a plain connection gets are a TLS alert or handshake. */
static bool looks_like_tls(const struct dibs__conn *cn)
{
    return !cn->tls && cn->state == CONN_SETUP &&
           (cn->bytes[0] == 0x15 || cn->bytes[0] == 0x16) && cn->bytes[1] == 3;
}

static void not_redis(struct dibs__conn *cn, dibs_err err)
{
    dibs__conn_fail(cn, err,
                    looks_like_tls(cn)
                        ? "what came is TLS; the URL says that there is none"
                        : "what came is not the Redis protocol",
                    0);
}

static void take_replies(struct dibs__conn *cn)
{
    const struct dibs__reply *reply;

    while (cn->state != CONN_CLOSED) {
        dibs_err err = dibs__reader_next(&cn->in, &reply);
        if (err != DIBS_OK) {
            not_redis(cn, err);
            return;
        }
        if (!reply)
            break;
        take_reply(cn, reply);
    }
    if (cn->state == CONN_READY && dibs__list_empty(&cn->fifo))
        dibs__timer_stop(cn->lp, &cn->timer);
}

/* True: there may be more. */
static bool read_some(struct dibs__conn *cn)
{
    ssize_t n = get_bytes(cn, MSG_DONTWAIT, half_of_answers(cn));

    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return false;
    if (n < 0) {
        fail_bytes(cn, "recv", errno);
        return false;
    }
    if (n == 0) {
        dibs__conn_fail(cn, DIBS_ERR_CONN, "the server closed the connection",
                        0);
        return false;
    }
    dibs_err err = dibs__reader_feed(&cn->in, cn->bytes, (size_t)n);
    if (err == DIBS_OK)
        take_replies(cn);
    else
        not_redis(cn, err);
    if (cn->state < CONN_SETUP)
        return false;
    return cn->tls ? dibs__tls_more(cn->tls) : (size_t)n == sizeof cn->bytes;
}

/* What the session has in hand would not wake us again; what is still in the
 * socket will. */
static void read_rest(struct dibs__conn *cn)
{
    dibs__tls_dry(cn->tls, true);
    while (read_some(cn))
        ;
    if (cn->tls)
        dibs__tls_dry(cn->tls, false);
}

static void flush_out(struct dibs__task *t)
{
    struct dibs__conn *cn = DIBS_OF(t, struct dibs__conn, flush);

    if (cn->lacking) { /* a reply could be taken for one that never went out */
        dibs__conn_fail(cn, DIBS_ERR_CONN, "out of memory", 0);
        return;
    }
    if (cn->state == CONN_READY && !cn->push && !is_awaited(cn)) {
        (void)read_some(cn); /* what is there now is no answer to this */
        if (cn->state == CONN_CLOSED)
            return;
        if (dibs__reader_more(&cn->in)) { /* its other bytes come later */
            dibs__conn_fail(cn, DIBS_ERR_PROTOCOL, "a reply nobody asked for",
                            0);
            return;
        }
    }
    int error_number = put_bytes(cn);
    if (error_number) {
        /* A session's last word says more than that nobody listens. */
        bool more = cn->tls &&
                    get_bytes(cn, MSG_DONTWAIT, sizeof cn->bytes) < 0 &&
                    errno == EPROTO;
        fail_bytes(cn, "send", more ? EPROTO : error_number);
        return;
    }
    dibs__conn_poll(cn, cn->out.len ? UV_READABLE | UV_WRITABLE : UV_READABLE);
}

static void conn_event(uv_poll_t *poll, int status, int events)
{
    struct dibs__conn *cn = poll->data;

    if (status < 0) {
        /* libuv stops watching a socket that has an error. There may still be
         * bytes to read before the call that reports the error, so it is
         * watched again; that call closes the connection. */
        int polled = cn->polled;
        cn->polled = 0;
        dibs__conn_poll(cn, polled);
        events = UV_READABLE | UV_WRITABLE;
    }
    if (cn->state < CONN_SETUP) {
        cn->dial_step(cn);
        return;
    }
    bool more = (events & UV_READABLE) != 0;
    for (int i = 0; more && i < READS_MAX; i++)
        more = read_some(cn);
    if (more && cn->tls)
        read_rest(cn);
    if ((events & UV_WRITABLE) && cn->state >= CONN_SETUP && cn->out.len > 0)
        flush_out(&cn->flush);
}

dibs_err dibs__conn_prepare(struct dibs__conn *cn)
{
    cn->fd = -1;
    cn->flush.run = flush_out;
    cn->timer.fire = conn_timed;
    dibs__list_init(&cn->fifo);
    cn->number = (uint16_t)dibs__random_in(DIBS__NUMBER_MIN, DIBS__NUMBER_MAX);
    return dibs__reader_init(&cn->in);
}

/* ---- lent to a caller -------------------------------------------------- */

void dibs__conn_lend(struct dibs__conn *cn)
{
    dibs__conn_poll(cn, 0);
    cn->last_used_us = dibs__now_us();
}

/* After a while without use the server, or something on the way, may have
 * hung up; that is worth one look, so that nothing is sent in vain. So is a
 * question whose answer has no number. */
static bool is_unfit(struct dibs__conn *cn, bool careful, int64_t now_us)
{
    bool look = careful || now_us - cn->last_used_us >= STALE_US;
    if (dibs__reader_more(&cn->in))
        return true;
    if (cn->tls)
        return !dibs__tls_quiet(cn->tls, look);
    return look && dibs__conn_readable(cn);
}

static dibs_err send_whole(struct dibs__conn *cn)
{
    size_t at = 0;

    while (at < cn->out.len) {
        ssize_t n = send_bytes(cn, cn->out.data + at, cn->out.len - at, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return DIBS_ERR_CONN; /* also when the time limit passed */
        at += (size_t)n;
    }
    dibs__buf_cut(&cn->out, 0);
    cn->sent = cn->queued;
    return DIBS_OK;
}

static dibs_err take_bytes(struct dibs__conn *cn, ssize_t n)
{
    if (n <= 0)
        return DIBS_ERR_UNKNOWN;
    return dibs__reader_feed(&cn->in, cn->bytes, (size_t)n) == DIBS_OK
               ? DIBS_OK
               : DIBS_ERR_UNKNOWN;
}

/* Waits for the socket until it is time. A signal ends the wait as well. */
static bool wait_for_bytes(const struct dibs__conn *cn, int64_t expires)
{
    struct pollfd p = {.fd = cn->fd, .events = POLLIN};
    int64_t left = expires - dibs__now_ms();
    int n = poll(&p, 1, left > 0 ? (int)left : 0); /* it may be there already */

    return n > 0 || (n < 0 && errno == EINTR);
}

/* The socket has a time limit of its own, which is as good as the clock for the
 * first receive, and saves a system call. What that does not bring, and shorter
 * limits, go by the clock. OK: there may be something, look. */
static dibs_err receive_some(struct dibs__conn *cn, bool by_clock,
                             int64_t expires)
{
    int flags = cn->tls && by_clock ? MSG_DONTWAIT : 0;
    ssize_t n = -1;

    if (flags) { /* what the session has in hand, no poll tells of */
        n = get_bytes(cn, flags, sizeof cn->bytes);
        if (n >= 0 || errno != EAGAIN)
            return take_bytes(cn, n);
    }
    if (by_clock && !wait_for_bytes(cn, expires))
        return DIBS_ERR_UNKNOWN;
    n = get_bytes(cn, flags, sizeof cn->bytes);
    if (n < 0 && (errno == EINTR || (cn->tls && errno == EAGAIN)))
        return DIBS_OK;
    return take_bytes(cn, n);
}

dibs_err dibs__conn_send_sync(struct dibs__conn *cn, struct dibs__req *req)
{
    int64_t now_us = dibs__now_us();

    if (is_unfit(cn, req->careful, now_us) || !append_request(cn, req))
        return DIBS_ERR_CONN;
    cn->last_used_us = now_us;
    return send_whole(cn);
}

dibs_err dibs__conn_recv_sync(struct dibs__conn *cn, int64_t expires,
                              const struct dibs__reply **reply)
{
    int64_t limit = cn->last_used_us / 1000 + cn->to->command_timeout_ms;
    bool by_clock = expires < limit;
    dibs_err err = DIBS_OK;

    *reply = NULL;
    for (; err == DIBS_OK && !*reply; by_clock = true) {
        err = receive_some(cn, by_clock, expires);
        if (err == DIBS_OK && dibs__reader_next(&cn->in, reply) != DIBS_OK)
            err = DIBS_ERR_UNKNOWN;
    }
    return err;
}

/* ---- lent, with many requests at a time -------------------------------- */

bool dibs__conn_fits(struct dibs__conn *cn)
{
    return !cn->tls && !is_unfit(cn, false, dibs__now_us());
}

bool dibs__conn_append(struct dibs__conn *cn, struct dibs__req *req)
{
    if (!append_request(cn, req))
        return false;
    dibs__list_add(&cn->fifo, &req->link);
    return true;
}

bool dibs__conn_put(struct dibs__conn *cn)
{
    return put_bytes(cn) == 0;
}

bool dibs__conn_get(struct dibs__conn *cn)
{
    ssize_t n = get_bytes(cn, MSG_DONTWAIT, half_of_answers(cn));

    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return true;
    return take_bytes(cn, n) == DIBS_OK;
}

int64_t dibs__conn_expires(const struct dibs__conn *cn)
{
    int64_t first = INT64_MAX;

    for (struct dibs__list *l = cn->fifo.next; l != &cn->fifo; l = l->next)
        first = dibs__min(first, DIBS_OF(l, struct dibs__req, link)->expires);
    return first;
}

bool dibs__conn_readable(const struct dibs__conn *cn)
{
    char byte;
    ssize_t n = recv(cn->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

    return n >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
}

bool dibs__conn_unread(struct dibs__conn *cn)
{
    if (cn->tls || !is_awaited(cn) || !dibs__conn_readable(cn))
        return false;
    uint64_t before = cn->spared;
    cn->spared = DIBS_OF(cn->fifo.next, struct dibs__req, link)->end;
    return cn->spared != before;
}

void dibs__conn_adopt(struct dibs__conn *cn)
{
    dibs__timer_set(cn->lp, &cn->timer, dibs__conn_expires(cn));
    dibs__loop_flush(cn->lp, &cn->flush);
}
