/* SPDX-License-Identifier: MIT
 *
 * simulation.h - one run: its servers, its clients, its faults, its history.
 *
 *   simulation.c         creates servers and clients, runs them to the end
 *   fault_injector.c     injects the faults of the plan
 *   program.c            the simulated programs: what they do with their locks
 *   invariant_checker.c  the invariants, promise by promise
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

/* The locks of a run. */
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
    struct sim_proc *proc; /* NULL: it does not run now */
    dibs_client *c[SIM_MEMBERS_MAX];
    int nclients;
    dibs_lock *lock[SIM_THINGS];
    dibs_lock *member[SIM_MEMBERS_MAX];
    dibs_semaphore *semaphore;
    dibs_latch *latch;
    struct sim_chance chance;
    struct sim_program *programs[SIM_THREADS_MAX];
    int running;        /* of its threads */
    bool closing;       /* it closes while its threads use locks */
    int64_t closes_at;  /* us; 0 = at the end */
    int64_t rest_until; /* us; a lost plain lock ends on the server by then */
    bool ended;         /* its close has returned */
};

struct sim_totals {
    uint64_t seeds, failed, acquires, refused, faults, lost, overlaps;
    int64_t overlap_us, simulated_us;
    uint64_t turns, pieces, cuts, looks, skipped;
    uint64_t foreign;                /* acquires of Redisson clients */
    int64_t late_us[SIM_LATE_KINDS]; /* the longest of each kind */
    uint64_t by_kind[SIM_FAULT_KINDS];
};

extern struct sim_plan sim_plan;
extern struct sim_client sim_clients[SIM_CLIENTS_MAX];
extern struct sim_totals sim_totals;
extern bool sim_faults_ended;       /* all faults of the plan have ended */
extern int64_t sim_faults_ended_at; /* us */
extern bool sim_closed_unreachable; /* a client closed while its server was
                                       unreachable */
extern bool sim_prints_history;     /* the history is to be printed */

/* Adds a line to the history, in the column of the fiber that runs. */
void sim_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Runs the plan. Does not return if a promise is broken. */
void sim_run_plan(void);
void sim_client_start(struct sim_client *cl);
void sim_client_killed(struct sim_client *cl);

/* The server that is the master now, for locks that one server has; the
 * checker asks it. */
struct sim_server *sim_master(const char *name);

/* fault_injector.c */
void sim_faults_begin(void);
void sim_faults_end(void);    /* ends all faults */
int64_t sim_calm_since(void); /* us; no fault since */

/* program.c */
void sim_program_start(struct sim_client *cl, int number);
const char *sim_thing_name(enum sim_thing t);
/* Returns whether a thread of it acquires, holds or releases the lock of that
 * name. only: of that type; SIM_THINGS: of any. */
bool sim_client_uses(const struct sim_client *cl, const char *name,
                     enum sim_thing only);
/* Since when the thread of that owner waits; SIM_NEVER = it does not. */
int64_t sim_waits_since(dibs_owner owner);

/* herd_workload.c: short-lived clients; one thread of such a client. */
void *sim_herd_main(void *program);

/* semaphore_workload.c: semaphores and latches */
void sim_counted_make(struct sim_client *cl);
void sim_counted_free(struct sim_client *cl);
/* Acquires n + 1 permits, and releases them. */
void sim_counted_permits(struct sim_client *cl, struct sim_chance *c, int n);
void sim_counted_round(struct sim_client *cl, struct sim_chance *c, int thread);
void sim_counted_open(struct sim_client *cl); /* the latch, at the end */
void sim_counted_dead(const struct sim_proc *p);
void sim_counted_look(void);
void sim_counted_end(void);

/* detached_workload.c: locks that a release leaves on the server */
/* Returns whether this owner left or kept the lock, so that it is no orphan. A
 * writer is named without ":write". */
bool sim_is_detached(const char *name, const char *owner);
/* The same for all owners of a client among these fields. */
bool sim_all_detached(const char *name, const char *uuid, const char *fields);
/* Returns whether it may expire without a message, now or within that time. */
bool sim_ends_silently(const char *name, int64_t within_us);
void sim_detached_dead(const struct sim_proc *p);
void sim_detached_closed(const struct sim_proc *p);

