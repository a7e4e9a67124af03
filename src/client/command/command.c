/* SPDX-License-Identifier: MIT
 *
 * command.c - one command: routing, retries, deadline.
 *
 * Thread  io, except dibs__command_start, _post, _run_direct, _send_sync,
 *         _recv_sync, and what callback_io.c uses.
 * Locks   none.
 *
 * How     The command is sent; error_class.c classifies an error reply, which
 *         decides between completion, retry with back-off and redirect. The
 *         deadline covers all attempts.
 *
 *         state           event                          next
 *         POSTED          io runs the task: server up    SENT (or WAIT_GROUP)
 *         POSTED          server down or unknown         WAITING
 *         WAITING         connected, or slot map read    SENT
 *         WAITING         deadline or connect_by         DONE
 *         BACKOFF         retry timer                    as POSTED
 *         WAIT_GROUP      replica_ack.c sends the group  SENT
 *         SENT            final reply                    DONE
 *         SENT            transient error                BACKOFF
 *         SENT            no reply (in doubt), redirect  as POSTED
 *         SENT            reply, replicas must confirm   AWAIT_REPLICAS
 *         AWAIT_REPLICAS  WAIT was answered or refused   DONE
 *         AWAIT_REPLICAS  WAIT got no reply (in doubt)   as POSTED
 *
 *         In a cluster the slot is looked up for each attempt. MOVED updates
 *         the slot map; ASK redirects one attempt only, with ASKING before the
 *         command, in the same write.
 *
 * In doubt  An attempt without a reply leaves a dibs__in_doubt. The next
 *         attempt is sent after CLIENT KILL of the old connection, on the same
 *         connection. If that is refused, maybe_live_copy is set on completion.
 */
#include "client/command/command.h"

#include "client/command/error_class.h"
#include "client/command/in_doubt.h"
#include "client/command/script.h"

#include <stdio.h>
#include <string.h>

#define RETRY_FIRST_MS  10
#define RETRY_SHIFT_MAX 6 /* limits the doubling of RETRY_FIRST_MS */
#define RETRY_MAX_MS    500
#define TRANSIENT_LOG_MS                                                       \
    1000                /* at most one log line per server and interval        \
                         */
#define REDIRECTS_MAX 4 /* followed at once; later ones back off first */

static void try_send(struct dibs__command *cmd);

/* The reply of the last attempt is lost. Thread: the connection's user. */
static void mark_in_doubt(struct dibs__command *cmd)
{
    struct dibs__pooled_conn *conn =
        DIBS_OF(cmd->req.cn, struct dibs__pooled_conn, cn);

    dibs__stats_count(cmd->server->events.stats, STAT_UNKNOWN, 1);
    cmd->resent = true;
    /* cmd->in_doubt is about an earlier attempt, and is replaced here. */
    cmd->unkillable |= cmd->in_doubt && !dibs__in_doubt_killed(cmd->in_doubt);
    dibs__in_doubt_unref(cmd->in_doubt);
    if (!conn->in_doubt)
        conn->in_doubt = dibs__in_doubt_new(conn);
    cmd->in_doubt = conn->in_doubt;
    if (cmd->in_doubt)
        dibs__in_doubt_ref(cmd->in_doubt);
    else
        cmd->unkillable = true;
}

/* ---- one command ------------------------------------------------------- */

/* Passes the error text to cmd->explain: the error reply, else the last error
 * of the server or cluster, else the text of `err`. */
static void explain_error(struct dibs__command *cmd, dibs_err err,
                          const struct dibs__reply *reply)
{
    char text[DIBS__REASON_MAX], why[DIBS__REASON_MAX];
    const struct dibs__url *url =
        cmd->server ? &cmd->server->target.url : cmd->slots->url;
    const char *known =
        cmd->server ? cmd->server->last_error : cmd->slots->last_error;

    if (reply && reply->type == REPLY_ERROR) {
        dibs__script_error_text(reply->text, cmd->slots ? NULL : url, text);
        dibs__event_format(url, text, why);
    } else if (err == DIBS_ERR_PROTOCOL) {
        dibs__event_format(url, "unexpected reply", why);
    } else if (known[0]) {
        snprintf(why, sizeof why, "%s", known);
    } else {
        dibs__event_format(url, dibs_strerror(err), why);
    }
    cmd->on_error_text(cmd, err, why);
}

