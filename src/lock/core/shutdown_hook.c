/* SPDX-License-Identifier: MIT
 *
 * shutdown_hook.c - called when the client closes.
 *
 * Thread  any; hooks are called on io.
 * Locks   client.mu for the list, not held while a hook runs.
 */
#include "lock/core/shutdown_hook.h"

void dibs__shutdown_hook_register(struct dibs__lock_manager *manager,
                                  struct dibs__shutdown_hook *hook)
{
    dibs__lock(&manager->c->mu);
    dibs__list_add(&manager->shutdown_hooks, &hook->link);
    dibs__unlock(&manager->c->mu);
}

void dibs__shutdown_hook_unregister(struct dibs__lock_manager *manager,
                                    struct dibs__shutdown_hook *hook)
{
    dibs__lock(&manager->c->mu);
    dibs__list_del(&hook->link);
    dibs__unlock(&manager->c->mu);
}

/* Returns the first hook whose close was not called yet; any: the first of all.
 * Takes a reference to it and sets closing. NULL: none. */
static struct dibs__shutdown_hook *next_hook(struct dibs__lock_manager *manager,
                                             bool any)
{
    struct dibs__shutdown_hook *found = NULL;

    dibs__lock(&manager->c->mu);
    for (struct dibs__list *l = manager->shutdown_hooks.next;
         l != &manager->shutdown_hooks && !found; l = l->next) {
        struct dibs__shutdown_hook *hook =
            DIBS_OF(l, struct dibs__shutdown_hook, link);
        if (any || !hook->closing)
            found = hook;
    }
    if (found) {
        found->closing = true;
        if (found->ref)
            found->ref(found);
    }
    dibs__unlock(&manager->c->mu);
    return found;
}

void dibs__shutdown_hooks_close(struct dibs__lock_manager *manager)
{
    for (struct dibs__shutdown_hook *hook; (hook = next_hook(manager, false));)
        hook->on_close(hook);
}

void dibs__shutdown_hooks_expire(struct dibs__lock_manager *manager)
{
    for (struct dibs__shutdown_hook *hook; (hook = next_hook(manager, true));)
        hook->on_close_timeout(hook);
}
