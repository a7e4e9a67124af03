/* SPDX-License-Identifier: MIT
 *
 * key_tracking.c - a server tells when somebody changes a key that matters to
 * us.
 *
 * Thread  io.
 * Locks   none.
 *
 * How     The server keeps in mind which keys the main connection has read, if
 *         CLIENT CACHING YES came right before the read. When somebody else
 *         changes such a key, by whatever command, the server sends one
 *         message, and forgets that key. Messages go to a connection of their
 *         own, which is made when they are first wanted: a client that holds
 *         no lock for longer than a second never has it.
 *
 *         Our own writes on the main connection send nothing (NOLOOP), but they
 *         end the tracking as well. So reads come behind a renewal, in the same
 *         write. Redis 6.2 sends a message for them all the same.
 *
 * States  state      what can happen                         next
 *         OFF        it is wanted, and main is up            DIALING
 *         DIALING    the connection is up; it is not         LISTENING; RESTING
 *         LISTENING  the server confirms; it refuses         ASKING; REFUSED
 *         ASKING     tracking is on; it is refused           ON; REFUSED
 *         ON         a read is refused                       REFUSED
 *         RESTING    the time has come                       DIALING
 *         any        the connection for messages went down   RESTING
 *         any        main went down, or is out of step       OFF
 *         OFF        main is up again, and it was wanted     RESTING
 *
 * Trouble What was changed while it was not on, nobody tells. So each time it
 *         comes on, all is said to be changed. Without the right to it, through
 *         a proxy that knows nothing of it, or where messages are lost, a
 *         change is found by the next renewal, as before.
 */
#include "client/server/key_tracking.h"

#include "base/mem.h"
#include "client/command/error_class.h"
#include "client/server/server.h"

#include <string.h>
#include <unistd.h>

#define BACKOFF_FIRST_MS 20
#define BACKOFF_MAX_MS   5000
#define RESUME_MS        1000 /* after a reconnect: first things first */
#define CHANNEL          "__redis__:invalidate"

struct track_ask {
    struct dibs__req req;
    struct dibs__server *s;
    unsigned number; /* an answer to an older one says nothing */
    char to[24];     /* the connection for messages, as the server counts */
};

/* Some reads. The first answer, to CLIENT CACHING, says whether they are
 * tracked; of the others the last is looked at. */
struct track_reads {
    struct dibs__req first, last;
    struct dibs__server *s;
    struct dibs__buf text;
};

static void track_set(struct dibs__server *s,
                      enum dibs__key_tracking_state state)
{
    atomic_store(&s->tracking.state, state);
}

static bool track_is(const struct dibs__server *s,
                     enum dibs__key_tracking_state state)
{
    return atomic_load(&s->tracking.state) == state;
}

/* ---- the connection for messages --------------------------------------- */

static void end_messages(struct dibs__server *s, const char *why)
{
    struct dibs__pooled_conn *conn = s->tracking.conn;

    s->tracking.conn = NULL; /* it is not missed */
    if (conn)
        dibs__conn_close(&conn->cn, DIBS_ERR_CLOSED, why);
}

/* Before the connection ends: the text may be a reply of its. */
static void tell_refusal(struct dibs__server *s, const char *text)
{
    char words[DIBS__REASON_MAX];

    if (s->tracking.refusal_logged)
        return;
    s->tracking.refusal_logged = true;
    snprintf(words, sizeof words,
             "a lost lock is noticed at its next renewal only; CLIENT TRACKING "
             "is refused: %.200s",
             text);
    dibs__server_log(s, DIBS_EVENT_WARNING, DIBS_ERR_AUTH, words);
}

static void track_refuse(struct dibs__server *s, const char *text)
{
    tell_refusal(s, text);
    track_set(s, TRACK_REFUSED);
    end_messages(s, "tracking was refused");
}

static void track_rest(struct dibs__server *s)
{
    int64_t wait = dibs__backoff(&s->tracking.backoff_ms, BACKOFF_FIRST_MS,
                                 BACKOFF_MAX_MS);

    track_set(s, TRACK_RESTING);
    dibs__timer_set(s->lp, &s->tracking.again, dibs__now_ms() + wait);
}

/* ---- asking for it ----------------------------------------------------- */

