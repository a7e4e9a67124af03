/* SPDX-License-Identifier: MIT
 *
 * script_guard.h - a process that acts for a script when its keeper is killed.
 */
#ifndef DIBS_CLI_HOLD_SCRIPT_GUARD_H
#define DIBS_CLI_HOLD_SCRIPT_GUARD_H

#include "hold/pid_target.h"
#include "hold/release_plan.h"

struct watcher {
    int fd; /* we write here; its end is our end. -1: there is none */
    struct will will;
};

/* Before there are threads. news_fd is one that it must not keep. 0, or an
 * errno. With --on-lost warn there is none. */
int watcher_start(struct watcher *w, const struct args *a,
                  const struct script *s, int news_fd);

/* From now on it also releases the lock, once the script has ended. */
void watcher_entrust(struct watcher *w, const struct grip *g);

/* When to kill the script if we are killed, on the clock of time.h. held
 * false: if we end now, nothing is lost. */
void watcher_tell(struct watcher *w, int64_t kill_at, bool held);

#endif
