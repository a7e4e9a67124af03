/* SPDX-License-Identifier: MIT
 *
 * node.h - one server with the modules that use its connections, and the
 * subscriber for it.
 */
#ifndef DIBS_CLIENT_SERVER_NODE_H
#define DIBS_CLIENT_SERVER_NODE_H

#include "client/pubsub/subscriber.h"
#include "client/server/server.h"

/* The only server of a client, or one of a cluster. */
struct dibs__node {
    struct dibs__server server;
    struct dibs__subscriber subscriber;
    void *user;  /* the dibs_client or struct dibs__cluster it belongs to */
    bool in_map; /* cluster.c, io only: it has slots */
    unsigned map_round; /* cluster.c, io only: last refresh round that
                           queried it */
};

static inline struct dibs__node *dibs__node_of(const struct dibs__server *s)
{
    return DIBS_OF(s, struct dibs__node, server);
}

/* Number of dibs__lifecycle_closed calls after dibs__node_close: server and
 * subscriber. */
#define DIBS__NODE_CLOSE_COUNT 2

/* Requires server.to, max_idle_conns, on_connected, events, lifecycle and
 * tracking.changed. */
void dibs__node_init(struct dibs__node *n, struct dibs__loop *lp);
/* Fails the commands that were not sent yet and have no connect_by, and ends
 * waiting for replicas. Thread: io. */
void dibs__node_fail_waiting(struct dibs__node *n, dibs_err err);
/* Fails all commands, closes all connections, then reports to the lifecycle.
 * Thread: io. */
void dibs__node_close(struct dibs__node *n);
/* Closes the descriptors and nothing else: in a child after fork. */
void dibs__node_abandon(struct dibs__node *n);

#endif
