/* SPDX-License-Identifier: MIT
 *
 * key_tracking.h - CLIENT TRACKING: invalidation messages for the keys of held
 * locks.
 */
#ifndef DIBS_CLIENT_SERVER_KEY_TRACKING_H
#define DIBS_CLIENT_SERVER_KEY_TRACKING_H

#include "base/buf.h"
#include "net/conn.h"

#include <stdatomic.h>

struct dibs__pooled_conn;
struct dibs__server;

/* The transitions are in key_tracking.c. */
enum dibs__key_tracking_state {
    TRACK_OFF,       /* not enabled, or the main connection is down */
    TRACK_DIALING,   /* connecting the dedicated connection */
    TRACK_LISTENING, /* SUBSCRIBE sent on it */
    TRACK_ENABLING,  /* CLIENT TRACKING sent on the main connection */
    TRACK_ON,        /* keys that are read are tracked */
    TRACK_BACKOFF,   /* back-off */
    TRACK_REFUSED    /* until the main connection is reconnected */
};

/* One per server. io only, except where noted. */
struct dibs__key_tracking {
    atomic_uint state;              /* written on io, read by any thread */
    bool wanted;                    /* dibs__key_tracking_enable was called */
    bool refusal_logged;            /* log it once only */
    struct dibs__pooled_conn *conn; /* dedicated connection, or NULL */
    unsigned attempts;              /* CLIENT TRACKING commands sent */
    int64_t backoff_ms;
    struct dibs__timer again; /* end of TRACK_BACKOFF */
    /* Another client modified `key`, or perhaps any key if NULL; then no key is
     * tracked any more. Const once the loop runs. */
    void (*changed)(struct dibs__server *s, const char *key, size_t len);
};

void dibs__key_tracking_init(struct dibs__server *s);
/* Enables tracking, also after reconnects. Idempotent. Thread: io. */
void dibs__key_tracking_enable(struct dibs__server *s);
/* The main connection is up. Thread: io. */
void dibs__key_tracking_resume(struct dibs__server *s);
/* The main connection is down, or the server is closing. Thread: io. */
void dibs__key_tracking_drop(struct dibs__server *s);
/* Closes the descriptor and nothing else: in a child after fork. */
void dibs__key_tracking_abandon(struct dibs__server *s);

/* Appends CLIENT CACHING YES: the next command, a read, tracks its keys. */
void dibs__key_tracking_append_caching(struct dibs__buf *out);
/* Sends `count` reads on the main connection. `out` has them, each after a
 * dibs__key_tracking_append_caching; it is emptied. Requires TRACK_ON. Returns
 * false if out of memory. Thread: io. */
bool dibs__key_tracking_read(struct dibs__server *s, struct dibs__buf *out,
                             unsigned count);

#endif
