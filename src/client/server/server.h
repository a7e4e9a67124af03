/* SPDX-License-Identifier: MIT
 *
 * server.h - one server: its main connection and its connection pool.
 *
 * Main connection   used by the io thread, which pipelines commands on it. It
 *                   is reconnected until the server is closed. Its state is
 *                   the server's state.
 * Pooled connection lent to one application thread at a time, which sends one
 *                   command and reads its reply without the io thread. Opened
 *                   on demand, up to max_idle_conns.
 * Dedicated         connections for WAIT (replica_ack.h) and for invalidation
 *                   messages (key_tracking.h). All four kinds are a struct
 *                   dibs__pooled_conn; subscriptions have their own
 *                   (pubsub/subscriber.h).
 * Generation        counts how often the main connection went down. The server
 *                   behind the address may be another one then, so connections
 *                   of an older generation are closed.
 * Address epoch     counts changes of the address (sentinel failover).
 * Discovery         finds the address before each connection attempt: a hook of
 *                   sentinel.c. Without the hook the address is constant.
 * Idle              no connection attempt until a command waits: a cluster node
 *                   that is not used yet, or not any more.
 * Draining          the main connection accepts no new commands and closes
 *                   after its last reply.
 * Read-only         the server refused a write (a replica): see read_only.c.
 */
#ifndef DIBS_CLIENT_SERVER_SERVER_H
#define DIBS_CLIENT_SERVER_SERVER_H

#include "client/command/replica_ack.h"
#include "client/lifecycle.h"
#include "client/observe/event.h"
#include "client/observe/log_throttle.h"
#include "client/server/key_tracking.h"
#include "client/topology/route.h"
#include "net/conn.h"

#include <stdatomic.h>

struct dibs__in_doubt;

/* State of the main connection; the transitions are in server.c. */
enum dibs__server_state {
    SERVER_DOWN,          /* no connection; a timer may be running */
    SERVER_DISCOVERING,   /* the discover hook has not answered yet */
    SERVER_DIALING,       /* connecting */
    SERVER_UP,            /* accepts commands */
    SERVER_DRAINING,      /* closes after its last reply */
    SERVER_CLOSING_CONNS, /* being closed on purpose, within one call */
    SERVER_CLOSING        /* closed for good */
};

enum dibs__pooled_conn_use {
    POOLED_DIALING, /* connecting, or about to close */
    POOLED_FREE,
    POOLED_LENT /* an application thread uses it */
};

/* Which thread uses a connection that serves callbacks; see callback_io.c. */
enum dibs__ride_state {
    RIDE_NONE,
    RIDE_OURS, /* the callback thread sends and reads */
    RIDE_LEFT, /* user code runs; io may take it */
    RIDE_TAKEN /* io has it, until all is answered */
};

struct dibs__callbacks;

struct dibs__ride {
    struct dibs__callbacks *by;  /* const while it is ridden */
    struct dibs__list at;        /* callback.mu: in callbacks.rides */
    enum dibs__ride_state state; /* callback.mu */
    bool watched;                /* callback.mu: tick is set, or will be */
    unsigned turn;               /* callback.mu: how often it was left */
    int64_t expires;             /* callback.mu: no reply is late before */
    unsigned seen;               /* io only: the turn at the last tick */
    struct dibs__timer tick;     /* io only */
    struct dibs__task watch;
};

/* A connection to a server. Owned by the io thread; freed by conn_freed in
 * server.c. */
struct dibs__pooled_conn {
    struct dibs__conn cn;
    struct dibs__server *server;
    struct dibs__list pool_link;     /* server.mu: in server.idle_conns */
    enum dibs__pooled_conn_use use;  /* server.mu */
    bool was_up;                     /* io only */
    bool served;                     /* io only: it replied to a command */
    struct dibs__req role_req;       /* io only: ROLE to a read-only server */
    char drain_reason[300];          /* io only: "" = not draining */
    unsigned generation;             /* server.generation when dialed */
    unsigned address_epoch;          /* server.address_epoch when dialed */
    struct dibs__task lend;          /* makes it POOLED_FREE, once io is done */
    struct dibs__task drop;          /* closes it, after a borrower's error */
    struct dibs__in_doubt *in_doubt; /* its lost commands; one reference */
    struct dibs__ride ride;
};

/* Implemented by node.c: what depends on a server's connections. server.c does
 * not know these modules. Thread: io. */
