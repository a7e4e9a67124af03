/* SPDX-License-Identifier: MIT
 *
 * wait_status.h - shows who has the lock while we wait for it.
 */
#ifndef DIBS_CLI_RUN_WAIT_STATUS_H
#define DIBS_CLI_RUN_WAIT_STATUS_H

#include <stdbool.h>
#include <stdint.h>

#include "run/lock_set.h"

struct waiting {
    const struct args *a;
    struct lock_set *b;
    int64_t since; /* on the clock of time.h */
    bool terminal; /* a line there; else a message now and then, with -v */
    bool on;       /* from begin to end */
    bool asked;    /* and no answer has come yet */
    int64_t ask_at, show_at, pause_ms;
    size_t member; /* whom we ask about */
    dibs_lock_info info;
    struct who who; /* the owner in info; as of who_at */
    int64_t who_at;
};

void waiting_begin(struct waiting *w, const struct args *a, struct lock_set *b,
                   int64_t since);
/* When to call waiting_tick next; TIME_NEVER: not at all. */
int64_t waiting_due(const struct waiting *w);
void waiting_tick(struct waiting *w);
void waiting_end(struct waiting *w);

#endif