static struct dibs__loop *command_loop(const struct dibs__command *cmd)
{
    return cmd->server ? cmd->server->lp : cmd->slots->lp;
}

/* server.queued counts commands on the main connection; above a limit, callers
 * do not borrow a connection. Commands with replicas use a connection of their
 * own and do not count. */
static void count_queued(const struct dibs__command *cmd, unsigned by)
{
    if (cmd->server && !cmd->replicas)
        atomic_fetch_add_explicit(&cmd->server->queued, by,
                                  memory_order_relaxed);
}

static void run_done(struct dibs__command *cmd, dibs_err err,
                     const struct dibs__reply *reply)
{
    dibs__timer_stop(command_loop(cmd), &cmd->timer);
    cmd->state = CMD_DONE;
    cmd->may_have_stale_copy =
        cmd->unkillable ||
        (cmd->in_doubt && !dibs__in_doubt_killed(cmd->in_doubt) &&
         dibs__in_doubt_is_on(cmd->in_doubt, cmd->server));
    if (cmd->in_doubt)
        dibs__in_doubt_kill_later(cmd->in_doubt);
    dibs__in_doubt_unref(cmd->in_doubt);
    cmd->in_doubt = NULL;
    count_queued(cmd, -1u);
    cmd->on_reply(cmd, err, reply);
}

/* Passes the error text, if any, and completes the command. */
static void complete(struct dibs__command *cmd, dibs_err err,
                     const struct dibs__reply *reply)
{
    if (err != DIBS_OK && err != DIBS_ERR_CLOSED && cmd->on_error_text)
        explain_error(cmd, err, reply);
    run_done(cmd, err, reply);
}

static bool target_is_closing(const struct dibs__command *cmd)
{
    return cmd->server ? dibs__server_is_closing(cmd->server)
                       : cmd->slots->closing;
}

static void give_up(struct dibs__command *cmd)
{
    if (cmd->resent)
        complete(cmd, DIBS_ERR_UNKNOWN, NULL);
    else if (target_is_closing(cmd))
        complete(cmd, DIBS_ERR_CLOSED, NULL);
    else if (cmd->last_err)
        complete(cmd, cmd->last_err, NULL);
    else /* a read-only server is reachable, so CONN would be wrong */
        complete(cmd,
                 cmd->server && cmd->server->read_only ? DIBS_ERR_SERVER
                                                       : DIBS_ERR_CONN,
                 NULL);
}

static void on_timer(struct dibs__timer *t)
{
    struct dibs__command *cmd = DIBS_OF(t, struct dibs__command, timer);

    assert(cmd->state == CMD_WAITING || cmd->state == CMD_BACKOFF ||
           cmd->state == CMD_WAIT_GROUP);
    dibs__list_del(&cmd->req.link);
    try_send(cmd);
}

static void set_server(struct dibs__command *cmd, struct dibs__server *to)
{
    count_queued(cmd, -1u);
    cmd->server = to;
    count_queued(cmd, 1);
}

static void route_by_slot(struct dibs__command *cmd)
{
    if (!cmd->slots || cmd->slot < 0 || cmd->send_asking)
        return;
    struct dibs__server *to = cmd->slots->find_server(cmd->slots, cmd->slot);
    if (to != cmd->server)
        set_server(cmd, to);
}

/* Waits for a connection, or for the slot map if no server is known. The
 * command may be completed inside this call. */
static void wait_for_connection(struct dibs__command *cmd, int64_t until)
{
    struct dibs__server *s = cmd->server;

    cmd->state = CMD_WAITING;
    dibs__list_add(s ? &s->waiting : &cmd->slots->waiting, &cmd->req.link);
    dibs__timer_set(command_loop(cmd), &cmd->timer, until);
    if (s)
        dibs__server_ensure_connected(s);
    else
        cmd->slots->need_map(cmd->slots);
}

static void try_send(struct dibs__command *cmd)
{
    route_by_slot(cmd);
    struct dibs__server *s = cmd->server;
    bool up = s && dibs__server_is_up(s);
    int64_t until = cmd->deadline;

    if (!up && cmd->connect_by)
        until = dibs__min(until, cmd->connect_by);
    if (target_is_closing(cmd) || dibs__now_ms() >= until) {
        give_up(cmd);
        return;
    }
    if (!up) {
        wait_for_connection(cmd, until);
        return;
    }
    if (cmd->in_doubt && dibs__in_doubt_is_on(cmd->in_doubt, s))
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
    cmd->send_asking = false; /* ASK is valid for one attempt */
}

