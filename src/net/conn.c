/* SPDX-License-Identifier: MIT
 *
 * conn.c - one connection in use; connect.c establishes it.
 *
 * Thread  io; the sections "lent" run on the thread that borrowed the
 *         connection.
 * Locks   none: one thread uses it at a time.
 *
 * How     Requests in flight are a FIFO, as the server replies in order. The
 *         first time limit that passes closes the connection, since a late
 *         reply would be taken for the reply to the next request. A reply
 *         without a request in flight closes it, too; io checks for that before
 *         it sends. A surplus reply among expected ones is detected by the
 *         request number, which scripts repeat; command.c compares it.
 *
 *         With many requests in flight only half of the replies are read at a
 *         time, so that the server has work while the client handles them.
 *
 *         The socket is blocking, so that a borrower can send and receive in
 *         two system calls; io uses MSG_DONTWAIT. With TLS the bytes go through
 *         a session, which may buffer input that poll does not report.
 *
 * Trouble A request that the kernel did not take completely was not executed
 *         (CONN). Any other request without a reply is in doubt (UNKNOWN).
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

#define STALE_US  1000000 /* after this idle time, check before sending */
#define READS_MAX 16      /* per event, so that other sockets do not starve */

/* Estimated size of a reply: a fraction of its request, but at least this. */
#define REPLY_FRACTION  16
#define REPLY_MIN_BYTES 12

/* The first two bytes of a TLS record: its type and the major version. */
enum { TLS_RECORD_ALERT = 0x15, TLS_RECORD_HANDSHAKE, TLS_RECORD_MAJOR = 3 };

/* ---- closing ----------------------------------------------------------- */

static void on_gone(struct dibs__task *t)
{
    struct dibs__conn *cn = DIBS_OF(t, struct dibs__conn, step);

    cn->gone(cn);
}

static void on_poll_closed(uv_handle_t *h)
{
    dibs__free(h);
}

