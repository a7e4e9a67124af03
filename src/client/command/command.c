/* SPDX-License-Identifier: MIT
 *
 * command.c - a command seen through.
 *
 * Thread  io, except dibs__command_start and dibs__command_run_direct.
 * Locks   none.
 *
 * How     A call is sent; what comes back decides (error_class.c): it is
 * answered, tried again a little later, or given up, all by one deadline.
 *
 *         state    what happens                          next
 *         POSTED   io looks: up; not up                  SENT; WAITING
 *         WAITING  a connection, a map; the time is over SENT; OVER
 *         RESTING  the time to try again                 as POSTED
 *         GROUPED  (replica_ack.c) the group goes               SENT
 *         SENT     the answer; "not now"; none           OVER; RESTING; POSTED
 *         SENT     the answer, but replicas count        KEPT
 *         KEPT     (replica_ack.c) they have it, or do not      OVER
 *
 *         In a cluster a call goes by its slot: where that is is looked up
 *         each time it is sent. MOVED tells another place for good, ASK for
 *         this once: then ASKING goes out before the command, in one write.
 *
 * Ghosts  A call whose reply was lost leaves a ghost: see in_doubt.c. The ghost
 * is canceled before the call is sent again. Where that is not possible, the
 * caller is told, and takes care by other means.
 */
#include "client/command/command.h"

#include "client/command/error_class.h"
#include "client/command/in_doubt.h"
#include "client/command/script.h"

#include <stdio.h>
#include <string.h>

#define RETRY_FIRST_MS 10
#define RETRY_MAX_MS   500
#define HUSH_MS        1000
#define HOPS_MAX       4 /* sent on so often at once, then with pauses */

static void start_call(struct dibs__command *cmd);

/* The reply to this call is lost. Thread: the one that has the connection. */
static void taint_call(struct dibs__command *cmd)
{
    struct dibs__pooled_conn *conn =
        DIBS_OF(cmd->req.cn, struct dibs__pooled_conn, cn);

    dibs__stats_count(cmd->server->events.stats, STAT_UNKNOWN, 1);
    cmd->resent = true;
    cmd->unkillable |= cmd->in_doubt &&
                       !dibs__in_doubt_killed(cmd->in_doubt); /* an older one */
    dibs__in_doubt_unref(cmd->in_doubt);
    if (!conn->in_doubt)
        conn->in_doubt = dibs__in_doubt_new(conn);
    cmd->in_doubt = conn->in_doubt;
    if (cmd->in_doubt)
        dibs__in_doubt_ref(cmd->in_doubt);
    else
        cmd->unkillable = true;
}

/* ---- one call ---------------------------------------------------------- */

/* Why it ends with an error: what the server answered, or the last that is
 * known about the server, or about the cluster. */
static void explain_call(struct dibs__command *cmd, dibs_err err,
                         const struct dibs__reply *reply)
{
    char words[DIBS__REASON_MAX], why[DIBS__REASON_MAX];
    const struct dibs__url *url =
        cmd->server ? &cmd->server->to.url : cmd->slots->url;
    const char *known = cmd->server ? cmd->server->why : cmd->slots->why;

    if (reply && reply->type == REPLY_ERROR) {
        dibs__script_words(reply->text, cmd->slots ? NULL : url, words);
        dibs__event_text(url, words, why);
    } else if (err == DIBS_ERR_PROTOCOL) {
        dibs__event_text(url, "the reply makes no sense", why);
    } else if (known[0]) {
        snprintf(why, sizeof why, "%s", known);
    } else {
        dibs__event_text(url, dibs_strerror(err), why);
    }
    cmd->explain(cmd, err, why);
}

static struct dibs__loop *loop_of(const struct dibs__command *cmd)
{
    return cmd->server ? cmd->server->lp : cmd->slots->lp;
}

/* So many calls are with io: a server that has some gets no callers. Those for
 * replicas have a connection of their own. */
static void count_call(const struct dibs__command *cmd, unsigned by)
{
    if (cmd->server && !cmd->replicas)
        atomic_fetch_add_explicit(&cmd->server->queued, by,
                                  memory_order_relaxed);
}

static void end_call(struct dibs__command *cmd, dibs_err err,
                     const struct dibs__reply *reply)
{
    dibs__timer_stop(loop_of(cmd), &cmd->timer);
    cmd->state = CMD_DONE;
    cmd->maybe_live_copy =
        cmd->unkillable ||
        (cmd->in_doubt && !dibs__in_doubt_killed(cmd->in_doubt) &&
         dibs__in_doubt_of(cmd->in_doubt, cmd->server));
    if (cmd->in_doubt)
        dibs__in_doubt_kill_later(cmd->in_doubt);
    dibs__in_doubt_unref(cmd->in_doubt);
    cmd->in_doubt = NULL;
    count_call(cmd, -1u);
    cmd->done(cmd, err, reply);
}

