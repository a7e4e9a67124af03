/* SPDX-License-Identifier: MIT
 *
 * client.h - a client: threads, connections, and who lives on them.
 *
 * This layer does not know what a lock is. The layer that does is the upper
 * one, and is asked to clean up when the client closes.
 */
#ifndef DIBS_CLIENT_CLIENT_H
#define DIBS_CLIENT_CLIENT_H

#include "client/callback_queue.h"
#include "client/lease_timers.h"
#include "client/topology/cluster.h"
#include "client/topology/sentinel.h"

#include <semaphore.h>
#include <stdatomic.h>

#define DIBS__UUID_LEN 36

struct dibs__upper {
    /* Ends what is pending, gives back what is held. Calls
     * dibs__client_wait_empty when done, or when the time is over. Thread: io.
     */
    void (*close)(void *arg, int64_t deadline);
    /* A connection was made anew, or slots have moved: what is held in the
     * slots that are meant may be gone. Asks the server, before anybody else
     * asks it for anything. Thread: io. */
    void (*verify)(void *upper_arg, dibs__meant *meant, const void *arg);
    /* Somebody changed this key; NULL: maybe any of these slots. Thread: io. */
    void (*changed)(void *upper_arg, dibs__meant *meant, const void *arg,
                    const char *key, size_t len);
    void (*free)(void *arg);
};

struct dibs_client {
    volatile unsigned char *here; /* 1 here, 0 in a child after fork */
    atomic_int refs;
    char id[DIBS__UUID_LEN + 1]; /* const after init */
    int64_t lease_ms;            /* const after init */
    int replicas;                /* const after init */
    dibs_client_opts opts;  /* const after init: for the upper; no strings */
    dibs_event_cb on_event; /* const after init */
    void *event_arg;
    atomic_int events;         /* on their way */
    struct dibs__stats *stats; /* const after init */

    struct dibs__loop loop;
    struct dibs__target to;   /* const after init: what the URL says */
    struct dibs__route route; /* const after init: where calls go */
    struct dibs__node *node;  /* const after init; NULL: it is a cluster */
    struct dibs__sentinels *sentinels; /* const after init; NULL: none */
    struct dibs__cluster *cluster;     /* const after init; NULL: none */
    struct dibs__lease_timers lease_timers;
    struct dibs__callbacks callbacks;
    struct dibs__task start; /* the first dialing */
    struct dibs__task step;  /* of closing, one after the other */
    struct dibs__lifecycle
        lifecycle; /* tells when the one or the other is done */

    atomic_bool closing;
    atomic_int users;   /* calls inside */
    atomic_int exiting; /* calls on their way out */
    sem_t idle;         /* no users any more */
    int64_t close_by;
    bool ending; /* io only: the connections end */
    unsigned
        idle_subscriptions; /* io only: lines that listen without waiters */
    bool all_released;      /* io, then the closing thread */

    dibs__mutex mu;
    const struct dibs__upper *upper; /* mu */
    void *upper_arg;                 /* mu */
    bool closed;                     /* mu */
    dibs_err close_err;              /* mu */
    pthread_cond_t closed_cv;        /* mu */
};

/* Who has this slot (hash_slot.h); the only server, if there is just one; NULL:
 * nobody is known to. That can change by the time it is used: what goes out by
 * the client's route finds its way. Thread: any. */
struct dibs__server *dibs__client_server(const dibs_client *c, int slot);
/* FLAVOUR_ bits: how scripts publish. Thread: any. */
static inline unsigned dibs__client_pubsub_mode(const dibs_client *c)
{
    return c->cluster ? atomic_load_explicit(&c->cluster->flavour,
                                             memory_order_relaxed)
                      : PUBSUB_CLASSIC;
}

/* What the client was asked to be, checked: in client_options.c. OK, NOMEM, or
 * INVALID with a reason, which is told. */
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
bool dibs__client_is_forked_copy(const dibs_client *c);

void dibs__client_ref(dibs_client *c);
void dibs__client_unref(dibs_client *c);

/* ---- topology.c -------------------------------------------------------- */

/* The server and its database, as text; cut if need be. */
void dibs__client_address(const dibs_client *c, char *buf, size_t size);
/* Do their URLs alone say that both mean one database of one server, or one
 * cluster? False: nobody knows before the servers have said who they are. */
bool dibs__client_same(const dibs_client *a, const dibs_client *b);

/* Why the server of this slot cannot be reached; NULL: it can, or nobody
 * knows. Thread: io. */
const char *dibs__client_last_error(const dibs_client *c, int slot);
/* About the server of this slot: "address: text"; as an event. Thread: any. */
void dibs__client_format(dibs_client *c, int slot, const char *text,
                         char out[DIBS__REASON_MAX]);
void dibs__client_log(dibs_client *c, int slot, dibs_event_kind kind,
                      dibs_err err, const char *text);
/* Listens where that slot is. OK or NOMEM. Thread: io. */
dibs_err dibs__client_subscribe(dibs_client *c, int slot,
                                struct dibs__subscription *sub,
                                const char *name, size_t len);

/* The servers that the URL means. Before the loop runs. */
dibs_err dibs__topology_init(dibs_client *c, const dibs_client_opts *o);
void dibs__topology_clear(dibs_client *c);
/* Connects; client.parts tells, unless it is lazy. Thread: io. */
void dibs__topology_start(dibs_client *c);
/* Ends all connections; client.parts tells. Thread: io. */
void dibs__topology_close(dibs_client *c);
void dibs__topology_abandon(dibs_client *c);
/* Calls that were not sent yet end. Thread: io. */
void dibs__topology_fail_waiting(dibs_client *c, dibs_err err);

/* The upper is done. Thread: io. */
void dibs__client_wait_empty(dibs_client *c, bool all_released);

/* Tells the event callback, if there is one. In event.c. Thread: any. */
void dibs__client_emit_event(void *client, dibs_event_kind kind, dibs_err err,
                             const char *text);

/* An argument was refused, and the reason set: tells it, too, if there is
 * somebody to tell. Returns INVALID. */
dibs_err dibs__client_report_invalid_arg(dibs_client *c);

#endif