void dibs__conn_drop_socket(struct dibs__conn *cn)
{
    if (cn->poll)
        uv_close((uv_handle_t *)cn->poll, on_poll_closed);
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
        cn->step.run = on_gone;
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

/* As send(2) and recv(2); flags: 0 or MSG_DONTWAIT. */
static ssize_t send_bytes(const struct dibs__conn *cn, const char *data,
                          size_t len, int flags)
{
    return cn->tls ? dibs__tls_send(cn->tls, data, len, flags)
                   : send(cn->fd, data, len, MSG_NOSIGNAL | flags);
}

static ssize_t recv_bytes(struct dibs__conn *cn, int flags, size_t size)
{
    return cn->tls ? dibs__tls_recv(cn->tls, cn->bytes, size, flags)
                   : recv(cn->fd, cn->bytes, size, flags);
}

/* Returns how many bytes to read at once. If all replies were read and all
 * follow-up commands sent together, client and server would alternate and each
 * idle half of the time. So half of the replies are read, and their follow-up
 * commands are sent before the rest is read. If half contained no complete
 * reply, the next read is a full one. (Not with TLS: poll does not report what
 * the session buffers.) */
static size_t next_read_size(struct dibs__conn *cn)
{
    if (cn->tls || dibs__list_empty(&cn->fifo))
        return sizeof cn->bytes;
    uint64_t end = DIBS_OF(cn->fifo.next, struct dibs__req, link)->end;
    if (end >= cn->sent || end == cn->half_read_end)
        return sizeof cn->bytes;
    cn->half_read_end = end;
    int64_t half = (int64_t)((cn->sent - end) / REPLY_FRACTION / 2);
    half = dibs__max(half, REPLY_MIN_BYTES);
    return (size_t)dibs__min(half, sizeof cn->bytes);
}

/* send_bytes or recv_bytes failed. A TLS alert before the connection is ready
 * means that the server refuses the client certificate: a retry would fail,
 * too (DIBS_ERR_TLS). */
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

/* Returns whether a reply is expected: the oldest request was sent completely.
 */
static bool expects_reply(const struct dibs__conn *cn)
{
    return !dibs__list_empty(&cn->fifo) &&
           DIBS_OF(cn->fifo.next, struct dibs__req, link)->end <= cn->sent;
}

static void on_timeout(struct dibs__timer *t)
{
    struct dibs__conn *cn = DIBS_OF(t, struct dibs__conn, timer);

    if (cn->state != CONN_READY) {
        cn->dial_timed_out(cn);
        return;
    }
    int64_t now = dibs__now_ms(), first = dibs__conn_expires(cn);
    if (first <= now && dibs__conn_extend_once(cn))
        dibs__timer_set(cn->lp, &cn->timer, now + 1);
    else if (first <= now)
        dibs__conn_fail(cn, DIBS_ERR_UNKNOWN, "no reply within the time limit",
                        0);
    else if (first < INT64_MAX)
        dibs__timer_set(cn->lp, &cn->timer, first);
}

static void on_poll(uv_poll_t *poll, int status, int events);

void dibs__conn_poll(struct dibs__conn *cn, int events)
{
    if (events == cn->polled)
        return;
    cn->polled = events;
    if (events)
        uv_poll_start(cn->poll, events, on_poll);
    else
        uv_poll_stop(cn->poll);
}

/* Sends as much as the kernel takes. Returns the byte count or -errno. */
static ssize_t send_some(const struct dibs__conn *cn)
{
    size_t offset = 0;

    while (offset < cn->out.len) {
        ssize_t n = send_bytes(cn, cn->out.data + offset, cn->out.len - offset,
                               MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            break;
        if (n < 0)
            return -errno;
        offset += (size_t)n;
    }
    return (ssize_t)offset;
}

/* Sends and drops what the kernel took. Returns 0 or an errno. */
static int send_out(struct dibs__conn *cn)
{
    ssize_t n = send_some(cn);

    if (n < 0)
        return (int)-n;
    cn->sent += (uint64_t)n;
    dibs__buf_drop(&cn->out, (size_t)n);
    return 0;
}

/* Returns false if out of memory; then nothing was appended. */
static bool append_request(struct dibs__conn *cn, struct dibs__req *req)
{
    size_t before = cn->out.len;

    req->cn = cn;
    cn->number = (uint16_t)(cn->number < DIBS__REQUEST_NUMBER_MAX
                                ? cn->number + 1
                                : DIBS__REQUEST_NUMBER_MIN);
    req->request_number = cn->number;
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
        /* Nothing is sent for this request, so no reply may be assigned to it:
         * flush closes the connection, and it fails as not executed. */
        req->end = UINT64_MAX;
        cn->out_of_memory = true;
    }
    dibs__list_add(&cn->fifo, &req->link);
    if (!cn->timer.at || req->expires < cn->timer.at)
        dibs__timer_set(cn->lp, &cn->timer, req->expires);
    dibs__loop_flush(cn->lp, &cn->flush);
}

struct dibs__list *dibs__conn_pop_request(struct dibs__conn *cn)
{
    return expects_reply(cn) ? dibs__list_pop(&cn->fifo) : NULL;
}

static void handle_reply(struct dibs__conn *cn, const struct dibs__reply *reply)
{
    struct dibs__list *l = NULL;

    if (!cn->push || cn->state == CONN_SETUP)
        l = dibs__conn_pop_request(cn);
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
        dibs__conn_fail(cn, DIBS_ERR_PROTOCOL, "a reply without a request", 0);
    }
}

/* Returns whether the first input without TLS is a TLS record: an alert or a
 * handshake. */
static bool looks_like_tls(const struct dibs__conn *cn)
{
    return !cn->tls && cn->state == CONN_SETUP &&
           (cn->bytes[0] == TLS_RECORD_ALERT ||
            cn->bytes[0] == TLS_RECORD_HANDSHAKE) &&
           cn->bytes[1] == TLS_RECORD_MAJOR;
}

static void fail_protocol(struct dibs__conn *cn, dibs_err err)
{
    dibs__conn_fail(cn, err,
                    looks_like_tls(cn)
                        ? "the server sent TLS, but the URL is without TLS"
                        : "the server sent data that is not the Redis protocol",
                    0);
}

