/* SPDX-License-Identifier: MIT
 *
 * program.h - a thread of a simulated program, and what it does with a lock.
 */
#ifndef DIBS_SIM_PROGRAM_H
#define DIBS_SIM_PROGRAM_H

#include "sim/simulation.h"

struct sim_program {
    struct sim_client *client;
    int number;
    struct sim_chance chance;
    dibs_owner owner;
    bool own_owner; /* not that of its thread */
    bool
        uses[SIM_THINGS]; /* between a call for it and the end of its release */
    bool again;           /* the next round is for the same thing, at once */
    enum sim_thing waits_for;
    bool waiting;
    int64_t waits_since;
    bool queued;   /* it waits in a queue, */
    int overtaken; /* and others that came later were served */
    bool async_done;
    dibs_err async_err;
};

enum sim_form { FORM_ACQUIRE, FORM_TRY, FORM_ACQUIRE_ASYNC, FORM_TRY_ASYNC };

/* calls.c */
dibs_err sim_take(struct sim_program *pr, dibs_lock *l, enum sim_form form,
                  const dibs_lock_opts *o);
dibs_err sim_give(struct sim_program *pr, dibs_lock *l,
                  const dibs_lock_opts *o);

/* program.c */
#define SLACK_MS 100 /* for turns of fibers, and the way of bytes */
bool sim_is_group(enum sim_thing t);
enum sim_thing sim_pick_thing(struct sim_program *pr);
/* Returns whether a call may fail, by the plan or because a thread was stopped.
 */
bool sim_may_fail(const struct sim_program *pr);
/* The longest an acquire may take in ms: P7; -1 = for ever. */
int64_t sim_take_limit(enum sim_thing t, enum sim_form form,
                       const dibs_lock_opts *o);
/* Checks whether the result of an acquire that was not granted is allowed. */
void sim_check_refusal(const struct sim_program *pr, enum sim_thing t,
                       enum sim_form form, const dibs_lock_opts *o,
                       dibs_err err);
/* on_lost; arg is the claim. */
void sim_claim_lost(const char *name, dibs_owner owner, void *arg);
void sim_hold_on(struct sim_program *pr, int64_t us);
/* Holds a granted lock for a while, and releases it. */
void sim_hold(struct sim_program *pr, struct sim_claim *claim);
/* Releases it, and checks the result. */
void sim_let_go(struct sim_program *pr, struct sim_claim *claim);

/* extend.c */
/* Extends the lease of a hold. */
void sim_extend(struct sim_program *pr, struct sim_claim *claim);

/* detached_workload.c */
/* Draws what the release leaves on the server: nothing, the lock for a while
 * (keep_ms), or for adoption (leave). Fills o. NULL: not the last level. */
struct sim_detached *sim_detached_draw(struct sim_program *pr,
                                       const struct sim_claim *claim,
                                       dibs_lock_opts *o);
/* The release has returned. left: may be NULL. */
void sim_detached_told(struct sim_detached *left, const struct sim_claim *claim,
                       dibs_err err);
/* Adopts a lock that was left, and holds it. False: there is none. */
bool sim_adopt_round(struct sim_program *pr);

/* concurrent_owner.c */
/* Two calls of one owner at once, for a while. */
void sim_pair_round(struct sim_program *pr);

/* rw_workload.c */
enum sim_thing sim_other_half(enum sim_thing t); /* or itself */
/* A writer also reads, once or several times. It may release the write mode
 * first: then write->over. */
void sim_read_too(struct sim_program *pr, struct sim_claim *write);
/* A reader tries to write. */
void sim_write_too(struct sim_program *pr, struct sim_claim *read);

#endif
