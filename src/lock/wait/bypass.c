/* SPDX-License-Identifier: MIT
 *
 * bypass.c - which waiters for a semaphore may retry before a waiter that needs
 * more permits.
 *
 * Thread  any.
 * Locks   queue.mu.
 *
 * How     A waiter that needs many permits may have to wait while fewer are
 *         free. It blocks the waiters behind it for EXCLUSIVE_MS from its
 *         first refusal. After that, each time it is refused, the first waiter
 *         behind it that needs fewer permits retries, too. The head always
 *         retries first, so enough permits for the head go to the head.
 */
#include "lock/wait/care.h"

#define EXCLUSIVE_MS 1000

static struct dibs__waiter *waiter_of(struct dibs__list *l)
{
    return DIBS_OF(l, struct dibs__waiter, link);
}

static bool may_be_bypassed(const struct dibs__waiter *waiter, int64_t now)
{
    return waiter->state == WAITER_PARKED && waiter->refused_at &&
           now - waiter->refused_at >= EXCLUSIVE_MS;
}

bool dibs__bypass_may_retry(struct dibs__wait_queue *queue,
                            const struct dibs__waiter *waiter)
{
    const struct dibs__waiter *head = waiter_of(queue->waiters.next);

    return queue->ops->permits_wanted &&
           may_be_bypassed(head, dibs__now_ms()) &&
           queue->ops->permits_wanted(waiter) <
               queue->ops->permits_wanted(head);
}

void dibs__bypass_on_refusal(struct dibs__wait_queue *queue,
                             struct dibs__waiter *waiter)
{
    struct dibs__care *care = queue->care;
    int64_t now = dibs__now_ms();

    if (!queue->ops->permits_wanted || queue->ops->permits_wanted(waiter) <= 1)
        return;
    if (!waiter->refused_at)
        waiter->refused_at = now;
    if (may_be_bypassed(waiter, now))
        care->below =
            dibs__max(care->below, queue->ops->permits_wanted(waiter));
    else
        care->next_try =
            dibs__min(care->next_try, waiter->refused_at + EXCLUSIVE_MS);
}

struct dibs__waiter *dibs__bypass_next(struct dibs__wait_queue *queue,
                                       int64_t below)
{
    struct dibs__list *l = below > 1 ? queue->waiters.next : &queue->waiters;

    for (; l != &queue->waiters; l = l->next) {
        struct dibs__waiter *waiter = waiter_of(l);
        if (queue->ops->permits_wanted(waiter) < below)
            return waiter->state == WAITER_PARKED &&
                           queue->ops->may_retry(queue, waiter)
                       ? waiter
                       : NULL;
    }
    return NULL;
}
