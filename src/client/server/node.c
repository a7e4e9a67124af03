/* SPDX-License-Identifier: MIT
 *
 * node.c - one server with all that lives on it.
 *
 * Thread  io, but init and clear: before the loop runs, and after it.
 *
 * server.c knows connections only. Here it is told what is above it: the calls
 * that wait for a connection, those that wait for replicas, the ghosts, and who
 * changes what we hold.
 */
#include "client/server/node.h"

#include "client/command/command.h"
#include "client/command/in_doubt.h"

static void resume_node(struct dibs__server *s)
{
    dibs__ghosts_cancel(s);
    dibs__calls_resume(s);
    dibs__track_resume(s);
}

static void drop_node(struct dibs__server *s)
{
    dibs__acks_drop(s);
    dibs__track_drop(s);
}

static void free_ghost(struct dibs__link *ln)
{
    dibs__ghost_unref(ln->ghost);
}

static const struct dibs__server_upper server_upper = {
    .resume = resume_node,
    .fail = dibs__calls_fail,
    .drop = drop_node,
    .forget = dibs__ghosts_forget,
    .link_gone = free_ghost,
};

void dibs__node_init(struct dibs__node *n, struct dibs__loop *lp)
{
    n->server.lp = n->pubsub.lp = lp;
    n->server.upper = &server_upper;
    n->pubsub.events = n->server.events;
    n->pubsub.parts = n->server.parts;
    n->pubsub.to = &n->server.to;
    dibs__server_init(&n->server);
    dibs__acks_init(&n->server);
    dibs__track_init(&n->server);
    dibs__pubsub_init(&n->pubsub);
}

void dibs__node_fail_waiting(struct dibs__node *n, dibs_err err)
{
    dibs__calls_fail(&n->server, err, false);
    dibs__acks_end(&n->server);
}

void dibs__node_close(struct dibs__node *n)
{
    dibs__server_close(&n->server);
    dibs__pubsub_close(&n->pubsub);
}

void dibs__node_abandon(struct dibs__node *n)
{
    dibs__server_abandon(&n->server);
    dibs__acks_abandon(&n->server);
    dibs__track_abandon(&n->server);
    dibs__pubsub_abandon(&n->pubsub);
}
