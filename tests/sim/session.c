/* SPDX-License-Identifier: MIT
 *
 * session.c - one client: bytes in, bytes out.
 *
 * State             what can happen                         next
 * SR_NORMAL         commands are executed, in order         either of these
 * SR_BLOCKED_WAIT   enough replicas, or its time is over    SR_NORMAL
 * SR_ENDED          nothing; what is waiting can be taken   -
 *
 * A command that must wait because clients are paused, or because the server
 * is stopped, stays among the bytes that came in. So what is cut off before it
 * was executed never will be.
 */
#include "sim/impl.h"

#include <stdlib.h>
#include <string.h>

static bool too_many(const struct sr_server *s)
{
    return s->nsessions - (s->from_master != NULL) >
           sr__setting_int(s, "maxclients");
}

void sr__touch(struct sr_session *c)
{
    struct sr_server *s = c->s;

    if (c->touched)
        return;
    c->touched = true;
    c->touched_next = NULL;
    if (!s->touched)
        s->touched_last = &s->touched;
    *s->touched_last = c;
    s->touched_last = &c->touched_next;
}

struct sr_session *sr_touched(struct sr_server *s)
{
    struct sr_session *c = s->touched;

    if (c) {
        s->touched = c->touched_next;
        c->touched = false;
    }
    return c;
}

/* It is about to go. */
static void untouch(struct sr_session *c)
{
    struct sr_server *s = c->s;
    struct sr_session **at = &s->touched;

    while (c->touched && *at != c)
        at = &(*at)->touched_next;
    if (c->touched && !(*at = c->touched_next))
        s->touched_last = at;
    c->touched = false;
}

void sr_set_owner(struct sr_session *c, void *owner)
{
    c->owner = owner;
}

void *sr_owner(const struct sr_session *c)
{
    return c->owner;
}

struct sr_session *sr_open(struct sr_server *s, const char *addr)
{
    struct sr_session *c = sr__alloc(sizeof *c);

    sr__clock(s);
    *(s->last_session ? &s->last_session->next : &s->sessions) = c;
    c->prev = s->last_session;
    s->last_session = c;
    s->nsessions++;
    c->s = s;
    c->id = ++s->last_id;
    c->addr = sr__bytes(addr, strlen(addr)).p;
    c->name = sr__bytes("", 0).p;
    c->born = s->now;
    c->user = sr__user_find(s, sr__view("default"));
    if (!sr__user_open(c->user))
        c->user = NULL;
    if (too_many(s)) {
        sr__buf_text(&c->out, "-ERR max number of clients reached\r\n");
        sr__session_end(c);
    }
    return c;
}

void sr__session_end(struct sr_session *c)
{
    if (c->mode == SR_ENDED)
        return;
    c->mode = SR_ENDED;
    c->s->nsessions--;
    sr__touch(c);
    sr__pubsub_leave(c);
    sr__track_leave(c);
}

static void free_session(struct sr_session *c)
{
    sr__session_end(c);
    untouch(c);
    sr__buf_free(&c->in);
    sr__buf_free(&c->out);
    free(c->addr);
    free(c->name);
    free(c);
}

void sr_close(struct sr_session *c)
{
    *(c->prev ? &c->prev->next : &c->s->sessions) = c->next;
    *(c->next ? &c->next->prev : &c->s->last_session) = c->prev;
    free_session(c);
}

void sr_hang_up(struct sr_session *c)
{
    if (c->s->stopped && c->mode != SR_ENDED)
        c->gone = true;
    else
        sr_close(c);
}

/* The server goes on, and sees who has gone. */
void sr__sessions_see_gone(struct sr_server *s)
{
    for (struct sr_session *c = s->sessions, *next; c; c = next) {
        next = c->next;
        if (c->gone)
            sr_close(c);
    }
}

void sr__sessions_free(struct sr_server *s)
{
    while (s->sessions)
        sr_close(s->sessions);
}

/* One request of those that are here. False: none can be executed now. */
static bool run_one(struct sr_session *c)
{
    const char *why = NULL;
    struct sr_str *argv;
    int argc;
    long len = sr__parse(c->in.p, c->in.n, &argc, &argv, &why);

    if (len < 0) {
        sr__buf_fmt(&c->out, "-%s\r\n", why);
        sr__session_end(c);
        return false;
    }
    bool done = len > 0 && (argc == 0 || sr__execute(c, argc, argv));
    if (len > 0 && !done)
        c->s->held_up = true;
    free(argv);
    if (done)
        sr__buf_drop(&c->in, (size_t)len);
    if (c->closing)
        sr__session_end(c);
    return done;
}

void sr__session_run(struct sr_session *c)
{
    if (c->executing)
        return;
    c->executing = true;
    while (c->mode == SR_NORMAL && !c->s->stopped && run_one(c))
        continue;
    c->executing = false;
    if (c->out.n > 0)
        sr__touch(c);
}

void sr_feed(struct sr_session *c, const void *bytes, size_t n)
{
    if (c->mode == SR_ENDED)
        return;
    sr__buf_add(&c->in, bytes, n);
    if (c->s->stopped) {
        c->s->held_up = true;
        return;
    }
    sr__session_run(c);
    sr__wake(c->s);
}

size_t sr_peek(const struct sr_session *c, void *bytes, size_t size)
{
    size_t n = c->out.n < size ? c->out.n : size;

    if (n)
        memcpy(bytes, c->out.p, n);
    return n;
}

size_t sr_take(struct sr_session *c, void *bytes, size_t size)
{
    size_t n = sr_peek(c, bytes, size);

    if (n)
        sr__buf_drop(&c->out, n);
    return n;
}

size_t sr_waiting(const struct sr_session *c)
{
    return c->out.n;
}

bool sr_ended(const struct sr_session *c)
{
    return c->mode == SR_ENDED;
}

int64_t sr_session_id(const struct sr_session *c)
{
    return c->id;
}

struct sr_session *sr__session_find(struct sr_server *s, int64_t id)
{
    struct sr_session *c = s->sessions;

    while (c && (c->id != id || c->mode == SR_ENDED))
        c = c->next;
    return c;
}

/* ---- who may go on ----------------------------------------------------- */

static void end_wait(struct sr_session *c)
{
    struct sr_server *s = c->s;
    int acked = sr__repl_acked(s, c->written);

    if (acked < c->wait_count && (c->wait_until < 0 || s->now < c->wait_until))
        return;
    sr__buf_fmt(&c->out, ":%d\r\n", acked);
    sr__touch(c);
    c->mode = SR_NORMAL;
}

void sr__wake(struct sr_server *s)
{
    bool held_up = false;

    sr__clock(s);
    if (!s->held_up)
        return;
    for (struct sr_session *c = s->sessions; c && !s->stopped; c = c->next) {
        if (c->mode == SR_BLOCKED_WAIT)
            end_wait(c);
        if (c->mode == SR_NORMAL && c->in.n > 0)
            sr__session_run(c);
        held_up |= c->mode == SR_BLOCKED_WAIT || c->in.n > 0;
    }
    s->held_up = held_up || s->stopped;
}
