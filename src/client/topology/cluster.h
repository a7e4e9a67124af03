/* SPDX-License-Identifier: MIT
 *
 * cluster.h - many servers, and which of them has which slot.
 */
#ifndef DIBS_CLIENT_TOPOLOGY_CLUSTER_H
#define DIBS_CLIENT_TOPOLOGY_CLUSTER_H

#include "client/command/command.h"
#include "client/server/node.h"
#include "client/topology/hash_slot.h"

#define DIBS__NODES_MAX 1024 /* addresses ever heard of */

/* Is a lock in this slot meant? */
typedef bool dibs__meant(const void *arg, int slot);

/* A node stays until the client ends, so a pointer to it is good for ever; out
 * of use it is about a kilobyte. */
struct dibs__cluster {
    struct dibs__slot_map slots;   /* how calls see it */
    struct dibs__channels strays;  /* io only: of slots that nobody has */
    const struct dibs__target *to; /* const after init, as all up to user */
    unsigned max_spares;
    struct dibs__events events;
    struct dibs__lifecycle *parts; /* told how it goes */
    /* What is held in these slots may be gone. */
    void (*verify)(struct dibs__cluster *cl, dibs__meant *meant,
                   const void *arg);
    /* Somebody changed a key there; NULL: maybe any. */
    void (*changed)(struct dibs__cluster *cl, dibs__meant *meant,
                    const void *arg, const char *key, size_t len);
    void *user;                     /* for them */
    bool sought;                    /* io only: calls wait for the map */
    int64_t backoff_ms;             /* io only: until it is asked for again */
    struct dibs__timer again;       /* io only: then */
    struct dibs__log_throttle hush; /* io only */
    atomic_uint flavour;            /* 0: the servers are yet to be asked */
    atomic_uint count;              /* of nodes; written on io */
    bool refreshing;    /* io only: somebody is being asked for the map */
    bool doubted;       /* io only: once more after that */
    unsigned round;     /* io only */
    int64_t not_before; /* io only: the next refresh */
    dibs_err err;       /* io only: what the last one asked failed with */
    struct dibs__command call; /* io only: the question */
    struct dibs__timer timer;  /* io only: the next refresh, or tidying */
    struct dibs__task reroute; /* after a change of the map */
    bool reroute_posted;       /* io only */
    bool some_moved;           /* io only: since the last reroute */
    bool moved[DIBS__SLOTS];   /* io only: which */

    char why[DIBS__REASON_MAX]; /* io only: what err is about, in words */

    struct dibs__node *nodes[DIBS__NODES_MAX];
    _Atomic(struct dibs__server *) has[DIBS__SLOTS]; /* NULL: not known */
};

/* slots.lp, to, events, parts, verify and changed must be set, and flavour if
 * it is not to be found out. Before the loop runs. */
dibs_err dibs__cluster_init(struct dibs__cluster *cl);
void dibs__cluster_clear(struct dibs__cluster *cl);
/* Asks for the first map. Thread: io. */
void dibs__cluster_start(struct dibs__cluster *cl);
/* Calls that were not sent yet end. Thread: io. */
void dibs__cluster_fail_waiting(struct dibs__cluster *cl, dibs_err err);
/* Ends all calls and connections, then tells. Thread: io. */
void dibs__cluster_close(struct dibs__cluster *cl);
void dibs__cluster_abandon(struct dibs__cluster *cl);

/* Who has this slot; NULL: nobody is known to. Thread: any. */
static inline struct dibs__server *
dibs__cluster_server(const struct dibs__cluster *cl, int slot)
{
    return atomic_load_explicit(&cl->has[slot], memory_order_acquire);
}
/* Listens where the slot is, or once that is known. Thread: io. */
dibs_err dibs__cluster_listen(struct dibs__cluster *cl, int slot,
                              struct dibs__subscription *sub, const char *name,
                              size_t len);
/* The i-th server; NULL behind the last. Some have no slots (any more).
 * Thread: any. */
struct dibs__server *dibs__cluster_nth(struct dibs__cluster *cl, unsigned i);
/* Has this one any slots, as far as we know? Thread: any. */
bool dibs__cluster_serves(struct dibs__cluster *cl,
                          const struct dibs__server *s);

#endif
