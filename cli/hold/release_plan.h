/* SPDX-License-Identifier: MIT
 *
 * release_plan.h - what is to be released when dibs is killed: written down
 * before, and carried out by another process.
 */
#ifndef DIBS_CLI_HOLD_RELEASE_PLAN_H
#define DIBS_CLI_HOLD_RELEASE_PLAN_H

#include "run/lock_session.h"

struct will {
    int fd;  /* the text; -1 none */
    int exe; /* this program; -1 none */
};

/* Nothing is in it yet. Before a fork, so that both processes have it. */
void will_open(struct will *w);
/* What the grip holds, until it is let go. Once. */
void will_write(struct will *w, const struct grip *g);
void will_close(struct will *w);

/* Becomes a process that releases what is written there; returns if that is not
 * possible. Only calls that are safe between fork and exec. */
void will_execute(const struct will *w);

/* That process. */
int will_main(void);

#endif
