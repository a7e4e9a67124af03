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
    int fd;    /* we write here; its end is our end */
};

/* What the guard has besides its pipe. */
struct guard_plan {
    const struct will *will; /* what to release; NULL: nothing */
    int inner_fd;            /* the pipe that inner runs join; -1 none */
    const int *outer_fds;    /* pipes of outer runs, which it joins */
    size_t n_outer;
};

/* False when the system has no process for us. */
bool guard_start(struct guard *g, const struct guard_plan *plan);

/* Tells what to kill: a process group, or with group false a single process;
 * and when, on the clock of time.h. TIME_NEVER: only when we die. */
void guard_set(struct guard *g, pid_t pid, bool group, int64_t kill_at);

/* The command runs on without the lock: outer runs need not wait for it. */
void guard_leave(struct guard *g);

/* Ends it: there is nothing left to kill. True when it had to kill before. */
bool guard_stop(struct guard *g);

#endif
