/* SPDX-License-Identifier: MIT
 *
 * bypass.c - which calls may ask before one that waits for more permits.
 *
 * Thread  any.
 * Locks   the mutex of the wait.
 *
 * How     A call that asks a semaphore for many permits may have to wait while
 *         fewer are free. It holds up those behind it for HOLD_UP_MS from when
 *         it was first told to wait. After that, whenever it is told so again,
 *         the next one behind it that asks for fewer permits asks, too. The
 * head always asks first, so what is enough for the head goes to the head.
 */
#include "lock/wait/care.h"

#define HOLD_UP_MS 1000

static struct dibs__waiter *listed_waiter(struct dibs__list *l)
{
    return DIBS_OF(l, struct dibs__waiter, link);
}

static bool may_be_passed(const struct dibs__waiter *wt, int64_t now)
{
    return wt->state == WAITER_PARKED && wt->refused_at &&
           now - wt->refused_at >= HOLD_UP_MS;
}

bool dibs__pass_joined(struct dibs__wait_queue *w,
                       const struct dibs__waiter *wt)
{
    const struct dibs__waiter *head = listed_waiter(w->waiters.next);

    return w->user->wants && may_be_passed(head, dibs__now_ms()) &&
           w->user->wants(wt) < w->user->wants(head);
}

void dibs__pass_refused(struct dibs__wait_queue *w, struct dibs__waiter *wt)
{
    struct dibs__care *care = w->care;
    int64_t now = dibs__now_ms();

    if (!w->user->wants || w->user->wants(wt) <= 1)
        return;
    if (!wt->refused_at)
        wt->refused_at = now;
    if (may_be_passed(wt, now))
        care->below = dibs__max(care->below, w->user->wants(wt));
    else
        care->next_try = dibs__min(care->next_try, wt->refused_at + HOLD_UP_MS);
}

struct dibs__waiter *dibs__pass_pick(struct dibs__wait_queue *w, int64_t below)
{
    struct dibs__list *l = below > 1 ? w->waiters.next : &w->waiters;

    for (; l != &w->waiters; l = l->next) {
        struct dibs__waiter *wt = listed_waiter(l);
        if (w->user->wants(wt) < below)
            return wt->state == WAITER_PARKED && w->user->may_ask(w, wt) ? wt
                                                                         : NULL;
    }
    return NULL;
}
