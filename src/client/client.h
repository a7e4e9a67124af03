/* SPDX-License-Identifier: MIT
 *
 * client.h - a client: threads, connections, and who lives on them.
 *
 * This layer does not know what a lock is. Whoever does moves in as the upper,
 * and is asked to clean up when the client closes.
 */
#ifndef DIBS_CLIENT_CLIENT_H
#define DIBS_CLIENT_CLIENT_H

#include "client/callback.h"
#include "client/cluster.h"
#include "client/pubsub.h"
#include "client/sentinel.h"
#include "client/server.h"
#include "client/watchdog.h"

#include <semaphore.h>
#include <stdatomic.h>

#define DIBS__UUID_LEN 36

struct dibs__upper {
    /* Ends what is pending, gives back what is held. Calls dibs__client_empty
     * when done, or when the time is over. Thread: io. */
    void (*close)(void *arg, int64_t deadline);
    /* A connection was made anew, or slots have moved: what is held in the
     * slots that are meant may be gone. Asks the server, before anybody else
     * asks it for anything. Thread: io. */
    void (*verify)(void *upper_arg, dibs__meant *meant, const void *arg);
    void (*free)(void *arg);
};

#define FAIR_WAIT_MS     300000
#define FAIR_CALL_MS     5000
#define FAIR_CALL_MIN_MS 100

struct dibs_client {
    volatile unsigned char *here; /* 1 here, 0 in a child after fork */
    atomic_int refs;
    char id[DIBS__UUID_LEN + 1]; /* const after init */
    int64_t lease_ms;            /* const after init */
    int64_t fair_wait_ms;        /* const after init */
    int64_t fair_call_ms;        /* const after init */
    bool prefer_readers;         /* const after init */
    int replicas;                /* const after init */
    dibs_event_cb on_event;      /* const after init */
    void *event_arg;
    atomic_int events; /* on their way */

    struct dibs__loop loop;
    struct dibs__server server; /* in a cluster: see cluster.h, whole */
    struct dibs__pubsub pubsub;
    struct dibs__sentinels *sentinels; /* const after init; NULL: none */
    struct dibs__cluster *cluster;     /* const after init; NULL: none */
    struct dibs__watchdog watchdog;
    struct dibs__callbacks callbacks;
    struct dibs__task start; /* the first dialing */
    struct dibs__task step;  /* of closing, one after the other */
    sem_t started;           /* the one or the other is done */
    dibs_err start_err;
    char start_why[DIBS__REASON_MAX]; /* in words */

    atomic_bool closing;
    atomic_int users;   /* calls inside */
    atomic_int leaving; /* calls on their way out */
    sem_t idle;         /* no users any more */
    int64_t close_by;
    unsigned to_end;   /* io only: parts that have not ended yet */
    bool all_released; /* io, then the closing thread */

    dibs__mutex mu;
    const struct dibs__upper *upper; /* mu */
    void *upper_arg;                 /* mu */
    bool closed;                     /* mu */
    dibs_err close_err;              /* mu */
    pthread_cond_t closed_cv;        /* mu */
};

/* Who has the lock's slot (slot.h); the only server, if there is just one. Both
 * can be elsewhere by the time it is used: what goes out with that slot (see
 * dibs__call) finds its way. Thread: any; io. */
static inline struct dibs__server *dibs__client_server(dibs_client *c, int slot)
{
    return c->cluster ? dibs__cluster_server(c->cluster, slot) : &c->server;
}
static inline struct dibs__pubsub *dibs__client_pubsub(dibs_client *c, int slot)
{
    return c->cluster ? dibs__cluster_pubsub(c->cluster, slot) : &c->pubsub;
}
/* FLAVOUR_ bits: how scripts publish. Thread: any. */
static inline unsigned dibs__client_flavour(const dibs_client *c)
{
    return c->cluster ? atomic_load_explicit(&c->cluster->flavour,
                                             memory_order_relaxed)
                      : FLAVOUR_CLASSIC;
}

/* What the client was asked to be, checked: in options.c. OK, NOMEM, or INVALID
 * with a reason, which is told. */
dibs_err dibs__options_use(dibs_client *c, const char *url,
                           const dibs_client_opts *o);

/* Every public call that needs the server goes through these. INVALID for NULL,
 * FORKED, CLOSED. */
dibs_err dibs__client_enter(dibs_client *c);
void dibs__client_leave(dibs_client *c);
/* Between the two the calling thread cannot be canceled. (Enter and leave see
 * to that themselves.) */
void dibs__no_cancel(void);
void dibs__cancel_again(void);
/* NULL, or of another process. */
bool dibs__client_foreign(const dibs_client *c);

void dibs__client_ref(dibs_client *c);
void dibs__client_unref(dibs_client *c);

/* ---- topology.c -------------------------------------------------------- */

/* The server and its database, as text; cut if need be. */
void dibs__client_where(const dibs_client *c, char *buf, size_t size);
/* Do their URLs alone say that both mean one database of one server, or one
 * cluster? False: nobody knows before the servers have said who they are. */
bool dibs__client_same(const dibs_client *a, const dibs_client *b);

/* What the URL's mode needs beside the one server. Before the loop runs. */
dibs_err dibs__topology_init(dibs_client *c, const dibs_client_opts *o);
void dibs__topology_clear(dibs_client *c);
/* Ends all connections; dibs__client_part_ended for each part. How many. */
unsigned dibs__topology_parts(const dibs_client *c);
void dibs__topology_close(dibs_client *c);
void dibs__topology_abandon(dibs_client *c);
/* Calls that were not sent yet end. Thread: io. */
void dibs__topology_fail_waiting(dibs_client *c, dibs_err err);
void dibs__client_part_ended(dibs_client *c);

/* The upper looks whether it still has what it holds. Thread: io. */
void dibs__client_verify(dibs_client *c, dibs__meant *meant, const void *arg)
    EXCLUDES(c->mu);

/* The upper is done. Thread: io. */
void dibs__client_empty(dibs_client *c, bool all_released);

/* Tells the event callback, if there is one. Thread: any. */
void dibs__client_say(void *client, dibs_event_kind kind, dibs_err err,
                      const char *text);

/* An argument was refused, and the reason set: tells it, too, if there is
 * somebody to tell. Returns INVALID. In event.c, as the one above. */
dibs_err dibs__client_refuse(dibs_client *c);

#endif
