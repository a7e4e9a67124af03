/* SPDX-License-Identifier: MIT
 *
 * operation.h - one operation on a lock: its arguments, its command, its result
 * and the operations that wait for it.
 *
 * operation    An acquire, a release, or another command on one lock entry. A
 *              sync operation is on its caller's stack and ends with a
 *              semaphore; an async one is allocated and ends with a callback;
 *              one of a group (`ended` is set) ends with a call to the group.
 *              Everything in between is the same.
 * verb         The kind of command (enum dibs__lock_command): VERB_ACQUIRE, ...
 * run          Starts the operation, and starts it again after it was blocked:
 *              acquire.c or release.c decide what to send.
 * blocked      Waits for another operation of the same owner, which is in
 *              flight: in blocked_ops of that operation or of the hold.
 * resume       Runs an operation that was blocked or whose owner has got the
 *              lock meanwhile.
 * level, group level: hold.h. waiter, states: wait_queue.h.
 */
#ifndef DIBS_LOCK_CORE_OPERATION_H
#define DIBS_LOCK_CORE_OPERATION_H

#include "lock/core/hold.h"

typedef void dibs__reply_fn(struct dibs__command *cmd, dibs_err err,
                            const struct dibs__reply *reply);

/* Collects operations that are sent as one command: see batch.h. */
struct dibs__batch {
    /* Called instead of sending. False: the operation must be sent by itself.
     */
    bool (*take)(struct dibs__operation *op, enum dibs__lock_command verb,
                 dibs__reply_fn *on_reply);
};

struct dibs__operation {
    struct dibs__command command; /* replicas_ms is set by the creator */
    struct dibs__command_args args;
    struct dibs__waiter waiter;       /* state, deadline, canceled */
    struct dibs__list in_flight_link; /* entry.mu: in entry.in_flight */
    struct dibs__list blocked_ops;    /* entry.mu: operations of the same owner
                                         that wait until this one is done */
    struct dibs__lock_entry *entry;   /* async: with a reference */
    void (*start)(struct dibs__operation *op);

    dibs_owner owner;
    uint64_t owner_id;       /* on the server */
    int64_t lease_ms;        /* of the caller; 0 = renewed */
    int64_t max_hold_ms;     /* of the caller; 0 = no limit */
    int64_t orphan_ttl_ms;   /* the longest lease that a stale copy can set */
    const void *group_level; /* NULL: not an operation of a group */
    struct dibs__loss_notification *notification; /* for the new level */
    struct dibs__reason *error_text; /* of the last failure; owned, or NULL */
    struct dibs__loss_listener
        *loss;               /* entry.mu: of the level that a release removed;
                                suppressed before the release ends */
    struct dibs__hold *hold; /* entry.mu: acquire: prepared for the grant; else
                                the hold that this operation keeps busy */
    union {                  /* entry.mu */
        struct dibs__operation *handoff_to;   /* release: the waiter that gets
                                                 the lock; NULL: none, or it
                                                 has left */
        struct dibs__operation *handoff_from; /* acquire: the release that hands
                                                 off to it; NULL: none, or
                                                 replied */
    };
    struct dibs__batch *batch; /* NULL: sent by itself */
    void (*on_ended)(
        struct dibs__operation *op); /* called at the end instead of
                                     what async says; may free op
                                   */

    /* Small members last: there can be very many operations. */
    enum dibs__lock_command lock_command;
    int replicas;          /* acquire: how many must have it; 0 none, -1 all */
    dibs_err last_err;     /* entry.mu: of the last attempt */
    dibs_err err;          /* the result */
    bool no_wait;          /* acquire: one attempt only */
    bool on_caller_thread; /* its next command may be sent, and its reply read,
                              on the caller's thread */
    bool is_release;
    bool no_reentry;            /* acquire: fails if its owner has a hold */
    bool may_have_stale_copy;   /* entry.mu: of one of its commands */
    bool provisional_renewal;   /* acquire of a group: renewed until
                                   dibs__hold_commit_terms, whatever lease_ms */
    unsigned char renumber;     /* entry.mu: enum dibs__renumber */
    bool async : 1;             /* both const once it has begun */
    bool custom_completion : 1; /* async: calls complete instead of fn */
    union {
        sem_t done; /* sync */
        struct {    /* async */
            struct dibs__callback cb;
            union {
                dibs_cb fn;
                void (*complete)(struct dibs__operation *op);
            };
            void *arg;
        };
        bool *sent_on_caller_thread; /* `ended` is set and on_caller_thread.
                       NULL: send and read the reply. Else only send, and set
                       *sent if that worked: then the caller must call
                       dibs__command_recv_sync on the same thread */
    };
};

