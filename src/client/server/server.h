/* SPDX-License-Identifier: MIT
 *
 * server.h - one server and our connections to it.
 *
 * One connection is the I/O thread's: commands are queued on it in batches. A
 * few more are there to be borrowed: a caller that finds one free talks on it
 * directly, with no other thread involved.
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

/* The main connection; the table is in server.c. */
enum dibs__server_state {
    SERVER_DOWN,        /* there is none */
    SERVER_DISCOVERING, /* seek has not answered yet */
    SERVER_DIALING,     /* it is on its way */
    SERVER_UP,          /* commands go out on it */
    SERVER_DRAINING,    /* it takes no more, and closes with its last answer */
    SERVER_CLOSING_CONNS, /* it goes down on purpose, just now */
    SERVER_CLOSING        /* for good */
};

enum dibs__pooled_conn_use {
    LINK_DIALING, /* not up yet, or going down */
    LINK_FREE,
    CONN_LENT /* a caller has it */
};

/* Who has a connection with which callbacks are served; see callback_io.c. */
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

/* A connection and what we know about it. */
struct dibs__pooled_conn {
    struct dibs__conn cn;
    struct dibs__server *server;
    struct dibs__list at;           /* server.mu: in server.spares */
    enum dibs__pooled_conn_use use; /* server.mu */
    bool was_up;                    /* io only */
    bool served;                    /* io only: it answered a command */
    struct dibs__req role;          /* io only: what it is, if not writable */
    char why[300];          /* io only: why it retires; "": it does not */
    unsigned generation;    /* server.generation when it was dialed */
    unsigned address_epoch; /* server.place when it was dialed */
    struct dibs__task lend; /* it came up, and may be borrowed */
    struct dibs__task drop; /* broken in a caller's hands */
    struct dibs__in_doubt
        *in_doubt; /* what it may have left under way; owner */
    struct dibs__ride ride;
};

/* What those above a server do with it. Thread: io. */
struct dibs__server_upper {
    /* Calls that wait go on: main is up. */
    void (*resume)(struct dibs__server *s);
    /* They end: there is no connection. patient_too: nor will there be. */
    void (*fail)(struct dibs__server *s, dibs_err err, bool patient_too);
    /* Nothing may go on talking to a server that was there. */
    void (*drop)(struct dibs__server *s);
    /* Nothing of ours is asked of it any more. */
    void (*forget)(struct dibs__server *s);
    void (*link_gone)(struct dibs__pooled_conn *conn);
};

struct dibs__server {
    struct dibs__loop *lp;
    struct dibs__target to;       /* const after init; but where there is a
                                     seek, host and port are changed on io,
                                     under mu */
    struct dibs__events events;   /* const after init */
    unsigned max_idle_conns;      /* const after init */
    struct dibs__slot_map *slots; /* const after init; NULL: in no cluster */
    const struct dibs__server_upper *upper; /* const after init */

    struct dibs__lifecycle *lifecycle; /* const after init: told how it goes */

    /* Upward, on io. seek (NULL: `to` says where the server is): asked before
     * each dialing of main; answers, also from inside, with one of the calls
     * below. up_again: main is up, and nothing went out on it yet. */
    void (*seek)(struct dibs__server *s);
    void (*up_again)(struct dibs__server *s);
    void *user; /* for them */

    struct dibs__pooled_conn *main; /* io only; NULL between connections */
    enum dibs__server_state state;  /* io only */
    bool logged_up;                 /* io only: the last event said so */
    bool ever_connected;            /* io only: it was up at all */
    bool read_only;                 /* io only: it was not writable, nor has it
                                   answered anything since */
    struct dibs__log_throttle throttle; /* io only */
    bool idle;                     /* io only: not dialed unless a call waits */
    unsigned address_epoch;        /* io only: how often the address changed */
    unsigned open_conns;           /* io only: that are not gone yet */
    int64_t backoff_ms;            /* io only */
    struct dibs__timer redial;     /* io only */
    struct dibs__list waiting;     /* io only: calls without a connection */
    struct dibs__list backing_off; /* io only: calls between two attempts */
    struct dibs__list in_doubt;    /* io only: to be canceled */
    bool kill_refused;             /* io only: the server refused it once */
    unsigned desyncs;              /* io only: connections out of step, */
    int64_t desyncs_since;         /* in a minute from then on */
    struct dibs__replica_acks acks; /* io only: calls that replicas must have */
    struct dibs__key_tracking
        tracking;           /* see there: who changes what we hold */
    int64_t throttle_until; /* io only: "not now" was told lately */

    /* In words, io only: the last trouble with it; why main retires. */
    char why[DIBS__REASON_MAX];

    dibs__mutex mu;
    struct dibs__list idle_conns; /* mu */
    unsigned idle_conn_count;     /* mu */
    bool pool_growing;            /* mu: one is being dialed */
    bool closed;                  /* mu */
    int64_t pool_grow_after;      /* mu: not before this time */
    struct dibs__task pool_grow;
    atomic_uint queued;     /* calls with the io thread */
    atomic_uint ups;        /* how often main came up */
    atomic_uint generation; /* how often main went down */
};

