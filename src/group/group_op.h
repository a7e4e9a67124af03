/* SPDX-License-Identifier: MIT
 *
 * group_op.h - one acquire or release of a group, and its member operations.
 *
 * Words
 *   group operation    One acquire or release of the whole group.
 *   member operation   The ordinary lock operation (lock/core/operation.h) on
 *                      one member that the group operation starts.
 *   step               A function that starts member operations, or a timer,
 *                      and names the next step. The next step runs when
 *                      `pending`, the number of operations it waits for, falls
 *                      to 0, on the thread that counted it to 0. One step runs
 *                      at a time; what is marked "step" belongs to it, and
 *                      group.mu publishes it to the next.
 *   detached           No step waits for this member operation any more; what
 *                      it acquires is released when its reply arrives.
 *   completion client  The client whose callback thread reports the result of
 *                      an async group operation.
 *   round              One attempt of a quorum lock at all members.
 *   late grant         A grant whose reply arrives after its round was decided.
 */
#ifndef DIBS_GROUP_GROUP_OP_H
#define DIBS_GROUP_GROUP_OP_H

#include "group/group.h"
#include "group/group_timer.h"
#include "group/member_subscriptions.h"
#include "lock/core/batch.h"

struct dibs__group_op;

/* State of one member in one group operation. The table is in member_op.c. */
enum dibs__member_state {
    MEMBER_IDLE,        /* nothing in flight, nothing acquired */
    MEMBER_ACQUIRING,   /* its acquire is in flight */
    MEMBER_IDENTIFYING, /* acquired; the query of its server's run_id is in
                           flight */
    MEMBER_ACQUIRED,    /* acquired for this group operation */
    MEMBER_RELEASING    /* its release is in flight */
};

struct dibs__member_op {
    struct dibs__operation lock_op;  /* while it is in flight */
    struct dibs__group_op *group_op; /* const after init */
    size_t index;                    /* const after init: in group.members */
    enum dibs__member_state state;   /* group.mu */
    bool detached;                   /* group.mu */
    bool concurrent_acquire;   /* group.mu: when this acquire was sent, another
                                  group operation of the owner had the member */
    bool blocked_by_lost_hold; /* group.mu: the server answered LOST for the
                                  hold of that other group operation, which has
                                  not released it yet */
    unsigned round_number;     /* group.mu: quorum: round that sent it */
    struct dibs__command identify_command; /* while IDENTIFYING */
    bool notified; /* group.mu: a message arrived since the round began */
    dibs_err err;  /* group.mu: result of the last member operation */
    struct dibs__reason *error_text; /* group.mu: its reason in words; owned */
};

/* The table is in group_op.c. */
enum dibs__group_op_state {
    GROUP_OP_RUNNING,
    GROUP_OP_STOPPING, /* it fails with `err` once all is released */
    GROUP_OP_COMPLETED /* the caller has `err` as the result */
};

/* The table is in quorum_lock.c. */
enum dibs__round { ROUND_ACQUIRING, ROUND_WON, ROUND_ROLLBACK };

struct dibs__group_op {
    struct dibs__group *g; /* const after init; with a reference */
    dibs_lock_opts o;      /* const after init, as are the next five */
    bool no_wait;          /* one attempt only */
    bool releasing;        /* a release; otherwise an acquire */
    bool async;
    size_t completion_member; /* member whose client is the completion client */
    int64_t deadline;         /* INT64_MAX none */
    atomic_uint refs;
    struct dibs__shutdown_hook
        shutdown_hook; /* of the completion client, until COMPLETED */
    RB_ENTRY(dibs__group_op) node; /* group.mu: in group.ops, */
    uint64_t sequence;             /* group.mu: if this is not 0 */

    enum dibs__group_op_state state; /* group.mu */
    dibs_err err;                    /* group.mu: see state */
    struct dibs__group_level *level; /* const once set; with a reference */

