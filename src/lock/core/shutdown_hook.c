/* SPDX-License-Identifier: MIT
 *
 * shutdown_hook.c - work of a layer above locks that must end before its client
 * does.
 *
 * Thread  any; hooks on io.
 * Locks   client.mu for the list, not held while a hook runs.
 */
#include "lock/core/shutdown_hook.h"

void dibs__work_register(struct dibs__locks *lk, struct dibs__work *w)
{
    dibs__lock(&lk->c->mu);
    dibs__list_add(&lk->works, &w->link);
    dibs__unlock(&lk->c->mu);
}

void dibs__work_unregister(struct dibs__locks *lk, struct dibs__work *w)
{
    dibs__lock(&lk->c->mu);
    dibs__list_del(&w->link);
    dibs__unlock(&lk->c->mu);
}

/* The first whose close was not called yet, or the first of all. */
static struct dibs__work *next_work(struct dibs__locks *lk, bool any)
{
    struct dibs__work *found = NULL;

    dibs__lock(&lk->c->mu);
    for (struct dibs__list *l = lk->works.next; l != &lk->works && !found;
         l = l->next) {
        struct dibs__work *w = DIBS_OF(l, struct dibs__work, link);
        if (any || !w->closing)
            found = w;
    }
    if (found) {
        found->closing = true;
        if (found->ref)
            found->ref(found);
    }
    dibs__unlock(&lk->c->mu);
    return found;
}

void dibs__works_close(struct dibs__locks *lk)
{
    for (struct dibs__work *w; (w = next_work(lk, false));)
        w->close(w);
}

void dibs__works_over(struct dibs__locks *lk)
{
    for (struct dibs__work *w; (w = next_work(lk, true));)
        w->over(w);
}
