/* SPDX-License-Identifier: MIT
 *
 * read_only.c - a server that refuses writes; a connection that is out of sync.
 *
 * Thread  io.
 *
 * Read-only  A server that refuses writes is most likely a replica. The first
 *         READONLY drains the main connection. ROLE is its last command: the
 *         disconnect event then names the master, which helps to correct the
 *         URL. Then the server is redialed with back-off: it may be promoted,
 *         or its host name may resolve to another server. CONNECTED is logged
 *         only after a command has succeeded.
 *
 *         dibs__server_drain, for an address that a sentinel reports as
 *         outdated, sends no ROLE: the server may be dead.
 *
 * Desync  A reply that does not fit its command belongs to another one: the
 *         server sent one reply too many, and each later reply would be taken
 *         for that of the previous command. So the connection is closed. A
 *         script's reply is recognized by its request number (script.c;
 *         command.c closes the connection), that of another command by its
 *         type. If types mismatch more than DESYNCS_MAX times in
 *         DESYNCS_WINDOW_MS, this server replies that way, and the reply is
 *         accepted. An error reply has no number and fits every command. But it
 *         never means success, and the next reply has the wrong number.
 */
#include "client/server/server.h"

#include <stdio.h>
#include <string.h>

#define DESYNCS_MAX       3
#define DESYNCS_WINDOW_MS 60000

bool dibs__server_is_desync(struct dibs__server *s, const struct dibs__req *req,
                            const struct dibs__reply *reply, unsigned expects)
{
    if (dibs__reply_has_type(reply, expects))
        return false;
    int64_t now = dibs__now_ms();
    if (now - s->desyncs_since >= DESYNCS_WINDOW_MS) {
        s->desyncs = 0;
        s->desyncs_since = now;
    }
    if (s->desyncs++ >= DESYNCS_MAX)
        return false;
    dibs__conn_close(req->cn, DIBS_ERR_CONN, "a reply to another command");
    return true;
}

static void write_role(struct dibs__req *req, struct dibs__buf *out)
{
    (void)req;
    dibs__buf_array(out, 1);
    dibs__buf_arg_text(out, "ROLE");
}

/* The event also has the server's own address, before this text. */
static void note_master(struct dibs__pooled_conn *conn, const char *host,
                        int64_t port)
{
    snprintf(conn->drain_reason, sizeof conn->drain_reason,
             "READONLY, a replica of %.100s:%lld", host, (long long)port);
}

static void role_replied(struct dibs__req *req, dibs_err err,
                         const struct dibs__reply *reply)
{
    struct dibs__pooled_conn *conn =
        DIBS_OF(req, struct dibs__pooled_conn, role_req);
    const struct dibs__reply *role, *host;
    int64_t port;

    if (err != DIBS_OK)
        return; /* the connection was lost first */
    role = dibs__reply_text(reply, 0);
    host = dibs__reply_text(reply, 1);
    if (role && strcmp(role->text, "slave") == 0 && host &&
        dibs__reply_num(reply, 2, &port))
        note_master(conn, host->text, port);
    dibs__server_replied(conn->server);
}

/* Returns false if main cannot be drained: it is down or draining already. */
static bool begin_drain(struct dibs__server *s, const char *why)
{
    struct dibs__pooled_conn *conn = s->main;

    if (s->state != SERVER_UP && s->state != SERVER_DIALING)
        return false;
    s->state = SERVER_DRAINING;
    snprintf(conn->drain_reason, sizeof conn->drain_reason, "%.160s", why);
    return true;
}

void dibs__server_redial(struct dibs__server *s, const char *why)
{
    if (!begin_drain(s, why))
        return;
    struct dibs__pooled_conn *conn = s->main;
    s->read_only = true;
    conn->role_req =
        (struct dibs__req){.write = write_role, .done = role_replied};
    conn->role_req.expires =
        dibs__add(dibs__now_ms(), s->target.command_timeout_ms);
    dibs__conn_send(&conn->cn, &conn->role_req);
}

void dibs__server_drain(struct dibs__server *s, const char *why)
{
    if (!begin_drain(s, why))
        return;
    if (s->main->was_up)
        dibs__server_replied(s);
    else
        dibs__server_close_main(s, why);
}

void dibs__server_replied(struct dibs__server *s)
{
    const struct dibs__pooled_conn *conn = s->main;

    if (s->state == SERVER_DRAINING && dibs__list_empty(&conn->cn.fifo))
        dibs__server_close_main(s, conn->drain_reason);
}
