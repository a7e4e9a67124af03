/* SPDX-License-Identifier: MIT
 *
 * replica_ack.c - calls that replicas must have, too.
 *
 * Thread  io.
 * Locks   none.
 *
 * How     WAIT tells how many replicas have all that its connection wrote, and
 *         the server keeps that connection waiting until there are enough. So
 *         such calls have a connection of their own, made when the first one
 *         comes: on the main one, every renewal behind a WAIT would be late,
 *         and a borrowed one would be missing for as long.
 *
 *         There is one WAIT at a time. What comes meanwhile goes together as
 *         the next group: all its commands, then one WAIT for the most that any
 *         of them needs, in one write. So a thousand calls take as long as two,
 *         also when a replica hangs. A call that changed nothing (the lock was
 *         busy) has its answer at once and does not wait for the WAIT.
 *
 *         A WAIT that turns out to be for nobody can still hang; if others come
 *         meanwhile, its connection is given up for a new one.
 *
 *         "All" is a number that only the server knows. ROLE goes out between
 *         commands and WAIT; WAIT is given what ROLE said the last time. If
 *         there are more by now, a second WAIT follows.
 *
 * Trouble Too few, a refusal (no such command, no right, a replica): the call
 *         ends as unacked, and its sender takes back what it did. No answer:
 *         nobody knows who has it, so all of the call is sent again, WAIT
 *         included. That is why a command that succeeds must write, also the
 *         second time: WAIT on a new connection knows of nothing that was
 *         written on the old one.
 */
#include "client/command/replica_ack.h"

#include "client/command/command.h"
#include "client/command/error_class.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

#define REDIAL_MIN_MS 50
#define REDIAL_MAX_MS 200
#define USELESS_MS    50 /* a WAIT for nobody that has others wait */

static void send_wait(struct dibs__server *s);

static struct dibs__server *server_of(struct dibs__replica_acks *a)
{
    return DIBS_OF(a, struct dibs__server, acks);
}

static void go_soon(struct dibs__server *s)
{
    dibs__loop_flush(s->lp, &s->acks.go);
}

/* ---- answers ----------------------------------------------------------- */

/* What a reply that says nothing means for those who need acknowledgements. It
 * is told if there are any. */
static dibs_err acks_refusal(struct dibs__replica_acks *a,
                             const struct dibs__reply *reply)
{
    dibs_err err = DIBS_ERR_REPLICAS;

    if (reply->type != REPLY_ERROR)
        dibs__server_set_last_error(server_of(a),
                                    "it does not tell of its replicas");
    if (reply->type != REPLY_ERROR || dibs__list_empty(&a->group))
        return err;
    if (dibs__error_classify(reply->text)->err == DIBS_ERR_AUTH)
        err = DIBS_ERR_AUTH;
    dibs__server_set_last_error(server_of(a), reply->text);
    dibs__server_log(server_of(a), DIBS_EVENT_ERROR, err, reply->text);
    return err;
}

/* How many replicas a master's ROLE has; -1: this is none. */
static int64_t role_count(const struct dibs__reply *reply)
{
    const struct dibs__reply *role =
        reply->type == REPLY_ARRAY ? dibs__reply_text(reply, 0) : NULL;

    if (!role || strcmp(role->text, "master") != 0 || reply->len < 3 ||
        reply->elem[2]->type != REPLY_ARRAY)
        return -1;
    return (int64_t)reply->elem[2]->len;
}

static void role_came(struct dibs__req *req, dibs_err err,
                      const struct dibs__reply *reply)
{
    struct dibs__replica_acks *a =
        DIBS_OF(req, struct dibs__replica_acks, role);

    if (err != DIBS_OK)
        return; /* the connection is gone; so is WAIT */
    int64_t n = role_count(reply);
    if (n >= 0)
        a->online = n;
    else
        a->refused = acks_refusal(a, reply);
}

/* Enough for this call? */
static void judge_acks(struct dibs__replica_acks *a, struct dibs__command *cmd,
                       int64_t acked, dibs_err refused)
{
    bool all = cmd->replicas < 0;

    if (refused == DIBS_OK && all)
        refused = a->refused;
    bool said = refused != DIBS_OK;
    cmd->acked = (int)dibs__min(acked, INT_MAX);
    /* 0: all of them, and the server says that it has none. */
    cmd->wanted = !all                 ? cmd->replicas
                  : refused != DIBS_OK ? (int)dibs__max(a->online, 1)
                                       : (int)a->online;
    /* None at all is not what anybody means by all. */
    if (refused == DIBS_OK && (acked < cmd->wanted || (all && !a->online)))
        refused = DIBS_ERR_REPLICAS;
    dibs__command_acknowledged(cmd, refused, said);
}

static void wait_came(struct dibs__req *req, dibs_err err,
                      const struct dibs__reply *reply)
{
    struct dibs__replica_acks *a =
        DIBS_OF(req, struct dibs__replica_acks, wait);
    struct dibs__server *s = server_of(a);
    dibs_err refused = DIBS_OK;
    struct dibs__list group;

    a->wait_in_flight = false;
    if (err == DIBS_OK && reply->type == REPLY_NUM && a->counted &&
        a->online > a->asked && a->refused == DIBS_OK) {
        a->asked = a->online; /* one has joined since */
        send_wait(s);
        return;
    }
    if (err == DIBS_OK && reply->type != REPLY_NUM)
        refused = acks_refusal(a, reply);
    int64_t acked = err == DIBS_OK && !refused ? dibs__max(reply->num, 0) : 0;
    dibs__list_init(&group);
    dibs__list_move(&group, &a->group);
    for (struct dibs__list *l; (l = dibs__list_pop(&group));) {
        struct dibs__command *cmd = DIBS_OF(l, struct dibs__command, req.link);
        if (err == DIBS_OK)
            judge_acks(a, cmd, acked, refused);
        else
            dibs__command_retry(cmd, true);
    }
    if (err == DIBS_OK && reply->type != REPLY_NUM &&
        reply->type != REPLY_ERROR && a->conn)
        dibs__conn_close(&a->conn->cn, DIBS_ERR_CONN, "no answer to a WAIT");
    go_soon(s);
}

