/* SPDX-License-Identifier: MIT
 *
 * operation.h - one operation on a lock: what was asked for, and who waits for
 * it.
 *
 * A sync operation lives on its caller's stack and ends with a semaphore; an
 * async one is allocated and ends with a callback. All between is the same.
 */
#ifndef DIBS_LOCK_CORE_OPERATION_H
#define DIBS_LOCK_CORE_OPERATION_H

#include "lock/core/hold.h"

typedef void dibs__reply_fn(struct dibs__command *cmd, dibs_err err,
                            const struct dibs__reply *reply);

/* Takes operations to be sent with others in one command: see batch.h. */
struct dibs__batch {
    /* Instead of sending it. False: it has to be sent by itself. */
    bool (*take)(struct dibs__operation *op, enum dibs__lock_command verb,
                 dibs__reply_fn *answered);
};

struct dibs__operation {
    struct dibs__command command; /* replicas_ms is set with the operation */
    struct dibs__command_args args;
    struct dibs__waiter waiter;       /* its state, deadline, cancel */
    struct dibs__list in_flight_link; /* line.mu: in line.asks */
    struct dibs__list blocked_ops;  /* line.mu: of the same owner; they wait for
                                     the answer to this one */
    struct dibs__lock_entry *entry; /* an async operation has a reference */
    void (*run)(struct dibs__operation *op);

    dibs_owner owner;
    uint64_t owner_id;
    int64_t lease_ms; /* as asked for; 0 = renewed */
    int64_t max_hold_ms;
    int64_t orphan_ttl_ms;   /* for how long a late copy could keep the lock */
    const void *group_level; /* of a group: its level; NULL = by itself */
    struct dibs__loss_notification *notification;
    struct dibs__reason *error_text;  /* of its last failure, in words; owner */
    struct dibs__loss_listener *loss; /* line.mu: of the level that a release
                                gave back; to be settled before it returns */
    struct dibs__hold *hold;          /* line.mu */
    union {                           /* line.mu */
        struct dibs__operation *handoff_to; /* of a release that hands over;
                                        NULL as soon as that one has left */
        struct dibs__operation
            *handoff_from; /* of an acquire: the release that hands
                over to it; NULL once that is answered */
    };
    struct dibs__batch *batch; /* to be sent with others in one command */
    void (*ended)(struct dibs__operation *op); /* instead of what async says;
                                           may free it */

    /* Small things together: there can be very many of these. */
    enum dibs__lock_command lock_command;
    int replicas;          /* acquire: so many must have it; 0 none, -1 all */
    dibs_err last_err;     /* line.mu: what the last attempt failed with */
    dibs_err err;          /* the result */
    bool no_wait;          /* one attempt only */
    bool on_caller_thread; /* its next step is on its caller's thread, which may
                    send by itself */
    bool is_release;       /* it is a release */
    bool no_reentry;       /* acquire: not if its owner holds it already */
    bool may_have_stale_copy; /* line.mu: an earlier copy of a command may still
                                 run */
    bool provisional_renewal; /* renewed, with or without a lease, until it is
                                 sealed */
    unsigned char renumber;   /* line.mu: enum dibs__renumber */
    bool async : 1;           /* both const once it has begun */
    bool custom_completion : 1; /* async: by itself, instead of fn */
    union {
        sem_t done; /* sync */
        struct {    /* async */
            struct dibs__callback cb;
            union {
                dibs_cb fn;
                void (*complete)(struct dibs__operation *op); /* if it tells */
            };
            void *arg;
        };
        bool
            *sent; /* of one with `ended` that is direct: only send. Set to
                       true: the reply is to be read by dibs__command_recv_sync,
                       on the same thread. NULL: do both */
    };
};

/* Begins it; dibs__op_finish will end it. Thread: app. */
void dibs__op_begin(struct dibs__operation *op);
/* Sends verb; answered will be called on this thread or on io. within: for all
 * of it. connect_by: as of dibs__command. Thread: app, io; no mutex held. */
void dibs__op_send(struct dibs__operation *op, enum dibs__lock_command verb,
                   dibs__reply_fn *answered, int64_t within,
                   int64_t connect_by);
/* Sends a command that is no verb of the kind. expects: types of reply, a bit
 * each. */
typedef void dibs__op_writer(struct dibs__command *cmd, struct dibs__buf *out,
                             bool whole);
void dibs__op_send_own(struct dibs__operation *op, dibs__op_writer *write,
                       unsigned expects, dibs__reply_fn *answered,
                       int64_t within);
/* The end of it: op must not be touched any more. No mutex held. */
void dibs__op_finish(struct dibs__operation *op, dibs_err err);

/* Why it will fail, in words; no memory: then without. */
void dibs__op_record_error(struct dibs__operation *op, dibs_err err,
                           const char *why);
/* The same, with the address of the lock's server. */
__attribute__((format(printf, 3, 4))) void
dibs__op_record_error_here(struct dibs__operation *op, dibs_err err,
                           const char *fmt, ...);
/* What is under the name is of another kind: WRONGTYPE. */
void dibs__op_explain_kind(struct dibs__operation *op);
/* Its reason is this thread's from now on (dibs_error_text). */
void dibs__op_set_error_text(struct dibs__operation *op);

/* ---- operations of one owner, one after the other ---------------------- */

/* Waits of this owner: they are out of the line and to be resumed, now that the
 * owner has the lock. */
void dibs__op_take_waits(struct dibs__lock_entry *entry, dibs_owner owner,
                         struct dibs__list *out) REQUIRES(line->mu);
/* Runs those that stood behind another call or hold. No mutex held. */
void dibs__op_resume(struct dibs__list *waiters);
/* The release gives back one level. What that level was to be told is settled
 * before the call ends; a group does so for all of its members together. Under
 * line.mu. */
void dibs__op_drop_level(struct dibs__operation *op, struct dibs__hold *h);
/* Finishes an operation on op.hold, which is not busy any more; those that
 * waited for that go on. If its owner gave back the last level meanwhile, and
 * did not wait for that, the hold ends here. No mutex held. */
void dibs__op_end_busy(struct dibs__operation *op, dibs_err err);
/* The number `old` of this owner is retired. Its waiters that have told the
 * server nothing go by the new one; otherwise the reaper would leave alone what
 * the old one is given. No mutex held. */
void dibs__op_rename_waits(struct dibs__lock_entry *entry, dibs_owner owner,
                           uint64_t old);
/* Nobody can tell what this operation's number may still do: the owner gets
 * another, and what the old one may be given is taken back. No mutex held. */
void dibs__op_disown(struct dibs__operation *op);

/* ---- acquire.c --------------------------------------------------------- */

void dibs__acquire_run(struct dibs__operation *op);
/* Sends the question of one for which dibs__entry_acquire_begin was true. */
void dibs__acquire_ask(struct dibs__operation *op);
/* Its owner has the lock by now: what it asks for is a re-entry. It is out of
 * the line. */
void dibs__acquire_start_over(struct dibs__operation *op);
/* Finishes one that is out of the line. If the server knows of the waiter, the
 * server is told first. Thread: io, or that of the first attempt. */
void dibs__acquire_end(struct dibs__operation *op, dibs_err err);

/* ---- release.c --------------------------------------------------------- */

void dibs__release_run(struct dibs__operation *op);

/* ---- lock_waiter.c ------------------------------------------------------- */

extern const struct dibs__wait_queue_ops dibs__lock_waits;
/* Ends this owner's waiting acquires. False: there are none. */
bool dibs__entry_cancel(struct dibs__lock_entry *entry, dibs_owner owner)
    REQUIRES(line->mu);

#endif