static void track_write(struct dibs__req *req, struct dibs__buf *out)
{
    const struct track_ask *ask = DIBS_OF(req, struct track_ask, req);

    dibs__buf_array(out, 7);
    dibs__buf_arg_text(out, "CLIENT");
    dibs__buf_arg_text(out, "TRACKING");
    dibs__buf_arg_text(out, "ON");
    dibs__buf_arg_text(out, "REDIRECT");
    dibs__buf_arg_text(out, ask->to);
    dibs__buf_arg_text(out, "OPTIN");
    dibs__buf_arg_text(out, "NOLOOP");
}

/* False: main went down, or was out of step, and that was told. True: the reply
 * is what was wanted, or a refusal. */
static bool is_answered(struct dibs__server *s, const struct dibs__req *req,
                        dibs_err err, const struct dibs__reply *reply,
                        enum dibs__reply_type wanted)
{
    return err == DIBS_OK &&
           !dibs__server_is_desync(s, req, reply, 1u << wanted);
}

static const char *refusal_text(const struct dibs__reply *reply)
{
    return reply->type == REPLY_ERROR ? reply->text
                                      : "its answer makes no sense";
}

static void track_answered(struct dibs__req *req, dibs_err err,
                           const struct dibs__reply *reply)
{
    struct track_ask *ask = DIBS_OF(req, struct track_ask, req);
    struct dibs__server *s = ask->s;
    bool current =
        track_is(s, TRACK_ASKING) && ask->number == s->tracking.attempts;
    bool answered = is_answered(s, req, err, reply, REPLY_TEXT);

    dibs__free(ask);
    if (!answered)
        return;
    if (current && reply->type != REPLY_TEXT) {
        track_refuse(s, refusal_text(reply));
    } else if (current) {
        track_set(s, TRACK_ON);
        s->tracking.backoff_ms = 0;
        s->tracking.changed(s, NULL, 0);
    }
    dibs__server_replied(s);
}

static void track_ask(struct dibs__server *s)
{
    struct track_ask *ask = dibs__calloc(1, sizeof *ask);

    if (!ask) {
        end_messages(s, "out of memory");
        track_rest(s);
        return;
    }
    ask->s = s;
    ask->number = ++s->tracking.attempts;
    ask->req.write = track_write;
    ask->req.done = track_answered;
    ask->req.expires = dibs__now_ms() + s->to.command_timeout_ms;
    memcpy(ask->to, s->tracking.conn->cn.id, sizeof ask->to);
    track_set(s, TRACK_ASKING);
    dibs__conn_send(&s->main->cn, &ask->req);
}

/* ---- what the server says ---------------------------------------------- */

static void keys_changed(struct dibs__server *s, const struct dibs__reply *keys)
{
    if (keys->type == REPLY_NIL) /* all are gone */
        s->tracking.changed(s, NULL, 0);
    for (size_t i = 0; keys->type == REPLY_ARRAY && i < keys->len; i++)
        if (keys->elem[i]->type == REPLY_TEXT)
            s->tracking.changed(s, keys->elem[i]->text, keys->elem[i]->len);
}

static void track_told(struct dibs__conn *cn, const struct dibs__reply *reply)
{
    struct dibs__server *s = DIBS_OF(cn, struct dibs__pooled_conn, cn)->server;
    const struct dibs__reply *verb = dibs__reply_text(reply, 0);

    if (reply->type == REPLY_ERROR)
        track_refuse(s, reply->text);
    else if (!verb || reply->len < 3)
        return;
    else if (strcmp(verb->text, "message") == 0)
        keys_changed(s, reply->elem[2]);
    else if (strcmp(verb->text, "subscribe") == 0 &&
             track_is(s, TRACK_LISTENING))
        track_ask(s);
}

static void track_up(struct dibs__conn *cn)
{
    struct dibs__server *s = DIBS_OF(cn, struct dibs__pooled_conn, cn)->server;

    if (!cn->id[0]) {
        track_refuse(s, "the server does not tell a connection its number");
        return;
    }
    track_set(s, TRACK_LISTENING);
    dibs__conn_poll(cn, UV_READABLE);
    dibs__buf_array(&cn->out, 2);
    dibs__buf_arg_text(&cn->out, "SUBSCRIBE");
    dibs__buf_arg_text(&cn->out, CHANNEL);
    cn->lacking |= !dibs__buf_ok(&cn->out); /* then it ends */
    dibs__loop_flush(s->lp, &cn->flush);
}

static void track_down(struct dibs__conn *cn, dibs_err err, const char *why)
{
    struct dibs__pooled_conn *conn = DIBS_OF(cn, struct dibs__pooled_conn, cn);

    (void)err;
    (void)why; /* of main the same is told; and it is a help, no more */
    if (conn != conn->server->tracking.conn)
        return;
    conn->server->tracking.conn = NULL;
    track_rest(conn->server);
}

