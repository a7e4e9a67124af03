/* SPDX-License-Identifier: MIT
 *
 * proxy_link.c - one client of the proxy and its connection to the server.
 *
 * Thread  the proxy's, with p.mu held, throughout.
 *
 * How     Requests are cut out of what the client sends and passed on; each
 *         leaves a note (struct req) in a queue, and a reply belongs to the
 *         note at its head. Replies become parcels (struct parcel) in a second
 *         queue that leads to the client. A rule that meddles with a request
 *         does it where the request is passed on; one that meddles with the
 *         reply does it where the reply becomes a parcel: parcels can be late,
 *         held, slow, or the order to close. Since both queues keep their
 *         order, all that came before is settled first.
 *
 *         A request that does not go to the server leaves a note too (local),
 *         and is dealt with when the note comes to the head.
 *
 * The end Client gone: what it sent is still passed on and answered, then the
 *         link ends. Server gone: what it said is still delivered, then the
 *         link ends. Closing is shutdown, then close: a forked child may have
 *         a copy of the descriptor, and close alone would then tell nobody.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "support/proxy_impl.h"
#include "support/resp.h"
#include "support/util.h"

struct parcel {
    struct parcel *next;
    bool close, rst;    /* no bytes but the end */
    bool held;          /* until released */
    int64_t not_before; /* send, or send the next byte */
    int64_t drip_ms;    /* 0 = all at once */
    struct rule *rule;  /* is over with this parcel; or NULL */
    size_t len, sent;
    char data[];
};

struct req {
    struct req *next;
    struct rule *rule; /* or NULL */
    bool local;        /* the server has not got it */
    bool let_go;       /* its reply is not held any more */
    long replies;      /* to come; -1: until nothing is subscribed to */
    char number[TS_NUMBER];
};

struct link {
    struct link *next;
    struct ts_proxy *p;
    unsigned id;
    bool tcp;
    int cfd, sfd; /* client's, server's */
    struct ts_bytes from_client, to_server, from_server;
    struct req *reqs, **reqs_end;
    struct parcel *parcels, **parcels_end;
    struct rule *held_rule; /* of the first request in from_client */
    bool held;              /* that request waits to be released */
    bool stopped;           /* take no more requests */
    bool subscribed;        /* messages may come */
    bool raw;               /* not RESP: only pass on */
    bool client_ended;      /* sends no more */
    bool client_gone;       /* nor can it be sent to */
    bool server_ended;
    bool closing; /* a parcel says so */
    bool dead;
};

/* ---- the two queues ---------------------------------------------------- */

static struct req *add_req(struct link *l, struct rule *r, bool local)
{
    struct req *q = ts_alloc(sizeof *q);

    q->rule = r;
    q->local = local;
    *l->reqs_end = q;
    l->reqs_end = &q->next;
    return q;
}

static void pop_req(struct link *l)
{
    struct req *q = l->reqs;

    l->reqs = q->next;
    if (!l->reqs)
        l->reqs_end = &l->reqs;
    free(q);
}

static struct parcel *add_parcel(struct link *l, const char *data, size_t len)
{
    struct parcel *c = ts_alloc(sizeof *c + len);

    if (len > 0)
        memcpy(c->data, data, len);
    c->len = len;
    *l->parcels_end = c;
    l->parcels_end = &c->next;
    return c;
}

/* The rule's text, for this request. */
static struct parcel *add_text(struct link *l, const struct ts_rule *how,
                               const struct req *q)
{
    struct ts_bytes b = {0};

    ts_bytes_add_answer(&b, how->bare ? "" : q->number, how->text,
                        how->text_len);
    struct parcel *c = add_parcel(l, ts_bytes_at(&b), ts_bytes_len(&b));
    free(b.buf);
    return c;
}

static void add_close(struct link *l, struct rule *r)
{
    struct parcel *c = add_parcel(l, NULL, 0);

    l->closing = true;
    c->close = true;
    c->rst = r && r->spec.rst;
    c->rule = r;
}

static void pop_parcel(struct link *l)
{
    struct parcel *c = l->parcels;

    l->parcels = c->next;
    if (!l->parcels)
        l->parcels_end = &l->parcels;
    ts__book_done(l->p, c->rule);
    free(c);
}

/* ---- from the client to the server ------------------------------------- */

