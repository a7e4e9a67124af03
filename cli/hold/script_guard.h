/* SPDX-License-Identifier: MIT
 *
 * script_guard.h - a process that signals a script if its keeper is killed.
 */
#ifndef DIBS_CLI_HOLD_SCRIPT_GUARD_H
#define DIBS_CLI_HOLD_SCRIPT_GUARD_H

#include "hold/pid_target.h"
#include "hold/release_plan.h"

struct script_guard {
    int fd; /* the keeper writes here; the guard reads EOF when it dies; -1 none
             */
    struct release_plan release;
};

/* Forks the guard; none with --on-lost warn. Call it before threads are
 * started. The guard closes its copy of news_fd. Returns 0 or an errno. */
int script_guard_start(struct script_guard *w, const struct args *a,
                       const struct script *s, int news_fd);

/* From now on the guard also releases the lock, once the script has ended. */
void script_guard_set_release_plan(struct script_guard *w,
                                   const struct lock_session *g);

/* When the guard kills the script if the keeper is killed, on the clock of
 * time.h. held false: the keeper has no lock, so its end needs no action. */
void script_guard_update(struct script_guard *w, int64_t kill_at, bool held);

#endif