/* redisson_client.c: clients that use the keys and messages of Redisson */
void sim_redisson_begin(void);
/* The Redisson client that holds it, shared or not; NULL = none. */
const char *sim_redisson_hold(const char *name, bool shared);
/* Returns whether the owner is a Redisson client, and since when that one waits
 * for the fair lock. */
bool sim_redisson_wait(const char *owner, int64_t *since);
int sim_redisson_slots(void); /* that Redisson clients have */
int64_t
sim_redisson_permits(void); /* of the semaphore, acquired by Redisson clients */

/* ---- the invariant checker ---------------------------------------------- */

/* A grant as the simulated program knows it. Lives on the stack of the program
 * that holds the lock. */
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
    int64_t lost_at; /* when the checker noticed the loss; 0 = not lost */
    int64_t lost_idle;
    int64_t odd_since; /* since when the server does not have it; 0 = it does */
    int64_t token;     /* of a fenced lock */
    int told;          /* on_lost was called */
    bool over;         /* its release has returned */
    dibs_err gave;     /* the result of that release */
    bool adopted;      /* another owner left it */
    bool
        shifts; /* several calls take it and give it back: concurrent_owner.c */
    bool tracked;    /* the server tracks its key for its client */
    int64_t gone_at; /* since when it is not on the server; 0 = it is */
};

/* Prints which promise is broken and why, and ends the run. */
_Noreturn void sim_broken(const char *promise, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- invariant_checker_lateness.c --------------------------------------- */

/* One call that waits. Lives on the stack of the caller. */
struct sim_wait {
    struct sim_wait *next;
    const struct sim_proc *proc;
    int what;     /* a sim_thing, or a number behind SIM_THINGS */
    int64_t need; /* permits */
    int64_t since;
    bool polls;
    bool pair; /* another call of its owner may use the same lock */
};

void sim_lateness_begin(void);
void sim_lateness_wait(
    struct sim_wait *w); /* the call begins: what, need, polls */
void sim_lateness_done(struct sim_wait *w, dibs_err err); /* it has returned */
void sim_lateness_dead(const struct sim_proc *p);
void sim_lateness_look(void); /* periodically, for what no event shows */
/* A close, from..now, whose process was stopped for idle_us of it. */
void sim_lateness_closed(int64_t from, int64_t idle_us);
/* The longest of each kind in this run, in us; and what the kinds are called:
 * NULL behind the last. */
extern int64_t sim_lateness_longest[SIM_LATE_KINDS];
const char *sim_lateness_name(int i);
/* Without the exceptions that docs/testing.md marks. */
extern bool sim_strict_wakeups;

void sim_check_begin(void);
/* All grants that have not been released. */
struct sim_claim *sim_claims(void);
/* Returns whether the client believes that it holds. *sure: no thread of it was
 * inside the mutex. */
bool sim_believes(const struct sim_claim *cl, bool *sure, int64_t *valid_ms);
/* The owner as the server has it. False: it does not hold, or that is unknown
 * now. */
bool sim_owner_of(const struct sim_claim *cl, const dibs_lock *l,
                  char text[DIBS_OWNER_MAX + 8]);
void sim_check_granted(struct sim_claim *cl);
/* A Redisson client was granted this. */
void sim_check_redisson_grant(const char *name, bool shared, const char *who);
void sim_check_releasing(
    struct sim_claim *cl); /* before its release is called */
/* A re-entry has the token of the first hold. */
void sim_check_token(const struct sim_claim *cl);
void sim_check_dead(const struct sim_proc *p);
/* from: when the close began. */
void sim_check_closed(const struct sim_client *cl, const char *uuid,
                      int64_t from);
/* Its release returned LOST. */
void sim_check_lost(const struct sim_claim *cl);
void sim_check_end(void);
void sim_check_orphans(void); /* holds that no call owns */
/* A call took from..now; it may take most_ms, and what its process was
 * stopped meanwhile. */
void sim_check_time(const char *call, int64_t from, int64_t idle_before,
                    int64_t most_ms);

#endif
