/* SPDX-License-Identifier: MIT
 *
 * read_only.c - a server that does not take writes, a connection out of step.
 *
 * Thread  io.
 *
 * How     A server that takes no writes is most likely a replica. The first
 *         READONLY ends the use of the main connection. It is asked what it is,
 *         which helps the author of the URL, and closes with that answer. Then
 *         it is dialed again with growing pauses: it may become a master, or
 *         its name may come to mean another server. That it is connected again
 *         is not told before it has done something.
 *
 *         One that somebody else calls the wrong one is not asked: it may well
 *         be dead, and its answer would not change anything.
 *
 *         A reply that a command cannot have is that to another: one came too
 *         many, and each that follows would be taken for the one before it. So
 *         that connection ends. The answer of a script tells by its number
 *         (script.c; command.c ends the connection then), that of a command by
 * its type. If the latter happens more often in a minute, it is how this server
 * answers, and the reply is taken as it is. An error has no number and can be
 * the reply to anything. But it is never a yes, and the next reply, that to the
 * command, has the wrong number.
 */
#include "client/server/server.h"

#include <stdio.h>
#include <string.h>

#define MISFITS_MAX 3 /* in so long: */
#define MISFITS_MS  60000

bool dibs__server_is_desync(struct dibs__server *s, const struct dibs__req *req,
                            const struct dibs__reply *reply, unsigned expects)
{
    if (dibs__reply_fits(reply, expects))
        return false;
    int64_t now = dibs__now_ms();
    if (now - s->desyncs_since >= MISFITS_MS) {
        s->desyncs = 0;
        s->desyncs_since = now;
    }
    if (s->desyncs++ >= MISFITS_MAX)
        return false;
    dibs__conn_close(req->cn, DIBS_ERR_CONN, "a reply to another command");
    return true;
}

static void role_write(struct dibs__req *req, struct dibs__buf *out)
{
    (void)req;
    dibs__buf_array(out, 1);
    dibs__buf_arg_text(out, "ROLE");
}

/* The event puts the server's own address before it. */
static void name_master(struct dibs__pooled_conn *conn, const char *host,
                        int64_t port)
{
    snprintf(conn->why, sizeof conn->why, "READONLY, a replica of %.100s:%lld",
             host, (long long)port);
}

static void role_done(struct dibs__req *req, dibs_err err,
                      const struct dibs__reply *reply)
{
    struct dibs__pooled_conn *conn =
        DIBS_OF(req, struct dibs__pooled_conn, role);
    const struct dibs__reply *role, *host;
    int64_t port;

    if (err != DIBS_OK)
        return; /* it went down before */
    role = dibs__reply_text(reply, 0);
    host = dibs__reply_text(reply, 1);
    if (role && strcmp(role->text, "slave") == 0 && host &&
        dibs__reply_num(reply, 2, &port))
        name_master(conn, host->text, port);
    dibs__server_replied(conn->server);
}

/* False: that is under way. */
static bool retire_main(struct dibs__server *s, const char *why)
{
    struct dibs__pooled_conn *conn = s->main;

    if (s->state != SERVER_UP && s->state != SERVER_DIALING)
        return false;
    s->state = SERVER_DRAINING;
    snprintf(conn->why, sizeof conn->why, "%.160s", why);
    return true;
}

void dibs__server_redial(struct dibs__server *s, const char *why)
{
    if (!retire_main(s, why))
        return;
    struct dibs__pooled_conn *conn = s->main;
    s->read_only = true;
    conn->role = (struct dibs__req){.write = role_write, .done = role_done};
    conn->role.expires = dibs__add(dibs__now_ms(), s->to.command_timeout_ms);
    dibs__conn_send(&conn->cn, &conn->role);
}

void dibs__server_drain(struct dibs__server *s, const char *why)
{
    if (!retire_main(s, why))
        return;
    if (s->main->was_up)
        dibs__server_replied(s);
    else
        dibs__server_close_now(s, why);
}

void dibs__server_replied(struct dibs__server *s)
{
    const struct dibs__pooled_conn *conn = s->main;

    if (s->state == SERVER_DRAINING && dibs__list_empty(&conn->cn.fifo))
        dibs__server_close_now(s, conn->why);
}