/* ---- a group ----------------------------------------------------------- */

static void write_wait(struct dibs__req *req, struct dibs__buf *out)
{
    const struct dibs__replica_acks *a =
        DIBS_OF(req, struct dibs__replica_acks, wait);

    dibs__buf_array(out, 3);
    dibs__buf_arg_text(out, "WAIT");
    dibs__buf_arg_num(out, a->asked);
    dibs__buf_arg_num(out, dibs__max(a->ms, 1)); /* 0 would be for ever */
}

static void write_role(struct dibs__req *req, struct dibs__buf *out)
{
    (void)req;
    dibs__buf_array(out, 1);
    dibs__buf_arg_text(out, "ROLE");
}

static void send_wait(struct dibs__server *s)
{
    struct dibs__replica_acks *a = &s->acks;

    a->wait_in_flight = true;
    a->wait.expires = dibs__now_ms() + a->ms + s->to.command_timeout_ms;
    dibs__conn_send(&a->conn->cn, &a->wait);
}

static void send_group(struct dibs__server *s)
{
    struct dibs__replica_acks *a = &s->acks;

    a->asked = a->ms = 0;
    a->counted = false;
    a->refused = DIBS_OK;
    for (struct dibs__list *l; (l = dibs__list_pop(&a->queue));) {
        struct dibs__command *cmd = DIBS_OF(l, struct dibs__command, req.link);
        a->asked = dibs__max(a->asked, cmd->replicas);
        a->ms = dibs__max(a->ms, cmd->replicas_ms);
        a->counted |= cmd->replicas < 0;
        dibs__command_send(cmd, a->conn);
    }
    if (a->counted) {
        a->asked = dibs__max(a->asked, a->online);
        a->role.expires = dibs__now_ms() + s->to.command_timeout_ms;
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
    a->online = 0; /* what an older one knew does not count */
    go_soon(conn->server);
}

static void acks_redial_later(struct dibs__server *s)
{
    dibs__timer_set(s->lp, &s->acks.timer,
                    dibs__now_ms() +
                        dibs__random_in(REDIAL_MIN_MS, REDIAL_MAX_MS));
}

/* Could not be made. Calls without patience end, the others wait until their
 * time is over. */
static void not_made(struct dibs__server *s, dibs_err err)
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
        if (dibs__server_is_up(s)) /* not only because main went */
            dibs__server_set_last_error(s, why);
        dibs__server_log_disconnect(s, err, why, conn->was_up);
    }
    if (!conn->was_up)
        not_made(s, err);
    else if (!conn->served) /* no hammering */
        acks_redial_later(s);
    else
        go_soon(s);
}

static void go_on(struct dibs__task *t)
{
    struct dibs__replica_acks *a = DIBS_OF(t, struct dibs__replica_acks, go);
    struct dibs__server *s = server_of(a);

    if (dibs__list_empty(&a->queue) || !dibs__server_is_up(s))
        return;
    if (a->up && !a->wait_in_flight) {
        send_group(s);
    } else if (a->up && !a->timer.at) {
        dibs__timer_set(s->lp, &a->timer, dibs__now_ms() + USELESS_MS);
    } else if (!a->conn && !a->timer.at) {
        a->conn = dibs__pooled_conn_open(s, acks_up, acks_down);
        if (!a->conn)
            not_made(s, DIBS_ERR_NOMEM);
    }
}

/* Every command of this group is answered, and none needs to be acknowledged.
 */
static bool is_useless(const struct dibs__replica_acks *a)
{
    const struct dibs__list *first = dibs__list_first(&a->conn->cn.fifo);

    return a->wait_in_flight && dibs__list_empty(&a->group) &&
           (first == &a->wait.link || first == &a->role.link);
}

/* Time to dial again, or to look whether others wait for nothing. */
static void acks_timed(struct dibs__timer *t)
{
    struct dibs__replica_acks *a = DIBS_OF(t, struct dibs__replica_acks, timer);

    if (a->up && is_useless(a) && !dibs__list_empty(&a->queue))
        dibs__conn_close(&a->conn->cn, DIBS_OK, "a WAIT for nobody");
    go_soon(server_of(a));
}

/* ---- calls come and go ------------------------------------------------- */

static void acks_add(struct dibs__server *s, struct dibs__command *cmd)
{
    struct dibs__replica_acks *a = &s->acks;

    /* The group before it takes its time; that is not this call's fault. But
     * only once, or a call that fails again and again would never end; and not
     * if it was in that group itself. */
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
    go_soon(s);
}

static void acks_keep(struct dibs__server *s, struct dibs__command *cmd)
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
    a->wait.write = write_wait;
    a->wait.done = wait_came;
    a->role.write = write_role;
    a->role.done = role_came;
    a->add = acks_add;
    a->keep = acks_keep;
    a->go.run = go_on;
    a->timer.fire = acks_timed;
}
