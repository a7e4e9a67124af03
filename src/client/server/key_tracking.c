/* SPDX-License-Identifier: MIT
 *
 * key_tracking.c - CLIENT TRACKING: invalidation messages for the keys of held
 * locks.
 *
 * Thread  io.
 * Locks   none.
 *
 * How     The server tracks the keys that the main connection reads after
 *         CLIENT CACHING YES. When another connection modifies such a key, the
 *         server sends one invalidation message and stops tracking the key.
 *         Messages arrive on a dedicated connection, opened on the first
 *         dibs__key_tracking_enable: a client that never holds a lock for
 *         longer than a second does not need it.
 *
 *         A write on the main connection sends no message (NOLOOP), but ends
 *         the tracking of its key as well. So the reads follow each renewal, in
 *         the same write. Redis 6.2 sends a message for own writes
 * nevertheless.
 *
 * States  state      event                                   next
 *         OFF        enabled, and main is up                 DIALING
 *         DIALING    connected; failed                       LISTENING; RESTING
 *         LISTENING  SUBSCRIBE confirmed; refused            ASKING; REFUSED
 *         ASKING     CLIENT TRACKING succeeded; refused      ON; REFUSED
 *         ON         CLIENT CACHING or a read is refused     REFUSED
 *         RESTING    back-off timer                          DIALING
 *         any        the dedicated connection was lost       RESTING
 *         any        the main connection was lost            OFF
 *         OFF        main is up again, and it was enabled    RESTING
 *
 * Errors  Modifications while the state is not ON send no message. So on each
 *         transition to ON, `changed` is called for all keys. Without the
 *         permission, or through a proxy without tracking, or if a message is
 *         lost, the next renewal detects a lost lock.
 */
#include "client/server/key_tracking.h"

#include "base/mem.h"
#include "client/command/error_class.h"
#include "client/server/server.h"

#include <string.h>
#include <unistd.h>

#define BACKOFF_FIRST_MS 20
#define BACKOFF_MAX_MS   5000
#define RESUME_MS        1000 /* after a reconnect: commands go first */
#define CHANNEL          "__redis__:invalidate"

struct tracking_req {
    struct dibs__req req;
    struct dibs__server *s;
    unsigned attempt;     /* replies to older attempts are ignored */
    char redirect_id[24]; /* client id of the dedicated connection */
};

/* A batch of reads, each after a CLIENT CACHING. Of the replies only the first,
 * to CLIENT CACHING, and the last, to a read, are examined. */
struct read_batch {
    struct dibs__req first, last;
    struct dibs__server *s;
    struct dibs__buf text;
};

static void set_state(struct dibs__server *s,
                      enum dibs__key_tracking_state state)
{
    atomic_store(&s->tracking.state, state);
}

static bool state_is(const struct dibs__server *s,
                     enum dibs__key_tracking_state state)
{
    return atomic_load(&s->tracking.state) == state;
}

/* ---- the dedicated connection ------------------------------------------ */

static void close_conn(struct dibs__server *s, const char *why)
{
    struct dibs__pooled_conn *conn = s->tracking.conn;

    s->tracking.conn = NULL; /* so that conn_down does not redial */
    if (conn)
        dibs__conn_close(&conn->cn, DIBS_ERR_CLOSED, why);
}

/* Must run before the connection is closed: `text` may be in its buffer. */
static void log_refusal(struct dibs__server *s, const char *text)
{
    char message[DIBS__REASON_MAX];

    if (s->tracking.refusal_logged)
        return;
    s->tracking.refusal_logged = true;
    snprintf(
        message, sizeof message,
        "a lost lock is detected at its next renewal only; CLIENT TRACKING "
        "is refused: %.200s",
        text);
    dibs__server_log(s, DIBS_EVENT_WARNING, DIBS_ERR_AUTH, message);
}

static void refuse(struct dibs__server *s, const char *text)
{
    log_refusal(s, text);
    set_state(s, TRACK_REFUSED);
    close_conn(s, "tracking was refused");
}

static void back_off(struct dibs__server *s)
{
    int64_t wait = dibs__backoff(&s->tracking.backoff_ms, BACKOFF_FIRST_MS,
                                 BACKOFF_MAX_MS);

    set_state(s, TRACK_BACKOFF);
    dibs__timer_set(s->lp, &s->tracking.again, dibs__now_ms() + wait);
}

/* ---- CLIENT TRACKING --------------------------------------------------- */