struct dibs__server_users {
    /* The main connection is up: send the waiting commands. */
    void (*resume)(struct dibs__server *s);
    /* No connection: fail the waiting commands; those with connect_by only if
     * patient_too, because no later attempt can succeed. */
    void (*fail)(struct dibs__server *s, dibs_err err, bool patient_too);
    /* The main connection is down: close the dedicated connections. */
    void (*drop)(struct dibs__server *s);
    /* The server will not be used: drop pending CLIENT KILLs. */
    void (*forget)(struct dibs__server *s);
    void (*conn_freed)(struct dibs__pooled_conn *conn);
};

struct dibs__server {
    struct dibs__loop *lp;
    struct dibs__target target;   /* const after init; with a discover hook,
                                 host and port change on io, under mu */
    struct dibs__events events;   /* const after init */
    unsigned max_idle_conns;      /* const after init: size of the pool */
    struct dibs__slot_map *slots; /* const after init; NULL: not in a cluster */
    const struct dibs__server_users *upper; /* const after init */

    struct dibs__lifecycle *lifecycle; /* const after init: notified of the
                                          first connection and of the end */

    /* Hooks, on io. discover (may be NULL): called before each attempt to
     * connect main; must call dibs__server_found or _not_found, now or later.
     * on_connected: main is up, and no command was sent on it yet. */
    void (*discover)(struct dibs__server *s);
    void (*on_connected)(struct dibs__server *s);
    void *user; /* of the hooks */

    struct dibs__pooled_conn *main; /* io only; NULL: none */
    enum dibs__server_state state;  /* io only */
    bool logged_up;                 /* io only: CONNECTED was the last event */
    bool ever_connected;            /* io only */
    bool read_only;                 /* io only: a write was refused, and none
                                       has succeeded since */
    struct dibs__log_throttle throttle; /* io only: of disconnect events */
    int64_t next_transient_log_ms; /* io only: rate limit of LOADING etc. */
    bool idle;                 /* io only: do not dial until a command waits */
    unsigned address_epoch;    /* io only */
    unsigned open_conns;       /* io only: connections not freed yet */
    int64_t backoff_ms;        /* io only */
    struct dibs__timer redial; /* io only */
    struct dibs__list waiting; /* io only: commands without a connection */
    struct dibs__list backing_off;  /* io only: commands between attempts */
    struct dibs__list in_doubt;     /* io only: CLIENT KILLs to send */
    bool kill_refused;              /* io only: CLIENT KILL was refused */
    unsigned desyncs;               /* io only: mismatched replies since */
    int64_t desyncs_since;          /* io only: this time */
    struct dibs__replica_acks acks; /* io only */
    struct dibs__key_tracking tracking;
    char last_error[DIBS__REASON_MAX]; /* io only: last error, with the address
                                        */

    dibs__mutex mu;
    struct dibs__list idle_conns; /* mu: the pool, also lent connections */
    unsigned idle_conn_count;     /* mu */
    bool pool_growing;            /* mu: one connection is being dialed */
    bool closed;                  /* mu */
    int64_t pool_grow_after;      /* mu: back-off after a failed attempt */
    struct dibs__task pool_grow;
    atomic_uint queued; /* commands with the io thread, for this server */
    atomic_uint connect_count; /* how often main came up */
    atomic_uint generation;    /* how often main went down */
};

/* Requires lp, to, events, max_idle_conns, lifecycle, upper and the hooks. */
void dibs__server_init(struct dibs__server *s);
/* Connects main, after discovery; no effect unless SERVER_DOWN. Thread: io. */
void dibs__server_start(struct dibs__server *s);
/* Fails all commands, closes all connections, and then reports to the
 * lifecycle. Thread: io. */
void dibs__server_close(struct dibs__server *s) EXCLUDES(s->mu);
void dibs__server_clear(struct dibs__server *s);
/* Closes the descriptors and nothing else: in a child after fork. */
void dibs__server_abandon(struct dibs__server *s);

/* Opens a connection. Returns NULL if out of memory. Thread: io. */
struct dibs__pooled_conn *dibs__pooled_conn_open(
    struct dibs__server *s, void (*up)(struct dibs__conn *),
    void (*down)(struct dibs__conn *, dibs_err, const char *));
/* Results of the discover hook. found: connects to this address. not_found:
 * fails the waiting commands and retries later. Thread: io. */
void dibs__server_found(struct dibs__server *s, const char *host, int port);
void dibs__server_not_found(struct dibs__server *s, dibs_err err,
                            const char *why);
/* Failover, unasked: closes all connections and connects to the new address. If
 * out of memory, retries later. Thread: io. */
