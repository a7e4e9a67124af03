/* SPDX-License-Identifier: MIT
 *
 * subscriber.h - channels, and who listens to them. All of it io only.
 */
#ifndef DIBS_CLIENT_PUBSUB_SUBSCRIBER_H
#define DIBS_CLIENT_PUBSUB_SUBSCRIBER_H

#include "client/lifecycle.h"
#include "client/observe/log_throttle.h"
#include "client/topology/route.h"
#include "net/conn.h"

#include <stdatomic.h>

/* How messages go out: one, the other, or both. */
enum { PUBSUB_CLASSIC = 1, PUBSUB_SHARDED = 2 };

struct dibs__channel;

/* A listener. Lives inside whatever listens. hear is called when the channel
 * is ready (from then on no message is missed), when a message came, and when
 * messages may have been missed; never from inside listen. said: the first byte
 * of the message; NUL if it is none. */
struct dibs__subscription {
    struct dibs__list link;
    struct dibs__channel *on; /* NULL: listens to nothing */
    unsigned heard;           /* the last call it got; subscriber.c's own */
    bool optional;    /* it gets along without: if the server refuses it, only
                         listeners of this sort are deaf */
    int64_t asked_ms; /* when it last looked by itself; 0 = it did not. If no
                         message was missed since, listen does not call it */
    void (*hear)(struct dibs__subscription *sub, char said);
};

RB_HEAD(dibs__channels, dibs__channel);

struct dibs__subscriber {
    struct dibs__loop *lp;
    const struct dibs__target *to;
    struct dibs__events events;
    struct dibs__lifecycle
        *parts; /* const after init: told when it has ended */
    /* In a cluster; else NULL. How messages go out, and whose map it is. */
    const atomic_uint *flavour;   /* const after init */
    struct dibs__slot_map *slots; /* const after init */

    struct dibs__conn *cn; /* NULL: none, not even on its way */
    unsigned conns;        /* that are not gone yet */
    bool closing;
    bool refused;          /* may not subscribe; listeners look by themselves */
    bool optional_refused; /* the same, of those that are optional */
    unsigned asks, answers; /* on this connection, in the same order */
    int64_t backoff_ms;
    struct dibs__timer redial;
    struct dibs__list kept; /* channels without listeners, the oldest first */
    unsigned kept_count;
    struct dibs__timer keeper; /* when the oldest goes */
    struct dibs__log_throttle hush;
    struct dibs__channels channels;
};

void dibs__subscriber_init(struct dibs__subscriber *ps);
/* OK or NOMEM; the name is copied. */
dibs_err dibs__subscribe(struct dibs__subscriber *ps,
                         struct dibs__subscription *sub, const char *name,
                         size_t len);
/* Will it hear of what is published now? */
bool dibs__is_subscribed(const struct dibs__subscription *sub);
void dibs__unsubscribe(struct dibs__subscription *sub);
/* Leaves, but the channel stays subscribed for some seconds. */
void dibs__unsubscribe_lazily(struct dibs__subscription *sub);
/* The server is elsewhere by now: connects, and subscribes, there. */
void dibs__subscriber_disconnect(struct dibs__subscriber *ps, const char *why);
/* Whose slot it is; NULL: nobody is known to have it. */
typedef struct dibs__subscriber *dibs__subscriber_finder(void *arg, int slot);
/* Ends the connection if there are no channels. */
void dibs__subscriber_idle(struct dibs__subscriber *ps);

/* Channels whose slot nobody is known to have are kept without a connection
 * until somebody is. OK or NOMEM. */
dibs_err dibs__channels_subscribe(struct dibs__channels *strays,
                                  struct dibs__subscription *sub,
                                  const char *name, size_t len);
/* Of these or of a connection's: those whose slot is elsewhere by now move
 * there, and their listeners are called once they hear again. */
void dibs__channels_reroute(struct dibs__channels *in,
                            dibs__subscriber_finder *find, void *arg);
/* All have left. Ends the connection, then tells. */
void dibs__subscriber_close(struct dibs__subscriber *ps);
void dibs__subscriber_abandon(struct dibs__subscriber *ps);

#endif
