/* SPDX-License-Identifier: MIT
 *
 * sentinel.h - sentinels, who know which server is the master. io only.
 */
#ifndef DIBS_CLIENT_TOPOLOGY_SENTINEL_H
#define DIBS_CLIENT_TOPOLOGY_SENTINEL_H

#include "client/pubsub/subscriber.h"
#include "client/server/server.h"

#define DIBS__SENTINELS_MAX 64

struct dibs__sentinels {
    struct dibs__loop *lp;
    struct dibs__server *server;     /* whose place they tell */
    struct dibs__subscriber *pubsub; /* which goes where the server goes */
    struct dibs__events events;
    struct dibs__lifecycle *parts; /* told when it has ended */

    struct dibs__url_host known[DIBS__SENTINELS_MAX]; /* best first */
    size_t count;
    size_t next;                   /* of the known: the next to ask */
    bool hunting;                  /* some are being asked */
    bool wanted;                   /* the server waits for the answer */
    bool told;                     /* it has had one */
    unsigned told_ups;             /* how often it had come up by then */
    dibs_err err;                  /* what the last one asked failed with */
    struct dibs__timer hedge;      /* no answer yet: ask one more */
    struct dibs__timer again;      /* nobody is watched: look for one */
    struct dibs__list links;       /* connections to sentinels */
    unsigned open;                 /* of them, that are not gone yet */
    struct sentinel_link *watched; /* tells of changes; or NULL */
    atomic_uint seen;              /* count, for the one that asks */
    atomic_bool watches;           /* watched is not NULL */
    int64_t backoff_ms;
    struct dibs__log_throttle hush;
    bool closing;
    char why[200]; /* why the last one asked was no help */
};

/* server and pubsub, whose targets have the URL, lp, events and parts must be
 * set. Before the loop runs. NOMEM: as if it had not been called. */
dibs_err dibs__sentinels_init(struct dibs__sentinels *sn);
void dibs__sentinels_clear(struct dibs__sentinels *sn);
/* Ends its connections, then tells. Thread: io. */
void dibs__sentinels_close(struct dibs__sentinels *sn);
/* Closes the descriptors and nothing else: in a child after fork. */
void dibs__sentinels_abandon(struct dibs__sentinels *sn);

#endif