void dibs__server_moved(struct dibs__server *s, const char *host, int port)
    EXCLUDES(s->mu);
/* Formats "address: text". Defined in observe/event.c. Any thread. */
void dibs__server_format(struct dibs__server *s, const char *text,
                         char out[DIBS__REASON_MAX]) EXCLUDES(s->mu);
/* Emits an event with the server's address before the text. Any thread. */
void dibs__server_log(struct dibs__server *s, dibs_event_kind kind,
                      dibs_err err, const char *text) EXCLUDES(s->mu);
/* Checks a reply's type against `expects` (one bit per type). Returns true if
 * it belongs to another request: then the connection was closed. Returns false
 * if it fits, or if this server keeps replying with such types. Defined in
 * read_only.c. Thread: io. */
bool dibs__server_is_desync(struct dibs__server *s, const struct dibs__req *req,
                            const struct dibs__reply *reply, unsigned expects);
/* Sets s->why: the error text of commands that fail without an error reply.
 * Thread: io. */
void dibs__server_set_last_error(struct dibs__server *s, const char *why);
/* Returns true if this is the server's current address. Thread: io. */
bool dibs__server_at(const struct dibs__server *s, const char *host, int port);

/* A command waits: ends the idle state and connects, unless a redial is
 * scheduled. Thread: io. */
void dibs__server_ensure_connected(struct dibs__server *s);
/* Closes the connections of a server that is not needed, and makes it idle.
 * Returns false, with the connections open, if a command uses them: call again
 * later. Thread: io. */
bool dibs__server_idle_close(struct dibs__server *s) EXCLUDES(s->mu);
/* Returns true inside dibs__server_idle_close: the close is no failure and is
 * not logged. Thread: io. */
static inline bool dibs__server_is_idle_closing(const struct dibs__server *s)
{
    return s->idle && s->state == SERVER_CLOSING_CONNS;
}
static inline bool dibs__server_is_up(const struct dibs__server *s)
{
    return s->state == SERVER_UP;
}
static inline bool dibs__server_is_closing(const struct dibs__server *s)
{
    return s->state == SERVER_CLOSING;
}
/* Returns true unless the server refused CLIENT TRACKING. Any thread. */
static inline bool dibs__key_tracking_possible(const struct dibs__server *s)
{
    return atomic_load_explicit(&s->tracking.state, memory_order_relaxed) !=
           TRACK_REFUSED;
}
static inline bool dibs__key_tracking_is_on(const struct dibs__server *s)
{
    return atomic_load(&s->tracking.state) == TRACK_ON;
}
/* Returns true if another attempt would fail with the same error. */
static inline bool dibs__server_error_is_final(dibs_err err)
{
    return err == DIBS_ERR_AUTH || err == DIBS_ERR_PROTOCOL ||
           err == DIBS_ERR_SERVER || err == DIBS_ERR_TLS;
}

/* Returns a connection for the calling thread, or NULL: none is free, or so
 * many commands are queued that pipelining is faster. The caller must return it
 * with dibs__server_give_back. borrow_always: ignores the queue. Thread: app.
 */
struct dibs__pooled_conn *dibs__server_borrow(struct dibs__server *s)
    EXCLUDES(s->mu);
struct dibs__pooled_conn *dibs__server_borrow_always(struct dibs__server *s)
    EXCLUDES(s->mu);
void dibs__server_give_back(struct dibs__pooled_conn *conn, bool usable);
/* Makes a connection that io took from its borrower (RIDE_TAKEN) available
 * again, once it has no requests in flight. Thread: io. */
void dibs__server_reclaim(struct dibs__pooled_conn *conn);

/* Closes the main connection, which is then redialed. close_now: at once.
 * drain: after the last reply. redial: after the last reply and a ROLE, because
 * a write was refused. Thread: io. */
void dibs__server_close_main(struct dibs__server *s, const char *why);
void dibs__server_drain(struct dibs__server *s, const char *why);
void dibs__server_redial(struct dibs__server *s, const char *why);
/* A command succeeded: ends the read-only state. Thread: io. */
void dibs__server_mark_writable(struct dibs__server *s);
/* Logs a failed connection, rate-limited. worked: it had been up. Returns true
 * if an event was emitted. Thread: io. */
bool dibs__server_log_disconnect(struct dibs__server *s, dibs_err err,
                                 const char *why, bool worked);
/* The caller must call this after each reply: closes a draining connection
 * after its last one. Thread: io. */
void dibs__server_replied(struct dibs__server *s);

#endif
