/* SPDX-License-Identifier: MIT
 *
 * program.h - a thread of a simulated program, and what it does with a lock.
 */
#ifndef DIBS_SIM_PROGRAM_H
#define DIBS_SIM_PROGRAM_H

#include "sim/world.h"

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

/* program.c */
dibs_err sim_take(struct sim_program *pr, dibs_lock *l, enum sim_form form,
                  const dibs_lock_opts *o);
/* The longest an acquire may take in ms: P7; -1 = for ever. */
int64_t sim_take_limit(enum sim_thing t, enum sim_form form,
                       const dibs_lock_opts *o);
/* It was not granted: may that be? */
void sim_check_refusal(const struct sim_program *pr, enum sim_thing t,
                       enum sim_form form, const dibs_lock_opts *o,
                       dibs_err err);
/* on_lost; arg is the claim. */
void sim_claim_lost(const char *name, dibs_owner owner, void *arg);
void sim_hold_on(struct sim_program *pr, int64_t us);
/* Gives it back, and checks what the release says. */
void sim_let_go(struct sim_program *pr, struct sim_claim *claim);

/* halves.c */
enum sim_thing sim_other_half(enum sim_thing t); /* or itself */
/* A writer reads, too, once or several times. It may give back the write half
 * before the other: then write->over. */
void sim_read_too(struct sim_program *pr, struct sim_claim *write);
/* A reader would like to write. */
void sim_write_too(struct sim_program *pr, struct sim_claim *read);

#endif
