/* SPDX-License-Identifier: MIT
 *
 * conn.h - one connection to one server, set up and ready for commands.
 *
 * target   Address, login and timeouts of a server.
 * request  A command in flight (struct dibs__req). Replies come in the order of
 *          the requests.
 * number   Sequence number of a request in 1000..9999, passed to scripts, which
 *          repeat it in the reply; a wrong one reveals a desynchronized
 *          connection.
 * lend     io gives the connection to one thread for synchronous commands;
 *          adopt gives it back with its requests in flight.
 *
 * A connection is used by one thread at a time: by io, which sends batches and
 * never blocks, or by the thread that borrowed it. The pool (server.c) decides
 * which.
 */
#ifndef DIBS_NET_CONN_H
#define DIBS_NET_CONN_H

#include "base/buf.h"
#include "net/event_loop.h"
#include "net/resp_reply.h"
#include "net/tls.h"
#include "net/url.h"

#include <sys/un.h>

#define DIBS__CONN_IN 16384 /* bytes per read */
/* Request numbers are consecutive and wrap around. */
#define DIBS__REQUEST_NUMBER_MIN 1000
#define DIBS__REQUEST_NUMBER_MAX 9999

/* Where to connect to and how. Outlives its connections. */
struct dibs__target {
    struct dibs__url url;
    const char *client_name;
    int64_t connect_timeout_ms;
    int64_t command_timeout_ms;
    bool may_fail_over; /* a failover can replace the server: check its role,
                     and record its run id */
};

/* A command in flight, embedded in the object that sends it. */
struct dibs__req {
    struct dibs__list link;
    /* Appends the command to out; called by send. */
    void (*write)(struct dibs__req *req, struct dibs__buf *out);
    /* OK: reply is valid during the call. CONN: not executed. UNKNOWN: it may
     * have been executed, or may be later. */
    void (*done)(struct dibs__req *req, dibs_err err,
                 const struct dibs__reply *reply);
    struct dibs__conn *cn;   /* that it was sent on */
    bool check_input;        /* check for unexpected input before sending */
    uint16_t request_number; /* request number, see above */
    unsigned skip;           /* replies to ignore before its own */
    int64_t expires;         /* deadline of the reply */
    uint64_t end;            /* offset of its end in the output stream */
};

enum dibs__conn_state {
    CONN_CLOSED,
    CONN_RESOLVING,
    CONN_CONNECTING,
    CONN_HANDSHAKE, /* the TLS handshake */
    CONN_SETUP,     /* the set-up commands are in flight */
    CONN_READY
};

/* The set-up commands. */
enum dibs__setup_step {
    SETUP_AUTH,
    SETUP_SELECT,
    SETUP_NAME,
    SETUP_ROLE, /* if target.changes */
    SETUP_RUN,  /* if target.changes: INFO server, for the run id */
    SETUP_INFO,
    SETUP_COUNT
};

struct dibs__setup_req {
    struct dibs__req req;
    struct dibs__conn *cn;
    enum dibs__setup_step kind;
};

struct dibs__conn {
    struct dibs__loop *lp;
    const struct dibs__target *to;
    enum dibs__conn_state state;
    int fd;
    struct dibs__tls *tls; /* NULL: no TLS */

    /* Hooks of the owner. up: ready. down: closed by either side, because of
     * err; called once, before the requests in flight fail. gone: nothing is
     * left on the loop, and the owner may free the connection. push: a reply
     * without a request; set only for pub/sub. */
    void (*up)(struct dibs__conn *cn);
    void (*down)(struct dibs__conn *cn, dibs_err err, const char *why);
    void (*gone)(struct dibs__conn *cn);
    void (*push)(struct dibs__conn *cn, const struct dibs__reply *reply);
    void *user; /* the owner */

    struct dibs__list fifo; /* requests in flight, oldest first */
    struct dibs__buf out;   /* output not yet taken by the kernel */
    uint64_t sent, queued;  /* offsets in the output stream */
    /* req.end of the oldest request when half of the replies were read, and
     * when its time limit was extended because input was available. */
    uint64_t half_read_end, extended_end;
    uint16_t number;    /* of the last request */
    bool out_of_memory; /* no memory for a request: the next flush closes */
    struct dibs__reader in;
    int64_t last_used_us;

