/* SPDX-License-Identifier: MIT
 *
 * replica_ack.c - commands whose writes replicas must confirm (WAIT).
 *
 * Thread  io.
 * Locks   none.
 *
 * How     WAIT returns how many replicas have all writes of its connection; the
 *         server blocks that connection until there are enough. So commands
 *         with replicas use a connection of their own, opened for the first
 *         one: on the main connection a WAIT would delay lease renewals, and a
 *         borrowed connection would be missing from the pool.
 *
 *         One WAIT is in flight at a time. Commands that arrive meanwhile are
 *         queued and become the next group: all its commands, then one WAIT
 *         for the highest number that any of them needs, in one write. So a
 *         thousand commands take as long as two, also when a replica hangs. A
 *         command that wrote nothing (the lock was busy) completes with its
 *         reply, without the WAIT.
 *
 *         If no command of a group wrote, its WAIT is obsolete, but may still
 *         block; if commands are queued, the connection is closed and reopened.
 *
 *         `replicas` < 0 means all connected replicas, a number that only the
 *         server knows: ROLE is sent between the commands and WAIT, and WAIT
 *         uses the number from the previous ROLE. If this ROLE returns more, a
 *         second WAIT follows.
 *
 * Errors  Too few replicas, or WAIT or ROLE refused (unknown, no permission,
 *         not a master): the command completes with under_replicated set, and
 *         its owner rolls back. WAIT got no reply: the outcome is unknown, so
 *         the command itself is sent again, then WAIT. This requires that a
 *         command which succeeds writes each time it is executed: WAIT on a new
 *         connection does not cover writes of the old one.
 */
#include "client/command/replica_ack.h"

#include "client/command/command.h"
#include "client/command/error_class.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

#define REDIAL_MIN_MS    50
#define REDIAL_MAX_MS    200
#define OBSOLETE_WAIT_MS 50 /* until an obsolete WAIT is closed */

static void send_wait(struct dibs__server *s);

static struct dibs__server *acks_server(struct dibs__replica_acks *a)
{
    return DIBS_OF(a, struct dibs__server, acks);
}

static void schedule_group(struct dibs__server *s)
{
    dibs__loop_flush(s->lp, &s->acks.send_task);
}

/* ---- replies ----------------------------------------------------------- */

/* Returns the error for a refused or malformed reply to WAIT or ROLE. Logs the
 * refusal if commands wait for it. */
static dibs_err refusal_error(struct dibs__replica_acks *a,
                              const struct dibs__reply *reply)
{
    dibs_err err = DIBS_ERR_REPLICAS;

    if (reply->type != REPLY_ERROR)
        dibs__server_set_last_error(
            acks_server(a), "the reply about its replicas is malformed");
    if (reply->type != REPLY_ERROR || dibs__list_empty(&a->group))
        return err;
    if (dibs__error_classify(reply->text)->err == DIBS_ERR_AUTH)
        err = DIBS_ERR_AUTH;
    dibs__server_set_last_error(acks_server(a), reply->text);
    dibs__server_log(acks_server(a), DIBS_EVENT_ERROR, err, reply->text);
    return err;
}

/* Returns the number of replicas in a master's reply to ROLE; -1 if this is no
 * such reply. */
static int64_t parse_role(const struct dibs__reply *reply)
{
    const struct dibs__reply *role =
        reply->type == REPLY_ARRAY ? dibs__reply_text(reply, 0) : NULL;

    if (!role || strcmp(role->text, "master") != 0 || reply->len < 3 ||
        reply->elem[2]->type != REPLY_ARRAY)
        return -1;
    return (int64_t)reply->elem[2]->len;
}

static void role_done(struct dibs__req *req, dibs_err err,
                      const struct dibs__reply *reply)
{
    struct dibs__replica_acks *a =
        DIBS_OF(req, struct dibs__replica_acks, role);

    if (err != DIBS_OK)
        return; /* the connection is lost; wait_done handles that */
    int64_t count = parse_role(reply);
    if (count >= 0)
        a->replicas_online = count;
    else
        a->refused = refusal_error(a, reply);
}