/* to, events, lp, max_spares and the hooks must be set. */
void dibs__server_init(struct dibs__server *s);
/* Starts to connect, and keeps connected from then on. Thread: io. */
void dibs__server_start(struct dibs__server *s);
/* Ends all calls and connections, then tells. Thread: io. */
void dibs__server_close(struct dibs__server *s) EXCLUDES(s->mu);
void dibs__server_clear(struct dibs__server *s);
/* Closes the descriptors and nothing else: in a child after fork. */
void dibs__server_abandon(struct dibs__server *s);

/* One more connection; NULL: out of memory. Thread: io. */
struct dibs__pooled_conn *dibs__pooled_conn_open(
    struct dibs__server *s, void (*up)(struct dibs__conn *),
    void (*down)(struct dibs__conn *, dibs_err, const char *));
/* Where seek found it: dialed now. Found nowhere: tried again later. The
 * server is elsewhere by now, though nobody asked: all connections are cut, and
 * it is dialed there. NOMEM: as if it had not been found. Thread: io. */
void dibs__server_found(struct dibs__server *s, const char *host, int port);
void dibs__server_not_found(struct dibs__server *s, dibs_err err,
                            const char *why);
void dibs__server_moved(struct dibs__server *s, const char *host, int port)
    EXCLUDES(s->mu);
/* In event.c: "address: text". Thread: any. */
void dibs__server_format(struct dibs__server *s, const char *text,
                         char out[DIBS__REASON_MAX]) EXCLUDES(s->mu);
/* An event about this server, whose address it names. Thread: any. */
void dibs__server_log(struct dibs__server *s, dibs_event_kind kind,
                      dibs_err err, const char *text) EXCLUDES(s->mu);
/* In read_only.c: is this the reply to another command than this one, which is
 * answered with these types, one bit each? True: the connection has ended.
 * False: it fits, or it never does with this server. Thread: io. */
bool dibs__server_is_desync(struct dibs__server *s, const struct dibs__req *req,
                            const struct dibs__reply *reply, unsigned expects);
/* What a call that fails for want of an answer fails with. Thread: io. */
void dibs__server_set_last_error(struct dibs__server *s, const char *why);
/* Is it at this address, as far as we know? Thread: io. */
bool dibs__server_at(const struct dibs__server *s, const char *host, int port);

/* Dials, unless that is under way: a call waits. Thread: io. */
void dibs__server_ensure_connected(struct dibs__server *s);
/* Ends its connections if nothing is on them, until a call wakes it. False:
 * there is. Thread: io. */
bool dibs__server_idle_close(struct dibs__server *s) EXCLUDES(s->mu);
/* Its connections are ended because nobody needs them: nothing has failed, and
 * nothing is told. Thread: io. */
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
/* Is there hope that changes of keys are told? Thread: any. */
static inline bool dibs__key_tracking_possible(const struct dibs__server *s)
{
    return atomic_load_explicit(&s->tracking.state, memory_order_relaxed) !=
           TRACK_REFUSED;
}
static inline bool dibs__key_tracking_is_on(const struct dibs__server *s)
{
    return atomic_load(&s->tracking.state) == TRACK_ON;
}
/* Another attempt will not change this. */
static inline bool dibs__server_error_is_final(dibs_err err)
{
    return err == DIBS_ERR_AUTH || err == DIBS_ERR_PROTOCOL ||
           err == DIBS_ERR_SERVER || err == DIBS_ERR_TLS;
}

/* A connection to use directly, or NULL: queue instead. lend: the same, however
 * much is queued. Thread: app. */
struct dibs__pooled_conn *dibs__server_borrow(struct dibs__server *s)
    EXCLUDES(s->mu);
struct dibs__pooled_conn *dibs__server_borrow_always(struct dibs__server *s)
    EXCLUDES(s->mu);
void dibs__server_give_back(struct dibs__pooled_conn *conn, bool usable);
/* If io has taken it from the thread that borrowed it, and nothing is on it any
 * more: it may be borrowed again. Thread: io. */
void dibs__server_reclaim(struct dibs__pooled_conn *conn);

/* The connection for queued goes down and comes up anew: at once, or when all
 * that is on it is answered; redial: and when it has said what it is, as it
 * takes no writes. Thread: io. */
void dibs__server_close_now(struct dibs__server *s, const char *why);
void dibs__server_drain(struct dibs__server *s, const char *why);
void dibs__server_redial(struct dibs__server *s, const char *why);
/* It has done what it was asked for. Thread: io. */
void dibs__server_mark_writable(struct dibs__server *s);
/* A connection to it failed: tells so, unless the same was told a moment ago.
 * True: it was told. worked: it had been up. Thread: io. */
bool dibs__server_log_disconnect(struct dibs__server *s, dibs_err err,
                                 const char *why, bool worked);
/* After each answer. Thread: io. */
void dibs__server_replied(struct dibs__server *s);

#endif