void dibs__command_retry(struct dibs__command *cmd, bool executed)
{
    cmd->resent |= executed;
    try_send(cmd);
}

void dibs__command_give_up(struct dibs__command *cmd, dibs_err err)
{
    cmd->last_err = err;
    give_up(cmd);
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
    if (refused && cmd->on_error_text)
        cmd->on_error_text(cmd, err, cmd->server->last_error);
    run_done(cmd, err, &reply);
}

static void back_off(struct dibs__command *cmd)
{
    int64_t wait = RETRY_FIRST_MS << dibs__min(cmd->tries, RETRY_SHIFT_MAX);

    cmd->tries++;
    wait = dibs__min(wait, RETRY_MAX_MS);
    wait = dibs__now_ms() + dibs__random_in(wait / 2, wait);
    cmd->state = CMD_BACKOFF;
    dibs__list_add(&cmd->server->backing_off, &cmd->req.link);
    dibs__timer_set(cmd->server->lp, &cmd->timer,
                    dibs__min(wait, cmd->deadline));
}

/* Handles MOVED and ASK. Returns false if this is not a cluster: then the error
 * reply is final. */
static bool follow_redirect(struct dibs__command *cmd, const char *error)
{
    bool ask = false;

    if (!cmd->slots)
        return false;
    struct dibs__server *to =
        cmd->slots->redirect(cmd->slots, cmd->server, error, &cmd->slot, &ask);
    if (!to || to == cmd->server || cmd->redirects++ >= REDIRECTS_MAX) {
        back_off(cmd);
        return true;
    }
    if (ask)
        set_server(cmd, to);
    cmd->send_asking = ask;
    try_send(cmd);
    return true;
}

static void log_error_reply(const struct dibs__command *cmd, const char *error)
{
    char text[DIBS__REASON_MAX];

    dibs__script_error_text(error, cmd->slots ? NULL : &cmd->server->target.url,
                            text);
    dibs__server_log(cmd->server, DIBS_EVENT_ERROR, cmd->last_err, text);
}

/* Logs a transient error (LOADING, BUSY). Every command to the server gets the
 * same error, so the log is rate-limited. In a cluster this is the normal reply
 * of a migrating slot and is not logged. */
static void log_transient_error(const struct dibs__command *cmd,
                                const char *error)
{
    int64_t now = dibs__now_ms();

    if (cmd->quiet || cmd->slots || now < cmd->server->next_transient_log_ms)
        return;
    cmd->server->next_transient_log_ms = now + TRANSIENT_LOG_MS;
    log_error_reply(cmd, error);
}

/* Handles an error reply. Returns true if the command goes on, false if the
 * error is final; cmd->last_err is set in any case. */
static bool retry_on_error(struct dibs__command *cmd, const char *error)
{
    const struct dibs__error_class *class = dibs__error_classify(error);

    cmd->partially_executed = class->executed == EXECUTED_PARTLY;
    cmd->last_err = class->err;
    if (class->next != NEXT_GIVE_UP && class->next != NEXT_RELOAD)
        dibs__server_set_last_error(cmd->server, error);
    switch (class->next) {
    case NEXT_GIVE_UP:
        return false;
    case NEXT_RELOAD:
        if (cmd->full_script)
            return false;
        cmd->full_script = true;
        try_send(cmd);
        return true;
    case NEXT_REDIAL:
        dibs__server_redial(cmd->server, error);
        back_off(cmd);
        return true;
    case NEXT_REDIRECT:
        return follow_redirect(cmd, error);
    case NEXT_LATER:
        cmd->resent |= cmd->partially_executed;
        log_transient_error(cmd, error);
        if (cmd->slots)
            cmd->slots->mark_stale(cmd->slots);
        back_off(cmd);
        return true;
    }
    return false;
}

