/* SPDX-License-Identifier: MIT
 *
 * channel.h - one channel: who listens to it, and what the server was asked.
 * All of it io only; for subscriber.c.
 */
#ifndef DIBS_CLIENT_PUBSUB_CHANNEL_H
#define DIBS_CLIENT_PUBSUB_CHANNEL_H

#include "client/pubsub/subscriber.h"

struct dibs__channel {
    RB_ENTRY(dibs__channel) node;
    struct dibs__channels *in;   /* the tree */
    struct dibs__subscriber *ps; /* NULL: nobody is known to have its slot */
    struct dibs__list subs;
    int slot;                /* in a cluster */
    unsigned asked, unasked; /* confirmations still to come */
    unsigned calls, calling; /* how often listeners were, and are, called */
    unsigned first_ask, last_ask; /* of the confirmations to come */
    unsigned len;
    bool ready;
    bool optional;
    bool kept;       /* it has no listener, and is in pubsub.kept */
    bool later_set;  /* its listeners will be called; then it is not kept */
    int64_t said_ms; /* when it became ready, or a message came */
    int64_t keep_until;
    union {
        struct dibs__list keep_link; /* if it is kept */
        struct dibs__task later;     /* calls the listeners from the loop */
    };
    char name[];
};

struct dibs__channel *dibs__channel_find(struct dibs__channels *in,
                                         const char *name, size_t len);
/* The same, made if need be. NULL: out of memory. */
struct dibs__channel *dibs__channel_get(struct dibs__channels *in,
                                        struct dibs__subscriber *ps,
                                        const char *name, size_t len);
/* The one with the next name, or NULL. */
struct dibs__channel *dibs__channel_first(struct dibs__channels *in);
struct dibs__channel *dibs__channel_next(struct dibs__channel *ch);
void dibs__channel_join(struct dibs__channel *ch,
                        struct dibs__subscription *sub);
/* Calls all listeners. One may leave, or others come, while it is called. The
 * channel stays; the caller drops it afterwards if it is idle. */
void dibs__channel_call(struct dibs__channel *ch, char said);
/* The same from the loop, as if it became ready. */
void dibs__channel_call_later(struct dibs__channel *ch);
/* Frees it if nobody listens and the server has nothing more to say about it.
 */
void dibs__channel_drop_if_idle(struct dibs__channel *ch);

/* Can the server be asked? */
bool dibs__subscriber_usable(const struct dibs__subscriber *ps);
/* The server does not let us listen to it. */
bool dibs__channel_refused(const struct dibs__channel *ch);
void dibs__channel_subscribe(struct dibs__channel *ch);
void dibs__channel_unsubscribe(struct dibs__channel *ch);

/* It stays subscribed without a listener. */
void dibs__channel_idle_begin(struct dibs__channel *ch);
/* It has a listener again, or the server does not know of it any more. */
void dibs__channel_idle_end(struct dibs__channel *ch);
/* Gives up those whose time is over, and the oldest while there are more than
 * so many. */
void dibs__channels_trim(struct dibs__subscriber *ps, int64_t now,
                         unsigned most);
/* The time of the oldest is over. */
void dibs__channels_timed(struct dibs__timer *t);

#endif
