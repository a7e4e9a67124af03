/* SPDX-License-Identifier: MIT
 *
 * group.h - several locks held as one: all of them (multi), or most of them
 * (quorum).
 *
 * A group has nothing on any server but its members. What it adds is here: who
 * holds it, and when that is lost.
 */
#ifndef DIBS_LOCK_GROUP_H
#define DIBS_LOCK_GROUP_H

#include "lock/batch.h"
#include "lock/lock.h"
#include "lock/locks.h"

#define DIBS__RUN_ID_MAX  64
#define DIBS__MEMBERS_MAX 1000

struct dibs__group_op;

/* One of the locks; const after init but for what is learned of its server. */
struct dibs__member {
    dibs_client *c;          /* with a reference */
    struct dibs__line *line; /* with a reference */
    size_t given;            /* place in which the caller gave it */
    char server[288];        /* where it is, as text; says nothing of who */
    atomic_bool slow;        /* its server kept a caller waiting */
    unsigned known;          /* group.mu: 1 + server.ups when run_id was asked
                                for; 0 = never */
    char run_id[DIBS__RUN_ID_MAX]; /* group.mu; "" = it is not told */
};

struct dibs__group {
    atomic_int refs;
    bool quorum;
    size_t n, need; /* members, and how many make it held */
    char *label;    /* its name, for on_lost */

    dibs__mutex mu;
    struct dibs__list
        levels; /* mu: struct dibs__group_level, the oldest first */
    struct dibs__list group_ops; /* mu: acquires under way */
    struct dibs__list finished;  /* mu: verdicts of acquires that failed */
    struct dibs__member members[];
};

/* One of the times an owner took the group. */
struct dibs__group_level {
    struct dibs__list link; /* group.mu: in group.levels or group.finished */
    unsigned refs;          /* group.mu */
    bool live;              /* group.mu: taken, and not given back */
    dibs_owner owner;
    struct dibs__loss *loss; /* or NULL */
    struct dibs__verdict {
        dibs_err err; /* what the member's server said */
        bool got;     /* this level has a hold there */
    } members[];      /* group.mu */
};

/* Thread: any. The group outlives the handle for as long as somebody works on
 * it. */
void dibs__group_ref(struct dibs__group *g);
void dibs__group_unref(struct dibs__group *g);

struct dibs__group_level *dibs__group_level_new(struct dibs__group *g,
                                                dibs_owner owner);
void dibs__group_level_unref(struct dibs__group *g,
                             struct dibs__group_level *lv) REQUIRES(g->mu);
/* The newest one of this owner's, or NULL. */
struct dibs__group_level *dibs__group_level_of(struct dibs__group *g,
                                               dibs_owner owner)
    REQUIRES(g->mu);
/* Its owner has the group. */
void dibs__group_level_live(struct dibs__group *g, struct dibs__group_level *lv)
    REQUIRES(g->mu);
/* Nobody got it; its verdicts can be read for a while. */
void dibs__group_level_archive(struct dibs__group *g,
                               struct dibs__group_level *lv) REQUIRES(g->mu);

/* What was lost until now does not count. False: out of memory. */
bool dibs__group_level_new_loss(struct dibs__group_level *lv);

/* ---- the calls of lock.c on a group ------------------------------------ */

void dibs__group_free(struct dibs__group *g); /* the handle's reference */
/* Of any of its members. */
bool dibs__group_foreign(const struct dibs__group *g);
bool dibs__group_inside(const struct dibs__group *g);
dibs_err dibs__group_acquire(struct dibs__group *g, const dibs_lock_opts *o,
                             bool trying, dibs_cb fn, void *arg);
dibs_err dibs__group_release(struct dibs__group *g, const dibs_lock_opts *o,
                             dibs_cb fn, void *arg);
dibs_err dibs__group_cancel(struct dibs__group *g, dibs_owner owner);
dibs_state dibs__group_state(struct dibs__group *g, dibs_owner owner,
                             int64_t *valid_ms, int64_t *holds);

/* ---- one operation on a group, in group_op.c --------------------------- */

