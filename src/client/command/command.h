/* SPDX-License-Identifier: MIT
 *
 * command.h - one Redis command or script call, with routing, retries and a
 * deadline.
 *
 * Command      a struct embedded in the object that needs the reply. Its owner
 *              sets the first block of members and starts the command; `done`
 *              then runs exactly once. The struct must stay valid until then.
 * Attempt      one transmission of the command. Each attempt has its own reply
 *              timeout (attempt_ms); all attempts share the deadline.
 * Route        where to send: a fixed server, or the slot map of a cluster,
 *              which is consulted again for each attempt.
 * In doubt     an attempt that was sent and got no reply: the server may have
 *              executed it, or may execute it later. in_doubt.c kills the old
 *              connection before the next attempt, so that no late copy can
 *              run. Where CLIENT KILL is not possible, `maybe_live_copy` tells
 *              the owner that a copy may still run.
 * Resent       a command is retried after an attempt in doubt, so the server
 *              may execute it more than once: every command sent through this
 *              module must be idempotent.
 * Replicas     a command with `replicas` set completes only after WAIT has
 *              confirmed that replicas have its writes (replica_ack.c).
 */
#ifndef DIBS_CLIENT_COMMAND_COMMAND_H
#define DIBS_CLIENT_COMMAND_COMMAND_H

#include "client/server/server.h"

/* State of a command; the transitions are in command.c. */
enum dibs__command_state {
    CMD_POSTED,         /* in the task queue of the io thread */
    CMD_WAITING,        /* needs a connection or a slot map */
    CMD_BACKOFF,        /* retry timer is running */
    CMD_WAIT_GROUP,     /* queued for the next WAIT group (replica_ack.c) */
    CMD_SENT,           /* reply pending */
    CMD_AWAIT_REPLICAS, /* reply received, WAIT pending */
    CMD_DONE            /* done has run or is about to run */
};

/* Size of saved_reply.text: the longest number in a lock's reply, a slash and
 * a second number. A longer text is truncated. */
#define DIBS__SAVED_REPLY_MAX 24

struct dibs__command {
    /* Set by the owner before the start. */
    void (*write)(struct dibs__command *cmd, struct dibs__buf *out, bool whole);
    /* Thread: io, or the caller of dibs__command_run_sync/_recv_sync. */
    void (*on_reply)(struct dibs__command *cmd, dibs_err err,
                     const struct dibs__reply *reply);
    int64_t deadline;    /* for all attempts together */
    int64_t attempt_ms;  /* reply timeout of one attempt */
    int64_t connect_by;  /* wait for a connection until then; 0 = fail as soon
                            as one connection attempt fails */
    int64_t replicas_ms; /* time limit of WAIT */
    int replicas;        /* replicas that must have the writes: a number, < 0 =
                            all connected ones, 0 = none */
    unsigned expects;    /* valid reply types, one bit each; 0 = any */
    unsigned writes;     /* reply types that mean "the script wrote", one bit
                            each: only these wait for replicas */
    int slot;            /* hash slot of the keys; -1 = do not route by slot */
    /* Receives the error text, with the server's address, just before done is
     * called with an error. May be NULL. Thread: io. */
    void (*on_error_text)(struct dibs__command *cmd, dibs_err err,
                          const char *why);
    bool quiet;     /* do not log error replies */
    bool no_script; /* a plain command: neither the request nor the reply
                       carries a request number (script.c) */

    /* Results, valid in done. */
    bool resent;              /* an earlier attempt may have been executed */
    bool may_have_stale_copy; /* the server may still execute an old attempt */
    bool partially_executed;  /* the script failed after its first write */
    bool under_replicated; /* executed, but not confirmed by enough replicas */
    int acked, wanted;     /* then: replicas that confirmed / required */
    int64_t sent_ms;       /* when the answered attempt was sent */

