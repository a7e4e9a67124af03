/* SPDX-License-Identifier: MIT
 *
 * group_op.h - one operation on several locks, and its members' parts in it.
 */
#ifndef DIBS_GROUP_GROUP_OP_H
#define DIBS_GROUP_GROUP_OP_H

#include "group/group.h"
#include "group/group_timer.h"
#include "group/member_subscriptions.h"
#include "lock/core/batch.h"

struct dibs__group_op;

/* Of one member, in one operation. The table is in member_op.c. */
enum dibs__member_state {
    MEMBER_FREE,     /* nothing is in flight, and this operation has nothing */
    MEMBER_ASKING,   /* its acquire is in flight */
    MEMBER_CHECKING, /* it is taken; its server is being asked who it is */
    MEMBER_TAKEN,    /* it is taken, and belongs to this operation */
    MEMBER_RETURNING /* it is being given back */
};

struct dibs__member_op {
    struct dibs__operation op;       /* the member's operation, while it runs */
    struct dibs__group_op *group_op; /* const after init */
    size_t index;                    /* const after init */
    enum dibs__member_state state;   /* group.mu */
    bool detached;  /* group.mu: no step waits for what is in flight */
    bool shared;    /* group.mu: another acquire of the owner had it
                       when this one asked */
    bool in_way;    /* group.mu: what that one has is lost, and not
                       given back yet */
    unsigned round; /* group.mu: of a quorum, when it was asked */
    struct dibs__command check; /* while it is checking */
    bool heard;   /* group.mu: a message came since the round began */
    dibs_err err; /* group.mu: how its last operation ended */
    struct dibs__reason *why; /* group.mu: the same in words; owner */
};

/* Of the whole. The table is in group_op.c. */
enum dibs__group_op_state {
    GROUP_OP_RUNNING,
    GROUP_OP_STOPPING, /* it will fail with err */
    GROUP_OP_TOLD      /* its caller has err as the result */
};

/* Of one round of a quorum. The table is in quorum_lock.c. */
enum dibs__round { ROUND_ASKING, ROUND_WON, ROUND_BACK };

struct dibs__group_op {
    struct dibs__group *g;   /* const after init; with a reference */
    dibs_lock_opts o;        /* const after init, as are the next four */
    bool no_wait, releasing; /* otherwise it waits; acquires */
    bool async;
    size_t completion_client; /* the member whose client tells the caller */
    int64_t deadline;         /* INT64_MAX none */
    atomic_uint refs;
    struct dibs__shutdown_hook work; /* of the home client, until it is told */
    RB_ENTRY(dibs__group_op) node;   /* group.mu: in group.ops, */
    uint64_t number;                 /* group.mu: if this is not 0 */

    enum dibs__group_op_state state; /* group.mu */
    dibs_err err;                    /* group.mu: see state */
    struct dibs__group_level *level; /* const once it is set; its reference */

    /* One step at a time runs, on any thread. What is marked "step" belongs to
     * the step that runs; the next one sees it through group.mu. */
    unsigned pending; /* group.mu: what the next step waits for */
    void (*step)(struct dibs__group_op *op); /* group.mu: the next one */
    bool direct; /* step: it runs on the thread of a sync caller */
    /* step: called when a member's operation has ended; or NULL. */
    void (*member_ended)(struct dibs__group_op *op, struct dibs__member_op *m,
                         bool detached);
    struct dibs__group_timer timer; /* step */
    struct dibs__lock_manager
        *timer_owner;          /* group.mu: the pause is on, there; or NULL */
    struct dibs__task shorten; /* the loop's */
    struct dibs__lock_manager
        *shorten_owner; /* group.mu: hasten is posted there; or NULL */
    int64_t shorten_ms; /* group.mu */

    struct {
        size_t held, end;  /* step: members before `held` are ours, those before
                              `end` are next */
        bool kept, single; /* step: renewed until all are taken; no batches */
        int64_t pause_ms;  /* step: of the next pause */
    } multi;
    struct {
        int64_t
            patience_ms; /* const once it runs; 0 = no acquire of a quorum */
        void (*late)(struct dibs__group_op *op); /* the same */
        struct dibs__group_timer watch;          /* of an async one */
        enum dibs__round round;                  /* group.mu */
        unsigned rounds;                         /* group.mu */
        size_t to_ask;   /* group.mu: members of this round not begun yet */
        int64_t late_at; /* group.mu: no answer is waited for beyond */
        size_t heard;    /* group.mu: members of which a message came */
        bool collided;   /* group.mu: the last round; messages end no pause */
        int64_t (*wake)(struct dibs__group_op *op); /* const once it runs */
        struct dibs__member_subscriptions *ears;    /* step; or NULL */
    } quorum;

    union {
        sem_t done; /* sync */
        struct {    /* async: const once it runs */
            struct dibs__callback cb;
            dibs_cb fn;
            void *arg;
        };
    };
    struct dibs__member_op m[]; /* see there */
};

/* ---- group_op.c -------------------------------------------------------- */

/* NULL: out of memory. */
struct dibs__group_op *dibs__group_op_new(struct dibs__group *g,
                                          const dibs_lock_opts *o);