/* One member's part in it. */
struct dibs__member_op {
    struct dibs__op op;
    struct dibs__group_op *group_op;
    size_t index;
    bool under_way;  /* group.mu */
    bool got;        /* group.mu: this operation took it, and has it still */
    bool part;       /* of a release: it had a hold to give back */
    bool odd;        /* took what is nobody's; whoever says so gives it back */
    bool checking;   /* group.mu: the quorum asks who the server is */
    bool detached;   /* group.mu: under way, and nobody waits for it */
    bool idle_check; /* group.mu: checking, and nobody waits for that */
    unsigned round;  /* group.mu: of the quorum, when it was asked */
    struct dibs__call ask;
    dibs_err err;             /* group.mu: how its last operation ended */
    struct dibs__reason *why; /* group.mu: in words; owner */
};

/* A sync caller asks several servers itself, one after the other, and then
 * hears them; no other thread need be woken for that. */
struct dibs__scatter {
    bool asked[DIBS__MEMBERS_MAX];
};

struct dibs__pause {
    struct dibs__list at; /* io only: in locks.pauses */
    struct dibs__locks *lk;
    struct dibs__task start;
    struct dibs__timer timer;
    int64_t ms;
    void (*over)(struct dibs__pause *pause);
};

struct dibs__group_op {
    struct dibs__group *g;
    struct dibs__list link; /* group.mu: in group.group_ops */
    struct dibs__list
        home_link; /* that client's client.mu: in locks.group_ops */
    bool closing;  /* the same: it was told to end */
    dibs_lock_opts o;
    int64_t deadline; /* INT64_MAX none */
    bool trying;
    bool direct; /* the next step is on its caller's thread */
    bool releasing;
    size_t home;       /* the member whose client tells the caller */
    dibs_err canceled; /* group.mu: or CLOSED; OK = go on */
    bool told;         /* group.mu: its caller has the result */
    dibs_err err;
    dibs_err why; /* it fails with that, once all is given back */
    struct dibs__group_level *level;

    atomic_uint refs;
    unsigned pending; /* group.mu: members under way, and whoever starts them */
    void (*step)(struct dibs__group_op *group_op); /* none is any more */
    /* One ended. */
    void (*heard)(struct dibs__group_op *group_op, struct dibs__member_op *m,
                  bool detached);
    struct dibs__pause pause;

    /* multi.c: members before `held` are ours, those before `end` are next. */
    size_t held, end;
    bool kept;   /* by renewal, until all are taken */
    bool single; /* no batches */
    /* quorum.c */
    bool back;           /* group.mu: this round is lost, all goes back */
    bool won;            /* group.mu */
    bool winning;        /* group.mu: a majority is being looked at */
    bool twice;          /* group.mu: two members are one server */
    unsigned rounds;     /* group.mu */
    size_t to_ask;       /* group.mu: members of this round not begun yet */
    int64_t patience_ms; /* 0 = not a quorum's acquire */
    int64_t late_at;     /* group.mu: no answer is waited for beyond */
    struct dibs__pause watch; /* of an async one: looks at late_at */

    bool async;
    union {
        sem_t done;
        struct {
            struct dibs__callback cb;
            dibs_cb fn;
            void *arg;
        };
    };
    struct dibs__member_op m[];
};

struct dibs__group_op *dibs__group_op_new(struct dibs__group *g,
                                          const dibs_lock_opts *o);
void dibs__group_op_unref(struct dibs__group_op *group_op);
/* An async one counts as in_flight until its callback is on its way. */
dibs_err dibs__group_op_ready(struct dibs__group_op *group_op, bool async);
/* Runs it: waits for a sync one, leaves an async one (with fn) to itself. */
dibs_err dibs__group_op_go(struct dibs__group_op *group_op,
                           void (*start)(struct dibs__group_op *), dibs_cb fn,
                           void *arg);

/* Between the two any number of members are started; when the last has ended
 * the step is run, on whichever thread that is. */
void dibs__group_op_open(struct dibs__group_op *group_op,
                         void (*step)(struct dibs__group_op *));