static void finish_call(struct dibs__command *cmd, dibs_err err,
                        const struct dibs__reply *reply)
{
    if (err != DIBS_OK && err != DIBS_ERR_CLOSED && cmd->explain)
        explain_call(cmd, err, reply);
    end_call(cmd, err, reply);
}

static bool is_closing(const struct dibs__command *cmd)
{
    return cmd->server ? dibs__server_is_closing(cmd->server)
                       : cmd->slots->closing;
}

static void give_up_call(struct dibs__command *cmd)
{
    if (cmd->resent)
        finish_call(cmd, DIBS_ERR_UNKNOWN, NULL);
    else if (is_closing(cmd))
        finish_call(cmd, DIBS_ERR_CLOSED, NULL);
    else if (cmd->last_err)
        finish_call(cmd, cmd->last_err, NULL);
    else /* one that is not writable is there, and would have said no */
        finish_call(cmd,
                    cmd->server && cmd->server->read_only ? DIBS_ERR_SERVER
                                                          : DIBS_ERR_CONN,
                    NULL);
}

static void call_timed(struct dibs__timer *t)
{
    struct dibs__command *cmd = DIBS_OF(t, struct dibs__command, timer);

    assert(cmd->state == CMD_WAITING || cmd->state == CMD_BACKOFF ||
           cmd->state == CMD_WAIT_GROUP);
    dibs__list_del(&cmd->req.link);
    start_call(cmd);
}

static void move_call(struct dibs__command *cmd, struct dibs__server *to)
{
    count_call(cmd, -1u);
    cmd->server = to;
    count_call(cmd, 1);
}

static void route_call(struct dibs__command *cmd)
{
    if (!cmd->slots || cmd->slot < 0 || cmd->send_asking)
        return;
    struct dibs__server *to = cmd->slots->find(cmd->slots, cmd->slot);
    if (to != cmd->server)
        move_call(cmd, to);
}

/* For its server, or to know which one that is. The call may be over after
 * that. */
static void wait_call(struct dibs__command *cmd, int64_t until)
{
    struct dibs__server *s = cmd->server;

    cmd->state = CMD_WAITING;
    dibs__list_add(s ? &s->waiting : &cmd->slots->waiting, &cmd->req.link);
    dibs__timer_set(loop_of(cmd), &cmd->timer, until);
    if (s)
        dibs__server_ensure_connected(s);
    else
        cmd->slots->wanted(cmd->slots);
}

static void start_call(struct dibs__command *cmd)
{
    route_call(cmd);
    struct dibs__server *s = cmd->server;
    bool up = s && dibs__server_is_up(s);
    int64_t until = cmd->deadline;

    if (!up && cmd->connect_by)
        until = dibs__min(until, cmd->connect_by);
    if (is_closing(cmd) || dibs__now_ms() >= until) {
        give_up_call(cmd);
        return;
    }
    if (!up) {
        wait_call(cmd, until);
        return;
    }
    if (cmd->in_doubt && dibs__in_doubt_of(cmd->in_doubt, s))
        dibs__in_doubt_kill(cmd->in_doubt);
    if (cmd->replicas)
        s->acks.add(s, cmd);
    else
        dibs__command_send(cmd, s->main);
}

void dibs__command_send(struct dibs__command *cmd,
                        struct dibs__pooled_conn *conn)
{
    dibs__timer_stop(cmd->server->lp, &cmd->timer);
    dibs__command_mark_sent(cmd);
    cmd->req.skip = cmd->send_asking ? 1 : 0;
    dibs__conn_send(&conn->cn, &cmd->req);
    cmd->send_asking = false; /* for this once */
}

void dibs__command_retry(struct dibs__command *cmd, bool executed)
{
    cmd->resent |= executed;
    start_call(cmd);
}

void dibs__command_give_up(struct dibs__command *cmd, dibs_err err)
{
    cmd->last_err = err;
    give_up_call(cmd);
}

void dibs__command_acknowledged(struct dibs__command *cmd, dibs_err err,
                                bool refused)
{
    struct dibs__reply reply = {.type = cmd->saved_reply_type};

    if (reply.type == REPLY_TEXT) {
        reply.text = cmd->saved_reply.text;
        reply.len = strlen(reply.text);
    } else {
        reply.num = cmd->saved_reply.num;
    }
    cmd->under_replicated = err != DIBS_OK;
    if (refused && cmd->explain)
        cmd->explain(cmd, err, cmd->server->why);
    end_call(cmd, err, &reply);
}

