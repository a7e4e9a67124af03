/* SPDX-License-Identifier: MIT
 *
 * cluster.h - many servers, and which of them has which slot.
 */
#ifndef DIBS_CLIENT_CLUSTER_H
#define DIBS_CLIENT_CLUSTER_H

#include "client/call.h"
#include "client/pubsub.h"
#include "client/slot.h"

#define DIBS__NODES_MAX 1024 /* addresses ever heard of */

/* How messages go out: one, the other, or both. */
enum { FLAVOUR_CLASSIC = 1, FLAVOUR_SHARDED = 2 };

/* A server of the cluster. Stays until the client ends, so a pointer to it is
 * good for ever; out of use it is about a kilobyte. */
struct dibs__node {
    struct dibs__server server;
    struct dibs__pubsub pubsub;
    struct dibs__cluster *cl;
    bool in_map;    /* io only: it has slots */
    unsigned asked; /* io only: in which round it was asked for the map */
};

struct dibs__cluster {
    struct dibs__loop *lp;
    /* Stand for the cluster as a whole, and are never connected: calls and
     * listeners wait there while nobody knows where their slot is. */
    struct dibs__server *whole;
    struct dibs__pubsub *nowhere;
    struct dibs__events events;
    void (*ended)(struct dibs__cluster *cl);
    /* What is held in these slots may be gone. */
    void (*verify)(struct dibs__cluster *cl, dibs__meant *meant,
                   const void *arg);
    void *user;               /* for them */
    atomic_uint flavour;      /* 0: the servers are yet to be asked */
    atomic_uint count;        /* of nodes; written on io */
    unsigned parts;           /* io only: that have not ended yet */
    bool closing;             /* io only */
    bool refreshing;          /* io only: somebody is being asked for the map */
    bool doubted;             /* io only: once more after that */
    unsigned round;           /* io only */
    int64_t not_before;       /* io only: the next refresh */
    dibs_err err;             /* io only: what the last one asked failed with */
    struct dibs__call call;   /* io only: the question */
    struct dibs__timer timer; /* io only: the next refresh, or tidying */
    struct dibs__task reroute; /* after a change of the map */
    bool reroute_posted;       /* io only */
    bool some_moved;           /* io only: since the last reroute */
    bool moved[DIBS__SLOTS];   /* io only: which */

    char why[DIBS__REASON_MAX]; /* io only: what err is about, in words */

    struct dibs__node *nodes[DIBS__NODES_MAX];
    _Atomic(struct dibs__server *) slots[DIBS__SLOTS]; /* NULL: not known */
};

/* whole and nowhere, whose target has the URL, lp, events and ended must be
 * set, and flavour if it is not to be found out. Before the loop runs. */
dibs_err dibs__cluster_init(struct dibs__cluster *cl);
void dibs__cluster_clear(struct dibs__cluster *cl);
/* Ends all calls and connections, then tells. Thread: io. */
void dibs__cluster_close(struct dibs__cluster *cl);
void dibs__cluster_abandon(struct dibs__cluster *cl);

/* Who has this slot, as far as we know. Thread: any. */
static inline struct dibs__server *
dibs__cluster_server(struct dibs__cluster *cl, int slot)
{
    struct dibs__server *s =
        atomic_load_explicit(&cl->slots[slot], memory_order_acquire);

    return s ? s : cl->whole;
}
/* The same for subscriptions. Thread: io. */
struct dibs__pubsub *dibs__cluster_pubsub(struct dibs__cluster *cl, int slot);
/* The i-th server; NULL behind the last. Some have no slots (any more).
 * Thread: any. */
struct dibs__server *dibs__cluster_nth(struct dibs__cluster *cl, unsigned i);
/* Has this one any slots, as far as we know? Thread: any. */
bool dibs__cluster_serves(struct dibs__cluster *cl,
                          const struct dibs__server *s);

/* `from` answered MOVED or ASK. Who it says has the slot, and the slot; NULL:
 * that makes no sense, or no memory. MOVED is remembered. Thread: io. */
struct dibs__server *dibs__cluster_redirect(struct dibs__cluster *cl,
                                            const struct dibs__server *from,
                                            const char *error, int *slot,
                                            bool *ask);
/* The map may be old: gets another soon. Thread: io. */
void dibs__cluster_doubt(struct dibs__cluster *cl);

#endif
