/* SPDX-License-Identifier: MIT
 *
 * sentinel.h - finds the master through sentinels, and follows failovers. io
 * only, except init, clear, abandon and the atomics.
 */
#ifndef DIBS_CLIENT_TOPOLOGY_SENTINEL_H
#define DIBS_CLIENT_TOPOLOGY_SENTINEL_H

#include "client/pubsub/subscriber.h"
#include "client/server/server.h"

#define DIBS__SENTINELS_MAX 64

struct dibs__sentinels {
    struct dibs__loop *lp;
    struct dibs__server *server; /* the master; its address is set here */
    struct dibs__subscriber *subscriber; /* connected to the same address */
    struct dibs__events events;
    struct dibs__lifecycle *lifecycle; /* notified after close */

    struct dibs__url_host known[DIBS__SENTINELS_MAX]; /* in order of queries */
    size_t count;
    size_t next_query;              /* index in known, during a discovery */
    bool discovering;               /* queries are in flight */
    bool server_waits;              /* server.discover was called, and neither
                                       found nor not_found yet */
    bool answer_given;              /* the server got an address from here */
    unsigned ups_at_answer;         /* server.ups at that time */
    dibs_err err;                   /* of the last failed query */
    char why[200];                  /* its error text */
    struct dibs__timer hedge;       /* query the next sentinel as well */
    struct dibs__timer retry_timer; /* none is watched: discover again */
    struct dibs__list conns;        /* connections to sentinels */
    unsigned open_conns;            /* connections not freed yet */
    struct sentinel_conn *watched;  /* subscribed to +switch-master, or NULL */
    atomic_uint known_count;        /* count, for other threads */
    atomic_bool is_watching;        /* watched != NULL, for other threads */
    int64_t backoff_ms;             /* of retry_timer */
    struct dibs__log_throttle throttle;
    bool closing;
};

/* Requires server and pubsub, with the URL in their targets, lp, events and
 * lifecycle. Must be called before the loop runs. NOMEM: no effect. */
dibs_err dibs__sentinels_init(struct dibs__sentinels *sn);
void dibs__sentinels_clear(struct dibs__sentinels *sn);
/* Closes the connections, then reports to the lifecycle. Thread: io. */
void dibs__sentinels_close(struct dibs__sentinels *sn);
/* Closes the descriptors and nothing else: in a child after fork. */
void dibs__sentinels_abandon(struct dibs__sentinels *sn);

#endif