void dibs__group_op_ref(struct dibs__group_op *op);
void dibs__group_op_unref(struct dibs__group_op *op);
/* Chooses the client that tells the caller of an async one. */
dibs_err dibs__group_op_ready(struct dibs__group_op *op, bool async);
/* Runs it, and takes the caller's reference: waits for a sync one, leaves an
 * async one (with fn) to itself. Thread: app. */
dibs_err dibs__group_op_go(struct dibs__group_op *op,
                           void (*start)(struct dibs__group_op *), dibs_cb fn,
                           void *arg);
/* The next acquire of this owner, the first after NULL; NULL: no more. */
struct dibs__group_op *dibs__group_ops_next(struct dibs__group *g,
                                            dibs_owner owner,
                                            struct dibs__group_op *op)
    REQUIRES(g->mu);
/* Stops this owner's acquires. NOT_OWNER: there are none. Thread: app. */
dibs_err dibs__group_ops_cancel(struct dibs__group *g, dibs_owner owner);

/* Between the two any number of members are started; when the last has ended
 * the step is run, on that thread. */
void dibs__group_op_open(struct dibs__group_op *op,
                         void (*step)(struct dibs__group_op *));
void dibs__group_op_run(struct dibs__group_op *op);
/* One thing in flight has ended. detached: no step waited for it. */
void dibs__group_op_done(struct dibs__group_op *op, bool detached);
/* Opens, and takes the step after so many ms, or when a client closes. */
void dibs__group_op_timer_start(struct dibs__group_op *op, int64_t ms,
                                void (*step)(struct dibs__group_op *));

/* A pause that is on ends in so many ms, if not sooner. Thread: any, no mutex
 * held. */
void dibs__group_op_shorten_timer(struct dibs__group_op *op, int64_t ms);

/* It will fail with that, unless something else came first. */
void dibs__group_op_stop(struct dibs__group_op *op, dibs_err err)
    REQUIRES(op->g->mu);
/* What it will fail with, or has failed with; OK: it goes on. */
dibs_err dibs__group_op_stopped(struct dibs__group_op *op);
/* Its caller gets the result, the first there is. Members may still be in
 * flight. In two parts where more has to be decided at that moment; decide:
 * false if the caller has another result. */
void dibs__group_op_set_result(struct dibs__group_op *op, dibs_err err);
bool dibs__group_op_complete(struct dibs__group_op *op, dibs_err err)
    REQUIRES(op->g->mu);
void dibs__group_op_finish(struct dibs__group_op *op);
/* The end of an acquire that failed: its verdicts are kept, its caller told. */
void dibs__group_op_fail(struct dibs__group_op *op, dibs_err err);

/* ---- member_op.c ------------------------------------------------------- */

/* A sync caller asks several servers itself and then reads their replies; no
 * other thread is woken for that. */
struct dibs__fanout {
    bool entered[DIBS__MEMBERS_MAX], asked[DIBS__MEMBERS_MAX];
};

/* The members' clients cannot close until the other call. */
void dibs__fanout_begin(struct dibs__group_op *op, struct dibs__fanout *sc);
/* Reads the replies. */
void dibs__fanout_collect(struct dibs__group_op *op, struct dibs__fanout *sc);

/* Begins a member's acquire: one attempt, or a wait. batch, sc: or NULL. */
void dibs__member_op_try(struct dibs__group_op *op, size_t i,
                         struct dibs__batch *batch, struct dibs__fanout *sc);
void dibs__member_op_wait(struct dibs__group_op *op, size_t i, int64_t until);
/* True: it was TAKEN, and is RETURNING now; _return must follow. */
bool dibs__member_op_take(struct dibs__group_op *op, size_t i)
    REQUIRES(op->g->mu);
void dibs__member_op_return(struct dibs__group_op *op, size_t i,
                            struct dibs__batch *batch, struct dibs__fanout *sc,
                            bool detached);
/* Gives back those of these members that are TAKEN. */
void dibs__members_return(struct dibs__group_op *op, size_t from, size_t to,
                          bool direct);
void dibs__members_return_fanout(struct dibs__group_op *op);
/* The end of the index range with the client, and in a cluster the slot, of the
 * first: what one command can be about. */
size_t dibs__members_same_server_end(const struct dibs__group_op *op,
                                     size_t from, size_t to);

/* ---- group_error.c ---------------------------------------------------- */

/* The member's operation has ended; counts: and its result matters to the
 * whole. */
void dibs__member_op_keep_reason(struct dibs__group_op *op,
                                 struct dibs__member_op *m, bool counts)
    REQUIRES(op->g->mu);
/* The reason is this thread's from now on (dibs_error_text). */
void dibs__group_op_set_error_text(struct dibs__group_op *op)
    EXCLUDES(op->g->mu);

/* ---- what is done in which order --------------------------------------- */

void dibs__multi_start(struct dibs__group_op *op);  /* multi_lock.c */
void dibs__quorum_start(struct dibs__group_op *op); /* quorum_lock.c */
/* group_release.c */
dibs_err dibs__group_release(struct dibs__group *g, const dibs_lock_opts *o,
                             dibs_cb fn, void *arg);

#endif
