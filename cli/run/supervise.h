/* SPDX-License-Identifier: MIT
 *
 * supervise.h - watches a command and its lock until the command is gone.
 */
#ifndef DIBS_CLI_RUN_SUPERVISE_H
#define DIBS_CLI_RUN_SUPERVISE_H

#include <stdbool.h>
#include <stdint.h>

#include "run/child.h"
#include "run/lock_session.h"

enum stop_why {
    STOP_NOT, /* it ended by itself */
    STOP_LOST,
    STOP_TOOLONG
};

struct supervisor {
    const struct args *a;
    struct lock_session *g;
    struct child *ch;
    const struct child_plan *plan;

    int timer;
    enum stop_why why;
    bool late;  /* lost, and the command was left to run on */
    bool typed; /* an interrupt may have come from the terminal */

    int64_t grace_ms;  /* from TERM to KILL when the lock is being lost */
    int64_t margin_ms; /* from KILL to the end of the lease */
    /* Times on the clock of time.h; TIME_NEVER when there is none. */
    int64_t deadline; /* the lock is ours until then */
    int64_t run_end, kill_at;
    int64_t look_at; /* to see whether the group is gone */
    int64_t look_ms;
    int64_t tell_at; /* that the group is not gone */
    bool told_denied;
};

/* How long a command gets from TERM to KILL when its lock is being lost. */
int64_t supervise_grace_ms(const struct args *a, const struct lock_session *g);

/* When the guard of a command that starts now kills it, unless a renewal moves
 * that: dibs may be stopped before its first guard_set. */
int64_t supervise_kill_at(const struct args *a, const struct lock_session *g);

/* Runs until the command is gone and its group with it, and until the runs
 * inside of it have stopped theirs. */
void supervise_run(struct supervisor *w, const struct args *a,
                   struct lock_session *g, struct child *ch,
                   const struct child_plan *plan);

#endif