    unsigned pending; /* group.mu: operations that the next step waits for */
    void (*step)(struct dibs__group_op *op); /* group.mu: the next step */
    bool on_caller_thread; /* step: it runs on the thread of a sync caller */
    /* step: called when a member operation has ended; or NULL. */
    void (*member_ended)(struct dibs__group_op *op, struct dibs__member_op *m,
                         bool detached);
    struct dibs__group_timer timer; /* step: between two attempts */
    struct dibs__lock_manager
        *timer_manager; /* group.mu: client on which `timer` runs; or NULL */
    struct dibs__task shorten_task; /* owned by the loop */
    struct dibs__lock_manager
        *shorten_manager; /* group.mu: client to which it is posted; or NULL */
    int64_t shorten_ms;   /* group.mu */

    struct {
        size_t held;        /* step: members [0, held) are acquired */
        size_t try_end;     /* step: members [held, try_end) are tried next */
        bool provisional;   /* step: renewed until all are acquired */
        bool no_batch;      /* step: send one command for each member */
        int64_t backoff_ms; /* step: last back-off delay */
    } multi;
    struct {
        int64_t reply_timeout_ms; /* const once it runs: for one round */
        void (*on_overdue)(struct dibs__group_op *op); /* const once it runs;
                                        NULL unless it acquires a quorum */
        struct dibs__group_timer overdue_timer; /* of an async operation */
        enum dibs__round round_state;           /* group.mu */
        unsigned round_number;                  /* group.mu */
        size_t unstarted;   /* group.mu: members of this round not begun yet */
        int64_t overdue_at; /* group.mu: replies after this are not awaited */
        size_t notified_count; /* group.mu: members with `notified` set */
        bool collided; /* group.mu: the last round collided; messages do not
                          shorten the pause */
        /* Returns how long a pause may still last. const once it runs. */
        int64_t (*shortened_pause)(struct dibs__group_op *op);
        struct dibs__member_subscriptions *subscriptions; /* step; or NULL */
    } quorum;

    union {
        sem_t done; /* sync */
        struct {    /* async: const once it runs */
            struct dibs__callback cb;
            dibs_cb fn;
            void *arg;
        };
    };
    struct dibs__member_op member_ops[]; /* group.n of them */
};

/* ---- group_op.c -------------------------------------------------------- */

/* Returns an operation with one reference; NULL: out of memory. */
struct dibs__group_op *dibs__group_op_new(struct dibs__group *g,
                                          const dibs_lock_opts *o);
void dibs__group_op_ref(struct dibs__group_op *op);
void dibs__group_op_unref(struct dibs__group_op *op);
/* Chooses the completion client of an async operation: the first that is not
 * closing. Returns CLOSED if all are, or what prevents callbacks. */
dibs_err dibs__group_op_choose_client(struct dibs__group_op *op, bool async);
/* Runs the first step and consumes the caller's reference. fn NULL: waits and
 * returns the result; otherwise returns OK and fn gets it. Thread: app. */
dibs_err dibs__group_op_start(struct dibs__group_op *op,
                              void (*start)(struct dibs__group_op *),
                              dibs_cb fn, void *arg);
/* Returns this owner's next acquire in flight after op (NULL: the first), or
 * NULL at the end. */
struct dibs__group_op *dibs__group_ops_next(struct dibs__group *g,
                                            dibs_owner owner,
                                            struct dibs__group_op *op)
    REQUIRES(g->mu);
/* Cancels this owner's acquires. Returns NOT_OWNER if there are none. Thread:
 * app. */
dibs_err dibs__group_ops_cancel(struct dibs__group *g, dibs_owner owner);

/* Sets the next step and counts one pending operation, so that the step cannot
 * run before dibs__group_op_pending_end. Member operations are started between
 * the two. */
void dibs__group_op_pending_begin(struct dibs__group_op *op,
                                  void (*step)(struct dibs__group_op *));