static void handle_replies(struct dibs__conn *cn)
{
    const struct dibs__reply *reply;

    while (cn->state != CONN_CLOSED) {
        dibs_err err = dibs__reader_next(&cn->in, &reply);
        if (err != DIBS_OK) {
            fail_protocol(cn, err);
            return;
        }
        if (!reply)
            break;
        handle_reply(cn, reply);
    }
    if (cn->state == CONN_READY && dibs__list_empty(&cn->fifo))
        dibs__timer_stop(cn->lp, &cn->timer);
}

/* Returns true if more input may be available. */
static bool read_some(struct dibs__conn *cn)
{
    ssize_t n = recv_bytes(cn, MSG_DONTWAIT, next_read_size(cn));

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
        handle_replies(cn);
    else
        fail_protocol(cn, err);
    if (cn->state < CONN_SETUP)
        return false;
    return cn->tls ? dibs__tls_has_pending(cn->tls)
                   : (size_t)n == sizeof cn->bytes;
}

/* Handles the input buffered in the TLS session, which poll does not report;
 * input left in the socket is reported again. */
static void read_session_input(struct dibs__conn *cn)
{
    dibs__tls_set_buffered_only(cn->tls, true);
    while (read_some(cn))
        ;
    if (cn->tls)
        dibs__tls_set_buffered_only(cn->tls, false);
}

static void on_flush(struct dibs__task *t)
{
    struct dibs__conn *cn = DIBS_OF(t, struct dibs__conn, flush);

    if (cn->out_of_memory) { /* see dibs__conn_send */
        dibs__conn_fail(cn, DIBS_ERR_CONN, "out of memory", 0);
        return;
    }
    if (cn->state == CONN_READY && !cn->push && !expects_reply(cn)) {
        (void)read_some(cn); /* input now cannot be the reply to `out` */
        if (cn->state == CONN_CLOSED)
            return;
        if (dibs__reader_has_input(&cn->in)) { /* part of a surplus reply */
            dibs__conn_fail(cn, DIBS_ERR_PROTOCOL, "a reply without a request",
                            0);
            return;
        }
    }
    int error_number = send_out(cn);
    if (error_number) {
        /* A pending TLS alert is a better error text than EPIPE. */
        bool has_alert = cn->tls &&
                         recv_bytes(cn, MSG_DONTWAIT, sizeof cn->bytes) < 0 &&
                         errno == EPROTO;
        fail_bytes(cn, "send", has_alert ? EPROTO : error_number);
        return;
    }
    dibs__conn_poll(cn, cn->out.len ? UV_READABLE | UV_WRITABLE : UV_READABLE);
}

static void on_poll(uv_poll_t *poll, int status, int events)
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
        read_session_input(cn);
    if ((events & UV_WRITABLE) && cn->state >= CONN_SETUP && cn->out.len > 0)
        on_flush(&cn->flush);
}

dibs_err dibs__conn_prepare(struct dibs__conn *cn)
{
    cn->fd = -1;
    cn->flush.run = on_flush;
    cn->timer.fire = on_timeout;
    dibs__list_init(&cn->fifo);
    cn->number = (uint16_t)dibs__random_in(DIBS__REQUEST_NUMBER_MIN,
                                           DIBS__REQUEST_NUMBER_MAX);
    return dibs__reader_init(&cn->in);
}

/* ---- lent: one command at a time --------------------------------------- */

void dibs__conn_lend(struct dibs__conn *cn)
{
    dibs__conn_poll(cn, 0);
    cn->last_used_us = dibs__now_us();
}

/* Returns whether the connection has unexpected input or is closed. That takes
 * a system call, so it is checked only after STALE_US, when the server or a
 * middlebox may have closed it, and for a request whose reply has no number. */
static bool is_unusable(struct dibs__conn *cn, bool careful, int64_t now_us)
{
    bool check = careful || now_us - cn->last_used_us >= STALE_US;
    if (dibs__reader_has_input(&cn->in))
        return true;
    if (cn->tls)
        return !dibs__tls_has_no_input(cn->tls, check);
    return check && dibs__conn_readable(cn);
}

