/* SPDX-License-Identifier: MIT
 *
 * node.h - one server with all that lives on it: calls and subscriptions.
 */
#ifndef DIBS_CLIENT_SERVER_NODE_H
#define DIBS_CLIENT_SERVER_NODE_H

#include "client/pubsub/subscriber.h"
#include "client/server/server.h"

/* The only server of a client, or one of a cluster. */
struct dibs__node {
    struct dibs__server server;
    struct dibs__subscriber pubsub;
    void *user;     /* whose it is */
    bool in_map;    /* io only: it has slots; the cluster's own, as the next */
    unsigned asked; /* io only: in which round it was asked for the map */
};

static inline struct dibs__node *dibs__node_of(const struct dibs__server *s)
{
    return DIBS_OF(s, struct dibs__node, server);
}

#define DIBS__NODE_PARTS 2 /* that end by themselves */

/* server.to, max_spares, up_again, events and parts must be set. */
void dibs__node_init(struct dibs__node *n, struct dibs__loop *lp);
/* Calls that were not sent yet end. Thread: io. */
void dibs__node_fail_waiting(struct dibs__node *n, dibs_err err);
/* Ends all calls and connections, then tells. Thread: io. */
void dibs__node_close(struct dibs__node *n);
/* Closes the descriptors and nothing else: in a child after fork. */
void dibs__node_abandon(struct dibs__node *n);

#endif
