/* SPDX-License-Identifier: MIT
 *
 * shutdown_hook.h - called when the client closes.
 *
 * For the layers above locks: an operation on several locks (src/group), or its
 * back-off timer, registers a hook with one of its clients. It has to end
 * before that client is freed.
 */
#ifndef DIBS_LOCK_CORE_SHUTDOWN_HOOK_H
#define DIBS_LOCK_CORE_SHUTDOWN_HOOK_H

#include "lock/core/lock_manager.h"

struct dibs__shutdown_hook {
    struct dibs__list link; /* client.mu: in
                                                   manager.shutdown_hooks */
    bool closing;           /* client.mu: close was called */
    /* Takes a reference, which the close or over that follows drops. NULL: only
     * the io thread frees the hook's owner. Requires client.mu. */
    void (*ref)(struct dibs__shutdown_hook *hook);
    /* The client closes: the hook's owner has to end. Called once. No mutex
     * held. Thread: io. */
    void (*on_close)(struct dibs__shutdown_hook *hook);
    /* The time limit of the close is over: must unregister the hook. No mutex
     * held. Thread: io. */
    void (*on_close_timeout)(struct dibs__shutdown_hook *hook);
};

/* Thread: any. */
void dibs__shutdown_hook_register(struct dibs__lock_manager *manager,
                                  struct dibs__shutdown_hook *hook);
/* Idempotent. Thread: any. */
void dibs__shutdown_hook_unregister(struct dibs__lock_manager *manager,
                                    struct dibs__shutdown_hook *hook);
/* Calls close, or over, of all hooks that are registered. Thread: io. */
void dibs__shutdown_hooks_close(struct dibs__lock_manager *manager);
void dibs__shutdown_hooks_expire(struct dibs__lock_manager *manager);

#endif