/* Copies the reply: the connection reuses its memory for the next one. */
static void save_reply(struct dibs__command *cmd,
                       const struct dibs__reply *reply)
{
    const size_t max = sizeof cmd->saved_reply.text - 1;
    size_t len = reply->len < max ? reply->len : max;

    cmd->state = CMD_AWAIT_REPLICAS;
    cmd->saved_reply_type = (unsigned char)reply->type;
    if (reply->type != REPLY_TEXT) {
        cmd->saved_reply.num = reply->num;
        return;
    }
    memcpy(cmd->saved_reply.text, reply->text, len);
    cmd->saved_reply.text[len] = 0;
}

/* Returns the reply without the request number; *storage may hold it. NULL if
 * the reply belongs to another request: the connection is desynchronized. */
static const struct dibs__reply *unwrap_reply(const struct dibs__command *cmd,
                                              const struct dibs__reply *reply,
                                              struct dibs__reply *storage)
{
    if (!cmd->no_script)
        reply = dibs__script_result(reply, cmd->req.request_number, storage);
    return reply && dibs__reply_has_type(reply, cmd->expects) ? reply : NULL;
}

static void handle_reply(struct dibs__req *req, dibs_err err,
                         const struct dibs__reply *reply)
{
    struct dibs__command *cmd = DIBS_OF(req, struct dibs__command, req);
    const struct dibs__reply *raw = reply;
    struct dibs__reply storage;

    reply = err == DIBS_OK ? unwrap_reply(cmd, raw, &storage) : NULL;
    if (err == DIBS_OK && !reply) {
        /* The second mismatch of a command, with no other request in flight:
         * not a desync, this server replies with a wrong type. With others in
         * flight, the reply may belong to one of them. */
        if (cmd->desync && dibs__list_empty(&req->cn->fifo)) {
            complete(cmd, DIBS_ERR_PROTOCOL, raw);
            return;
        }
        cmd->desync = true;
        err = DIBS_ERR_UNKNOWN;
        dibs__conn_close(req->cn, DIBS_ERR_CONN, "a reply to another command");
    }
    if (err == DIBS_OK)
        DIBS_OF(req->cn, struct dibs__pooled_conn, cn)->served = true;
    if (err == DIBS_OK && cmd->replicas && cmd->writes & 1u << reply->type) {
        save_reply(cmd, reply);
        cmd->server->acks.keep(cmd->server, cmd);
    } else if (err == DIBS_OK && reply->type != REPLY_ERROR) {
        dibs__server_mark_writable(cmd->server);
        complete(cmd, DIBS_OK, reply);
    } else if (err == DIBS_OK) {
        if (retry_on_error(cmd, reply->text))
            return;
        if (!cmd->quiet)
            log_error_reply(cmd, reply->text);
        complete(cmd, cmd->last_err, reply);
    } else {
        if (err == DIBS_ERR_UNKNOWN) {
            mark_in_doubt(cmd);
            dibs__server_log(cmd->server, DIBS_EVENT_UNKNOWN, err,
                             "a reply was lost");
        }
        try_send(cmd);
    }
}

static void on_reply(struct dibs__req *req, dibs_err err,
                     const struct dibs__reply *reply)
{
    struct dibs__server *s = DIBS_OF(req, struct dibs__command, req)->server;
    struct dibs__pooled_conn *conn =
        DIBS_OF(req->cn, struct dibs__pooled_conn, cn);

    handle_reply(req, err, reply);
    dibs__server_replied(s);
    dibs__server_reclaim(conn);
}

static void write_request(struct dibs__req *req, struct dibs__buf *out)
{
    struct dibs__command *cmd = DIBS_OF(req, struct dibs__command, req);

    dibs__stats_count(cmd->server->events.stats, STAT_COMMANDS, 1);
    if (cmd->send_asking) {
        dibs__buf_array(out, 1);
        dibs__buf_arg_text(out, "ASKING");
    }
    cmd->write(cmd, out, cmd->full_script);
    if (!cmd->no_script)
        dibs__buf_arg_num(out, req->request_number);
}

static void run_posted(struct dibs__task *t)
{
    try_send(DIBS_OF(t, struct dibs__command, task));
}

