/* SPDX-License-Identifier: MIT
 *
 * subscriber.h - the pub/sub connection to one server, and its subscriptions.
 * All of it io only.
 *
 * subscription  Interest of one object (a wait queue, say) in one channel.
 * channel       Name, subscriptions and state at the server (channel.h).
 * subscriber    One connection and its channels; in a cluster one per node.
 * idle channel  Still subscribed at the server, without a subscription.
 */
#ifndef DIBS_CLIENT_PUBSUB_SUBSCRIBER_H
#define DIBS_CLIENT_PUBSUB_SUBSCRIBER_H

#include "client/lifecycle.h"
#include "client/observe/log_throttle.h"
#include "client/topology/route.h"
#include "net/conn.h"

#include <stdatomic.h>

/* Bits: PUBLISH or SPUBLISH or both. */
enum { PUBSUB_CLASSIC = 1, PUBSUB_SHARDED = 2 };

struct dibs__channel;

/* Embedded in the object that subscribes. hear is called when the channel is
 * ready (from then on no message is missed), when a message arrives, and when
 * messages may have been missed; never from inside dibs__subscribe. first_byte
 * is the first byte of the message, or NUL for the other two. */
struct dibs__subscription {
    struct dibs__list link;
    struct dibs__channel *channel; /* NULL: not subscribed */
    unsigned notify_round; /* last round of channel.notify_round it was in */
    bool optional;         /* if the server refuses this channel, the required
                              channels of the subscriber still work */
    int64_t asked_ms; /* when its owner last queried the server; 0: never. If
                         the channel was ready and silent since then,
                         subscribing does not call hear */
    void (*on_message)(struct dibs__subscription *sub, char first_byte);
};

RB_HEAD(dibs__channels, dibs__channel);

struct dibs__subscriber {
    struct dibs__loop *lp;
    const struct dibs__target *to;
    struct dibs__events events;
    struct dibs__lifecycle
        *lifecycle; /* const after init: reported to on close */
    /* In a cluster, else NULL: PUBSUB_ bits in use, and the slot map. */
    const atomic_uint *pubsub_mode; /* const after init */
    struct dibs__slot_map *slots;   /* const after init */

    struct dibs__conn *cn; /* NULL: neither connected nor connecting */
    unsigned conn_count;   /* connections whose memory is still in use */
    bool closing;
    bool refused;          /* SUBSCRIBE is not permitted: subscriptions get no
                              messages; their owners poll */
    bool optional_refused; /* the same for optional channels */
    unsigned requests, replies; /* counted on this connection; replies come in
                                   the order of the requests */
    int64_t backoff_ms;
    struct dibs__timer redial;
    struct dibs__list idle_channels; /* oldest first */
    unsigned idle_count;
    struct dibs__timer idle_timer; /* when the oldest idle channel expires */
    struct dibs__log_throttle throttle;
    struct dibs__channels channels;
};

void dibs__subscriber_init(struct dibs__subscriber *ps);
/* Returns OK or NOMEM; the name is copied. */
dibs_err dibs__subscribe(struct dibs__subscriber *ps,
                         struct dibs__subscription *sub, const char *name,
                         size_t len);
/* Returns whether a message published now will arrive. */
bool dibs__subscription_is_ready(const struct dibs__subscription *sub);
/* Idempotent. */
void dibs__unsubscribe(struct dibs__subscription *sub);
/* The same, but the channel stays subscribed at the server for some seconds. */
void dibs__unsubscribe_lazily(struct dibs__subscription *sub);
/* The address of the server changed: closes the connection, then connects and
 * subscribes at the new address. */
void dibs__subscriber_disconnect(struct dibs__subscriber *ps, const char *why);
/* Returns the subscriber of the node with this slot; NULL: no node is known. */
typedef struct dibs__subscriber *dibs__subscriber_finder(void *arg, int slot);
/* Drops idle channels, and closes the connection if none is left. */
void dibs__subscriber_close_if_unused(struct dibs__subscriber *ps);

/* Subscribes to a channel whose slot has no known node: it is kept in a tree
 * without a connection until dibs__channels_reroute. Returns OK or NOMEM. */
dibs_err dibs__channels_subscribe(struct dibs__channels *unrouted,
                                  struct dibs__subscription *sub,
                                  const char *name, size_t len);
/* Moves each channel whose slot is now at another node to that node's
 * subscriber, and calls hear once it is subscribed there. `in` is the tree of
 * unrouted channels or of a subscriber. */
void dibs__channels_reroute(struct dibs__channels *in,
                            dibs__subscriber_finder *find, void *arg);
/* Closes the connection, then reports to `parts`. The caller must have ended
 * all subscriptions. */
void dibs__subscriber_close(struct dibs__subscriber *ps);
/* In a child after fork: closes the socket only. */
void dibs__subscriber_abandon(struct dibs__subscriber *ps);

#endif
