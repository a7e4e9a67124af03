/* SPDX-License-Identifier: MIT
 *
 * child_guard.h - a process that kills the command if dibs cannot.
 */
#ifndef DIBS_CLI_RUN_CHILD_GUARD_H
#define DIBS_CLI_RUN_CHILD_GUARD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "hold/release_plan.h"

struct guard {
    pid_t pid; /* 0 when there is none */
    int fd;    /* dibs writes here; the guard reads EOF when dibs dies */
};

/* What the guard has besides its pipe. */
struct guard_plan {
    const struct release_plan *release; /* what to release; NULL: nothing */
    int inner_fd;         /* the pipe that inner runs join; -1 none */
    const int *outer_fds; /* pipes of outer runs, which it joins */
    size_t n_outer;
};

/* Returns false if fork(2) fails. */
bool guard_start(struct guard *g, const struct guard_plan *plan);

/* Sets what to kill: a process group, or with group false a single process; and
 * when, on the clock of time.h. TIME_NEVER: only when dibs dies. */
void guard_set(struct guard *g, pid_t pid, bool group, int64_t kill_at);

/* The command runs on without the lock: outer runs need not wait for it. */
void guard_leave(struct guard *g);

/* Ends the guard: there is nothing left to kill. Returns whether it has killed
 * before. */
bool guard_stop(struct guard *g);

#endif
