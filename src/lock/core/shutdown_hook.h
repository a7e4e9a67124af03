/* SPDX-License-Identifier: MIT
 *
 * shutdown_hook.h - work of a layer above locks that must end before its client
 * does.
 *
 * An operation on several locks, or its pause, registers with one client. When
 * that client closes, it calls the hooks; it does not know what the work is.
 */
#ifndef DIBS_LOCK_CORE_SHUTDOWN_HOOK_H
#define DIBS_LOCK_CORE_SHUTDOWN_HOOK_H

#include "lock/core/lock_manager.h"

struct dibs__work {
    struct dibs__list link; /* client.mu: in locks.works */
    bool closing;           /* client.mu: close was called */
    /* A hook follows: until it returns the work must not be freed. Under
     * client.mu; NULL: only io frees it. */
    void (*ref)(struct dibs__work *w);
    /* The client closes: the work has to end soon. Called once. */
    void (*close)(struct dibs__work *w);
    /* The client's time is over: the work unregisters now. Both without a
     * mutex held, each after a ref. Thread: io. */
    void (*over)(struct dibs__work *w);
};

/* Thread: any. */
void dibs__work_register(struct dibs__locks *lk, struct dibs__work *w);
/* Thread: any. Unregistering twice is harmless. */
void dibs__work_unregister(struct dibs__locks *lk, struct dibs__work *w);
/* Calls the hooks of all that is registered. Thread: io. */
void dibs__works_close(struct dibs__locks *lk);
void dibs__works_over(struct dibs__locks *lk);

#endif
