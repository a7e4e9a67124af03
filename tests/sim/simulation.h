/* SPDX-License-Identifier: MIT
 *
 * simulation.h - one run: its servers, its clients, its faults, its history.
 *
 *   simulation.c    puts servers and clients there, and runs them to the end
 *   fault_injector.c     makes the faults of the plan happen
 *   program.c  what the simulated programs do with their locks
 *   invariant_checker.c    what must be true, promise by promise
 */
#ifndef DIBS_TESTS_SIM_SIMULATION_H
#define DIBS_TESTS_SIM_SIMULATION_H

#include "sim/fiber.h"
#include "sim/net.h"
#include "sim/plan.h"

#include <dibs/dibs.h>

#define SIM_THREADS_MAX 8
#define SIM_NAMES_MAX   3
#define SIM_SLOTS_MANY  2
#define SIM_PERMITS     5

/* The locks of the world: what can be asked for. */
enum sim_thing {
    SIM_PLAIN_A,
    SIM_PLAIN_B,
    SIM_FAIR,
    SIM_READ,
    SIM_WRITE,
    SIM_FENCED,
    SIM_SLOTS, /* for SIM_SLOTS_MANY at once */
    SIM_BOTH,  /* a multi lock: both plain ones */
    SIM_MOST,  /* a quorum */
    SIM_THINGS
};

/* What else a call may wait for; these numbers follow those of the locks. */
#define SIM_PERMITS_OF_SEMAPHORE SIM_THINGS
#define SIM_LATCH_OPEN           (SIM_THINGS + 1)
#define SIM_GATE_OPEN            (SIM_THINGS + 2) /* the latch of a herd */
#define SIM_WAITED_FOR           (SIM_THINGS + 3)
/* What is measured: those, a close, a loss. */
#define SIM_LATE_KINDS (SIM_WAITED_FOR + 2)

/* Their keys; a group has those of its members. */
extern const char *const sim_keys[SIM_THINGS][3];

struct sim_client {
    int number, generation;
    struct sim_proc *proc; /* NULL: it is not there now */
    dibs_client *c[SIM_MEMBERS_MAX];
    int nclients;
    dibs_lock *lock[SIM_THINGS];
    dibs_lock *member[SIM_MEMBERS_MAX];
    dibs_semaphore *semaphore;
    dibs_latch *latch;
    struct sim_chance chance;
    struct sim_program *programs[SIM_THREADS_MAX];
    int running;        /* of its threads */
    bool closing;       /* in the middle of everything */
    int64_t closes_at;  /* us; 0 = at the end */
    int64_t rest_until; /* us; a lost plain lock ends on the server by then */
    bool ended;         /* closed in peace */
};

struct sim_totals {
    uint64_t seeds, failed, acquires, refused, faults, lost, overlaps;
    int64_t overlap_us, simulated_us;
    uint64_t turns, pieces, cuts, looks, skipped;
    uint64_t foreign;                /* acquires of clients of another make */
    int64_t late_us[SIM_LATE_KINDS]; /* the longest of each kind */
    uint64_t by_kind[SIM_FAULT_KINDS];
};

extern struct sim_plan sim_plan;
extern struct sim_client sim_clients[SIM_CLIENTS_MAX];
extern struct sim_totals sim_totals;
extern bool sim_healed;       /* no fault comes any more */
extern int64_t sim_healed_at; /* us */
extern bool sim_cut_off;      /* somebody closed, and the server did not hear */
extern bool sim_talks;        /* the history is to be printed */

/* One line of the history. Who: the fiber that runs. */
void sim_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Runs the plan. Does not come back if a promise is broken. */
void sim_world_run(void);
void sim_client_start(struct sim_client *cl);
void sim_client_killed(struct sim_client *cl);

/* The server that is the master now, for locks that one server has; the
 * judge asks it. */
struct sim_server *sim_master(const char *name);

/* fault_injector.c */
void sim_fate_begin(void);
void sim_fate_end(void);      /* all is well from now on */
int64_t sim_calm_since(void); /* us; nothing went wrong since */

/* program.c */
void sim_program_start(struct sim_client *cl, int number);
const char *sim_thing_name(enum sim_thing t);
/* Does a thread of it have to do with the lock of that name? only: as that
 * thing; SIM_THINGS: as any. */
bool sim_client_uses(const struct sim_client *cl, const char *name,
                     enum sim_thing only);
/* Since when the thread of that owner waits; SIM_NEVER = it does not. */
int64_t sim_waits_since(dibs_owner owner);

/* herd_workload.c: clients that take once and close; one thread of such a
 * client. */
void *sim_herd_main(void *program);

/* semaphore_workload.c: semaphores and latches */
void sim_counted_make(struct sim_client *cl);
void sim_counted_free(struct sim_client *cl);
/* Takes n + 1 permits, and gives them back. */
void sim_counted_permits(struct sim_client *cl, struct sim_chance *c, int n);
void sim_counted_round(struct sim_client *cl, struct sim_chance *c, int thread);
void sim_counted_open(struct sim_client *cl); /* the latch, at the end */
void sim_counted_dead(const struct sim_proc *p);
void sim_counted_look(void);
void sim_counted_end(void);

