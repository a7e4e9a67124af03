/* SPDX-License-Identifier: MIT
 *
 * wait_end.c - calls that must not wait any longer.
 *
 * Thread  io.
 * Locks   the mutex of the wait.
 *
 * How     A call goes when its time is over, when it is canceled, or when the
 *         client closes. One that awaits an answer stays for the answer, which
 *         has a limit itself. The line remembers the first deadline, so most
 *         looks need not go through all waiters. wait_queue.c has the table of
 *         states.
 */
#include "lock/wait/care.h"

#define AFTER_MS 10 /* look again at one that could not be dealt with */

static struct dibs__waiter *swept_waiter(struct dibs__list *l)
{
    return DIBS_OF(l, struct dibs__waiter, link);
}

static bool line_closes(const struct dibs__wait_queue *queue)
{
    return queue->ops->info(queue).closing;
}

static bool must_go(const struct dibs__waiter *waiter, int64_t now,
                    bool closing)
{
    return waiter->canceled || closing || now >= waiter->deadline;
}

bool dibs__wait_queue_expire_one(struct dibs__wait_queue *queue,
                                 struct dibs__waiter *waiter, int64_t now,
                                 bool never_closes,
                                 struct dibs__expired_waiters *out)
{
    dibs__assert_held(queue->mu);
    if (!must_go(waiter, now, line_closes(queue) && !never_closes)) {
        dibs__care_deadline(queue->care, waiter->deadline);
        return false;
    }
    dibs__list_del(&waiter->link);
    waiter->state = WAITER_IDLE;
    queue->blocked_count--;
    dibs__list_add(&out->expired, &waiter->link);
    return true;
}

static void sweep_waiters(struct dibs__wait_queue *queue, int64_t now,
                          struct dibs__expired_waiters *out) REQUIRES(*w->mu)
{
    bool closing = line_closes(queue);

    for (struct dibs__list *l = queue->waiters.next, *n; l != &queue->waiters;
         l = n) {
        struct dibs__waiter *waiter = swept_waiter(l);
        bool must = must_go(waiter, now, closing);
        n = l->next;
        if (must &&
            (waiter->state == WAITER_PARKED ||
             (waiter->state == WAITER_HANDOFF_PENDING &&
              queue->ops->decline_handoff(queue, waiter, &out->resume)))) {
            dibs__list_del(l);
            waiter->state = WAITER_IDLE;
            dibs__list_add(&out->expired, l);
            continue;
        }
        queue->care->canceled |= waiter->canceled;
        queue->care->first_deadline =
            dibs__min(queue->care->first_deadline,
                      must ? now + AFTER_MS : waiter->deadline);
    }
}

void dibs__wait_queue_collect_expired(struct dibs__wait_queue *queue,
                                      int64_t now,
                                      struct dibs__expired_waiters *out)
{
    struct dibs__care *care = queue->care;

    dibs__list_init(&out->expired);
    dibs__list_init(&out->resume);
    if (!care ||
        (now < care->first_deadline && !care->canceled && !line_closes(queue)))
        return;
    care->first_deadline = INT64_MAX;
    care->canceled = false;
    if (queue->blocked_count)
        queue->ops->expire_blocked(queue, now, out);
    sweep_waiters(queue, now, out);
}

void dibs__wait_queue_end(struct dibs__wait_queue *queue,
                          struct dibs__expired_waiters *expired)
{
    dibs_err otherwise =
        line_closes(queue) ? DIBS_ERR_CLOSED : DIBS_ERR_TIMEOUT;

    for (struct dibs__list *l; (l = dibs__list_pop(&expired->expired));) {
        struct dibs__waiter *waiter = swept_waiter(l);
        bool canceled = waiter->canceled && otherwise != DIBS_ERR_CLOSED;
        queue->ops->end(waiter, canceled ? DIBS_ERR_CANCELED : otherwise);
    }
    if (!dibs__list_empty(&expired->resume))
        queue->ops->resume(&expired->resume);
}

void dibs__wait_queue_expire(struct dibs__wait_queue *queue)
{
    struct dibs__expired_waiters expired;

    dibs__lock(queue->mu);
    dibs__wait_queue_collect_expired(queue, dibs__now_ms(), &expired);
    dibs__unlock(queue->mu);
    dibs__wait_queue_end(queue, &expired);
}
