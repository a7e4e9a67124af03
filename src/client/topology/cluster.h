/* SPDX-License-Identifier: MIT
 *
 * cluster.h - the nodes of a cluster and its slot map.
 */
#ifndef DIBS_CLIENT_TOPOLOGY_CLUSTER_H
#define DIBS_CLIENT_TOPOLOGY_CLUSTER_H

#include "client/command/command.h"
#include "client/server/node.h"
#include "client/topology/hash_slot.h"

#define DIBS__NODES_MAX 1024 /* addresses over the life of a client */

/* Returns true if `slot` is one of those that an event is about. */
typedef bool dibs__slot_filter(const void *arg, int slot);

/* Nodes are freed only with the client, so pointers to them stay valid; an
 * unused node takes about a kilobyte. */
struct dibs__cluster {
    struct dibs__slot_map slots;             /* the interface for command.c */
    struct dibs__channels unrouted_channels; /* io only: subscriptions in slots
                                                without a known server */
    const struct dibs__target *to; /* const after init, as all up to user */
    unsigned max_idle_conns;       /* pool size of each node */
    struct dibs__events events;
    struct dibs__lifecycle *lifecycle; /* notified of the first map, the end */
    /* The locks held in these slots may be lost: verify them. */
    void (*verify)(struct dibs__cluster *cl, dibs__slot_filter *filter,
                   const void *arg);
    /* Another client modified `key` in these slots; NULL: perhaps any key. */
    void (*changed)(struct dibs__cluster *cl, dibs__slot_filter *filter,
                    const void *arg, const char *key, size_t len);
    void *user;                         /* of these hooks */
    bool map_needed;                    /* io only: commands wait for the map */
    int64_t backoff_ms;                 /* io only: of retry_timer */
    struct dibs__timer retry_timer;     /* io only: after a failed refresh */
    struct dibs__log_throttle throttle; /* io only */
    atomic_uint pubsub_mode;            /* PUBSUB_ bits; 0: not probed yet */
    atomic_uint count;                  /* of nodes; written on io */
    bool refreshing;                    /* io only: a refresh is in progress */
    bool refresh_needed;                /* io only: refresh again after it */
    unsigned refresh_round;             /* io only: counts refreshes */
    int64_t next_refresh_ms;            /* io only: not before this time */
    dibs_err err;                       /* io only: of the last failed query */
    char why[DIBS__REASON_MAX];         /* io only: its error text */
    struct dibs__command map_cmd;       /* io only: the query */
    struct dibs__timer refresh_timer;   /* io only: also close_unused_nodes */
    struct dibs__task reroute;          /* after a change of the map */
    bool reroute_posted;                /* io only */
    bool any_moved;                     /* io only: some `moved` is set */
    bool moved[DIBS__SLOTS]; /* io only: changed since the last reroute */

    struct dibs__node *nodes[DIBS__NODES_MAX];
    _Atomic(struct dibs__server *) slot_server[DIBS__SLOTS]; /* NULL: unknown */
};

/* Requires slots.lp, to, events, lifecycle, verify and changed; and flavour, if
 * it shall not be probed. Must be called before the loop runs. */
dibs_err dibs__cluster_init(struct dibs__cluster *cl);
void dibs__cluster_clear(struct dibs__cluster *cl);
/* Reads the first map. Thread: io. */
void dibs__cluster_start(struct dibs__cluster *cl);
/* Fails the commands that were not sent yet and have no connect_by. Thread: io.
 */
void dibs__cluster_fail_waiting(struct dibs__cluster *cl, dibs_err err);
/* Fails all commands, closes all connections, then reports to the lifecycle.
 * Thread: io. */
void dibs__cluster_close(struct dibs__cluster *cl);
/* Closes the descriptors and nothing else: in a child after fork. */
void dibs__cluster_abandon(struct dibs__cluster *cl);

/* Returns the server of a slot, or NULL if unknown. Any thread. */
static inline struct dibs__server *
dibs__cluster_server(const struct dibs__cluster *cl, int slot)
{
    return atomic_load_explicit(&cl->slot_server[slot], memory_order_acquire);
}
/* Subscribes at the slot's server, or as soon as that is known. Thread: io. */
dibs_err dibs__cluster_subscribe(struct dibs__cluster *cl, int slot,
                                 struct dibs__subscription *sub,
                                 const char *name, size_t len);
/* Returns the i-th server, NULL after the last; some of them may have no slots.
 * Any thread. */
struct dibs__server *dibs__cluster_nth(struct dibs__cluster *cl, unsigned i);
/* Returns true if the map has a slot of this server. Any thread. */
bool dibs__cluster_serves(struct dibs__cluster *cl,
                          const struct dibs__server *s);

#endif