static void track_dial(struct dibs__server *s)
{
    if (!dibs__server_is_up(s))
        return;
    track_set(s, TRACK_DIALING);
    s->tracking.conn = dibs__pooled_conn_open(s, track_up, track_down);
    if (s->tracking.conn)
        s->tracking.conn->cn.push = track_told;
    else
        track_rest(s);
}

static void track_timed(struct dibs__timer *t)
{
    track_dial(DIBS_OF(t, struct dibs__server, tracking.again));
}

/* ---- reads ------------------------------------------------------------- */

void dibs__key_tracking_next(struct dibs__buf *out)
{
    dibs__buf_array(out, 3);
    dibs__buf_arg_text(out, "CLIENT");
    dibs__buf_arg_text(out, "CACHING");
    dibs__buf_arg_text(out, "YES");
}

static void reads_write(struct dibs__req *req, struct dibs__buf *out)
{
    struct track_reads *r = DIBS_OF(req, struct track_reads, first);

    dibs__buf_add(out, r->text.data, r->text.len);
}

static void nothing_write(struct dibs__req *req, struct dibs__buf *out)
{
    (void)req;
    (void)out;
}

static void caching_answered(struct dibs__req *req, dibs_err err,
                             const struct dibs__reply *reply)
{
    struct dibs__server *s = DIBS_OF(req, struct track_reads, first)->s;

    if (is_answered(s, req, err, reply, REPLY_TEXT) &&
        reply->type != REPLY_TEXT && track_is(s, TRACK_ON))
        track_refuse(s, refusal_text(reply));
}

/* "Not now" or "not here" says nothing about the next time. */
static void reads_answered(struct dibs__req *req, dibs_err err,
                           const struct dibs__reply *reply)
{
    struct track_reads *r = DIBS_OF(req, struct track_reads, last);
    struct dibs__server *s = r->s;
    bool answered = is_answered(s, req, err, reply, REPLY_NUM);

    dibs__buf_clear(&r->text);
    dibs__free(r);
    if (!answered)
        return;
    if (reply->type != REPLY_NUM && track_is(s, TRACK_ON) &&
        dibs__error_classify(refusal_text(reply))->next == NEXT_GIVE_UP)
        track_refuse(s, refusal_text(reply));
    dibs__server_replied(s);
}

bool dibs__key_tracking_read(struct dibs__server *s, struct dibs__buf *out,
                             unsigned count)
{
    struct track_reads *r = dibs__calloc(1, sizeof *r);
    int64_t expires = dibs__now_ms() + s->to.command_timeout_ms;

    if (!r || !dibs__buf_ok(out)) {
        dibs__buf_clear(out);
        dibs__free(r);
        return false;
    }
    r->s = s;
    r->text = *out;
    *out = (struct dibs__buf){0};
    r->first = (struct dibs__req){
        .write = reads_write, .done = caching_answered, .expires = expires};
    r->last = (struct dibs__req){.write = nothing_write,
                                 .done = reads_answered,
                                 .expires = expires,
                                 .skip = 2 * count - 2};
    dibs__conn_send(&s->main->cn, &r->first);
    dibs__conn_send(&s->main->cn, &r->last);
    return true;
}

/* ---- life -------------------------------------------------------------- */

void dibs__key_tracking_init(struct dibs__server *s)
{
    atomic_init(&s->tracking.state, TRACK_OFF);
    s->tracking.again.fire = track_timed;
}

void dibs__key_tracking_enable(struct dibs__server *s)
{
    s->tracking.wanted = true;
    if (track_is(s, TRACK_OFF))
        track_dial(s);
}

void dibs__key_tracking_resume(struct dibs__server *s)
{
    if (!s->tracking.wanted || !track_is(s, TRACK_OFF))
        return;
    track_set(s, TRACK_RESTING);
    dibs__timer_set(s->lp, &s->tracking.again, dibs__now_ms() + RESUME_MS);
}

void dibs__key_tracking_drop(struct dibs__server *s)
{
    dibs__timer_stop(s->lp, &s->tracking.again);
    track_set(s, TRACK_OFF);
    end_messages(s, "the main connection went down");
}

void dibs__key_tracking_abandon(struct dibs__server *s)
{
    if (s->tracking.conn && s->tracking.conn->cn.fd >= 0)
        close(s->tracking.conn->cn.fd);
}