static dibs_err send_all(struct dibs__conn *cn)
{
    size_t offset = 0;

    while (offset < cn->out.len) {
        ssize_t n =
            send_bytes(cn, cn->out.data + offset, cn->out.len - offset, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return DIBS_ERR_CONN; /* also EAGAIN: SO_SNDTIMEO has passed */
        offset += (size_t)n;
    }
    dibs__buf_cut(&cn->out, 0);
    cn->sent = cn->queued;
    return DIBS_OK;
}

static dibs_err feed_reader(struct dibs__conn *cn, ssize_t n)
{
    if (n <= 0)
        return DIBS_ERR_UNKNOWN;
    return dibs__reader_feed(&cn->in, cn->bytes, (size_t)n) == DIBS_OK
               ? DIBS_OK
               : DIBS_ERR_UNKNOWN;
}

/* Waits until the socket is readable. Returns false at `expires`, true also
 * after a signal. */
static bool wait_for_bytes(const struct dibs__conn *cn, int64_t expires)
{
    struct pollfd p = {.fd = cn->fd, .events = POLLIN};
    int64_t left = expires - dibs__now_ms();
    int n = poll(&p, 1, left > 0 ? (int)left : 0);

    return n > 0 || (n < 0 && errno == EINTR);
}

/* Receives once. Without by_clock the socket's SO_RCVTIMEO limits the wait,
 * which saves the poll; further receives, and deadlines shorter than that
 * timeout, use poll with the time left. OK: the reader may have a complete
 * reply. */
static dibs_err receive_some(struct dibs__conn *cn, bool by_clock,
                             int64_t expires)
{
    int flags = cn->tls && by_clock ? MSG_DONTWAIT : 0;
    ssize_t n = -1;

    if (flags) { /* poll does not report input buffered in the session */
        n = recv_bytes(cn, flags, sizeof cn->bytes);
        if (n >= 0 || errno != EAGAIN)
            return feed_reader(cn, n);
    }
    if (by_clock && !wait_for_bytes(cn, expires))
        return DIBS_ERR_UNKNOWN;
    n = recv_bytes(cn, flags, sizeof cn->bytes);
    if (n < 0 && (errno == EINTR || (cn->tls && errno == EAGAIN)))
        return DIBS_OK;
    return feed_reader(cn, n);
}

dibs_err dibs__conn_send_sync(struct dibs__conn *cn, struct dibs__req *req)
{
    int64_t now_us = dibs__now_us();

    if (is_unusable(cn, req->check_input, now_us) || !append_request(cn, req))
        return DIBS_ERR_CONN;
    cn->last_used_us = now_us;
    return send_all(cn);
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

/* ---- lent: many requests at a time ------------------------------------- */

bool dibs__conn_is_batchable(struct dibs__conn *cn)
{
    return !cn->tls && !is_unusable(cn, false, dibs__now_us());
}

bool dibs__conn_append(struct dibs__conn *cn, struct dibs__req *req)
{
    if (!append_request(cn, req))
        return false;
    dibs__list_add(&cn->fifo, &req->link);
    return true;
}

bool dibs__conn_send_some(struct dibs__conn *cn)
{
    return send_out(cn) == 0;
}

bool dibs__conn_recv_some(struct dibs__conn *cn)
{
    ssize_t n = recv_bytes(cn, MSG_DONTWAIT, next_read_size(cn));

    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return true;
    return feed_reader(cn, n) == DIBS_OK;
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

bool dibs__conn_extend_once(struct dibs__conn *cn)
{
    if (cn->tls || !expects_reply(cn) || !dibs__conn_readable(cn))
        return false;
    uint64_t before = cn->extended_end;
    cn->extended_end = DIBS_OF(cn->fifo.next, struct dibs__req, link)->end;
    return cn->extended_end != before;
}

void dibs__conn_adopt(struct dibs__conn *cn)
{
    dibs__timer_set(cn->lp, &cn->timer, dibs__conn_expires(cn));
    dibs__loop_flush(cn->lp, &cn->flush);
}
