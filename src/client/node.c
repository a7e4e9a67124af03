/* SPDX-License-Identifier: MIT
 *
 * node.c - one server with all that lives on it.
 *
 * Thread  io, but init and clear: before the loop runs, and after it.
 *
 * server.c knows connections only. Here it is told what is above it: the calls
 * that wait for a connection, those that wait for replicas, and the ghosts.
 */
#include "client/node.h"

#include "client/call.h"
#include "client/ghost.h"

static void resume_node(struct dibs__server *s)
{
    dibs__ghosts_cancel(s);
    dibs__calls_resume(s);
}

static void free_ghost(struct dibs__link *ln)
{
    dibs__ghost_unref(ln->ghost);
}

static const struct dibs__server_upper server_upper = {
    .resume = resume_node,
    .fail = dibs__calls_fail,
    .drop = dibs__acks_drop,
    .forget = dibs__ghosts_forget,
    .link_gone = free_ghost,
};

static void node_part_ended(struct dibs__node *n)
{
    if (--n->parts == 0)
        n->ended(n);
}

static void server_part_ended(struct dibs__server *s)
{
    node_part_ended(dibs__node_of(s));
}

static void pubsub_part_ended(struct dibs__pubsub *ps)
{
    node_part_ended(DIBS_OF(ps, struct dibs__node, pubsub));
}

void dibs__node_init(struct dibs__node *n, struct dibs__loop *lp,
                     const struct dibs__events *events)
{
    n->server.lp = n->pubsub.lp = lp;
    n->server.events = n->pubsub.events = *events;
    n->server.upper = &server_upper;
    n->server.ended = server_part_ended;
    n->pubsub.to = &n->server.to;
    n->pubsub.ended = pubsub_part_ended;
    dibs__server_init(&n->server);
    dibs__acks_init(&n->server);
    dibs__pubsub_init(&n->pubsub);
}

void dibs__node_clear(struct dibs__node *n)
{
    dibs__server_clear(&n->server);
}

void dibs__node_fail_waiting(struct dibs__node *n, dibs_err err)
{
    dibs__calls_fail(&n->server, err, false);
    dibs__acks_end(&n->server);
}

void dibs__node_close(struct dibs__node *n)
{
    n->parts = 2;
    dibs__server_close(&n->server);
    dibs__pubsub_close(&n->pubsub);
}

void dibs__node_abandon(struct dibs__node *n)
{
    dibs__server_abandon(&n->server);
    dibs__acks_abandon(&n->server);
    dibs__pubsub_abandon(&n->pubsub);
}
