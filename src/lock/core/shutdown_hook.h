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

struct dibs__shutdown_hook {
    struct dibs__list link; /* client.mu: in locks.works */
    bool closing;           /* client.mu: close was called */
    /* A hook follows: until it returns the work must not be freed. Under
     * client.mu; NULL: only io frees it. */
    void (*ref)(struct dibs__shutdown_hook *w);
    /* The client closes: the work has to end soon. Called once. */
    void (*close)(struct dibs__shutdown_hook *w);
    /* The client's time is over: the work unregisters now. Both without a
     * mutex held, each after a ref. Thread: io. */
    void (*over)(struct dibs__shutdown_hook *w);
};

/* Thread: any. */
void dibs__shutdown_hook_register(struct dibs__lock_manager *manager,
                                  struct dibs__shutdown_hook *w);
/* Thread: any. Unregistering twice is harmless. */
void dibs__shutdown_hook_unregister(struct dibs__lock_manager *manager,
                                    struct dibs__shutdown_hook *w);
/* Calls the hooks of all that is registered. Thread: io. */
void dibs__shutdown_hooks_close(struct dibs__lock_manager *manager);
void dibs__shutdown_hooks_expire(struct dibs__lock_manager *manager);

#endif