/* detached_workload.c: locks that a release leaves on the server */
/* Is it there on purpose, for this owner? Of a writer without the word for it.
 */
bool sim_was_left(const char *name, const char *owner);
/* The same of all owners of a client among these. */
bool sim_all_left(const char *name, const char *uuid, const char *fields);
/* Might it have ended without a word, now or within that time? */
bool sim_ends_silently(const char *name, int64_t within_us);
void sim_left_dead(const struct sim_proc *p);
void sim_left_closed(const struct sim_proc *p);

/* redisson_client.c: clients of another make */
void sim_peers_begin(void);
/* Who of them holds this, shared or not; NULL = nobody. */
const char *sim_peers_hold(const char *name, bool shared);
/* Is it one of theirs? Since when that one waits for the fair lock. */
bool sim_peers_wait(const char *owner, int64_t *since);
int sim_peers_slots(void);       /* that they have */
int64_t sim_peers_permits(void); /* of the semaphore, that are out */

/* ---- the judge --------------------------------------------------------- */

/* Somebody has been told that it holds something. Lives on the stack of the
 * one who holds. */
struct sim_claim {
    struct sim_claim *next;
    struct sim_client *client;
    struct sim_proc *proc;
    enum sim_thing thing;
    dibs_lock *lock;
    dibs_owner owner;
    int64_t asked_at, since; /* us */
    int64_t proved_at;       /* us: no command for it ran later; 0 = since */
    int64_t lease_ms;        /* its own; 0 = renewed for ever */
    int64_t longest_ms;      /* that it was extended to; 0 = not */
    bool renewed;            /* for ever, or for a while */
    int replicas;
    int holds;
    bool shared;
    int64_t lost_at; /* the judge has seen it then; 0 = no */
    int64_t lost_idle;
    int64_t odd_since; /* the server does not have it: since when; 0 = no */
    int64_t token;     /* of a fenced lock */
    int told;          /* on_lost was called */
    bool over;         /* its release has returned, */
    dibs_err gave;     /* and said that */
    bool adopted;      /* it was somebody else's before */
    bool
        shifts; /* several calls take it and give it back: concurrent_owner.c */
    bool tracked;    /* its client would be told of a change, */
    int64_t gone_at; /* and it is not on the server since; 0 = it is */
};

/* A promise is broken: says which and why, and ends the run. */
_Noreturn void sim_broken(const char *promise, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- invariant_checker_lateness.c: what must happen soon
 * ------------------------------- */

/* One call that waits. Lives on the stack of the caller. */
struct sim_wait {
    struct sim_wait *next;
    const struct sim_proc *proc;
    int what;     /* a sim_thing, or one of those behind it */
    int64_t need; /* permits */
    int64_t since;
    bool polls;
    bool pair; /* another call of its owner may be about the same thing */
};

void sim_late_begin(void);
void sim_late_wait(struct sim_wait *w); /* the call begins: what, need, polls */
void sim_late_done(struct sim_wait *w, dibs_err err); /* it has returned */
void sim_late_dead(const struct sim_proc *p);
void sim_late_look(void); /* now and then, for what no event shows */
/* A close, from..now, whose process had no processor for idle_us of it. */
void sim_late_closed(int64_t from, int64_t idle_us);
/* The longest of each kind in this run, in us; and what the kinds are called:
 * NULL behind the last. */
extern int64_t sim_late_most[SIM_LATE_KINDS];
const char *sim_late_name(int i);
/* Without the exceptions that docs/testing.md marks. */
extern bool sim_strict_wakeups;

void sim_judge_begin(void);
/* All that is held, or believed to be. */
struct sim_claim *sim_claims(void);
/* Does its client believe that it holds? *sure: it was not in the middle of
 * something. */
bool sim_believes(const struct sim_claim *cl, bool *sure, int64_t *valid_ms);
/* The owner as the server has it. False: it does not hold, or nobody can tell
 * now. */
bool sim_owner_of(const struct sim_claim *cl, const dibs_lock *l,
                  char text[DIBS_OWNER_MAX + 8]);
void sim_judge_granted(struct sim_claim *cl);
/* A client of another make was granted this. */
void sim_judge_foreign(const char *name, bool shared, const char *who);
void sim_judge_leaving(struct sim_claim *cl); /* before its release is called */
/* A re-entry has the token of the first hold. */
void sim_judge_token(const struct sim_claim *cl);
void sim_judge_dead(const struct sim_proc *p);
/* from: when the close began. */
void sim_judge_closed(const struct sim_client *cl, const char *uuid,
                      int64_t from);
/* Its release said LOST. */
void sim_judge_lost(const struct sim_claim *cl);
void sim_judge_end(void);
void sim_judge_ghosts(void); /* locks that nobody knows of */
/* A call took from..now; it may take most_ms, and what its process was
 * stopped meanwhile. */
void sim_judge_time(const char *call, int64_t from, int64_t idle_before,
                    int64_t most_ms);

#endif
