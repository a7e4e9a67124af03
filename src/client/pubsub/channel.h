/* SPDX-License-Identifier: MIT
 *
 * channel.h - one channel: its subscriptions, and its state at the server.
 * All of it io only; private to subscriber.c and channel.c.
 */
#ifndef DIBS_CLIENT_PUBSUB_CHANNEL_H
#define DIBS_CLIENT_PUBSUB_CHANNEL_H

#include "client/pubsub/subscriber.h"

struct dibs__channel {
    RB_ENTRY(dibs__channel) node;
    struct dibs__channels *tree; /* that it is in */
    struct dibs__subscriber *ps; /* NULL: no node is known for its slot */
    struct dibs__list subs;
    int slot; /* in a cluster, else 0 */
    /* Requests in flight: confirmations that the server owes. */
    unsigned pending_subscribes, pending_unsubscribes;
    /* subscriber.requests at the first and last pending SUBSCRIBE. */
    unsigned first_request, last_request;
    unsigned notify_round; /* incremented by each dibs__channel_notify */
    unsigned notify_depth; /* nested dibs__channel_notify now running */
    unsigned len;
    bool ready;         /* subscribed, no request in flight */
    bool optional;      /* as subscription.optional */
    bool idle;          /* in subscriber.idle_channels */
    bool notify_posted; /* notify_task is posted; excludes idle */
    int64_t active_ms;  /* when it became ready, or the last message */
    int64_t idle_until; /* when it is unsubscribed, if idle */
    union {
        struct dibs__list idle_link;   /* if idle */
        struct dibs__task notify_task; /* calls the subscriptions */
    };
    char name[];
};

struct dibs__channel *dibs__channel_find(struct dibs__channels *in,
                                         const char *name, size_t len);
/* The same, created if missing. NULL: out of memory. */
struct dibs__channel *dibs__channel_get(struct dibs__channels *in,
                                        struct dibs__subscriber *ps,
                                        const char *name, size_t len);
/* First channel by name, and the next one; NULL: none. */
struct dibs__channel *dibs__channel_first(struct dibs__channels *in);
struct dibs__channel *dibs__channel_next(struct dibs__channel *ch);
/* Adds a subscription. */
void dibs__channel_add(struct dibs__channel *ch,
                       struct dibs__subscription *sub);
/* Calls hear of all subscriptions; these may subscribe and unsubscribe. The
 * channel is not freed; the caller must call dibs__channel_drop_if_idle
 * afterwards. */
void dibs__channel_notify(struct dibs__channel *ch, char first_byte);
/* The same from a task on the loop, with NUL as if it became ready. */
void dibs__channel_notify_later(struct dibs__channel *ch);
/* Frees the channel if it has no subscription, is not kept as idle, and no
 * request of it is in flight. */
void dibs__channel_drop_if_idle(struct dibs__channel *ch);

/* Returns whether requests can be sent to the server. */
bool dibs__subscriber_usable(const struct dibs__subscriber *ps);
/* Returns whether the server does not permit subscribing to this channel. */
bool dibs__channel_refused(const struct dibs__channel *ch);
/* Send SUBSCRIBE or UNSUBSCRIBE, if the server can be asked. */
void dibs__channel_subscribe(struct dibs__channel *ch);
void dibs__channel_unsubscribe(struct dibs__channel *ch);

/* The channel has lost its last subscription and stays subscribed. */
void dibs__channel_idle_begin(struct dibs__channel *ch);
/* It has a subscription again, or the server does not have it any more.
 * Idempotent. */
void dibs__channel_idle_end(struct dibs__channel *ch);
/* Unsubscribes the idle channels that have expired, and the oldest ones beyond
 * `most`. */
void dibs__channels_trim(struct dibs__subscriber *ps, int64_t now,
                         unsigned most);
/* Handler of subscriber.idle_timer. */
void dibs__channels_on_idle_timer(struct dibs__timer *t);

#endif
