/* SPDX-License-Identifier: MIT
 *
 * key_tracking.h - a server tells when somebody changes a key that matters to
 * us.
 */
#ifndef DIBS_CLIENT_SERVER_KEY_TRACKING_H
#define DIBS_CLIENT_SERVER_KEY_TRACKING_H

#include "base/buf.h"
#include "net/conn.h"

#include <stdatomic.h>

struct dibs__pooled_conn;
struct dibs__server;

/* The table is in key_tracking.c. */
enum dibs__key_tracking_state {
    TRACK_OFF,       /* nobody wants it, or there is no main connection */
    TRACK_DIALING,   /* the connection for messages is on its way */
    TRACK_LISTENING, /* it asks for messages */
    TRACK_ASKING,    /* the main connection asks for tracking */
    TRACK_ON,        /* keys that are read are tracked */
    TRACK_RESTING,   /* until it is tried again */
    TRACK_REFUSED    /* until the main connection is made anew */
};

/* One for a server; io only, where nothing else is said. */
struct dibs__key_tracking {
    atomic_uint state;              /* any thread may read it */
    bool wanted;                    /* somebody has asked for it */
    bool refusal_logged;            /* that it is refused */
    struct dibs__pooled_conn *conn; /* for messages; NULL: none */
    unsigned attempts;              /* how often the server was asked for it */
    int64_t backoff_ms;
    struct dibs__timer again;
    /* Somebody changed this key. NULL: any key may have been changed, and none
     * is tracked any more. Set before the loop runs. */
    void (*changed)(struct dibs__server *s, const char *key, size_t len);
};

void dibs__key_tracking_init(struct dibs__server *s);
/* From now on, and after each reconnect. Thread: io. */
void dibs__key_tracking_enable(struct dibs__server *s);
/* The main connection is up; it is gone, or all go. Thread: io. */
void dibs__key_tracking_resume(struct dibs__server *s);
void dibs__key_tracking_drop(struct dibs__server *s);
void dibs__key_tracking_abandon(struct dibs__server *s);

/* Appends what makes the next command, a read, track its keys. */
void dibs__key_tracking_next(struct dibs__buf *out);
/* Sends these reads behind what was sent last on the main connection: so many,
 * each with dibs__key_tracking_next before it. What out has is taken. False:
 * out of memory. Only while it is on. Thread: io. */
bool dibs__key_tracking_read(struct dibs__server *s, struct dibs__buf *out,
                             unsigned count);

#endif