/* Completes a command of the group: OK if enough replicas confirmed it. */
static void complete_acked(struct dibs__replica_acks *a,
                           struct dibs__command *cmd, int64_t acked,
                           dibs_err refused)
{
    bool all = cmd->replicas < 0;

    if (refused == DIBS_OK && all)
        refused = a->refused;
    bool has_error_text = refused != DIBS_OK;
    cmd->acked = (int)dibs__min(acked, INT_MAX);
    /* 0 if all are required and the server has none. */
    cmd->wanted = !all                 ? cmd->replicas
                  : refused != DIBS_OK ? (int)dibs__max(a->replicas_online, 1)
                                       : (int)a->replicas_online;
    /* "All" of zero replicas is refused: no copy would exist. */
    if (refused == DIBS_OK &&
        (acked < cmd->wanted || (all && !a->replicas_online)))
        refused = DIBS_ERR_REPLICAS;
    dibs__command_acknowledged(cmd, refused, has_error_text);
}

static void wait_done(struct dibs__req *req, dibs_err err,
                      const struct dibs__reply *reply)
{
    struct dibs__replica_acks *a =
        DIBS_OF(req, struct dibs__replica_acks, wait);
    struct dibs__server *s = acks_server(a);
    dibs_err refused = DIBS_OK;
    struct dibs__list group;

    a->wait_in_flight = false;
    if (err == DIBS_OK && reply->type == REPLY_NUM && a->role_sent &&
        a->replicas_online > a->wait_replicas && a->refused == DIBS_OK) {
        a->wait_replicas =
            a->replicas_online; /* a replica has joined since the last ROLE */
        send_wait(s);
        return;
    }
    if (err == DIBS_OK && reply->type != REPLY_NUM)
        refused = refusal_error(a, reply);
    int64_t acked = err == DIBS_OK && !refused ? dibs__max(reply->num, 0) : 0;
    dibs__list_init(&group);
    dibs__list_move(&group, &a->group);
    for (struct dibs__list *l; (l = dibs__list_pop(&group));) {
        struct dibs__command *cmd = DIBS_OF(l, struct dibs__command, req.link);
        if (err == DIBS_OK)
            complete_acked(a, cmd, acked, refused);
        else
            dibs__command_retry(cmd, true);
    }
    if (err == DIBS_OK && reply->type != REPLY_NUM &&
        reply->type != REPLY_ERROR && a->conn)
        dibs__conn_close(&a->conn->cn, DIBS_ERR_CONN,
                         "unexpected reply to WAIT");
    schedule_group(s);
}

/* ---- a group ----------------------------------------------------------- */

static void wait_write(struct dibs__req *req, struct dibs__buf *out)
{
    const struct dibs__replica_acks *a =
        DIBS_OF(req, struct dibs__replica_acks, wait);

    dibs__buf_array(out, 3);
    dibs__buf_arg_text(out, "WAIT");
    dibs__buf_arg_num(out, a->wait_replicas);
    dibs__buf_arg_num(out, dibs__max(a->wait_ms, 1)); /* 0 = no time limit */
}

static void role_write(struct dibs__req *req, struct dibs__buf *out)
{
    (void)req;
    dibs__buf_array(out, 1);
    dibs__buf_arg_text(out, "ROLE");
}

static void send_wait(struct dibs__server *s)
{
    struct dibs__replica_acks *a = &s->acks;

    a->wait_in_flight = true;
    a->wait.expires =
        dibs__now_ms() + a->wait_ms + s->target.command_timeout_ms;
    dibs__conn_send(&a->conn->cn, &a->wait);
}