    /* Private to src/client/command and callback_io.c. */
    struct dibs__server *server;  /* NULL: no server is known for the slot */
    struct dibs__slot_map *slots; /* NULL: not in a cluster */
    struct dibs__req req;
    struct dibs__task task;
    struct dibs__timer timer;
    struct dibs__in_doubt *in_doubt; /* of the last lost attempt; one ref */
    enum dibs__command_state state;
    bool unkillable;        /* a lost attempt cannot be killed */
    bool full_script;       /* send EVAL with the source, not EVALSHA */
    bool desync;            /* an attempt got a reply to another request */
    bool send_asking;       /* prefix the next attempt with ASKING */
    bool deadline_extended; /* once, by the duration of the WAIT in flight */
    unsigned char saved_reply_type; /* the reply, in CMD_AWAIT_REPLICAS */
    unsigned tries, redirects;
    dibs_err last_err;
    union {
        int64_t num;
        char text[DIBS__SAVED_REPLY_MAX];
    } saved_reply;
};

/* Starts a command: posts it to the io thread. Any thread. done receives:
 * OK       and the reply, which is never an error reply.
 * CONN     Not executed: no connection in time.
 * UNKNOWN  No reply in time: it may have been executed, or may be later.
 * CLOSED   Not executed: the client is closing.
 * REPLICAS Executed, and the reply is passed; under_replicated is set. Also
 *          with AUTH, if the user may not run WAIT or ROLE.
 * others   and the server's error reply (see error_class.c). */
void dibs__command_start(struct dibs__route to, struct dibs__command *cmd);
/* Same, but starts before returning, ahead of posted commands; done may run
 * inside this call. Thread: io. */
void dibs__command_start_now(struct dibs__route to, struct dibs__command *cmd);
/* Same, on a borrowed connection if one is free: then done runs inside this
 * call. The command is posted if none is free, or if the attempt fails. Thread:
 * app. */
void dibs__command_run_sync(struct dibs__route to, struct dibs__command *cmd);
/* dibs__command_run_sync in two steps, to send to several servers before
 * receiving. send_sync returns true if the caller must call recv_sync; false if
 * the command was posted. recv_sync waits for the reply until `until`; on a
 * timeout or an error it posts the command, which is sent again, and returns
 * false. Thread: app, both from the same one. */
bool dibs__command_send_sync(struct dibs__route to, struct dibs__command *cmd);
bool dibs__command_recv_sync(struct dibs__command *cmd, int64_t until);

/* For callback_io.c, which sends commands on a borrowed connection.
 * prepare: resets the private members; required before the others.
 * mark_sent: sets state, sent_ms and the reply timeout; call before sending.
 * post: hands the command to the io thread.
 * consume_reply: runs done, or posts the command after an error reply; the
 * command may be freed. Returns false, with no effect, if the reply belongs to
 * another request (desync).
 * count: adds the requests in `fifo` to server.queued, because the io thread
 * will complete them. */
void dibs__command_prepare(struct dibs__route to, struct dibs__command *cmd);
void dibs__command_mark_sent(struct dibs__command *cmd);
void dibs__command_post(struct dibs__command *cmd);
bool dibs__command_consume_reply(struct dibs__command *cmd,
                                 const struct dibs__reply *reply);
void dibs__commands_count_queued(const struct dibs__list *fifo);

/* For replica_ack.c. Thread: io.
 * send: transmits on `conn`.
 * retry: starts the next attempt; executed: the last one may have run.
 * give_up: completes with `err`, or UNKNOWN if an attempt is in doubt.
 * acknowledged: completes a command in CMD_AWAIT_REPLICAS with its saved reply;
 * refused: server.why has the error text of the refused WAIT or ROLE. */
void dibs__command_send(struct dibs__command *cmd,
                        struct dibs__pooled_conn *conn);
void dibs__command_retry(struct dibs__command *cmd, bool executed);
void dibs__command_give_up(struct dibs__command *cmd, dibs_err err);
void dibs__command_acknowledged(struct dibs__command *cmd, dibs_err err,
                                bool refused);

/* For all commands in a list of waiting ones. Thread: io.
 * reroute: looks up the slot again and restarts.
 * end: gives up with `err`; those with connect_by stay in the list unless
 * `patient_too`. */
void dibs__commands_reroute(struct dibs__list *waiting);
void dibs__commands_fail_list(struct dibs__list *waiting, dibs_err err,
                              bool patient_too);
/* Implement server_upper.resume and server_upper.fail. Thread: io. */
void dibs__commands_resume(struct dibs__server *s);
void dibs__commands_fail(struct dibs__server *s, dibs_err err,
                         bool patient_too);

#endif