static void rest_call(struct dibs__command *cmd)
{
    int64_t wait = RETRY_FIRST_MS << dibs__min(cmd->tries, 6);

    cmd->tries++;
    wait = dibs__min(wait, RETRY_MAX_MS);
    wait = dibs__now_ms() + dibs__random_in(wait / 2, wait);
    cmd->state = CMD_BACKOFF;
    dibs__list_add(&cmd->server->backing_off, &cmd->req.link);
    dibs__timer_set(cmd->server->lp, &cmd->timer,
                    dibs__min(wait, cmd->deadline));
}

/* MOVED or ASK: another server it is. */
static bool redirect_call(struct dibs__command *cmd, const char *error)
{
    bool ask = false;

    if (!cmd->slots)
        return false;
    struct dibs__server *to =
        cmd->slots->redirect(cmd->slots, cmd->server, error, &cmd->slot, &ask);
    if (!to || to == cmd->server || cmd->redirects++ >= HOPS_MAX) {
        rest_call(cmd);
        return true;
    }
    if (ask)
        move_call(cmd, to);
    cmd->send_asking = ask;
    start_call(cmd);
    return true;
}

static void tell_error(const struct dibs__command *cmd, const char *error)
{
    char words[DIBS__REASON_MAX];

    dibs__script_words(error, cmd->slots ? NULL : &cmd->server->to.url, words);
    dibs__server_log(cmd->server, DIBS_EVENT_ERROR, cmd->last_err, words);
}

/* The server can do nothing just now (it is loading, say), and all its calls
 * come back with that: once in a while is enough. In a cluster a slot on its
 * way answers so, which is not worth telling. */
static void tell_not_now(const struct dibs__command *cmd, const char *error)
{
    int64_t now = dibs__now_ms();

    if (cmd->quiet || cmd->slots || now < cmd->server->throttle_until)
        return;
    cmd->server->throttle_until = now + HUSH_MS;
    tell_error(cmd, error);
}

/* The server answered with an error. False: that is the answer. */
static bool try_again(struct dibs__command *cmd, const char *error)
{
    const struct dibs__error_class *class = dibs__error_classify(error);

    cmd->partially_executed = class->executed == EXECUTED_PARTLY;
    cmd->last_err = class->err;
    if (class->next != NEXT_GIVE_UP && class->next != NEXT_RELOAD)
        dibs__server_set_last_error(cmd->server,
                                    error); /* should it give up then */
    switch (class->next) {
    case NEXT_GIVE_UP:
        return false;
    case NEXT_RELOAD:
        if (cmd->full_script)
            return false;
        cmd->full_script = true;
        start_call(cmd);
        return true;
    case NEXT_REDIAL:
        dibs__server_redial(cmd->server, error);
        rest_call(cmd);
        return true;
    case NEXT_REDIRECT:
        return redirect_call(cmd, error);
    case NEXT_LATER:
        cmd->resent |= cmd->partially_executed;
        tell_not_now(cmd, error);
        if (cmd->slots)
            cmd->slots->doubt(cmd->slots);
        rest_call(cmd);
        return true;
    }
    return false;
}

/* A reply ends with the next one: what is said of this one is copied. */
static void keep_reply(struct dibs__command *cmd,
                       const struct dibs__reply *reply)
{
    const size_t room = sizeof cmd->saved_reply.text - 1;
    size_t len = reply->len < room ? reply->len : room;

    cmd->state = CMD_AWAIT_REPLICAS;
    cmd->saved_reply_type = (unsigned char)reply->type;
    if (reply->type != REPLY_TEXT) {
        cmd->saved_reply.num = reply->num;
        return;
    }
    memcpy(cmd->saved_reply.text, reply->text, len);
    cmd->saved_reply.text[len] = 0;
}

/* What the reply says, maybe in *room. NULL: it is not the reply to this
 * sending; the connection is out of step. */
static const struct dibs__reply *answer_in(const struct dibs__command *cmd,
                                           const struct dibs__reply *reply,
                                           struct dibs__reply *room)
{
    if (!cmd->no_script)
        reply = dibs__script_result(reply, cmd->req.number, room);
    return reply && dibs__reply_fits(reply, cmd->expects) ? reply : NULL;
}