static void send_group(struct dibs__server *s)
{
    struct dibs__replica_acks *a = &s->acks;

    a->wait_replicas = a->wait_ms = 0;
    a->role_sent = false;
    a->refused = DIBS_OK;
    for (struct dibs__list *l; (l = dibs__list_pop(&a->queue));) {
        struct dibs__command *cmd = DIBS_OF(l, struct dibs__command, req.link);
        a->wait_replicas = dibs__max(a->wait_replicas, cmd->replicas);
        a->wait_ms = dibs__max(a->wait_ms, cmd->replicas_ms);
        a->role_sent |= cmd->replicas < 0;
        dibs__command_send(cmd, a->conn);
    }
    if (a->role_sent) {
        a->wait_replicas = dibs__max(a->wait_replicas, a->replicas_online);
        a->role.expires = dibs__now_ms() + s->target.command_timeout_ms;
        dibs__conn_send(&a->conn->cn, &a->role);
    }
    send_wait(s);
}

/* ---- the connection ---------------------------------------------------- */

static void acks_up(struct dibs__conn *cn)
{
    struct dibs__pooled_conn *conn = DIBS_OF(cn, struct dibs__pooled_conn, cn);
    struct dibs__replica_acks *a = &conn->server->acks;

    conn->was_up = true;
    a->up = true;
    dibs__timer_stop(conn->server->lp, &a->timer);
    a->replicas_online = 0; /* may be another server than before */
    schedule_group(conn->server);
}

static void acks_redial_later(struct dibs__server *s)
{
    dibs__timer_set(s->lp, &s->acks.timer,
                    dibs__now_ms() +
                        dibs__random_in(REDIAL_MIN_MS, REDIAL_MAX_MS));
}

/* The connection attempt failed. Commands without connect_by fail, the others
 * stay queued until that time. */
static void open_failed(struct dibs__server *s, dibs_err err)
{
    struct dibs__replica_acks *a = &s->acks;
    struct dibs__list all;

    acks_redial_later(s);
    dibs__list_init(&all);
    dibs__list_move(&all, &a->queue);
    for (struct dibs__list *l; (l = dibs__list_pop(&all));) {
        struct dibs__command *cmd = DIBS_OF(l, struct dibs__command, req.link);
        if (cmd->connect_by)
            dibs__list_add(&a->queue, &cmd->req.link);
        else
            dibs__command_give_up(cmd, err);
    }
}

static void acks_down(struct dibs__conn *cn, dibs_err err, const char *why)
{
    struct dibs__pooled_conn *conn = DIBS_OF(cn, struct dibs__pooled_conn, cn);
    struct dibs__server *s = conn->server;

    s->acks.conn = NULL;
    s->acks.up = false;
    if (dibs__server_is_closing(s))
        return;
    dibs__timer_stop(s->lp, &s->acks.timer);
    if (err != DIBS_OK && !dibs__server_is_idle_closing(s)) {
        if (dibs__server_is_up(s)) /* else the main connection failed first */
            dibs__server_set_last_error(s, why);
        dibs__server_log_disconnect(s, err, why, conn->was_up);
    }
    if (!conn->was_up)
        open_failed(s, err);
    else if (!conn->served) /* it never worked: back off */
        acks_redial_later(s);
    else
        schedule_group(s);
}

static void run_group(struct dibs__task *t)
{
    struct dibs__replica_acks *a =
        DIBS_OF(t, struct dibs__replica_acks, send_task);
    struct dibs__server *s = acks_server(a);

    if (dibs__list_empty(&a->queue) || !dibs__server_is_up(s))
        return;
    if (a->up && !a->wait_in_flight) {
        send_group(s);
    } else if (a->up && !a->timer.at) {
        dibs__timer_set(s->lp, &a->timer, dibs__now_ms() + OBSOLETE_WAIT_MS);
    } else if (!a->conn && !a->timer.at) {
        a->conn = dibs__pooled_conn_open(s, acks_up, acks_down);
        if (!a->conn)
            open_failed(s, DIBS_ERR_NOMEM);
    }
}

/* Returns true if each command of the group has its reply and none of them
 * waits for WAIT. */
