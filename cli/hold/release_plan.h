/* SPDX-License-Identifier: MIT
 *
 * release_plan.h - what to release if dibs is killed: written in
 * advance, executed by another process.
 */
#ifndef DIBS_CLI_HOLD_RELEASE_PLAN_H
#define DIBS_CLI_HOLD_RELEASE_PLAN_H

#include "run/lock_session.h"

struct release_plan {
    int fd;  /* the text; -1 none */
    int exe; /* this program; -1 none */
};

/* Creates an empty plan. Call it before the fork, so that both processes have
 * the descriptors. */
void release_plan_open(struct release_plan *w);
/* Writes the hold of the session. Call it once. */
void release_plan_write(struct release_plan *w, const struct lock_session *g);
void release_plan_close(struct release_plan *w);

/* Replaces this process by one that executes the plan; returns if that fails.
 * Async-signal-safe. */
void release_plan_exec(const struct release_plan *w);

/* The main function of that process. */
int release_plan_main(void);

#endif
