/* SPDX-License-Identifier: MIT
 *
 * conn.h - one socket to one server, set up and ready for commands.
 *
 * A connection is used by one thread at a time: by the I/O thread, which sends
 * whole batches and never waits, or by a caller that borrowed it and talks
 * directly. Who has it is not decided here.
 */
#ifndef DIBS_NET_CONN_H
#define DIBS_NET_CONN_H

#include "base/buf.h"
#include "net/event_loop.h"
#include "net/resp_reply.h"
#include "net/tls.h"
#include "net/url.h"

#include <sys/un.h>

#define DIBS__CONN_IN 16384 /* bytes read at once */
/* Numbers of sendings: one after the other, and round. */
#define DIBS__NUMBER_MIN 1000
#define DIBS__NUMBER_MAX 9999

/* Where to connect to and how. Lives longer than its connections. */
struct dibs__target {
    struct dibs__url url;
    const char *client_name;
    int64_t connect_timeout_ms;
    int64_t command_timeout_ms;
    bool changes; /* another server can come in its place: see that it is a
                     master, and which one */
};

/* A command on its way. Lives inside whatever it is about. */
struct dibs__req {
    struct dibs__list link;
    /* Appends the command; called when it is sent. */
    void (*write)(struct dibs__req *req, struct dibs__buf *out);
    /* OK with a reply, valid during the call; CONN: surely not executed;
     * UNKNOWN: it may have been, or may yet be. */
    void (*done)(struct dibs__req *req, dibs_err err,
                 const struct dibs__reply *reply);
    struct dibs__conn *cn; /* on which it went out */
    bool careful;          /* look for left-over bytes before it is sent */
    uint16_t number;       /* of this sending, for an answer that repeats it */
    unsigned skip;         /* replies that come before its own */
    int64_t expires;       /* when we stop waiting for the reply */
    uint64_t end;          /* where it ends in all that this connection sent */
};

enum dibs__conn_state {
    CONN_CLOSED,
    CONN_RESOLVING,
    CONN_CONNECTING,
    CONN_SHAKING, /* the TLS handshake */
    CONN_SETUP,   /* AUTH and so on are on their way */
    CONN_READY
};

/* The commands a connection starts with. */
enum dibs__hello_kind {
    HELLO_AUTH,
    HELLO_SELECT,
    HELLO_NAME,
    HELLO_ROLE, /* if another server can come in its place */
    HELLO_RUN,  /* the same */
    HELLO_INFO,
    HELLO_COUNT
};

struct dibs__hello {
    struct dibs__req req;
    struct dibs__conn *cn;
    enum dibs__hello_kind kind;
};

struct dibs__conn {
    struct dibs__loop *lp;
    const struct dibs__target *to;
    enum dibs__conn_state state;
    int fd;
    struct dibs__tls *tls; /* NULL: bytes go out as they are */

    /* Upward. up: ready. down: was closed, by us or not; err says what kind of
     * trouble, and every request has been answered. gone: nothing of it is
     * left on the loop, the memory may go. push: what was not asked for (set
     * for subscriptions). */
    void (*up)(struct dibs__conn *cn);
    void (*down)(struct dibs__conn *cn, dibs_err err, const char *why);
    void (*gone)(struct dibs__conn *cn);
    void (*push)(struct dibs__conn *cn, const struct dibs__reply *reply);
    void *user; /* for them */

    struct dibs__list fifo;  /* requests that wait for replies, oldest first */
    struct dibs__buf out;    /* written but not yet sent */
    uint64_t sent, queued;   /* bytes in all */
    uint64_t halved, spared; /* end of the request whose answer was the next
                                one: when half of them were read, and when
                                they were not late */
    uint16_t number;         /* of the last sending */
    bool lacking;            /* no memory for a request: it is over */
    struct dibs__reader in;
    int64_t last_used_us;

    char id[24];    /* the server's number for this connection; "" unknown */
    char addr[160]; /* the server's address for it */
    char run[48];   /* which run of which server; "" unknown */

    /* connect.c's, until the set-up begins: the socket can go on; until it is
     * ready: the time is over. */
    void (*dial_step)(struct dibs__conn *cn);
    void (*dial_late)(struct dibs__conn *cn);
    struct dibs__resolve *resolve;
    struct addrinfo *found, *next; /* addresses; the next one to try */
    uv_poll_t *poll;
    int polled; /* events asked for */
    struct dibs__timer timer;
    struct dibs__task flush;
    struct dibs__task step; /* the dialing, later the end */
    bool dialing;           /* step is still to come */
    struct dibs__hello hello[HELLO_COUNT];
    char bytes[DIBS__CONN_IN];
};

/* Starts connecting; up or down will tell. lp, to and the hooks must be set.
 * NOMEM: nothing was started. Thread: io. */
dibs_err dibs__conn_open(struct dibs__conn *cn);
/* Answers all requests, tells down, then gone. Thread: io. */
void dibs__conn_close(struct dibs__conn *cn, dibs_err err, const char *why);
/* Sends with the next flush. Needs a connection that is ready. done is not
 * called from inside. Thread: io. */
void dibs__conn_send(struct dibs__conn *cn, struct dibs__req *req);

/* The io thread stops looking at this socket, so that a caller may borrow the
 * connection; sending on it makes it look again. Thread: io. */
void dibs__conn_lend(struct dibs__conn *cn);

/* For a caller that borrowed the connection: sends one command; then waits for
 * its reply, at most until it expires. OK: *reply is valid until the next use.
 * CONN and UNKNOWN as above; then the connection is good for nothing but close.
 * Thread: app. */
dibs_err dibs__conn_send_sync(struct dibs__conn *cn, struct dibs__req *req);
dibs_err dibs__conn_recv_sync(struct dibs__conn *cn, int64_t expires,
                              const struct dibs__reply **reply);

/* For a thread that has it for a while, without TLS, with many requests at a
 * time. fits: it is good for that. append: false, no memory. put: sends
 * what the kernel takes. get: reads what is there into `in`. Of both false:
 * broken, good for nothing but close. expires: when the first reply is late.
 * pop: the request whose reply has come; NULL: none is due. readable: something
 * has come, or it is over. Thread: the one that has it. */
bool dibs__conn_fits(struct dibs__conn *cn);
bool dibs__conn_append(struct dibs__conn *cn, struct dibs__req *req);
bool dibs__conn_put(struct dibs__conn *cn);
bool dibs__conn_get(struct dibs__conn *cn);
struct dibs__list *dibs__conn_pop(struct dibs__conn *cn);
int64_t dibs__conn_expires(const struct dibs__conn *cn);
bool dibs__conn_readable(const struct dibs__conn *cn);
/* The next answer has come, and was in time: not all are read at once. False
 * the second time, if only bytes of it come. */
bool dibs__conn_unread(struct dibs__conn *cn);
/* The io thread takes it over, with all that is on it. No whole reply may be
 * left in `in`. Thread: io. */
void dibs__conn_adopt(struct dibs__conn *cn);

/* For connect.c. */
dibs_err dibs__conn_prepare(struct dibs__conn *cn);
void dibs__conn_drop_socket(struct dibs__conn *cn);
void dibs__conn_fail(struct dibs__conn *cn, dibs_err err, const char *what,
                     int error_number);
void dibs__conn_poll(struct dibs__conn *cn, int events);

#endif