static bool wait_is_obsolete(const struct dibs__replica_acks *a)
{
    const struct dibs__list *first = dibs__list_first(&a->conn->cn.fifo);

    return a->wait_in_flight && dibs__list_empty(&a->group) &&
           (first == &a->wait.link || first == &a->role.link);
}

/* Without a connection: redials. With one: checks for an obsolete WAIT. */
static void timer_fired(struct dibs__timer *t)
{
    struct dibs__replica_acks *a = DIBS_OF(t, struct dibs__replica_acks, timer);

    if (a->up && wait_is_obsolete(a) && !dibs__list_empty(&a->queue))
        dibs__conn_close(&a->conn->cn, DIBS_OK, "an obsolete WAIT");
    schedule_group(acks_server(a));
}

/* ---- queue and group --------------------------------------------------- */

static void acks_add(struct dibs__server *s, struct dibs__command *cmd)
{
    struct dibs__replica_acks *a = &s->acks;

    /* The WAIT in flight delays this command by its own duration, so that is
     * added to the deadline. Once only, else a command that is retried would
     * have no deadline; and not if it was part of that group. */
    if (a->wait_in_flight && !cmd->deadline_extended && !cmd->resent) {
        cmd->deadline_extended = true;
        cmd->deadline = dibs__max(cmd->deadline,
                                  dibs__add(a->wait.expires, cmd->attempt_ms));
    }
    if (a->ending) {
        dibs__command_give_up(cmd, DIBS_ERR_CLOSED);
        return;
    }
    cmd->state = CMD_WAIT_GROUP;
    dibs__list_add(&a->queue, &cmd->req.link);
    dibs__timer_set(s->lp, &cmd->timer, cmd->deadline);
    schedule_group(s);
}

static void await_group(struct dibs__server *s, struct dibs__command *cmd)
{
    if (s->acks.ending)
        dibs__command_acknowledged(cmd, DIBS_ERR_CLOSED, false);
    else
        dibs__list_add(&s->acks.group, &cmd->req.link);
}

void dibs__replica_acks_end(struct dibs__server *s)
{
    struct dibs__list all;

    s->acks.ending = true;
    dibs__list_init(&all);
    dibs__list_move(&all, &s->acks.queue);
    for (struct dibs__list *l; (l = dibs__list_pop(&all));)
        dibs__command_give_up(DIBS_OF(l, struct dibs__command, req.link),
                              DIBS_ERR_CLOSED);
    dibs__list_move(&all, &s->acks.group);
    for (struct dibs__list *l; (l = dibs__list_pop(&all));)
        dibs__command_acknowledged(DIBS_OF(l, struct dibs__command, req.link),
                                   DIBS_ERR_CLOSED, false);
}

void dibs__replica_acks_drop(struct dibs__server *s)
{
    struct dibs__replica_acks *a = &s->acks;
    struct dibs__list all;

    dibs__timer_stop(s->lp, &a->timer);
    dibs__list_init(&all);
    dibs__list_move(&all, &a->queue);
    for (struct dibs__list *l; (l = dibs__list_pop(&all));)
        dibs__command_retry(DIBS_OF(l, struct dibs__command, req.link), false);
    if (a->conn)
        dibs__conn_close(&a->conn->cn, DIBS_ERR_CONN,
                         "the main connection went down");
}

void dibs__replica_acks_abandon(struct dibs__server *s)
{
    if (s->acks.conn && s->acks.conn->cn.fd >= 0)
        close(s->acks.conn->cn.fd);
}

void dibs__replica_acks_init(struct dibs__server *s)
{
    struct dibs__replica_acks *a = &s->acks;

    dibs__list_init(&a->queue);
    dibs__list_init(&a->group);
    a->wait.write = wait_write;
    a->wait.done = wait_done;
    a->role.write = role_write;
    a->role.done = role_done;
    a->add = acks_add;
    a->keep = await_group;
    a->send_task.run = run_group;
    a->timer.fire = timer_fired;
}