static void tracking_write(struct dibs__req *req, struct dibs__buf *out)
{
    const struct tracking_req *tr = DIBS_OF(req, struct tracking_req, req);

    dibs__buf_array(out, 7);
    dibs__buf_arg_text(out, "CLIENT");
    dibs__buf_arg_text(out, "TRACKING");
    dibs__buf_arg_text(out, "ON");
    dibs__buf_arg_text(out, "REDIRECT");
    dibs__buf_arg_text(out, tr->redirect_id);
    dibs__buf_arg_text(out, "OPTIN");
    dibs__buf_arg_text(out, "NOLOOP");
}

/* Returns true if there is a reply to this request: of the type `wanted`, an
 * error reply, or another type that this server keeps sending. Returns false if
 * the main connection was lost, or was closed here because of a desync. */
static bool has_reply(struct dibs__server *s, const struct dibs__req *req,
                      dibs_err err, const struct dibs__reply *reply,
                      enum dibs__reply_type wanted)
{
    return err == DIBS_OK &&
           !dibs__server_is_desync(s, req, reply, 1u << wanted);
}

static const char *refusal_text(const struct dibs__reply *reply)
{
    return reply->type == REPLY_ERROR ? reply->text : "unexpected reply";
}

static void tracking_replied(struct dibs__req *req, dibs_err err,
                             const struct dibs__reply *reply)
{
    struct tracking_req *tr = DIBS_OF(req, struct tracking_req, req);
    struct dibs__server *s = tr->s;
    bool current =
        state_is(s, TRACK_ENABLING) && tr->attempt == s->tracking.attempts;
    bool replied = has_reply(s, req, err, reply, REPLY_TEXT);

    dibs__free(tr);
    if (!replied)
        return;
    if (current && reply->type != REPLY_TEXT) {
        refuse(s, refusal_text(reply));
    } else if (current) {
        set_state(s, TRACK_ON);
        s->tracking.backoff_ms = 0;
        s->tracking.changed(s, NULL, 0);
    }
    dibs__server_replied(s);
}

static void send_tracking(struct dibs__server *s)
{
    struct tracking_req *tr = dibs__calloc(1, sizeof *tr);

    if (!tr) {
        close_conn(s, "out of memory");
        back_off(s);
        return;
    }
    tr->s = s;
    tr->attempt = ++s->tracking.attempts;
    tr->req.write = tracking_write;
    tr->req.done = tracking_replied;
    tr->req.expires = dibs__now_ms() + s->target.command_timeout_ms;
    memcpy(tr->redirect_id, s->tracking.conn->cn.id, sizeof tr->redirect_id);
    set_state(s, TRACK_ENABLING);
    dibs__conn_send(&s->main->cn, &tr->req);
}

/* ---- invalidation messages --------------------------------------------- */

static void handle_invalidation(struct dibs__server *s,
                                const struct dibs__reply *keys)
{
    if (keys->type == REPLY_NIL) /* FLUSHALL: all keys */
        s->tracking.changed(s, NULL, 0);
    for (size_t i = 0; keys->type == REPLY_ARRAY && i < keys->len; i++)
        if (keys->elem[i]->type == REPLY_TEXT)
            s->tracking.changed(s, keys->elem[i]->text, keys->elem[i]->len);
}

static void handle_message(struct dibs__conn *cn,
                           const struct dibs__reply *reply)
{
    struct dibs__server *s = DIBS_OF(cn, struct dibs__pooled_conn, cn)->server;
    const struct dibs__reply *verb = dibs__reply_text(reply, 0);

    if (reply->type == REPLY_ERROR)
        refuse(s, reply->text);
    else if (!verb || reply->len < 3)
        return;
    else if (strcmp(verb->text, "message") == 0)
        handle_invalidation(s, reply->elem[2]);
    else if (strcmp(verb->text, "subscribe") == 0 &&
             state_is(s, TRACK_LISTENING))
        send_tracking(s);
}

static void conn_up(struct dibs__conn *cn)
{
    struct dibs__server *s = DIBS_OF(cn, struct dibs__pooled_conn, cn)->server;

    if (!cn->id[0]) {
        refuse(s, "the server does not report the client id of a connection");
        return;
    }
    set_state(s, TRACK_LISTENING);
    dibs__conn_poll(cn, UV_READABLE);
    dibs__buf_array(&cn->out, 2);
    dibs__buf_arg_text(&cn->out, "SUBSCRIBE");
    dibs__buf_arg_text(&cn->out, CHANNEL);
    cn->out_of_memory |= !dibs__buf_ok(&cn->out); /* closes the connection */
    dibs__loop_flush(s->lp, &cn->flush);
}