    char id[24];     /* CLIENT ID of this connection; "" if unknown */
    char addr[160];  /* its client address as the server reports it */
    char run_id[48]; /* run id of the server; "" if unknown */

    /* Of connect.c. dial_step: the socket is ready, before the set-up.
     * dial_timed_out: the timer expired before the connection was ready. */
    void (*dial_step)(struct dibs__conn *cn);
    void (*dial_timed_out)(struct dibs__conn *cn);
    struct dibs__resolve *resolve;
    struct addrinfo *found, *next; /* all addresses; the next one to try */
    uv_poll_t *poll;
    int polled; /* UV_ events that poll watches */
    struct dibs__timer timer;
    struct dibs__task flush;
    struct dibs__task step; /* starts connecting; later calls gone */
    bool dialing;           /* step is posted and has not run */
    struct dibs__setup_req setup[SETUP_COUNT];
    char bytes[DIBS__CONN_IN];
};

/* Starts connecting; up or down reports the result. The caller must have set
 * lp, to and the hooks. Returns OK, or NOMEM if nothing was started. Thread:
 * io. */
dibs_err dibs__conn_open(struct dibs__conn *cn);
/* Calls down, then fails all requests; gone follows from the loop. Idempotent.
 * Thread: io. */
void dibs__conn_close(struct dibs__conn *cn, dibs_err err, const char *why);
/* Appends a request; the next flush sends it. The connection must be ready.
 * done is not called from inside. Thread: io. */
void dibs__conn_send(struct dibs__conn *cn, struct dibs__req *req);

/* io stops polling the socket, so that another thread may borrow the
 * connection. dibs__conn_send starts polling again. Thread: io. */
void dibs__conn_lend(struct dibs__conn *cn);

/* For the thread that borrowed the connection: send_sync sends one command,
 * recv_sync waits for its reply, at most until `expires`. OK: *reply is valid
 * until the next use. CONN and UNKNOWN as for dibs__req; then the caller must
 * close the connection. Thread: app. */
dibs_err dibs__conn_send_sync(struct dibs__conn *cn, struct dibs__req *req);
dibs_err dibs__conn_recv_sync(struct dibs__conn *cn, int64_t expires,
                              const struct dibs__reply **reply);

/* For a thread that borrowed the connection for many requests at a time.
 *
 * is_batchable  Returns whether it is usable for that: no TLS, no unexpected
 *               input.
 * append        Appends a request to fifo and out. False: out of memory.
 * send_some     Sends without blocking. False: the caller must close.
 * recv_some     Reads available input into `in`. False: the caller must close.
 * pop_request   Removes and returns the request that the next reply belongs to;
 *               NULL: none has been sent.
 * expires       Returns the earliest deadline in fifo, or INT64_MAX.
 * readable      Returns whether the socket has input, an end or an error.
 *
 * Thread: the borrower; io if the connection is not lent. */
bool dibs__conn_is_batchable(struct dibs__conn *cn);
bool dibs__conn_append(struct dibs__conn *cn, struct dibs__req *req);
bool dibs__conn_send_some(struct dibs__conn *cn);
bool dibs__conn_recv_some(struct dibs__conn *cn);
struct dibs__list *dibs__conn_pop_request(struct dibs__conn *cn);
int64_t dibs__conn_expires(const struct dibs__conn *cn);
bool dibs__conn_readable(const struct dibs__conn *cn);
/* Returns true if the oldest request must not time out yet: input is available
 * that was not read because reads are limited. At most once per request, so
 * that an incomplete reply does not extend its time limit again. */
bool dibs__conn_extend_once(struct dibs__conn *cn);
/* io takes a lent connection back with its requests in flight. `in` must not
 * contain a complete reply. Thread: io. */
void dibs__conn_adopt(struct dibs__conn *cn);

/* Private to conn.c and connect.c. */
dibs_err dibs__conn_prepare(struct dibs__conn *cn);
void dibs__conn_drop_socket(struct dibs__conn *cn);
void dibs__conn_fail(struct dibs__conn *cn, dibs_err err, const char *what,
                     int error_number);
void dibs__conn_poll(struct dibs__conn *cn, int events);

#endif