static void judge_reply(struct dibs__req *req, dibs_err err,
                        const struct dibs__reply *reply)
{
    struct dibs__command *cmd = DIBS_OF(req, struct dibs__command, req);
    const struct dibs__reply *whole = reply;
    struct dibs__reply room;

    reply = err == DIBS_OK ? answer_in(cmd, whole, &room) : NULL;
    if (err == DIBS_OK && !reply) {
        /* Again: that is how this server answers. But with others behind it,
         * it may be the answer to one of those. */
        if (cmd->desync && dibs__list_empty(&req->cn->fifo)) {
            finish_call(cmd, DIBS_ERR_PROTOCOL, whole);
            return;
        }
        cmd->desync = true;
        err = DIBS_ERR_UNKNOWN;
        dibs__conn_close(req->cn, DIBS_ERR_CONN, "a reply to another command");
    }
    if (err == DIBS_OK)
        DIBS_OF(req->cn, struct dibs__pooled_conn, cn)->served = true;
    if (err == DIBS_OK && cmd->replicas && cmd->writes & 1u << reply->type) {
        keep_reply(cmd, reply);
        cmd->server->acks.keep(cmd->server, cmd);
    } else if (err == DIBS_OK && reply->type != REPLY_ERROR) {
        dibs__server_mark_writable(cmd->server);
        finish_call(cmd, DIBS_OK, reply);
    } else if (err == DIBS_OK) {
        if (try_again(cmd, reply->text))
            return;
        if (!cmd->quiet)
            tell_error(cmd, reply->text);
        finish_call(cmd, cmd->last_err, reply);
    } else {
        if (err == DIBS_ERR_UNKNOWN) {
            taint_call(cmd);
            dibs__server_log(cmd->server, DIBS_EVENT_UNKNOWN, err,
                             "a reply was lost");
        }
        start_call(cmd);
    }
}

static void call_answered(struct dibs__req *req, dibs_err err,
                          const struct dibs__reply *reply)
{
    struct dibs__server *s = DIBS_OF(req, struct dibs__command, req)->server;
    struct dibs__pooled_conn *conn =
        DIBS_OF(req->cn, struct dibs__pooled_conn, cn);

    judge_reply(req, err, reply);
    dibs__server_replied(s);
    dibs__server_reclaim(conn);
}

static void write_call(struct dibs__req *req, struct dibs__buf *out)
{
    struct dibs__command *cmd = DIBS_OF(req, struct dibs__command, req);

    dibs__stats_count(cmd->server->events.stats, STAT_COMMANDS, 1);
    if (cmd->send_asking) {
        dibs__buf_array(out, 1);
        dibs__buf_arg_text(out, "ASKING");
    }
    cmd->write(cmd, out, cmd->full_script);
    if (!cmd->no_script)
        dibs__buf_arg_num(out, req->number);
}

static void start_posted(struct dibs__task *t)
{
    start_call(DIBS_OF(t, struct dibs__command, task));
}

void dibs__command_prepare(struct dibs__route to, struct dibs__command *cmd)
{
    cmd->server = to.server;
    cmd->slots = to.server ? to.server->slots : to.slots;
    if (!cmd->server)
        cmd->server = cmd->slots->find(cmd->slots, cmd->slot);
    cmd->req = (struct dibs__req){.write = write_call, .done = call_answered};
    cmd->req.careful = cmd->no_script; /* its answer has no number */
    cmd->task.run = start_posted;
    cmd->timer.fire = call_timed;
    cmd->timer.at = 0;
    cmd->in_doubt = NULL;
    cmd->resent = cmd->maybe_live_copy = cmd->partially_executed =
        cmd->under_replicated = false;
    cmd->unkillable = cmd->full_script = cmd->desync = false;
    cmd->send_asking = cmd->deadline_extended = false;
    cmd->tries = cmd->redirects = 0;
    cmd->last_err = DIBS_OK;
    cmd->state = CMD_POSTED;
}

void dibs__command_post(struct dibs__command *cmd)
{
    cmd->state = CMD_POSTED;
    count_call(cmd, 1);
    dibs__loop_post(loop_of(cmd), &cmd->task);
}

void dibs__command_start(struct dibs__route to, struct dibs__command *cmd)
{
    dibs__command_prepare(to, cmd);
    dibs__command_post(cmd);
}

void dibs__command_run_now(struct dibs__route to, struct dibs__command *cmd)
{
    dibs__command_prepare(to, cmd);
    count_call(cmd, 1);
    start_call(cmd);
}