void dibs__group_op_pending_end(struct dibs__group_op *op);
/* One operation in flight has ended; drops its reference. detached: it was not
 * counted as pending. */
void dibs__group_op_pending_done(struct dibs__group_op *op, bool detached);
/* Runs the step after `ms`, or as soon as the timer's client closes. */
void dibs__group_op_timer_start(struct dibs__group_op *op, int64_t ms,
                                void (*step)(struct dibs__group_op *));

/* A running timer expires in `ms` at the latest. Thread: any, no mutex held. */
void dibs__group_op_shorten_timer(struct dibs__group_op *op, int64_t ms);

/* RUNNING -> STOPPING with err; in other states nothing changes. */
void dibs__group_op_stop(struct dibs__group_op *op, dibs_err err)
    REQUIRES(op->g->mu);
/* Returns op.err: OK while it is RUNNING or after it succeeded. */
dibs_err dibs__group_op_error(struct dibs__group_op *op);
/* Completes the operation with err and reports it, unless it is COMPLETED.
 * Member operations may still be in flight. set_result is complete and then
 * finish; a caller that must decide under group.mu calls the two itself.
 * complete returns false if the operation is COMPLETED. */
void dibs__group_op_set_result(struct dibs__group_op *op, dibs_err err);
bool dibs__group_op_complete(struct dibs__group_op *op, dibs_err err)
    REQUIRES(op->g->mu);
void dibs__group_op_finish(struct dibs__group_op *op);
/* Records the level's verdicts and completes an acquire with err. */
void dibs__group_op_fail(struct dibs__group_op *op, dibs_err err);

/* ---- member_op.c ------------------------------------------------------- */

/* A sync caller's fan-out: it sends to several servers and then reads the
 * replies, all on its own thread. */
struct dibs__fanout {
    bool entered[DIBS__MEMBERS_MAX]; /* the member's client was entered */
    bool sent[DIBS__MEMBERS_MAX];    /* its reply is to be read */
};

/* Enters the clients of all members: none can close until _collect. */
void dibs__fanout_begin(struct dibs__group_op *op, struct dibs__fanout *fanout);
/* Reads the replies and leaves the clients. */
void dibs__fanout_collect(struct dibs__group_op *op,
                          struct dibs__fanout *fanout);

/* Starts a member's acquire: one attempt, or waiting until `until`. batch,
 * fanout: or NULL. */
void dibs__member_op_try(struct dibs__group_op *op, size_t i,
                         struct dibs__batch *batch,
                         struct dibs__fanout *fanout);
void dibs__member_op_wait(struct dibs__group_op *op, size_t i, int64_t until);
/* ACQUIRED -> RELEASING. Returns false in any other state. True: the caller
 * must call dibs__member_op_release. */
bool dibs__member_op_claim_release(struct dibs__group_op *op, size_t i)
    REQUIRES(op->g->mu);
void dibs__member_op_release(struct dibs__group_op *op, size_t i,
                             struct dibs__batch *batch,
                             struct dibs__fanout *fanout, bool detached);
/* Releases the ACQUIRED members of [from, to). */
void dibs__members_release(struct dibs__group_op *op, size_t from, size_t to,
                           bool on_caller_thread);
void dibs__members_release_fanout(struct dibs__group_op *op);
/* Returns the end of the range that starts at `from` and has one client and, in
 * a cluster, one slot: one command can cover it. */
size_t dibs__members_same_server_end(const struct dibs__group_op *op,
                                     size_t from, size_t to);

/* ---- the first steps --------------------------------------------------- */

void dibs__multi_start(struct dibs__group_op *op);  /* multi_lock.c */
void dibs__quorum_start(struct dibs__group_op *op); /* quorum_lock.c */
/* group_release.c */
dibs_err dibs__group_release(struct dibs__group *g, const dibs_lock_opts *o,
                             dibs_cb fn, void *arg);

#endif
