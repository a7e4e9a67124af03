/* SPDX-License-Identifier: MIT
 *
 * node.c - one server with the modules that use its connections.
 *
 * Thread  io, but dibs__node_init: before the loop runs.
 *
 * server.c handles connections only. Its `upper` hooks, implemented here, call
 * the modules above it: waiting commands, commands in doubt, replica
 * acknowledgements, key tracking.
 */
#include "client/server/node.h"

#include "client/command/command.h"
#include "client/command/in_doubt.h"

static void resume_node(struct dibs__server *s)
{
    dibs__in_doubt_kill_all(s);
    dibs__commands_resume(s);
    dibs__key_tracking_resume(s);
}

static void drop_node(struct dibs__server *s)
{
    dibs__replica_acks_drop(s);
    dibs__key_tracking_drop(s);
}

static void unref_in_doubt(struct dibs__pooled_conn *conn)
{
    dibs__in_doubt_unref(conn->in_doubt);
}

static const struct dibs__server_users server_upper = {
    .resume = resume_node,
    .fail = dibs__commands_fail,
    .drop = drop_node,
    .forget = dibs__in_doubt_forget_all,
    .conn_freed = unref_in_doubt,
};

void dibs__node_init(struct dibs__node *n, struct dibs__loop *lp)
{
    n->server.lp = n->subscriber.lp = lp;
    n->server.upper = &server_upper;
    n->subscriber.events = n->server.events;
    n->subscriber.lifecycle = n->server.lifecycle;
    n->subscriber.to = &n->server.target;
    dibs__server_init(&n->server);
    dibs__replica_acks_init(&n->server);
    dibs__key_tracking_init(&n->server);
    dibs__subscriber_init(&n->subscriber);
}

void dibs__node_fail_waiting(struct dibs__node *n, dibs_err err)
{
    dibs__commands_fail(&n->server, err, false);
    dibs__replica_acks_end(&n->server);
}

void dibs__node_close(struct dibs__node *n)
{
    dibs__server_close(&n->server);
    dibs__subscriber_close(&n->subscriber);
}

void dibs__node_abandon(struct dibs__node *n)
{
    dibs__server_abandon(&n->server);
    dibs__replica_acks_abandon(&n->server);
    dibs__key_tracking_abandon(&n->server);
    dibs__subscriber_abandon(&n->subscriber);
}