void dibs__command_prepare(struct dibs__route to, struct dibs__command *cmd)
{
    cmd->server = to.server;
    cmd->slots = to.server ? to.server->slots : to.slots;
    if (!cmd->server)
        cmd->server = cmd->slots->find_server(cmd->slots, cmd->slot);
    cmd->req = (struct dibs__req){.write = write_request, .done = on_reply};
    cmd->req.check_input = cmd->no_script; /* the reply has no request number */
    cmd->task.run = run_posted;
    cmd->timer.fire = on_timer;
    cmd->timer.at = 0;
    cmd->in_doubt = NULL;
    cmd->resent = cmd->may_have_stale_copy = cmd->partially_executed =
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
    count_queued(cmd, 1);
    dibs__loop_post(command_loop(cmd), &cmd->task);
}

void dibs__command_start(struct dibs__route to, struct dibs__command *cmd)
{
    dibs__command_prepare(to, cmd);
    dibs__command_post(cmd);
}

void dibs__command_start_now(struct dibs__route to, struct dibs__command *cmd)
{
    dibs__command_prepare(to, cmd);
    count_queued(cmd, 1);
    try_send(cmd);
}

bool dibs__command_consume_reply(struct dibs__command *cmd,
                                 const struct dibs__reply *reply)
{
    struct dibs__reply storage;

    reply = unwrap_reply(cmd, reply, &storage);
    cmd->desync = !reply;
    if (cmd->desync)
        return false;
    if (reply->type == REPLY_ERROR) {
        /* The script failed after its first write: its writes persist. */
        cmd->resent |=
            dibs__error_classify(reply->text)->executed == EXECUTED_PARTLY;
        dibs__command_post(cmd);
        return true;
    }
    cmd->state = CMD_DONE;
    cmd->on_reply(cmd, DIBS_OK, reply);
    return true;
}

/* Completes a command that was sent on a borrowed connection. Everything but a
 * regular reply is left to the io thread, which sends the command again, also
 * after an error reply: there it is classified. */
static void finish_sync(struct dibs__command *cmd,
                        struct dibs__pooled_conn *conn, dibs_err err,
                        const struct dibs__reply *reply)
{
    if (err == DIBS_OK && dibs__command_consume_reply(cmd, reply)) {
        dibs__server_give_back(conn, true);
        return;
    }
    if (err != DIBS_ERR_CONN)
        mark_in_doubt(cmd);
    dibs__server_give_back(conn, false);
    dibs__command_post(cmd);
}

void dibs__commands_count_queued(const struct dibs__list *fifo)
{
    for (struct dibs__list *l = fifo->next; l != fifo; l = l->next)
        count_queued(DIBS_OF(l, struct dibs__command, req.link), 1);
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
    assert(!dibs__loop_on_io_thread() && "the io thread must not block");
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
        finish_sync(cmd, conn, err, NULL);
    return err == DIBS_OK;
}

bool dibs__command_recv_sync(struct dibs__command *cmd, int64_t until)
{
    struct dibs__pooled_conn *conn =
        DIBS_OF(cmd->req.cn, struct dibs__pooled_conn, cn);
    const struct dibs__reply *reply;
    dibs_err err = dibs__conn_recv_sync(
        &conn->cn, dibs__min(cmd->req.expires, until), &reply);

    finish_sync(cmd, conn, err, reply);
    return err == DIBS_OK;
}

void dibs__command_run_sync(struct dibs__route to, struct dibs__command *cmd)
{
    if (dibs__command_send_sync(to, cmd))
        dibs__command_recv_sync(cmd, INT64_MAX);
}

/* ---- all commands ------------------------------------------------------ */

void dibs__commands_resume(struct dibs__server *s)
{
    struct dibs__list all;

    dibs__list_init(&all);
    dibs__list_move(&all, &s->waiting);
    for (struct dibs__list *l; (l = dibs__list_pop(&all));)
        try_send(DIBS_OF(l, struct dibs__command, req.link));
}

void dibs__commands_reroute(struct dibs__list *waiting)
{
    struct dibs__list all;

    dibs__list_init(&all);
    dibs__list_move(&all, waiting);
    for (struct dibs__list *l; (l = dibs__list_pop(&all));) {
        struct dibs__command *cmd = DIBS_OF(l, struct dibs__command, req.link);
        cmd->send_asking = false;
        try_send(cmd);
    }
}

void dibs__commands_fail_list(struct dibs__list *waiting, dibs_err err,
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
    dibs__commands_fail_list(&s->waiting, err, patient_too);
}
