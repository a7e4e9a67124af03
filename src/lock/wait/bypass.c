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

static bool may_be_passed(const struct dibs__waiter *waiter, int64_t now)
{
    return waiter->state == WAITER_PARKED && waiter->refused_at &&
           now - waiter->refused_at >= HOLD_UP_MS;
}

bool dibs__pass_joined(struct dibs__wait_queue *queue,
                       const struct dibs__waiter *waiter)
{
    const struct dibs__waiter *head = listed_waiter(queue->waiters.next);

    return queue->ops->wants && may_be_passed(head, dibs__now_ms()) &&
           queue->ops->wants(waiter) < queue->ops->wants(head);
}

void dibs__pass_refused(struct dibs__wait_queue *queue,
                        struct dibs__waiter *waiter)
{
    struct dibs__care *care = queue->care;
    int64_t now = dibs__now_ms();

    if (!queue->ops->wants || queue->ops->wants(waiter) <= 1)
        return;
    if (!waiter->refused_at)
        waiter->refused_at = now;
    if (may_be_passed(waiter, now))
        care->below = dibs__max(care->below, queue->ops->wants(waiter));
    else
        care->next_try =
            dibs__min(care->next_try, waiter->refused_at + HOLD_UP_MS);
}

struct dibs__waiter *dibs__pass_pick(struct dibs__wait_queue *queue,
                                     int64_t below)
{
    struct dibs__list *l = below > 1 ? queue->waiters.next : &queue->waiters;

    for (; l != &queue->waiters; l = l->next) {
        struct dibs__waiter *waiter = listed_waiter(l);
        if (queue->ops->wants(waiter) < below)
            return waiter->state == WAITER_PARKED &&
                           queue->ops->may_retry(queue, waiter)
                       ? waiter
                       : NULL;
    }
    return NULL;
}