void dibs__group_op_run(struct dibs__group_op *group_op);
/* One more thing the next step waits for, or does not; and its end. */
void dibs__group_op_begun(struct dibs__group_op *group_op, bool detached);
void dibs__group_op_done(struct dibs__group_op *group_op, bool detached);
/* Begins a member's part. detached: the step does not wait for it. */
void dibs__member_op_acquire(struct dibs__group_op *group_op, size_t i,
                             bool trying, int64_t deadline,
                             struct dibs__batch *batch,
                             struct dibs__scatter *sc);
void dibs__member_op_release(struct dibs__group_op *group_op, size_t i,
                             int64_t deadline, struct dibs__batch *batch,
                             struct dibs__scatter *sc, bool detached);
/* Gives back what it took of these members, one client's in one command. */
void dibs__group_op_release(struct dibs__group_op *group_op, size_t from,
                            size_t to, bool direct);
/* Hears those that were asked. */
void dibs__group_op_hear(struct dibs__group_op *group_op,
                         struct dibs__scatter *sc);
/* The end of the index range with the client, and in a cluster the slot, of the
 * first: what one command can be about. */
size_t dibs__group_op_place_end(const struct dibs__group_op *group_op,
                                size_t from, size_t to);
/* Its caller gets the result, the first there is. Members may still be under
 * way. In two parts where more has to be decided at that moment: the first says
 * whether this is the result. */
void dibs__group_op_tell(struct dibs__group_op *group_op, dibs_err err);
bool dibs__group_op_decide(struct dibs__group_op *group_op, dibs_err err)
    REQUIRES(group_op->g->mu);
void dibs__group_op_deliver(struct dibs__group_op *group_op);
/* The home client knows of it until it is told. */
void dibs__group_op_unregister(struct dibs__group_op *group_op);
/* Nobody can close what its members need while they are being started and
 * heard. enter: those that are closing are left out. */
void dibs__group_op_enter(struct dibs__group_op *group_op,
                          bool in[DIBS__MEMBERS_MAX]);
void dibs__group_op_leave(struct dibs__group_op *group_op,
                          const bool in[DIBS__MEMBERS_MAX]);
/* What this operation took of the member is the caller's to give back, if it
 * is true. */
bool dibs__member_op_take(struct dibs__group_op *group_op, size_t i);
/* Waits for that. Thread: app. */
void dibs__group_op_await(struct dibs__group_op *group_op);
/* Has somebody look whether answers are overdue. */
void dibs__group_op_watch(struct dibs__group_op *group_op);
/* Steps on after so many ms, or when the client that keeps the time closes. */
void dibs__group_op_pause(struct dibs__group_op *group_op, int64_t ms,
                          void (*step)(struct dibs__group_op *));
/* Why it must end, or OK. */
dibs_err dibs__group_op_canceled(struct dibs__group_op *group_op);

/* ---- why it failed, in group_reason.c ---------------------------------- */

/* The member's operation has ended; counts: and that matters to the whole. */
void dibs__member_op_keep_reason(struct dibs__group_op *group_op,
                                 struct dibs__member_op *m, bool counts)
    REQUIRES(group_op->g->mu);
/* The reason is this thread's from now on (dibs_error_text). */
void dibs__group_op_tell_reason(struct dibs__group_op *group_op)
    EXCLUDES(group_op->g->mu);

/* The member's server has another member. Sets the reason; INVALID. */
dibs_err dibs__group_same_server(const struct dibs__group *g, size_t i);

/* ---- the two kinds ----------------------------------------------------- */

void dibs__multi_start(struct dibs__group_op *group_op);  /* multi.c */
void dibs__quorum_start(struct dibs__group_op *group_op); /* quorum.c */
/* Looks whether somebody's answer is not to be waited for any more. */
void dibs__quorum_late(struct dibs__group_op *group_op);
/* Asks the members that can be reached who they are. INVALID: two of a quorum
 * are one server, two of a multi lock one lock. Thread: app. */
dibs_err dibs__group_check(struct dibs__group *g);
/* Must they not be on one server? */
bool dibs__members_differ(const struct dibs__group *g, size_t i, size_t j);

#endif