bool dibs__command_consume_reply(struct dibs__command *cmd,
                                 const struct dibs__reply *reply)
{
    struct dibs__reply room;

    reply = answer_in(cmd, reply, &room);
    cmd->desync = !reply;
    if (cmd->desync)
        return false;
    if (reply->type == REPLY_ERROR) {
        /* An error from the middle of a script: it may be done all the same. */
        cmd->resent |=
            dibs__error_classify(reply->text)->executed == EXECUTED_PARTLY;
        dibs__command_post(cmd);
        return true;
    }
    cmd->state = CMD_DONE;
    cmd->done(cmd, DIBS_OK, reply);
    return true;
}

/* What came of a direct call. Anything out of the ordinary is for the io
 * thread. An error reply is asked for once more there: the same answer comes,
 * or a better one. */
static void settle_call(struct dibs__command *cmd,
                        struct dibs__pooled_conn *conn, dibs_err err,
                        const struct dibs__reply *reply)
{
    if (err == DIBS_OK && dibs__command_consume_reply(cmd, reply)) {
        dibs__server_give_back(conn, true);
        return;
    }
    if (err != DIBS_ERR_CONN)
        taint_call(cmd);
    dibs__server_give_back(conn, false);
    dibs__command_post(cmd);
}

void dibs__commands_count(const struct dibs__list *fifo)
{
    for (struct dibs__list *l = fifo->next; l != fifo; l = l->next)
        count_call(DIBS_OF(l, struct dibs__command, req.link), 1);
}

void dibs__command_mark_sent(struct dibs__command *cmd)
{
    cmd->state = CMD_SENT;
    cmd->sent_ms = dibs__now_ms();
    cmd->req.expires =
        dibs__min(dibs__add(cmd->sent_ms, cmd->attempt_ms), cmd->deadline);
}

bool dibs__command_send_sync(struct dibs__route to, struct dibs__command *cmd)
{
    assert(!dibs__loop_inside() && "io must not wait");
    dibs__command_prepare(to, cmd);
    struct dibs__pooled_conn *conn =
        cmd->replicas || !cmd->server ? NULL : dibs__server_borrow(cmd->server);
    if (!conn) {
        dibs__command_post(cmd);
        return false;
    }
    dibs__command_mark_sent(cmd);
    dibs_err err = dibs__conn_send_sync(&conn->cn, &cmd->req);
    if (err != DIBS_OK)
        settle_call(cmd, conn, err, NULL);
    return err == DIBS_OK;
}

bool dibs__command_recv_sync(struct dibs__command *cmd, int64_t until)
{
    struct dibs__pooled_conn *conn =
        DIBS_OF(cmd->req.cn, struct dibs__pooled_conn, cn);
    const struct dibs__reply *reply;
    dibs_err err = dibs__conn_recv_sync(
        &conn->cn, dibs__min(cmd->req.expires, until), &reply);

    settle_call(cmd, conn, err, reply);
    return err == DIBS_OK;
}

void dibs__command_run_direct(struct dibs__route to, struct dibs__command *cmd)
{
    if (dibs__command_send_sync(to, cmd))
        dibs__command_recv_sync(cmd, INT64_MAX);
}

/* ---- all calls --------------------------------------------------------- */

void dibs__commands_resume(struct dibs__server *s)
{
    struct dibs__list all;

    dibs__list_init(&all);
    dibs__list_move(&all, &s->waiting);
    for (struct dibs__list *l; (l = dibs__list_pop(&all));)
        start_call(DIBS_OF(l, struct dibs__command, req.link));
}

void dibs__commands_reroute(struct dibs__list *waiting)
{
    struct dibs__list all;

    dibs__list_init(&all);
    dibs__list_move(&all, waiting);
    for (struct dibs__list *l; (l = dibs__list_pop(&all));) {
        struct dibs__command *cmd = DIBS_OF(l, struct dibs__command, req.link);
        cmd->send_asking = false;
        start_call(cmd);
    }
}

void dibs__commands_end(struct dibs__list *waiting, dibs_err err,
                        bool patient_too)
{
    struct dibs__list all;

    dibs__list_init(&all);
    dibs__list_move(&all, waiting);
    for (struct dibs__list *l; (l = dibs__list_pop(&all));) {
        struct dibs__command *cmd = DIBS_OF(l, struct dibs__command, req.link);
        if (cmd->connect_by && !patient_too)
            dibs__list_add(waiting, &cmd->req.link);
        else
            dibs__command_give_up(cmd, err);
    }
}

void dibs__commands_fail(struct dibs__server *s, dibs_err err, bool patient_too)
{
    if (dibs__server_is_closing(s))
        dibs__list_move(&s->waiting, &s->backing_off);
    dibs__commands_end(&s->waiting, err, patient_too);
}
