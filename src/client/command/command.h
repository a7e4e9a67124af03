/* SPDX-License-Identifier: MIT
 *
 * command.h - a command seen through: sent, sent again, or given up with a
 * clear word on what is known.
 */
#ifndef DIBS_CLIENT_COMMAND_COMMAND_H
#define DIBS_CLIENT_COMMAND_COMMAND_H

#include "client/server/server.h"

/* Where a call is; the table is in command.c. */
enum dibs__command_state {
    CMD_POSTED,     /* on its way to io */
    CMD_WAITING,    /* for a connection, or for a map of the slots */
    CMD_BACKOFF,    /* until it is tried again */
    CMD_WAIT_GROUP, /* for the next group of those that replicas must have */
    CMD_SENT,       /* the reply is to come */
    CMD_AWAIT_REPLICAS, /* answered; replicas are waited for */
    CMD_DONE            /* done was called, or is about to be */
};

/* Longer than any number that comes with a lock, and the slash and the number
 * behind it. Of a longer text the end is lost. */
#define DIBS__CALL_KEPT 24

/* Every command sent this way must be harmless when executed twice. Lives
 * inside whatever it is about; done comes exactly once, on io or, after
 * dibs__command_run_direct, on the thread that called. */
struct dibs__command {
    /* Filled in by the sender. */
    void (*write)(struct dibs__command *cmd, struct dibs__buf *out, bool whole);
    void (*done)(struct dibs__command *cmd, dibs_err err,
                 const struct dibs__reply *reply);
    int64_t deadline;    /* for all of it */
    int64_t attempt_ms;  /* for one reply */
    int64_t connect_by;  /* without a connection give up then; 0 = as soon as
                            a connection could not be made */
    int64_t replicas_ms; /* how long replicas have */
    int replicas; /* so many must have it, too; 0 none, < 0 all (replica_ack.c)
                   */
    unsigned expects; /* types the reply can have, a bit each; 0 = any */
    unsigned writes;  /* those that say there is something for replicas */
    int slot;         /* in a cluster: of its keys; -1: for that server */
    /* Told why, in words and with the server's address, just before done comes
     * with an error. May be NULL. Thread: io. */
    void (*explain)(struct dibs__command *cmd, dibs_err err, const char *why);
    bool quiet;     /* an error reply is no event */
    bool no_script; /* it calls no script: no number goes out with it, none
                   comes back */

    /* Known when done. */
    bool resent;             /* it may have been executed before, too */
    bool maybe_live_copy;    /* a copy of it may still be executed some time */
    bool partially_executed; /* the error came from the middle of a script */
    bool under_replicated;   /* executed, but too few replicas are known to have
                                it */
    int acked, wanted;       /* then: how many have it, how many should */
    int64_t sent_ms;         /* just before what was answered was sent */

    /* command.c's own. */
    struct dibs__server *server;  /* NULL: nobody is known to have its slot */
    struct dibs__slot_map *slots; /* NULL: in no cluster */
    struct dibs__req req;
    struct dibs__task task;
    struct dibs__timer timer;
    struct dibs__in_doubt *in_doubt;
    enum dibs__command_state state;
    bool unkillable;  /* a ghost cannot be canceled */
    bool full_script; /* send the script's text */
    bool desync;      /* it got a reply that cannot be its own */
    bool send_asking; /* the server is about to take over the slot: say so */
    bool deadline_extended; /* its deadline was, since others were before it
                     (replica_ack.c) */
    /* The reply, while replicas are waited for: its type, and number or text.
     */
    unsigned char saved_reply_type;
    unsigned tries, redirects;
    dibs_err last_err;
    union {
        int64_t num;
        char text[DIBS__CALL_KEPT];
    } saved_reply;
};

/* OK       with the reply, never an error reply.
 * CONN     Nothing was done: no connection in time.
 * UNKNOWN  No reply in time; it may have been executed or may yet be.
 * CLOSED   The client is going away; nothing was done.
 * REPLICAS It was executed, reply is there, but see unacked. Also with AUTH,
 *          where the user may not ask for acknowledgements.
 * others   The server's error reply is there too (see error_class.c). */
void dibs__command_start(struct dibs__route to, struct dibs__command *cmd);
/* The same at once, ahead of what was posted; done may come from inside.
 * Thread: io. */
void dibs__command_run_now(struct dibs__route to, struct dibs__command *cmd);
/* The same, directly if a connection is free. Thread: app. */
void dibs__command_run_direct(struct dibs__route to, struct dibs__command *cmd);
/* The same in two parts, for a caller that asks several servers at once. True
 * from ask: the reply is to be heard on this thread. hear: what has not come by
 * then goes to the io thread, which asks anew; false then. */
bool dibs__command_send_sync(struct dibs__route to, struct dibs__command *cmd);
bool dibs__command_recv_sync(struct dibs__command *cmd, int64_t until);

/* For callback_io.c, whose calls go out with others on a borrowed connection:
 * before all else; it is about to be sent; it is for io after all. take: the
 * reply to it, the call may be gone then; false: that cannot be the reply,
 * nothing was done. count: io will end these. */
void dibs__command_prepare(struct dibs__route to, struct dibs__command *cmd);
void dibs__command_mark_sent(struct dibs__command *cmd);
void dibs__command_post(struct dibs__command *cmd);
bool dibs__command_consume_reply(struct dibs__command *cmd,
                                 const struct dibs__reply *reply);
void dibs__commands_count(const struct dibs__list *fifo);

/* For replica_ack.c, on io: sends it; starts it anew, executed before or not;
 * gives up; the replicas are known: OK, or why not (refused: the server's note
 * tells more). */
void dibs__command_send(struct dibs__command *cmd,
                        struct dibs__pooled_conn *conn);
void dibs__command_retry(struct dibs__command *cmd, bool executed);
void dibs__command_give_up(struct dibs__command *cmd, dibs_err err);
void dibs__command_acknowledged(struct dibs__command *cmd, dibs_err err,
                                bool refused);

/* All calls in a list of those that wait, on io: look where their slot is now;
 * end, or only those without patience. */
void dibs__commands_reroute(struct dibs__list *waiting);
void dibs__commands_end(struct dibs__list *waiting, dibs_err err,
                        bool patient_too);
/* As a server's upper has it. */
void dibs__commands_resume(struct dibs__server *s);
void dibs__commands_fail(struct dibs__server *s, dibs_err err,
                         bool patient_too);

#endif