static void pass_on(struct link *l, struct rule *r, const char *msg, size_t len)
{
    ts_bytes_add(&l->to_server, msg, len);
    ts__book_passed(l->p, msg, len);
    struct req *q = add_req(l, r, false);
    q->replies = ts_resp_replies(msg, len, &l->subscribed);
    ts_resp_number(msg, len, q->number);
}

/* Deals with the notes at the head that no reply will come for. */
static void settle_local(struct link *l)
{
    while (l->reqs && l->reqs->local) {
        struct rule *r = l->reqs->rule;
        if (r->spec.action == TS_ANSWER)
            add_text(l, &r->spec, l->reqs)->rule = r;
        else
            add_close(l, r);
        pop_req(l);
    }
}

static size_t at_most(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* False: it is held, and stays where it is. */
static bool take_request(struct link *l, const char *msg, size_t len)
{
    struct rule *r = l->held_rule; /* set: it was held and is free now */

    l->held_rule = NULL;
    if (!r) {
        r = ts__book_request(l->p, l->id, msg, len);
        if (r && r->spec.action == TS_HOLD_REQUEST) {
            l->held = true;
            l->held_rule = r;
            return false;
        }
    }
    switch (r ? r->spec.action : TS_PASS) {
    case TS_CUT_REQUEST_AT:
        ts_bytes_add(&l->to_server, msg, at_most(r->spec.at, len));
        l->stopped = true;
        add_req(l, r, true);
        break;
    case TS_CLOSE_BEFORE:
        l->stopped = true;
        add_req(l, r, true);
        break;
    case TS_ANSWER:
        ts_resp_number(msg, len, add_req(l, r, true)->number);
        break;
    case TS_DROP_REPLY_CLOSE:
    case TS_CUT_REPLY_AT:
        l->stopped = true;
        pass_on(l, r, msg, len);
        break;
    default:
        pass_on(l, r, msg, len);
    }
    settle_local(l);
    return true;
}

static void take_requests(struct link *l)
{
    struct ts_bytes *b = &l->from_client;

    while (!l->held && !l->stopped && !l->p->hole_up && ts_bytes_len(b) > 0) {
        ssize_t n =
            l->raw ? -1 : ts_resp_request(ts_bytes_at(b), ts_bytes_len(b));
        if (n == 0)
            return;
        if (n < 0) {
            l->raw = true;
            ts_bytes_add(&l->to_server, ts_bytes_at(b), ts_bytes_len(b));
            b->start = b->end;
        } else if (take_request(l, ts_bytes_at(b), (size_t)n)) {
            b->start += (size_t)n;
        }
    }
}

static void send_up(struct link *l)
{
    struct ts_bytes *b = &l->to_server;

    while (!l->p->hole_up && !l->server_ended && ts_bytes_len(b) > 0) {
        ssize_t n =
            send(l->sfd, ts_bytes_at(b), l->p->bytewise ? 1 : ts_bytes_len(b),
                 MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n > 0)
            b->start += (size_t)n;
        else if (errno == EAGAIN)
            return;
        else if (errno != EINTR)
            b->start = b->end; /* reading will find the end */
    }
}

/* ---- from the server to the client ------------------------------------- */

static bool is_message(const struct link *l, const char *msg, size_t len)
{
    struct ts_word w[1];

    if (!l->subscribed || msg[0] != '*' || ts_resp_words(msg, len, w, 1) == 0)
        return false;
    return (w[0].len == 7 && memcmp(w[0].p, "message", 7) == 0) ||
           (w[0].len == 8 && memcmp(w[0].p, "pmessage", 8) == 0) ||
           (w[0].len == 8 && memcmp(w[0].p, "smessage", 8) == 0);
}

/* One reply fewer to come; true: it was the last. */
static bool was_last(struct req *q, const char *msg, size_t len)
{
    struct ts_word w[3];

    if (q->replies > 0)
        return --q->replies == 0;
    return ts_resp_words(msg, len, w, 3) < 3 || w[2].p[0] == '0';
}

static void turn_over(char *byte, unsigned bits)
{
    *byte = (char)((unsigned char)*byte ^ bits);
}

/* A reply as the rule wants it. Returns the parcel it ends with, or NULL. */
static struct parcel *wrap(struct link *l, const struct ts_rule *how,
                           const char *msg, size_t len)
{
    struct parcel *c = NULL;

    switch (how->action) {
    case TS_SWALLOW_REPLY:
    case TS_DROP_REPLY_CLOSE:
        return NULL;
    case TS_CUT_REPLY_AT:
        return add_parcel(l, msg, at_most(how->at, len));
    case TS_REWRITE_REPLY:
        return add_text(l, how, l->reqs);
    case TS_DUPLICATE_REPLY:
        add_parcel(l, msg, len);
        c = add_parcel(l, msg, len);
        c->not_before = ts_now_ms() + how->ms;
        return c;
    case TS_HOLD_REPLY:
        c = add_parcel(l, msg, len);
        c->held = true;
        return c;
    case TS_DELAY_REPLY:
        c = add_parcel(l, msg, len);
        c->not_before = ts_now_ms() + how->ms;
        return c;
    case TS_DRIP:
        c = add_parcel(l, msg, len);
        c->drip_ms = how->ms > 0 ? how->ms : 1;
        return c;
    case TS_CORRUPT:
        c = add_parcel(l, msg, len);
        turn_over(&c->data[how->at % len], how->bits ? how->bits : 0xff);
        return c;
    default:
        return add_parcel(l, msg, len);
    }
}

static void take_reply(struct link *l, const char *msg, size_t len)
{
    static const struct ts_rule plain = {.action = TS_PASS};

    if (is_message(l, msg, len)) {
        if (ts__book_message(l->p, msg, len))
            add_parcel(l, msg, len);
        return;
    }
    if (!l->reqs) { /* nobody asked: the server ends the connection */
        add_parcel(l, msg, len);
        return;
    }
    struct rule *r = l->reqs->rule;
    bool last = was_last(l->reqs, msg, len);
    struct parcel *c = wrap(l, r ? &r->spec : &plain, msg, len);

    if (c && l->reqs->let_go)
        c->held = false;
    if (r && (r->spec.action == TS_DROP_REPLY_CLOSE ||
              r->spec.action == TS_CUT_REPLY_AT)) {
        ts__book_executed(l->p, r);
        add_close(l, r);
        l->reqs->rule = NULL; /* the parcel has it now */
    } else if (last) {
        ts__book_executed(l->p, r);
        if (c)
            c->rule = r;
        else
            ts__book_done(l->p, r);
    }
    if (last) {
        pop_req(l);
        settle_local(l);
    }
}

static void take_replies(struct link *l)
{
    struct ts_bytes *b = &l->from_server;

    while (!l->p->hole_down && ts_bytes_len(b) > 0) {
        ssize_t n =
            l->raw ? -1 : ts_resp_reply(ts_bytes_at(b), ts_bytes_len(b));
        if (n == 0)
            return;
        if (n < 0) {
            l->raw = true;
            add_parcel(l, ts_bytes_at(b), ts_bytes_len(b));
            b->start = b->end;
        } else {
            take_reply(l, ts_bytes_at(b), (size_t)n);
            b->start += (size_t)n;
        }
    }
}

/* One attempt to send of the first parcel. False: not now. */
static bool send_parcel(struct link *l)
{
    struct parcel *c = l->parcels;
    bool single = l->p->bytewise || c->drip_ms > 0;

    if (l->client_gone) {
        pop_parcel(l);
        return true;
    }
    if (c->held || c->not_before > ts_now_ms())
        return false;
    if (c->sent < c->len) {
        ssize_t n =
            send(l->cfd, c->data + c->sent, single ? 1 : c->len - c->sent,
                 MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            return true;
        if (n < 0 && errno == EAGAIN)
            return false;
        if (n < 0)
            l->client_gone = l->client_ended = true;
        else
            c->sent += (size_t)n;
    }
    if (c->sent == c->len)
        pop_parcel(l);
    else if (c->drip_ms > 0)
        c->not_before = ts_now_ms() + c->drip_ms;
    return true;
}

static void send_down(struct link *l)
{
    while (l->parcels && !l->p->hole_down) {
        if (l->parcels->close) {
            if (ts_bytes_len(&l->to_server) == 0 || l->server_ended)
                ts__link_kill(l, l->parcels->rst);
            return;
        }
        if (!send_parcel(l))
            return;
    }
}

/* ---- its life ---------------------------------------------------------- */

static int dial_server(const struct ts_proxy *p)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    strncpy(a.sun_path, ts_server_socket(p->server), sizeof a.sun_path - 1);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof a) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

void ts__link_open(struct ts_proxy *p, int cfd, bool tcp)
{
    struct link *l = ts_alloc(sizeof *l);
    int on = 1;

    if (tcp)
        setsockopt(cfd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    l->p = p;
    l->id = ++p->last_link;
    l->tcp = tcp;
    l->cfd = cfd;
    l->reqs_end = &l->reqs;
    l->parcels_end = &l->parcels;
    l->sfd = dial_server(p);
    if (l->sfd < 0)
        l->server_ended = l->stopped = true;
    l->next = p->links;
    p->links = l;
    p->accepted++;
    ts__link_serve(l, 0, 0); /* ends it if there is no server */
}

static bool want_down(const struct link *l)
{
    const struct parcel *c = l->parcels;

    return c && !c->close && !c->held && !l->p->hole_down &&
           c->not_before <= ts_now_ms();
}

int64_t ts__link_polls(const struct link *l, struct pollfd f[2])
{
    const struct ts_proxy *p = l->p;
    const struct parcel *c = l->parcels;
    int up = 0, down = 0;

    if (!l->client_ended && !p->hole_up)
        up |= POLLIN;
    if (!l->client_gone && want_down(l))
        up |= POLLOUT;
    if (!l->server_ended && !p->hole_down)
        down |= POLLIN;
    if (!l->server_ended && !p->hole_up && ts_bytes_len(&l->to_server) > 0)
        down |= POLLOUT;
    /* A descriptor one wants nothing of would still report its end. */
    f[0] = (struct pollfd){.fd = up ? l->cfd : -1, .events = (short)up};
    f[1] = (struct pollfd){.fd = down ? l->sfd : -1, .events = (short)down};
    bool timed = c && !c->held && !p->hole_down && c->not_before > ts_now_ms();
    return timed ? c->not_before : INT64_MAX;
}

/* Nothing is left to do for a client that has gone. */
static bool is_over(const struct link *l)
{
    return l->client_ended && !l->held && !l->p->hole_up && !l->reqs &&
           !l->parcels && ts_bytes_len(&l->to_server) == 0;
}

void ts__link_serve(struct link *l, short from_client, short from_server)
{
    bool broken = false;

    if (l->dead)
        return;
    if (from_client & (POLLIN | POLLHUP | POLLERR) && !l->client_ended &&
        !ts_bytes_read(&l->from_client, l->cfd, &broken)) {
        l->client_ended = true;
        l->client_gone = broken;
    }
    if (from_server & (POLLIN | POLLHUP | POLLERR) && !l->server_ended &&
        !ts_bytes_read(&l->from_server, l->sfd, &broken))
        l->server_ended = true;
    take_requests(l);
    send_up(l);
    take_replies(l);
    if (l->server_ended && !l->p->hole_down && !l->closing)
        add_close(l, NULL);
    send_down(l);
    if (!l->dead && is_over(l))
        ts__link_kill(l, false);
}

void ts__link_release(struct link *l)
{
    l->held = false;
    for (struct parcel *c = l->parcels; c; c = c->next)
        c->held = false;
    for (struct req *r = l->reqs; r; r = r->next)
        r->let_go = r->rule && !r->rule->active;
}

/* An end, or a reset. What we have not read would turn an end into a reset, so
 * it is read first. Connecting to nowhere resets at once, even if somebody
 * else has the descriptor too. */
static void hang_up(int fd, bool rst)
{
    struct sockaddr nowhere = {.sa_family = AF_UNSPEC};
    char junk[4096];

    if (fd < 0)
        return;
    if (!rst || connect(fd, &nowhere, sizeof nowhere) < 0) {
        shutdown(fd, SHUT_WR);
        while (recv(fd, junk, sizeof junk, MSG_DONTWAIT) > 0)
            continue;
        shutdown(fd, SHUT_RDWR);
    }
    close(fd);
}

void ts__link_kill(struct link *l, bool rst)
{
    if (l->dead)
        return;
    l->dead = true;
    hang_up(l->sfd, false);
    hang_up(l->cfd, rst && l->tcp);
    ts__book_done(l->p, l->held_rule);
    while (l->reqs) {
        ts__book_done(l->p, l->reqs->rule);
        pop_req(l);
    }
    while (l->parcels)
        pop_parcel(l);
}

size_t ts__links_sweep(struct ts_proxy *p)
{
    struct link **at = &p->links;
    size_t live = 0;

    while (*at) {
        struct link *l = *at;
        if (!l->dead) {
            live++;
            at = &l->next;
            continue;
        }
        *at = l->next;
        free(l->from_client.buf);
        free(l->to_server.buf);
        free(l->from_server.buf);
        free(l);
    }
    return live;
}

struct link *ts__link_next(const struct link *l)
{
    return l->next;
}

bool ts__link_dead(const struct link *l)
{
    return l->dead;
}
