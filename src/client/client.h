/* SPDX-License-Identifier: MIT
 *
 * client.h - a client: its threads, its connections and its life cycle.
 *
 * io       The I/O thread, one per client, runs the event loop (event_loop.h).
 * cb       The thread that runs user callbacks (callback_queue.h). With
 *          DIBS_CALLBACKS_DISPATCH there is none: the program calls
 *          dibs_client_dispatch.
 * app      Any thread of the program inside a public call.
 * target   Address, login and timeouts of a server (conn.h).
 * topology One node, a node found through sentinels, or a cluster. The route
 *          (route.h) selects the server of a command.
 * slot     Hash slot of a cluster; 0 if there is only one server.
 * upper    Hooks of the lock layer. This layer knows no locks; it calls the
 *          hooks to verify holds after a reconnect and to release them on
 *          close.
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
    /* Fails the pending operations and releases all holds. Calls
     * dibs__client_wait_empty when done, at the latest at `deadline`. Thread:
     * io. */
    void (*close)(void *arg, int64_t deadline);
    /* A server was reconnected, or slots have moved: holds in the slots for
     * which meant(arg, slot) is true may be lost. Sends commands that verify
     * them ahead of all other commands. Thread: io. */
    void (*verify_holds)(void *upper_arg, dibs__slot_filter *filter,
                         const void *arg);
    /* Another client changed `key`; NULL: any key of the slots for which
     * meant(arg, slot) is true may have changed. Thread: io. */
    void (*on_key_changed)(void *upper_arg, dibs__slot_filter *filter,
                           const void *arg, const char *key, size_t len);
    void (*free)(void *arg);
};

struct dibs_client {
    volatile unsigned char *not_forked; /* 1; 0 in a child after fork */
    atomic_int refs;
    char id[DIBS__UUID_LEN + 1]; /* const after init */
    int64_t lease_ms;            /* const after init */
    int replicas;                /* const after init */
    dibs_client_opts opts;  /* const after init: numbers for the lock layer;
                               its strings are not set */
    dibs_event_cb on_event; /* const after init */
    void *event_arg;
    atomic_int pending_events; /* queued, not yet delivered to on_event */
    struct dibs__stats *stats; /* const after init */

    struct dibs__loop loop;
    struct dibs__target to;   /* const after init: parsed URL and timeouts */
    struct dibs__route route; /* const after init: for all commands */
    struct dibs__node *node;  /* const after init; NULL in a cluster */
    struct dibs__sentinels *sentinels; /* const after init; or NULL */
    struct dibs__cluster *cluster;     /* const after init; or NULL */
    struct dibs__lease_timers lease_timers;
    struct dibs__callbacks callbacks;
    struct dibs__task start;          /* connects for the first time */
    struct dibs__task step;           /* the current step of closing */
    struct dibs__lifecycle lifecycle; /* completion of start and step */

    atomic_bool closing;
    atomic_int active_calls;     /* between enter and leave */
    atomic_int leaving_calls;    /* inside dibs__client_leave */
    sem_t calls_drained;         /* posted when closing and active_calls is 0 */
    int64_t close_deadline;      /* deadline of closing */
    bool closing_conns;          /* io only: connections are being closed */
    unsigned idle_subscriptions; /* io only: lock entries that are subscribed
                                    without a waiter */
    bool all_released;           /* io, then the closing thread */

    dibs__mutex mu;
    const struct dibs__upper *lock_layer; /* mu */
    void *upper_arg;                      /* mu */
    bool closed;                          /* mu */
    dibs_err close_err;                   /* mu: the result of closing */
    pthread_cond_t closed_cv;             /* mu */
};

/* Returns the server of this slot (hash_slot.h), the only server outside of a
 * cluster, or NULL if the slot map has none. The map may change before the
 * caller uses the result; commands sent by client.route follow redirects.
 * Thread: any. */
struct dibs__server *dibs__client_server(const dibs_client *c, int slot);
/* Returns the PUBSUB_ bits with which scripts publish. Thread: any. */
static inline unsigned dibs__client_pubsub_mode(const dibs_client *c)
{
    return c->cluster ? atomic_load_explicit(&c->cluster->pubsub_mode,
                                             memory_order_relaxed)
                      : PUBSUB_CLASSIC;
}

/* Checks the options and the URL, and stores them in c. In client_options.c.
 * Returns OK, NOMEM, or INVALID with a reason, which is also emitted as an
 * event. */
dibs_err dibs__options_apply(dibs_client *c, const char *url,
                             const dibs_client_opts *o);

/* Every public call that needs the server is bracketed by these. Returns
 * INVALID for NULL, FORKED in a child process, CLOSED, or OK; after OK the
 * caller must call leave. */
dibs_err dibs__client_enter(dibs_client *c);
void dibs__client_leave(dibs_client *c);
/* Disable and restore cancellation of the calling thread. Calls nest; enter and
 * leave include them. */
void dibs__cancel_disable(void);
void dibs__cancel_restore(void);
/* Returns true for NULL and for a client opened by another process. */
bool dibs__client_is_forked_copy(const dibs_client *c);

void dibs__client_ref(dibs_client *c);
void dibs__client_unref(dibs_client *c);

/* ---- topology.c -------------------------------------------------------- */

/* Writes the server's address and database as text, truncated to size. */
void dibs__client_address(const dibs_client *c, char *buf, size_t size);
/* Returns whether the URLs of a and b name the same database of one server, or
 * the same cluster. False does not mean different: only the servers' run ids
 * can tell. */
bool dibs__client_same_server(const dibs_client *a, const dibs_client *b);

/* Returns the last connection error of this slot's server; NULL if it is
 * reachable or unknown. Thread: io. */
const char *dibs__client_last_error(const dibs_client *c, int slot);
/* Format "address: text" for the server of this slot, or emit that as an event.
 * Thread: any. */
void dibs__client_format(dibs_client *c, int slot, const char *text,
                         char out[DIBS__REASON_MAX]);
void dibs__client_log(dibs_client *c, int slot, dibs_event_kind kind,
                      dibs_err err, const char *text);
/* Subscribes to a channel on the server of this slot. Returns OK or NOMEM.
 * Thread: io. */
dibs_err dibs__client_subscribe(dibs_client *c, int slot,
                                struct dibs__subscription *sub,
                                const char *name, size_t len);

/* Creates node, sentinels or cluster from the URL. The caller must not have
 * started the loop. */
dibs_err dibs__topology_init(dibs_client *c, const dibs_client_opts *o);
void dibs__topology_clear(dibs_client *c);
/* Starts to connect; unless the client is lazy, dibs__lifecycle_opened reports
 * the result. Thread: io. */
void dibs__topology_start(dibs_client *c);
/* Closes all connections; dibs__lifecycle_closed reports each. Thread: io. */
void dibs__topology_close(dibs_client *c);
/* In a child after fork: closes the sockets only. */
void dibs__topology_abandon(dibs_client *c);
/* Fails all commands that were not sent yet. Thread: io. */
void dibs__topology_fail_waiting(dibs_client *c, dibs_err err);

/* The lock layer has finished upper.close. Thread: io. */
void dibs__client_wait_empty(dibs_client *c, bool all_released);

/* Queues an event for on_event, if that is set. In event.c. Thread: any. */
void dibs__client_emit_event(void *client, dibs_event_kind kind, dibs_err err,
                             const char *text);

/* Emits the reason of a refused argument, which the caller must have set, as an
 * event. Returns INVALID. */
dibs_err dibs__client_report_invalid_arg(dibs_client *c);

#endif