static void conn_down(struct dibs__conn *cn, dibs_err err, const char *why)
{
    struct dibs__pooled_conn *conn = DIBS_OF(cn, struct dibs__pooled_conn, cn);

    (void)err;
    (void)why; /* not logged: tracking is optional */
    if (conn != conn->server->tracking.conn)
        return;
    conn->server->tracking.conn = NULL;
    back_off(conn->server);
}

static void dial(struct dibs__server *s)
{
    if (!dibs__server_is_up(s))
        return;
    set_state(s, TRACK_DIALING);
    s->tracking.conn = dibs__pooled_conn_open(s, conn_up, conn_down);
    if (s->tracking.conn)
        s->tracking.conn->cn.push = handle_message;
    else
        back_off(s);
}

static void again_fired(struct dibs__timer *t)
{
    dial(DIBS_OF(t, struct dibs__server, tracking.again));
}

/* ---- reads ------------------------------------------------------------- */

void dibs__key_tracking_append_caching(struct dibs__buf *out)
{
    dibs__buf_array(out, 3);
    dibs__buf_arg_text(out, "CLIENT");
    dibs__buf_arg_text(out, "CACHING");
    dibs__buf_arg_text(out, "YES");
}

static void batch_write(struct dibs__req *req, struct dibs__buf *out)
{
    struct read_batch *r = DIBS_OF(req, struct read_batch, first);

    dibs__buf_add(out, r->text.data, r->text.len);
}

static void empty_write(struct dibs__req *req, struct dibs__buf *out)
{
    (void)req;
    (void)out;
}

static void caching_replied(struct dibs__req *req, dibs_err err,
                            const struct dibs__reply *reply)
{
    struct dibs__server *s = DIBS_OF(req, struct read_batch, first)->s;

    if (has_reply(s, req, err, reply, REPLY_TEXT) &&
        reply->type != REPLY_TEXT && state_is(s, TRACK_ON))
        refuse(s, refusal_text(reply));
}

/* A transient error or a redirect does not end the tracking. */
static void batch_replied(struct dibs__req *req, dibs_err err,
                          const struct dibs__reply *reply)
{
    struct read_batch *r = DIBS_OF(req, struct read_batch, last);
    struct dibs__server *s = r->s;
    bool replied = has_reply(s, req, err, reply, REPLY_NUM);

    dibs__buf_clear(&r->text);
    dibs__free(r);
    if (!replied)
        return;
    if (reply->type != REPLY_NUM && state_is(s, TRACK_ON) &&
        dibs__error_classify(refusal_text(reply))->next == NEXT_GIVE_UP)
        refuse(s, refusal_text(reply));
    dibs__server_replied(s);
}

bool dibs__key_tracking_read(struct dibs__server *s, struct dibs__buf *out,
                             unsigned count)
{
    struct read_batch *r = dibs__calloc(1, sizeof *r);
    int64_t expires = dibs__now_ms() + s->target.command_timeout_ms;

    if (!r || !dibs__buf_ok(out)) {
        dibs__buf_clear(out);
        dibs__free(r);
        return false;
    }
    r->s = s;
    r->text = *out;
    *out = (struct dibs__buf){0};
    r->first = (struct dibs__req){
        .write = batch_write, .done = caching_replied, .expires = expires};
    r->last = (struct dibs__req){.write = empty_write,
                                 .done = batch_replied,
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
    s->tracking.again.fire = again_fired;
}

void dibs__key_tracking_enable(struct dibs__server *s)
{
    s->tracking.wanted = true;
    if (state_is(s, TRACK_OFF))
        dial(s);
}

void dibs__key_tracking_resume(struct dibs__server *s)
{
    if (!s->tracking.wanted || !state_is(s, TRACK_OFF))
        return;
    set_state(s, TRACK_BACKOFF);
    dibs__timer_set(s->lp, &s->tracking.again, dibs__now_ms() + RESUME_MS);
}

void dibs__key_tracking_drop(struct dibs__server *s)
{
    dibs__timer_stop(s->lp, &s->tracking.again);
    set_state(s, TRACK_OFF);
    close_conn(s, "the main connection went down");
}

void dibs__key_tracking_abandon(struct dibs__server *s)
{
    if (s->tracking.conn && s->tracking.conn->cn.fd >= 0)
        close(s->tracking.conn->cn.fd);
}