/* Calls run. Ends with dibs__op_finish. Thread: app. */
void dibs__op_begin(struct dibs__operation *op);
/* Sends the command of this verb; on_reply is called on this thread or on io.
 * within: the time limit in ms. connect_by: as in dibs__command. Thread: app,
 * io; no mutex held. */
void dibs__op_send(struct dibs__operation *op, enum dibs__lock_command verb,
                   dibs__reply_fn *on_reply, int64_t within,
                   int64_t connect_by);
/* Sends a command that is not in the type's table of verbs. expects: the reply
 * types, one bit each. */
typedef void dibs__op_writer(struct dibs__command *cmd, struct dibs__buf *out,
                             bool whole);
void dibs__op_send_custom(struct dibs__operation *op, dibs__op_writer *write,
                          unsigned expects, dibs__reply_fn *on_reply,
                          int64_t within);
/* Ends the operation with this result. The caller must not touch op after it.
 * No mutex held. */
void dibs__op_finish(struct dibs__operation *op, dibs_err err);

/* Records the text of an error, for dibs_error_text. It is dropped if the
 * operation ends with another error, or if memory is out. */
void dibs__op_record_error(struct dibs__operation *op, dibs_err err,
                           const char *why);
/* The same, with the address of the lock's server. */
__attribute__((format(printf, 3, 4))) void
dibs__op_record_server_error(struct dibs__operation *op, dibs_err err,
                             const char *fmt, ...);
/* Records the text of WRONGTYPE: the key is not a lock of this type. */
void dibs__op_record_wrong_type(struct dibs__operation *op);
/* Makes the recorded text this thread's dibs_error_text. */
void dibs__op_set_error_text(struct dibs__operation *op);

/* ---- operations of one owner, one after the other ---------------------- */

/* This owner has just got the lock: moves its parked waiters from entry.wait to
 * out. The caller must pass out to dibs__op_resume; they become re-entries. */
void dibs__op_take_waiters(struct dibs__lock_entry *entry, dibs_owner owner,
                           struct dibs__list *out) REQUIRES(entry->mu);
/* Runs these operations again. No mutex held. */
void dibs__op_resume(struct dibs__list *waiters);
/* Removes the level that the release op is about from h. op.loss is its loss
 * listener then, suppressed before op ends; a group suppresses the loss of all
 * its members itself. Requires entry.mu. */
void dibs__op_drop_level(struct dibs__operation *op, struct dibs__hold *h);
/* Finishes an operation that kept op.hold busy, and resumes those blocked on
 * the hold. If no level is left, since a release gave up waiting for this
 * operation, the hold is released as an orphan. No mutex held. */
void dibs__op_finish_on_hold(struct dibs__operation *op, dibs_err err);
/* The owner's id `old` is retired. Waiters that the server does not know by
 * that id take the new one: while a waiter uses `old`, the orphan reaper does
 * not release holds under it. No mutex held. */
void dibs__op_reassign_waiter_ids(struct dibs__lock_entry *entry,
                                  dibs_owner owner, uint64_t old);
/* A stale copy of a command of this operation may still be executed: retires
 * its owner id, and has the orphan reaper release what that id gets. No mutex
 * held. */
void dibs__op_abandon_id(struct dibs__operation *op);

/* ---- acquire.c --------------------------------------------------------- */

void dibs__acquire_run(struct dibs__operation *op);
/* Sends the acquire. dibs__entry_acquire_begin must have returned true. */
void dibs__acquire_send(struct dibs__operation *op);
/* Runs an acquire again that is not in entry.wait any more, since its owner has
 * the lock now: it becomes a re-entry. */
void dibs__acquire_rerun_as_reentry(struct dibs__operation *op);
/* Finishes an acquire that is not in entry.wait any more. If the server has it
 * in a queue, that entry is removed first. Thread: io, or that of the first
 * attempt. */
void dibs__acquire_leave_and_finish(struct dibs__operation *op, dibs_err err);

/* ---- release.c --------------------------------------------------------- */

void dibs__release_run(struct dibs__operation *op);

/* ---- lock_waiter.c ------------------------------------------------------- */

extern const struct dibs__wait_queue_ops dibs__lock_waiter_ops;
/* Cancels this owner's waiting acquires. False: there are none. */
bool dibs__entry_cancel(struct dibs__lock_entry *entry, dibs_owner owner)
    REQUIRES(entry->mu);

#endif
